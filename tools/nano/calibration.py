"""A text of the kind that nano was trained on, as token ids: what `moonlet quantize --calibrate` reads.

    python tools/nano/calibration.py --out FILE.jsonl [--tokens N] [--seed S]

A line is a training sequence of one dialogue of the short mix (sources.py), {"ids": [...]}. None of it is in an
evaluation set (dialogues.py: kept_out).
"""

import argparse
import json
import pathlib
import random

import sources
from dialogues import LEARN
from tokenizer import Tokenizer


def lines(tok, rng, tokens):
    """Token ids of sequences, until there are so many tokens."""
    while tokens > 0:
        for parts in sources.sequences(tok, [sources.make(sources.pick(rng), rng) for _ in range(100)]):
            for ids in parts:
                if tokens > 0:
                    yield [x & ~LEARN for x in ids]
                tokens -= len(ids)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True, type=pathlib.Path)
    ap.add_argument("--tokens", type=int, default=65536)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    with a.out.open("w") as f:
        for ids in lines(Tokenizer(), random.Random(f"calibration/{a.seed}"), a.tokens):
            f.write(json.dumps({"ids": ids}) + "\n")


if __name__ == "__main__":
    main()
