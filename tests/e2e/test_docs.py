"""The commands in README.md and docs/: each names a command and options that exist, with values that they take
(--help behind them parses all and does nothing), and those that need neither a GPU nor a server run, on the small
model and bounded."""
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
NANO = str(ROOT / "models/nano")
# what a page's reader has, and this test has not
STAND_INS = {"/models/Kimi-K2.5": NANO, "DIR": NANO, "Kimi-K2.5": NANO, "models/nano": NANO}
STAND_INS["examples/stars.png"] = str(ROOT / "examples/stars.png")
STAND_INS["clip.mp4"] = str(ROOT / "tests/golden/videos/h264-sound.mp4")
# behind the commands that run: the last one given counts
BOUNDS = {
    ("eval", "nano"): ["--limit", "2", "--only", "wordproblems,tools"],  # the others read long texts
    ("eval", "logprobs"): [],
    ("bench", "serving"): ["--num-prompts", "2", "--random-output-len", "4", "--max-concurrency", "2"],
    ("inspect",): [],
    ("run",): ["-n", "8"],
}


def commands():
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if (line.split() or [""])[0].endswith("moonlet"):
                    words = shlex.split(line.removesuffix(" &"), comments=True)
                    yield pytest.param([w for w in words[1:] if w != "..."], id=f"{page.stem}: {' '.join(words[1:])}")


def run(words, cwd):
    return subprocess.run(
        [MOONLET, *words], cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("words", commands())
def test_options_exist(words, tmp_path):
    done = run([*words, "--help"], tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("usage: moonlet "), done.stderr


@pytest.mark.parametrize("words", commands())
def test_commands_run(words, tmp_path):
    bound = next((b for name, b in BOUNDS.items() if tuple(words[: len(name)]) == name), None)
    if bound is None or {"--base-url", "--compare", "--sweep"} & set(words):
        pytest.skip("needs a GPU, a server or files of earlier runs, or is a part of the checks itself")
    if words[:2] == ["bench", "serving"] and "--in-process" not in words:
        pytest.skip("needs a server")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"ids": [1, 2, 3]}) + "\n")
    done = run([STAND_INS.get(w, w) for w in words] + bound, tmp_path)
    assert done.returncode == 0, done.stderr


def test_there_are_commands():
    assert len(list(commands())) > 15


@pytest.mark.parametrize("name", ["run", "serve", "bench serving", "profile", "eval nano", "check bits"])
def test_help_is_in_groups(name):
    done = run([*name.split(), "--help"], ROOT)
    assert done.returncode == 0
    assert len(re.findall(r"^\S.*:$", done.stdout, re.M)) >= 3, done.stdout
