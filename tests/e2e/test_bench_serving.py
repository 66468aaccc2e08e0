"""`moonlet bench serving` against a fake server with known timing, and on the engine in its own process."""
import json
import os
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest

from fake_openai import FakeServer

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = str(ROOT / "models/nano")
TRAIN = ROOT / "tests/golden/gsm8k/shots.jsonl"


def bench(*options, env=None):
    return subprocess.run(
        [MOONLET, "bench", "serving", *map(str, options)],
        capture_output=True,
        timeout=300,
        text=True,
        env={**os.environ, **(env or {})},
    )


def on(server, tmp_path, *options):
    done = bench(
        "--base-url", server.url, "--tokenizer", NANO, "--output-file", tmp_path / "r.jsonl", "--disable-tqdm", *options
    )
    path = tmp_path / "r.jsonl"
    return done, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


RANDOM = [
    "--random-input-len",
    12,
    "--random-output-len",
    8,
    "--random-range-ratio",
    1,
    "--num-prompts",
    6,
    "--warmup-requests",
    0,
]


def test_metrics_follow_the_definitions(tmp_path):
    with FakeServer(first_s=0.15, gap_s=0.06, per_chunk=2) as server:
        done, (r,) = on(server, tmp_path, *RANDOM, "--max-concurrency", 3, "--output-details")
    assert done.returncode == 0, done.stderr
    assert r["completed"] == 6 and r["failed"] == 0 and r["dataset_name"] == "random-ids"
    assert r["total_input_tokens"] == 72 and r["total_output_tokens"] == 48 and r["total_input_tokens_server"] == 72
    assert server.most_active == 3
    # 8 tokens in 4 pieces: TTFT 150 ms, 3 gaps of 60 ms, each for two tokens
    assert 0.148 < min(r["ttfts"]) < 0.3 and min(r["ttfts"]) * 1e3 <= r["median_ttft_ms"]
    assert r["concurrency"] <= 3.01  # waiting for a place is no part of a request's time
    for ttft, itl in zip(r["ttfts"], r["itls"]):
        assert (
            ttft > 0.148 and ttft + sum(itl) > 0.326
        )  # a busy machine may see the first one late, never the last one early
        assert len(itl) == 6 and itl[0] == itl[1] and itl[2] == itl[3] and itl[4] == itl[5]
    e2e = r["mean_e2e_latency_ms"]
    assert r["mean_tpot_ms"] == pytest.approx((e2e - r["mean_ttft_ms"]) / 7, rel=1e-9)
    assert r["output_throughput"] == pytest.approx(48 / r["duration"]) and r["total_throughput"] == pytest.approx(
        120 / r["duration"]
    )
    assert r["concurrency"] == pytest.approx(6 * e2e / 1e3 / r["duration"])
    assert r["median_intvty"] == pytest.approx(1e3 / r["median_tpot_ms"])
    assert r["accept_length"] == 2.5 and r["total_cached_tokens"] == 6
    for label in (
        "Serving Benchmark Result",
        "Successful requests:                     6",
        "Mean TTFT (ms):",
        "P99 ITL (ms):",
        "Accept length:                           2.50",
    ):
        assert label in done.stdout


