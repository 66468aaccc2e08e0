/* tests/gpu/step_probe.cu: what a decoding step of one rank of TP8 of Kimi-K2.5 would take as one launch: the bytes
 * and products of its phases, each waiting for all of the one in front, by one block a multiprocessor. It is no model:
 * every phase is a product of bf16 rows with random weights, of the bytes that the phase reads (INT4 experts too), a
 * token's experts are the same for all rows, and there are no norms, softmax or choice.
 * docs/lab/2026-11-28-step-in-one-kernel.md.
 *
 *   nvcc -std=c++17 -O3 -arch=sm_90a -Isrc -o step_probe tests/gpu/step_probe.cu && ./step_probe [layers (61)]
 *
 * A warp of each block asks for the weights, row by row into a ring of slots in shared memory, and never waits for a
 * phase but where a choice decides what is read (`late`). Sixteen warps multiply: a slot is 8 rows of weights, a warp
 * has every sixteenth 32 columns of it, and keeps its columns of x in registers. Sums of warps meet in shared memory at
 * the end of a phase. A counter in memory holds how many blocks have ended how many phases. */
#include "kernels/gpu/device/pipeline.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <vector>

enum {
    BLOCKS = 132,
    WARPS = 16,
    MULTIPLIERS = WARPS * 32,
    THREADS = MULTIPLIERS + 32,
    TILE = 8,                  /* rows of weights in a slot */
    ROW_BYTES = 1024 * 2 + 64, /* of a slot: neighbours begin in different banks */
    SLOT = TILE * ROW_BYTES,   /* bytes */
    SLOTS = 8,
    MOST_TILES = 7, /* of a block in a phase */
    MOST_ROWS = 8,  /* of x */
    X_STRIDE = 8192,
    PHASES = 9
};

/* rows of weights; columns of a slot, slots of a tile; late: not known before the phase in front has ended; small: the
 * phase in front could do it, if blocks of a cluster exchanged what it takes */
struct phase {
    int rows, cols, slots;
    bool late, small;
};
static constexpr phase phases[PHASES] = {
    {2112, 1024, 7, false, false}, /* q_a and kv_a: 30 MB */
    {1536, 768, 2, false, false},  /* q_b */
    {512, 1024, 1, false, true},   /* absorbed queries */
    {4608, 1024, 1, false, false}, /* attention: 8192 tokens of one sequence */
    {512, 1024, 1, false, true},   /* its pieces joined, values of latents */
    {7168, 1024, 1, false, false}, /* o */
    {896, 1024, 7, false, false},  /* router, shared expert's gate and up */
    {4032, 1024, 2, true, false},  /* gate and up of eight experts: 16.5 MB */
    {7168, 832, 1, false, false},  /* down of nine: 12 MB */
};
static constexpr size_t values_of(int p) { return (size_t)phases[p].rows * phases[p].cols * phases[p].slots; }
static constexpr size_t phase_at(int p) { return p ? phase_at(p - 1) + values_of(p - 1) : 0; }
static constexpr size_t LAYER = phase_at(PHASES);
template <int P> static constexpr size_t PHASE_AT = phase_at(P); /* for device code */

enum { NO_WAITS = 1, NO_PRODUCTS = 2, NO_X = 4 };
struct step {
    const gpu_bf16 *weights; /* [layers][LAYER] */
    gpu_bf16 *x;             /* three of [MOST_ROWS, X_STRIDE]: a phase reads one and writes the next */
    gpu_u32 *ended;          /* blocks, of all phases together */
    long long *clocks;       /* [phases of all layers][BLOCKS][2]: x is there, all is written; NULL: not asked for */
    int layers, n, without;
};
struct block_state {
    gpu_u64 full[SLOTS], empty[SLOTS];
    float sums[WARPS][MOST_TILES][TILE][MOST_ROWS];
};
enum { SHARED = SLOTS * SLOT + sizeof(block_state) };

static __device__ inline void wait_for_all(const step &s, gpu_u32 phases_ended) {
    gpu_u32 v;
    do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(s.ended) : "memory");
    while (v < phases_ended * gridDim.x);
}
static __device__ inline void mma_8_rows(float c[4], gpu_u32 x0, gpu_u32 x1, gpu_u32 w0, gpu_u32 w1) {
    const gpu_u32 x[4] = {x0, 0, x1, 0}, w[2] = {w0, w1};
    mma_bf16(c, x, w);
}
/* Tiles [first_tile(b), first_tile(b + 1)) are block b's. */
static __device__ inline int first_tile(int tiles, int block) { return tiles * block / (int)gridDim.x; }

