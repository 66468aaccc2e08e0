/* kernels/gpu/moe/grouped_n176.cuh: routed experts at many tokens, of four bits, in tiles of up to 176 tokens;
 * grouped_int4_n176.cu and its like have the kernels. F: GPU_W_PACKED, .._MXFP4 or .._NVFP4.
 *
 * grouped.cuh's launches, tiles and arithmetic; what differs:
 *   width  176 tokens a tile instead of 128: one product of 64 x 176 x 16 is 88 clocks of the tensor cores, so that
 *   a warpgroup which multiplies
 *          alone keeps them busy while it expands the next 64 x 16 weights, and the second-level cache delivers 22
 *          bytes a clock and processor instead
 *          of 27. The sums take 176 registers of a thread, so only one product's weights are ahead.
 *   ends   of stage 2: a warp has 32 rows of its own and writes them without barriers; the producers bring the
 *   numbers of the rows of y with the
 *          weights, and ask for the next tile's numbers some stages ahead. */
#ifndef KERNELS_GPU_MOE_GROUPED_N176_CUH
#define KERNELS_GPU_MOE_GROUPED_N176_CUH
#include "kernels/gpu/moe/grouped_ring.cuh"

enum { NMAX = 176 };
enum { UP, DOWN };

/* Shared memory: STAGES of {tokens [NMAX, 64] swizzled, 16 strips' blocks}, the results of a tile, and the few
 * numbers behind it. Stage 1 turns [NMAX, 64] of a warpgroup around at a time, stage 2 16 tokens by 32 rows of a
 * warp; its producers bring row numbers: a slot a tile, of one more than can be on their way. */
template <int K> struct plan {
    static constexpr int TOKENS = NMAX * 128, STAGE = TOKENS + STRIPS * PACK_BYTES,
                         OUT = K == UP ? 2 * TOKENS : 8 * 1024, SLOT = K == UP ? 0 : NMAX * 4,
                         STAGES = (GPU_MOE_SHARED - 2048 - OUT - SLOT) / (STAGE + SLOT),
                         TILES = STAGES * STAGE + OUT /* a tile a stage */,
                         KEPT = TILES + STAGES * 16 /* a tile a warp */, SLOTS = KEPT + 8 * 16,
                         TABLE = SLOTS + (STAGES + 1) * SLOT /* [NMAX], of stage 1 */,
                         NEXT = TABLE +
                                (K == UP ? NMAX * 4 : 0) /* two tiles, in turns: their numbers, or all of stage 2's */,
                         SEEN = NEXT + (K == UP ? 8 : 64) /* a word a warp: y_note */, BARRIERS = SEEN + 32,
                         END = BARRIERS + STAGES * 16;
    static_assert(END <= GPU_MOE_SHARED, "shared memory");
};

/* two: the scales of rows g and g + 8, of one group in the lower or the upper halves. */
static __device__ __forceinline__ void expand_half(gpu_u32 word, uint2 two, bool upper, gpu_u32 bf16_bias,
                                                   gpu_u32 a[4]) {
    gpu_u32 scale[2] = {__byte_perm(two.x, 0, upper ? 0x3232 : 0x1010), __byte_perm(two.y, 0, upper ? 0x3232 : 0x1010)};
    expand_bf16(word, scale, bf16_bias, a);
}
/* Word s, whatever it holds. */
template <int F>
static __device__ __forceinline__ void n176_expand(gpu_u32 word, uint2 two, int s, gpu_u32 bf16_bias, gpu_u32 a[4]) {
    if constexpr (is_packed_fp4(F)) {
        gpu_u32 multiplier[2];
        fp4_multipliers<F>(two, s, multiplier);
        expand_fp4(word, multiplier, a);
    } else {
        expand_half(word, two, s / 2, bf16_bias, a);
    }
}

/* d[m] = rows of this warp's block m times N tokens, `steps` stages. While one product of 16 columns runs the next
 * is expanded; a stage goes back to the producer when the first product after it is under way. */
