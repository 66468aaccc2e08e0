/* cmd/check/check_sample.c: draws: every backend takes the very token that ref takes. */
#include "cmd/check/check.h"
#include <math.h>
#include <string.h>

/* Logits as a model has them (a few far above the rest), flat, with many equal ones, or with tokens that are ruled
 * out. */
enum { PEAKED, FLAT, EQUAL, RULED_OUT, SHAPES };
static void fill_logits(check *c, f32 *x, i64 n, int shape) {
    f32 most = 0;
    for (i64 i = 0; i < n; i++) {
        f32 v = synth_normal(&c->rng);
        if (shape == PEAKED) v = 3 * v + (v > 3.0f ? 4 * v : 0);
        if (shape == FLAT) v *= 0.01f;
        if (shape == EQUAL) v = floorf(v);
        if (v == 0 && i % 2) v = -0.0f; /* equal to 0 */
        if (shape == RULED_OUT && synth_bits(&c->rng) % 8) v = -INFINITY;
        x[i] = v;
        most = v > most ? v : most;
    }
    if (shape == RULED_OUT) x[n / 2] = most; /* finite whatever was drawn */
}

static sample_row random_row(check *c, i64 vocab, int kind) {
    static const f32 scales[] = {0, 1.442695f, 1.442695f / 0.3f, 1.442695f / 20, 1e30f, 5.0f};
    static const f64 shares[] = {0.9, 0.5, 0.999, 1e-9, 0.95}, least[] = {0.3, 0.02, 1, 0.02};
    u64 r = synth_bits(&c->rng);
    sample_row s = {.scale = scales[r % 6], .top_p = (u64)1 << SAMPLE_BITS, .u = synth_bits(&c->rng) >> 11};
    if (kind & 1) s.top_k = r >> 8 & 1 ? 1 + (i32)(r >> 16 & 63) : (i32)((r >> 16 & 0xffffff) % (u64)(vocab + 3));
    if (kind & 2) s.top_p = (u64)(shares[(r >> 9) % 5] * 0x1p53);
    if (kind & 4) s.min_weight = (u64)ceil(least[r >> 12 & 3] * 0x1p39);
    if (r >> 60 == 0) s.u = 0;
    if (r >> 60 == 1) s.u = ((u64)1 << SAMPLE_BITS) - 1;
    return s;
}

/* Rows 0, 3, 6 and so on have none; the others may have nearly all tokens, one of eight, few, or none at all. */
static void random_masks(check *c, sample_row *rows, u64 *masks, i64 n, i64 words, i64 vocab) {
    for (i64 i = 0, m = 0; i < n; i++) {
        if (i % 3 == 0) continue;
        u64 *mask = masks + m * words;
        for (i64 w = 0; w < words; w++) {
            u64 a = synth_bits(&c->rng), b = synth_bits(&c->rng);
            mask[w] = i % 4 == 0 ? a | b : i % 4 == 1 ? a & b & synth_bits(&c->rng) : 0;
        }
        for (int k = 0; i % 4 == 2 && k < 3; k++) {
            u64 id = synth_bits(&c->rng) % (u64)vocab;
            mask[id / 64] |= (u64)1 << id % 64;
        }
        rows[i].mask = ++m;
    }
}

/* kind: bit 0 top-k, bit 1 top-p, bit 2 min-p; 8: greedy */
static void sample_case(check *c, i64 n, i64 vocab, i64 stride, int shape, int kind) {
    f32 *x = check_alloc(c, (u64)(n * stride) * 4);
    sample_row *rows = check_alloc(c, (u64)n * sizeof *rows);
    i32 *ids = check_alloc(c, (u64)n * 4), *want = check_alloc(c, (u64)n * 4);
    i32 *bad = check_alloc(c, (u64)n * 4), *want_bad = check_alloc(c, (u64)n * 4);
    const i64 words = ceil_div(vocab, 64) + 1;
    u64 *masks = check_alloc(c, (u64)(n * words) * 8);
    for (i64 i = 0; i < n; i++) {
        fill_logits(c, x + i * stride, vocab, shape);
        rows[i] = random_row(c, vocab, kind);
        if (kind == 8) rows[i].scale = 0;
        bad[i] = want_bad[i] = i == 1 ? 7 : 0;
    }
    random_masks(c, rows, masks, n, words, vocab);
    if (n > 2 && shape != RULED_OUT) x[(n - 1) * stride + vocab - 1] = n % 2 ? NAN : INFINITY;
    sample_args a = {.logits = x,
                     .rows = rows,
                     .masks = masks,
                     .ids = ids,
                     .bad = bad,
                     .n = n,
                     .vocab = vocab,
                     .stride = stride,
                     .mask_words = words,
                     .draws = kind != 8,
                     .cuts = kind & 3,
                     .mark = -2},
                b = a;
    b.ids = want, b.bad = want_bad;
    a.workspace = check_alloc(c, c->dev->sample_workspace(c->dev, &a));
    b.workspace = check_alloc(c, c->ref->sample_workspace(c->ref, &b));
    c->dev->sample(c->dev, &a);
    c->ref->sample(c->ref, &b);
    for (i64 i = 0; i < n; i++) {
        if (bad[i] != want_bad[i])
            check_fail(c, "sample: mark of row %lld is %d, not %d", (long long)i, bad[i], want_bad[i]);
        if (want_bad[i] && shape != RULED_OUT ? ids[i] < 0 || ids[i] >= vocab : ids[i] != want[i])
            check_fail(
                c,
                "sample: row %lld of %lld, vocabulary %lld, logits %d: token %d, not %d (scale %g, top-k %d, top-p %g, mask %lld)",
                (long long)i, (long long)n, (long long)vocab, shape, ids[i], want[i], (f64)rows[i].scale, rows[i].top_k,
                (f64)rows[i].top_p * 0x1p-53, (long long)rows[i].mask);
    }
    c->cases++;
    check_case_end(c);
}

