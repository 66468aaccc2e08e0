/* cmd/check/check_attention.c: latent attention and the KV cache. */
#include "base/log.h"
#include "cmd/check/check_gemm_shapes.h"
#include <math.h>
#include <stdio.h>

const dtype check_kv_types[CHECK_KV_TYPES] = {DT_F32, DT_BF16, DT_F8_E4M3};

f32 check_kv_value(const void *kv, dtype t, i64 i) {
    if (t == DT_F32) return ((const f32 *)kv)[i];
    return t == DT_BF16 ? bf16_to_f32(((const bf16 *)kv)[i]) : f8_e4m3_to_f32(((const u8 *)kv)[i]);
}

void *check_kv_pool(check *c, dtype t, i64 pages, i64 width) {
    i64 n = pages * KV_PAGE * width;
    void *kv = check_alloc(c, (u64)n * dtype_size(t));
    for (i64 i = 0; i < n; i++) {
        f32 v = synth_normal(&c->rng);
        if (t == DT_F32) ((f32 *)kv)[i] = v;
        if (t == DT_BF16) ((bf16 *)kv)[i] = f32_to_bf16(v);
        if (t == DT_F8_E4M3) ((u8 *)kv)[i] = f32_to_f8_e4m3(v);
    }
    return kv;
}

check_weight check_kv_b(check *c, weight_format f, i64 heads, i64 nope, i64 v_dim, i64 latent) {
    i64 rows = heads * (nope + v_dim);
    weight_view v = synth_weight(&c->rng, f, rows, latent, 1.0f / sqrtf((f32)latent),
                                 check_alloc(c, synth_weight_bytes(f, rows, latent)));
    return check_prepare(
        c, (weight_desc){.kind = WK_KV_B, .views = &v, .n_views = 1, .n_heads = heads, .nope = nope, .v_dim = v_dim});
}

/* The norm beside it as in `latents`, in place. */
static void latent_norm_kv_write_case(check *c, kv_write_args *a, kv_write_args *b, i64 dim, f32 sigma) {
    check_weight w = check_matrix(c, WK_VECTOR, WF_F32, 1, dim, 1.0f);
    check_act x = check_input(c, a->n * dim, 1.5f * sigma);
    latent_norm_kv_write_args p = {.q = {.weight = w.dev,
                                         .x = x.h,
                                         .out = x.h,
                                         .n = a->n,
                                         .dim = dim,
                                         .x_stride = dim,
                                         .out_stride = dim,
                                         .eps = 1e-6f},
                                   .kv = *a},
                              r = {.q = p.q, .kv = *b};
    r.q.weight = w.ref, r.q.x = r.q.out = x.f;
    fused_latent_norm_kv_write(c->dev, &p);
    fused_latent_norm_kv_write(c->ref, &r);
    check_compare(c, "latents of queries", x.h, DT_BF16, x.f, a->n, dim, dim, CHECK_BF16_BOUND);
}

/* queries: width of their latent rows, 0: kv_write alone. sigma: of the inputs; at 1e-3 the norm's eps counts. */
static void kv_case(check *c, dtype type, i64 n, i64 latent, i64 rope, i64 mla_queries, f32 sigma) {
    i64 width = latent + rope, pages = 3;
    check_weight w = check_matrix(c, WK_VECTOR, WF_BF16, 1, latent, 1.0f);
    check_act x = check_input(c, n * width, sigma);
    i64 *slots = check_alloc(c, (u64)n * 8);
    f32 *table = check_alloc(c, (u64)(n * rope) * 4), *got = check_alloc(c, (u64)(n * width) * 4),
        *want = check_alloc(c, (u64)(n * width) * 4);
    for (i64 k = 0; k < n; k++) slots[k] = (k * 37 + 11) % (pages * KV_PAGE);
    for (i64 k = 0; k < n * rope; k++) table[k] = synth_uniform(&c->rng);
    void *kv = check_kv_pool(c, type, pages, width), *ref = check_kv_pool(c, DT_F32, pages, width);
    kv_write_args a = {x.h, w.dev, table, slots, kv, type, n, latent, rope, 1e-6f};
    kv_write_args b = {x.f, w.ref, table, slots, ref, DT_F32, n, latent, rope, 1e-6f};
    if (mla_queries) {
        latent_norm_kv_write_case(c, &a, &b, mla_queries, sigma);
    } else {
        c->dev->kv_write(c->dev, &a);
        c->ref->kv_write(c->ref, &b);
    }
    for (i64 k = 0; k < n * width; k++) {
        i64 at = slots[k / width] * width + k % width;
        got[k] = check_kv_value(kv, type, at);
        want[k] = ((f32 *)ref)[at];
    }
    f64 bound = type == DT_F32 ? 1e-5 : type == DT_BF16 ? CHECK_BF16_BOUND : 4e-2;
    check_compare(c, dtype_name(type), got, DT_F32, want, n, width, width, bound);
    check_case_end(c);
}

