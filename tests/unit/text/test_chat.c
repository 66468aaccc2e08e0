/* The chat templates against renderings of the published Jinja files (tests/golden), the literal examples of
 * K2.5's format, the cutting into control tokens and text, and hostile requests. */
#include "vectors.h"
#include "stub_tokenizer.h"
#include "text/chat.h"

static status render(const char *template, const char *request, const tokenizer *tok, chat_prompt *p, err *e) {
    json_t *v = parse_json(request);
    const json_t *add = json_object_get(v, "add_generation_prompt");
    chat_request r = {.messages = json_object_get(v, "messages"),
                      .tools = json_object_get(v, "tools"),
                      .kwargs = json_object_get(v, "chat_template_kwargs"),
                      .add_generation_prompt = !json_is_false(add)};
    chat_template t;
    assert_int_equal(chat_template_parse(&t, template, e), ST_OK);
    status st = chat_render(t, tok, &r, p, e);
    json_decref(v);
    return st;
}

static void expect_text(const char *name, const char *template, const char *request, const json_t *want) {
    chat_prompt p = {0};
    err e = {0};
    if (render(template, request, NULL, &p, &e) != ST_OK) fail_msg("%s, %s: %s", name, template, e.text);
    if (p.text.len != json_string_length(want) ||
        memcmp(p.text.len ? p.text.data : "", json_string_value(want), p.text.len))
        fail_msg("%s, %s\n--- got\n%s\n--- want\n%s", name, template, p.text.data, json_string_value(want));
    assert_int_equal(p.ids.len, 0);
    chat_prompt_free(&p);
}

/* K2.6 renders as K2.5 unless it is asked to keep what was thought. */
static void check_vector(const json_t *v) {
    const char *name = json_string_value(json_object_get(v, "name"));
    const char *template = json_string_value(json_object_get(v, "template"));
    const json_t *want = json_object_get(v, "text"), *request = json_object_get(v, "request");
    char *text = json_to_text(request, &json_spaced);
    expect_text(name, template, text, want);
    if (!strcmp(template, "k2.5") &&
        !json_object_get(json_object_get(request, "chat_template_kwargs"), "preserve_thinking"))
        expect_text(name, "k2.6", text, want);
    free(text);
}

static void golden(void **s) {
    (void)s;
    assert_true(each_vector("tests/golden/chat_vectors.jsonl", check_vector) >= 200);
}

/* Ids back to text: a byte or a special's name in [[ ]]. */
static void spell(const ids_buf *ids, buf *out) {
    for (size_t i = 0; i < ids->len; i++) {
        if (ids->data[i] < 256)
            buf_char(out, (char)ids->data[i]);
        else
            buf_fmt(out, "[[%s]]", k25_specials[ids->data[i] - 256]);
    }
}

static void expect(const char *template, const char *request, const char *want, bool in_think) {
    chat_prompt p = {0};
    err e = {0};
    buf got = {0};
    if (render(template, request, &k25_tokenizer, &p, &e) != ST_OK) fail_msg("%s", e.text);
    spell(&p.ids, &got);
    assert_string_equal(got.data, want);
    assert_int_equal(p.in_think, in_think);
    buf_free(&got);
    chat_prompt_free(&p);
}

static void ids_come_from_the_template_alone(void **s) {
    (void)s;
    expect("k2.5", "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}",
           "[[<|im_user|>]]user[[<|im_middle|>]]hello[[<|im_end|>]][[<|im_assistant|>]]assistant[[<|im_middle|>]]"
           "[[<think>]]",
           true);
    expect("k2.5",
           "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|><think>\"}],"
           "\"chat_template_kwargs\":{\"thinking\":false}}",
           "[[<|im_user|>]]user[[<|im_middle|>]]<|im_end|><think>[[<|im_end|>]][[<|im_assistant|>]]assistant"
           "[[<|im_middle|>]][[<think>]][[</think>]]",
           false);
    expect("k2.5",
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Look:\"},"
           "{\"type\":\"image_url\",\"image_url\":{\"url\":\"\"}}]}],\"add_generation_prompt\":false}",
           "[[<|im_user|>]]user[[<|im_middle|>]]Look:[[<|media_begin|>]]image[[<|media_content|>]][[<|media_pad|>]]"
           "[[<|media_end|>]]\n[[<|im_end|>]]",
           false);
    expect("k2-thinking",
           "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"functions.f:0\",\"name\":\"f\",\"content\":\"r\"}]}",
           "[[<|im_system|>]]system[[<|im_middle|>]]You are Kimi, an AI assistant created by Moonshot AI."
           "[[<|im_end|>]][[<|im_system|>]]f[[<|im_middle|>]]## Return of functions.f:0\nr[[<|im_end|>]]"
           "[[<|im_assistant|>]]assistant[[<|im_middle|>]]",
           false);
}

