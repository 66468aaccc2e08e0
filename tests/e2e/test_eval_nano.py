"""`moonlet eval nano` from outside, on small files written here; nothing depends on what the shipped model knows beyond
one-digit sums."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
RIGHT = {"question": "What is 5 + 6?", "answer": "5+6=11\n#### 11"}
WRONG = {"question": "What is 5 + 6?", "answer": "#### 12"}
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluates an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}
TOOL = {
    "messages": [{"role": "user", "content": "Who are you?"}],
    "tools": [CALCULATOR],
    "calls": [
        {
            "id": "functions.calculator:0",
            "type": "function",
            "function": {"name": "calculator", "arguments": '{"expression": "2+3"}'},
        }
    ],
    "results": [{"role": "tool", "tool_call_id": "functions.calculator:0", "content": "5"}],
    "answer": "2 + 3 = 5.\n#### 5",
}
NEEDLE = {
    "start": 1,
    "sentences": 4,
    "plant": [[2, "What is 5 + 6?"]],
    "form": "after",
    "question": "What is 5 + 6?",
    "answer": "11.\n#### 11",
    "depth": 0.4,
    "tokens": 60,
}
TALK = {"messages": [{"role": "user", "content": "What is 5 + 6?"}], "expect": ["eleven", "11"], "length": 200}
ONE_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNITEoGAAJOASfAYZ4ZAAAAAElFTkSuQmCC"
PICTURE = {
    "image": f"data:image/png;base64,{ONE_PIXEL}",
    "question": "What is in the picture?",
    "answer": "1 pixel\nI see a pixel.\n#### 1 pixel",
}
PYTORCH = {
    "date": "2026-01-01",
    "chip": "x",
    "commit": "y",
    "rows": {
        "arithmetic thinking": [2, 3],
        "arithmetic instant": [1, 3],
        "pictures": [19, 20],
        "draft acceptance length": 3.25,
    },
}


@pytest.fixture
def folder(tmp_path):
    """write(name, values) puts a file there."""

    def write(name, *values):
        text = "".join((v if isinstance(v, str) else json.dumps(v)) + "\n" for v in values)
        (tmp_path / name).write_text(text)
        return tmp_path

    write("arithmetic.jsonl", RIGHT, WRONG, RIGHT)
    write("wordproblems.jsonl", RIGHT)
    write("handwritten.jsonl", WRONG)
    write("tools.jsonl", TOOL)
    write("needles.jsonl", NEEDLE)
    write("haystack.txt", *(f"It rained on day {i}." for i in range(3)))
    write("talk.jsonl", TALK)
    write("pictures.jsonl", PICTURE)
    write("pytorch.json", PYTORCH)
    return write


def nano(path, *options):
    return subprocess.run(
        [MOONLET, "eval", "nano", "--data", str(path), *options], capture_output=True, text=True, timeout=300
    )


def cells(done, row):
    """Moonlet's right-of-n, %, interval; PyTorch's right-of-n, %."""
    line = next(x for x in done.stdout.splitlines() if x.startswith(f"| {row} "))
    return [c.strip() for c in line.split("|")[2:-1]]


def test_the_table(folder, tmp_path):
    done = nano(tmp_path, "--json", str(tmp_path / "out.json"), "--details", str(tmp_path / "out.tsv"))
    assert done.returncode == 0, done.stderr
    assert cells(done, "arithmetic thinking") == ["2 of 3", "66.7", "20.8 to 93.9", "2 of 3", "66.7"]
    assert cells(done, "arithmetic instant")[3:] == ["1 of 3", "33.3"]
    assert cells(done, "wordproblems thinking")[0] == "1 of 1"
    assert cells(done, "handwritten thinking")[0] == cells(done, "handwritten instant")[0] == "0 of 1"
    assert cells(done, "tools well-formed")[0] == "0 of 1"  # no call was asked for, and none came
    assert cells(done, "tools call")[0] == "0 of 1" and cells(done, "tools answer")[0] in ("0 of 1", "1 of 1")
    assert cells(done, "talk")[0] == "1 of 1"
    assert cells(done, "pictures") == ["0 of 1", "0.0", "0.0 to 79.3", "19 of 20", "95.0"]
    assert cells(done, "draft acceptance length")[3] == "3.25"
    assert "not measured by the engine yet" in done.stdout and "in 2 of 3 rows" in done.stdout
    assert re.search(r"needles by tenths.*: 0/0 0/0 0/0 0/0 [01]/1 0/0", done.stdout)
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["rows"]["arithmetic thinking"]["right"] == 2 and out["rows"]["arithmetic thinking"]["of"] == 3
    assert out["rows"]["needles 16k"]["tenths"][4][1] == 1 and out["pytorch"]["rows"] == PYTORCH["rows"]
    details = (tmp_path / "out.tsv").read_text().splitlines()
    assert len(details) == 14
    assert [d.split("\t")[1] for d in details if d.startswith("arithmetic thinking")] == ["right", "WRONG", "right"]


def test_one_at_a_time_gives_the_same(folder, tmp_path):
    folder("arithmetic.jsonl", *[{"question": f"What is {i} + 3?", "answer": f"#### {i + 3}"} for i in range(9)])
    several = nano(tmp_path, "--only", "arithmetic", "--parallel", "3").stdout
    assert several == nano(tmp_path, "--only", "arithmetic", "--parallel", "1").stdout
    assert "9 of 9" in several


def test_limit_spreads_over_the_file(folder, tmp_path):
    folder("arithmetic.jsonl", RIGHT, WRONG, RIGHT, WRONG)
    assert cells(nano(tmp_path, "--only", "arithmetic", "--limit", "2"), "arithmetic thinking")[0] == "2 of 2"
    assert cells(nano(tmp_path, "--only", "arithmetic", "--limit", "9"), "arithmetic thinking")[0] == "2 of 4"


def test_only_takes_names(folder, tmp_path):
    (tmp_path / "wordproblems.jsonl").unlink()  # not asked for, not missed
    done = nano(tmp_path, "--only", "talk,pictures")
    assert done.returncode == 0 and cells(done, "talk") and cells(done, "pictures")
    assert "arithmetic" not in done.stdout
    done = nano(tmp_path, "--only", "talk,chess")
    assert done.returncode == 2 and "chess" in done.stderr and not done.stdout


def test_a_missing_file_is_named_before_anything_is_asked(folder, tmp_path):
    (tmp_path / "talk.jsonl").unlink()
    done = nano(tmp_path)
    assert done.returncode == 1 and "talk.jsonl" in done.stderr and len(done.stderr.splitlines()) == 1
    (tmp_path / "haystack.txt").unlink()
    done = nano(tmp_path, "--only", "needles")
    assert done.returncode == 1 and "haystack.txt" in done.stderr


def test_pytorch_may_be_missing_but_not_wrong(folder, tmp_path):
    (tmp_path / "pytorch.json").unlink()
    done = nano(tmp_path, "--only", "talk,pictures")
    assert done.returncode == 0 and "pytorch.json does not exist" in done.stderr
    assert cells(done, "talk")[3:] == ["-", "-"]
    for bad in ("{", {"rows": []}, {"rows": {"talk": [3, 2]}}, {"rows": {"talk": [1]}}, {"rows": {"talk": "good"}}):
        folder("pytorch.json", bad)
        done = nano(tmp_path, "--only", "talk")
        assert done.returncode == 1 and "pytorch.json" in done.stderr and not done.stdout, bad


@pytest.mark.parametrize(
    "name, bad",
    [
        ("arithmetic", "{nonsense"),
        ("arithmetic", {"question": "What?"}),
        ("arithmetic", {"question": 5, "answer": "#### 1"}),
        ("wordproblems", {"question": "x", "answer": "#### none"}),
        ("wordproblems", "[]"),
        ("tools", {**TOOL, "tools": []}),
        ("tools", {**TOOL, "results": []}),
        ("tools", {**TOOL, "answer": "5"}),
        ("tools", {**TOOL, "calls": [{"id": "x", "function": {"name": "calculator", "arguments": "{}"}}]}),
        ("needles", {**NEEDLE, "start": 3}),
        ("needles", {**NEEDLE, "form": "beside"}),
        ("needles", {**NEEDLE, "plant": []}),
        ("needles", {**NEEDLE, "plant": [[5, "x"]]}),
        ("needles", {**NEEDLE, "depth": 2}),
        ("needles", {**NEEDLE, "sentences": -1}),
        ("talk", {**TALK, "expect": []}),
        ("talk", {**TALK, "length": 0}),
        ("talk", {"messages": [], "expect": ["x"], "length": 5}),
    ],
)
def test_a_bad_line_is_named(folder, tmp_path, name, bad):
    good = {"arithmetic": RIGHT, "wordproblems": RIGHT, "tools": TOOL, "needles": NEEDLE, "talk": TALK}[name]
    folder(f"{name}.jsonl", good, bad)
    done = nano(tmp_path, "--only", name, "--limit", "1")
    assert done.returncode == 1 and f"{name}.jsonl line 2" in done.stderr and not done.stdout
    assert len(done.stderr.splitlines()) == 1


def test_an_empty_file(folder, tmp_path):
    folder("talk.jsonl")
    done = nano(tmp_path, "--only", "talk")
    assert done.returncode == 1 and "talk.jsonl: no questions" in done.stderr


def test_a_question_that_does_not_fit(folder, tmp_path):
    folder("needles.jsonl", {**NEEDLE, "sentences": 3000})
    done = nano(tmp_path, "--only", "needles", "--context-length", "1024")
    assert done.returncode == 1 and "needles.jsonl line 1" in done.stderr and "context of 1024" in done.stderr


@pytest.mark.parametrize("form", ["system", "before", "after"])
def test_needles_are_planted_in_their_order(folder, tmp_path, form):
    """The prompt has as many tokens as the text built here: wrapped haystack, sentences inserted one by one."""
    plant = [[0, "The pet of Ann is a dog."], [3, "The pet of Bob is a cat."], [3, "Tim hid 17 apples."]]
    folder(
        "needles.jsonl", {**NEEDLE, "plant": plant, "form": form, "answer": "#### dog", "question": "What pet has Ann?"}
    )
    text = [f"It rained on day {i % 3}." for i in range(1, 5)]
    for at, sentence in plant:
        text.insert(at, sentence)
    body, q = " ".join(text), "What pet has Ann?"
    messages = {
        "system": [("system", body), ("user", q)],
        "before": [("user", f"{q}\n\n{body}")],
        "after": [("user", f"{body}\n\n{q}")],
    }[form]
    request = {"messages": [{"role": r, "content": c} for r, c in messages]}
    ids = json.loads(
        subprocess.run(
            [MOONLET, "text", "render"], input=json.dumps(request) + "\n", capture_output=True, text=True
        ).stdout
    )["ids"]
    done = nano(tmp_path, "--only", "needles")
    assert done.returncode == 0 and f" {len(ids)} prompt" in done.stderr, done.stderr


def test_talk_has_a_length(folder, tmp_path):
    as_question = {"question": "What is 5 + 6?", "expect": ["5 + 6"], "length": 200}
    folder("talk.jsonl", {**TALK, "length": 1}, {**TALK, "expect": ["twelve"]}, TALK, as_question)
    assert cells(nano(tmp_path, "--only", "talk"), "talk")[0] == "2 of 4"
