#!/usr/bin/env python3
"""Holds folders of `moonlet quantize` against compressed-tensors and torch: run by hand, since it needs both.

    pip install torch compressed-tensors==0.20.0 safetensors
    python tests/golden/check_quantized.py SRC DST [BF16] [--calibrated]

SRC has the matrices in BF16 or F32, DST is what `moonlet quantize -m SRC -o DST` made of it in int4, mxfp4, nvfp4 or
int8 (either layout), w4a8 or fp8, BF16 (where it is given) is `moonlet quantize -m DST -o BF16 --format bf16`: what
Moonlet takes DST's values for, rounded to bf16. Of every matrix of DST:

    codes    the package's own quantiser, given SRC's values and DST's scales, packs the same bytes
    values   its decompressor, and for w4a8 and fp8 the formulas in torch, gives Moonlet's values bit for bit
    pairs    of nvfp4: gate and up have the same factor, which is that of the larger one
    error    ||w - values|| / ||w|| over all, and of the package's usual scale (largest |w| / 7.5, / 127.5 of int8, its
             MXFP4 rule, its NVFP4 rule)

Of a DST that was made with --calibrate codes are not the nearest ones: --calibrated does not ask for them.

Exit status 0: all codes and values are the same, all pairs too."""
import json
import sys
from pathlib import Path

import torch
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.naive_quantized import IntQuantizationCompressor
from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.quant_scheme import INT8_W8A8, MXFP4A16, NVFP4A16
from safetensors import safe_open

INT4 = QuantizationScheme(
    targets=["Linear"],
    weights=QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32),
)
MXFP4 = QuantizationScheme(targets=["Linear"], **MXFP4A16)
NVFP4 = QuantizationScheme(targets=["Linear"], **NVFP4A16)
INT8 = QuantizationScheme(targets=["Linear"], **INT8_W8A8)
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


def unpack_nvfp4(parts, divisor):
    done = {**parts, "weight_global_scale": divisor}
    return NVFP4PackedCompressor.decompress({k: v.clone() for k, v in done.items()}, NVFP4)["weight"]


def usual_nvfp4(w):
    divisor = (2688 / w.abs().amax().clamp(min=2.0**-100)).reshape(1)
    scale = (w.view(w.shape[0], -1, 16).abs().amax(-1) / 6 * divisor).clamp(2.0**-9, 448).to(torch.float8_e4m3fn)
    state = {"weight": w, "weight_scale": scale.float(), "weight_global_scale": divisor}
    done = NVFP4PackedCompressor.compress(state, NVFP4)
    return unpack_nvfp4({k: done[k] for k in ("weight_packed", "weight_scale")}, divisor).float()


def check_nvfp4(d, base, w):
    """compressed-tensors' names: the package does all. ModelOpt's: the product of the scales is given to it."""
    packed = base + ".weight_packed" in d.where
    data = d[base + (".weight_packed" if packed else ".weight")]
    scale, factor = d[base + ".weight_scale"], d[base + (".weight_global_scale" if packed else ".weight_scale_2")]
    if packed:
        state = {"weight": w, "weight_scale": scale.float(), "weight_global_scale": factor}
    else:
        state = {"weight": w, "weight_scale": scale.float() * factor}
    own = NVFP4PackedCompressor.compress(state, NVFP4)["weight_packed"]
    nibbles = torch.stack([data & 15, data >> 4], -1).view(data.shape[0], -1).long()
    e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    whole = scale.float() / factor if packed else scale.float() * factor
    values = torch.cat([e2m1, -e2m1])[nibbles] * whole.repeat_interleave(16, 1)
    same = torch.equal(own, data)
    if packed:
        read = unpack_nvfp4({"weight_packed": data, "weight_scale": scale}, factor)
        same = same and torch.equal(read.float().bfloat16(), values.bfloat16())
    return same, values, values.bfloat16(), usual_nvfp4(w)


def nvfp4_pairs(source, d):
    """(pairs, those whose factor is that of the larger of both)"""
    n = good = 0
    for name in d.where:
        for end, other in ((".gate_proj", ".up_proj"), (".q_a_proj", ".kv_a_proj_with_mqa")):
            for factor, divides in ((".weight_scale_2", False), (".weight_global_scale", True)):
                if not name.endswith(end + factor) or d[name].numel() != 1:
                    continue
                bases = [name.removesuffix(end + factor) + e for e in (end, other)]
                most = max(source[b + ".weight"].float().abs().amax() for b in bases)
                want = torch.tensor(2688.0) / most if divides else most / 2688
                n, good = n + 1, good + all(d[b + factor].item() == want.item() for b in bases)
    return n, good


def check_int8(d, base, w):
    q, scale = d[base + ".weight"], d[base + ".weight_scale"].view(-1, 1)
    own = IntQuantizationCompressor.compress({"weight": w, "weight_scale": scale}, INT8)["weight"]
    read = IntQuantizationCompressor.decompress({"weight": q, "weight_scale": scale}, INT8)["weight"].float()
    usual = w.abs().amax(-1, keepdim=True) / 127.5
    usual = torch.where(usual == 0, 1, usual)
    return torch.equal(own, q), read, read.bfloat16(), (w / usual).round().clamp(-128, 127) * usual


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
        if d[name].dtype == torch.int8 and name.endswith(".weight"):
            yield base, check_int8
        elif base + ".weight_global_scale" in d.where and name.endswith(".weight_packed"):
            yield base, check_nvfp4
        elif base + ".weight_scale_2" in d.where and name.endswith(".weight") and d[name].dtype == torch.uint8:
            yield base, check_nvfp4
        elif name.endswith(".weight_packed"):
            mx = d[name].dtype == torch.uint8
            yield base, (lambda d, b, w: check_mxfp4(d, b, w, ".weight_packed")) if mx else check_int4
        elif name.endswith(".weight") and base + ".weight_scale_2" in d.where:
            yield base, check_w4a8
        elif name.endswith(".weight") and base + ".weight_scale_inv" in d.where:
            yield base, check_fp8
        elif name.endswith(".weight") and d[name].dtype == torch.uint8:
            yield base, lambda d, b, w: check_mxfp4(d, b, w, ".weight")


def main():
    words = [a for a in sys.argv[1:] if a != "--calibrated"]
    calibrated = len(words) < len(sys.argv) - 1
    source, d = Folder(words[0]), Folder(words[1])
    half = Folder(words[2]) if len(words) > 2 else None
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
        f"{words[1]}: {n} matrices, codes the same {codes}, values the same {values if half else 'not asked'}, "
        f"error {(error / energy) ** 0.5:.4e}, with the usual scale {(usual / energy) ** 0.5:.4e}"
    )
    pairs, good = nvfp4_pairs(source, d)
    if pairs:
        print(f"{pairs} pairs, with the factor of the larger one {good}")
    sys.exit(0 if n and (codes == n or calibrated) and values == n and good == pairs else 1)


if __name__ == "__main__":
    main()
