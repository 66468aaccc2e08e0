/* cmd/check/check_dense.c: matrix products and what works on rows. */
#include "base/log.h"
#include "cmd/check/check_gemm_shapes.h"
#include <math.h>

static const f64 dense_F32_BOUND = 1e-5;

/* Of float32 results. invariant.cu adds 16 columns after 16 to one sum, and tensor cores cut sums off instead of
 * rounding them: half a unit of the last place lost a time (14336 columns on an H200: 1.6e-5, where this is 2.7e-5). */
static f64 dense_f32_bound(const check *c, i64 cols) {
    return c->prompts ? fmax(dense_F32_BOUND, (f64)cols / 16 * 0x1p-25) : dense_F32_BOUND;
}
static bool dense_fits(weight_format f, i64 cols) { return f != WF_INT4_GROUP || cols % INT4_GROUP == 0; }

/* FP8 with every value that there is, NaN of both signs among them, and scales of 0, below it, small and large: for all
 * formats of it, few rows and many. */
static void fp8_values(check *c) {
    static const f32 scales[] = {0, -2, 0x1p-130f, 0x1p60f, 1, 0.3f};
    static const i64 counts[] = {1, 3, 40};
    for (int f = WF_FP8_BLOCK; f <= WF_FP8_ROW; f++)
        for (size_t i = 0; i < COUNT_OF(counts); i++) {
            enum { rows = 300, cols = 272 };
            const i64 n = counts[i], blocks = ceil_div(rows, 128) * ceil_div(cols, 128);
            weight_view v = synth_weight(&c->rng, (weight_format)f, rows, cols, 1.0f,
                                         check_alloc(c, synth_weight_bytes((weight_format)f, rows, cols)));
            for (i64 k = 0; k < 256; k++) ((u8 *)v.data)[k * 317 % (rows * cols)] = (u8)k;
            for (i64 k = 0; k < (f == WF_FP8_ROW ? rows : blocks); k++) ((f32 *)v.scale)[k] = scales[k % 6];
            check_weight w = check_prepare(c, (weight_desc){.kind = WK_LINEAR, .views = &v, .n_views = 1});
            check_act x = check_input(c, n * cols, 1.0f), y = check_output(c, n * rows);
            f32 *y32 = check_alloc(c, (u64)(n * rows) * 4);
            c->dev->linear(c->dev, &(linear_args){w.dev, x.h, y32, n, cols, rows, DT_F32});
            c->ref->linear(c->ref, &(linear_args){w.ref, x.f, y.f, n, cols, rows, DT_F32});
            for (i64 r = 0; r < rows; r++) { /* each has a size of its own */
                f32 row[cols], size = 0;
                weight_row_f32(&v, r, row);
                for (i64 k = 0; k < cols; k++) size += isnan(row[k]) ? 0 : fabsf(row[k]);
                for (i64 k = 0; size > 0 && k < n; k++) y.f[k * rows + r] /= size, y32[k * rows + r] /= size;
            }
            check_compare(c, "every value of FP8", y32, DT_F32, y.f, n, rows, rows, dense_F32_BOUND);
            check_case_end(c);
        }
}

/* Where dev keeps a matrix in bf16, against the weights as they are stored: each in FP8 is off by up to 2^-9, a sum of
 * many by some 1.7e-3 of itself; MXFP4 loses nothing. */