void check_kv_write(check *c) {
    static const i64 counts[] = {1, 5, 64};
    for (size_t t = 0; t < 2 * CHECK_KV_TYPES; t++) {
        dtype type = check_kv_types[t / 2];
        f32 sigma = t % 2 ? 1e-3f : 1.0f;
        for (size_t i = 0; i < COUNT_OF(counts); i++) kv_case(c, type, counts[i], 512, 64, 0, sigma);
        kv_case(c, type, 7, 44, 10, 0, sigma);   /* no pieces of 16 bytes */
        kv_case(c, type, 2, 2048, 64, 0, sigma); /* more than one piece a thread */
    }
}

void check_latent_norm_kv_write(check *c) {
    for (size_t t = 0; t < 2 * CHECK_KV_TYPES; t++) {
        dtype type = check_kv_types[t / 2];
        f32 sigma = t % 2 ? 1e-3f : 1.0f;
        kv_case(c, type, 1, 512, 64, 1536, sigma);
        kv_case(c, type, 33, 512, 64, 1536, sigma);
        kv_case(c, type, 9, 40, 8, 2056, sigma);
        kv_case(c, type, 3, 36, 6, 129, sigma);
    }
}

static const struct {
    i64 heads, nope, rope, latent, v_dim;
} shapes[] = {{8, 128, 64, 512, 128}, {3, 24, 8, 96, 40}, {5, 48, 16, 64, 24}, {64, 128, 64, 512, 128}};

void check_absorb_q(check *c) {
    static const i64 counts[] = {1, 3, 17};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int f = 0; f <= WF_INT4_GROUP; f++) {
                i64 n = counts[i], h = shapes[s].heads, nope = shapes[s].nope, rope = shapes[s].rope,
                    latent = shapes[s].latent;
                if (h == 64 && n > 3) continue;
                check_weight w = check_kv_b(c, (weight_format)f, h, nope, shapes[s].v_dim, latent);
                check_act q = check_input(c, n * h * (nope + rope), 1.0f), y = check_output(c, n * h * (latent + rope));
                absorb_q_args a = {w.dev, q.h, y.h, n, h, nope, rope, latent},
                              b = {w.ref, q.f, y.f, n, h, nope, rope, latent};
                f64 start = now_s();
                c->dev->absorb_q(c->dev, &a);
                if (h == 64) check_speed(c, now_s() - start, w.bytes / 2);
                c->ref->absorb_q(c->ref, &b);
                check_compare(c, weight_format_name((weight_format)f), y.h, DT_BF16, y.f, n * h, latent + rope,
                              latent + rope, CHECK_BF16_BOUND);
                check_case_end(c);
            }
    check_gemm_shapes(c, G_ABSORB);
}

