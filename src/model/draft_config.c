#include "model/draft_config.h"
#include "base/file.h"
#include "model/config_internal.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Keys that are Moonlet's to know stand in config.json or in its eagle_config. The layer's are beside them, or in an
 * object of their own as speculators writes it. */
typedef struct {
    const json_t *root, *eagle; /* eagle NULL: there is none */
    const json_t *layer;        /* root, or its transformer_layer_config */
} draft_source;

static status read_flag(const draft_source *s, const char *key, bool *out, err *e) {
    const json_t *all[] = {s->layer, s->root, s->eagle};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        status st = all[i] ? json_get_bool(all[i], key, false, out, e) : ST_OK;
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

static status read_count(const draft_source *s, const char *key, i64 lo, i64 hi, i64 *out, err *e) {
    status st = json_get_i64(s->root, key, lo, hi, false, out, e);
    return st == ST_OK && s->eagle ? json_get_i64(s->eagle, key, lo, hi, false, out, e) : st;
}

/* ---- The features ---- */

/* Before layers 2, L / 2 and L - 3: the published rule, which meets itself in a small model. */
static status default_taps(draft_config *d, i64 layers, err *e) {
    const i64 taps[] = {2, layers / 2, layers - 3};
    if (layers < 10)
        return err_set(
            e, ST_FORMAT,
            "key \"eagle_config.eagle_aux_hidden_state_layer_ids\" is missing, and a model of %lld layers is "
            "too small for the usual ones",
            (long long)layers);
    d->n_taps = 3;
    memcpy(d->taps, taps, sizeof taps);
    return ST_OK;
}

/* Two conventions are about: "before layer i" as vLLM, speculators and NVIDIA write it, and "behind layer i", in which
 * the first is 1. */
static status read_taps(draft_config *d, const draft_source *s, const model_config *target, err *e) {
    const char *key = "eagle_aux_hidden_state_layer_ids";
    const json_t *list = s->eagle ? json_object_get(s->eagle, key) : NULL;
    if (!list) list = json_object_get(s->root, key);
    if (!list || json_is_null(list)) return default_taps(d, target->n_layers, e);
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > DRAFT_TAPS_MOST)
        return err_set(e, ST_FORMAT, "key \"%s\" is not a list of 1 to %d layers", key, DRAFT_TAPS_MOST);
    const i64 behind = s->layer == s->root && json_integer_value(json_array_get(list, 0)) == 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v)) return err_set(e, ST_FORMAT, "key \"%s\" holds something else than integers", key);
        d->taps[i] = min_i64(json_integer_value(v), INT32_MAX) + behind;
        if (d->taps[i] < 1 || d->taps[i] >= target->n_layers)
            return err_set(e, ST_INPUT,
                           "%s: features before layer %lld, of a model of %lld layers: this draft is for another", key,
                           (long long)d->taps[i], (long long)target->n_layers);
        if (i && d->taps[i] <= d->taps[i - 1]) return err_set(e, ST_FORMAT, "key \"%s\" does not ascend", key);
    }
    d->n_taps = (i64)n;
    return ST_OK;
}

/* ---- What the layer is ---- */

static status read_switches(draft_config *d, const draft_source *s, err *e) {
    const struct {
        const char *key;
        bool *out;
    } flags[] = {{"norm_output", &d->norm_output},
                 {"fc_norm", &d->norm_features},
                 {"use_aux_norm", &d->norm_features},
                 {"norm_before_fc", &d->norm_all_features},
                 {"norm_before_residual", &d->norm_residual}};
    const struct {
        const char *key;
        bool want;
    } fixed[] = {{"use_aux_hidden_state", true}, {"use_input_layernorm_in_first_layer", true},
                 {"use_last_layernorm", true},   {"use_mtp_layernorm", false},
                 {"attention_bias", false},      {"mlp_bias", false}};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        status st = read_flag(s, flags[i].key, flags[i].out, e);
        if (st != ST_OK) return st;
    }
    for (size_t i = 0; i < COUNT_OF(fixed); i++) {
        bool got = fixed[i].want;
        status st = read_flag(s, fixed[i].key, &got, e);
        if (st == ST_OK && got != fixed[i].want)
            st = err_set(e, ST_UNSUPPORTED, "%s %s is not supported", fixed[i].key, got ? "true" : "false");
        if (st != ST_OK) return st;
    }
    if (d->norm_features && d->norm_all_features)
        return err_set(e, ST_FORMAT, "fc_norm and norm_before_fc exclude each other");
    return config_only_str(s->layer, "hidden_act", "silu", e);
}

