/* kernels/gpu/moe/grouped_fp8.cu: grouped.cuh's kernels for experts in block FP8 (fp8.cuh).
 *
 * A stage has 128 columns, those of one scale: 256 rows by 128 bytes of weights in four boxes of the copy engine,
 * swizzled as ldmatrix reads them, two tiles of tokens, and the scales of the four times 64 rows.
 *
 * Products and sums are as exact as the checkpoint: a scale is f * 2^e, 1 <= f < 2. 2^e goes into the weights as
 * they become bf16 (a product with a power of two is due there anyway), and the sums are kept in units of the f of
 * their last stage: before the next they are multiplied by f / (the next f), between 1/2 and 2, while the other half
 * of the rows is multiplied.
 *
 * Bill of a stage and 256 rows: 16 N clocks of the tensor cores for N tokens; expanding 14 instructions for 256
 * weights and lane, the sums N / 2 and a half of rows: at N = 128 some 700 of 2,048 issue slots. 32,784 bytes of
 * weights, 256 N of tokens. */
#include "kernels/gpu/device/fp8.cuh"
#include "kernels/gpu/moe/grouped.cuh"

enum { EIGHT_BOX = 64 * 128 /* bytes */ };

/* A scale as what the weights' bits are multiplied with, twice (2^(e + 120)), and f. A scale that is none gives NaN,
 * one that float32 keeps denormal zero; exponents beyond bf16's (scales from 256 on) stay in f. */
typedef struct {
    gpu_u32 two;
    float f;
} eight_scale;
static __device__ __forceinline__ eight_scale eight_of(float scale) {
    gpu_u32 bits = __float_as_uint(scale), e = bits >> 23 & 255, capped = e < 134 ? e : 134;
    eight_scale s = {((bits >> 31 << 15) | (capped + 120) << 7) * 0x10001u,
                     bits_f32((bits & 0x7fffffu) | (e - capped + 127) << 23)};
    if (e == 0) s.two = 0;
    if (e == 255) s.two = 0x7fc07fc0u;
    if (e == 0 || e == 255) s.f = 1.0f;
    return s;
}

/* A word of each of two rows (g and g + 8) as the first operand of a step of 16 columns. */
static __device__ __forceinline__ void expand_eight(gpu_u32 upper, gpu_u32 lower, gpu_u32 two, gpu_u32 a[4]) {
    a[0] = two_mul(fp8_pair0(upper), two);
    a[1] = two_mul(fp8_pair0(lower), two);
    a[2] = two_mul(fp8_pair1(upper), two);
    a[3] = two_mul(fp8_pair1(lower), two);
}

/* A stage while it is multiplied. */
typedef struct {
    const unsigned char *rows; /* this lane's row of the upper 16 of its warp */
    gpu_u64 tokens;
    eight_scale scale[2];
    gpu_u32 words[2][4]; /* of 32 columns, upper and lower rows */
} eight_stage;

/* Columns 32 i .. 32 i + 31 of this warp's 16 rows of each half. */
template <int M> static __device__ __forceinline__ void load_words(eight_stage &e, int i) {
    int lane = threadIdx.x % 32;
    ldmatrix4(e.words[M], e.rows + M * EIGHT_BOX + (((2 * i + lane / 16) ^ lane % 8) << 4));
}

template <int NMAX> static __device__ __forceinline__ eight_stage open_stage(const ring &r) {
    typedef plan<NMAX, EIGHT> p;
    const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    consumer_wait(r.at);
    fence_async(); /* rows of x came by ordinary copies */
    const unsigned char *stage = ring_stage<plan<NMAX, EIGHT>>(r);
    const float2 scales = *(const float2 *)(r.memory + p::SCALES + r.at.stage * 16 + warp / 4 * 8);
    eight_stage e;
    e.rows = stage + p::TOKENS + (warp / 4 * 128 + warp % 4 * 16 + lane % 16) * 128;
    e.tokens = wgmma_desc(stage);
    load_words<0>(e, 0);
    load_words<1>(e, 0);
    e.scale[0] = eight_of(scales.x), e.scale[1] = eight_of(scales.y);
    return e;
}

