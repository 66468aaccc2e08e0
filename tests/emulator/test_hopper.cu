/* tests/emulator/test_hopper.cu: sm90.cuh and wgmma.cuh held against plain sums: products of a warpgroup in every
 * width and layout, fed by the copy engine through a barrier, matrices loaded from shared memory, named barriers. On
 * a GPU:
 *     nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -Isrc tests/emulator/test_hopper.cu -o test_hopper &&
 *     ./test_hopper
 * make check-all runs the same file on the emulated GPU, which it tests thereby. */
#include "kernels/gpu/device/wgmma.cuh"
#include <cstdio>
#include <cstdlib>
#include <vector>

enum { K = 64, M = 64 };
struct product_args {
    const gpu_bf16 *a, *b; /* [M, K], [N, K] */
    float *d;              /* [M, N] */
};

/* Producer warp 4 copies a and b as they lie; warps 0..3 put them into tiles and multiply. */
template <int N, int T, int S> static __device__ void product(const product_args &a, unsigned char *tiles) {
    gpu_u64 *full = (gpu_u64 *)(tiles + 98304);
    unsigned char *raw_a = tiles + 40960, *raw_b = raw_a + M * K * 2, *tile_b = tiles + M * 128;
    int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    if (thread == 0) mbarrier_init(full, 1), mbarrier_fence_init();
    __syncthreads();
    pdl_wait();
    if (warp == 4) {
        if (thread == 128) {
            mbarrier_expect(full, (M + N) * K * 2);
            tma_bulk(raw_a, a.a, M * K * 2, full);
            tma_bulk(raw_b, a.b, N * K * 2, full);
        }
        named_barrier_arrive(3, 160);
        return;
    }
    mbarrier_wait(full, 0);
    for (int i = thread; i < M * 8; i += 128) *(uint4 *)(tiles + swizzled(i / 8, i % 8)) = *(uint4 *)(raw_a + i * 16);
    for (int i = thread; i < N * K; i += 128) {
        int n = i / K, k = i % K;
        gpu_u32 at = T ? n / 64 * (K * 128) + swizzled(k, n % 64 / 8) + n % 8 * 2 : swizzled(n, k / 8) + k % 8 * 2;
        *(gpu_bf16 *)(tile_b + at) = *(gpu_bf16 *)(raw_b + i * 2);
    }
    fence_async();
    named_barrier_sync(3, 160);
    float d[N / 2];
    wgmma_begin();
    for (int s = 0; s < K / 16; s++) {
        gpu_u64 b = T ? wgmma_desc_t(tile_b, K * 128, 1024) + s * (16 * 128 >> 4) : wgmma_desc(tile_b) + s * 2;
        if (S) {
            if (T)
                wgmma_ss_t<N>(d, wgmma_desc(tiles) + s * 2, b, s > 0);
            else
                wgmma_ss<N>(d, wgmma_desc(tiles) + s * 2, b, s > 0);
            continue;
        }
        gpu_u32 r[4];
        /* matrices: rows 0..7, rows 8..15, then the same of the next 8 columns */
        ldmatrix4(r, tiles + swizzled(warp * 16 + thread % 16, s * 2 + thread % 32 / 16));
        if (T)
            wgmma_ra_t<N>(d, r, b, s > 0);
        else
            wgmma_ra<N>(d, r, b, s > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    for (int j = 0; j < N / 8; j++)
        for (int i = 0; i < 4; i++) a.d[(warp * 16 + g + 8 * (i / 2)) * N + 8 * j + 2 * t + i % 2] = d[4 * j + i];
}

#define PRODUCTS(N)                                                                                                    \
    KERNEL_PDL(ra_##N, product_args, 160, 1) {                                                                         \
        SHARED_TILES(tiles);                                                                                           \
        product<N, 0, 0>(a, tiles);                                                                                    \
    }                                                                                                                  \
    KERNEL_PDL(ra_t_##N, product_args, 160, 1) {                                                                       \
        SHARED_TILES(tiles);                                                                                           \
        product<N, 1, 0>(a, tiles);                                                                                    \
    }                                                                                                                  \
    KERNEL_PDL(ss_##N, product_args, 160, 1) {                                                                         \
        SHARED_TILES(tiles);                                                                                           \
        product<N, 0, 1>(a, tiles);                                                                                    \
    }                                                                                                                  \
    KERNEL_PDL(ss_t_##N, product_args, 160, 1) {                                                                       \
        SHARED_TILES(tiles);                                                                                           \
        product<N, 1, 1>(a, tiles);                                                                                    \
    }
#define WIDTHS(X) X(8) X(16) X(32) X(48) X(64) X(72) X(80) X(88) X(96) X(104) X(112) X(120) X(128) X(192) X(256)
WIDTHS(PRODUCTS)

/* Bytes: d = a b of [M, 128] and [N, 128], a in registers. */
struct bytes_args {
    const gpu_u8 *a, *b;
    int *d;
};
template <int N, int U> static __device__ void bytes_product(const bytes_args &a, unsigned char *tile) {
    int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    for (int i = thread; i < N * 8; i += 128)
        *(uint4 *)(tile + swizzled(i / 8, i % 8)) = *(const uint4 *)(a.b + i * 16);
    fence_async();
    __syncthreads();
    int d[N / 2];
    gpu_u32 r[4][4];
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 4; i++)
            r[s][i] = *(const gpu_u32 *)(a.a + (warp * 16 + g + i % 2 * 8) * 128 + s * 32 + i / 2 * 16 + 4 * t);
    wgmma_begin();
#pragma unroll
    for (int s = 0; s < 4; s++) wgmma_bytes_<N, U>(d, r[s], wgmma_desc(tile) + 2 * s, s > 0);
    wgmma_commit();
    wgmma_wait<0>();
    for (int j = 0; j < N / 8; j++)
        for (int i = 0; i < 4; i++) a.d[(warp * 16 + g + 8 * (i / 2)) * N + 8 * j + 2 * t + i % 2] = d[4 * j + i];
}
#define BYTES(N)                                                                                                       \
    KERNEL_OF(s8_##N, bytes_args, 128, 1) {                                                                            \
        SHARED_TILES(tile);                                                                                            \
        bytes_product<N, 0>(a, tile);                                                                                  \
    }                                                                                                                  \
    KERNEL_OF(u8_##N, bytes_args, 128, 1) {                                                                            \
        SHARED_TILES(tile);                                                                                            \
        bytes_product<N, 1>(a, tile);                                                                                  \
    }
#define BYTE_WIDTHS(X) X(16) X(32) X(48) X(64) X(80) X(96) X(112) X(128) X(144) X(160) X(176) X(192)
BYTE_WIDTHS(BYTES)

/* out[lane][i]: ldmatrix4_t of a 32 x 8 matrix of its own numbers, brought by cp_async16 */
struct transpose_args {
    const gpu_bf16 *in;
    gpu_u32 *out;
};
KERNEL_OF(transpose, transpose_args, 32, 1) {
    SHARED_TILES(tile);
    cp_async16_or_zero(tile + threadIdx.x * 16, a.in + threadIdx.x * 8, threadIdx.x != 5);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    gpu_u32 r[4];
    ldmatrix4_t(r, tile + threadIdx.x * 16);
    for (int i = 0; i < 4; i++) a.out[threadIdx.x * 4 + i] = r[i];
}

/* ---- the host's side ---- */
enum { SHARED = 98304 + 64 };
#ifdef EMULATED
extern "C" unsigned emu_launch(void (*kernel)(const void *), unsigned threads, unsigned shared, const void *args);
static void *allocate(size_t n) { return aligned_alloc(256, (n + 255) / 256 * 256); }
static void fetch(void *to, const void *from, size_t n) { memcpy(to, from, n); }
static const char *launch(void (*kernel)(const void *), unsigned threads, void *args) {
    return emu_launch(kernel, threads, SHARED, args) ? "launch" : nullptr;
}
#define LAUNCH(name, threads, args) launch(k_##name, threads, &args)
#else
static void *allocate(size_t n) {
    void *p = nullptr;
    if (cudaMalloc(&p, n)) exit(2);
    return p;
}
static void fetch(void *to, const void *from, size_t n) { cudaMemcpy(to, from, n, cudaMemcpyDefault); }
template <typename F, typename A> static const char *launch(F kernel, unsigned threads, A args) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    kernel<<<1, threads, SHARED>>>(args);
    cudaError_t r = cudaDeviceSynchronize();
    return r ? cudaGetErrorString(r) : nullptr;
}
#define LAUNCH(name, threads, args) launch(k_##name, threads, args)
#endif

