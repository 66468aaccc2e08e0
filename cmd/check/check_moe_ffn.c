/* cmd/check/check_moe_ffn.c: the feed-forward part of a layer with experts, rows finished before and behind or not. */
#include "cmd/check/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the residual stream and its norm, and of a product of that, in bounds of the experts' results: two layers'
 * worth of rounding to bf16, launch by launch 3.3e-3 to 4.7e-3. */
static const f64 MORE = 1.5, PRODUCT_MORE = 2;

typedef struct {
    i64 n, hidden, inter, experts, k, shared; /* shared: inter of the shared expert */
    weight_format format;
} shape;

/* Scores by which all rows choose clearly; all of them equal, so that the lowest experts are chosen; those of e and e +
 * 2 equal, which two lanes of ffn_fused.cu's gate have; the highest of two experts in each 64, which one lane has. */
typedef enum { SCORES_CLEAR, SCORES_EQUAL, SCORES_OF_TWINS, SCORES_OF_A_LANE } scores_kind;

typedef struct {
    check_weight router, gate, up, down, bias, experts, before, norm;
    check_act in, x, d, h, inter, shared;
    f32 *scores, *weights;
    i32 *ids, *bad;
    deferred_norm deferred;
} layer;

static check_weight ffn_make_experts(check *c, const shape *s) {
    weight_view *v = malloc((size_t)(3 * s->experts) * sizeof *v);
    u64 up = synth_weight_bytes(s->format, s->inter, s->hidden),
        down = synth_weight_bytes(s->format, s->hidden, s->inter);
    u8 *m = check_alloc(c, (2 * up + down) * (u64)s->experts);
    f32 wide = 1.0f / sqrtf((f32)s->hidden), narrow = 1.0f / sqrtf((f32)s->inter);
    for (i64 e = 0; v && e < s->experts; e++, m += 2 * up + down) {
        v[3 * e] = synth_weight(&c->rng, s->format, s->inter, s->hidden, wide, m);
        v[3 * e + 1] = synth_weight(&c->rng, s->format, s->inter, s->hidden, wide, m + up);
        v[3 * e + 2] = synth_weight(&c->rng, s->format, s->hidden, s->inter, narrow, m + 2 * up);
    }
    check_weight w = check_prepare(c, (weight_desc){.kind = WK_EXPERTS, .views = v, .n_views = 3 * s->experts});
    free(v);
    return w;
}

enum { BEFORE = 128 /* columns of the product in front */ };

static layer make_layer(check *c, const shape *s, scores_kind scores) {
    f32 wide = 1.0f / sqrtf((f32)s->hidden);
    layer l = {.router = check_matrix(c, WK_LINEAR, WF_BF16, s->experts, s->hidden, scores ? 0 : wide),
               .before = check_matrix(c, WK_LINEAR, WF_BF16, s->hidden, BEFORE, 1.0f / sqrtf((f32)BEFORE)),
               .norm = check_matrix(c, WK_VECTOR, WF_BF16, 1, s->hidden, 1.0f),
               .experts = ffn_make_experts(c, s),
               .in = check_input(c, s->n * BEFORE, 1.0f),
               .x = check_input(c, s->n * s->hidden, 1.0f),
               .d = check_output(c, s->n * s->hidden),
               .h = check_output(c, s->n * s->hidden),
               .scores = check_alloc(c, (u64)(s->n * s->experts) * 4),
               .weights = check_alloc(c, (u64)(s->n * s->k) * 4),
               .ids = check_alloc(c, (u64)(s->n * s->k) * 4),
               .bad = check_alloc(c, (u64)s->n * 4)};
    l.deferred.squares = check_alloc(c, (u64)DEFERRED_ROWS * DEFERRED_PARTS * 4);
    memset(l.bad, 0, (size_t)s->n * 4);
    if (!s->shared) return l;
    l.gate = check_matrix(c, WK_LINEAR, WF_BF16, s->shared, s->hidden, wide);
    l.up = check_matrix(c, WK_LINEAR, WF_BF16, s->shared, s->hidden, wide);
    l.down = check_matrix(c, WK_LINEAR, WF_BF16, s->hidden, s->shared, 1.0f / sqrtf((f32)s->shared));
    l.inter = check_output(c, s->n * s->shared), l.shared = check_output(c, s->n * s->hidden);
    return l;
}

