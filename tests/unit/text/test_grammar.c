/* The matcher of JSON Schemas: no text that it lets through is stuck, whole texts satisfy their schema, states are
 * values; limits; schemas that are meant to take long. */
#include "unit.h"

#include "text/grammar/json_schema.h"
#include "text/grammar/matcher.h"
#include "text/schema_check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers make all slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 8 };
#elif defined(__has_feature)
enum { SLOWER = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 8 : 1 };
#else
enum { SLOWER = 1 };
#endif

enum { WORDS_MOST = 256, LATE = 300, GIVEN_UP = 4000, STEPS = 50000000 };

/* What schema_check.h knows nothing of: schemas that say so are walked, and their texts only parsed. */
static const char *const beyond_check[] = {"pattern",  "format",      "patternProperties", "propertyNames",
                                           "contains", "minContains", "additionalItems"};

/* A schema with walkers' words: what it requires, then its properties, then all other strings. */
typedef struct {
    const char *name;
    const json_t *schema;
    grammar *g;
    matcher *m;
    const char *words[WORDS_MOST];
    int n_words, n_required;
    u64 seed;
    buf text;
    bool in_string, escaped;
} walker;

static u32 dice(walker *w, u32 n) {
    return (u32)((w->seed = w->seed * 6364136223846793005u + 1442695040888963407u) >> 33) % n;
}

/* ---- schemas from the golden file ---- */

static void word_add(walker *w, const char *word) {
    for (int i = 0; i < w->n_words; i++)
        if (!strcmp(w->words[i], word)) return;
    if (w->n_words < WORDS_MOST) w->words[w->n_words++] = word;
}

/* what: 0 required names, 1 properties, 2 strings. */
static void find_words(walker *w, const json_t *at, int what) {
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        const char *inner;
        json_t *one;
        if (what == 0 && !strcmp(key, "required"))
            json_array_foreach(value, i, one) if (json_is_string(one)) word_add(w, json_string_value(one));
        if (what == 1 && !strcmp(key, "properties")) json_object_foreach(value, inner, one) word_add(w, inner);
        find_words(w, value, what);
    }
    json_array_foreach(at, i, value) find_words(w, value, what);
    if (what == 2 && json_is_string(at)) word_add(w, json_string_value(at));
}

static bool walker_open(walker *w, const char *name, const json_t *schema, err *e) {
    const schema_options o = {.unknown_are_annotations = true};
    *w = (walker){.name = name, .schema = schema, .seed = 7};
    if (grammar_of_schema(&w->g, schema, &o, e) != ST_OK) return false;
    assert_int_equal(matcher_open(&w->m, w->g, e), ST_OK);
    for (int what = 0; what < 3; what++) {
        find_words(w, schema, what);
        if (!what) w->n_required = w->n_words;
    }
    return true;
}

static void walker_close(walker *w) {
    matcher_close(w->m);
    grammar_free(w->g);
    buf_free(&w->text);
}

/* Calls `each` for all schemas that compile. */
static int for_golden(void (*each)(walker *, const json_t *line)) {
    FILE *f = fopen("tests/golden/schemas.jsonl", "rb");
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    int n = 0;
    assert_non_null(f);
    while ((len = getline(&text, &cap, f)) > 0) {
        err e = {0};
        walker w;
        json_t *line = json_parse(text, (size_t)len, "schemas.jsonl", &e);
        if (!line) fail_msg("%s", e.text);
        if (walker_open(&w, json_string_value(json_object_get(line, "name")), json_object_get(line, "schema"), &e)) {
            each(&w, line);
            walker_close(&w);
            n++;
        } else {
            assert_true(e.text[0] && e.code != ST_OK);
        }
        json_decref(line);
    }
    free(text);
    fclose(f);
    return n;
}

/* ---- walks ---- */

