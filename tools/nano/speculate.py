"""Greedy speculative decoding of a batch, chain of drafts: the reference that an engine's draft loop is compared with.

Terms: m tokens of a row are in the model's cache; `root` is the last token known, not yet in it. A round verifies
[root, d1 .. dk] in one pass. The model's choice after root and after each draft that equals its choice is kept: a
tokens, 1 <= a <= k + 1, the last of which is the new root. The draft then reads the model's features of the kept rows,
overwriting what it had written from its own guesses, and guesses again.
"""

from dataclasses import dataclass, field

import torch

from draft_model import Cached
from slots import Slots, Target


class Drafter:
    """The draft with its cache. Slot i holds (feature of token i, token i + 1)."""

    def __init__(self, draft, batch, slots, steps, dtype=torch.float32):
        d, c = draft.d, draft.d.target
        dk, dv = (d.head_dim, d.head_dim) if d.layout == "llama" else (c.nope + c.rope, c.v_dim)
        self.draft, self.steps = draft, steps
        self.slots = Slots(batch, d.heads, slots, dk, dv, dtype, draft.fc.weight.device)
        self.attend = Cached(self.slots)

    def start(self, ids, length, first, features):
        """After the prompt [B, W]: the following tokens are the prompt shifted by one and, last, `first` [B]."""
        rows = torch.arange(len(ids), device=ids.device)
        following = ids.roll(-1, 1)
        following[rows, length - 1] = first
        self.slots.fill(0, len(ids))
        pos = torch.arange(ids.shape[1], device=ids.device)[None]
        z = self.draft(self.draft.fuse(features), following, pos, self.attend)
        return self.chain(z[rows, length - 1], length)

    def next(self, pick, at, features, kept):
        """After a verification: pick, at [B, n], features [B, n, 3D], kept tokens [B]. Rows beyond `kept` are
        overwritten."""
        self.slots.point(at)
        z = self.draft(self.draft.fuse(features), pick, at, self.attend)
        return self.chain(z[torch.arange(len(z), device=z.device), kept - 1], at[:, 0] + kept)

    def chain(self, z, at):
        """z [B, D] of the live row, at [B] the slot behind it. Drafts [B, steps]."""
        drafts = []
        for s in range(self.steps):
            drafts.append(self.draft.logits(z).argmax(-1))
            if s + 1 < self.steps:
                slot = (at + s)[:, None]
                self.slots.point(slot)
                z = self.draft(z[:, None], drafts[-1][:, None], slot, self.attend)[:, 0]
        return torch.stack(drafts, 1)


@dataclass
class Stats:
    steps: int
    tokens: int = 0  # kept in rounds, up to the end of the text
    rounds: int = 0
    tried: list = field(default_factory=list)  # rounds in which draft i could have been kept
    kept: list = field(default_factory=list)  # and in which drafts 1 .. i all were

    def __post_init__(self):
        self.tried, self.kept = [0] * self.steps, [0] * self.steps

    def add(self, emitted, drafts, text_left):
        """One round of one row: emitted tokens cut at the end of the text, the drafts, tokens until the text ends."""
        self.rounds += 1
        self.tokens += len(emitted)
        for i in range(min(self.steps, text_left)):
            self.tried[i] += 1
            self.kept[i] += emitted[: i + 1] == drafts[: i + 1]

    @property
    def length(self):
        return self.tokens / max(1, self.rounds)

    def by_position(self):
        return [k / max(1, t) for k, t in zip(self.kept, self.tried)]


def pad_right(prompts, dev):
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    for row, p in zip(ids, prompts):
        row[: len(p)] = torch.tensor(p)
    return ids.to(dev), torch.tensor([len(p) for p in prompts], device=dev)


@torch.no_grad()
def greedy(model, prompts, stop, limit):
    """Plain decoding, one token a pass."""
    dev = model.embed_tokens.weight.device
    ids, m = pad_right(prompts, dev)
    target = Target(model, len(prompts), ids.shape[1] + limit)
    token, out = target.prefill(ids, m)[0].argmax(-1), []
    ended = torch.zeros_like(m, dtype=torch.bool)
    for step in range(limit):
        out.append(token)
        ended |= token == stop
        if step % 16 == 15 and bool(ended.all()):
            break
        if step + 1 < limit:
            token, m = target.step(token[:, None], m[:, None])[0][:, 0].argmax(-1), m + 1
    return [cut(row, stop) for row in torch.stack(out, 1).tolist()]


def cut(ids, stop):
    return ids[: ids.index(stop) + 1] if stop in ids else ids


@torch.no_grad()
def speculate(model, make_drafter, taps, prompts, stop, limit, steps=3):
    """make_drafter(batch, slots, steps) -> an object with start() and next(). Texts, and Stats a prompt."""
    dev = model.embed_tokens.weight.device
    ids, m = pad_right(prompts, dev)
    slots = ids.shape[1] + limit + 2 * steps + 2
    target, drafter = Target(model, len(prompts), slots, taps=taps), make_drafter(len(prompts), slots, steps)
    logits, features = target.prefill(ids, m)
    root = logits.argmax(-1)
    drafts = drafter.start(ids, m, root, features)
    out = [[t] for t in root.tolist()]
    rounds = [[] for _ in prompts]  # (tokens emitted, drafts) a round
    live = [t[-1] != stop and limit > 1 for t in out]
    offsets = torch.arange(steps + 1, device=dev)
    while any(live):
        row, at = torch.cat([root[:, None], drafts], 1), m[:, None] + offsets
        logits, features = target.step(row, at)
        pick = logits.argmax(-1)
        kept = 1 + (row[:, 1:] == pick[:, :-1]).long().cumprod(1).sum(1)
        following = drafter.next(pick, at, features, kept)
        for b, (p, a, d) in enumerate(zip(pick.tolist(), kept.tolist(), drafts.tolist())):
            if live[b]:
                emitted = cut(p[:a], stop)[: limit - len(out[b])]
                out[b] += emitted
                rounds[b].append((emitted, d))
                live[b] = emitted[-1] != stop and len(out[b]) < limit
        going = torch.tensor(live, device=dev)
        root = torch.where(going, pick.gather(1, kept[:, None] - 1)[:, 0], root)
        m = torch.where(going, m + kept, m)
        drafts = following
    stats = []
    for text, past in zip(out, rounds):
        s, done = Stats(steps), 1
        for emitted, d in past:
            s.add(emitted, d, len(text) - done)
            done += len(emitted)
        stats.append(s)
    return out, stats


def total(stats, steps):
    t = Stats(steps)
    for s in stats:
        t.tokens, t.rounds = t.tokens + s.tokens, t.rounds + s.rounds
        t.tried, t.kept = ([a + b for a, b in zip(x, y)] for x, y in ((t.tried, s.tried), (t.kept, s.kept)))
    return t
