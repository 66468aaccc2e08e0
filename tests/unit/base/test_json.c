/* One strictness for all JSON, and the typed look-ups. */
#include "unit.h"
#include "base/json.h"
#include <math.h>
#include <string.h>

static json_t *parse(const char *text, err *e) { return json_parse(text, strlen(text), "what.json", e); }

static void expect_error(const char *text, const char *part) {
    err e = {0};
    json_t *v = parse(text, &e);
    assert_null(v);
    assert_int_equal(e.code, ST_FORMAT);
    if (!strstr(e.text, part) || !strstr(e.text, "what.json")) fail_msg("\"%s\" is not in: %s", part, e.text);
    assert_null(json_parse(text, strlen(text), "x", NULL));
}

static void test_strictness(void **state) {
    (void)state;
    expect_error("", "line 1");
    expect_error("{\n \"a\": 1,\n \"a\": 2}", "line 3");
    expect_error("{} x", "end of file");
    expect_error("[1,]", "line 1");
    expect_error("[1,\n 99999999999999999999, 1x]", "line 2 column 25"); /* columns as in the text */
    expect_error("[099999999999999999999]", "line 1");
    expect_error("[99999999999999999999.]", "line 1");
    expect_error("[99999999999999999999 1]", "line 1");
    expect_error("[-]", "line 1");
    expect_error("[1e999e]", "line 1");
    expect_error("[+99999999999999999999]", "line 1");
    expect_error("[--99999999999999999999]", "line 1");
    expect_error("{99999999999999999999: 1}", "line 1");
    expect_error("[NaN]", "line 1");
    expect_error("\"\xff\"", "line 1");
    expect_error("\"\xed\xa0\x80\"", "line 1"); /* a surrogate written as UTF-8 */
    expect_error("\"\n\"", "line 1");
    expect_error("{\"a\\u0000\": 1}", "line 1");
}

