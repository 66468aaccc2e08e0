/* kernels/gpu/rows/deferred_norm.c: rows whose norm is finished later (ops.h, deferred_norm). */
#include "kernels/gpu/backend.h"

_Static_assert((int)GPU_DEFERRED_PARTS == (int)DEFERRED_PARTS, "params.h is ops.h's");

/* Rows: of more (measured) a launch of its own is as fast, since skinny_tma.cu's weights arrive meanwhile. */
enum { MOST = 32 };

gpu_deferred_norm gpu_deferred_norm_of(const deferred_norm *l) {
    if (!l || !l->parts) return (gpu_deferred_norm){.squares = NULL};
    return (gpu_deferred_norm){l->squares, (int)l->parts, (float)l->dim, l->eps};
}

bool gpu_may_defer_norm(const gpu_backend *b, const norm_args *norm, deferred_norm *deferred, i64 parts,
                        gpu_after *after) {
    u64 all =
        (u64)(uintptr_t)norm->x | (u64)(uintptr_t)norm->out | (u64)(uintptr_t)norm->weight->vector | (u64)norm->dim * 2;
    row_mode form = b->form;
    /* In decode form the same for any number of rows. */
    if (!deferred || form == ROWS_PROMPT || norm->n > DEFERRED_ROWS || parts > DEFERRED_PARTS) return false;
    if (form == ROWS_ANY && norm->n > MOST) return false;
    if (norm->sum != norm->x || norm->x_stride != norm->dim || norm->out_stride != norm->dim || all % 16) return false;
    *after = (gpu_after){.x = norm->sum,
                         .out = norm->out,
                         .weight = norm->weight->vector,
                         .squares = deferred->squares,
                         .bad = norm->bad,
                         .mark = norm->mark};
    return true;
}

void gpu_finish_rows(const ops *o, const void *x, i64 n, i64 x_stride, deferred_norm *l) {
    const gpu_backend *b = gpu_of(o);
    if (!l || !l->parts) return;
    gpu_finish_args k = {(gpu_bf16 *)(uintptr_t)x, l->dim, x_stride, gpu_deferred_norm_of(l)};
    if (n) gpu_launch(b->g, b->finish_rows, (u32)n, 1, 1, GPU_THREADS, 0, &k);
    l->parts = 0;
}
