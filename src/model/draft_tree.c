/* model/draft_tree.c: guesses as a tree: what a pass does beside a chain's. From the first guess on a sequence has topk
 * rows, the beams, each with KV rows in pages of its own. */
#include "model/draft_internal.h"
#include <math.h>
#include <string.h>

/* ---- On the device ---- */

void draft_tree_guess(draft *t, i64 n, i64 step) {
    const rank_seams *r = t->o->ranks;
    const bool whole = r && r->head;
    const i64 vocab = model_vocab_there(t->c), k = t->lim.topk;
    const row_range own = model_drawn_rows(t->target, n);
    i32 *ids = t->top_ids + step * t->guess_rows * k;
    f32 *logprobs = t->logprobs + step * t->guess_rows * (1 + k);
    const logprobs_args a = {.logits = whole ? t->whole : t->logits,
                             .ids = t->any,
                             .drawn = t->any,
                             .tops = t->tops,
                             .top_ids = ids + own.from * k,
                             .logprobs = logprobs + own.from * (1 + k),
                             .workspace = t->workspace,
                             .n = own.to - own.from,
                             .vocab = vocab,
                             .stride = vocab,
                             .n_top = k};
    if (a.n) t->o->logprobs(t->o, &a);
    if (!r || !r->draw) return;
    const i64 all = ceil_div(n, r->ranks) * r->ranks; /* as many of each rank, so that numbers of rows go as rows do */
    r->draw(t->o, ids, all * k);
    r->draw(t->o, (i32 *)(void *)logprobs, all * (1 + k));
}

static void copy_draft_rows(draft *t, const kv_pair *pairs, const i32 *count, i64 most) {
    t->o->kv_copy(t->o, &(kv_copy_args){.kv = t->kv,
                                        .pairs = pairs,
                                        .count = count,
                                        .most = most,
                                        .layers = 1,
                                        .row_bytes = (u64)draft_kv_width(t->d) * dtype_size(t->lim.kv_type)});
}

/* Behind the first step every beam gets what all of them share; behind others those that follow another beam than the
 * one in their place before get the KV rows of its guesses. */
void draft_tree_grow(draft *t, i64 n, i64 step) {
    const i64 k = t->lim.topk, at = step * t->guess_rows;
    t->o->draft_beams(t->o, &(draft_beams_args){.top_ids = t->top_ids + at * k,
                                                .logprobs = t->logprobs + at * (1 + k),
                                                .scores = t->scores,
                                                .ids = t->guesses + at,
                                                .from = t->from,
                                                .chosen = t->chosen + at,
                                                .n = n,
                                                .beams = step ? k : 1,
                                                .k = k,
                                                .slots = t->step_dev.slots + t->guess_rows,
                                                .pairs = t->pairs,
                                                .copies = step,
                                                .slots_stride = t->guess_rows});
    if (step)
        copy_draft_rows(t, t->pairs, NULL, step * n * k);
    else
        copy_draft_rows(t, t->step_dev.shared, t->step_dev.n_shared, t->guess_rows * KV_PAGE);
}

void draft_tree_follow(draft *t, const void *z, i64 n) {
    const i64 hidden = t->c->hidden;
    gather_args a = {
        .x = z, .rows = t->from, .out = t->delta, .n = n, .dim = hidden, .x_stride = hidden, .out_stride = hidden};
    t->o->gather(t->o, &a);
    a.x = t->delta, a.rows = NULL, a.out = t->seq_x;
    t->o->gather(t->o, &a);
}

/* ---- Tables ---- */

/* Page `page` of the sequence as beam j has it, whose own ones begin at page `own`. */
static i32 beam_page(const draft_span *s, i64 j, i64 page, i64 own) {
    return page < own ? s->pages[page] : s->branches[j * BRANCH_PAGES + page - own];
}

