/* model/forward.h: the forward pass of Kimi's text model, written once against kernels/ops.h.
 *
 * The model knows token ids, positions and page numbers; who they belong to is the runtime's business. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H
#include "device/device.h"
#include "kernels/context_parallel.h"
#include "model/bind.h"

typedef struct {
    i64 rows;          /* most tokens in a call */
    i64 decode_rows;   /* of these, most in absorbed spans */
    i64 prefill_spans; /* most expanded spans in a call */
    i64 logit_rows;    /* most rows whose logits are wanted; a multiple of the ranks */
    i64 guesses;       /* numbers of a draft's guesses, to which ids may refer (model_batch.ids) */
    i64 seq_pages;     /* most KV pages of one sequence */
    i64 pool_pages;    /* KV pages in the pool */
    i64 branch_pages;  /* pages behind these, for branches of trees */
    i64 copies;        /* most KV rows that a batch copies (model_batch.copies) */
    i64 media_rows;    /* rows of pictures and video that are kept for prompts (model_media_rows()) */
    kv_share kv;       /* which of them are held here: with others than all, ops.ranks has the seams for it */
    dtype kv_type;     /* DT_F32, DT_BF16, DT_F8_E4M3 */
    /* Of every token the residual stream before these layers, ascending, is kept until the next batch is queued: what a
     * draft reads (model/draft.h) */
    i64 taps[DRAFT_TAPS_MOST], n_taps;
    bool eager;          /* every launch anew; else decode steps are recorded, where the device can */
    bool deterministic;  /* a row's bits do not depend on the other rows of its batch: rows in decode form and rows of
                           prompts run apart, each with kernels of their own (kernels/ops.h: row_mode) */
    bool counts_experts; /* how many rows choose each expert, for model_plan_moves() */
    u64 memory_max;      /* bytes that may be allocated; 0: no limit */
    u64 reserve;         /* of these, bytes that are left to the device: recordings, what libraries load */
} model_limits;

typedef struct model model;

/* What a model takes, in bytes, as the device counts. */
typedef struct {
    weight_memory weights;
    u64 kv, work; /* the KV pool; activations, tables, workspace */
} model_memory;

/* Memory of a page's KV rows. */
typedef struct {
    void *at;
    u64 bytes;
} kv_rows;

/* A model comes in three steps. Open: every weight is found and its size known, none is read. Plan: the limits' KV
 * pool and working memory; ST_LIMIT with the numbers if all does not fit. Load: weights are bound, memory is
 * allocated; after it, nothing can run out. The config, the checkpoint, the device and the ops table must outlive
 * the model. */
status model_open(model **out, const model_config *c, const checkpoint *ck, const ops *o, device *dev, err *e);
status model_plan(model *m, const model_limits *lim, err *e);
/* Between open and load: the tensors whose data a load looks at, in that order. A rank's own number of bytes of them,
 * but all ranks look at the same ones. */
const tensor_info *const *model_reads(const model *m, u64 *n);
/* reader: of that list, or NULL (model/bind.h). */
status model_load(model *m, weight_reader *reader, bool verify, err *e);
/* Its recorded steps end; they are recorded again when they are wanted. */
void model_forget_steps(model *m);
void model_close(model *m);
const model_memory *model_memory_plan(const model *m); /* the weights' from open on, the rest from plan on */
/* Bytes of so many pages: pages x 64 x (latent + rope) x layers. */
u64 model_kv_bytes(const model_config *c, i64 pages, dtype kv_type);

/* Consecutive tokens of one sequence: rows [first, first + n) of the batch stand at positions pos0, pos0 + 1,
 * ...; pages covers positions 0 .. pos0 + n - 1. Absorbed spans run the decode form; they come before the
 * others.
 *
 * Of a tree, whose rows follow different tokens at the same positions, each branch is a span: from page `branch_from`
 * of the sequence on, which begins behind no row that other branches share, it has pages of its own. */
typedef struct {
    i64 position, n, from; /* n positions of a sequence from `position` on are the model's media rows from `from` on */
} model_media;
typedef struct {
    i64 first, n, pos0;
    const i32 *pages;
    bool absorbed;
    const i32 *branch; /* NULL: the sequence's own pages alone */
    i64 branch_from;
    const model_media *media; /* [n_media]: tokens that are no words; not of absorbed spans */
    i64 n_media;
} model_span;
static inline i32 span_page(const model_span *s, i64 i) {
    return s->branch && i >= s->branch_from ? s->branch[i - s->branch_from] : s->pages[i];
}

/* What a layer with experts was given, brought to the host for somebody to look at: what is not NULL is filled in, then
 * `seen` is called, layer by layer. */
typedef struct {
    void *x;      /* [n, hidden] of ops.act: the experts' input. Of one rank: others would run other kernels */
    i32 *ids;     /* [n, experts a token]: the router's choice */
    f32 *weights; /* [n, experts a token]: what the experts' results are multiplied by */
    void (*seen)(void *ud, i64 layer, i64 n);
    void *ud;
} expert_watch;

enum { MODEL_REPLIES = 8 /* batches under way, at most; a power of two */ };

