/* The matcher of JSON Schemas: no text that it lets through is stuck, whole texts satisfy their schema, states are
 * values, errors name the place. */
#include "grammar_walker.h"
#include "text/schema_check.h"

/* What schema_check.h knows nothing of: schemas that say so are walked, and their texts only parsed. */
static const char *const beyond_check[] = {"pattern",  "format",      "patternProperties", "propertyNames",
                                           "contains", "minContains", "additionalItems"};

static bool check_knows(const json_t *at) {
    const char *key, *ref = json_string_value(json_object_get(at, "$ref"));
    json_t *value;
    size_t i;
    if (ref && (*ref != '#' || (ref[1] && ref[1] != '/') || strchr(ref, '%'))) return false;
    if (json_is_array(json_object_get(at, "items"))) return false;
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        for (i = 0; i < COUNT_OF(beyond_check); i++)
            if (!strcmp(key, beyond_check[i]) && (i > 1 || json_is_string(value))) return false;
        if (!check_knows(value)) return false;
    }
    json_array_foreach(at, i, value) if (!check_knows(value)) return false;
    return true;
}

/* What is written twice is a key that no property names, which texts may have; keys with a NUL are JSON, but not for
 * our parser. */
static bool text_is_good(walker *w, bool known) {
    u32 steps = STEPS;
    err e = {0};
    json_t *v = json_parse(w->text.data, w->text.len, "text", &e);
    if (!v) {
        const bool excused = strstr(e.text, "duplicate") || strstr(e.text, "NUL byte in object key");
        if (!excused) tell(w, e.text);
        return excused;
    }
    const bool good = !known || schema_accepts(w->schema, v, &steps);
    if (!good) tell(w, "the schema does not accept");
    json_decref(v);
    return good;
}

static struct { int walks, given_up, whole, judged, bad; } sum;

static void walk_often(walker *w, const json_t *line) {
    const bool known = check_knows(w->schema);
    int given_up = 0;
    err e = {0};
    (void)line;
    for (int k = 0; k < 25; k++) {
        const walk_end end = walk_random(w);
        sum.walks++;
        given_up += end == WALK_GIVEN_UP;
        if (end == WALK_STUCK) tell(w, "no way on from"), sum.bad++;
        if (end != WALK_WHOLE) continue;
        sum.whole++, sum.judged += known;
        sum.bad += !text_is_good(w, known);
    }
    sum.given_up += given_up;
    if (given_up) tell(w, "given up");
    if (matcher_failed(w->m, &e) != ST_OK) tell(w, e.text), sum.bad++;
}

static void no_dead_ends(void **state) {
    (void)state;
    memset(&sum, 0, sizeof sum);
    const int n = for_golden(walk_often);
    print_message("%d schemas, %d walks, %d whole, %d of them judged, %d given up\n", n, sum.walks, sum.whole,
                  sum.judged, sum.given_up);
    assert_true(n > 500);
    assert_true(sum.judged > sum.walks / 3);
    assert_true(sum.given_up * 50 < sum.walks);
    assert_int_equal(sum.bad, 0);
}

/* ---- schemas of which some keys lead nowhere ---- */

