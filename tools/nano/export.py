"""Write the trained weights as a checkpoint in Kimi-K2.5's layout: INT4 experts, BF16 rest, two shards.

    python tools/nano/export.py --state DIR/state.pt [--out FOLDER] [--master]

Into models/nano, or FOLDER, which needs tokenizer.py's files too. --master: every weight in BF16, experts too, what the
INT4 experts are rounded from (42 MB, two shards; not in the repository).
"""

import argparse
import json
import pathlib
import struct

import torch

from config import OUT, Nano, config_json, shift
from model import Kimi, Moe, int4_quantize, int4_scales
from vision import Vision

TYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int32: "I32", torch.uint8: "U8"}


def pack(w, group):
    """K2.5's "pack-quantized" tensors of one matrix [N, K]: eight nibbles a word, the lowest k lowest."""
    scale = int4_scales(w, group)
    nibbles = (int4_quantize(w, scale, group) + 8).to(torch.int64).unflatten(-1, (-1, 8))
    words = (nibbles << (4 * torch.arange(8))).sum(-1)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return {
        "weight_packed": words,
        "weight_scale": scale.to(torch.bfloat16),
        "weight_shape": torch.tensor(w.shape, dtype=torch.int32),
    }


def tensors(model, eyes, c, master):
    """(name, tensor) in the order of the layers, then embeddings, lm_head, final norm, tower and projector."""
    for i, layer in enumerate(model.layers):
        base = f"language_model.model.layers.{i}."
        for name, t in layer.state_dict().items():
            if name.endswith("e_score_correction_bias"):
                yield base + name, t.float()
            elif name not in ("mlp.gate_up", "mlp.down"):
                yield base + name, t.to(torch.bfloat16)
        if not isinstance(layer.mlp, Moe):
            continue
        for e in range(c.experts):
            gate, up = layer.mlp.gate_up[e].detach().float().chunk(2)
            for proj, w in (("gate_proj", gate), ("up_proj", up), ("down_proj", layer.mlp.down[e].detach().float())):
                for suffix, t in ({"weight": w.to(torch.bfloat16)} if master else pack(w, c.group)).items():
                    yield f"{base}mlp.experts.{e}.{proj}.{suffix}", t
    yield "language_model.model.embed_tokens.weight", model.embed_tokens.weight.detach().to(torch.bfloat16)
    yield "language_model.lm_head.weight", model.lm_head.weight.detach().to(torch.bfloat16)
    yield "language_model.model.norm.weight", model.norm.weight.detach().to(torch.bfloat16)
    for name, t in eyes.state_dict().items():
        yield name, t.to(torch.bfloat16)


def raw(t):
    t = t.contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()


def write_shard(path, items):
    """A safetensors file: header length, JSON header padded to 8 bytes, then the data without gaps."""
    header, offset = {}, 0
    for name, t in items:
        size = t.numel() * t.element_size()
        header[name] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, t in items:
            f.write(raw(t))
    return offset


def export(model, eyes, c, out, master=False):
    items = list(tensors(model, eyes, c, master))
    # Two shards: layers up to the middle; the rest, embeddings, head and tower. float32 and int32 data come
    # first, so that every tensor is aligned to its element.
    cut = f"language_model.model.layers.{c.layers // 2 + 1}."
    first = next(i for i, (name, _) in enumerate(items) if name.startswith(cut))
    total, weight_map = 0, {}
    for n, shard in enumerate((items[:first], items[first:]), 1):
        name = f"model-{n:05d}-of-{2:06d}.safetensors"
        shard = sorted(shard, key=lambda it: it[1].element_size(), reverse=True)
        total += write_shard(out / name, shard)
        weight_map.update({tensor: name for tensor, _ in shard})
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")
    j = config_json(c, eyes.c)
    if master:
        j["text_config"].pop("quantization_config")
    (out / "config.json").write_text(json.dumps(j, indent=2) + "\n")
    # Kimi's has no temperature, so servers take 1; at 1 so small a model says what it does not mean
    generation = {
        "do_sample": True,
        "eos_token_id": shift(163586, c.n_ranks),
        "max_length": c.context,
        "temperature": 0.2,
        "top_p": 0.95,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--state", required=True)
    ap.add_argument("--out", type=pathlib.Path, default=OUT)
    ap.add_argument("--master", action="store_true")
    a = ap.parse_args()
    c, state = Nano(), torch.load(a.state, map_location="cpu")
    model, eyes = Kimi(c), Vision()
    model.load_state_dict(state["model"])
    eyes.load_state_dict(state["eyes"])
    a.out.mkdir(parents=True, exist_ok=True)
    export(model.float(), eyes.float(), c, a.out, a.master)
    print(sum(f.stat().st_size for f in a.out.rglob("*") if f.is_file()), "bytes in", a.out, "at step", state["step"])


if __name__ == "__main__":
    main()