/* Text to tree to text: what comes back is the same. */
static void expect_round(const char *text) {
    err e = {0};
    json_t *v = parse(text, &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    char *back = json_to_text(v, &json_compact);
    assert_string_equal(back, text);
    free(back);
    json_decref(v);
}

#define I20 "12345678901234567890"
static void test_numbers_of_any_size(void **state) {
    (void)state;
    expect_round(I20);
    expect_round("-1e400");
    expect_round("[0,-9223372036854775808,-9223372036854775809,9223372036854775807,9223372036854775808]");
    expect_round("{\"a\":{\"b\":[1," I20 ",2,[" I20 "1,3]],\"c\":1e999},\"" I20 "\":\"" I20 "\",\"d\":[4,-" I20 "]}");
    expect_round("[[],{},\"\\\" " I20 "\"," I20 "]");
    json_t *v = parse(
        "[" I20 ", 1e400, -1E+400, 5, 5.0, {}, {\"a\": 1}, 1e22, 10000000000000000000000, " I20 ", " I20 "0]", NULL);
    const json_t *at[11];
    for (size_t i = 0; i < 11; i++) at[i] = json_array_get(v, i);
    assert_string_equal(json_big_number(at[0]), I20);
    assert_string_equal(json_big_number(at[2]), "-1E+400");
    for (size_t i = 3; i < 8; i++) assert_null(json_big_number(at[i]));
    assert_null(json_big_number(NULL));
    for (size_t i = 0; i < 11; i++) {
        bool map = i == 5 || i == 6;
        assert_int_equal(json_is_object(at[i]), map);
        assert_int_equal(json_is_number(at[i]), !map);
    }
    assert_true(json_is_big_integer(at[0]) && !json_is_big_integer(at[1]) && !json_is_big_integer(at[3]));
    assert_true(json_number_value(at[0]) == 12345678901234567890.0 && json_number_value(at[2]) == -INFINITY);
    assert_true(json_number_value(at[3]) == 5 && json_number_value(at[5]) == 0);
    assert_true(json_same_number(at[3], at[4]) && json_same_number(at[7], at[8]) && json_same_number(at[0], at[9]));
    assert_true(!json_same_number(at[0], at[10]) && !json_same_number(at[1], at[2]) && !json_same_number(at[3], at[0]));
    assert_true(!json_same_number(at[5], at[5]));
    assert_string_equal(json_type_text(at[0]), "an integer");
    assert_string_equal(json_type_text(at[1]), "a number");
    assert_string_equal(json_type_text(at[6]), "an object");
    assert_string_equal(json_type_text(NULL), "nothing");
    i64 i = -1;
    f64 f = -1;
    err e = {0};
    json_t *o = parse("{\"i\": " I20 ", \"f\": 1e400}", NULL);
    assert_int_equal(json_get_i64(o, "i", 0, INT64_MAX, true, &i, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "\"i\" is " I20 ", outside 0.."));
    assert_int_equal(json_get_f64(o, "f", 0, 1e300, true, &f, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "\"f\" is inf, outside 0.."));
    assert_int_equal(json_get_f64(o, "i", 0, 1e300, true, &f, &e), ST_OK);
    assert_true(i == -1 && f == 12345678901234567890.0);
    json_decref(o);
    json_decref(v);
}

/* No JSON text has a NUL byte: not in a string, nor behind a number, where jansson would overlook it. */
static void test_nul(void **state) {
    (void)state;
    static const char *const before[] = {"[", "[0", "[-1.5", "[true", "[\"a", "[0,\n 1 "};
    for (size_t i = 0; i < COUNT_OF(before); i++) {
        buf b = {0};
        err e = {0};
        buf_str(&b, before[i]);
        buf_char(&b, 0);
        buf_str(&b, strchr(before[i], '"') ? "\"]" : "]");
        assert_null(json_parse(b.data, b.len, "x", &e));
        assert_int_equal(e.code, ST_FORMAT);
        assert_non_null(strstr(e.text, i == 5 ? "line 2 column 4: a NUL byte" : "a NUL byte"));
        buf_free(&b);
    }
}

/* Python reads integers of up to 4300 digits; nothing is left out of a long one. */
static void test_digits(void **state) {
    (void)state;
    buf b = {0};
    for (int n = 4299; n <= 4302; n++) {
        buf_clear(&b);
        buf_str(&b, "[1,\n -");
        for (int i = 0; i < n; i++) buf_char(&b, "1234567890"[i % 10]);
        buf_char(&b, ']');
        err e = {0};
        json_t *v = parse(b.data, &e);
        assert_int_equal(v != NULL, n <= 4300);
        if (v) assert_int_equal(strlen(json_big_number(json_array_get(v, 1))), n + 1);
        if (!v) assert_non_null(strstr(e.text, "line 2 column 2: an integer of more than 4300 digits"));
        json_decref(v);
    }
    buf_free(&b);
}

static void test_styles(void **state) {
    (void)state;
    json_t *v = parse("{\"a\":[1,0.1,1e2,-1e400],\"b\":{},\"c\":[],\"d\":\"x\"}", NULL);
    buf b = {0};
    json_write(&b, v, &json_spaced);
    assert_string_equal(b.data, "{\"a\": [1, 0.1, 100.0, -1e400], \"b\": {}, \"c\": [], \"d\": \"x\"}");
    buf_clear(&b);
    json_write(&b, v, &(json_style){",", ": ", "big", 1});
    assert_string_equal(
        b.data, "{\n \"a\": [\n  1,\n  0.1,\n  100.0,\n  -big\n ],\n \"b\": {},\n \"c\": [],\n \"d\": \"x\"\n}");
    buf_free(&b);
    json_decref(v);
}

static void test_depth(void **state) {
    (void)state;
    char text[2 * 600 + 1];
    for (int n = 511; n <= 514; n++) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        text[2 * n] = 0;
        err e = {0};
        json_t *v = parse(text, &e);
        assert_int_equal(v != NULL, n <= 512);
        json_decref(v);
    }
    memset(text, '[', 1200); /* brackets in a string do not nest */
    text[0] = text[1199] = '"';
    text[1200] = 0;
    json_t *v = parse(text, NULL);
    assert_non_null(v);
    json_decref(v);
}

