#!/usr/bin/env python3
"""MaskBench's schemas and texts through `moonlet text match`: how many pass, and what is wrong.

    git clone https://github.com/guidance-ai/jsonschemabench    (not stored here; ba103c73 was used)
    tests/load/maskbench.py jsonschemabench/maskbench/data [--moonlet build/moonlet] [--sample N OUT]

A schema passes if it is not refused, its valid texts are accepted and its invalid ones are not. --sample writes N
schemas drawn by a fixed seed, with their valid texts, for `moonlet bench grammar --data OUT`."""
import argparse
import collections
import json
import random
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def text_of(test):
    return json.dumps(test["data"], ensure_ascii=False)


def ask(moonlet, lines):
    """One answer a line."""
    command = [moonlet, "text", "match", "-m", str(ROOT / "models/nano")]
    out = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.split("\n") if line]


def judge(files, answers):
    """Per file: its error, or how many texts were judged wrongly; answers in the order of the texts."""
    found, at = collections.Counter(), iter(answers)
    refused, wrong = collections.Counter(), []
    for path, data in files:
        errors, bad = set(), 0
        for i, test in enumerate(data["tests"] or [None]):
            answer = next(at)
            if "error" in answer:
                errors.add(re.sub(r"schema, at #[^:]*: |branches \d+ and \d+ ", "", answer["error"])[:90])
            elif test and answer["accepts"] != test["valid"]:
                bad += 1
                kind = "valid texts rejected" if test["valid"] else "invalid texts accepted"
                found[kind] += 1
                wrong.append(f"{path.name}, test {i}: {kind}, prefix {answer['prefix']}")
        for error in errors:
            refused[error] += 1
        found["without texts"] += not data["tests"]
        found["refused" if errors else "wrong" if bad else "pass"] += 1
    return found, refused, wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=Path)
    p.add_argument("--moonlet", default=str(ROOT / "build/moonlet"))
    p.add_argument("--sample", nargs=2, metavar=("N", "OUT"))
    a = p.parse_args()
    files = [(path, json.loads(path.read_text())) for path in sorted(a.data.glob("*.json"))]
    if a.sample:
        drawn = random.Random(7).sample(files, int(a.sample[0]))
        rows = [{"schema": d["schema"], "valid": [text_of(t) for t in d["tests"] if t["valid"]]} for _, d in drawn]
        Path(a.sample[1]).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    texts = [(d["schema"], text_of(t) if t else "") for _, d in files for t in d["tests"] or [None]]
    found, refused, wrong = judge(files, ask(a.moonlet, [json.dumps({"schema": s, "text": t}) for s, t in texts]))
    print(f"{len(files)} schemas, {len(texts)} texts: " + ", ".join(f"{n} {what}" for what, n in found.items()))
    for error, n in refused.most_common(20):
        print(f"{n:6} refused: {error}")
    print("\n".join(wrong[:20]))


if __name__ == "__main__":
    main()
