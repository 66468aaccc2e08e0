"""Golden values of EAGLE-3.1's switches: drafts of nano, run by implementations that others wrote.

    python tests/golden/make_draft_switches.py [--torchspec DIR]

Writes tests/data/nano-eagle3/switches.jsonl. Needs torch, transformers, `speculators` (vllm-project; made with 0.9.0)
and, for the latent layout, a checkout of lightseekorg/TorchSpec (made with 6f21829).

Weights are those of models/nano-eagle3 and models/nano-eagle3-mla; norms that these do not have are made up (NORMS).
rms_norm_eps is much larger than usual, so that a norm with another eps shows.

Who computes:
  llama   speculators' Eagle3DraftModel, whole: fc_norm, norm_before_fc, norm_output, norm_before_residual
  mla     TorchSpec's DeepSeekDecoderLayer as the layer of the same Eagle3DraftModel. TorchSpec trains without switches,
          speculators has no latent attention, and what has both (SGLang, vLLM) runs on GPUs only.
speculators unrolls a draft as in training: in step s row i reads token i + 1 + s. The row of the last token is a chain
of guesses once the guesses stand there.

One JSON object a line:
    layout, switches       which layer; the switches that are on
    config                 config.json: of llama as speculators saves it, of mla nano's with the published keys
    made                   tensors that are in neither folder: name -> length
    ids, root              the prompt, and the model's greedy token behind it
    chain                  guesses: {"id", "top5": [[id, log-probability] x 5], "z", "h"}: the layer's output and its
                           norm: root mean square, first 4 values
"""

import argparse
import copy
import json
import os
import pathlib
import sys
import tempfile
import types

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
from transformers import DeepseekV3Config, LlamaConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/nano"))
import draft_export  # noqa: E402
import evaluate  # noqa: E402
from speculators import SpeculatorsConfig, VerifierConfig  # noqa: E402
from speculators.models import base_components  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from speculators.models.eagle3 import model_definitions  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402

STEPS, EPS = 4, 1e-2
MARGIN = 0.15  # the best token's lead over the second, so that bf16 takes the same
DATA = ROOT / "tests/data/nano-eagle3"
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
NANO_MLA = json.loads((ROOT / "models/nano-eagle3-mla/config.json").read_text())
NANO_MLA["rope_theta"] = 10000.0  # TorchSpec's YaRN has this base whatever the config says
VARIANTS = [
    ("llama", []),
    ("llama", ["fc_norm"]),
    ("llama", ["norm_output"]),
    ("llama", ["norm_before_fc"]),
    ("llama", ["norm_before_residual"]),
    ("llama", ["norm_before_fc", "norm_output"]),
    ("llama", ["fc_norm", "norm_output", "norm_before_residual"]),
    ("llama", ["norm_before_fc", "norm_output", "norm_before_residual"]),
    ("llama", ["yarn"]),
    ("mla", []),
    ("mla", ["fc_norm"]),
    ("mla", ["norm_output"]),
    ("mla", ["norm_before_fc"]),
    ("mla", ["fc_norm", "norm_output"]),
]


def made_norm(name, n):
    """Exact in bf16, and no value like its neighbours."""
    salt = sum(name.encode())
    return torch.tensor([(32 + (k * 7 + salt * 3) % 64) / 64 for k in range(n)])


def layer_config(layout, nano, switches):
    """nano's draft as transformers has it."""
    j = json.loads((ROOT / "models" / draft_export.FOLDERS[layout] / "config.json").read_text())
    keys = "hidden_size intermediate_size num_attention_heads num_key_value_heads max_position_embeddings vocab_size"
    if layout == "llama":
        rope = {"rope_theta": j["rope_theta"], **(YARN if "yarn" in switches else {"rope_type": "default"})}
        c = LlamaConfig(**{k: j[k] for k in keys.split() + ["head_dim"]}, num_hidden_layers=1, rms_norm_eps=EPS)
        c.rope_parameters = rope
    else:
        more = "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim"
        c = DeepseekV3Config(**{k: j[k] for k in (keys + " " + more).split()}, num_hidden_layers=1, rms_norm_eps=EPS)
        c.rope_parameters = {"rope_theta": j["rope_theta"], "rope_type": "default"}  # the layer has its own
    c._attn_implementation, c.tie_word_embeddings = "eager", False
    return c


def latent_layer(torchspec):
    """TorchSpec's layer with the interface of speculators' first layer: it keeps what TorchSpec's callers keep."""
    sys.path.insert(0, str(torchspec))
    sys.modules.setdefault("wandb", types.ModuleType("wandb"))  # for its logs
    from torchspec.models.draft.deepseek_eagle import DeepSeekDecoderLayer

    class Layer(DeepSeekDecoderLayer):
        def __init__(self, config, layer_idx, norm_before_residual=False):
            assert not norm_before_residual
            config = copy.copy(config)
            config.rope_scaling, config.rope_theta = NANO_MLA["rope_scaling"], NANO_MLA["rope_theta"]
            super().__init__(config)

        def forward(self, hidden_states, attention_mask=None, position_ids=None, cache_position=None, **_):
            step = int(cache_position[0]) // hidden_states.shape[1]
            if not step:
                self.kept = (None, None)
            e, h = hidden_states.chunk(2, -1)
            mask = attention_mask[..., : h.shape[1]].float()  # the later columns are its own business
            out, *self.kept = super().forward(e, h, *self.kept, mask, position_ids - step, use_cache=True)
            return out

    return base_components.override_components("llama", first_layer_class=Layer)


