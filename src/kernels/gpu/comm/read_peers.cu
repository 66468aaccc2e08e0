/* kernels/gpu/comm/read_peers.cu: exchanges of any size by one launch: a rank says where its blocks lie, and the others
 * read them there. Behind it everybody waits until all have read, so that the blocks may be written again. Every launch
 * has COMM_BLOCKS blocks, each of which meets those of its number. Bytes over the links: what is exchanged, once. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

/* Everybody's addresses; false: some rank does not come. By all threads. */
static __device__ inline bool show_and_meet(const gpu_exchange &e, exchange_state &s, const void *mine,
                                            const void **shown) {
    const int r = threadIdx.x;
    if (r < e.ranks) shown[r] = r == e.rank ? mine : swap_addresses(e, s, r, blockIdx.x, mine);
    return !__syncthreads_or(!s.going);
}

static __device__ inline void part_again(const gpu_exchange &e, exchange_state &s) {
    const int r = threadIdx.x;
    __syncthreads();
    if (r < e.ranks && r != e.rank) swap_addresses(e, s, r, COMM_BLOCKS + blockIdx.x, NULL);
    exchange_end(e, s);
}

static __device__ inline uint4 peer_word(const uint4 *at) { return ld_cg_words4(at); }
template <typename T> static __device__ inline T peer_word(const T *at) { return *(const volatile T *)at; }
template <typename T> static __device__ inline void read_pieces(T *to, const T *from, gpu_i64 n) {
    enum { AT_ONCE = 4 };
    const gpu_i64 step = (gpu_i64)gridDim.x * GPU_THREADS;
    for (gpu_i64 at = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; at < n; at += AT_ONCE * step) {
        T v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (at + i * step < n) v[i] = peer_word(from + at + i * step);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (at + i * step < n) to[at + i * step] = v[i];
    }
}

KERNEL_OF(read_blocks, gpu_read_blocks_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ const void *shown[GPU_RANKS_MAX];
    exchange_state s;
    if (!exchange_begin(a.e, s) || !show_and_meet(a.e, s, a.show[threadIdx.x % GPU_RANKS_MAX], shown)) return;
    for (int i = 0; i < a.e.ranks; i++) { /* everybody begins with another */
        const int r = (a.e.rank + i) % a.e.ranks;
        const gpu_u64 low = (gpu_u64)shown[r] | (gpu_u64)a.to[r] | (gpu_u64)a.bytes[r];
        if (a.to[r] == shown[r]) continue;
        if (low % 16 == 0)
            read_pieces((uint4 *)a.to[r], (const uint4 *)shown[r], a.bytes[r] / 16);
        else if (low % 4 == 0)
            read_pieces((gpu_u32 *)a.to[r], (const gpu_u32 *)shown[r], a.bytes[r] / 4);
        else
            read_pieces((gpu_u8 *)a.to[r], (const gpu_u8 *)shown[r], a.bytes[r]);
    }
    part_again(a.e, s);
}

/* Sums are float32, in the order of the ranks, rounded once. */
KERNEL_OF(reduce_scatter, gpu_reduce_scatter_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ const void *shown[GPU_RANKS_MAX];
    exchange_state s;
    if (!exchange_begin(a.e, s) || !show_and_meet(a.e, s, a.x, shown)) return;
    const gpu_i64 step = (gpu_i64)gridDim.x * GPU_THREADS, first = a.n * a.e.rank;
    const gpu_i64 start = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    for (gpu_i64 at = start; a.type == GPU_F32 && at < a.n; at += step) {
        float sum = 0;
        for (int r = 0; r < a.e.ranks; r++) sum += ld_cg1((const float *)shown[r] + first + at);
        ((float *)a.out)[at] = sum;
    }
    if (a.type == GPU_BF16 && a.n % 8 == 0)
        for (gpu_i64 at = start; at < a.n / 8; at += step) {
            float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            for (int r = 0; r < a.e.ranks; r++) {
                const uint4 v = ld_cg_words4((const uint4 *)((const gpu_bf16 *)shown[r] + first) + at);
                const gpu_u32 two[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int i = 0; i < 4; i++) sum[2 * i] += low_f32(two[i]), sum[2 * i + 1] += high_f32(two[i]);
            }
            ((uint4 *)a.out)[at] = {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3]), two_bf16(sum[4], sum[5]),
                                    two_bf16(sum[6], sum[7])};
        }
    else if (a.type == GPU_BF16)
        for (gpu_i64 at = start; at < a.n; at += step) {
            float sum = 0;
            for (int r = 0; r < a.e.ranks; r++) sum += f32_of(peer_word((const gpu_bf16 *)shown[r] + first + at));
            ((gpu_bf16 *)a.out)[at] = bf16_of(sum);
        }
    part_again(a.e, s);
}