template <int P, bool CHOICE>
static __device__ inline void ask_for(const step &s, const gpu_bf16 *layer, gpu_u8 *ring, pipeline &p, gpu_u32 ended) {
    constexpr phase f = phases[P];
    const int lane = threadIdx.x % 32, to = first_tile(f.rows / TILE, blockIdx.x + 1);
    if (CHOICE && f.late && !(s.without & NO_WAITS)) wait_for_all(s, ended);
    for (int t = first_tile(f.rows / TILE, blockIdx.x); t < to; t++)
        for (int c = 0; c < f.slots; c++, pipeline_next(p, SLOTS)) {
            producer_acquire(p);
            if (lane == 0) mbarrier_expect(pipeline_full(p), TILE * f.cols * 2);
            __syncwarp();
            if (lane < TILE)
                tma_bulk_once(ring + p.stage * SLOT + lane * ROW_BYTES,
                              layer + PHASE_AT<P> + ((size_t)(t * TILE + lane) * f.slots + c) * f.cols, f.cols * 2,
                              pipeline_full(p));
        }
}

/* Lane (g, q) has columns 8 q .. 8 q + 7 of each 32 of row g: of x here, of a tile's weights there. */
template <int P>
static __device__ inline void multiply(const step &s, gpu_u8 *ring, block_state *b, pipeline &p, gpu_u32 ended) {
    constexpr phase f = phases[P];
    constexpr int UNITS = f.cols / 32, EACH = (UNITS + WARPS - 1) / WARPS, TILES = f.rows / TILE,
                  MOST = (TILES + BLOCKS - 1) / BLOCKS;
    static_assert(MOST <= MOST_TILES, "sums");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4,
              first = first_tile(TILES, blockIdx.x), tiles = first_tile(TILES, blockIdx.x + 1) - first;
    const gpu_bf16 *x = s.x + (size_t)(ended % 3) * MOST_ROWS * X_STRIDE + g * X_STRIDE + q * 8;
    gpu_bf16 *y = s.x + (size_t)((ended + 1) % 3) * MOST_ROWS * X_STRIDE;
    if (!(s.without & NO_WAITS)) {
        if (threadIdx.x == 0) wait_for_all(s, ended);
        named_barrier_sync(1, MULTIPLIERS);
    }
    uint4 v[f.slots][EACH];
#pragma unroll
    for (int c = 0; c < f.slots; c++)
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int u = e * WARPS + warp;
            v[c][e] = {0, 0, 0, 0};
            if (g < s.n && u < UNITS && !(s.without & NO_X)) v[c][e] = __ldcg((const uint4 *)(x + c * f.cols + u * 32));
        }
    if (threadIdx.x == 0 && s.clocks) s.clocks[((size_t)ended * BLOCKS + blockIdx.x) * 2] = clock64();
#pragma unroll
    for (int t = 0; t < MOST; t++) {
        if (t >= tiles) break;
        float sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int c = 0; c < f.slots; c++) {
            consumer_wait(p);
            const gpu_u8 *slot = ring + p.stage * SLOT + g * ROW_BYTES + q * 16;
            uint4 w[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (e * WARPS + warp < UNITS) w[e] = *(const uint4 *)(slot + (e * WARPS + warp) * 64);
            __syncwarp();
            if (lane == 0) consumer_release(p);
            pipeline_next(p, SLOTS);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (e * WARPS + warp < UNITS && !(s.without & NO_PRODUCTS)) {
                    mma_8_rows(sum, v[c][e].x, v[c][e].y, w[e].x, w[e].y);
                    mma_8_rows(sum, v[c][e].z, v[c][e].w, w[e].z, w[e].w);
                }
        }
        if (g < s.n) b->sums[warp][t][2 * q][g] = sum[0], b->sums[warp][t][2 * q + 1][g] = sum[1];
    }
    named_barrier_sync(1, MULTIPLIERS);
    for (int i = threadIdx.x; i < tiles * TILE * s.n; i += MULTIPLIERS) {
        const int r = i % s.n, col = i / s.n % TILE, t = i / s.n / TILE;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += b->sums[w][t][col][r];
        /* again and again, as many as the next phase has columns */
        for (int k = (first + t) * TILE + col; k < 7168; k += f.rows) y[r * X_STRIDE + k] = bf16_of(sum);
    }
    if (!(s.without & NO_WAITS)) {
        named_barrier_sync(1, MULTIPLIERS);
        if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(s.ended) : "memory");
    }
    if (threadIdx.x == 0 && s.clocks) s.clocks[((size_t)ended * BLOCKS + blockIdx.x) * 2 + 1] = clock64();
}

