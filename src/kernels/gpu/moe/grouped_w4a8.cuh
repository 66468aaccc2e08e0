/* kernels/gpu/moe/grouped_w4a8.cuh: routed experts at many tokens with int8 activations (W4A8), on Hopper's
 * warpgroup products of bytes.
 *
 * The launches and the tiles are grouped.cuh's; what differs:
 *   x     quantize_rows.cu has made int8 of it, a scale for each token; h comes out of stage 1 as bf16 rows and goes
 *   the same way.
 *   w     int4_pack.h's blocks as they lie in memory. A group of 32 columns, which is one product's, has a multiplier
 *   that makes int8 of its nibbles (ops.h at moe_args): two nibbles in the halves of a word times the multiplier, and
 *   the wanted bytes are the upper ones of the halves, 128 too large. 31 instructions for 16 weights, a third of them
 *   on the pipe of multiplications; bf16 takes 15 for 16.
 *   K     a stage is 128 columns, 128 bytes of a token: twice as many for as many bytes and clocks as with bf16.
 *   sums  are int32 and exact, so that no order and no tile changes a bit of the result; a row's scale and a token's
 *   come behind them, with 128 times the sum of the token's bytes taken off.
 * Its word holds of row g the columns 2t, 8 + 2t, 2t + 1, 9 + 2t of a step of 16 in the low nibbles of its bytes, of
 * row g + 8 in the high ones; the rows of x and h hold their columns in the same order.
 *
 * Bill of a tile of N tokens, each 128 columns: 256 x N x 128 products = 8 N clocks of the tensor cores; 18,432 bytes
 * of weights and 128 N of tokens from the second-level cache: 34 bytes a clock at N = 128, 29 at 176 (it delivers
 * 32), so tiles are up to 176 tokens wide; 19 instructions for 16 weights on the integer pipe, 608 clocks, so below
 * 76 tokens it bounds. */
#ifndef KERNELS_GPU_MOE_GROUPED_W4A8_CUH
#define KERNELS_GPU_MOE_GROUPED_W4A8_CUH
#include "kernels/gpu/moe/grouped_ring.cuh"

enum { COLUMNS = 128 /* of a stage */, TWO_BLOCKS = 2 * PACK_BYTES /* of a strip in a stage */ };
enum { ROW_TILE_BITS = 12 /* of a tile's first number; the expert above */ };

/* Shared memory: STAGES of {tokens [NMAX, 128 bytes] swizzled, weights: 16 strips of two blocks}, the
 * results of a tile, and the few numbers behind it. Stage 1 turns [NMAX, 64] of a warpgroup around at a time; stage
 * 2 16 tokens by 32 rows of a warp, and its producers bring what is needed behind the products: a slot a tile, of
 * one more than can be on their way. */
enum { UP, DOWN };
template <int NMAX, int K> struct plan {
    static constexpr int TOKENS = NMAX * 128, WEIGHTS = STRIPS * TWO_BLOCKS, STAGE = TOKENS + WEIGHTS,
                         OUT = K == UP ? 2 * TOKENS : 8 * 1024;
    static constexpr int SLOT = NMAX * 12 + STRIPS * 32 /* pairs, scales of tokens, scales of rows */,
                         STAGES = (GPU_MOE_SHARED - (K == UP ? 6144 : 2048) - OUT - (K == UP ? 0 : SLOT)) /
                                  (STAGE + (K == UP ? 0 : SLOT)),
                         TILES = STAGES * STAGE + OUT /* a tile a stage */,
                         KEPT = TILES + STAGES * 16 /* a tile a warp */, SLOTS = KEPT + 8 * 16 /* of stage 2 */,
                         SCALES = SLOTS /* [2][NMAX] float2, of stage 1 */,
                         TABLE = SCALES + 2 * NMAX * 8 /* [NMAX], the producers' */,
                         NEXT =
                             K == UP ? TABLE + NMAX * 4 : SLOTS + (STAGES + 1) * SLOT /* two tile numbers, in turns */,
                         SEEN = NEXT + 8 /* a word a warp: y_note */, BARRIERS = SEEN + 32,
                         END = BARRIERS + STAGES * 16;
    static_assert(END <= GPU_MOE_SHARED, "shared memory");
};