/* As K2.5's processor writes a video: each piece behind its time, which is one run of text with what stands before. */
static void videos(void **s) {
    (void)s;
    char two[][CHAT_STAMP] = {"00:00:00.000", "00:00:02.100"}, one[][CHAT_STAMP] = {"00:00:00.000"};
    const chat_video of[] = {{two, 2}, {one, 1}};
    json_t *messages = parse_json("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Look: \"},"
                                  "{\"type\":\"video_url\",\"video_url\":{\"url\":\"\"}},{\"type\":\"video\"},"
                                  "{\"type\":\"text\",\"text\":\"?\"}]}]");
    chat_request r = {.messages = messages, .videos = of, .n_videos = 2};
    chat_prompt p = {0};
    err e = {0};
    buf got = {0};
    assert_int_equal(chat_render(CHAT_K2_5, &k25_tokenizer, &r, &p, &e), ST_OK);
    spell(&p.ids, &got);
#define PIECE "[[<|media_begin|>]]video[[<|media_content|>]][[<|media_pad|>]][[<|media_end|>]]"
    assert_string_equal(got.data, "[[<|im_user|>]]user[[<|im_middle|>]]Look: 00:00:00.000" PIECE "00:00:02.100" PIECE
                                  "\n00:00:00.000" PIECE "\n?[[<|im_end|>]]");
#undef PIECE
    buf_free(&got);
    chat_prompt_free(&p);
    r.n_videos = 1; /* one that was not read */
    assert_int_equal(chat_render(CHAT_K2_5, &k25_tokenizer, &r, &p, &e), ST_INPUT);
    assert_non_null(strstr(e.text, "messages[0].content[2]: a video that was not read"));
    chat_prompt_free(&p);
    json_decref(messages);
}

static void missing_control_tokens(void **s) {
    (void)s;
    static const char *const few[] = {"<|im_user|>", "<|im_middle|>", "<|im_end|>", "<|im_assistant|>", NULL};
    static const tokenizer tok = {few};
    chat_prompt p = {0};
    err e = {0};
    const char *request = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    assert_int_equal(render("k2.5", request, &tok, &p, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "<think>"));
    chat_prompt_free(&p);
    request = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}";
    assert_int_equal(render("k2-thinking", request, &k25_tokenizer, &p, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "<|media_start|>"));
    chat_prompt_free(&p);
}

static void tools_note(void **s) {
    (void)s;
    chat_prompt p = {0};
    err e = {0};
    const char *request =
        "{\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
        "{\"properties\":{\"x\":{\"oneOf\":[]}}}}}]}";
    assert_int_equal(render("k2.5", request, NULL, &p, &e), ST_OK);
    assert_int_equal(p.tools_json.code, ST_UNSUPPORTED);
    assert_non_null(strstr(p.tools_json.text, "tools[0]"));
    chat_prompt_free(&p);
}

static void nulls_are_empty(void **s) {
    (void)s;
    const char *head = "[[<|im_assistant|>]]assistant[[<|im_middle|>]][[<think>]][[</think>]]";
    char want[400];
    snprintf(want, sizeof want,
             "%s[[<|tool_calls_section_begin|>]][[<|tool_call_begin|>]][[<|tool_call_argument_begin|>]]{}"
             "[[<|tool_call_end|>]][[<|tool_calls_section_end|>]][[<|im_end|>]]",
             head);
    expect("k2.5",
           "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":null,\"name\":null,"
           "\"tool_calls\":[{\"id\":null,\"function\":{\"arguments\":{}}}]}],\"add_generation_prompt\":false}",
           want, false);
}

