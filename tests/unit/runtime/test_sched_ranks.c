/* A scheduler over ranks: the tokens of one rank's engine, whoever runs beside them; and what clients hear when a rank
 * does not come. */
#include "sched_util.h"

#include "runtime/scheduler_internal.h"
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
                        .dp_attention = (dcp < 0),
                        .ep = (tp > 2 ? tp : 0), /* an expert of nano cannot be divided by four */
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

enum { URGENT = 101 }; /* tokens of a prompt with a higher priority */

/* Rows that each request had in the first step, of prompts of so many tokens on `ranks` ranks with sequences of
 * their own. */
static void first_rows(i64 ranks, const i64 *prompts, i64 n, i64 *rows) {
    job *all[4];
    engine *g = open_ranks(ranks, ranks > 1 ? -1 : 1, 4096, 0);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    for (i64 i = 0; i < n; i++) {
        all[i] = make_job((u64)i + 1, prompts[i], 1);
        all[i]->r.priority = prompts[i] == URGENT;
        must_submit(s, all[i]);
    }
    scheduler_step(s);
    for (i64 i = 0; i < n; i++) {
        rows[i] = all[i]->ended ? prompts[i] : 0;
        for (i64 k = 0; k < s->n_running; k++)
            if (s->running[k]->id == all[i]->id) rows[i] = s->running[k]->n_kv;
    }
    while (scheduler_step(s)) must_check(s);
    for (i64 i = 0; i < n; i++) assert_true(all[i]->ended && all[i]->n_out == 1), free(all[i]);
    scheduler_close(s);
    engine_close(g);
}

/* A chunk of 32. As many long prompts as there are ranks go at once; a rank that needs less leaves the rest; where
 * priorities differ, who began first has half and the higher one comes before the others, as on one rank. */
static void ranks_apart_share_a_chunk(void **state) {
    (void)state;
    static const struct {
        i64 ranks, n, prompts[4], rows[4];
    } cases[] = {{1, 3, {100, 100, 100}, {16, 16}},       {2, 3, {100, 100, 100}, {16, 16}},
                 {4, 3, {100, 100, 100}, {11, 11, 10}},   {4, 3, {100, 100, 4}, {14, 14, 4}},
                 {4, 3, {URGENT, 100, 100}, {16, 16, 0}}, {4, 3, {100, 100, URGENT}, {16, 0, 16}},
                 {1, 3, {100, 8, 8}, {16, 8, 8}},         {4, 3, {100, 8, 8}, {16, 8, 8}}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        i64 rows[4];
        first_rows(cases[c].ranks, cases[c].prompts, cases[c].n, rows);
        for (i64 i = 0; i < cases[c].n; i++)
            if (rows[i] != cases[c].rows[i])
                fail_msg("case %zu: prompt %lld of %lld has %lld rows, not %lld", c, (long long)i,
                         (long long)cases[c].n, (long long)rows[i], (long long)cases[c].rows[i]);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_tokens), cmocka_unit_test(ranks_apart_share_a_chunk),
                                       cmocka_unit_test(a_rank_that_stalls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
