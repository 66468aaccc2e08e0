/* kernels/gpu/rows/gate.cu: from router logits to a token's experts and their weights.
 *
 * It moves few bytes (4 n_experts a token) and is bound by latency at decode sizes, so it takes few steps: one warp a
 * token with its scores in registers, where they fit. */
#include "kernels/gpu/rows/gate.cuh"

/* One warp a token. */
KERNEL(gate, gpu_gate_args) {
    gpu_i64 row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (row < a.n) gate_any_row(a, row);
}

/* Any number of experts, any k: one block a token. Scores wait in shared memory, [n_experts] floats; a chosen one
 * becomes -infinity. */
KERNEL(gate_any, gpu_gate_args) {
    SHARED_MEMORY(float, score);
    __shared__ float best_score[GPU_WARPS];
    __shared__ int best_at[GPU_WARPS], chosen;
    const float *logits = a.logits + blockIdx.x * a.n_experts;
    int *ids = a.ids + blockIdx.x * a.k;
    float *weights = a.weights + blockIdx.x * a.k, sum = 0;
    bool nan = false;
    for (int e = threadIdx.x; e < a.n_experts; e += GPU_THREADS) {
        score[e] = sigmoid(logits[e]) + a.bias[e];
        nan |= isnan(score[e]);
    }
    nan = __syncthreads_or(nan);
    for (int s = 0; s < a.k; s++) {
        float v = -INFINITY;
        int at = 0x7fffffff;
        for (int e = threadIdx.x; e < a.n_experts; e += GPU_THREADS)
            if (score[e] > v) v = score[e], at = e;
        for (int d = 16; d; d >>= 1) {
            float v2 = __shfl_xor_sync(~0u, v, d);
            int at2 = __shfl_xor_sync(~0u, at, d);
            if (v2 > v || (v2 == v && at2 < at)) v = v2, at = at2;
        }
        if (threadIdx.x % 32 == 0) best_score[threadIdx.x / 32] = v, best_at[threadIdx.x / 32] = at;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < GPU_WARPS; w++)
                if (best_score[w] > v || (best_score[w] == v && best_at[w] < at)) v = best_score[w], at = best_at[w];
            chosen = nan ? s : at;
            ids[s] = chosen;
            if (a.routes) a.slots[blockIdx.x * a.k + s] = gate_slot(a.routes[chosen], blockIdx.x);
            if (a.counts) atomicAdd(&a.counts[chosen], 1u);
            weights[s] = sigmoid(logits[chosen]);
            sum += weights[s];
            score[chosen] = -INFINITY;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        for (int s = 0; s < a.k; s++) weights[s] = nan ? NAN : weights[s] / (a.norm ? sum + 1e-20f : 1.0f) * a.scale;
}
