#!/usr/bin/env python3
"""Makes nvfp4.txt: a matrix in NVFP4 as the PyPI package `compressed-tensors` packs it, and what it takes it for.

    python3 -m venv /tmp/ctenv && /tmp/ctenv/bin/pip install compressed-tensors==0.20.0
    /tmp/ctenv/bin/python tests/golden/make_nvfp4.py

Five lines: rows and columns; `weight_packed`, `weight_scale`, `weight_global_scale` and the float32 values in
hexadecimal, byte by byte as they lie in a file. The package quantised the first row from drawn numbers; the second row
has each of the 256 bytes of two nibbles, under scales from one end of e4m3 to the other. The package's decompress()
rounds what it takes the file for to bfloat16; the values here are those of its dequantize() before that.
"""
from pathlib import Path

import torch
from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.quant_scheme import NVFP4A16

COLS, GROUP = 512, 16
SCALES = [0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 40, 48, 55, 56, 57, 58]  # 0, the subnormal ones, ... 1, ...
SCALES += [63, 64, 71, 80, 95, 96, 100, 104, 111, 112, 119, 120, 125, 126, 129, 254]  # ... 448, two below 0


def main():
    scheme = QuantizationScheme(targets=["Linear"], **NVFP4A16)
    torch.manual_seed(2)
    weight = torch.randn(1, COLS) * 0.05
    whole = (2688 / weight.abs().amax()).reshape(1)
    scale = (weight.view(1, -1, GROUP).abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn).float()
    state = {"weight": weight, "weight_scale": scale, "weight_global_scale": whole}
    drawn = NVFP4PackedCompressor.compress(state, scheme)
    packed = torch.cat([drawn["weight_packed"], torch.arange(256, dtype=torch.uint8)[None]])
    scales = torch.cat([drawn["weight_scale"].view(torch.uint8), torch.tensor([SCALES], dtype=torch.uint8)])
    state = {"weight_packed": packed, "weight_scale": scales.view(torch.float8_e4m3fn), "weight_global_scale": whole}
    read = NVFP4PackedCompressor.decompress(state, scheme)["weight"]
    codes = unpack_fp4_from_uint8(packed, 2, COLS).float()
    values = dequantize(
        x_q=codes,
        scale=state["weight_scale"].float(),
        args=scheme.weights,
        global_scale=whole,
        dtype=torch.float32,
    ).contiguous()
    assert torch.equal(values.bfloat16(), read.bfloat16()), "not what decompress() says"
    error = (values[:1] - weight).abs().max() / weight.abs().max()
    assert error < 0.2, f"{error}: not what was packed"
    parts = [packed, scales, whole.view(torch.uint8), values.view(torch.uint8)]
    lines = ["2 512"] + [part.flatten().numpy().tobytes().hex() for part in parts]
    Path(__file__).with_name("nvfp4.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
