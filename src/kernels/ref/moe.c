/* kernels/ref/moe.c: routed experts, one token and slot after the other, exactly as written in the contract. */
#include "kernels/ref/ref.h"
#include <math.h>

/* Per thread of the outer loop nothing is kept: the loop over a token's experts is sequential, the matrix
 * products inside use the threads. Workspace: gate [inter], up [inter], down [hidden], a row of int8. */
u64 ref_moe_workspace(const ops *o, const moe_args *a) {
    (void)o;
    i64 inter = a->experts->views[0].rows, hidden = a->experts->views[0].cols;
    return (u64)(2 * inter + hidden) * sizeof(f32) + (u64)max_i64(inter, hidden);
}

/* x as q * the returned scale (ops.h, at moe_args). */
static f32 to_int8(const f32 *x, i64 n, i8 *q) {
    f32 amax = 0;
    for (i64 c = 0; c < n; c++) amax = fabsf(x[c]) > amax || isnan(x[c]) ? fabsf(x[c]) : amax;
    bool bad = !isfinite(amax), zero = amax < 0x1p-100f;
    f32 inverse = bad || zero ? 0.0f : 127.0f / amax;
    for (i64 c = 0; c < n; c++) q[c] = bad || zero ? 0 : (i8)rintf(x[c] * inverse);
    return bad ? NAN : zero ? 0.0f : amax / 127.0f;
}

/* y = W x of a matrix with one scale a row. */
static void int8_matmul(const weight_view *w, const i8 *q, f32 scale, f32 *y) {
    const u8 *data = w->data;
    const bf16 *scales = w->scale;
    team tm = team_begin(w->rows * w->cols);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 r = 0; r < w->rows; r++) {
        const u8 *two = data + r * (w->cols / 2);
        i64 sum = 0;
        for (i64 c = 0; c < w->cols; c += 2) sum += ((two[c / 2] & 15) - 8) * q[c] + ((two[c / 2] >> 4) - 8) * q[c + 1];
        y[r] = (f32)sum * (bf16_to_f32(scales[r * (w->cols / INT4_GROUP)]) * scale);
    }
    team_end(&tm);
}

static void int8_expert(const weight_view *w, const f32 *x, f32 *gate, f32 *up, f32 *down, i8 *q) {
    i64 inter = w[0].rows;
    f32 scale = to_int8(x, w[0].cols, q);
    int8_matmul(&w[0], q, scale, gate);
    int8_matmul(&w[1], q, scale, up);
    for (i64 r = 0; r < inter; r++) gate[r] = bf16_to_f32(f32_to_bf16(ref_silu(gate[r]) * up[r]));
    scale = to_int8(gate, inter, q);
    int8_matmul(&w[2], q, scale, down);
}

static void expert(const weight_view *w, const f32 *x, f32 *gate, f32 *up, f32 *down) {
    i64 inter = w[0].rows, hidden = w[0].cols;
    ref_matmul(&w[0], x, hidden, 1, gate, inter);
    ref_matmul(&w[1], x, hidden, 1, up, inter);
    for (i64 r = 0; r < inter; r++) gate[r] = ref_silu(gate[r]) * up[r];
    ref_matmul(&w[2], gate, inter, 1, down, hidden);
}

void ref_moe(const ops *o, const moe_args *a) {
    (void)o;
    i64 inter = a->experts->views[0].rows, hidden = a->experts->views[0].cols;
    f32 *gate = a->workspace, *up = gate + inter, *down = up + inter;
    i8 *q = (i8 *)(down + hidden);
    bool int8 = a->experts->int8 && moe_is_int8(a->n * a->k, a->experts->n_views / 3, hidden, inter);
    for (i64 i = 0; i < a->n; i++) {
        const f32 *x = (const f32 *)a->x + i * hidden;
        f32 *out = (f32 *)a->out + i * hidden;
        memset(out, 0, (size_t)hidden * sizeof *out);
        for (i64 s = 0; s < a->k; s++) {
            i32 id = a->ids[i * a->k + s];
            if (id < 0 || id >= a->experts->n_views / 3) continue;
            const weight_view *w = &a->experts->views[3 * (i64)id];
            if (int8)
                int8_expert(w, x, gate, up, down, q);
            else
                expert(w, x, gate, up, down);
            for (i64 c = 0; c < hidden; c++) out[c] += a->weights[i * a->k + s] * down[c];
        }
        if (a->shared)
            for (i64 c = 0; c < hidden; c++) out[c] += ((const f32 *)a->shared)[i * hidden + c];
    }
}
