/* kernels/gpu/mla/combine.cu: the pieces of few rows that were cut (split_kv.cuh), in order, into one, by a launch of
 * its own.
 *
 * out = sum_s w_s o_s / sum_s w_s l_s, w_s = 2^(m_s - max m). Bytes: 2 KiB a head and piece, out of the second-level
 * cache, where the pieces were just written. For --deterministic; and for 64 heads of very few rows all
 * multiprocessors are faster at it, even after a launch, than those that have a piece: a block has a quarter of the
 * latents of a row and head, its eight warps take turns, and their sums meet in shared memory. */
#include "kernels/gpu/mla/split_kv.cuh"

typedef struct {
    int from, count; /* the row's pieces */
} join_pieces;

static __device__ inline join_pieces combine_pieces_of(const gpu_decode_args &a, gpu_i64 row) {
    const decode_line l = line_of<true>(a);
    int before = 0;
    for (gpu_i64 i = threadIdx.x % 32; i < row; i += 32) before += line_units(a, l, pages_of(a, i));
    for (int d = 16; d; d >>= 1) before += __shfl_xor_sync(~0u, before, d);
    if (a.deterministic) return {before, units_of(a, pages_of(a, row))};
    int from = before / l.each;
    return {from, (before + pages_of(a, row) - 1) / l.each - from + 1};
}

static __device__ inline gpu_i64 piece_slot(const gpu_decode_args &a, join_pieces p, int k) {
    return a.deterministic ? p.from + k : part_slot(p.from + k, k == 0);
}
/* Latents 128 quarter + 4 lane.. of piece k. */
static __device__ inline float4 piece_sums(const gpu_decode_args &a, join_pieces p, int k, gpu_i64 h, int quarter) {
    return ((const float4 *)part_sums(a, piece_slot(a, p, k), h))[quarter * 32 + threadIdx.x % 32];
}
static __device__ inline void combine_store(const gpu_decode_args &a, gpu_i64 row, gpu_i64 h, int quarter, float4 o,
                                            float l) {
    uint2 out = {pair_bf16(o.x / l, o.y / l), pair_bf16(o.z / l, o.w / l)};
    ((uint2 *)(a.out + (row * a.heads + h) * KV_LATENT))[quarter * 32 + threadIdx.x % 32] = out;
}

/* Grid: rows, quarters of all heads. At most GPU_THREADS pieces. */
KERNEL(mla_combine, gpu_decode_args) {
    enum { AT_ONCE = 17 /* of 8 warps: 132 pieces */ };
    __shared__ float weight[GPU_THREADS], tops[GPU_WARPS];
    __shared__ float4 part[GPU_THREADS];
    int thread = threadIdx.x, warp = thread / 32, quarter = blockIdx.y % 4;
    gpu_i64 row = blockIdx.x, h = blockIdx.y / 4;
    const join_pieces p = combine_pieces_of(a, row);
    if (p.count <= 1) return; /* one: it is finished; none: a row of no token */
    float4 v[AT_ONCE], o = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        v[i] = warp + i * GPU_WARPS < p.count ? piece_sums(a, p, warp + i * GPU_WARPS, h, quarter) : o;
    float m = -INFINITY, l = 0;
    if (thread < p.count) {
        const float *state = part_state(a, piece_slot(a, p, thread), h);
        m = state[0], l = state[1];
    }
    float top = warp_max(m);
    if (thread % 32 == 0) tops[warp] = top;
    __syncthreads();
    top = tops[0];
    for (int w = 1; w < GPU_WARPS; w++) top = max_nan(top, tops[w]);
    weight[thread] = thread < p.count ? exp2f(m - top) : 0.0f;
    l = block_sum(thread < p.count ? l * weight[thread] : 0.0f);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (warp + i * GPU_WARPS < p.count) cut_add_piece(o, v[i], weight[warp + i * GPU_WARPS]);
    for (int k = warp + AT_ONCE * GPU_WARPS; k < p.count; k += GPU_WARPS)
        cut_add_piece(o, piece_sums(a, p, k, h, quarter), weight[k]);
    part[thread] = o;
    __syncthreads();
    if (warp) return;
    for (int w = 1; w < GPU_WARPS; w++) cut_add_piece(o, part[w * 32 + thread], 1.0f);
    if (quarter == 0 && thread == 0) lse_store(a, row, h, top, l);
    combine_store(a, row, h, quarter, o, l);
}
