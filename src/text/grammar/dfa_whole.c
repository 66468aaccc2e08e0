/* text/grammar/dfa_whole.c: a dfa asked for a whole string, and walked to its end to become an nfa again, or all that
 * it is not. */
#include "text/grammar/automaton.h"
#include <stdlib.h>
#include <string.h>

enum { WALKED_MAX = 1 << 15 /* states */ };

status dfa_has(dfa *d, const char *text, size_t len, bool *has, err *e) {
    i32 at = d ? dfa_start(d) : DFA_DEAD;
    for (size_t i = 0; i < len && at != DFA_DEAD; i++) at = dfa_next(d, at, (u8)text[i]);
    *has = at != DFA_DEAD && dfa_accepts(d, at);
    return d ? dfa_failed(d, e) : ST_OK;
}

/* States as they are found: number 0 is what the dfa does not know, from where nothing leads back. */
typedef struct {
    i32 *number, *of, n; /* of the dfa's state, 0: not yet; and back */
    nfa_move *moves;
    size_t n_moves, cap;
    status failed;
} whole_walk;

static i32 walk_number(whole_walk *w, i32 state) {
    if (state == DFA_DEAD || w->number[state]) return state == DFA_DEAD ? 0 : w->number[state];
    if (w->n == WALKED_MAX) return w->failed = ST_LIMIT, 0;
    w->of[w->n] = state;
    return w->number[state] = w->n++;
}

static void walk_move(whole_walk *w, i32 from, i32 to, int lo, int hi) {
    if (w->n_moves == w->cap) {
        const size_t more = w->cap ? 2 * w->cap : 256;
        nfa_move *moves = realloc(w->moves, more * sizeof *moves);
        if (!moves) {
            w->failed = ST_NOMEM;
            return;
        }
        w->moves = moves, w->cap = more;
    }
    w->moves[w->n_moves++] = (nfa_move){from, to, (u8)lo, (u8)hi};
}

/* Runs of bytes that lead to one state are one move. */
static void walk_state(whole_walk *w, dfa *d, i32 s) {
    for (int lo = 0, hi; lo < 256; lo = hi + 1) {
        const i32 to = dfa_next(d, w->of[s], (u8)lo);
        for (hi = lo; hi < 255 && dfa_next(d, w->of[s], (u8)(hi + 1)) == to;) hi++;
        walk_move(w, s, walk_number(w, to), lo, hi);
    }
}

status nfa_of_dfa(nfa *n, dfa *d, bool others, nfa_part *out, err *e) {
    whole_walk w = {calloc(DFA_STATES_MAX, sizeof(i32)), calloc(WALKED_MAX, sizeof(i32)), 1, NULL, 0, 0, ST_OK};
    bool *ends = calloc(WALKED_MAX, sizeof *ends);
    *out = nfa_never(n);
    if (!w.number || !w.of || !ends) w.failed = ST_NOMEM;
    const i32 first = d && w.failed == ST_OK ? walk_number(&w, dfa_start(d)) : 0;
    if (w.failed == ST_OK) ends[0] = others, walk_move(&w, 0, 0, 0, 255);
    for (i32 s = 1; s < w.n && w.failed == ST_OK; s++) {
        ends[s] = dfa_accepts(d, w.of[s]) != others;
        walk_state(&w, d, s);
    }
    status st = w.failed == ST_LIMIT   ? err_set(e, ST_LIMIT, "an automaton of more than %d states", WALKED_MAX)
                : w.failed == ST_NOMEM ? err_nomem(e, "an automaton", WALKED_MAX * sizeof(i32))
                                       : ST_OK;
    if (st == ST_OK && d) st = dfa_failed(d, e); /* it said DFA_DEAD where it had no room */
    if (st == ST_OK) *out = nfa_table(n, w.n, first, w.moves, w.n_moves, ends);
    free(w.number), free(w.of), free(w.moves), free(ends);
    return st;
}
