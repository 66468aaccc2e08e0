/* text/grammar/grammar_finish.c: which nodes can match anything, which the empty string, and whether rules begin with
 * themselves. */
#include "text/grammar/grammar.h"
#include <stdlib.h>
#include <string.h>

static i32 child_of(const grammar *g, const grammar_node *x, i32 i) { return g->children[x->of + i]; }

enum { VISITS_MAX = 1 << 28 /* of nodes and their children, until nothing changes */ };

/* The least fixed point of what `holds` says of a node by what is known of others. Most nodes come behind what they
 * refer to or in front of it, so passes go both ways; false: there was no end of them. */
static bool find_nodes(const grammar *g, bool (*holds)(const grammar *, const grammar_node *, const bool *),
                       bool *known) {
    i64 visits = 0;
    for (bool again = true; again;) {
        again = false;
        if ((visits += 2 * ((i64)g->n_nodes + g->n_children)) > VISITS_MAX) return false;
        for (i32 k = 0; k < 2 * g->n_nodes; k++) {
            const i32 i = k < g->n_nodes ? k : 2 * g->n_nodes - 1 - k;
            if (known[i] || !holds(g, &g->nodes[i], known)) continue;
            known[i] = again = true;
        }
    }
    return true;
}

/* ---- what can match something ---- */

/* Properties that a member can have, and whether one that no property names can be: what its key's automaton comes to
 * and of whose value something is left. */
static i64 named_members(const grammar *g, const grammar_object *o, const bool *alive, bool *others) {
    i64 named = 0;
    size_t n = 0;
    const i32 *labels = o->keys < 0 ? NULL : dfa_reaches(g->dfas[o->keys], dfa_start(g->dfas[o->keys]), &n);
    *others = false;
    for (size_t k = 0; k < n; k++) {
        const i32 i = labels[k];
        if (i < o->n)
            named += alive[o->of[i].value];
        else
            *others = *others || alive[o->others[i - o->n]];
    }
    return named;
}

static bool required_are_alive(const grammar_object *o, const bool *alive) {
    for (i32 i = 0; i < o->n; i++)
        if (o->of[i].required && !alive[o->of[i].value]) return false;
    return true;
}

/* Of members that no property names one is counted: they could be the same key twice. */
static bool object_is_alive(const grammar *g, const grammar_object *o, const bool *alive) {
    bool others;
    return required_are_alive(o, alive) && (named_members(g, o, alive, &others) + others >= o->min);
}

/* An object that is dead only for what cannot be counted satisfies something all the same. */
static bool counts_too_few(const grammar *g, const grammar_object *o, const bool *alive) {
    bool others;
    const i64 named = named_members(g, o, alive, &others);
    return required_are_alive(o, alive) && others && named + others < o->min;
}

static bool array_is_alive(const grammar_array *a, const bool *alive) {
    for (i32 i = 0; i < a->n_first && i < a->min; i++)
        if (!alive[a->first[i]]) return false;
    if (a->min_contains && !alive[a->contains]) return false;
    return a->min <= a->n_first || a->min <= a->min_contains || alive[a->rest];
}

static bool node_is_alive(const grammar *g, const grammar_node *x, const bool *alive) {
    bool all = true, any = false;
    switch (x->kind) {
    case NODE_NEVER: return false;
    case NODE_LEXEME:
    case NODE_STRING: return true;
    case NODE_OBJECT: return object_is_alive(g, &g->objects[x->of], alive);
    case NODE_ARRAY: return array_is_alive(&g->arrays[x->of], alive);
    case NODE_REPEAT: return x->min == 0 || alive[child_of(g, x, 0)];
    case NODE_SEQ:
    case NODE_ALT: break;
    }
    for (i32 i = 0; i < x->n; i++) {
        all = all && alive[child_of(g, x, i)];
        any = any || alive[child_of(g, x, i)];
    }
    return x->kind == NODE_SEQ ? all : any;
}

static void cut_array(grammar_array *a, const bool *alive) {
    for (i32 i = 0; i < a->n_first; i++)
        if (!alive[a->first[i]]) a->n_first = i, a->rest = NODE_NONE;
    if (!alive[a->rest]) a->rest = NODE_NONE;
    const bool items = a->rest != NODE_NONE || a->min_contains;
    if (!items && (a->max == UNBOUNDED || a->max > a->n_first)) a->max = a->n_first;
    if (a->rest == NODE_NONE && a->min_contains && (a->max == UNBOUNDED || a->max > a->min_contains))
        a->max = a->min_contains;
}

/* Refers to living nodes alone. */
static void cut_node(grammar *g, grammar_node *x, const bool *alive) {
    i32 kept = 0;
    if (x->kind == NODE_OBJECT) {
        grammar_object *o = &g->objects[x->of];
        named_members(g, o, alive, &o->others_come);
        for (i32 i = 0; i < o->n; i++)
            if (!alive[o->of[i].value]) o->of[i].value = NODE_NONE;
        for (i32 k = 0; k < 1 << o->n_patterns; k++)
            if (!alive[o->others[k]]) o->others[k] = NODE_NONE;
    } else if (x->kind == NODE_ARRAY) {
        cut_array(&g->arrays[x->of], alive);
    } else if (x->kind == NODE_REPEAT && !alive[child_of(g, x, 0)]) {
        *x = (grammar_node){.kind = NODE_SEQ};
    } else if (x->kind == NODE_ALT) {
        for (i32 i = 0; i < x->n; i++)
            if (alive[child_of(g, x, i)]) g->children[x->of + kept++] = child_of(g, x, i);
        x->n = kept;
    }
}

/* ---- the empty string ---- */

