/* kernels/gpu/moe/grouped_int4_n176.cuh: routed experts at many tokens, packed INT4, in tiles of up to 176 tokens;
 * grouped_int4_n176.cu has the kernels.
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
#ifndef KERNELS_GPU_MOE_GROUPED_INT4_N176_CUH
#define KERNELS_GPU_MOE_GROUPED_INT4_N176_CUH
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/moe/fp16_range.cuh"
#include "kernels/gpu/device/int4_pack.cuh"

enum { THREADS = 384, CONSUMERS = 256, ROWS = 256, STRIPS = 16, NMAX = 176 };
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

/* A place in the ring; parity: of the phase of `full` that it waits for next. */
typedef struct {
    unsigned char *memory;
    gpu_u64 *full, *empty;
    int at;
    gpu_u32 parity, bf16_bias; /* gpu_moe_args.bf16_bias */
} ring;

template <int K> static __device__ __forceinline__ ring ring_open(unsigned char *memory, gpu_u32 bf16_bias) {
    gpu_u64 *barriers = (gpu_u64 *)(memory + plan<K>::BARRIERS);
    return ring{memory, barriers, barriers + plan<K>::STAGES, 0, 0, bf16_bias};
}
template <int K> static __device__ __forceinline__ void ring_init(const ring &r, gpu_u32 fills) {
    if (threadIdx.x < 8) ((gpu_u32 *)(r.memory + plan<K>::SEEN))[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < plan<K>::STAGES; i++)
            mbarrier_init(r.full + i, fills), mbarrier_init(r.empty + i, CONSUMERS / 32);
        mbarrier_fence_init();
    }
    __syncthreads();
}
template <int K> static __device__ __forceinline__ unsigned char *ring_stage(const ring &r) {
    return r.memory + r.at * plan<K>::STAGE;
}
/* The tile that begins with this stage, stage 1: {row tile, first place in the list, tokens, first row of h}, stage
 * 2: {first row, slot, tokens}; no tokens: there is none any more. */
template <int K> static __device__ __forceinline__ int4 *ring_tile(const ring &r) {
    return (int4 *)(r.memory + plan<K>::TILES) + r.at;
}
template <int K> static __device__ __forceinline__ void ring_next(ring &r) {
    if (++r.at == plan<K>::STAGES) r.at = 0, r.parity ^= 1;
}

static __device__ __forceinline__ gpu_u32 word_of(const uint4 &v, int s) {
    return s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w;
}

/* One word of nibbles as the first operand of mma_bf16, as in grouped.cuh.
 * two: the scales of rows g and g + 8, of one group in the lower or the upper halves. */
static __device__ __forceinline__ void expand(gpu_u32 word, uint2 two, bool upper, gpu_u32 bf16_bias, gpu_u32 a[4]) {
    gpu_u32 scale[2] = {__byte_perm(two.x, 0, upper ? 0x3232 : 0x1010), __byte_perm(two.y, 0, upper ? 0x3232 : 0x1010)};
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = two_mul(two_sub((word >> 4 * i & 0x000f000fu) | bf16_bias, 0x43084308u), scale[i % 2]);
}

/* d[m] = rows of this warp's block m times N tokens, `steps` stages. While one product of 16 columns runs the next
 * is expanded; a stage goes back to the producer when the first product after it is under way. */
template <int N, int K>
static __device__ __forceinline__ void multiply(ring &r, int steps, float d0[N / 2], float d1[N / 2]) {
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    gpu_u32 bf16_bias = r.bf16_bias;
    const int strip = (K == UP ? warp / 4 * 8 + warp % 4 : 2 * warp) * PACK_BYTES + plan<K>::TOKENS;
    constexpr int NEXT_STRIP = (K == UP ? 4 : 1) * PACK_BYTES;
    gpu_u64 *before = nullptr;
    gpu_u32 a[2][4];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        mbarrier_wait(r.full + r.at, r.parity);
        fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<K>(r);
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
                expand(word_of(words[m], s), scales[m], s / 2, bf16_bias, a[m]);
                wgmma_begin();
                wgmma_ra<N>(m ? d1 : d0, a[m], tokens + 2 * s, 1);
                wgmma_commit();
                wgmma_wait<1>();
                if (s == 0 && m == 0 && before && lane == 0) mbarrier_arrive(before);
            }
        }
        before = r.empty + r.at;
        ring_next<K>(r);
    }
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(before);
}

