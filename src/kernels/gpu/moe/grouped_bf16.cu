/* kernels/gpu/moe/grouped_bf16.cu: grouped.cuh's launches for experts in bf16 as the checkpoint has them, in tiles
 * of up to 176 tokens.
 *
 * Both operands of wgmma are in shared memory. The copy engine brings a stage's weights in four boxes of 64 rows by
 * 64 columns, and h; rows of x, which lie anywhere, come by 16-byte copies. A warp has rows of its own and writes
 * their results without barriers: 16 of h, 32 of y.
 *
 * Two blocks (a cluster) take units together: two row tiles and the tokens of an entry of the list. Where these are
 * too many for one tile each block has half of them, and brings half of the weights to both; else each has all of
 * them, and a row tile of its own.
 *
 * Bill of a stage and N tokens: 8 N clocks of the tensor cores, 32,768 bytes of weights, or half of that, and 128 N
 * of tokens from the second-level cache: 39 or 28 bytes a clock at N = 176. */
#include "kernels/gpu/moe/grouped.cuh"

enum { BOX = 64 * 128 /* bytes */ };

template <int NMAX> struct plan<NMAX, BF16_STORED> {
    static constexpr int TOKENS = NMAX * 128, STAGE = TOKENS + 4 * BOX, OUT = 1024 /* of a warp */,
                         STAGES = (GPU_MOE_SHARED - 1024 - 8 * OUT) / STAGE,
                         TILES = STAGES * STAGE + 8 * OUT /* a tile a stage */,
                         KEPT = TILES + STAGES * 16 /* a tile a warp */,
                         UNITS = KEPT + 8 * 16 /* numbers from block 0 to block 1 */, SLOTS = 16,
                         NEXT = UNITS + SLOTS * 8, SEEN = NEXT + 8 /* a word a warp: y_note */, BARRIERS = SEEN + 32,
                         END = BARRIERS + STAGES * 16;
    static_assert(END <= GPU_MOE_SHARED, "shared memory");
};

/* Of a warp: where it turns results around, and where it keeps its tile, since registers are scarce. */
template <int NMAX> static __device__ __forceinline__ unsigned char *warp_out(const ring &r, int warp) {
    typedef plan<NMAX, BF16_STORED> p;
    return r.memory + p::STAGES * p::STAGE + warp * p::OUT;
}
template <int NMAX> static __device__ __forceinline__ int4 *warp_tile(const ring &r) {
    return (int4 *)(r.memory + plan<NMAX, BF16_STORED>::KEPT) + (threadIdx.x / 32 - 4);
}

/* d[m] = box m of this warpgroup times N tokens, `steps` stages. A stage goes back to the producer when the next
 * one's products are under way. */
template <int NMAX, int N, bool COPIED>
static __device__ __forceinline__ void multiply_bf16(ring &r, int steps, float d0[N / 2], float d1[N / 2]) {
    const int group = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
    gpu_u64 *before = nullptr;
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        consumer_wait(r.at);
        if (COPIED) fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<plan<NMAX, BF16_STORED>>(r);
        const gpu_u64 tokens = wgmma_desc(stage),
                      rows = wgmma_desc(stage + plan<NMAX, BF16_STORED>::TOKENS + group * (2 * BOX));
        wgmma_begin();
#pragma unroll
        for (int s = 0; s < 4; s++) {
            wgmma_ss<N>(d0, rows + 2 * s, tokens + 2 * s, 1);
            wgmma_ss<N>(d1, rows + (BOX >> 4) + 2 * s, tokens + 2 * s, 1);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (before && lane < 2) mbarrier_arrive_in(before, lane);
        before = pipeline_empty(r.at);
        ring_next<plan<NMAX, BF16_STORED>>(r);
    }
    wgmma_wait<0>();
    if (lane < 2) mbarrier_arrive_in(before, lane);
}

template <int NMAX> static __device__ __forceinline__ ring bf16_open(unsigned char *memory, gpu_u32 fills) {
    typedef plan<NMAX, BF16_STORED> p;
    ring r = ring_open<plan<NMAX, BF16_STORED>>(memory, 0);
    if (threadIdx.x < p::SLOTS) ((gpu_u64 *)(memory + p::UNITS))[threadIdx.x] = 0;
    if (threadIdx.x < 8) ((gpu_u32 *)(memory + p::SEEN))[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        pipeline_init(r.at, p::STAGES, fills, 2 * CONSUMERS / 32);
        mbarrier_fence_init();
    }
    cluster_sync();
    return r;
}

/* Thread 0 of each block: the cluster's unit of this turn, counted from 1; coming: what block 0 has got. Block 0 is
 * never so many turns ahead as there are slots: it waits for the other one's consumers. */
