/* kernels/gpu/gemm/skinny_splitk.cu: y[n, rows] = x[n, cols] W^T for up to 64 rows of x and weights in BF16, as
 * decoding steps have them, on wgmma.
 *
 * Bytes: the weights once, 2 * rows * cols, which bounds it; x once for every tile of a weight's rows, from the L2
 * cache.
 *
 * Units are a tile's rows times 64 columns. Two warps load weights, under way before the kernel in front has ended,
 * and two load x (cp.async, counted by a barrier a stage); two warpgroups multiply from shared memory in the
 * 128-byte swizzle, the weight being wgmma's first operand.
 *
 * thin: tiles of 64 rows; each warpgroup takes half of a unit's columns. A tile's units are shared out among the
 * blocks of a cluster, which add their sums in shared memory, in the order of the blocks, each a part of the tile:
 * the fastest up to 32 rows of x. slab: tiles of 128 rows, half for each warpgroup (gate and up for swiglu), which
 * reads x half as often. All units of all tiles are shared out equally; blocks that share a tile leave their sums in
 * memory, and the last to come adds them in their order. add: thin, whose sums go to the residual stream, and what
 * the norm behind it needs beside its scale (params.h, gpu_after). gate: thin, and behind its blocks others that
 * choose the experts (gate.cuh), a warp a token: neither waits for the other. Which sums are added in which order
 * depends on the shapes, and on which of 8, 16, 32, 64 rows of x n needs. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/moe/gate_fused.cuh"
#include "kernels/gpu/block_marks.h"

enum {
    HALF = 64,    /* rows of a warpgroup, columns of a unit */
    LOADERS = 64, /* threads behind the GPU_THREADS that multiply, which load weights; as many load x */
    STEP = LOADERS / 8
};

typedef struct {
    int part;
    gpu_i64 row, rows, head; /* first row, rows there are */
} skinny_at;

template <int ROWS> static __device__ inline skinny_at skinny_find_tile(const gpu_skinny_args &a, int tile) {
    skinny_at at = {0, 0, 0, 0};
    while (tile >= a.part[at.part].tiles) at.part++;
    if (at.part) tile -= a.part[at.part - 1].tiles;
    at.head = tile / a.head_tiles;
    at.row = (gpu_i64)(tile % a.head_tiles) * (a.part[at.part].up ? ROWS / 2 : ROWS);
    at.rows = a.part[at.part].rows;
    return at;
}

/* The first unit of block b, and the block that has unit u. */
static __device__ inline int first_unit(const gpu_skinny_args &a, gpu_i64 b) { return (int)(b * a.all / a.blocks); }
static __device__ inline int skinny_block_of(const gpu_skinny_args &a, gpu_i64 u) {
    return (int)(((u + 1) * a.blocks - 1) / a.all);
}

typedef struct {
    gpu_u64 full[SKINNY_STAGES_MOST], empty[SKINNY_STAGES_MOST];
    int flag[4];
} skinny_state;
enum { SCALES = 256 /* bytes of skinny_state before float [TOKENS]: what rows of x have yet to be multiplied by */ };
static_assert(sizeof(skinny_state) <= SCALES && SCALES + GPU_SKINNY * 4 <= SKINNY_STATE, "params.h");
static __device__ inline float *skinny_scales_of(skinny_state *state) {
    return (float *)((unsigned char *)state + SCALES);
}

/* By the loaders, when all of their copies are on the way: so the sums that this needs come while others multiply,
 * who wait for it before their first results: scales_there(), and gemm.c's scales_in_time(). AT_ONCE rows of a warp
 * at a time, EACH * 128 parts of each. */
