/* kernels/gpu/few.c: the launch of few.cu: does it fit, and how a block's shared memory is divided. */
#include "kernels/gpu/few.h"
#include "kernels/gpu/inside.h"

enum { ROOM = 227 * 1024 /* shared memory of a block */, SLOTS_LEAST = 3 };

static int take(int *at, i64 bytes) {
    int here = *at;
    *at += (int)((bytes + 127) & ~(i64)127);
    return here;
}

/* Divides shared memory: the barriers, the ring, then the rest, which is counted first. False if too
 * little is left for the ring. */
static bool divide(gpu_few_args *f) {
    int groups = (int)min_i64(f->pairs, f->experts + f->pairs / FEW_GROUP), at = 0;
    f->at_sums = take(
        &at, max_i64(2 * FEW_WARPS * FEW_GROUP * 32 * 4, f->totals ? FEW_WARPS * f->n * PACK_ROWS * 4 : 0));
    f->at_groups = take(&at, (i64)groups * 8);
    f->at_cursor = take(&at, (i64)f->experts * 4);
    f->at_entries = take(&at, (i64)f->pairs * 8);
    f->at_pairs = take(&at, (i64)f->pairs * 2);
    f->slot_bytes = FEW_WEIGHTS + FEW_GROUP * FEW_X_STRIDE;
    f->slots = (int)min_i64((ROOM - FEW_BARRIERS - at) / f->slot_bytes, FEW_SLOTS);
    if (f->slots < SLOTS_LEAST) return false;
    int ring = FEW_BARRIERS + (f->slots * f->slot_bytes + 127) / 128 * 128;
    f->at_sums += ring, f->at_groups += ring, f->at_cursor += ring, f->at_entries += ring,
        f->at_pairs += ring;
    f->shared = ring + at;
    return true;
}

static bool fit(gpu_few_args *f) {
    if (divide(f)) return true;
    f->totals = 0;
    return divide(f);
}

bool gpu_run_few(const ops *o, const moe_args *a, gpu_bf16 *h, f32 *y, bool *summed) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 experts = w->n_views / 3, pairs = a->n * a->k;
    if (w->views[0].format != GPU_W_PACKED || (u64)(uintptr_t)a->x % 16 || a->n > FEW_TOKENS ||
        pairs > FEW_PAIRS || experts > FEW_EXPERTS)
        return false;
    gpu_few_args f = {.gate = w->views[0].data,
                      .up = w->views[1].data,
                      .down = w->views[2].data,
                      .expert_bytes = w->expert_bytes,
                      .x = a->x,
                      .shared_expert = a->shared,
                      .ids = a->ids,
                      .weights = a->weights,
                      .h = h,
                      .out = a->out,
                      .y = y,
                      .meeting = w->meeting,
                      .n = (int)a->n,
                      .k = (int)a->k,
                      .pairs = (int)pairs,
                      .experts = (int)experts,
                      .hidden = (int)w->views[0].cols,
                      .inter = (int)w->views[0].rows,
                      .totals = 1};
    if (b->form == ROWS_DECODE) { /* a row's products are summed in one way, however many rows there are */
        gpu_few_args most = f;
        most.n = (int)max_i64(a->n, DECODE_ROWS), most.pairs = most.n * f.k;
        if (!fit(&most)) return false;
        f.totals = most.totals;
    }
    if (!fit(&f)) return false;
    gpu_launch(b->g, b->few, (u32)gpu_processors(b->g), 1, 1, FEW_THREADS, (u32)f.shared, &f);
    *summed = f.totals;
    return true;
}
