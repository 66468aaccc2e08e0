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

static draft_kind draft_kind_of(const task *t) {
    return t->r.filter ? DRAFT_FILTERED : t->r.sampling.temperature > 0 ? DRAFT_DRAWN : DRAFT_GREEDY;
}

/* ---- Proposals ---- */

/* Penalties look at the tokens in front of a row, which stand in one place for path 0 alone. */
static bool may_branch(const scheduler *s, const task *t) {
    const sampling *p = &t->r.sampling;
    return p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0 &&
           s->drafts.n_trees < s->g->draft_lim.sequences;
}

/* Path 0 of t's guesses to `to`, at most `depth` tokens; behind it as many nodes as `rows` leaves, where no path is
 * deeper: task.n_branch. Returns the depth. */
static i64 take_guesses(const scheduler *s, task *t, i32 *to, i64 depth, i64 rows) {
    const draft_tree *guesses = &t->guesses;
    const i64 trunk = draft_tree_trunk(guesses), deepest = draft_tree_depth(guesses);
    if (t->guessed_at != t->n) return 0;
    t->n_draft = min_i64(trunk, min_i64(depth, rows));
    for (i64 i = 0; i < t->n_draft; i++) to[i] = guesses->nodes[i].id;
    if (t->n_draft < trunk || deepest > depth || !may_branch(s, t)) return t->n_draft;
    t->n_branch = min_i64(guesses->n, rows) - trunk;
    return t->n_branch ? deepest : trunk;
}

/* Writes drafts behind t's tokens, at most `rows` in all, and counts them in n_draft and n_branch. */
static void propose(scheduler *s, task *t, i64 rows) {
    i64 depth = min_i64(s->o.draft_tokens, t->r.n_prompt + t->r.max_new - t->n - 1);
    if (drafts_by_model(s)) depth = min_i64(depth, *draft_class(&s->drafts.chosen, draft_kind_of(t), t->n));
    rows = min_i64(rows, s->o.draft_tokens);
    if (rows < 1 || depth < 1 || t->draft_rest > 0 || !tokens_room(t, t->n + min_i64(depth, rows))) return;
    i32 *to = t->tokens + t->n;
    i64 deep;
    if (drafts_by_model(s))
        deep = take_guesses(s, t, to, depth, rows);
    else
        deep = t->n_draft = ngram_propose(&t->ngram, t->tokens, t->n, to, min_i64(depth, rows));
    if (!deep || !takes_pages(s, t, t->n + deep)) t->n_draft = t->n_branch = 0;
    s->drafts.n_trees += t->n_branch > 0;
}

i64 drafts_plan(scheduler *s, i64 answers, i64 most) {
    i64 rows = 0, all = 0;
    s->drafts.n_trees = 0;
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        t->n_draft = t->n_branch = 0, rows += t->n_step;
    }
    if (!s->o.draft_tokens || !answers) return 0;
    most = min_i64(draft_rows(s) - rows, most);
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        if (!t->n_step || t->n_kv + t->n_step < t->n || in_prompt(t) || t->check_left) continue;
        propose(s, t, most - all);
        all += t->n_draft + t->n_branch;
    }
    return all;
}

bool drafts_expected(scheduler *s, const batch *now, task *t) {
    i32 id;
    if (drafts_by_model(s)) return !now->kept;
    return s->o.draft_tokens && now->n_spans < draft_rows(s) && !t->draft_rest &&
           ngram_propose(&t->ngram, t->tokens, t->n, &id, 1);
}

/* ---- Branches ---- */

static i64 slot_at(i32 page, i64 position) { return (i64)page * KV_PAGE + position % KV_PAGE; }

/* KV rows that a branch from position `first` on has in common with what it follows, which begins in its first page at
 * `from`: the answer's own, and the drafts in front of it, from the out `parent` back. */
static void share_rows(const task *t, batch *b, const model_span *to, i64 parent) {
    const i64 last = t->n - 1;
    i64 position = to->pos0 - 1;
    for (i64 o = parent; position > last; position--, o = b->outs[o].parent)
        b->copies[b->n_copies++] =
            (kv_pair){slot_at(span_page(&b->spans[b->outs[o].span], position / KV_PAGE), position),
                      slot_at(span_page(to, position / KV_PAGE), position)};
    for (; position >= to->branch_from * KV_PAGE; position--)
        b->copies[b->n_copies++] = (kv_pair){slot_at(t->pages[position / KV_PAGE], position),
                                             slot_at(span_page(to, position / KV_PAGE), position)};
}

/* The next of the batch's spans: a path of t's tree, with pages of its own from that of the token behind the answer's
 * last on. */