/* The producers' part of a stage of weights: 8 threads a strip, 16 bytes at a time. */
static __device__ __forceinline__ const unsigned char *strip_of(const gpu_matrix &w, gpu_i64 row) {
    row = least(row, w.rows - PACK_ROWS); /* rows past the end are multiplied and thrown away */
    return (const unsigned char *)w.data + row / PACK_ROWS * (w.cols / PACK_COLS) * PACK_BYTES + threadIdx.x % 8 * 16;
}
/* to: where the thread's first piece goes, shared_at(). */
static __device__ __forceinline__ void copy_strips(const unsigned char *&from, gpu_u32 to) {
    cp_async16_at<0, 0>(to, from);
    cp_async16_at<128, 128>(to, from);
    cp_async16_at<256, 256>(to, from);
    cp_async16_at<384, 384>(to, from);
    if (threadIdx.x % 8 < 4) cp_async16_at<512, 512>(to, from);
    from += PACK_BYTES;
}
static __device__ __forceinline__ gpu_u32 strip_place() { return threadIdx.x / 8 * PACK_BYTES + threadIdx.x % 8 * 16; }

/* Every 16th row of x, whose number in units of 16 bytes is in the table. */
template <int I, int ALL>
static __device__ __forceinline__ void copy_tokens(gpu_u32 to, const gpu_bf16 *x, const gpu_u32 *row, int tokens) {
    if constexpr (I < ALL) {
        if (I * 16 < tokens) cp_async16_at<I * 2048, 0>(to, x + (gpu_u64)row[I * 16] * 8);
        copy_tokens<I + 1, ALL>(to, x, row, tokens);
    }
}

/* The number of the producers' next tile, `turn` after their first; coming: what thread 0 got for it, a tile ahead. */
template <int K> static __device__ __forceinline__ int next_tile(const ring &r, int turn, int coming) {
    int *next = (int *)(r.memory + plan<K>::NEXT) + turn % 2;
    if (threadIdx.x == 0) *next = (int)gridDim.x + coming;
    named_barrier_sync(3, 128);
    return *next;
}

/* The producers have no tile left. */
template <int K> static __device__ __forceinline__ void ring_end(const ring &r, bool one_more) {
    mbarrier_wait(r.empty + r.at, r.parity ^ 1);
    if (threadIdx.x == 0) ring_tile<K>(r)->z = 0;
    if (threadIdx.x == 0 && one_more) mbarrier_arrive(r.full + r.at);
    mbarrier_arrive(r.full + r.at);
}

