#include "text/grammar/matcher_internal.h"
#include <stdlib.h>
#include <string.h>

enum {
    FRAMES_MAX = 1 << 22,    /* of a matcher */
    ENTERED_SLOTS = 1 << 14, /* twice as many as nodes that one step may enter */
    DEPTH_MAX = 2000,        /* of what is entered without a byte */
    ENTER_FUEL = 16,
    SLOTS_FIRST = 256
};

void matcher_fails(matcher *m, status st, const char *what) {
    if (m->failed.code == ST_OK) err_set(&m->failed, st, "%s", what);
}

/* ---- equal things once ---- */

static u64 matcher_hash(const void *bytes, size_t n) {
    u64 h = 0x9e3779b97f4a7c15u;
    const u8 *p = bytes;
    for (; n >= 8; n -= 8, p += 8) {
        u64 w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 0x9fb21c651e98df25u, h ^= h >> 29;
    }
    for (; n; n--, p++) h = (h ^ *p) * 0x100000001b3u;
    return h ^ h >> 32;
}

static bool matcher_grow(matcher *m, void *all, i64 *cap, i64 need, size_t size) {
    void **at = all;
    if (need <= *cap) return true;
    const i64 more = max_i64(2 * *cap, max_i64(need, 64));
    void *p = realloc(*at, (size_t)more * size);
    if (!p) return matcher_fails(m, ST_NOMEM, "out of host memory for a grammar's states"), false;
    *at = p, *cap = more;
    return true;
}

/* The table of numbers with room for one more; hash_of(number) is asked again for all. */
static bool interned_room(matcher *m, interned *t, u64 (*hash_of)(const matcher *, i64)) {
    if (2 * (t->n + 1) <= t->slots) return true;
    const i64 slots = t->slots ? 2 * t->slots : SLOTS_FIRST;
    i32 *table = calloc((size_t)slots, sizeof *table);
    if (!table) return matcher_fails(m, ST_NOMEM, "out of host memory for a grammar's states"), false;
    for (i64 i = 0; i < t->n; i++) {
        i64 at = (i64)(hash_of(m, i) & (u64)(slots - 1));
        while (table[at]) at = (at + 1) & (slots - 1);
        table[at] = (i32)i + 1;
    }
    free(t->table);
    t->table = table, t->slots = slots;
    return true;
}

static u64 frame_hash(const matcher *m, i64 i) { return matcher_hash(&m->frames[i], sizeof(frame)); }

i32 matcher_frame(matcher *m, const frame *f) {
    interned *t = &m->frames_at;
    if (!interned_room(m, t, frame_hash)) return -1;
    i64 at = (i64)(matcher_hash(f, sizeof *f) & (u64)(t->slots - 1));
    for (; t->table[at]; at = (at + 1) & (t->slots - 1))
        if (!memcmp(&m->frames[t->table[at] - 1], f, sizeof *f)) return t->table[at] - 1;
    if (t->n >= FRAMES_MAX) return matcher_fails(m, ST_LIMIT, "the text needs too many states of its grammar"), -1;
    if (!matcher_grow(m, &m->frames, &t->cap, t->n + 1, sizeof *m->frames)) return -1;
    m->frames[t->n] = *f;
    t->table[at] = (i32)++t->n;
    return (i32)t->n - 1;
}

static u64 state_hash(const matcher *m, i64 s) {
    return matcher_hash(m->of + m->first[s], (size_t)(m->first[s + 1] - m->first[s]) * sizeof *m->of);
}

static int i32_ascending(const void *a, const void *b) {
    const i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return (x > y) - (x < y);
}

/* ---- bytes that may follow ---- */

grammar_dfa_state *matcher_dfa_state(matcher *m, i32 dfa, i32 state) {
    grammar *g = m->g;
    if (!g->known) g->known = calloc((size_t)g->n_dfas, sizeof *g->known);
    if (!g->known) return matcher_fails(m, ST_NOMEM, "out of host memory for a grammar's states"), NULL;
    grammar_dfa_states *all = &g->known[dfa];
    if (state >= all->n) {
        const i32 n = 2 * state + 16;
        grammar_dfa_state *of = realloc(all->of, (size_t)n * sizeof *of);
        if (!of) return matcher_fails(m, ST_NOMEM, "out of host memory for a grammar's states"), NULL;
        memset(of + all->n, 0, (size_t)(n - all->n) * sizeof *of);
        all->of = of, all->n = n;
    }
    return &all->of[state];
}

