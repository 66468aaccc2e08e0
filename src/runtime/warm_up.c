#include "runtime/warm_up.h"
#include "base/log.h"
#include "runtime/engine_internal.h"
#include "runtime/step_timer.h"

enum { WARM_ANSWERS = 64, WARM_CHECKED = 16, WARM_PROMPT = 64 /* the smallest is longer */ };

/* Steps of 1, 2, .. answers with so many rows each: up to `steps` of the model, up to `passes` of the draft. */
typedef struct {
    i64 rows, steps, passes;
} warm_shape;

typedef struct {
    step_timer *timer;
    i64 guesses; /* of the draft model; 0: there is none */
    i64 steps, bad;
    err first_bad;
    f64 ignored;
} warm_run;

/* Another step came to this end. One that had a NaN is no reason to leave out those behind it. */
static status warm_step_done(warm_run *w, status st, err *e) {
    w->steps++;
    if (st != ST_NUMERIC) return st;
    if (!w->bad++) w->first_bad = *e;
    *e = (err){0};
    return ST_OK;
}

/* One sequence may have so many tokens. */
static i64 longest(const engine *g) {
    return min_i64(g->context, g->lim.pool_pages / engine_sequence_ranks(g) * KV_PAGE);
}

static status warm_prompts(engine *g, warm_run *w, err *e) {
    const i64 tokens = min_i64(g->chunk, longest(g) - w->guesses); /* guesses have rows behind a prompt's */
    if (tokens <= WARM_PROMPT) return ST_OK;
    status st = step_timer_open(&w->timer, g, 1, tokens + w->guesses, 1, 0, e);
    for (i64 n = tokens; st == ST_OK && n > WARM_PROMPT; n /= 2) {
        st = step_timer_prompt(w->timer, 0, 0, n, &w->ignored, e);
        if (st == ST_OK && w->guesses) st = step_timer_drafts(w->timer, 1, n, 0, &w->ignored, e);
        st = warm_step_done(w, st, e);
    }
    step_timer_close(w->timer);
    return st;
}

/* Where rows of one sequence are read together from so many tokens on: a position at which n sequences' are, none of
 * them longer than it may be; -1: nowhere. */
static i64 reads_together_at(const engine *g, i64 n, i64 each) {
    const i64 rows = n * each, last = longest(g) - each;
    for (i64 pos = KV_PAGE;; pos = min_i64(2 * pos, last)) {
        if (pos <= last && model_reads_together(engine_model(g), each, rows, rows * (pos + each))) return pos;
        if (pos >= last) return -1;
    }
}

/* Step timers' most sequences for these; 0: there is no room for one. */
static i64 most_answers(const engine *g, warm_shape s) {
    i64 most = min_i64(min_i64(max_i64(s.steps, s.passes), g->max_running),
                       min_i64(g->pages.n_free, g->lim.decode_rows / s.rows));
    if (s.passes) most = min_i64(most, g->draft_lim.sequences);
    return longest(g) < KV_PAGE ? 0 : most;
}

static status warm_answers(engine *g, warm_run *w, warm_shape s, err *e) {
    const i64 most = most_answers(g, s);
    if (most < 1) return ST_OK;
    status st = step_timer_open(&w->timer, g, most, KV_PAGE, s.rows, 0, e);
    for (i64 n = 1; st == ST_OK && n <= most; n++) {
        if (n <= s.steps) st = step_timer_decode(w->timer, n, s.rows, 0, &w->ignored, e);
        if (st == ST_OK && n <= s.passes) st = step_timer_drafts(w->timer, n, s.rows, 0, &w->ignored, e);
        st = warm_step_done(w, st, e);
    }
    step_timer_close(w->timer);
    return st;
}

/* Steps that check drafts are recorded apart where contexts are long. */
static status warm_long(engine *g, warm_run *w, warm_shape s, err *e) {
    const i64 most = most_answers(g, s);
    if (most < 1) return ST_OK;
    status st = step_timer_open(&w->timer, g, most, KV_PAGE, s.rows, 0, e);
    for (i64 n = 1; st == ST_OK && n <= most; n++) {
        const i64 pos = reads_together_at(g, n, s.rows);
        if (pos < 0 || model_reads_together(engine_model(g), s.rows, n * s.rows, n * s.rows * s.rows)) continue;
        st = step_timer_stretch(w->timer, pos + s.rows, e);
        if (st == ST_OK) st = warm_step_done(w, step_timer_decode(w->timer, n, s.rows, pos, &w->ignored, e), e);
    }
    step_timer_close(w->timer);
    return st;
}

/* Chains, or trees, of each length; long contexts, which are rarer, when all short ones have their recordings. How many
 * rows the step of a tree has is not known before. */
static status warm_drafts(engine *g, warm_run *w, err *e) {
    const i64 checked = g->draft_lim.topk > 1 ? 0 : WARM_CHECKED;
    status st = ST_OK;
    for (i64 n = w->guesses; st == ST_OK && n > 0; n--)
        st = warm_answers(g, w, (warm_shape){1 + n, checked, WARM_ANSWERS}, e);
    for (i64 n = w->guesses; st == ST_OK && checked && n > 0; n--)
        st = warm_long(g, w, (warm_shape){1 + n, checked, 0}, e);
    return st;
}

status engine_warm_up(engine *g, i64 *steps, err *e) {
    warm_run w = {.guesses = engine_draft_steps(g)};
    status st = warm_prompts(g, &w, e);
    if (st == ST_OK) st = warm_answers(g, &w, (warm_shape){1, WARM_ANSWERS, 0}, e);
    if (st == ST_OK) st = warm_drafts(g, &w, e);
    if (g->hosts) hosts_forget_counts(g->hosts);
    *steps = w.steps;
    if (w.bad) log_warn("warming up, %lld of %lld steps: %s", (long long)w.bad, (long long)w.steps, w.first_bad.text);
    return st;
}
