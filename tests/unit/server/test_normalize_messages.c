/* Messages as clients send them: which call a result belongs to, what is refused, and that long conversations take a
 * time in proportion to their length. */
#include "unit.h"

#include "server/request/request.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* JSON with ' for ". */
static json_t *parse(const char *text) {
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    err e = {0};
    json_t *v = json_parse(copy, strlen(copy), "test", &e);
    if (!v) print_message("%s: %s\n", e.text, copy);
    assert_non_null(v);
    free(copy);
    return v;
}

static void becomes(const char *messages, const char *want) {
    json_t *got = parse(messages), *w = parse(want);
    api_error e = {0};
    i64 calls;
    if (!normalize_messages(got, &calls, &e)) fail_msg("%s", e.text.text);
    if (!json_equal(got, w)) {
        char *s = json_dumps(got, 0);
        print_message("%s\n", s);
        free(s);
    }
    assert_true(json_equal(got, w));
    json_decref(got);
    json_decref(w);
}

static void refused(const char *messages, const char *param, const char *words) {
    json_t *v = parse(messages);
    api_error e = {0};
    i64 calls;
    assert_false(normalize_messages(v, &calls, &e));
    assert_int_equal(e.http, 400);
    assert_string_equal(e.param, param);
    if (!strstr(e.text.text, words)) fail_msg("%s", e.text.text);
    json_decref(v);
}

#define CALLED(id)  "{'id':'" id "','function':{'name':'f','arguments':'{}'}}"
#define RESULT(id)  "{'role':'tool','tool_call_id':'" id "','content':'r'}"
#define TURN(calls) "{'role':'assistant','tool_calls':[" calls "]}"

static void results_find_their_calls(void **state) {
    (void)state;
    /* Two calls of one turn under one id: the first result is the first call's; a third one is the last call's. */
    becomes("[" TURN(CALLED("x") "," CALLED("x")) "," RESULT("x") "," RESULT("x") "," RESULT("x") "]",
            "[" TURN(CALLED("functions.f:0") "," CALLED("functions.f:1")) "," RESULT("functions.f:0") "," RESULT(
                "functions.f:1") "," RESULT("functions.f:1") "]");
    /* The latest turn that has the id, also where the call of an earlier one has no result. */
    becomes(
        "[" TURN(CALLED("x") "," CALLED("y")) "," TURN(CALLED("x") "," CALLED("z")) "," RESULT("x") "," RESULT(
            "y") "," RESULT("x") "," RESULT("q") "]",
        "[" TURN(CALLED("functions.f:0") "," CALLED("functions.f:1")) "," TURN(CALLED("functions.f:2") "," CALLED(
            "functions.f:3")) "," RESULT("functions.f:2") "," RESULT("functions.f:1") "," RESULT("functions.f:2") "," RESULT("q") "]");
}

static void parts_of_reasoning_leave(void **state) {
    (void)state;
    becomes("[{'role':'assistant','content':[{'type':'thinking','thinking':'a'},{'type':'text','text':'1'},"
            "{'type':'reasoning','text':'b'},{'type':'output_text','text':'2'},{'type':'thinking'}]}]",
            "[{'role':'assistant','reasoning_content':'a','content':[{'type':'text','text':'1'},"
            "{'type':'text','text':'2'}]}]");
}

static void roles_and_types(void **state) {
    (void)state;
    becomes("[{'role':'Developer','content':'x'},{'role':'FUNCTION','tool_call_id':'a','content':''}]",
            "[{'role':'system','content':'x'},{'role':'tool','tool_call_id':'a','content':''}]");
    refused("[{'role':'king','content':'x'}]", "messages", "king");
    refused("[{'role':'systemsystemsystemsystemsystemsystem','content':'x'}]", "messages", "messages[0].role");
    refused("[{'role':'user\\u0000','content':'x'}]", "messages", "NUL");
    refused("[{'role':'user','content':'x'},{'role':'system\\u0000x','content':'x'}]", "messages", "messages[1].role");
    refused("[{'role':'user','content':[{'type':'text','text':'a'},{'text':'b'}]}]", "messages[0].content[1]",
            "messages[0].content[1].type");
    refused("[{'role':'user','content':[{'type':5,'text':'b'}]}]", "messages[0].content[0]", "expected a string");
}

static f64 cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (f64)t.tv_sec + (f64)t.tv_nsec * 1e-9;
}

static f64 normalise(buf *text) {
    err e = {0};
    api_error a = {0};
    json_t *v = json_parse(text->data, text->len, "test", &e);
    i64 calls;
    assert_non_null(v);
    f64 from = cpu_s();
    assert_true(normalize_messages(v, &calls, &a));
    f64 took = cpu_s() - from;
    json_decref(v);
    buf_free(text);
    return took;
}

/* Quadratic, these take minutes. */
static void no_quadratic_time(void **state) {
    (void)state;
    enum { N = 200000 };
    buf calls = {0}, same = {0}, thinking = {0};
    buf_str(&calls, "[{\"role\":\"assistant\",\"tool_calls\":[");
    buf_str(&same, "[{\"role\":\"assistant\",\"tool_calls\":[");
    buf_str(&thinking, "[{\"role\":\"assistant\",\"content\":[");
    for (int i = 0; i < N; i++) {
        buf_fmt(&calls, "%s{\"id\":\"a%d\",\"function\":{\"name\":\"f\"}}", i ? "," : "", i);
        buf_fmt(&same, "%s{\"id\":\"a\",\"function\":{\"name\":\"f\"}}", i ? "," : "");
        buf_fmt(&thinking, "%s{\"type\":\"thinking\"},{\"type\":\"text\"}", i ? "," : "");
    }
    buf_str(&calls, "]}");
    buf_str(&same, "]}");
    for (int i = 0; i < N; i++) {
        buf_fmt(&calls, ",{\"role\":\"tool\",\"tool_call_id\":\"a%d\"}", i);
        buf_str(&same, ",{\"role\":\"tool\",\"tool_call_id\":\"a\"}");
    }
    buf_str(&calls, "]");
    buf_str(&same, "]");
    buf_str(&thinking, "]}]");
    assert_true(normalise(&calls) < 5);
    assert_true(normalise(&same) < 5);
    assert_true(normalise(&thinking) < 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_find_their_calls),
                                       cmocka_unit_test(parts_of_reasoning_leave), cmocka_unit_test(roles_and_types),
                                       cmocka_unit_test(no_quadratic_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
