/* kernels/gpu/rows.cu: what works on rows by themselves. Each reads its inputs once and writes its output once; all are
 * bound by bytes or by the launch. One block a row unless it says otherwise. */
#include "kernels/gpu/prelude.cuh"

KERNEL(embed, gpu_embed_args) {
    gpu_i64 i = blockIdx.x;
    int id = a.ids[i];
    for (gpu_i64 c = threadIdx.x; c < a.table.cols; c += GPU_THREADS)
        a.out[i * a.table.cols + c] = id >= 0 && id < a.table.rows ? bf16_of(weight_at(a.table, id, c)) : 0;
}

/* The sum is rounded before the norm, because that is what the next layer adds to. */
KERNEL(norm, gpu_norm_args) {
    gpu_i64 i = blockIdx.x;
    const gpu_bf16 *x = a.x + i * a.x_stride, *add = a.add ? a.add + i * a.x_stride : nullptr;
    gpu_bf16 *sum = a.sum ? a.sum + i * a.x_stride : nullptr;
    float squares = 0;
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) {
        gpu_bf16 h = add ? bf16_of(f32_of(x[c]) + f32_of(add[c])) : x[c];
        float v = f32_of(h);
        squares = fmaf(v, v, squares);
    }
    float r = rsqrtf(block_sum(squares) / (float)a.dim + a.eps);
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) {
        gpu_bf16 h = add ? bf16_of(f32_of(x[c]) + f32_of(add[c])) : x[c];
        if (sum) sum[c] = h;
        a.out[i * a.out_stride + c] = bf16_of(f32_of(h) * r * a.weight[c]);
    }
}

/* One thread an angle, in double: positions reach 262,144. */
KERNEL(rope_table, gpu_rope_table_args) {
    gpu_i64 at = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    if (at >= a.n * a.half) return;
    double phi = (double)a.positions[at / a.half] * a.inv_freq[at % a.half];
    a.table[2 * at] = (float)(cos(phi) * a.mscale);
    a.table[2 * at + 1] = (float)(sin(phi) * a.mscale);
}

/* One thread a pair (2j, 2j + 1). */
KERNEL(rope_q, gpu_rope_q_args) {
    gpu_i64 at = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x, half = a.rope / 2;
    if (at >= a.pairs) return;
    gpu_i64 j = at % half, head = at / half, i = head / a.heads;
    gpu_bf16 *x = a.q + head * (a.nope + a.rope) + a.nope + 2 * j;
    float c = a.table[(i * half + j) * 2], s = a.table[(i * half + j) * 2 + 1], even = f32_of(x[0]), odd = f32_of(x[1]);
    x[0] = bf16_of(even * c - odd * s);
    x[1] = bf16_of(even * s + odd * c);
}

KERNEL(kv_write, gpu_kv_write_args) {
    gpu_i64 i = blockIdx.x, width = a.latent + a.rope, base = a.slots[i] * width;
    const gpu_bf16 *x = a.kv_a + i * width;
    float squares = 0;
    for (gpu_i64 c = threadIdx.x; c < a.latent; c += GPU_THREADS) squares = fmaf(f32_of(x[c]), f32_of(x[c]), squares);
    float r = rsqrtf(block_sum(squares) / (float)a.latent + a.eps);
    for (gpu_i64 c = threadIdx.x; c < a.latent; c += GPU_THREADS) kv_set(a.kv, a.kv_type, base + c, f32_of(x[c]) * r * a.norm[c]);
    for (gpu_i64 j = threadIdx.x; j < a.rope / 2; j += GPU_THREADS) {
        float c = a.table[i * a.rope + 2 * j], s = a.table[i * a.rope + 2 * j + 1];
        float even = f32_of(x[a.latent + 2 * j]), odd = f32_of(x[a.latent + 2 * j + 1]);
        kv_set(a.kv, a.kv_type, base + a.latent + 2 * j, even * c - odd * s);
        kv_set(a.kv, a.kv_type, base + a.latent + 2 * j + 1, even * s + odd * c);
    }
}

