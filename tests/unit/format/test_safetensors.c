/* The header of one safetensors file. Hostile files on disk are in tests/e2e/test_bad_checkpoints.py. */
#include <stdio.h>
#include <stdlib.h>
#include "unit.h"
#include "base/buf.h"
#include "format/safetensors.h"

/* A file of this header and `data` zero bytes, aligned as a mapping is. */
static u8 *make_file(const char *header, u64 data, u64 *size) {
    u64 n = strlen(header);
    *size = 8 + n + data;
    u8 *f = aligned_alloc(64, (*size + 63) / 64 * 64);
    memset(f, 0, (*size + 63) / 64 * 64);
    for (int i = 0; i < 8; i++) f[i] = (u8)(n >> 8 * i);
    memcpy(f + 8, header, n);
    return f;
}

static void expect_error(const char *header, u64 data, status code, const char *part) {
    u64 size;
    u8 *f = make_file(header, data, &size);
    safetensors s;
    err e = {0};
    assert_int_equal(safetensors_parse(&s, f, size, &e), code);
    assert_int_equal(e.code, code);
    if (!strstr(e.text, part)) fail_msg("\"%s\" is not in: %s", part, e.text);
    safetensors_free(&s);
    assert_int_equal(safetensors_parse(&s, f, size, NULL), code); /* without a text */
    safetensors_free(&s);
    free(f);
}

/* 8 + 120 bytes of header; any order of keys and white space. */
static void test_good(void **state) {
    (void)state;
    const char *h = " {\"b\" : {\"shape\":[2, 3],\"dtype\":\"BF16\",\"data_offsets\":[8,20]} ,\n"
                    "\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u00e9\\n\\\"\"},"
                    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                    "\"empty\":{\"dtype\":\"I64\",\"shape\":[7,0],\"data_offsets\":[8,8]},"
                    "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[20,21]}}   ";
    char padded[512];
    snprintf(padded, sizeof padded, "%-320s", h + 1);
    u64 size;
    u8 *f = make_file(padded, 21, &size);
    safetensors s;
    err e = {0};
    assert_int_equal(safetensors_parse(&s, f, size, &e), ST_OK);
    assert_int_equal(s.n, 4);
    const char *names[] = {"a", "empty", "b", "scalar"}; /* by place */
    const u64 bytes[] = {8, 0, 12, 1}, at[] = {0, 8, 8, 20};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(s.tensors[i].name, names[i]);
        assert_int_equal(s.tensors[i].bytes, bytes[i]);
        assert_ptr_equal(s.tensors[i].data, f + 8 + 320 + at[i]);
    }
    assert_int_equal(s.tensors[2].type, DT_BF16);
    assert_int_equal(s.tensors[2].n_dims, 2);
    assert_int_equal(s.tensors[2].shape[1], 3);
    assert_int_equal(s.tensors[3].n_dims, 0);
    safetensors_free(&s);
    free(f);
}

static void test_no_tensors(void **state) {
    (void)state;
    u64 size;
    u8 *f = make_file("{}      ", 0, &size);
    safetensors s;
    err e = {0};
    assert_int_equal(safetensors_parse(&s, f, size, &e), ST_OK);
    assert_int_equal(s.n, 0);
    safetensors_free(&s);
    free(f);
}

static void test_length(void **state) {
    (void)state;
    u8 f[64] = {0};
    safetensors s;
    err e;
    for (u64 size = 0; size < 8; size++) assert_int_equal(safetensors_parse(&s, f, size, &e), ST_FORMAT);
    memset(f, 0xff, 8);
    assert_int_equal(safetensors_parse(&s, f, sizeof f, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "18446744073709551615"));
    memset(f, 0, 8);
    assert_int_equal(safetensors_parse(&s, f, sizeof f, &e), ST_FORMAT); /* length 0 */
    /* up to eight more than there are, although what follows would be a header as well */
    u8 g[96] = {0};
    memset(g + 8, ' ', sizeof g - 8);
    memcpy(g + 8, "{}", 2);
    for (g[0] = 57; g[0] <= 64; g[0]++) {
        assert_int_equal(safetensors_parse(&s, g, 64, &e), ST_FORMAT);
        assert_non_null(strstr(e.text, "truncated"));
    }
    g[0] = 56;
    assert_int_equal(safetensors_parse(&s, g, 64, &e), ST_OK);
    safetensors_free(&s);
}

