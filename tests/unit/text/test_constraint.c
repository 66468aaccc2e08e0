/* Constraints: states through thinking, content and calls; masks are what each id by itself finds; what several
 * answers share. */
#include "unit.h"

#include "base/file.h"
#include "text/grammar/constraint_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tokenizer *tok;
static token_trie *trie;
static u64 *mask;

static json_t *parsed(const char *text) {
    json_t *v = json_parse(text, strlen(text), "a test", NULL);
    if (!v) fail_msg("no JSON: %s", text);
    return v;
}

static const char *const two_tools =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"strict\":true,\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]";

static constraint *compiled(constraint_source source, const char *value, const char *tools) {
    json_t *v = value ? parsed(value) : NULL, *t = tools ? parsed(tools) : NULL;
    constraint *c;
    err e = {0};
    source.value = v, source.tools = t;
    if (constraint_compile(&c, &source, trie, tok, NULL, &e) != ST_OK)
        fail_msg("%s: %s", value ? value : tools, e.text);
    json_decref(v), json_decref(t);
    return c;
}

static constraint_run *opened(constraint *c, answer_begin begin, i64 first_call) {
    constraint_run *r;
    err e = {0};
    if (constraint_run_open(&r, c, begin, first_call, &e) != ST_OK) fail_msg("%s", e.text);
    return r;
}

/* Specials are recognised by their spelling. */
static i32 go(constraint_run *r, i32 state, const char *text) {
    ids_buf ids = {0};
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), true, &ids, NULL), ST_OK);
    for (size_t i = 0; i < ids.len && state != RUN_DEAD; i++) {
        bool end;
        assert_int_equal(constraint_run_mask(r, state, mask, &end, NULL), ST_OK);
        const bool has = mask[ids.data[i] / 64] >> ids.data[i] % 64 & 1;
        state = constraint_run_next(r, state, ids.data[i]);
        assert_int_equal(has, state != RUN_DEAD);
    }
    ids_free(&ids);
    return state;
}

static i32 from_start(constraint_run *r, const char *text) { return go(r, constraint_run_start(r), text); }

static bool may_end(constraint_run *r, i32 state) {
    bool end;
    assert_int_equal(constraint_run_mask(r, state, mask, &end, NULL), ST_OK);
    return end;
}

static bool accepts(constraint_run *r, const char *text) {
    const i32 state = from_start(r, text);
    return state != RUN_DEAD && may_end(r, state);
}

/* ---- masks ---- */

static void compare_all(constraint_run *r, i32 state) {
    bool end;
    assert_int_equal(constraint_run_mask(r, state, mask, &end, NULL), ST_OK);
    for (i32 id = -1; id <= trie->vocab; id++) {
        const bool has = id >= 0 && id < trie->vocab && mask[id / 64] >> id % 64 & 1;
        if (has != (constraint_run_next(r, state, id) != RUN_DEAD)) fail_msg("id %d: in the mask: %d", id, has);
    }
    const char *const never[] = {"<|im_end|>", "[EOS]", "[EOT]", "[BOS]", "<|im_user|>", "[PAD]"};
    for (size_t i = 0; i < COUNT_OF(never); i++) {
        const i32 id = tokenizer_special(tok, never[i]);
        if (id >= 0) assert_false(mask[id / 64] >> id % 64 & 1);
    }
}

static void compare_along(constraint_run *r, const char *text) {
    ids_buf ids = {0};
    i32 state = constraint_run_start(r);
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), true, &ids, NULL), ST_OK);
    for (size_t i = 0; i < ids.len; i++) {
        compare_all(r, state);
        state = constraint_run_next(r, state, ids.data[i]);
        if (state == RUN_DEAD) fail_msg("%s: id %zu is refused", text, i);
    }
    compare_all(r, state);
    assert_true(may_end(r, state));
    ids_free(&ids);
}

static const char *const one_call_text =
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    "{\"city\": \"Oslo\"}<|tool_call_end|><|tool_calls_section_end|>";

static void masks_are_steps(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.content = CONTENT_OBJECT, .calls = CALLS_MAYBE}, NULL, two_tools);
    constraint_run *r = opened(c, BEGIN_MAY_THINK, 0);
    compare_along(r, one_call_text);
    compare_along(r, "<think>so \xe4\xbd\xa0\xe5\xa5\xbd</think>{\"a\": [1, \"b\\n\\u0007\"]}");
    constraint_run_close(r);
    constraint_release(c);
    c = compiled((constraint_source){.calls = CALLS_MAYBE}, NULL, two_tools);
    r = opened(c, BEGIN_IN_THINK, 0);
    compare_along(r, "well</think>");
    compare_along(r, "</think>Hello");
    compare_along(r, one_call_text);
    constraint_run_close(r);
    constraint_release(c);
}

/* ---- thinking ---- */

