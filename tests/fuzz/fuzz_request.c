/* A request's body: the JSON of every endpoint becomes something the scheduler may be given, or an error that has a
 * status and a text. Then an answer is played back: the input's bytes as token ids, as a stream and whole.
 * Needs models/nano (its tokenizer), so it runs in the repository's root. */
#include "server/reply/reply.h"
#include "server/request/request.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static served_model served = {
    .dir = "models/nano", .name = "nano", .context = 2048, .parse_calls = true, .parse_reasoning = true};

static void open_once(void) {
    static bool ready;
    err e = {0};
    if (ready) return;
    ready = true;
    if (served_model_open(&served, NULL, "kimi_k25", 4096, NULL, 0, &e) != ST_OK) {
        fprintf(stderr, "fuzz_request: %s\n", e.text);
        abort();
    }
}

static void check_request(const gen_request *r) {
    if (r->n_prompts < 1 || r->n < 1 || r->n_prompts * r->n > CHOICES_MAX || r->max_new < 0 || r->min_new < 0) abort();
    for (i64 i = 0; i < r->n_prompts; i++) {
        if (!r->prompts[i].len) abort();
        for (size_t k = 0; k < r->prompts[i].len; k++)
            if (r->prompts[i].data[k] < 0 || r->prompts[i].data[k] >= served.vocab) abort();
    }
    if (sampling_check(&r->sampling, NULL) != ST_OK || r->top < 0 || r->top > SCHED_TOP_MAX) abort();
}

/* Logprobs have tokens for keys, and jansson reads no key with a \u0000, which JSON allows: here it is a \u0001. */
static void must_be_json(const char *text, size_t len) {
    char *copy = strndup(text ? text : "", len);
    if (!copy || strlen(copy) != len) abort();
    for (char *s = copy; (s = strstr(s, "\\u0000")); s += 6) s[5] = '1';
    json_t *v = json_parse(copy, len, "reply", NULL);
    if (!v) abort();
    json_decref(v);
    free(copy);
}

static void play(const gen_request *r, const u8 *data, size_t size) {
    reply p;
    buf whole = {0}, stream = {0};
    if (r->n_prompts * r->n > 4) return;
    if (reply_open(&p, r, &served, "id", NULL) != ST_OK) abort();
    answer *a = &p.all[0];
    const i32 ids = tokenizer_vocab_size(served.tok);
    for (size_t i = 0; i + 1 < size && i < 128 && !a->done; i += 2) {
        const i32 id = ((data[i] << 8 | data[i + 1]) ^ ' ') % ids; /* JSON text has spaces; token 0 is a NUL */
        const sched_top top = {id, -1};
        const job_event ev = {.kind = SCHED_TOKEN,
                              .token = id,
                              .logprob = -1,
                              .has_logprob = r->logprobs,
                              .n_top = r->logprobs && r->top};
        answer_event(a, &ev, &top);
        if (r->stream && data[i] & 1) reply_chunks(&p, 0, &stream);
    }
    const job_end end = {.finish = SCHED_LENGTH, .stop_id = -1};
    for (i64 i = 0; i < p.n; i++) answer_end(&p.all[i], &end);
    if (r->stream) {
        reply_chunks(&p, 0, &stream);
        for (char *s = stream.data, *to; s && *s; s = to + 2) {
            to = strstr(s, "\n\n");
            if (to && !strncmp(s, "event: ", 7)) s = strchr(s, '\n') + 1;
            if (!to || s > to || strncmp(s, "data: ", 6)) abort();
            must_be_json(s + 6, (size_t)(to - s) - 6);
        }
    } else {
        reply_whole(&p, &whole);
        must_be_json(whole.data, whole.len);
    }
    buf_free(&whole);
    buf_free(&stream);
    reply_close(&p);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    static bool (*const read[])(gen_request *, const served_model *, json_t *, api_error *) = {
        request_chat, request_completion, request_generate, request_anthropic, request_responses, request_count_tokens};
    open_once();
    for (size_t k = 0; k < COUNT_OF(read); k++) {
        json_t *body = json_parse((const char *)data, size, "request", NULL);
        if (!json_is_object(body)) {
            json_decref(body);
            return 0;
        }
        gen_request r = {0};
        api_error e = {0};
        if (read[k](&r, &served, body, &e)) {
            if (!r.prompts[0].len) abort();
            if (read[k] == request_count_tokens) { /* a prompt, nothing to run */
                gen_request_free(&r);
                continue;
            }
            check_request(&r);
            play(&r, data, size);
        } else {
            buf b = {0};
            if (e.http < 400 || e.http > 503 || !e.text.text[0]) abort();
            api_error_json(&b, &e);
            must_be_json(b.data, b.len);
            buf_clear(&b);
            api_error_json_anthropic(&b, &e);
            must_be_json(b.data, b.len);
            buf_free(&b);
        }
        gen_request_free(&r);
    }
    return 0;
}
