/* kernels/gpu/moe/int16_split.cuh: rows of x and h as two digits of base 256, for products in whole numbers.
 *
 * A row's largest |value| becomes 32639 = 127 * 256 + 127; every value is the nearest whole number of such units,
 * 256 * high + low, both in -128..127: 16 bits below the largest, where bf16 has 8 of its own. The scale (of the
 * row) is worth one unit. A row that holds a NaN or an infinity has the scale NaN. Values below 1e-30 of a row whose
 * largest is below it too lose digits.
 *
 * Order: 128 bytes for each 64 columns, 64 of high digits, then 64 of low ones; each is 16 bytes for t = 0..3, byte
 * 4 s + i of column 16 s + 2 t + {0, 8, 1, 9}[i]: what a lane wants of the second operand of mma.m16n8k32 where
 * int4_pack.h's words are the first. */
#ifndef KERNELS_GPU_MOE_INT16_SPLIT_CUH
#define KERNELS_GPU_MOE_INT16_SPLIT_CUH
#include "kernels/gpu/moe/decode_int4.h"
#include "kernels/gpu/device/sm90.cuh"

static __device__ inline float digits_scale(float amax) {
    return amax < 3.4e38f ? fmaxf(amax, 1e-30f) * (1.0f / 32639.0f) : __uint_as_float(0x7fc00000u);
}
/* Units a value of 1 has; 0 for a NaN: all digits 0. */
static __device__ inline float digits_of_one(float amax) {
    return amax < 3.4e38f ? __fdividef(32639.0f / 4, fmaxf(amax, 1e-30f) / 4) : 0;
} /* by 2^126 and more: 0 */

/* Four values to a word of high and one of low digits. */
static __device__ inline void four_digits(const float v[4], float one, gpu_u32 *high, gpu_u32 *low) {
    gpu_u32 h = 0, l = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int whole = one > 0 ? __float2int_rn(v[i] * one) : 0, top = (whole + 128) >> 8;
        h |= ((gpu_u32)top & 255) << 8 * i;
        l |= ((gpu_u32)whole & 255) << 8 * i;
    }
    *high = h, *low = l;
}

static __device__ inline float2 two_values(const float *p) { return ld_cg2(p); }
static __device__ inline float2 two_values(const gpu_bf16 *p) {
    gpu_u32 two = *(const gpu_u32 *)p;
    return {low_f32(two), high_f32(two)};
}

/* 16 columns: t = unit % 4 of the 64 columns unit / 4. A thread has every `threads`-th unit of a row and keeps its
 * first one. */
typedef struct {
    float v[16];
} decode_int4_unit;
template <typename T> static __device__ inline decode_int4_unit unit_at(const T *row, int cols, int unit) {
    decode_int4_unit d;
    const T *from = row + unit / 4 * 64 + unit % 4 * 2;
#pragma unroll
    for (int s = 0; s < 4; s++) {
        float2 a = {0, 0}, b = {0, 0};
        if (unit < cols / 16) a = two_values(from + 16 * s), b = two_values(from + 16 * s + 8);
        d.v[4 * s] = a.x, d.v[4 * s + 1] = b.x, d.v[4 * s + 2] = a.y, d.v[4 * s + 3] = b.y;
    }
    return d;
}
static __device__ inline float unit_amax(const decode_int4_unit &d) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) amax = max_nan(amax, fabsf(d.v[i]));
    return amax;
}
static __device__ inline void put_unit(const decode_int4_unit &d, gpu_u8 *digits, int unit, float one) {
    gpu_u8 *to = digits + unit / 4 * 128 + unit % 4 * 16;
    gpu_u32 high[4], low[4];
#pragma unroll
    for (int s = 0; s < 4; s++) four_digits(d.v + 4 * s, one, &high[s], &low[s]);
    *(uint4 *)to = {high[0], high[1], high[2], high[3]};
    *(uint4 *)(to + 64) = {low[0], low[1], low[2], low[3]};
}

/* The thread's part of a row to digits; whole(most): the largest |value| of all threads. Returns it. */
template <typename T, typename F>
static __device__ inline float row_to_digits(const T *row, gpu_u8 *digits, int cols, int thread, int threads,
                                             F &&whole) {
    const decode_int4_unit first = unit_at(row, cols, thread);
    float amax = unit_amax(first);
#pragma unroll 1
    for (int u = thread + threads; u < cols / 16; u += threads) amax = max_nan(amax, unit_amax(unit_at(row, cols, u)));
    amax = whole(amax);
    if (thread < cols / 16) put_unit(first, digits, thread, digits_of_one(amax));
#pragma unroll 1
    for (int u = thread + threads; u < cols / 16; u += threads)
        put_unit(unit_at(row, cols, u), digits, u, digits_of_one(amax));
    return amax;
}

