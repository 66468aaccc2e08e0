#include "text/grammar/automaton.h"
#include "base/buf.h"
#include <stdlib.h>
#include <string.h>

enum { DFA_LABELS_MAX = 1 << 16, DFA_POOL_FIRST = 64, DFA_POOL_ITEMS = 1 << 14 };

/* Lists that never move, so that callers may keep pointers to them. */
typedef struct dfa_pool {
    struct dfa_pool *before;
    size_t used, cap;
    i32 items[];
} dfa_pool;

typedef struct {
    const i32 *items;
    i32 len;
} dfa_list;

typedef struct {
    dfa_list set, labels, reaches;
    u32 hash;
} dfa_node;

typedef struct {
    i32 to;
    u8 lo, hi;
    bool empty;
} dfa_edge;

struct dfa {
    dfa_table table; /* first: dfa_next() knows it there */
    dfa_node *nodes; /* that of a state at state + 1, as in the table */
    i32 n, cap, start;
    i32 *slots; /* by hash: a state, or -1; 2 * cap of them */
    dfa_pool *pool;
    i64 items, work, *fuel;
    /* the nfa without its dead ends, numbered label by label. No edge: an end; else all are empty or none is */
    i32 n_inner;
    i32 *from; /* edges of s: [from[s], from[s + 1]) */
    dfa_edge *edges;
    i32 *label;
    /* scratch of a step */
    u32 *seen, round; /* seen[s] == round: s has been on the stack */
    i32 *stack, *set, n_stack, n_set;
    status failed;
    const char *why;
};

static void dfa_fail(dfa *d, status why, const char *text) {
    if (d->failed) return;
    d->failed = why;
    d->why = text;
}

status dfa_failed(const dfa *d, err *e) { return d->failed ? err_set(e, d->failed, "%s", d->why) : ST_OK; }

