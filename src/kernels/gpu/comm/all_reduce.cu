/* kernels/gpu/comm/all_reduce.cu: the sum of all ranks' x, by one launch on each GPU.
 *
 * Every rank writes its values into everybody's mailbox and adds up what is in its own, in the order of the ranks. A
 * value travels with the number of its exchange: whoever reads that number has the value, so there is no barrier
 * between GPUs and no store waits for another. A mailbox has room for two exchanges: a rank that writes the one after
 * the next has had everybody's part of the next, which they sent after they had read this one. Bytes sent: twice the
 * values', to each rank. */
#include "kernels/gpu/device/math.cuh"
#include "kernels/gpu/device/mma_tile.cuh"
#include "kernels/gpu/device/sm90.cuh"

enum { POLLS = 256 /* between looks at the clock */ };

/* Has the exchange to end? The rank that is missing is told to the host, once. */
static __device__ bool must_give_up(const gpu_all_reduce_args &a, gpu_u64 until, int missing) {
    if (*(volatile gpu_u32 *)&a.words[COMM_BROKEN]) return true;
    if (a.host[COMM_STOP] == 0 && global_ns() < until) return false;
    *(volatile gpu_u32 *)&a.words[COMM_BROKEN] = 1;
    if (a.host[COMM_STOP] == 0) a.host[COMM_FAILED] = 1 + missing;
    return true;
}

/* Never 0, which memory has that nobody wrote; odd and even in turn. */
static __device__ inline gpu_u32 next_number(gpu_u32 number) { return number + 1 ? number + 1 : 2; }

KERNEL(all_reduce, gpu_all_reduce_args) {
    if (*(volatile gpu_u32 *)&a.words[COMM_BROKEN]) return;
    const gpu_u32 number = next_number(*(volatile gpu_u32 *)&a.words[COMM_NUMBER]);
    const gpu_i64 n = a.n / GPU_UNIT_VALUES, step = (gpu_i64)gridDim.x * GPU_THREADS,
                  first = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    const gpu_i64 base = (number & 1) * a.ranks * a.units;
    uint2 *x = (uint2 *)a.x;
    const gpu_u64 until = global_ns() + a.deadline_ns;
    for (gpu_i64 u = first; u < n; u += step)
        for (int r = 0; r < a.ranks; r++)
            if (r != a.rank) store_flagged(a.mailboxes[r] + base + a.rank * a.units + u, x[u].x, x[u].y, number);
    bool going = true;
    for (gpu_i64 u = first; u < n && going; u += step) {
        float sum[GPU_UNIT_VALUES];
        for (int r = 0; r < a.ranks && going; r++) {
            uint4 v = {x[u].x, number, x[u].y, number};
            const uint4 *from = a.mailboxes[a.rank] + base + r * a.units + u;
            if (r != a.rank) v = load_flagged(from);
            for (int polls = 1; going && (v.y != number || v.w != number); polls++) {
                if (polls % POLLS == 0) going = !must_give_up(a, until, r);
                poll_again();
                v = load_flagged(from);
            }
            const float part[GPU_UNIT_VALUES] = {low_f32(v.x), high_f32(v.x), low_f32(v.z), high_f32(v.z)};
#pragma unroll
            for (int i = 0; i < GPU_UNIT_VALUES; i++) sum[i] = r ? sum[i] + part[i] : part[i];
        }
        if (going) x[u] = uint2{two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
    }
    __syncthreads(); /* all have read the number */
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(&a.words[COMM_DONE], 1u) + 1 < gridDim.x) return;
    a.words[COMM_DONE] = 0;
    a.words[COMM_NUMBER] = number;
}
