/* The parser of the model's output. Every case runs as one text, as text cut after every character, cut at
 * random, and as token ids; all must give the same result. The cases follow the public tests of SGLang's and
 * vLLM's kimi_k2 parsers, where the two agree or where text/parse.h decides. */
#include <malloc.h>
#include "vectors.h"
#include "stub_tokenizer.h"
#include "text/parse.h"
#include "text/schema_check.h"

#define SB  "<|tool_calls_section_begin|>"
#define SE  "<|tool_calls_section_end|>"
#define CB  "<|tool_call_begin|>"
#define AB  "<|tool_call_argument_begin|>"
#define CE  "<|tool_call_end|>"
#define SB1 "<|tool_call_section_begin|>"
#define SE1 "<|tool_call_section_end|>"

typedef struct {
    buf reasoning, content, calls; /* calls: "name id arguments\n" each; "!" before the newline when cut off */
    size_t n_calls, n_bytes;
    bool open;
    parse_kind last;
} result;

static status collect(void *ud, const parse_event *ev, err *e) {
    (void)e;
    result *r = ud;
    assert_true(ev->kind == PARSE_CALL_BEGIN || ev->kind == PARSE_CALL_END || ev->len > 0);
    if (ev->kind >= PARSE_CALL_ARGS) {
        assert_true(r->open);
        assert_int_equal(ev->index, r->n_calls - 1);
    } else {
        assert_false(r->open); /* a call is complete before anything else comes */
    }
    r->n_bytes += ev->len;
    switch (ev->kind) {
    case PARSE_REASONING:
        assert_int_equal(r->content.len + r->n_calls, 0); /* reasoning comes first */
        buf_add(&r->reasoning, ev->text, ev->len);
        break;
    case PARSE_CONTENT: buf_add(&r->content, ev->text, ev->len); break;
    case PARSE_CALL_BEGIN:
        assert_int_equal(ev->index, r->n_calls);
        r->n_calls++;
        r->open = true;
        buf_fmt(&r->calls, "%s %s ", ev->name, ev->id);
        break;
    case PARSE_CALL_ARGS: buf_add(&r->calls, ev->text, ev->len); break;
    case PARSE_CALL_END:
        r->open = false;
        buf_str(&r->calls, ev->complete ? "\n" : "!\n");
        break;
    }
    return ST_OK;
}

static void free_result(result *r) {
    buf_free(&r->reasoning);
    buf_free(&r->content);
    buf_free(&r->calls);
}

typedef struct {
    const char *name, *flags; /* flags: t in_think, p plain, n no_calls, x: not for ids (spelled markers) */
    const char *tools, *text, *reasoning, *content, *calls;
} parse_case;

static parse_options options_of(const parse_case *c, json_t **tools) {
    *tools = c->tools ? parse_json(c->tools) : NULL;
    return (parse_options){.tools = *tools,
                           .in_think = strchr(c->flags, 't') != NULL,
                           .plain = strchr(c->flags, 'p') != NULL,
                           .no_calls = strchr(c->flags, 'n') != NULL};
}

static const char *text_of(const buf *b) { return b->len ? b->data : ""; }

static void compare(const parse_case *c, const char *how, const result *r, size_t n_in) {
    if (strcmp(text_of(&r->reasoning), c->reasoning) || strcmp(text_of(&r->content), c->content) ||
        strcmp(text_of(&r->calls), c->calls))
        fail_msg("%s (%s)\nreasoning \"%s\"\ncontent \"%s\"\ncalls %s", c->name, how, text_of(&r->reasoning),
                 text_of(&r->content), text_of(&r->calls));
    assert_false(r->open);
    assert_true(r->n_bytes <= n_in);
}

/* step 0: at random */
static void run_text(const parse_case *c, size_t step, const char *how) {
    json_t *tools;
    parse_options o = options_of(c, &tools);
    parser *p;
    result r = {0};
    err e = {0};
    size_t n = strlen(c->text);
    assert_int_equal(parser_open(&p, NULL, &o, collect, &r, &e), ST_OK);
    for (size_t i = 0, len; i < n; i += len) {
        len = step ? step : 1 + (size_t)rand() % 40;
        if (len > n - i) len = n - i;
        while (i + len < n && ((u8)c->text[i + len] & 0xc0) == 0x80) len++;
        assert_int_equal(parse_add_text(p, c->text + i, len, &e), ST_OK);
    }
    assert_int_equal(parse_end(p, &e), ST_OK);
    compare(c, how, &r, n);
    parser_close(p);
    free_result(&r);
    json_decref(tools);
}

