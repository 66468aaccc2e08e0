/* The matcher of JSON Schemas: large ones, deep ones, and those that are meant to take long. */
#include "grammar_walker.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOWER = SANITIZED ? 20 : 1 };

/* ---- large schemas ---- */

static f64 processor_s(void) { return (f64)clock() / CLOCKS_PER_SEC; } /* whoever else is busy does not count */

/* `one` for each number from 0 on, which % in it stands for, and @ for the next; commas between them. */
static void add_each(buf *b, int n, const char *one) {
    for (int i = 0; i < n; i++) {
        if (i) buf_char(b, ',');
        for (const char *c = one; *c; c++) {
            if (*c == '%')
                buf_fmt(b, "%d", i);
            else if (*c == '@')
                buf_fmt(b, "%d", i + 1);
            else
                buf_char(b, *c == '\'' ? '"' : *c);
        }
    }
}

/* `before`, what add_each() makes, `behind`; ' stands for ". */
static void add_schema(buf *b, const char *before, int n, const char *one, const char *behind) {
    const char *const ends[] = {before, behind};
    for (int k = 0; k < 2; k++) {
        for (const char *c = ends[k]; *c; c++) buf_char(b, *c == '\'' ? '"' : *c);
        if (!k) add_each(b, n, one);
    }
}

/* The fastest of a few tries: what else runs on the machine costs processor time, too. */
static void open_within(walker *w, const char *text, f64 most_s) {
    enum { TRIES = 5 };
    f64 took = 1e9;
    for (int i = 0; i < TRIES && took > SLOWER * most_s; i++) {
        err e = {0};
        json_t *schema = json_of(text);
        if (i) walker_close(w);
        const f64 start = processor_s();
        const bool opened = walker_open(w, "large", schema, &e);
        took = processor_s() - start;
        json_decref(schema);
        if (!opened) fail_msg("%.80s: %s", text, e.text);
    }
    if (took > SLOWER * most_s) fail_msg("%.80s: %.0f ms", text, 1e3 * took);
    w->schema = NULL, w->n_words = w->n_required = 0; /* were the schema's */
}

static bool lets_through(walker *w, const buf *text, bool whole) {
    const i32 at = walk_bytes(w->m, matcher_start(w->m), text->data, text->len);
    assert_int_equal(matcher_failed(w->m, NULL), ST_OK);
    return whole ? matcher_accepts(w->m, at) : at != MATCHER_DEAD;
}

static void large_counts(void **state) {
    static const struct {
        const char *schema, *one;
        bool min;
        f64 most_s; /* a few times what a slow processor takes: work by count would take 1000 times as long */
    } counts[] = {{"{\"type\":\"string\",\"minLength\":5000000,\"maxLength\":5000000}", "x", true, 0.05},
                  {"{\"type\":\"string\",\"maxLength\":5000000}", "\u00e9", false, 0.05},
                  {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":5000000}", "1,", false, 0.05},
                  {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":5000000}", "1,", true, 0.05},
                  {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":5000000}", "\"\":1,", false, 0.05},
                  {"{\"type\":\"string\",\"pattern\":\"^[a-z]{0,20000}$\"}", "x", false, 0.2}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        const bool string = strstr(counts[i].schema, "string"), list = strstr(counts[i].schema, "array");
        walker w;
        buf text = {0};
        open_within(&w, counts[i].schema, counts[i].most_s);
        buf_str(&text, string ? "\"" : list ? "[" : "{");
        for (int k = 0; k < 20000; k++) buf_str(&text, counts[i].one);
        assert_true(lets_through(&w, &text, false));
        text.len -= string ? 0 : 1;
        buf_str(&text, string ? "\"" : list ? "]" : "}");
        assert_int_equal(lets_through(&w, &text, true), !counts[i].min);
        buf_free(&text);
        walker_close(&w);
    }
}

static void many_strings(void **state) {
    buf schema = {0}, text = {0};
    walker w;
    (void)state;
    add_schema(&schema, "{'enum':[", 5000, "'value number %'", "]}");
    open_within(&w, schema.data, 1);
    for (int i = 0; i < 5003; i++) {
        buf_clear(&text);
        buf_fmt(&text, "\"value number %d\"", i);
        assert_int_equal(lets_through(&w, &text, true), i < 5000);
    }
    buf_free(&schema), buf_free(&text);
    walker_close(&w);
}

