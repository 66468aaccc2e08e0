/* kernels/gpu/device/fp4_expand.cuh: fp4_pack.h's blocks as operands of the tensor cores. */
#ifndef KERNELS_GPU_DEVICE_FP4_EXPAND_CUH
#define KERNELS_GPU_DEVICE_FP4_EXPAND_CUH
#include "kernels/gpu/device/fp4_pack.cuh"

/* What word s of a lane is multiplied with, rows g and g + 8, each twice. two: the 8 bytes of g. */
template <int FORMAT> static __device__ __forceinline__ void fp4_multipliers(uint2 two, int s, gpu_u32 of[2]) {
    if constexpr (FORMAT == GPU_W_PACKED_MXFP4) {
        of[0] = __byte_perm(two.x, 0, s / 2 ? 0x3232 : 0x1010), of[1] = __byte_perm(two.y, 0, s / 2 ? 0x3232 : 0x1010);
    } else {
        const gpu_u32 which = 0x4040u | 0x0101u * (gpu_u32)s;
        of[0] = __byte_perm(two.x, 0, which) * 16 + FP4_NVFP4_HIGH * 0x10001u;
        of[1] = __byte_perm(two.y, 0, which) * 16 + FP4_NVFP4_HIGH * 0x10001u;
    }
}
/* One word as the first operand of mma_bf16. 13 instructions. */
static __device__ __forceinline__ void expand_fp4(gpu_u32 word, const gpu_u32 multiplier[2], gpu_u32 a[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = two_mul(fp4_pair(word, i), multiplier[i % 2]);
}

#endif
