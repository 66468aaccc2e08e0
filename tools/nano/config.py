"""Dimensions of the nano model, and the config.json that says the same to an engine.

Every value that an engine reads is Kimi-K2.5's own key; the widths are small, the head dimensions
(nope 128, rope 64, v 128, latent 512) are Kimi's, so the kernels that serve K2.5 serve nano.
"""

import copy
import gzip
import json
import os
import pathlib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIMI = ROOT / "tests/data/kimi-k2.5"  # the real config.json and tokenizer_config.json (MIT, Moonshot AI)
OUT = pathlib.Path(os.environ.get("NANO_DIR", ROOT / "models/nano"))  # the checkpoint that is made, or read


def read_text(path):
    """The text of a file, or of its .gz where only that is there: as the engine reads it."""
    packed = path.with_name(path.name + ".gz")
    return path.read_text() if path.exists() or not packed.exists() else gzip.decompress(packed.read_bytes()).decode()


@dataclass(frozen=True)
class Nano:
    n_ranks: int = 1792  # learnt tokens; the 256 special slots follow
    hidden: int = 256
    layers: int = 6  # layer 0 dense, the others mixtures of experts
    heads: int = 2
    q_lora: int = 128
    kv_lora: int = 512
    nope: int = 128
    rope: int = 64
    v_dim: int = 128
    dense_inter: int = 512
    experts: int = 64
    topk: int = 8
    moe_inter: int = 64
    scaling: float = 2.827
    eps: float = 1e-5  # every norm but the two below
    lora_eps: float = 1e-6  # q_a and kv_a layernorm
    theta: float = 50000.0
    yarn_factor: float = 8.0
    yarn_original: int = 2048
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    context: int = 16384  # trained up to here
    group: int = 32  # INT4 quantization group

    @property
    def vocab(self):
        return self.n_ranks + 256


@dataclass(frozen=True)
class VisionDims:
    """Head dimension 72 is Kimi's (1152 / 16); the rest is small. The first five have keys in vision_config."""

    hidden: int = 144
    heads: int = 2
    layers: int = 4
    inter: int = 536
    pos_side: int = 16  # Kimi: 64. Pictures of 4 to 22 patches a side: the table is both shrunk and stretched
    text_hidden: int = 256
    patch: int = 14
    merge: int = 2
    frames: int = 4  # most frames of an item
    eps: float = 1e-5

    def json(self):
        """The vision_config of K2.5's config.json with these sizes."""
        return {
            "init_pos_emb_height": self.pos_side,
            "init_pos_emb_time": self.frames,
            "init_pos_emb_width": self.pos_side,
            "merge_kernel_size": [self.merge, self.merge],
            "merge_type": "sd2_tpool",
            "mm_hidden_size": self.hidden,
            "mm_projector_type": "patchmerger",
            "patch_size": self.patch,
            "pos_emb_type": "divided_fixed",
            "projector_hidden_act": "gelu",
            "projector_ln_eps": self.eps,
            "text_hidden_size": self.text_hidden,
            "video_attn_type": "spatial_temporal",
            "vt_hidden_size": self.hidden,
            "vt_intermediate_size": self.inter,
            "vt_num_attention_heads": self.heads,
            "vt_num_hidden_layers": self.layers,
        }


def read(folder):
    """The dimensions that a folder's config.json has."""
    t = json.loads((folder / "config.json").read_text())["text_config"]
    r = t["rope_scaling"]
    return Nano(
        n_ranks=t["vocab_size"] - 256,
        hidden=t["hidden_size"],
        layers=t["num_hidden_layers"],
        heads=t["num_attention_heads"],
        q_lora=t["q_lora_rank"],
        kv_lora=t["kv_lora_rank"],
        nope=t["qk_nope_head_dim"],
        rope=t["qk_rope_head_dim"],
        v_dim=t["v_head_dim"],
        dense_inter=t["intermediate_size"],
        experts=t["n_routed_experts"],
        topk=t["num_experts_per_tok"],
        moe_inter=t["moe_intermediate_size"],
        scaling=t["routed_scaling_factor"],
        eps=t["rms_norm_eps"],
        theta=t["rope_theta"],
        yarn_factor=r["factor"],
        yarn_original=r["original_max_position_embeddings"],
        beta_fast=r["beta_fast"],
        beta_slow=r["beta_slow"],
        context=t["max_position_embeddings"],
    )


KIMI_RANKS = 163584  # ids of Kimi's special slots minus this = the slot's offset


def shift(kimi_id, n_ranks):
    """The id that a special slot of Kimi's vocabulary has in a vocabulary of n_ranks tokens."""
    return kimi_id - KIMI_RANKS + n_ranks


def config_json(c, vision=VisionDims()):
    """K2.5's published config.json with nano's sizes."""
    j = json.loads((KIMI / "config.json").read_text())
    t = j["text_config"]
    for part in (j, t):
        part.pop("auto_map", None)  # no remote code is shipped
        for key in ("bos_token_id", "eos_token_id", "pad_token_id", "media_placeholder_token_id"):
            if part.get(key) is not None:
                part[key] = shift(part[key], c.n_ranks)
    j["vision_config"] = vision.json()
    t.update(
        vocab_size=c.vocab,
        hidden_size=c.hidden,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        num_key_value_heads=c.heads,
        q_lora_rank=c.q_lora,
        kv_lora_rank=c.kv_lora,
        qk_nope_head_dim=c.nope,
        qk_rope_head_dim=c.rope,
        v_head_dim=c.v_dim,
        intermediate_size=c.dense_inter,
        moe_intermediate_size=c.moe_inter,
        n_routed_experts=c.experts,
        num_experts_per_tok=c.topk,
        routed_scaling_factor=c.scaling,
        rms_norm_eps=c.eps,
        rope_theta=c.theta,
        max_position_embeddings=c.context,
    )
    t["rope_scaling"].update(
        factor=c.yarn_factor,
        beta_fast=c.beta_fast,
        beta_slow=c.beta_slow,
        mscale=1.0,
        mscale_all_dim=1.0,
        original_max_position_embeddings=c.yarn_original,
    )
    return j


def tokenizer_config_json(c):
    """K2.5's tokenizer_config.json with the special slots moved behind n_ranks tokens."""
    j = copy.deepcopy(json.loads((KIMI / "tokenizer_config.json").read_text()))
    j.pop("auto_map", None)
    j["added_tokens_decoder"] = {str(shift(int(k), c.n_ranks)): v for k, v in j["added_tokens_decoder"].items()}
    j["model_max_length"] = c.context
    return j
