/* cmd/profile_table.h: where a GPU's time went, kernel by kernel. */
#ifndef CMD_PROFILE_TABLE_H
#define CMD_PROFILE_TABLE_H
#include "runtime/engine.h"
#include <stdio.h>

/* Two tables, prefill and decode: share of the kernels' time, ms a step, launches a step, us a launch. */
void profile_print(FILE *f, engine *g);

#endif
