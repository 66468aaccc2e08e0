/* kernels/gpu/gemm/skinny_tma.cu: y[n, rows] = x[n, cols] W^T for 17 to 64 rows of x and weights in BF16, on wgmma:
 * skinny_splitk.cu for where x is as large as a tile of the weight.
 *
 * Bytes: the weights once, 2 * rows * cols, which bounds it; x once for every tile of a weight's rows, from the L2
 * cache: so tiles are as high as lets all blocks run at once, one a multiprocessor.
 *
 * The rows of x are wgmma's first operand, a tile of a weight's rows the second. A tile's columns are shared out
 * among the blocks of a cluster. The copy engine fetches units of 64 columns, weights and x into rings of their own:
 * weights, which need not wait for the kernel in front, fill nearly all of shared memory before that has ended. Two
 * warpgroups multiply: up to 64 rows of a tile each has half of a unit's columns, else half of the rows (gate and up
 * for swiglu). Sums meet in the rings' memory, and each block of the cluster adds those of all, in their order, for
 * some rows of x. add, gate: as in skinny_splitk.cu. Which sums are added in which order depends on the shapes
 * alone. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/moe/gate_fused.cuh"

enum { TOKENS = GPU_SKINNY, X_UNIT = TOKENS * 128 /* bytes */, LANES = 16 /* that share a row of y */, SCALERS = 64 };

typedef struct {
    gpu_u64 w_full[SKINNY_TMA_STAGES], w_empty[SKINNY_TMA_STAGES], x_full[SKINNY_TMA_STAGES],
        x_empty[SKINNY_TMA_STAGES];
    float scales[TOKENS]; /* what rows of x have yet to be multiplied by */
} skinny_tma_state;
static_assert(sizeof(skinny_tma_state) <= SKINNY_TMA_STATE, "params.h");
static __device__ inline pipeline weights_begin(skinny_tma_state *s) { return pipeline_begin(s->w_full, s->w_empty); }
static __device__ inline pipeline x_begin(skinny_tma_state *s) { return pipeline_begin(s->x_full, s->x_empty); }

typedef struct {
    int part, row, from, count; /* first row; the block's units */
} skinny_tma_at;
static __device__ inline skinny_tma_at skinny_tma_find_tile(const gpu_skinny_tma_args &a) {
    skinny_tma_at at = {0, 0, 0, 0};
    int tile = blockIdx.x / a.cluster, rank = blockIdx.x % a.cluster;
    while (tile >= a.part[at.part].tiles) at.part++;
    if (at.part) tile -= a.part[at.part - 1].tiles;
    at.row = tile * (a.part[at.part].up ? a.height / 2 : a.height);
    at.from = rank * a.units / a.cluster;
    at.count = (rank + 1) * a.units / a.cluster - at.from;
    return at;
}

/* ---- one lane each ---- */
static __device__ inline void skinny_tma_load_weights(const gpu_skinny_tma_args &a, const skinny_tma_at &at,
                                                      skinny_tma_state *state, unsigned char *ring) {
    int bytes = a.height * 128;
    bool up = a.part[at.part].up;
    pipeline p = weights_begin(state);
    for (int u = 0; u < at.count; u++) {
        unsigned char *stage = ring + p.stage * bytes;
        if (u >= a.weight_stages) producer_acquire(p);
        mbarrier_expect(pipeline_full(p), bytes);
        tma_load(stage, &a.map[at.part], 0, at.row, at.from + u, pipeline_full(p));
        if (up) tma_load(stage + bytes / 2, &a.up_map[at.part], 0, at.row, at.from + u, pipeline_full(p));
        pipeline_next(p, a.weight_stages);
    }
}
static __device__ inline void skinny_tma_load_x(const gpu_skinny_tma_args &a, const skinny_tma_at &at,
                                                skinny_tma_state *state, unsigned char *ring) {
    pipeline p = x_begin(state);
    tma_prefetch_map(&a.x_map);
    pdl_wait();
    fence_async_global(); /* of what the kernels before have written */
    for (int u = 0; u < at.count; u++) {
        if (u >= a.x_stages) producer_acquire(p);
        mbarrier_expect(pipeline_full(p), X_UNIT);
        tma_load(ring + p.stage * X_UNIT, &a.x_map, 0, 0, at.from + u, pipeline_full(p));
        pipeline_next(p, a.x_stages);
    }
}