def build(layout, switches, target):
    on = {s: True for s in switches if s != "yarn"}
    greedy = GreedyTokenProposalConfig(speculative_tokens=STEPS)
    taps = NANO_MLA["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer_config(layout, target.c, switches),
        draft_vocab_size=target.c.vocab,
        eagle_aux_hidden_state_layer_ids=taps,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[greedy],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["KimiK25ForConditionalGeneration"]),
        ),
        **on,
    )
    model = Eagle3DraftModel(config)
    state = draft_export.load(ROOT / "models" / draft_export.FOLDERS[layout], target).state_dict()
    state = {n.replace("midlayer.", "layers.0."): t for n, t in state.items()}
    state["embed_tokens.weight"] = target.embed_tokens.weight.detach()
    ours = model.state_dict()
    made = {n: list(t.shape) for n, t in ours.items() if n not in state and not n.startswith("verifier_")}
    assert all(len(s) == 1 for s in made.values()) and set(state) <= set(ours), (made, set(state) - set(ours))
    state |= {n: made_norm(n, s[0]) for n, s in made.items()}
    state |= {n: torch.ones_like(ours[n]) for n in ours if n.startswith("verifier_")}
    model.load_state_dict(state)
    return model.float().eval(), {n: s[0] for n, s in made.items()}


def written_config(layout, switches, model):
    if layout == "llama":
        with tempfile.TemporaryDirectory() as d:
            model.config.save_pretrained(d)
            return json.loads((pathlib.Path(d) / "config.json").read_text())
    return NANO_MLA | {"rms_norm_eps": EPS} | {s: True for s in switches}


def say(x):
    return float(f"{x:.7g}")


def size_and_first(v):
    return [say(v.pow(2).mean().sqrt()), *(say(x) for x in v[:4])]


@torch.no_grad()
def chain(model, features, ids, root):
    """Greedy guesses behind the prompt, everything computed again for each."""
    seen = {}
    hooks = [
        model.layers[0].register_forward_hook(lambda m, a, out: seen["z"].append(out)),
        model.lm_head.register_forward_hook(lambda m, a, out: seen["logits"].append((a[0], out))),
    ]
    n, out = len(ids), []
    for steps in range(1, STEPS + 1):
        seen["z"], seen["logits"] = [], []
        read = [*ids[1:], root, *(g["id"] for g in out)]
        f = torch.cat([features, features.new_zeros(1, len(read) - n, features.shape[-1])], 1)
        zeros = torch.zeros(1, len(read), dtype=torch.long)
        model(f, torch.tensor([read]), zeros, position_ids=torch.arange(len(read))[None], ttt_steps=steps)
        z, (h, logits) = seen["z"][-1][0, n - 1], (t[0, n - 1] for t in seen["logits"][-1])
        top = logits.log_softmax(-1).topk(5)
        pairs = [[i, say(x)] for i, x in zip(top.indices.tolist(), top.values.tolist())]
        out.append({"id": pairs[0][0], "top5": pairs, "z": size_and_first(z), "h": size_and_first(h)})
    for hook in hooks:
        hook.remove()
    return out


def margin(guesses):
    return min(g["top5"][0][1] - g["top5"][1][1] for g in guesses)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--torchspec", type=pathlib.Path, help="a checkout; without it the llama layout alone is made")
    ap.add_argument("--out", default=DATA / "switches.jsonl", type=pathlib.Path)
    a = ap.parse_args()
    if a.torchspec:
        model_definitions.model_classes["deepseek_v3"] = latent_layer(a.torchspec)
    target = evaluate.load()
    prompts = {tuple(g["ids"]): g["root"] for g in map(json.loads, open(DATA / "golden.jsonl"))}
    lines = []
    for layout, switches in VARIANTS:
        if layout == "mla" and not a.torchspec:
            continue
        model, made = build(layout, switches, target)
        found = []
        for ids, root in prompts.items():
            T = len(ids)
            mask = torch.ones(T, T, dtype=torch.bool).tril()
            taps = model.config.eagle_aux_hidden_state_layer_ids
            with torch.no_grad():
                _, _, f = target(torch.tensor([ids]), torch.arange(T)[None], mask, taps=taps)
            found.append((ids, root, chain(model, f, list(ids), root)))
        found.sort(key=lambda r: -margin(r[2]))  # the two that are decided most clearly
        for ids, root, guesses in found[:2]:
            print(layout, switches, len(ids), [g["id"] for g in guesses], f"margin {margin(guesses):.2f}")
            assert margin(guesses) > MARGIN
            config = written_config(layout, switches, model)
            line = {"layout": layout, "switches": switches, "config": config, "made": made}
            lines.append(line | {"ids": list(ids), "root": root, "chain": guesses})
    a.out.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in lines))


if __name__ == "__main__":
    main()
