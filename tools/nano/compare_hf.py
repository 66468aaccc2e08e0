"""The exported checkpoint in another implementation: Hugging Face transformers' DeepseekV3ForCausalLM.

    python tools/nano/compare_hf.py     (needs transformers 5)

Both in float32 on the dequantized weights; prints the largest difference of any logit.
"""

import json

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

import evaluate
from config import OUT, ROOT
from tokenizer import Tokenizer


def reference():
    t = json.loads((OUT / "config.json").read_text())["text_config"]
    keep = {k: v for k, v in t.items() if k not in ("quantization_config", "dtype", "rope_scaling", "rope_theta")}
    rope = dict(t["rope_scaling"], rope_type=t["rope_scaling"].pop("type"), rope_theta=t["rope_theta"])
    rope.pop("type", None)
    cfg = DeepseekV3Config(
        **{k: keep[k] for k in keep if k in DeepseekV3Config().to_dict() and k != "model_type"},
        rope_parameters=rope,
        rope_interleave=True,
    )
    cfg._attn_implementation = "eager"
    return cfg, DeepseekV3ForCausalLM(cfg).eval()


def state(c, disk):
    out = {}
    for name, x in disk.items():
        if not name.startswith("language_model."):
            continue  # vision.py --check compares the tower
        name = name.removeprefix("language_model.")
        if ".experts." not in name:
            out[name] = x
        elif name.endswith("gate_proj.weight_packed"):
            base, e, _ = name.split(".experts.")[0], *name.split(".experts.")[1].split(".")[:2]
            w = lambda p: evaluate.unpack(
                *(disk[f"language_model.{base}.experts.{e}.{p}.weight_{s}"] for s in ("packed", "scale"))
            )
            out[f"{base}.experts.{e}"] = (torch.cat([w("gate_proj"), w("up_proj")]), w("down_proj"))
    for i in range(c.first_k_dense_replace, c.num_hidden_layers):
        base = f"model.layers.{i}.mlp"
        pairs = [out.pop(f"{base}.experts.{e}") for e in range(c.n_routed_experts)]
        out[f"{base}.experts.gate_up_proj"] = torch.stack([p[0] for p in pairs])
        out[f"{base}.experts.down_proj"] = torch.stack([p[1] for p in pairs])
    return out


@torch.no_grad()
def main():
    cfg, hf = reference()
    print(hf.load_state_dict(state(cfg, evaluate.read_checkpoint(OUT))))
    ours, tok = evaluate.load(), Tokenizer()
    worst = 0.0
    for line in open(ROOT / "tests/data/nano/golden.jsonl"):
        g = json.loads(line)
        ids = torch.tensor([g["ids"] + g["greedy"]])
        a, b = ours.logits(ids), hf(ids).logits
        worst = max(worst, (a - b).abs().max().item())
        print(
            f"{ids.shape[1]:5d} ids: largest difference {(a - b).abs().max():.2e}, relative Frobenius "
            f"{(a - b).norm() / b.norm():.2e}, argmax equal {bool((a.argmax(-1) == b.argmax(-1)).all())}"
        )
    print(f"worst {worst:.2e}")


if __name__ == "__main__":
    main()
