/* kernels/gpu/moe/grouped.cuh: routed experts at many tokens, on Hopper's warpgroup products; grouped_int4.cu has INT4
 * weights (int4_pack.h), grouped_bf16.cu bf16.
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
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/moe/fp16_range.cuh"
#include "kernels/gpu/device/int4_pack.cuh"

enum { THREADS = 384, CONSUMERS = 256, ROWS = 256, STRIPS = 16 };
enum {
    PACKED,
    BF16_STORED,
    EIGHT
}; /* INT4 as int4_pack.h says; bf16 [rows, cols]; FP8 (fp8.cuh): stages of 128 columns, not 64 */

/* Shared memory: STAGES of {tokens [NMAX, 64] swizzled, weights: 16 strips' blocks or 4 x [64, 64] swizzled}, the
 * results of a tile, and the few numbers behind it. */
template <int NMAX, int F> struct plan {
    static constexpr int HALF_OUT = NMAX * 128, OUT = 2 * HALF_OUT, TOKENS = F == EIGHT ? NMAX * 256 : NMAX * 128;
    static constexpr int WEIGHTS = F == PACKED ? STRIPS * PACK_BYTES : ROWS * 128, STAGE = TOKENS + WEIGHTS;
    static constexpr int STAGES = (GPU_MOE_SHARED - 2048 - OUT) / STAGE,
                         TILES = STAGES * STAGE + OUT /* a tile a stage */,
                         KEPT = TILES + STAGES * 16 /* a tile a warp */,
                         PAIRS = KEPT + 8 * 16 /* [2][NMAX] of the tiles being written */,
                         NEXT = PAIRS + 2 * NMAX * 4 /* two tile numbers, in turns */,
                         SEEN = NEXT + 8 /* a word a warp: y_note */, BARRIERS = SEEN + 32,
                         SCALES = BARRIERS + STAGES * 16 /* EIGHT: four a stage */;
};

/* A place in the ring; parity: of the phase of `full` that it waits for next. */
typedef struct {
    unsigned char *memory;
    gpu_u64 *full, *empty;
    int at;
    gpu_u32 parity, bf16_bias; /* gpu_moe_args.bf16_bias */
} ring;

template <int NMAX, int F> static __device__ __forceinline__ ring ring_open(unsigned char *memory, gpu_u32 bf16_bias) {
    typedef plan<NMAX, F> p;
    gpu_u64 *barriers = (gpu_u64 *)(memory + p::BARRIERS);
    return ring{memory, barriers, barriers + p::STAGES, 0, 0, bf16_bias};
}
template <int NMAX, int F> static __device__ __forceinline__ void ring_init(const ring &r, gpu_u32 fills) {
    if (threadIdx.x < 8) ((gpu_u32 *)(r.memory + plan<NMAX, F>::SEEN))[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < plan<NMAX, F>::STAGES; i++)
            mbarrier_init(r.full + i, fills), mbarrier_init(r.empty + i, CONSUMERS / 32);
        mbarrier_fence_init();
    }
    __syncthreads();
}
template <int NMAX, int F> static __device__ __forceinline__ unsigned char *ring_stage(const ring &r) {
    return r.memory + r.at * plan<NMAX, F>::STAGE;
}
/* The tile that begins with this stage, {row tile, first place in the list, tokens, first row of h}; no tokens:
 * there is none any more. */
template <int NMAX, int F> static __device__ __forceinline__ int4 *ring_tile(const ring &r) {
    return (int4 *)(r.memory + plan<NMAX, F>::TILES) + r.at;
}
template <int NMAX, int F> static __device__ __forceinline__ void ring_next(ring &r) {
    if (++r.at == plan<NMAX, F>::STAGES) r.at = 0, r.parity ^= 1;
}

static __device__ __forceinline__ gpu_u32 word_of(const uint4 &v, int s) {
    return s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w;
}

/* One word of nibbles as the first operand of mma_bf16; scale: of the word's group, of rows g and g + 8. One
 * instruction for mask and exponent, which takes at most one constant: `bf16_bias` is in a register. */