static gpu_bf16 to_bf16(float f) {
    gpu_u32 b;
    memcpy(&b, &f, 4);
    return (gpu_bf16)(b >> 16); /* small whole numbers: exact */
}
static int failed, passed;
static void result(const char *name, int n, const char *why) {
    if (why)
        printf("%s %d: %s\n", name, n, why), failed++;
    else
        passed++;
}

/* Small whole numbers: every sum is exact. */
static void try_products(int n, const char *const why[4], float *const d[4], const std::vector<float> &a,
                         const std::vector<float> &b) {
    const char *names[4] = {"wgmma_ra", "wgmma_ra_t", "wgmma_ss", "wgmma_ss_t"};
    std::vector<float> got((size_t)M * n);
    for (int v = 0; v < 4; v++) {
        int wrong = 0;
        fetch(got.data(), d[v], got.size() * 4);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < n; j++) {
                float sum = 0;
                for (int k = 0; k < K; k++) sum += a[i * K + k] * b[j * K + k];
                wrong += got[(size_t)i * n + j] != sum;
            }
        char text[64];
        snprintf(text, sizeof text, "%d of %d sums are wrong", wrong, M * n);
        result(names[v], n, why[v] ? why[v] : wrong ? text : nullptr);
    }
}

#define TRY(N)                                                                                                         \
    {                                                                                                                  \
        float *d[4];                                                                                                   \
        for (int v = 0; v < 4; v++) d[v] = (float *)allocate(M * N * 4);                                               \
        product_args p[4];                                                                                             \
        for (int v = 0; v < 4; v++) p[v] = {dev_a, dev_b, d[v]};                                                       \
        const char *why[4] = {LAUNCH(ra_##N, 160, p[0]), LAUNCH(ra_t_##N, 160, p[1]), LAUNCH(ss_##N, 160, p[2]),       \
                              LAUNCH(ss_t_##N, 160, p[3])};                                                            \
        try_products(N, why, d, a, b);                                                                                 \
    }

static void try_bytes(int n, int u, const char *why, const int *d, const std::vector<signed char> &a,
                      const std::vector<signed char> &b) {
    std::vector<int> got((size_t)M * n);
    fetch(got.data(), d, got.size() * 4);
    int wrong = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < n; j++) {
            int sum = 0;
            for (int k = 0; k < 128; k++) sum += (u ? (unsigned char)a[i * 128 + k] : a[i * 128 + k]) * b[j * 128 + k];
            wrong += got[(size_t)i * n + j] != sum;
        }
    char text[64];
    snprintf(text, sizeof text, "%d of %d sums are wrong", wrong, M * n);
    result(u ? "wgmma_u8s8" : "wgmma_s8", n, why ? why : wrong ? text : nullptr);
}
#define TRY_BYTES(N)                                                                                                   \
    {                                                                                                                  \
        bytes_args p = {byte_a, byte_b, (int *)allocate(M * N * 4)};                                                   \
        const char *w = LAUNCH(s8_##N, 128, p);                                                                        \
        try_bytes(N, 0, w, p.d, sa, sb);                                                                               \
        w = LAUNCH(u8_##N, 128, p);                                                                                    \
        try_bytes(N, 1, w, p.d, sa, sb);                                                                               \
    }

int main(void) {
    std::vector<float> a(M * K), b(256 * K);
    std::vector<gpu_bf16> ha(M * K), hb(256 * K);
    unsigned seed = 1;
    for (size_t i = 0; i < a.size(); i++)
        a[i] = (float)((seed = seed * 1664525 + 1013904223) >> 28) - 7, ha[i] = to_bf16(a[i]);
    for (size_t i = 0; i < b.size(); i++)
        b[i] = (float)((seed = seed * 1664525 + 1013904223) >> 28) - 7, hb[i] = to_bf16(b[i]);
    gpu_bf16 *dev_a = (gpu_bf16 *)allocate(M * K * 2), *dev_b = (gpu_bf16 *)allocate(256 * K * 2);
    fetch(dev_a, ha.data(), ha.size() * 2);
    fetch(dev_b, hb.data(), hb.size() * 2);
    WIDTHS(TRY)
    std::vector<signed char> sa(M * 128), sb(192 * 128);
    for (auto &v : sa) v = (signed char)((seed = seed * 1664525 + 1013904223) >> 24);
    for (auto &v : sb) v = (signed char)((seed = seed * 1664525 + 1013904223) >> 24);
    gpu_u8 *byte_a = (gpu_u8 *)allocate(sa.size()), *byte_b = (gpu_u8 *)allocate(sb.size());
    fetch(byte_a, sa.data(), sa.size());
    fetch(byte_b, sb.data(), sb.size());
    BYTE_WIDTHS(TRY_BYTES)

    gpu_u32 *dev_out = (gpu_u32 *)allocate(32 * 16), out[128];
    transpose_args t = {dev_b, dev_out};
    const char *why = LAUNCH(transpose, 32, t);
    fetch(out, dev_out, sizeof out);
    for (int l = 0; l < 32 && !why; l++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 2; k++) {
                int row = 8 * i + l % 4 * 2 + k;
                gpu_u32 want = row == 5 ? 0 : hb[row * 8 + l / 4];
                if ((out[l * 4 + i] >> 16 * k & 0xffff) != want) why = "a value is in another place";
            }
    result("ldmatrix4_t", 8, why);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
