/* The rows of `moonlet eval nano` with a scripted model: what counts as right where the shipped model cannot be made to
 * err, the second turn of the tool rows above all. moon_run() is replaced. */
#include "moonlet.h"
#define moon_run scripted_run
moon_status scripted_run(moon_engine *m, const moon_request *q, moon_callback callback, void *user, moon_stats *stats,
                         moon_error *error);
#include "cmd/lib/chat_workers.c"
#include "cmd/eval/eval_items.c"
#include "cmd/lib/model_opts.c"
#include "cmd/eval/nano_rows.c"
#include "cmd/lib/tool_calls.c"
#include "unit.h"

typedef struct {
    moon_event event;
    const char *text;
} said;

/* What the model says, turn by turn; finish NULL ends the script. */
typedef struct {
    const char *finish;
    said pieces[4];
} turn;

static const turn *script;
static char *chats[4]; /* the requests it got */
static int n_chats;

moon_status moon_run(moon_engine *m, const moon_request *q, moon_callback callback, void *user, moon_stats *stats,
                     moon_error *error) {
    (void)m;
    (void)error;
    assert_non_null(script[n_chats].finish);
    const turn *t = &script[n_chats];
    chats[n_chats++] = strdup(q->chat);
    for (int i = 0; i < 4 && t->pieces[i].text; i++)
        if (callback(user, t->pieces[i].event, t->pieces[i].text, strlen(t->pieces[i].text))) {
            stats->finish = "cancelled";
            return MOON_CANCELLED;
        }
    *stats = (moon_stats){.prompt_tokens = 10, .output_tokens = 5, .finish = t->finish};
    return MOON_OK;
}

static nano_result ask(const char *name, bool instant, const turn *turns, const char *item_text) {
    nano_result out = {0};
    err e = {0};
    json_t *item = json_loads(item_text, 0, NULL);
    assert_non_null(item);
    script = turns;
    for (int i = 0; i < n_chats; i++) free(chats[i]);
    n_chats = 0;
    for (i64 i = 0; i < nano_n_passes; i++) {
        const nano_pass *p = &nano_passes[i];
        if (strcmp(p->name, name) || p->instant != instant) continue;
        if (p->check(NULL, item, &e) != ST_OK || p->ask(NULL, item, instant, NULL, &out, &e) != ST_OK)
            fail_msg("%s", e.text);
    }
    assert_non_null(out.answer);
    free(out.answer);
    json_decref(item);
    return out;
}

#define ITEM                                                                                                            \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"2+3?\"}], \"tools\": [{\"type\": \"function\", \"function\": " \
    "{\"name\": \"calc\", \"parameters\": {\"type\": \"object\", \"properties\": {\"e\": {\"type\": \"string\"}}, "     \
    "\"required\": [\"e\"]}}}], \"calls\": [{\"id\": \"functions.calc:0\", \"type\": \"function\", \"function\": "      \
    "{\"name\": \"calc\", \"arguments\": \"{\\\"e\\\": \\\"2+3\\\"}\"}}], \"results\": [{\"role\": \"tool\", "          \
    "\"tool_call_id\": \"functions.calc:0\", \"content\": \"5\"}], \"answer\": \"It is 5.\\n#### 5\"}"
#define CALL(args) "{\"id\": \"functions.calc:0\", \"name\": \"calc\", \"arguments\": \"" args "\"}"
#define GOOD                                                                                                           \
    {                                                                                                                  \
        "tool_calls", {                                                                                                \
            {MOON_REASONING, "use calc"}, { MOON_TOOL_CALL, CALL("{\\\"e\\\": \\\"2 + 3\\\"}") }                       \
        }                                                                                                              \
    }

static void expect(const turn *turns, bool well_formed, bool call, bool answer, int requests) {
    nano_result r = ask("tools", false, turns, ITEM);
    assert_int_equal(r.right[0], well_formed);
    assert_int_equal(r.right[1], call);
    assert_int_equal(r.right[2], answer);
    assert_int_equal(n_chats, requests);
}

#define ANSWER                                                                                                         \
    {                                                                                                                  \
        "stop", {                                                                                                      \
            { MOON_CONTENT, "It is 5." }                                                                               \
        }                                                                                                              \
    }
#define CALLS(args)                                                                                                    \
    {                                                                                                                  \
        "tool_calls", {                                                                                                \
            { MOON_TOOL_CALL, CALL(args) }                                                                             \
        }                                                                                                              \
    }

