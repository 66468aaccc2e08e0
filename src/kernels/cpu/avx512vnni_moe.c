/* kernels/cpu/avx512vnni_moe.c: routed experts in INT4 (group 32) with int8 activations, for AVX-512 VNNI.
 *
 * Inputs of both products are quantised per 32 values, the smallest at -128 and the largest at 127 (0.9 %
 * error on normal inputs where amax / 127 has 1.2 %; `bench moe` prints it). Weights are read once from the
 * mapping, 16 rows at a time, and transposed in the first-level cache so that a lane is a row and a vector
 * holds four columns of 16 rows: VPDPBUSD then takes the four activations as a broadcast, and a group of 32
 * costs one conversion and one fma per 16 rows instead of one per row. Nibbles are used as 0..15; the -8 is
 * the start value of the integer sum, -8 * (sum of the group).
 *
 * Order of a result's sums: exact integers inside a group, groups in order in one float lane. Nothing depends
 * on the tile, so one token and a thousand give the same bits.
 *
 * Bound by weight bytes (0.5625 B a weight) up to about 4 tokens an expert, by VPDPBUSD above. */
#include "base/log.h"
#include "kernels/cpu/moe_sort.h"
#include "kernels/cpu/vec_avx512.h"
#include <pthread.h>

enum {
    GROUPS = 8, /* groups of 32 columns in a step: 256 columns */
    PANEL = 16, /* weight rows side by side in a vector */
    TOKENS = 4, /* tokens in a register tile */
    BATCH = 128 /* tokens of an expert at a time */
};

/* 32 activations: the even columns, then the odd ones, as the nibbles of 16 bytes lie. x = scale * q + mid,
 * with one scale for all (only [0] is used) or, for what is harder to quantise, one for either half. */
typedef struct {
    i8 q[32];
    f32 scale[2], mid[2];
    i32 start[2]; /* -8 * sum of q */
} q8_group;
_Static_assert(sizeof(q8_group) == 56, "layout");

/* A step of a panel, transposed: q[g][d] has dword d of the group for 16 rows, as bytes 0..15. */
typedef struct {
    u8 q[GROUPS][8][64];
    f32 scale[GROUPS][PANEL];
    f32 sum[2][GROUPS][PANEL]; /* of the weights of a group, or of its halves, scaled */
} panel __attribute__((aligned(64)));

/* The scale and mid with which lowest..top becomes -128..127. A NaN or an infinity makes the mid NaN, so that
 * the finite check sees it. */
typedef struct {
    f32 scale, inverse, mid;
} q8_range;

static q8_range range_of(__m512 a, __m512 b) {
    const __m512i ones = _mm512_set1_epi32(0x7f800000);
    bool bad = _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a), ones), ones) |
               _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(b), ones), ones);
    if (bad) return (q8_range){0, 0, NAN};
    f32 top = _mm512_reduce_max_ps(_mm512_max_ps(a, b)), bottom = _mm512_reduce_min_ps(_mm512_min_ps(a, b));
    f32 scale = top * (1.0f / 255) - bottom * (1.0f / 255);
    if (scale < 1e-30f) return (q8_range){0, 0, bottom};
    return (q8_range){scale, 1.0f / scale, bottom + 128.0f * scale};
}

static __m512i quantise16(__m512 v, q8_range r) {
    if (r.scale == 0) return _mm512_setzero_si512();
    __m512i q = _mm512_cvtps_epi32(vf_mul(vf_sub(v, vf_set(r.mid)), vf_set(r.inverse)));
    return _mm512_max_epi32(_mm512_set1_epi32(-128), _mm512_min_epi32(_mm512_set1_epi32(127), q));
}

/* Columns 0..15 in a, 16..31 in b. */
static void quantise32(__m512 a, __m512 b, bool halves, q8_group *out) {
    const __m512i pick = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    vf even = _mm512_permutex2var_ps(a, pick, b);
    vf odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(pick, _mm512_set1_epi32(1)), b);
    q8_range r0 = halves ? range_of(even, even) : range_of(a, b), r1 = halves ? range_of(odd, odd) : r0;
    __m512i q0 = quantise16(even, r0), q1 = quantise16(odd, r1);
    _mm_storeu_si128((__m128i *)out->q, _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128((__m128i *)(out->q + 16), _mm512_cvtepi32_epi8(q1));
    i32 sum0 = _mm512_reduce_add_epi32(q0), sum1 = _mm512_reduce_add_epi32(q1);
    out->scale[0] = r0.scale, out->scale[1] = r1.scale;
    out->mid[0] = r0.mid, out->mid[1] = r1.mid;
    out->start[0] = -8 * (halves ? sum0 : sum0 + sum1);
    out->start[1] = -8 * sum1;
}

