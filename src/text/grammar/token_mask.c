/* text/grammar/token_mask.c: which tokens may come next.
 *
 * The tree is walked with the matcher, and what is below a dead byte is passed over. In the text of a string that may
 * be anything every token is let through without a look, but for those that end or escape it: a walk of the whole tree
 * would take milliseconds, and most states are in such text. */
#include "text/grammar/matcher_internal.h"
#include "text/grammar/token_trie.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    matcher *m;
    const token_trie *t;
    u64 *mask;
    i32 *states; /* [deepest + 1]: by depth, on the way to the node at hand */
    u8 *text;    /* [deepest] */
    i64 visited; /* nodes */
    bool whole;  /* the text so far ends with a whole character, so that each token must begin with one */
} mask_walk;

static void mask_set(u64 *mask, i32 id) { mask[id / 64] |= (u64)1 << id % 64; }

/* Takes the places of a state apart: f [*n] gets those that take any text, returned is the state of the others. A token
 * may come if it may from one of them. Of a state with too many places none is in f. */
enum { TEXTS_MOST = 32 };
static i32 texts_of(const mask_walk *w, i32 state, frame f[TEXTS_MOST], i32 *n) {
    matcher *m = w->m;
    const i64 first = m->first[state], all = m->first[state + 1] - first;
    frame others[TEXTS_MOST];
    i32 n_others = 0;
    *n = 0;
    if (all > TEXTS_MOST || !w->whole) return state;
    for (i64 i = 0; i < all; i++) {
        const frame *here = &m->frames[m->of[first + i]];
        if (frame_takes_any_text(m, here))
            f[(*n)++] = *here;
        else
            others[n_others++] = *here;
    }
    return *n ? matcher_state_of(m, others, n_others) : state;
}

static void walk_below(mask_walk *w, i32 node, i32 state);

/* Places of text, and the state behind some more of it, kept while it stays the same. */
typedef struct {
    const frame *of; /* [n] */
    i32 n, node;     /* node: of the tree, that it is at */
    frame last[TEXTS_MOST];
    i32 n_last, state;
} text_behind;

/* Behind the text between b->node and the node `to`, which is not part of it. */
static i32 behind_text(const mask_walk *w, text_behind *b, i32 to, i64 chars) {
    const trie_node *nodes = w->t->nodes;
    const i32 base = b->node < 0 ? 0 : nodes[b->node].depth, n = nodes[to].depth - 1 - base;
    frame next[TEXTS_MOST];
    i32 kept = 0;
    for (i32 i = n, at = nodes[to].above; i > 0; i--, at = nodes[at].above) w->text[i - 1] = nodes[at].byte;
    for (i32 i = 0; i < b->n; i++)
        if (frame_room(w->m, &b->of[i]) >= chars) next[kept++] = frame_behind(w->m, &b->of[i], w->text, n, chars);
    if (kept == b->n_last && !memcmp(next, b->last, (size_t)kept * sizeof *next)) return b->state;
    memcpy(b->last, next, (size_t)kept * sizeof *next);
    b->n_last = kept;
    return b->state = matcher_state_of(w->m, next, kept);
}

