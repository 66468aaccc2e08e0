/* runtime/batch.c: the rows of a step, the forward pass, and what follows from its results. */
#include "base/log.h"
#include "kernels/sampling/logprobs.h"
#include "kernels/team.h"
#include "runtime/scheduler_internal.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Rows that t could run: the rest of its prompt, or of what follows it. */
static i64 pending(const task *t) { return (t->n_kv < t->r.n_prompt ? t->r.n_prompt : t->n) - t->n_kv; }
static bool in_prompt(const task *t) { return t->n_kv < t->r.n_prompt; }
static bool wants_prompt_rows(const task *t) {
    return t->r.prompt_logprobs && in_prompt(t) && t->prompt_rows_done < t->r.n_prompt - 1;
}

/* What is left of a step's plan. */
typedef struct {
    i64 chunk, replay, spans, logits;
} budget;

/* Gives t up to `most` more rows. */
static void give(task *t, i64 most, budget *b) {
    i64 n = min_i64(min_i64(pending(t) - t->n_step, most), b->chunk);
    if (!in_prompt(t)) n = min_i64(n, b->replay);
    if (wants_prompt_rows(t)) n = min_i64(n, b->logits);
    if (n <= 0 || (in_prompt(t) && !t->n_step && !b->spans)) return;
    if (in_prompt(t) && !t->n_step) b->spans--;
    if (!in_prompt(t)) b->replay -= n;
    if (wants_prompt_rows(t)) b->logits -= n;
    b->chunk -= n;
    t->n_step += n;
}

static bool shorter(const task *a, const task *b) {
    if (a->r.priority != b->r.priority) return a->r.priority > b->r.priority;
    return pending(a) != pending(b) ? pending(a) < pending(b) : a->id < b->id;
}

/* Every decoding task runs its token. Of the chunk, the task that began first gets half, the rest goes to the shortest
 * ones: a short prompt does not wait for a long one, and a long one is never slower than half speed. */
static void plan(scheduler *s, task **rest) {
    const model_limits *l = &s->g->lim;
    budget b = {0, l->decode_rows, l->prefill_spans, l->logit_rows - s->g->max_running};
    task *first = NULL;
    i64 n = 0, answers = 0;
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        t->n_step = !in_prompt(t) && pending(t) == 1;
        b.replay -= t->n_step;
        answers += t->n_step;
        if (t->n_step) continue;
        if (!first) {
            first = t;
            continue;
        }
        i64 at = n++; /* few: sorted as they come */
        for (; at > 0 && shorter(t, rest[at - 1]); at--) rest[at] = rest[at - 1];
        rest[at] = t;
    }
    if (!first) return;
    i64 chunk = b.chunk = prefill_budget_allowance(&s->budget, answers, n + 1);
    give(first, n ? ceil_div(chunk, 2) : chunk, &b);
    for (i64 i = 0; i < n; i++) give(rest[i], b.chunk, &b);
    give(first, b.chunk, &b);
}

static void add_out(batch *b, task *t, i64 row, i64 position, bool last) {
    b->out_index[b->n_outs] = (i32)row;
    out_row *o = &b->outs[b->n_outs++];
    o->t = t;
    o->position = position;
    o->last = last;
    o->n_top = 0;
}

static void add_span(batch *b, task *t) {
    i64 first = t->n_kv, end = first + t->n_step, row = b->n_rows;
    b->spans[b->n_spans] =
        (model_span){.first = row, .n = t->n_step, .pos0 = first, .pages = t->pages, .absorbed = !in_prompt(t)};
    b->tasks[b->n_spans++] = t;
    memcpy(b->ids + row, t->tokens + first, (size_t)t->n_step * sizeof *t->tokens);
    b->n_rows += t->n_step;
    if (t->r.prompt_logprobs)
        for (i64 p = max_i64(first, t->prompt_rows_done); p < min_i64(end, t->r.n_prompt - 1); p++)
            add_out(b, t, row + p - first, p, false);
    if (end == t->n) add_out(b, t, row + end - 1 - first, end - 1, true);
}

/* Spans in decode form come first. */
static void build(scheduler *s, batch *b) {
    plan(s, b->tasks);
    b->n_rows = b->n_spans = b->n_outs = 0;
    for (int form = 0; form < 2; form++)
        for (i64 i = 0; i < s->n_running; i++)
            if (s->running[i]->n_step && in_prompt(s->running[i]) == form) add_span(b, s->running[i]);
}

/* ---- Logits to tokens ---- */

static sampling_history history_of(const out_row *o) {
    const task *t = o->t;
    const sched_request *r = &t->r;
    const i64 done = o->position + 1 - r->n_prompt; /* output before the token to draw */
    return (sampling_history){.prompt = t->tokens,
                              .output = t->tokens + r->n_prompt,
                              .n_prompt = r->n_prompt,
                              .n_output = done,
                              .bias_ids = r->bias_ids,
                              .bias = r->bias,
                              .n_bias = r->n_bias,
                              .forbidden = r->stop_ids,
                              .n_forbidden = done < r->min_new ? r->n_stop : 0,
                              .no_logprob = !r->logprobs};
}

