/* kernels/gpu/moe/generic.cu: routed experts in any weight format, of pairs sorted by expert (sort.cu): gate
 * and up, down, weighted sum.
 *
 * Every expert's bytes are read once for each GPU_TOKENS tokens that chose it; where the experts have 8 tokens each
 * or more, the tensor cores take tiles (mma_tile.cuh) and they are read once for each 64. Nothing is added
 * atomically: products of a (token, slot) pair wait in a row of their own, and a token sums its slots in order. */
#include "kernels/gpu/device/warp_dot.cuh"
#include "kernels/gpu/device/sm90.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

static __device__ inline int is_aligned(const gpu_bf16 *x, gpu_i64 stride) {
    return ((gpu_u64)x | (gpu_u64)stride * 2) % 16 == 0;
}

/* h[pair] = silu(gate x) * up x of the R pairs from list[at]. */
template <int R>
static __device__ inline void up_rows(const gpu_experts_args &a, const gpu_matrix *w, gpu_i64 row, int at, int end) {
    const gpu_bf16 *x[R];
    float gate[R], up[R];
#pragma unroll
    for (int r = 0; r < R; r++) x[r] = a.x + a.list[at + r < end ? at + r : end - 1] / a.k * w[0].cols;
    int aligned = is_aligned(a.x, w[0].cols);
    dot_row<R>(w[0], row, x, aligned, gate);
    dot_row<R>(w[1], row, x, aligned, up);
    if (threadIdx.x % 32 == 0)
        for (int r = 0; r < R && at + r < end; r++)
            a.h[(gpu_i64)a.list[at + r] * w[0].rows + row] = bf16_of(silu(gate[r]) * up[r]);
}

/* Grid: rows / GPU_WARPS, experts. */
KERNEL(moe_up, gpu_experts_args) {
    int e = blockIdx.y, at = a.start[e], end = a.start[e + 1];
    if (at == end) return;
    const gpu_matrix w[2] = {a.experts[3 * e], a.experts[3 * e + 1]};
    gpu_i64 row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (row >= w[0].rows) return;
    if (end - at == 1) return up_rows<1>(a, w, row, at, end);
    for (; at < end; at += GPU_TOKENS) up_rows<GPU_TOKENS>(a, w, row, at, end);
}

template <int R>
static __device__ inline void down_rows(const gpu_experts_args &a, const gpu_matrix &w, gpu_i64 row, int at, int end) {
    const gpu_bf16 *x[R];
    float sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) x[r] = a.h + (gpu_i64)a.list[at + r < end ? at + r : end - 1] * w.cols;
    dot_row<R>(w, row, x, is_aligned(a.h, w.cols), sum);
    if (threadIdx.x % 32 == 0)
        for (int r = 0; r < R && at + r < end; r++) a.y[(gpu_i64)a.list[at + r] * w.rows + row] = sum[r];
}

KERNEL(moe_down, gpu_experts_args) {
    int e = blockIdx.y, at = a.start[e], end = a.start[e + 1];
    if (at == end) return;
    const gpu_matrix w = a.experts[3 * e + 2];
    gpu_i64 row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (row >= w.rows) return;
    if (end - at == 1) return down_rows<1>(a, w, row, at, end);
    for (; at < end; at += GPU_TOKENS) down_rows<GPU_TOKENS>(a, w, row, at, end);
}

/* The same two on the tensor cores. Grid: rows / 64 and rows / 128, experts. */
KERNEL(moe_up_tile, gpu_experts_args) {
    int e = blockIdx.y, end = a.start[e + 1];
    const gpu_matrix *m = a.experts + 3 * e;
    gpu_i64 row = (gpu_i64)blockIdx.x * TILE_HALF, inter = m[0].rows, hidden = m[0].cols;
    const tile_weights w = {{&m[0], &m[1]}, {row, row}, {inter, inter}};
    for (int at = a.start[e]; at < end; at += TILE_TOKENS) {
        tile_sums sums;
        tile_product(
            w, [&](int j) { return at + j < end ? a.x + a.list[at + j] / a.k * hidden : nullptr; }, sums);
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) {
                gpu_i64 r = row + tile_row(0, k);
                int token = at + tile_token(j, k);
                if (r < inter && token < end)
                    a.h[(gpu_i64)a.list[token] * inter + r] = bf16_of(silu(sums[0][j][k]) * sums[1][j][k]);
            }
    }
}

KERNEL(moe_down_tile, gpu_experts_args) {
    int e = blockIdx.y, end = a.start[e + 1];
    const gpu_matrix *m = a.experts + 3 * e + 2;
    gpu_i64 row = (gpu_i64)blockIdx.x * TILE_ROWS, hidden = m->rows, inter = m->cols;
    const tile_weights w = {{m, m}, {row, row + TILE_HALF}, {hidden, hidden}};
    for (int at = a.start[e]; at < end; at += TILE_TOKENS) {
        tile_sums sums;
        tile_product(
            w, [&](int j) { return at + j < end ? a.h + (gpu_i64)a.list[at + j] * inter : nullptr; }, sums);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                for (int k = 0; k < 4; k++) {
                    gpu_i64 r = row + tile_row(i, k);
                    int token = at + tile_token(j, k);
                    if (r < hidden && token < end) a.y[(gpu_i64)a.list[token] * hidden + r] = sums[i][j][k];
                }
    }
}

