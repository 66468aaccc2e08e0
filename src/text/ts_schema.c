/* Follows the order in which the original parser looks at things, because that order decides which
 * references resolve: an object registers its own $defs, then reads additionalProperties, then its properties
 * by name. */
#include "text/ts_schema.h"
#include "text/pyjson.h"
#include <stdlib.h>
#include <string.h>

bool ts_fail(ts_parser *p, const char *why) {
    p->why = why;
    return false;
}

static ts_type *schema_fail(ts_parser *p, const char *why) {
    ts_fail(p, why);
    return NULL;
}

void ts_parser_clear(ts_parser *p) {
    for (ts_type *t = p->newest, *older; t; t = older) {
        older = t->older;
        json_decref(t->owned);
        free(t->members);
        free(t->fields);
        free(t);
    }
    free(p->defs);
    json_decref(p->def_at);
    p->newest = NULL;
    p->defs = NULL;
    p->def_at = NULL;
    p->n_defs = p->cap_defs = 0;
    p->self_ref = false;
}

static void *room(ts_parser *p, size_t n, size_t size) {
    void *mem = calloc(n ? n : 1, size);
    if (!mem) p->nomem = true;
    return mem;
}

static ts_type *node(ts_parser *p, ts_kind kind, const json_t *schema) {
    ts_type *t = room(p, 1, sizeof *t);
    if (!t) return NULL;
    t->kind = kind;
    t->schema = schema;
    t->older = p->newest;
    p->newest = t;
    return t;
}

static ts_type *schema_word(ts_parser *p, const char *name) {
    ts_type *t = node(p, TS_WORD, NULL);
    if (t) t->name = name;
    return t;
}

/* A later definition of the same name takes the place of the earlier one. */
static bool register_def(ts_parser *p, const char *name, const json_t *schema) {
    if (!p->def_at) p->def_at = json_object();
    const json_t *at = json_object_get(p->def_at, name);
    if (at) {
        p->defs[json_integer_value(at)].schema = schema;
        return true;
    }
    if (p->n_defs == p->cap_defs) {
        size_t cap = p->cap_defs ? 2 * p->cap_defs : 16;
        ts_def *more = realloc(p->defs, cap * sizeof *more);
        if (!more) goto nomem;
        p->defs = more;
        p->cap_defs = cap;
    }
    if (json_object_set_new_nocheck(p->def_at, name, json_integer((json_int_t)p->n_defs)) < 0) goto nomem;
    p->defs[p->n_defs++] = (ts_def){name, schema};
    return true;
nomem:
    p->nomem = true;
    return false;
}

static const json_t *iterate(ts_parser *p, ts_type *t, const json_t *v);

/* The names in "required" as the keys of an object. Python makes a set of whatever can be iterated: the items
 * of a list, which must be hashable, the keys of an object, the characters of a string. NULL on failure. */
static json_t *required_names(ts_parser *p, ts_type *t, const json_t *required) {
    json_t *set = json_object(), *v;
    size_t i;
    const json_t *list = required ? iterate(p, t, required) : NULL;
    bool ok = set && (list || !required);
    json_array_foreach(list, i, v) {
        if (json_is_array(v) || json_is_object(v)) ok = ts_fail(p, "required holds something that is not a name");
        if (json_is_string(v) && json_object_set_nocheck(set, json_string_value(v), v) < 0) p->nomem = true;
    }
    if (!set) p->nomem = true;
    if (ok) return set;
    json_decref(set);
    return NULL;
}

static ts_type *parse_fields(ts_parser *p, ts_type *t, const json_t *schema) {
    const json_t *properties = json_object_get(schema, "properties");
    const char *name;
    json_t *prop;
    if (!properties) return t;
    if (!json_is_object(properties)) return schema_fail(p, "properties is not an object");
    json_t *required = required_names(p, t, json_object_get(schema, "required"));
    if (!required) return NULL;
    bool ok = (t->fields = room(p, json_object_size(properties), sizeof *t->fields)) != NULL;
    json_object_foreach((json_t *)properties, name, prop) {
        if (!ok) break;
        ts_field *f = &t->fields[t->n_fields++];
        f->name = name;
        f->optional = !json_object_get(required, name);
        f->value = json_object_get(prop, "default");
        ok = (f->type = ts_parse(p, prop)) != NULL;
    }
    json_decref(required);
    return ok ? t : NULL;
}

