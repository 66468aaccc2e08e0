/* kernels/gpu/comm/all_reduce.cu: the sum of all ranks' x, in their order, by one launch on each GPU: every rank has
 * all parts and adds them up. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

static __device__ inline void send_four(const gpu_all_reduce_args &a, const exchange_state &s, gpu_i64 unit, uint2 v) {
    for (int r = 0; r < a.e.ranks; r++)
        if (r != a.e.rank) send_unit(a.e, s, r, unit, v.x, v.y);
}

/* The sum of GPU_UNIT_VALUES values, not yet rounded; means nothing if s.going is false then. */
static __device__ inline void sum_of_ranks(const gpu_all_reduce_args &a, exchange_state &s, gpu_i64 unit, uint2 own,
                                           float sum[GPU_UNIT_VALUES]) {
    for (int r = 0; r < a.e.ranks && s.going; r++) {
        uint4 v = {own.x, 0, own.y, 0};
        if (r != a.e.rank) v = take_unit(a.e, s, r, unit);
        const float part[GPU_UNIT_VALUES] = {low_f32(v.x), high_f32(v.x), low_f32(v.z), high_f32(v.z)};
#pragma unroll
        for (int i = 0; i < GPU_UNIT_VALUES; i++) sum[i] = r ? sum[i] + part[i] : part[i];
    }
}

KERNEL_OF(all_reduce, gpu_all_reduce_args, GPU_THREADS, COMM_RESIDENT) {
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    const gpu_i64 n = a.n / GPU_UNIT_VALUES, step = (gpu_i64)gridDim.x * GPU_THREADS,
                  first = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    for (gpu_i64 u = first; u < n; u += step) send_four(a, s, u, ((const uint2 *)a.x)[u]);
    for (gpu_i64 u = first; u < n && s.going; u += step) {
        float sum[GPU_UNIT_VALUES];
        sum_of_ranks(a, s, u, ((const uint2 *)a.x)[u], sum);
        if (s.going) ((uint2 *)a.x)[u] = uint2{two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
    }
    exchange_end(a.e, s);
}

/* What a thread has of a piece of a row: GPU_UNIT_VALUES columns from c on. */
typedef struct {
    gpu_i64 row, c, at;
    bool here;
    uint2 own, x;
    float4 weight;
} norm_piece;
static __device__ inline norm_piece piece_of(const gpu_all_reduce_args &a, int p, int across) {
    norm_piece v = {};
    v.row = p / across, v.c = ((gpu_i64)(p % across) * GPU_THREADS + threadIdx.x) * GPU_UNIT_VALUES;
    v.at = v.row * a.dim + v.c, v.here = v.at < a.n && v.c < a.dim;
    if (!v.here) return v;
    v.own = *(const uint2 *)(a.x + v.at), v.x = *(const uint2 *)(a.after.x + v.at);
    v.weight = *(const float4 *)(a.after.weight + v.c);
    return v;
}

/* The sum goes to the residual stream, rounded before and after, and what the norm behind it needs beside its scale
 * (params.h, gpu_after). A block takes pieces of rows, GPU_UNIT_VALUES columns a thread; the first is under way while
 * the number is read. */
KERNEL_PDL(all_reduce_norm, gpu_all_reduce_args, GPU_THREADS, COMM_RESIDENT) {
    const int across = (int)((a.dim + GPU_THREADS * GPU_UNIT_VALUES - 1) / (GPU_THREADS * GPU_UNIT_VALUES)),
              pieces = (int)(a.n / a.dim) * across;
    exchange_state s;
    pdl_wait();
    const norm_piece first = piece_of(a, blockIdx.x, across);
    if (!exchange_begin(a.e, s)) return;
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        norm_piece v = p == (int)blockIdx.x ? first : piece_of(a, p, across);
        if (v.here) send_four(a, s, v.at / GPU_UNIT_VALUES, v.own);
    }
    for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
        const norm_piece v = p == (int)blockIdx.x ? first : piece_of(a, p, across);
        const float x[GPU_UNIT_VALUES] = {low_f32(v.x.x), high_f32(v.x.x), low_f32(v.x.y), high_f32(v.x.y)};
        float sum[GPU_UNIT_VALUES] = {0, 0, 0, 0}, squares = 0;
        if (v.here) {
            sum_of_ranks(a, s, v.at / GPU_UNIT_VALUES, v.own, sum);
#pragma unroll
            for (int i = 0; i < GPU_UNIT_VALUES; i++) {
                sum[i] = f32_of(bf16_of(x[i] + f32_of(bf16_of(sum[i]))));
                squares = fmaf(sum[i], sum[i], squares);
            }
        }
        if (v.here && s.going) {
            *(uint2 *)(a.after.x + v.at) = uint2{two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
            *(uint2 *)(a.after.out + v.at) = uint2{two_bf16(sum[0] * v.weight.x, sum[1] * v.weight.y),
                                                   two_bf16(sum[2] * v.weight.z, sum[3] * v.weight.w)};
        }
        squares = block_sum(squares);
        if (threadIdx.x == 0) a.after.squares[v.row * GPU_DEFERRED_PARTS + p % across] = squares;
        if (!a.after.bad || squares - squares == 0.0f) continue; /* a sum of squares that is finite had none */
        bool bad = false;
#pragma unroll
        for (int i = 0; i < GPU_UNIT_VALUES; i++) bad |= sum[i] - sum[i] != 0.0f;
        if (bad && s.going && a.after.bad[v.row] == 0) a.after.bad[v.row] = a.after.mark;
    }
    exchange_end(a.e, s);
}
