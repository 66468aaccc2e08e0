/* kernels/gpu/heads/heads.cu: attention with keys and values for every KV head, of a Llama-type draft: its KV rows, and
 * decoding.
 *
 * heads_decode: 4 dim flop a row, head and cached token; bytes: 2 dim cells of the cache a KV head and token, once for
 * every HEADS heads that read it, which is what bounds it up to about seven heads. A row is cut by its own length into
 * at most `splits` pieces of whole pages; a block has one piece of one row and KV head. In it a warp takes AT_ONCE
 * tokens of a page at a time, LANES lanes a token, 8 columns a lane (16 bytes of bf16), and keeps a running maximum
 * (Milakov and Gimelshein 2018, arXiv:1805.02867) for each of its groups of lanes: they meet at the end only. Pieces
 * meet in heads_combine; a row of one piece is finished by its block.
 *
 * Positions that a row may not see are not read: a NaN there must not reach it. A NaN among the scores is passed over
 * by the maximum, but its weight is NaN. */
#include "kernels/gpu/device/softmax.cuh"
#include "kernels/gpu/rows/rows.cuh"

enum { STATE = 4 /* floats in front of a part's sums: maximum, sum of weights, two unused */ };

/* k's 8 columns from c on and their partners, half a head further, of one KV head, and v's. One thread a piece of the
 * lower half. Grid: rows, pieces. */
KERNEL(heads_write, gpu_heads_write_args) {
    const gpu_i64 i = blockIdx.x, row = a.kv_heads * a.dim, half = a.dim / 2, slot = a.slots[i];
    const gpu_i64 piece = (gpu_i64)blockIdx.y * GPU_THREADS + threadIdx.x, j = piece * PIECE % half;
    const gpu_i64 c = piece * PIECE / half * a.dim + j, to = slot * 2 * row + c;
    if (slot < 0 || c >= row) return; /* another rank's; no piece */
    const float *cs = a.table + i * a.dim + 2 * j;
    float low[PIECE], high[PIECE], x[PIECE], y[PIECE];
    unpack(*(const uint4 *)(a.k + i * row + c), low);
    unpack(*(const uint4 *)(a.k + i * row + c + half), high);
#pragma unroll
    for (int k = 0; k < PIECE; k += 2) {
        float4 t = *(const float4 *)(cs + 2 * k);
        x[k] = low[k] * t.x - high[k] * t.y, y[k] = low[k] * t.y + high[k] * t.x;
        x[k + 1] = low[k + 1] * t.z - high[k + 1] * t.w, y[k + 1] = low[k + 1] * t.w + high[k + 1] * t.z;
    }
    kv_set_piece(a.kv, a.kv_type, to, x);
    kv_set_piece(a.kv, a.kv_type, to + half, y);
    unpack(*(const uint4 *)(a.v + i * row + c), low);
    unpack(*(const uint4 *)(a.v + i * row + c + half), high);
    kv_set_piece(a.kv, a.kv_type, to + row, low);
    kv_set_piece(a.kv, a.kv_type, to + row + half, high);
}

/* ---- 8 cells of the cache ---- */

template <int TYPE> struct cells {
    enum { WORDS = TYPE == GPU_F32 ? 8 : TYPE == GPU_BF16 ? 4 : 2 };
    gpu_u32 w[WORDS];
};

