/* Encoders against scalar definitions and against every choice there is; a matrix as a whole. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include "unit.h"
#include "format/encode.h"
#include "format/quantize.h"

static u64 rng;

static f32 uniform(void) { /* [0, 1): splitmix64 */
    u64 z = rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (f32)((z ^ (z >> 31)) >> 40) * 0x1p-24f;
}

static f32 normal(void) {
    f32 sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

/* ---- one value ---- */

/* The nearest of n values in rising order; of two as near the one with the even code. */
static int nearest_of(const f64 *values, int n, f64 x) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        f64 d = fabs(x - values[i]), least = fabs(x - values[best]);
        if (d < least || (d == least && i % 2 == 0)) best = i;
    }
    return best;
}

static void test_nearest_codes(void **state) {
    (void)state;
    const f64 e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    f64 int4[16], int8[256];
    for (int q = 0; q < 16; q++) int4[q] = q - 8;
    for (int q = 0; q < 256; q++) int8[q] = q - 128;
    for (int i = -4096; i <= 4096; i++) { /* all midpoints are among them, and what lies just beside */
        for (int side = -1; side <= 1; side++) {
            f32 x = (f32)i / 256;
            x = side ? nextafterf(x, side * INFINITY) : x;
            assert_int_equal(e2m1_nearest(x), nearest_of(e2m1, 8, fabs(x)));
            assert_int_equal(int4_nearest(x, 1) + 8, nearest_of(int4, 16, x));
            assert_int_equal(int4_nearest(x * 0.25f, 0.25f) + 8, nearest_of(int4, 16, x));
            assert_int_equal(int8_nearest(x * 16, 1) + 128, nearest_of(int8, 256, x * 16));
            assert_int_equal(int8_nearest(x * 4, 0.25f) + 128, nearest_of(int8, 256, x * 16));
        }
    }
}

/* ---- groups ---- */

enum { GROUP = 32 };

typedef struct {
    f32 w[GROUP], got[GROUP];
    u8 data[GROUP * 4], scale[8];
} group_case;

static f64 encode_group(group_case *g, const char *format) {
    weight_view w = {.format = WF_F32, .rows = 1, .cols = GROUP, .data = g->w}, out;
    quantize_sums sums;
    f32 most;
    err e = {0};
    assert_int_equal(quantize_most(&w, &most, &e), ST_OK);
    assert_int_equal(quantize_matrix(quantizer_named(format), &w, most, NULL, g->data, g->scale, &out, &sums, &e),
                     ST_OK);
    weight_row_f32(&out, 0, g->got);
    f64 error = 0, energy = 0;
    for (int c = 0; c < GROUP; c++) {
        error += ((f64)g->w[c] - g->got[c]) * ((f64)g->w[c] - g->got[c]);
        energy += (f64)g->w[c] * g->w[c];
    }
    assert_true(fabs(sums.error - error) <= 1e-12 * error && fabs(sums.energy - energy) <= 1e-12 * energy);
    return error;
}

static f64 int4_error(const f32 *w, f32 scale) {
    f64 error = 0;
    for (int c = 0; c < GROUP; c++) {
        f64 q = fmin(fmax(rint((f64)w[c] / scale), -8), 7), off = w[c] - q * scale;
        error += off * off;
    }
    return error;
}

static void draw_group(f32 *w, f32 size) {
    for (int c = 0; c < GROUP; c++) w[c] = normal() * size;
}

