#include "server/reply/job.h"
#include "base/log.h"
#include "api/run_filter.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUEUE_BYTES_MAX = 32 << 20 };

typedef struct {
    job *j;
    i32 index;
    u64 id;
    job_end end;
} slot;

struct job {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    job_events in, out; /* `in` under the lock, `out` is the taker's */
    bool waiting, overflow, nomem, released;
    const sched_kv *kv; /* of a request for KV pages */
    i64 kv_ready;
    atomic_int refs; /* one for the taker, one for each choice that has not ended */
    scheduler *s;
    job_table *table;
    job *next, *prev; /* the table's list, under its lock */
    char rid[132];
    i64 n;
    slot slots[];
};

struct job_table {
    pthread_mutex_t lock;
    job *head;
};

status job_table_open(job_table **out, err *e) {
    *out = calloc(1, sizeof **out);
    if (!*out) return err_nomem(e, "the table of requests", sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return ST_OK;
}

void job_table_close(job_table *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static void free_events(job_events *q) {
    free(q->ev);
    free(q->top);
}

static void unref(job *j) {
    if (atomic_fetch_sub(&j->refs, 1) != 1) return;
    free_events(&j->in);
    free_events(&j->out);
    pthread_cond_destroy(&j->wake);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

static bool reserve(void **p, i64 *cap, i64 need, size_t size) {
    if (need <= *cap) return true;
    i64 grown = max_i64(need, *cap ? 2 * *cap : 16);
    void *q = realloc(*p, (size_t)grown * size);
    if (!q) return false;
    *p = q;
    *cap = grown;
    return true;
}

/* With the job's lock held. */
static void job_append(job *j, const slot *sl, const sched_event *ev) {
    job_events *q = &j->in;
    size_t bytes = (size_t)q->n * sizeof *q->ev + (size_t)(q->n_top + ev->n_top) * sizeof *q->top;
    if (j->overflow || j->nomem) return;
    if (bytes > QUEUE_BYTES_MAX) {
        j->overflow = true;
        return;
    }
    if (!reserve((void **)&q->ev, &q->cap, q->n + 1, sizeof *q->ev) ||
        !reserve((void **)&q->top, &q->cap_top, q->n_top + ev->n_top, sizeof *q->top)) {
        j->nomem = true;
        return;
    }
    q->ev[q->n++] = (job_event){.kind = ev->kind,
                                .choice = sl->index,
                                .token = ev->token,
                                .logprob = ev->logprob,
                                .is_stop = ev->is_stop,
                                .has_logprob = ev->has_logprob,
                                .n_top = (i32)ev->n_top,
                                .position = ev->position,
                                .top = q->n_top,
                                .at_s = now_s()};
    if (ev->n_top) memcpy(q->top + q->n_top, ev->top, (size_t)ev->n_top * sizeof *q->top);
    q->n_top += ev->n_top;
}

static void note_end(slot *sl, const sched_event *ev) {
    sl->end.usage = ev->usage;
    sl->end.started |= ev->kind == SCHED_STARTED || ev->usage.started_s > 0;
    if (ev->kind != SCHED_END) return;
    sl->end.ended = true;
    sl->end.finish = ev->finish;
    sl->end.stop_id = ev->stop_id;
    if (ev->error) sl->end.error = *ev->error;
}

void job_table_on_events(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++) {
        slot *sl = ev[i].user;
        job *j = sl->j;
        pthread_mutex_lock(&j->lock);
        if (ev[i].kind == SCHED_STARTED || ev[i].kind == SCHED_END) note_end(sl, &ev[i]);
        job_append(j, sl, &ev[i]);
        if (ev[i].kind == SCHED_KV) j->kv = ev[i].kv, j->kv_ready = ev[i].kv_ready;
        const bool unclaimed = ev[i].kind == SCHED_KV && j->released;
        /* Wake once for a run of events of one job. */
        bool more = i + 1 < n && ((slot *)ev[i + 1].user)->j == j;
        bool wake = j->waiting && !more;
        pthread_mutex_unlock(&j->lock);
        if (unclaimed) scheduler_kv_done(j->s, ev[i].kv, 0, NULL);
        if (wake) pthread_cond_signal(&j->wake); /* with the lock free: it would only wait for that */
        if (ev[i].kind == SCHED_END) unref(j);
    }
}

static void table_add(job_table *t, job *j) {
    pthread_mutex_lock(&t->lock);
    j->next = t->head;
    if (t->head) t->head->prev = j;
    t->head = j;
    pthread_mutex_unlock(&t->lock);
}

static void table_remove(job_table *t, job *j) {
    pthread_mutex_lock(&t->lock);
    if (j->next) j->next->prev = j->prev;
    *(j->prev ? &j->prev->next : &t->head) = j->next;
    pthread_mutex_unlock(&t->lock);
}

i64 job_table_abort(job_table *t, const char *rid) {
    i64 n = 0;
    pthread_mutex_lock(&t->lock);
    for (job *j = t->head; j; j = j->next) {
        if (rid && strcmp(j->rid, rid)) continue;
        n++;
        for (i64 i = 0; i < j->n; i++) scheduler_abort(j->s, j->slots[i].id);
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

static job *job_new(i64 n, const char *rid) {
    job *j = calloc(1, sizeof *j + (size_t)n * sizeof *j->slots);
    if (!j) return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&j->lock, NULL);
    strncpy(j->rid, rid, sizeof j->rid - 1);
    j->n = n;
    for (i64 i = 0; i < n; i++) j->slots[i] = (slot){.j = j, .index = (i32)i};
    atomic_init(&j->refs, (int)n + 1);
    return j;
}

static sched_request one_choice(const gen_request *r, const ids_buf *prompt, const ids_buf *stops, u32 choice, slot *sl,
                                f64 deadline_s) {
    return (sched_request){.user = sl,
                           .prompt = prompt->data,
                           .n_prompt = (i64)prompt->len,
                           .media = r->pictures.of,
                           .n_media = r->pictures.n,
                           .max_new = r->max_new,
                           .min_new = r->min_new,
                           .sampling = r->sampling,
                           .choice = choice,
                           .stop_ids = stops->data,
                           .n_stop = (i64)stops->len,
                           .bias_ids = r->bias_ids.data,
                           .bias = r->bias,
                           .n_bias = (i64)r->bias_ids.len,
                           .logprobs = r->logprobs,
                           .top_logprobs = r->top,
                           .prompt_logprobs = r->prompt_logprobs,
                           .prompt_top_logprobs = r->prompt_logprobs ? r->top : 0,
                           .priority = r->priority,
                           .probe = r->probe,
                           .kv_only = r->kv_only,
                           .kv_from = r->kv_from,
                           .cache_space = r->cache_space,
                           .deadline_s = deadline_s};
}

static void close_filters(token_filter *all, i64 n) {
    for (i64 i = 0; i < n; i++) all[i].close(all[i].ud);
    free(all);
}

/* A filter for each answer; *out NULL: the request has no constraint. */
static bool open_filters(token_filter **out, i64 n, const gen_request *r, api_error *e) {
    *out = NULL;
    if (!r->constraint) return true;
    token_filter *all = calloc((size_t)n, sizeof *all);
    if (!all) return api_nomem(e);
    const run_filter_options o = {
        .begin = r->begin, .first_call = r->history_calls, .text = &r->continued, .forced = !r->token_by_token};
    for (i64 i = 0; i < n; i++) {
        err why = {0};
        status st = run_filter_open(&all[i], r->constraint, &o, &why);
        if (st == ST_OK) continue;
        close_filters(all, i);
        return api_fail_status(e, st, r->continue_final ? "continue_final_message" : r->must_field, &why);
    }
    *out = all;
    return true;
}

static bool hand_in(job *j, const gen_request *r, const ids_buf *stops, f64 deadline_s, api_error *e) {
    token_filter *filters;
    if (!open_filters(&filters, j->n, r, e)) return false;
    sched_request *all = calloc((size_t)j->n, sizeof *all);
    u64 *ids = calloc((size_t)j->n, sizeof *ids);
    err why = {0};
    i64 retry = 0;
    sched_verdict v = SCHED_NO_MEMORY;
    for (i64 i = 0; all && ids && i < j->n; i++) {
        all[i] = one_choice(r, &r->prompts[i / r->n], stops, (u32)(i % r->n), &j->slots[i], deadline_s);
        all[i].filter = filters ? &filters[i] : NULL;
    }
    if (all && ids)
        v = scheduler_submit(j->s, all, j->n, ids, &retry, &why);
    else
        err_nomem(&why, "a request", (u64)j->n * sizeof *all);
    if (v == SCHED_ACCEPTED)
        for (i64 i = 0; i < j->n; i++) j->slots[i].id = ids[i];
    close_filters(filters, v == SCHED_ACCEPTED || !filters ? 0 : j->n); /* of accepted ones the scheduler does */
    free(all);
    free(ids);
    return v == SCHED_ACCEPTED ? true : api_fail_verdict(e, v, r->prompt_field, retry, &why);
}

bool job_submit(job **out, job_table *t, scheduler *s, const gen_request *r, const served_model *m, const char *rid,
                f64 deadline_s, api_error *e) {
    *out = NULL;
    ids_buf stops = {0};
    ids_append(&stops, r->stop_ids.data, r->stop_ids.len);
    if (!r->ignore_eos) ids_append(&stops, m->stops.data, m->stops.len);
    job *j = stops.failed ? NULL : job_new(r->n_prompts * r->n, rid);
    bool ok = j != NULL || api_nomem(e);
    if (ok) {
        j->s = s;
        j->table = t;
        ok = hand_in(j, r, &stops, deadline_s, e);
    }
    ids_free(&stops);
    if (ok) {
        table_add(t, j);
        *out = j;
    } else if (j) {
        atomic_store(&j->refs, 1);
        unref(j);
    }
    return ok;
}

bool job_take(job *j, f64 timeout_s, const job_events **out, api_error *e) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    i64 ns = until.tv_nsec + (i64)(timeout_s * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    j->out.n = j->out.n_top = 0;
    pthread_mutex_lock(&j->lock);
    j->waiting = true;
    while (!j->in.n && !j->overflow && !j->nomem)
        if (pthread_cond_timedwait(&j->wake, &j->lock, &until) == ETIMEDOUT) break;
    j->waiting = false;
    job_events full = j->in;
    j->in = j->out;
    j->out = full;
    bool overflow = j->overflow, nomem = j->nomem;
    pthread_mutex_unlock(&j->lock);
    *out = &j->out;
    if (overflow) return api_fail(e, 503, NULL, NULL, "the client reads too slowly: the answer was dropped");
    if (nomem) return api_nomem(e);
    return true;
}

job_end job_end_of(job *j, i64 choice) {
    pthread_mutex_lock(&j->lock);
    job_end end = j->slots[choice].end;
    pthread_mutex_unlock(&j->lock);
    return end;
}

const sched_kv *job_kv(job *j, i64 *ready) {
    pthread_mutex_lock(&j->lock);
    const sched_kv *kv = j->kv;
    *ready = j->kv_ready;
    pthread_mutex_unlock(&j->lock);
    return kv;
}

void job_abort_choice(job *j, i64 choice) { scheduler_abort(j->s, j->slots[choice].id); }

void job_release(job *j) {
    if (!j) return;
    table_remove(j->table, j);
    for (i64 i = 0; i < j->n; i++) scheduler_abort(j->s, j->slots[i].id);
    pthread_mutex_lock(&j->lock);
    const sched_kv *kv = j->kv;
    j->released = true;
    pthread_mutex_unlock(&j->lock);
    if (kv) scheduler_kv_done(j->s, kv, 0, NULL);
    unref(j);
}