void matcher_dfa_bytes(matcher *m, i32 dfa, i32 state, u64 set[4]) {
    grammar_dfa_state *known = matcher_dfa_state(m, dfa, state);
    if (!known) return;
    for (int b = 0; !known->known && b < 256; b++)
        if (dfa_next(m->g->dfas[dfa], state, (u8)b) != DFA_DEAD) known->bytes[b / 64] |= (u64)1 << b % 64;
    known->known = true;
    for (int i = 0; i < 4; i++) set[i] |= known->bytes[i];
}

/* Of a state that has just been made. */
static void find_bytes(matcher *m, i64 state) {
    u64 *set = m->bytes[state];
    memset(set, 0, 4 * sizeof *set);
    for (i64 i = m->first[state]; i < m->first[state + 1]; i++) {
        const frame *f = &m->frames[m->of[i]];
        if (f->kind == FRAME_LEXEME)
            matcher_dfa_bytes(m, m->g->nodes[f->node].of, f->at, set);
        else if (f->kind != FRAME_END)
            string_bytes(m, f, set);
    }
}

/* The state of m->next, which may have frames twice. */
static i32 matcher_state(matcher *m) {
    interned *t = &m->states_at;
    i64 n = 0;
    if (m->failed.code != ST_OK || !m->n_next) return MATCHER_DEAD;
    qsort(m->next, (size_t)m->n_next, sizeof *m->next, i32_ascending);
    for (i64 i = 0; i < m->n_next; i++)
        if (!n || m->next[i] != m->next[n - 1]) m->next[n++] = m->next[i];
    if (!interned_room(m, t, state_hash)) return MATCHER_DEAD;
    i64 at = (i64)(matcher_hash(m->next, (size_t)n * sizeof *m->next) & (u64)(t->slots - 1));
    for (; t->table[at]; at = (at + 1) & (t->slots - 1)) {
        const i32 s = t->table[at] - 1;
        if (m->first[s + 1] - m->first[s] == n && !memcmp(m->of + m->first[s], m->next, (size_t)n * sizeof *m->next))
            return s;
    }
    if (!matcher_grow(m, &m->first, &t->cap, t->n + 2, sizeof *m->first) ||
        !matcher_grow(m, &m->bytes, &m->bytes_cap, t->n + 1, sizeof *m->bytes) ||
        !matcher_grow(m, &m->of, &m->of_cap, m->n_of + n, sizeof *m->of))
        return MATCHER_DEAD;
    memcpy(m->of + m->n_of, m->next, (size_t)n * sizeof *m->next);
    m->first[t->n] = m->n_of, m->first[t->n + 1] = m->n_of += n;
    find_bytes(m, t->n);
    t->table[at] = (i32)++t->n;
    return (i32)t->n - 1;
}

/* ---- sets of properties ---- */

static u64 set_hash(const matcher *m, i64 s) {
    return matcher_hash(m->sets + m->set_first[s], (size_t)(m->set_first[s + 1] - m->set_first[s]) * sizeof *m->sets);
}

bool matcher_set_has(const matcher *m, i32 set, i32 property) {
    const i64 word = m->set_first[set] + property / 64;
    return word < m->set_first[set + 1] && m->sets[word] >> property % 64 & 1;
}

/* Set 0 is the empty one; others have their object's number of words. */
i32 matcher_set_with(matcher *m, i32 set, i64 words, i32 property) {
    interned *t = &m->sets_at;
    if (!interned_room(m, t, set_hash) || !matcher_grow(m, &m->set_first, &t->cap, t->n + 2, sizeof *m->set_first) ||
        !matcher_grow(m, &m->sets, &m->set_words_cap, m->n_set_words + words, sizeof *m->sets))
        return 0;
    u64 *made = m->sets + m->n_set_words;
    const i64 had = m->set_first[set + 1] - m->set_first[set];
    memset(made, 0, (size_t)words * sizeof *made);
    memcpy(made, m->sets + m->set_first[set], (size_t)had * sizeof *made);
    made[property / 64] |= (u64)1 << property % 64;
    i64 at = (i64)(matcher_hash(made, (size_t)words * sizeof *made) & (u64)(t->slots - 1));
    for (; t->table[at]; at = (at + 1) & (t->slots - 1)) {
        const i64 first = m->set_first[t->table[at] - 1], n = m->set_first[t->table[at]] - first;
        if (n == words && !memcmp(m->sets + first, made, (size_t)n * sizeof *made)) return t->table[at] - 1;
    }
    m->set_first[t->n + 1] = m->n_set_words += words;
    t->table[at] = (i32)++t->n;
    return (i32)t->n - 1;
}

