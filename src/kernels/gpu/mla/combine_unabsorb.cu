/* kernels/gpu/mla/combine_unabsorb.cu: from the sums that pieces of decode attention left (split_kv.cuh) to values,
 * in one launch: the pieces of cut rows, in order, into one, and its product with the values' part of kv_b: out[i,
 * h, :] = W_h (sum_s w_s o_s / sum_s w_s l_s), w_s = 2^(m_s - max m).
 *
 * A cluster of 8 blocks a head. A block has 64 of the 512 latents: of all rows' pieces, and of the head's 128 rows
 * of weights, which are under way before the kernel in front has ended. It joins its latents, rounds them to bf16,
 * multiplies on wgmma, and hands its sums out: each block has 16 of the 128 values, of which it adds what came from
 * all eight, in their order. So no block waits for another one's pieces in the kernel in front, and nothing goes
 * through memory in between.
 *
 * Bytes: the pieces' sums once, 2 KiB a head and piece, out of the second-level cache, and 128 KiB of weights a
 * head. */
#include "kernels/gpu/block_marks.h"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/mla/split_kv.cuh"

enum {
    BLOCKS = VALUES_CLUSTER,
    MINE = KV_LATENT / BLOCKS, /* latents of a block */
    COLS = MINE / 4,           /* pieces of four */
    SLOTS = GPU_THREADS / COLS,
    DIM = VALUES_DIM,
    WEIGHTS = DIM * 128 /* bytes */
};

/* GROUPED: decode's row is a group of tokens' rows, each of which has its pieces, of heads of its own. */
template <bool GROUPED> struct values_state {
    enum { PIECES = GROUPED ? VALUES_PIECES_OF_GROUPS : VALUES_PIECES };
    gpu_decode_rows rows; /* of tokens */
    float top[PIECES], weight[PIECES], all[GPU_SKINNY];
    int head[GROUPED ? GPU_SKINNY : 1]; /* of a token, among those of decode's row */
    float4 part[GPU_THREADS];
};
static_assert(sizeof(values_state<false>) <= VALUES_STATE(false), "params.h");
static_assert(sizeof(values_state<true>) <= VALUES_STATE(true), "params.h");

/* By the whole block. */
static __device__ inline void load_pieces(const gpu_combine_unabsorb_args &c, values_state<false> *s, int) {
    enum { WORDS = sizeof(gpu_decode_rows) / sizeof(int) };
    static_assert((int)WORDS <= (int)GPU_THREADS, "a word a thread");
    const gpu_decode_args &a = c.decode;
    if (!a.plan && threadIdx.x < 32) find_pieces(a, &s->rows);
    if (a.plan && threadIdx.x < WORDS) ((int *)&s->rows)[threadIdx.x] = ((const int *)&a.plan->rows)[threadIdx.x];
}
static __device__ inline void load_pieces(const gpu_combine_unabsorb_args &c, values_state<true> *s, int h) {
    static_assert(sizeof(gpu_decode_rows) <= sizeof(s->part), "what is found without a plan");
    const gpu_decode_args &a = c.decode;
    const gpu_decode_rows *rows = a.plan ? &a.plan->rows : (const gpu_decode_rows *)s->part;
    const int t = threadIdx.x, row = t / a.group, place = t % a.group;
    if (!a.plan) {
        if (t < 32) find_pieces(a, (gpu_decode_rows *)s->part);
        __syncthreads();
    }
    if (t > GPU_SKINNY) return;
    if (t >= c.tokens) {
        s->rows.at[t] = rows->at[GPU_SKINNY] * a.group;
        return;
    }
    const int begin = rows->at[row], count = rows->at[row + 1] - begin;
    s->rows.from[t] = rows->from[row], s->rows.at[t] = begin * a.group + place * count;
    s->head[t] = place * a.group_heads + h;
}

/* The head of a token's row among those of decode's, and its place in decode's results. */
template <bool GROUPED> static __device__ inline int head_of(const values_state<GROUPED> *s, int row, int h) {
    return GROUPED ? s->head[row] : h;
}
template <bool GROUPED> static __device__ inline gpu_i64 out_row(const gpu_decode_args &a, int row, int head) {
    return (gpu_i64)(GROUPED ? row / a.group : row) * a.heads + head;
}

