"""The text model in float64 numpy, straight from a checkpoint directory: the second, independent opinion.

It shares no code with transformers or with the script that writes the checkpoints: it parses config.json and the
safetensors files itself, dequantises from the bytes and rotates the interleaved rope pairs in place. Attention is
the expanded form of multi-head latent attention; matrices are stored [out, in], y = x W^T.

    python tests/golden/numpy_model.py CHECKPOINT GOLDEN      # logits of GOLDEN/prompts.jsonl against GOLDEN/logits.f32
"""

import json
import math
import os
import sys

import numpy as np

LORA_NORM_EPS = 1e-6  # q_a_layernorm and kv_a_layernorm: the class default of the reference, never rms_norm_eps


def e4m3_table():
    """Value of each e4m3fn byte: sign, 4 exponent bits (bias 7), 3 mantissa bits, no infinity, 0x7f/0xff NaN."""
    table = np.empty(256)
    for byte in range(256):
        e, m = byte >> 3 & 15, byte & 7
        value = math.nan if byte & 127 == 127 else m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        table[byte] = -value if byte & 128 else value
    return table


E4M3 = e4m3_table()


E2M1 = np.array([m * s for s in (1, -1) for m in (0, 0.5, 1, 1.5, 2, 3, 4, 6)])  # of each nibble


