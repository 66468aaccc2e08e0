/* kernels/gpu/device/sm90.cuh: Hopper's own instructions under short names: copies that run beside the arithmetic,
 * barriers that count them, and launches that overlap; products of a warpgroup are wgmma.cuh's. After NVIDIA's PTX
 * ISA 8.0 and later; one function an instruction, so that tests/gpu can replace each. */
#ifndef KERNELS_GPU_DEVICE_SM90_CUH
#define KERNELS_GPU_DEVICE_SM90_CUH
#include "kernels/gpu/device/math.cuh"

#ifndef EMULATED
/* Dynamic shared memory at a multiple of 1024 bytes, if the kernel has no static one. */
#define SHARED_TILES(name) extern __shared__ __align__(1024) unsigned char name[]

static __device__ inline gpu_u32 shared_at(const void *p) { return (gpu_u32)__cvta_generic_to_shared(p); }

/* ---- copies of 16 bytes by single threads (cp.async) ---- */
static __device__ inline void cp_async16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(shared)), "l"(global) : "memory");
}
/* The same with both distances in the instruction. to: shared_at(). */
template <int TO, int FROM> static __device__ inline void cp_async16_at(gpu_u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %3], 16;" ::"r"(to), "l"(from), "n"(TO), "n"(FROM)
                 : "memory");
}
/* 4 or 8 bytes. */
template <int BYTES> static __device__ inline void cp_async_bytes(void *shared, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_at(shared)), "l"(global), "n"(BYTES)
                 : "memory");
}
/* Zeros where !valid; then global is not read. */
static __device__ inline void cp_async16_or_zero(void *shared, const void *global, bool valid) {
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(shared)), "l"(global), "r"(bytes)
                 : "memory");
}
/* The copies since the last commit become one group; wait until at most N of this thread's groups are under way. */
static __device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> static __device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* What another block of this launch wrote: not from the multiprocessor's own cache. */
static __device__ inline float4 ld_cg4(const float *p) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
static __device__ inline float2 ld_cg2(const float *p) {
    float2 v;
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
    return v;
}
static __device__ inline uint2 ld_words2(const void *p) {
    uint2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}
static __device__ inline uint4 ld_words4(const void *p) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
/* Before another look at what another block will write. */
static __device__ inline void poll_again() {}
static __device__ inline float ld_cg1(const float *p) {
    float v;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

/* c[16, 8] = a[16, 32] b[32, 8] in signed bytes, to whole numbers: mma.m16n8k32: lane 4 g + t holds of a the fours
 * of bytes (g, 4t), (g + 8, 4t), (g, 4t + 16), (g + 8, 4t + 16), of b (4t, g), (4t + 16, g), of c (g, 2t..), (g + 8,
 * 2t..). */
static __device__ inline void mma_s8(int c[4], const gpu_u32 a[4], gpu_u32 b0, gpu_u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

/* ---- four 8 x 8 matrices of 16-bit values (ldmatrix): lane 8 i + j points to row j of matrix i (16 bytes,
 * aligned); r[i] of lane 4 g + t is the pair (g, 2t) of matrix i, transposed (2t, g), (2t + 1, g) ---- */
static __device__ inline void ldmatrix4(gpu_u32 r[4], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_at(shared))
                 : "memory");
}
static __device__ inline void ldmatrix4_t(gpu_u32 r[4], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_at(shared))
                 : "memory");
}

/* The way back (stmatrix, transposed): line j of matrix i, which lane 8 i + j points to, gets the j-th values of
 * r[i]'s pairs: r[i] of lane 4 g + t is (2t, g), (2t + 1, g) of the matrix as it lies in shared memory. */
