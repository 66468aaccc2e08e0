/* kernels/gpu/moe/decode_fused.cuh: the parts of decode_fused.cu, which tells what they do, for ffn_fused.cu too. */
#ifndef KERNELS_GPU_MOE_DECODE_FUSED_CUH
#define KERNELS_GPU_MOE_DECODE_FUSED_CUH
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/moe/int16_split.cuh"
#include "kernels/gpu/moe/decode_mma.cuh"

enum {
    MOST_SLOTS = 16,
    WARPS = DECODE_INT4_WARPS,
    COPIER = DECODE_INT4_WARPS,
    MULTIPLIERS = WARPS * 32,
    SOON = 4 /* items of up a block */
};

typedef struct {
    gpu_u64 full[MOST_SLOTS], empty[MOST_SLOTS];
    int item[MOST_SLOTS]; /* -1: none any more */
    int turn, n_groups, n_rows;
    int id[DECODE_FUSED_PAIRS]; /* of pairs, and their weights: ffn_fused.cu's gate */
    float pair_weight[DECODE_FUSED_PAIRS];
    gpu_u64 first;                                 /* ffn_fused.cu: the rows of its own products are there */
    int expert[DECODE_FUSED_PAIRS];                /* of a group */
    int row[DECODE_FUSED_PAIRS][DECODE_INT4_TILE]; /* of h, of a group's tokens; -1: not chosen */
    float weight[DECODE_FUSED_PAIRS];              /* of a row's pair */
    gpu_u32 amax[DECODE_INT4_TILE][WARPS];
    float x_scale[DECODE_INT4_TILE], deferred[DECODE_INT4_TILE]; /* what a row of x has yet to be multiplied by */
} decode_fused_state;
static_assert(sizeof(decode_fused_state) <= DECODE_FUSED_STATE, "decode_int4.h");

typedef struct {
    decode_fused_state *s;
    gpu_u8 *ring, *digits; /* of x, then of h */
    float *sums;           /* up: [2][WARPS][4][32]; down: half of that */
    float *share;          /* down: the other half: what a unit counts in the result, of each 64 values of h */
    gpu_u8 *shared_h;      /* ffn_fused.cu: h of the shared expert in bf16, rows shared_stride() apart */
} decode_fused_block;
static __device__ inline decode_fused_block fused_block_of(const gpu_decode_fused_args &a, gpu_u8 *memory) {
    float *sums = (float *)(memory + a.at_sums);
    return {(decode_fused_state *)memory, memory + DECODE_FUSED_STATE, memory + a.at_digits, sums,
            sums + 2 * WARPS * 2 * 32,    memory + a.at_shared_h};
}
static __device__ inline pipeline ring_begin(const decode_fused_block &b) {
    return pipeline_begin(b.s->full, b.s->empty);
}
static __device__ inline void open_ring(const gpu_decode_fused_args &a, const decode_fused_block &b) {
    if ((int)threadIdx.x < a.slots)
        pipeline_init(pipeline_begin(b.s->full + threadIdx.x, b.s->empty + threadIdx.x), 1, 1, WARPS);
    if (threadIdx.x == 0) mbarrier_init(&b.s->first, 1);
    mbarrier_fence_init();
    __syncthreads();
}

static __device__ inline void multipliers_sync() { named_barrier_sync(1, MULTIPLIERS); }

/* ---- the copier: a warp ---- */

