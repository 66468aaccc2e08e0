/* text/grammar/grammar.h: a compiled grammar: nodes that refer to each other, and automata for what they spell.
 *
 * Schemas (json_schema.h), regular expressions and EBNF are all compiled to nodes; the matcher (matcher.h) walks them
 * with a stack. Counts and sets of properties live in the stack, not in nodes: {0,5000000} is one node.
 *
 * Building cannot fail: what goes wrong is remembered, and grammar_finish() says it. Then nodes from which nothing can
 * come are gone, so that every beginning the matcher lets through has an end. */
#ifndef TEXT_GRAMMAR_GRAMMAR_H
#define TEXT_GRAMMAR_GRAMMAR_H
#include "text/grammar/automaton.h"
#include <stdatomic.h>

enum {
    GRAMMAR_NODES_MAX = 1 << 19,
    GRAMMAR_PATTERNS_MAX = 4,
    UNBOUNDED = -1,
    NODE_NONE = 0 /* what nothing matches */
};

/* Between the tokens of JSON: at most two blanks and a line's end with its indentation (a model that may write nothing
 * but space could do so to the end); at most one blank behind a comma or a colon; nothing. */
typedef enum { JSON_SPACE_ANY, JSON_SPACE_LINE, JSON_SPACE_NONE } json_space;

/* When compiling is given up, beside what bounds each part. */
typedef struct {
    int seconds;             /* for all schemas together; 0: any time */
    f64 until_s;             /* thread_s() when they are over */
    const atomic_bool *stop; /* set: nobody waits for it any more; may be NULL */
} compile_limit;
/* ST_LIMIT, ST_CANCELLED: it is given up. l: may be NULL. */
status compile_goes_on(const compile_limit *l, err *e);

typedef struct {
    json_space space;
    bool in_order; /* of properties, as the schema has them */
} json_form;

typedef enum {
    NODE_NEVER,
    NODE_LEXEME, /* what a dfa accepts */
    NODE_STRING, /* a JSON string whose text, without quotes and escapes, a dfa accepts; min to max characters */
    NODE_SEQ,    /* children one behind the other; none: the empty string */
    NODE_ALT,    /* one of the children */
    NODE_REPEAT, /* the child, min to max times */
    NODE_OBJECT,
    NODE_ARRAY
} node_kind;

typedef struct {
    i32 value; /* NODE_NONE: this key is refused */
    bool required;
} grammar_property;

/* Members in any order, each named key once. Labels of `keys`: property i has i, and keys that are no property's have
 * n + the set of the patterns that they match; label n may be a property's name, too, where there are no patterns. */
typedef struct {
    i32 keys; /* a dfa of the text of keys */
    i32 n, n_patterns;
    grammar_property *of; /* [n] */
    bool any_key;     /* nothing is asked of names: every text is a key that has not ended, if all others[] are there */
    i32 *others;      /* [1 << n_patterns]: the value of a key that is no property's, by that set */
    i64 min, max;     /* members; max: or UNBOUNDED, as everywhere */
    bool others_come; /* there may be members that no property names; by grammar_finish() */
} grammar_object;

/* Items by place, then `rest`; at least min_contains of them are also `contains`. */
typedef struct {
    i32 n_first, *first; /* [n_first] */
    i32 rest;            /* NODE_NONE: no more */
    i32 contains;        /* what it and `rest` both ask; looked at if min_contains > 0, and then n_first is 0 */
    i64 min, max, min_contains;
} grammar_array;

typedef struct {
    node_kind kind;
    i32 of;        /* a dfa, an object, an array; the first child's place in grammar.children */
    i32 n;         /* children */
    i64 min, max;  /* of a repeat or a string */
    bool any_text; /* of a string: every text is one that has not ended, as where a pattern may match anywhere */
    bool empty;    /* may match the empty string; by grammar_finish() */
} grammar_node;

/* What the matcher found out about a state of a dfa. */
typedef struct {
    u64 bytes[4]; /* a set: which may follow */
    bool known;   /* they are */
    u8 any_text;  /* 2: any text leads back to it, 1: not, 0: not asked yet */
} grammar_dfa_state;
typedef struct {
    grammar_dfa_state *of; /* [n] */
    i32 n;
} grammar_dfa_states;

typedef struct grammar {
    grammar_node *nodes;
    i32 *children;
    dfa **dfas;
    grammar_object *objects;
    grammar_array *arrays;
    i32 n_nodes, n_children, n_dfas, n_objects, n_arrays;
    i32 root;
    /* Lexemes of JSON with what space may stand beside them. */
    i32 open_object, close_object, close_empty_object, open_array, close_array, close_empty_array, comma, colon;
    /* Set by who asks for text to be written: names, and strings that may not be just any text, have no escapes but
     * those they need. Else all spellings of a string are equal. */
    bool plain_escapes;
    /* Named members come in the order of grammar_object.of, which may leave some out, and others behind them. */
    bool in_order;
    grammar_dfa_states *known; /* [n_dfas], or NULL */
    bool metered;
    i64 fuel; /* of grammar_meter() */
    err failed;
} grammar;

grammar *grammar_new(void); /* NULL: out of memory */
void grammar_free(grammar *g);

/* Takes n, also when it fails. The dfa's number; -1: it accepts nothing, or something failed. */
i32 grammar_dfa(grammar *g, nfa *n, const nfa_part *parts, size_t n_parts);
/* Nodes. A dfa of -1 is a node that nothing matches. */
i32 grammar_lexeme(grammar *g, i32 dfa);
i32 grammar_text(grammar *g, const char *text); /* exactly this */
i32 grammar_exact(grammar *g, const void *bytes, size_t len);
i32 grammar_string(grammar *g, i32 dfa, i64 min, i64 max);
i32 grammar_seq(grammar *g, const i32 *children, i32 n);
i32 grammar_alt(grammar *g, const i32 *children, i32 n);
i32 grammar_repeat(grammar *g, i32 child, i64 min, i64 max);
/* Take what of and others, first point to, which malloc() has given. */
i32 grammar_add_object(grammar *g, const grammar_object *o);
i32 grammar_add_array(grammar *g, const grammar_array *a);
/* A node that is defined later as another: for what refers to itself. */
i32 grammar_reserve(grammar *g);
void grammar_define(grammar *g, i32 reserved, i32 node);
/* Lexemes of JSON, for who needs them: made once, later calls do nothing, so the first one says what space there is. */
void grammar_add_punctuation(grammar *g, json_space space);
u64 grammar_bytes(const grammar *g); /* memory, about; automata grow while they are walked */

/* ST_INPUT: nothing matches. ST_UNSUPPORTED: a rule begins with itself. */
status grammar_finish(grammar *g, i32 root, err *e);

/* Of a finished grammar: from here on walking it takes of g->fuel, in units of some 5 ns: what is new costs what it
 * takes, what was walked before next to nothing. Where none is left the matcher fails, ST_LIMIT. So one walk can be
 * held to a time, the same on every machine. */
void grammar_meter(grammar *g);

/* The strings that a regular expression (regex.h) matches from beginning to end. The caller ends *out. */
status grammar_of_regex(grammar **out, const char *text, size_t len, err *e);
/* The same as one node of a grammar that is being built. */
status regex_to_node(grammar *g, const char *text, size_t len, i32 *node, err *e);

#endif