static void many_properties(void **state) {
    buf schema = {0}, text = {0};
    walker w;
    (void)state;
    add_schema(&schema, "{'type':'object','additionalProperties':false,'properties':{", 1000, "'p%':{'type':'integer'}",
               "},");
    add_schema(&schema, "'required':[", 1000, "'p%'", "]}");
    open_within(&w, schema.data, 1);
    const f64 start = processor_s();
    for (int i = 999; i >= 0; i--) buf_fmt(&text, "%c\"p%d\":%d", i < 999 ? ',' : '{', i, i);
    buf_char(&text, '}');
    assert_true(lets_through(&w, &text, true));
    text.len = (size_t)(strrchr(text.data, ',') - text.data);
    buf_char(&text, '}');
    assert_false(lets_through(&w, &text, true));
    if (processor_s() - start > SLOWER * 2) fail_msg("it took %.1f s to walk", processor_s() - start);
    buf_free(&schema), buf_free(&text);
    walker_close(&w);
}

static void deep_lists(void **state) {
    buf schema = {0}, text = {0};
    walker w;
    (void)state;
    for (int i = 0; i < 100; i++) buf_str(&schema, "{\"type\":\"array\",\"maxItems\":1,\"items\":");
    buf_str(&schema, "{\"type\":\"integer\"}");
    for (int i = 0; i < 100; i++) buf_char(&schema, '}');
    open_within(&w, schema.data, 0.5);
    for (int i = 0; i < 100; i++) buf_char(&text, '[');
    buf_char(&text, '1');
    for (int i = 0; i < 100; i++) buf_char(&text, ']');
    assert_true(lets_through(&w, &text, true));
    text.data[100] = '[';
    assert_false(lets_through(&w, &text, false));
    buf_free(&schema), buf_free(&text);
    walker_close(&w);
}

/* References one behind the other: a member each, and 2000 that are nothing but references. */
static void long_chains(void **state) {
    static const char member[] = "'d%':{'type':'object','properties':{'n':{'$ref':'#/$defs/d@'}},'required':['n']}";
    buf schema = {0}, text = {0};
    walker w;
    (void)state;
    add_schema(&schema, "{'$ref':'#/$defs/d0','$defs':{", 2000, member, ",'d2000':{'type':'null'}}}");
    open_within(&w, schema.data, 2);
    for (int i = 0; i < 2000; i++) buf_str(&text, "{\"n\":");
    buf_str(&text, "null");
    assert_true(lets_through(&w, &text, false));
    for (int i = 0; i < 2000; i++) buf_char(&text, '}');
    assert_true(lets_through(&w, &text, true));
    walker_close(&w);
    buf_clear(&schema), buf_clear(&text);
    add_schema(&schema, "{'$ref':'#/$defs/d0','$defs':{", 2000, "'d%':{'$ref':'#/$defs/d@'}",
               ",'d2000':{'type':'null'}}}");
    open_within(&w, schema.data, 2);
    buf_str(&text, "null");
    assert_true(lets_through(&w, &text, true));
    buf_free(&schema), buf_free(&text);
    walker_close(&w);
}

static void recursion(void **state) {
    grammar *g;
    err e;
    (void)state;
    assert_int_equal(compile_quoted("{'$ref':'#/$defs/t','$defs':{'t':{'type':'object','properties':{'l':{'anyOf':["
                                    "{'type':'null'},{'$ref':'#/$defs/t'}]},'r':{'type':'array','items':{'$ref':'#'},"
                                    "'maxItems':2}},'required':['l'],'additionalProperties':false}}}",
                                    &(schema_options){0}, &g, &e),
                     ST_OK);
    assert_true(matches_text(g, "{\"l\":{\"r\":[{\"l\":null},{\"l\":{\"l\":null}}],\"l\":null}}"));
    assert_false(matches_text(g, "{\"l\":{\"r\":[{\"l\":null},{\"l\":{}}],\"l\":null}}"));
    assert_false(matches_text(g, "{\"r\":[{\"l\":null},{\"l\":null},{\"l\":null}],\"l\":null}"));
    grammar_free(g);
}

