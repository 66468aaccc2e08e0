/* tests/lib/drawn_tokens.h: tokens and log-probabilities that a batch's device draws, beside those that the host draws
 * from the logits which the same batch hands out. */
#ifndef TESTS_DRAWN_TOKENS_H
#define TESTS_DRAWN_TOKENS_H
#include "kernels/sampling/logprobs.h"
#include "kernels/sampling/sample.h"
#include "runtime/engine_internal.h"
#include "runtime/sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN_MOST = 13, DRAWN_TOP = 6 };

/* Greedy, plain, and with each kind of cut. */
static sample_row drawn_how(i64 i, u64 seed) {
    sampling p = sampling_default();
    p.seed = seed;
    if (i % 5) p.temperature = 0.7 + 0.3 * (f64)(i % 3);
    if (i % 5 == 2) p.top_k = 1 + i;
    if (i % 5 == 3) p.top_p = 0.6;
    if (i % 5 == 4) p.top_k = 20, p.top_p = 0.9, p.min_p = 0.01;
    return sampler_row(&p, 0, (u64)i);
}

static void drawn_row_agrees(const char *what, const model_batch *b, i64 i, i64 vocab) {
    const f32 *x = b->logits + i * vocab, *logprobs = b->logprobs + i * (1 + b->top_most);
    void *scratch = malloc(sample_scratch(vocab));
    i32 id = sample_one(x, vocab, &b->draws[i],
                        b->draws[i].mask ? b->masks + (b->draws[i].mask - 1) * ceil_div(vocab, 64) : NULL, scratch),
        best[DRAWN_TOP];
    free(scratch);
    if (b->drawn[i] != id)
        fail_msg("%s: row %lld of %lld: %d is drawn, not %d", what, (long long)i, (long long)b->n_out, b->drawn[i], id);
    if (b->tops[i] < 0) return;
    const f64 lse = log_sum_exp(x, vocab), own = x[b->next[i] < 0 ? id : b->next[i]] - lse;
    if (!(fabs(logprobs[0] - own) < 1e-4))
        fail_msg("%s: row %lld: log-probability %g, not %g", what, (long long)i, logprobs[0], own);
    largest_of(x, vocab, best, b->tops[i]);
    for (i64 k = 0; k < b->tops[i]; k++) {
        assert_int_equal(b->top_ids[i * b->top_most + k], best[k]);
        assert_true(fabs(logprobs[1 + k] - (x[best[k]] - lse)) < 1e-4);
    }
}

/* Sets of few and of many tokens, for rows 1, 2, 4, 5, 7 and so on; returns how many. */
static i64 drawn_masks(u64 *masks, i64 n, i64 vocab, u64 seed) {
    const i64 words = ceil_div(vocab, 64), n_masks = n - (n + 2) / 3;
    memset(masks, 0, (size_t)(n_masks * words) * sizeof *masks);
    for (i64 m = 0; m < n_masks; m++)
        for (i64 id = 0; id < vocab; id++)
            if (((u64)id * 2654435761u >> 3) % (m % 2 ? 2 : 401) == (seed + (u64)m) % 2)
                masks[m * words + id / 64] |= (u64)1 << id % 64;
    return n_masks;
}

/* The logits of the same batch on ref, and how far b's are from them. */
static void logits_agree(const char *what, engine *ref, model_batch b, f64 bound) {
    const i64 n = b.n_out * ref->config.vocab;
    const f32 *x = b.logits;
    f64 diff = 0, norm = 1e-30;
    f32 *y = b.logits = malloc((size_t)n * sizeof *y);
    err e = {0};
    b.draws = NULL, b.tops = NULL, b.late_draw = false;
    if (engine_forward(ref, &b, &e) != ST_OK) fail_msg("ref: %s", e.text);
    for (i64 i = 0; i < n; i++) diff += ((f64)x[i] - y[i]) * ((f64)x[i] - y[i]), norm += (f64)y[i] * y[i];
    free(y);
    if (!(sqrt(diff / norm) <= bound))
        fail_msg("%s: logits of %lld rows are %.2e from ref's", what, (long long)b.n, sqrt(diff / norm));
}

/* Steps of several sizes, whose rows' tokens and log-probabilities are wanted with their logits; bound: how far those
 * may be from ref's on one rank; 0: they are not compared. */
static void draws_agree(const char *what, const char *dir, engine_options o, f64 bound) {
    engine *g, *ref = NULL;
    err e = {0};
    o.model_dir = dir, o.context = 256, o.max_running = DRAWN_MOST;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s: %s", what, e.text);
    o.device = "ref", o.tp = 0, o.pp = 0, o.dcp = 0, o.ep = 0, o.gpus = NULL, o.nccl = o.dp_attention = false;
    if (bound > 0 && engine_open(&ref, &o, &e) != ST_OK) fail_msg("ref: %s", e.text);
    const i64 vocab = g->config.vocab;
    f32 *logits = malloc((size_t)(DRAWN_MOST * vocab) * sizeof *logits), logprobs[DRAWN_MOST * (1 + DRAWN_TOP)];
    i32 ids[DRAWN_MOST], rows[DRAWN_MOST], bad[DRAWN_MOST], drawn[DRAWN_MOST], tops[DRAWN_MOST], next[DRAWN_MOST],
        top_ids[DRAWN_MOST * DRAWN_TOP];
    sample_row how[DRAWN_MOST];
    u64 *masks = malloc((size_t)(DRAWN_MOST * ceil_div(vocab, 64)) * sizeof *masks);
    bool keep_all[DRAWN_MOST];
    static const i32 pages[1] = {0};
    for (i64 n = 1; n <= DRAWN_MOST; n += n < 3 ? 1 : 5)
        for (u64 seed = 0; seed < 3; seed++) {
            const i64 n_masks = drawn_masks(masks, n, vocab, seed);
            for (i64 i = 0; i < n; i++) {
                ids[i] = (i32)((u64)(i * 7919 + 3) % (u64)vocab), rows[i] = (i32)i, keep_all[i] = true;
                how[i] = drawn_how(i + (i64)seed, seed), how[i].mask = i % 3 ? i - i / 3 : 0;
                tops[i] = (i32)(i + (i64)seed) % (DRAWN_TOP + 2) - 1;
                next[i] = i % 2 ? (i32)(i * 31 % vocab) : -1, drawn[i] = -7;
            }
            const model_span span = {.n = n, .pages = pages, .absorbed = true};
            const model_batch b = {.n = n,
                                   .ids = ids,
                                   .n_spans = 1,
                                   .spans = &span,
                                   .n_out = n,
                                   .out_rows = rows,
                                   .logits = logits,
                                   .draws = how,
                                   .drawn = drawn,
                                   .masks = masks,
                                   .n_masks = n_masks,
                                   .late_draw = seed == 1,
                                   .keep = keep_all,
                                   .tops = tops,
                                   .next = next,
                                   .top_most = DRAWN_TOP,
                                   .logprobs = logprobs,
                                   .top_ids = top_ids,
                                   .bad = bad};
            if (engine_forward(g, &b, &e) != ST_OK) fail_msg("%s: %s", what, e.text);
            for (i64 i = 0; i < n; i++) assert_int_equal(bad[i], 0), drawn_row_agrees(what, &b, i, vocab);
            if (ref && !seed) logits_agree(what, ref, b, bound);
        }
    free(logits);
    free(masks);
    engine_close(ref);
    engine_close(g);
}

#endif
