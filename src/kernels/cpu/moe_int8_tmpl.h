/* kernels/cpu/moe_int8_tmpl.h: routed experts in four and eight bits with int8 activations, on the primitives of
 * vec_int8_*.h.
 *
 * Inputs of both products are quantised per 32 values, the smallest at -128 and the largest at 127 (0.9 %
 * error on normal inputs where amax / 127 has 1.2 %; `bench moe` prints it). Weights are read once from the
 * mapping, PANEL rows at a time, and transposed in the first-level cache so that a lane is a row and a vector
 * holds four columns of PANEL rows: a product of bytes then takes the four activations as a broadcast, and a group of
 * 32 costs one conversion and one fma per PANEL rows instead of one per row. A nibble becomes an unsigned byte, its
 * value plus `zero`; the -zero is the start of the integer sum, -zero * (sum of the group).
 *
 * NVFP4 has a scale for either half of a group: two integer sums, as h's activations have them in every format.
 * INT8 is summed in 32 bits. VPDPBUSD takes it plus 128; VPMADDUBSW takes its size, and the activation its sign, which
 * holds if that is not -128: there the smallest is at -127, at every level.
 *
 * Order of a result's sums: exact integers inside a group, groups in order in one float lane. Nothing depends on the
 * tile or on the instruction set, so one token and a thousand, AVX2 and AVX-512 give the same bits.
 *
 * Bound by weight bytes (0.5625 B a weight, INT8 1) up to about 4 tokens an expert, by the products of bytes above. */
#include "kernels/cpu/combine_tmpl.h"
#include "kernels/cpu/silu_tmpl.h"

enum {
    GROUP = 32, /* columns with one scale of activations */
    GROUPS = 8, /* of them in a step: 256 columns */
    PANEL = VL, /* weight rows side by side in a vector */
    PANELS = 2, /* of them in a register tile */
    TOKENS = 4, /* tokens in it; with 16 registers their sums are kept in memory: less than weights read twice cost */
    BATCH = 128 /* tokens of an expert at a time */
};
_Static_assert(GROUP % PANEL == 0 && MOE_OUT % (PANELS * PANEL) == 0 && (int)INT4_GROUP == GROUP &&
                   (int)MXFP4_GROUP == GROUP && 2 * NVFP4_GROUP == GROUP,
               "whole panels");

