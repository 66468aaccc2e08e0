/* Forced ids: they are what the tokenizer makes of the text, whatever comes behind it, and each may come. */
#include "unit.h"

#include "text/grammar/constraint.h"
#include "text/split.h"
#include "text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tokenizer *tok;
static token_trie *trie;
static u64 *mask;
static u64 seed = 5;

enum { IDS_MOST = 5000 };

static u32 draw(u32 n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (u32)((seed >> 33) % n);
}

static constraint_run *opened(constraint **c, constraint_source source, const char *value, const char *tools,
                              i64 first_call) {
    json_t *v = value ? json_parse(value, strlen(value), "a test", NULL) : NULL;
    json_t *t = tools ? json_parse(tools, strlen(tools), "a test", NULL) : NULL;
    constraint_run *r;
    err e = {0};
    source.value = v, source.tools = t;
    if (constraint_compile(c, &source, trie, tok, NULL, &e) != ST_OK) fail_msg("%s: %s", value, e.text);
    assert_int_equal(constraint_run_open(&r, *c, BEGIN_CONTENT, first_call, &e), ST_OK);
    json_decref(v), json_decref(t);
    return r;
}

static bool may_come(constraint_run *r, i32 state, i32 id, bool *end) {
    assert_int_equal(constraint_run_mask(r, state, mask, end, NULL), ST_OK);
    return mask[id / 64] >> id % 64 & 1;
}

/* Some id of the mask; -1: there is none, or the answer ends here. */
static i32 drawn_id(constraint_run *r, i32 state, bool must_end) {
    bool end;
    i32 found = -1;
    u32 n = 0;
    assert_int_equal(constraint_run_mask(r, state, mask, &end, NULL), ST_OK);
    for (i32 w = 0; w < ceil_div(trie->vocab, 64); w++)
        for (u64 left = mask[w]; left; left &= left - 1)
            if (!draw(++n)) found = 64 * w + __builtin_ctzll(left);
    return end && (must_end || !n || !draw(4)) ? -1 : found;
}

static bool ends_a_piece(const buf *text, size_t n) {
    size_t at = 0;
    while (at < n) at += split_piece((const u8 *)text->data + at, text->len - at);
    return at == n;
}

/* From the beginning: what is forced, then anything. pieces: there are no marks. */
static void check_from_start(constraint_run *r, const char *name, bool pieces) {
    static i32 ids[IDS_MOST];
    const i64 n = constraint_run_forced(r, constraint_run_start(r), ids, IDS_MOST);
    i32 state = constraint_run_start(r);
    buf text = {0};
    bool end;
    for (i64 i = 0; i < n; i++) {
        if (!may_come(r, state, ids[i], &end) || end) fail_msg("%s: forced id %d", name, (int)i);
        state = constraint_run_next(r, state, ids[i]);
        assert_true(state != RUN_DEAD);
        tokenizer_decode_bytes(tok, &ids[i], 1, false, &text, NULL);
    }
    const size_t n_bytes = text.len;
    for (i32 step = 0, id; step < 60 && (id = drawn_id(r, state, step > 30)) >= 0; step++) {
        tokenizer_decode_bytes(tok, &id, 1, false, &text, NULL);
        state = constraint_run_next(r, state, id);
        assert_true(state != RUN_DEAD);
    }
    ids_buf all = {0};
    assert_int_equal(tokenizer_encode(tok, text.data ? text.data : "", text.len, true, &all, NULL), ST_OK);
    bool same = (i64)all.len >= n;
    for (i64 i = 0; same && i < n; i++) same = all.data[i] == ids[i];
    if (!same) fail_msg("%s: forced ids are others than those of: %s", name, text.data);
    if (pieces && !ends_a_piece(&text, n_bytes))
        fail_msg("%s: forced text ends inside a piece of: %s", name, text.data);
    ids_free(&all), buf_free(&text);
}

