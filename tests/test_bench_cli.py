"""`moonlet bench moe` and `moonlet check` from outside: raw files in and out, JSON lines, errors that name the flag."""
import array
import json
import math
import os
import random
import struct
import subprocess

import pytest

MOONLET = os.environ.get("MOONLET", "build/moonlet")


def run(*args):
    return subprocess.run([MOONLET, *map(str, args)], capture_output=True, text=True, timeout=120)


def to_bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def from_bf16(h):
    return struct.unpack("<f", struct.pack("<I", h << 16))[0]


def write_bf16(path, values):
    halves = array.array("H", map(to_bf16, values))
    path.write_bytes(halves.tobytes())
    return [from_bf16(h) for h in halves]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


@pytest.mark.parametrize("mask", ["none", "avx2", "all"])
@pytest.mark.parametrize("device", ["cpu", "ref"])
def test_raw_files(tmp_path, device, mask):
    """An independent computation in Python: gate rows first, then up rows."""
    n, dim, inter, experts, k = 3, 40, 24, 4, 2
    rng = random.Random(5)
    x = write_bf16(tmp_path / "x", [rng.gauss(0, 1) for _ in range(n * dim)])
    w1 = write_bf16(tmp_path / "w1", [rng.gauss(0, 0.2) for _ in range(experts * 2 * inter * dim)])
    w2 = write_bf16(tmp_path / "w2", [rng.gauss(0, 0.2) for _ in range(experts * dim * inter)])
    ids = [2, 0, 3, 1, 1, 3]
    weights = [0.5, 0.25, 1.0, 0.125, 0.75, 0.5]
    (tmp_path / "ids").write_bytes(struct.pack("<6i", *ids))
    (tmp_path / "tw").write_bytes(struct.pack("<6f", *weights))
    done = run("bench", "moe", "--device", device, "--cpu-mask", mask, "--shape", f"{n},{dim},{inter},{experts},{k}", "--format", "bf16",
               "--runs", 1, "--ids", tmp_path / "ids", "--topk-weights", tmp_path / "tw", "--x", tmp_path / "x", "--w1", tmp_path / "w1",
               "--w2", tmp_path / "w2", "--out", tmp_path / "out", "--json", tmp_path / "json")
    assert done.returncode == 0, done.stderr
    got = [from_bf16(h) for h in array.array("H", (tmp_path / "out").read_bytes())]
    diff = size = 0.0
    for i in range(n):
        row, want = x[i * dim:(i + 1) * dim], [0.0] * dim
        for s in range(k):
            e, weight = ids[i * k + s], weights[i * k + s]
            base = e * 2 * inter * dim
            gate = [dot(row, w1[base + r * dim:base + (r + 1) * dim]) for r in range(inter)]
            up = [dot(row, w1[base + (inter + r) * dim:base + (inter + r + 1) * dim]) for r in range(inter)]
            h = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            for c in range(dim):
                at = (e * dim + c) * inter
                want[c] += weight * dot(h, w2[at:at + inter])
        diff += sum((a - b) ** 2 for a, b in zip(got[i * dim:(i + 1) * dim], want))
        size += sum(b * b for b in want)
    assert math.sqrt(diff / size) < 4e-3
    line = json.loads((tmp_path / "json").read_text())
    assert (line["tokens"], line["dim"], line["inter"], line["experts"], line["topk"]) == (n, dim, inter, experts, k)
    assert line["synthetic"] is False and line["error"] < 4e-3 and line["touched"] == 4


def test_experts_in_other_formats(tmp_path):
    done = run("bench", "moe", "--shape", "1,64,32,2,1", "--format", "w4a8")
    assert done.returncode == 1 and "w4a8 runs on --device cuda and ref" in done.stderr
    for device, name, bound in (("cpu", "w2_bf16", 1e-2), ("ref", "w2_bf16", 1e-6), ("ref", "w4a8", 0.05)):
        done = run("bench", "moe", "--device", device, "--shape", "40,128,64,4,2", "--runs", "1", "--format", name, "--json", str(tmp_path / "json"))
        line = json.loads((tmp_path / "json").read_text())
        assert done.returncode == 0 and line["format"] == name and line["error"] < bound
        assert name != "w4a8" or line["error"] > 1e-3  # int8 activations, against float32 ones


@pytest.mark.parametrize("args, word", [
    (["--shape", "1,64,32,2"], "--shape"),
    (["--shape", "1,65,32,2,1"], "multiples of 32"),
    (["--shape", "1,64,32,2,3"], "impossible"),
    (["--tokens", "0"], "--tokens"),
])
def test_bad_arguments(args, word):
    done = run("bench", "moe", *args)
    assert done.returncode == 1 and word in done.stderr and done.stderr.count("\n") == 1


def test_an_unknown_instruction_set_is_wrong_usage():
    done = run("bench", "moe", "--shape", "1,64,32,2,1", "--cpu-mask", "sse9")
    assert done.returncode == 2 and "sse9" in done.stderr and "avx2" in done.stderr and done.stderr.count("\n") == 1


def test_wrong_file_size(tmp_path):
    (tmp_path / "x").write_bytes(b"\0" * 10)
    done = run("bench", "moe", "--shape", "1,64,32,2,1", "--runs", 1, "--x", tmp_path / "x")
    assert done.returncode == 1 and "10 bytes" in done.stderr and "128" in done.stderr


def test_check_one_op():
    done = run("check", "--op", "route", "--cpu-mask", "none")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    unknown = run("check", "--op", "nothing")
    assert unknown.returncode == 2 and "nothing" in unknown.stderr and "route" in unknown.stderr
