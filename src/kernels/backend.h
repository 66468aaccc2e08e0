/* kernels/backend.h: opens a backend by its name; runtime/ and cmd/ come in here. */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H
#include "device/comm.h"
#include "device/gpu.h"
#include "kernels/tensor_parallel.h"

typedef struct {
    const char *name;    /* "ref", "cpu", "cuda", or "cuda:N" for GPU N as the driver counts */
    dtype act;           /* of activations; ref computes in float32 whatever it says */
    u32 isa;             /* cpu: the instruction sets that it may use (ISA_ALL) */
    bool disable_fused;  /* a GPU: what fused.h composes runs operation by operation */
    const gpu_part *gpu; /* a GPU: which, and what of it; NULL: all of the one that name says */
} backend_options;

/* A table of operations and where they compute. Several may live at a time; one thread at a time uses each. */
typedef struct {
    ops ops;
    device *device;  /* where weights, activations and the KV cache lie */
    struct gpu *gpu; /* NULL: the host */
} backend;

/* Does the name mean a GPU? */
bool backend_name_is_gpu(const char *name);

/* How a backend multiplies with weights in a format; of a CPU, the one that this runs on. */
typedef enum {
    FORMAT_REFUSED,
    FORMAT_EXPANDED, /* a row at a time made float32, by kernels for any format: slow */
    FORMAT_AS_BF16,  /* rounded to bf16 once when it is loaded, then bf16's kernels */
    FORMAT_NATIVE    /* kernels for it, as it is stored or repacked once when it is loaded */
} format_speed;
format_speed backend_format_speed(const char *name, weight_format f, bool experts);

/* ST_INPUT: no such name. ST_DEVICE, ST_UNSUPPORTED: as gpu_open(), ops_init_gpu() and ops_init_cpu() say it. The
 * caller ends *out with backend_close(), whatever comes back. */
status backend_open(backend *out, const backend_options *o, err *e);
/* The comms of ranks whose backends are all GPUs, out[n]: as gpu_comm_open(), or, if `nccl` is set or they do not reach
 * each other's memory, which is said, as comm_nccl_open(); so, too, where `others` have ranks in other processes. */
status backend_comm_open(comm **out, const backend *const *all, i64 n, const comm_sizes *most, f64 deadline_s,
                         bool nccl, const host_group *others, err *e);
/* Ranks among which its exchanges go. */
i64 backend_ranks_max(const backend *b);
/* How a comm's sum and the norm behind it go together (tensor_parallel.h). */
norm_seams backend_norm_seams(const backend *b, const comm *c);
/* Rows from which that norms each rank's own alone; INT64_MAX: never. */
i64 backend_norms_apart_from(const backend *b, const comm *c);
/* Rows from which ranks divide those of a step between layers (kept_rows.divide); INT64_MAX: never. */
i64 backend_divides_from(const backend *b, const comm *c);
/* The seams of a KV cache that is divided among such ranks, or ranks of the host (kernels/context_parallel.h). */
void backend_context_parallel(const backend *b, rank_seams *s);
/* After the weights that it prepared. One that is all zeros is allowed. */
void backend_close(backend *b);

#endif
