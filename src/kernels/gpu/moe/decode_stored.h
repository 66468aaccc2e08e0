/* kernels/gpu/moe/decode_stored.h: what the host and decode_stored.cu share. */
#ifndef KERNELS_GPU_MOE_DECODE_STORED_H
#define KERNELS_GPU_MOE_DECODE_STORED_H
#include "kernels/gpu/moe/decode_int4.h"

enum {
    DECODE_STORED_UNIT = 128,                        /* bytes of a row: 64 columns of bf16, 128 of FP8 */
    DECODE_STORED_TILE = 16 * DECODE_STORED_UNIT,    /* 16 rows of them: what a warp multiplies at a time */
    DECODE_STORED_WEIGHTS = 16 * DECODE_STORED_TILE, /* of a slot */
    DECODE_STORED_ACROSS = 8,                        /* up: units of gate, and as many of up, in a slot: one a warp */
    DECODE_STORED_TEAMS = 4,                         /* down: of warps; the slots are theirs in turn */
    DECODE_STORED_TEAM = DECODE_INT4_WARPS / DECODE_STORED_TEAMS, /* warps */
    DECODE_STORED_SETS = 1 + DECODE_STORED_TEAMS,                 /* of warps that wait for a slot: all, a team */
    DECODE_STORED_TOKENS = 16,                                    /* of a group, at most */
    DECODE_STORED_SLOTS = 8,                                      /* of the ring, at most */
    /* What one launch takes at most: more leave no room for a ring of three slots. */
    DECODE_STORED_PAIRS = 2048,
    DECODE_STORED_EXPERTS_FP8 = 512,
};
/* Down: units of each strip of 16 rows in a slot, and strips of a warp. */
#define DECODE_STORED_DEEP(fp8)   ((fp8) ? 2 : 4)
#define DECODE_STORED_STRIPS(fp8) ((fp8) ? 2 : 1)
/* Bytes between rows of x or h in a slot: eight of them meet no bank twice. */
#define DECODE_STORED_STRIDE(fp8) (DECODE_STORED_ACROSS * ((fp8) ? 256 : 128) + 16)

typedef struct {
    gpu_decode_int4_args f;           /* not: gate, up, down, expert_bytes, digits, scales, h */
    const gpu_u8 *scales;             /* FP8's, of expert 0's gate */
    gpu_u32 scales_up, scales_expert; /* bytes to up's, and as many to down's; to the next expert's */
    gpu_bf16 *h;                      /* [pairs, inter] */
    gpu_tensor_map in,
        /* all weights as rows of `hidden` and of `inter` columns: 128 bytes, rows, 128 bytes further on; boxes of 16
         * rows by DECODE_STORED_ACROSS and of a team's strips by DECODE_STORED_DEEP */
        out;
} gpu_decode_stored_args;

#endif