/* By two warps, while others multiply, who wait for it before their first results. AT_ONCE rows of a warp, of up to
 * 32 * EACH parts. */
template <int AT_ONCE, int EACH>
static __device__ inline void skinny_tma_row_scales(const gpu_skinny_tma_args &a, float *scales) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 2;
    for (int first = warp; first < a.n; first += 2 * AT_ONCE) {
        float v[AT_ONCE][EACH];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                int token = first + 2 * j, part = k * 32 + lane;
                v[j][k] = 0;
                if (token < a.n && part < a.deferred.parts)
                    v[j][k] = ld_cg1(a.deferred.squares + token * GPU_DEFERRED_PARTS + part);
            }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < EACH; k++) sum += v[j][k];
            sum = rsqrtf(warp_sum(sum) / a.deferred.dim + a.deferred.eps);
            if (lane == 0 && first + 2 * j < a.n) scales[first + 2 * j] = sum;
        }
    }
    named_barrier_arrive(2, GPU_THREADS + SCALERS);
}

static __device__ inline void skinny_tma_all_multipliers() { named_barrier_sync(1, GPU_THREADS); }

/* SPLIT: the warpgroups share out columns; else rows of the tile. What they read behind the tile's rows is in
 * nobody's sums. */
template <int N, bool SPLIT>
static __device__ inline void skinny_tma_multiply_units(const gpu_skinny_tma_args &a, int count,
                                                        skinny_tma_state *state, unsigned char *ring,
                                                        float sums[N / 2]) {
    enum { STEPS = SPLIT ? 2 : 4 };
    int half = threadIdx.x / 128, bytes = a.height * 128;
    pipeline weights = weights_begin(state), w_before = weights, of_x = x_begin(state), x_before = of_x;
    unsigned char *x_ring = ring + a.weight_stages * bytes;
    bool lane0 = threadIdx.x % 32 == 0;
#pragma unroll 1
    for (int u = 0; u < count; u++) {
        gpu_u64 w = wgmma_desc(ring + weights.stage * bytes + (SPLIT ? 0 : half * bytes / 2)) + (SPLIT ? half * 4 : 0),
                x = wgmma_desc(x_ring + of_x.stage * X_UNIT) + (SPLIT ? half * 4 : 0);
        consumer_wait(weights);
        consumer_wait(of_x);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < STEPS; i++) wgmma_ss<N>(sums, x + 2 * i, w + 2 * i, u || i);
        wgmma_commit();
        wgmma_wait<1>();
        if (lane0 && u) consumer_release(w_before), consumer_release(x_before);
        w_before = weights, x_before = of_x;
        pipeline_next(weights, a.weight_stages);
        pipeline_next(of_x, a.x_stages);
    }
    wgmma_wait<0>();
}

/* Floats from token to token: the eight lanes of a tensor core's column meet no bank twice. */
static __device__ inline int pitch_of(int height) { return height / 8 % 2 ? height : height + 8; }

/* The block's sums [tokens][pitch]. */
template <int N, bool SPLIT>
static __device__ inline void leave_sums(const gpu_skinny_tma_args &a, const float *sums, float *hand) {
    int thread = threadIdx.x % 128, half = threadIdx.x / 128, lane = thread % 32,
        limit = SPLIT ? a.height : a.height / 2, pitch = pitch_of(a.height);
    float *to = hand + (thread / 32 * 16 + lane / 4) * pitch + (SPLIT ? 0 : half * limit) + lane % 4 * 2;
    skinny_tma_all_multipliers(); /* the rings are read */
    if (!SPLIT || half) {
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            if (8 * j < limit) {
                *(float2 *)(to + 8 * j) = {sums[4 * j], sums[4 * j + 1]};
                *(float2 *)(to + 8 * j + 8 * pitch) = {sums[4 * j + 2], sums[4 * j + 3]};
            }
    }
    if (!SPLIT) return;
    skinny_tma_all_multipliers();
    if (half) return;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        if (8 * j < limit) {
            float2 *v = (float2 *)(to + 8 * j), *w = (float2 *)(to + 8 * j + 8 * pitch);
            *v = {sums[4 * j] + v->x, sums[4 * j + 1] + v->y}, *w = {sums[4 * j + 2] + w->x, sums[4 * j + 3] + w->y};
        }
}