/* ---- places ---- */

/* Another state is put together. */
static void matcher_begin(matcher *m) {
    m->n_next = m->n_entered = 0;
    if (++m->step) return;
    memset(m->entered, 0, ENTERED_SLOTS * sizeof *m->entered);
    m->step = 1;
}

void matcher_wait(matcher *m, const frame *f) {
    const i32 number = matcher_frame(m, f);
    if (number < 0 || !matcher_grow(m, &m->next, &m->next_cap, m->n_next + 1, sizeof *m->next)) return;
    m->next[m->n_next++] = number;
}

/* false: it has been entered in this step, or there is no end of it. */
static bool enters_first(matcher *m, i32 node, i32 parent) {
    const u64 key = (u64)(u32)node << 32 | (u32)parent;
    u64 at = matcher_hash(&key, sizeof key) & (ENTERED_SLOTS - 1);
    for (; m->entered[at].step == m->step; at = (at + 1) & (ENTERED_SLOTS - 1))
        if (m->entered[at].key == key) return false;
    if (m->n_entered >= ENTERED_SLOTS / 2)
        return matcher_fails(m, ST_LIMIT, "the grammar has too many meanings for one text"), false;
    m->entered[at] = (entered_node){key, m->step};
    m->n_entered++;
    return true;
}

/* Child i of a sequence. The last one needs no frame: it is part of what the sequence is part of. */
static void enter_child(matcher *m, i32 node, i32 i, i32 parent) {
    const grammar_node *x = &m->g->nodes[node];
    if (i >= x->n) return matcher_leave(m, parent);
    if (i + 1 < x->n) parent = matcher_frame(m, &(frame){.kind = FRAME_SEQ, .parent = parent, .node = node, .at = i});
    if (parent >= 0) matcher_enter(m, m->g->children[x->of + i], parent);
}

/* Behind `count` rounds: one more, or no more. Rounds are counted as far as somebody asks. */
static void repeat_goes_on(matcher *m, i32 node, i64 count, i32 parent) {
    const grammar_node *x = &m->g->nodes[node];
    const i32 child = m->g->children[x->of];
    if (count >= x->min || m->g->nodes[child].empty) matcher_leave(m, parent);
    if (x->max != UNBOUNDED && count >= x->max) return;
    if (x->max == UNBOUNDED && count > x->min) count = x->min;
    const i32 here = matcher_frame(m, &(frame){.kind = FRAME_REPEAT, .parent = parent, .node = node, .count = count});
    const bool asks = m->g->nodes[child].kind == NODE_ALT; /* matcher_enter() does */
    if (here >= 0 && (asks || enters_first(m, child, here))) matcher_enter(m, child, here);
}

static void lexeme_enter(matcher *m, i32 node, i32 parent) {
    const dfa *d = m->g->dfas[m->g->nodes[node].of];
    const i32 start = dfa_start(d);
    matcher_wait(m, &(frame){.kind = FRAME_LEXEME, .parent = parent, .node = node, .at = start});
    if (dfa_accepts(d, start)) matcher_leave(m, parent);
}

static void enter_node(matcher *m, i32 node, i32 parent) {
    const grammar_node *x = &m->g->nodes[node];
    switch (x->kind) {
    case NODE_NEVER: return;
    case NODE_LEXEME: lexeme_enter(m, node, parent); return;
    case NODE_STRING:
        matcher_wait(
            m, &(frame){.kind = FRAME_STRING, .parent = parent, .node = node, .at = dfa_start(m->g->dfas[x->of])});
        return;
    case NODE_SEQ: enter_child(m, node, 0, parent); return;
    case NODE_ALT:
        if (!enters_first(m, node, parent)) return;
        for (i32 i = 0; i < x->n; i++) matcher_enter(m, m->g->children[x->of + i], parent);
        return;
    case NODE_REPEAT: repeat_goes_on(m, node, 0, parent); return;
    case NODE_OBJECT: object_enter(m, node, parent); return;
    case NODE_ARRAY: array_enter(m, node, parent); return;
    }
}

