"""The command line treated badly: closed and full streams, pipes and folders as files, garbage as input. The exit
status is 0, 1 or 2, never a signal, and what went wrong is said."""
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = str(ROOT / "models/nano")
SLOW = 10 if os.environ.get("MOONLET_SLOW") else 1


def sh(command, data=b"", **more):
    """Runs a shell line; $M is the program, $N the nano model."""
    return subprocess.run(
        ["sh", "-c", command],
        input=data,
        capture_output=True,
        timeout=120 * SLOW,
        env=dict(os.environ, M=MOONLET, N=NANO),
        **more,
    )


def logprobs(data, *options):
    return subprocess.run(
        [MOONLET, "eval", "logprobs", "-m", NANO, *options], input=data, capture_output=True, timeout=120 * SLOW
    )


QUESTION = json.dumps({"question": "What is 2 + 3?", "answer": "#### 5"}) + "\n"


@pytest.mark.parametrize(
    "command",
    [
        "$M --version",
        "$M --help",
        "$M run --help",
        "$M check --op gate --cpu-mask none",
        "$M inspect -m $N",
        "$M run -m $N -n 3 --instant -p hi",
        "$M eval answers -m $N -n 3 --data $D",
    ],
)
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_a_lost_answer_is_an_error(command, where, tmp_path):
    data = tmp_path / "q.jsonl"
    data.write_text(QUESTION)
    done = sh(command.replace("$D", str(data)) + where)
    assert done.returncode == 1 and b"write" in done.stderr


def test_files_do_not_take_the_place_of_closed_streams(tmp_path):
    data, details, result = tmp_path / "q.jsonl", tmp_path / "details", tmp_path / "json"
    data.write_text(QUESTION)
    done = sh(f"$M eval answers -m $N -n 3 --data {data} --details {details} --json {result} <&- >&- 2>&-")
    assert done.returncode == 1
    assert details.read_text().count("\n") == 1 and json.loads(result.read_text())["asked"] == 1


def test_stdin_that_cannot_be_read():
    for command in ("$M run -m $N", "$M eval logprobs -m $N", "$M text encode -m $N"):
        for where in ("<&-", "</tmp"):
            done = sh(command + where)
            assert done.returncode == 1 and b"cannot read" in done.stderr, (command, where)
    for command in ("$M run -m $N", "$M eval logprobs -m $N"):
        assert sh(command + "</dev/null").returncode == 0


def test_a_reader_that_leaves():
    done = sh("(yes '{\"ids\": [1, 2, 3]}' | head -n 3000 | $M eval logprobs -m $N; echo $? >&2) | head -n 1")
    assert done.stderr.splitlines()[-1] == b"1" and b"cannot write" in done.stderr


def test_results_that_cannot_be_written_are_refused_first(tmp_path):
    data = tmp_path / "q.jsonl"
    data.write_text(QUESTION * 1000)
    for option in ("--json", "--details"):
        done = sh(f"$M eval answers -m $N --data {data} {option} /no/such/folder/x")
        assert done.returncode == 1 and b"/no/such/folder/x" in done.stderr
        done = sh(f"$M eval answers -m $N -n 3 --limit 1 --data {data} {option} /dev/full")
        assert done.returncode == 1 and b"/dev/full" in done.stderr


def test_questions_from_a_pipe_and_odd_names(tmp_path):
    fifo, result, details = tmp_path / 'a "pipe"\\', tmp_path / "json", tmp_path / "details"
    os.mkfifo(fifo)
    lines = QUESTION + "\r\n" + json.dumps({"question": "What is\n2\t+ 3?", "answer": "x\n#### 5"})
    writer = threading.Thread(target=lambda: fifo.write_text(lines))
    writer.start()
    done = subprocess.run(
        [
            MOONLET,
            "eval",
            "answers",
            "-m",
            NANO,
            "-n",
            "20",
            "--data",
            str(fifo),
            "--json",
            str(result),
            "--details",
            str(details),
        ],
        capture_output=True,
        timeout=60 * SLOW,
    )
    writer.join()
    assert done.returncode == 0, done.stderr
    answer = json.loads(result.read_text())
    assert answer["asked"] == 2 and answer["data"] == str(fifo)
    assert [line.count("\t") for line in details.read_text().splitlines()] == [3, 3]