static model_span *add_branch(const scheduler *s, const task *t, batch *b, i64 depth, i64 number) {
    model_span *p = &b->spans[b->n_spans];
    i32 *pages = b->branch_pages + b->n_spans * BRANCH_PAGES;
    const i64 from = t->n / KV_PAGE;
    for (i64 k = 0; k < BRANCH_PAGES; k++) /* rows are copied between a page and the branch's in its stead */
        pages[k] = engine_branch_page(s->g, b->n_trees, number, k, t->pages[min_i64(from + k, t->n_pages - 1)]);
    *p = (model_span){.first = b->n_rows,
                      .pos0 = t->n - 1 + depth,
                      .pages = t->pages,
                      .absorbed = true,
                      .branch = pages,
                      .branch_from = from};
    b->drafts[b->n_spans] = 0;
    b->branch[b->n_spans] = true;
    b->tasks[b->n_spans++] = (task *)(uintptr_t)t;
    return p;
}

void drafts_add_branches(scheduler *s, batch *b, task *t) {
    const draft_node *nodes = t->guesses.nodes;
    i64 outs[DRAFT_NODES_MOST];
    model_span *p = NULL;
    for (i64 i = 0; i < t->n_draft; i++) outs[i] = b->n_outs - t->n_draft + i;
    for (i64 i = t->n_draft; i < t->n_draft + t->n_branch; i++) {
        const i64 parent = nodes[i].parent < 0 ? outs[0] - 1 : outs[nodes[i].parent];
        if (nodes[i].path != nodes[i - 1].path) {
            p = add_branch(s, t, b, nodes[i].depth, nodes[i].path - 1);
            share_rows(t, b, p, parent);
        }
        outs[i] = b->n_outs;
        b->ids[b->n_rows] = nodes[i].id;
        p->n++, b->drafts[b->n_spans - 1]++;
        add_draft_out(b, t, t->n - 1 + nodes[i].depth, nodes[i].id, parent);
    }
    b->n_trees++;
}

void drafts_keep_branch(scheduler *s, const batch *b, const out_row *o) {
    const model_span *p = &b->spans[o->span];
    if (!p->branch) return;
    s->drafts.kept[s->drafts.n_kept++] = (kv_pair){slot_at(span_page(p, o->position / KV_PAGE), o->position),
                                                   slot_at(o->t->pages[o->position / KV_PAGE], o->position)};
}

status drafts_copy_kept(scheduler *s, err *e) {
    const i64 n = s->drafts.n_kept;
    s->drafts.n_kept = 0;
    return engine_copy_kv(s->g, s->drafts.kept, n, e);
}

/* ---- How many ---- */

i64 drafts_next(scheduler *s) {
    draft_classes answers = {0};
    if (s->drafts.next >= 0) return s->drafts.next;
    for (i64 i = 0; i < s->n_running; i++) {
        const task *t = s->running[i];
        if (!in_prompt(t)) ++*draft_class(&answers, draft_kind_of(t), t->n);
    }
    s->drafts.next = draft_policy_choose(&s->drafts.policy, &answers, draft_rows(s), &s->drafts.chosen);
    return s->drafts.next;
}

/* Of an answer in a step, whose first span is i: its drafts, how deep they go, and how many came true. */
typedef struct {
    i64 n, depth, came_true;
} draft_round;

static draft_round round_of(const scheduler *s, const batch *b, i64 i) {
    const i64 first = b->spans[i].pos0 + b->spans[i].n - b->drafts[i]; /* the first draft's position */
    draft_round r = {.n = b->drafts[i], .depth = b->drafts[i], .came_true = s->drafts.came_true[i]};
    for (i64 k = i + 1; k < b->n_spans && b->branch[k]; k++) {
        r.n += b->drafts[k], r.came_true += s->drafts.came_true[k];
        r.depth = max_i64(r.depth, b->spans[k].pos0 + b->spans[k].n - first);
    }
    return r;
}

i64 drafts_answers(const scheduler *s, const batch *b) {
    i64 n = 0;
    for (i64 i = 0; b && i < b->n_spans; i++) n += b->spans[i].absorbed && !b->branch[i];
    for (i64 i = 0; !b && i < s->n_running; i++) n += !in_prompt(s->running[i]);
    return n;
}

/* Batches of a pipeline have a share of the answers each, and may come unevenly: noted are those together that have as
 * many answers as there are, as one step. */
static void note_pipelined(scheduler *s, i64 answers, f64 seconds) {
    draft_pass *d = &s->drafts;
    const i64 all = max_i64(drafts_answers(s, NULL), answers);
    if (!d->pipelined)
        d->n_pipelined = 0, d->pipelined_s = 0; /* the first one goes through all stages */
    else
        d->n_pipelined += answers, d->pipelined_s += seconds;
    d->pipelined = true;
    if (!d->n_pipelined || d->n_pipelined < all) return;
    draft_policy_step(&d->policy, all, 0, 0, d->pipelined_s * (f64)all / (f64)d->n_pipelined);
    d->n_pipelined = 0, d->pipelined_s = 0;
}

