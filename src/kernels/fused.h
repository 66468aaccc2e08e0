/* kernels/fused.h: what is several operations of ops.h at once, and the seams where the ranks of one model meet.
 *
 * A fused operation is made of others, and its composition of them (fused.c) is what it means. A backend that has no
 * better leaves its slot NULL, or the whole table: ops.h alone runs every model. */
#ifndef KERNELS_FUSED_H
#define KERNELS_FUSED_H
#include "device/comm.h"
#include "kernels/ops.h"

/* Rows of a residual stream and of its norm that a rank has, once they have been summed over ranks: all, or those that
 * are its own by comm_rows(). Who wants a sum sets `divide` where it can go on with its own rows of the norm alone, and
 * the rest as it is without ranks: all rows. sent: the product in front has stored this rank's part of the sum where
 * rank_seams.part_places says.
 * maker, reader: [n] on the device, or NULL: the rank that alone has a row of what is summed, the others' values of
 * which are not looked at; the rank that alone gets a row of the norm, others' rows of which mean nothing then
 * (normed is empty). One of them may be set, where rank_seams.norms_apart says so. */
typedef struct {
    bool divide, sent;
    const i32 *maker, *reader;
    row_range stream, normed;
} kept_rows;

/* linear, and the norm behind it whose `add` is linear's y, which need not be written, nor be rounded before it is
 * added. deferred: of norm.out; NULL: it must be finished. kept: of norm.sum and norm.out; NULL: all rows are wanted
 * of both. */
typedef struct {
    linear_args linear;
    norm_args norm;
    deferred_norm *deferred;
    kept_rows *kept;
} linear_norm_args;

/* Products of the same rows of x with several weights of as many columns, none of which reads what another writes:
 * `count` calls of linear, or of swiglu where `up` is not NULL (then w is the gate), which a backend may run at
 * once. */
enum { LINEAR_GROUP_MAX = 4 };
typedef struct {
    const op_weight *w, *up;
    void *y;
    i64 y_stride;
    dtype y_type; /* of a linear */
} linear_group_item;
typedef struct {
    linear_group_item of[LINEAR_GROUP_MAX];
    i64 count;
    const void *x;
    i64 n, x_stride;
    deferred_norm *deferred; /* of x, or NULL */
} linear_group_args;

/* norm and kv_write of a layer beside each other; they must not overlap. q.n is 0 where the queries have no latent
 * rows. */
typedef struct {
    norm_args q;
    kv_write_args kv;
} latent_norm_kv_write_args;

/* All that lies between the latent rows of queries and keys and absorbed attention: latent_norm_kv_write, q = q_b times
 * the rows of queries, rope_q with the KV rows' table, absorb_q. The normed rows and q need not be written. */
typedef struct {
    latent_norm_kv_write_args latent_norm_kv_write; /* q.n not 0 */
    const op_weight *q_b;
    void *q; /* [n, H, nope + rope] */
    absorb_q_args absorb;
} mla_queries_args;

/* Into decode.plan, [fused_mla_decode_plan_bytes()], what a backend finds out of kv_len and pages once for all layers
 * of a step: for calls of mla_decode that differ in q, kv, out and workspace alone. Kernels may read it before the one
 * in front of them has ended: between this and the first such call lies at least one other operation. */
typedef struct {
    mla_decode_args decode;
} mla_decode_plan_args;
u64 fused_mla_decode_plan_bytes(const ops *o); /* 0: there is nothing to find */
/* Had rows of one sequence better be read together (mla_decode_args.group)? rows: all of the call; tokens: of their
 * contexts together, in a cache of type kv. */
bool fused_mla_groups_pay(const ops *o, i64 heads, i64 rows, i64 tokens, dtype kv);

/* mla_decode, and unabsorb_v of its out, which need not be written. */
typedef struct {
    mla_decode_args decode;
    unabsorb_v_args values;
} mla_decode_values_args;

/* gate, and a linear that neither reads what the other writes nor may be waited for by it. A backend may use the time
 * to prepare x of the experts that follow: then it sets *prepared, which goes into their moe_args. */
typedef struct {
    gate_args gate;
    linear_args linear;
    const moe_args *experts; /* NULL: none are known */
    bool *prepared;
} gate_linear_args;

/* moe, and the norm behind it whose `add` is moe's out: as linear_norm_args. norm.weight NULL: moe alone, of which
 * ranks have parts, whose sum is the caller's. */
typedef struct {
    moe_args moe;
    norm_args norm;
    deferred_norm *deferred;
    kept_rows *kept;
    const struct moe_pairs *pairs; /* NULL, or: by expert_parallel_moe() (expert_parallel.h) */
} moe_norm_args;

/* The feed-forward part of a layer with experts: linear_group of x with the router, and with a shared expert its gate
 * and up; gate of the former's scores; `down` of the latter's h; moe of x. Only what `moe` writes need be written. own:
 * of the rows [0, n) of ranks, those whose experts this one chooses for all ranks; must be set where there are
 * ranks. */
typedef struct {
    linear_group_args linear_group; /* of[0]: the router; of[1]: the shared expert's, if count is 2 */
    gate_args gate;
    linear_args down; /* not looked at if count is 1 */
    moe_norm_args moe;
    row_range own;
} moe_ffn_args;

/* All of them. Those of the second list end in the residual stream, between product and sum of which ranks meet: with
 * ranks they are composed, but that moe_ffn may be one up to there. */
#define FUSED_OPS(X) FUSED_OPS_OF_ONE_RANK(X) FUSED_OPS_TO_RESIDUAL(X)
#define FUSED_OPS_OF_ONE_RANK(X)                                                                                       \
    X(linear_group)                                                                                                    \
    X(latent_norm_kv_write)                                                                                            \
    X(mla_queries)                                                                                                     \
    X(mla_decode_plan)                                                                                                 \
    X(mla_decode_values)                                                                                               \
    X(gate_linear)
