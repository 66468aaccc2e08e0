"""Acceptance of the exported drafts on held-out prompts: real greedy speculative decoding, chain, three steps.

    python tools/nano/draft_evaluate.py [--models models] [--count 64] [--steps 3] [--layouts llama,mla] [--json FILE]

Arithmetic is float32 with the weights on disk. Acceptance length: tokens a pass of the model, the model's own one
included; tokens after the end of a text do not count. "position i": how often the first i drafts were all kept. The
text must be that of plain greedy decoding. Where it is not, the model's two best tokens at the first difference are
printed with their distance: verification adds up in another order, so an exact tie may fall either way. Prompts are the
generators' evaluation items (needs the built engine), or DIR/held-out.json where --prompts DIR has it.
"""

import argparse
import json
import pathlib
import time

import torch

import corpus
import dialogues
import draft_export
import needles
import sources
import speculate
import talk
import toolcalls
import wordproblems
from config import ROOT
from draft_model import LAYOUTS
from tokenizer import Tokenizer

LIMIT = 400


def turn(item, second):
    """A tool item's first turn (the call) or its second (the answer to the tool's reply)."""
    call = {"role": "assistant", "content": "", "tool_calls": item["calls"]}
    return {"messages": [*item["messages"], *([call, *item["results"]] if second else [])], "tools": item["tools"]}


def held_out(count):
    """{kind: prompts as ids}: evaluation items of each generator, thinking; needles of training's short length."""
    ask = lambda items: [{"messages": [dialogues.user(it["question"])]} for it in items]
    requests = {
        "wordproblems": ask(wordproblems.evaluation(count)),
        "arithmetic": ask(corpus.evaluation(count)),
        "tools": [turn(it, i % 2) for i, it in enumerate(toolcalls.evaluation(count))],
        "talk": ask(talk.evaluation(count)),
        "needles": [
            dialogues.request(needles.item_dialogue(needles.haystack(), it), -1)
            for it in needles.evaluation(count, length=sources.SHORT_NEEDLE)
        ],
    }
    out = {}
    for kind, each in requests.items():
        for r in each:
            r["add_generation_prompt"] = True
        out[kind] = [a["ids"] for a in dialogues.engine("render", each)]
    return out


def prompts_for(folder, count):
    """Of DIR/held-out.json, which is made if it does not exist; or made anew where folder is None."""
    if folder is None:
        return held_out(count)
    path = pathlib.Path(folder) / "held-out.json"
    if not path.exists():
        path.write_text(json.dumps(held_out(count)))
    return {kind: p[:count] for kind, p in json.loads(path.read_text()).items()}


def difference(model, prompt, plain, text):
    """The model's first and second choice and their distance where two texts part."""
    n = next(i for i, (a, b) in enumerate(zip(plain, text)) if a != b)
    ids = torch.tensor([prompt + plain[:n]], device=model.embed_tokens.weight.device)
    with torch.no_grad():
        top = model.logits(ids)[0, -1].topk(2)
    return n, top.indices.tolist(), float(top.values[0] - top.values[1])


def measure(model, draft, prompts, plain, stop, steps, limit, batch, say=print):
    """Totals over all prompts of a kind, and how many texts equal plain decoding's."""
    stats, same = [], 0
    make = lambda b, slots, k: speculate.Drafter(draft, b, slots, k)
    for i in range(0, len(prompts), batch):
        part = prompts[i : i + batch]
        texts, s = speculate.speculate(model, make, draft.d.taps, part, stop, limit, steps)
        stats += s
        for prompt, want, got in zip(part, plain[i : i + batch], texts):
            same += want == got
            if want != got:
                say(
                    "  differs from plain decoding after %d tokens: choices %s, %.2g apart"
                    % difference(model, prompt, want, got)
                )
    return speculate.total(stats, steps), same


def evaluate_drafts(model, drafts, by_kind, stop, steps=3, limit=LIMIT, batch=64, say=print):
    """{layout: {kind: {...}, "all": {...}}}; prints a table."""
    start = time.time()
    plain = {
        kind: [t for i in range(0, len(p), batch) for t in speculate.greedy(model, p[i : i + batch], stop, limit)]
        for kind, p in by_kind.items()
    }
    say(f"plain decoding: {sum(len(t) for p in plain.values() for t in p)} tokens, {time.time() - start:.0f} s")
    out = {}
    for layout, draft in drafts.items():
        result, everything, all_same, n = {}, [], 0, 0
        for kind, prompts in by_kind.items():
            t, same = measure(model, draft, prompts, plain[kind], stop, steps, limit, batch, say)
            result[kind] = row(t, same, len(prompts))
            everything, all_same, n = everything + [t], all_same + same, n + len(prompts)
            say(line(layout, kind, result[kind]))
        result["all"] = row(speculate.total(everything, steps), all_same, n)
        say(line(layout, "all", result["all"]) + f"   ({time.time() - start:.0f} s)")
        out[layout] = result
    return out


def row(t, same, n):
    return {
        "prompts": n,
        "identical": same,
        "tokens": t.tokens,
        "passes": t.rounds,
        "length": round(t.length, 4),
        "position": [round(x, 4) for x in t.by_position()],
    }


def line(layout, kind, r):
    return (
        f"{layout:6} {kind:12} acceptance length {r['length']:.3f}   positions {' '.join(f'{x:.3f}' for x in r['position'])}   "
        f"{r['tokens']} tokens, {r['passes']} passes, {r['identical']} of {r['prompts']} texts identical"
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--models", default=ROOT / "models", type=pathlib.Path, help="the folder with the drafts' folders")
    ap.add_argument("--layouts", default=",".join(LAYOUTS))
    ap.add_argument("--count", type=int, default=64, help="prompts of each kind")
    ap.add_argument("--kinds")
    ap.add_argument("--steps", type=int, default=3)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--limit", type=int, default=LIMIT)
    ap.add_argument("--prompts", help="a folder with held-out.json")
    ap.add_argument("--json", help="write the result there too")
    a = ap.parse_args()
    import evaluate

    dev = "cuda" if torch.cuda.is_available() else "cpu"
    model = evaluate.load().to(dev)
    drafts = {
        name: draft_export.load(a.models / draft_export.FOLDERS[name], model, dev) for name in a.layouts.split(",")
    }
    by_kind = prompts_for(a.prompts, a.count)
    if a.kinds:
        by_kind = {k: by_kind[k] for k in a.kinds.split(",")}
    text = json.dumps(
        {"steps": a.steps, "device": dev}
        | evaluate_drafts(model, drafts, by_kind, Tokenizer().end, a.steps, a.limit, a.batch)
    )
    print(text)
    if a.json:
        pathlib.Path(a.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
