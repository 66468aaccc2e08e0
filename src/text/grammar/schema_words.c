/* text/grammar/schema_words.c: the keywords of JSON Schema: held, annotations, or more than can be held. */
#include "text/grammar/schema_internal.h"
#include <string.h>

typedef enum { WORD_HELD, WORD_ANNOTATION, WORD_NOT_HELD } word_class;
static const struct {
    const char *name;
    word_class is;
} words[] = {{"type", WORD_HELD},
             {"enum", WORD_HELD},
             {"const", WORD_HELD},
             {"properties", WORD_HELD},
             {"required", WORD_HELD},
             {"additionalProperties", WORD_HELD},
             {"patternProperties", WORD_HELD},
             {"propertyNames", WORD_HELD},
             {"minProperties", WORD_HELD},
             {"maxProperties", WORD_HELD},
             {"items", WORD_HELD},
             {"prefixItems", WORD_HELD},
             {"additionalItems", WORD_HELD},
             {"contains", WORD_HELD},
             {"minContains", WORD_HELD},
             {"minItems", WORD_HELD},
             {"maxItems", WORD_HELD},
             {"minLength", WORD_HELD},
             {"maxLength", WORD_HELD},
             {"pattern", WORD_HELD},
             {"format", WORD_HELD},
             {"minimum", WORD_HELD},
             {"maximum", WORD_HELD},
             {"exclusiveMinimum", WORD_HELD},
             {"exclusiveMaximum", WORD_HELD},
             {"multipleOf", WORD_HELD},
             {"anyOf", WORD_HELD},
             {"oneOf", WORD_HELD},
             {"allOf", WORD_HELD},
             {"$ref", WORD_HELD},
             {"$defs", WORD_ANNOTATION},
             {"definitions", WORD_ANNOTATION},
             {"$schema", WORD_ANNOTATION},
             {"$id", WORD_ANNOTATION},
             {"id", WORD_ANNOTATION},
             {"$anchor", WORD_ANNOTATION},
             {"$comment", WORD_ANNOTATION},
             {"$vocabulary", WORD_ANNOTATION},
             {"title", WORD_ANNOTATION},
             {"description", WORD_ANNOTATION},
             {"default", WORD_ANNOTATION},
             {"example", WORD_ANNOTATION},
             {"examples", WORD_ANNOTATION},
             {"deprecated", WORD_ANNOTATION},
             {"readOnly", WORD_ANNOTATION},
             {"writeOnly", WORD_ANNOTATION},
             {"contentMediaType", WORD_ANNOTATION},
             {"contentEncoding", WORD_ANNOTATION},
             {"contentSchema", WORD_ANNOTATION},
             {"discriminator", WORD_ANNOTATION},
             {"not", WORD_NOT_HELD},
             {"if", WORD_NOT_HELD},
             {"then", WORD_NOT_HELD},
             {"else", WORD_NOT_HELD},
             {"uniqueItems", WORD_NOT_HELD},
             {"maxContains", WORD_NOT_HELD},
             {"dependentRequired", WORD_NOT_HELD},
             {"dependentSchemas", WORD_NOT_HELD},
             {"dependencies", WORD_NOT_HELD},
             {"unevaluatedItems", WORD_NOT_HELD},
             {"unevaluatedProperties", WORD_NOT_HELD},
             {"$dynamicRef", WORD_NOT_HELD},
             {"$dynamicAnchor", WORD_NOT_HELD},
             {"$recursiveRef", WORD_NOT_HELD},
             {"$recursiveAnchor", WORD_NOT_HELD}};

/* An assertion that cannot be held but asks for nothing as it stands. */
static bool asks_nothing(const char *key, const json_t *value) {
    if (!strcmp(key, "uniqueItems")) return json_is_false(value);
    if (!strcmp(key, "unevaluatedItems") || !strcmp(key, "unevaluatedProperties")) return json_is_true(value);
    if (!strncmp(key, "depend", 6)) return json_is_object(value) && !json_object_size(value);
    return false;
}

void schema_check_words(schema_compiler *c, const json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        word_class is = WORD_HELD;
        size_t i = 0;
        while (i < COUNT_OF(words) && strcmp(words[i].name, key)) i++;
        if (i < COUNT_OF(words))
            is = words[i].is;
        else if (!strncmp(key, "x-", 2) || c->o->unknown_are_annotations)
            is = WORD_ANNOTATION;
        else
            schema_fails(c, ST_UNSUPPORTED, "\"%.80s\" is no keyword of JSON Schema", key);
        if (is != WORD_NOT_HELD || asks_nothing(key, value)) continue;
        if (c->o->passed_over)
            buf_fmt(c->o->passed_over, "%s\"%s\"", c->o->passed_over->len ? ", " : "", key);
        else
            schema_fails(c, ST_UNSUPPORTED, "\"%.80s\" cannot be held while a text is written", key);
    }
}
