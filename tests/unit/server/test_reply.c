/* Answers out of scripted tokens: what a model might write, cut into batches at every place, as a stream and whole.
 * The words are encoded with the small model's tokenizer; no model runs. */
#include "unit.h"

#include "server/reply/reply.h"
#include <stdlib.h>
#include <string.h>

static served_model served = {
    .dir = "models/nano", .name = "nano", .context = 4096, .parse_calls = true, .parse_reasoning = true};

#define SECTION(calls)      "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"
#define CALL(id, arguments) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"
#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}},"           \
    "{\"type\":\"function\",\"function\":{\"name\":\"g-2\",\"parameters\":{\"type\":\"object\"}}}]"

static ids_buf encode(const char *text) {
    ids_buf ids = {0};
    assert_int_equal(tokenizer_encode(served.tok, text, strlen(text), true, &ids, NULL), ST_OK);
    return ids;
}

static void request(gen_request *r, const char *fields) {
    buf b = {0};
    api_error e = {0};
    *r = (gen_request){0};
    buf_fmt(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]%s%s}", *fields ? "," : "", fields);
    json_t *body = json_parse(b.data, b.len, "test", NULL);
    assert_non_null(body);
    bool ok = request_chat(r, &served, body, &e);
    if (!ok) print_message("%s\n", e.text.text);
    assert_true(ok);
    buf_free(&b);
}

static void one_token(reply *p, i32 id, i64 at, bool stop) {
    const sched_top top = {id, -0.5f};
    const job_event ev = {.kind = SCHED_TOKEN,
                          .token = id,
                          .logprob = -0.5f,
                          .has_logprob = p->r->logprobs,
                          .position = at,
                          .is_stop = stop,
                          .n_top = p->r->logprobs ? 1 : 0};
    answer_event(&p->all[0], &ev, &top);
}

/* Everything the model writes, then its stop id; chunks are taken after the tokens whose bit is set in `cuts`. */
static void play(reply *p, const ids_buf *ids, u64 cuts, bool length, buf *out) {
    for (size_t i = 0; i < ids->len; i++) {
        one_token(p, ids->data[i], (i64)i, false);
        if (out && cuts >> i % 64 & 1) reply_chunks(p, 0, out);
    }
    job_end end = {
        .ended = true, .finish = length ? SCHED_LENGTH : SCHED_STOP, .stop_id = length ? -1 : served.stops.data[0]};
    if (!length) one_token(p, end.stop_id, (i64)ids->len, true);
    answer_end(&p->all[0], &end);
    if (out) reply_chunks(p, 0, out);
    if (out) reply_stream_end(p, out);
}

static json_t *whole(gen_request *r, const char *said, bool length) {
    reply p;
    buf out = {0};
    ids_buf ids = encode(said);
    assert_int_equal(reply_open(&p, r, &served, "id", NULL), ST_OK);
    play(&p, &ids, 0, length, NULL);
    reply_whole(&p, &out);
    json_t *v = json_parse(out.data, out.len, "reply", NULL);
    assert_non_null(v);
    reply_close(&p);
    buf_free(&out);
    ids_free(&ids);
    return v;
}

static json_t *choice(json_t *v) { return json_array_get(json_object_get(v, "choices"), 0); }

static void append(json_t *o, const char *key, const json_t *piece) {
    if (!json_is_string(piece)) return;
    const char *old = json_string_value(json_object_get(o, key));
    json_object_set_new(o, key, json_sprintf("%s%s", old ? old : "", json_string_value(piece)));
}

static void merge_call(json_t *calls, const json_t *delta) {
    size_t index = (size_t)json_integer_value(json_object_get(delta, "index"));
    assert_true(index <= json_array_size(calls));
    if (index == json_array_size(calls)) json_array_append_new(calls, json_object());
    json_t *mine = json_array_get(calls, index), *function = json_object_get(delta, "function");
    assert_non_null(function);
    append(mine, "id", json_object_get(delta, "id"));
    append(mine, "name", json_object_get(function, "name"));
    append(mine, "arguments", json_object_get(function, "arguments"));
}

