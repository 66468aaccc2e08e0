/* cmd/check/check_deferred_norm.c: a product or experts, the norm behind them, and what takes its rows, finished or
 * not. */
#include "cmd/check/check_gemm_shapes.h"
#include <math.h>
#include <string.h>

static const f64 deferred_F32_BOUND = 4e-3 /* the rows in between are rounded */;
/* Two sub-layers round twice as often: 4.7e-3 in scores of a backend that computes as ref does and rounds what it
 * stores. */
static const f64 TWICE = 1.5;

typedef struct {
    check_act x, add, h;
    deferred_norm deferred;
    i32 *bad;
} later_rows;

static later_rows deferred_make_rows(check *c, i64 n, i64 dim) {
    later_rows r = {.x = check_input(c, n * dim, 2.0f),
                    .add = check_output(c, n * dim),
                    .h = check_output(c, n * dim),
                    .bad = check_alloc(c, (u64)n * 4)};
    r.deferred.squares = check_alloc(c, (u64)DEFERRED_ROWS * DEFERRED_PARTS * 4);
    r.deferred.parts = 77;
    for (i64 i = 0; i < n; i++) r.bad[i] = 0;
    return r;
}

static norm_args deferred_norm_of(const later_rows *r, const op_weight *w, bool device, i64 n, i64 dim) {
    void *x = device ? (void *)r->x.h : r->x.f, *add = device ? (void *)r->add.h : r->add.f;
    return (norm_args){.weight = w,
                       .x = x,
                       .add = add,
                       .sum = x,
                       .out = device ? (void *)r->h.h : r->h.f,
                       .n = n,
                       .dim = dim,
                       .x_stride = dim,
                       .out_stride = dim,
                       .eps = 1e-6f};
}

/* Two products of the rows, one in float32, and the residual stream. more: what their bounds are multiplied with. */
static void deferred_compare(check *c, later_rows *r, i64 n, i64 dim, f64 more) {
    enum { ROUTER = 40 };
    bool gpu = check_on_gpu(c);
    i64 rows = n % 3 == 1 ? 72 : gpu ? 9000 : n % 3 ? 136 : 328; /* few tiles; more than blocks, which share them */
    check_weight w = check_matrix(c, WK_LINEAR, WF_BF16, ROUTER, dim, 1.0f / sqrtf((f32)dim));
    check_weight gate = check_matrix(c, WK_LINEAR, WF_BF16, rows, dim, 1.0f / sqrtf((f32)dim));
    check_weight up = check_matrix(c, WK_LINEAR, WF_BF16, rows, dim, 1.0f / sqrtf((f32)dim));
    check_act y = check_output(c, n * rows), s = check_output(c, n * ROUTER);
    f32 *scores = check_alloc(c, (u64)(n * ROUTER) * 4);
    linear_group_args a = {.of = {{.w = w.dev, .y = scores, .y_stride = ROUTER, .y_type = DT_F32},
                                  {.w = gate.dev, .up = up.dev, .y = y.h, .y_stride = rows}},
                           .count = 2,
                           .x = r->h.h,
                           .n = n,
                           .x_stride = dim,
                           .deferred = &r->deferred},
                      b = {.of = {{.w = w.ref, .y = s.f, .y_stride = ROUTER, .y_type = DT_F32},
                                  {.w = gate.ref, .up = up.ref, .y = y.f, .y_stride = rows}},
                           .count = 2,
                           .x = r->h.f,
                           .n = n,
                           .x_stride = dim};
    fused_linear_group(c->dev, &a);
    fused_linear_group(c->ref, &b);
    check_compare(c, "residual stream", r->x.h, DT_BF16, r->x.f, n, dim, dim, more * CHECK_BF16_BOUND);
    check_compare(c, "scores of its norm", scores, DT_F32, s.f, n, ROUTER, ROUTER, more * deferred_F32_BOUND);
    /* both factors of a value are products of rows that were rounded twice */
    check_compare(c, "swiglu of its norm", y.h, DT_BF16, y.f, n, rows, rows, 2 * more * CHECK_BF16_BOUND);
}

