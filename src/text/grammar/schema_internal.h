/* text/grammar/schema_internal.h: a schema on its way to a grammar. */
#ifndef TEXT_GRAMMAR_SCHEMA_INTERNAL_H
#define TEXT_GRAMMAR_SCHEMA_INTERNAL_H
#include "text/grammar/json_schema.h"
#include "text/grammar/regex.h"

enum { SCHEMA_PARTS_MAX = 64 /* that hold together at one place */, SCHEMA_PLACES_MAX = 1 << 16 };

typedef enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8, /* with TYPE_INTEGER: any number */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPES_ALL = 127
} schema_type;

/* Schemas that must all hold, and lists of branches (anyOf, oneOf) of which one is among them already. Once a place is
 * looked at they are objects, in which $ref and allOf have been followed. */
typedef struct {
    const json_t *of[SCHEMA_PARTS_MAX], *chosen[SCHEMA_PARTS_MAX];
    int n, n_chosen;
} schema_parts;

/* A place: what must hold there, as it was asked for, and its node. */
typedef struct {
    const json_t **of; /* [n], then [n_chosen], each ascending */
    int n, n_chosen;
    i32 node;
} schema_place;

typedef struct {
    grammar *g;
    const json_t *root, *at; /* at: the schema that is being read, for errors */
    const schema_options *o;
    i32 null, yes, no, any_number, any_integer; /* nodes that many places share, once they are made */
    i32 any_string, any_keys;                   /* dfas, + 1 */
    f64 until;                                  /* thread_s(): no longer than that */
    i64 work;                                   /* since the clock was looked at */
    json_t *anchors;                            /* names to places in memory, as numbers */
    const json_t **foreign;                     /* [n_foreign], ascending: $ref of a resource inside with its own $id */
    i64 n_foreign, cap_foreign;
    bool ref_alone; /* up to draft 7 what stands beside $ref means nothing */
    bool no_prefix; /* up to 2019-09 prefixItems means nothing */
    schema_place *places;
    i64 n_places, n_done, places_cap, slots;
    i32 *table; /* places by what holds there, + 1 */
    err *e;
    status st; /* the first failure, whose text is in e */
} schema_compiler;

status schema_fails(schema_compiler *c, status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool schema_in_time(schema_compiler *c); /* asked where schemas make work; false: it failed */
/* The same where steps are small: `work` of them, of some 100 ns, are next. The clock is asked now and then. */
bool schema_spends(schema_compiler *c, i64 work);
/* The node of what satisfies all of them; it is defined later. */
i32 schema_node(schema_compiler *c, const schema_parts *p);
bool schema_add(schema_compiler *c, schema_parts *p, const json_t *schema);
/* The types that parts allow. */
u32 schema_types(const schema_parts *p);

/* The least or the most of a count that parts ask for; `none` if they do not. */
i64 schema_most(const schema_parts *p, const char *key, i64 none);  /* the largest: of minLength, ... */
i64 schema_least(const schema_parts *p, const char *key, i64 none); /* the smallest: of maxLength, ... */

/* Refuses keywords of a schema that are not held, or names them among those passed over. */
void schema_check_words(schema_compiler *c, const json_t *schema);
/* What the schema can refer to, found in one walk; freed with schema_refs_free(). */
void schema_refs_find(schema_compiler *c);
void schema_refs_free(schema_compiler *c);
const json_t *schema_target(schema_compiler *c, const json_t *ref); /* what a $ref refers to; NULL: nothing */
const json_t *schema_followed(schema_compiler *c, const json_t *s); /* s, or what its $ref leads to */
void schema_check_disjoint(schema_compiler *c, const json_t *branches);
/* The values of a list that the parts allow; one value, if they do. */
i32 schema_listed(schema_compiler *c, const schema_parts *p, const json_t *list);
i32 schema_only(schema_compiler *c, const schema_parts *p, const json_t *v);
bool schema_value_listed(const json_t *list, const json_t *v);
i64 schema_count(const json_t *v, i64 none); /* of minItems and the like */
i32 schema_number(schema_compiler *c, const schema_parts *p, bool integer);
bool schema_number_fits(schema_compiler *c, const schema_parts *p, const json_t *v);
i32 schema_string(schema_compiler *c, const schema_parts *p);
/* The language of strings that parts allow. *plain: their lengths are not in it. */
nfa_part schema_string_part(schema_compiler *c, const schema_parts *p, nfa *n, bool *plain);
/* The language of strings that one schema, propertyNames', allows. */
nfa_part schema_names_part(schema_compiler *c, const json_t *schema, nfa *n);
/* The keys of an object of which these parts hold. */
typedef struct {
    const schema_parts *parts;
    const char *patterns[GRAMMAR_PATTERNS_MAX];
    dfa *matches[GRAMMAR_PATTERNS_MAX];
    int n_patterns;
    const char **names; /* of all properties, and of all that are required, once each */
    bool *required;
    int n_names, cap_names;
    json_t *numbers; /* of the names */
    dfa *allowed;    /* by propertyNames, if they are restricted; NULL then: none */
    bool restricted;
} schema_keys;
bool schema_keys_find(schema_compiler *c, const schema_parts *p, schema_keys *all); /* end with schema_keys_free() */
void schema_keys_free(schema_keys *all);
u32 schema_keys_matched(schema_compiler *c, const schema_keys *all, const char *key); /* which patterns, as a set */
bool schema_keys_allow(schema_compiler *c, const schema_keys *all, const char *key);  /* by propertyNames */
/* The dfa of grammar_object.keys, and any_key. */
i32 schema_keys_automaton(schema_compiler *c, const schema_keys *all, grammar_object *o);
i32 schema_object(schema_compiler *c, const schema_parts *p);
i32 schema_array(schema_compiler *c, const schema_parts *p);
dfa *schema_string_dfa(schema_compiler *c,
                       const schema_parts *p); /* of it, the caller's; NULL: it is empty, or failed */
/* Does a text belong to a part's language? */
bool schema_fits(schema_compiler *c, nfa *n, nfa_part part, const char *text, size_t len); /* takes n */
bool json_same(const json_t *a, const json_t *b);

#endif
