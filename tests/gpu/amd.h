/* tests/gpu/amd.h: what the kernels use of CUDA, for AMD's GPUs (CDNA 3: gfx942, gfx950), given to the compiler
 * before a .cu file that needs nothing of Hopper's own:
 *     clang-22 -x hip --cuda-device-only --offload-arch=gfx942 -nogpulib -nogpuinc --no-gpu-bundle-output -include
 *     tests/gpu/amd.h -Isrc -c ...
 *
 * There is no AMD backend yet; this keeps one possible: the files compile and link to code objects. A wave has 64
 * lanes here and the kernels think in warps of 32: two warps share a wave, and exchanges stay within a half of it.
 * Not run on such a GPU. */
#ifndef TESTS_GPU_AMD_H
#define TESTS_GPU_AMD_H
#define EMULATED /* sm90.cuh and math.cuh leave out what is written in PTX */
#define AMD_GPU

#define __global__                         __attribute__((global))
#define __device__                         __attribute__((device))
#define __shared__                         __attribute__((shared))
#define __align__(n)                       __attribute__((aligned(n)))
#define __forceinline__                    inline __attribute__((always_inline))
#define __launch_bounds__(threads, blocks) __attribute__((launch_bounds(threads)))
#define INFINITY                           __builtin_inff()
#define NAN                                __builtin_nanf("")
#define isnan(x)                           __builtin_isnan(x)
#define __ldcs(p)                          (*(p))

struct amd_dim3 {
    unsigned x, y, z;
};
#define threadIdx (amd_dim3{__builtin_amdgcn_workitem_id_x(), 0, 0})
#define blockIdx                                                                                                       \
    (amd_dim3{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()})
#define blockDim (amd_dim3{__builtin_amdgcn_workgroup_size_x(), 1, 1})
#define gridDim                                                                                                        \
    (amd_dim3{__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),                                    \
              __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),                                    \
              __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z()})

struct uint2 {
    unsigned x, y;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

#define AMD_FN static __device__ inline __attribute__((unused))
AMD_FN float __uint_as_float(unsigned b) { return __builtin_bit_cast(float, b); }
AMD_FN unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
AMD_FN int __float2int_rn(float f) { return (int)__builtin_rintf(f); }
AMD_FN float expf(float x) { return __builtin_expf(x); }
AMD_FN float exp2f(float x) { return __builtin_exp2f(x); }
AMD_FN float logf(float x) { return __builtin_logf(x); }
AMD_FN float fabsf(float x) { return __builtin_fabsf(x); }
AMD_FN float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
AMD_FN float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
AMD_FN float fminf(float a, float b) { return __builtin_fminf(a, b); }
AMD_FN float rintf(float x) { return __builtin_rintf(x); }
AMD_FN double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
AMD_FN double rint(double x) { return __builtin_rint(x); }
AMD_FN float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
AMD_FN float __fdividef(float a, float b) { return a / b; }
AMD_FN int __popc(unsigned v) { return __builtin_popcount(v); }
AMD_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
/* By formula 7.1.26 of Abramowitz and Stegun, whose error is at most 1.5e-7. */
AMD_FN float erff(float x) {
    float t = 1.0f / (1.0f + 0.3275911f * fabsf(x));
    float sum = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    return __builtin_copysignf(1.0f - sum * expf(-x * x), x);
}
/* Rounded each for itself: never one fused operation. */
AMD_FN float __fmul_rn(float a, float b) {
#pragma clang fp contract(off)
    return a * b;
}
AMD_FN float __fadd_rn(float a, float b) {
#pragma clang fp contract(off)
    return a + b;
}

/* ---- a warp: half a wave ---- */
AMD_FN unsigned amd_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
AMD_FN unsigned amd_exchange(unsigned v, unsigned from) {
    return (unsigned)__builtin_amdgcn_ds_bpermute((int)((amd_lane() & 32u) | (from & 31u)) * 4, (int)v);
}
#define AMD_SHUFFLES(type, to, from)                                                                                   \
    AMD_FN type __shfl_sync(unsigned, type v, int lane) { return from(amd_exchange(to(v), (unsigned)lane)); }          \
    AMD_FN type __shfl_xor_sync(unsigned, type v, int d) {                                                             \
        return from(amd_exchange(to(v), amd_lane() ^ (unsigned)d));                                                    \
    }                                                                                                                  \
    AMD_FN type __shfl_up_sync(unsigned, type v, int d) {                                                              \
        unsigned me = amd_lane() & 31u;                                                                                \
        return from(amd_exchange(to(v), me < (unsigned)d ? me : me - (unsigned)d));                                    \
    }
#define AMD_INT(v)      ((int)(v))
#define AMD_UNSIGNED(v) ((unsigned)(v))
AMD_SHUFFLES(float, __float_as_uint, __uint_as_float)
AMD_SHUFFLES(int, AMD_UNSIGNED, AMD_INT)
AMD_SHUFFLES(unsigned, AMD_UNSIGNED, AMD_UNSIGNED)
AMD_FN unsigned __ballot_sync(unsigned, int p) {
    return (unsigned)(__builtin_amdgcn_ballot_w64(p != 0) >> (amd_lane() & 32u));
}
AMD_FN bool __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
AMD_FN void __syncwarp() {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
AMD_FN unsigned __reduce_max_sync(unsigned m, unsigned v) {
    for (int d = 16; d; d >>= 1) {
        unsigned w = __shfl_xor_sync(m, v, d);
        v = w > v ? w : v;
    }
    return v;
}
AMD_FN unsigned __reduce_min_sync(unsigned m, unsigned v) {
    for (int d = 16; d; d >>= 1) {
        unsigned w = __shfl_xor_sync(m, v, d);
        v = w < v ? w : v;
    }
    return v;
}
AMD_FN unsigned __match_any_sync(unsigned m, unsigned v) {
    unsigned mask = 0;
    for (int l = 0; l < 32; l++) mask |= (unsigned)(__shfl_sync(m, v, l) == v) << l;
    return mask;
}

/* ---- a block ---- */
AMD_FN void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
AMD_FN void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
AMD_FN int __syncthreads_or(int p) {
    static __shared__ int any;
    __syncthreads();
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    if (p) __atomic_store_n(&any, 1, __ATOMIC_RELAXED);
    __syncthreads();
    return any;
}
AMD_FN int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
AMD_FN unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
AMD_FN unsigned atomicMax(unsigned *p, unsigned v) { return __atomic_fetch_max(p, v, __ATOMIC_RELAXED); }

/* Sine and cosine in double after Cody and Waite: the angle less a multiple of pi / 2 in two parts, then Taylor's
 * polynomials, which reach 1e-14 on [-pi / 4, pi / 4]. */
AMD_FN void amd_sincos(double x, double *s, double *c) {
    double k = rint(x * 0.63661977236758134308), r = fma(-k, 1.5707963267948966, x), z;
    r = fma(-k, 6.123233995736766e-17, r);
    z = r * r;
    double sine =
        r * (1 + z * (-1.0 / 6 +
                      z * (1.0 / 120 +
                           z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800 + z * (1.0 / 6227020800)))))));
    double cosine =
        1 + z * (-0.5 +
                 z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
    int q = (int)((long long)k & 3);
    *s = q == 0 ? sine : q == 1 ? cosine : q == 2 ? -sine : -cosine;
    *c = q == 0 ? cosine : q == 1 ? -sine : q == 2 ? -cosine : sine;
}
AMD_FN double sin(double x) {
    double s, c;
    amd_sincos(x, &s, &c);
    return s;
}
AMD_FN double cos(double x) {
    double s, c;
    amd_sincos(x, &s, &c);
    return c;
}

