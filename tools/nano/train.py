"""Train nano, text and pictures together, in one piece or several.

    python tools/nano/dataset.py --out ROWS &
    python tools/nano/train.py --rows ROWS --out DIR [--steps N] [--seconds S]

A piece stops after S seconds; the same command again goes on from DIR/state.pt as if nothing had happened. A step is
one batch of short rows (text and pictures) and, every --long-every steps, one of long rows; their gradients are added.
The learning rate warms up, stays, and decays over the last 40 % of the steps.
"""

import argparse
import os
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

import dataset
from config import Nano
from model import Kimi, Moe
from vision import Vision
import vision_packed


class Pool:
    """The rows of one kind on the device: more come in as their files appear; batches are drawn at random."""

    def __init__(self, kind, folder, seed, dev):
        self.kind, self.folder, self.dev, self.seen, self.data = kind, pathlib.Path(folder), dev, 0, {}
        self.rng = torch.Generator(dev).manual_seed(seed)

    def look(self, most=2):
        """Take in at most so many new files, in the order of their numbers."""
        for _ in range(most):
            path = self.folder / f"{self.kind}-{self.seen:03d}.npz"
            if not path.exists():
                return
            with np.load(path) as z:
                new = {
                    k: torch.from_numpy(z[k].view(np.int16) if z[k].dtype == np.uint16 else z[k]).to(self.dev)
                    for k in z.files
                }
            if "patch" in new:
                new["patch"] += len(self.data["pixels"]) if self.data else 0
            self.data = {k: torch.cat([self.data[k], v]) if self.data else v for k, v in new.items()}
            self.seen += 1

    def wait(self):
        while not self.data:
            self.look(1)
            time.sleep(0.2)

    def draw(self, count):
        """{name: [count, ...]}; ids [count, W] and learn (bool) taken apart, pixels [count * groups, L, 588]."""
        d = self.data
        pick = torch.randint(len(d["ids"]), (count,), generator=self.rng, device=self.dev)
        out = {k: v[pick] for k, v in d.items() if k != "pixels"}
        raw = out["ids"].int()
        out["ids"], out["learn"] = (raw & 0x7FFF).long(), (raw & 0x8000) != 0
        if "patch" in out:
            out["pixels"] = d["pixels"][out.pop("patch").flatten()].view(count * dataset.GROUPS, dataset.GROUP, -1)
            out["place"] = out["place"].view(count * dataset.GROUPS, dataset.GROUP, -1)
        return out


def loss_of(hidden, model, ids, learn):
    logits = model.lm_head(hidden[:, :-1]).float()
    each = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    want = learn[:, 1:].flatten().float()
    return (each * want).sum(), want.sum(), each * want


def short_loss(model, eyes, table, ids, learn, seg, slot, pixels, place, pictures):
    """The last `pictures` rows have pictures. Loss, expert loads, mean loss of text and of picture rows."""
    T = ids.shape[1]
    tril = torch.ones(T, T, dtype=torch.bool, device=ids.device).tril()
    mask = (seg[:, None, :, None] == seg[:, None, None, :]) & tril
    x = model.embed_tokens(ids)
    if pictures:
        seen = vision_packed.insert(
            x[-pictures:], slot, vision_packed.tower(eyes, table, pixels, place), dataset.GROUPS
        )
        x = torch.cat([x[:-pictures], seen])
    hidden, loads = model(ids, torch.arange(T, device=ids.device)[None], mask, valid=(seg > 0).float(), rows=x)
    total, n, each = loss_of(hidden, model, ids, learn)
    cut = (len(ids) - pictures) * (T - 1)
    want = learn[:, 1:].flatten().float()
    parts = torch.stack([each[:cut].sum() / want[:cut].sum(), each[cut:].sum() / want[cut:].sum().clamp_min(1)])
    return total / n, loads, parts.detach()


def long_loss(model, ids, learn, seg):
    hidden, loads = model(ids, torch.arange(ids.shape[1], device=ids.device)[None], None, valid=(seg > 0).float())
    total, n, _ = loss_of(hidden, model, ids, learn)
    return total / n, loads


