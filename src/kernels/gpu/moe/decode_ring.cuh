/* kernels/gpu/moe/decode_ring.cuh: the ring of decode_int4.cu and decode_stored.cu: slots of weights and of rows of x
 * or h, each filled by two warps: one copies weights, as far ahead as there is room, across items and from up to down;
 * one copies rows, which in down must wait until the group's h is there. A slot's copies are begun by as many lanes at
 * once: one lane with all of them is slower than the memory (measured: docs/lab/2026-11-22-experts-few-tokens.md).
 *
 * Beside `full` and `empty` (pipeline.cuh) a slot has `open`: the copier of weights has begun, so its item is known.
 * In up all computing warps read every slot, in down the slots are the teams' in turn; so there is a set of `full` for
 * all, and one for each team.
 *
 * R: a kernel's numbers: SLOTS of the ring at most; WEIGHTS: bytes of a slot before its rows; TEAMS; UNIT: bytes of a
 * row in a unit of columns; ACROSS, DEEP: units of a slot in up and in down; X_STRIDE, H_STRIDE: bytes from row to
 * row. */
#ifndef KERNELS_GPU_MOE_DECODE_RING_CUH
#define KERNELS_GPU_MOE_DECODE_RING_CUH
#include "kernels/gpu/moe/decode_sort.cuh"

enum { ALL, TEAM }; /* sets: ALL, TEAM + 0.. */

/* Where a warp is in the ring. */
typedef struct {
    int slot;
    gpu_u32 parity; /* of this round, for those that see every slot */
    gpu_u32 phases; /* of a reader: a bit a slot */
} decode_place;
static __device__ inline void next_place(const gpu_decode_int4_args &a, decode_place *p) {
    if (++p->slot == a.slots) p->slot = 0, p->parity ^= 1;
}
/* n: at most R::TEAMS, which may be more than there are slots. */
template <class R> static __device__ inline void skip_slots(const gpu_decode_int4_args &a, decode_place *p, int n) {
    p->slot += n;
    while (p->slot >= a.slots) p->slot -= a.slots;
}
template <class R> static __device__ inline gpu_u64 *full_of(const decode_int4_block &b, int set, int slot) {
    return &b.full[set * R::SLOTS + slot];
}
static __device__ inline gpu_u8 *slot_of(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                         const decode_place &p) {
    return b.ring + (gpu_u32)p.slot * a.slot_bytes;
}

/* The whole block. writers: warps that say_done(). */
template <class R>
static __device__ inline void decode_ring_init(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                               gpu_u32 writers) {
    if (threadIdx.x == 32)
        for (int i = 0; i < (1 + R::TEAMS) * R::SLOTS; i++) mbarrier_init(&b.full[i], 2);
    if (threadIdx.x == 0)
        for (int i = 0; i < a.slots; i++) mbarrier_init(&b.empty[i], DECODE_INT4_WARPS), mbarrier_init(&b.open[i], 1);
    if (threadIdx.x == 64)
        for (int i = 0; i < 2; i++) mbarrier_init(&b.done[i], writers), mbarrier_init(&b.seen[i], 1);
    mbarrier_fence_init();
    __syncthreads();
}

/* ---- the copier of weights ---- */

/* The warp waits until the slot is free; `bytes` for the warps of `set` follow, and the rows. items[slot] is written
 * between two barriers: its readers of the last round arrived at `empty` (the copier of rows before that at `full`),
 * those of this one wait for `open` or `full`. */
template <class R>
static __device__ inline gpu_u8 *open_slot(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                           const decode_place &p, int item, int set, gpu_u32 bytes) {
    mbarrier_wait(&b.empty[p.slot], p.parity ^ 1);
    __syncwarp(); /* all lanes have seen this phase before the next can end */
    if (threadIdx.x % 32 == 0) {
        b.items[p.slot] = item;
        __threadfence_block();
        mbarrier_arrive(&b.open[p.slot]);
        mbarrier_expect(full_of<R>(b, set, p.slot), bytes);
    }
    __syncwarp();
    return slot_of(a, b, p);
}

/* ---- the copier of rows ---- */

