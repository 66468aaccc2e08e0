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
    SOON = 4 /* items of up a block: with more of them up takes long */
};

typedef struct {
    gpu_u64 full[MOST_SLOTS], empty[MOST_SLOTS];
    int item[MOST_SLOTS]; /* -1: none any more */
    int turn, n_groups, n_rows;
    pipeline down;              /* where down begins in the ring */
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
    float *sums;           /* up: [2][WARPS][4][32]; down: [2 or 4][WARPS][2][32] */
    float *share;          /* down: behind two of them: what a unit counts in the result, of each 64 values of h */
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

/* ---- the copier: a warp; in down there may be several ---- */

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

/* Waits until the slot is free; `bytes` of the item follow, of which the first copier tells. Of several copiers it
 * alone waits for the slot, and all others for it at every slot: by itself, one that has nothing to copy into a slot
 * could miss that it was filled and used up meanwhile. */
static __device__ inline gpu_u8 *fused_open_slot(const decode_fused_block &b, const pipeline &p, int item,
                                                 gpu_u32 bytes, int copiers) {
    if (threadIdx.x / 32 == COPIER) producer_acquire(p);
    if (copiers > 1) named_barrier_sync(5, copiers * 32);
    if (threadIdx.x == COPIER * 32) {
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

static __device__ inline bool up_takes_long(const gpu_decode_fused_args &a, const decode_fused_block &b) {
    return b.s->n_groups * (a.inter / PACK_ROWS) > SOON * (int)gridDim.x;
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
            gpu_u8 *slot = fused_open_slot(b, *p, item, 2 * bytes, 1);
            if (lane < 2) tma_bulk_once(slot + lane * (DECODE_INT4_WEIGHTS / 2), from, bytes, pipeline_full(*p));
            from += bytes, last = *p;
            pipeline_next(*p, a.slots);
        }
    }
    fused_open_slot(b, *p, -1, 0, 1);
    pipeline_next(*p, a.slots);
    /* Where up takes long, down's weights have time while h is on its way; before, they would be in the way of other
     * blocks' weights of up. */
    if (last.stage >= 0 && up_takes_long(a, b)) consumer_wait(last);
}

/* at / across for the flat number of a block of weights. */
static __device__ inline int group_of(const gpu_decode_fused_args &a, int at) {
    return (int)((gpu_u64)at * a.one_across >> 32);
}

/* The shared expert's rows of an item of down: a slot of its own, rows shared_stride() apart, so that they lie in
 * different banks. */
static __device__ inline int shared_stride(const gpu_decode_fused_args &a) { return a.shared_inter * 2 + 16; }
static __device__ inline void copy_shared_down(const gpu_decode_fused_args &a, const decode_fused_block &b, pipeline *p,
                                               int item, int copiers) {
    int row = (int)threadIdx.x / 32 - COPIER + (int)threadIdx.x % 32 * copiers, bytes = a.shared_inter * 2;
    if (!a.shared_inter) return;
    gpu_u8 *slot = fused_open_slot(b, *p, item, (gpu_u32)bytes * PACK_ROWS, copiers);
    if (row < PACK_ROWS)
        tma_bulk_once(slot + row * shared_stride(a), a.shared_down + ((gpu_i64)item * PACK_ROWS + row) * a.shared_inter,
                      (gpu_u32)bytes, pipeline_full(*p));
    pipeline_next(*p, a.slots);
}

/* Blocks of weights of an item of down: those of the first expert, then of the next. A slot has DECODE_FUSED_BLOCKS of
 * them. By `copiers` warps from COPIER on, together at every slot: a copy takes a warp some 50
 * cycles, and an item has one for each expert and row of the shared one: one warp alone is slower than the memory.
 * Where up takes long, down has much more than the ring holds: there one copier takes items one by one. */
template <bool FEED>
static __device__ inline void fused_copy_down(const gpu_decode_fused_args &a, const decode_fused_block &b, pipeline *p,
                                              int copiers) {
    int across = a.inter / PACK_COLS, all = b.s->n_groups * across, items = a.hidden / PACK_ROWS, took = 0,
        warp = (int)threadIdx.x / 32 - COPIER, mine = warp + (int)threadIdx.x % 32 * copiers;
    bool take = up_takes_long(a, b);
    if (warp >= copiers) return;
    for (int item = blockIdx.x; item < items; item = take ? item_taken(took) : item + (int)gridDim.x) {
        if (FEED) copy_shared_down(a, b, p, item, copiers);
        for (int f = 0; f == 0 || f < all; f += DECODE_FUSED_BLOCKS, pipeline_next(*p, a.slots)) {
            int end = all - f < DECODE_FUSED_BLOCKS ? all : f + DECODE_FUSED_BLOCKS;
            if (take && end == all) took = take_item(&a.words[DECODE_FUSED_DOWN + 2 * b.s->turn]);
            gpu_u8 *slot = fused_open_slot(b, *p, item, (gpu_u32)(end - f) * PACK_BYTES, copiers);
            for (int g = group_of(a, f) + mine; g * across < end; g += 32 * copiers) {
                int from = g * across < f ? f : g * across, to = (g + 1) * across < end ? (g + 1) * across : end;
                tma_bulk_once(slot + (from - f) * PACK_BYTES,
                              a.down + (gpu_u64)b.s->expert[g] * a.expert_bytes +
                                  ((gpu_u64)item * across + from - g * across) * PACK_BYTES,
                              (gpu_u32)(to - from) * PACK_BYTES, pipeline_full(*p));
            }
        }
    }
    fused_open_slot(b, *p, -1, 0, copiers);
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
        __syncwarp();
        if (lane == 0) atomicAdd(&a.words[DECODE_FUSED_READY + 2 * b.s->turn], 1);
    }
    leave_slot(a, p);
}