static const char *const narrow[] = {
    "{'type':'object','propertyNames':{'enum':['a','b']},'properties':{'a':{'type':'null'}}}",
    "{'type':'object','patternProperties':{'^a':false}}",
    "{'type':'object','patternProperties':{'^a':{'type':'string'},'^ab':{'type':'integer'}},"
    "'additionalProperties':false}",
    "{'type':'object','patternProperties':{'^a':{'type':'string'},'b$':{'type':'integer'}},"
    "'additionalProperties':false,'minProperties':1}",
    "{'type':'object','patternProperties':{'^a':false,'^ab':{'type':'null'},'^b':{'type':'null'}},"
    "'additionalProperties':false}",
    "{'type':'object','properties':{'a':false,'ab':{'type':'null'}},'additionalProperties':false}",
    "{'type':'object','properties':{'a':{'type':'null'},'ab':{'type':'null'}},'additionalProperties':false,"
    "'minProperties':2,'required':['ab']}",
    "{'type':'object','properties':{'a':{},'b':{}},'required':['b'],'maxProperties':1}",
    "{'type':'object','required':['a','b'],'minProperties':3,'maxProperties':3,'additionalProperties':{'type':'null'}}",
    "{'type':'object','propertyNames':{'pattern':'^[ab]$'},'required':['a'],'additionalProperties':{'type':'null'}}",
    "{'type':'object','propertyNames':{'minLength':2},'properties':{'a':{}},'minProperties':1}",
    "{'type':'object','propertyNames':{'maxLength':1},'properties':{'long':{},'b':{}},'additionalProperties':false}",
    "{'type':'array','prefixItems':[{'type':'null'},false,{'type':'null'}],'items':{'type':'integer'}}",
    "{'type':'array','items':{'type':'integer'},'contains':{'minimum':5},'minContains':2,'maxItems':3}",
    "{'type':'array','contains':{'const':'x'},'maxItems':1}",
    "{'anyOf':[{'type':'object','required':['k'],'properties':{'k':{'const':1}}},{'type':'object',"
    "'required':['k'],'properties':{'k':{'const':2},'l':false}}]}",
    "{'type':'string','pattern':'^(a|b\\u00e9)*c$','minLength':2,'maxLength':4}",
    "{'type':'string','allOf':[{'pattern':'^[^\\\"]*$'},{'pattern':'\\ud83d\\ude00'}],'maxLength':3}",
    "{'type':'string','pattern':'^[\\ud800\\udc00-\\udbff\\udfff]{2}$'}",
    "{'type':'string','pattern':'^[\\u0000-\\u001f]{3}$'}",
    "{'enum':['','\\u0000','\\\"','\\ud83d\\ude00',[],{},[{'a':[null]}],1e2,-0.5,null]}",
    "{'type':'number','minimum':-0.05,'exclusiveMaximum':0.05,'multipleOf':0.01}",
    "{'type':'number','exclusiveMinimum':1e20,'maximum':1.00000000001e20}",
};

static void narrow_ways(void **state) {
    (void)state;
    memset(&sum, 0, sizeof sum);
    for (size_t i = 0; i < COUNT_OF(narrow); i++) {
        json_t *schema = quoted_schema(narrow[i]);
        err e = {0};
        walker w;
        if (!walker_open(&w, narrow[i], schema, &e)) fail_msg("%s: %s", narrow[i], e.text);
        const int given_up = sum.given_up;
        walk_often(&w, NULL);
        if (sum.given_up > given_up + 2) sum.bad++, tell(&w, "often there is no end");
        walker_close(&w);
        json_decref(schema);
    }
    assert_int_equal(sum.bad, 0);
}

/* Beginnings that nothing satisfying them has. */
static const struct {
    const char *schema, *text;
} cut_off[] = {
    {"{'type':'object','patternProperties':{'^a':false}}", "{'a"},
    {"{'type':'object','patternProperties':{'^a':{'type':'string'},'^ab':{'type':'integer'}},"
     "'additionalProperties':false}",
     "{'ab"},
    {"{'type':'object','patternProperties':{'^a':{'type':'string'},'^ab':{'type':'integer'}},"
     "'additionalProperties':false}",
     "{'\\u0061\\u0062"},
    {"{'type':'object','patternProperties':{'^a':false,'^ab':{},'^b':{}},'additionalProperties':false}", "{'a"},
    {"{'type':'object','propertyNames':{'enum':['a','b']},'properties':{'a':{}}}", "{'a':1,'a"},
    {"{'type':'object','propertyNames':{'enum':['a','b']},'properties':{'a':{},'b':{}}}", "{'a':1,'b':2,"},
    {"{'type':'object','propertyNames':{'enum':['a']},'properties':{'a':{}}}", "{'a':1,"},
    {"{'type':'object','propertyNames':{'maxLength':1},'properties':{'long':{},'b':{}},"
     "'additionalProperties':false}",
     "{'l"},
    {"{'type':'object','properties':{'a':{},'b':{}},'required':['b'],'maxProperties':1}", "{'a"},
    {"{'type':'object','properties':{'a':false,'ab':{'type':'null'}},'additionalProperties':false}", "{'abc"},
    {"{'type':'array','prefixItems':[{'type':'null'},false]}", "[null,"},
    {"{'type':'array','contains':{'const':'x'},'maxItems':1}", "['y"},
    {"{'type':'string','pattern':'^[\\u0000-\\u001f]$'}", "'\\u002"},
    {"{'type':'string','pattern':'^[\\ud83d\\ude00]$'}", "'\\ud83e"},
    {"{'type':'string','pattern':'^[\\ud83d\\ude00]$'}", "'\\ud83d\\ude01"},
    {"{'type':'string','maxLength':1}", "'\\ud83d\\ude00\\"},
    {"{'enum':['ab','cd']}", "'ad"},
    {"{'type':'integer','minimum':-5,'maximum':12}", "13"},
    {"{'type':'integer','minimum':-5,'maximum':12}", "-6"},
    {"{'type':'integer'}", "-0.5"},
    {"{'type':'integer'}", "01"},
};

