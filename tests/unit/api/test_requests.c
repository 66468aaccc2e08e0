/* moon_run's requests: what is refused, by name, and that the engine answers the next one all the same. */
#include "unit.h"

#include "moonlet.h"
#include <stdio.h>
#include <string.h>

static moon_engine *engine;
static char said[4096];
static size_t n_said;

static int setup(void **state) {
    (void)state;
    moon_options o = MOON_OPTIONS_INIT;
    moon_error error;
    o.model_dir = "models/nano";
    if (moon_open(&engine, &o, &error) == MOON_OK) return 0;
    fprintf(stderr, "%s\n", error.text);
    return 1;
}

static int teardown(void **state) {
    (void)state;
    moon_close(engine);
    return 0;
}

static int collect(void *user, moon_event event, const char *text, size_t n) {
    const int *stop_after = user;
    if (event == MOON_CONTENT && n_said + n < sizeof said) {
        memcpy(said + n_said, text, n);
        n_said += n;
        said[n_said] = 0;
    }
    return stop_after && *stop_after == (int)event;
}

static void answers(void) {
    moon_request q = MOON_REQUEST_INIT;
    moon_error error;
    moon_stats stats;
    n_said = 0;
    q.chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 17 + 25?\"}]}";
    assert_int_equal(moon_run(engine, &q, collect, NULL, &stats, &error), MOON_OK);
    assert_non_null(strstr(said, "42"));
    assert_string_equal(stats.finish, "stop");
}

static void refused(const moon_request *q, moon_status want, const char *word) {
    moon_error error;
    assert_int_equal(moon_run(engine, q, collect, NULL, NULL, &error), want);
    assert_int_equal(error.status, want);
    if (!strstr(error.text, word)) fail_msg("\"%s\" does not name %s", error.text, word);
    answers();
}

static void bad_chats_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *chat, *word;
        moon_status want;
    } cases[] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:,\"}}]}]}",
         "messages[0].content[0]", MOON_INPUT},
        {"{\"messages\": [{\"content\": \"x\"}]}", "messages[0]", MOON_INPUT},
        {"{\"messages\": 5}", "messages", MOON_INPUT},
        {"{\"message\": []}", "\"message\"", MOON_INPUT},
        {"[1]", "object", MOON_INPUT},
        {"{", "line 1", MOON_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moon_request q = MOON_REQUEST_INIT;
        q.chat = cases[i].chat;
        refused(&q, cases[i].want, cases[i].word);
    }
}

static void bad_values_are_refused_by_name(void **state) {
    (void)state;
    moon_request q = MOON_REQUEST_INIT;
    refused(&q, MOON_INPUT, "prompt");
    q.prompt = "x";
    q.chat = "{}";
    refused(&q, MOON_INPUT, "not both");
    q.chat = NULL;
    q.prompt = "";
    refused(&q, MOON_INPUT, "empty");
    q.prompt = "x";
    q.max_tokens = 1 << 30;
    refused(&q, MOON_LIMIT, "context");
    q.max_tokens = 0;
    q.top_p = 0;
    refused(&q, MOON_INPUT, "top_p");
    q.size = 3;
    refused(&q, MOON_INPUT, "size");
}

static void a_stop_from_the_callback_leaves_the_engine_well(void **state) {
    (void)state;
    for (int at = MOON_REASONING; at <= MOON_CONTENT; at++) {
        moon_request q = MOON_REQUEST_INIT;
        moon_error error;
        moon_stats stats;
        q.chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]}";
        assert_int_equal(moon_run(engine, &q, collect, &at, &stats, &error), MOON_CANCELLED);
        assert_string_equal(stats.finish, "cancelled");
        answers();
    }
}

static void raw_prompts_come_back_as_tokens(void **state) {
    (void)state;
    moon_request q = MOON_REQUEST_INIT;
    moon_stats stats;
    q.prompt = "17 + 25";
    q.max_tokens = 5;
    q.ignore_eos = 1;
    assert_int_equal(moon_run(engine, &q, NULL, NULL, &stats, NULL), MOON_OK);
    assert_int_equal(stats.output_tokens, 5);
    assert_string_equal(stats.finish, "length");
}

typedef struct {
    int n;
    char last[512];
} calls;

static int collect_calls(void *user, moon_event event, const char *text, size_t n) {
    calls *c = user;
    if (event != MOON_TOOL_CALL) return 0;
    c->n++;
    snprintf(c->last, sizeof c->last, "%.*s", (int)n, text);
    return 0;
}

static int64_t ask_for_weather(int64_t max_tokens, calls *got, const char *finish) {
    moon_request q = MOON_REQUEST_INIT;
    moon_error error;
    moon_stats stats;
    q.chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the weather in Paris?\"}], \"tools\": "
             "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"the weather\", "
             "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, "
             "\"required\": [\"city\"]}}}]}";
    q.max_tokens = max_tokens;
    *got = (calls){0};
    assert_int_equal(moon_run(engine, &q, collect_calls, got, &stats, &error), MOON_OK);
    assert_string_equal(stats.finish, finish);
    return stats.output_tokens;
}

/* The answer ends: last token of the call, its end, the end of the calls, the stop id. */
static void a_call_that_is_cut_is_none(void **state) {
    (void)state;
    calls whole, got;
    int64_t n = ask_for_weather(0, &whole, "tool_calls");
    assert_int_equal(whole.n, 1);
    if (!strstr(whole.last, "get_weather") || !strstr(whole.last, "Paris")) fail_msg("%s", whole.last);
    for (int64_t cut = 1; cut <= 6; cut++) {
        assert_int_equal(ask_for_weather(n - cut, &got, "length"),
                         n - cut); /* a whole call, but not the model's own end */
        assert_int_equal(got.n, cut <= 2);
        if (got.n) assert_string_equal(got.last, whole.last);
    }
}

static void two_engines_do_not_disturb_each_other(void **state) {
    (void)state;
    static const char *const masks[] = {"none", "avx2"};
    for (int i = 0; i < 2; i++) {
        moon_options o = MOON_OPTIONS_INIT;
        moon_engine *first = engine, *second;
        moon_error error;
        o.model_dir = "models/nano";
        o.cpu_mask = masks[i];
        assert_int_equal(moon_open(&second, &o, &error), MOON_OK);
        engine = second;
        answers();
        engine = first;
        answers();
        moon_close(second);
        answers();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_chats_are_refused_by_name),
        cmocka_unit_test(bad_values_are_refused_by_name),
        cmocka_unit_test(a_stop_from_the_callback_leaves_the_engine_well),
        cmocka_unit_test(raw_prompts_come_back_as_tokens),
        cmocka_unit_test(a_call_that_is_cut_is_none),
        cmocka_unit_test(two_engines_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
