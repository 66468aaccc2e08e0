"""Writes safetensors files and checkpoint folders for tests, good ones and broken ones; standard library only."""
import json
import os
import struct

SIZES = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "BF16": 2,
    "F16": 2,
    "I16": 2,
    "U16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


def n_bytes(dtype, shape):
    n = SIZES[dtype]
    for d in shape:
        n *= d
    return n


def layout(tensors):
    """{name: (dtype, shape)} -> header entries as the format's own writer orders them, and the bytes of data."""
    header, at = {}, 0
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda t: (-SIZES[t[1][0]], t[0])):
        n = n_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    return header, at


def header_bytes(header):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def write_raw(path, header, data=b"", data_len=None, length=None):
    """`header` is an object or bytes; `length` overrides the length that the file claims; `data_len` makes the
    data part that long without writing it (a sparse file)."""
    text = header_bytes(header)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length))
        f.write(text)
        f.write(data)
        if data_len is not None:
            f.truncate(8 + len(text) + data_len)


def write_file(path, tensors, values=None):
    """A good file. `values` maps names to bytes; everything else is zero."""
    header, total = layout(tensors)
    write_raw(path, {"__metadata__": {"format": "pt"}, **header}, data_len=total)
    with open(path, "r+b") as f:
        start = 8 + struct.unpack("<Q", f.read(8))[0]
        for name, data in (values or {}).items():
            begin, end = header[name]["data_offsets"]
            assert end - begin == len(data), name
            f.seek(start + begin)
            f.write(data)


def write_index(folder, weight_map, **more):
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 0}, "weight_map": weight_map, **more}, f)


# A small configuration of each on-disk layout. Dimensions are not Kimi's on purpose.
TEXT = {
    "model_type": "kimi_k2",
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "rms_norm_eps": 1e-6,
    "rope_theta": 50000.0,
    "max_position_embeddings": 4096,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 1024,
    },
    "bos_token_id": 300,
    "eos_token_id": 301,
}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": 32,
                "dynamic": False,
                "actorder": None,
            },
        }
    },
}


