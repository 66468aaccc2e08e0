/* kernels/cpu/dot_tmpl.h: the two products that everything is built from, on the vector layer.
 *
 * dot:  y[i, j] = x_i . w_j, one vector accumulator over K per result, summed across lanes at the end.
 * axpy: acc[i, :] += sum_j p[i, j] v_j, j in order, every lane by itself.
 * Both give a row the same bits whatever other rows share its tile. */
#include "kernels/cpu/silu_tmpl.h"

/* `n` < VL floats, the rest of the lanes zero. */
INLINE vf vf_load_n(const f32 *p, i64 n) {
    f32 b[VL] = {0};
    memcpy(b, p, (size_t)n * sizeof *p);
    return vf_load(b);
}
INLINE vf vf_bf16_n(const bf16 *p, i64 n) {
    bf16 b[VL] = {0};
    memcpy(b, p, (size_t)n * sizeof *p);
    return vf_bf16(b);
}
INLINE vb vb_load_n(const bf16 *p, i64 n) {
    bf16 b[KSTEP] = {0};
    memcpy(b, p, (size_t)n * sizeof *p);
    return vb_load(b);
}
INLINE void vf_store_n(f32 *p, vf v, i64 n) {
    f32 b[VL];
    vf_store(b, v);
    memcpy(p, b, (size_t)n * sizeof *p);
}
INLINE void vf_store_bf16_n(bf16 *p, vf v, i64 n) {
    bf16 b[VL];
    vf_store_bf16(b, v);
    memcpy(p, b, (size_t)n * sizeof *p);
}
#ifndef VF_SUM4
INLINE void vf_sum4(f32 *out, const vf v[4]) {
    for (int i = 0; i < 4; i++) out[i] = vf_sum(v[i]);
}
#endif
INLINE vf mul_add(vf acc, vf a, vf b) { return vf_fma(a, b, acc); }

/* M rows of x (by pointer) against N rows of w (stride ws) into y[M, ys]. Copied into its callers under sanitizers,
 * too: without constant counts acc lies in memory that is checked, and what runs a model takes five times as long. */
#define DEFINE_DOT(NAME, XT, WT, V, STEP, LOADX, LOADX_N, LOADW, LOADW_N, MAC)                                         \
    INLINE_ALWAYS void NAME##_tile(const XT *const *x, const WT *w, i64 ws, i64 k, f32 *y, i64 ys, const int M,        \
                                   const int N) {                                                                      \
        vf acc[4][4];                                                                                                  \
        for (int i = 0; i < M; i++)                                                                                    \
            for (int j = 0; j < N; j++) acc[i][j] = vf_zero();                                                         \
        i64 c = 0;                                                                                                     \
        for (; c + STEP <= k; c += STEP) {                                                                             \
            V wv[4];                                                                                                   \
            for (int j = 0; j < N; j++) wv[j] = LOADW(w + j * ws + c);                                                 \
            for (int j = 0; j < N; j++) __builtin_prefetch(w + (N + j) * ws + c); /* the next tile's */                \
            for (int i = 0; i < M; i++) {                                                                              \
                V xv = LOADX(x[i] + c);                                                                                \
                for (int j = 0; j < N; j++) acc[i][j] = MAC(acc[i][j], xv, wv[j]);                                     \
            }                                                                                                          \
        }                                                                                                              \
        if (c < k)                                                                                                     \
            for (int j = 0; j < N; j++) {                                                                              \
                V wt = LOADW_N(w + j * ws + c, k - c);                                                                 \
                for (int i = 0; i < M; i++) acc[i][j] = MAC(acc[i][j], LOADX_N(x[i] + c, k - c), wt);                  \
            }                                                                                                          \
        for (int i = 0; i < M; i++)                                                                                    \
            if (N == 4)                                                                                                \
                vf_sum4(y + i * ys, acc[i]);                                                                           \
            else                                                                                                       \
                for (int j = 0; j < N; j++) y[i * ys + j] = vf_sum(acc[i][j]);                                         \
    }                                                                                                                  \
    static void NAME(const XT *const *x, i64 nx, const WT *w, i64 ws, i64 nw, i64 k, f32 *y, i64 ys) {                 \
        for (i64 j = 0; j < nw; j += j + 4 <= nw ? 4 : 1) {                                                            \
            bool four = j + 4 <= nw;                                                                                   \
            i64 i = 0;                                                                                                 \
            for (; i + DOT_M <= nx; i += DOT_M)                                                                        \
                if (four)                                                                                              \
                    NAME##_tile(x + i, w + j * ws, ws, k, y + i * ys + j, ys, DOT_M, 4);                               \
                else                                                                                                   \
                    NAME##_tile(x + i, w + j * ws, ws, k, y + i * ys + j, ys, DOT_M, 1);                               \
            for (; i < nx; i++)                                                                                        \
                if (four)                                                                                              \
                    NAME##_tile(x + i, w + j * ws, ws, k, y + i * ys + j, ys, 1, 4);                                   \
                else                                                                                                   \
                    NAME##_tile(x + i, w + j * ws, ws, k, y + i * ys + j, ys, 1, 1);                                   \
        }                                                                                                              \
    }

