/* kernels/gpu/moe/decode_int4.c: the launches of decode_int4.cu, decode_fused.cu and ffn_fused.cu, of calls that
 * moe_plan.h says they take. */
#include "kernels/gpu/moe/moe_plan.h"
#include "kernels/gpu/backend.h"

/* The pieces of the workspace; returns its bytes. */
static u64 decode_int4_layout(const moe_args *a, u8 *base, gpu_decode_int4_args *f) {
    const op_weight *w = a->experts;
    u64 pairs = (u64)(a->n * a->k), hidden = (u64)w->views[0].cols, inter = (u64)w->views[0].rows, at = 0;
    f->x_digits = base, at += gpu_round((u64)a->n * hidden * 2);
    f->h_digits = base + at, at += gpu_round(pairs * inter * 2);
    f->h = (float *)(base + at), at += gpu_round(pairs * inter * 4);
    f->x_scale = (float *)(base + at), at += gpu_round((u64)a->n * 4);
    f->h_scale = (float *)(base + at), at += gpu_round(pairs * 4);
    f->finished = (gpu_u32 *)(base + at), at += gpu_round(pairs * 4);
    f->work_counter = (int *)(base + at), at += gpu_round(8);
    return at;
}
u64 gpu_decode_int4_workspace(const moe_args *a) {
    u8 nowhere;
    gpu_decode_int4_args f;
    return decode_int4_layout(a, &nowhere, &f);
}

gpu_digits_args gpu_decode_int4_digits(const moe_args *a, u8 *space) {
    gpu_decode_int4_args f;
    decode_int4_layout(a, space, &f);
    return (gpu_digits_args){.x = a->x,
                             .digits = f.x_digits,
                             .scale = f.x_scale,
                             .finished = f.finished,
                             .work_counter = f.work_counter,
                             .deferred = gpu_deferred_norm_of(a->deferred),
                             .n = (int)a->n,
                             .k = (int)a->k,
                             .hidden = (int)a->experts->views[0].cols};
}

void gpu_run_decode_int4(const ops *o, const moe_args *a, const moe_choice *how, u8 *space, f32 *y) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 experts = w->n_views / 3, pairs = a->n * a->k;
    gpu_decode_int4_args f = {.gate = w->views[0].data,
                              .up = w->views[1].data,
                              .down = w->views[2].data,
                              .expert_bytes = w->expert_bytes,
                              .x = a->x,
                              .ids = a->ids,
                              .y = y,
                              .prepared = a->prepared,
                              .k = (int)a->k,
                              .pairs = (int)pairs,
                              .experts = (int)experts,
                              .hidden = (int)w->views[0].cols,
                              .inter = (int)w->views[0].rows};
    f.deferred = gpu_deferred_norm_of(a->deferred);
    decode_int4_layout(a, space, &f);
    moe_divide_packed(&f, how->group, DECODE_INT4_X_STRIDE);
    if (!a->prepared) gpu_launch(b->g, b->decode_int4_rows, (u32)a->n, 1, 1, DECODE_INT4_ROWS_THREADS, 0, &f);
    gpu_launch(b->g, how->group == 4 ? b->decode_int4_4 : b->decode_int4_8, (u32)gpu_processors(b->g), 1, 1,
               DECODE_INT4_THREADS, (u32)f.shared, &f);
}

/* ---- decode_fused.cu ---- */

status gpu_decode_int4_open(gpu_backend *b, err *e) {
    gpu_kernel *const all[] = {b->decode_int4_4, b->decode_int4_8, b->decode_fused_1, b->decode_fused_4,
                               b->ffn_fused_1,   b->ffn_fused_2,   b->ffn_fused_4};
    status st = ST_OK;
    for (size_t i = 0; i < COUNT_OF(all) && st == ST_OK; i++) st = gpu_shared(b->g, all[i], SHARED_MAX, e);
    if (st == ST_OK)
        st = device_pool_add(&b->pool, (void **)&b->fused_h, 2 * DECODE_FUSED_H, sizeof(u32), "h of few tokens", e);
    if (st == ST_OK)
        st = device_pool_add(&b->pool, (void **)&b->ffn_h, 2 * DECODE_FUSED_H, sizeof(u32), "h of few tokens", e);
    if (st == ST_OK)
        st = device_pool_add(&b->pool, (void **)&b->ffn_first, 2 * FFN_FUSED_WORDS, sizeof(u32), "scores of few tokens",
                             e);
    if (st == ST_OK)
        st = device_pool_add(&b->pool, (void **)&b->ffn_words, DECODE_FUSED_WORDS, sizeof(int), "experts taken", e);
    if (st != ST_OK) return st;
    return device_pool_add(&b->pool, (void **)&b->fused_words, DECODE_FUSED_WORDS, sizeof(int), "experts taken", e);
}

