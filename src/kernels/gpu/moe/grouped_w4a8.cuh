/* kernels/gpu/moe/grouped_w4a8.cuh: routed experts at many tokens with int8 activations (W4A8), on Hopper's
 * warpgroup products of bytes.
 *
 * The launches and the tiles are grouped.cuh's; what differs:
 *   x     quantize_rows.cu has made int8 of it, a scale for each token; h comes out of stage 1 as bf16 rows and goes
 *   the same way.
 *   K     a stage is 128 columns, 128 bytes of a token: twice as many for as many bytes and clocks as with bf16.
 *   sums  are int32 and exact, so that no order and no tile changes a bit of the result.
 * The weight is int4_pack.h's, its scales the same in all groups of a row, and used once, behind the sum. Its word
 * holds of row g the columns 2t, 8 + 2t, 2t + 1, 9 + 2t of a step of 16 in the low nibbles of its bytes, of row g +
 * 8 in the high ones: q * 16 = (nibble << 4) ^ 0x80 as a signed byte, three instructions for eight weights and no
 * zero point; the rows of x and h hold their columns in the same order.
 *
 * Bill of a tile of N tokens, each 128 columns: 256 x N x 128 products = 8 N clocks of the tensor cores, 16,384
 * bytes of weights and 128 N of tokens from the second-level cache: 32 bytes a clock at N = 128, which is what it
 * delivers, 27.6 at 176; so tiles are up to 176 tokens wide. */
#ifndef KERNELS_GPU_MOE_GROUPED_W4A8_CUH
#define KERNELS_GPU_MOE_GROUPED_W4A8_CUH
#include "kernels/gpu/moe/grouped_ring.cuh"

enum { COLUMNS = 128 /* of a stage */, NIBBLES = 512 /* of a block */ };
enum { ROW_TILE_BITS = 12 /* of a tile's first number; the expert above */ };

/* Shared memory: STAGES of {tokens [NMAX, 128 bytes] swizzled, weights: 16 strips of two blocks' nibbles}, the
 * results of a tile, and the few numbers behind it. Stage 1 turns [NMAX, 64] of a warpgroup around at a time; stage
 * 2 16 tokens by 32 rows of a warp, and its producers bring what is needed behind the products: a slot a tile, of
 * one more than can be on their way. */
enum { UP, DOWN };
template <int NMAX, int K> struct plan {
    static constexpr int TOKENS = NMAX * 128, WEIGHTS = STRIPS * 2 * NIBBLES, STAGE = TOKENS + WEIGHTS,
                         OUT = K == UP ? 2 * TOKENS : 8 * 1024;
    static constexpr int SLOT = NMAX * 12 + STRIPS * 64 /* pairs, scales of tokens, scales of rows */,
                         STAGES = (GPU_MOE_SHARED - 4096 - OUT - (K == UP ? 0 : SLOT)) / (STAGE + (K == UP ? 0 : SLOT)),
                         TILES = STAGES * STAGE + OUT /* a tile a stage */,
                         KEPT = TILES + STAGES * 16 /* a tile a warp */, SLOTS = KEPT + 8 * 16 /* of stage 2 */,
                         SCALES = SLOTS /* [2][NMAX], of stage 1 */,
                         TABLE = SCALES + 2 * NMAX * 4 /* [NMAX], the producers' */,
                         NEXT =
                             K == UP ? TABLE + NMAX * 4 : SLOTS + (STAGES + 1) * SLOT /* two tile numbers, in turns */,
                         SEEN = NEXT + 8 /* a word a warp: y_note */, BARRIERS = SEEN + 32,
                         END = BARRIERS + STAGES * 16;
    static_assert(END <= GPU_MOE_SHARED, "shared memory");
};

/* Two words of nibbles as the first operand: of stage 1 as 16 times their numbers, signed; sign_mask: 0x80808080 in a
 * register, as an instruction has room for one constant. Of stage 2 as they are, 8 more than their numbers,
 * unsigned. */
template <int K>
static __device__ __forceinline__ void expand(gpu_u32 w0, gpu_u32 w1, gpu_u32 sign_mask, gpu_u32 a[4]) {
    if (K == UP) {
        a[0] = (w0 << 4 & 0xf0f0f0f0u) ^ sign_mask, a[1] = (w0 & 0xf0f0f0f0u) ^ sign_mask;
        a[2] = (w1 << 4 & 0xf0f0f0f0u) ^ sign_mask, a[3] = (w1 & 0xf0f0f0f0u) ^ sign_mask;
    } else {
        a[0] = w0 & 0x0f0f0f0fu, a[1] = w0 >> 4 & 0x0f0f0f0fu;
        a[2] = w1 & 0x0f0f0f0fu, a[3] = w1 >> 4 & 0x0f0f0f0fu;
    }
}