static void nothing_goes_on_there(void **state) {
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cut_off); i++) {
        json_t *schema = quoted_schema(cut_off[i].schema);
        char text[64];
        err e = {0};
        walker w;
        if (!walker_open(&w, cut_off[i].schema, schema, &e)) fail_msg("%s: %s", cut_off[i].schema, e.text);
        snprintf(text, sizeof text, "%s", cut_off[i].text);
        for (char *c = text; *c; c++)
            if (*c == '\'') *c = '"';
        if (walk_bytes(w.m, matcher_start(w.m), text, strlen(text)) != MATCHER_DEAD)
            bad++, print_error("%s goes on behind %s\n", cut_off[i].schema, text);
        walker_close(&w);
        json_decref(schema);
    }
    assert_int_equal(bad, 0);
}

/* ---- states are values ---- */

/* A text's states as a straight walk in m has them; -1 behind its end. */
static size_t straight(matcher *m, const char *text, size_t len, i32 *states) {
    size_t n = 0;
    states[0] = matcher_start(m);
    while (n < len && states[n] != MATCHER_DEAD) n++, states[n] = matcher_next(m, states[n - 1], (u8)text[n - 1]);
    return n;
}

static void detour(walker *w, i32 at) {
    buf_clear(&w->text);
    for (int k = 0; k < 12 && at != MATCHER_DEAD; k++) at = take_any(w, at);
}

/* Once straight on, once with detours from each state, and with those in a matcher that has been nowhere else. */
static void walk_with_detours(walker *w, const json_t *value) {
    const char *text = json_string_value(value);
    const size_t len = json_string_length(value);
    i32 *first = malloc((len + 1) * sizeof *first), at;
    matcher *other;
    const size_t n = straight(w->m, text, len, first);
    detour(w, at = matcher_start(w->m));
    for (size_t i = 0; i < n; i++) {
        if (at != MATCHER_DEAD) detour(w, at);
        if (i % 7 == 3) detour(w, first[i / 2]);
        at = matcher_next(w->m, at, (u8)text[i]);
        assert_int_equal(at, first[i + 1]);
    }
    assert_int_equal(matcher_open(&other, w->g, NULL), ST_OK);
    at = matcher_start(other);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(matcher_accepts(other, at), matcher_accepts(w->m, first[i]));
        at = matcher_next(other, at, (u8)text[i]);
        assert_int_equal(at == MATCHER_DEAD, first[i + 1] == MATCHER_DEAD);
    }
    assert_int_equal(matcher_accepts(other, at), matcher_accepts(w->m, first[n]));
    matcher_close(other);
    free(first);
}

static void walk_all_texts(walker *w, const json_t *line) {
    static const char *const lists[] = {"valid", "invalid", "malformed"};
    for (size_t k = 0; k < COUNT_OF(lists); k++) {
        const json_t *one;
        size_t i;
        json_array_foreach(json_object_get(line, lists[k]), i, one) walk_with_detours(w, one);
    }
    assert_int_equal(matcher_failed(w->m, NULL), ST_OK);
}

static void states_are_values(void **state) {
    (void)state;
    assert_true(for_golden(walk_all_texts) > 500);
}

/* ---- what is refused ---- */

