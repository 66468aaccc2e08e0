"""Pictures of coloured shapes and questions about them, generated: the same seed gives the same pixels.

A scene with two or more shapes whose content (which shapes in which colours, wherever they are) hashes into the
held-out twentieth never appears in training; the evaluation set is made of these alone. Single shapes are facts.

    python tools/nano/pictures.py --check | --show N | --eval FILE [N]
"""

import base64
import io
import math
import random
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from dialogues import assistant, dialogue, kept_out, run, user

COLOURS = {
    "red": (214, 39, 40),
    "green": (44, 150, 60),
    "blue": (31, 90, 200),
    "yellow": (245, 215, 40),
    "orange": (250, 135, 20),
    "purple": (140, 60, 180),
    "black": (20, 20, 20),
    "white": (250, 250, 250),
}
SHAPES = ["circle", "square", "triangle", "star", "diamond", "cross"]
GROUNDS = [
    (200, 200, 200),
    (150, 150, 150),
    (110, 115, 120),
    (185, 215, 235),
    (235, 205, 215),
    (190, 225, 195),
    (225, 215, 190),
    (80, 95, 110),
]
SMALLEST = 9  # pixels, radius: a shape spans more than one patch of 14 pixels


class Shape(NamedTuple):
    colour: str
    kind: str
    x: float
    y: float
    r: float


class Scene(NamedTuple):
    w: int
    h: int
    shapes: tuple
    seed: int  # of background, shades and turns

    def content(self):
        """Groups (colour, kind, count) in a fixed order."""
        c = Counter((s.colour, s.kind) for s in self.shapes)
        return [(k, s, c[k, s]) for k in COLOURS for s in SHAPES if c[k, s]]


def key(scene):
    return "scene:" + ",".join(f"{n} {c} {k}" for c, k, n in scene.content())


def held_out(scene):
    return len(scene.shapes) > 1 and kept_out(key(scene))


def scene(rng):
    """1 to 6 shapes that do not touch, on a canvas of 56 to 300 pixels a side."""
    while True:
        w, h = (rng.randrange(56, 301) for _ in range(2))
        want = rng.choices(range(1, 7), [10, 18, 20, 20, 17, 15])[0]
        few = rng.random() < 0.5  # few colours and kinds, so that some are there twice
        colours = rng.sample(list(COLOURS), rng.randrange(1, 4)) if few else list(COLOURS)
        kinds = rng.sample(SHAPES, rng.randrange(1, 3)) if few else SHAPES
        biggest = min(w, h) * rng.uniform(0.2, 0.45) / math.sqrt(want) * 1.3
        shapes = []
        for _ in range(200):
            r = rng.uniform(SMALLEST, max(SMALLEST + 1, biggest))
            if 2 * r + 4 > min(w, h):
                continue
            x, y = rng.uniform(r + 2, w - r - 2), rng.uniform(r + 2, h - r - 2)
            if all(math.hypot(x - s.x, y - s.y) > r + s.r + 2 for s in shapes):
                shapes.append(Shape(rng.choice(colours), rng.choice(kinds), x, y, r))
                if len(shapes) == want:
                    return Scene(w, h, tuple(shapes), rng.randrange(1 << 30))


def outline(kind, turn):
    """Corners on or in the unit circle; None for the circle itself."""

    def ring(n, r=1.0, start=0.0):
        angles = [start + turn + 2 * math.pi * i / n for i in range(n)]
        return [(r * math.sin(a), -r * math.cos(a)) for a in angles]

    if kind == "square":
        return ring(4, start=math.pi / 4)
    if kind == "triangle":
        return ring(3)
    if kind == "star":
        return [p for pair in zip(ring(5), ring(5, 0.42, math.pi / 5)) for p in pair]
    if kind == "diamond":
        return [p for pair in zip(ring(2), ring(2, 0.6, math.pi / 2)) for p in pair]
    if kind == "cross":
        t, c, s = 0.3, math.cos(turn), math.sin(turn)
        arm = [(t, -0.95), (t, -t), (0.95, -t)]  # one quarter, turned four times
        a = [[(x, y), (-y, x), (-x, -y), (y, -x)][i] for i in range(4) for x, y in arm]
        return [(x * c - y * s, x * s + y * c) for x, y in a]
    return None


