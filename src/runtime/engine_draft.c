/* runtime/engine_draft.c: an engine's draft model, beside the model on every rank of the last stage. */
#include "base/log.h"
#include "runtime/draft_tree.h"
#include "runtime/engine_internal.h"
#include <stdio.h>
#include <stdlib.h>

/* Most that guess at a time; with trees, which need pages for each. */
enum { DRAFT_STEPS = 3, DRAFT_SEQUENCES = 64, TREE_SEQUENCES = 16 };

static status check_draft_options(const engine *g, const engine_options *o, err *e) {
    if (o->draft_steps < 0 || o->draft_steps > DRAFT_STEPS_MOST)
        return err_set(e, ST_INPUT, "--speculative-num-steps is %lld, outside 1..%d", (long long)o->draft_steps,
                       DRAFT_STEPS_MOST);
    if (o->draft_topk < 0 || o->draft_topk > BEAMS_MOST)
        return err_set(e, ST_INPUT, "--speculative-eagle-topk is %lld, outside 1..%d", (long long)o->draft_topk,
                       BEAMS_MOST);
    if (o->draft_topk > 1 && (o->draft_nodes < 1 || o->draft_nodes > DRAFT_NODES_MOST))
        return err_set(e, ST_INPUT, "--speculative-num-draft-tokens is %lld, outside 2..%d",
                       (long long)o->draft_nodes + 1, DRAFT_NODES_MOST + 1);
    if (g->step)
        return err_set(e, ST_INPUT,
                       "--speculative-draft-model-path: a simulated step computes nothing that a draft "
                       "could read");
    return ST_OK;
}

rank *engine_draft_ranks(const engine *g, i64 *n) { return ranks_of_stage(&g->ranks, g->ranks.pp - 1, n); }

static status close_rank_draft(rank *k, void *ud, err *e) {
    (void)ud, (void)e;
    draft_close(k->draft);
    k->draft = NULL;
    return ST_OK;
}

/* What became of the draft: st; or there is none, if nobody asked for it and the fault is its own. */
static status draft_or_none(engine *g, const engine_options *o, status st, err *e) {
    err ignored;
    if (st == ST_OK || !o->draft_found || st == ST_NOMEM || st == ST_DEVICE || st == ST_CANCELLED) return st;
    log_warn("no drafts, so answers take longer: the draft in %s cannot be used: %s (--speculative-algorithm NONE goes "
             "without it)",
             o->draft_dir, e->text);
    *e = (err){0};
    if (g->has_draft) ranks_each(&g->ranks, close_rank_draft, NULL, &ignored);
    checkpoint_close(g->draft_ck);
    g->draft_ck = NULL;
    g->has_draft = false, g->draft_left_out = true;
    return ST_OK;
}

static status open_draft_files(engine *g, const engine_options *o, const model_config *whole, err *e) {
    status st = check_draft_options(g, o, e);
    if (st == ST_OK) st = draft_config_load(&g->draft_config, o->draft_dir, whole, e);
    if (st == ST_OK && g->ck) st = checkpoint_open(&g->draft_ck, o->draft_dir, e);
    if (st == ST_OK && o->tp_slice) st = draft_config_split(&g->draft_config, o->tp_slice, 0, "--tp-slice", e);
    return st;
}

status engine_draft_open(engine *g, const engine_options *o, const model_config *whole, err *e) {
    if (!o->draft_dir || !o->max_running) return ST_OK;
    status st = draft_or_none(g, o, open_draft_files(g, o, whole, e), e);
    if (st != ST_OK || g->draft_left_out) return st;
    g->draft_config.layer.slice = g->config.slice;
    g->has_draft = g->config.ends_embed = true;
    g->draft_lim.steps = o->draft_steps ? o->draft_steps : DRAFT_STEPS;
    g->draft_lim.topk = max_i64(o->draft_topk, 1);
    g->draft_nodes = o->draft_topk > 1 ? o->draft_nodes : g->draft_lim.steps;
    return ST_OK;
}