static __device__ inline float4 skinny_tma_collect(const float *at, int cluster) {
    enum { MOST = 8 };
    float4 v[MOST], sum;
    if (cluster == 1) return *(const float4 *)at;
#pragma unroll
    for (int r = 0; r < MOST; r++)
        if (r < cluster) v[r] = *(const float4 *)in_cluster(at, r);
    sum = v[0];
#pragma unroll
    for (int r = 1; r < MOST; r++)
        if (r < cluster) sum.x += v[r].x, sum.y += v[r].y, sum.z += v[r].z, sum.w += v[r].w;
    return sum;
}

/* Values of y, at r of `rows`. */
static __device__ inline void put_four(const gpu_skinny_part &p, gpu_i64 token, int r, const float v[4]) {
    gpu_i64 at = token * p.y_stride + r;
    if (r + 4 <= p.rows) {
        if (p.y_type == GPU_F32)
            *(float4 *)((float *)p.y + at) = {v[0], v[1], v[2], v[3]};
        else
            *(uint2 *)((gpu_bf16 *)p.y + at) = {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3])};
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (r + i >= p.rows) break;
        if (p.y_type == GPU_F32)
            ((float *)p.y)[at + i] = v[i];
        else
            ((gpu_bf16 *)p.y)[at + i] = bf16_of(v[i]);
    }
}

static __device__ inline void put_y(const gpu_skinny_tma_args &a, const skinny_tma_at &at, const float *hand,
                                    const float *scales) {
    const gpu_skinny_part &p = a.part[at.part];
    int rank = blockIdx.x % a.cluster, lane = threadIdx.x % LANES, quads = a.height / (p.up ? 8 : 4),
        pitch = pitch_of(a.height);
    for (int token = rank * (GPU_THREADS / LANES) + threadIdx.x / LANES; token < a.n;
         token += a.cluster * (GPU_THREADS / LANES)) {
        float scale = a.deferred.squares ? scales[token] : 1.0f;
        for (int q = lane; q < quads; q += LANES) {
            int r = at.row + 4 * q;
            if (r >= p.rows) break;
            float4 sum = skinny_tma_collect(hand + token * pitch + 4 * q, a.cluster);
            float v[4] = {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
            if (p.up) {
                float4 up = skinny_tma_collect(hand + token * pitch + a.height / 2 + 4 * q, a.cluster);
                v[0] = silu(v[0]) * (up.x * scale), v[1] = silu(v[1]) * (up.y * scale),
                v[2] = silu(v[2]) * (up.z * scale), v[3] = silu(v[3]) * (up.w * scale);
            }
            put_four(p, token, r, v);
        }
    }
}

/* x, h and the sums of squares instead of y. rows is a multiple of 4. */
static __device__ inline void skinny_tma_put_after(const gpu_skinny_tma_args &a, const skinny_tma_at &at,
                                                   const float *hand) {
    int rank = blockIdx.x % a.cluster, lane = threadIdx.x % LANES, quads = a.height / 4, pitch = pitch_of(a.height),
        rows = (int)a.part[0].rows, step = a.cluster * (GPU_THREADS / LANES);
    for (int first = 0; first < a.n; first += step) {
        int token = first + rank * (GPU_THREADS / LANES) + threadIdx.x / LANES;
        float squares = 0;
        for (int q = lane; token < a.n && q < quads; q += LANES) {
            int r = at.row + 4 * q;
            if (r >= rows) break;
            gpu_bf16 *x = a.after.x + (gpu_i64)token * rows + r;
            uint2 old = *(const uint2 *)x;
            float4 weight = *(const float4 *)(a.after.weight + r),
                   sum = skinny_tma_collect(hand + token * pitch + 4 * q, a.cluster);
            const float v[4] = {low_f32(old.x) + f32_of(bf16_of(sum.x)), high_f32(old.x) + f32_of(bf16_of(sum.y)),
                                low_f32(old.y) + f32_of(bf16_of(sum.z)), high_f32(old.y) + f32_of(bf16_of(sum.w))};
            uint2 now = {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3])};
            const float f[4] = {low_f32(now.x), high_f32(now.x), low_f32(now.y), high_f32(now.y)};
            *(uint2 *)x = now;
            *(uint2 *)(a.after.out + (gpu_i64)token * rows + r) = {pair_bf16(f[0] * weight.x, f[1] * weight.y),
                                                                   pair_bf16(f[2] * weight.z, f[3] * weight.w)};
#pragma unroll
            for (int i = 0; i < 4; i++) squares = fmaf(f[i], f[i], squares);
        }
        for (int d = LANES / 2; d; d >>= 1) squares += __shfl_xor_sync(~0u, squares, d);
        if (lane == 0 && token < a.n) a.after.squares[token * GPU_DEFERRED_PARTS + blockIdx.x / a.cluster] = squares;
    }
}