/* Experts in the order of the pairs, each once; rows of h: (expert, token), each once. */
static __device__ inline void plan_pairs(const gpu_decode_fused_args &a, decode_fused_state *s, const int *ids,
                                         const float *weights) {
    int lane = threadIdx.x % 32, pairs = a.n * a.k, token = lane / a.k;
    int id = lane < pairs ? ids[lane] : -1;
    float weight = lane < pairs ? weights[lane] : 0.0f, sum = 0;
    bool valid = id >= 0 && id < a.experts;
#pragma unroll
    for (int t = 0; t < DECODE_INT4_TILE; t++) s->row[lane][t] = -1;
    __syncwarp();
    gpu_u32 same = __match_any_sync(~0u, valid ? id : -1 - lane),
            twins = __match_any_sync(~0u, valid ? id * DECODE_INT4_TILE + token : -1 - lane);
    int first = __popc((same & -same) - 1), twin = __popc((twins & -twins) - 1);
    gpu_u32 groups = __ballot_sync(~0u, valid && first == lane), rows = __ballot_sync(~0u, valid && twin == lane);
    int group = __popc(groups & ((1u << first) - 1)), row = __popc(rows & ((1u << lane) - 1));
    if (__ballot_sync(~0u, __popc(twins) > 1)) /* an expert twice in a token */
        for (int q = 0; q < pairs; q++) {
            float other = __shfl_sync(~0u, weight, q);
            if (twins >> q & 1) sum += other;
        }
    else
        sum = weight;
    if (valid && first == lane) s->expert[group] = id;
    if (valid && twin == lane) s->row[group][token] = row, s->weight[row] = sum;
    if (lane == 0) s->n_groups = __popc(groups), s->n_rows = __popc(rows);
    __syncwarp();
}

/* Waits until the slot is free; `bytes` of the item follow. */
static __device__ inline gpu_u8 *fused_open_slot(const decode_fused_block &b, const pipeline &p, int item,
                                                 gpu_u32 bytes) {
    producer_acquire(p);
    if (threadIdx.x % 32 == 0) {
        b.s->item[p.stage] = item;
        mbarrier_expect(pipeline_full(p), bytes);
    }
    __syncwarp();
    return b.ring + (gpu_u32)p.stage * DECODE_INT4_WEIGHTS;
}
/* The next item is taken with the last slot of one, not sooner: who is behind shall not hold more of them. */
static __device__ inline int take_item(int *work_counter) {
    return threadIdx.x % 32 == 0 ? atomicAdd(work_counter, 1) : 0;
}
static __device__ inline int item_taken(int took) { return (int)gridDim.x + __shfl_sync(~0u, took, 0); }

/* An item of up: a group's strip. */
typedef struct {
    int group, strip;
} up_item;
static __device__ inline up_item up_item_of(const gpu_decode_fused_args &a, int item) {
    int strips = a.inter / PACK_ROWS, group = item / strips;
    return {group, item - group * strips};
}

/* at: the block's first item, which takes a division to find. */
static __device__ inline void fused_copy_up(const gpu_decode_fused_args &a, const decode_fused_block &b, up_item at,
                                            pipeline *p) {
    int across = a.hidden / PACK_COLS, strips = a.inter / PACK_ROWS, items = b.s->n_groups * strips, took = 0,
        lane = threadIdx.x % 32;
    pipeline last = *p;
    last.stage = -1; /* none yet */
    for (int item = blockIdx.x; item < items; item = item_taken(took), at = up_item_of(a, item)) {
        const gpu_u8 *from = (lane ? a.up : a.gate) + (gpu_u64)b.s->expert[at.group] * a.expert_bytes +
                             (gpu_u64)(at.strip * across) * PACK_BYTES;
        gpu_u32 left = (gpu_u32)across * PACK_BYTES;
#pragma unroll 1
        while (left) { /* few instructions: this warp alone would not keep up with the memory */
            gpu_u32 bytes = left < DECODE_INT4_WEIGHTS / 2 ? left : DECODE_INT4_WEIGHTS / 2;
            left -= bytes;
            if (!left) took = take_item(&a.words[DECODE_FUSED_UP]);
            gpu_u8 *slot = fused_open_slot(b, *p, item, 2 * bytes);
            if (lane < 2) tma_bulk_once(slot + lane * (DECODE_INT4_WEIGHTS / 2), from, bytes, pipeline_full(*p));
            from += bytes, last = *p;
            pipeline_next(*p, a.slots);
        }
    }
    fused_open_slot(b, *p, -1, 0);
    pipeline_next(*p, a.slots);
    /* Where up takes long, down's weights have time while h is on its way; before, they would be in the way of other
     * blocks' weights of up. */
    if (last.stage >= 0 && items > SOON * (int)gridDim.x) consumer_wait(last);
}

