"""Read the exported checkpoint back and measure it, greedy: the sets of models/nano/eval.

    python tools/nano/evaluate.py [--only NAME,...] [--limit N] [--show N] [--write]      the table; --write:
      eval/pytorch.json
    python tools/nano/evaluate.py --ask "What is 17 + 25?" [--instant]

The arithmetic is float32 with every INT4 weight dequantized to float(q) * float(scale). Prompts are rendered, and tool
calls parsed, by the built engine (`moonlet text`), the model runs here.
"""

import argparse
import base64
import datetime
import io
import json
import re
import struct

import numpy as np
import torch

import config
import dialogues
from config import OUT, read_text
from model import Kimi, Moe, generate
from tokenizer import Tokenizer
from vision import Vision, expand, insert


def read_checkpoint(folder):
    """All tensors of the shards the index names; bf16 becomes float32 (exactly)."""
    out = {}
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for shard in sorted(set(index["weight_map"].values())):
        data = (folder / shard).read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        for name, h in json.loads(data[8 : 8 + n]).items():
            lo, hi = (8 + n + o for o in h["data_offsets"])
            if h["dtype"] == "BF16":
                a = (np.frombuffer(data[lo:hi], "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                a = np.frombuffer(data[lo:hi], {"F32": "<f4", "I32": "<i4"}[h["dtype"]])
            out[name] = torch.from_numpy(a.copy().reshape(h["shape"]))
    assert out.keys() == index["weight_map"].keys()
    return out


def unpack(packed, scale):
    """float(q) * float(scale) of a pack-quantized matrix. [N, K/8] int32, [N, K/32] -> [N, K]"""
    q = (packed[..., None] >> (4 * torch.arange(8, dtype=torch.int32)) & 15).flatten(-2) - 8
    return (q.float().unflatten(-1, (scale.shape[-1], -1)) * scale[..., None]).flatten(-2)


def load(folder=OUT):
    """The text model with exactly the weights on disk."""
    c, t = config.read(folder), read_checkpoint(folder)
    state = {}
    for i in range(c.layers):
        base = f"language_model.model.layers.{i}."
        for name in [n for n in t if n.startswith(base) and ".mlp.experts." not in n]:
            state[name.removeprefix("language_model.model.")] = t[name]
        if i == 0:
            continue
        w = lambda e, p: unpack(*(t[f"{base}mlp.experts.{e}.{p}.weight_{s}"] for s in ("packed", "scale")))
        state[f"layers.{i}.mlp.gate_up"] = torch.stack(
            [torch.cat([w(e, "gate_proj"), w(e, "up_proj")]) for e in range(c.experts)]
        )
        state[f"layers.{i}.mlp.down"] = torch.stack([w(e, "down_proj") for e in range(c.experts)])
    state["embed_tokens.weight"] = t["language_model.model.embed_tokens.weight"]
    state["lm_head.weight"] = t["language_model.lm_head.weight"]
    state["norm.weight"] = t["language_model.model.norm.weight"]
    model = Kimi(c)
    model.load_state_dict(state)
    for m in model.modules():
        if isinstance(m, Moe):
            m.quantize = False  # the weights are what they are
    return model.eval()


def load_vision(folder=OUT):
    eyes = Vision()
    eyes.load_state_dict(
        {n: t for n, t in read_checkpoint(folder).items() if n.startswith(("vision_tower.", "mm_projector."))}
    )
    return eyes.eval()


# ---- answers ----------------------------------------------------------------------------------


class Reader:
    """The model and all that is needed to ask it."""

    def __init__(self, folder, dev):
        self.folder, self.dev, self.tok = folder, dev, Tokenizer(folder)
        self.model, self.eyes = load(folder).to(dev), load_vision(folder).to(dev)
        self.media = self.tok.id["<|media_pad|>"]

    def prompts(self, requests):
        return [r["ids"] for r in dialogues.engine("render", requests, self.folder)]

    def say(self, prompts, limit, batch=256):
        """Greedy continuations; prompts of like length together."""
        order, out = sorted(range(len(prompts)), key=lambda i: len(prompts[i])), [None] * len(prompts)
        for at in range(0, len(order), batch):
            some = order[at : at + batch]
            for i, ids in zip(some, generate(self.model, [prompts[i] for i in some], self.tok.end, limit)):
                out[i] = ids
        return out

    def look(self, prompts, pictures, limit, batch=64):
        """The same with one picture each, (patches [n, 3, 14, 14], grid)."""
        out = []
        for at in range(0, len(prompts), batch):
            some = pictures[at : at + batch]
            grids = [g for _, g in some]
            with torch.no_grad():
                seen = self.eyes(torch.cat([torch.from_numpy(p) for p, _ in some]).to(self.dev), grids)
            ids = [expand(p, [g], self.media) for p, g in zip(prompts[at : at + batch], grids)]
            out += generate(self.model, ids, self.tok.end, limit, lambda x, i: insert(x, i, seen, self.media))
        return out

    def text(self, ids):
        return self.tok.enc.decode(ids)

    def parsed(self, replies, thinking, tools):
        lines = [{"ids": r, "reasoning": t} | ({"tools": u} if u else {}) for r, t, u in zip(replies, thinking, tools)]
        return dialogues.engine("parse", lines, self.folder)


def wanted(item):
    return item["answer"].split("#### ")[1]


def final_number(text):
    """The last whole number of an answer, or None."""
    found = re.findall(r"-?\d+", text.replace(",", ""))
    return int(found[-1]) if found else None


def well_ended(r, ids, thinking):
    """The turn ends, and the reasoning is closed once (thinking) or never touched (instant)."""
    marks = [x for x in ids if x in (r.tok.think, r.tok.unthink)]
    return ids[-1] == r.tok.end and marks == ([r.tok.unthink] if thinking else [])


def visible(r, ids):
    ids = ids[:-1] if ids[-1] == r.tok.end else ids
    if r.tok.unthink in ids:
        ids = ids[ids.index(r.tok.unthink) + 1 :]
    return r.text(ids)


def report(show, item, r, ids, ok):
    if not ok and show[0] > 0:
        show[0] -= 1
        ask = item.get("question") or item["messages"][-1]["content"]
        print(f"WRONG {ask[-300:]!r}\n  want {item.get('answer') or item.get('expect')!r}\n  got  {r.text(ids)!r}")
    return ok


def numbers(r, name, items, show):
    """Rows `name thinking` and `name instant`."""
    rows = {}
    for thinking in (True, False):
        d = [dialogues.dialogue([dialogues.user(it["question"])], thinking) for it in items]
        replies = r.say(r.prompts([dialogues.request(x, 1) for x in d]), 500)
        rows[f"{name} {'thinking' if thinking else 'instant'}"] = [
            sum(
                report(
                    show, it, r, ids, well_ended(r, ids, thinking) and final_number(visible(r, ids)) == int(wanted(it))
                )
                for it, ids in zip(items, replies)
            ),
            len(items),
        ]
    return rows


def tools(r, name, items, show):
    """The call, then, with the tool's results, the answer; thinking."""
    import toolcalls

    ask = lambda extra: [
        dialogues.request(dialogues.dialogue(it["messages"] + e, True, it["tools"]), None)
        for it, e in zip(items, extra)
    ]
    first = r.say(r.prompts(ask([[]] * len(items))), 300)
    declared = [it["tools"] for it in items]
    turns = r.parsed(first, [True] * len(items), declared)
    judged = [toolcalls.judge(it, m) for it, m in zip(items, turns)]
    for it, ids, (_, right) in zip(items, first, judged):
        report(show, it, r, ids, right)
    replies = r.say(
        r.prompts(ask([[dialogues.assistant("") | {"tool_calls": it["calls"]}, *it["results"]] for it in items])), 200
    )
    fits = [
        wanted(it) in re.findall(r"[\w.-]*\w", visible(r, ids)) and ids[-1] == r.tok.end
        for it, ids in zip(items, replies)
    ]
    for it, ids, ok in zip(items, replies, fits):
        report(show, it, r, ids, ok)
    n = len(items)
    return {
        "tools well-formed": [sum(w for w, _ in judged), n],
        "tools call": [sum(c for _, c in judged), n],
        "tools answer": [sum(fits), n],
    }


def needle_rows(r, name, items, show):
    import needles

    lines = read_text(r.folder / "eval/haystack.txt").splitlines()
    d = [needles.item_dialogue(lines, it) for it in items]
    prompts = r.prompts([dialogues.request(x, -1) for x in d])
    assert max(map(len, prompts)) <= r.model.c.context
    replies = [r.say([p], 60)[0] for p in prompts]
    return {
        "needles 16k": [
            sum(
                report(show, it, r, ids, well_ended(r, ids, True) and wanted(it) in visible(r, ids))
                for it, ids in zip(items, replies)
            ),
            len(items),
        ]
    }


def talk(r, name, items, show):
    d = [dialogues.dialogue([dialogues.user(it["question"])]) for it in items]
    replies = r.say(r.prompts([dialogues.request(x, 1) for x in d]), 200)
    fine = lambda it, t: any(e in t.lower() for e in it["expect"]) and len(t) <= it["length"]
    return {
        "talk": [
            sum(
                report(show, it, r, ids, ids[-1] == r.tok.end and fine(it, visible(r, ids)))
                for it, ids in zip(items, replies)
            ),
            len(items),
        ]
    }


def picture_rows(r, name, items, show):
    """Right: the final answer in the words of the set; what was seen is in the reasoning."""
    from PIL import Image

    import pictures
    from preprocess import patches

    open_ = lambda url: Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1])))
    part = {"type": "image_url", "image_url": {"url": "data:,"}}
    d = [dialogues.dialogue([dialogues.user([part, {"type": "text", "text": it["question"]}])], True) for it in items]
    replies = r.look(
        r.prompts([dialogues.request(x, 1) for x in d]), [patches(open_(it["image"])) for it in items], 200
    )
    said = lambda it: it["answer"].split("\n")[-2]
    return {
        "pictures": [
            sum(
                report(show, it, r, ids, well_ended(r, ids, True) and visible(r, ids) == said(it))
                for it, ids in zip(items, replies)
            ),
            len(items),
        ]
    }


