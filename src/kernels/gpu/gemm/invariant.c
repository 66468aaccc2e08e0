/* kernels/gpu/gemm/invariant.c: the launch of invariant.cu: does it take a product, and in which tiles. */
#include "kernels/gpu/backend.h"

static u32 invariant_shared_of(i64 tokens, i64 weights) {
    return (u32)(GPU_INVARIANT_STAGES((tokens + weights) * 128) * (tokens + weights) * 128 + GPU_INVARIANT_STATE);
}

typedef struct {
    const gpu_kernel *kernel;
    i64 tokens, weights;
} invariant_kind;

bool gpu_run_invariant(const ops *o, const gpu_linear_args *a, bool swiglu) {
    const gpu_backend *b = gpu_of(o);
    const invariant_kind kinds[] = {
        {b->invariant_256, 128, 256}, {b->invariant_128, 128, 128}, {b->invariant_64, 64, 64}};
    if (a->w.format != GPU_W_BF16 || (swiglu && a->up.format != GPU_W_BF16) || a->rows % 8 || a->w.cols % 8 ||
        a->y_stride % 2 || (u64)(uintptr_t)a->y % 8 || !can_tile(&a->w, a->x, a->x_stride) ||
        (swiglu && !can_tile(&a->up, a->x, a->x_stride)))
        return false;
    const gpu_invariant_args k = {.w = (const gpu_bf16 *)a->w.data + a->first * a->w.cols,
                                  .up = swiglu ? a->up.data : NULL,
                                  .x = a->x,
                                  .y = a->y,
                                  .n = a->n,
                                  .rows = a->rows,
                                  .cols = a->w.cols,
                                  .x_stride = a->x_stride,
                                  .y_stride = a->y_stride,
                                  .y_type = a->y_type,
                                  .add = a->add};
    for (size_t i = 0;; i++) { /* the largest tiles that keep the chip busy: all give the same bits */
        i64 out = swiglu ? kinds[i].weights / 2 : kinds[i].weights;
        i64 tiles = ceil_div(a->n, kinds[i].tokens) * ceil_div(a->rows, out);
        if (tiles * 4 < (i64)gpu_processors(b->g) * 3 && i + 1 < COUNT_OF(kinds)) continue;
        gpu_launch(b->g, kinds[i].kernel, (u32)tiles, 1, 1, GPU_INVARIANT_THREADS,
                   invariant_shared_of(kinds[i].tokens, kinds[i].weights), &k);
        return true;
    }
}

status gpu_invariant_open(gpu_backend *b, err *e) {
    status st = gpu_shared(b->g, b->invariant_256, invariant_shared_of(128, 256), e);
    if (st == ST_OK) st = gpu_shared(b->g, b->invariant_128, invariant_shared_of(128, 128), e);
    if (st == ST_OK) st = gpu_shared(b->g, b->invariant_64, invariant_shared_of(64, 64), e);
    return st;
}