/* d[m] = rows of this warp's block m times N tokens, `steps` stages: stage 1 16 * sums, stage 2 the bits of the
 * float 3 * 2^22 + sums. While one product of 32 columns runs the next is expanded; a stage goes back to the
 * producer when the first product after it is under way. `signal`: the step after which the other warpgroup is let
 * go. */
template <int NMAX, int N, int K>
static __device__ __forceinline__ void w4a8_multiply(ring &r, int steps, int signal, int d0[N / 2], int d1[N / 2]) {
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    gpu_u32 sign_mask = r.constant;
    const int strip =
        (K == UP ? warp / 4 * 8 + warp % 4 : 2 * warp) * (2 * NIBBLES) + plan<NMAX, K>::TOKENS + lane * 16;
    constexpr int NEXT_STRIP = (K == UP ? 4 : 1) * 2 * NIBBLES;
    gpu_u64 *before = nullptr;
    gpu_u32 a[2][4];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = K == UP ? 0 : 0x4b400000;
    for (int step = 0; step < steps; step++) {
        consumer_wait(r.at);
        fence_async(); /* rows of x came by ordinary copies */
        const unsigned char *stage = ring_stage<plan<NMAX, K>>(r);
        gpu_u64 tokens = wgmma_desc(stage);
#pragma unroll
        for (int block = 0; block < 2; block++) {
            uint4 w[2];
#pragma unroll
            for (int m = 0; m < 2; m++) w[m] = *(const uint4 *)(stage + strip + m * NEXT_STRIP + block * NIBBLES);
#pragma unroll
            for (int s = 0; s < 2; s++) {
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    expand<K>(s ? w[m].z : w[m].x, s ? w[m].w : w[m].y, sign_mask, a[m]);
                    wgmma_begin();
                    wgmma_bytes_<N, K == DOWN>(m ? d1 : d0, a[m], tokens + 4 * block + 2 * s, 1);
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

/* The scales of rows row + g and row + g + 8 of w (row a multiple of 16): any group's, since all are the same. */
static __device__ __forceinline__ void w4a8_row_scales(const gpu_matrix &w, gpu_i64 row, int g, float scale[2]) {
    row = min64(row, w.rows - PACK_ROWS);
    uint2 of = *(const uint2 *)((const gpu_u8 *)w.data + row / PACK_ROWS * (w.cols / PACK_COLS) * PACK_BYTES +
                                PACK_SCALES + g * 8);
    scale[0] = low_f32(of.x), scale[1] = low_f32(of.y);
}

/* to: where the thread's first piece goes, shared_at(). whole: both blocks; else what the second held before meets
 * zeros of x. */
static __device__ __forceinline__ void copy_nibbles(const unsigned char *&from, gpu_u32 to, bool whole) {
    cp_async16_at<0, 0>(to, from);
    cp_async16_at<128, 128>(to, from);
    cp_async16_at<256, 256>(to, from);
    cp_async16_at<384, 384>(to, from);
    if (whole) {
        cp_async16_at<NIBBLES, PACK_BYTES>(to, from);
        cp_async16_at<NIBBLES + 128, PACK_BYTES + 128>(to, from);
        cp_async16_at<NIBBLES + 256, PACK_BYTES + 256>(to, from);
        cp_async16_at<NIBBLES + 384, PACK_BYTES + 384>(to, from);
    }
    from += 2 * PACK_BYTES;
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
            copy_nibbles(w, stage + plan<NMAX, UP>::TOKENS + strip_place(2 * NIBBLES),
                         left > 1 || a.hidden % COLUMNS == 0);
            copy_tokens<0, NMAX / 16, 16>(stage + to, x, table + thread / 8, t.z);
            mbarrier_arrive_cp_async(pipeline_full(r.at));
            ring_next<plan<NMAX, UP>>(r);
        }
    }
    ring_end<plan<NMAX, UP>>(r, false);
}

template <int NMAX, int N>
static __device__ __forceinline__ void w4a8_up_tile(const gpu_grouped_w4a8_args &a, ring &r, const int4 &tile) {
    int gate[N / 2], up[N / 2];
    int4 *kept =
        (int4 *)(r.memory + plan<NMAX, UP>::KEPT) + (threadIdx.x / 32 - 4); /* registers are scarce meanwhile */
    *kept = tile;
    w4a8_multiply<NMAX, N, UP>(r, (int)((a.hidden + COLUMNS - 1) / COLUMNS), -1, gate, up);
    const int4 t = *kept;
    int all = thread_anew(), group = all / 128 - 1, thread = all % 128, warp = thread / 32, lane = thread % 32;
    gpu_i64 row = (gpu_i64)(t.x & ((1 << ROW_TILE_BITS) - 1)) * 128 + group * 64;
    const gpu_matrix *m = a.experts + 3 * (gpu_i64)(t.x >> ROW_TILE_BITS);
    unsigned char *out = r.memory + plan<NMAX, UP>::STAGES * plan<NMAX, UP>::STAGE + group * plan<NMAX, UP>::TOKENS;
    float *of_x = (float *)(r.memory + plan<NMAX, UP>::SCALES) + group * NMAX, of_gate[2], of_up[2];
    w4a8_row_scales(m[0], row + warp * 16, lane / 4, of_gate);
    w4a8_row_scales(m[1], row + warp * 16, lane / 4, of_up);
    named_barrier_sync(1 + group, 128); /* the last tile has been taken away */
    for (int i = thread; i < N; i += 128)
        of_x[i] = i < t.z ? a.x_scale[(gpu_u32)a.list[t.y + i] / a.k] * 0.0625f : 0.0f;
    named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        gpu_u32 of[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 x = *(const float2 *)(of_x + (j + i / 2) * 8 + lane % 4 * 2), h;
            int at = (j + i / 2) * 4 + i % 2 * 2;
            h.x = silu_fast((float)gate[at] * (of_gate[i % 2] * x.x)) * ((float)up[at] * (of_up[i % 2] * x.x));
            h.y = silu_fast((float)gate[at + 1] * (of_gate[i % 2] * x.y)) * ((float)up[at + 1] * (of_up[i % 2] * x.y));
            of[i] = pair_bf16(h.x, h.y);
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
        if (threadIdx.x % 8 < 4)
            cp_async16(r.memory + slot + NMAX * 12 + threadIdx.x / 8 * 64 + threadIdx.x % 8 * 16, w + PACK_SCALES);
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
            copy_nibbles(w, shared_at(stage) + p::TOKENS + strip_place(2 * NIBBLES), c * COLUMNS + COLUMNS <= a.inter);
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, DOWN>>(r);
        }
    }
    ring_end<plan<NMAX, DOWN>>(r, true);
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
        uint2 two = *(const uint2 *)(slot + NMAX * 12 + (2 * warp + m) * 64 + lane / 4 * 8);
        of[m][0] = low_f32(two.x) * unit, of[m][1] = low_f32(two.y) * unit;
    }
    gpu_u32 amax = 0;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        int at = 8 * j + lane % 4 * 2;
        float4 h = *(const float4 *)(slot + NMAX * 4 + at * 8);
        gpu_u32 two[4], is = at + 1 < t.z ? ~0u : at < t.z ? 0xffffu : 0; /* not a token: anything */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int *v = &d[i / 2][4 * j + i % 2 * 2];
            float scale = of[i / 2][i % 2], y0 = (__int_as_float(v[0]) - h.y) * (scale * h.x),
                  y1 = (__int_as_float(v[1]) - h.w) * (scale * h.z);
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
                 return fminf(row * token * (float)(127 * 8 * a.inter), 3.4028234e38f);
           });
}

