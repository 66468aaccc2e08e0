/* kernels/gpu/few.cu: routed experts at few tokens, all of it in one launch: sort, gate and up, SiLU, down, weighted sum.
 *
 * INT4 as pack.h lays it out. Each (expert, at most T of its tokens) is a group; every group's weights are read once.
 *   up     an item is (group, 16 rows of gate and of up); the blocks take them in turn. The slots of columns go to the two
 *          halves of the 16 computing warps in turn; all add up in shared memory in the order of the warps, and write silu(gate) * up to h [pairs, inter].
 *   down   a block owns up to 4 strips of 16 rows of the output, for all groups; a warp a strip, and four warps a strip for experts
 *          whose numbers modulo 4 are 0, 1, 2, 3. With `totals` each warp adds weight * product to its own total of that token,
 *          expert after expert in ascending order; at the end the four and the shared expert are added. Without, products go to
 *          y [pairs, hidden] (moe_combine).
 * A warp of its own copies: weights and rows of x or h flow through a ring of slots, ahead of the computing as far as there is room,
 * across items and from up to down: all blocks must have written h before down's rows are copied, but its weights need not
 * wait. There are no more blocks than processors, so that they may wait for each other.
 *
 * Arithmetic: 128 + u is a bf16 with the nibble in its low bits, so the tensor cores take (128 + u) x, and -136 times the sum of x
 * over the group's columns is what they start from; the scale multiplies the float32 sum of 32 columns. No weight is rounded.
 *
 * Bytes: groups * (3 inter hidden) * 9/16, and their x and h rows from the second-level cache once an item; one rank of TP8 of
 * Kimi-K2.5, 3.1 MB an expert: 5.7 us at 1 token, 156 at 40 (4.35 TB/s). A block of 576 bytes takes a warp
 * 65 instructions, 6 to 8 of them mma. */
#include "kernels/gpu/few.h"
#include "kernels/gpu/hopper.cuh"
#include "kernels/gpu/pack.cuh"

/* A block's view of its shared memory and of the call. */
typedef struct {
    gpu_u8 *ring;
    gpu_u64 *full, *empty;
    float *sums, *totals; /* the same memory: of up, then of down */
    int2 *entry;          /* of the sorted list: token, weight's bits */
    unsigned short *pair; /* of it */
    int2 *groups;                  /* expert; first in the list << 8 | how many */
    int *cursor;                   /* [experts] */
    int n_groups, twice;           /* twice: some token chose an expert more than once */
    int first_strip, end_strip;    /* of down: this block's */
    gpu_u32 meeting;
} few_block;

/* Where a warp is in the ring. Slots go to different warps in turn, which do not look at the others' slots: each of FEW_KINDS sets of
 * warps has full-barriers of its own for all slots, and a reader keeps their phases. */
typedef struct {
    int slot;
    gpu_u32 parity; /* of the writer: of this round */
    gpu_u32 phases; /* of a reader: a bit a slot */
} few_place;
enum { UP_SET = FEW_KINDS / 2 }; /* of up's two halves of the warps: sets 0 and UP_SET */
static __device__ inline void next_place(const gpu_few_args &a, few_place *p) {
    if (++p->slot == a.slots) p->slot = 0, p->parity ^= 1;
}

/* A reader goes on by n slots, n at most the ring's. */
static __device__ inline void skip_slots(const gpu_few_args &a, few_place *p, int n) {
    p->slot += n;
    if (p->slot >= a.slots) p->slot -= a.slots;
}

static __device__ inline few_block few_memory(const gpu_few_args &a) {
    SHARED_TILES(memory);
    few_block b;
    b.full = (gpu_u64 *)memory, b.empty = b.full + FEW_KINDS * FEW_SLOTS;
    b.ring = memory + FEW_BARRIERS;
    b.sums = (float *)(memory + a.at_sums);
    b.totals = b.sums;
    b.groups = (int2 *)(memory + a.at_groups);
    b.cursor = (int *)(memory + a.at_cursor);
    b.entry = (int2 *)(memory + a.at_entries);
    b.pair = (unsigned short *)(memory + a.at_pairs);
    b.first_strip = a.hidden / PACK_ROWS * (int)blockIdx.x / (int)gridDim.x;
    b.end_strip = a.hidden / PACK_ROWS * (int)(blockIdx.x + 1) / (int)gridDim.x;
    return b;
}