static status split_draft(engine *g, const engine_options *o, err *e) {
    status st = ST_OK;
    g->ranks.draft_topk = g->draft_lim.topk;
    for (i64 i = 0; st == ST_OK && i < g->ranks.held; i++) {
        rank *k = &g->ranks.of[i];
        k->draft_config = g->draft_config;
        if (g->config.slice)
            model_config_slice_rank(&k->draft_config.layer, k->place);
        else
            st = draft_config_split(&k->draft_config, o->tp, k->place, "--tp", e);
    }
    return st;
}

static status open_rank_draft(rank *k, void *ud, err *e) {
    (void)e; /* the draft's failure is not the rank's */
    k->draft_failure = (err){0};
    if (model_ends(&k->config))
        draft_open(&k->draft, &k->draft_config, ((const engine *)ud)->draft_ck, k->model, &k->draft_failure);
    return ST_OK;
}

/* Each rank's draft opened or loaded. Ranks exchange nothing there, so that they can go on without. */
static status each_draft(engine *g, rank_fn fn, err *e) {
    status st = ranks_each(&g->ranks, fn, g, e);
    for (i64 i = 0; st == ST_OK && i < g->ranks.held; i++) {
        const err *own = &g->ranks.of[i].draft_failure;
        if (own->code == ST_OK) continue;
        st = err_set(e, own->code, "the draft: %s", own->text);
        if (g->ranks.n > 1) err_prefix(e, "rank %lld", (long long)g->ranks.of[i].index);
    }
    return g->hosts ? hosts_agree(g->hosts, st, e) : st;
}

status engine_draft_open_ranks(engine *g, const engine_options *o, err *e) {
    status st = ST_OK;
    if (g->has_draft) {
        st = split_draft(g, o, e);
        if (st == ST_OK) st = each_draft(g, open_rank_draft, e);
        st = draft_or_none(g, o, st, e);
    }
    return st;
}

/* Sequences whose drafts are made at once. */
static i64 drafted_together(const engine *g, i64 max_running) {
    return min_i64(max_running, g->draft_lim.topk > 1 ? TREE_SEQUENCES : DRAFT_SEQUENCES);
}

i64 engine_draft_rows(const engine *g, i64 max_running) {
    return g->has_draft ? drafted_together(g, max_running) * g->draft_nodes : 0;
}

void engine_draft_limits(engine *g) {
    const i64 ranks = g->ranks.n;
    if (!g->has_draft) return;
    const i64 together = drafted_together(g, g->max_running), drafts = engine_draft_rows(g, g->max_running);
    g->lim.decode_rows += drafts, g->lim.rows += drafts;
    g->lim.logit_rows = ceil_div(g->lim.logit_rows + drafts, ranks) * ranks;
    g->lim.n_taps = g->draft_config.n_taps;
    for (i64 i = 0; i < g->lim.n_taps; i++) g->lim.taps[i] = g->draft_config.taps[i];
    g->draft_lim.sequences = ceil_div(together, ranks) * ranks;
    g->draft_lim.rows = g->lim.rows;
    g->draft_lim.seq_pages = g->lim.seq_pages;
    g->draft_lim.kv_type = g->lim.kv_type;
    g->draft_lim.eager = g->lim.eager;
    g->lim.guesses = g->draft_lim.steps * g->draft_lim.sequences * g->draft_lim.topk;
    g->lim.branch_pages = g->draft_lim.sequences * engine_branches(g) * BRANCH_PAGES;
    g->lim.copies = g->draft_lim.sequences * engine_branches(g) * (KV_PAGE + DRAFT_STEPS_MOST);
}

/* A path but the first has a node at least; of the draft's own, every beam may need pages. */
i64 engine_branches(const engine *g) {
    return g->draft_lim.topk > 1 ? max_i64(g->draft_nodes - 1, g->draft_lim.topk) : 0;
}

