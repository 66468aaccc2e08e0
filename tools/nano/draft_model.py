"""An EAGLE-3 draft of nano: one decoder layer that guesses the model's next tokens from the model's own features.

Two layouts, both those of drafts published for Kimi-K2.5: "llama" (LlamaForCausalLMEagle3: multi-head attention, rotary
halves over the whole head) and "mla" (Eagle3DeepseekV2ForCausalLM: the model's own attention with a wider input). The
draft reads (feature of token i, embedding of token i + 1) at position i and predicts token i + 2. Later draft tokens
are read as (the layer's own output, embedding of the guess) at the following positions.

    fc      3D -> D       on the residual stream before three of the model's layers; first pass only
    a       [input_layernorm(embedding) ; hidden_norm(x)], 2D wide, embedding first
    y = x + attention(a),  z = y + mlp(post_attention_layernorm(y))
    logits = lm_head(norm(z)); the next pass reads z itself, before the norm

Full vocabulary, so there is no draft_vocab_size, d2t or t2d. The embedding is the model's own and not stored.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from model import Norm, linear, rotate, softmax_scale, yarn_inv_freq

LAYOUTS = ("llama", "mla")


def tap_layers(layers):
    """Layers before which the residual stream is read: 2, L/2, L - 3, the published rule (2, 30, 58 of 61).

    In a model of fewer than ten layers these meet; then the highest is the last layer, and the middle lies between.
    """
    ids = (2, layers // 2, layers - 3) if layers >= 10 else (2, max(3, layers // 2), layers - 1)
    assert ids[0] < ids[1] < ids[2] < layers
    return ids


@dataclass(frozen=True)
class DraftConfig:
    layout: str
    target: object  # the model's Nano: widths of the MLA layout, rotary constants, vocabulary
    heads: int = 2
    head_dim: int = 128  # llama
    q_lora: int = 64  # mla
    inter: int = 256

    @property
    def eps(self):
        return 1e-6 if self.layout == "llama" else self.target.eps  # as published

    @property
    def taps(self):
        return tap_layers(self.target.layers)


def rotate_halves(x, cos, sin):
    """Pairs (j, j + d/2) turned by the position's angle. x [B, T, h, d], cos/sin [B, T, 1, d/2]"""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class LlamaAttention(nn.Module):
    """Plain rotary embedding with the model's base (rope_scaling null)."""

    def __init__(self, d):
        super().__init__()
        D, n = d.target.hidden, d.heads * d.head_dim
        self.d, self.scale = d, d.head_dim**-0.5
        self.q_proj, self.k_proj, self.v_proj = linear(2 * D, n), linear(2 * D, n), linear(2 * D, n)
        self.o_proj = linear(n, D, gain=0.5)
        j = torch.arange(d.head_dim // 2, dtype=torch.float64)
        self.register_buffer("inv_freq", (d.target.theta ** (-2 * j / d.head_dim)).float(), persistent=False)

    def forward(self, a, pos, attend):
        B, T, _ = a.shape
        angle = pos[..., None, None].float() * self.inv_freq
        q, k, v = (p(a).view(B, T, self.d.heads, -1) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (rotate_halves(x, angle.cos(), angle.sin()).transpose(1, 2) for x in (q, k))
        y = attend(q, k, v.transpose(1, 2), self.scale)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class MlaAttention(nn.Module):
    """The model's attention; its first projections read 2D. Interleaved rotary pairs, YaRN, scale times its factor."""

    def __init__(self, d):
        super().__init__()
        c, D = d.target, d.target.hidden
        self.d, self.scale = d, softmax_scale(c)
        self.q_a_proj = linear(2 * D, d.q_lora)
        self.q_a_layernorm = Norm(d.q_lora, d.eps)
        self.q_b_proj = linear(d.q_lora, d.heads * (c.nope + c.rope))
        self.kv_a_proj_with_mqa = linear(2 * D, c.kv_lora + c.rope)
        self.kv_a_layernorm = Norm(c.kv_lora, d.eps)
        self.kv_b_proj = linear(c.kv_lora, d.heads * (c.nope + c.v_dim))
        self.o_proj = linear(d.heads * c.v_dim, D, gain=0.5)
        self.register_buffer("inv_freq", yarn_inv_freq(c).float(), persistent=False)

    def forward(self, a, pos, attend):
        d, c, (B, T, _) = self.d, self.d.target, a.shape
        angle = pos[..., None, None].float() * self.inv_freq
        cos, sin = angle.cos(), angle.sin()
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(a)).to(a.dtype)).view(B, T, d.heads, -1)
        latent, k_rope = self.kv_a_proj_with_mqa(a).split([c.kv_lora, c.rope], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent).to(a.dtype)).view(B, T, d.heads, -1)
        k_nope, v = kv.split([c.nope, c.v_dim], -1)
        q_nope, q_rope = q.split([c.nope, c.rope], -1)
        q = torch.cat([q_nope, rotate(q_rope, cos, sin)], -1).transpose(1, 2)
        k_rope = rotate(k_rope[:, :, None], cos, sin).expand(-1, -1, d.heads, -1)
        k = torch.cat([k_nope, k_rope], -1).transpose(1, 2)
        y = attend(q, k, v.transpose(1, 2), self.scale)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class DraftMlp(nn.Module):
    def __init__(self, D, inter):
        super().__init__()
        self.gate_proj, self.up_proj = linear(D, inter), linear(D, inter)
        self.down_proj = linear(inter, D, gain=0.5)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        D = d.target.hidden
        self.input_layernorm, self.hidden_norm = Norm(D, d.eps), Norm(D, d.eps)
        self.post_attention_layernorm = Norm(D, d.eps)
        self.self_attn = (LlamaAttention if d.layout == "llama" else MlaAttention)(d)
        self.mlp = DraftMlp(D, d.inter)

    def forward(self, e, x, pos, attend, dtype):
        a = torch.cat([self.input_layernorm(e), self.hidden_norm(x)], -1).to(dtype)
        y = x + self.self_attn(a, pos, attend)
        return y + self.mlp(self.post_attention_layernorm(y).to(dtype))


