/* What a request says of its answer's shape, in the words of every protocol, becomes one source of a constraint. */
#include "unit.h"

#include "server/request/request_fields.h"
#include <stdlib.h>
#include <string.h>

static served_model served = {
    .dir = "models/nano", .name = "nano", .context = 4096, .parse_calls = true, .parse_reasoning = true};

typedef bool (*reader)(gen_request *r, const served_model *m, json_t *body, api_error *e);

#define ASK    "'messages':[{'role':'user','content':'hi'}]"
#define TOOL_F "{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}"
#define TOOL_G "{'type':'function','function':{'name':'g','strict':true}}"
#define TOOLS  "'tools':[" TOOL_F "," TOOL_G "]"
#define LOOSE  "'tools':[" TOOL_F "]"
#define FORMAT "'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':{'type':'array'}}}"

/* JSON with ' for ". */
static json_t *parse(const char *text) {
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    json_t *v = json_parse(copy, strlen(copy), "test", NULL);
    if (!v) fail_msg("%s", copy);
    free(copy);
    return v;
}

static gen_request must_read(reader read, const char *text) {
    gen_request r = {0};
    api_error e = {0};
    if (!read(&r, &served, parse(text), &e)) fail_msg("%s: %s", text, e.text.text);
    return r;
}

static void refused(reader read, const char *text, const char *param, const char *says) {
    gen_request r = {0};
    api_error e = {0};
    if (read(&r, &served, parse(text), &e)) fail_msg("%s is read", text);
    if (e.http != 400 || strcmp(e.param, param) || !strstr(e.text.text, says))
        fail_msg("%s: %d %s: %s", text, e.http, e.param, e.text.text);
    gen_request_free(&r);
}

/* ---- Content ---- */

/* value: JSON with ', or NULL. */
static void becomes(reader read, const char *text, content_kind kind, const char *value) {
    gen_request r = must_read(read, text);
    json_t *want = value ? parse(value) : NULL;
    if (r.must.content != kind || !r.must_field || (want ? !json_equal(r.must.value, want) : r.must.value != NULL))
        fail_msg("%s: kind %d of %s", text, r.must.content, r.must_field ? r.must_field : "nothing");
    assert_int_equal(r.must.calls, CALLS_NEVER);
    json_decref(want);
    gen_request_free(&r);
}

static void every_spelling(void **state) {
    static const struct {
        const char *field;
        content_kind kind;
        const char *value;
    } all[] = {{"'response_format':{'type':'json_object'}", CONTENT_OBJECT, NULL},
               {FORMAT, CONTENT_SCHEMA, "{'type':'array'}"},
               {"'response_format':{'type':'structural_tag','format':{}}", CONTENT_TAGS,
                "{'type':'structural_tag','format':{}}"},
               {"'regex':'a+'", CONTENT_REGEX, NULL},
               {"'ebnf':'root ::= x'", CONTENT_EBNF, NULL},
               {"'json_schema':{'type':'array'}", CONTENT_SCHEMA, "{'type':'array'}"},
               {"'json_schema':'{\\'type\\':\\'array\\'}'", CONTENT_SCHEMA, "{'type':'array'}"},
               {"'structural_tag':{'format':{}}", CONTENT_TAGS, "{'format':{}}"},
               {"'structural_tag':'{\\'format\\':{}}'", CONTENT_TAGS, "{'format':{}}"},
               {"'guided_json':'{}'", CONTENT_SCHEMA, "{}"},
               {"'guided_json':{}", CONTENT_SCHEMA, "{}"},
               {"'guided_choice':['a','b']", CONTENT_CHOICE, "['a','b']"},
               {"'guided_regex':'a'", CONTENT_REGEX, NULL},
               {"'guided_grammar':'x'", CONTENT_EBNF, NULL},
               {"'structured_outputs':{'json':{'a':1},'regex':null}", CONTENT_SCHEMA, "{'a':1}"},
               {"'structured_outputs':{'json':'{\\'a\\':1}'}", CONTENT_SCHEMA, "{'a':1}"},
               {"'structured_outputs':{'regex':'a'}", CONTENT_REGEX, NULL},
               {"'structured_outputs':{'choice':['a']}", CONTENT_CHOICE, "['a']"},
               {"'structured_outputs':{'grammar':'g'}", CONTENT_EBNF, NULL},
               {"'structured_outputs':{'json_object':true,'disable_any_whitespace':false}", CONTENT_OBJECT, NULL},
               {"'structured_outputs':{'structural_tag':'{}'}", CONTENT_TAGS, "{}"}};
    buf b = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (int where = 0; where < 3; where++) {
            buf_clear(&b);
            buf_fmt(&b,
                    where == 0   ? "{" ASK ",%s}"
                    : where == 1 ? "{'prompt':'a',%s}"
                                 : "{'text':'a','sampling_params':{%s}}",
                    all[i].field);
            if (all[i].kind == CONTENT_REGEX || all[i].kind == CONTENT_EBNF) {
                gen_request r = must_read(where == 0   ? request_chat
                                          : where == 1 ? request_completion
                                                       : request_generate,
                                          b.data);
                assert_int_equal(r.must.content, all[i].kind);
                assert_true(json_is_string(r.must.value));
                gen_request_free(&r);
                continue;
            }
            becomes(where == 0   ? request_chat
                    : where == 1 ? request_completion
                                 : request_generate,
                    b.data, all[i].kind, all[i].value);
        }
    buf_free(&b);
}

