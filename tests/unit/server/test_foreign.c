/* Anthropic's messages and OpenAI's responses: requests become chat bodies, scripted tokens become their answers,
 * whole and as events however the tokens come in batches. */
#include "unit.h"

#include "server/reply/reply.h"
#include <stdlib.h>
#include <string.h>

static served_model served = {
    .dir = "models/nano", .name = "nano", .context = 4096, .parse_calls = true, .parse_reasoning = true};

typedef bool (*reader)(gen_request *r, const served_model *m, json_t *body, api_error *e);

#define SECTION(calls)      "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"
#define CALL(id, arguments) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"
#define A_TOOLS             "'tools':[{'name':'f','input_schema':{}},{'name':'g','input_schema':{'type':'object'}}]"
#define R_TOOLS             "'tools':[{'type':'function','name':'f'},{'type':'function','name':'g','parameters':null}]"
#define A_ASK               "'max_tokens':99,'messages':[{'role':'user','content':'hi'}]"

/* JSON with ' for ". */
static json_t *parse(const char *text) {
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    json_t *v = json_parse(copy, strlen(copy), "test", NULL);
    if (!v) print_message("%s\n", copy);
    assert_non_null(v);
    free(copy);
    return v;
}

static void must_read(reader read, gen_request *r, const char *text) {
    api_error e = {0};
    *r = (gen_request){0};
    bool ok = read(r, &served, parse(text), &e);
    if (!ok) print_message("%s\n", e.text.text);
    assert_true(ok);
}

/* ---- Requests ---- */

/* Every field of `want` is in the chat body like that. */
static void becomes(reader read, const char *text, const char *want) {
    gen_request r;
    const char *key;
    json_t *v, *w = parse(want);
    must_read(read, &r, text);
    json_object_foreach(w, key, v) {
        json_t *got = json_object_get(r.body, key);
        if (!json_equal(got, v)) {
            char *s = got ? json_to_text(got, &json_spaced) : NULL;
            print_message("%s: %s\n", key, s ? s : "missing");
            free(s);
        }
        assert_true(json_equal(got, v));
    }
    json_decref(w);
    gen_request_free(&r);
}

static void refused(reader read, const char *text, const char *param) {
    gen_request r = {0};
    api_error e = {0};
    assert_false(read(&r, &served, parse(text), &e));
    assert_int_equal(e.http, 400);
    assert_string_equal(e.param, param);
    assert_true(e.text.text[0]);
    gen_request_free(&r);
}