static void bf16_against_stored(check *c) {
    static const weight_format formats[] = {WF_FP8_BLOCK, WF_FP8_ROW, WF_MXFP4};
    for (size_t at = 0; at < COUNT_OF(formats); at++) {
        enum { n = 3, rows = 520, cols = 2048 };
        const weight_format f = formats[at];
        if (!check_rounds(c, f)) continue;
        weight_view v = synth_weight(&c->rng, f, rows, cols, 0.02f, check_alloc(c, synth_weight_bytes(f, rows, cols)));
        check_weight w = check_prepare(c, (weight_desc){.kind = WK_LINEAR, .views = &v, .n_views = 1});
        check_act x = check_input(c, n * cols, 1.0f), y = check_output(c, n * rows);
        f32 *y32 = check_alloc(c, n * rows * 4), *row = check_alloc(c, cols * 4);
        c->dev->linear(c->dev, &(linear_args){w.dev, x.h, y32, n, cols, rows, DT_F32});
        for (i64 r = 0; r < rows; r++) {
            weight_row_f32(&v, r, row);
            for (i64 k = 0; k < n; k++) {
                f64 sum = 0;
                for (i64 i = 0; i < cols; i++) sum += (f64)row[i] * (f64)x.f[k * cols + i];
                y.f[k * rows + r] = (f32)sum;
            }
        }
        check_compare(c, weight_format_name(f), y32, DT_F32, y.f, n, rows, rows, f == WF_MXFP4 ? 1e-5 : 2.5e-3);
        check_case_end(c);
    }
}

void check_linear(check *c) {
    static const struct {
        i64 n, rows, cols, pad;
    } s[] = {{1, 576, 7168, 0},
             {3, 40, 1536, 8},
             {5, 17, 96, 3},
             {17, 33, 160, 0},
             {33, 64, 64, 1},
             {64, 16, 512, 0},
             {97, 130, 288, 5},
             {2, 7, 33, 1},
             {1, 1, 5, 0},
             {70, 300, 2048, 0},
             {4, 1536, 14336, 0},
             /* a tile a block, of 16, 32 and 64 rows: of 132 multiprocessors, and of an emulated GPU's two */
             {1, 2100, 4096, 8},
             {4, 4200, 384, 0},
             {3, 8400, 192, 8},
             {2, 24, 256, 0},
             {4, 50, 128, 8},
             {3, 120, 64, 0},
             /* and more than their rings hold */
             {4, 4200, 1792, 8},
             {3, 8400, 896, 0},
             {4, 50, 3840, 0},
             {3, 120, 1920, 8},
             {8, 192, 4096, 0},
             {16, 72, 1048, 8},
             {40, 136, 768, 0},
             {64, 320, 256, 0},
             {1, 2000, 48, 0},
             {64, 7168, 64, 8},
             {50, 2100, 512, 8},
             {33, 17000, 64, 8},
             {1, 1152, 588, 4},
             {64, 1152, 588, 4},
             {300, 144, 588, 4},
             {1000, 40, 588, 4},
             {300, 144, 536, 0},
             {130, 40, 4304, 0}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int f = 0; f <= WF_INT4_GROUP; f++)
            for (int wide = 0; wide < 2; wide++) {
                i64 n = s[i].n, rows = s[i].rows, cols = s[i].cols, xs = cols + s[i].pad, ys = rows + s[i].pad;
                if (i >= 11 && (f != WF_BF16 || (wide && i >= 26))) continue; /* for the kernels of bf16 weights */
                if (!dense_fits((weight_format)f, cols)) continue;
                check_weight w = check_matrix(c, WK_LINEAR, (weight_format)f, rows, cols, 1.0f / sqrtf((f32)cols));
                check_act x = check_input(c, n * xs, 1.0f), y = check_output(c, n * ys);
                f32 *y32 = check_alloc(c, (u64)(n * ys) * 4);
                dtype t = wide ? DT_F32 : DT_BF16;
                linear_args a = {w.dev, x.h, wide ? (void *)y32 : (void *)y.h, n, xs, ys, t};
                linear_args b = {w.ref, x.f, y.f, n, xs, ys, DT_F32};
                c->dev->linear(c->dev, &a);
                c->ref->linear(c->ref, &b);
                check_compare(c, weight_format_name((weight_format)f), a.y, t, y.f, n, rows, ys,
                              wide ? dense_f32_bound(c, cols) : CHECK_BF16_BOUND);
                if (i == 0 && !c->copies) {
                    f64 start = now_s();
                    c->dev->linear(c->dev, &a);
                    check_speed(c, now_s() - start, w.bytes);
                }
                if (!wide && s[i].pad == 0 && n > 1) {
                    check_act z = check_output(c, n * rows);
                    x.h[(n / 2) * xs + 1] = CHECK_BAD;
                    a.y = z.h;
                    c->dev->linear(c->dev, &a);
                    check_isolated(c, "linear", y.h, z.h, n, rows, n / 2);
                }
                check_case_end(c);
            }
    fp8_values(c);
    bf16_against_stored(c);
    check_gemm_shapes(c, G_LINEAR);
    check_gemm_shapes(c, G_LOGITS);
}