static void thinking(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.content = CONTENT_REGEX}, "\"ab+\"", NULL);
    constraint_run *r = opened(c, BEGIN_IN_THINK, 0);
    assert_true(accepts(r, "I think so</think>abb"));
    assert_false(may_end(r, constraint_run_start(r)));
    assert_int_equal(from_start(r, "I think so</think>abb</think>"), RUN_DEAD);
    assert_int_equal(from_start(r, "x</think>ba"), RUN_DEAD);
    assert_int_equal(from_start(r, "<think>"), RUN_DEAD);
    assert_int_equal(from_start(r, "<|tool_calls_section_begin|>"), RUN_DEAD); /* there are no calls */
    constraint_run_close(r);
    r = opened(c, BEGIN_MAY_THINK, 0);
    assert_true(accepts(r, "<think>no</think>ab"));
    assert_true(accepts(r, "ab"));
    assert_int_equal(from_start(r, "ab<think>"), RUN_DEAD);
    assert_int_equal(from_start(r, "</think>ab"), RUN_DEAD);
    compare_all(r, constraint_run_start(r));
    /* text that the answer has already */
    const i32 begun = constraint_run_next_text(r, constraint_run_start(r), "ab", 2);
    assert_true(begun == from_start(r, "ab") && may_end(r, begun));
    assert_int_equal(constraint_run_next_text(r, begun, "", 0), begun);
    assert_int_equal(constraint_run_next_text(r, begun, "c", 1), RUN_DEAD);
    assert_int_equal(constraint_run_next_text(r, RUN_DEAD, "", 0), RUN_DEAD);
    assert_int_equal(constraint_run_next_text(r, begun, "\xff\x02", 2), RUN_DEAD);
    constraint_run_close(r);
    r = opened(c, BEGIN_CONTENT, 0);
    assert_int_equal(from_start(r, "<think>"), RUN_DEAD);
    assert_true(accepts(r, "abbbb"));
    constraint_run_close(r);
    constraint_release(c);
}

/* ---- calls ---- */

#define SECTION     "<|tool_calls_section_begin|>"
#define SECTION_END "<|tool_calls_section_end|>"
#define CALL(name, index, arguments)                                                                                   \
    "<|tool_call_begin|>functions." name ":" index "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"
#define OSLO  "{\"city\":\"Oslo\"}"
#define OSLO_ "{\"city\": \"Oslo\"}"

static void calls_that_must_come(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.calls = CALLS_MUST}, NULL, two_tools);
    constraint_run *r = opened(c, BEGIN_CONTENT, 0);
    assert_true(accepts(r, SECTION CALL("get_weather", "0", OSLO_) SECTION_END));
    assert_true(accepts(r, SECTION CALL("stop", "0", "{}") SECTION_END));
    assert_true(accepts(r, SECTION CALL("stop", "0", "{\"any\":[1]}") CALL("get_weather", "1", OSLO) SECTION_END));
    assert_int_equal(from_start(r, "Hello"), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION SECTION_END), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION " "), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("other", "0", "{}")), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("stop", "1", "{}")), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("stop", "00", "{}")), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("stop", "0", "[]")), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("get_weather", "0", "{}")), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("stop", "0", "{}") CALL("stop", "0", "{}")), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("stop", "0", "{}") SECTION_END SECTION), RUN_DEAD);
    assert_int_equal(from_start(r, SECTION CALL("stop", "0", "{}") SECTION_END " "), RUN_DEAD);
    assert_false(may_end(r, from_start(r, SECTION CALL("stop", "0", "{}"))));
    constraint_run_close(r);
    r = opened(c, BEGIN_IN_THINK, 0);
    assert_true(accepts(r, "hm</think>" SECTION CALL("stop", "0", "{}") SECTION_END));
    assert_true(accepts(r, "hm" SECTION CALL("stop", "0", "{}") SECTION_END)); /* it breaks its thinking off */
    assert_int_equal(from_start(r, "</think>Hello"), RUN_DEAD);
    constraint_run_close(r);
    constraint_release(c);
}

static void one_call_alone(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.calls = CALLS_MUST, .one_call = true}, NULL, two_tools);
    constraint_run *r = opened(c, BEGIN_CONTENT, 3);
    assert_true(accepts(r, SECTION CALL("stop", "3", "{}") SECTION_END));
    assert_int_equal(from_start(r, SECTION CALL("stop", "3", "{}") CALL("stop", "4", "{}")), RUN_DEAD);
    constraint_run_close(r);
    constraint_release(c);
}

static void running_indices(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.calls = CALLS_MAYBE}, NULL, two_tools);
    constraint_run *r = opened(c, BEGIN_CONTENT, 7), *far = opened(c, BEGIN_CONTENT, 1000),
                   *below = opened(c, BEGIN_CONTENT, -1);
    assert_true(accepts(r, SECTION CALL("stop", "7", "{}") CALL("stop", "8", "{}") SECTION_END));
    assert_int_equal(from_start(r, SECTION CALL("stop", "0", "{}")), RUN_DEAD);
    assert_true(accepts(far, SECTION CALL("stop", "1000", "{}") CALL("stop", "1001", "{}") SECTION_END));
    assert_true(accepts(below, SECTION CALL("stop", "0", "{}") SECTION_END));
    /* no number of calls is refused */
    i32 at = from_start(below, SECTION);
    char text[200];
    for (int i = 0; i < 300 && at != RUN_DEAD; i++) {
        snprintf(text, sizeof text, CALL("stop", "%d", "{}"), i);
        at = go(below, at, text);
    }
    assert_true(at != RUN_DEAD && accepts(below, SECTION CALL("stop", "0", "{}") SECTION_END));
    constraint_run_close(r), constraint_run_close(far), constraint_run_close(below);
    constraint_release(c);
}