/* y[d], lane = row: dword d of the 16 bytes that row a + 4L has in 128-bit lane L of z[a]. */
INLINE void transpose_dwords(const __m512i z[4], __m512i y[4]) {
    __m512i u0 = _mm512_unpacklo_epi32(z[0], z[1]), u1 = _mm512_unpackhi_epi32(z[0], z[1]);
    __m512i u2 = _mm512_unpacklo_epi32(z[2], z[3]), u3 = _mm512_unpackhi_epi32(z[2], z[3]);
    y[0] = _mm512_unpacklo_epi64(u0, u2);
    y[1] = _mm512_unpackhi_epi64(u0, u2);
    y[2] = _mm512_unpacklo_epi64(u1, u3);
    y[3] = _mm512_unpackhi_epi64(u1, u3);
}

/* n <= 4 groups from byte `at` of 16 rows (by pointer): z[g][a] has group g of row a + 4L in its lane L. */
INLINE void load_groups(const u8 *const *row, i64 at, i64 n, __m512i z[4][4]) {
    __mmask16 have = (__mmask16)((1u << (4 * n)) - 1);
    for (int a = 0; a < 4; a++) {
        __m512i r0 = _mm512_maskz_loadu_epi32(have, row[a] + at);
        __m512i r1 = _mm512_maskz_loadu_epi32(have, row[a + 4] + at);
        __m512i r2 = _mm512_maskz_loadu_epi32(have, row[a + 8] + at);
        __m512i r3 = _mm512_maskz_loadu_epi32(have, row[a + 12] + at);
        __m512i t0 = _mm512_shuffle_i32x4(r0, r1, 0x44), t1 = _mm512_shuffle_i32x4(r2, r3, 0x44);
        __m512i t2 = _mm512_shuffle_i32x4(r0, r1, 0xee), t3 = _mm512_shuffle_i32x4(r2, r3, 0xee);
        z[0][a] = _mm512_shuffle_i32x4(t0, t1, 0x88);
        z[1][a] = _mm512_shuffle_i32x4(t0, t1, 0xdd);
        z[2][a] = _mm512_shuffle_i32x4(t2, t3, 0x88);
        z[3][a] = _mm512_shuffle_i32x4(t2, t3, 0xdd);
    }
}

/* The bytes 0..15 of a transposed group: q[0..3] the even columns, q[4..7] the odd ones. */
INLINE void unpack_group(const __m512i z[4], __m512i q[8]) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i y[4];
    transpose_dwords(z, y);
    for (int d = 0; d < 4; d++) {
        q[d] = _mm512_and_si512(y[d], low);
        q[4 + d] = _mm512_and_si512(_mm512_srli_epi16(y[d], 4), low);
    }
}

/* Sums of the weights, in quanta, of a group (sum[0]) or of its halves; eight nibbles fit a byte. */
INLINE void group_sums(const __m512i q[8], vf sum[2], bool halves) {
    const __m512i one = _mm512_set1_epi8(1), eights = _mm512_set1_epi32(halves ? -8 * 16 : -8 * 32);
    __m512i s0 = _mm512_add_epi8(_mm512_add_epi8(q[0], q[1]), _mm512_add_epi8(q[2], q[3]));
    __m512i s1 = _mm512_add_epi8(_mm512_add_epi8(q[4], q[5]), _mm512_add_epi8(q[6], q[7]));
    if (!halves) s0 = _mm512_add_epi8(s0, s1);
    sum[0] = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(eights, s0, one));
    sum[1] = halves ? _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(eights, s1, one)) : vf_zero();
}

