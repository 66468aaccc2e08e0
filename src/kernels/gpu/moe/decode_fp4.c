/* kernels/gpu/moe/decode_fp4.c: the launches of decode_fp4.cu, of calls that moe_plan.h says it takes. */
#include "kernels/gpu/moe/decode_fp4.h"
#include "kernels/gpu/backend.h"
#include "kernels/gpu/moe/moe_plan.h"

/* The pieces of the workspace; returns its bytes. */
static u64 decode_fp4_layout(const moe_args *a, u8 *base, gpu_decode_fp4_args *p) {
    u64 pairs = (u64)(a->n * a->k), at = 0;
    p->h = (gpu_bf16 *)base, at += gpu_round(pairs * (u64)a->experts->views[0].rows * 2);
    p->f.x_scale = (f32 *)(base + at), at += gpu_round((u64)a->n * 4);
    p->f.finished = (gpu_u32 *)(base + at), at += gpu_round(pairs * 4);
    p->f.work_counter = (int *)(base + at), at += gpu_round(8);
    return at;
}

u64 gpu_decode_fp4_workspace(const moe_args *a) {
    u8 nowhere;
    gpu_decode_fp4_args p;
    return decode_fp4_layout(a, &nowhere, &p);
}

gpu_digits_args gpu_decode_fp4_digits(const moe_args *a, u8 *space) {
    gpu_decode_fp4_args p;
    decode_fp4_layout(a, space, &p);
    return (gpu_digits_args){.x = a->x,
                             .scale = p.f.x_scale,
                             .finished = p.f.finished,
                             .work_counter = p.f.work_counter,
                             .deferred = gpu_deferred_norm_of(a->deferred),
                             .n = (int)a->n,
                             .k = (int)a->k,
                             .hidden = (int)a->experts->views[0].cols};
}

void gpu_run_decode_fp4(const ops *o, const moe_args *a, u8 *space, f32 *y) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    gpu_decode_fp4_args p = {.f = {.gate = w->views[0].data,
                                   .up = w->views[1].data,
                                   .down = w->views[2].data,
                                   .expert_bytes = w->expert_bytes,
                                   .x = a->x,
                                   .ids = a->ids,
                                   .deferred = gpu_deferred_norm_of(a->deferred),
                                   .y = y,
                                   .prepared = a->prepared,
                                   .k = (int)a->k,
                                   .pairs = (int)(a->n * a->k),
                                   .experts = (int)(w->n_views / 3),
                                   .hidden = (int)w->views[0].cols,
                                   .inter = (int)w->views[0].rows},
                             .experts = w->on_gpu};
    decode_fp4_layout(a, space, &p);
    moe_divide_packed(&p.f, DECODE_FP4_TOKENS, DECODE_FP4_X_STRIDE);
    if (!a->prepared)
        gpu_launch(b->g, b->decode_fp4_begin, gpu_blocks(a->n, DECODE_INT4_ROWS_THREADS / 32), 1, 1,
                   DECODE_INT4_ROWS_THREADS, 0, &p);
    gpu_launch(b->g, w->views[0].format == GPU_W_PACKED_NVFP4 ? b->decode_nvfp4 : b->decode_mxfp4,
               (u32)gpu_processors(b->g), 1, 1, DECODE_INT4_THREADS, (u32)p.f.shared, &p);
}

status gpu_decode_fp4_open(gpu_backend *b, err *e) {
    status st = gpu_shared(b->g, b->decode_mxfp4, SHARED_MAX, e);
    return st == ST_OK ? gpu_shared(b->g, b->decode_nvfp4, SHARED_MAX, e) : st;
}
