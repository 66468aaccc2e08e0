/* runtime/draws.c: which tokens may come in the rows of a step, how they are drawn, and the draws of the host. */
#include "kernels/sampling/logprobs.h"
#include "kernels/team.h"
#include "runtime/scheduler_internal.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

bool out_is_open(const out_row *o) {
    return o->t &&
           (o->kind == OUT_DRAFT || o->kind == OUT_CHECK || (o->kind == OUT_NEXT && o->position + 1 == o->t->n));
}
static bool draws_a_token(const out_row *o) {
    return o->kind == OUT_NEXT || o->kind == OUT_DRAFT || o->kind == OUT_CHECK;
}
bool draws_on_device(const scheduler *s) { return (engine_backend(s->g)->gpu || s->o.overlap_anywhere) && !s->g->step; }

static u64 *mask_at(const scheduler *s, i64 mask) { return s->masks + (mask - 1) * s->mask_words; }

static sampling_history history_of(const scheduler *s, const out_row *o) {
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
                              .n_forbidden = done < r->min_new && !r->filter ? r->n_stop : 0, /* a mask knows it */
                              .mask = o->mask ? mask_at(s, o->mask) : NULL,
                              .no_logprob = !r->logprobs};
}

/* Needs the host the row's logits, to change them before the draw? */
static bool needs_logits(const scheduler *s, const out_row *o) {
    if (!draws_a_token(o)) return false;
    const sampling_history h = history_of(s, o);
    return sampler_changes(&o->t->r.sampling, &h);
}

/* Log-probabilities wanted of the row's best tokens; -1: not even of the one that follows. */
static i32 tops_wanted(const out_row *o) {
    const sched_request *r = &o->t->r;
    if (o->kind == OUT_UNUSED || o->kind == OUT_CHECK) return -1;
    if (o->kind == OUT_PROMPT) return (i32)r->prompt_top_logprobs;
    return r->logprobs || r->top_logprobs ? (i32)r->top_logprobs : -1;
}

void plan_draws(const scheduler *s, batch *b) {
    b->on_device = draws_on_device(s);
    b->late = false;
    b->top_most = -1;
    if (!b->on_device) return;
    for (i64 i = 0; i < b->n_outs; i++) {
        const out_row *o = &b->outs[i];
        const task *t = o->t;
        b->keep[i] = needs_logits(s, o);
        b->tops[i] = b->keep[i] ? -1 : tops_wanted(o);
        b->next[i] = o->kind == OUT_PROMPT ? t->tokens[o->position + 1] : -1;
        b->top_most = max_i64(b->top_most, b->tops[i]);
        b->draws[i] = (sample_row){.top_p = (u64)1 << SAMPLE_BITS};
        if (!b->keep[i] && draws_a_token(o))
            b->draws[i] = sampler_row(&t->r.sampling, t->r.choice, (u64)(o->position + 1 - t->r.n_prompt));
        b->late |= t->r.filter != NULL;
    }
}

/* ---- Which tokens may come ---- */

static bool mask_is_empty(const u64 *mask, i64 words) {
    u64 any = 0;
    for (i64 w = 0; w < words; w++) any |= mask[w];
    return !any;
}

static void mask_add(u64 *mask, i32 id) { mask[id / 64] |= (u64)1 << id % 64; }
static void mask_drop(u64 *mask, i32 id) { mask[id / 64] &= ~((u64)1 << id % 64); }

/* Of what the filter forces only the first token of an answer may be left: the others were written behind the token
 * before them. */
static bool forced_first(const out_row *o, i32 *id) {
    return o->position + 1 == o->t->r.n_prompt && task_forced(o->t, id, 1) == 1;
}

/* The set for the token that follows the row's, in a state of its task's filter. Stop ids may stand for text, which
 * may be spelled otherwise: where the answer may not end, they do not come. */
static status mask_fill(const scheduler *s, const out_row *o, i32 state, u64 *mask, err *e) {
    const task *t = o->t;
    const sched_request *r = &t->r;
    bool may_end = false;
    i32 id;
    memset(mask, 0, (size_t)s->mask_words * sizeof *mask);
    if (forced_first(o, &id)) return mask_add(mask, id), ST_OK;
    status st = t->filter.mask(t->filter.ud, state, mask, &may_end, e);
    if (st != ST_OK) return st;
    for (i64 i = 0; i < r->n_stop; i++) mask_drop(mask, r->stop_ids[i]);
    const bool empty = mask_is_empty(mask, s->mask_words);
    if (empty && !may_end)
        return err_set(e, ST_LIMIT, "nothing may follow that the form of the answer and its stop ids both allow");
    if (may_end && (empty || o->position + 1 - r->n_prompt >= r->min_new))
        for (i64 i = 0; i < r->n_stop; i++) mask_add(mask, r->stop_ids[i]);
    return ST_OK;
}

/* A row whose mask is made; what became of it. */
struct mask_job {
    out_row *o;
    i32 state; /* of its filter, behind the row's token */
    status st;
    bool none; /* nothing may come, nor an end that a token tells: the answer is whole */
    err e;
};
typedef struct mask_job mask_job;

