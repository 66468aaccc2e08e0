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


SHAPE = (3, 64, 32, 4, 2)


def raw_files(tmp_path, n, dim, inter, experts, k, int4=False):
    """Inputs and weights as files and as Python's numbers; int4: weights that are whole multiples of their groups'
    scales."""
    rng = random.Random(5)

    def weights(count):
        if not int4:
            return [rng.gauss(0, 0.2) for _ in range(count)]
        values = []
        for _ in range(count // 32):
            scale = from_bf16(to_bf16(rng.uniform(0.02, 0.06)))
            group = [rng.choice((-8, 7, -7))] + [rng.randint(-8, 7) for _ in range(31)]
            values += [q * scale for q in group]
        return values

    x = write_bf16(tmp_path / "x", [rng.gauss(0, 1) for _ in range(n * dim)])
    w1 = write_bf16(tmp_path / "w1", weights(experts * 2 * inter * dim))
    w2 = write_bf16(tmp_path / "w2", weights(experts * dim * inter))
    return x, w1, w2


def expected(x, w1, w2, ids, weights, n, dim, inter, experts, k):
    out = []
    for i in range(n):
        row, want = x[i * dim : (i + 1) * dim], [0.0] * dim
        for s in range(k):
            e, weight = ids[i * k + s], weights[i * k + s]
            if not 0 <= e < experts:
                continue
            base = e * 2 * inter * dim
            gate = [dot(row, w1[base + r * dim : base + (r + 1) * dim]) for r in range(inter)]
            up = [dot(row, w1[base + (inter + r) * dim : base + (inter + r + 1) * dim]) for r in range(inter)]
            h = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            for c in range(dim):
                at = (e * dim + c) * inter
                want[c] += weight * dot(h, w2[at : at + inter])
        out += want
    return out


def far(got, want):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want))


def bench_files(tmp_path, shape, ids, weights, *more):
    (tmp_path / "ids").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
    (tmp_path / "tw").write_bytes(struct.pack(f"<{len(weights)}f", *weights))
    done = run(
        "bench",
        "moe",
        "--shape",
        ",".join(map(str, shape)),
        "--runs",
        1,
        "--ids",
        tmp_path / "ids",
        "--topk-weights",
        tmp_path / "tw",
        "--x",
        tmp_path / "x",
        "--w1",
        tmp_path / "w1",
        "--w2",
        tmp_path / "w2",
        "--out",
        tmp_path / "out",
        "--json",
        tmp_path / "json",
        *more,
    )
    assert done.returncode == 0, done.stderr
    return [from_bf16(h) for h in array.array("H", (tmp_path / "out").read_bytes())]


@pytest.mark.parametrize("device, fmt, bound", [("ref", "bf16", 4e-3), ("cpu", "w4a16", 1e-2)])
def test_raw_files_with_odd_routings(tmp_path, device, fmt, bound):
    """Equal ids count each time, those of no expert not at all; --sets does not change what comes out; INT4 of the
    files' bf16."""
    x, w1, w2 = raw_files(tmp_path, *SHAPE, int4=fmt == "w4a16")
    ids, weights = [2, 2, -1, 1, 4, 3], [0.5, 0.25, 1.0, 0.125, 0.75, 0.5]
    want = expected(x, w1, w2, ids, weights, *SHAPE)
    got = bench_files(tmp_path, SHAPE, ids, weights, "--device", device, "--format", fmt)
    assert far(got, want) < bound
    assert json.loads((tmp_path / "json").read_text())["error"] < bound
    three = ids + [0, 1, 2, 3, 0, 1] + [3, 3, 3, 3, 3, 3]  # three routings in one file: the first one's results
    (tmp_path / "ids3").write_bytes(struct.pack("<18i", *three))
    got = bench_files(
        tmp_path, SHAPE, ids, weights, "--device", device, "--format", fmt, "--sets", 3, "--ids", tmp_path / "ids3"
    )
    assert far(got, want) < bound
    done = run("bench", "moe", "--shape", ",".join(map(str, SHAPE)), "--ids", tmp_path / "ids3")
    assert done.returncode == 1 and "3 routings of 24 bytes: --sets 3 runs them" in done.stderr


