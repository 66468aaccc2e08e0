/* kernels/gpu/comm/all_reduce.cu: the sum of all ranks' x of few values, in their order, by one launch on each GPU.
 *
 * A word of two values is known to have come because it is not 0, which memory holds that nobody wrote ("Lamport" in
 * TensorRT-LLM and FlashInfer): values travel inverted, and the one pair whose inverse is 0, two NaN, as another NaN.
 * So nothing travels beside the values, and no store waits for another. In one shot each rank gets all parts and adds
 * them up, (ranks - 1) times the values sent by each; in two a chunk is summed by one rank, in turn, which sends the
 * sum to all: twice the values at most, for one more way through a link.
 *
 * Memory is used in turn, LAMPORT_SLOTS exchanges long: of exchange e in slot e % 3, while the slot of exchange e - 1
 * is made 0 again for e + 2. Whoever sends e + 2 has finished e + 1, for which it needed this rank's part, and that was
 * sent by a launch after the one that made it 0. */
#include "kernels/gpu/comm/exchange.cuh"
#include "kernels/gpu/device/mma_tile.cuh"

typedef struct {
    exchange_state s;
    int slot;        /* of this exchange */
    int at, before;  /* where it begins, and that of the exchange before, in units of an inbox */
    int part, relay; /* units that the exchange before has filled: of a part, of the sums */
} lamport_state;

static __device__ inline int slot_units(const gpu_all_reduce_args &a) { return a.e.ranks * a.room + a.relay_room; }
static __device__ inline gpu_u32 *words_of(const gpu_all_reduce_args &a, int block) {
    return a.e.words + COMM_LAMPORT + block * LAMPORT_WORDS;
}

/* l.s.going is false if the group has failed: then nothing is exchanged. No return, behind which all loads of the
 * kernel would wait for this one. */
static __device__ inline void lamport_begin(const gpu_all_reduce_args &a, lamport_state &l, int block) {
    const uint4 words = ld_cg_words4((const uint4 *)words_of(a, block));
    const gpu_u32 broken = *(volatile gpu_u32 *)&a.e.words[COMM_BROKEN];
    l.slot = (int)words.x, l.part = (int)words.y, l.relay = (int)words.z;
    l.at = l.slot * slot_units(a);
    l.before = (l.slot ? l.slot - 1 : LAMPORT_SLOTS - 1) * slot_units(a);
    l.s.going = !broken;
    l.s.until = l.s.look = 0;
}

/* By all threads of all blocks: every block counts for itself, and for those that this launch lacks. */
static __device__ inline void lamport_end(const gpu_all_reduce_args &a, const lamport_state &l, int block, int blocks) {
    __syncthreads(); /* all have read the words */
    block += (int)threadIdx.x * blocks;
    if (block >= COMM_NORM_BLOCKS) return;
    const int next = l.slot == LAMPORT_SLOTS - 1 ? 0 : l.slot + 1;
    *(uint4 *)words_of(a, block) = {(gpu_u32)next, (gpu_u32)a.part_units, a.one_shot ? 0 : (gpu_u32)a.relay_units, 0};
}

/* The rank that sums the round's chunk of this block; gridDim.x is a multiple of the ranks, so that each of them has
 * one of as many neighbouring chunks. */
static __device__ inline int summed_by(const gpu_all_reduce_args &a, int round) {
    return a.one_shot ? a.e.rank : ((int)blockIdx.x + round) % a.e.ranks;
}
/* This thread's unit of a chunk among those that a rank sends to whoever sums it, and among the sums. */
static __device__ inline int part_unit(const gpu_all_reduce_args &a, int chunk) {
    return (a.one_shot ? chunk : chunk / a.e.ranks) * GPU_THREADS + (int)threadIdx.x;
}
static __device__ inline int relay_unit(const gpu_all_reduce_args &a, int chunk) {
    return a.e.ranks * a.room + chunk * GPU_THREADS + (int)threadIdx.x;
}

