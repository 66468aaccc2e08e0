#!/usr/bin/env python3
"""Differential fuzz of `moonlet text encode|decode` against the official encoder (package tiktoken).

    python tests/fuzz/diff_tokenizer.py --n 200000 --seed 1

Strings of every kind of character, mutated text, malformed bytes, special tokens on and off. Each encoding is also
decoded: exact bytes, and the concatenated deltas against Python's own decoding. Prints the first differences and exits
with status 1 when there are any."""
import argparse
import base64
import json
import random
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
from official_tokenizer import Official  # noqa: E402

BATCH = 2000
SOURCES = ["README.md", "src/README.md", "docs/design/design.md", "src/base/json.c", "LICENSE", "src/text/chat_k25.c"]
EDGES = [
    "'s",
    "'S",
    "'\u017f",
    "'ll",
    "'LL",
    "'re",
    "'Ve",
    "'d",
    "'T",
    "'",
    "\u2019s",
    "\u180e",
    "\x1c",
    "\x1f",
    "\u0085",
    "\u3000",
    "\u2028",
    "\r",
    "\n",
    "\r\n",
    " ",
    "  ",
    "\t",
    "\u3007",
    "\u3005",
    "\u3002",
    "\u300c",
    "\u2e80",
    "\U00016ff0",
    "\U00020000",
    "\u0301",
    "\u200d",
    "\ufe0f",
    "\u01c5",
    "\u02b0",
    "\u00aa",
    "\u0e01",
    "\u0e31",
    "A",
    "b",
    "Z",
    "1",
    "\u0661",
    "\u2167",
    "\u00bd",
    "\U0001f600",
    "\ufffd",
    "\0",
    "k\u212a",
    "<|",
    "|>",
]
BAD = [0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xA0, 0xF0, 0x90, 0xF4, 0xFF]


class Maker:
    def __init__(self, seed, names):
        self.r = random.Random(seed)
        self.by = {}
        for c in range(0x110000):
            if not 0xD800 <= c < 0xE000:
                self.by.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
        self.kinds = sorted(self.by)
        self.names = names
        self.words = [w for f in SOURCES if (ROOT / f).exists() for w in (ROOT / f).read_text().split(" ")]

    def any(self):
        return self.r.choice(self.by[self.r.choice(self.kinds)])

    def text(self):
        r = self.r
        kind = r.randrange(10)
        if kind < 3:
            return "".join(self.any() for _ in range(r.randrange(1, 24)))
        if kind < 6:
            return "".join(r.choice(EDGES) if r.random() < 0.8 else self.any() for _ in range(r.randrange(1, 30)))
        if kind == 6:  # runs of few characters
            pool = [self.any() for _ in range(3)] + [r.choice(EDGES)]
            return "".join(r.choice(pool) * r.randrange(1, 12) for _ in range(r.randrange(1, 12)))
        text = list(" ".join(r.choice(self.words) for _ in range(r.randrange(1, 25))))
        for _ in range(r.randrange(0, 6)):  # mutate
            at = r.randrange(len(text) + 1)
            text[at : at + r.randrange(0, 3)] = r.choice([r.choice(EDGES), self.any(), ""])
        if kind == 9:
            at, name = r.randrange(len(text) + 1), r.choice(self.names)
            text[at:at] = name if r.random() < 0.7 else name[: r.randrange(len(name))]
        return "".join(text)

    def item(self):
        """bytes to encode, and whether special tokens are on"""
        data = bytearray(self.text().encode())
        if self.r.random() < 0.15:  # malformed bytes
            for _ in range(self.r.randrange(1, 6)):
                at = self.r.randrange(len(data) + 1)
                data[at : at + self.r.randrange(0, 2)] = bytes([self.r.choice(BAD + [self.r.randrange(256)])])
        return bytes(data), self.r.random() < 0.5

    def mixed(self, ids, n_ranks):
        """ids that no encoding gives: cut characters, special tokens, any order"""
        r, ids = self.r, list(ids)
        for _ in range(r.randrange(1, 6)):
            ids.insert(
                r.randrange(len(ids) + 1),
                r.choice([r.randrange(256), r.randrange(n_ranks + 256), n_ranks + r.randrange(32)]),
            )
        return ids


def made_up(folder, n_ranks, words, r):
    """A vocabulary of n_ranks: the 256 bytes and byte strings out of text, in random order."""
    tokens = {bytes([i]) for i in range(256)}
    source = " ".join(words).encode() + "".join(EDGES).encode() * 50
    while len(tokens) < n_ranks:
        at = r.randrange(len(source))
        tokens.add(source[at : at + r.choice([2, 2, 2, 3, 3, 4, 6, 9])])
        tokens.discard(b"")
    order = r.sample(sorted(tokens), n_ranks)
    (folder / "tiktoken.model").write_text(
        "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(order))
    )
    names = {
        str(n_ranks + 2 * i): {"content": name, "special": i % 2 == 0}
        for i, name in enumerate(["<s>", "[EOS]", "<|im_end|>", "<think>", " the", "\u4e2d"])
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": names}))


def moonlet(program, verb, folder, lines):
    done = subprocess.run(
        [program, "text", verb, "-m", folder],
        input="".join(json.dumps(x) + "\n" for x in lines),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"moonlet text {verb}: status {done.returncode}: {done.stderr}{done.stdout[:300]}")
    out = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(out) == len(lines), (len(out), len(lines))
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=200_000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--moonlet", default=str(ROOT / "build/moonlet"))
    p.add_argument("-m", default=str(ROOT / "tests/data/kimi-k2.5"))
    p.add_argument("--made-up", type=int, metavar="RANKS", help="a random vocabulary of this size in place of Kimi's")
    a = p.parse_args()
    if a.made_up:
        holder = tempfile.TemporaryDirectory()
        a.m = holder.name
        made_up(Path(a.m), a.made_up, Maker(a.seed, []).words, random.Random(a.seed))
    official = Official(a.m)
    maker = Maker(a.seed, list(official.names.values()))
    wrong = n_ids = done = 0
    start = time.time()

    def differ(what, *values):
        nonlocal wrong
        wrong += 1
        if wrong <= 10:
            print(what, *map(ascii, values), sep="\n  ")

    while done < a.n:
        items = [maker.item() for _ in range(min(BATCH, a.n - done))]
        ours = moonlet(
            a.moonlet, "encode", a.m, [{"text_b64": base64.b64encode(d).decode(), "specials": s} for d, s in items]
        )
        decodes = []
        for (data, specials), answer in zip(items, ours):
            ids = official.encode(data.decode("utf-8", "replace"), specials)
            n_ids += len(ids)
            if answer["ids"] != ids:
                differ("encode", data, specials, answer["ids"], ids)
            decodes.append(
                (maker.mixed(ids, official.n_ranks) if maker.r.random() < 0.5 else ids, maker.r.random() < 0.5)
            )
        ours = moonlet(a.moonlet, "decode", a.m, [{"ids": i, "skip_special": s} for i, s in decodes])
        for (ids, skip), answer in zip(decodes, ours):
            theirs = official.decode_bytes(ids, skip)
            if base64.b64decode(answer["text_b64"]) != theirs:
                differ("decode", ids, skip, base64.b64decode(answer["text_b64"]), theirs)
            if "".join(answer["deltas"]) != theirs.decode("utf-8", "replace") or len(answer["deltas"]) != len(ids):
                differ("deltas", ids, skip, answer["deltas"], theirs)
        done += len(items)
    print(f"{done} strings, {n_ids} ids, {wrong} differences, {time.time() - start:.0f} s, seed {a.seed}")
    sys.exit(1 if wrong else 0)


main()
