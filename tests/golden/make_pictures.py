#!/usr/bin/env python3
"""Makes tests/golden/pictures: small files in all kinds that src/media decodes, and expected.txt, what Pillow makes of
them. Needs pillow==12.0.0 and numpy. Lines of expected.txt (CRC: CRC-32 of all bytes, in hexadecimal):

  decode FILE W H CRC              Image.open(FILE).convert("RGB")
  resize KIND W H W2 H2 CRC        a drawn picture, resize((W2, H2), BICUBIC)
  grid W H PATCHES SIDE W2 H2 ROWS COLS TOKENS   the rule of sizes, in Python's own double precision
  patches KIND W H PATCHES SIDE CRC              a drawn picture resized, padded, cut to [rows, cols, 3, 14, 14]

Drawn pictures come from integers only, so that the test draws the same: see draw()."""
import io
import math
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

OUT = Path(__file__).resolve().parent / "pictures"
lines = []


def crc(array):
    return f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


def draw(kind, w, h):
    """[h, w, 3]. noise: every byte its own; steps: black and white rectangles, where a kernel overshoots most."""
    if kind == "noise":
        v = (np.arange(w * h * 3, dtype=np.uint64) * 2654435761 + 12345) & 0xFFFFFFFF
        v ^= v >> 15
        v = (v * 2246822519) & 0xFFFFFFFF
        return (v >> 24).astype(np.uint8).reshape(h, w, 3)
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    return (((x // (5 + c) + y // 7) & 1) * 255).astype(np.uint8)


def smooth(w, h):
    """Something that a lossy encoder has an easy time with, and a little noise."""
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    v = 128 + 90 * np.sin(x / (7 + c) + y / 13) + (draw("noise", w, h).astype(float) - 128) / 12
    return np.clip(v, 0, 255).astype(np.uint8)


# ---- PNG, written here, because Pillow writes few of its kinds ----


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(w, h, depth, kind, seed, interlaced=False, extra=b""):
    """Random bytes under random filters: any of them are a picture."""
    rng = np.random.default_rng(seed)
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b""
    for x0, y0, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        cols, rows = (w - x0 + dx - 1) // dx, (h - y0 + dy - 1) // dy
        for _ in range(rows if cols else 0):
            raw += bytes([rng.integers(5)]) + rng.integers(0, 256, (cols * bits + 7) // 8, np.uint8).tobytes()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, int(interlaced)))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def pngs():
    palette = chunk(b"PLTE", bytes(np.random.default_rng(1).integers(0, 256, 3 * 256, np.uint8)))
    for depth, kind in [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2), (8, 4), (16, 4), (8, 6), (16, 6)]:
        for interlaced in (False, True):
            name = f"png-{'i' if interlaced else 'n'}-{depth}-{kind}.png"
            yield name, png(13, 11, depth, kind, depth * 10 + kind, interlaced)
    for depth in (1, 2, 4, 8):
        few = palette[:8] + palette[8 : 8 + 3 * 2**depth]
        few = chunk(b"PLTE", few[8:])
        yield f"png-n-{depth}-3.png", png(13, 11, depth, 3, depth, False, few)
        yield f"png-i-{depth}-3.png", png(13, 11, depth, 3, depth, True, few)
    yield "png-palette-short.png", png(13, 11, 8, 3, 3, False, chunk(b"PLTE", bytes(range(9, 99))))
    yield "png-palette-alpha.png", png(13, 11, 8, 3, 4, False, palette + chunk(b"tRNS", bytes(range(0, 250, 9))))
    yield "png-gray-alpha-key.png", png(13, 11, 8, 0, 5, False, chunk(b"tRNS", b"\0\7"))
    yield "png-gray16-alpha-key.png", png(5, 4, 16, 0, 6, False, chunk(b"tRNS", b"\0\7"))
    yield "png-rgb-alpha-key.png", png(13, 11, 8, 2, 7, False, chunk(b"tRNS", b"\0\1\0\2\0\3"))
    yield "png-gamma.png", png(5, 4, 8, 2, 8, False, chunk(b"gAMA", struct.pack(">I", 30000)))
    yield "png-1x1.png", png(1, 1, 8, 2, 9)
    yield "png-1x200.png", png(1, 200, 8, 6, 10, True)
    yield "png-3x1.png", png(3, 1, 1, 0, 11, True)
    yield "png-no-end.png", png(5, 4, 8, 2, 12)[:-12]
    frames = [Image.fromarray(draw("noise", 9, 7)), Image.fromarray(draw("steps", 9, 7))]
    yield "png-animated.png", saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    yield "png-animated-default.png", saved(
        frames[0], "PNG", save_all=True, append_images=frames[1:], default_image=True
    )


# ---- GIF, written here with codes of one size: a clear code before the table grows ----


def gif_data(index, size):
    """LZW of pixels that never learns."""
    clear, width, bits, n = 1 << size, size + 1, 0, 0
    out = bytearray()
    codes = []
    for i, v in enumerate(index):
        if i % max(1, (1 << size) - 2) == 0:
            codes.append(clear)
        codes.append(int(v))
    for code in codes + [clear + 1]:
        bits |= code << n
        n += width
        while n >= 8:
            out.append(bits & 255)
            bits, n = bits >> 8, n - 8
    if n:
        out.append(bits & 255)
    blocks = b"".join(bytes([len(out[i : i + 255])]) + out[i : i + 255] for i in range(0, len(out), 255))
    return bytes([size]) + blocks + b"\0"


def gif(canvas, frame, seed, size=4, palette=None, local=None, transparent=None, interlaced=False, background=0):
    """palette, local: 2^size colours or None. frame: x, y, w, h."""
    x, y, w, h = frame
    index = np.random.default_rng(seed).integers(0, 1 << size, w * h)
    out = b"GIF89a" + struct.pack("<HHBBB", *canvas, (0x80 | (size - 1)) if palette else 0, background, 0)
    out += palette or b""
    if transparent is not None:
        out += b"!\xf9\4" + bytes([1, 0, 0, transparent]) + b"\0"
    out += b"!\xfe\5hello\0"
    out += b"," + struct.pack("<HHHHB", x, y, w, h, (0x80 | (size - 1) if local else 0) | (64 if interlaced else 0))
    return out + (local or b"") + gif_data(index, size) + b";"


def gifs():
    rng = np.random.default_rng(2)
    one, two = (bytes(rng.integers(0, 256, 48, np.uint8)) for _ in range(2))
    ramp = b"".join(bytes([i] * 3) for i in range(16))
    whole, part = (0, 0, 12, 9), (3, 2, 5, 4)
    yield "gif-plain.gif", gif((12, 9), whole, 1, palette=one)
    yield "gif-interlaced.gif", gif((12, 9), whole, 2, palette=one, interlaced=True)
    yield "gif-local.gif", gif((12, 9), whole, 3, palette=one, local=two)
    yield "gif-part.gif", gif((12, 9), part, 4, palette=one, background=5)
    yield "gif-part-transparent.gif", gif((12, 9), part, 5, palette=one, transparent=7, background=5)
    yield "gif-part-local.gif", gif((12, 9), part, 6, palette=one, local=two, transparent=3)
    yield "gif-part-local-interlaced.gif", gif((12, 9), part, 6, local=two, interlaced=True)
    yield "gif-gray.gif", gif((12, 9), part, 7, palette=ramp, transparent=9)
    yield "gif-gray-local.gif", gif((12, 9), part, 8, palette=one, local=ramp)
    yield "gif-gray-first.gif", gif((12, 9), part, 8, palette=ramp, local=one)
    yield "gif-no-palette.gif", gif((12, 9), part, 9)
    yield "gif-no-palette-transparent.gif", gif((12, 9), part, 9, transparent=200)
    yield "gif-transparent-beyond.gif", gif((12, 9), part, 9, palette=one, transparent=200)
    yield "gif-beyond-canvas.gif", gif((6, 5), (3, 2, 9, 3), 10, palette=one, transparent=2)
    yield "gif-no-canvas.gif", gif((0, 0), whole, 11, palette=one)
    short = gif((12, 9), whole, 12, size=4, palette=one)
    yield "gif-palette-short.gif", short[:10] + b"\x81" + short[11:13] + one[:12] + short[13 + 48 :]
    frames = [Image.fromarray(draw(k, 20, 14)).convert("P") for k in ("steps", "noise")]
    yield "gif-animated.gif", saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    yield "gif-saved.gif", saved(Image.fromarray(smooth(60, 40)).convert("P"), "GIF")


# ---- WebP ----


def webps():
    rgb, alpha = smooth(37, 29), np.dstack([smooth(37, 29), draw("noise", 37, 29)[:, :, 0]])
    yield "webp-lossy.webp", saved(Image.fromarray(rgb), "WEBP", quality=60)
    yield "webp-lossless.webp", saved(Image.fromarray(rgb[:9, :11]), "WEBP", lossless=True)
    yield "webp-lossy-alpha.webp", saved(Image.fromarray(alpha), "WEBP", quality=60, exact=True)
    small = Image.fromarray(alpha[:9, :11])
    yield "webp-lossless-alpha.webp", saved(small, "WEBP", lossless=True, exact=True)
    yield "webp-exif.webp", saved(Image.fromarray(rgb[:9, :11]), "WEBP", quality=60, exif=orientation(6))
    yield "webp-1x1.webp", saved(Image.fromarray(rgb[:1, :1]), "WEBP", quality=90)
    frames = [Image.fromarray(smooth(22, 18)), Image.fromarray(draw("steps", 22, 18))]
    yield "webp-animated.webp", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], quality=50)
    still = saved(small, "WEBP", lossless=True, exact=True)
    yield "webp-frame-part.webp", webp_animation((31, 21), (4, 6), (11, 9), still[12:])
    lossy = saved(Image.fromarray(rgb[:9, :11]), "WEBP", quality=70)
    yield "webp-frame-part-lossy.webp", webp_animation((31, 21), (4, 6), (11, 9), lossy[12:])


def webp_animation(canvas, at, size, data):
    """One frame, at an even place of a canvas whose background is said to be red."""

    def riff(kind, body):
        return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) & 1)

    def u24(v):
        return struct.pack("<I", v)[:3]

    body = riff(b"VP8X", bytes([0x12, 0, 0, 0]) + u24(canvas[0] - 1) + u24(canvas[1] - 1))
    body += riff(b"ANIM", bytes([0, 0, 255, 255, 0, 0]))
    frame = u24(at[0] // 2) + u24(at[1] // 2) + u24(size[0] - 1) + u24(size[1] - 1) + u24(100) + b"\0"
    body += riff(b"ANMF", frame + data)
    return riff(b"RIFF", b"WEBP" + body)


# ---- JPEG ----


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def jpegs():
    rgb = Image.fromarray(smooth(61, 45))
    for name, sampling in (("444", "4:4:4"), ("422", "4:2:2"), ("420", "4:2:0")):
        yield f"jpeg-{name}.jpg", saved(rgb, "JPEG", quality=80, subsampling=sampling)
        yield f"jpeg-{name}-progressive.jpg", saved(rgb, "JPEG", quality=80, subsampling=sampling, progressive=True)
    yield "jpeg-low.jpg", saved(rgb, "JPEG", quality=5)
    yield "jpeg-noise.jpg", saved(Image.fromarray(draw("noise", 33, 17)), "JPEG", quality=95)
    yield "jpeg-steps.jpg", saved(Image.fromarray(draw("steps", 40, 30)), "JPEG", quality=30)
    yield "jpeg-restart.jpg", saved(rgb, "JPEG", quality=60, restart_marker_blocks=2)
    yield "jpeg-optimized.jpg", saved(rgb, "JPEG", quality=60, optimize=True)
    yield "jpeg-rgb.jpg", saved(rgb, "JPEG", quality=80, keep_rgb=True)
    yield "jpeg-gray.jpg", saved(rgb.convert("L"), "JPEG", quality=80)
    yield "jpeg-gray-progressive.jpg", saved(rgb.convert("L"), "JPEG", quality=80, progressive=True)
    yield "jpeg-exif-6.jpg", saved(rgb.crop((0, 0, 20, 10)), "JPEG", quality=80, exif=orientation(6))
    four = np.dstack([smooth(30, 22), draw("noise", 30, 22)[:, :, 0] // 2])
    cmyk = saved(Image.fromarray(four, "CMYK"), "JPEG", quality=90)
    yield "jpeg-cmyk.jpg", cmyk
    at = cmyk.index(b"Adobe") + 11  # the transform: 0 is CMYK, 2 YCCK
    yield "jpeg-ycck.jpg", cmyk[:at] + b"\2" + cmyk[at + 1 :]
    yield "jpeg-cmyk-progressive.jpg", saved(Image.fromarray(four, "CMYK"), "JPEG", quality=90, progressive=True)
    for w, h in ((1, 1), (1, 40), (50, 1), (2, 3), (16, 16), (17, 8)):
        yield f"jpeg-{w}x{h}.jpg", saved(Image.fromarray(smooth(w, h)), "JPEG", quality=80)
    tall = saved(Image.fromarray(smooth(64, 64)), "JPEG", quality=80, subsampling="4:2:2")
    at = tall.index(b"\xff\xc0") + 11  # sampling of Y: as many units, of 8 x 16 and not 16 x 8
    assert tall[at] == 0x21
    yield "jpeg-440.jpg", tall[:at] + b"\x12" + tall[at + 1 :]
    whole = saved(rgb, "JPEG", quality=80)
    yield "jpeg-trailing.jpg", whole + b"more bytes"
    yield "jpeg-short-scan.jpg", whole[:-400] + b"\xff\xd9"
    yield "jpeg-filled.jpg", whole[:2] + b"\xff\xff" + whole[2:]


# ---- Sizes and patches ----


def grid(w, h, limit, side):
    s = math.sqrt(limit / (max(1.0, w // 14) * max(1.0, h // 14)))
    s = min(1.0, s, side * 14 / w, side * 14 / h)
    w2, h2 = (min(max(1, int(v * s)), side * 14) for v in (w, h))
    rows, cols = ((v + 27) // 28 * 2 for v in (h2, w2))
    return w2, h2, rows, cols, rows // 2 * (cols // 2)


CHECKED = {  # known by hand, before any code
    (100, 100): (100, 100, 8, 8, 16),
    (224, 224): (224, 224, 16, 16, 64),
    (448, 449): (448, 449, 34, 32, 272),
    (640, 480): (640, 480, 36, 46, 414),
    (1024, 768): (1024, 768, 56, 74, 1036),
    (1920, 1080): (1920, 1080, 78, 138, 2691),
    (1800, 1800): (1800, 1800, 130, 130, 4225),
    (3000, 3000): (1794, 1794, 130, 130, 4225),
    (3840, 2160): (2392, 1345, 98, 172, 4214),
    (8192, 256): (7168, 224, 16, 512, 2048),
    (1, 1): (1, 1, 2, 2, 1),
}
FRAMES = {(1280, 720): (1202, 676, 50, 86, 1075), (1920, 1080): (1196, 672, 48, 86, 1032)}


def sizes():
    for limit, checked in ((16384, CHECKED), (4096, FRAMES)):
        for (w, h), known in checked.items():
            assert grid(w, h, limit, 512) == known, (w, h, grid(w, h, limit, 512), known)
    rng = np.random.default_rng(3)
    shapes = list(CHECKED) + list(FRAMES) + [(65535, 1), (1, 65535), (7168, 7168), (7169, 13), (13, 7169)]
    shapes += [tuple(int(v) for v in np.exp(rng.uniform(0, np.log(20000), 2)).astype(int)) for _ in range(60)]
    for w, h in shapes:
        for limit in (16384, 4096):
            lines.append(f"grid {w} {h} {limit} 512 " + " ".join(map(str, grid(w, h, limit, 512))))
    for w, h in [(300, 200), (28, 29), (1000, 3), (5, 700), (100, 100)]:
        lines.append(f"grid {w} {h} 36 8 " + " ".join(map(str, grid(w, h, 36, 8))))


def resizes():
    shapes = [(1, 1, 1, 1), (1, 1, 3, 2), (5, 1, 2, 1), (1, 5, 1, 2), (1, 97, 1, 13), (97, 1, 13, 1), (1, 97, 1, 96)]
    shapes += [(64, 48, 64, 48), (64, 48, 63, 48), (64, 48, 64, 47), (64, 48, 63, 47), (64, 48, 32, 24), (64, 48, 1, 1)]
    shapes += [(101, 77, 50, 39), (33, 200, 32, 31), (200, 33, 31, 32), (17, 13, 40, 30), (6, 5, 7, 50), (300, 2, 7, 2)]
    shapes += [(2, 300, 2, 7), (2, 3, 1, 1), (3, 2, 1, 2), (4, 9, 3, 8), (5, 9, 3, 8), (6, 9, 3, 8), (7, 5, 3, 3)]
    shapes += [(997, 11, 123, 5), (11, 997, 5, 123), (401, 303, 211, 160), (256, 256, 255, 129), (1001, 3, 900, 3)]
    for w, h, w2, h2 in shapes:
        for kind in ("noise", "steps"):
            resized = Image.fromarray(draw(kind, w, h)).resize((w2, h2), Image.BICUBIC)
            lines.append(f"resize {kind} {w} {h} {w2} {h2} {crc(np.asarray(resized))}")


def patches():
    shapes = [(1, 1, 64, 16), (14, 14, 64, 16), (28, 28, 64, 16), (29, 27, 64, 16), (100, 100, 64, 16)]
    shapes += [(300, 200, 64, 16), (200, 300, 100, 30), (500, 20, 64, 16), (20, 500, 64, 16), (640, 480, 16384, 512)]
    shapes += [(500, 700, 4096, 512), (1280, 720, 4096, 512)]
    for w, h, limit, side in shapes:
        w2, h2, rows, cols, _ = grid(w, h, limit, side)
        padded = np.zeros((rows * 14, cols * 14, 3), np.uint8)
        padded[:h2, :w2] = np.asarray(Image.fromarray(draw("noise", w, h)).resize((w2, h2), Image.BICUBIC))
        cut = padded.reshape(rows, 14, cols, 14, 3).transpose(0, 2, 4, 1, 3)
        lines.append(f"patches noise {w} {h} {limit} {side} {crc(cut)}")


def main():
    warnings.simplefilter("ignore")
    if PIL.__version__ != "12.0.0":
        sys.exit(f"Pillow {PIL.__version__} is not 12.0.0")
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    for make in (jpegs, pngs, webps, gifs):
        for name, data in make():
            (OUT / name).write_bytes(data)
            rgb = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            lines.append(f"decode {name} {rgb.shape[1]} {rgb.shape[0]} {crc(rgb)}")
    resizes()
    sizes()
    patches()
    (OUT / "expected.txt").write_text("\n".join(lines) + "\n")


main()
