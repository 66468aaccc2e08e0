/* kernels/gpu/device/softmax.cuh: scores that a warpgroup's products left (sm90.cuh: wgmma), two rows a thread, become
 * weights: base 2, with a running maximum (Milakov and Gimelshein 2018, arXiv:1805.02867). */
#ifndef KERNELS_GPU_DEVICE_SOFTMAX_CUH
#define KERNELS_GPU_DEVICE_SOFTMAX_CUH
#include "kernels/gpu/device/sm90.cuh"

static __device__ inline float power2(float x) {
#ifdef EMULATED
    return exp2f(x);
#else
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

typedef struct {
    float best[2], sum[2]; /* of rows g and g + 8; sums of the lane's own columns */
} softmax_rows;
static __device__ inline softmax_rows softmax_begin() { return {{-INFINITY, -INFINITY}, {0, 0}}; }

/* Columns from the lane's `from`-th on do not count; a lane's first column is 2 (lane % 4). */
template <int COLUMNS> static __device__ inline void softmax_mask(float *s, int from) {
    if (from >= COLUMNS) return;
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++)
        if (i / 4 * 8 + i % 2 >= from) s[i] = -INFINITY;
}

/* shrink: what earlier sums are to be multiplied with. */
template <int COLUMNS>
static __device__ inline void softmax_weights(float *s, softmax_rows &st, float shrink[2], float scale2) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = -INFINITY;
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++)
            top = fmaxf(top, s[i / 2 * 4 + r * 2 + i % 2]); /* passes a NaN over; its weight is NaN all the same */
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(st.best[r], fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale2);
        shrink[r] = power2(st.best[r] - top);
        st.best[r] = top;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++) {
            float &x = s[i * 4 + r * 2], &y = s[i * 4 + r * 2 + 1];
            x = power2(fmaf(x, scale2, -top)), y = power2(fmaf(y, scale2, -top));
            sum += x + y;
        }
        st.sum[r] = st.sum[r] * shrink[r] + sum;
    }
}

/* The row's sum, the same in its four lanes. */
static __device__ inline float softmax_sum(const softmax_rows &st, int r) {
    float sum = st.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}

template <int VALUES> static __device__ inline void softmax_shrink(float *o, float shrink0, float shrink1) {
    if (!__ballot_sync(~0u, shrink0 != 1.0f || shrink1 != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < VALUES; i++) o[i] *= i / 2 % 2 ? shrink1 : shrink0;
}

#endif
