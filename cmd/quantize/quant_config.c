/* cmd/quantize/quant_config.c: quantization_config as the published checkpoints of each format have it, so that other
 * engines find their own words: compressed-tensors (K2-Thinking, K2.5), Quark (K2.5-W4A8, K2.5-MXFP4), ModelOpt
 * (NVFP4), DeepSeek's FP8 (K2-Instruct). */
#include "base/file.h"
#include "base/json.h"
#include "cmd/quantize/folder.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_FILE_MAX (16u << 20)

/* ---- which modules stay as they are ---- */

typedef struct {
    bool linears, vision, prefix; /* all linear layers; a vision tower; the text model's names have a prefix */
} left_out;

static void add_names(json_t *list, const char *const *names) {
    for (; *names; names++) json_array_append_new(list, json_string(*names));
}

/* compressed-tensors, and who reads Quark's FP4 and INT8 as vLLM does: names, or "re:" and an expression that matches
 * from the name's start. */
static json_t *patterns(const left_out *o) {
    static const char *const head[] = {"lm_head", NULL}, *const any_head[] = {"re:.*lm_head.*", NULL};
    static const char *const experts_only[] = {"re:.*self_attn.*", "re:.*shared_experts.*",
                                               "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", NULL};
    static const char *const router[] = {"re:.*mlp\\.gate$", NULL};
    static const char *const tower[] = {"re:vision_tower.*", "re:mm_projector.*", NULL};
    json_t *list = json_array();
    add_names(list, head);
    add_names(list, o->linears ? router : experts_only);
    if (o->prefix) add_names(list, any_head);
    if (o->vision) add_names(list, tower);
    return list;
}

/* Quark's formats, and ModelOpt: shell patterns of the whole name. */
static json_t *globs(const left_out *o) {
    static const char *const all[] = {"*mlp.gate", "*lm_head", "*mm_projector*", "*vision_tower*", NULL};
    static const char *const experts_only[] = {"*self_attn*",    "*mlp.gate_proj",   "*mlp.up_proj",
                                               "*mlp.down_proj", "*shared_experts*", NULL};
    json_t *list = json_array();
    if (!o->linears) add_names(list, experts_only);
    add_names(list, all);
    return list;
}

static void extend(json_t *list, json_t *more) {
    json_array_extend(list, more);
    json_decref(more);
}

/* transformers' FP8: parts of names. */
static json_t *parts_of_names(const left_out *o, i64 n_dense) {
    static const char *const tower[] = {"vision_tower", "mm_projector", NULL},
                             *const others[] = {"self_attn", "shared_experts", NULL}, *const head[] = {"lm_head", NULL};
    json_t *list = json_array();
    add_names(list, head);
    if (o->vision) add_names(list, tower);
    if (o->linears) return list;
    add_names(list, others);
    for (i64 i = 0; i < n_dense; i++) json_array_append_new(list, json_sprintf("model.layers.%lld.mlp", (long long)i));
    return list;
}

/* ---- the formats' own words ---- */

static const char int4_config[] =
    "{\"config_groups\": {\"group_0\": {\"input_activations\": null, \"output_activations\": null, \"targets\": "
    "[\"Linear\"], \"weights\": {\"actorder\": null, \"block_structure\": null, \"dynamic\": false, \"group_size\": 32, "
    "\"num_bits\": 4, \"observer\": \"minmax\", \"observer_kwargs\": {}, \"strategy\": \"group\", \"symmetric\": true, "
    "\"type\": \"int\"}}}, \"format\": \"pack-quantized\", \"ignore\": [], \"kv_cache_scheme\": null, "
    "\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\"}";

/* Weights alone: what is done with activations is the engine's choice. */
static const char mxfp4_packed_config[] =
    "{\"config_groups\": {\"group_0\": {\"format\": \"mxfp4-pack-quantized\", \"input_activations\": null, "
    "\"output_activations\": null, \"targets\": [\"Linear\"], \"weights\": {\"actorder\": null, \"block_structure\": "
    "null, \"dynamic\": false, \"group_size\": 32, \"num_bits\": 4, \"observer\": \"memoryless_minmax\", "
    "\"observer_kwargs\": {}, \"scale_dtype\": \"torch.uint8\", \"strategy\": \"group\", \"symmetric\": true, \"type\": "
    "\"float\", \"zp_dtype\": \"torch.uint8\"}}}, \"format\": \"mxfp4-pack-quantized\", \"ignore\": [], "
    "\"kv_cache_scheme\": null, \"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\"}";

