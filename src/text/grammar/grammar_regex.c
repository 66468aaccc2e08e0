/* text/grammar/grammar_regex.c: a regular expression alone is a grammar. */
#include "text/grammar/grammar.h"
#include "text/grammar/regex.h"

status regex_to_node(grammar *g, const char *text, size_t len, i32 *node, err *e) {
    nfa *n = nfa_new();
    nfa_part part;
    *node = NODE_NONE;
    if (!n) return err_nomem(e, "a grammar", sizeof *g);
    const status st = regex_parse(n, text, len, true, &part, e);
    if (st != ST_OK) return nfa_free(n), st;
    *node = grammar_lexeme(g, grammar_dfa(g, n, &part, 1));
    if (g->failed.code != ST_OK && e) *e = g->failed;
    return g->failed.code;
}

status grammar_of_regex(grammar **out, const char *text, size_t len, err *e) {
    grammar *g = grammar_new();
    i32 root;
    *out = NULL;
    if (!g) return err_nomem(e, "a grammar", sizeof *g);
    status st = regex_to_node(g, text, len, &root, e);
    if (st == ST_OK) st = grammar_finish(g, root, e);
    if (st == ST_OK)
        *out = g;
    else
        grammar_free(g);
    return st;
}
