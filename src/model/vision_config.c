#include "model/vision_config.h"
#include "base/file.h"
#include "kernels/ops.h"
#include "model/config_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number KEY, or vt_KEY. */
static status read_width(const json_t *o, const char *key, i64 most, i64 *out, err *e) {
    char long_key[64];
    snprintf(long_key, sizeof long_key, "vt_%s", key);
    return json_get_i64(o, json_object_get(o, long_key) ? long_key : key, 1, most, true, out, e);
}

/* What is computed in one way only. */
static status vision_fixed_keys(const json_t *o, err *e) {
    static const struct {
        const char *key, *want;
    } fixed[] = {{"pos_emb_type", "divided_fixed"},
                 {"merge_type", "sd2_tpool"},
                 {"video_attn_type", "spatial_temporal"},
                 {"mm_projector_type", "patchmerger"},
                 {"projector_hidden_act", "gelu"}};
    for (size_t i = 0; i < COUNT_OF(fixed); i++) {
        status st = config_only_str(o, fixed[i].key, fixed[i].want, e);
        if (st != ST_OK) return st;
    }
    const json_t *merge = json_object_get(o, "merge_kernel_size");
    for (size_t i = 0; merge && i < 2; i++)
        if (json_array_size(merge) != 2 || json_integer_value(json_array_get(merge, i)) != VISION_MERGE)
            return err_set(e, ST_UNSUPPORTED, "merge_kernel_size is not [%d, %d]", VISION_MERGE, VISION_MERGE);
    return ST_OK;
}

static status read_vision(vision_config *c, const json_t *o, err *e) {
    c->eps = c->projector_eps = 1e-5;
    c->patch = VISION_PATCH;
    c->frames = 4;
    status st = vision_fixed_keys(o, e);
    if (st == ST_OK) st = read_width(o, "hidden_size", VISION_WIDTH, &c->hidden, e);
    if (st == ST_OK) st = read_width(o, "num_hidden_layers", LAYERS_MAX, &c->n_layers, e);
    if (st == ST_OK) st = read_width(o, "num_attention_heads", HEADS_MAX, &c->n_heads, e);
    if (st == ST_OK) st = read_width(o, "intermediate_size", WIDTH_MAX, &c->inter, e);
    if (st == ST_OK) st = json_get_i64(o, "patch_size", 1, 64, false, &c->patch, e);
    if (st == ST_OK) st = json_get_i64(o, "init_pos_emb_height", 1, 4096, true, &c->pos_h, e);
    if (st == ST_OK) st = json_get_i64(o, "init_pos_emb_width", 1, 4096, true, &c->pos_w, e);
    if (st == ST_OK) st = json_get_i64(o, "init_pos_emb_time", 1, VISION_FRAMES_MOST, false, &c->frames, e);
    if (st == ST_OK) st = json_get_i64(o, "text_hidden_size", 1, WIDTH_MAX, false, &c->text_hidden, e);
    if (st == ST_OK) st = json_get_f64(o, "projector_ln_eps", EPS_MIN, 1, false, &c->projector_eps, e);
    if (st != ST_OK) return st;
    if (c->patch != VISION_PATCH)
        return err_set(e, ST_UNSUPPORTED, "patch_size is %lld: pictures are cut into patches of %d pixels a side",
                       (long long)c->patch, VISION_PATCH);
    const i64 head = c->hidden / c->n_heads;
    if (c->hidden % c->n_heads || head % 4 || head > VISION_HEAD)
        return err_set(e, ST_UNSUPPORTED,
                       "hidden_size %lld over %lld heads: a head's width must be a multiple of 4, at most %d",
                       (long long)c->hidden, (long long)c->n_heads, VISION_HEAD);
    return ST_OK;
}

