/* kernels/gpu/moe/ffn_fused.cu: all of a MoE layer's feed-forward part for up to four tokens in one launch: the
 * router, the gate, the shared expert, the routed experts, and what the norm behind them needs beside its scale
 * (params.h, gpu_after).
 *
 * On top of decode_fused.cu, in front of its phases:
 *   first  the rows of the router and of the shared expert's gate and up are shared out among the blocks, whole
 *          rows, which are asked for before the kernel in front has ended and lie in the ring; a warp has every
 *          16th 32 columns of all of them. Logits and h go through memory as decode_int4_one's h does: a word that
 *          is not zero is there. x becomes digits meanwhile.
 *   gate   every block chooses the experts by itself, a warp a token (gate.cuh tells how), and sorts the pairs.
 * The shared expert's down product joins the items of down as a slot of their own, whose bytes are asked for into
 * the second-level cache while the gate waits.
 *
 * Bytes: beside those of decode_int4_one, 2 hidden (experts + 3 shared inter): 16.5 MB of a TP8 rank of Kimi-K2.5,
 * 3.8 us at 4.35 TB/s. */
#include "kernels/gpu/moe/decode_fused.cuh"
#include "kernels/gpu/block_marks.h"
#include "kernels/gpu/rows/gate.cuh"

enum {
    GATE_WARPS = DECODE_INT4_TILE, /* the first of them is the copier, in down all are */
    FFN_FUSED_THREADS = MULTIPLIERS + GATE_WARPS * 32,
    MINE = GPU_GATE_EXPERTS / 32, /* scores of a lane */
    ROWS = 8                      /* of a product of the first phase */
};
static_assert((int)FFN_FUSED_THREADS == (int)DECODE_INT4_FFN_THREADS, "decode_int4.h");

/* Of this block: pairs of rows of the shared expert's gate and up, then rows of the router. */
typedef struct {
    int pairs, first_pair, rows, first_row; /* rows: all */
} ffn_fused_part;
/* all * block / blocks */
static __device__ inline int share_of(const gpu_ffn_fused_args &f, int all, int block) {
    return (int)((gpu_u64)(gpu_u32)(all * block) * f.one_block >> 32);
}
static __device__ inline ffn_fused_part ffn_part_of(const gpu_ffn_fused_args &f) {
    int b = blockIdx.x, inter = f.fused.shared_inter, pair = share_of(f, inter, b),
        row = share_of(f, f.fused.experts, b), pairs = share_of(f, inter, b + 1) - pair;
    return {pairs, pair, 2 * pairs + share_of(f, f.fused.experts, b + 1) - row, row};
}

static __device__ inline void ask_for_rows(const gpu_ffn_fused_args &f, const decode_fused_block &b) {
    const gpu_decode_fused_args &a = f.fused;
    ffn_fused_part part = ffn_part_of(f);
    int lane = threadIdx.x % 32;
    if (lane == 0) mbarrier_expect(&b.s->first, (gpu_u32)(part.rows * a.hidden * 2));
    __syncwarp();
    for (int i = lane; i < part.rows; i += 32) {
        const gpu_bf16 *from = i >= 2 * part.pairs
                                   ? f.router + (gpu_i64)(part.first_row + i - 2 * part.pairs) * a.hidden
                                   : (i % 2 ? f.up : f.gate) + (gpu_i64)(part.first_pair + i / 2) * a.hidden;
        tma_bulk_once(b.ring + i * x_stride(a), from, (gpu_u32)a.hidden * 2, &b.s->first);
    }
}
static __device__ inline void ask_for_shared_down(const gpu_ffn_fused_args &f) {
    const gpu_decode_fused_args &a = f.fused;
    int from = share_of(f, a.hidden, blockIdx.x), rows = share_of(f, a.hidden, blockIdx.x + 1) - from;
    if (a.shared_inter && rows && threadIdx.x % 32 == 0)
        prefetch_l2(a.shared_down + (gpu_i64)from * a.shared_inter, (gpu_u32)(rows * a.shared_inter * 2));
}

/* 8 rows of w times 32 columns of x. */
static __device__ inline void first_product(float one[4], float two[4], const gpu_u8 *w, const gpu_u32 x[4]) {
    gpu_u32 m[4];
    ldmatrix4(m, w);
    const gpu_u32 m0[4] = {m[0], 0, m[1], 0}, m1[4] = {m[2], 0, m[3], 0};
    mma_bf16(one, m0, x);
    mma_bf16(two, m1, x + 2);
}

/* The block's rows times x, ROWS at a time, and the words for the others; column 2 t of a product is token t. A warp's
 * first HELD times 32 columns of x are in registers before the rows come: shared memory would take as long for them as
 * for the rows. For more tokens than one it was 0.5 to 1 % of a step slower. */
