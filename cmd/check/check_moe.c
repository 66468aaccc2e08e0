/* cmd/check/check_moe.c: the gate and the routed experts. */
#include "base/log.h"
#include "cmd/check/check.h"
#include "format/requant.h"
#include "kernels/gpu/gpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The least distance between two neighbours among the k + 1 best scores. */
static f32 least_distance(const f32 *logits, const f32 *bias, i64 e, i64 k) {
    f32 best[33], least = INFINITY;
    for (i64 j = 0; j <= k; j++) best[j] = -INFINITY;
    for (i64 i = 0; i < e; i++) {
        f32 v = 1.0f / (1.0f + expf(-logits[i])) + bias[i];
        for (i64 j = 0; j <= k; j++)
            if (v > best[j]) {
                f32 w = best[j];
                best[j] = v, v = w;
            }
    }
    for (i64 j = 0; j < k; j++) least = fminf(least, best[j] - best[j + 1]);
    return least;
}

void check_gate(check *c) {
    static const struct {
        i64 n, experts, k;
    } s[] = {{1, 384, 8}, {33, 384, 8}, {5, 64, 4},  {3, 7, 7},    {17, 16, 1},
             {9, 65, 8},  {3, 512, 32}, {2, 513, 8}, {3, 100, 64}, {8192, 384, 8}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int mode = 0; mode < 5; mode++) { /* normalised or not; with ties; with a NaN; all scores 0 */
            i64 n = s[i].n, e = s[i].experts, k = s[i].k;
            bool many = n > 100; /* some scores of so many rows are near: another exp() may turn them round */
            if (many && (mode || !check_on_gpu(c))) continue;
            f32 *bias_data = check_alloc(c, synth_weight_bytes(WF_F32, 1, e));
            weight_view v = synth_weight(&c->rng, WF_F32, 1, e, 0.1f, bias_data);
            for (i64 j = 0; j < e && mode == 2; j++) /* with logits of 0: few scores, many experts */
                bias_data[j] = 0.125f * roundf(8 * bias_data[j]);
            check_weight bias = check_prepare(c, (weight_desc){.kind = WK_VECTOR, .views = &v, .n_views = 1});
            f32 *logits = check_alloc(c, (u64)(n * e) * 4), *w = check_alloc(c, (u64)(n * k) * 4),
                *w2 = check_alloc(c, (u64)(n * k) * 4);
            i32 *ids = check_alloc(c, (u64)(n * k) * 4), *ids2 = check_alloc(c, (u64)(n * k) * 4);
            for (i64 r = 0; r < n; r++) {
                f32 *row = logits + r * e;
                do {
                    for (i64 j = 0; j < e; j++) row[j] = synth_normal(&c->rng);
                } while (many && least_distance(row, v.data, e, k) < 2e-6f);
            }
            if (mode == 2)
                for (i64 j = 0; j < n * e; j++) logits[j] = 0.0f; /* the bias alone decides, and where it ties, order */
            if (mode == 3) logits[(n - 1) * e + e / 2] = NAN;
            for (i64 j = 0; j < e && mode == 4; j++) logits[(n / 2) * e + j] = -200; /* e^-200: below every float32 */
            i32 *routes = check_alloc(c, (u64)e * 4), *slots = check_alloc(c, (u64)(n * k) * 4),
                *slots2 = check_alloc(c, (u64)(n * k) * 4);
            u32 *counts = check_alloc(c, (u64)e * 4), *counts2 = check_alloc(c, (u64)e * 4);
            for (i64 j = 0; j < e; j++) counts[j] = counts2[j] = (u32)(7 * j);
            for (i64 j = 0; j < e; j++) { /* a third elsewhere, the others in up to three places */
                const i64 copies = 1 + j % 3, turn = (i64)(synth_bits(&c->rng) % (u64)copies);
                routes[j] = j % 7 < 2 ? EXPERT_ELSEWHERE : expert_route(e - j, copies, turn);
            }
            if (mode == 0) routes = NULL;
            gate_args a = {logits, bias.dev, ids, w, n, e, k, mode != 1, 2.827f, routes, slots, routes ? counts : NULL};
            gate_args b = {logits, bias.ref,  ids2,   w2,     n,      e,
                           k,      mode != 1, 2.827f, routes, slots2, routes ? counts2 : NULL};
            if (mode == 1 || mode == 3) { /* with a product beside it */
                i64 rows = 136, cols = 256;
                check_weight m = check_matrix(c, WK_LINEAR, WF_BF16, rows, cols, 0.06f);
                check_act x = check_input(c, n * cols, 1.0f), y = check_output(c, n * rows);
                fused_gate_linear(c->dev,
                                  &(gate_linear_args){a, {m.dev, x.h, y.h, n, cols, rows, DT_BF16}, NULL, NULL});
                fused_gate_linear(c->ref, &(gate_linear_args){b, {m.ref, x.f, y.f, n, cols, rows, DT_F32}, NULL, NULL});
                check_compare(c, "product beside the gate", y.h, DT_BF16, y.f, n, rows, rows, 4e-3);
            } else {
                c->dev->gate(c->dev, &a);
                c->ref->gate(c->ref, &b);
            }
            for (i64 j = 0; j < n * k; j++) {
                if (ids[j] != ids2[j]) check_fail(c, "route: id %lld is %d, not %d", (long long)j, ids[j], ids2[j]);
                const i32 route = routes ? routes[ids2[j]] : EXPERT_ELSEWHERE;
                const bool here = route >= 0 && j / k % (1 + ids2[j] % 3) == route >> 24;
                const i32 want = here ? (i32)e - ids2[j] : -1;
                if (routes && (slots[j] != want || slots2[j] != want))
                    check_fail(c, "route: slot %lld is %d, ref's %d, not %d", (long long)j, slots[j], slots2[j], want);
            }
            for (i64 j = 0; j < e; j++) {
                u32 want = (u32)(7 * j);
                for (i64 p = 0; routes && p < n * k; p++) want += ids2[p] == j;
                if (counts[j] != want || counts2[j] != want)
                    check_fail(c, "count of expert %lld: %u, ref's %u, not %u", (long long)j, counts[j], counts2[j],
                               want);
            }
            check_compare(c, "weights", w, DT_F32, w2, n, k, k, 1e-5);
            check_case_end(c);
        }
}