/* The same of two products whose tiles are a block's alone (kernels/gpu/gemm/skinny_few.cu). */
static void deferred_products(check *c, later_rows *r, i64 n, i64 dim) {
    const bool large = check_on_gpu(c) && !check_emulated(c);
    const i64 rows = large ? 2000 : 13, few = large ? 90 : 9;
    check_weight w = check_matrix(c, WK_LINEAR, WF_BF16, rows, dim, 1.0f / sqrtf((f32)dim));
    check_weight v = check_matrix(c, WK_LINEAR, WF_BF16, few, dim, 1.0f / sqrtf((f32)dim));
    check_act y = check_output(c, n * rows), z = check_output(c, n * few);
    f32 *z32 = check_alloc(c, (u64)(n * few) * 4);
    linear_group_args a = {.of = {{.w = w.dev, .y = y.h, .y_stride = rows, .y_type = DT_BF16},
                                  {.w = v.dev, .y = z32, .y_stride = few, .y_type = DT_F32}},
                           .count = 2,
                           .x = r->h.h,
                           .n = n,
                           .x_stride = dim,
                           .deferred = &r->deferred},
                      b = {.of = {{.w = w.ref, .y = y.f, .y_stride = rows, .y_type = DT_F32},
                                  {.w = v.ref, .y = z.f, .y_stride = few, .y_type = DT_F32}},
                           .count = 2,
                           .x = r->h.f,
                           .n = n,
                           .x_stride = dim};
    fused_linear_group(c->dev, &a);
    fused_linear_group(c->ref, &b);
    check_compare(c, "product of its norm", y.h, DT_BF16, y.f, n, rows, rows, 2 * CHECK_BF16_BOUND);
    check_compare(c, "the same in float32", z32, DT_F32, z.f, n, few, few, TWICE * deferred_F32_BOUND); /* few values */
}

static void linear_case(check *c, i64 n, i64 cols, i64 dim, weight_format f) {
    check_weight w = check_matrix(c, WK_LINEAR, f, dim, cols, 1.0f / sqrtf((f32)cols));
    check_weight norm = check_matrix(c, WK_VECTOR, WF_BF16, 1, dim, 1.0f);
    check_act in = check_input(c, n * cols, 1.0f);
    later_rows r = deferred_make_rows(c, n, dim);
    linear_norm_args a = {.linear = {w.dev, in.h, r.add.h, n, cols, dim, DT_BF16},
                          .norm = deferred_norm_of(&r, norm.dev, true, n, dim),
                          .deferred = &r.deferred},
                     b = {.linear = {w.ref, in.f, r.add.f, n, cols, dim, DT_F32},
                          .norm = deferred_norm_of(&r, norm.ref, false, n, dim)};
    fused_linear_norm(c->dev, &a);
    fused_linear_norm(c->ref, &b);
    if (n <= 4) deferred_products(c, &r, n, dim); /* first: who cannot take such rows has them finished */
    deferred_compare(c, &r, n, dim, 1);
    check_case_end(c);
}

enum { EXPERTS = 5, EXPERTS_MOST = 40, INTER = 64, K = 3 };
static check_weight deferred_make_experts(check *c, weight_format f, i64 hidden, i64 experts) {
    weight_view v[3 * EXPERTS_MOST];
    u64 up = synth_weight_bytes(f, INTER, hidden), down = synth_weight_bytes(f, hidden, INTER);
    u8 *m = check_alloc(c, (2 * up + down) * (u64)experts);
    for (i64 e = 0; e < experts; e++, m += 2 * up + down) {
        v[3 * e] = synth_weight(&c->rng, f, INTER, hidden, 1.0f / sqrtf((f32)hidden), m);
        v[3 * e + 1] = synth_weight(&c->rng, f, INTER, hidden, 1.0f / sqrtf((f32)hidden), m + up);
        v[3 * e + 2] = synth_weight(&c->rng, f, hidden, INTER, 1.0f / sqrtf((f32)INTER), m + 2 * up);
    }
    return check_prepare(c, (weight_desc){.kind = WK_EXPERTS, .views = v, .n_views = 3 * experts});
}