/* {"content", "reasoning_content", "calls", "finish_reason", "tokens"}: a stream as OpenAI's client adds it up. */
static json_t *add_up(const buf *stream) {
    json_t *sum = json_pack("{s:[]}", "calls");
    bool role = false, finished = false;
    i64 logprobs = 0;
    for (const char *p = stream->data; strncmp(p, "data: [DONE]\n\n", 14);) {
        const char *end = strstr(p, "\n\n");
        assert_true(end && !strncmp(p, "data: ", 6));
        json_t *v = json_parse(p + 6, (size_t)(end - p) - 6, "event", NULL), *c = choice(v);
        assert_non_null(c);
        assert_false(finished);
        json_t *delta = json_object_get(c, "delta"), *call;
        size_t i;
        if (!role) assert_string_equal(json_string_value(json_object_get(delta, "role")), "assistant");
        role = true;
        append(sum, "content", json_object_get(delta, "content"));
        append(sum, "reasoning_content", json_object_get(delta, "reasoning_content"));
        json_array_foreach(json_object_get(delta, "tool_calls"), i, call)
            merge_call(json_object_get(sum, "calls"), call);
        logprobs += (i64)json_array_size(json_object_get(json_object_get(c, "logprobs"), "content"));
        if (json_is_string(json_object_get(c, "finish_reason"))) {
            finished = true;
            json_object_set(sum, "finish_reason", json_object_get(c, "finish_reason"));
            assert_non_null(json_object_get(c, "usage"));
        }
        json_decref(v);
        p = end + 2;
    }
    assert_true(finished);
    json_object_set_new(sum, "tokens", json_integer(logprobs));
    return sum;
}

static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void same_calls(const json_t *whole_calls, const json_t *streamed) {
    assert_int_equal(json_array_size(whole_calls), json_array_size(streamed));
    for (size_t i = 0; i < json_array_size(streamed); i++) {
        const json_t *a = json_array_get(whole_calls, i), *b = json_array_get(streamed, i);
        assert_string_equal(text_of(a, "id"), text_of(b, "id"));
        assert_string_equal(text_of(json_object_get(a, "function"), "name"), text_of(b, "name"));
        assert_string_equal(text_of(json_object_get(a, "function"), "arguments"), text_of(b, "arguments"));
    }
}

/* The stream, however its chunks are cut, adds up to the whole answer, which is returned. */
static json_t *both(const char *fields, const char *said, bool length) {
    gen_request r;
    request(&r, fields);
    json_t *v = whole(&r, said, length), *message = json_object_get(choice(v), "message");
    ids_buf ids = encode(said);
    for (u64 k = 0; k < 66; k++) {
        u64 cuts = k == 64 ? ~0ull : k == 65 ? 0x5555555555555555ull : 1ull << k;
        reply p;
        buf out = {0};
        assert_int_equal(reply_open(&p, &r, &served, "id", NULL), ST_OK);
        play(&p, &ids, cuts, length, &out);
        json_t *sum = add_up(&out);
        assert_string_equal(text_of(sum, "content"), text_of(message, "content"));
        assert_string_equal(text_of(sum, "reasoning_content"), text_of(message, "reasoning_content"));
        assert_string_equal(text_of(sum, "finish_reason"), text_of(choice(v), "finish_reason"));
        same_calls(json_object_get(message, "tool_calls"), json_object_get(sum, "calls"));
        if (r.logprobs)
            assert_int_equal(json_integer_value(json_object_get(sum, "tokens")),
                             json_array_size(json_object_get(json_object_get(choice(v), "logprobs"), "content")));
        json_decref(sum);
        reply_close(&p);
        buf_free(&out);
    }
    ids_free(&ids);
    gen_request_free(&r);
    return v;
}

static void expect(const char *fields, const char *said, bool length, const char *reasoning, const char *content,
                   size_t calls, const char *finish) {
    json_t *v = both(fields, said, length), *message = json_object_get(choice(v), "message");
    assert_string_equal(text_of(message, "reasoning_content"), reasoning);
    assert_string_equal(text_of(message, "content"), content);
    assert_int_equal(json_array_size(json_object_get(message, "tool_calls")), calls);
    assert_string_equal(text_of(choice(v), "finish_reason"), finish);
    json_decref(v);
}