QUARK = {
    "quant_method": "quark",
    "exclude": ["*self_attn*"],
    "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
    "global_quant_config": {
        "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": True},
        "weight": [
            {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
            {"dtype": "int4", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": False},
        ],
    },
}


def fp4(dynamic):
    more = {"observer_cls": "PerBlockMXObserver", "scale_calculation_mode": "even", "symmetric": None}
    where = {"qscheme": "per_group", "group_size": 32, "ch_axis": -1, "scale_format": "e8m0"}
    return {"dtype": "fp4", "is_dynamic": dynamic, **where, **more}


MXFP4 = {
    "quant_method": "quark",
    "exclude": ["re:.*self_attn.*", "lm_head"],
    "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
    "global_quant_config": {"input_tensors": fp4(True), "weight": fp4(False)},
    "kv_cache_quant_config": {},
    "layer_quant_config": {},
}
MXFP4_CT = json.loads(json.dumps(INT4))  # compressed-tensors
MXFP4_CT["format"] = "mxfp4-pack-quantized"
MXFP4_CT["config_groups"]["group_0"]["weights"]["type"] = "float"
NVFP4 = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": ["lm_head", "*self_attn*"],
    "config_groups": {"group_0": {"weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}}},
}
NVFP4_CT = json.loads(json.dumps(MXFP4_CT))
NVFP4_CT["format"] = "nvfp4-pack-quantized"
NVFP4_CT["config_groups"]["group_0"]["weights"].update(strategy="tensor_group", group_size=16)
FP8_ROW = {
    "quant_method": "quark",
    "exclude": ["lm_head"],
    "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
    "global_quant_config": {
        "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 1, "is_dynamic": True},
        "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": False},
    },
}
FP8_ROW_CT = json.loads(json.dumps(INT4))
FP8_ROW_CT["format"] = "float-quantized"
FP8_ROW_CT["config_groups"]["group_0"]["weights"].update(num_bits=8, type="float", strategy="channel", group_size=None)
INT8_ROW = json.loads(json.dumps(FP8_ROW).replace("fp8_e4m3", "int8"))
INT8_ROW_CT = json.loads(json.dumps(INT4))
INT8_ROW_CT["format"] = "int-quantized"
INT8_ROW_CT["config_groups"]["group_0"]["weights"].update(num_bits=8, strategy="channel", group_size=None)

QUANTIZATION = {
    "fp8": FP8,
    "w4a8": QUARK,
    "thinking": INT4,
    "k2.5": INT4,
    "mxfp4": MXFP4,
    "mxfp4-ct": MXFP4_CT,
    "nvfp4": NVFP4,
    "nvfp4-ct": NVFP4_CT,
    "fp8-row": FP8_ROW,
    "fp8-row-ct": FP8_ROW_CT,
    "int8-row": INT8_ROW,
    "int8-row-ct": INT8_ROW_CT,
    "w4afp8": {"quant_method": "w4afp8"},
}


def config(layout_name):
    """The config.json of layout "plain", "fp8", "thinking" (INT4), "k2.5" (INT4, nested), "w4a8" (Quark's INT4),
    "mxfp4" (Quark's), "mxfp4-ct" (compressed-tensors'), "nvfp4" (ModelOpt's), "nvfp4-ct",
    "fp8-row" (Quark's FP8 with a scale a row), "fp8-row-ct", the same of "int8-row", or "w4afp8" (SGLang's)."""
    text = json.loads(json.dumps(TEXT))
    if layout_name in QUANTIZATION:
        text["quantization_config"] = json.loads(json.dumps(QUANTIZATION[layout_name]))
    if layout_name == "w4afp8":
        text.update(hidden_size=128, moe_intermediate_size=128)
    if layout_name != "k2.5":
        return text
    return {
        "model_type": "kimi_k25",
        "bos_token_id": 300,
        "eos_token_id": 302,
        "pad_token_id": 319,
        "media_placeholder_token_id": 305,
        "text_config": text,
    }


def model_tensors(cfg):
    """{name: (dtype, shape)} of the whole text model of such a configuration."""
    text = cfg.get("text_config", cfg)
    prefix = "language_model." if cfg["model_type"] == "kimi_k25" else ""
    quant = text.get("quantization_config") or {}
    method = quant.get("quant_method")
    if quant.get("format") in ("mxfp4-pack-quantized", "nvfp4-pack-quantized"):
        method = quant["format"][:5] + "-ct"
    if quant.get("format") in ("float-quantized", "int-quantized"):
        method = "fp8-row-ct" if quant["format"][0] == "f" else "int8-row-ct"
    if method == "quark" and isinstance(quant["global_quant_config"]["weight"], dict):
        method = {"fp4": "mxfp4", "fp8_e4m3": "fp8-row", "int8": "int8-row"}[
            quant["global_quant_config"]["weight"]["dtype"]
        ]
    h, out = text["hidden_size"], {}

    def linear(name, rows, cols, int4=False):
        if method == "w4afp8" and int4:
            out[name + ".weight"] = ("I8", [rows, cols // 2])
            out[name + ".weight_scale_inv"] = ("F32", [rows, cols // 128])
        elif method in ("fp8", "w4afp8"):
            out[name + ".weight"] = ("F8_E4M3", [rows, cols])
            out[name + ".weight_scale_inv"] = ("F32", [-(-rows // 128), -(-cols // 128)])
        elif method in ("fp8-row", "fp8-row-ct", "int8-row", "int8-row-ct"):
            out[name + ".weight"] = ("F8_E4M3" if method[0] == "f" else "I8", [rows, cols])
            out[name + ".weight_scale"] = ("BF16", [rows, 1]) if method.endswith("ct") else ("F32", [rows])
        elif method == "compressed-tensors" and int4:
            out[name + ".weight_packed"] = ("I32", [rows, cols // 8])
            out[name + ".weight_scale"] = ("BF16", [rows, cols // 32])
            out[name + ".weight_shape"] = ("I32", [2])
        elif method in ("mxfp4", "mxfp4-ct") and int4:
            out[name + (".weight" if method == "mxfp4" else ".weight_packed")] = ("U8", [rows, cols // 2])
            out[name + ".weight_scale"] = ("U8", [rows, cols // 32])
        elif method in ("modelopt", "nvfp4-ct") and int4:
            data, factor = (
                ("weight", "weight_scale_2") if method == "modelopt" else ("weight_packed", "weight_global_scale")
            )
            out[f"{name}.{data}"] = ("U8", [rows, cols // 2])
            out[f"{name}.weight_scale"] = ("F8_E4M3", [rows, cols // 16])
            out[f"{name}.{factor}"] = ("F32", [] if method == "modelopt" else [1])
        elif method == "quark" and int4:
            out[name + ".weight"] = ("I32", [rows, cols // 8])
            out[name + ".weight_scale"] = ("F32", [1])
            out[name + ".weight_scale_2"] = ("F32", [rows])
        else:
            out[name + ".weight"] = ("BF16", [rows, cols])

    def mlp(name, inter, int4=False):
        linear(name + "gate_proj", inter, h, int4)
        linear(name + "up_proj", inter, h, int4)
        linear(name + "down_proj", h, inter, int4)

    out[prefix + "model.embed_tokens.weight"] = out[prefix + "lm_head.weight"] = ("BF16", [text["vocab_size"], h])
    out[prefix + "model.norm.weight"] = ("BF16", [h])
    heads, nope, rope, v = (
        text[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    q, kv = text["q_lora_rank"], text["kv_lora_rank"]
    for i in range(text["num_hidden_layers"]):
        p = f"{prefix}model.layers.{i}."
        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = ("BF16", [h])
        linear(p + "self_attn.q_a_proj", q, h)
        linear(p + "self_attn.q_b_proj", heads * (nope + rope), q)
        linear(p + "self_attn.kv_a_proj_with_mqa", kv + rope, h)
        linear(p + "self_attn.kv_b_proj", heads * (nope + v), kv)
        linear(p + "self_attn.o_proj", h, heads * v)
        out[p + "self_attn.q_a_layernorm.weight"] = ("BF16", [q])
        out[p + "self_attn.kv_a_layernorm.weight"] = ("BF16", [kv])
        if i < text["first_k_dense_replace"]:
            mlp(p + "mlp.", text["intermediate_size"])
            continue
        out[p + "mlp.gate.weight"] = ("BF16", [text["n_routed_experts"], h])
        out[p + "mlp.gate.e_score_correction_bias"] = ("F32", [text["n_routed_experts"]])
        mlp(p + "mlp.shared_experts.", text["moe_intermediate_size"] * text["n_shared_experts"])
        for x in range(text["n_routed_experts"]):
            mlp(f"{p}mlp.experts.{x}.", text["moe_intermediate_size"], True)
    return out


def weight_shapes(model, tensors):
    """The contents of the INT4 layout's weight_shape tensors: rows and columns of the unpacked matrix."""
    return {
        name + "weight_shape": struct.pack("<2i", shape[0], shape[1] * 8)
        for name, (_, shape) in (
            (k[: -len("weight_packed")], t) for k, t in model.items() if k.endswith("weight_packed")
        )
        if name + "weight_shape" in tensors
    }


def write_checkpoint(folder, layout_name="k2.5", shards=2, tensors=None, values=None):
    """A whole checkpoint; tensors are dealt to the shards by turns. One shard means model.safetensors alone."""
    cfg = config(layout_name)
    tensors = model_tensors(cfg) if tensors is None else tensors
    divisors = [k for k, t in tensors.items() if k.endswith(".weight_global_scale") and n_bytes(*t) == 4]
    values = {**dict.fromkeys(divisors, struct.pack("<f", 1)), **(values or {})}
    values = {**weight_shapes(model_tensors(cfg), tensors), **values}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(cfg, f)
    if shards == 1:
        write_file(os.path.join(folder, "model.safetensors"), tensors, values)
        return cfg
    weight_map = {}
    for s in range(shards):
        name = f"model-{s + 1:05d}-of-{shards:06d}.safetensors"
        part = {k: t for i, (k, t) in enumerate(sorted(tensors.items())) if i % shards == s}
        write_file(os.path.join(folder, name), part, {k: v for k, v in values.items() if k in part})
        weight_map.update(dict.fromkeys(part, name))
    write_index(folder, weight_map)
    return cfg
