/* tests/emulator/emulate.h: device code as C++ for this processor, so that a machine without a GPU can run the kernels.
 *
 * Given to the compiler before a .cu file. Every thread of a block is a fiber (blocks.cc); a barrier or a warp
 * operation lets the others run. What it shows: indices, sums, barriers that some threads never reach. What it
 * cannot: races, speed, alignment faults, the GPU's own expf. */
#ifndef TESTS_GPU_EMULATE_H
#define TESTS_GPU_EMULATE_H
#include <cmath>
#include <cstring>

extern "C" {
#include "device/block_times.h"
}
using std::isnan;

#pragma GCC visibility push(hidden) /* called and found without a table */
struct emu_dim3 {
    unsigned x, y, z;
};
struct emu_thread {
    emu_dim3 thread, block, grid, threads;
    void *shared; /* dynamic shared memory */
    int rank;     /* of the block in its cluster */
};
extern __thread emu_thread emu; /* __thread: no check of a constructor at every access */
#define threadIdx emu.thread
#define blockIdx  emu.block
#define gridDim   emu.grid

#define EMULATED
void emu_block_barrier(void);
void emu_warp_barrier(void);
/* Every live lane gives a word; word of lane `from`. */
unsigned emu_exchange(unsigned word, int from);
int emu_or(int value);               /* of the block */
unsigned emu_ballot(int predicate);  /* of the warp */
unsigned emu_match(unsigned word);   /* lanes of the warp that gave the same */
unsigned emu_largest(unsigned word); /* of the warp */
/* math.cuh: by its tree, but in one meeting of the lanes instead of five */
#define WARP_MEETS_ONCE
float warp_sum(float v);
float warp_max(float v);
void mma_bf16(float c[4], const unsigned a[4], const unsigned b[2]);  /* math.cuh tells its layout */
void mma_s8(int c[4], const unsigned a[4], unsigned b0, unsigned b1); /* sm90.cuh */
static inline void mma_s8_more(int c[4], const unsigned a[4], unsigned b0, unsigned b1) { /* decode_mma.cuh */
    int more[4];
    mma_s8(more, a, b0, b1);
    for (int i = 0; i < 4; i++) c[i] += more[i];
}
static inline unsigned choose_bytes(unsigned low, unsigned high, unsigned select) {
    unsigned d = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = select >> 4 * i & 15, byte = (s & 4 ? high : low) >> 8 * (s & 3) & 255;
        d |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return d;
}
void mma_half(float c[4], const unsigned a[4], const unsigned b[2]);

