/* kernels/gpu/decode.cuh: how the fast decode kernels share out their work, and what they leave for mla_join.
 *
 * All rows' contexts, in pages of 64 tokens, lie behind each other in one line, which is cut into equal pieces, one a block:
 * every block reads the same number of bytes, whatever the lengths are, and the host need not know them. A row inside one
 * piece is finished by its block; a row that was cut leaves sums that are not yet divided, and mla_join adds them in order.
 * Where a row is cut depends on the other rows of the call (not so in the generic kernel): its sums differ in rounding
 * between batches, and are the same in every run. */
#ifndef KERNELS_GPU_DECODE_CUH
#define KERNELS_GPU_DECODE_CUH
#include "kernels/gpu/hopper.cuh"

enum { KV_LATENT = 512, KV_WIDTH = 576 /* values of a KV row in the fast kernels */ };

static __device__ inline int pages_of(const gpu_decode_args &a, gpu_i64 row) { return (a.kv_len[row] + GPU_PAGE - 1) / GPU_PAGE; }

/* The same in every lane. */
static __device__ inline int pages_of_all(const gpu_decode_args &a) {
    int sum = 0;
    for (gpu_i64 i = threadIdx.x % 32; i < a.n; i += 32) sum += pages_of(a, i);
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

/* Pages in each block's piece, of `all`. */
static __device__ inline int piece_of_all(const gpu_decode_args &a, int all) {
    int each = (all + a.blocks - 1) / a.blocks;
    return each > a.least ? each : a.least;
}

/* The row that page `at` of the line belongs to; *start: the row's own first page in the line. */
static __device__ inline gpu_i64 row_at(const gpu_decode_args &a, int at, int *start) {
    int lane = threadIdx.x % 32, before = 0;
    for (gpu_i64 base = 0; base < a.n; base += 32) {
        int mine = base + lane < a.n ? pages_of(a, base + lane) : 0, upto = mine;
        for (int d = 1; d < 32; d *= 2) {
            int left = __shfl_sync(~0u, upto, (lane - d) & 31);
            if (lane >= d) upto += left;
        }
        unsigned past = __ballot_sync(~0u, before + upto > at);
        if (past) {
            int l = __popc((past & (0u - past)) - 1);
            *start = before + __shfl_sync(~0u, upto - mine, l);
            return base + l;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    *start = before;
    return a.n; /* behind all */
}

/* A walk over a block's piece: rows in turn, of each the pages [first, last). */
typedef struct {
    int row, start, at, to; /* in the line: the row's first page, where the walk is, its end */
    int len, first, last, pages;
} decode_walk;

static __device__ inline decode_walk walk_begin(const gpu_decode_args &a) {
    int each = piece_of_all(a, pages_of_all(a));
    decode_walk w = {};
    w.at = (int)blockIdx.x * each, w.to = w.at + each;
    w.row = (int)row_at(a, w.at, &w.start);
    return w;
}
/* The next row's part; false at the end. */
static __device__ inline bool walk_next(const gpu_decode_args &a, decode_walk &w) {
    if (w.pages) w.at = w.start + w.last, w.start += w.pages, w.row++;
    if (w.at >= w.to || w.row >= a.n) return false;
    w.len = a.kv_len[w.row], w.pages = (w.len + GPU_PAGE - 1) / GPU_PAGE;
    w.first = w.at - w.start, w.last = w.pages < w.to - w.start ? w.pages : w.to - w.start;
    return true;
}
static __device__ inline bool walk_whole(const decode_walk &w) { return w.first == 0 && w.last == w.pages; }

/* Where a cut row's sums lie: each block has room for the end of a row that began before it, then for the begin of one. */
static __device__ inline gpu_i64 part_slot(gpu_i64 block, bool begins) { return block * 2 + begins; }
static __device__ inline float *part_sums(const gpu_decode_args &a, gpu_i64 slot, gpu_i64 head) { return a.part + (slot * a.heads + head) * KV_LATENT; }
static __device__ inline float *part_state(const gpu_decode_args &a, gpu_i64 slot, gpu_i64 head) { /* maximum (base 2), sum of weights */
    return a.part + 2 * a.blocks * a.heads * KV_LATENT + (slot * a.heads + head) * 2;
}

static __device__ inline float power2(float x) {
#ifdef EMULATED
    return exp2f(x);
#else
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Two FP8 values as bf16, exactly, but for NaN: sign, exponent and mantissa in their places, then times 2^120 for the exponents' offsets. */
static __device__ inline gpu_u32 fp8_pair(gpu_u32 two) {
    gpu_u32 t = (two << 8 & 0xff00u) | (two << 16 & 0xff000000u), v = (t & 0x80008000u) | (t >> 4 & 0x07f007f0u);
#ifdef EMULATED
    return pair_bf16(low_f32(v) * 0x1p120f, high_f32(v) * 0x1p120f);
#else
    gpu_u32 r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(0x7b807b80u));
    return r;
#endif
}
/* 16 values. */
static __device__ inline void fp8_bf16(const uint4 u, uint4 out[2]) {
    const gpu_u32 in[4] = {u.x, u.y, u.z, u.w};
    gpu_u32 *to = (gpu_u32 *)out, nan = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = fp8_pair(in[i] & 0xffffu), to[2 * i + 1] = fp8_pair(in[i] >> 16);
        nan |= (in[i] & 0x7f7f7f7fu) + 0x01010101u;
    }
    if (nan & 0x80808080u) { /* seldom */
#pragma unroll
        for (int i = 0; i < 8; i++) {
            gpu_u32 two = in[i / 2] >> 16 * (i % 2);
            to[i] = pair_bf16(fp8_f32((gpu_u8)two), fp8_f32((gpu_u8)(two >> 8)));
        }
    }
}

#endif
