/* text/grammar/free_text.c: all stops are looked for at once (Aho and Corasick): a state is the longest end of the text
 * that begins a stop. */
#include "text/grammar/free_text.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    i32 next[256]; /* 0: none, or the first state */
    i32 shorter;   /* the longest proper end of it that is a state */
    bool stops, ends;
} stop_state;

static void put_stop(stop_state *all, i32 *n, const free_stop *stop, i32 group) {
    i32 at = 0;
    for (size_t i = 0; i < stop->len; i++) {
        i32 *next = &all[at].next[(u8)stop->text[i]];
        if (!*next) *next = (*n)++;
        at = *next;
    }
    all[at].stops = true;
    all[at].ends = all[at].ends || stop->group == group;
}

/* From short states to long ones: where no stop goes on, a shorter end of the text may. */
static void complete_states(stop_state *all, i32 *queue) {
    i32 n = 1;
    queue[0] = 0;
    for (i32 i = 0; i < n; i++) {
        stop_state *s = &all[queue[i]];
        const stop_state *shorter = &all[s->shorter];
        s->stops = s->stops || shorter->stops, s->ends = s->ends || shorter->ends;
        for (int b = 0; b < 256; b++) {
            const i32 instead = s == all ? 0 : shorter->next[b];
            if (s->next[b])
                all[s->next[b]].shorter = instead, queue[n++] = s->next[b];
            else
                s->next[b] = instead;
        }
    }
}

/* Runs of bytes that lead to one state are one move; NULL: they are counted. */
static size_t state_moves(const stop_state *all, i32 n, nfa_move *moves) {
    size_t count = 0;
    for (i32 s = 0; s < n; s++)
        for (int lo = 0, hi; lo < 256 && !all[s].stops; lo = hi + 1) {
            for (hi = lo; hi < 255 && all[s].next[hi + 1] == all[s].next[lo];) hi++;
            if (moves) moves[count] = (nfa_move){s, all[s].next[lo], (u8)lo, (u8)hi};
            count++;
        }
    return count;
}

static status text_of_states(grammar *g, const stop_state *all, i32 n, bool without, i32 *node, err *e) {
    const size_t n_moves = state_moves(all, n, NULL);
    nfa_move *moves = malloc((n_moves + 1) * sizeof *moves);
    bool *ends = malloc((size_t)n * sizeof *ends);
    nfa *a = nfa_new();
    const bool room = moves && ends && a;
    if (room) {
        state_moves(all, n, moves);
        for (i32 s = 0; s < n; s++) ends[s] = without ? !all[s].stops : all[s].ends;
        nfa_part part = nfa_table(a, n, 0, moves, n_moves, ends);
        part = nfa_both(a, part, nfa_star(a, nfa_any_char(a)));
        *node = grammar_lexeme(g, grammar_dfa(g, a, &part, 1));
    } else {
        nfa_free(a);
    }
    free(moves), free(ends);
    return room ? ST_OK : err_nomem(e, "a text's automaton", n_moves * sizeof *moves);
}

status free_text_node(grammar *g, const free_stop *stops, size_t n, i32 group, i32 *node, err *e) {
    size_t bytes = 0;
    i32 n_states = 1;
    *node = NODE_NONE;
    for (size_t i = 0; i < n; i++) bytes += stops[i].len;
    if (bytes > FREE_STOP_BYTES_MAX)
        return err_set(e, ST_LIMIT, "strings that end a text of more than %d bytes together", FREE_STOP_BYTES_MAX);
    stop_state *all = calloc(bytes + 1, sizeof *all);
    i32 *queue = malloc((bytes + 1) * sizeof *queue);
    status st = all && queue ? ST_OK : err_nomem(e, "a text's automaton", bytes * sizeof *all);
    if (st == ST_OK) {
        for (size_t i = 0; i < n; i++) put_stop(all, &n_states, &stops[i], group);
        complete_states(all, queue);
        st = text_of_states(g, all, n_states, group < 0, node, e);
    }
    free(all), free(queue);
    return st;
}
