/* Experts in W4A8 on processors (kernels/cpu/moe_w4a8_tmpl.h): every level gives the bits of the arithmetic that ops.h
 * says at moe_args, written here once more a value at a time, for one token and for hundreds. */
#include "moe_at_level.h"
#include "unit.h"
#include "vector_exp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lib/synthetic.c" /* cmd/ is no part of the library */
#include "kernels/ops.h"

enum { EXPERTS = 5, K = 2, COLS_MOST = 448, ROWS_MOST = 300 };
static const char *const levels[] = {"avx2", "avxvnni", "avx512", "vnni", "bf16", "noamx", "all"};

typedef struct {
    const char *name;
    i64 hidden, inter, rows;
    bool odd_scales, same_expert; /* NaN, infinite, negative and tiny ones; all tokens choose the first */
} kind;

typedef struct {
    const kind *k;
    weight_view v[3 * EXPERTS];
    bf16 *x, *out, *shared;
    i32 ids[ROWS_MOST * K];
    f32 weights[ROWS_MOST * K];
    u8 *memory;
} scene;

static void make_odd(weight_view *v) {
    static const f32 odd[] = {NAN, INFINITY, -0.25f, 0x1p-110f, -0.0f, 0.001f};
    const i64 groups = v->cols / 32;
    bf16 *scale = (bf16 *)(uintptr_t)v->scale;
    for (i64 i = 0; i < (i64)COUNT_OF(odd); i++) scale[(3 + 5 * i) * groups + i % groups] = f32_to_bf16(odd[i]);
    for (i64 g = 0; g < groups; g++) scale[41 * groups + g] = f32_to_bf16(0x1p-105f);
    for (i64 g = 0; g < groups; g++) scale[50 * groups + g] = f32_to_bf16(g % 2 ? -0.5f : 0.5f);
}

static scene make(const kind *k) {
    synth rng = {23};
    scene s = {.k = k};
    const i64 h = k->hidden, inter = k->inter, n = k->rows;
    const u64 up = synth_weight_bytes(WF_INT4_GROUP, inter, h), down = synth_weight_bytes(WF_INT4_GROUP, h, inter);
    u8 *m = s.memory = aligned_alloc(64, (2 * up + down) * EXPERTS);
    for (int e = 0; e < EXPERTS; e++, m += 2 * up + down) {
        s.v[3 * e] = synth_weight(&rng, WF_INT4_GROUP, inter, h, 0.1f, m);
        s.v[3 * e + 1] = synth_weight(&rng, WF_INT4_GROUP, inter, h, 0.1f, m + up);
        s.v[3 * e + 2] = synth_weight(&rng, WF_INT4_GROUP, h, inter, 0.1f, m + 2 * up);
        if (k->odd_scales && e == 1) make_odd(&s.v[3 * e + 2]);
        if (k->odd_scales && e == 3) make_odd(&s.v[3 * e]), make_odd(&s.v[3 * e + 1]);
    }
    s.x = malloc((size_t)(n * h) * sizeof *s.x);
    s.shared = malloc((size_t)(n * h) * sizeof *s.shared);
    s.out = malloc((size_t)(n * h) * sizeof *s.out);
    synth_fill_bf16(&rng, s.x, n * h, 1.0f);
    synth_fill_bf16(&rng, s.shared, n * h, 0.3f);
    synth_ids(&rng, s.ids, n, K, EXPERTS);
    for (i64 i = 0; i < n * K; i++) {
        s.weights[i] = 0.2f + 0.1f * synth_uniform(&rng);
        if (k->same_expert) s.ids[i] = (i32)(i % K);
    }
    if (n > 4) { /* nothing at all, nearly nothing, one value far away, no numbers, an expert that is none */
        for (i64 c = 0; c < h; c++) s.x[h + c] = 0, s.x[2 * h + c] = f32_to_bf16(c % 2 ? 0x1p-101f : -0x1p-102f);
        s.x[3 * h + 40] = f32_to_bf16(-300.0f), s.x[4 * h] = f32_to_bf16(INFINITY);
        s.ids[1] = -1;
    }
    return s;
}

static void drop(scene *s) { free(s->memory), free(s->x), free(s->shared), free(s->out); }

/* Rows [first, first + n) at a level; false where the processor lacks it. */
static bool run(scene *s, const char *level, i64 first, i64 n, bf16 *out) {
    const i64 h = s->k->hidden;
    const weight_desc d = {.kind = WK_EXPERTS, .views = s->v, .n_views = 3 * EXPERTS, .experts = EXPERTS_W4A8};
    moe_args a = {.x = s->x + first * h,
                  .ids = s->ids + first * K,
                  .weights = s->weights + first * K,
                  .shared = s->shared + first * h,
                  .out = out,
                  .n = n,
                  .k = K};
    return moe_at_level(level, &d, a);
}

/* ---- The arithmetic, a value at a time ---- */

typedef struct {
    int q[COLS_MOST];
    f32 scale;
} bytes;

static void to_bytes(const f32 *v, i64 n, bytes *b) {
    f32 most = 0;
    bool finite = true;
    for (i64 c = 0; c < n; c++) most = fmaxf(most, fabsf(v[c])), finite = finite && isfinite(v[c]);
    const bool none = !finite || most < 0x1p-100f;
    b->scale = !finite ? NAN : none ? 0 : most / 127.0f;
    for (i64 c = 0; c < n; c++) b->q[c] = none ? 0 : (int)nearbyintf(v[c] * (127.0f / most));
}

