/* kernels/gpu/moe/sort.cu: a counting sort of (token, slot) pairs by expert.
 *
 * It moves few bytes (8 a pair) and is bound by latency at decode sizes, so it takes few steps: 32 pairs are ranked at
 * a time. The result depends on the ids alone: no atomics. */
#include "kernels/gpu/device/math.cuh"

/* A block takes 256 pairs a warp, in order, 32 at a time; `seen[w][e]` counts warp w's pairs of expert e. Within 32,
 * equal ids find each other with a match, and the first of them adds for all. */
enum { SORT_STEPS = 8 };

/* A lane's pairs: their ids, -1 for none, and the lanes with the same id. */
typedef struct {
    gpu_i64 first; /* the warp's */
    int steps;     /* of 32 pairs */
    int id[SORT_STEPS];
    gpu_u32 same[SORT_STEPS];
} sort_pairs;

template <int WARPS> static __device__ inline void load_pairs(const gpu_sort_args &a, sort_pairs &p) {
    gpu_i64 first = (gpu_i64)blockIdx.x * (WARPS * 32 * SORT_STEPS),
            left = min64(a.pairs - first, WARPS * 32 * SORT_STEPS);
    p.steps = (int)(left + WARPS * 32 - 1) / (WARPS * 32);
    p.first = first + threadIdx.x / 32 * 32 * p.steps;
#pragma unroll
    for (int i = 0; i < SORT_STEPS; i++) {
        gpu_i64 at = p.first + 32 * i + threadIdx.x % 32;
        p.id[i] = i < p.steps && at < a.pairs ? a.ids[at] : -1;
    }
#pragma unroll
    for (int i = 0; i < SORT_STEPS; i++) {
        if (i == p.steps) break;
        if (p.id[i] >= a.experts || p.id[i] < 0) p.id[i] = -1;
        p.same[i] = __match_any_sync(~0u, p.id[i]);
    }
}

static __device__ inline gpu_u32 lanes_before(void) { return (1u << threadIdx.x % 32) - 1; }

/* seen[w][e] = pairs of expert e in warp w's stretch. */
template <int WARPS>
static __device__ inline void count_pairs(const gpu_sort_args &a, const sort_pairs &p, unsigned short *seen) {
    unsigned short *mine = seen + threadIdx.x / 32 * a.experts;
    for (gpu_i64 i = threadIdx.x; i < WARPS * a.experts / 2; i += WARPS * 32) ((gpu_u32 *)seen)[i] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SORT_STEPS; i++) {
        if (i == p.steps) break;
        if (p.id[i] >= 0 && !(p.same[i] & lanes_before())) mine[p.id[i]] += (unsigned short)__popc(p.same[i]);
        __syncwarp();
    }
    __syncthreads();
}

/* The sum of v over the threads before this one; *all: over all of them. */
template <int WARPS> static __device__ inline int block_before(int v, int *all) {
    __shared__ int each[WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = v;
    for (int d = 1; d < 32; d *= 2) {
        int o = __shfl_sync(~0u, sum, lane >= d ? lane - d : lane);
        if (lane >= d) sum += o;
    }
    __syncthreads();
    if (lane == 31) each[warp] = sum;
    __syncthreads();
    int before = sum - v;
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += each[w];
        *all += each[w];
    }
    return before;
}

/* first[e] = pairs of the experts before e, from first[e] = pairs of e. One block also writes count and start. */
template <int WARPS> static __device__ inline void find_starts(const gpu_sort_args &a, int *first, bool writes) {
    int per = (int)(a.experts + WARPS * 32 - 1) / (WARPS * 32), from = threadIdx.x * per, sum = 0, all;
    int end = from + per < a.experts ? from + per : (int)a.experts;
    for (int e = from; e < end; e++) sum += first[e];
    int at = block_before<WARPS>(sum, &all);
    for (int e = from; e < end; e++) {
        int n = first[e];
        first[e] = at;
        if (writes) {
            a.count[e] = n;
            a.start[e] = at;
        }
        at += n;
    }
    if (writes && threadIdx.x == 0) a.start[a.experts] = all;
}

