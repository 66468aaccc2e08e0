"""Checks of the draft's recipe on tiny random models, on the CPU, in seconds: python tools/nano/draft_check.py

Training-time test gives what inference with caches gives; decoding with any draft gives plain decoding's text; files
read back are the weights; the Llama layer is transformers', the MLA layer the model's own attention with a wider input.
"""

import copy
import json
import pathlib
import random
import tempfile
from dataclasses import replace

import numpy as np
import torch
import torch.nn as nn

import draft_data
import draft_export
import speculate
from config import Nano
from draft_model import LAYOUTS, Cached, Draft, DraftConfig, chain_anew, tap_layers
from draft_train import acceptance, draft_loss, learnt, target_pass, unroll, wanted
from model import Attention, Kimi, generate
from slots import Slots, Target

TINY = Nano(
    n_ranks=64,
    hidden=64,
    layers=6,
    q_lora=32,
    kv_lora=48,
    nope=16,
    rope=8,
    v_dim=16,
    dense_inter=64,
    experts=8,
    topk=2,
    moe_inter=32,
)


def models(layout, seed=1):
    torch.manual_seed(seed)
    target = Kimi(TINY).eval().requires_grad_(False)
    draft = Draft(DraftConfig(layout, TINY, head_dim=16, q_lora=24, inter=48)).share(target)
    return target, draft


def close(a, b, limit, what):
    gap = float((a - b).abs().max() / b.abs().max())
    assert gap < limit, f"{what}: {gap}"
    return gap


@torch.no_grad()
def check_unroll(layout, T=13, depth=4):
    """Every step of every index against the chain that inference runs there, with caches and the same tokens."""
    target, draft = models(layout)
    ids, seg = torch.randint(0, TINY.vocab, (2, T)), torch.ones(2, T, dtype=torch.long)
    features, _, mask = target_pass(target, ids, seg, draft.d.taps)
    zs, worst = list(unroll(draft, features, ids, mask, depth)), 0.0
    d = draft.d
    widths = (d.head_dim, d.head_dim) if layout == "llama" else (TINY.nope + TINY.rope, TINY.v_dim)
    for i in range(T - depth):
        slots = Slots(2, d.heads, T, *widths, torch.float32, "cpu")
        slots.fill(0, 2)
        z = draft(draft.fuse(features[:, : i + 1]), ids[:, 1 : i + 2], torch.arange(i + 1)[None], Cached(slots))[:, -1:]
        worst = max(worst, close(zs[0][:, i], z[:, 0], 1e-5, f"{layout} step 0 at {i}"))
        for s in range(1, depth):
            at = torch.full((2, 1), i + s)
            slots.point(at)
            z = draft(z, ids[:, i + 1 + s : i + 2 + s], at, Cached(slots))
            worst = max(worst, close(zs[s][:, i], z[:, 0], 1e-5, f"{layout} step {s} at {i}"))
    one, two = ids[:1, :6], ids[1:, :7]  # two sequences in one row see nothing of each other
    both, seg = torch.cat([one, two], 1), torch.tensor([[1] * 6 + [2] * 7])
    features, _, mask = target_pass(target, both, seg, draft.d.taps)
    packed = list(unroll(draft, features, both, mask, depth))
    features, _, mask = target_pass(target, two, torch.ones_like(two), draft.d.taps)
    for s, z in enumerate(unroll(draft, features, two, mask, depth)):
        close(packed[s][:, 6 : 13 - depth], z[:, : 7 - depth], 1e-4, f"{layout} packed, step {s}")
    return worst


def check_learnt():
    """A step's index counts where the predicted token is nano's and of the same sequence."""
    seg = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2, 0], [1] * 10])
    learn = torch.tensor([[0, 0, 1, 1, 0, 0, 0, 1, 1, 0], [1] * 10], dtype=torch.bool)
    for row in range(2):
        for s in range(4):
            want = [
                i + 2 + s < 10 and bool(learn[row, i + 2 + s]) and seg[row, i].item() == seg[row, i + 2 + s].item() != 0
                for i in range(10)
            ]
            assert learnt(learn, seg, s)[row].tolist() == want, s


