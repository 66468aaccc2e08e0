/* kernels/gpu/mla/query_fused.cu: from the latent rows of queries and keys to absorbed attention's queries and the
 * KV cache's rows, in one launch, for up to 64 rows: norm of the queries' latent row, product with q_b, rotation,
 * product with the keys' part of kv_b (absorb_q.cu); norm and rotation of the KV row (rows.cuh).
 *
 * A cluster of 8 blocks a head. A block has an eighth of the columns of the head's 192 rows of q_b, under way before
 * the kernel in front has ended, multiplies them on wgmma with the latent row times the norm's weight, and leaves
 * its sums in shared memory. Each block adds all eight, in their order, and scales them by the row's root mean
 * square, whose squares it adds alike: up to 8 rows every block does so for the whole query; above, each for every
 * eighth row, and hands it to the others. Then it multiplies the query with 64 of the 512 columns of kv_b, which
 * came at the start too. One more cluster writes the KV rows.
 *
 * Bytes: 2 * heads * (192 q_lora + 128 * 512), once: 5.8 MB of a rank of TP8 of Kimi-K2.5. */
#include "kernels/gpu/block_marks.h"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/rows/rows.cuh"

enum {
    NOPE = QUERY_NOPE,
    ROPE = QUERY_ROPE,
    HEAD = NOPE + ROPE,
    LATENT = QUERY_LATENT,
    BLOCKS = QUERY_CLUSTER,
    MINE = LATENT / BLOCKS, /* latents of a block */
    WARPS = QUERY_THREADS / 32,
    TILE = HEAD * 128, /* bytes of a unit of 64 columns of q_b */
    SUMS = HEAD + 4    /* floats from token to token */
};

/* The same rows as often as there are: a row of A that nobody reads may be any. */
static __device__ inline gpu_u64 query_desc(const void *q, int tokens) {
    return tokens > 8 ? wgmma_desc(q) : desc_of(q, 16, 0);
}

static __device__ inline void load_query_weights(const gpu_query_fused_args &a, int head, int rank, unsigned char *of_q,
                                                 unsigned char *of_k) {
    const gpu_bf16 *w = a.q_b + (gpu_i64)head * HEAD * a.q_lora + rank * a.units * 64;
    for (int i = threadIdx.x; i < HEAD * a.units * 8; i += QUERY_THREADS) {
        int piece = i % 8, unit = i / 8 % a.units, row = i / 8 / a.units;
        cp_async16(of_q + unit * TILE + swizzled(row, piece), w + (gpu_i64)row * a.q_lora + unit * 64 + piece * 8);
    }
    const gpu_bf16 *k = a.kv_b + (gpu_i64)head * (NOPE + a.v_dim) * LATENT + rank * MINE;
    for (int i = threadIdx.x; i < NOPE * 8; i += QUERY_THREADS)
        cp_async16(of_k + swizzled(i / 8, i % 8), k + (gpu_i64)(i / 8) * LATENT + i % 8 * 8);
    cp_async_commit();
}

/* The block's columns of the latent rows times the norm's weight, and the sums of their squares a row and unit. */
template <int TOKENS>
static __device__ inline void load_latents(const gpu_query_fused_args &a, int rank, unsigned char *x, float *squares) {
    enum { MOST = (TOKENS * QUERY_UNITS * 8 + QUERY_THREADS - 1) / QUERY_THREADS };
    int all = (int)a.n * a.units * 8, piece = threadIdx.x % 8;
    float w[MOST][PIECE];
    uint4 u[MOST];
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        int i = k * QUERY_THREADS + threadIdx.x, unit = i / 8 % a.units;
        row_load_weight(a.q_norm, (rank * a.units + unit) * 64 + piece * 8, i < all, w[k]);
    }
    pdl_wait();
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        int i = k * QUERY_THREADS + threadIdx.x, unit = i / 8 % a.units, row = i / 8 / a.units;
        u[k] = {0, 0, 0, 0};
        if (i < all) u[k] = *(const uint4 *)(a.q_a + row * a.q_stride + (rank * a.units + unit) * 64 + piece * 8);
    }
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        int i = k * QUERY_THREADS + threadIdx.x, unit = i / 8 % a.units, row = i / 8 / a.units;
        float v[PIECE], sum = 0;
        unpack(u[k], v);
