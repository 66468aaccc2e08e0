/* runtime/batch.c: the rows of a step, the forward pass, and what follows from its results. */
#include "base/log.h"
#include "runtime/scheduler_internal.h"
#include <stdlib.h>
#include <string.h>

/* Rows that t could run: the rest of its prompt, up to a picture that is not there yet, or of what follows it. */
static i64 pending(const task *t) { return (in_prompt(t) ? t->media_ready : t->n) - t->n_kv - t->n_flight; }
/* What it runs next is known: a token that follows a prompt under way, or another that is, is not. */
static bool is_ready(const task *t) { return !is_arriving(t) && (!t->n_flight || in_prompt(t)); }
static bool wants_prompt_rows(const task *t) {
    return t->r.prompt_logprobs && in_prompt(t) && t->prompt_rows_done < t->r.n_prompt - 1;
}

/* What is left of a step's plan; of its chunk, what each rank that attends for sequences of its own may have. */
typedef struct {
    i64 chunk, replay, spans, logits, of_share[COMM_RANKS_MAX];
} budget;

static i64 chunk_left(const budget *b, i64 share) { return min_i64(b->chunk, b->of_share[share]); }

/* Gives t up to `most` more rows. */
static void give(const scheduler *s, task *t, i64 most, budget *b) {
    const i64 share = task_share_of(s, t);
    i64 n = min_i64(min_i64(pending(t) - t->n_step, most), chunk_left(b, share));
    if (!in_prompt(t)) n = min_i64(n, b->replay);
    if (wants_prompt_rows(t)) n = min_i64(n, b->logits);
    if (n <= 0 || (in_prompt(t) && !t->n_step && !b->spans)) return;
    if (in_prompt(t) && !t->n_step) b->spans--;
    if (!in_prompt(t)) b->replay -= n;
    if (wants_prompt_rows(t)) b->logits -= n;
    b->chunk -= n;
    b->of_share[share] -= n;
    t->n_step += n;
}

static bool shorter(const task *a, const task *b) {
    if (a->r.priority != b->r.priority) return a->r.priority > b->r.priority;
    return pending(a) != pending(b) ? pending(a) < pending(b) : a->id < b->id;
}

/* Has t no more to run than the last token that was drawn, and those that were forced behind it? Else it was preempted,
 * or so much was forced that it takes its turn with the prompts. */
enum { FORCED_MOST = 64 };
static bool is_decoding(const task *t) {
    return !in_prompt(t) && (t->check_left || pending(t) <= 1 + min_i64(t->n_forced, FORCED_MOST));
}

/* Rows that may ride along with those of so many answers, whose tokens were forced. A GPU's kernels and recordings are
 * made for up to DECODE_ROWS; a step beyond costs more than the ones it saves. */
static i64 spare_rows(const scheduler *s, i64 answers, i64 most) {
    return engine_backend(s->g)->gpu && answers <= DECODE_ROWS ? DECODE_ROWS - answers : most - answers;
}

/* Every decoding task runs its token, or of a pipeline's batch its share of them, and those that were forced behind it
 * as far as there is room. *waiting: of such a batch, if all were ready. */
static i64 plan_decoding(scheduler *s, i64 *replay, i64 *waiting) {
    i64 answers = 0, all = 0;
    for (i64 i = 0; i < s->n_running; i++) all += is_decoding(s->running[i]);
    const i64 most = *waiting = s->n_flight || !s->alone ? ceil_div(all, s->shares) : all;
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        answers += t->n_step = answers < most && is_ready(t) && is_decoding(t);
    }
    i64 spare = spare_rows(s, answers, *replay);
    *replay -= answers;
    for (i64 i = 0; i < s->n_running && spare > 0; i++) {
        task *t = s->running[i];
        const i64 more = t->n_step && !t->check_left ? min_i64(pending(t) - 1, spare) : 0;
        t->n_step += more, *replay -= more, spare -= more;
    }
    return answers;
}

/* ---- The plan ---- */