static __device__ inline int opened_item(const decode_int4_block &b, const decode_place &p) {
    mbarrier_wait(&b.open[p.slot], p.parity);
    int item = b.items[p.slot];
    __syncwarp(); /* all lanes have seen this phase, and the item, before the next can end */
    return item;
}
/* `bytes` of each row of a group, a lane a row; row_of: by its place in the list. */
template <class R, class ROW>
static __device__ inline void copy_rows(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                        const decode_place &p, int set, int2 group, gpu_u32 bytes, int stride,
                                        ROW &&row_of) {
    int m = group.y & 255, i = threadIdx.x % 32;
    gpu_u8 *to = slot_of(a, b, p) + R::WEIGHTS;
    if (i == 0) mbarrier_expect(full_of<R>(b, set, p.slot), m * bytes);
    __syncwarp();
    if (i < m) tma_bulk(to + i * stride, row_of((group.y >> 8) + i), bytes, full_of<R>(b, set, p.slot));
}
/* x [n, 2 hidden] bytes, of `across` units; chunks: items of a group. */
template <class R>
static __device__ inline void copy_x(const gpu_decode_int4_args &a, const decode_int4_block &b, decode_place *p,
                                     const gpu_u8 *x, int across, int chunks) {
    for (;;) {
        for (int c = 0; c < across; c += R::ACROSS, next_place(a, p)) {
            int item = opened_item(b, *p);
            if (item < 0) {
                if (threadIdx.x % 32 == 0) mbarrier_arrive(full_of<R>(b, ALL, p->slot));
                next_place(a, p);
                return;
            }
            gpu_u32 units = across - c < R::ACROSS ? across - c : R::ACROSS;
            const gpu_u8 *from = x + c * R::UNIT;
            copy_rows<R>(a, b, *p, ALL, b.groups[item / chunks], units * R::UNIT, R::X_STRIDE,
                         [&](int at) { return from + (gpu_i64)b.token[at] * (2 * a.hidden); });
        }
    }
}
/* h [pairs, 2 inter] bytes, which is there when finished[group] is `least`; chunks: items of a group. */
template <class R>
static __device__ inline void copy_h(const gpu_decode_int4_args &a, const decode_int4_block &b, decode_place *p,
                                     const gpu_u8 *h, int across, int chunks, gpu_u32 min_count) {
    int ready = -1;
    for (;;) {
        for (int c = 0; c < across; c += R::DEEP)
            for (int team = 0; team < R::TEAMS; team++, next_place(a, p)) {
                int item = opened_item(b, *p), j = item / chunks;
                if (item < 0) {
                    if (threadIdx.x % 32 == 0) mbarrier_arrive(full_of<R>(b, TEAM + team, p->slot));
                    if (team == R::TEAMS - 1) return;
                    continue;
                }
                if (j != ready) {
                    spin_wait_ge(&a.finished[j], min_count);
                    fence_async_global();
                    ready = j;
                }
                gpu_u32 units = across - c < R::DEEP ? across - c : R::DEEP;
                const gpu_u8 *from = h + c * R::UNIT;
                copy_rows<R>(a, b, *p, TEAM + team, b.groups[j], units * R::UNIT, R::H_STRIDE,
                             [&](int at) { return from + (gpu_i64)b.pair[at] * (2 * a.inter); });
            }
    }
}

/* ---- the computing warps ---- */

template <class R>
static __device__ inline const gpu_u8 *await_slot(const gpu_decode_int4_args &a, const decode_int4_block &b, int set,
                                                  decode_place *p) {
    mbarrier_wait(full_of<R>(b, set, p->slot), p->phases >> p->slot & 1);
    p->phases ^= 1u << p->slot;
    return slot_of(a, b, *p);
}
/* Read: DECODE_INT4_WARPS arrivals free it, `times` of them this warp's. */
static __device__ inline void give_slot(const decode_int4_block &b, const decode_place &p, int times) {
    __syncwarp();
    if ((int)(threadIdx.x % 32) < times) mbarrier_arrive(&b.empty[p.slot]);
}

/* The i-th item of this block is in memory; -1: there is none any more. Of the warps that write. */
static __device__ inline void say_done(const decode_int4_block &b, int i, int item) {
    mbarrier_wait(&b.seen[i % 2], i / 2 % 2 ^ 1);
    __syncwarp();
    if (threadIdx.x == 0) b.said[i % 2] = item;
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&b.done[i % 2]);
}

/* Counts a group's items of up whose h is in memory, `chunks` of them: one lane of a warp of its own, so that no
 * computing warp waits for them. */
static __device__ inline void count_items(const gpu_decode_int4_args &a, const decode_int4_block &b, int chunks) {
    for (int i = 0;; i++) {
        mbarrier_wait(&b.done[i % 2], i / 2 & 1);
        int item = b.said[i % 2];
        if (item < 0) return;
        fence_async_global(); /* h is read by copies */
        __threadfence();
        atomicAdd(&a.finished[item / chunks], 1u);
        mbarrier_arrive(&b.seen[i % 2]);
    }
}

#endif
