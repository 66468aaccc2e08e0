/* kernels/gpu/mla/absorb_q.cu: absorb_q for weights in BF16: out[i, h, c] = sum over d of q[i, h, d] kv_b[h (nope +
 * v) + d, c], and the rotated columns of q behind it.
 *
 * Bytes: the keys' part of kv_b once for every 64 rows of q, 2 * heads * nope * latent (8.4 MB of Kimi-K2.5's layer,
 * 1 MB at TP8), and q and out. Grid: latent / 128, heads, rows / 64; a block has 128 columns of a head, which are
 * under way before the kernel in front has ended, and each of its warpgroups multiplies 64 of them on wgmma with q
 * as the first operand: the weight is read across its rows (N-major). Sums are formed in the order of d, whatever n.
 * Shared memory: weights [2][nope][64], q [nope / 64][64][64], bf16 in the 128-byte swizzle. */
#include "kernels/gpu/device/wgmma.cuh"

enum { PART = 64, BLOCK = 128 /* columns of a warpgroup, of a block */ };

static __device__ inline void absorb_load_weight(const gpu_absorb_args &a, unsigned char *to) {
    const gpu_bf16 *w =
        (const gpu_bf16 *)a.kv_b.data + blockIdx.y * (a.nope + a.v_dim) * a.latent + (gpu_i64)blockIdx.x * BLOCK;
    for (int i = threadIdx.x; i < a.nope * (BLOCK / 8); i += GPU_THREADS) {
        int d = i / (BLOCK / 8), piece = i % (BLOCK / 8);
        cp_async16(to + piece / 8 * (a.nope * 128) + swizzled(d, piece % 8), w + d * a.latent + piece * 8);
    }
}

static __device__ inline void load_q(const gpu_absorb_args &a, const gpu_bf16 *q, int rows, unsigned char *to) {
    int pieces = (int)a.nope / 8;
    for (int i = threadIdx.x; i < rows * pieces; i += GPU_THREADS) {
        int row = i / pieces, piece = i % pieces;
        cp_async16(to + piece / 8 * (PART * 128) + swizzled(row, piece % 8),
                   q + row * a.heads * (a.nope + a.rope) + piece * 8);
    }
}

static __device__ inline void absorb_put(const gpu_absorb_args &a, const float d[PART / 2], int rows, gpu_bf16 *out) {
    int thread = threadIdx.x % 128, lane = thread % 32;
#pragma unroll
    for (int j = 0; j < PART / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = thread / 32 * 16 + lane / 4 + i * 8;
            gpu_u32 two = (gpu_u32)bf16_of(d[4 * j + 2 * i]) | (gpu_u32)bf16_of(d[4 * j + 2 * i + 1]) << 16;
            if (row < rows) *(gpu_u32 *)(out + row * a.heads * (a.latent + a.rope) + j * 8 + lane % 4 * 2) = two;
        }
}

KERNEL_PDL(absorb_q_tile, gpu_absorb_args, GPU_THREADS, 2) {
    SHARED_TILES(memory);
    unsigned char *q_tile = memory + a.nope * 256;
    gpu_i64 head = a.nope + a.rope, width = a.latent + a.rope, from = (gpu_i64)blockIdx.z * PART;
    int rows = (int)min64(a.n - from, PART), group = threadIdx.x / 128;
    const gpu_bf16 *q = a.q + (from * a.heads + blockIdx.y) * head;
    gpu_bf16 *out = a.out + (from * a.heads + blockIdx.y) * width;
    absorb_load_weight(a, memory);
    pdl_wait();
    load_q(a, q, rows, q_tile);
    cp_async_commit();
    cp_async_wait<0>();
    fence_async();
    __syncthreads();
    float d[PART / 2];
#pragma unroll 1
    for (int s = 0; s < a.nope / 16; s++) {
        wgmma_begin();
        gpu_u64 of_w = wgmma_desc_t(memory + group * (a.nope * 128), 1024, 1024) + s * (16 * 128 >> 4);
        wgmma_ss_t<PART>(d, wgmma_desc(q_tile + s / 4 * (PART * 128)) + s % 4 * 2, of_w, s > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    absorb_put(a, d, rows, out + (gpu_i64)blockIdx.x * BLOCK + group * PART);
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < rows * a.rope; i += GPU_THREADS) {
            gpu_i64 row = i / a.rope, col = i % a.rope;
            out[row * a.heads * width + a.latent + col] = q[row * a.heads * head + a.nope + col];
        }
}