/* The largest scale of the rows row + g and row + g + 8 of w (row a multiple of 16). */
static __device__ __forceinline__ float2 row_scales(const gpu_matrix &w, gpu_i64 row, int g) {
    const gpu_bf16 *most = (const gpu_bf16 *)w.scale + min64(row, w.rows - PACK_ROWS) + g;
    return float2{f32_of(most[0]), f32_of(most[8])};
}
/* Behind the sums, with a sixteenth in the token's; without it no number and nothing would become zero. */
static __device__ __forceinline__ float scale_behind(float most) {
    return !(most <= 3.4028235e38f) ? bits_f32(0x7fc00000u) : most < 0x1p-100f ? 0.0f : most;
}
static __device__ __forceinline__ float2 scales_behind(const float2 &most) {
    return float2{scale_behind(most.x), scale_behind(most.y)};
}
static __device__ __forceinline__ float multiplier_of_scale(float most) {
    return most >= 0x1p-100f && most <= 3.4028235e38f ? 256.0f / most : 0.0f;
}

/* What makes bytes of a group's nibbles: (two nibbles, 16 bits apart) * times + plus has them in bits 8..15 and
 * 24..31, 128 too large. */
typedef struct {
    gpu_u32 times, plus;
} byte_maker;
static __device__ __forceinline__ byte_maker maker_of(float scale, float per_scale) {
    const gpu_u32 m = __float_as_uint(fmaf(scale, per_scale, 12582912.0f)) - 0x4b400000u; /* to nearest even */
    return byte_maker{m, 0x80808080u - m * 0x800080u};
}

/* Two words of nibbles as the first operand; upper: of row g, whose nibbles are the low ones of their bytes; lower: of
 * row g + 8, whose nibbles stay 16 times as large. */
static __device__ __forceinline__ void expand(gpu_u32 w0, gpu_u32 w1, const byte_maker &upper, const byte_maker &lower,
                                              gpu_u32 a[4]) {
    const gpu_u32 times = upper.times << 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const gpu_u32 even = i ? w1 : w0, odd = even >> 8;
        a[2 * i] =
            __byte_perm((even & 0x000f000fu) * times + upper.plus, (odd & 0x000f000fu) * times + upper.plus, 0x7351);
        a[2 * i + 1] = __byte_perm((even & 0x00f000f0u) * lower.times + lower.plus,
                                   (odd & 0x00f000f0u) * lower.times + lower.plus, 0x7351);
    }
}

/* d[m] = sums of rows of this warp's block m times N tokens, `steps` stages, of the bytes that are 128 too large.
 * While one product of 32 columns runs the next is expanded; a stage goes back to the producer when
 * the first product after it is under way. `signal`: the step after which the other warpgroup is let go.
 * scales(m): the largest scales of the thread's rows, where the first stage has come. */
template <int NMAX, int N, int K, class Scales>
static __device__ __forceinline__ void w4a8_multiply(ring &r, int steps, int signal, int d0[N / 2], int d1[N / 2],
                                                     Scales scales) {
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    const int strip = (K == UP ? warp / 4 * 8 + warp % 4 : 2 * warp) * TWO_BLOCKS + plan<NMAX, K>::TOKENS;
    constexpr int NEXT_STRIP = (K == UP ? 4 : 1) * TWO_BLOCKS;
    gpu_u64 *before = nullptr;
    gpu_u32 a[2][4];
    float2 per_scale[2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0;
    if (steps) consumer_wait(r.at);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const float2 most = scales(m);
        per_scale[m] = float2{multiplier_of_scale(most.x), multiplier_of_scale(most.y)};
    }
    for (int step = 0; step < steps; step++) {
        consumer_wait(r.at);
        fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<plan<NMAX, K>>(r);
        gpu_u64 tokens = wgmma_desc(stage);
#pragma unroll
        for (int block = 0; block < 2; block++) {
            uint4 w[2];
            uint2 of[2];
#pragma unroll
            for (int m = 0; m < 2; m++) {
                const unsigned char *from = stage + strip + m * NEXT_STRIP + block * PACK_BYTES;
                w[m] = *(const uint4 *)(from + lane * 16), of[m] = *(const uint2 *)(from + PACK_SCALES + lane / 4 * 8);
            }
#pragma unroll
            for (int s = 0; s < 2; s++) {
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    const byte_maker upper = maker_of(s ? high_f32(of[m].x) : low_f32(of[m].x), per_scale[m].x),
                                     lower = maker_of(s ? high_f32(of[m].y) : low_f32(of[m].y), per_scale[m].y);
                    expand(s ? w[m].z : w[m].x, s ? w[m].w : w[m].y, upper, lower, a[m]);
                    wgmma_begin();
                    wgmma_bytes_<N, 1>(m ? d1 : d0, a[m], tokens + 4 * block + 2 * s, 1);
                    wgmma_commit();
                    wgmma_wait<1>();
                    if (block == 0 && s == 0 && m == 0 && before && lane == 0) mbarrier_arrive(before);
                }
            }
        }
        before = pipeline_empty(r.at);
        if (K == DOWN && step == signal) named_barrier_arrive(4, CONSUMERS);
        ring_next<plan<NMAX, K>>(r);
    }
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(before);
}