class Draft(nn.Module):
    def __init__(self, d):
        super().__init__()
        c = d.target
        self.d = d
        self.fc = linear(3 * c.hidden, c.hidden)
        self.midlayer = DraftLayer(d)
        self.norm = Norm(c.hidden, d.eps)
        self.lm_head = linear(c.hidden, c.vocab)
        self.embedding = None  # the model's [V, D]; share() sets it

    def share(self, target):
        """Reads the model's embedding, without owning it. Returns self."""
        self.embedding = target.embed_tokens.weight.detach()
        return self

    @torch.no_grad()
    def start_from(self, target, features):
        """Before training: head and final norm are the model's; fc evens out the three features' sizes."""
        self.lm_head.weight.copy_(target.lm_head.weight)
        self.norm.weight.copy_(target.norm.weight)
        D = self.d.target.hidden
        for part, f in zip(self.fc.weight.split(D, 1), features.float().split(D, -1)):
            part /= f.pow(2).mean().sqrt()

    def dtype(self, x):
        return torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else torch.float32

    def fuse(self, features):
        """Features [B, T, 3D] -> the first pass's x [B, T, D]."""
        return self.fc(features.to(self.dtype(features))).float()

    def forward(self, x, ids, pos, attend):
        """x [B, T, D] (fuse's or the previous pass's output), ids (the following tokens), pos [B, T]. Returns z [B, T,
        D]."""
        e = F.embedding(ids, self.embedding).float()
        return self.midlayer(e, x, pos, attend, self.dtype(x))

    def logits(self, z):
        return self.lm_head(self.norm(z).to(self.dtype(z))).float()


def whole(q, k, v, scale):
    """attend() without a cache: every row sees itself and the rows before it."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def chain_anew(draft, features, following, steps):
    """Greedy drafts of one text, everything computed again for each: no cache to get wrong. features [1, T, 3D].

    Per step: the token, logits of all rows [T + step, V], the last row's z [D].
    """
    x, read, out = draft.fuse(features), list(following), []
    for _ in range(steps):
        z = draft(x, torch.tensor([read], device=x.device), torch.arange(len(read), device=x.device)[None], whole)
        logits = draft.logits(z)[0]
        out.append((int(logits[-1].argmax()), logits, z[0, -1]))
        x, read = torch.cat([x, z[:, -1:]], 1), read + [out[-1][0]]
    return out


def tree_anew(draft, features, following, steps, k):
    """A tree of drafts behind one text (EAGLE-2, arXiv:2406.16858), everything computed again for each: at each step
    the k likeliest tokens behind each beam, of which the k that are likeliest in all go on.

    [[token, index of the one before it or -1, sum of log-probabilities]], step by step, beams in the order in which
    the step before has their tokens.
    """
    beams, out = [(draft.fuse(features), list(following), 0.0, -1)], []
    for _ in range(steps):
        first = len(out)
        after = []
        for x, read, score, parent in beams:
            z = draft(x, torch.tensor([read], device=x.device), torch.arange(len(read), device=x.device)[None], whole)
            top = draft.logits(z)[0, -1].log_softmax(-1).topk(k)
            x = torch.cat([x, z[:, -1:]], 1)
            for token, value in zip(top.indices.tolist(), top.values.tolist()):
                after.append((x, read + [token], score + value, len(out)))
                out.append([token, parent, score + value])
        best = sorted(range(len(after)), key=lambda i: (-after[i][2], i))[:k]
        assert all(after[i][3] == first + i for i in best)
        beams = [after[i] for i in sorted(best)]
    return out


class Cached:
    """attend() over Slots: point() or fill() the slots first."""

    def __init__(self, slots):
        self.slots = slots

    def __call__(self, q, k, v, scale):
        causal = self.slots.rows is not None
        k, v = self.slots.put(k, v)
        mask = None if causal else self.slots.seen()
        return F.scaled_dot_product_attention(
            q, k.to(q.dtype), v.to(q.dtype), attn_mask=mask, is_causal=causal, scale=scale
        )


class Unrolled:
    """attend() of training-time test, one call a step. In step s, index i sees the first step's keys j <= i of its own
    sequence, and of each later step the one key at index i: exactly the chain of s guesses that hangs off token i.

    mask: bool [B, 1, T, T] of the first step.
    """

    def __init__(self, mask):
        self.mask, self.k, self.v = mask, [], []

    def __call__(self, q, k, v, scale):
        self.k.append(k)
        self.v.append(v)
        T, q = q.shape[2], q * scale
        scores = (q @ self.k[0].transpose(-1, -2)).masked_fill(~self.mask, float("-inf"))
        later = [(q.float() * kr.float()).sum(-1, keepdim=True).to(q.dtype) for kr in self.k[1:]]
        if later:  # to a multiple of eight columns, so that the products stay aligned
            fill = scores.new_full((), float("-inf")).expand(*scores.shape[:-1], -len(later) % 8)
            scores = torch.cat([scores, *later, fill], -1)
        p = scores.softmax(-1)
        y = (p[..., :T] @ self.v[0]).float()
        for r, vr in enumerate(self.v[1:]):
            y = y + p[..., T + r : T + r + 1].float() * vr.float()
        return y.to(v.dtype)