void check_sum_pairs(check *c) {
    static const struct {
        i64 n, k, dim;
    } s[] = {{1, 8, 7168}, {33, 8, 2048}, {5, 3, 77}, {7, 0, 130}, {2, 1, 1}, {300, 4, 256}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int shared = 0; shared < 2; shared++) {
            const i64 n = s[i].n, k = s[i].k, dim = s[i].dim;
            check_act y = check_input(c, n * k * dim, 1.0f), add = check_input(c, n * dim, 1.0f),
                      out = check_output(c, n * dim), bad = check_output(c, n * dim);
            f32 *w = check_alloc(c, (u64)(n * k) * sizeof *w);
            for (i64 j = 0; j < n * k; j++) w[j] = synth_normal(&c->rng);
            sum_pairs_args a = {y.h, w, shared ? add.h : NULL, out.h, n, k, dim};
            sum_pairs_args b = {y.f, w, shared ? add.f : NULL, out.f, n, k, dim};
            c->dev->sum_pairs(c->dev, &a);
            c->ref->sum_pairs(c->ref, &b);
            check_compare(c, "sum of pairs", out.h, DT_BF16, out.f, n, dim, dim, 4e-3);
            if (n > 1 && k) {
                y.h[n / 2 * k * dim + dim / 2] = CHECK_BAD;
                a.out = bad.h;
                c->dev->sum_pairs(c->dev, &a);
                for (i64 j = 0; j < n * dim; j++)
                    if (j == n / 2 * dim + dim / 2 ? !isnan(bf16_to_f32(bad.h[j])) : bad.h[j] != out.h[j])
                        check_fail(c, "a NaN among the pairs: value %lld", (long long)j);
            }
            c->cases++;
            check_case_end(c);
        }
}

typedef struct {
    i64 n, hidden, inter, experts, k;
} moe_shape;

static void (*changed)(weight_view *v, i64 views); /* NULL, or what is done to the experts of the next cases */

static check_weight check_moe_make_experts(check *c, weight_format f, expert_format kept, const moe_shape *s) {
    weight_view v[3 * 24];
    u64 up = synth_weight_bytes(f, s->inter, s->hidden), down = synth_weight_bytes(f, s->hidden, s->inter);
    u8 *m = check_alloc(c, (2 * up + down) * (u64)s->experts);
    for (i64 e = 0; e < s->experts; e++, m += 2 * up + down) {
        v[3 * e] = synth_weight(&c->rng, f, s->inter, s->hidden, 1.0f / sqrtf((f32)s->hidden), m);
        v[3 * e + 1] = synth_weight(&c->rng, f, s->inter, s->hidden, 1.0f / sqrtf((f32)s->hidden), m + up);
        v[3 * e + 2] = synth_weight(&c->rng, f, s->hidden, s->inter, 1.0f / sqrtf((f32)s->inter), m + 2 * up);
    }
    if (changed) changed(v, 3 * s->experts);
    return check_prepare(c, (weight_desc){.kind = WK_EXPERTS, .views = v, .n_views = 3 * s->experts, .experts = kept});
}

f64 check_moe_bound(const check *c, weight_format f) {
    const bool int8 = strstr(c->dev->name, "cpu avx"); /* activations of weights of four bits */
    if (int8 && (f == WF_MXFP4 || f == WF_NVFP4))
        return 1.5e-2; /* exponents drawn at random: of a short row few groups count */
    if (c->copies && f == WF_INT4_GROUP128) return 6e-3; /* its float32 scales become bf16, too, each for 128 columns */
    const bool in_int8 = f == WF_INT4_GROUP || f == WF_INT4_ROW || f == WF_INT4_GROUP128 || f == WF_INT8_ROW;
    return int8 && in_int8 ? 1e-2 : 4e-3;
}

static bool hot;    /* all tokens choose the first k experts, the others nobody */
static bool skewed; /* half of the experts nobody; the first one everybody, some tokens twice */
static bool sparse; /* of a row's slots an eighth is of experts that are here: a rank of eight that has whole ones */

