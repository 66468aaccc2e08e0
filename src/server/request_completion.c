/* server/request_completion.c: /v1/completions and /generate: raw prompts. Names of control tokens in a prompt are
 * control tokens. */
#include "server/request.h"

static bool read_completion(gen_request *r, const served_model *m, api_error *e) {
    const json_t *o = r->body;
    i64 best_of = 1, top = -1;
    r->max_new = 16;
    if (!request_common(r, o, e) || !request_sampling(r, m, o, e) || !request_no_grammar(o, e)) return false;
    if (!field_bool(o, "echo", &r->echo, e) || !field_i64(o, "max_tokens", !r->echo, INT32_MAX, &r->max_new, e) ||
        !field_i64(o, "min_tokens", 0, INT32_MAX, &r->min_new, e) || !field_i64(o, "logprobs", 0, 20, &top, e))
        return false;
    r->score = !r->max_new;
    if (r->score) r->max_new = 1; /* a prompt's log-probabilities come with its first step */
    best_of = r->n;
    if (!field_i64(o, "best_of", 1, N_MAX, &best_of, e)) return false;
    if (best_of != r->n) return api_fail(e, 400, "unsupported", "best_of", "best_of: only the value of n is supported");
    if (field_given(o, "suffix") && json_string_length(json_object_get(o, "suffix")))
        return api_fail(e, 400, "unsupported", "suffix", "suffix is not supported by this model");
    if (!field_given(o, "prompt")) return api_fail(e, 400, NULL, "prompt", "prompt: missing");
    if (r->min_new > r->max_new)
        return api_fail(e, 400, NULL, "min_tokens", "min_tokens: more than max_tokens (%lld)", (long long)r->max_new);
    r->logprobs = top >= 0;
    r->top = max_i64(top, 0);
    r->prompt_logprobs = r->logprobs && r->echo;
    return request_read_prompts(r, m, json_object_get(o, "prompt"), "prompt", e);
}

bool request_completion(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    r->kind = API_COMPLETION;
    r->body = body;
    return read_completion(r, m, e);
}

static bool read_sampling_params(gen_request *r, const served_model *m, const json_t *o, api_error *e) {
    r->max_new = 128;
    return request_sampling(r, m, o, e) && request_no_grammar(o, e) &&
           field_i64(o, "max_new_tokens", 1, INT32_MAX, &r->max_new, e) &&
           field_i64(o, "min_new_tokens", 0, INT32_MAX, &r->min_new, e) && field_i64(o, "n", 1, N_MAX, &r->n, e);
}

static bool read_generate(gen_request *r, const served_model *m, api_error *e) {
    static const char *const refused[] = {"image_data", "video_data",        "audio_data",    "input_embeds",
                                          "lora_path",  "token_ids_logprob", "session_params"};
    const json_t *o = r->body, *params, *empty;
    json_t *none = json_object();
    bool text = field_given(o, "text"), ids = field_given(o, "input_ids");
    i64 start = -1;
    empty = none;
    bool ok = request_common(r, o, e) && field_object(o, "sampling_params", &params, e) &&
              read_sampling_params(r, m, params ? params : empty, e);
    json_decref(none);
    if (!ok) return false;
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        if (field_given(o, refused[i]))
            return api_fail(e, 400, "unsupported", refused[i], "%s is not supported by this version", refused[i]);
    if (text == ids) return api_fail(e, 400, NULL, text ? "input_ids" : "text", "give either text or input_ids");
    if (r->min_new > r->max_new)
        return api_fail(e, 400, NULL, "min_new_tokens", "min_new_tokens: more than max_new_tokens (%lld)",
                        (long long)r->max_new);
    if (!field_bool(o, "return_logprob", &r->logprobs, e) ||
        !field_i64(o, "logprob_start_len", -1, INT32_MAX, &start, e) ||
        !field_i64(o, "top_logprobs_num", 0, SCHED_TOP_MAX, &r->top, e) ||
        !field_bool(o, "return_text_in_logprobs", &r->logprob_text, e))
        return false;
    r->top = r->logprobs ? r->top : 0;
    r->prompt_logprobs = r->logprobs && start >= 0;
    r->logprob_start = max_i64(start, 0);
    const char *key = text ? "text" : "input_ids";
    return request_read_prompts(r, m, json_object_get(o, key), key, e);
}

bool request_generate(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    r->kind = API_GENERATE;
    r->body = body;
    return read_generate(r, m, e);
}