static void messages_become_chat(void **state) {
    (void)state;
    becomes(request_anthropic,
            "{'max_tokens':9,'system':[{'type':'text','text':'x-anthropic-billing-header: 1'},"
            "{'type':'text','text':'a'},{'type':'text','text':'b'}],'messages':[{'role':'user','content':'q'}],"
            "'stop_sequences':['z'],'temperature':0.5,'n':7,'logprobs':3,'thinking':{'type':'adaptive'}}",
            "{'max_tokens':9,'stop':['z'],'temperature':0.5,'thinking':{'type':'enabled'},'include_reasoning':true,"
            "'messages':[{'role':'system','content':[{'type':'text','text':'a'},{'type':'text','text':'\\n'},"
            "{'type':'text','text':'b'}]},{'role':'user','content':[{'type':'text','text':'q'}]}]}");
    becomes(request_anthropic,
            "{'max_tokens':9," A_TOOLS ",'tool_choice':{'type':'auto','disable_parallel_tool_use':true},'messages':["
            "{'role':'assistant','content':[{'type':'thinking','thinking':'t'},{'type':'redacted_thinking','data':''},"
            "{'type':'tool_use','id':'x','name':'f','input':{'a':1}},{'type':'tool_use','id':'y','name':'g','input':"
            "{'_raw':'{'}}]},{'role':'user','content':[{'type':'text','text':'before'},{'type':'tool_result',"
            "'tool_use_id':'y','is_error':true,'content':'bad'},{'type':'tool_result','tool_use_id':'x','content':"
            "[{'type':'text','text':'good'}]},{'type':'text','text':'after'}]}]}",
            "{'tool_choice':'auto','parallel_tool_calls':false,"
            "'tools':[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}},"
            "{'type':'function','function':{'name':'g','parameters':{'type':'object'}}}],'messages':["
            "{'role':'assistant','content':[],'reasoning_content':'t','tool_calls':[{'id':'functions.f:0','type':"
            "'function','function':{'name':'f','arguments':{'a':1}}},{'id':'functions.g:1','type':'function',"
            "'function':{'name':'g','arguments':'{'}}]},{'role':'user','content':[{'type':'text','text':'before'}]},"
            "{'role':'tool','tool_call_id':'functions.g:1','content':[{'type':'text','text':'Error: '},"
            "{'type':'text','text':'bad'}]},{'role':'tool','tool_call_id':'functions.f:0','content':[{'type':'text',"
            "'text':'good'}]},{'role':'user','content':[{'type':'text','text':'after'}]}]}");
    becomes(request_anthropic,
            "{'max_tokens':9,'messages':[{'role':'user','content':'q'},{'role':'assistant','content':'so'}]}",
            "{'continue_final_message':true}");
    becomes(request_anthropic, "{" A_ASK "," A_TOOLS ",'tool_choice':{'type':'any'}}", "{'tool_choice':'required'}");
    becomes(request_anthropic,
            "{" A_ASK "," A_TOOLS ",'tool_choice':{'type':'tool','name':'g','disable_parallel_tool_use':true}}",
            "{'tool_choice':{'type':'function','function':{'name':'g'}},'parallel_tool_calls':false}");
    becomes(request_anthropic, "{" A_ASK ",'tools':[{'name':'f','input_schema':{'type':'object'},'strict':true}]}",
            "{'tools':[{'type':'function','function':{'name':'f','strict':true,'parameters':{'type':'object'}}}]}");
    for (int beta = 0; beta < 2; beta++)
        becomes(request_anthropic,
                beta ? "{" A_ASK ",'output_format':{'type':'json_schema','schema':{'type':'array'}}}"
                     : "{" A_ASK ",'output_config':{'format':{'type':'json_schema','schema':{'type':'array'}}}}",
                "{'response_format':{'type':'json_schema','json_schema':{'name':'answer','schema':{'type':'array'}}}}");
    becomes(request_count_tokens, "{'messages':[{'role':'user','content':'q'}],'tool_choice':{'type':'none'}}",
            "{'tool_choice':'none'}");
}

static void messages_refused(void **state) {
    (void)state;
    refused(request_anthropic, "{'messages':[{'role':'user','content':'q'}]}", "max_tokens");
    refused(request_anthropic, "{'max_tokens':1}", "messages");
    refused(request_anthropic, "{" A_ASK ",'system':[{'type':'image'}]}", "system[0]");
    refused(request_anthropic, "{" A_ASK ",'tool_choice':{'type':'any'}}", "tool_choice"); /* no tools */
    refused(request_anthropic, "{" A_ASK "," A_TOOLS ",'tool_choice':{'type':'tool'}}", "tool_choice");
    refused(request_anthropic, "{" A_ASK "," A_TOOLS ",'tool_choice':{'type':'tool','name':'h'}}", "tool_choice");
    refused(request_anthropic, "{" A_ASK ",'output_config':{'format':{'type':'json_schema'}}}", "output_config.format");
    refused(request_anthropic, "{" A_ASK ",'output_config':{'format':5}}", "output_config.format");
    refused(request_anthropic, "{" A_ASK ",'output_format':{'type':'text'}}", "output_format");
    refused(request_anthropic,
            "{" A_ASK ",'response_format':{'type':'json_object'},'output_format':{'type':'json_schema','schema':{}}}",
            "output_format");
    refused(request_anthropic, "{" A_ASK ",'stop_sequences':[5]}", "stop_sequences");
    refused(request_anthropic, "{" A_ASK ",'output_config':{'format':{}}}", "output_config.format");
    refused(request_anthropic,
            "{'max_tokens':1,'messages':[{'role':'user','content':[{'type':'text','text':'a'},"
            "{'type':'image'}]}]}",
            "messages[0].content[1]");
    refused(request_count_tokens, "{'messages':[{'role':'tool','content':'q'}]}", "messages[0]");
}

