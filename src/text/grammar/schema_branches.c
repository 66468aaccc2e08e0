/* text/grammar/schema_branches.c: are the branches of oneOf disjoint? A text that satisfies one must satisfy no other,
 * which a matcher that takes any of them holds only where no value can satisfy two. */
#include "text/grammar/schema_internal.h"
#include <string.h>

/* Values that a property of a branch can only have, as a list or one; NULL: any. */
static const json_t *tag_of(const json_t *schema) {
    const json_t *only = json_object_get(schema, "const");
    return only ? only : json_object_get(schema, "enum");
}

static bool tags_differ(const json_t *a, bool a_list, const json_t *b, bool b_list) {
    const json_t *one;
    size_t i;
    if (a_list) {
        json_array_foreach(a, i, one) if (!tags_differ(one, false, b, b_list)) return false;
        return true;
    }
    return b_list ? !schema_value_listed(b, a) : !json_same(a, b);
}

static bool schemas_tagged_apart(const json_t *a, const json_t *b) {
    const json_t *x = tag_of(a), *y = tag_of(b);
    return x && y && tags_differ(x, x != json_object_get(a, "const"), y, y != json_object_get(b, "const"));
}

static bool is_required(const json_t *schema, const char *key) {
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i,
                       one) if (json_is_string(one) && !strcmp(json_string_value(one), key)) return true;
    return false;
}

const json_t *schema_followed(const schema_compiler *c, const json_t *s) {
    for (int i = 0; i < 16 && json_object_get(s, "$ref"); i++) {
        const char *name = json_string_value(json_object_get(s, "$ref"));
        s = name ? schema_target(c, name) : NULL;
    }
    return s;
}

/* Is it plain that no value satisfies both? By types, by values, by what a property that both require may be. */
static bool schemas_differ(const schema_compiler *c, const json_t *a, const json_t *b) {
    const schema_parts x = {.of = {schema_followed(c, a)}, .n = 1}, y = {.of = {schema_followed(c, b)}, .n = 1};
    const char *key;
    json_t *own;
    if (!json_is_object(x.of[0]) || !json_is_object(y.of[0])) return json_is_false(a) || json_is_false(b);
    if (!(schema_types(&x) & schema_types(&y))) return true;
    if (schemas_tagged_apart(x.of[0], y.of[0])) return true;
    if (schema_types(&x) != TYPE_OBJECT && schema_types(&y) != TYPE_OBJECT) return false;
    json_t *mine = json_object_get(x.of[0], "properties"), *others = json_object_get(y.of[0], "properties");
    json_object_foreach(mine, key, own) {
        const json_t *other = json_object_get(others, key);
        if (other && is_required(x.of[0], key) && is_required(y.of[0], key) &&
            schemas_tagged_apart(schema_followed(c, own), schema_followed(c, other)))
            return true;
    }
    return false;
}

void schema_check_disjoint(schema_compiler *c, const json_t *branches) {
    const json_t *a, *b;
    size_t i, k;
    json_array_foreach(branches, i, a) json_array_foreach(branches, k, b) {
        if (k >= i || schemas_differ(c, a, b) || c->st != ST_OK) continue;
        if (!c->o->passed_over)
            schema_fails(c, ST_UNSUPPORTED, "branches %d and %d of \"oneOf\" are not plainly disjoint", (int)k, (int)i);
        else
            buf_fmt(c->o->passed_over, "%s\"oneOf\"", c->o->passed_over->len ? ", " : "");
    }
}
