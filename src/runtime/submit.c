/* runtime/submit.c: the scheduler's side that other threads see. */
#include "base/log.h"
#include "runtime/scheduler_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STOP_MAX = 1024, BIAS_MAX = 4096, SHARE = 4 };

void list_add(task_list *l, task *t) {
    t->prev = l->tail;
    t->next = NULL;
    *(l->tail ? &l->tail->next : &l->head) = t;
    l->tail = t;
    l->n++;
}

void list_remove(task_list *l, task *t) {
    *(t->prev ? &t->prev->next : &l->head) = t->next;
    *(t->next ? &t->next->prev : &l->tail) = t->prev;
    t->prev = t->next = NULL;
    l->n--;
}

void hash_add(scheduler *s, task *t) {
    task **b = &s->hash[t->id % TASK_BUCKETS];
    t->hash_next = *b;
    *b = t;
}

void hash_remove(scheduler *s, task *t) {
    task **b = &s->hash[t->id % TASK_BUCKETS];
    while (*b != t) b = &(*b)->hash_next;
    *b = t->hash_next;
}

/* One task fewer refers to p. */
static void leave_prompt(shared_prompt *p) {
    if (!p || --p->users > 0) return;
    free(p->ids);
    free(p);
}

void task_free(task *t) {
    if (!t) return;
    if (t->id && t->r.filter) t->filter.close(t->filter.ud);
    if (!t->shared) free(t->tokens);
    leave_prompt(t->shared);
    for (i64 k = 0; t->media && k < t->r.n_media; k++) media_item_release(t->media[k].item);
    free(t->media);
    free(t->spans);
    free(t->placed);
    ngram_free(&t->ngram);
    free(t->pages);
    free(t->lists);
    free(t);
}

bool task_own_tokens(task *t) {
    shared_prompt *p = t->shared;
    if (!p) return true;
    i64 cap = p->users > 1 ? t->n + min_i64(t->r.max_new, 256) : t->n;
    i32 *own = p->users > 1 ? malloc((size_t)cap * sizeof *own) : p->ids;
    if (!own) return false;
    if (p->users > 1)
        memcpy(own, p->ids, (size_t)t->n * sizeof *own);
    else
        p->ids = NULL; /* the last one takes them */
    t->tokens = own;
    t->cap = cap;
    t->shared = NULL;
    leave_prompt(p);
    return true;
}

static bool ids_valid(const scheduler *s, const i32 *ids, i64 n, const char *what, err *e) {
    const i64 vocab = s->g->config.vocab;
    for (i64 i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab) {
            err_set(e, ST_INPUT, "%s: token id %d is outside the vocabulary of %lld", what, ids[i], (long long)vocab);
            return false;
        }
    return true;
}

static sched_verdict submit_check_length(const scheduler *s, const sched_request *r, err *e) {
    if (r->n_prompt < s->limit && r->max_new <= s->limit - r->n_prompt) return SCHED_ACCEPTED;
    err_set(e, ST_LIMIT, "the maximum context length is %lld tokens; the prompt has %lld and %lld more were asked for",
            (long long)s->limit, (long long)r->n_prompt, (long long)max_i64(r->max_new, 1));
    return SCHED_TOO_LONG;
}

/* Items stand in the prompt, one behind the other, and the tower takes each. */
static sched_verdict check_media(const scheduler *s, const sched_request *r, err *e) {
    i64 end = 0;
    if (r->n_media && !s->g->has_vision)
        return err_set(e, ST_INPUT, "this model reads no pictures: it runs without a vision tower"), SCHED_BAD_REQUEST;
    for (i64 k = 0; k < r->n_media; k++) {
        const vision_input *in = media_item_input(r->media[k].item);
        const i64 patches = vision_patches(in);
        if (patches > s->g->vision_lim.patches || in->t > s->g->vision_config.frames)
            return err_set(e, ST_INPUT, "a picture of %lld patches in %d frames; the vision tower takes %lld in %lld",
                           (long long)patches, in->t, (long long)s->g->vision_lim.patches,
                           (long long)s->g->vision_config.frames),
                   SCHED_BAD_REQUEST;
        if (r->media[k].first < end || r->media[k].first + vision_tokens(in) > r->n_prompt)
            return err_set(e, ST_INPUT, "picture %lld does not stand in the prompt", (long long)k), SCHED_BAD_REQUEST;
        end = r->media[k].first + vision_tokens(in);
    }
    return SCHED_ACCEPTED;
}

