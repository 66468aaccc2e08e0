"""The six test checkpoints: their dimensions, config.json and shard names.

Dimensions are small and on purpose not Kimi's; legal odd ones are preferred (odd head counts, widths that no tile
divides, partial FP8 blocks). Only k2-instruct-fp8 keeps Kimi's head dimensions (128/64/128, latent 512). plain-fp32
has a large rms_norm_eps: whoever ignores the config's value is 0.7 % off, where 1e-5 against 1e-6 would not show.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    name: str
    fmt: str  # fp8 | int4 | quark | bf16 | fp32: how the quantisable matrices are stored
    seed: int
    hidden: int
    layers: int
    heads: int
    nope: int
    rope: int
    v: int
    q_lora: int | None
    kv_lora: int
    dense_width: int  # intermediate_size
    moe_width: int  # moe_intermediate_size
    experts: int
    topk: int
    vocab: int
    eps: float
    factor: float  # YaRN
    beta_fast: float
    original: int  # original_max_position_embeddings: the 300 and 601 token prompts go past it
    dense_layers: int = 1  # first_k_dense_replace
    shared: int = 1  # n_shared_experts
    theta: float = 50000.0
    routed_scale: float = 2.827
    prefix: str = ""  # in front of every text tensor's name
    shards: str = ""  # file name pattern of (number, count); "" = one model.safetensors without an index


VARIANTS = [
    Variant("k2-instruct-fp8", "fp8", 1000, hidden=144, layers=2, heads=3, nope=128, rope=64, v=128, q_lora=96,
            kv_lora=512, dense_width=144, moe_width=64, experts=10, topk=4, vocab=160, eps=1e-6, factor=32.0,
            beta_fast=1.0, original=128, shards="model-{}-of-{}.safetensors"),
    Variant("k2-thinking-int4", "int4", 2000, hidden=64, layers=3, heads=5, nope=24, rope=16, v=20, q_lora=40,
            kv_lora=56, dense_width=104, moe_width=64, experts=14, topk=3, vocab=171, eps=1e-5, factor=64.0,
            beta_fast=1.0, original=64, shards="model-{:05d}-of-{:06d}.safetensors"),
    Variant("k2.5-int4", "int4", 3000, hidden=96, layers=3, heads=3, nope=24, rope=16, v=20, q_lora=56, kv_lora=72,
            dense_width=136, moe_width=32, experts=16, topk=8, vocab=163, eps=1e-5, factor=64.0, beta_fast=32.0,
            original=64, prefix="language_model.", shards="model-{:05d}-of-{:06d}.safetensors"),
    Variant("k2.5-w4a8", "quark", 6000, hidden=128, layers=3, heads=3, nope=24, rope=16, v=20, q_lora=40, kv_lora=72,
            dense_width=104, moe_width=64, experts=12, topk=4, vocab=151, eps=1e-5, factor=64.0, beta_fast=32.0,
            original=64, prefix="language_model.", shards="model-{:05d}-of-{:06d}.safetensors"),
    Variant("plain-bf16", "bf16", 4000, hidden=88, layers=4, heads=3, nope=20, rope=12, v=28, q_lora=None,
            kv_lora=40, dense_width=76, moe_width=20, experts=10, topk=5, vocab=157, eps=1e-5, factor=64.0,
            beta_fast=32.0, original=128, dense_layers=2, shared=2, theta=10000.0, routed_scale=2.5),
    Variant("plain-fp32", "fp32", 5000, hidden=60, layers=3, heads=5, nope=12, rope=8, v=10, q_lora=36, kv_lora=44,
            dense_width=70, moe_width=20, experts=9, topk=3, vocab=139, eps=1e-2, factor=32.0, beta_fast=32.0,
            original=64),
]

INT4_QUANTIZATION = {
    "config_groups": {"group_0": {
        "input_activations": None, "output_activations": None, "targets": ["Linear"],
        "weights": {"actorder": None, "block_structure": None, "dynamic": False, "group_size": 32, "num_bits": 4,
                    "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": True,
                    "type": "int"}}},
    "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    "kv_cache_scheme": None,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}
QUARK_QUANTIZATION = {
    "algo_config": None,
    "exclude": ["*self_attn*", "*mlp.gate", "*lm_head", "*mlp.gate_proj", "*mlp.up_proj", "*mlp.down_proj",
                "*shared_experts*", "*mm_projector*", "*vision_tower*"],
    "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
    "global_quant_config": {
        "bias": None,
        "input_tensors": {"ch_axis": None, "dtype": "fp8_e4m3", "is_dynamic": True, "qscheme": "per_tensor"},
        "output_tensors": None,
        "weight": [{"ch_axis": None, "dtype": "fp8_e4m3", "is_dynamic": False, "qscheme": "per_tensor"},
                   {"ch_axis": 0, "dtype": "int4", "is_dynamic": False, "qscheme": "per_channel",
                    "round_method": "half_even"}]},
    "layer_quant_config": {},
    "quant_method": "quark",
}
FP8_QUANTIZATION = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                    "weight_block_size": [128, 128]}
VISION_CONFIG = {  # key names as published; the tower itself is not part of these checkpoints
    "init_pos_emb_height": 8, "init_pos_emb_time": 4, "init_pos_emb_width": 8, "merge_kernel_size": [2, 2],
    "merge_type": "sd2_tpool", "mm_hidden_size": 16, "mm_projector_type": "patchmerger", "patch_size": 14,
    "pos_emb_type": "divided_fixed", "projector_hidden_act": "gelu", "projector_ln_eps": 1e-05,
    "video_attn_type": "spatial_temporal", "vt_hidden_size": 16, "vt_intermediate_size": 40,
    "vt_num_attention_heads": 2, "vt_num_hidden_layers": 1,
}


def text_config(v: Variant) -> dict:
    """The keys of a published kimi_k2 config.json, with this variant's values."""
    c = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "attention_bias": False, "attention_dropout": 0.0, "aux_loss_alpha": 0.001,
        "bos_token_id": v.vocab - 3, "eos_token_id": v.vocab - 2, "ep_size": 1,
        "first_k_dense_replace": v.dense_layers, "hidden_act": "silu", "hidden_size": v.hidden,
        "initializer_range": 0.02, "intermediate_size": v.dense_width, "kv_lora_rank": v.kv_lora,
        "max_position_embeddings": int(v.original * v.factor), "model_type": "kimi_k2",
        "moe_intermediate_size": v.moe_width, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": v.experts,
        "n_shared_experts": v.shared, "norm_topk_prob": True, "num_attention_heads": v.heads,
        "num_experts_per_tok": v.topk, "num_hidden_layers": v.layers, "num_key_value_heads": v.heads,
        "num_nextn_predict_layers": 0, "pretraining_tp": 1, "q_lora_rank": v.q_lora, "qk_nope_head_dim": v.nope,
        "qk_rope_head_dim": v.rope, "rms_norm_eps": v.eps,
        "rope_scaling": {"beta_fast": v.beta_fast, "beta_slow": 1.0, "factor": v.factor, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": v.original, "type": "yarn"},
        "rope_theta": v.theta, "routed_scaling_factor": v.routed_scale, "scoring_func": "sigmoid", "seq_aux": True,
        "tie_word_embeddings": False, "topk_group": 1, "topk_method": "noaux_tc",
        "torch_dtype": "float32" if v.fmt == "fp32" else "bfloat16", "use_cache": True, "v_head_dim": v.v,
        "vocab_size": v.vocab,
    }
    if v.fmt == "int4":
        c["quantization_config"] = INT4_QUANTIZATION
    if v.fmt == "quark":
        c["quantization_config"] = QUARK_QUANTIZATION
    if v.fmt == "fp8":
        c["quantization_config"] = FP8_QUANTIZATION
    return c


def config(v: Variant) -> dict:
    text = text_config(v)
    if not v.prefix:
        return text
    vision = dict(VISION_CONFIG, text_hidden_size=v.hidden)
    return {
        "architectures": ["KimiK25ForConditionalGeneration"], "bos_token_id": text["bos_token_id"],
        "dtype": "bfloat16", "eos_token_id": text["eos_token_id"], "ignore_index": -100,
        "media_placeholder_token_id": v.vocab - 4, "model_type": "kimi_k25", "pad_token_id": v.vocab - 1,
        "text_config": text, "tie_word_embeddings": False, "use_unified_vision_chunk": True,
        "video_placeholder": "<|kimi_k25_video_placeholder|>", "vision_config": vision,
    }
