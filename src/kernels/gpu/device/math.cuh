/* kernels/gpu/device/math.cuh: the few things that every kernel uses: conversions, sums over a warp and a block,
 * elements of a weight.
 *
 * Sums have one order each, whatever else is in the call: lanes add in a fixed tree, and nothing is added
 * atomically. */
#ifndef KERNELS_GPU_DEVICE_MATH_CUH
#define KERNELS_GPU_DEVICE_MATH_CUH
#include "device/block_times.h"
#include "kernels/gpu/params.h"

#ifndef EMULATED /* else the tests' emulation */
/* A kernel `k_name` of one struct `a`. It begins while the kernel before it in the stream still runs (programmatic
 * dependent launch), and waits for its end first. KERNEL_PDL does not: it may read weights, and calls
 * pdl_wait() (sm90.cuh) before it reads or writes anything else.
 *
 * times: NULL, or where the blocks of this launch write down when they ran (gpu_stamp() in device/gpu.h). That is in a
 * build of its own (make TIMES=1), whose kernels may spill registers: two branches a kernel alone would make a step of
 * one sequence 1 to 3 % longer. */
#ifdef BLOCK_TIMES
static __device__ inline gpu_u64 gpu_clock_ns() {
    gpu_u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
/* This block's; found again where it is wanted, so that it takes no register meanwhile. */
static __device__ inline block_times *times_of_block(block_times *times) {
    gpu_u32 x, y, z;
    asm volatile("mov.u32 %0, %%ctaid.x;\nmov.u32 %1, %%ctaid.y;\nmov.u32 %2, %%ctaid.z;" : "=r"(x), "=r"(y), "=r"(z));
    return times + (((gpu_u64)z * gridDim.y + y) * gridDim.x + x);
}
static __device__ inline void block_begins(block_times *times) {
    if (!times || threadIdx.x) return;
    block_times *t = times_of_block(times);
    t->begin = gpu_clock_ns();
    asm volatile("mov.u32 %0, %%smid;" : "=r"(t->processor));
}
/* By every warp. The time only grows, so that nothing needs to be cleared between launches. */
static __device__ inline void block_ends(block_times *times) {
    gpu_u32 lane;
    if (!times) return;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (lane == 0) atomicMax(&times_of_block(times)->end, gpu_clock_ns());
}
/* A thread is at a point of the kernel (block_marks.h). */
static __device__ inline void block_mark(block_times *times, int mark, int thread = 0) {
    if (times && (int)threadIdx.x == thread) times_of_block(times)->mark[mark] = (gpu_u32)gpu_clock_ns();
}
#define KERNEL_PDL(name, type, threads, min_blocks)                                                                    \
    static __device__ void name##_timed(const type &a, block_times *times);                                            \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks)                                                  \
        k_##name(const __grid_constant__ type a, block_times *const times) {                                           \
        block_begins(times);                                                                                           \
        name##_timed(a, times);                                                                                        \
        block_ends(times);                                                                                             \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_timed(const type &a, block_times *times)
#else
static constexpr block_times *times = nullptr;
static __device__ inline void block_mark(block_times *, int, int = 0) {}
#define KERNEL_PDL(name, type, threads, min_blocks)                                                                    \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks) k_##name(const __grid_constant__ type a)
#endif
/* The same for a kernel that begins with the wait. */
#define KERNEL_OF(name, type, threads, min_blocks)                                                                     \
    static __device__ void name##_body(const type &a);                                                                 \
    KERNEL_PDL(name, type, threads, min_blocks) {                                                                      \
        asm volatile("griddepcontrol.wait;" ::: "memory");                                                             \
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");                                                \
        name##_body(a);                                                                                                \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_body(const type &a)
#define KERNEL(name, type)        KERNEL_OF(name, type, GPU_THREADS, 1)
#define SHARED_MEMORY(type, name) extern __shared__ type name[] /* what the launch asked for */

/* c[16, 8] += a[16, 16] b[16, 8] by a warp on the tensor cores, in the layout of PTX's mma.m16n8k16: lane 4 g + t
 * holds of a the pairs (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), of b (2t, g), (2t + 8, g), of c (g,
 * 2t..), (g + 8, 2t..). */
static __device__ inline void mma_bf16(float c[4], const gpu_u32 a[4], const gpu_u32 b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The same of IEEE halves. */
static __device__ inline void mma_half(float c[4], const gpu_u32 a[4], const gpu_u32 b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

/* c[16, 8] += a[16, 8] b[8, 8]: the first half of mma_bf16's a and b. */
static __device__ inline void mma_bf16_8(float c[4], const gpu_u32 a[2], gpu_u32 b) {
#ifdef EMULATED
    const gpu_u32 wide_a[4] = {a[0], a[1], 0, 0}, wide_b[2] = {b, 0};
    mma_bf16(c, wide_a, wide_b);
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
#endif
}

static __device__ inline gpu_i64 min64(gpu_i64 a, gpu_i64 b) { return a < b ? a : b; }
static __device__ inline float bits_f32(gpu_u32 b) { return __uint_as_float(b); }
static __device__ inline float f32_of(gpu_bf16 h) { return bits_f32((gpu_u32)h << 16); }
static __device__ inline float low_f32(gpu_u32 two) { return bits_f32(two << 16); }
static __device__ inline float high_f32(gpu_u32 two) { return bits_f32(two & 0xffff0000u); }

/* To nearest, ties to even; a NaN stays a NaN (format/dtype.h). */
static __device__ inline gpu_bf16 bf16_of(float f) {
    gpu_u32 b = __float_as_uint(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (gpu_bf16)((b >> 16) | 0x40);
    return (gpu_bf16)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

static __device__ inline float fp8_f32(gpu_u8 b) {
    gpu_u32 sign = (gpu_u32)(b >> 7) << 31, ex = (b >> 3) & 15, man = b & 7;
    if (ex == 15 && man == 7) return bits_f32(sign | 0x7fc00000u);
    if (ex) return bits_f32(sign | (ex + 120) << 23 | man << 20);
    float v = (float)man * 0x1p-9f;
    return sign ? -v : v;
}

/* To nearest even, saturating at 448. */
static __device__ inline gpu_u8 fp8_of(float f) {
    gpu_u8 sign = (gpu_u8)(__float_as_uint(f) >> 31 << 7);
    float v = fabsf(f);
    if (isnan(f)) return sign | 0x7f;
    if (v >= 448.0f) return sign | 0x7e;
    if (v < 0x1p-6f) return sign | (gpu_u8)__float2int_rn(v * 0x1p9f);
    gpu_u32 b = __float_as_uint(v);
    b += 0x7ffffu + ((b >> 20) & 1);
    gpu_u32 code = (b >> 20) - (120u << 3);
    return sign | (gpu_u8)(code > 0x7e ? 0x7e : code);
}

static __device__ inline float kv_get(const void *kv, int type, gpu_i64 at) {
    if (type == GPU_BF16) return f32_of(((const gpu_bf16 *)kv)[at]);
    if (type == GPU_FP8) return fp8_f32(((const gpu_u8 *)kv)[at]);
    return ((const float *)kv)[at];
}

static __device__ inline void kv_set(void *kv, int type, gpu_i64 at, float v) {
    if (type == GPU_BF16)
        ((gpu_bf16 *)kv)[at] = bf16_of(v);
    else if (type == GPU_FP8)
        ((gpu_u8 *)kv)[at] = fp8_of(v);
    else
        ((float *)kv)[at] = v;
}

static __device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

#ifndef WARP_MEETS_ONCE /* else warp_sum and warp_max are tests/emulator/emulate.h's, of the same tree */
/* The same sum in every lane. */
static __device__ inline float warp_sum(float v) {
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    return v;
}
#endif

/* What row i has yet to be multiplied by: the same in every lane of the warp. */
static __device__ inline float deferred_scale(const gpu_deferred_norm &l, gpu_i64 i) {
    float sum = 0, v[GPU_DEFERRED_PARTS / 32];
#pragma unroll
    for (int k = 0; k < GPU_DEFERRED_PARTS / 32; k++) {
        int p = k * 32 + (int)threadIdx.x % 32;
        v[k] = 0;
        if (k * 32 >= l.parts) break; /* few parts, few instructions */
        if (p < l.parts) v[k] = *(const volatile float *)(l.squares + i * GPU_DEFERRED_PARTS + p);
    }
#pragma unroll
    for (int k = 0; k < GPU_DEFERRED_PARTS / 32; k++) {
        if (k * 32 >= l.parts) break;
        sum += v[k];
    }
    return rsqrtf(warp_sum(sum) / l.dim + l.eps);
}

/* A NaN wins: it must not vanish. */
static __device__ inline float max_nan(float a, float b) { return a > b || isnan(a) ? a : b; }
#ifndef WARP_MEETS_ONCE
static __device__ inline float warp_max(float v) {
    for (int d = 16; d; d >>= 1) v = max_nan(v, __shfl_xor_sync(~0u, v, d));
    return v;
}
#endif

/* The same sum in every thread of a block of so many warps. */
template <int WARPS> static __device__ inline float block_sum_in(float v, float *each /* [WARPS], shared */) {
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += each[w];
    return sum;
}
template <int WARPS> static __device__ inline float block_sum_of(float v) {
    __shared__ float each[WARPS];
    return block_sum_in<WARPS>(v, each);
}
/* EACH of them at once, each in the order that it alone would have. */
template <int WARPS, int EACH> static __device__ inline void block_sums_of(float (&v)[EACH]) {
    __shared__ float each[EACH][WARPS];
    for (int i = 0; i < EACH; i++) v[i] = warp_sum(v[i]);
    __syncthreads();
    for (int i = 0; i < EACH; i++)
        if (threadIdx.x % 32 == 0) each[i][threadIdx.x / 32] = v[i];
    __syncthreads();
    for (int i = 0; i < EACH; i++) {
        v[i] = 0;
        for (int w = 0; w < WARPS; w++) v[i] += each[i][w];
    }
}
static __device__ inline float block_sum(float v) { return block_sum_of<GPU_WARPS>(v); }

/* A byte a weight: e4m3 or int8. */
static __device__ inline bool in_bytes(int format) {
    return format == GPU_W_FP8 || format == GPU_W_FP8_ROW || format == GPU_W_INT8_ROW;
}
static __device__ inline float byte_value(int format, gpu_u8 b) {
    return format == GPU_W_INT8_ROW ? (float)(signed char)b : fp8_f32(b);
}
static __device__ inline float byte_scale(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    return ((const float *)w.scale)[w.format == GPU_W_FP8 ? row / 128 * ((w.cols + 127) / 128) + col / 128 : row];
}

/* Of an e2m1 nibble. */
static __device__ inline float e2m1_value(gpu_u32 nibble) {
    int m = (int)(0xc8643210u >> 4 * (nibble & 7) & 15);
    return (float)(nibble & 8 ? -m : m) * 0.5f;
}

/* w[row, col] as float32: the definition (format/weights.h). Of NVFP4 and groups of 128: any_weight_at(). */
static __device__ inline float weight_at(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    gpu_i64 at = row * w.cols + col;
    if (w.format == GPU_W_BF16) return f32_of(((const gpu_bf16 *)w.data)[at]);
    if (w.format == GPU_W_F32) return ((const float *)w.data)[at];
    if (in_bytes(w.format)) return byte_value(w.format, ((const gpu_u8 *)w.data)[at]) * byte_scale(w, row, col);
    if (w.format == GPU_W_INT4_ROW) {
        gpu_u32 u = ((const gpu_u32 *)w.data)[at / 8] >> (at % 8 / 2 + at % 2 * 4) * 4 & 15;
        return (float)((int)(u ^ 8) - 8) * ((const float *)w.scale)[row];
    }
    gpu_u8 two = ((const gpu_u8 *)w.data)[at / 2];
    gpu_u32 u = col & 1 ? two >> 4 : two & 15;
    if (w.format == GPU_W_MXFP4) {
        gpu_u32 b = ((const gpu_u8 *)w.scale)[row * (w.cols / 32) + col / 32];
        return e2m1_value(u) * bits_f32(b == 255 ? 0x7fc00000u : b ? b << 23 : 1u << 22);
    }
    return (float)((int)u - 8) * f32_of(((const gpu_bf16 *)w.scale)[row * (w.cols / 32) + col / 32]);
}

/* The same of matrices that are laid out anew, and of experts that are not: all formats. */
static __device__ inline float any_weight_at(const gpu_matrix &w, gpu_i64 row, gpu_i64 col) {
    if (w.format != GPU_W_NVFP4 && w.format != GPU_W_INT4_WIDE) return weight_at(w, row, col);
    gpu_u8 two = ((const gpu_u8 *)w.data)[(row * w.cols + col) / 2];
    gpu_u32 u = col & 1 ? two >> 4 : two & 15;
    if (w.format == GPU_W_INT4_WIDE)
        return (float)((int)(u ^ 8) - 8) * ((const float *)w.scale)[row * (w.cols / 128) + col / 128];
    float s = fp8_f32(((const gpu_u8 *)w.scale)[row * (w.cols / 16) + col / 16]);
    return e2m1_value(u) * (w.divides ? s / w.factor : s * w.factor);
}

#endif
