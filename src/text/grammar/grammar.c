#include "text/grammar/grammar.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

static void grammar_fails(grammar *g, status st, const char *what) {
    if (g->failed.code == ST_OK) err_set(&g->failed, st, "%s", what);
}

/* Room for one more of n elements of `size` bytes at *all, which doubles; false: remembered. */
static bool grammar_room(grammar *g, void *all, i32 n, size_t size) {
    void **at = all;
    if (n && (n & (n - 1))) return true;
    if (n >= GRAMMAR_NODES_MAX) return grammar_fails(g, ST_LIMIT, "the grammar is too large"), false;
    void *more = realloc(*at, (size_t)(n ? 2 * n : 1) * size);
    if (!more) return grammar_fails(g, ST_NOMEM, "out of host memory for a grammar"), false;
    *at = more;
    return true;
}

static i32 grammar_add(grammar *g, grammar_node node) {
    if (!grammar_room(g, &g->nodes, g->n_nodes, sizeof *g->nodes)) return NODE_NONE;
    g->nodes[g->n_nodes] = node;
    return g->n_nodes++;
}

grammar *grammar_new(void) {
    grammar *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    grammar_add(g, (grammar_node){.kind = NODE_NEVER});
    if (g->failed.code == ST_OK) return g;
    free(g);
    return NULL;
}

void grammar_free(grammar *g) {
    if (!g) return;
    for (i32 i = 0; g->known && i < g->n_dfas; i++) free(g->known[i].of);
    free(g->known);
    for (i32 i = 0; i < g->n_dfas; i++) dfa_free(g->dfas[i]);
    for (i32 i = 0; i < g->n_objects; i++) free(g->objects[i].of), free(g->objects[i].others);
    for (i32 i = 0; i < g->n_arrays; i++) free(g->arrays[i].first);
    free(g->nodes), free(g->children), free(g->dfas), free(g->objects), free(g->arrays);
    free(g);
}

i32 grammar_dfa(grammar *g, nfa *n, const nfa_part *parts, size_t n_parts) {
    bool empty = false;
    dfa *d = NULL;
    err e = {0};
    if (!n || g->failed.code != ST_OK) return nfa_free(n), grammar_fails(g, ST_NOMEM, "out of host memory"), -1;
    if (dfa_make(&d, n, parts, n_parts, &empty, &e) != ST_OK) return g->failed = e, -1;
    if (empty) return -1;
    if (!grammar_room(g, &g->dfas, g->n_dfas, sizeof(dfa *))) return dfa_free(d), -1;
    g->dfas[g->n_dfas] = d;
    return g->n_dfas++;
}

i32 grammar_lexeme(grammar *g, i32 dfa) {
    return dfa < 0 ? NODE_NONE : grammar_add(g, (grammar_node){.kind = NODE_LEXEME, .of = dfa});
}

status compile_goes_on(const compile_limit *l, err *e) {
    if (!l) return ST_OK;
    if (l->stop && atomic_load(l->stop)) return err_set(e, ST_CANCELLED, "nobody waits for it");
    if (!l->seconds || thread_s() <= l->until_s) return ST_OK;
    return err_set(e, ST_LIMIT, "the schemas together take longer than %d s", l->seconds);
}

i32 grammar_string(grammar *g, i32 dfa, i64 min, i64 max) {
    if (dfa < 0 || (max != UNBOUNDED && min > max)) return NODE_NONE;
    return grammar_add(g, (grammar_node){.kind = NODE_STRING, .of = dfa, .min = min, .max = max});
}

static i32 grammar_with_children(grammar *g, node_kind kind, const i32 *children, i32 n) {
    const i32 first = g->n_children;
    for (i32 i = 0; i < n; i++) {
        if (!grammar_room(g, &g->children, g->n_children, sizeof *g->children)) return NODE_NONE;
        g->children[g->n_children++] = children[i];
    }
    return grammar_add(g, (grammar_node){.kind = kind, .of = first, .n = n});
}

i32 grammar_exact(grammar *g, const void *bytes, size_t len) {
    nfa *n = len ? nfa_new() : NULL;
    if (!len) return grammar_with_children(g, NODE_SEQ, NULL, 0);
    if (!n) return grammar_fails(g, ST_NOMEM, "out of host memory"), NODE_NONE;
    const nfa_part part = nfa_bytes(n, bytes, len);
    return grammar_lexeme(g, grammar_dfa(g, n, &part, 1));
}

i32 grammar_text(grammar *g, const char *text) { return grammar_exact(g, text, strlen(text)); }

i32 grammar_seq(grammar *g, const i32 *children, i32 n) {
    return n == 1 ? children[0] : grammar_with_children(g, NODE_SEQ, children, n);
}

i32 grammar_alt(grammar *g, const i32 *children, i32 n) {
    if (n < 2) return n ? children[0] : NODE_NONE;
    return grammar_with_children(g, NODE_ALT, children, n);
}

