/* The bits of a row do not depend on the other rows of a call, on how a prompt is cut into chunks, or on the
 * number of threads: rows alone, in batches of many sizes cut at odd places, one thread and two. Every level
 * of instruction sets that this processor has. */
#include "unit.h"
#include <stdlib.h>

#include "cmd/lib/synthetic.c" /* cmd/ is no part of the library */
#include "kernels/ops.h"

enum { ROWS = 70 };
static const i64 cuts[][8] = {
    {1, 1, 1, 1, 1, 1, 1, 63}, {2, 3, 5, 7, 11, 13, 17, 12}, {69, 1}, {33, 37}, {4, 60, 6}, {65, 5}};

static synth rng = {7};
static ops cpu;

static bf16 *values(i64 n, f32 sigma) {
    bf16 *p = malloc((u64)n * 2);
    synth_fill_bf16(&rng, p, n, sigma);
    return p;
}

typedef struct {
    op_weight *w;
    void *memory;
} matrix;

static matrix make(weight_kind kind, weight_format f, i64 rows, i64 cols, i64 heads, i64 nope, i64 v_dim) {
    void *m = aligned_alloc(64, synth_weight_bytes(f, rows, cols));
    weight_view v = synth_weight(&rng, f, rows, cols, 0.1f, m);
    weight_desc d = {.kind = kind, .views = &v, .n_views = 1, .n_heads = heads, .nope = nope, .v_dim = v_dim};
    matrix x = {NULL, m};
    assert_int_equal(cpu.weight_prepare(&cpu, &d, &x.w, NULL), ST_OK);
    return x;
}

static void drop(matrix m) {
    cpu.weight_release(m.w);
    free(m.memory);
}

/* Runs `rows first..first + n` of an op into out [ROWS, width] (the whole array is given). */
typedef void (*run_rows)(void *ctx, i64 first, i64 n, bf16 *out);

/* All rows at once with one thread is the measure; `alone` also runs each row by itself. */
static void compare(const char *what, run_rows run, void *ctx, i64 width) {
    bf16 *want = calloc((u64)(ROWS * width), 2), *got = calloc((u64)(ROWS * width), 2);
    ops_set_threads(1);
    run(ctx, 0, ROWS, want);
    for (int threads = 1; threads <= 2; threads++) {
        ops_set_threads(threads);
        for (size_t c = 0; c <= COUNT_OF(cuts); c++) {
            if (threads == 1 && c > 0 && c < COUNT_OF(cuts)) continue; /* few with one, all with two */
            memset(got, 0, (u64)(ROWS * width) * 2);
            i64 at = 0;
            for (int p = 0; at < ROWS; p++) { /* the last round: each row alone */
                i64 n = c < COUNT_OF(cuts) ? cuts[c][p] : 1;
                run(ctx, at, n, got);
                at += n;
            }
            for (i64 i = 0; i < ROWS * width; i++)
                if (got[i] != want[i])
                    fail_msg("%s on %s: row %lld differs, cut %zu, %d threads", what, cpu.name, (long long)(i / width),
                             c, threads);
        }
    }
    free(want);
    free(got);
}

typedef struct {
    op_weight *w, *w2;
    const bf16 *x;
    i64 in, out;
} dense;

static void run_linear(void *ctx, i64 first, i64 n, bf16 *out) {
    dense *d = ctx;
    linear_args a = {d->w, d->x + first * d->in, out + first * d->out, n, d->in, d->out, DT_BF16};
    cpu.linear(&cpu, &a);
}

static void run_swiglu(void *ctx, i64 first, i64 n, bf16 *out) {
    dense *d = ctx;
    swiglu_args a = {d->w, d->w2, d->x + first * d->in, out + first * d->out, n, d->in, d->out};
    cpu.swiglu(&cpu, &a);
}

static void run_norm(void *ctx, i64 first, i64 n, bf16 *out) {
    dense *d = ctx;
    norm_args a = {.weight = d->w2,
                   .x = d->x + first * d->in,
                   .out = out + first * d->in,
                   .n = n,
                   .dim = d->in,
                   .x_stride = d->in,
                   .out_stride = d->in,
                   .eps = 1e-6f};
    cpu.norm(&cpu, &a);
}

