/* kernels/gpu/few.h: what the host and few.cu share: the arguments and the sizes of a block's shared memory. */
#ifndef KERNELS_GPU_FEW_H
#define KERNELS_GPU_FEW_H
#include "kernels/gpu/args.h"
#include "kernels/gpu/pack.h"

enum {
    FEW_WARPS = 16, /* that compute; one more copies */
    FEW_THREADS = (FEW_WARPS + 1) * 32,
    FEW_SLOTS = 16,     /* of the ring, at most */
    FEW_BARRIERS = 640, /* bytes of their barriers */
    FEW_ACROSS = 8,     /* blocks of gate, and as many of up, in a slot */
    FEW_STRIPS = 4,     /* of down in a slot; a warp each of FEW_ACROSS / FEW_STRIPS arrivals */
    FEW_KINDS = 4,      /* of experts: FEW_STRIPS warps each */
    FEW_DEEP = 4,       /* blocks of each */
    FEW_WEIGHTS = 2 * FEW_ACROSS * PACK_BYTES, /* bytes of a slot before the rows of x or h */
    FEW_X_STRIDE = FEW_ACROSS * PACK_COLS * 2 +
                   16, /* bytes between them: eight rows, four banks each, meet no bank twice */
    FEW_H_STRIDE = FEW_DEEP * PACK_COLS * 2 + 16,
    FEW_GROUP = 8,     /* tokens of an expert at a time, at most */
    FEW_NONE = 0xffff, /* an expert that does not exist */
    /* What one launch takes at most. */
    FEW_TOKENS = 1024,
    FEW_PAIRS = 8192,
    FEW_EXPERTS = 4096,
};

typedef struct {
    const gpu_u8 *gate, *up, *down; /* of expert 0 */
    gpu_u64 expert_bytes;
    const gpu_bf16 *x, *shared_expert;
    const int *ids;
    const float *weights;
    gpu_bf16 *h, *out;
    float *y;
    gpu_u32 *meeting; /* [2], hopper.cuh */
    int n, k, pairs, experts, hidden, inter;
    int slots, slot_bytes, shared; /* shared: bytes of all */
    int totals;                    /* sum in shared memory; else products go to y */
    /* Bytes from the begin of shared memory. */
    int at_sums, at_groups, at_cursor, at_entries, at_pairs;
} gpu_few_args;

#endif
