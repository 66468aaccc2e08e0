/* Sampling: every step by itself on small vocabularies, and the random numbers against published vectors. */
#include "unit.h"
#include "kernels/sampling/logprobs.h"
#include "kernels/sampling/sample.h"

#include "runtime/philox.h"
#include "runtime/sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 8 };

static sampled once(const sampling *p, const f32 *logits, i64 vocab, const sampling_history *h, u64 position) {
    sampler *s;
    f32 x[4096];
    sampling_history none = {0};
    assert_int_equal(sampler_open(&s, vocab, NULL), ST_OK);
    memcpy(x, logits, (size_t)vocab * sizeof *x);
    sampled r = sampler_next(s, p, x, h ? h : &none, 0, position);
    sampler_close(s);
    return r;
}

/* Share of each token over n draws. */
static void frequencies(const sampling *p, const f32 *logits, i64 n, f64 *share) {
    sampler *s;
    f32 x[V];
    sampling_history none = {0};
    memset(share, 0, V * sizeof *share);
    assert_int_equal(sampler_open(&s, V, NULL), ST_OK);
    for (i64 i = 0; i < n; i++) {
        memcpy(x, logits, sizeof x);
        share[sampler_next(s, p, x, &none, 0, (u64)i).id] += 1.0 / (f64)n;
    }
    sampler_close(s);
}

/* Known answers of Random123 1.14 (kat_vectors, philox4x32 with ten rounds). */
static void philox_known_answers(void **state) {
    (void)state;
    static const u32 kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        u32 c[4];
        memcpy(c, kat[i], sizeof c);
        philox4x32(c, kat[i][4], kat[i][5]);
        assert_memory_equal(c, kat[i] + 6, sizeof c);
    }
}

static void greedy_takes_the_lowest_of_equals(void **state) {
    (void)state;
    const f32 x[V] = {0, 3, 1, 3, -1, 2, 3, 0};
    sampling p = sampling_default();
    sampled r = once(&p, x, V, NULL, 0);
    assert_int_equal(r.id, 1);
    assert_true(fabs(r.logprob - (3 - log_sum_exp(x, V))) < 1e-6);
}

static void temperature_one_follows_softmax(void **state) {
    (void)state;
    const f32 x[V] = {0, 1, 2, -1, -30, 0.5f, 1.5f, 0};
    sampling p = sampling_default();
    f64 share[V], lse = log_sum_exp(x, V);
    p.temperature = 1;
    p.seed = 7;
    frequencies(&p, x, 200000, share);
    for (int t = 0; t < V; t++) assert_true(fabs(share[t] - exp(x[t] - lse)) < 0.005);
}

static void top_k_keeps_k_and_breaks_ties_by_id(void **state) {
    (void)state;
    const f32 x[V] = {1, 1, 1, 1, 0, 0, 0, 0};
    sampling p = sampling_default();
    f64 share[V];
    p.temperature = 1;
    p.top_k = 3;
    frequencies(&p, x, 30000, share);
    for (int t = 0; t < V; t++) assert_true(fabs(share[t] - (t < 3 ? 1.0 / 3 : 0)) < 0.02);
}

static void top_p_keeps_the_smallest_set(void **state) {
    (void)state;
    /* probabilities 0.5, 0.25, 0.125, ... */
    f32 x[V];
    f64 share[V];
    for (int t = 0; t < V; t++) x[t] = (f32)(-(t + 1) * log(2));
    sampling p = sampling_default();
    p.temperature = 1;
    p.top_p = 0.7; /* 0.502 + 0.251 of the total reach it */
    frequencies(&p, x, 60000, share);
    assert_true(fabs(share[0] - 2.0 / 3) < 0.01 && fabs(share[1] - 1.0 / 3) < 0.01);
    for (int t = 2; t < V; t++) assert_true(share[t] == 0);
    p.top_k = 1; /* top-p is over what top-k left */
    frequencies(&p, x, 100, share);
    assert_true(share[0] > 0.999);
}

static void min_p_drops_below_a_share_of_the_best(void **state) {
    (void)state;
    f32 x[V];
    f64 share[V];
    for (int t = 0; t < V; t++) x[t] = (f32)(-(t + 1) * log(2));
    sampling p = sampling_default();
    p.temperature = 1;
    p.min_p = 0.2;
    frequencies(&p, x, 30000, share);
    assert_true(share[2] > 0.1);
    for (int t = 3; t < V; t++) assert_true(share[t] == 0);
}

