/* kernels/gpu/comm/context_parallel.cu: what ranks exchange that each have a share of the KV cache's pages
 * (kernels/context_parallel.h).
 *
 * Here nobody sends: a rank says where its rows lie, and the others read them there, over the links, into registers or
 * to where they are wanted. So bytes travel once and need no room on the way, and what is merged never lies in memory
 * again. A block tells the blocks of its number and waits for theirs; what a rank shows was written by its launches
 * before this one. It may write there again once it has gone through another exchange of everybody's, a sum, which all
 * enter behind this launch. Bytes over the links, of a rank: (ranks - 1) / ranks of what it gets. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

enum { SHOWN = 2 /* addresses that a rank tells */ };

/* Everybody's addresses; false: some rank does not come. By all threads; from here on what they show may be read. Of a
 * slice, `ranks` are more than exist: these play the others in turns. */
static __device__ inline bool show_all(const gpu_exchange &e, exchange_state &s, const void *first, const void *second,
                                       int ranks, const void *(*shown)[SHOWN]) {
    const int r = threadIdx.x / SHOWN, which = threadIdx.x % SHOWN;
    const gpu_i64 unit = (gpu_i64)blockIdx.x * SHOWN + which;
    const void *mine = which ? second : first;
    if (r < e.ranks) shown[r][which] = r != e.rank ? swap_addresses(e, s, r, unit, mine) : mine;
    const bool going = !__syncthreads_or(!s.going);
    for (int i = e.ranks + r; going && i < ranks; i += GPU_THREADS / SHOWN) shown[i][which] = shown[i % e.ranks][which];
    if (ranks > e.ranks) __syncthreads();
    return going;
}

/* Calls f(i) for this thread's i of n, AT_ONCE at a time. */
template <int AT_ONCE, typename L, typename S> static __device__ inline void copy_pieces(gpu_i64 n, L load, S store) {
    const gpu_i64 step = (gpu_i64)gridDim.x * GPU_THREADS;
    for (gpu_i64 at = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; at < n; at += AT_ONCE * step) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (at + i * step < n) v[i] = ld_cg_words4(load(at + i * step));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (at + i * step < n) *store(at + i * step) = v[i];
    }
}

/* The pieces lie in the order of `all`: row, rank, column. */
KERNEL_PDL(all_queries, gpu_all_queries_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ const void *shown[GPU_RANKS_MAX][SHOWN];
    exchange_state s;
    pdl_wait();
    if (!exchange_begin(a.e, s) || !show_all(a.e, s, a.own, NULL, a.ranks, shown)) return;
    const gpu_i64 row = a.ranks * a.width;
    copy_pieces<4>(
        a.n * row,
        [&](gpu_i64 i) {
            const gpu_i64 r = i % row / a.width;
            return (const uint4 *)shown[r][0] + i / row * a.width + i % a.width;
        },
        [&](gpu_i64 i) { return a.all + i; });
    exchange_end(a.e, s);
}

/* A warp a row and head: eight latents a lane of every rank, summed in the ranks' order, AT_ONCE ranks' under way. A
 * rank with no token of a row shows anything as its part of it; of a slice that plays all ranks that can be all. */
KERNEL_PDL(merge_parts, gpu_merge_parts_args, GPU_THREADS, COMM_RESIDENT) {
    enum { AT_ONCE = 4 };
    __shared__ const void *shown[GPU_RANKS_MAX][SHOWN];
    __shared__ float weights[GPU_WARPS][GPU_RANKS_MAX];
    exchange_state s;
    pdl_wait();
    if (!exchange_begin(a.e, s) || !show_all(a.e, s, a.parts, a.lse, a.ranks, shown)) return;
    const int lane = threadIdx.x % 32, ranks = a.ranks;
    float *const w = weights[threadIdx.x / 32];
    const gpu_i64 step = (gpu_i64)gridDim.x * GPU_WARPS;
    for (gpu_i64 at = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32; at < a.n * a.heads; at += step) {
        const gpu_i64 there = (at / a.heads * ranks + a.e.rank) * a.heads + at % a.heads;
        const float lse = lane < ranks ? ld_cg1((const float *)shown[lane][1] + there) : -INFINITY;
        const float top = warp_max(lse), mine = lse == -INFINITY ? 0.0f : expf(lse - top), all = warp_sum(mine);
        __syncwarp();
        if (lane < ranks) w[lane] = mine == 0.0f ? 0.0f : mine / all;
        __syncwarp();
        for (gpu_i64 c = lane * 8; c < a.latent; c += 32 * 8) {
            float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            for (int first = 0; first < ranks; first += AT_ONCE) {
                uint4 v[AT_ONCE];
#pragma unroll
                for (int r = 0; r < AT_ONCE; r++)
                    if (first + r < ranks)
                        v[r] =
                            ld_cg_words4((const uint4 *)((const gpu_bf16 *)shown[first + r][0] + there * a.latent + c));
#pragma unroll
                for (int r = 0; r < AT_ONCE; r++) {
                    if (first + r >= ranks || w[first + r] == 0.0f) continue;
                    const gpu_u32 two[4] = {v[r].x, v[r].y, v[r].z, v[r].w};
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        sum[2 * i] = fmaf(w[first + r], low_f32(two[i]), sum[2 * i]);
                        sum[2 * i + 1] = fmaf(w[first + r], high_f32(two[i]), sum[2 * i + 1]);
                    }
                }
            }
            *(uint4 *)(a.out + at * a.latent + c) = {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3]),
                                                     two_bf16(sum[4], sum[5]), two_bf16(sum[6], sum[7])};
        }
    }
    exchange_end(a.e, s);
}

KERNEL_OF(collect_pages, gpu_collect_pages_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ const void *shown[GPU_RANKS_MAX][SHOWN];
    exchange_state s;
    if (!exchange_begin(a.e, s) || !show_all(a.e, s, a.kv, NULL, a.ranks, shown)) return;
    copy_pieces<4>(
        a.n * a.page,
        [&](gpu_i64 i) {
            const int page = a.pages[i / a.page];
            return (const uint4 *)shown[page % a.ranks][0] + page / a.ranks * a.page + i % a.page;
        },
        [&](gpu_i64 i) { return a.out + i; });
    exchange_end(a.e, s);
}