INLINE void pack_nibbles(const u8 *const *row, i64 at, i64 n, panel *p, i64 g0, bool halves) {
    __m512i z[4][4], q[8];
    load_groups(row, at, n, z);
    for (int g = 0; g < 4; g++) {
        vf sum[2];
        unpack_group(z[g], q);
        group_sums(q, sum, halves);
        for (int d = 0; d < 8; d++) _mm512_store_si512(p->q[g0 + g][d], q[d]);
        _mm512_store_ps(p->sum[0][g0 + g], vf_mul(sum[0], _mm512_load_ps(p->scale[g0 + g])));
        if (halves) _mm512_store_ps(p->sum[1][g0 + g], vf_mul(sum[1], _mm512_load_ps(p->scale[g0 + g])));
    }
}

/* Scales of 16 rows, n <= 8 groups from group `at`, as float32 [g][row]. */
INLINE void pack_scales(const bf16 *const *row, i64 at, i64 n, f32 (*out)[PANEL]) {
    __mmask8 have = (__mmask8)((1u << n) - 1);
    __m512i z[4], y[4];
    for (int a = 0; a < 4; a++) {
        z[a] = _mm512_castsi128_si512(_mm_maskz_loadu_epi16(have, row[a] + at));
        z[a] = _mm512_inserti32x4(z[a], _mm_maskz_loadu_epi16(have, row[a + 4] + at), 1);
        z[a] = _mm512_inserti32x4(z[a], _mm_maskz_loadu_epi16(have, row[a + 8] + at), 2);
        z[a] = _mm512_inserti32x4(z[a], _mm_maskz_loadu_epi16(have, row[a + 12] + at), 3);
    }
    transpose_dwords(z, y);
    for (int d = 0; d < 4; d++) {
        _mm512_store_si512(out[2 * d], _mm512_slli_epi32(y[d], 16));
        _mm512_store_si512(out[2 * d + 1], _mm512_and_si512(y[d], _mm512_set1_epi32((int)0xffff0000)));
    }
}

/* 16 rows of a weight, the last one repeated when there are fewer. */
typedef struct {
    const u8 *data[PANEL];
    const bf16 *scale[PANEL];
    const u8 *next_data, *next_scale; /* what follows in memory, to prefetch */
    i64 step_data, step_scale;        /* bytes to prefetch at a step */
} rows16;

/* Rows [row, row + 16) of w; next_row of next_w is what will be read after them. */
static void rows16_set(rows16 *r, const weight_view *w, i64 row, const weight_view *next_w, i64 next_row) {
    i64 last = w->rows - 1, groups = w->cols / INT4_GROUP, ahead = min_i64(next_row, last);
    for (i64 i = 0; i < PANEL; i++) {
        i64 at = min_i64(row + i, last);
        r->data[i] = (const u8 *)w->data + at * (w->cols / 2);
        r->scale[i] = (const bf16 *)w->scale + at * groups;
    }
    r->next_data = (const u8 *)next_w->data + ahead * (w->cols / 2);
    r->next_scale = (const u8 *)((const bf16 *)next_w->scale + ahead * groups);
    r->step_data = PANEL * GROUPS * 16;
    r->step_scale = PANEL * GROUPS * 2;
}

INLINE void prefetch_l2(const u8 *p, i64 n) {
    for (i64 b = 0; b < n; b += 64) __builtin_prefetch(p + b, 0, 2);
}

INLINE void prefetch_step(const rows16 *r, i64 g0) {
    prefetch_l2(r->next_data + g0 / GROUPS * r->step_data, r->step_data);
    prefetch_l2(r->next_scale + g0 / GROUPS * r->step_scale, r->step_scale);
}

INLINE void pack_step(const rows16 *r, i64 g0, i64 n, panel *p, bool halves) {
    prefetch_step(r, g0);
    pack_scales(r->scale, g0, n, p->scale);
    pack_nibbles(r->data, g0 * 16, min_i64(n, 4), p, 0, halves);
    if (n > 4) pack_nibbles(r->data, g0 * 16 + 64, n - 4, p, 4, halves);
}

/* The start of the integer sums, and 16 columns (a half, d0 = 0 or 4) of T tokens added to them. */
INLINE void few_start(const q8_group *const *x, int half, __m512i *dots, const int T) {
    for (int t = 0; t < T; t++) dots[t] = _mm512_set1_epi32(x[t]->start[half]);
}
INLINE void few_half(const __m512i q[8], const q8_group *const *x, int d0, __m512i *dots, const int T) {
#pragma GCC unroll 4
    for (int d = d0; d < d0 + 4; d++)
        for (int t = 0; t < T; t++) {
            i32 four;
            memcpy(&four, x[t]->q + 4 * d, 4);
            dots[t] = _mm512_dpbusd_epi32(dots[t], q[d], _mm512_set1_epi32(four));
        }
}