/* Not worse than the usual scales, and near the best of all bf16 scales there are. */
static void test_int4_scales(void **state) {
    (void)state;
    f64 all = 0, best_all = 0, usual_all = 0;
    rng = 1;
    for (int i = 0; i < 2000; i++) {
        group_case g;
        draw_group(g.w, i % 2 ? 0.02f : 1e20f);
        f32 most = 0;
        for (int c = 0; c < GROUP; c++) most = fmaxf(most, fabsf(g.w[c]));
        f64 error = encode_group(&g, "int4"), best = INFINITY, unit = 1 / ((f64)most * most);
        f64 usual = int4_error(g.w, bf16_to_f32(f32_to_bf16(most / 7.5f)));
        for (u32 s = f32_to_bf16(most / 16); s <= f32_to_bf16(most / 4); s++)
            best = fmin(best, int4_error(g.w, bf16_to_f32((bf16)s)));
        assert_true(error <= usual * (1 + 1e-5) && error >= best * (1 - 1e-5));
        assert_true(error <= int4_error(g.w, bf16_to_f32(f32_to_bf16(most / 7))) * (1 + 1e-5));
        all += error * unit, best_all += best * unit, usual_all += usual * unit;
    }
    /* measured: 1.4 % of the squared error more than the best of all scales, 17 % less than with the usual one */
    assert_true(all < 1.02 * best_all && all < 0.84 * usual_all);
}

/* What was INT4 keeps its values, whichever of the 15 magnitudes is the largest and whatever the scale. */
static void test_int4_again(void **state) {
    (void)state;
    rng = 2;
    for (int i = 0; i < 4000; i++) {
        group_case g;
        int most = 1 + i % 8;
        f32 scale = bf16_to_f32((bf16)(0x0e00 + (int)(uniform() * 0x6800))); /* 2^-99 to 2^110 */
        for (int c = 0; c < GROUP; c++) {
            int q = (int)floorf(uniform() * (f32)(2 * most + 1)) - most;
            g.w[c] = (f32)(q > 7 ? 7 : q) * scale;
        }
        g.w[i % GROUP] = (f32)-most * scale;
        encode_group(&g, "int4");
        assert_memory_equal(g.got, g.w, sizeof g.w);
    }
}

static f64 mxfp4_error(const f32 *w, int k) {
    const f64 e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    f64 error = 0;
    for (int c = 0; c < GROUP; c++) {
        f64 a = fabs(ldexp(w[c], -k)), off = ldexp(a - e2m1[nearest_of(e2m1, 8, a)], k);
        error += off * off;
    }
    return error;
}

/* The best exponent of all; the values are the nearest to it. */
static void test_mxfp4_exponents(void **state) {
    (void)state;
    rng = 3;
    for (int i = 0; i < 2000; i++) {
        group_case g;
        draw_group(g.w, ldexpf(1, (int)(uniform() * 200) - 110));
        f64 error = encode_group(&g, "mxfp4"), best = INFINITY;
        for (int k = -127; k <= 125; k++) best = fmin(best, mxfp4_error(g.w, k));
        assert_true(fabs(error - best) <= 1e-5 * best);
        assert_true(fabs(error - mxfp4_error(g.w, g.scale[0] - 127)) <= 1e-12 * error);
        for (int c = 0; c < GROUP; c++) assert_true(!signbit(g.got[c]) == !signbit(g.w[c]));
    }
}

/* Every pattern of MXFP4's values under every scale is MXFP4 again. */
static void test_mxfp4_again(void **state) {
    (void)state;
    rng = 4;
    for (int b = 0; b <= 252; b++)
        for (int i = 0; i < 8; i++) {
            group_case g;
            int most = 1 + (int)(uniform() * 7);
            for (int c = 0; c < GROUP; c++)
                g.w[c] = f4_e2m1_to_f32((u8)((int)(uniform() * (f32)(most + 1)) | (c & 1) << 3)) * e8m0_to_f32((u8)b);
            encode_group(&g, "mxfp4");
            assert_memory_equal(g.got, g.w, sizeof g.w);
        }
}

