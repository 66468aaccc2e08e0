"""Golden values of the exported vision tower, projector and picture chats, in float32 from the files on disk.

    python tools/nano/golden_vision.py      writes tests/data/nano/vision.safetensors and vision.jsonl

vision.safetensors, for the items i = 0, 1, ...: `i.pixels` uint8 [frames, H, W, 3] as a picture file would give them,
`i.tower` float32 [tokens / 4, 4, 144] (tokens 0, 4, 8, ...) after the final layer norm, the mean over the frames and
the 2 x 2 merge, `i.media` float32 [tokens, 256] of every token after the projector. vision.jsonl, one object an item:
"grid" [frames, rows, columns], "patches_sha256" of the patches' bytes, uint8 [n, 3, 14, 14] (resized, padded, cut; the
tower sees (byte / 255 - 0.5) * 2), and for single pictures a chat about it: "question", "ids" (prompt, the placeholder
repeated), "greedy", and over both "argmax", "logprob" as in golden.jsonl.
"""

import hashlib
import json
import random

import numpy as np
import torch

import dialogues
import evaluate
import pictures
from config import OUT, ROOT
from export import write_shard
from model import generate
from preprocess import patch_bytes
from vision import expand, insert

SIZES = [(56, 56), (90, 131), (224, 224), (300, 170), (57, 299), (29, 400)]


def items():
    """[frames, H, W, 3] uint8: scenes on fixed canvases, then noise that has to be shrunk, then three frames."""
    from PIL import Image

    rng = random.Random("golden pictures")
    for w, h in SIZES:
        while True:
            s = pictures.scene(rng)
            if max(x.x + x.r for x in s.shapes) < w - 2 and max(x.y + x.r for x in s.shapes) < h - 2:
                break
            if min(w, h) < 56:
                s = s._replace(shapes=(pictures.Shape("red", "circle", w / 2, h / 2, 12.0),))
                break
        yield np.asarray(pictures.draw(s._replace(w=w, h=h)))[None], True
    noise = np.random.default_rng(1)
    yield noise.integers(0, 256, (1, 31, 45, 3), dtype=np.uint8), True
    yield np.stack(
        [
            np.asarray(Image.fromarray(noise.integers(0, 256, (3, 4, 3), dtype=np.uint8)).resize((84, 56)))
            for _ in range(3)
        ]
    ), False


@torch.no_grad()
def main():
    from PIL import Image

    r = evaluate.Reader(OUT, "cpu")
    out, lines = [], []
    for i, (frames, chat) in enumerate(items()):
        each = [patch_bytes(Image.fromarray(f)) for f in frames]
        p = torch.from_numpy(np.concatenate([p for p, _ in each]))
        grid = (len(frames), *each[0][1][1:])
        tower = r.eyes.vision_tower((p.float() / 255 - 0.5) * 2, [grid])
        media = r.eyes.mm_projector(tower)
        out += [
            (f"{i}.{n}", t)
            for n, t in (
                ("tower", tower[::4].contiguous()),
                ("media", media),
                ("pixels", torch.from_numpy(frames.copy())),
            )
        ]
        line = {"grid": grid, "patches_sha256": hashlib.sha256(p.numpy().tobytes()).hexdigest()}
        if chat:
            q = ["What is in the picture?", "How many shapes are there?", "Which colours do you see?"][i % 3]
            part = {"type": "image_url", "image_url": {"url": "data:,"}}
            d = dialogues.dialogue([dialogues.user([part, {"type": "text", "text": q}])], i % 4 != 3)
            ids = expand(r.prompts([dialogues.request(d, 1)])[0], [grid], r.media)
            put = lambda x, ids: insert(x, ids, media, r.media)
            greedy = generate(r.model, [ids], r.tok.end, 48, put)[0]
            whole = torch.tensor([ids + greedy])
            lp = r.model.logits(whole, rows=put(r.model.embed_tokens(whole), whole))[0].log_softmax(-1)
            assert lp[len(ids) - 1 : -1].argmax(-1).tolist() == greedy
            top = lp.max(-1)
            line |= {
                "question": q,
                "thinking": d["thinking"],
                "ids": ids,
                "greedy": greedy,
                "argmax": top.indices.tolist(),
                "logprob": [float(f"{x:.9g}") for x in top.values.tolist()],
            }
            print(grid, repr(r.text(greedy)))
        lines.append(json.dumps(line, separators=(",", ":")))
    out.sort(key=lambda it: -it[1].element_size())
    write_shard(ROOT / "tests/data/nano/vision.safetensors", out)
    (ROOT / "tests/data/nano/vision.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
