/* kernels/gpu/rows/sample.c: the launches of a draw and its workspace. */
#include "kernels/gpu/backend.h"

enum { PARTS = 1056 /* blocks that a few rows are cut into: eight a processor */, MOST_SPLITS = 80 };

_Static_assert(sizeof(sample_row) == sizeof(gpu_sample_row), "rows are handed on as they are");

/* Depends on the sizes alone. */
static u64 sample_layout(const sample_args *a, u8 *base, gpu_sample_args *k) {
    i64 splits = min_i64(max_i64(PARTS / max_i64(a->n, 1), 1), MOST_SPLITS);
    i64 split = ceil_div(ceil_div(a->vocab, splits), GPU_SAMPLE_TILE * GPU_WARPS) * GPU_SAMPLE_TILE * GPU_WARPS;
    u64 parts = (u64)(PARTS + a->n), at = 0; /* at least n * splits */
    *k = (gpu_sample_args){.logits = a->logits,
                           .rows = (const gpu_sample_row *)a->rows,
                           .masks = (const gpu_u64 *)a->masks,
                           .ids = a->ids,
                           .bad = a->bad,
                           .n = a->n,
                           .vocab = a->vocab,
                           .stride = a->stride,
                           .mask_words = a->mask_words,
                           .splits = ceil_div(a->vocab, split),
                           .split = split,
                           .tiles = ceil_div(a->vocab, GPU_SAMPLE_TILE),
                           .mark = a->mark,
                           .aligned = ((u64)(uintptr_t)a->logits | (u64)a->stride * 4) % 16 == 0};
    k->best = (gpu_sample_best *)(base + at);
    at += gpu_round(parts * sizeof *k->best);
    k->sums = (gpu_u64 *)(base + at);
    at += gpu_round((u64)(a->n * k->tiles) * sizeof *k->sums);
    k->tops = (float *)(base + at);
    at += gpu_round((u64)(a->n * k->tiles) * sizeof *k->tops);
    k->cut = (gpu_sample_cut *)(base + at);
    return at + gpu_round((u64)a->n * sizeof *k->cut);
}

u64 gpu_op_sample_workspace(const ops *o, const sample_args *a) {
    (void)o;
    u8 nowhere;
    gpu_sample_args k;
    return sample_layout(a, &nowhere, &k);
}

void gpu_op_sample(const ops *o, const sample_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_sample_args k;
    if (!a->n) return;
    sample_layout(a, a->workspace, &k);
    u32 splits = (u32)k.splits, n = (u32)a->n;
    gpu_launch(b->g, b->sample_max, splits, n, 1, GPU_THREADS, 0, &k);
    if (a->draws) gpu_launch(b->g, b->sample_sum, splits, n, 1, GPU_THREADS, 0, &k);
    if (a->draws && a->cuts) {
        gpu_launch(b->g, b->sample_cut, n, 1, 1, GPU_CUT_THREADS, GPU_CUT_SHARED, &k);
        k.after_cut = 1;
        gpu_launch(b->g, b->sample_sum, splits, n, 1, GPU_THREADS, 0, &k);
    }
    gpu_launch(b->g, b->sample_pick, n, 1, 1, GPU_THREADS, 0, &k);
}
