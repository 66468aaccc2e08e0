/* server/request/request_pictures.c: a request's pictures: whether they are read, and their place in the prompt. */
#include "server/request/request.h"

static bool hold_picture(void *ud, u64 more) {
    const gen_request *r = ud;
    return !r->hold || r->hold(r->hold_ud, more);
}

bool request_picture_rules(gen_request *r, const served_model *m, picture_rules *rules, const char *field,
                           api_error *e) {
    *rules = (picture_rules){.file = m->picture_file,
                             .most = m->picture_most,
                             .tokens = (i64)request_max_ids(r, m),
                             .hold = hold_picture,
                             .ud = r};
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
