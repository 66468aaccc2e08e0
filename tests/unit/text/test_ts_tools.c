/* The TypeScript declaration of tools against what the original encoder printed (tests/golden), and Python's
 * spelling of numbers against Python's. */
#include "vectors.h"
#include "text/pyjson.h"
#include "text/ts_tools.h"

static size_t n_none;

static void check_declaration(const json_t *v) {
    json_t *tools = py_sorted(json_object_get(v, "tools"));
    const json_t *want = json_object_get(v, "text");
    buf out = {0};
    err e = {0};
    status st = ts_tools_encode(&out, tools, &e);
    char *input = json_to_text(json_object_get(v, "tools"), &json_compact);
    if (json_is_null(want)) {
        n_none++;
        if (st != ST_UNSUPPORTED) fail_msg("declared although the original gives up: %s\n%s", input, out.data);
        assert_true(e.text[0]);
        assert_int_equal(out.len, 0);
    } else {
        if (st != ST_OK) fail_msg("%s: %s", e.text, input);
        if (out.len != json_string_length(want) || memcmp(out.len ? out.data : "", json_string_value(want), out.len))
            fail_msg("%s\n--- got\n%s\n--- want\n%s", input, out.data, json_string_value(want));
    }
    free(input);
    buf_free(&out);
    json_decref(tools);
}

static void declarations(void **s) {
    (void)s;
    size_t n = each_vector("tests/golden/ts_tools.jsonl", check_declaration);
    assert_true(n >= 300);
    assert_true(n_none >= 60 && n_none <= n / 2); /* both outcomes are covered */
}

static void expect_number(const json_t *v, bool dumps, const json_t *want) {
    buf out = {0};
    if (dumps)
        py_dumps(&out, v, ", ", ": ");
    else
        py_repr(&out, v);
    assert_string_equal(out.data, json_string_value(want));
    buf_free(&out);
}

/* A double that the file has as a number, or JSON text of any numbers. */
static void check_number(const json_t *v) {
    const char *text = json_string_value(json_object_get(v, "json"));
    if (!text) {
        expect_number(json_object_get(v, "value"), false, json_object_get(v, "text"));
        return;
    }
    json_t *parsed = parse_json(text);
    expect_number(parsed, true, json_object_get(v, "dumps"));
    expect_number(parsed, false, json_object_get(v, "repr"));
    json_decref(parsed);
}

static void numbers(void **s) {
    (void)s;
    assert_true(each_vector("tests/golden/pyjson.jsonl", check_number) >= 560);
}

static void dumps(void **s) {
    (void)s;
    json_t *v = parse_json("{\"b\":[1,2.0,1e-5,true,null,\"\\u00e9\\\"\\n\\u0001\\u007f/\"],\"a\":{}}");
    json_t *sorted = py_sorted(v);
    buf out = {0};
    py_dumps(&out, v, ", ", ": ");
    assert_string_equal(out.data, "{\"b\": [1, 2.0, 1e-05, true, null, \"é\\\"\\n\\u0001\x7f/\"], \"a\": {}}");
    buf_clear(&out);
    py_dumps(&out, sorted, ",", ":");
    assert_string_equal(out.data, "{\"a\":{},\"b\":[1,2.0,1e-05,true,null,\"é\\\"\\n\\u0001\x7f/\"]}");
    buf_clear(&out);
    py_str(&out, v);
    assert_string_equal(out.data, "{'b': [1, 2.0, 1e-05, True, None, 'é\"\\n\\x01\\x7f/'], 'a': {}}");
    buf_free(&out);
    json_decref(v);
    json_decref(sorted);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(declarations), cmocka_unit_test(numbers),
                                       cmocka_unit_test(dumps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
