/* kernels/gpu/gpu.h: the gpu backend: ops.h on one GPU.
 *
 * Activations and the residual stream are bf16, sums float32 with one rounding when a result is stored, KV as asked.
 * A row's sums have an order that depends on that row alone, if set_row_mode() has said what the rows are. Calls return
 * before they are done; what fails on the way is reported by the device's finish(). */
#ifndef KERNELS_GPU_GPU_H
#define KERNELS_GPU_GPU_H
#include "device/comm.h"
#include "device/gpu.h"
#include "kernels/gpu/params.h"
#include "kernels/gpu/gemm/gemm_select.h"
#include "kernels/gpu/moe/moe_select.h"
#include "kernels/fused.h"

/* Fills the table. `act` must be DT_BF16 (an FP32 checkpoint needs ref or cpu). ST_UNSUPPORTED when this program was
 * built without GPU kernels. g must outlive the table, which ends with ops_close_gpu(): before it the weights that it
 * prepared. Several tables may live at a time, of one GPU or of several; a table is used by one thread at a time. */
status ops_init_gpu(ops *o, gpu *g, dtype act, err *e);
void ops_close_gpu(ops *o); /* one whose opening failed, too */

/* Can it keep weights in f at all, as they are or as bf16? */
bool gpu_takes(weight_format f);
/* Has it kernels for weights in f (experts: as load.c keeps them), rather than the generic ones? */
bool gpu_multiplies(weight_format f, bool experts);

/* The ranks of tables[ranks], at most GPU_RANKS_MAX: comms of kernels that write to the others' memory, or read it:
 * all_reduce of multiples of 4 values in bf16 alone, columns_to_rows where a row's share goes in one launch, the other
 * calls whatever they get. What is larger than `most` takes several launches. Each is used by the thread that uses its
 * table, and ends before it. ST_UNSUPPORTED: two of the GPUs cannot reach each other's memory. */
status gpu_comm_open(comm **out, const ops *const *tables, i64 ranks, const comm_sizes *most, f64 deadline_s, err *e);

/* Such a comm's all_reduce of norm->add [n, dim], and the norm, as fused.h's `reduce_norm`: for a few rows by one
 * launch, for many by one that leaves the residual stream apart. */
void gpu_reduce_norm(const ops *o, comm *c, const norm_args *norm, deferred_norm *deferred, kept_rows *kept);
/* fused.h's `norms_apart`, `part_places` and `share_rows`. */
bool gpu_norms_apart(const comm *c, const norm_args *norm);
i64 gpu_part_places(const ops *o, comm *c, const norm_args *norm, void **at);
void gpu_share_rows(const ops *o, comm *c, const divided_rows *of, i64 count, i64 n);

/* From here on sums of up to so many rows go in one shot, larger ones in two; all ranks alike. To measure both. */
void gpu_comm_one_shot(comm *c, i64 rows);
/* The same for those that go without flags (all_reduce.cu), larger ones with (all_reduce_parts.cu). */
void gpu_comm_lamport(comm *c, i64 rows);
/* The same for sums with a norm: from so many rows on each rank norms its own alone. */
void gpu_comm_norm_apart(comm *c, i64 rows);
i64 gpu_comm_norms_apart_from(const comm *c);
/* The same: from so many it keeps them for itself, where kept_rows says `divide`, and products store their parts of a
 * sum where it is taken, which DEFERRED_ROWS or fewer never do. */
void gpu_comm_divide(comm *c, i64 rows);
i64 gpu_comm_divides_from(const comm *c);

/* The end of such a comm and the table that it was opened with, for kernels of other files. */
const ops *gpu_comm_ops(const comm *c);
const struct gpu_exchange *gpu_comm_end(const comm *c);
/* The seams of a KV cache that is divided (kernels/context_parallel.h), between GPUs; heads * latent and the bytes of a
 * page must be multiples of 16 bytes. */
void gpu_context_parallel_seams(struct rank_seams *s);

/* Experts run as the table of measured choices at `place` says from here on (moe_tuned.h): a file, or a folder that has
 * a file for this chip; matrix products as the one beside it says, whose name ends in -gemm.csv (gemm_tuned.h). NULL
 * or "none": built-in choices. A file that is not there, and a shape that a table does not know, are told once on
 * stderr. ST_FORMAT, ST_IO: the file, and its line. */
status ops_gpu_tuned(ops *o, const char *place, err *e);
/* For measuring: all calls of experts run like this, which must be allowed for them (moe_select.h); NULL: as usual
 * again. The caller keeps it. */
void ops_gpu_force(ops *o, const moe_choice *how);
/* How a call of experts is described and run. */
moe_call gpu_moe_call(const ops *o, const moe_args *a);
moe_choice gpu_moe_choice(const ops *o, const moe_args *a);

/* For measuring: all matrix products of more than 64 rows run like this, which must be allowed for them
 * (gemm_select.h); NULL: as usual again. The caller keeps it. */
void ops_gpu_force_gemm(ops *o, const gemm_choice *how);
/* The last of those products: what it was, how it was said to run, and as the library was asked for it; of fewer
 * rows the kernel alone. */
typedef struct {
    const char *skinny; /* of up to 64 rows: the kernel's name */
    gemm_call call;
    gemm_choice choice;
    gemm_source from;
    bool asked;   /* the library */
    bool refused; /* by what was chosen; the built-in choice ran */
    cublas_product product;
} gemm_seen;
/* Every such product is written to *seen from here on; NULL: no longer. */
void ops_gpu_watch_gemm(ops *o, gemm_seen *seen);
/* The version of cuBLASLt, 0 without. */
i64 gpu_gemm_library(const ops *o);
/* What is worth timing for a product that was seen: the built-in choice, then others, all different: what the
 * library offers for it, and for as many rows as `also` has numbers of; how many. */
enum { GEMM_CANDIDATES = 128 };
int gpu_gemm_candidates(const ops *o, const gemm_seen *seen, const i64 *also, i64 n_also,
                        gemm_choice out[GEMM_CANDIDATES]);
/* y += x W^T, y in bf16, rounded once, as linear_norm() does it with many rows before its norm. False, and nothing
 * is done: it cannot be done in one go. */
bool gpu_add_linear(const ops *o, const linear_args *a);

#endif
