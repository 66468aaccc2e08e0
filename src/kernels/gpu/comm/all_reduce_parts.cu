/* kernels/gpu/comm/all_reduce_parts.cu: the sum of all ranks' x of many values, in two shots: each rank sums a part of
 * all ranks' values, in their order, and writes the sum to its place in everybody's x. Bytes sent by a rank: twice its
 * values, whatever the number of ranks, where the sum in one shot (all_reduce.cu) sends 2 (ranks - 1) times as many.
 *
 * Pieces are stored as they are and a flag behind them, one for each block of the taker, whose blocks wait for that of
 * the same number. The flags hold the number of the exchange, and memory is used again every other time, as in
 * exchange.cuh. A sum replaces values in another rank's x that its block of the same number has sent before: that it
 * has is what the flag of the first shot says. Where that x lies is sent with the exchange. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

enum { AT_ONCE = 4 /* loads under way in a thread: of pieces to send, of ranks to sum */ };

static __device__ inline struct uint4 *pieces_of(const gpu_all_reduce_parts_args &a, const exchange_state &s, int of,
                                                 int from) {
    return a.pieces[of] + ((s.number & 1) * a.e.ranks + from) * a.room;
}

/* This block's pieces of a part. */
typedef struct {
    int from, to;
} piece_range;
static __device__ inline piece_range pieces_here(const gpu_all_reduce_parts_args &a, int part) {
    const int each = ((int)a.part + (int)gridDim.x - 1) / (int)gridDim.x, from = (int)blockIdx.x * each;
    return {from, (int)min64(min64(from + each, a.part), a.n / 8 - part * a.part)};
}

/* Past the first-level cache, which would keep what another rank replaces. */
static __device__ inline void send_part(const gpu_all_reduce_parts_args &a, int part, const uint4 *from, uint4 *to) {
    const piece_range here = pieces_here(a, part);
    for (int first = here.from + (int)threadIdx.x; first < here.to; first += AT_ONCE * GPU_THREADS) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * GPU_THREADS < here.to) v[i] = ld_cg_words4(from + first + i * GPU_THREADS);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * GPU_THREADS < here.to) to[first + i * GPU_THREADS] = v[i];
    }
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

/* The sum of everybody's piece, in the order of the ranks, who are `room` pieces apart in `sent`, but for this one's
 * `own`. */
static __device__ inline uint4 sum_of_eight(const gpu_all_reduce_parts_args &a, const uint4 *sent, const uint4 *own,
                                            int piece) {
    float sum[8];
    for (int from = 0; from < a.e.ranks; from += AT_ONCE) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
            if (from + r < a.e.ranks)
                v[r] = ld_cg_words4((from + r == a.e.rank ? own : sent + (from + r) * a.room) + piece);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            if (from + r >= a.e.ranks) continue;
            const gpu_u32 two[4] = {v[r].x, v[r].y, v[r].z, v[r].w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                sum[2 * k] = from + r ? sum[2 * k] + low_f32(two[k]) : low_f32(two[k]);
                sum[2 * k + 1] = from + r ? sum[2 * k + 1] + high_f32(two[k]) : high_f32(two[k]);
            }
        }
    }
    return {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3]), two_bf16(sum[4], sum[5]), two_bf16(sum[6], sum[7])};
}

KERNEL_OF(all_reduce_parts, gpu_all_reduce_parts_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ uint4 *results[GPU_RANKS_MAX]; /* everybody's x */
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    const int me = a.e.rank, ranks = a.e.ranks, with = threadIdx.x;
    uint4 *const x = (uint4 *)a.x;
    if (with < ranks && with != me)
        send_unit(a.e, s, with, blockIdx.x, (gpu_u32)(gpu_u64)x, (gpu_u32)((gpu_u64)x >> 32));
    for (int i = 1; i < ranks; i++) { /* everybody begins with another */
        const int r = (me + i) % ranks;
        send_part(a, r, x + r * a.part, pieces_of(a, s, r, me));
    }
    tell(a, s, 0);
    if (with < ranks && with != me) {
        const uint4 at = take_unit(a.e, s, with, blockIdx.x);
        results[with] = (uint4 *)(at.x | (gpu_u64)at.z << 32);
    }
    if (!wait_for_all(a, s, 0)) return;
    uint4 *const own = x + me * a.part;
    const uint4 *sent = pieces_of(a, s, me, 0);
    const piece_range here = pieces_here(a, me);
    for (int p = here.from + (int)threadIdx.x; p < here.to; p += GPU_THREADS) {
        const uint4 sum = sum_of_eight(a, sent, own, p);
        own[p] = sum;
        for (int i = 1; i < ranks; i++) results[(me + i) % ranks][me * a.part + p] = sum;
    }
    tell(a, s, 1);
    if (!wait_for_all(a, s, 1)) return;
    exchange_end(a.e, s);
}
