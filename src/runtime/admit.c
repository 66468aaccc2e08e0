/* runtime/admit.c: the queue, who gets a place and pages, and who loses them.
 *
 * Admission is optimistic: a request needs pages for the tokens that it has, and leaves free what the running ones are
 * expected to need yet; max_new is no measure of that, because most clients leave it out. When the pages run out all
 * the same, the youngest of the lowest priority is preempted: it goes back to its place in the queue, keeps its
 * tokens, and computes its rows again later. The oldest of the highest priority is never touched, and a request never
 * needs more than the pool, so there is always progress. */
#include "runtime/scheduler_internal.h"
#include "base/log.h"
#include <string.h>

/* A lookup takes about 0.1 us: a step spends at most a millisecond on what the cache has of those who wait. What it
 * did not get to it finds in the next steps, because found pages are remembered (radix_path); until then a prompt
 * counts as less known than it is, which may cost it its turn but never a wrong page. */
enum { LPM_MOST = 128, PASSED_OVER_MOST = 64, LOOKUPS_MOST = 8192 };

static bool before(const task *a, const task *b) {
    return a->r.priority != b->r.priority ? a->r.priority > b->r.priority : a->id < b->id;
}

void queue_insert(scheduler *s, task *t) {
    task *at = s->queue.tail;
    while (at && before(t, at)) at = at->prev;
    t->prev = at;
    t->next = at ? at->next : s->queue.head;
    *(t->prev ? &t->prev->next : &s->queue.head) = t;
    *(t->next ? &t->next->prev : &s->queue.tail) = t;
    s->queue.n++;
    if (t->shared && !t->shared->queued++) s->queue_tokens += t->r.n_prompt;
}

void queue_remove(scheduler *s, task *t) {
    list_remove(&s->queue, t);
    if (t->shared && !--t->shared->queued) s->queue_tokens -= t->r.n_prompt;
}

/* ---- The prefix cache ---- */

i64 reuse_limit(const task *t) {
    i64 n = t->n - 1;
    if (t->r.prompt_logprobs && t->prompt_rows_done < t->r.n_prompt - 1) n = min_i64(n, t->prompt_rows_done);
    return n;
}

i64 reusable_pages(const scheduler *s, const task *t) {
    if (s->o.disable_radix_cache) return 0;
    return min_i64(reuse_limit(t), s->o.cache_prompts_only ? t->r.n_prompt : INT64_MAX) / KV_PAGE;
}

i64 cacheable_rows(const scheduler *s, const task *t) {
    return s->o.disable_radix_cache ? 0 : s->o.cache_prompts_only ? min_i64(t->n_kv, t->r.n_prompt) : t->n_kv;
}

void cache_prefix(scheduler *s, task *t) {
    const radix_tokens tokens = task_radix(t);
    radix_insert(&s->tree, t->r.cache_space, &tokens, t->pages, cacheable_rows(s, t) / KV_PAGE);
}

/* Pages of t's beginning that the cache is known to have, t waiting. */
static i64 known_pages(scheduler *s, task *t) {
    const radix_tokens tokens = task_radix(t);
    return radix_follow(&s->tree, t->r.cache_space, &tokens, reusable_pages(s, t), t->pages, &t->known,
                        &s->match_lookups);
}

/* Whether r, which runs, begins as t does, one page further than the cache knows. */
static bool begins_alike(scheduler *s, const task *r, const task *t, i64 known) {
    /* One node of the tree is one beginning. Where r computed what somebody else had just put there, its page is
     * another. */
    i64 from = known && r->pages[known - 1] == t->pages[known - 1] ? known : 0;
    const radix_tokens of_r = task_radix(r), of_t = task_radix(t);
    i32 room[2][KV_PAGE];
    for (i64 p = from; p <= known; p++) {
        if (memcmp(radix_page(&of_r, p, room[0]), radix_page(&of_t, p, room[1]), sizeof room[0])) return false;
        if (p > from && s->match_lookups-- <= 0) return false;
    }
    return true;
}