static void many_branches(void **state) {
    buf schema = {0}, text = {0};
    walker w;
    (void)state;
    add_schema(&schema, "{'anyOf':[", 20,
               "{'type':'object','properties':{'kind':{'const':'k%'},'v%':{'type':'integer'}},'required':['v%','kind'],"
               "'additionalProperties':false}",
               "]}");
    open_within(&w, schema.data, 0.2);
    for (int i = 0; i < 400; i++) {
        buf_clear(&text);
        buf_fmt(&text, i % 3 ? "{\"kind\":\"k%d\",\"v%d\":1}" : "{\"v%d\":1,\"kind\":\"k%d\"}", i / 20, i % 20);
        assert_int_equal(lets_through(&w, &text, true), i / 20 == i % 20);
    }
    walker_close(&w);
    buf_clear(&schema), buf_clear(&text);
    add_schema(&schema, "{'allOf':[", 30, "{'type':'object','properties':{'p%':{'type':'integer'}},'required':['p%']}",
               "]}");
    open_within(&w, schema.data, 0.2);
    for (int i = 0; i < 30; i++) buf_fmt(&text, "%c\"p%d\":1", i ? ',' : '{', i * 7 % 30);
    buf_char(&text, '}');
    assert_true(lets_through(&w, &text, true));
    text.len = (size_t)(strrchr(text.data, ',') - text.data);
    buf_char(&text, '}');
    assert_false(lets_through(&w, &text, true));
    buf_free(&schema), buf_free(&text);
    walker_close(&w);
}

/* ---- schemas that are meant to take long ---- */

