/* kernels/gpu/mla/generic.cu: multi-head latent attention, absorbed (decode) and expanded (prefill), for widths,
 * weights and caches that the tensor cores' kernels (decode_*.cu, prefill.cu, absorb_q.cu) do not take.
 *
 * absorb_q: 2 nope latent flop a row and head; bytes: the keys' part of kv_b once for every GPU_TOKENS rows.
 * mla_decode: 2 (2 latent + rope) flop a row, head and cached token; bytes: latent + rope cells of the cache once
 * for every GPU_WARPS heads of a row; 4 (latent + 2) a head and split, written, and read by mla_merge. mla_prefill:
 * 2 (nope + rope + v_dim) flop a head and pair of row and key; bytes: as many a key and head, out of the
 * second-level cache, once for every GPU_WARPS rows.
 *
 * Both keep a running maximum (Milakov and Gimelshein 2018, arXiv:1805.02867) over tiles at absolute multiples of
 * their size, so the order of a row's sums depends on its own position alone. Positions that a row may not see are
 * not read: a NaN there must not reach it. */
#include "kernels/gpu/device/math.cuh"

enum {
    DECODE_TILE = 32,
    DECODE_COLS = 16 /* columns of the latent a lane owns: latent <= 512 */,
    PREFILL_COLS = 8 /* v_dim <= 256 */
};

/* out[i, h, c] = sum over d of q[i, h, d] kv_b[h (nope + v) + d, c], and the rotated part behind it. Grid: columns,
 * heads, groups of rows; a thread owns a column. */
KERNEL(absorb_q, gpu_absorb_args) {
    gpu_i64 c = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x, h = blockIdx.y;
    gpu_i64 head = a.nope + a.rope, width = a.latent + a.rope;
    for (gpu_i64 token = (gpu_i64)blockIdx.z * GPU_TOKENS; token < a.n; token += (gpu_i64)gridDim.z * GPU_TOKENS) {
        gpu_i64 count = min64(a.n - token, GPU_TOKENS);
        const gpu_bf16 *q = a.q + (token * a.heads + h) * head;
        gpu_bf16 *out = a.out + (token * a.heads + h) * width;
        if (c < a.latent) {
            float sum[GPU_TOKENS] = {0};
            for (gpu_i64 d = 0; d < a.nope; d++) {
                float w = weight_at(a.kv_b, h * (a.nope + a.v_dim) + d, c);
#pragma unroll
                for (int r = 0; r < GPU_TOKENS; r++)
                    if (r < count) sum[r] = fmaf(f32_of(q[r * a.heads * head + d]), w, sum[r]);
            }
#pragma unroll
            for (int r = 0; r < GPU_TOKENS; r++)
                if (r < count) out[r * a.heads * width + c] = bf16_of(sum[r]);
        }
        if (blockIdx.x == 0)
            for (gpu_i64 k = threadIdx.x; k < count * a.rope; k += GPU_THREADS) {
                gpu_i64 r = k / a.rope, j = k % a.rope;
                out[r * a.heads * width + a.latent + j] = q[r * a.heads * head + a.nope + j];
            }
    }
}

/* Grid: rows, groups of GPU_WARPS heads, splits of the context; a warp owns a head. A tile of the cache lies in shared
 * memory as float32 [DECODE_TILE, width + 4] (the 4 spread rows over the banks), before it the heads' queries [heads,
 * width]. A lane scores one token, then owns every 32nd column of the sum. Bytes: each row of the cache once for a
 * group of heads. */
