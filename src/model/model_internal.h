/* model/model_internal.h: what the files of the model share: its weights, buffers and tables (memory.c), the ops of a
 * batch (forward.c), and how a batch is queued and its results come back (step.c). */
#ifndef MODEL_MODEL_INTERNAL_H
#define MODEL_MODEL_INTERNAL_H
#include "device/comm.h"
#include "kernels/expert_parallel.h"
#include "model/expert_placement.h"
#include "model/tables.h"

struct model {
    const model_config *c;
    const checkpoint *ck;
    const ops *o;
    model_limits lim;
    model_weights w; /* until model_load(): without data */
    model_memory memory;
    device_pool mem;
    u64 act_size; /* bytes of an activation element */
    f64 rope_mscale;
    f32 softmax_scale;
    f64 *inv_freq;       /* [rope / 2] */
    void *kv;            /* kv_type [n_layers, pages of the pool that are here, KV_PAGE, latent + rope] */
    u64 kv_layer;        /* bytes of one layer's */
    void *x, *h, *delta; /* [rows, hidden]: residual stream, normed input, what a sub-layer adds */
    void *q_a;           /* [rows, q_lora] */
    void *q;             /* [rows, H, nope + rope] */
    void *kv_a;          /* [rows, latent + rope] */
    void *attn;          /* [rows, H, v] */
    void *q_abs;         /* [decode_rows, H, latent + rope] */
    void *attn_latent;   /* [decode_rows, H, latent] */
    void *decode_plan;   /* of the rows in decode form; NULL: the backend has none */
    /* Of a KV cache that is divided, R = ranks: */
    void *q_all;        /* [decode_rows, R H, latent + rope]; then what other ranks send of a row's parts */
    void *parts;        /* [decode_rows, R H, latent] */
    f32 *parts_lse;     /* [decode_rows + 1, R H]; the last row: what other ranks send */
    void *collected;    /* kv_type [seq_pages, KV_PAGE, latent + rope]: the pages of one sequence in one layer */
    i32 *in_order;      /* [seq_pages]: 0, 1, ..: the page table of that */
    void *attended;     /* [rows + 1, hidden]: where sequences have a rank each; the last row stays zero */
    void *features;     /* [rows, n_taps hidden]: the residual stream before limits.taps, of the last batch */
    i64 group;          /* rows of each sequence of the batch in decode form, where all have as many; else 1 */
    bool branched;      /* the batch copies KV rows */
    i64 features_at;    /* the first row of the part of a batch that runs */
    void *media;        /* [limits.media_rows, hidden]: what stands in prompts in words' place */
    void *inter;        /* [rows, widest feed-forward] */
    void *shared;       /* [rows, hidden] */
    f32 *scores;        /* [rows, experts] */
    i32 *expert_ids;    /* [rows, k] */
    i32 *expert_routes; /* --ep: [layers that have experts, experts], as gate_args has them; else none */
    i32 *expert_slots;  /* --ep: [rows, k]: of expert_ids */
    u32 *expert_counts; /* limits.counts_experts: [layers that have experts, experts]: rows that chose each */
    expert_placement placement, wanted; /* --ep: where experts are, and will be; else nothing */
    weight_cut **moved_cuts;            /* [layers that have experts, slots]: columns of experts that came later */
    moe_pairs pairs;                    /* --ep with limits.deterministic; else none */
    f32 *expert_w;                      /* [rows, k] */
    f32 *rope;                          /* [rows, rope / 2, 2] */
    deferred_norm deferred;             /* of h */
    kept_rows kept;                     /* of x and h */
    row_range own;                      /* rows of h whose experts this rank chooses for all */
    batch_tables tables_dev;            /* of this batch, on the device */
    batch_tables tables_host;           /* the same on the host */
    device_readback *readbacks[MODEL_REPLIES];
    f32 *logits;              /* [logit_rows, vocab_held] */
    f32 *whole;               /* of ranks: logits [logit_rows / ranks, vocab] of the rows that this one draws */
    u64 *masks;               /* [logit_rows, model_mask_words()]: which tokens may be drawn */
    f32 *logprobs;            /* [logit_rows, 1 + LOGPROBS_TOP] */
    i32 *top_ids;             /* [logit_rows, LOGPROBS_TOP] */
    void *workspace, *tables; /* tables: what `in` points into */
    u64 workspace_bytes;
    model_span *part_spans; /* of a part of a batch: limits.deterministic */
    i32 *part_outs;
    /* [2, RECORDED + 1, GROUP_MOST + 1]: of n rows in decode form, in groups, each with its logits; behind them those
     * that copy KV rows; NULL: not yet */
    device_recording **steps;
    u8 *met;         /* [as steps]: how often it was met before it was recorded */
    bool unrecorded; /* the device had no room for one: there are no more of them */
};