/* ---- the plan: every block sorts the pairs by itself ---- */

/* Pairs, and groups of experts 0, 1, 2, 3 modulo 4: 16 bits each. */
typedef struct {
    int pairs, low, high;
} few_count;
static __device__ inline int groups_of(const few_count &c, int kind) { return (kind < 2 ? c.low : c.high) >> 16 * (kind % 2) & 0xffff; }
static __device__ inline void count_more(few_count *c, const few_count &d) { c->pairs += d.pairs, c->low += d.low, c->high += d.high; }
static __device__ inline void count_groups(few_count *c, int kind, int groups) {
    c->low += kind < 2 ? groups << 16 * (kind % 2) : 0;
    c->high += kind < 2 ? 0 : groups << 16 * (kind % 2);
}
/* Where group i of a kind comes when the kinds take turns, as long as they have any. */
static __device__ inline int turn_of(const few_count &total, int kind, int i) {
    int at = 0;
    for (int k = 0; k < FEW_KINDS; k++) {
        int n = groups_of(total, k);
        at += (n < i ? n : i) + (k < kind && n > i);
    }
    return at;
}

/* Of the experts of all threads before this one, `each` a thread, and of all. */
template <int T> static __device__ inline few_count before_me(const gpu_few_args &a, const few_block &b, int each, few_count *total) {
    int *warps = (int *)b.sums, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    few_count mine = {0, 0, 0}, sum;
    for (int e = thread * each; warp < FEW_WARPS && e < thread * each + each && e < a.experts; e++) {
        mine.pairs += b.cursor[e];
        count_groups(&mine, e % FEW_KINDS, (b.cursor[e] + T - 1) / T);
    }
    sum = mine;
    for (int d = 1; d < 32; d *= 2) {
        few_count other = {__shfl_up_sync(~0u, sum.pairs, d), __shfl_up_sync(~0u, sum.low, d), __shfl_up_sync(~0u, sum.high, d)};
        if (lane >= d) count_more(&sum, other);
    }
    if (lane == 31 && warp < FEW_WARPS) warps[3 * warp] = sum.pairs, warps[3 * warp + 1] = sum.low, warps[3 * warp + 2] = sum.high;
    __syncthreads();
    *total = {0, 0, 0};
    for (int w = 0; w < FEW_WARPS; w++) {
        if (w == warp) count_more(&sum, *total);
        count_more(total, {warps[3 * w], warps[3 * w + 1], warps[3 * w + 2]});
    }
    return {sum.pairs - mine.pairs, sum.low - mine.low, sum.high - mine.high};
}

template <int T> static __device__ inline void few_plan(const gpu_few_args &a, few_block &b) {
    unsigned short *ids = (unsigned short *)b.ring /* not yet in use */, *unsorted = ids + a.pairs;
    float *weights = (float *)(b.ring + (a.pairs * 4 + 15) / 16 * 16);
    bool twice = false;
    b.meeting = *(volatile const gpu_u32 *)&a.meeting[1];
    for (int p = threadIdx.x; p < a.pairs; p += FEW_THREADS) {
        int id = a.ids[p];
        bool valid = id >= 0 && id < a.experts;
        ids[p] = (unsigned short)(valid ? id : (int)FEW_NONE);
        if (valid) atomicAdd(&b.cursor[id], 1);
        if (a.totals) weights[p] = a.weights[p];
    }
    __syncthreads();
    for (int p = threadIdx.x; p < a.pairs; p += FEW_THREADS)
        for (int q = p - p % a.k; q < p; q++) twice |= ids[q] == ids[p] && ids[p] != FEW_NONE;
    int each = (a.experts + FEW_WARPS * 32 - 1) / (FEW_WARPS * 32);
    few_count total, at = before_me<T>(a, b, each, &total);
    b.n_groups = 0;
    for (int k = 0; k < FEW_KINDS; k++) b.n_groups += groups_of(total, k);
    for (int e = threadIdx.x * each; threadIdx.x < FEW_WARPS * 32 && e < (int)threadIdx.x * each + each && e < a.experts; e++) {
        int count = b.cursor[e], kind = e % FEW_KINDS, j = groups_of(at, kind), n = (count + T - 1) / T;
        b.cursor[e] = at.pairs;
        for (int i = 0; i < n; i++) b.groups[turn_of(total, kind, j + i)] = {e, (at.pairs + i * T) << 8 | (count - i * T < T ? count - i * T : T)};
        at.pairs += count;
        count_groups(&at, kind, n);
    }
    b.twice = __syncthreads_or(twice);
    for (int p = threadIdx.x; p < a.pairs; p += FEW_THREADS)
        if (ids[p] != FEW_NONE) unsorted[atomicAdd(&b.cursor[ids[p]], 1)] = (unsigned short)p;
    __syncthreads();
    /* An expert's pairs in ascending order: all blocks must make the same groups. A cursor is at the end of its list by now. */
    for (int i = threadIdx.x; i < total.pairs; i += FEW_THREADS) {
        int p = unsorted[i], e = ids[p], from = e ? b.cursor[e - 1] : 0, to = b.cursor[e], at = from;
        for (int j = from; j < to; j++) at += unsorted[j] < p;
        b.pair[at] = (unsigned short)p;
        b.entry[at] = {p / a.k, a.totals ? __float_as_int(weights[p]) : 0};
    }
    fence_async(); /* copies come where ids were */
    __syncthreads();
}

