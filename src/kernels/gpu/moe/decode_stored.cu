/* kernels/gpu/moe/decode_stored.cu: routed experts at few tokens whose weights are as the checkpoint has them, bf16
 * or FP8 in blocks of 128 x 128: sort, gate and up, SiLU, down in one launch, after a short one that zeroes what it
 * counts; moe_combine adds a token's slots.
 *
 * Groups, items and the ring are decode_int4.cu's: every group's weights are read once, blocks take items as they
 * have room for them, one warp copies weights and another rows, ahead across items and from up to down. What
 * differs:
 *   weights  boxes of the copy engine, swizzled as ldmatrix wants them: 16 rows of gate and of up by 1024 bytes
 *   (up), 64 rows by 512 or 128 by
 *            256 (down): 32 KiB a slot. All experts are one tensor, as rows of `hidden` and as rows of `inter`
 *            columns.
 *   up       item (group, 16 rows of gate and of up): eight warps have an eighth of a slot's columns of gate each,
 *   eight of up; their
 *            sums are added in shared memory in the order of the warps, and silu(gate) * up goes to h [pairs, inter]
 *            in bf16.
 *   down     item (group, 256 or 512 rows of down): four teams of four warps, one or two strips of 16 rows each, all
 *   columns; to y [pairs, hidden].
 * Products are exact, sums float32 in an order that does not depend on other rows; FP8's scale multiplies the sum of
 * its 128 columns, and an e4m3 value is a bf16 value (NaN, which no checkpoint should hold, becomes 480).
 *
 * Bytes: groups * 3 inter hidden * (2 or 1), and x and h rows from the second-level cache once an item. One rank of
 * TP8 of Kimi-K2 in bf16, 11 MB an expert: 20 us at 1 token, 550 at 40 (4.35 TB/s). 2 KiB of weights take a warp 8
 * instructions that load and 4 products (bf16, up to 8 tokens), or some 190 instructions (FP8). */
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/moe/decode_stored.h"
#include "kernels/gpu/moe/decode_ring.cuh"
#include "kernels/gpu/device/fp8.cuh"

enum { BF16, FP8 };
enum { TILES = DECODE_STORED_TOKENS / 8, VALUES = 4 * TILES /* sums of a lane */ };

template <int F> struct stored_ring {
    enum {
        SLOTS = DECODE_STORED_SLOTS,
        WEIGHTS = DECODE_STORED_WEIGHTS,
        TEAMS = DECODE_STORED_TEAMS,
        UNIT = F == FP8 ? 256 : 128,
        ACROSS = DECODE_STORED_ACROSS,
        DEEP = DECODE_STORED_DEEP(F == FP8),
        X_STRIDE = DECODE_STORED_STRIDE(F == FP8),
        H_STRIDE = X_STRIDE
    };
};

template <int F> static __device__ inline int stored_units_of(int cols) { return cols / (F == FP8 ? 128 : 64); }

static __device__ inline decode_int4_block decode_stored_memory(const gpu_decode_int4_args &a) {
    SHARED_TILES(memory);
    decode_int4_block b;
    b.ring = memory;
    gpu_u8 *at = memory + a.slots * a.slot_bytes;
    b.full = (gpu_u64 *)at, b.empty = b.full + DECODE_STORED_SETS * DECODE_STORED_SLOTS,
    b.open = b.empty + DECODE_STORED_SLOTS;
    b.done = b.open + DECODE_STORED_SLOTS, b.seen = b.done + 2;
    b.items = (int *)(b.seen + 2), b.said = b.items + DECODE_STORED_SLOTS;
    b.sums = (float *)(memory + a.at_sums);
    b.groups = (int2 *)(memory + a.at_groups);
    b.cursor = (int *)(memory + a.at_cursor);
    b.pair = (unsigned short *)(memory + a.at_pairs), b.token = b.pair + a.pairs;
    return b;
}