SETS = {
    "wordproblems": numbers,
    "handwritten": numbers,
    "arithmetic": numbers,
    "tools": tools,
    "needles": needle_rows,
    "talk": talk,
    "pictures": picture_rows,
}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", type=type(OUT), default=OUT)
    ap.add_argument("--only", help="names of sets, with commas")
    ap.add_argument("--limit", type=int, default=1 << 30, help="the first N items of each set")
    ap.add_argument("--show", type=int, default=0, help="print so many wrong answers of each set")
    ap.add_argument("--write", action="store_true", help="write eval/pytorch.json")
    ap.add_argument("--commit", default="", help="noted in the file")
    ap.add_argument("--ask", action="append", help="print the answer to a question instead")
    ap.add_argument("--instant", action="store_true")
    a = ap.parse_args()
    cuda = torch.cuda.is_available()
    r = Reader(a.model, "cuda" if cuda else "cpu")
    if a.ask:
        d = [dialogues.dialogue([dialogues.user(q)], not a.instant) for q in a.ask]
        for q, ids in zip(a.ask, r.say(r.prompts([dialogues.request(x, 1) for x in d]), 400)):
            print(f"{q!r} -> {r.text(ids)!r}")
        return
    rows = {}
    for name in a.only.split(",") if a.only else SETS:
        items = [json.loads(line) for line in read_text(a.model / f"eval/{name}.jsonl").splitlines()][: a.limit]
        for row, (right, n) in SETS[name](r, name, items, [a.show]).items():
            rows[row] = [right, n]
            print(f"{row}: {right} of {n} = {100 * right / n:.1f} %", flush=True)
    if a.write:
        chip = torch.cuda.get_device_name() if cuda else "CPU"
        (a.model / "eval/pytorch.json").write_text(
            json.dumps({"date": str(datetime.date.today()), "chip": chip, "commit": a.commit, "rows": rows}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
