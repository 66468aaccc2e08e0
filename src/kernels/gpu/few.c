/* kernels/gpu/few.c: the launch of few.cu: does it fit, and how a block's shared memory is divided. */
#include "kernels/gpu/few.h"
#include "kernels/gpu/inside.h"

enum { ROOM = 227 * 1024 /* shared memory of a block */, SLOTS_LEAST = 3, ONE_SLOTS_LEAST = 7 };

static int take(int *at, i64 bytes) {
    int here = *at;
    *at += (int)((bytes + 127) & ~(i64)127);
    return here;
}

/* Divides shared memory: the barriers, the ring, then the rest, which is counted first. False if too
 * little is left for the ring. */
static bool divide(gpu_few_args *f, int group) {
    int groups = (int)min_i64(f->pairs, f->experts + f->pairs / group), at = 0;
    f->at_sums = take(&at, 2 * FEW_WARPS * group * 32 * 4);
    f->at_groups = take(&at, (i64)groups * 8);
    f->at_cursor = take(&at, (i64)f->experts * 4);
    f->at_pairs = take(&at, (i64)f->pairs * 4);
    f->slot_bytes = FEW_WEIGHTS + group * FEW_X_STRIDE;
    f->slots = (int)min_i64((ROOM - FEW_BARRIERS - at) / f->slot_bytes, FEW_SLOTS);
    if (f->slots < SLOTS_LEAST) return false;
    int ring = FEW_BARRIERS + f->slots * f->slot_bytes;
    f->at_sums += ring, f->at_groups += ring, f->at_cursor += ring, f->at_pairs += ring;
    f->shared = ring + at;
    return true;
}

/* The pieces of the workspace; returns its bytes. */
static u64 layout(const moe_args *a, u8 *base, gpu_few_args *f) {
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
u64 gpu_few_workspace(const moe_args *a) {
    static u8 nowhere;
    gpu_few_args f;
    return layout(a, &nowhere, &f);
}

bool gpu_run_few(const ops *o, const moe_args *a, const moe_choice *how, u8 *space, f32 *y) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 experts = w->n_views / 3, pairs = a->n * a->k;
    if ((u64)(uintptr_t)a->x % 16) return false;
    gpu_few_args f = {.gate = w->views[0].data,
                      .up = w->views[1].data,
                      .down = w->views[2].data,
                      .expert_bytes = w->expert_bytes,
                      .x = a->x,
                      .ids = a->ids,
                      .y = y,
                      .k = (int)a->k,
                      .pairs = (int)pairs,
                      .experts = (int)experts,
                      .hidden = (int)w->views[0].cols,
                      .inter = (int)w->views[0].rows};
    f.later = gpu_later_of(a->later);
    layout(a, space, &f);
    if (!divide(&f, how->group)) return false;
    gpu_launch(b->g, b->few_rows, (u32)a->n, 1, 1, FEW_ROWS_THREADS, 0, &f);
    gpu_launch(b->g, how->group == 4 ? b->few_4 : b->few_8, (u32)gpu_processors(b->g), 1, 1, FEW_THREADS,
               (u32)f.shared, &f);
    return true;
}

/* ---- few_one.cu ---- */

status gpu_few_open(gpu_backend *b, err *e) {
    device *dev = gpu_device(b->g);
    gpu_kernel *const all[] = {b->few_4, b->few_8, b->few_one};
    status st = ST_OK;
    for (size_t i = 0; i < COUNT_OF(all) && st == ST_OK; i++) st = gpu_shared(b->g, all[i], ROOM, e);
    if (st == ST_OK)
        st = dev->alloc(dev, (void **)&b->few_h, 2 * FEW_ONE_H * sizeof(u32), "h of few tokens", e);
    if (st != ST_OK) return st;
    return dev->alloc(dev, (void **)&b->few_words, FEW_ONE_WORDS * sizeof(int), "experts that are taken", e);
}

bool gpu_run_few_one(const ops *o, const moe_args *a, const gpu_after *after) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 hidden = w->views[0].cols, inter = w->views[0].rows, pairs = a->n * a->k;
    if (b->form != ROWS_ANY || a->n > FEW_TILE || pairs > FEW_ONE_PAIRS || pairs * inter > FEW_ONE_H ||
        hidden > FEW_ONE_COLS || (u64)(uintptr_t)a->x % 16)
        return false;
    gpu_few_one_args f = {.gate = w->views[0].data,
                          .up = w->views[1].data,
                          .down = w->views[2].data,
                          .expert_bytes = w->expert_bytes,
                          .x = a->x,
                          .shared_expert = a->shared,
                          .ids = a->ids,
                          .weights = a->weights,
                          .out = a->out,
                          .h = b->few_h,
                          .words = b->few_words,
                          .n = (int)a->n,
                          .k = (int)a->k,
                          .experts = (int)(w->n_views / 3),
                          .hidden = (int)hidden,
                          .inter = (int)inter,
                          .later = gpu_later_of(a->later),
                          .one_across = (u64)ceil_div((i64)1 << 32, inter / PACK_COLS)};
    if (after) f.after = *after;
    int at = 0;
    f.at_sums = take(&at, 2 * FEW_WARPS * 4 * 32 * 4);
    f.at_digits = take(&at, 2 * max_i64(a->n * hidden, pairs * inter));
    f.slots = (int)min_i64((ROOM - FEW_ONE_STATE - at) / FEW_WEIGHTS, FEW_SLOTS);
    if (f.slots < ONE_SLOTS_LEAST) return false;
    int ring = FEW_ONE_STATE + f.slots * FEW_WEIGHTS;
    f.at_sums += ring, f.at_digits += ring;
    gpu_launch(b->g, b->few_one, (u32)gpu_processors(b->g), 1, 1, (FEW_WARPS + 1) * 32, (u32)(ring + at), &f);
    return true;
}