static void content_or_calls(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.calls = CALLS_MAYBE}, NULL, two_tools);
    constraint_run *r = opened(c, BEGIN_CONTENT, 0);
    assert_true(accepts(r, "") && accepts(r, "Let me see.") && accepts(r, SECTION CALL("stop", "0", "{}") SECTION_END));
    assert_true(accepts(r, "Let me see." SECTION CALL("stop", "0", "{}") SECTION_END));
    assert_int_equal(from_start(r, "Let me see." SECTION_END), RUN_DEAD);
    assert_int_equal(from_start(r, "x" SECTION CALL("stop", "0", "{}") SECTION_END "y"), RUN_DEAD);
    constraint_run_close(r);
    constraint_release(c);
    c = compiled((constraint_source){.content = CONTENT_CHOICE, .calls = CALLS_MAYBE}, "[\"yes\", \"no\", \"\"]",
                 two_tools);
    r = opened(c, BEGIN_CONTENT, 0);
    assert_true(accepts(r, "") && accepts(r, "yes") && accepts(r, "no"));
    assert_true(accepts(r, SECTION CALL("stop", "0", "{}") SECTION_END));
    assert_int_equal(from_start(r, "yes" SECTION), RUN_DEAD);
    assert_int_equal(from_start(r, "maybe"), RUN_DEAD);
    constraint_run_close(r);
    constraint_release(c);
}

static void odd_names(void **state) {
    (void)state;
    static const char tools[] = "[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"a:0\"}},"
                                "{\"function\":{\"name\":\"\xe4\xbd\xa0 \\\"*[\",\"parameters\":null}}]";
    constraint *c = compiled((constraint_source){.calls = CALLS_MUST}, NULL, tools);
    constraint_run *r = opened(c, BEGIN_CONTENT, 0);
    assert_true(accepts(r, SECTION CALL("a", "0", "{}") SECTION_END));
    assert_true(accepts(r, SECTION CALL("a:0", "0", "{}") SECTION_END));
    assert_true(accepts(r, SECTION CALL("\xe4\xbd\xa0 \"*[", "0", "{}") SECTION_END));
    constraint_run_close(r);
    constraint_release(c);
}

static void space(void **state) {
    (void)state;
    static const char spaced[] = SECTION CALL("get_weather", "0", OSLO_) SECTION_END,
                      wide[] = SECTION CALL("get_weather", "0", "{\n  \"city\" : \"Oslo\"\n}") SECTION_END;
    for (int s = JSON_SPACE_ANY; s <= JSON_SPACE_NONE; s++) {
        constraint *c = compiled((constraint_source){.calls = CALLS_MUST, .space = (json_space)s}, NULL, two_tools);
        constraint_run *r = opened(c, BEGIN_CONTENT, 0);
        assert_true(accepts(r, SECTION CALL("get_weather", "0", OSLO) SECTION_END));
        assert_int_equal(accepts(r, spaced), s != JSON_SPACE_NONE);
        assert_int_equal(accepts(r, wide), s == JSON_SPACE_ANY);
        constraint_run_close(r);
        constraint_release(c);
    }
}

/* ---- contents ---- */

