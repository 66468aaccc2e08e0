/* kernels/gpu/linear.cu: matrix products y[n, rows] = x[n, cols] W^T in every weight format.
 *
 * A warp computes one row of W for GPU_TOKENS rows of x (one, when x has one row), so the weights are read once for each
 * GPU_TOKENS rows. Bytes: rows * cols * bits / 8 for each group, which bounds it up to about 8 rows. From 32 rows of x on
 * the tensor cores take tiles of 128 x 64 (tile.cuh): the weights are read once for each 64 rows. */
#include "kernels/gpu/dot.cuh"
#include "kernels/gpu/tile.cuh"

template <int R> static __device__ inline void rows_of(const gpu_linear_args &a, gpu_i64 token, gpu_i64 x_from, const gpu_bf16 *x[R], int *aligned) {
#pragma unroll
    for (int r = 0; r < R; r++) x[r] = a.x + (token + r < a.n ? token + r : a.n - 1) * a.x_stride + x_from;
    *aligned = ((gpu_u64)(a.x + x_from) | (gpu_u64)a.x_stride * 2) % 16 == 0;
}

static __device__ inline void put(const gpu_linear_args &a, gpu_i64 at, float v) {
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
            for (int r = 0; r < R && token + r < a.n; r++) put(a, (token + r) * a.y_stride + head * a.y_step + row, sum[r]);
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
            for (int r = 0; r < R && token + r < a.n; r++) put(a, (token + r) * a.y_stride + row, silu(gate[r]) * up[r]);
    }
}
KERNEL(swiglu_one, gpu_linear_args) { swiglu_rows<1>(a); }
KERNEL(swiglu_many, gpu_linear_args) { swiglu_rows<GPU_TOKENS>(a); }

/* Grid: rows / 128, tokens / 64, heads. */
KERNEL(linear_tile, gpu_linear_args) {
    gpu_i64 row = (gpu_i64)blockIdx.x * TILE_ROWS, head = blockIdx.z, from = a.first + head * a.step, end = from + a.rows;
    const tile_weights w = {{&a.w, &a.w}, {from + row, from + row + TILE_HALF}, {end, end}};
    for (gpu_i64 token = (gpu_i64)blockIdx.y * TILE_TOKENS; token < a.n; token += (gpu_i64)gridDim.y * TILE_TOKENS) {
        tile_sums sums;
        tile_product(w, [&](int j) { return token + j < a.n ? a.x + (token + j) * a.x_stride + head * a.x_step : nullptr; }, sums);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                for (int k = 0; k < 4; k++) {
                    gpu_i64 r = row + tile_row(i, k), at = token + tile_token(j, k);
                    if (r < a.rows && at < a.n) put(a, at * a.y_stride + head * a.y_step + r, sums[i][j][k]);
                }
    }
}

/* Grid: rows / 64, tokens / 64. */
KERNEL(swiglu_tile, gpu_linear_args) {
    gpu_i64 row = (gpu_i64)blockIdx.x * TILE_HALF;
    const tile_weights w = {{&a.w, &a.up}, {row, row}, {a.rows, a.rows}};
    for (gpu_i64 token = (gpu_i64)blockIdx.y * TILE_TOKENS; token < a.n; token += (gpu_i64)gridDim.y * TILE_TOKENS) {
        tile_sums sums;
        tile_product(w, [&](int j) { return token + j < a.n ? a.x + (token + j) * a.x_stride : nullptr; }, sums);
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) {
                gpu_i64 r = row + tile_row(0, k), at = token + tile_token(j, k);
                if (r < a.rows && at < a.n) put(a, at * a.y_stride + r, silu(sums[0][j][k]) * sums[1][j][k]);
            }
    }
}

/* What remains of swiglu after two products by a library. Bytes: 10 an element. Grid: rows of x. */
KERNEL(silu_product, gpu_silu_args) {
    const float *gate = a.gate + blockIdx.x * a.rows, *up = a.up + blockIdx.x * a.rows;
    gpu_bf16 *out = a.out + blockIdx.x * a.out_stride;
    for (gpu_i64 i = threadIdx.x * 4; i < a.rows; i += GPU_THREADS * 4) {
        float4 g = *(const float4 *)(gate + i), u = *(const float4 *)(up + i);
        out[i] = bf16_of(silu(g.x) * u.x), out[i + 1] = bf16_of(silu(g.y) * u.y);
        out[i + 2] = bf16_of(silu(g.z) * u.z), out[i + 3] = bf16_of(silu(g.w) * u.w);
    }
}

/* What remains of absorb_q after the product: the rotated columns. */
KERNEL(rope_copy, gpu_rope_copy_args) {
    gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x, row = i / a.rope, col = i % a.rope;
    if (row < a.rows) a.to[row * a.to_stride + col] = a.from[row * a.from_stride + col];
}
