#include "cmd/lib/grammar_line.h"
#include "text/grammar/ebnf.h"
#include "text/grammar/json_schema.h"

status grammar_of_line(grammar **out, const json_t *line, err *e) {
    const json_t *schema = json_object_get(line, "schema"), *regex = json_object_get(line, "regex"),
                 *ebnf = json_object_get(line, "grammar"), *text = regex ? regex : ebnf;
    bool strict = false;
    *out = NULL;
    status st = json_get_bool(line, "strict", false, &strict, e);
    if (st != ST_OK) return st;
    if (!!schema + !!regex + !!ebnf != 1)
        return err_set(e, ST_INPUT, "exactly one of \"schema\", \"regex\" and \"grammar\" is needed");
    if (schema) return grammar_of_schema(out, schema, &(schema_options){.unknown_are_annotations = !strict}, e);
    if (!json_is_string(text)) return err_set(e, ST_INPUT, "\"%s\" is not a string", regex ? "regex" : "grammar");
    return (regex ? grammar_of_regex : grammar_of_ebnf)(out, json_string_value(text), json_string_length(text), e);
}