static const struct {
    const char *what, *before;
    int n;
    const char *one, *behind, *text;
} hostile[] = {
    {"products of bounds", "{'allOf':[", 6,
     "{'anyOf':[{'minimum':1%1},{'minimum':1%2},{'minimum':1%3},{'minimum':1%4},{'minimum':1%5},{'minimum':1%6}]}",
     "]}", "1"},
    {"products of two", "{'allOf':[", 15, "{'anyOf':[{'minimum':%},{'maximum':1%}]}", "]}", "1"},
    {"products of twos", "{'allOf':[", 40, "{'anyOf':[{'minimum':%},{'maximum':1%}]}", "]}", "1"},
    {"products of objects", "{'allOf':[", 14,
     "{'anyOf':[{'properties':{'a%':{'type':'string'}}},{'properties':{'b%':{'type':'null'}}}]}", "]}", "{\"a"},
    {"products of lists", "{'items':{'allOf':[", 12, "{'anyOf':[{'minItems':%},{'items':{'minLength':%}}]}", "]}}",
     "[[\"a"},
    {"choices in choices", "", 1,
     "{'anyOf':[{'items':{'$ref':'#'}},{'properties':{'a':{'$ref':'#'},'b':{'$ref':'#'}}},{'anyOf':[{'$ref':'#'},"
     "{'items':{'$ref':'#'}},{'additionalProperties':{'$ref':'#'}}]}]}",
     "", "[[[{\"a\":[[[{\"b\":[[[[[[{\"c\":[[[[["},
    {"many branches", "{'anyOf':[", 3000, "{'properties':{'k%':{'type':'null'}}}", "]}", "{\"k1\":"},
    {"more branches", "{'anyOf':[", 20000, "{'type':'object','properties':{'k':{'const':%}}}", "]}", "{\"k\":1"},
    {"branches apart", "{'oneOf':[", 3000, "{'const':'v%'}", "]}", "\"v7"},
    {"numbers apart", "{'oneOf':[", 20000, "{'const':%}", "]}", "7"},
    {"branches of nothing", "{'oneOf':[", 40000, "false", "]}", "7"},
    {"a long value", "{'const':[", 50000, "'v%'", "]}", "[\"v0\""},
    {"a long enumeration", "{'enum':[", 60000, "'v%'", "]}", "\"v7"},
    {"an enumeration with a pattern", "{'pattern':'^[a-z0-9]{0,20000}$','enum':[", 5000, "'v%'", "]}", "\"v7"},
    {"many properties", "{'properties':{", 60000, "'p%':{}", "}}", "{\"p"},
    {"properties and a long pattern", "{'patternProperties':{'^.{0,50000}$':{}},'properties':{", 1000, "'p%':{}", "}}",
     "{\"p"},
    {"wild patterns",
     "{'patternProperties':{'.{0,3000}x':{},'[a-z]{5,4000}':{},'(a|b|cd){1,2000}$':{},'^.{1,3000}$':{}},"
     "'properties':{",
     1000, "'p%':{}", "}}", "{\"p"},
    {"properties and a pattern of names", "{'propertyNames':{'pattern':'^.{0,500}$'},'properties':{", 1000, "'p%':{}",
     "}}", "{\"p"},
    {"stars in stars", "{'type':'string','pattern':'(a*)*b", 1, "", "'}", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {"repeats of repeats", "{'type':'string','pattern':'((a{0,30}){0,30}){0,30}b", 1, "", "'}", "\"aaaaaaaaaaaaaaaa"},
    {"repeats twice", "{'type':'string','allOf':[", 2, "{'pattern':'[a-z]{1,2000}'}", "]}", "\"aaaa"},
    {"repeats ten times", "{'type':'string','allOf':[", 10, "{'pattern':'^([a-z]|[a-m]%){1,2000}$'}", "]}", "\"aaaa"},
    {"what was long before", "{'type':'string','pattern':'a.{2000}$'}", 1, "", "", "\"abababababababababababababab"},
    {"fine multiples", "{'type':'number','multipleOf':0.000016384}", 1, "", "", "0.0000"},
    {"fine multiples of each other", "{'type':'number','allOf':[", 9, "{'multipleOf':0.00001637%}", "]}", "0.0000"},
    {"long bounds", "{'type':'number','minimum':1.2345e300,'maximum':9.876e300}", 1, "", "", "7"},
    {"short bounds", "{'type':'number','minimum':1.2345e-300,'maximum':9.876e-300}", 1, "", "", "0.0"},
    {"itself", "{'$ref':'#'}", 1, "", "", "1"},
    {"itself and all", "{'allOf':[{'$ref':'#'}]}", 1, "", "", "1"},
    {"itself or itself", "{'anyOf':[{'$ref':'#'},{'$ref':'#'},{'anyOf':[{'$ref':'#'}]}]}", 1, "", "", "1"},
    {"two in each other",
     "{'$ref':'#/$defs/a','$defs':{'a':{'$ref':'#/$defs/b'},'b':{'allOf':[{'$ref':'#/$defs/a'}]}}}", 1, "", "", "1"},
    {"sets of schemas", "{'$ref':'#/$defs/a0','$defs':{'a40':{},", 40,
     "'a%':{'properties':{'x':{'allOf':[{'$ref':'#/$defs/a@'},{'$ref':'#/$defs/a0'}]},'y':{'$ref':'#/$defs/a@'}}}",
     "}}", "{\"x\":{\"x\":{\"y\":{\"x\""},
    {"two long names", "{'properties':{", 2, "'<%':{'type':'null'}", "}}", "{\"nnnnnnnnnnnn"},
    {"long names", "{'properties':{", 1000, "'%<':{'type':'null'}", "}}", "{\"n"},
};

/* In a process of its own, whose end a signal may be: it must be done within 2 s and 1 GiB. */
static void run_hostile(const json_t *schema, const char *text, rlim_t most_s) {
    const struct rlimit time_s = {most_s, most_s};
    err e = {0};
    grammar *g;
    matcher *m = NULL;
    setrlimit(RLIMIT_CPU, &time_s);
    status st = grammar_of_schema(&g, schema, &(schema_options){0}, &e);
    if (st == ST_OK) st = matcher_open(&m, g, &e);
    if (st == ST_OK) walk_bytes(m, matcher_start(m), text, strlen(text));
    if (st == ST_OK) st = matcher_failed(m, &e);
    _exit(st == ST_OK ? 0 : e.text[0] ? 1 : 2);
}

static bool hostile_is_held(size_t i) {
    enum { MOST_KIB = 1 << 20 };
    buf text = {0}, schema = {0};
    struct rusage used;
    int how;
    add_schema(&text, hostile[i].before, hostile[i].n, hostile[i].one, hostile[i].behind);
    for (size_t k = 0; k < text.len; k++) { /* < stands for a long name */
        if (text.data[k] != '<') buf_char(&schema, text.data[k]);
        for (int c = 0; text.data[k] == '<' && c < (hostile[i].n > 2 ? 1000 : 400000); c++) buf_char(&schema, 'n');
    }
    json_t *v = json_of(schema.data);
    const pid_t child = fork();
    if (!child) run_hostile(v, hostile[i].text, SLOWER * 2);
    json_decref(v), buf_free(&text), buf_free(&schema);
    assert_int_equal(wait4(child, &how, 0, &used), child);
    const f64 took = (f64)used.ru_utime.tv_sec + 1e-6 * (f64)used.ru_utime.tv_usec + (f64)used.ru_stime.tv_sec;
    const bool good = WIFEXITED(how) && WEXITSTATUS(how) < 2 && (SLOWER > 1 || used.ru_maxrss < MOST_KIB);
    if (!good || took > SLOWER * 0.5)
        print_error("%s: %.1f s, %ld MiB, %s\n", hostile[i].what, took, used.ru_maxrss >> 10, good ? "good" : "bad");
    return good;
}

static void hostile_schemas(void **state) {
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(hostile); i++) bad += !hostile_is_held(i);
    assert_int_equal(bad, 0);
}

