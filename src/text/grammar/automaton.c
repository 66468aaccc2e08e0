#include "text/grammar/automaton.h"
#include "base/buf.h"
#include <stdlib.h>
#include <string.h>

enum { NFA_EDGES_MAX = 4 * NFA_STATES_MAX };

typedef struct {
    i32 edges; /* the first one, or -1 */
    i32 twin;  /* while a part is copied: this state's copy; else -1 */
} nfa_state;

struct nfa {
    nfa_state *states;
    nfa_edge *edges;
    i32 n_states, cap_states, n_edges, cap_edges;
    status failed;
};

nfa *nfa_new(void) { return calloc(1, sizeof(nfa)); }

void nfa_free(nfa *n) {
    if (!n) return;
    free(n->states);
    free(n->edges);
    free(n);
}

status nfa_failed(const nfa *n, err *e) {
    if (n->failed == ST_NOMEM) return err_nomem(e, "an automaton", (u64)n->cap_states * sizeof *n->states);
    if (!n->failed) return ST_OK;
    return err_set(e, n->failed, "an automaton of more than %d states or %d edges", NFA_STATES_MAX, NFA_EDGES_MAX);
}

i32 nfa_states(const nfa *n) { return n->n_states; }

const nfa_edge *nfa_first_edge(const nfa *n, i32 state) {
    i32 e = n->states[state].edges;
    return e < 0 ? NULL : n->edges + e;
}

const nfa_edge *nfa_next_edge(const nfa *n, const nfa_edge *e) { return e->next < 0 ? NULL : n->edges + e->next; }

/* Room for one more of `size` bytes behind n of *cap. */
static void *nfa_grow(nfa *n, void *old, i32 used, i32 *cap, i32 max, size_t size) {
    if (used < *cap) return old;
    if (used == max) return n->failed = ST_LIMIT, old;
    i32 more = *cap ? *cap * 2 : 64;
    void *grown = realloc(old, (size_t)more * size);
    if (!grown) return n->failed = ST_NOMEM, old;
    *cap = more;
    return grown;
}

static i32 nfa_state_add(nfa *n) {
    if (n->failed) return 0;
    n->states = nfa_grow(n, n->states, n->n_states, &n->cap_states, NFA_STATES_MAX, sizeof *n->states);
    if (n->failed) return 0;
    n->states[n->n_states] = (nfa_state){-1, -1};
    return n->n_states++;
}

static void nfa_edge_add(nfa *n, i32 from, i32 to, nfa_kind kind, u8 lo, u8 hi) {
    if (n->failed) return;
    n->edges = nfa_grow(n, n->edges, n->n_edges, &n->cap_edges, NFA_EDGES_MAX, sizeof *n->edges);
    if (n->failed) return;
    n->edges[n->n_edges] = (nfa_edge){to, n->states[from].edges, (u8)kind, lo, hi};
    n->states[from].edges = n->n_edges++;
}

static void nfa_link(nfa *n, i32 from, i32 to) { nfa_edge_add(n, from, to, NFA_EMPTY, 0, 0); }

/* ---- parts ---- */

nfa_part nfa_nothing(nfa *n) {
    i32 s = nfa_state_add(n);
    return (nfa_part){s, s};
}

nfa_part nfa_never(nfa *n) {
    i32 first = nfa_state_add(n);
    return (nfa_part){first, nfa_state_add(n)};
}

nfa_part nfa_bytes(nfa *n, const void *text, size_t len) {
    nfa_part out = nfa_nothing(n);
    for (size_t i = 0; i < len && !n->failed; i++) {
        u8 c = ((const u8 *)text)[i];
        i32 to = nfa_state_add(n);
        nfa_edge_add(n, out.last, to, NFA_BYTES, c, c);
        out.last = to;
    }
    return out;
}

nfa_part nfa_range(nfa *n, u8 lo, u8 hi) {
    nfa_part out = nfa_never(n);
    if (lo <= hi) nfa_edge_add(n, out.first, out.last, NFA_BYTES, lo, hi);
    return out;
}

nfa_part nfa_then(nfa *n, nfa_part a, nfa_part b) {
    nfa_link(n, a.last, b.first);
    return (nfa_part){a.first, b.last};
}

nfa_part nfa_or(nfa *n, nfa_part a, nfa_part b) {
    i32 first = nfa_state_add(n);
    nfa_link(n, first, a.first);
    nfa_link(n, first, b.first);
    nfa_link(n, b.last, a.last);
    return (nfa_part){first, a.last};
}

/* The last state stays: however deep optional parts lie in each other at their ends, one step leaves them all. */
nfa_part nfa_optional(nfa *n, nfa_part a) {
    i32 first = nfa_state_add(n);
    nfa_link(n, first, a.first);
    nfa_link(n, first, a.last);
    return (nfa_part){first, a.last};
}