static i32 walk_bytes(matcher *m, i32 at, const char *text, size_t len) {
    for (size_t i = 0; i < len && at != MATCHER_DEAD; i++) at = matcher_next(m, at, (u8)text[i]);
    return at;
}

static void note_bytes(walker *w, const char *bytes, size_t len) {
    buf_add(&w->text, bytes, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '"' && !w->escaped) w->in_string = !w->in_string;
        w->escaped = w->in_string && !w->escaped && bytes[i] == '\\';
    }
}

static i32 take(walker *w, i32 at, u8 byte) {
    const i32 to = matcher_next(w->m, at, byte);
    if (to != MATCHER_DEAD) note_bytes(w, (const char *)&byte, 1);
    return to;
}

/* One of the words and a quote behind it, where all of it is let through. */
static i32 take_word(walker *w, i32 at, int from, int to) {
    const int n = to - from, first = n ? (int)dice(w, (u32)n) : 0;
    for (int k = 0; k < n; k++) {
        buf text = {0};
        const char *word = w->words[from + (first + k) % n];
        buf_json_str(&text, word, strlen(word));
        const i32 end = walk_bytes(w->m, at, text.data + 1, text.len - 1);
        if (end != MATCHER_DEAD) note_bytes(w, text.data + 1, text.len - 1);
        buf_free(&text);
        if (end != MATCHER_DEAD) return end;
    }
    return MATCHER_DEAD;
}

static i32 take_one_of(walker *w, i32 at, const char *bytes) {
    i32 to = MATCHER_DEAD;
    for (; *bytes && to == MATCHER_DEAD; bytes++) to = take(w, at, (u8)*bytes);
    return to;
}

static i32 take_any(walker *w, i32 at) {
    i32 to = MATCHER_DEAD;
    for (int k = 0; k < 24 && to == MATCHER_DEAD; k++)
        to = take(w, at, dice(w, 16) ? (u8)(' ' + dice(w, 95)) : (u8)dice(w, 256));
    const u32 first = dice(w, 256);
    for (u32 k = 0; k < 256 && to == MATCHER_DEAD; k++) to = take(w, at, (u8)(first + k));
    return to;
}

/* Towards an end: containers are closed if they may be, else what they require is written. */
static i32 take_closing(walker *w, i32 at) {
    i32 to = MATCHER_DEAD;
    if (w->in_string) {
        to = take_word(w, at, 0, w->n_required);
        if (to == MATCHER_DEAD) to = take_word(w, at, w->n_required, w->n_words);
        if (to == MATCHER_DEAD) to = take_one_of(w, at, "\"");
    } else {
        to = take_one_of(w, at, "}]\",:");
    }
    return to == MATCHER_DEAD ? take_any(w, at) : to;
}

static i32 take_random(walker *w, i32 at) {
    static const char *const likely[] = {"\"}],", "]\"", ",:}", "}"};
    i32 to = MATCHER_DEAD;
    if (w->text.len > LATE) return take_closing(w, at);
    if (w->in_string && !dice(w, 8)) to = take_word(w, at, 0, w->n_words);
    if (to == MATCHER_DEAD && !dice(w, 3)) to = take_one_of(w, at, likely[dice(w, COUNT_OF(likely))]);
    return to == MATCHER_DEAD ? take_any(w, at) : to;
}

typedef enum { WALK_WHOLE, WALK_GIVEN_UP, WALK_STUCK } walk_end;

static walk_end walk_random(walker *w) {
    i32 at = matcher_start(w->m);
    w->in_string = w->escaped = false;
    for (buf_clear(&w->text); w->text.len < GIVEN_UP;) {
        const bool accepts = matcher_accepts(w->m, at);
        if (accepts && dice(w, 2)) return WALK_WHOLE;
        at = take_random(w, at);
        if (at == MATCHER_DEAD) return accepts ? WALK_WHOLE : WALK_STUCK;
    }
    return WALK_GIVEN_UP;
}

