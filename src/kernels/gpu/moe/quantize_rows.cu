/* kernels/gpu/moe/quantize_rows.cu: rows of bf16 as int8 with a scale each, as ref/moe.c defines it, for
 * grouped_w4a8.cuh.
 *
 *   scale = most / 127 where most is the largest |value|, q = value * (127 / most) to nearest even. A row with a NaN
 *   or an infinity has the
 *   scale NaN, one of nothing above 2^-100 the scale 0; q is 0 in both.
 * Columns of each 16 change places (grouped_w4a8.cuh): byte 4 t + b is column 2 t + {0, 8, 1, 9}[b]. Behind the last
 * column come zeros up to a multiple of 128. Bytes: 3 a value, read once. */
#include "kernels/gpu/device/sm90.cuh"

/* 16 columns. */
typedef struct {
    uint4 low, high;
} piece;
enum { KEPT = 4 /* pieces of a thread that are read once */ };

static __device__ __forceinline__ float piece_amax(const piece &p) {
    const gpu_u32 all[8] = {p.low.x, p.low.y, p.low.z, p.low.w, p.high.x, p.high.y, p.high.z, p.high.w};
    float amax = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) amax = max_nan(max_nan(amax, fabsf(low_f32(all[i]))), fabsf(high_f32(all[i])));
    return amax;
}
static __device__ __forceinline__ gpu_u32 four(float inverse, gpu_u32 first, gpu_u32 second) {
    const float v[4] = {low_f32(first), low_f32(second), high_f32(first), high_f32(second)};
    gpu_u32 out = 0;
#pragma unroll
    for (int b = 0; b < 4; b++) out |= (gpu_u32)(__float2int_rn(v[b] * inverse) & 255) << 8 * b;
    return out;
}
static __device__ __forceinline__ uint4 quantized(float inverse, const piece &p) {
    return uint4{four(inverse, p.low.x, p.high.x), four(inverse, p.low.y, p.high.y), four(inverse, p.low.z, p.high.z),
                 four(inverse, p.low.w, p.high.w)};
}

/* 127 / most, or 0 where the row is all zeros or bad; *scale as above. */
static __device__ __forceinline__ float scale_of(float amax, float *scale) {
    bool bad = !(amax <= 3.4028235e38f);
    *scale = bad ? bits_f32(0x7fc00000u) : amax < 0x1p-100f ? 0.0f : amax / 127.0f;
    return bad || amax < 0x1p-100f ? 0.0f : 127.0f / amax;
}
static __device__ __forceinline__ piece quantize_load_piece(const gpu_bf16 *row, int i) {
    const uint4 *p = (const uint4 *)row + 2 * i;
    return piece{p[0], p[1]};
}

static __device__ __forceinline__ int sum_of(gpu_u32 word) {
    return (signed char)word + (signed char)(word >> 8) + (signed char)(word >> 16) + (signed char)(word >> 24);
}
/* A bad value must not be multiplied: 0 * NaN. */
static __device__ __forceinline__ uint4 quantized_or_zero(float inverse, const piece &v, int *sum) {
    uint4 q = inverse == 0 ? uint4{0, 0, 0, 0} : quantized(inverse, v);
    *sum += sum_of(q.x) + sum_of(q.y) + sum_of(q.z) + sum_of(q.w);
    return q;
}

/* What is needed of a row behind its sums: those of bytes that are 128 too large, of numbers 16 times too large. */
static __device__ __forceinline__ float2 scale_and_sum(float scale, int sum) {
    return float2{scale * 0.0625f, bits_f32((gpu_u32)(128 * sum))};
}