static void test_zeros(void **state) {
    (void)state;
    const char *const formats[] = {"int4", "w4a8", "mxfp4", "nvfp4", "nvfp4-packed", "int8", "fp8", "bf16"};
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        group_case g = {.w = {0}};
        encode_group(&g, formats[f]);
        for (int c = 0; c < GROUP; c++) assert_true(g.got[c] == 0);
        for (int c = 0; c < GROUP; c++) g.w[c] = c % 2 ? -1e-40f : 3e-39f; /* float32's subnormals */
        encode_group(&g, formats[f]);
        for (int c = 0; c < GROUP; c++) assert_true(fabsf(g.got[c]) <= 4e-39f);
    }
    group_case g = {.w = {0}};
    encode_group(&g, "int4");
    assert_int_equal(g.scale[0] | g.scale[1] << 8, 0x3f80); /* nobody divides by zero */
    encode_group(&g, "nvfp4");
    assert_int_equal(g.scale[0], 0x38);
    g.w[20] = 3; /* zeros beside what is none */
    encode_group(&g, "nvfp4");
    assert_int_equal(g.scale[0], 0x38);
    assert_memory_equal(g.got, g.w, 16 * sizeof(f32));
}

/* ---- matrices ---- */

enum { ROWS = 300, COLS = 416 }; /* partial blocks of FP8 both ways */

typedef struct {
    f32 w[ROWS * COLS], got[COLS];
    u8 data[ROWS * COLS * 4], scale[ROWS * COLS];
    weight_view out;
    quantize_sums sums;
} matrix_case;

static status encode_matrix_as(matrix_case *m, const char *format, err *e) {
    weight_view w = {.format = WF_F32, .rows = ROWS, .cols = COLS, .data = m->w};
    f32 most = 0;
    if (quantizer_named(format)->factor && quantize_most(&w, &most, e) != ST_OK) return ST_NUMERIC;
    return quantize_matrix(quantizer_named(format), &w, most, NULL, m->data, m->scale, &m->out, &m->sums, e);
}

static matrix_case *drawn_matrix(u64 seed) {
    matrix_case *m = calloc(1, sizeof *m);
    rng = seed;
    for (int i = 0; i < ROWS * COLS; i++) m->w[i] = normal() * 0.02f * (1 + (f32)(i / COLS % 7));
    return m;
}

/* Of normal numbers; a scale of the neighbour, a nibble in the wrong place or a half-filled grid are far outside. */
static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *format;
        f64 lo, hi;
    } all[] = {{"int4", 0.080, 0.088},        {"w4a8", 0.095, 0.106},         {"mxfp4", 0.106, 0.115},
               {"fp8", 0.0240, 0.0275},       {"bf16", 0.0010, 0.0018},       {"mxfp4-packed", 0.106, 0.115},
               {"nvfp4", 0.079, 0.083},       {"nvfp4-packed", 0.079, 0.083}, {"int8", 0.0060, 0.0075},
               {"int8-quark", 0.0060, 0.0075}};
    matrix_case *m = drawn_matrix(5);
    for (size_t f = 0; f < COUNT_OF(all); f++) {
        assert_int_equal(encode_matrix_as(m, all[f].format, NULL), ST_OK);
        f64 error = sqrt(m->sums.error / m->sums.energy);
        if (error < all[f].lo || error > all[f].hi) fail_msg("%s: %.4f", all[f].format, error);
    }
    free(m);
}

/* FP8: each block's largest value is 448 times its scale, and all are the nearest there are. */
static void test_fp8_blocks(void **state) {
    (void)state;
    matrix_case *m = drawn_matrix(6);
    assert_int_equal(encode_matrix_as(m, "fp8", NULL), ST_OK);
    const f32 *scale = (const f32 *)(void *)m->scale;
    f32 most[3][4] = {{0}};
    for (int i = 0; i < ROWS * COLS; i++) {
        f32 *x = &most[i / COLS / 128][i % COLS / 128];
        *x = fmaxf(*x, fabsf(m->w[i]));
    }
    for (int b = 0; b < 12; b++) assert_true(scale[b] == most[b / 4][b % 4] / 448.0f);
    for (int i = 0; i < ROWS * COLS; i++) {
        f32 s = scale[i / COLS / 128 * 4 + i % COLS / 128];
        assert_int_equal(m->data[i], f32_to_f8_e4m3(m->w[i] / s));
    }
    free(m);
}