def change_x(tmp_path, values):
    halves = array.array("H", (tmp_path / "x").read_bytes())
    for at, bits in values.items():
        halves[at] = bits
    (tmp_path / "x").write_bytes(halves.tobytes())


def test_a_nan_in_x_stays_in_its_row(tmp_path):
    x, w1, w2 = raw_files(tmp_path, *SHAPE)
    some = lambda: bench_files(tmp_path, SHAPE, [0, 1, 2, 3, 0, 2], [0.5] * 6, "--format", "bf16")
    clean = some()
    change_x(tmp_path, {64 + 5: 0x7FC0})
    got = some()
    assert all(map(math.isnan, got[64:128])) and got[:64] == clean[:64] and got[128:] == clean[128:]
    line = json.loads((tmp_path / "json").read_text())
    assert (line["not_finite"], line["not_finite_alone"]) == (64, 0) and line["error"] < 4e-3
    change_x(tmp_path, {i: 0x7FC1 for i in range(192)})
    some()
    line = json.loads((tmp_path / "json").read_text())
    assert (line["error"], line["not_finite"], line["not_finite_alone"]) == (
        None,
        192,
        0,
    )  # nothing that an error could be of
    write_bf16(tmp_path / "x", x)
    change_x(
        tmp_path, {7: to_bf16(3e37), 64 + 7: 0x0001, 128 + 7: 0x8000}
    )  # column 7, which the line for outliers multiplies by 64
    write_bf16(tmp_path / "w1", [v * 1e-30 for v in w1])
    assert all(map(math.isfinite, some()))
    assert json.loads((tmp_path / "json").read_text())["not_finite"] == 0


@pytest.mark.parametrize(
    "flag, size", [("--ids", 24), ("--topk-weights", 24), ("--x", 384), ("--w1", 32768), ("--w2", 16384)]
)
def test_files_of_wrong_size_or_missing(tmp_path, flag, size):
    raw_files(tmp_path, *SHAPE)
    args = [
        "bench",
        "moe",
        "--shape",
        ",".join(map(str, SHAPE)),
        "--format",
        "bf16",
        "--runs",
        1,
        "--w1",
        tmp_path / "w1",
        "--w2",
        tmp_path / "w2",
    ]
    (tmp_path / "bad").write_bytes(b"\0" * (size - 1 if flag != "--x" else size + 2))
    done = run(*args, flag, tmp_path / "bad")
    assert done.returncode == 1 and f"bytes, but {flag} of this shape has {size}" in done.stderr
    done = run(*args, flag, tmp_path / "absent")
    assert done.returncode == 1 and "absent" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("mask", ["none", "avx2", "all"])
@pytest.mark.parametrize("device", ["cpu", "ref"])
def test_raw_files(tmp_path, device, mask):
    """An independent computation in Python: gate rows first, then up rows."""
    shape, ids, weights = (3, 40, 24, 4, 2), [2, 0, 3, 1, 1, 3], [0.5, 0.25, 1.0, 0.125, 0.75, 0.5]
    x, w1, w2 = raw_files(tmp_path, *shape)
    got = bench_files(tmp_path, shape, ids, weights, "--device", device, "--cpu-mask", mask, "--format", "bf16")
    assert far(got, expected(x, w1, w2, ids, weights, *shape)) < 4e-3
    line = json.loads((tmp_path / "json").read_text())
    assert tuple(line[k] for k in ("tokens", "dim", "inter", "experts", "topk")) == shape
    assert line["synthetic"] is False and line["error"] < 4e-3 and line["touched"] == 4


def test_experts_in_other_formats(tmp_path):
    ways = [("cpu", "w2_bf16", 1e-2), ("ref", "w2_bf16", 1e-6), ("ref", "w4a8", 1e-3), ("cpu", "w4a8", 4e-3)]
    for device, name, bound in ways:
        done = run(
            "bench",
            "moe",
            "--device",
            device,
            "--shape",
            "40,128,64,4,2",
            "--runs",
            "1",
            "--format",
            name,
            "--json",
            str(tmp_path / "json"),
        )
        line = json.loads((tmp_path / "json").read_text())
        assert done.returncode == 0 and line["format"] == name and line["error"] < bound
        # against the weights as given; and in the same arithmetic, of weights and activations that w4a8 makes int8
        assert "against the weights as given" in done.stdout
        if name == "w4a8":
            assert 0.05 > line["error_given"] > 1e-2
        else:  # the down matrix's values are rounded to bf16
            assert 1e-2 > line["error_given"] >= line["error"]