void check_sample(check *c) {
    static const struct { i64 n, vocab, stride; } s[] = {{1, 8, 8}, {5, 33, 37}, {17, 700, 700}, {2, 4097, 4099}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int kind = 0; kind <= 8; kind++) sample_case(c, s[i].n, s[i].vocab, s[i].stride, shape, kind);
    sample_case(c, 64, 300, 300, PEAKED, 3);
    sample_case(c, 2, 20480, 20480, EQUAL, 1); /* more equal ones than a block has room for */
    sample_case(c, 3, 20480, 20484, FLAT, 2);
    for (int kind = 1; kind < 4; kind++) sample_case(c, 5, 8548, 8552, FLAT, kind); /* the last tile is short */
    for (int kind = 0; kind < 4; kind++)
        sample_case(c, 1, 163840, 163840, kind == EQUAL ? PEAKED : kind, kind); /* Kimi's */
    for (int kind = 4; kind < 8 && check_on_gpu(c); kind++) sample_case(c, 5, 163840, 163844, kind % 3, kind);
}

/* Log-probabilities: the same ids, values to float32. */
static void logprobs_case(check *c, i64 n, i64 vocab, i64 stride, int shape, i64 most) {
    f32 *x = check_alloc(c, (u64)(n * stride) * 4);
    i32 *ids = check_alloc(c, (u64)n * 4), *drawn = check_alloc(c, (u64)n * 4), *tops = check_alloc(c, (u64)n * 4);
    f32 *got = check_alloc(c, (u64)(n * (1 + most)) * 4), *want = check_alloc(c, (u64)(n * (1 + most)) * 4);
    i32 *got_ids = check_alloc(c, (u64)(n * most) * 4), *want_ids = check_alloc(c, (u64)(n * most) * 4);
    for (i64 i = 0; i < n; i++) {
        fill_logits(c, x + i * stride, vocab, shape);
        ids[i] = i % 3 ? (i32)(synth_bits(&c->rng) % (u64)vocab) : -1;
        drawn[i] = (i32)(synth_bits(&c->rng) % (u64)vocab);
        tops[i] = i % 4 == 3 ? -1 : (i32)(i % 4 == 2 ? 0 : i % 4 ? most : (i64)(synth_bits(&c->rng) % (u64)(most + 1)));
    }
    logprobs_args a = {.logits = x,
                       .ids = ids,
                       .drawn = drawn,
                       .tops = tops,
                       .top_ids = got_ids,
                       .logprobs = got,
                       .n = n,
                       .vocab = vocab,
                       .stride = stride,
                       .n_top = most},
                  b = a;
    b.top_ids = want_ids, b.logprobs = want;
    a.workspace = check_alloc(c, c->dev->logprobs_workspace(c->dev, &a));
    b.workspace = check_alloc(c, c->ref->logprobs_workspace(c->ref, &b));
    c->dev->logprobs(c->dev, &a);
    c->ref->logprobs(c->ref, &b);
    for (i64 i = 0; i < n * most; i++)
        if (got_ids[i] != want_ids[i])
            check_fail(c, "logprobs: row %lld of %lld, vocabulary %lld, logits %d: id %lld is %d, not %d",
                       (long long)(i / most), (long long)n, (long long)vocab, shape, (long long)(i % most), got_ids[i],
                       want_ids[i]);
    for (i64 i = 0; i < n * (1 + most); i++) {
        if (!memcmp(&got[i], &want[i], sizeof got[i])) continue;
        f64 error = fabs((f64)got[i] - (f64)want[i]) / fmax(1, fabs((f64)want[i]));
        if (!(error <= 2.5e-7))
            check_fail(c, "logprobs: row %lld: %.9g, not %.9g", (long long)(i / (1 + most)), (f64)got[i], (f64)want[i]);
        if (!(error <= c->worst)) c->worst = error;
    }
    c->bound = 2.5e-7;
    c->cases++;
    check_case_end(c);
}

void check_logprobs(check *c) {
    static const struct {
        i64 n, vocab, stride, most;
    } s[] = {{1, 8, 8, 8},        {5, 33, 37, 5},      {17, 700, 700, 128},
             {3, 3000, 3004, 20}, {4, 4097, 4099, 20}, {2, 270000, 270000, 2}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        for (int shape = 0; shape < SHAPES; shape++)
            logprobs_case(c, s[i].n, s[i].vocab, s[i].stride, shape, s[i].most);
    logprobs_case(c, 64, 300, 300, PEAKED, 3);
    logprobs_case(c, 3, 163840, 163840, PEAKED, 128); /* Kimi's */
}