static void contents(void **state) {
    static const struct {
        content_kind kind;
        const char *value, *good, *bad;
    } all[] = {
        {CONTENT_OBJECT, NULL, "{\"a\": {}}", "[]"},
        {CONTENT_SCHEMA, "{\"type\":\"integer\"}", "12", "\"a\""},
        {CONTENT_SCHEMA, "true", "[null]", "nul!"},
        {CONTENT_REGEX, "\"[ab]+\"", "abba", "abc"},
        {CONTENT_EBNF, "\"root ::= \\\"a\\\" root | \\\"!\\\"\"", "aaa!", "ab"},
        {CONTENT_TAGS,
         "{\"type\":\"structural_tag\",\"triggers\":[\"<f\"],\"structures\":[{\"begin\":\"<f>\",\"end\":\"</f>\","
         "\"schema\":{\"type\":\"object\"}}]}",
         "so <f>{\"a\": 1}</f> \xe4\xbd\xa0!", "<f>a"},
        {CONTENT_CHOICE, "[\"one\", \"two \\u00e9\"]", "two \xc3\xa9", "three"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        constraint *c = compiled((constraint_source){.content = all[i].kind, .strict = true}, all[i].value, NULL);
        constraint_run *r = opened(c, BEGIN_CONTENT, 0);
        if (!accepts(r, all[i].good) || from_start(r, all[i].bad) != RUN_DEAD) fail_msg("content %zu", i);
        compare_along(r, all[i].good);
        constraint_run_close(r);
        constraint_release(c);
    }
}

/* ---- what is refused ---- */

#define TOOL(name, strict, parameters)                                                                                 \
    "[{\"function\":{\"name\":\"first\"}},{\"function\":{\"name\":" name ",\"strict\":" strict                         \
    ",\"parameters\":" parameters "}}]"

static void refused(void **state) {
    static const struct {
        content_kind kind;
        calls_kind calls;
        const char *value, *tools;
        status st;
        const char *text;
    } all[] = {
        {CONTENT_FREE, CALLS_NEVER, NULL, NULL, ST_INPUT, "nothing is asked of the answer"},
        {CONTENT_FREE, CALLS_MUST, NULL, "[]", ST_INPUT, "tools: there are none"},
        {CONTENT_FREE, CALLS_MAYBE, NULL, NULL, ST_INPUT, "tools: there are none"},
        {CONTENT_SCHEMA, CALLS_NEVER, "{\"not\":{}}", NULL, ST_UNSUPPORTED, "schema, at #: \"not\""},
        {CONTENT_SCHEMA, CALLS_NEVER, "false", NULL, ST_INPUT, "nothing satisfies it"},
        {CONTENT_SCHEMA, CALLS_MAYBE, "false", TOOL("\"b\"", "true", "null"), ST_INPUT, "nothing satisfies it"},
        {CONTENT_SCHEMA, CALLS_NEVER, NULL, NULL, ST_INPUT, ""},
        {CONTENT_REGEX, CALLS_NEVER, "\"(\"", NULL, ST_INPUT, ""},
        {CONTENT_REGEX, CALLS_NEVER, "1", NULL, ST_INPUT, "regex: "},
        {CONTENT_EBNF, CALLS_NEVER, "\"root ::= root\"", NULL, ST_INPUT, "grammar: "},
        {CONTENT_EBNF, CALLS_NEVER, "\"root ::= root \\\"a\\\" | \\\"b\\\"\"", NULL, ST_UNSUPPORTED, "grammar: "},
        {CONTENT_EBNF, CALLS_MAYBE, "\"root ::= [\"", TOOL("\"b\"", "true", "null"), ST_INPUT, "grammar, line 1"},
        {CONTENT_EBNF, CALLS_NEVER, "null", NULL, ST_INPUT, "grammar: "},
        {CONTENT_CHOICE, CALLS_NEVER, "[]", NULL, ST_INPUT, "choice: "},
        {CONTENT_CHOICE, CALLS_NEVER, "[\"a\", 1]", NULL, ST_INPUT, "choice: number 1"},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"b\"", "true", "{\"not\":{}}"), ST_UNSUPPORTED,
         "tools: b: schema, at #: \"not\""},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"b\"", "true", "{\"properties\":{\"x\":{\"pattern\":\"(?=a)\"}}}"),
         ST_UNSUPPORTED, "tools: b: schema, at #/properties/x"},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"b\"", "true", "{\"properties\":{\"x\":false},\"required\":[\"x\"]}"),
         ST_INPUT, "tools: b: nothing satisfies it"},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"b\"", "false", "{\"type\":\"string\"}"), ST_INPUT, "tools: b: "},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"b\"", "true", "[]"), ST_INPUT, "tools: b: "},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"\"", "true", "null"), ST_INPUT, "tools: the name of number 1"},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("\"a\\nb\"", "true", "null"), ST_INPUT, "tools: the name of number 1"},
        {CONTENT_FREE, CALLS_MUST, NULL, TOOL("7", "true", "null"), ST_INPUT, "tools: the name of number 1"},
        {CONTENT_FREE, CALLS_MUST, NULL, "[7]", ST_INPUT, "tools: the name of number 0"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        json_t *v = all[i].value ? parsed(all[i].value) : NULL, *t = all[i].tools ? parsed(all[i].tools) : NULL;
        const constraint_source source = {
            .content = all[i].kind, .value = v, .strict = true, .calls = all[i].calls, .tools = t};
        constraint *c;
        err e = {0};
        const status st = constraint_compile(&c, &source, trie, tok, NULL, &e);
        if (st != all[i].st || strncmp(e.text, all[i].text, strlen(all[i].text)))
            fail_msg("%zu: %d, %s", i, (int)st, e.text);
        assert_true(!c && e.code == st);
        assert_int_equal(constraint_compile(&c, &source, trie, tok, NULL, NULL), st);
        json_decref(v), json_decref(t);
    }
}

static void warned(void **state) {
    static const struct {
        const char *tools, *warning, *good;
    } all[] = {
        {TOOL("\"b\"", "false", "{\"not\":{},\"required\":[\"x\"],\"what\":1}"), "tools: b: passed over: \"not\"\n",
         SECTION CALL("b", "0", "{\"x\":1}") SECTION_END},
        {TOOL("\"b\"", "false", "{\"properties\":{\"x\":{\"pattern\":\"(?=a)\"}}}"),
         "tools: b: its arguments are some JSON", SECTION CALL("b", "0", "{\"x\":1}") SECTION_END},
        {TOOL("\"b\"", "false", "{\"properties\":{\"x\":false},\"required\":[\"x\"]}"),
         "tools: b: its arguments are some JSON object: nothing satisfies it\n",
         SECTION CALL("b", "0", "{}") SECTION_END},
        {TOOL("\"b\"", "true", "{\"type\":[\"object\",\"null\"]}"), "", SECTION CALL("b", "0", "{}") SECTION_END}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        json_t *t = parsed(all[i].tools);
        const constraint_source source = {.calls = CALLS_MUST, .tools = t};
        constraint *c;
        buf warnings = {0};
        assert_int_equal(constraint_compile(&c, &source, trie, tok, &warnings, NULL), ST_OK);
        const char *text = warnings.data ? warnings.data : "";
        if (strncmp(text, all[i].warning, strlen(all[i].warning)) || (!*all[i].warning && *text))
            fail_msg("%zu: %s", i, text);
        constraint_run *r = opened(c, BEGIN_CONTENT, 0);
        assert_true(accepts(r, all[i].good));
        assert_int_equal(from_start(r, SECTION CALL("b", "0", "null")), RUN_DEAD);
        constraint_run_close(r);
        constraint_release(c);
        buf_free(&warnings);
        json_decref(t);
    }
    json_t *v = parsed("{\"type\":\"array\",\"uniqueItems\":true,\"odd\":1}");
    const constraint_source source = {.content = CONTENT_SCHEMA, .value = v};
    buf warnings = {0};
    constraint *c;
    assert_int_equal(constraint_compile(&c, &source, trie, tok, &warnings, NULL), ST_OK);
    assert_string_equal(warnings.data, "schema: passed over: \"uniqueItems\"\n");
    constraint_release(c);
    buf_free(&warnings);
    json_decref(v);
}

