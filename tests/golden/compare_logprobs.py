"""Compare the output of `moonlet eval logprobs` with a golden directory. Needs only Python's standard library.

    moonlet eval logprobs -m CHECKPOINT --data DIR/prompts.jsonl --top 1000 > out.jsonl
    python tests/golden/compare_logprobs.py DIR out.jsonl --bounds ref|bf16|quantised

Each input line is {"ids", "logprobs": [null, ...] (n), "top": [null, [[id, logprob], ...], ...] (n + 1)}; top[p + 1]
belongs to the golden logits at position p. --top K may be any K; from the vocabulary size on the whole distribution
is compared; over a few ids the root mean square of a row scatters more, so judge by the whole. Per stored position:

    distance = root mean square over the returned ids of (logprob - golden logprob) / standard deviation of the
               golden logits           (golden.json "bf16"."logprob_rel" is the same number of transformers' bf16 run)
    token    = the same for the one id that follows in the prompt, from "logprobs"; its median obeys the same bound
    miss     = first id of `top` is not golden's, where golden's first two logits are more than "margin" (0.3) apart

Bounds: ref: every distance at most 1e-4 and no miss. bf16: median and P99 at most 1.5 times the bf16 run's, misses at
most twice its. quantised (activations): 2 times the median and P99, misses at most twice. --median, --p99, --max and
--misses override. The P99 is the nearest rank: value number ceil(0.99 n) of the sorted n.
Exit status: 0 within the bounds, 1 not, or malformed output, 2 wrong usage.
"""

import argparse
import array
import json
import math
import sys


def load_golden(path):
    """(golden.json, rows of the float32 logits)."""
    with open(f"{path}/golden.json") as f:
        golden = json.load(f)
    n, vocab = golden["logits"]["shape"]
    flat = array.array("f")
    with open(f"{path}/{golden['logits']['file']}", "rb") as f:
        flat.frombytes(f.read())
    if sys.byteorder == "big":
        flat.byteswap()
    if len(flat) != n * vocab:
        raise ValueError(f"{path}: logits.f32 has {len(flat)} values, golden.json says {n} x {vocab}")
    return golden, [flat[i * vocab : (i + 1) * vocab] for i in range(n)]


def log_softmax(row):
    top = max(row)
    total = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - total for x in row]


def deviation(row):
    mean = math.fsum(row) / len(row)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in row) / len(row))