static void text_and_reasoning(void **state) {
    (void)state;
    expect("", "Let me see</think>It is 5.", false, "Let me see", "It is 5.", 0, "stop");
    expect("", "Let me see", true, "Let me see", "", 0, "length");
    expect("\"logprobs\":true,\"top_logprobs\":1",
           "a</think>Gr\xc3\xbc\xc3\x9f"
           "e \xf0\x9f\x91\x8b",
           false, "a",
           "Gr\xc3\xbc\xc3\x9f"
           "e \xf0\x9f\x91\x8b",
           0, "stop");
    expect("\"chat_template_kwargs\":{\"thinking\":false}", "It is 5.", false, "", "It is 5.", 0, "stop");
    expect("\"include_reasoning\":false", "Hm</think>It", false, "", "It", 0, "stop");
    expect("\"stream_reasoning\":false", "Hm, well</think>It", false, "Hm, well", "It", 0, "stop");
    expect("\"separate_reasoning\":false", "Hm</think>It", false, "", "Hm</think>It", 0, "stop");
}

static void tool_calls(void **state) {
    static const char two[] =
        "x</think>Wait." SECTION(CALL("functions.f:0", "{\"a\": 1}") CALL("functions.g-2:1", "{}"));
    (void)state;
    expect(TOOLS, two, false, "x", "Wait.", 2, "tool_calls");
    expect(TOOLS, two, true, "x", "Wait.", 2, "length");
    expect(TOOLS ",\"parallel_tool_calls\":false", two, false, "x", "Wait.", 1, "tool_calls");
    expect("", two, false, "x", "Wait.functions.f:0{\"a\": 1}functions.g-2:1{}", 0, "stop");
    expect(TOOLS ",\"tool_choice\":\"none\"", two, false, "x", "Wait.functions.f:0{\"a\": 1}functions.g-2:1{}", 0,
           "stop");
    expect(TOOLS, "</think>" SECTION("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\""), true, "",
           "", 1, "length");
    json_t *v = both(TOOLS, two, false);
    json_t *call = json_array_get(json_object_get(json_object_get(choice(v), "message"), "tool_calls"), 1);
    assert_string_equal(text_of(call, "id"), "functions.g-2:1");
    assert_string_equal(text_of(json_object_get(call, "function"), "arguments"), "{}");
    json_decref(v);
}

static void stops_across_tokens(void **state) {
    (void)state;
    expect("\"stop\":\"c d\"", "</think>ab c def", false, "", "ab ", 0, "stop");
    expect("\"stop\":[\"zzz\",\"def!\"]", "</think>ab c def", false, "", "ab c def", 0, "stop");
    expect("\"stop\":\"think h\"", "I think hard</think>ab", false, "I ", "", 0, "stop");
    expect("\"stop\":\"ab\",\"no_stop_trim\":true", "</think>xabx", false, "", "xab", 0, "stop");
    expect("\"stop\":\"city\"," TOOLS, "</think>Go." SECTION(CALL("functions.f:0", "{\"city\": 1}")), false, "", "Go.",
           1, "tool_calls");
}

/* What a stop string held back belongs to the reasoning in which it stood. */
static void stops_held_in_reasoning(void **state) {
    (void)state;
    expect("\"stop\":\"abc\"", "I see ab</think>It is 5.", false, "I see ab", "It is 5.", 0, "stop");
    expect("\"stop\":\"abc\",\"stream_reasoning\":false", "I see ab</think>cIt", false, "I see ab", "cIt", 0, "stop");
    expect("\"stop\":\"think h\",\"stream_reasoning\":false", "I think hard</think>ab", false, "I ", "", 0, "stop");
}

/* A stop string that token number min_tokens completes does not end the answer, one of the next token does. */
static void stops_and_min_tokens(void **state) {
    static const char said[] = "</think>ab!";
    char fields[96];
    ids_buf ids = encode(said);
    (void)state;
    for (i64 less = 0; less < 2; less++) {
        snprintf(fields, sizeof fields, "\"stop\":\"!\",\"min_tokens\":%lld", (long long)ids.len - less);
        expect(fields, said, false, "", less ? "ab" : "ab!", 0, "stop");
    }
    json_t *v = both("\"stop\":\"!\"", said, false);
    assert_string_equal(text_of(choice(v), "matched_stop"), "!");
    json_decref(v);
    ids_free(&ids);
}