void check_swiglu(check *c) {
    static const struct {
        i64 n, rows, cols, pad;
    } s[] = {{1, 512, 7168, 0}, {3, 40, 1536, 8},  {17, 33, 160, 1},  {97, 64, 288, 0},
             {2, 7, 33, 0},     {64, 160, 512, 0}, {8, 200, 2048, 8}, {32, 48, 80, 0}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int f = 0; f <= WF_INT4_GROUP; f++) {
            i64 n = s[i].n, rows = s[i].rows, cols = s[i].cols, xs = cols + s[i].pad, ys = rows + s[i].pad;
            if (i >= 5 && f != WF_BF16) continue; /* for the kernels of bf16 weights */
            if (!dense_fits((weight_format)f, cols)) continue;
            f32 sigma = 1.0f / sqrtf((f32)cols);
            check_weight g = check_matrix(c, WK_LINEAR, (weight_format)f, rows, cols, sigma);
            check_weight u = check_matrix(c, WK_LINEAR, (weight_format)f, rows, cols, sigma);
            check_act x = check_input(c, n * xs, 1.0f), y = check_output(c, n * ys);
            swiglu_args a = {g.dev, u.dev, x.h, y.h, n, xs, ys}, b = {g.ref, u.ref, x.f, y.f, n, xs, ys};
            c->dev->swiglu(c->dev, &a);
            c->ref->swiglu(c->ref, &b);
            check_compare(c, weight_format_name((weight_format)f), y.h, DT_BF16, y.f, n, rows, ys, CHECK_BF16_BOUND);
            if (i == 0 && !c->copies) {
                f64 start = now_s();
                c->dev->swiglu(c->dev, &a);
                check_speed(c, now_s() - start, g.bytes + u.bytes);
            }
            if (s[i].pad == 0 && n > 1) {
                check_act z = check_output(c, n * rows);
                x.h[(n / 2) * xs + 1] = CHECK_BAD;
                a.out = z.h;
                c->dev->swiglu(c->dev, &a);
                check_isolated(c, "swiglu", y.h, z.h, n, rows, n / 2);
            }
            check_case_end(c);
        }
    check_gemm_shapes(c, G_SWIGLU);
}

/* Two or more weights over the same x: bf16 and float32 results, swiglu among them, formats of every kind. */
void check_linear_group(check *c) {
    static const struct {
        i64 n, cols, rows[LINEAR_GROUP_MAX];
        bool up[LINEAR_GROUP_MAX], wide[LINEAR_GROUP_MAX];
    } s[] = {{1, 7168, {192, 72}, {0}, {0}},
             {4, 512, {96, 80, 40}, {0, 1, 0}, {1, 0, 0}},
             {33, 272, {64, 200, 8, 136}, {1, 0, 0, 1}, {0, 1, 0, 0}},
             {9, 96, {130, 7}, {0}, {0, 1}},
             {70, 160, {40, 64}, {1, 0}, {0}},
             {60, 768, {1500, 40}, {1, 0}, {0, 1}}, /* from here on for the kernels of bf16 weights */
             {64, 1024, {70, 300}, {0, 1}, {1, 0}},
             {3, 7168, {1536, 576}, {0}, {0, 1}}, /* Kimi's q_a and kv_a; alike for an emulated GPU of two */
             {2, 512, {13, 9}, {0}, {1, 0}}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int f = 0; f <= WF_INT4_GROUP; f++) {
            i64 n = s[i].n, cols = s[i].cols, count = 0;
            if (i >= 5 && f != WF_BF16) continue;
            if (!dense_fits((weight_format)f, cols)) continue;
            check_act x = check_input(c, n * cols, 1.0f), y[LINEAR_GROUP_MAX];
            linear_group_args a = {.x = x.h, .n = n, .x_stride = cols}, b = {.x = x.f, .n = n, .x_stride = cols};
            for (; count < LINEAR_GROUP_MAX && s[i].rows[count]; count++) {
                i64 rows = s[i].rows[count], stride = ceil_div(rows, 8) * 8 + 8 * count;
                f32 sigma = 1.0f / sqrtf((f32)cols);
                check_weight w = check_matrix(c, WK_LINEAR, (weight_format)f, rows, cols, sigma), up = {0};
                if (s[i].up[count]) up = check_matrix(c, WK_LINEAR, (weight_format)f, rows, cols, sigma);
                y[count] = check_output(c, n * stride * 2); /* room for float32 in .h */
                dtype t = s[i].wide[count] ? DT_F32 : DT_BF16;
                a.of[count] = (linear_group_item){w.dev, up.dev, y[count].h, stride, t};
                b.of[count] = (linear_group_item){w.ref, up.ref, y[count].f, stride, DT_F32};
            }
            a.count = b.count = count;
            fused_linear_group(c->dev, &a);
            fused_linear_group(c->ref, &b);
            for (i64 k = 0; k < count; k++)
                check_compare(c, weight_format_name((weight_format)f), a.of[k].y, a.of[k].y_type, y[k].f, n,
                              s[i].rows[k], a.of[k].y_stride,
                              a.of[k].y_type == DT_F32 ? dense_F32_BOUND : CHECK_BF16_BOUND);
            check_case_end(c);
        }
}