/* Of every piece its weight, of every row the sum that divides. A row is of ROW_LANES lanes, which alone see what they
 * keep of its pieces meanwhile. */
template <int TOKENS, bool GROUPED>
static __device__ inline void piece_weights(const gpu_combine_unabsorb_args &c, values_state<GROUPED> *s, int h) {
    enum { ROW_LANES = 32 * GPU_WARPS / TOKENS, AT_ONCE = 5 };
    const gpu_decode_args &a = c.decode;
    int row = threadIdx.x / ROW_LANES, lane = threadIdx.x % ROW_LANES;
    bool here = row < c.tokens;
    int begin = here ? s->rows.at[row] : 0, count = here ? s->rows.at[row + 1] - begin : 0;
    float top = -INFINITY, all = 0;
    if (count > 1) {
        const gpu_i64 step = a.heads * 2; /* floats from slot to slot */
        const float *states = part_state(a, part_slot(s->rows.from[row], false), head_of<GROUPED>(s, row, h));
        for (int base = lane; base < count; base += AT_ONCE * ROW_LANES) {
            float2 v[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                int k = base + i * ROW_LANES;
                if (k < count) v[i] = *(const float2 *)(states + (2 * k + (k == 0)) * step);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                int k = base + i * ROW_LANES;
                if (k < count) s->top[begin + k] = v[i].x, s->weight[begin + k] = v[i].y, top = max_nan(top, v[i].x);
            }
        }
    } else if (count == 1 && lane == 0)
        s->top[begin] = top = 0, s->weight[begin] = 1;
#pragma unroll
    for (int d = ROW_LANES / 2; d; d >>= 1) top = max_nan(top, __shfl_xor_sync(~0u, top, d));
    for (int k = lane; k < count; k += ROW_LANES) {
        float w = exp2f(s->top[begin + k] - top);
        all += s->weight[begin + k] * w;
        s->weight[begin + k] = w;
    }
#pragma unroll
    for (int d = ROW_LANES / 2; d; d >>= 1) all += __shfl_xor_sync(~0u, all, d);
    if (lane == 0 && here) s->all[row] = all;
    __syncthreads();
}

/* The block's latents of all rows, divided, as wgmma's second operand. ROWS rows of a thread at once, of each of which
 * it loads PIECES pieces at once. */
template <bool GROUPED, int ROWS, int PIECES>
static __device__ inline void join_latents(const gpu_combine_unabsorb_args &c, values_state<GROUPED> *s, int h,
                                           int rank, unsigned char *x) {
    const gpu_decode_args &a = c.decode;
    int col = threadIdx.x % COLS, first = threadIdx.x / COLS, latent = rank * MINE + col * 4;
    for (int base = 0; base < c.tokens; base += SLOTS * ROWS) {
        float4 o[ROWS];
        int max_splits = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int row = base + r * SLOTS + first;
            o[r] = {0, 0, 0, 0};
            if (row < c.tokens && s->rows.at[row + 1] - s->rows.at[row] > max_splits)
                max_splits = s->rows.at[row + 1] - s->rows.at[row];
        }
        for (int k = 0; k < max_splits; k += PIECES) {
            float4 v[ROWS][PIECES];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int p = 0; p < PIECES; p++) {
                    int row = base + r * SLOTS + first, piece = k + p;
                    if (row >= c.tokens || piece >= s->rows.at[row + 1] - s->rows.at[row]) continue;
                    if (s->rows.at[row + 1] - s->rows.at[row] > 1) {
                        v[r][p] = *(const float4 *)(part_sums(a, part_slot(s->rows.from[row] + piece, piece == 0),
                                                              head_of<GROUPED>(s, row, h)) +
                                                    latent);
                    } else {
                        uint2 u =
                            *(const uint2 *)(a.out + out_row<GROUPED>(a, row, head_of<GROUPED>(s, row, h)) * KV_LATENT +
                                             latent);
                        v[r][p] = {low_f32(u.x), high_f32(u.x), low_f32(u.y), high_f32(u.y)};
                    }
                }
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int p = 0; p < PIECES; p++) {
                    int row = base + r * SLOTS + first, piece = k + p;
                    if (row < c.tokens && piece < s->rows.at[row + 1] - s->rows.at[row])
                        cut_add_piece(o[r], v[r][p], s->weight[s->rows.at[row] + piece]);
                }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int row = base + r * SLOTS + first;
            if (row >= c.tokens) continue;
            float l = s->all[row];
            *(uint2 *)(x + swizzled(row, col / 2) + col % 2 * 8) = {pair_bf16(o[r].x / l, o[r].y / l),
                                                                    pair_bf16(o[r].z / l, o[r].w / l)};
        }
    }
}