static void deferred_moe_case(check *c, i64 n, i64 hidden, weight_format f, i64 experts, bool shared, bool mark) {
    check_weight w = deferred_make_experts(c, f, hidden, experts);
    check_weight norm = check_matrix(c, WK_VECTOR, WF_BF16, 1, hidden, 1.0f);
    check_act in = check_input(c, n * hidden, 1.0f), also = check_input(c, n * hidden, 0.3f);
    later_rows r = deferred_make_rows(c, n, hidden);
    i32 *ids = check_alloc(c, (u64)(n * K) * 4);
    f32 *weights = check_alloc(c, (u64)(n * K) * 4);
    for (i64 j = 0; j < n * K; j++) ids[j] = (i32)(synth_bits(&c->rng) % (u64)experts), weights[j] = 0.4f;
    if (n > 8) ids[n * K / 3] = -1, ids[n * K / 2] = (i32)experts;
    moe_norm_args a = {.moe = {w.dev, in.h, ids, weights, shared ? also.h : NULL, r.add.h, NULL, n, K, NULL, false, 0,
                               NULL},
                       .norm = deferred_norm_of(&r, norm.dev, true, n, hidden),
                       .deferred = &r.deferred},
                  b = {.moe = {w.ref, in.f, ids, weights, shared ? also.f : NULL, r.add.f, NULL, n, K, NULL, false, 0,
                               NULL},
                       .norm = deferred_norm_of(&r, norm.ref, false, n, hidden)};
    a.moe.workspace = check_alloc(c, c->dev->moe_workspace(c->dev, &a.moe));
    b.moe.workspace = check_alloc(c, c->ref->moe_workspace(c->ref, &b.moe));
    i64 bad = n / 2;
    check_act before = check_output(c, n * hidden), sum = check_output(c, n * hidden), h = check_output(c, n * hidden);
    if (mark) { /* and once before it */
        u64 bytes = (u64)(n * hidden) * 2;
        memcpy(before.h, r.x.h, bytes);
        fused_moe_norm(c->dev, &a);
        memcpy(sum.h, r.x.h, bytes), memcpy(h.h, r.h.h, bytes), memcpy(r.x.h, before.h, bytes);
        a.norm.bad = r.bad, a.norm.mark = 9;
        if (shared) r.bad[bad] = 4; /* an earlier mark stays */
        r.x.h[bad * hidden + hidden - 3] = CHECK_BAD;
    }
    fused_moe_norm(c->dev, &a);
    if (mark) {
        check_isolated(c, "moe_norm's sum", sum.h, r.x.h, n, hidden, bad);
        check_isolated(c, "moe_norm", h.h, r.h.h, n, hidden, bad);
    }
    for (i64 i = 0; mark && i < n; i++)
        if (r.bad[i] != (i != bad ? 0 : shared ? 4 : 9))
            check_fail(c, "moe_norm: mark of row %lld is %d", (long long)i, r.bad[i]);
    if (!mark) {
        fused_moe_norm(c->ref, &b);
        deferred_compare(c, &r, n, hidden, 1);
    }
    check_case_end(c);
}

