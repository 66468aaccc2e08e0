/* kernels/gpu/few_plain.h: what the host and few_plain.cu share. */
#ifndef KERNELS_GPU_FEW_PLAIN_H
#define KERNELS_GPU_FEW_PLAIN_H
#include "kernels/gpu/few.h"

enum {
    PLAIN_UNIT = 128,                     /* bytes of a row: 64 columns of bf16, 128 of FP8 */
    PLAIN_TILE = 16 * PLAIN_UNIT,         /* 16 rows of them: what a warp multiplies at a time */
    PLAIN_WEIGHTS = 16 * PLAIN_TILE,      /* of a slot */
    PLAIN_ACROSS = 8,                     /* up: units of gate, and as many of up, in a slot: one a warp */
    PLAIN_TEAMS = 4,                      /* down: of warps; the slots are theirs in turn */
    PLAIN_TEAM = FEW_WARPS / PLAIN_TEAMS, /* warps */
    PLAIN_SETS = 1 + PLAIN_TEAMS,         /* of warps that wait for a slot: all, a team */
    PLAIN_TOKENS = 16,                    /* of a group, at most */
    PLAIN_SLOTS = 8,                      /* of the ring, at most */
    /* What one launch takes at most: more leave no room for a ring of three slots. */
    PLAIN_PAIRS = 2048,
    PLAIN_EXPERTS_FP8 = 512,
};
/* Down: units of each strip of 16 rows in a slot, and strips of a warp. */
#define PLAIN_DEEP(fp8)   ((fp8) ? 2 : 4)
#define PLAIN_STRIPS(fp8) ((fp8) ? 2 : 1)
/* Bytes between rows of x or h in a slot: eight of them meet no bank twice. */
#define PLAIN_STRIDE(fp8) (PLAIN_ACROSS * ((fp8) ? 256 : 128) + 16)

typedef struct {
    gpu_few_args f;                   /* not: gate, up, down, expert_bytes, digits, scales, h */
    const gpu_u8 *scales;             /* FP8's, of expert 0's gate */
    gpu_u32 scales_up, scales_expert; /* bytes to up's, and as many to down's; to the next expert's */
    gpu_bf16 *h;                      /* [pairs, inter] */
    gpu_tensor_map in,
        /* all weights as rows of `hidden` and of `inter` columns: 128 bytes, rows, 128 bytes further on; boxes of 16
         * rows by PLAIN_ACROSS and of a team's strips by PLAIN_DEEP */
        out;
} gpu_plain_args;

#endif
