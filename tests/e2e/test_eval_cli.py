"""`moonlet eval logprobs` from outside: against transformers' golden logits, and its answers to bad lines."""
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN, DRAWN = ROOT / "tests/golden", ROOT / "build/golden"  # make golden draws the weights
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
DIRS = ["k2-instruct-fp8", "k2-thinking-int4", "k2.5-int4", "plain-bf16", "plain-fp32"]


def eval_logprobs(model, lines, *options):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    return subprocess.run(
        [MOONLET, "eval", "logprobs", "-m", str(model), *options], input=text.encode(), capture_output=True, timeout=300
    )


@pytest.mark.parametrize("name", DIRS)
@pytest.mark.parametrize("device, form", [("ref", []), ("cpu", []), ("cpu", ["--decode"])])
def test_logprobs_equal_transformers(name, device, form, tmp_path):
    out = tmp_path / "out.jsonl"
    with open(out, "wb") as f:
        done = subprocess.run(
            [
                MOONLET,
                "eval",
                "logprobs",
                "-m",
                str(DRAWN / name),
                "--device",
                device,
                "--context-length",
                "640",
                "--data",
                str(GOLDEN / name / "prompts.jsonl"),
                "--top",
                "1000",
                *form,
            ],
            stdout=f,
            stderr=subprocess.PIPE,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert b"perplexity" in done.stderr
    exact = device == "ref" or name == "plain-fp32"
    bounds = "ref" if exact else "quantised" if "int4" in name else "bf16"
    check = subprocess.run(
        [sys.executable, str(GOLDEN / "compare_logprobs.py"), str(GOLDEN / name), str(out), "--bounds", bounds],
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_shape_of_the_answer():
    done = eval_logprobs(DRAWN / "plain-fp32", [{"ids": [5, 6, 7]}], "--top", "3")
    line = json.loads(done.stdout)
    assert line["ids"] == [5, 6, 7]
    assert line["logprobs"][0] is None and len(line["logprobs"]) == 3
    assert line["top"][0] is None and len(line["top"]) == 4
    for top in line["top"][1:]:
        assert len(top) == 3 and top[0][1] >= top[1][1] >= top[2][1]
    assert "top" not in json.loads(eval_logprobs(DRAWN / "plain-fp32", [{"ids": [5, 6, 7]}]).stdout)


def test_all_probabilities_sum_to_one():
    done = eval_logprobs(DRAWN / "plain-fp32", [{"ids": [5, 6, 7]}], "--top", "1000")
    for top in json.loads(done.stdout)["top"][1:]:
        assert math.isclose(sum(math.exp(lp) for _, lp in top), 1.0, rel_tol=1e-6)


def test_bad_lines_are_answered_and_the_others_go_on():
    lines = [
        {"ids": [1, 2]},
        "nonsense\n",
        {"ids": [1, 10**9]},
        {"ids": []},
        {"ids": "x"},
        {"ids": [1], "text": "y"},
        "[1]\n",
        {"ids": [1] * 100000},
        {"ids": [3, 4]},
    ]
    done = eval_logprobs(DRAWN / "plain-fp32", lines)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert ["error" in a for a in answers] == [False] + [True] * 7 + [False]
    assert "ids[1]" in answers[2]["error"] and "context" in answers[7]["error"]


def test_a_missing_file_is_one_line():
    done = subprocess.run(
        [MOONLET, "eval", "logprobs", "-m", str(DRAWN / "plain-fp32"), "--data", "/no/such/file"], capture_output=True
    )
    assert done.returncode == 1 and b"/no/such/file" in done.stderr.splitlines()[-1]


def test_batch_and_chunks_do_not_change_a_bit():
    prompt = json.loads((GOLDEN / "k2.5-int4/prompts.jsonl").read_text().splitlines()[3])
    first = eval_logprobs(DRAWN / "k2.5-int4", [prompt], "--chunked-prefill-size", "512").stdout
    for options in (["--chunked-prefill-size", "1"], ["--chunked-prefill-size", "37"], ["--threads", "1"]):
        assert eval_logprobs(DRAWN / "k2.5-int4", [prompt], *options).stdout == first