static status vision_parse(vision_config *c, const char *json, size_t len, const char *path, err *e) {
    *c = (vision_config){0};
    json_t *root = json_parse(json, len, path, e);
    if (!root) return e ? e->code : ST_FORMAT;
    const json_t *o = json_object_get(root, "vision_config"), *text = json_object_get(root, "text_config");
    status st = ST_OK;
    if (o && !json_is_null(o)) {
        c->there = true;
        if (!json_is_object(o)) st = err_set(e, ST_FORMAT, "not an object");
        if (st == ST_OK) st = json_get_i64(text, "hidden_size", 1, WIDTH_MAX, true, &c->text_hidden, e);
        if (st == ST_OK) st = read_vision(c, o, e);
        if (st != ST_OK) err_prefix(e, "%s: vision_config", path);
    }
    json_decref(root);
    return st;
}

status vision_config_parse(vision_config *c, const char *json, size_t len, err *e) {
    return vision_parse(c, json, len, "config.json", e);
}

/* ---- preprocessor_config.json: how the model's pictures were prepared ---- */

/* media_proc_cfg of Kimi-K2.5, which is what src/media does: a model that wants something else would see other pixels
 * than it was trained on. Keys that are missing have these values. */
static const char preprocessor_known[] =
    "{\"in_patch_limit\": 16384, \"patch_size\": 14, \"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5],"
    " \"merge_kernel_size\": 2, \"fixed_output_tokens\": null, \"patch_limit_on_one_side\": 512,"
    " \"in_patch_limit_each_frame\": 4096, \"in_patch_limit_video\": null, \"sample_fps\": 2.0,"
    " \"max_num_frames_each_video\": null, \"temporal_merge_kernel_size\": 4, \"timestamp_mode\": \"hh:mm:ss.fff\"}";

static bool same_setting(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_same_number(a, b);
    if (json_is_string(a) && json_is_string(b)) return !strcmp(json_string_value(a), json_string_value(b));
    if (!json_is_array(a) || !json_is_array(b)) return json_is_null(a) && json_is_null(b);
    bool same = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; same && i < json_array_size(a); i++)
        same = json_same_number(json_array_get(a, i), json_array_get(b, i));
    return same;
}

status vision_preprocessor_parse(const char *json, size_t len, err *e) {
    json_t *root = json_parse(json, len, "preprocessor_config.json", e), *want;
    if (!root) return e ? e->code : ST_FORMAT;
    const json_t *all = json_object_get(root, "media_proc_cfg");
    json_t *known = json_parse(preprocessor_known, sizeof preprocessor_known - 1, "preprocessor", e);
    status st = known ? ST_OK : e ? e->code : ST_NOMEM;
    const char *key;
    json_object_foreach(known, key, want) {
        const json_t *v = json_object_get(all, key);
        if (st != ST_OK || !v || same_setting(v, want)) continue;
        char *is = json_to_text(v, &json_spaced), *should = json_to_text(want, &json_spaced);
        st = err_set(e, ST_UNSUPPORTED,
                     "preprocessor_config.json: %s is %.80s: pictures and videos are prepared with %.80s", key,
                     is ? is : "?", should ? should : "?");
        free(is), free(should);
    }
    json_decref(known);
    json_decref(root);
    return st;
}

static status vision_preprocessor_load(const char *dir, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    status st = path_join(path, sizeof path, dir, "preprocessor_config.json", e);
    if (st != ST_OK || !file_exists(path)) return st;
    st = file_read(path, CONFIG_BYTES_MAX, &text, e);
    if (st == ST_OK && vision_preprocessor_parse(text.data ? text.data : "", text.len, e) != ST_OK)
        st = err_prefix(e, "%s", dir);
    buf_free(&text);
    return st;
}

status vision_config_load(vision_config *c, const char *dir, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    *c = (vision_config){0};
    status st = path_join(path, sizeof path, dir, "config.json", e);
    if (st == ST_OK) st = file_read(path, CONFIG_BYTES_MAX, &text, e);
    if (st == ST_OK) st = vision_parse(c, text.data, text.len, path, e);
    if (st == ST_OK && c->there) st = vision_preprocessor_load(dir, e);
    buf_free(&text);
    return st;
}