/* The same of few rows, with piece_weights: `groups` groups of threads a row, a thread has every groups-th piece of it,
 * PIECES loads under way at once, the first while the weights are computed. */
template <int TOKENS, bool GROUPED, int PIECES>
static __device__ inline void join_few(const gpu_combine_unabsorb_args &c, values_state<GROUPED> *s, int h, int rank,
                                       unsigned char *x, block_times *times) {
    const gpu_decode_args &a = c.decode;
    int groups = SLOTS;
    while (groups > 1 && SLOTS / groups < c.tokens) groups /= 2;
    int thread = threadIdx.x, col = thread % COLS, slot = thread / COLS, group = slot % groups, row = slot / groups,
        latent = rank * MINE + col * 4;
    bool here = row < c.tokens;
    int begin = here ? s->rows.at[row] : 0, count = here ? s->rows.at[row + 1] - begin : 0,
        head = here ? head_of<GROUPED>(s, row, h) : 0;
    const gpu_i64 step = a.heads * KV_LATENT; /* floats from slot to slot */
    const float *sums = part_sums(a, part_slot(here ? s->rows.from[row] : 0, false), head) + latent,
                *weights = s->weight + begin;
    float4 o = {0, 0, 0, 0}, v[PIECES];
    auto load = [&](int k) {
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int piece = k + p * groups;
            if (piece < count) v[p] = *(const float4 *)(sums + (2 * piece + (piece == 0)) * step);
        }
    };
    pdl_wait();
    block_mark(times, VALUES_WAITED);
    if (count == 1) {
        uint2 u = *(const uint2 *)(a.out + out_row<GROUPED>(a, row, head) * KV_LATENT + latent);
        if (group == 0) o = {low_f32(u.x), high_f32(u.x), low_f32(u.y), high_f32(u.y)};
        count = 0;
    }
    load(group);
    piece_weights<TOKENS, GROUPED>(c, s, h);
    block_mark(times, VALUES_WEIGHTS);
    for (int k = group; k < count; k += groups * PIECES) {
        if (k > group) load(k);
#pragma unroll
        for (int p = 0; p < PIECES; p++)
            if (k + p * groups < count) cut_add_piece(o, v[p], weights[k + p * groups]);
    }
    if (groups > 1) { /* two are in a warp */
        float4 *part = s->part + thread / 32 * COLS + col;
        o.x += __shfl_xor_sync(~0u, o.x, 16), o.y += __shfl_xor_sync(~0u, o.y, 16);
        o.z += __shfl_xor_sync(~0u, o.z, 16), o.w += __shfl_xor_sync(~0u, o.w, 16);
        if (groups > 2) {
            if (thread % 32 < COLS) *part = o;
            __syncthreads();
#pragma unroll
            for (int g = 1; g < SLOTS / 2; g++)
                if (group == 0 && 2 * g < groups) cut_add_piece(o, part[g * COLS], 1.0f);
        }
    }
    if (group || !here) return;
    float l = s->all[row];
    *(uint2 *)(x + swizzled(row, col / 2) + col % 2 * 8) = {pair_bf16(o.x / l, o.y / l), pair_bf16(o.z / l, o.w / l)};
}

/* Shared memory: weights [128][64], x [TOKENS][64], bf16 in the 128-byte swizzle; values_state; of each block of the
 * cluster its sums of this block's values, as its warp `rank` holds them, [BLOCKS][TOKENS / 8][32] fours. Grid: heads *
 * BLOCKS. */