/* Whether somebody is just computing more of t's beginning than the cache has. */
static bool worth_waiting(scheduler *s, task *t) {
    i64 limit = reusable_pages(s, t), known = limit ? known_pages(s, t) : 0;
    for (i64 i = 0; known < limit && i < s->n_running; i++) {
        const task *r = s->running[i];
        if (r->n_kv < r->r.n_prompt && r->r.cache_space == t->r.cache_space && (known + 1) * KV_PAGE <= r->r.n_prompt &&
            begins_alike(s, r, t, known))
            return true;
    }
    return false;
}

/* ---- Places and pages ---- */

/* Pages that t will need beyond those it has, as far as can be told. */
static i64 growth(const scheduler *s, const task *t) {
    i64 done = t->n - t->r.n_prompt, left = t->r.max_new - done;
    i64 more = t->r.n_stop ? max_i64((i64)s->mean_output - done, KV_PAGE) : left;
    return max_i64(ceil_div(t->n + min_i64(more, left), KV_PAGE) - max_i64(t->n_pages, ceil_div(t->n, KV_PAGE)), 0);
}

/* Pages to leave free when t is admitted. */
static i64 expected_growth(const scheduler *s, const task *t) {
    i64 sum = growth(s, t);
    for (i64 i = 0; i < s->n_running; i++) sum += growth(s, s->running[i]);
    return (i64)((f64)sum * s->o.conservativeness);
}

void leave_running(scheduler *s, task *t, bool keep) {
    i64 i = 0;
    while (s->running[i] != t) i++;
    memmove(s->running + i, s->running + i + 1, (size_t)(--s->n_running - i) * sizeof *s->running);
    forget_rows(s, t);
    media_leave(s, t);
    kv_leave(s, t);
    if (keep) cache_prefix(s, t);
    /* A batch under way may yet write to the page after t's last row. Nobody else has that page, and who gets it
     * writes later. */
    radix_release(&s->tree, t->pages, t->n_pages);
    t->n_pages = t->n_kv = t->n_flight = t->check_left = 0;
    t->known = (radix_path){0};
    t->running = false;
}

i64 task_share_of(const scheduler *s, const task *t) {
    return t->n_pages ? t->pages[0] % engine_sequence_ranks(s->g) : 0;
}

/* Who loses its place first, of those in a share. A probe takes nobody's, whatever happens to it. Pages that are being
 * handed out stay, and those that are being fetched are not free before that has ended: such tasks come last. */
static task *worst(const scheduler *s, i64 share) {
    task *w = NULL;
    for (i64 i = 0; i < s->n_running && !(w && w->r.probe); i++) {
        task *r = s->running[i];
        if (task_share_of(s, r) != share || r->r.kv_only) continue;
        if (!w || r->r.probe || (is_arriving(w) && !is_arriving(r)) ||
            (is_arriving(w) == is_arriving(r) && before(w, r)))
            w = r;
    }
    return w;
}

static void preempt(scheduler *s, task *t) {
    leave_running(s, t, true);
    t->usage.preemptions++;
    queue_insert(s, t);
    pthread_mutex_lock(&s->lock);
    s->stats.preemptions++;
    pthread_mutex_unlock(&s->lock);
}

/* The first `known` of t's pages are the prefix cache's: holds them, and takes new ones for the rest of its tokens. */
static bool take_pages_behind(scheduler *s, task *t, i64 known, i64 leave) {
    i64 total = ceil_div(t->n, KV_PAGE), n = known;
    radix_hold(&s->tree, t->pages, n);
    t->n_kv = n * KV_PAGE;
    const i32 begin = n ? t->pages[0] : radix_begin(&s->tree);
    bool fits = radix_available(&s->tree, begin) >= total - n + leave / engine_sequence_ranks(s->g);
    for (; fits && n < total; n += fits) {
        t->pages[n] = radix_take(&s->tree, n ? t->pages[n - 1] : begin);
        fits = t->pages[n] >= 0;
    }
    if (!fits) {
        radix_release(&s->tree, t->pages, n);
        n = t->n_kv = t->check_left = 0;
    }
    t->n_pages = n;
    return fits;
}