#define FUSED_OPS_TO_RESIDUAL(X)                                                                                       \
    X(linear_norm)                                                                                                     \
    X(moe_norm)                                                                                                        \
    X(moe_ffn)

typedef struct fused_ops {
#define FUSED_SLOT(op) void (*op)(const ops *o, const op##_args *a);
    FUSED_OPS(FUSED_SLOT)
#undef FUSED_SLOT
    u64 mla_decode_plan_bytes;
    bool (*mla_groups_pay)(i64 heads, i64 rows, i64 tokens, dtype kv); /* NULL: always */
} fused_ops;

/* fused_X(): by o->fused where it has a slot for it, else compose_X(), by o's other operations one after the other.
 * With ranks the second list is composed: its seams lie in between. */
#define FUSED_DECLARE(op)                                                                                              \
    void fused_##op(const ops *o, const op##_args *a);                                                                 \
    void compose_##op(const ops *o, const op##_args *a);
FUSED_OPS(FUSED_DECLARE)
#undef FUSED_DECLARE

/* What a product has left in norm->add, rows `add_stride` apart, becomes all ranks' together, then the norm; deferred
 * and kept as in linear_norm_args. */
void fused_reduce_norm(const ops *o, const norm_args *norm, i64 add_stride, deferred_norm *deferred, kept_rows *kept);

/* Softmax parts of one layer's attention in decode form, of all heads over this rank's KV rows, to whole results of its
 * own heads. The heads of a row lie rank by rank. */
typedef struct {
    const void *parts; /* [n, ranks * heads, latent]: as mla_decode leaves them */
    const f32 *lse;    /* [n, ranks * heads] */
    void *here;        /* [ranks, heads, latent]: room for what the others send of a row */
    f32 *lse_here;     /* [ranks, heads] */
    void *out;         /* [n, heads, latent] */
    i64 n, heads, latent;
} merge_parts_args;

/* The pages of a sequence, which lie on several ranks, behind each other. */
typedef struct {
    const void *kv;   /* this rank's share of one layer's pool */
    const i32 *pages; /* [n]: numbers in the whole pool (kernels/context_parallel.h) */
    void *out;        /* [n, page_bytes] */
    i64 n;
    u64 page_bytes;
} collect_pages_args;

/* A matrix whose rows ranks have computed each their own of. */
enum { DIVIDED_ROWS_MAX = 2 };
typedef struct {
    void *x;
    i64 width;
} divided_rows;

/* Where the ranks of one model meet: every rank calls each in the same order, on its own part, and goes on with what
 * all have together, the same bits on each. Queued like an operation. A slot that is NULL is not needed by this split
 * of the model; without o->ranks none is called. */
typedef struct rank_seams {
    i64 rank, ranks;
    void *state;
    /* Of o->act: x [n, dim] of each rank's rows of the table, zeros for others, becomes their sum. */
    void (*embed)(const ops *o, void *x, i64 n, i64 dim);
    /* Of o->act: parts of a product [n, dim], rows `stride` apart, become their sum, before it joins the residual
     * stream. */
    void (*reduce)(const ops *o, void *x, i64 n, i64 dim, i64 stride);
    /* reduce of norm->add, and the norm; deferred: of norm->out, or NULL: it must be finished; kept: which rows this
     * rank has then, which hangs on n alone, and on kept->divide: calls on one stream have one n, and whoever wants all
     * of its rows calls share_rows; or NULL: all. A slot that is NULL: reduce, then the norm, of all rows. */
    void (*reduce_norm)(const ops *o, const norm_args *norm, deferred_norm *deferred, kept_rows *kept);
    /* Are the rows of this one divided among ranks, and may have makers and readers? NULL: no. */
    bool (*norms_apart)(const ops *o, const norm_args *norm);
    /* Of the sum that reduce_norm takes next of norm->add, at[r] (COMM_RANKS_MAX): where rank r's rows of this rank's
     * part may be stored instead, [rows of r, dim], to be its own already then. Returns how many ranks there are; 0:
     * they may not. */
    i64 (*part_places)(const ops *o, const norm_args *norm, void **at);
    /* Of each matrix [n, width] of o->act, widths multiples of 8, a rank has its own rows by comm_rows(); all get all.
     * NULL where reduce_norm is. */
    void (*share_rows)(const ops *o, const divided_rows *of, i64 count, i64 n);
    /* Between attention and experts, x [n, dim] of o->act: the rows of all ranks that an expert here may have to see;
     * returns how many x has then, for which its buffer has room. */
    i64 (*gather)(const ops *o, void *x, i64 n, i64 dim);
    /* The experts' results of so many rows back to the n rows of this rank, summed. */
    void (*scatter)(const ops *o, void *y, i64 gathered, i64 n, i64 dim);
    /* own [n, width]: queries of this rank's heads; all [n, ranks, width] gets everybody's. The three of a KV cache
     * that is divided: all or none. */
    void (*queries)(const ops *o, const void *own, void *all, i64 n, i64 width);
    void (*merge)(const ops *o, const merge_parts_args *a);
    void (*collect)(const ops *o, const collect_pages_args *a);
    /* logits [n, this rank's share of the vocabulary]: `rows` gets the whole ones of the rows that this rank draws,
     * those of comm_rows() (device/comm.h). first [ranks + 1]: where each rank's share begins; the last: where it
     * ends. */
    void (*head)(const ops *o, const f32 *logits, i64 n, const i64 *first, f32 *rows);
    /* ids [n, rounded up to a multiple of ranks]: each rank has drawn its rows'; all get all. */
    void (*draw)(const ops *o, i32 *ids, i64 n);
} rank_seams;

#endif
