/* text/grammar/constraint_grammar.c: what an answer may be, as a grammar. */
#include "text/grammar/constraint_internal.h"
#include "text/grammar/ebnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/structural_tag.h"
#include <stdlib.h>
#include <string.h>

static status content_schema(grammar *g, const constraint_source *source, buf *warnings, i32 *node, err *e) {
    buf passed_over = {0};
    const compile_limit limit = {.stop = source->stop};
    const schema_options o = {.unknown_are_annotations = !source->strict,
                              .limit = &limit,
                              .passed_over = source->strict ? NULL : &passed_over};
    const status st = schema_to_node(g, source->value, &o, node, e);
    if (st == ST_OK && passed_over.len && warnings) buf_fmt(warnings, "schema: passed over: %s\n", passed_over.data);
    buf_free(&passed_over);
    return st;
}

static status content_object(grammar *g, i32 *node, err *e) {
    json_t *schema = json_object();
    if (!schema) return err_nomem(e, "a schema", 64);
    const status st = schema_to_node(g, schema, &(schema_options){.object = true}, node, e);
    json_decref(schema);
    return st;
}

/* All in one automaton. */
static status content_choice(grammar *g, const json_t *texts, i32 *node, err *e) {
    const json_t *text;
    size_t i;
    if (!json_array_size(texts)) return err_set(e, ST_INPUT, "choice: no list of strings");
    json_array_foreach(texts, i, text) if (!json_is_string(text)) return err_set(
        e, ST_INPUT, "choice: number %zu is %s, no string", i, json_type_text(text));
    nfa *n = nfa_new();
    if (!n) return err_nomem(e, "a choice", 64);
    nfa_part all = nfa_never(n);
    json_array_foreach(texts, i, text) all =
        nfa_or(n, all, nfa_bytes(n, json_string_value(text), json_string_length(text)));
    *node = grammar_lexeme(g, grammar_dfa(g, n, &all, 1));
    return ST_OK;
}

static status content_text(const json_t *value, const char *what, err *e) {
    return json_is_string(value) ? ST_OK : err_set(e, ST_INPUT, "%s: %s, no string", what, json_type_text(value));
}

static status content_node(grammar *g, const constraint_source *source, buf *warnings, i32 *node, err *e) {
    const json_t *v = source->value;
    status st;
    switch (source->content) {
    case CONTENT_FREE: return ST_OK;
    case CONTENT_OBJECT: return content_object(g, node, e);
    case CONTENT_SCHEMA: return content_schema(g, source, warnings, node, e);
    case CONTENT_CHOICE: return content_choice(g, v, node, e);
    case CONTENT_TAGS: return structural_tag_to_node(g, v, source->strict, source->stop, warnings, node, e);
    case CONTENT_REGEX:
        st = content_text(v, "regex", e);
        return st == ST_OK ? regex_to_node(g, json_string_value(v), json_string_length(v), node, e) : st;
    case CONTENT_EBNF:
        st = content_text(v, "grammar", e);
        return st == ST_OK ? ebnf_to_node(g, json_string_value(v), json_string_length(v), node, e) : st;
    }
    return err_set(e, ST_INPUT, "no kind of content");
}

/* Content or calls, by the index of the first one. */
static void add_answers(answer_grammar *a, const constraint_source *source, i32 content) {
    grammar *g = a->g;
    const i32 section = source->calls == CALLS_NEVER ? NODE_NONE : mark_node(g, MARK_SECTION);
    for (i32 i = 0; i < a->n; i++) {
        if (source->calls != CALLS_NEVER) a->whole[i] = grammar_seq(g, (const i32[]){section, a->calls[i]}, 2);
        if (source->calls == CALLS_NEVER)
            a->whole[i] = content;
        else if (source->calls == CALLS_MAYBE && source->content != CONTENT_FREE)
            a->whole[i] = grammar_alt(g, (const i32[]){content, a->whole[i]}, 2);
    }
}

static status finish_answers(answer_grammar *a, const constraint_source *source, i32 content, err *e) {
    const status st = grammar_finish(a->g, a->whole[0], e);
    if (st != ST_OK && source->content == CONTENT_EBNF) err_prefix(e, "grammar");
    if (st != ST_OK) return st;
    if (source->content == CONTENT_FREE || source->calls == CALLS_MUST || a->g->nodes[content].kind != NODE_NEVER)
        return ST_OK;
    return err_set(e, ST_INPUT, "nothing satisfies it");
}

status answer_grammar_make(answer_grammar *out, const constraint_source *source, buf *warnings, err *e) {
    i32 content = NODE_NONE;
    *out = (answer_grammar){.g = grammar_new(), .n = 1};
    if (source->content == CONTENT_FREE && source->calls == CALLS_NEVER)
        return grammar_free(out->g), out->g = NULL, err_set(e, ST_INPUT, "nothing is asked of the answer");
    if (!out->g) return err_nomem(e, "a grammar", sizeof *out->g);
    out->g->in_order = source->in_order;
    out->g->plain_escapes = true; /* so names and the words of an enum can be forced, too */
    grammar_add_punctuation(out->g, source->space);
    /* where calls must come there is no content */
    status st = source->calls == CALLS_MUST ? ST_OK : content_node(out->g, source, warnings, &content, e);
    if (st == ST_OK && source->calls != CALLS_NEVER) st = add_calls(out, source, warnings, e);
    if (st == ST_OK) st = compile_goes_on(&(compile_limit){.stop = source->stop}, e);
    if (st == ST_OK) {
        add_answers(out, source, content);
        st = finish_answers(out, source, content, e);
    }
    if (st != ST_OK) grammar_free(out->g), out->g = NULL;
    return st;
}
