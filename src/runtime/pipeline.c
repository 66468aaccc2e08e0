/* runtime/pipeline.c: several batches under way, of different answers, so that no stage of a pipeline waits for what
 * the last one draws: while that computes one batch, those before it compute the next ones. Of a prompt, chunks follow
 * each other as the first stage takes them. */
#include "base/log.h"
#include "runtime/scheduler_internal.h"

i64 pipeline_depth(const scheduler *s) {
    /* the host draws from the logits of one batch alone; what is proposed by repetition, or is checked, hangs on the
     * results of the one before; parts of a deterministic batch leave theirs where the next one's will be */
    const bool proposes = s->o.draft_tokens && (!drafts_by_model(s) || s->o.draft_verify_rate > 0);
    if (!draws_on_device(s) || s->o.disable_overlap || proposes || s->g->profile || s->g->lim.deterministic) return 1;
    return min_i64(engine_stages(s->g), MODEL_REPLIES);
}

/* While a draft model rests, its rows of each batch are queued behind that. */
static bool may_queue(scheduler *s) { return !drafts_by_model(s) || drafts_next(s) == 0; }

bool pipeline_is_on(scheduler *s) {
    if (s->depth == 1) return false;
    return s->n_flight || !drafts_by_model(s) || (s->drafts.rests && drafts_next(s) == 0);
}

static batch *unused_batch(scheduler *s) {
    for (i64 i = 0; i < s->n_batches; i++) {
        bool used = false;
        for (i64 k = 0; k < s->n_flight; k++) used |= s->flight[k] == &s->batches[i];
        if (!used) return &s->batches[i];
    }
    return NULL;
}

static void flight_ends(scheduler *s) {
    s->n_flight--;
    for (i64 i = 0; i < s->n_flight; i++) s->flight[i] = s->flight[i + 1];
    if (s->n_flight) s->flight[0]->began_s = now_s();
}

/* Those of which all tasks have left run out unseen. */
static batch *oldest_batch(scheduler *s) {
    for (; s->n_flight; flight_ends(s))
        for (i64 i = 0; i < s->flight[0]->n_spans; i++)
            if (s->flight[0]->tasks[i]) return s->flight[0];
    return NULL;
}

/* Does the host draw some of its rows? Its logits are there until the next batch is queued. */
static bool keeps_logits(const batch *b) {
    for (i64 i = 0; i < b->n_outs; i++)
        if (b->keep[i]) return true;
    return false;
}

/* *queued: there was something to queue. */
static status queue_another(scheduler *s, bool *queued, err *e) {
    batch *b = unused_batch(s);
    *queued = false;
    status st = media_advance(s, e);
    if (st != ST_OK) return st;
    reserve_pages(s);
    batch_build(s, b);
    if (!b->n_rows) return ST_OK;
    plan_draws(s, b);
    b->queued_ahead = s->n_flight > 0;
    b->pipelined = true;
    st = batch_queue(s, b, e);
    if (st == ST_OK) st = batch_queue_draws(s, b, e);
    if (st == ST_OK) st = drafts_keep(s, b, e);
    for (i64 i = 0; i < b->n_spans; i++)
        if (b->tasks[i]) b->tasks[i]->n_flight += b->spans[i].n; /* a task without tokens that may follow has left */
    s->flight[s->n_flight++] = b;
    s->alone = keeps_logits(b);
    *queued = true;
    return st;
}

static status collect_oldest(scheduler *s, batch *b, err *e) {
    const model_batch m = model_batch_of(s, b);
    status st = engine_collect(s->g, &m, e);
    if (st != ST_OK) return st;
    flight_ends(s);
    batch_take_results(s, b);
    return drafts_queue(s, b, e); /* where the host has drawn: nothing is queued behind such a batch */
}

void run_pipeline(scheduler *s) {
    err e = {0};
    bool queued = false;
    status st = ST_OK;
    batch *b = oldest_batch(s);
    s->shares = s->depth;
    if (s->n_flight < s->depth && !(s->n_flight && s->alone) && may_queue(s)) st = queue_another(s, &queued, &e);
    if (st == ST_OK && !queued && (b = oldest_batch(s))) st = collect_oldest(s, b, &e);
    if (st == ST_OK) return;
    s->n_flight = 0;
    break_down(s, &e);
}
