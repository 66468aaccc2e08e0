"""`moonlet quantize --calibrate`: experts rounded for what they meet predict more like their source; the same bytes
whatever stopped the run. The arithmetic is held against the paper's in tests/unit/format/test_gptq.c."""
import json
import math
import os
import re
import signal
import struct
import subprocess
import time

import pytest
from test_quantize import (
    CHATS,
    INDEX,
    JOB,
    MOONLET,
    NANO,
    Tensors,
    contents,
    distance,
    limit_files,
    logprobs,
    quantized,
    refused,
    same_as,
    shards,
)

INPUTS = "quantize-inputs.bin"
TOKENS, LAYERS = 1500, 1 if "MOONLET_SLOW" in os.environ else 2


@pytest.fixture(scope="module")
def whole_nano(tmp_path_factory):
    """Nano's values as BF16, which other formats have to round."""
    folder = tmp_path_factory.mktemp("bf16") / "nano"
    quantized(NANO, folder, "bf16")
    return folder


@pytest.fixture(scope="module")
def nano(tmp_path_factory, whole_nano):
    """Its first layers alone, LAYERS of which have experts: what is done is the same, and less of it."""
    folder = tmp_path_factory.mktemp("bf16") / "short"
    folder.mkdir()
    for p in whole_nano.iterdir():
        if not p.name.startswith(("model", "quantize")):
            (folder / p.name).write_bytes(p.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 1 + LAYERS
    (folder / "config.json").write_text(json.dumps(config))
    header, data, size = {}, [], 0
    for name, (kind, shape, content) in Tensors(whole_nano).all.items():
        layer = re.search(r"language_model\.model\.layers\.(\d+)\.", name)
        if not layer or int(layer.group(1)) <= LAYERS:
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [size, size + len(content)]}
            data.append(content)
            size += len(content)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data))
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Half of the chats: the other half is what is asked."""
    path = tmp_path_factory.mktemp("text") / "chats.jsonl"
    path.write_text("".join(json.dumps({"ids": c["ids"] + c["greedy"]}) + "\n" for c in CHATS[::2]))
    return path


def calibrate(text, *more, threads=1):
    """By one thread: others' tests run beside."""
    return ["--calibrate", text, "--calibration-tokens", TOKENS, "--threads", threads, *more]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, nano, text):
    """NVFP4 in files of 1 MB, in one go."""
    folder = tmp_path_factory.mktemp("whole") / "q"
    quantized(nano, folder, "nvfp4", *calibrate(text, "--shard-mb", "1"))
    return folder


@pytest.mark.skipif("MOONLET_SLOW" in os.environ, reason="how good the answers are is asked of the plain program")
@pytest.mark.parametrize("form", ["w4a8", "mxfp4", "nvfp4"])
def test_predictions_are_nearer(tmp_path, whole_nano, text, form):
    """All of nano: what its first layers alone predict says nothing."""
    ids = [c["ids"] + c["greedy"] for c in CHATS[1::2]]
    want = logprobs(whole_nano, ids)
    quantized(whole_nano, tmp_path / "near", form)
    quantized(whole_nano, tmp_path / "calibrated", form, *calibrate(text))
    near, calibrated = (distance(want, logprobs(tmp_path / n, ids))[0] for n in ("near", "calibrated"))
    assert calibrated < 0.9 * near, (near, calibrated)


def numbers(line):
    return [float(x) for x in re.findall(r"\d\.\d+e[-+]\d+", line)]


def test_the_report(whole, text):
    report = (whole / "quantize-report.md").read_text()
    read = sum(len(json.loads(line)["ids"]) for line in text.read_text().splitlines())
    assert f"in {min(TOKENS, read)} tokens of `{text}`" in report
    for part in ("gate", "up", "down"):
        weights, nearest, written = numbers(re.search(rf"\| experts {part} \|.*", report).group(0))
        assert written < 0.95 * nearest and weights > nearest > 0.01
    assert not (whole / INPUTS).exists() and not (whole / JOB).exists()