/* ---- sm90.cuh: copies are done at once, barriers count ---- */
typedef unsigned long long emu_u64;
void cluster_sync(void);
static inline void cluster_arrive() {}
static inline void cluster_wait() { cluster_sync(); }
void *in_cluster(const void *shared, int rank);
static inline int cluster_rank() { return emu.rank; }
void named_barrier_sync(int id, int n);
void named_barrier_arrive(int id, int n);
void mbarrier_init(emu_u64 *b, unsigned count);
void mbarrier_arrive(emu_u64 *b);
void mbarrier_expect(emu_u64 *b, unsigned bytes);
void mbarrier_wait(emu_u64 *b, unsigned parity);
void tma_bulk(void *shared, const void *global, unsigned bytes, emu_u64 *b);
static inline void tma_bulk_once(void *shared, const void *global, unsigned bytes, emu_u64 *b) {
    tma_bulk(shared, global, bytes, b);
}
void tma_load(void *shared, const void *map, int c0, int c1, int c2, emu_u64 *b);
static inline void tma_load_once(void *shared, const void *map, int c0, int c1, int c2, emu_u64 *b) {
    tma_load(shared, map, c0, c1, c2, b);
}
static inline void tma_load_both(void *shared, const void *map, int c0, int c1, int c2, emu_u64 *b) {
    for (int i = 0; i < 2; i++) tma_load(in_cluster(shared, i), map, c0, c1, c2, (emu_u64 *)in_cluster(b, i));
}
static inline void tma_bulk_both(void *shared, const void *global, unsigned bytes, emu_u64 *b) {
    for (int i = 0; i < 2; i++) tma_bulk(in_cluster(shared, i), global, bytes, (emu_u64 *)in_cluster(b, i));
}
static inline void mbarrier_arrive_in(emu_u64 *b, int rank) { mbarrier_arrive((emu_u64 *)in_cluster(b, rank)); }
void ldmatrix4(unsigned r[4], const void *shared);
void ldmatrix4_t(unsigned r[4], const void *shared);
void stmatrix4_t(void *shared, const unsigned r[4]);
/* d[64, n] += a b; a: registers, or NULL for the tile at a_desc; t: b N-major; of bf16, or of halves */
void emu_wgmma(int n, int t, float *d, const unsigned *a, emu_u64 a_desc, emu_u64 b_desc, int add, bool half = false);
/* d[64, n] += a b of signed bytes, a in registers; u: unsigned ones of a */
void emu_wgmma_bytes(int n, int u, int *d, const unsigned *a, emu_u64 b_desc, int add);
unsigned shared_at(const void *p); /* dynamic shared memory only, from its begin */
static inline void mbarrier_fence_init() {}
static inline void mbarrier_arrive_cp_async(emu_u64 *b) { mbarrier_arrive(b); }
static inline void cp_async16(void *shared, const void *global) { memcpy(shared, global, 16); }
template <int TO, int FROM> static inline void cp_async16_at(unsigned to, const void *from) {
    memcpy((char *)emu.shared + to + TO, (const char *)from + FROM, 16);
}
template <int BYTES> static inline void cp_async_bytes(void *shared, const void *global) {
    memcpy(shared, global, BYTES);
}
static inline void cp_async16_or_zero(void *shared, const void *global, bool valid) {
    if (valid)
        memcpy(shared, global, 16);
    else
        memset(shared, 0, 16);
}
static inline void store16(void *global, unsigned a, unsigned b, unsigned c, unsigned d) {
    const unsigned all[4] = {a, b, c, d};
    memcpy(global, all, 16);
}
static inline void cp_async_commit() {}
template <int N> static inline void cp_async_wait() {}
static inline void fence_async() {}
static inline void prefetch_l2(const void *, unsigned) {}
static inline void fence_async_global() {}
static inline void tma_prefetch_map(const void *) {}
void grid_barrier_arrive(unsigned *m, unsigned blocks);
void grid_barrier_wait(const unsigned *m, unsigned seen);
void spin_wait_ge(const unsigned *word, unsigned least);
void poll_again();
emu_u64 global_ns();
#pragma GCC visibility pop
static inline void wgmma_begin() {}
static inline void wgmma_commit() {}
template <int N> static inline void wgmma_wait() {}
template <int N> static inline void wgmma_fence_regs(float *) {}
template <int N> static inline void setmaxnreg_inc() {}
template <int N> static inline void setmaxnreg_dec() {}
static inline void pdl_wait() {}
template <int N, int T> static inline void wgmma_ra_(float *d, const unsigned a[4], emu_u64 b, int add) {
    emu_wgmma(N, T, d, a, 0, b, add);
}
template <int N, int U> static inline void wgmma_bytes_(int *d, const unsigned a[4], emu_u64 b, int add) {
    static_assert(N <= 32 || N % 16 == 0, "no such width");
    emu_wgmma_bytes(N, U, d, a, b, add);
}
template <int N, int T> static inline void wgmma_ss_(float *d, emu_u64 a, emu_u64 b, int add) {
    emu_wgmma(N, T, d, nullptr, a, b, add);
}
template <int N, int T> static inline void wgmma_half_ra_(float *d, const unsigned a[4], emu_u64 b, int add) {
    emu_wgmma(N, T, d, a, 0, b, add, true);
}
template <int N, int T> static inline void wgmma_half_ss_(float *d, emu_u64 a, emu_u64 b, int add) {
    emu_wgmma(N, T, d, nullptr, a, b, add, true);
}