/* Batches of up to so many rows, all in decode form, are recorded: of up to RECORDED_AT_ONCE when they are first met,
 * which takes 8 ms. Of more rows it takes 45 and makes a step 2 ms shorter: they are met RECORDED_AFTER times first. */
enum {
    RECORDED = 256,
    RECORDED_AT_ONCE = 64,
    RECORDED_AFTER = 8,
    GROUP_MOST = 16,
    RECORDINGS = 2 * (RECORDED + 1) * (GROUP_MOST + 1)
};
static inline i64 model_recording_at(const model *m, i64 n) {
    return ((m->branched ? RECORDED + 1 : 0) + n) * (GROUP_MOST + 1) + m->group;
}
static inline device_recording **model_recording(const model *m, i64 n) { return &m->steps[model_recording_at(m, n)]; }

static inline bool model_spreads_experts(const model *m) { return m->c->ep > 1; }
/* Layers with experts, which lie behind the dense ones. */
static inline i64 model_expert_layers(const model *m) { return m->c->n_layers - m->c->n_dense; }
/* The config's placement becomes the model's own, and its layers' routes. */
status model_open_placement(model *m, err *e);
void model_close_placement(model *m);

/* Does a row's place among others matter to the backend, and must it not? */
static inline bool model_runs_apart(const model *m) { return m->lim.deterministic && m->o->set_row_mode; }

/* A reply: what tables.h says, log-probabilities, best tokens. */
static inline u64 model_logprobs_at(const model *m) { return tables_results(&m->lim, m->lim.rows); }
static inline u64 model_top_ids_at(const model *m) {
    return model_logprobs_at(m) + (u64)m->lim.logit_rows * (1 + LOGPROBS_TOP) * sizeof(f32);
}
static inline u64 model_readback_bytes(const model *m) {
    return model_top_ids_at(m) + (u64)m->lim.logit_rows * LOGPROBS_TOP * sizeof(i32);
}

/* Of n rows those whose tokens are drawn here, and whose log-probabilities are known. */
static inline row_range model_drawn_rows(const model *m, i64 n) {
    const rank_seams *r = m->o->ranks;
    if (!model_ends(m->c)) return (row_range){0, 0};
    return r && r->head ? comm_rows(n, r->ranks, r->rank) : (row_range){0, n};
}

/* rank_seams.head of the vocabulary of c, which o->ranks divide: the model's, or a draft's. */
static inline void model_rows_of_logits(const ops *o, const model_config *c, const f32 *logits, i64 n, f32 *rows) {
    i64 first[COMM_RANKS_MAX + 1];
    model_vocab_shares(c, o->ranks->ranks, first);
    o->ranks->head(o, logits, n, first, rows);
}

static inline i64 model_mask_words(const model *m) { return ceil_div(m->c->vocab, 64); }

/* Are the wanted rows all rows, in order? */
bool model_wants_all(const model_batch *b);
/* The launches of a batch whose tables are on the device, up to the wanted rows' logits; its first n_abs rows are in
 * decode form. */
void model_forward(model *m, const model_batch *b, i64 n_abs);
/* Draws the next tokens, or looks for NaN and infinities alone. Not recorded: how tokens are drawn changes from step
 * to step. */
void model_draw(model *m, const model_batch *b);
/* Copies the KV rows of tables_dev.copies in `layers` layers from `kv` on. */
void model_copy_rows(model *m, void *kv, i64 layers);
/* Behind the draw, whose workspace it takes over. */
void model_logprobs(model *m, const model_batch *b);

#endif
