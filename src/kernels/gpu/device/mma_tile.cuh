/* kernels/gpu/device/mma_tile.cuh: a tile of a matrix product on the tensor cores: 128 rows of a weight times 64
 * rows of x.
 *
 * The weight is mma's first operand, the tokens its second, so few tokens waste little. A step takes 32 columns: 256
 * threads load them into registers while the step before is multiplied, expand the weight to bf16 (INT4: one rounding
 * of value times scale; FP8 and INT8: exactly, the scale multiplies the products: a block has one scale for eight
 * mantissas, whose roundings do not average out) and put both into the other half of the shared memory. 8 warps, 4 by
 * 2; each has two pieces of 16 rows, 64 apart, by 32 tokens. Rows in shared memory are 80 bytes apart: eight of them,
 * four banks each, meet no bank twice. Shared memory [2][128 + 64][40] bf16, 30 KiB. Products are exact, sums float32
 * in the order of the columns. Behind a row's 32 columns lies what its products of the step are multiplied with. */
#ifndef KERNELS_GPU_DEVICE_MMA_TILE_CUH
#define KERNELS_GPU_DEVICE_MMA_TILE_CUH
#include "kernels/gpu/device/int4_pack.cuh"

enum {
    TILE_K = 32,
    TILE_STRIDE = TILE_K + 8,
    TILE_HALF = 64 /* rows of each of two weights, or 128 of one */,
    TILE_ROWS = 128,
    TILE_TOKENS = 64
};

/* What a block multiplies. Tile row r < 64 is row first[0] + r of w[0], r >= 64 row first[1] + r - 64 of w[1]; rows
 * from end[] on count as zero. x[j] is token j's row; NULL: zero. Shapes as `can_tile` wants them. */
typedef struct {
    const gpu_matrix *w[2];
    gpu_i64 first[2], end[2];
} tile_weights;

typedef float tile_sums[2][4][4]; /* [piece][8 tokens][mma's c] */

/* 16 columns of a weight's row, or of x: as loaded. */
typedef struct {
    uint4 raw[2];
    float scale;
} tile_load;

static __device__ inline tile_load tile_load_weight(const gpu_matrix &w, gpu_i64 row, gpu_i64 end, gpu_i64 col) {
    tile_load l = {{{0, 0, 0, 0}, {0, 0, 0, 0}}, 0.0f};
    if (row >= end || col >= w.cols) return l;
    gpu_i64 at = row * w.cols + col;
    if (w.format == GPU_W_BF16) {
        l.raw[0] = *(const uint4 *)((const gpu_bf16 *)w.data + at);
        if (col + 8 < w.cols) l.raw[1] = *(const uint4 *)((const gpu_bf16 *)w.data + at + 8);
    } else if (in_bytes(w.format)) {
        l.raw[0] = *(const uint4 *)((const gpu_u8 *)w.data + at);
        l.scale = byte_scale(w, row, col);
    } else if (w.format == GPU_W_PACKED) { /* to the checkpoint's order */
        const gpu_u8 *block = packed_block(w, row, col);
        int r = (int)(row % PACK_ROWS), c = (int)(col % PACK_COLS);
        gpu_u32 two[8];
#pragma unroll
        for (int i = 0; i < 8; i++) two[i] = packed_two(block, r, c + 2 * i), two[i] = (two[i] | two[i] >> 12) & 255;
        l.raw[0].x = two[0] | two[1] << 8 | two[2] << 16 | two[3] << 24;
        l.raw[0].y = two[4] | two[5] << 8 | two[6] << 16 | two[7] << 24;
        l.scale = packed_scale(block, r, c);
    } else {
        uint2 two = *(const uint2 *)((const gpu_u8 *)w.data + at / 2);
        l.raw[0].x = two.x, l.raw[0].y = two.y;
        l.scale = f32_of(((const gpu_bf16 *)w.scale)[row * (w.cols / 32) + col / 32]);
    }
    return l;
}

static __device__ inline gpu_u32 two_bf16(float low, float high) {
    return (gpu_u32)bf16_of(low) | (gpu_u32)bf16_of(high) << 16;
}

