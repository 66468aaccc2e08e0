/* kernels/ref/linear.c: matrix products. A row of the weight is expanded to float32 once and used for all rows of x.
 */
#include "kernels/ref/ref.h"
#include <math.h>

/* Same sums, same order, in as wide registers as there are: most of what tests compute. */
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))

/* Eight values at once, wherever they lie: what watches memory looks at each of them twice, not at eight. */
typedef f32 eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef f64 eight_sums __attribute__((vector_size(64)));

/* Not functions: such vectors are passed differently from one instruction set to the next. */
#define WIDENED(from) __builtin_convertvector(*(const eight *)(from), eight_sums)
#define SUM_OF(s)     (f32)((s)[0] + (s)[1] + (s)[2] + (s)[3] + (s)[4] + (s)[5] + (s)[6] + (s)[7])

WIDE static f32 dot(const f32 *a, const f32 *b, i64 n) {
    eight_sums s = {0};
    i64 k = 0;
    for (; k + 8 <= n; k += 8) s += WIDENED(a + k) * WIDENED(b + k);
    for (int l = 0; k < n; k++, l++) s[l] += (f64)a[k] * (f64)b[k];
    return SUM_OF(s);
}

f32 ref_dot(const f32 *a, const f32 *b, i64 n) { return dot(a, b, n); }

enum { TILE = 4 /* rows of x at a time: their sums do not wait for one another, and w is widened once for all */ };

/* y0 and y1 [m] += ref_dot() of m rows of x with w0 and w1 [n], n a multiple of 8; always_inline: for each m. */
__attribute__((always_inline)) static inline void add_tile(const f32 *x, i64 x_stride, int m, const f32 *w0,
                                                           const f32 *w1, i64 n, f32 *y0, i64 y0_stride, f32 *y1,
                                                           i64 y1_stride) {
    eight_sums s[TILE] = {{0}}, t[TILE] = {{0}};
    for (i64 k = 0; k < n; k += 8) {
        const eight_sums a = WIDENED(w0 + k), b = WIDENED(w1 + k);
        for (int i = 0; i < m; i++) {
            const eight_sums v = WIDENED(x + i * x_stride + k);
            s[i] += v * a, t[i] += v * b;
        }
    }
    for (int i = 0; i < m; i++) y0[i * y0_stride] += SUM_OF(s[i]), y1[i * y1_stride] += SUM_OF(t[i]);
}

/* One row of a weight with rows of x: y[0], y[y_stride], ... */
typedef struct {
    const weight_view *w;
    i64 row;
    f32 *y;
    i64 y_stride;
} row_product;

/* w0, w1 [n]: pieces of two rows; += as add_tile(), for all `rows` of x. */
WIDE static void add_pieces(const f32 *x, i64 x_stride, i64 rows, const f32 *w0, const f32 *w1, i64 n,
                            const row_product *p, const row_product *q) {
    i64 i = 0;
    for (; i + TILE <= rows; i += TILE)
        add_tile(x + i * x_stride, x_stride, TILE, w0, w1, n, p->y + i * p->y_stride, p->y_stride,
                 q->y + i * q->y_stride, q->y_stride);
    for (; i < rows; i++)
        add_tile(x + i * x_stride, 0, 1, w0, w1, n, p->y + i * p->y_stride, 0, q->y + i * q->y_stride, 0);
}

/* Two rows at once, of as many columns each. */
static void multiply_rows(const row_product *p, const row_product *q, const f32 *x, i64 x_stride, i64 n) {
    f32 piece[2][REF_PIECE];
    for (i64 i = 0; i < n; i++) p->y[i * p->y_stride] = q->y[i * q->y_stride] = 0;
    for (i64 c = 0; c < p->w->cols; c += REF_PIECE) {
        const i64 nc = min_i64(REF_PIECE, p->w->cols - c);
        weight_cols_f32(p->w, p->row, c, nc, piece[0]);
        weight_cols_f32(q->w, q->row, c, nc, piece[1]);
        if (nc % 8 == 0) {
            add_pieces(x + c, x_stride, n, piece[0], piece[1], nc, p, q);
            continue;
        }
        for (i64 i = 0; i < n; i++) {
            p->y[i * p->y_stride] += ref_dot(x + i * x_stride + c, piece[0], nc);
            q->y[i * q->y_stride] += ref_dot(x + i * x_stride + c, piece[1], nc);
        }
    }
}

void ref_matmul_row(const weight_view *w, i64 r, const f32 *x, i64 x_stride, i64 n, f32 *y, i64 y_stride) {
    f32 piece[REF_PIECE];
    for (i64 i = 0; i < n; i++) y[i * y_stride] = 0;
    for (i64 c = 0; c < w->cols; c += REF_PIECE) {
        const i64 nc = min_i64(REF_PIECE, w->cols - c);
        weight_cols_f32(w, r, c, nc, piece);
        for (i64 i = 0; i < n; i++) y[i * y_stride] += ref_dot(x + i * x_stride + c, piece, nc);
    }
}

void ref_matmul(const weight_view *w, const f32 *x, i64 x_stride, i64 n, f32 *y, i64 y_stride) {
    team tm = team_begin(n * w->rows * w->cols);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 r = 0; r < w->rows; r += 2) {
        const row_product p = {w, r, y + r, y_stride}, q = {w, r + 1, y + r + 1, y_stride};
        if (r + 1 < w->rows)
            multiply_rows(&p, &q, x, x_stride, n);
        else
            ref_matmul_row(w, r, x, x_stride, n, y + r, y_stride);
    }
    team_end(&tm);
}

f32 ref_silu(f32 x) { return x / (1.0f + expf(-x)); }

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
            multiply_rows(&(row_product){gate, r, out, a->out_stride}, &(row_product){up, r, u, 1}, x, a->x_stride, n);
            for (i64 j = 0; j < n; j++) out[j * a->out_stride] = ref_silu(out[j * a->out_stride]) * u[j];
        }
    }
    team_end(&tm);
}