static void mla_queries_case(check *c, i64 n, i64 lora, i64 heads, i64 nope, i64 rope, i64 latent, i64 v_dim,
                             dtype type, f32 sigma) {
    i64 width = latent + rope, pages = 2, head = nope + rope;
    check_weight kv_norm = check_matrix(c, WK_VECTOR, WF_F32, 1, latent, 1.0f),
                 q_norm = check_matrix(c, WK_VECTOR, WF_F32, 1, lora, 1.0f),
                 q_b = check_matrix(c, WK_LINEAR, WF_BF16, heads * head, lora, 1.0f / sqrtf((f32)lora)),
                 kv_b = check_kv_b(c, WF_BF16, heads, nope, v_dim, latent);
    check_act kv_a = check_input(c, n * width, 1.0f), q_a = check_input(c, n * lora, sigma),
              q = check_output(c, n * heads * head), y = check_output(c, n * heads * width);
    i64 *slots = check_alloc(c, (u64)n * 8);
    f32 *table = check_alloc(c, (u64)(n * rope) * 4), *got = check_alloc(c, (u64)(n * width) * 4),
        *want = check_alloc(c, (u64)(n * width) * 4);
    for (i64 k = 0; k < n; k++) slots[k] = (k * 37 + 11) % (pages * KV_PAGE);
    for (i64 k = 0; k < n * rope; k++) table[k] = synth_uniform(&c->rng);
    void *kv = check_kv_pool(c, type, pages, width), *ref = check_kv_pool(c, DT_F32, pages, width);
    mla_queries_args a = {.latent_norm_kv_write = {.q = {.weight = q_norm.dev,
                                                         .x = q_a.h,
                                                         .out = q_a.h,
                                                         .n = n,
                                                         .dim = lora,
                                                         .x_stride = lora,
                                                         .out_stride = lora,
                                                         .eps = 1e-6f},
                                                   .kv = {kv_a.h, kv_norm.dev, table, slots, kv, type, n, latent, rope,
                                                          1e-6f}},
                          .q_b = q_b.dev,
                          .q = q.h,
                          .absorb = {kv_b.dev, q.h, y.h, n, heads, nope, rope, latent}},
                     b = a;
    b.latent_norm_kv_write.q.weight = q_norm.ref, b.latent_norm_kv_write.q.x = b.latent_norm_kv_write.q.out = q_a.f;
    b.latent_norm_kv_write.kv = (kv_write_args){kv_a.f, kv_norm.ref, table, slots, ref, DT_F32, n, latent, rope, 1e-6f};
    b.q_b = q_b.ref, b.q = q.f, b.absorb.kv_b = kv_b.ref, b.absorb.q = q.f, b.absorb.out = y.f;
    fused_mla_queries(c->dev, &a);
    fused_mla_queries(c->ref, &b);
    for (i64 k = 0; k < n * width; k++) {
        i64 at = slots[k / width] * width + k % width;
        got[k] = check_kv_value(kv, type, at), want[k] = ((f32 *)ref)[at];
    }
    check_compare(c, "KV rows", got, DT_F32, want, n, width, width, type == DT_F8_E4M3 ? 4e-2 : CHECK_BF16_BOUND);
    /* rounded three times: the latent rows, the queries, the result */
    check_compare(c, "queries", y.h, DT_BF16, y.f, n * heads, width, width, 1.5 * CHECK_BF16_BOUND);
    check_case_end(c);
}

void check_mla_queries(check *c) {
    static const i64 counts[] = {1, 2, 8, 9, 17, 32, 33, 64, 65};
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        mla_queries_case(c, counts[i], 1536, 2, 128, 64, 512, 128, DT_BF16, 1.5f);
    mla_queries_case(c, 3, 1536, 8, 128, 64, 512, 128, DT_F8_E4M3, 1.5f);
    mla_queries_case(c, 5, 512, 3, 128, 64, 512, 64, DT_BF16, 1.5f);
    mla_queries_case(c, 2, 1024, 1, 128, 64, 512, 128, DT_BF16, 1.5f);
    mla_queries_case(c, 4, 96, 3, 24, 8, 96, 40, DT_BF16, 1.5f);
    mla_queries_case(c, 3, 1536, 2, 128, 64, 512, 128, DT_BF16, 5e-4f); /* eps is most of the norm */
}

void check_unabsorb_v(check *c) {
    static const i64 counts[] = {1, 3, 70};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int f = 0; f <= WF_INT4_GROUP; f++) {
                i64 n = counts[i], h = shapes[s].heads, v = shapes[s].v_dim, latent = shapes[s].latent;
                if (h == 64 && n > 3) continue;
                check_weight w = check_kv_b(c, (weight_format)f, h, shapes[s].nope, v, latent);
                check_act x = check_input(c, n * h * latent, 1.0f), y = check_output(c, n * h * v);
                unabsorb_v_args a = {w.dev, x.h, y.h, n, h, latent, v}, b = {w.ref, x.f, y.f, n, h, latent, v};
                f64 start = now_s();
                c->dev->unabsorb_v(c->dev, &a);
                if (h == 64) check_speed(c, now_s() - start, w.bytes / 2);
                c->ref->unabsorb_v(c->ref, &b);
                check_compare(c, weight_format_name((weight_format)f), y.h, DT_BF16, y.f, n * h, v, v,
                              CHECK_BF16_BOUND);
                check_case_end(c);
            }
    check_gemm_shapes(c, G_UNABSORB);
}

void *check_kv_widen(check *c, const void *kv, dtype t, i64 n) {
    f32 *out = check_alloc(c, (u64)n * 4);
    for (i64 i = 0; i < n; i++) out[i] = check_kv_value(kv, t, i);
    return out;
}

