/* text/grammar/automaton.h: regular languages of bytes.
 *
 * An nfa is built from parts (bytes, characters, one behind the other, one or the other). A dfa is made of some of
 * its parts, each with a label, and grows as it is walked: a state is a set of the nfa's. States from which no end of
 * a label can be reached do not exist, so every prefix that is accepted can go on to a whole. All sizes are bounded;
 * what does not fit is ST_LIMIT. */
#ifndef TEXT_GRAMMAR_AUTOMATON_H
#define TEXT_GRAMMAR_AUTOMATON_H
#include "base/err.h"

enum {
    NFA_STATES_MAX = 1 << 20,
    DFA_STATES_MAX = 1 << 16, /* of one dfa, DFA_DEAD among them */
    DFA_ITEMS_MAX = 1 << 23,  /* the nfa's states in all of a dfa's */
    DFA_WORK_MAX = 1 << 30,   /* the nfa's edges looked at to make a dfa's states: some seconds */
    DFA_DEAD = -1,
    DFA_UNKNOWN = -2 /* inside: not made yet */
};

/* ---- building ---- */

typedef struct nfa nfa;
/* From its first state to its last, which no edge leaves yet. A part may be used once: as an operand of another, or as
 * a label's. */
typedef struct {
    i32 first, last;
} nfa_part;

nfa *nfa_new(void); /* NULL: out of memory */
void nfa_free(nfa *n);
/* Out of memory (ST_NOMEM) or states (ST_LIMIT), once and for all; parts that are made then mean nothing. Ask at the
 * end. */
status nfa_failed(const nfa *n, err *e);

nfa_part nfa_nothing(nfa *n);                             /* the empty string */
nfa_part nfa_never(nfa *n);                               /* no string */
nfa_part nfa_bytes(nfa *n, const void *text, size_t len); /* this string */
nfa_part nfa_range(nfa *n, u8 lo, u8 hi);                 /* one byte */
/* One character, by the UTF-8 of one code point of the n_ranges closed ranges [2 i, 2 i + 1], ascending and apart;
 * surrogates (D800 to DFFF) are none. */
nfa_part nfa_chars(nfa *n, const u32 *ranges, size_t n_ranges);
nfa_part nfa_any_char(nfa *n); /* any character at all */
nfa_part nfa_then(nfa *n, nfa_part a, nfa_part b);
nfa_part nfa_or(nfa *n, nfa_part a, nfa_part b);
nfa_part nfa_optional(nfa *n, nfa_part a);
nfa_part nfa_star(nfa *n, nfa_part a);      /* none or more */
nfa_part nfa_plus(nfa *n, nfa_part a);      /* one or more */
nfa_part nfa_not_empty(nfa *n, nfa_part a); /* its strings of a byte or more */
nfa_part nfa_copy(nfa *n, nfa_part a);      /* the same once more, of a part that has not been used */
/* Strings that are in both, by a product; a and b are used. */
nfa_part nfa_both(nfa *n, nfa_part a, nfa_part b);
/* The empty string, but only where the text begins (end: ends). Means something below nfa_anchored() alone, which goes
 * around the part that stands for the whole text. */
nfa_part nfa_anchor(nfa *n, bool end);
nfa_part nfa_anchored(nfa *n, nfa_part a);

/* ---- looking: what a dfa is made from ---- */

typedef enum { NFA_BYTES, NFA_EMPTY, NFA_BEGIN, NFA_END } nfa_kind;
/* All edges that leave a state are of NFA_BYTES, or none is. */
typedef struct {
    i32 to, next;
    u8 kind, lo, hi;
} nfa_edge;
i32 nfa_states(const nfa *n);
const nfa_edge *nfa_first_edge(const nfa *n, i32 state); /* NULL: none */
const nfa_edge *nfa_next_edge(const nfa *n, const nfa_edge *e);

/* An automaton that is given as it is: states 0 to n_states - 1, of which ends[] are a string's end. */
typedef struct {
    i32 from, to;
    u8 lo, hi; /* bytes */
} nfa_move;
nfa_part nfa_table(nfa *n, i32 n_states, i32 first, const nfa_move *moves, size_t n_moves, const bool *ends);

/* ---- walking ---- */

typedef struct dfa dfa;
/* A dfa of parts[n_parts], part i with label i, n_parts <= 1 << 16; takes n, also when it fails. *empty (may be NULL):
 * no label can be reached at all; then *out is NULL and ST_OK is returned. */
status dfa_make(dfa **out, nfa *n, const nfa_part *parts, size_t n_parts, bool *empty, err *e);
void dfa_free(dfa *d);
i32 dfa_start(const dfa *d);
/* How a dfa begins: the row of each state, that of DFA_DEAD in front. */
typedef struct {
    i32 (*rows)[256];
} dfa_table;
i32 dfa_make_next(dfa *d, i32 state, u8 byte); /* for dfa_next(): the slow way */
/* The state behind a byte, or DFA_DEAD, also behind DFA_DEAD. Not to be called by two threads of one dfa at a time. */
static inline i32 dfa_next(dfa *d, i32 state, u8 byte) {
    i32 to = ((const dfa_table *)d)->rows[state + 1][byte];
    return to != DFA_UNKNOWN ? to : dfa_make_next(d, state, byte);
}
bool dfa_accepts(const dfa *d, i32 state);
/* Labels of which the string so far is a whole, ascending: *n of them. They stay where they are until dfa_free(). */
const i32 *dfa_labels(const dfa *d, i32 state, size_t *n);
/* Labels that can still be reached, ascending. */
const i32 *dfa_reaches(const dfa *d, i32 state, size_t *n);
i64 dfa_states(const dfa *d); /* so far */
u64 dfa_bytes(const dfa *d);  /* memory that it takes so far, about */
/* From here on a new state takes of *fuel what it costs, in units of some 5 ns; where none is left d fails (ST_LIMIT).
 * NULL: nothing is counted. */
void dfa_meter(dfa *d, i64 *fuel);
/* Is this string one of d's (NULL: it has none)? */
status dfa_has(dfa *d, const char *text, size_t len, bool *has, err *e);
/* d's strings (NULL: none), or all others, as a part of n; d is the caller's. */
status nfa_of_dfa(nfa *n, dfa *d, bool others, nfa_part *out, err *e);
/* ST_LIMIT or ST_NOMEM: a state was needed for which there was no room, and dfa_next() said DFA_DEAD instead. */
status dfa_failed(const dfa *d, err *e);

#endif
