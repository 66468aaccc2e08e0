/* cmd/lib/client_engine.c: requests to the scheduler of an engine in this process. Tokens get their time in the
 * scheduler's callback; text is made of them on the caller's thread. */
#include "base/log.h"
#include "cmd/lib/client.h"
#include "cmd/lib/constrained.h"
#include "runtime/scheduler.h"
#include "runtime/warm_up.h"
#include "text/stops.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct task {
    u64 id;
    client_answer *a;
    decode_stream decoder;
    f64 chunk_s; /* tokens of one callback arrived together */
    i64 chunk_n;
    bool cut; /* a stop string was found */
} task;

/* An event as the callback keeps it. */
typedef struct {
    task *of;
    f64 t;
    sched_event_kind kind;
    i32 token;
    bool is_stop;
    sched_finish finish;
    sched_usage usage;
    char error[160];
} note;

typedef struct {
    client c;
    engine *g;
    scheduler *s;
    tokenizer *tok;
    constrained must;
    ids_buf stops;
    pthread_mutex_t lock; /* of `in` */
    pthread_cond_t came;
    struct {
        note *data;
        i64 n, cap;
    } in, out; /* `out`: taken over, read up to `at` */
    i64 at;
} engine_client;

/* ---- the engine thread ---- */

static void client_engine_keep(engine_client *k, const note *x) {
    if (k->in.n == k->in.cap) {
        i64 more = k->in.cap ? 2 * k->in.cap : 1024;
        note *p = realloc(k->in.data, (size_t)more * sizeof *p);
        if (!p) { /* nobody could be told: the answer would be waited for without end */
            fprintf(stderr, "moonlet: out of memory for the events of a measurement\n");
            _exit(1);
        }
        k->in.data = p;
        k->in.cap = more;
    }
    k->in.data[k->in.n++] = *x;
}

static void client_engine_on_events(void *ud, const sched_event *ev, i64 n) {
    engine_client *k = ud;
    f64 t = now_s();
    pthread_mutex_lock(&k->lock);
    for (i64 i = 0; i < n; i++) {
        if (ev[i].kind != SCHED_TOKEN && ev[i].kind != SCHED_END) continue;
        note x = {.of = ev[i].user,
                  .t = t,
                  .kind = ev[i].kind,
                  .token = ev[i].token,
                  .is_stop = ev[i].is_stop,
                  .finish = ev[i].finish,
                  .usage = ev[i].usage};
        if (x.kind == SCHED_END && ev[i].error) snprintf(x.error, sizeof x.error, "%.150s", ev[i].error->text);
        client_engine_keep(k, &x);
    }
    pthread_cond_signal(&k->came);
    pthread_mutex_unlock(&k->lock);
}

/* ---- the caller's thread ---- */

static status client_engine_prepare(client *c, client_request *r, err *e) {
    (void)c;
    (void)r;
    (void)e;
    return ST_OK;
}

static status prompt_ids(engine_client *k, const client_request *r, ids_buf *ids, err *e) {
    if (r->messages) return err_set(e, ST_UNSUPPORTED, "--in-process takes prompts, no messages");
    if (r->ids)
        ids_append(ids, r->ids, (size_t)r->n_ids);
    else {
        status st = tokenizer_encode(k->tok, r->text, r->text_len, true, ids, e);
        if (st != ST_OK) return st;
    }
    return ids->failed ? err_nomem(e, "a prompt", ids->len * 4) : ST_OK;
}

/* A request that was not taken ends like one that failed. */
static void client_engine_refuse(engine_client *k, task *t, const char *why) {
    note x = {.of = t, .t = now_s(), .kind = SCHED_END, .finish = SCHED_ERROR};
    snprintf(x.error, sizeof x.error, "%.150s", why);
    pthread_mutex_lock(&k->lock);
    client_engine_keep(k, &x);
    pthread_mutex_unlock(&k->lock);
}

