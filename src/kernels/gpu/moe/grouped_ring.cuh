/* kernels/gpu/moe/grouped_ring.cuh: what the kernels of experts at many tokens share: a producer warpgroup fills a ring
 * of stages, two consumer warpgroups multiply; tiles in the order in which blocks take them; packed weights and rows
 * of x on their way into a stage.
 *
 * P: a kernel's map of shared memory, in bytes from its begin: STAGES stages of STAGE bytes; from TILES on a tile a
 * stage; NEXT: two numbers of tiles; SEEN: a word a consumer's warp (y_note); BARRIERS: two a stage. */
#ifndef KERNELS_GPU_MOE_GROUPED_RING_CUH
#define KERNELS_GPU_MOE_GROUPED_RING_CUH
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/moe/fp16_range.cuh"
#include "kernels/gpu/device/fp4_expand.cuh"

enum { PRODUCERS = 128, CONSUMERS = 256, ROWS = 256 /* of a tile */, STRIPS = ROWS / PACK_ROWS };
static_assert(PRODUCERS + CONSUMERS == (int)GPU_GROUPED_THREADS, "params.h");

typedef struct {
    pipeline at;
    unsigned char *memory;
    gpu_u32 constant; /* of expanding weights, in a register: gpu_moe_args.bf16_bias */
} ring;

template <class P> static __device__ __forceinline__ ring ring_open(unsigned char *memory, gpu_u32 constant) {
    gpu_u64 *barriers = (gpu_u64 *)(memory + P::BARRIERS);
    return ring{pipeline_begin(barriers, barriers + P::STAGES), memory, constant};
}
/* The whole block. fills: arrivals of a stage's producers. */
template <class P> static __device__ __forceinline__ void ring_init(const ring &r, gpu_u32 fills) {
    if (threadIdx.x < 8) ((gpu_u32 *)(r.memory + P::SEEN))[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        pipeline_init(r.at, P::STAGES, fills, CONSUMERS / 32);
        mbarrier_fence_init();
    }
    __syncthreads();
}
template <class P> static __device__ __forceinline__ unsigned char *ring_stage(const ring &r) {
    return r.memory + r.at.stage * P::STAGE;
}
/* The tile that begins with this stage; .z: its tokens, 0: there is none any more. The rest is the kernel's. */
template <class P> static __device__ __forceinline__ int4 *ring_tile(const ring &r) {
    return (int4 *)(r.memory + P::TILES) + r.at.stage;
}
template <class P> static __device__ __forceinline__ void ring_next(ring &r) { pipeline_next(r.at, P::STAGES); }

/* ---- producers ---- */

/* The number of the next tile, `turn` after the first; coming: what thread 0 got for it, a tile ahead. */
template <class P> static __device__ __forceinline__ int next_tile(const ring &r, int turn, int coming) {
    int *next = (int *)(r.memory + P::NEXT) + turn % 2;
    if (threadIdx.x == 0) *next = (int)gridDim.x + coming;
    named_barrier_sync(3, PRODUCERS);
    return *next;
}

/* There is no tile left. */
template <class P> static __device__ __forceinline__ void ring_end(const ring &r, bool one_more) {
    producer_acquire(r.at);
    if (threadIdx.x == 0) ring_tile<P>(r)->z = 0;
    if (threadIdx.x == 0 && one_more) mbarrier_arrive(pipeline_full(r.at));
    mbarrier_arrive(pipeline_full(r.at));
}

/* Packed weights: 8 threads a strip of 16 rows, 16 bytes at a time. (The copy engine, asked for 576 bytes sixteen times
 * a stage, takes twice as long as the products.) The thread's first piece of a strip that begins with `row`: */