/* ---- the copying warp ---- */

static __device__ inline gpu_u64 *full_of(const few_block &b, int set, int slot) { return &b.full[set * FEW_SLOTS + slot]; }

/* Waits until the slot is free; `bytes` for the warps of `set` will follow. */
static __device__ inline gpu_u8 *open_slot(const gpu_few_args &a, const few_block &b, few_place p, int set, gpu_u32 bytes) {
    barrier_wait(&b.empty[p.slot], p.parity ^ 1);
    if (threadIdx.x % 32 == 0) barrier_expect(full_of(b, set, p.slot), bytes);
    __syncwarp();
    return b.ring + (gpu_u32)p.slot * a.slot_bytes;
}

template <int T> static __device__ inline void copy_up(const gpu_few_args &a, const few_block &b, few_place *p) {
    int lane = threadIdx.x % 32, across = a.hidden / PACK_COLS, strips = a.inter / PACK_ROWS;
    for (int item = blockIdx.x; item < b.n_groups * strips; item += gridDim.x) {
        int2 group = b.groups[item / strips];
        int m = group.y & 255;
        gpu_u64 at = (gpu_u64)group.x * a.expert_bytes + (gpu_u64)(item % strips * across) * PACK_BYTES;
        const gpu_bf16 *x = a.x + (gpu_i64)b.entry[(group.y >> 8) + (lane < m ? lane : 0)].x * a.hidden;
        for (int c = 0, set = 0; c < across; c += FEW_ACROSS, set ^= UP_SET) {
            gpu_u32 blocks = across - c < FEW_ACROSS ? across - c : FEW_ACROSS, bytes = blocks * PACK_BYTES;
            gpu_u8 *slot = open_slot(a, b, *p, set, 2 * bytes + (gpu_u32)m * blocks * PACK_COLS * 2);
            if (lane >= 30) bulk_copy(slot + (lane - 30) * FEW_ACROSS * PACK_BYTES, (lane == 30 ? a.gate : a.up) + at + (gpu_u64)c * PACK_BYTES, bytes, full_of(b, set, p->slot));
            if (lane < m) bulk_copy(slot + FEW_WEIGHTS + lane * FEW_X_STRIDE, x + c * PACK_COLS, blocks * PACK_COLS * 2, full_of(b, set, p->slot));
            next_place(a, p);
        }
    }
}

