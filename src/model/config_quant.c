/* model/config_quant.c: quantization_config as DeepSeek, compressed-tensors, Quark and SGLang write it; ModelOpt's is
 * config_modelopt.c. It is looked at for what is not done here; how a matrix lies its own tensors show (bind.c). */
#include "model/config_internal.h"
#include <stdio.h>
#include <string.h>

static status check_fp8_blocks(const json_t *q, err *e) {
    const json_t *b = json_object_get(q, "weight_block_size");
    if (!json_is_array(b) || json_array_size(b) != 2 || json_integer_value(json_array_get(b, 0)) != FP8_BLOCK ||
        json_integer_value(json_array_get(b, 1)) != FP8_BLOCK)
        return err_set(e, ST_UNSUPPORTED, "weight_block_size is not [%d, %d], the only one supported", FP8_BLOCK,
                       FP8_BLOCK);
    return ST_OK;
}

static status read_fp8(model_config *c, const json_t *q, err *e) {
    status st = config_only_str(q, "fmt", "e4m3", e);
    if (st == ST_OK) st = config_only_str(q, "activation_scheme", "dynamic", e);
    if (st == ST_OK) st = check_fp8_blocks(q, e);
    return st == ST_OK ? (c->quant = WF_FP8_BLOCK, ST_OK) : st;
}

/* SGLang's w4afp8: experts in INT4, all else in FP8 blocks; a file may say no more than the method's name. Inputs in
 * FP8 are a choice of that engine. */
static status read_w4afp8(model_config *c, const json_t *q, err *e) {
    status st = config_only_str(q, "fmt", "e4m3", e);
    if (st == ST_OK) st = config_only_int(q, "group_size", INT4_GROUP_WIDE, e);
    if (st == ST_OK && json_object_get(q, "weight_block_size")) st = check_fp8_blocks(q, e);
    return st == ST_OK ? (c->quant = WF_INT4_GROUP128, ST_OK) : st;
}

/* ---- compressed-tensors ---- */

/* What its formats here say of a weight. */
typedef struct {
    const char *format, *type, *strategy;
    i64 bits, group; /* group 0: none */
    bool inputs;     /* in as many bits, or 8, may be asked for */
    bool local;      /* with scales that are made while running for a group, beside a calibrated one */
    weight_format as;
} packed_spec;

static status check_packed_weights(const json_t *w, const packed_spec *p, err *e) {
    if (!json_is_object(w)) return err_set(e, ST_FORMAT, "key \"weights\" is not an object");
    i64 n;
    const char *s;
    bool symmetric;
    status st = json_get_i64(w, "num_bits", 1, 64, true, &n, e);
    if (st == ST_OK) st = config_only_int(w, "num_bits", p->bits, e);
    if (st == ST_OK && p->group) st = json_get_i64(w, "group_size", INT64_MIN, INT64_MAX, true, &n, e);
    if (st == ST_OK)
        st = p->group ? config_only_int(w, "group_size", p->group, e) : config_only_null(w, "group_size", e);
    if (st == ST_OK) st = json_get_bool(w, "symmetric", true, &symmetric, e);
    if (st == ST_OK) st = config_only_bool(w, "symmetric", true, e);
    if (st == ST_OK) st = json_get_str(w, "type", true, &s, e);
    if (st == ST_OK) st = config_only_str(w, "type", p->type, e);
    if (st == ST_OK) st = json_get_str(w, "strategy", true, &s, e);
    if (st == ST_OK) st = config_only_str(w, "strategy", p->strategy, e);
    if (st == ST_OK) st = config_only_bool(w, "dynamic", false, e);
    if (st == ST_OK) st = config_only_null(w, "actorder", e);
    if (st == ST_OK) st = config_only_null(w, "block_structure", e);
    return st;
}

/* Inputs in few bits too, with scales that are made while running, are a choice of the writer's engine: they stay as
 * they are here. Scales that were calibrated would be lost. */
static status check_packed_inputs(const json_t *g, const packed_spec *p, err *e) {
    const json_t *in = json_object_get(g, "input_activations");
    if (!p->inputs || !in || json_is_null(in)) return config_only_null(g, "input_activations", e);
    if (!json_is_object(in)) return err_set(e, ST_FORMAT, "key \"input_activations\" is not an object");
    bool dynamic;
    const char *when = json_string_value(json_object_get(in, "dynamic"));
    status st = config_only_str(in, "type", p->type, e);
    if (st == ST_OK && json_integer_value(json_object_get(in, "num_bits")) != 8)
        st = config_only_int(in, "num_bits", p->bits, e);
    if (st == ST_OK && p->local && when && !strcmp(when, "local")) return ST_OK;
    if (st == ST_OK) st = json_get_bool(in, "dynamic", true, &dynamic, e);
    if (st == ST_OK) st = config_only_bool(in, "dynamic", true, e);
    return st == ST_OK ? ST_OK : (err_prefix(e, "input_activations"), st);
}