/* Cells [at, at + 8), or zeros. Nobody reads them again soon: they may leave the caches first. */
template <int TYPE> static __device__ inline void cells_load(cells<TYPE> &to, const void *kv, gpu_i64 at, bool here) {
    const gpu_u32 *from = (const gpu_u32 *)kv + at / 8 * cells<TYPE>::WORDS;
    uint4 u[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (TYPE == GPU_FP8) {
        uint2 two = {0, 0};
        if (here) two = __ldcs((const uint2 *)from);
        u[0].x = two.x, u[0].y = two.y;
    } else if (here) {
        u[0] = __ldcs((const uint4 *)from);
        if (TYPE == GPU_F32) u[1] = __ldcs((const uint4 *)from + 1);
    }
    const gpu_u32 all[8] = {u[0].x, u[0].y, u[0].z, u[0].w, u[1].x, u[1].y, u[1].z, u[1].w};
#pragma unroll
    for (int i = 0; i < cells<TYPE>::WORDS; i++) to.w[i] = all[i];
}

template <int TYPE> static __device__ inline void cells_unpack(const cells<TYPE> &from, float v[PIECE]) {
#pragma unroll
    for (int i = 0; i < cells<TYPE>::WORDS; i++) {
        if (TYPE == GPU_F32) v[i] = bits_f32(from.w[i]);
        if (TYPE == GPU_BF16) v[2 * i] = low_f32(from.w[i]), v[2 * i + 1] = high_f32(from.w[i]);
        if (TYPE == GPU_FP8) {
            gpu_u32 low, high;
            fp8_halves(from.w[i], low, high);
            v[4 * i] = low_half(low), v[4 * i + 1] = high_half(low);
            v[4 * i + 2] = low_half(high), v[4 * i + 3] = high_half(high);
        }
    }
}

/* ---- a softmax-weighted sum in the making: base 2; `weight` is what sums that were made under a maximum m are to be
 * multiplied with under the maximum `top`, 0 where there was nothing yet ---- */

static __device__ inline float weight_under(float m, float top) { return power2(m - (top == -INFINITY ? 0.0f : top)); }

typedef struct {
    float m, l, o[PIECE];
} running;

static __device__ inline void running_begin(running &r) {
    r.m = -INFINITY, r.l = 0;
#pragma unroll
    for (int k = 0; k < PIECE; k++) r.o[k] = 0;
}
static __device__ inline void running_raise(running &r, float top) {
    const float shrink = weight_under(r.m, top);
    r.m = top, r.l *= shrink;
#pragma unroll
    for (int k = 0; k < PIECE; k++) r.o[k] *= shrink;
}
/* Adds what the lanes d further have. */
static __device__ inline void running_meet(running &r, int d) {
    running_raise(r, fmaxf(r.m, __shfl_xor_sync(~0u, r.m, d)));
    r.l += __shfl_xor_sync(~0u, r.l, d);
#pragma unroll
    for (int k = 0; k < PIECE; k++) r.o[k] += __shfl_xor_sync(~0u, r.o[k], d);
}

/* ---- decoding ---- */

typedef struct {
    int pages, count; /* of a piece; pieces */
} heads_cut;

static __device__ inline heads_cut heads_cut_of(const gpu_heads_decode_args &a, int len) {
    const int pages = len / GPU_PAGE + (len % GPU_PAGE > 0), even = (pages + a.splits - 1) / a.splits;
    const int each = even > a.min_pages ? even : a.min_pages;
    return {each, (pages + each - 1) / each};
}

static __device__ inline float *part_of(const gpu_heads_decode_args &a, gpu_i64 cell, int piece) {
    return a.part + (cell * a.splits + piece) * (a.dim + STATE);
}

/* The lane's columns from c on of `count` heads, rotated and times scale2. */
template <int HEADS>
static __device__ inline void load_queries(const gpu_heads_decode_args &a, gpu_i64 row, gpu_i64 head, int count, int c,
                                           float q[HEADS][PIECE]) {
    const int half = (int)a.dim / 2, other = c < half ? c + half : c - half;
    const float *cs = a.table + row * a.dim + 2 * (c < half ? c : other), sign = c < half ? -a.scale2 : a.scale2;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float x[PIECE], y[PIECE];
        const gpu_bf16 *from = a.q + (row * a.heads + head + h) * a.dim;
        const bool here = h < count && c < a.dim;
        const uint4 zero = {0, 0, 0, 0};
        unpack(here ? *(const uint4 *)(from + c) : zero, x);
        unpack(here ? *(const uint4 *)(from + other) : zero, y);
#pragma unroll
        for (int k = 0; k < PIECE; k++) q[h][k] = here ? x[k] * cs[2 * k] * a.scale2 + y[k] * cs[2 * k + 1] * sign : 0;
    }
}

/* Scores of AT tokens, `step` apart, by the lanes of a group become weights; r is shrunk to their maximum. `left`: that
 * the first and those behind it are. */
template <int LANES, int AT>
static __device__ inline void scores_to_weights(float s[AT], int left, int step, running &r) {
    float top = r.m;
#pragma unroll
    for (int u = 0; u < AT; u++) {
#pragma unroll
        for (int d = LANES / 2; d; d >>= 1) s[u] += __shfl_xor_sync(~0u, s[u], d);
        if (u * step >= left) s[u] = -INFINITY;
        top = fmaxf(top, s[u]);
    }
    running_raise(r, top);
#pragma unroll
    for (int u = 0; u < AT; u++) {
        s[u] = weight_under(s[u], top);
        r.l += s[u];
    }
}