static void tools(void **s) {
    (void)s;
    expect((turn[]){GOOD, ANSWER, {0}}, true, true, true, 2);
    json_t *second = json_loads(chats[1], 0, NULL), *messages = json_object_get(second, "messages");
    assert_int_equal(json_array_size(messages), 3);
    const json_t *said_before = json_array_get(messages, 1), *result = json_array_get(messages, 2);
    assert_string_equal(json_string_value(json_object_get(said_before, "role")), "assistant");
    assert_int_equal(json_array_size(json_object_get(said_before, "tool_calls")), 1);
    assert_string_equal(json_string_value(json_object_get(result, "content")), "5");
    assert_int_equal(json_array_size(json_object_get(second, "tools")), 1);
    json_decref(second);

    expect((turn[]){GOOD, {"stop", {{MOON_CONTENT, "It is 15."}}}, {0}}, true, true, false, 2);
    expect((turn[]){GOOD, {"length", {{MOON_CONTENT, "It is 5."}}}, {0}}, true, true, false, 2); /* cut off */
    expect((turn[]){GOOD, GOOD, {0}}, true, true, false, 2);                                     /* calls again */
    /* the wrong expression, no JSON, an undeclared key, no call, cut off; the answer has a verdict of its own */
    expect((turn[]){CALLS("{\\\"e\\\": \\\"2-3\\\"}"), ANSWER, {0}}, true, false, true, 2);
    expect((turn[]){CALLS("2+3"), ANSWER, {0}}, false, false, true, 2);
    expect((turn[]){CALLS("{\\\"x\\\": \\\"2+3\\\"}"), ANSWER, {0}}, false, false, true, 2);
    expect((turn[]){ANSWER, ANSWER, {0}}, false, false, true, 2);
    expect((turn[]){{"length", {{MOON_TOOL_CALL, CALL("{\\\"e\\\": \\\"2+3\\\"}")}}}, ANSWER, {0}}, false, false, true,
           2);
}

static bool answered(bool instant, const char *finish, moon_event first, const char *a, const char *b) {
    const turn turns[] = {{finish, {{first, a}, {MOON_CONTENT, b}}}, {0}};
    return ask("arithmetic", instant, turns, "{\"question\": \"2+3?\", \"answer\": \"#### 5\"}").right[0];
}

static void questions(void **s) {
    (void)s;
    assert_true(answered(false, "stop", MOON_REASONING, "2+3=5", "It is 5."));
    assert_false(answered(false, "stop", MOON_REASONING, "2+3=5", "It is 6."));
    assert_false(answered(false, "length", MOON_REASONING, "2+3=5", "It is 5."));
    assert_true(answered(true, "stop", MOON_CONTENT, "It ", "is 5."));
    assert_non_null(strstr(chats[0], "\"thinking\":false"));
    assert_false(answered(true, "stop", MOON_CONTENT, "<think>2+3=5</think>", "It is 5."));
    const turn open[] = {{"stop", {{MOON_REASONING, "2+3=5"}}}, {0}};
    json_t *none = json_loads("{\"question\": \"2+3?\", \"answer\": \"#### 5\"}", 0, NULL);
    nano_result r = {0};
    script = open;
    free(chats[0]);
    n_chats = 0;
    assert_int_equal(ask_question(NULL, none, false, NULL, &r, NULL), ST_OK); /* reasoning that was never closed */
    assert_false(r.right[0]);
    free(r.answer);
    json_decref(none);
}

static void a_needle_that_talks_on_is_stopped(void **s) {
    (void)s;
    char much[NEEDLE_BYTES + 100], *lines[] = {(char *)"One.", (char *)"Two."};
    memset(much, 'x', sizeof much - 1);
    much[sizeof much - 1] = 0;
    haystack h = {.lines = lines, .n = 2};
    json_t *item = json_loads("{\"start\": 1, \"sentences\": 3, \"plant\": [[1, \"A is 5.\"]], \"form\": \"after\", "
                              "\"question\": \"A?\", \"answer\": \"#### 5\", \"depth\": 0.3}",
                              0, NULL);
    const turn turns[] = {
        {"stop", {{MOON_CONTENT, "5 "}, {MOON_CONTENT, much}}}, {"stop", {{MOON_CONTENT, "It is 5."}}}, {0}};
    for (int i = 0; i < 2; i++) {
        nano_result r = {0};
        err e = {0};
        if (!i) script = turns, free(chats[0]), n_chats = 0;
        assert_int_equal(check_needle(&h, item, &e), ST_OK);
        assert_int_equal(ask_needle(&h, item, false, NULL, &r, &e), ST_OK);
        assert_int_equal(r.right[0], i);
        free(r.answer);
    }
    assert_non_null(strstr(chats[0], "\"Two. A is 5. One. Two.\\n\\nA?\""));
    json_decref(item);
    free(chats[0]);
    free(chats[1]);
    n_chats = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tools), cmocka_unit_test(questions),
                                       cmocka_unit_test(a_needle_that_talks_on_is_stopped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