static void *of(const check_act *a, bool dev) { return dev ? (void *)a->h : (void *)a->f; }
static const op_weight *weight_of(const check_weight *w, bool dev) { return dev ? w->dev : w->ref; }

static norm_args ffn_norm_of(const shape *s, const layer *l, bool dev) {
    return (norm_args){.weight = weight_of(&l->norm, dev),
                       .x = of(&l->x, dev),
                       .add = of(&l->d, dev),
                       .sum = of(&l->x, dev),
                       .out = of(&l->h, dev),
                       .n = s->n,
                       .dim = s->hidden,
                       .x_stride = s->hidden,
                       .out_stride = s->hidden,
                       .eps = 1e-6f};
}

static moe_ffn_args moe_ffn_of(const shape *s, layer *l, bool dev, bool deferred) {
    deferred_norm *in = dev ? &l->deferred : NULL;
    dtype act = dev ? DT_BF16 : DT_F32;
    return (moe_ffn_args){
        .linear_group =
            {.of = {{.w = weight_of(&l->router, dev), .y = l->scores, .y_stride = s->experts, .y_type = DT_F32},
                    {.w = weight_of(&l->gate, dev),
                     .up = weight_of(&l->up, dev),
                     .y = of(&l->inter, dev),
                     .y_stride = s->shared}},
             .count = s->shared ? 2 : 1,
             .x = of(&l->h, dev),
             .n = s->n,
             .x_stride = s->hidden,
             .deferred = in},
        .gate = {l->scores, weight_of(&l->bias, dev), l->ids, l->weights, s->n, s->experts, s->k, s->n != 2, 2.5f, NULL,
                 NULL, NULL},
        .down = {weight_of(&l->down, dev), of(&l->inter, dev), of(&l->shared, dev), s->n, s->shared, s->hidden, act},
        .moe = {.moe = {weight_of(&l->experts, dev), of(&l->h, dev), l->ids, l->weights,
                        s->shared ? of(&l->shared, dev) : NULL, of(&l->d, dev), NULL, s->n, s->k, in, false, 0, NULL},
                .norm = ffn_norm_of(s, l, dev),
                .deferred = deferred ? in : NULL}};
}

/* The smallest distance between the k-th and the next score of a row: rounding may not change what is chosen. */
static f32 margin(const shape *s, const f32 *logits, const f32 *bias) {
    f32 least = INFINITY;
    for (i64 t = 0; t < s->n; t++) {
        f32 best[33];
        for (i64 j = 0; j <= s->k; j++) best[j] = -INFINITY;
        for (i64 e = 0; e < s->experts; e++) {
            f32 v = 1.0f / (1.0f + expf(-logits[t * s->experts + e])) + bias[e];
            for (i64 j = 0; j <= s->k; j++)
                if (v > best[j]) {
                    f32 w = best[j];
                    best[j] = v, v = w;
                }
        }
        least = fminf(least, best[s->k - 1] - best[s->k]);
    }
    return least;
}