/* The n tokens of a piece by all warps; r: of each of the warp's groups of lanes. pages: the piece's; first: the lane's
 * column among a token's cells. */
template <int TYPE, int LANES, int HEADS>
static __device__ inline void walk(const gpu_heads_decode_args &a, const int *pages, int n, gpu_i64 first, int count,
                                   bool here, const float q[HEADS][PIECE], running r[HEADS]) {
    enum {
        GROUPS = 32 / LANES,
        AT = (TYPE == GPU_FP8 ? 8 : 4) / (HEADS > 1 ? 2 : 1),
        AT_ONCE = AT * GROUPS,
        STEP = GPU_WARPS * AT_ONCE
    };
    const gpu_i64 row = a.kv_heads * a.dim;
    const int group = threadIdx.x % 32 / LANES;
    int t = (int)threadIdx.x / 32 * AT_ONCE, page = t < n ? pages[t / GPU_PAGE] : 0;
    for (; t < n; t += STEP) {
        cells<TYPE> k[AT], v[AT];
        const gpu_i64 at = ((gpu_i64)page * GPU_PAGE + t % GPU_PAGE + group) * 2 * row + first;
#pragma unroll
        for (int u = 0; u < AT; u++)
            cells_load<TYPE>(k[u], a.kv, at + u * GROUPS * 2 * row, here && t + u * GROUPS + group < n);
#pragma unroll
        for (int u = 0; u < AT; u++)
            cells_load<TYPE>(v[u], a.kv, at + row + u * GROUPS * 2 * row, here && t + u * GROUPS + group < n);
        if (t + STEP < n) page = pages[(t + STEP) / GPU_PAGE];
        float s[HEADS][AT], x[PIECE];
#pragma unroll
        for (int u = 0; u < AT; u++) {
            cells_unpack<TYPE>(k[u], x);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                s[h][u] = 0;
#pragma unroll
                for (int c = 0; c < PIECE; c++) s[h][u] = fmaf(q[h][c], x[c], s[h][u]);
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (h < count) scores_to_weights<LANES, AT>(s[h], n - t - group, GROUPS, r[h]);
#pragma unroll
        for (int u = 0; u < AT; u++) {
            cells_unpack<TYPE>(v[u], x);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
#pragma unroll
                for (int c = 0; c < PIECE; c++) r[h].o[c] = fmaf(s[h][u], x[c], r[h].o[c]);
        }
    }
}

/* What the warps of a block have of one head meets in shared memory: the whole result, or a part. */
static __device__ inline void store_head(const gpu_heads_decode_args &a, const running &r, int c, bool mine,
                                         gpu_i64 cell, int piece, int pieces) {
    __shared__ float tops[GPU_WARPS], weights[GPU_WARPS], sums[GPU_WARPS][GPU_HEADS_DIM];
    const int warp = threadIdx.x / 32, column = threadIdx.x;
    __syncthreads(); /* the head before has been read */
    if (mine)
#pragma unroll
        for (int k = 0; k < PIECE; k++) sums[warp][c + k] = r.o[k];
    if (threadIdx.x % 32 == 0) tops[warp] = r.m, weights[warp] = r.l;
    __syncthreads();
    if (column >= a.dim) return;
    float top = tops[0], l = 0, o = 0;
    for (int w = 1; w < GPU_WARPS; w++) top = fmaxf(top, tops[w]);
    for (int w = 0; w < GPU_WARPS; w++) {
        const float weight = weight_under(tops[w], top);
        l = fmaf(weights[w], weight, l), o = fmaf(sums[w][column], weight, o);
    }
    if (pieces == 1) {
        a.out[cell * a.dim + column] = bf16_of(o / l);
        return;
    }
    float *part = part_of(a, cell, piece);
    part[STATE + column] = o;
    if (column == 0) part[0] = top, part[1] = l;
}

/* Grid: rows, KV heads and groups of HEADS heads; pieces. */
template <int TYPE, int LANES, int HEADS> static __device__ inline void decode_piece(const gpu_heads_decode_args &a) {
    const gpu_i64 row = blockIdx.x / (a.groups * a.kv_heads), kv_head = blockIdx.x / a.groups % a.kv_heads,
                  each = a.heads / a.kv_heads, first = blockIdx.x % a.groups * HEADS, head = kv_head * each + first;
    const int count = (int)min64(each - first, HEADS), c = threadIdx.x % LANES * PIECE, piece = (int)blockIdx.y;
    const int len = a.kv_len[row];
    const heads_cut cut = heads_cut_of(a, len);
    if (piece >= cut.count) return;
    const int page = piece * cut.pages, n = (int)min64(len - (gpu_i64)page * GPU_PAGE, (gpu_i64)cut.pages * GPU_PAGE);
    float q[HEADS][PIECE];
    running r[HEADS];
    load_queries<HEADS>(a, row, head, count, c, q);
#pragma unroll
    for (int h = 0; h < HEADS; h++) running_begin(r[h]);
    walk<TYPE, LANES, HEADS>(a, a.pages + row * a.pages_stride + page, n, kv_head * a.dim + c, count, c < a.dim, q, r);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= count) break;
#pragma unroll
        for (int d = LANES; d < 32; d <<= 1) running_meet(r[h], d);
        store_head(a, r[h], c, threadIdx.x % 32 < LANES && c < a.dim, row * a.heads + head + h, piece, cut.count);
    }
}

