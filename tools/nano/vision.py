"""MoonViT3d and the patch-merger projector of Kimi-K2.5 in PyTorch, at nano's size.

`Vision`'s parameters have the checkpoint's names: `vision_tower.*` and `mm_projector.*`. A batch is any number of
items (pictures, or chunks of up to 4 frames) of different sizes: their patches packed one item after the other,
and `grids`, one (frames, rows, columns) an item. Attention stays inside an item.

    python tools/nano/vision.py --check     shapes, one item alone and in a batch, transformers' own implementation

Layout [in brackets]: P patches of all items, N items, L patches of the longest, D width, H heads.
"""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from config import VisionDims


def cubic_matrix(n_in, n_out):
    """Bicubic interpolation along one axis as a matrix [n_out, n_in], float64: PyTorch's kernel.

    a = -0.75, no averaging when shrinking, taps outside clamped to the border, half-pixel centres.
    Written out so that its gradient is a matrix product (deterministic on a GPU) and an engine can follow it.
    """
    a, m = -0.75, torch.zeros(n_out, n_in, dtype=torch.float64)
    near = lambda x: ((a + 2) * x - (a + 3)) * x * x + 1
    far = lambda x: ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    for i in range(n_out):
        src = (i + 0.5) * n_in / n_out - 0.5
        first = math.floor(src)
        f = src - first
        for k, w in enumerate((far(1 + f), near(f), near(1 - f), far(2 - f))):
            m[i, min(max(first - 1 + k, 0), n_in - 1)] += w
    return m