/* ---- what answers share ---- */

static void states_are_gone_back_to(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.content = CONTENT_OBJECT, .calls = CALLS_MAYBE}, NULL, two_tools);
    constraint_run *r = opened(c, BEGIN_MAY_THINK, 0);
    const i32 begun = from_start(r, "<think>x</think>{\"a\":");
    const i32 one = go(r, begun, "[1,"), two = go(r, begun, "\"b\"");
    assert_true(one != RUN_DEAD && two != RUN_DEAD && one != two);
    assert_true(may_end(r, go(r, two, "}")));
    assert_true(may_end(r, go(r, one, "2]}")));
    assert_int_equal(go(r, begun, "\"b\""), two);
    constraint_run *other = opened(c, BEGIN_CONTENT, 0);
    assert_true(accepts(other, "{}"));
    constraint_release(c); /* runs hold it */
    assert_true(accepts(other, "{\"a\": 1}"));
    constraint_run_close(other);
    assert_true(may_end(r, go(r, one, "3]}")));
    constraint_run_close(r);
    constraint_release(NULL), constraint_run_close(NULL);
}

static void walks_are_renewed(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.content = CONTENT_OBJECT}, NULL, NULL);
    constraint_run *a = opened(c, BEGIN_CONTENT, 0);
    const i32 begun = from_start(a, "{\"a\":");
    const u64 bytes = constraint_bytes(c);
    constraint_run *b = opened(c, BEGIN_CONTENT, 0);
    assert_ptr_equal(a->w, b->w);
    constraint_set_budget(c, 1);
    constraint_run *d = opened(c, BEGIN_CONTENT, 0);
    assert_ptr_not_equal(d->w, a->w);
    assert_true(constraint_bytes(c) > bytes);
    assert_true(accepts(d, "{\"a\": [1]}") && may_end(a, go(a, begun, "1}")) && accepts(b, "{}"));
    constraint_run_close(a);
    assert_true(accepts(b, "{\"b\": 2}"));
    const u64 both = constraint_bytes(c);
    constraint_run_close(b); /* the old walk's last one */
    assert_true(constraint_bytes(c) < both);
    constraint_run_close(d); /* the walk stays, for the next run */
    assert_ptr_equal(c->walks->next, NULL);
    d = opened(c, BEGIN_CONTENT, 0); /* nobody walks the one that is worn */
    assert_ptr_equal(c->walks->next, NULL);
    assert_true(accepts(d, "{}"));
    constraint_run_close(d);
    constraint_release(c);
}

/* An automaton that becomes too large fails the answers on it, not those that begin later. */
static void a_failure_is_left_behind(void **state) {
    (void)state;
    constraint *c = compiled((constraint_source){.content = CONTENT_REGEX}, "\"(a|b)*a(a|b){19}c?\"", NULL);
    constraint_run *r = opened(c, BEGIN_CONTENT, 0);
    i32 at = constraint_run_start(r);
    u32 seed = 1;
    bool end;
    err e = {0};
    for (int i = 0; i < 4000000 && at != RUN_DEAD; i++) {
        seed = seed * 1664525u + 1013904223u;
        at = constraint_run_next_text(r, at, seed >> 31 ? "a" : "b", 1);
    }
    assert_int_equal(at, RUN_DEAD);
    assert_int_equal(constraint_run_mask(r, constraint_run_start(r), mask, &end, &e), ST_LIMIT);
    assert_true(e.text[0] && !end);
    i32 forced[4];
    assert_int_equal(constraint_run_forced(r, constraint_run_start(r), forced, 4), 0);
    constraint_run *next = opened(c, BEGIN_CONTENT, 0);
    assert_true(accepts(next, "aaaaaaaaaaaaaaaaaaaac"));
    assert_int_equal(constraint_run_mask(r, constraint_run_start(r), mask, &end, NULL), ST_LIMIT);
    constraint_run_close(r), constraint_run_close(next);
    constraint_release(c);
}