template <int AT_ONCE, int EACH> static __device__ inline void add_squares(const gpu_skinny_args &a, float *scales) {
    enum { WARPS = 2 * LOADERS / 32 };
    int lane = threadIdx.x % 32, warp = (threadIdx.x - GPU_THREADS) / 32;
    for (int first = warp; first < a.n; first += WARPS * AT_ONCE) {
        float4 v[AT_ONCE][EACH];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                int token = first + j * WARPS, part = (k * 32 + lane) * 4;
                v[j][k] = {0, 0, 0, 0};
                if (token < a.n && part < a.deferred.parts)
                    v[j][k] = ld_cg4(a.deferred.squares + token * GPU_DEFERRED_PARTS + part);
            }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int token = first + j * WARPS;
            float sum = 0;
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                int left = a.deferred.parts - (k * 32 + lane) * 4; /* behind the last part there may be anything */
                sum += (v[j][k].x + (left > 1 ? v[j][k].y : 0)) +
                       ((left > 2 ? v[j][k].z : 0) + (left > 3 ? v[j][k].w : 0));
            }
            sum = rsqrtf(warp_sum(sum) / a.deferred.dim + a.deferred.eps);
            if (lane == 0 && token < a.n) scales[token] = sum;
        }
    }
}
static __device__ inline void skinny_row_scales(const gpu_skinny_args &a, float *scales) {
    if (a.deferred.parts <= 128)
        add_squares<4, 1>(a, scales);
    else
        add_squares<1, GPU_DEFERRED_PARTS / 128>(a, scales);
    named_barrier_arrive(2, SKINNY_THREADS);
}
static __device__ inline void scales_there() { named_barrier_sync(2, SKINNY_THREADS); }

template <int ROWS, int STAGES, int STAGE>
static __device__ inline void skinny_load_weights(const gpu_skinny_args &a, int from, int to, pipeline p,
                                                  unsigned char *ring) {
    int row = threadIdx.x % LOADERS / 8, piece = threadIdx.x % 8, tile = from / a.units, unit = from % a.units;
    const gpu_bf16 *low = nullptr, *high = nullptr;
    int rows_low = 0, rows_high = 0;
    for (int u = from; u < to; u++) {
        if (u == from || unit == 0) {
            skinny_at at = skinny_find_tile<ROWS>(a, tile);
            const gpu_skinny_part &of = a.part[at.part];
            low = of.w + (at.head * a.w_step + at.row + row) * a.w_stride + piece * 8;
            high = of.up ? of.up + (at.row + row) * a.w_stride + piece * 8 : low + ROWS / 2 * a.w_stride;
            rows_low = (int)min64(at.rows - at.row, ROWS) - row;
            rows_high = of.up ? rows_low : rows_low - ROWS / 2;
        }
        unsigned char *to_row = ring + p.stage * STAGE + swizzled(row, piece);
        if (u - from >= STAGES) producer_acquire(p);
        bool there = unit * HALF + piece * 8 < a.cols; /* else zeros: the last unit may be short */
#pragma unroll
        for (int j = 0; j < ROWS / 2 / STEP; j++)
            if (j * STEP < rows_low)
                cp_async16_or_zero(to_row + j * STEP * 128, low + unit * HALF + j * STEP * a.w_stride, there);
#pragma unroll
        for (int j = 0; j < ROWS / 2 / STEP; j++)
            if (j * STEP < rows_high)
                cp_async16_or_zero(to_row + (ROWS / 2 + j * STEP) * 128, high + unit * HALF + j * STEP * a.w_stride,
                                   there);
        mbarrier_arrive_cp_async(pipeline_full(p));
        pipeline_next(p, STAGES);
        if (++unit == a.units) unit = 0, tile++;
    }
    cp_async_commit();
}

template <int TOKENS, int ROWS, int STAGES, int STAGE>
static __device__ inline void skinny_load_x(const gpu_skinny_args &a, int from, int to, pipeline p,
                                            unsigned char *ring) {
    int row = threadIdx.x % LOADERS / 8, piece = threadIdx.x % 8, tile = from / a.units, unit = from % a.units;
    const gpu_bf16 *x = nullptr;
    pdl_wait();
    for (int u = from; u < to; u++) {
        if (u == from || unit == 0)
            x = a.x + skinny_find_tile<ROWS>(a, tile).head * a.x_step + row * a.x_stride + piece * 8;
        unsigned char *to_row = ring + p.stage * STAGE + ROWS * 128 + swizzled(row, piece);
        if (u - from >= STAGES) producer_acquire(p);
        bool there = unit * HALF + piece * 8 < a.cols;
#pragma unroll
        for (int j = 0; j < TOKENS / STEP; j++)
            if (row + j * STEP < a.n)
                cp_async16_or_zero(to_row + j * STEP * 128, x + unit * HALF + j * STEP * a.x_stride, there);
        mbarrier_arrive_cp_async(pipeline_full(p));
        pipeline_next(p, STAGES);
        if (++unit == a.units) unit = 0, tile++;
    }
    cp_async_commit();
}

static __device__ inline void skinny_all_multipliers() { named_barrier_sync(1, GPU_THREADS); }

