"""Training rows, made in parallel and written as files that the training picks up while more are being made.

    python tools/nano/dataset.py --out DIR [--workers N] [--scale 1.0]      writes KIND-NNN.npz

Three kinds of rows: `text` [1024], several sequences packed one after the other; `picture` [1024], the same with
pictures; `long` [4096] and `longest` [16384], one sequence each. A sequence is a prompt as the engine renders it and
what the model is to say (dialogues.sequences). Arrays of a file, R rows of width W:

    ids      uint16 [R, W]        token, plus bit 15 where the model is to learn to say it
    seg      uint8 [R, W]         number of the sequence a token belongs to, 0: padding
    slot     int16 [R, W]         picture: which vector of the row's tower output stands here, -1: none
    patch    int32 [R, 1536]      picture: index into pixels; three groups of 512, four patches of one token together
    place    uint8 [R, 1536, 5]   picture: item (0: none), row, column, rows and columns of its grid
    pixels   uint8 [P, 588]       picture: patches of this file's pictures

Every file depends on its kind and number alone, so any number of workers gives the same ones.
"""

import argparse
import multiprocessing
import os
import pathlib
import random

import numpy as np

import dialogues
import needles
import pictures
import sources
from preprocess import patch_bytes
from tokenizer import Tokenizer

LEARN = dialogues.LEARN
WIDTH, LONG, LONGEST = 1024, 4096, 16384
GROUP, GROUPS = 512, 3  # patches a group (attention stays inside), groups a picture row
OPEN = 24  # rows filled at the same time

# kind: files, rows a file (for pictures: scenes a file)
PLAN = {"text": (160, 2048), "picture": (72, 1000), "long": (32, 96), "longest": (56, 48)}

_tok = None


def tokenizer():
    global _tok
    _tok = _tok or Tokenizer()
    return _tok


# ---- packing ----------------------------------------------------------------------------------


class Row:
    """A row being filled; with pictures it also has groups of patches."""

    def __init__(self):
        self.parts, self.used, self.groups = [], 0, [0] * GROUPS

    def fits(self, seq):
        ids, grid, _ = seq
        if self.used + len(ids) > WIDTH:
            return None
        if grid is None:
            return 0
        n = grid[0] * grid[1]
        return next((g for g in range(GROUPS) if self.groups[g] + n <= GROUP), None)

    def add(self, seq, group):
        self.parts.append((seq, group, self.groups[group]))
        self.used += len(seq[0])
        if seq[1]:
            self.groups[group] += seq[1][0] * seq[1][1]


def pack(seqs, rows):
    """At most `rows` rows filled from sequences (ids, grid or None, first patch); the fullest row that fits gets the
    next."""
    live, done = [], []
    for seq in seqs:
        if len(seq[0]) > WIDTH:
            continue
        places = [(r, g) for r in live if (g := r.fits(seq)) is not None]
        if not places:
            if len(live) == OPEN:
                live.sort(key=lambda r: r.used)
                done.append(live.pop())
                if len(done) == rows:
                    return done
            live.append(Row())
            places = [(live[-1], 0)]
        row, group = max(places, key=lambda p: p[0].used)
        row.add(seq, group)
    return done + sorted(live, key=lambda r: -r.used)[: rows - len(done)]