static void *answers(void *ud) {
    constraint *c = ud;
    u64 *own = malloc((size_t)ceil_div(trie->vocab, 64) * sizeof *own);
    for (int k = 0; k < 60; k++) {
        constraint_run *r = opened(c, BEGIN_MAY_THINK, k % 5);
        ids_buf ids = {0};
        char text[300];
        i32 state = constraint_run_start(r), forced[100];
        bool end = false;
        snprintf(text, sizeof text,
                 "<think>%d</think>" SECTION CALL("get_weather", "%d", "{\"city\":\"O%d\"}") SECTION_END, k, k % 5, k);
        tokenizer_encode(tok, text, strlen(text), true, &ids, NULL);
        for (size_t i = 0; i < ids.len; i++) {
            if (constraint_run_mask(r, state, own, &end, NULL) != ST_OK ||
                constraint_run_forced(r, state, forced, 100) < 0)
                abort();
            state = constraint_run_next(r, state, ids.data[i]);
        }
        if (state == RUN_DEAD || constraint_run_mask(r, state, own, &end, NULL) != ST_OK || !end) abort();
        constraint_bytes(c);
        ids_free(&ids);
        constraint_run_close(r);
    }
    free(own);
    constraint_release(c);
    return NULL;
}

/* Tokens drawn and taken back at random, in schemas of the golden file: what may come is the same as where the ids that
 * are left are read anew from the start, by a run of its own. */
static void taking_back_is_reading_anew(void **state) {
    enum { EVERY = 9, STEPS = 160, DEEPEST = 200 };
    (void)state;
    buf lines = {0};
    u64 *again = malloc((size_t)ceil_div(trie->vocab, 64) * sizeof *again), seed = 5;
    assert_int_equal(file_read("tests/golden/schemas.jsonl", 64 << 20, &lines, NULL), ST_OK);
    buf_char(&lines, 0);
    int n_schemas = 0;
    for (char *line = strtok(lines.data, "\n"); line; line = strtok(NULL, "\n"), n_schemas++) {
        if (n_schemas % EVERY) continue;
        json_t *v = parsed(line);
        const constraint_source source = {
            .content = CONTENT_SCHEMA, .value = json_object_get(v, "schema"), .strict = true};
        constraint *c, *other;
        const status st = constraint_compile(&c, &source, trie, tok, NULL, NULL);
        if (st == ST_OK) assert_int_equal(constraint_compile(&other, &source, trie, tok, NULL, NULL), ST_OK);
        json_decref(v);
        if (st != ST_OK) continue;
        constraint_run *r = opened(c, BEGIN_CONTENT, 0);
        i32 states[DEEPEST + 1] = {constraint_run_start(r)}, ids[DEEPEST];
        for (int step = 0, n = 0; step < STEPS; step++) {
            bool end, end_again;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (n && seed >> 62 == 0) n -= (int)((seed >> 40) % (u64)n + 1);
            assert_int_equal(constraint_run_mask(r, states[n], mask, &end, NULL), ST_OK);
            if (step % 8 == 0) {
                constraint_run *fresh = opened(step % 16 ? c : other, BEGIN_CONTENT, 0);
                i32 at = constraint_run_start(fresh);
                for (int i = 0; i < n; i++) at = constraint_run_next(fresh, at, ids[i]);
                assert_int_equal(constraint_run_mask(fresh, at, again, &end_again, NULL), ST_OK);
                assert_memory_equal(mask, again, (size_t)ceil_div(trie->vocab, 64) * sizeof *mask);
                assert_int_equal(end, end_again);
                constraint_run_close(fresh);
            }
            i32 id = (i32)((seed >> 20) % (u64)trie->vocab), tried = 0;
            while (tried < trie->vocab && !(mask[id / 64] >> id % 64 & 1)) id = (id + 1) % trie->vocab, tried++;
            if (tried == trie->vocab || n == DEEPEST) {
                n = n / 2;
                continue;
            }
            ids[n] = id;
            states[n + 1] = constraint_run_next(r, states[n], id);
            assert_true(states[++n] != RUN_DEAD);
        }
        constraint_run_close(r);
        constraint_release(c), constraint_release(other);
    }
    assert_true(n_schemas > 500);
    free(again), buf_free(&lines);
}

/* ---- properties in order ---- */

enum { NAMES = 4, MEMBERS_MOST = 7, OTHER = NAMES /* and NAMES + 1: keys that no property names */, KEYS = NAMES + 2 };
typedef struct {
    bool required[NAMES], closed;
    i64 min, max; /* max: -1: none */
} order_case;

static bool order_is_whole(const order_case *o, const int *keys, int n) {
    bool seen[NAMES] = {false};
    int named = 0, last = -1;
    for (int i = 0; i < n; i++) {
        if (keys[i] >= OTHER ? o->closed : keys[i] <= last) return false;
        if (keys[i] < OTHER) seen[keys[i]] = true, named++;
        last = keys[i] >= OTHER ? OTHER : keys[i];
    }
    for (int i = 0; i < NAMES; i++)
        if (o->required[i] && !seen[i]) return false;
    return (o->max < 0 || n <= o->max) && named + (n > named) >= o->min;
}

static bool order_can_end(const order_case *o, int *keys, int n) {
    if (order_is_whole(o, keys, n)) return true;
    for (int k = 0; n < MEMBERS_MOST && k <= OTHER; k++) {
        if (n && (keys[n - 1] >= OTHER ? k < OTHER : k <= keys[n - 1])) continue;
        if (k == OTHER && o->closed) continue;
        keys[n] = k;
        if (order_can_end(o, keys, n + 1)) return true;
    }
    return false;
}

