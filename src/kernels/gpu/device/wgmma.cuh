/* kernels/gpu/device/wgmma.cuh: products of a warpgroup, in every width that a kernel uses, and the descriptors of
 * their operands in shared memory. After NVIDIA's PTX ISA 8.0 and later; one function an instruction, so that
 * tests/gpu can replace each. */
#ifndef KERNELS_GPU_DEVICE_WGMMA_CUH
#define KERNELS_GPU_DEVICE_WGMMA_CUH
#include "kernels/gpu/device/sm90.cuh"
#include "kernels/gpu/device/wgmma_widths.h"

#ifndef EMULATED
/* Products of a warpgroup (wgmma): d[64, N] += a[64, 16] b[16, N], bf16 to float32. Thread 128 w' + 32 w + 4 g
 * + t holds d[j * 4 + i] = (16 w + g + 8 (i / 2), 8 j + 2t + i % 2), and of a in registers what mma_bf16 wants of
 * rows 16 w. */
static __device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> static __device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* What ordinary instructions do to n sums stays on this side of products and waits. */
template <int N> static __device__ inline void wgmma_fence_regs(float *d) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* The asm statements, once for each width: operands are N / 2 sums, then the rest by the numbers behind them. add: 0:
 * d = a b. T: b lies N-major. */
#define WGMMA_CALL(M, ...) M(__VA_ARGS__)
#define WGMMA_F32(i)       "+f"(d[i])
#define WGMMA_S32(i)       "+r"(d[i])
#define WGMMA_ADD(p)       "{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n"
/* a in registers */
#define WGMMA_RA(n, type, list, a0, a1, a2, a3, b_, p_, t_, ...)                                                       \
    asm volatile(WGMMA_ADD(p_) #n "k16.f32." type "." type " {" list "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3         \
                                  "}, %" #b_ ", p, 1, 1, %" #t_ ";\n}\n"                                               \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(T))
/* a in shared memory: its descriptor */
#define WGMMA_SS(n, type, list, a_, b_, p_, ta_, t_, more1, more2, ...)                                                \
    asm volatile(WGMMA_ADD(p_) #n "k16.f32." type "." type " {" list "}, %" #a_ ", %" #b_ ", p, 1, 1, %" #ta_          \
                                  ", %" #t_ ";\n}\n"                                                                   \
                 : __VA_ARGS__                                                                                         \
                 : "l"(a), "l"(b), "r"(add), "n"(0), "n"(T))
/* bytes, a in registers */
#define WGMMA_BYTES(n, type, list, a0, a1, a2, a3, b_, p_, more, ...)                                                  \
    asm volatile(WGMMA_ADD(p_) #n "k32.s32." type ".s8 {" list "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_    \
                                  ", p;\n}\n"                                                                          \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define WGMMA_OF(M, n, type, sum) WGMMA_CALL(M, n, type, WGMMA_LIST_##n, WGMMA_AT_##n, WGMMA_SUMS_##n(sum))

template <int N, int T> static __device__ inline void wgmma_ra_(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "no such width");
#define WIDTH(n)                                                                                                       \
    if constexpr (N == n) WGMMA_OF(WGMMA_RA, n, "bf16", WGMMA_F32);
    WGMMA_WIDTHS(WIDTH)
#undef WIDTH
}
template <int N, int T> static __device__ inline void wgmma_ss_(float *d, gpu_u64 a, gpu_u64 b, int add) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "no such width");
#define WIDTH(n)                                                                                                       \
    if constexpr (N == n) WGMMA_OF(WGMMA_SS, n, "bf16", WGMMA_F32);
    WGMMA_WIDTHS(WIDTH)
#undef WIDTH
}
/* Of IEEE halves. */
template <int N, int T> static __device__ inline void wgmma_half_ra_(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "no such width");
#define WIDTH(n)                                                                                                       \
    if constexpr (N == n) WGMMA_OF(WGMMA_RA, n, "f16", WGMMA_F32);
    WGMMA_WIDTHS(WIDTH)
