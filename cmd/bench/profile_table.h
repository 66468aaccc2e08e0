/* cmd/bench/profile_table.h: where a GPU's time went, operation by operation and kernel by kernel. */
#ifndef CMD_BENCH_PROFILE_TABLE_H
#define CMD_BENCH_PROFILE_TABLE_H
#include "runtime/engine.h"
#include <stdio.h>

/* Tables for prefill and decode, as far as there were such steps: share of the time, ms a step, calls, us each, TB/s
 * or TFLOP/s and their share of the roofline. */
void profile_print(FILE *f, engine *g);

#endif