@pytest.mark.parametrize(
    "backend, path",
    [
        ("moonlet", "/v1/completions"),
        ("openai-chat", "/v1/chat/completions"),
        ("sglang", "/generate"),
        ("vllm", "/v1/completions"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_backends(backend, path, stream, tmp_path):
    if backend == "sglang" and not stream:
        pytest.skip("the fake server streams /generate only")
    with FakeServer() as server:
        done, (r,) = on(
            server,
            tmp_path,
            "--backend",
            backend,
            "--dataset-path",
            TRAIN,
            *RANDOM,
            "--warmup-requests",
            2,
            "--extra-request-body",
            '{"top_k": 3, "temperature": 0.5}',
            *([] if stream else ["--disable-stream"]),
        )
    assert done.returncode == 0, done.stderr
    assert r["completed"] == 6 and r["total_output_tokens"] == 48 and r["dataset_name"] == "random"
    assert [p for p, _ in server.requests] == [path] * 8
    for _, body in server.requests:
        assert body["top_k"] == 3 and body["temperature"] == 0.5
        assert body.get("ignore_eos", body.get("sampling_params", {}).get("ignore_eos")) is True
        assert bool(body.get("stream")) == stream and ("return_token_ids" in body) == (backend == "moonlet")
        assert isinstance(body.get("prompt", body.get("text", body.get("messages"))), (str, list))
    assert (r["median_ttft_ms"] is not None) == stream and ("Mean TTFT" in done.stdout) == stream


def test_random_ids_are_those_of_the_seed(tmp_path):
    with FakeServer() as server:
        on(server, tmp_path, *RANDOM, "--random-range-ratio", 0, "--random-input-len", 50, "--max-concurrency", 1)
        on(server, tmp_path, *RANDOM, "--random-range-ratio", 0, "--random-input-len", 50, "--max-concurrency", 1)
        on(
            server,
            tmp_path,
            *RANDOM,
            "--random-range-ratio",
            0,
            "--random-input-len",
            50,
            "--max-concurrency",
            1,
            "--seed",
            2,
        )
    prompts = [b["prompt"] for _, b in server.requests]
    assert prompts[:6] == prompts[6:12] != prompts[12:]
    # numpy.random.seed(1); numpy.random.randint(1, 51, size=6)
    assert [len(p) for p in prompts[:6]] == [38, 44, 13, 9, 10, 12]
    for p in prompts:
        assert all(b == a + 1 or b == 0 for a, b in zip(p, p[1:]))


def test_poisson_arrivals_take_their_time(tmp_path):
    with FakeServer() as server:
        done, (r,) = on(server, tmp_path, *RANDOM, "--request-rate", 10)
    assert r["request_rate"] == 10 and 0.1 < r["duration"] < 3
    assert done.returncode == 0


def test_failures_are_counted_listed_and_left_out(tmp_path):
    with FakeServer(fail_every=3) as server:
        done, (r,) = on(server, tmp_path, *RANDOM, "--max-concurrency", 1)
    assert done.returncode == 0 and r["completed"] == 4 and r["failed"] == 2 and r["total_output_tokens"] == 32
    assert "2 failed: status 503" in done.stderr and "told to fail" in done.stderr
    with FakeServer(cut_after=4) as server:
        done, (_, r) = on(server, tmp_path, *RANDOM)
    assert done.returncode == 1 and r["completed"] == 0 and r["failed"] == 6 and "before [DONE]" in done.stderr


def test_a_server_that_does_not_count_is_said(tmp_path):
    with FakeServer(usage=False) as server:
        done, (r,) = on(server, tmp_path, *RANDOM, "--backend", "openai")
    assert r["total_output_tokens"] == 48 and "did not count the tokens of 6 answers" in done.stderr


def test_trace_extends_the_conversation(tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        "".join(
            json.dumps(
                {
                    "turns": [
                        {"prompt": f"A{i}", "output_len": 2},
                        {"prompt": "B", "output_len": 3, "delay_s": 0.3},
                        {"prompt": "C", "output_len": 1},
                    ]
                }
            )
            + "\n"
            for i in range(3)
        )
    )
    with FakeServer() as server:
        done, (r,) = on(
            server,
            tmp_path,
            "--backend",
            "openai",
            "--dataset-name",
            "trace",
            "--dataset-path",
            trace,
            "--warmup-requests",
            0,
            "--max-concurrency",
            2,
            "--output-details",
        )
        fast, (_, f) = on(
            server,
            tmp_path,
            "--backend",
            "openai",
            "--dataset-name",
            "trace",
            "--dataset-path",
            trace,
            "--warmup-requests",
            0,
            "--no-delays",
            "--max-concurrency",
            1,
        )
    assert done.returncode == fast.returncode == 0, done.stderr + fast.stderr
    assert r["completed"] == 9 and r["turns"] == [0, 1, 2] * 3 and r["duration"] > 0.59
    prompts = {b["prompt"] for _, b in server.requests}
    assert {"A0", "A0ababB", "A0ababBabababC"} <= prompts
    assert f["duration"] < 0.9  # three pauses of 0.3 s, one after the other, are left out


def test_chat_trace_and_jsonl(tmp_path):
    user = {"role": "user", "content": "hi"}
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        json.dumps({"turns": [{"messages": [user], "output_len": 1}, {"messages": [user], "output_len": 1}]}) + "\n"
    )
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(
        json.dumps({"prompt": "one", "output_len": 4}) + "\n" + json.dumps({"ids": [1, 2, 3], "output_len": 5}) + "\n"
    )
    with FakeServer() as server:
        done, _ = on(
            server,
            tmp_path,
            "--backend",
            "openai-chat",
            "--dataset-name",
            "trace",
            "--dataset-path",
            trace,
            "--warmup-requests",
            0,
        )
        assert done.returncode == 0, done.stderr
        assert server.requests[1][1]["messages"] == [user, {"role": "assistant", "content": "ab"}, user]
        done, rows = on(server, tmp_path, "--dataset-name", "jsonl", "--dataset-path", prompts, "--warmup-requests", 0)
    assert done.returncode == 0 and rows[1]["total_output_tokens"] == 9
    assert [1, 2, 3] in [b.get("prompt") for _, b in server.requests]


def test_sweep_chart_and_compare(tmp_path):
    chart = tmp_path / "c.svg"
    with FakeServer(gap_s=0.005) as server:
        done, rows = on(
            server,
            tmp_path,
            *RANDOM[:6],
            "--num-prompts",
            8,
            "--sweep",
            "1,2,4",
            "--chart",
            chart,
            "--num-gpus",
            2,
            "--warmup-requests",
            0,
        )
    assert done.returncode == 0, done.stderr
    assert [r["max_concurrency"] for r in rows] == [1, 2, 4]
    assert rows[2]["tput_per_gpu"] == pytest.approx(rows[2]["total_throughput"] / 2)
    assert "tok/s/user" in done.stdout and "frontier" in done.stdout
    svg = xml.etree.ElementTree.parse(chart).getroot()
    assert len(svg.findall("{http://www.w3.org/2000/svg}circle")) == 3
    # the times of a machine that does other things too need not make a frontier of more than one point
    for i, row in enumerate(rows):
        row.update(median_tpot_ms=5 + i, total_throughput=1000 * (i + 1))
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = bench("--compare", tmp_path / "r.jsonl", tmp_path / "r.jsonl", "--chart", chart)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("Median TPOT (ms)") == 3 and again.stdout.count("1.000") > 40
    assert "at equal tok/s/GPU" in again.stdout
    xml.etree.ElementTree.parse(chart)


def test_compare_interpolates_as_inferencex_does(tmp_path):
    """SemiAnalysis' published points of Kimi K2.5 on MI355X (2026-03), TP8."""
    for name, points in {
        "old": [(4, 6.6, 28.7), (8, 6.3, 55.0), (16, 6.1, 104.8), (32, 5.6, 191.2), (64, 5.0, 348.5)],
        "new": [(4, 78.9, 337), (8, 60.8, 521), (16, 50.5, 870), (32, 36.4, 1255), (64, 23.3, 1647)],
    }.items():
        (tmp_path / name).write_text(
            "".join(
                json.dumps({"max_concurrency": c, "median_tpot_ms": 1e3 / x, "total_throughput": 8 * y, "gpus": 8})
                + "\n"
                for c, x, y in points
            )
        )
    done = bench("--compare", tmp_path / "old", tmp_path / "new", "--iso", "337,380")
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] in (["337.00"], ["380.00"])]
    assert rows == [["337.00", "5.044", "78.90", "15.64"], ["380.00", "-", "74.67", "-"]], done.stdout


