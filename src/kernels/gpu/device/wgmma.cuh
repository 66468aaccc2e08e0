/* kernels/gpu/device/wgmma.cuh: products of a warpgroup, in every width that a kernel uses, and the descriptors of
 * their operands in shared memory. After NVIDIA's PTX ISA 8.0 and later; one function an instruction, so that
 * tests/gpu can replace each. */
#ifndef KERNELS_GPU_DEVICE_WGMMA_CUH
#define KERNELS_GPU_DEVICE_WGMMA_CUH
#include "kernels/gpu/device/sm90.cuh"

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

#define WGMMA_D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_D16(i) WGMMA_D4(i), WGMMA_D4(i + 4), WGMMA_D4(i + 8), WGMMA_D4(i + 12)
#define WGMMA_D32(i) WGMMA_D16(i), WGMMA_D16(i + 16)
#define WGMMA_D64(i) WGMMA_D32(i), WGMMA_D32(i + 32)
#define WGMMA_P10(t)                                                                                                   \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define WGMMA_P0  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
#define WGMMA_P4  "%0, %1, %2, %3"
#define WGMMA_P8  WGMMA_P4 ", %4, %5, %6, %7"
#define WGMMA_P16 WGMMA_P0 "%10, %11, %12, %13, %14, %15"
#define WGMMA_P32 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) "%30, %31"
#define WGMMA_P24 WGMMA_P0 WGMMA_P10(1) "%20, %21, %22, %23"
#define WGMMA_P36 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) "%30, %31, %32, %33, %34, %35"
#define WGMMA_P40 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_P44 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) "%40, %41, %42, %43"
#define WGMMA_P52 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) "%50, %51"
#define WGMMA_P56 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) "%50, %51, %52, %53, %54, %55"
#define WGMMA_P60                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59"
#define WGMMA_P48 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) "%40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_P64 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) "%60, %61, %62, %63"
#define WGMMA_P68                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) "%60, %61, %62, %63, %64, %65, %66, %67"
#define WGMMA_P76                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5)                                          \
        WGMMA_P10(6) "%70, %71, %72, %73, %74, %75"
#define WGMMA_P72 WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) WGMMA_P10(6) "%70, %71"
#define WGMMA_P80                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5)                                          \
        WGMMA_P10(6) "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_P84                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) WGMMA_P10(6)                             \
        WGMMA_P10(7) "%80, %81, %82, %83"
#define WGMMA_P88                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) WGMMA_P10(6)                             \
        WGMMA_P10(7) "%80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_P96                                                                                                      \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) WGMMA_P10(6) WGMMA_P10(7)                \
        WGMMA_P10(8) "%90, %91, %92, %93, %94, %95"
#define WGMMA_P128                                                                                                     \
    WGMMA_P0 WGMMA_P10(1) WGMMA_P10(2) WGMMA_P10(3) WGMMA_P10(4) WGMMA_P10(5) WGMMA_P10(6) WGMMA_P10(7) WGMMA_P10(8)   \
        WGMMA_P10(9) WGMMA_P10(10) WGMMA_P10(11) "%120, %121, %122, %123, %124, %125, %126, %127"
/* a in registers: operands R .. R+3 are a, then b's descriptor, add, is b N-major */
#define WGMMA_TYPE "bf16"
#define WGMMA_RA(n, list, outs, a0, a1, a2, a3, b_, p_, t_)                                                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p_ ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n                 \
                 "k16.f32." WGMMA_TYPE "." WGMMA_TYPE " {" list "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_   \
                 ", p, 1, 1, %" #t_ ";\n}\n"                                                                           \
                 : outs                                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(T))
#define WGMMA_SS(n, list, outs, a_, b_, p_, ta_, t_)                                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p_ ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n                 \
                 "k16.f32." WGMMA_TYPE "." WGMMA_TYPE " {" list "}, %" #a_ ", %" #b_ ", p, 1, 1, %" #ta_ ", %" #t_     \
                 ";\n}\n"                                                                                              \
                 : outs                                                                                                \
                 : "l"(a), "l"(b), "r"(add), "n"(0), "n"(T))
#define WGMMA_COMMA ,

