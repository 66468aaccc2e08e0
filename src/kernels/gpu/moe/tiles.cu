/* kernels/gpu/moe/tiles.cu: the tiles of tokens that grouped_int4.cu's blocks go through, and the sum over a token's
 * slots, with the norm behind it.
 *
 * moe_tiles: 4 bytes an expert, 16 a tile; a launch's latency. Sums, of a token's column: 2 k bytes of y, 2 of the
 * shared expert and 2 of out (with the norm 2 of out and 4 of the residual stream), 2 k flop: bound by the bytes, of
 * which y's are mostly in the second-level cache. */
#include "kernels/gpu/moe/fp16_range.cuh"
#include "kernels/gpu/rows/rows.cuh"

/* One block. An expert's tokens are cut into as few tiles of at most `most` as they need, equal but for a multiple
 * of 8; expert by expert {expert, first place in the list, tokens, first row of h}. An expert's rows of h begin at a
 * multiple of 8. */
KERNEL(moe_tiles, gpu_moe_tiles_args) {
    __shared__ int2 sums[GPU_WARPS];
    int each = (a.experts + GPU_THREADS - 1) / GPU_THREADS, from = threadIdx.x * each,
        end = from + each < a.experts ? from + each : a.experts;
    int2 own = {0, 0}; /* tiles, rows of h */
    for (int e = from; e < end; e++) {
        int n = a.start[e + 1] - a.start[e];
        own.x += (n + a.tile_rows - 1) / a.tile_rows, own.y += (n + 7) / 8 * 8;
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int2 at = own;
    for (int d = 1; d < 32; d *= 2) {
        int2 o = {__shfl_sync(~0u, at.x, lane >= d ? lane - d : lane),
                  __shfl_sync(~0u, at.y, lane >= d ? lane - d : lane)};
        if (lane >= d) at.x += o.x, at.y += o.y;
    }
    if (lane == 31) sums[warp] = at;
    __syncthreads();
    at.x -= own.x, at.y -= own.y;
    for (int w = 0; w < warp; w++) at.x += sums[w].x, at.y += sums[w].y;
    for (int e = from; e < end; e++) {
        int first = a.start[e], n = a.start[e + 1] - first, tiles = (n + a.tile_rows - 1) / a.tile_rows;
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

/* sum = the slots of y in order, weighted, then the shared expert: columns [c, c + 8) of token i. CLOSE: its ids and
 * weights are in shared memory, and take no registers while y is on its way; at most SUM_SLOTS. */
enum { SUM_SLOTS = GPU_SUM_SLOTS /* in flight */ };
template <bool CLOSE>
static __device__ inline void sum_slots(const gpu_combine_args &a, gpu_i64 i, gpu_i64 c, const int *ids,
                                        const float *weights, float sum[8]) {
    const uint4 *y = (const uint4 *)((const gpu_bf16 *)a.y + i * a.k * a.hidden + c);
    uint4 also = {0, 0, 0, 0};
    if (a.shared) also = *(const uint4 *)(a.shared + i * a.hidden + c);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] = 0;
    for (int s0 = 0; s0 < (CLOSE ? (gpu_i64)SUM_SLOTS : a.k); s0 += SUM_SLOTS) {
        uint4 v[SUM_SLOTS]; /* read before it is known whether the slot counts: no load waits for another */
        int id[SUM_SLOTS];
        float w[SUM_SLOTS];
#pragma unroll
        for (int s = 0; s < SUM_SLOTS; s++) {
            id[s] = -1;
            if (s0 + s < a.k) {
                v[s] = *y, y += a.hidden / 8;
                if (!CLOSE) id[s] = ids[s0 + s], w[s] = weights[s0 + s];
            }
        }
#pragma unroll
        for (int s = 0; s < SUM_SLOTS; s++) {
            if (CLOSE && s0 + s < a.k) id[s] = ids[s0 + s], w[s] = weights[s0 + s];
            if (id[s] < 0 || id[s] >= a.n_experts) continue;
            const gpu_u32 two[4] = {v[s].x, v[s].y, v[s].z, v[s].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[2 * j] = fmaf(w[s], low_half(two[j]), sum[2 * j]);
                sum[2 * j + 1] = fmaf(w[s], high_half(two[j]), sum[2 * j + 1]);
            }
        }
    }
    const float unit = y_unit(*a.y_amax);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] *= unit;
    if (a.shared) {
        float v[PIECE];
        unpack(also, v);
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] += v[j];
    }
}

