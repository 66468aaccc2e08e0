/* GPTQ against the paper's form in float64, its sums against their definitions, the codes of every format. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "format/encode.h"
#include "format/quantize.h"

static u64 rng;

static f32 flat(void) { /* [-1, 1): splitmix64 */
    u64 z = rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (f32)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1;
}

/* Inputs whose columns have something to do with each other, and are of different sizes. */
static void draw_inputs(f32 *x, f32 *a, i64 n, i64 cols) {
    for (i64 t = 0; t < n; t++) {
        const f32 common = flat();
        for (i64 c = 0; c < cols; c++) x[t * cols + c] = (common * (f32)(c % 5) + flat()) * (f32)(1 + c * 7 % 11) / 4;
        a[t] = 0.1f + fabsf(flat());
    }
}

/* H, damped, in float64, in the order of columns. */
static f64 *covariances(const f32 *x, const f32 *a, i64 n, i64 cols, f64 damping) {
    f64 *h = calloc((size_t)(cols * cols), sizeof *h), mean = 0;
    for (i64 t = 0; t < n; t++)
        for (i64 i = 0; i < cols; i++)
            for (i64 j = 0; j < cols; j++) h[i * cols + j] += (f64)a[t] * (f64)x[t * cols + i] * (f64)x[t * cols + j];
    for (i64 i = 0; i < cols; i++) mean += h[i * cols + i] / (f64)cols;
    for (i64 i = 0; i < cols; i++) h[i * cols + i] += mean > 0 ? mean * damping : 1;
    return h;
}

typedef struct {
    i64 cols;
    f32 *x, *a;
    f64 *h;
    gptq g;
} inputs_case;

static void make_case(inputs_case *k, i64 cols, i64 n, u64 seed) {
    err e = {0};
    rng = seed;
    *k = (inputs_case){.cols = cols};
    k->x = malloc((size_t)(n * cols + 1) * sizeof *k->x);
    k->a = malloc((size_t)(n + 1) * sizeof *k->a);
    draw_inputs(k->x, k->a, n, cols);
    k->h = covariances(k->x, k->a, n, cols, 0.05);
    assert_int_equal(gptq_open(&k->g, cols, &e), ST_OK);
    const i64 first = n / 3; /* in two parts */
    gptq_add(&k->g, k->x, k->a, first);
    gptq_add(&k->g, k->x + first * cols, k->a + first, n - first);
    assert_int_equal(gptq_factor(&k->g, 0.05, &e), ST_OK);
}

static void free_case(inputs_case *k) {
    gptq_close(&k->g);
    free(k->x);
    free(k->a);
    free(k->h);
}

static const i64 sizes[] = {1, 5, 63, 64, 65, 130, 288};

/* (A + 1) D (A + 1)^T is H in the order of rounding, which goes by the diagonal. */
static void test_factor(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        const i64 n = sizes[s];
        inputs_case k;
        make_case(&k, n, 40 + (i64)s * 50, 10 + s); /* fewer tokens than columns, too */
        for (i64 i = 0; i < n; i++) {
            if (i) assert_true(k.h[k.g.order[i] * (n + 1)] <= k.h[k.g.order[i - 1] * (n + 1)] * (1 + 1e-5));
            for (i64 j = i; j < n; j++) {
                f64 sum = 0;
                for (i64 l = j; l < n; l++) {
                    const f64 a = l == i ? 1 : (f64)k.g.h[i * n + l], b = l == j ? 1 : (f64)k.g.h[j * n + l];
                    sum += a * (f64)k.g.diag[l] * b;
                }
                const f64 want = k.h[k.g.order[i] * n + k.g.order[j]];
                const f64 unit = sqrt(k.h[k.g.order[i] * (n + 1)] * k.h[k.g.order[j] * (n + 1)]);
                if (fabs(sum - want) > 1e-4 * unit)
                    fail_msg("%lld of %lld: %g, not %g", (long long)i, (long long)n, sum, want);
            }
        }
        free_case(&k);
    }
}

