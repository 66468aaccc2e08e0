"""What the shipped nano model must be able to do: a sample of its evaluation sets, and tools end to end."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = ROOT / "models/nano"
SLOW = 10 if os.environ.get("MOONLET_SLOW") else 1


def moonlet(*args, text="", timeout=120):
    return subprocess.run([MOONLET, *args], input=text.encode(), capture_output=True, timeout=timeout * SLOW)


def test_a_sample_of_every_set(tmp_path):
    """One question in twenty of each set that takes seconds; shares well under those of the whole sets."""
    out = tmp_path / "rows.json"
    done = moonlet("eval", "nano", "--only", "wordproblems,arithmetic,tools,talk", "--limit", "25", "--json", str(out))
    assert done.returncode == 0, done.stderr.decode()
    table = done.stdout.decode()
    rows = {m[1].strip(): int(m[2]) for m in re.finditer(r"^\| (\S[^|]*)\|\s*(\d+) of 25 \|", table, re.M)}
    least = {
        "wordproblems thinking": 23,
        "wordproblems instant": 23,
        "arithmetic thinking": 23,
        "arithmetic instant": 20,
        "tools well-formed": 23,
        "tools call": 23,
        "tools answer": 23,
        "talk": 22,
    }
    assert set(rows) == set(least), table
    assert all(rows[name] >= n for name, n in least.items()), table


def calculator(question):
    done = moonlet(
        "run",
        "-m",
        str(NANO),
        "--tools",
        str(ROOT / "examples/calculator.json"),
        "--tool-command",
        str(ROOT / "examples/calculator"),
        "-p",
        question,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize(
    "question, expression, value",
    [
        ("What is 4831 * 27?", "4831*27", "130437"),
        ("Calculate 90210 - 4321.", "90210-4321", "85889"),
    ],
)
def test_it_calls_the_calculator_and_uses_the_result(question, expression, value):
    out = calculator(question)
    call = json.loads(re.search(r"^\[tool call\] (\{.*\})$", out, re.M)[1])
    assert call["id"] == "functions.calculator:0" and call["function"]["name"] == "calculator"
    assert json.loads(call["function"]["arguments"])["expression"].replace(" ", "") == expression
    assert out.rstrip().endswith(f"= {value}.")


def test_what_a_tool_says_does_not_steer_the_terminal(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nprintf '42\\n\\033]0;title\\007 \\302\\233m \\342\\200\\256'\n")
    tool.chmod(0o755)
    done = moonlet(
        "run",
        "-m",
        str(NANO),
        "-n",
        "200",
        "--tools",
        str(ROOT / "examples/calculator.json"),
        "--tool-command",
        str(tool),
        "-p",
        "What is 4831 * 27?",
    )
    assert "[calculator says] 42\n?]0;title? ?m ?\n" in done.stderr.decode(), done.stderr


def test_it_leaves_the_calculator_alone_when_greeted():
    assert "[tool call]" not in calculator("hello")


def test_files_of_the_release():
    """Sizes that the release promises: shards under 16 MiB, the checkpoint at most 24 MB, the drafts at most 6 MB."""
    parts = [p for p in NANO.iterdir() if p.is_file() and p.name != "README.md"]
    assert all(p.stat().st_size < 16 << 20 for p in parts)
    assert sum(p.stat().st_size for p in parts) <= 24e6
    drafts = [p for d in ("nano-eagle3", "nano-eagle3-mla") for p in (ROOT / "models" / d).iterdir()]
    assert sum(p.stat().st_size for p in drafts) <= 6e6
    names = json.loads((NANO / "model.safetensors.index.json").read_text())["weight_map"]
    for part in (
        "language_model.model.layers.5.mlp.experts.63.down_proj.weight_packed",
        "vision_tower.patch_embed.proj.weight",
        "mm_projector.proj.2.weight",
        "language_model.model.layers.1.mlp.gate.e_score_correction_bias",
    ):
        assert part in names
