#include "kernels/tensor_parallel.h"

static tensor_parallel *split_of(const ops *o) { return o->ranks->state; }

static void sum_rows(const ops *o, void *x, i64 n, i64 dim, i64 stride) {
    comm *c = split_of(o)->c;
    if (stride == dim) return c->all_reduce(c, x, n * dim, o->act);
    for (i64 i = 0; i < n; i++) c->all_reduce(c, (u8 *)x + (u64)(i * stride) * dtype_size(o->act), dim, o->act);
}

static void sum_embeddings(const ops *o, void *x, i64 n, i64 dim) { sum_rows(o, x, n, dim, dim); }

static void sum_and_norm(const ops *o, const norm_args *norm, deferred_norm *deferred) {
    const tensor_parallel *p = split_of(o);
    p->reduce_norm(o, p->c, norm, deferred);
}

static void rows_of_logits(const ops *o, const f32 *logits, i64 n, f32 *rows) {
    tensor_parallel *p = split_of(o);
    p->c->columns_to_rows(p->c, logits, n, p->vocab_first, rows);
}

static void gather_ids(const ops *o, i32 *ids, i64 n) {
    comm *c = split_of(o)->c;
    const i64 each = ceil_div(n, c->ranks); /* as comm_rows() */
    c->all_gather(c, ids + c->rank * each, ids, (u64)each * sizeof *ids);
}

rank_seams tensor_parallel_seams(tensor_parallel *p) {
    return (rank_seams){.rank = p->c->rank,
                        .ranks = p->c->ranks,
                        .state = p,
                        .embed = sum_embeddings,
                        .reduce = sum_rows,
                        .reduce_norm = p->reduce_norm ? sum_and_norm : NULL,
                        .head = rows_of_logits,
                        .draw = gather_ids};
}
