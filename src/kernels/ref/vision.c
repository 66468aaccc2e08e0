/* kernels/ref/vision.c: the vision tower's operations (MoonViT3d of Kimi-K2.5). */
#include "kernels/ref/ref.h"
#include <math.h>

void ref_pixel_rows(const ops *o, const pixel_rows_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        f32 *out = (f32 *)a->out + i * a->out_stride;
        for (i64 c = 0; c < a->out_stride; c++)
            out[c] = c < a->dim ? ((f32)a->pixels[i * a->dim + c] / 255.0f - 0.5f) * 2.0f : 0.0f;
    }
}

/* The four taps of place `at` of `size` in a table of `n` places: which, and their weights. */
static void cubic_taps(i64 at, i64 size, i64 n, i64 tap[4], f64 weight[4]) {
    const f64 a = -0.75, src = ((f64)at + 0.5) * (f64)n / (f64)size - 0.5, first = floor(src), f = src - first;
    for (int k = 0; k < 4; k++) {
        const f64 x = fabs(f - (k - 1));
        weight[k] = x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
        tap[k] = max_i64(0, min_i64(n - 1, (i64)first - 1 + k));
    }
}

static void position_row(const patch_position_args *a, const vision_item *it, i64 at, f32 *x) {
    const weight_view *table = &a->table->views[0];
    i64 row[4], col[4];
    f64 down[4], across[4];
    cubic_taps(at / it->w % it->h, it->h, a->table_h, row, down);
    cubic_taps(at % it->w, it->w, a->table_w, col, across);
    const f32 *time = it->t > 1 ? a->time + at / it->w / it->h * a->dim : NULL;
    for (i64 c = 0; c < a->dim; c++) {
        f64 sum = 0;
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) {
                f32 v;
                weight_cols_f32(table, row[j] * a->table_w + col[k], c, 1, &v);
                sum += down[j] * across[k] * (f64)v;
            }
        x[c] = x[c] + a->bias->vector[c] + (f32)sum + (time ? time[c] : 0.0f);
    }
}

void ref_patch_position(const ops *o, const patch_position_args *a) {
    (void)o;
    team tm = team_begin(64 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, false);
        position_row(a, it, i - it->first, (f32 *)a->x + i * a->dim);
    }
    team_end(&tm);
}

static void layer_norm_row(const f32 *x, const f32 *weight, const f32 *bias, i64 dim, f32 eps, f32 *out) {
    f64 sum = 0, squares = 0;
    for (i64 c = 0; c < dim; c++) sum += (f64)x[c];
    const f64 mean = sum / (f64)dim;
    for (i64 c = 0; c < dim; c++) squares += ((f64)x[c] - mean) * ((f64)x[c] - mean);
    const f64 r = 1.0 / sqrt(squares / (f64)dim + (f64)eps);
    for (i64 c = 0; c < dim; c++) out[c] = (f32)(((f64)x[c] - mean) * r) * weight[c] + bias[c];
}

void ref_layer_norm(const ops *o, const layer_norm_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        const f32 *x = (const f32 *)a->x + i * a->dim, *add = (const f32 *)a->add + (a->add ? i * a->dim : 0);
        f32 *out = (f32 *)a->out + i * a->dim, *sum = (f32 *)a->sum;
        for (i64 c = 0; c < a->dim; c++) out[c] = x[c] + (a->add ? add[c] + a->add_bias->vector[c] : 0.0f);
        if (sum) memcpy(sum + i * a->dim, out, (size_t)a->dim * sizeof *out);
        layer_norm_row(out, a->weight->vector, a->bias->vector, a->dim, a->eps, out);
    }
}