static void dense_level(void) {
    for (int f = 0; f <= WF_INT4_GROUP; f++) {
        dense d = {.in = 160, .out = 21};
        matrix w = make(WK_LINEAR, (weight_format)f, d.out, d.in, 0, 0, 0),
               w2 = make(WK_LINEAR, (weight_format)f, d.out, d.in, 0, 0, 0);
        bf16 *x = values(ROWS * d.in, 1.0f);
        d.w = w.w, d.w2 = w2.w, d.x = x;
        compare("linear", run_linear, &d, d.out);
        compare("swiglu", run_swiglu, &d, d.out);
        drop(w), drop(w2);
        matrix v = make(WK_VECTOR, WF_BF16, 1, d.in, 0, 0, 0);
        d.w2 = v.w;
        if (f == 0) compare("norm", run_norm, &d, d.in);
        drop(v);
        free(x);
    }
}

typedef struct {
    op_weight *w;
    const bf16 *x;
    i64 hidden, k;
    const i32 *ids;
    const f32 *weights;
} experts;

static void run_moe(void *ctx, i64 first, i64 n, bf16 *out) {
    experts *e = ctx;
    moe_args a = {.experts = e->w,
                  .x = e->x + first * e->hidden,
                  .ids = e->ids + first * e->k,
                  .weights = e->weights + first * e->k,
                  .shared = e->x + first * e->hidden,
                  .out = out + first * e->hidden,
                  .n = n,
                  .k = e->k};
    u64 bytes = cpu.moe_workspace(&cpu, &a);
    a.workspace = aligned_alloc(64, (bytes + 63) & ~(u64)63);
    memset(a.workspace, 0x7f, bytes); /* NaN in most types */
    cpu.moe(&cpu, &a);
    free(a.workspace);
}

static void moe_level(weight_format f, i64 hidden, i64 inter) {
    enum { EXPERTS = 5, K = 3 };
    weight_view v[3 * EXPERTS];
    u64 up = synth_weight_bytes(f, inter, hidden), down = synth_weight_bytes(f, hidden, inter);
    u8 *memory = aligned_alloc(64, (2 * up + down) * EXPERTS), *m = memory;
    for (int e = 0; e < EXPERTS; e++, m += 2 * up + down) {
        v[3 * e] = synth_weight(&rng, f, inter, hidden, 0.1f, m);
        v[3 * e + 1] = synth_weight(&rng, f, inter, hidden, 0.1f, m + up);
        v[3 * e + 2] = synth_weight(&rng, f, hidden, inter, 0.1f, m + 2 * up);
    }
    weight_desc d = {.kind = WK_EXPERTS, .views = v, .n_views = 3 * EXPERTS};
    op_weight *w;
    assert_int_equal(cpu.weight_prepare(&cpu, &d, &w, NULL), ST_OK);
    bf16 *x = values(ROWS * hidden, 1.0f);
    i32 ids[ROWS * K];
    f32 weights[ROWS * K];
    synth_ids(&rng, ids, ROWS, K, EXPERTS);
    for (int i = 0; i < ROWS * K; i++) weights[i] = 0.2f + 0.1f * synth_uniform(&rng);
    ids[5] = -1, ids[9] = EXPERTS;
    experts e = {w, x, hidden, K, ids, weights};
    compare(weight_format_name(f), run_moe, &e, hidden);
    cpu.weight_release(w);
    free(memory);
    free(x);
}

typedef struct {
    op_weight *kv_b;
    const bf16 *q, *x;
    const void *kv;
    const i32 *pages, *len;
    dtype t;
    i64 heads, nope, rope, latent, v_dim, pos0;
} attention;

static void run_decode(void *ctx, i64 first, i64 n, bf16 *out) {
    attention *t = ctx;
    i64 width = t->latent + t->rope;
    mla_decode_args a = {.q = t->x + first * t->heads * width,
                         .kv = t->kv,
                         .pages = t->pages + first * 3,
                         .kv_len = t->len + first,
                         .out = out + first * t->heads * t->latent,
                         .kv_type = t->t,
                         .n = n,
                         .n_heads = t->heads,
                         .latent = t->latent,
                         .rope = t->rope,
                         .pages_stride = 3,
                         .scale = 0.1f};
    a.workspace = malloc(cpu.mla_decode_workspace(&cpu, &a));
    cpu.mla_decode(&cpu, &a);
    free(a.workspace);
}