/* A scale for all: whole numbers of -8 .. 7, as code_int4() would have them in float32. */
static f32 code_whole(void *data, const void *scale, f32 factor, i64 c, f32 w) {
    (void)factor;
    const f32 s = *(const f32 *)scale, q = fminf(7, fmaxf(-8, rintf(w / s)));
    ((i8 *)data)[c] = (i8)q;
    return q * s;
}

/* The paper's: the upper Cholesky factor of H's inverse; a column's error is taken from those behind it. */
static void paper(const inputs_case *k, const f32 *w, f32 scale, i8 *codes) {
    const i64 n = k->cols;
    f64 *l = calloc((size_t)(n * n), sizeof *l), *inv = calloc((size_t)(n * n), sizeof *inv),
        *u = calloc((size_t)(n * n), sizeof *u), *t = malloc((size_t)n * sizeof *t);
    for (i64 j = 0; j < n; j++) /* H = L L^T */
        for (i64 i = j; i < n; i++) {
            f64 sum = k->h[k->g.order[i] * n + k->g.order[j]];
            for (i64 m = 0; m < j; m++) sum -= l[i * n + m] * l[j * n + m];
            l[i * n + j] = i == j ? sqrt(sum) : sum / l[j * n + j];
        }
    for (i64 c = 0; c < n; c++) { /* the inverse, column by column: L y = e, L^T x = y */
        for (i64 i = 0; i < n; i++) {
            f64 sum = i == c;
            for (i64 m = 0; m < i; m++) sum -= l[i * n + m] * t[m];
            t[i] = sum / l[i * n + i];
        }
        for (i64 i = n - 1; i >= 0; i--) {
            f64 sum = t[i];
            for (i64 m = i + 1; m < n; m++) sum -= l[m * n + i] * inv[m * n + c];
            inv[i * n + c] = sum / l[i * n + i];
        }
    }
    for (i64 i = 0; i < n; i++) /* inverse = U^T U */
        for (i64 j = i; j < n; j++) {
            f64 sum = inv[i * n + j];
            for (i64 m = 0; m < i; m++) sum -= u[m * n + i] * u[m * n + j];
            u[i * n + j] = i == j ? sqrt(sum) : sum / u[i * n + i];
        }
    for (i64 c = 0; c < n; c++) t[c] = w[k->g.order[c]];
    for (i64 c = 0; c < n; c++) {
        const f64 q = fmin(7, fmax(-8, rint(t[c] / scale))), off = (t[c] - q * scale) / u[c * n + c];
        codes[k->g.order[c]] = (i8)q;
        for (i64 m = c + 1; m < n; m++) t[m] -= off * u[c * n + m];
    }
    free(l), free(inv), free(u), free(t);
}

static f64 quadratic(const f64 *h, const f64 *x, i64 n) {
    f64 sum = 0;
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < n; j++) sum += x[i] * h[i * n + j] * x[j];
    return sum;
}

/* (w - q) H (w - q)^T of all rows; codes NULL: of w. */
static f64 left_of(const inputs_case *k, const f32 *w, const i8 *codes, i64 rows, f32 scale) {
    f64 *x = malloc((size_t)k->cols * sizeof *x), sum = 0;
    for (i64 r = 0; r < rows; r++) {
        for (i64 c = 0; c < k->cols; c++)
            x[c] = (f64)w[r * k->cols + c] - (codes ? (f64)((f32)codes[r * k->cols + c] * scale) : 0);
        sum += quadratic(k->h, x, k->cols);
    }
    return free(x), sum;
}

static void assert_near(f64 got, f64 want) {
    if (fabs(got - want) > 2e-4 * fabs(want)) fail_msg("%.9g, not %.9g", got, want);
}