static status read_mla(model_config *c, const json_t *o, err *e) {
    status st = json_get_i64(o, "q_lora_rank", 1, WIDTH_MAX, true, &c->q_lora, e);
    if (st == ST_OK) st = json_get_i64(o, "kv_lora_rank", 1, HEAD_DIM_MAX, true, &c->kv_lora, e);
    if (st == ST_OK) st = json_get_i64(o, "qk_nope_head_dim", 1, HEAD_DIM_MAX, true, &c->nope, e);
    if (st == ST_OK) st = json_get_i64(o, "qk_rope_head_dim", 2, HEAD_DIM_MAX, true, &c->rope, e);
    if (st == ST_OK) st = json_get_i64(o, "v_head_dim", 1, HEAD_DIM_MAX, true, &c->v_dim, e);
    return st == ST_OK ? config_only_bool(o, "rope_interleave", true, e) : st;
}

static status read_heads(draft_config *d, const json_t *o, err *e) {
    model_config *c = &d->layer;
    c->rope = c->hidden / c->n_heads;
    d->kv_heads = c->n_heads;
    status st = json_get_i64(o, "head_dim", 2, HEAD_DIM_MAX, false, &c->rope, e);
    if (st == ST_OK) st = json_get_i64(o, "num_key_value_heads", 1, c->n_heads, false, &d->kv_heads, e);
    if (st == ST_OK && c->n_heads % d->kv_heads)
        st = err_set(e, ST_FORMAT, "num_key_value_heads %lld does not divide num_attention_heads %lld",
                     (long long)d->kv_heads, (long long)c->n_heads);
    c->v_dim = c->rope;
    return st;
}

static status read_layer(draft_config *d, const draft_source *s, err *e) {
    const json_t *o = s->layer;
    model_config *c = &d->layer;
    status st = json_get_i64(o, "num_attention_heads", 1, HEADS_MAX, true, &c->n_heads, e);
    if (st == ST_OK) st = json_get_i64(o, "intermediate_size", 1, WIDTH_MAX, true, &c->inter_dense, e);
    if (st == ST_OK) st = json_get_i64(o, "max_position_embeddings", 1, INT32_MAX, true, &c->max_positions, e);
    if (st == ST_OK) st = json_get_f64(o, "rms_norm_eps", EPS_MIN, 1, true, &c->norm_eps, e);
    c->lora_norm_eps = c->norm_eps; /* a model's is 1e-6 whatever its config says; drafts are trained and run so */
    if (st == ST_OK) st = config_only_int(o, "num_hidden_layers", 1, e);
    if (st == ST_OK) st = d->layout == DRAFT_MLA ? read_mla(c, o, e) : read_heads(d, o, e);
    if (st == ST_OK && (c->rope < 2 || c->rope % 2))
        st = err_set(e, ST_FORMAT, "a rotary width of %lld is no even number of at least 2", (long long)c->rope);
    if (st == ST_OK) st = config_read_rope(c, o, e);
    return st == ST_OK ? config_read_quant(c, s->root, o, e) : st;
}

/* ---- Whose draft it is ---- */

static status read_same(const json_t *o, const char *key, i64 have, bool need, err *e) {
    i64 v = have;
    status st = json_get_i64(o, key, 1, INT32_MAX, need, &v, e);
    if (st == ST_OK && v != have)
        st = err_set(e, ST_INPUT, "%s is %lld, the model's %lld: this draft is for another", key, (long long)v,
                     (long long)have);
    return st;
}

static status check_architecture(const json_t *root, err *e) {
    const char *name = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    if (!name) return err_set(e, ST_FORMAT, "no list \"architectures\"");
    for (const char *at = name; *at; at++)
        if (!strncasecmp(at, "eagle3", 6)) return ST_OK;
    return err_set(e, ST_UNSUPPORTED, "architecture \"%.60s\" is no EAGLE-3 draft", name);
}

