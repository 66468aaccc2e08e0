/* text/grammar/schema_keys.c: the keys of objects: names, patterns, and what propertyNames allow.
 *
 * Keys fall into classes, each of which has one value: each property's name, and for each set of patterns the keys that
 * match these and no others and are no property's name. So what is still reachable is exact, and no key is begun that
 * could only become a refused one. */
#include "text/grammar/schema_internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- what is asked ---- */

static bool find_patterns(schema_compiler *c, const schema_parts *p, schema_keys *all) {
    const char *key;
    json_t *value;
    for (int i = 0; i < p->n; i++) {
        json_t *own = json_object_get(p->of[i], "patternProperties");
        if (own && !json_is_object(own)) {
            c->at = p->of[i];
            return schema_fails(c, ST_INPUT, "\"patternProperties\" is no object"), false;
        }
        json_object_foreach(own, key, value) {
            int k = 0;
            while (k < all->n_patterns && strcmp(all->patterns[k], key)) k++;
            if (k < all->n_patterns) continue;
            c->at = p->of[i];
            if (all->n_patterns == GRAMMAR_PATTERNS_MAX)
                return schema_fails(c, ST_UNSUPPORTED, "more than %d \"patternProperties\" at one place",
                                    GRAMMAR_PATTERNS_MAX),
                       false;
            all->patterns[all->n_patterns++] = key;
        }
    }
    return true;
}

/* The name's number, -1: out of memory. */
static int name_number(schema_compiler *c, schema_keys *all, const char *name) {
    const json_t *known = json_object_get(all->numbers, name);
    if (known) return (int)json_integer_value(known);
    if (all->n_names == all->cap_names) {
        const int cap = all->cap_names ? 2 * all->cap_names : 16;
        const char **names = realloc(all->names, (size_t)cap * sizeof *names);
        if (names) all->names = names;
        bool *required = realloc(all->required, (size_t)cap * sizeof *required);
        if (required) all->required = required;
        if (!names || !required) return schema_fails(c, ST_NOMEM, "out of host memory"), -1;
        all->cap_names = cap;
    }
    if (json_object_set_new(all->numbers, name, json_integer(all->n_names)))
        return schema_fails(c, ST_NOMEM, "out of host memory"), -1;
    all->required[all->n_names] = false;
    all->names[all->n_names] = name;
    return all->n_names++;
}

static void find_names(schema_compiler *c, const schema_parts *p, schema_keys *all) {
    const char *key;
    json_t *value;
    const json_t *one;
    size_t k;
    for (int i = 0; i < p->n; i++) {
        json_t *own = json_object_get(p->of[i], "properties"), *required = json_object_get(p->of[i], "required");
        c->at = p->of[i];
        if (own && !json_is_object(own)) schema_fails(c, ST_INPUT, "\"properties\" is no object");
        if (required && !json_is_array(required) && !json_is_boolean(required))
            schema_fails(c, ST_INPUT, "\"required\" is no list"); /* draft 3 had a boolean in the property */
        json_object_foreach(own, key, value) name_number(c, all, key);
        json_array_foreach(required, k, one) {
            if (!json_is_string(one)) schema_fails(c, ST_INPUT, "\"required\" is no list of strings");
            const int at = json_is_string(one) ? name_number(c, all, json_string_value(one)) : -1;
            if (at >= 0) all->required[at] = true;
        }
    }
}

static dfa *one_dfa(schema_compiler *c, nfa *n, nfa_part part) {
    dfa *d = NULL;
    err e = {0};
    if (dfa_make(&d, n, &part, 1, NULL, &e) != ST_OK) schema_fails(c, e.code, "%s", e.text);
    return d;
}

static void compile_patterns(schema_compiler *c, schema_keys *all) {
    for (int k = 0; k < all->n_patterns && c->st == ST_OK; k++) {
        nfa *n = nfa_new();
        nfa_part part;
        err e = {0};
        if (!n) {
            schema_fails(c, ST_NOMEM, "out of host memory");
        } else if (regex_parse(n, all->patterns[k], strlen(all->patterns[k]), false, &part, &e) != ST_OK) {
            nfa_free(n);
            schema_fails(c, e.code, "\"patternProperties\": %s", e.text);
        } else {
            all->matches[k] = one_dfa(c, n, part);
        }
    }
}

/* The language that all propertyNames allow. */
static nfa_part allowed_part(schema_compiler *c, const schema_keys *all, nfa *n) {
    nfa_part part = nfa_star(n, nfa_any_char(n));
    for (int i = 0; i < all->parts->n && c->st == ST_OK; i++) {
        const json_t *names = json_object_get(all->parts->of[i], "propertyNames");
        c->at = all->parts->of[i];
        if (names && !json_is_true(names)) part = nfa_both(n, part, schema_names_part(c, names, n));
    }
    return part;
}