/* list: warp w puts its pairs of e from first[e] + seen[w][e] on. */
static __device__ inline void place_pairs(const gpu_sort_args &a, const sort_pairs &p, const int *first,
                                          unsigned short *seen) {
    unsigned short *mine = seen + threadIdx.x / 32 * a.experts;
#pragma unroll
    for (int i = 0; i < SORT_STEPS; i++) {
        if (i == p.steps) break;
        int id = p.id[i], before = __popc(p.same[i] & lanes_before());
        if (id >= 0) a.list[first[id] + mine[id] + before] = (int)(p.first + 32 * i + threadIdx.x % 32);
        __syncwarp();
        if (id >= 0 && !before) mine[id] += (unsigned short)__popc(p.same[i]);
        __syncwarp();
    }
}

/* seen[w][e] = pairs of e in the warps before w; returns those of all warps. */
template <int WARPS> static __device__ inline int add_warps(const gpu_sort_args &a, unsigned short *seen, int e) {
    int sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        int n = seen[w * a.experts + e];
        seen[w * a.experts + e] = (unsigned short)sum;
        sum += n;
    }
    return sum;
}

/* All of it in one block, for up to GPU_SORT_FEW pairs. Shared memory: int [experts], unsigned short
 * [warps][experts]. */
template <int WARPS> static __device__ inline void sort_at_once(const gpu_sort_args &a, int *first) {
    unsigned short *seen = (unsigned short *)(first + a.experts);
    sort_pairs p;
    load_pairs<WARPS>(a, p);
    count_pairs<WARPS>(a, p, seen);
    for (int e = threadIdx.x; e < a.experts; e += WARPS * 32) first[e] = add_warps<WARPS>(a, seen, e);
    __syncthreads();
    find_starts<WARPS>(a, first, true);
    __syncthreads();
    place_pairs(a, p, first, seen);
}
KERNEL(sort_few, gpu_sort_args) {
    SHARED_MEMORY(int, first);
    sort_at_once<GPU_WARPS>(a, first);
}
KERNEL_OF(sort_more, gpu_sort_args, GPU_SORT_THREADS, 1) {
    SHARED_MEMORY(int, first);
    sort_at_once<GPU_SORT_THREADS / 32>(a, first);
}

/* part[block][e] = pairs of expert e in the block's GPU_SORT_BLOCK pairs. */
KERNEL(sort_count, gpu_sort_args) {
    SHARED_MEMORY(int, first);
    unsigned short *seen = (unsigned short *)(first + a.experts);
    sort_pairs p;
    load_pairs<GPU_WARPS>(a, p);
    count_pairs<GPU_WARPS>(a, p, seen);
    for (int e = threadIdx.x; e < a.experts; e += GPU_THREADS)
        a.part[blockIdx.x * a.experts + e] = add_warps<GPU_WARPS>(a, seen, e);
}

/* part[b][e] = pairs of e in the blocks before b; count[e]. A lane an expert, a warp a stretch of the blocks. */
KERNEL(sort_add, gpu_sort_args) {
    __shared__ int each[GPU_WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = 0;
    gpu_i64 e = (gpu_i64)blockIdx.x * 32 + lane, per = (a.blocks + GPU_WARPS - 1) / GPU_WARPS, from = warp * per,
            end = min64(from + per, a.blocks);
    if (e < a.experts)
        for (gpu_i64 b = from; b < end; b++) sum += a.part[b * a.experts + e];
    each[warp][lane] = sum;
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < GPU_WARPS; w++) {
        if (w < warp) before += each[w][lane];
        all += each[w][lane];
    }
    if (e >= a.experts) return;
    if (warp == 0) a.count[e] = all;
#pragma unroll 4
    for (gpu_i64 b = from; b < end; b++) {
        int n = a.part[b * a.experts + e];
        a.part[b * a.experts + e] = before;
        before += n;
    }
}

KERNEL(sort_place, gpu_sort_args) {
    SHARED_MEMORY(int, first);
    unsigned short *seen = (unsigned short *)(first + a.experts);
    sort_pairs p;
    load_pairs<GPU_WARPS>(a, p);
    count_pairs<GPU_WARPS>(a, p, seen);
    for (int e = threadIdx.x; e < a.experts; e += GPU_THREADS) add_warps<GPU_WARPS>(a, seen, e), first[e] = a.count[e];
    __syncthreads();
    find_starts<GPU_WARPS>(a, first, blockIdx.x == 0);
    __syncthreads();
    for (int e = threadIdx.x; e < a.experts; e += GPU_THREADS) first[e] += a.part[blockIdx.x * a.experts + e];
    __syncthreads();
    place_pairs(a, p, first, seen);
}
