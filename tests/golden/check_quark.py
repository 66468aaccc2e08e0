#!/usr/bin/env python3
"""Does AMD's Quark import a folder of `moonlet quantize`, with the values that Moonlet takes it for? Run by hand, since
it needs both.

    pip install torch transformers==4.57.1 amd-quark==0.13 scipy onnx onnxslim safetensors
    TORCHDYNAMO_DISABLE=1 python tests/golden/check_quark.py DST BF16

DST is `moonlet quantize -m SRC -o DST` in mxfp4, or int8 with --layout quark; BF16 is `moonlet quantize -m DST -o BF16
--format bf16`. The text model of DST goes through quark.torch.import_model_from_safetensors(); what each of
its quantized layers multiplies by, rounded to bf16, is held against BF16's, bit for bit.

Exit status 0: all are the same, and there are some."""
import sys
import tempfile
from pathlib import Path

import torch
from check_transformers import text_folder, text_tensors
from quark.torch import import_model_from_safetensors
from transformers import AutoConfig, AutoModelForCausalLM


def imported(folder):
    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    return import_model_from_safetensors(AutoModelForCausalLM.from_config(config).eval(), model_dir=str(folder))


@torch.no_grad()
def main():
    want = text_tensors(sys.argv[2])
    n = same = 0
    with tempfile.TemporaryDirectory() as folder:
        text_folder(Path(sys.argv[1]), Path(folder))
        for name, layer in imported(folder).named_modules():
            if type(layer).__name__ != "QParamsLinear":
                continue
            got = layer.weight_quantizer(layer.weight.data)
            n, same = n + 1, same + torch.equal(got.bfloat16(), want[name + ".weight"].bfloat16())
    print(f"{sys.argv[1]}: {n} quantized layers, {same} the same")
    sys.exit(not n or same != n)


if __name__ == "__main__":
    main()
