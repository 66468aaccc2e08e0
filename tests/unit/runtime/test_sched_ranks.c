/* A scheduler over ranks: the tokens of one rank's engine, whoever runs beside them; and what clients hear when a rank
 * does not come. */
#include "sched_util.h"

#include "runtime/engine_internal.h"
#include <math.h>
#include <unistd.h>

static const char *const DIR = "models/nano";
enum { JOBS = 5 };

static engine *open_ranks(i64 tp, i64 dcp, i64 kv_tokens, f64 timeout) {
    engine *g;
    err e = {0};
    engine_options o = {.model_dir = DIR,
                        .device = "ref", /* float32: the two agree on every token */
                        .threads = tp,
                        .context = MAX_TOKENS,
                        .chunk = 32,
                        .max_running = 3,
                        .kv_tokens = kv_tokens,
                        .tp = tp,
                        .dcp = max_i64(dcp, 0),
                        .dp_attention = dcp < 0,
                        .dist_timeout = timeout};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

/* Requests of several lengths, more than run at a time. */
static void submit_all(scheduler *s, job *all[JOBS]) {
    for (i64 i = 0; i < JOBS; i++) {
        all[i] = make_job((u64)i + 1, 12 + 13 * i, 7);
        must_submit(s, all[i]);
    }
}

static void free_all(job *all[JOBS]) {
    for (i64 i = 0; i < JOBS; i++) free(all[i]);
}

/* dcp -1: sequences of their own, also with so few pages that some are preempted. */
static void the_same_tokens(void **state) {
    (void)state;
    enum { ENGINES = 6 };
    static const i64 tp[ENGINES] = {1, 2, 2, 2, 2, 1}, dcp[ENGINES] = {1, 1, 2, -1, -1, 1},
                     tokens[ENGINES] = {2048, 2048, 2048, 2048, 4 * KV_PAGE, 4 * KV_PAGE};
    job *all[ENGINES][JOBS];
    for (int i = 0; i < ENGINES; i++) {
        engine *g = open_ranks(tp[i], dcp[i], tokens[i], 0);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .overlap_anywhere = true});
        submit_all(s, all[i]);
        while (scheduler_step(s)) must_check(s);
        scheduler_close(s);
        engine_close(g);
    }
    for (int e = 1; e < ENGINES; e++)
        for (i64 i = 0; i < JOBS; i++) {
            assert_true(all[0][i]->ended && all[e][i]->ended);
            assert_int_equal(all[0][i]->n_out, all[e][i]->n_out);
            for (i64 k = 0; k < all[0][i]->n_out; k++) {
                assert_int_equal(all[0][i]->out[k].id, all[e][i]->out[k].id);
                assert_true(fabsf(all[0][i]->out[k].logprob - all[e][i]->out[k].logprob) < 1e-3f);
            }
        }
    for (int e = 0; e < ENGINES; e++) free_all(all[e]);
}

static void (*real_norm)(const ops *o, const norm_args *a);
static bool stall;

static void stalling_norm(const ops *o, const norm_args *a) {
    if (stall) stall = false, usleep(700000);
    real_norm(o, a);
}

static void a_rank_that_stalls(void **state) {
    (void)state;
    job *all[JOBS];
    engine *g = open_ranks(2, 1, 2048, 0.2);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    sched_stats stats;
    real_norm = g->ranks.of[1].backend.ops.norm;
    g->ranks.of[1].backend.ops.norm = stalling_norm;
    submit_all(s, all);
    for (int i = 0; i < 4; i++) scheduler_step(s);
    stall = true;
    while (scheduler_step(s)) {}
    i64 failed = 0;
    for (i64 i = 0; i < JOBS; i++) {
        assert_true(all[i]->ended);
        if (all[i]->finish != SCHED_ERROR) continue;
        failed++;
        if (!strstr(all[i]->error.text, "rank 1 did not come to exchange")) fail_msg("\"%s\"", all[i]->error.text);
    }
    assert_int_equal(failed, JOBS);
    scheduler_stats(s, &stats);
    assert_true(stats.broken);
    assert_int_equal(stats.fault.code, ST_DEVICE);
    free_all(all);
    scheduler_close(s);
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_tokens), cmocka_unit_test(a_rank_that_stalls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
