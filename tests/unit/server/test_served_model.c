/* What a server learns from a model's folder: chat template and sampling defaults; and what requests may ask of the
 * templates that differ in thinking. The tokenizer is the small model's; no model runs. */
#include "unit.h"

#include "server/request/request.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/moonlet-model-XXXXXX", path[300];
static const char *const files[] = {"tiktoken.model", "tokenizer_config.json", "chat_template.jinja",
                                    "generation_config.json", "tokenization_kimi.py"};

static const char *in_dir(const char *name) {
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* NULL: the file is not there. */
static void put(const char *name, const char *text) {
    remove(in_dir(name));
    if (!text) return;
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state) {
    char here[200], target[300];
    (void)state;
    if (!mkdtemp(dir) || !getcwd(here, sizeof here)) return 1;
    for (int i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "%s/models/nano/%s", here, files[i]);
        if (symlink(target, in_dir(files[i]))) return 1;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) remove(in_dir(files[i]));
    return remove(dir);
}

static status open_as(served_model *m, const char *template, err *e) {
    *m = (served_model){.dir = dir, .name = "m", .context = 4096, .parse_calls = true, .parse_reasoning = true};
    return served_model_open(m, template, "kimi_k25", 4096, NULL, 0, e);
}

static void must_open(served_model *m, const char *template) {
    err e = {0};
    if (open_as(m, template, &e) != ST_OK) fail_msg("%s", e.text);
}

