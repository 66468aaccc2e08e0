/* Stop strings: every cut of the text gives what a plain search of the whole gives. */
#include "unit.h"

#include "text/stop_text.h"
#include <stdlib.h>
#include <string.h>

/* The plain way: the stop string that is complete first, the longest of those that end there. */
static int search(const stop_set *s, const char *text, size_t len, size_t *keep) {
    for (size_t end = 1; end <= len; end++) {
        int hit = -1;
        for (size_t k = 0; k < s->n; k++) {
            size_t n = s->all[k].len;
            if (n > end || memcmp(text + end - n, s->all[k].text, n)) continue;
            if (hit < 0 || n > s->all[hit].len) hit = (int)k;
        }
        if (hit >= 0) return *keep = end - s->all[hit].len, hit;
    }
    return *keep = len, -1;
}

/* `cuts`: bit i set: a piece ends behind byte i. */
static void feed_cut(const stop_set *s, const char *text, size_t len, u64 cuts) {
    stop_state st = {0};
    buf out = {0};
    size_t keep, from = 0;
    int want = search(s, text, len, &keep), got = -1;
    for (size_t i = 0; i < len && got < 0; i++) {
        if (i + 1 < len && !(cuts >> i & 1)) continue;
        got = stop_feed(&st, s, text + from, i + 1 - from, false, &out);
        from = i + 1;
    }
    if (got < 0) stop_flush(&st, &out);
    assert_int_equal(got, want);
    assert_int_equal(out.len, keep);
    if (keep) assert_memory_equal(out.data, text, keep);
    buf_free(&out);
    buf_free(&st.held);
}

static void all_cuts(void **state) {
    static const char *const sets[][3] = {{"ab", "abc", "c"}, {"aab", "b"}, {"aaaa"}, {"abab", "ba"}, {"x", "yx"}};
    static const char *const texts[] = {"aabaabcab", "abababaab", "aaaaaaa", "yyxabc", "ab", "bbbb"};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(sets); k++) {
        stop_set s = {0};
        for (size_t i = 0; i < 3 && sets[k][i]; i++)
            assert_int_equal(stop_set_add(&s, sets[k][i], strlen(sets[k][i]), NULL), ST_OK);
        for (size_t t = 0; t < COUNT_OF(texts); t++)
            for (u64 cuts = 0; cuts < 1u << strlen(texts[t]); cuts++) feed_cut(&s, texts[t], strlen(texts[t]), cuts);
        stop_set_free(&s);
    }
}

static void random_text(void **state) {
    u64 seed = 1;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        char text[64], stop[4][8];
        stop_set s = {0};
        for (size_t i = 0; i < sizeof text; i++) text[i] = "abc"[(seed = seed * 6364136223846793005u + 1) >> 60 & 1];
        for (int k = 0; k < 4; k++) {
            size_t n = 2 + (seed >> 33) % 6;
            for (size_t i = 0; i < n; i++) stop[k][i] = "abc"[(seed = seed * 6364136223846793005u + 7) >> 59 & 1];
            stop_set_add(&s, stop[k], n, NULL);
        }
        feed_cut(&s, text, sizeof text, seed ^ seed << 29);
        stop_set_free(&s);
    }
}

static void nothing_certain_is_held_back(void **state) {
    stop_set s = {0};
    stop_state st = {0};
    buf out = {0};
    (void)state;
    stop_set_add(&s, "\n\nQ", 3, NULL);
    assert_int_equal(stop_feed(&st, &s, "one\n", 4, false, &out), -1);
    assert_string_equal(out.data, "one");
    assert_int_equal(stop_feed(&st, &s, "", 0, false, &out), -1);
    assert_string_equal(out.data, "one");
    assert_int_equal(stop_feed(&st, &s, "\n", 1, false, &out), -1);
    assert_string_equal(out.data, "one");
    assert_int_equal(stop_feed(&st, &s, "\nx", 2, false, &out), -1);
    assert_string_equal(out.data, "one\n\n\nx");
    assert_int_equal(stop_feed(&st, &s, "\n\nQ!", 4, true, &out), 0);
    assert_string_equal(out.data, "one\n\n\nx\n\nQ");
    stop_set_free(&s);
    buf_free(&st.held);
    buf_free(&out);
}

static void limits(void **state) {
    stop_set s = {0};
    err e = {0};
    char *big = calloc(1, STOP_STRING_BYTES + 1);
    (void)state;
    memset(big, 'x', STOP_STRING_BYTES + 1);
    assert_int_equal(stop_set_add(&s, big, STOP_STRING_BYTES + 1, &e), ST_LIMIT);
    assert_int_equal(stop_set_add(&s, "", 0, &e), ST_OK);
    assert_int_equal(s.n, 0);
    for (int i = 0; i < STOP_STRINGS_MAX; i++) assert_int_equal(stop_set_add(&s, "ab", 2, &e), ST_OK);
    assert_int_equal(stop_set_add(&s, "ab", 2, &e), ST_LIMIT);
    stop_set_free(&s);
    free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_cuts), cmocka_unit_test(random_text),
                                       cmocka_unit_test(nothing_certain_is_held_back), cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
