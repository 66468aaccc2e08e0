/* kernels/pipeline_parallel.h: stages of a model, each of which holds consecutive layers: rows of the residual stream
 * go from one to the next.
 *
 * Rank i of a stage sends all rows to rank i of the next, which needs no more of anybody. One link joins the ranks of
 * two stages. */
#ifndef KERNELS_PIPELINE_PARALLEL_H
#define KERNELS_PIPELINE_PARALLEL_H
#include "device/comm.h"
#include "kernels/ops.h"

/* Of one rank. A link's ranks: the earlier stage's, then as many of the later one's. */
typedef struct pipeline_parallel {
    comm *before, *behind; /* links; NULL: it is the first stage, or the last */
} pipeline_parallel;

/* x [n] of o->act: from the stage before, to the one behind. For a rank that has one; queued like an operation. */
void pipeline_receive(const ops *o, void *x, i64 n);
void pipeline_send(const ops *o, void *x, i64 n);

#endif
