/* text/grammar/schema_values.c: enum and const: values that are what they are. */
#include "text/grammar/schema_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static u32 type_of_value(const json_t *v) {
    if (json_is_null(v)) return TYPE_NULL;
    if (json_is_boolean(v)) return TYPE_BOOLEAN;
    if (json_is_string(v)) return TYPE_STRING;
    if (json_is_array(v)) return TYPE_ARRAY;
    if (json_is_object(v)) return TYPE_OBJECT;
    const f64 x = json_f64(v);
    const bool whole = json_is_integer(v) || json_is_big_integer(v) || (isfinite(x) && floor(x) == x);
    return whole ? TYPE_INTEGER | TYPE_NUMBER : TYPE_NUMBER;
}

bool json_same(const json_t *a, const json_t *b) {
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_number(a) && json_is_number(b)) return json_same_number(a, b);
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        json_array_foreach(a, i, value) if (!json_same(value, json_array_get(b, i))) return false;
        return true;
    }
    if (!json_is_object(a) || !json_is_object(b) || json_object_size(a) != json_object_size(b)) return json_equal(a, b);
    json_object_foreach((json_t *)(uintptr_t)a, key, value) {
        const json_t *other = json_object_get(b, key);
        if (!other || !json_same(value, other)) return false;
    }
    return true;
}

bool schema_value_listed(const json_t *list, const json_t *v) {
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (json_same(one, v)) return true;
    return false;
}

/* What values are held against: an automaton of all strings that the parts allow, made once. */
typedef struct {
    const schema_parts *p;
    const json_t *own; /* the list or value that they are from */
    dfa *strings;
    bool asked;
    i64 least[3], most[3]; /* characters, items, members */
} value_check;

static value_check check_of(const schema_parts *p, const json_t *own) {
    static const char *const least[] = {"minLength", "minItems", "minProperties"}, *const most[] = {"maxLength",
                                                                                                    "maxItems",
                                                                                                    "maxProperties"};
    value_check k = {.p = p, .own = own};
    for (int i = 0; i < 3; i++)
        k.least[i] = schema_most(p, least[i], 0), k.most[i] = schema_least(p, most[i], INT64_MAX);
    return k;
}

static bool size_fits(const value_check *k, int which, i64 size) {
    return size >= k->least[which] && size <= k->most[which];
}

static bool text_fits(schema_compiler *c, value_check *k, const char *text, size_t len) {
    i64 n_chars = 0;
    for (size_t i = 0; i < len; i++) n_chars += ((u8)text[i] & 0xc0) != 0x80;
    bool has;
    err e = {0};
    if (!k->asked) k->strings = schema_string_dfa(c, k->p), k->asked = true;
    if (dfa_has(k->strings, text, len, &has, &e) != ST_OK) schema_fails(c, e.code, "\"enum\": %s", e.text);
    return has && size_fits(k, 0, n_chars);
}

/* Does v satisfy the parts? What is asked of what is in lists and objects is not looked at. */
static bool value_fits(schema_compiler *c, value_check *k, const json_t *v) {
    static const char *const deep[] = {"properties",    "required", "additionalProperties", "patternProperties",
                                       "propertyNames", "items",    "prefixItems",          "contains"};
    if (!(schema_types(k->p) & type_of_value(v))) return false;
    for (int i = 0; i < k->p->n; i++) {
        const json_t *list = json_object_get(k->p->of[i], "enum"), *only = json_object_get(k->p->of[i], "const");
        if ((list && list != k->own && !schema_value_listed(list, v)) || (only && !json_same(only, v))) return false;
        for (size_t d = 0; (json_is_object(v) || json_is_array(v)) && d < COUNT_OF(deep); d++)
            if (json_object_get(k->p->of[i], deep[d]))
                return schema_fails(c, ST_UNSUPPORTED, "\"%s\" beside \"enum\" of lists or objects", deep[d]), false;
    }
    if (json_is_array(v)) return size_fits(k, 1, (i64)json_array_size(v));
    if (json_is_object(v)) return size_fits(k, 2, (i64)json_object_size(v));
    if (json_is_string(v)) return text_fits(c, k, json_string_value(v), json_string_length(v));
    return !json_is_number(v) || schema_number_fits(c, k->p, v);
}

