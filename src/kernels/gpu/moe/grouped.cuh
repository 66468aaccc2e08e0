/* kernels/gpu/moe/grouped.cuh: routed experts at many tokens, on Hopper's warpgroup products; grouped_int4.cu has INT4
 * weights (int4_pack.h), grouped_mxfp4.cu MXFP4, grouped_nvfp4.cu NVFP4 (fp4_pack.h), grouped_bf16.cu bf16.
 *
 * Two launches after the sort by expert. Stage 1: h = silu(gate x) * (up x); stage 2: y = down h, a row for each
 * (token, slot). The weight is the first operand: 128 rows a consumer warpgroup (stage 1: 64 of gate and the same 64
 * of up), expanded from nibbles to bf16 in registers; the tokens are the second, 8 to 128 of one expert, in shared
 * memory. Two consumer warpgroups share the tokens; a producer warpgroup fills a ring of stages of 64 columns:
 * weights and rows of x (they lie anywhere) by 16-byte copies, h by the copy engine, since stage 1 leaves it as
 * stage 2's tiles want it: in columns of 64 values, each [rows, 64] swizzled by 128 bytes, the rows of an expert
 * together and beginning at a multiple of 8. One block a processor goes through the tiles, taking the next one when
 * it has room for it, since they differ in size; those of an expert are next to each other, so that its weights and
 * its tokens' rows come from the second-level cache after the first time.
 *
 * Bill of a tile of N tokens, each 64 columns: 256 x N x 64 products = 8 N clocks of the tensor cores, 9,216 bytes
 * of weights and 128 N of tokens; expanding takes 15 instructions for each 256 weights, 8 N clocks having room for 4
 * N of each scheduler. Sums are float32 in the order of the columns, products exact. */
#ifndef KERNELS_GPU_MOE_GROUPED_CUH
#define KERNELS_GPU_MOE_GROUPED_CUH
#include "kernels/gpu/moe/grouped_ring.cuh"

enum {
    PACKED,
    BF16_STORED,
    EIGHT,
    MXFP4 = GPU_W_PACKED_MXFP4,
    NVFP4 = GPU_W_PACKED_NVFP4
}; /* INT4 as int4_pack.h says; bf16 [rows, cols]; FP8 (fp8.cuh): stages of 128 columns, not 64; fp4_pack.h */
static constexpr bool in_blocks(int format) { return format == PACKED || is_packed_fp4(format); }

/* Shared memory: STAGES of {tokens [NMAX, 64] swizzled, weights: 16 strips' blocks or 4 x [64, 64] swizzled}, the
 * results of a tile, and the few numbers behind it. */
template <int NMAX, int F> struct plan {
    static constexpr int HALF_OUT = NMAX * 128, OUT = 2 * HALF_OUT, TOKENS = F == EIGHT ? NMAX * 256 : NMAX * 128;
    static constexpr int WEIGHTS = in_blocks(F) ? STRIPS * PACK_BYTES : ROWS * 128, STAGE = TOKENS + WEIGHTS;
    static constexpr int STAGES = (GPU_MOE_SHARED - 2048 - OUT) / STAGE,
                         TILES = STAGES * STAGE + OUT /* a tile a stage */,
                         KEPT = TILES + STAGES * 16 /* a tile a warp */,
                         PAIRS = KEPT + 8 * 16 /* [2][NMAX] of the tiles being written */,
                         NEXT = PAIRS + 2 * NMAX * 4 /* two tile numbers, in turns */,
                         SEEN = NEXT + 8 /* a word a warp: y_note */, BARRIERS = SEEN + 32,
                         SCALES = BARRIERS + STAGES * 16 /* EIGHT: four a stage */;
};

/* A lane's four scales as pairs to multiply with: of[group][row g or g + 8]. `two`: its 8 bytes. */
static __device__ __forceinline__ void spread(uint2 two, gpu_u32 of[2][2]) {
    of[0][0] = __byte_perm(two.x, 0, 0x1010), of[1][0] = __byte_perm(two.x, 0, 0x3232);
    of[0][1] = __byte_perm(two.y, 0, 0x1010), of[1][1] = __byte_perm(two.y, 0, 0x3232);
}