/* Of the chunk, or with `apart` of its rank's part, the task that began first gets half if others want some, the rest
 * goes to the shortest ones: a short prompt does not wait for a long one, and a long one keeps half the speed. */
static void give_chunk(const scheduler *s, task *first, task **rest, i64 n, bool apart, budget *b) {
    const i64 share = task_share_of(s, first), most = chunk_left(b, share);
    bool others = false;
    for (i64 i = 0; i < n; i++) others |= !apart || task_share_of(s, rest[i]) == share;
    give(s, first, others ? ceil_div(most, 2) : most, b);
    for (i64 i = 0; i < n; i++) give(s, rest[i], b->chunk, b);
    give(s, first, b->chunk, b);
}

/* Ranks that attend for sequences of their own wait for the one with most rows: first each has as much of the chunk,
 * then what is left is for all, also where one rank's prompts alone wait. (Half a chunk there, so that what comes
 * meanwhile is soon beside it, made two prompts at a time on two ranks 8 % faster, one 8 % slower and four 2 %.) Not
 * where priorities differ: the higher one does not stand back for other ranks. */
static void give_in_shares(const scheduler *s, task *first, task **rest, i64 n, budget *b) {
    bool waits[COMM_RANKS_MAX] = {false}, equal = true;
    i64 shares = 0;
    waits[task_share_of(s, first)] = true;
    for (i64 i = 0; i < n; i++) {
        waits[task_share_of(s, rest[i])] = true;
        equal &= rest[i]->r.priority == first->r.priority;
    }
    for (i64 i = 0; i < COMM_RANKS_MAX; i++) shares += waits[i];
    for (int apart = equal && shares > 1; apart >= 0; apart--) {
        for (i64 i = 0; i < COMM_RANKS_MAX; i++) b->of_share[i] = apart ? ceil_div(b->chunk, shares) : b->chunk;
        give_chunk(s, first, rest, n, apart, b);
    }
}

/* Every decoding task runs. */
static void plan(scheduler *s, task **rest, i64 *waiting) {
    const model_limits *l = &s->g->lim;
    budget b = {0, l->decode_rows, l->prefill_spans, l->logit_rows - s->g->max_running, {0}};
    task *first = NULL;
    i64 n = 0;
    const i64 answers = plan_decoding(s, &b.replay, waiting);
    const i64 drafts = drafts_plan(s, answers, min_i64(b.replay, b.logits));
    b.replay -= drafts, b.logits -= drafts;
    for (i64 i = 0; i < s->n_running; i++) {
        task *t = s->running[i];
        if (t->n_step || !is_ready(t) || (s->shares > 1 && is_decoding(t))) continue;
        if (!first) {
            first = t;
            continue;
        }
        i64 at = n++; /* few: sorted as they come */
        for (; at > 0 && shorter(t, rest[at - 1]); at--) rest[at] = rest[at - 1];
        rest[at] = t;
    }
    if (!first) return;
    b.chunk = prefill_budget_allowance(&s->budget, max_i64(answers, *waiting), n + 1);
    give_in_shares(s, first, rest, n, &b);
}

static void add_out(batch *b, task *t, i64 row, i64 position, out_kind kind) {
    b->out_index[b->n_outs] = (i32)row;
    out_row *o = &b->outs[b->n_outs++];
    o->t = t;
    o->position = position;
    o->kind = kind;
    o->span = b->n_spans - 1;
    o->mask = o->n_top = 0;
    o->taken = false;
}

void add_draft_out(batch *b, task *t, i64 position, i32 id, i64 parent) {
    add_out(b, t, b->n_rows++, position, OUT_DRAFT);
    b->outs[b->n_outs - 1].draft = id;
    b->outs[b->n_outs - 1].parent = parent;
}