template <int HELD>
static __device__ inline void first_products(const gpu_ffn_fused_args &f, const decode_fused_block &b,
                                             block_times *times) {
    const gpu_decode_fused_args &a = f.fused;
    ffn_fused_part part = ffn_part_of(f);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = x_stride(a), token = lane % 8 / 2;
    int units = a.hidden / 32;
    const gpu_u8 *x = b.digits + (token < a.n ? token : 0) * stride + lane / 8 * 16;
    gpu_u32 held[HELD > 0 ? HELD : 1][4];
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (j * WARPS + warp < units) ldmatrix4(held[j], x + (j * WARPS + warp) * 64);
    block_mark(times, FFN_X_READ);
    mbarrier_wait(&b.s->first, 0);
    block_mark(times, FFN_ROWS);
    for (int i = 0; i * ROWS < part.rows; i++) {
        int left = part.rows - i * ROWS;
        const gpu_u8 *w = b.ring + (i * ROWS + (lane % 8 < left ? lane % 8 : 0)) * stride + lane / 8 * 16;
        float one[4] = {0, 0, 0, 0}, two[4] = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < HELD; j++)
            if (j * WARPS + warp < units) first_product(one, two, w + (j * WARPS + warp) * 64, held[j]);
#pragma unroll 4
        for (int k = HELD * WARPS + warp; k < units; k += WARPS) {
            gpu_u32 v[4];
            ldmatrix4(v, x + k * 64);
            first_product(one, two, w + k * 64, v);
        }
        float *all = b.sums + i % 2 * (WARPS * 32);
        all[warp * 32 + lane] = one[0] + two[0];
        if (i)
            multipliers_sync();
        else
            named_barrier_sync(4, MULTIPLIERS + 32); /* the turn is known, too */
        if (warp != i % WARPS) continue;
        int row = i * ROWS + lane / 4, t = lane % 4;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < WARPS; j++) sum += all[j * 32 + lane];
        if (t < a.n) sum *= b.s->deferred[t];
        float up = __shfl_xor_sync(~0u, sum, 4); /* of the row behind */
        gpu_u32 *words = f.words + b.s->turn * FFN_FUSED_WORDS;
        if (t >= a.n || row >= part.rows) continue;
        if (row >= 2 * part.pairs)
            words[t * GPU_GATE_EXPERTS + part.first_row + row - 2 * part.pairs] = fused_word_of(sum);
        else if (row % 2 == 0)
            words[FFN_FUSED_LOGITS + t * FFN_FUSED_INTER + part.first_pair + row / 2] =
                fused_word_of(quick_silu(sum) * up);
    }
    if (!part.rows) named_barrier_sync(4, MULTIPLIERS + 32);
    block_mark(times, FFN_PRODUCTS);
    named_barrier_arrive(3, FFN_FUSED_THREADS); /* the ring is free, and the others may have come as far */
}

/* h of the shared expert: waits for it. */
static __device__ inline void shared_h_as_bf16(const gpu_decode_fused_args &a, const decode_fused_block &b,
                                               const gpu_u32 *words) {
    int each = a.shared_inter / 2;
    for (int i = threadIdx.x; i < a.n * each; i += MULTIPLIERS) {
        int t = i / each, c = i % each * 2;
        uint2 two = ld_words2(words + FFN_FUSED_LOGITS + t * FFN_FUSED_INTER + c);
        while (!two.x || !two.y) {
            poll_again();
            two = ld_words2(words + FFN_FUSED_LOGITS + t * FFN_FUSED_INTER + c);
        }
        *(gpu_u32 *)(b.shared_h + t * shared_stride(a) + c * 2) =
            pair_bf16(__uint_as_float(~two.x), __uint_as_float(~two.y));
    }
}

/* The expert that is a lane's i-th. */
static __device__ inline int expert_of(int i) { return i / 2 * 64 + (int)threadIdx.x % 32 * 2 + i % 2; }

/* Of a warp's k largest keys the experts, one a round: round r puts the expert of the r-th largest into ids[r]; of
 * equal keys the lowest expert comes first. `key` is used up. */
static __device__ inline void choose_by_rounds(gpu_u32 key[MINE], int k, int *ids) {
    for (int r = 0; r < k; r++) {
        gpu_u32 best = __reduce_max_sync(~0u, gate_largest<MINE>(key)), from[MINE];
#pragma unroll
        for (int i = 0; i < MINE; i++) from[i] = key[i] == best ? ~(gpu_u32)expert_of(i) : 0;
        gpu_u32 at = ~__reduce_max_sync(~0u, gate_largest<MINE>(from)); /* the lowest of them */
        if ((int)threadIdx.x % 32 == r) ids[r] = (int)at;
#pragma unroll
        for (int i = 0; i < MINE; i++)
            if (at == (gpu_u32)expert_of(i)) key[i] = 0;
    }
}