/* Several answers to one prompt; with one priority they stand together in the queue. */
static bool same_prompt(const sched_request *a, const sched_request *b) {
    return a->prompt == b->prompt && a->n_prompt == b->n_prompt && a->priority == b->priority;
}

/* `before`: the request in front of it, whose prompt may be the same; NULL: none. */
static sched_verdict check_request(const scheduler *s, const sched_request *r, const sched_request *before, err *e) {
    const struct {
        const char *name;
        i64 v, lo, hi;
    } all[] = {{"max_tokens", r->max_new, 0, INT64_MAX},
               {"min_tokens", r->min_new, 0, r->max_new ? r->max_new : INT64_MAX},
               {"stop_token_ids (how many)", r->n_stop, 0, STOP_MAX},
               {"logit_bias (how many)", r->n_bias, 0, BIAS_MAX},
               {"top_logprobs", r->top_logprobs, 0, min_i64(SCHED_TOP_MAX, s->g->config.vocab)},
               {"prompt top_logprobs", r->prompt_top_logprobs, 0, min_i64(SCHED_TOP_MAX, s->g->config.vocab)}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i].v < all[i].lo || all[i].v > all[i].hi)
            return err_set(e, ST_INPUT, "%s is %lld, outside %lld..%lld", all[i].name, (long long)all[i].v,
                           (long long)all[i].lo, (long long)all[i].hi),
                   SCHED_BAD_REQUEST;
    if (r->n_prompt < 1) return err_set(e, ST_INPUT, "the prompt is empty"), SCHED_BAD_REQUEST;
    if (r->kv_only && (r->kv_from < 0 || r->kv_from * KV_PAGE >= r->n_prompt - 1 || r->n_media))
        return err_set(e, ST_INPUT,
                       "KV pages from number %lld on (of %d tokens) of a prompt of %lld tokens and %lld pictures",
                       (long long)r->kv_from, KV_PAGE, (long long)r->n_prompt, (long long)r->n_media),
               SCHED_BAD_REQUEST;
    if (sampling_check(&r->sampling, e) != ST_OK) return SCHED_BAD_REQUEST;
    if (!(r->deadline_s >= 0)) return err_set(e, ST_INPUT, "the deadline is negative"), SCHED_BAD_REQUEST;
    for (i64 i = 0; i < r->n_bias; i++)
        if (!(fabsf(r->bias[i]) <= 1000))
            return err_set(e, ST_INPUT, "logit_bias of token %d is not a number in -1000..1000", r->bias_ids[i]),
                   SCHED_BAD_REQUEST;
    sched_verdict v = submit_check_length(s, r, e);
    if (v == SCHED_ACCEPTED) v = check_media(s, r, e);
    if (v != SCHED_ACCEPTED) return v;
    bool ids = ((before && same_prompt(r, before)) || ids_valid(s, r->prompt, r->n_prompt, "prompt", e)) &&
               ids_valid(s, r->stop_ids, r->n_stop, "stop_token_ids", e) &&
               ids_valid(s, r->bias_ids, r->n_bias, "logit_bias", e);
    return ids ? SCHED_ACCEPTED : SCHED_BAD_REQUEST;
}

/* What a submission wants of the queue. */
typedef struct {
    i64 n, tokens; /* tokens: each prompt once, however many answers to it are asked for */
    i64 priority;  /* the lowest of its requests */
    bool probe;
} demand;

static i64 priority_of(const scheduler *s, const sched_request *r) {
    return r->probe ? INT64_MAX : s->o.ignore_priority ? 0 : r->priority;
}

static demand demand_of(const scheduler *s, const sched_request *r, i64 n) {
    demand d = {.n = n, .priority = INT64_MAX, .probe = true};
    for (i64 i = 0; i < n; i++) {
        if (!i || !same_prompt(&r[i], &r[i - 1])) d.tokens += r[i].n_prompt;
        d.priority = min_i64(d.priority, priority_of(s, &r[i]));
        d.probe &= r[i].probe;
    }
    return d;
}

/* Nobody takes more than a part of the queue at once, so that there is room for others. */
static sched_verdict check_share(const scheduler *s, const demand *d, err *e) {
    i64 places = s->g->max_running + ceil_div(s->o.max_queued, SHARE);
    i64 tokens = max_i64(s->o.max_queued_tokens / SHARE, s->limit); /* one prompt may fill the context */
    if (d->n <= places && d->tokens <= tokens) return SCHED_ACCEPTED;
    err_set(e, ST_LIMIT,
            "%lld answers to prompts of %lld tokens are more than one request's share of the queue, %lld answers and "
            "%lld tokens: send several requests",
            (long long)d->n, (long long)d->tokens, (long long)places, (long long)tokens);
    return SCHED_BAD_REQUEST;
}