enum { PIECE = 256 };
/* ref, PIECE tokens at a time and side by side; `b` has so many tokens that a piece is in the same arithmetic. */
static void ref_in_pieces(check *c, const moe_args *b, i64 hidden) {
    u64 space = c->ref->moe_workspace(c->ref, b);
    i64 pieces = b->n / PIECE; /* the last one has what is left too */
    u8 *all = check_alloc(c, space * (u64)pieces);
#pragma omp parallel for schedule(dynamic)
    for (i64 i = 0; i < pieces; i++) {
        i64 at = i * PIECE;
        moe_args p = *b;
        p.n = i + 1 < pieces ? PIECE : b->n - at;
        p.x = (const f32 *)b->x + at * hidden;
        p.ids += at * b->k, p.weights += at * b->k;
        if (b->shared) p.shared = (const f32 *)b->shared + at * hidden;
        p.out = (f32 *)b->out + at * hidden;
        p.workspace = all + (u64)i * space;
        c->ref->moe(c->ref, &p);
    }
}

/* The emulated GPU runs each kernel at each kind of shape twice and no more, large calls and calls of more than 64
 * tokens once: what decides which kernels run, and how they divide the call, is the same in the others, which real
 * GPUs and processors take all. */
static bool emulated_before(check *c, const moe_shape *s, const moe_args *a, weight_format f, expert_format kept,
                            f32 sigma) {
    static char seen[256][MOE_CHOICE_TEXT + 64];
    static int times[COUNT_OF(seen)], n;
    static void (*changes[16])(weight_view * v, i64 views); /* those met, for their numbers */
    char key[sizeof seen[0]], how[MOE_CHOICE_TEXT];
    size_t change = 0;
    if (!check_emulated(c)) return false;
    if (!c->cases) n = 0;
    int tokens = 0;
    while (4 << tokens < s->n) tokens++;
    moe_choice_text(gpu_moe_choice(c->dev, a), how);
    while (change + 1 < COUNT_OF(changes) && changes[change] != changed && changes[change]) change++;
    changes[change] = changed;
    snprintf(key, sizeof key, "%d %d %s, %d, %g %d%d%d %zu", f, kept, how, tokens, (f64)sigma, hot, skewed, sparse,
             changed ? change + 1 : 0);
    int at = 0;
    while (at < n && strcmp(seen[at], key)) at++;
    if (at == n) {
        if (n == COUNT_OF(seen)) return false;
        times[n] = 0;
        memcpy(seen[n++], key, sizeof key);
    }
    bool large = s->n > 64 || s->n * s->k * s->hidden * s->inter > 1 << 22;
    return times[at]++ >= (large ? 1 : 2);
}

/* sigma: of the inputs; results grow with its square. */
static void kept_case(check *c, const moe_shape *s, weight_format f, expert_format kept, bool shared, f32 sigma) {
    i64 n = s->n, k = s->k, h = s->hidden;
    check_weight w = check_moe_make_experts(c, f, kept, s);
    check_act x = check_input(c, n * h, sigma), add = check_input(c, n * h, 0.3f), y = check_output(c, n * h);
    check_act z = check_output(c, n * h);
    i32 *ids = check_alloc(c, (u64)(n * k) * 4), *valid = check_alloc(c, (u64)(n * k) * 4);
    f32 *weights = check_alloc(c, (u64)(n * k) * 4);
    for (i64 j = 0; j < n * k; j++) { /* duplicates happen; some -1, some outside */
        u64 r = synth_bits(&c->rng);
        ids[j] = (i32)(r % (u64)s->experts);
        if (hot) ids[j] = (i32)(j % k);
        if (skewed) ids[j] = j % k && r >> 40 & 7 ? (i32)(r % (u64)s->experts / 2) : 0;
        if ((n > 1 && r >> 60 == 0) || (sparse && r >> 57 & 7)) ids[j] = -1;
        if (n > 1 && r >> 60 == 1) ids[j] = (i32)s->experts + (i32)(r >> 50 & 3);
        valid[j] = ids[j] < s->experts ? ids[j] : -1;
        weights[j] = (1.0f + 0.5f * synth_uniform(&c->rng)) / (f32)k;
    }
    const i64 among = sparse ? 8 * s->experts : 0;
    moe_args a = {w.dev, x.h, ids, weights, shared ? add.h : NULL, y.h, NULL, n, k, NULL, false, among, NULL};
    moe_args b = {w.ref, x.f, valid, weights, shared ? add.f : NULL, y.f, NULL, n, k, NULL, false, among, NULL};
    if (emulated_before(c, s, &a, f, kept, sigma)) {
        check_case_end(c);
        return;
    }
    a.workspace = check_alloc(c, c->dev->moe_workspace(c->dev, &a));
    b.workspace = check_alloc(c, c->ref->moe_workspace(c->ref, &b));
    c->dev->moe(c->dev, &a);
    if (n >= 8 * PIECE)
        ref_in_pieces(c, &b, h);
    else
        c->ref->moe(c->ref, &b);
    char what[96];
    snprintf(what, sizeof what, "%s%s%s, %lld tokens, %lld x %lld", weight_format_name(f), kept ? " as " : "",
             kept ? expert_format_name(kept) : "", (long long)n, (long long)h, (long long)s->inter);
    /* Rows of prompts take INT4 rounded to bf16 at any number of tokens, which few columns do not average out
     * (4.5e-3 with 128). */
    const bool same = kept == EXPERTS_W4A8 && moe_is_int8(c->dev->int8_mean, n * k, s->experts, h, s->inter);
    check_compare(c, what, y.h, DT_BF16, y.f, n, h, h,
                  same ? 4e-3 : check_moe_bound(c, f) * (kept && h < 1024 && c->prompts ? 1.25 : 1));
    f64 start = now_s();
    c->dev->moe(c->dev, &a);
    if (h == 7168) check_speed(c, now_s() - start, w.bytes);
    if (n > 1) {
        i64 bad = n / 2;
        ids[bad * k] = 0; /* at least one expert sees it */
        a.out = y.h;
        c->dev->moe(c->dev, &a);
        x.h[bad * h + 1] = CHECK_BAD;
        a.out = z.h;
        c->dev->moe(c->dev, &a);
        check_isolated(c, "moe", y.h, z.h, n, h, bad);
    }
    check_case_end(c);
}