static status client_engine_start(client *c, client_request *r, client_answer *a, err *e) {
    engine_client *k = (engine_client *)c;
    ids_buf ids = {0};
    task *t = calloc(1, sizeof *t);
    token_filter filter = {0};
    status st = t ? prompt_ids(k, r, &ids, e) : err_nomem(e, "a request", sizeof *t);
    if (st == ST_OK) st = constrained_next(&k->must, &filter, e);
    if (st == ST_OK) {
        const client_options *o = &c->o;
        sched_request q = {.user = t,
                           .prompt = ids.data,
                           .n_prompt = (i64)ids.len,
                           .max_new = r->max_tokens,
                           .sampling = sampling_default(),
                           .logprobs = o->logprobs};
        q.sampling.temperature = o->temperature;
        if (filter.ud) q.filter = &filter;
        if (!o->ignore_eos) {
            q.stop_ids = k->stops.data;
            q.n_stop = (i64)k->stops.len;
        }
        t->a = a;
        a->own = t;
        a->output_tokens = 0;
        a->start_s = now_s();
        err why = {0};
        if (scheduler_submit(k->s, &q, 1, &t->id, NULL, &why) != SCHED_ACCEPTED) {
            if (filter.ud) filter.close(filter.ud);
            client_engine_refuse(k, t, why.text);
        }
    }
    ids_free(&ids);
    if (st != ST_OK) free(t);
    return st;
}

static void end_chunk(task *t) {
    if (t->chunk_n) client_tokens(t->a, t->chunk_s, t->chunk_n);
    t->chunk_n = 0;
}

/* Cuts the text at the first stop string, if there is one that begins in the last bytes. */
static bool cut_at_stop(const client_options *o, buf *text, size_t before) {
    size_t best = SIZE_MAX;
    for (int i = 0; i < o->n_stop && text->data; i++) {
        size_t len = strlen(o->stop[i]), from = before > len ? before - len : 0;
        const char *hit = memmem(text->data + from, text->len - from, o->stop[i], len);
        if (hit && (size_t)(hit - text->data) < best) best = (size_t)(hit - text->data);
    }
    if (best == SIZE_MAX) return false;
    text->len = best;
    text->data[best] = 0;
    return true;
}

static void take_token(engine_client *k, task *t, const note *x) {
    client_answer *a = t->a;
    if (x->t != t->chunk_s) end_chunk(t);
    t->chunk_s = x->t;
    t->chunk_n++;
    if (t->cut || x->is_stop) return;
    ids_add(&a->ids, x->token);
    size_t before = a->text.len;
    decode_stream_add(&t->decoder, k->tok, x->token, false, &a->text, NULL);
    if (k->c.o.n_stop && cut_at_stop(&k->c.o, &a->text, before)) {
        t->cut = true;
        scheduler_abort(k->s, t->id);
    }
}

static client_answer *take_end(task *t, const note *x) {
    client_answer *a = t->a;
    end_chunk(t);
    if (!t->cut) decode_stream_end(&t->decoder, &a->text);
    a->end_s = x->t;
    a->ok = t->cut || x->finish == SCHED_STOP || x->finish == SCHED_LENGTH;
    a->stopped = t->cut || x->finish == SCHED_STOP;
    a->counted = true;
    a->output_tokens = x->usage.output_tokens;
    a->prompt_tokens = x->usage.prompt_tokens;
    a->cached_tokens = x->usage.cached_tokens;
    if (!a->ok) snprintf(a->error, sizeof a->error, "%s", x->error[0] ? x->error : "the request was ended");
    if (a->text.failed || a->ids.failed || a->gaps.failed) {
        a->ok = false;
        strcpy(a->error, "out of memory");
    }
    free(t);
    return a;
}

/* Waits until notes are there or `until_s` is reached; the condition's clock is the monotonic one, as now_s(). */
static bool fetch(engine_client *k, f64 until_s) {
    struct timespec ts = {.tv_sec = (time_t)until_s, .tv_nsec = (long)((until_s - floor(until_s)) * 1e9)};
    pthread_mutex_lock(&k->lock);
    while (!k->in.n && !pthread_cond_clockwait(&k->came, &k->lock, CLOCK_MONOTONIC, &ts)) continue;
    __typeof__(k->in) full = k->in;
    k->in = k->out;
    k->in.n = 0;
    k->out = full;
    k->at = 0;
    pthread_mutex_unlock(&k->lock);
    return k->out.n > 0;
}