template <int NMAX, int N>
static __device__ __forceinline__ void w4a8_down_tile(const gpu_grouped_w4a8_args &a, ring &r, const int4 &tile,
                                                      int signal) {
    int d[2][N / 2];
    int4 *kept = (int4 *)(r.memory + plan<NMAX, DOWN>::KEPT) + (threadIdx.x / 32 - 4);
    *kept = tile;
    w4a8_multiply<NMAX, N, DOWN>(r, (int)((a.inter + COLUMNS - 1) / COLUMNS), signal, d[0], d[1]);
    const int4 t = *kept;
    w4a8_down_put<NMAX, N>(a, r, d, t);
}

template <int NMAX> struct tile_widths;
template <> struct tile_widths<64> { typedef widths<16, 32, 48, 64> type; };
template <> struct tile_widths<176> { typedef widths<96, 128, 144, 176> type; };
enum { REGS_COPY = 40, REGS_MULTIPLY = 232 };

template <int NMAX>
static __device__ __forceinline__ void w4a8_up_all(const gpu_grouped_w4a8_args &a, unsigned char *memory) {
    ring r = ring_open<plan<NMAX, UP>>(memory, a.sign_mask);
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
    ring r = ring_open<plan<NMAX, DOWN>>(memory, a.sign_mask);
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
