"""A vision tower that is not what its config.json says, or is none that this program computes: one line that names the
tensor or the key, before anything large is taken."""

import json
import os
import struct
import subprocess
from math import prod
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = ROOT / "models/nano"
PATCH, PROJECTOR = "vision_tower.patch_embed.proj.weight", "mm_projector.proj.2.weight"


def tensors():
    out = {}
    for f in sorted(NANO.glob("*.safetensors")):
        raw = f.read_bytes()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8 : 8 + n]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                out[name] = (t["dtype"], t["shape"], raw[8 + n + begin : 8 + n + end])
    return out


@pytest.fixture(scope="module")
def nano():
    return tensors()


def write(folder, all, config):
    """nano with these tensors in one file."""
    header, at = {}, 0
    for name, (dtype, shape, data) in all.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(t[2] for t in all.values())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tiktoken.model", "tokenizer_config.json", "generation_config.json"):
        (folder / name).symlink_to(NANO / name)


zeros = lambda *shape: ("BF16", list(shape), bytes(2 * prod(shape)))
BAD = {
    "patches of 28": ({PATCH: zeros(144, 3, 28, 28)}, {"patch_size": 28}, "patch_size is 28"),
    "patches of 7": ({PATCH: zeros(144, 3, 7, 7)}, {"patch_size": 7}, "patch_size is 7"),
    "half a projector": ({PROJECTOR: None}, {}, f"tensor {PROJECTOR} is missing"),
    "no bias": ({"mm_projector.proj.2.bias": None}, {}, "tensor mm_projector.proj.2.bias is missing"),
    "shape": ({PROJECTOR: zeros(255, 576)}, {}, f"tensor {PROJECTOR} has shape [255, 576]"),
    "NaN": ({"mm_projector.proj.2.bias": ("BF16", [256], b"\xc0\x7f" * 256)}, {}, "proj.2.bias holds NaN"),
    "another model's": ({}, {"text_hidden_size": 128}, "text_hidden_size is 128, the model's hidden_size 256"),
    "no heads": ({}, {"vt_num_attention_heads": 0}, "vt_num_attention_heads"),
    "odd heads": ({}, {"vt_num_attention_heads": 144}, "144 over 144 heads"),
    "layers": ({}, {"vt_num_hidden_layers": 1000}, "tensor vision_tower.encoder.blocks.4.norm0.weight is missing"),
    "table": ({}, {"init_pos_emb_height": 4096, "init_pos_emb_width": 4096}, "patch_embed.pos_emb.weight has shape"),
    "inter": ({}, {"vt_intermediate_size": 1 << 20}, "mlp.fc0.weight has shape"),
    "frames": ({}, {"init_pos_emb_time": 65}, "init_pos_emb_time"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_refused(tmp_path, nano, case):
    changed, keys, word = BAD[case]
    config = json.loads((NANO / "config.json").read_text())
    config["vision_config"].update(keys)
    write(tmp_path, {k: t for k, t in {**nano, **changed}.items() if t}, config)
    image = ROOT / "examples/stars.png"
    args = [MOONLET, "run", "-m", tmp_path, "--image", image, "-p", "What?", "--max-tokens", "1"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 1, done.stderr
    assert word in done.stderr.splitlines()[-1], done.stderr


def test_without_a_projector(tmp_path, nano):
    """A text model's checkpoint with the whole model's config.json."""
    config = json.loads((NANO / "config.json").read_text())
    write(tmp_path, {k: t for k, t in nano.items() if not k.startswith(("mm_projector", "vision_tower"))}, config)
    args = [MOONLET, "run", "-m", tmp_path, "-p", "Hello", "--max-tokens", "1"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and "no mm_projector" in done.stderr


def test_rows_that_are_no_numbers(nano, tmp_path):
    """A matrix is not looked through when it is loaded: what comes of it is."""
    name = "mm_projector.proj.0.weight"
    dtype, shape, data = nano[name]
    config = json.loads((NANO / "config.json").read_text())
    write(tmp_path, nano | {name: (dtype, shape, b"\xc0\x7f" + data[2:])}, config)
    line = json.dumps({"image": str(ROOT / "examples/stars.png")})
    done = subprocess.run([MOONLET, "eval", "vision", "-m", tmp_path], input=line, capture_output=True, text=True)
    assert done.returncode == 1 and "token 0 of the item has NaN" in done.stdout
