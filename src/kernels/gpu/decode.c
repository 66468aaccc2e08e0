/* kernels/gpu/decode.c: the fast kernels of absorbed attention: which one a call takes, and its launch. */
#include "kernels/gpu/inside.h"

enum {
    LATENT = 512,
    ROPE = 64,
    MANY_FROM = 17 /* heads */,
    PIECES = 256 /* mla_join_few's limit */,
    FEW_ROWS = 8
};

typedef struct {
    const gpu_kernel *kernel;
    i64 heads;           /* of a block */
    u32 threads, shared; /* of a block */
    int least;           /* pages of a piece: fewer cost more in cut rows' sums than they gain in time */
} decode_kind;

static decode_kind kind_of(const mla_decode_args *a) {
    const gpu_backend *b = gpu_of(NULL);
    bool fp8 = a->kv_type == DT_F8_E4M3;
    if (a->n_heads >= MANY_FROM)
        return (decode_kind){fp8 ? b->mla_many_fp8 : b->mla_many, 64, 384, SHARED_MAX, 1};
    if (a->n_heads > 8)
        return (decode_kind){fp8 ? b->mla_few16_fp8 : b->mla_few16, 16, 288, GPU_FEW_SHARED(2, fp8), 1};
    return (decode_kind){fp8 ? b->mla_few8_fp8 : b->mla_few8, 8, 288, GPU_FEW_SHARED(1, fp8), 1};
}

/* One block a multiprocessor: each takes most of its shared memory. */
static i64 blocks_of(const mla_decode_args *a, const decode_kind *k) {
    return max_i64(1, min_i64(gpu_processors(gpu_of(NULL)->g) / ceil_div(a->n_heads, k->heads), PIECES));
}

bool gpu_decode_is_fast(const mla_decode_args *a) {
    return a->latent == LATENT && a->rope == ROPE && a->kv_type != DT_F32;
}

u64 gpu_decode_workspace(const mla_decode_args *a) {
    decode_kind k = kind_of(a);
    return 2 * (u64)blocks_of(a, &k) * (u64)a->n_heads * (LATENT + 2) * sizeof(f32);
}

void gpu_decode_fast(const ops *o, const mla_decode_args *a) {
    const gpu_backend *b = gpu_of(o);
    decode_kind kind = kind_of(a);
    gpu_decode_args k = {.q = a->q,
                         .kv = a->kv,
                         .pages = a->pages,
                         .kv_len = a->kv_len,
                         .out = a->out,
                         .part = a->workspace,
                         .heads = a->n_heads,
                         .pages_stride = a->pages_stride,
                         .n = a->n,
                         .blocks = (int)blocks_of(a, &kind),
                         .least = kind.least,
                         .scale2 = a->scale * LOG2_E};
    gpu_launch(b->g, kind.kernel, (u32)k.blocks, (u32)ceil_div(a->n_heads, kind.heads), 1, kind.threads,
               kind.shared, &k);
    /* 4 quarters of the latents a head */
    if (a->n < FEW_ROWS)
        gpu_launch(b->g, b->mla_join_few, (u32)a->n, (u32)a->n_heads * 4, 1, GPU_THREADS, 0, &k);
    else
        gpu_launch(b->g, b->mla_join, (u32)a->n, gpu_blocks(a->n_heads * 4, GPU_WARPS), 1, GPU_THREADS, 0,
                   &k);
}