/* acc[T, 2 * PANEL] (half of it) = T <= TOKENS tokens times 16 rows, weights from the mapping to registers.
 */
INLINE void few(const rows16 *r, i64 groups, const q8_group *const *x, f32 *acc, const int T, const bool halves) {
    f32 scales[GROUPS][PANEL] __attribute__((aligned(64)));
    __m512 sum[TOKENS];
    for (int t = 0; t < T; t++) sum[t] = vf_zero();
    for (i64 g0 = 0; g0 < groups; g0 += 4) {
        if (g0 % GROUPS == 0) { pack_scales(r->scale, g0, min_i64(GROUPS, groups - g0), scales); }
        i64 n = min_i64(4, groups - g0);
        __m512i z[4][4];
        load_groups(r->data, g0 * 16, n, z);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            if (g >= n) break;
            const q8_group *xg[TOKENS];
            __m512i q[8], dots[TOKENS];
            vf total[2], part[TOKENS], scale = _mm512_load_ps(scales[g0 % GROUPS + g]);
            prefetch_l2(r->next_data + (g0 + g) * PANEL * 16, PANEL * 16);
            if (g % 2 == 0) prefetch_l2(r->next_scale + (g0 + g) * PANEL * 2, 64);
            for (int t = 0; t < T; t++) xg[t] = x[t] + g0 + g;
            unpack_group(z[g], q);
            group_sums(q, total, halves);
            few_start(xg, 0, dots, T);
            few_half(q, xg, 0, dots, T);
            if (halves) {
                for (int t = 0; t < T; t++) part[t] = vf_mul(_mm512_cvtepi32_ps(dots[t]), vf_set(xg[t]->scale[0]));
                few_start(xg, 1, dots, T);
                few_half(q, xg, 4, dots, T);
            } else if (T > 2) {
                few_half(q, xg, 4, dots, T);
            } else { /* two short chains instead of a long one; integers, so the sum is the same */
                __m512i odd[TOKENS];
                for (int t = 0; t < T; t++) odd[t] = _mm512_setzero_si512();
                few_half(q, xg, 4, odd, T);
                for (int t = 0; t < T; t++) dots[t] = _mm512_add_epi32(dots[t], odd[t]);
            }
            vf sum0 = vf_mul(total[0], scale), sum1 = vf_mul(total[1], scale);
            for (int t = 0; t < T; t++) {
                vf v = _mm512_cvtepi32_ps(dots[t]);
                v = halves ? vf_fma(v, vf_set(xg[t]->scale[1]), part[t]) : vf_mul(v, vf_set(xg[t]->scale[0]));
                if (halves) sum[t] = vf_fma(vf_set(xg[t]->mid[1]), sum1, sum[t]);
                sum[t] = vf_fma(v, scale, vf_fma(vf_set(xg[t]->mid[0]), sum0, sum[t]));
            }
        }
    }
    for (int t = 0; t < T; t++) _mm512_storeu_ps(acc + t * 2 * PANEL, sum[t]);
}

/* dots[t][r] += 4 * 16 columns of a group: dwords d0..d0 + 3 of T tokens and both panels. */
INLINE void half_dots(const panel *p, i64 g, const q8_group *const *x, int d0, __m512i dots[TOKENS][2], const int T) {
#pragma GCC unroll 8
    for (int d = d0; d < d0 + 4; d++) {
        __m512i w0 = _mm512_load_si512(p[0].q[g][d]), w1 = _mm512_load_si512(p[1].q[g][d]);
        for (int t = 0; t < T; t++) {
            i32 four;
            memcpy(&four, x[t]->q + 4 * d, 4);
            __m512i v = _mm512_set1_epi32(four);
            dots[t][0] = _mm512_dpbusd_epi32(dots[t][0], w0, v);
            dots[t][1] = _mm512_dpbusd_epi32(dots[t][1], w1, v);
        }
    }
}

