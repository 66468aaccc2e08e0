"""From a picture to patches, by Kimi-K2.5's rule: shrink (never enlarge), pad right and below with black, normalise.

    python tools/nano/preprocess.py --check     sizes against known values, Pillow's bicubic against its formula
"""

import math
import sys

import numpy as np

PATCH, MERGE = 14, 2  # pixels a side; patches a side of one token
UNIT = PATCH * MERGE  # sides are padded up to multiples of this
IMAGE_LIMIT, FRAME_LIMIT = 16384, 4096  # patches of a picture, of a frame of a video
SIDE = 512  # patches along one side


def plan(w, h, limit=IMAGE_LIMIT):
    """((resized w, h), (padding right, below), (grid h, w), tokens) of a picture of w x h pixels."""
    area = math.sqrt(limit / (max(1, w // PATCH) * max(1, h // PATCH)))
    s = min(1.0, area, SIDE * PATCH / w, SIDE * PATCH / h)
    fit = lambda n: min(max(1, int(n * s)), SIDE * PATCH)
    nw, nh = fit(w), fit(h)
    pad_w, pad_h = -nw % UNIT, -nh % UNIT
    gh, gw = (nh + pad_h) // PATCH, (nw + pad_w) // PATCH
    assert gh <= SIDE and gw <= SIDE
    return (nw, nh), (pad_w, pad_h), (gh, gw), gh * gw // MERGE**2


def patch_bytes(image, limit=IMAGE_LIMIT):
    """A PIL image as (uint8 [n, 3, 14, 14] in raster order, grid (1, h, w)). Alpha is dropped, not blended."""
    from PIL import Image

    image = image.convert("RGB")
    size, _, (gh, gw), _ = plan(*image.size, limit)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    a = np.zeros((gh * PATCH, gw * PATCH, 3), np.uint8)
    a[: size[1], : size[0]] = np.asarray(image)
    a = a.reshape(gh, PATCH, gw, PATCH, 3).transpose(0, 2, 4, 1, 3)  # [row, column, channel, y, x]
    return np.ascontiguousarray(a.reshape(gh * gw, 3, PATCH, PATCH)), (1, gh, gw)


def patches(image, limit=IMAGE_LIMIT):
    """The same, normalised: float32, (byte / 255 - 0.5) * 2."""
    a, grid = patch_bytes(image, limit)
    return (a.astype(np.float32) / np.float32(255) - np.float32(0.5)) * np.float32(2), grid


def bicubic_axis(a, n):
    """Pillow's 8-bit bicubic along the first axis, written out: a [m, ...] uint8 -> [n, ...] uint8.

    Kernel with a = -0.5, stretched by the scale when shrinking (so it averages), weights of sum 1 in fixed
    point with 22 fractional bits, sum rounded and clipped to bytes.
    """
    m = a.shape[0]
    scale = m / n
    stretch = max(scale, 1.0)

    def kernel(x):
        x = abs(x)
        if x < 1:
            return ((1.5 * x - 2.5) * x) * x + 1
        return (((x - 5) * x + 8) * x - 4) * -0.5 if x < 2 else 0.0

    out = np.empty((n, *a.shape[1:]), np.uint8)
    for i in range(n):
        centre = (i + 0.5) * scale
        lo, hi = max(0, int(centre - 2 * stretch + 0.5)), min(m, int(centre + 2 * stretch + 0.5))
        w = [kernel((k - centre + 0.5) / stretch) for k in range(lo, hi)]
        total = sum(w)
        fixed = [int(math.copysign(0.5, x) + x / total * (1 << 22)) for x in w]
        acc = np.full(a.shape[1:], 1 << 21, np.int64)
        for k, f in zip(range(lo, hi), fixed):
            acc += a[k].astype(np.int64) * f
        out[i] = np.clip(acc >> 22, 0, 255)
    return out


def bicubic(a, w, h):
    """Both axes, horizontal first, rounded to bytes between. a [H, W, 3] uint8 -> [h, w, 3]"""
    if a.shape[1] != w:
        a = bicubic_axis(a.swapaxes(0, 1), w).swapaxes(0, 1)
    return bicubic_axis(a, h) if a.shape[0] != h else a


KNOWN = [  # (w, h, limit): resized, padding, grid (h, w), tokens
    ((100, 100, IMAGE_LIMIT), ((100, 100), (12, 12), (8, 8), 16)),
    ((224, 224, IMAGE_LIMIT), ((224, 224), (0, 0), (16, 16), 64)),
    ((448, 449, IMAGE_LIMIT), ((448, 449), (0, 27), (34, 32), 272)),
    ((640, 480, IMAGE_LIMIT), ((640, 480), (4, 24), (36, 46), 414)),
    ((1024, 768, IMAGE_LIMIT), ((1024, 768), (12, 16), (56, 74), 1036)),
    ((1920, 1080, IMAGE_LIMIT), ((1920, 1080), (12, 12), (78, 138), 2691)),
    ((1800, 1800, IMAGE_LIMIT), ((1800, 1800), (20, 20), (130, 130), 4225)),
    ((3000, 3000, IMAGE_LIMIT), ((1794, 1794), (26, 26), (130, 130), 4225)),
    ((3840, 2160, IMAGE_LIMIT), ((2392, 1345), (16, 27), (98, 172), 4214)),
    ((8192, 256, IMAGE_LIMIT), ((7168, 224), (0, 0), (16, 512), 2048)),
    ((1, 1, IMAGE_LIMIT), ((1, 1), (27, 27), (2, 2), 1)),
    ((1280, 720, FRAME_LIMIT), ((1202, 676), (2, 24), (50, 86), 1075)),
    ((1920, 1080, FRAME_LIMIT), ((1196, 672), (8, 0), (48, 86), 1032)),
]


def check():
    from PIL import Image

    for args, want in KNOWN:
        assert plan(*args) == want, (args, plan(*args), want)
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (45, 61, 3), dtype=np.uint8)
    for w, h in ((61, 45), (30, 45), (61, 17), (23, 11), (60, 44), (1, 1), (90, 100)):
        pil = np.asarray(Image.fromarray(noise).resize((w, h), Image.Resampling.BICUBIC))
        assert (pil == bicubic(noise, w, h)).all(), (w, h)
    p, grid = patches(Image.fromarray(noise))
    assert p.shape == (6 * 4, 3, 14, 14) and p.dtype == np.float32 and grid == (1, 4, 6)
    y, x, ch = 31, 44, 2  # one pixel, found again: patch row 2, column 3
    assert p[2 * 6 + 3, ch, 3, 2] == (np.float32(noise[y, x, ch]) / np.float32(255) - np.float32(0.5)) * 2
    assert (p[:, :, :, :][5, :, :, 5:] == -1).all() and (p[18:, :, 3:] == -1).all()  # padding is black
    p, grid = patches(Image.fromarray(noise).resize((7200, 30)))
    assert grid == (1, 4, 512) and len(p) == 2048  # a side over the limit is shrunk
    print(f"preprocess: {len(KNOWN)} sizes, 7 resizes equal to the formula, patches in order")


if __name__ == "__main__":
    check() if "--check" in sys.argv else sys.exit(__doc__)