/* d += half M of the rows times the tokens, 16 columns; what it expanded is loaded anew where a stage has more. */
template <int NMAX, int N, int M>
static __device__ __forceinline__ void eight_step(eight_stage &e, int s, gpu_u32 a[4], float d[N / 2]) {
    expand_eight(e.words[M][s % 2 * 2], e.words[M][s % 2 * 2 + 1], e.scale[M].two, a);
    if (s % 2 && s < 7) load_words<M>(e, s / 2 + 1);
    wgmma_begin();
    wgmma_ra<N>(d, a, e.tokens + s / 4 * (NMAX * 128 >> 4) + s % 4 * 2, 1);
    wgmma_commit();
}

/* `steps` stages. */
template <int NMAX, int N>
static __device__ __forceinline__ void multiply_eight(ring &r, int steps, float *d0, float *d1) {
    const int lane = threadIdx.x % 32;
    gpu_u32 a[2][2][4];
    float f[2] = {1.0f, 1.0f};
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] = d1[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        eight_stage e = open_stage<NMAX>(r);
        const float unit0 = __fdividef(f[0], e.scale[0].f), unit1 = __fdividef(f[1], e.scale[1].f);
        f[0] = e.scale[0].f, f[1] = e.scale[1].f;
#pragma unroll
        for (int i = 0; i < N / 2; i++) d0[i] *= unit0, d1[i] *= unit1;
        wgmma_fence_regs<N / 2>(d0);
        wgmma_fence_regs<N / 2>(d1);
#pragma unroll
        for (int s = 0; s < 8; s++) {
            eight_step<NMAX, N, 0>(e, s, a[s % 2][0], d0);
            eight_step<NMAX, N, 1>(e, s, a[s % 2][1], d1);
            if (s < 7) wgmma_wait<2>(); /* the step before is done: the next may take its registers */
        }
        wgmma_wait<0>();
        if (lane == 0) mbarrier_arrive(pipeline_empty(r.at));
        ring_next<plan<NMAX, EIGHT>>(r);
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) d0[i] *= f[0], d1[i] *= f[1];
}

template <int NMAX> static __device__ __forceinline__ void up_eight_produce(const gpu_moe_maps_args &all, ring r) {
    typedef plan<NMAX, EIGHT> p;
    const gpu_moe_args &a = all.m;
    int thread = threadIdx.x, columns = (int)(a.hidden / 128), row_tiles = (int)(a.inter / 128),
        tiles = *a.n_tiles * row_tiles;
    gpu_u32 to = swizzled(thread / 8, thread % 8), across = (gpu_u32)(a.hidden / 8);
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles;
         tile = next_tile<plan<NMAX, EIGHT>>(r, turn++, coming)) {
        if (thread == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        int expert = t.x;
        t.x = tile % row_tiles;
        gpu_u32 row[NMAX / 16]; /* of x, in units of 16 bytes */
#pragma unroll
        for (int i = 0; i < NMAX / 16; i++) {
            int j = i * 16 + thread / 8;
            row[i] = (gpu_u32)a.list[t.y + (j < t.z ? j : t.z - 1)] / a.k * across;
        }
        const int first = expert * 3 * (int)a.inter + t.x * 128;
        const float *scale = (const float *)a.experts[3 * expert + thread % 2].scale + t.x * columns;
        const gpu_u8 *x = (const gpu_u8 *)a.x + thread % 8 * 16;
#pragma unroll 1
        for (int c = 0; c < columns; c++, x += 256) {
            producer_acquire(r.at);
            gpu_u64 *full = pipeline_full(r.at);
            unsigned char *stage = ring_stage<plan<NMAX, EIGHT>>(r);
            if (thread == 0) {
                if (c == 0) *ring_tile<plan<NMAX, EIGHT>>(r) = t;
                mbarrier_expect(full, 4 * EIGHT_BOX);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    tma_load(stage + p::TOKENS + i * EIGHT_BOX, &all.in, 0, first + i / 2 * 64 + i % 2 * (int)a.inter,
                             c, full);
            }
            if (thread < 4) cp_async_bytes<4>(r.memory + p::SCALES + r.at.stage * 16 + thread * 4, scale + c);
            gpu_u32 place = shared_at(stage) + to;
            copy_tokens<0, NMAX / 16, 1>(place, x, row, t.z);
            copy_tokens<0, NMAX / 16, 1>(place + NMAX * 128, x + 128, row, t.z);
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, EIGHT>>(r);
        }
    }
    ring_end<plan<NMAX, EIGHT>>(r, true);
}

