"""The vision tower over packed groups of patches (dataset.py's picture rows): fixed shapes, made for training.

The same parameters and the same sums as vision.Vision.forward; patches come in groups with the four of a merged
token together, and attention is told by item numbers instead of by padding.

    python tools/nano/vision_packed.py --check     equal to Vision.forward
"""

import sys

import torch
import torch.nn.functional as F

from vision import Vision, cubic_matrix

SIDES = 11  # grids have 2, 4 .. 22 rows and columns
LARGEST = 2 * SIDES


def position_matrices(side):
    """[SIDES * SIDES * 22 * 22, side * side] bf16-free: the position table's weights for every patch of every grid."""
    rows = torch.zeros(SIDES, LARGEST, side)
    for i in range(SIDES):
        rows[i, : 2 * i + 2] = cubic_matrix(side, 2 * i + 2).float()
    return torch.einsum("hya,wxb->hwyxab", rows, rows).reshape(-1, side * side)


def tower(eyes, table, pixels, place):
    """pixels uint8 [N, L, 588], place [N, L, 5] (item, row, column, rows, columns) -> [N * L / 4, text width].

    table: position_matrices on the device. Places of item 0 are padding; their vectors mean nothing.
    """
    c, item = eyes.c, place[..., 0]
    y, x, h, w = place[..., 1:].long().unbind(-1)
    embed = eyes.vision_tower.patch_embed
    v = F.linear((pixels.float() / 255 - 0.5) * 2, embed.proj.weight.flatten(1), embed.proj.bias).float()
    with torch.autocast(v.device.type, enabled=False):
        learnt = table @ embed.pos_emb.weight.float().flatten(0, 1)
    grid = ((h // 2 - 1).clamp_min(0) * SIDES + (w // 2 - 1).clamp_min(0)) * LARGEST * LARGEST
    v = v + learnt[grid + y * LARGEST + x]
    dim = c.hidden // c.heads
    theta = 10000.0 ** (-4 * torch.arange(dim // 4, dtype=torch.float32, device=v.device) / dim)
    angle = torch.stack([x[..., None] * theta, y[..., None] * theta], -1).flatten(-2)[:, :, None]  # [N, L, 1, dim / 2]
    mask = (item[:, :, None] == item[:, None, :])[:, None]
    cos, sin = angle.cos(), angle.sin()
    for block in eyes.vision_tower.encoder.blocks:
        v = block(v, cos, sin, mask)
    v = eyes.vision_tower.encoder.final_layernorm(v)
    return eyes.mm_projector(v.unflatten(1, (-1, c.merge**2)).flatten(0, 1))


def insert(embedded, slot, media, groups):
    """Embeddings [B, T, D] with the row's own tower outputs where slot [B, T] >= 0. media [B * groups * L / 4, D]"""
    per = len(media) // len(slot)
    first = torch.arange(len(slot), device=slot.device)[:, None] * per
    return torch.where((slot >= 0)[..., None], media[first + slot.clamp_min(0).long()].to(embedded.dtype), embedded)


@torch.no_grad()
def check():
    import numpy as np

    import dataset
    from vision import shaken

    eyes = shaken(Vision(), 5).eval()
    rng = np.random.default_rng(1)
    grids = [(4, 6), (22, 10), (4, 4), (6, 2), (16, 16), (2, 2)]
    pixels = rng.integers(0, 256, (sum(h * w for h, w in grids), 588), dtype=np.uint8)
    seqs, first = [], 0
    for h, w in grids:
        seqs.append(([7] + [99] * (h * w // 4) + [8], (h, w), first))
        first += h * w
    rows = dataset.pack(seqs, 9)
    a = dataset.arrays(rows, 0, 99)
    assert len(rows) == 1 and (a["ids"] == 99).sum() == first // 4 == (a["slot"] >= 0).sum()
    px = torch.from_numpy(pixels[a["patch"]]).view(dataset.GROUPS, dataset.GROUP, -1)
    place = torch.from_numpy(a["place"]).view(dataset.GROUPS, dataset.GROUP, 5)
    got = tower(eyes, position_matrices(eyes.c.pos_side), px, place)
    text = insert(torch.zeros(1, dataset.WIDTH, 256), torch.from_numpy(a["slot"]), got, dataset.GROUPS)[0]
    at = 0
    for (ids, (h, w), start), _, _ in rows[0].parts:
        p = torch.from_numpy(pixels[start : start + h * w]).float().view(-1, 3, 14, 14)
        want = eyes((p / 255 - 0.5) * 2, [(1, h, w)])
        mine = text[at + 1 : at + len(ids) - 1]
        assert torch.dist(mine, want) < 1e-5 * want.norm(), (h, w, torch.dist(mine, want) / want.norm())
        at += len(ids)
    print(f"vision_packed: {len(grids)} pictures of one packed row equal Vision.forward")


if __name__ == "__main__":
    check() if "--check" in sys.argv else sys.exit(__doc__)
