/* runtime/ranks_steps.c: what the ranks of a model compute together, step by step. */
#include "runtime/follow.h"
#include "runtime/ranks.h"

/* What rank k computes of b: all of it, in its layers. The logits that it has go to their places among the others'. The
 * process's first rank hands out marks, its first one of the last stage tokens. */
static model_batch batch_of(const rank *k, const model_batch *b) {
    model_batch own = *b;
    i64 n;
    if (k->slot) own.bad = k->bad, own.watch = NULL;
    if (k != ranks_of_stage(k->all, k->all->pp - 1, &n)) own.drawn = k->drawn;
    return own;
}

status rank_finish(rank *k, err *e) {
    comm *const ends[] = {k->data, k->links.before, k->links.behind};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(ends); i++)
        if (ends[i]) st = ends[i]->finish(ends[i], e);
    return k->comm && (st == ST_OK || st == ST_CANCELLED) ? k->comm->finish(k->comm, e) : st;
}

typedef struct {
    const model_batch *b;
    int threads;
} rank_step;

static status queue_rank(rank *k, void *ud, err *e) {
    const rank_step *s = ud;
    const model_batch own = batch_of(k, s->b);
    ops_set_threads(s->threads); /* it holds for the calling thread, and another engine may have set its own */
    return model_queue(k->model, &own, e);
}

static status record_rank(rank *k, void *ud, err *e) {
    const rank_step *s = ud;
    const model_batch own = batch_of(k, s->b);
    ops_set_threads(s->threads);
    return model_record(k->model, &own, e);
}

/* Recordings of a step that has none yet, of all ranks here, before any of them begins it (forward.h). */
static status record_together(ranks *r, const model_batch *b, err *e) {
    bool due = false;
    for (i64 i = 0; r->held > 1 && i < r->held; i++) {
        const model_batch own = batch_of(&r->of[i], b);
        due |= model_records(r->of[i].model, &own);
    }
    return due ? ranks_each(r, record_rank, &(rank_step){b, r->threads_each}, e) : ST_OK;
}

static status queue_rank_draw(rank *k, void *ud, err *e) {
    const rank_step *s = ud;
    const model_batch own = batch_of(k, s->b);
    ops_set_threads(s->threads);
    return model_queue_draw(k->model, &own, e);
}

static status collect_rank(rank *k, void *ud, err *e) {
    const rank_step *s = ud;
    const model_batch own = batch_of(k, s->b);
    status st = model_collect(k->model, &own, e);
    return st == ST_OK ? rank_finish(k, e) : st;
}

static status tell_batch(ranks *r, job_kind kind, const model_batch *b, err *e) {
    const i64 vocab = r->of[0].config.vocab;
    if (!ranks_tell(r)) return ST_OK;
    if (kind == JOB_QUEUE)
        wire_batch(&r->told, b, vocab);
    else if (kind == JOB_DRAW)
        wire_draws(&r->told, b, vocab);
    else
        wire_begin(&r->told, kind, b->reply, 0);
    return ranks_send_told(r, e);
}

status ranks_queue(ranks *r, const model_batch *b, err *e) {
    if (b->watch && r->pp > 1)
        return err_set(e, ST_UNSUPPORTED, "what experts are given is seen of one stage alone: not with --pp");
    status st = model_check(r->of[0].model, b, e); /* one that no rank begins leaves the ranks in step */
    if (st == ST_OK) st = tell_batch(r, JOB_QUEUE, b, e);
    if (st == ST_OK) st = record_together(r, b, e);
    return st == ST_OK ? ranks_each(r, queue_rank, &(rank_step){b, r->threads_each}, e) : st;
}

status ranks_queue_draw(ranks *r, const model_batch *b, err *e) {
    status st = tell_batch(r, JOB_DRAW, b, e);
    return st == ST_OK ? ranks_each(r, queue_rank_draw, &(rank_step){b, r->threads_each}, e) : st;
}

/* Results that do not reach process 0 end the group. */
static status shared_or_cancelled(ranks *r, status st, err *e) {
    if (st != ST_OK && r->hosts) hosts_cancel(r->hosts, e);
    return st;
}

/* A rank knows of bad logits in its own share alone. */
status ranks_collect(ranks *r, const model_batch *b, err *e) {
    status st = tell_batch(r, JOB_COLLECT, b, e);
    if (st == ST_OK) st = ranks_each(r, collect_rank, &(rank_step){b, r->threads_each}, e);
    for (i64 k = 1; st == ST_OK && k < r->held; k++)
        for (i64 i = 0; i < b->n; i++)
            if (!b->bad[i]) b->bad[i] = r->of[k].bad[i];
    return st == ST_OK ? shared_or_cancelled(r, ranks_share_results(r, b, e), e) : st;
}

typedef struct {
    const draft_batch *b;
    int threads;
} rank_drafts;

