"""The Kimi-K2.5 text model (the DeepSeek-V3 architecture) in PyTorch, written for training a tiny one.

All experts are computed for every token and weighted by the router (zero where not chosen): the same
sums as a sparse mixture, and at this size two large products are faster than many small ones.
Tensor layout [in brackets]: B conversations' rows, T tokens, D hidden, H heads, E experts, I expert width.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def int4_scales(w, group):
    """Symmetric scales of groups along the last axis, rounded to bf16 as they are stored. [..., K/group]"""
    amax = w.unflatten(-1, (-1, group)).abs().amax(-1)
    return (amax / 7).to(torch.bfloat16).float().clamp_min(1e-8)


def int4_quantize(w, scale, group):
    """Integers -8..7 nearest to w / scale, as float. [..., K]"""
    q = (w.unflatten(-1, (-1, group)) / scale[..., None]).round().clamp(-8, 7)
    return q.flatten(-2)


def fake_int4(w, group):
    """w as INT4 will store it, with the gradient of w itself (straight-through)."""
    with torch.no_grad():
        s = int4_scales(w, group)
        rounded = (int4_quantize(w, s, group).unflatten(-1, (-1, group)) * s[..., None]).flatten(-2)
    return w + (rounded - w).detach()


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y * self.weight.to(torch.bfloat16).float()  # what the checkpoint will hold


def linear(n_in, n_out, gain=1.0):
    m = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(m.weight, std=gain / math.sqrt(n_in))
    return m


def yarn_inv_freq(c):
    """Frequencies of the rotary pairs: long waves are stretched by the YaRN factor, short ones kept."""
    j = torch.arange(c.rope // 2, dtype=torch.float64)
    extra = c.theta ** (-2 * j / c.rope)
    corr = lambda turns: c.rope * math.log(c.yarn_original / (2 * math.pi * turns)) / (2 * math.log(c.theta))
    low, high = max(math.floor(corr(c.beta_fast)), 0), min(math.ceil(corr(c.beta_slow)), c.rope - 1)
    ramp = ((j - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    return extra / c.yarn_factor * ramp + extra * (1 - ramp)


def softmax_scale(c):
    m = 0.1 * math.log(c.yarn_factor) + 1 if c.yarn_factor > 1 else 1.0
    return (c.nope + c.rope) ** -0.5 * m * m


def rotate(x, cos, sin):
    """Interleaved pairs (2j, 2j+1) turned by the position's angle. x [B, T, h, rope], cos/sin [B, T, 1, rope/2]"""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.scale = c, softmax_scale(c)
        self.q_a_proj = linear(c.hidden, c.q_lora)
        self.q_a_layernorm = Norm(c.q_lora, c.lora_eps)
        self.q_b_proj = linear(c.q_lora, c.heads * (c.nope + c.rope))
        self.kv_a_proj_with_mqa = linear(c.hidden, c.kv_lora + c.rope)
        self.kv_a_layernorm = Norm(c.kv_lora, c.lora_eps)
        self.kv_b_proj = linear(c.kv_lora, c.heads * (c.nope + c.v_dim))
        self.o_proj = linear(c.heads * c.v_dim, c.hidden, gain=1 / math.sqrt(2 * c.layers))

    def forward(self, x, cos, sin, mask, cache):
        c, (B, T, _) = self.c, x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)).to(x.dtype)).view(B, T, c.heads, -1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([c.kv_lora, c.rope], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent).to(x.dtype)).view(B, T, c.heads, -1)
        k_nope, v = kv.split([c.nope, c.v_dim], -1)
        q_nope, q_rope = q.split([c.nope, c.rope], -1)
        q = torch.cat([q_nope, rotate(q_rope, cos, sin)], -1).transpose(1, 2)
        k_rope = rotate(k_rope[:, :, None], cos, sin).expand(-1, -1, c.heads, -1)
        k = torch.cat([k_nope, k_rope], -1).transpose(1, 2)
        v = v.transpose(1, 2)
        if hasattr(cache, "put"):  # slots of a fixed size (slots.py)
            k, v = cache.put(k, v)
        elif cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        if mask is None:  # plain causal (or one new token after a cache): the kernel for long rows wants equal widths
            v = F.pad(v, (0, c.nope + c.rope - c.v_dim))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and T > 1, scale=self.scale)
        return self.o_proj(y[..., : c.v_dim].transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self, c, inter):
        super().__init__()
        self.gate_proj, self.up_proj = linear(c.hidden, inter), linear(c.hidden, inter)
        self.down_proj = linear(inter, c.hidden, gain=1 / math.sqrt(2 * c.layers))

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Sigmoid scores; the correction bias chooses but does not weigh (auxiliary-loss-free balancing)."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.weight = nn.Parameter(torch.randn(c.experts, c.hidden) / math.sqrt(c.hidden))
        self.register_buffer("e_score_correction_bias", torch.zeros(c.experts))

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            s = F.linear(x.float(), self.weight.to(torch.bfloat16).float()).sigmoid()
        chosen = (s + self.e_score_correction_bias).topk(self.c.topk, -1).indices
        mask = torch.zeros_like(s).scatter_(-1, chosen, 1.0)
        w = s * mask
        return w / (w.sum(-1, keepdim=True) + 1e-20) * self.c.scaling, mask


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.quantize = c, True
        self.gate = Router(c)
        self.gate_up = nn.Parameter(torch.randn(c.experts, 2 * c.moe_inter, c.hidden) / math.sqrt(c.hidden))
        self.down = nn.Parameter(torch.randn(c.experts, c.hidden, c.moe_inter) / math.sqrt(c.moe_inter * 2 * c.layers))
        self.shared_experts = Mlp(c, c.moe_inter)

    def forward(self, x):
        c = self.c
        w, mask = self.gate(x)  # [B, T, E]
        gate_up, down = self.gate_up, self.down
        if self.quantize:
            gate_up, down = fake_int4(gate_up, c.group), fake_int4(down, c.group)
        x = x.to(torch.bfloat16) if torch.is_autocast_enabled(x.device.type) else x
        h = F.linear(x, gate_up.flatten(0, 1)).unflatten(-1, (c.experts, 2 * c.moe_inter))
        g, u = h.chunk(2, -1)
        h = (F.silu(g) * u * w[..., None].to(h.dtype)).flatten(-2)
        y = F.linear(h, down.transpose(0, 1).flatten(1)) + self.shared_experts(x)
        return y, mask


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.self_attn = Attention(c)
        self.mlp = Mlp(c, c.dense_inter) if i == 0 else Moe(c)

    def forward(self, x, cos, sin, mask, cache, dtype):
        x = x + self.self_attn(self.input_layernorm(x).to(dtype), cos, sin, mask, cache)
        h = self.post_attention_layernorm(x)
        if isinstance(self.mlp, Moe):
            y, chosen = self.mlp(h)  # the router wants the float32 norm
            return x + y, chosen
        return x + self.mlp(h.to(dtype)), None