template <int TOKENS, bool GROUPED>
static __device__ inline void values(const gpu_combine_unabsorb_args &a, unsigned char *memory, block_times *times) {
    enum { EIGHTS = TOKENS / 8, EACH = DIM / 2 / BLOCKS /* pairs of values of a token */ };
    static_assert((int)DIM / 16 == (int)GPU_WARPS && (int)GPU_WARPS == (int)BLOCKS, "a warp's rows are a block's");
    unsigned char *x = memory + WEIGHTS;
    values_state<GROUPED> *s = (values_state<GROUPED> *)(x + TOKENS * 128);
    float4 *sums = (float4 *)((unsigned char *)s + VALUES_STATE(GROUPED));
    int rank = cluster_rank(), thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    gpu_i64 h = blockIdx.x / BLOCKS;
    const gpu_bf16 *w = a.kv_b + (h * (a.nope + DIM) + a.nope) * KV_LATENT + rank * MINE;
    cluster_arrive();
    for (int i = thread; i < DIM * 8; i += GPU_THREADS)
        cp_async16(memory + swizzled(i / 8, i % 8), w + (gpu_i64)(i / 8) * KV_LATENT + i % 8 * 8);
    cp_async_commit();
    load_pieces(a, s, (int)h);
    __syncthreads();
    if constexpr (TOKENS >= 32) {
        pdl_wait();
        block_mark(times, VALUES_WAITED);
        piece_weights<TOKENS, GROUPED>(a, s, (int)h);
        block_mark(times, VALUES_WEIGHTS);
        join_latents<GROUPED, TOKENS / SLOTS, 256 / TOKENS>(a, s, (int)h, rank, x);
    } else
        join_few<TOKENS, GROUPED, 10>(a, s, (int)h, rank, x, times);
    cp_async_wait<0>();
    fence_async();
    __syncthreads();
    block_mark(times, VALUES_JOINED);
    float d[TOKENS / 2];
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < MINE / 16; k++)
        wgmma_ss<TOKENS>(d, wgmma_desc(memory + thread / 128 * 8192) + 2 * k, wgmma_desc(x) + 2 * k, k);
    wgmma_commit();
    wgmma_wait<0>();
    cluster_wait(); /* all have begun */
    float4 *to = (float4 *)in_cluster(sums + rank * (EIGHTS * 32) + lane, warp);
#pragma unroll
    for (int q = 0; q < EIGHTS; q++)
        if (q * 8 < a.tokens) to[q * 32] = {d[4 * q], d[4 * q + 1], d[4 * q + 2], d[4 * q + 3]};
    cluster_sync();
    block_mark(times, VALUES_MET);
    for (int i = thread; i < a.tokens * EACH; i += GPU_THREADS) {
        /* values row and row + 1 of the block's 16: where mma's result has them */
        int token = i / EACH, row = i % EACH * 2,
            at = (token / 8 * 32 + row % 8 * 4 + token % 8 / 2) * 4 + row / 8 * 2 + token % 2;
        float low = 0, high = 0;
#pragma unroll
        for (int r = 0; r < BLOCKS; r++) {
            const float *of = (const float *)(sums + r * (EIGHTS * 32)) + at;
            low += of[0], high += of[16];
        }
        *(gpu_u32 *)(a.out + ((gpu_i64)token * (GROUPED ? a.decode.group_heads : a.decode.heads) + h) * DIM +
                     rank * 16 + row) = pair_bf16(low, high);
    }
}

#define VALUES(name, tokens, grouped)                                                                                  \
    KERNEL_PDL(name##_##tokens, gpu_combine_unabsorb_args, GPU_THREADS, 2) {                                           \
        SHARED_TILES(memory);                                                                                          \
        values<tokens, grouped>(a, memory, times);                                                                     \
    }
VALUES(combine_unabsorb, 8, false)
VALUES(combine_unabsorb, 16, false)
VALUES(combine_unabsorb, 32, false)
VALUES(combine_unabsorb, 64, false)
VALUES(combine_unabsorb_groups, 8, true)
VALUES(combine_unabsorb_groups, 16, true)
