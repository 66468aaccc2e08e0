/* The threads of ranks (runtime/ranks.h): jobs that are handed to all of them. */
#include "unit.h"
#include "runtime/engine_internal.h"
#include <unistd.h>

static const model_config config = {.n_heads = 2, .inter_dense = 2, .inter_expert = 2, .vocab = 2, .ranks = 1};

static status add_job(rank *k, void *ud, err *e) {
    (void)e;
    ((u64 *)ud)[k->index] += (u64)k->index + 1;
    return ST_OK;
}

/* Each rank does each job once, whether its thread sleeps in between or looks for it. */
static void jobs_are_done_once(void **state) {
    enum { JOBS = 300 };
    static const f64 spins[] = {0, 1e-6, 1e-3};
    (void)state;
    err e = {0};
    for (size_t s = 0; s < COUNT_OF(spins); s++) {
        ranks r;
        u64 sums[2] = {0};
        assert_int_equal(ranks_open(&r, &config, &(rank_layout){.tp = 2, .pp = 1}, NULL, false, 60, &e), ST_OK);
        r.spin_s = spins[s];
        for (u64 job = 1; job <= JOBS; job++) {
            assert_int_equal(ranks_each(&r, add_job, sums, &e), ST_OK);
            assert_true(sums[0] == job && sums[1] == 2 * job);
            if (job % 100 == 0) usleep(3000); /* asleep by then */
        }
        ranks_close(&r);
    }
}

/* nano's shapes; with more of anything a region is one for all threads. --threads is what the user says. */
static void small_models_want_few_threads(void **state) {
    (void)state;
    const model_config nano = {
        .vocab = 2048, .hidden = 256, .inter_dense = 512, .inter_expert = 64, .inter_shared = 64, .top_k = 8};
    assert_int_equal(engine_threads(&nano, 0, 16), 8);
    assert_int_equal(engine_threads(&nano, 0, 6), 6);
    assert_int_equal(engine_threads(&nano, 12, 16), 12);
    model_config larger[3] = {nano, nano, nano};
    larger[0].vocab *= 2, larger[1].inter_dense *= 3, larger[2].inter_expert *= 3;
    for (int i = 0; i < 3; i++) assert_int_equal(engine_threads(&larger[i], 0, 16), 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_are_done_once),
                                       cmocka_unit_test(small_models_want_few_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
