#include "text/schema_check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const json_t *root;
    u32 *steps, depth;
} check;

enum { MAX_DEPTH = 1000 };

static bool spend(check *c, size_t n) {
    *c->steps -= n < *c->steps ? (u32)n : *c->steps;
    return *c->steps > 0;
}

static bool accepts(check *c, const json_t *s, const json_t *v);

/* A JSON pointer below "#": "#/$defs/Node", with ~0, ~1 and array indices. NULL when it leads nowhere. */
static const json_t *resolve(const json_t *root, const char *ref) {
    if (*ref++ != '#') return NULL;
    const json_t *at = root;
    while (at && *ref == '/') {
        buf key = {0};
        for (ref++; *ref && *ref != '/'; ref++) {
            char ch = *ref;
            if (ch == '~' && (ref[1] == '0' || ref[1] == '1')) ch = *++ref == '0' ? '~' : '/';
            buf_char(&key, ch);
        }
        if (key.failed)
            at = NULL;
        else if (json_is_array(at))
            at = json_array_get(at, (size_t)strtoull(key.data ? key.data : "", NULL, 10));
        else
            at = json_object_get(at, key.data ? key.data : "");
        buf_free(&key);
    }
    return *ref ? NULL : at;
}

static bool has_type(const json_t *v, const char *type) {
    if (!strcmp(type, "object")) return json_is_object(v);
    if (!strcmp(type, "array")) return json_is_array(v);
    if (!strcmp(type, "string")) return json_is_string(v);
    if (!strcmp(type, "number")) return json_is_number(v);
    if (!strcmp(type, "integer"))
        return json_is_integer(v) || json_is_big_integer(v) ||
               (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)));
    if (!strcmp(type, "boolean")) return json_is_boolean(v);
    if (!strcmp(type, "null")) return json_is_null(v);
    return false;
}

static bool type_ok(const json_t *type, const json_t *v) {
    size_t i;
    json_t *t;
    if (json_is_string(type)) return has_type(v, json_string_value(type));
    json_array_foreach(type, i, t) if (json_is_string(t) && has_type(v, json_string_value(t))) return true;
    return !json_is_array(type);
}

static bool same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_same_number(a, b);
    return json_equal(a, b);
}

static bool enum_ok(check *c, const json_t *s, const json_t *v) {
    const json_t *list = json_object_get(s, "enum"), *only = json_object_get(s, "const");
    size_t i;
    json_t *item;
    if (only && !same(only, v)) return false;
    if (!json_is_array(list)) return true;
    if (!spend(c, json_array_size(list))) return false;
    json_array_foreach(list, i, item) if (same(item, v)) return true;
    return false;
}

/* Keyword `key` as an upper (sign 1) or lower (-1) bound of x; true when it is absent. */
static bool bound(const json_t *s, const char *key, f64 x, int sign, bool exclusive) {
    const json_t *limit = json_object_get(s, key);
    if (!json_is_number(limit)) return true;
    f64 gap = (json_number_value(limit) - x) * sign;
    return exclusive ? gap > 0 : gap >= 0;
}

static bool number_ok(const json_t *s, const json_t *v) {
    f64 x = json_number_value(v);
    const json_t *step = json_object_get(s, "multipleOf");
    if (json_is_number(step) && json_number_value(step) > 0) {
        f64 q = x / json_number_value(step);
        if (fabs(q - nearbyint(q)) > 1e-9 * fmax(1, fabs(q))) return false;
    }
    return bound(s, "maximum", x, 1, false) && bound(s, "minimum", x, -1, false) &&
           bound(s, "exclusiveMaximum", x, 1, true) && bound(s, "exclusiveMinimum", x, -1, true);
}

static bool string_ok(check *c, const json_t *s, const json_t *v) {
    const char *p = json_string_value(v);
    if (!spend(c, json_string_length(v) / 64)) return false;
    size_t chars = 0;
    for (size_t i = 0; i < json_string_length(v); i++) chars += ((u8)p[i] & 0xc0) != 0x80;
    return bound(s, "maxLength", (f64)chars, 1, false) && bound(s, "minLength", (f64)chars, -1, false);
}