static const char nvfp4_packed_config[] =
    "{\"config_groups\": {\"group_0\": {\"format\": \"nvfp4-pack-quantized\", \"input_activations\": null, "
    "\"output_activations\": null, \"targets\": [\"Linear\"], \"weights\": {\"actorder\": null, \"block_structure\": "
    "null, \"dynamic\": false, \"group_size\": 16, \"num_bits\": 4, \"observer\": \"memoryless_minmax\", "
    "\"observer_kwargs\": {}, \"scale_dtype\": \"torch.float8_e4m3fn\", \"strategy\": \"tensor_group\", \"symmetric\": "
    "true, \"type\": \"float\", \"zp_dtype\": \"torch.float8_e4m3fn\"}}}, \"format\": \"nvfp4-pack-quantized\", "
    "\"ignore\": [], \"kv_cache_scheme\": null, \"quant_method\": \"compressed-tensors\", \"quantization_status\": "
    "\"compressed\"}";

/* Other engines read "ignore" in config.json, and "exclude_modules" in what older versions have beside it. */
static const char nvfp4_config[] =
    "{\"exclude_modules\": [], \"group_size\": 16, \"ignore\": [], \"kv_cache_quant_algo\": null, \"quant_algo\": "
    "\"NVFP4\", \"quant_method\": \"modelopt\"}";

/* Its readers know it by its inputs, which get their scales while it runs. */
static const char int8_config[] =
    "{\"config_groups\": {\"group_0\": {\"format\": \"int-quantized\", \"input_activations\": {\"actorder\": null, "
    "\"block_structure\": null, \"dynamic\": true, \"group_size\": null, \"num_bits\": 8, \"observer\": null, "
    "\"observer_kwargs\": {}, \"strategy\": \"token\", \"symmetric\": true, \"type\": \"int\"}, "
    "\"output_activations\": null, \"targets\": [\"Linear\"], \"weights\": {\"actorder\": null, \"block_structure\": "
    "null, \"dynamic\": false, \"group_size\": null, \"num_bits\": 8, \"observer\": \"memoryless_minmax\", "
    "\"observer_kwargs\": {}, \"strategy\": \"channel\", \"symmetric\": true, \"type\": \"int\"}}}, \"format\": "
    "\"int-quantized\", \"ignore\": [], \"kv_cache_scheme\": null, \"quant_method\": \"compressed-tensors\", "
    "\"quantization_status\": \"compressed\"}";

#define QUARK_FP4(dynamic)                                                                                             \
    "{\"ch_axis\": -1, \"dtype\": \"fp4\", \"group_size\": 32, \"is_dynamic\": " dynamic                               \
    ", \"is_scale_quant\": false, \"mx_element_dtype\": null, \"observer_cls\": \"PerBlockMXObserver\", \"qscheme\": " \
    "\"per_group\", \"round_method\": \"half_even\", \"scale_calculation_mode\": \"even\", \"scale_format\": "         \
    "\"e8m0\", \"scale_type\": \"float\", \"symmetric\": null}"
#define QUARK_REST                                                                                                     \
    "\"kv_cache_post_rope\": false, \"kv_cache_quant_config\": {}, \"layer_quant_config\": {}, "                       \
    "\"layer_type_quant_config\": {}, \"quant_method\": \"quark\", \"quant_mode\": \"eager_mode\", "                   \
    "\"softmax_quant_spec\": null}"

static const char mxfp4_config[] =
    "{\"algo_config\": null, \"exclude\": [], \"export\": {\"kv_cache_group\": [], \"min_kv_scale\": 0.0, "
    "\"pack_method\": \"reorder\", \"weight_format\": \"real_quantized\", \"weight_merge_groups\": null}, "
    "\"global_quant_config\": {\"bias\": null, \"input_tensors\": " QUARK_FP4(
        "true") ", \"output_tensors\": null, \"target_device\": null, \"weight\": " QUARK_FP4("false") "}, " QUARK_REST;

#define QUARK_INT8(axis, dynamic)                                                                                      \
    "{\"ch_axis\": " axis ", \"dtype\": \"int8\", \"group_size\": null, \"is_dynamic\": " dynamic                      \
    ", \"is_scale_quant\": false, \"mx_element_dtype\": null, \"observer_cls\": \"PerChannelMinMaxObserver\", "        \
    "\"qscheme\": \"per_channel\", \"round_method\": \"half_even\", \"scale_format\": null, \"scale_type\": "          \
    "\"float\", \"symmetric\": true}"

