/* tests/fuzz/walk_matcher.h: what holds for every grammar that compiles: states are not changed by walks elsewhere, one
 * that is not dead accepts or goes on, and the only byte is the only one. */
#ifndef TESTS_FUZZ_WALK_MATCHER_H
#define TESTS_FUZZ_WALK_MATCHER_H
#include "text/grammar/matcher.h"
#include <stdlib.h>

enum { WANDER_MOST = 64 };

static inline i32 walk_text(matcher *m, i32 at, const u8 *text, size_t n) {
    for (size_t i = 0; i < n && at != MATCHER_DEAD; i++) at = matcher_next(m, at, text[i]);
    return at;
}

static inline bool matcher_is_over(const matcher *m) {
    err e = {0};
    const status st = matcher_failed(m, &e);
    if (st != ST_OK && (!e.text[0] || e.code != st)) abort();
    return st != ST_OK;
}

static inline void check_only_byte(matcher *m, i32 at) {
    i32 only = BYTE_NONE, n = 0;
    for (i32 b = 0; b < 256; b++)
        if (matcher_next(m, at, (u8)b) != MATCHER_DEAD) only = b, n++;
    const i32 said = matcher_only_byte(m, at);
    if (!matcher_is_over(m) && said != (n > 1 ? BYTES_SEVERAL : only)) abort();
}

/* Some way on from a state. */
static inline void wander_on(matcher *m, i32 at, u32 seed) {
    for (int i = 0; i < WANDER_MOST && at != MATCHER_DEAD; i++) {
        i32 to = MATCHER_DEAD;
        seed = seed * 1664525 + 1013904223;
        if (!(seed >> 28)) check_only_byte(m, at);
        for (u32 b = 0; b < 256 && to == MATCHER_DEAD; b++) to = matcher_next(m, at, (u8)((seed >> 16) + 37 * b));
        if (to == MATCHER_DEAD && !matcher_accepts(m, at) && !matcher_is_over(m)) abort();
        at = to;
    }
}

/* Straight on, then again with walks elsewhere from the states on the way. */
static inline void walk_grammar(grammar *g, const u8 *text, size_t n) {
    matcher *m;
    u32 seed = (u32)n;
    if (matcher_open(&m, g, NULL) != ST_OK) return;
    for (size_t i = 0; i < n; i++) seed = seed * 31 + text[i];
    const size_t cut = n ? seed % (n + 1) : 0;
    const i32 at = walk_text(m, matcher_start(m), text, cut), whole = walk_text(m, at, text + cut, n - cut);
    const bool accepts = matcher_accepts(m, whole);
    wander_on(m, matcher_start(m), seed);
    wander_on(m, at, seed + 1);
    wander_on(m, whole, seed + 2);
    const bool over = matcher_is_over(m);
    if (!over && (walk_text(m, matcher_start(m), text, cut) != at || walk_text(m, at, text + cut, n - cut) != whole ||
                  matcher_accepts(m, whole) != accepts || matcher_start_at(m, g->root) != matcher_start(m)))
        abort();
    matcher_close(m);
}

#endif
