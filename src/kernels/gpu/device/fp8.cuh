/* kernels/gpu/device/fp8.cuh: how the GPU keeps experts in block FP8: rows as in the checkpoint, in which each 16
 * columns' bytes are arranged anew, so that the tensor cores' first operand takes few instructions and no column of
 * x has to move.
 *
 * The 16 bytes of columns c .. c + 15 are four words; word t has columns c + 2t, c + 2t + 1 (pair 0) and c + 8 + 2t,
 * c + 9 + 2t (pair 1), which lane 4 g + t of a warp holds of row g (mma.m16n8k16, wgmma). The even column of a pair
 * is in the word's lower 16 bits, the odd one in the upper. Of e4m3's bits s eeee mmm in those 16
 *
 *   pair 0   15 s, 10..4 eeee mmm: bf16's places, if nothing else were there
 *   pair 1   11 s, 14..12 eee, 3..0 e mmm: what is left; two shifts put them into bf16's places
 *
 * Read as bf16 either is the value times 2^-120 (the exponents' biases are 127 and 7), exactly, also where it is
 * denormal: a product with a power of two makes it the value, or the value times a power of two. NaN has no code of
 * its own then: at load a block of 128 x 128 that has one gets NaN as its scale (fp8_pairs in repack.cu). */
#ifndef KERNELS_GPU_DEVICE_FP8_CUH
#define KERNELS_GPU_DEVICE_FP8_CUH
#include "kernels/gpu/device/int4_pack.cuh"

static __device__ inline gpu_u32 fp8_pair0(gpu_u32 word) { return word & 0x87f087f0u; }
static __device__ inline gpu_u32 fp8_pair1(gpu_u32 word) {
    return (word << 4 & 0x80f080f0u) | (word >> 4 & 0x07000700u);
}

/* A pair of e4m3 bytes (even column, odd column) in its bits of a word. */
static __device__ inline gpu_u32 to_pair0(gpu_u32 even, gpu_u32 odd) {
    gpu_u32 two = even | odd << 16;
    return (two & 0x00800080u) << 8 | (two & 0x007f007fu) << 4;
}
static __device__ inline gpu_u32 to_pair1(gpu_u32 even, gpu_u32 odd) {
    gpu_u32 two = even | odd << 16;
    return (two & 0x00800080u) << 4 | (two & 0x00700070u) << 8 | (two & 0x000f000fu);
}

/* Element (row, col), scale and all. */
static __device__ inline float fp8_pairs_at(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    gpu_u32 word = ((const gpu_u32 *)w.data)[(row * w.cols + col) / 16 * 4 + col % 8 / 2];
    gpu_u32 two = col / 8 % 2 ? fp8_pair1(word) : fp8_pair0(word);
    float q = (col % 2 ? high_f32(two) : low_f32(two)) * 0x1p60f * 0x1p60f;
    return q * ((const float *)w.scale)[row / 128 * (w.cols / 128) + col / 128];
}

#endif