status config_check_modules(const json_t *o, const char *key, err *e) {
    const json_t *list = json_object_get(o, key);
    return !list || json_is_null(list) || json_is_array(list) ? ST_OK
                                                              : err_set(e, ST_FORMAT, "key \"%s\" is not a list", key);
}

status config_check_kv(const json_t *o, const char *key, err *e) {
    const json_t *kv = json_object_get(o, key);
    const char *type;
    i64 bits;
    if (!kv || json_is_null(kv)) return ST_OK;
    if (!json_is_object(kv)) return err_set(e, ST_FORMAT, "key \"%s\" is not an object", key);
    status st = json_get_i64(kv, "num_bits", 1, 64, true, &bits, e);
    if (st == ST_OK) st = config_only_int(kv, "num_bits", 8, e);
    if (st == ST_OK) st = json_get_str(kv, "type", true, &type, e);
    if (st == ST_OK) st = config_only_str(kv, "type", "float", e);
    if (st == ST_OK) st = config_only_str(kv, "strategy", "tensor", e);
    if (st == ST_OK) st = config_only_bool(kv, "dynamic", false, e);
    if (st == ST_OK) st = config_only_bool(kv, "symmetric", true, e);
    return st == ST_OK ? ST_OK : (err_prefix(e, "%s", key), st);
}

static status check_packed_group(const json_t *g, const packed_spec *p, err *e) {
    if (!json_is_object(g)) return err_set(e, ST_FORMAT, "not an object");
    status st = check_packed_inputs(g, p, e);
    if (st == ST_OK) st = config_only_null(g, "output_activations", e);
    if (st == ST_OK) st = config_only_str(g, "format", p->format, e);
    if (st == ST_OK) st = config_check_modules(g, "targets", e);
    return st == ST_OK ? check_packed_weights(json_object_get(g, "weights"), p, e) : st;
}

static status read_compressed(model_config *c, const json_t *q, err *e) {
    static const packed_spec specs[] = {
        {"pack-quantized", "int", "group", 4, INT4_GROUP, false, false, WF_INT4_GROUP},
        {"float-quantized", "float", "channel", 8, 0, true, false, WF_FP8_ROW},
        {"mxfp4-pack-quantized", "float", "group", 4, MXFP4_GROUP, true, false, WF_MXFP4},
        {"nvfp4-pack-quantized", "float", "tensor_group", 4, NVFP4_GROUP, true, true, WF_NVFP4},
        {"int-quantized", "int", "channel", 8, 0, true, false, WF_INT8_ROW},
    };
    const packed_spec *p = NULL;
    const char *format;
    status st = json_get_str(q, "format", true, &format, e);
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(specs); i++)
        if (!strcmp(format, specs[i].format)) p = &specs[i];
    if (st == ST_OK && !p) {
        char known[160] = "";
        for (size_t i = 0, at = 0; i < COUNT_OF(specs); i++)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s\"%s\"",
                                   !i                        ? ""
                                   : i + 1 < COUNT_OF(specs) ? ", "
                                                             : " and ",
                                   specs[i].format);
        st = err_set(e, ST_UNSUPPORTED, "format \"%.60s\" is not supported, only %s", format, known);
    }
    if (st == ST_OK) st = config_only_str(q, "quantization_status", "compressed", e);
    if (st == ST_OK) st = config_check_kv(q, "kv_cache_scheme", e);
    if (st == ST_OK) st = config_only_null(q, "sparsity_config", e);
    if (st == ST_OK) st = config_only_null(q, "transform_config", e);
    if (st == ST_OK) st = config_check_modules(q, "ignore", e);
    if (st != ST_OK) return st;
    const json_t *groups = json_object_get(q, "config_groups");
    if (!json_is_object(groups) || json_object_size(groups) != 1)
        return err_set(e, ST_UNSUPPORTED, "config_groups is not an object with exactly one group");
    const char *name;
    json_t *g;
    json_object_foreach((json_t *)(uintptr_t)groups, name, g) {
        st = check_packed_group(g, p, e);
        if (st != ST_OK) return err_prefix(e, "config_groups.%.40s", name), st;
    }
    return c->quant = p->as, ST_OK;
}