/* The two largest of N, as a tree. */
typedef struct {
    gpu_u32 first, second;
} two_largest;
template <int N> static __device__ inline two_largest two_largest_of(const gpu_u32 *v) {
    if constexpr (N == 1) {
        return {v[0], 0};
    } else {
        two_largest a = two_largest_of<N / 2>(v), b = two_largest_of<N - N / 2>(v + N / 2);
        gpu_u32 lower = a.first < b.first ? a.first : b.first, second = a.second > b.second ? a.second : b.second;
        return {a.first > b.first ? a.first : b.first, lower > second ? lower : second};
    }
}

/* The same where every lane has two of the chosen at most, and none is equal to one of another lane, or to one that is
 * not chosen; else false, and `key` as it was. Rounds are short: a lane looks at its two largest alone. */
static __device__ inline bool choose_quickly(const gpu_u32 key[MINE], int k, int *ids) {
    two_largest mine = two_largest_of<MINE>(key);
    gpu_u32 top = mine.first, next = mine.second, rounds = 0 /* a byte each that this lane had, the last one lowest */,
            least = 0;
#pragma unroll 1
    for (int r = 1; r <= k; r++) {
        least = __reduce_max_sync(~0u, top);
        if (top == least) rounds = rounds << 8 | (gpu_u32)r, top = next, next = 0;
    }
    int chosen = (rounds != 0) + (rounds > 255), first = 0, second = 0, count = 0;
#pragma unroll
    for (int i = MINE - 1; i >= 0; i--) first = key[i] == mine.first ? expert_of(i) : first;
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        second = key[i] == mine.second ? expert_of(i) : second; /* the other one if both are equal */
        count += key[i] >= least;
    }
    int all = __popc(__ballot_sync(~0u, chosen > 0)) + __popc(__ballot_sync(~0u, chosen > 1));
    if (__ballot_sync(~0u, count != chosen) || all != k) return false;
    if (chosen == 1) ids[rounds - 1] = first;
    if (chosen == 2) ids[(rounds >> 8) - 1] = first, ids[(rounds & 255) - 1] = second;
    return true;
}

/* The gate of token t, as gate.cuh's gate_row, by one warp, which waits for the logits (dry: does not). */
static __device__ inline void ffn_choose_experts(const gpu_ffn_fused_args &f, decode_fused_state *s,
                                                 const gpu_u32 *words, const float bias[MINE], float *logits, int t,
                                                 bool dry) {
    const gpu_decode_fused_args &a = f.fused;
    int lane = threadIdx.x % 32, *ids = s->id + t * a.k;
    gpu_u32 key[MINE];
    bool nan = false;
    for (bool there = false; !there;) {
        there = true;
#pragma unroll
        for (int i = 0; i < MINE; i += 2) {
            uint2 two = ld_words2(words + expert_of(i));
            key[i] = two.x, key[i + 1] = two.y;
        }
#pragma unroll
        for (int i = 0; i < MINE; i++) there = there && (dry || key[i] || expert_of(i) >= a.experts);
        if (!there) poll_again();
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        float logit = __uint_as_float(~key[i]), score = sigmoid(logit) + bias[i];
        bool here = expert_of(i) < a.experts;
        if (here) logits[expert_of(i)] = logit;
        nan |= here && isnan(score);
        key[i] = here ? gate_key_of(score) : 0;
    }
    nan = __ballot_sync(~0u, nan) != 0;
    bool chosen = choose_quickly(key, a.k, ids);
    if (!chosen && !dry) choose_by_rounds(key, a.k, ids);
    __syncwarp();
    if ((nan || (!chosen && dry)) && lane < a.k) ids[lane] = lane;
    __syncwarp(); /* any lane reads the ids, and the logits of the chosen */
    float weight = lane < a.k ? sigmoid(logits[ids[lane]]) : 0.0f, sum = weight;
    for (int d = 16; d; d /= 2) /* behind k there are zeros */
        if (d < a.k) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane >= a.k) return;
    s->pair_weight[t * a.k + lane] = nan ? NAN : __fdividef(weight, f.norm ? sum + 1e-20f : 1.0f) * f.scale;
}

/* plan_pairs() for one token: the gate's experts differ, and exist. */
static __device__ inline void plan_one(const gpu_decode_fused_args &a, decode_fused_state *s) {
    int lane = threadIdx.x % 32;
    if (lane < a.k) {
        s->expert[lane] = s->id[lane], s->weight[lane] = s->pair_weight[lane];
#pragma unroll
        for (int t = 0; t < DECODE_INT4_TILE; t++) s->row[lane][t] = t ? -1 : lane;
    }
    if (lane == 0) s->n_groups = s->n_rows = a.k;
    __syncwarp();
}