/* Gives t its pages. Where sequences have a rank each, that of its known beginning may be full while others are not:
 * then it does without. */
static bool take_pages(scheduler *s, task *t, i64 leave) {
    i64 all = INT64_MAX;
    const radix_tokens tokens = task_radix(t);
    const i64 known =
        radix_follow(&s->tree, t->r.cache_space, &tokens, reusable_pages(s, t), t->pages, &t->known, &all);
    if (take_pages_behind(s, t, known, leave)) return true;
    if (!known || engine_sequence_ranks(s->g) < 2) return false;
    t->known = (radix_path){0};
    return take_pages_behind(s, t, 0, leave);
}

static void admit_start(scheduler *s, task *t) {
    queue_remove(s, t);
    t->running = true;
    s->running[s->n_running++] = t;
    if (t->started) return kv_begin(s, t);
    t->started = true;
    t->usage.cached_tokens = t->n_kv;
    t->usage.started_s = now_s();
    pthread_mutex_lock(&s->lock);
    s->stats.prompt_tokens += t->r.n_prompt;
    s->stats.cached_tokens += t->n_kv;
    pthread_mutex_unlock(&s->lock);
    if (task_own_tokens(t)) return kv_begin(s, t);
    err_nomem(&t->error, "token ids", (u64)t->n * 4);
    end_task(s, t, SCHED_ERROR, false);
}

/* Pages that t could have in a share if those of lower priority left it. */
static i64 reach_of(const scheduler *s, const task *t, i64 share) {
    i64 reach = radix_available(&s->tree, (i32)share);
    for (i64 i = 0; i < s->n_running; i++)
        if (s->running[i]->r.priority < t->r.priority && task_share_of(s, s->running[i]) == share && !s->running[i]->kv)
            reach += s->running[i]->n_pages;
    return reach;
}

/* Admits t if there is room, or if there would be without those of lower priority. */
static bool admit_one(scheduler *s, task *t) {
    for (;;) {
        i64 share = 0;
        for (i64 other = 1; other < engine_sequence_ranks(s->g); other++)
            if (reach_of(s, t, other) > reach_of(s, t, share)) share = other;
        const task *w = worst(s, share);
        bool better = w && w->r.priority < t->r.priority && !s->o.no_preempt && !t->r.probe;
        i64 leave = better || !s->n_running ? 0 : expected_growth(s, t);
        if (s->n_running < s->g->max_running && take_pages(s, t, leave)) {
            admit_start(s, t);
            return true;
        }
        if (!better) return false;
        if (reach_of(s, t, share) < ceil_div(t->n, KV_PAGE)) return false;
        preempt(s, worst(s, share));
    }
}

/* The next of the queue that this round did not pass over. */
static task *candidate(scheduler *s) {
    task *first = s->queue.head;
    while (first && first->skipped == s->round) first = first->next;
    if (!first || s->o.policy == SCHED_FCFS || s->queue.n > LPM_MOST) return first;
    task *best = first;
    i64 most = -1;
    for (task *t = first; t && t->r.priority == first->r.priority; t = t->next) {
        if (t->skipped == s->round) continue;
        i64 n = known_pages(s, t);
        if (n > most) most = n, best = t;
    }
    return best;
}

/* What the running prompts make of the next chunks. Prompts of more than half a chunk are long: two of them at a time,
 * or one for each rank that attends for sequences of its own; more would only hold pages. The short ones share the
 * other half. */
typedef struct {
    i64 prompts, n_long, short_rows;
} prompt_load;

/* As t sees it: those of lower priority do not stand in its way. */
static prompt_load load_before(const scheduler *s, const task *t) {
    prompt_load l = {0};
    for (i64 i = 0; i < s->n_running; i++) {
        i64 rows = s->running[i]->r.n_prompt - s->running[i]->n_kv;
        if (rows <= 0 || is_arriving(s->running[i])) continue;
        l.prompts++;
        if (s->running[i]->r.priority < t->r.priority) continue;
        if (rows > s->g->chunk / 2)
            l.n_long++;
        else
            l.short_rows += rows;
    }
    return l;
}