/* Gives the block's part of a shared tile to the others. True for the last one to come, which then has the sum of
 * all. Parts lie as the threads hold them. */
template <int TOKENS>
static __device__ inline bool share_tile(const gpu_skinny_args &a, int tile, float *sums, int *flag) {
    enum {
        QUADS = TOKENS / 8,
        SIZE = 2 * HALF * TOKENS,
        AHEAD = TOKENS > 32   ? 3
                : TOKENS > 16 ? 2
                : TOKENS > 8  ? 4
                              : 8
    };
    int start = tile * a.units, first = skinny_block_of(a, start), last = skinny_block_of(a, start + a.units - 1);
    /* a block's first tile is in its first place, another one in the second: only `first` can have it there */
    float *of_first = a.sums + ((gpu_i64)first * 2 + (first_unit(a, first) < start)) * SIZE + threadIdx.x * 4;
    float *others = a.sums + (gpu_i64)first * 2 * SIZE + threadIdx.x * 4;
    float *mine = (int)blockIdx.x == first ? of_first : others + (gpu_i64)((int)blockIdx.x - first) * 2 * SIZE;
#pragma unroll
    for (int q = 0; q < QUADS; q++)
        *(float4 *)(mine + q * GPU_THREADS * 4) = {sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]};
    skinny_all_multipliers();
    if (threadIdx.x == 0) {
        __threadfence();
        *flag = atomicAdd(&a.count[tile], 1) == last - first;
        if (*flag) a.count[tile] = 0;
        __threadfence();
    }
    skinny_all_multipliers();
    if (!*flag) return false;
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) sums[i] = 0;
    for (int b = first; b <= last; b += AHEAD) {
        float4 v[AHEAD][QUADS];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int q = 0; q < QUADS; q++)
                if (b + k <= last)
                    v[k][q] = ld_cg4((b + k == first ? of_first : others + (gpu_i64)(b + k - first) * 2 * SIZE) +
                                     q * GPU_THREADS * 4);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int q = 0; q < QUADS; q++)
                if (b + k <= last)
                    sums[4 * q] += v[k][q].x, sums[4 * q + 1] += v[k][q].y, sums[4 * q + 2] += v[k][q].z,
                        sums[4 * q + 3] += v[k][q].w;
    }
    return true;
}

/* y from the sums; for swiglu the second warpgroup hands its sums (up) to the first. */
template <int TOKENS>
static __device__ inline void put_tile(const gpu_skinny_args &a, int tile, const float *sums, float4 *hand,
                                       const float *scales) {
    skinny_at at = skinny_find_tile<2 * HALF>(a, tile);
    const gpu_skinny_part &p = a.part[at.part];
    int thread = threadIdx.x % 128, half = threadIdx.x / 128, lane = thread % 32;
    gpu_i64 row = at.row + thread / 32 * 16 + lane / 4 + (p.up ? 0 : half * HALF);
    if (p.up) {
        if (half)
#pragma unroll
            for (int q = 0; q < TOKENS / 8; q++)
                hand[q * 128 + thread] = {sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]};
        skinny_all_multipliers();
        if (half) return;
    }
#pragma unroll
    for (int q = 0; q < TOKENS / 8; q++) {
        float4 up = {0, 0, 0, 0};
        if (p.up) up = hand[q * 128 + thread];
        const float of_up[4] = {up.x, up.y, up.z, up.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            gpu_i64 token = q * 8 + lane % 4 * 2 + i % 2, r = row + i / 2 * 8;
            if (token >= a.n || r >= p.rows) continue;
            float scale = a.deferred.squares ? scales[token] : 1.0f, v = sums[4 * q + i] * scale;
            if (p.up) v = silu(v) * (of_up[i] * scale);
            if (p.y_type == GPU_F32)
                ((float *)p.y)[token * p.y_stride + at.head * a.y_step + r] = v;
            else
                ((gpu_bf16 *)p.y)[token * p.y_stride + at.head * a.y_step + r] = bf16_of(v);
        }
    }
}

/* What item i of the tile's sums is, over all blocks of the cluster: hand [TOKENS / 8][128], as the threads of a
 * warpgroup held them. */