/* ---- Quark ---- */

/* Entry i of global_quant_config.weight. */
static status check_quark_level(const json_t *weight, size_t i, const char *type, const char *scheme, err *e) {
    const json_t *w = json_array_get(weight, i);
    const char *s;
    if (!json_is_object(w)) return err_set(e, ST_FORMAT, "weight[%zu] is not an object", i);
    status st = json_get_str(w, "dtype", true, &s, e);
    if (st == ST_OK) st = config_only_str(w, "dtype", type, e);
    if (st == ST_OK) st = json_get_str(w, "qscheme", true, &s, e);
    if (st == ST_OK) st = config_only_str(w, "qscheme", scheme, e);
    if (st == ST_OK) st = config_only_bool(w, "is_dynamic", false, e);
    if (st == ST_OK && i) st = config_only_int(w, "ch_axis", 0, e);
    if (st != ST_OK) err_prefix(e, "weight[%zu]", i);
    return st;
}

/* Weights in FP8 for a matrix, then in INT4 for a row, so that there are two scales. Its inputs in 8 bits are a choice
 * here (--moe-format w4a8). */
static status read_quark_w4a8(model_config *c, const json_t *g, const json_t *export, err *e) {
    const json_t *weight = json_object_get(g, "weight");
    status st = check_quark_level(weight, 0, "fp8_e4m3", "per_tensor", e);
    if (st == ST_OK) st = check_quark_level(weight, 1, "int4", "per_channel", e);
    if (st != ST_OK) return err_prefix(e, "global_quant_config"), st;
    if (export) st = config_only_str(export, "pack_method", "reorder", e); /* of nibbles */
    if (st != ST_OK) return err_prefix(e, "export"), st;
    return c->quant = WF_INT4_ROW, ST_OK;
}

/* One specification for a weight: one scale a row, or one a group of columns. In a file of FP4 the low nibble of a byte
 * is the even column whatever export.pack_method says: its readers take "reorder" and "order" alike. */
typedef struct {
    const char *dtype, *qscheme, *scale_format; /* scale_format NULL: not looked at */
    i64 axis, group;                            /* group 0: none */
    weight_format as;
} quark_spec;

static status check_quark_weight(const json_t *w, const quark_spec *p, err *e) {
    const char *s;
    i64 n;
    status st = json_get_str(w, "qscheme", true, &s, e);
    if (st == ST_OK) st = config_only_str(w, "qscheme", p->qscheme, e);
    if (st == ST_OK) st = config_only_int(w, "ch_axis", p->axis, e);
    if (st == ST_OK) st = config_only_bool(w, "is_dynamic", false, e);
    if (st == ST_OK && p->as == WF_INT8_ROW) st = config_only_bool(w, "symmetric", true, e);
    if (st != ST_OK || !p->group) return st;
    st = json_get_i64(w, "group_size", INT64_MIN, INT64_MAX, true, &n, e);
    if (st == ST_OK) st = config_only_int(w, "group_size", p->group, e);
    if (st == ST_OK) st = json_get_str(w, "scale_format", true, &s, e);
    return st == ST_OK ? config_only_str(w, "scale_format", p->scale_format, e) : st;
}

/* As check_packed_inputs() has it. */
static status check_quark_inputs(const json_t *g, const quark_spec *p, err *e) {
    const json_t *in = json_object_get(g, "input_tensors");
    if (!in || json_is_null(in)) return ST_OK;
    if (!json_is_object(in)) return err_set(e, ST_FORMAT, "not an object");
    bool dynamic;
    status st = config_only_str(in, "dtype", p->dtype, e);
    if (st == ST_OK) st = json_get_bool(in, "is_dynamic", true, &dynamic, e);
    return st == ST_OK ? config_only_bool(in, "is_dynamic", true, e) : st;
}