/* Needs the host the row's logits, to change them before the draw? */
static bool needs_logits(const out_row *o) {
    if (!o->last) return false;
    const sampling_history h = history_of(o);
    return sampler_changes(&o->t->r.sampling, &h);
}

/* Log-probabilities wanted of the row's best tokens; -1: not even of the one that follows. */
static i32 tops_wanted(const out_row *o) {
    const sched_request *r = &o->t->r;
    if (!o->last) return (i32)r->prompt_top_logprobs;
    return r->logprobs || r->top_logprobs ? (i32)r->top_logprobs : -1;
}

/* How the device draws each row; false: the host draws all. */
static bool plan_draws(const scheduler *s, batch *b) {
    if ((!engine_backend(s->g)->gpu && !s->o.overlap_anywhere) || s->g->step) return false;
    b->top_most = -1;
    for (i64 i = 0; i < b->n_outs; i++) {
        const out_row *o = &b->outs[i];
        const task *t = o->t;
        b->keep[i] = needs_logits(o);
        b->tops[i] = b->keep[i] ? -1 : tops_wanted(o);
        b->next[i] = o->last ? -1 : t->tokens[o->position + 1];
        b->top_most = max_i64(b->top_most, b->tops[i]);
        b->draws[i] = (sample_row){.top_p = (u64)1 << SAMPLE_BITS};
        if (!b->keep[i] && o->last)
            b->draws[i] = sampler_row(&t->r.sampling, t->r.choice, (u64)(o->position + 1 - t->r.n_prompt));
    }
    return true;
}

static void draw(scheduler *s, sampler *sm, out_row *o, f32 *logits) {
    const task *t = o->t;
    const sched_request *r = &t->r;
    const i64 vocab = s->g->config.vocab;
    const i64 top = o->last ? r->top_logprobs : r->prompt_top_logprobs;
    f64 lse = top || !o->last ? log_sum_exp(logits, vocab) : 0;
    if (top) sampler_top(logits, vocab, lse, o->top, o->n_top = top);
    if (!o->last) {
        o->id = t->tokens[o->position + 1];
        o->logprob = (f32)((f64)logits[o->id] - lse);
        return;
    }
    const sampling_history h = history_of(o);
    sampled next = sampler_next(sm, &r->sampling, logits, &h, r->choice, (u64)h.n_output);
    o->id = next.id;
    o->logprob = next.logprob;
}

/* Row i as the device drew it. */
static void take_drawn(batch *b, i64 i) {
    out_row *o = &b->outs[i];
    const f32 *logprobs = b->logprobs + i * (1 + b->top_most);
    o->id = o->last ? b->drawn[i] : b->next[i];
    if (b->tops[i] < 0) return;
    o->logprob = logprobs[0];
    o->n_top = b->tops[i];
    for (i64 k = 0; k < o->n_top; k++) o->top[k] = (sched_top){b->top_ids[i * b->top_most + k], logprobs[1 + k]};
}

static void draw_all(scheduler *s, batch *b) {
    const i64 vocab = s->g->config.vocab;
    i64 n = 0;
    /* The largest logit of 64 rows of 2048 takes 65 us, sorting for top-p ten times as long. Not all of the team may
     * have a sampler: teams of two sizes in turn would be started and ended all the time. */
    i64 work = 0;
    for (i64 i = 0; i < b->n_outs; i++) {
        bool drawn = b->on_device && !b->keep[i];
        if (drawn) take_drawn(b, i);
        if (!b->outs[i].t || drawn) continue;
        work += (b->outs[i].t->r.sampling.temperature > 0 ? 128 : 4) * vocab;
        s->by_host[n++] = (i32)i;
    }
    team tm = team_begin(s->n_samplers > 1 && n > 1 ? work : 0);
#pragma omp parallel num_threads(tm.threads)
    {
        i64 me = omp_get_thread_num(), step = min_i64(omp_get_num_threads(), s->n_samplers);
        for (i64 k = me; me < step && k < n; k += step)
            draw(s, s->samplers[me], &b->outs[s->by_host[k]], s->logits + s->by_host[k] * vocab);
    }
    team_end(&tm);
}

static void fill_logprob(sched_event *ev, const out_row *o) {
    ev->has_logprob = true;
    ev->logprob = o->logprob;
    ev->top = o->top;
    ev->n_top = o->n_top;
}

static void prompt_result(scheduler *s, const out_row *o) {
    task *t = o->t;
    sched_event *ev = push_event(s, t, SCHED_PROMPT);
    ev->token = o->id;
    ev->position = o->position + 1;
    fill_logprob(ev, o);
    t->prompt_rows_done = o->position + 1;
}