static __device__ __forceinline__ void expand(gpu_u32 word, const gpu_u32 scale[2], gpu_u32 bf16_bias, gpu_u32 a[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = two_mul(two_sub((word >> 4 * i & 0x000f000fu) | bf16_bias, 0x43084308u), scale[i % 2]);
}

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
static __device__ __forceinline__ void multiply(ring &r, int steps, float d0[N / 2], float d1[N / 2]) {
    if constexpr (F == EIGHT) return multiply_eight<NMAX, N>(r, steps / 2, d0, d1);
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    gpu_u32 bf16_bias = r.bf16_bias;
    const int strip = (warp / 4 * 8 + warp % 4) * PACK_BYTES + plan<NMAX, F>::TOKENS;
    gpu_u64 *before = nullptr;
    gpu_u32 a[2][2][4];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        mbarrier_wait(r.full + r.at, r.parity);
        fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<NMAX, F>(r);
        gpu_u64 tokens = wgmma_desc(stage);
        uint4 words[2];
        gpu_u32 scales[2][2][2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const unsigned char *block = stage + strip + m * 4 * PACK_BYTES;
            words[m] = *(const uint4 *)(block + lane * 16);
            spread(*(const uint2 *)(block + PACK_SCALES + lane / 4 * 8), scales[m]);
        }
#pragma unroll
        for (int s = 0; s < 4; s++) {
#pragma unroll
            for (int m = 0; m < 2; m++) expand(word_of(words[m], s), scales[m][s / 2], bf16_bias, a[s % 2][m]);
            wgmma_begin();
            wgmma_ra<N>(d0, a[s % 2][0], tokens + 2 * s, 1);
            wgmma_ra<N>(d1, a[s % 2][1], tokens + 2 * s, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (s == 0 && before && lane == 0) mbarrier_arrive(before);
        }
        before = r.empty + r.at;
        ring_next<NMAX, F>(r);
    }
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(before);
}

/* The producers' part of a stage of packed weights: 8 threads a strip, 16 bytes at a time. (The copy engine, asked
 * for 576 bytes sixteen times a stage, takes twice as long as the products.) */
typedef struct {
    const unsigned char *next;
} strips;
static __device__ __forceinline__ strips strip_of(const gpu_matrix &w, gpu_i64 row) {
    row = least(row, w.rows - PACK_ROWS); /* rows past the end are multiplied and thrown away */
    return strips{(const unsigned char *)w.data + row / PACK_ROWS * (w.cols / PACK_COLS) * PACK_BYTES +
                  threadIdx.x % 8 * 16};
}
/* to: where the thread's first piece goes, shared_at(). */
static __device__ __forceinline__ void copy_strips(strips &w, gpu_u32 to) {
    cp_async16_at<0, 0>(to, w.next);
    cp_async16_at<128, 128>(to, w.next);
    cp_async16_at<256, 256>(to, w.next);
    cp_async16_at<384, 384>(to, w.next);
    if (threadIdx.x % 8 < 4) cp_async16_at<512, 512>(to, w.next);
    w.next += PACK_BYTES;
}
static __device__ __forceinline__ gpu_u32 strip_place() { return threadIdx.x / 8 * PACK_BYTES + threadIdx.x % 8 * 16; }

/* Every 16th row of x. */
template <int I, int ALL>
static __device__ __forceinline__ void copy_tokens(gpu_u32 to, const gpu_bf16 *x, const gpu_u32 *row, int tokens) {
    if constexpr (I < ALL) {
        if (I * 16 < tokens) cp_async16_at<I * 2048, 0>(to, x + (gpu_u64)row[I] * 8);
        copy_tokens<I + 1, ALL>(to, x, row, tokens);
    }
}

/* The number of the producers' next tile, `turn` after their first; coming: what thread 0 got for it, a tile ahead. */
template <int NMAX, int F> static __device__ __forceinline__ int next_tile(const ring &r, int turn, int coming) {
    int *next = (int *)(r.memory + plan<NMAX, F>::NEXT) + turn % 2;
    if (threadIdx.x == 0) *next = (int)gridDim.x + coming;
    named_barrier_sync(3, 128);
    return *next;
}

/* The producers have no tile left. */
template <int NMAX, int F> static __device__ __forceinline__ void ring_end(const ring &r, bool one_more) {
    mbarrier_wait(r.empty + r.at, r.parity ^ 1);
    if (threadIdx.x == 0) ring_tile<NMAX, F>(r)->z = 0;
    if (threadIdx.x == 0 && one_more) mbarrier_arrive(r.full + r.at);
    mbarrier_arrive(r.full + r.at);
}

static __device__ __forceinline__ float silu_fast(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

/* ---- stage 1 ---- */

template <int NMAX, int F> static __device__ __forceinline__ void up_produce(const gpu_moe_args &a, ring r) {
    int thread = threadIdx.x, strip = thread / 8;
    int columns = (int)(a.hidden / 64), row_tiles = (int)((a.inter + 127) / 128), tiles = *a.n_tiles * row_tiles;
    gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)(a.hidden / 8);
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles; tile = next_tile<NMAX, F>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix *m = a.experts + 3 * t.x;
        t.x = tile % row_tiles;
        gpu_u32 row[NMAX / 16]; /* of x, in units of 16 bytes */
#pragma unroll
        for (int i = 0; i < NMAX / 16; i++) {
            int j = i * 16 + thread / 8;
            row[i] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        }
        strips w = strip_of(m[strip / 4 % 2], (gpu_i64)t.x * 128 + strip / 8 * 64 + strip % 4 * 16);
        const gpu_bf16 *x = a.x + thread % 8 * 8;
#pragma unroll 1
        for (int c = 0; c < columns; c++, x += 64) {
            mbarrier_wait(r.empty + r.at, r.parity ^ 1);
            gpu_u64 *full = r.full + r.at;
            if (c == 0 && thread == 0) {
                *ring_tile<NMAX, F>(r) = t;
                __threadfence_block(); /* seen by whoever sees the arrival */
            }
            gpu_u32 stage = shared_at(r.memory) + r.at * plan<NMAX, F>::STAGE;
            copy_strips(w, stage + plan<NMAX, F>::TOKENS + strip_place());
            copy_tokens<0, NMAX / 16>(stage + to, x, row, t.z);
            mbarrier_arrive_cp_async(full);
            ring_next<NMAX, F>(r);
        }
    }
    ring_end<NMAX, F>(r, false);
}

