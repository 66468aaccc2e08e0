/* kernels/gpu/moe/decode_mma.cuh: a block of 16 x 64 packed weights times four tokens' digits, and more fours, by a
 * warp. */
#ifndef KERNELS_GPU_MOE_DECODE_MMA_CUH
#define KERNELS_GPU_MOE_DECODE_MMA_CUH
#include "kernels/gpu/device/sm90.cuh"
#include "kernels/gpu/device/int4_pack.cuh"

/* The digits of 64 columns, four tokens a tile. */
template <int TILES> struct int16_split { uint4 of[TILES]; };
template <int TILES> static __device__ inline int16_split<TILES> digits_at(const gpu_u8 *rows, int stride, int tiles) {
    int lane = threadIdx.x % 32;
    int16_split<TILES> d;
#pragma unroll
    for (int j = 0; j < TILES; j++)
        d.of[j] =
            !j || j < tiles ? *(const uint4 *)(rows + (4 * j + lane / 8) * stride + lane % 8 * 16) : uint4{0, 0, 0, 0};
    return d;
}

/* sums[j] += the block times the four tokens of tile j: rows g and g + 8, token t. */
template <int TILES>
static __device__ inline void int4_multiply(const packed_weights &w, const int16_split<TILES> &x, int tiles,
                                            float sums[TILES][2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        gpu_u32 first = half ? w.word.z : w.word.x, second = half ? w.word.w : w.word.y;
        const gpu_u32 q[4] = {high_nibbles(first << 4), high_nibbles(first), high_nibbles(second << 4),
                              high_nibbles(second)};
        float upper = half ? high_f32(w.scale.x) : low_f32(w.scale.x),
              lower = half ? high_f32(w.scale.y) : low_f32(w.scale.y);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            if (j && j >= tiles) continue;
            int c[4];
            mma_s8(c, q, half ? x.of[j].z : x.of[j].x, half ? x.of[j].w : x.of[j].y);
            sums[j][0] = fmaf(upper, (float)(c[0] * 256 + c[1]), sums[j][0]);
            sums[j][1] = fmaf(lower, (float)(c[2] * 256 + c[3]), sums[j][1]);
        }
    }
}

#endif
