/* cmd/lib/constrained.h: a part of the requests of a measurement held to one grammar. */
#ifndef CMD_LIB_CONSTRAINED_H
#define CMD_LIB_CONSTRAINED_H
#include "base/json.h"
#include "runtime/token_filter.h"
#include "text/grammar/constraint.h"

typedef struct {
    token_trie *trie;
    constraint *of; /* NULL: no request is held to anything */
    f64 share;      /* of the requests, evenly among the others */
    bool no_forced; /* every token is drawn */
    i64 asked;
} constrained;

/* body: what servers call it: {"json_schema", "regex" or "ebnf": ...}. Zero-initialise, end with constrained_close(). */
status constrained_open(constrained *c, const json_t *body, f64 share, bool no_forced, const tokenizer *tok, err *e);
void constrained_close(constrained *c); /* behind its filters */

/* The next request's filter: ud NULL where it is not among the constrained ones. */
status constrained_next(constrained *c, token_filter *out, err *e);

#endif
