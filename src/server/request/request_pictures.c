/* server/request/request_pictures.c: a request's pictures: whether they are read, and their place in the prompt. */
#include "server/request/request_fields.h"
#include <stdio.h>

static bool hold_picture(void *ud, u64 more) {
    const gen_request *r = ud;
    return !r->hold || r->hold(r->hold_ud, more);
}

static bool client_of_pictures_gone(void *ud) {
    const gen_request *r = ud;
    return r->gone && r->gone(r->gone_ud);
}

bool request_picture_rules(gen_request *r, const served_model *m, picture_rules *rules, const char *field,
                           api_error *e) {
    *rules = (picture_rules){.file = m->picture_file,
                             .video = m->video,
                             .remote = m->remote.n ? &m->remote : NULL,
                             .most = m->picture_most,
                             .tokens = (i64)request_max_ids(r, m),
                             .bytes = r->hold_most,
                             .hold = hold_picture,
                             .gone = client_of_pictures_gone,
                             .ud = r,
                             .placed = r->kind == API_MESSAGES || r->kind == API_RESPONSES};
    if (m->pictures) return true;
    return api_fail(e, 400, "unsupported", field, "%s: this model reads no pictures: it runs without a vision tower",
                    field);
}

bool request_place_pictures(gen_request *r, const served_model *m, const char *field, api_error *e) {
    err why = {0};
    if (!r->pictures.n) return true;
    const i32 pad = tokenizer_special(m->tok, "<|media_pad|>");
    status st = chat_pictures_place(&r->pictures, &r->prompts[0], pad, &why);
    if (st != ST_OK) return api_fail_status(e, st, field, &why);
    return r->prompts[0].len <= request_max_ids(r, m) ? true : request_too_long(r, m, field, e);
}

static bool add_image_data(gen_request *r, const json_t *v, const picture_rules *rules, const char *field,
                           api_error *e) {
    err why = {0};
    const json_t *url = json_is_object(v) ? json_object_get(v, "url") : v;
    if (!json_is_string(url))
        return api_fail(e, 400, NULL, "image_data", "%s: expected a data: URI, got %s", field, json_type_text(url));
    status st =
        chat_pictures_add(&r->pictures, CHAT_PICTURE, json_string_value(url), json_string_length(url), rules, &why);
    if (st != ST_OK) err_prefix(&why, "%s", field);
    return st == ST_OK ? true : st != ST_CANCELLED && api_fail_status(e, st, "image_data", &why);
}

bool request_read_image_data(gen_request *r, const served_model *m, const json_t *o, const struct request_field *f,
                             api_error *e) {
    const json_t *v = json_object_get(o, f->key);
    picture_rules rules;
    char field[40];
    size_t i;
    json_t *one;
    if (!v || json_is_null(v) || (json_is_array(v) && !json_array_size(v))) return true;
    if (!request_picture_rules(r, m, &rules, f->key, e)) return false;
    if (!json_is_array(v)) return add_image_data(r, v, &rules, f->key, e);
    json_array_foreach(v, i, one) {
        snprintf(field, sizeof field, "image_data[%zu]", i);
        if (!add_image_data(r, one, &rules, field, e)) return false;
    }
    return true;
}