void check_kv_set_bad(void *kv, dtype t, i64 at) {
    if (t == DT_F32) ((f32 *)kv)[at] = NAN;
    if (t == DT_BF16) ((bf16 *)kv)[at] = CHECK_BAD;
    if (t == DT_F8_E4M3) ((u8 *)kv)[at] = 0x7f;
}

/* What is found once for all layers of a step: NULL where the backend finds nothing. a.plan is memory of it. */
static void *decode_plan_of(check *c, mla_decode_args a) {
    const u64 bytes = fused_mla_decode_plan_bytes(c->dev);
    if (!bytes) return NULL;
    a.plan = check_alloc(c, bytes);
    memset(a.plan, 0x5a, (size_t)bytes);
    fused_mla_decode_plan(c->dev, &(mla_decode_plan_args){a});
    return a.plan;
}

/* The results and their lse are those of b, but for the first `without` rows, which have no token. */
static void decode_with_lse(check *c, const mla_decode_args *a, const mla_decode_args *b, i64 without) {
    const i64 skip = without * a->n_heads, sums = a->n * a->n_heads - skip, at = skip * a->latent;
    for (i64 h = 0; h < skip + sums; h++) a->lse[h] = NAN;
    c->dev->mla_decode(c->dev, a);
    for (i64 h = 0; h < skip; h++)
        if (a->lse[h] != -INFINITY) check_fail(c, "mla_decode: a row of no token has lse %g", (f64)a->lse[h]);
    check_compare(c, a->plan ? "lse, by a plan" : "lse", a->lse + skip, DT_F32, b->lse + skip, 1, sums, sums, 1e-5);
    check_compare(c, a->plan ? "with lse, by a plan" : "with lse", (const bf16 *)a->out + at, DT_BF16,
                  (const f32 *)b->out + at, sums, a->latent, a->latent, CHECK_BF16_BOUND);
}

/* What a KV cache in parts needs: `a` again with lse, and with a first row of no token; so by a plan, too. */
static void decode_in_parts(check *c, mla_decode_args a, mla_decode_args b, i32 *len) {
    const i64 sums = a.n * a.n_heads;
    bf16 *const whole = a.out;
    a.out = check_output(c, sums * a.latent).h;
    a.lse = check_alloc(c, (u64)sums * sizeof(f32)), b.lse = check_alloc(c, (u64)sums * sizeof(f32));
    c->ref->mla_decode(c->ref, &b);
    for (i64 without = 0; without < min_i64(a.n, 2); without++) {
        if (without) len[0] = 0;
        decode_with_lse(c, &a, &b, without);
        if (!without && a.group == 1 && memcmp(a.out, whole, (size_t)(sums * a.latent) * sizeof *whole))
            check_fail(c, "mla_decode: lse changes the results");
    }
    a.plan = decode_plan_of(c, a);
    if (a.plan) decode_with_lse(c, &a, &b, min_i64(a.n, 2) - 1);
}

/* On a processor a row's bits do not depend on whether others are read with it. */
static void decode_one_by_one(check *c, mla_decode_args a) {
    const i64 values = a.n * a.n_heads * a.latent;
    const bf16 *const together = a.out;
    bf16 *const alone = check_output(c, values).h;
    a.out = alone, a.group = 1;
    c->dev->mla_decode(c->dev, &a);
    if (memcmp(alone, together, (size_t)values * sizeof *alone))
        check_fail(c, "mla_decode: rows of a group have other bits than alone");
}

/* The same by a plan. Rows may be cut elsewhere then. */
static void decode_planned(check *c, mla_decode_args a, const f32 *want) {
    const i64 rows = a.n * a.n_heads;
    a.out = check_output(c, rows * a.latent).h, a.plan = decode_plan_of(c, a);
    if (!a.plan) return;
    c->dev->mla_decode(c->dev, &a);
    check_compare(c, "by a plan", a.out, DT_BF16, want, rows, a.latent, a.latent, CHECK_BF16_BOUND);
}