KERNEL(mla_decode, gpu_decode_args) {
    SHARED_MEMORY(float4, shared);
    gpu_i64 i = blockIdx.x, width = a.latent + a.rope, stride = width + 4, len = a.kv_len[i];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    gpu_i64 h = (gpu_i64)blockIdx.y * GPU_WARPS + warp;
    gpu_i64 pages_each = (a.pages_stride + a.splits - 1) / a.splits;
    gpu_i64 from = blockIdx.z * pages_each * GPU_PAGE, to = from + pages_each * GPU_PAGE;
    if (to > len) to = len;
    if (from >= to) return; /* the same for the whole block */
    float *q = (float *)shared + warp * width, *tile = (float *)shared + GPU_WARPS * width;
    if (h < a.heads)
        for (gpu_i64 c = lane; c < width; c += 32) q[c] = f32_of(a.q[(i * a.heads + h) * width + c]);
    float o[DECODE_COLS], m = -INFINITY, l = 0;
#pragma unroll
    for (int k = 0; k < DECODE_COLS; k++) o[k] = 0;
    for (gpu_i64 t = from; t < to; t += DECODE_TILE) {
        int n = (int)min64(to - t, DECODE_TILE);
        gpu_i64 base = ((gpu_i64)a.pages[i * a.pages_stride + t / GPU_PAGE] * GPU_PAGE + t % GPU_PAGE) * width;
        __syncthreads();
        for (gpu_i64 k = threadIdx.x; k < n * width; k += GPU_THREADS)
            tile[k / width * stride + k % width] = kv_get(a.kv, a.kv_type, base + k);
        __syncthreads();
        if (h >= a.heads) continue;
        float score = -INFINITY;
        if (lane < n) {
            score = 0;
            for (gpu_i64 c = 0; c < width; c++) score = fmaf(q[c], tile[lane * stride + c], score);
            score *= a.scale;
        }
        float top = max_nan(m, warp_max(score)), shrink = l > 0 ? expf(m - top) : 0.0f;
        float p = lane < n ? expf(score - top) : 0.0f;
        l = l * shrink + warp_sum(p);
        m = top;
#pragma unroll
        for (int k = 0; k < DECODE_COLS; k++) o[k] *= shrink;
        for (int j = 0; j < n; j++) {
            float pj = __shfl_sync(~0u, p, j);
#pragma unroll
            for (int k = 0; k < DECODE_COLS; k++)
                if (lane + 32 * k < a.latent) o[k] = fmaf(pj, tile[j * stride + lane + 32 * k], o[k]);
        }
    }
    if (h >= a.heads) return;
    float *part = a.part + (((gpu_i64)i * a.heads + h) * a.splits + blockIdx.z) * (a.latent + 2);
#pragma unroll
    for (int k = 0; k < DECODE_COLS; k++)
        if (lane + 32 * k < a.latent) part[lane + 32 * k] = o[k];
    if (lane == 0) part[a.latent] = m, part[a.latent + 1] = l;
}

/* The splits of a row and head, in order, into one. Grid: rows, heads. */
KERNEL(mla_merge, gpu_decode_args) {
    gpu_i64 i = blockIdx.x, h = blockIdx.y, each = a.latent + 2;
    gpu_i64 pages_each = (a.pages_stride + a.splits - 1) / a.splits * GPU_PAGE,
            used = (a.kv_len[i] + pages_each - 1) / pages_each;
    const float *part = a.part + (i * a.heads + h) * a.splits * each;
    float m = -INFINITY, l = 0;
    for (gpu_i64 s = 0; s < used; s++) m = max_nan(m, part[s * each + a.latent]);
    for (gpu_i64 s = 0; s < used; s++) l += part[s * each + a.latent + 1] * expf(part[s * each + a.latent] - m);
    if (a.lse && threadIdx.x == 0) a.lse[i * a.heads + h] = m + logf(l); /* of no token: -infinity */
    for (gpu_i64 c = threadIdx.x; c < a.latent && used; c += GPU_THREADS) {
        float o = 0;
        for (gpu_i64 s = 0; s < used; s++) o = fmaf(part[s * each + c], expf(part[s * each + a.latent] - m), o);
        a.out[(i * a.heads + h) * a.latent + c] = bf16_of(o / l);
    }
}

/* Rows [from, from + tokens) of a sequence out of its pages. One block a token. */
KERNEL(gather_kv, gpu_gather_kv_args) {
    gpu_i64 j = blockIdx.x, at = a.from + j, width = a.latent + a.rope;
    gpu_i64 base = ((gpu_i64)a.pages[at / GPU_PAGE] * GPU_PAGE + at % GPU_PAGE) * width;
    for (gpu_i64 c = threadIdx.x; c < width; c += GPU_THREADS) {
        gpu_bf16 v = bf16_of(kv_get(a.kv, a.kv_type, base + c));
        if (c < a.latent)
            a.latent_rows[j * a.latent + c] = v;
        else
            a.rope_rows[j * a.rope + c - a.latent] = v;
    }
}

