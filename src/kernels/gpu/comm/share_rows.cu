/* kernels/gpu/comm/share_rows.cu: rows that ranks have computed each their own of become everybody's. A rank stores its
 * rows at their place in the others' memory. Bytes sent by a rank: (ranks - 1) times its rows. */
#include "kernels/gpu/comm/exchange_flags.cuh"

enum { AT_ONCE = 4 /* loads under way in a thread */ };

/* Grid: blocks that take pieces in turn. */
KERNEL_OF(share_rows, gpu_share_rows_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ void *places[GPU_DIVIDED_ROWS][GPU_RANKS_MAX]; /* everybody's */
    const int me = a.e.rank, ranks = a.e.ranks, step = (int)gridDim.x * GPU_THREADS;
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    for (int i = 0; i < a.count; i++) tell_place(a.e, s, i * COMM_NORM_BLOCKS, a.of[i].at);
    for (int i = 0; i < a.count; i++) ask_place(a.e, s, i * COMM_NORM_BLOCKS, a.of[i].at, places[i]);
    if (__syncthreads_or(!s.going)) return;
    for (int i = 0; i < a.count; i++) {
        const int from = (int)(a.from * a.of[i].width), to = (int)(a.to * a.of[i].width);
#pragma unroll 1
        for (int first = from + (int)blockIdx.x * GPU_THREADS + (int)threadIdx.x; first < to; first += AT_ONCE * step) {
            uint4 v[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k * step < to) v[k] = a.of[i].at[first + k * step];
            for (int r = 1; r < ranks; r++) { /* everybody begins with another */
                uint4 *const there = (uint4 *)places[i][(me + r) % ranks];
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++)
                    if (first + k * step < to) there[first + k * step] = v[k];
            }
            for (int r = 1; r < a.played; r++)
                for (int k = 0; k < AT_ONCE; k++) {
                    const int other = first + k * step + r * (to - from);
                    if (first + k * step < to && other < a.n * a.of[i].width) a.of[i].at[other] = v[k];
                }
        }
    }
    tell(a.e, a.flags, s, 1);
    if (!wait_for_all(a.e, a.flags, s, 1)) return;
    exchange_end(a.e, s);
}