static client_answer *client_engine_wait_answer(client *c, f64 until_s) {
    engine_client *k = (engine_client *)c;
    do {
        while (k->at < k->out.n) {
            const note *x = &k->out.data[k->at++];
            if (x->kind == SCHED_END) return take_end(x->of, x);
            take_token(k, x->of, x);
        }
    } while (fetch(k, until_s));
    return NULL;
}

static status client_engine_flush(client *c, err *e) { return scheduler_flush(((engine_client *)c)->s, e); }

static json_t *client_engine_info(client *c) {
    engine_client *k = (engine_client *)c;
    sched_stats s;
    scheduler_stats(k->s, &s);
    json_t *v =
        json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "plan", engine_plan(k->g),
                  "simulated", engine_simulated(k->g), "steps", (json_int_t)s.steps, "steps_ahead", (json_int_t)s.ahead,
                  "preemptions", (json_int_t)s.preemptions, "prompt_tokens", (json_int_t)s.prompt_tokens,
                  "cached_tokens", (json_int_t)s.cached_tokens, "max_running", (json_int_t)s.max_running,
                  "forced_tokens", (json_int_t)s.forced_tokens, "draft_tokens", (json_int_t)s.draft_tokens,
                  "draft_tokens_true", (json_int_t)s.draft_true, "draft_rounds", (json_int_t)s.draft_rounds);
    /* where SGLang's servers say it */
    if (s.draft_rounds)
        json_object_set_new(v, "internal_states",
                            json_pack("[{s:f}]", "avg_spec_accept_length", sched_accept_length(&s)));
    if (s.draft_pinned > 0) json_object_set_new(v, "speculative_pinned_accept", json_real(s.draft_pinned));
    return v;
}

static void client_engine_close_client(client *c) {
    engine_client *k = (engine_client *)c;
    scheduler_close(k->s);
    constrained_close(&k->must);
    tokenizer_close(k->tok);
    engine_close(k->g);
    ids_free(&k->stops);
    free(k->in.data);
    free(k->out.data);
    pthread_cond_destroy(&k->came);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

engine *client_engine_engine(const client *c) { return ((const engine_client *)c)->g; }
const tokenizer *client_engine_tokenizer(const client *c) { return ((const engine_client *)c)->tok; }

static const client_table client_engine_table = {client_engine_prepare,     client_engine_start,
                                                 client_engine_wait_answer, client_engine_flush,
                                                 client_engine_info,        client_engine_close_client};

status client_engine_open(client **out, const client_engine_options *o, err *e) {
    *out = NULL;
    engine_client *k = calloc(1, sizeof *k);
    if (!k) return err_nomem(e, "the client", sizeof *k);
    k->c.t = &client_engine_table;
    k->c.o = o->o;
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->came, NULL);
    scheduler_options so = {.on_events = client_engine_on_events,
                            .ud = k,
                            .max_queued = 1 << 20,
                            .max_queued_tokens = 1ll << 40,
                            .disable_overlap = o->disable_overlap,
                            .decode_stall_s = o->decode_stall_s};
    status st = model_opts_finish(o->m, e);
    if (st == ST_OK && o->draft) st = speculative_finish(o->draft, &o->m->engine, &so, e);
    engine_options eo = o->m->engine;
    eo.max_running = o->max_running;
    if (st == ST_OK) st = tokenizer_open(&k->tok, eo.model_dir, e);
    if (st == ST_OK && o->o.extra)
        st = constrained_open(&k->must, o->o.extra, o->constrained_share, o->disable_jump_forward, k->tok, e);
    if (st == ST_OK) st = engine_open(&k->g, &eo, e);
    if (st == ST_OK) {
        const model_config *cfg = engine_config(k->g);
        snprintf(k->c.name, sizeof k->c.name, "%s", eo.model_dir);
        st = stops_of(cfg->eos, cfg->n_eos, k->tok, &k->stops, e);
    }
    i64 steps;
    if (st == ST_OK && o->warm_up && engine_on_gpu(k->g) && !engine_simulated(k->g))
        st = engine_warm_up(k->g, &steps, e);
    if (st == ST_OK) engine_profile_clear(k->g);
    if (st == ST_OK) st = scheduler_open(&k->s, k->g, &so, e);
    if (st == ST_OK) {
        log_note("%s", engine_plan(k->g));
        return *out = &k->c, ST_OK;
    }
    client_engine_close_client(&k->c);
    return st;
}