/* to: where the thread's first piece goes, shared_at(). whole: both blocks; else what the second held before meets
 * zeros of x. */
static __device__ __forceinline__ void copy_blocks(const unsigned char *&from, gpu_u32 to, bool whole) {
    cp_async16_at<0, 0>(to, from);
    cp_async16_at<128, 128>(to, from);
    cp_async16_at<256, 256>(to, from);
    cp_async16_at<384, 384>(to, from);
    if (whole || threadIdx.x % 8 < 4) cp_async16_at<512, 512>(to, from);
    if (whole) {
        cp_async16_at<640, 640>(to, from);
        cp_async16_at<768, 768>(to, from);
        cp_async16_at<896, 896>(to, from);
        cp_async16_at<1024, 1024>(to, from);
    }
    from += TWO_BLOCKS;
}
/* ---- stage 1 ---- */

template <int NMAX> static __device__ __forceinline__ void w4a8_up_produce(const gpu_grouped_w4a8_args &a, ring r) {
    int thread = threadIdx.x, strip = thread / 8;
    int columns = (int)((a.hidden + COLUMNS - 1) / COLUMNS), row_tiles = (int)((a.inter + 127) / 128),
        tiles = *a.n_tiles * row_tiles;
    gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)columns * (COLUMNS / 16),
            *table = (gpu_u32 *)(r.memory + plan<NMAX, UP>::TABLE);
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles;
         tile = next_tile<plan<NMAX, UP>>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix *m = a.experts + 3 * (gpu_i64)t.x;
        t.x = t.x << ROW_TILE_BITS | tile % row_tiles;
        for (int j = thread; j < NMAX; j += 128)
            table[j] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        named_barrier_sync(3, 128);
        const unsigned char *w =
            strip_of(m[strip / 4 % 2], (gpu_i64)(tile % row_tiles) * 128 + strip / 8 * 64 + strip % 4 * 16);
        const gpu_u8 *x = a.x + thread % 8 * 16;
        producer_acquire(r.at);
        if (thread == 0) {
            *ring_tile<plan<NMAX, UP>>(r) = t;
            __threadfence_block(); /* seen by whoever sees the arrival */
        }
#pragma unroll 1
        for (int left = columns; left; left--, x += COLUMNS) {
            producer_acquire(r.at);
            gpu_u32 stage = shared_at(r.memory) + r.at.stage * plan<NMAX, UP>::STAGE;
            copy_blocks(w, stage + plan<NMAX, UP>::TOKENS + strip_place(TWO_BLOCKS),
                        left > 1 || a.hidden % COLUMNS == 0);
            copy_tokens<0, NMAX / 16, 16>(stage + to, x, table + thread / 8, t.z);
            mbarrier_arrive_cp_async(pipeline_full(r.at));
            ring_next<plan<NMAX, UP>>(r);
        }
    }
    ring_end<plan<NMAX, UP>>(r, false);
}

static __device__ __forceinline__ gpu_i64 up_row(const int4 &tile) {
    return (gpu_i64)(tile.x & ((1 << ROW_TILE_BITS) - 1)) * 128;
}