static bool array_ok(check *c, const json_t *s, const json_t *v) {
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    size_t i;
    json_t *item;
    if (!bound(s, "maxItems", (f64)json_array_size(v), 1, false)) return false;
    if (!bound(s, "minItems", (f64)json_array_size(v), -1, false)) return false;
    json_array_foreach(v, i, item) {
        const json_t *schema = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (schema && !accepts(c, schema, item)) return false;
    }
    return true;
}

static bool object_ok(check *c, const json_t *s, const json_t *v) {
    const json_t *properties = json_object_get(s, "properties"), *extra = json_object_get(s, "additionalProperties");
    const char *key;
    size_t i;
    json_t *item;
    if (!bound(s, "maxProperties", (f64)json_object_size(v), 1, false)) return false;
    if (!bound(s, "minProperties", (f64)json_object_size(v), -1, false)) return false;
    if (!spend(c, json_array_size(json_object_get(s, "required")))) return false;
    json_array_foreach(json_object_get(s, "required"), i, item) {
        if (json_is_string(item) && !json_object_get(v, json_string_value(item))) return false;
    }
    json_object_foreach((json_t *)v, key, item) {
        const json_t *schema = json_object_get(properties, key);
        if (!schema) schema = extra;
        if (schema && !accepts(c, schema, item)) return false;
    }
    return true;
}

static bool combined_ok(check *c, const json_t *s, const json_t *v) {
    const json_t *any = json_object_get(s, "anyOf"), *one = json_object_get(s, "oneOf"),
                 *no = json_object_get(s, "not");
    size_t i, n = 0;
    json_t *item;
    json_array_foreach(json_object_get(s, "allOf"), i, item) if (!accepts(c, item, v)) return false;
    if (no && accepts(c, no, v)) return false;
    json_array_foreach(any, i, item) if (accepts(c, item, v)) break;
    if (json_is_array(any) && i == json_array_size(any)) return false;
    json_array_foreach(one, i, item) n += accepts(c, item, v);
    return !json_is_array(one) || n == 1;
}

static bool accepts_object(check *c, const json_t *s, const json_t *v) {
    const json_t *ref = json_object_get(s, "$ref");
    if (ref) {
        if (!spend(c, json_string_length(ref) / 8)) return false;
        const json_t *target = json_is_string(ref) ? resolve(c->root, json_string_value(ref)) : NULL;
        if (!target || !accepts(c, target, v)) return false;
    }
    if (!type_ok(json_object_get(s, "type"), v) || !enum_ok(c, s, v)) return false;
    if (json_is_number(v) && !number_ok(s, v)) return false;
    if (json_is_string(v) && !string_ok(c, s, v)) return false;
    if (json_is_array(v) && !array_ok(c, s, v)) return false;
    if (json_is_object(v) && !object_ok(c, s, v)) return false;
    return combined_ok(c, s, v);
}

static bool accepts(check *c, const json_t *s, const json_t *v) {
    if (json_is_boolean(s)) return json_is_true(s);
    if (!json_is_object(s)) return true;
    if (c->depth >= MAX_DEPTH || !spend(c, 1)) return false;
    c->depth++;
    bool ok = accepts_object(c, s, v);
    c->depth--;
    return ok && *c->steps > 0;
}

bool schema_accepts(const json_t *schema, const json_t *value, u32 *steps) {
    check c = {.root = schema, .steps = steps};
    return accepts(&c, schema, value) && *steps > 0;
}

bool schema_accepts_arguments(const json_t *parameters, const json_t *arguments, u32 *steps) {
    const json_t *properties = json_object_get(parameters, "properties");
    const char *key;
    json_t *item;
    if (json_is_false(parameters)) return false;
    if (!json_object_get(parameters, "additionalProperties")) {
        json_object_foreach((json_t *)arguments, key, item) if (!json_object_get(properties, key)) return false;
    }
    return schema_accepts(parameters, arguments, steps);
}