def draw(s, noisy=True, smooth=3):
    """The scene as an RGB picture: drawn larger and averaged down, then (half of them) a little noise."""
    rng = random.Random(s.seed)
    far = lambda g: min(math.dist(g, COLOURS[x.colour]) for x in s.shapes)
    ground = rng.choice([g for g in GROUNDS if far(g) > 90] or [max(GROUNDS, key=far)])
    shade = lambda c, by: tuple(min(255, max(0, v + rng.randrange(-by, by + 1))) for v in c)
    im = Image.new("RGB", (s.w * smooth, s.h * smooth), shade(ground, 8))
    pen = ImageDraw.Draw(im)
    for x in s.shapes:
        points = outline(x.kind, math.radians(rng.uniform(-10, 10)))
        colour = shade(COLOURS[x.colour], 10)
        if points is None:
            pen.ellipse(
                [(x.x - x.r) * smooth, (x.y - x.r) * smooth, (x.x + x.r) * smooth, (x.y + x.r) * smooth], colour
            )
        else:
            pen.polygon([((x.x + px * x.r) * smooth, (x.y + py * x.r) * smooth) for px, py in points], colour)
    a = np.asarray(im, np.float32).reshape(s.h, smooth, s.w, smooth, 3).mean((1, 3))
    if noisy:
        a += np.random.default_rng(s.seed).normal(0, rng.choice([0, 0, 1, 3]), a.shape)
    return Image.fromarray(a.round().clip(0, 255).astype(np.uint8))