/* Exactly the share is enough, and a weight of exactly the least stays. */
static void equal_logits_on_the_limits(void **state) {
    (void)state;
    const f32 two[2] = {1, 1}, best[V] = {3, 1, 3, 0, 0, 0, 0, 0};
    u64 scratch[64];
    sample_row r = {.scale = 1.442695f, .top_p = (u64)1 << (SAMPLE_BITS - 1)};
    assert_true(sample_scratch(2) <= sizeof scratch);
    for (u64 i = 0; i < 64; i++) {
        r.u = i << (SAMPLE_BITS - 6);
        assert_int_equal(sample_one(two, 2, &r, NULL, scratch), 0);
    }
    f64 share[V];
    sampling p = sampling_default();
    p.temperature = 1;
    p.min_p = 1;
    frequencies(&p, best, 1000, share);
    assert_true(share[0] > 0.4 && share[2] > 0.4 && share[0] + share[2] > 0.999);
}

/* A token that may not come counts as one of no probability, in every kind of draw; of none that may come, token 0. */
static void masked_tokens_are_as_if_there_were_none(void **state) {
    enum { N = 200 };
    (void)state;
    f32 x[N], without[N];
    u64 *scratch = malloc(sample_scratch(N)), mask[4];
    for (u64 seed = 0; seed < 600; seed++) {
        sampling p = sampling_default();
        memset(mask, 0, sizeof mask);
        for (int t = 0; t < N; t++) {
            const u64 r = philox_bits(seed, 1, (u64)t);
            x[t] = (f32)(r % 1000) / 100;
            const bool in = r >> 20 & (seed % 3 ? 1 : 31) ? seed % 2 : !(seed % 2);
            mask[t / 64] |= (u64)in << t % 64;
            without[t] = in ? x[t] : -INFINITY;
        }
        if (!(mask[0] | mask[1] | mask[2] | mask[3])) continue;
        p.temperature = (f64)(seed % 5) / 2, p.seed = seed;
        if (seed % 7 == 1) p.top_k = 3;
        if (seed % 7 == 2) p.top_p = 0.3;
        if (seed % 7 == 3) p.top_k = 10, p.top_p = 0.9;
        if (seed % 7 == 4) p.min_p = 0.2;
        const sample_row r = sampler_row(&p, 0, seed);
        assert_int_equal(sample_one(x, N, &r, mask, scratch), sample_one(without, N, &r, NULL, scratch));
    }
    memset(mask, 0, sizeof mask);
    const sample_row r = {.scale = 1, .top_p = (u64)1 << SAMPLE_BITS};
    assert_int_equal(sample_one(x, N, &r, mask, scratch), 0);
    free(scratch);
}

static void penalties_change_what_was_seen(void **state) {
    (void)state;
    const f32 x[V] = {2, 1.9f, -1, -1.05f, 0, 0, 0, 0};
    const i32 prompt[] = {0}, output[] = {1, 1};
    sampling_history h = {.prompt = prompt, .output = output, .n_prompt = 1, .n_output = 2};
    sampling p = sampling_default();
    p.repetition_penalty = 4; /* 2 -> 0.5, 1.9 -> 0.475; 0 beats neither, so 0.5 stays the best */
    assert_int_equal(once(&p, x, V, &h, 0).id, 0);
    p = sampling_default();
    p.presence_penalty = 3; /* the prompt does not count */
    assert_int_equal(once(&p, x, V, &h, 0).id, 0);
    h = (sampling_history){.output = prompt, .n_output = 1};
    assert_int_equal(once(&p, x, V, &h, 0).id, 1);
    h = (sampling_history){.output = output, .n_output = 2};
    const f32 y[V] = {2, 2.5f};
    p = sampling_default();
    p.frequency_penalty = 0.3; /* twice 0.3 */
    assert_int_equal(once(&p, y, 2, &h, 0).id, 0);
    p.frequency_penalty = 0.2;
    assert_int_equal(once(&p, y, 2, &h, 0).id, 1);
}

