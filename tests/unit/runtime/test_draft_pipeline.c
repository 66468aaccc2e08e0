/* What plain steps of a pipeline are noted to take: its batches have a share of the answers each, and those together
 * that have all of them are one step. By a clock that goes on where results are collected and nowhere else. */
#include "runtime/sched_util.h"
#include "runtime/scheduler_internal.h"

#include "draft_files.h"

static const f64 BATCH_S = 5e-3, ROW_S = 2e-3; /* a batch takes, and each of its rows */
static f64 clock_s = 1;

f64 __wrap_now_s(void);
status __wrap_ranks_collect(ranks *r, const model_batch *b, err *e);
status __real_ranks_collect(ranks *r, const model_batch *b, err *e);
f64 __wrap_now_s(void) { return clock_s; }
status __wrap_ranks_collect(ranks *r, const model_batch *b, err *e) {
    clock_s += BATCH_S + ROW_S * (f64)b->n;
    return __real_ranks_collect(r, b, e);
}

enum { ANSWERS = 7, TOKENS_EACH = 120, STAGES = 3 };

/* The draft's guesses do not come true, so it rests, and batches of 3, 2 and 2 answers are under way. */
static void batches_of_all_answers_are_a_step(void **state) {
    (void)state;
    char dir[] = "/tmp/moonlet-dull-XXXXXX";
    engine *g;
    err e = {0};
    job *jobs[ANSWERS];
    assert_non_null(mkdtemp(dir));
    draft_files_write_dull(dir);
    const engine_options o = {.model_dir = "models/nano",
                              .device = "cpu",
                              .threads = 1,
                              .context = MAX_TOKENS,
                              .chunk = 64,
                              .pp = STAGES,
                              .draft_dir = dir,
                              .draft_steps = 3,
                              .draft_nodes = 3,
                              .max_running = ANSWERS,
                              .kv_tokens = ANSWERS * MAX_TOKENS};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .overlap_anywhere = true, .draft_tokens = 3});
    for (int i = 0; i < ANSWERS; i++) {
        jobs[i] = make_job(60 + (u64)i, 10, TOKENS_EACH);
        jobs[i]->r.logprobs = false;
        must_submit(s, jobs[i]);
    }
    run_all(s);
    const sched_stats st = stats_of(s);
    const draft_policy *p = &s->drafts.policy;
    assert_true(st.ahead > st.steps / 2 && st.draft_tokens > 0);
    assert_float_equal(draft_policy_seconds(p, ANSWERS, 0), STAGES * BATCH_S + ROW_S * ANSWERS, 1e-9);
    assert_float_equal(draft_policy_seconds(p, ANSWERS, 3), BATCH_S + ROW_S * ANSWERS * 4, 1e-9);
    assert_true(p->cost[ANSWERS].seen[0] > TOKENS_EACH / 2);
    i64 fewer = 0; /* while answers begin and end */
    for (i64 n = 1; n < ANSWERS; n++) fewer += p->cost[n].seen[0];
    assert_true(fewer < 2 * ANSWERS);
    scheduler_close(s);
    engine_close(g);
    for (int i = 0; i < ANSWERS; i++) free(jobs[i]);
    draft_files_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_of_all_answers_are_a_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
