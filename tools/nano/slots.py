"""Key/value caches of a fixed size, for a whole batch: generation and speculative decoding on the GPU.

A row's token at position p lies in slot p, whatever its neighbours hold, and a query sees the slots up to its own.
So rows of different lengths need no padding mask: what lies beyond a row's end is overwritten before it is seen.
"""

import torch


class Slots:
    """One layer's keys [B, H, S, Dk] and values [B, H, S, Dv]."""

    def __init__(self, batch, heads, slots, dk, dv, dtype, dev):
        self.k = torch.zeros(batch, heads, slots, dk, dtype=dtype, device=dev)
        self.v = torch.zeros(batch, heads, slots, dv, dtype=dtype, device=dev)
        self.rows, self.at = None, None

    def fill(self, first, last):
        """The next put() is a whole pass over rows [first, last) from slot 0 on."""
        self.rows, self.at = slice(first, last), None

    def point(self, at):
        """The next put() writes slot at[b, n] for token n of row b."""
        self.rows, self.at = None, at

    def put(self, k, v):
        """Stores k, v [B, H, n, D*]; returns what the queries of this pass may see."""
        if self.rows is not None:
            self.k[self.rows, :, : k.shape[2]] = k.to(self.k.dtype)
            self.v[self.rows, :, : v.shape[2]] = v.to(self.v.dtype)
            return k, v
        for own, new in ((self.k, k), (self.v, v)):
            own.scatter_(2, self.at[:, None, :, None].expand_as(new), new.to(own.dtype))
        return self.k, self.v

    def seen(self):
        """bool [B, 1, n, S] for the pass that point() announced."""
        return torch.arange(self.k.shape[2], device=self.at.device) <= self.at[:, None, :, None]


class Target:
    """The model with caches: prefill, then any number of new tokens a row at a time."""

    def __init__(self, model, batch, slots, dtype=torch.float32, taps=()):
        c, dev = model.c, model.embed_tokens.weight.device
        self.model, self.taps = model, taps
        self.layers = [Slots(batch, c.heads, slots, c.nope + c.rope, c.v_dim, dtype, dev) for _ in range(c.layers)]

    def forward(self, ids, pos, mask):
        out = self.model(ids, pos, mask, self.layers, taps=self.taps)
        return out[0], out[2] if self.taps else None

    def prefill(self, ids, length, tokens=1 << 16):
        """ids [B, W] padded on the right, length [B]. Logits after the last token [B, V], features [B, W, 3D]/None."""
        B, W = ids.shape
        pos = torch.arange(W, device=ids.device)[None]
        mask = torch.ones(W, W, dtype=torch.bool, device=ids.device).tril()
        per, logits, features = max(1, tokens // W), [], []
        for i in range(0, B, per):
            rows = slice(i, min(i + per, B))
            for layer in self.layers:
                layer.fill(rows.start, rows.stop)
            hidden, f = self.forward(ids[rows], pos, mask)
            last = hidden[torch.arange(len(hidden), device=ids.device), length[rows] - 1]
            logits.append(self.model.lm_head(last).float())
            features.append(f)
        return torch.cat(logits), torch.cat(features) if self.taps else None

    def step(self, ids, at):
        """n new tokens a row: ids, at (slots = positions) [B, n]. Logits [B, n, V], features [B, n, 3D] or None."""
        for layer in self.layers:
            layer.point(at)
        hidden, f = self.forward(ids, at, self.layers[0].seen())
        return self.model.lm_head(hidden).float(), f
