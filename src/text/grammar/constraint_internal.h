/* text/grammar/constraint_internal.h: a constraint's inside.
 *
 * Its grammar has marks of calls beside text (token_trie.h). A call's name ends with its running index, so each index
 * has nodes of its own, up to a number behind which any index may come: answers of conversations with calls before
 * them begin at theirs, and share everything else. */
#ifndef TEXT_GRAMMAR_CONSTRAINT_INTERNAL_H
#define TEXT_GRAMMAR_CONSTRAINT_INTERNAL_H
#include "text/grammar/constraint.h"
#include <pthread.h>

enum { INDICES_MAX = 256 };

/* A grammar, and where in it an answer begins whose first call has an index, or the last of them: as a whole, and
 * behind the mark of the section. Free content is in no grammar. */
typedef struct {
    grammar *g;
    i32 n; /* indices */
    i32 whole[INDICES_MAX + 1], calls[INDICES_MAX + 1];
} answer_grammar;

/* The caller ends out->g. warnings may be NULL. */
status answer_grammar_make(answer_grammar *out, const constraint_source *source, buf *warnings, err *e);

/* The section of calls, without its first mark, into a->calls. */
status add_calls(answer_grammar *a, const constraint_source *source, buf *warnings, err *e);
i32 mark_node(grammar *g, mark m);

/* What runs walk together. One that has grown too large, or has failed, serves the runs that it has, while others get
 * a new one. */
typedef struct constraint_walk {
    answer_grammar a;
    matcher *m;
    i64 runs;
    u64 first_bytes; /* before anything was walked */
    err failed;
    struct constraint_walk *next;
} constraint_walk;

struct constraint {
    pthread_mutex_t lock;
    i64 holders;
    const token_trie *trie;
    const tokenizer *tok;
    constraint_source source; /* with values of its own */
    u64 budget;               /* bytes that a walk may grow by */
    i64 credit;               /* fuel (grammar_meter) that its answers may yet take from others' time */
    err too_slow;             /* it was not enough: no more runs */
    i32 marks[MARKS];         /* ids, -1: the vocabulary has none */
    constraint_walk *walks;   /* the first is that of new runs */
};

/* States of a run: these, then those of the matcher. */
enum { RUN_MAY_THINK, RUN_THINKING, RUN_FREE, RUN_STATES };

struct constraint_run {
    constraint *c;
    constraint_walk *w;
    i32 start;
    i32 content; /* the state in which an answer begins that has been thought about */
    i32 calls;   /* the one behind the section's mark; RUN_DEAD: there are no calls */
};

/* Around walks of w, with the lock held: what they may cost, and what they did. */
void walk_begin(constraint *c, constraint_walk *w);
void walk_end(constraint *c, constraint_walk *w);
void constraint_earn(constraint *c); /* a token more */

/* For tests: what a walk may grow by until new runs get a new one. */
void constraint_set_budget(constraint *c, u64 bytes);

#endif
