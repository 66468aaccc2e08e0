/* model/config_internal.h: what config.json of a model (config.c) and of a draft (draft_config.c) have in common. */
#ifndef MODEL_CONFIG_INTERNAL_H
#define MODEL_CONFIG_INTERNAL_H
#include "base/json.h"
#include "model/config.h"

#define CONFIG_BYTES_MAX (16u << 20)
#define EPS_MIN          1e-30 /* a zero eps makes NaN of a zero vector */
/* Upper bounds are far above any model of the family (Kimi-K2: 61 layers, 384 experts, hidden 7168) and low
 * enough that no product of a tensor's dimensions overflows and no table per layer and expert is huge. */
enum { WIDTH_MAX = 1 << 20, LAYERS_MAX = 1024, EXPERTS_MAX = 4096, HEADS_MAX = 4096, HEAD_DIM_MAX = 1 << 15 };

/* What is computed in one way only: the key must be absent, null, or say this; else ST_UNSUPPORTED. */
status config_only_str(const json_t *o, const char *key, const char *want, err *e);
status config_only_int(const json_t *o, const char *key, i64 want, err *e);
status config_only_bool(const json_t *o, const char *key, bool want, err *e);
status config_only_null(const json_t *o, const char *key, err *e); /* or an empty object */

/* `rope_scaling` beside `rope_theta`, or both in `rope_parameters` as transformers 5 writes them. */
status config_read_rope(model_config *c, const json_t *o, err *e);
/* A list of modules by name, or by "re:" and a pattern. Which ones are meant is not needed, each tensor's name and type
 * shows how it lies: a list that says otherwise than the file is not believed. */
status config_check_modules(const json_t *o, const char *key, err *e);
/* How the writer's engine would keep the KV cache: null, or FP8 with one scale a layer (kv_scales.h). */
status config_check_kv(const json_t *o, const char *key, err *e);
/* ModelOpt's: hf_quant_config.json, or a quantization_config. */
status config_read_modelopt(model_config *c, const json_t *q, err *e);
/* quantization_config of `text`, or of `root` around it. */
status config_read_quant(model_config *c, const json_t *root, const json_t *text, err *e);

#endif