static f64 fp4_error(const f32 *w, int n, f32 scale) {
    const f64 e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    f64 error = 0;
    for (int c = 0; c < n; c++) {
        f64 a = fabs((f64)w[c]) / scale, off = (a - e2m1[nearest_of(e2m1, 8, a)]) * scale;
        error += off * off;
    }
    return error;
}

/* Of all scales that e4m3 has the best but for a few groups, of which most are among its subnormals; codes are the
 * nearest under it. Groups lie between the matrix's largest and what is below e4m3's smallest. */
static void test_nvfp4_scales(void **state) {
    (void)state;
    for (int divides = 0; divides < 2; divides++) {
        matrix_case *m = drawn_matrix(10);
        f64 all = 0, best_all = 0, usual_all = 0;
        for (int i = 0; i < ROWS * COLS; i++) m->w[i] = ldexpf(m->w[i], -(i / 16 % 19));
        m->w[5] = 0.5f;
        assert_int_equal(encode_matrix_as(m, divides ? "nvfp4-packed" : "nvfp4", NULL), ST_OK);
        assert_true(m->out.factor == (divides ? 2688 / 0.5f : 0.5f / 2688) && m->out.divides == divides);
        for (int g = 0; g < ROWS * COLS / 16; g++) {
            const f32 *w = m->w + g * 16, chosen = nvfp4_scale(&m->out, g * 16 / COLS, g * 16 % COLS / 16);
            f64 best = INFINITY, error = fp4_error(w, 16, chosen);
            f32 most = 0;
            for (int code = 1; code < 0x7f; code++) {
                f32 s = f8_e4m3_to_f32((u8)code);
                best = fmin(best, fp4_error(w, 16, divides ? s / m->out.factor : s * m->out.factor));
            }
            for (int c = 0; c < 16; c++) most = fmaxf(most, fabsf(w[c]));
            f32 usual = f8_e4m3_to_f32(f32_to_f8_e4m3(most / 6 / (0.5f / 2688)));
            usual_all += fp4_error(w, 16, usual > 0 ? usual * (0.5f / 2688) : 1) / ((f64)most * most);
            assert_true(error >= best * (1 - 1e-5) && error <= best * (m->scale[g] < 16 ? 1.5 : 1.01));
            all += error / ((f64)most * most), best_all += best / ((f64)most * most);
            weight_row_f32(&m->out, g * 16 / COLS, m->got);
            for (int c = 0; c < 16; c++) {
                f32 got = m->got[g * 16 % COLS + c], a = fabsf(w[c]) / chosen;
                assert_true(fabsf(got) == f4_e2m1_to_f32(e2m1_nearest(a)) * chosen && !signbit(got) == !signbit(w[c]));
            }
        }
        if (all > 1.001 * best_all || all > 0.8 * usual_all)
            fail_msg("%g, %g of the best, %g of the usual", all, all / best_all, all / usual_all);
        free(m);
    }
}

/* A larger value elsewhere: the factor is of that. Values up to float32's largest stay finite, and near. */
static void test_nvfp4_factors(void **state) {
    (void)state;
    matrix_case *m = drawn_matrix(11);
    weight_view w = {.format = WF_F32, .rows = ROWS, .cols = COLS, .data = m->w};
    f32 most;
    err e = {0};
    m->w[7] = -0.75f;
    assert_int_equal(quantize_most(&w, &most, &e), ST_OK);
    assert_true(most == 0.75f);
    for (int divides = 0; divides < 2; divides++) {
        const quantizer *q = quantizer_named(divides ? "nvfp4-packed" : "nvfp4");
        assert_int_equal(quantize_matrix(q, &w, 3, NULL, m->data, m->scale, &m->out, &m->sums, &e), ST_OK);
        assert_true(m->out.factor == (divides ? 896 : 3.0f / 2688));
        assert_true(sqrt(m->sums.error / m->sums.energy) < 0.083);
    }
    const f32 ends[] = {3.4028235e38f, 0x1p-100f, 0x1.8p-99f};
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        for (int divides = 0; divides < 2; divides++) {
            group_case g = {.w = {0}};
            g.w[3] = -ends[i], g.w[20] = ends[i] / 3, g.w[21] = ends[i] / 6;
            encode_group(&g, divides ? "nvfp4-packed" : "nvfp4");
            for (int c = 0; c < GROUP; c++) assert_true(fabsf(g.got[c] - g.w[c]) <= 0.07f * fabsf(g.w[c]));
        }
    free(m);
}