template <int NMAX> static __device__ __forceinline__ int unit_of(const ring &r, int turn, int coming) {
    typedef plan<NMAX, BF16_STORED> p;
    volatile gpu_u64 *slot = (volatile gpu_u64 *)(r.memory + p::UNITS) + turn % p::SLOTS;
    if (cluster_rank() == 0) {
        *(volatile gpu_u64 *)in_cluster((const void *)slot, 1) = (gpu_u64)turn << 32 | (gpu_u32)coming;
        return coming;
    }
    gpu_u64 word;
    while ((int)((word = *slot) >> 32) != turn) poll_again();
    return (int)word;
}

/* This block's part of a unit, the tokens of an entry of the list times two row tiles. */
typedef struct {
    int4 t;             /* {first row tile, first place in the list, tokens, first row of h} */
    int expert, passes; /* row tiles one after the other */
    bool both;          /* the same rows as the other block */
} part;
static __device__ __forceinline__ part bf16_part_of(const gpu_moe_maps_args &all, int unit, int row_tiles) {
    const int across = (row_tiles + 1) / 2, rank = cluster_rank(), row = unit % across * 2;
    const int4 t = all.m.tiles[unit / across];
    const int half = ((t.z + 1) / 2 + 7) / 8 * 8;
    if (t.z > all.tile)
        return part{int4{row, t.y + rank * half, rank ? t.z - half : half, t.w + rank * half}, t.x,
                    row + 1 < row_tiles ? 2 : 1, true};
    return part{int4{row + rank, t.y, t.z, t.w}, t.x, 1, false};
}

/* A box of weights: of both blocks' where they have the same rows, then each brings two. */
static __device__ __forceinline__ void box_copy(unsigned char *weights, int i, bool both, const gpu_tensor_map *map,
                                                int c0, int c1, int c2, gpu_u64 *full) {
    if (!both)
        tma_load(weights + i * BOX, map, c0, c1, c2, full);
    else if (i / 2 == cluster_rank())
        tma_load_both(weights + i * BOX, map, c0, c1, c2, full);
}

/* ---- stage 1: a warpgroup has 64 rows of gate, and the same of up ---- */

template <int NMAX> static __device__ __forceinline__ void up_bf16_produce(const gpu_moe_maps_args &all, ring r) {
    typedef plan<NMAX, BF16_STORED> p;
    const gpu_moe_args &a = all.m;
    const int thread = threadIdx.x, columns = (int)(a.hidden / 64), row_tiles = (int)((a.inter + 127) / 128),
              units = *a.n_tiles * ((row_tiles + 1) / 2);
    const gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)(a.hidden / 8);
    int *next = (int *)(r.memory + p::NEXT);
    for (int turn = 1, unit = blockIdx.x / 2, coming = 0; unit < units; turn++) {
        if (thread == 0 && cluster_rank() == 0) coming = (int)gridDim.x / 2 + atomicAdd(a.work_counter, 1);
        const part is = bf16_part_of(all, unit, row_tiles);
        int4 t = is.t;
        int first = is.expert * 3 * (int)a.inter + t.x * 128; /* rows past the end are multiplied and thrown away */
        gpu_u32 row[NMAX / 16];                               /* of x, in units of 16 bytes */
#pragma unroll
        for (int i = 0; i < NMAX / 16; i++) {
            int j = i * 16 + thread / 8;
            row[i] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        }
#pragma unroll 1
        for (int i = 0, c = 0; i < is.passes * columns; i++) {
            const gpu_u8 *x = (const gpu_u8 *)a.x + thread % 8 * 16 + c * 128;
            producer_acquire(r.at);
            gpu_u64 *full = pipeline_full(r.at);
            unsigned char *stage = ring_stage<plan<NMAX, BF16_STORED>>(r);
            if (thread == 0) {
                if (c == 0) *ring_tile<plan<NMAX, BF16_STORED>>(r) = t;
                mbarrier_expect(full, 4 * BOX);
#pragma unroll
                for (int q = 0; q < 4; q++)
                    box_copy(stage + p::TOKENS, q, is.both, &all.in, 0, first + q / 2 * 64 + q % 2 * (int)a.inter, c,
                             full);
            }
            copy_tokens<0, NMAX / 16, 1>(shared_at(stage) + to, x, row, t.z);
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, BF16_STORED>>(r);
            if (++c == columns) c = 0, t.x++, first += 128;
        }
        if (thread == 0) next[turn % 2] = unit_of<NMAX>(r, turn, coming);
        named_barrier_sync(3, 128);
        unit = next[turn % 2];
    }
    ring_end<plan<NMAX, BF16_STORED>>(r, true);
}

