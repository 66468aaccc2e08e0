/* text/grammar/json_schema.h: a JSON Schema (Draft 2020-12, and what 4 to 2019-09 spell otherwise) to a grammar of the
 * JSON texts that satisfy it.
 *
 * type, enum, const, properties, required, additionalProperties, patternProperties (up to 4 at a place), propertyNames,
 * minProperties (above 1 only where properties are named), maxProperties, items, prefixItems, additionalItems, contains
 * with minContains, minItems, maxItems, minLength, maxLength, pattern (regex.h), format (date-time, date, time, email,
 * uuid, uri, hostname, ipv4, ipv6), minimum, maximum, both exclusive forms, multipleOf, anyOf, oneOf of branches that
 * are seen to be disjoint, allOf, $ref inside of the schema, $defs. Annotations mean nothing. Everything else is
 * refused by name and place, unless the options say otherwise; so is what takes longer than a second
 * of processor time.
 *
 * A text has members in any order, no key twice that a property names, numbers that bounds concern without exponent,
 * and between tokens at most two blanks and a line's end with its indentation. All texts of the grammar satisfy the
 * schema. */
#ifndef TEXT_GRAMMAR_JSON_SCHEMA_H
#define TEXT_GRAMMAR_JSON_SCHEMA_H
#include "base/json.h"
#include "text/grammar/grammar.h"

typedef struct {
    bool unknown_are_annotations; /* keywords and formats that no draft has: pass them over, do not refuse them */
    buf *passed_over;             /* not NULL: assertions that cannot be held are passed over, and named here */
    bool object;                  /* the text is an object, whatever the schema says */
    const compile_limit *limit;   /* beside the schema's own second; NULL: none */
} schema_options;

/* The caller ends *out with grammar_free(). ST_INPUT: not a schema, or nothing satisfies it; ST_UNSUPPORTED, ST_LIMIT;
 * errors name keyword and place. */
status grammar_of_schema(grammar **out, const json_t *schema, const schema_options *o, err *e);
/* The same as one node of a grammar that is being built, with the space that its punctuation has (none yet:
 * JSON_SPACE_ANY). That nothing satisfies it, grammar_finish() finds out. */
status schema_to_node(grammar *g, const json_t *schema, const schema_options *o, i32 *node, err *e);

#endif
