#!/usr/bin/env python3
"""Holds folders of `moonlet quantize` against compressed-tensors and torch: run by hand, since it needs both.

    pip install torch compressed-tensors==0.20.0 safetensors
    python tests/golden/check_quantized.py SRC DST [BF16]

SRC has the matrices in BF16 or F32, DST is what `moonlet quantize -m SRC -o DST` made of it in int4, mxfp4 (either
layout), w4a8 or fp8, BF16 (where it is given) is `moonlet quantize -m DST -o BF16 --format bf16`: what Moonlet takes
DST's values for, rounded to bf16. Of every matrix of DST:

    codes    the package's own quantiser, given SRC's values and DST's scales, packs the same bytes
    values   its decompressor, and for w4a8 and fp8 the formulas in torch, gives Moonlet's values bit for bit
    error    ||w - values|| / ||w|| over all, and of the package's usual scale (largest |w| / 7.5, or its MXFP4 rule)

Exit status 0: all codes and values are the same."""
import json
import sys
from pathlib import Path

import torch
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.quant_scheme import MXFP4A16
from safetensors import safe_open

INT4 = QuantizationScheme(
    targets=["Linear"],
    weights=QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32),
)
MXFP4 = QuantizationScheme(targets=["Linear"], **MXFP4A16)
REORDER = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # the nibble of each of eight columns


class Folder:
    def __init__(self, path):
        self.path = Path(path)
        index = self.path / "model.safetensors.index.json"
        files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
        self.open = [safe_open(self.path / f, "pt") for f in sorted(files)]
        self.where = {name: f for f in self.open for name in f.keys()}

    def __getitem__(self, name):
        return self.where[name].get_tensor(name)


def usual_int4(w):
    groups = w.view(w.shape[0], -1, 32)
    scale = (groups.abs().amax(-1, keepdim=True) / 7.5).bfloat16().float()
    scale = torch.where(scale == 0, 1, scale)
    return ((groups / scale).round().clamp(-8, 7) * scale).view_as(w)


def usual_mxfp4(w):
    groups = w.view(w.shape[0], -1, 32)
    exponent = torch.floor(torch.log2(groups.abs().amax(-1).clamp(min=2.0**-120))) - 2
    done = MXFP4PackedCompressor.compress({"weight": w, "weight_scale": torch.exp2(exponent)}, MXFP4)
    return MXFP4PackedCompressor.decompress(done, MXFP4)["weight"].float()


def check_int4(d, base, w):
    """(codes are the same, values in float32, the same in bf16, values of the usual scale)"""
    packed, scale, shape = (d[base + s] for s in (".weight_packed", ".weight_scale", ".weight_shape"))
    own = PackedQuantizationCompressor.compress({"weight": w, "weight_scale": scale.float()}, INT4)["weight_packed"]
    parts = {"weight_packed": packed, "weight_shape": shape.long()}
    exact = PackedQuantizationCompressor.decompress({**parts, "weight_scale": scale.float()}, INT4)["weight"]
    half = PackedQuantizationCompressor.decompress({**parts, "weight_scale": scale}, INT4)["weight"]
    return torch.equal(own, packed), exact.float(), half, usual_int4(w)


def check_mxfp4(d, base, w, data):
    packed, scale = d[base + data], d[base + ".weight_scale"]
    real = torch.exp2(scale.float() - 127)
    own = MXFP4PackedCompressor.compress({"weight": w, "weight_scale": real}, MXFP4)
    same = torch.equal(own["weight_scale"].view(torch.uint8), scale) and torch.equal(own["weight_packed"], packed)
    read = MXFP4PackedCompressor.decompress({"weight_packed": packed, "weight_scale": scale}, MXFP4)["weight"]
    return same, read.float(), read, usual_mxfp4(w)


def check_w4a8(d, base, w):
    word, whole, rows = (d[base + s] for s in (".weight", ".weight_scale", ".weight_scale_2"))
    scale = rows * whole
    q = (w / scale[:, None]).round().clamp(-8, 7).int()
    have = (word[:, :, None] >> (4 * REORDER)) & 15
    have = torch.where(have > 7, have - 16, have).view_as(w)
    values = have * scale[:, None]
    return torch.equal(q, have), values, values.bfloat16(), values


def check_fp8(d, base, w):
    q, scale = d[base + ".weight"], d[base + ".weight_scale_inv"]
    wide = scale.repeat_interleave(128, 0)[: w.shape[0]].repeat_interleave(128, 1)[:, : w.shape[1]]
    own = (w / wide).to(torch.float8_e4m3fn)
    values = q.float() * wide
    same = torch.equal(own.view(torch.uint8), q.view(torch.uint8))
    return same, values, values.bfloat16(), values


def find(d):
    for name in sorted(d.where):
        base = name.rsplit(".", 1)[0]
        if name.endswith(".weight_packed"):
            mx = d[name].dtype == torch.uint8
            yield base, (lambda d, b, w: check_mxfp4(d, b, w, ".weight_packed")) if mx else check_int4
        elif name.endswith(".weight") and base + ".weight_scale_2" in d.where:
            yield base, check_w4a8
        elif name.endswith(".weight") and base + ".weight_scale_inv" in d.where:
            yield base, check_fp8
        elif name.endswith(".weight") and d[name].dtype == torch.uint8:
            yield base, lambda d, b, w: check_mxfp4(d, b, w, ".weight")


def main():
    source, d = Folder(sys.argv[1]), Folder(sys.argv[2])
    half = Folder(sys.argv[3]) if len(sys.argv) > 3 else None
    n = codes = values = 0
    error = usual = energy = 0.0
    for base, check in find(d):
        w = source[base + ".weight"].float()
        same, got, rounded, other = check(d, base, w)
        n, codes = n + 1, codes + same
        values += half is None or torch.equal(
            rounded.bfloat16().view(torch.int16), half[base + ".weight"].view(torch.int16)
        )
        error += ((got.double() - w) ** 2).sum().item()
        usual += ((other.double() - w) ** 2).sum().item()
        energy += (w.double() ** 2).sum().item()
    print(
        f"{sys.argv[2]}: {n} matrices, codes the same {codes}, values the same {values if half else 'not asked'}, "
        f"error {(error / energy) ** 0.5:.4e}, with the usual scale {(usual / energy) ** 0.5:.4e}"
    )
    sys.exit(0 if n and codes == values == n else 1)


if __name__ == "__main__":
    main()