/* n rows in groups of one sequence each, ascending; behind each context its last page holds NaN. */
static void decode_case(check *c, i64 h, i64 latent, i64 rope, i64 n, i64 stride, const i32 *lengths, i64 group,
                        dtype t) {
    i64 width = latent + rope, pages = n * stride, cells = pages * KV_PAGE * width;
    void *kv = check_kv_pool(c, t, pages, width);
    check_act q = check_input(c, n * h * width, 1.0f), y = check_output(c, n * h * latent),
              z = check_output(c, n * h * latent);
    i32 *list = check_alloc(c, (u64)pages * 4), *len = check_copy(c, lengths, (u64)n * 4);
    for (i64 k = 0; k < pages; k++) list[k] = (i32)((k * 5 + 3) % pages);
    if (pages % 5 == 0)
        for (i64 k = 0; k < pages; k++) list[k] = (i32)(pages - 1 - k);
    for (i64 k = 0; k < pages; k++)
        if (k / stride % group) list[k] = list[k - stride];
    for (i64 k = group - 1; k < n; k += group)
        for (i64 j = len[k]; j % KV_PAGE; j++)
            for (i64 d = 0; d < width; d++)
                check_kv_set_bad(kv, t, (list[k * stride + j / KV_PAGE] * KV_PAGE + j % KV_PAGE) * width + d);
    void *wide = check_kv_widen(c, kv, t, cells);
    mla_decode_args a = {q.h, kv, list, len, y.h, NULL, NULL, t, n, h, latent, rope, stride, 0.07f, 1, NULL},
                    b = {q.f, wide, list, len, y.f, NULL, NULL, DT_F32, n, h, latent, rope, stride, 0.07f, 1, NULL};
    a.group = group;
    a.workspace = check_alloc(c, c->dev->mla_decode_workspace(c->dev, &a));
    b.workspace = check_alloc(c, c->ref->mla_decode_workspace(c->ref, &b));
    f64 start = now_s();
    c->dev->mla_decode(c->dev, &a);
    if (h == 64) check_speed(c, now_s() - start, (u64)(len[0] * width) * dtype_size(t));
    c->ref->mla_decode(c->ref, &b);
    check_compare(c, dtype_name(t), y.h, DT_BF16, y.f, n * h, latent, latent, CHECK_BF16_BOUND);
    if (n > 1) {
        const bf16 first = q.h[(n / 2) * h * width];
        q.h[(n / 2) * h * width] = CHECK_BAD;
        a.out = z.h;
        c->dev->mla_decode(c->dev, &a);
        check_isolated(c, "mla_decode", y.h, z.h, n, h * latent, n / 2);
        q.h[(n / 2) * h * width] = first;
    }
    a.out = y.h;
    decode_planned(c, a, y.f);
    if (group > 1 && !c->copies) decode_one_by_one(c, a);
    decode_in_parts(c, a, b, len);
    check_case_end(c);
}

/* The rows that verify a draft: 1 to 8 of one sequence, which end in its last page or begin in the page before. A host
 * attends for each row of so many heads by itself: there a case is enough. */
static void check_query_rows(check *c, dtype t) {
    static const i64 heads[] = {8, 16, 64};
    i32 len[8];
    for (size_t h = 0; h < (c->copies ? COUNT_OF(heads) : 1); h++)
        for (i64 n = t == DT_BF16 && c->copies ? 1 : 8; n <= 8; n += check_emulated(c) ? 3 : 1) {
            for (i64 k = 0; k < n; k++) len[k] = (i32)(3 * KV_PAGE + (n % 2 ? 3 : n) - n + 1 + k);
            decode_case(c, heads[h], 512, 64, n, 4, len, n, t);
        }
}

/* Several sequences with 2 to 8 of such rows each; of the first some rows stand before the last page, and of the
 * longest the pieces of several blocks meet. From four on pieces begin with a row, where there are blocks enough. */
static void check_groups(check *c, dtype t) {
    typedef struct {
        i64 heads, group;
    } groups;
    static const groups gpu[] = {{8, 2}, {8, 4}, {8, 8}, {4, 5}, {16, 4}, {2, 4}, {32, 2}, {64, 4}, {16, 6}},
                        processor[] = {{8, 2}, {2, 4}, {1, 5}, {3, 2}, {2, 3}};
    const groups *all = c->copies ? gpu : processor;
    static const i32 ends[] = {130, 64, 1300, 700, 65};
    i32 len[COUNT_OF(ends) * 8];
    const size_t most = c->copies ? COUNT_OF(gpu) : COUNT_OF(processor);
    for (size_t i = 0; i < most; i += check_emulated(c) ? 2 : 1) {
        const i64 g = all[i].group;
        for (i64 k = 0; k < (i64)COUNT_OF(ends) * g; k++) len[k] = (i32)(ends[k / g] - g + 1 + k % g);
        decode_case(c, all[i].heads, 512, 64, 3 * g, 21, len, g, t);
        if (c->copies && g <= 4) decode_case(c, all[i].heads, 512, 64, (i64)COUNT_OF(ends) * g, 21, len, g, t);
    }
}