/* Phi: the normal distribution. */
static f64 gelu(f64 x) { return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)); }
static f64 gelu_tanh(f64 x) { return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

void ref_bias_act(const ops *o, const bias_act_args *a) {
    (void)o;
    team tm = team_begin(32 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        for (i64 c = 0; c < a->dim; c++) {
            f32 *x = (f32 *)a->x + i * a->dim + c, v = *x + a->bias->vector[c];
            *x = a->activation == BIAS_GELU        ? (f32)gelu((f64)v)
                 : a->activation == BIAS_GELU_TANH ? (f32)gelu_tanh((f64)v)
                                                   : v;
        }
    team_end(&tm);
}

void ref_vision_rope(const ops *o, const vision_rope_args *a) {
    (void)o;
    const i64 row = a->n_heads * a->dim, quarter = a->dim / 4;
    for (i64 i = 0; i < a->n; i++) {
        const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, false);
        const i64 at = i - it->first;
        const f32 *column = a->table + at % it->w * 2 * quarter, *line = a->table + at / it->w % it->h * 2 * quarter;
        f32 *x = (f32 *)a->qkv + i * 3 * row;
        for (i64 c = 0; c < 3 * row; c++) x[c] += a->bias->vector[c];
        for (i64 p = 0; p < row; p++) { /* pairs of queries and keys */
            const i64 pair = p % (a->dim / 2);
            const f32 *cs = (pair % 2 ? line : column) + pair / 2 * 2, even = x[2 * p], odd = x[2 * p + 1];
            x[2 * p] = even * cs[0] - odd * cs[1];
            x[2 * p + 1] = even * cs[1] + odd * cs[0];
        }
    }
}

static void attend_row(const vision_attention_args *a, i64 i) {
    const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, false);
    const i64 row = a->n_heads * a->dim, all = (i64)it->t * it->h * it->w;
    const f32 *first = (const f32 *)a->qkv + it->first * 3 * row;
    for (i64 h = 0; h < a->n_heads; h++) {
        const f32 *q = (const f32 *)a->qkv + i * 3 * row + h * a->dim, *k = first + row + h * a->dim;
        f32 *out = (f32 *)a->out + i * row + h * a->dim, score[KV_PAGE];
        ref_running r;
        ref_running_start(&r, out, a->dim);
        for (i64 t = 0; t < all; t += KV_PAGE, k += KV_PAGE * 3 * row) {
            const i64 n = min_i64(KV_PAGE, all - t);
            for (i64 j = 0; j < n; j++) score[j] = a->scale * ref_dot(q, k + j * 3 * row, a->dim);
            ref_running_add(&r, out, score, n, k + row, 3 * row, a->dim);
        }
        ref_running_end(&r, out, a->dim);
    }
}

void ref_vision_attention(const ops *o, const vision_attention_args *a) {
    (void)o;
    team tm = team_begin(2 * a->count * a->longest * a->n_heads * a->dim);
#pragma omp parallel for schedule(dynamic, 8) num_threads(tm.threads)
    for (i64 i = a->first; i < a->first + a->count; i++) attend_row(a, i);
    team_end(&tm);
}

void ref_patch_merge(const ops *o, const patch_merge_args *a) {
    (void)o;
    enum { EACH = VISION_MERGE * VISION_MERGE };
    for (i64 i = 0; i < a->n; i++) {
        const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, true);
        const i64 at = i - it->token, across = it->w / VISION_MERGE;
        for (i64 s = 0; s < EACH; s++) {
            const i64 y = at / across * VISION_MERGE + s / VISION_MERGE,
                      x = at % across * VISION_MERGE + s % VISION_MERGE;
            f32 *out = (f32 *)a->out + (i * EACH + s) * a->dim;
            for (i64 c = 0; c < a->dim; c++) {
                f64 sum = 0;
                for (i64 f = 0; f < it->t; f++)
                    sum += (f64)((const f32 *)a->x)[(it->first + (f * it->h + y) * it->w + x) * a->dim + c];
                out[c] = (f32)(sum / (f64)it->t);
            }
            layer_norm_row(out, a->weight->vector, a->bias->vector, a->dim, a->eps, out);
        }
    }
}