/* Numbers beyond 64 bits or a double in places that have a type and a range: 400, which names both. */
static void big_numbers_in_typed_fields(void **state) {
    static const struct {
        const char *field, *value, *param, *says;
    } bad[] = {
        {"max_tokens", "12345678901234567890", "max_tokens", "12345678901234567890 is outside 1..2147483647"},
        {"max_tokens", "1e400", "max_tokens", "1e400 is outside 1..2147483647"},
        {"seed", "12345678901234567890", "seed", "is outside -9223372036854775808..9223372036854775807"},
        {"temperature", "1e400", "temperature", "inf is outside 0..100"},
        {"temperature", "-12345678901234567890", "temperature", "is outside 0..100"},
        {"n", "12345678901234567890", "n", "is outside 1.."},
        {"stream", "12345678901234567890", "stream", "expected true or false, got an integer"},
        {"stop", "1e400", "stop", "expected a string or an array of strings, got a number"},
        {"stop", "[1e400]", "stop", "got a number"},
        {"stop_token_ids", "[12345678901234567890]", "stop_token_ids", "token id 12345678901234567890 is outside"},
        {"stop_token_ids", "[1e400]", "stop_token_ids", "expected a token id, got a number"},
        {"logit_bias", "12345678901234567890", "logit_bias", "expected an object, got an integer"},
        {"logit_bias", "{\"5\":1e400}", "logit_bias", "is not a number in -100..100"},
        {"stream_options", "1e400", "stream_options", "expected an object, got a number"},
        {"chat_template_kwargs", "12345678901234567890", "chat_template_kwargs", "got an integer"},
        {"chat_template_kwargs", "{\"thinking\":12345678901234567890}", "thinking", "true or false"},
        {"tool_choice", "12345678901234567890", "tool_choice", "expected \"auto\""},
        {"tools", "[12345678901234567890]", "tools", "tools[0]: expected"},
        {"tools", "12345678901234567890", "tools", "expected an array, got an integer"},
        {"tools", "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":1e400}}]", "tools",
         "parameters: expected an object, got a number"},
        {"messages", "[{\"role\":\"user\",\"content\":12345678901234567890}]", "messages", "got an integer"},
        {"messages", "[1e400]", "messages", "messages[0]: expected an object, got a number"},
        {"response_format", "1e400", "response_format", "expected an object, got a number"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        gen_request r = {0};
        api_error e = {0};
        json_t *body = parse("{'messages':[{'role':'user','content':'q'}]}");
        json_object_set_new(body, bad[i].field, parse(bad[i].value));
        assert_false(request_chat(&r, &served, body, &e));
        if (e.http != 400 || strcmp(e.param, bad[i].param) || !strstr(e.text.text, bad[i].says))
            fail_msg("%s %s: %d %s: %s", bad[i].field, bad[i].value, e.http, e.param, e.text.text);
        gen_request_free(&r);
    }
    refused(request_anthropic, "{" A_ASK ",'system':1e400}", "system");
    refused(request_anthropic, "{'max_tokens':1e400,'messages':[{'role':'user','content':'hi'}]}", "max_tokens");
    refused(request_responses, "{'input':12345678901234567890}", "input");
    refused(request_completion, "{'prompt':[12345678901234567890]}", "prompt");
    refused(request_completion, "{'prompt':[[12345678901234567890]]}", "prompt");
}

/* In a tool's input they keep their digits: to the model as Python prints them, in a text exactly as it was. */
static void big_numbers_reach_the_model(void **state) {
    static const char call[] =
        "{'type':'tool_use','id':'x','name':'f','input':{'id':12345678901234567890,'x':[1e400,1e2,-10000000000000000000000]}}";
    static const char want[] = "{\"id\": 12345678901234567890, \"x\": [Infinity, 100.0, -10000000000000000000000]}";
    gen_request r;
    buf text = {0}, out = {0};
    (void)state;
    buf_fmt(
        &text,
        "{'max_tokens':9,'messages':[{'role':'assistant','content':[%s]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'x','content':'r'}]}]}",
        call);
    must_read(request_anthropic, &r, text.data);
    for (size_t i = 0; i < r.prompts[0].len; i++) token_text(&served, r.prompts[0].data[i], &out);
    if (!strstr(out.data, want)) fail_msg("%s", out.data);
    gen_request_free(&r);
    buf_free(&text);
    buf_free(&out);
}

