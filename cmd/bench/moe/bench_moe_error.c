/* cmd/bench/moe/bench_moe_error.c: how far the outputs of `moonlet bench moe` are from the reference's. */
#include "cmd/bench/moe/bench_moe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Row i of set 0 as ref has it: with the weights as they were given and float activations, a slot a call; and as ops.h
 * says, with so many slots, all others empty, that moe_is_int8() holds where it does for the call, else a slot a
 * call. */
static status moe_error_ref_row(const bench_state *b, const shape_data *d, i64 i, f32 *given, f32 *contract, err *e) {
    const i64 dim = b->o.dim, topk = b->o.topk, slots = max_i64(topk, b->ref->int8_mean * b->distinct);
    f32 *x = calloc((u64)(2 * dim + slots), 4), *weights = x + 2 * dim, *one = x + dim;
    i32 *ids = malloc((u64)slots * 4);
    moe_args a = {.experts = b->ref_w, .x = x, .ids = ids, .weights = weights, .out = one, .n = 1, .k = slots};
    void *space = a.workspace = malloc(b->ref->moe_workspace(b->ref, &a));
    const bool int8 = moe_in_int8(b, d), apart = b->given != b->views || b->experts != EXPERTS_AS_STORED;
    bool ok = x && ids && space;
    for (i64 c = 0; ok && c < dim; c++) x[c] = bf16_to_f32(d->x16[i * dim + c]), given[c] = contract[c] = 0;
    for (i64 k = 0; ok && k < slots; k++) {
        i32 id = k < topk ? d->ids[i * topk + k] : -1;
        ids[k] = id >= 0 && id < b->o.experts ? id % (i32)b->distinct : -1;
        if (k < topk) weights[k] = d->weights[i * topk + k];
    }
    a.k = 1;
    for (i64 k = 0; ok && k < topk; k++) {
        a.ids = ids + k, a.weights = weights + k, a.experts = b->given_w;
        b->ref->moe(b->ref, &a);
        for (i64 c = 0; c < dim; c++) given[c] += one[c];
        a.experts = b->ref_w;
        if (!int8 && apart) b->ref->moe(b->ref, &a); /* else it is what was just made */
        for (i64 c = 0; !int8 && c < dim; c++) contract[c] += one[c];
    }
    a.k = slots, a.ids = ids, a.weights = weights, a.out = contract, a.experts = b->ref_w;
    if (ok && int8) b->ref->moe(b->ref, &a);
    free(x), free(ids), free(space);
    return ok ? ST_OK : err_nomem(e, "a row of the reference's", (u64)(2 * dim + slots) * 8);
}

static bool as_bf16_finite(f32 x) { return isfinite(bf16_to_f32(f32_to_bf16(x))); }

static f64 moe_error_compare(const f32 *got, const f32 *want, i64 n, i64 *odd, i64 *alone) {
    f64 diff = 0, size = 0;
    *odd = *alone = 0;
    for (i64 i = 0; i < n; i++) {
        bool here = as_bf16_finite(got[i]), there = as_bf16_finite(want[i]);
        if (here && there) {
            diff += ((f64)got[i] - (f64)want[i]) * ((f64)got[i] - (f64)want[i]);
            size += (f64)want[i] * (f64)want[i];
        } else {
            ++*odd, *alone += here != there;
        }
    }
    return *alone || *odd == n ? (f64)NAN : diff == 0 ? 0 : sqrt(diff / size);
}

/* Of the last outputs (set 0); rows that ref computes are spread over the call. */
static status moe_error_shape_error(const bench_state *b, const shape_data *d, moe_error *out, err *e) {
    i64 dim = b->o.dim, rows = min_i64(d->n, 4), odd, alone;
    const u64 cells = (u64)(rows * dim);
    f32 *given = malloc(cells * 12), *contract = given + cells, *got = contract + cells;
    status st = given ? ST_OK : err_nomem(e, "the reference's rows", cells * 12);
    for (i64 r = 0; st == ST_OK && r < rows; r++) {
        i64 i = rows > 1 ? r * (d->n - 1) / (rows - 1) : 0;
        st = moe_error_ref_row(b, d, i, given + r * dim, contract + r * dim, e);
        for (i64 c = i * dim; c < (i + 1) * dim; c++)
            *got++ = b->dev->act == DT_F32 ? d->out32[c] : bf16_to_f32(d->out16[c]);
    }
    if (st == ST_OK) {
        got -= cells;
        out->rows = rows;
        out->given = moe_error_compare(got, given, (i64)cells, &odd, &alone);
        out->contract = moe_error_compare(got, contract, (i64)cells, &out->odd, &out->alone);
    }
    free(given);
    return st;
}

/* The outputs of set 0 for the comparison. */
static status moe_error_run_once(const bench_state *b, shape_data *d, err *e) {
    moe_args a = moe_shape_args(b, d, 0);
    if (b->g) gpu_device(b->g)->write(gpu_device(b->g), d->pool.items[0], d->x16, (u64)(d->n * b->o.dim) * 2);
    b->dev->moe(b->dev, &a);
    if (!b->g) return ST_OK;
    device *dev = gpu_device(b->g);
    dev->read(dev, d->out16, a.out, (u64)(d->n * b->o.dim) * 2);
    return dev->finish(dev, e);
}

status moe_shape_errors(const bench_state *b, shape_data *d, moe_error out[2], err *e) {
    enum { OUTLIER = 64, COLUMN = 7 };
    i64 dim = b->o.dim, column = COLUMN % dim;
    bf16 *given = malloc((u64)d->n * 2);
    status st = given ? ST_OK : err_nomem(e, "a column", (u64)d->n * 2);
    for (i64 i = 0; given && i < d->n; i++) given[i] = d->x16[i * dim + column];
    for (int worst = 1; st == ST_OK && worst >= 0; worst--) {
        for (i64 i = 0; i < d->n; i++) {
            bf16 x = worst ? f32_to_bf16(bf16_to_f32(given[i]) * OUTLIER) : given[i];
            d->x16[i * dim + column] = x;
            if (b->dev->act == DT_F32) d->x32[i * dim + column] = bf16_to_f32(x);
        }
        st = moe_error_run_once(b, d, e);
        if (st == ST_OK) st = moe_error_shape_error(b, d, &out[worst], e);
    }
    free(given);
    return st;
}
