"""A JPEG to the patches of Kimi-K2.5's vision tower: Moonlet, Pillow and torchvision, in turns in one run.

    PYTHON bench/peers/pictures.py [--moonlet build/moonlet] [--rounds 5] [FILE ...]

PYTHON has pillow and numpy, and torch and torchvision if they are to be timed. Without FILE a JPEG of 4000 x 3000 (12
megapixels) is drawn. Milliseconds: the best of each round's runs, then the median of the rounds. Moonlet decodes with
one thread and resizes with four; Pillow has one; PyTorch as many as it is told (--threads, 4).

Pillow: open, convert, resize (bicubic), pad, cut into [n, 3, 14, 14] bytes, as Moonshot's processor does it.
torchvision: decode_jpeg, resize (bicubic, antialias) on bytes, pad and cut, as transformers' class does it; its pixels
differ a little from Pillow's. Nobody converts to float here."""

import argparse
import io
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

sys.path.insert(0, __file__.rsplit("/bench/", 1)[0] + "/tests/golden")
from make_videos import resized  # noqa: E402


def drawn():
    y, x, c = np.mgrid[0:3000, 0:4000, 0:3]
    noise = np.random.default_rng(1).normal(0, 6, (3000, 4000, 1))
    v = 128 + 60 * np.sin(x / (37 + 3 * c) + y / 91) + 40 * np.cos(x / 301 - y / (53 + c)) + noise
    out = io.BytesIO()
    Image.fromarray(np.clip(v, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def cut(a, rows, cols):
    canvas = np.zeros((rows * 14, cols * 14, 3), np.uint8)
    canvas[: a.shape[0], : a.shape[1]] = a
    return np.ascontiguousarray(canvas.reshape(rows, 14, cols, 14, 3).transpose(0, 2, 4, 1, 3))


def with_pillow(data):
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    w, h, rows, cols = resized(*picture.size, patches=16384)
    return cut(np.asarray(picture.resize((w, h), Image.Resampling.BICUBIC)), rows, cols)


def torchvision_way(threads):
    try:
        import torch
        import torchvision
        from torchvision.transforms.v2 import functional as tvf
    except ImportError:
        return None
    torch.set_num_threads(threads)

    def run(data):
        bytes_in = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        picture = torchvision.io.decode_jpeg(bytes_in)
        w, h, rows, cols = resized(picture.shape[2], picture.shape[1], patches=16384)
        mode = tvf.InterpolationMode.BICUBIC
        small = tvf.resize(picture, [h, w], interpolation=mode, antialias=True)
        whole = tvf.pad(small, [0, 0, cols * 14 - w, rows * 14 - h])
        return whole.view(3, rows, 14, cols, 14).permute(1, 3, 0, 2, 4).contiguous()

    return run


def best(run, data, runs=5):
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        run(data)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times[1:])


def moonlet(program, path):
    out = subprocess.run(
        [program, "bench", "pictures", path, "--runs", "5"], capture_output=True, text=True, check=True
    )
    return sum(float(x) for x in re.findall(r"best ([0-9.]+)", out.stdout))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--moonlet", default="build/moonlet")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=4)
    ap.add_argument("files", nargs="*")
    a = ap.parse_args()
    ways = {"Pillow": with_pillow, "torchvision": torchvision_way(a.threads)}
    for name in a.files or [None]:
        data = open(name, "rb").read() if name else drawn()
        with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
            file.write(data)
            file.flush()
            times = {}
            for _ in range(a.rounds):
                times.setdefault("Moonlet", []).append(moonlet(a.moonlet, file.name))
                for way, run in ways.items():
                    if run:
                        times.setdefault(way, []).append(best(run, data))
        said = ", ".join(f"{way} {statistics.median(t):.1f}" for way, t in times.items())
        print(f"{name or '4000 x 3000, drawn'} ({len(data) / 1e6:.1f} MB): {said} ms")


main()
