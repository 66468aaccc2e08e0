/* text/grammar/json_schema.c: places of a schema, what holds there, and which kinds of values that leaves. */
#include "base/log.h"
#include "text/grammar/schema_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status schema_fails(schema_compiler *c, status st, const char *fmt, ...) {
    char text[sizeof c->e->text];
    va_list args;
    if (c->st != ST_OK) return c->st;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->st = st;
    return err_set(c->e, st, "%s", text);
}

/* ---- what holds at a place ---- */

/* A list of branches of which none is chosen yet. */
typedef struct {
    const json_t *branches; /* NULL: there is none */
    const json_t *of;       /* whose they are */
    bool disjoint;          /* oneOf */
} schema_choice;

bool schema_add(schema_compiler *c, schema_parts *p, const json_t *schema) {
    for (int i = 0; i < p->n; i++)
        if (p->of[i] == schema) return true;
    if (p->n == SCHEMA_PARTS_MAX)
        return schema_fails(c, ST_LIMIT, "more than %d schemas hold at one place", SCHEMA_PARTS_MAX), false;
    p->of[p->n++] = schema;
    return true;
}

/* The first that is met is the one to choose from. */
static bool find_choice(schema_compiler *c, const schema_parts *p, const json_t *schema, const char *key,
                        schema_choice *found) {
    const json_t *branches = json_object_get(schema, key);
    if (!branches) return true;
    if (!json_is_array(branches) || !json_array_size(branches))
        return schema_fails(c, ST_INPUT, "\"%s\" is no list of schemas", key), false;
    for (int i = 0; i < p->n_chosen; i++)
        if (p->chosen[i] == branches) return true;
    if (!found->branches) *found = (schema_choice){branches, schema, !strcmp(key, "oneOf")};
    return true;
}

static bool follow_ref(schema_compiler *c, schema_parts *all, const json_t *schema) {
    const json_t *ref = json_object_get(schema, "$ref");
    const char *name = json_string_value(ref);
    if (!ref) return true;
    if (!name) return schema_fails(c, ST_INPUT, "\"$ref\" is no string"), false;
    const json_t *target = schema_target(c, ref);
    if (!target) return schema_fails(c, ST_INPUT, "\"$ref\" to %.200s, which is not there", name), false;
    return schema_add(c, all, target);
}

enum { HOPS_MAX = 10000 };

/* Follows $ref and allOf of `asked` until all parts are known. false: nothing satisfies them, or it failed. */
static bool flatten(schema_compiler *c, const schema_parts *asked, schema_parts *all, schema_choice *choice) {
    int hops = 0;
    *all = *asked;
    for (int i = 0; i < all->n; i++) { /* it grows */
        const json_t *s = all->of[i], *every = json_object_get(s, "allOf"), *one;
        size_t k;
        if (json_is_false(s) || !schema_spends(c, 16)) return false;
        if (json_is_true(s)) continue;
        c->at = s;
        if (json_object_get(s, "$ref") && (c->ref_alone || json_object_size(s) == 1)) {
            if (++hops > HOPS_MAX) return schema_fails(c, ST_UNSUPPORTED, "\"$ref\" leads to itself"), false;
            all->of[i] = NULL;
            if (!follow_ref(c, all, s)) return false;
            all->of[i--] = all->of[--all->n]; /* what it refers to, or another: in its place */
            continue;
        }
        if (!json_is_object(s)) return schema_fails(c, ST_INPUT, "%s is no schema", json_type_text(s)), false;
        schema_check_words(c, s);
        if (c->st != ST_OK) return false;
        if (every && !json_is_array(every)) return schema_fails(c, ST_INPUT, "\"allOf\" is no list of schemas"), false;
        json_array_foreach(every, k, one) if (!schema_add(c, all, one)) return false;
        if (!follow_ref(c, all, s) || !find_choice(c, all, s, "anyOf", choice) ||
            !find_choice(c, all, s, "oneOf", choice))
            return false;
    }
    int kept = 0;
    for (int i = 0; i < all->n; i++)
        if (json_is_object(all->of[i])) all->of[kept++] = all->of[i];
    all->n = kept;
    return c->st == ST_OK;
}

/* ---- types ---- */