def test_in_process(tmp_path):
    out = tmp_path / "r.jsonl"
    done = bench(
        "--in-process",
        "-m",
        NANO,
        *RANDOM,
        "--max-concurrency",
        3,
        "--output-file",
        out,
        "--output-details",
        "--disable-tqdm",
        "--flush-cache",
        "--warmup-requests",
        1,
    )
    assert done.returncode == 0, done.stderr
    r = json.loads(out.read_text())
    assert r["completed"] == 6 and r["total_output_tokens"] == 48 and r["output_lens"] == [8] * 6
    assert r["total_cached_tokens"] == 0 and all(len(i) == 7 for i in r["itls"]) and all(t > 0 for t in r["ttfts"])
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        json.dumps({"turns": [{"prompt": "A " * 600, "output_len": 2}, {"prompt": "B", "output_len": 3}]}) + "\n"
    )
    done = bench(
        "--in-process",
        "-m",
        NANO,
        "--dataset-name",
        "trace",
        "--dataset-path",
        trace,
        "--tokenize-prompt",
        "--warmup-requests",
        0,
        "--output-file",
        out,
        "--disable-tqdm",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text().splitlines()[1])["total_cached_tokens"] >= 64  # the second turn finds the first


@pytest.mark.parametrize(
    "options, status, message",
    [
        (["--no-such-flag"], 2, "--no-such-flag"),
        (["--backend", "tgi"], 2, "tgi"),
        (["stray"], 2, "stray"),
        (["--compare", "one"], 2, "two"),
        (["--compare", "/no/such", "/no/such"], 1, "/no/such"),
        (["--request-rate", "-1"], 1, "--request-rate"),
        (["--extra-request-body", "[1]"], 1, "--extra-request-body"),
        (["--base-url", "http://127.0.0.1:9"], 1, "127.0.0.1:9"),
        (["--in-process", "--dataset-name", "jsonl"], 1, "--dataset-path"),
        (["--in-process", "--base-url", "http://x"], 1, "--in-process"),
        (["--in-process", "--backend", "vllm"], 1, "--in-process"),
        (["--in-process", "--iso", "3"], 1, "--iso"),
        (["--in-process", "--sweep", "1,x"], 1, "--sweep"),
    ],
)
def test_bad_usage_is_one_line(options, status, message):
    done = bench(*options)
    assert done.returncode == status and message in done.stderr.splitlines()[-1], done.stderr


