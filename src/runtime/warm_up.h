/* runtime/warm_up.h: steps of an engine before its first request.
 *
 * The first step of a size costs more than those after it: a library chooses its kernels and loads them, and decode
 * steps are recorded. One H200, a rank of eight of Kimi-K2.5: a first prompt of 8192 tokens takes 370 ms instead of
 * 172, a first step of up to 64 answers 8 to 14 ms more, of more 40 to 50. */
#ifndef RUNTIME_WARM_UP_H
#define RUNTIME_WARM_UP_H
#include "runtime/engine.h"

/* Prompts of a chunk's size, of half of it and so on, and steps of 1 to 64 answers, or as many as the engine has room
 * for; with a draft model its passes behind prompts and behind steps of 1 to 64 answers, with each number of guesses,
 * and, if it guesses chains, steps that check them, of up to 16 answers, at short contexts and at such as have
 * attention read a sequence's rows together. Made-up tokens in KV pages that are free again
 * afterwards. Before anything else runs on the engine, which was opened with max_running. With experts that move
 * (--enable-eplb) the rows count like any others. *steps: how many. A model that makes a NaN of them is told on stderr,
 * and is no error: its requests will tell. */
status engine_warm_up(engine *g, i64 *steps, err *e);

#endif
