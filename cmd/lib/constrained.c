#include "cmd/lib/constrained.h"
#include "base/log.h"
#include "api/run_filter.h"
#include <string.h>

static status source_of_body(constraint_source *s, const json_t *body, err *e) {
    static const struct {
        const char *key;
        content_kind kind;
    } kinds[] = {{"json_schema", CONTENT_SCHEMA}, {"regex", CONTENT_REGEX}, {"ebnf", CONTENT_EBNF}};
    const char *key;
    json_t *value;
    *s = (constraint_source){.strict = true, .space = JSON_SPACE_LINE};
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        size_t i = 0;
        while (i < COUNT_OF(kinds) && strcmp(kinds[i].key, key)) i++;
        if (i == COUNT_OF(kinds) || s->value)
            return err_set(e, ST_INPUT, "an engine in this process takes one of json_schema, regex and ebnf, not %.40s",
                           key);
        s->content = kinds[i].kind;
        s->value = value;
    }
    return s->value ? ST_OK : err_set(e, ST_INPUT, "none of json_schema, regex and ebnf is there");
}

status constrained_open(constrained *c, const json_t *body, f64 share, bool no_forced, const tokenizer *tok, err *e) {
    constraint_source s;
    buf warnings = {0};
    status st = source_of_body(&s, body, e);
    if (st == ST_OK) st = token_trie_open(&c->trie, tok, e);
    if (st == ST_OK) st = constraint_compile(&c->of, &s, c->trie, tok, &warnings, e);
    if (st == ST_OK && warnings.len) log_warn("%.*s", (int)warnings.len, warnings.data);
    buf_free(&warnings);
    c->share = share;
    c->no_forced = no_forced;
    return st;
}

void constrained_close(constrained *c) {
    constraint_release(c->of);
    token_trie_close(c->trie);
}

status constrained_next(constrained *c, token_filter *out, err *e) {
    *out = (token_filter){0};
    const i64 k = c->asked++;
    if (!c->of || (i64)((f64)(k + 1) * c->share) == (i64)((f64)k * c->share)) return ST_OK;
    return run_filter_open(out, c->of, &(run_filter_options){.begin = BEGIN_CONTENT, .forced = !c->no_forced}, e);
}