static u32 type_named(const char *name) {
    static const struct {
        const char *name;
        u32 types;
    } all[] = {{"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
               {"integer", TYPE_INTEGER}, {"number", TYPE_INTEGER | TYPE_NUMBER},
               {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
               {"object", TYPE_OBJECT}};
    for (size_t i = 0; name && i < COUNT_OF(all); i++)
        if (!strcmp(all[i].name, name)) return all[i].types;
    return 0;
}

u32 schema_types(const schema_parts *p) {
    u32 types = TYPES_ALL;
    for (int i = 0; i < p->n; i++) {
        const json_t *type = json_object_get(p->of[i], "type"), *one;
        u32 own = 0;
        size_t k;
        if (!type) continue;
        if (json_is_string(type)) own = type_named(json_string_value(type));
        json_array_foreach(type, k, one) own |= type_named(json_string_value(one));
        types &= own;
    }
    return types;
}

static void check_types(schema_compiler *c, const schema_parts *p) {
    for (int i = 0; i < p->n; i++) {
        const json_t *type = json_object_get(p->of[i], "type"), *one;
        size_t k;
        bool good = !type || (json_is_array(type) && json_array_size(type)) || type_named(json_string_value(type));
        json_array_foreach(type, k, one) good = good && type_named(json_string_value(one));
        if (!good) schema_fails(c, ST_INPUT, "\"type\" names no type");
    }
}

/* A count as far as it matters. */
i64 schema_count(const json_t *v, i64 none) {
    const f64 x = json_f64(v);
    return !json_is_number(v) || !(x >= 0) ? none : x >= 1e18 ? (i64)1e18 : (i64)x;
}

static void check_counts_asked(schema_compiler *c, const schema_parts *p) {
    static const char *const counts[] = {"minLength",     "maxLength",     "minItems",   "maxItems",
                                         "minProperties", "maxProperties", "minContains"};
    for (int i = 0; i < p->n; i++)
        for (size_t k = 0; k < COUNT_OF(counts); k++) {
            const json_t *v = json_object_get(p->of[i], counts[k]);
            if (!v || (json_is_number(v) && json_f64(v) >= 0 && floor(json_f64(v)) == json_f64(v))) continue;
            c->at = p->of[i];
            schema_fails(c, ST_INPUT, "\"%s\" is no count", counts[k]);
        }
}

static i64 count_asked(const schema_parts *p, const char *key, i64 none, bool most) {
    i64 found = none;
    bool any = false;
    for (int i = 0; i < p->n; i++) {
        const i64 count = schema_count(json_object_get(p->of[i], key), -1);
        if (count < 0) continue;
        found = !any ? count : most ? max_i64(found, count) : min_i64(found, count);
        any = true;
    }
    return found;
}
i64 schema_most(const schema_parts *p, const char *key, i64 none) { return count_asked(p, key, none, true); }
i64 schema_least(const schema_parts *p, const char *key, i64 none) { return count_asked(p, key, none, false); }

/* ---- a place ---- */

static i32 shared_text(schema_compiler *c, i32 *node, const char *text) {
    if (*node == NODE_NONE) *node = grammar_text(c->g, text);
    return *node;
}

static i32 compile_types(schema_compiler *c, const schema_parts *p) {
    const u32 types = schema_types(p);
    i32 all[8], n = 0;
    for (int i = 0; i < p->n; i++) {
        const json_t *list = json_object_get(p->of[i], "enum"), *only = json_object_get(p->of[i], "const");
        if (list && !json_is_array(list)) return schema_fails(c, ST_INPUT, "\"enum\" is no list"), NODE_NONE;
        if (list) return schema_listed(c, p, list);
        if (only) return schema_only(c, p, only);
    }
    if (types & TYPE_NULL) all[n++] = shared_text(c, &c->null, "null");
    if (types & TYPE_BOOLEAN) all[n++] = shared_text(c, &c->yes, "true"), all[n++] = shared_text(c, &c->no, "false");
    if (types & (TYPE_INTEGER | TYPE_NUMBER)) all[n++] = schema_number(c, p, !(types & TYPE_NUMBER));
    if (types & TYPE_STRING) all[n++] = schema_string(c, p);
    if (types & TYPE_ARRAY) all[n++] = schema_array(c, p);
    if (types & TYPE_OBJECT) all[n++] = schema_object(c, p);
    return grammar_alt(c->g, all, n);
}

/* A part that only refers to another is that one. */
static const json_t *meant(schema_compiler *c, const json_t *s) {
    const bool refers = json_is_object(s) && (json_object_size(s) == 1 || c->ref_alone) && json_object_get(s, "$ref");
    const json_t *to = refers ? schema_followed(c, s) : NULL;
    return to ? to : s;
}

static i32 compile_choice(schema_compiler *c, const schema_parts *all, const schema_choice *choice) {
    const json_t *branch;
    ids_buf nodes = {0};
    size_t i;
    if (all->n_chosen == SCHEMA_PARTS_MAX) return schema_fails(c, ST_LIMIT, "too many choices at one place"), NODE_NONE;
    if (choice->disjoint) schema_check_disjoint(c, choice->branches);
    json_array_foreach(choice->branches, i, branch) {
        schema_parts one = *all;
        one.chosen[one.n_chosen++] = choice->branches;
        if (!schema_spends(c, SCHEMA_PARTS_MAX) || !schema_add(c, &one, branch)) break;
        if (meant(c, branch) == choice->of) {
            schema_fails(c, ST_UNSUPPORTED, "branch %d of \"%s\" leads to itself", (int)i,
                         choice->disjoint ? "oneOf" : "anyOf");
            break;
        }
        ids_add(&nodes, schema_node(c, &one));
    }
    if (nodes.failed) schema_fails(c, ST_NOMEM, "out of host memory");
    const i32 node = c->st == ST_OK ? grammar_alt(c->g, nodes.data, (i32)nodes.len) : NODE_NONE;
    ids_free(&nodes);
    return node;
}

static i32 compile_place(schema_compiler *c, const schema_parts *asked) {
    schema_parts all;
    schema_choice choice = {0};
    if (!flatten(c, asked, &all, &choice)) return NODE_NONE;
    check_types(c, &all);
    check_counts_asked(c, &all);
    if (c->st != ST_OK) return NODE_NONE;
    return choice.branches ? compile_choice(c, &all, &choice) : compile_types(c, &all);
}

/* ---- all places ---- */

static int by_pointer(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (const json_t *const *)a, y = (uintptr_t) * (const json_t *const *)b;
    return (x > y) - (x < y);
}

static u64 place_hash(const json_t *const *of, int n) {
    u64 h = (u64)n;
    for (int i = 0; i < n; i++) h = (h ^ (u64)(uintptr_t)of[i]) * 0x9fb21c651e98df25u, h ^= h >> 31;
    return h;
}

static bool places_room(schema_compiler *c) {
    if (c->n_places == SCHEMA_PLACES_MAX) return schema_fails(c, ST_LIMIT, "the schema has too many places"), false;
    if (2 * (c->n_places + 1) <= c->slots) return true;
    const i64 slots = c->slots ? 2 * c->slots : 64;
    i32 *table = calloc((size_t)slots, sizeof *table);
    schema_place *more = realloc(c->places, (size_t)slots * sizeof *more);
    if (more) c->places = more;
    if (!table || !more) return free(table), schema_fails(c, ST_NOMEM, "out of host memory"), false;
    for (i64 i = 0; i < c->n_places; i++) {
        const schema_place *x = &c->places[i];
        i64 at = (i64)(place_hash(x->of, x->n + x->n_chosen) & (u64)(slots - 1));
        while (table[at]) at = (at + 1) & (slots - 1);
        table[at] = (i32)i + 1;
    }
    free(c->table);
    c->table = table, c->slots = slots;
    return true;
}

i32 schema_node(schema_compiler *c, const schema_parts *p) {
    const json_t *of[2 * SCHEMA_PARTS_MAX];
    const int n = p->n, all = p->n + p->n_chosen;
    if (c->st != ST_OK || !places_room(c)) return NODE_NONE;
    for (int i = 0; i < n; i++) of[i] = meant(c, p->of[i]);
    memcpy(of + n, p->chosen, (size_t)p->n_chosen * sizeof(json_t *));
    qsort(of, (size_t)n, sizeof *of, by_pointer);
    qsort(of + n, (size_t)p->n_chosen, sizeof *of, by_pointer);
    i64 at = (i64)(place_hash(of, all) & (u64)(c->slots - 1));
    for (; c->table[at]; at = (at + 1) & (c->slots - 1)) {
        const schema_place *x = &c->places[c->table[at] - 1];
        if (x->n == n && x->n + x->n_chosen == all && !memcmp(x->of, of, (size_t)all * sizeof *of)) return x->node;
    }
    schema_place made = {malloc((size_t)(all ? all : 1) * sizeof *of), n, p->n_chosen, grammar_reserve(c->g)};
    if (!made.of) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    memcpy(made.of, of, (size_t)all * sizeof *of);
    c->places[c->n_places++] = made;
    c->table[at] = (i32)c->n_places;
    return made.node;
}

/* Where in the schema `at` is, as a JSON pointer; false: not below `s`. */
static bool pointer_to(const json_t *s, const json_t *at, buf *out, int depth) {
    const size_t had = out->len;
    const char *key;
    json_t *value;
    size_t i;
    if (s == at || depth > 100) return s == at;
    json_object_foreach((json_t *)(uintptr_t)s, key, value) {
        buf_char(out, '/');
        for (const char *ch = key; *ch && ch < key + 60; ch++) /* as JSON pointers spell it */
            buf_str(out, *ch == '~' ? "~0" : *ch == '/' ? "~1" : (char[]){*ch, 0});
        if (pointer_to(value, at, out, depth + 1)) return true;
        out->len = had;
    }
    json_array_foreach(s, i, value) {
        buf_fmt(out, "/%zu", i);
        if (pointer_to(value, at, out, depth + 1)) return true;
        out->len = had;
    }
    return false;
}

static void name_the_place(schema_compiler *c) {
    buf path = {0};
    if (c->at && pointer_to(c->root, c->at, &path, 0))
        err_prefix(c->e, "schema, at #%.*s", (int)path.len, path.len ? path.data : "");
    buf_free(&path);
}

enum { SECONDS_MAX = 1, WORK_UNASKED = 1 << 12 };

bool schema_in_time(schema_compiler *c) {
    err why = {0};
    c->work = 0;
    if (thread_s() > c->until) schema_fails(c, ST_LIMIT, "the schema takes longer than %d s", SECONDS_MAX);
    if (compile_goes_on(c->o->limit, &why) != ST_OK) schema_fails(c, why.code, "%s", why.text);
    return c->st == ST_OK;
}

bool schema_spends(schema_compiler *c, i64 work) {
    if ((c->work += work) >= WORK_UNASKED) schema_in_time(c);
    return c->st == ST_OK;
}

static bool is_old_draft(const char *name) {
    static const char *const old[] = {"draft-03", "draft-04", "draft-06", "draft-07"};
    for (size_t i = 0; name && i < COUNT_OF(old); i++)
        if (strstr(name, old[i])) return true;
    return false;
}

static void compile_places(schema_compiler *c) {
    for (; c->st == ST_OK && c->n_done < c->n_places; c->n_done++) {
        schema_parts p = {.n = c->places[c->n_done].n, .n_chosen = c->places[c->n_done].n_chosen};
        memcpy(p.of, c->places[c->n_done].of, (size_t)p.n * sizeof(json_t *));
        memcpy(p.chosen, c->places[c->n_done].of + p.n, (size_t)p.n_chosen * sizeof(json_t *));
        const i32 node = compile_place(c, &p);
        if (c->st == ST_OK && c->g->failed.code != ST_OK) schema_fails(c, c->g->failed.code, "%s", c->g->failed.text);
        schema_in_time(c);
        grammar_define(c->g, c->places[c->n_done].node, node);
    }
    for (i64 i = 0; i < c->n_places; i++) free(c->places[i].of);
    free(c->places), free(c->table);
    schema_refs_free(c);
}

status schema_to_node(grammar *g, const json_t *schema, const schema_options *o, i32 *node, err *e) {
    err own = {0};
    schema_compiler c = {.until = thread_s() + SECONDS_MAX, .g = g, .root = schema, .o = o, .e = e ? e : &own};
    json_t *object = o->object ? json_pack("{s:s}", "type", "object") : NULL;
    *node = NODE_NONE;
    if (o->object && !object) return err_nomem(e, "a schema", 64);
    const char *draft = json_string_value(json_object_get(schema, "$schema"));
    c.ref_alone = is_old_draft(draft);
    c.no_prefix = c.ref_alone || (draft && strstr(draft, "2019-09"));
    schema_refs_find(&c);
    grammar_add_punctuation(g, JSON_SPACE_ANY);
    schema_parts whole = {.n = 1};
    whole.of[0] = schema;
    if (object) schema_add(&c, &whole, object);
    *node = schema_node(&c, &whole);
    compile_places(&c);
    if (c.at == object) c.at = schema;
    if (c.st != ST_OK) name_the_place(&c);
    json_decref(object);
    return c.st;
}

status grammar_of_schema(grammar **out, const json_t *schema, const schema_options *o, err *e) {
    grammar *g = grammar_new();
    i32 root;
    *out = NULL;
    if (!g) return err_nomem(e, "a grammar", sizeof *g);
    status st = schema_to_node(g, schema, o, &root, e);
    if (st == ST_OK) st = grammar_finish(g, root, e);
    if (st == ST_OK)
        *out = g;
    else
        grammar_free(g);
    return st;
}
