"""Log-probabilities of `moonlet eval logprobs` beside transformers' own float32 and bfloat16 runs on the same ids.

    moonlet eval logprobs -m models/nano --device cuda --data texts.jsonl --top 1 > cuda.jsonl
    python tools/nano/compare_logprobs.py cuda.jsonl ...     (needs transformers 5; runs on a GPU where there is one)

The bfloat16 run (same checkpoint, weights and activations in bfloat16) says what rounding alone does to this model on
this text: a routing choice that flips changes a token's logits for good. Prints, for that run and for every file, the
absolute difference of the tokens' log-probability from float32 and how often the most probable token is the same.
"""

import json
import sys

import torch

import compare_hf
import evaluate
from config import OUT


def rows(model, all_ids, device):
    """Per text: log-probability of every token but the first, and the most probable token at every position."""
    for ids in all_ids:
        x = torch.tensor([ids], device=device)
        p = model(x).logits[0].float().log_softmax(-1)
        yield p[:-1].gather(1, x[0, 1:, None])[:, 0].tolist(), p.argmax(-1).tolist()


def report(name, got, want):
    d, same, n = [], 0, 0
    for (a, ta), (b, tb) in zip(got, want, strict=True):
        d += [abs(x - y) for x, y in zip(a, b, strict=True)]
        same += sum(x == y for x, y in zip(ta, tb, strict=True))
        n += len(tb)
    d.sort()
    print(
        f"{name:24s} {len(d)} tokens: mean {sum(d) / len(d):.4f}  median {d[len(d) // 2]:.1e}  P90 {d[len(d) * 9 // 10]:.3f}  "
        f"P99 {d[len(d) * 99 // 100]:.3f}  max {d[-1]:.2f}  most probable token equal at {same} of {n}"
    )


@torch.no_grad()
def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    files = {f: [json.loads(line) for line in open(f)] for f in sys.argv[1:]}
    if not files:
        sys.exit(__doc__)
    all_ids = [r["ids"] for r in next(iter(files.values()))]
    cfg, hf = compare_hf.reference()
    hf.load_state_dict(compare_hf.state(cfg, evaluate.read_checkpoint(OUT)))
    want = list(rows(hf.to(device), all_ids, device))
    report("transformers, bfloat16", list(rows(hf.to(torch.bfloat16), all_ids, device)), want)
    for f, lines in files.items():
        report(f, [(r["logprobs"][1:], [t[0][0] for t in r["top"][1:]]) for r in lines], want)


if __name__ == "__main__":
    main()
