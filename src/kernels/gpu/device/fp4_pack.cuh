/* kernels/gpu/device/fp4_pack.cuh: single elements of fp4_pack.h's blocks, and how they are made. (fp4_expand.cuh:
 * as operands of the tensor cores.) */
#ifndef KERNELS_GPU_DEVICE_FP4_PACK_CUH
#define KERNELS_GPU_DEVICE_FP4_PACK_CUH
#include "kernels/gpu/device/fp4_pack.h"
#include "kernels/gpu/device/int4_pack.cuh"

static __device__ constexpr bool is_packed_fp4(int format) {
    return format == GPU_W_PACKED_MXFP4 || format == GPU_W_PACKED_NVFP4;
}

/* Of a word: pair i as bf16 times 2^-126. */
static __device__ __forceinline__ gpu_u32 fp4_pair(gpu_u32 word, int i) {
    return i == 0   ? word & FP4_BITS
           : i == 1 ? word << 6 & FP4_BITS
           : i == 2 ? (word >> 6 | word << 26) & FP4_BITS
                    : (word << 4 & 0x81808180u) | (word >> 4 & 0x00400040u);
}
/* The bits of pair i in a word; even, odd: nibbles. */
static __device__ inline gpu_u32 to_fp4_pair(gpu_u32 even, gpu_u32 odd, int i) {
    gpu_u32 nibbles = even | odd << 16, two = (nibbles & 0x00080008u) << 12 | (nibbles & 0x00070007u) << 6;
    return i == 0   ? two
           : i == 1 ? two >> 6
           : i == 2 ? two << 6 | two >> 26
                    : (two & 0x81808180u) >> 4 | (two & 0x00400040u) << 4;
}

/* Element (row, col), all factors in it. */
static __device__ inline float packed_fp4_at(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    const gpu_u8 *block = packed_block(w, row, col);
    int r = (int)(row % PACK_ROWS), c = (int)(col % PACK_COLS);
    const gpu_u8 *scales = block + PACK_SCALES + r % 8 * 8 + r / 8 * 4;
    gpu_u32 word = *(const gpu_u32 *)(block + 16 * packed_lane(r, c) + 4 * (c / 16)),
            two = fp4_pair(word, packed_pair(r, c));
    gpu_u32 multiplier = w.format == GPU_W_PACKED_MXFP4 ? *(const gpu_bf16 *)(scales + c / 32 * 2)
                                                        : scales[c / 16] << 4 | FP4_NVFP4_HIGH;
    return (c & 1 ? high_f32(two) : low_f32(two)) * 0x1p126f * (low_f32(multiplier) * 0x1p-126f) * w.factor;
}

/* ---- how they are made ---- */

/* MXFP4's scale, an e8m0. */
static __device__ inline gpu_bf16 mxfp4_multiplier(gpu_u32 b) {
    gpu_u32 exponent = b + 126 - FP4_MXFP4_GAIN;
    return (gpu_bf16)(exponent < 255 ? exponent << 7 : 0x7fc0);
}
/* NVFP4's, an e4m3 (of 0, whose nibbles are 0, the smallest): log2 of the power of two in it, and three bits behind
 * that. */
static __device__ inline gpu_u8 nvfp4_multiplier(gpu_u32 b) {
    int exponent = (int)(b >> 3 & 15) - 7, mantissa = (int)(b & 7);
    if ((b & 127) == 127) return 255;
    if (!mantissa && exponent == -7) mantissa = 1;
    if (exponent == -7)
        for (exponent = -6; mantissa < 8; exponent--) mantissa *= 2;
    return (gpu_u8)((exponent + 126 - FP4_NVFP4_GAIN + 127 - (int)(FP4_NVFP4_HIGH >> 7)) << 3 | (mantissa & 7));
}
/* Two of NVFP4's nibbles, without the sign of their scale. */
static __device__ inline gpu_u8 nvfp4_nibbles(gpu_u8 two, gpu_u8 scale) {
    return (gpu_u8)(!(scale & 127) ? 0 : scale >> 7 ? two ^ 0x88 : two);
}

#endif