/* Shared memory: weights [weight_stages][height][64], x [x_stages][64][64], later the sums; at a.state the state. */
template <int N, bool SPLIT, bool AFTER>
static __device__ inline void skinny_tma(const gpu_skinny_tma_args &a, unsigned char *memory) {
    skinny_tma_state *state = (skinny_tma_state *)(memory + a.state);
    skinny_tma_at at = skinny_tma_find_tile(a);
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        pipeline_init(weights_begin(state), a.weight_stages, 1, GPU_WARPS);
        pipeline_init(x_begin(state), a.x_stages, 1, GPU_WARPS);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp >= GPU_WARPS) {
        if (threadIdx.x == GPU_THREADS) skinny_tma_load_weights(a, at, state, memory);
        if (threadIdx.x == GPU_THREADS + 32) skinny_tma_load_x(a, at, state, memory + a.weight_stages * a.height * 128);
        if (warp >= GPU_WARPS + 2 && !AFTER && a.deferred.squares) {
            pdl_wait();
            if (a.deferred.parts <= 32)
                skinny_tma_row_scales<16, 1>(a, state->scales);
            else if (a.deferred.parts <= 128)
                skinny_tma_row_scales<8, 4>(a, state->scales);
            else
                skinny_tma_row_scales<2, GPU_DEFERRED_PARTS / 32>(a, state->scales);
        }
        __syncwarp();
        if (a.cluster > 1) cluster_sync();
    } else {
        float sums[N / 2];
        skinny_tma_multiply_units<N, SPLIT>(a, at.count, state, memory, sums);
        leave_sums<N, SPLIT>(a, sums, (float *)memory);
        if (!AFTER && a.deferred.squares) named_barrier_sync(2, GPU_THREADS + SCALERS);
        if (a.cluster > 1)
            cluster_sync();
        else
            skinny_tma_all_multipliers();
        pdl_wait(); /* y, and what is added to */
        if constexpr (AFTER)
            skinny_tma_put_after(a, at, (const float *)memory);
        else
            put_y(a, at, (const float *)memory, state->scales);
    }
    if (a.cluster > 1) cluster_sync(); /* the others have read the sums */
}

/* blocks: 2 keeps registers for a block of the norm in front or behind (rows.cu), which then is there when its turn
 * comes. */
#define SKINNY_TMA(name, max_rows, split, after, blocks)                                                               \
    KERNEL_PDL(name, gpu_skinny_tma_args, SKINNY_TMA_THREADS, blocks) {                                                \
        SHARED_TILES(memory);                                                                                          \
        skinny_tma<max_rows, split, after>(a, memory);                                                                 \
    }
SKINNY_TMA(skinny_tma_64, 64, true, false, 2)
SKINNY_TMA(skinny_tma_144, 72, false, false, 2)
SKINNY_TMA(skinny_tma_256, 128, false, false, 1)
SKINNY_TMA(skinny_tma_residual_64, 64, true, true, 1)
SKINNY_TMA(skinny_tma_residual_144, 72, false, true, 1)

#define GATE(name, max_rows, split)                                                                                    \
    KERNEL_PDL(name, gpu_skinny_tma_gate_args, SKINNY_TMA_THREADS, 1) {                                                \
        SHARED_TILES(memory);                                                                                          \
        gpu_i64 behind = (gpu_i64)blockIdx.x - a.product.blocks;                                                       \
        if (behind < 0) {                                                                                              \
            skinny_tma<max_rows, split, false>(a.product, memory);                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        gate_beside<SKINNY_TMA_THREADS, SKINNY_TMA_DIGITS>(a.gate, a.digits, (int)behind, memory);                     \
    }
GATE(skinny_tma_gate_64, 64, true)
GATE(skinny_tma_gate_144, 72, false)