template <int NMAX, int N>
static __device__ __forceinline__ void up_bf16_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float gate[N / 2], up[N / 2];
    *warp_tile<NMAX>(r) = tile;
    multiply_bf16<NMAX, N, true>(r, (int)(a.hidden / 64), gate, up);
    const int4 t = *warp_tile<NMAX>(r);
    __syncwarp(); /* before a lane puts the next there */
    const int thread = thread_anew(), warp = thread / 32 - 4, lane = thread % 32;
    const gpu_i64 row = (gpu_i64)t.x * 128 + warp / 4 * 64;
    if (row >= a.inter) return;
    unsigned char *out = warp_out<NMAX>(r, warp), *to = (unsigned char *)(a.h + (row / 64 * a.h_rows + t.w) * 64);
    const int token = lane / 2, last = (t.z + 7) / 8 * 8;
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        gpu_u32 m[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = (j + i / 2) * 4 + i % 2 * 2;
            if (at < N / 2) m[i] = pair_bf16(silu_fast(gate[at]) * up[at], silu_fast(gate[at + 1]) * up[at + 1]);
        }
        /* 16 tokens of 32 bytes; matrices: rows 0..7 and 8..15 of tokens 8 j .., then of the next 8 */
        unsigned char *turn = out + j / 2 % 2 * 512;
        stmatrix4_t(turn + (lane / 16 * 8 + lane % 8) * 32 + ((lane / 8 ^ lane / 4) % 2 << 4), m);
        __syncwarp();
        if (8 * j + token < last)
            *(uint4 *)(to + swizzled(8 * j + token, warp % 4 * 2 + lane % 2)) =
                *(const uint4 *)(turn + token * 32 + ((lane ^ token / 4) % 2 << 4));
    }
}

/* ---- stage 2: a warpgroup has 128 rows; box m of it has rows 32 w + 16 m .. of its warp w ---- */

/* One thread. */
template <int NMAX> static __device__ __forceinline__ void down_bf16_produce(const gpu_moe_maps_args &all, ring r) {
    typedef plan<NMAX, BF16_STORED> p;
    const gpu_moe_args &a = all.m;
    const int columns = (int)(a.inter / 64), row_tiles = (int)((a.hidden + 255) / 256),
              units = *a.n_tiles * ((row_tiles + 1) / 2), rank = cluster_rank();
    for (int turn = 1, unit = blockIdx.x / 2, coming = 0; unit < units; turn++) {
        if (rank == 0) coming = (int)gridDim.x / 2 + atomicAdd(a.work_counter, 1);
        const part is = bf16_part_of(all, unit, row_tiles);
        int4 t = is.t;
        const int expert = is.expert * all.out_rows;
        /* tokens that both blocks have are brought half by each */
        const gpu_u32 bytes = (gpu_u32)(t.z + 7) / 8 * 1024, half = (bytes / 1024 + 1) / 2 * 1024, from = rank * half,
                      own = rank ? bytes - half : half;
#pragma unroll 1
        for (int i = 0, c = 0; i < is.passes * columns; i++) {
            producer_acquire(r.at);
            gpu_u64 *full = pipeline_full(r.at);
            unsigned char *stage = ring_stage<plan<NMAX, BF16_STORED>>(r);
            if (c == 0) *ring_tile<plan<NMAX, BF16_STORED>>(r) = t;
            mbarrier_expect(full, 4 * BOX + bytes);
#pragma unroll
            for (int q = 0; q < 4; q++)
                box_copy(stage + p::TOKENS, q, is.both, &all.out, 64 * c,
                         expert + (int)min64(t.x * ROWS + q / 2 * 128, a.hidden - 128) + q % 2 * 16, 0, full);
            const gpu_bf16 *h = a.h + (c * a.h_rows + t.w) * 64;
            if (is.both)
                tma_bulk(stage, h, bytes, full);
            else if (own)
                tma_bulk_both(stage + from, (const unsigned char *)h + from, own, full);
            ring_next<plan<NMAX, BF16_STORED>>(r);
            if (++c == columns) c = 0, t.x++;
        }
        unit = unit_of<NMAX>(r, turn, coming);
    }
    producer_acquire(r.at);
    ring_tile<plan<NMAX, BF16_STORED>>(r)->z = 0;
    mbarrier_arrive(pipeline_full(r.at));
}

/* Halves: a warp turns 8 tokens at a time around in shared memory and writes 64 bytes of each together. pairs: rows
 * of y of 32 tokens each. */
