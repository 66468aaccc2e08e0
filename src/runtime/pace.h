/* runtime/pace.h: how many prompt tokens a step may take while others wait for their next token.
 *
 * A step with prompts takes longer than one without. Where answers are being written, it may take longer by `stall_s`, or by twice the
 * time of a step without prompts if that is more: a reader sees at most three times the usual gap. How long a prompt token takes depends
 * on model, machine and batch, so it is learned: after each such step the allowance follows the time that the step took. Where
 * nobody waits, a step takes a whole chunk. Plain arithmetic, without clock or threads. */
#ifndef RUNTIME_PACE_H
#define RUNTIME_PACE_H
#include "base/types.h"

typedef struct {
    i64 chunk;     /* most prompt tokens in a step             */
    f64 stall_s;   /* 0: no limit                              */
    f64 decode_s;  /* of a step without prompts, running mean; 0: none yet */
    i64 allowance; /* prompt tokens of the next step beside answers        */
} pace;

void pace_open(pace *p, i64 chunk, f64 stall_s);
/* Prompt tokens that the next step may take; `answers`: rows that are somebody's next token. */
i64 pace_allowance(const pace *p, i64 answers);
/* A step of `prompt` prompt tokens beside `answers` took so long. */
void pace_note(pace *p, i64 prompt, i64 answers, f64 seconds);

#endif