/* Chunks of one prompt. */
static void run_prefill(void *ctx, i64 first, i64 n, bf16 *out) {
    attention *t = ctx;
    mla_prefill_args a = {.kv_b = t->kv_b,
                          .q = t->q + first * t->heads * (t->nope + t->rope),
                          .kv = t->kv,
                          .pages = t->pages,
                          .out = out + first * t->heads * t->v_dim,
                          .kv_type = t->t,
                          .n = n,
                          .pos0 = t->pos0 + first,
                          .n_heads = t->heads,
                          .nope = t->nope,
                          .rope = t->rope,
                          .latent = t->latent,
                          .v_dim = t->v_dim,
                          .scale = 0.1f};
    a.workspace = malloc(cpu.mla_prefill_workspace(&cpu, &a));
    cpu.mla_prefill(&cpu, &a);
    free(a.workspace);
}

static void run_absorb(void *ctx, i64 first, i64 n, bf16 *out) {
    attention *t = ctx;
    absorb_q_args a = {t->kv_b,
                       t->q + first * t->heads * (t->nope + t->rope),
                       out + first * t->heads * (t->latent + t->rope),
                       n,
                       t->heads,
                       t->nope,
                       t->rope,
                       t->latent};
    cpu.absorb_q(&cpu, &a);
}

static void run_unabsorb(void *ctx, i64 first, i64 n, bf16 *out) {
    attention *t = ctx;
    unabsorb_v_args a = {
        t->kv_b, t->x + first * t->heads * t->latent, out + first * t->heads * t->v_dim, n, t->heads, t->latent,
        t->v_dim};
    cpu.unabsorb_v(&cpu, &a);
}

static void attention_level(void) {
    attention t = {.heads = 2, .nope = 24, .rope = 8, .latent = 72, .v_dim = 20, .pos0 = 61};
    i64 width = t.latent + t.rope, cells = 4 * KV_PAGE * width;
    matrix w = make(WK_KV_B, WF_BF16, t.heads * (t.nope + t.v_dim), t.latent, t.heads, t.nope, t.v_dim);
    bf16 *q = values(ROWS * t.heads * (t.nope + t.rope), 1.0f), *x = values(ROWS * t.heads * width, 1.0f);
    i32 pages[ROWS * 3], len[ROWS];
    for (int i = 0; i < ROWS; i++) {
        len[i] = 1 + (i * 37) % 140;
        for (int p = 0; p < 3; p++) pages[i * 3 + p] = (p + (i > 0) * i) % 4;
    }
    t.kv_b = w.w, t.q = q, t.x = x, t.pages = pages, t.len = len;
    void *kv = malloc((u64)cells * 4);
    for (int type = 0; type < 3; type++) {
        t.t = type == 0 ? DT_F32 : type == 1 ? DT_BF16 : DT_F8_E4M3;
        for (i64 i = 0; i < cells; i++) {
            f32 v = synth_normal(&rng);
            if (type == 0) ((f32 *)kv)[i] = v;
            if (type == 1) ((bf16 *)kv)[i] = f32_to_bf16(v);
            if (type == 2) ((u8 *)kv)[i] = f32_to_f8_e4m3(v);
        }
        t.kv = kv;
        compare("mla_decode", run_decode, &t, t.heads * t.latent);
        compare("mla_prefill", run_prefill, &t, t.heads * t.v_dim);
    }
    compare("absorb_q", run_absorb, &t, t.heads * width);
    compare("unabsorb_v", run_unabsorb, &t, t.heads * t.v_dim);
    drop(w);
    free(q), free(x), free(kv);
}

typedef struct {
    const bf16 *q;
    const f32 *table;
    const void *kv;
    const i32 *pages, *len;
    dtype t;
    i64 heads, kv_heads, dim;
} draft_attention;

static void run_heads(void *ctx, i64 first, i64 n, bf16 *out) {
    draft_attention *t = ctx;
    heads_decode_args a = {.q = t->q + first * t->heads * t->dim,
                           .table = t->table + first * t->dim,
                           .kv = t->kv,
                           .pages = t->pages + first * 3,
                           .kv_len = t->len + first,
                           .out = out + first * t->heads * t->dim,
                           .kv_type = t->t,
                           .n = n,
                           .n_heads = t->heads,
                           .kv_heads = t->kv_heads,
                           .dim = t->dim,
                           .pages_stride = 3,
                           .scale = 0.1f};
    a.workspace = malloc(cpu.heads_decode_workspace(&cpu, &a));
    cpu.heads_decode(&cpu, &a);
    free(a.workspace);
}