static __device__ inline int strips_of(const gpu_decode_int4_args &a) { return a.inter / 16; }
/* Items of down a group has. */
template <int F> static __device__ inline int chunks_of(const gpu_decode_int4_args &a) {
    return (a.hidden / 16 + DECODE_INT4_WARPS * DECODE_STORED_STRIPS(F == FP8) - 1) /
           (DECODE_INT4_WARPS * DECODE_STORED_STRIPS(F == FP8));
}

/* ---- the copier of weights: a warp ---- */

template <int F>
static __device__ inline void stored_copy_up(const gpu_decode_stored_args &p, const decode_int4_block &b,
                                             decode_place *at) {
    const gpu_decode_int4_args &a = p.f;
    int across = stored_units_of<F>(a.hidden), strips = strips_of(a), items = b.n_groups * strips,
        lane = threadIdx.x % 32, coming = 0;
    for (int item = blockIdx.x; item < items; item = (int)gridDim.x + __shfl_sync(~0u, coming, 0)) {
        if (lane == 0) coming = atomicAdd(&a.work_counter[0], 1);
        int row = b.groups[item / strips].x * 3 * a.inter + item % strips * 16;
        for (int c = 0; c < across; c += DECODE_STORED_ACROSS, next_place(a, at)) {
            gpu_u8 *slot = open_slot<stored_ring<F>>(a, b, *at, item, ALL, DECODE_STORED_WEIGHTS);
            if (lane < 2)
                tma_load(slot + lane * (DECODE_STORED_WEIGHTS / 2), &p.in, 0, row + lane * a.inter, c,
                         full_of<stored_ring<F>>(b, ALL, at->slot));
        }
    }
    open_slot<stored_ring<F>>(a, b, *at, -1, ALL, 0);
    next_place(a, at);
}

template <int F>
static __device__ inline void stored_copy_down(const gpu_decode_stored_args &p, const decode_int4_block &b,
                                               decode_place *at) {
    const gpu_decode_int4_args &a = p.f;
    enum {
        DEEP = DECODE_STORED_DEEP(F == FP8),
        ROWS = 16 * DECODE_STORED_TEAM * DECODE_STORED_STRIPS(F == FP8) /* of a team */
    };
    int across = stored_units_of<F>(a.inter), chunks = chunks_of<F>(a), items = b.n_groups * chunks,
        lane = threadIdx.x % 32, coming = 0;
    for (int item = blockIdx.x; item < items; item = (int)gridDim.x + __shfl_sync(~0u, coming, 0)) {
        if (lane == 0) coming = atomicAdd(&a.work_counter[1], 1);
        int row = (b.groups[item / chunks].x * 3 + 2) * a.hidden, first = item % chunks * (ROWS * DECODE_STORED_TEAMS);
        for (int c = 0; c < across; c += DEEP)
            for (int team = 0; team < DECODE_STORED_TEAMS; team++, next_place(a, at)) {
                int mine = first + team * ROWS;
                bool any = mine < a.hidden;
                gpu_u8 *slot = open_slot<stored_ring<F>>(a, b, *at, item, TEAM + team, any ? DECODE_STORED_WEIGHTS : 0);
                if (any && lane == 0)
                    tma_load(slot, &p.out, 0, row + mine, c, full_of<stored_ring<F>>(b, TEAM + team, at->slot));
            }
    }
    for (int team = 0; team < DECODE_STORED_TEAMS; team++, next_place(a, at))
        open_slot<stored_ring<F>>(a, b, *at, -1, TEAM + team, 0);
}

/* ---- the computing warps ---- */

/* A pair of a word as bf16. */
static __device__ inline gpu_u32 two_of_fp8(gpu_u32 word, int pair) {
    return two_mul(pair ? fp8_pair1(word) : fp8_pair0(word), 0x7b807b80u); /* 2^120 */
}