/* NULL: it has none, or null, which is how who writes every key of a class says so. */
static const json_t *given(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

/* Where config.json has what: a layer of its own is of speculators, which trains other drafts and layers, too. */
static status find_source(draft_source *s, const json_t *root, err *e) {
    *s = (draft_source){root, given(root, "eagle_config"), given(root, "transformer_layer_config")};
    if (s->eagle && !json_is_object(s->eagle)) return err_set(e, ST_FORMAT, "key \"eagle_config\" is not an object");
    if (!s->layer) return s->layer = root, ST_OK;
    if (!json_is_object(s->layer)) return err_set(e, ST_FORMAT, "key \"transformer_layer_config\" is not an object");
    status st = config_only_str(root, "speculators_model_type", "eagle3", e);
    return st == ST_OK ? config_only_str(s->layer, "model_type", "llama", e) : st;
}

static status draft_read_root(draft_config *d, const json_t *root, const model_config *target, err *e) {
    model_config *c = &d->layer;
    draft_source s;
    if (!json_is_object(root)) return err_set(e, ST_FORMAT, "not an object");
    i64 taps = 0;
    status st = find_source(&s, root, e);
    if (st == ST_OK) st = check_architecture(root, e);
    if (st == ST_OK) st = read_same(s.layer, "hidden_size", target->hidden, true, e);
    if (st == ST_OK) st = read_same(root, "target_hidden_size", target->hidden, false, e);
    if (st == ST_OK) st = read_same(s.layer, "vocab_size", target->vocab, true, e);
    if (st != ST_OK) return st;
    c->hidden = target->hidden, c->n_layers = c->n_dense = 1, c->ranks = 1;
    c->vocab = d->target_vocab = target->vocab;
    d->layout = given(s.layer, "kv_lora_rank") ? DRAFT_MLA : DRAFT_LLAMA;
    if (st == ST_OK) st = json_get_i64(root, "draft_vocab_size", 1, target->vocab, false, &c->vocab, e);
    c->vocab_held = c->vocab;
    if (st == ST_OK) st = read_switches(d, &s, e);
    if (st == ST_OK) st = read_layer(d, &s, e);
    if (st == ST_OK) st = read_taps(d, &s, target, e);
    if (st == ST_OK) st = read_count(&s, "num_aux_hidden_states", 1, DRAFT_TAPS_MOST, &taps, e);
    if (st == ST_OK && taps && taps != d->n_taps)
        st = err_set(e, ST_FORMAT, "num_aux_hidden_states is %lld, but there are %lld layers of features",
                     (long long)taps, (long long)d->n_taps);
    return st;
}

static status parse_named(draft_config *d, const char *json, size_t len, const char *path, const model_config *target,
                          err *e) {
    memset(d, 0, sizeof *d);
    json_t *root = json_parse(json, len, path, e);
    if (!root) return e ? e->code : ST_FORMAT;
    status st = draft_read_root(d, root, target, e);
    if (st != ST_OK) err_prefix(e, "%s", path);
    json_decref(root);
    return st;
}

status draft_config_parse(draft_config *d, const char *json, size_t len, const model_config *target, err *e) {
    return parse_named(d, json, len, "config.json", target, e);
}

status draft_config_load(draft_config *d, const char *dir, const model_config *target, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    status st = path_join(path, sizeof path, dir, "config.json", e);
    if (st == ST_OK) st = file_read(path, CONFIG_BYTES_MAX, &text, e);
    if (st == ST_OK) st = parse_named(d, text.data, text.len, path, target, e);
    buf_free(&text);
    return st;
}

status draft_config_split(draft_config *d, i64 ranks, i64 rank, const char *option, err *e) {
    if (ranks < 2) return ST_OK;
    status st = model_config_split(&d->layer, ranks, rank, option, e);
    if (st == ST_OK && d->layout == DRAFT_LLAMA && d->kv_heads % ranks)
        st = err_set(e, ST_INPUT, "%s %lld: %lld KV heads cannot be divided so", option, (long long)ranks,
                     (long long)d->kv_heads);
    if (st != ST_OK) return err_prefix(e, "the draft"), st;
    d->kv_heads /= ranks;
    return ST_OK;
}

/* YaRN's temperature is the latent layout's alone: the Llama layout is trained without it. */
f64 draft_softmax_scale(const draft_config *d) {
    return d->layout == DRAFT_MLA ? model_softmax_scale(&d->layer) : 1 / sqrt((f64)d->layer.rope);
}
