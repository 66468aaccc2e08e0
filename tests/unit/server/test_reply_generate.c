/* /generate's streams out of scripted tokens: how often what belongs to the prompt is sent. No model runs. */
#include "unit.h"

#include "server/reply/reply.h"
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 4, OUTPUT = 6, BATCHES = 3 };

static served_model served = {.dir = "models/nano", .name = "nano", .context = 4096};

static void event(reply *p, sched_event_kind kind, i32 token, i64 at) {
    const sched_top top = {token, -0.5f};
    const job_event ev = {.kind = kind,
                          .token = token,
                          .logprob = -0.25f,
                          .has_logprob = kind == SCHED_TOKEN || at > 0,
                          .position = at,
                          .n_top = 1};
    answer_event(&p->all[0], &ev, &top);
}

/* The meta_info of every chunk of a stream of BATCHES chunks. */
static json_t *play(bool incremental) {
    static const char ask[] =
        "{\"input_ids\":[300,301,302,303],\"stream\":true,\"return_logprob\":true,"
        "\"logprob_start_len\":0,\"top_logprobs_num\":1,\"sampling_params\":{\"max_new_tokens\":6}}";
    gen_request r = {0};
    api_error e = {0};
    reply p;
    buf out = {0};
    assert_true(request_generate(&r, &served, json_parse(ask, sizeof ask - 1, "test", NULL), &e));
    assert_int_equal(reply_open(&p, &r, &served, "id", NULL), ST_OK);
    p.incremental = incremental;
    for (i64 i = 0; i < PROMPT; i++) event(&p, SCHED_PROMPT, (i32)(300 + i), i);
    for (i64 i = 0; i < OUTPUT; i++) {
        event(&p, SCHED_TOKEN, (i32)(400 + i), i);
        if (i % 2 && i + 1 < OUTPUT) reply_chunks(&p, 0, &out);
    }
    const job_end end = {.ended = true, .finish = SCHED_LENGTH, .stop_id = -1};
    answer_end(&p.all[0], &end);
    reply_chunks(&p, 0, &out);
    buf_char(&out, 0);
    json_t *all = json_array();
    for (const char *at = out.data; *at; at = strstr(at, "\n\n") + 2) {
        json_t *v = json_parse(at + 6, (size_t)(strstr(at, "\n\n") - at) - 6, "event", NULL);
        assert_non_null(v);
        json_array_append(all, json_object_get(v, "meta_info"));
        json_decref(v);
    }
    reply_close(&p);
    gen_request_free(&r);
    buf_free(&out);
    return all;
}

static i64 entries(const json_t *all, size_t i, const char *key) {
    const json_t *v = json_object_get(json_array_get(all, i), key);
    return v ? (i64)json_array_size(v) : -1;
}

/* -1: the chunk does not have the field. A chunk with all so far: the first and the last have the prompt's, so that
 * either is enough for who reads one alone. */
static void a_prompts_logprobs_are_not_repeated(void **state) {
    (void)state;
    static const i64 in[2][BATCHES] = {{PROMPT, -1, PROMPT}, {PROMPT, -1, -1}},
                     out[2][BATCHES] = {{2, 4, 6}, {2, 2, 2}};
    for (int incremental = 0; incremental < 2; incremental++) {
        json_t *all = play(incremental);
        assert_int_equal(json_array_size(all), BATCHES);
        for (size_t i = 0; i < BATCHES; i++) {
            assert_int_equal(entries(all, i, "input_token_logprobs"), in[incremental][i]);
            assert_int_equal(entries(all, i, "input_top_logprobs"), in[incremental][i]);
            assert_int_equal(entries(all, i, "output_token_logprobs"), out[incremental][i]);
            assert_int_equal(entries(all, i, "output_top_logprobs"), out[incremental][i]);
        }
        json_decref(all);
    }
}

static int open_model(void **state) {
    const i64 eos = 770;
    err e = {0};
    (void)state;
    status st = served_model_open(&served, NULL, "kimi_k25", 4096, &eos, 0, &e);
    if (st != ST_OK) print_message("%s\n", e.text);
    return st != ST_OK;
}

static int close_model(void **state) {
    (void)state;
    served_model_close(&served);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_prompts_logprobs_are_not_repeated)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