/* sums += 16 rows of a unit times the rows of x or h; tile: swizzled; rows: at the unit's columns. */
template <int F>
static __device__ inline void stored_multiply(const gpu_u8 *tile, const gpu_u8 *rows, int tiles, float sums[TILES][4]) {
    enum { STRIDE = DECODE_STORED_STRIDE(F == FP8) };
    int lane = threadIdx.x % 32;
    if (F == BF16) {
#pragma unroll
        for (int p = 0; p < 2; p++) {
            gpu_u32 w[2][4];
            ldmatrix4(w[0], tile + swizzled(lane % 16, 4 * p + lane / 16));
            ldmatrix4(w[1], tile + swizzled(lane % 16, 4 * p + 2 + lane / 16));
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                if (j && j >= tiles) continue;
                gpu_u32 x[4];
                ldmatrix4(x, rows + (8 * j + lane % 8) * STRIDE + p * 64 + lane / 8 * 16);
                mma_bf16(sums[j], w[0], x);
                mma_bf16(sums[j], w[1], x + 2);
            }
        }
    } else {
        float odd[TILES][4] = {};
        const gpu_u8 *x = rows + lane / 4 * STRIDE + lane % 4 * 4;
#pragma unroll 2
        for (int p = 0; p < 4; p++) {
            gpu_u32 w[4];
            ldmatrix4(w, tile + swizzled(lane % 16, 2 * p + lane / 16));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const gpu_u32 q[4] = {two_of_fp8(w[2 * h], 0), two_of_fp8(w[2 * h + 1], 0), two_of_fp8(w[2 * h], 1),
                                      two_of_fp8(w[2 * h + 1], 1)};
#pragma unroll
                for (int j = 0; j < TILES; j++) {
                    if (j && j >= tiles) continue;
                    const gpu_u32 *from = (const gpu_u32 *)(x + 8 * j * STRIDE + (2 * p + h) * 32),
                                  two[2] = {from[0], from[4]};
                    mma_bf16(h ? odd[j] : sums[j], q, two);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[j][i] += odd[j][i];
    }
}
/* FP8's scales of a row of matrix m (gate, up, down) of an expert, one a unit; sums += own times one. */
static __device__ inline const float *stored_scales_of(const gpu_decode_stored_args &a, int expert, int m, int row,
                                                       int units) {
    return (const float *)(a.scales + (gpu_u64)expert * a.scales_expert + (gpu_u64)m * a.scales_up) + row / 128 * units;
}
static __device__ inline void add_scaled(float sums[TILES][4], float scale, const float own[TILES][4]) {
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[j][i] = fmaf(scale, own[j][i], sums[j][i]);
}

/* The warps' sums of an item together, silu(gate) * up to h: warp v writes value v of all lanes. */
static __device__ inline void stored_finish_up(const gpu_decode_stored_args &p, const decode_int4_block &b, int2 group,
                                               int strip, const float sums[TILES][4]) {
    const gpu_decode_int4_args &a = p.f;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    named_barrier_sync(2, DECODE_INT4_WARPS * 32); /* the item before has been read */
#pragma unroll
    for (int v = 0; v < VALUES; v++) b.sums[(warp * VALUES + v) * 32 + lane] = sums[v / 4][v % 4];
    named_barrier_sync(1, DECODE_INT4_WARPS * 32);
    if (warp >= VALUES) return;
    int token = warp / 4 * 8 + lane % 4 * 2 + warp % 2, row = strip * 16 + lane / 4 + warp % 4 / 2 * 8;
    float gate = 0, up = 0;
#pragma unroll
    for (int w = 0; w < DECODE_INT4_WARPS / 2; w++)
        gate += b.sums[(w * VALUES + warp) * 32 + lane],
            up += b.sums[((w + DECODE_INT4_WARPS / 2) * VALUES + warp) * 32 + lane];
    if (token < (group.y & 255))
        p.h[(gpu_i64)b.pair[(group.y >> 8) + token] * a.inter + row] = bf16_of(silu(gate) * up);
}

template <int F>
static __device__ inline void stored_compute_up(const gpu_decode_stored_args &args, const decode_int4_block &b,
                                                decode_place *p) {
    const gpu_decode_int4_args &a = args.f;
    int warp = threadIdx.x / 32, across = stored_units_of<F>(a.hidden), strips = strips_of(a),
        unit = warp % DECODE_STORED_ACROSS, i = 0;
    for (;; i++) {
        const gpu_u8 *slot = await_slot<stored_ring<F>>(a, b, ALL, p);
        int item = b.items[p->slot];
        if (item < 0) break;
        int2 group = b.groups[item / strips];
        int tiles = ((group.y & 255) + 7) / 8;
        const float *scales = stored_scales_of(args, group.x, warp / DECODE_STORED_ACROSS, item % strips * 16, across);
        float sums[TILES][4] = {}, scale = F == FP8 && unit < across ? scales[unit] : 0;
#pragma unroll 1
        for (int c = unit;;) {
            const gpu_u8 *tile = slot + warp * DECODE_STORED_TILE,
                         *rows = slot + DECODE_STORED_WEIGHTS + unit * stored_ring<F>::UNIT;
            if (F == BF16) {
                if (c < across) stored_multiply<F>(tile, rows, tiles, sums);
                give_slot(b, *p, 1);
            } else {
                float own[TILES][4] = {},
                      next = c + DECODE_STORED_ACROSS < across ? scales[c + DECODE_STORED_ACROSS] : 0;
                if (c < across) stored_multiply<F>(tile, rows, tiles, own);
                give_slot(b, *p, 1);
                add_scaled(sums, scale, own);
                scale = next;
            }
            skip_slots<stored_ring<F>>(a, p, 1);
            c += DECODE_STORED_ACROSS;
            if (c - unit >= across) break;
            slot = await_slot<stored_ring<F>>(a, b, ALL, p);
        }
        stored_finish_up(args, b, group, item % strips, sums);
        if (warp < VALUES) say_done(b, i, item);
    }
    if (warp < VALUES) say_done(b, i, -1);
    give_slot(b, *p, 1);
    skip_slots<stored_ring<F>>(a, p, 1);
}

/* y of a group's pairs. */
static __device__ inline void stored_put_products(const gpu_decode_int4_args &a, const decode_int4_block &b, int2 group,
                                                  int strip, const float sums[TILES][4]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int token = 8 * j + lane % 4 * 2 + i;
            if (token >= (group.y & 255)) continue;
            float *y = a.y + (gpu_i64)b.pair[(group.y >> 8) + token] * a.hidden + strip * 16 + lane / 4;
            y[0] = sums[j][i];
            y[8] = sums[j][2 + i];
        }
}

