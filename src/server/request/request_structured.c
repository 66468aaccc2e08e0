/* server/request/request_structured.c: what the content of an answer must be, in the words of OpenAI, SGLang and vLLM.
 *
 * All of them come down to one content_kind and a value. A request has one of them at most. */
#include "base/json_size.h"
#include "server/request/constraints.h"
#include "server/request/request_fields.h"
#include <string.h>

/* `field`: static, what to call it in errors. */
static bool must_be(gen_request *r, const char *field, content_kind kind, const json_t *value, bool strict,
                    api_error *e) {
    if (r->must_field)
        return api_fail(e, 400, NULL, field, "%s beside %s: an answer can be held to one of them only", field,
                        r->must_field);
    r->must_field = field;
    r->must.content = kind;
    r->must.value = value;
    r->must.strict = strict;
    return true;
}

/* The values of JSON that stands in a string; they are r's. NULL: *e. */
static json_t *values_of_text(gen_request *r, const char *field, const json_t *text, api_error *e) {
    const char *s = json_string_value(text);
    size_t len = json_string_length(text);
    err why = {0};
    json_shape shape = json_shape_of(s, len);
    if (len > CONSTRAINT_SOURCE_MAX) {
        api_fail(e, 400, NULL, field, "%s: longer than %d bytes", field, CONSTRAINT_SOURCE_MAX);
        return NULL;
    }
    if (shape.depth > REQUEST_DEPTH_MAX) {
        api_fail(e, 400, NULL, field, "%s: nested deeper than %d", field, REQUEST_DEPTH_MAX);
        return NULL;
    }
    if (!request_hold(r, shape.bytes, e)) return NULL;
    json_t *v = json_parse(s, len, field, &why);
    if (!v) {
        api_fail_status(e, why.code, field, &why);
        return NULL;
    }
    if (!r->made) r->made = json_array();
    if (r->made && json_array_append_new(r->made, v) == 0) return v;
    api_nomem(e);
    return NULL;
}

/* An object, or a string that holds one. */
static bool must_be_object(gen_request *r, const char *field, content_kind kind, const json_t *v, api_error *e) {
    if (json_is_string(v) && !(v = values_of_text(r, field, v, e))) return false;
    if (!json_is_object(v))
        return api_fail(e, 400, NULL, field, "%s: expected an object, or JSON of one in a string, got %s", field,
                        json_type_text(v));
    return must_be(r, field, kind, v, true, e);
}

static bool must_be_one_of(gen_request *r, const char *field, const json_t *v, api_error *e) {
    size_t i;
    json_t *choice;
    if (!json_array_size(v))
        return api_fail(e, 400, NULL, field, "%s: expected an array of at least one string, got %s", field,
                        json_is_array(v) ? "an empty one" : json_type_text(v));
    json_array_foreach(v, i, choice) if (!json_is_string(choice)) return api_fail(
        e, 400, NULL, field, "%s[%zu]: expected a string, got %s", field, i, json_type_text(choice));
    return must_be(r, field, CONTENT_CHOICE, v, true, e);
}

static bool must_be_so(gen_request *r, const char *field, content_kind kind, const json_t *v, api_error *e) {
    if (kind == CONTENT_SCHEMA || kind == CONTENT_TAGS) return must_be_object(r, field, kind, v, e);
    if (kind == CONTENT_CHOICE) return must_be_one_of(r, field, v, e);
    if (!json_is_string(v))
        return api_fail(e, 400, NULL, field, "%s: expected a string, got %s", field, json_type_text(v));
    return must_be(r, field, kind, v, true, e);
}

/* ---- SGLang's and vLLM's fields ---- */

bool request_read_grammar(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                          api_error *e) {
    static const struct {
        const char *key;
        content_kind kind;
    } kinds[] = {{"regex", CONTENT_REGEX},         {"ebnf", CONTENT_EBNF},           {"json_schema", CONTENT_SCHEMA},
                 {"structural_tag", CONTENT_TAGS}, {"guided_regex", CONTENT_REGEX},  {"guided_grammar", CONTENT_EBNF},
                 {"guided_json", CONTENT_SCHEMA},  {"guided_choice", CONTENT_CHOICE}};
    (void)m;
    if (!field_given(o, f->key)) return true;
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (!strcmp(kinds[i].key, f->key)) return must_be_so(r, f->key, kinds[i].kind, json_object_get(o, f->key), e);
    return true;
}

