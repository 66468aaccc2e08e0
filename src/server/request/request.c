/* server/request/request.c: what all endpoints' requests share. */
#include "server/request/request.h"
#include "base/json_size.h"
#include <stdlib.h>

void gen_request_free(gen_request *r) {
    for (i64 i = 0; i < r->n_prompts; i++) ids_free(&r->prompts[i]);
    free(r->prompts);
    ids_free(&r->stop_ids);
    ids_free(&r->bias_ids);
    free(r->bias);
    stop_set_free(&r->stops);
    chat_pictures_free(&r->pictures);
    buf_free(&r->continued);
    buf_free(&r->warnings);
    constraint_release(r->constraint);
    json_decref(r->made);
    json_decref(r->body);
    json_decref(r->original);
    *r = (gen_request){0};
}

u64 gen_request_drop_read(gen_request *r) {
    static const char *const needed[] = {"tools", "rid", "request_id"};
    static const char *const shown[] = {"instructions", "max_output_tokens",
                                        "metadata",     "parallel_tool_calls",
                                        "reasoning",    "text",
                                        "tool_choice",  "tools",
                                        "user"};
    json_t *body = json_object(), *original = r->kind == API_RESPONSES ? json_object() : NULL;
    bool ok = body && (original || r->kind != API_RESPONSES);
    for (size_t i = 0; ok && i < COUNT_OF(needed); i++)
        if (json_object_get(r->body, needed[i]))
            ok = json_object_set(body, needed[i], json_object_get(r->body, needed[i])) == 0;
    for (size_t i = 0; ok && original && i < COUNT_OF(shown); i++)
        if (json_object_get(r->original, shown[i]))
            ok = json_object_set(original, shown[i], json_object_get(r->original, shown[i])) == 0;
    json_decref(r->made);
    r->made = NULL;
    r->must = (constraint_source){0};
    r->callable = NULL;
    json_decref(ok ? r->body : body); /* without memory for it everything is kept */
    json_decref(ok ? r->original : original);
    if (ok) {
        r->body = body;
        r->original = original;
    }
    return json_memory(r->body) + json_memory(r->original) + r->pictures.bytes;
}

bool request_hold(gen_request *r, u64 more, api_error *e) {
    if (!r->hold || r->hold(r->hold_ud, more)) return true;
    api_fail(e, 503, NULL, NULL, "the memory for requests is used up (--max-body-memory)");
    e->retry_after = 1;
    return false;
}

bool request_prompts(gen_request *r, size_t n, api_error *e) {
    if (n < 1) return api_fail(e, 400, NULL, r->prompt_field, "%s: empty", r->prompt_field);
    if (n > PROMPTS_MAX || (i64)n * r->n > CHOICES_MAX)
        return api_fail(e, 400, NULL, r->prompt_field,
                        "%s: %zu prompts with n = %lld; at most %d prompts and %d answers are allowed", r->prompt_field,
                        n, (long long)r->n, PROMPTS_MAX, CHOICES_MAX);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts) return api_nomem(e);
    r->n_prompts = (i64)n;
    return true;
}

size_t request_max_ids(const gen_request *r, const served_model *m) {
    return (size_t)(r->max_ids ? r->max_ids : m->context);
}

bool request_check_least(const gen_request *r, const char *least, const char *most, api_error *e) {
    if (!r->max_new || r->min_new <= r->max_new) return true;
    return api_fail(e, 400, NULL, least, "%s: more than %s (%lld)", least, most, (long long)r->max_new);
}

bool request_too_long(const gen_request *r, const served_model *m, const char *key, api_error *e) {
    return api_fail(e, 400, "context_length_exceeded", key,
                    r->max_ids ? "%s: more than %zu tokens are not counted"
                               : "%s: the maximum context length is %zu tokens; the prompt has more",
                    key, request_max_ids(r, m));
}

bool request_encode(const gen_request *r, const served_model *m, const json_t *text, const char *key, ids_buf *out,
                    api_error *e) {
    err why = {0};
    out->max = request_max_ids(r, m);
    status st = tokenizer_encode(m->tok, json_string_value(text), json_string_length(text), true, out, &why);
    if (st == ST_LIMIT) return request_too_long(r, m, key, e);
    return st == ST_OK ? true : api_fail_status(e, st, key, &why);
}

static bool read_prompt(gen_request *r, const served_model *m, const json_t *v, const char *key, ids_buf *out,
                        api_error *e) {
    if (json_is_array(v)) {
        if (json_array_size(v) > request_max_ids(r, m)) return request_too_long(r, m, key, e);
        if (!field_ids(v, key, m->vocab, out, e)) return false;
    } else if (!request_encode(r, m, v, key, out, e)) {
        return false;
    }
    if (out->len) return true;
    return api_fail(e, 400, NULL, key, "%s: the prompt cannot be empty", key);
}

bool request_read_prompts(gen_request *r, const served_model *m, const json_t *v, const char *key, api_error *e) {
    r->prompt_field = key;
    const json_t *first = json_array_get(v, 0);
    bool many = json_is_array(v) && !json_is_integer(first) && !json_is_big_integer(first);
    if (!json_is_string(v) && !json_is_array(v))
        return api_fail(e, 400, NULL, key, "%s: expected text, token ids, or an array of these, got %s", key,
                        json_type_text(v));
    if (!request_prompts(r, many ? json_array_size(v) : json_array_size(v) || json_is_string(v), e)) return false;
    r->prompt_array = many;
    if (!many) return read_prompt(r, m, v, key, &r->prompts[0], e);
    size_t i;
    json_t *p;
    json_array_foreach(v, i, p) {
        if (!json_is_string(p) && !json_is_array(p))
            return api_fail(e, 400, NULL, key, "%s[%zu]: expected text or token ids, got %s", key, i,
                            json_type_text(p));
        if (!read_prompt(r, m, p, key, &r->prompts[i], e)) return false;
    }
    return true;
}