static const char int8_quark_config[] =
    "{\"algo_config\": null, \"exclude\": [], \"export\": {\"kv_cache_group\": [], \"min_kv_scale\": 0.0, "
    "\"pack_method\": \"reorder\", \"weight_format\": \"real_quantized\", \"weight_merge_groups\": null}, "
    "\"global_quant_config\": {\"bias\": null, \"input_tensors\": " QUARK_INT8(
        "1",
        "true") ", \"output_tensors\": null, \"target_device\": null, \"weight\": " QUARK_INT8("0",
                                                                                               "false") "}, " QUARK_REST;

static const char w4a8_config[] =
    "{\"algo_config\": null, \"exclude\": [], \"export\": {\"kv_cache_group\": [], \"pack_method\": \"reorder\", "
    "\"weight_format\": \"real_quantized\"}, \"global_quant_config\": {\"bias\": null, \"input_tensors\": {\"ch_axis\": "
    "null, \"dtype\": \"fp8_e4m3\", \"is_dynamic\": true, \"qscheme\": \"per_tensor\"}, \"output_tensors\": null, "
    "\"weight\": [{\"ch_axis\": null, \"dtype\": \"fp8_e4m3\", \"is_dynamic\": false, \"qscheme\": \"per_tensor\"}, "
    "{\"ch_axis\": 0, \"dtype\": \"int4\", \"is_dynamic\": false, \"qscheme\": \"per_channel\", \"round_method\": "
    "\"half_even\"}]}, \"layer_quant_config\": {}, \"quant_method\": \"quark\"}";

static const char fp8_config[] = "{\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"quant_method\": \"fp8\", "
                                 "\"weight_block_size\": [128, 128]}";

/* ---- put together ---- */

static json_t *quantization_of(const quantizer *q, const left_out *o, const model_config *c, err *e) {
    static const struct {
        const char *name, *text;
    } all[] = {{"int4", int4_config},   {"w4a8", w4a8_config},
               {"mxfp4", mxfp4_config}, {"mxfp4-packed", mxfp4_packed_config},
               {"nvfp4", nvfp4_config}, {"nvfp4-packed", nvfp4_packed_config},
               {"int8", int8_config},   {"int8-quark", int8_quark_config},
               {"fp8", fp8_config}};
    const bool shell = q->format == WF_INT4_ROW || q->format == WF_NVFP4;
    json_t
        *both; /* amd's checkpoints have patterns, its own importer knows shell patterns: neither minds the other's */
    json_t *v = NULL;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (!strcmp(all[i].name, q->name)) v = json_parse(all[i].text, strlen(all[i].text), "quantization_config", e);
    if (!v) return NULL;
    static const char *const lists[] = {"ignore", "exclude", "exclude_modules"};
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        if (json_object_get(v, lists[i])) json_object_set_new(v, lists[i], shell ? globs(o) : patterns(o));
    if (!shell && (both = json_object_get(v, "exclude"))) extend(both, globs(o));
    if (q->format == WF_FP8_BLOCK && (o->vision || !o->linears))
        json_object_set_new(v, "modules_to_not_convert", parts_of_names(o, c->n_dense));
    return v;
}

/* Where the source has it; a new one goes where the text model's keys are. */
static void replace_quantization(json_t *root, json_t *v) {
    json_t *text = json_object_get(root, "text_config"), *at = text ? text : root;
    if (!json_object_get(at, "quantization_config") && json_object_get(root, "quantization_config")) at = root;
    json_object_del(root, "compression_config");
    if (at != root) json_object_del(root, "quantization_config");
    if (text && at != text) json_object_del(text, "quantization_config");
    if (v)
        json_object_set_new(at, "quantization_config", v);
    else
        json_object_del(at, "quantization_config");
}

status quantized_config(const char *source, const model_config *c, const quantizer *q, bool linears, char **text,
                        err *e) {
    char path[PATH_MAX];
    buf in = {0};
    *text = NULL;
    status st = path_join(path, sizeof path, source, "config.json", e);
    if (st == ST_OK) st = file_read(path, CONFIG_FILE_MAX, &in, e);
    json_t *root = st == ST_OK ? json_parse(in.data, in.len, path, e) : NULL, *v = NULL;
    buf_free(&in);
    if (!root) return e->code;
    const left_out o = {linears, json_object_get(root, "vision_config") || c->prefix[0], c->prefix[0] != 0};
    if (q->format != WF_BF16 && !(v = quantization_of(q, &o, c, e))) return json_decref(root), e->code;
    replace_quantization(root, v);
    *text = json_to_text(root, &(json_style){",", ": ", NULL, 2});
    json_decref(root);
    return *text ? ST_OK : err_nomem(e, "config.json", 0);
}
