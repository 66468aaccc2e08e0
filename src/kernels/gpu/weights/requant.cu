/* kernels/gpu/weights/requant.cu: experts in another format than the checkpoint's, once at load (format/requant.h
 * says what comes out).
 *
 * Bytes: each value is read once; the disk is slower by far. */
#include "kernels/gpu/device/math.cuh"

enum { TRIES = 16, GROUP = 32 };

static __device__ inline float quantum(float w, float inverse) { return fminf(fmaxf(rintf(w * inverse), -8.0f), 7.0f); }

static __device__ inline float misfit(const float *w, float scale) {
    float inverse = 1.0f / scale, sum = 0;
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        float off = fmaf(-quantum(w[c], inverse), scale, w[c]);
        sum = fmaf(off, off, sum);
    }
    return sum;
}

static __device__ inline gpu_bf16 best_scale(const float *w) {
    float amax = 0, least_off = bits_f32(0x7f800000u);
#pragma unroll
    for (int c = 0; c < GROUP; c++) amax = max_nan(amax, fabsf(w[c]));
    if (!(amax <= 3.4028235e38f)) return 0x7fc0;
    float whole = f32_of(bf16_of(amax / 7.0f));
    gpu_bf16 best = 0;
    for (int t = 0; t < TRIES && whole >= 0x1p-100f; t++) {
        gpu_bf16 scale = bf16_of(whole * ((float)(2 * TRIES - t) / (float)(2 * TRIES)));
        float off = misfit(w, f32_of(scale));
        if (off < least_off) least_off = off, best = scale;
    }
    return best;
}

/* To INT4, a thread a group. */
KERNEL(requant_int4, gpu_requant_args) {
    gpu_i64 groups = a.from.rows * (a.from.cols / GROUP);
    for (gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; i < groups;
         i += (gpu_i64)gridDim.x * GPU_THREADS) {
        gpu_i64 row = i / (a.from.cols / GROUP), col = i % (a.from.cols / GROUP) * GROUP;
        float w[GROUP];
#pragma unroll
        for (int c = 0; c < GROUP; c++) w[c] = any_weight_at(a.from, row, col + c);
        gpu_bf16 scale = best_scale(w);
        float inverse = f32_of(scale) > 0 ? 1.0f / f32_of(scale) : 0.0f;
#pragma unroll
        for (int c = 0; c < GROUP; c += 2) {
            int low = 8, high = 8;
            if (inverse > 0) low += (int)quantum(w[c], inverse), high += (int)quantum(w[c + 1], inverse);
            a.data[i * (GROUP / 2) + c / 2] = (gpu_u8)(low | high << 4);
        }
        a.scale[i] = scale;
    }
}

/* Quark's INT4 to that of a group, a warp a row: only the order of the nibbles changes, and the scale is rounded to
 * bf16. */
KERNEL(requant_order, gpu_requant_args) {
    const gpu_matrix &w = a.from;
    int lane = threadIdx.x % 32;
    for (gpu_i64 row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32; row < w.rows;
         row += (gpu_i64)gridDim.x * GPU_WARPS) {
        for (gpu_i64 c = lane; c < w.cols / 8; c += 32) {
            gpu_u32 word = ((const gpu_u32 *)w.data)[row * (w.cols / 8) + c] ^ 0x88888888u, out = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) out |= (word >> (i / 2 + i % 2 * 4) * 4 & 15) << 4 * i;
            ((gpu_u32 *)a.data)[row * (w.cols / 8) + c] = out;
        }
        gpu_bf16 scale = bf16_of(((const float *)w.scale)[row]);
        for (gpu_i64 g = lane; g < w.cols / 32; g += 32) a.scale[row * (w.cols / 32) + g] = scale;
    }
}

/* INT4 in groups of 128, numbers in two's complement and scales in float32, to groups of 32, a thread a group. */
KERNEL(requant_groups, gpu_requant_args) {
    enum { WIDE = 128 };
    const gpu_i64 groups = a.from.rows * (a.from.cols / GROUP);
    for (gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; i < groups;
         i += (gpu_i64)gridDim.x * GPU_THREADS) {
        const uint4 q = ((const uint4 *)a.from.data)[i];
        ((uint4 *)a.data)[i] = {q.x ^ 0x88888888u, q.y ^ 0x88888888u, q.z ^ 0x88888888u, q.w ^ 0x88888888u};
        a.scale[i] = bf16_of(((const float *)a.from.scale)[i / (WIDE / GROUP)]);
    }
}

KERNEL(requant_bf16, gpu_requant_args) {
    gpu_i64 n = a.from.rows * a.from.cols;
    for (gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; i < n; i += (gpu_i64)gridDim.x * GPU_THREADS)
        ((gpu_bf16 *)a.data)[i] = bf16_of(any_weight_at(a.from, i / a.from.cols, i % a.from.cols));
}