@pytest.mark.parametrize(
    "args, word",
    [
        (["--shape", "1,64,32,2"], "--shape"),
        (["--shape", "1,65,32,2,1"], "multiples of 32"),
        (["--shape", "1,64,32,2,3"], "impossible"),
        (["--tokens", "0"], "--tokens"),
        (["--tokens", "1", "--w1", "/dev/null"], "belong together"),
        (["--shape", "1,64,32,2,1", "--out", "/nonexistent/out", "--runs", "1"], "--out"),
        (["--tuned", "none"], "--tuned is for --device cuda"),
    ],
)
def test_bad_arguments(args, word):
    done = run("bench", "moe", *args)
    errors = [
        line for line in done.stderr.splitlines() if not line.startswith("note: ")
    ]  # a processor without a fast path says so
    assert done.returncode == 1 and len(errors) == 1 and word in errors[0]


def test_a_layer(tmp_path):
    """Decoding rows and a prompt's; what the operations take is in the JSON, their sum in the last line."""
    out = tmp_path / "json"
    done = run("bench", "layer", *"--experts 8 --runs 1 -n 2 -n 65 --context 100 --json".split(), str(out))
    assert done.returncode == 0 and "2 sequences, context 100" in done.stdout, done.stderr
    assert "65 tokens of a prompt, context 100" in done.stdout
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    decode, prompt = ([line for line in lines if line["n"] == n] for n in (2, 65))
    assert len(decode) == 10 and len(prompt) == 8, "a prompt's queries are not absorbed, nor its values expanded later"
    assert all(line["ms"] > 0 and line["macs"] > 0 and line["bytes"] > 0 for line in lines)
    assert next(line for line in decode if line["op"] == "o")["macs"] == 2 * 7168 * 64 * 128
    alls = [float(line.split()[1]) for line in done.stdout.splitlines() if line.split()[:1] == ["all"]]
    assert alls == [pytest.approx(sum(line["ms"] for line in part), rel=0.01) for part in (decode, prompt)]


@pytest.mark.parametrize(
    "args, word",
    [(["-n", "0"], "--tokens"), (["--context", "9999999"], "--context"), (["--experts", "4"], "--experts")],
)
def test_a_layer_refuses(args, word):
    done = run("bench", "layer", *args)
    assert done.returncode in (1, 2) and word in done.stderr and done.stderr.count("\n") == 1


def test_an_unknown_instruction_set_is_wrong_usage():
    done = run("bench", "moe", "--shape", "1,64,32,2,1", "--cpu-mask", "sse9")
    assert done.returncode == 2 and "sse9" in done.stderr and "avx2" in done.stderr and done.stderr.count("\n") == 1


def test_check_one_op():
    done = run("check", "--op", "gate", "--cpu-mask", "none")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    own = run("check", "--op", "sample", "--cpu-mask", "none")  # the host's only draw: nothing to compare it with
    assert (
        own.returncode == 0
        and "the reference's own function" in own.stdout
        and own.stdout.splitlines()[-1] == "0 passed, 0 failed, 1 skipped"
    )
    unknown = run("check", "--op", "nothing")
    assert unknown.returncode == 2 and "nothing" in unknown.stderr and "linear_group" in unknown.stderr


def test_pictures(tmp_path):
    r = run("bench", "pictures", "examples/stars.png", "--runs", "2", "--threads", "2")
    assert r.returncode == 0 and "189 x 139, 35 tokens; decoding " in r.stdout and "medians of 2" in r.stdout
    (tmp_path / "x.png").write_bytes(b"no picture")
    for args, word in (((tmp_path / "x.png",), "x.png"), ((), "name the files"), ((tmp_path / "none",), "none")):
        r = run("bench", "pictures", *args)
        assert r.returncode != 0 and word in r.stderr
