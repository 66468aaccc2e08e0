#!/usr/bin/env python3
"""Differential test of the whole engine against Hugging Face transformers, on random models.

    python tests/fuzz/diff_model.py --n 48 --seed 1 [--layout int4] [--keep DIR] [--json FILE]

Needs torch, transformers, safetensors and numpy (tests/golden/README.md tells how), so `make check` does not run it.

Each seed draws a legal config (heads, head sizes, ranks, layers, experts, shared experts, YaRN or none, tied head,
layout: fp8, int4 with and without `language_model.`, bf16, fp32, or a mixture of formats matrix by matrix), weights
as docs/design/design.md says under "Numbers" (embedding N(0, 1), o and down projections 0.6 / sqrt(fan-in), the rest
1 / sqrt(fan-in)) and free random prompts of 1 to 700 tokens. Unlike the golden set, nothing is chosen so that
the routing is decided: there are near-ties. `moonlet eval logprobs` runs on ref and on cpu at every instruction set,
in prefill and in decode form (--decode), and is compared with transformers' float32 run; distances are those of
hf_golden.logprob_rows. Checked for each model:

    ref      every position within 1e-4. A position above that must have a router gap (of itself or an earlier
             one, in the float64 model) so small that float32 itself cannot decide it; those are counted as "ties".
    cpu      median and P99 at most 1.5 times those of transformers' bf16 run, 2 times where activations are int8
             (INT4 experts with VNNI); argmax wrong at no more of the positions with a margin of 0.3 than
             twice that run. An FP32 checkpoint: like ref.
    bits     another chunk size and thread count give the same bytes.

A flipped expert moves a position 20 to 100 times as far as rounding does, and the positions that attend to it 4 to 10
times; bf16 flips one at about a position in fifty. Whether P99 of one model lies among the flips is then luck, so P99
is judged in two parts: over the positions whose routing is decided (decided_rows), where the bound has to hold, and by
the number of flips, which may be no more than the bound times as many, at FLIP_Z standard deviations (Poisson). A P99
out of bounds that passes both is printed as a note. `control` is the same ratio for transformers' bf16 run with another
order of summation (sdpa in place of eager attention): what two equally good runs differ by.

Where the head is tied, logits are large and bf16 logits, which transformers has, are most of its error."""
import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
import hf_golden  # noqa: E402
import numpy_model  # noqa: E402
from torch_checkpoint import Checkpoint  # noqa: E402

LAYOUTS = ["fp8", "int4", "bf16", "int4-prefix", "mixed", "fp32"]
REF_BOUND = 1e-4
TIE = 2e-5  # router gap that float32 does not decide
DECIDED = 0.01  # router gap that bf16 decides
FLIP = 6  # times the bf16 run's median: beyond it, an expert was exchanged
FLIP_Z = 3
RUNS = {  # name: options, whether INT4 experts have int8 activations
    "ref": (["--device", "ref"], False),
    "ref decode": (["--device", "ref", "--decode"], False),
    "none": (["--cpu-mask", "none"], False),
    "avx2": (["--cpu-mask", "avx2"], False),
    "avx512": (["--cpu-mask", "avx512"], False),
    "all": (["--cpu-mask", "all"], True),
    "all decode": (["--cpu-mask", "all", "--decode"], True),
}


# ---- a random model ----


