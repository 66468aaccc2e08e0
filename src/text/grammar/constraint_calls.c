/* text/grammar/constraint_calls.c: Kimi's section of tool calls as nodes of a grammar. */
#include "base/log.h"
#include "text/grammar/constraint_internal.h"
#include "text/grammar/json_schema.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

i32 mark_node(grammar *g, mark m) { return grammar_exact(g, (const u8[]){TOKEN_MARK_BYTE, (u8)m}, 2); }

typedef struct {
    const char *name;
    bool strict;
    i32 name_node, arguments;
} call_tool;

typedef struct {
    grammar *g;
    call_tool *tools; /* [n] */
    size_t n;
    json_t *nodes; /* of arguments, by their schema's text */
    i32 any_object;
    i32 digits[10];
    compile_limit limit; /* of all schemas together */
    buf *warnings;
    err *e;
} calls_compiler;

/* ---- arguments ---- */

static status refuse_tool(calls_compiler *k, const call_tool *t, status st, const char *why) {
    err_set(k->e, st, "tools: %.120s: %s", t->name, why);
    return st;
}

static void warn_of_tool(calls_compiler *k, const call_tool *t, const char *what, const char *why) {
    if (k->warnings) buf_fmt(k->warnings, "tools: %s: %s%s\n", t->name, what, why);
}

static status any_object(calls_compiler *k, i32 *node) {
    json_t *schema = json_object();
    status st = schema ? ST_OK : err_nomem(k->e, "a schema", 64);
    if (st == ST_OK && k->any_object == NODE_NONE)
        st = schema_to_node(k->g, schema, &(schema_options){.object = true}, &k->any_object, k->e);
    json_decref(schema);
    *node = k->any_object;
    return st;
}

/* Does the schema itself say that it is about something else? */
static bool is_of_objects(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *one;
    bool object = !type || (json_is_string(type) && !strcmp(json_string_value(type), "object"));
    size_t i;
    json_array_foreach(type, i, one) object =
        object || (json_is_string(one) && !strcmp(json_string_value(one), "object"));
    return object;
}

/* By itself at first: what fails there fails alone. */
static status compile_arguments(calls_compiler *k, const call_tool *t, const json_t *schema, i32 *node) {
    buf passed_over = {0};
    schema_options o = {.object = true, .unknown_are_annotations = !t->strict, .limit = &k->limit};
    grammar *alone = NULL;
    err why = {0};
    if (!t->strict) o.passed_over = &passed_over;
    status st = grammar_of_schema(&alone, schema, &o, &why);
    grammar_free(alone);
    if (st == ST_OK && passed_over.len) warn_of_tool(k, t, "passed over: ", passed_over.data);
    buf_clear(&passed_over);
    if (st == ST_OK) {
        st = schema_to_node(k->g, schema, &o, node, k->e);
        if (st != ST_OK) err_prefix(k->e, "tools: %.120s", t->name);
    } else if (t->strict || st == ST_NOMEM || compile_goes_on(&k->limit, NULL) != ST_OK) {
        refuse_tool(k, t, st, why.text);
    } else {
        warn_of_tool(k, t, "its arguments are some JSON object: ", why.text);
        st = any_object(k, node);
    }
    buf_free(&passed_over);
    return st;
}

/* Tools of which the same is asked share a node. */
static status find_arguments(calls_compiler *k, call_tool *t, const json_t *schema) {
    if (!schema || json_is_null(schema)) return any_object(k, &t->arguments);
    if (!json_is_object(schema)) return refuse_tool(k, t, ST_INPUT, "\"parameters\" is no schema");
    if (!is_of_objects(schema)) return refuse_tool(k, t, ST_INPUT, "\"parameters\" is not of type \"object\"");
    buf key = {0};
    buf_char(&key, t->strict ? '+' : '-');
    json_write(&key, schema, &json_compact);
    status st = key.failed ? err_nomem(k->e, "a schema", 64) : ST_OK;
    const json_t *known = st == ST_OK ? json_object_get(k->nodes, key.data) : NULL;
    if (known) {
        t->arguments = (i32)json_integer_value(known);
    } else if (st == ST_OK) {
        st = compile_arguments(k, t, schema, &t->arguments);
        if (st == ST_OK && json_object_set_new(k->nodes, key.data, json_integer(t->arguments)))
            st = err_nomem(k->e, "a schema", key.len);
    }
    buf_free(&key);
    return st;
}

/* ---- tools ---- */

static bool is_a_name(const json_t *v) {
    const char *name = json_string_value(v);
    const size_t n = json_string_length(v);
    for (size_t i = 0; i < n; i++)
        if ((u8)name[i] < ' ' || name[i] == 0x7f) return false;
    return n > 0;
}