#define __device__
#define __forceinline__            inline
#define __shared__                 static thread_local
#define __align__(n)               __attribute__((aligned(n)))
#define __syncthreads()            emu_block_barrier()
#define __syncwarp()               emu_warp_barrier()
#define __syncthreads_or(v)        emu_or(v)
#define __ballot_sync(mask, p)     emu_ballot(p)
#define __match_any_sync(mask, v)  emu_match((unsigned)(v))
#define __reduce_max_sync(mask, v) emu_largest(v)
#define __reduce_min_sync(mask, v) ~emu_largest(~(v))
#define __umul64hi(x, y)           ((unsigned long long)((unsigned __int128)(x) * (y) >> 64))
#define __fdividef(x, y)           ((x) / (y))
#define __ldcs(p)                  (*(p))
#define __launch_bounds__(...)
#define __popc(v)                 __builtin_popcount(v)
#define SHARED_MEMORY(type, name) type *name = (type *)emu.shared
#define SHARED_TILES(name)        unsigned char *name = (unsigned char *)emu.shared
/* The emulated driver writes a block's begin and end itself, and no kernel its points. */
static block_times *const times = nullptr;
static inline void block_mark(block_times *, int, int = 0) {}
#define KERNEL_PDL(name, type, threads, min_blocks)                                                                    \
    static void name##_body(const type &a);                                                                            \
    extern "C" void k_##name(const void *args) { name##_body(*(const type *)args); }                                   \
    extern "C" const unsigned size_k_##name;                                                                           \
    const unsigned size_k_##name = sizeof(type); /* for recordings */                                                  \
    static void name##_body(const type &a)
#define KERNEL_OF(name, type, threads, min_blocks) KERNEL_PDL(name, type, threads, min_blocks)
#define KERNEL(name, type)                         KERNEL_PDL(name, type, GPU_THREADS, 1)
#define blockDim                                   emu.threads
static inline int thread_anew() { return (int)emu.thread.x; }