static void check_moe_moe_case(check *c, const moe_shape *s, weight_format f, bool shared, f32 sigma) {
    kept_case(c, s, f, EXPERTS_AS_STORED, shared, sigma);
}

/* A NaN among expert 0's weights for gate: rows that chose it are NaN from end to end, as ref's are, and no others. */
static void nan_case(check *c, const moe_shape *s, weight_format f, expert_format kept) {
    i64 n = s->n, k = s->k, h = s->hidden;
    check_weight w = check_moe_make_experts(c, f, kept, s);
    check_act x = check_input(c, n * h, 1), y = check_output(c, n * h);
    i32 *ids = check_alloc(c, (u64)(n * k) * 4);
    f32 *weights = check_alloc(c, (u64)(n * k) * 4);
    for (i64 j = 0; j < n * k; j++) {
        ids[j] = (i32)(synth_bits(&c->rng) % (u64)s->experts), weights[j] = 1;
        if (j / k == 0) ids[j] = 0;
        if (j / k == 1) ids[j] = 1;
    }
    moe_args a = {w.dev, x.h, ids, weights, NULL, y.h, NULL, n, k, NULL, false, 0, NULL};
    a.workspace = check_alloc(c, c->dev->moe_workspace(c->dev, &a));
    c->dev->moe(c->dev, &a);
    for (i64 i = 0; i < n; i++) {
        bool chose = false;
        i64 nans = 0;
        for (i64 j = 0; j < k; j++) chose = chose || ids[i * k + j] == 0;
        for (i64 j = 0; j < h; j++) nans += isnan(bf16_to_f32(y.h[i * h + j]));
        if (nans != (chose ? h : 0))
            check_fail(c, "a NaN weight: row %lld has %lld of %lld values NaN", (long long)i, (long long)nans,
                       (long long)h);
    }
    c->cases++;
    check_case_end(c);
}
static i64 nan_column = 77;
static void one_nan(weight_view *v, i64 views) {
    (void)views;
    i64 at = 5 * v[0].cols + nan_column;
    if (v[0].format == WF_BF16) ((bf16 *)v[0].data)[at] = CHECK_BAD;
    if (v[0].format == WF_FP8_BLOCK) ((u8 *)v[0].data)[at] = 0xff;
    if (v[0].format == WF_INT4_GROUP) ((bf16 *)v[0].scale)[at / INT4_GROUP] = CHECK_BAD;
    if (v[0].format == WF_MXFP4) ((u8 *)v[0].scale)[at / MXFP4_GROUP] = 0xff;
    if (v[0].format == WF_NVFP4) ((u8 *)v[0].scale)[at / NVFP4_GROUP] = at % 2 ? 0x7f : 0xff;
    if (v[0].format == WF_INT8_ROW) ((f32 *)v[0].scale)[5] = NAN;
}

/* Groups in bf16 with one value far from the others, multiples of the smallest scale that is tried (format/requant.h):
 * which scale fits best differs from what the largest value alone would say. */
static void one_value_apart(weight_view *v, i64 views) {
    const f32 largest = 0x1p-5f, scale = largest * (REQUANT_TRIES + 1) / (2 * REQUANT_TRIES);
    for (i64 i = 0; i < views; i++)
        for (i64 j = 0; j < v[i].rows * v[i].cols; j++) {
            bf16 *x = &((bf16 *)v[i].data)[j];
            f32 step = 1 + (f32)(j * 5 / 3 % 7);
            *x = f32_to_bf16(j % INT4_GROUP == 9 ? 7 * largest : *x >> 15 ? -step * scale : step * scale);
        }
}

/* Scales of a row from the largest down to 2^-11 of it, the largest a negative one in every second row; rows of zeros
 * and of nearly nothing. */
static void scales_apart(weight_view *v, i64 views) {
    for (i64 i = 0; i < views; i++)
        for (i64 j = 0, n = v[i].cols / INT4_GROUP; j < v[i].rows * n; j++) {
            const i64 row = j / n;
            const f32 size = row % 16 == 3 ? 0 : row % 16 == 4 ? 0x1p-120f : 0x1.3p-5f / (f32)(1 << (j * 7 + row) % 12);
            ((bf16 *)v[i].scale)[j] = f32_to_bf16(row % 2 ? -size : size);
        }
}

/* The results' second half alone too large for a half: of 256 rows the ones of the second warpgroup. */
static void large_last_rows(weight_view *v, i64 views) {
    for (i64 i = 2; i < views; i += 3) {
        i64 scales = v[i].rows * (v[i].cols / INT4_GROUP);
        for (i64 j = scales / 2; j < scales; j++) {
            bf16 *scale = &((bf16 *)v[i].scale)[j];
            *scale = f32_to_bf16(bf16_to_f32(*scale) * 0x1p20f);
        }
    }
}