static const struct {
    const char *schema;
    status why;
    const char *has[2];
} refused[] = {
    {"{'type':'object','properties':{'a':{'not':{}}}}", ST_UNSUPPORTED, {"\"not\"", "#/properties/a:"}},
    {"{'anyOf':[{},{'items':{'uniqueItems':true}}]}", ST_UNSUPPORTED, {"\"uniqueItems\"", "#/anyOf/1/items:"}},
    {"{'$ref':'#/$defs/x','$defs':{'x':{'if':{}}}}", ST_UNSUPPORTED, {"\"if\"", "#/$defs/x:"}},
    {"{'prefixItems':[{'format':'colour'}]}", ST_UNSUPPORTED, {"colour", "#/prefixItems/0:"}},
    {"{'oneOf':[{'type':'integer'},{'type':'number'}]}", ST_UNSUPPORTED, {"\"oneOf\"", "#:"}},
    {"{'properties':{'a':{'pattern':'(?=a)'}}}", ST_UNSUPPORTED, {"\"pattern\"", "#/properties/a:"}},
    {"{'properties':{'a':{'pattern':'('}}}", ST_INPUT, {"\"pattern\"", "#/properties/a:"}},
    {"{'items':{'minimum':'1'}}", ST_INPUT, {"\"minimum\"", "#/items:"}},
    {"{'items':{'minLength':'1'}}", ST_INPUT, {"\"minLength\"", "#/items:"}},
    {"{'items':{'maxLength':-1}}", ST_INPUT, {"\"maxLength\"", "#/items:"}},
    {"{'items':{'maxItems':-1}}", ST_INPUT, {"\"maxItems\"", "#/items:"}},
    {"{'items':{'contains':{},'minContains':-1e300}}", ST_INPUT, {"\"minContains\"", "#/items:"}},
    {"{'items':{'multipleOf':0}}", ST_INPUT, {"\"multipleOf\"", "#/items:"}},
    {"{'items':{'multipleOf':0.0123456789012}}", ST_UNSUPPORTED, {"\"multipleOf\"", "#/items:"}},
    {"{'properties':{'a':{'type':'number','multipleOf':0.000016384}}}",
     ST_UNSUPPORTED,
     {"\"multipleOf\"", "#/properties/a:"}},
    {"{'items':{'type':'object','propertyNames':{'enum':['a']},'minProperties':2}}",
     ST_UNSUPPORTED,
     {"\"minProperties\"", "#/items:"}},
    {"{'items':{'type':'object','patternProperties':{'^a$':{}},'additionalProperties':false,'minProperties':2}}",
     ST_UNSUPPORTED,
     {"\"minProperties\"", "#/items:"}},
    {"{'type':'tree'}", ST_INPUT, {"\"type\"", "#:"}},
    {"{'enum':{}}", ST_INPUT, {"\"enum\"", "#:"}},
    {"{'anyOf':[]}", ST_INPUT, {"\"anyOf\"", "#:"}},
    {"{'allOf':{}}", ST_INPUT, {"\"allOf\"", "#:"}},
    {"{'required':7}", ST_INPUT, {"\"required\"", "#:"}},
    {"{'properties':[]}", ST_INPUT, {"\"properties\"", "#:"}},
    {"{'items':7}", ST_INPUT, {"no schema", ""}},
    {"{'$ref':'#/$defs/x'}", ST_INPUT, {"\"$ref\"", "#/$defs/x"}},
    {"{'type':'object','properties':{'a':false,'b':{}},'minProperties':3}", ST_UNSUPPORTED, {"\"minProperties\"", ""}},
    {"{'type':'object','properties':{'a':{'type':'array'},'b':{}},'patternProperties':{'^a':{'type':'integer'}},"
     "'minProperties':3}",
     ST_UNSUPPORTED,
     {"\"minProperties\"", ""}},
    {"{'type':'object','required':['x1'],'minProperties':3,'properties':{'e':{'enum':[]}}}",
     ST_UNSUPPORTED,
     {"\"minProperties\"", ""}},
    {"{'items':{'patternProperties':5}}", ST_INPUT, {"\"patternProperties\"", "#/items:"}},
    {"{'items':{'prefixItems':5}}", ST_INPUT, {"\"prefixItems\"", "#/items:"}},
    {"{'items':{'prefixItems':{}}}", ST_INPUT, {"\"prefixItems\"", "#/items:"}},
    {"{'items':{'type':'object','required':[5]}}", ST_INPUT, {"\"required\"", "#/items:"}},
    {"{'anyOf':[{'type':'null'},{'$ref':'#'}]}", ST_UNSUPPORTED, {"branch 1 of \"anyOf\" leads to itself", "#:"}},
    {"{'format':'regex'}", ST_UNSUPPORTED, {"\"format\" regex is not", "#:"}},
    {"{'$ref':7}", ST_INPUT, {"\"$ref\" is no string", "#:"}},
    {"{'properties':{'a':{'$id':'http://x/a','$ref':'#/$defs/s'}},'$defs':{'s':{'type':'integer'}}}",
     ST_UNSUPPORTED,
     {"an \"$id\" of its own", "#/properties/a:"}},
    {"{'$ref':'#z','examples':[{'$anchor':'z'}],'const':{'$anchor':'z'}}", ST_INPUT, {"#z", "#:"}},
    {"{'$ref':'other.json'}", ST_INPUT, {"other.json", "#:"}},
    {"{'$ref':'http://example.com/#/x'}", ST_INPUT, {"http://example.com/#/x", "#:"}},
    {"{'$ref':'#x'}", ST_INPUT, {"#x", "#:"}},
    {"{'patternProperties':{'a':{},'b':{},'c':{},'d':{},'e':{}}}", ST_UNSUPPORTED, {"\"patternProperties\"", "#:"}},
    {"{'patternProperties':{'(':{}}}", ST_INPUT, {"\"patternProperties\"", "#:"}},
    {"{'propertyNames':{'$ref':'#'}}", ST_UNSUPPORTED, {"\"propertyNames\"", "#:"}},
};