def data_url(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


# ---- questions --------------------------------------------------------------------------------


def plural(kind, n):
    return kind if n == 1 else kind + "es" if kind.endswith("ss") else kind + "s"


def listing(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def sees(s):
    return ", ".join(f"{n} {c} {plural(k, n)}" for c, k, n in s.content())


def total(parts):
    """2+1+1: =4, or the number itself."""
    return f"{'+'.join(map(str, parts))}={sum(parts)}" if len(parts) > 1 else str(sum(parts))


def count(rng, s, c=None, k=None):
    """How many, of a colour or a kind or both or of anything."""
    parts = [n for cc, kk, n in s.content() if c in (None, cc) and k in (None, kk)]
    n = sum(parts)
    what = (f"{c} " if c else "") + (plural(k, 2) if k else rng.choice(["shapes", "shapes", "things", "objects"]))
    one = what if n != 1 else (f"{c} " if c else "") + (k or what.split()[-1][:-1])
    q = rng.choice(
        [
            "How many {} are there?",
            "How many {} do you see?",
            "How many {} are in the picture?",
            "Count the {}.",
            "how many {}?",
            "What is the number of {}?",
            "How many {} can you see?",
        ]
    ).format(what)
    return (
        q,
        f"{sees(s)}. {what}: {total(parts)}",
        f"There {'is' if n == 1 else 'are'} {n if n else 'no'} {one}.",
        str(n),
    )


def question(rng, s):
    """(question, thinking, answer, what decides whether an answer is right) about a scene."""
    groups, look = s.content(), sees(s)
    colours, kinds = ([x for x in all_ if any(x in g for g in groups)] for all_ in (COLOURS, SHAPES))
    form = rng.choices(
        ["all", "colour", "kind", "both", "colours", "name", "which", "what", "there", "side", "more"],
        [14, 12, 12, 14, 9, 12, 6, 5, 6, 6, 4],
    )[0]
    some = lambda here, everything: rng.choice(here if rng.random() < 0.85 else list(everything))
    if form == "all":
        return count(rng, s)
    if form == "colour":
        return count(rng, s, some(colours, COLOURS))
    if form == "kind":
        return count(rng, s, None, some(kinds, SHAPES))
    if form == "both":
        c, k = rng.choice(groups)[:2] if rng.random() < 0.75 else (some(colours, COLOURS), some(kinds, SHAPES))
        return count(rng, s, c, k)
    if form == "colours":
        q = rng.choice(
            [
                "Which colours do you see?",
                "What colors are in the picture?",
                "Which colors are there?",
                "Name the colours.",
                "What colours are the shapes?",
            ]
        )
        return q, f"{look}. colours: {', '.join(colours)}", f"I see {listing(colours)}.", ",".join(colours)
    if form == "name":
        q = rng.choice(
            [
                "What is in the picture?",
                "What do you see?",
                "Describe the picture.",
                "Name the shapes.",
                "What is this?",
                "List everything in the image.",
                "what shapes are these?",
                "Name all shapes and their colours.",
            ]
        )
        named = [f"{'a' if n == 1 else n} {c} {plural(k, n)}".replace("a orange", "an orange") for c, k, n in groups]
        return q, look, f"I see {listing(named)}.", look
    if form == "there":
        c, k = rng.choice(groups)[:2] if rng.random() < 0.5 else (some(colours, COLOURS), rng.choice(SHAPES))
        n = sum(n for cc, kk, n in groups if (cc, kk) == (c, k))
        a = f"a{'n' if c == 'orange' else ''} {c} {k}"
        q = rng.choice(["Is there {}?", "Do you see {}?", "Is there {} in the picture?"]).format(a)
        yes = f"Yes, there {'is' if n == 1 else 'are'} {n} {c} {plural(k, n)}."
        return q, f"{look}. {c} {plural(k, 2)}: {n}", yes if n else f"No, there is no {c} {k}.", "yes" if n else "no"
    if form == "more" and len(kinds) > 1:
        a, b = rng.sample(kinds, 2)
        na, nb = (sum(n for _, kk, n in groups if kk == k) for k in (a, b))
        q = f"Are there more {plural(a, 2)} than {plural(b, 2)}?"
        word = "Yes" if na > nb else "No"
        answer = f"{word}, there {'is' if na == 1 else 'are'} {na} {plural(a, na)} and {nb} {plural(b, nb)}."
        return q, f"{look}. {plural(a, 2)}: {na}, {plural(b, 2)}: {nb}", answer, word.lower()
    if form == "side" and len(s.shapes) > 1:
        side, axis, sign = rng.choice([("left", 2, 1), ("right", 2, -1), ("top", 3, 1), ("bottom", 3, -1)])
        order = sorted(s.shapes, key=lambda x: sign * x[axis])
        if abs(order[0][axis] - order[1][axis]) > 0.12 * (s.w, s.h)[axis - 2]:
            x = order[0]
            where = {"top": "at the top", "bottom": "at the bottom"}.get(side, f"on the {side}")
            q = rng.choice([f"Which shape is furthest {where}?", f"What is {where}?"])
            return (
                q,
                f"{look}. {side}: {x.colour} {x.kind}",
                f"The {x.colour} {x.kind} is {where}.",
                f"{x.colour} {x.kind}",
            )
    if form == "which":
        single = [g for g in groups if g[2] == 1 and sum(n for _, k, n in groups if k == g[1]) == 1]
        if single:
            c, k, _ = rng.choice(single)
            q = rng.choice(
                ["What colour is the {}?", "What color is the {}?", "Which colour does the {} have?"]
            ).format(k)
            return q, f"{look}. {k}: {c}", f"The {k} is {c}.", c
    if form == "what":
        single = [g for g in groups if g[2] == 1 and sum(n for c, _, n in groups if c == g[0]) == 1]
        if single:
            c, k, _ = rng.choice(single)
            q = rng.choice(["What shape is the {} one?", "Which shape is {}?", "What is the {} thing?"]).format(c)
            return q, f"{look}. {c}: {k}", f"The {c} one is a {k}.", k
    return question(rng, s)


def ask(rng, s):
    """A dialogue of one to three questions about one picture; the picture is in meta["scene"]."""
    messages = []
    for i in range(1 if rng.random() < 0.7 else rng.randrange(2, 4)):
        q, think, answer, right = question(rng, s)
        if i == 0:
            picture, text = {"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": q}
            messages.append(user([picture, text] if rng.random() < 0.8 else [text, picture]))
        else:
            messages.append(user(q))
        messages.append(assistant(answer, think))
    return dialogue(messages, rng.random() < 0.75, scene=s, right=right, question=q)


def make(rng):
    while held_out(s := scene(rng)):
        pass
    return ask(rng, s)


def evaluation(number=500, seed="evaluation"):
    """One question each about held-out scenes: the picture as a data URL (without noise, which PNG stores badly),
    GSM8K's keys for the rest."""
    rng, out = random.Random(seed), []
    while len(out) < number:
        s = scene(rng)
        if held_out(s):
            q, think, answer, right = question(rng, s)
            out.append(
                {"image": data_url(draw(s, noisy=False)), "question": q, "answer": f"{think}\n{answer}\n#### {right}"}
            )
    return out


def check_pixels(s):
    """Each shape covers the area of its kind inside its own circle, in its colour; all else is ground."""
    a = np.asarray(draw(s, noisy=False)).astype(int)
    yy, xx = np.mgrid[: s.h, : s.w] + 0.5
    reach = [np.hypot(xx - x.x, yy - x.y) - x.r for x in s.shapes]
    outside = np.minimum.reduce(reach) > 1.5
    ground = np.median(a[outside], 0)
    assert np.abs(a[outside] - ground).max() == 0
    for x, d in zip(s.shapes, reach):
        covered = (
            (np.abs(a - ground).sum(-1) > 0.5 * np.abs(np.array(COLOURS[x.colour]) - ground).sum()) & (d < 1.5)
        ).sum()
        p = outline(x.kind, 0) or [(math.cos(i / 9), math.sin(i / 9)) for i in range(57)]
        area = abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(p, p[1:] + p[:1]))) / 2 * x.r**2
        assert abs(covered / area - 1) < 0.2, (x, covered, area)


