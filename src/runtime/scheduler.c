#include "runtime/scheduler.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/scheduler_internal.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_QUEUED = 4096, DEFAULT_QUEUED_TOKENS = 16 << 20, SAMPLERS = 32 };

/* Hands the events to the front end. */
static void sched_deliver(scheduler *s) {
    if (s->n_events) s->o.on_events(s->o.ud, s->events, s->n_events);
    s->n_events = 0;
}

/* Forgets the requests that ended, whose events were delivered. */
static void forget_ended(scheduler *s) {
    if (!s->ended.n) return;
    pthread_mutex_lock(&s->lock);
    for (task *t = s->ended.head; t; t = t->next) hash_remove(s, t);
    s->n_live -= s->ended.n;
    pthread_mutex_unlock(&s->lock);
    for (task *t = s->ended.head, *next; t; t = next) next = t->next, task_free(t);
    s->ended = (task_list){0};
}

sched_event *push_event(scheduler *s, const task *t, sched_event_kind kind) {
    if (s->n_events == EVENTS) sched_deliver(s);
    sched_event *ev = &s->events[s->n_events++];
    *ev = (sched_event){.kind = kind, .id = t->id, .user = t->r.user, .stop_id = -1};
    return ev;
}

void end_task(scheduler *s, task *t, sched_finish why, bool keep) {
    if (t->running && keep) kv_save(s, t);
    if (t->running)
        leave_running(s, t, keep);
    else
        queue_remove(s, t);
    t->usage.ended_s = now_s();
    if ((why == SCHED_STOP || why == SCHED_LENGTH) && !t->r.kv_only)
        s->mean_output += ((f64)t->usage.output_tokens - s->mean_output) / 32;
    sched_event *ev = push_event(s, t, SCHED_END);
    ev->finish = why;
    ev->usage = t->usage;
    if (why == SCHED_STOP && !t->whole) ev->stop_id = t->tokens[t->n - 1];
    if (t->error.code != ST_OK) ev->error = &t->error;
    list_add(&s->ended, t);
    pthread_mutex_lock(&s->lock);
    s->stats.ended[why]++;
    pthread_mutex_unlock(&s->lock);
}

/* ---- What other threads left ---- */