template <int F, int N, int K>
static __device__ __forceinline__ void n176_multiply(ring &r, int steps, float d0[N / 2], float d1[N / 2]) {
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    gpu_u32 bf16_bias = r.constant;
    const int strip = (K == UP ? warp / 4 * 8 + warp % 4 : 2 * warp) * PACK_BYTES + plan<K>::TOKENS;
    constexpr int NEXT_STRIP = (K == UP ? 4 : 1) * PACK_BYTES;
    gpu_u64 *before = nullptr;
    gpu_u32 a[2][4];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        consumer_wait(r.at);
        fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<plan<K>>(r);
        gpu_u64 tokens = wgmma_desc(stage);
        uint4 words[2];
        uint2 scales[2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const unsigned char *block = stage + strip + m * NEXT_STRIP;
            words[m] = *(const uint4 *)(block + lane * 16);
            scales[m] = *(const uint2 *)(block + PACK_SCALES + lane / 4 * 8);
        }
#pragma unroll
        for (int s = 0; s < 4; s++) {
#pragma unroll
            for (int m = 0; m < 2; m++) {
                n176_expand<F>(word_of(words[m], s), scales[m], s, bf16_bias, a[m]);
                wgmma_begin();
                wgmma_ra<N>(m ? d1 : d0, a[m], tokens + 2 * s, 1);
                wgmma_commit();
                wgmma_wait<1>();
                if (s == 0 && m == 0 && before && lane == 0) mbarrier_arrive(before);
            }
        }
        before = pipeline_empty(r.at);
        ring_next<plan<K>>(r);
    }
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(before);
}

/* ---- stage 1 ---- */

template <int F> static __device__ __forceinline__ void n176_up_produce(const gpu_moe_args &a, ring r) {
    int thread = threadIdx.x, strip = thread / 8;
    int columns = (int)(a.hidden / 64), row_tiles = (int)((a.inter + 127) / 128), tiles = *a.n_tiles * row_tiles;
    gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)(a.hidden / 8),
            *table = (gpu_u32 *)(r.memory + plan<UP>::TABLE);
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles; tile = next_tile<plan<UP>>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix *m = a.experts + 3 * (gpu_i64)t.x;
        const int expert = t.x, row_tile = tile % row_tiles;
        t.x = is_packed_fp4(F) ? row_and_expert(row_tile, expert) : row_tile;
        for (int j = thread; j < NMAX; j += 128)
            table[j] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        named_barrier_sync(3, 128);
        const unsigned char *w = strip_of(m[strip / 4 % 2], (gpu_i64)row_tile * 128 + strip / 8 * 64 + strip % 4 * 16);
        const gpu_u8 *x = (const gpu_u8 *)a.x + thread % 8 * 16;
        producer_acquire(r.at);
        if (thread == 0) {
            *ring_tile<plan<UP>>(r) = t;
            __threadfence_block(); /* seen by whoever sees the arrival */
        }
#pragma unroll 1
        for (int left = columns; left; left--, x += 128) {
            producer_acquire(r.at);
            gpu_u32 stage = shared_at(r.memory) + r.at.stage * plan<UP>::STAGE;
            copy_strips(w, stage + plan<UP>::TOKENS + strip_place(PACK_BYTES));
            copy_tokens<0, NMAX / 16, 16>(stage + to, x, table + thread / 8, t.z);
            mbarrier_arrive_cp_async(pipeline_full(r.at));
            ring_next<plan<UP>>(r);
        }
    }
    ring_end<plan<UP>>(r, false);
}

template <int F, int N>
static __device__ __forceinline__ void n176_up_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float gate[N / 2], up[N / 2];
    int4 *kept = (int4 *)(r.memory + plan<UP>::KEPT) + (threadIdx.x / 32 - 4); /* registers are scarce meanwhile */
    *kept = tile;
    n176_multiply<F, N, UP>(r, (int)(a.hidden / 64), gate, up);
    const int4 t = *kept;
    int all = thread_anew(), group = all / 128 - 1, thread = all % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)(is_packed_fp4(F) ? row_tile_of(t.x) : t.x) * 128 + group * 64;
    unsigned char *out = r.memory + plan<UP>::STAGES * plan<UP>::STAGE + group * plan<UP>::TOKENS;
    if constexpr (is_packed_fp4(F)) multiply_factors<N / 2>(a.experts, t.x, gate, up);
    named_barrier_sync(1 + group, 128); /* the last tile has been taken away */
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        gpu_u32 m[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = (j + i / 2) * 4 + i % 2 * 2;
            if (at < N / 2) m[i] = pair_bf16(silu_fast(gate[at]) * up[at], silu_fast(gate[at + 1]) * up[at + 1]);
        }
        /* matrices: rows 0..7 and 8..15 of the warp's 16, tokens 8 j .., then the next 8 tokens */
        stmatrix4_t(out + swizzled(8 * j + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), m);
    }
    named_barrier_sync(1 + group, 128);
    if (row >= a.inter) return;
    uint4 *to = (uint4 *)(a.h + (row / 64 * a.h_rows + t.w) * 64);
    for (int i = thread; i < (t.z + 7) / 8 * 64; i += 128) to[i] = ((const uint4 *)out)[i];
}

