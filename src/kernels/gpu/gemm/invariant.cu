/* kernels/gpu/gemm/invariant.cu: y[n, rows] = x[n, cols] W^T, or y += that, or silu(x gate^T) * (x up^T), for any n and
 * weights in BF16, on wgmma: rows of prompts whose bits may not depend on how many they are (ops.h: ROWS_PROMPT).
 *
 * Every output's sum is formed in the order of the columns, 16 at a time, in one accumulator, whatever the tile:
 * three tile sizes, chosen by how many tiles there are. Tokens are the first operand, weights the second: two
 * warpgroups of 64 tokens with the same N rows of the weight (tiles of 128 x N), or with the same 64 tokens and N
 * rows each (64 x 2N). A third warpgroup loads (16-byte copies into a ring of units of 64 columns in the 128-byte
 * swizzle). For swiglu half of a warpgroup's N rows are gate's, half up's. Work: 2 n rows cols. Bytes: a tile's
 * weights once for every 64 or 128 rows of x, mostly from the second-level cache: tiles of eight groups of tokens
 * run beside each other. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"

enum { LOADERS = 128, UNIT = 64 /* columns */, GROUPS = 8 /* of tokens, beside each other */ };

template <int N, int TOKENS> struct plan {
    static constexpr int WEIGHTS = TOKENS == 64 ? 2 * N : N, STAGE = (TOKENS + WEIGHTS) * 128,
                         STAGES = GPU_INVARIANT_STAGES(STAGE);
};

typedef struct {
    gpu_u64 full[GPU_INVARIANT_STAGES_MAX], empty[GPU_INVARIANT_STAGES_MAX];
} invariant_state;
static_assert(sizeof(invariant_state) <= GPU_INVARIANT_STATE, "params.h");

typedef struct {
    gpu_i64 token, row; /* the first of each; row: of the output */
} invariant_at;
template <int N, int TOKENS> static __device__ inline invariant_at invariant_find_tile(const gpu_invariant_args &a) {
    const int out = a.up ? plan<N, TOKENS>::WEIGHTS / 2 : plan<N, TOKENS>::WEIGHTS;
    gpu_i64 across = (a.rows + out - 1) / out, down = (a.n + TOKENS - 1) / TOKENS,
            group = blockIdx.x / (across * GROUPS);
    gpu_i64 rest = blockIdx.x - group * across * GROUPS, high = min64(down - group * GROUPS, GROUPS);
    return {(group * GROUPS + rest % high) * TOKENS, rest / high * out};
}

template <int N, int TOKENS>
static __device__ inline void invariant_load(const gpu_invariant_args &a, invariant_at at, pipeline p,
                                             unsigned char *ring) {
    enum {
        STEP = LOADERS / 8,
        WEIGHTS = plan<N, TOKENS>::WEIGHTS,
        STAGE = plan<N, TOKENS>::STAGE,
        STAGES = plan<N, TOKENS>::STAGES
    };
    int row = threadIdx.x % LOADERS / 8, piece = threadIdx.x % 8;
    gpu_i64 units = (a.cols + UNIT - 1) / UNIT;
    const gpu_bf16 *x = a.x + (at.token + row) * a.x_stride + piece * 8, *w = a.w + (at.row + row) * a.cols + piece * 8;
    const gpu_bf16 *up = a.up ? a.up + (at.row + row) * a.cols + piece * 8 : w;
    gpu_i64 tokens = a.n - at.token - row, rows = a.rows - at.row - row;
    for (gpu_i64 u = 0; u < units; u++, x += UNIT, w += UNIT, up += UNIT) {
        unsigned char *to = ring + p.stage * STAGE + swizzled(row, piece);
        bool there = u * UNIT + piece * 8 < a.cols; /* else zeros: the last unit may be short */
        if (u >= STAGES) producer_acquire(p);
#pragma unroll
        for (int i = 0; i < TOKENS / STEP; i++)
            cp_async16_or_zero(to + i * STEP * 128, x + i * STEP * a.x_stride, there && i * STEP < tokens);
        to += TOKENS * 128;
        if (a.up) {
#pragma unroll
            for (int i = 0; i < WEIGHTS / STEP; i++) {
                const int r = i * STEP,
                          of = r / N * (N / 2) + r % (N / 2); /* row of the output, from the tile's first */
                cp_async16_or_zero(to + r * 128, (r % N < N / 2 ? w : up) + of * a.cols, there && of < rows);
            }
        } else {
#pragma unroll
            for (int i = 0; i < WEIGHTS / STEP; i++)
                cp_async16_or_zero(to + i * STEP * 128, w + i * STEP * a.cols, there && i * STEP < rows);
        }
        mbarrier_arrive_cp_async(pipeline_full(p));
        pipeline_next(p, STAGES);
    }
    cp_async_commit();
    cp_async_wait<0>();
}

