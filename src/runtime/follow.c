#include "runtime/follow.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

/* Tags of MPI_RESULTS. */
enum { TAG_RESULTS = MPI_TAG_MAX, TAG_DRAFTS = MPI_TAG_MAX - 1, TAG_DONE = MPI_TAG_MAX - 2 };

/* ---- process 0 ---- */

bool ranks_tell(const ranks *r) { return r->hosts && r->serving && !hosts_self(r->hosts); }

status ranks_send_told(ranks *r, err *e) {
    if (r->told.failed) {
        err_nomem(e, "a step's tables for other processes", r->told.len);
        hosts_cancel(r->hosts, e);
        return e->code;
    }
    return hosts_tell(r->hosts, r->told.data, r->told.len, e);
}

void ranks_dismiss(ranks *r) {
    err ignored;
    if (!ranks_tell(r)) return;
    wire_begin(&r->told, JOB_END, 0, 0);
    ranks_send_told(r, &ignored);
    r->serving = false;
}

/* ---- results ---- */

/* Where results of a process's ranks lie, in its parcel and in a batch. */
typedef struct {
    i64 from, to;    /* columns of logits */
    row_range drawn; /* rows that its ranks draw */
    i64 tokens;      /* of all rows, where process 0 has none of the last stage's ranks, and this one has the first */
} process_share;

static process_share process_share_of(const ranks *r, const model_batch *b, i64 process) {
    const row_range own = ranks_places(r, process, r->pp - 1), leads = ranks_places(r, 0, r->pp - 1);
    if (own.from == own.to) return (process_share){0};
    process_share s = {.from = r->vocab_first[own.from], .to = r->vocab_first[own.to]};
    s.drawn = (row_range){comm_rows(b->n_out, r->tp, own.from).from, comm_rows(b->n_out, r->tp, own.to - 1).to};
    s.tokens = b->draws && !own.from && leads.from == leads.to ? b->n_out : 0;
    return s;
}

static bool wants_logits(const model_batch *b, i64 row) { return !b->draws || (b->keep && b->keep[row]); }

/* Bytes of a parcel: marks, tokens, logits, log-probabilities. */
static u64 parcel_bytes(const model_batch *b, const process_share *s) {
    const i64 rows = b->tops ? s->drawn.to - s->drawn.from : 0;
    i64 units = b->n + s->tokens + rows * (1 + 2 * b->top_most);
    for (i64 i = 0; i < b->n_out; i++)
        if (wants_logits(b, i)) units += s->to - s->from;
    return (u64)units * sizeof(i32);
}

static u8 *copy_part(u8 *parcel, void *to, i64 n, bool out) {
    const size_t bytes = (size_t)n * sizeof(i32);
    if (out)
        memcpy(parcel, to, bytes);
    else
        memcpy(to, parcel, bytes);
    return parcel + bytes;
}

/* Between the parcel and the batch, in that direction that `out` says. Marks come first. */
static void copy_results(const ranks *r, const model_batch *b, const process_share *s, u8 *parcel, bool out) {
    const i64 vocab = r->of[0].config.vocab;
    const i32 *marks = (const i32 *)(const void *)parcel;
    if (out) memcpy(parcel, b->bad, (size_t)b->n * sizeof(i32));
    for (i64 i = 0; !out && i < b->n; i++)
        if (!b->bad[i]) b->bad[i] = marks[i];
    parcel += (size_t)b->n * sizeof(i32);
    if (s->tokens) parcel = copy_part(parcel, b->drawn, s->tokens, out);
    for (i64 i = 0; i < b->n_out; i++)
        if (wants_logits(b, i)) parcel = copy_part(parcel, b->logits + i * vocab + s->from, s->to - s->from, out);
    if (!b->tops) return;
    const i64 rows = s->drawn.to - s->drawn.from;
    parcel = copy_part(parcel, b->logprobs + s->drawn.from * (1 + b->top_most), rows * (1 + b->top_most), out);
    copy_part(parcel, b->top_ids + s->drawn.from * b->top_most, rows * b->top_most, out);
}

