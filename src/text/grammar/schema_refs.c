/* text/grammar/schema_refs.c: what a $ref refers to. */
#include "text/grammar/schema_internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- one walk over the schema ---- */

/* `names`: members are named by the schema's author, not by a keyword. inside: a resource of its own, by its $id. */
typedef struct {
    bool names, inside;
} ref_place;

static bool is_one_of(const char *key, const char *const *all, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, all[i])) return true;
    return false;
}

static bool names_members(const char *key) {
    static const char *const all[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
    return is_one_of(key, all, COUNT_OF(all));
}

/* No schema, whatever it looks like. */
static bool is_a_value(const char *key) {
    static const char *const all[] = {"const", "enum", "default", "example", "examples"};
    return is_one_of(key, all, COUNT_OF(all));
}

/* Up to draft 7 an $id that is a fragment only was an anchor, and beside a $ref it meant nothing. */
static bool begins_a_resource(const schema_compiler *c, const json_t *schema) {
    const char *id = json_string_value(json_object_get(schema, "$id"));
    return schema != c->root && id && *id != '#' && !(c->ref_alone && json_object_get(schema, "$ref"));
}

static void add_foreign(schema_compiler *c, const json_t *ref) {
    if (c->n_foreign == c->cap_foreign) {
        const i64 cap = c->cap_foreign ? 2 * c->cap_foreign : 16;
        const json_t **more = realloc(c->foreign, (size_t)cap * sizeof *more);
        if (!more) {
            schema_fails(c, ST_NOMEM, "out of host memory");
            return;
        }
        c->foreign = more, c->cap_foreign = cap;
    }
    c->foreign[c->n_foreign++] = ref;
}

static void add_anchor(schema_compiler *c, const char *name, const json_t *schema) {
    if (!c->anchors) c->anchors = json_object();
    if (json_object_get(c->anchors, name)) return; /* the first one is it */
    if (!c->anchors || json_object_set_new(c->anchors, name, json_integer((i64)(intptr_t)schema)))
        schema_fails(c, ST_NOMEM, "out of host memory");
}

/* JSON is at most 512 deep. */
static void walk_refs(schema_compiler *c, const json_t *at, ref_place place) {
    const char *key;
    json_t *value;
    size_t i;
    if (!json_is_object(at) && !json_is_array(at)) return;
    if (!schema_spends(c, 1)) return;
    if (!place.names) {
        const char *anchor = json_string_value(json_object_get(at, "$anchor"));
        const json_t *ref = json_object_get(at, "$ref");
        place.inside = place.inside || begins_a_resource(c, at);
        if (anchor && !place.inside) add_anchor(c, anchor, at);
        if (json_is_string(ref) && place.inside) add_foreign(c, ref);
    }
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        const bool names = !place.names && names_members(key);
        if (place.names || !is_a_value(key)) walk_refs(c, value, (ref_place){names, place.inside});
    }
    json_array_foreach(at, i, value) walk_refs(c, value, (ref_place){false, place.inside});
}

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (const json_t *const *)a, y = (uintptr_t) * (const json_t *const *)b;
    return (x > y) - (x < y);
}

void schema_refs_find(schema_compiler *c) {
    walk_refs(c, c->root, (ref_place){false, false});
    if (c->n_foreign) qsort(c->foreign, (size_t)c->n_foreign, sizeof *c->foreign, by_address);
}

void schema_refs_free(schema_compiler *c) {
    free(c->foreign);
    json_decref(c->anchors);
}

/* ---- following ---- */

static int hex_digit_of(char ch) {
    const char low = (char)(ch | 32);
    return ch >= '0' && ch <= '9' ? ch - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* A piece of a JSON pointer, ~0, ~1 and %HH undone; where it ends. */
static const char *pointer_piece(const char *at, char *out, size_t cap) {
    size_t n = 0;
    for (; *at && *at != '/'; at++) {
        char ch = *at;
        if (ch == '~' && (at[1] == '0' || at[1] == '1')) {
            ch = *++at == '0' ? '~' : '/';
        } else if (ch == '%' && hex_digit_of(at[1]) >= 0 && hex_digit_of(at[2]) >= 0) {
            ch = (char)(16 * hex_digit_of(at[1]) + hex_digit_of(at[2]));
            at += 2;
        }
        if (n + 1 < cap) out[n++] = ch;
    }
    out[n] = 0;
    return at;
}

const json_t *schema_target(schema_compiler *c, const json_t *of) {
    const char *ref = json_string_value(of), *id = json_string_value(json_object_get(c->root, "$id"));
    const size_t id_len = id ? strlen(id) : 0;
    const json_t *at = c->root;
    char piece[1024];
    if (!ref || !schema_spends(c, 2 + (i64)json_string_length(of) / 16)) return NULL;
    if (c->n_foreign && bsearch(&of, c->foreign, (size_t)c->n_foreign, sizeof of, by_address))
        return schema_fails(c, ST_UNSUPPORTED, "\"$ref\" %.200s below an \"$id\" of its own", ref), NULL;
    if (id_len && !strncmp(ref, id, id_len) && (!ref[id_len] || ref[id_len] == '#')) ref += id_len;
    if (*ref && *ref != '#') return NULL; /* elsewhere */
    if (*ref) ref++;
    if (*ref && *ref != '/') return (const json_t *)(intptr_t)json_integer_value(json_object_get(c->anchors, ref));
    while (*ref && at) {
        ref = pointer_piece(ref + 1, piece, sizeof piece);
        char *end;
        const u64 index = strtoull(piece, &end, 10);
        at = json_is_array(at) ? (*piece && !*end ? json_array_get(at, (size_t)index) : NULL)
                               : json_object_get(at, piece);
    }
    return at;
}

const json_t *schema_followed(schema_compiler *c, const json_t *s) {
    for (int i = 0; i < 16 && json_object_get(s, "$ref"); i++) s = schema_target(c, json_object_get(s, "$ref"));
    return s;
}