/* Numbers of heads that do not fill a block, a group or a warp; two pages, and for two of them two of
 * --deterministic's units. */
static void check_head_counts(check *c, dtype t) {
    static const i64 heads[] = {4, 9, 12, 17, 32, 33, 63, 65, 100, 127}, longer[] = {12, 65};
    static const i32 two[] = {70, 5}, units[] = {3, 530};
    size_t most = c->copies ? COUNT_OF(heads) : 3; /* processors: groups of four heads */
    if (t == DT_F32 || (!c->copies && t != DT_BF16)) return;
    for (size_t i = 0; i < most; i += check_emulated(c) ? 2 : 1) decode_case(c, heads[i], 512, 64, 2, 2, two, 1, t);
    for (size_t i = 0; i < COUNT_OF(longer) && c->copies; i++) decode_case(c, longer[i], 512, 64, 2, 9, units, 1, t);
}

void check_mla_decode(check *c) {
    static const i64 counts[] = {1, 3, 9};
    static const i32 lengths[] = {1, 63, 64, 65, 129, 300, 2, 128, 200}, one[] = {300}, many[] = {2100, 5},
                     longest[] = {8192, 8131};
    static const struct {
        i64 heads, n, stride;
        const i32 *len;
    } kimi[] = {{1, 3, 6, lengths},  {2, 9, 6, lengths},   {16, 9, 6, lengths}, {20, 3, 6, lengths},
                {64, 9, 6, lengths}, {128, 3, 6, lengths}, {64, 2, 33, many},   {8, 2, 128, longest}};
    for (size_t t = 0; t < CHECK_KV_TYPES; t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
            for (size_t i = 0; i < COUNT_OF(counts); i++) {
                /* emulated, other caches than bf16's come with three rows or one */
                const bool large = shapes[s].heads == 64,
                           brief = check_emulated(c) && check_kv_types[t] != DT_BF16 && counts[i] != 3;
                if (large ? counts[i] == 1 : !brief)
                    decode_case(c, shapes[s].heads, shapes[s].latent, shapes[s].rope, counts[i], 6,
                                large ? one : lengths, 1, check_kv_types[t]);
            }
        for (size_t i = 0; i < COUNT_OF(kimi); i++) /* emulated, the longest rows come in one type of cache */
            if (check_kv_types[t] == DT_BF16 || kimi[i].len != longest || !check_emulated(c))
                decode_case(c, kimi[i].heads, 512, 64, kimi[i].n, kimi[i].stride, kimi[i].len, 1, check_kv_types[t]);
        check_query_rows(c, check_kv_types[t]);
        if (check_kv_types[t] != DT_F32) check_groups(c, check_kv_types[t]);
        check_head_counts(c, check_kv_types[t]);
    }
}

/* Pages of sequences: the first has `first`, the others 1 to 6. Of each come `group` rows, ascending. */
typedef struct {
    i64 heads, n, first, group;
} values_rows;
static void mla_decode_values_case(check *c, const values_rows *s, i64 latent, i64 v_dim, dtype t) {
    const i64 h = s->heads, n = s->n, first = s->first, group = s->group;
    i64 rope = 64, nope = 128, width = latent + rope, stride = max_i64(first, 6), pages = first + 6 * n;
    void *kv = check_kv_pool(c, t, pages, width), *wide = check_kv_widen(c, kv, t, pages * KV_PAGE * width);
    check_weight w = check_kv_b(c, WF_BF16, h, nope, v_dim, latent);
    check_act q = check_input(c, n * h * width, 1.0f), o = check_output(c, n * h * latent),
              y = check_output(c, n * h * v_dim), z = check_output(c, n * h * v_dim);
    i32 *list = check_alloc(c, (u64)(n * stride) * 4), *len = check_alloc(c, (u64)n * 4);
    for (i64 i = 0; i < n; i++) {
        const i64 of = i / group;
        len[i] = (i32)((of ? 1 + of * 97 % (6 * KV_PAGE - 8) : first * KV_PAGE - 3 - group) + i % group);
        for (i64 k = 0; k < stride; k++) list[i * stride + k] = (i32)((of * 6 + k) % pages);
    }
    mla_decode_args a = {q.h, kv, list, len, o.h, NULL, NULL, t, n, h, latent, rope, stride, 0.07f, group, NULL},
                    b = {q.f, wide, list, len, o.f, NULL, NULL, DT_F32, n, h, latent, rope, stride, 0.07f, 1, NULL};
    a.workspace = check_alloc(c, c->dev->mla_decode_workspace(c->dev, &a));
    b.workspace = check_alloc(c, c->ref->mla_decode_workspace(c->ref, &b));
    unabsorb_v_args va = {w.dev, o.h, y.h, n, h, latent, v_dim}, vb = {w.ref, o.f, y.f, n, h, latent, v_dim};
    fused_mla_decode_values(c->ref, &(mla_decode_values_args){b, vb});
    for (int planned = 0; planned < 2; planned++) {
        bf16 *const one = &q.h[(n / 2) * h * width], good = *one;
        if (planned && !(a.plan = decode_plan_of(c, a))) break;
        va.out = y.h;
        fused_mla_decode_values(c->dev, &(mla_decode_values_args){a, va});
        /* rounded twice: the latents, the values */
        check_compare(c, planned ? "by a plan" : dtype_name(t), y.h, DT_BF16, y.f, n * h, v_dim, v_dim,
                      1.5 * CHECK_BF16_BOUND);
        if (n < 2) continue;
        *one = CHECK_BAD, va.out = z.h;
        fused_mla_decode_values(c->dev, &(mla_decode_values_args){a, va});
        check_isolated(c, "attend", y.h, z.h, n, h * v_dim, n / 2);
        *one = good;
    }
    check_case_end(c);
}