/* bytes [processes]: of each one's parcel, which process 0 finds in `all`, one behind the other; another writes its
 * own there. */
static status gather_parcels(ranks *r, const char *what, i32 tag, const u64 *bytes, u8 *all, err *e) {
    host_parcel with[HOSTS_MOST] = {0};
    const i64 n = hosts_count(r->hosts), self = hosts_self(r->hosts);
    for (i64 p = 1; p < n; all += self ? 0 : bytes[p], p++)
        if (!self)
            with[p] = (host_parcel){.in = all, .in_bytes = bytes[p]};
        else if (p == self)
            with[0] = (host_parcel){.out = all, .out_bytes = bytes[p]};
    return hosts_exchange(&(host_group){r->hosts, 0, n, MPI_RESULTS}, what, tag, with, NULL, e);
}

status ranks_share_results(ranks *r, const model_batch *b, err *e) {
    u64 bytes[HOSTS_MOST] = {0}, sum = 0;
    if (!r->hosts || !r->serving) return ST_OK;
    const i64 n = hosts_count(r->hosts), self = hosts_self(r->hosts);
    process_share shares[HOSTS_MOST];
    for (i64 p = 1; p < n; p++) {
        shares[p] = process_share_of(r, b, p);
        bytes[p] = parcel_bytes(b, &shares[p]);
        if (!self || p == self) sum += bytes[p];
    }
    u8 *all = malloc(sum + 1), *at = all;
    if (!all) return err_nomem(e, "other processes' results", sum);
    if (self) copy_results(r, b, &shares[self], all, true);
    status st = gather_parcels(r, "a step's results", TAG_RESULTS, bytes, all, e);
    for (i64 p = 1; st == ST_OK && !self && p < n; at += bytes[p++]) copy_results(r, b, &shares[p], at, false);
    if (st == ST_OK)
        free(all);
    else
        hosts_leave(r->hosts, all);
    return st;
}

static i64 guessing(const draft_batch *b) {
    i64 n = 0;
    for (i64 i = 0; i < b->n_spans; i++) n += b->spans[i].guess;
    return n;
}

/* Of a chain each process of the last stage hands over its guesses, -1 those that its ranks know are bad; a tree is
 * that of the process with the first of those ranks, unless it is process 0. */
static u64 guess_bytes(const ranks *r, const draft_batch *b, i64 process) {
    const row_range own = ranks_places(r, process, r->pp - 1);
    const u64 n = own.from < own.to ? (u64)guessing(b) : 0;
    switch (guesses_wanted_by(b)) {
    case GUESSES_UNSEEN: break;
    case GUESSES_OF_CHAINS: return n * (u64)b->steps * sizeof *b->ids;
    case GUESSES_OF_TREES: return own.from ? 0 : n * (u64)draft_candidates(b->steps, r->draft_topk) * sizeof *b->tree;
    }
    return 0;
}

/* A process's parcel to what process 0 has. */
static void take_parcel_guesses(const ranks *r, const draft_batch *b, i64 process, const u8 *parcel, u64 bytes) {
    const i32 *ids = (const i32 *)(const void *)parcel;
    const bool first = ranks_places(r, process, r->pp - 1).from == 0;
    if (first) memcpy(b->ids ? (void *)b->ids : b->tree, parcel, bytes);
    for (u64 i = 0; !first && i < bytes / sizeof *ids; i++)
        if (ids[i] < 0) b->ids[i] = -1;
}

status ranks_share_drafts(ranks *r, const draft_batch *b, err *e) {
    u64 bytes[HOSTS_MOST] = {0}, sum = 0;
    if (!r->hosts || !r->serving) return ST_OK;
    const i64 n = hosts_count(r->hosts), self = hosts_self(r->hosts);
    for (i64 p = 1; p < n; p++) {
        bytes[p] = guess_bytes(r, b, p);
        if (!self || p == self) sum += bytes[p];
    }
    u8 *all = malloc(sum + 1), *at = all;
    if (!all) return err_nomem(e, "other processes' guesses", sum);
    if (self && sum) memcpy(all, b->ids ? (void *)b->ids : b->tree, sum);
    status st = gather_parcels(r, "a draft's results", TAG_DRAFTS, bytes, all, e);
    for (i64 p = 1; st == ST_OK && !self && p < n; at += bytes[p++])
        if (bytes[p]) take_parcel_guesses(r, b, p, at, bytes[p]);
    if (st == ST_OK)
        free(all);
    else
        hosts_leave(r->hosts, all);
    return st;
}

