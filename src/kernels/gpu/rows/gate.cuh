/* kernels/gpu/rows/gate.cuh: the gate of one token by one warp, for gate.cu, skinny_splitk.cu and ffn_fused.cu. */
#ifndef KERNELS_GPU_ROWS_GATE_CUH
#define KERNELS_GPU_ROWS_GATE_CUH
#include "kernels/gpu/device/math.cuh"

static __device__ inline float sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + expf(-x));
} /* 1 + e^-x above 2^126: 0 */

/* Larger float, larger key; 0 is below every float. A score is never -0: it is a sum with a positive zero or more. */
static __device__ inline gpu_u32 gate_key_of(float f) {
    gpu_u32 b = __float_as_uint(f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

/* As a tree, which takes less long than a chain. */
template <int N> static __device__ inline gpu_u32 gate_largest(const gpu_u32 *v) {
    if constexpr (N == 1) {
        return v[0];
    } else {
        gpu_u32 a = gate_largest<N / 2>(v), b = gate_largest<N - N / 2>(v + N / 2);
        return a > b ? a : b;
    }
}

/* ops.h's expert_slot() */
static __device__ inline int gate_slot(int route, gpu_i64 row) {
    return route < 0 || (int)(row % (route >> 16 & 0xff)) != route >> 24 ? -1 : route & 0xffff;
}

/* The k <= 32 largest of sigmoid + bias by k rounds, for up to 32 * PER experts: expert 32 i + lane is the lane's i-th.
 * Equal scores: the lowest index. Lane s keeps what round s chose. */
template <int PER> static __device__ inline void gate_row(const gpu_gate_args &a, gpu_i64 row) {
    const float *logits = a.logits + row * a.n_experts;
    int lane = threadIdx.x % 32, experts = (int)a.n_experts, k = (int)a.k, mine = 0;
    float logit[PER], bias[PER];
    gpu_u32 key[PER];
    bool nan = false;
#pragma unroll
    for (int i = 0; i < PER; i++) { /* no branch: all loads are under way at once */
        int e = 32 * i + lane < experts ? 32 * i + lane : experts - 1;
        logit[i] = logits[e], bias[i] = a.bias[e];
    }
#pragma unroll
    for (int i = 0; i < PER; i++) {
        float score = sigmoid(logit[i]) + bias[i];
        nan |= isnan(score);
        key[i] = 32 * i + lane < experts ? gate_key_of(score) : 0;
    }
    nan = __ballot_sync(~0u, nan) != 0;
    for (int s = 0; s < k; s++) {
        gpu_u32 best = gate_largest<PER>(key), at = ~0u;
        best = __reduce_max_sync(~0u, best);
#pragma unroll
        for (int i = PER - 1; i >= 0; i--)
            if (key[i] == best) at = 32 * i + lane;
        at = __reduce_min_sync(~0u, at);
        if (lane == s) mine = (int)at;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (at == (gpu_u32)(32 * i + lane)) key[i] = 0;
    }
    if (nan) mine = lane;
    float weight = lane < k ? sigmoid(logits[mine]) : 0.0f, sum = 0;
    for (int s = 0; s < k; s++) sum += __shfl_sync(~0u, weight, s);
    if (lane >= k) return;
    a.ids[row * k + lane] = mine;
    if (a.routes) a.slots[row * k + lane] = gate_slot(a.routes[mine], row);
    if (a.counts) atomicAdd(&a.counts[mine], 1u);
    a.weights[row * k + lane] = nan ? NAN : weight / (a.norm ? sum + 1e-20f : 1.0f) * a.scale;
}

/* A row of up to GPU_GATE_WARP_EXPERTS experts. */
static __device__ inline void gate_any_row(const gpu_gate_args &a, gpu_i64 row) {
    if (a.n_experts <= 64)
        gate_row<2>(a, row);
    else if (a.n_experts <= 384)
        gate_row<12>(a, row);
    else
        gate_row<GPU_GATE_WARP_EXPERTS / 32>(a, row);
}

#endif
