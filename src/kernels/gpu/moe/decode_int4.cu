/* kernels/gpu/moe/decode_int4.cu: routed experts at few tokens: sort, gate and up, SiLU, down in one launch; a short
 * one before it writes x as digits, and moe_combine adds a token's slots.
 *
 * INT4 as int4_pack.h lays it out. Each (expert, at most T of its tokens) is a group; every group's weights are read
 * once. Items:
 *   up     (group, 32 rows of gate and of up): 16 computing warps have an eighth of the columns of 16 rows each;
 *   their sums are added in shared memory in the order of the warps, and silu(gate) * up goes to h [pairs, inter].
 *   Rows of x come from the second-level cache with every item, so its 32 rows are half the bytes of x that 16 were.
 *   down   (group, 256 rows of down): two teams of eight warps, a strip of 16 rows each, all columns; to y [pairs,
 *   hidden].
 * Blocks take items as they have room for them, since processors do not get equal shares of the memory's bandwidth:
 * with equal shares of the work the last one would be 40 % behind. Nothing depends on which block has which item.
 *
 * Weights and rows of x or h flow through a ring of slots, each filled by two warps: one copies weights, as far
 * ahead as there is room, across items and from up to down; they leave the second-level cache first, where x, h and y
 * shall stay. One copies rows, which in down must wait until the group's h is there. That is so when the block that is
 * last with a group's items has written it as digits, by a warp of its own. Who waits, waits for items that running
 * blocks have.
 *
 * Arithmetic in whole numbers (int16_split.cuh): the nibble of a weight in a byte's upper half is 16 q, and x is two
 * digits of base 256, two columns of the product; the sum of a group's 32 columns is exact, and the scale multiplies
 * it. Two rows of one lane share each word's mask, so that eight weights cost three instructions; as bf16 they would
 * cost seven. 16 bits of x are more than bf16 has, of h too.
 *
 * Bytes: groups * (3 inter hidden) * 9/16, and their x and h rows from the second-level cache once an item; one rank
 * of TP8 of Kimi-K2.5, 3.1 MB an expert: 5.7 us at 1 token, 156 at 40 (4.35 TB/s). A block of 576 bytes takes a warp
 * 33 instructions for up to four tokens, 15 more for each four more. */
#include "kernels/gpu/moe/int16_split.cuh"
#include "kernels/gpu/moe/decode_mma.cuh"
#include "kernels/gpu/moe/decode_packed.cuh"

typedef packed_ring<DECODE_INT4_X_STRIDE, DECODE_INT4_H_STRIDE> int4_ring;

/* ---- h as digits, by a warp of its own ---- */

static __device__ inline void int4_digits_of_h(const gpu_decode_int4_args &a, const decode_int4_block &b, int2 group) {
    int lane = threadIdx.x % 32;
    for (int i = 0; i < (group.y & 255); i++) {
        int pair = b.pair[(group.y >> 8) + i];
        const gpu_i64 row = (gpu_i64)pair * a.inter;
        float amax =
            row_to_digits(a.h + row, a.h_digits + row * 2, a.inter, lane, 32, [](float v) { return warp_max(v); });
        if (lane == 0) a.h_scale[pair] = digits_scale(amax) / 16;
    }
    fence_async_global(); /* digits are read by copies */
    __threadfence();
    __syncwarp();
}
static __device__ inline void int4_follow_up(const gpu_decode_int4_args &a, const decode_int4_block &b) {
    int lane = threadIdx.x % 32, chunks = up_chunks(a);
    for (int i = 0;; i++) {
        int last = 0, j;
        mbarrier_wait(&b.done[i % 2], i / 2 & 1);
        j = b.said[i % 2];
        __syncwarp(); /* all lanes have seen this phase before the next can begin */
        if (j < 0) return;
        j /= chunks;
        if (lane == 0) {
            __threadfence();
            last = atomicAdd(&a.finished[j], 1u) + 1 == (gpu_u32)chunks;
            __threadfence();
            mbarrier_arrive(&b.seen[i % 2]);
        }
        if (!__shfl_sync(~0u, last, 0)) continue;
        int4_digits_of_h(a, b, b.groups[j]);
        if (lane == 0) atomicAdd(&a.finished[j], 1u);
    }
}

/* ---- the computing warps ---- */

/* The warps' sums of an item together, silu(gate) * up to h; the i-th item of this block. `scale`: of the token that
 * this lane writes. Two halves of the memory in turn: the other one may still be read. */
