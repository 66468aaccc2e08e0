/* kernels/ref/linear.c: matrix products. A row of the weight is expanded to float32 once and used for all rows of x.
 */
#include "kernels/ref/ref.h"
#include <math.h>

/* Same sums, same order, in as wide registers as there are: most of what tests compute. */
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))

/* Eight values at once, wherever they lie: what watches memory looks at each of them twice, not at eight. */
typedef f32 eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef f64 eight_sums __attribute__((vector_size(64)));

WIDE static f32 dot(const f32 *a, const f32 *b, i64 n) {
    eight_sums s = {0};
    i64 k = 0;
    for (; k + 8 <= n; k += 8)
        s += __builtin_convertvector(*(const eight *)(a + k), eight_sums) *
             __builtin_convertvector(*(const eight *)(b + k), eight_sums);
    for (int l = 0; k < n; k++, l++) s[l] += (f64)a[k] * (f64)b[k];
    return (f32)(s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]);
}

f32 ref_dot(const f32 *a, const f32 *b, i64 n) { return dot(a, b, n); }

/* y[0], y[y_stride], ... += ref_dot() of four rows of x with w [n], n a multiple of 8: their sums do not wait for one
 * another. */
WIDE static void add_four_dots(const f32 *x, i64 x_stride, const f32 *w, i64 n, f32 *y, i64 y_stride) {
    eight_sums s[4] = {{0}};
    for (i64 k = 0; k < n; k += 8) {
        const eight_sums wide = __builtin_convertvector(*(const eight *)(w + k), eight_sums);
        for (int i = 0; i < 4; i++)
            s[i] += __builtin_convertvector(*(const eight *)(x + i * x_stride + k), eight_sums) * wide;
    }
    for (int i = 0; i < 4; i++)
        y[i * y_stride] += (f32)(s[i][0] + s[i][1] + s[i][2] + s[i][3] + s[i][4] + s[i][5] + s[i][6] + s[i][7]);
}

f32 ref_silu(f32 x) { return x / (1.0f + expf(-x)); }

void ref_matmul_row(const weight_view *w, i64 r, const f32 *x, i64 x_stride, i64 n, f32 *y, i64 y_stride) {
    f32 piece[REF_PIECE];
    for (i64 i = 0; i < n; i++) y[i * y_stride] = 0;
    for (i64 c = 0; c < w->cols; c += REF_PIECE) {
        i64 nc = min_i64(REF_PIECE, w->cols - c);
        weight_cols_f32(w, r, c, nc, piece);
        i64 i = 0;
        for (; i + 4 <= n && nc % 8 == 0; i += 4)
            add_four_dots(x + i * x_stride + c, x_stride, piece, nc, y + i * y_stride, y_stride);
        for (; i < n; i++) y[i * y_stride] += ref_dot(x + i * x_stride + c, piece, nc);
    }
}

void ref_matmul(const weight_view *w, const f32 *x, i64 x_stride, i64 n, f32 *y, i64 y_stride) {
    team tm = team_begin(n * w->rows * w->cols);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 r = 0; r < w->rows; r++) ref_matmul_row(w, r, x, x_stride, n, y + r, y_stride);
    team_end(&tm);
}

void ref_linear(const ops *o, const linear_args *a) {
    (void)o;
    ref_matmul(&a->w->views[0], a->x, a->x_stride, a->n, a->y, a->y_stride);
}

void ref_swiglu(const ops *o, const swiglu_args *a) {
    (void)o;
    const weight_view *gate = &a->gate->views[0], *up = &a->up->views[0];
    enum { ROWS = 64 }; /* rows of x at a time: their `up` products wait on the stack */
    team tm = team_begin(a->n * gate->rows * gate->cols);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 r = 0; r < gate->rows; r++) {
        f32 u[ROWS];
        for (i64 i = 0; i < a->n; i += ROWS) {
            i64 n = min_i64(ROWS, a->n - i);
            const f32 *x = (const f32 *)a->x + i * a->x_stride;
            f32 *out = (f32 *)a->out + i * a->out_stride + r;
            ref_matmul_row(gate, r, x, a->x_stride, n, out, a->out_stride);
            ref_matmul_row(up, r, x, a->x_stride, n, u, 1);
            for (i64 j = 0; j < n; j++) out[j * a->out_stride] = ref_silu(out[j * a->out_stride]) * u[j];
        }
    }
    team_end(&tm);
}