/* One slot of down: `strips` strips from `strip` of group j's expert, `blocks` blocks from `block` of each. */
typedef struct {
    int2 group;
    int j, strip, strips, block, blocks;
} few_unit;
static __device__ inline void open_unit(const gpu_few_args &a, const few_block &b, few_unit *f) {
    int across = a.inter / PACK_COLS;
    f->group = b.groups[f->j];
    f->strips = b.end_strip - f->strip < FEW_STRIPS ? b.end_strip - f->strip : FEW_STRIPS;
    f->blocks = across - f->block < FEW_DEEP ? across - f->block : FEW_DEEP;
}
static __device__ inline void next_unit(const gpu_few_args &a, const few_block &b, few_unit *f) {
    f->block += FEW_DEEP;
    if (f->block * PACK_COLS >= a.inter) {
        f->block = 0;
        if (++f->j == b.n_groups) f->j = 0, f->strip += FEW_STRIPS;
    }
    open_unit(a, b, f);
}
static __device__ inline void copy_down_weights(const gpu_few_args &a, const few_block &b, const few_unit &f, few_place p) {
    int lane = threadIdx.x % 32, across = a.inter / PACK_COLS;
    gpu_u32 bytes = (gpu_u32)f.blocks * PACK_BYTES, rows = (gpu_u32)(f.group.y & 255) * f.blocks * PACK_COLS * 2;
    gpu_u8 *slot = open_slot(a, b, p, f.group.x % FEW_KINDS, f.strips * bytes + rows);
    const gpu_u8 *from = a.down + (gpu_u64)f.group.x * a.expert_bytes + ((gpu_u64)f.strip * across + f.block) * PACK_BYTES;
    bool whole = f.blocks == across; /* the strips are one run */
    if (lane < (whole ? 1 : f.strips))
        bulk_copy(slot + lane * bytes, from + (gpu_u64)(lane * across) * PACK_BYTES, whole ? f.strips * bytes : bytes, full_of(b, f.group.x % FEW_KINDS, p.slot));
}
static __device__ inline void copy_down_rows(const gpu_few_args &a, const few_block &b, const few_unit &f, few_place p) {
    int lane = threadIdx.x % 32;
    if (lane >= (f.group.y & 255)) return;
    const gpu_bf16 *h = a.h + (gpu_i64)b.pair[(f.group.y >> 8) + lane] * a.inter + f.block * PACK_COLS;
    bulk_copy(b.ring + (gpu_u32)p.slot * a.slot_bytes + FEW_WEIGHTS + lane * FEW_H_STRIDE, h, f.blocks * PACK_COLS * 2, full_of(b, f.group.x % FEW_KINDS, p.slot));
}
static __device__ inline void copy_down(const gpu_few_args &a, const few_block &b, few_place *p) {
    int chunks = (a.inter / PACK_COLS + FEW_DEEP - 1) / FEW_DEEP;
    int units = (b.end_strip - b.first_strip + FEW_STRIPS - 1) / FEW_STRIPS * b.n_groups * chunks, ahead = units < a.slots ? units : a.slots;
    few_unit first = {{0, 0}, 0, b.first_strip, 0, 0, 0}, f;
    few_place rows = *p;
    if (!units) return;
    open_unit(a, b, &first);
    f = first;
    for (int u = 0; u < ahead; u++, next_place(a, p), next_unit(a, b, &f)) copy_down_weights(a, b, f, *p);
    blocks_wait(a.meeting, b.meeting); /* h is written */
    fence_async_global();
    for (int u = 0; u < ahead; u++, next_place(a, &rows), next_unit(a, b, &first)) copy_down_rows(a, b, first, rows);
    for (int u = ahead; u < units; u++, next_place(a, p), next_unit(a, b, &f)) {
        copy_down_weights(a, b, f, *p);
        copy_down_rows(a, b, f, *p);
    }
}

/* ---- the computing warps ---- */

/* What a warp multiplies at a time: W blocks of 16 x 64 weights of the same columns, and the tokens' x or h of these. */
template <int TILES, int W> struct few_operands {
    gpu_u32 b[TILES][8];
    uint4 word[W];
    uint2 scale[W];
};

/* `apart`: bytes between the W blocks; x: the tokens' rows, `stride` bytes apart. */
template <int TILES, int W>
static __device__ inline void load_operands(few_operands<TILES, W> &o, const gpu_u8 *data, int apart, const gpu_u8 *x, int stride, int tiles) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int w = 0; w < W; w++) {
        o.word[w] = *(const uint4 *)(data + w * apart + 16 * lane);
        o.scale[w] = *(const uint2 *)(data + w * apart + PACK_SCALES + lane / 4 * 8);
    }
    x += lane % 8 * stride + lane / 8 * 16;