static void strictness(void **state) {
    static const char *const strict[] = {"", ",'strict':true", ",'strict':null", ",'strict':false"};
    buf b = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(strict); i++) {
        buf_clear(&b);
        buf_fmt(&b, "{" ASK ",'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':{}%s}}}",
                strict[i]);
        gen_request r = must_read(request_chat, b.data);
        assert_int_equal(r.must.strict, i < 3);
        gen_request_free(&r);
    }
    buf_free(&b);
}

static void content_refused(void **state) {
    static const struct {
        const char *field, *param, *says;
    } bad[] = {
        {"'response_format':5", "response_format", "expected an object"},
        {"'response_format':{}", "response_format", "type"},
        {"'response_format':{'type':'xml'}", "response_format", "\"xml\" is not known"},
        {"'response_format':{'type':'json_schema'}", "response_format", "json_schema: expected an object, got nothing"},
        {"'response_format':{'type':'json_schema','json_schema':[]}", "response_format", "got an array"},
        {"'response_format':{'type':'json_schema','json_schema':{'schema':{}}}", "response_format", "name: expected"},
        {"'response_format':{'type':'json_schema','json_schema':{'name':'','schema':{}}}", "response_format", "name"},
        {"'response_format':{'type':'json_schema','json_schema':{'name':5,'schema':{}}}", "response_format", "name"},
        {"'response_format':{'type':'json_schema','json_schema':{'name':'n'}}", "response_format", "schema: expected"},
        {"'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':true}}", "response_format",
         "schema: expected an object"},
        {"'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':{},'strict':'yes'}}",
         "response_format", "strict: expected true or false, got a string"},
        {"'regex':5", "regex", "expected a string"},
        {"'ebnf':{}", "ebnf", "expected a string"},
        {"'json_schema':'{'", "json_schema", ""},
        {"'json_schema':'[]'", "json_schema", "expected an object"},
        {"'json_schema':7", "json_schema", "expected an object"},
        {"'guided_choice':[]", "guided_choice", "an empty one"},
        {"'guided_choice':'a'", "guided_choice", "array of at least one string"},
        {"'guided_choice':['a',5]", "guided_choice", "[1]: expected a string"},
        {"'guided_whitespace_pattern':' '", "guided_whitespace_pattern", "not supported"},
        {"'structured_outputs':'x'", "structured_outputs", "expected an object"},
        {"'structured_outputs':{}", "structured_outputs", "expected one of"},
        {"'structured_outputs':{'json_object':1}", "structured_outputs.json_object", "expected true or false"},
        {"'structured_outputs':{'json_object':false}", "structured_outputs", "expected one of"},
        {"'structured_outputs':{'json':{},'whitespace_pattern':' '}", "structured_outputs", "whitespace_pattern"},
        {"'structured_outputs':{'json':{},'regex':'a'}", "structured_outputs.regex", "structured_outputs.json"},
        {"'regex':'a','ebnf':'b'", "ebnf", "ebnf beside regex"},
        {"'guided_json':{},'response_format':{'type':'json_object'}", "response_format",
         "response_format beside guided_json"}};
    buf b = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        buf_clear(&b);
        buf_fmt(&b, "{" ASK ",%s}", bad[i].field);
        refused(request_chat, b.data, bad[i].param, bad[i].says);
    }
    buf_clear(&b);
    buf_str(&b, "{" ASK ",'json_schema':'");
    for (int i = 0; i < 200; i++) buf_str(&b, "[");
    buf_str(&b, "'}");
    refused(request_chat, b.data, "json_schema", "nested deeper");
    buf_free(&b);
}

