/* kernels/gpu/comm/exchange_flags.cuh: exchanges that store into another rank's buffers, whose ends flags tell: one for
 * each block of the taker, whose blocks wait for that of the same number. A flag holds the number of the exchange.
 * Where a buffer lies is sent with the exchange, which also says that the other's launches before it have ended. */
#ifndef KERNELS_GPU_COMM_EXCHANGE_FLAGS_CUH
#define KERNELS_GPU_COMM_EXCHANGE_FLAGS_CUH
#include "kernels/gpu/comm/exchange.cuh"

/* What this block has stored may be taken. */
static __device__ inline void tell(const gpu_exchange &e, gpu_u32 *const *flags, const exchange_state &s, int shot) {
    const int to = threadIdx.x;
    __syncthreads();
    if (to >= e.ranks || to == e.rank) return;
    store_release(flags[to] + (shot * e.ranks + e.rank) * COMM_NORM_BLOCKS + blockIdx.x, s.number);
}

/* false: some rank's pieces do not come. */
static __device__ inline bool wait_for_all(const gpu_exchange &e, gpu_u32 *const *flags, exchange_state &s, int shot) {
    const int from = threadIdx.x;
    if (from < e.ranks && from != e.rank) {
        const gpu_u32 *flag = flags[e.rank] + (shot * e.ranks + from) * COMM_NORM_BLOCKS + blockIdx.x;
        for (int polls = 1; s.going && load_acquire(flag) != s.number; polls++) {
            if (polls % POLLS == 0) s.going = !must_give_up(e, s, from);
            poll_again();
        }
    }
    return !__syncthreads_or(!s.going);
}

/* Where the ranks want something written, in shared memory; unit: of the mailbox that carries it for this block. */
static __device__ inline void tell_place(const gpu_exchange &e, const exchange_state &s, int unit, const void *mine) {
    const int with = threadIdx.x;
    if (with >= e.ranks || with == e.rank) return;
    send_unit(e, s, with, unit + blockIdx.x, (gpu_u32)(gpu_u64)mine, (gpu_u32)((gpu_u64)mine >> 32));
}
static __device__ inline void ask_place(const gpu_exchange &e, exchange_state &s, int unit, void *mine, void **places) {
    const int with = threadIdx.x;
    if (with >= e.ranks) return;
    places[with] = mine;
    if (with == e.rank) return;
    const uint4 at = take_unit(e, s, with, unit + blockIdx.x);
    places[with] = (void *)(at.x | (gpu_u64)at.z << 32);
}

#endif
