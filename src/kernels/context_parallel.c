#include "kernels/context_parallel.h"
#include <math.h>

static comm *comm_of(const ops *o) { return ((tensor_parallel *)o->ranks->state)->c; }

/* Row by row, so that the heads of a row lie behind each other. */
static void all_queries(const ops *o, const void *own, void *all, i64 n, i64 width) {
    comm *c = comm_of(o);
    const u64 bytes = (u64)width * dtype_size(o->act);
    for (i64 i = 0; i < n; i++)
        c->all_gather(c, (const u8 *)own + (u64)i * bytes, (u8 *)all + (u64)(i * c->ranks) * bytes, bytes);
}

/* x[0, n) += w y[0, n), as float32 */
static void add_weighted(f32 *x, const void *y, i64 from, i64 n, f32 w, dtype type) {
    for (i64 k = 0; k < n; k++)
        x[k] += w * (type == DT_F32 ? ((const f32 *)y)[from + k] : bf16_to_f32(((const bf16 *)y)[from + k]));
}

/* One head of one row: parts [ranks, heads, latent], lse [ranks, heads]. */
static void merge_head(const merge_parts_args *a, i64 ranks, i64 row, i64 h, dtype type) {
    enum { PIECE = 128 };
    const f32 *lse = a->lse_here + h;
    f32 top = -INFINITY, total = 0, w[COMM_RANKS_MAX];
    for (i64 r = 0; r < ranks; r++) /* a NaN stays */
        if (!(lse[r * a->heads] <= top)) top = lse[r * a->heads];
    for (i64 r = 0; r < ranks; r++) total += w[r] = lse[r * a->heads] == -INFINITY ? 0 : expf(lse[r * a->heads] - top);
    for (i64 c = 0; c < a->latent; c += PIECE) {
        const i64 n = min_i64(PIECE, a->latent - c), at = (row * a->heads + h) * a->latent + c;
        f32 sum[PIECE] = {0};
        for (i64 r = 0; r < ranks; r++) /* a rank without tokens has sent anything */
            if (w[r] != 0) add_weighted(sum, a->here, (r * a->heads + h) * a->latent + c, n, w[r], type);
        for (i64 k = 0; k < n; k++) {
            if (type == DT_F32)
                ((f32 *)a->out)[at + k] = sum[k] / total;
            else
                ((bf16 *)a->out)[at + k] = f32_to_bf16(sum[k] / total);
        }
    }
}

static void merge_parts(const ops *o, const merge_parts_args *a) {
    comm *c = comm_of(o);
    const i64 width = a->heads * a->latent;
    i64 values[COMM_RANKS_MAX], sums[COMM_RANKS_MAX];
    for (i64 r = 0; r < c->ranks; r++) values[r] = width, sums[r] = a->heads;
    for (i64 i = 0; i < a->n; i++) {
        const u64 size = dtype_size(o->act);
        c->all_to_all(c, (const u8 *)a->parts + (u64)(i * c->ranks * width) * size, values, a->here, values, size);
        c->all_to_all(c, a->lse + i * c->ranks * a->heads, sums, a->lse_here, sums, sizeof(f32));
        for (i64 h = 0; h < a->heads; h++) merge_head(a, c->ranks, i, h, o->act);
    }
}

static void collect_pages(const ops *o, const collect_pages_args *a) {
    comm *c = comm_of(o);
    const kv_share share = {.ranks = c->ranks, .rank = c->rank};
    for (i64 i = 0; i < a->n; i++) {
        u8 *to = (u8 *)a->out + (u64)i * a->page_bytes;
        const i64 owner = kv_owner(share, a->pages[i]);
        if (owner == c->rank)
            memcpy(to, (const u8 *)a->kv + (u64)kv_local_page(share, a->pages[i]) * a->page_bytes, a->page_bytes);
        c->broadcast(c, to, a->page_bytes, owner);
    }
}

void context_parallel_seams(rank_seams *s) {
    s->queries = all_queries;
    s->merge = merge_parts;
    s->collect = collect_pages;
}