/* The paper's codes, but for ties that rounding decides; the sums are what they are called. */
static void test_codes_and_sums(void **state) {
    (void)state;
    enum { ROWS = 11 };
    const f32 scale = 0.125f;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        const i64 n = sizes[s];
        inputs_case k;
        make_case(&k, n, 200, 30 + s);
        f32 *w = malloc((size_t)(ROWS * n) * sizeof *w), *room = malloc(gptq_room(n) * sizeof *room);
        i8 *codes = malloc((size_t)(ROWS * n)), *want = malloc((size_t)(ROWS * n)), *alone = malloc((size_t)(ROWS * n));
        for (i64 i = 0; i < ROWS * n; i++) {
            w[i] = flat() * 0.8f;
            code_whole(alone, &scale, 0, i, w[i]);
        }
        for (i64 r = 0; r < ROWS; r++) paper(&k, w + r * n, scale, want + r * n);
        gptq_sums sums = {0, 0, 0};
        gptq_round(&k.g, code_whole, w, ROWS, codes, (u64)n, &scale, 0, 0, room, &sums);
        i64 other_rows = 0;
        for (i64 r = 0; r < ROWS; r++) other_rows += memcmp(codes + r * n, want + r * n, (size_t)n) != 0;
        if (other_rows > 1) fail_msg("%lld of %d rows are not the paper's", (long long)other_rows, ROWS);
        assert_near(sums.done, left_of(&k, w, codes, ROWS, scale));
        assert_near(sums.nearest, left_of(&k, w, alone, ROWS, scale));
        assert_near(sums.energy, left_of(&k, w, NULL, ROWS, scale));
        if (n > 60) assert_true(sums.done < 0.75 * sums.nearest);
        memset(alone, 99, (size_t)(ROWS * n)); /* whatever was there, and without sums: the same codes */
        gptq_round(&k.g, code_whole, w, ROWS, alone, (u64)n, &scale, 0, 0, room, NULL);
        assert_memory_equal(alone, codes, (size_t)(ROWS * n));
        free(w), free(room), free(codes), free(want), free(alone);
        free_case(&k);
    }
}

/* Nothing was met: all to nearest. A column that no input has: the others do not care, and it is rounded to nearest. */
static void test_nothing_met(void **state) {
    (void)state;
    enum { N = 70 };
    f32 w[N], x[3 * N], a[3] = {1, 1, 1}, *room = malloc(gptq_room(N) * sizeof *room);
    const f32 scale = 0.25f;
    i8 codes[N], alone[N];
    err e = {0};
    rng = 50;
    for (int dead = 0; dead < 2; dead++) {
        gptq g = {0};
        assert_int_equal(gptq_open(&g, N, &e), ST_OK);
        for (int i = 0; i < 3 * N; i++) x[i] = i % N == 7 ? 0 : flat();
        if (dead) gptq_add(&g, x, a, 3);
        assert_int_equal(gptq_factor(&g, 0.1, &e), ST_OK);
        for (int c = 0; c < N; c++) w[c] = flat(), code_whole(alone, &scale, 0, c, w[c]);
        gptq_round(&g, code_whole, w, 1, codes, N, &scale, 0, 0, room, NULL);
        if (dead)
            assert_int_equal(codes[7], alone[7]);
        else
            assert_memory_equal(codes, alone, N);
        gptq_close(&g);
    }
    free(room);
}

static void test_not_finite(void **state) {
    (void)state;
    const f32 bad[] = {NAN, INFINITY, 3e38f};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        f32 x[4] = {1, bad[i], 2, 3}, a[2] = {1, 1};
        gptq g = {0};
        err e = {0};
        assert_int_equal(gptq_open(&g, 2, &e), ST_OK);
        gptq_add(&g, x, a, 2);
        assert_int_equal(gptq_factor(&g, 0.1, &e), ST_NUMERIC);
        assert_int_equal(gptq_open(&g, 2, &e), ST_OK); /* opened again it is as new */
        assert_int_equal(gptq_factor(&g, 0.1, &e), ST_OK);
        gptq_close(&g);
    }
}

/* ---- matrices ---- */

enum { ROWS = 37, COLS = 160 };