static task *abort_asked(scheduler *s) {
    task *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (i64 i = 0; !found && i < s->n_running; i++)
        if (s->running[i]->abort) found = s->running[i];
    for (task *t = s->queue.head; !found && t; t = t->next)
        if (t->abort) found = t;
    if (!found) s->any_abort = false;
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void take_inbox(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    task_list in = s->inbox;
    s->inbox = (task_list){0};
    s->stats.queued += in.n; /* until the next publish() */
    s->stats.queued_tokens += s->inbox_tokens;
    s->inbox_tokens = 0;
    bool aborts = s->any_abort;
    pthread_mutex_unlock(&s->lock);
    for (task *t = in.head, *next; t; t = next) {
        next = t->next;
        f64 until = t->deadline, wait = s->o.queue_timeout_s > 0 ? t->usage.submitted_s + s->o.queue_timeout_s : 0;
        if (wait > 0 && (until <= 0 || wait < until)) until = wait;
        if (until > 0 && (s->next_deadline <= 0 || until < s->next_deadline)) s->next_deadline = until;
        queue_insert(s, t);
    }
    for (task *t; aborts && (t = abort_asked(s));) end_task(s, t, SCHED_ABORT, true);
}

static bool expired(scheduler *s, task *t, f64 now, f64 *next) {
    f64 until = t->deadline;
    if (!t->started && s->o.queue_timeout_s > 0) {
        f64 wait = t->usage.submitted_s + s->o.queue_timeout_s;
        if (until <= 0 || wait < until) until = wait;
    }
    if (until > 0 && now >= until) {
        err_set(&t->error, ST_LIMIT, t->started ? "the request's deadline passed" : "the request waited too long");
        return true;
    }
    if (until > 0 && (*next <= 0 || until < *next)) *next = until;
    return false;
}

static void check_deadlines(scheduler *s) {
    f64 now = now_s(), soonest = 0;
    if (s->next_deadline <= 0 || now < s->next_deadline) return;
    for (task *t = s->queue.head, *next; t; t = next) {
        next = t->next;
        if (expired(s, t, now, &soonest)) end_task(s, t, SCHED_TIMEOUT, true);
    }
    for (i64 i = s->n_running; i-- > 0;)
        if (expired(s, s->running[i], now, &soonest)) end_task(s, s->running[i], SCHED_TIMEOUT, true);
    s->next_deadline = soonest;
}

/* More than one waits, and they are too many or too long together. Probes do not count, in the queue or
 * in a place: nobody leaves because of one. */
static bool too_full(const scheduler *s) {
    i64 n = s->queue.n;
    for (const task *t = s->queue.head; t && t->r.probe; t = t->next) n--;
    for (i64 i = 0; i < s->n_running; i++) n -= s->running[i]->r.probe;
    return n > 1 &&
           (n > s->o.max_queued + s->g->max_running - s->n_running || s->queue_tokens > s->o.max_queued_tokens);
}

/* The queue took better requests than it has room for: the worst that have not started go. */
static void show_out(scheduler *s) {
    for (task *t = s->queue.tail, *prev; t && too_full(s); t = prev) {
        prev = t->prev;
        if (t->started || t->r.probe) continue;
        err_set(&t->error, ST_LIMIT, "the request queue is full, and others have a higher priority");
        end_task(s, t, SCHED_DISPLACED, false);
    }
}

/* ---- A step ---- */

static void count_rates(scheduler *s, f64 now) {
    sched_stats *p = &s->stats;
    f64 past = now - s->window_began;
    if (past < 1) return;
    i64 ends = 0;
    for (size_t i = 0; i < COUNT_OF(p->ended); i++) ends += p->ended[i];
    p->generated_per_s = (f64)(p->generated_tokens - s->counted_tokens) / past;
    s->end_rate += ((f64)(ends - s->counted_ends) / past - s->end_rate) / 4;
    s->counted_tokens = p->generated_tokens;
    s->counted_ends = ends;
    s->window_began = now;
}

/* What stats, and submit's view of the queue, show from now on. */
static void publish(scheduler *s) {
    i64 prefilling = 0;
    for (i64 i = 0; i < s->n_running; i++) prefilling += s->running[i]->n_kv < s->running[i]->r.n_prompt;
    pthread_mutex_lock(&s->lock);
    sched_stats *p = &s->stats;
    p->running = s->n_running;
    p->prefilling = prefilling;
    p->arriving = s->n_arriving;
    p->queued = s->queue.n;
    p->queued_tokens = s->queue_tokens;
    p->pages_free = s->g->pages.n_free;
    p->pages_cached = s->tree.n_idle;
    p->pages_used = p->pages - p->pages_free - p->pages_cached;
    p->evicted_pages = s->tree.n_evicted;
    if (s->host) p->host = host_cache_counts(s->host);
    p->experts_moved = s->g->balance.moved;
    p->expert_rebalances = s->g->balance.rebalances;
    p->expert_busiest = s->g->balance.busiest;
    s->places = s->g->max_running - s->n_running;
    s->lowest_priority = s->queue.tail ? s->queue.tail->r.priority : INT64_MAX;
    s->step_ended = now_s();
    count_rates(s, s->step_ended);
    pthread_mutex_unlock(&s->lock);
}

bool scheduler_step(scheduler *s) {
    kv_take_done(s);
    kv_begin_saving(s, s->resting);
    take_inbox(s);
    check_deadlines(s);
    if (s->broken) fail_all(s);
    admit(s);
    show_out(s);
    publish(s);
    bool work = s->n_running > s->n_arriving;
    s->resting = !work;
    if (!work) s->drafts.results_s = 0;
    if (work) {
        run_batch(s);
        kv_hand_out(s);
        publish(s);
    }
    work = work || s->n_events;
    sched_deliver(s);
    forget_ended(s);
    return work;
}

/* ---- The engine thread ---- */

/* A flush waits, on the engine thread, for what is on its way to the host's memory if there is nothing else: it is of
 * requests that have ended. */
static bool flush_waits(const scheduler *s) {
    return s->control == CONTROL_FLUSH && s->thread_runs && s->n_saves && s->n_live == s->n_saves;
}

static void answer_control(scheduler *s) {
    err e = {0};
    status st = ST_OK;
    if (s->control != CONTROL_FLUSH && s->control != CONTROL_CHECK) return;
    if (flush_waits(s)) return;
    if (s->control == CONTROL_CHECK) {
        st = check_pages(s, &e);
    } else if (s->n_live) {
        st = err_set(&e, ST_LIMIT, "%lld requests are running or waiting", (long long)s->n_live);
    } else {
        radix_flush(&s->tree);
        if (s->host) host_cache_flush(s->host), s->stats.host = host_cache_counts(s->host);
        s->stats.pages_free = s->g->pages.n_free;
        s->stats.pages_cached = s->tree.n_idle;
    }
    s->control_status = st;
    s->control_error = e;
    s->control = CONTROL_DONE;
    pthread_cond_broadcast(&s->idle);
}

/* Where all that runs or waits needs what another thread brings: not for longer than a deadline may be late. */
static void wait_for_others(scheduler *s) {
    static const f64 LOOK_S = 0.02;
    struct timespec until;
    if (!s->resting || !s->n_live || s->inbox.n || s->any_abort || s->kv_news) return;
    if (s->control && !flush_waits(s)) return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(LOOK_S * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->wake, &s->lock, &until);
}

/* Waits for something to do; false when the scheduler closes and every request has ended. */
static bool wait_for_work(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    wait_for_others(s);
    answer_control(s);
    while (!s->n_live && !s->closing) {
        pthread_cond_broadcast(&s->idle);
        pthread_cond_wait(&s->wake, &s->lock);
        answer_control(s);
    }
    bool go_on = s->n_live > 0;
    pthread_mutex_unlock(&s->lock);
    return go_on;
}

static void *engine_thread(void *arg) {
    scheduler *s = arg;
    const rank *first = &s->g->ranks.of[0];
    err e = {0};
    /* What it does beside the ranks reads what rank 0 wrote. */
    if (s->g->ranks.bound && numa_bind(&first->node, &e) != ST_OK) log_warn("%s", e.text);
    while (wait_for_work(s)) scheduler_step(s);
    return NULL;
}

static status control(scheduler *s, int what, err *e) {
    pthread_mutex_lock(&s->lock);
    while (s->control != CONTROL_NONE) pthread_cond_wait(&s->idle, &s->lock);
    s->control = what;
    if (s->thread_runs) {
        pthread_cond_signal(&s->wake);
        while (s->control != CONTROL_DONE) pthread_cond_wait(&s->idle, &s->lock);
    } else {
        answer_control(s);
    }
    status st = s->control_status;
    if (e) *e = s->control_error;
    s->control = CONTROL_NONE;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return st;
}

status scheduler_flush(scheduler *s, err *e) { return control(s, CONTROL_FLUSH, e); }
status scheduler_check(scheduler *s, err *e) { return control(s, CONTROL_CHECK, e); }

bool scheduler_drain(scheduler *s, f64 timeout_s) {
    f64 end = now_s() + timeout_s;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    f64 whole = (f64)until.tv_sec + (f64)until.tv_nsec * 1e-9 + (timeout_s > 0 ? timeout_s : 0);
    until.tv_sec = (time_t)whole;
    until.tv_nsec = (long)((whole - (f64)until.tv_sec) * 1e9);
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    bool in_time = true;
    while (s->thread_runs && s->n_live && in_time) in_time = pthread_cond_timedwait(&s->idle, &s->lock, &until) == 0;
    bool idle = s->n_live == 0;
    pthread_mutex_unlock(&s->lock);
    while (!s->thread_runs && !idle && now_s() < end) idle = !scheduler_step(s);
    return idle;
}

/* ---- Open and close ---- */

static status start_thread(scheduler *s, err *e) {
    const status st = thread_start(&s->thread, "engine", engine_thread, s, e);
    s->thread_runs = st == ST_OK;
    return st;
}

static status open_samplers(scheduler *s, err *e) {
    ops_set_threads(s->g->ranks.threads_each);
    int n = (int)min_i64(omp_get_max_threads(), SAMPLERS);
    s->samplers = calloc((size_t)n, sizeof *s->samplers);
    if (!s->samplers) return err_nomem(e, "the samplers", (u64)n * 8);
    status st = ST_OK;
    for (; st == ST_OK && s->n_samplers < n; s->n_samplers += st == ST_OK)
        st = sampler_open(&s->samplers[s->n_samplers], s->g->config.vocab, e);
    return st;
}

static bool allocate_batch(batch *b, const model_limits *l, size_t spans) {
    const size_t out = (size_t)l->logit_rows, rows = (size_t)l->rows;
    b->ids = calloc(rows, sizeof *b->ids);
    b->bad = calloc(rows, sizeof *b->bad);
    b->spans = calloc(spans, sizeof *b->spans);
    b->tasks = calloc(spans, sizeof *b->tasks);
    b->drafts = calloc(spans, sizeof *b->drafts);
    b->branch = calloc(spans, sizeof *b->branch);
    b->branch_pages = calloc(spans, BRANCH_PAGES * sizeof *b->branch_pages);
    b->copies = calloc((size_t)l->copies + 1, sizeof *b->copies);
    b->out_index = calloc(out, sizeof *b->out_index);
    b->outs = calloc(out, sizeof *b->outs);
    b->draws = calloc(out, sizeof *b->draws);
    b->drawn = calloc(out, sizeof *b->drawn);
    b->keep = calloc(out, sizeof *b->keep);
    b->tops = calloc(out, sizeof *b->tops);
    b->next = calloc(out, sizeof *b->next);
    b->logprobs = calloc(out * (1 + SCHED_TOP_MAX), sizeof *b->logprobs);
    b->top_ids = calloc(out * SCHED_TOP_MAX, sizeof *b->top_ids);
    return b->ids && b->bad && b->spans && b->tasks && b->drafts && b->branch && b->branch_pages && b->copies &&
           b->out_index && b->outs && b->draws && b->drawn && b->keep && b->tops && b->next && b->logprobs &&
           b->top_ids;
}

static void free_batch(batch *b) {
    void *const all[] = {b->branch, b->branch_pages, b->copies,    b->drafts,   b->ids,    b->bad,
                         b->spans,  b->tasks,        b->out_index, b->outs,     b->draws,  b->drawn,
                         b->keep,   b->tops,         b->next,      b->logprobs, b->top_ids};
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

static status sched_allocate(scheduler *s, err *e) {
    const model_limits *l = &s->g->lim;
    const size_t run = (size_t)s->g->max_running, spans = (size_t)spans_most(s->g), out = (size_t)l->logit_rows;
    s->running = calloc(run, sizeof *s->running);
    s->events = calloc(EVENTS, sizeof *s->events);
    s->by_host = calloc(out, sizeof *s->by_host);
    s->logits = malloc(out * (size_t)s->g->config.vocab * sizeof *s->logits);
    s->held = calloc((size_t)l->pool_pages, sizeof *s->held);
    bool batches = true;
    s->n_batches = max_i64(s->depth, 2);
    for (i64 i = 0; i < s->n_batches; i++) batches = batches && allocate_batch(&s->batches[i], l, spans);
    if (!s->running || !s->events || !s->by_host || !s->logits || !s->held || !batches)
        return err_nomem(e, "the scheduler", out * (size_t)s->g->config.vocab * sizeof *s->logits);
    return ST_OK;
}

static void fill_constants(scheduler *s) {
    const engine *g = s->g;
    s->stats = (sched_stats){.pages = g->lim.pool_pages,
                             .pages_free = g->lim.pool_pages,
                             .page_tokens = KV_PAGE,
                             .context = s->limit,
                             .max_running = g->max_running,
                             .max_queued = s->o.max_queued,
                             .draft_pinned = s->o.draft_pinned,
                             .chunk = g->chunk};
    s->places = g->max_running;
    s->lowest_priority = INT64_MAX;
    s->mean_output = 256;
    s->window_began = s->step_ended = now_s();
}

static void init_locks(scheduler *s) {
    pthread_condattr_t monotonic;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_cond_init(&s->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static status sched_check_options(const engine *g, const scheduler_options *o, err *e) {
    if (!o->on_events) return err_set(e, ST_INPUT, "scheduler_options.on_events is not set");
    if (g->max_running < 1) return err_set(e, ST_INPUT, "the engine was opened without max_running");
    if (g->pages.n_free != g->pages.n_pages)
        return err_set(e, ST_INPUT, "the engine is in use: %lld KV pages are taken",
                       (long long)(g->pages.n_pages - g->pages.n_free));
    if (!(o->conservativeness >= 0 && o->conservativeness <= 100))
        return err_set(e, ST_INPUT, "--schedule-conservativeness is %g, outside 0..100 (0: the default)",
                       o->conservativeness);
    if (o->max_queued < 0 || o->max_queued_tokens < 0 || !(o->queue_timeout_s >= 0))
        return err_set(e, ST_INPUT, "a limit of the queue is negative");
    return ST_OK;
}

static status open_host_cache(scheduler *s, err *e) {
    if (!s->o.host_cache_bytes && s->o.host_cache_ratio <= 0) return ST_OK;
    if (s->o.disable_radix_cache)
        return err_set(e, ST_INPUT,
                       "a host cache (--hicache-size) is behind the prefix cache, and with "
                       "--disable-radix-cache there is none");
    const status st = host_cache_open(&s->host, s->g, s->o.host_cache_bytes, s->o.host_cache_ratio, e);
    if (st == ST_OK) s->stats.host = host_cache_counts(s->host);
    return st;
}

/* A chunk of 4096 prompt tokens keeps an H200 nearly as busy as one of 8192 does; beside answers a step of this length
 * is nearly that long. What shorter and longer ones cost: docs/design/decisions.md. */
static const f64 GPU_STALL_S = 0.12;

status scheduler_open(scheduler **out, engine *g, const scheduler_options *o, err *e) {
    *out = NULL;
    status st = sched_check_options(g, o, e);
    if (st != ST_OK) return st;
    scheduler *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(e, "the scheduler", sizeof *s);
    s->g = g;
    s->o = *o;
    if (engine_draft_left_out(g)) s->o.draft_tokens = 0;
    if (!s->o.max_queued) s->o.max_queued = DEFAULT_QUEUED;
    if (s->o.conservativeness <= 0) s->o.conservativeness = 1;
    if (!s->o.max_queued_tokens) s->o.max_queued_tokens = DEFAULT_QUEUED_TOKENS;
    prefill_budget_open(&s->budget, g->chunk,
                        o->decode_stall_s >= 0   ? o->decode_stall_s
                        : engine_backend(g)->gpu ? GPU_STALL_S
                                                 : 0);
    /* the first stage of several does not know what the last one has drawn until the host tells */
    s->overlap = (engine_backend(g)->gpu || o->overlap_anywhere) && !o->disable_overlap && engine_stages(g) == 1;
    s->depth = pipeline_depth(s), s->shares = 1;
    s->limit = min_i64(g->context, g->lim.pool_pages / engine_sequence_ranks(g) * KV_PAGE);
    init_locks(s);
    fill_constants(s);
    st = sched_allocate(s, e);
    if (st == ST_OK) st = radix_open(&s->tree, &g->pages, e);
    if (st == ST_OK) st = open_host_cache(s, e);
    if (st == ST_OK) st = open_samplers(s, e);
    if (st == ST_OK) st = masks_open(s, e);
    if (st == ST_OK) st = drafts_open(s, e);
    if (st == ST_OK && !o->manual) st = start_thread(s, e);
    if (st != ST_OK) {
        scheduler_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void scheduler_close(scheduler *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
    scheduler_abort_all(s);
    if (s->thread_runs)
        pthread_join(s->thread, NULL);
    else if (s->n_live)
        scheduler_step(s);
    host_cache_stop(s->host);
    kv_transfers_close(s);
    host_cache_close(s->host);
    radix_close(&s->tree);
    media_rows_close(s);
    drafts_close(s);
    for (int i = 0; i < s->n_samplers; i++) sampler_close(s->samplers[i]);
    for (i64 i = 0; i < s->n_batches; i++) free_batch(&s->batches[i]);
    void *const all[] = {s->samplers, s->running, s->events, s->by_host, s->logits, s->held, s->masks, s->mask_jobs};
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->idle);
    free(s);
}