static __device__ inline gpu_u32 never_all_ones(gpu_u32 two) { return two == ~0u ? 0x7fffffffu : two; }
static __device__ inline void put(const gpu_all_reduce_args &a, const lamport_state &l, int to, int unit, uint2 v) {
    store_words2(a.inboxes[to] + l.at + unit, uint2{~never_all_ones(v.x), ~never_all_ones(v.y)});
}
static __device__ inline bool is_there(uint2 v) { return v.x != 0 && v.y != 0; }
static __device__ inline uint2 look(const gpu_all_reduce_args &a, const lamport_state &l, int unit) {
    return load_words2(a.inboxes[a.e.rank] + l.at + unit);
}

/* The sum of all ranks' unit, rounded; means nothing if l.s.going is false then. Loads of SUM_AT_ONCE ranks are under
 * way at once: one after the other each costs a way to memory, and of all eight the addresses would take the registers
 * that let a launch begin beside the one before it. */
enum { SUM_AT_ONCE = 4 };
static __device__ inline uint2 sum_of_ranks(const gpu_all_reduce_args &a, lamport_state &l, int unit, uint2 own) {
    float sum[GPU_UNIT_VALUES];
#pragma unroll 1
    for (int from = 0; from < a.e.ranks; from += SUM_AT_ONCE) {
        const uint2 *const at = a.inboxes[a.e.rank] + l.at + from * a.room + unit;
        uint2 v[SUM_AT_ONCE];
        for (int polls = 1; l.s.going; polls++) {
            int missing = -1;
#pragma unroll
            for (int r = 0; r < SUM_AT_ONCE; r++) {
                v[r] = {~own.x, ~own.y};
                if (from + r < a.e.ranks && from + r != a.e.rank) v[r] = load_words2(at + r * a.room);
            }
#pragma unroll
            for (int r = 0; r < SUM_AT_ONCE; r++)
                if (from + r < a.e.ranks && from + r != a.e.rank && !is_there(v[r])) missing = from + r;
            if (missing < 0) break;
            if (polls % POLLS == 0) l.s.going = !must_give_up(a.e, l.s, missing);
            poll_again();
        }
#pragma unroll
        for (int r = 0; r < SUM_AT_ONCE; r++) {
            const uint2 two = {~v[r].x, ~v[r].y};
            const float part[GPU_UNIT_VALUES] = {low_f32(two.x), high_f32(two.x), low_f32(two.y), high_f32(two.y)};
#pragma unroll
            for (int i = 0; i < GPU_UNIT_VALUES; i++)
                if (from + r < a.e.ranks) sum[i] = from + r ? sum[i] + part[i] : part[i];
        }
    }
    return {two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
}

/* The sum that another rank has made. */
static __device__ inline uint2 sum_from(const gpu_all_reduce_args &a, lamport_state &l, int chunk, int from, uint2 v) {
    l.s.until = 0;
    for (int polls = 1; l.s.going && !is_there(v); polls++) {
        if (polls % POLLS == 0) l.s.going = !must_give_up(a.e, l.s, from, 2);
        poll_again();
        v = look(a, l, relay_unit(a, chunk));
    }
    return {~v.x, ~v.y};
}

/* What a thread has of a chunk: GPU_UNIT_VALUES columns of a row, from c on. */
typedef struct {
    int row, c, at;
    bool here;
} unit_place;
static __device__ inline unit_place unit_in_row(const gpu_all_reduce_args &a, int row, int piece) {
    unit_place v;
    v.row = row, v.c = (piece * GPU_THREADS + (int)threadIdx.x) * GPU_UNIT_VALUES;
    v.at = row * a.dim + v.c, v.here = v.c < a.dim && v.at < a.n;
    return v;
}
static __device__ inline unit_place unit_of_chunk(const gpu_all_reduce_args &a, int chunk) {
    return unit_in_row(a, chunk / a.across, chunk % a.across);
}
static __device__ inline uint2 two_words(const gpu_bf16 *x, unit_place v) {
    return v.here ? *(const uint2 *)(x + v.at) : uint2{0, 0};
}

/* N: loads under way in a thread. */
template <int N> static __device__ inline void send_own(const gpu_all_reduce_args &a, const lamport_state &l) {
    const int me = a.e.rank, grid = (int)gridDim.x;
    for (int first = blockIdx.x, round = 0; first < a.chunks; first += N * grid, round += N) {
        uint2 own[N];
#pragma unroll
        for (int i = 0; i < N; i++) own[i] = two_words(a.x, unit_of_chunk(a, first + i * grid));
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int chunk = first + i * grid, by = summed_by(a, round + i);
            if (!unit_of_chunk(a, chunk).here || !l.s.going) continue;
            for (int k = 1; k < a.e.ranks; k++) { /* everybody begins with another */
                const int r = (me + k) % a.e.ranks;
                if (a.one_shot || r == by) put(a, l, r, me * a.room + part_unit(a, chunk), own[i]);
            }
        }
    }
}