/* All along a random answer forced ids may come, and no other way is open to their bytes. */
static void check_along(constraint_run *r, const char *name) {
    static i32 ids[IDS_MOST];
    i32 state = constraint_run_start(r);
    bool end;
    for (i32 step = 0, id; step < 40; step++) {
        const i64 n = constraint_run_forced(r, state, ids, IDS_MOST);
        i32 at = state;
        for (i64 i = 0; i < n && at != RUN_DEAD; i++) {
            if (!may_come(r, at, ids[i], &end) || end) fail_msg("%s: forced id %d of %d", name, (int)i, (int)n);
            at = constraint_run_next(r, at, ids[i]);
        }
        assert_true(at != RUN_DEAD);
        i32 few[3];
        const i64 n_few = constraint_run_forced(r, state, few, 3);
        assert_int_equal(n_few, min_i64(n, 3));
        for (i64 i = 0; i < n_few; i++) assert_int_equal(few[i], ids[i]);
        if (n && draw(2)) {
            state = at;
            continue;
        }
        if ((id = drawn_id(r, state, false)) < 0) return;
        state = constraint_run_next(r, state, id);
    }
}

/* ---- random ---- */

/* Characters of all kinds that the split pattern tells apart. */
static const char *const characters[] = {"a",
                                         "b",
                                         "r",
                                         "e",
                                         "s",
                                         "l",
                                         "'",
                                         "'",
                                         "A",
                                         "B",
                                         "1",
                                         "23",
                                         " ",
                                         " ",
                                         "\\n",
                                         "\\r",
                                         "\\t",
                                         "!",
                                         ".",
                                         "(",
                                         "\xe3\x81\x82",
                                         "\xe4\xbd\xa0",
                                         "\xcc\x81",
                                         "\xc5\xbf",
                                         "\xc7\x85",
                                         "\xd0\x96",
                                         "\xc2\xa0",
                                         "\xf0\x9f\x98\x80",
                                         "\\\\",
                                         "\\\""};

/* Few at a time, so that they meet. */
static const char *few[4];

static void add_random_text(buf *b, u32 most) {
    buf_char(b, '"');
    for (u32 n = 1 + draw(most); n; n--) buf_str(b, few[draw(COUNT_OF(few))]);
    buf_char(b, '"');
}

/* A text, then a choice of texts, some of which begin alike, then perhaps something that may go on. */
static void random_grammar(buf *b) {
    for (size_t i = 0; i < COUNT_OF(few); i++) few[i] = characters[draw(COUNT_OF(characters))];
    buf_str(b, "root ::= ");
    if (draw(8)) add_random_text(b, 8);
    buf_str(b, " (");
    for (u32 n = 1 + draw(4); n; n--) {
        add_random_text(b, 3);
        buf_str(b, n > 1 ? " | " : ") ");
    }
    if (draw(2)) add_random_text(b, 6);
    if (!draw(3)) buf_str(b, " [a-z' \\n]*");
}

static void random_grammars(void **state) {
    (void)state;
    for (int k = 0; k < 1500; k++) {
        buf text = {0}, json = {0};
        constraint *c;
        random_grammar(&text);
        buf_json_str(&json, text.data, text.len);
        constraint_run *r = opened(&c, (constraint_source){.content = CONTENT_EBNF}, json.data, NULL, 0);
        for (int times = 0; times < 6; times++) check_from_start(r, text.data, true);
        check_along(r, text.data);
        constraint_run_close(r);
        constraint_release(c);
        buf_free(&text), buf_free(&json);
    }
}

static const char tools[] =
    "[{\"function\":{\"name\":\"get_weather\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"city\":{\"enum\":[\"Oslo\",\"Oshawa\"]},\"when it's\":{\"type\":\"boolean\"}},\"required\":[\"city\",\"when it's\"],"
    "\"additionalProperties\":false}}}]";

static void schemas_and_calls(void **state) {
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"],"
        "\"additionalProperties\":false}",
        "{\"const\":{\"it's\":[1,2,{\"\xe3\x81\x82"
        "AB\":\"\\n \\n\"}]}}",
        "{\"enum\":[\"getWeather\",\"getWeathers\",\"get\"]}", "{\"type\":\"array\",\"items\":{\"const\":null}}"};
    (void)state;
    for (int space = JSON_SPACE_ANY; space <= JSON_SPACE_NONE; space++) {
        constraint *c;
        constraint_source source = {.content = CONTENT_SCHEMA, .strict = true, .space = (json_space)space};
        for (size_t i = 0; i < COUNT_OF(schemas); i++) {
            constraint_run *r = opened(&c, source, schemas[i], NULL, 0);
            for (int times = 0; times < 40; times++) check_from_start(r, schemas[i], true), check_along(r, schemas[i]);
            constraint_run_close(r);
            constraint_release(c);
        }
        source = (constraint_source){.calls = CALLS_MUST, .space = (json_space)space};
        constraint_run *r = opened(&c, source, NULL, tools, 2);
        for (int times = 0; times < 100; times++) check_from_start(r, "tools", false), check_along(r, "tools");
        constraint_run_close(r);
        constraint_release(c);
    }
}