/* ---- stage 2 ---- */

/* What the producers need of a tile; tokens 0: there is none any more. */
typedef struct {
    const unsigned char *weights;
    int row, list, tokens, h_row;
} coming;
static __device__ __forceinline__ void coming_put(coming *c, const int4 &t, const unsigned char *weights,
                                                  int row_tile) {
    c->weights = weights, c->row = row_tile * ROWS, c->list = t.y, c->tokens = t.z, c->h_row = t.w;
}

/* Thread 0 asks for the next tile's number, numbers and weights in three stages of the one before, so that none of
 * these waits for memory. */
static __device__ __forceinline__ void n176_down_produce(const gpu_moe_args &a, ring r) {
    typedef plan<DOWN> p;
    int columns = (int)(a.inter / 64), row_tiles = (int)((a.hidden + 255) / 256), tiles = *a.n_tiles * row_tiles,
        slot = p::SLOTS, next = blockIdx.x;
    coming *of = (coming *)(r.memory + p::NEXT);
    int4 t = {0, 0, 0, 0};
    if (threadIdx.x == 0) {
        if (next < tiles) t = a.tiles[next / row_tiles];
        coming_put(of, t, (const unsigned char *)a.experts[3 * (gpu_i64)t.x + 2].data, next % row_tiles);
    }
    named_barrier_sync(3, 128);
    gpu_i64 own = threadIdx.x % 8 * 16;
    for (int turn = 0;; turn++) {
        const coming is = of[turn % 2];
        const unsigned char *deferred = nullptr;
        if (!is.tokens) break;
        gpu_i64 row = min64(is.row + threadIdx.x / 8 * 16,
                            a.hidden - PACK_ROWS); /* rows past the end are multiplied and thrown away */
        const unsigned char *w = is.weights + row / PACK_ROWS * columns * PACK_BYTES + own;
        const gpu_bf16 *h = a.h + (gpu_i64)is.h_row * 64;
        gpu_u32 bytes = (gpu_u32)(is.tokens + 7) / 8 * 1024;
        producer_acquire(r.at);
        for (int i = threadIdx.x; i < is.tokens; i += 128)
            cp_async_bytes<4>(r.memory + slot + i * 4, a.list + is.list + i);
        if (threadIdx.x == 0) *ring_tile<plan<DOWN>>(r) = int4{is.row, slot, is.tokens, 0};
        slot = slot == p::SLOTS + p::STAGES * p::SLOT ? p::SLOTS : slot + p::SLOT;
#pragma unroll 1
        for (int c = 0; c < columns; c++) {
            producer_acquire(r.at);
            unsigned char *stage = ring_stage<plan<DOWN>>(r);
            gpu_u64 *full = pipeline_full(r.at);
            if (threadIdx.x == 0) {
                mbarrier_expect(full, bytes);
                tma_bulk(stage, h, bytes, full);
            }
            h += a.h_rows * 64;
            copy_strips(w, shared_at(stage) + p::TOKENS + strip_place(PACK_BYTES));
            mbarrier_arrive_cp_async(full);
            if (threadIdx.x == 0) {
                if (c == 0) next = (int)gridDim.x + atomicAdd(a.work_counter, 1), t.x = t.z = 0;
                if (c == 1 && next < tiles) t = a.tiles[next / row_tiles];
                if (c == 2) deferred = (const unsigned char *)a.experts[3 * (gpu_i64)t.x + 2].data;
            }
            ring_next<plan<DOWN>>(r);
        }
        if (threadIdx.x == 0) {
            if (columns < 2 && next < tiles) t = a.tiles[next / row_tiles];
            if (columns < 3) deferred = (const unsigned char *)a.experts[3 * (gpu_i64)t.x + 2].data;
            coming_put(of + (turn + 1) % 2, t, deferred, next % row_tiles);
        }
        named_barrier_sync(3, 128);
    }
    ring_end<plan<DOWN>>(r, true);
}