/* A product's rows, unfinished, to experts, whose own go to products. */
static void chain_case(check *c, i64 n, i64 hidden, i64 experts, bool bad) {
    enum { COLS = 256 };
    check_weight o = check_matrix(c, WK_LINEAR, WF_BF16, hidden, COLS, 1.0f / sqrtf((f32)COLS));
    check_weight norm = check_matrix(c, WK_VECTOR, WF_BF16, 1, hidden, 1.0f);
    check_weight w = deferred_make_experts(c, WF_INT4_GROUP, hidden, experts);
    check_act in = check_input(c, n * COLS, 1.0f), d = check_output(c, n * hidden);
    later_rows r = deferred_make_rows(c, n, hidden);
    i32 *ids = check_alloc(c, (u64)(n * K) * 4);
    f32 *weights = check_alloc(c, (u64)(n * K) * 4);
    for (i64 j = 0; j < n * K; j++) ids[j] = (i32)(j * 3 % experts), weights[j] = 0.4f;
    linear_norm_args first = {.linear = {o.dev, in.h, r.add.h, n, COLS, hidden, DT_BF16},
                              .norm = deferred_norm_of(&r, norm.dev, true, n, hidden),
                              .deferred = &r.deferred},
                     first_ref = {.linear = {o.ref, in.f, r.add.f, n, COLS, hidden, DT_F32},
                                  .norm = deferred_norm_of(&r, norm.ref, false, n, hidden)};
    moe_norm_args a = {.moe = {w.dev, r.h.h, ids, weights, NULL, d.h, NULL, n, K, &r.deferred, false, 0, NULL},
                       .norm = first.norm,
                       .deferred = &r.deferred},
                  b = {.moe = {w.ref, r.h.f, ids, weights, NULL, d.f, NULL, n, K, NULL, false, 0, NULL},
                       .norm = first_ref.norm};
    a.moe.workspace = check_alloc(c, c->dev->moe_workspace(c->dev, &a.moe));
    b.moe.workspace = check_alloc(c, c->ref->moe_workspace(c->ref, &b.moe));
    a.norm.add = d.h, b.norm.add = d.f;
    if (bad) {
        a.norm.bad = r.bad, a.norm.mark = 9;
        r.x.h[(n / 2) * hidden] = CHECK_BAD;
    }
    fused_linear_norm(c->dev, &first);
    fused_moe_norm(c->dev, &a);
    for (i64 i = 0; bad && i < n; i++)
        if (r.bad[i] != (i == n / 2 ? 9 : 0))
            check_fail(c, "linear_norm and moe_norm: mark of row %lld is %d", (long long)i, r.bad[i]);
    if (!bad) {
        fused_linear_norm(c->ref, &first_ref);
        fused_moe_norm(c->ref, &b);
        deferred_compare(c, &r, n, hidden, TWICE);
    }
    check_case_end(c);
}

/* linear: one block a tile and clusters, every width of wgmma, tiles of more than 32 rows, tiles that do not fill,
 * too many rows and weights that it does not take. */
void check_linear_norm(check *c) {
    static const struct {
        i64 n, cols, dim;
    } s[] = {{1, 1024, 7168},
             {3, 256, 512},
             {8, 512, 320},
             {13, 192, 1024},
             {20, 2048, 136},
             {40, 128, 640},
             {64, 1024, 512},
             {70, 64, 256},
             {5, 48, 40},
             {20, 64, 5632},
             /* a tile a block, of 16, 32 and 64 rows: of 132 multiprocessors, and of an emulated GPU's two */
             {2, 256, 2048},
             {4, 512, 4200},
             {3, 64, 8320},
             {2, 256, 32},
             {4, 128, 48},
             {3, 64, 104},
             {4, 1024, 8320}, /* more than its ring holds */
             {4, 1920, 48},
             {3, 1088, 104}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int f = WF_BF16; f <= WF_INT4_GROUP; f += WF_INT4_GROUP - WF_BF16)
            if (f == WF_BF16 || s[i].cols % 64 == 0) linear_case(c, s[i].n, s[i].cols, s[i].dim, (weight_format)f);
    check_gemm_shapes(c, G_ADD);
}

void check_moe_norm(check *c) {
    static const struct {
        i64 n, hidden, experts;
    } s[] = {{1, 7168, EXPERTS}, {2, 1088, EXPERTS},      {9, 2880, EXPERTS}, /* squares in three parts */
             {33, 320, EXPERTS}, {64, 1024, EXPERTS},     {66, 128, EXPERTS},
             {33, 1088, 14},     {70, 320, EXPERTS_MOST}, {66, 7168, 30}};
    for (size_t i = 0; i < COUNT_OF(s) - (check_emulated(c) ? 1 : 0); i++)
        for (int f = WF_BF16; f <= WF_INT4_GROUP; f += WF_INT4_GROUP - WF_BF16)
            for (int mark = 0; mark < 2; mark++)
                deferred_moe_case(c, s[i].n, s[i].hidden, (weight_format)f, s[i].experts, i % 2, mark);
    for (i64 n = 1; n <= 9; n += n < 5 ? 1 : 4)
        for (int bad = 0; bad < 2; bad++) chain_case(c, n, n == 2 ? 2112 : 448, EXPERTS, bad);
    for (int bad = 0; bad < 2; bad++) chain_case(c, 20, 448, EXPERTS_MOST, bad); /* more than one launch takes */
    chain_case(c, 4, 7168, EXPERTS, false);
}
