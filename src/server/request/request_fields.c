#include "server/request/request_fields.h"
#include "base/siphash.h"
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { STOP_IDS_MAX = 256, BIAS_MAX = 1024 };

/* ---- Readers of fields that are more than a number or a boolean ---- */

static bool read_stream_options(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                                api_error *e) {
    const json_t *options;
    (void)m;
    if (!field_object(o, f->key, &options, e)) return false;
    return !options || (field_bool(options, "include_usage", &r->include_usage, e) &&
                        field_bool(options, "continuous_usage_stats", &r->continuous_usage, e));
}

/* An id that may be shown in a log. */
static bool printable(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((u8)s[i] < 0x20 || s[i] == 0x7f) return false;
    return n >= 1 && n <= 128;
}

static bool read_rid(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    (void)m;
    if (!field_str(o, f->key, &r->rid, e)) return false;
    if (!r->rid || printable(r->rid)) return true;
    return api_fail(e, 400, NULL, f->key, "%s: 1 to 128 bytes without control characters are allowed", f->key);
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

static bool read_salt(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    const char *salt = NULL;
    (void)m;
    if (!field_str(o, f->key, &salt, e)) return false;
    size_t n = salt ? json_string_length(json_object_get(o, f->key)) : 0;
    if (n > 1024) return api_fail(e, 400, NULL, f->key, "%s: longer than 1024 bytes", f->key);
    return !salt || space_of(salt, n, &r->cache_space, e);
}

static bool read_seed(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    i64 seed;
    (void)m;
    if (field_given(o, f->key)) {
        if (!field_i64(o, f->key, INT64_MIN, INT64_MAX, &seed, e)) return false;
        r->sampling.seed = (u64)seed;
    } else if (getrandom(&r->sampling.seed, sizeof r->sampling.seed, GRND_NONBLOCK) != sizeof r->sampling.seed) {
        return api_fail(e, 503, NULL, NULL, "the system has no random numbers");
    }
    return true;
}

static bool add_stop(gen_request *r, const json_t *v, api_error *e) {
    err why = {0};
    if (!json_is_string(v))
        return api_fail(e, 400, NULL, "stop", "stop: expected a string or an array of strings, got %s",
                        json_type_text(v));
    status st = stop_set_add(&r->stops, json_string_value(v), json_string_length(v), &why);
    return st == ST_OK ? true : api_fail_status(e, st, "stop", &why);
}

static bool read_stop(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    const json_t *stop = json_object_get(o, f->key);
    size_t i;
    json_t *v;
    (void)m;
    if (!stop || json_is_null(stop)) return true;
    if (!json_is_array(stop)) return add_stop(r, stop, e);
    json_array_foreach(stop, i, v) if (!add_stop(r, v, e)) return false;
    return true;
}

static bool read_stop_ids(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                          api_error *e) {
    const json_t *ids;
    return field_array(o, f->key, STOP_IDS_MAX, &ids, e) && (!ids || field_ids(ids, f->key, m->vocab, &r->stop_ids, e));
}

static bool read_bias(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    const json_t *map;
    if (!field_object(o, f->key, &map, e) || !map) return !e->http;
    size_t n = json_object_size(map);
    if (n > BIAS_MAX)
        return api_fail(e, 400, NULL, f->key, "%s: %zu entries, at most %d are allowed", f->key, n, BIAS_MAX);
    r->bias = calloc(n + 1, sizeof *r->bias);
    if (!r->bias) return api_nomem(e);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)map, key, v) {
        char *end;
        i64 id = *key >= '0' && *key <= '9' ? strtoll(key, &end, 10) : -1;
        if (id < 0 || *end || id >= m->vocab)
            return api_fail(e, 400, NULL, f->key, "%s: \"%.40s\" is no token id in 0..%lld", f->key, key,
                            (long long)m->vocab - 1);
        f64 x = json_number_value(v);
        if (!json_is_number(v) || !(x >= -100 && x <= 100))
            return api_fail(e, 400, NULL, f->key, "%s: the value of %lld is not a number in -100..100", f->key,
                            (long long)id);
        r->bias[r->bias_ids.len] = (f32)x;
        ids_add(&r->bias_ids, (i32)id);
        if (r->bias_ids.failed) return api_nomem(e);
    }
    return true;
}

/* 0 with echo: the prompt alone is wanted, with its log-probabilities. They come with its first step. */
static bool read_completion_max(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                                api_error *e) {
    (void)m;
    if (!field_i64(o, f->key, !r->echo, INT32_MAX, &r->max_new, e)) return false;
    r->score = !r->max_new;
    if (r->score) r->max_new = 1;
    return true;
}

static bool read_completion_logprobs(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                                     api_error *e) {
    i64 top = -1;
    (void)m;
    if (!field_i64(o, f->key, 0, 20, &top, e)) return false;
    r->logprobs = top >= 0;
    r->top = max_i64(top, 0);
    return true;
}