/* One scale for all groups of a row but the last one, of twice the size. */
static void last_group_apart(weight_view *v, i64 views) {
    for (i64 i = 0; i < views; i++)
        for (i64 j = 0, n = v[i].cols / INT4_GROUP; j < v[i].rows * n; j++)
            ((bf16 *)v[i].scale)[j] = f32_to_bf16(j % n == n - 1 ? 0x1p-5f : 0x1p-6f);
}

/* Formats that experts are kept in here: processors convert to W4A8 alone. */
static int kept_most(const check *c) { return c->copies ? EXPERTS_W2_BF16 : EXPERTS_W4A8; }

/* Experts in another format than they are stored in. Few tokens, tiles of every width, half a stage of
 * columns, results too large for a half, other formats to begin with. */
static void check_kept(check *c) {
    static const struct {
        moe_shape s;
        f32 sigma;
    } all[] = {{{1, 256, 64, 4, 2}, 1},    {{7, 128, 128, 3, 2}, 1},   {{30, 256, 128, 4, 2}, 1},
               {{40, 320, 192, 4, 2}, 1},  {{90, 128, 64, 4, 2}, 1},   {{110, 192, 128, 4, 3}, 1},
               {{150, 128, 256, 2, 2}, 1}, {{330, 192, 128, 3, 1}, 1}, {{230, 256, 320, 4, 2}, 1},
               {{140, 128, 128, 1, 1}, 1}, {{24, 128, 2304, 1, 1}, 1}, {{170, 320, 64, 1, 1}, 2000}};
    static const moe_shape real[] = {
        {1, 7168, 256, 8, 8}, {40, 7168, 256, 16, 8}, {260, 7168, 512, 3, 2}, {256, 2048, 512, 4, 2}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        kept_case(c, &all[i].s, WF_INT4_GROUP, EXPERTS_W4A8, i % 2, all[i].sigma);
        if (i % 3 == 0 && c->copies) kept_case(c, &all[i].s, WF_INT4_GROUP, EXPERTS_W2_BF16, i % 2, all[i].sigma);
    }
    kept_case(c, &all[2].s, WF_BF16, EXPERTS_W4A8, true, 1);
    kept_case(c, &all[2].s, WF_FP8_BLOCK, EXPERTS_W4A8, false, 1);
    static const moe_shape square = {60, 256, 256, 3, 2}, wide = {230, 256, 128, 2, 2}, groups = {20, 1024, 128, 2, 2};
    changed = one_value_apart;
    kept_case(c, &square, WF_BF16, EXPERTS_W4A8, true, 1);
    changed = one_nan;
    nan_case(c, &square, WF_BF16, EXPERTS_W4A8);
    nan_case(c, &square, WF_INT4_GROUP, EXPERTS_W4A8);
    changed = large_last_rows;
    kept_case(c, &square, WF_INT4_GROUP, EXPERTS_AS_STORED, false, 1);
    kept_case(c, &square, WF_INT4_GROUP, EXPERTS_W4A8, false, 1);
    kept_case(c, &wide, WF_INT4_GROUP, EXPERTS_AS_STORED, false, 1);
    changed = last_group_apart;
    kept_case(c, &groups, WF_INT4_GROUP, EXPERTS_W4A8, false, 1);
    changed = scales_apart;
    kept_case(c, &groups, WF_INT4_GROUP, EXPERTS_W4A8, false, 1);
    kept_case(c, &square, WF_INT4_GROUP, EXPERTS_W4A8, true, 1);
    changed = NULL;
    static const moe_shape calls = {2090, 64, 64, 3, 2}; /* more tokens than processors take at a time */
    if (!c->copies) kept_case(c, &calls, WF_INT4_GROUP, EXPERTS_W4A8, true, 1);
    static const moe_shape odd = {40, 96, 32, 3, 2}; /* fits no block: not for int8 */
    kept_case(c, &odd, WF_INT4_GROUP, EXPERTS_W4A8, true, 1);
    for (size_t i = 0; check_on_gpu(c) && i < COUNT_OF(real); i++)
        for (int kept = EXPERTS_W4A8; kept <= EXPERTS_W2_BF16; kept++)
            kept_case(c, &real[i], WF_INT4_GROUP, (expert_format)kept, i % 2, 1);
}

/* Every number of tokens from 1 to 64, and one expert or two for everybody. */
static void check_each(check *c) {
    for (i64 n = 1; n <= 64; n++) {
        const moe_shape t = {n, 128, 64, n % 3 ? 24 / (n % 3) : 5, 3};
        for (int f = WF_BF16; f <= WF_INT4_GROUP; f += WF_INT4_GROUP - WF_BF16)
            check_moe_moe_case(c, &t, (weight_format)f, n % 2, 1.0f);
        for (int kept = EXPERTS_W4A8; kept <= kept_most(c); kept++)
            kept_case(c, &t, WF_INT4_GROUP, (expert_format)kept, n % 2, 1.0f);
    }
    static const moe_shape all[] = {
        {5, 256, 64, 24, 1}, {33, 128, 64, 24, 2}, {100, 128, 64, 24, 1}, {200, 128, 64, 24, 1}};
    hot = true;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        check_moe_moe_case(c, &all[i], WF_BF16, i % 2, 1.0f);
        check_moe_moe_case(c, &all[i], WF_INT4_GROUP, i % 2, 1.0f);
        kept_case(c, &all[i], WF_INT4_GROUP, i % 2 && c->copies ? EXPERTS_W2_BF16 : EXPERTS_W4A8, false, 1.0f);
    }
    hot = false;
}

