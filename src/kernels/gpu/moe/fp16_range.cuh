/* kernels/gpu/moe/fp16_range.cuh: y of routed experts at many tokens, kept as IEEE halves whatever its range.
 *
 * Halves have eleven bits, which the bound of 4e-3 needs, but only 2^-14 .. 65504 of range. So stage 2 notes the
 * call's largest |y|; if that is too large for a half, or so small that the rest may vanish, its second launch
 * writes y again, times a power of two that brings the largest to 2^13 .. 2^14, and the sum's weights take the
 * inverse. NaN and infinities are passed over: they end their own rows alone. */
#ifndef KERNELS_GPU_MOE_FP16_RANGE_CUH
#define KERNELS_GPU_MOE_FP16_RANGE_CUH
#include "kernels/gpu/device/sm90.cuh"

/* most: bits of the largest |y| as float32; 0: nothing, or all below 2^-25. */
static __device__ __forceinline__ bool y_needs_rescale(gpu_u32 amax) {
    return amax < 0x3a800000u /* 2^-10 */ || amax > 0x477fe000u /* 65504 */;
}
static __device__ __forceinline__ gpu_u32 y_exponent(gpu_u32 amax) { return (amax >> 23) < 102 ? 102 : amax >> 23; }
/* What y is multiplied by, and the inverse. */
static __device__ __forceinline__ float y_scale(gpu_u32 amax) {
    return y_needs_rescale(amax) ? __uint_as_float((267 - y_exponent(amax)) << 23) : 1.0f;
}
static __device__ __forceinline__ float y_unit(gpu_u32 amax) {
    return y_needs_rescale(amax) ? __uint_as_float((y_exponent(amax) - 13) << 23) : 1.0f;
}

/* The larger of two |values|, of those that are finite. */
static __device__ __forceinline__ float max_finite(float amax, float v) {
    v = fabsf(v);
    return v <= 3.4028234e38f ? fmaxf(amax, v) : amax;
}

/* The largest finite |value| of a lane's tokens, of two 16-row blocks of sums as wgmma lays them out. */
template <int N> static __device__ __forceinline__ float tile_amax(const float d[2][N / 2], int tokens) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2 < tokens)
            amax = max_finite(max_finite(amax, d[0][i]), d[1][i]);
    return amax;
}

/* A warp's largest of a tile: halves, two a lane; an infinite one was too large for a half, and exact() tells the
 * lane's largest as float32. seen: the warp's own word in shared memory, what it has told before. */
template <class EXACT>
static __device__ __forceinline__ void y_note(gpu_u32 *amax, gpu_u32 *seen, gpu_u32 halves, EXACT exact) {
    gpu_u32 own = __reduce_max_sync(~0u, halves >> 16 > (halves & 0xffff) ? halves >> 16 : halves & 0xffff);
    own = own == 0x7c00 ? __reduce_max_sync(~0u, __float_as_uint(exact())) : __float_as_uint(low_half(own));
    if (threadIdx.x % 32 == 0 && own > *seen) *seen = own, atomicMax(amax, own);
}

#endif
