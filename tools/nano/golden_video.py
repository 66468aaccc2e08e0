"""Golden chats about videos, in float32 from the files on disk: what the exported model says of tests/golden/videos.

    python tools/nano/golden_video.py      writes tests/data/nano/video.jsonl

Frames come from PyAV, sizes and times from tests/golden/make_videos.py, the prompt is written here and cut by tiktoken.
The model was trained on single pictures, so the answers mean little; that they are the same ones means much. One
object a video: "file", "question", "thinking", "ids" (prompt, the placeholder repeated), "greedy".
"""

import json
import sys

import numpy as np
import torch

import evaluate
from config import OUT, ROOT
from model import generate
from vision import expand, insert

sys.path.insert(0, str(ROOT / "tests/golden"))
from make_videos import patches_of, pieces_of, stamp  # noqa: E402

CHATS = [
    ("vp9.webm", "What is in the video?", True),
    ("h264-sound.mp4", "Which colours do you see?", False),
    ("vp8.webm", "How many shapes are there?", True),
    ("h264-one.mp4", "What is in the picture?", True),
]


def prompt(times, question, thinking):
    piece = "<|media_begin|>video<|media_content|><|media_pad|><|media_end|>"
    video = "".join(t + piece for t in times) + "\n"
    begin = "<|im_user|>user<|im_middle|>" + video + question + "<|im_end|>"
    return begin + "<|im_assistant|>assistant<|im_middle|><think>" + ("" if thinking else "</think>")


@torch.no_grad()
def main():
    r = evaluate.Reader(OUT, "cpu")
    lines = []
    for name, question, thinking in CHATS:
        frames, rate, pieces, (w, h, rows, cols) = pieces_of(name)
        grids = [(len(p), rows, cols) for p in pieces]
        cut = [patches_of(frames[i], w, h, rows, cols).reshape(-1, 3, 14, 14) for p in pieces for i in p]
        media = r.eyes((torch.from_numpy(np.concatenate(cut)).float() / 255 - 0.5) * 2, grids)
        text = prompt([stamp(p[0] / rate) for p in pieces], question, thinking)
        ids = expand(r.tok.enc.encode(text, allowed_special="all"), grids, r.media)
        greedy = generate(r.model, [ids], r.tok.end, 48, lambda x, i: insert(x, i, media, r.media))[0]
        print(name, grids, repr(r.text(greedy)))
        line = {"file": name, "question": question, "thinking": thinking, "ids": ids, "greedy": greedy}
        lines.append(json.dumps(line, separators=(",", ":")))
    (ROOT / "tests/data/nano/video.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