void dfa_free(dfa *d) {
    if (!d) return;
    for (dfa_pool *p = d->pool, *before; p; p = before) {
        before = p->before;
        free(p);
    }
    void *all[] = {d->table.rows, d->nodes, d->slots, d->from, d->edges, d->label, d->seen, d->stack, d->set, d};
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

/* ---- the nfa, trimmed ---- */

/* Numbers the states that parts[n_parts] reach, those of the first part first; *order: new to old, to_new: the other
 * way round, -1 for the rest. */
static bool dfa_number(dfa *d, const nfa *n, const nfa_part *parts, size_t n_parts, ids_buf *order, i32 *to_new) {
    memset(to_new, 0xff, (size_t)nfa_states(n) * sizeof *to_new);
    for (size_t i = 0; i < n_parts; i++) {
        size_t k = order->len;
        if (to_new[parts[i].first] >= 0) continue;
        to_new[parts[i].first] = (i32)k;
        for (ids_add(order, parts[i].first); k < order->len; k++) {
            d->label[k] = (i32)i;
            for (const nfa_edge *e = nfa_first_edge(n, order->data[k]); e; e = nfa_next_edge(n, e)) {
                if (e->kind > NFA_EMPTY || to_new[e->to] >= 0) continue;
                to_new[e->to] = (i32)order->len;
                ids_add(order, e->to);
            }
        }
        if (order->failed) return false;
    }
    d->n_inner = (i32)order->len;
    return true;
}

static bool dfa_take_edges(dfa *d, const nfa *n, const ids_buf *order, const i32 *to_new) {
    size_t n_edges = 0;
    for (size_t s = 0; s < order->len; s++)
        for (const nfa_edge *e = nfa_first_edge(n, order->data[s]); e; e = nfa_next_edge(n, e)) n_edges++;
    d->edges = malloc((n_edges + 1) * sizeof *d->edges);
    d->from = malloc((order->len + 1) * sizeof *d->from);
    if (!d->edges || !d->from) return false;
    i32 at = 0;
    for (size_t s = 0; s < order->len; s++) {
        d->from[s] = at;
        for (const nfa_edge *e = nfa_first_edge(n, order->data[s]); e; e = nfa_next_edge(n, e))
            if (e->kind <= NFA_EMPTY) d->edges[at++] = (dfa_edge){to_new[e->to], e->lo, e->hi, e->kind == NFA_EMPTY};
    }
    d->from[order->len] = at;
    return true;
}

/* Marks in `live` what leads to one of the states that are marked already. */
static bool dfa_spread_back(const dfa *d, bool *live) {
    i32 n = d->n_inner, n_edges = d->from[n], n_queue = 0;
    i32 *at = calloc((size_t)n + 2, sizeof *at), *sources = malloc(((size_t)n_edges + 1) * sizeof *sources);
    i32 *queue = malloc(((size_t)n + 1) * sizeof *queue);
    if (at && sources && queue) {
        for (i32 i = 0; i < n_edges; i++) at[d->edges[i].to + 2]++;
        for (i32 s = 2; s <= n; s++) at[s] += at[s - 1];
        for (i32 s = 0; s < n; s++)
            for (i32 i = d->from[s]; i < d->from[s + 1]; i++) sources[at[d->edges[i].to + 1]++] = s;
        for (i32 s = 0; s < n; s++)
            if (live[s]) queue[n_queue++] = s;
        while (n_queue) {
            i32 s = queue[--n_queue];
            for (i32 i = at[s]; i < at[s + 1]; i++) {
                if (live[sources[i]]) continue;
                live[sources[i]] = true;
                queue[n_queue++] = sources[i];
            }
        }
    }
    bool ok = at && sources && queue;
    free(at);
    free(sources);
    free(queue);
    return ok;
}

/* Where s leads without any choice: from a live state such a way ends. */
static i32 dfa_skip(const dfa *d, i32 s) {
    while (d->from[s + 1] - d->from[s] == 1 && d->edges[d->from[s]].empty) s = d->edges[d->from[s]].to;
    return s;
}

static void dfa_drop_dead(dfa *d, const bool *live) {
    i32 kept = 0;
    for (i32 s = 0; s < d->n_inner; s++) {
        i32 i = d->from[s], end = d->from[s + 1];
        d->from[s] = kept;
        for (; i < end; i++)
            if (live[s] && live[d->edges[i].to]) d->edges[kept++] = d->edges[i];
    }
    d->from[d->n_inner] = kept;
    for (i32 i = 0; i < kept; i++) {
        i32 end = dfa_skip(d, d->edges[i].to), next;
        for (i32 s = d->edges[i].to; s != end; s = next) { /* so that the next one's way is short */
            next = d->edges[d->from[s]].to;
            d->edges[d->from[s]].to = end;
        }
        d->edges[i].to = end;
    }
}

/* Leaves where the walk begins on the stack. */
static bool dfa_trim(dfa *d, const nfa *n, const nfa_part *parts, size_t n_parts) {
    ids_buf order = {0};
    size_t most = (size_t)nfa_states(n) + n_parts + 1;
    i32 *to_new = malloc(most * sizeof *to_new);
    bool *live = calloc(most, sizeof *live);
    d->label = malloc(most * sizeof *d->label);
    d->seen = calloc(most, sizeof *d->seen);
    d->stack = malloc(most * sizeof *d->stack);
    d->set = malloc(most * sizeof *d->set);
    bool ok = to_new && live && d->label && d->seen && d->stack && d->set &&
              dfa_number(d, n, parts, n_parts, &order, to_new) && dfa_take_edges(d, n, &order, to_new);
    if (ok) {
        for (size_t i = 0; i < n_parts; i++)
            if (to_new[parts[i].last] >= 0) live[to_new[parts[i].last]] = true;
        ok = dfa_spread_back(d, live);
    }
    if (ok) {
        dfa_drop_dead(d, live);
        for (size_t i = 0; i < n_parts; i++)
            if (live[to_new[parts[i].first]]) d->stack[d->n_stack++] = dfa_skip(d, to_new[parts[i].first]);
    }
    free(to_new);
    free(live);
    ids_free(&order);
    return ok;
}

/* ---- states ---- */

static const i32 *dfa_keep(dfa *d, const i32 *items, i32 len) {
    size_t n = (size_t)len, cap = !d->pool ? DFA_POOL_FIRST : 2 * d->pool->cap;
    if (cap > DFA_POOL_ITEMS) cap = DFA_POOL_ITEMS;
    if (cap < n) cap = n;
    if (!d->pool || d->pool->cap - d->pool->used < n) {
        dfa_pool *p = malloc(sizeof *p + cap * sizeof *p->items);
        if (!p) return dfa_fail(d, ST_NOMEM, "out of memory for a grammar's states"), NULL;
        p->before = d->pool;
        p->used = 0;
        p->cap = cap;
        d->pool = p;
    }
    i32 *to = d->pool->items + d->pool->used;
    memcpy(to, items, n * sizeof *to);
    d->pool->used += n;
    return to;
}

/* The labels of d->set, of its ends alone or of all: d->stack has room for them. A state's list is often the one of
 * the state before it, and is shared then. */
static dfa_list dfa_labels_of_set(dfa *d, bool ends, dfa_list before) {
    i32 n = 0, *list = d->stack;
    for (i32 i = 0; i < d->n_set; i++) {
        i32 s = d->set[i];
        if (ends && d->from[s] != d->from[s + 1]) continue;
        if (!n || list[n - 1] != d->label[s]) list[n++] = d->label[s];
    }
    if (!n) return (dfa_list){0};
    if (n == before.len && !memcmp(list, before.items, (size_t)n * sizeof *list)) return before;
    return (dfa_list){dfa_keep(d, list, n), n};
}

static u32 dfa_hash_set(const dfa *d) {
    u64 h = 0;
    for (i32 i = 0; i < d->n_set; i++) {
        h = (h ^ (u32)d->set[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (u32)(h >> 16);
}

static void dfa_set_slot(dfa *d, i32 state) {
    u32 mask = 2 * (u32)d->cap - 1, at = d->nodes[state + 1].hash & mask;
    while (d->slots[at] >= 0) at = (at + 1) & mask;
    d->slots[at] = state;
}

/* Room for one more state; the first time also for DFA_DEAD. */
static bool dfa_reserve(dfa *d) {
    if (d->n + 1 < d->cap) return true;
    if (d->cap == DFA_STATES_MAX) return dfa_fail(d, ST_LIMIT, "a grammar of more than 65535 states"), false;
    i32 cap = d->cap ? d->cap * 2 : 4; /* most have few, or are never walked */
    void *rows = realloc(d->table.rows, (size_t)cap * sizeof *d->table.rows);
    if (rows) d->table.rows = rows;
    void *nodes = realloc(d->nodes, (size_t)cap * sizeof *d->nodes);
    if (nodes) d->nodes = nodes;
    i32 *slots = malloc(2 * (size_t)cap * sizeof *slots);
    if (!rows || !nodes || !slots) {
        free(slots);
        return dfa_fail(d, ST_NOMEM, "out of memory for a grammar's states"), false;
    }
    if (!d->cap) {
        memset(d->table.rows[0], 0xff, sizeof d->table.rows[0]); /* DFA_DEAD everywhere */
        d->nodes[0] = (dfa_node){0};
    }
    memset(slots, 0xff, 2 * (size_t)cap * sizeof *slots);
    free(d->slots);
    d->slots = slots;
    d->cap = cap;
    for (i32 s = 0; s < d->n; s++) dfa_set_slot(d, s);
    return true;
}

static int dfa_compare_ids(const void *a, const void *b) {
    i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return (x > y) - (x < y);
}

/* The state of d->set, an old one or a new one behind `before`. */
static i32 dfa_state_of_set(dfa *d, i32 before) {
    qsort(d->set, (size_t)d->n_set, sizeof *d->set, dfa_compare_ids);
    u32 hash = dfa_hash_set(d), mask = 2 * (u32)d->cap - 1;
    for (u32 at = hash & mask; d->slots[at] >= 0; at = (at + 1) & mask) {
        const dfa_node *v = &d->nodes[d->slots[at] + 1];
        if (v->hash != hash || v->set.len != d->n_set) continue;
        if (!memcmp(v->set.items, d->set, (size_t)d->n_set * sizeof *d->set)) return d->slots[at];
    }
    if (!dfa_reserve(d)) return DFA_DEAD;
    if ((d->items += d->n_set) > DFA_ITEMS_MAX) dfa_fail(d, ST_LIMIT, "a grammar with too many choices at a time");
    if (d->failed) return DFA_DEAD;
    dfa_node last = d->nodes[before + 1], node = {.hash = hash};
    node.set = (dfa_list){dfa_keep(d, d->set, d->n_set), d->n_set};
    node.labels = dfa_labels_of_set(d, true, last.labels);
    node.reaches = dfa_labels_of_set(d, false, last.reaches);
    if (d->failed) return DFA_DEAD;
    i32 state = d->n++;
    d->nodes[state + 1] = node;
    for (int i = 0; i < 256; i++) d->table.rows[state + 1][i] = DFA_UNKNOWN;
    dfa_set_slot(d, state);
    return state;
}

static void dfa_visit(dfa *d, i32 inner) {
    if (d->seen[inner] == d->round) return;
    d->seen[inner] = d->round;
    d->stack[d->n_stack++] = inner;
}

/* d->set becomes what the stack reaches by empty edges; only states with bytes and ends are kept. */
static void dfa_close(dfa *d) {
    d->n_set = 0;
    while (d->n_stack) {
        i32 s = d->stack[--d->n_stack], i = d->from[s], end = d->from[s + 1];
        if (i == end || !d->edges[i].empty) {
            d->set[d->n_set++] = s;
            continue;
        }
        d->work += end - i;
        for (; i < end; i++) dfa_visit(d, d->edges[i].to);
    }
}

void dfa_meter(dfa *d, i64 *fuel) { d->fuel = fuel; }

/* All bytes around `byte` that the same edges take get the same state at once. */
i32 dfa_make_next(dfa *d, i32 state, u8 byte) {
    if (d->failed) return DFA_DEAD;
    dfa_list set = d->nodes[state + 1].set;
    const i64 before = d->work;
    int lo = 0, hi = 255;
    d->round++;
    for (i32 k = 0; k < set.len; k++) {
        i32 i = d->from[set.items[k]], end = d->from[set.items[k] + 1];
        d->work += end - i + 1;
        for (; i < end; i++) {
            dfa_edge e = d->edges[i];
            if (e.lo > byte) {
                if (e.lo <= hi) hi = e.lo - 1;
            } else if (e.hi < byte) {
                if (e.hi >= lo) lo = e.hi + 1;
            } else {
                if (e.lo > lo) lo = e.lo;
                if (e.hi < hi) hi = e.hi;
                dfa_visit(d, e.to);
            }
        }
    }
    dfa_close(d);
    if (d->fuel && (*d->fuel -= 64 + 2 * (d->work - before)) < 0)
        dfa_fail(d, ST_LIMIT, "a grammar that takes too long to follow");
    if (d->work > DFA_WORK_MAX) dfa_fail(d, ST_LIMIT, "a grammar with too many choices at a time");
    i32 to = d->n_set && !d->failed ? dfa_state_of_set(d, state) : DFA_DEAD;
    if (d->failed) return DFA_DEAD;
    for (int b = lo; b <= hi; b++) d->table.rows[state + 1][b] = to;
    return to;
}

/* The states on the stack, each once, are where the walk begins. */
static void dfa_make_start(dfa *d) {
    i32 n = d->n_stack;
    d->n_stack = 0;
    d->round++;
    for (i32 i = 0; i < n; i++) dfa_visit(d, d->stack[i]);
    dfa_close(d);
    if (dfa_reserve(d)) d->start = dfa_state_of_set(d, DFA_DEAD);
}

status dfa_make(dfa **out, nfa *n, const nfa_part *parts, size_t n_parts, bool *empty, err *e) {
    *out = NULL;
    if (empty) *empty = false;
    status st = nfa_failed(n, e);
    if (!st && n_parts > DFA_LABELS_MAX) st = err_set(e, ST_LIMIT, "a grammar of more than %d labels", DFA_LABELS_MAX);
    dfa *d = st ? NULL : calloc(1, sizeof *d);
    if (!st && (!d || !dfa_trim(d, n, parts, n_parts)))
        st = err_nomem(e, "a grammar", (u64)nfa_states(n) * sizeof(dfa_edge));
    nfa_free(n);
    if (!st && !d->n_stack) {
        dfa_free(d);
        if (empty) *empty = true;
        return ST_OK;
    }
    if (!st) {
        dfa_make_start(d);
        st = dfa_failed(d, e);
    }
    if (st) return dfa_free(d), st;
    *out = d;
    return ST_OK;
}

/* ---- looking ---- */

i32 dfa_start(const dfa *d) { return d->start; }

i64 dfa_states(const dfa *d) { return d->n; }

u64 dfa_bytes(const dfa *d) {
    const u64 state = sizeof *d->table.rows + sizeof *d->nodes + 2 * sizeof *d->slots;
    const u64 inner = sizeof *d->from + sizeof *d->label + sizeof *d->seen + sizeof *d->stack + sizeof *d->set;
    u64 n = sizeof *d + (u64)d->cap * state + (u64)d->n_inner * inner + (u64)d->from[d->n_inner] * sizeof *d->edges;
    for (const dfa_pool *p = d->pool; p; p = p->before) n += sizeof *p + p->cap * sizeof *p->items;
    return n;
}

bool dfa_accepts(const dfa *d, i32 state) { return d->nodes[state + 1].labels.len > 0; }

const i32 *dfa_labels(const dfa *d, i32 state, size_t *n) {
    dfa_list list = d->nodes[state + 1].labels;
    *n = (size_t)list.len;
    return list.items;
}

const i32 *dfa_reaches(const dfa *d, i32 state, size_t *n) {
    dfa_list list = d->nodes[state + 1].reaches;
    *n = (size_t)list.len;
    return list.items;
}