void draft_tree_tables(draft *t, const draft_span *s, i64 i, i64 n, i64 steps) {
    const i64 k = t->lim.topk, last = s->pos0 + s->n - 1, own = (last + 1) / KV_PAGE,
              end = ceil_div(last + steps, KV_PAGE);
    for (i64 j = 0; j < k; j++) {
        const i64 row = i * k + j;
        i32 *pages = t->step_host.pages + (n + row) * t->lim.seq_pages;
        for (i64 p = 0; p < end; p++) pages[p] = beam_page(s, j, p, own);
        for (i64 g = 1; g < steps; g++) {
            const i64 at = g * t->guess_rows + row, pos = last + g;
            t->step_host.slots[at] = (i64)pages[pos / KV_PAGE] * KV_PAGE + pos % KV_PAGE;
            t->step_host.pos[at] = (i32)pos;
            t->step_host.kv_len[at] = (i32)(pos + 1);
        }
        for (i64 pos = own * KV_PAGE; pos <= last && steps > 1; pos++) {
            const i64 slot = pos % KV_PAGE;
            t->step_host.shared[(*t->step_host.n_shared)++] =
                (kv_pair){(i64)s->pages[own] * KV_PAGE + slot, (i64)pages[own] * KV_PAGE + slot};
        }
    }
}

/* ---- Results ---- */

u64 draft_tree_bytes(const draft_limits *l) {
    return (u64)(l->steps * draft_guess_rows(l)) * (u64)(l->topk + 1 + l->topk + 1) * sizeof(i32);
}

void draft_tree_send(draft *t) {
    device *dev = t->mem.dev;
    const u64 rows = (u64)(t->lim.steps * t->guess_rows), ids = rows * (u64)t->lim.topk * sizeof(i32),
              logprobs = rows * (u64)(1 + t->lim.topk) * sizeof(f32);
    dev->readback_add(dev, t->readback, 0, t->top_ids, ids);
    dev->readback_add(dev, t->readback, ids, t->logprobs, logprobs);
    dev->readback_add(dev, t->readback, ids + logprobs, t->chosen, rows * sizeof(i32));
}

/* What came back, of the steps' guess rows. */
typedef struct {
    const i32 *ids, *chosen;
    const f32 *logprobs;
} tree_results;

/* The candidates behind guess row `row` of step g, whose own is candidate `parent`, if there is one. */
static void put_candidates(const draft *t, const tree_results *r, i64 g, i64 row, i32 parent, f32 score,
                           draft_candidate *out) {
    const i64 k = t->lim.topk, at = g * t->guess_rows + row;
    const f32 *logprobs = r->logprobs + at * (1 + k);
    for (i64 c = 0; c < k; c++) {
        const f32 own = score + logprobs[1 + c];
        const i32 id = r->ids[at * k + c];
        const bool good = isfinite(logprobs[0]) && isfinite(own);
        out[c] = (draft_candidate){!good ? -1 : t->w.ids ? t->w.ids[id] : id, parent, good ? own : -INFINITY};
    }
}

void draft_tree_collect(const draft *t, draft_candidate *out) {
    const i64 k = t->lim.topk, rows = t->lim.steps * t->guess_rows, each = draft_candidates(t->steps, k);
    const i32 *data = (const i32 *)(const void *)t->readback->data;
    const tree_results r = {data, data + rows * (1 + 2 * k), (const f32 *)(const void *)(data + rows * k)};
    for (i64 i = 0; i < t->n_guessing; i++, out += each) {
        put_candidates(t, &r, 0, i, -1, 0, out);
        for (i64 g = 1; g < t->steps; g++)
            for (i64 j = 0; j < k; j++) {
                const i64 row = i * k + j, first = draft_candidates(g - 1, k), at = draft_candidates(g, k) + j * k;
                const i32 parent = (i32)first + r.chosen[(g - 1) * t->guess_rows + row];
                put_candidates(t, &r, g, row, parent, out[parent].score, out + at);
            }
    }
}