def p99(values):
    return sorted(values)[-(-99 * len(values) // 100) - 1]


def median(values):
    s, n = sorted(values), len(values)
    return (s[(n - 1) // 2] + s[n // 2]) / 2


def check_shape(line, prompt, number):
    """Raise ValueError when a line of output is not the documented format for this prompt."""
    ids = prompt["ids"]
    if line.get("ids") != ids:
        raise ValueError(f"line {number}: ids are not those of golden prompt {number}")
    if len(line.get("logprobs", [])) != len(ids) or line["logprobs"][0] is not None:
        raise ValueError(f"line {number}: logprobs must have {len(ids)} entries, the first null")
    if len(line.get("top") or []) != len(ids) + 1 or line["top"][0] is not None:
        raise ValueError(f"line {number}: top must have {len(ids) + 1} entries, the first null (--top K missing?)")


def compare(golden, rows, lines):
    """{"distance": [...], "token": [...], "misses", "margin_positions", "partial"} over the stored positions."""
    vocab, margin = golden["logits"]["shape"][1], golden["bf16"]["margin"]
    out = {"distance": [], "token": [], "misses": [], "margin_positions": 0, "partial": False}
    if len(lines) != len(golden["prompts"]):
        raise ValueError(f"{len(lines)} lines, {len(golden['prompts'])} golden prompts")
    for number, (line, prompt) in enumerate(zip(lines, golden["prompts"])):
        check_shape(line, prompt, number)
        ids = prompt["ids"]
        for offset, p in enumerate(prompt["positions"]):
            row = rows[prompt["first_row"] + offset]
            want, top = log_softmax(row), line["top"][p + 1]
            where = f"line {number}, position {p}"
            got = dict(top)
            if not top or len(got) != len(top) or not all(0 <= i < vocab for i in got):
                raise ValueError(f"{where}: top is empty, repeats an id or names one outside the vocabulary")
            if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in got.values()):
                raise ValueError(f"{where}: a logprob is not finite")
            out["partial"] |= len(got) < vocab
            square = math.fsum((x - want[i]) ** 2 for i, x in got.items()) / len(got)
            out["distance"].append(math.sqrt(square) / deviation(row))
            first, second = sorted(range(vocab), key=row.__getitem__)[:-3:-1]
            if row[first] - row[second] > margin:
                out["margin_positions"] += 1
                if top[0][0] != first:
                    out["misses"].append(f"{where}: {top[0][0]}, golden {first}")
            if p + 1 < len(ids):
                actual = line["logprobs"][p + 1]
                if not isinstance(actual, (int, float)) or not math.isfinite(actual):
                    raise ValueError(f"line {number}: logprob {p + 1} is not finite")
                if abs(actual - got.get(ids[p + 1], actual)) > 1e-7 * max(1.0, abs(actual)):
                    raise ValueError(f"line {number}: logprob {p + 1} is not the one `top` has for the same id")
                out["token"].append(abs(actual - want[ids[p + 1]]) / deviation(row))
    return out


def bounds(args, golden):
    """Upper bounds of (median, p99, max, misses); infinity where there is none."""
    b, inf = golden["bf16"], math.inf
    factor = 1.5 if args.bounds == "bf16" else 2.0
    if args.bounds == "ref":
        limit = {"median": inf, "p99": inf, "max": 1e-4, "misses": 0}
    else:
        limit = {k: factor * b["logprob_rel"][k] for k in ("median", "p99")}
        limit.update(max=inf, misses=2 * b["argmax_misses"])
    limit.update({k: v for k, v in vars(args).items() if k in limit and v is not None})
    return limit


def main(argv=None):
    parser = argparse.ArgumentParser(description="compare `moonlet eval logprobs` output with golden logits")
    parser.add_argument("golden", metavar="DIR")
    parser.add_argument("output", metavar="OUTPUT", help="JSON lines of eval logprobs; - is standard input")
    parser.add_argument("--bounds", choices=["ref", "bf16", "quantised"], default="ref")
    for name in ("median", "p99", "max"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--misses", type=int)
    args = parser.parse_args(argv)
    try:
        golden, rows = load_golden(args.golden)
        with sys.stdin if args.output == "-" else open(args.output) as f:
            lines = [json.loads(line) for line in f if line.strip()]
        result = compare(golden, rows, lines)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        print(f"compare_logprobs: {e}", file=sys.stderr)
        return 1
    limit = bounds(args, golden)
    d = result["distance"]
    token = result["token"]
    measured = {"median": median(d), "p99": p99(d), "max": max(d), "misses": len(result["misses"])}
    # The actual next token is one id a position, its error typically 0.67 of the root mean square over all ids.
    token_limit = min(limit["median"], limit["max"])
    ok = all(measured[k] <= limit[k] for k in limit) and median(token) <= token_limit
    print(f"{args.golden}: {len(d)} positions" + (", only the returned ids compared" if result["partial"] else ""))
    for k, v in measured.items():
        print(f"  {k:7} {v:<12.4g} bound {limit[k]:.4g}{'' if v <= limit[k] else '   EXCEEDED'}")
    print(
        f"  next token's logprob: median {median(token):.4g} (bound {token_limit:.4g}"
        f"{'' if median(token) <= token_limit else '   EXCEEDED'}), P99 {p99(token):.4g}, max {max(token):.4g}"
    )
    print(f"  positions with margin: {result['margin_positions']}")
    for miss in result["misses"][:10]:
        print(f"  miss at {miss}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