static sched_verdict check_all(const scheduler *s, const sched_request *r, i64 n, err *e) {
    if (n < 1) return err_set(e, ST_INPUT, "no request"), SCHED_BAD_REQUEST;
    for (i64 i = 0; i < n; i++) {
        sched_verdict v = check_request(s, &r[i], i ? &r[i - 1] : NULL, e);
        if (v != SCHED_ACCEPTED) return v;
    }
    const demand d = demand_of(s, r, n);
    return check_share(s, &d, e);
}

/* Whether the queue takes it; with the lock held. One that is better than somebody in the queue is let in: the
 * engine thread then shows the worst out. Until it does, better ones may come up to the size of the queue once more. */
static sched_verdict queue_takes(const scheduler *s, const demand *d, i64 *retry_after_s, err *e) {
    if (s->draining || s->closing || s->broken)
        return err_set(e, ST_LIMIT, "%s", s->broken ? s->fault.text : "the server is shutting down"), SCHED_CLOSING;
    const i64 most = s->o.max_queued + s->places, most_tokens = s->o.max_queued_tokens;
    i64 waiting = s->stats.queued + s->inbox.n;
    bool fits = waiting + d->n <= most && s->stats.queued_tokens + s->inbox_tokens + d->tokens <= most_tokens;
    bool alone = !waiting && d->n <= most; /* one prompt may be as long as the context */
    bool better = s->stats.queued && d->priority > s->lowest_priority && s->inbox.n + d->n <= most &&
                  s->inbox_tokens + d->tokens <= most_tokens;
    if (fits || alone || better || d->probe) return SCHED_ACCEPTED;
    f64 wait = s->end_rate > 0 ? (f64)waiting / s->end_rate / 8 : 1;
    if (retry_after_s) *retry_after_s = wait < 1 ? 1 : wait > 60 ? 60 : (i64)ceil(wait);
    err_set(e, ST_LIMIT, "the request queue is full (%lld waiting)", (long long)waiting);
    return SCHED_QUEUE_FULL;
}

static shared_prompt *copy_prompt(const sched_request *r) {
    shared_prompt *p = calloc(1, sizeof *p);
    i32 *ids = malloc((size_t)r->n_prompt * sizeof *ids);
    if (!p || !ids) {
        free(p);
        free(ids);
        return NULL;
    }
    memcpy(ids, r->prompt, (size_t)r->n_prompt * sizeof *ids);
    p->ids = ids;
    return p;
}

static bool copy_lists(task *t, const sched_request *r) {
    i32 *lists = t->lists = malloc((size_t)(r->n_stop + 2 * r->n_bias + 1) * 4);
    if (!lists) return false;
    if (r->n_stop) memcpy(lists, r->stop_ids, (size_t)r->n_stop * 4);
    if (r->n_bias) memcpy(lists + r->n_stop, r->bias_ids, (size_t)r->n_bias * 4);
    if (r->n_bias) memcpy(lists + r->n_stop + r->n_bias, r->bias, (size_t)r->n_bias * 4);
    t->r.stop_ids = lists;
    t->r.bias_ids = lists + r->n_stop;
    t->r.bias = (const f32 *)(const void *)(lists + r->n_stop + r->n_bias);
    return true;
}

static bool copy_media(task *t, const sched_request *r) {
    const size_t n = (size_t)r->n_media;
    t->r.media = NULL;
    t->media_ready = n ? 0 : r->n_prompt - r->kv_only;
    if (!n) return true;
    t->media = calloc(n, sizeof *t->media);
    t->spans = calloc(n, sizeof *t->spans);
    t->placed = calloc(n, sizeof *t->placed);
    if (!t->media || !t->spans || !t->placed) return false;
    for (size_t k = 0; k < n; k++) {
        media_item *item = t->media[k].item = media_item_hold(r->media[k].item);
        t->spans[k] = (radix_span){r->media[k].first, media_item_tokens(item), media_item_key(item)};
    }
    return true;
}