static __device__ __forceinline__ float silu_fast(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

/* ---- stage 1 ---- */

static __device__ __forceinline__ void up_produce(const gpu_moe_args &a, ring r) {
    int thread = threadIdx.x, strip = thread / 8;
    int columns = (int)(a.hidden / 64), row_tiles = (int)((a.inter + 127) / 128), tiles = *a.n_tiles * row_tiles;
    gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)(a.hidden / 8),
            *table = (gpu_u32 *)(r.memory + plan<UP>::TABLE);
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles; tile = next_tile<UP>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix *m = a.experts + 3 * (gpu_i64)t.x;
        t.x = tile % row_tiles;
        for (int j = thread; j < NMAX; j += 128)
            table[j] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        named_barrier_sync(3, 128);
        const unsigned char *w = strip_of(m[strip / 4 % 2], (gpu_i64)t.x * 128 + strip / 8 * 64 + strip % 4 * 16);
        const gpu_bf16 *x = a.x + thread % 8 * 8;
        mbarrier_wait(r.empty + r.at, r.parity ^ 1);
        if (thread == 0) {
            *ring_tile<UP>(r) = t;
            __threadfence_block(); /* seen by whoever sees the arrival */
        }
#pragma unroll 1
        for (int left = columns; left; left--, x += 64) {
            mbarrier_wait(r.empty + r.at, r.parity ^ 1);
            gpu_u32 stage = shared_at(r.memory) + r.at * plan<UP>::STAGE;
            copy_strips(w, stage + plan<UP>::TOKENS + strip_place());
            copy_tokens<0, NMAX / 16>(stage + to, x, table + thread / 8, t.z);
            mbarrier_arrive_cp_async(r.full + r.at);
            ring_next<UP>(r);
        }
    }
    ring_end<UP>(r, false);
}

template <int N> static __device__ __forceinline__ void up_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float gate[N / 2], up[N / 2];
    int4 *kept = (int4 *)(r.memory + plan<UP>::KEPT) + (threadIdx.x / 32 - 4); /* registers are scarce meanwhile */
    *kept = tile;
    multiply<N, UP>(r, (int)(a.hidden / 64), gate, up);
    const int4 t = *kept;
    int all = thread_anew(), group = all / 128 - 1, thread = all % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)t.x * 128 + group * 64;
    unsigned char *out = r.memory + plan<UP>::STAGES * plan<UP>::STAGE + group * plan<UP>::TOKENS;
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
static __device__ __forceinline__ void down_produce(const gpu_moe_args &a, ring r) {
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
        gpu_i64 row = least(is.row + threadIdx.x / 8 * 16,
                            a.hidden - PACK_ROWS); /* rows past the end are multiplied and thrown away */
        const unsigned char *w = is.weights + row / PACK_ROWS * columns * PACK_BYTES + own;
        const gpu_bf16 *h = a.h + (gpu_i64)is.h_row * 64;
        gpu_u32 bytes = (gpu_u32)(is.tokens + 7) / 8 * 1024;
        mbarrier_wait(r.empty + r.at, r.parity ^ 1);
        for (int i = threadIdx.x; i < is.tokens; i += 128)
            cp_async_bytes<4>(r.memory + slot + i * 4, a.list + is.list + i);
        if (threadIdx.x == 0) *ring_tile<DOWN>(r) = int4{is.row, slot, is.tokens, 0};
        slot = slot == p::SLOTS + p::STAGES * p::SLOT ? p::SLOTS : slot + p::SLOT;
#pragma unroll 1
        for (int c = 0; c < columns; c++) {
            mbarrier_wait(r.empty + r.at, r.parity ^ 1);
            unsigned char *stage = ring_stage<DOWN>(r);
            gpu_u64 *full = r.full + r.at;
            if (threadIdx.x == 0) {
                mbarrier_expect(full, bytes);
                tma_bulk(stage, h, bytes, full);
            }
            h += a.h_rows * 64;
            copy_strips(w, shared_at(stage) + p::TOKENS + strip_place());
            mbarrier_arrive_cp_async(full);
            if (threadIdx.x == 0) {
                if (c == 0) next = (int)gridDim.x + atomicAdd(a.work_counter, 1), t.x = t.z = 0;
                if (c == 1 && next < tiles) t = a.tiles[next / row_tiles];
                if (c == 2) deferred = (const unsigned char *)a.experts[3 * (gpu_i64)t.x + 2].data;
            }
            ring_next<DOWN>(r);
        }
        if (threadIdx.x == 0) {
            if (columns < 2 && next < tiles) t = a.tiles[next / row_tiles];
            if (columns < 3) deferred = (const unsigned char *)a.experts[3 * (gpu_i64)t.x + 2].data;
            coming_put(of + (turn + 1) % 2, t, deferred, next % row_tiles);
        }
        named_barrier_sync(3, 128);
    }
    ring_end<DOWN>(r, true);
}

