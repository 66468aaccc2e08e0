/* kernels/tensor_parallel.h: the seams of fused.h for ranks that hold a share of every matrix.
 *
 * Heads, expert widths and the vocabulary are divided: products with q_b, kv_b, gate and up need nothing of the others,
 * o and down make parts of a sum, the embedding has rows of its own. So a layer has two sums over the ranks. */
#ifndef KERNELS_TENSOR_PARALLEL_H
#define KERNELS_TENSOR_PARALLEL_H
#include "device/comm.h"
#include "kernels/fused.h"

/* `c` moves the data and must outlive the seams. */
rank_seams tensor_parallel_seams(comm *c);

#endif