template <int AHEAD>
static __device__ inline float4 skinny_collect(const float4 *hand, int q, int thread, int cluster) {
    const float4 *from = hand + q * 128 + thread;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 1
    for (int first = 0; first < cluster; first += AHEAD) {
        float4 v[AHEAD];
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
            if (first + r < cluster) v[r] = *(cluster > 1 ? (const float4 *)in_cluster(from, first + r) : from);
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
            if (first + r < cluster) sum.x += v[r].x, sum.y += v[r].y, sum.z += v[r].z, sum.w += v[r].w;
    }
    return sum;
}

/* x, h and the sums of squares instead of y: of an item's rows r and r + 8 for two tokens. What it reads is under
 * way before the sums are there. */
typedef struct {
    float x[4], weight[2];
} skinny_after;
static __device__ inline skinny_after skinny_read_after(const gpu_skinny_args &a, int q, gpu_i64 row) {
    skinny_after s = {};
    const gpu_skinny_part &p = a.part[0];
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (row + k * 8 < p.rows) s.weight[k] = a.after.weight[row + k * 8];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        gpu_i64 token = q * 8 + lane % 4 * 2 + k % 2, r = row + k / 2 * 8;
        if (token < a.n && r < p.rows) s.x[k] = f32_of(a.after.x[token * p.rows + r]);
    }
    return s;
}
/* By the 128 threads of a q; part: shared, [2][4][8]. */
static __device__ inline void skinny_put_after(const gpu_skinny_args &a, int tile, int q, gpu_i64 row,
                                               const skinny_after &s, const float v[4], float *part) {
    const gpu_skinny_part &p = a.part[0];
    int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, group = threadIdx.x / 128;
    float squares[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        gpu_i64 token = q * 8 + lane % 4 * 2 + k % 2, r = row + k / 2 * 8;
        if (token >= a.n || r >= p.rows) continue;
        gpu_bf16 sum = bf16_of(s.x[k] + f32_of(bf16_of(v[k])));
        float x = f32_of(sum);
        a.after.x[token * p.rows + r] = sum;
        a.after.out[token * p.rows + r] = bf16_of(x * s.weight[k / 2]);
        squares[k % 2] = fmaf(x, x, squares[k % 2]);
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        for (int d = 4; d < 32; d *= 2) squares[k] += __shfl_xor_sync(~0u, squares[k], d);
        if (lane < 4) part[group * 32 + warp * 8 + lane * 2 + k] = squares[k];
    }
    named_barrier_sync(3 + group, 128);
    int token = threadIdx.x % 128;
    if (token < 8 && q * 8 + token < a.n) {
        const float *of = part + group * 32 + token;
        a.after.squares[(q * 8 + token) * GPU_DEFERRED_PARTS + tile] = of[0] + of[8] + of[16] + of[24];
    }
    named_barrier_sync(3 + group, 128);
}

/* y from the sums of all warpgroups and blocks of the cluster, each of which does its part of the items. In ROWS 64
 * both warpgroups have the same rows and half of the columns each: they add theirs first. */
template <int TOKENS, bool AFTER>
static __device__ inline void put_together(const gpu_skinny_args &a, int tile, const float *sums, float4 *hand,
                                           const float *scales, float *free, skinny_after after, block_times *times) {
    enum {
        ROWS = HALF,
        THREADS = 128 /* that hold different rows */,
        AHEAD = AFTER         ? (TOKENS > 32 ? 1 : 3)
                : TOKENS > 32 ? 2
                : TOKENS > 16 ? 4
                              : 8 /* blocks read at a time */
    };
    int rank = a.cluster > 1 ? cluster_rank() : 0;
#pragma unroll
    for (int q = 0; q < TOKENS / 8 && threadIdx.x >= THREADS; q++)
        hand[q * THREADS + threadIdx.x % THREADS] = {sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]};
    skinny_all_multipliers();
#pragma unroll
    for (int q = 0; q < TOKENS / 8 && threadIdx.x < THREADS; q++) {
        float4 *at = hand + q * THREADS + threadIdx.x, v = *at;
        *at = {sums[4 * q] + v.x, sums[4 * q + 1] + v.y, sums[4 * q + 2] + v.z, sums[4 * q + 3] + v.w};
    }
    skinny_at at = skinny_find_tile<ROWS>(a, tile);
    const gpu_skinny_part &p = a.part[at.part];
    int rows = p.up ? THREADS / 2 : THREADS, count = ((int)a.n + 7) / 8 * rows,
        first = rank * GPU_THREADS + threadIdx.x;
    gpu_i64 row = at.row + threadIdx.x % THREADS / 32 * 16 + threadIdx.x % 32 / 4; /* of after, for any i */
    if (a.cluster > 1)
        cluster_sync();
    else
        skinny_all_multipliers();
    block_mark(times, SKINNY_MET);