/* every: an out for each row, also where nobody needs it. */
static void add_span(scheduler *s, batch *b, task *t, bool every) {
    const i64 first = t->n_kv + t->n_flight, end = first + t->n_step, row = b->n_rows, n = t->n_step + t->n_draft;
    b->spans[b->n_spans] =
        (model_span){.first = row, .n = n, .pos0 = first, .pages = t->pages, .absorbed = !in_prompt(t)};
    if (in_prompt(t)) media_of_span(t, &b->spans[b->n_spans]);
    b->drafts[b->n_spans] = t->n_draft;
    b->branch[b->n_spans] = false;
    b->tasks[b->n_spans++] = t;
    b->n_answers++;
    memcpy(b->ids + row, t->tokens + first, (size_t)n * sizeof *t->tokens);
    b->n_rows += t->n_step;
    if (t->r.prompt_logprobs)
        for (i64 p = max_i64(first, t->prompt_rows_done); p < min_i64(end, t->r.n_prompt - 1); p++)
            add_out(b, t, row + p - first, p, OUT_PROMPT);
    for (i64 p = first; every && !t->check_left && p < end - (end == t->n); p++)
        add_out(b, t, row + p - first, p, OUT_UNUSED);
    if (t->check_left)
        add_out(b, t, row, first, OUT_CHECK);
    else if (end == t->n)
        add_out(b, t, row + end - 1 - first, end - 1, OUT_NEXT);
    for (i64 i = 0; i < t->n_draft; i++) add_draft_out(b, t, end + i, t->tokens[end + i], b->n_outs - 1);
    if (t->n_branch) drafts_add_branches(s, b, t);
}

/* Of a step that a device may have recorded, or that another may be queued behind, all rows' logits are wanted. */
static bool wants_every_row(const scheduler *s) {
    i64 rows = 0;
    for (i64 i = 0; i < s->n_running; i++) {
        if (s->running[i]->n_step && in_prompt(s->running[i])) return false;
        rows += s->running[i]->n_step + s->running[i]->n_draft + s->running[i]->n_branch;
    }
    return draws_on_device(s) && rows <= s->g->lim.logit_rows;
}

/* Spans in decode form come first; of each form, those for which a rank attends alone stand together. */
void batch_build(scheduler *s, batch *b) {
    const i64 shares = engine_sequence_ranks(s->g);
    plan(s, b->tasks, &b->n_waiting);
    const bool every = wants_every_row(s);
    b->n_rows = b->n_spans = b->n_outs = b->n_answers = b->n_copies = b->n_trees = 0;
    for (i64 k = 0; k < 2 * shares; k++)
        for (i64 i = 0; i < s->n_running; i++) {
            task *t = s->running[i];
            if (t->n_step && in_prompt(t) == (k >= shares) && task_share_of(s, t) == k % shares)
                add_span(s, b, t, every);
        }
}

/* ---- Results ---- */

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

bool tokens_room(task *t, i64 n) {
    if (n <= t->cap) return true;
    const i64 half = t->n + (t->n - t->r.n_prompt) / 2 + 256, most = t->r.n_prompt + t->r.max_new;
    const i64 cap = min_i64(max_i64(half, n), most);
    i32 *grown = cap < n ? NULL : realloc(t->tokens, (size_t)cap * sizeof *grown);
    if (!grown) return false;
    t->tokens = grown;
    t->cap = cap;
    return true;
}

static bool batch_append(task *t, i32 id) {
    if (!tokens_room(t, t->n + 1)) return false;
    t->tokens[t->n++] = id;
    return true;
}

static bool batch_stops(const task *t, i32 id) {
    for (i64 i = 0; i < t->r.n_stop; i++)
        if (t->r.stop_ids[i] == id) return true;
    return false;
}

/* One token more of the answer; false: it has ended. */
static bool add_token(scheduler *s, task *t, i32 id, const out_row *o) {
    if (!batch_append(t, id)) {
        err_nomem(&t->error, "token ids", (u64)t->cap * 4);
        end_task(s, t, SCHED_ERROR, true);
        return false;
    }
    i64 done = ++t->usage.output_tokens;
    s->new_tokens++;
    f64 now = now_s(), before = done == 1 ? t->usage.submitted_s : t->last_token_s;
    if (done == 1) t->usage.first_token_s = now;
    t->last_token_s = now;
    sched_event *ev = push_event(s, t, SCHED_TOKEN);
    ev->gap_s = now - before;
    ev->token = id;
    ev->position = done - 1;
    const bool stops = ev->is_stop = batch_stops(t, id);
    if (t->r.logprobs && o) fill_logprob(ev, o);
    if (stops || done == t->r.max_new) end_task(s, t, stops ? SCHED_STOP : SCHED_LENGTH, true);
    return !stops && done < t->r.max_new;
}