static ts_type *parse_object(ts_parser *p, const json_t *schema) {
    ts_type *t = node(p, TS_OBJECT, schema);
    if (!t || !schema) return t;
    const json_t *defs = json_object_get(schema, "$defs"), *extra;
    const char *name;
    json_t *def;
    if (py_truthy(defs)) {
        if (!json_is_object(defs)) return schema_fail(p, "$defs is not an object");
        json_object_foreach((json_t *)defs, name, def) if (!register_def(p, name, def)) return NULL;
    }
    extra = t->extra_raw = json_object_get(schema, "additionalProperties");
    if (json_is_object(extra) && !(t->extra = ts_parse(p, extra))) return NULL;
    return parse_fields(p, t, schema);
}

ts_type *ts_parse_root(ts_parser *p, const json_t *schema) {
    if (schema && !json_is_object(schema)) return schema_fail(p, "parameters is not an object");
    return parse_object(p, schema);
}

static ts_type *parse_array(ts_parser *p, const json_t *schema) {
    ts_type *t = node(p, TS_ARRAY, schema);
    const json_t *items = json_object_get(schema, "items");
    if (!t || !(t->members = room(p, 1, sizeof *t->members))) return NULL;
    t->n_members = 1;
    t->members[0] = py_truthy(items) ? ts_parse(p, items) : schema_word(p, "any");
    return t->members[0] ? t : NULL;
}

/* What a Python for loop over the value yields: the items of a list, the keys of an object, the characters
 * of a string. NULL (with p->why) for a value that cannot be iterated. */
static const json_t *iterate(ts_parser *p, ts_type *t, const json_t *v) {
    if (json_is_array(v)) return v;
    if (!json_is_object(v) && !json_is_string(v)) {
        ts_fail(p, "a list was expected");
        return NULL;
    }
    json_decref(t->owned);
    t->owned = json_array();
    const char *key, *s = json_string_value(v);
    json_t *item;
    json_object_foreach((json_t *)v, key, item) json_array_append_new(t->owned, json_string(key));
    for (size_t i = 0, n, len = json_string_length(v); i < len; i += n) {
        for (n = 1; i + n < len && ((u8)s[i + n] & 0xc0) == 0x80;) n++;
        json_array_append_new(t->owned, json_stringn(s + i, n));
    }
    if (!t->owned) p->nomem = true;
    return t->owned;
}

static ts_type *parse_any_of(ts_parser *p, const json_t *schema) {
    ts_type *t = node(p, TS_ANY_OF, schema);
    const json_t *list = t ? iterate(p, t, json_object_get(schema, "anyOf")) : NULL;
    size_t i;
    json_t *v;
    if (!list || !(t->members = room(p, json_array_size(list), sizeof *t->members))) return NULL;
    json_array_foreach(list, i, v) if (!(t->members[t->n_members++] = ts_parse(p, v))) return NULL;
    return t;
}

/* The type an enum declares: "type" may be T, [T] or [T, "null"] in either order. */
static bool enum_type(ts_parser *p, const json_t *declared, const char **type) {
    *type = NULL;
    if (json_is_array(declared)) {
        size_t n = json_array_size(declared);
        const json_t *a = json_array_get(declared, 0), *b = json_array_get(declared, 1);
        const char *sa = json_string_value(a), *sb = json_string_value(b);
        bool a_null = sa && !strcmp(sa, "null"), b_null = sb && !strcmp(sb, "null");
        if (n == 0 || n > 2 || (n == 2 && !a_null && !b_null))
            return ts_fail(p, "an enum of this type list has no TypeScript form");
        declared = n == 2 && a_null ? b : a;
    }
    *type = json_string_value(declared);
    return true;
}

