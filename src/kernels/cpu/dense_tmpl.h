/* kernels/cpu/dense_tmpl.h: dense products: linear, swiglu, absorb_q, unabsorb_v.
 *
 * Work items are blocks of up to WB weight rows times XB rows of x; x stays in the second-level cache while the
 * weights stream past once per XB rows. With VEC_AMX an item lays its rows of x down for the tiles, which takes as long
 * as 16 to 64 rows of a weight do, so it gets as many as leave no thread without work. */
#ifdef VEC_AMX
#include "kernels/cpu/dot_amx_tmpl.h"
enum { WB = STRIPS * TILE, XB = X_TILES * TILE };
#else
enum { WB = 16, XB = 64 };
#endif

/* How `rows` of a weight are divided into items where each comes `times` times, for so many threads. */
typedef struct {
    i64 rows, n, strips;
} weight_blocks;

INLINE weight_blocks divide_rows(i64 rows, i64 times, i64 threads) {
    const i64 strips = ceil_div(rows, 16), most = WB / 16;
    i64 even = 1; /* of so many blocks, or a multiple, each thread has as many items as the others */
    while (most > 1 && even * times % threads) even++;
    return (weight_blocks){rows, min_i64(strips, ceil_div(ceil_div(strips, most), even) * even), strips};
}
/* The first row of block i; that of the one behind the last is the number of rows. */
INLINE i64 first_row(const weight_blocks *b, i64 i) { return min_i64(b->strips * i / b->n * 16, b->rows); }

INLINE void store_act(void *p, dtype t, i64 at, const f32 *v, i64 n) {
    if (t == DT_F32) {
        memcpy((f32 *)p + at, v, (size_t)n * sizeof *v);
        return;
    }
    bf16 *q = (bf16 *)p + at;
    i64 c = 0;
    for (; c + VL <= n; c += VL) vf_store_bf16(q + c, vf_load(v + c));
    if (c < n) vf_store_bf16_n(q + c, vf_load_n(v + c, n - c), n - c);
}

#ifdef VEC_AMX
/* y[nx, WB] = rows x times weight rows [row, row + nw), which are bf16. */
static void block_product(const weight_view *w, i64 row, i64 nw, const void *const *x, i64 nx, f32 *y, f32 *buf) {
    (void)buf;
    dot_tiles((const bf16 *const *)x, nx, (const bf16 *)w->data + row * w->cols, w->cols, nw, w->cols, y, WB);
}
#else
/* y[nx, WB] = rows x times weight rows [row, row + nw). */
static void block_product(const weight_view *w, i64 row, i64 nw, const void *const *x, i64 nx, f32 *y, f32 *buf) {
#ifdef VEC_DPBF16
    if (weight_is_fp8(w->format)) {
        fp8_product(w, row, nw, (const bf16 *const *)x, nx, y, WB, (bf16 *)buf);
        return;
    }
#endif
    i64 step = expand_rows(w, nw);
    for (i64 j = 0; j < nw; j += step) {
        i64 n = min_i64(step, nw - j);
        dot(x, false, nx, weight_mat(w, row + j, n, buf), n, w->cols, y + j, WB);
    }
}
#endif

/* g[nx, WB] = silu(gate x) * (up x); u like g. */
static void gated_product(const weight_view *gate, const weight_view *up, i64 row, i64 nw, const void *const *x, i64 nx,
                          f32 *g, f32 *u, f32 *buf) {
    const i64 whole = nw / VL * VL, n = nw - whole;
    block_product(gate, row, nw, x, nx, g, buf);
    block_product(up, row, nw, x, nx, u, buf);
    for (i64 i = 0; i < nx; i++, g += WB, u += WB) {
        for (i64 c = 0; c < whole; c += VL) vf_store(g + c, silu_mul(vf_load(g + c), vf_load(u + c)));
        if (n) vf_store_n(g + whole, silu_mul(vf_load_n(g + whole, n), vf_load_n(u + whole, n)), n);
    }
}

static void row_pointers(const void *x, i64 stride, i64 first, i64 n, const void **out) {
    for (i64 i = 0; i < n; i++) out[i] = (const bf16 *)x + (first + i) * stride;
}

static void linear(const ops *o, const linear_args *a) {
    (void)o;
    const weight_view *w = &a->w->views[0];
    team tm = team_begin(a->n * w->rows * w->cols);
    const weight_blocks b = divide_rows(w->rows, ceil_div(a->n, XB), tm.threads);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 it = 0; it < b.n * ceil_div(a->n, XB); it++) {
        f32 buf[CPU_EXPAND_MAX], y[XB * WB];
        const void *x[XB];
        i64 row = first_row(&b, it % b.n), nw = first_row(&b, it % b.n + 1) - row;
        i64 first = it / b.n * XB, nx = min_i64(XB, a->n - first);
        row_pointers(a->x, a->x_stride, first, nx, x);
        block_product(w, row, nw, x, nx, y, buf);
        for (i64 i = 0; i < nx; i++) store_act(a->y, a->y_type, (first + i) * a->y_stride + row, y + i * WB, nw);
    }
    team_end(&tm);
}