/* at / across for the flat number of a block of weights. */
static __device__ inline int group_of(const gpu_decode_fused_args &a, int at) {
    return (int)((gpu_u64)at * a.one_across >> 32);
}

/* The shared expert's rows of an item of down: a slot of its own, rows shared_stride() apart, so that they lie in
 * different banks. */
static __device__ inline int shared_stride(const gpu_decode_fused_args &a) { return a.shared_inter * 2 + 16; }
static __device__ inline void copy_shared_down(const gpu_decode_fused_args &a, const decode_fused_block &b, pipeline *p,
                                               int item) {
    int lane = threadIdx.x % 32, bytes = a.shared_inter * 2;
    if (!a.shared_inter) return;
    gpu_u8 *slot = fused_open_slot(b, *p, item, (gpu_u32)bytes * PACK_ROWS);
    if (lane < PACK_ROWS)
        tma_bulk(slot + lane * shared_stride(a), a.shared_down + ((gpu_i64)item * PACK_ROWS + lane) * a.shared_inter,
                 (gpu_u32)bytes, pipeline_full(*p));
    pipeline_next(*p, a.slots);
}

/* Blocks of weights of an item of down: those of the first expert, then of the next. A slot has DECODE_FUSED_BLOCKS of
 * them. */
template <bool FEED>
static __device__ inline void fused_copy_down(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                              pipeline *p) {
    int across = a.inter / PACK_COLS, all = b.s->n_groups * across, items = a.hidden / PACK_ROWS, took = 0,
        lane = threadIdx.x % 32;
    int *work_counter = &a.words[DECODE_FUSED_DOWN + b.s->turn], before = 0;
    /* items: two of them are fixed, so that nobody waits for the next one's number */
    bool small = all <= 2 * DECODE_FUSED_BLOCKS;
    for (int i = 0, item = blockIdx.x; item < items; i++) {
        if (FEED) copy_shared_down(a, b, p, item);
        for (int f = 0; f == 0 || f < all; f += DECODE_FUSED_BLOCKS, pipeline_next(*p, a.slots)) {
            int end = all - f < DECODE_FUSED_BLOCKS ? all : f + DECODE_FUSED_BLOCKS;
            if (f + DECODE_FUSED_BLOCKS >= all) before = took, took = take_item(work_counter);
            gpu_u8 *slot = fused_open_slot(b, *p, item, (gpu_u32)(end - f) * PACK_BYTES);
            for (int g = group_of(a, f) + lane; g * across < end; g += 32) {
                int from = g * across < f ? f : g * across, to = (g + 1) * across < end ? (g + 1) * across : end;
                tma_bulk_once(slot + (from - f) * PACK_BYTES,
                              a.down + (gpu_u64)b.s->expert[g] * a.expert_bytes +
                                  ((gpu_u64)item * across + from - g * across) * PACK_BYTES,
                              (gpu_u32)(to - from) * PACK_BYTES, pipeline_full(*p));
            }
        }
        item = !small ? item_taken(took) : i ? (int)gridDim.x + item_taken(before) : item + (int)gridDim.x;
    }
    fused_open_slot(b, *p, -1, 0);
}

/* ---- the warps that multiply ---- */

static __device__ inline int await_item(const decode_fused_block &b, const pipeline &p) {
    consumer_wait(p);
    return b.s->item[p.stage];
}
/* Read by this warp. */
static __device__ inline void leave_slot(const gpu_decode_fused_args &a, pipeline *p) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) consumer_release(*p);
    pipeline_next(*p, a.slots);
}

static __device__ inline int x_stride(const gpu_decode_fused_args &a) { return a.hidden * 2 + 16; }

