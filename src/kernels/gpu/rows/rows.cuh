/* kernels/gpu/rows/rows.cuh: values of a row in pieces of 16 bytes, and a row of the KV cache by one block, for
 * rows.cu, query_fused.cu and others. */
#ifndef KERNELS_GPU_ROWS_ROWS_CUH
#define KERNELS_GPU_ROWS_ROWS_CUH
#include "kernels/gpu/device/sm90.cuh"

enum { PIECE = 8 /* values of 16 bytes */ };

static __device__ inline void unpack(const uint4 &u, float v[PIECE]) {
    const gpu_u32 b[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int i = 0; i < 4; i++) v[2 * i] = low_f32(b[i]), v[2 * i + 1] = high_f32(b[i]);
}
static __device__ inline uint4 pack(const float v[PIECE]) {
    gpu_u32 b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) b[i] = (gpu_u32)bf16_of(v[2 * i]) | (gpu_u32)bf16_of(v[2 * i + 1]) << 16;
    return {b[0], b[1], b[2], b[3]};
}
static __device__ inline bool is_bad(gpu_bf16 h) { return (h & 0x7f80) == 0x7f80; }
static __device__ inline bool has_bad(const uint4 &u) {
    const gpu_u32 b[4] = {u.x, u.y, u.z, u.w};
    bool bad = false;
#pragma unroll
    for (int i = 0; i < 4; i++) bad |= is_bad((gpu_bf16)b[i]) || is_bad((gpu_bf16)(b[i] >> 16));
    return bad;
}

/* bad[row] = mark if the block saw a NaN or an infinity. A sum of squares that is finite had none, so the question
 * is rarely asked (finite values have an infinite sum too). */
static __device__ inline void mark_row(int *bad, int mark, gpu_i64 row, float squares, bool mine) {
    if (!bad || squares - squares == 0.0f) return;
    if (__syncthreads_or(mine) && threadIdx.x == 0 && bad[row] == 0) bad[row] = mark;
}

static __device__ inline void row_load_weight(const float *weight, gpu_i64 c, bool here, float w[PIECE]) {
#pragma unroll
    for (int k = 0; k < PIECE; k += 4) {
        float4 f = {0, 0, 0, 0};
        if (here) f = *(const float4 *)(weight + c + k);
        w[k] = f.x, w[k + 1] = f.y, w[k + 2] = f.z, w[k + 3] = f.w;
    }
}

/* PIECE values, pairs (2j, 2j + 1), by the angles cs[PIECE]. */
static __device__ inline void rotate(float v[PIECE], const float *cs) {
#pragma unroll
    for (int k = 0; k < PIECE; k += 4) {
        float4 t = *(const float4 *)(cs + k);
        float a = v[k], b = v[k + 1], c = v[k + 2], d = v[k + 3];
        v[k] = a * t.x - b * t.y, v[k + 1] = a * t.y + b * t.x;
        v[k + 2] = c * t.z - d * t.w, v[k + 3] = c * t.w + d * t.z;
    }
}

static __device__ inline void kv_set_piece(void *kv, int type, gpu_i64 at, const float v[PIECE]) {
    if (type == GPU_BF16) {
        *(uint4 *)((gpu_bf16 *)kv + at) = pack(v);
    } else if (type == GPU_FP8) {
        gpu_u32 b[2] = {0, 0};
#pragma unroll
        for (int k = 0; k < PIECE; k++) b[k / 4] |= (gpu_u32)fp8_of(v[k]) << 8 * (k % 4);
        *(uint2 *)((gpu_u8 *)kv + at) = {b[0], b[1]};
    } else {
        float4 *f = (float4 *)((float *)kv + at);
        f[0] = {v[0], v[1], v[2], v[3]}, f[1] = {v[4], v[5], v[6], v[7]};
    }
}

/* Row i by one block of WARPS warps, a piece a thread: norm of the first `latent` values, the rest rotated. each:
 * shared. */
template <int WARPS> static __device__ inline void kv_row(const gpu_kv_write_args &a, gpu_i64 i, float *each) {
    gpu_i64 width = a.latent + a.rope, c = (gpu_i64)threadIdx.x * PIECE;
    float squares = 0, v[PIECE] = {0, 0, 0, 0, 0, 0, 0, 0}, w[PIECE];
    row_load_weight(a.norm, c, c < a.latent, w);
    pdl_wait();
    gpu_i64 base = a.slots[i] * width;
    if (c < width) unpack(*(const uint4 *)(a.kv_a + i * width + c), v);
    if (c < a.latent)
#pragma unroll
        for (int k = 0; k < PIECE; k++) squares = fmaf(v[k], v[k], squares);
    float r = rsqrtf(block_sum_in<WARPS>(squares, each) / (float)a.latent + a.eps);
    if (c >= width || base < 0) return;
    if (c < a.latent)
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[k] = v[k] * r * w[k];
    else
        rotate(v, a.table + i * a.rope + c - a.latent);
    kv_set_piece(a.kv, a.kv_type, base + c, v);
}

/* The same by one warp, which holds the whole row, MOST pieces a lane. pdl_wait() has been called. */
template <int MOST> static __device__ inline void kv_row_of_warp(const gpu_kv_write_args &a, gpu_i64 i) {
    gpu_i64 width = a.latent + a.rope, base = a.slots[i] * width;
    int lane = threadIdx.x % 32;
    uint4 u[MOST];
    float squares = 0;
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        gpu_i64 c = (p * 32 + lane) * PIECE;
        u[p] = {0, 0, 0, 0};
        if (c < width) u[p] = *(const uint4 *)(a.kv_a + i * width + c);
    }
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        float v[PIECE];
        unpack(u[p], v);
#pragma unroll
        for (int k = 0; k < PIECE; k++)
            if ((p * 32 + lane) * PIECE < a.latent) squares = fmaf(v[k], v[k], squares);
    }
    float r = rsqrtf(warp_sum(squares) / (float)a.latent + a.eps);
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        gpu_i64 c = (p * 32 + lane) * PIECE;
        float v[PIECE], w[PIECE];
        if (c >= width || base < 0) break;
        unpack(u[p], v);
        if (c < a.latent) {
            row_load_weight(a.norm, c, true, w);
#pragma unroll
            for (int k = 0; k < PIECE; k++) v[k] = v[k] * r * w[k];
        } else
            rotate(v, a.table + i * a.rope + c - a.latent);
        kv_set_piece(a.kv, a.kv_type, base + c, v);
    }
}

#endif