static void errors_name_the_place(void **state) {
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        grammar *g;
        err e;
        const status st = compile_quoted(refused[i].schema, &(schema_options){0}, &g, &e);
        grammar_free(g);
        if (st == refused[i].why && strstr(e.text, refused[i].has[0]) && strstr(e.text, refused[i].has[1])) continue;
        print_error("%s: %s: %s\n", refused[i].schema, status_text(st), e.text);
        bad++;
    }
    assert_int_equal(bad, 0);
}

static const char *const contradictory[] = {
    "{'not':{},'allOf':[false]}",
    "{'type':'integer','minimum':5,'maximum':4}",
    "{'type':'integer','exclusiveMinimum':-0.0,'maximum':0}",
    "{'type':'integer','minimum':0,'exclusiveMaximum':-0.0}",
    "{'type':'object','propertyNames':{'const':5},'minProperties':1}",
    "{'type':'integer','exclusiveMinimum':1,'exclusiveMaximum':2}",
    "{'type':'number','minimum':0.3,'maximum':0.4,'multipleOf':0.25}",
    "{'type':'string','minLength':3,'maxLength':2}",
    "{'type':'string','pattern':'^a$','minLength':2}",
    "{'type':'string','format':'date','pattern':'x'}",
    "{'allOf':[{'type':'string'},{'type':'null'}]}",
    "{'enum':[]}",
    "{'const':1,'type':'string'}",
    "{'enum':['a','b'],'pattern':'c'}",
    "{'enum':[[1,2,3]],'maxItems':2}",
    "{'enum':[{'a':1}],'minProperties':2}",
    "{'type':'array','minItems':2,'maxItems':1}",
    "{'type':'array','items':false,'minItems':1}",
    "{'type':'array','prefixItems':[{},false],'minItems':2}",
    "{'type':'array','items':{'type':'null'},'contains':{'type':'string'}}",
    "{'type':'array','contains':{},'minContains':3,'maxItems':2}",
    "{'type':'array','items':{'$ref':'#'},'minItems':1}",
    "{'type':'object','required':['a'],'properties':{'a':false}}",
    "{'type':'object','required':['a'],'patternProperties':{'^a':false}}",
    "{'type':'object','required':['a'],'additionalProperties':false}",
    "{'type':'object','required':['a','b'],'maxProperties':1}",
    "{'type':'object','required':['ab'],'propertyNames':{'maxLength':1}}",
    "{'type':'object','additionalProperties':false,'minProperties':1}",
    "{'type':'object','properties':{'a':{},'b':{}},'additionalProperties':false,'minProperties':3}",
    "{'type':'object','properties':{'ab':{},'c':{}},'additionalProperties':false,'minProperties':2,"
    "'propertyNames':{'maxLength':1}}",
    "{'type':'object','propertyNames':false,'minProperties':1}",
    "{'type':'object','properties':{'a':{'type':'boolean'}},'propertyNames':{'enum':['a']},'minProperties':2}",
    "{'type':'object','minProperties':1,'patternProperties':{'^a$b':{}},'additionalProperties':false}",
    "{'type':'object','minProperties':2,'patternProperties':{'^a$b':{}},'properties':{'c':{},'d':{'enum':[]}},"
    "'additionalProperties':false}",
    "{'type':'object','properties':{'n':{'$ref':'#'}},'required':['n']}",
    "{'$ref':'#/$defs/a','$defs':{'a':{'type':'array','prefixItems':[{'$ref':'#/$defs/b'}],'minItems':1},"
    "'b':{'type':'object','additionalProperties':{'$ref':'#/$defs/a'},'minProperties':1}}}",
};