/* Halves. A warp has 32 rows; it turns 16 tokens at a time around in shared memory and writes 64 bytes of each
 * together. t: {first row of the block, slot, tokens}. */
template <int N, int RESCALE>
static __device__ __forceinline__ void down_put(const gpu_moe_args &a, const ring &r, const float d[2][N / 2],
                                                const int4 &t) {
    typedef plan<DOWN> p;
    int thread = thread_anew(), warp = thread / 32 - 4, lane = thread % 32;
    const unsigned char *slot = r.memory + t.y;
    unsigned char *out = r.memory + p::STAGES * p::STAGE + warp * 1024;
    gpu_i64 row = (gpu_i64)t.x + warp * 32;
    gpu_u32 most = 0;
    const float scale = RESCALE ? y_scale(*a.y_amax) : 1.0f;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        int at = 8 * j + lane % 4 * 2;
        gpu_u32 two[4], is = at + 1 < t.z ? ~0u : at < t.z ? 0xffffu : 0; /* not a token: anything */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *v = &d[i / 2][4 * j + i % 2 * 2];
            two[i] = RESCALE ? pair_half(v[0] * scale, v[1] * scale) : pair_half(v[0], v[1]);
            if (!RESCALE) most = amax_half(most, two[i] & is);
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
    if (!RESCALE) y_note(a.y_amax, (gpu_u32 *)(r.memory + p::SEEN) + warp, most, [&] { return most_of<N>(d, t.z); });
}

template <int N> static __device__ __forceinline__ void down_tile(const gpu_moe_args &a, ring &r, const int4 &tile) {
    float d[2][N / 2];
    int4 *kept = (int4 *)(r.memory + plan<DOWN>::KEPT) + (threadIdx.x / 32 - 4);
    *kept = tile;
    multiply<N, DOWN>(r, (int)(a.inter / 64), d[0], d[1]);
    const int4 t = *kept;
    if (a.rescale_pass)
        down_put<N, 1>(a, r, d, t);
    else
        down_put<N, 0>(a, r, d, t);
}

/* A tile with room for its tokens, as narrow as there is one. (With six widths in a kernel the compiler finds no
 * registers for the widest.) */
#define WIDTHS(X) X(96) X(120) X(136) X(152) X(176)
#define UP_CASE(N)                                                                                                     \
    if (t.z <= N) {                                                                                                    \
        up_tile<N>(a, r, t);                                                                                           \
        continue;                                                                                                      \
    }
#define DOWN_CASE(N)                                                                                                   \
    if (t.z <= N) {                                                                                                    \
        down_tile<N>(a, r, t);                                                                                         \
        continue;                                                                                                      \
    }
enum { REGS_COPY = 40, REGS_MULTIPLY = 232 };

static __device__ __forceinline__ void up_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<UP>(memory, a.bf16_bias);
    ring_init<UP>(r, 128);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<REGS_COPY>();
        up_produce(a, r);
    } else {
        setmaxnreg_inc<REGS_MULTIPLY>();
        for (;;) {
            mbarrier_wait(r.full + r.at, r.parity);
            const int4 t = *ring_tile<UP>(r);
            if (!t.z) break;
            WIDTHS(UP_CASE)
        }
    }
}

static __device__ __forceinline__ void down_all(const gpu_moe_args &a, unsigned char *memory) {
    ring r = ring_open<DOWN>(memory, a.bf16_bias);
    ring_init<DOWN>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<REGS_COPY>();
        down_produce(a, r);
    } else {
        setmaxnreg_inc<REGS_MULTIPLY>();
        for (;;) {
            mbarrier_wait(r.full + r.at, r.parity);
            const int4 t = *ring_tile<DOWN>(r);
            if (!t.z) break;
            WIDTHS(DOWN_CASE)
        }
    }
}

#endif