/* four_digits() in fewer instructions: the whole number is the low half of a float's bits. */
static __device__ inline void quick_digits(const float v[4], float one, gpu_u32 *high, gpu_u32 *low) {
    gpu_u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = __float_as_uint(fmaf(v[i], one, 12582912.0f));
    *low = __byte_perm(__byte_perm(w[0], w[1], 0x0040), __byte_perm(w[2], w[3], 0x0040), 0x5410);
    *high =
        __byte_perm(__byte_perm(w[0] + 128, w[1] + 128, 0x0051), __byte_perm(w[2] + 128, w[3] + 128, 0x0051), 0x5410);
}

/* Lane 4 q + i gets word i of lanes 4 q .. 4 q + 3. */
static __device__ inline void trade_words(gpu_u32 w[4]) {
    bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    gpu_u32 a = (gpu_u32)__shfl_xor_sync(~0u, (int)(odd ? w[0] : w[1]), 1),
            b = (gpu_u32)__shfl_xor_sync(~0u, (int)(odd ? w[2] : w[3]), 1);
    if (odd)
        w[0] = a, w[2] = b;
    else
        w[1] = a, w[3] = b;
    a = (gpu_u32)__shfl_xor_sync(~0u, (int)(upper ? w[0] : w[2]), 2),
    b = (gpu_u32)__shfl_xor_sync(~0u, (int)(upper ? w[1] : w[3]), 2);
    if (upper)
        w[0] = a, w[1] = b;
    else
        w[2] = a, w[3] = b;
}

/* A row of x by the WARPS warps of `team` (0..) of a block; most: shared, a word a warp. As decode_int4_rows; x was
 * written two launches ago or more, and what is written here was read as long ago. */
template <int WARPS>
static __device__ inline void digits_of_row(const gpu_digits_args &a, gpu_i64 row, int team, gpu_u32 *amax) {
    enum { LANES = WARPS * 32, PIECES = GPU_DIGITS_COLS / 8 / LANES };
    int thread = threadIdx.x % LANES, lane = thread % 32;
    uint4 raw[PIECES];
    gpu_u32 m = 0; /* of the bits: a NaN is larger than all */
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        int c = (thread + i * LANES) * 8;
        raw[i] = {0, 0, 0, 0};
        if (a.digits && c < a.hidden) raw[i] = *(const uint4 *)(a.x + row * a.hidden + c);
    }
    if (thread < a.k) a.finished[row * a.k + thread] = 0;
    if (row == 0 && thread < 2) a.work_counter[thread] = 0;
    float deferred = a.deferred.squares ? deferred_scale(a.deferred, row) : 1.0f;
    if (!a.digits) {
        if (thread == 0) a.scale[row] = deferred;
        return;
    }
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const gpu_u32 w[4] = {raw[i].x, raw[i].y, raw[i].z, raw[i].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            gpu_u32 first = w[j] << 16 & 0x7fff0000u, second = w[j] & 0x7fff0000u;
            m = first > m ? first : m, m = second > m ? second : m;
        }
    }
    m = __reduce_max_sync(~0u, m);
    if (lane == 0) amax[WARPS * team + thread / 32] = m;
    named_barrier_sync(1 + team, LANES);
#pragma unroll
    for (int w = 0; w < WARPS; w++) m = amax[WARPS * team + w] > m ? amax[WARPS * team + w] : m;
    float one = digits_of_one(__uint_as_float(m));
    if (thread == 0) a.scale[row] = digits_scale(__uint_as_float(m)) / 16 * deferred;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        int c = (thread + i * LANES) * 8;
        if (c - lane * 8 >= a.hidden) continue;
        gpu_u32 w[4] = {raw[i].x, raw[i].y, raw[i].z, raw[i].w}, high[2], low[2];
        trade_words(w); /* now pair lane % 4 of four pieces: columns 0..7 and 8..15 of two sixteens */
        gpu_u8 *to = a.digits + row * (2 * a.hidden) + c / 64 * 128 + lane % 4 * 16 + lane / 4 % 2 * 8;
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const float v[4] = {low_f32(w[2 * s]), low_f32(w[2 * s + 1]), high_f32(w[2 * s]), high_f32(w[2 * s + 1])};
            quick_digits(v, one, &high[s], &low[s]);
        }
        if (c < a.hidden) *(uint2 *)to = {high[0], high[1]}, *(uint2 *)(to + 64) = {low[0], low[1]};
    }
    fence_async_global(); /* digits are read by copies */
}

#endif