/* ---- Calls ---- */

static void calls_of(const char *fields, calls_kind calls, size_t tools, bool one, content_kind content) {
    buf b = {0};
    buf_fmt(&b, "{" ASK ",%s}", fields);
    gen_request r = must_read(request_chat, b.data);
    if (r.must.calls != calls || json_array_size(r.must.tools) != tools || r.must.one_call != one ||
        r.must.content != content)
        fail_msg("%s: calls %d of %zu, one %d, content %d", fields, r.must.calls, json_array_size(r.must.tools),
                 r.must.one_call, r.must.content);
    gen_request_free(&r);
    buf_free(&b);
}

static void tool_choices(void **state) {
    (void)state;
    calls_of("'tools':[]", CALLS_NEVER, 0, false, CONTENT_FREE);
    calls_of("'tool_choice':'auto'", CALLS_NEVER, 0, false, CONTENT_FREE);
    calls_of("'tool_choice':'none'", CALLS_NEVER, 0, false, CONTENT_FREE);
    calls_of(LOOSE, CALLS_NEVER, 0, false, CONTENT_FREE);
    calls_of(LOOSE ",'parallel_tool_calls':false", CALLS_NEVER, 0, false, CONTENT_FREE);
    calls_of(TOOLS, CALLS_MAYBE, 2, false, CONTENT_FREE);
    calls_of(TOOLS ",'tool_choice':'auto','parallel_tool_calls':false", CALLS_MAYBE, 2, true, CONTENT_FREE);
    calls_of(TOOLS ",'tool_choice':'none'", CALLS_NEVER, 0, false, CONTENT_FREE);
    calls_of(LOOSE ",'tool_choice':'required'", CALLS_MUST, 1, false, CONTENT_FREE);
    calls_of(TOOLS ",'tool_choice':{'type':'function','function':{'name':'f'}}", CALLS_MUST, 1, true, CONTENT_FREE);
    calls_of(TOOLS ",'tool_choice':{'type':'function','name':'g'}", CALLS_MUST, 1, true, CONTENT_FREE);
    calls_of("'tools':[" TOOL_F ",{'type':'function','function':{'name':'h'}}],'tool_choice':{'type':'allowed_tools',"
             "'allowed_tools':{'mode':'auto','tools':[{'type':'function','function':{'name':'h'}}]}}",
             CALLS_MAYBE, 1, false, CONTENT_FREE);
    calls_of(TOOLS ",'tool_choice':{'type':'allowed_tools','mode':'required','tools':[{'type':'function','name':'g'},"
                   "{'type':'function','name':'f'},{'type':'function','name':'g'}]}",
             CALLS_MUST, 2, false, CONTENT_FREE);
    calls_of(LOOSE "," FORMAT, CALLS_MAYBE, 1, false, CONTENT_SCHEMA);
    calls_of(LOOSE "," FORMAT ",'tool_choice':'none'", CALLS_NEVER, 0, false, CONTENT_SCHEMA);
    calls_of(LOOSE "," FORMAT ",'tool_choice':'required'", CALLS_MUST, 1, false, CONTENT_FREE);
}

