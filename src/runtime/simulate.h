/* runtime/simulate.h: a step in which no model computes anything, to measure what is around it: scheduler, sampling,
 * server, client. Whatever shows a number made with it must say that it is simulated. */
#ifndef RUNTIME_SIMULATE_H
#define RUNTIME_SIMULATE_H
#include "runtime/engine.h"

/* An engine_step_fn. `ud`: const i64 *, nanoseconds that a step takes (it sleeps; 0: none). The most probable next
 * token follows from the one before, walks through the vocabulary's first four fifths and is never an end of answer. */
status simulated_step(void *ud, const model_batch *b, i64 vocab, err *e);

#endif