/* The ids as the model would give them: markers as their ids, everything else as bytes. */
static void ids_of(const char *text, ids_buf *ids) {
    while (*text) {
        i32 special = -1;
        for (i32 i = 0; k25_specials[i]; i++)
            if (!strncmp(text, k25_specials[i], strlen(k25_specials[i]))) special = i;
        ids_add(ids, special >= 0 ? 256 + special : (u8)*text);
        text += special >= 0 ? strlen(k25_specials[special]) : 1;
    }
}

static void run_ids(const parse_case *c) {
    json_t *tools;
    parse_options o = options_of(c, &tools);
    parser *p;
    ids_buf ids = {0};
    result r = {0};
    err e = {0};
    ids_of(c->text, &ids);
    assert_int_equal(parser_open(&p, &k25_tokenizer, &o, collect, &r, &e), ST_OK);
    for (size_t i = 0; i < ids.len; i++) assert_int_equal(parse_add(p, ids.data[i], &e), ST_OK);
    assert_int_equal(parse_end(p, &e), ST_OK);
    compare(c, "ids", &r, strlen(c->text));
    parser_close(p);
    ids_free(&ids);
    free_result(&r);
    json_decref(tools);
}

static void run_case(const parse_case *c) {
    run_text(c, 1 << 20, "whole");
    run_text(c, 1, "characters");
    run_text(c, 3, "threes");
    for (int i = 0; i < 20; i++) run_text(c, 0, "random");
    if (!strchr(c->flags, 'x')) run_ids(c);
}

#define TOOL(name, parameters)                                                                                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}"
#define STR1(key) "{\"type\":\"object\",\"properties\":{\"" key "\":{\"type\":\"string\"}},\"required\":[\"" key "\"]}"
#define WEATHER   TOOL("get_weather", STR1("city"))
#define READ      TOOL("Read", STR1("file"))
#define PATHS                                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"pattern\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"}},\"required\":[" \
    "\"pattern\"]}"
#define FILES                                                                                                          \
    "[" READ "," TOOL(                                                                                                 \
        "Write",                                                                                                       \
        "{\"type\":\"object\",\"properties\":{\"file\":{\"type\":\"string\"},\"text\":{\"type\":"                      \
        "\"string\"}},\"required\":[\"file\",\"text\"]}") "," TOOL("Glob", PATHS) "," TOOL("Grep",                     \
                                                                                           PATHS) "," TOOL("Ping",     \
                                                                                                           "{}") "]"