/* Of a Llama-type draft, with as many KV heads as heads, and with fewer. */
static void heads_level(void) {
    static const dtype types[] = {DT_F32, DT_BF16, DT_F8_E4M3};
    enum { DIM = 40, PAGES = 4 };
    i32 pages[ROWS * 3], len[ROWS];
    f32 table[ROWS * DIM];
    for (int i = 0; i < ROWS; i++) {
        len[i] = 1 + (i * 37) % 140;
        for (int p = 0; p < 3; p++) pages[i * 3 + p] = (p + i) % PAGES;
    }
    for (int i = 0; i < ROWS * DIM; i++) table[i] = synth_uniform(&rng);
    for (int shape = 0; shape < 2; shape++) {
        draft_attention t = {.table = table, .pages = pages, .len = len, .heads = shape ? 7 : 2, .dim = DIM};
        t.kv_heads = shape ? 1 : 2;
        const i64 cells = PAGES * KV_PAGE * 2 * t.kv_heads * DIM;
        bf16 *q = values(ROWS * t.heads * DIM, 1.0f), *from = values(cells, 1.0f);
        void *kv = malloc((u64)cells * 4);
        t.q = q, t.kv = kv;
        for (size_t type = 0; type < COUNT_OF(types); type++) {
            t.t = types[type];
            for (i64 i = 0; i < cells; i++) {
                if (t.t == DT_F32) ((f32 *)kv)[i] = bf16_to_f32(from[i]);
                if (t.t == DT_BF16) ((bf16 *)kv)[i] = from[i];
                if (t.t == DT_F8_E4M3) ((u8 *)kv)[i] = f32_to_f8_e4m3(bf16_to_f32(from[i]));
            }
            compare("heads_decode", run_heads, &t, t.heads * DIM);
        }
        free(q), free(from), free(kv);
    }
}

/* Sums that lie exactly between two bf16 values, or next to there, are rounded as f32_to_bf16 does: to even. A half
 * of x's last place added to every mantissa of x leaves a remainder of 0x8000 behind odd and even ones. */
static void ties_level(void) {
    enum { N = 128 * 8 };
    const u16 halves[4] = {0x3f80 - (8 << 7), 0x3f81 - (8 << 7), 0x3f7f - (8 << 7), 0};
    bf16 x[N], y[N], sum[N], out[N];
    for (int i = 0; i < N; i++) {
        bf16 sign = i / 512 ? 0x8000 : 0;
        x[i] = sign | (bf16)(0x3f80 + i % 128);
        y[i] = halves[i / 128 % 4] ? sign | halves[i / 128 % 4] : 0;
    }
    matrix w = make(WK_VECTOR, WF_BF16, 1, N, 0, 0, 0);
    norm_args a = {.weight = w.w, .x = x, .add = y, .sum = sum, .out = out, .n = 1, .dim = N, .eps = 1e-6f};
    a.x_stride = a.out_stride = N;
    cpu.norm(&cpu, &a);
    int ties = 0;
    for (int i = 0; i < N; i++) {
        f32 exact = bf16_to_f32(x[i]) + bf16_to_f32(y[i]);
        u32 bits;
        memcpy(&bits, &exact, sizeof bits);
        ties += (bits & 0xffff) == 0x8000;
        if (sum[i] != f32_to_bf16(exact))
            fail_msg("%s rounds %a to %04x, not %04x", cpu.name, (f64)exact, sum[i], f32_to_bf16(exact));
    }
    assert_true(ties >= 256);
    drop(w);
}

static void level(void **state) {
    u32 mask;
    assert_int_equal(cpu_isa_parse(*state, &mask, NULL), ST_OK);
    if (strcmp(*state, "all") && (cpu_isa() & mask) != mask) skip();
    assert_int_equal(ops_init_cpu(&cpu, DT_BF16, mask, NULL), ST_OK);
    ties_level();
    dense_level();
    attention_level();
    heads_level();
    for (int f = 0; f < WF_COUNT; f++)
        if (!weight_layout_of((weight_format)f)->kept_as) moe_level((weight_format)f, 160, 64);
    moe_level(WF_INT4_GROUP, 320, 160);
}

int main(void) {
    static const char *const names[] = {"none", "avx2", "avxvnni", "avx512", "vnni", "bf16", "noamx", "all"};
    struct CMUnitTest tests[COUNT_OF(names)];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        tests[i] = (struct CMUnitTest){names[i], level, NULL, NULL, (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
