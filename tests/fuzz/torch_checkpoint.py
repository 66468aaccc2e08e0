"""Weights drawn with torch and quantised to the on-disk formats, for models of any shape (diff_model.py)."""
import zlib

import numpy as np
import torch


class Checkpoint:
    """Collects tensors under their names on disk and their exact float32 values under plain names."""

    def __init__(self, v):
        self.v, self.tensors, self.values = v, {}, {}

    def normal(self, name, shape):
        rng = np.random.Generator(np.random.PCG64([self.v.seed, zlib.crc32(name.encode())]))
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    def put(self, name, tensor):
        self.tensors[name] = tensor.contiguous()

    def plain(self, name, w, dtype=None):
        """A tensor stored unquantised: bf16, or float32 in the fp32 variant."""
        w = w.to(dtype or (torch.float32 if self.v.fmt == "fp32" else torch.bfloat16))
        self.put(self.v.prefix + name, w)
        self.values[name] = w.float()

    def matrix(self, name, n, k, gain=1.0, kind=None):
        """A projection [n, k]; gain: one number or one a row; kind: None = stored plain, "fp8" or "int4"."""
        w = self.normal(name, [n, k]) * (gain / k**0.5)
        if kind == "fp8":
            self.fp8(name, w)
        elif kind == "int4":
            self.int4(name, w)
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
                scale[i, j] = w[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128].abs().max() / 448 * spread[i, j]
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