static bool read_best_of(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    i64 best_of = r->n;
    (void)m;
    if (!field_i64(o, f->key, 1, N_MAX, &best_of, e)) return false;
    if (best_of == r->n) return true;
    return api_fail(e, 400, "unsupported", f->key, "%s: only the value of n is supported", f->key);
}

static bool read_suffix(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    (void)r, (void)m;
    if (!field_given(o, f->key) || !json_string_length(json_object_get(o, f->key))) return true;
    return api_fail(e, 400, "unsupported", f->key, "%s is not supported by this model", f->key);
}

/* ---- The table, in the order of reading ---- */

#define TO(member) .at = offsetof(gen_request, member)
#define ALL        IN_CHAT | IN_COMPLETION | IN_GENERATE
#define DRAW       IN_CHAT | IN_COMPLETION | IN_PARAMS /* how tokens are drawn */
#define TRANSLATED IN_MESSAGES | IN_RESPONSES

static const request_field rows[] = {
    {"stream", ALL | TRANSLATED, FIELD_BOOL, TO(stream)},
    {"stream_options", ALL, FIELD_OWN, .read = read_stream_options},
    {"n", ALL | IN_PARAMS, FIELD_I64, TO(n), 1, N_MAX},
    {"rid", ALL | TRANSLATED, FIELD_OWN, .read = read_rid},
    {"request_id", ALL | TRANSLATED, FIELD_OWN, .read = read_rid},
    {"priority", ALL | TRANSLATED, FIELD_I64, TO(priority), -1000000, 1000000},
    {"cache_salt", ALL | TRANSLATED, FIELD_OWN, .read = read_salt},
    {"return_token_ids", ALL, FIELD_BOOL, TO(return_token_ids)},

    {"temperature", DRAW | TRANSLATED, FIELD_F64, TO(sampling.temperature), 0, 100},
    {"top_p", DRAW | TRANSLATED, FIELD_F64, TO(sampling.top_p), 0, 1},
    {"top_k", DRAW | TRANSLATED, FIELD_I64, TO(sampling.top_k), -1, 1 << 30},
    {"min_p", DRAW | TRANSLATED, FIELD_F64, TO(sampling.min_p), 0, 1},
    {"repetition_penalty", DRAW | TRANSLATED, FIELD_F64, TO(sampling.repetition_penalty), 0.01, 100},
    {"frequency_penalty", DRAW | TRANSLATED, FIELD_F64, TO(sampling.frequency_penalty), -2, 2},
    {"presence_penalty", DRAW | TRANSLATED, FIELD_F64, TO(sampling.presence_penalty), -2, 2},
    {"seed", IN_CHAT | IN_COMPLETION | TRANSLATED, FIELD_OWN, .read = read_seed},
    {"sampling_seed", IN_PARAMS, FIELD_OWN, .read = read_seed},
    {"logit_bias", DRAW | TRANSLATED, FIELD_OWN, .read = read_bias},

    {"ignore_eos", DRAW | TRANSLATED, FIELD_BOOL, TO(ignore_eos)},
    {"stop", DRAW, FIELD_OWN, .read = read_stop},
    {"stop_regex", DRAW | TRANSLATED, .kind = FIELD_REFUSED},
    {"stop_token_ids", DRAW | TRANSLATED, FIELD_OWN, .read = read_stop_ids},
    {"no_stop_trim", DRAW | TRANSLATED, FIELD_BOOL, TO(keep_stop)},
    {"include_stop_str_in_output", DRAW | TRANSLATED, FIELD_BOOL, TO(keep_stop)},
    {"skip_special_tokens", DRAW | TRANSLATED, FIELD_BOOL, TO(skip_special)},

    {"regex", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"ebnf", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"json_schema", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"structural_tag", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"guided_json", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"guided_regex", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"guided_choice", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"guided_grammar", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_grammar},
    {"guided_whitespace_pattern", DRAW | TRANSLATED, .kind = FIELD_REFUSED},
    {"structured_outputs", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_structured_outputs},
    {"response_format", DRAW | TRANSLATED, FIELD_OWN, .read = request_read_format},

    {"echo", IN_COMPLETION, FIELD_BOOL, TO(echo)},
    {"max_tokens", IN_COMPLETION, FIELD_OWN, .read = read_completion_max},
    {"logprobs", IN_COMPLETION, FIELD_OWN, .read = read_completion_logprobs},
    {"best_of", IN_COMPLETION, FIELD_OWN, .read = read_best_of},
    {"suffix", IN_COMPLETION, FIELD_OWN, .read = read_suffix},
    {"max_tokens", IN_CHAT, FIELD_I64, TO(max_new), 1, INT32_MAX},
    {"max_completion_tokens", IN_CHAT, FIELD_I64, TO(max_new), 1, INT32_MAX},
    {"min_tokens", IN_CHAT | IN_COMPLETION | TRANSLATED, FIELD_I64, TO(min_new), 0, INT32_MAX},
    {"max_new_tokens", IN_PARAMS, FIELD_I64, TO(max_new), 1, INT32_MAX},
    {"min_new_tokens", IN_PARAMS, FIELD_I64, TO(min_new), 0, INT32_MAX},
    {"logprobs", IN_CHAT, FIELD_BOOL, TO(logprobs)},
    {"top_logprobs", IN_CHAT, FIELD_I64, TO(top), 0, 20},
    {"return_logprob", IN_GENERATE, FIELD_BOOL, TO(logprobs)},
    {"logprob_start_len", IN_GENERATE, FIELD_I64, TO(logprob_start), -1, INT32_MAX},
    {"top_logprobs_num", IN_GENERATE, FIELD_I64, TO(top), 0, SCHED_TOP_MAX},
    {"return_text_in_logprobs", IN_GENERATE, FIELD_BOOL, TO(logprob_text)},
    {"require_reasoning", IN_GENERATE, FIELD_BOOL, TO(require_reasoning)},

    {"add_generation_prompt", IN_PROMPT, FIELD_NOT, TO(no_generation_prompt)},
    {"continue_final_message", IN_PROMPT, FIELD_BOOL, TO(continue_final)},
    {"separate_reasoning", IN_PROMPT, FIELD_NOT, TO(plain)},
    {"include_reasoning", IN_PROMPT, FIELD_NOT, TO(hide_reasoning)},
    {"stream_reasoning", IN_PROMPT, FIELD_NOT, TO(whole_reasoning)},
    {"parallel_tool_calls", IN_PROMPT | IN_RESPONSES, FIELD_NOT, TO(one_call)},
    {"tool_choice", IN_RESPONSES, .kind = FIELD_PASSED},
    {"reasoning", IN_RESPONSES, .kind = FIELD_PASSED},
    {"chat_template_kwargs", TRANSLATED, .kind = FIELD_PASSED},

    {"image_data", IN_GENERATE, FIELD_OWN, .read = request_read_image_data},
    {"video_data", IN_GENERATE, .kind = FIELD_REFUSED},
    {"audio_data", IN_GENERATE, .kind = FIELD_REFUSED},
    {"input_embeds", IN_GENERATE, .kind = FIELD_REFUSED},
    {"lora_path", IN_GENERATE, .kind = FIELD_REFUSED},
    {"token_ids_logprob", IN_GENERATE, .kind = FIELD_REFUSED},
    {"session_params", IN_GENERATE, .kind = FIELD_REFUSED},
};

