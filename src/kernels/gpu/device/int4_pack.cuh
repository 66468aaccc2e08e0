/* kernels/gpu/device/int4_pack.cuh: int4_pack.h's blocks as operands of the tensor cores, and single elements of
 * them. */
#ifndef KERNELS_GPU_DEVICE_INT4_PACK_CUH
#define KERNELS_GPU_DEVICE_INT4_PACK_CUH
#include "kernels/gpu/device/int4_pack.h"
#include "kernels/gpu/device/math.cuh"

#ifndef EMULATED
/* Two bf16 at a time, one rounding. */
static __device__ inline gpu_u32 two_sub(gpu_u32 a, gpu_u32 b) {
    gpu_u32 d;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
static __device__ inline gpu_u32 two_mul(gpu_u32 a, gpu_u32 b) {
    gpu_u32 d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
/* Four signed bytes 16 q, q = u - 8, of the words's upper nibbles. */
static __device__ inline gpu_u32 high_nibbles(gpu_u32 word) {
    gpu_u32 d;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(d) : "r"(word), "r"(0xf0f0f0f0u), "r"(0x80808080u));
    return d;
}
#endif

/* What a lane takes of a block of 16 x 64 weights. */
typedef struct {
    uint4 word;
    uint2 scale;
} packed_weights;
static __device__ inline packed_weights packed_weights_at(const gpu_u8 *block) {
    int lane = threadIdx.x % 32;
    return {*(const uint4 *)(block + 16 * lane), *(const uint2 *)(block + PACK_SCALES + lane / 4 * 8)};
}

/* The block of element (row, col). */
static __device__ inline const gpu_u8 *packed_block(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    return (const gpu_u8 *)w.data + (row / PACK_ROWS * (w.cols / PACK_COLS) + col / PACK_COLS) * PACK_BYTES;
}
/* Of row and column in the block: which lane's, which pair of its step. */
static __device__ inline int packed_lane(int row, int col) { return row % 8 * 4 + col % 8 / 2; }
static __device__ inline int packed_pair(int row, int col) { return row / 8 + col / 8 % 2 * 2; }
/* Two neighbours (col even) as nibbles: the low one, and the odd column's at bits 16. */
static __device__ inline gpu_u32 packed_two(const gpu_u8 *block, int row, int col) {
    return *(const gpu_u32 *)(block + 16 * packed_lane(row, col) + 4 * (col / 16)) >> 4 * packed_pair(row, col) &
           0x000f000fu;
}
static __device__ inline float packed_scale(const gpu_u8 *block, int row, int col) {
    return f32_of(*(const gpu_bf16 *)(block + PACK_SCALES + row % 8 * 8 + row / 8 * 4 + col / 32 * 2));
}
static __device__ inline float packed_at(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    const gpu_u8 *block = packed_block(w, row, col);
    int r = (int)(row % PACK_ROWS), c = (int)(col % PACK_COLS);
    return (float)((int)(packed_two(block, r, c & ~1) >> 16 * (c & 1) & 15) - 8) * packed_scale(block, r, c);
}

#endif
