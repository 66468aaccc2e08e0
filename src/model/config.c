#include "model/config_internal.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- dimensions ---- */

typedef struct {
    const char *key;
    size_t offset;
    i64 lo, hi;
} dim_spec;

#define DIM(key, field, lo, hi)                                                                                        \
    { key, offsetof(model_config, field), lo, hi }
static const dim_spec dims[] = {
    DIM("vocab_size", vocab, 1, 1 << 24),
    DIM("hidden_size", hidden, 1, WIDTH_MAX),
    DIM("num_hidden_layers", n_layers, 1, LAYERS_MAX),
    DIM("first_k_dense_replace", n_dense, 0, LAYERS_MAX),
    DIM("num_attention_heads", n_heads, 1, HEADS_MAX),
    DIM("kv_lora_rank", kv_lora, 1, HEAD_DIM_MAX),
    DIM("qk_nope_head_dim", nope, 1, HEAD_DIM_MAX),
    DIM("qk_rope_head_dim", rope, 2, HEAD_DIM_MAX),
    DIM("v_head_dim", v_dim, 1, HEAD_DIM_MAX),
    DIM("intermediate_size", inter_dense, 1, WIDTH_MAX),
    DIM("moe_intermediate_size", inter_expert, 1, WIDTH_MAX),
    DIM("n_routed_experts", n_experts, 1, EXPERTS_MAX),
    DIM("num_experts_per_tok", top_k, 1, EXPERTS_MAX),
    DIM("max_position_embeddings", max_positions, 1, INT32_MAX),
};

static status read_dims(model_config *c, const json_t *o, err *e) {
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        i64 *dst = (i64 *)(void *)((char *)c + dims[i].offset);
        status st = json_get_i64(o, dims[i].key, dims[i].lo, dims[i].hi, true, dst, e);
        if (st != ST_OK) return st;
    }
    /* null means: one q_proj without a low-rank step; no shared expert */
    status st = json_get_i64(o, "q_lora_rank", 1, WIDTH_MAX, false, &c->q_lora, e);
    if (st == ST_OK) st = json_get_i64(o, "n_shared_experts", 0, EXPERTS_MAX, false, &c->n_shared, e);
    if (st == ST_OK && !json_object_get(o, "q_lora_rank"))
        st = err_set(e, ST_FORMAT, "key \"q_lora_rank\" is missing (null would mean none)");
    return st;
}

static status check_dims(model_config *c, err *e) {
    if (c->rope % 2) return err_set(e, ST_FORMAT, "qk_rope_head_dim is %lld, not even", (long long)c->rope);
    if (c->n_dense > c->n_layers)
        return err_set(e, ST_FORMAT, "first_k_dense_replace is %lld, more than the %lld layers", (long long)c->n_dense,
                       (long long)c->n_layers);
    if (c->top_k > c->n_experts)
        return err_set(e, ST_FORMAT, "num_experts_per_tok is %lld, more than the %lld experts", (long long)c->top_k,
                       (long long)c->n_experts);
    if (c->n_shared * c->inter_expert > WIDTH_MAX)
        return err_set(e, ST_FORMAT, "n_shared_experts x moe_intermediate_size is %lld, more than %d",
                       (long long)(c->n_shared * c->inter_expert), WIDTH_MAX);
    c->inter_shared = c->n_shared * c->inter_expert;
    const i64 group = c->quant == WF_INT4_ROW ? INT4_GROUP : weight_layout_of(c->quant)->cols_multiple;
    if (c->hidden % group)
        return err_set(e, ST_FORMAT, "hidden_size is %lld, no multiple of the group of %lld", (long long)c->hidden,
                       (long long)group);
    if (c->inter_expert % group)
        return err_set(e, ST_FORMAT, "moe_intermediate_size is %lld, no multiple of the group of %lld",
                       (long long)c->inter_expert, (long long)group);
    return ST_OK;
}

/* ---- what the engine computes in one way only ---- */

status config_only_str(const json_t *o, const char *key, const char *want, err *e) {
    const char *got = NULL;
    status st = json_get_str(o, key, false, &got, e);
    if (st == ST_OK && got && strcmp(got, want) != 0)
        st = err_set(e, ST_UNSUPPORTED, "%s \"%.60s\" is not supported, only \"%s\"", key, got, want);
    return st;
}