static void leave_frame(matcher *m, i32 number) {
    const frame f = m->frames[number];
    switch (f.kind) {
    case FRAME_END: matcher_wait(m, &f); return;
    case FRAME_SEQ: /* many parts that may all be empty lead to the same place */
        if (enters_first(m, -1, number)) enter_child(m, f.node, f.at + 1, f.parent);
        return;
    case FRAME_REPEAT: repeat_goes_on(m, f.node, f.count + 1, f.parent); return;
    case FRAME_OBJECT: object_leave(m, &f); return;
    case FRAME_ARRAY: array_leave(m, &f); return;
    case FRAME_LEXEME:
    case FRAME_STRING:
    case FRAME_KEY: return;
    }
}

/* One is part of the other, as deep as a grammar is without a byte: the C stack has an end. */
static bool goes_deeper(matcher *m) {
    if (m->failed.code == ST_OK && m->depth >= DEPTH_MAX)
        matcher_fails(m, ST_LIMIT, "the grammar goes too deep without a byte");
    return m->failed.code == ST_OK;
}

void matcher_enter(matcher *m, i32 node, i32 parent) {
    if (m->g->metered && (m->g->fuel -= ENTER_FUEL) < 0)
        matcher_fails(m, ST_LIMIT, "a grammar that takes too long to follow");
    if (!goes_deeper(m)) return;
    m->depth++;
    enter_node(m, node, parent);
    m->depth--;
}

void matcher_leave(matcher *m, i32 number) {
    if (!goes_deeper(m)) return;
    m->depth++;
    leave_frame(m, number);
    m->depth--;
}

static void frame_step(matcher *m, const frame *f, u8 byte) {
    frame to = *f;
    dfa *d;
    switch (f->kind) {
    case FRAME_LEXEME:
        d = m->g->dfas[m->g->nodes[f->node].of];
        to.at = dfa_next(d, f->at, byte);
        if (to.at == DFA_DEAD) return;
        matcher_wait(m, &to);
        if (dfa_accepts(d, to.at)) matcher_leave(m, f->parent);
        return;
    case FRAME_STRING: string_step(m, f, byte); return;
    case FRAME_KEY: key_step(m, f, byte); return;
    default: return; /* the end goes nowhere, others are not waiting */
    }
}

/* ---- steps that were taken before ---- */

static i64 step_slot(const matcher *m, u64 key) {
    i64 at = (i64)(matcher_hash(&key, sizeof key) & (u64)(m->step_slots - 1));
    while (m->step_keys[at] && m->step_keys[at] != key) at = (at + 1) & (m->step_slots - 1);
    return at;
}

static bool steps_room(matcher *m) {
    if (2 * (m->n_steps + 1) <= m->step_slots) return true;
    const i64 had = m->step_slots;
    u64 *keys = m->step_keys;
    i32 *to = m->step_to;
    m->step_slots = had ? 2 * had : SLOTS_FIRST;
    m->step_keys = calloc((size_t)m->step_slots, sizeof *m->step_keys);
    m->step_to = malloc((size_t)m->step_slots * sizeof *m->step_to);
    const bool made = m->step_keys && m->step_to;
    for (i64 i = 0; made && i < had; i++)
        if (keys[i]) {
            const i64 at = step_slot(m, keys[i]);
            m->step_keys[at] = keys[i], m->step_to[at] = to[i];
        }
    free(keys), free(to);
    if (!made) m->step_slots = m->n_steps = 0, matcher_fails(m, ST_NOMEM, "out of host memory for a grammar's steps");
    return made;
}

i32 matcher_next(matcher *m, i32 state, u8 byte) {
    const u64 key = ((u64)(u32)state << 8 | byte) + 1;
    if (state < 0 || !(m->bytes[state][byte / 64] >> byte % 64 & 1)) return MATCHER_DEAD;
    if (m->failed.code != ST_OK || !steps_room(m)) return MATCHER_DEAD;
    i64 at = step_slot(m, key);
    if (m->step_keys[at]) return m->step_to[at];
    matcher_begin(m);
    for (i64 i = m->first[state]; i < m->first[state + 1]; i++) {
        const frame f = m->frames[m->of[i]];
        frame_step(m, &f, byte);
    }
    const i32 to = matcher_state(m);
    if (m->g->metered && (m->g->fuel -= 32 + 8 * (m->first[state + 1] - m->first[state])) < 0)
        matcher_fails(m, ST_LIMIT, "a grammar that takes too long to follow");
    if (m->failed.code != ST_OK) return MATCHER_DEAD;
    m->step_keys[at] = key, m->step_to[at] = to;
    m->n_steps++;
    return to;
}