#pragma unroll
        for (int j = 0; j < PIECE; j++) sum = fmaf(v[j], v[j], sum), v[j] *= w[k][j];
        for (int d = 4; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
        if (i >= all) continue;
        *(uint4 *)(x + unit * (TOKENS * 128) + swizzled(row, piece)) = pack(v);
        if (piece == 0) squares[row * QUERY_UNITS + unit] = sum;
    }
}

/* 4 values of the query: the sums of all blocks of the cluster, and what scales them. */
static __device__ inline float4 whole_query(const gpu_query_fused_args &a, const float *sums, const float *squares,
                                            int token, int at) {
    float4 v[BLOCKS], sum = {0, 0, 0, 0};
    float row[BLOCKS], all = 0;
#pragma unroll
    for (int r = 0; r < BLOCKS; r++) {
        v[r] = *(const float4 *)in_cluster(sums + token * SUMS + at, r);
        row[r] = *(const float *)in_cluster(squares + token, r);
    }
#pragma unroll
    for (int r = 0; r < BLOCKS; r++) sum.x += v[r].x, sum.y += v[r].y, sum.z += v[r].z, sum.w += v[r].w, all += row[r];
    float scale = rsqrtf(all / (float)a.q_lora + a.eps);
    return {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
}

static __device__ inline uint2 pack4(float x, float y, float z, float w) { return {pair_bf16(x, y), pair_bf16(z, w)}; }

/* The unrotated part into shared memory for the next product; of the rotated one this block's 8 values to memory. */
static __device__ inline void spread_query(const gpu_query_fused_args &a, int head, int rank, const float *sums,
                                           const float *squares, unsigned char *q, int half) {
    enum { PLAIN = NOPE / 4, TURNED = ROPE / 4 / BLOCKS, EACH = PLAIN + TURNED };
    for (int i = threadIdx.x; i < (int)a.n * EACH; i += QUERY_THREADS) {
        int token = i / EACH, j = i % EACH, c = (rank * TURNED + j - PLAIN) * 4;
        float4 v = whole_query(a, sums, squares, token, j < PLAIN ? j * 4 : NOPE + c);
        if (j < PLAIN) {
            *(uint2 *)(q + j / 16 * half + swizzled(token, j % 16 / 2) + j % 2 * 8) = pack4(v.x, v.y, v.z, v.w);
        } else {
            float4 t = *(const float4 *)(a.kv.table + token * ROPE + c);
            *(uint2 *)(a.out + ((gpu_i64)token * a.heads + head) * (LATENT + ROPE) + LATENT + c) =
                pack4(v.x * t.x - v.y * t.y, v.x * t.y + v.y * t.x, v.z * t.z - v.w * t.w, v.z * t.w + v.w * t.z);
        }
    }
}

/* The same for every eighth row, into the shared memory of all blocks. */
static __device__ inline void hand_out_query(const gpu_query_fused_args &a, int head, int rank, const float *sums,
                                             const float *squares, unsigned char *q, int half) {
    enum { PLAIN = NOPE / 4, EACH = HEAD / 4 };
    int rows = ((int)a.n - rank + BLOCKS - 1) / BLOCKS;
    for (int i = threadIdx.x; i < rows * EACH; i += QUERY_THREADS) {
        int token = i / EACH * BLOCKS + rank, j = i % EACH, c = (j - PLAIN) * 4;
        float4 v = whole_query(a, sums, squares, token, j * 4);
        if (j < PLAIN) {
            unsigned char *at = q + j / 16 * half + swizzled(token, j % 16 / 2) + j % 2 * 8;
#pragma unroll
            for (int r = 0; r < BLOCKS; r++) *(uint2 *)in_cluster(at, r) = pack4(v.x, v.y, v.z, v.w);
        } else {
            float4 t = *(const float4 *)(a.kv.table + token * ROPE + c);
            *(uint2 *)(a.out + ((gpu_i64)token * a.heads + head) * (LATENT + ROPE) + LATENT + c) =
                pack4(v.x * t.x - v.y * t.y, v.x * t.y + v.y * t.x, v.z * t.z - v.w * t.w, v.z * t.w + v.w * t.z);
        }
    }
}

/* 64 rows of q_b times x. The number of units is known here, so that all products are under way at once. */
template <int TOKENS, int UNITS>
static __device__ inline void multiply_units(float *d, const unsigned char *rows, const unsigned char *x) {
    wgmma_begin();
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_ss<TOKENS>(d, wgmma_desc(rows + u * TILE) + 2 * k, wgmma_desc(x + u * (TOKENS * 128)) + 2 * k,
                             u || k);
    wgmma_commit();
    wgmma_wait<0>();
}

/* Shared memory: q_b [units][192][64], kv_b [128][64], x [units][TOKENS][64], q [2][8 or 64][64], all bf16 in the
 * 128-byte swizzle; sums [TOKENS][SUMS]; squares [TOKENS], and [TOKENS][QUERY_UNITS]. */
template <int TOKENS>
static __device__ inline void query(const gpu_query_fused_args &a, unsigned char *memory, block_times *times) {
    enum { HALF = TOKENS > 8 ? 8192 : 1024 };
    int head = blockIdx.x / BLOCKS, rank = cluster_rank(), thread = threadIdx.x, lane = thread % 32;
    if (head == a.heads) {
        pdl_wait();
        for (int i = thread / 32 * BLOCKS + rank; i < a.n; i += WARPS * BLOCKS)
            kv_row_of_warp<(LATENT + ROPE + 32 * PIECE - 1) / (32 * PIECE)>(a.kv, i);
        return;
    }
    unsigned char *of_q = memory, *of_k = of_q + a.units * TILE, *x = of_k + NOPE * 128,
                  *q = x + a.units * (TOKENS * 128);
    float *sums = (float *)(q + 2 * HALF), *squares = sums + TOKENS * SUMS, *parts = squares + TOKENS;
    load_query_weights(a, head, rank, of_q, of_k);
    load_latents<TOKENS>(a, rank, x, parts);
    cp_async_wait<0>();
    fence_async();
    __syncthreads();
    block_mark(times, QUERY_LATENTS);
    float d[TOKENS / 2], o[MINE / 2];
    if (thread < a.n) {
        float all = 0;
        for (int u = 0; u < a.units; u++) all += parts[thread * QUERY_UNITS + u];
        squares[thread] = all;
    }
    const unsigned char *rows = of_q + thread / 128 * 8192;
    switch (a.units) {
    case 1: multiply_units<TOKENS, 1>(d, rows, x); break;
    case 2: multiply_units<TOKENS, 2>(d, rows, x); break;
    default: multiply_units<TOKENS, QUERY_UNITS>(d, rows, x);
    }
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) {
        int token = i / 4 * 8 + lane % 4 * 2 + i % 2, row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8;
        if (token < a.n) sums[token * SUMS + row] = d[i];
    }
    block_mark(times, QUERY_PRODUCTS);
    cluster_sync();
    block_mark(times, QUERY_MET);
    if constexpr (TOKENS > 8) {
        hand_out_query(a, head, rank, sums, squares, q, HALF);
        cluster_sync();
    } else {
        spread_query(a, head, rank, sums, squares, q, HALF);
        cluster_arrive(); /* this block has read the others' sums */
    }
    fence_async();
    __syncthreads();
    block_mark(times, QUERY_WHOLE);
    if (thread < 128) {
        wgmma_begin();
#pragma unroll
        for (int s = 0; s < NOPE / 16; s++)
            wgmma_ss_t<MINE>(o, query_desc(q + s / 4 * HALF, TOKENS) + s % 4 * 2,
                             wgmma_desc_t(of_k, 1024, 1024) + s * (16 * 128 >> 4), s > 0);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int token = thread / 32 * 16 + lane / 4 + i * 8;
            gpu_bf16 *to = a.out + ((gpu_i64)token * a.heads + head) * (LATENT + ROPE) + rank * MINE + lane % 4 * 2;
            if (token >= a.n) continue;
#pragma unroll
            for (int j = 0; j < MINE / 8; j++)
                *(gpu_u32 *)(to + j * 8) = pair_bf16(o[4 * j + 2 * i], o[4 * j + 2 * i + 1]);
        }
    }
    block_mark(times, QUERY_ABSORBED);
    if (TOKENS <= 8) cluster_wait(); /* the others have read the sums */
}

KERNEL_PDL(query_fused_8, gpu_query_fused_args, QUERY_THREADS, 2) {
    SHARED_TILES(memory);
    query<8>(a, memory, times);
}
KERNEL_PDL(query_fused_16, gpu_query_fused_args, QUERY_THREADS, 1) {
    SHARED_TILES(memory);
    query<16>(a, memory, times);
}
KERNEL_PDL(query_fused_32, gpu_query_fused_args, QUERY_THREADS, 1) {
    SHARED_TILES(memory);
    query<32>(a, memory, times);
}
KERNEL_PDL(query_fused_64, gpu_query_fused_args, QUERY_THREADS, 1) {
    SHARED_TILES(memory);
    query<64>(a, memory, times);
}