/* Grid: groups of GPU_WARPS queries, heads; a warp owns a query. Keys [64, nope + rope + 2] and values [64, v_dim]
 * of a page lie in shared memory, bf16, after the queries, float32 [GPU_WARPS, nope + rope]. A lane scores two keys,
 * then owns every 32nd column. What is unfinished goes on in a.state with the next tile. */
KERNEL(mla_prefill, gpu_prefill_args) {
    SHARED_MEMORY(float4, shared);
    gpu_i64 dim = a.nope + a.rope, key_stride = dim + 2, rows = a.nope + a.v_dim, h = blockIdx.y;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    gpu_i64 first = (gpu_i64)blockIdx.x * GPU_WARPS, i = first + warp, block_end = min64(first + GPU_WARPS, a.n);
    float *q = (float *)shared + warp * dim, *prob = (float *)shared + GPU_WARPS * dim + warp * GPU_PAGE;
    gpu_bf16 *keys = (gpu_bf16 *)((float *)shared + GPU_WARPS * (dim + GPU_PAGE)),
             *values = keys + GPU_PAGE * key_stride;
    bool mine = i < a.n;
    float *state = a.state + (i * a.heads + h) * (a.v_dim + 2), o[PREFILL_COLS], m = -INFINITY, l = 0;
#pragma unroll
    for (int k = 0; k < PREFILL_COLS; k++)
        o[k] = mine && !a.first && lane + 32 * k < a.v_dim ? state[lane + 32 * k] : 0.0f;
    if (mine && !a.first) m = state[a.v_dim], l = state[a.v_dim + 1];
    if (mine)
        for (gpu_i64 c = lane; c < dim; c += 32) q[c] = f32_of(a.q[(i * a.heads + h) * dim + c]);
    for (gpu_i64 t = 0; t < a.tokens && a.from + t < a.pos0 + block_end; t += GPU_PAGE) {
        gpu_i64 here = min64(a.tokens - t, GPU_PAGE);
        __syncthreads();
        for (gpu_i64 k = threadIdx.x; k < here * dim; k += GPU_THREADS) {
            gpu_i64 j = k / dim, c = k % dim;
            keys[j * key_stride + c] = c < a.nope ? a.expanded[((t + j) * a.heads + h) * rows + c]
                                                  : a.rope_rows[(t + j) * a.rope + c - a.nope];
        }
        for (gpu_i64 k = threadIdx.x; k < here * a.v_dim; k += GPU_THREADS)
            values[k] = a.expanded[((t + k / a.v_dim) * a.heads + h) * rows + a.nope + k % a.v_dim];
        __syncthreads();
        gpu_i64 seen = a.pos0 + i + 1 - (a.from + t); /* causal */
        int n = (int)min64(seen, here);
        if (!mine || n <= 0) continue;
        float score[2], best = -INFINITY, sum = 0;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int j = lane + 32 * k;
            score[k] = -INFINITY;
            if (j >= n) continue;
            float s = 0;
            for (gpu_i64 c = 0; c < dim; c++) s = fmaf(q[c], f32_of(keys[j * key_stride + c]), s);
            score[k] = s * a.scale;
            best = max_nan(best, score[k]);
        }
        float top = max_nan(m, warp_max(best)), shrink = l > 0 ? expf(m - top) : 0.0f;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float p = lane + 32 * k < n ? expf(score[k] - top) : 0.0f;
            prob[lane + 32 * k] = p;
            sum += p;
        }
        __syncwarp();
        l = l * shrink + warp_sum(sum);
        m = top;
#pragma unroll
        for (int k = 0; k < PREFILL_COLS; k++) o[k] *= shrink;
        for (int j = 0; j < n; j++) {
            float p = prob[j];
#pragma unroll
            for (int k = 0; k < PREFILL_COLS; k++)
                if (lane + 32 * k < a.v_dim) o[k] = fmaf(p, f32_of(values[j * a.v_dim + lane + 32 * k]), o[k]);
        }
        __syncwarp();
    }
    if (!mine) return;
#pragma unroll
    for (int k = 0; k < PREFILL_COLS; k++) {
        gpu_i64 c = lane + 32 * k;
        if (c >= a.v_dim) continue;
        if (a.last)
            a.out[(i * a.heads + h) * a.v_dim + c] = bf16_of(o[k] / l);
        else
            state[c] = o[k];
    }
    if (!a.last && lane == 0) state[a.v_dim] = m, state[a.v_dim + 1] = l;
}
