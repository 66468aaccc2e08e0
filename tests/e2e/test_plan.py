"""The plan of memory: what it counts, that it comes before anything is loaded, and that it refuses with the numbers."""
import json
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
import safetensors_writer as sw

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = ROOT / "models/nano"


def moonlet(*args):
    return subprocess.run([MOONLET, *map(str, args)], capture_output=True, text=True, timeout=120)


def text_bytes(layers):
    """Of nano's text model with so many layers, from the headers of its files."""
    total = 0
    for path in NANO.glob("*.safetensors"):
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        for name, t in header.items():
            layer = re.search(r"\.layers\.(\d+)\.", name)
            if name.startswith("language_model.") and (not layer or int(layer[1]) < layers):
                total += t["data_offsets"][1] - t["data_offsets"][0]
    return total


@pytest.mark.parametrize("layers", [6, 2])
def test_dropped_layers_and_the_vision_tower_are_not_counted(layers):
    done = moonlet(
        "run", "-m", NANO, "--language-model-only", "-p", "x", "-n", "1", "--override", f"num_hidden_layers={layers}"
    )
    said = re.search(r"weights ([\d.]+) MB \(mapped\)", done.stderr)
    assert done.returncode == 0 and said, done.stderr
    assert abs(float(said[1]) - text_bytes(layers) * 1e-6) < 0.15


@pytest.fixture
def damaged(tmp_path):
    """A checkpoint that cannot be loaded, which is found out when its norms are read."""
    name = "model.layers.1.input_layernorm.weight"
    sw.write_checkpoint(tmp_path, "thinking", values={name: b"\xc0\x7f" * 64})
    return tmp_path


def test_the_plan_refuses_before_anything_is_loaded(damaged):
    done = moonlet("serve", "-m", damaged, "--port", "0")
    assert done.returncode == 1 and "input_layernorm.weight holds NaN" in done.stderr and "plan:" not in done.stderr
    done = moonlet("serve", "-m", damaged, "--port", "0", "--max-total-tokens", 10**11)
    assert done.returncode == 1 and "NaN" not in done.stderr
    assert re.search(
        r"a KV cache of 16000\.0 GB for 100000000000 tokens, .* free on host: lower --max-total-tokens", done.stderr
    )


def test_the_plan_is_said_before_experts_are_converted(damaged):
    done = moonlet("serve", "-m", damaged, "--port", "0", "--moe-format", "w2_bf16", "--max-total-tokens", 4096)
    assert done.returncode == 1
    assert re.search(r"plan: weights .* \+ KV [\d.]+ MB for 4096 tokens \+ .* free on host\n.*holds NaN", done.stderr)


KIMI = ROOT / "tests/data/kimi-k2.5"


def test_the_plan_of_eight_gpus_from_the_config_alone():
    done = moonlet("inspect", "-m", KIMI, "--tp", 8, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)["ranks"]
    assert abs(plan["weights"] / 76.6e9 - 1) < 0.01  # what a rank of eight took on an H200
    assert plan["room"] == int(139 * 2**30 * 0.88)
    for kind, size in (("bf16", 2), ("fp8_e4m3", 1)):
        page = 64 * 61 * 576 * size
        assert plan["tokens_whole"][kind] == (plan["room"] - plan["weights"]) // page * 64
        assert plan["tokens_divided"][kind] == 8 * plan["tokens_whole"][kind]


def test_gpus_that_are_too_small_and_shares_that_do_not_divide():
    small = moonlet("inspect", "-m", KIMI, "--tp", 8, "--gpu-memory", 79)
    assert small.returncode == 0 and "THEY DO NOT FIT" in small.stdout and "--dcp" not in small.stdout
    odd = moonlet("inspect", "-m", KIMI, "--tp", 7)
    assert odd.returncode == 1 and "--tp 7: 64 attention heads cannot be divided so" in odd.stderr
