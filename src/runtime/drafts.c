/* runtime/drafts.c: what is proposed to follow the answers: by a draft model, or by what followed before. */
#include "runtime/scheduler_internal.h"
#include <stdlib.h>
#include <string.h>

/* Where they pay: rows of a step on the host cost nearly as much each from there on. */
enum { DRAFT_ROWS_HOST = 8, DRAFT_ROWS_GPU = 256, DRAFT_REST = 32 };
static const f64 DRAFT_LEAST = 0.3;

/* Rows of a step in which drafts are. */
static i64 draft_rows(const scheduler *s) {
    if (!engine_backend(s->g)->gpu) return DRAFT_ROWS_HOST;
    return s->g->lim.deterministic ? DECODE_ROWS : DRAFT_ROWS_GPU;
}

static bool has_model(const scheduler *s) { return s->o.draft_tokens && engine_draft_steps(s->g); }

/* ---- Proposals ---- */

static i64 take_guesses(const task *t, i32 *to, i64 most) {
    const i64 n = t->guessed_at == t->n ? min_i64(t->n_guesses, most) : 0;
    memcpy(to, t->guesses, (size_t)n * sizeof *to);
    return n;
}

/* Writes drafts behind t's tokens, at most `most`; returns how many. */
static i64 propose(scheduler *s, task *t, i64 most) {
    most = min_i64(min_i64(most, s->o.draft_tokens), t->r.n_prompt + t->r.max_new - t->n - 1);
    if (most < 1 || t->draft_rest > 0 || !tokens_room(t, t->n + most)) return 0;
    i32 *to = t->tokens + t->n;
    const i64 n = has_model(s) ? take_guesses(t, to, most) : ngram_propose(&t->ngram, t->tokens, t->n, to, most);
    return n && takes_pages(s, t, t->n + n) ? n : 0;
}

i64 drafts_plan(scheduler *s, i64 answers, i64 most) {
    i64 rows = 0, all = 0;
    for (i64 i = 0; i < s->n_running; i++) s->running[i]->n_draft = 0, rows += s->running[i]->n_step;
    if (!s->o.draft_tokens || !answers) return 0;
    most = min_i64(draft_rows(s) - rows, most);
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        if (!t->n_step || t->n_kv + t->n_step < t->n || in_prompt(t)) continue;
        if (t->draft_rest > 0) t->draft_rest--;
        t->n_draft = propose(s, t, most - all);
        all += t->n_draft;
    }
    return all;
}

bool drafts_expected(scheduler *s, task *t, i64 answers) {
    i32 id;
    if (has_model(s)) return true;
    return s->o.draft_tokens && answers < draft_rows(s) && !t->draft_rest &&
           ngram_propose(&t->ngram, t->tokens, t->n, &id, 1);
}

/* ---- Results ---- */

void drafts_begin(scheduler *s, const batch *b) {
    for (i64 i = 0; i < b->n_spans; i++) s->drafts.came_true[i] = b->tasks[i] ? 0 : -1;
}

/* As if rows had drawn what makes so many of the span's n drafts come true that the mean is what was asked for. outs:
 * from the row before the drafts on. */
static void pin_span(scheduler *s, out_row *outs, i64 n) {
    s->drafts.pinned_due += s->o.draft_pinned - 1;
    const i64 come_true = min_i64((i64)s->drafts.pinned_due, n);
    s->drafts.pinned_due -= (f64)come_true;
    for (i64 i = 0; i <= n; i++) {
        if (i < come_true) outs[i].id = outs[i + 1].draft;
        if (i < n && i == come_true && outs[i].id == outs[i + 1].draft)
            outs[i].id = (i32)((outs[i].id + 1) % s->g->config.vocab);
    }
}

void drafts_pin(scheduler *s, batch *b) {
    if (s->o.draft_pinned <= 0) return;
    for (i64 i = 0; i + 1 < b->n_outs; i++) {
        const out_row *o = &b->outs[i];
        if (o->kind == OUT_NEXT && o->t && b->outs[i + 1].kind == OUT_DRAFT && b->outs[i + 1].span == o->span)
            pin_span(s, &b->outs[i], b->drafts[o->span]);
    }
}

/* Of n drafts so many came true. */
static void note_share(task *t, i64 n, i64 came_true) {
    t->draft_share += ((f64)came_true / (f64)n - t->draft_share) / 4;
    if (t->draft_share >= DRAFT_LEAST) return;
    t->draft_rest = DRAFT_REST;
    t->draft_share = DRAFT_HOPE;
}

