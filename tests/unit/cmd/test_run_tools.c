/* `moonlet run --tools` with a scripted model: the call is carried out by a program, its result goes back, the answer
 * comes. moon_run() is replaced, so that no model has to want a tool. */
#include "moonlet.h"
#define moon_run scripted_run
moon_status scripted_run(moon_engine *m, const moon_request *q, moon_callback callback, void *user, moon_stats *stats,
                         moon_error *error);
#include "cmd/lib/model_opts.c"
#include "cmd/run/run.c"
#include "cmd/lib/tool_calls.c"
#include "unit.h"
#include <sys/stat.h>

/* cmd/main.c is not linked; cmd_run() is not called here. */
int cmd_options(const char *name, const char *usage, const opt_spec *specs, size_t n, int argc, char **argv,
                opt_list *words) {
    (void)name, (void)usage, (void)specs, (void)n, (void)argc, (void)argv, (void)words;
    return EXIT_USAGE;
}

static char *chats[TOOL_ROUNDS + 2];
static int n_chats, calls_wanted;
static const char *called; /* the tool that the model wants */
#define CALL  "{\"id\": \"functions.calc:0\", \"name\": \"calc\", \"arguments\": \"{}\"}"
#define TOOLS "[{\"type\": \"function\", \"function\": {\"name\": \"calc\"}}]"

static void want_tool(moon_callback callback, void *user) {
    char call[200];
    int n = snprintf(call, sizeof call,
                     "{\"id\": \"functions.%s:0\", \"name\": \"%s\", \"arguments\": \"{\\\"e\\\": \\\"2+3\\\"}\"}",
                     called, called);
    callback(user, MOON_TOOL_CALL, call, (size_t)n);
}

/* Calls the tool `calls_wanted` times, then answers. */
moon_status moon_run(moon_engine *m, const moon_request *q, moon_callback callback, void *user, moon_stats *stats,
                     moon_error *error) {
    (void)m;
    (void)error;
    bool call = n_chats < calls_wanted;
    chats[n_chats++] = strdup(q->chat);
    callback(user, MOON_REASONING, "hm", 2);
    if (call)
        want_tool(callback, user);
    else
        callback(user, MOON_CONTENT, "It is 5.", 8);
    *stats = (moon_stats){.finish = call ? "tool_calls" : "stop"};
    return MOON_OK;
}

static char folder[] = "/tmp/moonlet-tools-XXXXXX", program[64], file[64];

static void write_file(const char *path, const char *text, mode_t mode) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static int setup(void **s) {
    (void)s;
    if (!mkdtemp(folder)) return 1;
    snprintf(program, sizeof program, "%s/tool", folder);
    snprintf(file, sizeof file, "%s/tools.json", folder);
    return 0;
}

static int teardown(void **s) {
    (void)s;
    remove(program);
    remove(file);
    return remove(folder);
}

static chat_run begin(int calls) {
    chat_run r = {.quiet = true, .messages = json_array(), .calls = json_array(), .tools = json_loads(TOOLS, 0, NULL)};
    called = "calc";
    for (int i = 0; i < n_chats; i++) free(chats[i]);
    n_chats = 0;
    calls_wanted = calls;
    assert_true(add_message(&r, "user", "2+3?", 4));
    return r;
}

static void end(chat_run *r) {
    json_decref(r->messages);
    json_decref(r->calls);
    json_decref(r->tools);
    buf_free(&r->answer);
    buf_free(&r->reasoning);
}

static void a_call_is_carried_out(void **s) {
    (void)s;
    chat_run r = begin(1);
    moon_error error;
    write_file(program, "#!/bin/sh\necho \"$1 got $(cat)\"\necho\n", 0700);
    r.tool_command = program;
    assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
    assert_int_equal(n_chats, 2);
    assert_string_equal(r.answer.data, "It is 5.");
    json_t *second = json_loads(chats[1], 0, NULL), *messages = json_object_get(second, "messages");
    const json_t *said = json_array_get(messages, 1), *result = json_array_get(messages, 2);
    assert_int_equal(json_array_size(messages), 3);
    assert_string_equal(json_string_value(json_object_get(said, "reasoning_content")), "hm");
    const json_t *call = json_array_get(json_object_get(said, "tool_calls"), 0);
    assert_string_equal(json_string_value(json_object_get(call, "type")), "function");
    assert_string_equal(tool_call_name(call), "calc");
    assert_string_equal(json_string_value(json_object_get(result, "tool_call_id")), "functions.calc:0");
    assert_string_equal(json_string_value(json_object_get(result, "content")), "calc got {\"e\": \"2+3\"}");
    assert_non_null(json_object_get(second, "tools"));
    json_decref(second);
    end(&r);
}

static void without_a_program_the_call_is_the_answer(void **s) {
    (void)s;
    chat_run r = begin(1);
    moon_error error;
    assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
    assert_int_equal(n_chats, 1);
    assert_int_equal(json_array_size(r.calls), 1);
    assert_int_equal(json_array_size(r.messages), 1);
    end(&r);
}

/* At a terminal; an empty line means that there is none. */
static void a_person_is_asked_for_the_result(void **s) {
    (void)s;
    for (int empty = 0; empty < 2; empty++) {
        chat_run r = begin(1);
        moon_error error;
        write_file(file, empty ? "\n" : "5\n", 0600);
        assert_non_null(freopen(file, "r", stdin));
        r.typed = true;
        assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
        assert_int_equal(n_chats, empty ? 1 : 2);
        assert_int_equal(json_array_size(r.messages), empty ? 1 : 3);
        if (!empty)
            assert_string_equal(json_string_value(json_object_get(json_array_get(r.messages, 2), "content")), "5");
        end(&r);
    }
}

