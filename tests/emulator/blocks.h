/* tests/emulator/blocks.h: the inside of the emulator: a block of threads, and who runs it. */
#ifndef EMULATOR_BLOCKS_H
#define EMULATOR_BLOCKS_H
#include "emulate.h"

enum {
    THREADS = 1024 /* at most */,
    LANES = 32,
    WARPS = THREADS / LANES,
    STACK = (128 << 10) + 576 /* tops that share no set of a cache */,
    SHARED = 232448,
    BARRIERS = 16,
    B_ROW = 2 * 256 + 16 /* rows that share no set of a cache */
};
enum state { READY, WAITING, DONE };

struct fiber {
    void *sp;
    state is;
    int barrier; /* named barrier that it waits at, 0: none */
};
struct meeting { /* a barrier: who lives, who has come */
    int alive, come;
};

/* Words that threads give each other: two sets in turns, so that one barrier an exchange is enough, each with the
 * number of the exchange it was given in, since the dead give nothing. */
struct letter {
    unsigned turn, word; /* together, as they are read */
};
struct mailbox {
    letter given[2][THREADS];
    unsigned turn[THREADS];
};

/* A warp's product: what its first lane has done the others use. */
struct tile_values {
    unsigned product;   /* which one of the warp: products[] of its lanes */
    float a[16][16];    /* [k, row] */
    float b[16][B_ROW]; /* of wgmma [k], as put_column() has the columns */
    int bytes_a[32][16], bytes_b[32][B_ROW];
    float c[16][8]; /* of mma the product, [row, column] */
    int bytes_c[16][8];
};

/* A lane's registers of a product. */
struct operands {
    unsigned a[4], b[2];
    float c[4];
};

struct block {
    fiber fibers[THREADS];
    int threads; /* of them */
    meeting all, warps[WARPS];
    bool turned[WARPS];  /* lanes run from the last one to the first */
    int named[BARRIERS]; /* how many have come */
    bool moved;          /* somebody did more than look at a barrier, in this pass */
    mailbox of_warps, of_all;
    letter reduced[WARPS];               /* what a warp's last warp_sum() or warp_max() came to */
    operands given_operands[2][THREADS]; /* of mma and wgmma, in turns */
    unsigned products[THREADS];
    const char *rows[2][THREADS]; /* of ldmatrix4, in turns */
    tile_values values[WARPS];
    unsigned shared_bytes;
    void *scheduler; /* its stack pointer */
    int running;
    void (*kernel)(const void *);
    const void *args;
    char *stacks, *shared;
};
enum { CLUSTER = 8, OF_CLUSTER = BARRIERS /* in fiber.barrier */ };

#define INSIDE __attribute__((visibility("hidden")))
extern INSIDE __thread block *blk;              /* the running one */
extern INSIDE __thread block *members[CLUSTER]; /* all of its cluster */

/* blocks.cc: a cluster of n blocks, or one block; they differ in x. Each has been opened. */
INSIDE void run_blocks(int n, emu_dim3 first, emu_dim3 grid);
/* Does every thread of the process that runs blocks have its own. */
INSIDE block *open_block(int i);
/* A kernel did what a GPU would not: says so, and ends the process. */
[[noreturn]] INSIDE void broken(const char *what);

/* A tensor map, as cuTensorMapEncodeTiled() makes it and tma_load() reads it. */
struct tensor {
    const char *at;
    unsigned long long sizes[3], strides[2];
    unsigned box[3];
};
static_assert(sizeof(tensor) <= 128, "a tensor map has 128 bytes");

#endif