/* The arguments but for shared memory. */
static gpu_decode_fused_args one_of(const moe_args *a, const gpu_after *after) {
    const op_weight *w = a->experts;
    i64 hidden = w->views[0].cols, inter = w->views[0].rows;
    gpu_decode_fused_args f = {.gate = w->views[0].data,
                               .up = w->views[1].data,
                               .down = w->views[2].data,
                               .expert_bytes = w->expert_bytes,
                               .x = a->x,
                               .shared_expert = a->shared,
                               .ids = a->ids,
                               .weights = a->weights,
                               .out = a->out,
                               .n = (int)a->n,
                               .k = (int)a->k,
                               .experts = (int)(w->n_views / 3),
                               .hidden = (int)hidden,
                               .inter = (int)inter,
                               .deferred = gpu_deferred_norm_of(a->deferred),
                               .one_across = (u64)ceil_div((i64)1 << 32, inter / PACK_COLS)};
    if (after) f.after = *after;
    return f;
}

void gpu_run_decode_fused(const ops *o, const moe_args *a, const gpu_after *after) {
    const gpu_backend *b = gpu_of(o);
    gpu_decode_fused_args f = one_of(a, after);
    u32 shared = moe_divide_fused(&f, 0);
    f.h = b->fused_h, f.words = b->fused_words;
    gpu_launch(b->g, a->n == 1 ? b->decode_fused_1 : b->decode_fused_4, (u32)gpu_processors(b->g), 1, 1,
               (DECODE_INT4_WARPS + 1) * 32, shared, &f);
}

/* ---- ffn_fused.cu ---- */

static bool is_plain(const op_weight *w, i64 rows, i64 cols) {
    const gpu_matrix *m = &w->views[0];
    return m->format == GPU_W_BF16 && m->wide && m->rows == rows && m->cols == cols;
}

bool gpu_ffn_fused_fits(const moe_ffn_args *a, i64 *inter) {
    const linear_group_args *p = &a->linear_group;
    const linear_group_item *s = &p->of[1];
    i64 experts = a->gate.n_experts, hidden = a->moe.moe.experts->views[0].cols;
    *inter = p->count > 1 ? s->w->views[0].rows : 0;
    if (!is_plain(p->of[0].w, experts, hidden) || experts > GPU_GATE_EXPERTS) return false;
    if (a->moe.moe.experts->n_views / 3 != experts || a->gate.k != a->moe.moe.k || a->gate.k > experts) return false;
    if (p->count > 2 || p->x_stride != hidden || *inter > FFN_FUSED_INTER || *inter % 16) return false;
    return p->count < 2 || (s->up && is_plain(s->w, *inter, hidden) && is_plain(s->up, *inter, hidden) &&
                            is_plain(a->down.w, hidden, *inter));
}

void gpu_run_ffn_fused(const ops *o, const moe_ffn_args *a, const gpu_after *after) {
    const gpu_backend *b = gpu_of(o);
    const moe_args *m = &a->moe.moe;
    const linear_group_args *p = &a->linear_group;
    i64 blocks = gpu_processors(b->g), inter = p->count > 1 ? p->of[1].w->views[0].rows : 0;
    gpu_ffn_fused_args f = {.fused = one_of(m, after),
                            .bias = a->gate.bias->vector,
                            .scale = a->gate.scale,
                            .norm = a->gate.norm_topk,
                            .one_block = (u64)ceil_div((i64)1 << 32, blocks)};
    f.fused.shared_inter = (int)inter;
    u32 shared = moe_divide_fused(&f.fused, moe_ffn_more(inter));
    f.router = p->of[0].w->views[0].data;
    if (inter) {
        f.gate = p->of[1].w->views[0].data, f.up = p->of[1].up->views[0].data;
        f.fused.shared_down = a->down.w->views[0].data;
    }
    f.fused.h = b->ffn_h, f.fused.words = b->ffn_words, f.words = b->ffn_first;
    gpu_launch(b->g,
               m->n == 1   ? b->ffn_fused_1
               : m->n == 2 ? b->ffn_fused_2
                           : b->ffn_fused_4,
               (u32)blocks, 1, 1, DECODE_INT4_FFN_THREADS, shared, &f);
}
