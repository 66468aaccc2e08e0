/* kernels/gpu/moe/decode_int4.c: the launch of decode_int4.cu: does it fit, and how a block's shared memory is
 * divided. */
#include "kernels/gpu/moe/decode_int4.h"
#include "kernels/gpu/backend.h"

enum { ROOM = 227 * 1024 /* shared memory of a block */, SLOTS_LEAST = 3, ONE_SLOTS_LEAST = 7 };

static int take(int *at, i64 bytes) {
    int here = *at;
    *at += (int)((bytes + 127) & ~(i64)127);
    return here;
}

/* Divides shared memory: the barriers, the ring, then the rest, which is counted first. False if too
 * little is left for the ring. */
static bool divide(gpu_decode_int4_args *f, int group) {
    int groups = (int)min_i64(f->pairs, f->experts + f->pairs / group), at = 0;
    f->at_sums = take(&at, 2 * DECODE_INT4_WARPS * group * 32 * 4);
    f->at_groups = take(&at, (i64)groups * 8);
    f->at_cursor = take(&at, (i64)f->experts * 4);
    f->at_pairs = take(&at, (i64)f->pairs * 4);
    f->slot_bytes = DECODE_INT4_WEIGHTS + group * DECODE_INT4_X_STRIDE;
    f->slots = (int)min_i64((ROOM - DECODE_INT4_BARRIERS - at) / f->slot_bytes, DECODE_INT4_SLOTS);
    if (f->slots < SLOTS_LEAST) return false;
    int ring = DECODE_INT4_BARRIERS + f->slots * f->slot_bytes;
    f->at_sums += ring, f->at_groups += ring, f->at_cursor += ring, f->at_pairs += ring;
    f->shared = ring + at;
    return true;
}

/* The pieces of the workspace; returns its bytes. */
static u64 layout(const moe_args *a, u8 *base, gpu_decode_int4_args *f) {
    const op_weight *w = a->experts;
    u64 pairs = (u64)(a->n * a->k), hidden = (u64)w->views[0].cols, inter = (u64)w->views[0].rows, at = 0;
    f->x_digits = base, at += gpu_round((u64)a->n * hidden * 2);
    f->h_digits = base + at, at += gpu_round(pairs * inter * 2);
    f->h = (float *)(base + at), at += gpu_round(pairs * inter * 4);
    f->x_scale = (float *)(base + at), at += gpu_round((u64)a->n * 4);
    f->h_scale = (float *)(base + at), at += gpu_round(pairs * 4);
    f->finished = (gpu_u32 *)(base + at), at += gpu_round(pairs * 4);
    f->taken = (int *)(base + at), at += gpu_round(8);
    return at;
}
u64 gpu_decode_int4_workspace(const moe_args *a) {
    u8 nowhere;
    gpu_decode_int4_args f;
    return layout(a, &nowhere, &f);
}

gpu_digits_args gpu_decode_int4_digits(const moe_args *a, u8 *space) {
    gpu_decode_int4_args f;
    layout(a, space, &f);
    return (gpu_digits_args){.x = a->x,
                             .digits = f.x_digits,
                             .scale = f.x_scale,
                             .finished = f.finished,
                             .taken = f.taken,
                             .deferred = gpu_deferred_norm_of(a->deferred),
                             .n = (int)a->n,
                             .k = (int)a->k,
                             .hidden = (int)a->experts->views[0].cols};
}

bool gpu_run_decode_int4(const ops *o, const moe_args *a, const moe_choice *how, u8 *space, f32 *y) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 experts = w->n_views / 3, pairs = a->n * a->k;
    if ((u64)(uintptr_t)a->x % 16) return false;
    gpu_decode_int4_args f = {.gate = w->views[0].data,
                              .up = w->views[1].data,
                              .down = w->views[2].data,
                              .expert_bytes = w->expert_bytes,
                              .x = a->x,
                              .ids = a->ids,
                              .y = y,
                              .beside = b->has_digits,
                              .k = (int)a->k,
                              .pairs = (int)pairs,
                              .experts = (int)experts,
                              .hidden = (int)w->views[0].cols,
                              .inter = (int)w->views[0].rows};
    f.deferred = gpu_deferred_norm_of(a->deferred);
    layout(a, space, &f);
    if (!divide(&f, how->group)) return false;
    if (!b->has_digits) gpu_launch(b->g, b->decode_int4_rows, (u32)a->n, 1, 1, DECODE_INT4_ROWS_THREADS, 0, &f);
    gpu_launch(b->g, how->group == 4 ? b->decode_int4_4 : b->decode_int4_8, (u32)gpu_processors(b->g), 1, 1,
               DECODE_INT4_THREADS, (u32)f.shared, &f);
    return true;
}

/* ---- decode_fused.cu ---- */