/* Every sequence of members that is let through so far, and one more of each. */
static void order_holds(constraint_run *r, const order_case *o, i32 state, int *keys, int n) {
    static const char *const names[KEYS] = {"a", "b", "c", "d", "x", "y"};
    const i32 closed = constraint_run_next_text(r, state, "}", 1);
    if ((closed != RUN_DEAD) != order_is_whole(o, keys, n))
        fail_msg("%d members, the last %d", n, n ? keys[n - 1] : -1);
    for (int k = 0; k < KEYS && n < 4; k++) {
        char text[32];
        snprintf(text, sizeof text, "%s\"%s\":1", n ? "," : "", names[k]);
        keys[n] = k;
        int longer[MEMBERS_MOST + 1];
        memcpy(longer, keys, sizeof *keys * (size_t)(n + 1));
        bool good = n == 0 || (k > keys[n - 1] || (k >= OTHER && keys[n - 1] >= OTHER));
        good = good && !(k >= OTHER && o->closed) && order_can_end(o, longer, n + 1);
        const i32 next = constraint_run_next_text(r, state, text, strlen(text));
        if ((next != RUN_DEAD) != good) fail_msg("member %d, key %d: %d, not %d", n, k, next, good);
        if (next != RUN_DEAD) order_holds(r, o, next, keys, n + 1);
    }
}

static void properties_in_order(void **state) {
    (void)state;
    u32 seed = 3, held = 0;
    for (int round = 0; round < 400; round++) {
        order_case o = {.max = -1};
        buf schema = {0};
        const char *comma = "";
        seed = seed * 1664525u + 1013904223u;
        buf_str(&schema, "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":1},"
                         "\"c\":{\"const\":1},\"d\":{\"const\":1}},\"required\":[");
        for (int i = 0; i < NAMES; i++) {
            if (!(o.required[i] = (seed >> (8 + 2 * i) & 3) == 0)) continue;
            buf_fmt(&schema, "%s\"%c\"", comma, 'a' + i);
            comma = ",";
        }
        o.closed = seed >> 20 & 1;
        o.min = seed >> 22 & 3;
        if (seed >> 25 & 1) o.max = o.min + (seed >> 26 & 3);
        buf_fmt(&schema, "],\"minProperties\":%d", (int)o.min);
        if (o.max >= 0) buf_fmt(&schema, ",\"maxProperties\":%d", (int)o.max);
        buf_str(&schema, o.closed ? ",\"additionalProperties\":false}" : ",\"additionalProperties\":{\"const\":1}}");
        buf_char(&schema, 0);
        json_t *v = parsed(schema.data);
        constraint *c;
        err e = {0};
        const constraint_source source = {
            .content = CONTENT_SCHEMA, .value = v, .strict = true, .space = JSON_SPACE_NONE, .in_order = true};
        int keys[MEMBERS_MOST + 1];
        const status st = constraint_compile(&c, &source, trie, tok, NULL, &e);
        if (st != ST_OK && order_can_end(&o, keys, 0)) fail_msg("%s: %s", schema.data, e.text);
        if (st == ST_OK) {
            constraint_run *r = opened(c, BEGIN_CONTENT, 0);
            order_holds(r, &o, constraint_run_next_text(r, constraint_run_start(r), "{", 1), keys, 0);
            constraint_run_close(r), constraint_release(c);
            held++;
        }
        json_decref(v), buf_free(&schema);
    }
    assert_true(held > 300);
    /* a name that must come next is forced */
    constraint *c = compiled((constraint_source){.content = CONTENT_SCHEMA, .space = JSON_SPACE_NONE, .in_order = true},
                             "{\"type\":\"object\",\"properties\":{\"why\":{\"type\":\"boolean\"},\"what\":{"
                             "\"type\":\"integer\"}},\"required\":[\"why\",\"what\"]}",
                             NULL);
    constraint_run *r = opened(c, BEGIN_CONTENT, 0);
    i32 ids[16];
    assert_true(constraint_run_forced(r, from_start(r, "{\"why\":true"), ids, 16) > 0);
    assert_false(accepts(r, "{\"what\":1,\"why\":true}"));
    assert_true(accepts(r, "{\"why\":true,\"what\":1}"));
    constraint_run_close(r), constraint_release(c);
}

/* A grammar whose every token costs milliseconds: its answer ends, others begin no more; a grammar of few states is
 * followed for ever. */
static void what_is_slow_ends(void **state) {
    (void)state;
    static const char *const slow[] = {"\"[\\\\s\\\\S]*[ae][\\\\s\\\\S]{3000}\"",
                                       "\"([\\\\s\\\\S]{0,9}(a|e|i)[\\\\s\\\\S]{0,40}){1,99}z\""};
    for (size_t i = 0; i < COUNT_OF(slow); i++) {
        constraint *c = compiled((constraint_source){.content = CONTENT_REGEX}, slow[i], NULL);
        constraint_run *r = opened(c, BEGIN_CONTENT, 0), *more;
        i32 at = constraint_run_start(r);
        status st = ST_OK;
        err e = {0};
        i64 n = 0;
        for (u64 seed = 7; st == ST_OK && n < 4000; n++) {
            bool end;
            st = constraint_run_mask(r, at, mask, &end, &e);
            if (st != ST_OK) break;
            i32 id;
            do id = (i32)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % trie->vocab;
            while (!(mask[id / 64] >> id % 64 & 1));
            at = constraint_run_next(r, at, id);
        }
        if (st == ST_OK || !strstr(e.text, "too ")) fail_msg("%zu: %lld tokens: %s", i, (long long)n, e.text);
        e = (err){0};
        const status again = constraint_run_open(&more, c, BEGIN_CONTENT, 0, &e);
        if (again != ST_LIMIT) fail_msg("%zu: a second answer: %d, after %lld tokens", i, again, (long long)n);
        assert_non_null(strstr(e.text, "too long to follow"));
        constraint_run_close(r);
        constraint_release(c);
    }
    constraint *c = compiled((constraint_source){.content = CONTENT_SCHEMA}, "{\"type\": \"array\"}", NULL);
    constraint_run *r = opened(c, BEGIN_CONTENT, 0);
    i32 at = from_start(r, "[");
    for (int k = 0; k < 20000; k++) at = go(r, at, "[[\"a\", 1]],");
    assert_true(at != RUN_DEAD);
    constraint_run_close(r);
    constraint_release(c);
}

