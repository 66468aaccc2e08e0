#include "text/bpe.h"
#include <stdlib.h>
#include <string.h>

enum { SHORT = 48 }; /* bytes up to which scanning all pairs beats a heap */

static i32 rank_of(const vocab *v, const u8 *piece, u32 from, u32 to) { return vocab_find(v, piece + from, to - from); }

/* Parts are kept packed: part i is [at[i], at[i + 1]), rank[i] that of parts i and i + 1 together. */
static void merge_short(const vocab *v, const u8 *piece, u32 n, ids_buf *out) {
    u32 at[SHORT + 1], rank[SHORT]; /* a rank of -1 is the largest u32 */
    for (u32 i = 0; i <= n; i++) at[i] = i;
    for (u32 i = 0; i + 1 < n; i++) rank[i] = (u32)v->pair_rank[piece[i] << 8 | piece[i + 1]];
    while (n > 1) {
        u64 least = UINT64_MAX; /* rank and place in one number: compares without branches, leftmost wins */
        for (u32 i = 0; i + 1 < n; i++) {
            u64 x = (u64)rank[i] << 32 | i;
            least = x < least ? x : least;
        }
        if (least >> 32 == UINT32_MAX) break;
        u32 best = (u32)least;
        n--;
        memmove(at + best + 1, at + best + 2, (n - best) * sizeof *at);
        if (best + 1 < n) {
            memmove(rank + best, rank + best + 1, (n - 1 - best) * sizeof *rank);
            rank[best] = (u32)rank_of(v, piece, at[best], at[best + 2]);
        }
        if (best > 0) rank[best - 1] = (u32)rank_of(v, piece, at[best - 1], at[best + 1]);
    }
    for (u32 i = 0; i < n; i++) ids_add(out, rank_of(v, piece, at[i], at[i + 1]));
}

/* Long pieces: the parts as a list over byte positions and a heap of the pairs that are tokens. A pair whose
 * neighbour has changed stays in the heap and is recognised when it comes up, because its rank is no longer
 * the one that stands at its position: the bytes of a pair only grow, so a rank never comes back. */
typedef struct {
    const vocab *v;
    const u8 *piece;
    u32 n;
    u64 *heap; /* [3n] rank << 32 | position: lowest rank first, leftmost of equals */
    u32 n_heap;
    u32 *next, *prev; /* [n + 1] positions of the neighbouring parts; next of the last is n */
    i32 *rank;        /* [n] of the part here and the one behind it together, -1 none or no part here */
} merger;

static void heap_push(merger *m, u64 x) {
    u32 i = m->n_heap++;
    for (; i > 0 && m->heap[(i - 1) / 2] > x; i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = x;
}

static u64 heap_pop(merger *m) {
    u64 top = m->heap[0], x = m->heap[--m->n_heap];
    u32 i = 0;
    for (u32 c; (c = 2 * i + 1) < m->n_heap; i = c) {
        c += (c + 1 < m->n_heap) & (m->heap[c + 1] < m->heap[c]); /* a branch here would be a coin toss */
        if (m->heap[c] >= x) break;
        m->heap[i] = m->heap[c];
    }
    m->heap[i] = x;
    return top;
}

static void set_pair(merger *m, u32 at) {
    u32 second = m->next[at];
    m->rank[at] = second < m->n ? rank_of(m->v, m->piece, at, m->next[second]) : -1;
    if (m->rank[at] >= 0) heap_push(m, (u64)m->rank[at] << 32 | at);
}

static void merge_long(merger *m, ids_buf *out) {
    for (u32 i = 0; i <= m->n; i++) {
        m->next[i] = i + 1;
        m->prev[i] = i - 1;
    }
    for (u32 i = 0; i < m->n; i++) set_pair(m, i);
    while (m->n_heap) {
        u64 top = heap_pop(m);
        u32 at = (u32)top, gone = m->next[at];
        if (m->rank[at] != (i32)(top >> 32)) continue;
        m->rank[gone] = -1;
        m->next[at] = m->next[gone];
        m->prev[m->next[at]] = at;
        set_pair(m, at);
        if (at > 0) set_pair(m, m->prev[at]);
    }
    for (u32 i = 0; i < m->n; i = m->next[i]) ids_add(out, rank_of(m->v, m->piece, i, m->next[i]));
}

bool bpe_encode(const vocab *v, const u8 *piece, size_t n, bpe_space *space, ids_buf *out) {
    i32 whole = n == 1 ? v->byte_rank[piece[0]] : vocab_find(v, piece, n);
    if (whole >= 0) {
        ids_add(out, whole);
    } else if (n <= SHORT) {
        merge_short(v, piece, (u32)n, out);
    } else {
        u64 need, each = 3 * sizeof(u64) + 2 * sizeof(u32) + sizeof(i32);
        if (!mul_size(n + 1, each, &need)) return false;
        if (need > space->size) {
            bpe_free(space);
            if (!(space->memory = malloc(need))) return false;
            space->size = need;
        }
        merger m = {.v = v, .piece = piece, .n = (u32)n, .heap = space->memory};
        m.next = (u32 *)(m.heap + 3 * (n + 1));
        m.prev = m.next + n + 1;
        m.rank = (i32 *)(m.prev + n + 1);
        merge_long(&m, out);
    }
    return !out->failed;
}

void bpe_free(bpe_space *s) {
    free(s->memory);
    *s = (bpe_space){0};
}
