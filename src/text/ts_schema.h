/* text/ts_schema.h: a JSON Schema read into the few shapes that the TypeScript declaration of tools knows.
 * Internal to ts_tools.c. Nodes point into the schema, which must outlive them; ts_parser_clear() frees all.
 */
#ifndef TEXT_TS_SCHEMA_H
#define TEXT_TS_SCHEMA_H
#include "base/json.h"

typedef enum { TS_WORD, TS_OBJECT, TS_ARRAY, TS_ENUM, TS_ANY_OF, TS_UNION, TS_REF } ts_kind;
typedef struct ts_type ts_type;

typedef struct {
    const char *name;
    ts_type *type;
    const json_t *value; /* "default", or NULL */
    bool optional;
} ts_field;

struct ts_type {
    ts_kind kind;
    const json_t *schema; /* where comments come from; NULL: it has none */
    const json_t *word;   /* WORD: the value of "type"; NULL: `name` instead */
    const char *name;     /* WORD without schema, REF */
    const json_t *values; /* ENUM, UNION: array */
    json_t *owned;        /* what `values` points to when it is not part of the schema */
    ts_type **members;    /* ANY_OF [n_members]; ARRAY [1]: the item */
    ts_field *fields;     /* OBJECT [n_fields], in the schema's order, which is sorted */
    size_t n_members, n_fields;
    ts_type *extra;          /* OBJECT: additionalProperties when it is a schema ... */
    const json_t *extra_raw; /* ... or its value */
    ts_type *older;          /* the node made before this one */
};

typedef struct {
    const char *name;
    const json_t *schema;
} ts_def;

typedef struct {
    ts_type *newest; /* chain of all nodes */
    ts_def *defs;    /* registered $defs in order of their first registration */
    size_t n_defs, cap_defs;
    json_t *def_at; /* name -> index in defs */
    bool self_ref;  /* "#" was used */
    bool nomem;
    size_t tool;     /* index in the tool list, for the error */
    const char *why; /* set by ts_fail */
} ts_parser;

/* NULL when the schema has no TypeScript form (p->why) or memory ran out (p->nomem). */
ts_type *ts_parse(ts_parser *p, const json_t *schema);
/* The parameters of a function, an object whatever its "type" says; NULL schema: no parameters. */
ts_type *ts_parse_root(ts_parser *p, const json_t *schema);
const char *ts_union_word(const char *type); /* "integer" -> "number", ...; NULL when unknown */
bool ts_fail(ts_parser *p, const char *why); /* always false */
void ts_parser_clear(ts_parser *p);          /* frees nodes and definitions; `tool` and `why` stay */

#endif