static void threads(void **state) {
    (void)state;
    pthread_t all[3];
    constraint *c = compiled((constraint_source){.calls = CALLS_MAYBE}, NULL, two_tools);
    constraint_set_budget(c, 40000); /* walks change under way */
    for (size_t i = 0; i < COUNT_OF(all); i++) pthread_create(&all[i], NULL, answers, constraint_hold(c));
    for (size_t i = 0; i < COUNT_OF(all); i++) pthread_join(all[i], NULL);
    constraint_release(c);
}

/* ---- other vocabularies ---- */

/* nano's with one name spelled otherwise. */
static tokenizer *open_without(const char *name) {
    char dir[] = "/tmp/moonlet-constraint-XXXXXX", path[200], model[4096];
    buf config = {0};
    err e = {0};
    tokenizer *t;
    assert_int_equal(file_read("models/nano/tokenizer_config.json", 1 << 24, &config, &e), ST_OK);
    for (char *at = config.data; (at = strstr(at, name));) at[1] = '#';
    assert_non_null(mkdtemp(dir));
    assert_non_null(realpath("models/nano/tiktoken.model", model));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(config.data, 1, config.len, f) == config.len && !fclose(f));
    snprintf(path, sizeof path, "%s/tiktoken.model", dir);
    assert_int_equal(symlink(model, path), 0);
    if (tokenizer_open(&t, dir, &e) != ST_OK) fail_msg("%s", e.text);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    unlink(path), rmdir(dir);
    buf_free(&config);
    return t;
}

static void lacking(void **state) {
    static const char *const names[] = {"<|tool_call_end|>", "</think>", "<think>"};
    tokenizer *const own = tok;
    token_trie *const own_trie = trie;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        json_t *tools = parsed(two_tools);
        constraint_source source = {.calls = CALLS_MAYBE, .tools = tools};
        constraint *c;
        constraint_run *r;
        err e = {0};
        tok = open_without(names[i]);
        assert_int_equal(token_trie_open(&trie, tok, NULL), ST_OK);
        const status st = constraint_compile(&c, &source, trie, tok, NULL, &e);
        assert_int_equal(st, i ? ST_OK : ST_UNSUPPORTED);
        if (st != ST_OK) assert_string_equal(e.text, "the tokenizer has no <|tool_call_end|>");
        constraint_release(c);
        c = compiled((constraint_source){.content = CONTENT_REGEX}, "\"ab\"", NULL);
        const status thinks = constraint_run_open(&r, c, BEGIN_IN_THINK, 0, &e);
        assert_int_equal(thinks, i == 1 ? ST_UNSUPPORTED : ST_OK);
        if (thinks != ST_OK) assert_string_equal(e.text, "the tokenizer has no </think>");
        constraint_run_close(r);
        r = opened(c, BEGIN_MAY_THINK, 0);
        assert_true(accepts(r, "ab"));
        assert_int_equal(accepts(r, "<think>x</think>ab"), i == 0);
        compare_all(r, constraint_run_start(r));
        constraint_run_close(r);
        constraint_release(c);
        token_trie_close(trie), tokenizer_close(tok);
        json_decref(tools);
    }
    tok = own, trie = own_trie;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_are_steps),
                                       cmocka_unit_test(thinking),
                                       cmocka_unit_test(calls_that_must_come),
                                       cmocka_unit_test(one_call_alone),
                                       cmocka_unit_test(running_indices),
                                       cmocka_unit_test(content_or_calls),
                                       cmocka_unit_test(odd_names),
                                       cmocka_unit_test(space),
                                       cmocka_unit_test(contents),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(warned),
                                       cmocka_unit_test(states_are_gone_back_to),
                                       cmocka_unit_test(walks_are_renewed),
                                       cmocka_unit_test(a_failure_is_left_behind),
                                       cmocka_unit_test(taking_back_is_reading_anew),
                                       cmocka_unit_test(properties_in_order),
                                       cmocka_unit_test(what_is_slow_ends),
                                       cmocka_unit_test(threads),
                                       cmocka_unit_test(lacking)};
    if (tokenizer_open(&tok, "models/nano", NULL) != ST_OK || token_trie_open(&trie, tok, NULL) != ST_OK) return 1;
    mask = malloc((size_t)ceil_div(trie->vocab, 64) * sizeof *mask);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    token_trie_close(trie), tokenizer_close(tok), free(mask);
    return failed;
}