def check_gradients(layout):
    """Every weight learns; 60 steps on one batch raise the agreement."""
    target, draft = models(layout)
    ids = torch.randint(0, TINY.vocab, (4, 24))
    seg, learn = torch.ones_like(ids), torch.ones_like(ids, dtype=torch.bool)
    features, hidden, mask = target_pass(target, ids, seg, draft.d.taps)
    draft.start_from(target, features)
    aims = wanted(target, hidden, learn, seg, 4)
    opt, first = torch.optim.AdamW(draft.parameters(), lr=3e-3), None
    for _ in range(60):
        loss, same = draft_loss(draft, features, mask, ids, aims)
        loss.backward()
        if first is None:
            first = acceptance(same.tolist())
            for name, p in draft.named_parameters():
                assert p.grad is not None and p.grad.isfinite().all() and p.grad.abs().max() > 0, name
        opt.step()
        opt.zero_grad()
    assert acceptance(same.tolist()) > first + 0.5, (first, same)
    return first, acceptance(same.tolist())


def check_files(layout):
    target, draft = models(layout)
    with tempfile.TemporaryDirectory() as folder:
        draft_export.export(draft, folder)
        back = draft_export.load(folder, target)
        for name, t in draft.state_dict().items():
            assert torch.equal(back.state_dict()[name], t.to(torch.bfloat16).float()), name
        size = sum(f.stat().st_size for f in pathlib.Path(folder).iterdir())
        j = json.loads((pathlib.Path(folder) / "config.json").read_text())
        assert j["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 3, 5] == list(tap_layers(6))
    assert tap_layers(61) == (2, 30, 58) and tap_layers(5) == (2, 3, 4)
    return size


class Oracle:
    """Drafts the plain text itself; with `wrong` some tokens are spoilt. With a real drafter beside it, that one's own
    guesses are kept, to be compared with guesses from a fresh start."""

    def __init__(self, texts, steps, wrong=0.0, beside=None):
        self.texts, self.steps, self.wrong, self.beside = texts, steps, wrong, beside
        self.rng, self.at, self.guesses = random.Random(3), [1] * len(texts), []

    def give(self):
        out = []
        for t, n in zip(self.texts, self.at):
            row = (t[n:] + [0] * self.steps)[: self.steps]
            out.append([(x + 1) % TINY.vocab if self.rng.random() < self.wrong else x for x in row])
        return torch.tensor(out)

    def start(self, ids, length, first, features):
        if self.beside:
            self.beside.start(ids, length, first, features)
        return self.give()

    def next(self, pick, at, features, kept):
        self.at = [n + a for n, a in zip(self.at, kept.tolist())]
        if self.beside:
            self.guesses.append((list(self.at), self.beside.next(pick, at, features, kept)))
        return self.give()


@torch.no_grad()
def check_decoding(layout, steps=3):
    target, draft = models(layout)
    prompts = [torch.randint(0, TINY.vocab, (n,)).tolist() for n in (5, 11, 3, 8)]
    plain = speculate.greedy(target, prompts, -1, 41)
    assert plain == generate(target, prompts, -1, 41), "slots against the growing cache"
    run = lambda make, stop=-1: speculate.speculate(target, make, draft.d.taps, prompts, stop, 41, steps)
    texts, stats = run(lambda b, slots, k: Oracle(plain, k))
    assert texts == plain and all(s.length == 4 and s.by_position() == [1, 1, 1] for s in stats)
    texts, stats = run(lambda b, slots, k: speculate.Drafter(draft, b, slots, k))
    assert texts == plain and speculate.total(stats, steps).length < 2
    stop = plain[0][20]  # a text that ends inside a round
    ended = [speculate.cut(t, stop) for t in plain]
    texts, stats = run(lambda b, slots, k: Oracle(plain, k, 0.2), stop)
    assert texts == ended == speculate.greedy(target, prompts, stop, 41)
    made = []
    make = lambda b, slots, k: made.append(Oracle(plain, k, 0.3, speculate.Drafter(draft, b, slots, k))) or made[-1]
    texts, stats = run(make)
    assert texts == plain and 2 < speculate.total(stats, steps).length < 4
    compared = 0
    for at, guesses in made[0].guesses[:8]:  # catching up gives what reading everything anew gives
        known = [p + t[:n] for p, t, n in zip(prompts, plain, at)]
        ids, length = speculate.pad_right([k[:-1] for k in known], "cpu")
        slots = ids.shape[1] + 8
        reader = Target(target, 4, slots, taps=draft.d.taps)
        _, features = reader.prefill(ids, length)
        fresh = speculate.Drafter(draft, 4, slots, steps)
        assert torch.equal(fresh.start(ids, length, torch.tensor([k[-1] for k in known]), features), guesses)
        compared += guesses.numel()
    fresh = speculate.Drafter(draft, 4, slots + 8, 8)
    roots, chains = torch.tensor([k[-1] for k in known]), []
    for got, k, f, n in zip(fresh.start(ids, length, roots, features), known, features, length):
        chains.append([t for t, _, _ in chain_anew(draft, f[None, :n], k[1:], 8)])
        assert got.tolist() == chains[-1], "a chain with a cache and without"
    assert (
        len({tuple(c) for c in chains}) == 4 and sum(len(set(c)) > 1 for c in chains) > 2
    ), chains  # not trivially equal
    return compared


@torch.no_grad()
def check_generator():
    target, _ = models("llama")
    prompts = [np.random.default_rng(n).integers(0, 64, n).astype(np.uint16) for n in (5, 9, 3)]
    stop = int(speculate.greedy(target, [prompts[1].tolist()], -1, 20)[0][9])
    g = draft_data.Generator(target, 4, 12, 24, stop, 0)
    out = g.run(prompts, [0.0] * 3, enough=1.0)
    assert [o.tolist() for o in out] == speculate.greedy(target, [p.tolist() for p in prompts], stop, 24)
    again = [g.run(prompts, [0.8] * 3, enough=1.0) for _ in range(8)]
    assert len({tuple(r[0].tolist()) for r in again}) > 1  # sampled
    seqs = [np.arange(n, dtype=np.uint16) + 1 for n in (7, 3, 9, 12, 4, 4, 30)]
    ids, seg = draft_data.pack(seqs, 16)
    found = sorted(ids[r][seg[r] == n].tolist() for r in range(len(ids)) for n in range(1, seg[r].max() + 1))
    assert found == sorted(s.tolist() for s in seqs[:-1]) and len(ids) <= 4


def check_half():
    """The types that the GPU works with (bf16 weights and caches, autocast) go together, and give about the same."""
    for layout in LAYOUTS:
        target, draft = models(layout)
        half = draft_data.half_precision(copy.deepcopy(target))
        ids = torch.randint(0, TINY.vocab, (2, 16))
        seg, learn = torch.ones_like(ids), torch.ones_like(ids, dtype=torch.bool)
        losses = []
        for model, cast in ((target, False), (half, True)):
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                features, hidden, mask = target_pass(model, ids, seg, draft.d.taps)
                loss, _ = draft_loss(draft.share(model), features, mask, ids, wanted(model, hidden, learn, seg, 4))
            loss.backward()
            losses.append(float(loss.detach()))
        assert abs(losses[0] / losses[1] - 1) < 0.05, losses
    prompts = [np.arange(n, dtype=np.uint16) for n in (5, 9)]
    out = draft_data.Generator(half, 2, 12, 8, -1, 0, half=True).run(prompts, [0.0, 0.8])
    assert [len(o) for o in out] == [8, 8]


@torch.no_grad()
def check_layers():
    """Attention of the two layouts against code that is not ours or not the draft's."""
    target, draft = models("mla")
    d, T, a = draft.d, 9, torch.randn(2, 9, 2 * TINY.hidden)
    wide = Attention(replace(TINY, hidden=2 * TINY.hidden, q_lora=d.q_lora))
    wide.o_proj = nn.Linear(TINY.heads * TINY.v_dim, TINY.hidden, bias=False)
    wide.load_state_dict({n: t for n, t in draft.midlayer.self_attn.state_dict().items()})
    angle, mask = (
        torch.arange(T)[None, :, None, None].float() * target.inv_freq,
        torch.ones(T, T, dtype=torch.bool).tril(),
    )
    slots = Slots(2, d.heads, T, TINY.nope + TINY.rope, TINY.v_dim, torch.float32, "cpu")
    slots.fill(0, 2)
    got = draft.midlayer.self_attn(a, torch.arange(T)[None], Cached(slots))
    mla = close(got, wide(a, angle.cos(), angle.sin(), mask, None), 1e-5, "mla")
    try:
        from transformers import LlamaConfig
        from transformers.models.llama import modeling_llama as hf
    except ImportError:
        return mla, None
    target, draft = models("llama")
    d, D = draft.d, TINY.hidden
    c = LlamaConfig(
        hidden_size=2 * D,
        num_attention_heads=d.heads,
        num_key_value_heads=d.heads,
        head_dim=d.head_dim,
        intermediate_size=d.inter,
        rms_norm_eps=1e-6,
        attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": TINY.theta},
    )
    attention, rope = hf.LlamaAttention(c, 0), hf.LlamaRotaryEmbedding(c)
    attention.o_proj = nn.Linear(d.heads * d.head_dim, D, bias=False)
    small = copy.deepcopy(c)
    small.hidden_size = D
    mlp, norms = hf.LlamaMLP(small), {
        n: hf.LlamaRMSNorm(D, 1e-6) for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    }
    own = draft.midlayer
    for name, n in norms.items():
        getattr(own, name).weight.normal_(1, 0.2)
        n.weight.copy_(getattr(own, name).weight.to(torch.bfloat16).float())
    attention.load_state_dict(own.self_attn.state_dict())
    mlp.load_state_dict(own.mlp.state_dict())
    x, ids, pos = torch.randn(2, T, D), torch.randint(0, TINY.vocab, (2, T)), torch.arange(T)[None]
    a = torch.cat([norms["input_layernorm"](target.embed_tokens(ids)), norms["hidden_norm"](x)], -1)
    far = torch.full((T, T), float("-inf")).triu(1)[None, None]
    y = x + attention(a, position_embeddings=rope(a, pos), attention_mask=far)[0]
    want = y + mlp(norms["post_attention_layernorm"](y))
    slots = Slots(2, d.heads, T, d.head_dim, d.head_dim, torch.float32, "cpu")
    slots.fill(0, 2)
    return mla, close(draft(x, ids, pos, Cached(slots)), want, 1e-5, "llama")


def main():
    torch.set_num_threads(1)  # tiny matrices
    check_learnt()
    check_generator()
    check_half()
    for layout in LAYOUTS:
        gap = check_unroll(layout)
        before, after = check_gradients(layout)
        size, compared = check_files(layout), check_decoding(layout)
        print(
            f"{layout}: training-time test = inference (relative {gap:.1e}), 60 steps take the acceptance of one batch from "
            f"{before:.2f} to {after:.2f}, files equal ({size} bytes), oracle 4.00, {compared} guesses after catching up"
        )
    mla, llama = check_layers()
    print(
        f"layers: mla = the model's attention ({mla:.1e}), llama = transformers' "
        f"({'not installed, not compared' if llama is None else format(llama, '.1e')})"
    )


if __name__ == "__main__":
    main()
