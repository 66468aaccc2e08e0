/* runtime/prefill_budget.h: how many prompt tokens a step may take while others wait for their next token.
 *
 * A step with prompts takes longer than one without, and whoever reads an answer waits that long for its next token.
 * Where answers are being written, a step may take `stall_s`, or three times the time of a step without prompts if
 * that is more: the reader sees at most three times the usual gap, or one too short to mind. Where more prompts wait
 * than answers are being written, as many times that: waiting for the first token is waiting too, and whole chunks
 * are computed faster. How long a prompt token takes depends on model, machine and batch, so it is learned: after
 * each such step the allowance follows the time that the step took. Where nobody waits for a next token, a step
 * takes a whole chunk. Plain arithmetic, without clock or threads. */
#ifndef RUNTIME_PREFILL_BUDGET_H
#define RUNTIME_PREFILL_BUDGET_H
#include "base/types.h"

typedef struct {
    i64 chunk;     /* most prompt tokens in a step */
    f64 stall_s;   /* 0: no limit */
    f64 decode_s;  /* of a step without prompts, running mean; 0: none yet */
    i64 allowance; /* prompt tokens of a step, as many prompts waiting as answers being written, or fewer */
    f64 share;     /* of the next step: prompts waiting for each answer being written, at least 1 */
} prefill_budget;

void prefill_budget_open(prefill_budget *p, i64 chunk, f64 stall_s);
/* Prompt tokens that the next step may take; `answers`: rows that are somebody's next token; `waiting`: prompts not
 * yet computed. */
i64 prefill_budget_allowance(prefill_budget *p, i64 answers, i64 waiting);
/* That step, of `prompt` prompt tokens beside `answers`, took so long. */
void prefill_budget_note(prefill_budget *p, i64 prompt, i64 answers, f64 seconds);

#endif