static void tool_choices_refused(void **state) {
    (void)state;
    refused(request_chat, "{" ASK ",'tool_choice':'required'}", "tool_choice", "needs tools");
    refused(request_chat, "{" ASK ",'tools':[],'tool_choice':'required'}", "tool_choice", "needs tools");
    refused(request_chat, "{" ASK "," TOOLS ",'tool_choice':'always'}", "tool_choice", "expected");
    refused(request_chat, "{" ASK "," TOOLS ",'tool_choice':{'type':'function','function':{'name':'h'}}}",
            "tool_choice", "no tool \"h\"");
    refused(request_chat, "{" ASK ",'tool_choice':{'type':'function','function':{'name':'f'}}}", "tool_choice",
            "no tool");
    refused(request_chat, "{" ASK "," TOOLS ",'tool_choice':{'type':'allowed_tools'}}", "tool_choice", "mode");
    refused(request_chat, "{" ASK "," TOOLS ",'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[]}}",
            "tool_choice", "1 to");
    refused(request_chat,
            "{" ASK "," TOOLS ",'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'name':'h'}]}}",
            "tool_choice", "no tool \"h\"");
    refused(request_chat, "{" ASK ",'tools':[{'type':'function','function':{'name':'f','strict':1}}]}", "tools",
            "strict: expected true or false");
    served.parse_calls = false;
    refused(request_chat, "{" ASK "," LOOSE ",'tool_choice':'required'}", "tool_choice", "--tool-call-parser");
    refused(request_chat, "{" ASK "," TOOLS "}", "tools", "--tool-call-parser");
    calls_of(LOOSE "," FORMAT, CALLS_NEVER, 0, false, CONTENT_SCHEMA);
    served.parse_calls = true;
}

/* ---- Where the answer begins ---- */

static answer_begin begin_of(const char *fields, bool in_generate) {
    buf b = {0};
    buf_fmt(&b, in_generate ? "{'text':'a',%s}" : "{" ASK ",%s}", fields);
    gen_request r = must_read(in_generate ? request_generate : request_chat, b.data);
    answer_begin begin = r.require_reasoning ? BEGIN_IN_THINK : r.begin;
    gen_request_free(&r);
    buf_free(&b);
    return begin;
}

static void where_thinking_begins(void **state) {
    const chat_template kept = served.template;
    (void)state;
    served.template = CHAT_K2_5;
    assert_int_equal(begin_of("'n':1", false), BEGIN_IN_THINK);
    assert_int_equal(begin_of("'separate_reasoning':false", false), BEGIN_IN_THINK);
    assert_int_equal(begin_of("'thinking':{'type':'disabled'}", false), BEGIN_CONTENT);
    served.template = CHAT_K2_THINKING;
    assert_int_equal(begin_of("'n':1", false), BEGIN_MAY_THINK);
    assert_int_equal(begin_of("'separate_reasoning':false", false), BEGIN_MAY_THINK);
    assert_int_equal(begin_of("'reasoning_effort':'none'", false), BEGIN_CONTENT);
    served.template = CHAT_K2_INSTRUCT_0905;
    assert_int_equal(begin_of("'n':1", false), BEGIN_CONTENT);
    assert_int_equal(begin_of("'n':1", true), BEGIN_CONTENT);
    assert_int_equal(begin_of("'require_reasoning':true", true), BEGIN_IN_THINK);
    served.template = kept;
}

static void what_goes_on(void **state) {
    (void)state;
    gen_request r = must_read(request_chat, "{'messages':[{'role':'user','content':'q'},{'role':'assistant','content':["
                                            "{'type':'text','text':'{'},{'type':'text','text':'\\n'}]}],"
                                            "'continue_final_message':true}");
    assert_int_equal(r.begin, BEGIN_CONTENT);
    assert_string_equal(r.continued.data, "{\n");
    gen_request_free(&r);
}

static int open_model(void **state) {
    err e = {0};
    (void)state;
    status st = served_model_open(&served, NULL, "kimi_k25", 4096, NULL, 0, &e);
    if (st != ST_OK) print_message("%s\n", e.text);
    return st != ST_OK;
}

static int close_model(void **state) {
    (void)state;
    served_model_close(&served);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling),       cmocka_unit_test(strictness),
        cmocka_unit_test(content_refused),      cmocka_unit_test(tool_choices),
        cmocka_unit_test(tool_choices_refused), cmocka_unit_test(where_thinking_begins),
        cmocka_unit_test(what_goes_on),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