/* x as digits: pieces of 8 columns, all loads under way at once; a row has one scale. FEED: x is also put where its
 * digits will lie, as it is, rows x_stride() apart, and used() there, at whose end nobody reads it any more. */
template <int TOKENS, bool FEED, typename F>
static __device__ inline void digits_of_x(const gpu_decode_fused_args &a, const decode_fused_block &b, F &&used) {
    enum { PIECES = DECODE_FUSED_COLS / 8 / MULTIPLIERS };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4 raw[TOKENS][PIECES];
    float deferred = 1;
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int c = ((int)threadIdx.x + i * MULTIPLIERS) * 8;
            raw[t][i] = {0, 0, 0, 0};
            if (t < a.n && c < a.hidden) raw[t][i] = *(const uint4 *)(a.x + t * a.hidden + c);
        }
    if (a.deferred.squares && warp < a.n) deferred = deferred_scale(a.deferred, warp);
    if (warp < a.n && lane == 0) b.s->deferred[warp] = deferred;
#pragma unroll
    for (int t = 0; FEED && t < TOKENS; t++)
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int c = ((int)threadIdx.x + i * MULTIPLIERS) * 8;
            if (t < a.n && c < a.hidden) *(uint4 *)(b.digits + t * x_stride(a) + c * 2) = raw[t][i];
        }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        gpu_u32 amax = 0; /* of the bits: a NaN is larger than all */
        if (t >= a.n) continue;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const gpu_u32 w[4] = {raw[t][i].x, raw[t][i].y, raw[t][i].z, raw[t][i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                gpu_u32 first = w[j] << 16 & 0x7fff0000u, second = w[j] & 0x7fff0000u;
                amax = first > amax ? first : amax, amax = second > amax ? second : amax;
            }
        }
        amax = __reduce_max_sync(~0u, amax);
        if (lane == 0) b.s->amax[t][warp] = amax;
    }
    multipliers_sync();
    used();
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        if (t >= a.n) continue;
        float amax = __uint_as_float(__reduce_max_sync(~0u, b.s->amax[t][lane % WARPS])), one = digits_of_one(amax);
        if (threadIdx.x == 0) b.s->x_scale[t] = digits_scale(amax) / 16 * b.s->deferred[t];
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int c = ((int)threadIdx.x + i * MULTIPLIERS) * 8;
            if (c - lane * 8 >= a.hidden) continue;
            gpu_u32 w[4] = {raw[t][i].x, raw[t][i].y, raw[t][i].z, raw[t][i].w};
            trade_words(w); /* now pair lane % 4 of four pieces: columns 0..7 and 8..15 of two sixteens */
            gpu_u8 *to = b.digits + t * (2 * a.hidden) + c / 64 * 128 + lane % 4 * 16 + lane / 4 % 2 * 8;
            gpu_u32 high[2], low[2];
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const float v[4] = {low_f32(w[2 * s]), low_f32(w[2 * s + 1]), high_f32(w[2 * s]),
                                    high_f32(w[2 * s + 1])};
                quick_digits(v, one, &high[s], &low[s]);
            }
            if (c < a.hidden) *(uint2 *)to = {high[0], high[1]}, *(uint2 *)(to + 64) = {low[0], low[1]};
        }
    }
}

/* silu() without a division's rare cases. */
static __device__ inline float quick_silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

/* A value of h on its way: its bits, all inverted, never zero. */
static __device__ inline gpu_u32 fused_word_of(float v) { return isnan(v) ? ~0x7fc00000u : ~__float_as_uint(v); }