template <int NMAX, int N, int RESCALE>
static __device__ __forceinline__ void down_bf16_put(const gpu_moe_args &a, const ring &r, const float d[2][N / 2],
                                                     const int pairs[(N + 31) / 32]) {
    const int4 t = *warp_tile<NMAX>(r);
    const int thread = thread_anew(), warp = thread / 32 - 4, lane = thread % 32, token = lane / 4;
    unsigned char *out = warp_out<NMAX>(r, warp);
    /* where 128 rows are not left the last 128, written twice if need be: the same bits */
    gpu_bf16 *y = (gpu_bf16 *)a.y + min64(t.x * ROWS + warp / 4 * 128, a.hidden - 128) + warp % 4 * 32 + lane % 4 * 8;
    gpu_u32 amax = 0;
    const float scale = RESCALE ? y_scale(*a.y_amax) : 1.0f;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        int at = 8 * j + lane % 4 * 2;
        gpu_u32 two[4], is = at + 1 < t.z ? ~0u : at < t.z ? 0xffffu : 0; /* not a token: anything */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *v = &d[i / 2][4 * j + i % 2 * 2];
            two[i] = RESCALE ? pair_half(v[0] * scale, v[1] * scale) : pair_half(v[0], v[1]);
            if (!RESCALE) amax = amax_half(amax, two[i] & is);
        }
        /* matrices: rows 0..7, 8..15 of the warp's first 16, of its second; lines are tokens */
        unsigned char *turn = out + j % 2 * 512;
        stmatrix4_t(turn + lane % 8 * 64 + ((lane / 8 ^ lane % 8 / 2) << 4), two);
        const int pair = __shfl_sync(~0u, pairs[j / 4], j % 4 * 8 + token);
        __syncwarp();
        if (8 * j + token < t.z)
            *(uint4 *)(y + (gpu_i64)pair * a.hidden) =
                *(const uint4 *)(turn + token * 64 + ((lane % 4 ^ token / 2) << 4));
    }
    __syncwarp();
    if (!RESCALE)
        y_note(a.y_amax, (gpu_u32 *)(r.memory + plan<NMAX, BF16_STORED>::SEEN) + warp, amax,
               [&] { return tile_amax<N>(d, t.z); });
}

template <int NMAX, int N>
static __device__ __forceinline__ void down_bf16_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float d[2][N / 2];
    int pairs[(N + 31) / 32];
    *warp_tile<NMAX>(r) = tile;
#pragma unroll
    for (int i = 0; i < (N + 31) / 32; i++) {
        int at = i * 32 + threadIdx.x % 32;
        pairs[i] = a.list[tile.y + (at < tile.z ? at : 0)];
    }
    multiply_bf16<NMAX, N, false>(r, (int)(a.inter / 64), d[0], d[1]);
    if (a.rescale_pass)
        down_bf16_put<NMAX, N, 1>(a, r, d, pairs);
    else
        down_bf16_put<NMAX, N, 0>(a, r, d, pairs);
}

template <int NMAX> struct bf16_widths;
template <> struct bf16_widths<64> { typedef widths<16, 32, 48, 64> type; };
template <> struct bf16_widths<176> {
    typedef widths<32, 64, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176> type;
};

template <int NMAX, bool UP>
static __device__ __forceinline__ void run_bf16(const gpu_moe_maps_args &all, unsigned char *memory) {
    ring r = bf16_open<NMAX>(memory, UP ? 128 + 1 : 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<56>();
        if constexpr (UP)
            up_bf16_produce<NMAX>(all, r);
        else if (threadIdx.x == 0)
            down_bf16_produce<NMAX>(all, r);
    } else {
        setmaxnreg_inc<224>();
        consume_tiles<plan<NMAX, BF16_STORED>>(r, typename bf16_widths<NMAX>::type(), [&](auto n, const int4 &t) {
            if constexpr (UP)
                up_bf16_tile<NMAX, decltype(n)::tokens>(all.m, r, t);
            else
                down_bf16_tile<NMAX, decltype(n)::tokens>(all.m, r, t);
        });
    }
    cluster_sync(); /* the other block reaches into this one's memory no more */
}

#define BF16_KERNEL(NMAX, name, UP)                                                                                    \
    KERNEL_OF(name, gpu_moe_maps_args, GPU_GROUPED_THREADS, 1) {                                                       \
        SHARED_TILES(memory);                                                                                          \
        if (UP || !a.m.rescale_pass || y_needs_rescale(*a.m.y_amax)) run_bf16<NMAX, UP>(a, memory);                    \
    }
BF16_KERNEL(64, grouped_bf16_up_64, true)
BF16_KERNEL(64, grouped_bf16_down_64, false)
BF16_KERNEL(176, grouped_bf16_up_176, true)
BF16_KERNEL(176, grouped_bf16_down_176, false)