template <int F>
static __device__ inline void stored_compute_down(const gpu_decode_stored_args &args, const decode_int4_block &b,
                                                  decode_place *p) {
    enum { DEEP = DECODE_STORED_DEEP(F == FP8), STRIPS = DECODE_STORED_STRIPS(F == FP8) };
    const gpu_decode_int4_args &a = args.f;
    int warp = threadIdx.x / 32, team = warp / DECODE_STORED_TEAM, mine = warp % DECODE_STORED_TEAM,
        across = stored_units_of<F>(a.inter), chunks = chunks_of<F>(a);
    p->phases = 0; /* its barriers are new */
    skip_slots<stored_ring<F>>(a, p, team);
    for (;;) {
        const gpu_u8 *slot = await_slot<stored_ring<F>>(a, b, TEAM + team, p);
        int item = b.items[p->slot];
        if (item < 0) return give_slot(b, *p, DECODE_STORED_TEAMS); /* there may be more teams than slots */
        int2 group = b.groups[item / chunks];
        int tiles = ((group.y & 255) + 7) / 8,
            first = (item % chunks * DECODE_STORED_TEAMS + team) * (DECODE_STORED_TEAM * STRIPS) + mine,
            all = a.hidden / 16;
        float sums[STRIPS][TILES][4] = {};
#pragma unroll 1
        for (int c = 0;;) {
            const gpu_u8 *rows = slot + DECODE_STORED_WEIGHTS;
            float own[STRIPS * DEEP][TILES][4] = {}, scale[STRIPS * DEEP] = {};
            if (F == FP8)
#pragma unroll
                for (int i = 0; i < STRIPS * DEEP; i++)
                    if (first + i / DEEP * DECODE_STORED_TEAM < all && c + i % DEEP < across)
                        scale[i] = stored_scales_of(args, group.x, 2, (first + i / DEEP * DECODE_STORED_TEAM) * 16,
                                                    across)[c + i % DEEP];
#pragma unroll
            for (int i = 0; i < STRIPS * DEEP; i++) {
                const int s = i / DEEP, u = i % DEEP;
                if (first + s * DECODE_STORED_TEAM < all && c + u < across)
                    stored_multiply<F>(slot + ((u * STRIPS + s) * DECODE_STORED_TEAM + mine) * DECODE_STORED_TILE,
                                       rows + u * stored_ring<F>::UNIT, tiles, F == FP8 ? own[i] : sums[s]);
            }
            give_slot(b, *p, DECODE_STORED_TEAMS); /* the scales may still be on their way */
            if (F == FP8)
#pragma unroll
                for (int i = 0; i < STRIPS * DEEP; i++) add_scaled(sums[i / DEEP], scale[i], own[i]);
            skip_slots<stored_ring<F>>(a, p, DECODE_STORED_TEAMS);
            c += DEEP;
            if (c >= across) break;
            slot = await_slot<stored_ring<F>>(a, b, TEAM + team, p);
        }
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
            if (first + s * DECODE_STORED_TEAM < all)
                stored_put_products(a, b, group, first + s * DECODE_STORED_TEAM, sums[s]);
    }
}