static __device__ inline void stmatrix4_t(void *shared, const gpu_u32 r[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_at(shared)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
/* Two float32 to bf16, to nearest even. */
static __device__ inline gpu_u32 pair_bf16(float low, float high) {
    gpu_u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
/* The same as IEEE halves: too large becomes infinite. */
static __device__ inline gpu_u32 pair_half(float low, float high) {
    gpu_u32 two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
static __device__ inline float low_half(gpu_u32 two) {
    float f;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(f) : "r"(two));
    return f;
}
static __device__ inline float high_half(gpu_u32 two) {
    float f;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(f) : "r"(two));
    return f;
}
/* The larger of most and |two|, of each half; a NaN is passed over. */
static __device__ inline gpu_u32 amax_half(gpu_u32 amax, gpu_u32 two) {
    gpu_u32 m;
    asm("{\n.reg .b32 a;\nabs.f16x2 a, %2;\nmax.f16x2 %0, %1, a;\n}" : "=r"(m) : "r"(amax), "r"(two));
    return m;
}

/* ---- barriers in shared memory that also count bytes (mbarrier). A phase ends when `count` arrivals and all
 * expected bytes have come; mbarrier_wait(b, parity) waits for the end of the phase of that parity, the first has
 * parity 0 ---- */
static __device__ inline void mbarrier_init(gpu_u64 *b, gpu_u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(b)), "r"(count) : "memory");
}
/* After mbarrier_init, before __syncthreads: the copy engine sees them. */
static __device__ inline void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ inline void mbarrier_arrive(gpu_u64 *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(b)) : "memory");
}
/* Arrives, and the phase waits for so many bytes more. */
static __device__ inline void mbarrier_expect(gpu_u64 *b, gpu_u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(b)), "r"(bytes) : "memory");
}
/* Arrives when this thread's copy16s so far are done (the arrival is one of the barrier's count). */
static __device__ inline void mbarrier_arrive_cp_async(gpu_u64 *b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(b)) : "memory");
}
static __device__ inline void mbarrier_wait(gpu_u64 *b, gpu_u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}\n" ::
            "r"(shared_at(b)),
        "r"(parity)
        : "memory");
}
/* `bytes` (a multiple of 16, both addresses too) in one copy by the copy engine; b counts the bytes
 * (mbarrier_expect). */
static __device__ inline void tma_bulk(void *shared, const void *global, gpu_u32 bytes, gpu_u64 *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(shared)),
                 "l"(global), "r"(bytes), "r"(shared_at(b))
                 : "memory");
}
/* For bytes that nobody reads again soon (..._once): they leave the second-level cache first, not what every layer
 * reads. By the copy engine alone: of cp.async with a policy and a size, nvcc 13.0 made an instruction that no GPU
 * knows. */
static __device__ inline gpu_u64 policy_once() {
    gpu_u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
static __device__ inline void tma_bulk_once(void *shared, const void *global, gpu_u32 bytes, gpu_u64 *b) {
    gpu_u64 policy = policy_once();
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_at(shared)),
        "l"(global), "r"(bytes), "r"(shared_at(b)), "l"(policy)
        : "memory");
}

/* A box of a tensor (device/gpu.h: gpu_tensor), its corner at (c0, c1, c2), in one copy; shared: a multiple of 1024.
 * b counts all of the box's bytes, also those outside of the tensor, which become zeros. map: in the kernel's
 * arguments. */
static __device__ inline void tma_load(void *shared, const gpu_tensor_map *map, int c0, int c1, int c2, gpu_u64 *b) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
            "r"(shared_at(shared)),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(shared_at(b))
        : "memory");
}
static __device__ inline void tma_load_once(void *shared, const gpu_tensor_map *map, int c0, int c1, int c2,
                                            gpu_u64 *b) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_at(shared)),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(shared_at(b)), "l"(policy_once())
        : "memory");
}

/* The same to both blocks of a cluster of two, to the same place in each one's memory, whose own b counts the bytes. */
static __device__ inline void tma_load_both(void *shared, const gpu_tensor_map *map, int c0, int c1, int c2,
                                            gpu_u64 *b) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::
            "r"(shared_at(shared)),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(shared_at(b)), "h"((unsigned short)3)
        : "memory");
}

/* The map's own bytes come ahead of its first copy. */
static __device__ inline void tma_prefetch_map(const gpu_tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* `bytes` (as of tma_bulk) on their way to the second-level cache. */
static __device__ inline void prefetch_l2(const void *global, gpu_u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

/* ---- clusters: blocks of one launch (gpu_launch_cluster) that run beside each other and reach into each other's
 * shared memory ---- */
static __device__ inline int cluster_rank() {
    int r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
/* A barrier of all threads of the cluster that have not ended. */
static __device__ inline void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/* The same in two parts, for which the threads need not wait in between: cluster_arrive() orders no memory. */
static __device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
static __device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
/* The same place in the shared memory of block `rank`. */
static __device__ inline void *in_cluster(const void *shared, int rank) {
    void *p;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(shared), "r"(rank));
    return p;
}
/* tma_bulk to both blocks of a cluster of two, to the same place in each one's memory, whose own b counts the
 * bytes. */
static __device__ inline void tma_bulk_both(void *shared, const void *global, gpu_u32 bytes, gpu_u64 *b) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_at(shared)),
        "l"(global), "r"(bytes), "r"(shared_at(b)), "h"((unsigned short)3)
        : "memory");
}
/* Arrives at the barrier at the same place of block `rank`. */
static __device__ inline void mbarrier_arrive_in(gpu_u64 *b, int rank) {
    asm volatile(
        "{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [at];\n}\n" ::
            "r"(shared_at(b)),
        "r"(rank)
        : "memory");
}