static __device__ inline void fused_compute_up(const gpu_decode_fused_args &a, const decode_fused_block &b, gpu_u32 *h,
                                               pipeline *p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % DECODE_INT4_TILE, across = a.hidden / PACK_COLS,
        strips = a.inter / PACK_ROWS;
    const gpu_u8 *x = b.digits + (lane / 8 < a.n ? lane / 8 : 0) * (2 * a.hidden) + lane % 8 * 16;
    for (int i = 0;; i++) {
        int item = await_item(b, *p);
        if (item < 0) break;
        int group = item / strips;
        float gate[1][2] = {}, up[1][2] = {};
#pragma unroll 1
        for (int c = warp;;) {
            const gpu_u8 *slot = b.ring + (gpu_u32)p->stage * DECODE_INT4_WEIGHTS + warp * PACK_BYTES;
            if (c < across) {
                const packed_weights g = packed_weights_at(slot), u = packed_weights_at(slot + DECODE_INT4_WEIGHTS / 2);
                const int16_split<1> d = {{*(const uint4 *)(x + c * (2 * PACK_COLS))}};
                leave_slot(a, p);
                int4_multiply<1>(g, d, 1, gate);
                int4_multiply<1>(u, d, 1, up);
            } else
                leave_slot(a, p);
            c += DECODE_INT4_ACROSS;
            if (c - warp >= across) break;
            await_item(b, *p);
        }
        /* The warps' sums together; two halves of the memory in turn: the other one may still be read. */
        float *all = b.sums + i % 2 * (WARPS * 4 * 32);
#pragma unroll
        for (int v = 0; v < 2; v++)
            all[(warp * 4 + v) * 32 + lane] = gate[0][v], all[(warp * 4 + 2 + v) * 32 + lane] = up[0][v];
        multipliers_sync();
        if (warp >= 2) continue;
        float of_gate = 0, of_up = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            of_gate += all[(w * 4 + warp) * 32 + lane], of_up += all[(w * 4 + 2 + warp) * 32 + lane];
        int row = b.s->row[group][t];
        if (row >= 0)
            h[row * a.inter + item % strips * PACK_ROWS + lane / 4 + warp * 8] =
                fused_word_of(quick_silu(of_gate * b.s->x_scale[t]) * (of_up * b.s->x_scale[t]));
    }
    leave_slot(a, p);
}

/* 16 values of h: waits for them. */
static __device__ inline decode_int4_unit unit_of_h(const gpu_u32 *h, int all, int unit) {
    decode_int4_unit d;
    if (unit >= all) {
#pragma unroll
        for (int i = 0; i < 16; i++) d.v[i] = 0;
        return d;
    }
    const gpu_u32 *from = h + unit / 4 * 64 + unit % 4 * 2;
    for (bool there = false; !there;) {
        there = true;
#pragma unroll
        for (int s = 0; s < 8; s++) {
            uint2 two = ld_words2(from + 8 * s);
            there = there && two.x && two.y;
            d.v[s / 2 * 4 + s % 2] = __uint_as_float(~two.x), d.v[s / 2 * 4 + s % 2 + 2] = __uint_as_float(~two.y);
        }
        if (!there) poll_again();
    }
    return d;
}

/* h as digits, each 64 values by themselves: units of 16 go round. */
static __device__ inline void fused_digits_of_h(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                                const gpu_u32 *h) {
    enum { KEPT = 2 /* waited for together */ };
    int all = b.s->n_rows * a.inter / 16;
#pragma unroll 1
    for (int u0 = threadIdx.x; u0 - (int)threadIdx.x < all; u0 += KEPT * MULTIPLIERS) {
        decode_int4_unit d[KEPT];
#pragma unroll
        for (int i = 0; i < KEPT; i++) d[i] = unit_of_h(h, all, u0 + i * MULTIPLIERS);
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            int u = u0 + i * MULTIPLIERS;
            float amax = unit_amax(d[i]);
            amax = max_nan(amax, __shfl_xor_sync(~0u, amax, 1)), amax = max_nan(amax, __shfl_xor_sync(~0u, amax, 2));
            if (u >= all) continue;
            if (u % 4 == 0) b.share[u / 4] = b.s->weight[group_of(a, u / 4)] * (digits_scale(amax) / 16);
            float one = digits_of_one(amax);
            gpu_u8 *to = b.digits + u / 4 * 128 + u % 4 * 16;
            gpu_u32 high[4], low[4];
#pragma unroll
            for (int s = 0; s < 4; s++) quick_digits(d[i].v + 4 * s, one, &high[s], &low[s]);
            *(uint4 *)to = {high[0], high[1], high[2], high[3]};
            *(uint4 *)(to + 64) = {low[0], low[1], low[2], low[3]};
        }
    }
}