/* Until all of h is on its way, by one lane: whoever looks for its values sooner, all threads of all blocks, is in the
 * way of the weights. That they have come is told by themselves. Where up takes long, what is there meanwhile becomes
 * digits. */
static __device__ inline void await_h(const gpu_decode_fused_args &a, const decode_fused_block &b, int turn) {
    int halves = b.s->n_groups * (a.inter / PACK_ROWS) * 2;
    if (threadIdx.x || up_takes_long(a, b)) return;
    while ((int)ld_words2(a.words + DECODE_FUSED_READY + 2 * turn).x < halves) poll_again();
}

/* h as digits, each 64 values by themselves: a thread has every MULTIPLIERS-th four of them, so that a warp asks for
 * whole lines: all blocks ask for the same ones. */
static __device__ inline void fused_digits_of_h(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                                const gpu_u32 *h) {
    enum { KEPT = 4, FOURS = PACK_COLS / 4 /* that share a scale: lanes beside each other */ };
    int all = b.s->n_rows * a.inter / 4;
#pragma unroll 1
    for (int first = threadIdx.x; first - (int)threadIdx.x < all; first += KEPT * MULTIPLIERS) {
        uint4 v[KEPT];
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            int four = first + i * MULTIPLIERS;
            v[i] = four < all ? ld_words4(h + four * 4) : uint4{~0u, ~0u, ~0u, ~0u};
        }
#pragma unroll
        for (int i = 0; i < KEPT; i++)
            while (!v[i].x || !v[i].y || !v[i].z || !v[i].w) {
                poll_again();
                v[i] = ld_words4(h + (first + i * MULTIPLIERS) * 4);
            }
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            int four = first + i * MULTIPLIERS, group = four / FOURS;
            if (i && four - (int)threadIdx.x >= all) break; /* of all threads */
            const float f[4] = {__uint_as_float(~v[i].x), __uint_as_float(~v[i].y), __uint_as_float(~v[i].z),
                                __uint_as_float(~v[i].w)};
            float amax = max_nan(max_nan(fabsf(f[0]), fabsf(f[1])), max_nan(fabsf(f[2]), fabsf(f[3])));
#pragma unroll
            for (int d = 1; d < FOURS; d *= 2) amax = max_nan(amax, __shfl_xor_sync(~0u, amax, d));
            gpu_u32 high, low;
            quick_digits(f, digits_of_one(amax), &high, &low);
            /* of a sixteen's fours 0 and 2, 1 and 3 have words together: columns c, c + 8, c + 1, c + 9 */
            gpu_u32 other_high = (gpu_u32)__shfl_xor_sync(~0u, (int)high, 2),
                    other_low = (gpu_u32)__shfl_xor_sync(~0u, (int)low, 2);
            bool upper = four & 2;
            high = upper ? __byte_perm(other_high, high, 0x7362) : __byte_perm(high, other_high, 0x5140);
            low = upper ? __byte_perm(other_low, low, 0x7362) : __byte_perm(low, other_low, 0x5140);
            if (four >= all) continue;
            if (four % FOURS == 0) b.share[group] = b.s->weight[group_of(a, group)] * (digits_scale(amax) / 16);
            gpu_u8 *to = b.digits + group * 128 + (four % 2 * 2 + upper) * 16 + four / 4 % 4 * 4;
            *(gpu_u32 *)to = high, *(gpu_u32 *)(to + 64) = low;
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

/* What every item of down is multiplied by, for a warp whose blocks of an item are KEPT or fewer: of its blocks h's
 * digits, and what they count for token t; of the shared expert two words for each 16 of its columns, of which it has
 * every WARPS-th. Column 2 t of that product is token t, as in a sum of two digits. */
template <int KEPT> struct kept_h {
    int16_split<1> digits[KEPT];
    float share[KEPT];
    gpu_u32 chosen; /* a bit a block: token t has chosen its expert */
};
typedef struct {
    gpu_u32 of[FFN_FUSED_INTER / 16 / WARPS][2];
} kept_shared_h;

/* Block `at` of an item's: the digits of h that it is multiplied by, and whether token t has chosen its expert. */
static __device__ inline bool digits_of_block(const gpu_decode_fused_args &a, const decode_fused_block &b, int at,
                                              int16_split<1> *digits, float *share) {
    int across = a.inter / PACK_COLS, group = group_of(a, at), c = at - group * across, lane = threadIdx.x % 32,
        row = b.s->row[group][lane / 8], of_t = b.s->row[group][lane % DECODE_INT4_TILE];
    digits->of[0] = *(const uint4 *)(b.digits + ((row < 0 ? 0 : row) * across + c) * (2 * PACK_COLS) + lane % 8 * 16);
    *share = of_t < 0 ? 0 : b.share[of_t * across + c];
    return of_t >= 0;
}
template <int KEPT>
static __device__ inline kept_h<KEPT> keep_h(const gpu_decode_fused_args &a, const decode_fused_block &b, int all) {
    kept_h<KEPT> h = {};
    if (!all) return h;
#pragma unroll
    for (int j = 0; j < KEPT; j++) { /* no branch: all loads are under way at once */
        int at = j * WARPS + threadIdx.x / 32;
        bool chosen = digits_of_block(a, b, at < all ? at : 0, &h.digits[j], &h.share[j]);
        h.chosen |= (gpu_u32)(at < all && chosen) << j;
    }
    return h;
}
static __device__ inline kept_shared_h keep_shared_h(const gpu_decode_fused_args &a, const decode_fused_block &b) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const gpu_u8 *from = b.shared_h + (lane / 8 < a.n ? lane / 8 : 0) * shared_stride(a) + lane % 4 * 4 + warp * 32;
    kept_shared_h h = {};
#pragma unroll
    for (int j = 0; j < FFN_FUSED_INTER / 16 / WARPS; j++)
        if (j * WARPS + warp < a.shared_inter / 16)
#pragma unroll
            for (int i = 0; i < 2; i++) h.of[j][i] = *(const gpu_u32 *)(from + j * WARPS * 32 + i * 16);
    return h;
}