/* All phases from P on; MERGED: without the small ones. */
template <int P, bool CHOICE, bool MERGED>
static __device__ inline void ask_from(const step &s, const gpu_bf16 *layer, gpu_u8 *ring, pipeline &p, gpu_u32 &at) {
    if constexpr (P < PHASES) {
        if constexpr (!MERGED || !phases[P].small) ask_for<P, CHOICE>(s, layer, ring, p, at++);
        ask_from<P + 1, CHOICE, MERGED>(s, layer, ring, p, at);
    }
}
template <int P, bool MERGED>
static __device__ inline void multiply_from(const step &s, gpu_u8 *ring, block_state *b, pipeline &p, gpu_u32 &at) {
    if constexpr (P < PHASES) {
        if constexpr (!MERGED || !phases[P].small) multiply<P>(s, ring, b, p, at++);
        multiply_from<P + 1, MERGED>(s, ring, b, p, at);
    }
}
template <bool CHOICE, bool MERGED> static __global__ __launch_bounds__(THREADS, 1) void whole_step(step s) {
    SHARED_TILES(memory);
    block_state *b = (block_state *)(memory + SLOTS * SLOT);
    if (threadIdx.x == 0) pipeline_init(pipeline_begin(b->full, b->empty), SLOTS, 1, WARPS), mbarrier_fence_init();
    __syncthreads();
    pipeline p = pipeline_begin(b->full, b->empty);
    gpu_u32 at = 0;
    if (threadIdx.x / 32 == WARPS)
        for (int l = 0; l < s.layers; l++) ask_from<0, CHOICE, MERGED>(s, s.weights + (size_t)l * LAYER, memory, p, at);
    else
        for (int l = 0; l < s.layers; l++) multiply_from<0, MERGED>(s, memory, b, p, at);
}

/* The same phase as a launch of its own: a warp a value. */
static __global__ void plain_phase(const gpu_bf16 *w, const gpu_bf16 *x, gpu_bf16 *y, int rows, int cols) {
    float sum = 0;
    for (int k = threadIdx.x; k < cols; k += 32)
        sum += f32_of(w[(size_t)blockIdx.x * cols + k]) * f32_of(x[blockIdx.y * X_STRIDE + k]);
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        for (int k = blockIdx.x; k < 7168; k += rows) y[blockIdx.y * X_STRIDE + k] = bf16_of(sum);
}
static __global__ void fill(gpu_bf16 *w, size_t n, float scale, gpu_u32 seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        gpu_u32 h = (gpu_u32)i * 2654435761u ^ (gpu_u32)(i >> 32) ^ seed;
        h = (h ^ h >> 15) * 0x2c1b3c6du, h = (h ^ h >> 12) * 0x297a2d39u, h ^= h >> 15;
        w[i] = bf16_of(((int)(h & 0xffff) - 32768) / 32768.0f * scale);
    }
}

static void must(cudaError_t e, int line) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "step_probe.cu:%d: %s\n", line, cudaGetErrorString(e));
    exit(1);
}
#define MUST(call) must(call, __LINE__)

typedef void (*step_kernel)(step);
static const step_kernel kernels[2][2] = {{whole_step<false, false>, whole_step<false, true>},
                                          {whole_step<true, false>, whole_step<true, true>}};
