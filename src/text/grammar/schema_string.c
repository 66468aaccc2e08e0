/* text/grammar/schema_string.c: patterns, formats and lengths of strings. */
#include "text/grammar/schema_internal.h"
#include <string.h>

enum { LENGTH_MAX = 1 << 12 /* that is unrolled, where another rule asks for the same string */ };

/* Each a regular expression of the whole string. Dates know the days of months and leap years; there are no leap
 * seconds. Sources: RFC 3339, RFC 5321 without quoted names, RFC 3986 with a scheme, RFC 2673, RFC 4291. */
#define DATE                                                                                                           \
    "([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                  \
    "[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])|"                                                                              \
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define TIME  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE  "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  "(" BYTE "\\.){3}" BYTE
#define HEX4  "[0-9a-fA-F]{1,4}"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
static const struct {
    const char *name, *is;
} formats[] = {
    {"date-time", DATE "T" TIME},
    {"date", DATE},
    {"time", TIME},
    {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" LABEL "(\\." LABEL ")+"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"hostname", LABEL "(\\." LABEL ")*"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//(([A-Za-z0-9._~!$&'()*+,;=-]+@)?[A-Za-z0-9._~-]+(:[0-9]{1,5})?)?(/"
            "([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?|([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
            "([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
            "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"},
    {"ipv4", IPV4},
    {"ipv6",
     "((" HEX4 ":){7}" HEX4 "|(" HEX4 ":){1,7}:|(" HEX4 ":){1,6}:" HEX4 "|(" HEX4 ":){1,5}(:" HEX4 "){1,2}|(" HEX4
     ":){1,4}(:" HEX4 "){1,3}|(" HEX4 ":){1,3}(:" HEX4 "){1,4}|(" HEX4 ":){1,2}(:" HEX4 "){1,5}|" HEX4 ":(:" HEX4
     "){1,6}|:((:" HEX4 "){1,7}|:)|(" HEX4 ":){6}" IPV4 "|::((" HEX4 ":){0,5})" IPV4 ")"}};

/* Formats of the drafts that are not held. Others are nobody's: annotations, as unknown keywords. */
static const char *const other_formats[] = {"idn-email",     "idn-hostname", "uri-reference", "iri",
                                            "iri-reference", "uri-template", "json-pointer",  "relative-json-pointer",
                                            "regex",         "duration"};

static void pass_format_over(schema_compiler *c, const char *format) {
    bool known = !c->o->unknown_are_annotations;
    for (size_t i = 0; i < COUNT_OF(other_formats); i++) known = known || !strcmp(other_formats[i], format);
    if (!known) return;
    if (c->o->passed_over)
        buf_fmt(c->o->passed_over, "%s\"format\" %s", c->o->passed_over->len ? ", " : "", format);
    else
        schema_fails(c, ST_UNSUPPORTED, "\"format\" %.60s is not one of those that can be held", format);
}

/* Any string: characters, without more. */
static nfa_part any_text(nfa *n) { return nfa_star(n, nfa_any_char(n)); }

/* min to max characters, unrolled. */
static nfa_part length_between(nfa *n, i64 min, i64 max) {
    nfa_part rest = max == UNBOUNDED ? any_text(n) : nfa_nothing(n);
    for (i64 i = min; max != UNBOUNDED && i < max; i++) rest = nfa_optional(n, nfa_then(n, nfa_any_char(n), rest));
    for (i64 i = 0; i < min; i++) rest = nfa_then(n, nfa_any_char(n), rest);
    return rest;
}

static bool add_pattern(schema_compiler *c, const json_t *schema, nfa *n, nfa_part *all) {
    const json_t *pattern = json_object_get(schema, "pattern");
    nfa_part part;
    err e = {0};
    if (!pattern) return false;
    c->at = schema;
    if (!json_is_string(pattern)) return schema_fails(c, ST_INPUT, "\"pattern\" is no string"), false;
    if (regex_parse(n, json_string_value(pattern), json_string_length(pattern), false, &part, &e) != ST_OK)
        return schema_fails(c, e.code, "\"pattern\": %s", e.text), false;
    *all = nfa_both(n, *all, part);
    return true;
}

static bool add_format(schema_compiler *c, const json_t *schema, nfa *n, nfa_part *all) {
    const char *format = json_string_value(json_object_get(schema, "format"));
    nfa_part part;
    err e = {0};
    size_t i = 0;
    if (!json_object_get(schema, "format")) return false;
    c->at = schema;
    while (format && i < COUNT_OF(formats) && strcmp(formats[i].name, format)) i++;
    if (!format) return schema_fails(c, ST_INPUT, "\"format\" is no string"), false;
    if (i == COUNT_OF(formats)) return pass_format_over(c, format), false;
    if (regex_parse(n, formats[i].is, strlen(formats[i].is), true, &part, &e) != ST_OK)
        return schema_fails(c, e.code, "\"format\" %s: %s", format, e.text), false;
    *all = nfa_both(n, *all, part);
    return true;
}