/* A format's code is `u - zero`, 0 <= u <= most, times its scale. INT8's is used as products of bytes want it. */
INLINE bool is_e2m1(weight_format f) { return f == WF_MXFP4 || f == WF_NVFP4; }
INLINE int code_zero(weight_format f) { return f == WF_INT8_ROW ? (int)WIDE_ZERO : is_e2m1(f) ? 12 : 8; }
INLINE int code_most(weight_format f) { return is_e2m1(f) ? 24 : 15; }
/* Does the first half of a group's columns have another scale than the second? */
INLINE bool two_scales(weight_format f) { return f == WF_NVFP4; }
/* A group of a row: so many times 16 bytes. */
INLINE i64 blocks_of(weight_format f) { return f == WF_INT8_ROW ? 2 : 1; }
/* e2m1 in halves, plus 12. */
static const u8 e2m1_halves[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* 32 activations in the order of by_code(). x = scale * q + mid, with one scale for all (only [0] is used) or, for what
 * is harder to quantise, one for either half. */
typedef struct {
    i8 q[GROUP];
    f32 scale[2], mid[2];
    i32 start[2]; /* -zero * sum of q; of either half where weights or activations have two scales */
} q8_group;
_Static_assert(sizeof(q8_group) == 56, "layout");

/* A step of a panel, transposed: q[g][d] has dword d of the group for PANEL rows, as bytes 0..most. */
typedef struct {
    vi q[GROUPS][8];
    vf scale[GROUPS][2]; /* [1] only where there are two */
    vf sum[GROUPS][2];   /* of the weights of a group, or of its halves, scaled */
} panel;

/* ---- Activations ---- */

/* The scale and mid with which lowest..top becomes least..127. A NaN or an infinity makes the mid NaN, so that
 * the finite check sees it. */
typedef struct {
    f32 scale, inverse, mid, least;
} q8_range;

/* least: -128, or -127. */
static q8_range range_of(const f32 *v, int n, f32 least) {
    vf top = vf_load(v), bottom = top;
    bool finite = true;
    for (int i = 0; i < n; i += VL) {
        vf x = vf_load(v + i);
        finite = finite && vf_finite(x);
        top = vf_max(top, x), bottom = vf_min(bottom, x);
    }
    if (!finite) return (q8_range){0, 0, NAN, least};
    const f32 part = 1.0f / (127 - least), lowest = vf_lowest(bottom), scale = vf_highest(top) * part - lowest * part;
    if (scale < 1e-30f) return (q8_range){0, 0, lowest, least};
    return (q8_range){scale, 1.0f / scale, lowest - least * scale, least};
}

/* 16 values to q; returns the sum of q. */
static i32 quantise16(const f32 *v, q8_range r, i8 *q) {
    i32 sum = 0;
    for (int i = 0; i < 16; i += VL) {
        vf x = vf_mul(vf_sub(vf_load(v + i), vf_set(r.mid)), vf_set(r.inverse));
        sum += vf_store_i8(q + i, r.scale == 0 ? vf_zero() : vf_max(x, vf_set(r.least)));
    }
    return sum;
}

/* v in the order of by_code(). */
static void quantise32(weight_format f, const f32 v[GROUP], bool halves, q8_group *out) {
    const f32 least = f == WF_INT8_ROW ? -127 : -128;
    const int zero = code_zero(f);
    q8_range r0 = range_of(v, halves ? 16 : GROUP, least), r1 = halves ? range_of(v + 16, 16, least) : r0;
    i32 sum0 = quantise16(v, r0, out->q), sum1 = quantise16(v + 16, r1, out->q + 16);
    out->scale[0] = r0.scale, out->scale[1] = r1.scale;
    out->mid[0] = r0.mid, out->mid[1] = r1.mid;
    out->start[0] = -zero * (halves || two_scales(f) ? sum0 : sum0 + sum1);
    out->start[1] = -zero * sum1;
}

/* The columns of a group in the order of its codes: low nibbles first, even columns, then odd ones; NVFP4's so in
 * either half; of INT4_ROW's words, whose nibbles have columns 0, 2, 4, 6, 1, 3, 5, 7, columns 0, 4, 1, 5 and
 * 2, 6, 3, 7 of eight; INT8's as they lie. */
static void by_code(weight_format f, const f32 v[GROUP], f32 out[GROUP]) {
    static const u8 low[4] = {0, 4, 1, 5}, high[4] = {2, 6, 3, 7};
    if (f == WF_INT8_ROW) {
        memcpy(out, v, GROUP * sizeof *out);
        return;
    }
    if (f == WF_NVFP4) {
        for (int h = 0; h < GROUP; h += 16)
            for (int i = 0; i < 8; i++) out[h + i] = v[h + 2 * i], out[h + 8 + i] = v[h + 2 * i + 1];
        return;
    }
    for (int i = 0; i < 16; i++) {
        const bool row = f == WF_INT4_ROW;
        out[i] = v[row ? i / 4 * 8 + low[i % 4] : 2 * i];
        out[16 + i] = v[row ? i / 4 * 8 + high[i % 4] : 2 * i + 1];
    }
}

static void quantise_row(weight_format f, const bf16 *x, i64 n, q8_group *out) {
    for (i64 g = 0; g < n / GROUP; g++) {
        f32 v[GROUP], ordered[GROUP];
        for (int i = 0; i < GROUP; i += VL) vf_store(v + i, vf_bf16(x + g * GROUP + i));
        by_code(f, v, ordered);
        quantise32(f, ordered, false, out + g);
    }
}

/* ---- Weights ---- */

/* PANEL rows of a weight, the last one repeated when there are fewer. */
typedef struct {
    const u8 *data[PANEL], *scale[PANEL];
    bool by_row, wide;    /* INT4_ROW, and INT4_GROUP128: two's complement; */
    f32 row_scale[PANEL]; /* these scales of the former, and of INT8; float32 for WIDE groups of the latter */
    f32 factor;           /* NVFP4: scales times this, or divided by it */
    bool divides;
    const u8 *next_data, *next_scale; /* what follows in memory, to prefetch */
} rows;

enum { WIDE = INT4_GROUP_WIDE / GROUP /* groups with one scale */ };
/* Bytes of the scales of a group (of INT4_GROUP128, so far as prefetching goes); the first one of a row. */
INLINE i64 scale_bytes(weight_format f) { return f == WF_MXFP4 ? 1 : f == WF_INT8_ROW ? 0 : 2; }
INLINE bool scale_a_row(weight_format f) { return f == WF_INT4_ROW || f == WF_INT8_ROW; }
static const u8 *scales_of(const weight_view *w, i64 row) {
    if (w->format == WF_INT4_GROUP128) return (const u8 *)w->scale + row * (w->cols / INT4_GROUP_WIDE * 4);
    return (const u8 *)w->scale + row * (scale_a_row(w->format) ? 4 : w->cols / GROUP * scale_bytes(w->format));
}
static const u8 *codes_of(const weight_view *w, i64 row) {
    return (const u8 *)w->data + row * (w->cols / 2 * blocks_of(w->format));
}
INLINE vi flip_of(const rows *r) { return vi_set(r->by_row || r->wide ? (i32)0x88888888 : 0); }

/* Rows [row, row + PANEL) of w; next_row of next_w is what will be read after them. */
static void rows_set(rows *r, const weight_view *w, i64 row, const weight_view *next_w, i64 next_row) {
    i64 last = w->rows - 1, ahead = min_i64(next_row, last);
    for (i64 i = 0; i < PANEL; i++) {
        i64 at = min_i64(row + i, last);
        r->data[i] = codes_of(w, at);
        r->scale[i] = scales_of(w, at);
        if (w->format == WF_INT4_ROW) r->row_scale[i] = int4_row_scale(w, at);
        if (w->format == WF_INT8_ROW) r->row_scale[i] = ((const f32 *)w->scale)[at];
    }
    r->by_row = w->format == WF_INT4_ROW, r->wide = w->format == WF_INT4_GROUP128;
    r->factor = w->factor, r->divides = w->divides;
    r->next_data = codes_of(next_w, ahead);
    r->next_scale = scales_of(next_w, ahead);
}

INLINE void prefetch_l2(const u8 *p, i64 n) {
    for (i64 b = 0; b < n; b += 64) __builtin_prefetch(p + b, 0, 2);
}

/* The bytes 0..most of a transposed group: q[0..3] the low nibbles, q[4..7] the high ones; of NVFP4 q[0..3] both of the
 * first 16 columns; INT8's as they lie. flip: what INT4's are changed by. */
INLINE void unpack_group(const vi z[][4], vi flip, vi q[8], const weight_format f) {
    const vi low = vi_set(0x0f0f0f0f);
    vi y[4];
    for (int b = 0; f == WF_INT8_ROW && b < 2; b++) {
        transpose_dwords(z[b], q + 4 * b);
        for (int d = 4 * b; WIDE_ZERO != 0 && d < 4 * b + 4; d++) q[d] = vi_xor(q[d], vi_set((i32)0x80808080));
    }
    if (f == WF_INT8_ROW) return;
    transpose_dwords(z[0], y);
    for (int d = 0; d < 4; d++) {
        const int l = two_scales(f) ? d + d / 2 * 2 : d, h = two_scales(f) ? l + 2 : 4 + d;
        if (!is_e2m1(f)) y[d] = vi_xor(y[d], flip);
        q[l] = vi_and(y[d], low);
        q[h] = vi_and(vi_high_nibbles(y[d]), low);
        if (is_e2m1(f)) q[l] = vi_look_up(e2m1_halves, q[l]), q[h] = vi_look_up(e2m1_halves, q[h]);
    }
}

/* The sum of four dwords' codes, from the start that takes n zeros off. */
INLINE vf four_sum(const vi q[4], const weight_format f) {
    const vi one = vi_set(0x01010101), start = vi_set(-code_zero(f) * 16);
    if (f != WF_INT8_ROW) {
        vi s = vi_add8(vi_add8(q[0], q[1]), vi_add8(q[2], q[3]));
        return vi_f32(dot_last(start, dot_first(start, s, one)));
    }
    const bool plus = WIDE_ZERO != 0; /* unsigned, else the weights are the signed side */
    vdot d = plus ? dot_first(start, q[0], one) : dot_first(start, one, q[0]);
    for (int i = 1; i < 4; i++) d = plus ? dot_next(d, q[i], one) : dot_next(d, one, q[i]);
    return vi_f32(dot_last(start, d));
}

/* Sums of the weights of a group (sum[0]) or of its halves, times their scales. */
INLINE void group_sums(const vi q[8], const vf *scale, vf sum[2], const bool halves, const weight_format f) {
    if (halves || two_scales(f)) {
        const vf second = four_sum(q + 4, f);
        sum[0] = vf_mul(four_sum(q, f), scale[0]);
        if (halves)
            sum[1] = vf_mul(second, scale[two_scales(f)]);
        else
            sum[0] = vf_fma(second, scale[1], sum[0]);
        return;
    }
    if (f == WF_INT8_ROW) {
        sum[0] = vf_mul(vf_add(four_sum(q, f), four_sum(q + 4, f)), scale[0]); /* exact: small integers */
        return;
    }
    const vi one = vi_set(0x01010101), start = vi_set(-code_zero(f) * 32);
    vi s0 = vi_add8(vi_add8(q[0], q[1]), vi_add8(q[2], q[3]));
    vi s1 = vi_add8(vi_add8(q[4], q[5]), vi_add8(q[6], q[7]));
    const bool fits = 8 * code_most(f) < 256; /* eight of them fit a byte */
    if (fits) s0 = vi_add8(s0, s1);
    vdot d0 = dot_first(start, s0, one);
    if (!fits) d0 = dot_next(d0, s1, one);
    sum[0] = vf_mul(vi_f32(dot_last(start, d0)), scale[0]);
}

/* NVFP4's, of halves, from the bytes of 2 * GROUPS. */
INLINE void load_e4m3(const rows *r, const vi y[4], vf out[GROUPS][2]) {
    const vf factor = vf_set(r->factor);
    for (int i = 0; i < 2 * GROUPS; i++) {
        const vf v = vi_e4m3_half(y[i / 4], i % 4);
        out[i / 2][i % 2] = r->divides ? vf_div(v, factor) : vf_mul(v, factor);
    }
}

/* INT4_GROUP128's; at: a multiple of WIDE. */
INLINE void load_wide(const rows *r, i64 at, i64 n, vf out[GROUPS][2]) {
    for (i64 g = 0; g < n; g += WIDE) {
        f32 of_rows[PANEL];
        for (int i = 0; i < PANEL; i++) memcpy(&of_rows[i], r->scale[i] + (at + g) / WIDE * 4, 4);
        for (int i = 0; i < WIDE; i++) out[g + i][0] = vf_load(of_rows);
    }
}

/* Scales of PANEL rows, n <= GROUPS groups from group `at`. */
INLINE void load_scales(const rows *r, i64 at, i64 n, vf out[GROUPS][2], const weight_format f) {
    if (f == WF_INT8_ROW || (!is_e2m1(f) && r->by_row)) {
        for (int g = 0; g < GROUPS; g++) out[g][0] = vf_load(r->row_scale);
        return;
    }
    if (!is_e2m1(f) && r->wide) {
        load_wide(r, at, n, out);
        return;
    }
    vi z[4], y[4];
    load_bytes(r->scale, at * scale_bytes(f), n * scale_bytes(f), z);
    transpose_dwords(z, y);
    if (f == WF_NVFP4) {
        load_e4m3(r, y, out);
        return;
    }
    for (int d = 0; d < GROUPS / 2; d++)
        if (f == WF_MXFP4) /* of halves */
            out[2 * d][0] = vf_mul(vi_e8m0(y[d / 2], d % 2 * 2), vf_set(0.5f)),
                    out[2 * d + 1][0] = vf_mul(vi_e8m0(y[d / 2], d % 2 * 2 + 1), vf_set(0.5f));
        else
            out[2 * d][0] = vi_low_bf16(y[d]), out[2 * d + 1][0] = vi_high_bf16(y[d]);
}

/* n <= GROUPS groups from group g0. */
INLINE void pack_step(const rows *r, i64 g0, i64 n, panel *p, const bool halves, const weight_format f) {
    const i64 blocks = blocks_of(f), at_once = 4 / blocks;
    prefetch_l2(r->next_data + g0 * PANEL * 16 * blocks, PANEL * GROUPS * 16 * blocks);
    prefetch_l2(r->next_scale + g0 * PANEL * scale_bytes(f), PANEL * GROUPS * scale_bytes(f));
    load_scales(r, g0, n, p->scale, f);
    vi z[4][4]; /* of at_once groups */
    for (i64 g = 0; g < n; g++) {
        if (g % at_once == 0) load_groups(r->data, (g0 + g) * 16 * blocks, min_i64(4, (n - g) * blocks), z);
        unpack_group(z + g % at_once * blocks, flip_of(r), p->q[g], f);
        group_sums(p->q[g], p->scale[g], p->sum[g], halves, f);
    }
}

/* ---- Products ---- */

/* dots[t][r] (+)= dwords [d0, d0 + 4) of T tokens and R panels. */
INLINE void half_dots(const vi *const *q, const q8_group *const *x, const int d0, const bool first, const int half,
                      vdot dots[TOKENS][PANELS], const int T, const int R, const weight_format f) {
#pragma GCC unroll 4
    for (int d = d0; d < d0 + 4; d++)
        for (int t = 0; t < T; t++) {
            i32 four;
            memcpy(&four, x[t]->q + 4 * d, 4);
            const vi v = vi_set(four);
            for (int r = 0; r < R; r++) {
                const vi start = vi_set(half < 0 ? 0 : x[t]->start[half]);
                if (first && d == d0)
                    dots[t][r] = f == WF_INT8_ROW ? wide_first(start, q[r][d], v) : dot_first(start, q[r][d], v);
                else
                    dots[t][r] =
                        f == WF_INT8_ROW ? wide_next(dots[t][r], q[r][d], v) : dot_next(dots[t][r], q[r][d], v);
            }
        }
}

/* What such a sum is; INT8's have it from the first on. */
INLINE vi half_done(i32 start, vdot d, const weight_format f) {
    return f == WF_INT8_ROW ? d : dot_last(vi_set(start), d);
}

/* sum += a group of one token and one panel. dot, of the halves where there are two scales of anything. */
INLINE vf add_group(vf sum, const q8_group *x, const vi dot[2], const vf *scale, const vf *total, const bool halves,
                    const weight_format f) {
    const vf first = vi_f32(dot[0]), mid = vf_set(x->mid[0]);
    if (!halves && two_scales(f)) {
        const vf v = vf_fma(vi_f32(dot[1]), scale[1], vf_mul(first, scale[0]));
        return vf_fma(v, vf_set(x->scale[0]), vf_fma(mid, total[0], sum));
    }
    vf v = vf_mul(first, vf_set(x->scale[0]));
    if (halves) sum = vf_fma(vf_set(x->mid[1]), total[1], sum);
    if (halves && two_scales(f)) sum = vf_fma(vf_mul(vi_f32(dot[1]), vf_set(x->scale[1])), scale[1], sum);
    if (halves && !two_scales(f)) v = vf_fma(vi_f32(dot[1]), vf_set(x->scale[1]), v);
    return vf_fma(v, scale[0], vf_fma(mid, total[0], sum));
}

/* sum[t][r] += a group's columns of T tokens and R panels; total: the sums of its weights, scaled. */
INLINE void group_step(const vi *const *q, const vf *const *scale, const vf *const *total, const q8_group *const *x,
                       vf sum[TOKENS][PANELS], const int T, const int R, const bool halves, const weight_format f) {
    /* two chains where one would not fit, or where it is longer than what there is to do meanwhile; the sum of integers
     * is the same */
    const bool split = halves || two_scales(f), fits = f == WF_INT8_ROW || 8 * 2 * 128 * code_most(f) <= DOT_MOST;
    const bool two = !fits || (DOT_CHAINS == 2 && T * R <= 2);
    vdot dots[TOKENS][PANELS], odd[TOKENS][PANELS];
    half_dots(q, x, 0, true, 0, dots, T, R, f);
    if (split || two)
        half_dots(q, x, 4, true, split ? 1 : -1, odd, T, R, f);
    else
        half_dots(q, x, 4, false, 0, dots, T, R, f);
    for (int t = 0; t < T; t++)
        for (int r = 0; r < R; r++) {
            vi dot[2] = {half_done(x[t]->start[0], dots[t][r], f)};
            if (split) dot[1] = half_done(x[t]->start[1], odd[t][r], f);
            if (!split && two) dot[0] = vi_add(dot[0], half_done(0, odd[t][r], f));
            sum[t][r] = add_group(sum[t][r], x[t], dot, scale[r], total[r], halves, f);
        }
}

/* acc[T, PANELS * PANEL] (one panel of it) = T <= TOKENS tokens times a panel, weights from the mapping to
 * registers. */
INLINE void few(const rows *w, i64 groups, const q8_group *const *x, f32 *acc, const int T, const bool halves,
                const weight_format f) {
    const vi flip = flip_of(w);
    const i64 blocks = blocks_of(f), at_once = 4 / blocks;
    vf scales[GROUPS][2], sum[TOKENS][PANELS];
    for (int t = 0; t < T; t++) sum[t][0] = vf_zero();
    for (i64 g0 = 0; g0 < groups; g0 += at_once) {
        if (g0 % GROUPS == 0) load_scales(w, g0, min_i64(GROUPS, groups - g0), scales, f);
        i64 n = min_i64(at_once, groups - g0);
        vi z[4][4];
        load_groups(w->data, g0 * 16 * blocks, n * blocks, z);
#pragma GCC unroll 4
        for (int g = 0; g < at_once; g++) {
            if (g >= n) break;
            const q8_group *xg[TOKENS];
            vi q[8];
            vf total[2];
            const vf *scale = scales[g0 % GROUPS + g];
            prefetch_l2(w->next_data + (g0 + g) * PANEL * 16 * blocks, PANEL * 16 * blocks);
            if (g % 2 == 0 && scale_bytes(f)) prefetch_l2(w->next_scale + (g0 + g) * PANEL * scale_bytes(f), 64);
            for (int t = 0; t < T; t++) xg[t] = x[t] + g0 + g;
            unpack_group(z + g * blocks, flip, q, f);
            group_sums(q, scale, total, halves, f);
            group_step(&(const vi *){q}, &scale, &(const vf *){total}, xg, sum, T, 1, halves, f);
        }
    }
    for (int t = 0; t < T; t++) vf_store(acc + t * PANELS * PANEL, sum[t][0]);
}

/* acc[T, PANELS * PANEL] += the step's n groups of T tokens times two panels. */
INLINE void tile(const panel *p, i64 n, const q8_group *const *x, i64 g0, f32 *acc, const int T, const bool halves,
                 const weight_format f) {
    vf sum[TOKENS][PANELS];
    for (int t = 0; t < T; t++)
        for (int r = 0; r < PANELS; r++) sum[t][r] = vf_load(acc + (t * PANELS + r) * PANEL);
    for (i64 g = 0; g < n; g++) {
        const q8_group *xg[TOKENS];
        for (int t = 0; t < T; t++) xg[t] = x[t] + g0 + g;
        const vi *q[PANELS] = {p[0].q[g], p[1].q[g]};
        const vf *scale[PANELS] = {p[0].scale[g], p[1].scale[g]}, *total[PANELS] = {p[0].sum[g], p[1].sum[g]};
        group_step(q, scale, total, xg, sum, T, PANELS, halves, f);
    }
    for (int t = 0; t < T; t++)
        for (int r = 0; r < PANELS; r++) vf_store(acc + (t * PANELS + r) * PANEL, sum[t][r]);
}

/* Many tokens: a step of both panels is transposed into the first-level cache, then used for all of them. */
INLINE void many(const rows w[PANELS], i64 groups, const q8_group *const *x, i64 nx, f32 *acc, const bool halves,
                 const weight_format f) {
    panel p[PANELS];
    const i64 width = PANELS * PANEL;
    memset(acc, 0, (size_t)(nx * width) * sizeof *acc);
    for (i64 g0 = 0; g0 < groups; g0 += GROUPS) {
        i64 n = min_i64(GROUPS, groups - g0), t = 0;
        for (int r = 0; r < PANELS; r++) pack_step(&w[r], g0, n, &p[r], halves, f);
        for (; t + TOKENS <= nx; t += TOKENS) tile(p, n, x + t, g0, acc + t * width, TOKENS, halves, f);
        switch (nx - t) {
        case 3: tile(p, n, x + t, g0, acc + t * width, 3, halves, f); break;
        case 2: tile(p, n, x + t, g0, acc + t * width, 2, halves, f); break;
        case 1: tile(p, n, x + t, g0, acc + t * width, 1, halves, f); break;
        }
    }
}

/* acc[nx, PANELS * PANEL] = nx tokens times the rows of both panels. Both ways do the same arithmetic. */
INLINE void product(const rows w[PANELS], i64 groups, const q8_group *const *x, i64 nx, f32 *acc, const bool halves,
                    const weight_format f) {
    if (nx > TOKENS) {
        many(w, groups, x, nx, acc, halves, f);
        return;
    }
    for (int r = 0; r < PANELS; r++) switch (nx) {
        case 4: few(&w[r], groups, x, acc + r * PANEL, 4, halves, f); break;
        case 3: few(&w[r], groups, x, acc + r * PANEL, 3, halves, f); break;
        case 2: few(&w[r], groups, x, acc + r * PANEL, 2, halves, f); break;
        case 1: few(&w[r], groups, x, acc + r * PANEL, 1, halves, f); break;
        }
}

/* Not inlined into their callers: a copy a format for inputs (one scale a group), one for h (two). */
typedef void product_of(const rows w[PANELS], i64 groups, const q8_group *const *x, i64 nx, f32 *acc);
#define DEFINE_PRODUCTS(NAME, FORMAT)                                                                                  \
    __attribute__((noinline)) static void NAME##_x(const rows w[PANELS], i64 groups, const q8_group *const *x, i64 nx, \
                                                   f32 *acc) {                                                         \
        product(w, groups, x, nx, acc, false, FORMAT);                                                                 \
    }                                                                                                                  \
    __attribute__((noinline)) static void NAME##_h(const rows w[PANELS], i64 groups, const q8_group *const *x, i64 nx, \
                                                   f32 *acc) {                                                         \
        product(w, groups, x, nx, acc, true, FORMAT);                                                                  \
    }
