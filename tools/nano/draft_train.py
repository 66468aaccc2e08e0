"""Training of the drafts with training-time test, both layouts in one loop (they share the model's pass).

    python tools/nano/draft_train.py --out DIR [--steps N] [--seconds S] [--layouts llama,mla]

DIR holds the text (draft_data.py). It receives, every minute and at the end, draft-LAYOUT.pt (float32 weights),
optimizer-LAYOUT.pt and train.json; a later call goes on from there. The learning rate follows the larger of
steps done / --steps and seconds spent / --seconds, so a run that is short of time still ends with a small one.

One pass of the model over a batch gives features and distributions; then the draft runs --depth times. In step s, index
i reads token i + 1 + s at position i + s, together with the features (s = 0) or its own output of step s - 1, and
learns the model's distribution of token i + 2 + s, where nano itself said that token. Loss: sum over s of 0.8^s x
cross-entropy.
"""

import argparse
import json
import math
import os
import pathlib
import time

import numpy as np
import torch

from dialogues import LEARN
from draft_data import half_precision, pack, read_text
from draft_model import LAYOUTS, Draft, DraftConfig, Unrolled

DECAY = 0.8


def target_pass(model, ids, seg, taps):
    """Features [B, T, 3D], hidden states that lm_head reads [B, T, D], and the mask of the draft's first step."""
    B, T = ids.shape
    tril = torch.ones(T, T, dtype=torch.bool, device=ids.device).tril()
    mask = (seg[:, None, :, None] == seg[:, None, None, :]) & tril
    pos = torch.arange(T, device=ids.device)[None]
    with torch.no_grad():
        hidden, _, features = model(ids, pos, mask, taps=taps)
    return features, hidden, mask


def shifted(x, n):
    """x[:, i + n] at index i; the end wraps and has to be masked by the caller."""
    return x.roll(-n, 1)


def learnt(learn, seg, s):
    """bool [B, T]: index i of step s predicts token i + 2 + s, which is of the same sequence and nano's own."""
    T = learn.shape[1]
    inside = torch.arange(T, device=learn.device) + 2 + s < T
    return shifted(learn, 2 + s) & (shifted(seg, 2 + s) == seg) & (seg > 0) & inside


def unroll(draft, features, ids, mask, depth):
    """Training-time test: yields z [B, T, D] of each step."""
    pos = torch.arange(ids.shape[1], device=ids.device)[None]
    attend, x = Unrolled(mask), draft.fuse(features)
    for s in range(depth):
        x = draft(x, shifted(ids, 1 + s), pos + s, attend)
        yield x


@torch.no_grad()
def wanted(model, hidden, learn, seg, depth):
    """For each step the indices that learn (into B x T) and what they learn: the model's logits there [N, V]."""
    where = [learnt(learn, seg, s).flatten().nonzero()[:, 0] for s in range(depth)]
    return [(at, model.lm_head(shifted(hidden, 1 + s).flatten(0, 1)[at]).float()) for s, at in enumerate(where)]


def draft_loss(draft, features, mask, ids, aims):
    """Loss, and per step how often the draft's first choice is the model's. aims: wanted()'s, one a step."""
    total, same = 0.0, []
    for s, (z, (at, aim)) in enumerate(zip(unroll(draft, features, ids, mask, len(aims)), aims)):
        logits = draft.logits(z.flatten(0, 1)[at])
        total = total - DECAY**s * (aim.softmax(-1) * logits.log_softmax(-1)).sum() / max(1, len(at))
        same.append((logits.detach().argmax(-1) == aim.argmax(-1)).sum() / max(1, len(at)))
    return total, torch.stack(same)


def acceptance(same):
    """Mean acceptance length that these per-step agreements would give if they were independent."""
    return 1 + sum(math.prod(same[: i + 1]) for i in range(len(same)))


