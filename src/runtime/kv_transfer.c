/* runtime/kv_transfer.c: prompts whose KV pages come from another process, or go to one; pages that come from the
 * host's memory, or go there (host_cache.h).
 *
 * A transfer holds its pages itself, so that whatever becomes of the request, nobody else writes to them or gets them
 * while a thread that this one does not wait for reads or fills them. */
#include "runtime/engine_kv.h"
#include "base/log.h"
#include "runtime/scheduler_internal.h"
#include <stdlib.h>
#include <string.h>

static bool by_host(const kv_transfer *k) { return k->copy; }

/* For the pages from `from` on of t's first `rows` tokens, which t has. copy: by the host's memory, else NULL. */
static kv_transfer *transfer_open(scheduler *s, task *t, i64 from, i64 rows, bool in, host_copy *copy) {
    const i64 n = ceil_div(rows, KV_PAGE);
    const size_t n_ids = copy ? 0 : (size_t)rows + 1;
    kv_transfer *k = calloc(1, sizeof *k + (n_ids + (size_t)n) * sizeof(i32));
    if (!k) return NULL;
    i32 *ids = (i32 *)(k + 1), *pages = ids + n_ids;
    memcpy(ids, t->tokens, n_ids * sizeof *ids);
    memcpy(pages, t->pages, (size_t)n * sizeof *pages);
    k->s = s;
    k->kv = (sched_kv){.user = t->r.user,
                       .ids = ids,
                       .rows = rows,
                       .pages = pages,
                       .from = from,
                       .n = n,
                       .cache_space = t->r.cache_space,
                       .priority = t->r.priority};
    k->in = in;
    k->wanted = true;
    k->copy = copy;
    k->next = s->transfers;
    s->transfers = k;
    k->held_from = copy && !in ? from : 0;
    radix_hold(&s->tree, pages + k->held_from, n - k->held_from);
    pthread_mutex_lock(&s->lock);
    if (!copy) *(in ? &s->stats.kv_in : &s->stats.kv_out) += 1;
    s->n_live++; /* the engine thread stays there for its end */
    pthread_mutex_unlock(&s->lock);
    if (copy && !in) return k; /* t does not wait for it */
    k->t = t;
    t->kv = k;
    *(in ? &s->n_arriving : &s->n_leaving) += 1;
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

/* What the host's memory does not have of t's prompt. */
static void begin_rest(scheduler *s, task *t) {
    const i64 rows = min_i64(reuse_limit(t), t->r.n_prompt);
    err e = {0};
    if (!is_fetched(s, t, rows)) {
        tell_started(s, t);
        if (!t->r.kv_only) return;
        if (transfer_open(s, t, t->r.kv_from, rows, false, NULL)) return hand_out(s, t);
        return end_without_memory(s, t);
    }
    if (engine_kv_settle(s->g, &e) != ST_OK) return break_down(s, &e);
    const kv_transfer *k = transfer_open(s, t, t->n_kv / KV_PAGE, rows, true, NULL);
    if (k)
        s->o.fetch(s->o.ud, &k->kv);
    else
        end_without_memory(s, t);
}

/* ---- The host's memory ---- */

/* By a thread of the host cache's. A page that cannot be copied was not there: its tokens are computed. */
static void copy_done(void *ud, const err *why) {
    kv_transfer *k = ud;
    if (why) log_warn("KV pages in the host's memory: %s", why->text);
    scheduler_kv_done(k->s, &k->kv, why ? k->kv.from : k->kv.n, NULL);
}

/* Pages of t that are in the host's memory come from there, if it is worth it. */
static bool begin_loading(scheduler *s, task *t, err *e) {
    const radix_tokens tokens = task_radix(t);
    host_copy *h = host_cache_load(s->host, t->r.cache_space, &tokens, t->n_kv / KV_PAGE, reusable_pages(s, t));
    if (!h) return false;
    const host_range at = host_copy_range(h);
    kv_transfer *k = NULL;
    if (engine_kv_settle(s->g, e) == ST_OK) k = transfer_open(s, t, at.from, at.n * KV_PAGE, true, h);
    if (k)
        host_copy_begin(h, k->kv.pages, copy_done, k);
    else
        host_copy_end(h);
    return k;
}

void kv_begin(scheduler *s, task *t) {
    err e = {0};
    if (s->host && !t->r.probe && begin_loading(s, t, &e)) return;
    if (e.code != ST_OK) return break_down(s, &e);
    begin_rest(s, t);
}

/* A saving whose pages all have their rows: the draft's of the last step are written by a pass behind it, which has
 * ended when the results of another step are there, or nothing runs any more. */
static bool may_save(const scheduler *s, const kv_transfer *k, bool now) {
    return !s->g->has_draft || s->stats.steps > k->step + s->depth || now;
}

/* Pages that wait to be saved cannot be evicted: of several answers a quarter of the pool at most, of one half of it.
 * What is not saved is once it has been used again. */
static i64 may_be_saved(const scheduler *s) {
    const i64 pool = s->g->lim.pool_pages;
    return s->n_saving ? max_i64(pool / 4 - s->n_saving, 0) : pool / 2;
}

void kv_save(scheduler *s, task *t) {
    const radix_tokens tokens = task_radix(t);
    if (!s->host) return;
    host_copy *h = host_cache_save(s->host, t->r.cache_space, &tokens, cacheable_rows(s, t) / KV_PAGE, may_be_saved(s));
    for (host_copy *behind; h; h = behind) {
        const host_range at = host_copy_range(h);
        behind = host_copy_behind(h);
        kv_transfer *k = transfer_open(s, t, at.from, at.n * KV_PAGE, false, h);
        if (!k) {
            host_copy_end(h);
            continue;
        }
        k->step = s->stats.steps;
        s->n_saving += at.n - at.from;
        s->n_saves++;
    }
}

/* What ends the scheduler ends these, too. */
static bool may_begin(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    const bool yes = !s->closing && !s->broken;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

void kv_begin_saving(scheduler *s, bool now) {
    err e = {0};
    bool settled = !s->g->has_draft || !now;
    for (kv_transfer *k = s->n_saving ? s->transfers : NULL; k; k = k->next) {
        if (!by_host(k) || k->in || k->begun || !may_save(s, k, now)) continue;
        if (!settled && engine_kv_settle(s->g, &e) != ST_OK) break_down(s, &e);
        settled = k->begun = true;
        if (may_begin(s))
            host_copy_begin(k->copy, k->kv.pages, copy_done, k);
        else
            scheduler_kv_done(s, &k->kv, k->kv.from, NULL);
    }
}

bool kv_wait_for_saved(scheduler *s) {
    if (!s->n_saving) return false;
    kv_begin_saving(s, true);
    host_cache_hurry(s->host, true);
    pthread_mutex_lock(&s->lock);
    while (!s->kv_news) pthread_cond_wait(&s->wake, &s->lock);
    pthread_mutex_unlock(&s->lock);
    host_cache_hurry(s->host, false);
    kv_take_done(s);
    return true;
}

/* What came from the host's memory for a task that waits for it counts as found in the prefix cache, once. */
static void count_loaded(scheduler *s, task *t) {
    const i64 more = t->told ? 0 : min_i64(t->n_kv, t->r.n_prompt) - t->usage.cached_tokens;
    if (more <= 0) return;
    t->usage.cached_tokens += more;
    pthread_mutex_lock(&s->lock);
    s->stats.cached_tokens += more;
    pthread_mutex_unlock(&s->lock);
}

/* ---- Both ---- */

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
    if (k->in && under_way && s->o.drop && !by_host(k)) s->o.drop(s->o.ud, &k->kv);
}

/* What came for a task that waits for it. */
static void arrive(scheduler *s, kv_transfer *k) {
    task *t = k->t;
    const i64 arrived = min_i64(max_i64(k->arrived, k->kv.from), k->kv.n);
    const i64 rows = arrived > k->kv.from ? rows_of_pages(&k->kv, arrived) - k->kv.from * KV_PAGE : 0;
    kv_leave(s, t);
    t->n_kv = max_i64(t->n_kv, rows_of_pages(&k->kv, arrived));
    cache_prefix(s, t);
    if (by_host(k)) return count_loaded(s, t), begin_rest(s, t);
    pthread_mutex_lock(&s->lock);
    s->stats.kv_tokens_in += rows;
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
    if (by_host(k)) host_copy_end(k->copy);
    if (by_host(k) && !k->in) s->n_saving -= k->kv.n - k->kv.from, s->n_saves--;
    if (k->t && k->in)
        arrive(s, k);
    else if (k->in && !by_host(k))
        keep_arrived(s, k);
    else if (k->t) /* whoever takes its pages has gone */
        end_task(s, k->t, SCHED_ABORT, true);
    radix_release(&s->tree, k->kv.pages + k->held_from, k->kv.n - k->held_from);
    pthread_mutex_lock(&s->lock);
    if (!by_host(k)) *(k->in ? &s->stats.kv_in : &s->stats.kv_out) -= 1;
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
