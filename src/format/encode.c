#include "format/encode.h"
#include "format/quantize.h"
#include <math.h>

/* Sums are taken in lanes, which a compiler may put into vectors without a change of a bit. */
enum { LANES = 8 };

static f32 largest_abs(const f32 *w, i64 n) {
    f32 most = 0;
    for (i64 i = 0; i < n; i++) most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    return most;
}

static f32 lane_sum(f32 sum[LANES]) {
    for (int d = LANES / 2; d; d /= 2)
        for (int l = 0; l < d; l++) sum[l] += sum[l + d];
    return sum[0];
}

/* ---- INT4 ---- */

/* To nearest even for |x| < 2^22, without a call: beyond 2^23 float32 has whole numbers alone. */
static inline f32 rounded(f32 x) {
    const f32 shift = 0x1.8p23f;
    return (x + shift) - shift;
}

static inline f32 int4_rounded(f32 x) {
    x = x > 7.0f ? 7.0f : x;
    return rounded(x < -8.0f ? -8.0f : x);
}

int int4_nearest(f32 w, f32 scale) { return (int)int4_rounded(w / scale); }

/* Sum of counts ((w - q scale) / scale)^2; n is a multiple of LANES. */
static f32 int4_misfit(const f32 *w, const f32 *counts, i64 n, f32 scale) {
    f32 sum[LANES] = {0}, inverse = 1.0f / scale;
    for (i64 c = 0; c < n; c += LANES)
        for (int l = 0; l < LANES; l++) {
            f32 x = w[c + l] * inverse, off = x - int4_rounded(x);
            sum[l] += counts[c + l] * off * off;
        }
    return lane_sum(sum);
}

/* Is this scale better than all before? Squares of different scales are compared in float64, where none overflows. */
static bool fits_better(const f32 *w, const f32 *counts, i64 n, f32 scale, f64 *least) {
    f64 misfit = (f64)int4_misfit(w, counts, n, scale) * (f64)scale * (f64)scale;
    if (!(misfit < *least)) return false;
    return *least = misfit, true;
}

static bf16 int4_group_scale(const f32 *w, const f32 *counts) {
    static const f32 parts[] = {8, 7, 6, 5, 4, 3, 2, 1, 7.25f, 7.5f, 7.75f, 8.25f, 8.5f, 8.75f, 9, 9.5f, 10, 10.5f};
    const f32 most = largest_abs(w, INT4_GROUP);
    bf16 best = f32_to_bf16(1);
    f64 least = INFINITY;
    if (most < QUANTIZE_LEAST) return best;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        bf16 scale = f32_to_bf16(most / parts[i]);
        if (fits_better(w, counts, INT4_GROUP, bf16_to_f32(scale), &least)) best = scale;
    }
    return best;
}

void encode_int4(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    (void)factor;
    u8 *q = data;
    bf16 *scales = scale;
    for (i64 g = 0; g < n * cols / INT4_GROUP; g++, w += INT4_GROUP, q += INT4_GROUP / 2) {
        scales[g] = int4_group_scale(w, counts + g * INT4_GROUP % cols);
        const f32 s = bf16_to_f32(scales[g]);
        i32 u[INT4_GROUP];
        for (int c = 0; c < INT4_GROUP; c++) u[c] = int4_nearest(w[c], s) + 8;
        for (int b = 0; b < INT4_GROUP / 2; b++) q[b] = (u8)(u[2 * b] | u[2 * b + 1] << 4);
    }
}

/* A nibble, four bits from bit 4 * place on. */
static void put_nibble(u8 *q, i64 place, int nibble) {
    const int shift = (int)(place % 2 * 4);
    q[place / 2] = (u8)((q[place / 2] & ~(15 << shift)) | (nibble & 15) << shift);
}

f32 code_int4(void *data, const void *scale, f32 factor, i64 c, f32 w) {
    (void)factor;
    const f32 s = bf16_to_f32(((const bf16 *)scale)[c / INT4_GROUP]);
    const int q = int4_nearest(w, s);
    put_nibble(data, c, q + 8);
    return (f32)q * s;
}