#pragma unroll 1
    for (int i = first; i < count; i += a.cluster * GPU_THREADS) {
        int q = i / rows, thread = i % rows, lane = thread % 32;
        float4 sum = skinny_collect<AHEAD>(hand, q, thread, a.cluster);
        float v[4] = {sum.x, sum.y, sum.z, sum.w};
        if constexpr (AFTER) {
            if (TOKENS > 16 || i != first) after = skinny_read_after(a, q, row);
            skinny_put_after(a, tile, q, row, after, v, free);
            continue;
        }
        float2 scale = {1, 1};
        /* of tokens past n: not used */
        if (a.deferred.squares) scale = *(const float2 *)(scales + q * 8 + lane % 4 * 2);
        v[0] *= scale.x, v[1] *= scale.y, v[2] *= scale.x, v[3] *= scale.y;
        if (p.up) {
            float4 up = skinny_collect<AHEAD>(hand, q, thread + rows, a.cluster);
            up.x *= scale.x, up.y *= scale.y, up.z *= scale.x, up.w *= scale.y;
            v[0] = silu(v[0]) * up.x, v[1] = silu(v[1]) * up.y, v[2] = silu(v[2]) * up.z, v[3] = silu(v[3]) * up.w;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            gpu_i64 token = q * 8 + lane % 4 * 2 + k % 2, r = at.row + thread / 32 * 16 + lane / 4 + k / 2 * 8;
            if (token >= a.n || r >= p.rows) continue;
            if (p.y_type == GPU_F32)
                ((float *)p.y)[token * p.y_stride + at.head * a.y_step + r] = v[k];
            else
                ((gpu_bf16 *)p.y)[token * p.y_stride + at.head * a.y_step + r] = bf16_of(v[k]);
        }
    }
}

template <int TOKENS, int ROWS, int STAGES, int STAGE, bool AFTER>
static __device__ inline void skinny_multiply_units(const gpu_skinny_args &a, int from, int to, skinny_state *state,
                                                    unsigned char *ring, float4 *hand, block_times *times) {
    enum { STEPS = ROWS == HALF ? 2 : 4 };
    float sums[TOKENS / 2];
    int half = threadIdx.x / 128;
    pipeline p = pipeline_begin(state->full, state->empty);
    bool lane0 = threadIdx.x % 32 == 0;
    pdl_wait();
    block_mark(times, SKINNY_WAITED);
    bool deferred = !AFTER && a.deferred.squares;
    skinny_after after = {};
    if (AFTER &&
        TOKENS <= 16) { /* there are registers for what is read before its sums are there; a block has one tile */
        int tile = from / a.units, i = (a.cluster > 1 ? cluster_rank() : 0) * GPU_THREADS + threadIdx.x;
        if (i < ((int)a.n + 7) / 8 * 128)
            after = skinny_read_after(a, i / 128,
                                      (gpu_i64)tile * ROWS + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
    }
#pragma unroll 1
    for (int unit = from; unit < to;) {
        int tile = unit / a.units, k = unit % a.units, count = (int)min64(a.units - k, to - unit);
        pipeline before = p;
#pragma unroll 1
        for (int u = 0; u < count; u++) {
            unsigned char *stage = ring + p.stage * STAGE;
            gpu_u64 w = wgmma_desc(ROWS == HALF ? stage : stage + half * HALF * 128) + (ROWS == HALF ? half * 4 : 0);
            gpu_u64 x = wgmma_desc(stage + ROWS * 128) + (ROWS == HALF ? half * 4 : 0);
            consumer_wait(p);
            if (unit == from && u == 0) block_mark(times, SKINNY_FIRST);
            fence_async();
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < STEPS; i++) wgmma_ss<TOKENS>(sums, w + 2 * i, x + 2 * i, u || i);
            wgmma_commit();
            wgmma_wait<1>();
            if (lane0 && u) consumer_release(before);
            before = p;
            pipeline_next(p, STAGES);
        }
        wgmma_wait<0>();
        if (lane0) consumer_release(before);
        block_mark(times, SKINNY_PRODUCTS);
        unit += count;
        if (deferred) scales_there();
        deferred = false;
        if constexpr (ROWS == HALF)
            put_together<TOKENS, AFTER>(a, tile, sums, hand, skinny_scales_of(state), (float *)ring, after, times);
        else if (count == a.units || share_tile<TOKENS>(a, tile, sums, state->flag))
            put_tile<TOKENS>(a, tile, sums, hand, skinny_scales_of(state));
        if (ROWS > HALF || a.cluster == 1) skinny_all_multipliers();
    }
}