static bool schema_fits(const json_t *v, const char *type) {
    bool boolean = json_is_boolean(v); /* Python's bool is an int */
    if (!strcmp(type, "string")) return json_is_string(v);
    if (!strcmp(type, "number")) return json_is_number(v) || boolean;
    if (!strcmp(type, "integer")) return json_is_integer(v) || json_is_big_integer(v) || boolean;
    if (!strcmp(type, "boolean")) return boolean;
    return true;
}

static ts_type *parse_enum(ts_parser *p, const json_t *schema) {
    ts_type *t = node(p, TS_ENUM, schema);
    const json_t *declared = json_object_get(schema, "type");
    const char *type;
    size_t i;
    json_t *v;
    if (!t || !(t->values = iterate(p, t, json_object_get(schema, "enum")))) return NULL;
    if (!declared) return t;
    if (!enum_type(p, declared, &type)) return NULL;
    json_array_foreach(t->values, i, v) if (!json_is_null(v) && type && !schema_fits(v, type)) return schema_fail(
        p, "an enum value does not fit the declared type");
    return t;
}

const char *ts_union_word(const char *type) {
    static const char *const map[][2] = {{"string", "string"},   {"number", "number"}, {"integer", "number"},
                                         {"boolean", "boolean"}, {"null", "null"},     {"object", "{}"},
                                         {"array", "Array<any>"}};
    for (size_t i = 0; type && i < COUNT_OF(map); i++)
        if (!strcmp(type, map[i][0])) return map[i][1];
    return NULL;
}

static ts_type *parse_union(ts_parser *p, const json_t *schema, const json_t *types) {
    ts_type *t = node(p, TS_UNION, schema);
    size_t i;
    json_t *v;
    if (!t) return NULL;
    json_array_foreach(types, i, v) if (!ts_union_word(json_string_value(v))) return schema_fail(
        p, "a type list holds an unknown type");
    t->values = types;
    return t;
}

static ts_type *parse_ref(ts_parser *p, const json_t *schema) {
    static const char prefix[] = "#/$defs/";
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    ts_type *t = node(p, TS_REF, schema);
    if (!t) return NULL;
    t->name = "parameters";
    if (ref && !strcmp(ref, "#")) {
        p->self_ref = true;
        return t;
    }
    if (!ref || strncmp(ref, prefix, sizeof prefix - 1))
        return schema_fail(p, "only $ref to # and #/$defs/NAME is known");
    const char *name = strrchr(ref, '/') + 1;
    const json_t *at = json_object_get(p->def_at, name);
    if (!at) return schema_fail(p, "$ref to a definition that is not there yet");
    const json_t *def = p->defs[json_integer_value(at)].schema;
    if (!json_is_object(def)) return schema_fail(p, "an entry of $defs is not an object");
    /* the original's own mark for "#", which a definition may carry by accident */
    if (!py_truthy(json_object_get(def, "$self_ref"))) t->name = name;
    return t;
}

ts_type *ts_parse(ts_parser *p, const json_t *schema) {
    if (json_is_boolean(schema)) return schema_word(p, json_is_true(schema) ? "any" : "null");
    if (!json_is_object(schema)) return schema_fail(p, "a schema is neither an object nor a boolean");
    if (json_object_get(schema, "$ref")) return parse_ref(p, schema);
    if (json_object_get(schema, "anyOf")) return parse_any_of(p, schema);
    if (json_object_get(schema, "enum")) return parse_enum(p, schema);
    const json_t *type = json_object_get(schema, "type");
    const char *name = json_string_value(type);
    if (!type && json_object_size(schema) == 0) return schema_word(p, "any");
    if (!type) return schema_fail(p, "a schema without type, anyOf, enum or $ref");
    if (json_is_array(type)) return parse_union(p, schema, type);
    if (name && !strcmp(name, "object")) return parse_object(p, schema);
    if (name && !strcmp(name, "array")) return parse_array(p, schema);
    ts_type *t = node(p, TS_WORD, schema);
    if (t) t->word = type;
    return t;
}
