/* kernels/gpu/comm/all_reduce.cu: the sum of all ranks' x, in their order, by one launch on each GPU: every rank has
 * all parts and adds them up. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

KERNEL(all_reduce, gpu_all_reduce_args) {
    if (exchange_broken(a.e)) return;
    exchange_state s = exchange_begin(a.e);
    const gpu_i64 n = a.n / GPU_UNIT_VALUES, step = (gpu_i64)gridDim.x * GPU_THREADS,
                  first = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    uint2 *x = (uint2 *)a.x;
    for (gpu_i64 u = first; u < n; u += step)
        for (int r = 0; r < a.e.ranks; r++)
            if (r != a.e.rank) send_unit(a.e, s, r, u, x[u].x, x[u].y);
    for (gpu_i64 u = first; u < n && s.going; u += step) {
        float sum[GPU_UNIT_VALUES];
        for (int r = 0; r < a.e.ranks && s.going; r++) {
            uint4 v = {x[u].x, 0, x[u].y, 0};
            if (r != a.e.rank) v = take_unit(a.e, s, r, u);
            const float part[GPU_UNIT_VALUES] = {low_f32(v.x), high_f32(v.x), low_f32(v.z), high_f32(v.z)};
#pragma unroll
            for (int i = 0; i < GPU_UNIT_VALUES; i++) sum[i] = r ? sum[i] + part[i] : part[i];
        }
        if (s.going) x[u] = uint2{two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
    }
    exchange_end(a.e, s);
}