template <int NMAX> static __device__ __forceinline__ void down_eight_produce(const gpu_moe_maps_args &all, ring r) {
    typedef plan<NMAX, EIGHT> p;
    const gpu_moe_args &a = all.m;
    int thread = threadIdx.x, columns = (int)(a.inter / 128), row_tiles = (int)((a.hidden + 255) / 256),
        tiles = *a.n_tiles * row_tiles;
    for (int tile = blockIdx.x, turn = 0, coming = 0; tile < tiles;
         tile = next_tile<plan<NMAX, EIGHT>>(r, turn++, coming)) {
        if (thread == 0) coming = atomicAdd(a.work_counter, 1);
        int4 t = a.tiles[tile / row_tiles];
        int expert = t.x;
        t.x = tile % row_tiles;
        gpu_u32 bytes = (gpu_u32)(t.z + 7) / 8 * 1024;
        const int first = (expert * 3 + 2) * (int)a.hidden + t.x * ROWS;
        const gpu_i64 block =
            min64(t.x * 2 + thread / 2 % 2, a.hidden / 128 - 1); /* rows past the end are multiplied and thrown away */
        const float *scale = (const float *)a.experts[3 * expert + 2].scale + block * columns;
#pragma unroll 1
        for (int c = 0; c < columns; c++) {
            producer_acquire(r.at);
            gpu_u64 *full = pipeline_full(r.at);
            unsigned char *stage = ring_stage<plan<NMAX, EIGHT>>(r);
            if (thread == 0) {
                if (c == 0) *ring_tile<plan<NMAX, EIGHT>>(r) = t;
                mbarrier_expect(full, 4 * EIGHT_BOX + 2 * bytes);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    tma_load(stage + p::TOKENS + i * EIGHT_BOX, &all.out, 0, first + i * 64, c, full);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    tma_bulk(stage + i * (NMAX * 128), a.h + ((2 * c + i) * a.h_rows + t.w) * 64, bytes, full);
            }
            if (thread < 4) cp_async_bytes<4>(r.memory + p::SCALES + r.at.stage * 16 + thread * 4, scale + c);
            mbarrier_arrive_cp_async(full);
            ring_next<plan<NMAX, EIGHT>>(r);
        }
    }
    ring_end<plan<NMAX, EIGHT>>(r, true);
}

template <int NMAX>
static __device__ __forceinline__ void up_eight(const gpu_moe_maps_args &all, unsigned char *memory) {
    enum { F = EIGHT };
    const gpu_moe_args &a = all.m;
    ring r = ring_open<plan<NMAX, F>>(memory, 0);
    ring_init<plan<NMAX, F>>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<56>();
        up_eight_produce<NMAX>(all, r);
    } else {
        setmaxnreg_inc<224>();
        consume_tiles<plan<NMAX, F>>(r, typename tile_widths<NMAX>::type(), [&](auto n, const int4 &t) {
            grouped_up_tile<NMAX, decltype(n)::tokens, F>(a, r, t);
        });
    }
}

template <int NMAX>
static __device__ __forceinline__ void down_eight(const gpu_moe_maps_args &all, unsigned char *memory) {
    enum { F = EIGHT };
    const gpu_moe_args &a = all.m;
    ring r = ring_open<plan<NMAX, F>>(memory, 0);
    ring_init<plan<NMAX, F>>(r, 128 + 1);
    if (threadIdx.x < 128) {
        setmaxnreg_dec<56>();
        down_eight_produce<NMAX>(all, r);
    } else {
        setmaxnreg_inc<224>();
        consume_tiles<plan<NMAX, F>>(r, typename tile_widths<NMAX>::type(), [&](auto n, const int4 &t) {
            grouped_down_tile<NMAX, decltype(n)::tokens, F>(a, r, t);
        });
    }
}

#define EIGHT_KERNELS(NMAX, up_name, down_name)                                                                        \
    KERNEL_OF(up_name, gpu_moe_maps_args, GPU_GROUPED_THREADS, 1) {                                                    \
        SHARED_TILES(memory);                                                                                          \
        up_eight<NMAX>(a, memory);                                                                                     \
    }                                                                                                                  \
    KERNEL_OF(down_name, gpu_moe_maps_args, GPU_GROUPED_THREADS, 1) {                                                  \
        SHARED_TILES(memory);                                                                                          \
        if (a.m.rescale_pass && !y_needs_rescale(*a.m.y_amax)) return;                                                 \
        down_eight<NMAX>(a, memory);                                                                                   \
    }
EIGHT_KERNELS(64, grouped_fp8_up_64, grouped_fp8_down_64)
EIGHT_KERNELS(128, grouped_fp8_up_128, grouped_fp8_down_128)