/* vLLM's: one of them, and no options of its own back-ends. */
bool request_read_structured_outputs(gen_request *r, const served_model *m, const json_t *o, const request_field *f,
                                     api_error *e) {
    static const struct {
        const char *key, *field;
        content_kind kind;
    } kinds[] = {{"json", "structured_outputs.json", CONTENT_SCHEMA},
                 {"regex", "structured_outputs.regex", CONTENT_REGEX},
                 {"choice", "structured_outputs.choice", CONTENT_CHOICE},
                 {"grammar", "structured_outputs.grammar", CONTENT_EBNF},
                 {"structural_tag", "structured_outputs.structural_tag", CONTENT_TAGS}};
    static const char object[] = "structured_outputs.json_object";
    const json_t *all;
    const char *key;
    json_t *v;
    (void)m;
    if (!field_object(o, f->key, &all, e) || !all) return !e->http;
    json_object_foreach((json_t *)all, key, v) {
        size_t i = 0;
        while (i < COUNT_OF(kinds) && strcmp(kinds[i].key, key)) i++;
        if (json_is_null(v) || json_is_false(v)) continue;
        if (i < COUNT_OF(kinds)) {
            if (!must_be_so(r, kinds[i].field, kinds[i].kind, v, e)) return false;
        } else if (strcmp(key, "json_object")) {
            return api_fail(e, 400, "unsupported", f->key, "%s.%.60s is not supported by this version", f->key, key);
        } else if (!json_is_true(v)) {
            return api_fail(e, 400, NULL, object, "%s: expected true or false, got %s", object, json_type_text(v));
        } else if (!must_be(r, object, CONTENT_OBJECT, NULL, true, e)) {
            return false;
        }
    }
    return r->must_field
               ? true
               : api_fail(e, 400, NULL, f->key,
                          "%s: expected one of json, regex, choice, grammar, json_object, structural_tag", f->key);
}

/* ---- response_format ---- */

/* What a foreign request calls it. */
static const char *format_field(const gen_request *r) {
    if (!r->original || field_given(r->original, "response_format")) return "response_format";
    if (r->kind == API_RESPONSES) return "text.format";
    return field_given(r->original, "output_format") ? "output_format" : "output_config.format";
}

/* {"name", "schema", "strict"}: strict unless it says otherwise, as Moonshot's verifier asks. */
static bool read_json_schema(gen_request *r, const char *field, const json_t *format, api_error *e) {
    const json_t *of = json_object_get(format, "json_schema"), *name = json_object_get(of, "name");
    const json_t *schema = json_object_get(of, "schema"), *strict = json_object_get(of, "strict");
    if (!json_is_object(of))
        return api_fail(e, 400, NULL, field, "%s.json_schema: expected an object, got %s", field, json_type_text(of));
    if (!json_string_length(name))
        return api_fail(e, 400, NULL, field, "%s: name: expected some text, got %s", field,
                        json_is_string(name) ? "none" : json_type_text(name));
    if (!json_is_object(schema))
        return api_fail(e, 400, NULL, field, "%s: schema: expected an object, got %s", field, json_type_text(schema));
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return api_fail(e, 400, NULL, field, "%s: strict: expected true or false, got %s", field,
                        json_type_text(strict));
    return must_be(r, field, CONTENT_SCHEMA, schema, !json_is_false(strict), e);
}

bool request_read_format(gen_request *r, const served_model *m, const json_t *o, const request_field *f, api_error *e) {
    const json_t *format;
    (void)m;
    if (!field_object(o, f->key, &format, e)) return false;
    if (!format) return true;
    const char *field = format_field(r), *type = json_string_value(json_object_get(format, "type"));
    if (!type) return api_fail(e, 400, NULL, field, "%s: type: expected a string", field);
    if (!strcmp(type, "text")) return true;
    if (!strcmp(type, "json_object")) return must_be(r, field, CONTENT_OBJECT, NULL, true, e);
    if (!strcmp(type, "json_schema")) return read_json_schema(r, field, format, e);
    if (!strcmp(type, "structural_tag")) return must_be(r, field, CONTENT_TAGS, format, true, e);
    return api_fail(e, 400, NULL, field,
                    "%s: type \"%.40s\" is not known, only text, json_object, json_schema, structural_tag", field,
                    type);
}

/* ---- From a source to a constraint ---- */

/* Which field a fault in the source is put down to: what asks for the content, else the tools, whose faults name the
 * tool. */
static const char *source_field(const gen_request *r) {
    return r->must.content != CONTENT_FREE ? r->must_field : "tools";
}

bool request_constrain(gen_request *r, constraint_cache *c, const json_form *form, bool (*gone)(void *ud), void *ud,
                       api_error *e) {
    if (r->must.content == CONTENT_FREE && r->must.calls == CALLS_NEVER) return true;
    if (r->require_reasoning) r->begin = BEGIN_IN_THINK;
    if (r->logprobs) r->token_by_token = true; /* text that is not drawn has no log-probabilities */
    r->must.space = form->space;
    r->must.in_order = form->in_order;
    if (r->must.content == CONTENT_FREE) buf_clear(&r->continued); /* any text would do, and calls come behind it */
    /* The cache looks at a sorted copy. */
    u64 copy = json_memory(r->must.value) + json_memory(r->must.tools);
    const constraint_asker who = {.field = source_field(r), .gone = gone, .ud = ud};
    return request_hold(r, copy, e) && constraints_get(c, &r->must, &who, &r->constraint, &r->warnings, e);
}