/* `prompt`: a copy of the prompt that there is already; NULL: none. */
static task *copy_request(const scheduler *s, const sched_request *r, shared_prompt *prompt) {
    task *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->r = *r;
    if (!r->max_new) t->r.max_new = s->limit - r->n_prompt;
    t->r.priority = priority_of(s, r);
    t->r.logprobs |= r->top_logprobs > 0;
    t->shared = prompt ? prompt : copy_prompt(r);
    t->pages = malloc((size_t)ceil_div(r->n_prompt + t->r.max_new, KV_PAGE) * sizeof *t->pages);
    if (t->shared) t->shared->users++;
    if (!copy_media(t, r) || !t->shared || !t->pages || !copy_lists(t, r)) {
        task_free(t);
        return NULL;
    }
    t->tokens = t->shared->ids;
    t->n = t->cap = r->n_prompt;
    t->r.prompt = NULL; /* the caller's */
    t->draft_share = DRAFT_HOPE;
    if (r->filter) {
        t->filter = *r->filter;
        t->r.filter = &t->filter;
        t->filter_state = r->filter->start;
    }
    t->usage.prompt_tokens = r->n_prompt;
    t->usage.submitted_s = now_s();
    if (r->deadline_s > 0) t->deadline = t->usage.submitted_s + r->deadline_s;
    return t;
}

static void free_list(task_list *l) {
    for (task *t = l->head, *next; t; t = next) next = t->next, task_free(t);
    *l = (task_list){0};
}

static bool copy_all(const scheduler *s, const sched_request *r, i64 n, task_list *l, err *e) {
    for (i64 i = 0; i < n; i++) {
        task *t = copy_request(s, &r[i], i && same_prompt(&r[i], &r[i - 1]) ? l->tail->shared : NULL);
        if (!t) {
            free_list(l);
            err_nomem(e, "a request", (u64)r[i].n_prompt * 4);
            return false;
        }
        list_add(l, t);
    }
    return true;
}

/* With the lock held. */
static void hand_over(scheduler *s, task_list *l, i64 tokens, u64 *ids) {
    s->stats.accepted += l->n;
    s->inbox_tokens += tokens;
    if (!s->n_live) s->step_ended = now_s();
    s->n_live += l->n;
    for (task *t = l->head, *next; t; t = next) {
        next = t->next;
        t->id = ++s->next_id;
        if (ids) *ids++ = t->id;
        hash_add(s, t);
        list_add(&s->inbox, t);
    }
    pthread_cond_signal(&s->wake);
}

sched_verdict scheduler_submit(scheduler *s, const sched_request *r, i64 n, u64 *ids, i64 *retry_after_s, err *e) {
    if (retry_after_s) *retry_after_s = 1;
    task_list l = {0};
    demand d = {0};
    sched_verdict v = check_all(s, r, n, e);
    if (v == SCHED_ACCEPTED) d = demand_of(s, r, n);
    /* Asked before anything is copied, and again with the copies: others came meanwhile. */
    for (int copied = 0; v == SCHED_ACCEPTED && copied < 2; copied++) {
        if (copied && !copy_all(s, r, n, &l, e)) v = SCHED_NO_MEMORY;
        pthread_mutex_lock(&s->lock);
        if (v == SCHED_ACCEPTED) v = queue_takes(s, &d, retry_after_s, e);
        if (v == SCHED_ACCEPTED && copied) hand_over(s, &l, d.tokens, ids);
        pthread_mutex_unlock(&s->lock);
    }
    if (v == SCHED_ACCEPTED) return v;
    pthread_mutex_lock(&s->lock);
    s->stats.refused += max_i64(n, 0);
    pthread_mutex_unlock(&s->lock);
    free_list(&l);
    return v;
}

void scheduler_abort(scheduler *s, u64 id) {
    pthread_mutex_lock(&s->lock);
    task *t = s->hash[id % TASK_BUCKETS];
    while (t && t->id != id) t = t->hash_next;
    if (t) t->abort = s->any_abort = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_abort_all(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    for (int b = 0; b < TASK_BUCKETS; b++)
        for (task *t = s->hash[b]; t; t = t->hash_next) t->abort = s->any_abort = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_stats(scheduler *s, sched_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->queued += s->inbox.n;
    out->queued_tokens += s->inbox_tokens;
    out->idle = s->n_live == 0;
    out->draining = s->draining || s->closing;
    out->broken = s->broken;
    out->fault = s->fault;
    out->since_step_s = out->idle ? 0 : now_s() - s->step_ended;
    if (out->idle) out->generated_per_s = 0;
    pthread_mutex_unlock(&s->lock);
    out->processes = engine_processes(s->g);
    out->expert_groups = engine_expert_groups(s->g);
    out->hosts = engine_hosts_counted(s->g);
}
