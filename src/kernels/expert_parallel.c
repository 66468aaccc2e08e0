#include "kernels/expert_parallel.h"

static void *act_row(const ops *o, const void *x, i64 row, i64 dim) {
    return (u8 *)(uintptr_t)x + (u64)(row * dim) * dtype_size(o->act);
}

static void some_rows(const ops *o, const moe_args *a, const moe_pairs *p, i64 from, i64 to) {
    const rank_seams *r = o->ranks;
    const i64 pairs = (to - from) * a->k, dim = p->dim;
    o->gather(o, &(gather_args){.x = act_row(o, a->x, from, dim),
                                .rows = p->rows,
                                .out = p->x,
                                .n = pairs,
                                .dim = dim,
                                .x_stride = dim,
                                .out_stride = dim});
    o->moe(o, &(moe_args){.experts = a->experts,
                          .x = p->x,
                          .ids = a->ids + from * a->k,
                          .weights = p->ones,
                          .out = p->y,
                          .workspace = a->workspace,
                          .n = pairs,
                          .k = 1,
                          .among = a->among});
    r->reduce(o, p->y, pairs, dim, dim); /* all but one rank's, or one group's, are zeros */
    /* Always by the first rank: whose sum a row's is rounded with may not hang on its place in the batch. */
    o->sum_pairs(o, &(sum_pairs_args){.y = p->y,
                                      .weights = a->weights + from * a->k,
                                      .shared = a->shared ? act_row(o, a->shared, from, dim) : NULL,
                                      .out = act_row(o, a->out, from, dim),
                                      .n = to - from,
                                      .k = r->rank ? 0 : a->k,
                                      .dim = dim});
}

void expert_parallel_moe(const ops *o, const moe_args *a, const moe_pairs *p) {
    for (i64 from = 0; from < a->n; from += p->most) some_rows(o, a, p, from, min_i64(from + p->most, a->n));
}