template <int NMAX, int N>
static __device__ __forceinline__ void w4a8_up_tile(const gpu_grouped_w4a8_args &a, ring &r, const int4 &tile) {
    int gate[N / 2], up[N / 2];
    int4 *kept =
        (int4 *)(r.memory + plan<NMAX, UP>::KEPT) + (threadIdx.x / 32 - 4); /* registers are scarce meanwhile */
    *kept = tile;
    w4a8_multiply<NMAX, N, UP>(r, (int)((a.hidden + COLUMNS - 1) / COLUMNS), -1, gate, up, [&](int m) {
        int all = thread_anew(), warp = all / 32 - 4; /* of the tile: rows of a warp in gate, the same in up */
        return row_scales(a.experts[3 * (gpu_i64)(tile.x >> ROW_TILE_BITS) + m],
                          up_row(tile) + warp / 4 * 64 + warp % 4 * 16, all % 32 / 4);
    });
    const int4 t = *kept;
    int all = thread_anew(), group = all / 128 - 1, thread = all % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = up_row(t) + group * 64;
    const gpu_matrix *m = a.experts + 3 * (gpu_i64)(t.x >> ROW_TILE_BITS);
    unsigned char *out = r.memory + plan<NMAX, UP>::STAGES * plan<NMAX, UP>::STAGE + group * plan<NMAX, UP>::TOKENS;
    float2 *of_x = (float2 *)(r.memory + plan<NMAX, UP>::SCALES) + group * NMAX,
           of_gate = scales_behind(row_scales(m[0], row + warp * 16, lane / 4)),
           of_up = scales_behind(row_scales(m[1], row + warp * 16, lane / 4));
    named_barrier_sync(1 + group, 128); /* the last tile has been taken away */
    for (int i = thread; i < N; i += 128) of_x[i] = i < t.z ? a.x_scale[(gpu_u32)a.list[t.y + i] / a.k] : float2{0, 0};
    named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        gpu_u32 of[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 x = *(const float4 *)(of_x + (j + i / 2) * 8 + lane % 4 * 2);
            float row_gate = i % 2 ? of_gate.y : of_gate.x, row_up = i % 2 ? of_up.y : of_up.x;
            int at = (j + i / 2) * 4 + i % 2 * 2, off0 = __float_as_int(x.y), off1 = __float_as_int(x.w);
            float h0 = silu_fast((float)(gate[at] - off0) * (row_gate * x.x)) *
                       ((float)(up[at] - off0) * (row_up * x.x)),
                  h1 = silu_fast((float)(gate[at + 1] - off1) * (row_gate * x.z)) *
                       ((float)(up[at + 1] - off1) * (row_up * x.z));
            of[i] = pair_bf16(h0, h1);
        }
        /* matrices: rows 0..7 and 8..15 of the warp's 16, tokens 8 j .., then the next 8 tokens */
        stmatrix4_t(out + swizzled(8 * j + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), of);
    }
    named_barrier_sync(1 + group, 128);
    if (row >= a.inter) return;
    for (int i = thread; i < t.z * 8; i += 128)
        *(uint4 *)(a.h + (gpu_i64)(t.w + i / 8) * a.inter + row + i % 8 * 8) =
            *(const uint4 *)(out + swizzled(i / 8, i % 8));
}

/* ---- stage 2 ---- */