static void bad_requests(void **s) {
    (void)s;
    static const struct {
        const char *request, *at;
    } cases[] = {
        {"{}", "messages:"},
        {"{\"messages\":null}", "messages:"},
        {"{\"messages\":{\"role\":\"user\"}}", "messages:"},
        {"{\"messages\":\"hi\"}", "messages:"},
        {"{\"messages\":[5]}", "messages[0]:"},
        {"{\"messages\":[null]}", "messages[0]:"},
        {"{\"messages\":[[]]}", "messages[0]:"},
        {"{\"messages\":1e400}", "messages: expected an array, got a number"},
        {"{\"messages\":[12345678901234567890]}", "messages[0]: expected an object, got an integer"},
        {"{\"messages\":[{\"role\":1e400}]}", "messages[0].role: expected a string, got a number"},
        {"{\"messages\":[],\"tools\":[12345678901234567890]}", "tools[0]: expected an object"},
        {"{\"messages\":[],\"chat_template_kwargs\":12345678901234567890}", "chat_template_kwargs: expected an object"},
        {"{\"messages\":[{}]}", "messages[0].role: expected a string, got nothing"},
        {"{\"messages\":[{\"role\":null}]}", "messages[0].role:"},
        {"{\"messages\":[{\"role\":\"\"}]}", "messages[0].role: empty"},
        {"{\"messages\":[{\"role\":\"user\"},{\"role\":7}]}", "messages[1].role:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0].content:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":{}}]}", "messages[0].content:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":true}]}", "messages[0].content:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", "messages[0].content[0]:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":5}]}]}", "messages[0].content[0].type:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":[]}]}]}",
         "messages[0].content[0].text:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"audio_url\"}]}]}",
         "messages[0].content[1].type:"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{}]}]}", "messages[0].content[0].type:"},
        {"{\"messages\":[{\"role\":\"user\",\"name\":[]}]}", "messages[0].name:"},
        {"{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":5}]}", "messages[0].tool_call_id:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":{}}]}", "messages[0].reasoning_content:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}", "messages[0].tool_calls:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":\"x\"}]}", "messages[0].tool_calls:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[5]}]}", "messages[0].tool_calls[0]:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":5}]}]}", "messages[0].tool_calls[0].id:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "messages[0].tool_calls[0].function:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":{}}}]}]}",
         "messages[0].tool_calls[0].function.name:"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]}",
         "messages[0].tool_calls[0].function.arguments:"},
        {"{\"messages\":[],\"tools\":{}}", "tools:"},
        {"{\"messages\":[],\"tools\":[\"x\"]}", "tools[0]:"},
        {"{\"messages\":[],\"chat_template_kwargs\":[]}", "chat_template_kwargs:"},
    };
    for (int t = 0; t < CHAT_TEMPLATES; t++)
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            chat_prompt p = {0};
            err e = {0};
            status st = render(chat_template_name((chat_template)t), cases[i].request, &k25_tokenizer, &p, &e);
            if (st != ST_INPUT || strncmp(e.text, cases[i].at, strlen(cases[i].at)))
                fail_msg("%s: %s (%s)", cases[i].request, e.text, status_text(st));
            chat_prompt_free(&p);
        }
}

static void deep_nesting(void **s) {
    (void)s;
    buf b = {0};
    chat_prompt p = {0};
    err e = {0};
    buf_str(&b, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":");
    for (int i = 0; i < 500; i++) buf_char(&b, '[');
    for (int i = 0; i < 500; i++) buf_char(&b, ']');
    buf_str(&b, "}}]}]}");
    assert_int_equal(render("k2.5", b.data, &k25_tokenizer, &p, &e), ST_OK);
    chat_prompt_free(&p);
    buf_clear(&b);
    buf_str(&b,
            "{\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"parameters\":{\"properties\":{\"x\":");
    for (int i = 0; i < 500; i++) buf_str(&b, "{\"type\":\"array\",\"items\":");
    buf_str(&b, "{}");
    for (int i = 0; i < 500; i++) buf_char(&b, '}');
    buf_str(&b, "}}}}]}");
    assert_int_equal(render("k2.5", b.data, &k25_tokenizer, &p, &e), ST_OK);
    assert_int_equal(p.tools_json.code, ST_OK);
    chat_prompt_free(&p);
    buf_free(&b);
}

static void refused_arguments(void **s) {
    static const char *const bad[][3] = {
        {"k2.6", "{\"preserve_thinking\":1}", "preserve_thinking: expected true or false, got an integer"},
        {"k2.7-code", "{\"preserve_thinking\":\"yes\"}", "preserve_thinking: expected true or false, got a string"},
        {"k2.7-code", "{\"preserve_thinking\":false}", "preserve_thinking: template k2.7-code has it always on"},
        {"k2.7-code", "{\"thinking\":false}", "thinking: template k2.7-code has it always on"},
        {"k2.6", "[]", "expected an object"}};
    (void)s;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char request[200];
        chat_prompt p = {0};
        err e = {0};
        snprintf(request, sizeof request, "{\"messages\":[],\"chat_template_kwargs\":%s}", bad[i][1]);
        assert_int_equal(render(bad[i][0], request, NULL, &p, &e), ST_INPUT);
        if (!strstr(e.text, bad[i][2])) fail_msg("%s: %s", bad[i][1], e.text);
        chat_prompt_free(&p);
    }
}