static void responses_become_chat(void **state) {
    (void)state;
    becomes(request_responses, "{'input':'q','instructions':'i','max_output_tokens':9,'store':true}",
            "{'max_tokens':9,'messages':[{'role':'system','content':[{'type':'text','text':'i'}]},"
            "{'role':'user','content':[{'type':'text','text':'q'}]}]}");
    becomes(
        request_responses,
        "{" R_TOOLS ",'reasoning':{'effort':'none'},'input':[{'role':'developer','content':'d'},"
        "{'type':'reasoning','summary':[],'content':[{'type':'reasoning_text','text':'r'}]},"
        "{'type':'function_call','call_id':'c','name':'g','arguments':'{}'},{'type':'function_call_output',"
        "'call_id':'c','output':'o'},{'role':'assistant','content':[{'type':'output_text','text':'a'},"
        "{'type':'refusal','refusal':'b'}]},{'role':'user','content':'u'},{'role':'user','content':'v'}]}",
        "{'reasoning':{'effort':'none'},'tools':[{'type':'function','function':{'name':'f','parameters':{'type':"
        "'object','properties':{}}}},{'type':'function','function':{'name':'g','parameters':{'type':'object',"
        "'properties':{}}}}],'messages':[{'role':'system','content':[{'type':'text','text':'d'}]},"
        "{'role':'assistant','content':[],'reasoning_content':'r','tool_calls':[{'id':'functions.g:0','type':"
        "'function','function':{'name':'g','arguments':'{}'}}]},{'role':'tool','tool_call_id':'functions.g:0',"
        "'content':'o'},{'role':'assistant','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]},"
        "{'role':'user','content':[{'type':'text','text':'u'}]},{'role':'user','content':[{'type':'text','text':'v'}]}]}");
    refused(request_responses, "{}", "input");
    refused(request_responses, "{'input':[{'type':'item_reference','id':'x'}]}", "input[0]");
    refused(request_responses, "{'input':'x','previous_response_id':'r'}", "previous_response_id");
    refused(request_responses, "{'input':'x','background':true}", "background");
    refused(request_responses, "{'input':'x','text':{'format':{'type':'json'}}}", "text.format");
    refused(request_responses, "{'input':'x','text':{'format':{'type':'json_schema','schema':{}}}}", "text.format");
    refused(request_responses, "{'input':'x','text':{'format':[]}}", "text.format");
    refused(request_responses, "{'input':'x','tool_choice':'required'}", "tool_choice");
    becomes(request_responses,
            "{'input':'x','text':{'format':{'type':'json_schema','name':'n','schema':{'a':1},'strict':false,'z':1}}}",
            "{'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':{'a':1},'strict':false}}}");
    becomes(request_responses, "{'input':'x','text':{'format':{'type':'json_object'}}}",
            "{'response_format':{'type':'json_object'}}");
    refused(request_responses, "{'input':'x','tools':[{'type':'web_search'}]}", "tools[0]");
}

/* ---- Answers ---- */

static ids_buf encode(const char *text) {
    ids_buf ids = {0};
    assert_int_equal(tokenizer_encode(served.tok, text, strlen(text), true, &ids, NULL), ST_OK);
    return ids;
}

static void one_token(reply *p, i32 id, bool stop) {
    const job_event ev = {.kind = SCHED_TOKEN, .token = id, .is_stop = stop};
    answer_event(&p->all[0], &ev, NULL);
}

/* What the model says, then its stop id; the events of a stream are taken after the tokens whose bit is set. */
static void play(reply *p, const ids_buf *ids, u64 cuts, bool length, buf *out) {
    reply_chunks(p, 0, out); /* the engine has begun */
    for (size_t i = 0; i < ids->len; i++) {
        one_token(p, ids->data[i], false);
        if (cuts >> i % 64 & 1) reply_chunks(p, 0, out);
    }
    job_end end = {.ended = true, .finish = length ? SCHED_LENGTH : SCHED_STOP, .stop_id = length ? -1 : 0};
    if (!length) one_token(p, 0, true);
    answer_end(&p->all[0], &end);
    reply_chunks(p, 0, out);
    reply_stream_end(p, out);
}

static json_t *whole(const gen_request *r, const ids_buf *ids, bool length) {
    reply p;
    buf out = {0};
    assert_int_equal(reply_open(&p, r, &served, "resp_0", NULL), ST_OK);
    for (size_t i = 0; i < ids->len; i++) one_token(&p, ids->data[i], false);
    const job_end end = {.finish = length ? SCHED_LENGTH : SCHED_STOP, .stop_id = -1};
    answer_end(&p.all[0], &end);
    reply_whole(&p, &out);
    json_t *v = json_parse(out.data, out.len, "reply", NULL);
    assert_non_null(v);
    reply_close(&p);
    buf_free(&out);
    return v;
}

