/* Growable bytes and ids, sizes that cannot wrap. */
#include "unit.h"
#include "base/buf.h"
#include <stdlib.h>
#include <string.h>

static void test_grow(void **state) {
    (void)state;
    buf b = {0};
    char want[5001] = {0};
    for (int i = 0; i < 5000; i++) {
        want[i] = (char)('a' + i % 26);
        buf_char(&b, want[i]);
        assert_int_equal(b.len, i + 1);
        assert_int_equal(b.data[b.len], 0);
    }
    assert_string_equal(b.data, want);
    buf_add(&b, "\0x", 2); /* bytes, not a string */
    assert_int_equal(b.len, 5002);
    buf_add(&b, NULL, 0);
    assert_int_equal(b.len, 5002);
    buf_clear(&b);
    assert_true(b.len == 0 && b.data[0] == 0 && b.cap >= 5002);
    buf_free(&b);
    assert_null(b.data);
}

static void test_format_and_take(void **state) {
    (void)state;
    buf b = {0};
    buf_str(&b, "x=");
    buf_fmt(&b, "%d %s", 42, "forty-two");
    for (int i = 0; i < 100; i++) buf_fmt(&b, "%c", '.');
    buf_fmt(&b, "%s", "");
    assert_int_equal(b.len, 2 + 12 + 100);
    char *s = buf_take(&b);
    assert_int_equal(strlen(s), 114);
    assert_true(strncmp(s, "x=42 forty-two..", 16) == 0);
    assert_true(b.data == NULL && b.len == 0 && b.cap == 0);
    free(s);
    s = buf_take(&b); /* of an empty one: an empty string, not NULL */
    assert_string_equal(s, "");
    free(s);
}

/* After a failed growth what was there stays and nothing more is added. */
static void test_failure_sticks(void **state) {
    (void)state;
    buf b = {0};
    buf_str(&b, "kept");
    assert_false(buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    buf_str(&b, "lost");
    buf_fmt(&b, "%d", 5);
    assert_string_equal(b.data, "kept");
    assert_int_equal(b.len, 4);
    buf_clear(&b);
    buf_str(&b, "again");
    assert_string_equal(b.data, "again");
    assert_false(buf_reserve(&b, (size_t)INT64_MAX - 5)); /* len + more overflows 63 bits */
    assert_null(buf_take(&b));
    assert_true(b.data == NULL && !b.failed);
}

static void test_ids(void **state) {
    (void)state;
    ids_buf b = {0};
    for (i32 i = 0; i < 3000; i++) ids_add(&b, i - 7);
    const i32 more[3] = {INT32_MIN, 0, INT32_MAX};
    ids_append(&b, more, 3);
    ids_append(&b, NULL, 0);
    assert_int_equal(b.len, 3003);
    for (i32 i = 0; i < 3000; i++) assert_int_equal(b.data[i], i - 7);
    assert_memory_equal(b.data + 3000, more, sizeof more);
    ids_append(&b, more, SIZE_MAX / 4);
    assert_true(b.failed);
    assert_int_equal(b.len, 3003);
    ids_add(&b, 1);
    assert_int_equal(b.len, 3003);
    ids_free(&b);
}

static void test_sizes(void **state) {
    (void)state;
    u64 r;
    assert_true(mul_size(1u << 31, 1u << 31, &r) && r == 1ull << 62);
    assert_false(mul_size(1ull << 32, 1ull << 31, &r)); /* 2^63 */
    assert_false(mul_size(UINT64_MAX, 2, &r));
    assert_true(mul_size(UINT64_MAX, 0, &r) && r == 0);
    assert_true(add_size(INT64_MAX, 0, &r) && r == INT64_MAX);
    assert_false(add_size(INT64_MAX, 1, &r));
    assert_false(add_size(UINT64_MAX, UINT64_MAX, &r));
}

static void test_max(void **state) {
    (void)state;
    buf b = {.max = 10};
    buf_str(&b, "0123456789");
    assert_false(b.failed);
    assert_true(b.cap <= 11); /* no more memory than the limit needs */
    buf_char(&b, 'x');
    assert_true(b.failed && b.full);
    assert_string_equal(b.data, "0123456789");
    buf_clear(&b);
    assert_false(b.failed || b.full);
    buf_fmt(&b, "%011d", 1);
    assert_true(b.full);
    assert_int_equal(b.len, 0);
    buf_free(&b);
    ids_buf ids = {.max = 3};
    for (i32 i = 0; i < 3; i++) ids_add(&ids, i);
    assert_false(ids.failed);
    assert_int_equal(ids.cap, 3);
    ids_add(&ids, 3);
    assert_true(ids.failed && ids.full);
    assert_int_equal(ids.len, 3);
    ids_free(&ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow), cmocka_unit_test(test_format_and_take), cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_ids),  cmocka_unit_test(test_sizes),           cmocka_unit_test(test_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