template <int TOKENS>
static __device__ inline void gate_and_copies(const gpu_ffn_fused_args &f, const decode_fused_block &b,
                                              block_times *times) {
    const gpu_decode_fused_args &a = f.fused;
    int t = threadIdx.x / 32 - COPIER;
    pipeline p = ring_begin(b);
    const up_item first = up_item_of(a, blockIdx.x);
    float bias[MINE];
    if (t == 0) ask_for_rows(f, b);
#pragma unroll
    for (int i = 0; i < MINE; i++) bias[i] = expert_of(i) < a.experts ? f.bias[expert_of(i)] : 0.0f;
    pdl_wait();
    int turn = (int)ld_words2(a.words).x; /* DECODE_FUSED_TURN */
    if (t == 0 && threadIdx.x % 32 == 0) b.s->turn = turn;
    if (t == 0) named_barrier_arrive(4, MULTIPLIERS + 32);
        /* once for nothing, so that the instructions are in the caches when the words come */
#pragma unroll 1
    for (int dry = 1; dry >= 0; dry--) {
        if (!dry) {
            /* sooner, to look for words would be in the way of other blocks */
            named_barrier_sync(3, FFN_FUSED_THREADS);
            if (t == 0) ask_for_shared_down(f);
        }
        if (t < a.n)
            ffn_choose_experts(f, b.s, f.words + turn * FFN_FUSED_WORDS + t * GPU_GATE_EXPERTS, bias,
                               (float *)(b.shared_h + a.n * shared_stride(a)) + t * GPU_GATE_EXPERTS, t, dry);
        named_barrier_sync(5, GATE_WARPS * 32);
        if (t) continue;
        if (!dry) block_mark(times, FFN_CHOSEN, COPIER * 32);
        if (TOKENS == 1)
            plan_one(a, b.s);
        else
            plan_pairs(a, b.s, b.s->id, b.s->pair_weight);
    }
    if (t == 0) {
        named_barrier_arrive(2, MULTIPLIERS + 32);
        block_mark(times, FFN_PLANNED, COPIER * 32);
        fused_copy_up(a, b, first, &p);
        if (threadIdx.x % 32 == 0) b.s->down = p;
    }
    named_barrier_sync(5, GATE_WARPS * 32);
    p = b.s->down;
    fused_copy_down<true>(a, b, &p, up_takes_long(a, b) ? 1 : GATE_WARPS);
    if (t == 0) leave_call(a, turn);
}

template <int TOKENS>
static __device__ inline void ffn_fused_one(const gpu_ffn_fused_args &a, gpu_u8 *memory, block_times *times) {
    const gpu_decode_fused_args &f = a.fused;
    decode_fused_block b = fused_block_of(f, memory);
    pipeline p = ring_begin(b);
    open_ring(f, b);
    if (threadIdx.x / 32 >= COPIER) {
        gate_and_copies<TOKENS>(a, b, times);
        return;
    }
    pdl_wait();
    digits_of_x<TOKENS, true>(f, b, [&] { first_products<TOKENS == 1 ? 10 : 0>(a, b, times); });
    int turn = b.s->turn;
    gpu_u32 *words = a.words + turn * FFN_FUSED_WORDS, *h = f.h + turn * DECODE_FUSED_H,
            *other = a.words + (1 - turn) * FFN_FUSED_WORDS;
    clear_other(f, turn);
    for (int i = blockIdx.x * MULTIPLIERS + threadIdx.x; i < FFN_FUSED_WORDS; i += gridDim.x * MULTIPLIERS)
        other[i] = 0;
    shared_h_as_bf16(f, b, words);
    block_mark(times, FFN_DIGITS);
    named_barrier_sync(2, MULTIPLIERS + 32); /* digits and plan */
    if (times) consumer_wait(p);
    block_mark(times, FFN_UP_FIRST);
    fused_compute_up(f, b, h, &p);
    block_mark(times, FFN_UP_DONE);
    await_h(f, b, turn);
    multipliers_sync(); /* digits of h come where those of x were */
    fused_digits_of_h(f, b, h);
    multipliers_sync();
    block_mark(times, FFN_H);
    if (times) consumer_wait(p);
    block_mark(times, FFN_DOWN_FIRST);
    fused_compute_down<true, TOKENS == 1 ? 4 : 8>(f, b, &p);
}

/* Grid: as many blocks as processors, at most. By the most tokens that they take: fewer instructions that have to
 * come first. */
#define FFN_FUSED(tokens)                                                                                              \
    KERNEL_PDL(ffn_fused_##tokens, gpu_ffn_fused_args, FFN_FUSED_THREADS, 1) {                                         \
        SHARED_TILES(memory);                                                                                          \
        ffn_fused_one<tokens>(a, memory, times);                                                                       \
    }
FFN_FUSED(1)
FFN_FUSED(2)
FFN_FUSED(4)
