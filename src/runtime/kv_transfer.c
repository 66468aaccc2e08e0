/* runtime/kv_transfer.c: prompts whose KV pages come from another process, or go to one.
 *
 * A transfer holds its pages itself, so that whatever becomes of the request, nobody else writes to them or gets them
 * while a thread that this one does not wait for reads or fills them. */
#include "runtime/engine_kv.h"
#include "base/log.h"
#include "runtime/scheduler_internal.h"
#include <stdlib.h>
#include <string.h>

/* For the pages from `from` on of t's first `rows` tokens, which t has. */
static kv_transfer *transfer_open(scheduler *s, task *t, i64 from, i64 rows, bool in) {
    const i64 n = ceil_div(rows, KV_PAGE);
    const size_t n_ids = (size_t)rows + 1;
    kv_transfer *k = calloc(1, sizeof *k + (n_ids + (size_t)n) * sizeof(i32));
    if (!k) return NULL;
    i32 *ids = (i32 *)(k + 1), *pages = ids + n_ids;
    memcpy(ids, t->tokens, n_ids * sizeof *ids);
    memcpy(pages, t->pages, (size_t)n * sizeof *pages);
    k->kv = (sched_kv){.user = t->r.user,
                       .ids = ids,
                       .rows = rows,
                       .pages = pages,
                       .from = from,
                       .n = n,
                       .cache_space = t->r.cache_space,
                       .priority = t->r.priority};
    k->t = t;
    k->in = in;
    k->wanted = true;
    k->next = s->transfers;
    s->transfers = k;
    t->kv = k;
    *(in ? &s->n_arriving : &s->n_leaving) += 1;
    radix_hold(&s->tree, pages, n);
    pthread_mutex_lock(&s->lock);
    *(in ? &s->stats.kv_in : &s->stats.kv_out) += 1;
    s->n_live++; /* the engine thread stays there for its end */
    pthread_mutex_unlock(&s->lock);
    return k;
}

/* Of kv's rows those that its first n pages have. */
static i64 rows_of_pages(const sched_kv *kv, i64 n) { return n == kv->n ? kv->rows : n * KV_PAGE; }

static void end_without_memory(scheduler *s, task *t) {
    err_nomem(&t->error, "moving KV pages", (u64)t->n * sizeof *t->tokens);
    end_task(s, t, SCHED_ERROR, false);
}

/* What there is of t's pages by now. */
static void hand_out(scheduler *s, task *t) {
    kv_transfer *k = t->kv;
    const i64 ready = t->n_kv == k->kv.rows ? k->kv.n : t->n_kv / KV_PAGE;
    if (ready > k->ready && ready > k->kv.from) {
        pthread_mutex_lock(&s->lock);
        s->stats.kv_tokens_out += rows_of_pages(&k->kv, ready) - max_i64(k->ready, k->kv.from) * KV_PAGE;
        pthread_mutex_unlock(&s->lock);
        k->ready = ready;
        sched_event *ev = push_event(s, t, SCHED_KV);
        ev->kv = &k->kv;
        ev->kv_ready = ready;
    }
    if (t->n_kv == t->n - 1) end_task(s, t, SCHED_LENGTH, true);
}

/* Once, when its prompt need not be waited for any more: what fails before can still be answered by a status. */
static void tell_started(scheduler *s, task *t) {
    if (!t->told) push_event(s, t, SCHED_STARTED)->usage = t->usage;
    t->told = true;
}

static bool is_fetched(const scheduler *s, const task *t, i64 rows) {
    return s->o.fetch && !t->r.kv_only && !t->r.n_media && !t->r.probe &&
           rows - t->n_kv >= (s->o.fetch_least ? s->o.fetch_least : KV_PAGE);
}

void kv_begin(scheduler *s, task *t) {
    const i64 rows = min_i64(reuse_limit(t), t->r.n_prompt);
    err e = {0};
    if (!is_fetched(s, t, rows)) {
        tell_started(s, t);
        if (!t->r.kv_only) return;
        if (transfer_open(s, t, t->r.kv_from, rows, false)) return hand_out(s, t);
        return end_without_memory(s, t);
    }
    if (engine_kv_settle(s->g, &e) != ST_OK) return break_down(s, &e);
    const kv_transfer *k = transfer_open(s, t, t->n_kv / KV_PAGE, rows, true);
    if (k)
        s->o.fetch(s->o.ud, &k->kv);
    else
        end_without_memory(s, t);
}