/* ---- what exactly ---- */

static void expect_forced(constraint_run *r, i32 state, const char *text) {
    i32 ids[IDS_MOST];
    const i64 n = constraint_run_forced(r, state, ids, IDS_MOST);
    ids_buf all = {0};
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), true, &all, NULL), ST_OK);
    assert_int_equal(n, all.len);
    for (i64 i = 0; i < n; i++) assert_int_equal(ids[i], all.data[i]);
    ids_free(&all);
}

static void expect_of_grammar(const char *text, const char *forced) {
    buf json = {0};
    constraint *c;
    buf_json_str(&json, text, strlen(text));
    constraint_run *r = opened(&c, (constraint_source){.content = CONTENT_EBNF}, json.data, NULL, 0);
    expect_forced(r, constraint_run_start(r), forced);
    constraint_run_close(r);
    constraint_release(c);
    buf_free(&json);
}

static void pieces_that_stay(void **state) {
    (void)state;
    expect_of_grammar("root ::= \"one two three\"", "one two three");
    expect_of_grammar("root ::= \"one two three\" [0-9]*", "one two");
    expect_of_grammar("root ::= \"one two'\" [0-9s]", "one");
    expect_of_grammar("root ::= \"one two'r\" [0-9e]", "one");
    expect_of_grammar("root ::= \"one two'r!\" [0-9e]", "one two'r");
    expect_of_grammar("root ::= \"x\\n  \" [a-z ]", "x");
    expect_of_grammar("root ::= \"x\\n  y\" [a-z ]", "x\n ");
    expect_of_grammar("root ::= \"\xe3\x81\x82"
                      "AB\" [a-z!]",
                      "");
    expect_of_grammar("root ::= \"\xe3\x81\x82"
                      "AB!\" [a-z!]",
                      "\xe3\x81\x82"
                      "AB");
    expect_of_grammar("root ::= \"getWeather\" [a-z]", "get");
    expect_of_grammar("root ::= \"no \\u4f60\" | \"no \\u4f61\"", "no");
    expect_of_grammar("root ::= [ab]", "");
    expect_of_grammar("root ::= \"ab\"?", "");
    expect_of_grammar("root ::= \"\"", "");
}

static void marks_end_text(void **state) {
    constraint *c;
    constraint_run *r = opened(&c, (constraint_source){.calls = CALLS_MUST, .space = JSON_SPACE_NONE}, NULL, tools, 12);
    (void)state;
    expect_forced(
        r, constraint_run_start(r),
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:12<|tool_call_argument_begin|>");
    constraint_run_close(r);
    constraint_release(c);
    r = opened(&c, (constraint_source){.calls = CALLS_MUST, .one_call = true}, NULL,
               "[{\"function\":{\"name\":\"a\",\"strict\":true,\"parameters\":{\"maxProperties\":0}}}]", 0);
    i32 at = constraint_run_start(r);
    i32 ids[100];
    const i64 n = constraint_run_forced(r, at, ids, 100);
    for (i64 i = 0; i < n; i++) at = constraint_run_next(r, at, ids[i]);
    at = constraint_run_next_text(r, at, "{}", 2);
    expect_forced(r, at, "<|tool_call_end|><|tool_calls_section_end|>");
    constraint_run_close(r);
    /* nothing is forced in thought */
    assert_int_equal(constraint_run_open(&r, c, BEGIN_IN_THINK, 0, NULL), ST_OK);
    expect_forced(r, constraint_run_start(r), "");
    constraint_run_close(r);
    assert_int_equal(constraint_run_open(&r, c, BEGIN_MAY_THINK, 0, NULL), ST_OK);
    expect_forced(r, constraint_run_start(r), "");
    constraint_run_close(r);
    constraint_release(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_that_stay), cmocka_unit_test(marks_end_text),
                                       cmocka_unit_test(schemas_and_calls), cmocka_unit_test(random_grammars)};
    if (tokenizer_open(&tok, "models/nano", NULL) != ST_OK || token_trie_open(&trie, tok, NULL) != ST_OK) return 1;
    mask = malloc((size_t)ceil_div(trie->vocab, 64) * sizeof *mask);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    token_trie_close(trie), tokenizer_close(tok), free(mask);
    return failed;
}
