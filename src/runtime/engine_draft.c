/* runtime/engine_draft.c: an engine's draft model, beside the model on every rank. */
#include "base/log.h"
#include "runtime/engine_internal.h"
#include <stdio.h>

enum { DRAFT_STEPS = 3, DRAFT_SEQUENCES = 64 /* most that guess at a time */ };

static status check_draft_options(const engine *g, const engine_options *o, err *e) {
    if (o->draft_steps < 0 || o->draft_steps > DRAFT_STEPS_MOST)
        return err_set(e, ST_INPUT, "--speculative-num-steps is %lld, outside 1..%d", (long long)o->draft_steps,
                       DRAFT_STEPS_MOST);
    if (g->step)
        return err_set(e, ST_INPUT,
                       "--speculative-draft-model-path: a simulated step computes nothing that a draft "
                       "could read");
    if (o->dcp > 1 || o->dp_attention)
        return err_set(e, ST_UNSUPPORTED,
                       "--speculative-draft-model-path with %s: a draft needs all of the KV cache on every rank",
                       o->dcp > 1 ? "--dcp" : "--enable-dp-attention");
    return ST_OK;
}

status engine_draft_open(engine *g, const engine_options *o, const model_config *whole, err *e) {
    if (!o->draft_dir || !o->max_running) return ST_OK;
    status st = check_draft_options(g, o, e);
    if (st == ST_OK) st = draft_config_load(&g->draft_config, o->draft_dir, whole, e);
    if (st == ST_OK && g->ck) st = checkpoint_open(&g->draft_ck, o->draft_dir, e);
    if (st == ST_OK && o->tp_slice) st = draft_config_split(&g->draft_config, o->tp_slice, 0, "--tp-slice", e);
    if (st != ST_OK) return st;
    g->draft_config.layer.slice = g->config.slice;
    g->has_draft = true;
    g->draft_lim.steps = o->draft_steps ? o->draft_steps : DRAFT_STEPS;
    return ST_OK;
}

/* Where the sum over ranks norms too, a rank keeps of the residual stream its own rows alone; a draft reads all of it.
 * And deterministic answers are the same with a draft and without. */
static void keep_residual_stream(engine *g) {
    if (g->has_draft || g->lim.deterministic)
        for (i64 i = 0; i < g->ranks.n; i++) g->ranks.of[i].seams.reduce_norm = NULL;
}

status engine_draft_split(engine *g, const engine_options *o, err *e) {
    status st = ST_OK;
    keep_residual_stream(g);
    for (i64 i = 0; st == ST_OK && g->has_draft && i < g->ranks.n; i++) {
        rank *k = &g->ranks.of[i];
        k->draft_config = g->draft_config;
        if (g->config.slice)
            model_config_slice_rank(&k->draft_config.layer, i);
        else
            st = draft_config_split(&k->draft_config, o->tp, i, "--tp", e);
    }
    return st;
}

status engine_draft_open_rank(const engine *g, rank *k, err *e) {
    if (!g->has_draft) return ST_OK;
    status st = draft_open(&k->draft, &k->draft_config, g->draft_ck, k->model, e);
    if (st != ST_OK) err_prefix(e, "the draft");
    return st;
}

void engine_draft_limits(engine *g) {
    const i64 ranks = g->ranks.n;
    if (!g->has_draft) return;
    const i64 drafts = min_i64(g->max_running, DRAFT_SEQUENCES) * g->draft_lim.steps;
    g->lim.decode_rows += drafts, g->lim.rows += drafts;
    g->lim.logit_rows = ceil_div(g->lim.logit_rows + drafts, ranks) * ranks;
    g->lim.n_taps = g->draft_config.n_taps;
    for (i64 i = 0; i < g->lim.n_taps; i++) g->lim.taps[i] = g->draft_config.taps[i];
    g->draft_lim.sequences = ceil_div(min_i64(g->max_running, DRAFT_SEQUENCES), ranks) * ranks;
    g->draft_lim.rows = g->lim.rows;
    g->draft_lim.seq_pages = g->lim.seq_pages;
    g->draft_lim.kv_type = g->lim.kv_type;
    g->draft_lim.eager = g->lim.eager;
}

status engine_draft_plan_rank(const engine *g, rank *k, model_limits *own, err *e) {
    if (!g->has_draft) return ST_OK;
    draft_limits lim = g->draft_lim;
    lim.pool_pages = g->lim.pool_pages;
    status st = draft_plan(k->draft, &lim, e);
    if (st != ST_OK) return st;
    const model_memory *m = draft_memory_plan(k->draft);
    own->reserve += m->weights.own + m->kv + m->work;
    return ST_OK;
}

static status load_rank_draft(rank *k, void *ud, err *e) {
    ops_set_threads(((const engine *)ud)->ranks.threads_each);
    status st = draft_load(k->draft, e);
    if (st != ST_OK) err_prefix(e, "the draft");
    return st;
}

status engine_draft_load(engine *g, err *e) {
    return g->has_draft ? ranks_each(&g->ranks, load_rank_draft, g, e) : ST_OK;
}

const char *engine_draft_text(const engine *g, char *out, size_t cap) {
    char weights[BYTES_TEXT], kv[BYTES_TEXT];
    out[0] = 0;
    if (!g->has_draft) return out;
    const model_memory *m = draft_memory_plan(g->ranks.of[0].draft);
    snprintf(out, cap, ", a draft of %lld tokens (%s layout, weights %s, KV %s)", (long long)g->draft_lim.steps,
             g->draft_config.layout == DRAFT_MLA ? "MLA" : "Llama",
             bytes_text(weights, m->weights.mapped + m->weights.own), bytes_text(kv, m->kv));
    return out;
}

i64 engine_draft_steps(const engine *g) { return g->has_draft ? g->draft_lim.steps : 0; }

status engine_queue_drafts(engine *g, const draft_batch *b, err *e) { return ranks_queue_drafts(&g->ranks, b, e); }
status engine_collect_drafts(engine *g, const draft_batch *b, err *e) { return ranks_collect_drafts(&g->ranks, b, e); }