static void launch(const step &s, bool choice, bool merged) {
    MUST(cudaMemsetAsync(s.ended, 0, sizeof(gpu_u32)));
    kernels[choice][merged]<<<BLOCKS, THREADS, SHARED>>>(s);
    MUST(cudaGetLastError());
}
static std::vector<float> first_x(const step &s, int phases_run) {
    std::vector<gpu_bf16> raw(MOST_ROWS * X_STRIDE);
    std::vector<float> out;
    MUST(cudaMemcpy(raw.data(), s.x + (size_t)(phases_run % 3) * MOST_ROWS * X_STRIDE, raw.size() * 2,
                    cudaMemcpyDeviceToHost));
    for (int r = 0; r < s.n; r++)
        for (int k = 0; k < 7168; k++) {
            gpu_u32 bits = (gpu_u32)raw[r * X_STRIDE + k] << 16;
            float v;
            memcpy(&v, &bits, 4);
            out.push_back(v);
        }
    return out;
}
static void begin_x(const step &s) {
    MUST(cudaMemset(s.x, 0, 3 * MOST_ROWS * X_STRIDE * sizeof(gpu_bf16)));
    fill<<<64, 256>>>(s.x, MOST_ROWS * X_STRIDE, 1.7320508f, 5);
}
/* Root mean square of the difference from launches of their own over that of theirs, after two layers. */
static double difference(step s, bool merged) {
    s.layers = std::min(s.layers, 2);
    begin_x(s);
    launch(s, true, merged);
    int at = 0;
    for (int i = 0; i < s.layers * PHASES; i++) at += !merged || !phases[i % PHASES].small;
    const std::vector<float> got = first_x(s, at);
    begin_x(s);
    at = 0;
    for (int i = 0; i < s.layers * PHASES; i++) {
        const phase &f = phases[i % PHASES];
        if (merged && f.small) continue;
        plain_phase<<<dim3(f.rows, s.n), 32>>>(
            s.weights + i / PHASES * LAYER + phase_at(i % PHASES), s.x + (size_t)(at % 3) * MOST_ROWS * X_STRIDE,
            s.x + (size_t)((at + 1) % 3) * MOST_ROWS * X_STRIDE, f.rows, f.cols * f.slots);
        at++;
    }
    const std::vector<float> want = first_x(s, at);
    double wrong = 0, all = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double d = (double)got[i] - want[i];
        wrong += d * d, all += (double)want[i] * want[i];
    }
    return sqrt(wrong / all);
}
/* The best of ten, milliseconds. */
static float time_of(const step &s, bool choice, bool merged) {
    cudaEvent_t from, to;
    float best = INFINITY, ms;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (int run = 0; run < 11; run++) {
        MUST(cudaEventRecord(from));
        launch(s, choice, merged);
        MUST(cudaEventRecord(to));
        MUST(cudaEventSynchronize(to));
        MUST(cudaEventElapsedTime(&ms, from, to));
        if (run) best = std::min(best, ms);
    }
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
    return best;
}
static void print_phases(step s) {
    const size_t n = (size_t)s.layers * PHASES * BLOCKS * 2;
    std::vector<long long> t(n);
    MUST(cudaMalloc(&s.clocks, n * sizeof(long long)));
    launch(s, true, false);
    MUST(cudaMemcpy(t.data(), s.clocks, n * sizeof(long long), cudaMemcpyDeviceToHost));
    MUST(cudaFree(s.clocks));
    for (int p = 0; p < PHASES; p++) {
        double busy = 0, gap = 0;
        for (int l = 1; l < s.layers; l++)
            for (int b = 0; b < BLOCKS; b++) {
                const size_t i = ((size_t)(l * PHASES + p) * BLOCKS + b) * 2;
                busy += (double)(t[i + 1] - t[i]), gap += (double)(t[i] - t[i - BLOCKS * 2 + 1]);
            }
        printf("  phase %d, %5.1f MB: %6.0f clocks until x is there, %6.0f until all is written\n", p,
               (double)values_of(p) * 2e-6, gap / (s.layers - 1) / BLOCKS, busy / (s.layers - 1) / BLOCKS);
    }
}
int main(int argc, char **argv) {
    step s = {NULL, NULL, NULL, NULL, argc > 1 ? atoi(argv[1]) : 61, 1, 0};
    cudaDeviceProp chip;
    gpu_bf16 *weights;
    MUST(cudaGetDeviceProperties(&chip, 0));
    if (chip.multiProcessorCount != BLOCKS || s.layers < 2) {
        fprintf(stderr, "step_probe: it is for %d multiprocessors, and two layers or more\n", BLOCKS);
        return 1;
    }
    MUST(cudaMalloc(&weights, LAYER * 2 * s.layers));
    MUST(cudaMalloc(&s.x, 3 * MOST_ROWS * X_STRIDE * sizeof(gpu_bf16)));
    MUST(cudaMalloc(&s.ended, sizeof(gpu_u32)));
    s.weights = weights;
    for (int i = 0; i < s.layers * PHASES; i++) {
        const phase &f = phases[i % PHASES];
        fill<<<1024, 256>>>(weights + i / PHASES * LAYER + phase_at(i % PHASES), values_of(i % PHASES),
                            sqrtf(3.0f / (float)(f.cols * f.slots)), 77u * (gpu_u32)i);
    }
    for (int i = 0; i < 4; i++)
        MUST(cudaFuncSetAttribute(kernels[i / 2][i % 2], cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    printf("%s, %d layers of %.1f MB, RANDOM WEIGHTS, ring of %d KiB; milliseconds\n", chip.name, s.layers,
           LAYER * 2e-6, SLOTS * SLOT / 1024);
    for (s.n = 1; s.n <= MOST_ROWS; s.n *= 2) {
        printf("%d rows: difference from launches of their own %.1e, %.1e without small phases\n", s.n,
               difference(s, false), difference(s, true));
        static const struct {
            const char *name;
            int without;
        } forms[] = {{"all", 0},
                     {"no products", NO_PRODUCTS},
                     {"no waits", NO_WAITS},
                     {"weights only", NO_WAITS | NO_PRODUCTS | NO_X}};
        for (const auto &f : forms) {
            s.without = f.without;
            printf("  %-14s %.3f, experts known before %.3f, without small phases %.3f, both %.3f\n", f.name,
                   time_of(s, true, false), time_of(s, false, false), time_of(s, true, true), time_of(s, false, true));
        }
        s.without = 0;
        print_phases(s);
    }
    return 0;
}
