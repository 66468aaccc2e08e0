/* kernels/gpu/device/warp_dot.cuh: one row of a weight times several rows of x, by one warp.
 *
 * A lane takes pieces of 16 bytes of the weight, every 32nd one, expands each to float32 once and uses it for all
 * rows of x. The order of a sum does not depend on how many rows there are: lane by lane over the pieces, then the
 * tree of warp_sum. */
#ifndef KERNELS_GPU_DEVICE_WARP_DOT_CUH
#define KERNELS_GPU_DEVICE_WARP_DOT_CUH
#include "kernels/gpu/device/fp4_pack.cuh"
#include "kernels/gpu/device/fp8.cuh"

/* Piece p of row `row`: its columns as float32. Returns how many they are. */
template <int MAX>
static __device__ inline void dot_load_piece(const gpu_matrix &w, gpu_i64 row, gpu_i64 col, float v[MAX]) {
    if (w.format == GPU_W_BF16) {
        uint4 u = *(const uint4 *)((const gpu_bf16 *)w.data + row * w.cols + col);
        const gpu_u32 b[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int i = 0; i < 4; i++) v[2 * i] = low_f32(b[i]), v[2 * i + 1] = high_f32(b[i]);
    } else if (w.format == GPU_W_F32) {
        float4 f = *(const float4 *)((const float *)w.data + row * w.cols + col);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else if (in_bytes(w.format)) {
        uint4 u = *(const uint4 *)((const gpu_u8 *)w.data + row * w.cols + col);
        const gpu_u32 b[4] = {u.x, u.y, u.z, u.w};
        float s = byte_scale(w, row, col);
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = byte_value(w.format, (gpu_u8)(b[i / 4] >> 8 * (i % 4))) * s;
    } else {
        uint4 u = *(const uint4 *)((const gpu_u8 *)w.data + (row * w.cols + col) / 2);
        const gpu_u32 b[4] = {u.x, u.y, u.z, u.w};
        float s = f32_of(((const gpu_bf16 *)w.scale)[row * (w.cols / 32) + col / 32]);
#pragma unroll
        for (int i = 0; i < 32; i++) v[i] = (float)((int)(b[i / 8] >> 4 * (i % 8) & 15) - 8) * s;
    }
}

/* sum[r] += v . x[r, 0..C) */
template <int R, int C>
static __device__ inline void dot_add_piece(const float v[C], const gpu_bf16 *const x[R], gpu_i64 col, int aligned,
                                            float sum[R]) {
#pragma unroll
    for (int r = 0; r < R; r++) {
        const gpu_bf16 *p = x[r] + col;
        if (aligned && C >= 8) {
#pragma unroll
            for (int i = 0; i < C; i += 8) {
                uint4 u = *(const uint4 *)(p + i);
                const gpu_u32 b[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    sum[r] = fmaf(v[i + 2 * j], low_f32(b[j]), sum[r]);
                    sum[r] = fmaf(v[i + 2 * j + 1], high_f32(b[j]), sum[r]);
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < C; i++) sum[r] = fmaf(v[i], f32_of(p[i]), sum[r]);
        }
    }
}

template <int R, int C>
static __device__ inline void dot_pieces(const gpu_matrix &w, gpu_i64 row, const gpu_bf16 *const x[R], int aligned,
                                         float sum[R]) {
    float v[C];
    for (gpu_i64 col = threadIdx.x % 32 * C; col < w.cols; col += 32 * C) {
        dot_load_piece<C>(w, row, col, v);
        dot_add_piece<R, C>(v, x, col, aligned, sum);
    }
}

/* sum[r] = w[row] . x[r] in every lane; x[r] are R rows of w.cols values. aligned: each x[r] begins at a multiple of 16
 * bytes. */
template <int R>
static __device__ inline void dot_row(const gpu_matrix &w, gpu_i64 row, const gpu_bf16 *const x[R], int aligned,
                                      float sum[R]) {
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] = 0;
    if (!w.wide) {
        for (gpu_i64 col = threadIdx.x % 32; col < w.cols; col += 32) {
            float v = w.format == GPU_W_PACKED      ? packed_at(w, row, col)
                      : is_packed_fp4(w.format)     ? packed_fp4_at(w, row, col)
                      : w.format == GPU_W_FP8_PAIRS ? fp8_pairs_at(w, row, col)
                                                    : any_weight_at(w, row, col);
#pragma unroll
            for (int r = 0; r < R; r++) sum[r] = fmaf(v, f32_of(x[r][col]), sum[r]);
        }
    } else if (w.format == GPU_W_INT4)
        dot_pieces<R, 32>(w, row, x, aligned, sum);
    else if (in_bytes(w.format))
        dot_pieces<R, 16>(w, row, x, aligned, sum);
    else if (w.format == GPU_W_BF16)
        dot_pieces<R, 8>(w, row, x, aligned, sum);
    else
        dot_pieces<R, 4>(w, row, x, aligned, sum);
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] = warp_sum(sum[r]);
}

#endif