void kv_hand_out(scheduler *s) {
    err e = {0};
    if (!s->n_leaving) return;
    /* The draft's rows of the step are written by a pass of their own, which nobody has waited for. */
    if (s->g->has_draft && engine_kv_settle(s->g, &e) != ST_OK) return break_down(s, &e);
    for (i64 i = s->n_running; i-- > 0;)
        if (s->running[i]->r.kv_only) hand_out(s, s->running[i]);
}

/* Pages that were never handed out are given back here: nobody knows of them. */
void kv_leave(scheduler *s, task *t) {
    kv_transfer *k = t->kv;
    if (!k) return;
    t->kv = NULL;
    k->t = NULL;
    *(k->in ? &s->n_arriving : &s->n_leaving) -= 1;
    pthread_mutex_lock(&s->lock);
    k->wanted = false;
    const bool under_way = !k->done;
    if (!k->in && !k->ready) k->done = s->kv_news = true;
    pthread_mutex_unlock(&s->lock);
    if (k->in && under_way && s->o.drop) s->o.drop(s->o.ud, &k->kv);
}

/* What came for a task that waits for it. */
static void arrive(scheduler *s, kv_transfer *k) {
    task *t = k->t;
    const i64 arrived = min_i64(max_i64(k->arrived, k->kv.from), k->kv.n);
    kv_leave(s, t);
    t->n_kv = max_i64(t->n_kv, rows_of_pages(&k->kv, arrived));
    cache_prefix(s, t);
    pthread_mutex_lock(&s->lock);
    s->stats.kv_tokens_in += arrived > k->kv.from ? rows_of_pages(&k->kv, arrived) - k->kv.from * KV_PAGE : 0;
    s->stats.kv_failed += k->why.code != ST_OK;
    pthread_mutex_unlock(&s->lock);
    if (k->why.code == ST_OK) return tell_started(s, t);
    if (t->n > t->r.n_prompt) { /* an answer that lost its place: it needs nobody else to go on */
        log_note("request %llu has %lld tokens of its answer: the rest of its prompt is computed here",
                 (unsigned long long)t->id, (long long)(t->n - t->r.n_prompt));
        return;
    }
    t->error = k->why;
    end_task(s, t, SCHED_ERROR, true);
}

/* Whole pages of a prompt that nobody waits for any more: the next one that begins so finds them. */
static void keep_arrived(scheduler *s, const kv_transfer *k) {
    const radix_tokens tokens = {k->kv.ids, NULL, 0};
    const i64 whole = min_i64(k->arrived, k->kv.rows / KV_PAGE);
    if (!s->o.disable_radix_cache && whole > k->kv.from)
        radix_insert(&s->tree, k->kv.cache_space, &tokens, k->kv.pages, whole);
}

static void transfer_close(scheduler *s, kv_transfer *k) {
    kv_transfer **at = &s->transfers;
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    if (k->t && k->in)
        arrive(s, k);
    else if (k->in)
        keep_arrived(s, k);
    else if (k->t) /* whoever takes its pages has gone */
        end_task(s, k->t, SCHED_ABORT, true);
    radix_release(&s->tree, k->kv.pages, k->kv.n);
    pthread_mutex_lock(&s->lock);
    *(k->in ? &s->stats.kv_in : &s->stats.kv_out) -= 1;
    s->n_live--;
    pthread_mutex_unlock(&s->lock);
    free(k);
}

static kv_transfer *next_done(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    kv_transfer *k = s->kv_news ? s->transfers : NULL;
    while (k && !k->done) k = k->next;
    if (!k) s->kv_news = false;
    pthread_mutex_unlock(&s->lock);
    return k;
}

void kv_take_done(scheduler *s) {
    for (kv_transfer *k; (k = next_done(s));) transfer_close(s, k);
}

void kv_transfers_close(scheduler *s) {
    while (s->transfers) transfer_close(s, s->transfers);
}

/* ---- Any thread ---- */

void scheduler_kv_done(scheduler *s, const sched_kv *kv, i64 ready, const err *why) {
    kv_transfer *k = (kv_transfer *)(uintptr_t)kv; /* its first member */
    pthread_mutex_lock(&s->lock);
    if (!k->done) {
        k->arrived = ready;
        if (why) k->why = *why;
    }
    k->done = s->kv_news = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

bool scheduler_kv_wanted(scheduler *s, const sched_kv *kv) {
    const kv_transfer *k = (const kv_transfer *)(const void *)kv;
    pthread_mutex_lock(&s->lock);
    const bool wanted = k->wanted;
    pthread_mutex_unlock(&s->lock);
    return wanted;
}
