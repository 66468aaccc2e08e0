"""The drawn checkpoints (build/golden) and the committed files of tests/golden are consistent with each other (standard
library only, nothing is recomputed with torch), and compare_logprobs.py accepts golden values and rejects wrong ones.
"""

import array
import hashlib
import json
import math
import os
import random
import sys

import pytest

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
sys.path.insert(0, ROOT)
import compare_logprobs  # noqa: E402

DRAWN = os.path.join(ROOT, "../../build/golden")
PADDED = "model-{:05d}-of-{:06d}.safetensors"
COUNTS = {
    "k2-instruct-fp8": 3,
    "k2-ranks-fp8": 3,
    "k2-thinking-int4": 4,
    "k2.5-int4": 6,
    "k2.5-ranks-int4": 5,
    "k2.5-w4a8": 6,
    "k2.5-ranks-w4a8": 5,
    "k2.5-mxfp4": 6,
    "k2.5-mxfp4-ct": 5,
    "k2.5-ranks-mxfp4": 5,
    "k2.5-float8": 5,
    "k2.5-int8": 6,
    "k2-w4afp8": 3,
    "k2.5-nvfp4": 6,
    "k2.5-nvfp4-ct": 5,
    "plain-bf16": 1,
    "plain-ranks-bf16": 1,
    "plain-fp32": 1,
    "plain-ranks-fp32": 1,
}
SHARDS = {
    name: ["model.safetensors"]
    if n == 1
    else [("model-{}-of-{}.safetensors" if "fp8" in name else PADDED).format(i + 1, n) for i in range(n)]
    for name, n in COUNTS.items()
}
SIZES = {"F32": 4, "I32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1}

pytestmark = pytest.mark.parametrize("name", SHARDS)


def load(path):
    with open(path) as f:
        return json.load(f)


def floats(data):
    values = array.array("f")
    values.frombytes(data)
    return values


def read_tensors(name):
    """name -> (dtype, shape, bytes, file) of every shard; checks the safetensors headers on the way."""
    tensors = {}
    for file in SHARDS[name]:
        with open(f"{DRAWN}/{name}/{file}", "rb") as f:
            data = f.read()
        n = int.from_bytes(data[:8], "little")
        assert n % 8 == 0 and 8 + n <= len(data), file
        header = json.loads(data[8 : 8 + n])
        header.pop("__metadata__", None)
        end = 0
        for tensor, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, stop = info["data_offsets"]
            assert begin == end, f"{file}: {tensor} leaves a hole or overlaps"
            assert stop - begin == math.prod(info["shape"]) * SIZES[info["dtype"]], f"{file}: {tensor}"
            assert tensor not in tensors, f"{tensor} twice"
            tensors[tensor] = info["dtype"], info["shape"], data[8 + n + begin : 8 + n + stop], file
            end = stop
        assert 8 + n + end == len(data), f"{file}: bytes after the last tensor"
    return tensors


def values(tensor):
    """A BF16 or F32 tensor as floats."""
    dtype, _, data, _ = tensor
    if dtype == "F32":
        return floats(data)
    assert dtype == "BF16"
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return floats(bytes(wide))


def text_config(name):
    config = load(f"{ROOT}/{name}/config.json")
    return config.get("text_config", config)


def prefix(name):
    return "language_model." if name.startswith("k2.5") else ""


def test_the_same_bytes_are_drawn_everywhere(name):
    """The golden logits belong to these very weights; tests/golden/sha256 is as sha256sum writes it."""
    with open(f"{ROOT}/sha256") as f:
        want = dict(reversed(line.split()) for line in f)
    for file in SHARDS[name]:
        with open(f"{DRAWN}/{name}/{file}", "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == want[f"{name}/{file}"], f"{name}/{file}"
    assert sum(path.startswith(name + "/") for path in want) == len(SHARDS[name])
    assert load(f"{DRAWN}/{name}/config.json") == load(f"{ROOT}/{name}/config.json")


def test_shards_and_index(name):
    tensors = read_tensors(name)
    on_disk = sorted(f for f in os.listdir(f"{DRAWN}/{name}") if f.endswith(".safetensors"))
    assert on_disk == SHARDS[name]
    path = f"{DRAWN}/{name}/model.safetensors.index.json"
    assert os.path.exists(path) == (len(on_disk) > 1)
    if os.path.exists(path):
        index = load(path)
        assert index["weight_map"] == {t: info[3] for t, info in tensors.items()}
        assert index["metadata"]["total_size"] == sum(len(info[2]) for info in tensors.values())


def expected_shapes(c):
    """Projections of the text model: name -> [out, in]."""
    hidden, heads, q_lora = c["hidden_size"], c["num_attention_heads"], c["q_lora_rank"]
    nope, rope, v, latent = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    shapes = {}

    def mlp(name, width):
        shapes.update(
            {
                f"{name}.gate_proj": [width, hidden],
                f"{name}.up_proj": [width, hidden],
                f"{name}.down_proj": [hidden, width],
            }
        )

    for i in range(c["num_hidden_layers"]):
        attn = f"model.layers.{i}.self_attn."
        if q_lora is None:
            shapes[attn + "q_proj"] = [heads * (nope + rope), hidden]
        else:
            shapes[attn + "q_a_proj"] = [q_lora, hidden]
            shapes[attn + "q_b_proj"] = [heads * (nope + rope), q_lora]
        shapes[attn + "kv_a_proj_with_mqa"] = [latent + rope, hidden]
        shapes[attn + "kv_b_proj"] = [heads * (nope + v), latent]
        shapes[attn + "o_proj"] = [hidden, heads * v]
        block = f"model.layers.{i}.mlp"
        if i < c["first_k_dense_replace"]:
            mlp(block, c["intermediate_size"])
            continue
        mlp(f"{block}.shared_experts", c["moe_intermediate_size"] * c["n_shared_experts"])
        for e in range(c["n_routed_experts"]):
            mlp(f"{block}.experts.{e}", c["moe_intermediate_size"])
    return shapes


def test_projections(name):
    tensors, c = read_tensors(name), text_config(name)
    plain = "F32" if name.endswith("fp32") else "BF16"
    for proj, (n, k) in expected_shapes(c).items():
        full = prefix(name) + proj
        if name.endswith("int4") and ".experts." in proj:
            assert tensors[full + ".weight_packed"][:2] == ("I32", [n, k // 8])
            assert tensors[full + ".weight_scale"][:2] == ("BF16", [n, k // 32])
            assert tensors[full + ".weight_shape"][:2] == ("I32", [2])
            assert array.array("i", tensors[full + ".weight_shape"][2]).tolist() == [n, k]
            assert full + ".weight" not in tensors
        elif name.endswith("w4a8") and ".experts." in proj:
            assert tensors[full + ".weight"][:2] == ("I32", [n, k // 8])
            assert tensors[full + ".weight_scale"][:2] == ("F32", [1])
            assert tensors[full + ".weight_scale_2"][:2] == ("F32", [n])
        elif "mxfp4" in name and (name.endswith("ct") or ".self_attn." not in proj):
            packed, other = (".weight_packed", ".weight") if name.endswith("ct") else (".weight", ".weight_packed")
            assert tensors[full + packed][:2] == ("U8", [n, k // 2]) and full + other not in tensors
            assert tensors[full + ".weight_scale"][:2] == ("U8", [n, k // 32])
            assert 255 not in tensors[full + ".weight_scale"][2], "NaN"
        elif "nvfp4" in name and (name.endswith("ct") or ".self_attn." not in proj):
            parts = [".weight_packed", ".weight_global_scale", ".input_global_scale"]
            data, factor, inputs = parts if name.endswith("ct") else [".weight", ".weight_scale_2", ".input_scale"]
            assert tensors[full + data][:2] == ("U8", [n, k // 2])
            assert tensors[full + ".weight_scale"][:2] == ("F8_E4M3", [n, k // 16])
            assert tensors[full + factor][:2] == tensors[full + inputs][:2] == ("F32", [1])
            assert max(tensors[full + ".weight_scale"][2]) < 127, "NaN, or a scale below 0"
        elif name.endswith("w4afp8") and ".experts." in proj:
            assert tensors[full + ".weight"][:2] == ("I8", [n, k // 2])
            assert tensors[full + ".weight_scale_inv"][:2] == ("F32", [n, k // 128])
        elif name.endswith("int8"):
            assert tensors[full + ".weight"][:2] == ("I8", [n, k]) and 128 in tensors[full + ".weight"][2]
            assert tensors[full + ".weight_scale"][:2] == ("F32", [n])
            assert tensors[full + ".weight_zero_point"][:3] == ("I8", [n], bytes(n))
        elif name.endswith("float8"):
            assert tensors[full + ".weight"][:2] == ("F8_E4M3", [n, k])
            assert tensors[full + ".weight_scale"][:2] == ("BF16", [n, 1])
            assert not any(b & 127 == 127 for b in tensors[full + ".weight"][2]), "NaN"
        elif name.endswith("fp8"):
            assert tensors[full + ".weight"][:2] == ("F8_E4M3", [n, k])
            assert tensors[full + ".weight_scale_inv"][:2] == ("F32", [-(-n // 128), -(-k // 128)])
            assert not any(b & 127 == 127 for b in tensors[full + ".weight"][2]), "NaN"
        else:
            assert tensors[full + ".weight"][:2] == (plain, [n, k])
    for i in range(c["first_k_dense_replace"], c["num_hidden_layers"]):
        gate = f"{prefix(name)}model.layers.{i}.mlp.gate"
        assert tensors[gate + ".weight"][:2] == (plain, [c["n_routed_experts"], c["hidden_size"]])
        assert tensors[gate + ".e_score_correction_bias"][:2] == ("F32", [c["n_routed_experts"]])
    stray = [t for t in tensors if t.endswith("rotary_emb.inv_freq")]
    assert len(stray) == (c["num_hidden_layers"] if name.endswith("fp8") else 0)
    assert any(t.startswith("vision_tower.") for t in tensors) == name.startswith("k2.5")


def test_golden_layout(name):
    c = text_config(name)
    golden, rows = compare_logprobs.load_golden(f"{ROOT}/{name}")
    assert golden["name"] == name and len(rows[0]) == c["vocab_size"]
    lengths = [len(p["ids"]) for p in golden["prompts"]]
    assert lengths == ([1, 7, 64, 130] if "ranks" in name else [1, 7, 64, 300, 601])
    assert lengths[-1] > c["rope_scaling"]["original_max_position_embeddings"] * 4
    row = 0
    for p in golden["prompts"]:
        n = len(p["ids"])
        assert all(0 <= i < c["vocab_size"] for i in p["ids"])
        assert p["first_row"] == row and p["positions"] == sorted(set(p["positions"]))
        assert p["positions"][0] == 0 and p["positions"][-1] == n - 1
        assert n > 8 or p["positions"] == list(range(n))
        row += len(p["positions"])
    assert row == len(rows) == len(golden["bf16"]["argmax"])
    assert all(math.isfinite(x) for r in rows for x in r)
    with open(f"{ROOT}/{name}/prompts.jsonl") as f:
        assert [json.loads(line) for line in f] == [{"ids": p["ids"]} for p in golden["prompts"]]
    clear = [sorted(r)[-1] - sorted(r)[-2] > golden["bf16"]["margin"] for r in rows]
    wrong = [r.index(max(r)) != a for r, a in zip(rows, golden["bf16"]["argmax"])]
    assert golden["bf16"]["margin_positions"] == sum(clear) >= (15 if "ranks" in name else 40)
    assert golden["bf16"]["argmax_misses"] == sum(a and b for a, b in zip(clear, wrong))
    assert golden["bf16"]["argmax_misses_any_margin"] == sum(wrong)
    assert golden["checks"]["float64_logits_max_rel"] < 1e-5 and golden["checks"]["min_router_gap"] >= 0.015
    experts = golden["router"]["experts"]
    assert len(experts) == c["num_hidden_layers"] - c["first_k_dense_replace"]
    for layer in experts:
        assert len(layer) == len(golden["prompts"][golden["router"]["prompt"]]["ids"])
        assert all(len(set(token)) == c["num_experts_per_tok"] for token in layer)


def test_hidden_states_join_checkpoint_and_logits(name):
    """hidden[0] is the embedding of the prompt; norm and lm_head of hidden[-1] are the stored logits."""
    tensors, c = read_tensors(name), text_config(name)
    golden, rows = compare_logprobs.load_golden(f"{ROOT}/{name}")
    layers, n, width = golden["hidden"]["shape"]
    prompt = golden["prompts"][golden["hidden"]["prompt"]]
    assert [layers, n, width] == [c["num_hidden_layers"] + 1, len(prompt["ids"]), c["hidden_size"]]
    with open(f"{ROOT}/{name}/hidden.f32", "rb") as f:
        hidden = floats(f.read())
    assert len(hidden) == layers * n * width
    embed = values(tensors[prefix(name) + "model.embed_tokens.weight"])
    for t, i in enumerate(prompt["ids"]):
        assert hidden[t * width : (t + 1) * width] == embed[i * width : (i + 1) * width]
    norm = values(tensors[prefix(name) + "model.norm.weight"])
    head = values(tensors[prefix(name) + "lm_head.weight"])
    for t in range(n):
        x = hidden[((layers - 1) * n + t) * width :][:width]
        scale = 1 / math.sqrt(math.fsum(a * a for a in x) / width + c["rms_norm_eps"])
        y = [a * scale * w for a, w in zip(x, norm)]
        for i, want in enumerate(rows[prompt["first_row"] + t]):
            assert abs(math.fsum(a * w for a, w in zip(y, head[i * width :])) - want) < 2e-5


def engine_output(name, noise, swap=False, top=10**6):
    """What `eval logprobs --top` would print had the engine the golden logits plus relative noise. Positions that
    are not stored get one entry, which nobody compares."""
    golden, rows = compare_logprobs.load_golden(f"{ROOT}/{name}")
    rng, lines = random.Random(1), []
    for p in golden["prompts"]:
        ids = p["ids"]
        line = {"ids": ids, "logprobs": [None] * len(ids), "top": [None] + [[[0, -1.0]]] * len(ids)}
        for offset, position in enumerate(p["positions"]):
            row = rows[p["first_row"] + offset]
            spread = compare_logprobs.deviation(row)
            row = [x + rng.gauss(0, noise * spread) for x in row]
            if swap:  # exchange the two best ids
                order = sorted(range(len(row)), key=row.__getitem__)
                row[order[-1]], row[order[-2]] = row[order[-2]], row[order[-1]]
            logprob = compare_logprobs.log_softmax(row)
            order = sorted(range(len(row)), key=lambda i: -logprob[i])
            line["top"][position + 1] = [[i, float(f"{logprob[i]:.9g}")] for i in order[:top]]
            if position + 1 < len(ids):
                line["logprobs"][position + 1] = float(f"{logprob[ids[position + 1]]:.9g}")
        lines.append(line)
    return lines


def run_compare(tmp_path, name, lines, *args):
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return compare_logprobs.main([f"{ROOT}/{name}", str(path), *args])


def test_compare_accepts_and_rejects(name, tmp_path, capsys):
    bf16 = load(f"{ROOT}/{name}/golden.json")["bf16"]["logprob_rel"]["median"]
    assert run_compare(tmp_path, name, engine_output(name, 0)) == 0
    assert run_compare(tmp_path, name, engine_output(name, 5e-5)) == 0
    assert run_compare(tmp_path, name, engine_output(name, 2e-4)) == 1
    assert run_compare(tmp_path, name, engine_output(name, 2e-5, top=5)) == 0
    assert run_compare(tmp_path, name, engine_output(name, bf16), "--bounds", "bf16") == 0
    assert run_compare(tmp_path, name, engine_output(name, 1.7 * bf16), "--bounds", "bf16") == 1
    assert run_compare(tmp_path, name, engine_output(name, 1.7 * bf16), "--bounds", "quantised") == 0
    assert run_compare(tmp_path, name, engine_output(name, 2.3 * bf16), "--bounds", "quantised") == 1
    assert run_compare(tmp_path, name, engine_output(name, 0, swap=True), "--max", "9", "--median", "9") == 1
    out = capsys.readouterr().out
    assert "EXCEEDED" in out and "miss at line" in out


def test_compare_rejects_malformed(name, tmp_path, capsys):
    good = engine_output(name, 0, top=3)
    assert run_compare(tmp_path, name, good) == 0
    cases = {
        "golden prompts": lambda g: g.pop(),
        "ids are not": lambda g: g[1].update(ids=g[2]["ids"]),
        "logprobs must": lambda g: g[1]["logprobs"].pop(),
        "--top K missing": lambda g: g[1].pop("top"),
        "outside the vocabulary": lambda g: g[1]["top"][3][0].__setitem__(0, 10**6),
        "not finite": lambda g: g[1]["top"][3][0].__setitem__(1, math.nan),
        "logprob 3 is not finite": lambda g: g[1]["logprobs"].__setitem__(3, None),
    }
    for message, damage in cases.items():
        lines = json.loads(json.dumps(good))
        damage(lines)
        assert run_compare(tmp_path, name, lines) == 1
        assert message in capsys.readouterr().err
    full = engine_output(name, 0)
    full[1]["logprobs"][1:] = full[1]["logprobs"][2:] + [full[1]["logprobs"][1]]  # off by one position
    assert run_compare(tmp_path, name, full) == 1
    assert "is not the one `top` has" in capsys.readouterr().err


def test_size(name):
    """Weights are drawn, not stored."""
    assert sum(e.stat().st_size for e in os.scandir(f"{ROOT}/{name}")) < 120_000


def test_ranks_divide(name):
    """Eight ranks share the heads and the experts' columns, in whole blocks of 128 or groups of 32; the others are odd
    on purpose."""
    c = text_config(name)
    heads, unit = c["num_attention_heads"], 128 if name.endswith("fp8") else 32
    if "ranks" not in name:
        assert heads % 2 == 1
        return
    assert heads == 8 and c["vocab_size"] % 2 == 1 and c["n_routed_experts"] % 8 == 0
    assert all(c[width] % (8 * unit) == 0 for width in ("moe_intermediate_size", "intermediate_size"))
    if name.endswith("fp8"):
        nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        assert (nope + rope) % unit == (nope + v) % unit == v % unit == 0