/* Nor do references and comparisons take more than the second: `one` and `other` come n times each. */
static void references_and_pairs(void **state) {
    static const struct {
        const char *front, *one, *middle, *other, *behind;
        int n;
        status st;
    } all[] = {
        {"{'oneOf':[", "{'$ref':'#z%'}", "],'$defs':{", "'d%':{'$anchor':'z%','const':%}", "}}", 600, ST_OK},
        {"{'anyOf':[", "{'$ref':'#z%'}", "],'$defs':{", "'d%':{'$anchor':'z%','const':%}", "}}", 10000, ST_OK},
        {"{'oneOf':[{'enum':[", "0.%2", "]},{'enum':[", "1.%2", "]}]}", 60000, ST_LIMIT},
        {"{'oneOf':[{'required':[", "'a%'", "],'properties':{", "'a%':{'const':1}",
         "},'type':'object'},{'type':'object','$ref':'#/oneOf/0'}]}", 20000, ST_LIMIT},
        {"{'$ref':'#/", "%~1", "','a':[", "1", "]}", 200000, ST_INPUT},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        buf text = {0};
        grammar *g;
        err e = {0};
        add_schema(&text, all[i].front, all[i].n, all[i].one, all[i].middle);
        add_schema(&text, "", all[i].n, all[i].other, all[i].behind);
        json_t *schema = json_of(text.data);
        const f64 start = processor_s();
        const status st = grammar_of_schema(&g, schema, &(schema_options){.unknown_are_annotations = true}, &e);
        const f64 took = processor_s() - start;
        if (st != all[i].st || took > SLOWER * 1.5) fail_msg("%zu: %s: %s: %.1f s", i, status_text(st), e.text, took);
        grammar_free(g);
        json_decref(schema), buf_free(&text);
    }
}

/* Whoever waited has gone: that is seen soon. */
static void compiling_is_given_up(void **state) {
    const atomic_bool stop = true;
    const compile_limit limit = {.stop = &stop}, late = {.seconds = 2};
    buf text = {0};
    grammar *g;
    err e = {0};
    (void)state;
    add_schema(&text, "{'oneOf':[", 20000, "{'const':%}", "]}");
    json_t *schema = json_of(text.data);
    const f64 start = processor_s();
    assert_int_equal(grammar_of_schema(&g, schema, &(schema_options){.limit = &limit}, &e), ST_CANCELLED);
    assert_int_equal(grammar_of_schema(&g, schema, &(schema_options){.limit = &late}, &e), ST_LIMIT);
    assert_non_null(strstr(e.text, "together"));
    assert_true(processor_s() - start < SLOWER * 0.1);
    json_decref(schema), buf_free(&text);
}

/* What an automaton has no room for is an error, not a key or a value that does not match. */
static void limits_are_no_answers(void **state) {
    static const char *const schemas[] = {
        "{'enum':['%'],'pattern':'a[ab]{17}c'}",
        "{'properties':{'%':{'type':'null'}},'patternProperties':{'a[ab]{17}c':false}}",
        "{'required':['%'],'propertyNames':{'pattern':'a[ab]{17}c'}}",
    };
    buf text = {0};
    u32 seed = 1;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(schemas); i++) {
        const char *at = strchr(schemas[i], '%');
        err e = {0};
        grammar *g;
        buf_clear(&text);
        buf_add(&text, schemas[i], (size_t)(at - schemas[i]));
        for (int k = 0; k < 300000; k++) buf_char(&text, (seed = seed * 1664525 + 1013904223) >> 31 ? 'a' : 'b');
        buf_str(&text, at + 1);
        json_t *schema = quoted_schema(text.data);
        const status st = grammar_of_schema(&g, schema, &(schema_options){0}, &e);
        if (st != ST_LIMIT) fail_msg("%.40s: %s: %s", schemas[i], status_text(st), e.text);
        json_decref(schema);
    }
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_counts),          cmocka_unit_test(many_strings),
        cmocka_unit_test(many_properties),       cmocka_unit_test(deep_lists),
        cmocka_unit_test(long_chains),           cmocka_unit_test(recursion),
        cmocka_unit_test(many_branches),         cmocka_unit_test(hostile_schemas),
        cmocka_unit_test(limits_are_no_answers), cmocka_unit_test(references_and_pairs),
        cmocka_unit_test(compiling_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
