/* Experts of four and eight bits with int8 activations (kernels/cpu/moe_int8_tmpl.h): every level that this processor
 * has gives the same bits, those of the arithmetic said there, written here once more without any vector. */
#include "moe_at_level.h"
#include "unit.h"
#include "vector_exp.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lib/synthetic.c" /* cmd/ is no part of the library */
#include "kernels/ops.h"

enum { EXPERTS = 4, K = 2, HIDDEN_MOST = 640, INTER_MOST = 128, ROWS = 23 };
static int hidden, inter; /* of the format that is held */
static const char *const levels[] = {"avx2", "avxvnni", "avx512", "vnni", "bf16", "noamx", "all"};

typedef struct {
    weight_view v[3 * EXPERTS];
    bf16 *x, *out;
    i32 ids[ROWS * K];
    f32 weights[ROWS * K];
    void *memory;
} scene;

/* What is held: a format, of NVFP4 both ways of its factor, and whether some scales are no numbers. */
typedef struct {
    const char *name;
    weight_format f;
    bool divides, odd_scales;
} kind;

/* The scale of a few groups (rows) NaN, infinite, zero or the least there is. */
static void odd_scales(weight_view *v) {
    static const u8 e4m3[] = {0x7f, 0xff, 0, 0x80, 1, 0x87, 0x7e}, e8m0[] = {255, 0, 1};
    static const f32 floats[] = {NAN, INFINITY, 0, -0.0f, 1e-40f, -INFINITY, 3e38f};
    const weight_layout *l = weight_layout_of(v->format);
    const i64 n = (i64)weight_scale_bytes(v) / (i64)dtype_size(l->scale_type);
    for (i64 i = 0; i < 7; i++) {
        const i64 at = (i * 2 + 3) * n / 17; /* in rows of their own */
        if (v->format == WF_NVFP4) ((u8 *)v->scale)[at] = e4m3[i];
        if (v->format == WF_MXFP4) ((u8 *)v->scale)[at] = e8m0[i % 3];
        if (l->scale_type == DT_BF16) ((bf16 *)v->scale)[at] = f32_to_bf16(floats[i]);
        if (l->scale_type == DT_F32) ((f32 *)v->scale)[at] = floats[i];
    }
}

static scene make(const kind *k) {
    const weight_format f = k->f;
    const bool wide = f == WF_INT4_GROUP128; /* whole groups, else steps and groups of steps that are not full */
    hidden = wide ? HIDDEN_MOST : 352, inter = wide ? INTER_MOST : 96;
    synth rng = {11};
    scene s;
    u64 up = synth_weight_bytes(f, inter, hidden), down = synth_weight_bytes(f, hidden, inter);
    u8 *m = s.memory = aligned_alloc(64, (2 * up + down) * EXPERTS);
    for (int e = 0; e < EXPERTS; e++, m += 2 * up + down) {
        s.v[3 * e] = synth_weight(&rng, f, inter, hidden, 0.1f, m);
        s.v[3 * e + 1] = synth_weight(&rng, f, inter, hidden, 0.1f, m + up);
        s.v[3 * e + 2] = synth_weight(&rng, f, hidden, inter, 0.1f, m + 2 * up);
        for (int i = 0; k->divides && i < 3; i++) s.v[3 * e + i].factor = 1000.7f, s.v[3 * e + i].divides = true;
        if (k->odd_scales && e != 1) odd_scales(&s.v[3 * e + 2]);
        if (k->odd_scales && e == 3) odd_scales(&s.v[3 * e]), odd_scales(&s.v[3 * e + 1]);
    }
    s.x = malloc((size_t)(ROWS * hidden) * sizeof *s.x);
    s.out = malloc((size_t)(ROWS * hidden) * sizeof *s.out);
    synth_fill_bf16(&rng, s.x, ROWS * hidden, 1.0f);
    for (int c = 0; c < hidden; c++) s.x[2 * hidden + c] = f32_to_bf16(0.5f); /* no range at all */
    for (int c = 0; c < 64; c++) s.x[3 * hidden + c] = 0;                     /* groups of zeros */
    s.x[4 * hidden + 40] = f32_to_bf16(300.0f), s.x[5 * hidden] = f32_to_bf16(INFINITY);
    synth_ids(&rng, s.ids, ROWS, K, EXPERTS);
    for (int i = 0; i < ROWS * K; i++) s.weights[i] = 0.2f + 0.1f * synth_uniform(&rng);
    s.ids[3] = -1;
    for (int i = 0; i < 9; i++) s.ids[(8 + i) * K] = 1; /* more than a tile has for one of them */
    return s;
}