static bool node_is_empty(const grammar *g, const grammar_node *x, const bool *empty) {
    if (x->kind == NODE_LEXEME) return dfa_accepts(g->dfas[x->of], dfa_start(g->dfas[x->of]));
    if (x->kind == NODE_REPEAT) return x->min == 0 || empty[child_of(g, x, 0)];
    if (x->kind != NODE_SEQ && x->kind != NODE_ALT) return false;
    for (i32 i = 0; i < x->n; i++)
        if (empty[child_of(g, x, i)] != (x->kind == NODE_SEQ)) return x->kind == NODE_ALT;
    return x->kind == NODE_SEQ;
}

/* ---- rules that begin with themselves ---- */

/* Children that stand at the beginning: of a sequence those in front of which all may be empty. */
static i32 beginnings(const grammar *g, const grammar_node *x) {
    if (x->kind == NODE_ALT || x->kind == NODE_REPEAT) return x->n;
    if (x->kind != NODE_SEQ) return 0;
    i32 n = 0;
    while (n < x->n && g->nodes[child_of(g, x, n)].empty) n++;
    return n < x->n ? n + 1 : n;
}
/* Does the matcher put something on its stack on the way to child i? */
static bool pushes(const grammar_node *x, i32 i) {
    return x->kind == NODE_REPEAT || (x->kind == NODE_SEQ && i + 1 < x->n);
}

typedef struct {
    i32 *order, *low, *path, *next, *count, *stack; /* Tarjan's strongly connected components, without recursion */
    i32 n_order, n_path, n_stack;
} begin_search;

static void search_enter(const grammar *g, begin_search *s, i32 node) {
    s->count[node] = beginnings(g, &g->nodes[node]);
    s->order[node] = s->low[node] = ++s->n_order;
    s->path[s->n_path++] = node;
    s->stack[s->n_stack++] = node;
    s->next[node] = 0;
}

/* low[] of a component that is whole becomes its number's negative, so that it is known from those under way. */
static void search_leave(begin_search *s, i32 node) {
    s->n_stack--;
    if (s->n_stack && s->low[node] < s->low[s->stack[s->n_stack - 1]]) s->low[s->stack[s->n_stack - 1]] = s->low[node];
    if (s->low[node] != s->order[node]) return;
    const i32 component = -s->order[node];
    i32 last;
    do {
        last = s->path[--s->n_path];
        s->low[last] = component;
    } while (last != node);
}

static void search_from(const grammar *g, begin_search *s, i32 root) {
    search_enter(g, s, root);
    while (s->n_stack) {
        const i32 node = s->stack[s->n_stack - 1], i = s->next[node]++;
        const grammar_node *x = &g->nodes[node];
        if (i >= s->count[node]) {
            search_leave(s, node);
            continue;
        }
        const i32 to = child_of(g, x, i);
        if (!s->order[to])
            search_enter(g, s, to);
        else if (s->low[to] > 0 && s->order[to] < s->low[node])
            s->low[node] = s->order[to];
    }
}

static bool begins_with_itself(const grammar *g, begin_search *s) {
    for (i32 i = 0; i < g->n_nodes; i++)
        if (!s->order[i]) search_from(g, s, i);
    for (i32 i = 0; i < g->n_nodes; i++)
        for (i32 k = 0; k < s->count[i]; k++)
            if (pushes(&g->nodes[i], k) && s->low[i] == s->low[child_of(g, &g->nodes[i], k)]) return true;
    return false;
}

static status refuse_left_recursion(const grammar *g, err *e) {
    i32 *all = calloc((size_t)g->n_nodes * 6, sizeof *all);
    if (!all) return err_nomem(e, "a grammar", (u64)g->n_nodes * 24);
    const i64 n = g->n_nodes;
    begin_search s = {all, all + n, all + 2 * n, all + 3 * n, all + 4 * n, all + 5 * n, 0, 0, 0};
    const bool found = begins_with_itself(g, &s);
    free(all);
    return found ? err_set(e, ST_UNSUPPORTED, "a rule begins with itself (left recursion)") : ST_OK;
}

static void drop_the_dead(grammar *g, i32 root, const bool *alive) {
    for (i32 i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].kind == NODE_OBJECT && counts_too_few(g, &g->objects[g->nodes[i].of], alive))
            err_set(&g->failed, ST_UNSUPPORTED, "\"minProperties\" above 1 where no property names the keys");
        if (alive[i])
            cut_node(g, &g->nodes[i], alive);
        else
            g->nodes[i] = (grammar_node){.kind = NODE_NEVER};
    }
    g->root = root;
    if (!alive[root] && g->failed.code == ST_OK) err_set(&g->failed, ST_INPUT, "nothing satisfies it");
}

status grammar_finish(grammar *g, i32 root, err *e) {
    bool *known = calloc((size_t)g->n_nodes, sizeof *known);
    bool ended = true;
    if (!known) return err_nomem(e, "a grammar", (u64)g->n_nodes);
    if (g->failed.code == ST_OK && (ended = find_nodes(g, node_is_alive, known))) drop_the_dead(g, root, known);
    memset(known, 0, (size_t)g->n_nodes * sizeof *known);
    if (g->failed.code == ST_OK && ended) ended = find_nodes(g, node_is_empty, known);
    for (i32 i = 0; i < g->n_nodes; i++) g->nodes[i].empty = known[i];
    free(known);
    if (!ended) err_set(&g->failed, ST_LIMIT, "the grammar is too entangled");
    if (g->failed.code == ST_OK) return refuse_left_recursion(g, e);
    if (e) *e = g->failed;
    return g->failed.code;
}

void grammar_meter(grammar *g) {
    g->metered = true;
    for (i32 i = 0; i < g->n_dfas; i++) dfa_meter(g->dfas[i], &g->fuel);
}