def frame_sinusoid(frames, dim):
    """[frames, D]: sines, then cosines, of the frame's number; added only where an item has several frames."""
    omega = 10000.0 ** (-torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    angle = torch.arange(frames, dtype=torch.float64)[:, None] * omega
    return torch.cat([angle.sin(), angle.cos()], 1)


def rope_angles(grid, head_dim):
    """[t*h*w, head_dim / 2]: pair 2i turns with the column, pair 2i + 1 with the row; the same in every frame."""
    t, h, w = grid
    theta = 10000.0 ** (-4 * torch.arange(head_dim // 4, dtype=torch.float64) / head_dim)
    x = torch.arange(w, dtype=torch.float64)[None, :, None] * theta
    y = torch.arange(h, dtype=torch.float64)[:, None, None] * theta
    both = torch.stack([x.expand(h, -1, -1), y.expand(-1, w, -1)], -1)  # [h, w, head_dim / 4, 2]
    return both.reshape(h * w, head_dim // 2).repeat(t, 1)


def rotate(x, cos, sin):
    """Interleaved pairs (2p, 2p + 1) turned by the patch's angles. x [N, L, H, d], cos and sin [N, L, 1, d/2]"""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class PosEmb(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.weight = nn.Parameter(torch.randn(c.pos_side, c.pos_side, c.hidden) * 0.02)

    def forward(self, grid):
        """[t*h*w, D] of one item, float32."""
        t, h, w = grid
        c, dev = self.c, self.weight.device
        rows = cubic_matrix(c.pos_side, h).float().to(dev)
        cols = cubic_matrix(c.pos_side, w).float().to(dev)
        with torch.autocast(dev.type, enabled=False):
            p = torch.einsum("ya,xb,abd->yxd", rows, cols, self.weight.float()).flatten(0, 1)
        if t == 1:
            return p
        return (p[None] + frame_sinusoid(t, c.hidden).float().to(dev)[:, None]).flatten(0, 1)


class PatchEmbed(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.proj = nn.Conv2d(3, c.hidden, c.patch, c.patch)
        self.pos_emb = PosEmb(c)

    def forward(self, pixels, grids):
        """pixels [P, 3, 14, 14] -> [P, D] float32. The convolution of one patch is a product."""
        x = F.linear(pixels.flatten(1), self.proj.weight.flatten(1), self.proj.bias)
        return x.float() + torch.cat([self.pos_emb(g) for g in grids])


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc0, self.fc1 = nn.Linear(c.hidden, c.inter), nn.Linear(c.inter, c.hidden)

    def forward(self, x):
        return self.fc1(F.gelu(self.fc0(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.norm0, self.norm1 = nn.LayerNorm(c.hidden, c.eps), nn.LayerNorm(c.hidden, c.eps)
        self.wqkv, self.wo = nn.Linear(c.hidden, 3 * c.hidden), nn.Linear(c.hidden, c.hidden)
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin, mask):
        q, k, v = self.wqkv(self.norm0(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)  # each [N, L, H, d]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(*(m.transpose(1, 2) for m in (q, k, v)), attn_mask=mask)
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm1(x))


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.final_layernorm = nn.LayerNorm(c.hidden, c.eps)

    def forward(self, packed, grids):
        """[P, D] -> [P, D]: padded to the longest item for the blocks, packed again afterwards."""
        sizes = [t * h * w for t, h, w in grids]
        longest, dev = max(sizes), packed.device
        live = torch.arange(longest)[None] < torch.tensor(sizes)[:, None]  # [N, L]
        angle = torch.zeros(len(grids), longest, self.c.hidden // self.c.heads // 2)
        for a, g, n in zip(angle, grids, sizes):
            a[:n] = rope_angles(g, self.c.hidden // self.c.heads)
        live, angle = live.to(dev), angle.to(dev)[:, :, None]
        x = packed.new_zeros(len(grids), longest, packed.shape[-1]).masked_scatter(live[..., None], packed)
        mask = None if min(sizes) == longest else live[:, None, None]  # padding is never looked at
        for block in self.blocks:
            x = block(x, angle.cos(), angle.sin(), mask)
        return self.final_layernorm(x)[live]


class Tower(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.patch_embed, self.encoder = PatchEmbed(c), Encoder(c)

    def forward(self, pixels, grids):
        """[sum of (h/2)(w/2), 4, D]: the mean over the frames, each 2 x 2 patches one token, raster order."""
        x, m, out, at = self.encoder(self.patch_embed(pixels, grids), grids), self.c.merge, [], 0
        for t, h, w in grids:
            y = x[at : at + t * h * w].view(t, h // m, m, w // m, m, -1).mean(0)
            out.append(y.transpose(1, 2).reshape(h // m * (w // m), m * m, -1))
            at += t * h * w
        assert at == len(x)
        return torch.cat(out)


class Projector(nn.Module):
    def __init__(self, c):
        super().__init__()
        wide = c.hidden * c.merge**2
        self.pre_norm = nn.LayerNorm(c.hidden, c.eps)
        self.proj = nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, c.text_hidden))  # the exact GELU

    def forward(self, x):
        return self.proj(self.pre_norm(x).flatten(1))


class Vision(nn.Module):
    def __init__(self, c=VisionDims()):
        super().__init__()
        assert c.hidden % c.heads == 0 and (c.hidden // c.heads) % 4 == 0
        self.c, self.vision_tower, self.mm_projector = c, Tower(c), Projector(c)

    def forward(self, pixels, grids):
        """pixels [P, 3, 14, 14] of all items packed, grids [(t, h, w), ...] -> [tokens of all items, text width]"""
        m = self.c.merge
        assert len(pixels) == sum(t * h * w for t, h, w in grids), "patches and grids disagree"
        assert all(1 <= t <= self.c.frames and h % m == 0 and w % m == 0 for t, h, w in grids), grids
        return self.mm_projector(self.vision_tower(pixels, grids))


def expand(ids, grids, media_pad, merge=2):
    """The list ids with the i-th media_pad repeated once for each token of item i."""
    out, items = [], iter(grids)
    for i in ids:
        n = 1
        if i == media_pad:
            _, h, w = next(items)
            n = h // merge * (w // merge)
        out += [i] * n
    assert next(items, None) is None, "more items than placeholders"
    return out


def insert(x, ids, media, media_pad):
    """Embeddings x [B, T, D] with the rows of media_pad replaced by media [n, D], in order."""
    where = ids == media_pad
    assert int(where.sum()) == len(media), "placeholders and picture tokens disagree"
    return x.masked_scatter(where[..., None], media.to(x.dtype))


# ---- checks -----------------------------------------------------------------------------------

GRIDS = [(1, 4, 6), (1, 16, 16), (1, 2, 2), (3, 4, 8), (1, 22, 10), (4, 6, 2)]  # shrunk, equal, stretched; frames


def names():
    """Every tensor that K2.5's tower and projector have, with these sizes."""
    c, w = VisionDims(), {}
    d, wide = c.hidden, 4 * c.hidden
    pair = lambda name, *shape: w.update({f"{name}.weight": shape, f"{name}.bias": shape[:1]})
    pair("vision_tower.patch_embed.proj", d, 3, 14, 14)
    w["vision_tower.patch_embed.pos_emb.weight"] = (c.pos_side, c.pos_side, d)
    for i in range(c.layers):
        b = f"vision_tower.encoder.blocks.{i}."
        for name, *shape in (
            ("norm0", d),
            ("norm1", d),
            ("wqkv", 3 * d, d),
            ("wo", d, d),
            ("mlp.fc0", c.inter, d),
            ("mlp.fc1", d, c.inter),
        ):
            pair(b + name, *shape)
    pair("vision_tower.encoder.final_layernorm", d)
    pair("mm_projector.pre_norm", d)
    pair("mm_projector.proj.0", wide, wide)
    pair("mm_projector.proj.2", c.text_hidden, wide)
    return w


def shaken(model, seed):
    """Every parameter random, norms and biases too, so that none of them can be ignored unseen."""
    g = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3 if p.ndim == 1 else 1.5 / math.sqrt(p[0].numel()), generator=g)
    with torch.no_grad():
        model.vision_tower.patch_embed.pos_emb.weight.normal_(generator=g)
    return model


def from_transformers(model):
    """The same weights in transformers' classes. Their rotary halves want q and k rows in another order:
    first the even elements of each head, then the odd ones."""
    from transformers.models.kimi_k25 import configuration_kimi_k25 as conf, modeling_kimi_k25 as hf

    c = model.c
    vc = conf.Kimi_K25VisionConfig(
        pos_emb_height=c.pos_side,
        pos_emb_width=c.pos_side,
        pos_emb_time=c.frames,
        num_attention_heads=c.heads,
        num_hidden_layers=c.layers,
        hidden_size=c.hidden,
        intermediate_size=c.inter,
        rope_parameters={"rope_type": "axial", "rope_theta": 10000.0},
    )
    vc._attn_implementation = "eager"
    text = {"model_type": "deepseek_v3", "hidden_size": c.text_hidden}
    whole = conf.Kimi_K25Config(text_config=text, vision_config=vc, projection_hidden_size=c.hidden)
    tower, projector = hf.Kimi_K25VisionModel(vc), hf.Kimi_K25MultimodalProjection(whole)
    t, p = {}, {}
    for name, v in model.state_dict().items():
        part, name = name.split(".", 1)
        name = name.removeprefix("encoder.")
        if part == "mm_projector":
            p[name.replace("proj.0", "in_proj").replace("proj.2", "out_proj")] = v
            continue
        for old, new in (
            ("pos_emb.weight", "pos_emb.position_embeddings"),
            ("blocks.", "layers."),
            ("norm1", "norm2"),
            ("norm0", "norm1"),
            ("fc1", "fc2"),
            ("fc0", "fc1"),
            (".wo.", ".attn.proj."),
        ):
            name = name.replace(old, new)
        if "wqkv" in name:
            for which, m in zip("qkv", v.unflatten(0, (3, c.heads, -1))):
                m = torch.cat([m[:, 0::2], m[:, 1::2]], 1) if which != "v" else m
                t[name.replace("wqkv", f"attn.{which}_proj")] = m.flatten(0, 1)
        else:
            t[name] = v
    tower.load_state_dict(t)
    projector.load_state_dict(p)
    return tower.eval(), projector.eval()


def check_with_text():
    """Text and pictures in one batch: the picture counts, and the gradient of the text's loss reaches every weight of
    the tower, the same twice."""
    from config import Nano
    from model import Kimi

    torch.manual_seed(3)
    text, eyes, pad = Kimi(Nano(layers=2, experts=8)), shaken(Vision(), 2), 1000
    grids = [(1, 4, 6), (1, 6, 4)]
    pixels = torch.randn(48, 3, 14, 14)
    ids = torch.tensor([expand([1, pad, 2, 3, 4], [g], pad) for g in grids])
    pos, mask = torch.arange(ids.shape[1])[None], torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()

    def gradients(px):
        eyes.zero_grad()
        rows = insert(text.embed_tokens(ids), ids, eyes(px, grids), pad)
        hidden, _ = text(ids, pos, mask, rows=rows)
        loss = F.cross_entropy(text.lm_head(hidden[:, -3:-1]).float().flatten(0, 1), ids[:, -2:].flatten())
        loss.backward()
        return loss.item(), {n: p.grad.clone() for n, p in eyes.named_parameters()}

    loss, g = gradients(pixels)
    again, g2 = gradients(pixels)
    assert loss == again and all((g[n] == g2[n]).all() for n in g)
    assert all(v.isfinite().all() and v.abs().max() > 0 for v in g.values()), [n for n, v in g.items() if not v.any()]
    assert gradients(pixels.flip(0))[0] != loss
    with torch.no_grad():
        plain = text(ids, pos, mask)[0]
        assert (text(ids, pos, mask, rows=text.embed_tokens(ids))[0] == plain).all()


@torch.no_grad()
def check():
    torch.manual_seed(0)
    model = shaken(Vision(), 1).eval()
    have = {n: tuple(p.shape) for n, p in model.state_dict().items()}
    assert have == names(), set(have.items()) ^ set(names().items())
    table = model.vision_tower.patch_embed.pos_emb.weight
    for h, w in ((4, 6), (16, 16), (22, 10), (33, 64)):  # the matrices are PyTorch's interpolation
        want = F.interpolate(table.permute(2, 0, 1)[None], (h, w), mode="bicubic", align_corners=False)[0]
        got = model.vision_tower.patch_embed.pos_emb((1, h, w)).view(h, w, -1).permute(2, 0, 1)
        assert (got - want).abs().max() < 1e-5, (h, w, (got - want).abs().max())
    counts = [t * h * w for t, h, w in GRIDS]
    pixels = torch.randn(sum(counts), 3, 14, 14)
    y = model(pixels, GRIDS)
    tokens = [h * w // 4 for _, h, w in GRIDS]
    assert y.shape == (sum(tokens), 256)
    for g, px, part in zip(GRIDS, pixels.split(counts), y.split(tokens)):  # an item does not see the others
        alone = model(px, [g])
        assert (alone - part).abs().max() < 2e-4 * part.abs().max(), g
    swapped = model(pixels[:24], [(1, 6, 4)])  # rows and columns are not the same thing
    assert (swapped - y[:6]).abs().max() > 0.1 * y.abs().max()

    tower, projector = from_transformers(model)
    one = lambda px, g: projector(tower(px, torch.tensor([g])).pooler_output).squeeze(
        1
    )  # theirs: one count of frames a call
    out = torch.cat([one(px, g) for px, g in zip(pixels.split(counts), GRIDS)])
    err = ((out - y).norm() / y.norm()).item()
    assert err < 1e-5, err
    ids = torch.tensor([[5, 9, 9, 7], [9, 1, 2, 3]])
    x = insert(torch.zeros(2, 4, 256), ids, y[:3], 9)
    assert (x[0, 1] == y[0]).all() and (x[1, 0] == y[2]).all() and (x[0, 0] == 0).all()
    assert expand([1, 9, 2, 9], [(1, 4, 6), (3, 2, 4)], 9) == [1] + [9] * 6 + [2] + [9] * 2
    n = sum(p.numel() for p in model.parameters())
    print(
        f"vision: {len(have)} tensors, {n / 1e6:.2f} M parameters, {len(GRIDS)} items; "
        f"relative difference to transformers {err:.1e}"
    )


if __name__ == "__main__":
    if "--check" not in sys.argv:
        sys.exit(__doc__)
    check_with_text()
    check()