static void nothing_satisfies(void **state) {
    const schema_options o = {.unknown_are_annotations = true, .passed_over = &(buf){0}};
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contradictory); i++) {
        grammar *g;
        err e;
        const status st = compile_quoted(contradictory[i], &o, &g, &e);
        grammar_free(g);
        if (st == ST_INPUT && strstr(e.text, "nothing satisfies")) continue;
        print_error("%s: %s: %s\n", contradictory[i], status_text(st), e.text);
        bad++;
    }
    buf_free(o.passed_over);
    assert_int_equal(bad, 0);
}

/* Keywords that a schema's draft does not have mean nothing in it. */
static void drafts_know_their_keywords(void **state) {
    static const struct {
        const char *schema, *text;
        bool good;
    } all[] = {
        {"{'$schema':'http://json-schema.org/draft-07/schema#','contains':{'type':'null'},'minContains':0}", "[1]",
         false},
        {"{'contains':{'type':'null'},'minContains':0}", "[1]", true},
        {"{'$schema':'https://json-schema.org/draft/2019-09/schema','prefixItems':[{'type':'string'}],"
         "'items':{'type':'integer'}}",
         "[\"a\",1]", false},
        {"{'prefixItems':[{'type':'string'}],'items':{'type':'integer'}}", "[\"a\",1]", true},
        {"{'propertyNames':{'const':5}}", "{\"b\":1}", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        grammar *g;
        err e;
        assert_int_equal(compile_quoted(all[i].schema, &(schema_options){0}, &g, &e), ST_OK);
        if (matches_text(g, all[i].text) != all[i].good) fail_msg("%s: %s", all[i].schema, all[i].text);
        grammar_free(g);
    }
}

static void passed_over_is_named(void **state) {
    static const char *const words[] = {"\"not\"", "\"uniqueItems\"", "\"if\"", "\"format\" colour", "\"oneOf\""};
    buf list = {0};
    grammar *g;
    err e;
    (void)state;
    const char *schema = "{'type':'object','properties':{'a':{'not':{},'type':'null'},'b':{'uniqueItems':true,"
                         "'type':'array'},'c':{'type':'string','format':'colour'},'d':{'oneOf':[{'minimum':1,"
                         "'type':'integer'},{'type':'integer'}]}},'if':{},'additionalProperties':false}";
    assert_int_equal(compile_quoted(schema, &(schema_options){.passed_over = &list}, &g, &e), ST_OK);
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (!strstr(list.data, words[i])) fail_msg("%s: %s is not in it", list.data, words[i]);
    assert_true(matches_text(g, "{\"d\":0,\"a\":null,\"b\":[1,1],\"c\":\"x\"}"));
    assert_false(matches_text(g, "{\"a\":1}"));
    grammar_free(g);
    buf_free(&list);
    assert_int_equal(compile_quoted("{'x-a':1}", &(schema_options){0}, &g, &e), ST_OK);
    grammar_free(g);
    assert_int_equal(compile_quoted("{'a':1}", &(schema_options){0}, &g, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "\"a\""));
}

static void no_key_twice(void **state) {
    grammar *g;
    err e;
    (void)state;
    assert_int_equal(compile_quoted("{'type':'object','properties':{'a':{},'b':{}}}", &(schema_options){0}, &g, &e),
                     ST_OK);
    assert_true(matches_text(g, "{\"a\":1,\"b\":2,\"c\":3}"));
    assert_false(matches_text(g, "{\"a\":1,\"b\":2,\"a\":3}"));
    assert_false(matches_text(g, "{\"a\":1,\"\\u0061\":3}"));
    grammar_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_dead_ends),
        cmocka_unit_test(narrow_ways),
        cmocka_unit_test(nothing_goes_on_there),
        cmocka_unit_test(states_are_values),
        cmocka_unit_test(errors_name_the_place),
        cmocka_unit_test(nothing_satisfies),
        cmocka_unit_test(passed_over_is_named),
        cmocka_unit_test(no_key_twice),
        cmocka_unit_test(drafts_know_their_keywords),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
