"""`moonlet eval gsm8k` against lm-evaluation-harness itself: tests/golden/gsm8k/make_gsm8k.py made the golden files."""
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from fake_openai import FakeServer

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/gsm8k"
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))


def gsm8k(*options):
    return subprocess.run(
        [MOONLET, "eval", "gsm8k", "--data", str(GOLDEN / "docs.jsonl"), *map(str, options)],
        capture_output=True,
        timeout=300,
    )


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize("draw", ["shots", "same"])
def test_prompts_extracts_and_scores_equal_lm_eval(draw, tmp_path):
    shots = ["--shots-data", GOLDEN / "shots.jsonl"] if draw == "shots" else []
    done = gsm8k(
        "--answers",
        GOLDEN / "answers.jsonl",
        "--shots",
        5,
        "--details",
        tmp_path / "d",
        "--json",
        tmp_path / "j",
        *shots,
    )
    assert done.returncode == 0, done.stderr.decode()
    golden = [g for g in lines(GOLDEN / "golden.jsonl") if g["draw"] == draw]
    details = lines(tmp_path / "d")
    assert len(details) == len(golden) >= 60
    for d, g in zip(details, golden):
        assert hashlib.sha256(d["prompt"].encode()).hexdigest() == g["prompt_sha256"], g["doc"]
        for name in ("strict-match", "flexible-extract"):
            assert d[name] == g[name], (g["doc"], name, d["answer"])
    result = json.loads((tmp_path / "j").read_text())
    totals = json.loads((GOLDEN / "draws.json").read_text())["totals"][draw]
    for name, (value, stderr) in totals.items():
        assert result[f"exact_match,{name}"] == pytest.approx(value, abs=1e-12)
        assert result[f"exact_match_stderr,{name}"] == pytest.approx(stderr, abs=1e-12)
        assert f"|{name:16}|    60|exact_match|{value:.4f}|{stderr:.4f}|" in done.stdout.decode()
    assert result["shots_from_data"] == (draw == "same")
    assert (b"other documents of --data" in done.stdout) == (draw == "same")


def test_against_a_server(tmp_path):
    answers = {
        d["question"]: a["answer"] for d, a in zip(lines(GOLDEN / "docs.jsonl"), lines(GOLDEN / "answers.jsonl"))
    }
    asked = []

    def answer(body):
        asked.append(body)
        return answers[body["prompt"].rsplit("Question: ", 1)[1][: -len("\nAnswer:")]]

    with FakeServer(answer=answer) as server:
        done = gsm8k(
            "--base-url",
            server.url,
            "--shots-data",
            GOLDEN / "shots.jsonl",
            "--limit",
            20,
            "--json",
            tmp_path / "j",
            "--num-concurrent",
            4,
        )
    assert done.returncode == 0, done.stderr.decode()
    golden = [g for g in lines(GOLDEN / "golden.jsonl") if g["draw"] == "shots"][:20]
    result = json.loads((tmp_path / "j").read_text())
    assert result["n"] == 20 and result["failed"] == 0
    assert result["exact_match,strict-match"] * 20 == pytest.approx(sum(g["strict-match"][1] for g in golden))
    assert {hashlib.sha256(b["prompt"].encode()).hexdigest() for b in asked} == {g["prompt_sha256"] for g in golden}
    for body in asked:
        assert body["stop"] == ["Question:", "</s>", "<|im_end|>"] and body["max_tokens"] == 256
        assert body["temperature"] == 0 and body["model"] == "fake" and "ignore_eos" not in body


def test_a_model_in_this_process(tmp_path):
    first, second = (
        gsm8k("--limit", 6, "--shots", 2, "--max-tokens", 40, "--num-concurrent", n, "--details", tmp_path / str(n))
        for n in (1, 6)
    )
    assert first.returncode == second.returncode == 0, first.stderr.decode() + second.stderr.decode()
    alone, together = lines(tmp_path / "1"), lines(tmp_path / "6")
    assert alone == together and all(d["error"] == "" for d in alone)
    assert any(d["answer"] for d in alone)
    assert not any(stop in d["answer"] for d in alone for stop in ("Question:", "</s>", "<|im_end|>"))


def test_failures_are_counted_and_all_of_them_is_status_1():
    with FakeServer(status=500) as server:
        done = gsm8k("--base-url", server.url, "--limit", 3, "--shots", 1)
    assert done.returncode == 1
    assert b"3 requests failed and count as wrong" in done.stdout and b"status 500" in done.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        (["--shots", "60"], b"too few for 60 shots"),
        (["--answers", "/no/such"], b"/no/such"),
        (["--base-url", "ftp://x", "--limit", "1"], b"http://"),
        (["--base-url", "http://127.0.0.1:9", "--limit", "1"], b"127.0.0.1:9"),
    ],
)
def test_bad_input_is_one_line(options, message):
    done = gsm8k(*options)
    assert done.returncode == 1 and message in done.stderr.splitlines()[-1]


def test_a_server_whose_answer_has_no_end():
    def endless():
        yield b'{"choices": [{"text": "'
        while True:
            yield b"#### 1" * 10000

    with FakeServer(hostile=endless) as server:
        done = gsm8k("--base-url", server.url, "--shots", 0, "--limit", 2, "--max-answer-mb", 2)
    assert done.returncode == 1 and b"the answer is longer than 2000000 bytes" in done.stderr, done.stderr
    assert server.sent < 40e6