/* What the checkpoint has, whatever the device keeps: bf16 and FP8 (decode_stored.cu: hot experts in several groups,
 * rings and boxes that are not filled, many launches), Quark's INT4 in shapes that are packed and that are not, and
 * W4AFP8. */
static void check_stored(check *c) {
    static const moe_shape stored[] = {{3, 1152, 384, 8, 2},  {5, 128, 1280, 24, 4}, {6, 640, 128, 24, 2},
                                       {17, 128, 128, 1, 1},  {70, 256, 128, 3, 2},  {1, 1664, 640, 8, 8},
                                       {300, 128, 128, 8, 8}, {9, 128, 256, 24, 1}};
    for (size_t i = 0; i < COUNT_OF(stored); i++)
        for (int f = WF_BF16; f <= WF_FP8_ROW; f++) check_moe_moe_case(c, &stored[i], (weight_format)f, i % 2, 1.0f);
    static const moe_shape rows[] = {{1, 256, 64, 4, 2}, {7, 128, 128, 3, 2}, {5, 96, 32, 3, 2}, {40, 128, 192, 4, 2}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int kept = EXPERTS_AS_STORED; kept <= kept_most(c); kept++)
            kept_case(c, &rows[i], WF_INT4_ROW, (expert_format)kept, i % 2, 1.0f);
    static const moe_shape wide[] = {
        {1, 256, 128, 4, 2}, {7, 128, 384, 3, 2}, {40, 384, 128, 4, 2}, {300, 256, 128, 8, 8}};
    for (size_t i = 0; i < COUNT_OF(wide); i++)
        for (int kept = EXPERTS_AS_STORED; kept <= kept_most(c); kept++)
            kept_case(c, &wide[i], WF_INT4_GROUP128, (expert_format)kept, i % 2, 1.0f);
}

/* FP8's scales: neighbours of very different sizes, one negative, one zero; all large. */
static void unequal_scales(weight_view *v, i64 views) {
    static const f32 times[] = {1, 0x1p-40f, -3, 0, 1.99f, 0x1p-3f, 0.6f};
    for (i64 i = 0, at = 0; i < views; i++)
        for (i64 j = 0; j < ceil_div(v[i].rows, FP8_BLOCK) * ceil_div(v[i].cols, FP8_BLOCK); j++)
            ((f32 *)v[i].scale)[j] *= times[at++ % (i64)COUNT_OF(times)];
}
static void large_scales(weight_view *v, i64 views) {
    for (i64 i = 0; i < views; i++)
        for (i64 j = 0; j < ceil_div(v[i].rows, FP8_BLOCK) * ceil_div(v[i].cols, FP8_BLOCK); j++)
            ((f32 *)v[i].scale)[j] *= 0x1p20f;
}

/* Block FP8 in whole blocks at many tokens (grouped_fp8.cu): tiles of every width, half a tile of rows, experts
 * without tokens, one for everybody, results too large for a half; few tokens and many with scales of all sizes and
 * with NaN. */
static void check_fp8(check *c) {
    static const moe_shape many[] = {{40, 384, 256, 4, 2},  {90, 128, 128, 4, 2},  {110, 128, 384, 4, 3},
                                     {300, 256, 128, 3, 1}, {170, 640, 128, 1, 1}, {260, 128, 256, 2, 2}};
    for (size_t i = 0; i < COUNT_OF(many); i++)
        check_moe_moe_case(c, &many[i], WF_FP8_BLOCK, i % 2, i == 4 ? 2000.0f : 1.0f);
    static const moe_shape one[] = {{33, 128, 128, 24, 2}, {200, 128, 128, 24, 1}};
    hot = true;
    for (size_t i = 0; i < COUNT_OF(one); i++) check_moe_moe_case(c, &one[i], WF_FP8_BLOCK, i % 2, 1.0f);
    hot = false;
    static const moe_shape both[] = {{6, 384, 256, 8, 2}, {60, 384, 256, 3, 2}};
    for (size_t i = 0; i < COUNT_OF(both); i++) {
        changed = unequal_scales;
        check_moe_moe_case(c, &both[i], WF_FP8_BLOCK, i % 2, 1.0f);
        changed = large_scales;
        check_moe_moe_case(c, &both[i], WF_FP8_BLOCK, false, 0x1p-20f);
        changed = one_nan;
        for (nan_column = 76; nan_column < 80; nan_column++) /* each byte of a word */
            nan_case(c, &both[i], WF_FP8_BLOCK, EXPERTS_AS_STORED);
        changed = NULL;
    }
    static const moe_shape real[] = {{40, 7168, 256, 16, 8}, {180, 7168, 256, 2, 2}, {130, 7168, 512, 1, 1}};
    for (size_t i = 0; check_on_gpu(c) && i < COUNT_OF(real); i++)
        check_moe_moe_case(c, &real[i], WF_FP8_BLOCK, i % 2, 1.0f);
}

/* MXFP4's scales: neighbours of very different sizes, the smallest and a large one among them. */
static void unequal_bytes(weight_view *v, i64 views) {
    static const int more[] = {0, -40, 3, -127, -1, -9};
    for (i64 i = 0, at = 0; i < views; i++)
        for (i64 j = 0; j < v[i].rows * (v[i].cols / MXFP4_GROUP); j++) {
            u8 *b = (u8 *)v[i].scale + j;
            const int is = *b + more[at++ % (i64)COUNT_OF(more)];
            *b = (u8)(is < 0 ? 0 : is);
        }
}