static const parse_case cases[] = {
    {"A1", "", NULL, SB CB "functions.ReadFile:0" AB "{\"path\": \"/test.py\"}" CE SE, "", "",
     "ReadFile functions.ReadFile:0 {\"path\": \"/test.py\"}\n"},
    {"A2", "", NULL, SB CB "functions.ReadFile:0" AB "{\"a\":1}" CE CB "functions.get_weather:1" AB "{}" CE SE, "", "",
     "ReadFile functions.ReadFile:0 {\"a\":1}\nget_weather functions.get_weather:1 {}\n"},
    {"A3 indices are dense whatever the model counts", "", NULL,
     SB CB "functions.f:5" AB "{}" CE CB "functions.f:6" AB "{}" CE SE, "", "",
     "f functions.f:5 {}\nf functions.f:6 {}\n"},
    {"A4", "", NULL, "Let me check the file." SB CB "functions.f:0" AB "{}" CE SE, "", "Let me check the file.",
     "f functions.f:0 {}\n"},
    {"A5", "", NULL, "Plain < text <| with <b> and <|x|>", "", "Plain < text <| with <b> and <|x|>", ""},
    {"A7 hyphens and underscores", "", NULL, SB CB "functions.mcp__portal__search-documents:0" AB "{}" CE SE, "", "",
     "mcp__portal__search-documents functions.mcp__portal__search-documents:0 {}\n"},
    {"A8", "", NULL, "normal text <", "", "normal text <", ""},
    {"A11", "", NULL,
     SB CB "functions.a:0" AB "{\"x\":{\"y\":[1,2]}}" CE "\n" CB "functions.b:1" AB "{\"z\":\"é😀\"}" CE SE, "", "",
     "a functions.a:0 {\"x\":{\"y\":[1,2]}}\nb functions.b:1 {\"z\":\"é😀\"}\n"},
    {"A13", "", NULL, "normal text" SE, "", "normal text", ""},
    {"A14", "", NULL, "text" AB "more" CE "!", "", "textmore!", ""},
    {"A16", "", NULL, SE AB CE SE, "", "", ""},
    {"A17", "", NULL, "<think>I need to check the file.</think>" SB CB "functions.f:0" AB "{}" CE SE,
     "I need to check the file.", "", "f functions.f:0 {}\n"},
    {"A18 no end tag", "", NULL, "<think>Let me read this file..." SB CB "functions.f:0" AB "{}" CE SE,
     "Let me read this file...", "", "f functions.f:0 {}\n"},
    {"A18 late end tag", "", NULL, "<think>Let me read" SB CB "functions.f:0" AB "{}" CE SE "</think>done",
     "Let me read", "done", "f functions.f:0 {}\n"},
    {"A20", "", NULL, "no tags", "", "no tags", ""},
    {"A24 the prompt opened the block", "t", NULL, "thinking hard", "thinking hard", "", ""},
    {"A24 and ends it", "t", NULL, "thinking</think>\n\nanswer", "thinking", "\n\nanswer", ""},
    {"A24 a call ends it", "t", NULL, "thinking " SB CB "functions.f:0" AB "{}" CE SE "<|tool_calls", "thinking ",
     "<|tool_calls", "f functions.f:0 {}\n"},
    {"A25", "t", NULL, "r</think>This is a content:" SB CB "functions.f:0" AB "{}" CE SE, "r",
     "This is a content:", "f functions.f:0 {}\n"},
    {"A26 two sections", "", NULL,
     SB CB "functions.w:0" AB "{\"c\":\"London\"}" CE SE SB CB "functions.w:1" AB "{\"c\":\"Delhi\"}" CE SE, "", "",
     "w functions.w:0 {\"c\":\"London\"}\nw functions.w:1 {\"c\":\"Delhi\"}\n"},
    {"A28 text around sections", "", NULL,
     "Prefix text: " SB CB "functions.a:0" AB "{}" CE SE " Now calling next: " SB CB "functions.b:1" AB "{}" CE SE, "",
     "Prefix text:  Now calling next: ", "a functions.a:0 {}\nb functions.b:1 {}\n"},
    {"A29", "t", NULL, "two calls" SB CB "functions.a:0" AB "{}" CE CB "functions.b:1" AB "{}" CE SE, "two calls", "",
     "a functions.a:0 {}\nb functions.b:1 {}\n"},
    {"A30 nothing fits", "", FILES,
     "Hm. " SB CB "weird@id" AB "{\"q\":1}" CE CB "functions.Read:0" AB "{\"file\":\"x\"}" CE SE, "", "Hm. ",
     "Read functions.Read:0 {\"file\":\"x\"}\n"},
    {"A31 malformed arguments pass", "", NULL,
     SB CB "functions.a:0" AB "{}" CE CB "functions.b:1" AB "{\"city\": \"Bad\", \"valid\": fasle" CE CB
           "functions.c:2" AB "{}" CE SE,
     "", "", "a functions.a:0 {}\nb functions.b:1 {\"city\": \"Bad\", \"valid\": fasle\nc functions.c:2 {}\n"},
    {"A36 bare id, one tool", "", "[" WEATHER "]", SB CB "5" AB "{\"city\":\"x\"}" CE SE, "", "",
     "get_weather 5 {\"city\":\"x\"}\n"},
    {"A37", "", NULL, SB CB "ReadFile:1" AB "{}" CE SE, "", "", "ReadFile ReadFile:1 {}\n"},
    {"A39 bare id, by arguments", "", FILES, SB CB "3" AB " {\"file\":\"x\",\"text\":\"y\"} " CE SE, "", "",
     "Write 3 {\"file\":\"x\",\"text\":\"y\"}\n"},
    {"A40 no tools", "", NULL, SB CB "3" AB "{}" CE SE, "", "", ""},
    {"A41", "", FILES, SB CB "some_garbage" AB "{\"no\":1}" CE SE, "", "", ""},
    {"A42 malformed JSON", "", FILES, SB CB "3" AB "{\"file\":" CE SE, "", "", ""},
    {"A42 no arguments", "", FILES, SB CB "3" AB CE SE, "", "", ""},
    {"A43 unknown key", "", FILES, SB CB "3" AB "{\"file\":\"x\",\"z\":1}" CE SE, "", "", ""},
    {"A44 client ids", "", FILES,
     SB CB "call_3" AB "{\"file\":\"a\"}" CE CB "call_9f8e7d" AB "{\"file\":\"b\"}" CE CB "toolu_01Ab" AB
           "{\"file\":\"c\"}" CE CB "123e4567-e89b-12d3-a456-426614174000" AB "{\"file\":\"d\"}" CE CB "tooltoolu_x" AB
           "{\"file\":\"e\"}" CE SE,
     "", "",
     "Read call_3 {\"file\":\"a\"}\nRead call_9f8e7d {\"file\":\"b\"}\nRead toolu_01Ab {\"file\":\"c\"}\nRead "
     "123e4567-e89b-12d3-a456-426614174000 {\"file\":\"d\"}\nRead tooltoolu_x {\"file\":\"e\"}\n"},
    {"A45 mixed", "", FILES,
     SB CB "call_1" AB "{\"file\":\"a\"}" CE CB "functions.Ping:1" AB "{}" CE CB "7" AB "{\"q\":1}" CE CB "x" AB
           "{}" CE SE,
     "", "", "Read call_1 {\"file\":\"a\"}\nPing functions.Ping:1 {}\nPing x {}\n"},
    {"A47", "", FILES, "Let me check.\n" SB CB "call_abc" AB "{\"file\":\"a\"}" CE SE, "", "Let me check.\n",
     "Read call_abc {\"file\":\"a\"}\n"},
    {"A51 two tools fit", "", FILES, SB CB "1" AB "{\"pattern\":\"a\",\"path\":\"b\"}" CE SE, "", "", ""},
    {"A54", "", FILES, SB CB "1" AB "[\"file\"]" CE CB "2" AB "\"file\"" CE SE, "", "", ""},
    {"A58", "", FILES, SB CB "1" AB "{\"pattern\":\"a\"}" CE SE SB CB "2" AB "{\"file\":\"a\"}" CE SE, "", "",
     "Read 2 {\"file\":\"a\"}\n"},
    {"B2", "", NULL, "I'll help you check the weather. " SB CB "functions.f:0" AB "{}" CE SE, "",
     "I'll help you check the weather. ", "f functions.f:0 {}\n"},
    {"B3 white space", "", NULL, SB "\n" CB "  functions.f:0\n" AB "\n {\"a\": \"b \"} \n" CE "\n" SE, "", "",
     "f functions.f:0 {\"a\": \"b \"}\n"},
    {"B5", "", NULL, SB CB "functions.f:0" AB "{\"html\": \"<div><b>x</b></div> <|x|> </think>\"}" CE SE, "", "",
     "f functions.f:0 {\"html\": \"<div><b>x</b></div> <|x|> </think>\"}\n"},
    {"B6", "", NULL, SB CB "functions.f:0" AB "{\n  \"a\": [\n    1\n  ]\n}" CE SE, "", "",
     "f functions.f:0 {\n  \"a\": [\n    1\n  ]\n}\n"},
    {"B7 dotted", "", NULL, SB CB "functions.ns.tool.run:0" AB "{}" CE SE, "", "",
     "ns.tool.run functions.ns.tool.run:0 {}\n"},
    {"B7 dotted, declared without", "", "[" READ "," WEATHER "]", SB CB "functions.api.get_weather:0" AB "{}" CE SE, "",
     "", "get_weather functions.api.get_weather:0 {}\n"},
    {"B7 dotted and declared", "", "[" TOOL("a.b", "{}") "," TOOL("b", "{}") "]", SB CB "functions.a.b:0" AB "{}" CE SE,
     "", "", "a.b functions.a.b:0 {}\n"},
    {"B9 no colon", "", NULL, SB CB "functions.invalid.0" AB "{}" CE CB "functions.f:1" AB "{}" CE SE, "", "",
     "f functions.f:1 {}\n"},
    {"B12 one tool, malformed kept", "", "[" WEATHER "]", SB CB "0" AB "{\"city\":" CE SE, "", "",
     "get_weather 0 {\"city\":\n"},
    {"B14 noise", "", NULL, SB " let me see: " CB "functions.f:0" AB "{}" CE " and " SE, "", "",
     "f functions.f:0 {}\n"},
    {"B15", "", NULL, SB SE, "", "", ""},
    {"B16 ends inside arguments", "", NULL, SB CB "functions.f:0" AB "{\"city\": \"Bei", "", "",
     "f functions.f:0 {\"city\": \"Bei!\n"},
    {"B16 ends inside a marker", "", NULL, SB CB "functions.f:0" AB "{\"a\":1} <|tool_call", "", "",
     "f functions.f:0 {\"a\":1} <|tool_call!\n"},
    {"ends inside the id", "", NULL, "a" SB CB "functions.f:0", "", "a", ""},
    {"ends inside a held call", "", FILES, SB CB "3" AB "{\"file\":\"x\"}", "", "", ""},
    {"B17", "", NULL, SB CB "functions.f:0" AB "{}" CE SE " Done", "", " Done", "f functions.f:0 {}\n"},
    {"B20 singular", "", NULL, "ok " SB1 "\n" CB "functions.f:0" AB "{}" CE "" SE1, "", "ok ", "f functions.f:0 {}\n"},
    {"B20 singular in reasoning", "t", NULL, "r " SB1 CB "functions.f:0" AB "{}" CE SE1 "x", "r ", "x",
     "f functions.f:0 {}\n"},
    {"singular that is talked about", "", NULL, "The marker " SB1 " opens, " SE1 " ends.", "",
     "The marker " SB1 " opens, " SE1 " ends.", ""},
    {"singular inside arguments", "", NULL, SB CB "functions.f:0" AB "{\"a\":\"" SB1 SE1 "\"}" CE SE, "", "",
     "f functions.f:0 {\"a\":\"" SB1 SE1 "\"}\n"},
    {"call without a section", "", NULL, "x" CB "functions.f:0" AB "{}" CE "y", "", "xy", "f functions.f:0 {}\n"},
    {"second call_begin", "", NULL, SB CB "functions.a:0" CB "functions.b:0" AB "{}" CE SE, "", "",
     "b functions.b:0 {}\n"},
    {"call_end before arguments", "", NULL, SB CB "functions.a:0" CE CB "functions.b:0" AB "{}" CE SE, "", "",
     "b functions.b:0 {}\n"},
    {"call_begin ends a call", "", NULL, SB CB "functions.a:0" AB "{}" CB "functions.b:1" AB "{}" SE "t", "", "t",
     "a functions.a:0 {}\nb functions.b:1 {}\n"},
    {"second argument_begin", "", NULL, SB CB "functions.a:0" AB "{" AB "}" CE SE, "", "", "a functions.a:0 {}\n"},
    {"C4 plain", "p", NULL, "<think>a</think>b", "", "<think>a</think>b", ""},
    {"C5", "", NULL, "<think></think>final answer", "", "final answer", ""},
    {"C6", "t", NULL, "no tags at all", "no tags at all", "", ""},
    {"C8 only a tag", "", NULL, "<think>", "", "", ""},
    {"C11", "t", NULL, "abc</think>def", "abc", "def", ""},
    {"repeated opening tag", "t", NULL, "<think><think>abc</think>def", "abc", "def", ""},
    {"white space before the tag", "", NULL, "\n <think>r</think>c", "r", "c", ""},
    {"white space alone", "", NULL, " \n", "", " \n", ""},
    {"white space before a call", "", NULL, "\n" SB CB "functions.a:0" AB "{}" CE SE, "", "\n", "a functions.a:0 {}\n"},
    {"later tags are text", "t", NULL, "r</think>a<think>b</think>c", "r", "a<think>b</think>c", ""},
    {"stray markers in reasoning", "t", NULL, "a" SE "b" CE AB "c</think>d", "abc", "d", ""},
    {"no calls", "n", NULL, "<think>r</think>x" SB CB "functions.a:0" AB "{}" CE SE "y", "r", "xfunctions.a:0{}y", ""},
    {"nothing", "", NULL, "", "", "", ""},
};

