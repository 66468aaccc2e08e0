/* cmd/check_attention.c: latent attention and the KV cache. */
#include "base/log.h"
#include "check.h"
#include <math.h>
#include <stdio.h>

static const f64 BF16_BOUND = 4e-3;
static const dtype kv_types[] = {DT_F32, DT_BF16, DT_F8_E4M3};

static f32 kv_value(const void *kv, dtype t, i64 i) {
    if (t == DT_F32) return ((const f32 *)kv)[i];
    return t == DT_BF16 ? bf16_to_f32(((const bf16 *)kv)[i]) : f8_e4m3_to_f32(((const u8 *)kv)[i]);
}

/* A pool of `pages` pages of one layer, every element set. */
static void *make_pool(check *c, dtype t, i64 pages, i64 width) {
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

static check_weight make_kv_b(check *c, weight_format f, i64 heads, i64 nope, i64 v_dim, i64 latent) {
    i64 rows = heads * (nope + v_dim);
    weight_view v = synth_weight(&c->rng, f, rows, latent, 1.0f / sqrtf((f32)latent),
                                 check_alloc(c, synth_weight_bytes(f, rows, latent)));
    return check_prepare(
        c, (weight_desc){
               .kind = WK_KV_B, .views = &v, .n_views = 1, .n_heads = heads, .nope = nope, .v_dim = v_dim});
}

/* The norm beside it as in `latents`, in place. */
static void latents_case(check *c, kv_write_args *a, kv_write_args *b, i64 dim) {
    check_weight w = check_matrix(c, WK_VECTOR, WF_F32, 1, dim, 1.0f);
    check_act x = check_input(c, a->n * dim, 1.5f);
    latents_args p = {.q = {.weight = w.dev,
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
    c->dev->latents(c->dev, &p);
    c->ref->latents(c->ref, &r);
    check_compare(c, "latents of queries", x.h, DT_BF16, x.f, a->n, dim, dim, BF16_BOUND);
}

/* queries: width of their latent rows, 0: kv_write alone. */
static void kv_case(check *c, dtype type, i64 n, i64 latent, i64 rope, i64 queries) {
    i64 width = latent + rope, pages = 3;
    check_weight w = check_matrix(c, WK_VECTOR, WF_BF16, 1, latent, 1.0f);
    check_act x = check_input(c, n * width, 1.0f);
    i64 *slots = check_alloc(c, (u64)n * 8);
    f32 *table = check_alloc(c, (u64)(n * rope) * 4), *got = check_alloc(c, (u64)(n * width) * 4),
        *want = check_alloc(c, (u64)(n * width) * 4);
    for (i64 k = 0; k < n; k++) slots[k] = (k * 37 + 11) % (pages * KV_PAGE);
    for (i64 k = 0; k < n * rope; k++) table[k] = synth_uniform(&c->rng);
    void *kv = make_pool(c, type, pages, width), *ref = make_pool(c, DT_F32, pages, width);
    kv_write_args a = {x.h, w.dev, table, slots, kv, type, n, latent, rope, 1e-6f};
    kv_write_args b = {x.f, w.ref, table, slots, ref, DT_F32, n, latent, rope, 1e-6f};
    if (queries) {
        latents_case(c, &a, &b, queries);
    } else {
        c->dev->kv_write(c->dev, &a);
        c->ref->kv_write(c->ref, &b);
    }
    for (i64 k = 0; k < n * width; k++) {
        i64 at = slots[k / width] * width + k % width;
        got[k] = kv_value(kv, type, at);
        want[k] = ((f32 *)ref)[at];
    }
    f64 bound = type == DT_F32 ? 1e-5 : type == DT_BF16 ? BF16_BOUND : 4e-2;
    check_compare(c, dtype_name(type), got, DT_F32, want, n, width, width, bound);
    check_case_end(c);
}

void check_kv_write(check *c) {
    static const i64 counts[] = {1, 5, 64};
    for (size_t t = 0; t < COUNT_OF(kv_types); t++) {
        for (size_t i = 0; i < COUNT_OF(counts); i++) kv_case(c, kv_types[t], counts[i], 512, 64, 0);
        kv_case(c, kv_types[t], 7, 44, 10, 0);   /* no pieces of 16 bytes */
        kv_case(c, kv_types[t], 2, 2048, 64, 0); /* more than one piece a thread */
    }
}

void check_latents(check *c) {
    for (size_t t = 0; t < COUNT_OF(kv_types); t++) {
        kv_case(c, kv_types[t], 1, 512, 64, 1536);
        kv_case(c, kv_types[t], 33, 512, 64, 1536);
        kv_case(c, kv_types[t], 9, 40, 8, 2056);
        kv_case(c, kv_types[t], 3, 36, 6, 129);
    }
}

static const struct {
    i64 heads, nope, rope, latent, v_dim;
} shapes[] = {{8, 128, 64, 512, 128}, {3, 24, 8, 96, 40}, {5, 48, 16, 64, 24}, {64, 128, 64, 512, 128}};

void check_absorb_q(check *c) {
    static const i64 counts[] = {1, 3, 17};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int f = 0; f < WF_COUNT; f++) {
                i64 n = counts[i], h = shapes[s].heads, nope = shapes[s].nope, rope = shapes[s].rope,
                    latent = shapes[s].latent;
                if (h == 64 && n > 3) continue;
                check_weight w = make_kv_b(c, (weight_format)f, h, nope, shapes[s].v_dim, latent);
                check_act q = check_input(c, n * h * (nope + rope), 1.0f),
                          y = check_output(c, n * h * (latent + rope));
                absorb_q_args a = {w.dev, q.h, y.h, n, h, nope, rope, latent},
                              b = {w.ref, q.f, y.f, n, h, nope, rope, latent};
                f64 start = now_s();
                c->dev->absorb_q(c->dev, &a);
                if (h == 64) check_speed(c, now_s() - start, w.bytes / 2);
                c->ref->absorb_q(c->ref, &b);
                check_compare(c, weight_format_name((weight_format)f), y.h, DT_BF16, y.f, n * h,
                              latent + rope, latent + rope, BF16_BOUND);
                check_case_end(c);
            }
}

void check_unabsorb_v(check *c) {
    static const i64 counts[] = {1, 3, 70};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int f = 0; f < WF_COUNT; f++) {
                i64 n = counts[i], h = shapes[s].heads, v = shapes[s].v_dim, latent = shapes[s].latent;
                if (h == 64 && n > 3) continue;
                check_weight w = make_kv_b(c, (weight_format)f, h, shapes[s].nope, v, latent);
                check_act x = check_input(c, n * h * latent, 1.0f), y = check_output(c, n * h * v);
                unabsorb_v_args a = {w.dev, x.h, y.h, n, h, latent, v},
                                b = {w.ref, x.f, y.f, n, h, latent, v};
                f64 start = now_s();
                c->dev->unabsorb_v(c->dev, &a);
                if (h == 64) check_speed(c, now_s() - start, w.bytes / 2);
                c->ref->unabsorb_v(c->ref, &b);
                check_compare(c, weight_format_name((weight_format)f), y.h, DT_BF16, y.f, n * h, v, v,
                              BF16_BOUND);
                check_case_end(c);
            }
}

/* The cells of a pool as float32, for ref, where dev reads type t. */
static void *widen(check *c, const void *kv, dtype t, i64 n) {
    f32 *out = check_alloc(c, (u64)n * 4);
    for (i64 i = 0; i < n; i++) out[i] = kv_value(kv, t, i);
    return out;
}

void check_mla_decode(check *c) {
    static const i64 counts[] = {1, 3, 9};
    static const i32 lengths[] = {1, 63, 64, 65, 129, 300, 2, 128, 200};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (size_t t = 0; t < COUNT_OF(kv_types); t++) {
                i64 n = counts[i], h = shapes[s].heads, latent = shapes[s].latent, rope = shapes[s].rope;
                i64 width = latent + rope, pages = 12, stride = 6;
                if (h == 64 && n > 1) continue;
                void *kv = make_pool(c, kv_types[t], pages, width);
                void *wide = widen(c, kv, kv_types[t], pages * KV_PAGE * width);
                check_act q = check_input(c, n * h * width, 1.0f), y = check_output(c, n * h * latent),
                          z = check_output(c, n * h * latent);
                i32 *list = check_alloc(c, (u64)(n * stride) * 4), *len = check_alloc(c, (u64)n * 4);
                for (i64 k = 0; k < n * stride; k++) list[k] = (i32)(synth_bits(&c->rng) % (u64)pages);
                for (i64 k = 0; k < n; k++) len[k] = h == 64 ? 300 : lengths[k];
                mla_decode_args a = {q.h, kv, list,   len,  y.h,    NULL, kv_types[t],
                                     n,   h,  latent, rope, stride, 0.07f};
                mla_decode_args b = {q.f, wide, list,   len,  y.f,    NULL, DT_F32,
                                     n,   h,    latent, rope, stride, 0.07f};
                a.workspace = check_alloc(c, c->dev->mla_decode_workspace(c->dev, &a));
                b.workspace = check_alloc(c, c->ref->mla_decode_workspace(c->ref, &b));
                f64 start = now_s();
                c->dev->mla_decode(c->dev, &a);
                if (h == 64) check_speed(c, now_s() - start, (u64)(300 * width) * dtype_size(kv_types[t]));
                c->ref->mla_decode(c->ref, &b);
                check_compare(c, dtype_name(kv_types[t]), y.h, DT_BF16, y.f, n * h, latent, latent,
                              BF16_BOUND);
                if (n > 1) {
                    q.h[(n / 2) * h * width] = CHECK_BAD;
                    a.out = z.h;
                    c->dev->mla_decode(c->dev, &a);
                    check_isolated(c, "mla_decode", y.h, z.h, n, h * latent, n / 2);
                }
                check_case_end(c);
            }
}

void check_mla_prefill(check *c) {
    static const struct {
        i64 n, pos0;
    } spans[] = {{1, 0}, {1, 63}, {1, 64}, {3, 62}, {70, 0}, {33, 130}, {129, 5}};
    for (size_t s = 0; s + 1 < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(spans); i++)
            for (size_t t = 0; t < COUNT_OF(kv_types); t++)
                for (int f = 0; f < WF_COUNT; f++) {
                    i64 n = spans[i].n, pos0 = spans[i].pos0, h = shapes[s].heads, nope = shapes[s].nope,
                        rope = shapes[s].rope, latent = shapes[s].latent, v = shapes[s].v_dim,
                        width = latent + rope;
                    if (t != 1 && f != WF_BF16)
                        continue; /* formats with bf16 KV, KV types with bf16 weights */
                    i64 pages = 6;
                    void *kv = make_pool(c, kv_types[t], pages, width);
                    void *wide = widen(c, kv, kv_types[t], pages * KV_PAGE * width);
                    check_weight w = make_kv_b(c, (weight_format)f, h, nope, v, latent);
                    check_act q = check_input(c, n * h * (nope + rope), 1.0f), y = check_output(c, n * h * v),
                              z = check_output(c, n * h * v);
                    static const i32 order[] = {4, 1, 5, 0};
                    i32 *list = check_copy(c, order, sizeof order);
                    mla_prefill_args a = {w.dev, q.h, kv,   list, y.h,    NULL, kv_types[t], n,
                                          pos0,  h,   nope, rope, latent, v,    0.07f};
                    mla_prefill_args b = {w.ref, q.f, wide, list, y.f,    NULL, DT_F32, n,
                                          pos0,  h,   nope, rope, latent, v,    0.07f};
                    a.workspace = check_alloc(c, c->dev->mla_prefill_workspace(c->dev, &a));
                    b.workspace = check_alloc(c, c->ref->mla_prefill_workspace(c->ref, &b));
                    f64 start = now_s();
                    c->dev->mla_prefill(c->dev, &a);
                    if (h == 8 && n == 129) check_speed(c, now_s() - start, w.bytes);
                    c->ref->mla_prefill(c->ref, &b);
                    check_compare(c, dtype_name(kv_types[t]), y.h, DT_BF16, y.f, n * h, v, v, BF16_BOUND);
                    if (n > 1) { /* a NaN in the last token's KV reaches the last row only */
                        i64 at =
                            (list[(pos0 + n - 1) / KV_PAGE] * KV_PAGE + (pos0 + n - 1) % KV_PAGE) * width;
                        if (kv_types[t] == DT_F32) ((f32 *)kv)[at] = NAN;
                        if (kv_types[t] == DT_BF16) ((bf16 *)kv)[at] = CHECK_BAD;
                        if (kv_types[t] == DT_F8_E4M3) ((u8 *)kv)[at] = 0x7f;
                        a.out = z.h;
                        c->dev->mla_prefill(c->dev, &a);
                        check_isolated(c, "mla_prefill", y.h, z.h, n, h * v, n - 1);
                    }
                    check_case_end(c);
                }
}