/* ---- INT4 with one scale a row ---- */

f32 encode_w4a8_factor(f32 most) { return most < QUANTIZE_LEAST ? 1.0f : most / 448.0f; }

/* Long rows have a few values far out: the more of them, the smaller the best scale is beside the largest. */
enum { ROW_TRIES = 40 };

static f32 int4_row_best(const f32 *w, const f32 *counts, i64 cols, f32 factor) {
    const f32 most = largest_abs(w, cols) / factor;
    f32 best = 1, part = 7;
    f64 least = INFINITY;
    if (most * factor < QUANTIZE_LEAST) return best;
    for (int t = 0; t < ROW_TRIES; t++, part *= 1.0625f)
        if (fits_better(w, counts, cols, most / part * factor, &least)) best = most / part;
    return best;
}

void encode_w4a8(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* the nibble of each of eight columns */
    u32 *word = data;
    for (i64 r = 0; r < n; r++, w += cols) {
        const f32 s = ((f32 *)scale)[r] = int4_row_best(w, counts, cols, factor), whole = s * factor;
        for (i64 c = 0; c < cols; c += 8, word++) {
            u32 bits = 0;
            i32 u[8];
            for (int i = 0; i < 8; i++) u[i] = int4_nearest(w[c + i], whole) & 15;
            for (int i = 0; i < 8; i++) bits |= (u32)u[i] << 4 * place[i];
            *word = bits;
        }
    }
}

f32 code_w4a8(void *data, const void *scale, f32 factor, i64 c, f32 w) {
    const f32 s = *(const f32 *)scale * factor;
    const int q = int4_nearest(w, s);
    put_nibble(data, c / 8 * 8 + c % 8 / 2 + c % 2 * 4, q); /* int4_row_at() */
    return (f32)q * s;
}

/* ---- INT8 ---- */

static inline f32 int8_rounded(f32 x) {
    x = x > 127.0f ? 127.0f : x;
    return rounded(x < -128.0f ? -128.0f : x);
}

int int8_nearest(f32 w, f32 scale) { return (int)int8_rounded(w / scale); }

/* As int4_misfit(), of any number of columns. */
static f32 int8_misfit(const f32 *w, i64 n, f32 scale) {
    f32 sum[LANES] = {0}, inverse = 1.0f / scale;
    const i64 whole = n / LANES * LANES;
    for (i64 c = 0; c < whole; c += LANES)
        for (int l = 0; l < LANES; l++) {
            f32 x = w[c + l] * inverse, off = x - int8_rounded(x);
            sum[l] += off * off;
        }
    for (i64 c = whole; c < n; c++) {
        f32 x = w[c] * inverse, off = x - int8_rounded(x);
        sum[c - whole] += off * off;
    }
    return lane_sum(sum);
}

/* 256 steps leave little to gain: a value that is clipped by more than a tenth costs more than finer steps save. */
static f32 int8_row_scale(const f32 *w, i64 cols) {
    static const f32 parts[] = {127, 127.5f, 128, 129, 130, 132, 134, 137, 140};
    const f32 most = largest_abs(w, cols);
    f32 best = 1;
    f64 least = INFINITY;
    if (most < QUANTIZE_LEAST) return best;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        const f32 scale = most / parts[i];
        const f64 misfit = (f64)int8_misfit(w, cols, scale) * (f64)scale * (f64)scale;
        if (misfit < least) least = misfit, best = scale;
    }
    return best;
}

void encode_int8(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    (void)factor, (void)counts;
    i8 *q = data;
    for (i64 r = 0; r < n; r++) {
        const f32 s = ((f32 *)scale)[r] = int8_row_scale(w + r * cols, cols);
        for (i64 c = r * cols; c < (r + 1) * cols; c++) q[c] = (i8)int8_nearest(w[c], s);
    }
}

/* ---- MXFP4 ---- */

/* The midpoints between 0, 0.5, 1, 1.5, 2, 3, 4, 6; a tie goes to the even code, so every other one counts. */
u8 e2m1_nearest(f32 x) {
    const f32 a = fabsf(x);
    return (u8)((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f));
}

