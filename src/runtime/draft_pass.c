/* runtime/draft_pass.c: the draft model's pass behind a step: which rows it reads, who guesses, and what came of it. */
#include "runtime/scheduler_internal.h"
#include <stdlib.h>
#include <string.h>

status drafts_open(scheduler *s, err *e) {
    const size_t run = (size_t)s->g->max_running, spans = (size_t)spans_most(s->g);
    const draft_limits *l = &s->g->draft_lim;
    draft_pass *d = &s->drafts;
    d->spans = calloc(spans, sizeof *d->spans);
    d->tasks = calloc(run, sizeof *d->tasks);
    d->of = calloc(spans, sizeof *d->of);
    d->ids = calloc(run, DRAFT_STEPS_MOST * sizeof *d->ids);
    d->came_true = calloc(spans, sizeof *d->came_true);
    d->candidates = calloc((size_t)(l->sequences * draft_candidates(l->steps, l->topk)) + 1, sizeof *d->candidates);
    d->kept = calloc((size_t)s->g->lim.copies + 1, sizeof *d->kept);
    d->following = calloc((size_t)s->g->lim.rows, sizeof *d->following);
    d->next = -1, d->rests = true;
    draft_policy_open(&d->policy, min_i64(s->o.draft_tokens, engine_draft_steps(s->g)), s->o.draft_always);
    if (d->spans && d->tasks && d->of && d->ids && d->came_true && d->following && d->candidates && d->kept)
        return ST_OK;
    return err_nomem(e, "drafts", run * DRAFT_STEPS_MOST * sizeof *d->ids);
}

