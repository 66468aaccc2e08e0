/* kernels/gpu/mla/query_fused.c: the launch of query_fused.cu: does it take a call. */
#include "kernels/gpu/backend.h"

enum { ROWS_MOST = 64, HEADS_MOST = 16 /* at more than 8 rows: then a multiprocessor has one block */ };

static u32 query_fused_shared_of(i64 tokens, i64 units) {
    i64 query = tokens > 8 ? 2 * 8192 : 2 * 1024, sums = (QUERY_NOPE + QUERY_ROPE + 4) * 4;
    return (u32)(units * (QUERY_NOPE + QUERY_ROPE) * 128 + QUERY_NOPE * 128 + units * tokens * 128 + query +
                 tokens * (sums + 4 + QUERY_UNITS * 4));
}

static bool query_fused_fits(const mla_queries_args *a) {
    const norm_args *q = &a->latent_norm_kv_write.q;
    const absorb_q_args *k = &a->absorb;
    const gpu_matrix *w = &a->q_b->views[0], *kv_b = &k->kv_b->views[0];
    i64 lora = q->dim;
    if (!k->n || k->n > (k->n_heads > HEADS_MOST ? 8 : ROWS_MOST)) return false;
    if (w->format != GPU_W_BF16 || kv_b->format != GPU_W_BF16 || !w->wide || !kv_b->wide) return false;
    if (k->nope != QUERY_NOPE || k->rope != QUERY_ROPE || k->latent != QUERY_LATENT) return false;
    if (lora % (64 * QUERY_CLUSTER) || lora > 64 * QUERY_CLUSTER * QUERY_UNITS || q->add || q->bad) return false;
    u64 all = (u64)(uintptr_t)q->x | (u64)q->x_stride * 2 | (u64)(uintptr_t)q->weight->vector | (u64)(uintptr_t)k->out;
    const kv_write_args *kv = &a->latent_norm_kv_write.kv;
    if (kv->latent != k->latent || kv->rope != k->rope) return false;
    return all % 16 == 0 && kv->n == k->n && q->n == k->n && gpu_kv_in_pieces(kv);
}

void gpu_op_mla_queries(const ops *o, const mla_queries_args *a) {
    const gpu_backend *b = gpu_of(o);
    const norm_args *q = &a->latent_norm_kv_write.q;
    const absorb_q_args *k = &a->absorb;
    if (b->form != ROWS_ANY || !query_fused_fits(a)) return compose_mla_queries(o, a);
    i64 tokens = k->n <= 8 ? 8 : k->n <= 16 ? 16 : k->n <= 32 ? 32 : 64, units = q->dim / (64 * QUERY_CLUSTER);
    gpu_query_fused_args g = {.q_a = q->x,
                              .q_norm = q->weight->vector,
                              .q_b = a->q_b->views[0].data,
                              .kv_b = k->kv_b->views[0].data,
                              .out = k->out,
                              .kv = gpu_kv_write_of(&a->latent_norm_kv_write.kv),
                              .n = k->n,
                              .heads = k->n_heads,
                              .q_lora = q->dim,
                              .q_stride = q->x_stride,
                              .v_dim = k->kv_b->v_dim,
                              .units = (int)units,
                              .eps = q->eps};
    gpu_launch_cluster(b->g,
                       tokens == 8    ? b->query_fused_8
                       : tokens == 16 ? b->query_fused_16
                       : tokens == 32 ? b->query_fused_32
                                      : b->query_fused_64,
                       QUERY_CLUSTER, (u32)(k->n_heads + 1) * QUERY_CLUSTER, 1, 1, QUERY_THREADS,
                       query_fused_shared_of(tokens, units), &g);
}

status gpu_query_fused_init(gpu_backend *b, err *e) {
    gpu_kernel *const all[] = {b->query_fused_8, b->query_fused_16, b->query_fused_32, b->query_fused_64};
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < 4; i++)
        st = gpu_shared(b->g, all[i], query_fused_shared_of(8 << i, QUERY_UNITS), e);
    return st;
}
