/* kernels/gpu/rows/logprobs.c: the launches of log-probabilities and their workspace. */
#include "kernels/gpu/backend.h"

/* Depends on the sizes alone; the tiles on the vocabulary alone. */
static u64 logprobs_layout(const logprobs_args *a, u8 *base, gpu_logprobs_args *k) {
    i64 tile = 256 * ceil_div(a->vocab, 256 * GPU_LOGPROB_TILES), tiles = ceil_div(a->vocab, tile);
    u64 at = 0;
    *k = (gpu_logprobs_args){.logits = a->logits,
                             .ids = a->ids,
                             .drawn = a->drawn,
                             .tops = a->tops,
                             .top_ids = a->top_ids,
                             .logprobs = a->logprobs,
                             .vocab = a->vocab,
                             .stride = a->stride,
                             .n_top = a->n_top,
                             .tile = tile,
                             .tiles = tiles,
                             .parts = ceil_div(tiles, GPU_WARPS)};
    k->part_sums = (double *)(base + at);
    at += gpu_round((u64)(a->n * k->parts) * sizeof(f64));
    k->part_tops = (float *)(base + at);
    at += gpu_round((u64)(a->n * k->parts) * sizeof(f32));
    k->tile_tops = (float *)(base + at);
    return at + gpu_round((u64)(a->n * tiles) * sizeof(f32));
}

u64 gpu_op_logprobs_workspace(const ops *o, const logprobs_args *a) {
    (void)o;
    u8 nowhere;
    gpu_logprobs_args k;
    return logprobs_layout(a, &nowhere, &k);
}

void gpu_op_logprobs(const ops *o, const logprobs_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_logprobs_args k;
    if (!a->n) return;
    logprobs_layout(a, a->workspace, &k);
    gpu_launch(b->g, b->logprob_parts, (u32)k.parts, (u32)a->n, 1, GPU_THREADS, 0, &k);
    gpu_launch(b->g, b->logprob_pick, (u32)a->n, 1, 1, GPU_PICK_THREADS, GPU_PICK_SHARED, &k);
}