template <int NMAX, int N, int F>
static __device__ __forceinline__ void up_tile(const gpu_moe_args &a, ring &r, const int4 &t) {
    float gate[N / 2], up[N / 2];
    multiply<NMAX, N, F>(r, (int)(a.hidden / 64), gate, up);
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)t.x * 128 + group * 64;
    unsigned char *out = r.memory + plan<NMAX, F>::STAGES * plan<NMAX, F>::STAGE + group * plan<NMAX, F>::HALF_OUT;
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

template <int NMAX, int F> static __device__ __forceinline__ void down_produce(const gpu_moe_args &a, ring r) {
    int columns = (int)(a.inter / 64), row_tiles = (int)((a.hidden + 255) / 256), tiles = *a.n_tiles * row_tiles;
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles; tile = next_tile<NMAX, F>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix &m = a.experts[3 * t.x + 2];
        t.x = tile % row_tiles;
        gpu_u32 bytes = (gpu_u32)(t.z + 7) / 8 * 1024;
        strips w = strip_of(m, (gpu_i64)t.x * ROWS + threadIdx.x / 8 * 16);
#pragma unroll 1
        for (int c = 0; c < columns; c++) {
            mbarrier_wait(r.empty + r.at, r.parity ^ 1);
            unsigned char *stage = ring_stage<NMAX, F>(r);
            gpu_u64 *full = r.full + r.at;
            if (threadIdx.x == 0) {
                if (c == 0) *ring_tile<NMAX, F>(r) = t;
                mbarrier_expect(full, bytes);
                tma_bulk(stage, a.h + (c * a.h_rows + t.w) * 64, bytes, full);
            }
            copy_strips(w, shared_at(stage) + plan<NMAX, F>::TOKENS + strip_place());
            mbarrier_arrive_cp_async(full);
            ring_next<NMAX, F>(r);
        }
    }
    ring_end<NMAX, F>(r, true);
}

