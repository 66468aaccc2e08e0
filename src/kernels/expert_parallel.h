/* kernels/expert_parallel.h: routed experts whose sums do not depend on where the experts are.
 *
 * Ranks that have whole experts each (model/expert_placement.h) leave out what is not theirs of a row's k experts
 * (gate_args.routes), and their results are parts of a sum like all others. But a part is rounded once for however many
 * of the k are on one rank, so that a row's bits depend on the placement. Here they do not: each expert's result is
 * brought together by itself, as it would be stored alone, and a row's k are summed in their order by the first
 * rank. */
#ifndef KERNELS_EXPERT_PARALLEL_H
#define KERNELS_EXPERT_PARALLEL_H
#include "kernels/fused.h"

/* Room for the pairs (row, one of its k experts) of so many rows at a time. */
typedef struct moe_pairs {
    const i32 *rows; /* [most * k]: 0 k times, 1 k times, .. */
    const f32 *ones; /* [most * k] */
    void *x, *y;     /* [most * k, dim] */
    i64 most, dim;   /* dim: of a row */
} moe_pairs;

/* a->out: this rank's part of moe(), for fused_reduce_norm(): a->shared, and on the first rank all experts' sum.
 * a->deferred must be finished. k times moe()'s exchanges. */
void expert_parallel_moe(const ops *o, const moe_args *a, const moe_pairs *p);

#endif
