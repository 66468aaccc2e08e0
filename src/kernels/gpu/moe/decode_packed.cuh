/* kernels/gpu/moe/decode_packed.cuh: what decode_int4.cu and decode_fp4.cu share: weights in int4_pack.h's blocks on
 * their way into the ring (decode_ring.cuh). Items and teams are decode_int4.cu's. */
#ifndef KERNELS_GPU_MOE_DECODE_PACKED_CUH
#define KERNELS_GPU_MOE_DECODE_PACKED_CUH
#include "kernels/gpu/moe/decode_ring.cuh"

/* The ring's numbers (decode_ring.cuh), but for the bytes between rows. */
template <int X, int H> struct packed_ring {
    enum {
        SLOTS = DECODE_INT4_SLOTS,
        WEIGHTS = DECODE_INT4_WEIGHTS,
        TEAMS = DECODE_INT4_TEAMS,
        UNIT = 2 * PACK_COLS,
        ACROSS = DECODE_INT4_UP_ACROSS,
        DEEP = DECODE_INT4_DEEP,
        X_STRIDE = X,
        H_STRIDE = H
    };
};

/* Items of up a group has, and of down. */
static __device__ inline int up_chunks(const gpu_decode_int4_args &a) {
    return (a.inter / PACK_ROWS + DECODE_INT4_UP_STRIPS - 1) / DECODE_INT4_UP_STRIPS;
}
static __device__ inline int down_chunks(const gpu_decode_int4_args &a) {
    return (a.hidden / PACK_ROWS + DECODE_INT4_WARPS - 1) / DECODE_INT4_WARPS;
}

/* ---- the copier of weights: a warp, each lane one of a slot's copies ---- */

template <class R>
static __device__ inline void copy_packed_up(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                             decode_place *p) {
    int across = a.hidden / PACK_COLS, all = a.inter / PACK_ROWS, chunks = up_chunks(a), items = b.n_groups * chunks,
        lane = threadIdx.x % 32, mine = lane / 2, coming = 0;
    const gpu_u8 *weights = lane % 2 ? a.up : a.gate;
    int to = lane % 2 * (DECODE_INT4_WEIGHTS / 2) + mine * (DECODE_INT4_UP_ACROSS * PACK_BYTES);
    for (int item = blockIdx.x; item < items; item = (int)gridDim.x + __shfl_sync(~0u, coming, 0)) {
        if (lane == 0) coming = atomicAdd(&a.work_counter[0], 1);
        int first = item % chunks * DECODE_INT4_UP_STRIPS,
            strips = all - first < DECODE_INT4_UP_STRIPS ? all - first : DECODE_INT4_UP_STRIPS;
        const gpu_u8 *from = weights + (gpu_u64)b.groups[item / chunks].x * a.expert_bytes +
                             (gpu_u64)((first + mine) * across) * PACK_BYTES;
        for (int c = 0; c < across; c += DECODE_INT4_UP_ACROSS, next_place(a, p)) {
            gpu_u32 bytes =
                (gpu_u32)(across - c < DECODE_INT4_UP_ACROSS ? across - c : DECODE_INT4_UP_ACROSS) * PACK_BYTES;
            gpu_u8 *slot = open_slot<R>(a, b, *p, item, ALL, 2 * strips * bytes);
            if (mine < strips) tma_bulk_once(slot + to, from + c * PACK_BYTES, bytes, full_of<R>(b, ALL, p->slot));
        }
    }
    open_slot<R>(a, b, *p, -1, ALL, 0);
    next_place(a, p);
}

template <class R>
static __device__ inline void copy_packed_down(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                               decode_place *p) {
    int across = a.inter / PACK_COLS, all = a.hidden / PACK_ROWS, chunks = down_chunks(a), items = b.n_groups * chunks,
        lane = threadIdx.x % 32, coming = 0;
    for (int item = blockIdx.x; item < items; item = (int)gridDim.x + __shfl_sync(~0u, coming, 0)) {
        if (lane == 0) coming = atomicAdd(&a.work_counter[1], 1);
        const gpu_u8 *expert = a.down + (gpu_u64)b.groups[item / chunks].x * a.expert_bytes;
        for (int c = 0; c < across; c += DECODE_INT4_DEEP)
            for (int team = 0; team < DECODE_INT4_TEAMS; team++, next_place(a, p)) {
                int strip = item % chunks * DECODE_INT4_WARPS + team * DECODE_INT4_STRIPS,
                    strips = all - strip < DECODE_INT4_STRIPS ? all - strip : DECODE_INT4_STRIPS;
                gpu_u32 bytes = (gpu_u32)(across - c < DECODE_INT4_DEEP ? across - c : DECODE_INT4_DEEP) * PACK_BYTES;
                const gpu_u8 *from = expert + ((gpu_u64)strip * across + c) * PACK_BYTES;
                if (strips < 0) strips = 0;
                gpu_u8 *slot = open_slot<R>(a, b, *p, item, TEAM + team, strips * bytes);
                if (across > DECODE_INT4_DEEP) {
                    if (lane < strips)
                        tma_bulk_once(slot + lane * bytes, from + (gpu_u64)(lane * across) * PACK_BYTES, bytes,
                                      full_of<R>(b, TEAM + team, p->slot));
                } else if (strips && lane == 0) /* they are one run */
                    tma_bulk_once(slot, from, strips * bytes, full_of<R>(b, TEAM + team, p->slot));
            }
    }
    for (int team = 0; team < DECODE_INT4_TEAMS; team++, next_place(a, p)) open_slot<R>(a, b, *p, -1, TEAM + team, 0);
}

#endif