nfa_part nfa_plus(nfa *n, nfa_part a) {
    i32 again = nfa_state_add(n), last = nfa_state_add(n);
    nfa_link(n, again, a.first);
    nfa_link(n, a.last, again);
    nfa_link(n, a.last, last);
    return (nfa_part){again, last};
}

nfa_part nfa_star(nfa *n, nfa_part a) { return nfa_optional(n, nfa_plus(n, a)); }

static i32 nfa_twin(nfa *n, ids_buf *copied, i32 state) {
    if (n->failed || n->states[state].twin >= 0) return n->failed ? 0 : n->states[state].twin;
    ids_add(copied, state);
    if (copied->failed) return n->failed = ST_NOMEM, 0;
    i32 twin = nfa_state_add(n);
    if (!n->failed) n->states[state].twin = twin;
    return twin;
}

nfa_part nfa_copy(nfa *n, nfa_part a) {
    ids_buf copied = {0};
    i32 first = nfa_twin(n, &copied, a.first), last = nfa_twin(n, &copied, a.last);
    for (size_t i = 0; i < copied.len && !n->failed; i++) {
        i32 from = copied.data[i];
        for (i32 e = n->states[from].edges; e >= 0 && !n->failed; e = n->edges[e].next) {
            nfa_edge old = n->edges[e];
            i32 to = nfa_twin(n, &copied, old.to);
            if (!n->failed) nfa_edge_add(n, n->states[from].twin, to, old.kind, old.lo, old.hi);
        }
    }
    for (size_t i = 0; i < copied.len; i++) n->states[copied.data[i]].twin = -1;
    ids_free(&copied);
    return (nfa_part){first, last};
}

/* ---- characters ---- */

/* UTF-8 as a tree: a node has 64 children, one for each continuation byte. Equal nodes become one state; a node that
 * fell out of `cache` is built once more, which costs states and changes nothing else. */
typedef struct {
    i32 child[64], state;
    bool used;
} char_node;

typedef struct {
    nfa *n;
    const u32 *ranges;
    size_t n_ranges;
    i32 last;
    u32 lowest;  /* of the length that is built now: below it, an encoding would be overlong */
    i32 full[3]; /* node with everything below it, by its level; -1 not made yet */
    char_node cache[64];
} char_tree;

