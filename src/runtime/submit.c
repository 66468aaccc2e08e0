/* runtime/submit.c: the scheduler's side that other threads see. */
#include "base/log.h"
#include "runtime/task.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STOP_MAX = 1024, BIAS_MAX = 4096 };

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

void task_free(task *t) {
    if (!t) return;
    free(t->tokens);
    free(t->pages);
    free(t->lists);
    free(t);
}

static bool ids_valid(const scheduler *s, const i32 *ids, i64 n, const char *what, err *e) {
    const i64 vocab = s->g->config.vocab;
    for (i64 i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab) {
            err_set(e, ST_INPUT, "%s: token id %d is outside the vocabulary of %lld", what, ids[i],
                    (long long)vocab);
            return false;
        }
    return true;
}

static sched_verdict check_length(const scheduler *s, const sched_request *r, err *e) {
    if (r->n_prompt < s->limit && r->max_new <= s->limit - r->n_prompt) return SCHED_ACCEPTED;
    err_set(e, ST_LIMIT,
            "the maximum context length is %lld tokens; the prompt has %lld and %lld more were asked for",
            (long long)s->limit, (long long)r->n_prompt, (long long)max_i64(r->max_new, 1));
    return SCHED_TOO_LONG;
}

static sched_verdict check_request(const scheduler *s, const sched_request *r, err *e) {
    const struct {
        const char *name;
        i64 v, lo, hi;
    } all[] = {
        {"max_tokens", r->max_new, 0, INT64_MAX},
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
    if (sampling_check(&r->sampling, e) != ST_OK) return SCHED_BAD_REQUEST;
    if (!(r->deadline_s >= 0)) return err_set(e, ST_INPUT, "the deadline is negative"), SCHED_BAD_REQUEST;
    for (i64 i = 0; i < r->n_bias; i++)
        if (!(fabsf(r->bias[i]) <= 1000))
            return err_set(e, ST_INPUT, "logit_bias of token %d is not a number in -1000..1000",
                           r->bias_ids[i]),
                   SCHED_BAD_REQUEST;
    sched_verdict v = check_length(s, r, e);
    if (v != SCHED_ACCEPTED) return v;
    bool ids = ids_valid(s, r->prompt, r->n_prompt, "prompt", e) &&
               ids_valid(s, r->stop_ids, r->n_stop, "stop_token_ids", e) &&
               ids_valid(s, r->bias_ids, r->n_bias, "logit_bias", e);
    return ids ? SCHED_ACCEPTED : SCHED_BAD_REQUEST;
}

static task *copy_request(const scheduler *s, const sched_request *r) {
    task *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->r = *r;
    if (!r->max_new) t->r.max_new = s->limit - r->n_prompt;
    if (s->o.ignore_priority) t->r.priority = 0;
    t->r.logprobs |= r->top_logprobs > 0;
    t->n = r->n_prompt;
    t->cap = r->n_prompt + min_i64(t->r.max_new, 256);
    t->tokens = malloc((size_t)t->cap * sizeof *t->tokens);
    t->pages = malloc((size_t)ceil_div(r->n_prompt + t->r.max_new, KV_PAGE) * sizeof *t->pages);
    i32 *lists = t->lists = malloc((size_t)(r->n_stop + 2 * r->n_bias + 1) * 4);
    if (!t->tokens || !t->pages || !lists) {
        task_free(t);
        return NULL;
    }
    memcpy(t->tokens, r->prompt, (size_t)r->n_prompt * 4);
    if (r->n_stop) memcpy(lists, r->stop_ids, (size_t)r->n_stop * 4);
    if (r->n_bias) memcpy(lists + r->n_stop, r->bias_ids, (size_t)r->n_bias * 4);
    if (r->n_bias) memcpy(lists + r->n_stop + r->n_bias, r->bias, (size_t)r->n_bias * 4);
    t->r.prompt = t->tokens;
    t->r.stop_ids = lists;
    t->r.bias_ids = lists + r->n_stop;
    t->r.bias = (const f32 *)(const void *)(lists + r->n_stop + r->n_bias);
    t->usage.prompt_tokens = r->n_prompt;
    t->usage.submitted_s = now_s();
    if (r->deadline_s > 0) t->deadline = t->usage.submitted_s + r->deadline_s;
    return t;
}

/* Whether the queue takes n more; with the lock held. One that is better than somebody in the queue is let in: the
 * engine thread then shows the worst out. */
static sched_verdict queue_takes(scheduler *s, const task_list *l, i64 tokens, i64 *retry_after_s, err *e) {
    if (s->draining || s->closing || s->broken)
        return err_set(e, ST_LIMIT, "%s", s->broken ? s->fault.text : "the server is shutting down"),
               SCHED_CLOSING;
    i64 waiting = s->stats.queued + s->inbox.n, most = s->o.max_queued + s->places;
    bool full = waiting + l->n > most;
    if (full && s->stats.queued && l->n <= most) full = l->tail->r.priority <= s->lowest_priority;
    if (!full && s->stats.queued_tokens + s->inbox_tokens + tokens <= s->o.max_queued_tokens)
        return SCHED_ACCEPTED;
    if (!full && !waiting) return SCHED_ACCEPTED; /* one alone may be as long as the context */
    f64 wait = s->end_rate > 0 ? (f64)waiting / s->end_rate / 8 : 1;
    if (retry_after_s) *retry_after_s = wait < 1 ? 1 : wait > 60 ? 60 : (i64)ceil(wait);
    err_set(e, ST_LIMIT, "the request queue is full (%lld waiting)", (long long)waiting);
    return SCHED_QUEUE_FULL;
}

static void free_list(task_list *l) {
    for (task *t = l->head, *next; t; t = next) next = t->next, task_free(t);
}

static sched_verdict hand_over(scheduler *s, task_list *l, i64 tokens, u64 *ids, i64 *retry_after_s, err *e) {
    pthread_mutex_lock(&s->lock);
    sched_verdict v = queue_takes(s, l, tokens, retry_after_s, e);
    if (v == SCHED_ACCEPTED) {
        for (task *t = l->head, *next; t; t = next) {
            next = t->next;
            t->id = ++s->next_id;
            if (ids) *ids++ = t->id;
            hash_add(s, t);
            list_add(&s->inbox, t);
        }
        s->inbox_tokens += tokens;
        if (!s->n_live) s->step_ended = now_s();
        s->n_live += l->n;
        s->stats.accepted += l->n;
        pthread_cond_signal(&s->wake);
    } else {
        s->stats.refused += l->n;
    }
    pthread_mutex_unlock(&s->lock);
    return v;
}

sched_verdict scheduler_submit(scheduler *s, const sched_request *r, i64 n, u64 *ids, i64 *retry_after_s,
                               err *e) {
    task_list l = {0};
    i64 tokens = 0;
    sched_verdict v = SCHED_ACCEPTED;
    if (retry_after_s) *retry_after_s = 1;
    if (n < 1) v = (err_set(e, ST_INPUT, "no request"), SCHED_BAD_REQUEST);
    for (i64 i = 0; v == SCHED_ACCEPTED && i < n; i++) {
        v = check_request(s, &r[i], e);
        task *t = v == SCHED_ACCEPTED ? copy_request(s, &r[i]) : NULL;
        if (t) {
            list_add(&l, t);
            tokens += t->n;
        } else if (v == SCHED_ACCEPTED) {
            err_nomem(e, "a request", (u64)r[i].n_prompt * 4);
            v = SCHED_NO_MEMORY;
        }
    }
    if (v == SCHED_ACCEPTED) {
        v = hand_over(s, &l, tokens, ids, retry_after_s, e);
        if (v == SCHED_ACCEPTED) return v;
    } else {
        pthread_mutex_lock(&s->lock);
        s->stats.refused += max_i64(n, 0);
        pthread_mutex_unlock(&s->lock);
    }
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
}