static i32 exact_value(schema_compiler *c, const json_t *v);

static i32 exact_string(schema_compiler *c, const json_t *v) {
    nfa *n = nfa_new();
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    const nfa_part part = nfa_bytes(n, json_string_value(v), json_string_length(v));
    return grammar_string(c->g, grammar_dfa(c->g, n, &part, 1), 0, UNBOUNDED);
}

static i32 exact_array(schema_compiler *c, const json_t *v) {
    const size_t n = json_array_size(v);
    grammar_array a = {.n_first = (i32)n, .min = (i64)n, .max = (i64)n, .first = malloc((n ? n : 1) * sizeof *a.first)};
    if (!a.first) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    for (size_t i = 0; i < n; i++) a.first[i] = exact_value(c, json_array_get(v, i));
    return grammar_add_array(c->g, &a);
}

static i32 exact_object(schema_compiler *c, const json_t *v) {
    const size_t n = json_object_size(v);
    grammar_object o = {.n = (i32)n,
                        .max = UNBOUNDED,
                        .of = calloc(n ? n : 1, sizeof *o.of),
                        .others = calloc(1, sizeof *o.others),
                        .keys = -1};
    nfa_part *parts = calloc(n ? n : 1, sizeof *parts);
    nfa *keys = nfa_new();
    const char *key;
    json_t *value;
    size_t i = 0;
    if (!o.of || !o.others || !parts || !keys) {
        free(o.of), free(o.others), free(parts), nfa_free(keys);
        return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        parts[i] = nfa_bytes(keys, key, strlen(key));
        o.of[i++] = (grammar_property){exact_value(c, value), true};
    }
    if (n)
        o.keys = grammar_dfa(c->g, keys, parts, n);
    else
        nfa_free(keys);
    free(parts);
    return grammar_add_object(c->g, &o);
}

static i32 exact_value(schema_compiler *c, const json_t *v) {
    if (!schema_spends(c, 16)) return NODE_NONE;
    if (json_is_string(v)) return exact_string(c, v);
    if (json_is_array(v)) return exact_array(c, v);
    if (json_is_object(v)) return exact_object(c, v);
    if (json_is_real(v) && fabs(json_f64(v)) < 1e15 && type_of_value(v) & TYPE_INTEGER) { /* 2.0 and 2 are one number */
        const f64 x = json_f64(v);
        char whole[64], part[64];
        snprintf(whole, sizeof whole, "%.0f", x), snprintf(part, sizeof part, "%.1f", x);
        const i32 both[] = {grammar_text(c->g, whole), grammar_text(c->g, part)};
        return grammar_alt(c->g, both, 2);
    }
    char *text = json_to_text(v, &json_compact);
    if (!text) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    const i32 node = grammar_text(c->g, text);
    free(text);
    return node;
}

/* All strings of a list as one automaton. */
i32 schema_listed(schema_compiler *c, const schema_parts *p, const json_t *list) {
    const json_t *v;
    size_t i;
    ids_buf nodes = {0};
    nfa *n = nfa_new();
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    nfa_part strings = nfa_never(n);
    bool any = false;
    value_check check = check_of(p, list);
    json_array_foreach(list, i, v) {
        if (!schema_in_time(c) || !value_fits(c, &check, v)) continue;
        if (json_is_string(v))
            strings = nfa_or(n, strings, nfa_bytes(n, json_string_value(v), json_string_length(v))), any = true;
        else
            ids_add(&nodes, exact_value(c, v));
    }
    if (any)
        ids_add(&nodes, grammar_string(c->g, grammar_dfa(c->g, n, &strings, 1), 0, UNBOUNDED));
    else
        nfa_free(n);
    dfa_free(check.strings);
    if (nodes.failed) schema_fails(c, ST_NOMEM, "out of host memory");
    const i32 node = grammar_alt(c->g, nodes.data, (i32)nodes.len);
    ids_free(&nodes);
    return node;
}

i32 schema_only(schema_compiler *c, const schema_parts *p, const json_t *v) {
    value_check check = check_of(p, v);
    const bool fits = value_fits(c, &check, v);
    dfa_free(check.strings);
    return fits ? exact_value(c, v) : NODE_NONE;
}