void check_embed(check *c) {
    static const i64 counts[] = {1, 2, 5, 33, 97}, widths[] = {7168, 256, 96};
    for (size_t d = 0; d < COUNT_OF(widths); d++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int f = 0; f <= WF_INT4_GROUP; f++) {
                i64 n = counts[i], dim = widths[d], vocab = 50, first = i % 2 ? 3 : 0; /* of a rank's share */
                check_weight w = check_matrix(c, WK_TABLE, (weight_format)f, vocab, dim, 1.0f);
                check_act y = check_output(c, n * dim);
                i32 *ids = check_alloc(c, (u64)n * 4);
                for (i64 k = 0; k < n; k++) ids[k] = (i32)(synth_bits(&c->rng) % 54) - 2; /* some outside */
                i32 *drawn = f % 2 ? NULL : check_alloc(c, 2 * 4); /* or drawn, one of them outside */
                if (drawn) drawn[0] = 7, drawn[1] = vocab;
                i32 *map = i % 2 ? check_alloc(c, 54 * 4) : NULL; /* of a draft's ids, some to outside */
                for (i32 k = 0; map && k < 54; k++) map[k] = k * 7 % 54;
                embed_args a = {w.dev, ids, drawn, map, y.h, n, first}, b = {w.ref, ids, drawn, map, y.f, n, first};
                f64 start = now_s();
                c->dev->embed(c->dev, &a);
                if (n == 97) check_speed(c, now_s() - start, (u64)(n * dim) * 4);
                c->ref->embed(c->ref, &b);
                check_compare(c, weight_format_name((weight_format)f), y.h, DT_BF16, y.f, n, dim, dim,
                              CHECK_BF16_BOUND);
                check_case_end(c);
            }
}

/* A NaN, an infinity and a value whose square is infinite, in three rows of the sum: who is marked? */
static void norm_marks(check *c, norm_args *a, norm_args *b, check_act x) {
    static const u16 values[] = {0x7fc0, 0x7f7f, 0xff80};
    i32 *got = check_alloc(c, (u64)a->n * 4), *want = check_alloc(c, (u64)a->n * 4);
    for (i64 i = 0; i < a->n; i++) got[i] = want[i] = i == 1 ? 5 : 0;
    for (i64 i = 0; i < min_i64(a->n, 3); i++) {
        i64 at = (a->n - 1 - i) * a->x_stride + (i * 7 + 3) % a->dim;
        x.h[at] = values[i];
        x.f[at] = bf16_to_f32(values[i]);
    }
    a->bad = got, b->bad = want;
    a->mark = b->mark = -1;
    c->dev->norm(c->dev, a);
    c->ref->norm(c->ref, b);
    for (i64 i = 0; i < a->n; i++)
        if (got[i] != want[i]) check_fail(c, "norm: mark of row %lld is %d, not %d", (long long)i, got[i], want[i]);
    c->cases++;
}

