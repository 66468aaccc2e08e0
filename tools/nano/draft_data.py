"""Text for the draft: prompts of every kind, answered by nano itself.

    python tools/nano/draft_data.py prompts --out DIR [--count N]     DIR/prompts.npz; needs the built engine
      (dialogues.py)
    python tools/nano/draft_data.py answers --out DIR [--seconds S]   DIR/text-NNN.npz, until all prompts are answered
    python tools/nano/draft_data.py show --out DIR [--count 5]        reads some of it

A third of the answers is greedy, the others are sampled at temperature 0.7 or 0.8. Both stages go on where they
stopped. Text files: `ids` uint16, all sequences one after the other, bit 15 set where nano spoke; `length` of each
sequence.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import time

import numpy as np
import torch

import dialogues
import sources
from dialogues import LEARN
from slots import Target
from tokenizer import Tokenizer

LONGEST_PROMPT = 896
WIDTHS = (128, 256, 512, LONGEST_PROMPT)  # prompts are answered together with others of about their length
LONG, SHORT = 400, 240  # longest answers, tokens: of what is worked out, and of the rest
KINDS = list(sources.SOURCES)


# ---- prompts ----------------------------------------------------------------------------------


def _chunk(job):
    """Prompts of one chunk of dialogues: [(kind, ids)]."""
    seed, index, count = job
    rng = random.Random(f"draft/{seed}/{index}")
    drawn = [(kind, sources.make(kind, rng)) for kind in (sources.pick(rng) for _ in range(count))]
    turns = [
        (kind, d, i)
        for kind, d in drawn
        for i, m in enumerate(d["messages"])
        if m["role"] == "assistant" and m.get("learn", True)
    ]  # "learn" False: a history that nano would not have said
    answers = dialogues.engine("render", [dialogues.request(d, i) for _, d, i in turns])
    return [(kind, a["ids"]) for (kind, _, _), a in zip(turns, answers) if len(a["ids"]) <= LONGEST_PROMPT]


def make_prompts(folder, count, seed=1, chunk=500, say=print):
    """About `count` dialogues' prompts, one a turn."""
    path = pathlib.Path(folder) / "prompts.npz"
    if path.exists():
        return
    start = time.time()
    jobs = [(seed, i, min(chunk, count - i * chunk)) for i in range(-(-count // chunk))]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        found = [p for part in pool.imap(_chunk, jobs) for p in part]
    save(
        path,
        ids=np.concatenate([np.array(ids, np.uint16) for _, ids in found]),
        length=np.array([len(ids) for _, ids in found], np.int32),
        kind=np.array([KINDS.index(k) for k, _ in found], np.uint8),
    )
    say(
        f"prompts: {len(found)} of {count} dialogues, {sum(len(p) for _, p in found)} tokens, {time.time() - start:.0f} s"
    )


def save(path, **arrays):
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, **arrays)
    part.rename(path)


def read_prompts(folder):
    with np.load(pathlib.Path(folder) / "prompts.npz") as z:
        ends = z["length"].astype(np.int64).cumsum()
        return list(zip(z["kind"].tolist(), np.split(z["ids"], ends[:-1])))


# ---- answers ----------------------------------------------------------------------------------


class Generator:
    """Answers batches of B prompts of up to W tokens; one CUDA graph a token where there is a GPU."""

    def __init__(self, model, batch, width, limit, stop, pad, graph=True, half=None):
        self.dev = model.embed_tokens.weight.device
        self.cuda = self.dev.type == "cuda"
        self.half = self.cuda if half is None else half
        self.model, self.width, self.limit, self.stop, self.pad = model, width, limit, stop, pad
        with torch.no_grad():
            self.target = Target(model, batch, width + limit, torch.bfloat16 if self.half else torch.float32)
        new = lambda *shape, dtype=torch.long: torch.zeros(*shape, dtype=dtype, device=self.dev)
        self.token, self.at, self.column = new(batch, 1), new(batch, 1), new(1)
        self.out, self.done, self.heat = (
            new(batch, limit),
            new(batch, dtype=torch.bool),
            new(batch, 1, dtype=torch.float32),
        )
        self.graph = None
        if self.cuda and graph:
            self.graph = self.capture()

    def pick(self, logits):
        """Gumbel's trick; temperature 0 is the argmax."""
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
        return (logits + self.heat * noise).argmax(-1)

    def put(self, token):
        self.token.copy_(token[:, None])
        self.out.index_copy_(1, self.column, self.token)
        self.done.logical_or_(token == self.stop)

    def step(self):
        with torch.autocast(self.dev.type, torch.bfloat16, enabled=self.half, cache_enabled=False):
            logits, _ = self.target.step(self.token, self.at)
        self.column.add_(1)
        self.at.add_(1)
        self.put(self.pick(logits[:, 0]))

    def capture(self):
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), torch.no_grad():
                for _ in range(2):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                self.step()
            return graph
        except RuntimeError as e:
            torch.cuda.synchronize()
            print(f"no CUDA graph ({str(e).splitlines()[0]}): one kernel at a time", flush=True)
            return None

    @torch.no_grad()
    def run(self, prompts, heat, enough=0.98):
        """Answers up to and with the stop token; the last 2 % may be cut short. Unused rows of the batch repeat the
        first."""
        n, batch = len(prompts), len(self.token)
        rows = list(prompts) + [prompts[0]] * (batch - n)
        ids = np.zeros((batch, self.width), np.int64)
        for row, p in zip(ids, rows):
            row[: len(p)] = p
        length = torch.tensor([len(p) for p in rows], device=self.dev)
        self.heat.copy_(torch.tensor([*heat, *[0.0] * (batch - n)])[:, None])
        self.out.fill_(self.pad)
        self.done.zero_()
        self.done[n:] = True
        self.column.zero_()
        self.at.copy_(length[:, None])
        with torch.autocast(self.dev.type, torch.bfloat16, enabled=self.half, cache_enabled=False):
            logits, _ = self.target.prefill(torch.from_numpy(ids).to(self.dev), length)
        self.put(self.pick(logits))
        made = 1
        while made < self.limit:
            if made % 16 == 0 and float(self.done[:n].float().mean()) >= enough:
                break
            self.graph.replay() if self.graph else self.step()
            made += 1
        out = self.out[:n, :made].cpu().numpy()
        return [row[: ends[0] + 1] if len(ends := np.flatnonzero(row == self.stop)) else row for row in out]


def batches(prompts, rows, seed=1):
    """(width, limit, prompt indices): prompts of similar length and limit together, in shuffled order."""
    groups = {}
    for i, (kind, ids) in enumerate(prompts):
        width = next(w for w in WIDTHS if len(ids) <= w)
        limit = LONG if KINDS[kind] in ("wordproblems", "arithmetic") else SHORT
        groups.setdefault((width, limit), []).append(i)
    rng, out = random.Random(seed), []
    for (width, limit), members in sorted(groups.items()):
        per = max(1, rows if width <= 256 else rows // 2)
        rng.shuffle(members)
        members.sort(key=lambda i: prompts[i][0])  # answers of a kind are of similar length
        out += [(width, limit, members[i : i + per]) for i in range(0, len(members), per)]
    rng.shuffle(out)
    return out


def half_precision(model):
    """Weights as the GPU multiplies them; buffers (rotary frequencies, correction bias) keep float32."""
    for p in model.parameters():
        p.data = p.data.to(torch.bfloat16)
    return model


def make_answers(model, tok, folder, seconds=1e9, rows=1024, graph=True, part=4_000_000, seed=1, say=print):
    """Returns True when every prompt has been answered (or is in an earlier part)."""
    folder, start = pathlib.Path(folder), time.time()
    prompts = read_prompts(folder)
    jobs = batches(prompts, rows, seed)
    state = folder / "answers.json"
    at, parts = (json.loads(state.read_text())[k] for k in ("batches", "parts")) if state.exists() else (0, 0)
    torch.manual_seed(seed + at)
    made, spoken, held, generators, first = 0, 0, [], {}, at

    def flush():
        nonlocal parts, held
        if held:
            save(
                folder / f"text-{parts:03d}.npz",
                ids=np.concatenate(held),
                length=np.array([len(x) for x in held], np.int32),
            )
            parts, held = parts + 1, []
        state.write_text(json.dumps({"batches": at, "parts": parts}))

    while at < len(jobs) and time.time() - start < seconds:
        width, limit, members = jobs[at]
        size = rows if width <= 256 else max(1, rows // 2)
        if (width, limit) not in generators:
            generators[width, limit] = Generator(model, size, width, limit, tok.end, tok.pad, graph)
        heat = [(0.0, 0.7, 0.8)[i % 3] for i in members]
        for i, answer in zip(members, generators[width, limit].run([prompts[i][1] for i in members], heat)):
            held.append(np.concatenate([prompts[i][1], answer.astype(np.uint16) | LEARN]).astype(np.uint16))
            made, spoken = made + 1, spoken + len(answer)
        at += 1
        took = time.time() - start
        if at % 8 == 0 or at == len(jobs):
            say(
                f"answers: batch {at} of {len(jobs)}, {made} answers, {spoken} tokens, {spoken / took:.0f} tokens/s, "
                f"{took:.0f} s, {took / (at - first) * (len(jobs) - at):.0f} s left"
            )
        if sum(map(len, held)) >= part:
            flush()
    flush()
    return at == len(jobs)


def read_text(folder):
    """All sequences so far: a list of uint16 arrays."""
    out = []
    for path in sorted(pathlib.Path(folder).glob("text-???.npz")):
        with np.load(path) as z:
            out += np.split(z["ids"], z["length"].astype(np.int64).cumsum()[:-1])
    return out


def pack(sequences, width, seed=1):
    """Rows [R, width] of shuffled sequences: ids (bit 15: nano spoke), which of the row's sequences (0: padding)."""
    sequences = [s for s in sequences if len(s) <= width]
    random.Random(seed).shuffle(sequences)
    rows, opened = [], []  # opened: rows being filled, [tokens so far, sequences]
    for s in sequences:
        fit = next((r for r in opened if r[0] + len(s) <= width), None)
        if fit is None:
            fit = [0, []]
            opened.append(fit)
            if len(opened) > 16:
                rows.append(opened.pop(0)[1])
        fit[0] += len(s)
        fit[1].append(s)
    rows += [r[1] for r in opened]
    ids, seg = np.zeros((len(rows), width), np.uint16), np.zeros((len(rows), width), np.uint8)
    for i, parts in enumerate(rows):
        used = 0
        for n, s in enumerate(parts, 1):
            ids[i, used : used + len(s)], seg[i, used : used + len(s)] = s, n
            used += len(s)
    return ids, seg


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("stage", choices=("prompts", "answers", "show"))
    ap.add_argument("--out", required=True)
    ap.add_argument("--count", type=int, default=60000)
    ap.add_argument("--seconds", type=float, default=1e9)
    ap.add_argument("--rows", type=int, default=1024)
    ap.add_argument("--no-graph", action="store_true")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    tok = Tokenizer()
    if a.stage == "prompts":
        make_prompts(a.out, a.count)
    elif a.stage == "answers":
        import evaluate

        dev = "cuda" if torch.cuda.is_available() else "cpu"
        model = evaluate.load().to(dev)
        make_answers(half_precision(model) if dev == "cuda" else model, tok, a.out, a.seconds, a.rows, not a.no_graph)
    else:
        for s in random.Random(1).sample(read_text(a.out), a.count if a.count < 1000 else 5):
            print(
                repr(tok.enc.decode((s & (LEARN - 1)).tolist())),
                len(s),
                "tokens,",
                int((s >> 15).sum()),
                "of them nano's\n",
            )


if __name__ == "__main__":
    main()
