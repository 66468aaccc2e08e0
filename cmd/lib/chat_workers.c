#include "cmd/lib/chat_workers.h"
#include "base/log.h"
#include "cmd/lib/tool_calls.h"
#include "kernels/backend.h"
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct askers {
    i64 n;
    moon_engine **engines; /* [n] */
    pthread_mutex_t lock;  /* of everything below */
    i64 next, done, total;
    ask_fn fn;
    void *ud;
    progress p;
    status st;
    err e;
};

void reply_free(reply *r) {
    buf_free(&r->reasoning);
    buf_free(&r->content);
    json_decref(r->calls);
    r->calls = NULL;
}

const char *reply_text(const reply *r) { return r->content.data ? r->content.data : ""; }

json_t *chat_of(json_t *content) {
    return json_pack("{s:[{s:s, s:O}]}", "messages", "role", "user", "content", content);
}

status chat_instant(json_t *chat, err *e) {
    bool bad = json_object_set_new(chat, "chat_template_kwargs", json_pack("{s:b}", "thinking", 0));
    return bad ? err_nomem(e, "the request", 0) : ST_OK;
}

static int worker_on_event(void *user, moon_event event, const char *text, size_t n) {
    reply *r = user;
    if (event == MOON_REASONING) buf_add(&r->reasoning, text, n);
    if (event == MOON_CONTENT) buf_add(&r->content, text, n);
    if (event == MOON_TOOL_CALL) json_array_append_new(r->calls, tool_call_of_event(text, n));
    return r->max_bytes && r->reasoning.len + r->content.len > r->max_bytes;
}

status ask_chat(moon_engine *m, const json_t *chat, i64 max_tokens, reply *r, err *e) {
    char *text = chat ? json_to_text(chat, &json_compact) : NULL;
    if (!text) return err_nomem(e, "the request", 0);
    moon_request q = MOON_REQUEST_INIT;
    moon_stats stats = {0};
    moon_error error;
    q.chat = text;
    q.max_tokens = max_tokens;
    buf_clear(&r->reasoning);
    buf_clear(&r->content);
    json_decref(r->calls);
    r->calls = json_array();
    moon_status st = moon_run(m, &q, worker_on_event, r, &stats, &error);
    free(text);
    if (st != MOON_OK && st != MOON_CANCELLED) return err_set(e, (status)st, "%s", error.text);
    if (r->reasoning.failed || r->content.failed || !r->calls) return err_nomem(e, "an answer", 0);
    r->ended = st == MOON_OK && strcmp(stats.finish, "length") != 0;
    r->prompt_tokens = stats.prompt_tokens;
    r->output_tokens = stats.output_tokens;
    return ST_OK;
}

status askers_open(askers **out, const model_opts *o, i64 parallel, err *e) {
    *out = NULL;
    i64 threads = o->engine.threads ? o->engine.threads : omp_get_max_threads();
    const i64 ranks = max_i64(o->engine.tp, 1) * max_i64(o->engine.pp, 1);
    /* kernels that wait for another GPU's keep those of other engines from it: none of 16 with two stages came */
    const bool alone = ranks > 1 && backend_name_is_gpu(o->engine.device);
    if (alone && parallel > 1)
        return err_set(e, ST_INPUT, "--parallel %lld with --tp or --pp on GPUs: engines that share them do not go on",
                       (long long)parallel);
    if (!parallel) parallel = alone ? 1 : threads;
    askers *a = calloc(1, sizeof *a);
    moon_engine **engines = calloc((size_t)parallel, sizeof *engines);
    if (!a || !engines) {
        free(a);
        free(engines);
        return err_nomem(e, "engines", (u64)parallel * sizeof *engines);
    }
    a->engines = engines;
    pthread_mutex_init(&a->lock, NULL);
    status st = ST_OK;
    for (; st == ST_OK && a->n < parallel; a->n += st == ST_OK) {
        moon_options mo = MOON_OPTIONS_INIT;
        moon_error error;
        model_opts_public(o, &mo);
        if (parallel > 1) mo.threads = max_i64(1, threads / parallel);
        if (moon_open(&a->engines[a->n], &mo, &error) != MOON_OK)
            st = err_set(e, (status)error.status, "%s%s", error.text,
                         a->n ? "; with a smaller --parallel fewer engines are opened" : "");
    }
    if (st == ST_OK) return *out = a, ST_OK;
    askers_close(a);
    return st;
}

void askers_close(askers *a) {
    if (!a) return;
    for (i64 i = 0; i < a->n; i++) moon_close(a->engines[i]);
    pthread_mutex_destroy(&a->lock);
    free(a->engines);
    free(a);
}

const moon_engine *askers_first(const askers *a) { return a->engines[0]; }
i64 askers_parallel(const askers *a) { return a->n; }

typedef struct {
    askers *a;
    moon_engine *engine;
} worker;

static void *work(void *arg) {
    const worker *w = arg;
    askers *a = w->a;
    pthread_mutex_lock(&a->lock);
    while (a->st == ST_OK && a->next < a->total) {
        i64 i = a->next++;
        err e = {0};
        pthread_mutex_unlock(&a->lock);
        status st = a->fn(a->ud, w->engine, i, &e);
        pthread_mutex_lock(&a->lock);
        if (st != ST_OK && a->st == ST_OK) {
            a->st = st;
            a->e = e;
        }
        progress_step(&a->p, (u64)++a->done);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* This thread works too, so one engine needs no other. */
status askers_run(askers *a, const char *what, i64 n, ask_fn fn, void *ud, err *e) {
    a->next = a->done = 0;
    a->total = n;
    a->fn = fn;
    a->ud = ud;
    a->st = ST_OK;
    i64 extra = min_i64(a->n, n) - 1, started = 0;
    pthread_t *threads = calloc((size_t)a->n, sizeof *threads);
    worker *workers = calloc((size_t)a->n, sizeof *workers);
    if (!threads || !workers) {
        free(threads);
        free(workers);
        return err_nomem(e, "threads", (u64)a->n * sizeof *threads);
    }
    progress_start(&a->p, what, "q", (u64)n);
    for (i64 i = 0; i < a->n; i++) workers[i] = (worker){a, a->engines[i]};
    for (; started < extra; started++)
        if (pthread_create(&threads[started], NULL, work, &workers[started + 1])) break;
    if (started < extra)
        log_warn("only %lld of %lld threads could be started", (long long)started + 1, (long long)a->n);
    work(&workers[0]);
    for (i64 i = 0; i < started; i++) pthread_join(threads[i], NULL);
    progress_end(&a->p);
    free(threads);
    free(workers);
    if (a->st != ST_OK && e) *e = a->e;
    return a->st;
}