/* x to [n, columns rounded up to 128]; 128 threads a row. */
enum { X_THREADS = 128 };
KERNEL_OF(quantize_x, gpu_quantize_rows_args, X_THREADS, 8) {
    __shared__ float each[X_THREADS / 32];
    __shared__ int sums[X_THREADS / 32];
    gpu_i64 i = blockIdx.x;
    const gpu_bf16 *x = a.x + i * a.cols;
    int pieces = (int)(a.cols / 16), room = (int)((a.cols + 127) / 128 * 8);
    piece kept[KEPT];
    float amax = 0, scale;
#pragma unroll
    for (int p = 0; p < KEPT; p++)
        if (p * X_THREADS + (int)threadIdx.x < pieces) {
            kept[p] = quantize_load_piece(x, p * X_THREADS + threadIdx.x);
            amax = max_nan(amax, piece_amax(kept[p]));
        }
    for (int p = KEPT * X_THREADS + threadIdx.x; p < pieces; p += X_THREADS)
        amax = max_nan(amax, piece_amax(quantize_load_piece(x, p)));
    amax = warp_max(amax);
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = amax;
    __syncthreads();
    for (int w = 0; w < X_THREADS / 32; w++) amax = max_nan(amax, each[w]);
    float inverse = scale_of(amax, &scale);
    int sum = 0;
    uint4 *to = (uint4 *)(a.out + i * room * 16);
#pragma unroll
    for (int p = 0; p < KEPT; p++)
        if (p * X_THREADS + (int)threadIdx.x < pieces)
            to[p * X_THREADS + threadIdx.x] = quantized_or_zero(inverse, kept[p], &sum);
    for (int p = KEPT * X_THREADS + threadIdx.x; p < room; p += X_THREADS)
        to[p] = quantized_or_zero(p < pieces ? inverse : 0, p < pieces ? quantize_load_piece(x, p) : piece{}, &sum);
    for (int p = pieces + (int)threadIdx.x; p < room && p < KEPT * X_THREADS; p += X_THREADS) to[p] = uint4{0, 0, 0, 0};
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < X_THREADS / 32; w++) sum += sums[w];
    a.scales[i] = scale_and_sum(scale, sum);
}

/* Piece p of row i of h; its numbers are added to *sum. */
static __device__ __forceinline__ void put_piece(const gpu_quantize_rows_args &a, gpu_i64 i, int p, int pieces,
                                                 int room, float inverse, const piece &v, int *sum) {
    if (p >= room) return;
    *(uint4 *)(a.out + ((gpu_i64)(p / 8) * a.rows + i) * 128 + ((p % 8 ^ (int)(i % 8)) << 4)) =
        quantized_or_zero(p < pieces ? inverse : 0, v, sum);
}

/* h [rows, columns] to [columns / 128][rows][128], each 1024 bytes swizzled: what stage 2 copies. A warp a row; rows
 * between those of two experts are made of anything. */
KERNEL(quantize_h, gpu_quantize_rows_args) {
    gpu_i64 i = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (i >= a.rows) return;
    const gpu_bf16 *x = a.x + i * a.cols;
    int pieces = (int)(a.cols / 16), room = (int)((a.cols + 127) / 128 * 8), lane = threadIdx.x % 32;
    piece kept[KEPT];
    float amax = 0, scale;
#pragma unroll
    for (int p = 0; p < KEPT; p++)
        if (p * 32 + lane < pieces) {
            kept[p] = quantize_load_piece(x, p * 32 + lane);
            amax = max_nan(amax, piece_amax(kept[p]));
        }
    for (int p = KEPT * 32 + lane; p < pieces; p += 32) amax = max_nan(amax, piece_amax(quantize_load_piece(x, p)));
    float inverse = scale_of(warp_max(amax), &scale);
    int sum = 0;
#pragma unroll
    for (int n = 0; n < KEPT; n++) put_piece(a, i, n * 32 + lane, pieces, room, inverse, kept[n], &sum);
    for (int p = KEPT * 32 + lane; p < room; p += 32)
        put_piece(a, i, p, pieces, room, inverse, p < pieces ? quantize_load_piece(x, p) : piece{}, &sum);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) a.scales[i] = scale_and_sum(scale, sum);
}
