/* kernels/gpu/gemm/generic.cu: matrix products y[n, rows] = x[n, cols] W^T in every weight format.
 *
 * A warp computes one row of W for GPU_TOKENS rows of x (one, when x has one row), so the weights are read once for
 * each GPU_TOKENS rows. Bytes: rows * cols * bits / 8 for each group, which bounds it up to about 8 rows. From 32
 * rows of x on the tensor cores take tiles of 128 x 64 (mma_tile.cuh): the weights are read once for each 64 rows. */
#include "kernels/gpu/device/warp_dot.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

template <int R>
static __device__ inline void rows_of(const gpu_linear_args &a, gpu_i64 token, gpu_i64 x_from, const gpu_bf16 *x[R],
                                      int *aligned) {
#pragma unroll
    for (int r = 0; r < R; r++) x[r] = a.x + (token + r < a.n ? token + r : a.n - 1) * a.x_stride + x_from;
    *aligned = ((gpu_u64)(a.x + x_from) | (gpu_u64)a.x_stride * 2) % 16 == 0;
}

static __device__ inline void linear_put(const gpu_linear_args &a, gpu_i64 at, float v) {
    if (a.y_type == GPU_F32)
        ((float *)a.y)[at] = v;
    else
        ((gpu_bf16 *)a.y)[at] = bf16_of(v);
}

/* Grid: rows / GPU_WARPS, groups of R rows of x, heads. */
template <int R> static __device__ inline void linear_rows(const gpu_linear_args &a) {
    gpu_i64 row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32, head = blockIdx.z;
    if (row >= a.rows) return;
    for (gpu_i64 token = (gpu_i64)blockIdx.y * R; token < a.n; token += (gpu_i64)gridDim.y * R) {
        const gpu_bf16 *x[R];
        int aligned;
        float sum[R];
        rows_of<R>(a, token, head * a.x_step, x, &aligned);
        dot_row<R>(a.w, a.first + head * a.step + row, x, aligned, sum);
        if (threadIdx.x % 32 == 0)
            for (int r = 0; r < R && token + r < a.n; r++)
                linear_put(a, (token + r) * a.y_stride + head * a.y_step + row, sum[r]);
    }
}
KERNEL(linear_one, gpu_linear_args) { linear_rows<1>(a); }
KERNEL(linear_many, gpu_linear_args) { linear_rows<GPU_TOKENS>(a); }

/* out = silu(x gate^T) * (x up^T) */
template <int R> static __device__ inline void swiglu_rows(const gpu_linear_args &a) {
    gpu_i64 row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (row >= a.rows) return;
    for (gpu_i64 token = (gpu_i64)blockIdx.y * R; token < a.n; token += (gpu_i64)gridDim.y * R) {
        const gpu_bf16 *x[R];
        int aligned;
        float gate[R], up[R];
        rows_of<R>(a, token, 0, x, &aligned);
        dot_row<R>(a.w, row, x, aligned, gate);
        dot_row<R>(a.up, row, x, aligned, up);
        if (threadIdx.x % 32 == 0)
            for (int r = 0; r < R && token + r < a.n; r++)
                linear_put(a, (token + r) * a.y_stride + row, silu(gate[r]) * up[r]);
    }
}
KERNEL(swiglu_one, gpu_linear_args) { swiglu_rows<1>(a); }
KERNEL(swiglu_many, gpu_linear_args) { swiglu_rows<GPU_TOKENS>(a); }

/* Grid: rows / 128, tokens / 64, heads. */
KERNEL(linear_tile, gpu_linear_args) {
    gpu_i64 row = (gpu_i64)blockIdx.x * TILE_ROWS, head = blockIdx.z, from = a.first + head * a.step,
            end = from + a.rows;
    const tile_weights w = {{&a.w, &a.w}, {from + row, from + row + TILE_HALF}, {end, end}};
    for (gpu_i64 token = (gpu_i64)blockIdx.y * TILE_TOKENS; token < a.n; token += (gpu_i64)gridDim.y * TILE_TOKENS) {
        tile_sums sums;
        tile_product(
            w, [&](int j) { return token + j < a.n ? a.x + (token + j) * a.x_stride + head * a.x_step : nullptr; },
            sums);
        /* unrolled all, so that the sums stay in registers */
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    gpu_i64 r = row + tile_row(i, k), at = token + tile_token(j, k);
                    if (r < a.rows && at < a.n) linear_put(a, at * a.y_stride + head * a.y_step + r, sums[i][j][k]);
                }
    }
}

/* Grid: rows / 64, tokens / 64. */
KERNEL(swiglu_tile, gpu_linear_args) {
    gpu_i64 row = (gpu_i64)blockIdx.x * TILE_HALF;
    const tile_weights w = {{&a.w, &a.up}, {row, row}, {a.rows, a.rows}};
    for (gpu_i64 token = (gpu_i64)blockIdx.y * TILE_TOKENS; token < a.n; token += (gpu_i64)gridDim.y * TILE_TOKENS) {
        tile_sums sums;
        tile_product(
            w, [&](int j) { return token + j < a.n ? a.x + (token + j) * a.x_stride : nullptr; }, sums);
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) {
                gpu_i64 r = row + tile_row(0, k), at = token + tile_token(j, k);
                if (r < a.rows && at < a.n) linear_put(a, at * a.y_stride + r, silu(sums[0][j][k]) * sums[1][j][k]);
            }
    }
}

/* What remains of swiglu after two products by a library. Bytes: 10 an element. A thread 8 values. */
KERNEL(silu_product, gpu_silu_args) {
    gpu_i64 i = ((gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x) * 8;
    if (i >= a.n * a.rows) return;
    gpu_bf16 *out = a.out + i / a.rows * a.out_stride + i % a.rows;
    float4 g = *(const float4 *)(a.gate + i), u = *(const float4 *)(a.up + i), g2 = *(const float4 *)(a.gate + i + 4),
           u2 = *(const float4 *)(a.up + i + 4);
    const float v[8] = {silu(g.x) * u.x,   silu(g.y) * u.y,   silu(g.z) * u.z,   silu(g.w) * u.w,
                        silu(g2.x) * u2.x, silu(g2.y) * u2.y, silu(g2.z) * u2.z, silu(g2.w) * u2.w};
    if (((gpu_u64)a.out | (gpu_u64)a.out_stride * 2) % 16 == 0) {
        gpu_u32 two[4];
#pragma unroll
        for (int k = 0; k < 4; k++) two[k] = bf16_of(v[2 * k]) | (gpu_u32)bf16_of(v[2 * k + 1]) << 16;
        *(uint4 *)out = {two[0], two[1], two[2], two[3]};
    } else
        for (int k = 0; k < 8; k++) out[k] = bf16_of(v[k]);
}

/* What remains of absorb_q after the product: the rotated columns. */
KERNEL(rope_copy, gpu_rope_copy_args) {
    gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x, row = i / a.rope, col = i % a.rope;
    if (row < a.rows) a.to[row * a.to_stride + col] = a.from[row * a.from_stride + col];
}