DEFINE_PRODUCTS(int4, WF_INT4_GROUP)
DEFINE_PRODUCTS(mxfp4, WF_MXFP4)
DEFINE_PRODUCTS(nvfp4, WF_NVFP4)
DEFINE_PRODUCTS(int8, WF_INT8_ROW)

static const struct {
    weight_format format;
    product_of *of_x, *of_h;
} int8_products[] = {{WF_INT4_GROUP, int4_x, int4_h}, {WF_INT4_ROW, int4_x, int4_h}, {WF_INT4_GROUP128, int4_x, int4_h},
                     {WF_MXFP4, mxfp4_x, mxfp4_h},    {WF_NVFP4, nvfp4_x, nvfp4_h},  {WF_INT8_ROW, int8_x, int8_h}};

/* ---- The experts ---- */

typedef struct {
    const moe_args *a;
    moe_plan p;
    weight_format format;
    product_of *of_x, *of_h;
} int8_moe;

/* A group of columns of h from column `row`, for all pairs of expert e. */
static void int8_up(const int8_moe *m, i64 e, i64 row) {
    const moe_plan *p = &m->p;
    const weight_view *w = &m->a->experts->views[3 * e];
    i64 gx = p->hidden / GROUP, gh = p->inter / GROUP;
    f32 acc[BATCH * PANELS * PANEL], h[BATCH * GROUP];
    for (i64 at = p->first[e]; at < p->first[e + 1]; at += BATCH) {
        i64 n = min_i64(BATCH, p->first[e + 1] - at);
        const q8_group *x[BATCH];
        for (i64 i = 0; i < n; i++) x[i] = (const q8_group *)p->x + p->token[at + i] * gx;
        for (i64 c = 0; c < GROUP; c += PANEL) {
            rows gate_up[PANELS];
            for (int u = 0; u < 2; u++) rows_set(&gate_up[u], &w[u], row + c, &w[u], row + c + PANEL);
            m->of_x(gate_up, gx, x, n, acc);
            for (i64 i = 0; i < n; i++) {
                const f32 *both = acc + i * PANELS * PANEL;
                vf_store(h + i * GROUP + c, silu_mul(vf_load(both), vf_load(both + PANEL)));
            }
        }
        for (i64 i = 0; i < n; i++) {
            f32 ordered[GROUP];
            by_code(m->format, h + i * GROUP, ordered);
            quantise32(m->format, ordered, true, (q8_group *)p->h + (at + i) * gh + row / GROUP);
        }
    }
}

