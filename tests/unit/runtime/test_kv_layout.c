/* Where a KV page lies among ranks (runtime/kv_layout.h, runtime/kv_pages.h). */
#include "unit.h"

#include "runtime/kv_layout.h"
#include "runtime/kv_pages.h"
#include <string.h>

static void a_rule_where_nothing_was_said(void **state) {
    (void)state;
    const struct {
        kv_layout_wish w;
        i64 want;
        const char *why;
    } cases[] = {
        {{1, 0, true, false, true, 1000, 500}, 1, ""},
        {{8, 0, true, false, true, 0, 500}, 1, "every rank has all of it (else: --dcp 8)"},
        {{8, 0, true, false, true, 501, 500},
         8,
         "the ranks divide it: 501 tokens are wanted, more than the 500 that fit each (else: --dcp 1)"},
        {{8, 0, true, false, true, 500, 500},
         1,
         "every rank has all of it: 500 tokens are wanted, not more than the 500"},
        {{64, 0, true, false, true, INT64_MAX, INT64_MAX - 1}, 64, "the ranks divide it"},
        {{8, 0, true, true, true, 1000, 500}, 1, "--deterministic"},
        {{8, 0, true, false, false, 1000, 500}, 1, "16 bytes"},
        {{8, 0, false, false, true, 1000, 500}, 1, ""},
        {{8, 1, true, false, true, 1000, 500}, 1, ""},
        {{8, 8, false, false, true, 0, 500}, 8, ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char why[160];
        assert_int_equal(kv_layout_choose(&cases[i].w, why), cases[i].want);
        if (!strstr(why, cases[i].why) || !why[0] != !cases[i].why[0]) fail_msg("%zu: %s", i, why);
        assert_true(strlen(why) < 158);
    }
}

/* Sequences that take pages in turns, one of them much longer than the others: no rank has more than a page more of
 * any sequence, and none more than a page a sequence more of the pool. */
static void pages_go_round(void **state) {
    (void)state;
    enum { SHARES = 8, N = 5, EACH = 37 };
    kv_pages p;
    i32 last[N] = {-1, -1, -1, -1, -1};
    i64 of[N][SHARES] = {0}, all[SHARES] = {0};
    assert_int_equal(kv_pages_open(&p, 3 * N * EACH + 5, SHARES, NULL), ST_OK);
    for (int k = 0; k < EACH; k++)
        for (int s = 0; s < N; s++)
            for (int twice = 0; twice < (s == 2 ? 3 : 1); twice++) {
                last[s] = kv_pages_take(&p, last[s]);
                assert_true(last[s] >= 0);
                of[s][last[s] % SHARES]++, all[last[s] % SHARES]++;
            }
    for (int a = 0; a < SHARES; a++)
        for (int b = 0; b < SHARES; b++) {
            for (int s = 0; s < N; s++) assert_true(of[s][a] - of[s][b] <= 1);
            assert_true(all[a] - all[b] <= N);
        }
    assert_int_equal(kv_pages_check(&p, NULL, NULL), ST_OK);
    kv_pages_close(&p);
}

/* Fewer pages than ranks; all of them are had, each once. */
static void a_share_may_have_none(void **state) {
    (void)state;
    kv_pages p;
    i32 last = -1;
    u32 once[5] = {1, 1, 1, 1, 1};
    assert_int_equal(kv_pages_open(&p, 5, 8, NULL), ST_OK);
    for (int i = 0; i < 5; i++) last = kv_pages_take(&p, last);
    assert_int_equal(kv_pages_take(&p, last), -1);
    assert_int_equal(kv_pages_check(&p, once, NULL), ST_OK);
    assert_int_equal(kv_pages_unref(&p, 3), 0);
    assert_int_equal(kv_pages_take(&p, 0), 3); /* of another share than wanted */
    p.free_list[0] = 3, p.n_free = 1, p.n_free_of[0] = 1, p.refs[3] = 0;
    assert_int_equal(kv_pages_check(&p, NULL, NULL), ST_LIMIT); /* a page of share 3 in the list of share 0 */
    kv_pages_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rule_where_nothing_was_said),
                                       cmocka_unit_test(pages_go_round), cmocka_unit_test(a_share_may_have_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