def test_a_question_with_a_nul_is_asked_whole(tmp_path):
    data = tmp_path / "q.jsonl"
    data.write_text(json.dumps({"question": "\0 What is 2 + 3?", "answer": "#### 5"}) + "\n")
    done = sh(f"$M eval answers -m $N -n 40 --data {data}")
    assert done.returncode == 0


def test_text_that_is_not_utf8_is_not_replaced():
    done = subprocess.run([MOONLET, "run", "-m", NANO, "-n", "3", "-p", b"\xff"], capture_output=True)
    assert done.returncode == 1 and b"not valid UTF-8" in done.stderr and done.stdout == b""
    done = subprocess.run([MOONLET, "run", "-m", NANO, "-n", "3", "-p", "hi", "-s", b"\xff"], capture_output=True)
    assert done.returncode == 1 and b"not valid UTF-8" in done.stderr
    done = subprocess.run([MOONLET, "run", "-m", NANO, "-n", "3", "--raw", "-p", b"\xff"], capture_output=True)
    assert done.returncode == 0


def test_garbage_in_a_conversation():
    garbage = bytes(range(256)) * 20 + b"\nWhat is 2 + 3?"
    done = subprocess.run(
        [MOONLET, "run", "-m", NANO, "-n", "200"], input=garbage, capture_output=True, timeout=60 * SLOW
    )
    assert done.returncode == 1 and b"not valid UTF-8" in done.stderr
    assert b"5" in done.stdout


def test_lines_of_every_kind():
    lines = [
        b'{"ids": [1, 2]}\r',
        b"",
        b"\0",
        b'{"text": "a\\u0000b"}',
        b'{"text": "\xff"}',
        b'{"ids": [1], "ids": [2]}',
        b'{"text": ""}',
        b'{"ids": [1e0]}',
        b'{"ids": [-1]}',
        b"[" * 100000,
        b'{"text": "hi"}',
    ]
    done = logprobs(b"\n".join(lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and len(answers) == len(lines)
    assert ["error" in a for a in answers] == [False, True, True, False, True, True, True, True, True, True, False]


def test_a_line_of_a_hundred_megabytes():
    done = logprobs(b'{"text": "' + b"a" * 100_000_000 + b'"}\n{"ids": [1, 2]}\n')
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and "context" in answers[0]["error"] and "logprobs" in answers[1]


def test_errors_are_utf8_however_they_are_cut():
    lines = [json.dumps({"é" * n: 1, "text": "x"}, ensure_ascii=False) for n in (240, 241, 242, 250, 255, 256, 300)]
    lines += [json.dumps({"a" + "\U0001f600" * n: 1, "text": "x"}, ensure_ascii=False) for n in range(118, 130)]
    done = subprocess.run([MOONLET, "text", "encode", "-m", NANO], input="\n".join(lines).encode(), capture_output=True)
    answers = [json.loads(line.decode()) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and len(answers) == len(lines) and all("unknown key" in a["error"] for a in answers)


@pytest.mark.parametrize(
    "options",
    [
        "--override",
        "--override x",
        "--override =",
        "--override num_hidden_layers=0",
        "--override num_hidden_layers=99",
        "--override num_hidden_layers=1.5",
        "--override num_hidden_layers=nan",
        "--override vocab_size=5",
        "--threads -1",
        "--threads 99999999999999999999",
        "--threads 5000",
        "--context-length 0",
        "--context-length 99999999",
        "--chunked-prefill-size 0",
        "--kv-cache-dtype int4",
        "--cpu-mask sse",
        "--device cuda",
        "--top-k -1",
        "--top-p 0",
        "--temperature nan",
        "-n 0",
        "-n 1000000",
        "--seed x",
        "--template nonsense",
        "--unknown",
        "word",
        "-m /no/such",
        "-m /tmp",
        "-m /dev/null",
        "-m ''",
    ],
)
def test_nonsense_is_named(options):
    done = sh(f"$M run -m $N -p hi {options}")
    assert done.returncode in (1, 2) and done.stdout == b""
    assert len(done.stderr.splitlines()) in (1, 2) and done.stderr.startswith((b"moonlet run: ", b"cpu")), done.stderr


def test_more_threads_than_processors_and_more_top_than_vocabulary():
    for device in ("ref", "cpu"):
        done = logprobs(b'{"ids": [1, 2]}\n', "--threads", "1000", "--device", device, "--top", "1000")
        assert done.returncode == 0 and len(json.loads(done.stdout)["top"]) == 3
    assert logprobs(b'{"ids": [1]}\n', "--top", "1001").returncode == 2
