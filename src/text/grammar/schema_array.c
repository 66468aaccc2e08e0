/* text/grammar/schema_array.c: arrays: what holds for an item, from all schemas that hold for the whole. */
#include "text/grammar/schema_internal.h"
#include <stdlib.h>

/* Draft 2020-12 says prefixItems and items, those before it items (a list) and additionalItems. */
static const json_t *first_items(const schema_compiler *c, const json_t *schema) {
    const json_t *items = json_object_get(schema, "items"),
                 *prefix = c->no_prefix ? NULL : json_object_get(schema, "prefixItems");
    return prefix ? prefix : json_is_array(items) ? items : NULL;
}
static const json_t *rest_items(const json_t *schema) {
    const json_t *items = json_object_get(schema, "items");
    return json_is_array(items) ? json_object_get(schema, "additionalItems") : items;
}

/* What holds for item `at`; more: a schema that holds as well, or NULL. */
static i32 item_value(schema_compiler *c, const schema_parts *p, size_t at, const json_t *more) {
    schema_parts value = {0};
    for (int i = 0; i < p->n && c->st == ST_OK; i++) {
        const json_t *first = first_items(c, p->of[i]), *own = json_array_get(first, at);
        if (!own) own = rest_items(p->of[i]);
        if (own) schema_add(c, &value, own);
    }
    if (more) schema_add(c, &value, more);
    return schema_node(c, &value);
}

static void find_contains(schema_compiler *c, const schema_parts *p, grammar_array *a) {
    const json_t *found = NULL;
    for (int i = 0; i < p->n && c->st == ST_OK; i++) {
        const json_t *own = json_object_get(p->of[i], "contains"),
                     *min = c->ref_alone ? NULL : json_object_get(p->of[i], "minContains");
        if (!own || (min && schema_count(min, 1) < 1)) continue;
        c->at = p->of[i];
        if (found) schema_fails(c, ST_UNSUPPORTED, "two \"contains\" at one place");
        if (a->n_first) schema_fails(c, ST_UNSUPPORTED, "\"contains\" beside items by place");
        found = own;
        a->min_contains = schema_count(min, 1);
    }
    if (found) a->contains = item_value(c, p, (size_t)-1, found);
}

i32 schema_array(schema_compiler *c, const schema_parts *p) {
    grammar_array a = {.min = max_i64(schema_most(p, "minItems", 0), 0), .max = schema_least(p, "maxItems", UNBOUNDED)};
    size_t n = 0;
    for (int i = 0; i < p->n; i++) {
        const json_t *prefix = json_object_get(p->of[i], "prefixItems");
        if (!prefix || json_is_array(prefix)) continue;
        c->at = p->of[i];
        return schema_fails(c, ST_INPUT, "\"prefixItems\" is no list of schemas"), NODE_NONE;
    }
    for (int i = 0; i < p->n; i++) n = (size_t)max_i64((i64)n, (i64)json_array_size(first_items(c, p->of[i])));
    a.n_first = (i32)n;
    a.first = calloc(n ? n : 1, sizeof *a.first);
    if (!a.first) schema_fails(c, ST_NOMEM, "out of host memory");
    for (size_t i = 0; c->st == ST_OK && i < n; i++) a.first[i] = item_value(c, p, i, NULL);
    if (c->st == ST_OK) a.rest = item_value(c, p, (size_t)-1, NULL);
    if (c->st == ST_OK) find_contains(c, p, &a);
    if (c->st == ST_OK && (a.max == UNBOUNDED || (a.max >= a.min && a.max >= a.min_contains)))
        return grammar_add_array(c->g, &a);
    free(a.first);
    return NODE_NONE;
}
