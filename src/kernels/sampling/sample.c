#include "kernels/sampling/sample.h"
#include "kernels/sampling/sample_weight.h"
#include <math.h>
#include <string.h>

/* A token with a weight: the smaller `below`, the better; equal ones by lower id. */
typedef struct {
    f32 below;
    i32 id;
} candidate;

typedef struct {
    u64 *weight;     /* [vocab] */
    candidate *heap; /* [vocab] */
} space;

u64 sample_scratch(i64 vocab) { return (u64)vocab * (sizeof(u64) + sizeof(candidate)); }

i32 argmax_f32(const f32 *x, i64 n) {
    i64 best = 0;
    for (i64 i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (i32)best;
}

/* The best of those that may come, the lowest on ties; 0 where none may. */
static i32 best_of(const f32 *x, i64 n, const u64 *mask) {
    if (!mask) return argmax_f32(x, n);
    i64 best = -1;
    for (i64 w = 0; w < ceil_div(n, 64); w++)
        for (u64 left = mask[w]; left; left &= left - 1) {
            const i64 id = w * 64 + __builtin_ctzll(left);
            if (id < n && (best < 0 || x[id] > x[best])) best = id;
        }
    return (i32)max_i64(best, 0);
}

/* share * whole / 2^53, rounded down */
static u64 sample_slice_of(u64 share, u64 whole) { return (u64)((unsigned __int128)share * whole >> SAMPLE_BITS); }

static bool better(candidate a, candidate b) { return a.below < b.below || (a.below == b.below && a.id < b.id); }

static void sift_down(candidate *h, i64 n, i64 i) {
    for (;;) {
        i64 top = i, l = 2 * i + 1, r = l + 1;
        if (l < n && better(h[l], h[top])) top = l;
        if (r < n && better(h[r], h[top])) top = r;
        if (top == i) return;
        candidate t = h[i];
        h[i] = h[top];
        h[top] = t;
        i = top;
    }
}

/* The worst token that top-k and top-p keep; at least the best one. A heap, because few of a large vocabulary are
 * usually wanted. */
static candidate last_kept(const space *s, const f32 *logits, i32 best, i64 vocab, const sample_row *r) {
    const f32 max_logit = logits[best];
    u64 total = 0, min_weight = 1, sum = 0;
    bool by_count = r->top_k > 0 && r->top_k < vocab;
    if (!by_count) {
        for (i64 i = 0; i < vocab; i++) total += s->weight[i];
        /* All that are below it make less than what top-p leaves out. */
        min_weight = sample_slice_of(((u64)1 << SAMPLE_BITS) - r->top_p, total) / (u64)vocab / 2 + 1;
    }
    i64 m = 0, taken = 0;
    for (i64 i = 0; i < vocab; i++)
        if (s->weight[i] >= min_weight) s->heap[m++] = (candidate){max_logit - logits[i], (i32)i};
    for (i64 i = m / 2; i-- > 0;) sift_down(s->heap, m, i);
    /* Popped candidates collect at the end of the array, best last. */
    u64 want = by_count ? UINT64_MAX : sample_slice_of(r->top_p, total);
    for (i64 left = m; left > 0 && sum < want && (!by_count || taken < r->top_k); taken++) {
        candidate next = s->heap[0];
        sum += s->weight[next.id];
        s->heap[0] = s->heap[--left];
        s->heap[left] = next;
        sift_down(s->heap, left, 0);
    }
    i64 kept = taken;
    if (by_count && r->top_p < (u64)1 << SAMPLE_BITS) { /* of what top-k left */
        want = sample_slice_of(r->top_p, sum), sum = 0;
        for (kept = 0; kept < taken && (!kept || sum < want); kept++) sum += s->weight[s->heap[m - 1 - kept].id];
    }
    return kept ? s->heap[m - kept] : (candidate){0, best};
}

static void find_weights(u64 *weight, const f32 *logits, i64 vocab, f32 max_logit, f32 scale, const u64 *mask) {
    if (!mask) {
        for (i64 i = 0; i < vocab; i++) weight[i] = sample_weight(max_logit - logits[i], scale);
        return;
    }
    memset(weight, 0, (size_t)vocab * sizeof *weight);
    for (i64 w = 0; w < ceil_div(vocab, 64); w++)
        for (u64 left = mask[w]; left; left &= left - 1) {
            const i64 id = w * 64 + __builtin_ctzll(left);
            if (id < vocab) weight[id] = sample_weight(max_logit - logits[id], scale);
        }
}

i32 sample_one(const f32 *logits, i64 vocab, const sample_row *r, const u64 *mask, void *scratch) {
    i32 best = best_of(logits, vocab, mask);
    f32 max_logit = logits[best];
    if (r->scale <= 0 || !isfinite(max_logit)) return best;
    space s = {scratch, (candidate *)((u64 *)scratch + vocab)};
    find_weights(s.weight, logits, vocab, max_logit, r->scale, mask);
    if ((r->top_k > 0 && r->top_k < vocab) || r->top_p < (u64)1 << SAMPLE_BITS) {
        candidate last = last_kept(&s, logits, best, vocab, r);
        for (i64 i = 0; i < vocab; i++)
            if (better(last, (candidate){max_logit - logits[i], (i32)i})) s.weight[i] = 0;
    }
    u64 total = 0, sum = 0;
    for (i64 i = 0; i < vocab; i++) {
        if (s.weight[i] < r->min_weight) s.weight[i] = 0;
        total += s.weight[i];
    }
    u64 want = sample_slice_of(r->u, total);
    for (i64 i = 0; i < vocab; i++) {
        sum += s.weight[i];
        if (sum > want) return (i32)i;
    }
    return best;
}