class Files:
    """The tensors of a directory by name, read from the raw bytes."""

    def __init__(self, path):
        index = f"{path}/model.safetensors.index.json"
        if os.path.exists(index):
            with open(index) as f:
                weight_map = json.load(f)["weight_map"]
        else:
            weight_map = None
        self.raw = {}
        for file in sorted(set(weight_map.values())) if weight_map else ["model.safetensors"]:
            with open(f"{path}/{file}", "rb") as f:
                data = f.read()
            n = int.from_bytes(data[:8], "little")
            for name, info in json.loads(data[8 : 8 + n]).items():
                if name != "__metadata__":
                    assert weight_map is None or weight_map[name] == file, name
                    begin, end = info["data_offsets"]
                    self.raw[name] = info["dtype"], info["shape"], data[8 + n + begin : 8 + n + end]

    def array(self, name):
        dtype, shape, data = self.raw[name]
        if dtype == "BF16":  # the upper half of a float32
            flat = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        elif dtype == "F8_E4M3":
            flat = E4M3[np.frombuffer(data, np.uint8)]
        else:
            flat = np.frombuffer(data, {"F32": "<f4", "I32": "<i4", "I8": "i1"}[dtype]).astype(np.float64)
        return flat.reshape(shape)

    def matrix(self, name):
        """A projection in whichever format it is stored, dequantised."""
        packed = name + (".weight_packed" if name + ".weight_packed" in self.raw else ".weight")
        if self.raw[packed][0] == "U8" and self.raw[name + ".weight_scale"][0] == "F8_E4M3":
            return self.nvfp4(packed, name)
        if self.raw[packed][0] == "U8":
            return self.mxfp4(packed, name + ".weight_scale")
        if name + ".weight_packed" in self.raw:
            n, k = (int(x) for x in self.array(name + ".weight_shape"))
            data = np.frombuffer(self.raw[name + ".weight_packed"][2], np.uint8).reshape(n, k // 2)
            q = np.empty((n, k))
            q[:, 0::2], q[:, 1::2] = data & 15, data >> 4
            return (q - 8) * np.repeat(self.array(name + ".weight_scale"), 32, axis=1)
        if self.raw[name + ".weight"][0] == "I8" and name + ".weight_scale_inv" in self.raw:  # w4afp8
            q = self.array(name + ".weight").astype(np.int64)
            q = np.stack([(q & 15 ^ 8) - 8, q >> 4], -1).reshape(len(q), -1)
            return q * np.repeat(self.array(name + ".weight_scale_inv"), 128, axis=1)
        if self.raw[name + ".weight"][0] in ("F8_E4M3", "I8") and name + ".weight_scale" in self.raw:  # a scale a row
            return self.array(name + ".weight") * self.array(name + ".weight_scale").reshape(-1, 1)
        if name + ".weight_scale_2" in self.raw:  # Quark's INT4
            _, (n, words), data = self.raw[name + ".weight"]
            data = np.frombuffer(data, np.uint8).reshape(n, words, 4)
            q = np.empty((n, words, 8))
            for byte, (low, high) in enumerate([(0, 2), (4, 6), (1, 3), (5, 7)]):
                q[:, :, low], q[:, :, high] = data[:, :, byte] & 15, data[:, :, byte] >> 4
            q -= 16 * (q > 7)
            return (
                q.reshape(n, words * 8)
                * self.array(name + ".weight_scale_2")[:, None]
                * self.array(name + ".weight_scale")
            )
        w = self.array(name + ".weight")
        if name + ".weight_scale_inv" in self.raw:
            scale = self.array(name + ".weight_scale_inv")
            rows, cols = np.arange(w.shape[0]) // 128, np.arange(w.shape[1]) // 128
            w = w * scale[np.ix_(rows, cols)]
        return w

    def nvfp4(self, packed, name):
        """NVIDIA's: nibbles as MXFP4's; e4m3 for 16 columns, and for the matrix a factor, or what divides."""
        data = np.frombuffer(self.raw[packed][2], np.uint8).reshape(self.raw[packed][1])
        scale = self.array(name + ".weight_scale")
        if name + ".weight_scale_2" in self.raw:
            scale = scale * self.array(name + ".weight_scale_2")
        else:
            scale = scale / self.array(name + ".weight_global_scale")
        w = E2M1[np.stack([data & 15, data >> 4], -1).reshape(len(data), -1)]
        return w * np.repeat(scale, 16, axis=1)

    def mxfp4(self, packed, scale):
        """OCP's MXFP4: columns 2b and 2b + 1 in the low and the high nibble of byte b; 2^(scale - 127) for 32."""
        data, exponent = (np.frombuffer(self.raw[n][2], np.uint8).reshape(self.raw[n][1]) for n in (packed, scale))
        assert (exponent != 255).all(), f"{scale}: NaN"
        w = E2M1[np.stack([data & 15, data >> 4], -1).reshape(len(data), -1)]
        return w * np.repeat(2.0 ** (exponent.astype(int) - 127), 32, axis=1)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def yarn(c):
    """(inverse frequencies [rope / 2], factor of cos and sin, factor of the softmax scale)."""
    s, d, b = (
        c["rope_scaling"] or {"factor": 1.0, "original_max_position_embeddings": 1},
        c["qk_rope_head_dim"],
        c["rope_theta"],
    )
    exponent = np.arange(d // 2) * 2 / d
    extra, inter = b**-exponent, b**-exponent / s["factor"]

    def correction(rotations):
        return d * math.log(s["original_max_position_embeddings"] / (2 * math.pi * rotations)) / (2 * math.log(b))

    low = max(math.floor(correction(s.get("beta_fast", 32))), 0)
    high = min(math.ceil(correction(s.get("beta_slow", 1))), d - 1)
    ramp = np.clip((np.arange(d // 2) - low) / (high - low or 0.001), 0, 1)

    def m(a):
        return 0.1 * a * math.log(s["factor"]) + 1 if s["factor"] > 1 else 1.0

    all_dim = s.get("mscale_all_dim", 0)
    return inter * ramp + extra * (1 - ramp), m(s.get("mscale", 1)) / m(all_dim), m(all_dim) ** 2


class Model:
    def __init__(self, path):
        with open(f"{path}/config.json") as f:
            c = json.load(f)
        self.prefix = "language_model." if "text_config" in c else ""
        self.c = c = c.get("text_config", c)
        self.files = Files(path)
        self.cache = {}
        self.inv_freq, self.cos_scale, m2 = yarn(c)
        self.scale = m2 / math.sqrt(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])

    def w(self, name):
        """A vector or table by its full name, a projection by its name without `.weight`."""
        if name not in self.cache:
            full = self.prefix + name
            self.cache[name] = self.files.array(full) if full in self.files.raw else self.files.matrix(full)
        return self.cache[name]

    def rotate(self, x, angle):
        """Rotate the interleaved pairs (2j, 2j + 1) of x [..., rope] by angle [tokens, rope / 2], on axis 0."""
        angle = angle.reshape(angle.shape[0], *[1] * (x.ndim - 2), -1)
        cos, sin = np.cos(angle) * self.cos_scale, np.sin(angle) * self.cos_scale
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    def attention(self, name, x):
        c, n = self.c, len(x)
        heads, nope, rope, v = (
            c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        if c["q_lora_rank"] is None:
            q = x @ self.w(f"{name}.q_proj").T
        else:
            latent = x @ self.w(f"{name}.q_a_proj").T
            q = rms_norm(latent, self.w(f"{name}.q_a_layernorm.weight"), LORA_NORM_EPS) @ self.w(f"{name}.q_b_proj").T
        q = q.reshape(n, heads, nope + rope)
        kv = x @ self.w(f"{name}.kv_a_proj_with_mqa").T
        latent, k_rope = kv[:, : c["kv_lora_rank"]], kv[:, c["kv_lora_rank"] :]
        latent = rms_norm(latent, self.w(f"{name}.kv_a_layernorm.weight"), LORA_NORM_EPS)
        expanded = (latent @ self.w(f"{name}.kv_b_proj").T).reshape(n, heads, nope + v)
        angle = np.arange(n)[:, None] * self.inv_freq
        q_rope, k_rope = self.rotate(q[..., nope:], angle), self.rotate(k_rope, angle)
        out = np.empty((n, heads, v))
        future = np.triu(np.ones((n, n), bool), 1)
        for h in range(heads):
            score = (q[:, h, :nope] @ expanded[:, h, :nope].T + q_rope[:, h] @ k_rope.T) * self.scale
            score[future] = -np.inf
            p = np.exp(score - score.max(-1, keepdims=True))
            out[:, h] = p / p.sum(-1, keepdims=True) @ expanded[:, h, nope:]
        return out.reshape(n, -1) @ self.w(f"{name}.o_proj").T

    def mlp(self, name, x):
        act = silu(x @ self.w(f"{name}.gate_proj").T) * (x @ self.w(f"{name}.up_proj").T)
        return act @ self.w(f"{name}.down_proj").T

    def moe(self, name, x, trace):
        c, k = self.c, self.c["num_experts_per_tok"]
        score = 1 / (1 + np.exp(-(x @ self.w(f"{name}.gate").T)))
        choice = score + self.w(f"{name}.gate.e_score_correction_bias")
        order = np.argsort(-choice, axis=-1, kind="stable")
        ranked = np.take_along_axis(choice, order, -1)
        if k < c["n_routed_experts"]:
            trace["router_gap"] = np.minimum(trace["router_gap"], ranked[:, k - 1] - ranked[:, k])
        trace["experts"].append(np.sort(order[:, :k], -1).tolist())
        weight = np.zeros_like(score)
        np.put_along_axis(weight, order[:, :k], np.take_along_axis(score, order[:, :k], -1), -1)
        if c["norm_topk_prob"]:
            weight /= weight.sum(-1, keepdims=True) + 1e-20
        weight *= c["routed_scaling_factor"]
        y = self.mlp(f"{name}.shared_experts", x) if c["n_shared_experts"] else np.zeros_like(x)
        for e in range(c["n_routed_experts"]):
            rows = weight[:, e] > 0
            y[rows] += weight[rows, e, None] * self.mlp(f"{name}.experts.{e}", x[rows])
        return y

    def forward(self, ids):
        """logits [n, vocab], hidden [layers + 1, n, hidden] (embeddings, then the residual stream after each
        layer), experts [MoE layer][token] sorted ids, router_gap [n]: how far the last expert chosen is ahead of
        the first not chosen, least over the layers."""
        c = self.c
        x = self.w("model.embed_tokens.weight")[ids]
        trace = {"hidden": [x], "experts": [], "router_gap": np.full(len(ids), math.inf)}
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            x = x + self.attention(
                f"{layer}.self_attn", rms_norm(x, self.w(f"{layer}.input_layernorm.weight"), c["rms_norm_eps"])
            )
            h = rms_norm(x, self.w(f"{layer}.post_attention_layernorm.weight"), c["rms_norm_eps"])
            dense = i < c["first_k_dense_replace"]
            x = x + (self.mlp(f"{layer}.mlp", h) if dense else self.moe(f"{layer}.mlp", h, trace))
            trace["hidden"].append(x)
        trace["hidden"] = np.stack(trace["hidden"])
        head = self.w("model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head")
        trace["logits"] = rms_norm(x, self.w("model.norm.weight"), c["rms_norm_eps"]) @ head.T
        return trace


def main():
    checkpoint, path = sys.argv[1:]
    with open(f"{path}/golden.json") as f:
        golden = json.load(f)
    stored = np.fromfile(f"{path}/logits.f32", "<f4").reshape(golden["logits"]["shape"]).astype(np.float64)
    model, worst = Model(checkpoint), 0.0
    for p in golden["prompts"]:
        mine = model.forward(p["ids"])["logits"][p["positions"]]
        theirs = stored[p["first_row"] : p["first_row"] + len(mine)]
        worst = max(worst, float((np.linalg.norm(mine - theirs, axis=1) / np.linalg.norm(mine, axis=1)).max()))
    print(f"{path}: largest relative difference of a position {worst:.3g}")


if __name__ == "__main__":
    main()
