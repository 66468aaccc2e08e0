#include "runtime/warm_up.h"
#include "base/log.h"
#include "runtime/engine_internal.h"
#include "runtime/step_timer.h"

enum { WARM_ANSWERS = 64, WARM_CHECKED = 16, WARM_PROMPT = 64 /* the smallest is longer */ };

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

/* So many answers a step, each with so many rows. */
static status warm_answers(engine *g, warm_run *w, i64 most, i64 rows, err *e) {
    most = min_i64(min_i64(most, g->max_running), min_i64(g->pages.n_free, g->lim.decode_rows / rows));
    if (rows > 1) most = min_i64(most, g->draft_lim.sequences);
    if (most < 1 || longest(g) < KV_PAGE) return ST_OK;
    status st = step_timer_open(&w->timer, g, most, KV_PAGE, rows, 0, e);
    for (i64 n = 1; st == ST_OK && n <= most; n++) {
        st = step_timer_decode(w->timer, n, rows, 0, &w->ignored, e);
        if (st == ST_OK && rows > 1) st = step_timer_drafts(w->timer, n, rows, 0, &w->ignored, e);
        st = warm_step_done(w, st, e);
    }
    step_timer_close(w->timer);
    return st;
}

status engine_warm_up(engine *g, i64 *steps, err *e) {
    warm_run w = {.guesses = engine_draft_steps(g)};
    status st = warm_prompts(g, &w, e);
    if (st == ST_OK) st = warm_answers(g, &w, WARM_ANSWERS, 1, e);
    if (st == ST_OK && w.guesses && g->draft_lim.topk < 2) st = warm_answers(g, &w, WARM_CHECKED, 1 + w.guesses, e);
    if (g->hosts) hosts_forget_counts(g->hosts);
    *steps = w.steps;
    if (w.bad) log_warn("warming up, %lld of %lld steps: %s", (long long)w.bad, (long long)w.steps, w.first_bad.text);
    return st;
}
