/* api/constrain.c: what an answer must be: a schema, a regular expression, a grammar, strict tools. */
#include "api/api.h"
#include "base/log.h"
#include "api/run_filter.h"
#include <string.h>

static bool some_tool_is_strict(const json_t *tools) {
    size_t i;
    json_t *tool;
    json_array_foreach(
        tools, i, tool) if (json_is_true(json_object_get(json_object_get(tool, "function"), "strict"))) return true;
    return false;
}

/* *value: the caller's, for the source. */
static status source_of(const moon_request *q, const json_t *tools, constraint_source *s, json_t **value, err *e) {
    *s = (constraint_source){.strict = true, .space = JSON_SPACE_LINE};
    *value = NULL;
    if (!!q->json_schema + !!q->regex + !!q->grammar > 1)
        return err_set(e, ST_INPUT, "an answer is held to one of json_schema, regex and grammar only");
    if (q->json_schema) {
        s->content = CONTENT_SCHEMA;
        *value = json_parse(q->json_schema, strlen(q->json_schema), "json_schema", e);
        if (!*value) return e->code;
    } else if (q->regex || q->grammar) {
        const char *text = q->regex ? q->regex : q->grammar;
        s->content = q->regex ? CONTENT_REGEX : CONTENT_EBNF;
        *value = json_stringn(text, strlen(text));
        if (!*value) return err_set(e, ST_INPUT, "%s is not UTF-8", q->regex ? "regex" : "grammar");
    }
    s->value = *value;
    s->tools = tools;
    if (json_array_size(tools) && (s->content != CONTENT_FREE || some_tool_is_strict(tools))) s->calls = CALLS_MAYBE;
    return ST_OK;
}

static status filter_of(moon_engine *m, const constraint_source *s, answer_begin begin, token_filter *out, err *e) {
    constraint *c = NULL;
    buf warnings = {0};
    status st = m->trie ? ST_OK : token_trie_open(&m->trie, m->tok, e);
    if (st == ST_OK) st = constraint_compile(&c, s, m->trie, m->tok, &warnings, e);
    if (st == ST_OK && warnings.len) log_warn("%.*s", (int)warnings.len, warnings.data);
    if (st == ST_OK) st = run_filter_open(out, c, &(run_filter_options){.begin = begin, .forced = true}, e);
    constraint_release(c);
    buf_free(&warnings);
    return st;
}

status api_constrain(moon_engine *m, const moon_request *q, const json_t *tools, answer_begin begin, token_filter *out,
                     err *e) {
    constraint_source s;
    json_t *value;
    *out = (token_filter){0};
    status st = source_of(q, tools, &s, &value, e);
    if (st == ST_OK && (s.content != CONTENT_FREE || s.calls != CALLS_NEVER)) st = filter_of(m, &s, begin, out, e);
    json_decref(value);
    return st;
}