static status queue_rank_drafts(rank *k, void *ud, err *e) {
    const rank_drafts *s = ud;
    if (!k->draft) return ST_OK;
    ops_set_threads(s->threads);
    return draft_queue(k->draft, s->b, e);
}

/* Every rank that has the draft has all guesses; the process's first one writes them down. Which of them are none each
 * knows of those that it drew. */
static status collect_rank_drafts(rank *k, void *ud, err *e) {
    const rank_drafts *s = ud;
    draft_batch own = *s->b;
    i64 n;
    if (!k->draft) return ST_OK;
    if (k != ranks_of_stage(k->all, k->stage, &n)) own.ids = NULL, own.tree = NULL;
    status st = draft_collect(k->draft, &own, e);
    return st == ST_OK ? rank_finish(k, e) : st;
}

static status record_rank_drafts(rank *k, void *ud, err *e) {
    const rank_drafts *s = ud;
    if (!k->draft) return ST_OK;
    ops_set_threads(s->threads);
    return draft_record(k->draft, s->b, e);
}

/* As record_together(). */
static status record_drafts_together(ranks *r, const draft_batch *b, err *e) {
    bool due = false;
    for (i64 i = 0; r->held > 1 && i < r->held; i++) due |= r->of[i].draft && draft_records(r->of[i].draft, b);
    return due ? ranks_each(r, record_rank_drafts, &(rank_drafts){b, r->threads_each}, e) : ST_OK;
}

status ranks_queue_drafts(ranks *r, const draft_batch *b, err *e) {
    status st = ST_OK;
    if (ranks_tell(r)) {
        wire_drafts(&r->told, b, r->draft_topk);
        st = ranks_send_told(r, e);
    }
    if (st == ST_OK) st = record_drafts_together(r, b, e);
    return st == ST_OK ? ranks_each(r, queue_rank_drafts, &(rank_drafts){b, r->threads_each}, e) : st;
}

status ranks_collect_drafts(ranks *r, const draft_batch *b, err *e) {
    i64 n;
    rank *has = ranks_of_stage(r, r->pp - 1, &n);
    status st = ST_OK;
    if (ranks_tell(r)) {
        wire_begin(&r->told, JOB_COLLECT_DRAFTS, guesses_wanted_by(b), 0);
        st = ranks_send_told(r, e);
    }
    if (st == ST_OK) st = ranks_each(r, collect_rank_drafts, &(rank_drafts){b, r->threads_each}, e);
    for (i64 k = 1; st == ST_OK && b->ids && k < n; k++) draft_drop_bad(has[k].draft, b);
    return st == ST_OK ? shared_or_cancelled(r, ranks_share_drafts(r, b, e), e) : st;
}

typedef struct {
    const kv_pair *pairs;
    i64 n;
} rank_copies;

static status copy_rank_kv(rank *k, void *ud, err *e) {
    const rank_copies *c = ud;
    return model_copy_kv(k->model, c->pairs, c->n, e);
}

status ranks_copy_kv(ranks *r, const kv_pair *pairs, i64 n, err *e) {
    status st = ST_OK;
    if (n && ranks_tell(r)) {
        wire_pairs(&r->told, pairs, n);
        st = ranks_send_told(r, e);
    }
    return n && st == ST_OK ? ranks_each(r, copy_rank_kv, &(rank_copies){pairs, n}, e) : st;
}

static status plan_rank_moves(rank *k, void *ud, err *e) {
    expert_moves own, *all = ud;
    status st = model_plan_moves(k->model, k->data, &own, e);
    if (st == ST_OK && (!k->place || !k->slot)) all[k->slot] = own; /* the ranks of a stage find the same */
    return st == ST_OK ? rank_finish(k, e) : st;
}

status ranks_plan_moves(ranks *r, expert_moves *out, err *e) {
    expert_moves all[COMM_RANKS_MAX] = {{0}};
    status st = ST_OK;
    *out = (expert_moves){0};
    if (ranks_tell(r)) {
        wire_begin(&r->told, JOB_PLAN_MOVES, 0, 0);
        st = ranks_send_told(r, e);
    }
    if (st == ST_OK) st = ranks_each(r, plan_rank_moves, all, e);
    for (i64 i = 0; st == ST_OK && i < r->held; i++) {
        out->layers += all[i].layers, out->slots += all[i].slots;
        out->before += all[i].before, out->after += all[i].after;
    }
    return st;
}

static status move_rank_experts(rank *k, void *ud, err *e) {
    status st = model_move_experts(k->model, *(const i64 *)ud, e);
    return st == ST_OK ? rank_finish(k, e) : st;
}

status ranks_move_experts(ranks *r, i64 layer, err *e) {
    status st = ST_OK;
    if (ranks_tell(r)) {
        wire_begin(&r->told, JOB_MOVE_EXPERTS, layer, 0);
        st = ranks_send_told(r, e);
    }
    return st == ST_OK ? ranks_each(r, move_rank_experts, &layer, e) : st;
}