static void mask_make(scheduler *s, mask_job *j) {
    u64 *mask = mask_at(s, j->o->mask);
    j->e = (err){0};
    j->st = mask_fill(s, j->o, j->state, mask, &j->e);
    j->none = j->st == ST_OK && mask_is_empty(mask, s->mask_words);
}

/* A draft behind which it fails is none: its turn comes if it comes true. */
static void mask_end_task(scheduler *s, const mask_job *j) {
    task *t = j->o->t;
    if (!t || (j->st == ST_OK && !j->none)) return;
    if (j->o->kind == OUT_DRAFT) {
        j->o->kind = OUT_UNUSED;
        return;
    }
    if (j->st != ST_OK) t->error = j->e;
    t->whole = j->none;
    end_task(s, t, j->none ? SCHED_STOP : SCHED_ERROR, true);
}

status masks_open(scheduler *s, err *e) {
    const size_t n = (size_t)s->g->lim.logit_rows;
    s->mask_words = ceil_div(s->g->config.vocab, 64);
    s->masks = calloc(n, (size_t)s->mask_words * sizeof *s->masks);
    s->mask_jobs = calloc(n, sizeof *s->mask_jobs);
    return s->masks && s->mask_jobs ? ST_OK : err_nomem(e, "sets of tokens", n * (u64)s->mask_words * 8);
}

static i32 filter_behind(const task *t, i32 state, i32 id) {
    return state == TOKEN_FILTER_DEAD ? state : t->filter.next(t->filter.ud, state, id);
}

/* Of the row's task's filter, behind the row's token. */
static i32 state_behind(const batch *b, const out_row *o) {
    if (o->kind == OUT_CHECK) return o->t->check_states[o->t->check_left - 1];
    return o->kind == OUT_NEXT ? o->t->filter_state : filter_behind(o->t, b->outs[o->parent].state, o->draft);
}

void make_masks(scheduler *s, batch *b) {
    enum { MASK_WORK = 1 << 17 /* of a mask, in a team's units: some 20 us */ };
    i64 n = 0;
    for (i64 i = 0; i < b->n_outs; i++) {
        out_row *o = &b->outs[i];
        o->mask = 0;
        o->state = TOKEN_FILTER_DEAD;
        if (b->on_device) b->draws[i].mask = 0;
        if (!out_is_open(o) || !o->t->r.filter) continue;
        o->state = state_behind(b, o);
        if (o->state == TOKEN_FILTER_DEAD) { /* it cannot come true */
            o->kind = OUT_UNUSED;
            continue;
        }
        s->mask_jobs[n++] = (mask_job){.o = o, .state = o->state};
        o->mask = n;
        if (b->on_device && !b->keep[i]) b->draws[i].mask = n;
    }
    b->n_masks = n;
    team tm = team_begin(n * MASK_WORK < TEAM_MIN ? 0 : n * MASK_WORK); /* they differ too much for small regions */
#pragma omp parallel for schedule(dynamic, 1) num_threads(tm.threads)
    for (i64 k = 0; k < n; k++) mask_make(s, &s->mask_jobs[k]);
    team_end(&tm);
    for (i64 k = 0; k < n; k++) mask_end_task(s, &s->mask_jobs[k]);
}

/* ---- Logits to tokens ---- */

static void draw(scheduler *s, sampler *sm, out_row *o, f32 *logits) {
    const task *t = o->t;
    const sched_request *r = &t->r;
    const i64 vocab = s->g->config.vocab;
    const bool prompt = o->kind == OUT_PROMPT;
    const i64 top = prompt ? r->prompt_top_logprobs : r->top_logprobs;
    f64 lse = top || prompt ? log_sum_exp(logits, vocab) : 0;
    if (top) sampler_top(logits, vocab, lse, o->top, o->n_top = top);
    if (prompt) {
        o->id = t->tokens[o->position + 1];
        o->logprob = (f32)((f64)logits[o->id] - lse);
        return;
    }
    const sampling_history h = history_of(s, o);
    sampled next = sampler_next(sm, &r->sampling, logits, &h, r->choice, (u64)h.n_output);
    o->id = next.id;
    o->logprob = next.logprob;
}

/* Row i as the device drew it. */
static void take_drawn(batch *b, i64 i) {
    out_row *o = &b->outs[i];
    const f32 *logprobs = b->logprobs + i * (1 + b->top_most);
    o->id = o->kind == OUT_PROMPT ? b->next[i] : b->drawn[i];
    if (b->tops[i] < 0) return;
    o->logprob = logprobs[0];
    o->n_top = b->tops[i];
    for (i64 k = 0; k < o->n_top; k++) o->top[k] = (sched_top){b->top_ids[i * b->top_most + k], logprobs[1 + k]};
}

void draw_all(scheduler *s, batch *b) {
    const i64 vocab = s->g->config.vocab;
    i64 n = 0;
    /* The largest logit of 64 rows of 2048 takes 65 us, sorting for top-p ten times as long. Not all of the team may
     * have a sampler: teams of two sizes in turn would be started and ended all the time. */
    i64 work = 0;
    for (i64 i = 0; i < b->n_outs; i++) {
        bool drawn = b->on_device && !b->keep[i];
        if (drawn) take_drawn(b, i);
        if (drawn || !(b->outs[i].kind == OUT_PROMPT ? b->outs[i].t != NULL : out_is_open(&b->outs[i]))) continue;
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