KERNEL(gather, gpu_gather_args) {
    gpu_i64 i = blockIdx.x;
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) a.out[i * a.dim + c] = a.x[a.rows[i] * a.dim + c];
}

KERNEL(finite, gpu_finite_args) {
    gpu_i64 i = blockIdx.x;
    bool bad = false;
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) {
        gpu_i64 at = i * a.stride + c;
        bad |= a.type == GPU_BF16 ? (((const gpu_bf16 *)a.x)[at] & 0x7f80) == 0x7f80
                                  : (((const gpu_u32 *)a.x)[at] & 0x7f800000u) == 0x7f800000u;
    }
    if (__syncthreads_or(bad) && threadIdx.x == 0 && a.bad[i] == 0) a.bad[i] = a.mark;
}

/* The K2 gate: the k largest of sigmoid + bias by k rounds, each a maximum over the block; equal scores: the lowest
 * index. Scores wait in shared memory, [n_experts] floats; a chosen one becomes -infinity. */
KERNEL(route, gpu_route_args) {
    SHARED_MEMORY(float, score);
    __shared__ float best_score[GPU_WARPS];
    __shared__ int best_at[GPU_WARPS], chosen;
    const float *logits = a.logits + blockIdx.x * a.n_experts;
    int *ids = a.ids + blockIdx.x * a.k;
    float *weights = a.weights + blockIdx.x * a.k, sum = 0;
    bool nan = false;
    for (int e = threadIdx.x; e < a.n_experts; e += GPU_THREADS) {
        score[e] = 1.0f / (1.0f + expf(-logits[e])) + a.bias[e];
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
            weights[s] = 1.0f / (1.0f + expf(-logits[chosen]));
            sum += weights[s];
            score[chosen] = -INFINITY;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        for (int s = 0; s < a.k; s++)
            weights[s] = nan ? NAN : weights[s] / (a.norm ? sum + 1e-20f : 1.0f) * a.scale;
}

/* splitmix64 (Steele, Lea and Flood 2014) of a counter. */
static __device__ inline gpu_u64 random_bits(gpu_u64 seed, gpu_u64 at) {
    gpu_u64 z = (seed << 40) + at * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* The sum of four uniforms, variance 1. */
static __device__ inline float normal(gpu_u64 b) {
    int sum = (int)(b & 0xffff) + (int)(b >> 16 & 0xffff) + (int)(b >> 32 & 0xffff) + (int)(b >> 48);
    return (float)(sum - 131070) * (1.7320508f / 65536.0f);
}

/* One thread an element (nibbles: a byte), the grid going round. */
KERNEL(fill, gpu_fill_args) {
    for (gpu_u64 i = (gpu_u64)blockIdx.x * GPU_THREADS + threadIdx.x; i < a.n; i += (gpu_u64)gridDim.x * GPU_THREADS) {
        gpu_u64 b = random_bits(a.seed, i);
        float scale = 0.003f + 0.002f * (float)(b & 0xffff) / 65536.0f;
        if (a.kind == GPU_FILL_BF16) ((gpu_bf16 *)a.out)[i] = bf16_of(normal(b) * a.sigma);
        if (a.kind == GPU_FILL_FP8) ((gpu_u8 *)a.out)[i] = fp8_of(normal(b) * 64.0f);
        if (a.kind == GPU_FILL_NIBBLES) ((gpu_u8 *)a.out)[i] = (gpu_u8)b;
        if (a.kind == GPU_FILL_SCALE_BF16) ((gpu_bf16 *)a.out)[i] = bf16_of(b >> 63 ? scale : -scale);
        if (a.kind == GPU_FILL_SCALE_F32) ((float *)a.out)[i] = a.sigma / 64.0f;
    }
}