static void drop(scene *s) { free(s->memory), free(s->x), free(s->out); }

/* Rows [first, first + n) at a level; false where the processor lacks it. */
static bool run(scene *s, const char *level, i64 first, i64 n, bf16 *out) {
    const weight_desc d = {.kind = WK_EXPERTS, .views = s->v, .n_views = 3 * EXPERTS};
    moe_args a = {.x = s->x + first * hidden,
                  .ids = s->ids + first * K,
                  .weights = s->weights + first * K,
                  .out = out,
                  .n = n,
                  .k = K};
    return moe_at_level(level, &d, a);
}

/* ---- The arithmetic, a value at a time ---- */

typedef struct {
    int q[32];
    f32 scale[2], mid[2];
} group;

/* Which half of its group's activations a column is in: that of low or of high nibbles; where two scales or none are in
 * a group, of the first or the second 16. */
static int half_of(weight_format f, i64 c) {
    if (f == WF_NVFP4 || f == WF_INT8_ROW) return c % 32 / 16;
    return f == WF_INT4_ROW ? c % 8 / 2 % 2 : c % 2;
}

static void quantise(weight_format f, const f32 *v, bool halves, group *g) {
    const int least = f == WF_INT8_ROW ? -127 : -128; /* of eight bits each, two products would not fit 16 */
    const f32 part = 1.0f / (f32)(127 - least);
    memset(g, 0, sizeof *g);
    for (int h = 0; h < 2; h++) {
        f32 top = -INFINITY, bottom = INFINITY;
        bool finite = true;
        for (int c = 0; c < 32; c++)
            if (!halves || half_of(f, c) == h) {
                top = fmaxf(top, v[c]), bottom = fminf(bottom, v[c]);
                finite = finite && isfinite(v[c]);
            }
        f32 scale = top * part - bottom * part;
        const bool flat = !finite || scale < 1e-30f;
        g->scale[h] = flat ? 0 : scale;
        g->mid[h] = !finite ? NAN : flat ? bottom : bottom - (f32)least * scale;
        for (int c = 0; c < 32 && !flat; c++)
            if (half_of(f, c) == h) {
                f32 q = nearbyintf((v[c] - g->mid[h]) * (1.0f / scale));
                g->q[c] = (int)fminf(127, fmaxf((f32)least, q));
            }
    }
}

/* A weight as so many quanta of its group's scale. */
static int quanta(const weight_view *w, i64 row, i64 c) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    if (w->format == WF_INT8_ROW) return ((const i8 *)w->data)[row * w->cols + c];
    if (w->format == WF_INT4_ROW) return int4_row_at(q, c);
    const u8 nibble = q[c / 2] >> c % 2 * 4 & 15;
    if (w->format == WF_INT4_GROUP128) return (nibble ^ 8) - 8;
    return w->format == WF_MXFP4 || w->format == WF_NVFP4 ? (int)(2 * f4_e2m1_to_f32(nibble)) : nibble - 8;
}
/* Of group g of 32 columns; of either half of it. e8m0's NaN stands for an infinity. */
static f32 quantum(const weight_view *w, i64 row, i64 g, int half) {
    if (w->format == WF_INT4_ROW) return int4_row_scale(w, row);
    if (w->format == WF_INT8_ROW) return ((const f32 *)w->scale)[row];
    if (w->format == WF_INT4_GROUP128) return ((const f32 *)w->scale)[row * (w->cols / 128) + g / 4];
    const i64 at = row * (w->cols / 32) + g;
    if (w->format == WF_NVFP4) {
        const f32 s = f8_e4m3_to_f32(((const u8 *)w->scale)[2 * at + half]) * 0.5f;
        return w->divides ? s / w->factor : s * w->factor;
    }
    if (w->format != WF_MXFP4) return bf16_to_f32(((const bf16 *)w->scale)[at]);
    const u8 b = ((const u8 *)w->scale)[at];
    return b == 255 ? INFINITY : e8m0_to_f32(b) * 0.5f;
}