/* Drafts behind the end of an answer were not tried. */
void drafts_count(scheduler *s, const batch *b) {
    sched_stats *p = &s->stats;
    pthread_mutex_lock(&s->lock);
    for (i64 i = 0; i < b->n_spans; i++) {
        task *t = b->tasks[i];
        const i64 came_true = s->drafts.came_true[i], n = t ? b->drafts[i] : min_i64(b->drafts[i], came_true);
        if (!b->drafts[i] || came_true < 0) continue;
        p->draft_rounds++, p->draft_tokens += n, p->draft_true += came_true;
        for (i64 k = 0; k < min_i64(n, SCHED_DRAFTS_MOST); k++) p->draft_at[k]++, p->draft_true_at[k] += k < came_true;
        if (t && !has_model(s)) note_share(t, n, came_true);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- The draft model's pass ---- */

status drafts_open(scheduler *s, err *e) {
    const size_t run = (size_t)s->g->max_running;
    draft_pass *d = &s->drafts;
    d->spans = calloc(run, sizeof *d->spans);
    d->tasks = calloc(run, sizeof *d->tasks);
    d->ids = calloc(run, DRAFT_STEPS_MOST * sizeof *d->ids);
    d->came_true = calloc(run, sizeof *d->came_true);
    if (d->spans && d->tasks && d->ids && d->came_true) return ST_OK;
    return err_nomem(e, "drafts", run * DRAFT_STEPS_MOST * sizeof *d->ids);
}

void drafts_close(scheduler *s) {
    void *const all[] = {s->drafts.spans, s->drafts.tasks, s->drafts.ids, s->drafts.came_true};
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

/* Is t an answer that goes on with its last token, and are there pages for what is guessed behind it? */
static bool guesses(scheduler *s, task *t, i64 steps) {
    const i64 rows = t->n - 2 + steps; /* the first guess stands at the token before the last */
    return s->drafts.n_guessing < s->g->draft_lim.sequences && t->n_kv >= t->r.n_prompt && t->n_kv == t->n - 1 &&
           rows <= t->r.n_prompt + t->r.max_new && takes_pages(s, t, rows);
}

static void add_draft_span(scheduler *s, const batch *b, i64 i, i64 steps) {
    draft_pass *d = &s->drafts;
    task *t = b->tasks[i];
    const model_span *p = &b->spans[i];
    const i64 n = t ? min_i64(min_i64(p->n, t->n_kv - p->pos0), t->n - 1 - p->pos0) : 0;
    if (n < 1) return;
    const bool guess = guesses(s, t, steps);
    if (guess) d->tasks[d->n_guessing++] = t;
    d->spans[d->batch.n_spans++] = (draft_span){.first = p->first,
                                                .n = n,
                                                .pos0 = p->pos0,
                                                .following = t->tokens + p->pos0 + 1,
                                                .pages = t->pages,
                                                .guess = guess};
}

status drafts_queue(scheduler *s, const batch *b, err *e) {
    draft_pass *d = &s->drafts;
    if (!has_model(s)) return ST_OK;
    const i64 steps = min_i64(s->o.draft_tokens, engine_draft_steps(s->g));
    d->n_guessing = 0;
    d->batch = (draft_batch){.spans = d->spans, .steps = steps, .ids = d->ids};
    for (i64 i = 0; i < b->n_spans; i++) add_draft_span(s, b, i, steps);
    return d->batch.n_spans ? engine_queue_drafts(s->g, &d->batch, e) : ST_OK;
}

status drafts_collect(scheduler *s, err *e) {
    draft_pass *d = &s->drafts;
    if (!d->batch.n_spans) return ST_OK;
    status st = engine_collect_drafts(s->g, &d->batch, e);
    i64 bad = 0;
    for (i64 i = 0; st == ST_OK && i < d->n_guessing; i++) {
        task *t = d->tasks[i];
        const i32 *ids = d->ids + i * d->batch.steps;
        i64 n = 0;
        while (n < d->batch.steps && ids[n] >= 0) n++;
        bad += n < d->batch.steps;
        if (!t) continue;
        memcpy(t->guesses, ids, (size_t)n * sizeof *ids);
        t->n_guesses = n, t->guessed_at = t->n;
    }
    d->batch.n_spans = 0;
    if (!bad) return st;
    pthread_mutex_lock(&s->lock);
    s->stats.draft_bad += bad;
    pthread_mutex_unlock(&s->lock);
    return st;
}

void drafts_forget(scheduler *s, const task *t) {
    for (i64 i = 0; i < s->drafts.n_guessing; i++)
        if (s->drafts.tasks[i] == t) s->drafts.tasks[i] = NULL;
}
