/* kernels/gpu/gpu.h: the gpu backend: ops.h on one GPU.
 *
 * Activations and the residual stream are bf16, sums float32 with one rounding when a result is stored, KV as asked. A
 * row's sums have an order that depends on that row alone, if set_form() has said what the rows are. Calls return before they are done; what fails on the way is
 * reported by the device's finish(). */
#ifndef KERNELS_GPU_GPU_H
#define KERNELS_GPU_GPU_H
#include "device/gpu.h"
#include "kernels/gpu/args.h"
#include "kernels/ops.h"

/* Fills the table. `act` must be DT_BF16 (an FP32 checkpoint needs ref or cpu). ST_UNSUPPORTED when this program was built
 * without GPU kernels. g must outlive the table; one table a process at a time for each g. */
status ops_init_gpu(ops *o, gpu *g, dtype act, err *e);

#endif