typedef struct {
    f32 w[ROWS * COLS], row[COLS];
    u8 data[ROWS * COLS], scale[ROWS * COLS];
    weight_view out;
    quantize_sums sums;
} matrix_case;

static void write_matrix(matrix_case *m, const char *format, const gptq *inputs) {
    weight_view w = {.format = WF_F32, .rows = ROWS, .cols = COLS, .data = m->w};
    f32 most = 0;
    err e = {0};
    assert_int_equal(quantize_most(&w, &most, &e), ST_OK);
    memset(m->data, 0x5a, sizeof m->data);
    assert_int_equal(
        quantize_matrix(quantizer_named(format), &w, most, inputs, m->data, m->scale, &m->out, &m->sums, &e), ST_OK);
}

static const char *const formats[] = {"int4", "w4a8", "mxfp4", "mxfp4-packed", "nvfp4", "nvfp4-packed"};

/* A format's code is the one that its encoder takes, in its place, with the value that a reader has. */
static void test_codes_of_formats(void **state) {
    (void)state;
    matrix_case *m = calloc(1, sizeof *m);
    rng = 60;
    for (int i = 0; i < ROWS * COLS; i++) m->w[i] = flat() * (f32)(1 + i % 3);
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        write_matrix(m, formats[f], NULL);
        const quantizer *q = quantizer_named(formats[f]);
        const weight_view one = {.format = m->out.format, .rows = 1, .cols = COLS};
        const u64 data_bytes = weight_data_bytes(&one), scale_bytes = weight_scale_bytes(&one);
        u8 again[ROWS * COLS];
        memset(again, 0xa5, sizeof again);
        for (int r = 0; r < ROWS; r++) {
            weight_row_f32(&m->out, r, m->row);
            for (int k = 0; k < COLS; k++) {
                const int c = k * 7 % COLS; /* in another order */
                const f32 got = q->code(again + (u64)r * data_bytes, m->scale + (u64)r * scale_bytes, m->out.factor, c,
                                        m->w[r * COLS + c]);
                if (f32_bits(got) != f32_bits(m->row[c])) fail_msg("%s: %g, not %g", formats[f], got, m->row[c]);
            }
        }
        assert_memory_equal(again, m->data, data_bytes * ROWS);
    }
    free(m);
}

/* Results on the inputs become better in every format, the sums that say so are true, and more threads change nothing.
 */
static void test_matrices(void **state) {
    (void)state;
    matrix_case *m = calloc(1, sizeof *m), *plain = calloc(1, sizeof *plain);
    inputs_case k;
    make_case(&k, COLS, 300, 70);
    for (int i = 0; i < ROWS * COLS; i++) m->w[i] = plain->w[i] = flat() * 0.1f;
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        f64 left[2] = {0, 0}, sampled = 0;
        write_matrix(plain, formats[f], NULL);
        write_matrix(m, formats[f], &k.g);
        assert_true(plain->sums.results.energy == 0 && m->sums.results.energy > 0);
        for (int r = 0; r < ROWS; r++)
            for (int which = 0; which < 2; which++) {
                f64 x[COLS];
                const matrix_case *from = which ? m : plain;
                weight_row_f32(&from->out, r, m->row);
                for (int c = 0; c < COLS; c++) x[c] = (f64)m->w[r * COLS + c] - (f64)m->row[c];
                const f64 here = quadratic(k.h, x, COLS);
                left[which] += here;
                if (which && r < GPTQ_ROWS) sampled += here; /* the first of three blocks is looked at */
            }
        if (left[1] > 0.7 * left[0]) fail_msg("%s: %g of %g are left", formats[f], left[1], left[0]);
        assert_near(m->sums.results.done, sampled);
        u8 before[ROWS * COLS], scales[ROWS * COLS];
        memcpy(before, m->data, sizeof before);
        memcpy(scales, m->scale, sizeof scales);
        omp_set_num_threads(3);
        write_matrix(m, formats[f], &k.g);
        omp_set_num_threads(1);
        assert_memory_equal(before, m->data, weight_data_bytes(&m->out));
        assert_memory_equal(scales, m->scale, weight_scale_bytes(&m->out));
    }
    write_matrix(m, "int4", NULL);
    assert_null(quantizer_named("int8")->code);
    free_case(&k);
    free(m);
    free(plain);
}

