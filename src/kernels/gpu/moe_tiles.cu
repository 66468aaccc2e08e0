/* kernels/gpu/moe_tiles.cu: the tiles of tokens that moe_wgmma.cu's blocks go through, and the sum over a token's slots. */
#include "kernels/gpu/hopper.cuh"

/* One block. An expert's tokens are cut into as few tiles of at most `most` as they need, equal but for a multiple of 8; expert by
 * expert {expert, first place in the list, tokens, first row of h}. An expert's rows of h begin at a multiple of 8. */
KERNEL(moe_tiles, gpu_moe_tiles_args) {
    __shared__ int2 sums[GPU_WARPS];
    int each = (a.experts + GPU_THREADS - 1) / GPU_THREADS, from = threadIdx.x * each, end = from + each < a.experts ? from + each : a.experts;
    int2 own = {0, 0}; /* tiles, rows of h */
    for (int e = from; e < end; e++) {
        int n = a.start[e + 1] - a.start[e];
        own.x += (n + a.most - 1) / a.most, own.y += (n + 7) / 8 * 8;
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int2 at = own;
    for (int d = 1; d < 32; d *= 2) {
        int2 o = {__shfl_sync(~0u, at.x, lane >= d ? lane - d : lane), __shfl_sync(~0u, at.y, lane >= d ? lane - d : lane)};
        if (lane >= d) at.x += o.x, at.y += o.y;
    }
    if (lane == 31) sums[warp] = at;
    __syncthreads();
    at.x -= own.x, at.y -= own.y;
    for (int w = 0; w < warp; w++) at.x += sums[w].x, at.y += sums[w].y;
    for (int e = from; e < end; e++) {
        int first = a.start[e], n = a.start[e + 1] - first, tiles = (n + a.most - 1) / a.most;
        int tokens = tiles ? ((n + tiles - 1) / tiles + 7) / 8 * 8 : 0;
        for (int i = 0; i < tiles; i++) {
            int done = i * tokens;
            a.tiles[at.x++] = int4{e, first + done, n - done < tokens ? n - done : tokens, at.y + done};
        }
        at.y += (n + 7) / 8 * 8;
    }
    if (threadIdx.x == GPU_THREADS - 1) *a.n_tiles = at.x;
    if (threadIdx.x < GPU_MOE_COUNTS) a.n_tiles[1 + threadIdx.x] = 0;
}

/* out = the slots of y in order, weighted, then the shared expert: 8 columns a thread. Grid: tokens, hidden / 8 / SUM_THREADS. Bytes: y once,
 * 2 * k + 2 a column. */
enum { SUM_THREADS = 128, SUM_SLOTS = 8 /* in flight */ };
KERNEL_OF(moe_sum, gpu_combine_args, SUM_THREADS, 8) {
    gpu_i64 i = blockIdx.x, c = ((gpu_i64)blockIdx.y * SUM_THREADS + threadIdx.x) * 8;
    if (c >= a.hidden) return;
    int large = *a.large;
    const uint4 *y = (const uint4 *)((const gpu_bf16 *)a.y + i * a.k * a.hidden + c);
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int s0 = 0; s0 < a.k; s0 += SUM_SLOTS) {
        uint4 v[SUM_SLOTS]; /* read before it is known whether the slot counts: no load waits for another */
        int id[SUM_SLOTS];
        float w[SUM_SLOTS];
#pragma unroll
        for (int s = 0; s < SUM_SLOTS; s++) {
            id[s] = -1;
            if (s0 + s < a.k) {
                v[s] = y[(s0 + s) * (a.hidden / 8)];
                id[s] = a.ids[i * a.k + s0 + s], w[s] = a.weights[i * a.k + s0 + s];
            }
        }
#pragma unroll
        for (int s = 0; s < SUM_SLOTS; s++) {
            if (id[s] < 0 || id[s] >= a.n_experts) continue;
            const gpu_u32 two[4] = {v[s].x, v[s].y, v[s].z, v[s].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[2 * j] = fmaf(w[s], large ? low_f32(two[j]) : low_half(two[j]), sum[2 * j]);
                sum[2 * j + 1] = fmaf(w[s], large ? high_f32(two[j]) : high_half(two[j]), sum[2 * j + 1]);
            }
        }
    }
    if (a.shared) {
        uint4 v = *(const uint4 *)(a.shared + i * a.hidden + c);
        const gpu_u32 two[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) sum[2 * j] += low_f32(two[j]), sum[2 * j + 1] += high_f32(two[j]);
    }
    store16(a.out + i * a.hidden + c, pair_bf16(sum[0], sum[1]), pair_bf16(sum[2], sum[3]), pair_bf16(sum[4], sum[5]), pair_bf16(sum[6], sum[7]));
}
