/* text/grammar/schema_branches.c: are the branches of oneOf disjoint? A text that satisfies one must satisfy no other,
 * which a matcher that takes any of them holds only where no value can satisfy two. */
#include "text/grammar/schema_internal.h"
#include <string.h>

/* Values that a property of a branch can only have, as a list or one; NULL: any. */
static const json_t *tag_of(const json_t *schema) {
    const json_t *only = json_object_get(schema, "const");
    return only ? only : json_object_get(schema, "enum");
}

/* What takes time is asked of time; differing or not is no matter where there is none. */
static bool tags_differ(schema_compiler *c, const json_t *a, bool a_list, const json_t *b, bool b_list) {
    const json_t *one;
    size_t i;
    if (a_list) {
        json_array_foreach(a, i, one) if (!tags_differ(c, one, false, b, b_list)) return false;
        return true;
    }
    if (!schema_spends(c, b_list ? (i64)json_array_size(b) : 1)) return false;
    return b_list ? !schema_value_listed(b, a) : !json_same(a, b);
}

static bool schemas_tagged_apart(schema_compiler *c, const json_t *a, const json_t *b) {
    const json_t *x = tag_of(a), *y = tag_of(b);
    return x && y && tags_differ(c, x, x != json_object_get(a, "const"), y, y != json_object_get(b, "const"));
}

static bool is_required(schema_compiler *c, const json_t *schema, const char *key) {
    const json_t *one;
    size_t i;
    schema_spends(c, (i64)json_array_size(json_object_get(schema, "required")) / 4);
    json_array_foreach(json_object_get(schema, "required"), i,
                       one) if (json_is_string(one) && !strcmp(json_string_value(one), key)) return true;
    return false;
}

/* Is it plain that no value satisfies both? By types, by values, by what a property that both require may be. */
static bool schemas_differ(schema_compiler *c, const json_t *a, const json_t *b) {
    const schema_parts x = {.of = {schema_followed(c, a)}, .n = 1}, y = {.of = {schema_followed(c, b)}, .n = 1};
    const char *key;
    json_t *own;
    if (!json_is_object(x.of[0]) || !json_is_object(y.of[0])) return json_is_false(a) || json_is_false(b);
    if (!(schema_types(&x) & schema_types(&y))) return true;
    if (schemas_tagged_apart(c, x.of[0], y.of[0])) return true;
    if (schema_types(&x) != TYPE_OBJECT && schema_types(&y) != TYPE_OBJECT) return false;
    json_t *mine = json_object_get(x.of[0], "properties"), *others = json_object_get(y.of[0], "properties");
    json_object_foreach(mine, key, own) {
        const json_t *other = json_object_get(others, key);
        if (!schema_spends(c, 1)) return false;
        if (other && is_required(c, x.of[0], key) && is_required(c, y.of[0], key) &&
            schemas_tagged_apart(c, schema_followed(c, own), schema_followed(c, other)))
            return true;
    }
    return false;
}

static void refuse_branches(schema_compiler *c, size_t k, size_t i) {
    if (c->st != ST_OK) return; /* there was no time to see it */
    if (!c->o->passed_over)
        schema_fails(c, ST_UNSUPPORTED, "branches %d and %d of \"oneOf\" are not plainly disjoint", (int)k, (int)i);
    else
        buf_fmt(c->o->passed_over, "%s\"oneOf\"", c->o->passed_over->len ? ", " : "");
}

void schema_check_disjoint(schema_compiler *c, const json_t *branches) {
    for (size_t i = 0; i < json_array_size(branches); i++)
        for (size_t k = 0; k < i; k++) {
            if (!schema_spends(c, 4)) return;
            if (schemas_differ(c, json_array_get(branches, i), json_array_get(branches, k))) continue;
            refuse_branches(c, k, i);
            return;
        }
}