status gpu_decode_int4_open(gpu_backend *b, err *e) {
    gpu_kernel *const all[] = {b->decode_int4_4, b->decode_int4_8, b->decode_fused_1, b->decode_fused_4,
                               b->ffn_fused_1,   b->ffn_fused_2,   b->ffn_fused_4};
    status st = ST_OK;
    for (size_t i = 0; i < COUNT_OF(all) && st == ST_OK; i++) st = gpu_shared(b->g, all[i], ROOM, e);
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

/* The arguments but for shared memory; false: not for decode_fused.cu. */
static bool one_of(const gpu_backend *b, const moe_args *a, const gpu_after *after, gpu_decode_fused_args *f) {
    const op_weight *w = a->experts;
    i64 hidden = w->views[0].cols, inter = w->views[0].rows, pairs = a->n * a->k;
    if (b->form != ROWS_ANY || a->n > DECODE_INT4_TILE || pairs > DECODE_FUSED_PAIRS ||
        pairs * inter > DECODE_FUSED_H || hidden > DECODE_FUSED_COLS || (u64)(uintptr_t)a->x % 16)
        return false;
    *f = (gpu_decode_fused_args){.gate = w->views[0].data,
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
    if (after) f->after = *after;
    return true;
}

/* Shared memory: `more` bytes a token for h of a shared expert and logits. Returns all bytes, 0 if they are too
 * many. */
static u32 divide_one(gpu_decode_fused_args *f, i64 more) {
    int at = 0;
    f->at_sums = take(&at, 2 * DECODE_INT4_WARPS * 4 * 32 * 4);
    f->at_digits = take(&at, 2 * max_i64(f->n * (f->hidden + 8), (i64)f->n * f->k * f->inter));
    f->at_shared_h = take(&at, f->n * more);
    f->slots = (int)min_i64((ROOM - DECODE_FUSED_STATE - at) / DECODE_INT4_WEIGHTS, DECODE_INT4_SLOTS);
    if (f->slots < ONE_SLOTS_LEAST) return 0;
    int ring = DECODE_FUSED_STATE + f->slots * DECODE_INT4_WEIGHTS;
    f->at_sums += ring, f->at_digits += ring, f->at_shared_h += ring;
    return (u32)(ring + at);
}

bool gpu_run_decode_fused(const ops *o, const moe_args *a, const gpu_after *after) {
    const gpu_backend *b = gpu_of(o);
    gpu_decode_fused_args f;
    if (!one_of(b, a, after, &f)) return false;
    u32 shared = divide_one(&f, 0);
    if (!shared) return false;
    f.h = b->fused_h, f.words = b->fused_words;
    gpu_launch(b->g, a->n == 1 ? b->decode_fused_1 : b->decode_fused_4, (u32)gpu_processors(b->g), 1, 1,
               (DECODE_INT4_WARPS + 1) * 32, shared, &f);
    return true;
}

/* ---- ffn_fused.cu ---- */

static bool is_plain(const op_weight *w, i64 rows, i64 cols) {
    const gpu_matrix *m = &w->views[0];
    return m->format == GPU_W_BF16 && m->wide && m->rows == rows && m->cols == cols;
}

/* Are all products those of one x, of shapes that fit each other? */
static bool ffn_fused_fits(const moe_ffn_args *a, i64 hidden, i64 *inter) {
    const linear_group_args *p = &a->linear_group;
    const linear_group_item *s = &p->of[1];
    i64 experts = a->gate.n_experts;
    *inter = p->count > 1 ? s->w->views[0].rows : 0;
    if (!is_plain(p->of[0].w, experts, hidden) || experts > GPU_GATE_EXPERTS) return false;
    if (a->moe.moe.experts->n_views / 3 != experts || a->gate.k != a->moe.moe.k || a->gate.k > experts) return false;
    if (p->count > 2 || p->x_stride != hidden || *inter > FFN_FUSED_INTER || *inter % 16) return false;
    return p->count < 2 || (s->up && is_plain(s->w, *inter, hidden) && is_plain(s->up, *inter, hidden) &&
                            is_plain(a->down.w, hidden, *inter));
}

bool gpu_run_ffn_fused(const ops *o, const moe_ffn_args *a, const gpu_after *after) {
    const gpu_backend *b = gpu_of(o);
    const moe_args *m = &a->moe.moe;
    const linear_group_args *p = &a->linear_group;
    i64 blocks = gpu_processors(b->g), hidden = m->experts->views[0].cols, inter;
    gpu_ffn_fused_args f = {.bias = a->gate.bias->vector,
                            .scale = a->gate.scale,
                            .norm = a->gate.norm_topk,
                            .one_block = (u64)ceil_div((i64)1 << 32, blocks)};
    if (!ffn_fused_fits(a, hidden, &inter) || !one_of(b, m, after, &f.fused)) return false;
    f.fused.shared_inter = (int)inter;
    u32 shared = divide_one(&f.fused, inter * 2 + 16 + GPU_GATE_EXPERTS * 4);
    i64 rows = 2 * ceil_div(inter, blocks) + ceil_div(a->gate.n_experts, blocks);
    if (!shared || rows * (hidden * 2 + 16) > (i64)f.fused.slots * DECODE_INT4_WEIGHTS) return false;
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
    return true;
}
