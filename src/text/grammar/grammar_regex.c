/* text/grammar/grammar_regex.c: a regular expression alone is a grammar. */
#include "text/grammar/grammar.h"
#include "text/grammar/regex.h"

status grammar_of_regex(grammar **out, const char *text, size_t len, err *e) {
    grammar *g = grammar_new();
    nfa *n = nfa_new();
    nfa_part part;
    *out = NULL;
    status st = g && n ? regex_parse(n, text, len, true, &part, e) : err_nomem(e, "a grammar", sizeof *g);
    if (st == ST_OK)
        st = grammar_finish(g, grammar_lexeme(g, grammar_dfa(g, n, &part, 1)), e);
    else
        nfa_free(n);
    if (st == ST_OK)
        *out = g;
    else
        grammar_free(g);
    return st;
}
