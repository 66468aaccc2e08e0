/* kernels/gpu/moe/decode_mma.cuh: a block of 16 x 64 packed weights times four tokens' digits, and more fours, by a
 * warp. */
#ifndef KERNELS_GPU_MOE_DECODE_MMA_CUH
#define KERNELS_GPU_MOE_DECODE_MMA_CUH
#include "kernels/gpu/device/sm90.cuh"
#include "kernels/gpu/device/int4_pack.cuh"

#ifndef EMULATED
/* Four bytes of eight, by four bits each: three choose, the fourth repeats the chosen byte's sign instead. */
static __device__ __forceinline__ gpu_u32 choose_bytes(gpu_u32 low, gpu_u32 high, gpu_u32 select) {
    gpu_u32 d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(select));
    return d;
}
static __device__ inline void mma_s8_more(int c[4], const gpu_u32 a[4], gpu_u32 b0, gpu_u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

/* Two words of e2m1 as two operands of signed bytes whose sum is 16 times the values, as high_nibbles() has INT4's: of
 * positive values one more in p and -1 in n, of negative ones 0 in p (a byte's sign, repeated) and all in n. Two
 * products cost less than bytes that are whole. */
static __device__ __forceinline__ void e2m1_bytes(gpu_u32 first, gpu_u32 second, gpu_u32 p[4], gpu_u32 n[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        gpu_u32 word = (i < 2 ? first : second) >> 16 * (i % 2),
                other = ((i < 2 ? first : second) ^ 0x88888888u) >> 16 * (i % 2);
        p[i] = choose_bytes(0x19110900u, 0x61413121u, word);
        n[i] = choose_bytes(0xe8f0f800u, 0xa0c0d0e0u, other);
    }
}

/* What a lane takes of a block of 16 x 64 weights. */
typedef struct {
    uint4 word;
    uint2 scale;
} decode_int4_weights;
static __device__ inline decode_int4_weights weights_at(const gpu_u8 *block) {
    int lane = threadIdx.x % 32;
    return {*(const uint4 *)(block + 16 * lane), *(const uint2 *)(block + PACK_SCALES + lane / 4 * 8)};
}

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
template <int TILES, int VALUES = INT4_VALUES>
static __device__ inline void int4_multiply(const decode_int4_weights &w, const int16_split<TILES> &x, int tiles,
                                            float sums[TILES][2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        gpu_u32 first = half ? w.word.z : w.word.x, second = half ? w.word.w : w.word.y;
        gpu_u32 q[4], n[4];
        if constexpr (VALUES == INT4_VALUES) {
            q[0] = high_nibbles(first << 4), q[1] = high_nibbles(first);
            q[2] = high_nibbles(second << 4), q[3] = high_nibbles(second);
        } else {
            e2m1_bytes(first, second, q, n);
        }
        float upper = half ? high_f32(w.scale.x) : low_f32(w.scale.x),
              lower = half ? high_f32(w.scale.y) : low_f32(w.scale.y);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            if (j && j >= tiles) continue;
            int c[4];
            mma_s8(c, q, half ? x.of[j].z : x.of[j].x, half ? x.of[j].w : x.of[j].y);
            if constexpr (VALUES == E2M1_VALUES)
                mma_s8_more(c, n, half ? x.of[j].z : x.of[j].x, half ? x.of[j].w : x.of[j].y);
            sums[j][0] = fmaf(upper, (float)(c[0] * 256 + c[1]), sums[j][0]);
            sums[j][1] = fmaf(lower, (float)(c[2] * 256 + c[3]), sums[j][1]);
        }
    }
}

#endif
