/* How many drafts a step gets: the best number for costs and chances that are known here, whatever it begins with; what
 * trying others costs; outliers. */
#include "unit.h"

#include "runtime/draft_policy.h"
#include <math.h>

enum { STEPS = 3, ROWS = 64, ROUNDS = 4000 };

/* A machine: a plain step of n answers takes plain * n seconds or 1, each draft `each` more; a draft comes true with
 * chance `true_share` if those before it did. Every answer is greedy and short. */
typedef struct {
    f64 plain, each, true_share;
} machine;

static f64 step_seconds(const machine *m, i64 answers, i64 drafts) {
    return 1 + m->plain * (f64)answers + m->each * (f64)(answers * drafts);
}

static u64 seed = 7;
static f64 chance(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (f64)(seed >> 11) / 9007199254740992.0;
}

/* Runs it; returns tokens a second of the second half, *chosen: the number of drafts chosen most often then. */
static f64 run(draft_policy *p, const machine *m, i64 answers, i64 *chosen) {
    f64 tokens = 0, seconds = 0, chances[DRAFT_STEPS_MOST];
    i64 times[DRAFT_STEPS_MOST + 1] = {0};
    for (i64 r = 0; r < ROUNDS; r++) {
        for (i64 k = 0; k < STEPS; k++) chances[k] = draft_policy_chance(p, DRAFT_GREEDY, 100, k + 1);
        const i64 n = draft_policy_choose(p, answers, ROWS, chances);
        assert_in_range(n, 0, STEPS);
        const f64 took =
            step_seconds(m, answers, n) * (r % 50 == 20 ? 30 : 1); /* now and then something gets in between */
        draft_policy_step(p, answers, n, took);
        for (i64 a = 0; a < answers; a++) {
            i64 came_true = 0;
            while (came_true < n && chance() < m->true_share) came_true++;
            if (n) draft_policy_round(p, DRAFT_GREEDY, 100, n, came_true);
            if (r >= ROUNDS / 2) tokens += 1 + (f64)came_true;
        }
        if (r >= ROUNDS / 2) seconds += step_seconds(m, answers, n), times[n]++;
    }
    *chosen = 0;
    for (i64 k = 1; k <= STEPS; k++)
        if (times[k] > times[*chosen]) *chosen = k;
    return tokens / seconds;
}

static f64 best_rate(const machine *m, i64 answers, i64 *best) {
    f64 rate = 0;
    for (i64 k = 0; k <= STEPS; k++) {
        f64 tokens = 1, all = 1;
        for (i64 j = 0; j < k; j++) tokens += all *= m->true_share;
        const f64 r = tokens * (f64)answers / step_seconds(m, answers, k);
        if (r > rate) rate = r, *best = k;
    }
    return rate;
}

/* Within 2 % of the best, trials and all. */
static void finds_what_is_best(void **state) {
    (void)state;
    static const machine all[] = {{0.01, 0.02, 0.9},  {0.01, 0.30, 0.9}, {0.01, 0.30, 0.3}, {0.1, 0.1, 0.1},
                                  {0.01, 0.01, 0.02}, {0.2, 0.15, 0.6},  {0.05, 1.0, 0.95}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (i64 answers = 1; answers <= 16; answers *= 4) {
            draft_policy p;
            i64 best = 0, chosen;
            draft_policy_open(&p, STEPS, false);
            const f64 want = best_rate(&all[i], answers, &best), got = run(&p, &all[i], answers, &chosen);
            if (!(got >= want * 0.98))
                fail_msg("machine %d, %d answers: %.4f tokens a second with %d drafts, %.4f with %d", (int)i,
                         (int)answers, got, (int)chosen, want, (int)best);
        }
}

static void rows_are_a_limit(void **state) {
    (void)state;
    draft_policy p;
    const f64 chances[DRAFT_STEPS_MOST] = {1, 1, 1, 1, 1, 1, 1, 1};
    draft_policy_open(&p, 3, true);
    assert_int_equal(draft_policy_choose(&p, 16, 64, chances), 3);
    assert_int_equal(draft_policy_choose(&p, 17, 64, chances), 2);
    assert_int_equal(draft_policy_choose(&p, 40, 64, chances), 0);
    assert_int_equal(draft_policy_choose(&p, 100, 64, chances), 0);
}

/* A kind of request and a length of context say nothing of others; hopes are given up. */
static void chances_are_learnt_apart(void **state) {
    (void)state;
    draft_policy p;
    draft_policy_open(&p, 3, false);
    const f64 hope = draft_policy_chance(&p, DRAFT_DRAWN, 100, 1);
    for (int i = 0; i < 200; i++) draft_policy_round(&p, DRAFT_DRAWN, 100, 3, i % 2 ? 2 : 0);
    assert_true(fabs(draft_policy_chance(&p, DRAFT_DRAWN, 100, 1) - 0.5) < 0.02);
    assert_true(fabs(draft_policy_chance(&p, DRAFT_DRAWN, 100, 2) - 0.5) < 0.03);
    assert_true(draft_policy_chance(&p, DRAFT_DRAWN, 100, 3) < 0.02);
    assert_true(draft_policy_chance(&p, DRAFT_DRAWN, 5000, 1) == hope);
    assert_true(draft_policy_chance(&p, DRAFT_GREEDY, 100, 1) == hope);
    for (int i = 0; i < 2000; i++) draft_policy_round(&p, DRAFT_DRAWN, 100, 3, 3);
    assert_true(draft_policy_chance(&p, DRAFT_DRAWN, 100, 3) > 0.9);
}

/* Where no step says what drafts cost, because all have prompts, they are made as long as they come true. */
static void without_costs_chances_decide(void **state) {
    (void)state;
    for (int good = 0; good < 2; good++) {
        draft_policy p;
        f64 chances[DRAFT_STEPS_MOST];
        i64 drafts = 0, late = 0;
        draft_policy_open(&p, STEPS, false);
        for (i64 r = 0; r < ROUNDS; r++) {
            for (i64 k = 0; k < STEPS; k++) chances[k] = draft_policy_chance(&p, DRAFT_GREEDY, 100, k + 1);
            const i64 n = draft_policy_choose(&p, 4, ROWS, chances);
            if (r == 0) assert_int_equal(n, STEPS);
            drafts += n, late += r >= ROUNDS / 2 ? n : 0;
            for (i64 a = 0; n && a < 4; a++) draft_policy_round(&p, DRAFT_GREEDY, 100, n, good ? n : 0);
        }
        if (good ? drafts < ROUNDS * STEPS * 95 / 100 : late > ROUNDS / 2 * STEPS / 50)
            fail_msg("%lld drafts in %d steps, %lld in the second half", (long long)drafts, (int)ROUNDS,
                     (long long)late);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_is_best), cmocka_unit_test(rows_are_a_limit),
                                       cmocka_unit_test(chances_are_learnt_apart),
                                       cmocka_unit_test(without_costs_chances_decide)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