/* Tells t's filter; false: t has ended, because the filter does not take a token that it let come. */
static bool filter_follows(scheduler *s, task *t) {
    const i32 id = t->tokens[t->n - 1];
    if (!t->r.filter) return true;
    t->filter_state = t->filter.next(t->filter.ud, t->filter_state, id);
    if (t->filter_state != TOKEN_FILTER_DEAD) return true;
    err_set(&t->error, ST_LIMIT, "the grammar of the answer has no state behind token %d", id);
    end_task(s, t, SCHED_ERROR, true);
    return false;
}

i64 task_forced(const task *t, i32 *ids, i64 most) {
    if (!t->r.filter || !t->filter.forced || t->r.logprobs) return 0;
    const i64 n = t->filter.forced(t->filter.ud, t->filter_state, ids, most);
    for (i64 i = 0; i < n; i++)
        if (batch_stops(t, ids[i])) return i; /* it would end the answer: the text is spelled otherwise */
    return n;
}

static void token_result(scheduler *s, const out_row *o) {
    enum { AT_A_TIME = 64 };
    task *t = o->t;
    i32 ids[AT_A_TIME];
    bool goes_on = add_token(s, t, o->id, o) && filter_follows(s, t);
    t->n_forced = 0;
    for (i64 n = AT_A_TIME; goes_on && n == AT_A_TIME;) {
        n = task_forced(t, ids, AT_A_TIME);
        for (i64 i = 0; goes_on && i < n; i++) {
            goes_on = add_token(s, t, ids[i], NULL) && filter_follows(s, t);
            s->new_forced++, t->n_forced++;
        }
    }
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
static void span_result(scheduler *s, batch *b, i64 i) {
    task *t = b->tasks[i];
    const model_span *p = &b->spans[i];
    if (!t) return;
    const bool prompt = t->n_kv < t->r.n_prompt;
    const i64 n = p->n - b->drafts[i];
    if (b->pipelined) t->n_flight -= n;
    for (i64 k = 0; k < n; k++) {
        i32 mark = b->bad[p->first + k];
        if (!mark) continue;
        if (b->drafts[i]) return drafts_discard(b, i);
        engine_bad_row(mark, t->tokens[t->n_kv + k], t->n_kv + k, &t->error);
        end_task(s, t, SCHED_ERROR, false);
        return;
    }
    first_prompt_event(s, t);
    t->n_kv += n;
    if (prompt) media_done(s, t);
    if (prompt) cache_prefix(s, t);
}

void forget_rows(scheduler *s, const task *t) {
    drafts_forget(s, t);
    for (i64 k = 0; k < s->n_batches; k++) {
        batch *b = &s->batches[k];
        for (i64 i = 0; i < b->n_spans; i++)
            if (b->tasks[i] == t) b->tasks[i] = NULL;
        for (i64 i = 0; i < b->n_outs; i++)
            if (b->outs[i].t == t) b->outs[i].t = NULL;
    }
}

static void batch_count(scheduler *s, const batch *b, f64 seconds) {
    i64 prompt = 0, good = 0, answers = 0;
    for (i64 i = 0; i < b->n_spans; i++) {
        if (b->spans[i].absorbed)
            answers += !b->branch[i];
        else
            prompt += b->spans[i].n, good += b->tasks[i] ? b->spans[i].n : 0; /* who left had a bad row */
    }
    /* a reader's next token comes when each batch under way has had its turn */
    prefill_budget_note(&s->budget, prompt, b->pipelined ? max_i64(answers, b->n_waiting) : answers,
                        b->pipelined ? seconds * (f64)s->depth : seconds);
    pthread_mutex_lock(&s->lock);
    s->stats.prefilled_tokens += good;
    s->stats.steps++;
    s->stats.ahead += b->queued_ahead;
    s->stats.busy_s += seconds;
    s->stats.step_s = seconds;
    s->stats.batch = (f64)b->n_rows;
    pthread_mutex_unlock(&s->lock);
}

void break_down(scheduler *s, const err *why) {
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

model_batch model_batch_of(const scheduler *s, const batch *b) {
    return (model_batch){.n = b->n_rows,
                         .ids = b->ids,
                         .n_spans = b->n_spans,
                         .spans = b->spans,
                         .n_out = b->n_outs,
                         .out_rows = b->out_index,
                         .logits = s->logits,
                         .draws = b->on_device ? b->draws : NULL,
                         .drawn = b->drawn,
                         .masks = s->masks,
                         .n_masks = b->n_masks,
                         .late_draw = b->late,
                         .keep = b->keep,
                         .tops = b->on_device && b->top_most >= 0 ? b->tops : NULL,
                         .next = b->next,
                         .top_most = b->top_most,
                         .logprobs = b->logprobs,
                         .top_ids = b->top_ids,
                         .bad = b->bad,
                         .copies = b->copies,
                         .n_copies = b->n_copies,
                         .reply = (int)(b - s->batches)};
}

status batch_queue(scheduler *s, batch *b, err *e) {
    const model_batch m = model_batch_of(s, b);
    b->began_s = now_s();
    return engine_queue(s->g, &m, e);
}

/* ---- The step after the one under way ---- */

/* Did a request or an abort come since the step was planned? The next step waits for it. */
static bool news(scheduler *s) {
    pthread_mutex_lock(&s->lock);
    bool any = s->inbox.n || s->any_abort || s->kv_news;
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* Adds what t runs after row `last` of `now`, its last one there: the token that this row draws, or those that are
 * known to follow, at most `spare` beside the first. False: t ends, as far as can be told, or there is no place for its
 * KV rows. */
static bool add_ahead(scheduler *s, const batch *now, i64 last, task *t, batch *b, i64 *spare) {
    const bool open = out_is_open(&now->outs[last]);
    const i64 first = now->outs[last].position + 1, n = open ? 1 : min_i64(t->n - first, 1 + *spare);
    if (open && t->n + 1 - t->r.n_prompt >= t->r.max_new) return false;
    if (!takes_pages(s, t, first + n)) return false;
    *spare -= n - 1;
    b->tasks[b->n_spans] = t;
    b->drafts[b->n_spans] = 0;
    b->branch[b->n_spans] = false;
    b->n_answers++;
    b->spans[b->n_spans++] =
        (model_span){.first = b->n_rows, .n = n, .pos0 = first, .pages = t->pages, .absorbed = true};
    for (i64 i = 0; i < n; i++) {
        b->ids[b->n_rows] = open ? (i32)~last : t->tokens[first + i];
        add_out(b, t, b->n_rows++, first + i, !open && first + i < t->n - 1 ? OUT_UNUSED : OUT_NEXT);
    }
    return true;
}

/* Fills b with the step after `now`, which is under way, if that is known but for the tokens: `now` and it are all
 * of the running answers, in decode form, each row's logits wanted and drawn by the device. The ids of b are those that
 * `now` draws, or known already. */
static bool build_ahead(scheduler *s, const batch *now, batch *b) {
    b->n_rows = b->n_spans = b->n_outs = b->n_answers = b->n_copies = b->n_trees = 0;
    const i64 most = min_i64(model_ahead_rows(engine_model(s->g)), s->g->lim.logit_rows);
    i64 spare = spare_rows(s, now->n_spans, most);
    if (!s->overlap || s->g->profile || !now->on_device || now->n_outs != now->n_rows || now->n_spans > most || news(s))
        return false;
    for (i64 i = 0; i < now->n_spans; i++) {
        task *t = now->tasks[i];
        const i64 last = now->spans[i].first + now->spans[i].n - 1;
        if (!t) continue;
        if (!now->spans[i].absorbed || now->drafts[i] || t->check_left || drafts_expected(s, now, t) ||
            now->keep[last] || !add_ahead(s, now, last, t, b, &spare))
            return false;
    }
    if (!b->n_rows || b->n_spans != s->n_running - s->n_arriving) return false;
    plan_draws(s, b);
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

/* The token that a draft's row has drawn, if the draft came true: it was drawn in the row of the token in front of it,
 * which is the answer's. Where acceptance is pinned, path 0 alone counts. */
static void draft_result(scheduler *s, batch *b, i64 i) {
    out_row *o = &b->outs[i];
    task *t = o->t;
    if (!t || !b->outs[o->parent].taken || t->n_kv != o->position || t->n != o->position + 1 ||
        t->tokens[o->position] != o->draft || (b->branch[o->span] && s->o.draft_pinned > 0))
        return;
    if (b->bad[b->out_index[i]]) return drafts_rest(t);
    t->n_kv++;
    s->drafts.came_true[o->span]++;
    o->taken = true;
    drafts_keep_branch(s, b, o);
    token_result(s, o);
}

void batch_take_results(scheduler *s, batch *b) {
    for (i64 i = 0; i < b->n_spans; i++) span_result(s, b, i);
    drafts_begin(s, b);
    draw_all(s, b);
    drafts_pin(s, b);
    f64 now = now_s();
    batch_count(s, b, now - b->began_s);
    if (s->ahead) s->ahead->began_s = now;
    for (i64 i = 0; i < b->n_outs; i++) {
        out_row *o = &b->outs[i];
        o->taken = o->kind == OUT_NEXT && out_is_open(o);
        if (o->taken) token_result(s, o);
        if (o->kind == OUT_DRAFT) draft_result(s, b, i);
        if (o->kind == OUT_CHECK && o->t) drafts_check(s, o);
        if (o->kind == OUT_PROMPT && o->t) prompt_result(s, o);
    }
    drafts_count(s, b);
    pthread_mutex_lock(&s->lock);
    s->stats.generated_tokens += s->new_tokens;
    s->stats.forced_tokens += s->new_forced;
    pthread_mutex_unlock(&s->lock);
    s->new_tokens = s->new_forced = 0;
}

/* Masks are made while the passes of the step run, which were queued before; and the draws behind them. */
status batch_queue_draws(scheduler *s, batch *b, err *e) {
    make_masks(s, b);
    const model_batch m = model_batch_of(s, b);
    return engine_queue_draw(s->g, &m, e);
}

void run_batch(scheduler *s) {
    if (pipeline_is_on(s)) return run_pipeline(s);
    s->shares = 1;
    err e = {0};
    status st = ST_OK;
    batch *b = take_ahead(s);
    if (!b) {
        b = &s->batches[0];
        st = media_advance(s, &e);
        if (st == ST_OK && !drafts_collect_late(s)) st = drafts_collect(s, &e);
        if (st != ST_OK) return break_down(s, &e);
        reserve_pages(s);
        batch_build(s, b);
        plan_draws(s, b);
        b->queued_ahead = b->pipelined = false;
        if (b->n_rows) st = batch_queue(s, b, &e);
        if (st == ST_OK && drafts_collect_late(s)) st = drafts_collect(s, &e), drafts_arrive(b);
        if (st == ST_OK && !b->n_rows) return;
    }
    if (st == ST_OK) st = batch_queue_draws(s, b, &e);
    if (st == ST_OK) st = drafts_keep(s, b, &e);
    batch *next = &s->batches[b == s->batches];
    if (st == ST_OK && build_ahead(s, b, next)) {
        st = batch_queue(s, next, &e);
        next->queued_ahead = true, next->pipelined = false;
        s->ahead = next;
    }
    const model_batch m = model_batch_of(s, b);
    if (st == ST_OK) st = engine_collect(s->g, &m, &e);
    if (st == ST_OK) batch_take_results(s, b);
    if (st == ST_OK) st = drafts_copy_kept(s, &e);
    if (st == ST_OK) st = drafts_queue(s, b, &e);
    if (st != ST_OK) break_down(s, &e);
}
