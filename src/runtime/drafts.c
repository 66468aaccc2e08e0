/* runtime/drafts.c: what is proposed to follow the answers: by a draft model, or by what followed before. */
#include "base/log.h"
#include "runtime/scheduler_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where they pay: rows of a step on the host cost nearly as much each from there on. */
enum { DRAFT_ROWS_HOST = 8, DRAFT_ROWS_GPU = 256, DRAFT_REST = 32 };
static const f64 DRAFT_LEAST = 0.3;

bool drafts_by_model(const scheduler *s) { return s->o.draft_tokens && engine_draft_steps(s->g); }

/* Rows of a step in which drafts are. */
static i64 draft_rows(const scheduler *s) {
    if (!engine_backend(s->g)->gpu) return drafts_by_model(s) ? DECODE_ROWS : DRAFT_ROWS_HOST;
    return s->g->lim.deterministic ? DECODE_ROWS : DRAFT_ROWS_GPU;
}

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
    const i64 n = drafts_by_model(s) ? take_guesses(t, to, most) : ngram_propose(&t->ngram, t->tokens, t->n, to, most);
    return n && takes_pages(s, t, t->n + n) ? n : 0;
}

i64 drafts_plan(scheduler *s, i64 answers, i64 most) {
    i64 rows = 0, all = 0;
    for (i64 i = 0; i < s->n_running; i++) s->running[i]->n_draft = 0, rows += s->running[i]->n_step;
    if (!s->o.draft_tokens || !answers) return 0;
    most = min_i64(draft_rows(s) - rows, most);
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        if (!t->n_step || t->n_kv + t->n_step < t->n || in_prompt(t) || t->check_left) continue;
        if (t->draft_rest > 0) t->draft_rest--;
        t->n_draft = propose(s, t, most - all);
        all += t->n_draft;
    }
    return all;
}

bool drafts_expected(scheduler *s, const batch *now, task *t) {
    i32 id;
    if (drafts_by_model(s)) return !now->kept;
    return s->o.draft_tokens && now->n_spans < draft_rows(s) && !t->draft_rest &&
           ngram_propose(&t->ngram, t->tokens, t->n, &id, 1);
}

/* ---- How many ---- */

static draft_kind draft_kind_of(const task *t) {
    return t->r.filter ? DRAFT_FILTERED : t->r.sampling.temperature > 0 ? DRAFT_DRAWN : DRAFT_GREEDY;
}

i64 drafts_next(scheduler *s) {
    f64 chances[DRAFT_STEPS_MOST] = {0};
    i64 answers = 0;
    if (s->drafts.next >= 0) return s->drafts.next;
    for (i64 i = 0; i < s->n_running; i++) {
        const task *t = s->running[i];
        if (in_prompt(t)) continue;
        answers++;
        for (i64 k = 0; k < s->drafts.policy.most; k++)
            chances[k] += draft_policy_chance(&s->drafts.policy, draft_kind_of(t), t->n, k + 1);
    }
    for (i64 k = 0; k < s->drafts.policy.most; k++) chances[k] /= (f64)max_i64(answers, 1);
    s->drafts.next = draft_policy_choose(&s->drafts.policy, answers, draft_rows(s), chances);
    return s->drafts.next;
}

/* What a step took from the results of the one before: of two steps without prompts, the second of which gave most of
 * its answers the same number of drafts. */
static void note_step(scheduler *s, const batch *b) {
    const f64 now = now_s(), before = s->drafts.results_s;
    i64 most = 0, all = 0;
    bool prompts = false;
    for (i64 i = 0; i < b->n_spans; i++) {
        prompts = prompts || !b->spans[i].absorbed;
        most = max_i64(most, b->drafts[i]), all += b->drafts[i];
    }
    s->drafts.results_s = prompts ? 0 : now;
    if (prompts || before <= 0 || 4 * all < 3 * most * b->n_spans || most > s->drafts.policy.most) return;
    draft_policy_step(&s->drafts.policy, b->n_spans, most, now - before);
}

/* ---- Results ---- */

void drafts_rest(task *t) { t->draft_rest = DRAFT_REST; }

void drafts_discard(batch *b, i64 i) {
    drafts_rest(b->tasks[i]);
    for (i64 k = 0; k < b->n_outs; k++)
        if (b->outs[k].span == i) b->outs[k].kind = OUT_UNUSED;
}

void drafts_begin(scheduler *s, const batch *b) {
    for (i64 i = 0; i < b->n_spans; i++) s->drafts.came_true[i] = b->tasks[i] ? 0 : -1;
}

/* The chance of each draft, if those before it came true, with which n of them give so many tokens a step. */
static f64 pinned_chance(f64 tokens, i64 n) {
    f64 low = 0, high = 1;
    for (int i = 0; i < 60; i++) {
        const f64 mid = (low + high) / 2;
        f64 sum = 1, all = 1;
        for (i64 k = 0; k < n; k++) sum += all *= mid;
        *(sum < tokens ? &low : &high) = mid;
    }
    return (low + high) / 2;
}

/* As if rows had drawn what makes drafts come true by that chance. outs: from the row before the n drafts on. Rounds
 * take numbers that are spread evenly, so that few of them have the mean. */
static void pin_span(scheduler *s, out_row *outs, i64 n) {
    draft_pass *d = &s->drafts;
    i64 come_true = 0;
    if (d->pinned_chance <= 0) d->pinned_chance = pinned_chance(s->o.draft_pinned, s->o.draft_tokens);
    d->pinned_at = fmod(d->pinned_at + 0.61803398874989485, 1);
    for (f64 all = d->pinned_chance; come_true < n && d->pinned_at < all; all *= d->pinned_chance) come_true++;
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

/* t goes back to the first row of its round, whose n tokens are drawn again, a row a step. */
static void check_round(scheduler *s, task *t, i64 n) {
    if (s->o.draft_verify_rate <= 0 || s->o.draft_pinned > 0 || t->r.filter) return;
    s->drafts.check_due += s->o.draft_verify_rate;
    if (s->drafts.check_due < 1) return;
    s->drafts.check_due -= 1;
    t->n_kv -= n, t->check_left = n;
}

void drafts_check(scheduler *s, const out_row *o) {
    task *t = o->t;
    const i32 kept = t->tokens[o->position + 1];
    t->check_left--;
    pthread_mutex_lock(&s->lock);
    s->stats.draft_checked++;
    s->stats.draft_differ += o->id != kept;
    pthread_mutex_unlock(&s->lock);
    if (o->id != kept)
        log_warn("request %llu, output token %lld: %d was kept with drafts, %d is drawn without",
                 (unsigned long long)t->id, (long long)(o->position + 1 - t->r.n_prompt), kept, o->id);
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
        if (t && !drafts_by_model(s)) note_share(t, n, came_true);
        if (t) check_round(s, t, 1 + came_true);
        if (t) draft_policy_round(&s->drafts.policy, draft_kind_of(t), t->n, n, came_true);
    }
    if (b->n_spans && b->spans[0].absorbed) p->draft_steps[min_i64(b->drafts[0], SCHED_DRAFTS_MOST)]++;
    pthread_mutex_unlock(&s->lock);
    note_step(s, b);
}