/* The tokens of the reasoning and of the mark that ends it; none where there is no reasoning. */
static void reasoning_tokens_are_counted(void **state) {
    static const struct {
        const char *fields, *said, *reasoning;
    } cases[] = {{"", "Let me see</think>It is 5.", "Let me see</think>"},
                 {"", "</think>It is 5.", "</think>"},
                 {"", "Let me", "Let me"},
                 {"\"include_reasoning\":false", "Hm</think>It", "Hm</think>"},
                 {"\"chat_template_kwargs\":{\"thinking\":false}", "It is 5.", ""}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ids_buf want = encode(cases[i].reasoning), all = encode(cases[i].said);
        json_t *v = both(cases[i].fields, cases[i].said, true), *usage = json_object_get(v, "usage");
        const json_t *details = json_object_get(usage, "completion_tokens_details");
        assert_int_equal(json_integer_value(json_object_get(usage, "reasoning_tokens")), want.len);
        assert_int_equal(json_integer_value(json_object_get(details, "reasoning_tokens")), want.len);
        assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), all.len);
        json_decref(v);
        ids_free(&want);
        ids_free(&all);
    }
}

/* text_offset counts characters, wherever tokens cut them. */
static void offsets_are_in_characters(void **state) {
    static const char text[] = "a\xc3\xa9\xe2\x80\xa6x\xe6\x9c\x88"
                               "b"; /* a, e acute, ellipsis, x, a Chinese character, b */
    static const i64 want_a = 0, want_x = 3, want_b = 5;
    ids_buf ids = encode(text);
    position_info info[32] = {0};
    const answer a = {.m = &served, .info = info};
    i64 offset = 0, found = 0;
    buf out = {0};
    size_t i;
    json_t *token;
    (void)state;
    assert_true(ids.len <= COUNT_OF(info));
    for (i = 0; i < ids.len; i++) info[i].token = ids.data[i];
    completion_logprobs(&out, &a, 0, ids.len, &offset);
    assert_int_equal(offset, 6);
    json_t *v = json_parse(out.data, out.len, "logprobs", NULL), *at = json_object_get(v, "text_offset");
    assert_int_equal(json_array_size(at), ids.len);
    json_array_foreach(json_object_get(v, "tokens"), i, token) {
        const char c = json_string_value(token)[0];
        if (c != 'a' && c != 'x' && c != 'b') continue;
        found++;
        assert_int_equal(json_integer_value(json_array_get(at, i)), c == 'a' ? want_a : c == 'x' ? want_x : want_b);
    }
    assert_int_equal(found, 3);
    json_decref(v);
    buf_free(&out);
    ids_free(&ids);
}

/* Ids go on counting over the conversation, whatever the client called its own. */
static void ids_in_a_conversation(void **state) {
    static const char fields[] =
        "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
        "{\"id\":\"b\",\"function\":{\"name\":\"g-2\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"B\"},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"A\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"again\"}]";
    static const char *const want[] = {"functions.g-2:1", "functions.f:0", "functions.f:2"};
    gen_request r = {0};
    api_error e = {0};
    size_t i, k = 0;
    json_t *m;
    (void)state;
    buf b = {0};
    buf_fmt(&b, "{%s,%s}", fields, TOOLS);
    assert_true(request_chat(&r, &served, json_parse(b.data, b.len, "test", NULL), &e));
    assert_int_equal(r.history_calls, 3);
    json_array_foreach(json_object_get(r.body, "messages"), i, m) if (json_object_get(m, "tool_call_id"))
        assert_string_equal(text_of(m, "tool_call_id"), want[k++]);
    assert_int_equal(k, 3);
    json_t *v = whole(&r, "</think>" SECTION(CALL("functions.f:3", "{}")), false);
    json_t *call = json_array_get(json_object_get(json_object_get(choice(v), "message"), "tool_calls"), 0);
    assert_string_equal(text_of(call, "id"), "functions.f:3");
    json_decref(v);
    gen_request_free(&r);
    buf_free(&b);
}

static int open_model(void **state) {
    const i64 eos = 770;
    err e = {0};
    (void)state;
    status st = served_model_open(&served, NULL, "kimi_k25", 4096, &eos, 0, &e);
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
        cmocka_unit_test(text_and_reasoning),        cmocka_unit_test(tool_calls),
        cmocka_unit_test(stops_across_tokens),       cmocka_unit_test(stops_held_in_reasoning),
        cmocka_unit_test(stops_and_min_tokens),      cmocka_unit_test(reasoning_tokens_are_counted),
        cmocka_unit_test(offsets_are_in_characters), cmocka_unit_test(ids_in_a_conversation)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