DEFINE_DOT(dot_bb, bf16, bf16, vb, KSTEP, vb_load, vb_load_n, vb_load, vb_load_n, vb_dot)
DEFINE_DOT(dot_bf, bf16, f32, vf, VL, vf_bf16, vf_bf16_n, vf_load, vf_load_n, mul_add)
DEFINE_DOT(dot_fb, f32, bf16, vf, VL, vf_load, vf_load_n, vf_bf16, vf_bf16_n, mul_add)
DEFINE_DOT(dot_ff, f32, f32, vf, VL, vf_load, vf_load_n, vf_load, vf_load_n, mul_add)

/* Rows of a matrix in memory: bf16, or float32 when `wide`. */
typedef struct {
    const void *p;
    i64 stride;
    bool wide;
} mat;

INLINE mat mat_at(mat m, i64 row) {
    i64 size = m.wide ? 4 : 2;
    return (mat){(const u8 *)m.p + row * m.stride * size, m.stride, m.wide};
}

/* y[nx, ys] = the rows of x (pointers to bf16, or to float32 when x_wide) times nw rows of w. */
static void dot(const void *const *x, bool x_wide, i64 nx, mat w, i64 nw, i64 k, f32 *y, i64 ys) {
    if (x_wide && w.wide)
        dot_ff((const f32 *const *)x, nx, w.p, w.stride, nw, k, y, ys);
    else if (x_wide)
        dot_fb((const f32 *const *)x, nx, w.p, w.stride, nw, k, y, ys);
    else if (w.wide)
        dot_bf((const bf16 *const *)x, nx, w.p, w.stride, nw, k, y, ys);
    else
        dot_bb((const bf16 *const *)x, nx, w.p, w.stride, nw, k, y, ys);
}

INLINE vf load_elems(const void *p, i64 at, bool wide) {
    return wide ? vf_load((const f32 *)p + at) : vf_bf16((const bf16 *)p + at);
}
INLINE f32 load_elem(const void *p, i64 at, bool wide) {
    return wide ? ((const f32 *)p)[at] : bf16_to_f32(((const bf16 *)p)[at]);
}

/* acc[M, ld] += p[M, ldp] v for `m` rows of v, U vectors of its columns at a time from c on as far as they fit before
 * dim. Returns where they ended. */
INLINE i64 axpy_cols(const f32 *p, i64 ldp, mat v, i64 m, f32 *acc, i64 ld, i64 c, i64 dim, const int M, const int U,
                     const bool wide) {
    for (; c + U * VL <= dim; c += U * VL) {
        vf s[4][4];
        for (int i = 0; i < M; i++)
            for (int u = 0; u < U; u++) s[i][u] = vf_load(acc + i * ld + c + u * VL);
        for (i64 j = 0; j < m; j++)
            for (int u = 0; u < U; u++) {
                vf x = load_elems(v.p, j * v.stride + c + u * VL, wide);
                for (int i = 0; i < M; i++) s[i][u] = vf_fma(vf_set(p[i * ldp + j]), x, s[i][u]);
            }
        for (int i = 0; i < M; i++)
            for (int u = 0; u < U; u++) vf_store(acc + i * ld + c + u * VL, s[i][u]);
    }
    return c;
}

