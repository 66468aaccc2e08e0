/* model/draft_internal.h: what the files of the draft share: its weights, buffers and tables (draft_memory.c), the ops
 * of a pass (draft_forward.c), and how one is queued and its guesses come back (draft.c). */
#ifndef MODEL_DRAFT_INTERNAL_H
#define MODEL_DRAFT_INTERNAL_H
#include "kernels/fused.h"
#include "model/draft.h"
#include "model/model_internal.h"

/* What a pass needs to know, on the device: [steps][sequences] for what each guess needs, [piece] for the rows of one
 * piece, one after the other in `rows`, [sequences] for the page tables. Laid out alike on the host. */
typedef struct {
    i64 *slots;  /* [steps, sequences]: of each guess's own KV row */
    i32 *bad;    /* [steps, sequences]: sent as 0, marks come back */
    i32 *pos;    /* [steps, sequences] */
    i32 *kv_len; /* [steps, sequences] */
    i32 *live;   /* [sequences]: the row in its piece, from which the first guess starts */
    i32 *pages;  /* [sequences, seq_pages] */
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
    /* of rows of a piece */
    void *features; /* [piece, taps hidden] */
    void *embedded; /* [piece, hidden] */
    void *x;        /* [piece, hidden]: features, narrowed */
    void *in;       /* [piece, 2 hidden]: the layer's input: the embedding's norm, x's norm */
    void *kv_a;     /* [piece, KV row]; LLAMA: the keys, and behind them all, the values */
    f32 *rope;      /* [piece, rope] */
    /* of sequences */
    void *seq_x;     /* [sequences, hidden]: the residual stream; in the end the layer's output z */
    void *seq_in;    /* [sequences, 2 hidden] */
    void *h, *delta; /* [sequences, hidden] */
    void *q_a, *q, *q_abs, *attn_latent, *attn, *inter;
    f32 *seq_rope;      /* [sequences, rope] */
    f32 *logits;        /* [sequences, vocab_held] */
    f32 *whole;         /* of ranks: [ceil(sequences / ranks), vocab] */
    i32 *guesses;       /* [steps, sequences] */
    i32 *map;           /* [vocab]: the model's ids of the draft's; NULL: the same */
    sample_row *greedy; /* [sequences] */
    void *kv;           /* kv_type [pages, KV_PAGE, KV row] */
    f64 *inv_freq;
    void *workspace, *tables, *row_tables;
    u64 workspace_bytes;
    draft_step_tables step_dev, step_host;
    u8 *row_block; /* host: the tables of one piece's rows, as sent */
    device_readback *readback;
    device_recording **recorded; /* [RECORDED + 1][steps + 1]: guesses of so many sequences; NULL: not yet */
    i64 n_guessing, steps;       /* of the pass under way */
};

u64 draft_step_bytes(const draft_limits *l); /* of the tables, the page tables last, behind _fixed */
u64 draft_step_fixed_bytes(const draft_limits *l);
u64 draft_page_bytes(const draft_limits *l); /* of one sequence's page table */
draft_step_tables draft_steps_at(const draft_limits *l, void *block);
u64 draft_row_bytes(i64 rows);
draft_row_tables draft_rows_at(void *block, i64 rows);

/* The KV rows of n rows of a piece, whose tables are at `rows` on the device; then the layer's input and x of those
 * that sequences [first, first + guessing) start from. */
void draft_forward_rows(draft *t, const draft_row_tables *rows, i64 n, i64 first, i64 guessing);
/* All guesses of n sequences, from seq_in and seq_x. Its launches depend on n and steps alone. */
void draft_forward_guesses(draft *t, i64 n, i64 steps);

#endif