void drafts_close(scheduler *s) {
    draft_pass *d = &s->drafts;
    void *const all[] = {d->spans, d->tasks, d->of, d->ids, d->came_true, d->following, d->candidates, d->kept};
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

/* Is t an answer that goes on with its last token, and are there pages for what is guessed behind it? */
static bool guesses(scheduler *s, task *t, i64 steps) {
    const i64 rows = t->n - 2 + steps; /* the first guess stands at the token before the last */
    return s->drafts.n_guessing < s->g->draft_lim.sequences && t->n_kv >= t->r.n_prompt && t->n_kv == t->n - 1 &&
           rows <= t->r.n_prompt + t->r.max_new && takes_pages(s, t, rows);
}

/* Does the answer go on in a branch behind span i? */
static bool goes_on(const scheduler *s, const batch *b, i64 i) {
    for (i64 k = i + 1; k < b->n_spans && b->branch[k]; k++)
        if (s->drafts.came_true[k] > 0) return true;
    return false;
}

/* The first rows of span i of b, of its task t: those that t kept and whose followers are known. Of one that has ended
 * by them, too, because the prefix cache has its pages. */
static i64 rows_to_read(const scheduler *s, const batch *b, i64 i, const task *t) {
    const model_span *p = &b->spans[i];
    const i64 kept = p->n - b->drafts[i] + s->drafts.came_true[i], there = b->tasks[i] ? t->n_kv - p->pos0 : kept;
    return min_i64(min_i64(kept, there), t->n - 1 - p->pos0);
}

static void add_draft_span(scheduler *s, const batch *b, i64 i, i64 steps) {
    draft_pass *d = &s->drafts;
    task *t = d->of[i];
    const model_span *p = &b->spans[i];
    const i64 n = t ? rows_to_read(s, b, i, t) : 0;
    if (n < 1) return;
    const bool guess = steps > 0 && b->tasks[i] && !goes_on(s, b, i) && guesses(s, t, steps);
    const i32 *branches = engine_guess_pages(s->g, d->n_guessing);
    if (guess) d->tasks[d->n_guessing++] = t;
    d->spans[d->batch.n_spans++] = (draft_span){.first = p->first,
                                                .n = n,
                                                .pos0 = p->pos0,
                                                .following = t->tokens + p->pos0 + 1,
                                                .pages = t->pages,
                                                .guess = guess,
                                                .branches = branches};
}

/* The number among b's outs, which are in the order of rows, of that of a row; -1: it has none. */
static i64 out_of_row(const batch *b, i64 row) {
    i64 o = min_i64(row, b->n_outs - 1);
    while (o >= 0 && b->out_index[o] > row) o--;
    return o >= 0 && b->out_index[o] == row ? o : -1;
}

/* The rows of span i of b. What follows its last row is drawn by then, unless it is known already (more of a prompt, a
 * token that was forced, that is decoded again, whose row may draw another), or nobody wants it. */
static void add_kept_span(scheduler *s, const batch *b, i64 i, draft_batch *pass) {
    const task *t = b->tasks[i];
    const model_span *p = &b->spans[i];
    i32 *following = s->drafts.following + p->first;
    i64 n = 0;
    if (!t) return;
    for (; n < p->n; n++) {
        const i64 behind = p->pos0 + n + 1, out = behind < t->n ? 0 : out_of_row(b, p->first + n);
        if (out < 0) break;
        following[n] = behind < t->n ? t->tokens[behind] : (i32)~out;
    }
    if (n)
        s->drafts.spans[pass->n_spans++] =
            (draft_span){.first = p->first, .n = n, .pos0 = p->pos0, .following = following, .pages = t->pages};
}

status drafts_keep(scheduler *s, batch *b, err *e) {
    draft_batch pass = {.spans = s->drafts.spans, .steps = 1};
    b->kept = false;
    if (!drafts_by_model(s) || !(s->overlap || b->pipelined) || s->g->profile || !b->on_device) return ST_OK;
    if (!b->pipelined && b->n_outs != b->n_rows)
        return ST_OK; /* the prompts' first tokens are to be followed by guesses */
    for (i64 i = 0; i < b->n_spans; i++)
        if (!(b->spans[i].absorbed || b->pipelined) || b->drafts[i]) return ST_OK;
    for (i64 i = 0; i < b->n_outs; i++)
        if (b->keep[i]) return ST_OK;
    if (drafts_next(s)) return ST_OK;
    for (i64 i = 0; i < b->n_spans; i++) add_kept_span(s, b, i, &pass);
    b->kept = true;
    s->drafts.n_chosen += drafts_answers(s, b);
    if (!b->pipelined || s->drafts.n_chosen >= drafts_answers(s, NULL)) s->drafts.next = -1, s->drafts.n_chosen = 0;
    return pass.n_spans ? engine_queue_drafts(s->g, &pass, e) : ST_OK;
}

bool drafts_collect_late(const scheduler *s) { return engine_fills_guesses(s->g); }

/* The guesses under way, by ids that refer to them. */
static void refer_to_guesses(scheduler *s) {
    i32 ids[DRAFT_STEPS_MOST];
    for (i64 i = 0; i < s->drafts.n_guessing; i++) {
        task *t = s->drafts.tasks[i];
        for (i64 g = 0; g < s->drafts.batch.steps; g++) ids[g] = engine_guess_id(s->g, i, g);
        draft_tree_chain(&t->guesses, ids, s->drafts.batch.steps);
        t->guessed_at = t->n;
    }
}

status drafts_queue(scheduler *s, const batch *b, err *e) {
    draft_pass *d = &s->drafts;
    if (!drafts_by_model(s) || b->kept) return ST_OK;
    const i64 steps = drafts_next(s);
    d->next = -1, d->n_chosen = 0, d->rests = steps == 0;
    d->n_guessing = 0;
    d->batch = (draft_batch){.spans = d->spans, .steps = max_i64(steps, 1), .ids = d->ids};
    if (s->g->draft_lim.topk > 1) d->batch.ids = NULL, d->batch.tree = d->candidates;
    for (i64 i = 0; i < b->n_spans; i++) add_draft_span(s, b, i, steps);
    if (drafts_collect_late(s)) refer_to_guesses(s);
    return d->batch.n_spans ? engine_queue_drafts(s->g, &d->batch, e) : ST_OK;
}

/* Of the i-th that guesses; false: some were no numbers. */
static bool take_chain(draft_pass *d, i64 i, draft_tree *to) {
    const i32 *ids = d->ids + i * d->batch.steps;
    i64 n = 0;
    while (n < d->batch.steps && ids[n] >= 0) n++;
    draft_tree_chain(to, ids, n);
    return n == d->batch.steps;
}

static bool take_tree(const scheduler *s, i64 i, draft_tree *to) {
    const i64 n = draft_candidates(s->drafts.batch.steps, s->g->draft_lim.topk);
    const draft_candidate *all = s->drafts.candidates + i * n;
    bool good = true;
    for (i64 c = 0; c < n; c++) good = good && all[c].id >= 0;
    draft_tree_choose(to, all, n, s->o.draft_tokens);
    return good;
}

status drafts_collect(scheduler *s, err *e) {
    draft_pass *d = &s->drafts;
    if (!d->batch.n_spans) return ST_OK;
    status st = engine_collect_drafts(s->g, &d->batch, e);
    i64 bad = 0;
    for (i64 i = 0; st == ST_OK && i < d->n_guessing; i++) {
        task *t = d->tasks[i];
        draft_tree guesses;
        bad += !(d->batch.tree ? take_tree(s, i, &guesses) : take_chain(d, i, &guesses));
        if (t) t->guesses = guesses, t->guessed_at = t->n;
    }
    d->batch.n_spans = 0;
    if (!bad) return st;
    pthread_mutex_lock(&s->lock);
    s->stats.draft_bad += bad;
    pthread_mutex_unlock(&s->lock);
    return st;
}

void drafts_arrive(batch *b) {
    for (i64 i = 0; i < b->n_outs; i++) {
        out_row *o = &b->outs[i];
        if (o->kind != OUT_DRAFT || o->draft >= 0 || !o->t) continue;
        const i64 at = o->position - o->t->n; /* of the guesses, which follow the answer's tokens */
        const bool good = at < o->t->guesses.n;
        o->draft = o->t->tokens[o->position] = good ? o->t->guesses.nodes[at].id : 0;
        if (!good) o->kind = OUT_UNUSED, drafts_rest(o->t);
    }
}

void drafts_forget(scheduler *s, const task *t) {
    for (i64 i = 0; i < s->drafts.n_guessing; i++)
        if (s->drafts.tasks[i] == t) s->drafts.tasks[i] = NULL;
}