static void norm_case(check *c, i64 n, i64 dim, int mode) { /* bit 0: add, bit 1: sum, bit 2: rows not aligned */
    i64 pad = mode & 4 ? 7 : 8, xs = dim + (mode & 1) * pad, os = dim + pad;
    weight_format f = mode & 1 ? WF_BF16 : WF_F32;
    check_weight w = check_matrix(c, WK_VECTOR, f, 1, dim, 1.0f);
    check_act x = check_input(c, n * xs, 2.0f), add = check_input(c, n * xs, 1.0f);
    check_act sum = check_output(c, n * xs), y = check_output(c, n * os);
    norm_args a = {.weight = w.dev, .x = x.h, .out = y.h, .n = n, .dim = dim, .x_stride = xs, .out_stride = os}, b = a;
    b.weight = w.ref, b.x = x.f, b.out = y.f;
    a.eps = b.eps = 1e-6f;
    if (mode & 1) a.add = add.h, b.add = add.f;
    if (mode & 2) a.sum = sum.h, b.sum = sum.f;
    f64 start = now_s();
    c->dev->norm(c->dev, &a);
    if (n == 64) check_speed(c, now_s() - start, (u64)(n * dim) * 4);
    c->ref->norm(c->ref, &b);
    check_compare(c, "norm", y.h, DT_BF16, y.f, n, dim, os, CHECK_BF16_BOUND);
    if (mode & 2) check_compare(c, "norm's sum", sum.h, DT_BF16, sum.f, n, dim, xs, CHECK_BF16_BOUND);
    norm_marks(c, &a, &b, x);
    check_case_end(c);
    if ((mode & 3) != 1) return;
    xs = mode & 4 ? xs : dim;
    a.x_stride = b.x_stride = xs;
    x = check_input(c, n * xs, 2.0f), add = check_input(c, n * xs, 1.0f), y = check_output(c, n * os);
    w = check_matrix(c, WK_VECTOR, f, 1, dim, 1.0f);
    a.weight = w.dev, a.x = a.sum = x.h, a.add = add.h, a.out = y.h, a.bad = NULL;
    b.weight = w.ref, b.x = b.sum = x.f, b.add = add.f, b.out = y.f, b.bad = NULL;
    c->dev->norm(c->dev, &a);
    c->ref->norm(c->ref, &b);
    check_compare(c, "norm in place", y.h, DT_BF16, y.f, n, dim, os, CHECK_BF16_BOUND);
    if (xs == dim) check_compare(c, "norm's sum in place", x.h, DT_BF16, x.f, n, dim, xs, CHECK_BF16_BOUND);
    check_case_end(c);
}

void check_norm(check *c) {
    static const i64 dims[] = {7168, 1536, 512, 8200, 33, 5}, counts[] = {1, 3, 17, 64};
    for (size_t d = 0; d < COUNT_OF(dims); d++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int mode = 0; mode < 8; mode++) norm_case(c, counts[i], dims[d], mode);
    norm_case(c, 300, 2304, 3); /* many */
    norm_case(c, 800, 2304, 0); /* more rows than blocks that stay, nothing added */
}