/* What is added to in `after`, and the norm's weight, of rows r and r + 8. As stored: who converted them here would
 * wait for them here, and all warps of the block for it. */
typedef struct {
    gpu_bf16 x[2];
    float weight[2];
} one_after;
static __device__ inline one_after fused_read_after(const gpu_decode_fused_args &a, gpu_i64 out, int row) {
    return {{a.after.x[out], a.after.x[out + 8]}, {a.after.weight[row], a.after.weight[row + 8]}};
}
/* By a warp, an item's sums of its tokens. */
static __device__ inline void fused_put_after(const gpu_decode_fused_args &a, int item, int t, gpu_i64 out,
                                              const one_after &s, const float v[2]) {
    float squares = 0;
#pragma unroll
    for (int k = 0; k < 2 && t < a.n; k++) {
        gpu_bf16 sum = bf16_of(f32_of(s.x[k]) + f32_of(bf16_of(v[k])));
        float x = f32_of(sum);
        a.after.x[out + 8 * k] = sum;
        a.after.out[out + 8 * k] = bf16_of(x * s.weight[k]);
        squares = fmaf(x, x, squares);
        if (a.after.bad && x - x != 0.0f && a.after.bad[t] == 0) a.after.bad[t] = a.after.mark;
    }
    for (int d = 4; d < 32; d *= 2) squares += __shfl_xor_sync(~0u, squares, d);
    if ((int)threadIdx.x % 32 == t && t < a.n) a.after.squares[t * GPU_DEFERRED_PARTS + item] = squares;
}

/* The shared expert's part of an item: a warp has every WARPS-th 16 columns. Column 2 t of the product is token t,
 * as in a sum of two digits; h of it lies behind the digits as bf16. */
static __device__ inline void shared_product(const gpu_decode_fused_args &a, const decode_fused_block &b, pipeline *p,
                                             float sums[2]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = shared_stride(a);
    const gpu_u8 *rows = b.ring + (gpu_u32)p->stage * DECODE_INT4_WEIGHTS + lane % 16 * stride + lane / 16 * 16;
    const gpu_u8 *h = b.shared_h + (lane / 8 < a.n ? lane / 8 : 0) * stride + lane % 4 * 4;
    float c[4] = {0, 0, 0, 0};
    for (int k = warp; k < a.shared_inter / 16; k += WARPS) {
        gpu_u32 w[4];
        const gpu_u32 v[2] = {*(const gpu_u32 *)(h + k * 32), *(const gpu_u32 *)(h + k * 32 + 16)};
        ldmatrix4(w, rows + k * 32);
        mma_bf16(c, w, v);
    }
    leave_slot(a, p);
    sums[0] = c[0], sums[1] = c[2];
}

/* A sum of an item that has yet to be written by its warp: what is added to it comes from memory, and whoever waited
 * for it would keep all others from the next item. */
typedef struct {
    int item; /* -1: none */
    gpu_i64 out;
    float total[2];
    gpu_bf16 shared[2]; /* as stored, too */
    one_after after;
} one_result;
template <bool FEED> static __device__ inline void put_result(const gpu_decode_fused_args &a, const one_result &r) {
    int t = threadIdx.x % DECODE_INT4_TILE;
    float v[2] = {r.total[0], r.total[1]};
    if (!FEED) v[0] += f32_of(r.shared[0]), v[1] += f32_of(r.shared[1]);
    if (r.item < 0) return;
    if (a.after.x)
        fused_put_after(a, r.item, t, r.out, r.after, v);
    else if (t < a.n)
        a.out[r.out] = bf16_of(v[0]), a.out[r.out + 8] = bf16_of(v[1]);
}