/* grouped_fp8.cu */
template <int NMAX, int N>
static __device__ __forceinline__ void multiply_eight(ring &r, int steps, float *d0, float *d1);

/* d[m] = rows of this warpgroup's block m times N tokens, `steps` stages. While a step of 16 columns is multiplied
 * the next is expanded; a stage goes back to the producer when the first step after it is under way. */
template <int NMAX, int N, int F>
static __device__ __forceinline__ void grouped_multiply(ring &r, int steps, float d0[N / 2], float d1[N / 2]) {
    if constexpr (F == EIGHT) return multiply_eight<NMAX, N>(r, steps / 2, d0, d1);
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    gpu_u32 bf16_bias = r.constant;
    const int strip = (warp / 4 * 8 + warp % 4) * PACK_BYTES + plan<NMAX, F>::TOKENS;
    gpu_u64 *before = nullptr;
    gpu_u32 a[2][2][4];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        consumer_wait(r.at);
        fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<plan<NMAX, F>>(r);
        gpu_u64 tokens = wgmma_desc(stage);
        uint4 words[2];
        uint2 stored[2];
        gpu_u32 scales[2][2][2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const unsigned char *block = stage + strip + m * 4 * PACK_BYTES;
            words[m] = *(const uint4 *)(block + lane * 16);
            stored[m] = *(const uint2 *)(block + PACK_SCALES + lane / 4 * 8);
            if constexpr (F == PACKED) spread(stored[m], scales[m]);
        }
#pragma unroll
        for (int s = 0; s < 4; s++) {
#pragma unroll
            for (int m = 0; m < 2; m++) {
                if constexpr (is_packed_fp4(F)) {
                    fp4_multipliers<F>(stored[m], s, scales[m][0]);
                    expand_fp4(word_of(words[m], s), scales[m][0], a[s % 2][m]);
                } else {
                    expand_bf16(word_of(words[m], s), scales[m][s / 2], bf16_bias, a[s % 2][m]);
                }
            }
            wgmma_begin();
            wgmma_ra<N>(d0, a[s % 2][0], tokens + 2 * s, 1);
            wgmma_ra<N>(d1, a[s % 2][1], tokens + 2 * s, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (s == 0 && before && lane == 0) mbarrier_arrive(before);
        }
        before = pipeline_empty(r.at);
        ring_next<plan<NMAX, F>>(r);
    }
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(before);
}

/* ---- stage 1 ---- */

template <int NMAX, int F> static __device__ __forceinline__ void grouped_up_produce(const gpu_moe_args &a, ring r) {
    int thread = threadIdx.x, strip = thread / 8;
    int columns = (int)(a.hidden / 64), row_tiles = (int)((a.inter + 127) / 128), tiles = *a.n_tiles * row_tiles;
    gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)(a.hidden / 8);
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles;
         tile = next_tile<plan<NMAX, F>>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix *m = a.experts + 3 * t.x;
        const int expert = t.x, row_tile = tile % row_tiles;
        t.x = is_packed_fp4(F) ? row_and_expert(row_tile, expert) : row_tile;
        gpu_u32 row[NMAX / 16]; /* of x, in units of 16 bytes */
#pragma unroll
        for (int i = 0; i < NMAX / 16; i++) {
            int j = i * 16 + thread / 8;
            row[i] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        }
        const unsigned char *w = strip_of(m[strip / 4 % 2], (gpu_i64)row_tile * 128 + strip / 8 * 64 + strip % 4 * 16);
        const gpu_u8 *x = (const gpu_u8 *)a.x + thread % 8 * 16;