static bool batch_append(task *t, i32 id) {
    if (t->n == t->cap) {
        i64 cap = min_i64(t->n + (t->n - t->r.n_prompt) / 2 + 256, t->r.n_prompt + t->r.max_new);
        i32 *grown = realloc(t->tokens, (size_t)cap * sizeof *grown);
        if (!grown) return false;
        t->tokens = grown;
        t->cap = cap;
    }
    t->tokens[t->n++] = id;
    return true;
}

static bool batch_stops(const task *t, i32 id) {
    for (i64 i = 0; i < t->r.n_stop; i++)
        if (t->r.stop_ids[i] == id) return true;
    return false;
}

static void token_result(scheduler *s, const out_row *o) {
    task *t = o->t;
    if (!batch_append(t, o->id)) {
        err_nomem(&t->error, "token ids", (u64)t->cap * 4);
        end_task(s, t, SCHED_ERROR, true);
        return;
    }
    i64 done = ++t->usage.output_tokens;
    f64 now = now_s(), before = done == 1 ? t->usage.submitted_s : t->last_token_s;
    if (done == 1) t->usage.first_token_s = now;
    t->last_token_s = now;
    sched_event *ev = push_event(s, t, SCHED_TOKEN);
    ev->gap_s = now - before;
    ev->token = o->id;
    ev->position = done - 1;
    ev->is_stop = batch_stops(t, o->id);
    if (t->r.logprobs) fill_logprob(ev, o);
    if (ev->is_stop)
        end_task(s, t, SCHED_STOP, true);
    else if (done == t->r.max_new)
        end_task(s, t, SCHED_LENGTH, true);
}

/* ---- The step ---- */

/* The first row of a prompt whose logprobs are wanted: its token has none. */
static void first_prompt_event(scheduler *s, task *t) {
    if (!t->r.prompt_logprobs || t->first_told) return;
    t->first_told = true;
    sched_event *ev = push_event(s, t, SCHED_PROMPT);
    ev->token = t->tokens[0];
}

/* The rows of span i were run: its task has them now, or ends because of a bad one. */
static void span_result(scheduler *s, const batch *b, i64 i) {
    task *t = b->tasks[i];
    const model_span *p = &b->spans[i];
    if (!t) return;
    bool prompt = in_prompt(t);
    for (i64 k = 0; k < p->n; k++) {
        i32 mark = b->bad[p->first + k];
        if (!mark) continue;
        engine_bad_row(mark, t->tokens[t->n_kv + k], t->n_kv + k, &t->error);
        end_task(s, t, SCHED_ERROR, false);
        return;
    }
    first_prompt_event(s, t);
    t->n_kv += p->n;
    if (prompt) cache_prefix(s, t);
}

void forget_rows(scheduler *s, const task *t) {
    for (size_t k = 0; k < COUNT_OF(s->batches); k++) {
        batch *b = &s->batches[k];
        for (i64 i = 0; i < b->n_spans; i++)
            if (b->tasks[i] == t) b->tasks[i] = NULL;
        for (i64 i = 0; i < b->n_outs; i++)
            if (b->outs[i].t == t) b->outs[i].t = NULL;
    }
}

static void batch_count(scheduler *s, const batch *b, f64 seconds) {
    i64 prompt = 0, good = 0, drawn = 0, answers = 0;
    for (i64 i = 0; i < b->n_spans; i++) {
        if (b->spans[i].absorbed)
            answers++;
        else
            prompt += b->spans[i].n, good += b->tasks[i] ? b->spans[i].n : 0; /* who left had a bad row */
    }
    prefill_budget_note(&s->budget, prompt, answers, seconds);
    for (i64 i = 0; i < b->n_outs; i++) drawn += b->outs[i].t && b->outs[i].last;
    pthread_mutex_lock(&s->lock);
    s->stats.prefilled_tokens += good;
    s->stats.generated_tokens += drawn;
    s->stats.steps++;
    s->stats.ahead += b->queued_ahead;
    s->stats.busy_s += seconds;
    s->stats.step_s = seconds;
    s->stats.batch = (f64)b->n_rows;
    pthread_mutex_unlock(&s->lock);
}

/* The pass itself failed: nothing in the batch has a result, and there is no reason to expect better of the next. */
static void break_down(scheduler *s, const err *why) {
    pthread_mutex_lock(&s->lock);
    s->broken = true;
    s->fault = *why;
    pthread_mutex_unlock(&s->lock);
    fail_all(s);
}

void fail_all(scheduler *s) {
    while (s->n_running) {
        s->running[0]->error = s->fault;
        end_task(s, s->running[0], SCHED_ERROR, false);
    }
    while (s->queue.n) {
        s->queue.head->error = s->fault;
        end_task(s, s->queue.head, SCHED_ERROR, false);
    }
}