template <bool FEED>
static __device__ inline void fused_compute_down(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                                 pipeline *p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % DECODE_INT4_TILE, across = a.inter / PACK_COLS,
        all = b.s->n_groups * across;
    const gpu_u8 *digits = b.digits + lane % 8 * 16;
    one_result mine = {};
    mine.item = -1;
    for (int i = 0;; i++) {
        int item = await_item(b, *p);
        if (item < 0) break;
        gpu_i64 out = t * (gpu_i64)a.hidden + item * PACK_ROWS + lane / 4;
        bool last = i % WARPS == warp; /* who writes this item */
        float sums[2] = {0, 0};
        if (last) {
            put_result<FEED>(a, mine);
            mine.item = item, mine.out = out;
            if (t < a.n && a.after.x) mine.after = fused_read_after(a, out, item * PACK_ROWS + lane / 4);
            if (!FEED && t < a.n && a.shared_expert)
                mine.shared[0] = a.shared_expert[out], mine.shared[1] = a.shared_expert[out + 8];
        }
        if (FEED && a.shared_inter) {
            shared_product(a, b, p, sums);
            await_item(b, *p);
        }
#pragma unroll 1
        for (int f = 0;;) {
            const gpu_u8 *slot = b.ring + (gpu_u32)p->stage * DECODE_INT4_WEIGHTS;
#pragma unroll
            for (int k = 0; k < DECODE_FUSED_BLOCKS; k += WARPS) {
                int at = f + k + warp, group = group_of(a, at);
                if (at >= all) continue;
                float one[1][2] = {};
                int c = at - group * across, row = b.s->row[group][lane / 8], of_t = b.s->row[group][t];
                const int16_split<1> d = {
                    {*(const uint4 *)(digits + ((row < 0 ? 0 : row) * across + c) * (2 * PACK_COLS))}};
                int4_multiply<1>(packed_weights_at(slot + (k + warp) * PACK_BYTES), d, 1, one);
                if (of_t >= 0) {
                    float share = b.share[of_t * across + c];
                    sums[0] = fmaf(share, one[0][0], sums[0]), sums[1] = fmaf(share, one[0][1], sums[1]);
                }
            }
            leave_slot(a, p);
            f += DECODE_FUSED_BLOCKS;
            if (f >= all) break;
            await_item(b, *p);
        }
        float *halves = b.sums + i % 2 * (WARPS * 2 * 32);
#pragma unroll
        for (int v = 0; v < 2; v++) halves[(warp * 2 + v) * 32 + lane] = sums[v];
        multipliers_sync();
        if (!last) continue;
        mine.total[0] = mine.total[1] = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            mine.total[0] += halves[w * 2 * 32 + lane], mine.total[1] += halves[(w * 2 + 1) * 32 + lane];
    }
    put_result<FEED>(a, mine);
}

/* What the next call counts begins at zero, once no block of this one looks at it; the other half of h's memory,
 * where the call before had its own, too. */
static __device__ inline void clear_other(const gpu_decode_fused_args &a, int turn) {
    gpu_u32 *other = a.h + (1 - turn) * DECODE_FUSED_H;
    for (int i = blockIdx.x * MULTIPLIERS + threadIdx.x; i < DECODE_FUSED_H; i += gridDim.x * MULTIPLIERS) other[i] = 0;
}
static __device__ inline void leave_call(const gpu_decode_fused_args &a, int turn) {
    if (threadIdx.x % 32) return;
    if (atomicAdd(&a.words[DECODE_FUSED_LEFT], 1) + 1 != (int)gridDim.x) return;
    a.words[DECODE_FUSED_LEFT] = 0, a.words[DECODE_FUSED_UP] = 0, a.words[DECODE_FUSED_DOWN + 1 - turn] = 0;
    a.words[DECODE_FUSED_TURN] = 1 - turn;
}

#endif