#pragma unroll 1
        for (int c = 0; c < columns; c++, x += 128) {
            producer_acquire(r.at);
            gpu_u64 *full = pipeline_full(r.at);
            if (c == 0 && thread == 0) {
                *ring_tile<plan<NMAX, F>>(r) = t;
                __threadfence_block(); /* seen by whoever sees the arrival */
            }
            gpu_u32 stage = shared_at(r.memory) + r.at.stage * plan<NMAX, F>::STAGE;
            copy_strips(w, stage + plan<NMAX, F>::TOKENS + strip_place(PACK_BYTES));
            copy_tokens<0, NMAX / 16, 1>(stage + to, x, row, t.z);
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, F>>(r);
        }
    }
    ring_end<plan<NMAX, F>>(r, false);
}

template <int NMAX, int N, int F>
static __device__ __forceinline__ void grouped_up_tile(const gpu_moe_args &a, ring &r, const int4 &t) {
    float gate[N / 2], up[N / 2];
    grouped_multiply<NMAX, N, F>(r, (int)(a.hidden / 64), gate, up);
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)(is_packed_fp4(F) ? row_tile_of(t.x) : t.x) * 128 + group * 64;
    unsigned char *out = r.memory + plan<NMAX, F>::STAGES * plan<NMAX, F>::STAGE + group * plan<NMAX, F>::HALF_OUT;
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

template <int NMAX, int F> static __device__ __forceinline__ void grouped_down_produce(const gpu_moe_args &a, ring r) {
    int columns = (int)(a.inter / 64), row_tiles = (int)((a.hidden + 255) / 256), tiles = *a.n_tiles * row_tiles;
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles;
         tile = next_tile<plan<NMAX, F>>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix &m = a.experts[3 * t.x + 2];
        t.x = tile % row_tiles;
        gpu_u32 bytes = (gpu_u32)(t.z + 7) / 8 * 1024;
        const unsigned char *w = strip_of(m, (gpu_i64)t.x * ROWS + threadIdx.x / 8 * 16);
#pragma unroll 1
        for (int c = 0; c < columns; c++) {
            producer_acquire(r.at);
            unsigned char *stage = ring_stage<plan<NMAX, F>>(r);
            gpu_u64 *full = pipeline_full(r.at);
            if (threadIdx.x == 0) {
                if (c == 0) *ring_tile<plan<NMAX, F>>(r) = t;
                mbarrier_expect(full, bytes);
                tma_bulk(stage, a.h + (c * a.h_rows + t.w) * 64, bytes, full);
            }
            copy_strips(w, shared_at(stage) + plan<NMAX, F>::TOKENS + strip_place(PACK_BYTES));
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, F>>(r);
        }
    }
    ring_end<plan<NMAX, F>>(r, true);
}

/* Halves: turned around in shared memory, `NMAX / 2` tokens at a time, written 256 bytes of a token together. */
template <int NMAX, int N, int F>
static __device__ __forceinline__ void grouped_down_put(const gpu_moe_args &a, const ring &r, const float d[2][N / 2],
                                                        const int4 &t, int pair) {
    constexpr int PIECE = NMAX / 2;
    int all = thread_anew(), group = all / 128 - 1, thread = all % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)t.x * ROWS + group * 128;
    unsigned char *out = r.memory + plan<NMAX, F>::STAGES * plan<NMAX, F>::STAGE + group * plan<NMAX, F>::HALF_OUT;
    int across = (int)min64((a.hidden - row) / 8, 16); /* pieces of 16 bytes of a token; none: past the end */
    int *pairs = (int *)(r.memory + plan<NMAX, F>::PAIRS) + group * NMAX;
    gpu_u32 amax = 0;
    const float scale = a.rescale_pass ? y_scale(*a.y_amax) : 1.0f;
#pragma unroll
    for (int from = 0; from < N; from += PIECE) {
        named_barrier_sync(1 + group, 128);
        if (from == 0 && thread < NMAX) pairs[thread] = pair;
#pragma unroll
        for (int j = from / 8; j < N / 8 && j < (from + PIECE) / 8; j++) {
            int at = 8 * j + lane % 4 * 2;
            gpu_u32 two[4], is = at + 1 < t.z ? ~0u : at < t.z ? 0xffffu : 0; /* not a token: anything */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *v = &d[i / 2][4 * j + i % 2 * 2];
                two[i] = pair_half(v[0] * scale, v[1] * scale);
                amax = amax_half(amax, two[i] & is);
            }
            int token = 8 * j - from + lane % 8; /* matrices: rows 0..7, 8..15 of the warp's 16, the same 64 rows on */
            stmatrix4_t(out + token * 256 + (((lane / 16 * 8 + warp * 2 + lane / 8 % 2) ^ token % 8) << 4), two);
        }
        named_barrier_sync(1 + group, 128);