static void all_cases(void **s) {
    (void)s;
    srand(1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) run_case(&cases[i]);
}

static void spelled_markers_are_text_to_ids(void **s) {
    (void)s;
    const char *text = "say " SB CB "x</think>";
    parse_options o = {0};
    parser *p;
    result r = {0};
    err e = {0};
    assert_int_equal(parser_open(&p, &k25_tokenizer, &o, collect, &r, &e), ST_OK);
    for (const char *c = text; *c; c++) assert_int_equal(parse_add(p, (u8)*c, &e), ST_OK);
    assert_int_equal(parse_add(p, tokenizer_special(&k25_tokenizer, "<|im_end|>"), &e), ST_OK);
    assert_int_equal(parse_end(p, &e), ST_OK);
    assert_string_equal(r.content.data, text);
    assert_int_equal(r.n_calls, 0);
    parser_close(p);
    free_result(&r);
}

/* What is shown at once while it streams: text that cannot be a marker, and pieces of arguments. */
static void nothing_is_held_without_need(void **s) {
    (void)s;
    parse_options o = {.in_think = true};
    parser *p;
    result r = {0};
    err e = {0};
    assert_int_equal(parser_open(&p, &k25_tokenizer, &o, collect, &r, &e), ST_OK);
    assert_true(parse_in_reasoning(p));
    parse_add(p, 'a', &e);
    assert_string_equal(r.reasoning.data, "a");
    parse_add(p, tokenizer_special(&k25_tokenizer, "</think>"), &e);
    assert_false(parse_in_reasoning(p));
    parse_add(p, ' ', &e);
    assert_string_equal(r.content.data, " ");
    ids_buf ids = {0};
    ids_of(SB CB "functions.f:0" AB "{\"a", &ids);
    for (size_t i = 0; i < ids.len; i++) parse_add(p, ids.data[i], &e);
    assert_string_equal(r.calls.data, "f functions.f:0 {\"a");
    assert_int_equal(parse_calls(p), 1);
    parse_add(p, 0xc3, &e); /* half a character is not shown */
    assert_string_equal(r.calls.data, "f functions.f:0 {\"a");
    parse_add(p, 0xa9, &e);
    assert_string_equal(r.calls.data, "f functions.f:0 {\"aé");
    assert_int_equal(parse_add(p, 100000, &e), ST_INPUT);
    ids_free(&ids);
    parser_close(p);
    free_result(&r);
}