/* The shared expert's part of an item. */
static __device__ inline void shared_product(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                             const kept_shared_h &h, pipeline *p, float sums[2]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const gpu_u8 *rows =
        b.ring + (gpu_u32)p->stage * DECODE_INT4_WEIGHTS + lane % 16 * shared_stride(a) + lane / 16 * 16 + warp * 32;
    float c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < FFN_FUSED_INTER / 16 / WARPS; j++)
        if (j * WARPS + warp < a.shared_inter / 16) {
            gpu_u32 w[4];
            ldmatrix4(w, rows + j * WARPS * 32);
            mma_bf16(c, w, h.of[j]);
        }
    leave_slot(a, p);
    sums[0] = c[0], sums[1] = c[2];
}

static __device__ inline void add_share(float sums[2], float share, const float one[1][2]) {
    sums[0] = fmaf(share, one[0][0], sums[0]), sums[1] = fmaf(share, one[0][1], sums[1]);
}

/* The experts' part of an item, whose first slot is there. DECODE_FUSED_BLOCKS are of a slot, two of each warp, which
 * are multiplied together: whether the second one is in the item only decides what is added. */
template <int KEPT>
static __device__ inline void kept_product(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                           const kept_h<KEPT> &h, int all, pipeline *p, float sums[2]) {
    enum { TWO = DECODE_FUSED_BLOCKS / WARPS };
    int warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < KEPT; j += TWO) {
        if (j && j * WARPS >= all) break;
        if (j) await_item(b, *p);
        const gpu_u8 *slot = b.ring + (gpu_u32)p->stage * DECODE_INT4_WEIGHTS + warp * PACK_BYTES;
        float one[TWO][1][2] = {};
#pragma unroll
        for (int k = 0; k < TWO; k++)
            int4_multiply<1>(packed_weights_at(slot + k * WARPS * PACK_BYTES), h.digits[j + k], 1, one[k]);
        leave_slot(a, p);
#pragma unroll
        for (int k = 0; k < TWO; k++)
            if (h.chosen >> (j + k) & 1) add_share(sums, h.share[j + k], one[k]);
    }
}
static __device__ inline void whole_product(const gpu_decode_fused_args &a, const decode_fused_block &b, int all,
                                            pipeline *p, float sums[2]) {
    int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int f = 0;;) {
        const gpu_u8 *slot = b.ring + (gpu_u32)p->stage * DECODE_INT4_WEIGHTS;
#pragma unroll
        for (int k = warp; k < DECODE_FUSED_BLOCKS; k += WARPS) {
            if (f + k >= all) continue;
            float one[1][2] = {}, share;
            int16_split<1> digits;
            bool chosen = digits_of_block(a, b, f + k, &digits, &share);
            int4_multiply<1>(packed_weights_at(slot + k * PACK_BYTES), digits, 1, one);
            if (chosen) add_share(sums, share, one);
        }
        leave_slot(a, p);
        f += DECODE_FUSED_BLOCKS;
        if (f >= all) break;
        await_item(b, *p);
    }
}

