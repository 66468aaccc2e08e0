#!/usr/bin/env python3
"""Does Hugging Face transformers load a folder of `moonlet quantize`, with the values that Moonlet takes it for? Run by
hand, since it needs both.

    pip install torch transformers==4.57.1 compressed-tensors==0.20.0 accelerate safetensors
    TORCHDYNAMO_DISABLE=1 python tests/golden/check_transformers.py DST BF16

DST is `moonlet quantize -m SRC -o DST` in int4, int8, or mxfp4 or nvfp4 with --layout compressed-tensors; BF16 is
`moonlet quantize -m DST -o BF16 --format bf16`. The text model of DST is loaded as DeepseekV3ForCausalLM with its own
quantization_config, which makes float32 of it; every tensor, rounded to bf16, is held against BF16's, bit for bit.
transformers 5 (5.24 was tried) has a layer's experts in two tensors: int4 and mxfp4 are the same there, but it leaves
out nvfp4's factor and finds no experts in int8.

Exit status 0: all tensors are there and the same."""
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.utils.quantization_config import CompressedTensorsConfig


def text_tensors(folder):
    """By name, without what the pictures' model puts before it."""
    out = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as f:
            for name in f.keys():
                if not name.startswith(("vision_tower.", "mm_projector.")):
                    out[name.removeprefix("language_model.")] = f.get_tensor(name).clone()
    return out


def text_folder(source, folder):
    """The text model alone, under the names that transformers knows."""
    whole = json.loads((source / "config.json").read_text())
    config = whole.get("text_config", whole)
    quantization = config.get("quantization_config") or whole["quantization_config"]
    config.pop("auto_map", None)
    config |= {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    config["quantization_config"] = json.loads(json.dumps(quantization).replace("language_model.", ""))
    (folder / "config.json").write_text(json.dumps(config))
    save_file(text_tensors(source), folder / "model.safetensors", {"format": "pt"})


def experts_apart(name, x):
    """transformers 5: [E, 2 inter, hidden], [E, hidden, inter]."""
    base = name.rsplit(".", 1)[0]
    for e, w in enumerate(x):
        if name.endswith(".down_proj"):
            yield f"{base}.{e}.down_proj.weight", w
        else:
            yield f"{base}.{e}.gate_proj.weight", w[: len(w) // 2]
            yield f"{base}.{e}.up_proj.weight", w[len(w) // 2 :]


def loaded(folder):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=CompressedTensorsConfig(run_compressed=False)
    )
    for name, x in model.state_dict().items():
        yield from experts_apart(name, x) if name.endswith(("experts.gate_up_proj", "experts.down_proj")) else [
            (name, x)
        ]


def main():
    want = text_tensors(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        text_folder(Path(sys.argv[1]), Path(folder))
        have = dict(loaded(folder))
    same = [n for n in want if n in have and torch.equal(have[n].bfloat16(), want[n].bfloat16())]
    experts = sum(".experts." in n for n in same)
    print(f"{sys.argv[1]}: {len(want)} tensors, {len(same)} the same, {experts} of them experts' matrices")
    for name in [n for n in want if n not in same][:5]:
        print("not the same:", name, "" if name in have else "(missing)")
    sys.exit(len(same) != len(want))


if __name__ == "__main__":
    main()
