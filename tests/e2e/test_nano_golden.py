"""The engine on the shipped nano model against the PyTorch model that trained it (tests/data/nano/golden.jsonl, written
by tools/nano/golden.py in float32 from the same files): rendering, tokenizer, log-probabilities, greedy answers."""
import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = str(ROOT / "models/nano")
CHATS = [json.loads(line) for line in (ROOT / "tests/data/nano/golden.jsonl").read_text().splitlines()]


def run(command, lines):
    done = subprocess.run(
        [MOONLET, *command],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_tokenizer_gives_the_same_ids():
    answers = run(["text", "encode", "-m", NANO], [{"text": c["text"], "specials": True} for c in CHATS])
    for chat, answer in zip(CHATS, answers):
        assert answer["ids"] == chat["ids"]


def logprobs(device, ranks):
    ids = [{"ids": c["ids"] + c["greedy"]} for c in CHATS]
    return run(["eval", "logprobs", "-m", NANO, "--device", device, "--tp", str(ranks), "--top", "5"], ids)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ref_gives_the_same_logprobs(ranks):
    worst = 0
    for chat, answer in zip(CHATS, logprobs("ref", ranks)):
        assert [top[0][0] for top in answer["top"][1:]] == chat["argmax"]
        for have, want in zip(answer["top"][1:], chat["top5"]):
            worst = max(worst, abs(have[0][1] - want[0][1]))
        worst = max(worst, max(abs(h - w) for h, w in zip(answer["logprobs"][1:], chat["next"])))
    assert worst < 3e-4  # log-probabilities as low as -18, float32 on both sides


@pytest.mark.parametrize("ranks", [1, 2])
def test_cpu_answers_the_same(ranks):
    """What the model says itself: greedy tokens and their probabilities. A user's words are not trained, and nearly
    flat."""
    wrong = total = 0
    for chat, answer in zip(CHATS, logprobs("cpu", ranks)):
        first = len(chat["ids"]) - 1
        tops = answer["top"][1:][first:]
        assert [t[0][0] for t in tops[: len(chat["greedy"])]] == chat["greedy"]
        for have, want in zip(answer["logprobs"][first + 1 :], chat["next"][first:]):
            total += 1
            wrong += abs(have - want) > 0.05
    assert total > 200 and wrong <= total // 100


@pytest.mark.parametrize("device", ["ref", "cpu"])
def test_greedy_answers_are_equal(device):
    """Token by token in the absorbed form, through the whole program."""
    alone = [c for c in CHATS if c["text"].startswith("<|im_user|>") and c["text"].count("<|im_user|>") == 1]
    assert len(alone) >= 3 and any(c["text"].endswith("</think>") for c in alone)  # one in instant mode at least
    for chat in alone[:3]:
        question = chat["text"].split("<|im_user|>user<|im_middle|>")[-1].split("<|im_end|>")[0]
        instant = ["--instant"] if chat["text"].endswith("</think>") else []
        done = subprocess.run(
            [
                MOONLET,
                "run",
                "-q",
                "-m",
                NANO,
                "--device",
                device,
                "-p",
                question,
                "-n",
                str(len(chat["greedy"])),
                *instant,
            ],
            capture_output=True,
            timeout=300,
        )
        ids = run(["text", "decode", "-m", NANO], [{"ids": chat["greedy"], "skip_special": True}])
        want = base64.b64decode(ids[0]["text_b64"]).decode()
        reasoning, _, content = (
            want.partition("</think>") if "</think>" in want else ("", "", want) if instant else (want, "", "")
        )
        assert done.stdout.decode().strip() == content.replace("<|im_end|>", "").strip()
        assert done.stderr.decode().strip() == reasoning.strip()
