/* kernels/gpu/skinny.cu: y[n, rows] = x[n, cols] W^T for up to 64 rows of x and weights in BF16, as decoding steps have them.
 *
 * Bytes: the weights once, 2 * rows * cols, which bounds it; x once for every 64 rows of a weight, from the L2 cache.
 *
 * The work is cut into units of 64 rows times 64 columns of a weight (8 KiB), tile by tile of 64 rows. Block b of the grid, one
 * on each multiprocessor, takes an equal share of all units in their order, so that every multiprocessor reads as long as
 * the others, however few rows a weight has. Weights go through a ring of stages in shared memory, as many as fit beside
 * another block: they are under way before the kernel in front has ended. Two warps load weights, two load x (cp.async, counted
 * by a barrier a stage), eight multiply: warp (m, k) rows 32 m.. with columns 16 k.. of a unit, the weight being mma's first
 * operand.
 * A tile that several blocks share is summed by the last of them to arrive, in the order of the columns. Which columns are
 * added in which order depends on the shapes alone, not on n.
 *
 * swiglu: a tile is 32 rows of gate and the same 32 of up. absorb_q: W is read across its rows (ldmatrix.trans). */
#include "kernels/gpu/hopper.cuh"

enum {
    TILE = 64,                   /* rows of a tile, columns of a unit */
    STRIDE = TILE + 8,           /* of a row in shared memory: 144 bytes, so that eight rows meet no bank twice */
    SLOT = TILE + 4,             /* of a row of x in the tile's sums, in floats: likewise */
    LOADERS = 64,                /* threads that load weights, behind the GPU_THREADS that multiply; as many load x */
    STEP = LOADERS / 8,          /* rows between two that a thread loads, 16 bytes of each */
    SUMS = GPU_SKINNY * TILE     /* floats of a block's part of a shared tile */
};

/* Where a tile belongs. */
typedef struct {
    int part, row, head; /* first row of y's columns */
} tile_at;

static __device__ inline tile_at find_tile(const gpu_skinny_args &a, int tile) {
    tile_at at = {0, 0, 0};
    while (tile >= a.part[at.part].tiles) at.part++;
    if (at.part) tile -= a.part[at.part - 1].tiles;
    at.head = tile / a.head_tiles;
    at.row = tile % a.head_tiles * (a.part[at.part].up ? TILE / 2 : TILE);
    return at;
}

/* The first unit of block b, and the block that has unit u. */
static __device__ inline int first_unit(const gpu_skinny_args &a, gpu_i64 b) { return (int)(b * a.all / (int)gridDim.x); }
static __device__ inline int block_of(const gpu_skinny_args &a, gpu_i64 u) { return (int)(((u + 1) * (int)gridDim.x - 1) / a.all); }

/* What a loading thread reads next: 16 bytes of 8 rows of a weight, or of up to 8 rows of x. */
typedef struct {
    const gpu_bf16 *low, *high; /* its first row of either half of the tile; of x: low */
    int rows_low, rows_high;    /* rows of either half that there are, from its first one on */
    int tile, unit;             /* in the tile */
} feed;

template <bool ACROSS> static __device__ inline void aim_weight(const gpu_skinny_args &a, feed &f) {
    tile_at at = find_tile(a, f.tile);
    const gpu_skinny_part &p = a.part[at.part];
    int row = threadIdx.x % LOADERS / 8, col = threadIdx.x % 8 * 8;
    gpu_i64 left = p.rows - at.row;
    if (ACROSS) {
        f.low = p.w + (at.head * a.w_step + row) * a.w_stride + at.row + col;
        f.high = f.low + TILE / 2 * a.w_stride;
        f.rows_low = col < left ? TILE : 0;
        return;
    }
    f.low = p.w + (at.head * a.w_step + at.row + row) * a.w_stride + col;
    f.high = p.up ? p.up + (at.row + row) * a.w_stride + col : f.low + TILE / 2 * a.w_stride;
    f.rows_low = (int)least(left, TILE) - row;
    f.rows_high = p.up ? f.rows_low : f.rows_low - TILE / 2;
}