template <int TILES>
static __device__ inline void int4_finish_up(const gpu_decode_int4_args &a, const decode_int4_block &b, int2 group,
                                             int first, int i, float scale, const float gate[TILES][2],
                                             const float up[TILES][2]) {
    enum { VALUES = 2 * TILES * 2 };
    float *all = b.sums + i % 2 * DECODE_INT4_WARPS * VALUES * 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m = group.y & 255;
#pragma unroll
    for (int v = 0; v < 2 * TILES; v++) {
        all[(warp * VALUES + v) * 32 + lane] = gate[v / 2][v % 2];
        all[(warp * VALUES + 2 * TILES + v) * 32 + lane] = up[v / 2][v % 2];
    }
    named_barrier_sync(1, DECODE_INT4_WARPS * 32);
    if (warp >= 2 * TILES * DECODE_INT4_UP_STRIPS) return;
    int strip = warp / (2 * TILES), which = warp % (2 * TILES), token = which / 2 * 4 + lane % 4,
        row = (first + strip) * PACK_ROWS + lane / 4 + which % 2 * 8;
    float of_gate = 0, of_up = 0;
    all += (strip * DECODE_INT4_UP_ACROSS * VALUES + which) * 32 + lane;
#pragma unroll 4
    for (int w = 0; w < DECODE_INT4_UP_ACROSS; w++)
        of_gate += all[w * VALUES * 32], of_up += all[(w * VALUES + 2 * TILES) * 32];
    if (token < m && row < a.inter)
        a.h[(gpu_i64)b.pair[(group.y >> 8) + token] * a.inter + row] = silu(of_gate * scale) * (of_up * scale);
}

template <int TILES>
static __device__ inline void int4_compute_up(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                              decode_place *p) {
    int warp = threadIdx.x / 32, across = a.hidden / PACK_COLS, chunks = up_chunks(a),
        strip = warp / DECODE_INT4_UP_ACROSS, unit = warp % DECODE_INT4_UP_ACROSS, i = 0;
    bool writes = warp < 2 * TILES * DECODE_INT4_UP_STRIPS;
    for (;; i++) {
        const gpu_u8 *slot = await_slot<int4_ring>(a, b, ALL, p);
        int item = b.items[p->slot];
        if (item < 0) break;
        int2 group = b.groups[item / chunks];
        int tiles = ((group.y & 255) + 3) / 4, token = warp % (2 * TILES) / 2 * 4 + threadIdx.x % 4,
            first = item % chunks * DECODE_INT4_UP_STRIPS;
        bool mine = (first + strip) * PACK_ROWS < a.inter;
        float gate[TILES][2] = {}, up[TILES][2] = {},
              scale = writes && token < (group.y & 255) ? ld_cg1(a.x_scale + b.token[(group.y >> 8) + token]) : 0;
#pragma unroll 1
        for (int c = unit;;) {
            if (mine && c < across) {
                const packed_weights g = packed_weights_at(slot + warp * PACK_BYTES),
                                     u = packed_weights_at(slot + DECODE_INT4_WEIGHTS / 2 + warp * PACK_BYTES);
                const int16_split<TILES> x =
                    digits_at<TILES>(slot + DECODE_INT4_WEIGHTS + unit * (2 * PACK_COLS), DECODE_INT4_X_STRIDE, tiles);
                give_slot(b, *p, 1);
                int4_multiply<TILES>(g, x, tiles, gate);
                int4_multiply<TILES>(u, x, tiles, up);
            } else
                give_slot(b, *p, 1);
            skip_slots<int4_ring>(a, p, 1);
            c += DECODE_INT4_UP_ACROSS;
            if (c - unit >= across) break;
            slot = await_slot<int4_ring>(a, b, ALL, p);
        }
        int4_finish_up<TILES>(a, b, group, first, i, scale, gate, up);
        if (writes) say_done(b, i, item);
    }
    if (writes) say_done(b, i, -1);
    give_slot(b, *p, 1);
    skip_slots<int4_ring>(a, p, 1);
}

/* y of a group's pairs: lane 4 g + t has rows g and g + 8 of token 4 j + t. */
template <int TILES>
static __device__ inline void int4_put_products(const gpu_decode_int4_args &a, const decode_int4_block &b, int2 group,
                                                int strip, const float scale[TILES], const float sums[TILES][2]) {
    int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        if (4 * j + t >= (group.y & 255)) break;
        float *y = a.y + (gpu_i64)b.pair[(group.y >> 8) + 4 * j + t] * a.hidden + strip * PACK_ROWS + lane / 4;
        y[0] = scale[j] * sums[j][0];
        y[8] = scale[j] * sums[j][1];
    }
}

/* sums += `blocks` blocks of a strip times the rows of h behind them in the slot. */
template <int TILES, int BLOCKS>
static __device__ inline void multiply_strip(const gpu_u8 *data, const gpu_u8 *rows, int tiles, float sums[TILES][2]) {
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        int4_multiply<TILES>(packed_weights_at(data + i * PACK_BYTES),
                             digits_at<TILES>(rows + i * (2 * PACK_COLS), DECODE_INT4_H_STRIDE, tiles), tiles, sums);
}

