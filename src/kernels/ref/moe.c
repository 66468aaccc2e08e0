/* kernels/ref/moe.c: routed experts as written in the contract: an expert's products for the tokens that chose it, then
 * every token's sum over its slots in their order. A token's products do not depend on the others. */
#include "kernels/ref/ref.h"
#include <math.h>

enum { TOKENS = 32 }; /* at a time */

/* Of so many pairs of a token and a slot, those of one expert behind each other. */
typedef struct {
    f32 *x, *gate, *up; /* [pairs, hidden], [pairs, inter] twice: of the expert that is being computed */
    f32 *down;          /* [pairs, hidden]: results of all */
    i64 *at;            /* [pairs]: which row of `down` a pair has; -1: none */
    i8 *q;              /* [the longer of hidden and inter] */
} moe_space;

/* bytes: how much memory there must be behind `base`. */
static moe_space moe_space_of(const moe_args *a, void *base, u64 *bytes) {
    const i64 inter = a->experts->views[0].rows, hidden = a->experts->views[0].cols,
              pairs = min_i64(a->n, TOKENS) * a->k;
    moe_space s;
    s.at = base;
    s.x = (f32 *)(s.at + pairs);
    s.gate = s.x + pairs * hidden, s.up = s.gate + pairs * inter;
    s.down = s.up + pairs * inter;
    s.q = (i8 *)(s.down + pairs * hidden);
    *bytes = (u64)pairs * (sizeof *s.at + (u64)(2 * (hidden + inter)) * sizeof(f32)) + (u64)max_i64(inter, hidden);
    return s;
}

u64 ref_moe_workspace(const ops *o, const moe_args *a) {
    u64 bytes;
    max_align_t nowhere;
    (void)o;
    moe_space_of(a, &nowhere, &bytes);
    return bytes;
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

static void int8_expert(const weight_view *w, const moe_space *s, i64 n, f32 *down) {
    const i64 inter = w[0].rows, hidden = w[0].cols;
    for (i64 i = 0; i < n; i++) {
        f32 *gate = s->gate, *up = s->up, scale = to_int8(s->x + i * hidden, hidden, s->q);
        int8_matmul(&w[0], s->q, scale, gate);
        int8_matmul(&w[1], s->q, scale, up);
        for (i64 r = 0; r < inter; r++) gate[r] = bf16_to_f32(f32_to_bf16(ref_silu(gate[r]) * up[r]));
        scale = to_int8(gate, inter, s->q);
        int8_matmul(&w[2], s->q, scale, down + i * hidden);
    }
}

/* down [n, hidden] = one expert of s->x [n, hidden]. */
static void expert(const weight_view *w, const moe_space *s, i64 n, f32 *down) {
    const i64 inter = w[0].rows, hidden = w[0].cols;
    ref_matmul(&w[0], s->x, hidden, n, s->gate, inter);
    ref_matmul(&w[1], s->x, hidden, n, s->up, inter);
    for (i64 r = 0; r < n * inter; r++) s->gate[r] = ref_silu(s->gate[r]) * s->up[r];
    ref_matmul(&w[2], s->gate, inter, n, down, hidden);
}

/* Tokens [first, first + n): all their pairs' results. */
static void all_experts(const moe_args *a, const moe_space *s, i64 first, i64 n, bool int8) {
    const i64 hidden = a->experts->views[0].cols;
    i64 done = 0;
    for (i64 p = 0; p < n * a->k; p++) s->at[p] = -1;
    for (i64 e = 0; e < a->experts->n_views / 3; e++) {
        i64 m = 0;
        for (i64 p = 0; p < n * a->k; p++)
            if (a->ids[first * a->k + p] == e) {
                memcpy(s->x + m * hidden, (const f32 *)a->x + (first + p / a->k) * hidden, (u64)hidden * sizeof(f32));
                s->at[p] = done + m++;
            }
        if (m) (int8 ? int8_expert : expert)(&a->experts->views[3 * e], s, m, s->down + done * hidden);
        done += m;
    }
}

/* out [hidden]: of token i, whose pairs' rows are at [a->k]. */
static void add_slots(const moe_args *a, i64 i, const moe_space *s, const i64 *at, f32 *out) {
    const i64 hidden = a->experts->views[0].cols;
    memset(out, 0, (size_t)hidden * sizeof *out);
    for (i64 k = 0; k < a->k; k++)
        for (i64 c = 0; at[k] >= 0 && c < hidden; c++) out[c] += a->weights[i * a->k + k] * s->down[at[k] * hidden + c];
    if (a->shared)
        for (i64 c = 0; c < hidden; c++) out[c] += ((const f32 *)a->shared)[i * hidden + c];
}

void ref_moe(const ops *o, const moe_args *a) {
    const i64 inter = a->experts->views[0].rows, hidden = a->experts->views[0].cols;
    const bool int8 =
        a->experts->int8 && moe_is_int8(o->int8_mean, a->n * a->k, a->experts->n_views / 3, hidden, inter);
    u64 bytes;
    const moe_space s = moe_space_of(a, a->workspace, &bytes);
    for (i64 first = 0; first < a->n; first += TOKENS) {
        const i64 n = min_i64(TOKENS, a->n - first);
        all_experts(a, &s, first, n, int8);
        for (i64 i = 0; i < n; i++) add_slots(a, first + i, &s, s.at + i * a->k, (f32 *)a->out + (first + i) * hidden);
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