def log_int(r, lo, hi, step=1):
    return max(lo, int(math.exp(r.uniform(math.log(lo), math.log(hi + 1))) // step * step))


def draw_config(r, layout):
    """The keys of a kimi_k2 config.json, as published."""
    step = 32 if layout.startswith("int4") or (layout == "mixed" and r.random() < 0.7) else 1
    layers, experts = r.randint(1, 5), log_int(r, 1, 64)
    hidden, width = log_int(r, 64, 512, step), log_int(r, 32, 128, step)
    dims = r.choice([(128, 64, 128), (24, 16, 20), None, None, None])
    nope, rope, v = dims or (r.randint(1, 96), 2 * r.randint(1, 32), r.randint(1, 96))
    vocab = r.randint(90, 200)
    original, factor = r.choice([32, 64, 128, 512, 4096]), r.choice([1.0, 2.0, 4.5, 32.0, 40.0, 64.0])
    rope_scaling = None
    if r.random() < 0.8:
        rope_scaling = {"type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        if r.random() < 0.9:
            rope_scaling.update(beta_fast=r.choice([1.0, 8.0, 32.0]), beta_slow=1.0)
        if r.random() < 0.9:
            rope_scaling.update(
                r.choice(
                    [{"mscale": 1.0, "mscale_all_dim": 1.0}] * 3
                    + [{"mscale": 0.707, "mscale_all_dim": 0.707}, {"mscale": 1.0, "mscale_all_dim": 0.5}]
                )
            )
    heads = r.randint(1, 9)
    return {
        "model_type": r.choice(["kimi_k2", "deepseek_v3"]),
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "first_k_dense_replace": r.choice([0, 1, 1, 1, r.randint(0, layers), layers])
        if layers > 1
        else r.randint(0, 1),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": log_int(r, 33, 400),
        "kv_lora_rank": log_int(r, 32, 512),
        "max_position_embeddings": r.randint(700, 900),
        "moe_intermediate_size": width,
        "moe_layer_freq": 1,
        "n_group": 1,
        "n_routed_experts": experts,
        "n_shared_experts": r.randint(0, 2),
        "norm_topk_prob": r.random() < 0.7,
        "num_attention_heads": heads,
        "num_experts_per_tok": r.randint(1, min(8, experts)),
        "num_hidden_layers": layers,
        "num_key_value_heads": heads,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": None if r.random() < 0.3 else log_int(r, 24, 400),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "rms_norm_eps": r.choice([1e-5, 1e-6]),
        "rope_scaling": rope_scaling,
        "rope_theta": r.choice([10000.0, 50000.0]),
        "routed_scaling_factor": r.choice([1.0, 2.5, 2.827]),
        "scoring_func": "sigmoid",
        "tie_word_embeddings": r.random() < 0.2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "v_head_dim": v,
        "vocab_size": vocab,
    }


def draw_weights(r, c, layout, seed):
    """A Checkpoint of all tensors, and the quantization_config."""
    fmt = {"int4-prefix": "int4", "mixed": "bf16"}.get(layout, layout)
    ck = Checkpoint(SimpleNamespace(seed=seed, fmt=fmt, prefix="language_model." if layout == "int4-prefix" else ""))
    mixed, hidden, width = layout == "mixed", c["hidden_size"], c["moe_intermediate_size"]
    float32 = mixed and r.random() < 0.15  # float32 activations with quantised matrices

    def kind(k, default):
        """How a matrix with k columns lies: "fp8", "int4", a torch type, or None for the layout's own type."""
        if not mixed:
            return default
        return r.choice(["fp8", None, torch.float32, torch.bfloat16] + (["int4"] if k % 32 == 0 else []))

    def matrix(name, n, k, gain=1.0, default=None, how="draw"):
        how = kind(k, default) if how == "draw" else how
        if isinstance(how, torch.dtype):
            ck.plain(name + ".weight", ck.normal(name, [n, k]) * (gain / k**0.5), how)
        else:
            ck.matrix(name, n, k, gain, how)

    def norm(name, n):
        ck.plain(name, 1 + 0.1 * ck.normal(name, [n]), r.choice([torch.float32, torch.bfloat16]) if mixed else None)

    def mlp(name, w, default, how="draw"):
        matrix(f"{name}.gate_proj", w, hidden, 1.0, default, how)
        matrix(f"{name}.up_proj", w, hidden, 1.0, default, how)
        matrix(f"{name}.down_proj", hidden, w, 0.6, default, how)

    dense, expert = "fp8" if layout == "fp8" else None, fmt if fmt in ("fp8", "int4") else None
    heads, nope, rope, v = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        attn, q_lora, kv_lora = f"{layer}.self_attn", c["q_lora_rank"], c["kv_lora_rank"]
        norm(f"{layer}.input_layernorm.weight", hidden)
        norm(f"{layer}.post_attention_layernorm.weight", hidden)
        if q_lora is None:
            matrix(f"{attn}.q_proj", heads * (nope + rope), hidden, 1.0, dense)
        else:
            matrix(f"{attn}.q_a_proj", q_lora, hidden, 1.0, dense)
            norm(f"{attn}.q_a_layernorm.weight", q_lora)
            matrix(f"{attn}.q_b_proj", heads * (nope + rope), q_lora, 1.0, dense)
        matrix(f"{attn}.kv_a_proj_with_mqa", kv_lora + rope, hidden, 1.0, dense)
        norm(f"{attn}.kv_a_layernorm.weight", kv_lora)
        matrix(f"{attn}.kv_b_proj", heads * (nope + v), kv_lora, 1.0, dense)
        matrix(f"{attn}.o_proj", hidden, heads * v, 0.6, dense)
        if i < c["first_k_dense_replace"]:
            mlp(f"{layer}.mlp", c["intermediate_size"], dense)
            continue
        matrix(
            f"{layer}.mlp.gate", c["n_routed_experts"], hidden, how=r.choice([torch.float32, None]) if mixed else None
        )
        bias = f"{layer}.mlp.gate.e_score_correction_bias"
        ck.plain(bias, 0.1 * ck.normal(bias, [c["n_routed_experts"]]), torch.float32)
        if c["n_shared_experts"]:
            mlp(f"{layer}.mlp.shared_experts", width * c["n_shared_experts"], dense)
        how = kind(math.gcd(hidden, width), expert)
        for e in range(c["n_routed_experts"]):
            mlp(f"{layer}.mlp.experts.{e}", width, None, how)
    ck.plain(
        "model.embed_tokens.weight", ck.normal("embed", [c["vocab_size"], hidden]), torch.float32 if float32 else None
    )
    norm("model.norm.weight", hidden)
    if not c["tie_word_embeddings"]:
        matrix("lm_head", c["vocab_size"], hidden, how=r.choice([torch.float32, None]) if mixed else None)
    like = {"int4": "k2-thinking-int4", "fp8": "k2-instruct-fp8"}.get(fmt)
    config = json.loads((ROOT / "tests/golden" / like / "config.json").read_text()) if like else {}
    return ck, config.get("quantization_config")


def write(ck, c, quantization, out):
    text = dict(c, **({"quantization_config": quantization} if quantization else {}))
    config = text
    if ck.v.prefix:
        config = {
            "model_type": "kimi_k25",
            "media_placeholder_token_id": 3,
            "text_config": text,
            "tie_word_embeddings": c["tie_word_embeddings"],
        }
    (out / "config.json").write_text(json.dumps(config, indent=1))
    save_file(ck.tensors, out / "model.safetensors")


def draw_prompts(r, vocab, positions):
    lengths = [1, r.randint(2, 64), r.randint(65, 700)]
    while sum(lengths) < positions:
        lengths.append(r.randint(1, 700))
    return [[r.randrange(vocab) for _ in range(n)] for n in lengths]


# ---- the runs ----


def hf_runs(c, values, prompts):
    """(float32, bf16, bf16 with sdpa attention) logits of all positions."""
    c, values = dict(c, tie_word_embeddings=False), dict(values)
    values.setdefault("lm_head.weight", values["model.embed_tokens.weight"])
    if c["n_routed_experts"] == 1:  # transformers' group step takes the best two: add one that is never chosen
        c["n_routed_experts"] = 2
        for i in range(c["first_k_dense_replace"], c["num_hidden_layers"]):
            mlp = f"model.layers.{i}.mlp"
            for p in ("gate", "up", "down"):
                values[f"{mlp}.experts.1.{p}_proj.weight"] = values[f"{mlp}.experts.0.{p}_proj.weight"]
            values[f"{mlp}.gate.weight"] = values[f"{mlp}.gate.weight"].repeat(2, 1)
            bias = f"{mlp}.gate.e_score_correction_bias"
            values[bias] = torch.cat([values[bias], torch.tensor([-1e9])])
    if not c["n_shared_experts"]:
        for i in range(c["first_k_dense_replace"], c["num_hidden_layers"]):
            shape, name = (0, c["hidden_size"]), f"model.layers.{i}.mlp.shared_experts"
            values[f"{name}.gate_proj.weight"] = values[f"{name}.up_proj.weight"] = torch.empty(shape)
            values[f"{name}.down_proj.weight"] = torch.empty(shape[::-1])
    out = []
    for dtype in (torch.float32, torch.bfloat16):
        model = hf_golden.hf_model(c, values, dtype)
        for attention in ("eager",) if dtype == torch.float32 else ("eager", "sdpa"):
            model.config._attn_implementation = attention
            with torch.no_grad():
                rows = [model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float() for ids in prompts]
            out.append(torch.cat(rows).numpy())
    return out


def moonlet(args, directory, options, prompts="prompts.jsonl"):
    """(bytes of stdout, logprobs [positions, vocab])."""
    done = subprocess.run(
        [
            args.moonlet,
            "eval",
            "logprobs",
            "-m",
            str(directory),
            "--data",
            str(directory / prompts),
            "--top",
            "1000",
            "--context-length",
            "700",
            "--threads",
            "1",
            *options,
        ],
        capture_output=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.decode().strip()[-400:]}")
    rows = []
    for line in done.stdout.splitlines():
        for top in json.loads(line)["top"][1:]:
            top = np.asarray(top)
            row = np.full(len(top), np.nan)
            row[top[:, 0].astype(int)] = top[:, 1]
            rows.append(row)
    return done.stdout, np.stack(rows)


# ---- verdicts ----


def p99(x):
    return np.sort(x)[-(-99 * len(x) // 100) - 1] if len(x) else math.nan


def decided_rows(d, b, gap, starts):
    """The positions whose routing, and that of all earlier ones of their prompt that it attends to, rounding did not
    change: their own gap is at least DECIDED, and before them neither run has exchanged an expert at a near-tie."""
    near = gap < DECIDED
    exchanged = near & (np.maximum(d, b) > FLIP * np.median(b))
    before = np.cumsum(exchanged)
    return ~near & (before == before[starts] - exchanged[starts])


def measure(x, f32, bf16, gap, starts):
    """The numbers of one run, and of the bf16 run at the same positions; starts[i]: where the prompt of i begins."""
    d, b = hf_golden.logprob_rows(x, f32), hf_golden.logprob_rows(bf16, f32)
    top, best = np.sort(f32, -1), f32.argmax(-1)
    clear = top[:, -1] - top[:, -2] > hf_golden.MARGIN
    decided = decided_rows(d, b, gap, starts)
    flip = FLIP * np.median(b)
    return {
        "median": float(np.median(d)),
        "p99": float(p99(d)),
        "max": float(d.max()),
        "median_ratio": float(np.median(d) / np.median(b)),
        "p99_ratio": float(p99(d) / p99(b)),
        "decided": int(decided.sum()),
        "decided_p99_ratio": float(p99(d[decided]) / p99(b[decided])) if decided.sum() >= 100 else math.nan,
        "flips": int((d > flip).sum()),
        "bf16_flips": int((b > flip).sum()),
        "clear": int(clear.sum()),
        "misses": int((clear & (x.argmax(-1) != best)).sum()),
        "bf16_misses": int((clear & (bf16.argmax(-1) != best)).sum()),
    }, d


def judge_exact(name, d, gap_so_far):
    """Positions beyond the bound: (ties, failures as text)."""
    bad = d > REF_BOUND
    ties = bad & (gap_so_far < TIE)
    wrong = np.flatnonzero(bad & ~ties)
    text = (
        [
            f"{name}: {len(wrong)} positions beyond {REF_BOUND}, first {wrong[0]}: {d[wrong[0]]:.3g}, router gap "
            f"{gap_so_far[wrong[0]]:.2g}"
        ]
        if len(wrong)
        else []
    )
    return int(ties.sum()), text


def judge_rounded(name, m, bound):
    """(failures, notes)"""
    fail, note = [], []
    if m["median_ratio"] > bound:
        fail.append(f"{name}: median {m['median_ratio']:.2f} times the bf16 run's")
    if m["misses"] > 2 * m["bf16_misses"]:
        # one miss against none is what rounding does where the margin is barely above the limit
        extra = m["misses"] - 2 * m["bf16_misses"]
        (fail if extra > FLIP_Z * math.sqrt(m["misses"] + 4 * m["bf16_misses"]) else note).append(
            f"{name}: {m['misses']} argmax misses of {m['clear']}, bf16 run {m['bf16_misses']}"
        )
    if m["decided_p99_ratio"] > bound:
        fail.append(f"{name}: P99 of decided routing {m['decided_p99_ratio']:.2f} times the bf16 run's")
    if m["p99_ratio"] > bound:
        more = m["flips"] - bound * m["bf16_flips"]
        (fail if more > FLIP_Z * math.sqrt(m["flips"] + bound**2 * m["bf16_flips"]) else note).append(
            f"{name}: P99 {m['p99_ratio']:.2f} times the bf16 run's; decided {m['decided_p99_ratio']:.2f} "
            f"({m['decided']} positions), flips {m['flips']} against {m['bf16_flips']}"
        )
    return fail, note


def one_model(args, seed):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", "Initializing zero-element")
    begin = time.time()
    r = random.Random(seed)
    layout = args.layout or LAYOUTS[seed % len(LAYOUTS)]
    c = draw_config(r, layout)
    ck, quantization = draw_weights(r, c, layout, seed)
    directory = Path(args.keep or args.tmp) / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write(ck, c, quantization, directory)
    prompts = draw_prompts(r, c["vocab_size"], args.positions)
    lines = [json.dumps({"ids": ids}) + "\n" for ids in prompts]
    (directory / "prompts.jsonl").write_text("".join(lines))
    for n in (2, 3):  # ref and plain C take long: they get the first prompts only
        (directory / f"first-{n}.jsonl").write_text("".join(lines[:n]))

    f32, b16, control = hf_runs(c, ck.values, prompts)
    model = numpy_model.Model(str(directory))
    exact = [model.forward(np.asarray(ids)) for ids in prompts]
    gap = np.concatenate([t["router_gap"] for t in exact])
    gap_so_far = np.concatenate([np.minimum.accumulate(t["router_gap"]) for t in exact])
    starts = np.concatenate(
        [np.full(len(ids), n) for ids, n in zip(prompts, np.cumsum([0] + [len(p) for p in prompts]))]
    )
    exact = np.concatenate([t["logits"] for t in exact])
    b, d_b = measure(b16, f32, b16, gap, starts)
    pure = all(w.dtype == torch.float32 for name, w in ck.tensors.items() if "embed_tokens" in name)
    result = {
        "seed": seed,
        "layout": layout,
        "float32": pure,
        "config": c,
        "positions": len(f32),
        "bf16": b,
        "control": measure(control, f32, b16, gap, starts)[0],
        "runs": {},
        "fail": [],
        "note": [],
    }
    rows = {"bf16": d_b, "gap": gap}
    ties, text = judge_exact("transformers float32 against float64", hf_golden.logprob_rows(f32, exact), gap_so_far)
    result["ties"], result["fail"] = {"float32": ties}, text
    int4 = any("experts" in n and n.endswith("weight_packed") for n in ck.tensors)
    for name, (options, vnni) in RUNS.items():
        if pure and name in ("none", "avx2", "avx512"):
            continue  # float32 activations run ref's arithmetic whatever the instruction set
        ref = name.startswith("ref")
        file = {"ref": "first-3.jsonl", "none": "first-3.jsonl", "ref decode": "first-2.jsonl"}.get(
            name, "prompts.jsonl"
        )
        try:
            raw, x = moonlet(args, directory, options, file)
        except (RuntimeError, ValueError) as e:
            result["fail"].append(f"{name}: {e}")
            continue
        n = len(x)
        m, d = measure(x, f32[:n], b16[:n], gap[:n], starts[:n])
        result["runs"][name], rows[name] = m, d
        if not np.isfinite(x).all():
            result["fail"].append(f"{name}: a logprob is missing or not finite")
        if pure or ref:
            # Where float32 itself is ambiguous, being right against float64 is as good.
            d = np.minimum(d, hf_golden.logprob_rows(x, exact[:n]))
            result["ties"][name], text = judge_exact(name, d, gap_so_far[:n])
            result["fail"] += text
        else:
            fail, note = judge_rounded(name, m, 2.0 if vnni and int4 else 1.5)
            result["fail"] += fail
            result["note"] += note
        if name == "all":
            other = ["--chunked-prefill-size", str(r.randint(1, 63)), "--threads", str(r.choice([1, 1, 2]))]
            if moonlet(args, directory, options + other, file)[0] != raw:
                result["fail"].append(f"{name}: {' '.join(other)} changes the output")
    if args.keep:
        np.savez(directory / "distances.npz", **rows)
    else:
        shutil.rmtree(directory)
    result["seconds"] = time.time() - begin
    return result, rows


def show(result):
    c = result["config"]
    print(
        f"seed {result['seed']} {result['layout']}: layers {c['num_hidden_layers']} ({c['first_k_dense_replace']} dense) hidden "
        f"{c['hidden_size']} heads {c['num_attention_heads']} x {c['qk_nope_head_dim']}/{c['qk_rope_head_dim']}/{c['v_head_dim']} q_lora "
        f"{c['q_lora_rank']} kv_lora {c['kv_lora_rank']} experts {c['num_experts_per_tok']} of {c['n_routed_experts']} x "
        f"{c['moe_intermediate_size']} + {c['n_shared_experts']}; {result['positions']} positions, {result['bf16']['decided']} decided, {result['seconds']:.0f} s"
    )
    k, b = result["control"], result["bf16"]
    print(
        f"   bf16 median {b['median']:.4f} P99 {b['p99']:.4f} flips {b['flips']} misses {b['misses']} of {b['clear']}; control "
        f"{k['median_ratio']:.2f} {k['p99_ratio']:.2f} decided {k['decided_p99_ratio']:.2f} flips {k['flips']} misses {k['misses']}"
    )
    for name, m in result["runs"].items():
        if m["max"] < REF_BOUND:
            print(f"   {name:10} largest {m['max']:.2g}")
        else:
            print(
                f"   {name:10} median {m['median_ratio']:.2f} P99 {m['p99_ratio']:.2f} decided {m['decided_p99_ratio']:.2f} flips "
                f"{m['flips']} misses {m['misses']}  (median {m['median']:.2g})"
            )
    ties = {k: n for k, n in result["ties"].items() if n}
    if ties:
        print(f"   ties of float32: {ties}")
    for text in result["note"]:
        print(f"   note: {text}")
    for text in result["fail"]:
        print(f"   FAIL: {text}")
    sys.stdout.flush()


def summary(results, rows):
    """Per layout: worst ratios of a model, and those of all its positions in units of each model's bf16 median.
    Mixed models with float32 activations are left out: they would lower everything."""
    print(
        "| layout | run | models | worst median | worst P99 | worst P99, decided | pooled median | pooled P99 | control: "
        "worst P99 | positions | flips, bf16 | misses, bf16, of |"
    )
    for layout in LAYOUTS:
        mine = [i for i, x in enumerate(results) if x["layout"] == layout and (layout == "fp32" or not x["float32"])]
        for run in RUNS:
            some = [i for i in mine if run in results[i]["runs"]]
            if not some:
                continue
            ms = [results[i]["runs"][run] for i in some]
            if run.startswith("ref") or layout == "fp32":
                print(
                    f"| {layout} | {run} | {len(some)} | largest {max(m['max'] for m in ms):.2g}, ties "
                    f"{sum(results[i]['ties'].get(run, 0) for i in some)} |"
                )
                continue
            n, units = [len(rows[i][run]) for i in some], [np.median(rows[i]["bf16"]) for i in some]
            pool, base = (
                np.concatenate([rows[i][k][:m] / u for i, m, u in zip(some, n, units)]) for k in (run, "bf16")
            )
            ctl = max(results[i]["control"]["p99_ratio"] for i in some)
            print(
                f"| {layout} | {run} | {len(some)} | {max(m['median_ratio'] for m in ms):.2f} | {max(m['p99_ratio'] for m in ms):.2f} | "
                f"{max((m['decided_p99_ratio'] for m in ms if m['decided'] >= 100), default=math.nan):.2f} | {np.median(pool) / np.median(base):.2f} | "
                f"{p99(pool) / p99(base):.2f} | {ctl:.2f} | {sum(n)} | {sum(m['flips'] for m in ms)}, "
                f"{sum(m['bf16_flips'] for m in ms)} | {sum(m['misses'] for m in ms)}, "
                f"{sum(m['bf16_misses'] for m in ms)}, {sum(m['clear'] for m in ms)} |"
            )


def main():
    parser = argparse.ArgumentParser(description="random models: moonlet against transformers")
    parser.add_argument("--n", type=int, default=12, help="models")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the layout follows from it")
    parser.add_argument("--layout", choices=LAYOUTS)
    parser.add_argument("--positions", type=int, default=800, help="at least so many tokens of prompts a model")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time, each on one core")
    parser.add_argument("--moonlet", default=str(ROOT / "build/moonlet"))
    parser.add_argument("--keep", metavar="DIR", help="leave checkpoints and distances there")
    parser.add_argument("--json", metavar="FILE", help="append a line a model")
    args = parser.parse_args()
    results, rows = [], []
    with tempfile.TemporaryDirectory() as args.tmp, ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for result, row in pool.map(one_model, [args] * args.n, range(args.seed, args.seed + args.n)):
            results.append(result)
            rows.append(row)
            show(result)
            if args.json:
                with open(args.json, "a") as f:
                    f.write(json.dumps(result) + "\n")
    summary(results, rows)
    failed = [x["seed"] for x in results if x["fail"]]
    print(f"{len(results)} models, {sum(x['positions'] for x in results)} positions, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
