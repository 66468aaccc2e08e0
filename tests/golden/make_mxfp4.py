#!/usr/bin/env python3
"""Makes mxfp4.txt: a matrix in MXFP4 as the PyPI package `compressed-tensors` packs it, and what it takes it for.

    python3 -m venv /tmp/ctenv && /tmp/ctenv/bin/pip install compressed-tensors==0.20.0
    /tmp/ctenv/bin/python tests/golden/make_mxfp4.py

Four lines: rows and columns; `weight_packed`, `weight_scale` and the float32 values in hexadecimal, byte by byte as
they lie in a file. The package quantised the first row from drawn numbers; the second row has each of the 256 bytes of
two nibbles, under scales from one end of float32 to the other (0, the least scale, to 252, the last one whose 6 is
finite). 255 is left out: NaN for the specification, 2^128 for the package. Every value of the format is a bfloat16, in
which the package computes.
"""
from pathlib import Path

import torch
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.quant_scheme import MXFP4A16

COLS, GROUP = 512, 32
SCALES = [0, 1, 2, 64, 100, 119, 120, 126, 127, 128, 129, 134, 160, 200, 251, 252]


def main():
    scheme = QuantizationScheme(targets=["Linear"], **MXFP4A16)
    torch.manual_seed(1)
    weight = torch.randn(1, COLS) * 0.05
    scale = torch.exp2(torch.floor(torch.log2(weight.view(1, -1, GROUP).abs().amax(-1))) - 2)
    drawn = MXFP4PackedCompressor.compress({"weight": weight, "weight_scale": scale}, scheme)
    packed = torch.cat([drawn["weight_packed"], torch.arange(256, dtype=torch.uint8)[None]])
    scales = torch.cat([drawn["weight_scale"], torch.tensor([SCALES], dtype=torch.uint8)])
    read = MXFP4PackedCompressor.decompress({"weight_packed": packed, "weight_scale": scales}, scheme)
    values = read["weight"].float().contiguous()
    error = (values[:1] - weight).abs().max() / weight.abs().max()
    assert error < 0.2, f"{error}: not what was packed"
    parts = [packed, scales, values.view(torch.uint8)]
    lines = ["2 512"] + [part.flatten().numpy().tobytes().hex() for part in parts]
    Path(__file__).with_name("mxfp4.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
