/* kernels/gpu/comm/context_parallel.c: the seams of a KV cache that is divided, between GPUs. */
#include "kernels/context_parallel.h"
#include "kernels/gpu/backend.h"

enum { PIECE = 16 /* bytes */ };

static const tensor_parallel *gpu_split_of(const ops *o) { return o->ranks->state; }
static const gpu_exchange *end_of(const ops *o) { return gpu_comm_end(gpu_split_of(o)->c); }
static int kv_ranks_of(const ops *o) { return (int)gpu_split_of(o)->kv_ranks; }

/* Blocks of a launch that has so many pieces for a thread each. */
static u32 blocks_for(i64 pieces) { return (u32)max_i64(1, min_i64(ceil_div(pieces, GPU_THREADS), COMM_BLOCKS)); }

static void gpu_queries(const ops *o, const void *own, void *all, i64 n, i64 width) {
    const gpu_backend *b = gpu_of(o);
    gpu_all_queries_args k = {.e = *end_of(o),
                              .ranks = kv_ranks_of(o),
                              .own = own,
                              .all = all,
                              .n = n,
                              .width = width * (i64)sizeof(gpu_bf16) / PIECE};
    gpu_launch(b->g, b->all_queries, blocks_for(n * k.ranks * k.width), 1, 1, GPU_THREADS, 0, &k);
}

static void gpu_merge(const ops *o, const merge_parts_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_merge_parts_args k = {.e = *end_of(o),
                              .ranks = kv_ranks_of(o),
                              .parts = a->parts,
                              .lse = a->lse,
                              .out = a->out,
                              .n = a->n,
                              .heads = a->heads,
                              .latent = a->latent};
    gpu_launch(b->g, b->merge_parts, blocks_for(a->n * a->heads * 32), 1, 1, GPU_THREADS, 0, &k);
}

static void gpu_collect(const ops *o, const collect_pages_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_collect_pages_args k = {.e = *end_of(o),
                                .ranks = kv_ranks_of(o),
                                .kv = a->kv,
                                .pages = a->pages,
                                .out = a->out,
                                .n = a->n,
                                .page = (i64)a->page_bytes / PIECE};
    gpu_launch(b->g, b->collect_pages, blocks_for(a->n * k.page), 1, 1, GPU_THREADS, 0, &k);
}

void gpu_context_parallel_seams(rank_seams *s) {
    s->queries = gpu_queries;
    s->merge = gpu_merge;
    s->collect = gpu_collect;
}