status engine_draft_branches(engine *g, err *e) {
    const i64 n = g->lim.branch_pages;
    if (!n) return ST_OK;
    g->branch_pages = calloc((size_t)n, sizeof *g->branch_pages);
    if (!g->branch_pages) return err_nomem(e, "pages for branches", (u64)n * sizeof *g->branch_pages);
    for (i64 i = 0; i < n; i++) g->branch_pages[i] = (i32)(g->lim.pool_pages + i);
    return ST_OK;
}

const i32 *engine_guess_pages(const engine *g, i64 i) {
    return g->branch_pages ? g->branch_pages + i * engine_branches(g) * BRANCH_PAGES : NULL;
}

i32 engine_branch_page(const engine *g, i64 i, i64 branch, i64 k, i32 beside) {
    const i64 at = (i * engine_branches(g) + branch) * BRANCH_PAGES + k, ranks = max_i64(g->lim.kv.ranks, 1);
    return (i32)((kv_local_pages(g->lim.kv, g->lim.pool_pages) + at) * ranks + beside % ranks);
}

status engine_draft_plan_rank(const engine *g, rank *k, model_limits *own, err *e) {
    if (!k->draft) return ST_OK;
    draft_limits lim = g->draft_lim;
    lim.pool_pages = g->lim.pool_pages + g->lim.branch_pages;
    status st = draft_plan(k->draft, &lim, e);
    if (st != ST_OK) return st;
    const model_memory *m = draft_memory_plan(k->draft);
    own->reserve += m->weights.own + m->kv + m->work;
    return ST_OK;
}

static status load_rank_draft(rank *k, void *ud, err *e) {
    (void)e;
    ops_set_threads(((const engine *)ud)->ranks.threads_each);
    if (k->draft) draft_load(k->draft, &k->draft_failure);
    return ST_OK;
}

status engine_draft_load(engine *g, const engine_options *o, err *e) {
    return g->has_draft ? draft_or_none(g, o, each_draft(g, load_rank_draft, e), e) : ST_OK;
}

const char *engine_draft_text(const engine *g, char *out, size_t cap) {
    char weights[BYTES_TEXT], kv[BYTES_TEXT], tree[48] = "";
    i64 n;
    const rank *k = engine_draft_ranks(g, &n);
    out[0] = 0;
    if (!g->has_draft) return out;
    if (g->draft_lim.topk > 1) snprintf(tree, sizeof tree, " deep, trees of %lld", (long long)g->draft_nodes);
    const int len =
        snprintf(out, cap, ", a draft of %lld tokens%s (%s layout%s", (long long)g->draft_lim.steps, tree,
                 g->draft_config.layout == DRAFT_MLA ? "MLA" : "Llama", g->ranks.pp > 1 ? ", on the last stage" : "");
    const model_memory *m = n ? draft_memory_plan(k->draft) : NULL;
    if (m)
        snprintf(out + len, cap - (size_t)len, ", weights %s, KV %s)",
                 bytes_text(weights, m->weights.mapped + m->weights.own), bytes_text(kv, m->kv));
    else
        snprintf(out + len, cap - (size_t)len, ")");
    return out;
}

i64 engine_draft_steps(const engine *g) { return g->has_draft ? g->draft_lim.steps : 0; }
bool engine_draft_left_out(const engine *g) { return g->draft_left_out; }
/* The first of several stages cannot read what the last one has guessed. */
bool engine_fills_guesses(const engine *g) {
    return g->has_draft && g->ranks.pp == 1 && draft_fills_guesses(g->ranks.of[0].draft);
}
i32 engine_guess_id(const engine *g, i64 i, i64 step) {
    return (i32) ~(g->lim.logit_rows + step * g->draft_lim.sequences + i);
}
i64 engine_draft_nodes(const engine *g) { return g->has_draft ? g->draft_nodes : 0; }

status engine_queue_drafts(engine *g, const draft_batch *b, err *e) { return ranks_queue_drafts(&g->ranks, b, e); }
status engine_collect_drafts(engine *g, const draft_batch *b, err *e) { return ranks_collect_drafts(&g->ranks, b, e); }
status engine_copy_kv(engine *g, const kv_pair *pairs, i64 n, err *e) { return ranks_copy_kv(&g->ranks, pairs, n, e); }