/* The same as a value: the step is 0.5 below 2, 1 below 4, then 2. */
static inline f32 e2m1_rounded(f32 a) {
    f32 step = a < 2.0f ? 0.5f : a < 4.0f ? 1.0f : 2.0f, back = a < 2.0f ? 2.0f : a < 4.0f ? 1.0f : 0.5f;
    f32 x = rounded(a * back) * step;
    return x > 6.0f ? 6.0f : x;
}

/* 2^k for -127 <= k <= 127. */
static f32 power_of_two(int k) { return e8m0_to_f32((u8)(k + 127)); }

/* Sum of counts (w - what is read)^2 under a scale; n is a multiple of LANES. */
static f64 fp4_misfit(const f32 *w, const f32 *counts, int n, f32 scale) {
    f32 sum[LANES] = {0};
    const f32 inverse = 1.0f / scale;
    for (int c = 0; c < n; c += LANES)
        for (int l = 0; l < LANES; l++) {
            f32 a = fabsf(w[c + l]) * inverse, off;
            a = a > 16.0f ? 16.0f : a; /* beyond what any candidate makes of a value: within rounded()'s range */
            off = a - e2m1_rounded(a);
            sum[l] += counts[c + l] * off * off;
        }
    return (f64)lane_sum(sum) * (f64)scale * (f64)scale;
}

static void fp4_pack(const u8 *code, int n, u8 *q) {
    for (int b = 0; b < n / 2; b++) q[b] = (u8)(code[2 * b] | code[2 * b + 1] << 4);
}

/* w under a scale, as its code and as what is read. */
static f32 put_fp4(u8 *q, i64 c, f32 w, f32 scale) {
    const u8 code = e2m1_nearest(w / scale) | (u8)(f32_bits(w) >> 31 << 3);
    put_nibble(q, c, code);
    return f4_e2m1_to_f32(code) * scale;
}

/* 6 times the largest scale is finite; 2^-127 is the least there is. */
enum { MX_LEAST = -127, MX_MOST = 125 };

static int mxfp4_group_exponent(const f32 *w, const f32 *counts) {
    const f32 most = largest_abs(w, MXFP4_GROUP);
    static const int tries[] = {0, -1, 1};
    int e, best = 0;
    f64 least = INFINITY;
    if (!(most > 0)) return 0;
    frexpf(most, &e); /* most is in [2^(e - 1), 2^e) */
    for (size_t i = 0; i < COUNT_OF(tries); i++) {
        int k = (int)max_i64(MX_LEAST, min_i64(MX_MOST, e - 3 + tries[i]));
        f64 misfit = fp4_misfit(w, counts, MXFP4_GROUP, power_of_two(k));
        if (misfit < least) least = misfit, best = k;
    }
    return best;
}

void encode_mxfp4(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    (void)factor;
    u8 *q = data, *scales = scale;
    for (i64 g = 0; g < n * cols / MXFP4_GROUP; g++, w += MXFP4_GROUP) {
        const int k = mxfp4_group_exponent(w, counts + g * MXFP4_GROUP % cols);
        const f32 inverse = power_of_two(-k);
        scales[g] = (u8)(k + 127);
        u8 code[MXFP4_GROUP];
        for (int c = 0; c < MXFP4_GROUP; c++) code[c] = e2m1_nearest(w[c] * inverse) | (u8)(f32_bits(w[c]) >> 31 << 3);
        fp4_pack(code, MXFP4_GROUP, q);
        q += MXFP4_GROUP / 2;
    }
}

f32 code_mxfp4(void *data, const void *scale, f32 factor, i64 c, f32 w) {
    (void)factor;
    return put_fp4(data, c, w, e8m0_to_f32(((const u8 *)scale)[c / MXFP4_GROUP]));
}

/* ---- NVFP4 ---- */

/* The largest value is 6 under the largest scale, which is 448. */
static const f32 nvfp4_reach = 6.0f * 448.0f;