bool schema_keys_find(schema_compiler *c, const schema_parts *p, schema_keys *all) {
    *all = (schema_keys){.parts = p, .numbers = json_object()};
    if (!all->numbers) return schema_fails(c, ST_NOMEM, "out of host memory"), false;
    if (!find_patterns(c, p, all)) return false;
    find_names(c, p, all);
    compile_patterns(c, all);
    for (int i = 0; i < p->n; i++) {
        const json_t *names = json_object_get(p->of[i], "propertyNames");
        all->restricted = all->restricted || (names && !json_is_true(names));
    }
    nfa *n = all->restricted && c->st == ST_OK ? nfa_new() : NULL;
    if (n) all->allowed = one_dfa(c, n, allowed_part(c, all, n));
    return c->st == ST_OK;
}

void schema_keys_free(schema_keys *all) {
    for (int k = 0; k < all->n_patterns; k++) dfa_free(all->matches[k]);
    dfa_free(all->allowed);
    free(all->names), free(all->required);
    json_decref(all->numbers);
}

/* ---- one key ---- */

static bool key_is_in(schema_compiler *c, dfa *d, const char *key) {
    bool has;
    err e = {0};
    if (dfa_has(d, key, strlen(key), &has, &e) != ST_OK) schema_fails(c, e.code, "%s", e.text);
    return has;
}

u32 schema_keys_matched(schema_compiler *c, const schema_keys *all, const char *key) {
    u32 set = 0;
    for (int k = 0; k < all->n_patterns; k++)
        if (key_is_in(c, all->matches[k], key)) set |= 1u << k;
    return set;
}

bool schema_keys_allow(schema_compiler *c, const schema_keys *all, const char *key) {
    return !all->restricted || key_is_in(c, all->allowed, key);
}

/* ---- all keys ---- */

static nfa_part dfa_as_part(schema_compiler *c, nfa *n, dfa *d, bool others) {
    nfa_part part;
    err e = {0};
    if (nfa_of_dfa(n, d, others, &part, &e) != ST_OK) schema_fails(c, e.code, "keys: %s", e.text);
    return part;
}

static dfa *names_dfa(schema_compiler *c, const schema_keys *all) {
    nfa *n = nfa_new();
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), NULL;
    nfa_part any = nfa_never(n);
    for (int i = 0; i < all->n_names; i++) any = nfa_or(n, any, nfa_bytes(n, all->names[i], strlen(all->names[i])));
    return one_dfa(c, n, any);
}

/* Keys that match these patterns and no others, and are no property's name. */
static nfa_part class_part(schema_compiler *c, const schema_keys *all, nfa *n, dfa *names, u32 set) {
    nfa_part part = allowed_part(c, all, n);
    if (!all->restricted && !all->n_patterns) return part; /* it goes on behind every name */
    if (names) part = nfa_both(n, part, dfa_as_part(c, n, names, true));
    for (int k = 0; k < all->n_patterns && schema_in_time(c); k++)
        part = nfa_both(n, part, dfa_as_part(c, n, all->matches[k], !(set >> k & 1)));
    return part;
}

i32 schema_keys_automaton(schema_compiler *c, const schema_keys *all, grammar_object *o) {
    const bool any = !all->restricted && !all->n_patterns && o->others[0] != NODE_NONE;
    if (any && !all->n_names && c->any_keys) return o->any_key = true, c->any_keys - 1;
    const size_t n_sets = (size_t)1 << all->n_patterns, n_parts = (size_t)all->n_names + n_sets;
    nfa_part *parts = calloc(n_parts, sizeof *parts);
    dfa *names = all->n_names && (all->restricted || all->n_patterns) ? names_dfa(c, all) : NULL;
    nfa *n = nfa_new();
    if (!parts || !n) schema_fails(c, ST_NOMEM, "out of host memory");
    for (int i = 0; c->st == ST_OK && i < all->n_names; i++)
        parts[i] = o->of[i].value == NODE_NONE ? nfa_never(n) : nfa_bytes(n, all->names[i], strlen(all->names[i]));
    for (u32 set = 0; c->st == ST_OK && set < n_sets; set++)
        parts[(size_t)all->n_names + set] =
            o->others[set] == NODE_NONE ? nfa_never(n) : class_part(c, all, n, names, set);
    o->any_key = !all->restricted;
    const i32 made = c->st == ST_OK ? grammar_dfa(c->g, n, parts, n_parts) : -1;
    if (c->st != ST_OK) nfa_free(n);
    if (any && !all->n_names) c->any_keys = made + 1;
    dfa_free(names);
    free(parts);
    return made;
}