static void rope_case(check *c, i64 n, i64 heads, i64 nope, i64 rope) {
    i32 *positions = check_alloc(c, (u64)n * 4);
    f64 *freq = check_alloc(c, (u64)rope * 4);
    f32 *table = check_alloc(c, (u64)(n * rope) * 4), *table2 = check_alloc(c, (u64)(n * rope) * 4);
    for (i64 k = 0; k < n; k++) positions[k] = (i32)(synth_bits(&c->rng) % (k % 2 ? 1000 : 262144));
    for (i64 k = 0; k < rope / 2; k++) freq[k] = pow(50000, -2.0 * (f64)k / (f64)rope);
    rope_table_args t = {positions, freq, table, n, rope, 1.0}, t2 = {positions, freq, table2, n, rope, 1.0};
    c->dev->rope_table(c->dev, &t);
    c->ref->rope_table(c->ref, &t2);
    check_compare(c, "rope_table", table, DT_F32, table2, n, rope, rope, dense_F32_BOUND);
    for (i64 k = 0; k < n * rope; k++)
        if (!(fabsf(table[k] - table2[k]) < 2e-7f))
            check_fail(c, "rope_table: %.9g, not %.9g", (f64)table[k], (f64)table2[k]);
    check_act q = check_input(c, n * heads * (nope + rope), 1.0f);
    rope_q_args a = {q.h, table, n, heads, nope, rope}, b = {q.f, table2, n, heads, nope, rope};
    c->dev->rope_q(c->dev, &a);
    c->ref->rope_q(c->ref, &b);
    check_compare(c, "rope_q", q.h, DT_BF16, q.f, n * heads, nope + rope, nope + rope, CHECK_BF16_BOUND);
    check_case_end(c);
}

void check_rope(check *c) {
    static const i64 counts[] = {1, 2, 33};
    for (size_t i = 0; i < COUNT_OF(counts); i++) rope_case(c, counts[i], 5, 128, 64);
    rope_case(c, 3, 64, 128, 64);
    rope_case(c, 5, 3, 24, 10); /* no pieces of 16 bytes */
    rope_case(c, 2, 1, 3, 2);
}

/* out_stride: wider than dim, as into the middle of wider rows; all: rows in their order. */
static void gather_case(check *c, i64 dim, i64 out_stride, bool all) {
    i64 n = 9;
    check_act x = check_input(c, 20 * dim, 1.0f), y = check_output(c, n * out_stride);
    static const i32 some[] = {0, 19, 3, 3, 7, 18, 1, 0, 11};
    i32 *rows = all ? NULL : check_copy(c, some, sizeof some);
    gather_args a = {x.h, rows, y.h, n, dim, dim, out_stride}, b = {x.f, rows, y.f, n, dim, dim, out_stride};
    c->dev->gather(c->dev, &a);
    c->ref->gather(c->ref, &b);
    check_compare(c, "gather", y.h, DT_BF16, y.f, n, dim, out_stride, 0);
    check_case_end(c);
}

void check_gather(check *c) {
    gather_case(c, 77, 77, false);
    gather_case(c, 2056, 2056, false);
    gather_case(c, 256, 768, true);
    gather_case(c, 77, 231, true);
}

void check_mark_nonfinite(check *c) {
    for (int wide = 0; wide < 2; wide++)
        for (int trial = 0; trial < 40; trial++) {
            i64 n = 1 + trial % 7, dim = 5 + trial * 13, stride = dim + 3;
            check_act x = check_input(c, n * stride, 1.0f);
            static const i32 none[8];
            i32 *bad = check_copy(c, none, sizeof none), *want = check_copy(c, none, sizeof none);
            if (trial % 3 == 0) bad[0] = want[0] = 5;
            i64 row = trial % n, col = trial * 7 % dim;
            static const u16 values[] = {0x7fc0, 0x7f80, 0xff80, 0x7f7f, 0x0001, 0xffff};
            u16 v = values[trial % 6];
            x.h[row * stride + col] = v;
            x.f[row * stride + col] = bf16_to_f32(v);
            x.h[row * stride + dim] = 0x7fc0; /* between rows: not looked at */
            x.f[row * stride + dim] = NAN;
            mark_nonfinite_args a = {wide ? (void *)x.f : (void *)x.h, bad, n, dim, stride, wide ? DT_F32 : DT_BF16, 9};
            mark_nonfinite_args b = {x.f, want, n, dim, stride, DT_F32, 9};
            c->dev->mark_nonfinite(c->dev, &a);
            c->ref->mark_nonfinite(c->ref, &b);
            for (i64 k = 0; k < n; k++)
                if (bad[k] != want[k]) check_fail(c, "finite: row %lld is %d, not %d", (long long)k, bad[k], want[k]);
            c->cases++;
            check_case_end(c);
        }
}
