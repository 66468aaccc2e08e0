/* text/grammar/constraint_run.c: an answer's steps: which ids may come, and where they lead. */
#include "text/grammar/constraint_internal.h"
#include <string.h>

static bool is_text_id(const constraint_run *r, i32 id) { return id >= 0 && id < tokenizer_n_ranks(r->c->tok); }

/* ---- steps ---- */

/* Bytes from a state of the matcher, with the lock held. A failure is remembered: it looks like a text that does not
 * match. */
static i32 walk_on(constraint_run *r, i32 state, const u8 *bytes, size_t n) {
    constraint_walk *w = r->w;
    i32 at = state - RUN_STATES;
    for (size_t i = 0; i < n && at != MATCHER_DEAD; i++) at = matcher_next(w->m, at, bytes[i]);
    if (at != MATCHER_DEAD) return at + RUN_STATES;
    if (w->failed.code == ST_OK) matcher_failed(w->m, &w->failed);
    return RUN_DEAD;
}

static i32 locked_walk(constraint_run *r, i32 state, const u8 *bytes, size_t n) {
    pthread_mutex_lock(&r->c->lock);
    walk_begin(r->c, r->w);
    state = walk_on(r, state, bytes, n);
    walk_end(r->c, r->w);
    pthread_mutex_unlock(&r->c->lock);
    return state;
}

/* Text has no byte of marks; tokens that have one are not in the tree. */
static i32 next_bytes(constraint_run *r, i32 state, const char *bytes, size_t n) {
    if (!bytes || !n || memchr(bytes, TOKEN_MARK_BYTE, n)) return RUN_DEAD;
    return locked_walk(r, state, (const u8 *)bytes, n);
}

static i32 next_in_grammar(constraint_run *r, i32 state, i32 id) {
    size_t n;
    if (is_text_id(r, id)) {
        const char *bytes = tokenizer_bytes(r->c->tok, id, &n);
        return next_bytes(r, state, bytes, n);
    }
    for (int m = TOKEN_MARK_FIRST; m <= TOKEN_MARK_LAST; m++)
        if (id >= 0 && id == r->c->marks[m]) return locked_walk(r, state, (const u8[]){TOKEN_MARK_BYTE, (u8)m}, 2);
    return RUN_DEAD;
}

static bool is_section(const constraint_run *r, i32 id) {
    return r->calls != RUN_DEAD && id == r->c->marks[MARK_SECTION];
}

i32 constraint_run_next(constraint_run *r, i32 state, i32 id) {
    switch (state) {
    case RUN_DEAD: return RUN_DEAD;
    case RUN_MAY_THINK: return id == r->c->marks[MARK_THINK] ? RUN_THINKING : constraint_run_next(r, r->content, id);
    case RUN_THINKING:
        if (id == r->c->marks[MARK_THINK_END]) return r->content;
        return is_text_id(r, id) ? RUN_THINKING : is_section(r, id) ? r->calls : RUN_DEAD;
    case RUN_FREE: return is_text_id(r, id) ? RUN_FREE : is_section(r, id) ? r->calls : RUN_DEAD;
    default: return next_in_grammar(r, state, id);
    }
}

i32 constraint_run_next_text(constraint_run *r, i32 state, const char *text, size_t len) {
    if (!len || state == RUN_DEAD || state == RUN_THINKING || state == RUN_FREE) return state;
    if (state == RUN_MAY_THINK) return constraint_run_next_text(r, r->content, text, len);
    return next_bytes(r, state, text, len);
}

/* ---- masks ---- */

static void add_id(u64 *mask, i32 id) {
    if (id >= 0) mask[id / 64] |= (u64)1 << id % 64;
}

/* All ids of text, and what ends it. */
static void free_mask(const constraint_run *r, u64 *mask, i32 end) {
    const i32 n = tokenizer_n_ranks(r->c->tok), words = n / 64, all = (i32)ceil_div(r->c->trie->vocab, 64);
    memset(mask, 0xff, (size_t)words * sizeof *mask);
    memset(mask + words, 0, (size_t)(all - words) * sizeof *mask);
    if (n % 64) mask[words] = ((u64)1 << n % 64) - 1;
    add_id(mask, end);
    if (r->calls != RUN_DEAD) add_id(mask, r->c->marks[MARK_SECTION]);
}

static status grammar_mask(constraint_run *r, i32 state, u64 *mask, bool *may_end, err *e) {
    constraint_walk *w = r->w;
    pthread_mutex_lock(&r->c->lock);
    constraint_earn(r->c);
    walk_begin(r->c, w);
    if (w->failed.code == ST_OK) matcher_mask(w->m, r->c->trie, state - RUN_STATES, mask, &w->failed);
    walk_end(r->c, w);
    const status st = w->failed.code;
    *may_end = st == ST_OK && matcher_accepts(w->m, state - RUN_STATES);
    if (st != ST_OK && e) *e = w->failed;
    pthread_mutex_unlock(&r->c->lock);
    return st;
}

status constraint_run_mask(constraint_run *r, i32 state, u64 *mask, bool *may_end, err *e) {
    status st = ST_OK;
    *may_end = false;
    switch (state) {
    case RUN_DEAD: return memset(mask, 0, (size_t)ceil_div(r->c->trie->vocab, 64) * sizeof *mask), ST_OK;
    case RUN_THINKING: return free_mask(r, mask, r->c->marks[MARK_THINK_END]), ST_OK;
    case RUN_FREE: return *may_end = true, free_mask(r, mask, -1), ST_OK;
    case RUN_MAY_THINK:
        st = constraint_run_mask(r, r->content, mask, may_end, e);
        if (st == ST_OK) add_id(mask, r->c->marks[MARK_THINK]);
        return st;
    default: return grammar_mask(r, state, mask, may_end, e);
    }
}
