/* server/request/request_completion.c: /v1/completions and /generate: raw prompts. Names of control tokens in a prompt
 * are control tokens. */
#include "server/request/request_fields.h"

bool request_completion(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    request_begin(r, m, API_COMPLETION, body);
    r->max_new = 16;
    if (!request_read_fields(r, m, body, IN_COMPLETION, e)) return false;
    if (!field_given(body, "prompt")) return api_fail(e, 400, NULL, "prompt", "prompt: missing");
    r->prompt_logprobs = r->logprobs && r->echo;
    return request_check_least(r, "min_tokens", "max_tokens", e) &&
           request_read_prompts(r, m, json_object_get(body, "prompt"), "prompt", e);
}

/* What is missing in sampling_params has its default. */
static bool read_sampling_params(gen_request *r, const served_model *m, api_error *e) {
    const json_t *params;
    json_t *none = json_object();
    bool ok = field_object(r->body, "sampling_params", &params, e) &&
              request_read_fields(r, m, params ? params : none, IN_PARAMS, e);
    json_decref(none);
    return ok && request_check_least(r, "min_new_tokens", "max_new_tokens", e);
}

bool request_generate(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    bool text = field_given(body, "text"), ids = field_given(body, "input_ids");
    const char *key = text ? "text" : "input_ids";
    request_begin(r, m, API_GENERATE, body);
    r->max_new = 128;
    r->logprob_start = -1;
    if (!request_read_fields(r, m, body, IN_GENERATE, e) || !read_sampling_params(r, m, e)) return false;
    if (text == ids) return api_fail(e, 400, NULL, text ? "input_ids" : "text", "give either text or input_ids");
    if (!r->logprobs) r->top = 0;
    r->prompt_logprobs = r->logprobs && r->logprob_start >= 0;
    r->logprob_start = max_i64(r->logprob_start, 0);
    if (!request_read_prompts(r, m, json_object_get(body, key), key, e)) return false;
    if (r->pictures.n && r->n_prompts > 1)
        return api_fail(e, 400, "unsupported", "image_data", "image_data: for one prompt, not for %lld",
                        (long long)r->n_prompts);
    return request_place_pictures(r, m, "image_data", e);
}