i32 grammar_repeat(grammar *g, i32 child, i64 min, i64 max) {
    if (max != UNBOUNDED && min > max) return NODE_NONE;
    const i32 node = grammar_with_children(g, NODE_REPEAT, &child, 1);
    if (node != NODE_NONE) g->nodes[node].min = min, g->nodes[node].max = max;
    return node;
}

i32 grammar_add_object(grammar *g, const grammar_object *o) {
    if (!grammar_room(g, &g->objects, g->n_objects, sizeof *g->objects)) return free(o->of), free(o->others), NODE_NONE;
    g->objects[g->n_objects] = *o;
    return grammar_add(g, (grammar_node){.kind = NODE_OBJECT, .of = g->n_objects++});
}

i32 grammar_add_array(grammar *g, const grammar_array *a) {
    if (!grammar_room(g, &g->arrays, g->n_arrays, sizeof *g->arrays)) return free(a->first), NODE_NONE;
    g->arrays[g->n_arrays] = *a;
    return grammar_add(g, (grammar_node){.kind = NODE_ARRAY, .of = g->n_arrays++});
}

i32 grammar_reserve(grammar *g) {
    const i32 none = NODE_NONE;
    return grammar_with_children(g, NODE_ALT, &none, 1);
}

void grammar_define(grammar *g, i32 reserved, i32 node) {
    if (reserved != NODE_NONE) g->children[g->nodes[reserved].of] = node;
}

/* ---- punctuation ---- */

enum { BLANKS_MOST = 2, INDENT_MOST = 128 };

static nfa_part blanks_part(nfa *n, int most) {
    nfa_part blanks = nfa_nothing(n);
    for (int i = 0; i < most; i++)
        blanks = nfa_optional(n, nfa_then(n, nfa_or(n, nfa_range(n, ' ', ' '), nfa_range(n, '\t', '\t')), blanks));
    return blanks;
}

static nfa_part space_part(nfa *n) {
    const nfa_part end = nfa_then(n, nfa_optional(n, nfa_range(n, '\r', '\r')), nfa_range(n, '\n', '\n'));
    const nfa_part line = nfa_then(n, end, blanks_part(n, INDENT_MOST));
    return nfa_then(n, blanks_part(n, BLANKS_MOST), nfa_optional(n, line));
}

typedef enum { SPACE_NEVER, SPACE_OF_LINES, SPACE_BLANK } mark_space;

static nfa_part mark_space_part(nfa *n, mark_space space) {
    if (space == SPACE_OF_LINES) return space_part(n);
    return space == SPACE_BLANK ? nfa_optional(n, nfa_range(n, ' ', ' ')) : nfa_nothing(n);
}

static i32 mark_with_space(grammar *g, char mark, mark_space before, mark_space behind) {
    nfa *n = nfa_new();
    if (!n) return grammar_fails(g, ST_NOMEM, "out of host memory"), NODE_NONE;
    nfa_part part = nfa_range(n, (u8)mark, (u8)mark);
    part = nfa_then(n, mark_space_part(n, before), part);
    part = nfa_then(n, part, mark_space_part(n, behind));
    return grammar_lexeme(g, grammar_dfa(g, n, &part, 1));
}

void grammar_add_punctuation(grammar *g, json_space space) {
    const mark_space lines = space == JSON_SPACE_ANY ? SPACE_OF_LINES : SPACE_NEVER;
    const mark_space behind = space == JSON_SPACE_LINE ? SPACE_BLANK : lines;
    if (g->open_object != NODE_NONE) return;
    g->open_object = mark_with_space(g, '{', SPACE_NEVER, lines);
    g->close_object = mark_with_space(g, '}', lines, SPACE_NEVER);
    g->close_empty_object = mark_with_space(g, '}', SPACE_NEVER, SPACE_NEVER); /* the space is the opening's */
    g->open_array = mark_with_space(g, '[', SPACE_NEVER, lines);
    g->close_array = mark_with_space(g, ']', lines, SPACE_NEVER);
    g->close_empty_array = mark_with_space(g, ']', SPACE_NEVER, SPACE_NEVER);
    g->comma = mark_with_space(g, ',', lines, behind);
    g->colon = mark_with_space(g, ':', lines, behind);
}

u64 grammar_bytes(const grammar *g) {
    u64 n = (u64)g->n_nodes * sizeof *g->nodes + (u64)g->n_children * sizeof *g->children;
    for (i32 i = 0; i < g->n_objects; i++) n += (u64)g->objects[i].n * sizeof(grammar_property) + sizeof *g->objects;
    for (i32 i = 0; i < g->n_arrays; i++) n += (u64)g->arrays[i].n_first * sizeof(i32) + sizeof *g->arrays;
    for (i32 i = 0; i < g->n_dfas; i++) n += dfa_bytes(g->dfas[i]);
    for (i32 i = 0; g->known && i < g->n_dfas; i++) n += (u64)g->known[i].n * sizeof *g->known[i].of;
    return n;
}