/* What a bad row's mark means. */
enum { BAD_EMBEDDING = -1, BAD_LOGITS = -2 }; /* else: 1 + the layer whose output was not finite */

typedef struct {
    i64 n; /* tokens */
    /* [n]; below 0: ~j is the token drawn for row j of n_out of the batch queued before; from limits.logit_rows on,
     * what stands in model_guesses()[j - logit_rows] by then */
    const i32 *ids;
    i64 n_spans;
    const model_span *spans;
    i64 n_out;               /* rows whose logits are wanted */
    const i32 *out_rows;     /* [n_out], ascending */
    f32 *logits;             /* [n_out, vocab], host; a rank fills in its share of the vocabulary */
    const sample_row *draws; /* [n_out]: how their next tokens are drawn, where the logits are; NULL: not at all */
    i32 *drawn;              /* [n_out], host: with draws, the tokens */
    const u64 *masks;        /* [n_masks, ceil(vocab / 64)]: which tokens may come, for draws[i].mask; NULL: rows have
                                none. Their numbers ascend with the rows */
    i64 n_masks;
    bool late_draw;   /* with draws: model_queue_draw() queues them, and `masks` are looked at then */
    const bool *keep; /* [n_out]: with draws, the rows whose logits are handed out too; NULL: none */
    /* [n_out], with draws; NULL: not at all. Log-probabilities of so many best tokens of row i, and of token
     * next[i], or of the drawn one where that is negative; tops[i] < 0: none. They come as op `logprobs` leaves
     * them, with `top_most`, the largest of tops, 0 or more. */
    const i32 *tops, *next;
    i64 top_most;
    f32 *logprobs; /* [n_out, 1 + top_most], host */
    i32 *top_ids;  /* [n_out, top_most], host */
    /* NULL: nobody looks. The step waits at every layer then and is no recording: to look, not to time. Not of a batch
     * that limits.deterministic cuts. */
    const expert_watch *watch;
    i32 *bad;  /* [n], host: 0, or the mark of the first NaN or infinity met in that row */
    int reply; /* in 0..MODEL_REPLIES - 1: which of the batches under way it is */
    /* [n_copies]: in each layer these KV rows are copied when the batch has written its own, before its rows in decode
     * form attend: what a branch shares, to its own pages. Both rows of a copy are on one rank. */
    const kv_pair *copies;
    i64 n_copies;
} model_batch;

/* Queues the batch, all but its draws where these come late; its results are there after model_collect(), which waits
 * for it but for no batch queued later. Only arguments out of the limits fail; a row with NaN is reported in bad[].
 * Others may be queued behind it, of different `reply`, before it is collected, if no logits are wanted of it; with
 * limits.deterministic, if it is in decode form, of at most model_ahead_rows() tokens. A batch that nobody collects is
 * none. */
status model_check(const model *m, const model_batch *b, err *e); /* the arguments, which model_queue() checks too */
status model_queue(model *m, const model_batch *b, err *e);
/* Will model_queue() record a checked batch's step first? And that alone, for ranks that do it before any of them
 * begins the step: making a recording can wait for kernels of another rank on the same GPU, and these for this rank. */
bool model_records(model *m, const model_batch *b);
status model_record(model *m, const model_batch *b, err *e);
/* The draws of a batch with late_draw, which was the last one queued: so the passes of a step are under way while
 * masks are made for what the step before has drawn. No other batch is queued before it, unless nobody collects this
 * one. */
status model_queue_draw(model *m, const model_batch *b, err *e);
status model_collect(model *m, const model_batch *b, err *e);
/* Does attention read the KV rows of a sequence once for all `each` rows that it has in a step? All rows in decode
 * form, and the tokens that each attends to, added up. Such a step is recorded by itself. */
bool model_reads_together(const model *m, i64 each, i64 rows, i64 tokens);
/* Queues copies of KV rows in all layers, at most limits.copies: those of a branch that was kept, to the sequence's own
 * pages. */
status model_copy_kv(model *m, const kv_pair *pairs, i64 n, err *e);
/* KV rows of a page of the pool that this rank has, in one of its layers: [KV_PAGE, latent + rope] on the device. */
kv_rows model_kv_page(const model *m, i32 page, i64 layer);
/* [limits.media_rows, hidden], of ops.act, on the device: what the vision tower writes (model/vision.h). */
void *model_media_rows(const model *m);
i64 model_ahead_rows(const model *m);
i32 *model_guesses(const model *m); /* [limits.guesses], on the device: for a draft to fill in */

/* With --ep and limits.counts_experts, for all ranks of a stage between the same two steps: from what was chosen since
 * the last time follows where experts had better be. c: the ranks' comm, NULL: there is one. Shares are sums over
 * layers of expert_placement_most(). Memory aside nothing changes yet. */
typedef struct {
    i64 layers, slots; /* of this stage; slots that are to get another expert, of all groups */
    f64 before, after;
} expert_moves;
struct comm;
status model_plan_moves(model *m, struct comm *c, expert_moves *out, err *e);
/* Then, too, layer by layer (of the whole model; of other stages nothing is done): this rank's slots of it get their
 * experts, from the checkpoint, and its routes follow. With dummy weights routes alone. */
status model_move_experts(model *m, i64 layer, err *e);

#endif
