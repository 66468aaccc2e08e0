/* kernels/gpu/gemm/skinny_few.cu: y[n, rows] = x[n, cols] W^T for up to 4 rows of x and weights in BF16, where tiles of
 * 16, 32 or 64 rows are about as many as multiprocessors: a block a tile, all columns, and nobody meets.
 *
 * Bytes: the weights once, 2 * rows * cols, which bounds it; x, whole, once a tile, from the second-level cache.
 *
 * One lane asks for everything: weights in boxes of 8 KB by the copy engine, as many as the ring holds before the
 * kernel in front has ended, then x, a row a copy. A single row of x comes by the threads that multiply, and the first
 * boxes a few at a time: 2 % of a step of one sequence (docs/lab/2026-12-01-first-boxes.md).
 * Eight warps multiply (mma.sync): of a box's sixteen squares of 16 rows by 16 columns each has two, of the same rows;
 * the warps' sums meet in shared memory, in their order. In
 * skinny_splitk.cu what is there already takes 185 ns for 9 KB: 128 threads tell a barrier of it, and products of wgmma
 * follow each other slowly (docs/lab/2026-12-01-blocks-seen.md).
 *
 * add (params.h, gpu_after), deferred: as there. */
#include "kernels/gpu/block_marks.h"
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"

enum {
    MULTIPLIERS = GPU_THREADS,
    BOX = 8192,
    /* One row of x: of the first PACED boxes AT_FIRST are under way at once, fewer than the ring has stages. The memory
     * brings as much, and neither the news that the kernel in front has ended nor x wait behind 96 KB a block. */
    AT_FIRST = 4,
    PACED = 9
};

typedef struct {
    gpu_u64 full[SKINNY_FEW_STAGES], empty[SKINNY_FEW_STAGES], x_full;
    float scales[SKINNY_FEW_ROWS], squares[GPU_WARPS];
    float sums[GPU_WARPS][4][32];
} skinny_few_state;
static_assert(sizeof(skinny_few_state) <= SKINNY_FEW_STATE, "params.h");

typedef struct {
    int part, row; /* first of the tile, in the part */
} skinny_few_at;
static __device__ inline skinny_few_at skinny_few_find(const gpu_skinny_few_args &a, int rows) {
    int part = 0, tile = blockIdx.x;
    while (tile >= a.part[part].tiles) part++;
    return {part, (part ? tile - a.part[part - 1].tiles : tile) * rows};
}

/* x lies there as here, rows a.x_pitch bytes apart: they meet no bank twice. One row comes by the threads that
 * multiply, more by the copy engine. */
static __device__ inline void skinny_few_one_row(const gpu_skinny_few_args &a, unsigned char *x) {
    for (int i = threadIdx.x; i < a.cols / 8; i += MULTIPLIERS) cp_async16(x + i * 16, a.x + i * 8);
    cp_async_commit();
}
static __device__ inline void skinny_few_rows(const gpu_skinny_few_args &a, skinny_few_state *s, unsigned char *x) {
    fence_async_global(); /* of what the kernels before have written */
    mbarrier_expect(&s->x_full, (gpu_u32)(a.n * a.cols * 2));
    for (int i = 0; i < a.n; i++) tma_bulk(x + i * a.x_pitch, a.x + i * a.x_stride, (gpu_u32)a.cols * 2, &s->x_full);
}

/* Box b of the tile, into the ring's next stage. */
template <int GROUPS>
static __device__ inline void skinny_few_ask_for(const gpu_skinny_few_args &a, const skinny_few_at &at,
                                                 unsigned char *ring, int b, pipeline &p) {
    enum { UNITS = 4 / GROUPS };
    mbarrier_expect(pipeline_full(p), BOX);
    tma_load_once(ring + p.stage * BOX, &a.map[at.part], 0, at.row, b * UNITS, pipeline_full(p));
    pipeline_next(p, a.stages);
}

template <int GROUPS>
static __device__ inline void skinny_few_ask(const gpu_skinny_few_args &a, skinny_few_state *s, unsigned char *ring,
                                             unsigned char *x) {
    const skinny_few_at at = skinny_few_find(a, 16 * GROUPS);
    const int ahead = a.boxes < a.stages ? a.boxes : a.stages;
    pipeline p = pipeline_begin(s->full, s->empty);
    for (int b = 0; b < ahead; b++) skinny_few_ask_for<GROUPS>(a, at, ring, b, p);
    pdl_wait();
    skinny_few_rows(a, s, x);
    for (int b = ahead; b < a.boxes; b++) {
        producer_acquire(p);
        skinny_few_ask_for<GROUPS>(a, at, ring, b, p);
    }
}

/* The same of one row of x, which others ask for. */
template <int GROUPS>
static __device__ inline void skinny_few_ask_paced(const gpu_skinny_few_args &a, skinny_few_state *s,
                                                   unsigned char *ring) {
    const skinny_few_at at = skinny_few_find(a, 16 * GROUPS);
    pipeline p = pipeline_begin(s->full, s->empty), there = p;
    for (int b = 0; b < a.boxes; b++) {
        if (b >= AT_FIRST && b < PACED) {
            consumer_wait(there);
            pipeline_next(there, a.stages);
        }
        if (b >= a.stages) producer_acquire(p);
        skinny_few_ask_for<GROUPS>(a, at, ring, b, p);
    }
}

/* One value: what the warps that have its row came to, in their order. */
template <int GROUPS> static __device__ inline float skinny_few_sum(const skinny_few_state *s, int row, int token) {
    int group = row / 16, lane = row % 8 * 4 + token / 2, v = row % 16 / 8 * 2 + token % 2;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < GPU_WARPS / GROUPS; w++) sum += s->sums[group + w * GROUPS][v][lane];
    return sum;
}