/* logits: of SCORES_CLEAR; else all 0. */
static void choose_bias(check *c, const shape *s, layer *l, const f32 *logits, scores_kind scores) {
    u8 *m = check_alloc(c, synth_weight_bytes(WF_F32, 1, s->experts));
    weight_view v = {0};
    if (scores) v = synth_weight(&c->rng, WF_F32, 1, s->experts, 0.1f, m);
    for (i64 e = 0; scores && e < s->experts; e++) {
        f32 b = scores == SCORES_EQUAL      ? 0.25f
                : scores == SCORES_OF_TWINS ? (f32)(e & ~2) / 1000
                                            : (f32)(e % 64 < 2) + (f32)e / 1000;
        memcpy(m + e * 4, &b, 4);
    }
    for (int i = 0; !scores && i < 3000; i++) {
        v = synth_weight(&c->rng, WF_F32, 1, s->experts, 0.1f, m);
        if (margin(s, logits, (const f32 *)(const void *)m) > 2e-3f) break;
        if (i == 2999) check_fail(c, "feed: no bias leaves a margin");
    }
    l->bias = check_prepare(c, (weight_desc){.kind = WK_VECTOR, .views = &v, .n_views = 1});
}

static void ffn_run(const ops *o, const shape *s, layer *l, bool dev, bool deferred) {
    linear_norm_args front = {.linear = {weight_of(&l->before, dev), of(&l->in, dev), of(&l->d, dev), s->n, BEFORE,
                                         s->hidden, dev ? DT_BF16 : DT_F32},
                              .norm = ffn_norm_of(s, l, dev),
                              .deferred = deferred && dev ? &l->deferred : NULL};
    fused_linear_norm(o, &front);
}

/* later: rows before and behind may be finished later. bad: a row with a NaN. */
static void moe_ffn_case(check *c, const shape *s, scores_kind scores, bool deferred, bool bad) {
    layer l = make_layer(c, s, scores);
    i64 n = s->n, h = s->hidden, worst = n / 2;
    f64 bound = check_moe_bound(c, s->format);
    check_act first = check_output(c, n * h), again = check_output(c, n * h);
    ffn_run(c->ref, s, &l, false, deferred);
    moe_ffn_args b = moe_ffn_of(s, &l, false, deferred);
    fused_linear_group(c->ref, &b.linear_group);
    choose_bias(c, s, &l, l.scores, scores);
    b.gate.bias = l.bias.ref;
    b.moe.moe.workspace = check_alloc(c, c->ref->moe_workspace(c->ref, &b.moe.moe));
    fused_moe_ffn(c->ref, &b);
    moe_ffn_args a = moe_ffn_of(s, &l, true, deferred);
    a.moe.moe.workspace = check_alloc(c, c->dev->moe_workspace(c->dev, &a.moe.moe));
    a.moe.norm.bad = l.bad, a.moe.norm.mark = 7;
    memcpy(first.h, l.x.h, (size_t)(n * h) * 2);
    l.deferred.parts = 0;
    ffn_run(c->dev, s, &l, true, deferred);
    fused_moe_ffn(c->dev, &a);
    check_compare(c, "residual stream", l.x.h, DT_BF16, l.x.f, n, h, h, MORE * bound);
    if (!deferred) check_compare(c, "its norm", l.h.h, DT_BF16, l.h.f, n, h, h, MORE * bound);
    if (deferred) { /* a product that takes the rows as they are */
        check_weight w = check_matrix(c, WK_LINEAR, WF_BF16, 40, h, 1.0f / sqrtf((f32)h));
        check_act y = check_output(c, n * 80);
        linear_group_args p = {
            .of = {{.w = w.dev, .y = y.h, .y_stride = 40}, {.w = w.dev, .y = y.h + n * 40, .y_stride = 40}},
            .count = 2,
            .x = l.h.h,
            .n = n,
            .x_stride = h,
            .deferred = &l.deferred};
        p.of[0].y_type = p.of[1].y_type = DT_BF16;
        fused_linear_group(c->dev, &p);
        c->ref->linear(c->ref, &(linear_args){w.ref, l.h.f, y.f, n, h, 40, DT_F32});
        check_compare(c, "a product of its norm", y.h, DT_BF16, y.f, n, 40, 40, PRODUCT_MORE * bound);
    }
    int mark = deferred ? 3 : 7; /* an earlier mark stays */
    if (bad) {                   /* once more, with a NaN in a row */
        if (deferred) l.bad[worst] = 3;
        memcpy(again.h, l.x.h, (size_t)(n * h) * 2), memcpy(l.x.h, first.h, (size_t)(n * h) * 2);
        l.x.h[worst * h + h / 2] = CHECK_BAD;
        l.deferred.parts = 0;
        ffn_run(c->dev, s, &l, true, deferred);
        fused_moe_ffn(c->dev, &a);
        if (n <= 4 && s->format == WF_INT4_GROUP) /* in one launch */
            check_isolated_but_order(c, "feed", again.h, l.x.h, n, h, worst);
        else
            check_isolated(c, "feed", again.h, l.x.h, n, h, worst);
    }
    for (i64 i = 0; i < n; i++)
        if (l.bad[i] != (bad && i == worst ? mark : 0))
            check_fail(c, "feed: mark of row %lld is %d", (long long)i, l.bad[i]);
    check_case_end(c);
}

