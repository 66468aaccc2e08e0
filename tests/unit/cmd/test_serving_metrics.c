/* What a finished load says, out of answers with known times: serving_metrics.h's definitions. */
#include "cmd/lib/client.c"
#include "cmd/bench/serving/serving_metrics.c"
#include "cmd/lib/stats.c"
#include "base/json.h"
#include "unit.h"
#include <string.h>

enum { BASE = 100 }; /* seconds of the clock */

static load_item answered(f64 start, f64 first, f64 end, i64 tokens, const f64 *gaps, i64 n_gaps) {
    load_item it = {.input_tokens = 10};
    it.a = (client_answer){.ok = true,
                           .counted = true,
                           .start_s = BASE + start,
                           .first_s = BASE + first,
                           .end_s = BASE + end,
                           .output_tokens = tokens,
                           .prompt_tokens = 12,
                           .cached_tokens = 5};
    for (i64 i = 0; i < n_gaps; i++) f64_add(&it.a.gaps, gaps[i]);
    return it;
}

static serving_metrics measured(load_item *items, i64 n, bool streamed) {
    const workload w = {.items = items, .n = n};
    const load_result r = {.start_s = BASE, .end_s = BASE + 4, .cpu_s = 1};
    serving_metrics m;
    assert_int_equal(serving_measure(&w, &r, streamed, false, &m, NULL), ST_OK);
    return m;
}

static void definitions(void **state) {
    static const f64 a[] = {0.5, 0.5}, b[] = {0.125, 1.0};
    (void)state;
    load_item items[] = {answered(0, 0.5, 1.5, 3, a, 2), answered(1, 1.25, 2.75, 3, b, 2), {.a = {.error = "no"}}};
    serving_metrics m = measured(items, 3, true);
    assert_true(m.completed == 2 && m.failed == 1 && m.uncounted == 0);
    assert_true(m.input_tokens == 20 && m.output_tokens == 6 && m.server_input_tokens == 24 && m.cached_tokens == 10);
    assert_true(m.request_rate == 0.5 && m.input_rate == 5 && m.output_rate == 1.5 && m.total_rate == 6.5);
    assert_true(m.e2e.mean == 1625 && m.ttft.mean == 375 && m.tpot.mean == 625 && m.itl.n == 4);
    assert_true(m.itl.mean == 531.25 && m.client_cpu == 0.25);
    assert_float_equal(m.concurrency, 3.25 / 4, 1e-12);
    /* seconds of tokens: 0.5 | 1.0 1.5 1.25 1.375 | 2.375; requests under way: 0 to 1 and 1 to 2 */
    assert_true(m.peak_output == 4 && m.peak_requests == 2);
    items[1].a.prompt_tokens = items[0].a.cached_tokens = -1;
    items[0].a.counted = false;
    m = measured(items, 3, true);
    assert_true(m.server_input_tokens == -1 && m.cached_tokens == -1 && m.uncounted == 1);
    m = measured(items, 3, false);
    assert_true(m.ttft.n == 0 && m.tpot.n == 0 && m.itl.n == 0 && m.e2e.n == 2);
    for (i64 i = 0; i < 2; i++) client_answer_free(&items[i].a);
}

/* A piece of k tokens counts k times with its k-th part; what came without a moment of its own counts with the next. */
static void gaps(void **state) {
    client_answer a = {0};
    (void)state;
    client_tokens(&a, 10, 3);
    assert_true(a.first_s == 10 && a.gaps.n == 0);
    client_tokens(&a, 11, 2);
    a.unseen = 2;
    client_tokens(&a, 13, 2);
    assert_true(a.gaps.n == 6 && a.gaps.data[0] == 0.5 && a.gaps.data[1] == 0.5 && a.gaps.data[2] == 0.5);
    assert_true(a.last_s == 13 && a.unseen == 0 && a.first_s == 10);
    client_answer_free(&a);
}

static void accept_lengths(void **state) {
    static const struct {
        const char *info;
        f64 want;
    } cases[] = {{"{\"internal_states\":[{\"avg_spec_accept_length\":2.5}]}", 2.5},
                 {"{\"decode\":[{\"internal_states\":[{\"avg_spec_accept_length\":3}]}]}", 3},
                 {"{\"internal_states\":[{\"avg_spec_accept_length\":10000}]}", 10000},
                 {"{\"internal_states\":[{\"avg_spec_accept_length\":10001}]}", NAN},
                 {"{\"internal_states\":[{\"avg_spec_accept_length\":-1}]}", NAN},
                 {"{\"internal_states\":[{\"avg_spec_accept_length\":\"2\"}]}", NAN},
                 {"{}", NAN}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *info = json_parse(cases[i].info, strlen(cases[i].info), "test", NULL);
        f64 x = accept_length_of(info);
        assert_true(isnan(cases[i].want) ? isnan(x) : x == cases[i].want);
        json_decref(info);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(definitions), cmocka_unit_test(gaps),
                                       cmocka_unit_test(accept_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
