"""All sources of training dialogues in one table: what the model learns, and how much of each.

    python tools/nano/sources.py          prints samples of the short mix, its shares and lengths
"""

import random
import re
import sys

import corpus
import needles
import talk
import toolcalls
import wordproblems
from config import ROOT
import dialogues
from dialogues import engine, request, show

SHORT_NEEDLE = 700  # tokens

# name: (make(rng), share of the dialogues of the short mix)
SOURCES = {
    "wordproblems": (wordproblems.make, 0.42),
    "arithmetic": (corpus.make, 0.18),
    "talk": (talk.make, 0.14),
    "tools": (toolcalls.make, 0.18),
    "needles": (lambda rng: needles.make(rng, SHORT_NEEDLE), 0.08),
}


def make(name, rng):
    """One training dialogue of a source."""
    return SOURCES[name][0](rng)


def pick(rng):
    """The name of a source, by its share."""
    return rng.choices(list(SOURCES), [share for _, share in SOURCES.values()])[0]


def sequences(tok, ds):
    """Training sequences for each dialogue, of any sources; those of long texts the quick way."""
    out = [None] * len(ds)
    for long, way in ((True, needles.sequences), (False, dialogues.sequences)):
        at = [i for i, d in enumerate(ds) if ("lines" in d["meta"]) == long]
        for i, parts in zip(at, way(tok, [ds[i] for i in at])):
            out[i] = parts
    return out


def texts(rng, count):
    """What the tokenizer learns from: all text of `count` short dialogues, as rendered, and of filler and picture
    questions.

    Rendered with the shipped model's folder: the text is the same for every tokenizer of this project.
    """
    import pictures

    some = [make(n, rng) for n in (pick(rng) for _ in range(count)) if n != "needles"]
    some += [pictures.ask(rng, pictures.scene(rng)) for _ in range(count // 8)]
    out = [needles.filler(rng) for _ in range(count)]
    for _ in range(count // 4):
        fact = needles.facts(rng, 1)[0]
        t = needles.ask(rng, fact)
        out += [t.user, t.think, t.answer, needles.NOTHING]
    last = [request(d, len(d["messages"]), False) for d in some]
    for d, r in zip(some, engine("render", last, ROOT / "models/nano")):
        out += re.split(r"<\|[^|]*\|>|</?think>", r["text"])
        out += [m["reasoning_content"] for m in d["messages"] if m.get("reasoning_content")]
    return [t for t in out if t]


def main():
    from tokenizer import Tokenizer

    tok, rng = Tokenizer(), random.Random("mix")
    for name in SOURCES:
        ds = [make(name, rng) for _ in range(300)]
        parts = [p for ps in sequences(tok, ds) for p in ps]
        n = [len(p) for p in parts]
        learnt = sum(x >> 15 for p in parts for x in p)
        print(
            f"{name:13} {SOURCES[name][1]:4.0%}: {len(parts) / 300:.2f} sequences a dialogue of {sum(n) / len(n):.0f} tokens "
            f"(at most {max(n)}), {learnt / sum(n):.0%} learnt"
        )
    for _ in range(int(sys.argv[1]) if sys.argv[1:] else 5):
        name = pick(rng)
        print(name)
        show(make(name, rng))


if __name__ == "__main__":
    main()
