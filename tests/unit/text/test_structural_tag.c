/* Structural tags: which texts they let pass, against a search for stops written out; errors name the place. */
#include "unit.h"

#include "text/grammar/free_text.h"
#include "text/grammar/matcher.h"
#include "text/grammar/structural_tag.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    grammar *g;
    matcher *m;
} walked;

static void walked_close(walked *w) {
    matcher_close(w->m);
    grammar_free(w->g);
}

static bool accepts(const walked *w, const char *text, size_t len) {
    i32 at = matcher_start(w->m);
    for (size_t i = 0; i < len && at != MATCHER_DEAD; i++) at = matcher_next(w->m, at, (u8)text[i]);
    return matcher_accepts(w->m, at);
}

static status tag_status(const char *text, bool strict, buf *warnings, walked *w, err *e) {
    json_t *tag = json_parse(text, strlen(text), "a tag", NULL);
    i32 root;
    if (!tag) fail_msg("no JSON: %s", text);
    *w = (walked){grammar_new(), NULL};
    status st = structural_tag_to_node(w->g, tag, strict, NULL, warnings, &root, e);
    if (st == ST_OK) st = grammar_finish(w->g, root, e);
    if (st == ST_OK) st = matcher_open(&w->m, w->g, e);
    json_decref(tag);
    return st;
}

/* good, bad: texts, each with a NUL behind it, and one more. */
static void check(const char *format, const char *good, const char *bad) {
    char tag[4000];
    walked w;
    err e = {0};
    snprintf(tag, sizeof tag, strstr(format, "structural_tag") ? "%s" : "{\"type\":\"structural_tag\",\"format\":%s}",
             format);
    if (tag_status(tag, true, NULL, &w, &e) != ST_OK) fail_msg("%s: %s", format, e.text);
    for (; *good; good += strlen(good) + 1)
        if (!accepts(&w, good + 1, strlen(good + 1))) fail_msg("%s refuses %s", format, good + 1);
    for (; *bad; bad += strlen(bad) + 1)
        if (accepts(&w, bad + 1, strlen(bad + 1))) fail_msg("%s accepts %s", format, bad + 1);
    walked_close(&w);
}
/* A text of the lists: the first byte tells the empty text from the list's end. */
#define T(text) "=" text "\0"

#define TEXT(value)  "{\"type\":\"const_string\",\"value\":\"" value "\"}"
#define ANY          "{\"type\":\"any_text\"}"
#define OBJECT       "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"object\"}}"
#define LIST(a, b)   "[" a "," b "]"
#define TAG(b, c, e) "{\"type\":\"tag\",\"begin\":\"" b "\",\"content\":" c ",\"end\":\"" e "\"}"

