/* kernels/gpu/bill.h: what each operation must move and compute, told to the trace beside the times of its kernels.
 *
 * Bytes: weights, inputs and outputs once each; experts: those that tokens reach when routing is uniform, E (1 - (1
 * - k / E)^n). Flops: of the products alone. */
#ifndef KERNELS_GPU_BILL_H
#define KERNELS_GPU_BILL_H
#include "kernels/gpu/gpu.h"

/* Wraps the operations of o, a table of ops_init_gpu(); for profiling only. */
void ops_bill(ops *o, gpu *g);
/* KV rows that the next step's rows in decode form read, all together. */
void ops_bill_context(i64 kv_rows);

#endif
