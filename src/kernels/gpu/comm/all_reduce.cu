/* kernels/gpu/comm/all_reduce.cu: the sum of all ranks' x, in their order, by one launch on each GPU: every rank has
 * all parts and adds them up. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

static __device__ inline void send_four(const gpu_all_reduce_args &a, const exchange_state &s, gpu_i64 unit) {
    uint2 v = ((const uint2 *)a.x)[unit];
    for (int r = 0; r < a.e.ranks; r++)
        if (r != a.e.rank) send_unit(a.e, s, r, unit, v.x, v.y);
}

/* The sum of GPU_UNIT_VALUES values, not yet rounded; means nothing if s.going is false then. */
static __device__ inline void sum_of_ranks(const gpu_all_reduce_args &a, exchange_state &s, gpu_i64 unit,
                                           float sum[GPU_UNIT_VALUES]) {
    uint2 own = ((const uint2 *)a.x)[unit];
    for (int r = 0; r < a.e.ranks && s.going; r++) {
        uint4 v = {own.x, 0, own.y, 0};
        if (r != a.e.rank) v = take_unit(a.e, s, r, unit);
        const float part[GPU_UNIT_VALUES] = {low_f32(v.x), high_f32(v.x), low_f32(v.z), high_f32(v.z)};
#pragma unroll
        for (int i = 0; i < GPU_UNIT_VALUES; i++) sum[i] = r ? sum[i] + part[i] : part[i];
    }
}

KERNEL(all_reduce, gpu_all_reduce_args) {
    if (exchange_broken(a.e)) return;
    exchange_state s = exchange_begin(a.e);
    const gpu_i64 n = a.n / GPU_UNIT_VALUES, step = (gpu_i64)gridDim.x * GPU_THREADS,
                  first = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    for (gpu_i64 u = first; u < n; u += step) send_four(a, s, u);
    for (gpu_i64 u = first; u < n && s.going; u += step) {
        float sum[GPU_UNIT_VALUES];
        sum_of_ranks(a, s, u, sum);
        if (s.going) ((uint2 *)a.x)[u] = uint2{two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
    }
    exchange_end(a.e, s);
}

/* The sum goes to the residual stream, rounded before and after, and what the norm behind it needs beside its scale
 * (params.h, gpu_after). A block takes pieces of rows, GPU_UNIT_VALUES columns a thread. */
KERNEL_PDL(all_reduce_norm, gpu_all_reduce_args, GPU_THREADS, 4) {
    pdl_wait();
    if (exchange_broken(a.e)) return;
    exchange_state s = exchange_begin(a.e);
    const int wide = GPU_THREADS * GPU_UNIT_VALUES, across = (int)((a.dim + wide - 1) / wide),
              pieces = (int)(a.n / a.dim) * across;
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        gpu_i64 c = (gpu_i64)(p % across) * wide + threadIdx.x * GPU_UNIT_VALUES;
        if (c < a.dim) send_four(a, s, (p / across * a.dim + c) / GPU_UNIT_VALUES);
    }
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        gpu_i64 row = p / across, c = (gpu_i64)(p % across) * wide + threadIdx.x * GPU_UNIT_VALUES,
                at = row * a.dim + c;
        float v[GPU_UNIT_VALUES] = {0, 0, 0, 0}, squares = 0;
        if (c < a.dim) {
            float4 weight = *(const float4 *)(a.after.weight + c);
            uint2 u = *(const uint2 *)(a.after.x + at);
            const float x[GPU_UNIT_VALUES] = {low_f32(u.x), high_f32(u.x), low_f32(u.y), high_f32(u.y)};
            sum_of_ranks(a, s, at / GPU_UNIT_VALUES, v);
#pragma unroll
            for (int i = 0; i < GPU_UNIT_VALUES; i++) {
                v[i] = f32_of(bf16_of(x[i] + f32_of(bf16_of(v[i]))));
                squares = fmaf(v[i], v[i], squares);
            }
            if (s.going) {
                *(uint2 *)(a.after.x + at) = uint2{two_bf16(v[0], v[1]), two_bf16(v[2], v[3])};
                *(uint2 *)(a.after.out + at) =
                    uint2{two_bf16(v[0] * weight.x, v[1] * weight.y), two_bf16(v[2] * weight.z, v[3] * weight.w)};
            }
        }
        squares = block_sum(squares);
        if (threadIdx.x == 0) a.after.squares[row * GPU_DEFERRED_PARTS + p % across] = squares;
        if (!a.after.bad || squares - squares == 0.0f) continue; /* a sum of squares that is finite had none */
        bool bad = false;
#pragma unroll
        for (int i = 0; i < GPU_UNIT_VALUES; i++) bad |= v[i] - v[i] != 0.0f;
        if (bad && s.going && a.after.bad[row] == 0) a.after.bad[row] = a.after.mark;
    }
    exchange_end(a.e, s);
}