#define ENTRY(dtype, shape, offsets)                                                                                   \
    "{\"t.weight\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_sizes(void **state) {
    (void)state;
    expect_error(ENTRY("F32", "[2]", "[0,12]"), 12, ST_FORMAT, "make 8 bytes, data_offsets 12");
    expect_error(ENTRY("F32", "[2]", "[0,8]"), 7, ST_FORMAT, "holds only 7");
    expect_error(ENTRY("F32", "[4611686018427387904]", "[0,0]"), 0, ST_FORMAT, "63 bits");
    expect_error(ENTRY("U8", "[4294967296,4294967296]", "[0,0]"), 0, ST_FORMAT, "63 bits");
    expect_error(ENTRY("U8", "[9223372036854775808]", "[0,0]"), 0, ST_FORMAT, "too large");
    expect_error(ENTRY("U8", "[01]", "[0,1]"), 1, ST_FORMAT, "starts with 0");
    expect_error(ENTRY("U8", "[-1]", "[0,1]"), 1, ST_FORMAT, "t.weight");
    expect_error(ENTRY("U8", "[1,]", "[0,1]"), 1, ST_FORMAT, "t.weight");
    expect_error(ENTRY("U8", "[1]", "[1,0]"), 1, ST_FORMAT, "t.weight");
    expect_error(ENTRY("U7", "[1]", "[0,1]"), 1, ST_UNSUPPORTED, "U7");
    expect_error(ENTRY("u8", "[1]", "[0,1]"), 1, ST_UNSUPPORTED, "u8");
    expect_error(ENTRY("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, ST_FORMAT, "8 dimensions");
}

/* A zero makes the size 0 however large the others are: there is nothing to overflow. */
static void test_empty_with_large_dimension(void **state) {
    (void)state;
    char header[256];
    snprintf(header, sizeof header, "%-119s ", ENTRY("F64", "[9223372036854775807,9223372036854775807,0]", "[0,0]"));
    u64 size;
    u8 *f = make_file(header, 0, &size);
    safetensors s;
    err e = {0};
    assert_int_equal(safetensors_parse(&s, f, size, &e), ST_OK);
    assert_int_equal(s.tensors[0].bytes, 0);
    safetensors_free(&s);
    free(f);
}

static void test_cover(void **state) {
    (void)state;
#define T(name, a, b) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" a "," b "]}"
    expect_error("{" T("a", "0", "4") "," T("b", "2", "6") "}", 6, ST_FORMAT, "\"b\" overlaps \"a\"");
    expect_error("{" T("a", "4", "8") "}", 8, ST_FORMAT, "before tensor \"a\"");
    expect_error("{" T("b", "5", "9") "," T("a", "0", "4") "}", 9, ST_FORMAT, "1 bytes before tensor \"b\"");
    expect_error("{" T("a", "0", "4") "}", 5, ST_FORMAT, "1 bytes at the end");
    expect_error("{}", 5, ST_FORMAT, "5 bytes at the end");
    expect_error("{" T("a", "0", "4") "," T("a", "4", "8") "}", 8, ST_FORMAT, "\"a\" occurs twice");
#undef T
}

/* The same header is right or wrong by its length alone: 4-byte elements must start at multiples of 4. */
static void test_alignment(void **state) {
    (void)state;
    char header[128];
    for (int pad = 0; pad < 8; pad++) {
        int n = (int)strlen(ENTRY("F32", "[1]", "[0,4]"));
        n += (8 - n % 8) % 8 + pad;
        snprintf(header, sizeof header, "%-*s", n, ENTRY("F32", "[1]", "[0,4]"));
        u64 size;
        u8 *f = make_file(header, 4, &size);
        safetensors s;
        err e = {0};
        assert_int_equal(safetensors_parse(&s, f, size, &e), pad % 4 ? ST_UNSUPPORTED : ST_OK);
        if (pad % 4) assert_non_null(strstr(e.text, "t.weight"));
        safetensors_free(&s);
        free(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_empty_with_large_dimension),
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
