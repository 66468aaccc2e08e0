#!/usr/bin/env python3
"""Makes tests/golden/videos: small files of the kinds that moonlet-video decodes, and expected.txt, what Kimi's
pipeline makes of them. Needs ffmpeg (the distribution's program, which encodes them), and av, pillow==12.0.0 and numpy
from PyPI: PyAV brings an FFmpeg of its own, which decodes them here. Lines of expected.txt (CRC: CRC-32, in
hexadecimal):

  video FILE FRAMES RATE CHOSEN W H ROWS COLS   all frames, frames a second, those that are shown; their size and grid
  piece FILE TIME FRAMES CRC                    up to four frames: [FRAMES, rows, cols, 3, 14, 14] patches"""
import datetime
import fractions
import math
import subprocess
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

OUT = Path(__file__).resolve().parent / "videos"
X264, VP9 = ["-c:v", "libx264", "-crf", "38"], ["-c:v", "libvpx-vp9", "-crf", "50", "-b:v", "0"]
SOUND = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=8000"]
# name, size, frames a second, frames, what encodes them
FILES = [
    ("h264.mp4", "1280x720", "10", 33, [*X264, "-pix_fmt", "yuv420p"]),
    ("h264-sound.mp4", "320x180", "24", 60, [*X264, "-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "8k", "-shortest"]),
    ("h264-bt709.mp4", "160x96", "30", 45, [*X264, "-vf", "scale=out_color_matrix=bt709", "-colorspace", "bt709"]),
    ("h264-full.mov", "160x96", "25", 40, [*X264, "-pix_fmt", "yuvj420p"]),
    ("h264-one.mp4", "64x48", "25", 1, [*X264, "-pix_fmt", "yuv420p"]),
    ("vp9.webm", "160x90", "30000/1001", 210, VP9),
    ("vp9-tall.webm", "30x270", "15", 31, VP9),
    ("vp8.webm", "98x62", "25", 50, ["-c:v", "libvpx", "-crf", "50", "-b:v", "60k"]),
    ("later.mp4", "96x64", "10", 25, [*X264, "-pix_fmt", "yuv420p", "-output_ts_offset", "5"]),  # begins at 5 s
    ("live.webm", "96x64", "15", 40, [*VP9, "-live", "1"]),  # says no duration
    ("slow.mkv", "96x64", "1/2", 5, [*X264, "-pix_fmt", "yuv444p"]),
]


def encode(name, size, rate, frames, how):
    picture = ["-f", "lavfi", "-i", f"testsrc=size={size}:rate={rate}"]
    sound = SOUND if "aac" in how else []
    fixed = ["-frames:v", str(frames), "-threads", "1", "-fflags", "+bitexact", "-flags:v", "+bitexact"]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *picture, *sound, *how, *fixed, str(OUT / name)], check=True)


def record(path):
    """jitter.webm: as a browser's recorder writes it: 60 frames at uneven milliseconds over 6 seconds, no duration, no
    frame rate. PyAV knows no rate for it, so it is not in expected.txt."""
    import av

    with av.open(str(path), "w", format="webm", options={"live": "1", "fflags": "+bitexact"}) as out:
        stream = out.add_stream("libvpx-vp9", rate=1000, options={"crf": "50", "b": "0"})
        stream.width, stream.height, stream.pix_fmt, stream.thread_count = 96, 64, "yuv420p", 1
        stream.codec_context.time_base = fractions.Fraction(1, 1000)
        for i in range(60):
            picture = np.full((64, 96, 3), 4 * i, np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = 100 * i + i * 37 % 60, fractions.Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


def frames_of(path):
    import av

    with av.open(str(path)) as f:
        stream = f.streams.video[0]
        return [frame.to_ndarray(format="rgb24") for frame in f.decode(stream)], float(stream.average_rate)


def resized(w, h, patches=4096, side=512):
    """Moonshot's navit_resize, for frames of a video."""
    s1 = math.sqrt(patches / (max(1.0, w // 14) * max(1.0, h // 14)))
    scale = min(1.0, s1, side * 14 / w, side * 14 / h)
    w2, h2 = min(max(1, int(w * scale)), side * 14), min(max(1, int(h * scale)), side * 14)
    return w2, h2, (h2 + 27) // 28 * 2, (w2 + 27) // 28 * 2


def patches_of(frame, w, h, rows, cols):
    small = np.asarray(Image.fromarray(frame).resize((w, h), Image.Resampling.BICUBIC))
    canvas = np.zeros((rows * 14, cols * 14, 3), np.uint8)
    canvas[:h, :w] = small
    return canvas.reshape(rows, 14, cols, 14, 3).transpose(0, 2, 4, 1, 3)


def stamp(seconds):
    at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return at.strftime("%H:%M:%S") + f".{int((seconds % 1) * 1000):03d}"


def pieces_of(name):
    """(frames of the file, frames a second, [frame numbers] of each piece, size and grid of a frame)"""
    frames, rate = frames_of(OUT / name)
    n = max(round(len(frames) * min(2.0, rate) / rate), 1)
    chosen = np.linspace(0, len(frames) - 1, n).round().astype(int)
    height, width = frames[0].shape[:2]
    return frames, rate, [chosen[at : at + 4] for at in range(0, n, 4)], resized(width, height)


def describe(name):
    frames, rate, pieces, grid = pieces_of(name)
    yield " ".join(map(str, ("video", name, len(frames), repr(rate), sum(map(len, pieces)), *grid)))
    for piece in pieces:
        cut = np.stack([patches_of(frames[i], *grid) for i in piece])
        crc = zlib.crc32(np.ascontiguousarray(cut).tobytes())
        yield f"piece {name} {stamp(piece[0] / rate)} {len(piece)} {crc:08x}"


def main():
    import av

    OUT.mkdir(exist_ok=True)
    lines = [
        f"# by tests/golden/make_videos.py: PyAV {av.__version__}, Pillow {Image.__version__}, numpy {np.__version__}"
    ]
    for file in FILES:
        encode(*file)
        lines += describe(file[0])
    record(OUT / "jitter.webm")
    (OUT / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
