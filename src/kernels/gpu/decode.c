/* kernels/gpu/decode.c: the fast kernels of absorbed attention: which one a call takes, and its launch. */
#include "kernels/gpu/inside.h"

enum {
    LATENT = 512,
    ROPE = 64,
    MANY_FROM = 17 /* heads */,
    PIECES = 288 /* that cut_join and mla_join_few take */,
    FEW_ROWS = 4,
    ALONE_FEW = 4,
    ALONE_MANY = 8 /* --deterministic: pages of a unit, at least */
};

typedef struct {
    const gpu_kernel *kernel;
    i64 heads;           /* of a block */
    u32 threads, shared; /* of a block */
    int least;           /* pages of a piece: fewer cost more in cut rows' sums than they gain in time */
    int together;        /* blocks of a multiprocessor */
} decode_kind;

static decode_kind kind_of(const mla_decode_args *a) {
    const gpu_backend *b = gpu_of(NULL);
    bool fp8 = a->kv_type == DT_F8_E4M3;
    if (a->n_heads >= MANY_FROM)
        return (decode_kind){fp8 ? b->mla_many_fp8 : b->mla_many, 64, 384, SHARED_MAX, 1, 1};
    if (a->n_heads > 8)
        return (decode_kind){
            fp8 ? b->mla_few16_fp8 : b->mla_few16, 16, 288, GPU_FEW_SHARED(2, fp8), 1, fp8 ? 2 : 1};
    return (decode_kind){fp8 ? b->mla_few8_fp8 : b->mla_few8, 8, 288, GPU_FEW_SHARED(1, fp8), 1, fp8 ? 2 : 1};
}

/* As many as run at once. */
static i64 blocks_of(const mla_decode_args *a, const decode_kind *k) {
    return max_i64(
        1, min_i64(k->together * gpu_processors(gpu_of(NULL)->g) / ceil_div(a->n_heads, k->heads), PIECES));
}

bool gpu_decode_is_fast(const mla_decode_args *a) {
    return a->latent == LATENT && a->rope == ROPE && a->kv_type != DT_F32;
}

static bool is_alone(void) { return gpu_of(NULL)->form != ROWS_ANY; }
static int alone_pages(const mla_decode_args *a) { return a->n_heads >= MANY_FROM ? ALONE_MANY : ALONE_FEW; }

/* Room for sums in part: two of each block's, or one of each unit. */
static i64 slots_of(const mla_decode_args *a, const decode_kind *k) {
    if (!is_alone()) return 2 * blocks_of(a, k);
    return a->n * min_i64(GPU_ALONE_UNITS, ceil_div(a->pages_stride, alone_pages(a)));
}

u64 gpu_decode_workspace(const mla_decode_args *a) {
    decode_kind k = kind_of(a);
    return (u64)slots_of(a, &k) * (u64)a->n_heads * (LATENT + 2) * sizeof(f32);
}

status gpu_decode_init(gpu_backend *b, err *e) {
    device *dev = gpu_device(b->g);
    u64 most = 2 * (u64)gpu_processors(b->g) + PIECES; /* of pieces and groups of heads */
    return dev->alloc(dev, (void **)&b->meetings, 2 * most * sizeof(u32), "meetings of blocks", e);
}

void gpu_decode_fast(const ops *o, const mla_decode_args *a) {
    const gpu_backend *b = gpu_of(o);
    decode_kind kind = kind_of(a);
    bool alone = is_alone(), apart = alone || (a->n_heads >= MANY_FROM && a->n < FEW_ROWS);
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
                         .least = alone ? alone_pages(a) : kind.least,
                         .alone = alone,
                         .slots = slots_of(a, &kind),
                         .scale2 = a->scale * LOG2_E,
                         .meetings = apart ? NULL : b->meetings};
    if (kind.kernel ==
        b->mla_many) /* how many pages there are nobody has told: as many as an int can number */
        gpu_tensor(b->g, &k.kv_map, a->kv, (const u64[3]){64, (u64)1 << 31, (LATENT + ROPE) / 64},
                   (const u64[2]){(LATENT + ROPE) * 2, 128}, (const u32[3]){64, 32, (LATENT + ROPE) / 64});
    gpu_launch(b->g, kind.kernel, (u32)k.blocks, (u32)ceil_div(a->n_heads, kind.heads), 1, kind.threads,
               kind.shared, &k);
    if (apart) /* a quarter of the latents of a head each */
        gpu_launch(b->g, b->mla_join_few, (u32)a->n, (u32)a->n_heads * 4, 1, GPU_THREADS, 0, &k);
}
