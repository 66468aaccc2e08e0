/* text/grammar/ebnf_internal.h: a grammar's text as a tree, on its way to nodes. */
#ifndef TEXT_GRAMMAR_EBNF_INTERNAL_H
#define TEXT_GRAMMAR_EBNF_INTERNAL_H
#include "base/buf.h"
#include "text/grammar/grammar.h"

enum {
    EBNF_TREE_MAX = 1000,   /* levels of the tree: what recursion below may cost */
    EBNF_ONCE_MORE = 256,   /* states: a rule or a round of at most this is written out where it is used ... */
    EBNF_WRITTEN = 1 << 22, /* ... but all of them together have no more than this */
    EBNF_ROUNDS_MAX = 32,   /* that are written out; beyond, they are counted */
    EBNF_ROW_MAX = 1 << 14, /* states of a lexeme that is a sequence: each may be a dfa's state */
    EBNF_NAME_SHOWN = 60,
    EBNF_CHOICE_MAX = 1 << 18 /* of one that is a choice: most are never come to */
};

typedef enum { EBNF_TEXT, EBNF_CHARS, EBNF_NAME, EBNF_ROW, EBNF_CHOICE, EBNF_REPEAT } ebnf_kind;

/* Children stand before their parents. Number 0 is "none". */
typedef struct {
    ebnf_kind kind;
    i32 child, next; /* the first of its own, the one behind it */
    i32 of, n;       /* the place and number of its bytes or ranges; a name's rule */
    i32 depth;
    i64 min, max; /* EBNF_REPEAT */
    i32 size;     /* states of an nfa, at most; 0: it cannot be one */
    bool empty;   /* surely the empty string is in it */
    u32 at;       /* place in the text */
} ebnf_node;

typedef struct {
    bool defined;
    i32 first, body; /* its tree is the nodes [first, body] */
    i32 node;        /* of the grammar, -1: not yet */
} ebnf_rule;

/* Strings that are numbered as they come, in a tree of tsearch(): balanced, whoever has chosen them. */
typedef struct {
    i32 number;
    size_t len;
    char text[];
} ebnf_word;
typedef struct {
    void *tree;
    i32 n;
} ebnf_words;

typedef struct {
    const u8 *text;
    size_t len, at;
    int depth;
    ebnf_node *nodes;
    i32 n_nodes, cap_nodes;
    ebnf_rule *rules; /* by the number of their names */
    i32 n_rules, cap_rules, root;
    ebnf_words names;
    buf bytes;
    ids_buf ranges; /* pairs */
    i32 once_more;
    grammar *g;
    ids_buf todo; /* rules whose node is reserved */
    ebnf_words pieces;
    ids_buf lexemes; /* nodes of the pieces */
    buf key;
    status failed;
    err *e;
} ebnf;

typedef struct {
    i32 first, last;
} ebnf_list;

/* The first mistake is told, nothing is read behind it. */
void ebnf_stop(ebnf *b, status st, const char *text);
/* The string's number: the count of those before it, if it is new. -1: out of memory. */
i32 ebnf_number(ebnf_words *t, const void *text, size_t len);
/* How large, how deep, whether empty: by what is known of its children and of rules. */
void ebnf_measure(const ebnf *b, ebnf_node *x);
/* Puts an item, and those behind it, at the end of a list; a list becomes a node. */
void ebnf_link(ebnf *b, ebnf_list *list, i32 item);
i32 ebnf_add_list(ebnf *b, ebnf_kind kind, ebnf_list list, size_t at);
/* The whole text to nodes and rules. */
void ebnf_parse(ebnf *b);

#endif
