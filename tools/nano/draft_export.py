"""A draft on disk, in the layout of the drafts published for Kimi-K2.5, and back.

    python tools/nano/draft_export.py --weights DIR [--out models]      writes OUT/nano-eagle3 and OUT/nano-eagle3-mla

config.json has the published keys and nano's values. Where nano differs, and why:
  * eagle_config names the layers in both layouts, because the default rule (2, L/2, L - 3) meets itself in a small
    model.
    The ids mean "before layer i" (in Kimi's own drafts 2, 30, 58), the form that engines read unchanged.
  * embed_tokens is not stored; engines take the model's embedding (some published Kimi drafts do the same).
The MLA layout carries the names of the exported form ("layers.0."), the Llama layout "midlayer.".
"""

import argparse
import json
import pathlib
import struct

import numpy as np
import torch

import config
from config import OUT, ROOT, shift
from draft_model import LAYOUTS, Draft, DraftConfig
from export import write_shard

FOLDERS = {"llama": "nano-eagle3", "mla": "nano-eagle3-mla"}


def eagle_config(d):
    return {
        "eagle_aux_hidden_state_layer_ids": list(d.taps),
        "use_aux_hidden_state": True,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
    }


def draft_config_json(d):
    c = d.target
    j = {
        "architectures": ["LlamaForCausalLMEagle3" if d.layout == "llama" else "Eagle3DeepseekV2ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": shift(163584, c.n_ranks),
        "eos_token_id": shift(163586, c.n_ranks),
        "eagle_config": eagle_config(d),
        "hidden_act": "silu",
        "hidden_size": c.hidden,
        "initializer_range": 0.02,
        "intermediate_size": d.inter,
        "max_position_embeddings": c.context,
        "model_type": "llama" if d.layout == "llama" else "kimi_k2",
        "num_attention_heads": d.heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": d.heads,
        "rms_norm_eps": d.eps,
        "rope_theta": c.theta,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": c.vocab,
    }
    if d.layout == "llama":
        return j | {"head_dim": d.head_dim, "mlp_bias": False, "rope_scaling": None}
    return j | {
        "draft_vocab_size": c.vocab,
        "q_lora_rank": d.q_lora,
        "kv_lora_rank": c.kv_lora,
        "qk_nope_head_dim": c.nope,
        "qk_rope_head_dim": c.rope,
        "v_head_dim": c.v_dim,
        "rope_scaling": {
            "type": "yarn",
            "factor": c.yarn_factor,
            "beta_fast": c.beta_fast,
            "beta_slow": c.beta_slow,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": c.yarn_original,
        },
    }


def disk_name(d, name):
    return name if d.layout == "llama" else name.replace("midlayer.", "layers.0.")


def export(draft, folder):
    d, folder = draft.d, pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    items = [(disk_name(d, n), t.detach().cpu().to(torch.bfloat16)) for n, t in draft.state_dict().items()]
    size = write_shard(folder / "model.safetensors", items)
    (folder / "config.json").write_text(json.dumps(draft_config_json(d), indent=2, sort_keys=True) + "\n")
    return size


def from_config(j, c):
    """The DraftConfig that a config.json says, for a model of configuration c."""
    layout = {"LlamaForCausalLMEagle3": "llama", "Eagle3DeepseekV2ForCausalLM": "mla"}[j["architectures"][0]]
    d = DraftConfig(
        layout,
        c,
        heads=j["num_attention_heads"],
        inter=j["intermediate_size"],
        head_dim=j.get("head_dim", 128),
        q_lora=j.get("q_lora_rank", 64),
    )
    assert draft_config_json(d) == j, "config.json is not this model's draft"
    return d


def load(folder, target, dev="cpu"):
    """The draft with exactly the weights on disk, reading the embedding of `target`."""
    folder = pathlib.Path(folder)
    draft = Draft(from_config(json.loads((folder / "config.json").read_text()), target.c))
    data = (folder / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    state = {}
    for name, h in json.loads(data[8 : 8 + n]).items():
        lo, hi = (8 + n + o for o in h["data_offsets"])
        a = (np.frombuffer(data[lo:hi], "<u2").astype(np.uint32) << 16).view(np.float32)
        assert h["dtype"] == "BF16"
        state[name.replace("layers.0.", "midlayer.")] = torch.from_numpy(a.copy().reshape(h["shape"]))
    draft.load_state_dict(state)
    return draft.to(dev).eval().share(target)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--weights", required=True, help="the folder in which draft_train.py left draft-*.pt")
    ap.add_argument("--out", default=ROOT / "models", type=pathlib.Path)
    ap.add_argument("--layouts", default=",".join(LAYOUTS))
    a = ap.parse_args()
    total = 0
    for layout in a.layouts.split(","):
        draft = Draft(DraftConfig(layout, config.read(OUT)))
        draft.load_state_dict(torch.load(f"{a.weights}/draft-{layout}.pt", map_location="cpu"))
        export(draft, a.out / FOLDERS[layout])
        total += sum(f.stat().st_size for f in (a.out / FOLDERS[layout]).iterdir())
    print(f"{total} bytes in {a.out}")
    assert total <= 6_000_000, "more than the 6 MB that the drafts may take together"


if __name__ == "__main__":
    main()