/* e^x = 2^k e^r, |r| <= ln 2 / 2, by Taylor's polynomial to 1e-16; the logarithm by two steps of Halley's from
 * float32's. */
AMD_FN double exp(double x) {
    double k = rint(x * 1.4426950408889634), r = fma(-k, 0.6931471805599453, x), sum = 1;
    if (x < -745) return 0;
    if (x > 709) return (double)INFINITY;
    r = fma(-k, 2.3190468138462996e-17, r);
    for (int i = 13; i; i--) sum = fma(sum * r, 1.0 / i, 1.0);
    return __builtin_ldexp(sum, (int)k);
}
AMD_FN double log(double x) {
    double y = (double)__builtin_logf((float)x);
    for (int i = 0; i < 2; i++) {
        double e = exp(y);
        y += 2 * (x - e) / (x + e);
    }
    return y;
}

/* The tensor cores' product by exchanges, in math.cuh's layout: right, not fast; MFMA has other shapes. */
AMD_FN float amd_bf16(unsigned two, int high) { return __uint_as_float(high ? two & 0xffff0000u : two << 16); }
AMD_FN void mma_bf16(float c[4], const unsigned a[4], const unsigned b[2]) {
    int lane = (int)(amd_lane() & 31u), g = lane / 4, t = lane % 4;
    for (int k = 0; k < 16; k++)
        for (int i = 0; i < 4; i++) {
            unsigned x = __shfl_sync(~0u, a[i / 2 + k / 8 * 2], 4 * g + k % 8 / 2);
            unsigned y = __shfl_sync(~0u, b[k / 8], 4 * (2 * t + i % 2) + k % 8 / 2);
            c[i] = fmaf(amd_bf16(x, k % 2), amd_bf16(y, k % 2), c[i]);
        }
}

/* ---- int4_pack.cuh: two bf16 at a time ---- */
AMD_FN unsigned amd_round(float f) {
    unsigned b = __float_as_uint(f);
    return __builtin_isnan(f) ? b >> 16 | 0x40u : (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}
AMD_FN unsigned two_sub(unsigned a, unsigned b) {
    return amd_round(amd_bf16(a, 0) - amd_bf16(b, 0)) | amd_round(amd_bf16(a, 1) - amd_bf16(b, 1)) << 16;
}
AMD_FN unsigned two_mul(unsigned a, unsigned b) {
    return amd_round(amd_bf16(a, 0) * amd_bf16(b, 0)) | amd_round(amd_bf16(a, 1) * amd_bf16(b, 1)) << 16;
}

/* ---- math.cuh's and sm90.cuh's names ---- */
AMD_FN unsigned pair_bf16(float low, float high) { return amd_round(low) | amd_round(high) << 16; }
AMD_FN float amd_half(unsigned b) { return (float)__builtin_bit_cast(_Float16, (unsigned short)b); }
AMD_FN unsigned pair_half(float low, float high) {
    return __builtin_bit_cast(unsigned short, (_Float16)low) |
           (unsigned)__builtin_bit_cast(unsigned short, (_Float16)high) << 16;
}
AMD_FN float low_half(unsigned two) { return amd_half(two & 0xffffu); }
AMD_FN float high_half(unsigned two) { return amd_half(two >> 16); }
AMD_FN void store16(void *to, unsigned a, unsigned b, unsigned c, unsigned d) { *(uint4 *)to = {a, b, c, d}; }
#define SHARED_MEMORY(type, name) extern __shared__ type name[]
#define KERNEL_PDL(name, type, threads, min_blocks)                                                                    \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks) k_##name(const type a)
#define KERNEL_OF(name, type, threads, min_blocks) KERNEL_PDL(name, type, threads, min_blocks)
#define KERNEL(name, type)                         KERNEL_PDL(name, type, GPU_THREADS, 1)
AMD_FN void pdl_wait() {}

#endif
