"""What other engines' loaders ask for, file by file, is in what `moonlet quantize` writes: the names behind an expert's
matrix with type and shape, and the keys of quantization_config by which they choose a loader (as of November 2026, by
the public sources). That packages of others load the values is checked by hand (tests/golden/check_quantized.py,
check_transformers.py, check_quark.py)."""
import pytest
from test_quantize import Tensors, config_of, made  # noqa: F401 (a fixture)

VLLM = "vllm/model_executor/layers/quantization/"
SGLANG = "sglang/srt/layers/quantization/"
CT = "compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_"

# an expert's matrix of N rows and K columns: suffix -> (type, shape)
READERS = {
    "int4": (
        [VLLM + CT + "wna16.py", SGLANG + "compressed_tensors/schemes/compressed_tensors_wNa16_moe.py"],
        lambda n, k: {
            "weight_packed": ("I32", [n, k // 8]),
            "weight_scale": ("BF16", [n, k // 32]),
            "weight_shape": ("I32", [2]),
        },
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False},
    ),
    "w4a8": (
        [VLLM + "quark/quark_moe.py"],
        lambda n, k: {
            "weight": ("I32", [n, k // 8]),
            "weight_scale": ("F32", [1]),
            "weight_scale_2": ("F32", [n]),
        },
        {"quant_method": "quark"},
        [
            {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
            {"dtype": "int4", "qscheme": "per_channel", "is_dynamic": False},
        ],
    ),
    "mxfp4": (
        [VLLM + "quark/quark_moe.py", VLLM + "quark/schemes/quark_ocp_mx.py"],
        lambda n, k: {"weight": ("U8", [n, k // 2]), "weight_scale": ("U8", [n, k // 32])},
        {"quant_method": "quark"},
        {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "is_dynamic": False},
    ),
    "mxfp4-ct": (
        [VLLM + CT + "w4a4_mxfp4.py"],
        lambda n, k: {"weight_packed": ("U8", [n, k // 2]), "weight_scale": ("U8", [n, k // 32])},
        {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True},
    ),
    "nvfp4": (
        [VLLM + "modelopt.py", SGLANG + "modelopt_quant.py"],
        lambda n, k: {
            "weight": ("U8", [n, k // 2]),
            "weight_scale": ("F8_E4M3", [n, k // 16]),
            "weight_scale_2": ("F32", []),
        },
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        None,
    ),
    "nvfp4-ct": (
        [VLLM + CT + "w4a4_nvfp4.py"],
        lambda n, k: {
            "weight_packed": ("U8", [n, k // 2]),
            "weight_scale": ("F8_E4M3", [n, k // 16]),
            "weight_global_scale": ("F32", [1]),
        },
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True},
    ),
    "int8": (
        [VLLM + CT + "w8a8_int8.py", SGLANG + "compressed_tensors/schemes/compressed_tensors_w8a8_int8_moe.py"],
        lambda n, k: {"weight": ("I8", [n, k]), "weight_scale": ("F32", [n, 1])},
        {"quant_method": "compressed-tensors", "format": "int-quantized"},
        {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
    ),
    "int8-quark": (
        [VLLM + "quark/schemes/quark_w8a8_int8.py"],
        lambda n, k: {
            "weight": ("I8", [n, k]),
            "weight_scale": ("F32", [n]),
            "weight_zero_point": ("I8", [n]),
        },
        {"quant_method": "quark"},
        {"dtype": "int8", "qscheme": "per_channel", "ch_axis": 0, "symmetric": True, "is_dynamic": False},
    ),
    "fp8": (
        [VLLM + "fp8.py", SGLANG + "fp8.py"],
        lambda n, k: {"weight": ("F8_E4M3", [n, k]), "weight_scale_inv": ("F32", [-(-n // 128), -(-k // 128)])},
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        None,
    ),
}


def weights_of(quantization):
    """Where each kind of config says what weights are."""
    if "config_groups" in quantization:
        return quantization["config_groups"]["group_0"]["weights"]
    return quantization.get("global_quant_config", {}).get("weight")


def within(want, have):
    if isinstance(want, list):
        return len(want) == len(have) and all(within(w, h) for w, h in zip(want, have))
    return all(have.get(key) == value for key, value in want.items())


@pytest.mark.parametrize("name", READERS)
def test_what_loaders_ask_for(made, name):  # noqa: F811
    files, parts, keys, weights = READERS[name]
    assert all(f.endswith(".py") for f in files)
    have = Tensors(made / name).all
    for matrix, n, k in (("gate_proj", 64, 256), ("up_proj", 64, 256), ("down_proj", 256, 64)):
        base = f"language_model.model.layers.3.mlp.experts.11.{matrix}."
        assert {t[len(base) :]: have[t][:2] for t in have if t.startswith(base)} == parts(n, k)
    quantization = config_of(made / name)["text_config"]["quantization_config"]
    assert within(keys, quantization)
    assert weights is None or within(weights, weights_of(quantization))
    if name == "int8":  # vLLM takes no experts in INT8 but with inputs by token
        inputs = quantization["config_groups"]["group_0"]["input_activations"]
        assert within({"num_bits": 8, "strategy": "token", "dynamic": True, "symmetric": True}, inputs)


def test_what_quark_leaves_out(made):  # noqa: F811
    """Quark's importer takes shell patterns, vLLM's loader "re:" and expressions: each finds its own."""
    exclude = config_of(made / "mxfp4")["text_config"]["quantization_config"]["exclude"]
    assert {"*self_attn*", "*shared_experts*", "*mlp.gate_proj", "*lm_head"} <= set(exclude)
    assert {"re:.*self_attn.*", "re:.*shared_experts.*", "lm_head"} <= set(exclude)
