#include "runtime/sampler.h"
#include "kernels/sampling/logprobs.h"
#include "kernels/sampling/sample.h"
#include "kernels/sampling/sample_weight.h"
#include "runtime/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    i64 vocab;
    i32 *count;    /* [vocab]: occurrences in the output; zero between calls */
    f32 *raw;      /* [vocab]: the logits as they came */
    u8 *seen;      /* [vocab] */
    void *scratch; /* of sample_one */
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
            return err_set(e, ST_INPUT, "%s is %g, outside %g..%g", all[i].name, all[i].v, all[i].lo, all[i].hi);
    return ST_OK;
}

status sampler_open(sampler **out, i64 vocab, err *e) {
    *out = NULL;
    sampler *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(e, "the sampler", sizeof *s);
    s->vocab = vocab;
    s->count = calloc((size_t)vocab, sizeof *s->count);
    s->seen = malloc((size_t)vocab);
    s->raw = malloc((size_t)vocab * sizeof *s->raw);
    s->scratch = malloc(sample_scratch(vocab));
    if (!s->count || !s->seen || !s->raw || !s->scratch) {
        sampler_close(s);
        return err_nomem(e, "the sampler", (u64)vocab * 9 + sample_scratch(vocab));
    }
    *out = s;
    return ST_OK;
}

void sampler_close(sampler *s) {
    if (!s) return;
    free(s->count);
    free(s->seen);
    free(s->raw);
    free(s->scratch);
    free(s);
}

void sampler_top(const f32 *logits, i64 n, f64 lse, sampled *top, i64 k) {
    i32 ids[LOGPROBS_TOP];
    largest_of(logits, n, ids, k);
    for (i64 i = 0; i < k; i++) top[i] = (sampled){ids[i], (f32)((f64)logits[ids[i]] - lse)};
}

bool sampler_changes(const sampling *p, const sampling_history *h) {
    return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 || h->n_bias ||
           h->n_forbidden;
}

sample_row sampler_row(const sampling *p, u32 choice, u64 position) {
    const f64 log2_e = 1.4426950408889634, most = 1e30; /* so that 0 times it is 0 */
    f64 scale = p->temperature > 0 ? log2_e / p->temperature : 0;
    return (sample_row){.scale = (f32)(scale < most ? scale : most),
                        .top_k = (i32)min_i64(p->top_k, INT32_MAX),
                        .top_p = (u64)ldexp(p->top_p, SAMPLE_BITS),
                        .min_weight = (u64)ceil(ldexp(p->min_p, SAMPLE_WEIGHT_BITS)),
                        .u = philox_bits(p->seed, choice, position)};
}

static void adjust(f32 *logits, const sampling_history *h) {
    for (i64 i = 0; i < h->n_bias; i++) logits[h->bias_ids[i]] += h->bias[i];
    for (i64 i = 0; i < h->n_forbidden; i++) logits[h->forbidden[i]] = -INFINITY;
}

static void penalize(sampler *s, const sampling *p, f32 *logits, const sampling_history *h) {
    if (p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0) return;
    for (i64 i = 0; i < h->n_output; i++) s->count[h->output[i]]++;
    memset(s->seen, 0, (size_t)s->vocab);
    for (i64 i = 0; i < h->n_prompt; i++) s->seen[h->prompt[i]] = 1;
    for (i64 i = 0; i < h->n_output; i++) s->seen[h->output[i]] = 1;
    for (i64 t = 0; t < s->vocab; t++) {
        f64 x = logits[t];
        if (s->seen[t]) x = x > 0 ? x / p->repetition_penalty : x * p->repetition_penalty;
        if (s->count[t]) x -= p->presence_penalty + p->frequency_penalty * s->count[t];
        logits[t] = (f32)x;
    }
    for (i64 i = 0; i < h->n_output; i++) s->count[h->output[i]] = 0;
}

sampled sampler_next(sampler *s, const sampling *p, f32 *logits, const sampling_history *h, u32 choice, u64 position) {
    i64 n = s->vocab;
    const f32 *raw = logits;
    f64 lse = h->no_logprob ? 0 : log_sum_exp(logits, n);
    if (sampler_changes(p, h)) {
        raw = memcpy(s->raw, logits, (size_t)n * sizeof *logits);
        adjust(logits, h);
        penalize(s, p, logits, h);
    }
    sample_row row = sampler_row(p, choice, position);
    i32 id = sample_one(logits, n, &row, h->mask, s->scratch);
    return (sampled){id, (f32)((f64)raw[id] - lse)};
}
