"""Make the golden files of the random checkpoints: tests/golden/<name>/ (README.md says what each file is).

    python tests/golden/make_golden.py [NAME ...]

build/golden/draw (draw_checkpoints.c; `make golden`) draws the checkpoints, from the config.json's that stay here, and
says what their matrices are worth in float32 (INT4 and MXFP4 q * scale, with two scales q times their product in
float32, FP8 value * scale_inv, each unrounded before the last float32 product). The logits come from transformers'
DeepSeek-V3 classes on those values (hf_golden.py, which lists where they differ from the published reference model) and
are checked against an independent float64 model that reads the files back from disk (numpy_model.py). Prompts are
chosen here: see draw_prompt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import hf_golden  # noqa: E402
import numpy_model  # noqa: E402

PROMPT_LENGTHS = [1, 7, 64, 300, 601]
SHORT = [1, 7, 64, 130]  # of the shapes that ranks divide: they add widths, not positions
MIN_ROUTER_GAP = 0.015  # between the last expert chosen and the first not chosen, for every token and layer
MAX_NUMPY_DIFFERENCE = 5e-5  # transformers float32 against the float64 model, relative Frobenius of any position


def draw_prompt(name, model, n):
    """Token ids whose routing is decided by at least MIN_ROUTER_GAP in every layer, and the float64 run of them.
    A token's gap depends mostly on itself, so redrawing the undecided ones converges."""
    rng = np.random.Generator(np.random.PCG64([zlib.crc32(name.encode()), n]))
    vocab = model.c["vocab_size"]
    ids = rng.integers(0, vocab, n)
    for _ in range(400):
        run = model.forward(ids)
        undecided = run["router_gap"] < MIN_ROUTER_GAP
        if not undecided.any():
            return ids.tolist(), run
        ids[undecided] = rng.integers(0, vocab, undecided.sum())
    raise SystemExit(f"{name}: no prompt of {n} tokens with a router gap of {MIN_ROUTER_GAP}")


def make(name, drawn):
    """Writes the golden files of one checkpoint; what is in golden.json."""
    out = f"{HERE}/{name}"
    model = numpy_model.Model(f"{drawn}/{name}")
    values = {n: t.float() for n, t in load_file(f"{drawn}/{name}/values.safetensors").items()}
    prompts, runs = zip(*(draw_prompt(name, model, n) for n in (SHORT if "ranks" in name else PROMPT_LENGTHS)))
    golden, logits, hidden = hf_golden.run(model.c, values, prompts)

    rows = [run["logits"][p["positions"]] for run, p in zip(runs, golden["prompts"])]
    difference = hf_golden.relative_rows(logits, np.concatenate(rows)).max()
    if difference > MAX_NUMPY_DIFFERENCE:
        raise SystemExit(f"{name}: transformers and the float64 model differ by {difference:.3g}")
    short = runs[golden["hidden"]["prompt"]]
    golden["router"] = {"prompt": golden["hidden"]["prompt"], "experts": short["experts"]}
    golden["checks"] = {
        "float64_logits_max_rel": difference,
        "float64_hidden_max_rel": hf_golden.relative_rows(hidden, short["hidden"]).max(),
        "min_router_gap": min(float(run["router_gap"].min()) for run in runs),
        "distinct_ids": len({i for ids in prompts for i in ids}),
        "distinct_experts": [
            len({e for run in runs for token in run["experts"][i] for e in token}) for i in range(len(short["experts"]))
        ],
    }
    logits.astype("<f4").tofile(f"{out}/logits.f32")
    hidden.astype("<f4").tofile(f"{out}/hidden.f32")
    with open(f"{out}/prompts.jsonl", "w") as f:
        for ids in prompts:
            f.write(json.dumps({"ids": ids}) + "\n")
    with open(f"{out}/golden.json", "w") as f:
        f.write(hf_golden.dump(dict({"name": name}, **golden)))
    return golden


def main():
    names = sorted(d for d in os.listdir(HERE) if os.path.exists(f"{HERE}/{d}/config.json"))
    parser = argparse.ArgumentParser(description="make the golden files of the random checkpoints")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    unknown = set(args.names) - set(names)
    if unknown:
        parser.error(f"unknown checkpoint: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as drawn:
        subprocess.run([f"{HERE}/../../build/golden/draw", HERE, drawn, "--values"], check=True)
        for name in names:
            if args.names and name not in args.names:
                continue
            g = make(name, drawn)
            b, c = g["bf16"], g["checks"]
            print(
                f"| {name} | {b['logits_rel']['median']:.4f} | {b['logits_rel']['p99']:.4f} | "
                f"{b['logprob_rel']['median']:.4f} | {b['logprob_rel']['p99']:.4f} | "
                f"{b['argmax_misses']} of {b['margin_positions']} | {c['float64_logits_max_rel']:.1e} | "
                f"{c['min_router_gap']:.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