status config_only_int(const json_t *o, const char *key, i64 want, err *e) {
    i64 got = want;
    status st = json_get_i64(o, key, INT64_MIN, INT64_MAX, false, &got, e);
    if (st == ST_OK && got != want)
        st = err_set(e, ST_UNSUPPORTED, "%s %lld is not supported, only %lld", key, (long long)got, (long long)want);
    return st;
}

status config_only_bool(const json_t *o, const char *key, bool want, err *e) {
    bool got = want;
    status st = json_get_bool(o, key, false, &got, e);
    if (st == ST_OK && got != want)
        st = err_set(e, ST_UNSUPPORTED, "%s %s is not supported", key, got ? "true" : "false");
    return st;
}

status config_only_null(const json_t *o, const char *key, err *e) {
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v) || (json_is_object(v) && json_object_size(v) == 0)) return ST_OK;
    return err_set(e, ST_UNSUPPORTED, "%s other than null is not supported", key);
}

static status check_fixed(const json_t *o, const model_config *c, err *e) {
    status st = config_only_int(o, "n_group", 1, e);
    if (st == ST_OK) st = config_only_int(o, "topk_group", 1, e);
    if (st == ST_OK) st = config_only_str(o, "scoring_func", "sigmoid", e);
    if (st == ST_OK) st = config_only_str(o, "topk_method", "noaux_tc", e);
    if (st == ST_OK) st = config_only_str(o, "hidden_act", "silu", e);
    if (st == ST_OK) st = config_only_bool(o, "attention_bias", false, e);
    if (st == ST_OK) st = config_only_bool(o, "rope_interleave", true, e);
    if (st == ST_OK) st = config_only_int(o, "moe_layer_freq", 1, e);
    if (st == ST_OK) st = config_only_int(o, "num_key_value_heads", c->n_heads, e);
    i64 nextn = 0;
    if (st == ST_OK) st = json_get_i64(o, "num_nextn_predict_layers", 0, LAYERS_MAX, false, &nextn, e);
    if (st == ST_OK && nextn)
        log_once("config nextn",
                 "the checkpoint's multi-token prediction layer is not used: the model is whole without it");
    return st;
}

/* ---- rotary embedding ---- */

static const char *const rope_keys[] = {
    "type",
    "rope_type",
    "rope_theta",
    "factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "attention_factor",
    "truncate",
};

static status read_yarn(model_config *c, const json_t *r, err *e) {
    /* Where a key is absent, DeepSeek-V3's own defaults; Kimi's files write all of them. */
    c->rope_cfg.beta_fast = 32;
    c->rope_cfg.beta_slow = 1;
    c->rope_cfg.mscale = 1;
    c->rope_cfg.mscale_all_dim = 0;
    status st = json_get_f64(r, "factor", 1, 1e6, true, &c->rope_cfg.factor, e);
    if (st == ST_OK)
        st = json_get_i64(r, "original_max_position_embeddings", 1, INT32_MAX, true, &c->rope_cfg.original, e);
    if (st == ST_OK) st = json_get_f64(r, "beta_fast", 1e-6, 1e6, false, &c->rope_cfg.beta_fast, e);
    if (st == ST_OK) st = json_get_f64(r, "beta_slow", 1e-6, 1e6, false, &c->rope_cfg.beta_slow, e);
    if (st == ST_OK) st = json_get_f64(r, "mscale", 0, 100, false, &c->rope_cfg.mscale, e);
    if (st == ST_OK) st = json_get_f64(r, "mscale_all_dim", 0, 100, false, &c->rope_cfg.mscale_all_dim, e);
    if (st == ST_OK) st = config_only_null(r, "attention_factor", e);
    if (st == ST_OK) st = config_only_bool(r, "truncate", true, e);
    if (st == ST_OK && c->rope_cfg.beta_fast < c->rope_cfg.beta_slow)
        st = err_set(e, ST_FORMAT, "beta_fast %g is less than beta_slow %g", c->rope_cfg.beta_fast,
                     c->rope_cfg.beta_slow);
    return st;
}