static void the_folder_tells_the_release(void **state) {
#define KIND "{{tools_ts_str}}{% if thinking is false %}<think></think>{% endif %}"
    static const struct {
        const char *jinja, *wrapper;
        chat_template want;
        const char *why;
    } cases[] = {
        {NULL, NULL, CHAT_K2_5, "model_type is kimi_k25, no chat_template.jinja"},
        {"whatever", NULL, CHAT_K2_5, "none of its kind"},
        {"", NULL, CHAT_K2_5, "none of its kind"},
        {"<think></think><|im_middle|><|media_start|>", NULL, CHAT_K2_5, "none of its kind"}, /* K2-Thinking's */
        {KIND, NULL, CHAT_K2_5, "no preserve_thinking"},
        {KIND, "def f(thinking: bool = True)", CHAT_K2_5, "no preserve_thinking"},
        {KIND "{%- if preserve_thinking %}", NULL, CHAT_K2_6, "off by default"},
        {KIND "{% set preserve_thinking = preserve_thinking | default(false) %}", NULL, CHAT_K2_6, "off by default"},
        {KIND "{% if preserve_thinking is defined and preserve_thinking is true %}", NULL, CHAT_K2_6, "off by default"},
        {KIND "{%- if preserve_thinking %}", "thinking = True, preserve_thinking: bool = False", CHAT_K2_6,
         "off by default"},
        {KIND "{%- if preserve_thinking %}", "preserve_thinking: bool = True", CHAT_K2_7_CODE, "tokenization_kimi.py"},
        {KIND "{%- if preserve_thinking %}", "k.setdefault('x', 1)\nk.setdefault(\"preserve_thinking\", True)",
         CHAT_K2_7_CODE, "tokenization_kimi.py"},
        {KIND "{%- set preserve_thinking = true -%}", NULL, CHAT_K2_7_CODE, "on by default"},
        {KIND "{% set p = preserve_thinking | default( true ) %}", NULL, CHAT_K2_7_CODE, "on by default"},
        {KIND "{% if preserve_thinking is not defined or preserve_thinking %}", NULL, CHAT_K2_7_CODE, "on by default"},
        {"{{tools_ts_str}}<think>{{ rc }}</think>", NULL, CHAT_K2_7_CODE, "cannot do without thinking"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        served_model m;
        put("chat_template.jinja", cases[i].jinja);
        put("tokenization_kimi.py", cases[i].wrapper);
        must_open(&m, NULL);
        if (m.template != cases[i].want || !strstr(m.template_why, cases[i].why))
            fail_msg("case %zu: %s (%s)", i, chat_template_name(m.template), m.template_why);
        served_model_close(&m);
        must_open(&m, "k2.6"); /* asked for: whatever the files say */
        assert_int_equal(m.template, CHAT_K2_6);
        assert_string_equal(m.template_why, "asked for");
        served_model_close(&m);
    }
    put("chat_template.jinja", NULL);
    put("tokenization_kimi.py", NULL);
    served_model m;
    err e = {0};
    assert_int_equal(open_as(&m, "k3", &e), ST_INPUT);
    assert_non_null(strstr(e.text, "\"k3\""));
    served_model_close(&m);
}

static void generation_config_is_the_default(void **state) {
    served_model m;
    err e = {0};
    (void)state;
    put("generation_config.json", NULL);
    must_open(&m, NULL);
    assert_true(m.defaults.temperature == 1 && m.defaults.top_p == 1 && m.defaults.top_k == 0);
    served_model_close(&m);
    put("generation_config.json",
        "{\"do_sample\":true,\"temperature\":1.0,\"top_p\":0.95,\"top_k\":-1,\"max_length\":262144,"
        "\"eos_token_id\":163586,\"unknown\":12345678901234567890}");
    must_open(&m, NULL);
    assert_true(m.defaults.temperature == 1 && m.defaults.top_p == 0.95 && m.defaults.top_k == 0);
    served_model_close(&m);
    put("generation_config.json", "{\"temperature\":1.0,\"top_p\":1.0,\"eos_token_id\":163586}"); /* K2.6 */
    must_open(&m, NULL);
    assert_true(m.defaults.temperature == 1 && m.defaults.top_p == 1);
    served_model_close(&m);
    put("generation_config.json", "{\"temperature\":1e400}");
    assert_int_equal(open_as(&m, NULL, &e), ST_FORMAT);
    if (!strstr(e.text, "generation_config.json") || !strstr(e.text, "\"temperature\" is inf")) fail_msg("%s", e.text);
    served_model_close(&m);
    put("generation_config.json", NULL);
}

typedef bool (*reader)(gen_request *r, const served_model *m, json_t *body, api_error *e);

#define CHAT                                                                                                           \
    "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"rrrr\"},{\"role\":\"user\",\"content\":\"x\"}]"
#define MESSAGES                                                                                                       \
    "\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"rrrr\"},{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"user\",\"content\":\"x\"}]"
#define INPUT                                                                                                          \
    "\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"rrrr\"}]},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"x\"}]"

/* How many tokens the prompt has, or 0 with *e. */
static size_t prompt(reader read, const served_model *m, const char *conversation, const char *fields, bool *in_think,
                     api_error *e) {
    gen_request r = {0};
    buf text = {0};
    buf_fmt(&text, "{%s%s%s}", conversation, *fields ? "," : "", fields);
    json_t *body = json_parse(text.data, text.len, "test", NULL);
    assert_non_null(body);
    *e = (api_error){0};
    size_t n = read(&r, m, body, e) ? r.prompts[0].len : 0;
    *in_think = r.in_think;
    gen_request_free(&r);
    buf_free(&text);
    return n;
}

#define KEEP(what) "\"chat_template_kwargs\":{\"preserve_thinking\":" what "}"

static void preserve_thinking_on_every_route(void **state) {
    static const struct {
        reader read;
        const char *conversation;
    } routes[] = {{request_chat, CHAT},
                  {request_anthropic, MESSAGES},
                  {request_responses, INPUT},
                  {request_count_tokens, MESSAGES}};
    served_model m;
    api_error e;
    bool in_think;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        reader read = routes[i].read;
        const char *c = routes[i].conversation;
        must_open(&m, "k2.6");
        size_t plain = prompt(read, &m, c, "", &in_think, &e), kept = prompt(read, &m, c, KEEP("true"), &in_think, &e);
        assert_true(plain && kept > plain);
        assert_int_equal(prompt(read, &m, c, KEEP("false"), &in_think, &e), plain);
        assert_int_equal(prompt(read, &m, c, KEEP("null"), &in_think, &e), plain);
        assert_int_equal(prompt(read, &m, c, KEEP("1"), &in_think, &e), 0);
        assert_int_equal(e.http, 400);
        assert_string_equal(e.param, "preserve_thinking");
        served_model_close(&m);
        must_open(&m, "k2.5"); /* its template has no such argument, and nothing says so */
        assert_int_equal(prompt(read, &m, c, KEEP("true"), &in_think, &e), plain);
        served_model_close(&m);
        must_open(&m, "k2.7-code");
        assert_int_equal(prompt(read, &m, c, "", &in_think, &e), kept);
        assert_int_equal(prompt(read, &m, c, KEEP("true"), &in_think, &e), kept);
        assert_int_equal(prompt(read, &m, c, KEEP("false"), &in_think, &e), 0);
        assert_int_equal(e.http, 400);
        assert_string_equal(e.param, "preserve_thinking");
        served_model_close(&m);
    }
}