template <int N, int T> static __device__ inline void wgmma_ra_(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    if constexpr (N == 8)
        WGMMA_RA(8, WGMMA_P4, WGMMA_D4(0), 4, 5, 6, 7, 8, 9, 10);
    else if constexpr (N == 16)
        WGMMA_RA(16, WGMMA_P8, WGMMA_D4(0) WGMMA_COMMA WGMMA_D4(4), 8, 9, 10, 11, 12, 13, 14);
    else if constexpr (N == 32)
        WGMMA_RA(32, WGMMA_P16, WGMMA_D16(0), 16, 17, 18, 19, 20, 21, 22);
    else if constexpr (N == 48)
        WGMMA_RA(48, WGMMA_P24, WGMMA_D16(0) WGMMA_COMMA WGMMA_D4(16) WGMMA_COMMA WGMMA_D4(20), 24, 25, 26, 27, 28, 29,
                 30);
    else if constexpr (N == 64)
        WGMMA_RA(64, WGMMA_P32, WGMMA_D32(0), 32, 33, 34, 35, 36, 37, 38);
    else if constexpr (N == 72)
        WGMMA_RA(72, WGMMA_P36, WGMMA_D32(0) WGMMA_COMMA WGMMA_D4(32), 36, 37, 38, 39, 40, 41, 42);
    else if constexpr (N == 80)
        WGMMA_RA(80, WGMMA_P40, WGMMA_D32(0) WGMMA_COMMA WGMMA_D4(32) WGMMA_COMMA WGMMA_D4(36), 40, 41, 42, 43, 44, 45,
                 46);
    else if constexpr (N == 88)
        WGMMA_RA(88, WGMMA_P44, WGMMA_D32(0) WGMMA_COMMA WGMMA_D4(32) WGMMA_COMMA WGMMA_D4(36) WGMMA_COMMA WGMMA_D4(40),
                 44, 45, 46, 47, 48, 49, 50);
    else if constexpr (N == 96)
        WGMMA_RA(96, WGMMA_P48, WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32), 48, 49, 50, 51, 52, 53, 54);
    else if constexpr (N == 104)
        WGMMA_RA(104, WGMMA_P52, WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32) WGMMA_COMMA WGMMA_D4(48), 52, 53, 54, 55, 56,
                 57, 58);
    else if constexpr (N == 112)
        WGMMA_RA(112, WGMMA_P56,
                 WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32) WGMMA_COMMA WGMMA_D4(48) WGMMA_COMMA WGMMA_D4(52), 56, 57, 58,
                 59, 60, 61, 62);
    else if constexpr (N == 120)
        WGMMA_RA(120, WGMMA_P60,
                 WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32) WGMMA_COMMA WGMMA_D4(48) WGMMA_COMMA WGMMA_D4(52)
                     WGMMA_COMMA WGMMA_D4(56),
                 60, 61, 62, 63, 64, 65, 66);
    else if constexpr (N == 128)
        WGMMA_RA(128, WGMMA_P64, WGMMA_D64(0), 64, 65, 66, 67, 68, 69, 70);
    else if constexpr (N == 136)
        WGMMA_RA(136, WGMMA_P68, WGMMA_D64(0) WGMMA_COMMA WGMMA_D4(64), 68, 69, 70, 71, 72, 73, 74);
    else if constexpr (N == 152)
        WGMMA_RA(152, WGMMA_P76,
                 WGMMA_D64(0) WGMMA_COMMA WGMMA_D4(64) WGMMA_COMMA WGMMA_D4(68) WGMMA_COMMA WGMMA_D4(72), 76, 77, 78,
                 79, 80, 81, 82);
    else if constexpr (N == 176)
        WGMMA_RA(176, WGMMA_P88,
                 WGMMA_D64(0) WGMMA_COMMA WGMMA_D16(64) WGMMA_COMMA WGMMA_D4(80) WGMMA_COMMA WGMMA_D4(84), 88, 89, 90,
                 91, 92, 93, 94);
    else if constexpr (N == 192)
        WGMMA_RA(192, WGMMA_P96, WGMMA_D64(0) WGMMA_COMMA WGMMA_D32(64), 96, 97, 98, 99, 100, 101, 102);
    else {
        static_assert(N == 256, "no such width");
        WGMMA_RA(256, WGMMA_P128, WGMMA_D64(0) WGMMA_COMMA WGMMA_D64(64), 128, 129, 130, 131, 132, 133, 134);
    }
}
template <int N, int T> static __device__ inline void wgmma_ss_(float *d, gpu_u64 a, gpu_u64 b, int add) {
    if constexpr (N == 8)
        WGMMA_SS(8, WGMMA_P4, WGMMA_D4(0), 4, 5, 6, 7, 8);
    else if constexpr (N == 16)
        WGMMA_SS(16, WGMMA_P8, WGMMA_D4(0) WGMMA_COMMA WGMMA_D4(4), 8, 9, 10, 11, 12);
    else if constexpr (N == 32)
        WGMMA_SS(32, WGMMA_P16, WGMMA_D16(0), 16, 17, 18, 19, 20);
    else if constexpr (N == 48)
        WGMMA_SS(48, WGMMA_P24, WGMMA_D16(0) WGMMA_COMMA WGMMA_D4(16) WGMMA_COMMA WGMMA_D4(20), 24, 25, 26, 27, 28);
    else if constexpr (N == 64)
        WGMMA_SS(64, WGMMA_P32, WGMMA_D32(0), 32, 33, 34, 35, 36);
    else if constexpr (N == 72)
        WGMMA_SS(72, WGMMA_P36, WGMMA_D32(0) WGMMA_COMMA WGMMA_D4(32), 36, 37, 38, 39, 40);
    else if constexpr (N == 80)
        WGMMA_SS(80, WGMMA_P40, WGMMA_D32(0) WGMMA_COMMA WGMMA_D4(32) WGMMA_COMMA WGMMA_D4(36), 40, 41, 42, 43, 44);
    else if constexpr (N == 88)
        WGMMA_SS(88, WGMMA_P44, WGMMA_D32(0) WGMMA_COMMA WGMMA_D4(32) WGMMA_COMMA WGMMA_D4(36) WGMMA_COMMA WGMMA_D4(40),
                 44, 45, 46, 47, 48);
    else if constexpr (N == 96)
        WGMMA_SS(96, WGMMA_P48, WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32), 48, 49, 50, 51, 52);
    else if constexpr (N == 104)
        WGMMA_SS(104, WGMMA_P52, WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32) WGMMA_COMMA WGMMA_D4(48), 52, 53, 54, 55, 56);
    else if constexpr (N == 112)
        WGMMA_SS(112, WGMMA_P56,
                 WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32) WGMMA_COMMA WGMMA_D4(48) WGMMA_COMMA WGMMA_D4(52), 56, 57, 58,
                 59, 60);
    else if constexpr (N == 120)
        WGMMA_SS(120, WGMMA_P60,
                 WGMMA_D32(0) WGMMA_COMMA WGMMA_D16(32) WGMMA_COMMA WGMMA_D4(48) WGMMA_COMMA WGMMA_D4(52)
                     WGMMA_COMMA WGMMA_D4(56),
                 60, 61, 62, 63, 64);
    else if constexpr (N == 128)
        WGMMA_SS(128, WGMMA_P64, WGMMA_D64(0), 64, 65, 66, 67, 68);
    else if constexpr (N == 136)
        WGMMA_SS(136, WGMMA_P68, WGMMA_D64(0) WGMMA_COMMA WGMMA_D4(64), 68, 69, 70, 71, 72);
    else if constexpr (N == 144)
        WGMMA_SS(144, WGMMA_P72, WGMMA_D64(0) WGMMA_COMMA WGMMA_D4(64) WGMMA_COMMA WGMMA_D4(68), 72, 73, 74, 75, 76);
    else if constexpr (N == 152)
        WGMMA_SS(152, WGMMA_P76,
                 WGMMA_D64(0) WGMMA_COMMA WGMMA_D4(64) WGMMA_COMMA WGMMA_D4(68) WGMMA_COMMA WGMMA_D4(72), 76, 77, 78,
                 79, 80);
    else if constexpr (N == 160)
        WGMMA_SS(160, WGMMA_P80, WGMMA_D64(0) WGMMA_COMMA WGMMA_D16(64), 80, 81, 82, 83, 84);
    else if constexpr (N == 168)
        WGMMA_SS(168, WGMMA_P84, WGMMA_D64(0) WGMMA_COMMA WGMMA_D16(64) WGMMA_COMMA WGMMA_D4(80), 84, 85, 86, 87, 88);
    else if constexpr (N == 176)
        WGMMA_SS(176, WGMMA_P88,
                 WGMMA_D64(0) WGMMA_COMMA WGMMA_D16(64) WGMMA_COMMA WGMMA_D4(80) WGMMA_COMMA WGMMA_D4(84), 88, 89, 90,
                 91, 92);
    else if constexpr (N == 192)
        WGMMA_SS(192, WGMMA_P96, WGMMA_D64(0) WGMMA_COMMA WGMMA_D32(64), 96, 97, 98, 99, 100);
    else {
        static_assert(N == 256, "no such width");
        WGMMA_SS(256, WGMMA_P128, WGMMA_D64(0) WGMMA_COMMA WGMMA_D64(64), 128, 129, 130, 131, 132);
    }
}

