"""Make the random test checkpoints and their golden files: tests/golden/<name>/ (README.md says what each file is).

    python tests/golden/make_checkpoints.py [NAME ...] [--out DIR]

Everything follows from the seeds in variants.py. Weights are drawn, then quantised to the on-disk format; the
golden run uses exactly the dequantised values (INT4 float(q) * float(scale), with two scales their product in float32, FP8 float(fp8) * scale_inv, both
unrounded in float32). Gains keep the model well conditioned: embedding N(0, 1), o_proj and down_proj
0.6 / sqrt(fan-in), the other matrices 1 / sqrt(fan-in), norms 1 + 0.1 N(0, 1). With larger gains a bf16 run goes
wrong by routing flips alone and its distance to float32 bounds nothing.

The logits come from transformers' DeepSeek-V3 classes (hf_golden.py, which lists where they differ from the
published reference model) and are checked against an independent float64 model that reads the files back from disk
(numpy_model.py).
"""

import argparse
import json
import os
import shutil
import sys
import zlib

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_golden  # noqa: E402
import numpy_model  # noqa: E402
from variants import VARIANTS, config  # noqa: E402

PROMPT_LENGTHS = [1, 7, 64, 300, 601]
LATENT_GAIN = 0.03  # of q_a and kv_a: their norms undo it, but now an eps of 1e-5 in place of 1e-6 is visible
MIN_ROUTER_GAP = 0.015  # between the last expert chosen and the first not chosen, for every token and layer
MAX_NUMPY_DIFFERENCE = 5e-5  # transformers float32 against the float64 model, relative Frobenius of any position


