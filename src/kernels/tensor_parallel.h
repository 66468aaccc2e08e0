/* kernels/tensor_parallel.h: the seams of fused.h for ranks that hold a share of every matrix.
 *
 * Heads, expert widths and the vocabulary are divided: products with q_b, kv_b, gate and up need nothing of the others,
 * o and down make parts of a sum, the embedding has rows of its own. So a layer has two sums over the ranks. Each rank
 * has logits of a share of the vocabulary; they are divided by rows to draw tokens, so that a rank draws an Nth of
 * them, from whole rows, by the operations of one rank: the same tokens, and no rank sees all logits. */
#ifndef KERNELS_TENSOR_PARALLEL_H
#define KERNELS_TENSOR_PARALLEL_H
#include "device/comm.h"
#include "kernels/fused.h"

/* Memory of a rank's device with which sums are in the order of the ranks where its comm's are not: --deterministic by
 * NCCL. A value's sum hangs on nothing else then. */
typedef struct {
    void *parts, *sum; /* [values], [values / ranks] of o->act */
    const f32 *ones;   /* [ranks] */
    i64 values;        /* a multiple of 8 ranks */
} ordered_sums;

/* How a comm does the seams of these names by itself; NULL, all: a sum, then the norm of all rows. */
typedef struct {
    void (*reduce_norm)(const ops *o, comm *c, const norm_args *norm, deferred_norm *deferred, kept_rows *kept);
    bool (*norms_apart)(const comm *c, const norm_args *norm);
    i64 (*part_places)(const ops *o, comm *c, const norm_args *norm, void **at);
    void (*share_rows)(const ops *o, comm *c, const divided_rows *of, i64 count, i64 n);
} norm_seams;
typedef struct {
    comm *c; /* moves the data */
    norm_seams norms;
    ordered_sums ordered; /* values 0: the comm's own sums */
    i64 kv_ranks;         /* that divide the KV cache; of a slice more than c has */
} tensor_parallel;

/* *p must outlive the seams. */
rank_seams tensor_parallel_seams(tensor_parallel *p);

#endif