/* The thread's part of the weight's next unit to `to` [TILE][STRIDE]. */
template <bool ACROSS> static __device__ inline void load_weight(const gpu_skinny_args &a, feed &f, gpu_bf16 *to) {
    int row = threadIdx.x % LOADERS / 8, col = threadIdx.x % 8 * 8;
    gpu_i64 from = (gpu_i64)f.unit * TILE, left = a.cols - from;
    to += row * STRIDE + col;
    if (ACROSS) {
        const gpu_bf16 *w = f.low + from * a.w_stride;
#pragma unroll
        for (int j = 0; j < TILE / STEP; j++)
            if (row + j * STEP < left && f.rows_low) copy16(to + j * STEP * STRIDE, w + j * STEP * a.w_stride);
    } else if (col < left) {
#pragma unroll
        for (int j = 0; j < TILE / 2 / STEP; j++) {
            if (j * STEP < f.rows_low) copy16(to + j * STEP * STRIDE, f.low + from + j * STEP * a.w_stride);
            if (j * STEP < f.rows_high) copy16(to + (j * STEP + TILE / 2) * STRIDE, f.high + from + j * STEP * a.w_stride);
        }
    }
    if (++f.unit == a.units) f.unit = 0, f.tile++;
}

template <int TOKENS> static __device__ inline void load_x(const gpu_skinny_args &a, feed &f, gpu_bf16 *to) {
    int row = threadIdx.x % LOADERS / 8, col = threadIdx.x % 8 * 8;
    gpu_i64 from = (gpu_i64)f.unit * TILE + col;
    if (from < a.cols) {
#pragma unroll
        for (int j = 0; j < (TOKENS + STEP - 1) / STEP; j++)
            if (row + j * STEP < a.n) copy16(to + (row + j * STEP) * STRIDE + col, f.low + from + j * STEP * a.x_stride);
    }
    if (++f.unit == a.units) f.unit = 0, f.tile++;
}

static __device__ inline void aim_x(const gpu_skinny_args &a, feed &f) {
    f.low = a.x + find_tile(a, f.tile).head * a.x_step + threadIdx.x % LOADERS / 8 * a.x_stride;
}

/* sums += the unit in `stage`: weights [TILE][STRIDE], x behind them. */
template <int TOKENS, bool ACROSS> static __device__ inline void multiply(const gpu_bf16 *stage, float sums[2][TOKENS / 8][4]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = warp % 2 * 32, k = warp / 2 * 16;
    const gpu_bf16 *x = stage + TILE * STRIDE + lane % 8 * STRIDE + k + lane / 8 % 2 * 8;
    gpu_u32 w[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (ACROSS)
            load_matrix4_t(w[i], stage + (k + lane / 16 * 8 + lane % 8) * STRIDE + m + i * 16 + lane / 8 % 2 * 8);
        else
            load_matrix4(w[i], stage + (m + i * 16 + lane % 16) * STRIDE + k + lane / 16 * 8);
    }
#pragma unroll
    for (int j = 0; j < TOKENS; j += 16) {
        gpu_u32 t[4];
        load_matrix4(t, x + (j + (TOKENS > 8 ? lane / 16 * 8 : 0)) * STRIDE);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            mma_bf16(sums[i][j / 8], w[i], t);
            if (TOKENS > 8) mma_bf16(sums[i][j / 8 + 1], w[i], t + 2);
        }
    }
}

template <int TOKENS> static __device__ inline void clear(float sums[2][TOKENS / 8][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) sums[i][j][r] = 0;
}

static __device__ inline void all_multipliers() { threads_sync(1, GPU_THREADS); }

/* sum[token][row] = the tile's sums of all warps, added from the last columns to the first. Each quarter of the columns writes
 * to a slot of its own if there are four (SLOTS), else one after the other adds to the one. */
template <int TOKENS, int SLOTS> static __device__ inline void gather_warps(const float sums[2][TOKENS / 8][4], float *sum) {
    enum { QUARTERS = GPU_WARPS / 2, SIZE = TOKENS * SLOT };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *mine = sum + lane % 4 * 2 * SLOT + warp % 2 * 32 + lane / 4;
#pragma unroll 1
    for (int turn = QUARTERS - 1; turn >= 0; turn -= SLOTS) {
        if (SLOTS > 1 || warp / 2 == turn) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        float *to = mine + (SLOTS > 1 ? warp / 2 * SIZE : 0) + (j * 8 + r % 2) * SLOT + i * 16 + r / 2 * 8;
                        *to = SLOTS > 1 || turn == QUARTERS - 1 ? sums[i][j][r] : *to + sums[i][j][r];
                    }
        }
        all_multipliers();
    }
    if constexpr (SLOTS > 1) {
        for (int i = threadIdx.x; i < SIZE; i += GPU_THREADS) sum[i] = ((sum[3 * SIZE + i] + sum[2 * SIZE + i]) + sum[SIZE + i]) + sum[i];
        all_multipliers();
    }
}