def schedule(step, steps, warm=300):
    decay = int(steps * 0.4)
    if step < warm:
        return (step + 1) / warm
    return 1.0 if step < steps - decay else max(0.0, (steps - step) / decay)


def groups_of(model, eyes, lr, eyes_lr):
    """AdamW's parameter groups: matrices decay, vectors and embeddings do not; the tower has its own rate."""
    out = []
    for m, rate in ((model, lr), (eyes, eyes_lr)):
        plain = lambda n, p: p.ndim == 1 or "embed_tokens" in n or "pos_emb" in n
        out.append(
            {"params": [p for n, p in m.named_parameters() if not plain(n, p)], "weight_decay": 0.05, "top": rate}
        )
        out.append({"params": [p for n, p in m.named_parameters() if plain(n, p)], "weight_decay": 0.0, "top": rate})
    return out


class Trainer:
    def __init__(self, a, dev):
        torch.manual_seed(a.seed)
        self.a, self.dev, self.step, self.spent = a, dev, 0, 0.0
        self.model, self.eyes = Kimi(Nano()).to(dev), Vision().to(dev)
        for m in self.model.modules():
            if isinstance(m, Moe):
                m.quantize = not a.no_int4
        self.table = vision_packed.position_matrices(self.eyes.c.pos_side).to(dev)
        self.opt = torch.optim.AdamW(
            groups_of(self.model, self.eyes, a.lr, a.eyes_lr), betas=(0.9, 0.95), fused=dev == "cuda"
        )
        self.pools = {k: Pool(k, a.rows, a.seed + i, dev) for i, k in enumerate(dataset.PLAN)}
        make = (lambda f: f) if a.no_compile else (lambda f: torch.compile(f, dynamic=False))
        self.short, self.long = make(short_loss), make(long_loss)

    def state_path(self):
        return pathlib.Path(self.a.out) / "state.pt"

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "eyes": self.eyes.state_dict(),
                "opt": self.opt.state_dict(),
                "step": self.step,
                "spent": self.spent,
                "rng": {k: p.rng.get_state() for k, p in self.pools.items()},
            },
            f"{self.state_path()}.part",
        )
        os.rename(f"{self.state_path()}.part", self.state_path())

    def resume(self):
        if not self.state_path().exists():
            return False
        s = torch.load(self.state_path(), map_location=self.dev)
        self.model.load_state_dict(s["model"])
        self.eyes.load_state_dict(s["eyes"])
        self.opt.load_state_dict(s["opt"])
        self.step, self.spent = s["step"], s["spent"]
        for k, p in self.pools.items():
            p.rng.set_state(s["rng"][k].cpu())
        return True

    def short_batch(self):
        """Text rows first, then picture rows, as one batch."""
        t, p = self.pools["text"].draw(self.a.text), self.pools["picture"].draw(self.a.pictures)
        both = [torch.cat([t[k], p[k]]) for k in ("ids", "learn", "seg")]
        return (*both, p["slot"], p["pixels"], p["place"], self.a.pictures)

    def long_batch(self):
        """Rows of 4096 until a.longest_from of the steps, then 16384 and 4096 in turns."""
        turn = self.step // self.a.long_every
        longest = self.step >= self.a.longest_from * self.a.steps and turn % 3 != 0
        b = self.pools["longest" if longest else "long"].draw(self.a.long // (4 if longest else 1))
        return b["ids"], b["learn"], b["seg"]

    def one(self):
        """One step: losses [all, text, pictures, long or nan] and each layer's busiest expert over the mean."""
        rate = schedule(self.step, self.a.steps)
        for g in self.opt.param_groups:
            g["lr"] = g["top"] * rate
        with torch.autocast(self.dev, torch.bfloat16):
            loss, loads, parts = self.short(self.model, self.eyes, self.table, *self.short_batch())
        loss.backward()
        far = torch.full((), float("nan"), device=self.dev)
        if self.step % self.a.long_every == self.a.long_every - 1:
            with torch.autocast(self.dev, torch.bfloat16):
                far, more = self.long(self.model, *self.long_batch())
            (far * self.a.long_weight).backward()
            loads = loads + more
        torch.nn.utils.clip_grad_norm_([*self.model.parameters(), *self.eyes.parameters()], 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        with torch.no_grad():  # auxiliary-loss-free balancing: push the bias of crowded experts down
            mean = loads.mean(-1, keepdim=True)
            for gate, load, m in zip(self.model.routers(), loads, mean):
                gate.e_score_correction_bias += self.a.bias_step * rate * torch.sign(m - load)
        self.step += 1
        return torch.cat([loss.detach()[None], parts, far.detach()[None]]), loads.amax(-1) / mean[:, 0]


def run(t, say):
    a, start, mark, losses = t.a, time.time(), time.time(), []
    for p in t.pools.values():
        p.wait()
    say(f"first rows after {time.time() - start:.0f} s")
    while t.step < a.steps and time.time() - start < a.seconds:
        if t.step % 20 == 0:
            for p in t.pools.values():
                p.look()
        loss, crowd = t.one()
        losses.append(loss)
        if t.step % 100 == 0 or t.step in (5, 20) or t.step == a.steps:
            m = torch.stack(losses).nanmean(0).tolist()
            each = (time.time() - mark) / len(losses)
            left = min((a.steps - t.step) * each, a.seconds - (time.time() - start))
            say(
                f"step {t.step}/{a.steps} loss {m[0]:.4f} text {m[1]:.4f} picture {m[2]:.4f} long {m[3]:.4f} load max/mean "
                f"{crowd.max().item():.2f} {each * 1e3:.1f} ms/step, {left:.0f} s left; rows "
                + " ".join(f"{k} {len(p.data['ids'])}" for k, p in t.pools.items())
            )
            losses, mark = [], time.time()
    t.spent += time.time() - start
    t.save()
    say(f"{t.step} of {a.steps} steps, {t.spent:.0f} s of training so far, saved in {t.state_path()}")


def arguments():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", required=True, help="folder of dataset.py's files")
    ap.add_argument("--out", required=True, help="folder of state.pt and train.log")
    ap.add_argument("--steps", type=int, default=20000)
    ap.add_argument("--seconds", type=float, default=1e9, help="stop after so long, state saved")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--eyes-lr", type=float, default=1e-3)
    ap.add_argument("--text", type=int, default=48, help="rows of 1024 a step")
    ap.add_argument("--pictures", type=int, default=16, help="rows of 1024 with pictures a step")
    ap.add_argument("--long", type=int, default=8, help="rows of 4096, or a quarter as many of 16384")
    ap.add_argument("--long-every", type=int, default=4)
    ap.add_argument("--long-weight", type=float, default=0.5)
    ap.add_argument("--longest-from", type=float, default=0.3, help="share of the steps before 16384")
    ap.add_argument("--bias-step", type=float, default=1e-3, help="speed of the load balancing")
    ap.add_argument(
        "--no-int4", action="store_true", help="experts without INT4 in the loop: a master for other formats"
    )
    ap.add_argument("--no-compile", action="store_true")
    return ap.parse_args()


def main():
    a, dev = arguments(), "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs(a.out, exist_ok=True)
    log = open(f"{a.out}/train.log", "a")

    def say(text):
        print(text, flush=True)
        print(text, file=log, flush=True)

    torch.set_float32_matmul_precision("high")
    t = Trainer(a, dev)
    again = t.resume()
    n = [sum(p.numel() for p in m.parameters()) / 1e6 for m in (t.model, t.eyes)]
    say(
        f"{n[0]:.2f} M text and {n[1]:.2f} M vision parameters, {torch.cuda.get_device_name() if dev == 'cuda' else dev}, "
        f"{'resumed at' if again else 'from'} step {t.step}"
    )
    run(t, say)


if __name__ == "__main__":
    main()