template <int NMAX> static __device__ __forceinline__ void w4a8_down_produce(const gpu_grouped_w4a8_args &a, ring r) {
    typedef plan<NMAX, DOWN> p;
    int columns = (int)((a.inter + COLUMNS - 1) / COLUMNS), row_tiles = (int)((a.hidden + 255) / 256),
        tiles = *a.n_tiles * row_tiles, slot = p::SLOTS;
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles;
         tile = next_tile<plan<NMAX, DOWN>>(r, turn++, coming)) {
        if (threadIdx.x == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        const gpu_matrix &m = a.experts[3 * (gpu_i64)t.x + 2];
        gpu_i64 row = (gpu_i64)(tile % row_tiles) * ROWS;
        const unsigned char *w = strip_of(m, row + threadIdx.x / 8 * 16);
        gpu_u32 bytes = (gpu_u32)(t.z + 7) / 8 * 1024;
        producer_acquire(r.at);
        for (int i = threadIdx.x; i < t.z; i += 128) {
            cp_async_bytes<4>(r.memory + slot + i * 4, a.list + t.y + i);
            cp_async_bytes<8>(r.memory + slot + NMAX * 4 + i * 8, (const gpu_u64 *)a.h_scale + t.w + i);
        }
        if (threadIdx.x < 2 * STRIPS)
            cp_async16(r.memory + slot + NMAX * 12 + threadIdx.x * 16,
                       (const gpu_bf16 *)m.scale + min64(row + threadIdx.x / 2 * 16, m.rows - PACK_ROWS) +
                           threadIdx.x % 2 * 8);
        if (threadIdx.x == 0) *ring_tile<plan<NMAX, DOWN>>(r) = int4{(int)row, slot, t.z, 0};
        slot = slot == p::SLOTS + p::STAGES * p::SLOT ? p::SLOTS : slot + p::SLOT;
#pragma unroll 1
        for (int c = 0; c < columns; c++) {
            producer_acquire(r.at);
            unsigned char *stage = ring_stage<plan<NMAX, DOWN>>(r);
            gpu_u64 *full = pipeline_full(r.at);
            if (threadIdx.x == 0) {
                mbarrier_expect(full, bytes);
                tma_bulk(stage, a.h8 + (c * a.h_rows + t.w) * COLUMNS, bytes, full);
            }
            copy_blocks(w, shared_at(stage) + p::TOKENS + strip_place(TWO_BLOCKS), c * COLUMNS + COLUMNS <= a.inter);
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, DOWN>>(r);
        }
    }
    ring_end<plan<NMAX, DOWN>>(r, true);
}

/* The largest scales of the thread's rows in the warp's block m. */
template <int NMAX> static __device__ __forceinline__ float2 slot_scales(const unsigned char *slot, int warp, int m) {
    const gpu_bf16 *most = (const gpu_bf16 *)(slot + NMAX * 12) + (2 * warp + m) * 16 + threadIdx.x % 32 / 4;
    return float2{f32_of(most[0]), f32_of(most[8])};
}

/* Halves. A warp has 32 rows; it turns 16 tokens at a time around in shared memory and writes 64 bytes of each
 * together. t: {first row of the block, slot, tokens}. */
template <int NMAX, int N>
static __device__ __forceinline__ void w4a8_down_put(const gpu_grouped_w4a8_args &a, const ring &r,
                                                     const int d[2][N / 2], const int4 &t) {
    typedef plan<NMAX, DOWN> p;
    int thread = thread_anew(), warp = thread / 32 - 4, lane = thread % 32;
    const unsigned char *slot = r.memory + t.y;
    unsigned char *out = r.memory + p::STAGES * p::STAGE + warp * 1024;
    gpu_i64 row = (gpu_i64)t.x + warp * 32;
    const float unit = a.rescale_pass ? y_scale(*a.y_amax) : 1.0f;
    float of[2][2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const float2 rows = scales_behind(slot_scales<NMAX>(slot, warp, m));
        of[m][0] = rows.x * unit, of[m][1] = rows.y * unit;
    }
    gpu_u32 amax = 0;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        int at = 8 * j + lane % 4 * 2;
        float4 h = *(const float4 *)(slot + NMAX * 4 + at * 8);
        int off0 = __float_as_int(h.y), off1 = __float_as_int(h.w);
        gpu_u32 two[4], is = at + 1 < t.z ? ~0u : at < t.z ? 0xffffu : 0; /* not a token: anything */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int *v = &d[i / 2][4 * j + i % 2 * 2];
            float scale = of[i / 2][i % 2], y0 = (float)(v[0] - off0) * (scale * h.x),
                  y1 = (float)(v[1] - off1) * (scale * h.z);
            two[i] = pair_half(y0, y1);
            amax = amax_half(amax, two[i] & is);
        }
        /* matrices: rows 0..7, 8..15 of the warp's first block, of its second; lines are tokens */
        stmatrix4_t(out + j % 2 * 512 + lane % 8 * 64 + ((lane / 8 ^ lane % 8 / 2) << 4), two);
        if (j % 2 == 0) continue;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int token = lane / 4, place = 8 * (j - 1 + i) + token;
            if (place < t.z && row < a.hidden)
                *(uint4 *)((gpu_bf16 *)a.y + (gpu_i64)((const int *)slot)[place] * a.hidden + row + lane % 4 * 8) =
                    *(const uint4 *)(out + i * 512 + token * 64 + ((lane % 4 ^ token / 2) << 4));
        }
        __syncwarp();
    }
    if (a.rescale_pass) return;
    y_note(a.y_amax, (gpu_u32 *)(r.memory + p::SEEN) + warp, amax,
           [&] { /* rarely needed: not the largest, but no less */
                 float row = fmaxf(fmaxf(fabsf(of[0][0]), fabsf(of[0][1])), fmaxf(fabsf(of[1][0]), fabsf(of[1][1]))),
                       token = 0;
                 for (int i = lane; i < t.z; i += 32)
                     token = max_finite(token, *(const float *)(slot + NMAX * 4 + i * 8));
                 token = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(token)));
                 return fminf(row * token * (float)(127 * 128 * a.inter), 3.4028234e38f);
           });
}