/* All of NVFP4's scales, negative ones and zeros too, in turn; factors that multiply and that divide. */
static void all_bytes(weight_view *v, i64 views) {
    for (i64 i = 0, at = 0; i < views; i++) {
        for (i64 j = 0; j < v[i].rows * (v[i].cols / NVFP4_GROUP); j++, at++)
            ((u8 *)v[i].scale)[j] = (u8)(at % 128 == 127 ? 0 : at * 129 & 0xff);
        v[i].factor = i % 2 ? 311.0f + (f32)i : 1 / (300.0f + (f32)i), v[i].divides = i % 2;
    }
}

/* MXFP4 or NVFP4 at few tokens and many, in blocks of 16 x 64 and in others; kept in other formats; scales of all
 * sizes; NaN. */
static void check_fp4(check *c, weight_format f) {
    static const moe_shape all[] = {{1, 256, 64, 8, 4},    {3, 512, 96, 4, 3},   {5, 96, 32, 3, 2},
                                    {17, 256, 192, 6, 2},  {33, 64, 64, 16, 8},  {9, 64, 320, 16, 8},
                                    {129, 192, 64, 12, 2}, {40, 320, 192, 4, 2}, {300, 192, 128, 3, 1},
                                    {190, 320, 192, 1, 1}, {513, 64, 128, 4, 2}, {1, 1088, 64, 16, 16}};
    static const moe_shape real[] = {{1, 7168, 256, 16, 8},
                                     {8, 7168, 512, 8, 8},
                                     {40, 7168, 256, 16, 8},
                                     {3, 7168, 2048, 6, 4},
                                     {160, 7168, 256, 16, 8}};
    static const moe_shape both[] = {{6, 384, 256, 8, 2}, {60, 384, 256, 3, 2}};
    for (size_t i = 0; i < COUNT_OF(all); i++) check_moe_moe_case(c, &all[i], f, i % 2, i == 9 ? 2000.0f : 1.0f);
    for (size_t i = 0; check_on_gpu(c) && i < COUNT_OF(real); i++) check_moe_moe_case(c, &real[i], f, i % 2, 1.0f);
    for (size_t i = 0; i < COUNT_OF(both); i++) {
        for (int kept = EXPERTS_W4A8; kept <= kept_most(c); kept++)
            kept_case(c, &both[i], f, (expert_format)kept, i % 2, 1.0f);
        changed = f == WF_MXFP4 ? unequal_bytes : all_bytes;
        check_moe_moe_case(c, &both[i], f, i % 2, 1.0f);
        changed = one_nan;
        nan_case(c, &both[i], f, EXPERTS_AS_STORED);
        changed = NULL;
    }
}

/* INT8 with one scale a row: odd shapes, 16 bytes at a time, many tokens an expert; kept in other formats; NaN. */
static void check_int8(check *c) {
    static const moe_shape all[] = {{1, 256, 64, 8, 4},   {3, 512, 96, 4, 3},    {5, 50, 21, 3, 2},
                                    {17, 256, 192, 6, 2}, {300, 192, 128, 3, 1}, {33, 64, 64, 16, 8}};
    static const moe_shape both[] = {{6, 384, 256, 8, 2}, {60, 384, 256, 3, 2}};
    for (size_t i = 0; i < COUNT_OF(all); i++) check_moe_moe_case(c, &all[i], WF_INT8_ROW, i % 2, 1.0f);
    for (size_t i = 0; i < COUNT_OF(both); i++) {
        for (int kept = EXPERTS_W4A8; kept <= kept_most(c); kept++)
            kept_case(c, &both[i], WF_INT8_ROW, (expert_format)kept, i % 2, 1.0f);
        changed = one_nan;
        nan_case(c, &both[i], WF_INT8_ROW, EXPERTS_AS_STORED);
        changed = NULL;
    }
}

/* Many tokens an expert, several slots a token: results too large for a half, and too small
 * (kernels/gpu/moe/fp16_range.cuh). */
static void check_range(check *c) {
    static const moe_shape narrow = {60, 256, 128, 3, 2}, wide = {230, 192, 128, 2, 2};
    static const f32 sigmas[] = {2000.0f, 1e10f, 3e-3f, 1e-6f};
    for (size_t i = 0; i < COUNT_OF(sigmas); i++) {
        check_moe_moe_case(c, &narrow, WF_INT4_GROUP, false, sigmas[i]);
        check_moe_moe_case(c, &wide, WF_INT4_GROUP, false, sigmas[i]);
        if (i % 2) check_moe_moe_case(c, &narrow, WF_BF16, false, sigmas[i]);
        if (i % 2) check_moe_moe_case(c, &narrow, WF_FP8_BLOCK, false, sigmas[i]);
        kept_case(c, &wide, WF_INT4_GROUP, EXPERTS_W4A8, false, sigmas[i]);
    }
}