struct int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline void store_flagged(uint4 *at, unsigned a, unsigned b, unsigned flag) {
    emu_u64 *to = (emu_u64 *)at;
    __atomic_store_n(&to[0], a | (emu_u64)flag << 32, __ATOMIC_SEQ_CST);
    __atomic_store_n(&to[1], b | (emu_u64)flag << 32, __ATOMIC_SEQ_CST);
}
static inline uint4 load_flagged(const uint4 *at) {
    const emu_u64 *from = (const emu_u64 *)at;
    emu_u64 a = __atomic_load_n(&from[0], __ATOMIC_SEQ_CST), b = __atomic_load_n(&from[1], __ATOMIC_SEQ_CST);
    return {(unsigned)a, (unsigned)(a >> 32), (unsigned)b, (unsigned)(b >> 32)};
}
static inline void store_words2(uint2 *at, uint2 v) {
    __atomic_store_n(&at->x, v.x, __ATOMIC_SEQ_CST);
    __atomic_store_n(&at->y, v.y, __ATOMIC_SEQ_CST);
}
static inline uint2 load_words2(const uint2 *at) {
    const unsigned x = __atomic_load_n(&at->x, __ATOMIC_SEQ_CST);
    return {x, __atomic_load_n(&at->y, __ATOMIC_SEQ_CST)};
}
static inline void store_release(unsigned *at, unsigned v) { __atomic_store_n(at, v, __ATOMIC_RELEASE); }
static inline unsigned load_acquire(const unsigned *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void fence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline uint4 ld_cg_words4(const uint4 *at) { return *at; }

static inline float4 ld_cg4(const float *p) { return *(const float4 *)p; }
static inline float2 ld_cg2(const float *p) { return *(const float2 *)p; }
static inline uint2 ld_words2(const void *p) { return *(const uint2 *)p; }
static inline uint4 ld_words4(const void *p) { return *(const uint4 *)p; }
static inline float ld_cg1(const float *p) { return *p; }
static inline int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static inline void atomicMax(unsigned *p, unsigned v) {
    unsigned was = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (was < v && !__atomic_compare_exchange_n(p, &was, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

static inline float __uint_as_float(unsigned b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}
static inline unsigned __float_as_uint(float f) {
    unsigned b;
    memcpy(&b, &f, 4);
    return b;
}
static inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
static inline float __int_as_float(int b) { return __uint_as_float((unsigned)b); }
static inline int __float2int_rn(float f) { return (int)lrintf(f); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __shfl_xor_sync(unsigned, float v, int d) {
    return __uint_as_float(emu_exchange(__float_as_uint(v), (int)(emu.thread.x % 32) ^ d));
}
static inline int __shfl_xor_sync(unsigned, int v, int d) {
    return (int)emu_exchange((unsigned)v, (int)(emu.thread.x % 32) ^ d);
}
static inline int __shfl_up_sync(unsigned, int v, int d) {
    int lane = (int)(emu.thread.x % 32);
    return (int)emu_exchange((unsigned)v, lane < d ? lane : lane - d);
}
static inline unsigned short emu_bf16(float f) {
    unsigned b = __float_as_uint(f);
    return (unsigned short)(isnan(f) ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}
static inline unsigned high_nibbles(unsigned word) { return (word & 0xf0f0f0f0u) ^ 0x80808080u; }
static inline unsigned two_sub(unsigned a, unsigned b) { /* int4_pack.cuh */
    return emu_bf16(__uint_as_float(a << 16) - __uint_as_float(b << 16)) |
           (unsigned)emu_bf16(__uint_as_float(a & 0xffff0000u) - __uint_as_float(b & 0xffff0000u)) << 16;
}
static inline unsigned two_mul(unsigned a, unsigned b) {
    return emu_bf16(__uint_as_float(a << 16) * __uint_as_float(b << 16)) |
           (unsigned)emu_bf16(__uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u)) << 16;
}
static inline float __shfl_sync(unsigned, float v, int from) {
    return __uint_as_float(emu_exchange(__float_as_uint(v), from));
}
static inline int __shfl_sync(unsigned, int v, int from) { return (int)emu_exchange((unsigned)v, from); }

template <typename T> static inline T atomicAdd(T *at, T v) { return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST); }
static inline unsigned pair_bf16(float low, float high) { return emu_bf16(low) | (unsigned)emu_bf16(high) << 16; }
static inline unsigned emu_half(float f) {
    _Float16 h = (_Float16)f;
    unsigned short b;
    memcpy(&b, &h, 2);
    return b;
}
/* The bits in float32's places, their exponent's bias mended by a product that is exact. Not by _Float16, which is a
 * call. */
static inline float emu_of_half(unsigned b) {
    float f = __uint_as_float((b & 0x7fff) << 13) * 0x1p112f;
    unsigned bits = __float_as_uint(f) | ((b & 0x7c00) == 0x7c00 ? 0x7f800000u : 0);
    return __uint_as_float(bits | (b & 0x8000) << 16);
}
static inline unsigned pair_half(float low, float high) { return emu_half(low) | emu_half(high) << 16; }
static inline float low_half(unsigned two) { return emu_of_half(two); }
static inline float high_half(unsigned two) { return emu_of_half(two >> 16); }
static inline unsigned amax_half(unsigned most, unsigned two) {
    return pair_half(fmaxf(low_half(most), fabsf(low_half(two))), fmaxf(high_half(most), fabsf(high_half(two))));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
    unsigned long long all = a | (unsigned long long)b << 32, out = 0;
    for (int i = 0; i < 4; i++) out |= (all >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return (unsigned)out;
}
static inline void __threadfence_block() {}
#define __expf(x) expf(x) /* a name of glibc too */

#endif
