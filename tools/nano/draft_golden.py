"""Golden values of the exported drafts for the engine's tests, in float32 from the files on disk.

    python tools/nano/draft_golden.py [--models models] [--out FILE]      needs the built engine

Writes tests/data/nano-eagle3/golden.jsonl.

One JSON object a line:
    layout, text, ids      which draft; the prompt, readable and as ids t_0 .. t_{m-1}
    root                   the model's greedy token t_m after the prompt
    taps                   the residual stream is read before these layers
    features               a list for each tap: the root mean square at every position, and the last position's first 4
                           values
    margin                 at each position the smallest distance of any layer's router between the last expert that it
                           chose and the first that it did not: below 1e-3, arithmetic in bf16 may choose the other
    first                  the first pass: at each position i, which reads (feature of t_i, embedding of t_{i+1}), the
                           five
                           likeliest tokens i + 2, [[id, log-probability] x 5]
    chain                  three drafts after `root`: each {"id", "top5"}; chain[0] is first's last position
    z                      the layer's output (before the norm) at first's last position and after chain[0] and
      chain[1]: first 4 values
    tree                   four steps of a tree behind `root`, three guesses each: [[id, index of the guess before it or
                           -1, sum of log-probabilities]], beams in the order of their guesses
    greedy                 the model's greedy text, t_m first, at most 48 tokens
    rounds                 what greedy speculative decoding with 3 drafts does: [[drafts], tokens kept] each round
"""

import argparse
import json
import pathlib

import torch

import dialogues
import draft_export
import evaluate
import speculate
from config import ROOT
from dialogues import assistant, user
from draft_model import LAYOUTS, chain_anew, tree_anew
from model import Router
from tokenizer import Tokenizer

STEPS, LIMIT = 3, 48
TREE_STEPS, TOPK = 4, 3
CHATS = [  # (messages, thinking)
    ([user("What is 17 + 25?")], True),
    ([user("9 * 8")], False),
    ([{"role": "system", "content": "You are a helpful assistant."}, user("Who are you?")], True),
    ([user("12 + 30"), assistant("12 + 30 = 42."), user("and times 3?")], True),
    ([user("Anna has 46 apples and gives 18 to Tom. How many apples are left?")], True),
]


def say(x):
    return float(f"{x:.7g}")


def top5(logits):
    top = logits.log_softmax(-1).topk(5, -1)
    return [[[i, say(x)] for i, x in zip(a, b)] for a, b in zip(top.indices.tolist(), top.values.tolist())]


def margins(model, ids):
    found, forward = [], Router.forward

    def watched(self, x):
        s = torch.nn.functional.linear(x.float(), self.weight.to(torch.bfloat16).float()).sigmoid()
        top = (s + self.e_score_correction_bias).view(len(ids), -1).topk(self.c.topk + 1, -1).values
        found.append(top[:, -2] - top[:, -1])
        return forward(self, x)

    Router.forward = watched
    model.logits(torch.tensor([ids]))
    Router.forward = forward
    return [say(x) for x in torch.stack(found).min(0).values.tolist()]


@torch.no_grad()
def record(model, draft, tok, ids):
    d = draft.d
    T, D = len(ids), model.c.hidden
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    hidden, _, f = model(torch.tensor([ids]), torch.arange(T)[None], mask, taps=d.taps)
    root = int(model.lm_head(hidden[0, -1]).argmax())
    features = [
        {"rms": [say(x) for x in part.pow(2).mean(-1).sqrt().tolist()], "last": [say(x) for x in part[-1, :4].tolist()]}
        for part in f[0].split(D, -1)
    ]
    drafts = chain_anew(draft, f, [*ids[1:], root], STEPS)
    chain = [{"id": t, "top5": top5(logits[-1:])[0]} for t, logits, _ in drafts]
    z = [[say(v) for v in last[:4].tolist()] for _, _, last in drafts]
    make = lambda b, slots, k: Recorder(draft, b, slots, k)
    log.clear()
    (text,), (stats,) = speculate.speculate(model, make, d.taps, [ids], tok.end, LIMIT, STEPS)
    assert text == evaluate.generate(model, [ids], tok.end, LIMIT)[0], "speculative text is not the plain text"
    assert log[0][0] == [c["id"] for c in chain], "drafts with a cache and without"
    return {
        "layout": d.layout,
        "text": tok.enc.decode(ids),
        "ids": ids,
        "root": root,
        "taps": list(d.taps),
        "features": features,
        "margin": margins(model, ids),
        "first": top5(drafts[0][1]),
        "chain": chain,
        "z": z,
        "tree": [[*guess, say(x)] for *guess, x in tree_anew(draft, f, [*ids[1:], root], TREE_STEPS, TOPK)],
        "greedy": text,
        "rounds": log[: stats.rounds],
    }, stats


log = []  # [drafts, tokens kept] of each round


class Recorder(speculate.Drafter):
    def start(self, *a):
        drafts = super().start(*a)
        log.append([drafts[0].tolist(), None])
        return drafts

    def next(self, pick, at, features, kept):
        log[-1][1] = int(kept[0])
        drafts = super().next(pick, at, features, kept)
        log.append([drafts[0].tolist(), None])
        return drafts


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--models", default=ROOT / "models", type=pathlib.Path)
    ap.add_argument("--out", default=ROOT / "tests/data/nano-eagle3/golden.jsonl", type=pathlib.Path)
    a = ap.parse_args()
    tok, model = Tokenizer(), evaluate.load()
    rendered = dialogues.engine(
        "render", [dialogues.request(dialogues.dialogue(m, thinking), len(m)) for m, thinking in CHATS]
    )
    a.out.parent.mkdir(parents=True, exist_ok=True)
    with open(a.out, "w") as f:
        for layout in LAYOUTS:
            draft = draft_export.load(a.models / draft_export.FOLDERS[layout], model)
            for chat in rendered:
                r, stats = record(model, draft, tok, chat["ids"])
                f.write(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n")
                print(
                    layout,
                    len(r["ids"]),
                    "ids",
                    repr(tok.enc.decode(r["greedy"])),
                    f"acceptance length {stats.length:.2f}",
                )


if __name__ == "__main__":
    main()