/* y[pairs, MOE_OUT] of the t-th touched expert: output columns [col, col + MOE_OUT). */
static void int8_down(const int8_moe *m, i64 t, i64 col, f32 *y) {
    const moe_plan *p = &m->p;
    i64 e = p->touched[t], after = p->touched[(t + 1) % p->n_touched];
    i64 skip = t + 1 < p->n_touched ? 0 : MOE_OUT; /* after the last expert the next columns of the first */
    const weight_view *next = &m->a->experts->views[3 * after + 2], *w = &m->a->experts->views[3 * e + 2];
    i64 gh = p->inter / GROUP;
    f32 acc[BATCH * PANELS * PANEL];
    for (i64 at = p->first[e]; at < p->first[e + 1]; at += BATCH) {
        i64 n = min_i64(BATCH, p->first[e + 1] - at);
        const q8_group *x[BATCH];
        for (i64 i = 0; i < n; i++) x[i] = (const q8_group *)p->h + (at + i) * gh;
        i64 cols = min_i64(MOE_OUT, p->hidden - col), ahead = n > TOKENS ? PANELS * PANEL : PANEL;
        for (i64 j = 0; j < cols; j += PANELS * PANEL) {
            rows r[PANELS];
            for (i64 u = 0; u < PANELS; u++) { /* the way of few tokens reads one panel after the other */
                i64 here = j + u * PANEL, then = here + ahead;
                bool same = then < cols;
                rows_set(&r[u], w, col + here, same ? w : next, col + (same ? then : then - cols) + (same ? 0 : skip));
            }
            m->of_h(r, gh, x, n, acc);
            for (i64 i = 0; i < n; i++)
                memcpy(y + (at + i) * MOE_OUT + j, acc + i * PANELS * PANEL, PANELS * PANEL * sizeof *y);
        }
    }
}