/* acc[T, 2 * PANEL] += the step's groups of T tokens times two panels. */
INLINE void tile(const panel *p, i64 n, const q8_group *const *x, i64 g0, f32 *acc, const int T, const bool halves) {
    __m512 sum[TOKENS][2];
    for (int t = 0; t < T; t++)
        for (int r = 0; r < 2; r++) sum[t][r] = _mm512_loadu_ps(acc + t * 2 * PANEL + r * PANEL);
    for (i64 g = 0; g < n; g++) {
        __m512i dots[TOKENS][2];
        vf part[TOKENS][2];
        const q8_group *xg[TOKENS];
        for (int t = 0; t < T; t++) xg[t] = x[t] + g0 + g;
        for (int t = 0; t < T; t++) dots[t][0] = dots[t][1] = _mm512_set1_epi32(xg[t]->start[0]);
        half_dots(p, g, xg, 0, dots, T);
        if (halves)
            for (int t = 0; t < T; t++) {
                for (int r = 0; r < 2; r++)
                    part[t][r] = vf_mul(_mm512_cvtepi32_ps(dots[t][r]), vf_set(xg[t]->scale[0]));
                dots[t][0] = dots[t][1] = _mm512_set1_epi32(xg[t]->start[1]);
            }
        half_dots(p, g, xg, 4, dots, T);
        for (int r = 0; r < 2; r++) {
            vf scale = _mm512_load_ps(p[r].scale[g]);
            vf sum0 = _mm512_load_ps(p[r].sum[0][g]), sum1 = _mm512_load_ps(p[r].sum[1][g]);
            for (int t = 0; t < T; t++) {
                vf v = _mm512_cvtepi32_ps(dots[t][r]);
                v = halves ? vf_fma(v, vf_set(xg[t]->scale[1]), part[t][r]) : vf_mul(v, vf_set(xg[t]->scale[0]));
                if (halves) sum[t][r] = vf_fma(vf_set(xg[t]->mid[1]), sum1, sum[t][r]);
                sum[t][r] = vf_fma(v, scale, vf_fma(vf_set(xg[t]->mid[0]), sum0, sum[t][r]));
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int r = 0; r < 2; r++) _mm512_storeu_ps(acc + t * 2 * PANEL + r * PANEL, sum[t][r]);
}

/* Many tokens: a step of both panels is transposed into the first-level cache, then used for all of them. */
INLINE void many(const rows16 *a, const rows16 *b, i64 groups, const q8_group *const *x, i64 nx, f32 *acc,
                 const bool halves) {
    panel p[2];
    memset(acc, 0, (size_t)(nx * 2 * PANEL) * sizeof *acc);
    for (i64 g0 = 0; g0 < groups; g0 += GROUPS) {
        i64 n = min_i64(GROUPS, groups - g0), t = 0;
        pack_step(a, g0, n, &p[0], halves);
        pack_step(b, g0, n, &p[1], halves);
        for (; t + TOKENS <= nx; t += TOKENS) tile(p, n, x + t, g0, acc + t * 2 * PANEL, TOKENS, halves);
        switch (nx - t) {
        case 3: tile(p, n, x + t, g0, acc + t * 2 * PANEL, 3, halves); break;
        case 2: tile(p, n, x + t, g0, acc + t * 2 * PANEL, 2, halves); break;
        case 1: tile(p, n, x + t, g0, acc + t * 2 * PANEL, 1, halves); break;
        }
    }
}

/* acc[nx, 2 * PANEL] = nx tokens times the rows of a and of b. Both ways do the same arithmetic. */
INLINE void product(const rows16 *a, const rows16 *b, i64 groups, const q8_group *const *x, i64 nx, f32 *acc,
                    const bool halves) {
    if (nx > TOKENS) {
        many(a, b, groups, x, nx, acc, halves);
        return;
    }
    for (int r = 0; r < 2; r++) {
        const rows16 *rows = r ? b : a;
        switch (nx) {
        case 4: few(rows, groups, x, acc + r * PANEL, 4, halves); break;
        case 3: few(rows, groups, x, acc + r * PANEL, 3, halves); break;
        case 2: few(rows, groups, x, acc + r * PANEL, 2, halves); break;
        case 1: few(rows, groups, x, acc + r * PANEL, 1, halves); break;
        }
    }
}

/* Not inlined into their callers: one copy for inputs (one scale a group), one for h (two). */
__attribute__((noinline)) static void product_x(const rows16 *a, const rows16 *b, i64 groups, const q8_group *const *x,
                                                i64 nx, f32 *acc) {
    product(a, b, groups, x, nx, acc, false);
}
__attribute__((noinline)) static void product_h(const rows16 *a, const rows16 *b, i64 groups, const q8_group *const *x,
                                                i64 nx, f32 *acc) {
    product(a, b, groups, x, nx, acc, true);
}

static void quantise_row(const bf16 *x, i64 n, q8_group *out) {
    for (i64 g = 0; g < n / INT4_GROUP; g++)
        quantise32(vf_bf16(x + g * INT4_GROUP), vf_bf16(x + g * INT4_GROUP + 16), false, out + g);
}

/* 32 columns of h from row `row`, for all pairs of expert e. */
static void up_item(const moe_args *a, const moe_plan *p, i64 e, i64 row) {
    const weight_view *w = &a->experts->views[3 * e];
    i64 gx = p->hidden / INT4_GROUP, gh = p->inter / INT4_GROUP;
    f32 acc[BATCH * 2 * PANEL], h[BATCH * 2 * PANEL];
    for (i64 at = p->first[e]; at < p->first[e + 1]; at += BATCH) {
        i64 n = min_i64(BATCH, p->first[e + 1] - at);
        const q8_group *x[BATCH];
        for (i64 i = 0; i < n; i++) x[i] = (const q8_group *)p->x + p->token[at + i] * gx;
        for (i64 half = 0; half < 2; half++) {
            rows16 gate, up;
            rows16_set(&gate, &w[0], row + half * PANEL, &w[0], row + (half + 1) * PANEL);
            rows16_set(&up, &w[1], row + half * PANEL, &w[1], row + (half + 1) * PANEL);
            product_x(&gate, &up, gx, x, n, acc);
            for (i64 i = 0; i < n; i++) {
                __m512 g = _mm512_loadu_ps(acc + i * 2 * PANEL), u = _mm512_loadu_ps(acc + i * 2 * PANEL + PANEL);
                __m512 v = _mm512_div_ps(g, vf_add(vf_set(1), vf_exp(vf_sub(vf_zero(), g))));
                _mm512_storeu_ps(h + i * 2 * PANEL + half * PANEL, _mm512_mul_ps(v, u));
            }
        }
        for (i64 i = 0; i < n; i++)
            quantise32(vf_load(h + i * 2 * PANEL), vf_load(h + i * 2 * PANEL + PANEL), true,
                       (q8_group *)p->h + (at + i) * gh + row / INT4_GROUP);
    }
}

/* y[pairs, MOE_OUT] of the t-th touched expert: output columns [col, col + MOE_OUT). */
static void down_item(const moe_args *a, const moe_plan *p, i64 t, i64 col, f32 *y) {
    i64 e = p->touched[t], after = p->touched[(t + 1) % p->n_touched];
    i64 skip = t + 1 < p->n_touched ? 0 : MOE_OUT; /* after the last expert the next columns of the first */
    const weight_view *next = &a->experts->views[3 * after + 2];
    const weight_view *w = &a->experts->views[3 * e + 2];
    i64 gh = p->inter / INT4_GROUP;
    f32 acc[BATCH * 2 * PANEL];
    for (i64 at = p->first[e]; at < p->first[e + 1]; at += BATCH) {
        i64 n = min_i64(BATCH, p->first[e + 1] - at);
        const q8_group *x[BATCH];
        for (i64 i = 0; i < n; i++) x[i] = (const q8_group *)p->h + (at + i) * gh;
        i64 cols = min_i64(MOE_OUT, p->hidden - col), ahead = n > TOKENS ? 2 * PANEL : PANEL;
        for (i64 j = 0; j < cols; j += 2 * PANEL) {
            rows16 r[2];
            for (i64 u = 0; u < 2; u++) { /* the way of few tokens reads one panel after the other */
                i64 here = j + u * PANEL, then = here + ahead;
                bool same = then < cols;
                rows16_set(&r[u], w, col + here, same ? w : next,
                           col + (same ? then : then - cols) + (same ? 0 : skip));
            }
            product_h(&r[0], &r[1], gh, x, n, acc);
            for (i64 i = 0; i < n; i++) memcpy(y + (at + i) * MOE_OUT + j, acc + i * 2 * PANEL, 2 * PANEL * 4);
        }
    }
}

/* out[:, col..col + MOE_OUT) = sum over slots of weight * y, then the shared expert. */
static void vnni_combine(const moe_args *a, const moe_plan *p, i64 col, const f32 *y) {
    for (i64 i = 0; i < a->n; i++)
        for (i64 c = 0; c < MOE_OUT && col + c < p->hidden; c += 16) {
            vf sum = vf_zero();
            i64 at = i * p->hidden + col + c;
            for (i64 s = 0; s < a->k; s++) {
                i64 pair = p->pair[i * a->k + s];
                if (pair >= 0) sum = vf_fma(vf_set(a->weights[i * a->k + s]), vf_load(y + pair * MOE_OUT + c), sum);
            }
            if (a->shared) sum = vf_add(sum, vf_bf16((const bf16 *)a->shared + at));
            vf_store_bf16((bf16 *)a->out + at, sum);
        }
}

/* What this file can run: INT4, with the expert width and the hidden size whole numbers of groups. */
static bool vnni_fits(const op_weight *experts) {
    const weight_view *v = experts->views;
    if (v[0].rows % INT4_GROUP || v[0].cols % INT4_GROUP) return false;
    for (i64 i = 0; i < experts->n_views; i++)
        if (v[i].format != WF_INT4_GROUP) return false;
    return true;
}

static u64 x_bytes(const moe_args *a) { return (u64)(a->experts->views[0].cols / INT4_GROUP) * sizeof(q8_group); }
static u64 h_bytes(const moe_args *a) { return (u64)(a->experts->views[0].rows / INT4_GROUP) * sizeof(q8_group); }

static void vnni_run(const moe_args *a) {
    moe_plan p;
    moe_plan_make(&p, a, x_bytes(a), h_bytes(a));
    i64 blocks = p.inter / INT4_GROUP;
    team tm = team_begin(3 * a->n * a->k * p.inter * p.hidden);
#pragma omp parallel num_threads(tm.threads)
    {
        f32 *y = moe_plan_y(&p, a);
#pragma omp for schedule(static)
        for (i64 i = 0; i < a->n; i++)
            quantise_row((const bf16 *)a->x + i * p.hidden, p.hidden, (q8_group *)p.x + i * (p.hidden / INT4_GROUP));
#pragma omp for schedule(dynamic, 4)
        for (i64 it = 0; it < p.n_touched * blocks; it++)
            up_item(a, &p, p.touched[it / blocks], it % blocks * INT4_GROUP);
#pragma omp for schedule(dynamic, 4)
        for (i64 col = 0; col < p.hidden; col += MOE_OUT) {
            for (i64 t = 0; t < p.n_touched; t++) down_item(a, &p, t, col, y);
            vnni_combine(a, &p, col, y);
        }
    }
    team_end(&tm);
}

/* Other formats go to the level below, of which there are two: without and with BF16 products. */
#define DEFINE_LEVEL(NAME)                                                                                             \
    static ops NAME##_below;                                                                                           \
    static u64 NAME##_workspace(const ops *o, const moe_args *a) {                                                     \
        return vnni_fits(a->experts) ? moe_plan_bytes(a, x_bytes(a), h_bytes(a)) : NAME##_below.moe_workspace(o, a);   \
    }                                                                                                                  \
    static void NAME##_moe(const ops *o, const moe_args *a) {                                                          \
        if (vnni_fits(a->experts))                                                                                     \
            vnni_run(a);                                                                                               \
        else                                                                                                           \
            NAME##_below.moe(o, a);                                                                                    \
    }

DEFINE_LEVEL(over_f32)
DEFINE_LEVEL(over_bf16)

void cpu_init_avx512vnni(ops *o, bool with_bf16) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER; /* engines may be opened by several threads */
    ops *below = with_bf16 ? &over_bf16_below : &over_f32_below;
    pthread_mutex_lock(&once);
    if (!below->moe) *below = *o;
    pthread_mutex_unlock(&once);
    o->name = with_bf16 ? "cpu avx512 bf16 vnni" : "cpu avx512 vnni";
    o->moe = with_bf16 ? over_bf16_moe : over_f32_moe;
    o->moe_workspace = with_bf16 ? over_bf16_workspace : over_f32_workspace;
}