static void the_reported_logprob_is_the_models_own(void **state) {
    (void)state;
    const f32 x[V] = {2, 1, 0, 0, 0, 0, 0, 0};
    const i32 seen[] = {0};
    sampling_history h = {.prompt = seen, .n_prompt = 1};
    sampling p = sampling_default();
    p.repetition_penalty = 50;
    sampled r = once(&p, x, V, &h, 0);
    assert_int_equal(r.id, 1);
    assert_true(fabs(r.logprob - (1 - log_sum_exp(x, V))) < 1e-6);
}

static void bias_and_forbidden_tokens_come_first(void **state) {
    (void)state;
    const f32 x[V] = {2, 1, 0, 0, -3, 0, 0, 0}, bias[] = {10, -100};
    const i32 ids[] = {4, 0}, stop[] = {4, 1};
    sampling_history h = {.bias_ids = ids, .bias = bias, .n_bias = 2};
    sampling p = sampling_default();
    sampled r = once(&p, x, V, &h, 0);
    assert_int_equal(r.id, 4);
    assert_true(fabs(r.logprob - (-3 - log_sum_exp(x, V))) < 1e-6); /* of the unchanged logits */
    h.forbidden = stop, h.n_forbidden = 2;
    assert_int_equal(once(&p, x, V, &h, 0).id, 2);
    p.temperature = 1;
    for (u64 i = 0; i < 100; i++) {
        i32 id = once(&p, x, V, &h, i).id;
        assert_true(id != 4 && id != 1 && id != 0); /* exp(-98) is never drawn */
    }
    const i32 all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    h.forbidden = all, h.n_forbidden = V; /* nothing is left: a token all the same */
    assert_int_equal(once(&p, x, V, &h, 0).id, 0);
}

static void top_is_sorted_with_ties_by_id(void **state) {
    (void)state;
    const f32 x[V] = {1, 3, 2, 3, 0, 3, -1, 2};
    sampled top[V];
    const i32 want[V] = {1, 3, 5, 2, 7, 0, 4, 6};
    f64 lse = log_sum_exp(x, V);
    for (i64 k = 1; k <= V; k++) {
        sampler_top(x, V, lse, top, k);
        for (i64 i = 0; i < k; i++) {
            assert_int_equal(top[i].id, want[i]);
            assert_true(top[i].logprob == (f32)((f64)x[want[i]] - lse));
        }
    }
}

static void equal_seeds_draw_equal_tokens(void **state) {
    (void)state;
    f32 x[4096];
    for (int t = 0; t < 4096; t++) x[t] = (f32)sin(t * 12.9898);
    sampling p = sampling_default(), q = p;
    p.temperature = q.temperature = 1;
    p.seed = 5;
    q.seed = 6;
    int same = 0;
    for (u64 i = 0; i < 50; i++) {
        assert_int_equal(once(&p, x, 4096, NULL, i).id, once(&p, x, 4096, NULL, i).id);
        same += once(&p, x, 4096, NULL, i).id == once(&q, x, 4096, NULL, i).id;
    }
    assert_true(same < 5);
}

static void values_out_of_range_are_named(void **state) {
    (void)state;
    err e = {0};
    sampling p = sampling_default();
    assert_int_equal(sampling_check(&p, &e), ST_OK);
    p.top_p = 0;
    assert_int_equal(sampling_check(&p, &e), ST_INPUT);
    assert_non_null(strstr(e.text, "top_p"));
    p = sampling_default();
    p.temperature = NAN;
    assert_int_equal(sampling_check(&p, &e), ST_INPUT);
    assert_non_null(strstr(e.text, "temperature"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(temperature_one_follows_softmax),
        cmocka_unit_test(top_k_keeps_k_and_breaks_ties_by_id),
        cmocka_unit_test(top_p_keeps_the_smallest_set),
        cmocka_unit_test(min_p_drops_below_a_share_of_the_best),
        cmocka_unit_test(equal_logits_on_the_limits),
        cmocka_unit_test(masked_tokens_are_as_if_there_were_none),
        cmocka_unit_test(penalties_change_what_was_seen),
        cmocka_unit_test(the_reported_logprob_is_the_models_own),
        cmocka_unit_test(bias_and_forbidden_tokens_come_first),
        cmocka_unit_test(top_is_sorted_with_ties_by_id),
        cmocka_unit_test(equal_seeds_draw_equal_tokens),
        cmocka_unit_test(values_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