/* INT8: the best of the scales that are tried, a clipped value or none; codes are the nearest. */
static void test_int8_rows(void **state) {
    (void)state;
    const f32 parts[] = {127, 127.5f, 128, 129, 130, 132, 134, 137, 140};
    matrix_case *m = drawn_matrix(12);
    f64 plain = 0;
    for (int r = 0; r < ROWS; r++) m->w[r * COLS + r] *= 1 + (f32)(r % 30);
    assert_int_equal(encode_matrix_as(m, "int8", NULL), ST_OK);
    for (int r = 0; r < ROWS; r++) {
        const f32 *w = m->w + r * COLS, scale = ((const f32 *)(void *)m->scale)[r];
        f32 most = 0;
        f64 best = INFINITY, error = 0;
        for (int c = 0; c < COLS; c++) most = fmaxf(most, fabsf(w[c]));
        for (size_t i = 0; i <= COUNT_OF(parts); i++) { /* the last: the chosen one */
            f32 s = i < COUNT_OF(parts) ? most / parts[i] : scale;
            for (int c = error = 0; c < COLS; c++) {
                f64 off = w[c] - fmin(fmax(rint((f64)w[c] / s), -128), 127) * s;
                error += off * off;
            }
            best = fmin(best, error), plain += i == 0 ? error : 0;
        }
        assert_true(error <= best * (1 + 1e-4));
        for (int c = 0; c < COLS; c++)
            assert_int_equal(((const i8 *)m->data)[r * COLS + c], (int)fminf(fmaxf(rintf(w[c] / scale), -128), 127));
    }
    assert_true(m->sums.error < 0.995 * plain); /* measured: 0.991 */
    free(m);
}

/* What was INT8 keeps its values where a row reaches the end of the codes, on either side. */
static void test_int8_again(void **state) {
    (void)state;
    rng = 13;
    for (int i = 0; i < 3000; i++) {
        group_case g;
        f32 scale = bf16_to_f32((bf16)(0x1100 + (int)(uniform() * 0x6000))); /* 2^-93 to 2^99 */
        for (int c = 0; c < GROUP; c++) g.w[c] = (f32)((int)(uniform() * 255) - 127) * scale;
        g.w[i % GROUP] = (f32)(i % 3 == 0 ? -128 : i % 3 == 1 ? 127 : -127) * scale;
        encode_group(&g, "int8");
        assert_memory_equal(g.got, g.w, sizeof g.w);
    }
}

/* Columns that are no multiple of what a loop takes at a time count, too. */
static void test_int8_columns(void **state) {
    (void)state;
    f32 w[2][11] = {{0}}, got[11];
    u8 data[22], scale[8];
    weight_view v = {.format = WF_F32, .rows = 2, .cols = 11, .data = w}, out;
    quantize_sums sums;
    err e = {0};
    for (int c = 0; c < 8; c++) w[1][c] = (f32)(c - 4);
    for (int c = 8; c < 11; c++) w[1][c] = c == 9 ? -128 : (f32)(c * 11);
    assert_int_equal(quantize_matrix(quantizer_named("int8"), &v, 0, NULL, data, scale, &out, &sums, &e), ST_OK);
    weight_row_f32(&out, 1, got);
    assert_memory_equal(got, w[1], sizeof got);
    assert_true(sums.error == 0);
}