/* Gives the block's part of a shared tile to the others. True for the last one to come; then sum has the sum of all. */
template <int TOKENS> static __device__ inline bool share_tile(const gpu_skinny_args &a, int tile, float *sum, int *flag) {
    int start = tile * a.units, first = block_of(a, start), last = block_of(a, start + a.units - 1), quads = (int)a.n * (TILE / 4);
    /* a block's first tile is in its first place, another one in the second: only `first` can have it there */
    float *of_first = a.sums + ((gpu_i64)first * 2 + (first_unit(a, first) < start)) * SUMS, *others = a.sums + (gpu_i64)first * 2 * SUMS;
    float *mine = (int)blockIdx.x == first ? of_first : others + (gpu_i64)((int)blockIdx.x - first) * 2 * SUMS;
    for (int i = threadIdx.x; i < quads; i += GPU_THREADS) *(float4 *)(mine + i * 4) = *(const float4 *)(sum + i / 16 * SLOT + i % 16 * 4);
    all_multipliers();
    if (threadIdx.x == 0) {
        __threadfence();
        *flag = atomicAdd(&a.count[tile], 1) == last - first;
        if (*flag) a.count[tile] = 0;
        __threadfence();
    }
    all_multipliers();
    if (!*flag) return false;
    enum { AHEAD = TOKENS > 16 ? 4 : 8 }; /* loads under way; more do not fit into registers */
    for (int i = threadIdx.x; i < quads; i += GPU_THREADS) {
        float4 all = {0, 0, 0, 0};
        for (int b = first; b <= last; b += AHEAD) {
            float4 v[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (b + k <= last) v[k] = load_fresh((b + k == first ? of_first : others + (gpu_i64)(b + k - first) * 2 * SUMS) + i * 4);
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (b + k <= last) all.x += v[k].x, all.y += v[k].y, all.z += v[k].z, all.w += v[k].w;
        }
        *(float4 *)(sum + i / 16 * SLOT + i % 16 * 4) = all;
    }
    all_multipliers();
    return true;
}

static __device__ inline void put_tile(const gpu_skinny_args &a, int tile, const float *sums) {
    tile_at at = find_tile(a, tile);
    const gpu_skinny_part &p = a.part[at.part];
    int wide = p.up ? TILE / 2 : TILE;
    for (int i = threadIdx.x; i < a.n * wide; i += GPU_THREADS) {
        int token = i / wide, r = i % wide;
        if (at.row + r >= p.rows) continue;
        const float *sum = sums + token * SLOT + r;
        float v = p.up ? silu(sum[0]) * sum[TILE / 2] : sum[0];
        gpu_i64 to = token * p.y_stride + at.head * a.y_step + at.row + r;
        if (p.y_type == GPU_F32)
            ((float *)p.y)[to] = v;
        else
            ((gpu_bf16 *)p.y)[to] = bf16_of(v);
    }
}

/* absorb_q: the rotated columns of each head, behind the product. */
static __device__ inline void put_rope(const gpu_skinny_args &a) {
    gpu_i64 heads = a.part[0].tiles / a.head_tiles, all = a.n * heads * a.rope;
    for (gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; i < all; i += (gpu_i64)gridDim.x * GPU_THREADS) {
        gpu_i64 j = i % a.rope, h = i / a.rope % heads, token = i / a.rope / heads;
        ((gpu_bf16 *)a.part[0].y)[token * a.part[0].y_stride + h * a.y_step + a.part[0].rows + j] = a.x[token * a.x_stride + h * a.x_step + a.cols + j];
    }
}

typedef struct {
    gpu_u64 full[SKINNY_STAGES_MOST], empty[SKINNY_STAGES_MOST];
    int flag[4];
} skinny_state;
static_assert(sizeof(skinny_state) <= SKINNY_STATE, "args.h");

template <int TOKENS, int STAGES, bool ACROSS>
static __device__ inline void load_units(const gpu_skinny_args &a, int from, int to, skinny_state *state, gpu_bf16 *ring) {
    bool of_weight = threadIdx.x < GPU_THREADS + LOADERS;
    feed f = {0, 0, 0, 0, from / a.units, from % a.units};
    int s = 0, turn = 1;
    if (!of_weight) after_previous();
    for (int unit = from; unit < to; unit++) {
        gpu_bf16 *stage = ring + s * (TILE + TOKENS) * STRIDE;
        if (unit - from >= STAGES) barrier_wait(&state->empty[s], turn);
        if (of_weight) {
            if (unit == from || f.unit == 0) aim_weight<ACROSS>(a, f);
            load_weight<ACROSS>(a, f, stage);
        } else {
            if (unit == from || f.unit == 0) aim_x(a, f);
            load_x<TOKENS>(a, f, stage + TILE * STRIDE);
        }
        barrier_arrive_copies(&state->full[s]);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
    copies_commit();
    copies_wait<0>();
}

template <int TOKENS, int STAGES, int SLOTS, bool ACROSS>
static __device__ inline void multiply_units(const gpu_skinny_args &a, int from, int to, skinny_state *state, const gpu_bf16 *ring, float *sum) {
    float sums[2][TOKENS / 8][4];
    int tile = from / a.units, k = from % a.units, s = 0, turn = 0;
    bool whole = k == 0;
    after_previous();
    clear<TOKENS>(sums);
#pragma unroll 1
    for (int unit = from; unit < to; unit++) {
        barrier_wait(&state->full[s], turn);
        if (k * TILE + threadIdx.x / 64 * 16 < a.cols) multiply<TOKENS, ACROSS>(ring + s * (TILE + TOKENS) * STRIDE, sums);
        if (threadIdx.x % 32 == 0) barrier_arrive(&state->empty[s]);
        if (++s == STAGES) s = 0, turn ^= 1;
        if (++k < a.units && unit + 1 < to) continue;
        gather_warps<TOKENS, SLOTS>(sums, sum);
        if ((whole && k == a.units) || share_tile<TOKENS>(a, tile, sum, state->flag)) put_tile(a, tile, sum);
        all_multipliers();
        clear<TOKENS>(sums);
        k = 0, tile++, whole = true;
    }
    if (ACROSS && a.rope) put_rope(a);
}

/* Grid: blocks that share all units. Shared memory: skinny_state, sums of SLOTS quarters [TOKENS][SLOT], the ring. */
template <int TOKENS, int STAGES, int SLOTS, bool ACROSS> static __device__ inline void skinny(const gpu_skinny_args &a, float *memory) {
    skinny_state *state = (skinny_state *)memory;
    float *sum = memory + SKINNY_STATE / 4;
    gpu_bf16 *ring = (gpu_bf16 *)(sum + SLOTS * TOKENS * SLOT);
    int from = first_unit(a, blockIdx.x), to = first_unit(a, blockIdx.x + 1);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&state->full[s], 2 * LOADERS);
            barrier_init(&state->empty[s], GPU_WARPS);
        }
        barrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= GPU_THREADS)
        load_units<TOKENS, STAGES, ACROSS>(a, from, to, state, ring);
    else
        multiply_units<TOKENS, STAGES, SLOTS, ACROSS>(a, from, to, state, ring, sum);
}

#define SKINNY(name, tokens, across)                                                                         \
    KERNEL_EARLY(name, gpu_skinny_args, SKINNY_THREADS, tokens > 32 ? 1 : 2) {                               \
        SHARED_MEMORY(float4, memory);                                                                       \
        skinny<tokens, SKINNY_STAGES_##tokens, SKINNY_SLOTS_##tokens, across>(a, (float *)memory);           \
    }
SKINNY(skinny_8, 8, false)
SKINNY(skinny_16, 16, false)
SKINNY(skinny_32, 32, false)
SKINNY(skinny_64, 64, false)
SKINNY(absorb_8, 8, true)
SKINNY(absorb_16, 16, true)
SKINNY(absorb_32, 32, true)
SKINNY(absorb_64, 64, true)