const request_field *request_field_rows(size_t *n) {
    *n = COUNT_OF(rows);
    return rows;
}

void request_begin(gen_request *r, const served_model *m, api_kind kind, json_t *body) {
    r->kind = kind;
    r->body = body;
    r->n = 1;
    r->sampling = m->defaults;
    r->skip_special = true;
}

static bool field_read_row(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                           api_error *e) {
    void *to = (u8 *)r + f->at;
    bool is = false;
    switch (f->kind) {
    case FIELD_F64: return field_f64(o, f->key, f->lo, f->hi, to, e);
    case FIELD_I64: return field_i64(o, f->key, (i64)f->lo, (i64)f->hi, to, e);
    case FIELD_BOOL: return field_bool(o, f->key, to, e);
    case FIELD_NOT:
        if (!field_bool(o, f->key, &is, e)) return false;
        if (field_given(o, f->key)) *(bool *)to = !is;
        return true;
    case FIELD_OWN: return f->read(r, m, o, f, e);
    case FIELD_REFUSED:
        if (!field_given(o, f->key)) return true;
        return api_fail(e, 400, "unsupported", f->key, "%s is not supported by this version", f->key);
    case FIELD_PASSED: break;
    }
    return true;
}

/* Values that mean "off" become those that the sampler knows for it. */
static bool finish_sampling(sampling *s, api_error *e) {
    err why = {0};
    if (s->temperature < 1e-6) s->temperature = 0;
    if (s->top_k < 0) s->top_k = 0;
    status st = sampling_check(s, &why);
    return st == ST_OK ? true : api_fail_status(e, st, NULL, &why);
}

bool request_read_fields(gen_request *r, const served_model *m, const json_t *o, unsigned where, api_error *e) {
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].where & where && !field_read_row(r, m, o, &rows[i], e)) return false;
    return !(where & (DRAW)) || finish_sampling(&r->sampling, e);
}

bool request_pass_fields(json_t *chat, const json_t *foreign, unsigned where) {
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        json_t *v = rows[i].where & where ? json_object_get(foreign, rows[i].key) : NULL;
        if (v && json_object_set(chat, rows[i].key, v)) return false;
    }
    return true;
}