static f32 times_row(const weight_view *w, i64 row, const group *x, bool halves) {
    f32 y = 0;
    for (i64 g = 0; g < w->cols / 32; g++) {
        const bool pairs = w->format == WF_NVFP4; /* two scales of weights */
        int dot[2] = {0}, sum[2] = {0};
        for (int c = 0; c < 32; c++) {
            int h = halves || pairs ? half_of(w->format, c) : 0, v = quanta(w, row, g * 32 + c);
            dot[h] += v * x[g].q[c], sum[h] += v;
        }
        const f32 s0 = quantum(w, row, g, 0), s1 = quantum(w, row, g, 1);
        f32 total = (f32)sum[0] * s0, v = (f32)dot[0] * x[g].scale[0];
        if (pairs && !halves) {
            total = fmaf((f32)sum[1], s1, total);
            y = fmaf(fmaf((f32)dot[1], s1, (f32)dot[0] * s0), x[g].scale[0], fmaf(x[g].mid[0], total, y));
            continue;
        }
        if (halves) y = fmaf(x[g].mid[1], (f32)sum[1] * s1, y);
        if (halves && pairs) y = fmaf((f32)dot[1] * x[g].scale[1], s1, y);
        if (halves && !pairs) v = fmaf((f32)dot[1], x[g].scale[1], v);
        y = fmaf(v, s0, fmaf(x[g].mid[0], total, y));
    }
    return y;
}

static void as_said(const scene *s, i64 token, bf16 *out) {
    const weight_format f = s->v[0].format;
    group x[HIDDEN_MOST / 32], h[INTER_MOST / 32];
    f32 sum[HIDDEN_MOST] = {0}, v[HIDDEN_MOST];
    for (int c = 0; c < hidden; c++) v[c] = bf16_to_f32(s->x[token * hidden + c]);
    for (int g = 0; g < hidden / 32; g++) quantise(f, v + g * 32, false, &x[g]);
    for (int k = 0; k < K; k++) {
        i32 e = s->ids[token * K + k];
        if (e < 0) continue;
        for (int i = 0; i < inter; i++) {
            f32 gate = times_row(&s->v[3 * e], i, x, false), up = times_row(&s->v[3 * e + 1], i, x, false);
            v[i] = gate / (1 + exp_as_vectors(0 - gate)) * up;
        }
        for (int g = 0; g < inter / 32; g++) quantise(f, v + g * 32, true, &h[g]);
        for (int c = 0; c < hidden; c++)
            sum[c] = fmaf(s->weights[token * K + k], times_row(&s->v[3 * e + 2], c, h, true), sum[c]);
    }
    for (int c = 0; c < hidden; c++) out[c] = f32_to_bf16(sum[c]);
}

/* ---- What is held ---- */

static void one_format(void **state) {
    scene s = make(*state);
    bf16 want[HIDDEN_MOST];
    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        if (!run(&s, levels[l], 0, ROWS, s.out)) continue;
        for (i64 t = 0; t < ROWS; t++) {
            as_said(&s, t, want);
            for (int c = 0; c < hidden; c++) {
                const bf16 got = s.out[t * hidden + c];
                const bool same = got == want[c] || (isnan(bf16_to_f32(got)) && isnan(bf16_to_f32(want[c])));
                if (!same)
                    fail_msg("%s, token %lld, column %d: %g, not %g", levels[l], (long long)t, c, (f64)bf16_to_f32(got),
                             (f64)bf16_to_f32(want[c]));
            }
        }
        bf16 alone[HIDDEN_MOST];
        assert_true(run(&s, levels[l], 9, 1, alone));
        assert_memory_equal(alone, s.out + 9 * hidden, (size_t)hidden * sizeof *alone);
    }
    drop(&s);
}

int main(void) {
    static kind kinds[] = {{"int4_group", WF_INT4_GROUP, false, false},
                           {"int4_row", WF_INT4_ROW, false, false},
                           {"int4_group128", WF_INT4_GROUP128, false, false},
                           {"mxfp4", WF_MXFP4, false, false},
                           {"nvfp4", WF_NVFP4, false, false},
                           {"nvfp4, a factor that divides", WF_NVFP4, true, false},
                           {"int8_row", WF_INT8_ROW, false, false},
                           {"int4_group, odd scales", WF_INT4_GROUP, false, true},
                           {"int4_row, odd scales", WF_INT4_ROW, false, true},
                           {"int4_group128, odd scales", WF_INT4_GROUP128, false, true},
                           {"mxfp4, odd scales", WF_MXFP4, false, true},
                           {"nvfp4, odd scales", WF_NVFP4, false, true},
                           {"nvfp4, a factor that divides, odd scales", WF_NVFP4, true, true},
                           {"int8_row, odd scales", WF_INT8_ROW, false, true}};
    struct CMUnitTest tests[COUNT_OF(kinds)];
    if (!(cpu_isa() & ISA_AVX2)) {
        printf("[  SKIPPED ] %zu test(s): no AVX2\n", COUNT_OF(kinds));
        return 0;
    }
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        tests[i] = (struct CMUnitTest){kinds[i].name, one_format, NULL, NULL, &kinds[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