#undef WIDTH
}
template <int N, int T> static __device__ inline void wgmma_half_ss_(float *d, gpu_u64 a, gpu_u64 b, int add) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "no such width");
#define WIDTH(n)                                                                                                       \
    if constexpr (N == n) WGMMA_OF(WGMMA_SS, n, "f16", WGMMA_F32);
    WGMMA_WIDTHS(WIDTH)
#undef WIDTH
}
/* Of 8-bit numbers: d[64, N] += a[64, 32] b[32, N], s8 (U: a has u8) to s32, exact. Lane 4 g + t holds of a in
 * registers four bytes each of (g, 4t), (g + 8, 4t), (g, 4t + 16), (g + 8, 4t + 16). */
template <int N, int U> static __device__ inline void wgmma_bytes_(int *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    static_assert(N % 16 == 0 && N >= 16 && N <= 256, "no such width");
#define WIDTH(n)                                                                                                       \
    if constexpr (N == n && U) WGMMA_OF(WGMMA_BYTES, n, "u8", WGMMA_S32);                                              \
    if constexpr (N == n && !U) WGMMA_OF(WGMMA_BYTES, n, "s8", WGMMA_S32);
    WGMMA_WIDTHS(WIDTH)
#undef WIDTH
}
#endif /* EMULATED */
#ifndef AMD_GPU

/* d = a b, or d += a b if add. _t: b lies N-major. a in registers may not be changed before wgmma_wait. */
template <int N> static __device__ inline void wgmma_ra(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    wgmma_ra_<N, 0>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_ra_t(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    wgmma_ra_<N, 1>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_s8(int *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    wgmma_bytes_<N, 0>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_u8s8(int *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    wgmma_bytes_<N, 1>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_ss(float *d, gpu_u64 a, gpu_u64 b, int add) {
    wgmma_ss_<N, 0>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_ss_t(float *d, gpu_u64 a, gpu_u64 b, int add) {
    wgmma_ss_<N, 1>(d, a, b, add);
}

template <int N> static __device__ inline void wgmma_half_ra(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    wgmma_half_ra_<N, 0>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_half_ra_t(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    wgmma_half_ra_<N, 1>(d, a, b, add);
}
template <int N> static __device__ inline void wgmma_half_ss(float *d, gpu_u64 a, gpu_u64 b, int add) {
    wgmma_half_ss_<N, 0>(d, a, b, add);
}

/* Descriptors of wgmma's operands in shared memory (PTX ISA, "matrix descriptor"), 128-byte swizzle: in each 1024
 * bytes, at a multiple of 1024, the 16-byte piece c of line r (128 bytes) lies at piece c ^ (r % 8). wgmma_desc:
 * K-major, a line is 64 values of K of one row, 8 rows = 1024 bytes, the next 8 rows behind them. The k-th step of
 * 16 columns begins 32 k bytes later: + 2 k. */
static __device__ inline gpu_u64 desc_of(const void *shared, gpu_u32 lead, gpu_u32 stride) {
    return (gpu_u64)(shared_at(shared) >> 4 & 0x3fff) | (gpu_u64)(lead >> 4) << 16 | (gpu_u64)(stride >> 4) << 32 |
           (gpu_u64)1 << 62;
}
static __device__ inline gpu_u64 wgmma_desc(const void *shared) { return desc_of(shared, 16, 1024); }
/* N-major: a line is 64 values of N of one k, 8 k = 1024 bytes. n_stride: bytes from 64 values of N to the next 64,
 * k_stride: from 8 k to the next 8. */
static __device__ inline gpu_u64 wgmma_desc_t(const void *shared, gpu_u32 n_stride, gpu_u32 k_stride) {
    return desc_of(shared, n_stride, k_stride);
}
/* Where piece c (of 8) of line r of such a tile lies, in bytes. */
static __device__ inline gpu_u32 swizzled(gpu_u32 r, gpu_u32 c) { return r * 128 + ((c ^ r % 8) << 4); }

#endif /* AMD_GPU */

#endif