/* An id without an end, as a model gone astray writes it: no more of it is kept than an id may have. Under ASan, whose
 * allocator does not count, only the result is looked at. */
static void an_endless_id_is_not_kept(void **s) {
    (void)s;
    enum { PIECE = 4096, PIECES = 2560 }; /* 10 MB */
    parse_options o = {0};
    parser *p;
    result r = {0};
    err e = {0};
    char text[PIECE];
    memset(text, 'x', sizeof text);
    assert_int_equal(parser_open(&p, NULL, &o, collect, &r, &e), ST_OK);
    assert_int_equal(parse_add_text(p, SB CB, strlen(SB CB), &e), ST_OK);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < PIECES; i++) assert_int_equal(parse_add_text(p, text, sizeof text, &e), ST_OK);
    struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + 32 * PIECE);
    assert_int_equal(parse_add_text(p, AB "{}" CE SE "more", strlen(AB "{}" CE SE "more"), &e), ST_OK);
    assert_int_equal(parse_end(p, &e), ST_OK);
    assert_int_equal(parse_dropped(p), 1);
    assert_int_equal(r.n_calls, 0);
    assert_string_equal(r.content.data, "more");
    parser_close(p);
    free_result(&r);
}

/* Random sequences of markers and text: cut in two ways, the results agree and no marker shows. */
static void random_outputs(void **s) {
    (void)s;
    static const char *const pieces[] = {
        SB,   SE,     CB,  AB,       CE,  "<think>", "</think>", "functions.f:0", "{\"file\":\"x\"}", "3", " ",
        "\n", "text", "<", "<|tool", SB1, SE1,       "é"};
    srand(7);
    for (int round = 0; round < 3000; round++) {
        buf text = {0};
        result a = {0}, b = {0}, c = {0};
        result *each[] = {&a, &b, &c};
        json_t *tools = parse_json(FILES);
        parse_options o = {.tools = tools, .in_think = rand() % 2, .no_calls = rand() % 8 == 0};
        err e = {0};
        buf_str(&text, "");
        for (int n = rand() % 14; n > 0; n--) buf_str(&text, pieces[(size_t)rand() % COUNT_OF(pieces)]);
        for (int k = 0; k < 3; k++) {
            parser *p;
            ids_buf ids = {0};
            ids_of(text.data, &ids);
            assert_int_equal(parser_open(&p, &k25_tokenizer, &o, collect, each[k], &e), ST_OK);
            if (k == 0) parse_add_text(p, text.data, text.len, &e);
            for (size_t i = 0; k == 1 && i < text.len; i++) parse_add_text(p, text.data + i, 1, &e);
            for (size_t i = 0; k == 2 && i < ids.len; i++) parse_add(p, ids.data[i], &e);
            assert_int_equal(parse_end(p, &e), ST_OK);
            parser_close(p);
            ids_free(&ids);
            if (strcmp(text_of(&each[k]->reasoning), text_of(&a.reasoning)) ||
                strcmp(text_of(&each[k]->content), text_of(&a.content)) ||
                strcmp(text_of(&each[k]->calls), text_of(&a.calls)))
                fail_msg("%d: %s\n%s|%s|%s\n%s|%s|%s", k, text.data, text_of(&a.reasoning), text_of(&a.content),
                         text_of(&a.calls), text_of(&each[k]->reasoning), text_of(&each[k]->content),
                         text_of(&each[k]->calls));
            assert_true(each[k]->n_bytes <= text.len);
        }
        static const char *const hidden[] = {SB, SE, CB, AB, CE};
        for (size_t i = 0; i < COUNT_OF(hidden); i++) {
            assert_null(strstr(text_of(&a.content), hidden[i]));
            assert_null(strstr(text_of(&a.reasoning), hidden[i]));
        }
        buf_free(&text);
        json_decref(tools);
        for (int k = 0; k < 3; k++) free_result(each[k]);
    }
}