/* Sums of a token's slots in order, then the shared expert; columns [c, c + 4) or column c alone. */
static __device__ inline void sum_four(const gpu_combine_args &a, gpu_i64 i, gpu_i64 c, float sum[4]) {
    const float *y = a.y + i * a.k * a.hidden + c;
    sum[0] = sum[1] = sum[2] = sum[3] = 0;
    enum { AT_ONCE = 8 };
    uint2 u = {0, 0};
    if (a.shared) u = *(const uint2 *)(a.shared + i * a.hidden + c);
    for (int first = 0; first < a.k; first += AT_ONCE) { /* no branch around a load, and none waits for another */
        float4 v[AT_ONCE];
        float w[AT_ONCE];
        int id[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int s = first + j < a.k ? first + j : (int)a.k - 1;
            id[j] = a.ids[i * a.k + s], w[j] = a.weights[i * a.k + s];
            v[j] = *(const float4 *)(y + s * a.hidden);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (first + j < a.k && id[j] >= 0 && id[j] < a.n_experts)
                sum[0] = fmaf(w[j], v[j].x, sum[0]), sum[1] = fmaf(w[j], v[j].y, sum[1]),
                sum[2] = fmaf(w[j], v[j].z, sum[2]), sum[3] = fmaf(w[j], v[j].w, sum[3]);
    }
    if (a.shared) { sum[0] += low_f32(u.x), sum[1] += high_f32(u.x), sum[2] += low_f32(u.y), sum[3] += high_f32(u.y); }
}
static __device__ inline void combine_four(const gpu_combine_args &a, gpu_i64 i, gpu_i64 c) {
    float sum[4];
    sum_four(a, i, c, sum);
    *(uint2 *)(a.out + i * a.hidden + c) = {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
}
static __device__ inline void combine_one(const gpu_combine_args &a, gpu_i64 i, gpu_i64 c) {
    float sum = 0;
    for (gpu_i64 s = 0; s < a.k; s++) {
        int id = a.ids[i * a.k + s];
        if (id >= 0 && id < a.n_experts) sum = fmaf(a.weights[i * a.k + s], a.y[(i * a.k + s) * a.hidden + c], sum);
    }
    if (a.shared) sum += f32_of(a.shared[i * a.hidden + c]);
    a.out[i * a.hidden + c] = bf16_of(sum);
}

/* Grid: tokens, pieces of the columns. Bytes: 4 k hidden a token. */
KERNEL(moe_combine, gpu_combine_args) {
    gpu_i64 i = blockIdx.x, step = (gpu_i64)gridDim.y * GPU_THREADS,
            c = (gpu_i64)blockIdx.y * GPU_THREADS + threadIdx.x;
    if (((gpu_u64)a.hidden * 2 | (gpu_u64)a.shared | (gpu_u64)a.out) % 8 == 0)
        for (c *= 4; c < a.hidden; c += 4 * step) combine_four(a, i, c);
    else
        for (; c < a.hidden; c += step) combine_one(a, i, c);
}

/* Grid: tokens, pieces of the columns. */
KERNEL(sum_pairs, gpu_sum_pairs_args) {
    gpu_i64 i = blockIdx.x, step = (gpu_i64)gridDim.y * GPU_THREADS;
    for (gpu_i64 c = (gpu_i64)blockIdx.y * GPU_THREADS + threadIdx.x; c < a.dim; c += step) {
        float sum = 0;
        for (gpu_i64 s = i * a.k; s < (i + 1) * a.k; s++) sum = fmaf(a.weights[s], f32_of(a.y[s * a.dim + c]), sum);
        if (a.shared) sum += f32_of(a.shared[i * a.dim + c]);
        a.out[i * a.dim + c] = bf16_of(sum);
    }
}

/* The sum goes to the residual stream, and what the norm behind it needs beside its scale (params.h, gpu_after). Grid:
 * tokens, pieces of 4 GPU_THREADS columns. */
KERNEL_PDL(moe_combine_norm, gpu_combine_args, GPU_THREADS, 4) {
    gpu_i64 i = blockIdx.x, c = ((gpu_i64)blockIdx.y * GPU_THREADS + threadIdx.x) * 4;
    bool here = c < a.hidden;
    float sum[4] = {0, 0, 0, 0}, squares = 0;
    float4 weight = {0, 0, 0, 0};
    if (here) weight = *(const float4 *)(a.after.weight + c);
    pdl_wait();
    if (here) {
        uint2 u = *(const uint2 *)(a.after.x + i * a.hidden + c);
        sum_four(a, i, c, sum);
        const float x[4] = {low_f32(u.x), high_f32(u.x), low_f32(u.y), high_f32(u.y)};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            sum[k] = f32_of(bf16_of(x[k] + f32_of(bf16_of(sum[k]))));
            squares = fmaf(sum[k], sum[k], squares);
        }
        *(uint2 *)(a.after.x + i * a.hidden + c) = {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
        *(uint2 *)(a.after.out + i * a.hidden + c) = {two_bf16(sum[0] * weight.x, sum[1] * weight.y),
                                                      two_bf16(sum[2] * weight.z, sum[3] * weight.w)};
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) a.after.squares[i * GPU_DEFERRED_PARTS + blockIdx.y] = squares;
    if (!a.after.bad || squares - squares == 0.0f) return;
    bool bad = false; /* a sum of squares that is finite had none */
#pragma unroll
    for (int k = 0; k < 4; k++) bad |= sum[k] - sum[k] != 0.0f;
    if (bad && a.after.bad[i] == 0) a.after.bad[i] = a.after.mark;
}
