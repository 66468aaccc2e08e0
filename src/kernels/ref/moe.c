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

/* The largest scale of a row's groups, two steps of bf16 more where it is negative; no number is the largest. */
static f32 row_max_scale(const bf16 *scales, i64 groups) {
    u32 most = 0;
    for (i64 g = 0; g < groups; g++) {
        u32 bits = (scales[g] & 0x7fffu) + (scales[g] >> 15 ? 2 : 0);
        if (bits > most) most = bits;
    }
    return bf16_to_f32((bf16)(most < 0x7fff ? most : 0x7fff));
}

/* A group's numbers times m / 16, to nearest, ties up. */
static i64 int8_group_dot(const u8 *two, i64 m, const i8 *q) {
    i64 sum = 0;
    for (i64 c = 0; c < INT4_GROUP; c++) {
        i64 number = (two[c / 2] >> (c % 2 * 4) & 15) - 8;
        sum += ((number * m + 8 + 16 * 128) / 16 - 128) * q[c];
    }
    return sum;
}

/* y = W x, W in INT4 in groups, made int8 against the largest scale of each row. */
static void int8_matmul(const weight_view *w, const i8 *q, f32 scale, f32 *y) {
    const i64 groups = w->cols / INT4_GROUP;
    team tm = team_begin(w->rows * w->cols);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 r = 0; r < w->rows; r++) {
        const u8 *data = (const u8 *)w->data + r * (w->cols / 2);
        const bf16 *scales = (const bf16 *)w->scale + r * groups;
        const f32 most = row_max_scale(scales, groups), per_scale = 256.0f / most;
        const bool zero = most < 0x1p-100f;
        i64 sum = 0;
        for (i64 g = 0; isfinite(most) && !zero && g < groups; g++)
            sum += int8_group_dot(data + g * (INT4_GROUP / 2),
                                  (i64)(fmaf(bf16_to_f32(scales[g]), per_scale, 0x1.8p23f) - 0x1.8p23f),
                                  q + g * INT4_GROUP);
        y[r] = !isfinite(most) ? NAN : (f32)sum * ((zero ? 0.0f : most / 16.0f) * scale);
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

void ref_sum_pairs(const ops *o, const sum_pairs_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++)
        for (i64 c = 0; c < a->dim; c++) {
            f32 sum = 0;
            for (i64 s = i * a->k; s < (i + 1) * a->k; s++) sum += a->weights[s] * ((const f32 *)a->y)[s * a->dim + c];
            if (a->shared) sum += ((const f32 *)a->shared)[i * a->dim + c];
            ((f32 *)a->out)[i * a->dim + c] = sum;
        }
}
