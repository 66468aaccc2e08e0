/* The thread that looks after what may hang (server/guard.h): it speaks once, when the time is over, and not before. */
#include "unit.h"
#include "base/log.h"
#include "server/guard.h"
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static atomic_int told;

static void tell(void *ud) { atomic_fetch_add(&told, *(int *)ud); }

static void what_ends_in_time_is_no_hang(void **state) {
    (void)state;
    err e = {0};
    int one = 1;
    atomic_store(&told, 0);
    for (int i = 0; i < 50; i++) {
        guard g;
        assert_int_equal(guard_begin(&g, i % 2 ? 1e300 : 30, tell, &one, &e), ST_OK);
        guard_end(&g);
    }
    assert_int_equal(atomic_load(&told), 0);
}

static void what_does_not_is_told_once(void **state) {
    (void)state;
    err e = {0};
    int one = 1;
    guard g;
    atomic_store(&told, 0);
    const f64 began = now_s();
    assert_int_equal(guard_begin(&g, 0.05, tell, &one, &e), ST_OK);
    while (!atomic_load(&told) && now_s() < began + 60) usleep(1000);
    assert_true(now_s() - began >= 0.05);
    usleep(100000);
    guard_end(&g);
    assert_int_equal(atomic_load(&told), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ends_in_time_is_no_hang),
        cmocka_unit_test(what_does_not_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