/* out = the sum, 8 columns a thread. Grid: tokens, hidden / 8 / SUM_THREADS. Bytes: y once, 2 * k + 2 a column. */
enum { SUM_THREADS = 128 };
KERNEL_OF(moe_sum, gpu_combine_args, SUM_THREADS, 8) {
    gpu_i64 i = blockIdx.x, c = ((gpu_i64)blockIdx.y * SUM_THREADS + threadIdx.x) * 8;
    if (c >= a.hidden) return;
    const gpu_i64 part = a.parts.rows ? i / a.parts.rows : 0;
    gpu_bf16 *out = a.parts.rows ? a.parts.at[part] + (i - part * a.parts.rows) * a.hidden : a.out + i * a.hidden;
    float sum[8];
    sum_slots<false>(a, i, c, a.ids + i * a.k, a.weights + i * a.k, sum);
    store16(out + c, pair_bf16(sum[0], sum[1]), pair_bf16(sum[2], sum[3]), pair_bf16(sum[4], sum[5]),
            pair_bf16(sum[6], sum[7]));
}

/* The residual stream += the sum, and its norm: a row a block, in registers, rounded where two launches would round.
 * Bytes: 2 * k + 8 a column. */
KERNEL_OF(moe_sum_norm, gpu_combine_args, GPU_SUM_THREADS, 4) {
    const gpu_norm_args &n = a.norm;
    gpu_i64 i = blockIdx.x;
    gpu_bf16 *out = n.out + i * n.out_stride;
    __shared__ uint4 row[GPU_SUM_PIECES * GPU_SUM_THREADS]; /* a thread reads what it wrote */
    __shared__ int ids[GPU_SUM_SLOTS];
    __shared__ float weights[GPU_SUM_SLOTS];
    float squares = 0, v[PIECE];
    bool bad = false;
    if (threadIdx.x < a.k)
        ids[threadIdx.x] = a.ids[i * a.k + threadIdx.x], weights[threadIdx.x] = a.weights[i * a.k + threadIdx.x];
    __syncthreads();
#pragma unroll 1
    for (int p = threadIdx.x; p * PIECE < a.hidden; p += GPU_SUM_THREADS) {
        gpu_i64 c = p * PIECE;
        float sum[PIECE];
        uint4 x = *(const uint4 *)(n.x + i * n.x_stride + c);
        sum_slots<true>(a, i, c, ids, weights, sum);
        unpack(x, v);
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[k] += f32_of(bf16_of(sum[k]));
        x = pack(v);
        unpack(x, v);
#pragma unroll
        for (int k = 0; k < PIECE; k++) squares = fmaf(v[k], v[k], squares);
        *(uint4 *)(n.sum + i * n.x_stride + c) = row[p] = x;
        bad |= has_bad(x);
    }
    squares = block_sum_of<GPU_SUM_THREADS / 32>(squares);
    float r = rsqrtf(squares / (float)n.dim + n.eps);
#pragma unroll 2
    for (int p = threadIdx.x; p * PIECE < a.hidden; p += GPU_SUM_THREADS) {
        gpu_i64 c = p * PIECE;
        float w[PIECE];
        row_load_weight(n.weight, c, true, w);
        unpack(row[p], v);
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[k] = v[k] * r * w[k];
        *(uint4 *)(out + c) = pack(v);
    }
    mark_row(n.bad, n.mark, i, squares, bad);
}

/* The same of y in float32 (decode_int4.cu): 8 columns a thread in two pieces. All that decode_int4.cu does not
 * write is on its way before that has ended (it began when everything before it was there). */
