#!/usr/bin/env python3
"""Makes rows.txt: matrices in FP8 and INT8 with one scale a row as the PyPI package `compressed-tensors` quantises
them, and what it takes them for.

    python3 -m venv /tmp/ctenv && /tmp/ctenv/bin/pip install compressed-tensors==0.20.0
    /tmp/ctenv/bin/python tests/golden/make_rows.py

Four lines each, FP8 first: rows and columns; `weight`, `weight_scale` (float32) and the float32 values in hexadecimal,
byte by byte as they lie in a file. The package quantised the first rows from drawn numbers; the last one has each byte,
but for e4m3's NaN, which stand as 0.
"""
from pathlib import Path

import torch
from compressed_tensors.compressors.naive_quantized import FloatQuantizationCompressor, IntQuantizationCompressor
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.quant_scheme import FP8_DYNAMIC, INT8_W8A8

ROWS, COLS = 2, 256


def matrix(compressor, preset, kind, most):
    scheme = QuantizationScheme(targets=["Linear"], **preset)
    weight = torch.randn(ROWS, COLS) * torch.tensor([[0.05], [3.0]])
    scale = weight.abs().amax(1, keepdim=True) / most
    drawn = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)["weight"]
    assert drawn.dtype == kind
    every = torch.arange(256, dtype=torch.uint8)
    if kind == torch.float8_e4m3fn:
        every[127] = every[255] = 0
    codes = torch.cat([drawn.view(torch.uint8), every[None]])
    scale = torch.cat([scale, torch.tensor([[0.0123]])])
    values = compressor.decompress({"weight": codes.view(kind), "weight_scale": scale}, scheme)["weight"]
    assert values.dtype == torch.float32
    error = ((values[:ROWS] - weight).abs().amax(1) / weight.abs().amax(1)).max()
    assert error < 0.04, f"{error}: not what was quantised"
    parts = [codes, scale.view(torch.uint8), values.contiguous().view(torch.uint8)]
    return [f"{ROWS + 1} {COLS}"] + [part.flatten().numpy().tobytes().hex() for part in parts]


def main():
    torch.manual_seed(3)
    lines = matrix(FloatQuantizationCompressor, FP8_DYNAMIC, torch.float8_e4m3fn, 448)
    lines += matrix(IntQuantizationCompressor, INT8_W8A8, torch.int8, 127.5)
    Path(__file__).with_name("rows.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