/* Halves: turned around in shared memory, `NMAX / 2` tokens at a time, written 256 bytes of a token together. */
template <int NMAX, int N, int F>
static __device__ __forceinline__ void down_put(const gpu_moe_args &a, const ring &r, const float d[2][N / 2],
                                                const int4 &t, int pair) {
    constexpr int PIECE = NMAX / 2;
    int all = thread_anew(), group = all / 128 - 1, thread = all % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)t.x * ROWS + group * 128;
    unsigned char *out = r.memory + plan<NMAX, F>::STAGES * plan<NMAX, F>::STAGE + group * plan<NMAX, F>::HALF_OUT;
    int across = (int)least((a.hidden - row) / 8, 16); /* pieces of 16 bytes of a token; none: past the end */
    int *pairs = (int *)(r.memory + plan<NMAX, F>::PAIRS) + group * NMAX;
    gpu_u32 most = 0;
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
                most = amax_half(most, two[i] & is);
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
        y_note(a.y_amax, (gpu_u32 *)(r.memory + plan<NMAX, F>::SEEN) + group * 4 + warp, most,
               [&] { return most_of<N>(d, t.z); });
}

template <int NMAX, int N, int F>
static __device__ __forceinline__ void down_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float d[2][N / 2];
    int4 *kept = (int4 *)(r.memory + plan<NMAX, F>::KEPT) + (threadIdx.x / 32 - 4); /* registers are scarce meanwhile */
    int pair = (int)(threadIdx.x % 128) < tile.z ? a.list[tile.y + threadIdx.x % 128] : 0;
    *kept = tile;
    multiply<NMAX, N, F>(r, (int)(a.inter / 64), d[0], d[1]);
    const int4 t = *kept;
    down_put<NMAX, N, F>(a, r, d, t, pair);
}

/* A tile with room for its tokens, as narrow as there is one. (With more widths in a kernel the compiler finds no
 * registers for the widest.) */
#define WIDTHS_64(X)  X(16) X(32) X(48) X(64)
#define WIDTHS_128(X) X(32) X(64) X(80) X(88) X(96) X(112) X(120) X(128)
#define UP_CASE(N)                                                                                                     \
    if (t.z <= N) {                                                                                                    \
        up_tile<NMAX, N, F>(a, r, t);                                                                                  \
        continue;                                                                                                      \
    }
#define DOWN_CASE(N)                                                                                                   \
    if (t.z <= N) {                                                                                                    \
        down_tile<NMAX, N, F>(a, r, t);                                                                                \
        continue;                                                                                                      \
    }

template <int NMAX, int F> static __device__ __forceinline__ void up_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<NMAX, F>(memory, a.bf16_bias);
    ring_init<NMAX, F>(r, 128);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<40>();
        up_produce<NMAX, F>(a, r);
    } else {
        setmaxnreg_inc<232>();
        for (;;) {
            mbarrier_wait(r.full + r.at, r.parity);
            const int4 t = *ring_tile<NMAX, F>(r);
            if (!t.z) break;
            if constexpr (NMAX == 64) {
                WIDTHS_64(UP_CASE)
            } else {
                WIDTHS_128(UP_CASE)
            }
        }
    }
}

template <int NMAX, int F>
static __device__ __forceinline__ void down_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<NMAX, F>(memory, a.bf16_bias);
    ring_init<NMAX, F>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<40>();
        down_produce<NMAX, F>(a, r);
    } else {
        setmaxnreg_inc<232>();
        for (;;) {
            mbarrier_wait(r.full + r.at, r.parity);
            const int4 t = *ring_tile<NMAX, F>(r);
            if (!t.z) break;
            if constexpr (NMAX == 64) {
                WIDTHS_64(DOWN_CASE)
            } else {
                WIDTHS_128(DOWN_CASE)
            }
        }
    }
}

#define MOE_KERNELS(FORMAT, NMAX, up_name, down_name)                                                                  \
    KERNEL_OF(up_name, gpu_moe_args, THREADS, 1) {                                                                     \
        SHARED_TILES(memory);                                                                                          \
        up_all<NMAX, FORMAT>(a, memory);                                                                               \
    }                                                                                                                  \
    KERNEL_OF(down_name, gpu_moe_args, THREADS, 1) {                                                                   \
        SHARED_TILES(memory);                                                                                          \
        if (a.rescale_pass && !y_needs_rescale(*a.y_amax)) return;                                                     \
        down_all<NMAX, FORMAT>(a, memory);                                                                             \
    }

#endif
