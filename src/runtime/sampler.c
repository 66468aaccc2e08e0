#include "runtime/sampler.h"
#include "runtime/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    f64 p;
    i32 id;
} candidate;

struct sampler {
    i64 vocab;
    candidate *heap; /* [vocab] */
    i32 *count;      /* [vocab]: occurrences in the output; zero between calls */
    f64 *prob;       /* [vocab] */
    f32 *raw;        /* [vocab]: the logits as they came */
    u8 *keep;        /* [vocab] */
};

sampling sampling_default(void) { return (sampling){.top_p = 1, .repetition_penalty = 1}; }

status sampling_check(const sampling *s, err *e) {
    const struct {
        const char *name;
        f64 v, lo, hi;
    } all[] = {
        {"temperature", s->temperature, 0, 100},
        {"top_k", (f64)s->top_k, 0, 1e9},
        {"top_p", s->top_p, 1e-12, 1},
        {"min_p", s->min_p, 0, 1},
        {"repetition_penalty", s->repetition_penalty, 1e-6, 100},
        {"presence_penalty", s->presence_penalty, -100, 100},
        {"frequency_penalty", s->frequency_penalty, -100, 100},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (!(all[i].v >= all[i].lo && all[i].v <= all[i].hi))
            return err_set(e, ST_INPUT, "%s is %g, outside %g..%g", all[i].name, all[i].v, all[i].lo,
                           all[i].hi);
    return ST_OK;
}

status sampler_open(sampler **out, i64 vocab, err *e) {
    *out = NULL;
    sampler *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(e, "the sampler", sizeof *s);
    s->vocab = vocab;
    s->heap = malloc((size_t)vocab * sizeof *s->heap);
    s->count = calloc((size_t)vocab, sizeof *s->count);
    s->prob = malloc((size_t)vocab * sizeof *s->prob);
    s->keep = malloc((size_t)vocab);
    s->raw = malloc((size_t)vocab * sizeof *s->raw);
    if (!s->heap || !s->count || !s->prob || !s->keep || !s->raw) {
        sampler_close(s);
        return err_nomem(e, "the sampler", (u64)vocab * 33);
    }
    *out = s;
    return ST_OK;
}

void sampler_close(sampler *s) {
    if (!s) return;
    free(s->heap);
    free(s->count);
    free(s->prob);
    free(s->keep);
    free(s->raw);
    free(s);
}

f64 log_sum_exp(const f32 *x, i64 n) {
    f64 m = -INFINITY, sum = 0;
    for (i64 i = 0; i < n; i++)
        if (x[i] > m) m = x[i];
    for (i64 i = 0; i < n; i++) sum += exp((f64)x[i] - m);
    return m + log(sum);
}

i32 argmax_f32(const f32 *x, i64 n) {
    i64 best = 0;
    for (i64 i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (i32)best;
}

void sampler_top(const f32 *logits, i64 n, f64 lse, sampled *top, i64 k) {
    i64 have = 0;
    for (i64 t = 0; t < n && k > 0; t++) {
        if (have == k && !(logits[t] > top[k - 1].logprob)) continue;
        i64 at = have < k ? have++ : k - 1;
        for (; at > 0 && logits[t] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (sampled){(i32)t, logits[t]};
    }
    for (i64 i = 0; i < have; i++) top[i].logprob = (f32)((f64)top[i].logprob - lse);
}

/* Whether the logits are changed before the draw. */
static bool changes(const sampling *p, const sampling_history *h) {
    return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 || h->n_bias ||
           h->n_forbidden;
}

static void adjust(f32 *logits, const sampling_history *h) {
    for (i64 i = 0; i < h->n_bias; i++) logits[h->bias_ids[i]] += h->bias[i];
    for (i64 i = 0; i < h->n_forbidden; i++) logits[h->forbidden[i]] = -INFINITY;
}

static void penalize(sampler *s, const sampling *p, f32 *logits, const sampling_history *h) {
    if (p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0) return;
    for (i64 i = 0; i < h->n_output; i++) s->count[h->output[i]]++;
    memset(s->keep, 0, (size_t)s->vocab); /* here: seen anywhere */
    for (i64 i = 0; i < h->n_prompt; i++) s->keep[h->prompt[i]] = 1;
    for (i64 i = 0; i < h->n_output; i++) s->keep[h->output[i]] = 1;
    for (i64 t = 0; t < s->vocab; t++) {
        f64 x = logits[t];
        if (s->keep[t]) x = x > 0 ? x / p->repetition_penalty : x * p->repetition_penalty;
        if (s->count[t]) x -= p->presence_penalty + p->frequency_penalty * s->count[t];
        logits[t] = (f32)x;
    }
    for (i64 i = 0; i < h->n_output; i++) s->count[h->output[i]] = 0;
}

static bool before(const candidate *a, const candidate *b) {
    return a->p > b->p || (a->p == b->p && a->id < b->id);
}

static void sift_down(candidate *h, i64 n, i64 i) {
    for (;;) {
        i64 top = i, l = 2 * i + 1, r = l + 1;
        if (l < n && before(&h[l], &h[top])) top = l;
        if (r < n && before(&h[r], &h[top])) top = r;
        if (top == i) return;
        candidate t = h[i];
        h[i] = h[top];
        h[top] = t;
        i = top;
    }
}

/* Sets keep[] for the most probable tokens: at most top_k of them, and as many as it takes for their share of
 * the first top_k's total to reach top_p. A heap, because few of a large vocabulary are usually wanted. */
static void keep_best(sampler *s, const sampling *p) {
    i64 n = s->vocab, k = p->top_k > 0 ? min_i64(p->top_k, n) : n;
    if (k == n && p->top_p >= 1) {
        memset(s->keep, 1, (size_t)n);
        return;
    }
    memset(s->keep, 0, (size_t)n);
    f64 total = 0, cum = 0, least = 0;
    if (k == n) {
        for (i64 i = 0; i < n; i++) total += s->prob[i];
        least = 0.999 * (1 - p->top_p) * total / (f64)n; /* all that are below it make less than 1 - top_p */
    }
    i64 m = 0, taken = 0;
    for (i64 i = 0; i < n; i++)
        if (s->prob[i] >= least) s->heap[m++] = (candidate){s->prob[i], (i32)i};
    for (i64 i = m / 2; i-- > 0;) sift_down(s->heap, m, i);
    /* Popped candidates collect at the end of the array, best last. */
    for (i64 left = m; left > 0 && taken < k && (k < n || cum < p->top_p * total); taken++) {
        candidate best = s->heap[0];
        cum += best.p;
        s->heap[0] = s->heap[--left];
        s->heap[left] = best;
        sift_down(s->heap, left, 0);
    }
    f64 want = k == n ? INFINITY : p->top_p * cum, sum = 0; /* without top-k everything popped is kept */
    for (i64 i = 0; i < taken && sum < want; i++) {
        const candidate *c = &s->heap[m - 1 - i];
        s->keep[c->id] = 1;
        sum += c->p;
    }
}

/* The token at which the running sum of surviving probabilities passes u times their total. */
static i32 draw(const sampler *s, f64 u) {
    f64 total = 0, sum = 0;
    i32 last = 0;
    for (i64 t = 0; t < s->vocab; t++)
        if (s->keep[t]) total += s->prob[t];
    for (i64 t = 0; t < s->vocab; t++) {
        if (!s->keep[t] || s->prob[t] <= 0) continue;
        sum += s->prob[t];
        last = (i32)t;
        if (sum > u * total) break;
    }
    return last;
}

sampled sampler_next(sampler *s, const sampling *p, f32 *logits, const sampling_history *h, u32 choice,
                     u64 position) {
    i64 n = s->vocab;
    const f32 *raw = logits;
    f64 lse = h->no_logprob ? 0 : log_sum_exp(logits, n);
    if (changes(p, h)) {
        raw = memcpy(s->raw, logits, (size_t)n * sizeof *logits);
        adjust(logits, h);
        penalize(s, p, logits, h);
    }
    i32 id = argmax_f32(logits, n);
    if (p->temperature > 0 && isfinite(logits[id])) {
        f64 top = logits[id];
        for (i64 t = 0; t < n; t++) s->prob[t] = exp(((f64)logits[t] - top) / p->temperature);
        keep_best(s, p);
        for (i64 t = 0; t < n; t++)
            if (s->prob[t] < p->min_p) s->keep[t] = 0; /* the largest probability is 1 here */
        id = draw(s, philox_uniform(p->seed, choice, position));
    }
    return (sampled){id, (f32)((f64)raw[id] - lse)};
}
