#include "kernels/tensor_parallel.h"

static tensor_parallel *split_of(const ops *o) { return o->ranks->state; }

/* out [n]: the sum of p->ordered.parts [ranks, n], which sum_pairs() takes for the pairs of one row. */
static void add_in_order(const ops *o, const tensor_parallel *p, void *out, i64 n) {
    o->sum_pairs(
        o, &(sum_pairs_args){
               .y = p->ordered.parts, .weights = p->ordered.ones, .out = out, .n = 1, .k = p->c->ranks, .dim = n});
}

/* n values, at most p->ordered.values: each rank gets a part of all ranks' and sums it, then all get all parts; or,
 * where they are not for equal parts, all ranks' values. */
static i64 sum_some_in_order(const ops *o, const tensor_parallel *p, u8 *x, i64 n) {
    comm *c = p->c;
    const u64 size = dtype_size(o->act);
    i64 counts[COMM_RANKS_MAX];
    if (n % c->ranks) {
        n = min_i64(n, p->ordered.values / c->ranks);
        c->all_gather(c, x, p->ordered.parts, (u64)n * size);
        return add_in_order(o, p, x, n), n;
    }
    for (i64 r = 0; r < c->ranks; r++) counts[r] = n / c->ranks;
    c->all_to_all(c, x, counts, p->ordered.parts, counts, size);
    add_in_order(o, p, p->ordered.sum, counts[0]);
    return c->all_gather(c, p->ordered.sum, x, (u64)counts[0] * size), n;
}

static void sum_values(const ops *o, void *x, i64 n) {
    const tensor_parallel *p = split_of(o);
    if (!p->ordered.values) return p->c->all_reduce(p->c, x, n, o->act);
    for (i64 at = 0; at < n;)
        at += sum_some_in_order(o, p, (u8 *)x + (u64)at * dtype_size(o->act), min_i64(n - at, p->ordered.values));
}

static void sum_rows(const ops *o, void *x, i64 n, i64 dim, i64 stride) {
    if (stride == dim) return sum_values(o, x, n * dim);
    for (i64 i = 0; i < n; i++) sum_values(o, (u8 *)x + (u64)(i * stride) * dtype_size(o->act), dim);
}

static void sum_embeddings(const ops *o, void *x, i64 n, i64 dim) { sum_rows(o, x, n, dim, dim); }

static void sum_and_norm(const ops *o, const norm_args *norm, deferred_norm *deferred, kept_rows *kept) {
    const tensor_parallel *p = split_of(o);
    p->norms.reduce_norm(o, p->c, norm, deferred, kept);
}

static bool norms_own_rows(const ops *o, const norm_args *norm) {
    const tensor_parallel *p = split_of(o);
    return p->norms.norms_apart(p->c, norm);
}

static i64 places_of_parts(const ops *o, const norm_args *norm, void **at) {
    const tensor_parallel *p = split_of(o);
    return p->norms.part_places(o, p->c, norm, at);
}

static void rows_to_all(const ops *o, const divided_rows *of, i64 count, i64 n) {
    const tensor_parallel *p = split_of(o);
    p->norms.share_rows(o, p->c, of, count, n);
}

static void rows_of_logits(const ops *o, const f32 *logits, i64 n, const i64 *first, f32 *rows) {
    comm *c = split_of(o)->c;
    c->columns_to_rows(c, logits, n, first, rows);
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
                        .reduce_norm = p->norms.reduce_norm ? sum_and_norm : NULL,
                        .norms_apart = p->norms.norms_apart ? norms_own_rows : NULL,
                        .part_places = p->norms.part_places ? places_of_parts : NULL,
                        .share_rows = p->norms.share_rows ? rows_to_all : NULL,
                        .head = rows_of_logits,
                        .draw = gather_ids};
}