#pragma unroll
    for (int j = 0; j < TILES; j++)
        if (!j || j < tiles) load_matrix4(&o.b[j][0], x + j * 8 * stride), load_matrix4(&o.b[j][4], x + j * 8 * stride + 64);
}

/* sums[w][j] += block w times the 8 tokens of tile j. */
template <int TILES, int W> static __device__ inline void multiply(const few_operands<TILES, W> &o, int tiles, float sums[W][TILES][4]) {
    const gpu_u32 minus136[4] = {0xc308c308u, 0xc308c308u, 0xc308c308u, 0xc308c308u};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float start[TILES][4];
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            if (j && j >= tiles) continue;
            for (int i = 0; i < 4; i++) start[j][i] = 0;
            mma_bf16(start[j], minus136, &o.b[j][4 * half]);
            mma_bf16(start[j], minus136, &o.b[j][4 * half + 2]);
        }
#pragma unroll
        for (int w = 0; w < W; w++) {
            gpu_u32 first = half ? o.word[w].z : o.word[w].x, second = half ? o.word[w].w : o.word[w].y, a[2][4];
            float upper = half ? high_f32(o.scale[w].x) : low_f32(o.scale[w].x), lower = half ? high_f32(o.scale[w].y) : low_f32(o.scale[w].y);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[0][i] = nibbles_plus128(first >> 4 * i);
                a[1][i] = nibbles_plus128(second >> 4 * i);
            }
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                if (j && j >= tiles) continue;
                float c[4] = {start[j][0], start[j][1], start[j][2], start[j][3]};
                mma_bf16(c, a[0], &o.b[j][4 * half]);
                mma_bf16(c, a[1], &o.b[j][4 * half + 2]);
                sums[w][j][0] = fmaf(upper, c[0], sums[w][j][0]);
                sums[w][j][1] = fmaf(upper, c[1], sums[w][j][1]);
                sums[w][j][2] = fmaf(lower, c[2], sums[w][j][2]);
                sums[w][j][3] = fmaf(lower, c[3], sums[w][j][3]);
            }
        }
    }
}

static __device__ inline const gpu_u8 *await_slot(const gpu_few_args &a, const few_block &b, int set, few_place *p) {
    barrier_wait(full_of(b, set, p->slot), p->phases >> p->slot & 1);
    p->phases ^= 1u << p->slot;
    return b.ring + (gpu_u32)p->slot * a.slot_bytes;
}
/* Read: FEW_ACROSS arrivals free it, `times` of them this warp's. */
static __device__ inline void give_slot(const few_block &b, few_place p, int times) {
    __syncwarp();
    if ((int)(threadIdx.x % 32) < times) barrier_arrive(&b.empty[p.slot]);
}

/* The warps' sums of an item together, silu(gate) * up to h. `turn`: which half of the memory; the other one may still be read. */
template <int TILES> static __device__ inline void finish_up(const gpu_few_args &a, const few_block &b, int2 group, int strip, int turn, float sums[2][TILES][4]) {
    enum { VALUES = 2 * TILES * 4 };
    float *all = b.sums + turn * FEW_WARPS * VALUES * 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m = group.y & 255;
#pragma unroll
    for (int v = 0; v < VALUES; v++) all[(warp * VALUES + v) * 32 + lane] = sums[v / (4 * TILES)][v / 4 % TILES][v % 4];
    threads_sync(1, FEW_WARPS * 32);
    for (int v = warp; v < 4 * TILES; v += FEW_WARPS) {
        int token = v / 4 * 8 + lane % 4 * 2 + v % 2, row = strip * PACK_ROWS + lane / 4 + v % 4 / 2 * 8;
        if (token >= m) continue;
        float gate = 0, up = 0;
#pragma unroll 4
        for (int w = 0; w < FEW_WARPS; w++) gate += all[(w * VALUES + v) * 32 + lane], up += all[(w * VALUES + 4 * TILES + v) * 32 + lane];
        a.h[(gpu_i64)b.pair[(group.y >> 8) + token] * a.inter + row] = bf16_of(silu(gate) * up);
    }
}