def test_turns_after_one_that_failed_are_not_asked(tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        "".join(json.dumps({"turns": [{"prompt": f"{c}{i}", "output_len": 2} for i in range(4)]}) + "\n" for c in "AB")
    )
    with FakeServer(fail_every=3) as server:
        done, (r,) = on(
            server,
            tmp_path,
            "--dataset-name",
            "trace",
            "--dataset-path",
            trace,
            "--num-prompts",
            2,
            "--warmup-requests",
            0,
            "--max-concurrency",
            1,
            "--output-details",
        )
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 6 and r["completed"] == 4 and r["failed"] == 4
    assert [bool(e) for e in r["errors"]] == [False, False, True, True] * 2
    assert [e for e in r["errors"] if "earlier turn" in e] == ["an earlier turn failed"] * 2 and r["errors"][
        3
    ] == "an earlier turn failed"


# ---- a server that is not to be trusted ----


def event(**body):
    return f"data: {json.dumps(body)}\n\n".encode()


def endless():
    while True:
        yield event(choices=[{"index": 0, "text": "ab" * 5000}])


HUGE = 9 * 10**18
HOSTILE = {
    "completion_tokens is no whole number from 0 to 8": lambda: [
        event(choices=[{"text": "x"}]),
        event(choices=[], usage={"completion_tokens": HUGE}),
    ],
    "prompt_tokens is no whole number": lambda: [
        event(choices=[{"text": "x"}], usage={"prompt_tokens": HUGE, "completion_tokens": 8})
    ],
    "cached_tokens is no whole number": lambda: [
        event(choices=[], usage={"prompt_tokens_details": {"cached_tokens": -HUGE}})
    ],
    "token_ids are no ids, or more": lambda: [event(choices=[{"text": "x", "token_ids": [7] * 9}])],
    "the answer is longer than 1000000 bytes": endless,
}


@pytest.mark.parametrize("error", HOSTILE)
def test_numbers_and_sizes_of_a_hostile_server(error, tmp_path):
    with FakeServer(hostile=HOSTILE[error]) as server:
        done, _ = on(server, tmp_path, *RANDOM, "--num-prompts", 2, "--max-answer-mb", 1)
    assert done.returncode == 1 and error in done.stderr and done.stderr.count("\n") < 8, done.stderr
    assert server.sent < 40e6, "the connection was closed"


def test_counts_of_native_streams(tmp_path):
    """/generate counts everything so far: 9e18 tokens are not as many turns of a loop."""
    with FakeServer(
        hostile=lambda: [
            event(text="a", meta_info={"completion_tokens": 1}),
            event(text="ab", meta_info={"completion_tokens": HUGE}),
        ]
    ) as server:
        done, _ = on(server, tmp_path, "--backend", "sglang", *RANDOM, "--num-prompts", 2)
    assert done.returncode == 1 and "completion_tokens is no whole number from 0 to 8" in done.stderr, done.stderr


def test_what_extra_request_bodies_ask_for_counts(tmp_path):
    with FakeServer() as server:
        done, (r,) = on(server, tmp_path, *RANDOM, "--extra-request-body", '{"max_tokens": 20}')
    assert done.returncode == 0 and r["total_output_tokens"] == 6 * 20, done.stderr


def test_an_accept_length_that_is_none(tmp_path):
    with FakeServer(accept_length=1e300) as server:
        done, (r,) = on(server, tmp_path, *RANDOM)
    assert done.returncode == 0 and "avg_spec_accept_length" in done.stderr and r["accept_length"] is None
