/* device/comm_nccl.h: exchanges of ranks on GPUs by NVIDIA's NCCL, for GPUs that do not reach each other's memory, and
 * to see whether our own exchanges are at fault.
 *
 * Other than comm.h promises, sums are rounded on the way as NCCL likes, in an order of its own (tensor_parallel.h has
 * others). A rank that does not
 * come is noticed by a thread of the group, which looks how long each rank's host waits, and ends NCCL's kernels. */
#ifndef DEVICE_COMM_NCCL_H
#define DEVICE_COMM_NCCL_H
#include "device/comm.h"
#include "device/gpu.h"

/* One comm a rank of this process, out[held]; `of`: every process there has as many, NULL: there is no other. Each is
 * used by the thread that uses its gpu, and ends before it. ST_UNSUPPORTED: no libnccl.so.2 (MOONLET_NCCL names another
 * file), or one too old; two ranks have one GPU. ST_DEVICE: NCCL does not start, in its words, or not within
 * deadline_s. */
status comm_nccl_open(comm **out, gpu *const *gpus, i64 held, const host_group *of, f64 deadline_s, err *e);

#endif
