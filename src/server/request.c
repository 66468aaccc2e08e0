/* server/request.c: what all endpoints' requests share. */
#include "server/request.h"
#include "base/siphash.h"
#include "server/json_size.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { STOP_IDS_MAX = 256, BIAS_MAX = 1024 };

void gen_request_free(gen_request *r) {
    for (i64 i = 0; i < r->n_prompts; i++) ids_free(&r->prompts[i]);
    free(r->prompts);
    ids_free(&r->stop_ids);
    ids_free(&r->bias_ids);
    free(r->bias);
    stop_set_free(&r->stops);
    json_decref(r->body);
    json_decref(r->original);
    *r = (gen_request){0};
}

u64 gen_request_drop_read(gen_request *r) {
    static const char *const needed[] = {"tools", "rid", "request_id"};
    static const char *const shown[] = {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                                        "reasoning",    "tool_choice",       "tools",    "user"};
    json_t *body = json_object(), *original = r->kind == API_RESPONSES ? json_object() : NULL;
    bool ok = body && (original || r->kind != API_RESPONSES);
    for (size_t i = 0; ok && i < COUNT_OF(needed); i++)
        if (json_object_get(r->body, needed[i]))
            ok = json_object_set(body, needed[i], json_object_get(r->body, needed[i])) == 0;
    for (size_t i = 0; ok && original && i < COUNT_OF(shown); i++)
        if (json_object_get(r->original, shown[i]))
            ok = json_object_set(original, shown[i], json_object_get(r->original, shown[i])) == 0;
    json_decref(ok ? r->body : body); /* without memory for it everything is kept */
    json_decref(ok ? r->original : original);
    if (ok) {
        r->body = body;
        r->original = original;
    }
    return json_memory(r->body) + json_memory(r->original);
}

static bool add_stop(gen_request *r, const json_t *v, api_error *e) {
    err why = {0};
    if (!json_is_string(v))
        return api_fail(e, 400, NULL, "stop", "stop: expected a string or an array of strings, got %s",
                        json_type_text(v));
    status st = stop_set_add(&r->stops, json_string_value(v), json_string_length(v), &why);
    return st == ST_OK ? true : api_fail_status(e, st, "stop", &why);
}

static bool read_stops(gen_request *r, const json_t *o, i64 vocab, api_error *e) {
    const json_t *stop = json_object_get(o, "stop"), *ids;
    if (json_is_array(stop)) {
        size_t i;
        json_t *v;
        json_array_foreach(stop, i, v) if (!add_stop(r, v, e)) return false;
    } else if (stop && !json_is_null(stop) && !add_stop(r, stop, e)) {
        return false;
    }
    if (field_given(o, "stop_regex")) return api_fail(e, 400, NULL, "stop_regex", "stop_regex is not supported");
    return field_array(o, "stop_token_ids", STOP_IDS_MAX, &ids, e) &&
           (!ids || field_ids(ids, "stop_token_ids", vocab, &r->stop_ids, e)) &&
           field_bool(o, "no_stop_trim", &r->keep_stop, e) &&
           field_bool(o, "include_stop_str_in_output", &r->keep_stop, e);
}

static bool read_bias(gen_request *r, const json_t *o, i64 vocab, api_error *e) {
    const json_t *map;
    if (!field_object(o, "logit_bias", &map, e) || !map) return !e->http;
    size_t n = json_object_size(map);
    if (n > BIAS_MAX)
        return api_fail(e, 400, NULL, "logit_bias", "logit_bias: %zu entries, at most %d are allowed", n, BIAS_MAX);
    r->bias = calloc(n + 1, sizeof *r->bias);
    if (!r->bias) return api_fail(e, 503, NULL, NULL, "out of memory");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)map, key, v) {
        char *end;
        i64 id = *key >= '0' && *key <= '9' ? strtoll(key, &end, 10) : -1;
        if (id < 0 || *end || id >= vocab)
            return api_fail(e, 400, NULL, "logit_bias", "logit_bias: \"%.40s\" is no token id in 0..%lld", key,
                            (long long)vocab - 1);
        f64 x = json_number_value(v);
        if (!json_is_number(v) || !(x >= -100 && x <= 100))
            return api_fail(e, 400, NULL, "logit_bias", "logit_bias: the value of %lld is not a number in -100..100",
                            (long long)id);
        r->bias[r->bias_ids.len] = (f32)x;
        ids_add(&r->bias_ids, (i32)id);
        if (r->bias_ids.failed) return api_fail(e, 503, NULL, NULL, "out of memory");
    }
    return true;
}

static bool read_seed(sampling *s, const json_t *o, const char *key, api_error *e) {
    i64 seed;
    if (field_given(o, key)) {
        if (!field_i64(o, key, INT64_MIN, INT64_MAX, &seed, e)) return false;
        s->seed = (u64)seed;
    } else if (getrandom(&s->seed, sizeof s->seed, GRND_NONBLOCK) != sizeof s->seed) {
        return api_fail(e, 503, NULL, NULL, "the system has no random numbers");
    }
    return true;
}