/* Every candidate's squared differences by hand, counted by columns: the chosen scale is the best of them, in every
 * group of both rows. */
static void test_scales_by_counts(void **state) {
    (void)state;
    enum { N = 2, WIDE = 96 };
    static const f32 parts[] = {8, 7, 6, 5, 4, 3, 2, 1, 7.25f, 7.5f, 7.75f, 8.25f, 8.5f, 8.75f, 9, 9.5f, 10, 10.5f};
    f32 w[N * WIDE], counts[WIDE];
    u8 data[N * WIDE], scale[N * WIDE];
    i64 others = 0;
    rng = 90;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N * WIDE; i++) w[i] = flat();
        for (int c = 0; c < WIDE; c++) counts[c] = c % 3 ? 0.01f : 30 * (1 + flat());
        encode_int4(w, N, WIDE, counts, 0, data, scale);
        for (int g = 0; g < N * WIDE / 32; g++) {
            f32 most = 0;
            f64 best = INFINITY, plain = INFINITY;
            bf16 want = 0, alone = 0;
            for (int c = 0; c < 32; c++) most = fmaxf(most, fabsf(w[g * 32 + c]));
            for (size_t p = 0; p < COUNT_OF(parts); p++) {
                const bf16 s = f32_to_bf16(most / parts[p]);
                f64 sum = 0, even = 0;
                for (int c = 0; c < 32; c++) {
                    const f64 x = (f64)w[g * 32 + c] / bf16_to_f32(s),
                              off = (x - fmin(7, fmax(-8, rint(x)))) * bf16_to_f32(s);
                    sum += (f64)counts[g * 32 % WIDE + c] * off * off, even += off * off;
                }
                if (sum < best * (1 - 1e-5)) best = sum, want = s;
                if (even < plain * (1 - 1e-5)) plain = even, alone = s;
            }
            assert_int_equal(((bf16 *)(void *)scale)[g], want);
            others += want != alone;
        }
    }
    assert_true(others > 30); /* counts decide */
}

/* FP4, where one column of each group counts, another one in every group: it is as near as any candidate brings it. */
static void test_fp4_scales_by_counts(void **state) {
    (void)state;
    enum { N = 2, WIDE = 96 };
    f32 w[N * WIDE], row[WIDE];
    u8 data[N * WIDE], scale[N * WIDE];
    rng = 91;
    for (int nv = 0; nv < 2; nv++)
        for (int round = 0; round < 20; round++) {
            const int group = nv ? 16 : 32;
            f32 counts[WIDE] = {0}, all = 0;
            for (int i = 0; i < N * WIDE; i++) w[i] = flat(), all = fmaxf(all, fabsf(w[i]));
            for (int g = 0; g < WIDE / group; g++) counts[g * group + (g * 5 + 3) % group] = 1;
            weight_view v = {.format = nv ? WF_NVFP4 : WF_MXFP4, .rows = N, .cols = WIDE, .data = data, .scale = scale};
            v.factor = nv ? encode_nvfp4_factor(all) : 0;
            (nv ? encode_nvfp4 : encode_mxfp4)(w, N, WIDE, counts, v.factor, data, scale);
            for (int r = 0; r < N; r++) {
                weight_row_f32(&v, r, row);
                for (int g = 0; g < WIDE / group; g++) {
                    const f32 *of = w + r * WIDE + g * group, x = of[(g * 5 + 3) % group];
                    f32 most = 0;
                    f64 best = INFINITY;
                    int e;
                    for (int c = 0; c < group; c++) most = fmaxf(most, fabsf(of[c]));
                    frexpf(most, &e);
                    const int near = nv ? f32_to_f8_e4m3(most / 6 / v.factor) : e - 3;
                    for (int t = near - (nv ? 2 : 1); t <= near + (nv ? 6 : 1); t++) {
                        if (nv && (t < 1 || t > 0x7e)) continue;
                        const f32 s = nv ? f8_e4m3_to_f32((u8)t) * v.factor : ldexpf(1, t);
                        const f32 got = copysignf(f4_e2m1_to_f32(e2m1_nearest(x / s)) * s, x);
                        best = fmin(best, fabs((f64)x - (f64)got));
                    }
                    const f64 off = fabs((f64)x - (f64)row[g * group + (g * 5 + 3) % group]);
                    if (off > best * (1 + 1e-4) + 1e-7) fail_msg("%d, group %d: %g, not %g", nv, g, off, best);
                }
            }
        }
}

