/* kernels/gpu/comm/all_reduce_parts.cu: the sum of all ranks' x of many values, in two shots: each rank sums a part of
 * all ranks' values, in their order, and sends the sum to all. Bytes sent by a rank: twice its values, whatever the
 * number of ranks, where the sum in one shot (all_reduce.cu) sends 2 (ranks - 1) times as many.
 *
 * Pieces are stored as they are and a flag behind them, one for each block of the taker, whose blocks wait for that of
 * the same number. The flags hold the number of the exchange, and memory is used again every other time, as in
 * exchange.cuh. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

enum { AT_ONCE = 4 /* pieces under way in a thread */ };

static __device__ inline struct uint4 *pieces_of(const gpu_all_reduce_parts_args &a, const exchange_state &s, int of,
                                                 int shot, int from) {
    return a.pieces[of] + (((s.number & 1) * 2 + shot) * a.e.ranks + from) * a.room;
}

/* Calls f(piece, pieces of x to the left of it) for this block's pieces of a part, AT_ONCE at a time. */
template <typename F> static __device__ inline void over_part(const gpu_all_reduce_parts_args &a, int part, F f) {
    const gpu_i64 each = (a.part + gridDim.x - 1) / gridDim.x, from = blockIdx.x * each, before = part * a.part,
                  end = min64(min64(from + each, a.part), a.n / 8 - before);
    for (gpu_i64 first = from + threadIdx.x; first < end; first += AT_ONCE * GPU_THREADS)
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * GPU_THREADS < end) f(first + i * GPU_THREADS, before);
}

/* What this block has stored may be taken. */
static __device__ inline void tell(const gpu_all_reduce_parts_args &a, const exchange_state &s, int shot) {
    const int to = threadIdx.x;
    __syncthreads();
    if (to >= a.e.ranks || to == a.e.rank) return;
    store_release(a.flags[to] + (shot * a.e.ranks + a.e.rank) * COMM_BLOCKS + blockIdx.x, s.number);
}

/* false: some rank's pieces do not come. */
static __device__ inline bool wait_for_all(const gpu_all_reduce_parts_args &a, exchange_state &s, int shot) {
    const int from = threadIdx.x;
    if (from < a.e.ranks && from != a.e.rank) {
        const gpu_u32 *flag = a.flags[a.e.rank] + (shot * a.e.ranks + from) * COMM_BLOCKS + blockIdx.x;
        for (int polls = 1; s.going && load_acquire(flag) != s.number; polls++) {
            if (polls % POLLS == 0) s.going = !must_give_up(a.e, s, from);
            poll_again();
        }
    }
    return !__syncthreads_or(!s.going);
}

static __device__ inline uint4 sum_of_eight(const gpu_all_reduce_parts_args &a, const exchange_state &s, gpu_i64 piece,
                                            uint4 own) {
    float sum[8];
    for (int r = 0; r < a.e.ranks; r++) {
        uint4 v = own;
        if (r != a.e.rank) v = ld_cg_words4(pieces_of(a, s, a.e.rank, 0, r) + piece);
        const gpu_u32 two[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum[2 * i] = r ? sum[2 * i] + low_f32(two[i]) : low_f32(two[i]);
            sum[2 * i + 1] = r ? sum[2 * i + 1] + high_f32(two[i]) : high_f32(two[i]);
        }
    }
    return {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3]), two_bf16(sum[4], sum[5]), two_bf16(sum[6], sum[7])};
}

KERNEL_OF(all_reduce_parts, gpu_all_reduce_parts_args, GPU_THREADS, COMM_RESIDENT) {
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    const int me = a.e.rank, ranks = a.e.ranks;
    uint4 *x = (uint4 *)a.x;
    for (int i = 1; i < ranks; i++) { /* everybody begins with another */
        int r = (me + i) % ranks;
        uint4 *to = pieces_of(a, s, r, 0, me);
        over_part(a, r, [&](gpu_i64 p, gpu_i64 before) { to[p] = x[before + p]; });
    }
    tell(a, s, 0);
    if (!wait_for_all(a, s, 0)) return;
    over_part(a, me, [&](gpu_i64 p, gpu_i64 before) {
        uint4 sum = sum_of_eight(a, s, p, x[before + p]);
        x[before + p] = sum;
        for (int i = 1; i < ranks; i++) pieces_of(a, s, (me + i) % ranks, 1, me)[p] = sum;
    });
    tell(a, s, 1);
    if (!wait_for_all(a, s, 1)) return;
    for (int i = 1; i < ranks; i++) {
        int r = (me + i) % ranks;
        const uint4 *from = pieces_of(a, s, me, 1, r);
        over_part(a, r, [&](gpu_i64 p, gpu_i64 before) { x[before + p] = ld_cg_words4(from + p); });
    }
    exchange_end(a.e, s);
}
