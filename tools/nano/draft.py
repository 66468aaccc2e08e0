"""The drafts of nano in one go: prompts, nano's answers, training of both layouts, export, evaluation.

    python tools/nano/draft.py --out DIR [--minutes 9] [--models DIR2]

Everything lies in DIR and every stage goes on where it was cut off: call again with the same DIR. --minutes is for all
stages together, of this call. The exported drafts go to DIR2 (default: models), the log to DIR/draft.log.
`python tools/nano/draft_data.py prompts --out DIR` beforehand, on any machine with the built engine, saves that stage.
"""

import argparse
import json
import os
import pathlib
import time

import torch

import draft_data
import draft_evaluate
import draft_export
import draft_train
import evaluate
from config import ROOT
from draft_model import LAYOUTS
from tokenizer import Tokenizer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True, type=pathlib.Path)
    ap.add_argument("--models", default=ROOT / "models", type=pathlib.Path)
    ap.add_argument("--minutes", type=float, default=9)
    ap.add_argument("--prompts", type=int, default=110000, help="dialogues; about 1.5 prompts each")
    ap.add_argument("--share", type=float, default=0.3, help="part of the time for the answers, at most")
    ap.add_argument("--reserve", type=float, default=60, help="seconds kept for export and evaluation")
    ap.add_argument("--steps", type=int, default=8000)
    ap.add_argument("--layouts", default=",".join(LAYOUTS))
    ap.add_argument("--rows", type=int, default=1024, help="answered at the same time")
    ap.add_argument("--batch", type=int, default=32, help="rows a training step")
    ap.add_argument("--width", type=int, default=1024)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--depth", type=int, default=4)
    ap.add_argument("--every", type=int, default=100)
    ap.add_argument("--count", type=int, default=64, help="evaluation prompts of each kind")
    ap.add_argument(
        "--no-compile", "--no-graph", action="store_true", dest="no_graph", help="answers without a CUDA graph"
    )
    a = ap.parse_args()
    start, budget = time.time(), a.minutes * 60
    os.makedirs(a.out, exist_ok=True)
    log = open(a.out / "draft.log", "a")

    def say(text):
        text = f"[{time.time() - start:5.0f} s] {text}"
        print(text, flush=True)
        log.write(text + "\n")
        log.flush()

    dev, layouts = "cuda" if torch.cuda.is_available() else "cpu", tuple(a.layouts.split(","))
    draft_data.make_prompts(a.out, a.prompts, say=say)  # before the GPU is touched: it forks
    by_kind = draft_evaluate.prompts_for(a.out, a.count)
    tok, model = Tokenizer(), evaluate.load().to(dev).requires_grad_(False)
    torch.set_float32_matmul_precision("highest")  # the evaluation is float32
    say(f"{dev} {torch.cuda.get_device_name() if dev == 'cuda' else ''}, torch {torch.__version__}")
    work = draft_data.half_precision(evaluate.load().to(dev).requires_grad_(False)) if dev == "cuda" else model
    done = draft_data.make_answers(work, tok, a.out, a.share * budget, a.rows, not a.no_graph, say=say)
    say("all prompts answered" if done else "the answers' time is up; what is there is used")
    if dev == "cuda":
        torch.cuda.empty_cache()
    # A later call has the seconds of earlier ones behind it in train.json, and gets its own on top.
    past = json.loads(state.read_text())["seconds"] if (state := a.out / "train.json").exists() else 0.0
    left = max(1.0, budget - a.reserve - (time.time() - start))
    drafts = draft_train.train(
        work, a.out, a.steps, past + left, layouts, a.depth, a.width, a.batch, a.lr, every=a.every, say=say
    )
    for draft in drafts:
        folder = a.models / draft_export.FOLDERS[draft.d.layout]
        say(f"{draft_export.export(draft, folder)} bytes of weights in {folder}")
    read = {name: draft_export.load(a.models / draft_export.FOLDERS[name], model, dev) for name in layouts}
    result = draft_evaluate.evaluate_drafts(model, read, by_kind, tok.end, say=say)
    if dev == "cuda":
        say(f"most GPU memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    text = json.dumps({"steps": 3, "device": dev} | result)
    (a.out / "result.json").write_text(text + "\n")
    say(text)


if __name__ == "__main__":
    main()