/* The products of these experts, or NULL: all of one format, with the expert width and the hidden size whole numbers of
 * groups. */
static bool int8_fits(const op_weight *experts, int8_moe *m) {
    const weight_view *v = experts->views;
    if (v[0].rows % GROUP || v[0].cols % GROUP) return false;
    for (i64 i = 0; i < experts->n_views; i++)
        if (v[i].format != v[0].format) return false;
    for (size_t i = 0; i < COUNT_OF(int8_products); i++)
        if (int8_products[i].format == v[0].format) {
            if (m) m->format = v[0].format, m->of_x = int8_products[i].of_x, m->of_h = int8_products[i].of_h;
            return true;
        }
    return false;
}

static u64 int8_x_bytes(const moe_args *a) { return (u64)(a->experts->views[0].cols / GROUP) * sizeof(q8_group); }
static u64 int8_h_bytes(const moe_args *a) { return (u64)(a->experts->views[0].rows / GROUP) * sizeof(q8_group); }
static u64 int8_workspace(const moe_args *a) { return moe_plan_bytes(a, int8_x_bytes(a), int8_h_bytes(a)); }

/* a->experts fit. */
static void int8_run(const moe_args *a) {
    int8_moe m = {.a = a};
    int8_fits(a->experts, &m);
    moe_plan_make(&m.p, a, int8_x_bytes(a), int8_h_bytes(a));
    const moe_plan *p = &m.p;
    i64 blocks = p->inter / GROUP;
    const i64 together = moe_items_together(p->n_touched * blocks);
    team tm = team_begin(3 * a->n * a->k * p->inter * p->hidden);
#pragma omp parallel num_threads(tm.threads)
    {
        f32 *y = moe_plan_y(p, a);
#pragma omp for schedule(static)
        for (i64 i = 0; i < a->n; i++)
            quantise_row(m.format, (const bf16 *)a->x + i * p->hidden, p->hidden,
                         (q8_group *)p->x + i * (p->hidden / GROUP));
#pragma omp for schedule(dynamic, together)
        for (i64 it = 0; it < p->n_touched * blocks; it++) int8_up(&m, p->touched[it / blocks], it % blocks * GROUP);
#pragma omp for schedule(dynamic)
        for (i64 col = 0; col < p->hidden; col += MOE_OUT) {
            for (i64 t = 0; t < p->n_touched; t++) int8_down(&m, t, col, y);
            combine_pairs(a, p, col, y);
        }
    }
    team_end(&tm);
}