static status read_rope_object(model_config *c, const json_t *r, err *e) {
    if (!json_is_object(r)) return err_set(e, ST_FORMAT, "not an object");
    const char *key, *type = NULL, *type2 = NULL;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)r, key, v) {
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(rope_keys); i++) known = known || strcmp(key, rope_keys[i]) == 0;
        if (!known) return err_set(e, ST_UNSUPPORTED, "key \"%.60s\" is not supported", key);
    }
    status st = json_get_str(r, "type", false, &type, e);
    if (st == ST_OK) st = json_get_str(r, "rope_type", false, &type2, e);
    if (st != ST_OK) return st;
    if (type && type2 && strcmp(type, type2) != 0)
        return err_set(e, ST_FORMAT, "type \"%.40s\" and rope_type \"%.40s\" differ", type, type2);
    if (!type) type = type2;
    if (!type) return err_set(e, ST_FORMAT, "key \"type\" is missing");
    if (strcmp(type, "default") == 0) return ST_OK;
    if (strcmp(type, "yarn") != 0)
        return err_set(e, ST_UNSUPPORTED, "type \"%.60s\" is not supported, only \"yarn\"", type);
    return read_yarn(c, r, e);
}

status config_read_rope(model_config *c, const json_t *o, err *e) {
    c->rope_cfg.factor = c->rope_cfg.mscale = c->rope_cfg.mscale_all_dim = 1;
    c->rope_cfg.beta_fast = c->rope_cfg.beta_slow = 1;
    c->rope_cfg.original = c->max_positions;
    const char *name = "rope_scaling";
    const json_t *r = json_object_get(o, name);
    if (!r || json_is_null(r)) r = json_object_get(o, name = "rope_parameters");
    if (json_is_null(r)) r = NULL;
    status st = r ? read_rope_object(c, r, e) : ST_OK;
    if (st != ST_OK) return err_prefix(e, "%s", name), st;
    const json_t *theta = json_object_get(o, "rope_theta");
    bool inside = !theta || json_is_null(theta);
    return json_get_f64(inside && r ? r : o, "rope_theta", 1.001, 1e15, true, &c->rope_cfg.theta, e);
}

/* ---- token ids ---- */

static status add_eos(model_config *c, const json_t *v, err *e) {
    if (!json_is_integer(v)) return err_set(e, ST_FORMAT, "eos_token_id holds something else than integers");
    i64 id = json_integer_value(v);
    if (id < 0 || id >= c->vocab)
        return err_set(e, ST_FORMAT, "eos_token_id %lld is outside the vocabulary of %lld", (long long)id,
                       (long long)c->vocab);
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return ST_OK;
    if (c->n_eos == MODEL_EOS_MAX) return err_set(e, ST_LIMIT, "more than %d eos_token_id", MODEL_EOS_MAX);
    c->eos[c->n_eos++] = id;
    return ST_OK;
}