/* What the exchange before this one left here. */
static __device__ inline void clear_before(const gpu_all_reduce_args &a, const lamport_state &l, int block,
                                           int blocks) {
    uint2 *const old = a.inboxes[a.e.rank] + l.before;
    const int step = blocks * GPU_THREADS, first = block * GPU_THREADS + (int)threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < a.e.ranks; r++)
#pragma unroll 1
        for (int u = first; u < l.part; u += step) old[r * a.room + u] = uint2{0, 0};
#pragma unroll 1
    for (int u = first; u < l.relay; u += step) old[a.e.ranks * a.room + u] = uint2{0, 0};
}

static __device__ inline void send_sum(const gpu_all_reduce_args &a, const lamport_state &l, int chunk, uint2 sum) {
    for (int k = 1; k < a.e.ranks; k++) put(a, l, (a.e.rank + k) % a.e.ranks, relay_unit(a, chunk), sum);
}

enum { AT_ONCE = 4 /* chunks whose loads are under way in a thread */ };

KERNEL_OF(all_reduce, gpu_all_reduce_args, GPU_THREADS, COMM_RESIDENT) {
    lamport_state l;
    const int me = a.e.rank, grid = (int)gridDim.x;
    lamport_begin(a, l, blockIdx.x);
    send_own<AT_ONCE>(a, l);
    clear_before(a, l, blockIdx.x, gridDim.x);
    for (int chunk = blockIdx.x, round = 0; chunk < a.chunks; chunk += grid, round++) {
        const unit_place v = unit_of_chunk(a, chunk);
        if (summed_by(a, round) != me || !v.here) continue;
        const uint2 sum = sum_of_ranks(a, l, part_unit(a, chunk), two_words(a.x, v));
        if (!l.s.going) break;
        if (!a.one_shot) send_sum(a, l, chunk, sum);
        *(uint2 *)(a.x + v.at) = sum;
    }
    for (int first = blockIdx.x, round = 0; !a.one_shot && first < a.chunks;
         first += AT_ONCE * grid, round += AT_ONCE) {
        uint2 sum[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * grid < a.chunks) sum[i] = look(a, l, relay_unit(a, first + i * grid));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int chunk = first + i * grid, by = summed_by(a, round + i);
            const unit_place v = unit_of_chunk(a, chunk);
            if (by == me || !v.here) continue;
            sum[i] = sum_from(a, l, chunk, by, sum[i]);
            if (l.s.going) *(uint2 *)(a.x + v.at) = sum[i];
        }
    }
    lamport_end(a, l, blockIdx.x, gridDim.x);
}

/* What is done with a unit's sum, and what that needs. */
typedef struct {
    uint2 own, x;
    float4 weight;
} norm_unit;
static __device__ inline norm_unit norm_unit_at(const gpu_all_reduce_args &a, unit_place at) {
    norm_unit v = {};
    if (!at.here) return v;
    v.own = ld_words2(a.x + at.at), v.x = ld_words2(a.after.x + at.at); /* under way before what follows */
    v.weight = *(const float4 *)(a.after.weight + at.c);
    return v;
}

/* The sum of piece `piece` of a row goes to the residual stream, rounded before and after, and what the norm behind it
 * needs beside its scale (params.h, gpu_after). By all threads of the block. */
