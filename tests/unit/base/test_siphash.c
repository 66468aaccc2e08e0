/* The paper's own example (its appendix A), and the lengths around a word. */
#include "unit.h"

#include "base/siphash.h"

static void the_papers_example(void **state) {
    (void)state;
    const u64 key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    u8 text[15];
    for (u8 i = 0; i < 15; i++) text[i] = i;
    assert_int_equal(siphash(key, text, 15), 0xa129ca6149be45e5u);
    assert_int_equal(siphash(key, text, 0), 0x726fdb47dd0e0e31u);
}

/* Every byte, the length and the key count. */
static void everything_counts(void **state) {
    (void)state;
    const u64 key[2] = {1, 2}, other[2] = {1, 3};
    u8 text[40] = {0};
    for (size_t n = 0; n < sizeof text; n++) {
        u64 h = siphash(key, text, n);
        assert_true(h != siphash(key, text, n + 1) && h != siphash(other, text, n));
        for (size_t i = 0; i < n; i++) {
            text[i] ^= 0x80;
            assert_true(h != siphash(key, text, n));
            text[i] ^= 0x80;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_papers_example),
        cmocka_unit_test(everything_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
