/* Which ids end an answer. (What the configuration files say is tested in tests/unit/model/test_config.c.) */
#include "vectors.h"
#include "stub_tokenizer.h"
#include "text/stops.h"

static void expect(const i64 *eos, int n_eos, const i32 *want, size_t n) {
    ids_buf got = {0};
    err e = {0};
    if (stops_of(eos, n_eos, &k25_tokenizer, &got, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(got.len, n);
    assert_memory_equal(got.data, want, n * sizeof *want);
    assert_true(stops_has(&got, 257) && !stops_has(&got, 260));
    ids_free(&got);
}

static void stop_ids(void **s) {
    (void)s;
    expect(NULL, 0, (i32[]){257, 258, 259}, 3); /* by name: [EOS] [EOT] <|im_end|> */
    expect((i64[]){257, 259}, 2, (i32[]){257, 258, 259}, 3);
    expect((i64[]){7, 259, 7}, 3, (i32[]){7, 257, 258, 259}, 4);
    expect((i64[]){9, 3}, 2, (i32[]){3, 9, 257, 258, 259}, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stop_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