static f32 times_row(const weight_view *w, i64 row, const bytes *x) {
    const i64 groups = w->cols / 32;
    const bf16 *scales = (const bf16 *)w->scale + row * groups;
    const u8 *codes = (const u8 *)w->data + row * (w->cols / 2);
    int most_bits = 0, sum = 0;
    for (i64 g = 0; g < groups; g++) {
        const int bits = (scales[g] & 0x7fff) + (scales[g] & 0x8000 ? 2 : 0);
        if (bits > most_bits) most_bits = bits;
    }
    const f32 most = most_bits >= 0x7f80 ? NAN : bf16_to_f32((bf16)most_bits);
    const bool used = most >= 0x1p-100f;
    for (i64 c = 0; c < w->cols && used; c++) {
        /* a product of at most 8 and 24 bits: exact in float64, rounded once */
        const int m = (int)nearbyint((f64)bf16_to_f32(scales[c / 32]) * (f64)(256.0f / most));
        const int number = (codes[c / 2] >> c % 2 * 4 & 15) - 8;
        sum += (int)floor((number * m + 8) / 16.0) * x->q[c];
    }
    return (f32)sum * ((isnan(most) ? NAN : used ? most / 16.0f : 0) * x->scale);
}

static void as_said(const scene *s, i64 token, bf16 *out) {
    const i64 hidden = s->k->hidden, inter = s->k->inter;
    bytes x, h;
    f32 sum[COLS_MOST] = {0}, v[COLS_MOST];
    for (i64 c = 0; c < hidden; c++) v[c] = bf16_to_f32(s->x[token * hidden + c]);
    to_bytes(v, hidden, &x);
    for (int k = 0; k < K; k++) {
        const i32 e = s->ids[token * K + k];
        if (e < 0) continue;
        for (i64 i = 0; i < inter; i++) {
            const f32 gate = times_row(&s->v[3 * e], i, &x), up = times_row(&s->v[3 * e + 1], i, &x);
            v[i] = bf16_to_f32(f32_to_bf16(gate / (1 + exp_as_vectors(0 - gate)) * up));
        }
        to_bytes(v, inter, &h);
        for (i64 c = 0; c < hidden; c++)
            sum[c] = fmaf(s->weights[token * K + k], times_row(&s->v[3 * e + 2], c, &h), sum[c]);
    }
    for (i64 c = 0; c < hidden; c++) out[c] = f32_to_bf16(sum[c] + bf16_to_f32(s->shared[token * hidden + c]));
}

/* ---- What is held ---- */

static void same_bits(const char *what, const char *level, i64 token, const bf16 *got, const bf16 *want, i64 n) {
    for (i64 c = 0; c < n; c++)
        if (got[c] != want[c] && !(isnan(bf16_to_f32(got[c])) && isnan(bf16_to_f32(want[c]))))
            fail_msg("%s, token %lld%s, column %lld: %g, not %g", level, (long long)token, what, (long long)c,
                     (f64)bf16_to_f32(got[c]), (f64)bf16_to_f32(want[c]));
}

static void one_kind(void **state) {
    scene s = make(*state);
    const i64 h = s.k->hidden, n = s.k->rows, alone = n / 2;
    bf16 *want = malloc((size_t)(n * h) * sizeof *want), piece[5 * COLS_MOST];
    int nans = 0;
    for (i64 t = 0; t < n; t++) as_said(&s, t, want + t * h);
    for (i64 i = 0; i < n * h; i++) nans += isnan(bf16_to_f32(want[i]));
    if (s.k->odd_scales) assert_true(nans > 0 && nans < n * h);
    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        if (!run(&s, levels[l], 0, n, s.out)) continue;
        for (i64 t = 0; t < n; t++) same_bits("", levels[l], t, s.out + t * h, want + t * h, h);
        for (i64 some = 1; some <= min_i64(5, n - alone); some++) { /* each form of few tokens, and the next one */
            assert_true(run(&s, levels[l], alone, some, piece));
            for (i64 t = 0; t < some; t++)
                same_bits(" alone", levels[l], alone + t, piece + t * h, want + (alone + t) * h, h);
        }
    }
    free(want);
    drop(&s);
}

/* The format's own groups are as far from int8 as ever where a shape is not in whole blocks. */
static void other_shapes(void **state) {
    (void)state;
    static const kind k = {"", 96, 32, 9, false, false};
    scene s = make(&k);
    bf16 alone[96];
    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        if (!run(&s, levels[l], 0, k.rows, s.out)) continue;
        assert_true(run(&s, levels[l], 7, 1, alone));
        assert_memory_equal(alone, s.out + 7 * 96, sizeof alone);
    }
    drop(&s);
}

int main(void) {
    static kind kinds[] = {{"one token", 448, 192, 1, false, false},
                           {"a few", 192, 320, 4, false, false},
                           {"some", 128, 64, 23, false, false},
                           {"half a step of columns", 64, 64, 40, false, false},
                           {"hundreds of an expert", 320, 128, ROWS_MOST, false, true},
                           {"odd scales", 320, 192, 60, true, false}};
    struct CMUnitTest tests[COUNT_OF(kinds) + 1];
    if (!(cpu_isa() & ISA_AVX2)) {
        printf("[  SKIPPED ] %zu test(s): no AVX2\n", COUNT_OF(tests));
        return 0;
    }
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        tests[i] = (struct CMUnitTest){kinds[i].name, one_kind, NULL, NULL, &kinds[i]};
    tests[COUNT_OF(kinds)] = (struct CMUnitTest){"shapes that are not for int8", other_shapes, NULL, NULL, NULL};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