/* For all of v's first `dim` columns. */
INLINE void axpy_tile(const f32 *p, i64 ldp, mat v, i64 m, f32 *acc, i64 ld, i64 dim, const int M, const bool wide) {
    i64 c = 0;
    if (VL == 16) c = axpy_cols(p, ldp, v, m, acc, ld, c, dim, M, 4, wide); /* as many as there are registers for */
    c = axpy_cols(p, ldp, v, m, acc, ld, c, dim, M, 2, wide);
    for (; c < dim; c++)
        for (int i = 0; i < M; i++)
            for (i64 j = 0; j < m; j++) {
                vf one = vf_fma(vf_set(p[i * ldp + j]), vf_set(load_elem(v.p, j * v.stride + c, wide)),
                                vf_set(acc[i * ld + c]));
                f32 lanes[VL];
                vf_store(lanes, one);
                acc[i * ld + c] = lanes[0];
            }
}

static void axpy(const f32 *p, i64 ldp, i64 np, mat v, i64 m, f32 *acc, i64 ld, i64 dim) {
    i64 i = 0;
    for (; i + 4 <= np; i += 4)
        if (v.wide)
            axpy_tile(p + i * ldp, ldp, v, m, acc + i * ld, ld, dim, 4, true);
        else
            axpy_tile(p + i * ldp, ldp, v, m, acc + i * ld, ld, dim, 4, false);
    for (; i + 2 <= np; i += 2)
        if (v.wide)
            axpy_tile(p + i * ldp, ldp, v, m, acc + i * ld, ld, dim, 2, true);
        else
            axpy_tile(p + i * ldp, ldp, v, m, acc + i * ld, ld, dim, 2, false);
    for (; i < np; i++)
        if (v.wide)
            axpy_tile(p + i * ldp, ldp, v, m, acc + i * ld, ld, dim, 1, true);
        else
            axpy_tile(p + i * ldp, ldp, v, m, acc + i * ld, ld, dim, 1, false);
}

/* Columns [c0, c0 + n) of a row as float32, the values of weight_cols_f32; c0 a multiple of FP8_BLOCK. */
static void expand_cols(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    i64 c = 0;
    if (weight_is_fp8(w->format)) {
        const u8 *q = (const u8 *)w->data + row * w->cols + c0;
        const bool block = w->format == WF_FP8_BLOCK;
        const f32 *s =
            (const f32 *)w->scale + (block ? row / FP8_BLOCK * ceil_div(w->cols, FP8_BLOCK) + c0 / FP8_BLOCK : row);
        for (; c + VL <= n; c += VL) vf_store(out + c, vf_mul(vf_fp8(q + c), vf_set(s[block ? c / FP8_BLOCK : 0])));
    }
    if (w->format == WF_INT4_GROUP) {
        const u8 *q = (const u8 *)w->data + row * (w->cols / 2) + c0 / 2;
        const bf16 *s = (const bf16 *)w->scale + row * (w->cols / INT4_GROUP) + c0 / INT4_GROUP;
        for (; c + INT4_GROUP <= n; c += INT4_GROUP, q += 16) {
            u8 u[INT4_GROUP];
            for (int b = 0; b < 16; b++) u[2 * b] = q[b] & 15, u[2 * b + 1] = q[b] >> 4;
            vf scale = vf_set(bf16_to_f32(s[c / INT4_GROUP]));
            for (int l = 0; l < INT4_GROUP; l += VL)
                vf_store(out + c + l, vf_mul(vf_sub(vf_u8(u + l), vf_set(8)), scale));
        }
    }
    if (c < n) weight_cols_f32(w, row, c0 + c, n - c, out + c);
}

/* Rows [row, row + n) of a weight: in place for F32 and BF16, else expanded into buf [n, cols]. */
static mat weight_mat(const weight_view *w, i64 row, i64 n, f32 *buf) {
    if (w->format == WF_F32) return (mat){(const f32 *)w->data + row * w->cols, w->cols, true};
    if (w->format == WF_BF16) return (mat){(const bf16 *)w->data + row * w->cols, w->cols, false};
    for (i64 r = 0; r < n; r++) expand_cols(w, row + r, 0, w->cols, buf + r * w->cols);
    return (mat){buf, w->cols, true};
}

/* How many rows weight_mat() can take at once. */
INLINE i64 expand_rows(const weight_view *w, i64 want) {
    if (w->format == WF_F32 || w->format == WF_BF16) return want;
    return max_i64(1, min_i64(want, CPU_EXPAND_MAX / w->cols));
}