bool request_sampling(gen_request *r, const served_model *m, const json_t *o, api_error *e) {
    sampling *s = &r->sampling;
    *s = m->defaults;
    bool ok = field_f64(o, "temperature", 0, 100, &s->temperature, e) && field_f64(o, "top_p", 0, 1, &s->top_p, e) &&
              field_i64(o, "top_k", -1, 1 << 30, &s->top_k, e) && field_f64(o, "min_p", 0, 1, &s->min_p, e) &&
              field_f64(o, "repetition_penalty", 0.01, 100, &s->repetition_penalty, e) &&
              field_f64(o, "frequency_penalty", -2, 2, &s->frequency_penalty, e) &&
              field_f64(o, "presence_penalty", -2, 2, &s->presence_penalty, e) &&
              read_seed(s, o, r->kind == API_GENERATE ? "sampling_seed" : "seed", e) &&
              field_bool(o, "ignore_eos", &r->ignore_eos, e) && read_stops(r, o, m->vocab, e) &&
              read_bias(r, o, m->vocab, e);
    if (!ok) return false;
    r->skip_special = true;
    if (!field_bool(o, "skip_special_tokens", &r->skip_special, e)) return false;
    if (s->temperature < 1e-6) s->temperature = 0;
    if (s->top_k < 0) s->top_k = 0;
    err why = {0};
    status st = sampling_check(s, &why);
    return st == ST_OK ? true : api_fail_status(e, st, NULL, &why);
}

static u64 salt_key[2]; /* this process's own */
static bool salt_key_there;

static void draw_salt_key(void) { salt_key_there = getrandom(salt_key, sizeof salt_key, 0) == sizeof salt_key; }

/* Prefixes are shared within a salt only. A space is a number of 64 bits, a hash of the salt under a key that nobody
 * outside of this process knows: a salt that meets somebody else's cannot be made, only met by chance, once in 2^64
 * tries (and some two of a million salts in use with a probability of 3e-8). */
static bool space_of(const char *salt, size_t n, u64 *space, api_error *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_salt_key);
    if (!salt_key_there) return api_fail(e, 503, NULL, NULL, "the system has no random numbers");
    u64 h = siphash(salt_key, salt, n);
    *space = h ? h : 1; /* 0 is the space of those without a salt */
    return true;
}

/* An id that may be shown in a log. */
static bool printable(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((u8)s[i] < 0x20 || s[i] == 0x7f) return false;
    return n >= 1 && n <= 128;
}

bool request_common(gen_request *r, const json_t *o, api_error *e) {
    const json_t *options;
    const char *salt = NULL;
    r->n = 1;
    if (!field_bool(o, "stream", &r->stream, e) || !field_object(o, "stream_options", &options, e)) return false;
    if (options && (!field_bool(options, "include_usage", &r->include_usage, e) ||
                    !field_bool(options, "continuous_usage_stats", &r->continuous_usage, e)))
        return false;
    if (!field_i64(o, "n", 1, N_MAX, &r->n, e) || !field_str(o, "rid", &r->rid, e) ||
        !field_str(o, "request_id", &r->rid, e) || !field_i64(o, "priority", -1000000, 1000000, &r->priority, e) ||
        !field_str(o, "cache_salt", &salt, e) || !field_bool(o, "return_token_ids", &r->return_token_ids, e))
        return false;
    if (r->rid && !printable(r->rid))
        return api_fail(e, 400, NULL, "rid", "rid: 1 to 128 bytes without control characters are allowed");
    size_t n_salt = salt ? json_string_length(json_object_get(o, "cache_salt")) : 0;
    if (n_salt > 1024) return api_fail(e, 400, NULL, "cache_salt", "cache_salt: longer than 1024 bytes");
    return !salt || space_of(salt, n_salt, &r->cache_space, e);
}

bool request_no_grammar(const json_t *o, api_error *e) {
    static const char *const fields[] = {"regex",          "ebnf",           "json_schema",
                                         "structural_tag", "guided_json",    "guided_regex",
                                         "guided_choice",  "guided_grammar", "structured_outputs"};
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        if (field_given(o, fields[i]))
            return api_fail(e, 400, "unsupported", fields[i], "%s: structured output is not supported by this version",
                            fields[i]);
    const json_t *format;
    const char *type = "text";
    if (!field_object(o, "response_format", &format, e)) return false;
    if (format && (!field_str(format, "type", &type, e))) return false;
    if (!strcmp(type, "text")) return true;
    return api_fail(e, 400, "unsupported", "response_format",
                    "response_format: type \"%.40s\" is not supported by this version, only \"text\"", type);
}

bool request_prompts(gen_request *r, size_t n, api_error *e) {
    if (n < 1) return api_fail(e, 400, NULL, r->prompt_field, "%s: empty", r->prompt_field);
    if (n > PROMPTS_MAX || (i64)n * r->n > CHOICES_MAX)
        return api_fail(e, 400, NULL, r->prompt_field,
                        "%s: %zu prompts with n = %lld; at most %d prompts and %d answers are allowed", r->prompt_field,
                        n, (long long)r->n, PROMPTS_MAX, CHOICES_MAX);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts) return api_fail(e, 503, NULL, NULL, "out of memory");
    r->n_prompts = (i64)n;
    return true;
}

size_t request_max_ids(const gen_request *r, const served_model *m) {
    return (size_t)(r->max_ids ? r->max_ids : m->context);
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
