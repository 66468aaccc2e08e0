"""A checkpoint with K2.5's vision tower and projector: the text model loads, `inspect` says what lies unused, and a
picture in a request is refused by name."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import safetensors_writer as sw

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))


def vision_tensors(hidden=16, layers=2, inter=24, side=4, text=64):
    """Names and shapes as in K2.5's checkpoint (tower `vision_tower.`, projector `mm_projector.`), BF16."""
    out = {"vision_tower.patch_embed.pos_emb.weight": ("BF16", [side, side, hidden])}

    def pair(name, *shape):
        out[name + ".weight"], out[name + ".bias"] = ("BF16", list(shape)), ("BF16", [shape[0]])

    pair("vision_tower.patch_embed.proj", hidden, 3, 14, 14)
    for i in range(layers):
        block = f"vision_tower.encoder.blocks.{i}."
        for name, *shape in (
            ("norm0", hidden),
            ("norm1", hidden),
            ("wqkv", 3 * hidden, hidden),
            ("wo", hidden, hidden),
            ("mlp.fc0", inter, hidden),
            ("mlp.fc1", hidden, inter),
        ):
            pair(block + name, *shape)
    pair("vision_tower.encoder.final_layernorm", hidden)
    pair("mm_projector.pre_norm", hidden)
    pair("mm_projector.proj.0", 4 * hidden, 4 * hidden)
    pair("mm_projector.proj.2", text, 4 * hidden)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The writer's k2.5 layout with vision_config and all of the tower's tensors among the text's, in two shards."""
    path = tmp_path_factory.mktemp("vision") / "m"
    cfg = sw.config("k2.5")
    sw.write_checkpoint(path, "k2.5", tensors={**sw.model_tensors(cfg), **vision_tensors()})
    kimi = json.loads((ROOT / "tests/data/kimi-k2.5/config.json").read_text())
    cfg["vision_config"] = kimi["vision_config"]
    (path / "config.json").write_text(json.dumps(cfg))
    return path


def moonlet(*args, text=""):
    return subprocess.run([MOONLET, *args], input=text.encode(), capture_output=True, timeout=120)


def test_inspect_reports_the_tower(folder):
    done = moonlet("inspect", "-m", str(folder))
    assert done.returncode == 0, done.stderr
    tensors = vision_tensors()
    size = sum(sw.n_bytes(*t) for t in tensors.values())
    line = re.search(r"vision tower and projector: (\d+) tensors, ([\d.]+) KiB", done.stdout.decode())
    assert int(line[1]) == len(tensors) and abs(float(line[2]) - size / 1024) < 0.01
    assert "other" not in done.stdout.decode()
    kinds = json.loads(moonlet("inspect", "-m", str(folder), "--json").stdout)["kinds"]
    assert kinds["vision tower"]["tensors"] + kinds["projector"]["tensors"] == len(tensors)
    assert kinds["vision tower"]["bytes"] + kinds["projector"]["bytes"] == size


def test_no_tower_no_line(tmp_path):
    sw.write_checkpoint(tmp_path / "m", "k2.5")
    assert b"vision" not in moonlet("inspect", "-m", str(tmp_path / "m")).stdout


@pytest.mark.parametrize("device", ["ref", "cpu"])
def test_the_text_model_loads_and_runs(folder, device):
    done = moonlet("eval", "logprobs", "-m", str(folder), "--device", device, text='{"ids": [1, 2, 3]}\n')
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["logprobs"]) == 3
