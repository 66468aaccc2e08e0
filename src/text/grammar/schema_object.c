/* text/grammar/schema_object.c: objects: what holds for a member, from all schemas that hold for the whole. */
#include "text/grammar/schema_internal.h"
#include <stdlib.h>
#include <string.h>

/* The value of members of one name (NULL: of none that a property has) that match these patterns. */
static i32 member_value(schema_compiler *c, const schema_parts *p, const schema_keys *keys, const char *name, u32 set) {
    schema_parts value = {0};
    for (int i = 0; i < p->n && c->st == ST_OK; i++) {
        const json_t *own = name ? json_object_get(json_object_get(p->of[i], "properties"), name) : NULL;
        const json_t *by_pattern = json_object_get(p->of[i], "patternProperties"),
                     *more = json_object_get(p->of[i], "additionalProperties");
        bool known = own;
        if (own) schema_add(c, &value, own);
        for (int k = 0; k < keys->n_patterns; k++) {
            const json_t *one = set >> k & 1 ? json_object_get(by_pattern, keys->patterns[k]) : NULL;
            if (one) schema_add(c, &value, one), known = true;
        }
        if (!known && more) schema_add(c, &value, more);
    }
    return schema_node(c, &value);
}

/* Is a key that no property names refused at once? */
static bool is_closed(const schema_parts *p) {
    for (int i = 0; i < p->n; i++)
        if (json_is_false(json_object_get(p->of[i], "additionalProperties"))) return true;
    return false;
}

/* A key that no property names may be written twice, which makes one member; so of all of them one is counted. */
static void check_counts(schema_compiler *c, const grammar_object *o) {
    i64 named = 0;
    bool others = false;
    for (i32 i = 0; i < o->n; i++) named += o->of[i].value != NODE_NONE;
    for (i32 k = 0; k < 1 << o->n_patterns; k++) others = others || o->others[k] != NODE_NONE;
    if (others && o->min > named + 1)
        schema_fails(c, ST_UNSUPPORTED, "\"minProperties\" above 1 where no property names the keys");
}

static void fill_members(schema_compiler *c, const schema_parts *p, schema_keys *keys, grammar_object *o) {
    const bool closed = is_closed(p) || (keys->restricted && !keys->allowed);
    o->n = keys->n_names, o->n_patterns = keys->n_patterns;
    o->of = calloc((size_t)max_i64(o->n, 1), sizeof *o->of);
    o->others = calloc((size_t)1 << o->n_patterns, sizeof *o->others);
    if (!o->of || !o->others) schema_fails(c, ST_NOMEM, "out of host memory");
    for (int i = 0; schema_spends(c, 4) && i < o->n; i++) {
        const char *name = keys->names[i];
        const bool allowed = schema_keys_allow(c, keys, name);
        const i32 value = allowed ? member_value(c, p, keys, name, schema_keys_matched(c, keys, name)) : NODE_NONE;
        o->of[i] = (grammar_property){value, keys->required[i]};
    }
    for (u32 set = 0; c->st == ST_OK && set < 1u << o->n_patterns; set++)
        o->others[set] = (set == 0 && closed) || (keys->restricted && !keys->allowed)
                             ? NODE_NONE
                             : member_value(c, p, keys, NULL, set);
}

i32 schema_object(schema_compiler *c, const schema_parts *p) {
    grammar_object o = {.min = max_i64(schema_most(p, "minProperties", 0), 0),
                        .max = schema_least(p, "maxProperties", UNBOUNDED)};
    schema_keys keys;
    i64 n_required = 0;
    if (schema_keys_find(c, p, &keys)) fill_members(c, p, &keys, &o);
    for (int i = 0; c->st == ST_OK && i < o.n; i++) n_required += o.of[i].required;
    if (c->st == ST_OK) check_counts(c, &o);
    if (c->st == ST_OK) o.keys = schema_keys_automaton(c, &keys, &o);
    schema_keys_free(&keys);
    if (c->st == ST_OK && (o.max == UNBOUNDED || (o.max >= o.min && o.max >= n_required)))
        return grammar_add_object(c->g, &o);
    free(o.of), free(o.others);
    return NODE_NONE;
}