/* What a step took from the results of the one before: of two steps that have no more rows of prompts than answers with
 * all drafts would have (where every step has some, nothing would be learnt else). */
static void note_step(scheduler *s, const batch *b) {
    const f64 now = now_s(), before = s->drafts.results_s;
    i64 most = 0, all = 0, answers = 0, prompts = 0;
    for (i64 i = 0; i < b->n_spans; i++) {
        if (!b->spans[i].absorbed) prompts += b->spans[i].n;
        if (!b->spans[i].absorbed || b->branch[i]) continue;
        const i64 depth = round_of(s, b, i).depth;
        most = max_i64(most, depth), all += depth, answers++;
    }
    const bool counts = answers && prompts <= answers * (1 + s->drafts.policy.most);
    s->drafts.results_s = counts ? now : 0;
    if (!b->pipelined || !counts || before <= 0) s->drafts.pipelined = false;
    if (!counts || before <= 0 || most > s->drafts.policy.most) return;
    if (b->pipelined)
        note_pipelined(s, answers, now - before);
    else
        draft_policy_step(&s->drafts.policy, answers, most, all, now - before);
}

/* ---- Results ---- */

void drafts_rest(task *t) { t->draft_rest = DRAFT_REST; }

void drafts_discard(batch *b, i64 i) {
    drafts_rest(b->tasks[i]);
    for (i64 k = 0; k < b->n_outs; k++)
        if (b->outs[k].span == i) b->outs[k].kind = OUT_UNUSED;
}

void drafts_begin(scheduler *s, const batch *b) {
    for (i64 i = 0; i < b->n_spans; i++) s->drafts.of[i] = b->tasks[i], s->drafts.came_true[i] = b->tasks[i] ? 0 : -1;
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
    if (d->pinned_chance <= 0)
        d->pinned_chance =
            pinned_chance(s->o.draft_pinned, drafts_by_model(s) ? engine_draft_steps(s->g) : s->o.draft_tokens);
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
        if (o->kind == OUT_NEXT && o->t && !o->t->r.filter && b->outs[i + 1].kind == OUT_DRAFT &&
            b->outs[i + 1].span == o->span)
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

/* t, whose spans begin with span i, goes back to the first row of its round, whose n tokens are drawn again, a row a
 * step. Not if that row was discarded. */
static void check_round(scheduler *s, const batch *b, i64 i, i64 n) {
    task *t = b->tasks[i];
    i64 left = n;
    if (s->o.draft_verify_rate <= 0 || s->o.draft_pinned > 0) return;
    for (i64 o = 0; o < b->n_outs && left > 0; o++)
        if (b->outs[o].t == t && b->outs[o].taken) t->check_states[--left] = b->outs[o].state;
    s->drafts.check_due += left ? 0 : s->o.draft_verify_rate;
    if (left || s->drafts.check_due < 1) return;
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

/* Another step of each: counted with its results, because steps that were queued ahead are not planned. */
static void note_rest(const batch *b) {
    for (i64 i = 0; i < b->n_spans; i++)
        if (b->tasks[i] && b->spans[i].absorbed && !b->branch[i] && b->tasks[i]->draft_rest > 0)
            b->tasks[i]->draft_rest--;
}

/* Drafts behind the end of an answer were not tried. */
static void count_round(scheduler *s, const batch *b, i64 i) {
    sched_stats *p = &s->stats;
    task *t = b->tasks[i];
    const draft_round r = round_of(s, b, i);
    const i64 tried = t ? r.depth : min_i64(r.depth, r.came_true);
    if (!r.n || r.came_true < 0) return;
    p->draft_rounds++, p->draft_true += r.came_true;
    p->draft_tokens += t ? r.n : min_i64(r.n, r.came_true);
    for (i64 k = 0; k < min_i64(tried, SCHED_DRAFTS_MOST); k++)
        p->draft_at[k]++, p->draft_true_at[k] += k < r.came_true;
    if (!t) return;
    if (!drafts_by_model(s) && !s->o.draft_always) note_share(t, r.n, r.came_true);
    check_round(s, b, i, 1 + r.came_true);
    draft_policy_round(&s->drafts.policy, draft_kind_of(t), t->n, r.depth, r.came_true);
}

void drafts_count(scheduler *s, const batch *b) {
    sched_stats *p = &s->stats;
    note_rest(b);
    pthread_mutex_lock(&s->lock);
    for (i64 i = 0; i < b->n_spans; i++)
        if (!b->branch[i]) count_round(s, b, i);
    if (b->n_spans && b->spans[0].absorbed) p->draft_steps[min_i64(round_of(s, b, 0).n, SCHED_DRAFTS_MOST)]++;
    pthread_mutex_unlock(&s->lock);
    note_step(s, b);
}