/* The events as an array; `event:` and "type" agree. */
static json_t *events(const buf *stream) {
    json_t *list = json_array();
    for (const char *p = stream->data; *p;) {
        const char *data = strstr(p, "\ndata: "), *end = strstr(p, "\n\n");
        assert_true(data && end && data < end && !strncmp(p, "event: ", 7));
        json_t *v = json_parse(data + 7, (size_t)(end - data) - 7, "event", NULL);
        const char *type = json_string_value(json_object_get(v, "type"));
        assert_non_null(type);
        assert_true(strlen(type) == (size_t)(data - p) - 7 && !strncmp(type, p + 7, strlen(type)));
        json_array_append_new(list, v);
        p = end + 2;
    }
    return list;
}

static json_t *streamed(const gen_request *r, const ids_buf *ids, u64 cuts, bool length) {
    reply p;
    buf out = {0};
    assert_int_equal(reply_open(&p, r, &served, "resp_0", NULL), ST_OK);
    play(&p, ids, cuts, length, &out);
    json_t *list = events(&out);
    reply_close(&p);
    buf_free(&out);
    return list;
}

static const char *str(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void append(json_t *o, const char *key, const char *more) {
    json_object_set_new(o, key, json_sprintf("%s%s", str(o, key), more));
}

/* Anthropic's events added up to the content of a message: *partial gets the text of tool inputs. */
static json_t *add_up_messages(const json_t *list, buf *partial) {
    json_t *content = json_array(), *ev, *block = NULL;
    size_t i;
    json_array_foreach(list, i, ev) {
        const char *type = str(ev, "type");
        const json_t *d = json_object_get(ev, "delta");
        if (!strcmp(type, "content_block_start")) {
            assert_null(block);
            block = json_object_get(ev, "content_block");
            assert_int_equal(json_integer_value(json_object_get(ev, "index")), json_array_size(content));
        } else if (!strcmp(type, "content_block_stop")) {
            assert_non_null(block);
            json_array_append(content, block);
            block = NULL;
        } else if (!strcmp(type, "content_block_delta")) {
            const char *kind = str(d, "type");
            assert_non_null(block);
            if (!strcmp(kind, "input_json_delta")) buf_str(partial, str(d, "partial_json"));
            if (!strcmp(kind, "text_delta")) append(block, "text", str(d, "text"));
            if (!strcmp(kind, "thinking_delta")) append(block, "thinking", str(d, "thinking"));
        }
    }
    assert_null(block);
    return content;
}

static void expect_message(const char *fields, const char *said, bool length, const char *content, const char *inputs,
                           const char *reason) {
    gen_request r;
    buf text = {0};
    buf_fmt(&text, "{" A_ASK "%s%s}", *fields ? "," : "", fields);
    must_read(request_anthropic, &r, text.data);
    ids_buf ids = encode(said);
    json_t *want = parse(content), *w = whole(&r, &ids, length);
    assert_true(json_equal(json_object_get(w, "content"), want));
    assert_string_equal(str(w, "stop_reason"), reason);
    size_t i;
    json_t *block;
    json_array_foreach(want, i, block) if (json_object_get(block, "input"))
        json_object_set_new(block, "input", json_object());
    for (u64 k = 0; k < 66; k++) {
        buf partial = {0};
        buf_str(&partial, "");
        json_t *list = streamed(&r, &ids, k == 64 ? ~0ull : k == 65 ? 0 : 1ull << k, length);
        json_t *sum = add_up_messages(list, &partial);
        assert_true(json_equal(sum, want));
        assert_string_equal(partial.data, inputs);
        size_t n = json_array_size(list);
        assert_string_equal(str(json_array_get(list, 0), "type"), "message_start");
        assert_string_equal(str(json_array_get(list, n - 1), "type"), "message_stop");
        assert_string_equal(str(json_object_get(json_array_get(list, n - 2), "delta"), "stop_reason"), reason);
        json_decref(sum);
        json_decref(list);
        buf_free(&partial);
    }
    json_decref(want);
    json_decref(w);
    ids_free(&ids);
    gen_request_free(&r);
    buf_free(&text);
}

#define THINK(s)             "{'type':'thinking','thinking':'" s "','signature':''}"
#define TEXT(s)              "{'type':'text','text':'" s "'}"
#define USE(id, name, input) "{'type':'tool_use','id':'" id "','name':'" name "','input':" input "}"

static void message_answers(void **state) {
    static const char two[] = "x</think>Wait." SECTION(CALL("functions.f:0", "{\"a\": 1}") CALL("functions.g:1", ""));
    (void)state;
    expect_message("", "Hm</think>It is 5.", false, "[" THINK("Hm") "," TEXT("It is 5.") "]", "", "end_turn");
    expect_message("", "Hm", true, "[" THINK("Hm") "]", "", "max_tokens");
    expect_message("", "</think>", false, "[]", "", "end_turn");
    expect_message("'thinking':{'type':'disabled'}", "It", false, "[" TEXT("It") "]", "", "end_turn");
    expect_message("'thinking':{'type':'enabled','display':'omitted'}", "Hm</think>It", false, "[" TEXT("It") "]", "",
                   "end_turn");
    expect_message("'stop_sequences':['5']", "Hm</think>It is 5.", false, "[" THINK("Hm") "," TEXT("It is ") "]", "",
                   "stop_sequence");
    expect_message(A_TOOLS, two, false,
                   "[" THINK("x") "," TEXT("Wait.") "," USE("functions.f:0", "f", "{'a':1}") "," USE("functions.g:1",
                                                                                                     "g", "{}") "]",
                   "{\"a\": 1}", "tool_use");
    expect_message(A_TOOLS, two, true,
                   "[" THINK("x") "," TEXT("Wait.") "," USE("functions.f:0", "f", "{'a':1}") "," USE("functions.g:1",
                                                                                                     "g", "{}") "]",
                   "{\"a\": 1}", "max_tokens");
    expect_message(A_TOOLS, "</think>" SECTION(CALL("functions.f:0", "{\"id\": 12345678901234567890, \"x\": -1e400}")),
                   false, "[" USE("functions.f:0", "f", "{'id':12345678901234567890,'x':-1e400}") "]",
                   "{\"id\": 12345678901234567890, \"x\": -1e400}", "tool_use");
    expect_message(A_TOOLS, "</think>" SECTION(CALL("functions.f:0", "[1]")) "more", false,
                   "[" USE("functions.f:0", "f", "{'_raw':'[1]'}") "," TEXT("more") "]", "[1]", "tool_use");
}

/* The items of a response out of its events: done items must be what their deltas said. */
static void check_response(const json_t *list, const json_t *output, const char *status) {
    json_t *ev, *item = NULL, *items = json_array(), *d;
    char last[64];
    size_t i, n = json_array_size(list);
    buf text = {0};
    json_array_foreach(list, i, ev) {
        const char *type = str(ev, "type");
        assert_int_equal(json_integer_value(json_object_get(ev, "sequence_number")), i);
        if (!strcmp(type, "response.output_item.added")) {
            assert_null(item);
            item = json_object_get(ev, "item");
            buf_clear(&text);
            buf_str(&text, "");
        } else if (!strcmp(type, "response.output_item.done")) {
            json_t *done = json_object_get(ev, "item");
            assert_string_equal(str(done, "id"), str(item, "id"));
            d = json_array_get(json_object_get(done, "content"), 0);
            assert_string_equal(d ? str(d, "text") : str(done, "arguments"), text.data);
            json_array_append(items, done);
            item = NULL;
        } else if ((d = json_object_get(ev, "delta"))) {
            assert_string_equal(str(ev, "item_id"), str(item, "id"));
            buf_str(&text, json_string_value(d));
        }
    }
    assert_null(item);
    assert_true(json_equal(items, output));
    for (i = 0; i < json_array_size(items); i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(str(json_array_get(items, i), "id"), str(json_array_get(items, k), "id"));
    snprintf(last, sizeof last, "response.%s", status);
    assert_string_equal(str(json_array_get(list, n - 1), "type"), last);
    assert_true(
        json_equal(json_object_get(json_object_get(json_array_get(list, n - 1), "response"), "output"), output));
    json_decref(items);
    buf_free(&text);
}

static void expect_response(const char *fields, const char *said, bool length, size_t items, const char *status) {
    gen_request r;
    buf text = {0};
    buf_fmt(&text, "{'input':'hi'%s%s}", *fields ? "," : "", fields);
    must_read(request_responses, &r, text.data);
    ids_buf ids = encode(said);
    json_t *w = whole(&r, &ids, length), *output = json_object_get(w, "output");
    assert_int_equal(json_array_size(output), items);
    assert_string_equal(str(w, "status"), status);
    for (u64 k = 0; k < 66; k++) {
        json_t *list = streamed(&r, &ids, k == 64 ? ~0ull : k == 65 ? 0 : 1ull << k, length);
        check_response(list, output, status);
        json_decref(list);
    }
    json_decref(w);
    ids_free(&ids);
    gen_request_free(&r);
    buf_free(&text);
}

static void response_answers(void **state) {
    static const char two[] = "x</think>Wait." SECTION(CALL("functions.f:0", "{\"a\": 1}") CALL("functions.g:1", ""));
    (void)state;
    expect_response("", "Hm</think>It is 5.", false, 2, "completed");
    expect_response("", "Hm", true, 1, "incomplete");
    expect_response("", "</think>", false, 0, "completed");
    expect_response("'reasoning':{'effort':'none'}", "It", false, 1, "completed");
    expect_response(R_TOOLS, two, false, 4, "completed");
    expect_response(R_TOOLS, two, true, 4, "incomplete");
    expect_response(R_TOOLS ",'parallel_tool_calls':false", two, false, 3, "completed");
    expect_response(R_TOOLS, "</think>" SECTION(CALL("functions.f:0", "[1]")) "more", false, 2, "completed");
}

/* An error in the middle: the events end with it, also when nothing was sent before. */
static void responses_echo_big_numbers(void **state) {
    gen_request r;
    ids_buf none = {0};
    (void)state;
    must_read(request_responses, &r,
              "{'input':'q','metadata':{'k':1e400},'tools':[{'type':'function','name':'f','parameters':{'type':"
              "'object','properties':{'x':{'type':'integer','maximum':12345678901234567890}}}}]}");
    json_t *v = whole(&r, &none, false);
    assert_true(json_equal(json_object_get(v, "tools"), json_object_get(r.original, "tools")));
    assert_string_equal(json_big_number(json_object_get(json_object_get(v, "metadata"), "k")), "1e400");
    json_decref(v);
    gen_request_free(&r);
}

static void errors_in_streams(void **state) {
    static const struct {
        reader read;
        const char *request, *first, *last;
    } cases[] = {{request_anthropic, "{" A_ASK "}", "message_start", "error"},
                 {request_responses, "{'input':'x'}", "response.created", "response.failed"}};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        gen_request r;
        reply p;
        buf out = {0};
        api_error e = {0};
        must_read(cases[k].read, &r, cases[k].request);
        assert_int_equal(reply_open(&p, &r, &served, "resp_0", NULL), ST_OK);
        ids_buf ids = encode("some words");
        reply_chunks(&p, 0, &out);
        for (size_t i = 0; i < ids.len; i++) one_token(&p, ids.data[i], false);
        reply_chunks(&p, 0, &out);
        reply_silence(&p, &out); /* too early for a ping */
        api_fail(&e, 503, NULL, NULL, "it \"broke\"");
        reply_stream_error(&p, &e, &out);
        json_t *list = events(&out);
        size_t n = json_array_size(list);
        assert_string_equal(str(json_array_get(list, 0), "type"), cases[k].first);
        assert_string_equal(str(json_array_get(list, n - 1), "type"), cases[k].last);
        json_decref(list);
        p.written_s -= 20;
        buf_clear(&out);
        reply_silence(&p, &out);
        assert_string_equal(out.data, k ? "" : "event: ping\ndata: {\"type\":\"ping\"}\n\n");
        reply_close(&p);
        gen_request_free(&r);
        ids_free(&ids);
        buf_free(&out);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(big_numbers_in_typed_fields),
                                       cmocka_unit_test(big_numbers_reach_the_model),
                                       cmocka_unit_test(messages_become_chat),
                                       cmocka_unit_test(messages_refused),
                                       cmocka_unit_test(responses_become_chat),
                                       cmocka_unit_test(message_answers),
                                       cmocka_unit_test(response_answers),
                                       cmocka_unit_test(responses_echo_big_numbers),
                                       cmocka_unit_test(errors_in_streams)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
