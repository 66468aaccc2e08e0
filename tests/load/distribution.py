"""What is drawn with drafts is distributed as what is drawn without: the tokens behind the first of short answers to a
few prompts, some hundred answers each by servers of nano with seeds of their own.

    python3 tests/load/distribution.py [--count 640] [--device cpu] [--serve "--deterministic"]

With the same seeds the answers are the same (lossless.py): this one would see what such a comparison cannot, a draw
that is right for its random number and wrong by its distribution. Two samples are compared by chi-square, bins of
fewer than 10 expected answers put together; below a chance of 1e-6 they differ. That the comparison sees a difference
is shown with drafts that come true whatever is drawn (--speculative-pinned-accept).
"""

import argparse
import collections
import math
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from serve_client import Server  # noqa: E402

SCENES = [
    ("The train", {}),
    ("Once", {}),
    ("Anna has", {"temperature": 0.7}),
    ("What is 3 + 4?", {"top_p": 0.9}),
]
# of the tokens 0 to 4 that are drawn the first is the prompt's, and three follow at once if all drafts come true
LENGTH, JOINT = 5, slice(1, 4)
CHOICES, LEAST, BELOW = 64, 10, 1e-6
PLAIN = "--speculative-algorithm NONE"
CHAIN = "--speculative-num-steps 3"
TREE = "--speculative-eagle-topk 2 --speculative-num-steps 3 --speculative-num-draft-tokens 8"
PINNED = "--speculative-num-steps 3 --speculative-pinned-accept 4"


def gamma_above(a, x):
    """The regularized upper incomplete gamma function Q(a, x): a series below a + 1, else a continued fraction."""
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > 1e-15 * total:
            n += 1
            term *= x / n
            total += term
        return max(1 - total * front, 0.0)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    h = d
    for i in range(1, 10000):
        b += 2
        d = 1 / (b - i * (i - a) * d)
        c = b - i * (i - a) / c
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * h


def chance(one, other):
    """(of a difference as large or larger between two samples of one distribution, bins)"""
    a, b = collections.Counter(one), collections.Counter(other)
    share = len(one) / (len(one) + len(other))
    bins, rest = [], [0, 0]
    for key, _ in (a + b).most_common():
        if (a[key] + b[key]) * min(share, 1 - share) >= LEAST:
            bins.append([a[key], b[key]])
        else:
            rest = [rest[0] + a[key], rest[1] + b[key]]
    if sum(rest) * min(share, 1 - share) >= LEAST or not bins:
        bins.append(rest)
    else:
        bins[-1] = [bins[-1][0] + rest[0], bins[-1][1] + rest[1]]
    square = sum((x - (x + y) * share) ** 2 / ((x + y) * share * (1 - share)) for x, y in bins)
    return (gamma_above((len(bins) - 1) / 2, square / 2) if len(bins) > 1 else 1.0), len(bins)


def draw(flags, scenes, seed, a):
    """Per scene the answers' tokens, and of the server: tokens proposed and accepted."""
    running = "8" if flags == TREE else "16"  # 64 rows of a step have drafts
    adaptive = [] if flags == PLAIN else ["--speculative-disable-adaptive"]
    s = Server(
        "--device", a.device, "--max-running-requests", running, *flags.split(), *adaptive, *shlex.split(a.serve)
    )

    def ask(item):
        n, (text, params) = item
        sampling = {"temperature": 1, "n": CHOICES, "max_new_tokens": LENGTH, "ignore_eos": True, **params}
        got = s.post("/generate", {"text": text, "sampling_params": {**sampling, "sampling_seed": seed + n}})
        return [tuple(x["output_ids"]) for x in got]

    try:
        with ThreadPoolExecutor(2) as pool:
            rounds = math.ceil(a.count / CHOICES)
            got = [
                [ids for ids_of in pool.map(ask, ((i * rounds + n, scene) for n in range(rounds))) for ids in ids_of]
                for i, scene in enumerate(scenes)
            ]
        return got, s.metric("moonlet:draft_tokens_total"), s.metric("moonlet:draft_tokens_accepted_total")
    finally:
        assert s.stop() == 0


def compare(what, scene, one, other):
    """The least chance of the joint distribution and of each place's own."""
    parts = [("together", JOINT)] + [(f"token {i}", slice(i, i + 1)) for i in range(LENGTH)[JOINT]]
    chances = [(*chance([x[at] for x in one], [x[at] for x in other]), name) for name, at in parts]
    least, bins, name = min(chances)
    print(
        f"{what}, {scene[0]!r} {scene[1] or ''}: {len(one)} and {len(other)} answers, tokens 1 to 3 in "
        f"{chances[0][1]} bins: p = {chances[0][0]:.3g}; least {least:.3g} ({name}, {bins} bins)"
    )
    return least


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    ap.add_argument("--count", type=int, default=640, help="answers to each prompt")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--serve", default="", help="more flags for all servers")
    a = ap.parse_args()
    assert abs(gamma_above(5, 18.307 / 2) - 0.05) < 1e-4 and abs(gamma_above(50, 124.342 / 2) - 0.05) < 1e-4
    plain, proposed, _ = draw(PLAIN, SCENES, 0, a)
    assert proposed == 0
    good = bad = 0
    for i, (what, flags) in enumerate((("chain", CHAIN), ("tree", TREE))):
        got, proposed, accepted = draw(flags, SCENES, 1000003 * (i + 1), a)
        print(f"{what}: {accepted:.0f} of {proposed:.0f} drafts came true")
        checks = [accepted > a.count / 4 and proposed > 3 * a.count]
        checks += [compare(what, *x) >= BELOW for x in zip(SCENES, plain, got)]
        good, bad = good + sum(checks), bad + len(checks) - sum(checks)
    got, _, _ = draw(PINNED, SCENES[:1], 7000003, a)
    seen = compare("a chain that always comes true", SCENES[0], plain[0], got[0]) < BELOW
    good, bad = good + seen, bad + (not seen)
    print(f"{good} passed, {bad} failed, 0 skipped")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