static status find_tool(calls_compiler *k, call_tool *t, size_t i, const json_t *tool) {
    const json_t *function = json_object_get(tool, "function"), *name = json_object_get(function, "name");
    buf text = {0};
    if (!is_a_name(name)) return err_set(k->e, ST_INPUT, "tools: the name of number %zu is no name", i);
    t->name = json_string_value(name);
    t->strict = json_is_true(json_object_get(function, "strict"));
    buf_fmt(&text, "%s:", t->name);
    t->name_node = text.failed ? NODE_NONE : grammar_exact(k->g, text.data, text.len);
    const status st = text.failed ? err_nomem(k->e, "a tool's name", 64) : ST_OK;
    buf_free(&text);
    return st == ST_OK ? find_arguments(k, t, json_object_get(function, "parameters")) : st;
}

/* ---- the section ---- */

/* The last one stands for itself and all behind it. */
static i32 index_node(calls_compiler *k, i32 index, bool last, i32 behind) {
    char text[16];
    i32 all[16], n = 0;
    if (last) {
        nfa *a = nfa_new();
        if (!a) return NODE_NONE;
        nfa_part digits = nfa_nothing(a);
        for (int i = 0; i < 17; i++) digits = nfa_optional(a, nfa_then(a, nfa_range(a, '0', '9'), digits));
        digits = nfa_then(a, nfa_range(a, '1', '9'), digits);
        all[n++] = grammar_lexeme(k->g, grammar_dfa(k->g, a, &digits, 1));
    } else {
        snprintf(text, sizeof text, "%d", index);
        for (const char *at = text; *at; at++) {
            i32 *digit = &k->digits[*at - '0'];
            if (*digit == NODE_NONE) *digit = grammar_exact(k->g, at, 1);
            all[n++] = *digit;
        }
    }
    all[n++] = behind;
    return grammar_seq(k->g, all, n);
}

/* From the last index to the first: a call, then the end or the next one. */
static void add_section(calls_compiler *k, answer_grammar *a, bool one_call, i32 *choices) {
    grammar *g = k->g;
    const u8 begin[] = {TOKEN_MARK_BYTE, MARK_CALL, 'f', 'u', 'n', 'c', 't', 'i', 'o', 'n', 's', '.'};
    const i32 call = grammar_exact(g, begin, sizeof begin), argument = mark_node(g, MARK_ARGUMENT),
              call_end = mark_node(g, MARK_CALL_END), end = mark_node(g, MARK_SECTION_END);
    const i32 ever = grammar_reserve(g); /* behind the last index */
    i32 more = ever;
    for (i32 i = a->n - 1; i >= 0; i--) {
        const i32 index = index_node(k, i, i == a->n - 1, argument);
        for (size_t t = 0; t < k->n; t++)
            choices[t] = grammar_seq(g, (const i32[]){k->tools[t].name_node, index, k->tools[t].arguments}, 3);
        const i32 tool = grammar_alt(g, choices, (i32)k->n);
        a->calls[i] = grammar_seq(g, (const i32[]){call, tool, call_end, one_call ? end : more}, 4);
        more = grammar_alt(g, (const i32[]){end, a->calls[i]}, 2);
        if (i == a->n - 1) grammar_define(g, ever, more);
    }
}

enum {
    TOOLS_MAX = 1024,
    CALL_NODES = 1 << 15, /* about so many for all indices of all tools */
    INDICES_MIN = 8,
    TOOLS_SECONDS = 2 /* for all schemas together */
};

status add_calls(answer_grammar *a, const constraint_source *source, buf *warnings, err *e) {
    const size_t n = json_array_size(source->tools);
    calls_compiler k = {.g = a->g,
                        .n = n,
                        .limit = {TOOLS_SECONDS, thread_s() + TOOLS_SECONDS, source->stop},
                        .warnings = warnings,
                        .e = e};
    const json_t *tool;
    size_t i;
    if (!n) return err_set(e, ST_INPUT, "tools: there are none");
    if (n > TOOLS_MAX) return err_set(e, ST_LIMIT, "tools: more than %d", TOOLS_MAX);
    a->n = 1 + (i32)max_i64(INDICES_MIN, min_i64(INDICES_MAX, CALL_NODES / (i64)n));
    k.tools = calloc(n, sizeof *k.tools);
    k.nodes = json_object();
    i32 *choices = malloc(n * sizeof *choices);
    status st = k.tools && k.nodes && choices ? ST_OK : err_nomem(e, "tools", n * sizeof *k.tools);
    json_array_foreach(source->tools, i, tool) {
        if (st == ST_OK) st = find_tool(&k, &k.tools[i], i, tool);
        if (st == ST_OK && compile_goes_on(&k.limit, e) != ST_OK) st = err_prefix(e, "tools");
    }
    if (st == ST_OK) add_section(&k, a, source->one_call, choices);
    free(k.tools), free(choices);
    json_decref(k.nodes);
    return st;
}