static status find_quark_spec(const json_t *w, const quark_spec **p, err *e) {
    static const quark_spec specs[] = {
        {"fp8_e4m3", "per_channel", NULL, 0, 0, WF_FP8_ROW},
        {"fp4", "per_group", "e8m0", -1, MXFP4_GROUP, WF_MXFP4},
        {"int8", "per_channel", NULL, 0, 0, WF_INT8_ROW},
    };
    const char *dtype;
    status st = json_get_str(w, "dtype", true, &dtype, e);
    if (st != ST_OK) return st;
    for (size_t i = 0; i < COUNT_OF(specs); i++)
        if (!strcmp(dtype, specs[i].dtype)) return *p = &specs[i], ST_OK;
    return err_set(e, ST_UNSUPPORTED, "dtype \"%.60s\" is not supported, only \"%s\", \"%s\" and \"%s\"", dtype,
                   specs[0].dtype, specs[1].dtype, specs[2].dtype);
}

static status read_quark_single(model_config *c, const json_t *q, const json_t *g, err *e) {
    static const char *const none[] = {"layer_quant_config", "layer_type_quant_config", "kv_cache_quant_config",
                                       "softmax_quant_spec"};
    const json_t *w = json_object_get(g, "weight");
    const quark_spec *p = NULL;
    status st = find_quark_spec(w, &p, e);
    if (st == ST_OK) st = check_quark_weight(w, p, e);
    if (st != ST_OK) return err_prefix(e, "global_quant_config.weight"), st;
    st = check_quark_inputs(g, p, e);
    if (st != ST_OK) return err_prefix(e, "global_quant_config.input_tensors"), st;
    st = config_only_null(g, "output_tensors", e);
    if (st == ST_OK) st = config_only_null(g, "bias", e);
    if (st != ST_OK) return err_prefix(e, "global_quant_config"), st;
    for (size_t i = 0; i < COUNT_OF(none); i++)
        if ((st = config_only_null(q, none[i], e)) != ST_OK) return st;
    return c->quant = p->as, ST_OK;
}

static status read_quark(model_config *c, const json_t *q, err *e) {
    const json_t *g = json_object_get(q, "global_quant_config"), *export = json_object_get(q, "export");
    const json_t *weight = json_object_get(g, "weight");
    if (!json_is_object(g)) return err_set(e, ST_FORMAT, "key \"global_quant_config\" is not an object");
    if (export && !json_is_object(export)) return err_set(e, ST_FORMAT, "key \"export\" is not an object");
    const bool single = json_is_object(weight);
    if (!single && (!json_is_array(weight) || json_array_size(weight) != 2))
        return err_set(e, ST_UNSUPPORTED,
                       "global_quant_config.weight is not a list of two (W4A8), nor one specification (FP8, "
                       "MXFP4, INT8): no other of Quark's formats is supported");
    status st = config_check_modules(q, "exclude", e);
    if (st != ST_OK) return st;
    if (export) st = config_only_str(export, "weight_format", "real_quantized", e);
    if (st != ST_OK) return err_prefix(e, "export"), st;
    return single ? read_quark_single(c, q, g, e) : read_quark_w4a8(c, g, export, e);
}

weight_format model_config_dense_format(const model_config *c) {
    if (c->quant == WF_INT4_GROUP128) return WF_FP8_BLOCK;
    return weight_is_fp8(c->quant) || c->quant == WF_INT8_ROW ? c->quant : WF_BF16; /* 4 bits: experts only */
}

status config_read_quant(model_config *c, const json_t *root, const json_t *text, err *e) {
    c->quant = WF_BF16;
    const json_t *q = json_object_get(text, "quantization_config");
    if (!q || json_is_null(q)) q = json_object_get(root, "quantization_config");
    if (!q || json_is_null(q)) return ST_OK;
    const char *method = NULL;
    status st = ST_OK;
    if (!json_is_object(q))
        st = err_set(e, ST_FORMAT, "not an object");
    else
        st = json_get_str(q, "quant_method", true, &method, e);
    if (st == ST_OK) {
        if (strcmp(method, "fp8") == 0)
            st = read_fp8(c, q, e);
        else if (strcmp(method, "compressed-tensors") == 0)
            st = read_compressed(c, q, e);
        else if (strcmp(method, "quark") == 0)
            st = read_quark(c, q, e);
        else if (strcmp(method, "w4afp8") == 0)
            st = read_w4afp8(c, q, e);
        else if (strcmp(method, "modelopt") == 0)
            st = config_read_modelopt(c, q, e);
        else
            st = err_set(e, ST_UNSUPPORTED,
                         "quant_method \"%.60s\" is not supported, only \"fp8\", \"compressed-tensors\", \"quark\", "
                         "\"w4afp8\" and \"modelopt\"",
                         method);
    }
    if (st != ST_OK) err_prefix(e, "quantization_config");
    return st;
}
