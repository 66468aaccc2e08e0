/* tests/unit/runtime/sched_util.h: requests with everything that came back for them, and a scheduler driven by hand. */
#ifndef TESTS_SCHED_UTIL_H
#define TESTS_SCHED_UTIL_H
#include "unit.h"

#include "runtime/scheduler.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 3, MAX_TOKENS = 512 };

typedef struct {
    i32 id;
    bool has;
    f32 logprob;
    sampled top[TOP];
} seen_token;

typedef struct {
    i32 prompt[MAX_TOKENS], stops[4];
    sched_request r;
    u64 id;
    seen_token out[MAX_TOKENS], in[MAX_TOKENS];
    i64 n_out, n_in;
    bool started, ended;
    sched_finish finish;
    sched_usage usage;
    i32 stop_id;
    err error;
    const sched_kv *kv; /* of a job with kv_only: the last event's */
    i64 kv_ready;
} job;

static u64 rng_state;
static inline u64 rng(void) { /* splitmix64 */
    u64 z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline i64 pick(i64 lo, i64 hi) { return lo + (i64)(rng() % (u64)(hi - lo + 1)); }

static inline void keep(seen_token *t, const sched_event *ev) {
    memset(t, 0, sizeof *t);
    t->id = ev->token;
    t->has = ev->has_logprob;
    t->logprob = ev->logprob;
    for (i64 i = 0; i < ev->n_top; i++) t->top[i] = ev->top[i];
}

/* Files events under their job, and checks their order. */
static inline void on_events(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++) {
        job *j = ev[i].user;
        assert_false(j->ended);
        switch (ev[i].kind) {
        case SCHED_STARTED:
            assert_false(j->started);
            j->started = true;
            break;
        case SCHED_PROMPT:
            assert_true(j->started && j->n_in == ev[i].position && j->n_out == 0);
            keep(&j->in[j->n_in++], &ev[i]);
            break;
        case SCHED_TOKEN:
            assert_true(j->started && j->n_out == ev[i].position);
            keep(&j->out[j->n_out++], &ev[i]);
            break;
        case SCHED_KV:
            assert_true(j->started && ev[i].kv_ready > j->kv_ready && (!j->kv || j->kv == ev[i].kv));
            j->kv = ev[i].kv;
            j->kv_ready = ev[i].kv_ready;
            break;
        case SCHED_END:
            j->ended = true;
            j->finish = ev[i].finish;
            j->usage = ev[i].usage;
            j->stop_id = ev[i].stop_id;
            if (ev[i].error) j->error = *ev[i].error;
            break;
        }
    }
}

static inline scheduler *open_scheduler(engine *g, scheduler_options o) {
    scheduler *s;
    err e = {0};
    o.on_events = on_events;
    if (scheduler_open(&s, g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return s;
}

static inline engine *open_stages(const char *dir, const char *device, i64 running, i64 kv_tokens, i64 chunk, i64 pp) {
    engine *g;
    err e = {0};
    engine_options o = {.model_dir = dir,
                        .device = device,
                        .threads = 1,
                        .context = MAX_TOKENS,
                        .chunk = chunk,
                        .max_running = running,
                        .kv_tokens = kv_tokens,
                        .pp = pp};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

static inline engine *open_engine(const char *dir, const char *device, i64 running, i64 kv_tokens, i64 chunk) {
    return open_stages(dir, device, running, kv_tokens, chunk, 1);
}

static inline void must_check(scheduler *s) {
    err e = {0};
    if (scheduler_check(s, &e) != ST_OK) fail_msg("%s", e.text);
}

static inline void must_submit(scheduler *s, job *j) {
    err e = {0};
    j->r.user = j;
    j->r.prompt = j->prompt;
    if (j->r.n_stop) j->r.stop_ids = j->stops;
    if (scheduler_submit(s, &j->r, 1, &j->id, NULL, &e) != SCHED_ACCEPTED) fail_msg("%s", e.text);
}

/* Forgets the results, keeps the request. */
static inline void rewind_job(job *j) {
    j->id = 0;
    j->n_out = j->n_in = 0;
    j->started = j->ended = false;
    j->error = (err){0};
    j->kv = NULL;
    j->kv_ready = 0;
    memset(&j->usage, 0, sizeof j->usage);
}

/* A job with a fixed pseudo-random prompt that depends on `seed`. */
static inline job *make_job(u64 seed, i64 n_prompt, i64 max_new) {
    job *j = calloc(1, sizeof *j);
    rng_state = seed;
    for (i64 i = 0; i < n_prompt; i++) j->prompt[i] = (i32)pick(0, 129);
    j->r.n_prompt = n_prompt;
    j->r.max_new = max_new;
    j->r.sampling = sampling_default();
    j->r.sampling.temperature = 1;
    j->r.sampling.seed = seed;
    j->r.logprobs = true;
    return j;
}

static inline job *copy_job(const job *from) {
    job *j = calloc(1, sizeof *j);
    *j = *from;
    rewind_job(j);
    return j;
}

static inline sched_stats stats_of(scheduler *s) {
    sched_stats st;
    scheduler_stats(s, &st);
    return st;
}

static inline void run_all(scheduler *s) {
    for (i64 steps = 0; scheduler_step(s); steps++) {
        must_check(s);
        if (steps > 200000) fail_msg("the scheduler does not come to an end");
    }
}

/* What came back for `got` must be the beginning of what came back for `want`, bit for bit; all of it if it ended by
 * itself. */
static inline void must_agree(const job *want, const job *got, const char *what) {
    bool whole = got->finish == SCHED_STOP || got->finish == SCHED_LENGTH;
    if (whole && (got->n_out != want->n_out || got->n_in != want->n_in || got->finish != want->finish))
        fail_msg("%s: request %d ended with %d tokens, alone with %d", what, (int)got->id, (int)got->n_out,
                 (int)want->n_out);
    assert_true(got->n_out <= want->n_out && got->n_in <= want->n_in);
    for (i64 i = 0; i < got->n_out; i++)
        if (memcmp(&got->out[i], &want->out[i], sizeof got->out[i]))
            fail_msg("%s: request %d differs at output %d: token %d (%.9g), alone %d (%.9g)", what, (int)got->id,
                     (int)i, got->out[i].id, got->out[i].logprob, want->out[i].id, want->out[i].logprob);
    for (i64 i = 0; i < got->n_in; i++)
        if (memcmp(&got->in[i], &want->in[i], sizeof got->in[i]))
            fail_msg("%s: request %d differs at prompt token %d", what, (int)got->id, (int)i);
}

#endif