template <int F> static __device__ inline void decode_stored_experts(const gpu_decode_stored_args &args) {
    const gpu_decode_int4_args &a = args.f;
    decode_int4_block b = decode_stored_memory(a);
    decode_place p = {0, 0, 0};
    int warp = threadIdx.x / 32;
    bool one = threadIdx.x % 32 == 0;
    for (int e = threadIdx.x; e < a.experts; e += DECODE_INT4_THREADS) b.cursor[e] = 0;
    decode_ring_init<stored_ring<F>>(a, b, VALUES);
    /* what it reads was written before decode_stored_begin, which began when that was there */
    decode_sort<DECODE_STORED_TOKENS>(a, b);
    pdl_wait();
    if (warp < DECODE_INT4_WARPS) {
        stored_compute_up<F>(args, b, &p);
        stored_compute_down<F>(args, b, &p);
    } else if (warp == DECODE_INT4_WARPS + 2 && one) {
        count_items(a, b, strips_of(a));
    } else if (warp == DECODE_INT4_WARPS) {
        stored_copy_up<F>(args, b, &p);
        stored_copy_down<F>(args, b, &p);
    } else if (warp == DECODE_INT4_WARPS + 1) {
        copy_x<stored_ring<F>>(a, b, &p, (const gpu_u8 *)a.x, stored_units_of<F>(a.hidden), strips_of(a));
        copy_h<stored_ring<F>>(a, b, &p, (const gpu_u8 *)args.h, stored_units_of<F>(a.inter), chunks_of<F>(a),
                               strips_of(a));
    }
}
/* Grid: as many blocks as processors. */
KERNEL_PDL(decode_stored_bf16, gpu_decode_stored_args, DECODE_INT4_THREADS, 1) { decode_stored_experts<BF16>(a); }
KERNEL_PDL(decode_stored_fp8, gpu_decode_stored_args, DECODE_INT4_THREADS, 1) { decode_stored_experts<FP8>(a); }

/* One block: what they count begins at zero. */
KERNEL_OF(decode_stored_begin, gpu_decode_stored_args, DECODE_INT4_ROWS_THREADS, 1) {
    for (int i = threadIdx.x; i < a.f.pairs; i += DECODE_INT4_ROWS_THREADS) a.f.finished[i] = 0;
    if (threadIdx.x < 2) a.f.work_counter[threadIdx.x] = 0;
}