static bool is_long(scheduler *s, task *t) {
    i64 half = s->g->chunk / 2;
    return t->r.n_prompt > half && t->r.n_prompt - KV_PAGE * known_pages(s, t) > half;
}

/* Short prompts overtake long ones that wait for their turn, and everybody overtakes who waits for a beginning that is
 * being computed; nobody overtakes the first for whom there is no place. */
void admit(scheduler *s) {
    i64 passed = 0;
    s->round++;
    s->match_lookups = LOOKUPS_MOST;
    for (task *t; passed < PASSED_OVER_MOST && (t = candidate(s));) {
        prompt_load l = load_before(s, t);
        const i64 most_long = max_i64(2, engine_sequence_ranks(s->g));
        i64 taken = l.short_rows + (l.n_long ? ceil_div(s->g->chunk, 2) : 0);
        if (taken >= s->g->chunk || l.prompts >= s->g->lim.prefill_spans) return;
        if (worth_waiting(s, t) || (l.n_long >= most_long && is_long(s, t))) {
            t->skipped = s->round;
            passed++;
        } else if (!admit_one(s, t)) {
            return;
        }
    }
}

void reserve_pages(scheduler *s) {
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        if (t->n <= t->n_pages * KV_PAGE) continue;
        i32 page = radix_take(&s->tree, t->n_pages ? t->pages[t->n_pages - 1] : -1);
        if (page >= 0) {
            t->pages[t->n_pages++] = page;
            i--; /* it may need more: a filter forces several tokens at once */
            continue;
        }
        if (!kv_wait_for_saved(s)) preempt(s, worst(s, task_share_of(s, t)));
        i = -1; /* places moved: look again from the first */
    }
}

status check_pages(scheduler *s, err *e) {
    memset(s->held, 0, (size_t)s->g->lim.pool_pages * sizeof *s->held);
    for (i64 i = 0; i < s->n_running; i++) {
        const task *t = s->running[i];
        for (i64 p = 0; p < t->n_pages; p++) s->held[t->pages[p]]++;
        if (!t->running || t->n_kv >= t->n || t->n_kv > t->n_pages * KV_PAGE)
            return err_set(e, ST_LIMIT, "request %llu: %lld rows of %lld tokens in %lld pages",
                           (unsigned long long)t->id, (long long)t->n_kv, (long long)t->n, (long long)t->n_pages);
    }
    for (const kv_transfer *k = s->transfers; k; k = k->next)
        for (i64 p = k->held_from; p < k->kv.n; p++) s->held[k->kv.pages[p]]++;
    i64 queued = 0, tokens = 0;
    const shared_prompt *last = NULL; /* the answers to one prompt stand together */
    for (const task *t = s->queue.head; t; t = t->next, queued++) {
        if (t->shared && t->shared != last) tokens += t->r.n_prompt;
        if (t->shared) last = t->shared;
        if (t->running || t->n_pages || (t->next && before(t->next, t)))
            return err_set(e, ST_LIMIT, "request %llu waits in the wrong state", (unsigned long long)t->id);
    }
    if (queued != s->queue.n || tokens != s->queue_tokens)
        return err_set(e, ST_LIMIT, "%lld requests wait, %lld counted", (long long)queued, (long long)s->queue.n);
    const status st = s->host ? host_cache_check(s->host, e) : ST_OK;
    return st == ST_OK ? radix_check(&s->tree, s->held, e) : st;
}

bool takes_pages(scheduler *s, task *t, i64 n) {
    while (n > t->n_pages * KV_PAGE) {
        i32 page = radix_take(&s->tree, t->n_pages ? t->pages[t->n_pages - 1] : -1);
        if (page < 0) return false;
        t->pages[t->n_pages++] = page;
    }
    return true;
}