f32 encode_nvfp4_factor(f32 most) { return most < QUANTIZE_LEAST ? 1.0f : most / nvfp4_reach; }
f32 encode_nvfp4_divisor(f32 most) { return most < QUANTIZE_LEAST ? 1.0f : nvfp4_reach / most; }

/* e4m3 codes of positive scales; of 1. */
enum { NV_LEAST = 1, NV_MOST = 0x7e, NV_ONE = 0x38 };

/* As a reader has it: see nvfp4_scale(). */
static f32 nvfp4_whole(int code, f32 factor, bool divides) {
    const f32 s = f8_e4m3_to_f32((u8)code);
    return divides ? s / factor : s * factor;
}

static u8 nvfp4_group_code(const f32 *w, const f32 *counts, f32 factor, bool divides) {
    const f32 most = largest_abs(w, NVFP4_GROUP);
    if (!(most > 0)) return NV_ONE;
    const int near = f32_to_f8_e4m3(most / 6.0f / nvfp4_whole(NV_ONE, factor, divides));
    int best = NV_LEAST;
    f64 least = INFINITY;
    for (int code = near - 2; code <= near + 6; code++) {
        if (code < NV_LEAST || code > NV_MOST) continue;
        const f32 s = nvfp4_whole(code, factor, divides);
        const f64 misfit = isfinite(6.0f * s) ? fp4_misfit(w, counts, NVFP4_GROUP, s) : INFINITY;
        if (misfit < least) least = misfit, best = code;
    }
    return (u8)best;
}

static void nvfp4_groups(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, bool divides, u8 *q,
                         u8 *scales) {
    for (i64 g = 0; g < n * cols / NVFP4_GROUP; g++, w += NVFP4_GROUP, q += NVFP4_GROUP / 2) {
        scales[g] = nvfp4_group_code(w, counts + g * NVFP4_GROUP % cols, factor, divides);
        const f32 s = nvfp4_whole(scales[g], factor, divides);
        u8 code[NVFP4_GROUP];
        for (int c = 0; c < NVFP4_GROUP; c++) code[c] = e2m1_nearest(w[c] / s) | (u8)(f32_bits(w[c]) >> 31 << 3);
        fp4_pack(code, NVFP4_GROUP, q);
    }
}

void encode_nvfp4(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    nvfp4_groups(w, n, cols, counts, factor, false, data, scale);
}

void encode_nvfp4_divided(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    nvfp4_groups(w, n, cols, counts, factor, true, data, scale);
}

f32 code_nvfp4(void *data, const void *scale, f32 factor, i64 c, f32 w) {
    return put_fp4(data, c, w, nvfp4_whole(((const u8 *)scale)[c / NVFP4_GROUP], factor, false));
}

f32 code_nvfp4_divided(void *data, const void *scale, f32 factor, i64 c, f32 w) {
    return put_fp4(data, c, w, nvfp4_whole(((const u8 *)scale)[c / NVFP4_GROUP], factor, true));
}

/* ---- FP8, BF16 ---- */

void encode_fp8_block(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    (void)factor, (void)counts;
    u8 *q = data;
    f32 *scales = scale;
    for (i64 b = 0; b < ceil_div(cols, FP8_BLOCK); b++) {
        const i64 first = b * FP8_BLOCK, wide = min_i64(FP8_BLOCK, cols - first);
        f32 most = 0;
        for (i64 r = 0; r < n; r++) {
            f32 row = largest_abs(w + r * cols + first, wide);
            most = row > most ? row : most;
        }
        scales[b] = most < QUANTIZE_LEAST ? 1.0f : most / 448.0f;
        for (i64 r = 0; r < n; r++)
            for (i64 c = first; c < first + wide; c++) q[r * cols + c] = f32_to_f8_e4m3(w[r * cols + c] / scales[b]);
    }
}

void encode_bf16(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale) {
    (void)counts, (void)factor, (void)scale;
    bf16 *out = data;
    for (i64 i = 0; i < n * cols; i++) out[i] = f32_to_bf16(w[i]);
}