/* Shapes for one launch, of blocks with many rows and with none; others: no shared expert, too large a one, too many
 * tokens, experts in bf16. */
void check_moe_ffn(check *c) {
    static const shape all[] = {{1, 256, 64, 16, 3, 64, WF_INT4_GROUP},   {2, 320, 128, 7, 4, 48, WF_INT4_GROUP},
                                {3, 1024, 64, 24, 8, 64, WF_INT4_GROUP},  {4, 256, 64, 40, 8, 16, WF_INT4_GROUP},
                                {4, 192, 64, 9, 2, 0, WF_INT4_GROUP},     {1, 448, 192, 5, 2, 528, WF_INT4_GROUP},
                                {6, 256, 64, 8, 2, 64, WF_INT4_GROUP},    {2, 256, 64, 8, 2, 64, WF_BF16},
                                {17, 1088, 64, 24, 3, 64, WF_INT4_GROUP}, {33, 448, 64, 24, 3, 64, WF_INT4_GROUP},
                                {64, 256, 64, 40, 2, 64, WF_INT4_GROUP},  {1, 256, 64, 16, 3, 64, WF_MXFP4},
                                {3, 320, 128, 7, 4, 48, WF_NVFP4},        {17, 1088, 64, 24, 3, 64, WF_NVFP4},
                                {33, 448, 64, 24, 3, 64, WF_MXFP4},       {64, 256, 64, 40, 2, 0, WF_NVFP4}};
    static const shape real[] = {{1, 7168, 256, 16, 8, 256, WF_INT4_GROUP}, {4, 7168, 256, 16, 8, 256, WF_INT4_GROUP},
                                 {4, 256, 64, 384, 8, 256, WF_INT4_GROUP},  {2, 512, 64, 383, 8, 512, WF_INT4_GROUP},
                                 {16, 7168, 64, 48, 3, 256, WF_INT4_GROUP}, {64, 7168, 64, 48, 3, 256, WF_INT4_GROUP},
                                 {1, 7168, 256, 16, 8, 256, WF_NVFP4},      {16, 7168, 64, 48, 3, 256, WF_MXFP4}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (int mode = 0; mode < 4; mode++) moe_ffn_case(c, &all[i], SCORES_CLEAR, mode & 1, mode & 2);
    for (size_t i = 0; check_on_gpu(c) && i < COUNT_OF(real); i++)
        for (int mode = 0; mode < 4; mode++) moe_ffn_case(c, &real[i], SCORES_CLEAR, mode & 1, mode & 2);
    static const shape chosen[] = {{1, 256, 64, 72, 4, 64, WF_INT4_GROUP}, {4, 256, 64, 72, 8, 64, WF_INT4_GROUP}};
    for (size_t i = 0; i < COUNT_OF(chosen); i++)
        for (int kind = SCORES_EQUAL; kind <= SCORES_OF_A_LANE; kind++) moe_ffn_case(c, &chosen[i], kind, true, false);
}