/* What a string's JSON text becomes. */
static void expect_text(const char *text, const char *want, size_t len) {
    err e = {0};
    json_t *v = parse(text, &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    assert_int_equal(json_string_length(v), len);
    assert_memory_equal(json_string_value(v), want, len);
    json_decref(v);
}

#define FFFD "\xef\xbf\xbd"
static void test_surrogates(void **state) {
    (void)state;
    expect_text("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4);
    expect_text("\"\\uD83D\\uDE00x\"", "\xf0\x9f\x98\x80x", 5);
    expect_text("\"\\ud83d\"", FFFD, 3);
    expect_text("\"\\ude00\"", FFFD, 3);
    expect_text("\"\\ud83dx\"", FFFD "x", 4);
    expect_text("\"\\ud83d\\n\"", FFFD "\n", 4);
    expect_text("\"\\ud83d\\ud83d\\ude00\"", FFFD "\xf0\x9f\x98\x80", 7);
    expect_text("\"\\ude00\\ud83d\"", FFFD FFFD, 6);
    expect_text("\"\\ud83d\\u0041\"", FFFD "A", 4);
    expect_text("\"\\\\ud83d\"", "\\ud83d", 6); /* an escaped backslash, no escape of a surrogate */
    expect_text("\"\\\\\\ud83d\"", "\\" FFFD, 4);
    expect_text("\"a\\u0000b\"", "a\0b", 3);
    expect_error("\"\\ud83", "line 1");
    expect_error("\"\\ud83g\"", "line 1");
    expect_error("\"\\ud83d\\", "line 1");
}

static void test_order_is_kept(void **state) {
    (void)state;
    json_t *v = parse("{\"z\":1,\"a\":2,\"m\":3}", NULL);
    const char *key, *want[] = {"z", "a", "m"};
    json_t *x;
    int i = 0;
    json_object_foreach(v, key, x) assert_string_equal(key, want[i++]);
    json_decref(v);
}

static void test_get(void **state) {
    (void)state;
    json_t *o = parse(
        "{\"i\":5,\"r\":5.0,\"h\":5.5,\"huge\":1e18,\"n\":null,\"b\":true,\"s\":\"x\",\"z\":\"x\\u0000y\"}", NULL);
    i64 i = -1;
    f64 f = -1;
    bool b = false;
    const char *s = "old";
    err e = {0};
    assert_int_equal(json_get_i64(o, "i", 0, 5, true, &i, &e), ST_OK);
    assert_int_equal(i, 5);
    i = -1;
    assert_int_equal(json_get_i64(o, "r", 0, 5, true, &i, &e), ST_OK); /* 5.0 is a whole number */
    assert_int_equal(i, 5);
    i = -1;
    assert_int_equal(json_get_i64(o, "i", 6, 9, true, &i, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "\"i\" is 5, outside 6..9"));
    assert_int_equal(json_get_i64(o, "h", 0, 9, true, &i, &e), ST_FORMAT);
    assert_int_equal(json_get_i64(o, "huge", 0, INT64_MAX, true, &i, &e), ST_FORMAT);
    assert_int_equal(json_get_i64(o, "b", 0, 9, true, &i, &e), ST_FORMAT);
    assert_int_equal(json_get_i64(o, "s", 0, 9, true, &i, &e), ST_FORMAT);
    assert_int_equal(json_get_i64(o, "none", 0, 9, true, &i, &e), ST_FORMAT);
    assert_int_equal(json_get_i64(o, "n", 0, 9, true, &i, &e), ST_FORMAT);
    assert_int_equal(json_get_i64(o, "n", 0, 9, false, &i, &e), ST_OK);
    assert_int_equal(json_get_i64(o, "none", 0, 9, false, &i, &e), ST_OK);
    assert_int_equal(i, -1); /* left alone throughout */
    assert_int_equal(json_get_f64(o, "h", 5.5, 6, true, &f, &e), ST_OK);
    assert_true(f == 5.5);
    assert_int_equal(json_get_f64(o, "i", 6, 7, true, &f, &e), ST_FORMAT);
    assert_int_equal(json_get_f64(o, "s", 0, 9, false, &f, &e), ST_FORMAT);
    assert_int_equal(json_get_bool(o, "b", true, &b, &e), ST_OK);
    assert_true(b);
    assert_int_equal(json_get_bool(o, "i", true, &b, &e), ST_FORMAT);
    assert_int_equal(json_get_str(o, "s", true, &s, &e), ST_OK);
    assert_string_equal(s, "x");
    assert_int_equal(json_get_str(o, "z", true, &s, &e), ST_FORMAT); /* would compare equal to "x" */
    assert_int_equal(json_get_str(o, "i", true, &s, NULL), ST_FORMAT);
    assert_string_equal(s, "x");
    json_decref(o);
}

/* What is written reads back as it was. */
static void test_write(void **state) {
    (void)state;
    char all[256];
    size_t n = 0;
    for (int c = 0; c < 128; c++) all[n++] = (char)c;
    memcpy(all + n, "\xc3\xa9\xf0\x9f\x98\x80", 6);
    n += 6;
    buf b = {0};
    buf_json_str(&b, all, n);
    for (size_t i = 0; i < b.len; i++) assert_true((unsigned char)b.data[i] >= 0x20);
    expect_text(b.data, all, n);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strictness),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_surrogates),
        cmocka_unit_test(test_order_is_kept),
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_numbers_of_any_size),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_nul),
        cmocka_unit_test(test_styles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