/* An item's sums of a warp wait in shared memory until those of `together` items are there: one barrier for all, and a
 * warp an item adds them. What they are added to comes from memory: whoever waited for it between the two barriers
 * would keep all others from the next item. */
typedef struct {
    int item;
    gpu_i64 out;
    gpu_bf16 shared[2]; /* as stored, as one_after */
    one_after after;
} item_result;
template <bool FEED> static __device__ inline item_result begin_result(const gpu_decode_fused_args &a, int item) {
    int t = threadIdx.x % DECODE_INT4_TILE, row = item * PACK_ROWS + (int)threadIdx.x % 32 / 4;
    item_result r = {};
    r.item = item, r.out = t * (gpu_i64)a.hidden + row;
    if (t < a.n && a.after.x) r.after = fused_read_after(a, r.out, row);
    if (!FEED && t < a.n && a.shared_expert)
        r.shared[0] = a.shared_expert[r.out], r.shared[1] = a.shared_expert[r.out + 8];
    return r;
}
template <bool FEED>
static __device__ inline void put_result(const gpu_decode_fused_args &a, const item_result &r, float v[2]) {
    int t = threadIdx.x % DECODE_INT4_TILE;
    if (!FEED) v[0] += f32_of(r.shared[0]), v[1] += f32_of(r.shared[1]);
    if (a.after.x)
        fused_put_after(a, r.item, t, r.out, r.after, v);
    else if (t < a.n)
        a.out[r.out] = bf16_of(v[0]), a.out[r.out + 8] = bf16_of(v[1]);
}

