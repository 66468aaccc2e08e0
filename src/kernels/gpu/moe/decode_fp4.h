/* kernels/gpu/moe/decode_fp4.h: what the host and decode_fp4.cu share. */
#ifndef KERNELS_GPU_MOE_DECODE_FP4_H
#define KERNELS_GPU_MOE_DECODE_FP4_H
#include "kernels/gpu/moe/decode_int4.h"

enum {
    DECODE_FP4_TOKENS = 8, /* of a group, at most */
    /* bytes between rows of x and of h in a slot: eight of them meet no bank twice */
    DECODE_FP4_X_STRIDE = DECODE_INT4_X_STRIDE + 16,
    DECODE_FP4_H_STRIDE = DECODE_INT4_H_STRIDE + 16
};

typedef struct {
    gpu_decode_int4_args f;    /* not: digits, h_scale, h; x_scale: what deferred has */
    const gpu_matrix *experts; /* [3 * experts]: their factors */
    gpu_bf16 *h;               /* [pairs, inter] */
} gpu_decode_fp4_args;

#endif
