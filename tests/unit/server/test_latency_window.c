/* The latencies of the last minute: quantiles near those of the sorted values, and forgetting. */
#include "unit.h"

#include "server/status/latency_window.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b) {
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

static void near_the_truth(void **state) {
    (void)state;
    enum { N = 5000 };
    static f64 all[N];
    static latency_window w;
    srand(7);
    for (int round = 0; round < 20; round++) {
        memset(&w, 0, sizeof w);
        int n = 1 + rand() % N;
        for (int i = 0; i < n; i++) {
            all[i] = exp(log(1e-6) + (log(2000) - log(1e-6)) * rand() / RAND_MAX);
            latency_window_add(&w, 1000 + 59.9 * i / n, all[i]);
        }
        qsort(all, (size_t)n, sizeof *all, by_size);
        quantiles q = latency_window_quantiles(&w, 1060);
        assert_int_equal(q.n, n);
        const f64 p[] = {0.5, 0.9, 0.99}, got[] = {q.p50, q.p90, q.p99};
        for (int k = 0; k < 3; k++) {
            f64 want = all[(int)(p[k] * (n - 1))];
            assert_true(fabs(got[k] - want) <= want / 16 + 1e-6);
        }
    }
}

static void extremes(void **state) {
    (void)state;
    static latency_window w;
    const f64 odd[] = {0, -1, NAN, 1e-9, 1e9, INFINITY};
    for (size_t i = 0; i < COUNT_OF(odd); i++) latency_window_add(&w, 5, odd[i]);
    quantiles q = latency_window_quantiles(&w, 5);
    assert_int_equal(q.n, 6);
    assert_true(q.p50 >= 0 && q.p50 < 1e-5 && q.p99 > 2000 && q.p99 < 2300);
}

static void forgets(void **state) {
    (void)state;
    static latency_window w;
    assert_int_equal(latency_window_quantiles(&w, 100).n, 0);
    for (int second = 100; second < 400; second++) {
        latency_window_add(&w, second + 0.5, second < 300 ? 0.001 : 1);
        quantiles q = latency_window_quantiles(&w, second + 0.9);
        assert_int_equal(q.n, second - 100 < 60 ? second - 99 : 61);
        if (second >= 361) assert_true(q.p50 > 0.9);
    }
    assert_int_equal(latency_window_quantiles(&w, 429).n, 31); /* seconds 369 to 399 */
    assert_int_equal(latency_window_quantiles(&w, 460).n, 0);
    latency_window_add(&w, 461, 1); /* the slot of second 400 - 61 x k is taken over, not added to */
    assert_int_equal(latency_window_quantiles(&w, 461).n, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_the_truth),
        cmocka_unit_test(extremes),
        cmocka_unit_test(forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
