/* runtime/sampler.h: from logits to the next token.
 *
 * Order of the steps: bias and forbidden tokens, penalties, temperature, top-k, top-p (over what top-k left), min-p,
 * then the inverse CDF over the surviving tokens in id order with one Philox number. Equal probabilities rank by
 * lower id. */
#ifndef RUNTIME_SAMPLER_H
#define RUNTIME_SAMPLER_H
#include "kernels/ops.h"

typedef struct {
    f64 temperature;        /* 0: greedy (the lowest id among the largest logits) */
    i64 top_k;              /* 0: off */
    f64 top_p;              /* 1: off */
    f64 min_p;              /* 0: off; drops tokens below min_p times the largest probability */
    f64 repetition_penalty; /* 1: off; logits of tokens seen in prompt or output: / if > 0, * if < 0 */
    f64 presence_penalty;   /* 0: off; subtracted once from tokens of the output */
    f64 frequency_penalty;  /* 0: off; subtracted per occurrence in the output */
    u64 seed;
} sampling;

sampling sampling_default(void); /* greedy, everything off */
/* ST_INPUT names the first value that is out of range. */
status sampling_check(const sampling *s, err *e);

typedef struct sampler sampler;
status sampler_open(sampler **out, i64 vocab, err *e);
void sampler_close(sampler *s);

/* The tokens that penalties look at, and what is done to the logits of single tokens. */
typedef struct {
    const i32 *prompt, *output;
    i64 n_prompt, n_output;
    const i32 *bias_ids; /* [n_bias]: bias[i] is added to the logit of bias_ids[i] */
    const f32 *bias;
    i64 n_bias;
    const i32 *forbidden; /* [n_forbidden]: never drawn, unless nothing else is left */
    i64 n_forbidden;
    const u64 *mask; /* [ceil(vocab / 64)]: the tokens that may come; NULL: all */
    bool no_logprob; /* sampled.logprob is not wanted: it costs a pass over the vocabulary */
} sampling_history;

typedef struct {
    i32 id;
    f32 logprob; /* of id under the model's own distribution: log-softmax of the unchanged logits */
} sampled;

/* The k <= n, LOGPROBS_TOP most probable tokens of log-softmax(logits [n]) with lse = log_sum_exp(logits), best
 * first, equal ones by lower id. */
void sampler_top(const f32 *logits, i64 n, f64 lse, sampled *top, i64 k);

/* Are logits changed before the draw (bias, forbidden tokens, penalties)? */
bool sampler_changes(const sampling *p, const sampling_history *h);
/* The draw itself, for kernels/sampling/sample.h or a backend's `sample`. */
sample_row sampler_row(const sampling *p, u32 choice, u64 position);

/* logits [vocab] are changed. `position` counts output tokens from 0, `choice` is the index among n answers.
 * NaN among the logits is the caller's to catch. */
sampled sampler_next(sampler *s, const sampling *p, f32 *logits, const sampling_history *h, u32 choice, u64 position);

#endif
