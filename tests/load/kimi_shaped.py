"""A checkpoint with Kimi-K2.5's shapes, layout and first layers, of random bytes that mean nothing: to time loading.

    kimi_shaped.py CONFIG OUT LAYERS     CONFIG: a folder with config.json and the tokenizer's files
    kimi_shaped.py --read OUT            how long one plain read of the files takes, none of them in the page cache

A layer with experts is 9.9 GB, the embeddings and the head 4.7 GB, and one file each.
"""
import json
import os
import random
import shutil
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from safetensors_writer import header_bytes, layout, n_bytes

BLOCK = 1 << 24  # bf16 values of a piece that is written again and again
PREFIX = "language_model."


def matrix(name, rows, cols):
    return {f"{name}.weight": ("BF16", [rows, cols])}


def int4(name, rows, cols):
    return {
        f"{name}.weight_packed": ("I32", [rows, cols // 8]),
        f"{name}.weight_scale": ("BF16", [rows, cols // 32]),
        f"{name}.weight_shape": ("I32", [2]),
    }


def mlp(name, hidden, inter, kind):
    return {
        **kind(f"{name}.gate_proj", inter, hidden),
        **kind(f"{name}.up_proj", inter, hidden),
        **kind(f"{name}.down_proj", hidden, inter),
    }


def layer(c, i):
    at, hidden, heads = f"{PREFIX}model.layers.{i}", c["hidden_size"], c["num_attention_heads"]
    nope, rope, v_dim = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    q_lora, kv_lora, experts, inter = (
        c["q_lora_rank"],
        c["kv_lora_rank"],
        c["n_routed_experts"],
        c["moe_intermediate_size"],
    )
    tensors = {
        f"{at}.input_layernorm.weight": ("BF16", [hidden]),
        f"{at}.post_attention_layernorm.weight": ("BF16", [hidden]),
        f"{at}.self_attn.q_a_layernorm.weight": ("BF16", [q_lora]),
        f"{at}.self_attn.kv_a_layernorm.weight": ("BF16", [kv_lora]),
        **matrix(f"{at}.self_attn.q_a_proj", q_lora, hidden),
        **matrix(f"{at}.self_attn.q_b_proj", heads * (nope + rope), q_lora),
        **matrix(f"{at}.self_attn.kv_a_proj_with_mqa", kv_lora + rope, hidden),
        **matrix(f"{at}.self_attn.kv_b_proj", heads * (nope + v_dim), kv_lora),
        **matrix(f"{at}.self_attn.o_proj", hidden, heads * v_dim),
    }
    if i < c["first_k_dense_replace"]:
        return {**tensors, **mlp(f"{at}.mlp", hidden, c["intermediate_size"], matrix)}
    tensors |= matrix(f"{at}.mlp.gate", experts, hidden)
    tensors[f"{at}.mlp.gate.e_score_correction_bias"] = ("F32", [experts])
    tensors |= mlp(f"{at}.mlp.shared_experts", hidden, inter * c["n_shared_experts"], matrix)
    for e in range(experts):
        tensors |= mlp(f"{at}.mlp.experts.{e}", hidden, inter, int4)
    return tensors


def ends(c):
    return {
        **matrix(f"{PREFIX}model.embed_tokens", c["vocab_size"], c["hidden_size"]),
        **matrix(f"{PREFIX}lm_head", c["vocab_size"], c["hidden_size"]),
        f"{PREFIX}model.norm.weight": ("BF16", [c["hidden_size"]]),
    }


class Bytes:
    """Random bytes of each kind: words, and bf16 between 0.008 and 0.03 with either sign."""

    def __init__(self):
        some = random.Random(1).randbytes(2 * BLOCK)
        bf16 = bytearray(some)
        bf16[1::2] = some[1::2].translate(bytes(0x3C | b & 0x80 for b in range(256)))
        self.kinds = {"I32": memoryview(some), "BF16": memoryview(bf16), "F32": memoryview(bytes(BLOCK))}

    def write(self, f, dtype, left):
        kind = self.kinds[dtype]
        while left:
            left -= f.write(kind[: min(left, len(kind))])


def write_shard(path, tensors, data):
    header, _ = layout(tensors)
    text, began = header_bytes(header), time.monotonic()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, (dtype, shape) in sorted(tensors.items(), key=lambda t: header[t[0]]["data_offsets"]):
            if name.endswith("weight_shape"):
                rows, words = tensors[name.replace("_shape", "_packed")][1]
                f.write(struct.pack("<2i", rows, words * 8))
            else:
                data.write(f, dtype, n_bytes(dtype, shape))
        f.flush()
        os.fsync(f.fileno())
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e9:.2f} GB, {size / 1e9 / (time.monotonic() - began):.2f} GB/s", flush=True)


def make(config, out, layers):
    out.mkdir(parents=True, exist_ok=True)
    whole = json.loads((config / "config.json").read_text())
    text = whole["text_config"]
    text["num_hidden_layers"] = layers
    (out / "config.json").write_text(json.dumps(whole))
    for name in ("tokenizer_config.json", "tiktoken.model", "tiktoken.model.gz"):
        if (config / name).exists():
            shutil.copy(config / name, out / name)
    shards = [layer(text, i) for i in range(layers)] + [ends(text)]
    data, index = Bytes(), {}
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):06d}.safetensors"
        write_shard(out / name, tensors, data)
        index |= dict.fromkeys(tensors, name)
    (out / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def forget(paths):
    for path in paths:
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(out):
    paths, total, began = sorted(out.glob("*.safetensors")), 0, None
    forget(paths)
    room, began = bytearray(16 << 20), time.monotonic()
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            while n := f.readinto(room):
                total += n
    took = time.monotonic() - began
    forget(paths)
    print(f"plain read of {total / 1e9:.2f} GB: {took:.2f} s, {total / 1e9 / took:.2f} GB/s")


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        read(Path(sys.argv[2]))
    else:
        make(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