/* The same of 8-bit numbers: d[64, N] += a[64, 32] b[32, N], s8 (a of wgmma_u8s8: u8) to s32, exact. Lane 4 g + t
 * holds of a in registers four bytes each of (g, 4t), (g + 8, 4t), (g, 4t + 16), (g + 8, 4t + 16). */
#define WGMMA_I4(i)  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define WGMMA_I8(i)  WGMMA_I4(i), WGMMA_I4(i + 4)
#define WGMMA_I16(i) WGMMA_I8(i), WGMMA_I8(i + 8)
#define WGMMA_I32(i) WGMMA_I16(i), WGMMA_I16(i + 16)
#define WGMMA_I64(i) WGMMA_I32(i), WGMMA_I32(i + 32)
/* U: a has unsigned bytes. */
#define WGMMA_S8(n, list, outs, a0, a1, a2, a3, b_, p_)                                                                \
    {                                                                                                                  \
        if constexpr (U)                                                                                               \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p_ ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n         \
                         "k32.s32.u8.s8 {" list "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_ ", p;\n}\n"       \
                         : outs                                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                              \
        else                                                                                                           \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p_ ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n         \
                         "k32.s32.s8.s8 {" list "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_ ", p;\n}\n"       \
                         : outs                                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                              \
    }
template <int N, int U> static __device__ inline void wgmma_bytes_(int *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    if constexpr (N == 16)
        WGMMA_S8(16, WGMMA_P8, WGMMA_I8(0), 8, 9, 10, 11, 12, 13)
    else if constexpr (N == 32)
        WGMMA_S8(32, WGMMA_P16, WGMMA_I16(0), 16, 17, 18, 19, 20, 21)
    else if constexpr (N == 48)
        WGMMA_S8(48, WGMMA_P24, WGMMA_I16(0) WGMMA_COMMA WGMMA_I8(16), 24, 25, 26, 27, 28, 29)
    else if constexpr (N == 64)
        WGMMA_S8(64, WGMMA_P32, WGMMA_I32(0), 32, 33, 34, 35, 36, 37)
    else if constexpr (N == 80)
        WGMMA_S8(80, WGMMA_P40, WGMMA_I32(0) WGMMA_COMMA WGMMA_I8(32), 40, 41, 42, 43, 44, 45)
    else if constexpr (N == 96)
        WGMMA_S8(96, WGMMA_P48, WGMMA_I32(0) WGMMA_COMMA WGMMA_I16(32), 48, 49, 50, 51, 52, 53)
    else if constexpr (N == 112)
        WGMMA_S8(112, WGMMA_P56, WGMMA_I32(0) WGMMA_COMMA WGMMA_I16(32) WGMMA_COMMA WGMMA_I8(48), 56, 57, 58, 59, 60,
                 61)
    else if constexpr (N == 128)
        WGMMA_S8(128, WGMMA_P64, WGMMA_I64(0), 64, 65, 66, 67, 68, 69)
    else if constexpr (N == 144)
        WGMMA_S8(144, WGMMA_P72, WGMMA_I64(0) WGMMA_COMMA WGMMA_I8(64), 72, 73, 74, 75, 76, 77)
    else if constexpr (N == 160)
        WGMMA_S8(160, WGMMA_P80, WGMMA_I64(0) WGMMA_COMMA WGMMA_I16(64), 80, 81, 82, 83, 84, 85)
    else if constexpr (N == 176)
        WGMMA_S8(176, WGMMA_P88, WGMMA_I64(0) WGMMA_COMMA WGMMA_I16(64) WGMMA_COMMA WGMMA_I8(80), 88, 89, 90, 91, 92,
                 93)
    else {
        static_assert(N == 192, "no such width");
        WGMMA_S8(192, WGMMA_P96, WGMMA_I64(0) WGMMA_COMMA WGMMA_I32(64), 96, 97, 98, 99, 100, 101)
    }
}

/* Of IEEE halves, in the widths that are used. */
#undef WGMMA_TYPE
#define WGMMA_TYPE "f16"
template <int N, int T> static __device__ inline void wgmma_half_ra_(float *d, const gpu_u32 a[4], gpu_u64 b, int add) {
    if constexpr (N == 32)
        WGMMA_RA(32, WGMMA_P16, WGMMA_D16(0), 16, 17, 18, 19, 20, 21, 22);
    else {
        static_assert(N == 256, "no such width");
        WGMMA_RA(256, WGMMA_P128, WGMMA_D64(0) WGMMA_COMMA WGMMA_D64(64), 128, 129, 130, 131, 132, 133, 134);
    }
}
template <int N, int T> static __device__ inline void wgmma_half_ss_(float *d, gpu_u64 a, gpu_u64 b, int add) {
    static_assert(N == 32, "no such width");
    WGMMA_SS(32, WGMMA_P16, WGMMA_D16(0), 16, 17, 18, 19, 20);
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
