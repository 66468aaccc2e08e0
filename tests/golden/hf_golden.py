"""Golden logits from Hugging Face transformers' DeepSeek-V3 classes, in float32 and in bfloat16.

Read against modeling_deepseek_v3.py of transformers 5.23.0. Points where it could differ from the reference model
that the Kimi repositories ship (modeling_deepseek.py), and what is done here:

 1. model_type: transformers' native loader knows deepseek_v3, not kimi_k2. The config is built key by key
    (hf_config) and weights are set by name, strictly, so nothing of from_pretrained's key renaming is involved.
 2. Experts are stored fused: mlp.experts.gate_up_proj [E, 2 * width, hidden] (gate rows first, then up rows) and
    mlp.experts.down_proj [E, hidden, width]. Stacked here from the per-expert matrices.
 3. rope_interleave (default true, and set here): the pairs (2j, 2j+1) are rotated, as stored; the result is laid out
    as two halves in q and k alike, so q.k equals that of rotation in place.
 4. YaRN: config.rope_scaling becomes config.rope_parameters with rope_type "yarn" and rope_theta inside; head_dim
    is qk_rope_head_dim. beta_fast "or 32": 1.0 is not taken for missing. cos and sin are multiplied by
    m(mscale) / m(mscale_all_dim) = 1; the softmax scale by m(mscale_all_dim)^2 (yarn_apply_mscale), which happens
    only because mscale_all_dim is set and rope_type is not "default". inv_freq and the angles are float32.
 5. q_a_layernorm and kv_a_layernorm are built without eps: 1e-6 whatever rms_norm_eps says, as in the reference.
 6. Router: logits from float32 activations and float32 weights in both runs, sigmoid, bias only for the choice,
    norm_topk_prob with + 1e-20, then routed_scaling_factor. The group step is a no-op with n_group = topk_group = 1,
    but it takes topk(2) of a group, so there must be at least two experts.
 7. The stock initialisation makes e_score_correction_bias and inv_freq buffers: model.to(bfloat16) would round
    both (a bf16 inv_freq is wrong by whole radians at position 300). from_pretrained keeps both in float32, so they
    are restored after the cast here.
 8. bf16 expert sum: each expert output is multiplied by its float32 weight, rounded to bf16 and added to a bf16
    accumulator, expert by expert; the reference sums the slots in float32 and rounds once. The bf16 run is
    transformers' own, kept as it is ("eager" experts).
 9. bf16: cos and sin are rounded to bf16, attention scores are bf16 with a float32 softmax, logits come out as bf16.
10. hidden_states of transformers end with the normed state; forward hooks take the raw residual stream instead.
11. num_nextn_predict_layers = 0 (the default of 1 concerns multi-token prediction, which Kimi does not ship).
"""

import json
import platform

import numpy as np
import torch
import transformers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

MARGIN = 0.3  # float32 top1 - top2 above which a wrong argmax counts
HIDDEN_PROMPT = 1  # its hidden states and chosen experts are stored