/* Halves. A warp has 32 rows; it turns 16 tokens at a time around in shared memory and writes 64 bytes of each
 * together. t: {first row of the block, slot, tokens}. */
template <int N, int RESCALE>
static __device__ __forceinline__ void n176_down_put(const gpu_moe_args &a, const ring &r, const float d[2][N / 2],
                                                     const int4 &t) {
    typedef plan<DOWN> p;
    int thread = thread_anew(), warp = thread / 32 - 4, lane = thread % 32;
    const unsigned char *slot = r.memory + t.y;
    unsigned char *out = r.memory + p::STAGES * p::STAGE + warp * 1024;
    gpu_i64 row = (gpu_i64)t.x + warp * 32;
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
        /* matrices: rows 0..7, 8..15 of the warp's first block, of its second; lines are tokens */
        stmatrix4_t(out + j % 2 * 512 + lane % 8 * 64 + ((lane / 8 ^ lane % 8 / 2) << 4), two);
        if (j % 2 == 0 && j + 1 < N / 8) continue;
        __syncwarp();
#pragma unroll
        for (int i = 0; i <= j % 2; i++) {
            int token = lane / 4, place = 8 * (j - j % 2 + i) + token;
            if (place < t.z && row < a.hidden)
                *(uint4 *)((gpu_bf16 *)a.y + (gpu_i64)((const int *)slot)[place] * a.hidden + row + lane % 4 * 8) =
                    *(const uint4 *)(out + i * 512 + token * 64 + ((lane % 4 ^ token / 2) << 4));
        }
        __syncwarp();
    }
    if (!RESCALE) y_note(a.y_amax, (gpu_u32 *)(r.memory + p::SEEN) + warp, amax, [&] { return tile_amax<N>(d, t.z); });
}

template <int F, int N>
static __device__ __forceinline__ void n176_down_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float d[2][N / 2];
    int4 *kept = (int4 *)(r.memory + plan<DOWN>::KEPT) + (threadIdx.x / 32 - 4);
    *kept = tile;
    n176_multiply<F, N, DOWN>(r, (int)(a.inter / 64), d[0], d[1]);
    const int4 t = *kept;
    if (a.rescale_pass)
        n176_down_put<N, 1>(a, r, d, t);
    else
        n176_down_put<N, 0>(a, r, d, t);
}

/* (With six widths in a kernel the compiler finds no registers for the widest.) */
typedef widths<96, 120, 136, 152, 176> tile_widths;
enum { REGS_COPY = 40, REGS_MULTIPLY = 232 };

template <int F> static __device__ __forceinline__ void n176_up_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<plan<UP>>(memory, a.bf16_bias);
    ring_init<plan<UP>>(r, 128);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<REGS_COPY>();
        n176_up_produce<F>(a, r);
    } else {
        setmaxnreg_inc<REGS_MULTIPLY>();
        consume_tiles<plan<UP>>(r, tile_widths(),
                                [&](auto n, const int4 &t) { n176_up_tile<F, decltype(n)::tokens>(a, r, t); });
    }
}

template <int F> static __device__ __forceinline__ void n176_down_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<plan<DOWN>>(memory, a.bf16_bias);
    ring_init<plan<DOWN>>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<REGS_COPY>();
        n176_down_produce(a, r);
    } else {
        setmaxnreg_inc<REGS_MULTIPLY>();
        consume_tiles<plan<DOWN>>(r, tile_widths(),
                                  [&](auto n, const int4 &t) { n176_down_tile<F, decltype(n)::tokens>(a, r, t); });
    }
}

#define N176_KERNELS(FORMAT, up_name, down_name)                                                                       \
    KERNEL_OF(up_name, gpu_moe_args, GPU_GROUPED_THREADS, 1) {                                                         \
        SHARED_TILES(memory);                                                                                          \
        n176_up_all<FORMAT>(a, memory);                                                                                \
    }                                                                                                                  \
    KERNEL_OF(down_name, gpu_moe_args, GPU_GROUPED_THREADS, 1) {                                                       \
        SHARED_TILES(memory);                                                                                          \
        if (a.rescale_pass && !y_needs_rescale(*a.y_amax)) return;                                                     \
        n176_down_all<FORMAT>(a, memory);                                                                              \
    }

#endif