class Checkpoint:
    """Collects tensors under their names on disk (by shard) and their exact float32 values under plain names."""

    def __init__(self, v):
        self.v, self.shard, self.shards, self.values = v, 1, {}, {}

    def normal(self, name, shape):
        rng = np.random.Generator(np.random.PCG64([self.v.seed, zlib.crc32(name.encode())]))
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    def put(self, name, tensor):
        self.shards.setdefault(self.shard, {})[name] = tensor.contiguous()

    def plain(self, name, w, dtype=None):
        """A tensor stored unquantised: bf16, or float32 in the fp32 variant."""
        w = w.to(dtype or (torch.float32 if self.v.fmt == "fp32" else torch.bfloat16))
        self.put(self.v.prefix + name, w)
        self.values[name] = w.float()

    def norm(self, name, n):
        self.plain(name, 1 + 0.1 * self.normal(name, [n]))

    def matrix(self, name, n, k, gain=1.0, kind=None):
        """A projection [n, k]; gain: one number or one a row; kind: None = stored plain, "fp8", "int4" or "quark"."""
        w = self.normal(name, [n, k]) * (gain / k**0.5)
        if kind == "fp8":
            self.fp8(name, w)
        elif kind == "int4":
            self.int4(name, w)
        elif kind == "quark":
            self.quark(name, w)
        else:
            self.plain(name + ".weight", w)

    def fp8(self, name, w):
        """e4m3 `weight` [n, k] and float32 `weight_scale_inv` [ceil(n/128), ceil(k/128)]; w = fp8 * scale_inv.
        Scales are spread over a factor of four, so that a block which takes its neighbour's scale cannot pass."""
        n, k = w.shape
        rows, cols = -(-n // 128), -(-k // 128)
        spread = 1 + 3 * (self.normal(name + ".spread", [rows, cols]).abs() % 1)
        scale = torch.empty(rows, cols)
        for i in range(rows):
            for j in range(cols):
                scale[i, j] = w[i * 128:(i + 1) * 128, j * 128:(j + 1) * 128].abs().max() / 448 * spread[i, j]
        full = scale.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
        q = (w / full).to(torch.float8_e4m3fn)
        self.put(f"{name}.weight", q)
        self.put(f"{name}.weight_scale_inv", scale)
        self.values[f"{name}.weight"] = q.float() * full

    def int4(self, name, w):
        """compressed-tensors pack-quantized: nibble q + 8 of element k in bits 4 * (k mod 8) of int32 word k / 8;
        bf16 scale per 32 elements of a row; int32 shape. The scale lets -8 occur."""
        n, k = w.shape
        groups = w.view(n, k // 32, 32)
        scale = (groups.abs().amax(-1) / 7.5).to(torch.bfloat16)
        q = (groups / scale.float()[..., None]).round().clamp(-8, 7)
        nibbles = (q.view(n, k // 8, 8) + 8).long()
        words = (nibbles << (4 * torch.arange(8))).sum(-1)
        words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
        prefix = self.v.prefix + name
        self.put(f"{prefix}.weight_packed", words)
        self.put(f"{prefix}.weight_scale", scale)
        self.put(f"{prefix}.weight_shape", torch.tensor([n, k], dtype=torch.int32))
        self.values[f"{name}.weight"] = (q * scale.float()[..., None]).view(n, k)


    def quark(self, name, w):
        """Quark's W4A8: int4 in two's complement, a row's scale times the matrix's; a word's nibbles, from the lowest, hold
        elements 0, 2, 4, 6, 1, 3, 5, 7 of eight. The matrix's scale clips to e4m3, the row's is of what that leaves; rows differ by
        up to a factor of four, so that a row which takes its neighbour's scale cannot pass."""
        n, k = w.shape
        whole = (w.abs().max() / 448).reshape(1)
        coarse = (w / whole).to(torch.float8_e4m3fn).float()
        spread = 1 + 3 * (self.normal(name + ".spread", [n]).abs() % 1)
        scale = coarse.abs().amax(-1) / 7.5 * spread
        q = (coarse / scale[:, None]).round().clamp(-8, 7)
        q[:, 0] = torch.where(torch.arange(n) % 3 == 0, -8.0, q[:, 0])  # with these scales they are rare otherwise
        order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
        nibbles = q.view(n, k // 8, 8)[:, :, order].long() & 15
        words = (nibbles << (4 * torch.arange(8))).sum(-1)
        words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
        prefix = self.v.prefix + name
        self.put(f"{prefix}.weight", words)
        self.put(f"{prefix}.weight_scale", whole)
        self.put(f"{prefix}.weight_scale_2", scale)
        self.values[f"{name}.weight"] = q * (scale * whole)[:, None]


def build(v) -> Checkpoint:
    ck = Checkpoint(v)
    dense = "fp8" if v.fmt == "fp8" else None  # attention, dense and shared expert projections
    expert = v.fmt if v.fmt in ("fp8", "int4", "quark") else None

    def mlp(name, width, kind):
        ck.matrix(f"{name}.gate_proj", width, v.hidden, kind=kind)
        ck.matrix(f"{name}.up_proj", width, v.hidden, kind=kind)
        ck.matrix(f"{name}.down_proj", v.hidden, width, 0.6, kind)

    for i in range(v.layers):  # one layer a shard, as in the published files
        ck.shard = i + 1
        layer = f"model.layers.{i}"
        attn = f"{layer}.self_attn"
        ck.norm(f"{layer}.input_layernorm.weight", v.hidden)
        ck.norm(f"{layer}.post_attention_layernorm.weight", v.hidden)
        q_rows = v.heads * (v.nope + v.rope)
        if v.q_lora is None:
            ck.matrix(f"{attn}.q_proj", q_rows, v.hidden, kind=dense)
        else:
            ck.matrix(f"{attn}.q_a_proj", v.q_lora, v.hidden, LATENT_GAIN, dense)
            ck.norm(f"{attn}.q_a_layernorm.weight", v.q_lora)
            ck.matrix(f"{attn}.q_b_proj", q_rows, v.q_lora, kind=dense)
        rows = v.kv_lora + v.rope  # the rope rows are not normalised: gain 1
        gain = torch.where(torch.arange(rows) < v.kv_lora, LATENT_GAIN, 1.0)[:, None]
        ck.matrix(f"{attn}.kv_a_proj_with_mqa", rows, v.hidden, gain, dense)
        ck.norm(f"{attn}.kv_a_layernorm.weight", v.kv_lora)
        ck.matrix(f"{attn}.kv_b_proj", v.heads * (v.nope + v.v), v.kv_lora, kind=dense)
        ck.matrix(f"{attn}.o_proj", v.hidden, v.heads * v.v, 0.6, dense)
        if v.fmt == "fp8":  # stray tensors of K2-Instruct, of the wrong size: a reader must ignore them
            ck.put(f"{attn}.rotary_emb.inv_freq", ck.normal(f"{attn}.stray", [56]).to(torch.bfloat16))
        if i < v.dense_layers:
            mlp(f"{layer}.mlp", v.dense_width, dense)
            continue
        ck.plain(f"{layer}.mlp.gate.weight", ck.normal(f"{layer}.gate", [v.experts, v.hidden]) / v.hidden**0.5)
        bias = f"{layer}.mlp.gate.e_score_correction_bias"
        ck.plain(bias, 0.1 * ck.normal(bias, [v.experts]), torch.float32)
        mlp(f"{layer}.mlp.shared_experts", v.moe_width * v.shared, dense)
        for e in range(v.experts):
            mlp(f"{layer}.mlp.experts.{e}", v.moe_width, expert)

    # Embeddings: file 1 in K2-Instruct, together with head and final norm after the layers elsewhere.
    ck.shard = 1 if v.fmt == "fp8" else v.layers + 1
    ck.plain("model.embed_tokens.weight", ck.normal("embed", [v.vocab, v.hidden]))
    ck.shard = v.layers + 1
    ck.matrix("lm_head", v.vocab, v.hidden)
    ck.norm("model.norm.weight", v.hidden)
    if v.prefix:  # a few tensors of the vision part: a text-only reader must cope with them
        for name, shape in [("mm_projector.pre_norm.weight", [16]), ("mm_projector.pre_norm.bias", [16]),
                            ("vision_tower.patch_embed.proj.weight", [16, 3, 14, 14]),
                            ("vision_tower.patch_embed.proj.bias", [16]),
                            ("vision_tower.encoder.final_layernorm.weight", [16])]:
            ck.shard = v.layers + (2 if name.startswith("mm_") else 3)
            ck.put(name, (0.1 * ck.normal(name, shape)).to(torch.bfloat16))
    return ck


def write_checkpoint(ck, out):
    v = ck.v
    with open(f"{out}/config.json", "w") as f:
        json.dump(config(v), f, indent=2)
        f.write("\n")
    if not v.shards:
        tensors = {name: t for shard in ck.shards.values() for name, t in shard.items()}
        save_file(tensors, f"{out}/model.safetensors", metadata={"format": "pt"})
        return
    weight_map, total = {}, 0
    for number, tensors in ck.shards.items():
        file = v.shards.format(number, len(ck.shards))
        save_file(tensors, f"{out}/{file}", metadata={"format": "pt"})
        weight_map.update({name: file for name in tensors})
        total += sum(t.numel() * t.element_size() for t in tensors.values())
    with open(f"{out}/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=0)
        f.write("\n")


def draw_prompt(v, model, n):
    """Token ids whose routing is decided by at least MIN_ROUTER_GAP in every layer, and the float64 run of them.
    A token's gap depends mostly on itself, so redrawing the undecided ones converges."""
    rng = np.random.Generator(np.random.PCG64([v.seed, 77, n]))
    ids = rng.integers(0, v.vocab, n)
    for _ in range(400):
        run = model.forward(ids)
        undecided = run["router_gap"] < MIN_ROUTER_GAP
        if not undecided.any():
            return ids.tolist(), run
        ids[undecided] = rng.integers(0, v.vocab, undecided.sum())
    raise SystemExit(f"{v.name}: no prompt of {n} tokens with a router gap of {MIN_ROUTER_GAP}")


def make(v, root):
    out = f"{root}/{v.name}"
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    ck = build(v)
    write_checkpoint(ck, out)
    model = numpy_model.Model(out)
    prompts, runs = zip(*(draw_prompt(v, model, n) for n in PROMPT_LENGTHS))
    golden, logits, hidden = hf_golden.run(v, ck.values, prompts)

    rows = [run["logits"][p["positions"]] for run, p in zip(runs, golden["prompts"])]
    difference = hf_golden.relative_rows(logits, np.concatenate(rows)).max()
    if difference > MAX_NUMPY_DIFFERENCE:
        raise SystemExit(f"{v.name}: transformers and the float64 model differ by {difference:.3g}")
    short = runs[golden["hidden"]["prompt"]]
    golden["router"] = {"prompt": golden["hidden"]["prompt"], "experts": short["experts"]}
    golden["checks"] = {
        "float64_logits_max_rel": difference,
        "float64_hidden_max_rel": hf_golden.relative_rows(hidden, short["hidden"]).max(),
        "min_router_gap": min(float(run["router_gap"].min()) for run in runs),
        "distinct_ids": len({i for ids in prompts for i in ids}),
        "distinct_experts": [len({e for run in runs for token in run["experts"][i] for e in token})
                             for i in range(v.layers - v.dense_layers)],
    }
    for file in os.scandir(out):
        os.chmod(file.path, 0o644)
    logits.astype("<f4").tofile(f"{out}/logits.f32")
    hidden.astype("<f4").tofile(f"{out}/hidden.f32")
    with open(f"{out}/prompts.jsonl", "w") as f:
        for ids in prompts:
            f.write(json.dumps({"ids": ids}) + "\n")
    with open(f"{out}/golden.json", "w") as f:
        f.write(hf_golden.dump(dict({"name": v.name, "seed": v.seed}, **golden)))
    return golden


def main():
    parser = argparse.ArgumentParser(description="make the test checkpoints and their golden files")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    args = parser.parse_args()
    unknown = set(args.names) - {v.name for v in VARIANTS}
    if unknown:
        parser.error(f"unknown checkpoint: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for v in VARIANTS:
        if args.names and v.name not in args.names:
            continue
        g = make(v, args.out)
        b, c = g["bf16"], g["checks"]
        size = sum(e.stat().st_size for e in os.scandir(f"{args.out}/{v.name}"))
        print(f"| {v.name} | {b['logits_rel']['median']:.4f} | {b['logits_rel']['p99']:.4f} | "
              f"{b['logprob_rel']['median']:.4f} | {b['logprob_rel']['p99']:.4f} | "
              f"{b['argmax_misses']} of {b['margin_positions']} | {c['float64_logits_max_rel']:.1e} | "
              f"{c['min_router_gap']:.1e} | {size / 1000:.0f} |", flush=True)


if __name__ == "__main__":
    main()
