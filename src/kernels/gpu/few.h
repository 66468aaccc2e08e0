/* kernels/gpu/few.h: what the host and few.cu share: the arguments and the sizes of a block's shared memory. */
#ifndef KERNELS_GPU_FEW_H
#define KERNELS_GPU_FEW_H
#include "kernels/gpu/args.h"
#include "kernels/gpu/pack.h"

enum {
    FEW_WARPS = 16, /* that compute; three more: copies of weights, copies of rows, digits of h */
    FEW_THREADS = (FEW_WARPS + 3) * 32,
    FEW_ROWS_THREADS = 512,
    FEW_SLOTS = 16,                            /* of the ring, at most */
    FEW_BARRIERS = 1024,                       /* bytes of their barriers and of what they hold */
    FEW_ACROSS = 16,                           /* up: blocks of gate, and as many of up, in a slot: one a warp */
    FEW_WEIGHTS = 2 * FEW_ACROSS * PACK_BYTES, /* bytes of a slot before the rows of x or h */
    FEW_X_STRIDE = FEW_ACROSS * PACK_COLS * 2, /* bytes between them */
    FEW_TEAMS = 2,                             /* down: of warps; the slots are theirs in turn */
    FEW_STRIPS = FEW_WARPS / FEW_TEAMS,        /* in a slot: one a warp */
    FEW_DEEP = 4,                              /* blocks of each */
    FEW_H_STRIDE = FEW_DEEP * PACK_COLS * 2,
    FEW_SETS = 1 + FEW_TEAMS, /* of warps that wait for a slot: all, a team */
    FEW_NONE = 0xffff,        /* an expert that does not exist */
    /* What one launch takes at most. */
    FEW_TOKENS = 1024,
    FEW_PAIRS = 8192,
    FEW_EXPERTS = 4096,
};

/* few_one.cu */
enum {
    FEW_TILE = 4, /* tokens of a product, and of a call at most */
    FEW_ONE_PAIRS = 32,
    FEW_ONE_H = 1 << 16,  /* values of h */
    FEW_ONE_COLS = 8192,  /* of x */
    FEW_ONE_BLOCKS = 32,  /* of 16 x 64 weights in a slot */
    FEW_ONE_STATE = 2048, /* bytes */
    /* words */
    FEW_ONE_TURN = 0, /* 0 and 1 from call to call */
    FEW_ONE_LEFT = 2, /* blocks that have all of h */
    FEW_ONE_UP,       /* items that blocks took after their first */
    FEW_ONE_DOWN,     /* [2]: by turn */
    FEW_ONE_WORDS = FEW_ONE_DOWN + 2
};
typedef struct {
    const gpu_u8 *gate, *up, *down; /* of expert 0 */
    gpu_u64 expert_bytes;
    const gpu_bf16 *x, *shared_expert;
    const int *ids;
    const float *weights;
    gpu_bf16 *out;
    gpu_later later; /* of x */
    gpu_after after; /* x not NULL: out is not written */
    /* [2][FEW_ONE_H]: by turn; both, and the words, are zero before the first call, and kept from call to call */
    gpu_u32 *h;
    int *words;
    int n, k, experts, hidden, inter;
    gpu_u64 one_across; /* 2^32 / (inter / 64), rounded up */
    int slots, at_digits,
        at_sums; /* of the ring, which begins at FEW_ONE_STATE; bytes from the begin of shared memory */
    /* feed_one.cu alone: */
    const gpu_bf16 *shared_down; /* [hidden, shared_inter] */
    int shared_inter, at_shared_h;
} gpu_few_one_args;

/* feed_one.cu */
enum {
    FEED_INTER = 512, /* rows of the shared expert's gate, at most */
    FEED_LOGITS = FEW_TILE * GPU_GATE_EXPERTS,
    FEED_WORDS = FEED_LOGITS + FEW_TILE * FEED_INTER,
    FEW_FEED_THREADS = (FEW_WARPS + FEW_TILE) * 32
};
typedef struct {
    gpu_few_one_args few;               /* without ids, weights and shared_expert */
    const gpu_bf16 *router, *gate, *up; /* [experts, hidden]; of the shared expert, [shared_inter, hidden] */
    const float *bias;
    gpu_u32 *words;    /* [2][FEED_WORDS], as few.h: logits [FEW_TILE][GPU_GATE_EXPERTS], h of the shared expert */
    gpu_u64 one_block; /* 2^32 / blocks, rounded up */
    float scale;
    int norm;
} gpu_feed_args;

typedef struct {
    const gpu_u8 *gate, *up, *down; /* of expert 0 */
    gpu_u64 expert_bytes;
    const gpu_bf16 *x;
    const int *ids;
    gpu_u8 *x_digits, *h_digits; /* few_digits.cuh: [n, 2 hidden], [pairs, 2 inter] */
    gpu_later later;             /* of x */
    float *x_scale, *h_scale;    /* [n], [pairs]: a sixteenth of a digit's unit, as the products are of 16 q */
    gpu_u32 *finished;           /* [pairs]: of a group: strips of h that are written, and one more for its digits */
    int *taken;                  /* [2]: items of up and of down that blocks took after their first */
    float *h;                    /* [pairs, inter] */
    float *y;                    /* [pairs, hidden] */
    int k, pairs, experts, hidden, inter;
    int beside; /* x_digits and what is counted come from the launch in front, which has the gate too */
    int slots, slot_bytes, shared; /* shared: bytes of all */
    /* Bytes from the begin of shared memory. */
    int at_sums, at_groups, at_cursor, at_pairs;
} gpu_few_args;

#endif