def check():
    from dialogues import check_engine, sequences
    from preprocess import patches
    from tokenizer import Tokenizer
    import vision

    one = [make(random.Random(7)) for _ in range(2)]
    assert (
        one[0] == one[1]
        and (np.asarray(draw(one[0]["meta"]["scene"])) == np.asarray(draw(one[1]["meta"]["scene"]))).all()
    )
    rng = random.Random("check")
    ds = [make(rng) for _ in range(400)]
    assert not any(held_out(d["meta"]["scene"]) for d in ds)
    grids, kinds = [], Counter()
    for d in ds:
        s = d["meta"]["scene"]
        assert 1 <= len(s.shapes) <= 6 and 56 <= min(s.w, s.h) and max(s.w, s.h) <= 300
        kinds[len(s.shapes)] += 1
        # the thinking of the last turn says what is there, and the number decided follows from the scene alone
        think = d["messages"][-1]["reasoning_content"]
        assert think.startswith(sees(s))
        if d["meta"]["right"].isdigit():
            want = think.split(". ")[1].split(":")[0].split()
            c = next((w for w in want if w in COLOURS), None)
            k = next((k for k in SHAPES if plural(k, 2) in want), None)
            n = sum(1 for x in s.shapes if c in (None, x.colour) and k in (None, x.kind))
            assert n == int(d["meta"]["right"]) and (str(n) in d["messages"][-1]["content"] or n == 0)
    assert set(kinds) == set(range(1, 7)), kinds
    for d in ds[:40]:  # in the pixels: the middle of each shape has its colour, and the ground does not
        s = d["meta"]["scene"]
        a = np.asarray(draw(s)).astype(int)
        assert a.shape == (s.h, s.w, 3)
        check_pixels(s)
        nearest = lambda px: min(COLOURS, key=lambda c: math.dist(px, COLOURS[c]))
        for x in s.shapes:
            assert nearest(a[int(x.y) - 1 : int(x.y) + 2, int(x.x) - 1 : int(x.x) + 2].mean((0, 1))) == x.colour, x
        p, grid = patches(Image.fromarray(a.astype(np.uint8)))
        assert len(p) == grid[1] * grid[2] and 4 <= min(grid[1:]) and max(grid) <= 22
        grids.append(grid)
    items = evaluation(20)
    assert items == evaluation(20) and all(it["image"].startswith("data:image/png;base64,") for it in items)
    assert not {key(d["meta"]["scene"]) for d in ds if len(d["meta"]["scene"].shapes) > 1} & {
        "scene:" + re.split(r"[.\n]", it["answer"])[0] for it in items
    }
    tok = Tokenizer()
    turns = check_engine(tok, ds[:40])
    pad = tok.id["<|media_pad|>"]
    for parts, grid in zip(sequences(tok, ds[:40]), grids):
        for ids in parts:
            assert sum(x == pad for x in ids) == 1
            assert sum(x == pad for x in vision.expand(ids, [grid], pad)) == grid[1] * grid[2] // 4
    print(f"pictures: 400 scenes, 40 drawn, {turns} turns through the engine's template and back")


if __name__ == "__main__":
    run(__doc__, make, evaluation, check)