nfa_part schema_string_part(schema_compiler *c, const schema_parts *p, nfa *n, bool *plain) {
    nfa_part all = any_text(n);
    bool shaped = false;
    for (int i = 0; i < p->n && c->st == ST_OK; i++) {
        shaped = add_pattern(c, p->of[i], n, &all) || shaped;
        shaped = add_format(c, p->of[i], n, &all) || shaped;
    }
    *plain = !shaped;
    return all;
}

/* The same with their lengths, and what `enum` and `const` allow. */
static nfa_part string_with_length(schema_compiler *c, const schema_parts *p, nfa *n) {
    const i64 min = schema_most(p, "minLength", 0), max = schema_least(p, "maxLength", UNBOUNDED);
    bool plain;
    nfa_part all = schema_string_part(c, p, n, &plain);
    if (min <= 0 && max == UNBOUNDED) return all;
    if (min > LENGTH_MAX || max > LENGTH_MAX)
        return schema_fails(c, ST_UNSUPPORTED, "\"minLength\" or \"maxLength\" above %d beside another rule",
                            LENGTH_MAX),
               all;
    return nfa_both(n, all, max != UNBOUNDED && min > max ? nfa_never(n) : length_between(n, min, max));
}

/* One pattern that may match anywhere, and nothing else: whatever is written, it may still come. */
static bool any_text_goes_on(const schema_parts *p) {
    static const char *const rules[] = {"format", "minLength", "maxLength"};
    int n_patterns = 0;
    for (int i = 0; i < p->n; i++) {
        const char *pattern = json_string_value(json_object_get(p->of[i], "pattern"));
        n_patterns += pattern != NULL;
        if (pattern && strpbrk(pattern, "^$")) return false;
        for (size_t k = 0; k < COUNT_OF(rules); k++)
            if (json_object_get(p->of[i], rules[k])) return false;
    }
    return n_patterns == 1;
}

i32 schema_string(schema_compiler *c, const schema_parts *p) {
    const i64 min = schema_most(p, "minLength", 0), max = schema_least(p, "maxLength", UNBOUNDED);
    nfa *n = nfa_new();
    bool plain;
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    nfa_part all = schema_string_part(c, p, n, &plain);
    if (plain) {
        if (c->any_string)
            nfa_free(n);
        else
            c->any_string = 1 + grammar_dfa(c->g, n, &all, 1);
        return grammar_string(c->g, c->any_string - 1, max_i64(min, 0), max);
    }
    all = string_with_length(c, p, n);
    const i32 node = grammar_string(c->g, grammar_dfa(c->g, n, &all, 1), 0, UNBOUNDED);
    if (node != NODE_NONE) c->g->nodes[node].any_text = any_text_goes_on(p);
    return node;
}

static nfa_part listed_strings(const json_t *list, nfa *n) {
    nfa_part all = nfa_never(n);
    const json_t *v;
    size_t i;
    json_array_foreach(list, i, v) if (json_is_string(v)) all =
        nfa_or(n, all, nfa_bytes(n, json_string_value(v), json_string_length(v)));
    return all;
}

nfa_part schema_names_part(schema_compiler *c, const json_t *schema, nfa *n) {
    static const char *const beyond[] = {"$ref", "anyOf", "oneOf", "allOf", "not", "if"};
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    schema_parts p = {.n = 1};
    p.of[0] = schema;
    if (json_is_false(schema)) return nfa_never(n);
    if (json_is_object(schema)) schema_check_words(c, schema);
    for (size_t i = 0; i < COUNT_OF(beyond); i++)
        if (json_object_get(schema, beyond[i]))
            schema_fails(c, ST_UNSUPPORTED, "\"%s\" in \"propertyNames\"", beyond[i]);
    if (!json_is_object(schema)) schema_fails(c, ST_INPUT, "\"propertyNames\" is no schema");
    if (c->st != ST_OK || !(schema_types(&p) & TYPE_STRING)) return nfa_never(n);
    nfa_part all = string_with_length(c, &p, n);
    if (list) all = nfa_both(n, all, listed_strings(list, n));
    if (only && !json_is_string(only)) return nfa_never(n);
    if (only) all = nfa_both(n, all, nfa_bytes(n, json_string_value(only), json_string_length(only)));
    return all;
}

bool schema_fits(schema_compiler *c, nfa *n, nfa_part part, const char *text, size_t len) {
    dfa *d = NULL;
    bool has = false;
    err e = {0};
    status st = dfa_make(&d, n, &part, 1, NULL, &e);
    if (st == ST_OK) st = dfa_has(d, text, len, &has, &e);
    if (st != ST_OK) schema_fails(c, st, "%s", e.text);
    dfa_free(d);
    return has;
}

dfa *schema_string_dfa(schema_compiler *c, const schema_parts *p) {
    dfa *d = NULL;
    err e = {0};
    nfa *n = nfa_new();
    bool plain;
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), NULL;
    const nfa_part all = schema_string_part(c, p, n, &plain);
    if (dfa_make(&d, n, &all, 1, NULL, &e) != ST_OK) schema_fails(c, e.code, "%s", e.text);
    return d;
}