/* By the head's width: as many lanes a token as have a piece of it, to a power of two. */
template <int TYPE, int HEADS> static __device__ inline void decode_any(const gpu_heads_decode_args &a) {
    if (a.dim <= 64)
        decode_piece<TYPE, 8, HEADS>(a);
    else if (a.dim <= 128)
        decode_piece<TYPE, 16, HEADS>(a);
    else
        decode_piece<TYPE, 32, HEADS>(a);
}

KERNEL(heads_decode_f32, gpu_heads_decode_args) { decode_any<GPU_F32, GPU_HEADS_TOGETHER>(a); }
KERNEL_OF(heads_decode_bf16_one, gpu_heads_decode_args, GPU_THREADS, 3) { decode_any<GPU_BF16, 1>(a); }
KERNEL(heads_decode_bf16, gpu_heads_decode_args) { decode_any<GPU_BF16, GPU_HEADS_TOGETHER>(a); }
KERNEL_OF(heads_decode_fp8_one, gpu_heads_decode_args, GPU_THREADS, 2) { decode_any<GPU_FP8, 1>(a); }
KERNEL(heads_decode_fp8, gpu_heads_decode_args) { decode_any<GPU_FP8, GPU_HEADS_TOGETHER>(a); }

/* The pieces of a row and head, in order, into one. Grid: rows and heads. A warp takes every GPU_WARPS-th piece; at
 * most GPU_THREADS pieces. */
KERNEL(heads_combine, gpu_heads_decode_args) {
    __shared__ float weight[GPU_THREADS], tops[GPU_WARPS], sums[GPU_WARPS][GPU_HEADS_DIM];
    const gpu_i64 cell = blockIdx.x;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const heads_cut cut = heads_cut_of(a, a.kv_len[cell / a.heads]);
    if (cut.count <= 1) return; /* it is finished */
    float m = -INFINITY, l = 0, o[GPU_HEADS_DIM / 32];
    if (thread < cut.count) m = part_of(a, cell, thread)[0], l = part_of(a, cell, thread)[1];
    float top = m;
#pragma unroll
    for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    if (lane == 0) tops[warp] = top;
    __syncthreads();
    for (int w = 0; w < GPU_WARPS; w++) top = fmaxf(top, tops[w]);
    weight[thread] = thread < cut.count ? weight_under(m, top) : 0;
    l = block_sum(thread < cut.count ? l * weight[thread] : 0.0f);
#pragma unroll
    for (int k = 0; k < GPU_HEADS_DIM / 32; k++) o[k] = 0;
#pragma unroll 4
    for (int s = warp; s < cut.count; s += GPU_WARPS) {
        const float *part = part_of(a, cell, s) + STATE;
#pragma unroll
        for (int k = 0; k < GPU_HEADS_DIM / 32; k++)
            if (lane + 32 * k < a.dim) o[k] = fmaf(part[lane + 32 * k], weight[s], o[k]);
    }
#pragma unroll
    for (int k = 0; k < GPU_HEADS_DIM / 32; k++) sums[warp][lane + 32 * k] = o[k];
    __syncthreads();
    if (thread >= a.dim) return;
    float sum = 0;
    for (int w = 0; w < GPU_WARPS; w++) sum += sums[w][thread];
    a.out[cell * a.dim + thread] = bf16_of(sum / l);
}