template <int TILES> static __device__ inline void compute_up(const gpu_few_args &a, const few_block &b, few_place *p) {
    int warp = threadIdx.x / 32, half = warp / FEW_ACROSS, mine = warp % FEW_ACROSS, across = a.hidden / PACK_COLS, strips = a.inter / PACK_ROWS, turn = 0;
    int slots = (across + FEW_ACROSS - 1) / FEW_ACROSS;
    for (int item = blockIdx.x; item < b.n_groups * strips; item += gridDim.x, turn ^= 1) {
        int2 group = b.groups[item / strips];
        int tiles = ((group.y & 255) + 7) / 8;
        float sums[2][TILES][4];
        for (int i = 0; i < 8 * TILES; i++) (&sums[0][0][0])[i] = 0;
        few_place q = *p;
        skip_slots(a, &q, half);
#pragma unroll 1
        for (int c = half * FEW_ACROSS + mine; c < across + mine; c += 2 * FEW_ACROSS) {
            few_operands<TILES, 2> o;
            const gpu_u8 *slot = await_slot(a, b, half * UP_SET, &q);
            if (c < across) load_operands<TILES, 2>(o, slot + mine * PACK_BYTES, FEW_ACROSS * PACK_BYTES, slot + FEW_WEIGHTS + mine * PACK_COLS * 2, FEW_X_STRIDE, tiles);
            give_slot(b, q, 1);
            skip_slots(a, &q, 2);
            if (c < across) multiply<TILES, 2>(o, tiles, sums);
        }
        p->phases = q.phases;
        skip_slots(a, p, slots % a.slots);
        finish_up<TILES>(a, b, group, item % strips, turn, sums);
    }
    fence_async_global(); /* h is read by copies */
    threads_sync(1, FEW_WARPS * 32);
    if (threadIdx.x == 0) blocks_arrive(a.meeting, gridDim.x);
}

/* total[token] += weight * product, of one warp. */
template <int TILES> static __device__ inline void add_totals(const few_block &b, int2 group, float *total, float sums[TILES][4]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, m = group.y & 255, first = group.y >> 8;
    for (int turn = 0; turn < (b.twice ? 4 : 1); turn++) {
        if (!b.twice || turn == t)
#pragma unroll
            for (int v = 0; v < 2 * TILES; v++) {
                int at = v / 2 * 8 + 2 * t + v % 2;
                if (v / 2 * 8 + v % 2 >= m) break;
                if (at >= m) continue;
                int2 e = b.entry[first + at];
                float w = __int_as_float(e.y), *row = total + e.x * PACK_ROWS + g;
                row[0] = fmaf(w, sums[v / 2][v % 2], row[0]);
                row[8] = fmaf(w, sums[v / 2][2 + v % 2], row[8]);
            }
        __syncwarp();
    }
}

/* y of a group's pairs. */
template <int TILES> static __device__ inline void put_products(const gpu_few_args &a, const few_block &b, int2 group, int strip, float sums[TILES][4]) {
    int lane = threadIdx.x % 32, m = group.y & 255;
#pragma unroll
    for (int v = 0; v < 4 * TILES; v++) {
        int at = v / 4 * 8 + lane % 4 * 2 + v % 2;
        if (at < m) a.y[(gpu_i64)b.pair[(group.y >> 8) + at] * a.hidden + strip * PACK_ROWS + lane / 4 + v % 4 / 2 * 8] = sums[v / 4][v % 4];
    }
}

/* The output of `strips` strips: the four kinds of experts and the shared one. */
static __device__ inline void put_totals(const gpu_few_args &a, const few_block &b, int strip, int strips) {
    int rows = strips * PACK_ROWS, each = a.n * PACK_ROWS;
    for (int i = threadIdx.x; i < a.n * rows; i += FEW_WARPS * 32) {
        int token = i / rows, row = i % rows;
        const float *total = b.totals + row / PACK_ROWS * each + token * PACK_ROWS + row % PACK_ROWS;
        gpu_i64 at = (gpu_i64)token * a.hidden + strip * PACK_ROWS + row;
        float sum = total[0];
        for (int k = 1; k < FEW_KINDS; k++) sum += total[k * FEW_STRIPS * each];
        if (a.shared_expert) sum += f32_of(a.shared_expert[at]);
        a.out[at] = bf16_of(sum);
    }
}

