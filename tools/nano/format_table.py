"""What a format costs: answers of the same model in several formats, question by question beside one of them.

    python tools/nano/format_table.py MASTER.tsv FORMAT.tsv ...

The files are those of `moonlet eval nano --details`. Prints a Markdown table: right answers a kind of question, and
over all questions the difference to MASTER with its 95 % interval for pairs (the variance of a difference of two shares
that are measured on the same questions). Questions that a file lacks are left out of its difference, and counted.
"""

import collections
import math
import pathlib
import sys

KINDS = {"tools call": "tools"}


def read(path):
    """{(kind, number of the question): right}; a tools row is judged by its call."""
    out, count = {}, collections.Counter()
    for line in pathlib.Path(path).read_text().splitlines():
        f = line.split("\t")
        verdicts = {f[i]: f[i + 1] for i in range(0, len(f) - 3, 2)} if f[0].startswith("tools") else {f[0]: f[1]}
        for kind, verdict in verdicts.items():
            if kind in ("tools well-formed", "tools answer"):
                continue
            if verdict not in ("right", "WRONG"):
                sys.exit(f"{path}: {verdict!r} is no verdict")
            out[KINDS.get(kind, kind), count[kind]] = verdict == "right"
            count[kind] += 1
    return out


def paired(master, other):
    """(difference in points of 100, half of its interval, only master right, only other right, questions)."""
    both = master.keys() & other.keys()
    lost = sum(master[k] and not other[k] for k in both)
    won = sum(other[k] and not master[k] for k in both)
    n = len(both)
    return 100 * (won - lost) / n, 196 * math.sqrt(won + lost - (won - lost) ** 2 / n) / n, lost, won, n


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    results = {pathlib.Path(p).stem: read(p) for p in sys.argv[1:]}
    master = next(iter(results.values()))
    kinds = list(dict.fromkeys(k for k, _ in master))
    print("| format | " + " | ".join(kinds) + " | all | difference, points | lost, won |")
    print("|---" * (len(kinds) + 4) + "|")
    for name, r in results.items():
        cells = []
        for kind in kinds:
            mine = [right for (k, _), right in r.items() if k == kind]
            cells.append(f"{sum(mine)} of {len(mine)}" if mine else "not asked")
        d, half, lost, won, n = paired(master, r)
        last = f"{d:+.2f} ± {half:.2f} of {n} | {lost}, {won}" if r is not master else "| "
        print(f"| {name} | " + " | ".join(cells) + f" | {100 * sum(r.values()) / len(r):.2f} % | {last} |")


if __name__ == "__main__":
    main()
