#include "runtime/ngram.h"
#include <stdlib.h>
#include <string.h>

void ngram_free(ngram_index *g) {
    free(g->at);
    *g = (ngram_index){0};
}

static u64 ngram_hash(const i32 *run) {
    u64 h = 0;
    for (int i = 0; i < NGRAM_LENGTH; i++) h = (h ^ (u64)(u32)run[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return h;
}

/* The slot of the run that ends in front of tokens[end], or a free one. */
static i64 ngram_slot(const ngram_index *g, const i32 *tokens, i64 end) {
    const i32 *run = tokens + end - NGRAM_LENGTH;
    i64 s = (i64)(ngram_hash(run) & (u64)(g->slots - 1));
    while (g->at[s] && memcmp(tokens + g->at[s] - NGRAM_LENGTH, run, NGRAM_LENGTH * sizeof *run))
        s = (s + 1) & (g->slots - 1);
    return s;
}

static bool ngram_room(ngram_index *g, const i32 *tokens, i64 n) {
    if (2 * n <= g->slots) return true;
    i64 slots = g->slots ? g->slots : 256;
    while (2 * n > slots) slots *= 2;
    i32 *had = g->at;
    const i64 before = g->slots;
    g->at = calloc((size_t)slots, sizeof *g->at);
    g->slots = slots;
    g->failed = !g->at;
    for (i64 i = 0; g->at && i < before; i++)
        if (had[i]) g->at[ngram_slot(g, tokens, had[i])] = had[i];
    free(had);
    return !g->failed;
}

/* The last run is left out: nothing follows it yet. */
static void ngram_add(ngram_index *g, const i32 *tokens, i64 n) {
    if (g->n < NGRAM_LENGTH) g->n = NGRAM_LENGTH;
    for (; g->n < n; g->n++) g->at[ngram_slot(g, tokens, g->n)] = (i32)g->n;
}

i64 ngram_propose(ngram_index *g, const i32 *tokens, i64 n, i32 *draft, i64 most) {
    if (g->failed || n <= NGRAM_LENGTH || n > INT32_MAX || most < 1 || !ngram_room(g, tokens, n)) return 0;
    ngram_add(g, tokens, n);
    const i64 from = g->at[ngram_slot(g, tokens, n)];
    if (!from) return 0;
    i64 agree = NGRAM_LENGTH;
    while (agree < most && agree < from && tokens[from - 1 - agree] == tokens[n - 1 - agree]) agree++;
    const i64 k = min_i64(min_i64(agree, most), n - from);
    memcpy(draft, tokens + from, (size_t)k * sizeof *draft);
    return k;
}