static __device__ inline void add_to_stream(const gpu_all_reduce_args &a, const lamport_state &l, unit_place at,
                                            int piece, const norm_unit &v, uint2 of_ranks) {
    const float x[GPU_UNIT_VALUES] = {low_f32(v.x.x), high_f32(v.x.x), low_f32(v.x.y), high_f32(v.x.y)};
    float sum[GPU_UNIT_VALUES] = {low_f32(of_ranks.x), high_f32(of_ranks.x), low_f32(of_ranks.y), high_f32(of_ranks.y)};
    float squares = 0;
    bool bad = false;
#pragma unroll
    for (int i = 0; i < GPU_UNIT_VALUES; i++) {
        sum[i] = at.here ? f32_of(bf16_of(x[i] + sum[i])) : 0;
        squares = fmaf(sum[i], sum[i], squares);
        bad |= sum[i] - sum[i] != 0.0f;
    }
    if (at.here && l.s.going) {
        *(uint2 *)(a.after.x + at.at) = uint2{two_bf16(sum[0], sum[1]), two_bf16(sum[2], sum[3])};
        *(uint2 *)(a.after.out + at.at) = uint2{two_bf16(sum[0] * v.weight.x, sum[1] * v.weight.y),
                                                two_bf16(sum[2] * v.weight.z, sum[3] * v.weight.w)};
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) a.after.squares[(gpu_i64)at.row * GPU_DEFERRED_PARTS + piece] = squares;
    if (!a.after.bad || squares - squares == 0.0f) return; /* a sum of squares that is finite had none */
    if (bad && l.s.going && a.after.bad[at.row] == 0) a.after.bad[at.row] = a.after.mark;
}

/* A block takes chunks of rows: those that it sums first, for which others wait. */
KERNEL_PDL(all_reduce_norm, gpu_all_reduce_args, GPU_THREADS, COMM_RESIDENT) {
    lamport_state l;
    const int me = a.e.rank, grid = (int)gridDim.x;
    pdl_wait();
    const norm_unit first = norm_unit_at(a, unit_of_chunk(a, blockIdx.x)); /* under way beside the words */
    lamport_begin(a, l, blockIdx.x);
    send_own<1>(a, l);
    clear_before(a, l, blockIdx.x, gridDim.x);
    for (int summed = 1; summed >= (int)a.one_shot; summed--)
        for (int chunk = blockIdx.x, round = 0; chunk < a.chunks; chunk += grid, round++) {
            const int by = summed_by(a, round);
            if ((by == me) != (summed == 1)) continue;
            const unit_place at = unit_of_chunk(a, chunk);
            const norm_unit v = round == 0 ? first : norm_unit_at(a, at);
            uint2 sum = {0, 0};
            if (at.here) {
                sum = by == me ? sum_of_ranks(a, l, part_unit(a, chunk), v.own)
                               : sum_from(a, l, chunk, by, look(a, l, relay_unit(a, chunk)));
                if (by == me && !a.one_shot && l.s.going) send_sum(a, l, chunk, sum);
            }
            add_to_stream(a, l, at, chunk % a.across, v, sum);
        }
    lamport_end(a, l, blockIdx.x, gridDim.x);
}

/* The same in one shot, a block a piece (x) of a row (y): few instructions, which in a step each launch fetches anew.
 */
KERNEL_PDL(all_reduce_norm_few, gpu_all_reduce_args, GPU_THREADS, COMM_RESIDENT) {
    lamport_state l;
    const int chunk = blockIdx.y * gridDim.x + blockIdx.x;
    pdl_wait();
    const unit_place at = unit_in_row(a, blockIdx.y, blockIdx.x);
    const norm_unit v = norm_unit_at(a, at);
    lamport_begin(a, l, chunk);
    const int unit = chunk * GPU_THREADS + (int)threadIdx.x;
    if (at.here && l.s.going)
#pragma unroll 1
        for (int r = 0; r < a.e.ranks; r++)
            if (r != a.e.rank) put(a, l, r, a.e.rank * a.room + unit, v.own);
    clear_before(a, l, chunk, gridDim.x * gridDim.y);
    add_to_stream(a, l, at, blockIdx.x, v, at.here ? sum_of_ranks(a, l, unit, v.own) : uint2{0, 0});
    lamport_end(a, l, chunk, gridDim.x * gridDim.y);
}