/* Grid: blocks that share all units, or a cluster a tile, whose blocks share its units. Shared memory: the ring,
 * skinny_state, the tile's sums on their way to y [TOKENS / 8][GPU_THREADS] float4. */
template <int TOKENS, int ROWS, int STAGES, bool AFTER = false>
static __device__ inline void skinny(const gpu_skinny_args &a, unsigned char *memory, block_times *times) {
    enum { STAGE = (ROWS + TOKENS) * 128 };
    skinny_state *state = (skinny_state *)(memory + STAGES * STAGE);
    float4 *hand = (float4 *)(memory + STAGES * STAGE + SKINNY_STATE);
    int from = first_unit(a, blockIdx.x), to = first_unit(a, blockIdx.x + 1);
    pipeline p = pipeline_begin(state->full, state->empty);
    if (threadIdx.x == 0) {
        pipeline_init(p, STAGES, 2 * LOADERS, GPU_WARPS);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= GPU_THREADS) {
        if (threadIdx.x >= GPU_THREADS + LOADERS)
            skinny_load_x<TOKENS, ROWS, STAGES, STAGE>(a, from, to, p, memory);
        else
            skinny_load_weights<ROWS, STAGES, STAGE>(a, from, to, p, memory);
        if (!AFTER && a.deferred.squares) {
            pdl_wait();
            skinny_row_scales(a, skinny_scales_of(state));
        }
        cp_async_wait<0>();
    } else
        skinny_multiply_units<TOKENS, ROWS, STAGES, STAGE, AFTER>(a, from, to, state, memory, hand, times);
    if (ROWS == HALF && a.cluster > 1) {
        if (threadIdx.x >= GPU_THREADS) cluster_sync(); /* the sums are there: see put_tile */
        cluster_sync();                                 /* and read */
    }
}

#define SKINNY(name, tokens, rows)                                                                                     \
    KERNEL_PDL(name##_##tokens, gpu_skinny_args, SKINNY_THREADS, tokens > 32 && rows > 64 ? 1 : 2) {                   \
        SHARED_TILES(memory);                                                                                          \
        skinny<tokens, rows, SKINNY_STAGES(tokens, rows)>(a, memory, times);                                           \
    }
SKINNY(skinny_streamk, 8, 128)
SKINNY(skinny_streamk, 16, 128)
SKINNY(skinny_streamk, 32, 128)
SKINNY(skinny_streamk, 64, 128)
SKINNY(skinny_cluster, 8, 64)
SKINNY(skinny_cluster, 16, 64)
SKINNY(skinny_cluster, 32, 64)
SKINNY(skinny_cluster, 64, 64)

#define RESIDUAL(tokens)                                                                                               \
    KERNEL_PDL(skinny_residual_##tokens, gpu_skinny_args, SKINNY_THREADS, 2) {                                         \
        SHARED_TILES(memory);                                                                                          \
        skinny<tokens, 64, SKINNY_STAGES(tokens, 64), true>(a, memory, times);                                         \
    }
RESIDUAL(8)
RESIDUAL(16)
RESIDUAL(32)
RESIDUAL(64)

#define GATE(tokens)                                                                                                   \
    KERNEL_PDL(skinny_gate_##tokens, gpu_skinny_gate_args, SKINNY_THREADS, 2) {                                        \
        SHARED_TILES(memory);                                                                                          \
        gpu_i64 behind = (gpu_i64)blockIdx.x - a.product.blocks;                                                       \
        if (behind < 0) {                                                                                              \
            skinny<tokens, 64, SKINNY_STAGES(tokens, 64)>(a.product, memory, times);                                   \
            return;                                                                                                    \
        }                                                                                                              \
        gate_beside<SKINNY_THREADS, SKINNY_DIGITS>(a.gate, a.digits, (int)behind, memory);                             \
    }
GATE(8)
GATE(16)
GATE(32)
GATE(64)