/* Rows of one piece and of many, every width of wgmma, more heads than a block of attention has, several rows of a
 * sequence, shapes that are not for it. */
void check_mla_decode_values(check *c) {
    static const values_rows s[] = {{8, 1, 140, 1}, {2, 1, 1, 1},  {2, 2, 40, 1},  {16, 3, 6, 1},   {1, 8, 3, 1},
                                    {8, 13, 20, 1}, {3, 20, 2, 1}, {2, 40, 9, 1},  {1, 64, 2, 1},   {1, 48, 70, 1},
                                    {64, 1, 5, 1},  {20, 5, 3, 1}, {8, 4, 140, 4}, {8, 8, 40, 4},   {8, 6, 3, 2},
                                    {8, 2, 1, 2},   {2, 24, 9, 8}, {4, 15, 5, 5},  {16, 12, 30, 4}, {8, 64, 6, 4},
                                    {8, 3, 9, 3},   {8, 40, 20, 2}},
                             narrow = {3, 4, 2, 1};
    for (size_t t = 0; t < CHECK_KV_TYPES; t++)
        for (size_t i = 0; i < COUNT_OF(s); i++) {
            /* Emulated, a shape comes with a bf16 cache and one of the others, for rows of prompts with one: a model
             * does not ask for it of those in deterministic form. */
            const bool one = check_kv_types[t] != DT_BF16 || c->prompts;
            if (check_emulated(c) && one && (i + t) % (c->prompts ? 3 : 2)) continue;
            if (check_kv_types[t] == DT_BF16 || s[i].n != 20)
                mla_decode_values_case(c, &s[i], 512, 128, check_kv_types[t]);
        }
    mla_decode_values_case(c, &narrow, 512, 64, DT_BF16);
    mla_decode_values_case(c, &narrow, 128, 128, DT_BF16);
}

typedef struct {
    i64 heads, nope, rope, latent, v_dim;
} prefill_shape;
enum {
    PREFILL_APART = 900,  /* tokens before the prompt's rows, at most, where a GPU never takes them together */
    PREFILL_TOGETHER = 64 /* rows times heads that it does at most */
};

