/* Histograms: which bucket an observation counts in. */
#include "unit.h"
#include "server/status/metrics.h"
#include <stdio.h>
#include <string.h>

/* The number behind a line that begins with `series`. */
static i64 value_of(const buf *text, const char *series) {
    const char *at = strstr(text->data, series);
    long long v = -1;
    if (!at) print_message("no %s\n", series);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(series), " %lld", &v), 1);
    return v;
}

static i64 bucket(const buf *text, const char *name, const char *le) {
    char series[160];
    snprintf(series, sizeof series, "\n%s_bucket{model_name=\"m\",le=\"%s\"}", name, le);
    return value_of(text, series);
}

/* "le" is inclusive: what equals a bound counts in its bucket. */
static void bounds_are_inclusive(void **state) {
    static const char ttft[] = "sglang:time_to_first_token_seconds", itl[] = "vllm:inter_token_latency_seconds";
    const sched_event ev[] = {
        {.kind = SCHED_TOKEN, .position = 0, .gap_s = 0.05},   {.kind = SCHED_TOKEN, .position = 0, .gap_s = 0.0500001},
        {.kind = SCHED_TOKEN, .position = 0, .gap_s = 400},    {.kind = SCHED_TOKEN, .position = 0, .gap_s = 401},
        {.kind = SCHED_TOKEN, .position = 1, .gap_s = 0.0005}, {.kind = SCHED_TOKEN, .position = 2, .gap_s = 8}};
    const sched_stats stats = {0};
    const constraint_stats constraints = {.compiles = 3, .hits = 5, .failures = 1};
    metrics *m;
    buf text = {0};
    (void)state;
    assert_int_equal(metrics_open(&m, NULL), ST_OK);
    metrics_events(m, ev, COUNT_OF(ev));
    metrics_compiled(m, 0.02);
    metrics_write(m, &stats, &constraints, "m", 0, &text);
    assert_int_equal(bucket(&text, "sglang:grammar_compilation_time_seconds", "0.01"), 0);
    assert_int_equal(bucket(&text, "sglang:grammar_compilation_time_seconds", "0.02"), 1);
    assert_int_equal(value_of(&text, "\nsglang:num_grammar_cache_hit_total{model_name=\"m\"}"), 5);
    assert_int_equal(value_of(&text, "\nsglang:num_grammar_total{model_name=\"m\"}"), 3);
    assert_int_equal(value_of(&text, "\nmoonlet:grammar_failures_total{model_name=\"m\"}"), 1);
    assert_int_equal(bucket(&text, ttft, "0.02"), 0);
    assert_int_equal(bucket(&text, ttft, "0.05"), 1);
    assert_int_equal(bucket(&text, ttft, "0.1"), 2);
    assert_int_equal(bucket(&text, ttft, "100"), 2);
    assert_int_equal(bucket(&text, ttft, "400"), 3);
    assert_int_equal(bucket(&text, ttft, "+Inf"), 4);
    assert_int_equal(bucket(&text, itl, "0.0005"), 1);
    assert_int_equal(bucket(&text, itl, "1"), 1);
    assert_int_equal(bucket(&text, itl, "8"), 2);
    assert_int_equal(bucket(&text, itl, "+Inf"), 2);
    metrics_close(m);
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_are_inclusive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