template <int GROUPS, bool AFTER>
static __device__ inline void skinny_few(const gpu_skinny_few_args &a, unsigned char *memory, block_times *times) {
    enum { ROWS = 16 * GROUPS };
    unsigned char *ring = memory, *x = ring + a.stages * BOX;
    skinny_few_state *s = (skinny_few_state *)(memory + a.state);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    pipeline p = pipeline_begin(s->full, s->empty);
    if (threadIdx.x == 0) {
        pipeline_init(p, a.stages, 1, GPU_WARPS);
        mbarrier_init(&s->x_full, 1);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp == GPU_WARPS) {
        if (lane == 0 && a.n == 1) skinny_few_ask_paced<GROUPS>(a, s, ring);
        if (lane == 0 && a.n > 1) skinny_few_ask<GROUPS>(a, s, ring, x);
        return;
    }
    const skinny_few_at at = skinny_few_find(a, ROWS);
    const gpu_skinny_part &part = a.part[at.part];
    /* the value that this thread writes: threads are as many as 64 rows times four */
    int row = threadIdx.x % ROWS, token = threadIdx.x / ROWS, r = at.row + row;
    float weight = AFTER && r < part.rows ? a.after.weight[r] : 0.0f;
    gpu_bf16 x_old = {};
    pdl_wait();
    if (a.n == 1) skinny_few_one_row(a, x);
    block_mark(times, SKINNY_WAITED);
    if (AFTER && r < part.rows && token < a.n) x_old = a.after.x[token * part.rows + r];
    if (!AFTER && a.deferred.squares && warp < a.n) {
        float scale = deferred_scale(a.deferred, warp);
        if (lane == 0) s->scales[warp] = scale;
    }
    float sums[2][4] = {};
    int group = warp % GROUPS, step = warp / GROUPS, second = step + 8 / GROUPS;
    /* of a box, a square's place; of x, a token's columns for both steps */
    gpu_u32 w0 = (step / 4 * ROWS + group * 16) * 128 + swizzled(lane % 16, step % 4 * 2 + lane / 16),
            w1 = (second / 4 * ROWS + group * 16) * 128 + swizzled(lane % 16, second % 4 * 2 + lane / 16);
    const unsigned char *of_x =
        x + (lane % 8 < a.n ? lane % 8 : 0) * a.x_pitch + (lane < 16 ? step : second) * 32 + lane / 8 % 2 * 16;
    if (a.n == 1) {
        cp_async_wait<0>();
        named_barrier_sync(1, MULTIPLIERS);
    } else
        mbarrier_wait(&s->x_full, 0);
    if (times) consumer_wait(p);
    block_mark(times, SKINNY_FIRST);
#pragma unroll 2
    for (int b = 0; b < a.boxes; b++) {
        const unsigned char *box = ring + p.stage * BOX;
        gpu_u32 m0[4], m1[4], v[4];
        consumer_wait(p);
        ldmatrix4(m0, box + w0);
        ldmatrix4(m1, box + w1);
        ldmatrix4(v, of_x + b * (512 / GROUPS));
        mma_bf16(sums[0], m0, v);
        mma_bf16(sums[1], m1, v + 2);
        __syncwarp();
        if (lane == 0) consumer_release(p);
        pipeline_next(p, a.stages);
    }
    block_mark(times, SKINNY_PRODUCTS);
#pragma unroll
    for (int i = 0; i < 4; i++) s->sums[warp][i][lane] = sums[0][i] + sums[1][i];
    named_barrier_sync(1, MULTIPLIERS);
    block_mark(times, SKINNY_MET);
    bool here = token < a.n && r < part.rows;
    float v = here ? skinny_few_sum<GROUPS>(s, row, token) : 0.0f;
    if constexpr (AFTER) {
        float square = 0;
        if (here) {
            gpu_bf16 sum = bf16_of(f32_of(x_old) + f32_of(bf16_of(v)));
            float f = f32_of(sum);
            a.after.x[token * part.rows + r] = sum;
            a.after.out[token * part.rows + r] = bf16_of(f * weight);
            square = f * f;
        }
        for (int d = 1; d < 32 && d < ROWS; d *= 2) square += __shfl_xor_sync(~0u, square, d);
        if (ROWS > 32) { /* of two warps */
            if (lane == 0) s->squares[warp] = square;
            named_barrier_sync(1, MULTIPLIERS);
            square = s->squares[warp] + s->squares[warp ^ 1];
        }
        if (row == 0 && token < a.n) a.after.squares[token * GPU_DEFERRED_PARTS + blockIdx.x] = square;
    } else if (here) {
        if (a.deferred.squares) v *= s->scales[token];
        if (part.y_type == GPU_F32)
            ((float *)part.y)[token * part.y_stride + r] = v;
        else
            ((gpu_bf16 *)part.y)[token * part.y_stride + r] = bf16_of(v);
    }
}

/* Grid: a block a tile. Shared memory: the ring [stages][8 KB], x [n][x_pitch], the state. */
#define SKINNY_FEW(rows)                                                                                               \
    KERNEL_PDL(skinny_few_##rows, gpu_skinny_few_args, SKINNY_FEW_THREADS, 1) {                                        \
        SHARED_TILES(memory);                                                                                          \
        skinny_few<rows / 16, false>(a, memory, times);                                                                \
    }                                                                                                                  \
    KERNEL_PDL(skinny_few_residual_##rows, gpu_skinny_few_args, SKINNY_FEW_THREADS, 1) {                               \
        SHARED_TILES(memory);                                                                                          \
        skinny_few<rows / 16, true>(a, memory, times);                                                                 \
    }
SKINNY_FEW(16)
SKINNY_FEW(32)
SKINNY_FEW(64)
