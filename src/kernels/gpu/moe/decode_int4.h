/* kernels/gpu/moe/decode_int4.h: what the host and decode_int4.cu share: the arguments and the sizes of a block's
 * shared memory. */
#ifndef KERNELS_GPU_MOE_DECODE_INT4_H
#define KERNELS_GPU_MOE_DECODE_INT4_H
#include "kernels/gpu/params.h"
#include "kernels/gpu/device/int4_pack.h"

enum {
    DECODE_INT4_WARPS = 16, /* that compute; three more: copies of weights, copies of rows, digits of h */
    DECODE_INT4_THREADS = (DECODE_INT4_WARPS + 3) * 32,
    DECODE_INT4_ROWS_THREADS = 512,
    DECODE_INT4_SLOTS = 16,      /* of the ring, at most */
    DECODE_INT4_BARRIERS = 1024, /* bytes of their barriers and of what they hold */
    /* up: blocks of gate, and as many of up, in a slot: one a warp */
    DECODE_INT4_ACROSS = 16,
    DECODE_INT4_WEIGHTS = 2 * DECODE_INT4_ACROSS * PACK_BYTES, /* bytes of a slot before the rows of x or h */
    DECODE_INT4_UP_STRIPS = 2,                                 /* decode_int4.cu: of 16 rows, that these are of */
    DECODE_INT4_UP_ACROSS = DECODE_INT4_ACROSS / DECODE_INT4_UP_STRIPS, /* of each */
    DECODE_INT4_X_STRIDE = DECODE_INT4_UP_ACROSS * PACK_COLS * 2,       /* bytes between rows */
    DECODE_INT4_TEAMS = 2,                                      /* down: of warps; the slots are theirs in turn */
    DECODE_INT4_STRIPS = DECODE_INT4_WARPS / DECODE_INT4_TEAMS, /* in a slot: one a warp */
    DECODE_INT4_DEEP = 4,                                       /* blocks of each */
    DECODE_INT4_H_STRIDE = DECODE_INT4_DEEP * PACK_COLS * 2,
    DECODE_INT4_SETS = 1 + DECODE_INT4_TEAMS, /* of warps that wait for a slot: all, a team */
    DECODE_INT4_NONE = 0xffff,                /* an expert that does not exist */
    /* What one launch takes at most. */
    DECODE_INT4_TOKENS = 1024,
    DECODE_INT4_PAIRS = 8192,
    DECODE_INT4_EXPERTS = 4096,
};

/* decode_fused.cu */
enum {
    DECODE_INT4_TILE = 4, /* tokens of a product, and of a call at most */
    DECODE_FUSED_PAIRS = 32,
    DECODE_FUSED_H = 1 << 16,  /* values of h */
    DECODE_FUSED_COLS = 8192,  /* of x */
    DECODE_FUSED_BLOCKS = 32,  /* of 16 x 64 weights in a slot */
    DECODE_FUSED_STATE = 2048, /* bytes */
    /* words */
    DECODE_FUSED_TURN = 0, /* 0 and 1 from call to call */
    DECODE_FUSED_LEFT = 2, /* blocks that have asked for all weights */
    DECODE_FUSED_UP,       /* items that blocks took after their first */
    /* two words a turn: halves of items of up that are on their way to memory; items of down that blocks took */
    DECODE_FUSED_READY,
    DECODE_FUSED_DOWN,
    DECODE_FUSED_WORDS = DECODE_FUSED_READY + 4
};
typedef struct {
    const gpu_u8 *gate, *up, *down; /* of expert 0 */
    gpu_u64 expert_bytes;
    const gpu_bf16 *x, *shared_expert;
    const int *ids;
    const float *weights;
    gpu_bf16 *out;
    gpu_deferred_norm deferred; /* of x */
    gpu_after after;            /* x not NULL: out is not written */
    /* [2][DECODE_FUSED_H]: by turn; both, and the words, are zero before the first call, and kept from call to call */
    gpu_u32 *h;
    int *words;
    int n, k, experts, hidden, inter;
    gpu_u64 one_across; /* 2^32 / (inter / 64), rounded up */
    int slots, at_digits,
        at_sums; /* of the ring, which begins at DECODE_FUSED_STATE; bytes from the begin of shared memory */
    /* ffn_fused.cu alone: */
    const gpu_bf16 *shared_down; /* [hidden, shared_inter] */
    int shared_inter, at_shared_h;
} gpu_decode_fused_args;

/* ffn_fused.cu */
enum {
    FFN_FUSED_INTER = 512, /* rows of the shared expert's gate, at most */
    FFN_FUSED_LOGITS = DECODE_INT4_TILE * GPU_GATE_EXPERTS,
    FFN_FUSED_WORDS = FFN_FUSED_LOGITS + DECODE_INT4_TILE * FFN_FUSED_INTER,
    DECODE_INT4_FFN_THREADS = (DECODE_INT4_WARPS + DECODE_INT4_TILE) * 32
};
typedef struct {
    gpu_decode_fused_args fused;        /* without ids, weights and shared_expert */
    const gpu_bf16 *router, *gate, *up; /* [experts, hidden]; of the shared expert, [shared_inter, hidden] */
    const float *bias;
    /* [2][FFN_FUSED_WORDS], as decode_int4.h: logits [DECODE_INT4_TILE][GPU_GATE_EXPERTS], h of the shared expert */
    gpu_u32 *words;
    gpu_u64 one_block; /* 2^32 / blocks, rounded up */
    float scale;
    int norm;
} gpu_ffn_fused_args;

typedef struct {
    const gpu_u8 *gate, *up, *down; /* of expert 0 */
    gpu_u64 expert_bytes;
    const gpu_bf16 *x;
    const int *ids;
    gpu_u8 *x_digits, *h_digits; /* int16_split.cuh: [n, 2 hidden], [pairs, 2 inter] */
    gpu_deferred_norm deferred;  /* of x */
    float *x_scale, *h_scale;    /* [n], [pairs]: a sixteenth of a digit's unit, as the products are of 16 q */
    gpu_u32 *finished;           /* [pairs]: of a group: strips of h that are written, and one more for its digits */
    int *work_counter;           /* [2]: items of up and of down that blocks took after their first */
    float *h;                    /* [pairs, inter] */
    float *y;                    /* [pairs, hidden] */
    int k, pairs, experts, hidden, inter;
    int prepared; /* x_digits and what is counted come from the launch in front, which has the gate too */
    int slots, slot_bytes, shared; /* shared: bytes of all */
    /* Bytes from the begin of shared memory. */
    int at_sums, at_groups, at_cursor, at_pairs;
} gpu_decode_int4_args;

#endif
