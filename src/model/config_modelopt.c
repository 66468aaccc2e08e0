/* model/config_modelopt.c: quantization as NVIDIA's ModelOpt writes it: in hf_quant_config.json, which newer versions
 * repeat as config.json's quantization_config. */
#include "model/config_internal.h"

static status check_weights(const json_t *w, err *e) {
    if (!json_is_object(w)) return err_set(e, ST_FORMAT, "key \"weights\" is not an object");
    status st = config_only_int(w, "num_bits", 4, e);
    if (st == ST_OK) st = config_only_str(w, "type", "float", e);
    if (st == ST_OK) st = config_only_int(w, "group_size", NVFP4_GROUP, e);
    return st == ST_OK ? config_only_bool(w, "dynamic", false, e) : st;
}

/* What newer versions say besides, in compressed-tensors' words. Inputs in four bits, whose scales the file has, are a
 * choice of the writer's engine: they stay as they are here. */
static status check_modelopt_groups(const json_t *groups, err *e) {
    if (!groups || json_is_null(groups)) return ST_OK;
    if (!json_is_object(groups)) return err_set(e, ST_FORMAT, "config_groups is not an object");
    const char *name;
    json_t *g;
    json_object_foreach((json_t *)(uintptr_t)groups, name, g) {
        status st = check_weights(json_object_get(g, "weights"), e);
        if (st != ST_OK) return err_prefix(e, "config_groups.%.40s", name), st;
    }
    return ST_OK;
}

status config_read_modelopt(model_config *c, const json_t *q, err *e) {
    const json_t *inner = json_object_get(q, "quantization");
    const char *algo;
    if (inner && !json_is_object(inner)) return err_set(e, ST_FORMAT, "key \"quantization\" is not an object");
    if (inner) q = inner;
    status st = json_get_str(q, "quant_algo", true, &algo, e);
    if (st == ST_OK) st = config_only_str(q, "quant_algo", "NVFP4", e);
    if (st == ST_OK) st = config_only_int(q, "group_size", NVFP4_GROUP, e);
    if (st == ST_OK) st = config_check_modules(q, "exclude_modules", e);
    if (st == ST_OK) st = config_check_modules(q, "ignore", e);
    if (st == ST_OK) st = config_only_str(q, "kv_cache_quant_algo", "FP8", e);
    if (st == ST_OK) st = config_check_kv(q, "kv_cache_scheme", e);
    if (st == ST_OK) st = check_modelopt_groups(json_object_get(q, "config_groups"), e);
    return st == ST_OK ? (c->quant = WF_NVFP4, ST_OK) : st;
}