#define BIG "12345678901234567890"
static void schemas(void **s) {
    (void)s;
    static const struct {
        const char *schema, *value;
        bool want;
    } all[] = {
        {"{\"type\":\"object\"}", "{}", true},
        {"{\"type\":\"object\"}", "{\"a\":1}", false}, /* not declared */
        {"{\"additionalProperties\":true}", "{\"a\":1}", true},
        {"{\"additionalProperties\":{\"type\":\"string\"}}", "{\"a\":1}", false},
        {"{\"properties\":{\"a\":true}}", "{\"a\":1}", true},
        {"{\"properties\":{\"a\":false}}", "{\"a\":1}", false},
        {"{\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]}}}", "{\"a\":null}", true},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"a\":1.0}", true},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"a\":1.5}", false},
        {"{\"properties\":{\"a\":{\"type\":\"number\"}}}", "{\"a\":true}", false},
        {"{\"properties\":{\"a\":{\"enum\":[1,\"x\"]}}}", "{\"a\":1.0}", true},
        {"{\"properties\":{\"a\":{\"enum\":[1,\"x\"]}}}", "{\"a\":\"y\"}", false},
        {"{\"properties\":{\"a\":{\"const\":{\"b\":1}}}}", "{\"a\":{\"b\":1}}", true},
        {"{\"properties\":{\"a\":{},\"b\":{}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", "{\"b\":1}",
         true},
        {"{\"properties\":{\"a\":{},\"b\":{}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", "{}", false},
        {"{\"properties\":{\"a\":{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":5}]}}}", "{\"a\":7}", false},
        {"{\"properties\":{\"a\":{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":5}]}}}", "{\"a\":2}", true},
        {"{\"properties\":{\"a\":{\"not\":{\"type\":\"string\"}}}}", "{\"a\":\"s\"}", false},
        {"{\"properties\":{\"a\":{\"allOf\":[{\"minimum\":1},{\"exclusiveMaximum\":2}]}}}", "{\"a\":2}", false},
        {"{\"properties\":{\"a\":{\"items\":{\"type\":\"string\"},\"maxItems\":2}}}", "{\"a\":[\"x\",\"y\"]}", true},
        {"{\"properties\":{\"a\":{\"items\":{\"type\":\"string\"},\"maxItems\":2}}}", "{\"a\":[\"x\",1]}", false},
        {"{\"properties\":{\"a\":{\"maxLength\":2}}}", "{\"a\":\"éé\"}", true},
        {"{\"properties\":{\"a\":{\"multipleOf\":0.1}}}", "{\"a\":0.3}", true},
        {"{\"properties\":{\"n\":{\"$ref\":\"#/$defs/N\"}},\"$defs\":{\"N\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/$defs/N\"}}}}}",
         "{\"n\":{\"n\":{\"n\":{}}}}", true},
        {"{\"properties\":{\"n\":{\"$ref\":\"http://x\"}}}", "{\"n\":1}", false},
        {"{\"$ref\":\"#\"}", "{}", false}, /* endless */
        {"{\"properties\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/properties/a\"},{\"$ref\":\"#/properties/a\"}]}}}",
         "{\"a\":1}", false},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"a\":" BIG "}", true},
        {"{\"properties\":{\"a\":{\"type\":\"number\"}}}", "{\"a\":" BIG "}", true},
        {"{\"properties\":{\"a\":{\"type\":\"object\"}}}", "{\"a\":" BIG "}", false},
        {"{\"properties\":{\"a\":{\"type\":\"number\"}}}", "{\"a\":1e400}", true},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"a\":1e400}", false}, /* Python: infinite */
        {"{\"properties\":{\"a\":{\"enum\":[1," BIG "]}}}", "{\"a\":" BIG "}", true},
        {"{\"properties\":{\"a\":{\"enum\":[1," BIG "]}}}", "{\"a\":" BIG "1}", false},
        {"{\"properties\":{\"a\":{\"const\":" BIG "}}}", "{\"a\":1}", false},
        {"{\"properties\":{\"a\":{\"maximum\":1000}}}", "{\"a\":" BIG "}", false},
        {"{\"properties\":{\"a\":{\"maximum\":" BIG ",\"minimum\":-1e400}}}", "{\"a\":5}", true},
        {"{\"properties\":{\"a\":{\"exclusiveMaximum\":1e400}}}", "{\"a\":" BIG "}", true},
        {"{\"properties\":{\"a\":" BIG "}}", "{\"a\":1}", true}, /* no schema: accepts, as any other number there */
        {"{\"properties\":{\"a\":{\"properties\":" BIG ",\"required\":1e400}}}", "{\"a\":{\"b\":1}}", true},
        {"true", "{}", true},
        {"true", "{\"a\":1}", false},
        {"false", "{}", false},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        json_t *schema = parse_json(all[i].schema), *value = parse_json(all[i].value);
        u32 steps = 10000;
        if (schema_accepts_arguments(schema, value, &steps) != all[i].want)
            fail_msg("%s %s", all[i].schema, all[i].value);
        json_decref(schema);
        json_decref(value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases),
        cmocka_unit_test(spelled_markers_are_text_to_ids),
        cmocka_unit_test(random_outputs),
        cmocka_unit_test(nothing_is_held_without_need),
        cmocka_unit_test(an_endless_id_is_not_kept),
        cmocka_unit_test(schemas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