static void moonshots_own_spelling(void **state) {
    served_model m;
    api_error e;
    bool in_think;
    (void)state;
    must_open(&m, "k2.6");
    size_t plain = prompt(request_chat, &m, CHAT, "\"thinking\":{\"type\":\"enabled\",\"keep\":null}", &in_think, &e),
           kept = prompt(request_chat, &m, CHAT, KEEP("true"), &in_think, &e);
    assert_true(plain && kept > plain);
    assert_int_equal(
        prompt(request_chat, &m, CHAT, "\"thinking\":{\"type\":\"enabled\",\"keep\":\"all\"}", &in_think, &e), kept);
    assert_int_equal(prompt(request_chat, &m, CHAT, "\"thinking\":{\"keep\":\"all\"}," KEEP("false"), &in_think, &e),
                     plain);
    assert_int_equal(prompt(request_chat, &m, CHAT, "\"thinking\":{\"keep\":\"some\"}", &in_think, &e), 0);
    assert_string_equal(e.param, "thinking");
    served_model_close(&m);
}

static void k27_code_always_thinks(void **state) {
    static const char *const off[] = {
        "\"chat_template_kwargs\":{\"thinking\":false}", "\"chat_template_kwargs\":{\"enable_thinking\":false}",
        "\"thinking\":{\"type\":\"disabled\"}", "\"reasoning_effort\":\"none\"", "\"reasoning\":{\"enabled\":false}"};
    served_model m;
    api_error e;
    bool in_think;
    (void)state;
    must_open(&m, "k2.7-code");
    for (size_t i = 0; i < COUNT_OF(off); i++) {
        assert_int_equal(prompt(request_chat, &m, CHAT, off[i], &in_think, &e), 0);
        if (e.http != 400 || strcmp(e.param, "thinking") || !strstr(e.text.text, "always on"))
            fail_msg("%s: %s", off[i], e.text.text);
    }
    assert_true(prompt(request_chat, &m, CHAT, "\"thinking\":{\"type\":\"enabled\"}", &in_think, &e));
    assert_true(in_think);
    served_model_close(&m);
    must_open(&m, "k2.6");
    for (size_t i = 0; i < COUNT_OF(off); i++) {
        assert_true(prompt(request_chat, &m, CHAT, off[i], &in_think, &e));
        assert_false(in_think);
    }
    served_model_close(&m);
}

/* The text that goes on: the rendered ids end in it, not in the end marker. */
static void a_continued_message_stays_open(void **state) {
    served_model m;
    api_error e = {0};
    (void)state;
    must_open(&m, "k2.5");
    for (int open = 0; open < 2; open++) {
        gen_request r = {0};
        buf text = {0};
        ids_buf said = {0};
        buf_fmt(&text,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"It is\"}],"
                "\"add_generation_prompt\":false,\"continue_final_message\":%s}",
                open ? "true" : "false");
        assert_true(request_chat(&r, &m, json_parse(text.data, text.len, "test", NULL), &e));
        assert_int_equal(tokenizer_encode(m.tok, "It is", 5, false, &said, NULL), ST_OK);
        if (!open) ids_add(&said, tokenizer_special(m.tok, "<|im_end|>"));
        const ids_buf *p = &r.prompts[0];
        assert_true(p->len > said.len);
        assert_memory_equal(p->data + p->len - said.len, said.data, said.len * sizeof *said.data);
        ids_free(&said);
        buf_free(&text);
        gen_request_free(&r);
    }
    served_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_tells_the_release),     cmocka_unit_test(generation_config_is_the_default),
        cmocka_unit_test(preserve_thinking_on_every_route), cmocka_unit_test(moonshots_own_spelling),
        cmocka_unit_test(k27_code_always_thinks),           cmocka_unit_test(a_continued_message_stays_open)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