/* One id or a list of ids; absent and null add none. */
static status read_eos(model_config *c, const json_t *o, err *e) {
    const json_t *v = json_object_get(o, "eos_token_id");
    if (!v || json_is_null(v)) return ST_OK;
    if (!json_is_array(v)) return add_eos(c, v, e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        status st = add_eos(c, json_array_get(v, i), e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

static status config_read_ids(model_config *c, const json_t *root, const json_t *text, err *e) {
    c->bos = c->pad = c->media_pad = -1;
    const json_t *both[2] = {text, root}; /* the outer one wins: the inner one may hold a library's defaults */
    for (int i = 0; i < 2; i++) {
        const json_t *eos = json_object_get(both[i], "eos_token_id");
        if (eos && !json_is_null(eos)) c->n_eos = 0;
        status st = json_get_i64(both[i], "bos_token_id", 0, c->vocab - 1, false, &c->bos, e);
        if (st == ST_OK) st = json_get_i64(both[i], "pad_token_id", 0, c->vocab - 1, false, &c->pad, e);
        if (st == ST_OK) st = read_eos(c, both[i], e);
        if (st != ST_OK) return st;
    }
    return json_get_i64(root, "media_placeholder_token_id", 0, c->vocab - 1, false, &c->media_pad, e);
}

/* ---- the file ---- */

static status read_text(model_config *c, const json_t *root, const json_t *text, err *e) {
    f64 scale = 0;
    status st = read_dims(c, text, e);
    if (st == ST_OK) st = check_fixed(text, c, e);
    if (st == ST_OK) st = json_get_f64(text, "routed_scaling_factor", 1e-6, 1e6, true, &scale, e);
    if (st == ST_OK) st = json_get_bool(text, "norm_topk_prob", true, &c->norm_topk, e);
    if (st == ST_OK) st = json_get_f64(text, "rms_norm_eps", EPS_MIN, 1, true, &c->norm_eps, e);
    if (st == ST_OK) st = json_get_bool(text, "tie_word_embeddings", false, &c->tie_embeddings, e);
    if (st == ST_OK) st = config_read_rope(c, text, e);
    if (st == ST_OK) st = config_read_quant(c, root, text, e);
    if (st == ST_OK) st = config_read_ids(c, root, text, e);
    c->routed_scale = (f32)scale;
    c->lora_norm_eps = 1e-6;
    c->vocab_held = c->vocab;
    c->ranks = 1;
    return st == ST_OK ? check_dims(c, e) : st;
}

static bool is_text_type(const char *type) { return strcmp(type, "kimi_k2") == 0 || strcmp(type, "deepseek_v3") == 0; }

static status config_read_root(model_config *c, const json_t *root, err *e) {
    if (!json_is_object(root)) return err_set(e, ST_FORMAT, "not an object");
    const char *type, *inner = NULL;
    status st = json_get_str(root, "model_type", true, &type, e);
    if (st != ST_OK) return st;
    bool nested = strcmp(type, "kimi_k25") == 0;
    if (!nested && !is_text_type(type))
        return err_set(e, ST_UNSUPPORTED,
                       "model_type \"%.60s\" is not supported, only kimi_k25, kimi_k2 and deepseek_v3", type);
    strncpy(c->model_type, type, sizeof c->model_type - 1);
    if (!nested) return read_text(c, root, root, e);
    strcpy(c->prefix, "language_model.");
    const json_t *text = json_object_get(root, "text_config");
    if (!json_is_object(text)) return err_set(e, ST_FORMAT, "no object \"text_config\"");
    st = json_get_str(text, "model_type", false, &inner, e);
    if (st == ST_OK && inner && !is_text_type(inner))
        st = err_set(e, ST_UNSUPPORTED, "model_type \"%.60s\" is not supported, only kimi_k2 and deepseek_v3", inner);
    if (st == ST_OK) st = read_text(c, root, text, e);
    if (st != ST_OK) err_prefix(e, "text_config");
    return st;
}

typedef struct {
    const char *text, *path; /* text NULL: there is no such file */
    size_t len;
} source;

static status config_parse(model_config *c, const source *config, const source *generation, err *e) {
    memset(c, 0, sizeof *c);
    json_t *root = json_parse(config->text, config->len, config->path, e);
    if (!root) return e ? e->code : ST_FORMAT;
    status st = config_read_root(c, root, e);
    if (st != ST_OK) err_prefix(e, "%s", config->path);
    json_decref(root);
    if (st != ST_OK || !generation->text) return st;
    json_t *gen = json_parse(generation->text, generation->len, generation->path, e);
    if (!gen) return e ? e->code : ST_FORMAT;
    st = json_is_object(gen) ? read_eos(c, gen, e) : err_set(e, ST_FORMAT, "not an object");
    if (st != ST_OK) err_prefix(e, "%s", generation->path);
    json_decref(gen);
    return st;
}

status model_config_parse(model_config *c, const char *json, size_t len, const char *generation, size_t gen_len,
                          err *e) {
    source s = {json, "config.json", len}, g = {generation, "generation_config.json", gen_len};
    return config_parse(c, &s, &g, e);
}

/* What ModelOpt's older versions have written beside a config.json that says nothing of it. */
static status load_modelopt(model_config *c, const char *dir, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    status st = path_join(path, sizeof path, dir, "hf_quant_config.json", e);
    if (st != ST_OK || !file_exists(path)) return st;
    st = file_read(path, CONFIG_BYTES_MAX, &text, e);
    json_t *q = st == ST_OK ? json_parse(text.data, text.len, path, e) : NULL;
    buf_free(&text);
    if (!q) return e ? e->code : ST_FORMAT;
    st = config_read_modelopt(c, q, e);
    if (st == ST_OK) st = check_dims(c, e);
    if (st != ST_OK) err_prefix(e, "%s", path);
    json_decref(q);
    return st;
}

status model_config_load(model_config *c, const char *dir, err *e) {
    char path[PATH_MAX], gen_path[PATH_MAX];
    buf text = {0}, gen = {0};
    memset(c, 0, sizeof *c);
    status st = path_join(path, sizeof path, dir, "config.json", e);
    if (st == ST_OK) st = path_join(gen_path, sizeof gen_path, dir, "generation_config.json", e);
    if (st == ST_OK) st = file_read(path, CONFIG_BYTES_MAX, &text, e);
    if (st == ST_OK && file_exists(gen_path)) st = file_read(gen_path, CONFIG_BYTES_MAX, &gen, e);
    if (st == ST_OK) {
        source s = {text.data, path, text.len}, g = {gen.data, gen_path, gen.len};
        st = config_parse(c, &s, &g, e);
    }
    if (st == ST_OK && c->quant == WF_BF16) st = load_modelopt(c, dir, e);
    buf_free(&text);
    buf_free(&gen);
    return st;
}

/* ---- --override ---- */

status model_config_override(model_config *c, const char *assignment, err *e) {
    const char *eq = strchr(assignment, '=');
    if (!eq) return err_set(e, ST_INPUT, "--override \"%.100s\" is not KEY=VALUE", assignment);
    int n = (int)(eq - assignment);
    char *end;
    errno = 0;
    f64 x = strtod(eq + 1, &end);
    if (errno || end == eq + 1 || *end || !isfinite(x))
        return err_set(e, ST_INPUT, "--override %.100s: not a number", assignment);
    struct {
        const char *key;
        f64 lo, hi;
        f64 *real;
        i64 *whole;
    } keys[] = {
        {"num_hidden_layers", 1, (f64)c->n_layers, NULL, &c->n_layers},
        {"max_position_embeddings", 1, INT32_MAX, NULL, &c->max_positions},
        {"lora_norm_eps", EPS_MIN, 1, &c->lora_norm_eps, NULL},
        {"rms_norm_eps", EPS_MIN, 1, &c->norm_eps, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        if ((int)strlen(keys[i].key) != n || memcmp(keys[i].key, assignment, (size_t)n) != 0) continue;
        if (!(x >= keys[i].lo && x <= keys[i].hi))
            return err_set(e, ST_INPUT, "--override %s: outside %g..%g", assignment, keys[i].lo, keys[i].hi);
        if (keys[i].whole && x != floor(x))
            return err_set(e, ST_INPUT, "--override %s: not a whole number", assignment);
        if (keys[i].real) *keys[i].real = x;
        if (keys[i].whole) *keys[i].whole = (i64)x;
        c->n_dense = min_i64(c->n_dense, c->n_layers);
        return ST_OK;
    }
    return err_set(e, ST_INPUT,
                   "--override %.60s: unknown key; num_hidden_layers, max_position_embeddings, lora_norm_eps and "
                   "rms_norm_eps can be changed",
                   assignment);
}

/* The first id of a rank's share: even ones, of whole blocks of FP8 where there are enough ids. */
static i64 share_begin(i64 vocab, i64 ranks, i64 rank) {
    i64 at = vocab * rank / ranks;
    return rank < ranks && vocab >= FP8_BLOCK * ranks ? at / FP8_BLOCK * FP8_BLOCK : at;
}

status model_config_split(model_config *c, i64 ranks, i64 rank, const char *option, err *e) {
    const i64 groups = max_i64(c->ep, 1);
    if (ranks < 1 || ranks % groups)
        return err_set(e, ST_INPUT, "--ep %lld with %s %lld: the ranks cannot be divided so", (long long)groups, option,
                       (long long)ranks);
    const struct {
        const char *what;
        i64 *n, among;
    } all[] = {{"attention heads", &c->n_heads, ranks},
               {"columns of the dense layers", &c->inter_dense, ranks},
               {"columns of an expert", &c->inter_expert, ranks / groups},
               {"columns of the shared expert", &c->inter_shared, ranks}};
    const size_t first = c->whole_attention ? 1 : 0;
    for (size_t i = first; i < COUNT_OF(all); i++)
        if (*all[i].n % all[i].among)
            return err_set(e, ST_INPUT, "%s %lld: %lld %s cannot be divided so", option, (long long)all[i].among,
                           (long long)*all[i].n, all[i].what);
    if (ranks > c->vocab)
        return err_set(e, ST_INPUT, "%s %lld: a vocabulary of %lld cannot be divided so", option, (long long)ranks,
                       (long long)c->vocab);
    for (size_t i = first; i < COUNT_OF(all); i++) *all[i].n /= all[i].among;
    c->vocab_first = share_begin(c->vocab, ranks, rank);
    c->vocab_held = share_begin(c->vocab, ranks, rank + 1) - c->vocab_first;
    c->ranks = ranks, c->rank = rank;
    return ST_OK;
}

void model_vocab_shares(const model_config *c, i64 ranks, i64 *first) {
    for (i64 r = 0; r < ranks; r++) first[r] = c->slice ? r * c->vocab_held : share_begin(c->vocab, ranks, r);
    first[ranks] = model_vocab_there(c);
}

status model_divide_layers(i64 n, i64 stages, const char *given, const char *option, i64 *layers, err *e) {
    const char *at = given;
    i64 sum = 0;
    if (stages < 1 || stages > STAGES_MAX || stages > n)
        return err_set(e, ST_INPUT, "%s %lld: %lld layers cannot be divided so", option, (long long)stages,
                       (long long)n);
    for (i64 s = 0; s < stages; s++) {
        char *end = NULL;
        layers[s] = at ? strtoll(at, &end, 10) : n / stages + (s < n % stages);
        if (at && (end == at || *end != (s + 1 < stages ? ',' : 0) || layers[s] < 1 || layers[s] > n))
            return err_set(e, ST_INPUT, "%s-layers %s: the layers of each of %lld stages are wanted, as 31,30", option,
                           given, (long long)stages);
        sum += layers[s];
        if (at) at = end + 1;
    }
    return sum == n ? ST_OK
                    : err_set(e, ST_INPUT, "%s-layers: %lld layers in all, the model has %lld", option, (long long)sum,
                              (long long)n);
}

void model_config_stage(model_config *c, i64 stages, i64 stage, const i64 *layers) {
    i64 first = 0;
    for (i64 s = 0; s < stage; s++) first += layers[s];
    c->stages = stages, c->stage = stage, c->layer_first = first;
    c->n_layers = layers[stage];
    c->n_dense = max_i64(min_i64(c->n_dense - first, c->n_layers), 0);
}

void model_config_slice_rank(model_config *c, i64 rank) {
    c->rank = rank;
    c->vocab_first = rank * c->vocab_held; /* all have as many ids as the first, wherever the whole would be cut */
}

/* ---- YaRN ---- */

/* The attention temperature of YaRN, section 3.4. */
static f64 yarn_m(f64 factor, f64 a) { return factor <= 1 ? 1 : 0.1 * a * log(factor) + 1; }

f64 model_softmax_scale(const model_config *c) {
    f64 m = yarn_m(c->rope_cfg.factor, c->rope_cfg.mscale_all_dim);
    return m * m / sqrt((f64)(c->nope + c->rope));
}

f64 model_rope_mscale(const model_config *c) {
    return yarn_m(c->rope_cfg.factor, c->rope_cfg.mscale) / yarn_m(c->rope_cfg.factor, c->rope_cfg.mscale_all_dim);
}

/* The dimension whose wavelength fits `turns` times into the original context. */
static f64 correction_dim(const model_config *c, f64 turns) {
    return (f64)c->rope * log((f64)c->rope_cfg.original / (turns * 2 * M_PI)) / (2 * log(c->rope_cfg.theta));
}

void model_inv_freq(const model_config *c, f64 *inv_freq) {
    f64 low = fmax(floor(correction_dim(c, c->rope_cfg.beta_fast)), 0);
    f64 high = fmin(ceil(correction_dim(c, c->rope_cfg.beta_slow)), (f64)(c->rope - 1));
    if (low == high) high += 0.001;
    for (i64 j = 0; j < c->rope / 2; j++) {
        f64 extra = pow(c->rope_cfg.theta, -2.0 * (f64)j / (f64)c->rope);
        f64 ramp = fmin(fmax(((f64)j - low) / (high - low), 0), 1);
        inv_freq[j] = extra / c->rope_cfg.factor * ramp + extra * (1 - ramp);
    }
}
