/* kernels/gpu/moe/gate_fused.cuh: what the blocks behind those of a product do (skinny_splitk.cu, skinny_tma.cu):
 * the gate, a warp a row, then x as digits, WARPS warps a row. */
#ifndef KERNELS_GPU_MOE_GATE_FUSED_CUH
#define KERNELS_GPU_MOE_GATE_FUSED_CUH
#include "kernels/gpu/moe/int16_split.cuh"
#include "kernels/gpu/rows/gate.cuh"

template <int THREADS, int WARPS>
static __device__ inline void gate_beside(const gpu_gate_args &a, const gpu_digits_args &digits, int block,
                                          unsigned char *memory) {
    int own = threadIdx.x / 32, warp = block * (THREADS / 32) + own, gates = ((int)a.n + WARPS - 1) / WARPS * WARPS;
    if (warp >= gates) {
        int row = (warp - gates) / WARPS;
        if (digits.x && row < digits.n) digits_of_row<WARPS>(digits, row, own / WARPS, (gpu_u32 *)memory);
        return;
    }
    pdl_wait();
    if (warp < a.n) gate_row<GPU_GATE_EXPERTS / 32>(a, warp);
}

#endif
