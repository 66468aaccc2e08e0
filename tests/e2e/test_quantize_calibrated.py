"""`moonlet quantize --calibrate`: experts rounded for what they meet predict more like their source; the same bytes
whatever stopped the run. The arithmetic is held against the paper's in tests/unit/format/test_gptq.c."""
import json
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
TOKENS = 1500


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """Nano's values as BF16, which other formats have to round."""
    folder = tmp_path_factory.mktemp("bf16") / "nano"
    quantized(NANO, folder, "bf16")
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Half of the chats: the other half is what is asked."""
    path = tmp_path_factory.mktemp("text") / "chats.jsonl"
    path.write_text("".join(json.dumps({"ids": c["ids"] + c["greedy"]}) + "\n" for c in CHATS[::2]))
    return path


def calibrate(text, *more):
    return ["--calibrate", text, "--calibration-tokens", TOKENS, *more]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, nano, text):
    """NVFP4 in files of 1 MB, in one go."""
    folder = tmp_path_factory.mktemp("whole") / "q"
    quantized(nano, folder, "nvfp4", *calibrate(text, "--shard-mb", "1", "--threads", "1"))
    return folder


def test_predictions_are_nearer(tmp_path, nano, text):
    ids = [c["ids"] + c["greedy"] for c in CHATS[1::2]]
    want = logprobs(nano, ids)
    for form in ("w4a8", "mxfp4", "nvfp4"):
        quantized(nano, tmp_path / f"{form}-near", form)
        quantized(nano, tmp_path / form, form, *calibrate(text))
        near, calibrated = (distance(want, logprobs(tmp_path / n, ids))[0] for n in (f"{form}-near", form))
        assert calibrated < 0.9 * near, (form, near, calibrated)


def numbers(line):
    return [float(x) for x in re.findall(r"\d\.\d+e[-+]\d+", line)]


def test_the_report(whole, text):
    report = (whole / "quantize-report.md").read_text()
    assert f"the first {TOKENS} tokens of `{text}`" in report
    for part in ("gate", "up", "down"):
        weights, nearest, written = numbers(re.search(rf"\| experts {part} \|.*", report).group(0))
        assert written < 0.95 * nearest and weights > nearest > 0.01
    assert not (whole / INPUTS).exists() and not (whole / JOB).exists()


def test_scales_of_inputs(tmp_path, whole, nano, text):
    """ModelOpt's readers want one for each matrix; gate and up meet the same. compressed-tensors' layout says that
    inputs stay as they are."""
    have = Tensors(whole).all
    scales = {n: struct.unpack("<f", t[2])[0] for n, t in have.items() if n.endswith(".input_scale")}
    assert len(scales) == 5 * 64 * 3 and all(have[n][:2] == ("F32", []) for n in scales)
    assert all(1e-6 < x < 1 for x in scales.values()) and len(set(scales.values())) > 300
    for name, x in scales.items():
        if ".gate_proj." in name:
            assert x == scales[name.replace("gate_proj", "up_proj")]
    quantized(nano, tmp_path / "ct", "nvfp4", "--layout", "compressed-tensors", *calibrate(text))
    assert not [n for n in Tensors(tmp_path / "ct").all if "input" in n and "layernorm" not in n]
    again = quantized(whole, tmp_path / "again", "nvfp4")  # what is in the format stays, its inputs' scales too
    assert "relative error 0.000e+00" in again and Tensors(tmp_path / "again").all == have


def test_threads_change_nothing(tmp_path, whole, nano, text):
    quantized(nano, tmp_path / "q", "nvfp4", *calibrate(text, "--shard-mb", "1", "--threads", "3"))
    same_as(contents(whole), tmp_path / "q")


def stop_when(folder, source, text, enough):
    """Kills a run as soon as enough() is true."""
    words = ["quantize", "-q", "-m", source, "-o", folder, "--format", "nvfp4", "--shard-mb", "1", "--threads", "1"]
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
    for other in ([], calibrate(nano / "README.md"), ["--calibrate", text, "--calibration-tokens", "1400"]):
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
    assert not (tmp_path / "q").exists()


def test_a_model_that_gives_no_numbers(tmp_path, nano, text):
    """A norm of infinite weights: the layer is named, and there is no checkpoint."""
    folder, name = tmp_path / "nano", b"language_model.model.layers.2.post_attention_layernorm.weight"
    folder.mkdir()
    for p in nano.iterdir():
        (folder / p.name).write_bytes(p.read_bytes())
    for p in folder.glob("*.safetensors"):
        data = bytearray(p.read_bytes())
        n = struct.unpack("<Q", data[:8])[0]
        t = json.loads(data[8 : 8 + n]).get(name.decode())
        if t:
            at = 8 + n + t["data_offsets"][0]
            data[at : at + 4] = b"\x7f\x7f" * 2  # 3.4e38 each
            p.write_bytes(data)
    refused(folder, tmp_path / "q", "int4", *calibrate(text), named=["document 1"])
    assert not (tmp_path / "q" / INDEX).exists() and not (tmp_path / "q" / INPUTS).exists()