/* The 16 columns as bf16, 32 bytes. */
static __device__ inline void put_weight(int format, const tile_load &l, gpu_bf16 *to) {
    uint4 out[2] = {l.raw[0], l.raw[1]};
    gpu_u32 *o = (gpu_u32 *)out;
    const gpu_u32 in[4] = {l.raw[0].x, l.raw[0].y, l.raw[0].z, l.raw[0].w};
    if (in_bytes(format)) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            o[i] = two_bf16(byte_value(format, (gpu_u8)(in[i / 2] >> 16 * (i % 2))),
                            byte_value(format, (gpu_u8)(in[i / 2] >> (16 * (i % 2) + 8))));
    } else if (format == GPU_W_INT4 || format == GPU_W_PACKED) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int low = (int)(in[i / 4] >> 8 * (i % 4) & 15) - 8, high = (int)(in[i / 4] >> (8 * (i % 4) + 4) & 15) - 8;
            o[i] = two_bf16((float)low * l.scale, (float)high * l.scale);
        }
    }
    ((uint4 *)to)[0] = out[0];
    ((uint4 *)to)[1] = out[1];
}

/* Where sums[i][j][k] belongs. */
static __device__ inline int tile_row(int i, int k) {
    return i * TILE_HALF + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + k / 2 * 8;
}
static __device__ inline int tile_token(int j, int k) {
    return threadIdx.x / 128 * 32 + j * 8 + threadIdx.x % 4 * 2 + k % 2;
}

/* sums = tile; x_of(j) gives token j's row. Every thread of the block calls it. */
template <typename F> static __device__ inline void tile_product(const tile_weights &w, F x_of, tile_sums sums) {
    __shared__ __align__(16) gpu_bf16 memory[2][TILE_ROWS + TILE_TOKENS][TILE_STRIDE];
    int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    int row = thread / 2, part = thread % 2 * 16, token = thread / 4, piece = thread % 4 * 8;
    const bool second = row >= TILE_HALF; /* chosen, not indexed: an index would put w into local memory */
    const gpu_matrix m = second ? *w.w[1] : *w.w[0];
    const bool scaled = in_bytes(w.w[0]->format) || in_bytes(w.w[1]->format);
    gpu_i64 weight_row = (second ? w.first[1] : w.first[0]) + row % TILE_HALF, end = second ? w.end[1] : w.end[0],
            cols = m.cols;
    const gpu_bf16 *x = x_of(token);
    tile_sums own; /* of a step, or of all steps if nothing is scaled */
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) sums[i][j][k] = own[i][j][k] = 0;
    tile_load next = tile_load_weight(m, weight_row, end, part);
    uint4 next_x = {0, 0, 0, 0};
    if (x && piece < cols) next_x = *(const uint4 *)(x + piece);
    for (gpu_i64 col = 0; col < cols; col += TILE_K) {
        gpu_bf16(*now)[TILE_STRIDE] = memory[col / TILE_K % 2];
        put_weight(m.format, next, &now[row][part]);
        if (scaled && !part) *(float *)&now[row][TILE_K] = in_bytes(m.format) ? next.scale : 1.0f;
        *(uint4 *)&now[TILE_ROWS + token][piece] = next_x;
        __syncthreads();
        gpu_i64 ahead = col + TILE_K;
        next = tile_load_weight(m, weight_row, end, ahead + part);
        next_x = {0, 0, 0, 0};
        if (x && ahead + piece < cols) next_x = *(const uint4 *)(x + ahead + piece);
#pragma unroll
        for (int k = 0; k < TILE_K; k += 16) {
            gpu_u32 a[2][4], b[4][2];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    a[i][r] =
                        *(const gpu_u32 *)&now[i * TILE_HALF + warp % 4 * 16 + g + r % 2 * 8][k + 2 * t + r / 2 * 8];
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    b[j][r] = *(const gpu_u32 *)&now[TILE_ROWS + warp / 4 * 32 + j * 8 + g][k + 2 * t + r * 8];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) mma_bf16(own[i][j], a[i], b[j]);
        }
        if (scaled)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float scale = *(const float *)&now[tile_row(i, k)][TILE_K];
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        sums[i][j][k] = fmaf(scale, own[i][j][k], sums[i][j][k]), own[i][j][k] = 0;
                }
    }
    for (int i = 0; i < 2 && !scaled; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) sums[i][j][k] = own[i][j][k];
    __syncthreads(); /* the memory is free for the next tile */
}

#endif