def hf_config(c):
    """transformers' config from the keys of a kimi_k2 config.json, a dict."""
    keys = [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "moe_intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "n_shared_experts",
        "n_routed_experts",
        "routed_scaling_factor",
        "kv_lora_rank",
        "q_lora_rank",
        "qk_rope_head_dim",
        "v_head_dim",
        "qk_nope_head_dim",
        "n_group",
        "topk_group",
        "num_experts_per_tok",
        "first_k_dense_replace",
        "norm_topk_prob",
        "hidden_act",
        "max_position_embeddings",
        "rms_norm_eps",
        "bos_token_id",
        "eos_token_id",
        "tie_word_embeddings",
        "attention_bias",
        "num_nextn_predict_layers",
    ]
    rope = {k: x for k, x in (c["rope_scaling"] or {"type": "default"}).items() if k != "type"}
    rope.update(rope_type="yarn" if c["rope_scaling"] else "default", rope_theta=c["rope_theta"])
    config = DeepseekV3Config(**{k: c[k] for k in keys}, rope_parameters=rope, rope_interleave=True, use_cache=False)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def hf_state(c, values):
    """Our names -> transformers' names: only the experts differ (point 2)."""
    state = {name: w for name, w in values.items() if ".experts." not in name}
    for i in range(c["first_k_dense_replace"], c["num_hidden_layers"]):
        name = f"model.layers.{i}.mlp.experts"
        gate, up, down = (
            [values[f"{name}.{e}.{p}_proj.weight"] for e in range(c["n_routed_experts"])]
            for p in ("gate", "up", "down")
        )
        state[f"{name}.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
        state[f"{name}.down_proj"] = torch.stack(down)
    return state


def hf_model(c, values, dtype):
    config = hf_config(c)
    model = DeepseekV3ForCausalLM(config).float().eval()
    model.load_state_dict(hf_state(c, values), strict=True)
    assert config._attn_implementation == "eager" and config._experts_implementation == "eager"
    assert model.model.layers[0].self_attn.kv_a_layernorm.variance_epsilon == 1e-6
    if dtype != torch.float32:
        inv_freq = model.model.rotary_emb.inv_freq.clone()
        model = model.to(dtype)
        model.model.rotary_emb.inv_freq = inv_freq
        for i in range(c["first_k_dense_replace"], c["num_hidden_layers"]):
            name = f"model.layers.{i}.mlp.gate.e_score_correction_bias"
            model.model.layers[i].mlp.gate.e_score_correction_bias = values[name].clone()
    return model


def stored_positions(n):
    """Every position of a very short prompt; every 3rd, 9th or 19th and the last 8 of a longer one."""
    step = 1 if n <= 8 else 3 if n <= 64 else 9 if n <= 300 else 19
    return sorted(set(range(0, n, step)) | set(range(max(n - 8, 0), n)))


def forward(model, ids):
    """(logits [n, vocab], hidden [layers + 1, n, hidden]) as float32."""
    hidden = []

    def keep(_module, _args, output):
        hidden.append((output[0] if isinstance(output, tuple) else output).detach().float().reshape(len(ids), -1))

    modules = [model.model.embed_tokens, *model.model.layers]
    hooks = [m.register_forward_hook(keep) for m in modules]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    for h in hooks:
        h.remove()
    return logits.numpy(), torch.stack(hidden).numpy()


def relative_rows(x, golden):
    """Frobenius norm of the difference over that of golden, along the last axis."""
    x, golden = np.asarray(x, np.float64), np.asarray(golden, np.float64)
    return np.linalg.norm(x - golden, axis=-1) / np.linalg.norm(golden, axis=-1)


def logprob_rows(x, golden):
    """Root mean square of the difference of log-probabilities over the standard deviation of the golden logits:
    the same distance for who has no logits, only logprobs."""

    def log_softmax(z):
        z = z - z.max(-1, keepdims=True)
        return z - np.log(np.exp(z).sum(-1, keepdims=True))

    x, golden = np.asarray(x, np.float64), np.asarray(golden, np.float64)
    return np.sqrt(((log_softmax(x) - log_softmax(golden)) ** 2).mean(-1)) / golden.std(-1)


def statistics(x):
    """P99 is the nearest rank: the value number ceil(0.99 n) of the sorted n."""
    x = np.sort(x)
    return {"median": float(np.median(x)), "p99": float(x[-(-99 * len(x) // 100) - 1]), "max": float(x[-1])}


def run(c, values, prompts):
    """(golden.json's content, float32 logits at the stored positions, hidden states of HIDDEN_PROMPT). c: the text
    model's configuration; values: its weights in float32 under their plain names."""
    models = [hf_model(c, values, dtype) for dtype in (torch.float32, torch.bfloat16)]
    assert models[0].model.rotary_emb.attention_scaling == 1.0
    entries, rows = [], ([], [])
    for number, ids in enumerate(prompts):
        positions = stored_positions(len(ids))
        entries.append({"ids": ids, "positions": positions, "first_row": sum(map(len, rows[0]))})
        for model, out in zip(models, rows):
            logits, states = forward(model, ids)
            out.append(logits[positions])
            if number == HIDDEN_PROMPT and model is models[0]:
                hidden = states
    f32, b16 = np.concatenate(rows[0]), np.concatenate(rows[1])
    top = np.sort(f32, -1)
    clear = top[:, -1] - top[:, -2] > MARGIN
    wrong = clear & (b16.argmax(-1) != f32.argmax(-1))
    golden = {
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "logits": {"file": "logits.f32", "shape": list(f32.shape)},
        "hidden": {"file": "hidden.f32", "shape": list(hidden.shape), "prompt": HIDDEN_PROMPT},
        "prompts": entries,
        "bf16": {
            "logits_rel": statistics(relative_rows(b16, f32)),
            "logprob_rel": statistics(logprob_rows(b16, f32)),
            "margin": MARGIN,
            "margin_positions": int(clear.sum()),
            "argmax_misses": int(wrong.sum()),
            "argmax_miss_share": float(wrong.sum() / max(clear.sum(), 1)),
            "argmax_misses_any_margin": int((b16.argmax(-1) != f32.argmax(-1)).sum()),
            "argmax": b16.argmax(-1).tolist(),
        },
    }
    return golden, f32, hidden


def dump(golden):
    """JSON with one line for each key, and one for each prompt."""
    lines = []
    for key, value in golden.items():
        text = json.dumps(value)
        if key == "prompts":
            text = "[\n" + ",\n".join("  " + json.dumps(p) for p in value) + "\n ]"
        lines.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"
