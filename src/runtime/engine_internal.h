/* runtime/engine_internal.h: the inside of an engine, for the two that run on it: seq and scheduler. */
#ifndef RUNTIME_ENGINE_INTERNAL_H
#define RUNTIME_ENGINE_INTERNAL_H
#include "model/expert_placement.h"
#include "runtime/engine.h"
#include "runtime/engine_balance.h"
#include "runtime/kv_pages.h"
#include "runtime/load.h"

enum { MEDIA_ITEMS_MOST = 64 }; /* in a pass of the vision tower */
enum { LOGIT_ROWS = 64 };       /* of a timeline; a scheduler has so many beside one for each answer */

struct engine {
    model_config config; /* of the whole model, or of --tp-slice's share */
    checkpoint *ck;      /* NULL: dummy weights */
    hosts *hosts;        /* NULL: one process has all ranks */
    rank_layout layout;
    ranks ranks;
    bool has_draft, draft_left_out;
    draft_config draft_config; /* of the whole draft, or of --tp-slice's share */
    checkpoint *draft_ck;      /* NULL: dummy weights, or no draft */
    draft_limits draft_lim;
    i64 draft_nodes;   /* most guesses of an answer in a step */
    i32 *branch_pages; /* [draft_lim.sequences, engine_branches(), BRANCH_PAGES]: the draft's; NULL: chains */
    vision_config vision_config;
    bool has_vision;
    vision_limits vision_lim;
    i64 media_work; /* multiply-adds of the tower that go with one step */
    f64 pinned_accept;
    weight_reads reads; /* by loading; all 0 where weights stay mapped, or are made up */
    model_limits lim;
    kv_pages pages;
    expert_placement placement; /* --ep: at the start; else nothing */
    engine_balance balance;
    i64 context, chunk, max_running;
    u64 most_weights, all_weights; /* bytes: of the rank that has most, of all */
    u64 node_memory;               /* bytes for each rank where they are bound to NUMA nodes */
    engine_step_fn step;
    void *step_ud;
    engine_seen_fn after_step;
    void *after_ud;
    engine_phase *profile; /* [PROFILE_PHASES]; NULL: off */
    void (*profile_launch)(void *ud, const struct gpu_time *t);
    void *profile_ud;
    char plan[800];
};

/* Those of this process's first rank, which stand for all where the ranks are alike. */
static inline backend *engine_backend(const engine *g) { return &g->ranks.of[0].backend; }
static inline model *engine_model(const engine *g) { return g->ranks.of[0].model; }

/* The forward pass, with this engine's threads: as model_queue(), model_queue_draw() and model_collect(), or all. */
status engine_queue(engine *g, const model_batch *b, err *e);
status engine_queue_draw(engine *g, const model_batch *b, err *e); /* does nothing unless it draws late */
status engine_collect(engine *g, const model_batch *b, err *e);
status engine_forward(engine *g, const model_batch *b, err *e);

/* engine_draft.c, each doing nothing where there is no draft. In this order: its config and files, for a model whose
 * whole config is `whole`; each rank's share, opened behind the model's; what it needs of the model's limits; a rank's
 * draft planned (its memory is added to own->reserve, for model_plan()) and loaded. Opening and loading are no failures
 * with options.draft_found: there is no draft any more. */
status engine_draft_open(engine *g, const engine_options *o, const model_config *whole, err *e);
status engine_draft_open_ranks(engine *g, const engine_options *o, err *e);
void engine_draft_limits(engine *g);
/* Rows that check drafts in a step, at most; from engine_draft_open() on. */
i64 engine_draft_rows(const engine *g, i64 max_running);
status engine_draft_plan_rank(const engine *g, rank *k, model_limits *own, err *e);
status engine_draft_load(engine *g, const engine_options *o, err *e);
/* Pages of a tree's branches lie behind the pool's: how many there are, of how many branches each. Behind the choice of
 * the pool's size. */
i64 engine_branches(const engine *g);
status engine_draft_branches(engine *g, err *e);
/* [engine_branches(), BRANCH_PAGES] in the draft's cache: those of the i-th sequence that guesses. */
const i32 *engine_guess_pages(const engine *g, i64 i);
/* In the model's cache page k (below BRANCH_PAGES) of a branch of the i-th sequence whose tree is checked, on the rank
 * that has page `beside`: there are as many of them on each. */
i32 engine_branch_page(const engine *g, i64 i, i64 branch, i64 k, i32 beside);
/* draft_fills_guesses(), and the id (model_batch.ids) of guess `step` of the i-th sequence that guesses. */
bool engine_fills_guesses(const engine *g);
i32 engine_guess_id(const engine *g, i64 i, i64 step);
/* A line about it; "" without one. */
/* This process's ranks that have it: those of the last stage. NULL, 0: none is here. */
rank *engine_draft_ranks(const engine *g, i64 *n);
const char *engine_draft_text(const engine *g, char *out, size_t cap);
/* As draft_queue() and draft_collect(), with this engine's threads. */
status engine_queue_drafts(engine *g, const draft_batch *b, err *e);
status engine_collect_drafts(engine *g, const draft_batch *b, err *e);
status engine_copy_kv(engine *g, const kv_pair *pairs, i64 n, err *e); /* as model_copy_kv() */

/* engine_vision.c, each doing nothing where there is no vision tower: in this order, as those of a draft. */
status engine_vision_open(engine *g, const engine_options *o, err *e);
status engine_vision_open_rank(const engine *g, rank *k, err *e);
void engine_vision_limits(engine *g);
status engine_vision_plan_rank(const engine *g, rank *k, model_limits *own, err *e);
status engine_vision_load(engine *g, err *e);
const char *engine_vision_text(const engine *g, char *out, size_t cap);
/* A pass of the tower into media rows from `from` on (model_media), and some of its layers; *done: that was all. */
status engine_begin_media(engine *g, const vision_input *items, i64 n, i64 from, err *e);
status engine_advance_media(engine *g, i64 work, bool *done, err *e);

/* engine_hosts.c, each doing nothing where there is one process: it meets the others before anything is read; program,
 * options and checkpoint are the same everywhere; from then on process 0 tells what to compute. */
status engine_hosts_open(engine *g, const engine_options *o, f64 deadline_s, err *e);
status engine_hosts_compare(const engine *g, const engine_options *o, err *e);
status engine_hosts_ready(engine *g, err *e);

/* engine_threads.c: each rank's share of the host's, and the nodes of --numa-node. ranks_here: of all processes. */
status engine_divide_threads(engine *g, const engine_options *o, i64 ranks_here, err *e);
/* Threads for a model on so many processors; asked: --threads, 0: not given. */
i64 engine_threads(const model_config *c, i64 asked, i64 processors);

/* profile.c */
status profile_open(engine *g, err *e);
void profile_before(engine *g, const model_batch *b);
status profile_step(engine *g, const model_batch *b, err *e);

/* ST_NUMERIC with a line about the row of `token` at `position`, whose mark (model_batch.bad) is `mark`. */
status engine_bad_row(i32 mark, i32 token, i64 position, err *e);

#endif
