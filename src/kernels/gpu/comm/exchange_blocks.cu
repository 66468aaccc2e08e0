/* kernels/gpu/comm/exchange_blocks.cu: a block of 32-bit words from every rank to every other: what gathers drawn
 * tokens, and divides logits by rows instead of by columns. */
#include "kernels/gpu/comm/exchange.cuh"

/* Calls f(unit, pointer to its first word, has it a second) for this thread's units of a block. */
template <typename F> static __device__ inline void over_units(const gpu_block &b, F f) {
    const gpu_u32 per_row = (gpu_u32)(b.width + 1) / 2, n = (gpu_u32)b.rows * per_row, step = gridDim.x * GPU_THREADS;
    for (gpu_u32 u = blockIdx.x * GPU_THREADS + threadIdx.x; u < n; u += step) {
        gpu_u32 row = u / per_row, word = (u - row * per_row) * 2;
        f(u, b.at + row * b.stride + word, (int)word + 1 < b.width);
    }
}

KERNEL_OF(exchange_blocks, gpu_exchange_blocks_args, GPU_THREADS, COMM_RESIDENT) {
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    const int me = a.e.rank, ranks = a.e.ranks;
    const bool marks = blockIdx.x == 0 && threadIdx.x == 0;
    for (int i = 1; i < ranks; i++) { /* everybody begins with another */
        int r = (me + i) % ranks;
        over_units(a.out[r],
                   [&](gpu_u32 u, const gpu_u32 *p, bool two) { send_unit(a.e, s, r, u, p[0], two ? p[1] : 0); });
        if (marks) send_unit(a.e, s, r, a.e.units - 1, 0, 0);
    }
    const gpu_block &from = a.out[me], &to = a.in[me];
    if (to.at != from.at)
        over_units(to, [&](gpu_u32 u, gpu_u32 *p, bool two) {
            gpu_i64 row = u / ((gpu_u32)(to.width + 1) / 2), word = p - to.at - row * to.stride;
            const gpu_u32 *x = from.at + row * from.stride + word;
            p[0] = x[0];
            if (two) p[1] = x[1];
        });
    for (int i = 1; i < ranks; i++) {
        int r = (me + i) % ranks;
        over_units(a.in[r], [&](gpu_u32 u, gpu_u32 *p, bool two) {
            if (!s.going) return;
            uint4 v = take_unit(a.e, s, r, u);
            if (!s.going) return;
            p[0] = v.x;
            if (two) p[1] = v.z;
        });
        if (marks && s.going) take_unit(a.e, s, r, a.e.units - 1);
    }
    exchange_end(a.e, s);
}