template <int NMAX, int N>
static __device__ __forceinline__ void w4a8_down_tile(const gpu_grouped_w4a8_args &a, ring &r, const int4 &tile,
                                                      int signal) {
    int d[2][N / 2];
    int4 *kept = (int4 *)(r.memory + plan<NMAX, DOWN>::KEPT) + (threadIdx.x / 32 - 4);
    *kept = tile;
    w4a8_multiply<NMAX, N, DOWN>(r, (int)((a.inter + COLUMNS - 1) / COLUMNS), signal, d[0], d[1],
                                 [&](int m) { return slot_scales<NMAX>(r.memory + tile.y, threadIdx.x / 32 - 4, m); });
    const int4 t = *kept;
    w4a8_down_put<NMAX, N>(a, r, d, t);
}

template <int NMAX> struct tile_widths;
template <> struct tile_widths<64> { typedef widths<16, 32, 48, 64> type; };
template <> struct tile_widths<176> { typedef widths<96, 128, 144, 176> type; };
enum { REGS_COPY = 40, REGS_MULTIPLY = 232 };

template <int NMAX>
static __device__ __forceinline__ void w4a8_up_all(const gpu_grouped_w4a8_args &a, unsigned char *memory) {
    ring r = ring_open<plan<NMAX, UP>>(memory, 0);
    ring_init<plan<NMAX, UP>>(r, 128);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<REGS_COPY>();
        w4a8_up_produce<NMAX>(a, r);
    } else {
        setmaxnreg_inc<REGS_MULTIPLY>();
        consume_tiles<plan<NMAX, UP>>(r, typename tile_widths<NMAX>::type(),
                                      [&](auto n, const int4 &t) { w4a8_up_tile<NMAX, decltype(n)::tokens>(a, r, t); });
    }
}

template <int NMAX>
static __device__ __forceinline__ void w4a8_down_all(const gpu_grouped_w4a8_args &a, unsigned char *memory) {
    ring r = ring_open<plan<NMAX, DOWN>>(memory, 0);
    ring_init<plan<NMAX, DOWN>>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<REGS_COPY>();
        w4a8_down_produce<NMAX>(a, r);
    } else {
        setmaxnreg_inc<REGS_MULTIPLY>();
        /* The second warpgroup begins half a tile later: results of the one are written while the other multiplies. */
        int lag = (int)min64((a.inter + COLUMNS - 1) / COLUMNS / 2, 2), group = threadIdx.x / 128 - 1,
            signal = group ? -1 : lag - 1;
        bool waits = group && lag;
        consume_tiles<plan<NMAX, DOWN>>(r, typename tile_widths<NMAX>::type(), [&](auto n, const int4 &t) {
            if (waits) named_barrier_sync(4, CONSUMERS), waits = false;
            w4a8_down_tile<NMAX, decltype(n)::tokens>(a, r, t, signal);
            signal = -1;
        });
    }
}

#endif
