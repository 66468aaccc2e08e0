/* runtime/load.h: the weights of all ranks, loaded side by side.
 *
 * Ranks on GPUs copy what they hold, and one reader (format/weight_reader.h) brings it to all of them; on the host
 * weights stay where the checkpoint is mapped, and nothing is read here. */
#ifndef RUNTIME_LOAD_H
#define RUNTIME_LOAD_H
#include "format/weight_reader.h"
#include "runtime/ranks.h"

/* model_load() of every rank, whose models are planned. ck NULL: dummy weights. *reads: what was read, in numbers; all
 * 0 where there was no reader. One line says it where it took a second. */
status ranks_load(ranks *r, const checkpoint *ck, bool verify, weight_reads *reads, err *e);

#endif