class Kimi(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.layers))
        self.norm = Norm(c.hidden, c.eps)
        self.lm_head = linear(c.hidden, c.vocab, gain=0.5)
        self.register_buffer("inv_freq", yarn_inv_freq(c).float(), persistent=False)

    def routers(self):
        return [layer.mlp.gate for layer in self.layers if isinstance(layer.mlp, Moe)]

    def forward(self, ids, pos, mask, cache=None, valid=None, rows=None, taps=()):
        """ids, pos [B, T]; mask bool broadcastable to [B, H, T, S], or None: causal; cache: a list of lists, one a
        layer; valid [B, T]: tokens that count in the load; rows [B, T, D]: taken instead of the embeddings of ids
        (vision.py's insert makes them).

        Returns the final norm's output [B, T, D] and each MoE layer's expert counts [E]; with taps (layer numbers),
        third, what an EAGLE-3 draft reads: the residual stream before those layers, [B, T, len(taps) * D].
        """
        dtype = torch.bfloat16 if torch.is_autocast_enabled(ids.device.type) else torch.float32
        angle = pos[..., None, None].float() * self.inv_freq
        cos, sin = angle.cos(), angle.sin()
        x = (self.embed_tokens(ids) if rows is None else rows).float()
        loads, tapped = [], []
        for i, layer in enumerate(self.layers):
            if i in taps:
                tapped.append(x)
            x, chosen = layer(x, cos, sin, mask, cache[i] if cache is not None else None, dtype)
            if chosen is not None:
                loads.append((chosen if valid is None else chosen * valid[..., None]).sum((0, 1)))
        out = self.norm(x).to(dtype), torch.stack(loads)
        return (*out, torch.cat(tapped, -1)) if taps else out

    def logits(self, ids, pos=None, mask=None, cache=None, rows=None):
        if pos is None:
            pos = torch.arange(ids.shape[1], device=ids.device)[None]
        return self.lm_head(self.forward(ids, pos, mask, cache, rows=rows)[0]).float()


@torch.no_grad()
def generate(model, prompts, stop, limit, insert=None):
    """Greedy continuations of a batch of prompts of different lengths (padded on the left).

    insert(embeddings [B, T, D], ids [B, T]): the prompts' rows with pictures put in.
    """
    dev = model.embed_tokens.weight.device
    n, width = len(prompts), max(map(len, prompts))
    ids = torch.zeros(n, width, dtype=torch.long, device=dev)
    live = torch.zeros(n, width + limit, dtype=torch.bool, device=dev)
    for i, p in enumerate(prompts):
        ids[i, width - len(p) :] = torch.tensor(p, device=dev)
        live[i, width - len(p) :] = True
    pad = torch.tensor([width - len(p) for p in prompts], device=dev)
    cache = [[] for _ in model.layers]
    own = torch.eye(width + limit, dtype=torch.bool, device=dev)  # padding attends to itself: no NaN
    tril = torch.ones(width, width, dtype=torch.bool, device=dev).tril()
    mask = (tril & live[:, None, :width]) | own[:width, :width]
    pos = (torch.arange(width, device=dev)[None] - pad[:, None]).clamp_min(0)
    out, rows = [[] for _ in prompts], list(range(n))  # rows: which prompt each row of the batch is
    mask, x = mask[:, None], ids
    if n == 1:
        mask = None  # nothing is padded: plain causal, which long prompts need
    first = insert(model.embed_tokens(ids), ids) if insert else None
    for step in range(limit):
        x = model.logits(x, pos, mask, cache, first)[:, -1].argmax(-1, keepdim=True)
        first = None
        for i, t in zip(rows, x[:, 0].tolist()):
            if not out[i] or out[i][-1] != stop:
                out[i].append(t)
        keep = [k for k, i in enumerate(rows) if out[i][-1] != stop]
        if not keep:
            break
        if len(keep) < 0.8 * len(rows):  # leave finished rows behind
            x, live, pad, rows = x[keep], live[keep], pad[keep], [rows[k] for k in keep]
            cache = [[t[keep] for t in layer] for layer in cache]
        at = width + step
        mask = None if n == 1 else live[:, None, None, : at + 1]
        pos = (at - pad)[:, None]
    return out