i32 matcher_only_byte(matcher *m, i32 state) {
    i32 only = BYTE_NONE;
    if (state < 0) return BYTE_NONE;
    for (int i = 0; i < 4; i++)
        for (u64 left = m->bytes[state][i]; left; left &= left - 1) {
            const i32 byte = 64 * i + __builtin_ctzll(left);
            if (matcher_next(m, state, (u8)byte) == MATCHER_DEAD) continue;
            if (only >= 0) return BYTES_SEVERAL;
            only = byte;
        }
    return only;
}

i32 matcher_state_of(matcher *m, const frame *frames, i64 n) {
    matcher_begin(m);
    for (i64 i = 0; i < n; i++) matcher_wait(m, &frames[i]);
    return matcher_state(m);
}

i32 matcher_start_at(matcher *m, i32 node) {
    matcher_begin(m);
    matcher_enter(m, node, 0);
    return matcher_state(m);
}

/* ---- the whole ---- */

status matcher_open(matcher **out, grammar *g, err *e) {
    matcher *m = *out = calloc(1, sizeof *m);
    if (!m) return err_nomem(e, "a matcher", sizeof *m);
    m->g = g;
    m->entered = calloc(ENTERED_SLOTS, sizeof *m->entered);
    if (!m->entered) matcher_fails(m, ST_NOMEM, "out of host memory for a grammar's states");
    m->step = 1;
    const i32 end = matcher_frame(m, &(frame){.kind = FRAME_END});
    if (m->failed.code == ST_OK && end == 0 && interned_room(m, &m->sets_at, set_hash) &&
        matcher_grow(m, &m->set_first, &m->sets_at.cap, 2, sizeof *m->set_first)) {
        m->set_first[0] = m->set_first[1] = 0;
        const i64 at = (i64)(matcher_hash(NULL, 0) & (u64)(m->sets_at.slots - 1));
        m->sets_at.table[at] = 1, m->sets_at.n = 1;
        matcher_enter(m, g->root, end);
    }
    if (m->failed.code == ST_OK && matcher_state(m) != 0) matcher_fails(m, ST_LIMIT, "a grammar without a beginning");
    if (m->failed.code == ST_OK) return ST_OK;
    if (e) *e = m->failed;
    const status st = m->failed.code;
    matcher_close(m);
    *out = NULL;
    return st;
}

void matcher_close(matcher *m) {
    if (!m) return;
    free(m->frames), free(m->frames_at.table), free(m->of), free(m->first), free(m->bytes), free(m->states_at.table);
    free(m->sets), free(m->set_first), free(m->sets_at.table), free(m->step_keys), free(m->step_to);
    free(m->next), free(m->entered);
    for (int i = 0; i < MASKS_KEPT; i++) free(m->masks[i].mask);
    free(m);
}

u64 matcher_bytes(const matcher *m) {
    const interned *const tables[] = {&m->frames_at, &m->states_at, &m->sets_at};
    i64 n = m->frames_at.cap * (i64)sizeof *m->frames + m->of_cap * (i64)sizeof *m->of +
            m->states_at.cap * (i64)sizeof *m->first + m->bytes_cap * (i64)sizeof *m->bytes +
            m->sets_at.cap * (i64)sizeof *m->set_first + m->set_words_cap * (i64)sizeof *m->sets +
            m->step_slots * (i64)(sizeof *m->step_keys + sizeof *m->step_to) + m->next_cap * (i64)sizeof *m->next +
            ENTERED_SLOTS * (i64)sizeof *m->entered + (i64)sizeof *m;
    for (size_t i = 0; i < COUNT_OF(tables); i++) n += tables[i]->slots * (i64)sizeof *tables[i]->table;
    for (int i = 0; i < MASKS_KEPT; i++) n += (i64)m->masks[i].bytes;
    return (u64)n;
}

i32 matcher_start(const matcher *m) { return (void)m, 0; }

bool matcher_accepts(const matcher *m, i32 state) { return state >= 0 && m->of[m->first[state]] == 0; }

status matcher_failed(const matcher *m, err *e) {
    for (i32 i = 0; i < m->g->n_dfas; i++)
        if (dfa_failed(m->g->dfas[i], e) != ST_OK) return dfa_failed(m->g->dfas[i], e);
    if (m->failed.code != ST_OK && e) *e = m->failed;
    return m->failed.code;
}