template <int TILES>
static __device__ inline void int4_compute_down(const gpu_decode_int4_args &a, const decode_int4_block &b,
                                                decode_place *p) {
    int warp = threadIdx.x / 32, team = warp / DECODE_INT4_STRIPS, mine = warp % DECODE_INT4_STRIPS,
        across = a.inter / PACK_COLS, all = a.hidden / PACK_ROWS, chunks = down_chunks(a);
    p->phases = 0; /* its barriers are new */
    skip_slots<int4_ring>(a, p, team);
    for (;;) {
        const gpu_u8 *slot = await_slot<int4_ring>(a, b, TEAM + team, p);
        int item = b.items[p->slot];
        if (item < 0) return;
        int2 group = b.groups[item / chunks];
        int tiles = ((group.y & 255) + 3) / 4, strip = item % chunks * DECODE_INT4_WARPS + warp;
        float sums[TILES][2] = {}, scale[TILES];
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            int token = 4 * j + (int)threadIdx.x % 4;
            scale[j] = token < (group.y & 255) ? ld_cg1(a.h_scale + b.pair[(group.y >> 8) + token]) : 0;
        }
#pragma unroll 1
        for (int c = 0;;) {
            int blocks = across - c < DECODE_INT4_DEEP ? across - c : DECODE_INT4_DEEP;
            const gpu_u8 *data = slot + mine * blocks * PACK_BYTES, *rows = slot + DECODE_INT4_WEIGHTS;
            if (strip < all) {
                if (blocks == DECODE_INT4_DEEP)
                    multiply_strip<TILES, DECODE_INT4_DEEP>(data, rows, tiles, sums);
                else
                    for (int i = 0; i < blocks; i++)
                        multiply_strip<TILES, 1>(data + i * PACK_BYTES, rows + i * (2 * PACK_COLS), tiles, sums);
            }
            give_slot(b, *p, DECODE_INT4_TEAMS);
            skip_slots<int4_ring>(a, p, DECODE_INT4_TEAMS);
            c += DECODE_INT4_DEEP;
            if (c >= across) break;
            slot = await_slot<int4_ring>(a, b, TEAM + team, p);
        }
        if (strip < all) int4_put_products<TILES>(a, b, group, strip, scale, sums);
    }
}

template <int TILES> static __device__ inline void decode_int4_experts(const gpu_decode_int4_args &a) {
    decode_int4_block b = decode_int4_memory(a);
    decode_place p = {0, 0, 0};
    int warp = threadIdx.x / 32;
    for (int e = threadIdx.x; e < a.experts; e += DECODE_INT4_THREADS) b.cursor[e] = 0;
    decode_ring_init<int4_ring>(a, b, 2 * TILES * DECODE_INT4_UP_STRIPS);
    if (a.prepared) pdl_wait();
    /* else what it reads was written before decode_int4_rows, which began when that was there */
    decode_sort<4 * TILES>(a, b);
    if (!a.prepared) pdl_wait();
    if (warp < DECODE_INT4_WARPS) {
        int4_compute_up<TILES>(a, b, &p);
        int4_compute_down<TILES>(a, b, &p);
    } else if (warp == DECODE_INT4_WARPS + 2) {
        int4_follow_up(a, b);
    } else if (warp == DECODE_INT4_WARPS) {
        copy_packed_up<int4_ring>(a, b, &p);
        copy_packed_down<int4_ring>(a, b, &p);
    } else if (warp == DECODE_INT4_WARPS + 1) {
        copy_x<int4_ring>(a, b, &p, a.x_digits, a.hidden / PACK_COLS, up_chunks(a));
        copy_h<int4_ring>(a, b, &p, a.h_digits, a.inter / PACK_COLS, down_chunks(a), up_chunks(a) + 1);
    }
}
/* Grid: as many blocks as processors. The kernels differ in T, the tokens of a group. */
KERNEL_PDL(decode_int4_4, gpu_decode_int4_args, DECODE_INT4_THREADS, 1) { decode_int4_experts<1>(a); }
KERNEL_PDL(decode_int4_8, gpu_decode_int4_args, DECODE_INT4_THREADS, 1) { decode_int4_experts<2>(a); }

/* One block a token: x as digits; what `few` counts begins at zero. Where the gate stands beside a product its
 * blocks do that (int16_split.cuh, digits_of_row). */
KERNEL_OF(decode_int4_rows, gpu_decode_int4_args, DECODE_INT4_ROWS_THREADS, 1) {
    __shared__ float each[DECODE_INT4_ROWS_THREADS / 32];
    int token = blockIdx.x, thread = threadIdx.x;
    const gpu_i64 row = (gpu_i64)token * a.hidden;
    for (int i = thread; i < a.k; i += DECODE_INT4_ROWS_THREADS) a.finished[token * a.k + i] = 0;
    if (token == 0 && thread < 2) a.work_counter[thread] = 0;
    float amax =
        row_to_digits(a.x + row, a.x_digits + row * 2, a.hidden, thread, DECODE_INT4_ROWS_THREADS, [&](float v) {
            v = warp_max(v);
            if (thread % 32 == 0) each[thread / 32] = v;
            __syncthreads();
            for (int w = 0; w < DECODE_INT4_ROWS_THREADS / 32; w++) v = max_nan(v, each[w]);
            return v;
        });
    if (thread < 32) {
        float deferred = a.deferred.squares ? deferred_scale(a.deferred, token) : 1.0f;
        if (thread == 0) a.x_scale[token] = digits_scale(amax) / 16 * deferred;
    }
    fence_async_global(); /* digits are read by copies */
}
