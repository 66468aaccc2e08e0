/* kernels/gpu/gpu.h: the gpu backend: ops.h on one GPU.
 *
 * Activations and the residual stream are bf16, sums float32 with one rounding when a result is stored, KV as asked. A
 * row's sums have an order that depends on that row alone, if set_form() has said what the rows are. Calls return before they are done; what fails on the way is
 * reported by the device's finish(). */
#ifndef KERNELS_GPU_GPU_H
#define KERNELS_GPU_GPU_H
#include "device/gpu.h"
#include "kernels/gpu/args.h"
#include "kernels/gpu/moe_choice.h"
#include "kernels/ops.h"

/* Fills the table. `act` must be DT_BF16 (an FP32 checkpoint needs ref or cpu). ST_UNSUPPORTED when this program was built
 * without GPU kernels. g must outlive the table; one table a process at a time for each g. */
status ops_init_gpu(ops *o, gpu *g, dtype act, err *e);

/* Experts run as the table of measured choices at `place` says from here on (tuned.h): a file, or a folder that has a file for this
 * chip; NULL or "none": built-in choices. A folder without one, and a shape that the table does not know, are told once on stderr.
 * ST_FORMAT, ST_IO: the file, and its line. */
status ops_gpu_tuned(ops *o, const char *place, err *e);
/* For measuring: all calls of experts run like this, which must be allowed for them (moe_choice.h); NULL: as usual again. The
 * caller keeps it. */
void ops_gpu_force(ops *o, const moe_choice *how);
/* How a call of experts is described and run. */
moe_call gpu_moe_call(const moe_args *a);
moe_choice gpu_moe_choice(const moe_args *a);

#endif