status ranks_share_done(ranks *r, bool *all, err *e) {
    host_parcel with[HOSTS_MOST];
    bool there[HOSTS_MOST];
    if (!r->hosts || !r->serving) return ST_OK;
    const i64 n = hosts_count(r->hosts);
    const bool mine = *all;
    for (i64 p = 0; p < n; p++) with[p] = (host_parcel){&mine, &there[p], sizeof mine, sizeof *there};
    const host_group all_of = {r->hosts, 0, n, MPI_RESULTS};
    status st = hosts_exchange(&all_of, "a pass over pictures", TAG_DONE, with, NULL, e);
    for (i64 p = 0; st == ST_OK && p < n; p++)
        if (p != hosts_self(r->hosts)) *all = *all && there[p];
    return st;
}

/* ---- the other processes ---- */

typedef struct {
    wire_job queued, drawn; /* its bytes are what the batch points into */
    model_batch b;
    i32 *bad, *drawn_ids, *top_ids;
    f32 *logprobs;
} follow_batch;

typedef struct {
    ranks *r;
    i64 topk, vocab;
    follow_batch batches[MODEL_REPLIES]; /* by model_batch.reply */
    f32 *logits;                         /* [logit_rows, vocab]: of one batch at a time they are wanted */
    wire_job job, drafts;
    draft_batch draft;
    u8 *guesses; /* of chains or of a tree */
    size_t guesses_cap;
} follower;

static status open_follower(follower *f, const model_limits *lim, err *e) {
    const size_t rows = (size_t)lim->rows, outs = (size_t)lim->logit_rows;
    bool there = (f->logits = calloc(outs * (size_t)f->vocab, sizeof *f->logits)) != NULL;
    for (size_t i = 0; i < COUNT_OF(f->batches); i++) {
        follow_batch *b = &f->batches[i];
        b->bad = calloc(rows, sizeof *b->bad);
        b->drawn_ids = calloc(outs, sizeof *b->drawn_ids);
        b->top_ids = calloc(outs * LOGPROBS_TOP, sizeof *b->top_ids);
        b->logprobs = calloc(outs * (1 + LOGPROBS_TOP), sizeof *b->logprobs);
        there = there && b->bad && b->drawn_ids && b->top_ids && b->logprobs;
    }
    return there ? ST_OK : err_nomem(e, "a step's results", outs * (size_t)f->vocab * sizeof *f->logits);
}

static void close_follower(follower *f) {
    for (size_t i = 0; i < COUNT_OF(f->batches); i++) {
        follow_batch *b = &f->batches[i];
        wire_free(&b->queued);
        wire_free(&b->drawn);
        free(b->bad);
        free(b->drawn_ids);
        free(b->top_ids);
        free(b->logprobs);
    }
    wire_free(&f->job);
    wire_free(&f->drafts);
    free(f->logits);
    free(f->guesses);
}

static void swap_jobs(wire_job *a, wire_job *b) {
    const wire_job t = *a;
    *a = *b, *b = t;
}

static status follow_queue(follower *f, err *e) {
    follow_batch *b = &f->batches[f->job.a & (MODEL_REPLIES - 1)];
    swap_jobs(&f->job, &b->queued);
    status st = wire_read_batch(&b->queued, &b->b, f->vocab, e);
    b->b.bad = b->bad, b->b.drawn = b->drawn_ids, b->b.logits = f->logits;
    b->b.logprobs = b->logprobs, b->b.top_ids = b->top_ids;
    if (st == ST_OK && b->b.top_most > LOGPROBS_TOP)
        st = err_set(e, ST_FORMAT, "process 0 wants %lld log-probabilities", (long long)b->b.top_most);
    return st == ST_OK ? ranks_queue(f->r, &b->b, e) : st;
}

