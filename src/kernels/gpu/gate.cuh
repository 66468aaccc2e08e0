/* kernels/gpu/gate.cuh: what the blocks behind those of a product do (slab.cu, broad.cu): the gate, a warp a row,
 * then x as digits, WARPS warps a row. */
#ifndef KERNELS_GPU_GATE_CUH
#define KERNELS_GPU_GATE_CUH
#include "kernels/gpu/few_digits.cuh"
#include "kernels/gpu/route.cuh"

template <int THREADS, int WARPS>
static __device__ inline void gate_beside(const gpu_route_args &a, const gpu_digits_args &digits, int block,
                                          unsigned char *memory) {
    int own = threadIdx.x / 32, warp = block * (THREADS / 32) + own, gates = ((int)a.n + WARPS - 1) / WARPS * WARPS;
    if (warp >= gates) {
        int row = (warp - gates) / WARPS;
        if (digits.x && row < digits.n) digits_of_row<WARPS>(digits, row, own / WARPS, (gpu_u32 *)memory);
        return;
    }
    after_previous();
    if (warp < a.n) route_row<GPU_GATE_EXPERTS / 32>(a, warp);
}

#endif