def token_order(h, w):
    """Raster indices of a grid's patches, the four of each merged token together, tokens in raster order."""
    i = np.arange(h * w).reshape(h // 2, 2, w // 2, 2)
    return i.transpose(0, 2, 1, 3).reshape(-1)


def arrays(rows, pad, pad_media=None):
    """The arrays of packed rows."""
    out = {"ids": np.full((len(rows), WIDTH), pad, np.uint16), "seg": np.zeros((len(rows), WIDTH), np.uint8)}
    if pad_media is not None:
        out["slot"] = np.full((len(rows), WIDTH), -1, np.int16)
        out["patch"] = np.zeros((len(rows), GROUP * GROUPS), np.int32)
        out["place"] = np.zeros((len(rows), GROUP * GROUPS, 5), np.uint8)
    for r, row in enumerate(rows):
        at = 0
        for n, ((ids, grid, first), group, start) in enumerate(row.parts, 1):
            ids = np.asarray(ids, np.uint16)
            out["ids"][r, at : at + len(ids)] = ids
            out["seg"][r, at : at + len(ids)] = n
            if grid:
                h, w = grid
                order, lo = token_order(h, w), group * GROUP + start
                where = np.flatnonzero(ids == pad_media)
                out["slot"][r, at + where] = lo // 4 + np.arange(len(where))
                out["patch"][r, lo : lo + h * w] = first + order
                y, x = np.divmod(order, w)
                out["place"][r, lo : lo + h * w] = np.stack(
                    [np.full_like(y, n), y, x, np.full_like(y, h), np.full_like(y, w)], 1
                )
            at += len(ids)
    return out


# ---- the kinds --------------------------------------------------------------------------------


def some_text(rng, tok, tokens):
    """Sequences of the short mix, about so many tokens."""
    got = []
    while tokens > 0:
        ds = [sources.make(sources.pick(rng), rng) for _ in range(500)]
        more = [(ids, None, 0) for parts in sources.sequences(tok, ds) for ids in parts]
        tokens -= sum(len(s[0]) for s in more)
        got += more
    rng.shuffle(got)
    return got


def text_file(rng, tok, rows):
    return arrays(pack(some_text(rng, tok, int(rows * WIDTH * 1.03)), rows), tok.pad)


def picture_file(rng, tok, scenes):
    """Three dialogues about each scene, its pixels stored once; the last row or two may be half empty."""
    media, first = tok.id["<|media_pad|>"], 0
    ds, of, pixels, seqs = [], [], [], []
    for _ in range(scenes):
        while pictures.held_out(s := pictures.scene(rng)):
            pass
        p, (_, h, w) = patch_bytes(pictures.draw(s))
        pixels.append(p.reshape(len(p), -1))
        for _ in range(3):
            ds.append(pictures.ask(rng, s))
            of.append(((h, w), first))
        first += len(p)
    for (grid, at), parts in zip(of, dialogues.sequences(tok, ds)):
        n = grid[0] * grid[1] // 4
        for ids in parts:
            i = ids.index(media)
            seqs.append((ids[:i] + [media] * n + ids[i + 1 :], grid, at))
    rng.shuffle(seqs)
    return arrays(pack(seqs, 1 << 30), tok.pad, media) | {"pixels": np.concatenate(pixels)}


def long_file(rng, tok, rows, width, facts):
    """One text with up to so many facts a row; half as long as the row at least."""
    ds = [needles.needle(rng, rng.randrange(width // 2, width + 1), facts) for _ in range(rows)]
    ids, seg = np.full((rows, width), tok.pad, np.uint16), np.zeros((rows, width), np.uint8)
    for r, parts in enumerate(needles.sequences(tok, ds)):
        seq = parts[-1][:width]
        ids[r, : len(seq)], seg[r, : len(seq)] = seq, 1
    return {"ids": ids, "seg": seg}


def make(job):
    kind, index, count, seed, facts, out = job
    rng, tok = random.Random(f"{seed}/{kind}/{index}"), tokenizer()
    if kind == "text":
        a = text_file(rng, tok, count)
    elif kind == "picture":
        a = picture_file(rng, tok, count)
    else:
        a = long_file(rng, tok, count, LONG if kind == "long" else LONGEST, facts)
    name = pathlib.Path(out) / f"{kind}-{index:03d}"
    with open(f"{name}.part", "wb") as f:
        np.savez(f, **a)
    os.rename(f"{name}.part", f"{name}.npz")  # only whole files have the name that is looked for
    return f"{name.name}: {len(a['ids'])} rows, {float((a['seg'] > 0).mean()):.2f} full"


def jobs(seed, out, scale, facts=36):
    """All files, the kinds taking turns, so that the first of each come early; those that exist are left alone."""
    each = [
        [(kind, i, count, seed, facts, out) for i in range(max(1, int(files * scale)))]
        for kind, (files, count) in PLAN.items()
    ]
    order = sorted((i / len(kind), job) for kind in each for i, job in enumerate(kind))
    return [job for _, job in order if not (pathlib.Path(out) / f"{job[0]}-{job[1]:03d}.npz").exists()]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    ap.add_argument("--scale", type=float, default=1.0, help="share of the files that are made")
    ap.add_argument("--facts", type=int, default=36, help="most facts in a long text")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    todo = jobs(a.seed, a.out, a.scale, a.facts)
    with multiprocessing.Pool(a.workers) as pool:
        for n, line in enumerate(pool.imap_unordered(make, todo), 1):
            print(f"{n} of {len(todo)}: {line}", flush=True)


if __name__ == "__main__":
    main()
