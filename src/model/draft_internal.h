/* model/draft_internal.h: what the files of the draft share: its weights, buffers and tables (draft_memory.c), the ops
 * of a pass (draft_forward.c), and how one is queued and its guesses come back (draft.c). */
#ifndef MODEL_DRAFT_INTERNAL_H
#define MODEL_DRAFT_INTERNAL_H
#include "kernels/fused.h"
#include "model/draft.h"
#include "model/model_internal.h"

/* What a pass needs to know, on the device: [steps][guess rows] for what each guess needs, [piece] for the rows of one
 * piece, one after the other in `rows`. Guess rows: sequences x topk; the first guess has one of each sequence. Laid
 * out alike on the host. */
typedef struct {
    i64 *slots;      /* [steps, guess rows]: of each guess's own KV row */
    kv_pair *shared; /* [sequences topk KV_PAGE]: of a tree: what branches have in their first page from the start */
    i32 *bad;        /* [steps, guess rows]: sent as 0, marks come back */
    i32 *pos;        /* [steps, guess rows] */
    i32 *kv_len;     /* [steps, guess rows] */
    i32 *live;       /* [sequences]: the row in its piece, from which the first guess starts */
    i32 *n_shared;   /* [1] */
    i32 *pages;      /* [sequences, 1 or, of a tree, 1 + topk; seq_pages]: of n that guess n rows, then n topk */
} draft_step_tables;
typedef struct {
    i64 *slots;
    i32 *features, *ids, *pos; /* features: rows of the model's */
} draft_row_tables;

struct draft {
    const draft_config *d;
    const model_config *c; /* d->layer */
    const checkpoint *ck;
    model *target;
    const ops *o;
    draft_limits lim;
    draft_weights w;
    model_memory memory;
    device_pool mem;
    u64 act_size;
    f64 rope_mscale;
    f32 softmax_scale;
    i64 piece; /* most rows of a batch at a time */
    i64 guess_rows;
    bool unrecorded; /* as the model's */
    /* of rows of a piece */
    void *features; /* [piece, taps hidden] */
    void *embedded; /* [piece, hidden] */
    void *x;        /* [piece, hidden]: features, narrowed */
    void *in;       /* [piece, 2 hidden]: the layer's input: the embedding's norm, x's norm */
    void *kv_a;     /* [piece, KV row]; LLAMA: the keys, and behind them all, the values */
    f32 *rope;      /* [piece, rope] */
    /* of guess rows */
    void *seq_x;     /* [guess rows, hidden]: the residual stream; in the end the layer's output z */
    void *seq_in;    /* [guess rows, 2 hidden] */
    void *h, *delta; /* [guess rows, hidden] */
    void *q_a, *q, *q_abs, *attn_latent, *attn, *inter;
    f32 *seq_rope;      /* [guess rows, rope] */
    f32 *logits;        /* [guess rows, vocab_held] */
    f32 *whole;         /* of ranks: [ceil(guess rows / ranks), vocab] */
    i32 *guesses;       /* [steps, guess rows]; the model's, if draft_fills_guesses() */
    i32 *map;           /* [vocab]: the model's ids of the draft's; NULL: the same */
    sample_row *greedy; /* [guess rows] */
    /* of a tree; [steps, guess rows, ..] come back */
    i32 *top_ids;   /* [steps, guess rows, topk] */
    f32 *logprobs;  /* [steps, guess rows, 1 + topk] */
    i32 *chosen;    /* [steps, guess rows]: what draft_beams chose behind each step */
    i32 *from;      /* [guess rows]: the same of the last one */
    f32 *scores;    /* [guess rows] */
    i32 *tops;      /* [guess rows]: topk, for logprobs */
    i32 *any;       /* [guess rows]: 0, a token */
    kv_pair *pairs; /* [steps, guess rows] */
    void *kv;       /* kv_type [pages, KV_PAGE, KV row] */
    f64 *inv_freq;
    void *workspace, *tables, *row_tables;
    u64 workspace_bytes;
    draft_step_tables step_dev, step_host;
    u8 *row_block; /* host: the tables of one piece's rows, as sent */
    device_readback *readback;
    device_recording **recorded; /* [RECORDED + 1][steps + 1]: guesses of so many sequences; NULL: not yet */
    i64 n_guessing, steps;       /* of the pass under way */
};

static inline bool draft_is_tree(const draft *t) { return t->lim.topk > 1; }
static inline i64 draft_guess_rows(const draft_limits *l) { return l->sequences * l->topk; }
u64 draft_step_bytes(const draft_limits *l); /* of the tables, the page tables last, behind _fixed */
u64 draft_step_fixed_bytes(const draft_limits *l);
u64 draft_page_bytes(const draft_limits *l); /* of one sequence's page tables */
draft_step_tables draft_steps_at(const draft_limits *l, void *block);
u64 draft_row_bytes(i64 rows);
draft_row_tables draft_rows_at(void *block, i64 rows);

/* The KV rows of n rows of a piece, whose tables are at `rows` on the device; then the layer's input and x of those
 * that sequences [first, first + guessing) start from. */
void draft_forward_rows(draft *t, const draft_row_tables *rows, i64 n, i64 first, i64 guessing);
/* All guesses of n sequences, from seq_in and seq_x. Its launches depend on n and steps alone. */
void draft_forward_guesses(draft *t, i64 n, i64 steps);

/* ---- draft_tree.c ---- */

/* From the logits of n guess rows to their likeliest tokens. */
void draft_tree_guess(draft *t, i64 n, i64 step);
/* Behind step `step` of n sequences: the beams of the next. */
void draft_tree_grow(draft *t, i64 n, i64 step);
/* seq_x of n guess rows from z of those that they follow. */
void draft_tree_follow(draft *t, const void *z, i64 n);
/* Sequence i of the n that guess: what its guesses behind the first need, to the host's tables. */
void draft_tree_tables(draft *t, const draft_span *s, i64 i, i64 n, i64 steps);
/* What a pass sends back, in bytes; the sending; and what came: [n_guessing, draft_candidates()]. */
u64 draft_tree_bytes(const draft_limits *l);
void draft_tree_send(draft *t);
void draft_tree_collect(const draft *t, draft_candidate *out);

#endif