static __device__ inline void put_two(const gpu_invariant_args &a, gpu_i64 token, gpu_i64 row, float first,
                                      float second) {
    if (token >= a.n || row >= a.rows) return;
    if (a.y_type == GPU_F32)
        *(float2 *)((float *)a.y + token * a.y_stride + row) = {first, second};
    else {
        gpu_u32 *y = (gpu_u32 *)((gpu_bf16 *)a.y + token * a.y_stride + row);
        if (a.add) first += low_f32(*y), second += high_f32(*y);
        *y = pair_bf16(first, second);
    }
}

template <int N, int TOKENS>
static __device__ inline void invariant_multiply(const gpu_invariant_args &a, invariant_at at, pipeline p,
                                                 unsigned char *ring, int group) {
    enum { STAGE = plan<N, TOKENS>::STAGE, STAGES = plan<N, TOKENS>::STAGES };
    float d[N / 2];
    int units = (int)((a.cols + UNIT - 1) / UNIT);
    pipeline before = p;
    bool lane0 = threadIdx.x % 32 == 0;
#pragma unroll 1
    for (int u = 0; u < units; u++) {
        const unsigned char *stage = ring + p.stage * STAGE;
        gpu_u64 x = wgmma_desc(stage + (TOKENS == 128 ? group * 64 * 128 : 0)),
                w = wgmma_desc(stage + TOKENS * 128 + (TOKENS == 64 ? group * N * 128 : 0));
        consumer_wait(p);
        fence_async();
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < UNIT / 16; i++) wgmma_ss<N>(d, x + 2 * i, w + 2 * i, u || i);
        wgmma_commit();
        wgmma_wait<1>();
        if (lane0 && u) consumer_release(before);
        before = p;
        pipeline_next(p, STAGES);
    }
    wgmma_wait<0>();
    int thread = threadIdx.x % 128, lane = thread % 32;
    gpu_i64 token = at.token + (TOKENS == 128 ? group * 64 : 0) + thread / 32 * 16 + lane / 4,
            row = at.row + lane % 4 * 2;
    if (TOKENS == 64) row += group * (a.up ? N / 2 : N);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (a.up) {
#pragma unroll
            for (int j = 0; j < N / 16; j++) {
                const float *gate = &d[4 * j + 2 * h], *up = &d[4 * (j + N / 16) + 2 * h];
                put_two(a, token + 8 * h, row + j * 8, silu(gate[0]) * up[0], silu(gate[1]) * up[1]);
            }
        } else {
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                put_two(a, token + 8 * h, row + j * 8, d[4 * j + 2 * h], d[4 * j + 2 * h + 1]);
        }
}

template <int N, int TOKENS>
static __device__ inline void invariant(const gpu_invariant_args &a, unsigned char *memory) {
    enum { STAGES = plan<N, TOKENS>::STAGES };
    invariant_state *state = (invariant_state *)(memory + STAGES * plan<N, TOKENS>::STAGE);
    pipeline p = pipeline_begin(state->full, state->empty);
    if (threadIdx.x == 0) {
        pipeline_init(p, STAGES, LOADERS, GPU_WARPS);
        mbarrier_fence_init();
    }
    __syncthreads();
    invariant_at at = invariant_find_tile<N, TOKENS>(a);
    if (threadIdx.x < LOADERS) {
        setmaxnreg_dec<56>();
        invariant_load<N, TOKENS>(a, at, p, memory);
    } else {
        setmaxnreg_inc<224>();
        invariant_multiply<N, TOKENS>(a, at, p, memory, (int)threadIdx.x / 128 - 1);
    }
}

/* Grid: tiles of 64 x 64, 128 x 128, 128 x 256 tokens and rows (swiglu: of gate and up together). */
KERNEL_OF(invariant_64, gpu_invariant_args, GPU_INVARIANT_THREADS, 1) {
    SHARED_TILES(memory);
    invariant<32, 64>(a, memory);
}
KERNEL_OF(invariant_128, gpu_invariant_args, GPU_INVARIANT_THREADS, 1) {
    SHARED_TILES(memory);
    invariant<128, 128>(a, memory);
}
KERNEL_OF(invariant_256, gpu_invariant_args, GPU_INVARIANT_THREADS, 1) {
    SHARED_TILES(memory);
    invariant<256, 128>(a, memory);
}
