/* model/draft.h: an EAGLE-3 draft on a backend: guesses at the tokens that follow, from the features of a model's last
 * batch (Li et al. 2025, arXiv:2503.01840; model/draft_config.h).
 *
 * Row i of the draft reads the model's features of token i and the embedding of token i + 1, stands at position i, and
 * guesses token i + 2. Its KV rows lie in pages of the same numbers as the model's, so a sequence's page table, and the
 * prefix cache, serve both. A pass writes the KV rows of all tokens whose followers are known by now, over those that
 * it wrote from guesses; from the last of them it guesses on, reading its own output for features. */
#ifndef MODEL_DRAFT_H
#define MODEL_DRAFT_H
#include "model/forward.h"

enum { DRAFT_STEPS_MOST = 8 };

typedef struct {
    i64 rows;      /* most tokens of a batch of the model */
    i64 sequences; /* most that want guesses at a time */
    i64 steps;     /* most guesses of one, behind each other */
    i64 topk;      /* 1: a chain; else a tree: so many guesses at each step (draft_beams in kernels/ops.h) */
    i64 seq_pages, pool_pages;
    dtype kv_type;
    bool eager; /* every launch anew */
} draft_limits;

typedef struct draft draft;

/* In three steps, as a model. `target` is the model of this rank, opened before; d is this rank's share. What each
 * takes of memory is added to the model's plan by whoever plans. All must outlive the draft. */
status draft_open(draft **out, const draft_config *d, const checkpoint *ck, model *target, err *e);
status draft_plan(draft *t, const draft_limits *lim, err *e);
status draft_load(draft *t, err *e);
void draft_close(draft *t);
const model_memory *draft_memory_plan(const draft *t);
/* As model_kv_page(). */
kv_rows draft_kv_page(const draft *t, i32 page);
u64 draft_kv_bytes(const draft_config *d, i64 pages, dtype kv_type);

/* Consecutive tokens of one sequence: rows [first, first + n) of the model's last batch, at positions pos0, .., whose
 * followers are known. */
typedef struct {
    i64 first, n, pos0;
    const i32 *following; /* [n]: the token behind each; below 0: ~j is that drawn for row j of the batch's n_out */
    const i32 *pages;     /* cover positions 0 .. pos0 + n - 1, and with `guess` steps - 1 more */
    bool guess;           /* what follows the last of `following`? */
    const i32 *branches;  /* [topk, BRANCH_PAGES]: of a tree, pages for the guesses; nobody else's in this pass */
} draft_span;

/* A branch begins behind a row: these pages hold that row's, from its first token on, and DRAFT_STEPS_MOST more. */
enum { BRANCH_PAGES = 2 };

/* A guess of a tree: a token behind that of `parent`, an index of the same sequence's; -1: behind the last of
 * `following`. score: the logarithm of the probability that the draft gives to it and all before it. */
typedef struct {
    i32 id, parent;
    f32 score;
} draft_candidate;
/* Those of one sequence by so many steps. */
static inline i64 draft_candidates(i64 steps, i64 topk) { return steps < 1 ? 0 : topk + (steps - 1) * topk * topk; }

typedef struct {
    i64 n_spans;
    const draft_span *spans; /* their rows ascend */
    i64 steps;               /* guesses of each that wants them; 1 .. limits.steps */
    /* [spans that guess, steps], host; -1: a NaN or an infinity came out, here and behind (of several ranks, as far as
     * this one drew the guesses); NULL: nobody looks. Of trees: [spans that guess, draft_candidates(steps, topk)],
     * parents in front; id -1 and -infinity where a NaN or an infinity came out */
    i32 *ids;
    draft_candidate *tree;
} draft_batch;

/* Queues the pass behind the model's last batch, whose features it reads: the one that was queued last. The guesses are
 * there after draft_collect(), which waits for them. */
status draft_queue(draft *t, const draft_batch *b, err *e);
/* Will draft_queue() record the pass first? And that alone: as model_record(). */
bool draft_records(const draft *t, const draft_batch *b);
status draft_record(draft *t, const draft_batch *b, err *e);
/* Do the guesses stand in model_guesses() when the pass has run, [steps, limits.sequences], so that a batch of the
 * model may be queued behind it at once? Not those of a smaller vocabulary, nor of a tree, whose shape the host must
 * know. */
bool draft_fills_guesses(const draft *t);
status draft_collect(draft *t, const draft_batch *b, err *e);
/* Behind draft_collect(): writes -1 to those of b->ids, which another rank collected, that this one knows are bad. */
void draft_drop_bad(const draft *t, const draft_batch *b);

#endif
