/* What counts as right in `moonlet eval`: numbers, values, tool calls, intervals. */
#include "cmd/eval/eval_items.c"
#include "unit.h"

static void numbers(void **s) {
    (void)s;
    f64 x;
    assert_false(last_number("none", &x));
    assert_true(last_number("3 and 1,234.5.", &x) && x == 1234.5);
    assert_true(last_number("17 - 25 = -8.", &x) && x == -8);
    assert_true(last_number("so 20-3", &x) && x == 3);
}

static void values(void **s) {
    (void)s;
    assert_true(has_value("It is 12 degrees.", "12") && has_value("12", "12") && has_value("(12)", "12"));
    assert_true(has_value("The result is 12.", "12") && has_value("5, 12, 13", "12") && has_value("2-12", "12"));
    assert_false(has_value("1234 or 412", "12"));
    assert_false(has_value("12.5", "12") || has_value("3.12", "12") || has_value("12,500", "12"));
    assert_false(has_value("It is -12 degrees.", "12"));
    assert_true(has_value("It is -12 degrees.", "-12"));
    assert_false(has_value("It is -123 degrees.", "-12"));
    assert_true(has_value("a red one", "red"));
    assert_false(has_value("bored", "red") || has_value("", "red") || has_value("red", ""));
    assert_true(has_value("reddish, red", "red")); /* the second one counts */
    json_t *item = json_loads("{\"answer\": \"1 #### 2\\n####  under the bridge\"}", 0, NULL);
    assert_string_equal(wanted_value(item), "under the bridge");
    json_decref(item);
}

#define TOOLS                                                                                                           \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": \"object\"," \
    "\"properties\": {\"city\": {\"type\": \"string\"}, \"unit\": {\"type\": \"string\", \"enum\": [\"c\", \"f\"]},"    \
    "\"day\": {\"type\": \"number\"}}, \"required\": [\"city\"]}}}]"
#define CALL(id, name, args)                                                                                           \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name "\", \"arguments\": \"" args "\"}}"
#define PARIS "{\\\"city\\\": \\\"New York\\\", \\\"day\\\": 3}"

static void expect(const char *calls, bool well_formed, bool right) {
    json_t *item = json_loads("{" TOOLS ", \"calls\": [" CALL("functions.weather:0", "weather", PARIS) "]}", 0, NULL);
    json_t *got = json_loads(calls, 0, NULL);
    assert_non_null(item);
    assert_non_null(got);
    bool well, correct;
    judge_calls(item, got, &well, &correct);
    if (well != well_formed || correct != right) fail_msg("%s: %d %d", calls, well, correct);
    json_decref(item);
    json_decref(got);
}

static void calls(void **s) {
    (void)s;
    expect("[" CALL("functions.weather:0", "weather", PARIS) "]", true, true);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"day\\\": 3.0, \\\"city\\\": \\\"NewYork\\\"}") "]", true,
           true);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"city\\\": \\\"Oslo\\\", \\\"day\\\": 3}") "]", true, false);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"city\\\": \\\"New York\\\"}") "]", true, false);
    expect("[]", false, false);
    expect("[" CALL("functions.weather:1", "weather", PARIS) "]", false, false);
    expect("[" CALL("weather:0", "weather", PARIS) "]", false, false);
    expect("[" CALL("functions.other:0", "other", PARIS) "]", false, false);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"city\\\": ") "]", false, false);
    expect("[" CALL("functions.weather:0", "weather", "[1]") "]", false, false);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"day\\\": 3}") "]", false, false);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"city\\\": \\\"x\\\", \\\"odd\\\": 1}") "]", false, false);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"city\\\": \\\"x\\\", \\\"unit\\\": \\\"k\\\"}") "]", false,
           false);
    expect("[" CALL("functions.weather:0", "weather", "{\\\"city\\\": \\\"x\\\", \\\"unit\\\": \\\"c\\\"}") "]", true,
           false);
    /* one call too many; a second one numbered as the first */
    expect("[" CALL("functions.weather:0", "weather", PARIS) ", " CALL("functions.weather:1", "weather", PARIS) "]",
           true, false);
    expect("[" CALL("functions.weather:0", "weather", PARIS) ", " CALL("functions.weather:0", "weather", PARIS) "]",
           false, false);
}

static void intervals(void **s) {
    (void)s;
    f64 low, high; /* R: prop.test(x, n, correct = FALSE) */
    wilson_interval(489, 500, &low, &high);
    assert_true(fabs(low - 0.9610) < 5e-4 && fabs(high - 0.9877) < 5e-4);
    wilson_interval(500, 500, &low, &high);
    assert_true(fabs(low - 0.99238) < 5e-5 && high == 1);
    wilson_interval(0, 10, &low, &high);
    assert_true(low == 0 && fabs(high - 0.27753) < 5e-5);
}

static status any(void *ud, const json_t *item, err *e) {
    (void)ud;
    return json_is_object(item) ? ST_OK : err_set(e, ST_FORMAT, "not an object");
}

static void files(void **s) {
    (void)s;
    char path[] = "/tmp/moonlet-items-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    for (int i = 0; i < 10; i++) fprintf(f, "{\"i\": %d}\n\n", i);
    fclose(f);
    err e = {0};
    item_file all = {0}, first = {0}, spread = {0}, bad = {0};
    assert_int_equal(items_read(&all, path, 0, true, any, NULL, &e), ST_OK);
    assert_true(all.n == 10 && all.lines[9] == 19);
    assert_int_equal(items_read(&first, path, 3, false, any, NULL, &e), ST_OK);
    assert_true(first.n == 3 && json_integer_value(json_object_get(first.items[2], "i")) == 2);
    assert_int_equal(items_read(&spread, path, 3, true, any, NULL, &e), ST_OK);
    assert_true(spread.n == 3 && json_integer_value(json_object_get(spread.items[1], "i")) == 3 &&
                json_integer_value(json_object_get(spread.items[2], "i")) == 6);
    f = fopen(path, "a");
    fputs("[1]\n", f);
    fclose(f);
    assert_int_equal(items_read(&bad, path, 2, false, any, NULL, &e), ST_FORMAT); /* also beyond the limit */
    assert_non_null(strstr(e.text, "line 21"));
    remove(path);
    items_free(&all);
    items_free(&first);
    items_free(&spread);
    items_free(&bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(values), cmocka_unit_test(calls),
                                       cmocka_unit_test(intervals), cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