/* Rows with a few values far out: the search finds what clips them. */
static void test_w4a8_rows(void **state) {
    (void)state;
    matrix_case *m = drawn_matrix(7);
    f64 plain = 0;
    for (int r = 0; r < ROWS; r++) m->w[r * COLS + r] = 0.3f * (1 + (f32)(r % 7)); /* 15 deviations */
    assert_int_equal(encode_matrix_as(m, "w4a8", NULL), ST_OK);
    const f32 *scale = (const f32 *)(void *)m->scale;
    for (int r = 0; r < ROWS; r++) {
        f32 whole = scale[r] * m->out.factor, most = 0;
        weight_row_f32(&m->out, r, m->got);
        for (int c = 0; c < COLS; c++) {
            most = fmaxf(most, fabsf(m->w[r * COLS + c]));
            f32 q = fminf(fmaxf(rintf(m->w[r * COLS + c] / whole), -8), 7);
            assert_true(m->got[c] == q * whole);
        }
        for (int c = 0; c < COLS; c++) {
            f64 w = m->w[r * COLS + c], off = w - rint(w / (most / 7)) * (most / 7);
            plain += off * off;
        }
    }
    assert_true(m->out.factor == 0.3f * 7 / 448.0f); /* of all rows */
    assert_true(m->sums.error < 0.9 * plain);
    free(m);
}

/* The same bytes and sums from one thread and from two. */
static void test_threads(void **state) {
    (void)state;
    const char *const formats[] = {"int4", "w4a8", "mxfp4", "nvfp4", "nvfp4-packed", "int8", "fp8", "bf16"};
    matrix_case *a = drawn_matrix(8), *b = drawn_matrix(8);
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        omp_set_num_threads(1);
        assert_int_equal(encode_matrix_as(a, formats[f], NULL), ST_OK);
        omp_set_num_threads(2);
        assert_int_equal(encode_matrix_as(b, formats[f], NULL), ST_OK);
        assert_memory_equal(a->data, b->data, sizeof a->data);
        assert_memory_equal(a->scale, b->scale, sizeof a->scale);
        assert_memory_equal(&a->sums, &b->sums, sizeof a->sums);
        assert_true(a->out.factor == b->out.factor);
    }
    free(a);
    free(b);
}

static void test_refusals(void **state) {
    (void)state;
    const char *const formats[] = {"int4", "w4a8", "mxfp4", "nvfp4", "nvfp4-packed", "int8", "fp8", "bf16"};
    const f32 bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    matrix_case *m = drawn_matrix(9);
    err e = {0};
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        f32 *w = &m->w[257 * COLS + 31 + (int)f], was = *w;
        *w = bad[f % 4];
        m->w[299 * COLS] = NAN; /* the first is named */
        assert_int_equal(encode_matrix_as(m, formats[f], &e), ST_NUMERIC);
        char part[64];
        snprintf(part, sizeof part, "at row 257, column %d", 31 + (int)f);
        assert_non_null(strstr(e.text, part));
        *w = was;
    }
    weight_view w = {.format = WF_F32, .rows = 1, .cols = 40, .data = m->w}, out;
    assert_int_equal(quantize_matrix(quantizer_named("int4"), &w, 0, NULL, m->data, m->scale, &out, &m->sums, &e),
                     ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "40 columns are no multiple of 32"));
    assert_null(quantizer_named("int5"));
    free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_codes),   cmocka_unit_test(test_int4_scales),   cmocka_unit_test(test_int4_again),
        cmocka_unit_test(test_mxfp4_exponents), cmocka_unit_test(test_mxfp4_again),   cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_errors),          cmocka_unit_test(test_fp8_blocks),    cmocka_unit_test(test_w4a8_rows),
        cmocka_unit_test(test_nvfp4_scales),    cmocka_unit_test(test_nvfp4_factors), cmocka_unit_test(test_int8_rows),
        cmocka_unit_test(test_int8_again),      cmocka_unit_test(test_int8_columns),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