static void one_text(void **state) {
    (void)state;
    check(TEXT("a\\\"b"), T("a\"b"), T("") T("a"));
    check(OBJECT, T("{}") T("{\"a\": [1]}"), T("[]") T("x{}"));
    check("{\"type\":\"json_schema\",\"json_schema\":true,\"style\":\"json\",\"any_order\":false}", T("1"), T("x"));
    check("{\"type\":\"regex\",\"pattern\":\"[ab]+\"}", T("abba"), T("") T("abc"));
    check("{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"(\\\" root \\\")\\\" | \\\"x\\\"\"}", T("((x))"),
          T("((x)"));
    check(ANY, T("") T("anything \xe4\xbd\xa0 {"), T("\xff") T("\xe4\xbd"));
    check("{\"type\":\"any_text\",\"excludes\":[\"<a>\",\"b\"],\"max_tokens\":null}", T("") T("<a<a a>"),
          T("x<a>") T("<<a>x") T("ab"));
}

static void compositions(void **state) {
    (void)state;
    check("{\"type\":\"sequence\",\"elements\":" LIST(TEXT("a"), OBJECT) "}", T("a{}"), T("{}") T("a") T("{}a"));
    check("{\"type\":\"or\",\"elements\":" LIST(TEXT("a"), TEXT("ab")) "}", T("a") T("ab"), T("") T("aab"));
    check("{\"type\":\"optional\",\"content\":" TEXT("ab") "}", T("") T("ab"), T("a") T("abab"));
    check("{\"type\":\"star\",\"content\":" TEXT("ab") "}", T("") T("ab") T("ababab"), T("a") T("aba"));
    check("{\"type\":\"plus\",\"content\":" TEXT("ab") "}", T("ab") T("ababab"), T("") T("aba"));
    check("{\"type\":\"repeat\",\"min\":2,\"max\":3,\"content\":" TEXT("a") "}", T("aa") T("aaa"), T("a") T("aaaa"));
    check("{\"type\":\"repeat\",\"min\":2,\"max\":-1,\"content\":" TEXT("a") "}", T("aa") T("aaaaaa"), T("a"));
}

static void tags(void **state) {
    (void)state;
    check(TAG("<a>", OBJECT, "</a>"), T("<a>{}</a>"), T("<a></a>") T("{}") T("<a>{}"));
    check(TAG("<a>", ANY, "</a>"), T("<a></a>") T("<a><a></</a>"), T("<a>") T("<a></a></a>") T("<a></a>x"));
    check(TAG("", ANY, "aa"), T("aa") T("baa") T("abaa"), T("aaa") T("aabaa") T("a"));
    check("{\"type\":\"tag\",\"begin\":\"[\",\"content\":" ANY ",\"end\":[\"]\",\"!\"]}", T("[x]") T("[x!"),
          T("[x]!") T("[x!]") T("[x"));
    check(TAG("<", ANY, ""), T("<") T("<x<"), T("") T("x"));
    /* nearest end; what is not last in a tag is without it, too */
    check(TAG("(", "{\"type\":\"sequence\",\"elements\":" LIST(ANY, TEXT("!")) "}", ")"), T("(a!)") T("(!!)"),
          T("(a)!)") T("(a)"));
    check(TAG("(", "{\"type\":\"sequence\",\"elements\":" LIST(TEXT("!"), ANY) "}", ")"), T("(!a)") T("(!)"),
          T("(a)") T("(!a))"));
    check(TAG("(", "{\"type\":\"or\",\"elements\":" LIST(ANY, TEXT("a)b")) "}", ")"), T("(x)") T("(a)b)"), T("(a)c)"));
    check(TAG("(", TAG("[", ANY, "]"), ")"), T("([)])"), T("([])]") T("([])x"));
    check(TAG("(", "{\"type\":\"star\",\"content\":" TAG("[", ANY, "]") "}", ")"), T("()") T("([a][b)])"), T("([a]x)"));
}

#define F(name)         TAG("<f=" name ">", OBJECT, "</f>")
#define TRIGGERED(more) "{\"type\":\"triggered_tags\",\"triggers\":[\"<f=\"],\"tags\":" LIST(F("a"), F("bc")) more "}"

static void triggered(void **state) {
    (void)state;
    check(TRIGGERED(""),
          T("") T("free <f text") T("x<f=a>{}</f>") T("<f=a>{}</f><f=bc>{\"x\":1}</f> and <f=a>{}</f> more"),
          T("<f=") T("x <f=d>") T("<f=a>{}") T("<f=a>x</f>") T("<f=a>{}</f><f=x>"));
    check(TRIGGERED(",\"at_least_one\":true"), T("<f=a>{}</f>") T("<f=bc>{}</f> then <f=a>{}</f>!"),
          T("") T("x<f=a>{}</f>"));
    check(TRIGGERED(",\"stop_after_first\":true"), T("") T("x") T("x<f=a>{}</f>"), T("<f=a>{}</f> "));
    check(TRIGGERED(",\"at_least_one\":true,\"stop_after_first\":true"), T("<f=a>{}</f>"),
          T("") T("x") T("<f=a>{}</f>x") T("<f=a>{}</f><f=a>{}</f>"));
    check(TRIGGERED(",\"excludes\":[\"no\"]"), T("n o") T("n<f=a>{\"no\": 1}</f>"), T("no") T("<f=a>{}</f>no"));
    check(TAG("<o>", TRIGGERED(""), "</o>"), T("<o></o>") T("<o>x<f=a>{\"</o>\":1}</f>y</o>"),
          T("<o>") T("<o></o></o>"));
    check(TAG("<o>", TRIGGERED(",\"stop_after_first\":true"), "</o>"), T("<o>x</o>") T("<o>x<f=a>{}</f></o>"),
          T("<o>x<f=a>{}</f>y</o>"));
    /* two triggers, and one that no tag has */
    check(
        "{\"type\":\"triggered_tags\",\"triggers\":[\"<a\",\"<b\",\"<c\"],\"tags\":[{\"begin\":\"<a>\",\"content\":" TEXT(
            "1") ",\"end\":\"</a>\"},{\"begin\":\"<b\",\"content\":" TEXT("2") ",\"end\":\"!\"}]}",
        T("x<a>1</a><b2!") T("<<b2!<"), T("<c") T("<b1!") T("<a>2</a>") T("<a"));
    check("{\"type\":\"structural_tag\",\"triggers\":[\"<f=\"],\"structures\":[{\"begin\":\"<f=a>\",\"end\":\"</f>\","
          "\"schema\":{\"type\":\"integer\"}}]}",
          T("") T("x<f=a>1</f>y"), T("<f=a>a</f>") T("<f=b"));
}

static void dispatch_and_lists(void **state) {
    (void)state;
    static const char rules[] = "{\"type\":\"dispatch\",\"rules\":[[\"<a>\"," TEXT("1") "],[\"<b>\"," ANY "]]%s}";
    char text[1000];
    snprintf(text, sizeof text, rules, "");
    check(text, T("") T("x<a>1y<a>1") T("<b>any<a>1"), T("<a>2") T("<a>"));
    snprintf(text, sizeof text, rules, ",\"loop\":false");
    check(text, T("") T("x<a>1") T("x<b>any <a>2"), T("<a>1x"));
#define SEPARATED(more)                                                                                                \
    "{\"type\":\"tags_with_separator\",\"tags\":" LIST(F("a"), F("b")) ",\"separator\":\", \"" more "}"
    check(SEPARATED(""), T("") T("<f=a>{}</f>") T("<f=a>{}</f>, <f=b>{}</f>, <f=a>{}</f>"),
          T(" ") T("<f=a>{}</f>, ") T("<f=a>{}</f><f=a>{}</f>"));
    check(SEPARATED(",\"at_least_one\":true"), T("<f=a>{}</f>") T("<f=a>{}</f>, <f=b>{}</f>"), T(""));
    check(SEPARATED(",\"stop_after_first\":true"), T("") T("<f=a>{}</f>"), T("<f=a>{}</f>, <f=b>{}</f>"));
    check(SEPARATED(",\"at_least_one\":true,\"stop_after_first\":true"), T("<f=b>{}</f>"), T(""));
    check(TAG("(", SEPARATED(""), ")"), T("()") T("(<f=a>{}</f>)"), T("(") T("( )"));
}

/* ---- errors ---- */

static void refused(void **state) {
    static const struct {
        const char *format;
        status st;
        const char *text;
    } all[] = {
        {"7", ST_INPUT, "structural tag, at #/format: it is no format"},
        {"{\"type\":\"any_tokens\"}", ST_UNSUPPORTED, "structural tag, at #/format: format \"any_tokens\""},
        {"{\"type\":\"any_text\",\"max_tokens\":5}", ST_UNSUPPORTED, "structural tag, at #/format: \"max_tokens\""},
        {"{\"type\":\"any_text\",\"excludes\":[\"\"]}", ST_INPUT, "structural tag, at #/format: "},
        {"{\"type\":\"any_text\",\"excludes\":3}", ST_INPUT, "structural tag, at #/format: "},
        {"{\"type\":\"const_string\"}", ST_INPUT, "structural tag, at #/format: \"value\" is nothing"},
        {"{\"type\":\"sequence\",\"elements\":[]}", ST_INPUT, "structural tag, at #/format: \"elements\""},
        {"{\"type\":\"sequence\",\"elements\":[" ANY ",{\"type\":\"x\"}]}", ST_UNSUPPORTED,
         "structural tag, at #/format/elements/1: "},
        {"{\"type\":\"json_schema\",\"json_schema\":{\"not\":{}}}", ST_UNSUPPORTED,
         "structural tag, at #/format: schema, at #: "},
        {"{\"type\":\"json_schema\"}", ST_INPUT, "structural tag, at #/format: "},
        {"{\"type\":\"json_schema\",\"json_schema\":{},\"style\":\"qwen_xml\"}", ST_UNSUPPORTED,
         "structural tag, at #/format: "},
        {"{\"type\":\"regex\",\"pattern\":\"(\"}", ST_INPUT, "structural tag, at #/format: "},
        {"{\"type\":\"grammar\",\"grammar\":\"x\"}", ST_INPUT, "structural tag, at #/format: grammar"},
        {"{\"type\":\"repeat\",\"min\":3,\"max\":2,\"content\":" ANY "}", ST_INPUT, "structural tag, at #/format: "},
        {TAG("a", "{}", "b"), ST_INPUT, "structural tag, at #/format/content: "},
        {"{\"type\":\"tag\",\"begin\":{\"type\":\"token\"},\"content\":" ANY ",\"end\":\"x\"}", ST_UNSUPPORTED,
         "structural tag, at #/format: "},
        {"{\"type\":\"tag\",\"begin\":\"x\",\"content\":" ANY "}", ST_INPUT, "structural tag, at #/format: \"end\""},
        {"{\"type\":\"tag\",\"begin\":\"x\",\"content\":" ANY ",\"end\":[\"\",\"x\"]}", ST_UNSUPPORTED,
         "structural tag, at #/format: \"end\""},
        {"{\"type\":\"triggered_tags\",\"triggers\":[\"<g\"],\"tags\":[" F("a") "]}", ST_INPUT,
         "structural tag, at #/format: tag 0 begins with no"},
        {"{\"type\":\"triggered_tags\",\"triggers\":[\"<f\",\"<\"],\"tags\":[" F("a") "]}", ST_INPUT,
         "structural tag, at #/format: tag 0 begins with more"},
        {"{\"type\":\"triggered_tags\",\"triggers\":[\"\"],\"tags\":[" F("a") "]}", ST_INPUT,
         "structural tag, at #/format: a trigger"},
        {"{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[" TAG("<f", "{\"type\":\"or\",\"elements\":[]}",
                                                                             "x") "]}",
         ST_INPUT, "structural tag, at #/format/tags/0/content: "},
        {"{\"type\":\"dispatch\",\"rules\":[[\"a\"]]}", ST_INPUT, "structural tag, at #/format/rules/0: "},
        {"{\"type\":\"tags_with_separator\",\"tags\":[" F("a") "]}", ST_INPUT,
         "structural tag, at #/format: \"separator\""},
        {"{\"type\":\"tags_with_separator\",\"tags\":[" F("a") "],\"separator\":\"\",\"at_least_one\":1}", ST_INPUT,
         "structural tag, at #/format: \"at_least_one\""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        char tag[2000];
        walked w;
        err e = {0};
        snprintf(tag, sizeof tag, "{\"type\":\"structural_tag\",\"format\":%s}", all[i].format);
        const status st = tag_status(tag, true, NULL, &w, &e);
        if (st != all[i].st || strncmp(e.text, all[i].text, strlen(all[i].text)))
            fail_msg("%s: %d, %s", tag, (int)st, e.text);
        walked_close(&w);
        assert_int_equal(tag_status(tag, true, NULL, &w, NULL), st);
        walked_close(&w);
    }
}

static void warned(void **state) {
    walked w;
    buf warnings = {0};
    (void)state;
    assert_int_equal(
        tag_status(
            "{\"type\":\"structural_tag\",\"format\":{\"type\":\"json_schema\",\"json_schema\":{\"not\":{},\"odd\":1}}}",
            false, &warnings, &w, NULL),
        ST_OK);
    assert_string_equal(warnings.data, "structural tag, at #/format: passed over: \"not\"\n");
    walked_close(&w);
    buf_free(&warnings);
}

/* ---- free text ---- */

static bool ends_with(const char *text, size_t n, const free_stop *s) {
    return n >= s->len && !memcmp(text + n - s->len, s->text, s->len);
}

/* group of a stop at the first place where one ends, and only there; -1: there is none. */
static bool free_text_is(const char *text, size_t len, const free_stop *stops, size_t n, i32 group) {
    for (size_t at = 0; at <= len; at++) {
        bool any = false, own = false;
        for (size_t i = 0; i < n; i++)
            if (ends_with(text, at, &stops[i])) any = true, own = own || stops[i].group == group;
        if (any) return at == len && own;
    }
    return group < 0;
}

static void random_stops(void **state) {
    static const char *const pieces[] = {"a", "b", "ab", "\xc3\xa9", "\xc3\xa8"};
    u32 seed = 3;
    (void)state;
#define DRAW(n) ((seed = seed * 1664525u + 1013904223u) >> 8) % (n)
    for (int k = 0; k < 300; k++) {
        char texts[4][40];
        free_stop stops[4];
        const size_t n = 1 + DRAW(4);
        for (size_t i = 0; i < n; i++) {
            texts[i][0] = 0;
            for (u32 p = 1 + DRAW(3); p; p--) strcat(texts[i], pieces[DRAW(COUNT_OF(pieces))]);
            stops[i] = (free_stop){texts[i], strlen(texts[i]), (i32)(DRAW(2))};
        }
        for (i32 group = -1; group < 2; group++) {
            walked w = {grammar_new(), NULL};
            i32 root;
            assert_int_equal(free_text_node(w.g, stops, n, group, &root, NULL), ST_OK);
            if (grammar_finish(w.g, root, NULL) == ST_OK) {
                assert_int_equal(matcher_open(&w.m, w.g, NULL), ST_OK);
                for (int t = 0; t < 100; t++) {
                    char text[80] = "";
                    for (u32 p = DRAW(8); p; p--) strcat(text, pieces[DRAW(COUNT_OF(pieces))]);
                    assert_int_equal(accepts(&w, text, strlen(text)),
                                     free_text_is(text, strlen(text), stops, n, group));
                }
            }
            walked_close(&w);
        }
    }
}

static void too_many(void **state) {
    buf long_text = {0};
    grammar *g = grammar_new();
    i32 node;
    (void)state;
    for (int i = 0; i < 5000; i++) buf_char(&long_text, 'a');
    assert_int_equal(free_text_node(g, &(free_stop){long_text.data, 5000, 0}, 1, 0, &node, NULL), ST_LIMIT);
    assert_int_equal(free_text_node(g, &(free_stop){long_text.data, 4000, 0}, 1, 0, &node, NULL), ST_OK);
    grammar_free(g);
    buf_free(&long_text);
}

/* Each schema is within its own second; all together are not. */
static void schemas_together(void **state) {
    buf text = {0}, plain = {0};
    walked w;
    err e = {0};
    (void)state;
    for (int i = 0; i < 400; i++) {
        buf_fmt(&text, "%s{\"type\":\"tag\",\"begin\":\"%d\",\"content\":{\"type\":\"json_schema\",\"json_schema\":",
                i ? "," : "", i);
        buf_fmt(&text, "{\"type\":\"object\",\"patternProperties\":{\"a.{6}$\":{},\"b.{5}$\":{}}}},\"end\":\"<\"}");
    }
    buf_fmt(&plain, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"or\",\"elements\":[%s]}}", text.data);
    assert_int_equal(tag_status(plain.data, true, NULL, &w, &e), ST_LIMIT);
    if (!strstr(e.text, "together take")) fail_msg("%s", e.text);
    walked_close(&w);
    buf_free(&text), buf_free(&plain);
}

/* Behind a byte each of them may be over, and so all behind it begin: once each, and that is paid for. */
static void many_that_may_be_empty(void **state) {
    enum { PARTS = 900, FUEL = 1 << 30 };
    buf text = {0};
    walked w;
    err e = {0};
    (void)state;
    buf_str(&text, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"sequence\",\"elements\":[");
    for (int i = 0; i < PARTS; i++) buf_fmt(&text, "%s{\"type\":\"any_text\"}", i ? "," : "");
    buf_str(&text, "]}}");
    if (tag_status(text.data, true, NULL, &w, &e) != ST_OK) fail_msg("%s", e.text);
    grammar_meter(w.g);
    w.g->fuel = FUEL;
    const clock_t start = clock();
    for (int b = 'a'; b <= 'z'; b++) assert_true(matcher_next(w.m, matcher_start(w.m), (u8)b) >= 0);
    assert_true(clock() - start < CLOCKS_PER_SEC / 2);
    assert_in_range(FUEL - w.g->fuel, 26 * 10 * PARTS, 26 * 100 * PARTS);
    walked_close(&w);
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_text),         cmocka_unit_test(compositions),          cmocka_unit_test(tags),
        cmocka_unit_test(triggered),        cmocka_unit_test(dispatch_and_lists),    cmocka_unit_test(refused),
        cmocka_unit_test(warned),           cmocka_unit_test(random_stops),          cmocka_unit_test(too_many),
        cmocka_unit_test(schemas_together), cmocka_unit_test(many_that_may_be_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