/* The first special node from `node` on. */
static i32 special_from(const token_trie *t, i32 node) {
    i32 lo = 0, hi = t->n_special;
    while (lo < hi) {
        const i32 mid = (lo + hi) / 2;
        if (t->special[mid] < node)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void let_through(mask_walk *w, i32 from, i32 to, i64 room, i64 chars) {
    const token_trie *t = w->t;
    for (i32 r = from; r < to; r++)
        if (t->chars[r] != CHARS_MALFORMED && t->chars[r] - chars <= room) mask_set(w->mask, t->of_rank[r]);
}

/* All tokens without special bytes but those of too many characters. */
static void plain_below(mask_walk *w, i64 room) {
    const token_trie *t = w->t;
    memcpy(w->mask, t->plain, (size_t)ceil_div(t->vocab, 64) * sizeof *w->mask);
    for (i32 i = 0; i < t->n_plain && t->chars[t->longest[i]] > room; i++) {
        const i32 id = t->of_rank[t->longest[i]];
        w->mask[id / 64] &= ~((u64)1 << id % 64);
    }
}

/* A special byte, and what is below it, behind so many characters of text. */
static void text_ends(mask_walk *w, i32 node, text_behind *b, i64 chars) {
    const trie_node *x = &w->t->nodes[node];
    const i32 to = matcher_next(w->m, behind_text(w, b, node, chars), x->byte);
    if (to == MATCHER_DEAD) return;
    if (x->token >= 0) mask_set(w->mask, x->token);
    if (x->size > 1) walk_below(w, node, to);
}

/* Tokens below a node (-1: all), where `n` places f take any text. */
static void text_below(mask_walk *w, i32 node, const frame *f, i32 n) {
    const token_trie *t = w->t;
    const i32 first = node + 1, end = node < 0 ? t->n : node + t->nodes[node].size;
    const i64 chars = node < 0 ? 0 : t->nodes[node].chars;
    text_behind behind;
    behind.of = f, behind.n = n, behind.node = node, behind.n_last = -1;
    i64 room = 0;
    for (i32 i = 0; i < n; i++) room = max_i64(room, frame_room(w->m, &f[i]));
    const bool all = node < 0; /* then nothing has been let through before */
    i32 rank = t->nodes[first].rank;
    if (all) plain_below(w, room);
    for (i32 k = special_from(t, first); k < t->n_special && t->special[k] < end; k++) {
        const i32 at = t->special[k];
        const trie_node *x = &t->nodes[at];
        if (x->rank < rank) continue; /* below one that has been looked at */
        if (!all) let_through(w, rank, x->rank, room, chars);
        rank = t->nodes[at + x->size].rank;
        /* a control character is in no string */
        if (x->byte >= ' ' && x->chars - 1 - chars <= room) text_ends(w, at, &behind, x->chars - 1 - chars);
    }
    if (!all) let_through(w, rank, t->nodes[end].rank, room, chars);
}

/* The automaton that alone decides in a state what may follow, up to special bytes of a string: no length is counted,
 * and behind a lexeme nothing comes. NULL: there is more to it. */
static dfa *only_dfa(const mask_walk *w, i32 state, frame *f) {
    const matcher *m = w->m;
    const i64 first = m->first[state], n = m->first[state + 1] - first;
    const bool end = m->of[first] == 0; /* the text may end, after which nothing comes */
    if (n != 1 + end) return NULL;
    *f = m->frames[m->of[first + end]];
    const grammar_node *x = &m->g->nodes[f->node];
    if (f->kind == FRAME_STRING ? !string_is_in_text(f) || x->max != UNBOUNDED || f->count < x->min
                                : f->kind != FRAME_LEXEME || f->parent != 0)
        return NULL;
    return m->g->dfas[x->of];
}

/* As walk_below(), where only_dfa() decides: a step is a look into its table. */
static void dfa_below(mask_walk *w, i32 node, dfa *d, const frame *f) {
    const token_trie *t = w->t;
    const i32 end = node < 0 ? t->n : node + t->nodes[node].size, base = node < 0 ? 0 : t->nodes[node].depth;
    i32 *const at = w->states;
    at[base] = f->at;
    for (i32 i = node + 1; i < end; w->visited++) {
        const trie_node *x = &t->nodes[i];
        const bool quote = f->kind == FRAME_STRING && token_byte_is_special(x->byte);
        if (quote) {
            frame here = *f;
            here.at = at[x->depth - 1];
            const i32 to = matcher_next(w->m, matcher_state_of(w->m, &here, 1), x->byte);
            if (to != MATCHER_DEAD && x->token >= 0) mask_set(w->mask, x->token);
            if (to != MATCHER_DEAD && x->size > 1) walk_below(w, i, to);
        } else if ((at[x->depth] = dfa_next(d, at[x->depth - 1], x->byte)) != DFA_DEAD) {
            if (x->token >= 0) mask_set(w->mask, x->token);
            i++;
            continue;
        }
        i += x->size;
    }
}

static void walk_below(mask_walk *w, i32 node, i32 state) {
    const token_trie *t = w->t;
    const i32 end = node < 0 ? t->n : node + t->nodes[node].size, base = node < 0 ? 0 : t->nodes[node].depth;
    frame f[TEXTS_MOST];
    i32 n;
    state = texts_of(w, state, f, &n);
    if (n) text_below(w, node, f, n);
    if (state == MATCHER_DEAD) return;
    dfa *const d = only_dfa(w, state, f);
    if (d) return dfa_below(w, node, d, f);
    w->states[base] = state;
    for (i32 i = node + 1; i < end; w->visited++) {
        const trie_node *x = &t->nodes[i];
        i32 to = matcher_next(w->m, w->states[x->depth - 1], x->byte);
        if (to != MATCHER_DEAD && x->token >= 0) mask_set(w->mask, x->token);
        if (to != MATCHER_DEAD && x->size > 1) {
            to = texts_of(w, to, f, &n);
            if (n) text_below(w, i, f, n);
        }
        w->states[x->depth] = to;
        i += to == MATCHER_DEAD ? x->size : 1;
    }
}

static status make_mask(matcher *m, const token_trie *t, i32 state, u64 *mask, err *e) {
    const size_t depth = (size_t)t->deepest + 1;
    mask_walk w = {
        .m = m, .t = t, .mask = mask, .states = malloc(depth * sizeof *w.states), .text = malloc(depth), .whole = true};
    memset(mask, 0, (size_t)ceil_div(t->vocab, 64) * sizeof *mask);
    if (!w.states || !w.text) return free(w.states), free(w.text), err_nomem(e, "a mask of tokens", 5 * depth);
    for (int b = 0x80; b < 0xc0; b++) w.whole = w.whole && matcher_next(m, state, (u8)b) == MATCHER_DEAD;
    walk_below(&w, -1, state);
    free(w.states), free(w.text);
    if (m->g->metered) m->g->fuel -= w.visited;
    return matcher_failed(m, e);
}

/* Text goes on in the same state for many tokens, so the last masks are kept. */
status matcher_mask(matcher *m, const token_trie *t, i32 state, u64 *mask, err *e) {
    const size_t bytes = (size_t)ceil_div(t->vocab, 64) * sizeof *mask;
    if (state == MATCHER_DEAD) return memset(mask, 0, bytes), matcher_failed(m, e);
    for (int i = 0; i < MASKS_KEPT; i++)
        if (m->masks[i].of == t && m->masks[i].state == state) return memcpy(mask, m->masks[i].mask, bytes), ST_OK;
    kept_mask *keep = &m->masks[m->n_masks++ % MASKS_KEPT];
    status st = make_mask(m, t, state, mask, e);
    u64 *own = st == ST_OK ? realloc(keep->mask, bytes) : NULL;
    if (st == ST_OK && !own) return err_nomem(e, "a mask of tokens", bytes);
    if (st == ST_OK) *keep = (kept_mask){memcpy(own, mask, bytes), t, bytes, state};
    return st;
}