static __device__ __forceinline__ const unsigned char *strip_of(const gpu_matrix &w, gpu_i64 row) {
    row = min64(row, w.rows - PACK_ROWS); /* rows past the end are multiplied and thrown away */
    return (const unsigned char *)w.data + row / PACK_ROWS * (w.cols / PACK_COLS) * PACK_BYTES + threadIdx.x % 8 * 16;
}
/* A block of each strip; `from` goes on to the next. to: where the thread's first piece goes, shared_at(). */
static __device__ __forceinline__ void copy_strips(const unsigned char *&from, gpu_u32 to) {
    cp_async16_at<0, 0>(to, from);
    cp_async16_at<128, 128>(to, from);
    cp_async16_at<256, 256>(to, from);
    cp_async16_at<384, 384>(to, from);
    if (threadIdx.x % 8 < 4) cp_async16_at<512, 512>(to, from);
    from += PACK_BYTES;
}
/* The thread's place among a stage's strips, `bytes` each. */
static __device__ __forceinline__ gpu_u32 strip_place(gpu_u32 bytes) {
    return threadIdx.x / 8 * bytes + threadIdx.x % 8 * 16;
}

/* Every 16th row of x; row: their numbers in units of 16 bytes, every STEP-th of the array. */
template <int I, int ALL, int STEP>
static __device__ __forceinline__ void copy_tokens(gpu_u32 to, const gpu_u8 *x, const gpu_u32 *row, int tokens) {
    if constexpr (I < ALL) {
        if (I * 16 < tokens) cp_async16_at<I * 2048, 0>(to, x + (gpu_u64)row[I * STEP] * 16);
        copy_tokens<I + 1, ALL, STEP>(to, x, row, tokens);
    }
}

/* ---- consumers ---- */

/* The widths of tiles that a kernel is made for, in tokens, ascending. */
template <int... N> struct widths {};
template <int N> struct width { static constexpr int tokens = N; };
/* tile(width<N>(), t) with the narrowest N that has room for t's tokens, for each tile until there is none. */
template <class P, int... N, class TILE>
static __device__ __forceinline__ void consume_tiles(ring &r, widths<N...>, TILE &&tile) {
    for (;;) {
        consumer_wait(r.at);
        const int4 t = *ring_tile<P>(r);
        if (!t.z) break;
        (void)((t.z <= N && (tile(width<N>(), t), true)) || ...);
    }
}

/* Word s of a lane's four. */
static __device__ __forceinline__ gpu_u32 word_of(const uint4 &v, int s) {
    return s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w;
}
/* One word of nibbles as the first operand of mma_bf16; scale: of the word's group, of rows g and g + 8, each twice.
 * One instruction for mask and exponent, which takes at most one constant: the other is in a register. */
static __device__ __forceinline__ void expand_bf16(gpu_u32 word, const gpu_u32 scale[2], gpu_u32 bf16_bias,
                                                   gpu_u32 a[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = two_mul(two_sub((word >> 4 * i & 0x000f000fu) | bf16_bias, 0x43084308u), scale[i % 2]);
}
/* MXFP4's and NVFP4's values are products with their matrix's factor yet: gate's, and up's with down's, so that h has
 * it. Where stage 1 has such weights a tile names its expert beside its rows. */
enum { TILE_ROW_BITS = 12 };
static __device__ __forceinline__ int row_and_expert(int row_tile, int expert) {
    return row_tile | expert << TILE_ROW_BITS;
}
static __device__ __forceinline__ int row_tile_of(int both) { return both & ((1 << TILE_ROW_BITS) - 1); }
template <int VALUES>
static __device__ __forceinline__ void multiply_factors(const gpu_matrix *experts, int both, float *gate, float *up) {
    const gpu_matrix *m = experts + 3 * (gpu_i64)(both >> TILE_ROW_BITS);
    const float of_gate = m[0].factor, of_up = m[1].factor * m[2].factor;
#pragma unroll
    for (int i = 0; i < VALUES; i++) gate[i] *= of_gate, up[i] *= of_up;
}
static __device__ __forceinline__ float silu_fast(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

#endif