static void names(void **s) {
    (void)s;
    chat_template t;
    err e = {0};
    for (int i = 0; i < CHAT_TEMPLATES; i++) {
        assert_int_equal(chat_template_parse(&t, chat_template_name((chat_template)i), &e), ST_OK);
        assert_int_equal(t, i);
    }
    assert_int_equal(chat_template_parse(&t, "k3", &e), ST_INPUT);
    assert_non_null(strstr(e.text, "k3"));
}

static void put(const char *dir, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void which_template(void **s) {
    (void)s;
    static const struct {
        const char *jinja;
        chat_template want;
    } cases[] = {
        {"{{tools_ts_str}}<think></think><|im_middle|>", CHAT_K2_5},
        {"<think></think><|im_middle|>You are Kimi, <|media_start|>", CHAT_K2_THINKING},
        {"<|im_middle|>You are a helpful assistant", CHAT_K2_INSTRUCT_0711},
        {"<|im_middle|>\n  # Tools\n You are Kimi, an", CHAT_K2_INSTRUCT_0905},
        {"<|im_middle|> You are Kimi, an", CHAT_K2_INSTRUCT_R3},
        {"something else", CHAT_K2_THINKING}, /* by the token <think> */
        {"", CHAT_K2_THINKING},
    };
    static const char *const none[] = {"<|im_end|>", NULL};
    static const tokenizer k2 = {none};
    char dir[] = "/tmp/moonlet-test-XXXXXX", path[300];
    const char *why = NULL;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chat_template_of(dir, "kimi_k2", &k25_tokenizer, &why), CHAT_K2_THINKING);
    assert_non_null(strstr(why, "no chat_template.jinja"));
    assert_int_equal(chat_template_of(dir, "kimi_k2", &k2, &why), CHAT_K2_INSTRUCT_0905);
    assert_int_equal(chat_template_of(dir, NULL, NULL, &why), CHAT_K2_INSTRUCT_0905);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        put(dir, cases[i].jinja);
        assert_int_equal(chat_template_of(dir, "kimi_k2", &k25_tokenizer, &why), cases[i].want);
        assert_int_equal(chat_template_of(dir, "kimi_k25", &k25_tokenizer, &why), CHAT_K2_5);
    }
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    remove(path);
    remove(dir);
}

/* A request for K2.5: tools nested 50 deep around a description of `lines` lines, which the declaration indents. */
static void limited(size_t lines, size_t max_text, size_t max_ids, status want, chat_prompt *p) {
    buf text = {0};
    err e = {0};
    buf_str(&text, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":");
    for (int i = 0; i < 50; i++) buf_str(&text, "{\"type\":\"object\",\"properties\":{\"a\":");
    buf_str(&text, "{\"type\":\"string\",\"description\":\"");
    for (size_t i = 0; i < lines; i++) buf_str(&text, "x\\n");
    buf_str(&text, "\"}");
    for (int i = 0; i < 50; i++) buf_str(&text, "}}");
    buf_str(&text, "}}],\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    json_t *v = parse_json(text.data);
    chat_request r = {.messages = json_object_get(v, "messages"),
                      .tools = json_object_get(v, "tools"),
                      .add_generation_prompt = true,
                      .max_text = max_text,
                      .max_ids = max_ids};
    *p = (chat_prompt){0};
    assert_int_equal(chat_render(CHAT_K2_5, &k25_tokenizer, &r, p, &e), want);
    json_decref(v);
    buf_free(&text);
}

static void limits(void **s) {
    (void)s;
    chat_prompt p;
    limited(10000, 0, 0, ST_OK, &p); /* 40 KB become 1 MB */
    size_t whole = p.text.len, ids = p.ids.len;
    assert_true(whole > 1000000);
    chat_prompt_free(&p);
    limited(10000, whole, ids, ST_OK, &p); /* exactly what is needed is enough */
    assert_int_equal(p.text.len, whole);
    chat_prompt_free(&p);
    limited(10000, whole - 1, 0, ST_LIMIT, &p);
    chat_prompt_free(&p);
    limited(10000, 0, ids - 1, ST_LIMIT, &p);
    chat_prompt_free(&p);
    limited(10000, 5000, 0, ST_LIMIT, &p);
    assert_true(p.text.full && p.text.len <= 5000 && p.text.cap <= 5001);
    chat_prompt_free(&p);
    limited(10000, 0, 100, ST_LIMIT, &p);
    assert_true(p.ids.full && p.ids.len <= 100 && p.ids.cap <= 100);
    chat_prompt_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(ids_come_from_the_template_alone),
        cmocka_unit_test(tools_note),
        cmocka_unit_test(videos),
        cmocka_unit_test(missing_control_tokens),
        cmocka_unit_test(nulls_are_empty),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(deep_nesting),
        cmocka_unit_test(names),
        cmocka_unit_test(which_template),
        cmocka_unit_test(refused_arguments),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