class Rows:
    """Batches of packed rows in a fixed shuffled order, epoch after epoch."""

    def __init__(self, folder, width, batch, dev, seed=1):
        ids, seg = pack(read_text(folder), width, seed)
        self.used = float((seg > 0).mean())
        self.ids, self.seg = torch.from_numpy(ids.view(np.int16)).to(dev), torch.from_numpy(seg).to(dev)
        self.batch, self.seed, self.dev, self.epoch = min(batch, len(ids)), seed, dev, -1

    def get(self, n):
        epoch, i = divmod(n, len(self.ids) // self.batch)
        if epoch != self.epoch:
            g = torch.Generator().manual_seed(self.seed * 1000 + epoch)
            self.order, self.epoch = torch.randperm(len(self.ids), generator=g).to(self.dev), epoch
        pick = self.order[i * self.batch : (i + 1) * self.batch]
        raw = self.ids[pick].int()
        return (raw & (LEARN - 1)).long(), (raw & LEARN) != 0, self.seg[pick].long()


def rate(progress, step, warm):
    """Linear warm-up, then a cosine to one twentieth."""
    return min(1.0, (step + 1) / warm) * (0.05 + 0.475 * (1 + math.cos(math.pi * min(1.0, progress))))


class Student:
    """A draft in training with its optimizer, on disk as two files."""

    def __init__(self, layout, model, folder, lr, dev):
        self.layout, self.folder, self.lr = layout, pathlib.Path(folder), lr
        self.draft = Draft(DraftConfig(layout, model.c)).to(dev).share(model)
        decay = [p for p in self.draft.parameters() if p.ndim > 1]
        rest = [p for p in self.draft.parameters() if p.ndim == 1]
        self.opt = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
            lr=lr,
            betas=(0.9, 0.95),
            fused=dev == "cuda",
        )

    def load(self):
        get = lambda name: torch.load(
            self.folder / f"{name}-{self.layout}.pt", map_location=self.draft.fc.weight.device
        )
        self.draft.load_state_dict(get("draft"))
        self.opt.load_state_dict(get("optimizer"))

    def save(self):
        for name, state in (("draft", self.draft.state_dict()), ("optimizer", self.opt.state_dict())):
            path = self.folder / f"{name}-{self.layout}.pt"
            torch.save(state, path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)

    def step(self, loss, factor):
        for g in self.opt.param_groups:
            g["lr"] = self.lr * factor
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 0.5)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def train(
    model,
    folder,
    steps,
    seconds,
    layouts=LAYOUTS,
    depth=4,
    width=1024,
    batch=32,
    lr=2e-3,
    warm=150,
    every=100,
    saves=60,
    say=print,
):
    """model: with the weights that the GPU multiplies. Returns when steps or seconds are used up."""
    start, dev = time.time(), model.embed_tokens.weight.device.type
    folder = pathlib.Path(folder)
    state_file = folder / "train.json"
    state = json.loads(state_file.read_text()) if state_file.exists() else {"step": 0, "seconds": 0.0}
    rows = Rows(folder, width, batch, dev)
    say(f"text: {len(rows.ids)} rows of {width}, {rows.used:.2f} full; {time.time() - start:.0f} s")
    torch.manual_seed(1)
    students = [Student(layout, model, folder, lr, dev) for layout in layouts]
    cast = lambda: torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda")
    if state["step"]:
        for s in students:
            s.load()
        say(f"goes on after step {state['step']}, {state['seconds']:.0f} s")
    else:
        ids, _, seg = rows.get(0)
        with cast():
            features, _, _ = target_pass(model, ids, seg, students[0].draft.d.taps)
        for s in students:
            s.draft.start_from(model, features[seg > 0])
    before, mark, count = state["seconds"], time.time(), 0
    sums = {s.layout: torch.zeros(depth + 1, device=dev) for s in students}
    saved = time.time()

    def save():
        state["seconds"] = before + time.time() - start
        for s in students:
            s.save()
        state_file.write_text(json.dumps(state))

    while state["step"] < steps and before + time.time() - start < seconds:
        step, spent = state["step"], before + time.time() - start
        ids, learn, seg = rows.get(step)
        factor = rate(max(step / steps, spent / seconds), step, warm)
        with cast():
            features, hidden, mask = target_pass(model, ids, seg, students[0].draft.d.taps)
            aims = wanted(model, hidden, learn, seg, depth)
        for s in students:
            with cast():
                loss, same = draft_loss(s.draft, features, mask, ids, aims)
            s.step(loss, factor)
            sums[s.layout] += torch.cat([loss.detach()[None], same])
        state["step"], count = step + 1, count + 1
        if state["step"] % every == 0 or state["step"] == 5 or state["step"] == steps:
            told = []
            for layout, x in sums.items():
                loss, *same = (x / count).tolist()
                told.append(
                    f"{layout} loss {loss:.3f} agree {' '.join(f'{v:.3f}' for v in same)} length(3) {acceptance(same[:3]):.2f}"
                )
                x.zero_()
            spent, took = before + time.time() - start, (time.time() - mark) / count
            left = min((steps - state["step"]) * took, seconds - spent)
            say(
                f"step {state['step']} | {' | '.join(told)} | {took * 1e3:.0f} ms/step, "
                f"{batch * width / took / 1e3:.0f}k tokens/s, {spent:.0f} s, {left:.0f} s left"
            )
            mark, count = time.time(), 0
        if time.time() - saved > saves:
            save()
            saved = time.time()
    save()
    return [s.draft for s in students]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--steps", type=int, default=8000)
    ap.add_argument("--seconds", type=float, default=300)
    ap.add_argument("--layouts", default=",".join(LAYOUTS))
    ap.add_argument("--depth", type=int, default=4, help="steps of training-time test")
    ap.add_argument("--width", type=int, default=1024)
    ap.add_argument("--batch", type=int, default=32, help="rows a step")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warm", type=int, default=150)
    ap.add_argument("--every", type=int, default=100)
    a = ap.parse_args()
    import evaluate

    os.makedirs(a.out, exist_ok=True)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    model = evaluate.load().to(dev).requires_grad_(False)
    train(
        half_precision(model) if dev == "cuda" else model,
        a.out,
        a.steps,
        a.seconds,
        tuple(a.layouts.split(",")),
        a.depth,
        a.width,
        a.batch,
        a.lr,
        a.warm,
        a.every,
    )


if __name__ == "__main__":
    main()