static void tell(const walker *w, const char *what) {
    const size_t skip = w->text.len > 300 ? w->text.len - 300 : 0;
    print_error("%s: %s: %s%s\n", w->name, what, skip ? "..." : "", w->text.data ? w->text.data + skip : "");
}

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

static json_t *json_of(const char *text) {
    err e = {0};
    json_t *v = json_parse(text, strlen(text), "schema", &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    return v;
}

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

/* ' stands for ". */
static json_t *quoted_schema(const char *text) {
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    json_t *v = json_of(copy);
    free(copy);
    return v;
}

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
    {"{'$ref':7}", ST_INPUT, {"\"$ref\"", "#:"}},
    {"{'$ref':'other.json'}", ST_INPUT, {"other.json", "#:"}},
    {"{'$ref':'http://example.com/#/x'}", ST_INPUT, {"http://example.com/#/x", "#:"}},
    {"{'$ref':'#x'}", ST_INPUT, {"#x", "#:"}},
    {"{'patternProperties':{'a':{},'b':{},'c':{},'d':{},'e':{}}}", ST_UNSUPPORTED, {"\"patternProperties\"", "#:"}},
    {"{'patternProperties':{'(':{}}}", ST_INPUT, {"\"patternProperties\"", "#:"}},
    {"{'propertyNames':{'$ref':'#'}}", ST_UNSUPPORTED, {"\"propertyNames\"", "#:"}},
};

static status compile_quoted(const char *text, const schema_options *o, grammar **g, err *e) {
    json_t *schema = quoted_schema(text);
    *e = (err){0};
    const status st = grammar_of_schema(g, schema, o, e);
    json_decref(schema);
    if (st != ST_OK && (*g || e->code != st || !e->text[0])) fail_msg("%s: an error without a text", text);
    return st;
}

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

static bool matches_text(grammar *g, const char *text) {
    matcher *m;
    assert_int_equal(matcher_open(&m, g, NULL), ST_OK);
    const bool whole = matcher_accepts(m, walk_bytes(m, matcher_start(m), text, strlen(text)));
    assert_int_equal(matcher_failed(m, NULL), ST_OK);
    matcher_close(m);
    return whole;
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

static void open_within(walker *w, const char *text, f64 most_s) {
    err e = {0};
    json_t *schema = json_of(text);
    const f64 start = processor_s();
    const bool opened = walker_open(w, "large", schema, &e);
    const f64 took = processor_s() - start;
    json_decref(schema);
    if (!opened) fail_msg("%.80s: %s", text, e.text);
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
    } counts[] = {{"{\"type\":\"string\",\"minLength\":5000000,\"maxLength\":5000000}", "x", true},
                  {"{\"type\":\"string\",\"maxLength\":5000000}", "\u00e9", false},
                  {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":5000000}", "1,", false},
                  {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":5000000}", "1,", true},
                  {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":5000000}", "\"\":1,", false},
                  {"{\"type\":\"string\",\"pattern\":\"^[a-z]{0,20000}$\"}", "x", false}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        const bool string = strstr(counts[i].schema, "string"), list = strstr(counts[i].schema, "array");
        walker w;
        buf text = {0};
        open_within(&w, counts[i].schema, 0.05);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_dead_ends),          cmocka_unit_test(narrow_ways),
        cmocka_unit_test(nothing_goes_on_there), cmocka_unit_test(states_are_values),
        cmocka_unit_test(errors_name_the_place), cmocka_unit_test(nothing_satisfies),
        cmocka_unit_test(passed_over_is_named),  cmocka_unit_test(no_key_twice),
        cmocka_unit_test(large_counts),          cmocka_unit_test(many_strings),
        cmocka_unit_test(many_properties),       cmocka_unit_test(deep_lists),
        cmocka_unit_test(long_chains),           cmocka_unit_test(recursion),
        cmocka_unit_test(many_branches),         cmocka_unit_test(hostile_schemas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