/* Of a matrix: H's diagonal, in the order of columns, and only where columns share a group. */
static void test_whose_counts(void **state) {
    (void)state;
    matrix_case *m = calloc(1, sizeof *m), *plain = calloc(1, sizeof *plain);
    inputs_case k;
    f32 counts[COLS];
    u8 data[COLS], scale[COLS];
    f64 mean = 0;
    make_case(&k, COLS, 300, 95);
    for (i64 c = 0; c < COLS; c++) mean += k.h[c * (COLS + 1)] / COLS;
    for (i64 c = 0; c < COLS; c++) counts[c] = (f32)(k.h[c * (COLS + 1)] / mean);
    for (int i = 0; i < ROWS * COLS; i++) m->w[i] = plain->w[i] = flat();
    write_matrix(m, "int4", &k.g);
    for (int r = 0; r < ROWS; r++) {
        encode_int4(m->w + r * COLS, 1, COLS, counts, 0, data, scale);
        assert_memory_equal(m->scale + r * (COLS / 32 * 2), scale, COLS / 32 * 2);
    }
    write_matrix(m, "w4a8", &k.g);
    write_matrix(plain, "w4a8", NULL);
    assert_memory_equal(m->scale, plain->scale, ROWS * sizeof(f32));
    free_case(&k);
    free(m);
    free(plain);
}

/* Inputs whose squares float32 hardly holds are none. */
static void test_tiny_inputs(void **state) {
    (void)state;
    static const f32 sizes_of[] = {1e-25f, 1e-22f, 1e-18f, 1e-14f, 1e-10f};
    for (size_t s = 0; s < COUNT_OF(sizes_of); s++) {
        f32 x[6 * 40], a[6] = {1, 1, 1, 1, 1, 1};
        gptq g = {0};
        err e = {0};
        rng = 100 + s;
        for (int i = 0; i < 6 * 40; i++) x[i] = flat() * sizes_of[s];
        assert_int_equal(gptq_open(&g, 40, &e), ST_OK);
        gptq_add(&g, x, a, 6);
        assert_int_equal(gptq_factor(&g, 0.1, &e), ST_OK);
        gptq_close(&g);
    }
}

/* Covariances and their factor have the same bits by one thread and by three. */
static void test_threads(void **state) {
    (void)state;
    inputs_case one, three;
    omp_set_num_threads(1);
    make_case(&one, 200, 150, 80);
    omp_set_num_threads(3);
    make_case(&three, 200, 150, 80);
    for (i64 i = 0; i < 200; i++) {
        assert_int_equal(one.g.order[i], three.g.order[i]);
        assert_memory_equal(one.g.h + i * 200 + i + 1, three.g.h + i * 200 + i + 1, (size_t)(199 - i) * sizeof(f32));
    }
    assert_memory_equal(one.g.diag, three.g.diag, 200 * sizeof(f32));
    free_case(&one);
    free_case(&three);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factor),
        cmocka_unit_test(test_codes_and_sums),
        cmocka_unit_test(test_nothing_met),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_codes_of_formats),
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_scales_by_counts),
        cmocka_unit_test(test_whose_counts),
        cmocka_unit_test(test_tiny_inputs),
        cmocka_unit_test(test_fp4_scales_by_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
