/* tests/unit/runtime/test_prefill_budget.c: the allowance finds the size of step that fits, on machines that are
 * described by formulas. */
#include "runtime/prefill_budget.h"
#include "unit.h"

typedef struct {
    f64 decode, fixed, token; /* seconds: a step without prompts; with any; each prompt token */
} machine;

static f64 takes(const machine *m, i64 prompt) {
    return prompt ? m->decode + m->fixed + m->token * (f64)prompt : m->decode;
}

/* Answers run all the time while `steps` steps with as many prompt tokens as allowed go by. Returns the last one's
 * time. */
static f64 run(prefill_budget *p, const machine *m, int steps) {
    f64 last = 0;
    prefill_budget_note(p, 0, 4, takes(m, 0));
    for (int i = 0; i < steps; i++) {
        i64 n = prefill_budget_allowance(p, 4, 1);
        last = takes(m, n);
        prefill_budget_note(p, n, 4, last);
    }
    return last;
}

static void alone_takes_the_chunk(void **state) {
    (void)state;
    prefill_budget p;
    prefill_budget_open(&p, 8192, 0.03);
    assert_int_equal(prefill_budget_allowance(&p, 0, 9), 8192);
    assert_int_equal(prefill_budget_allowance(&p, 1, 1), 1024);
    prefill_budget_open(&p, 8192, 0);
    assert_int_equal(prefill_budget_allowance(&p, 64, 64), 8192);
    prefill_budget_open(&p, 512, 0.03);
    assert_int_equal(prefill_budget_allowance(&p, 1, 1), 512);
}

static void settles_at_three_times_a_long_step(void **state) {
    (void)state;
    prefill_budget p;
    const machine m = {0.026, 0.01, 20e-6};
    prefill_budget_open(&p, 8192, 0.03);
    f64 last = run(&p, &m, 50);
    assert_true(last <= 3.001 * m.decode && last > 2.4 * m.decode);
}

static void settles_at_the_stall_beside_short_steps(void **state) {
    (void)state;
    prefill_budget p;
    const machine m = {0.003, 0.004, 20e-6};
    prefill_budget_open(&p, 8192, 0.03);
    f64 last = run(&p, &m, 50);
    assert_true(last <= 0.0301 && last > 0.024);
}

/* 12 prompts beside 4 answers: three times the allowance, and what such steps took says the same as shorter ones. */
static void many_waiting_prompts_count(void **state) {
    (void)state;
    prefill_budget p;
    const machine m = {0.003, 0, 20e-6};
    prefill_budget_open(&p, 8192, 0.03);
    run(&p, &m, 50);
    i64 one = prefill_budget_allowance(&p, 4, 4), three = prefill_budget_allowance(&p, 4, 12);
    assert_in_range(one, 1200, 1350);
    assert_in_range(three, 3 * one - 1, 3 * one + 1);
    for (int i = 0; i < 50; i++) {
        i64 n = prefill_budget_allowance(&p, 4, 12);
        prefill_budget_note(&p, n, 4, takes(&m, n));
        assert_true(takes(&m, n) <= 0.096);
    }
    one = prefill_budget_allowance(&p, 4, 1);
    assert_in_range(one, 1250, 1550); /* 3 x 0.03 s less 0.003 s, a third of it */
    assert_int_equal(prefill_budget_allowance(&p, 1, 63), 8192);
}

static void shrinks_at_once_and_not_below_the_least(void **state) {
    (void)state;
    prefill_budget p;
    const machine slow = {0.002, 0, 1e-3};
    prefill_budget_open(&p, 8192, 0.03);
    run(&p, &slow, 2);
    assert_int_equal(prefill_budget_allowance(&p, 1, 1), 128);
    const machine fast = {0.002, 0, 1e-6};
    run(&p, &fast, 40);
    assert_int_equal(prefill_budget_allowance(&p, 1, 1), 8192);
}

static void a_step_that_was_not_full_says_nothing(void **state) {
    (void)state;
    prefill_budget p;
    prefill_budget_open(&p, 8192, 0.03);
    prefill_budget_note(&p, 0, 4, 0.003);
    for (int i = 0; i < 100; i++) prefill_budget_note(&p, 10, 4, 0.004);
    assert_int_equal(prefill_budget_allowance(&p, 4, 1), 1024);
    prefill_budget_note(&p, 8192, 0, 5); /* nobody waited */
    assert_int_equal(prefill_budget_allowance(&p, 4, 1), 1024);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_takes_the_chunk),
                                       cmocka_unit_test(settles_at_three_times_a_long_step),
                                       cmocka_unit_test(settles_at_the_stall_beside_short_steps),
                                       cmocka_unit_test(many_waiting_prompts_count),
                                       cmocka_unit_test(shrinks_at_once_and_not_below_the_least),
                                       cmocka_unit_test(a_step_that_was_not_full_says_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