/* The first range that does not end before cp. */
static size_t nfa_find_range(const char_tree *t, u32 cp) {
    size_t lo = 0, hi = t->n_ranges;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (t->ranges[2 * mid + 1] < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Edges from `from` for each run of equal children; child i has byte base + i, -1 is none. */
static void nfa_child_edges(nfa *n, i32 from, const i32 *child, int n_children, int base) {
    for (int i = 0, end; i < n_children; i = end) {
        for (end = i + 1; end < n_children && child[end] == child[i];) end++;
        if (child[i] >= 0) nfa_edge_add(n, from, child[i], NFA_BYTES, (u8)(base + i), (u8)(base + end - 1));
    }
}

static i32 nfa_char_state(char_tree *t, const i32 child[64]) {
    u64 hash = 0;
    for (int i = 0; i < 64; i++) hash = (hash ^ (u32)child[i]) * 0x9e3779b97f4a7c15u;
    char_node *c = &t->cache[hash >> 58];
    if (c->used && !memcmp(c->child, child, sizeof c->child)) return c->state;
    c->used = true;
    memcpy(c->child, child, sizeof c->child);
    c->state = nfa_state_add(t->n);
    nfa_child_edges(t->n, c->state, child, 64, 0x80);
    return c->state;
}

/* The state before the last level + 1 bytes of the characters from `base` on; -1 when none of them is wanted. */
static i32 nfa_char_node(char_tree *t, int level, u32 base) {
    u32 end = base + (64u << 6 * level) - 1, step = 1u << 6 * level;
    size_t r = nfa_find_range(t, base);
    if (end < t->lowest || (base >= 0xd800 && end <= 0xdfff)) return -1;
    if (r == t->n_ranges || t->ranges[2 * r] > end || t->n->failed) return -1;
    bool surrogates = base <= 0xdfff && end >= 0xd800;
    bool full = t->ranges[2 * r] <= base && t->ranges[2 * r + 1] >= end && base >= t->lowest && !surrogates;
    if (full && t->full[level] >= 0) return t->full[level];
    i32 child[64];
    for (u32 i = 0; i < 64; i++) {
        u32 cp = base + i * step;
        if (level) {
            child[i] = nfa_char_node(t, level - 1, cp);
        } else {
            while (r < t->n_ranges && t->ranges[2 * r + 1] < cp) r++;
            child[i] = r < t->n_ranges && t->ranges[2 * r] <= cp ? t->last : -1;
        }
    }
    i32 state = nfa_char_state(t, child);
    if (full) t->full[level] = state;
    return state;
}

/* lead[b]: the state behind a first byte b above ASCII. */
static void nfa_char_leads(nfa *n, const u32 *ranges, size_t n_ranges, i32 last, i32 *lead) {
    char_tree t = {.n = n, .ranges = ranges, .n_ranges = n_ranges, .last = last, .full = {-1, -1, -1}};
    t.lowest = 0x80;
    for (u32 i = 2; i < 32; i++) lead[0xc0 + i] = nfa_char_node(&t, 0, i << 6);
    t.lowest = 0x800;
    for (u32 i = 0; i < 16; i++) lead[0xe0 + i] = nfa_char_node(&t, 1, i << 12);
    t.lowest = 0x10000;
    for (u32 i = 0; i < 5; i++) lead[0xf0 + i] = nfa_char_node(&t, 2, i << 18);
}

nfa_part nfa_chars(nfa *n, const u32 *ranges, size_t n_ranges) {
    nfa_part out = nfa_never(n);
    i32 lead[0xf5];
    memset(lead, 0xff, sizeof lead);
    for (size_t i = 0; i < n_ranges && ranges[2 * i] < 0x80; i++)
        for (u32 c = ranges[2 * i]; c < 0x80 && c <= ranges[2 * i + 1]; c++) lead[c] = out.last;
    if (n_ranges && ranges[2 * n_ranges - 1] >= 0x80) nfa_char_leads(n, ranges, n_ranges, out.last, lead);
    nfa_child_edges(n, out.first, lead, (int)COUNT_OF(lead), 0);
    return out;
}

nfa_part nfa_any_char(nfa *n) { return nfa_chars(n, (const u32[]){0, 0x10ffff}, 1); }

/* ---- products ---- */

/* Pairs that have a state of their own: pair i is state base + i. */
typedef struct {
    u64 *pairs;
    i32 *slots; /* by hash: a pair, or -1 */
    size_t len, cap;
    i32 base;
} nfa_product;

static bool nfa_product_grow(nfa_product *t) {
    size_t cap = t->cap ? t->cap * 2 : 64;
    u64 *pairs = realloc(t->pairs, cap / 2 * sizeof *pairs);
    if (pairs) t->pairs = pairs;
    i32 *slots = malloc(cap * sizeof *slots);
    if (!pairs || !slots) return free(slots), false;
    memset(slots, 0xff, cap * sizeof *slots);
    for (size_t i = 0; i < t->len; i++) {
        size_t at = (t->pairs[i] * 0x9e3779b97f4a7c15u >> 32) & (cap - 1);
        while (slots[at] >= 0) at = (at + 1) & (cap - 1);
        slots[at] = (i32)i;
    }
    free(t->slots);
    t->slots = slots;
    t->cap = cap;
    return true;
}

static i32 nfa_pair(nfa *n, nfa_product *t, i32 p, i32 q) {
    u64 pair = (u64)p << 32 | (u32)q;
    if (n->failed) return 0;
    if (t->len == t->cap / 2 && !nfa_product_grow(t)) return n->failed = ST_NOMEM, 0;
    size_t at = (pair * 0x9e3779b97f4a7c15u >> 32) & (t->cap - 1);
    for (; t->slots[at] >= 0; at = (at + 1) & (t->cap - 1))
        if (t->pairs[t->slots[at]] == pair) return t->base + t->slots[at];
    i32 state = nfa_state_add(n);
    if (n->failed) return 0;
    t->slots[at] = (i32)t->len;
    t->pairs[t->len++] = pair;
    return state;
}

static bool nfa_steps_empty(const nfa *n, i32 state) {
    i32 e = n->states[state].edges;
    return e >= 0 && n->edges[e].kind == NFA_EMPTY;
}

/* Empty steps of p first, then those of q: any other order leads to the same pairs of byte steps. */
static void nfa_both_edges(nfa *n, nfa_product *t, i32 from) {
    i32 p = (i32)(t->pairs[from - t->base] >> 32), q = (i32)t->pairs[from - t->base];
    bool p_moves = nfa_steps_empty(n, p), q_moves = !p_moves && nfa_steps_empty(n, q);
    i32 p_edges = q_moves ? -1 : n->states[p].edges, q_edges = p_moves ? -1 : n->states[q].edges;
    if (p_moves)
        for (i32 e = p_edges; e >= 0 && !n->failed; e = n->edges[e].next)
            nfa_link(n, from, nfa_pair(n, t, n->edges[e].to, q));
    if (q_moves)
        for (i32 e = q_edges; e >= 0 && !n->failed; e = n->edges[e].next)
            nfa_link(n, from, nfa_pair(n, t, p, n->edges[e].to));
    for (i32 i = p_edges; i >= 0 && !n->failed; i = n->edges[i].next) {
        for (i32 k = q_edges; k >= 0 && !n->failed; k = n->edges[k].next) {
            nfa_edge a = n->edges[i], b = n->edges[k];
            u8 lo = a.lo > b.lo ? a.lo : b.lo, hi = a.hi < b.hi ? a.hi : b.hi;
            if (a.kind != NFA_BYTES || b.kind != NFA_BYTES || lo > hi) continue;
            nfa_edge_add(n, from, nfa_pair(n, t, a.to, b.to), NFA_BYTES, lo, hi);
        }
    }
}

nfa_part nfa_both(nfa *n, nfa_part a, nfa_part b) {
    nfa_product t = {.base = n->n_states};
    nfa_part out = {0};
    out.first = nfa_pair(n, &t, a.first, b.first);
    for (size_t i = 0; i < t.len && !n->failed; i++) nfa_both_edges(n, &t, t.base + (i32)i);
    out.last = nfa_pair(n, &t, a.last, b.last);
    free(t.pairs);
    free(t.slots);
    return out;
}

nfa_part nfa_anchor(nfa *n, bool end) {
    nfa_part out = nfa_never(n);
    nfa_edge_add(n, out.first, out.last, end ? NFA_END : NFA_BEGIN, 0, 0);
    return out;
}

/* Pairs of a state and what is known of the place: whether bytes were before it, whether it has to be the end. */
enum { NFA_PLACE_BEHIND = 1, NFA_PLACE_END = 2 };

/* The edges of a pair; `settle`: anchors turn into what they mean, else they stay. */
static void nfa_place_edges(nfa *n, nfa_product *t, i32 from, bool settle) {
    i32 p = (i32)(t->pairs[from - t->base] >> 32), place = (i32)t->pairs[from - t->base];
    for (i32 i = n->states[p].edges; i >= 0 && !n->failed; i = n->edges[i].next) {
        nfa_edge e = n->edges[i];
        int next = place;
        if (e.kind == NFA_BYTES ? place & NFA_PLACE_END : settle && e.kind == NFA_BEGIN && place & NFA_PLACE_BEHIND)
            continue;
        if (e.kind == NFA_BYTES) next |= NFA_PLACE_BEHIND;
        if (e.kind == NFA_END && settle) next |= NFA_PLACE_END;
        i32 to = nfa_pair(n, t, e.to, next);
        nfa_edge_add(n, from, to, settle && e.kind != NFA_BYTES ? NFA_EMPTY : e.kind, e.lo, e.hi);
    }
}

/* An end is a's last state in a place with all that is `needed`. */
static nfa_part nfa_by_place(nfa *n, nfa_part a, bool settle, int needed) {
    nfa_product t = {.base = n->n_states};
    nfa_part out = {0};
    out.first = nfa_pair(n, &t, a.first, 0);
    for (size_t i = 0; i < t.len && !n->failed; i++) nfa_place_edges(n, &t, t.base + (i32)i, settle);
    out.last = nfa_state_add(n);
    for (size_t i = 0; i < t.len && !n->failed; i++)
        if ((i32)(t.pairs[i] >> 32) == a.last && ((int)t.pairs[i] & needed) == needed)
            nfa_link(n, t.base + (i32)i, out.last);
    free(t.pairs);
    free(t.slots);
    return out;
}

nfa_part nfa_anchored(nfa *n, nfa_part a) { return nfa_by_place(n, a, true, 0); }

nfa_part nfa_not_empty(nfa *n, nfa_part a) { return nfa_by_place(n, a, false, NFA_PLACE_BEHIND); }

/* Each state is two: one that is entered, and one that bytes leave. */
nfa_part nfa_table(nfa *n, i32 n_states, i32 first, const nfa_move *moves, size_t n_moves, const bool *ends) {
    const i32 base = n->n_states;
    for (i32 i = 0; i < 2 * n_states; i++) nfa_state_add(n);
    const nfa_part made = {base + 2 * first, nfa_state_add(n)};
    if (n->failed != ST_OK) return made;
    for (i32 i = 0; i < n_states; i++) {
        nfa_link(n, base + 2 * i, base + 2 * i + 1);
        if (ends[i]) nfa_link(n, base + 2 * i, made.last);
    }
    for (size_t i = 0; i < n_moves; i++)
        nfa_edge_add(n, base + 2 * moves[i].from + 1, base + 2 * moves[i].to, NFA_BYTES, moves[i].lo, moves[i].hi);
    return made;
}
