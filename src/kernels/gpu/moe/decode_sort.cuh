/* kernels/gpu/moe/decode_sort.cuh: a block's view of decode_int4.cu's call, and how each block sorts the pairs by
 * itself. */
#ifndef KERNELS_GPU_MOE_DECODE_SORT_CUH
#define KERNELS_GPU_MOE_DECODE_SORT_CUH
#include "kernels/gpu/moe/decode_int4.h"
#include "kernels/gpu/device/sm90.cuh"

typedef struct {
    gpu_u8 *ring;
    gpu_u64 *full;        /* [DECODE_INT4_SETS][DECODE_INT4_SLOTS]: weights and rows are there, for those warps */
    gpu_u64 *empty;       /* [DECODE_INT4_SLOTS] */
    gpu_u64 *open;        /* [DECODE_INT4_SLOTS]: the copier of weights has begun: the slot's item is known */
    gpu_u64 *done, *seen; /* [2] each: an item of up is in memory; the digits' warp has looked at it */
    int *items;           /* [DECODE_INT4_SLOTS]; -1: no item any more */
    int *said;            /* [2]: the item that is done */
    float *sums;
    int2 *groups;                 /* expert; first in the list << 8 | how many */
    unsigned short *pair, *token; /* of the list, which is sorted by expert */
    int *cursor;                  /* [experts] */
    int n_groups;
} decode_int4_block;

static __device__ inline decode_int4_block decode_int4_memory(const gpu_decode_int4_args &a) {
    SHARED_TILES(memory);
    decode_int4_block b;
    b.full = (gpu_u64 *)memory, b.empty = b.full + DECODE_INT4_SETS * DECODE_INT4_SLOTS,
    b.open = b.empty + DECODE_INT4_SLOTS;
    b.done = b.open + DECODE_INT4_SLOTS, b.seen = b.done + 2;
    b.items = (int *)(b.seen + 2), b.said = b.items + DECODE_INT4_SLOTS;
    b.ring = memory + DECODE_INT4_BARRIERS;
    b.sums = (float *)(memory + a.at_sums);
    b.groups = (int2 *)(memory + a.at_groups);
    b.cursor = (int *)(memory + a.at_cursor);
    b.pair = (unsigned short *)(memory + a.at_pairs), b.token = b.pair + a.pairs;
    return b;
}

/* Pairs and groups of the experts of all threads before this one, `each` a thread, and of all. */
template <int T>
static __device__ inline int2 before_me(const gpu_decode_int4_args &a, const decode_int4_block &b, int each,
                                        int2 *total) {
    int2 *warps = (int2 *)b.sums, mine = {0, 0}, sum;
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    for (int e = thread * each; warp < DECODE_INT4_WARPS && e < thread * each + each && e < a.experts; e++)
        mine.x += b.cursor[e], mine.y += (b.cursor[e] + T - 1) / T;
    sum = mine;
    for (int d = 1; d < 32; d *= 2) {
        int2 other = {__shfl_up_sync(~0u, sum.x, d), __shfl_up_sync(~0u, sum.y, d)};
        if (lane >= d) sum.x += other.x, sum.y += other.y;
    }
    if (lane == 31 && warp < DECODE_INT4_WARPS) warps[warp] = sum;
    __syncthreads();
    *total = {0, 0};
    for (int w = 0; w < DECODE_INT4_WARPS; w++) {
        if (w == warp) sum.x += total->x, sum.y += total->y;
        total->x += warps[w].x, total->y += warps[w].y;
    }
    return {sum.x - mine.x, sum.y - mine.y};
}

/* b.cursor is zero. */
template <int T> static __device__ inline void decode_sort(const gpu_decode_int4_args &a, decode_int4_block &b) {
    unsigned short *ids = (unsigned short *)b.ring /* not yet in use */, *unsorted = ids + a.pairs;
    for (int p = threadIdx.x; p < a.pairs; p += DECODE_INT4_THREADS) {
        int id = a.ids[p];
        bool valid = id >= 0 && id < a.experts;
        ids[p] = (unsigned short)(valid ? id : (int)DECODE_INT4_NONE);
        if (valid) atomicAdd(&b.cursor[id], 1);
    }
    __syncthreads();
    int each = (a.experts + DECODE_INT4_WARPS * 32 - 1) / (DECODE_INT4_WARPS * 32);
    int2 total, at = before_me<T>(a, b, each, &total);
    b.n_groups = total.y;
    for (int e = threadIdx.x * each;
         threadIdx.x < DECODE_INT4_WARPS * 32 && e < (int)threadIdx.x * each + each && e < a.experts; e++) {
        int count = b.cursor[e];
        b.cursor[e] = at.x;
        for (int i = 0; i < count; i += T) b.groups[at.y++] = {e, (at.x + i) << 8 | (count - i < T ? count - i : T)};
        at.x += count;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < a.pairs; p += DECODE_INT4_THREADS)
        if (ids[p] != DECODE_INT4_NONE) unsorted[atomicAdd(&b.cursor[ids[p]], 1)] = (unsigned short)p;
    __syncthreads();
    /* An expert's pairs in ascending order: all blocks must make the same groups. A cursor is at the end of its list
     * by now. */
    for (int i = threadIdx.x; i < total.x; i += DECODE_INT4_THREADS) {
        int p = unsorted[i], e = ids[p], from = e ? b.cursor[e - 1] : 0, to = b.cursor[e], place = from;
        for (int j = from; j < to; j++) place += unsorted[j] < p;
        b.pair[place] = (unsigned short)p;
        b.token[place] = (unsigned short)(p / a.k);
    }
    fence_async(); /* copies come where ids were */
    __syncthreads();
}

#endif
