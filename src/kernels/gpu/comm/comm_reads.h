/* kernels/gpu/comm/comm_reads.h: calls of device/comm.h between GPUs of one host, in which each reads where the others
 * say: any size by one launch. For the comms of gpu_comm_open(), which has most of them in its table. */
#ifndef KERNELS_GPU_COMM_COMM_READS_H
#define KERNELS_GPU_COMM_COMM_READS_H
#include "device/comm.h"

void gpu_comm_gather_reads(comm *c, const void *mine, void *all, u64 bytes);
void gpu_comm_all_to_all(comm *c, const void *out, const i64 *out_counts, void *in, const i64 *in_counts, u64 size);
void gpu_comm_broadcast(comm *c, void *x, u64 bytes, i64 root);
void gpu_comm_barrier(comm *c);
void gpu_comm_reduce_scatter(comm *c, const void *x, void *mine, i64 n, dtype type);

#endif