static status follow_draw(follower *f, err *e) {
    follow_batch *b = &f->batches[f->job.a & (MODEL_REPLIES - 1)];
    swap_jobs(&f->job, &b->drawn);
    status st = wire_read_draws(&b->drawn, &b->b, f->vocab, e);
    return st == ST_OK ? ranks_queue_draw(f->r, &b->b, e) : st;
}

static status follow_drafts(follower *f, err *e) {
    swap_jobs(&f->job, &f->drafts);
    status st = wire_read_drafts(&f->drafts, &f->draft, f->topk, e);
    return st == ST_OK ? ranks_queue_drafts(f->r, &f->draft, e) : st;
}

static status follow_collect_drafts(follower *f, err *e) {
    draft_batch own = f->draft;
    const bool chains = f->job.a == GUESSES_OF_CHAINS, trees = f->job.a == GUESSES_OF_TREES;
    const size_t each = chains  ? (size_t)own.steps * sizeof *own.ids
                        : trees ? (size_t)draft_candidates(own.steps, f->topk) * sizeof *own.tree
                                : 0;
    const size_t n = (size_t)guessing(&own) * each;
    if (n > f->guesses_cap) {
        free(f->guesses);
        f->guesses = malloc(n);
        f->guesses_cap = f->guesses ? n : 0;
    }
    if (n && !f->guesses) return err_nomem(e, "guesses", n);
    own.ids = chains ? (i32 *)(void *)f->guesses : NULL;
    own.tree = trees ? (draft_candidate *)(void *)f->guesses : NULL;
    return ranks_collect_drafts(f->r, &own, e);
}

static status follow_copy(follower *f, err *e) {
    const kv_pair *pairs;
    i64 n;
    status st = wire_read_pairs(&f->job, &pairs, &n, e);
    return st == ST_OK ? ranks_copy_kv(f->r, pairs, n, e) : st;
}

static status follow_begin_media(follower *f, err *e) {
    const vision_input *items;
    i64 n, from;
    status st = wire_read_media(&f->job, &items, &n, &from, e);
    return st == ST_OK ? ranks_begin_media(f->r, items, n, from, e) : st;
}

static status follow_job(follower *f, bool *over, err *e) {
    bool done;
    expert_moves moves;
    switch (f->job.kind) {
    case JOB_QUEUE: return follow_queue(f, e);
    case JOB_DRAW: return follow_draw(f, e);
    case JOB_COLLECT: return ranks_collect(f->r, &f->batches[f->job.a & (MODEL_REPLIES - 1)].b, e);
    case JOB_DRAFTS: return follow_drafts(f, e);
    case JOB_COLLECT_DRAFTS: return follow_collect_drafts(f, e);
    case JOB_COPY_KV: return follow_copy(f, e);
    case JOB_BEGIN_MEDIA: return follow_begin_media(f, e);
    case JOB_ADVANCE_MEDIA: return ranks_advance_media(f->r, f->job.a, &done, e);
    case JOB_PLAN_MOVES: return ranks_plan_moves(f->r, &moves, e);
    case JOB_MOVE_EXPERTS: return ranks_move_experts(f->r, f->job.a, e);
    case JOB_END: *over = true;
    }
    return ST_OK;
}

status ranks_follow(ranks *r, const model_limits *lim, i64 topk, err *e) {
    follower f = {.r = r, .topk = topk, .vocab = r->of[0].config.vocab};
    bool over = false;
    status st = open_follower(&f, lim, e);
    while (st == ST_OK && !over) {
        st = hosts_listen(r->hosts, &f.job.bytes, e);
        if (st == ST_OK) st = wire_read(&f.job, e);
        if (st == ST_OK) st = follow_job(&f, &over, e);
    }
    if (st != ST_OK) hosts_cancel(r->hosts, e);
    close_follower(&f);
    r->serving = false;
    return st;
}