static void swiglu(const ops *o, const swiglu_args *a) {
    (void)o;
    const weight_view *gate = &a->gate->views[0], *up = &a->up->views[0];
    team tm = team_begin(2 * a->n * gate->rows * gate->cols);
    const weight_blocks b = divide_rows(gate->rows, ceil_div(a->n, XB), tm.threads);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 it = 0; it < b.n * ceil_div(a->n, XB); it++) {
        f32 buf[CPU_EXPAND_MAX], g[XB * WB], u[XB * WB];
        const void *x[XB];
        i64 row = first_row(&b, it % b.n), nw = first_row(&b, it % b.n + 1) - row;
        i64 first = it / b.n * XB, nx = min_i64(XB, a->n - first);
        row_pointers(a->x, a->x_stride, first, nx, x);
        gated_product(gate, up, row, nw, x, nx, g, u, buf);
        for (i64 i = 0; i < nx; i++) store_act(a->out, DT_BF16, (first + i) * a->out_stride + row, g + i * WB, nw);
    }
    team_end(&tm);
}

/* out[latent] = sum_d q[d] Wuk[d, :]: an axpy over the key rows of a head, COLS columns at a time. */
static void absorb_q(const ops *o, const absorb_q_args *a) {
    (void)o;
    enum { COLS = 128, ROWS = 8, DEPTH = 64 };
    const weight_view *w = &a->kv_b->views[0];
    i64 head = a->nope + a->rope, width = a->latent + a->rope, rows = a->kv_b->nope + a->kv_b->v_dim;
    i64 pieces = ceil_div(a->latent, COLS), items = a->n_heads * pieces;
    bool direct = w->format == WF_BF16 || w->format == WF_F32;
    team tm = team_begin(a->n * a->n_heads * a->nope * a->latent);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 it = 0; it < items; it++) {
        f32 buf[DEPTH * COLS], p[ROWS * DEPTH], acc[ROWS * COLS];
        i64 h = it / pieces, c0 = it % pieces * COLS, nc = min_i64(COLS, a->latent - c0);
        for (i64 i = 0; i < a->n; i += ROWS) {
            i64 n = min_i64(ROWS, a->n - i);
            memset(acc, 0, sizeof acc);
            for (i64 d = 0; d < a->nope; d += DEPTH) {
                i64 m = min_i64(DEPTH, a->nope - d), row = h * rows + d;
                for (i64 r = 0; r < n; r++)
                    for (i64 k = 0; k < m; k++)
                        p[r * DEPTH + k] = bf16_to_f32(((const bf16 *)a->q)[((i + r) * a->n_heads + h) * head + d + k]);
                mat v = {buf, COLS, true};
                if (direct) {
                    bool wide = w->format == WF_F32;
                    v = (mat){(const u8 *)w->data + (row * w->cols + c0) * (wide ? 4 : 2), w->cols, wide};
                } else {
                    for (i64 k = 0; k < m; k++) expand_cols(w, row + k, c0, nc, buf + k * COLS);
                }
                axpy(p, DEPTH, n, v, m, acc, COLS, nc);
            }
            for (i64 r = 0; r < n; r++) {
                i64 at = ((i + r) * a->n_heads + h) * width;
                store_act(a->out, DT_BF16, at + c0, acc + r * COLS, nc);
                if (c0 == 0)
                    memcpy((bf16 *)a->out + at + a->latent,
                           (const bf16 *)a->q + ((i + r) * a->n_heads + h) * head + a->nope,
                           (size_t)a->rope * sizeof(bf16));
            }
        }
    }
    team_end(&tm);
}

static void unabsorb_v(const ops *o, const unabsorb_v_args *a) {
    (void)o;
    const weight_view *w = &a->kv_b->views[0];
    i64 rows = a->kv_b->nope + a->kv_b->v_dim;
    team tm = team_begin(a->n * a->n_heads * a->v_dim * a->latent);
    const weight_blocks b = divide_rows(a->v_dim, a->n_heads, tm.threads);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 it = 0; it < a->n_heads * b.n; it++) {
        f32 buf[CPU_EXPAND_MAX], y[XB * WB];
        const void *x[XB];
        i64 h = it / b.n, d = first_row(&b, it % b.n), nw = first_row(&b, it % b.n + 1) - d;
        for (i64 i = 0; i < a->n; i += XB) {
            i64 nx = min_i64(XB, a->n - i);
            row_pointers((const bf16 *)a->x + h * a->latent, a->n_heads * a->latent, i, nx, x);
            block_product(w, h * rows + a->kv_b->nope + d, nw, x, nx, y, buf);
            for (i64 r = 0; r < nx; r++)
                store_act(a->out, DT_BF16, ((i + r) * a->n_heads + h) * a->v_dim + d, y + r * WB, nw);
        }
    }
    team_end(&tm);
}
