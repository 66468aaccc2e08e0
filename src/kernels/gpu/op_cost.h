/* kernels/gpu/op_cost.h: what each operation must move and compute, told to the trace beside the times of its kernels.
 *
 * Bytes: weights, inputs and outputs once each; experts: those that tokens reach when routing is uniform, E (1 - (1
 * - k / E)^n). Flops: of the products alone. */
#ifndef KERNELS_GPU_OP_COST_H
#define KERNELS_GPU_OP_COST_H
#include "kernels/gpu/gpu.h"

/* Wraps the operations of o, a table of ops_init_gpu(), once; for profiling only. What it notes lives as long as o. */
status ops_cost(ops *o, err *e);
/* KV rows that the next step's rows in decode form read, all together. */
void ops_cost_context(ops *o, i64 kv_rows);

#endif