/* ---- barrier `id` (1..15) of n threads, a multiple of 32; arrive does not wait ---- */
static __device__ inline void named_barrier_sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
static __device__ inline void named_barrier_arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

/* Shared memory written by ordinary stores or cp_async16 becomes visible to wgmma: each writer, before the barrier. */
static __device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <int N> static __device__ inline void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ inline void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

static __device__ inline void store16(void *global, gpu_u32 a, gpu_u32 b, gpu_u32 c, gpu_u32 d) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
/* threadIdx.x, from which the compiler computes nothing ahead: for code behind a loop that needs every register. */
static __device__ inline int thread_anew() {
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}
/* What this thread wrote to global memory may be read by copies of the copy engine, of this and (after
 * grid_barrier_arrive) of other blocks; and, after grid_barrier_wait, it may start such copies. */
static __device__ inline void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/* ---- a meeting of all blocks of a launch, which may not be more than run at once. m: two words, zero before the
 * first launch. A block arrives once, after a barrier of its threads; `seen` is m[1] before that. ---- */
static __device__ inline void grid_barrier_arrive(gpu_u32 *m, gpu_u32 blocks) {
    __threadfence();
    if (atomicAdd(&m[0], 1u) + 1 < blocks) return;
    m[0] = 0;
    __threadfence();
    atomicAdd(&m[1], 1u);
}
static __device__ inline void grid_barrier_wait(const gpu_u32 *m, gpu_u32 seen) {
    gpu_u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(m + 1) : "memory");
    while (now == seen);
}
/* Until *word is at least `least`; what its writer wrote before may be read. */
static __device__ inline void spin_wait_ge(const gpu_u32 *word, gpu_u32 min) {
    gpu_u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    while (now < min);
}

/* Two words each with a flag beside it, for another GPU: either half arrives whole. */
static __device__ inline void store_flagged(uint4 *at, gpu_u32 a, gpu_u32 b, gpu_u32 flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(at), "r"(a), "r"(b), "r"(flag) : "memory");
}
static __device__ inline uint4 load_flagged(const uint4 *at) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}
/* Each word for itself there for any GPU. */
static __device__ inline void store_words2(uint2 *at, uint2 v) {
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
}
static __device__ inline uint2 load_words2(const uint2 *at) {
    uint2 v;
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
    return v;
}
/* What the block has stored before a __syncthreads is there for whoever sees this word, on any GPU or the host. */
static __device__ inline void store_release(gpu_u32 *at, gpu_u32 v) {
    asm volatile("fence.acq_rel.sys;\nst.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}
/* Between what a thread has seen or written and what it shows or reads of other GPUs. */
static __device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
static __device__ inline gpu_u32 load_acquire(const gpu_u32 *at) {
    gpu_u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}
/* Not from the cache of one multiprocessor. */
static __device__ inline uint4 ld_cg_words4(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}
static __device__ inline gpu_u64 global_ns() {
    gpu_u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* The next kernel's early part may run from here on; what earlier kernels wrote may be read. */
static __device__ inline void pdl_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#endif /* EMULATED */

/* Four FP8 values as IEEE halves, exactly, NaN too: the first two, the last two. */
static __device__ inline void fp8_halves(gpu_u32 four, gpu_u32 &low, gpu_u32 &high) {
#ifdef EMULATED
    low = pair_half(fp8_f32((gpu_u8)four), fp8_f32((gpu_u8)(four >> 8)));
    high = pair_half(fp8_f32((gpu_u8)(four >> 16)), fp8_f32((gpu_u8)(four >> 24)));
#else
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
        : "=r"(low), "=r"(high)
        : "r"(four));
#endif
}

#endif