def test_scales_of_inputs(tmp_path, whole, nano, text):
    """ModelOpt's readers want one for each matrix; gate and up meet the same. compressed-tensors' layout says that
    inputs stay as they are."""
    have = Tensors(whole).all
    scales = {n: struct.unpack("<f", t[2])[0] for n, t in have.items() if n.endswith(".input_scale")}
    assert len(scales) == LAYERS * 64 * 3 and all(have[n][:2] == ("F32", []) for n in scales)
    assert all(1e-6 < x < 1 for x in scales.values()) and len(set(scales.values())) > LAYERS * 60
    for name, x in scales.items():
        if ".gate_proj." in name:
            assert x == scales[name.replace("gate_proj", "up_proj")]
    quantized(nano, tmp_path / "ct", "nvfp4", "--layout", "compressed-tensors", *calibrate(text))
    assert not [n for n in Tensors(tmp_path / "ct").all if "input" in n and "layernorm" not in n]
    again = quantized(whole, tmp_path / "again", "nvfp4")  # what is in the format stays, its inputs' scales too
    assert "relative error 0.000e+00" in again and Tensors(tmp_path / "again").all == have


def halves(data):
    """bf16 as numbers."""
    return [x[0] for x in struct.iter_unpack("<f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)))]


class Given:
    """What a run's experts were given, from its file."""

    HIDDEN, K, FIRST = 256, 8, 1

    def __init__(self, data):
        self.tokens = len(data) // (LAYERS * (2 * self.HIDDEN + 8 * self.K))
        self.data = data

    def rows(self, layer, expert):
        """x of the expert's tokens, and of 512 of all (as calibration.h has it)."""
        n, h, k = self.tokens, self.HIDDEN, self.K
        at = (layer - self.FIRST) * n * (2 * h + 8 * k)
        x, ids = self.data[at : at + 2 * n * h], struct.unpack_from(f"<{n * k}i", self.data, at + 2 * n * h)
        mine = [t for t in range(n) if expert in ids[t * k : t * k + k]]
        others = min(512, n)
        return [halves(x[2 * h * t : 2 * h * (t + 1)]) for t in mine + [i * n // others for i in range(others)]]


def test_whose_inputs_they_are(tmp_path, whole, nano, text):
    """input_scale of an expert's gate and down, computed again from what a stopped run has kept."""
    folder = tmp_path / "q"
    stop_when(folder, nano, text, lambda: len(shards(folder)) >= 2)
    given, have, source = Given((folder / INPUTS).read_bytes()), Tensors(whole).all, Tensors(nano).all
    for layer, expert in ((1, 3), (LAYERS, 60)):
        base = f"language_model.model.layers.{layer}.mlp.experts.{expert}."
        scale = {p: struct.unpack("<f", have[f"{base}{p}_proj.input_scale"][2])[0] for p in ("gate", "down")}
        rows = given.rows(layer, expert)
        assert abs(scale["gate"] * 2688 / max(abs(v) for x in rows for v in x) - 1) < 1e-6
        wide = {p: halves(source[f"{base}{p}_proj.weight"][2]) for p in ("gate", "up")}
        most = 0
        for x in rows[:: max(1, len(rows) // 150)] + rows[:40]:  # some of them: below the largest, but near
            for r in range(64):
                g, u = (sum(a * b for a, b in zip(wide[p][r * 256 : r * 256 + 256], x)) for p in ("gate", "up"))
                most = max(most, abs(g / (1 + math.exp(-g)) * u))
        assert most / 2688 * (1 - 1e-4) <= scale["down"] <= most / 2688 * 3, (most / 2688, scale["down"])


def test_threads_change_nothing(tmp_path, whole, nano, text):
    quantized(nano, tmp_path / "q", "nvfp4", *calibrate(text, "--shard-mb", "1", threads=3))
    same_as(contents(whole), tmp_path / "q")


def stop_when(folder, source, text, enough):
    """Kills a run as soon as enough() is true."""
    words = ["quantize", "-q", "-m", source, "-o", folder, "--format", "nvfp4", "--shard-mb", "1"]
    running = subprocess.Popen([MOONLET, *map(str, words + calibrate(text))], stdout=subprocess.DEVNULL)
    while not enough() and running.poll() is None:
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL


def test_a_killed_run_goes_on(tmp_path, whole, nano, text):
    folder = tmp_path / "q"
    stop_when(folder, nano, text, lambda: (folder / (INPUTS + ".part")).exists())
    assert not (folder / INPUTS).exists() and not shards(folder)
    stop_when(folder, nano, text, lambda: len(shards(folder)) >= 4)
    made = (folder / INPUTS).stat().st_mtime_ns
    stop_when(folder, nano, text, lambda: len(shards(folder)) >= 7)
    assert (folder / INPUTS).stat().st_mtime_ns == made  # the text was not read again
    fewer = ["--calibrate", text, "--calibration-tokens", "1400"]
    for other in ([], calibrate(nano / "README.md"), fewer, calibrate(text, "--window", "64")):
        refused(nano, folder, "nvfp4", "--shard-mb", "1", *other, named=[str(folder)])
    quantized(nano, folder, "nvfp4", *calibrate(text, "--shard-mb", "1"))
    same_as(contents(whole), folder)


def test_inputs_that_were_cut_off(tmp_path, nano, text):
    folder = tmp_path / "q"
    stop_when(folder, nano, text, lambda: len(shards(folder)) >= 2)
    with open(folder / INPUTS, "r+b") as f:
        f.truncate(1000)
    refused(nano, folder, "nvfp4", *calibrate(text, "--shard-mb", "1"), named=[INPUTS, "1000 bytes"])


def test_no_room_for_inputs(tmp_path, nano, text):
    refused(nano, tmp_path / "q", "int4", *calibrate(text), preexec_fn=limit_files(100000), named=[INPUTS])
    assert not [p for p in (tmp_path / "q").iterdir() if p.name != JOB]


def test_words(tmp_path, nano, text):
    for form in ("int8", "fp8", "bf16"):
        refused(nano, tmp_path / "q", form, *calibrate(text), named=["--calibrate is for int4", form])
    refused(nano, tmp_path / "q", "int4", "--calibration-tokens", "99", code=2, named=["--calibrate"])
    refused(nano, tmp_path / "q", "int4", "--device", "ref", code=2, named=["--device", "--calibrate"])
    refused(nano, tmp_path / "q", "int4", "--calibrate", tmp_path / "none", named=["none", "No such file"])
    (tmp_path / "empty").write_text("")
    refused(nano, tmp_path / "q", "int4", "--calibrate", tmp_path / "empty", named=["empty"])
    (tmp_path / "bad.jsonl").write_text('{"ids": [1, 99999]}\n')
    refused(nano, tmp_path / "q", "int4", "--calibrate", tmp_path / "bad.jsonl", named=["bad.jsonl", "ids[1]"])
    (tmp_path / "long.jsonl").write_text(json.dumps({"ids": [5] * 16385}) + "\n")
    refused(nano, tmp_path / "q", "int4", "--calibrate", tmp_path / "long.jsonl", named=["16385 tokens", "16384"])
    refused(NANO, tmp_path / "q", "int4", *calibrate(text), named=["none of", "is written in another format"])
    assert not (tmp_path / "q").exists()


def test_an_inputs_file_of_another_making(tmp_path, nano, text):
    """Of the right size, and everybody's tokens: nothing is overrun."""
    folder = tmp_path / "q"
    stop_when(folder, nano, text, lambda: len(shards(folder)) >= 2)
    (folder / INPUTS).write_bytes(bytes((folder / INPUTS).stat().st_size))
    quantized(nano, folder, "nvfp4", *calibrate(text, "--shard-mb", "1"))


def test_a_model_that_gives_no_numbers(tmp_path, nano, text):
    """A norm of infinite weights: the layer is named, and there is no checkpoint."""
    folder, name = tmp_path / "nano", f"language_model.model.layers.{LAYERS}.post_attention_layernorm.weight"
    folder.mkdir()
    for p in nano.iterdir():
        (folder / p.name).write_bytes(p.read_bytes())
    for p in folder.glob("*.safetensors"):
        data = bytearray(p.read_bytes())
        n = struct.unpack("<Q", data[:8])[0]
        t = json.loads(data[8 : 8 + n]).get(name)
        if t:
            at = 8 + n + t["data_offsets"][0]
            data[at : at + 4] = b"\x7f\x7f" * 2  # 3.4e38 each
            p.write_bytes(data)
    refused(folder, tmp_path / "q", "int4", *calibrate(text), named=["document 1"])
    assert not (tmp_path / "q" / INDEX).exists() and not (tmp_path / "q" / INPUTS).exists()