#pragma unroll 4
        for (int i = thread; i < PIECE * 16; i += 128) {
            int token = i / 16, c = i % 16;
            if (from + token >= t.z) break;
            if (c < across)
                *(uint4 *)((gpu_bf16 *)a.y + (gpu_i64)pairs[from + token] * a.hidden + row + c * 8) =
                    *(const uint4 *)(out + token * 256 + ((c ^ token % 8) << 4));
        }
    }
    if (!a.rescale_pass)
        y_note(a.y_amax, (gpu_u32 *)(r.memory + plan<NMAX, F>::SEEN) + group * 4 + warp, amax,
               [&] { return tile_amax<N>(d, t.z); });
}

template <int NMAX, int N, int F>
static __device__ __forceinline__ void grouped_down_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float d[2][N / 2];
    int4 *kept = (int4 *)(r.memory + plan<NMAX, F>::KEPT) + (threadIdx.x / 32 - 4); /* registers are scarce meanwhile */
    int pair = (int)(threadIdx.x % 128) < tile.z ? a.list[tile.y + threadIdx.x % 128] : 0;
    *kept = tile;
    grouped_multiply<NMAX, N, F>(r, (int)(a.inter / 64), d[0], d[1]);
    const int4 t = *kept;
    grouped_down_put<NMAX, N, F>(a, r, d, t, pair);
}

/* (With more widths in a kernel the compiler finds no registers for the widest.) */
template <int NMAX> struct tile_widths;
template <> struct tile_widths<64> { typedef widths<16, 32, 48, 64> type; };
template <> struct tile_widths<128> { typedef widths<32, 64, 80, 88, 96, 112, 120, 128> type; };

template <int NMAX, int F>
static __device__ __forceinline__ void grouped_up_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<plan<NMAX, F>>(memory, a.bf16_bias);
    ring_init<plan<NMAX, F>>(r, 128);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<40>();
        grouped_up_produce<NMAX, F>(a, r);
    } else {
        setmaxnreg_inc<232>();
        consume_tiles<plan<NMAX, F>>(r, typename tile_widths<NMAX>::type(), [&](auto n, const int4 &t) {
            grouped_up_tile<NMAX, decltype(n)::tokens, F>(a, r, t);
        });
    }
}

template <int NMAX, int F>
static __device__ __forceinline__ void grouped_down_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<plan<NMAX, F>>(memory, a.bf16_bias);
    ring_init<plan<NMAX, F>>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<40>();
        grouped_down_produce<NMAX, F>(a, r);
    } else {
        setmaxnreg_inc<232>();
        consume_tiles<plan<NMAX, F>>(r, typename tile_widths<NMAX>::type(), [&](auto n, const int4 &t) {
            grouped_down_tile<NMAX, decltype(n)::tokens, F>(a, r, t);
        });
    }
}

#define MOE_KERNELS(FORMAT, NMAX, up_name, down_name)                                                                  \
    KERNEL_OF(up_name, gpu_moe_args, GPU_GROUPED_THREADS, 1) {                                                         \
        SHARED_TILES(memory);                                                                                          \
        grouped_up_all<NMAX, FORMAT>(a, memory);                                                                       \
    }                                                                                                                  \
    KERNEL_OF(down_name, gpu_moe_args, GPU_GROUPED_THREADS, 1) {                                                       \
        SHARED_TILES(memory);                                                                                          \
        if (a.rescale_pass && !y_needs_rescale(*a.y_amax)) return;                                                     \
        grouped_down_all<NMAX, FORMAT>(a, memory);                                                                     \
    }

#endif