/* Names that nobody declared reach no program, and the model hears of it. */
static void an_undeclared_tool_is_not_run(void **s) {
    static const char *const names[] = {"--help", "../../bin/sh", "cal", "calc2", ""};
    (void)s;
    for (size_t i = 0; i < 2 * COUNT_OF(names); i++) {
        chat_run r = begin(1);
        moon_error error;
        char said[100];
        called = names[i / 2];
        write_file(program, "#!/bin/sh\necho ran \"$1\"\n", 0700);
        r.tool_command = i % 2 ? program : NULL;
        r.typed = !r.tool_command; /* a person is not asked either */
        assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
        assert_int_equal(n_chats, 2);
        snprintf(said, sizeof said, "error: there is no tool \"%s\"", called);
        assert_string_equal(json_string_value(json_object_get(json_array_get(r.messages, 2), "content")), said);
        end(&r);
    }
}

/* The next question brings along what was thought: K2.6 and K2.7-Code may read it. */
static void reasoning_stays_in_the_conversation(void **s) {
    (void)s;
    chat_run r = begin(0);
    moon_error error;
    assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
    cmd_run_add_answer(&r);
    assert_true(add_message(&r, "user", "and 3+3?", 8));
    assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
    json_t *second = json_loads(chats[1], 0, NULL);
    const json_t *said = json_array_get(json_object_get(second, "messages"), 1);
    assert_string_equal(json_string_value(json_object_get(said, "content")), "It is 5.");
    assert_string_equal(json_string_value(json_object_get(said, "reasoning_content")), "hm");
    json_decref(second);
    end(&r);
}

static void endless_calls_end(void **s) {
    (void)s;
    chat_run r = begin(1000);
    moon_error error;
    write_file(program, "#!/bin/sh\necho 5\n", 0700);
    r.tool_command = program;
    assert_int_equal(answer_with_tools(&r, &error), MOON_OK);
    assert_int_equal(n_chats, TOOL_ROUNDS + 1);
    end(&r);
}

static void a_program_that_is_not_there(void **s) {
    (void)s;
    chat_run r = begin(1);
    moon_error error;
    r.tool_command = "/no/such/program";
    assert_int_equal(answer_with_tools(&r, &error), MOON_INPUT);
    assert_int_equal(json_array_size(r.messages), 1); /* the conversation is as it was */
    end(&r);
}

static void results(void **s) {
    (void)s;
    static const struct {
        const char *script, *result;
    } cases[] = {{"echo 5", "5"},
                 {"printf 'a\\nb \\n\\n'", "a\nb"},
                 {"true", ""},
                 {"echo no; exit 3", "error: no"},
                 {"exit 3", "error: exit status 3"},
                 {"kill -9 $$", "error: signal 9"},
                 {"echo x 1>&2", ""}};
    json_t *call = tool_call_of_event(CALL, strlen(CALL));
    buf result = {0};
    err e = {0};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[128];
        snprintf(text, sizeof text, "#!/bin/sh\n%s\n", cases[i].script);
        write_file(program, text, 0700);
        assert_int_equal(tool_run(program, call, &result, &e), ST_OK);
        assert_string_equal(result.data ? result.data : "", cases[i].result);
    }
    write_file(program, "#!/bin/sh\nwhile echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; do :; done\n",
               0700);
    assert_int_equal(tool_run(program, call, &result, &e), ST_LIMIT);
    json_t *messages = json_array();
    buf bad = {0};
    buf_str(&bad, "\xff");
    assert_int_equal(tool_add_result(messages, call, &bad, &e), ST_INPUT);
    buf_free(&bad);
    buf_free(&result);
    json_decref(call);
    json_decref(messages);
}

static void files(void **s) {
    (void)s;
    static const char *const good[] = {"[{\"function\": {\"name\": \"a\"}}]",
                                       "{\"tools\": [{\"function\": {\"name\": \"a\"}}]}"},
                             *const bad[] = {"", "{", "[]", "{}", "[{}]", "[{\"name\": \"a\"}]", "5"};
    err e = {0};
    json_t *tools;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        write_file(file, good[i], 0600);
        assert_int_equal(tools_read(&tools, file, &e), ST_OK);
        assert_int_equal(json_array_size(tools), 1);
        json_decref(tools);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        write_file(file, bad[i], 0600);
        assert_int_not_equal(tools_read(&tools, file, &e), ST_OK);
        assert_non_null(strstr(e.text, "tools.json"));
        assert_null(tools);
    }
    assert_int_equal(tools_read(&tools, "/no/such/file", &e), ST_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_is_carried_out),
                                       cmocka_unit_test(without_a_program_the_call_is_the_answer),
                                       cmocka_unit_test(a_person_is_asked_for_the_result),
                                       cmocka_unit_test(an_undeclared_tool_is_not_run),
                                       cmocka_unit_test(reasoning_stays_in_the_conversation),
                                       cmocka_unit_test(endless_calls_end),
                                       cmocka_unit_test(a_program_that_is_not_there),
                                       cmocka_unit_test(results),
                                       cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