static model_batch model_batch_of(const scheduler *s, const batch *b) {
    return (model_batch){.n = b->n_rows,
                         .ids = b->ids,
                         .n_spans = b->n_spans,
                         .spans = b->spans,
                         .n_out = b->n_outs,
                         .out_rows = b->out_index,
                         .logits = s->logits,
                         .draws = b->on_device ? b->draws : NULL,
                         .drawn = b->drawn,
                         .keep = b->keep,
                         .tops = b->on_device && b->top_most >= 0 ? b->tops : NULL,
                         .next = b->next,
                         .top_most = b->top_most,
                         .logprobs = b->logprobs,
                         .top_ids = b->top_ids,
                         .bad = b->bad,
                         .reply = (int)(b - s->batches)};
}

static status queue_batch(scheduler *s, batch *b, err *e) {
    const model_batch m = model_batch_of(s, b);
    b->began_s = now_s();
    return engine_queue(s->g, &m, e);
}

/* ---- The step after the one under way ---- */

/* Did a request or an abort come since the step was planned? The next step waits for it. */
static bool news(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    bool any = s->inbox.n || s->any_abort;
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* Will t go on after the token that is being drawn, as far as can be told, and is there a place for that token's KV
 * row? */
static bool goes_on(scheduler *s, task *t) {
    if (t->n + 1 - t->r.n_prompt >= t->r.max_new) return false;
    if (t->n < t->n_pages * KV_PAGE) return true;
    i32 page = radix_take(&s->tree, t->n_pages ? t->pages[t->n_pages - 1] : -1);
    if (page >= 0) t->pages[t->n_pages++] = page;
    return page >= 0;
}

/* Fills b with the step after `now`, which is under way, if that is known but for the tokens: `now` and it are all
 * of the running answers, a row each, drawn by the device. The ids of b are those that `now` draws. */
static bool build_ahead(scheduler *s, const batch *now, batch *b) {
    b->n_rows = b->n_spans = b->n_outs = 0;
    if (!s->overlap || s->g->profile || !now->on_device || now->n_outs != now->n_rows || now->n_spans != now->n_rows ||
        now->n_rows > model_ahead_rows(engine_model(s->g)) || news(s))
        return false;
    for (i64 i = 0; i < now->n_spans; i++) {
        task *t = now->tasks[i];
        if (!t) continue;
        if (!now->spans[i].absorbed || now->keep[i] || !goes_on(s, t)) return false;
        b->ids[b->n_rows] = (i32)~i;
        b->tasks[b->n_spans] = t;
        b->spans[b->n_spans++] =
            (model_span){.first = b->n_rows, .n = 1, .pos0 = t->n, .pages = t->pages, .absorbed = true};
        add_out(b, t, b->n_rows++, t->n, true);
    }
    if (!b->n_rows || b->n_rows != s->n_running) return false;
    b->on_device = plan_draws(s, b);
    for (i64 i = 0; i < b->n_outs; i++)
        if (b->keep[i]) return false;
    return true;
}

/* The batch that was queued ahead, unless all of its tasks have left: then it runs out unseen. */
static batch *take_ahead(scheduler *s) {
    batch *b = s->ahead;
    s->ahead = NULL;
    for (i64 i = 0; b && i < b->n_spans; i++)
        if (b->tasks[i]) return b;
    return NULL;
}

static void take_results(scheduler *s, batch *b) {
    for (i64 i = 0; i < b->n_spans; i++) span_result(s, b, i);
    draw_all(s, b);
    f64 now = now_s();
    batch_count(s, b, now - b->began_s);
    if (s->ahead) s->ahead->began_s = now;
    for (i64 i = 0; i < b->n_outs; i++) {
        if (!b->outs[i].t) continue;
        if (b->outs[i].last)
            token_result(s, &b->outs[i]);
        else
            prompt_result(s, &b->outs[i]);
    }
}

void run_batch(scheduler *s) {
    err e = {0};
    status st = ST_OK;
    batch *b = take_ahead(s);
    if (!b) {
        b = &s->batches[0];
        reserve_pages(s);
        build(s, b);
        if (!b->n_rows) return;
        b->on_device = plan_draws(s, b);
        b->queued_ahead = false;
        st = queue_batch(s, b, &e);
    }
    batch *next = &s->batches[b == s->batches];
    if (st == ST_OK && build_ahead(s, b, next)) {
        st = queue_batch(s, next, &e);
        next->queued_ahead = true;
        s->ahead = next;
    }
    const model_batch m = model_batch_of(s, b);
    if (st == ST_OK) st = engine_collect(s->g, &m, &e);
    if (st == ST_OK)
        take_results(s, b);
    else
        break_down(s, &e);
}