static void prefill_case(check *c, prefill_shape s, i64 n, i64 pos0, dtype t, weight_format f) {
    i64 h = s.heads, v = s.v_dim, width = s.latent + s.rope, used = ceil_div(pos0 + n, KV_PAGE), pages = used + 2;
    void *kv = check_kv_pool(c, t, pages, width);
    void *wide = check_kv_widen(c, kv, t, pages * KV_PAGE * width);
    check_weight w = check_kv_b(c, f, h, s.nope, v, s.latent);
    check_act q = check_input(c, n * h * (s.nope + s.rope), 1.0f), y = check_output(c, n * h * v),
              z = check_output(c, n * h * v);
    i32 *list = check_alloc(c, (u64)used * 4);
    for (i64 k = 0; k < used; k++) list[k] = (i32)(k % 2 ? k / 2 : pages - 1 - k / 2);
    mla_prefill_args a = {w.dev, q.h, kv, list, y.h, NULL, t, n, pos0, h, s.nope, s.rope, s.latent, v, 0.07f},
                     b = {w.ref, q.f, wide, list, y.f, NULL, DT_F32, n, pos0, h, s.nope, s.rope, s.latent, v, 0.07f};
    a.workspace = check_alloc(c, c->dev->mla_prefill_workspace(c->dev, &a));
    b.workspace = check_alloc(c, c->ref->mla_prefill_workspace(c->ref, &b));
    f64 start = now_s();
    c->dev->mla_prefill(c->dev, &a);
    if (h == 8 && n == 129) check_speed(c, now_s() - start, w.bytes);
    c->ref->mla_prefill(c->ref, &b);
    check_compare(c, dtype_name(t), y.h, DT_BF16, y.f, n * h, v, v, CHECK_BF16_BOUND);
    /* A NaN in the last token's KV reaches the last row only; where a GPU takes rows of a prompt together, behind a
     * long context, those before it, too, which are of the same prompt. */
    const i64 reached = c->copies && pos0 > PREFILL_APART ? max_i64(1, PREFILL_TOGETHER / h) : 1;
    if (n > reached) {
        check_kv_set_bad(kv, t, (list[(pos0 + n - 1) / KV_PAGE] * KV_PAGE + (pos0 + n - 1) % KV_PAGE) * width);
        a.out = z.h;
        c->dev->mla_prefill(c->dev, &a);
        memmove(z.h + (n - reached) * h * v, z.h + (n - 1) * h * v, (size_t)(h * v) * sizeof *z.h);
        check_isolated(c, "mla_prefill", y.h, z.h, n - reached + 1, h * v, n - reached);
    }
    check_case_end(c);
}

void check_mla_prefill(check *c) {
    static const struct { i64 n, pos0; } spans[] = {{1, 0}, {1, 63}, {1, 64}, {3, 62}, {70, 0}, {33, 130}, {129, 5}};
    static const prefill_shape all[] = {{2, 128, 64, 512, 128}, {3, 24, 8, 96, 40}, {5, 48, 16, 64, 24}};
    typedef struct {
        i64 heads, n, pos0;
    } rows;
    static const rows kimi[] = {{8, 129, 5},   {16, 70, 62},   {1, 5, 200},  {64, 3, 62},
                                {2, 300, 130}, {2, 100, 1000}, {8, 9, 1700}, {2, 9, 1800}};
    /* On a GPU: more tokens than are expanded at a time, of which the first rows see none of the last; few rows behind
     * long contexts. */
    static const rows real[] = {{64, 300, 0},    {64, 200, 8300}, {64, 200, 8064}, {8, 64, 16320},
                                {8, 300, 5001},  {8, 500, 5001},  {16, 77, 9000},  {64, 64, 2000},
                                {64, 100, 8300}, {4, 1, 70000},   {8, 33, 3000}};
    for (size_t t = 0; t < CHECK_KV_TYPES; t++) {
        for (size_t s = 0; s < COUNT_OF(all); s++)
            for (size_t i = 0; i < COUNT_OF(spans); i++)
                for (int f = 0; f <= WF_INT4_GROUP; f++) /* formats with bf16 KV, KV types with bf16 weights */
                    if (f == WF_BF16 ||
                        (check_kv_types[t] == DT_BF16 && ((s && !check_emulated(c)) || spans[i].n == 70)))
                        prefill_case(c, all[s], spans[i].n, spans[i].pos0, check_kv_types[t], (weight_format)f);
        for (size_t i = 0; i < COUNT_OF(kimi);
             i++) /* a cache of another type: two heads, of which a case takes least time */
            if (check_kv_types[t] == DT_BF16 || (kimi[i].heads == 2 && (kimi[i].n != 100 || !check_emulated(c))))
                prefill_case(c, (prefill_shape){kimi[i].heads, 128, 64, 512, 128}, kimi[i].n, kimi[i].pos0,
                             check_kv_types[t], WF_BF16);
        for (size_t i = 0; i < COUNT_OF(real) && check_on_gpu(c); i++)
            if (check_kv_types[t] == DT_BF16 || (check_kv_types[t] != DT_F32 && (!real[i].pos0 || real[i].heads < 64)))
                prefill_case(c, (prefill_shape){real[i].heads, 128, 64, 512, 128}, real[i].n, real[i].pos0,
                             check_kv_types[t], WF_BF16);
    }
}