/* sums += one group's product with the warp's strip, from the slots in turn. */
template <int TILES>
static __device__ inline void down_product(const gpu_few_args &a, const few_block &b, few_place *p, bool mine, int tiles, float sums[1][TILES][4]) {
    enum { ONCE = TILES > 1 ? 1 : 2 }; /* blocks in registers */
    int strip = threadIdx.x / 32 % FEW_STRIPS, across = a.inter / PACK_COLS;
    for (int c = 0; c < across; c += FEW_DEEP, skip_slots(a, p, 1)) {
        int blocks = across - c < FEW_DEEP ? across - c : FEW_DEEP;
        const gpu_u8 *slot = await_slot(a, b, threadIdx.x / 32 / FEW_STRIPS, p);
#pragma unroll
        for (int from = 0; from < FEW_DEEP; from += ONCE) {
            few_operands<TILES, 1> o[ONCE];
#pragma unroll
            for (int i = 0; i < ONCE; i++)
                if (mine && from + i < blocks)
                    load_operands<TILES, 1>(o[i], slot + (strip * blocks + from + i) * PACK_BYTES, 0, slot + FEW_WEIGHTS + (from + i) * PACK_COLS * 2, FEW_H_STRIDE, tiles);
            if (from + ONCE == FEW_DEEP) give_slot(b, *p, 2);
#pragma unroll
            for (int i = 0; i < ONCE; i++)
                if (mine && from + i < blocks) multiply<TILES, 1>(o[i], tiles, sums);
        }
    }
}

template <int TILES> static __device__ inline void compute_down(const gpu_few_args &a, const few_block &b, few_place *p) {
    int warp = threadIdx.x / 32, kind = warp / FEW_STRIPS, mine = warp % FEW_STRIPS, chunks = (a.inter / PACK_COLS + FEW_DEEP - 1) / FEW_DEEP;
    float *total = b.totals + warp * a.n * PACK_ROWS;
    if (kind % UP_SET) p->phases = 0; /* its barriers are new */
    for (int strip = b.first_strip; strip < b.end_strip; strip += FEW_STRIPS) {
        int strips = b.end_strip - strip < FEW_STRIPS ? b.end_strip - strip : FEW_STRIPS;
        for (int i = threadIdx.x % 32; a.totals && i < a.n * PACK_ROWS; i += 32) total[i] = 0;
        __syncwarp();
        for (int j = 0; j < b.n_groups; j++) {
            int2 group = b.groups[j];
            int tiles = ((group.y & 255) + 7) / 8;
            if (group.x % FEW_KINDS != kind) {
                skip_slots(a, p, chunks % a.slots);
                continue;
            }
            float sums[1][TILES][4];
            for (int i = 0; i < 4 * TILES; i++) (&sums[0][0][0])[i] = 0;
            down_product<TILES>(a, b, p, mine < strips, tiles, sums);
            if (mine >= strips) continue;
            if (a.totals)
                add_totals<TILES>(b, group, total, sums[0]);
            else
                put_products<TILES>(a, b, group, strip + mine, sums[0]);
        }
        if (!a.totals) continue;
        threads_sync(1, FEW_WARPS * 32);
        put_totals(a, b, strip, strips);
        threads_sync(1, FEW_WARPS * 32);
    }
}

template <int TILES> static __device__ inline void few_experts(const gpu_few_args &a) {
    few_block b = few_memory(a);
    few_place p = {0, 0, 0};
    for (int e = threadIdx.x; e < a.experts; e += FEW_THREADS) b.cursor[e] = 0;
    if (threadIdx.x == 32)
        for (int i = 0; i < FEW_KINDS * FEW_SLOTS; i++) barrier_init(&b.full[i], 1);
    if (threadIdx.x == 0)
        for (int i = 0; i < a.slots; i++) barrier_init(&b.empty[i], FEW_ACROSS);
    barrier_fence_init();
    __syncthreads();
    after_previous();
    few_plan<8 * TILES>(a, b);
    if (threadIdx.x >= FEW_WARPS * 32) {
        copy_up<8 * TILES>(a, b, &p);
        copy_down(a, b, &p);
    } else {
        compute_up<TILES>(a, b, &p);
        compute_down<TILES>(a, b, &p);
    }
}
/* Grid: as many blocks as processors. */
KERNEL_EARLY(few, gpu_few_args, FEW_THREADS, 1) { few_experts<1>(a); }
