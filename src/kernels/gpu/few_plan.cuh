/* kernels/gpu/few_plan.cuh: a block's view of few.cu's call, and how each block sorts the pairs by itself. */
#ifndef KERNELS_GPU_FEW_PLAN_CUH
#define KERNELS_GPU_FEW_PLAN_CUH
#include "kernels/gpu/few.h"
#include "kernels/gpu/hopper.cuh"

typedef struct {
    gpu_u8 *ring;
    gpu_u64 *full;        /* [FEW_SETS][FEW_SLOTS]: weights and rows are there, for those warps */
    gpu_u64 *empty;       /* [FEW_SLOTS] */
    gpu_u64 *open;        /* [FEW_SLOTS]: the copier of weights has begun: the slot's item is known */
    gpu_u64 *done, *seen; /* [2] each: an item of up is in memory; the digits' warp has looked at it */
    int *items;           /* [FEW_SLOTS]; -1: no item any more */
    int *said;            /* [2]: the item that is done */
    float *sums;
    int2 *groups;                 /* expert; first in the list << 8 | how many */
    unsigned short *pair, *token; /* of the list, which is sorted by expert */
    int *cursor;                  /* [experts] */
    int n_groups;
} few_block;

static __device__ inline few_block few_memory(const gpu_few_args &a) {
    SHARED_TILES(memory);
    few_block b;
    b.full = (gpu_u64 *)memory, b.empty = b.full + FEW_SETS * FEW_SLOTS, b.open = b.empty + FEW_SLOTS;
    b.done = b.open + FEW_SLOTS, b.seen = b.done + 2;
    b.items = (int *)(b.seen + 2), b.said = b.items + FEW_SLOTS;
    b.ring = memory + FEW_BARRIERS;
    b.sums = (float *)(memory + a.at_sums);
    b.groups = (int2 *)(memory + a.at_groups);
    b.cursor = (int *)(memory + a.at_cursor);
    b.pair = (unsigned short *)(memory + a.at_pairs), b.token = b.pair + a.pairs;
    return b;
}

/* Pairs and groups of the experts of all threads before this one, `each` a thread, and of all. */
template <int T>
static __device__ inline int2 before_me(const gpu_few_args &a, const few_block &b, int each, int2 *total) {
    int2 *warps = (int2 *)b.sums, mine = {0, 0}, sum;
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    for (int e = thread * each; warp < FEW_WARPS && e < thread * each + each && e < a.experts; e++)
        mine.x += b.cursor[e], mine.y += (b.cursor[e] + T - 1) / T;
    sum = mine;
    for (int d = 1; d < 32; d *= 2) {
        int2 other = {__shfl_up_sync(~0u, sum.x, d), __shfl_up_sync(~0u, sum.y, d)};
        if (lane >= d) sum.x += other.x, sum.y += other.y;
    }
    if (lane == 31 && warp < FEW_WARPS) warps[warp] = sum;
    __syncthreads();
    *total = {0, 0};
    for (int w = 0; w < FEW_WARPS; w++) {
        if (w == warp) sum.x += total->x, sum.y += total->y;
        total->x += warps[w].x, total->y += warps[w].y;
    }
    return {sum.x - mine.x, sum.y - mine.y};
}

/* b.cursor is zero. */
template <int T> static __device__ inline void few_plan(const gpu_few_args &a, few_block &b) {
    unsigned short *ids = (unsigned short *)b.ring /* not yet in use */, *unsorted = ids + a.pairs;
    for (int p = threadIdx.x; p < a.pairs; p += FEW_THREADS) {
        int id = a.ids[p];
        bool valid = id >= 0 && id < a.experts;
        ids[p] = (unsigned short)(valid ? id : (int)FEW_NONE);
        if (valid) atomicAdd(&b.cursor[id], 1);
    }
    __syncthreads();
    int each = (a.experts + FEW_WARPS * 32 - 1) / (FEW_WARPS * 32);
    int2 total, at = before_me<T>(a, b, each, &total);
    b.n_groups = total.y;
    for (int e = threadIdx.x * each;
         threadIdx.x < FEW_WARPS * 32 && e < (int)threadIdx.x * each + each && e < a.experts; e++) {
        int count = b.cursor[e];
        b.cursor[e] = at.x;
        for (int i = 0; i < count; i += T) b.groups[at.y++] = {e, (at.x + i) << 8 | (count - i < T ? count - i : T)};
        at.x += count;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < a.pairs; p += FEW_THREADS)
        if (ids[p] != FEW_NONE) unsorted[atomicAdd(&b.cursor[ids[p]], 1)] = (unsigned short)p;
    __syncthreads();
    /* An expert's pairs in ascending order: all blocks must make the same groups. A cursor is at the end of its list
     * by now. */
    for (int i = threadIdx.x; i < total.x; i += FEW_THREADS) {
        int p = unsorted[i], e = ids[p], from = e ? b.cursor[e - 1] : 0, to = b.cursor[e], place = from;
        for (int j = from; j < to; j++) place += unsorted[j] < p;
        b.pair[place] = (unsigned short)p;
        b.token[place] = (unsigned short)(p / a.k);
    }
    fence_async(); /* copies come where ids were */
    __syncthreads();
}

#endif