/* Prompts on a GPU: experts with none of the tokens, one with all of them, the others with hundreds; all formats. */
static void check_prompts(check *c) {
    static const moe_shape all[] = {{4096, 512, 256, 24, 2}, {4099, 256, 128, 24, 3}};
    if (!check_on_gpu(c)) return;
    skewed = true;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        for (int f = WF_BF16; f <= WF_FP8_ROW; f++) check_moe_moe_case(c, &all[i], (weight_format)f, i % 2, 1.0f);
        check_moe_moe_case(c, &all[i], WF_MXFP4, i % 2, 1.0f);
        check_moe_moe_case(c, &all[i], WF_NVFP4, i % 2, 1.0f);
        for (int kept = EXPERTS_AS_STORED; kept <= EXPERTS_W2_BF16; kept++)
            kept_case(c, &all[i], WF_INT4_GROUP, (expert_format)kept, i % 2, 1.0f);
    }
    skewed = false;
}

/* A rank that has an eighth of the experts: most slots are of others', rows may have none here, and kernels are chosen
 * by the pairs to expect. */
static void check_spread(check *c) {
    static const moe_shape all[] = {{1, 256, 128, 8, 8},  {3, 256, 128, 8, 8},   {16, 128, 128, 8, 8},
                                    {40, 256, 128, 8, 4}, {200, 128, 256, 8, 8}, {600, 128, 128, 4, 8}};
    static const moe_shape real[] = {{1, 7168, 2048, 12, 8}, {4, 7168, 2048, 12, 8}, {64, 7168, 2048, 12, 8}};
    sparse = true;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (int f = WF_BF16; f < WF_COUNT; f++) {
            if (f == WF_MXFP4_PACKED || f == WF_NVFP4_PACKED) continue; /* no view has it */
            check_moe_moe_case(c, &all[i], (weight_format)f, true, 1.0f);
        }
    for (size_t i = 0; check_on_gpu(c) && i < COUNT_OF(real); i++)
        check_moe_moe_case(c, &real[i], WF_INT4_GROUP, true, 1.0f);
    sparse = false;
}

void check_moe(check *c) {
    static const moe_shape s[] = {{1, 7168, 256, 2, 2}, {2, 256, 64, 8, 4},   {3, 512, 96, 4, 3},   {5, 96, 32, 3, 2},
                                  {17, 256, 192, 6, 2}, {33, 64, 64, 16, 8},  {64, 288, 160, 2, 1}, {97, 256, 64, 4, 4},
                                  {150, 128, 32, 1, 1}, {7, 1024, 2048, 2, 2}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int f = 0; f <= WF_INT4_GROUP; f++)
            if (s[i].inter < 2048 || f == WF_INT4_GROUP || !check_emulated(c))
                check_moe_moe_case(c, &s[i], (weight_format)f, i % 2, 1.0f);
    static const moe_shape many[] = {{160, 32, 32, 16, 16}, {260, 32, 32, 16, 16}}; /* of pairs */
    for (size_t i = 0; i < COUNT_OF(many); i++) check_moe_moe_case(c, &many[i], WF_BF16, true, 1.0f);
    /* INT4 in blocks of 16 x 64 (kernels/gpu/device/int4_pack.h): tokens 1..64 and around the kernels' limits; one
     * expert for all; more experts than pairs; real widths on a GPU alone: processors and the emulated GPU would
     * take minutes */
    check_each(c);
    static const moe_shape blocks[] = {{128, 128, 64, 16, 2}, {129, 192, 64, 12, 2}, {40, 576, 128, 1, 1},
                                       {9, 64, 320, 16, 8},   {300, 64, 64, 3, 3},   {513, 64, 128, 4, 2},
                                       {1, 1088, 64, 16, 16}};
    static const moe_shape real[] = {{1, 7168, 256, 16, 8},
                                     {8, 7168, 512, 8, 8},
                                     {40, 7168, 256, 16, 8},
                                     {3, 7168, 2048, 6, 4},
                                     {160, 7168, 256, 16, 8}};
    for (size_t i = 0; i < COUNT_OF(blocks); i++) check_moe_moe_case(c, &blocks[i], WF_INT4_GROUP, i % 2, 1.0f);
    for (size_t i = 0; check_on_gpu(c) && i < COUNT_OF(real); i++)
        for (int f = WF_BF16; f <= WF_INT4_GROUP; f += WF_INT4_GROUP - WF_BF16)
            check_moe_moe_case(c, &real[i], (weight_format)f, i % 2, 1.0f);
    static const moe_shape odd = {5, 50, 21, 3, 2}; /* no whole groups: not for INT4 */
    for (int f = 0; f < WF_INT4_GROUP; f++) check_moe_moe_case(c, &odd, (weight_format)f, true, 1.0f);
    /* many tokens an expert: tiles of every width, columns that do not fill one, results too large for a half */
    static const moe_shape tiled[] = {{40, 320, 192, 4, 2},  {300, 192, 128, 3, 1}, {230, 256, 320, 4, 2},
                                      {190, 320, 192, 1, 1}, {136, 64, 128, 1, 1},  {170, 320, 64, 1, 1},
                                      {130, 320, 64, 1, 1},  {353, 128, 64, 1, 1}};
    static const f32 sigmas[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 2000.0f, 1.0f};
    for (size_t i = 0; i < COUNT_OF(tiled); i++) {
        check_moe_moe_case(c, &tiled[i], WF_BF16, i % 2, sigmas[i]);
        check_moe_moe_case(c, &tiled[i], WF_INT4_GROUP, i % 2, sigmas[i]);
    }
    check_kept(c);
    check_stored(c);
    check_fp8(c);
    check_fp4(c, WF_MXFP4);
    check_fp4(c, WF_NVFP4);
    check_int8(c);
    check_range(c);
    check_prompts(c);
    check_spread(c);
}
