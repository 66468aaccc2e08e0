/* kernels/gpu/later.c: rows whose norm is finished later (ops.h, rows_later). */
#include "kernels/gpu/inside.h"

_Static_assert((int)GPU_LATER_PARTS == (int)LATER_PARTS, "args.h is ops.h's");

/* Rows: of more (measured) a launch of its own is as fast, since broad.cu's weights arrive meanwhile. */
enum { MOST = 32 };

gpu_later gpu_later_of(const rows_later *l) {
    if (!l || !l->parts) return (gpu_later){.squares = NULL};
    return (gpu_later){l->squares, (int)l->parts, (float)l->dim, l->eps};
}

bool gpu_may_finish_later(const norm_args *norm, rows_later *later, i64 parts, gpu_after *after) {
    u64 all =
        (u64)(uintptr_t)norm->x | (u64)(uintptr_t)norm->out | (u64)(uintptr_t)norm->weight->vector | (u64)norm->dim * 2;
    rows_form form = gpu_of(NULL)->form;
    /* In decode form the same for any number of rows. */
    if (!later || form == ROWS_PROMPT || norm->n > LATER_ROWS || parts > LATER_PARTS) return false;
    if (form == ROWS_ANY && norm->n > MOST) return false;
    if (norm->sum != norm->x || norm->x_stride != norm->dim || norm->out_stride != norm->dim || all % 16) return false;
    *after = (gpu_after){.x = norm->sum,
                         .out = norm->out,
                         .weight = norm->weight->vector,
                         .squares = later->squares,
                         .bad = norm->bad,
                         .mark = norm->mark};
    return true;
}

void gpu_finish_rows(const ops *o, const void *x, i64 n, i64 x_stride, rows_later *l) {
    const gpu_backend *b = gpu_of(o);
    if (!l || !l->parts) return;
    gpu_finish_args k = {(gpu_bf16 *)(uintptr_t)x, l->dim, x_stride, gpu_later_of(l)};
    if (n) gpu_launch(b->g, b->finish_rows, (u32)n, 1, 1, GPU_THREADS, 0, &k);
    l->parts = 0;
}