KERNEL_PDL(moe_combine_row, gpu_combine_args, GPU_ROW_THREADS, 1) {
    enum { FOUR = 4, PIECES = 2, AT_ONCE = 8 };
    const gpu_norm_args &n = a.norm;
    __shared__ int ids[GPU_ROW_SLOTS];
    __shared__ float weights[GPU_ROW_SLOTS], each[GPU_ROW_THREADS / 32];
    int T = blockDim.x, hidden = (int)a.hidden, slots = (int)a.k, c[PIECES];
    gpu_i64 i = blockIdx.x;
    __shared__ float4 weight[PIECES][GPU_ROW_THREADS]; /* a thread reads what it wrote */
    uint2 x[PIECES], also[PIECES];
    float v[PIECES][FOUR], squares = 0;
    bool bad = false;
#pragma unroll
    for (int p = 0; p < PIECES; p++) { /* no branch around a load */
        c[p] = (p * T + threadIdx.x) * FOUR;
        int at = c[p] < hidden ? c[p] : 0;
        also[p] = {0, 0};
        weight[p][threadIdx.x] = *(const float4 *)(n.weight + at);
        x[p] = *(const uint2 *)(n.x + i * n.x_stride + at);
        if (a.shared) also[p] = *(const uint2 *)(a.shared + i * a.hidden + at);
    }
    if ((int)threadIdx.x < slots)
        ids[threadIdx.x] = a.ids[i * a.k + threadIdx.x], weights[threadIdx.x] = a.weights[i * a.k + threadIdx.x];
    __syncthreads();
    pdl_wait();
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const float *y = a.y + i * a.k * a.hidden + (c[p] < hidden ? c[p] : 0);
        float sum[FOUR] = {0, 0, 0, 0};
        for (int first = 0; first < slots; first += AT_ONCE) {
            float4 of[AT_ONCE];
#pragma unroll
            for (int s = 0; s < AT_ONCE; s++)
                of[s] = *(const float4 *)(y + (first + s < slots ? first + s : slots - 1) * hidden);
#pragma unroll
            for (int s = 0; s < AT_ONCE; s++) {
                if (first + s >= slots || ids[first + s] < 0 || ids[first + s] >= a.n_experts) continue;
                float w = weights[first + s];
                sum[0] = fmaf(w, of[s].x, sum[0]), sum[1] = fmaf(w, of[s].y, sum[1]), sum[2] = fmaf(w, of[s].z, sum[2]),
                sum[3] = fmaf(w, of[s].w, sum[3]);
            }
        }
        const float old[FOUR] = {low_f32(x[p].x), high_f32(x[p].x), low_f32(x[p].y), high_f32(x[p].y)};
        const float shared[FOUR] = {low_f32(also[p].x), high_f32(also[p].x), low_f32(also[p].y), high_f32(also[p].y)};
#pragma unroll
        for (int k = 0; k < FOUR; k++) {
            v[p][k] = f32_of(bf16_of(old[k] + f32_of(bf16_of(a.shared ? sum[k] + shared[k] : sum[k]))));
            if (c[p] < hidden) squares = fmaf(v[p][k], v[p][k], squares), bad |= v[p][k] - v[p][k] != 0.0f;
        }
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = squares;
    __syncthreads();
    squares = warp_sum((int)threadIdx.x % 32 < T / 32 ? each[threadIdx.x % 32] : 0);
    float r = rsqrtf(squares / (float)n.dim + n.eps);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        if (c[p] >= hidden) continue;
        const float4 u = weight[p][threadIdx.x];
        const float w[FOUR] = {u.x, u.y, u.z, u.w};
        *(uint2 *)(n.sum + i * n.x_stride + c[p]) = {pair_bf16(v[p][0], v[p][1]), pair_bf16(v[p][2], v[p][3])};
        *(uint2 *)(n.out + i * n.out_stride + c[p]) = {pair_bf16(v[p][0] * r * w[0], v[p][1] * r * w[1]),
                                                       pair_bf16(v[p][2] * r * w[2], v[p][3] * r * w[3])};
    }
    mark_row(n.bad, n.mark, i, squares, bad);
}