template <bool FEED, int KEPT>
static __device__ inline void fused_compute_down(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                                 pipeline *p) {
    enum { SUMS = WARPS * 2 * 32 /* of an item */ };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, all = b.s->n_groups * (a.inter / PACK_COLS), items = 0;
    bool keep = all <= KEPT * WARPS;
    kept_h<KEPT> h = {};
    kept_shared_h of_shared = {};
    if (keep) h = keep_h<KEPT>(a, b, all);
    if (FEED) of_shared = keep_shared_h(a, b);
    if (keep) multipliers_sync(); /* nobody reads share any more */
    int together = keep ? 4 : 2;  /* as long as share is read, which lies behind two */
    item_result mine = {};
    for (;;) {
        int item = await_item(b, *p);
        if (item < 0 || items == together) {
            multipliers_sync();
            float v[2] = {0, 0};
            const float *of = b.sums + warp * SUMS + lane;
#pragma unroll
            for (int w = 0; w < WARPS && warp < items; w++) v[0] += of[w * 2 * 32], v[1] += of[(w * 2 + 1) * 32];
            if (item >= 0) multipliers_sync(); /* the sums are read */
            if (warp < items) put_result<FEED>(a, mine, v);
            if (item < 0) break;
            items = 0;
        }
        if (warp == items) mine = begin_result<FEED>(a, item);
        float sums[2] = {0, 0};
        if (FEED && a.shared_inter) {
            shared_product(a, b, of_shared, p, sums);
            await_item(b, *p);
        }
        if (keep)
            kept_product<KEPT>(a, b, h, all, p, sums);
        else
            whole_product(a, b, all, p, sums);
#pragma unroll
        for (int v = 0; v < 2; v++) b.sums[items * SUMS + (warp * 2 + v) * 32 + lane] = sums[v];
        items++;
    }
}

/* What the next call counts begins at zero: UP, once no block of this one looks at it; what there is by turn (h's
 * memory, too), where the call before had its own. */
static __device__ inline void clear_other(const gpu_decode_fused_args &a, int turn) {
    gpu_u32 *other = a.h + (1 - turn) * DECODE_FUSED_H;
    for (int i = blockIdx.x * MULTIPLIERS + threadIdx.x; i < DECODE_FUSED_H; i += gridDim.x * MULTIPLIERS) other[i] = 0;
}
static __device__ inline void leave_call(const gpu_decode_fused_args &a, int turn) {
    if (threadIdx.x % 32) return;
    if (atomicAdd(&a.words[DECODE_FUSED_LEFT], 1) + 1 != (int)gridDim.x) return;
    a.words[DECODE_FUSED_LEFT] = 0, a.words[DECODE_FUSED_UP] = 0, a.words[DECODE_FUSED_READY + 2 * (1 - turn)] = 0;
    a.words[DECODE_FUSED_DOWN + 2 * (1 - turn)] = 0;
    a.words[DECODE_FUSED_TURN] = 1 - turn;
}

#endif
