/* kernels/gpu/mla/decode_wgmma.cu: absorbed attention of up to 64 heads a block, by warpgroups.
 *
 * out[i, h, :] = softmax_j(scale * q[i, h] . kv_j) kv_j[0, 512) over the kv_len[i] first tokens of row i; KV rows of
 * 512 + 64 values in bf16. Bytes: every row of the cache once for 64 heads, 1152 a token and layer. At 64 heads a
 * token costs 139 kflop, 121 flop a byte: at 4.35 TB/s 526 TFLOP/s, so wgmma only, and a page must serve as keys and
 * as values from one copy in shared memory: 9 blocks of 64 columns, 128-byte swizzle, read K-major for the scores
 * and N-major for the sums.
 *
 * A thread of the first warpgroup has half pages of 32 tokens fetched by the copy engine, which puts them into
 * wgmma's order, four in shared memory. Two warpgroups multiply, in step. Of a page of 64 tokens, group w
 *   scores  [64 heads, 32 tokens]: tokens 32 w.. ; both groups' maxima meet in shared memory;
 *   weights [64 heads, 64 tokens] in bf16, half from each group, in shared memory;
 *   sums    [64 heads, 256 latents]: latents 256 w.. of all 64 tokens, 128 registers a thread.
 * Softmax is float32 with a running maximum, base 2; the weights are rounded to bf16. The latents of tokens past
 * kv_len become zeros. Fewer than 64 heads leave rows of the products empty. Shared memory: query 72 KiB, two pages
 * 144, weights 8. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/mla/split_kv.cuh"

enum {
    HEADS = 64,
    BLOCKS = KV_WIDTH / 64,
    HALF = 32,
    STAGES = 4 /* of half a page */,
    Q_BLOCK = HEADS * 128 /* bytes of 64 columns */,
    KV_BLOCK = HALF * 128,
    HALF_BYTES = BLOCKS * KV_BLOCK,
    P_BYTES = HEADS * 128,
    MULTIPLY = 256 /* threads */
};

typedef struct {
    gpu_u8 *q, *kv, *p;
    float *tops, *sums; /* [2 in turn][group][HEADS], [group][HEADS] */
    gpu_u64 *full, *empty;
    cut_row *cuts; /* [2] */
} decode_wgmma_memory;

/* One thread: the block's half pages in turn, each in one copy. */
static __device__ inline void decode_wgmma_fetch(const gpu_decode_args &a, const decode_wgmma_memory &m) {
    bool waited = false;
    int k = 0;
    decode_walk w = walk_begin(a);
    if (threadIdx.x) return;
    while (walk_next(a, w)) {
        const int *pages = pages_table(a, w.row);
        int page = pages[w.first];
        for (int t = w.first; t < w.last; t++) {
            int next = t + 1 < w.last ? pages[t + 1] : 0; /* on its way while this thread waits */
            if (!waited && page_is_new(w.pages, t)) pdl_wait(), waited = true;
            for (int half = 0; half < 2; half++, k++) {
                pipeline at = pipeline_at(m.full, m.empty, STAGES, k);
                producer_acquire(at);
                mbarrier_expect(pipeline_full(at), HALF_BYTES);
                tma_load(m.kv + at.stage * HALF_BYTES, &a.kv_map, 0, page * GPU_PAGE + half * HALF, 0,
                         pipeline_full(at));
            }
            page = next;
        }
    }
}

/* The group's latents of tokens [rows, 64) of a page become zeros: a weight of zero must not meet a NaN. */
static __device__ inline void decode_wgmma_blank(gpu_u8 *page, int rows, int group) {
    for (int c = threadIdx.x % 128; c < (GPU_PAGE - rows) * 32; c += 128) {
        int row = rows + c / 32;
        *(uint4 *)(page + row / HALF * HALF_BYTES + (group * 4 + c / 8 % 4) * KV_BLOCK + row % HALF * 128 +
                   c % 8 * 16) = {0, 0, 0, 0};
    }
    fence_async();
}

static __device__ inline void decode_wgmma_query(const gpu_decode_args &a, const decode_wgmma_memory &m, gpu_i64 row,
                                                 gpu_i64 head0) {
    for (int c = threadIdx.x - 128; c < HEADS * BLOCKS * 8; c += MULTIPLY) {
        int h = c / (BLOCKS * 8), piece = c % (BLOCKS * 8);
        cp_async16_or_zero(m.q + piece / 8 * Q_BLOCK + swizzled(h, piece % 8),
                           a.q + (row * a.heads + head0 + h) * KV_WIDTH + piece * 8, head0 + h < a.heads);
    }
    cp_async_commit();
    cp_async_wait<0>();
    fence_async();
    named_barrier_sync(1, MULTIPLY);
}

/* Group w's sums of a row, finished or as a part. best, sum: of heads g and g + 8 of the warp. */
static __device__ inline void decode_wgmma_store(const gpu_decode_args &a, const decode_walk &w, const float o[128],
                                                 const float best[2], const float sum[2], gpu_i64 head0, int group) {
    int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t2 = threadIdx.x % 4 * 2;
    bool whole = walk_whole(w);
    gpu_i64 slot = walk_slot(a, w);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        gpu_i64 h = head0 + warp * 16 + g + r * 8;
        if (h >= a.heads) continue;
        gpu_bf16 *out = a.out + ((gpu_i64)w.row * a.heads + h) * KV_LATENT + group * 256 + t2;
        float *part = part_sums(a, slot, h) + group * 256 + t2, *state = part_state(a, slot, h);
        if (whole && group == 0 && t2 == 0) lse_store(a, w.row, h, best[r], sum[r]);
        if (!whole && group == 0 && t2 == 0) state[0] = best[r], state[1] = sum[r];
#pragma unroll
        for (int b = 0; b < 32; b++) {
            float x = o[b * 4 + r * 2], y = o[b * 4 + r * 2 + 1];
            if (whole)
                *(gpu_u32 *)(out + b * 8) = pair_bf16(x / sum[r], y / sum[r]);
            else
                *(float2 *)(part + b * 8) = {x, y};
        }
    }
}

static __device__ inline void decode_wgmma_compute(const gpu_decode_args &a, const decode_wgmma_memory &m, int group) {
    int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t2 = lane % 4 * 2, k = 0;
    gpu_i64 head0 = (gpu_i64)blockIdx.y * HEADS;
    gpu_u64 q = wgmma_desc(m.q), keys = wgmma_desc(m.kv + group * HALF_BYTES), weights = wgmma_desc(m.p),
            values = wgmma_desc_t(m.kv + group * (BLOCKS - 1) / 2 * KV_BLOCK, KV_BLOCK, 1024);
    decode_walk w = walk_begin(a);
    int cuts = 0;
    pdl_wait();
    lse_of_none(a, head0, min64(a.heads - head0, HEADS), threadIdx.x - 128);
    while (walk_next(a, w)) {
        float o[128], s[16], best[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = 0;
        decode_wgmma_query(a, m, w.row, head0);
        for (int t = w.first; t < w.last; t++, k++) {
            int stage = k % 2 * 2; /* its first half page */
            auto half_at = [&](int half) { return pipeline{m.full, m.empty, stage + half, (gpu_u32)(k / 2 & 1)}; };
            gpu_u64 page = (gpu_u64)(k % 2 * (2 * HALF_BYTES >> 4));
            consumer_wait(half_at(group));
            wgmma_begin();
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    wgmma_ss<HALF>(s, q + b * (Q_BLOCK >> 4) + 2 * i, keys + page + b * (KV_BLOCK >> 4) + 2 * i,
                                   b + i > 0);
            wgmma_commit();
            wgmma_wait<0>();
            int left = w.len - t * GPU_PAGE - group * HALF - t2; /* tokens from the lane's first on */
            if (left - a.group < HALF) {
                int seen[2] = {left - unseen(a, head0 + warp * 16 + g), left - unseen(a, head0 + warp * 16 + g + 8)};
#pragma unroll
                for (int i = 0; i < 16; i++)
                    if (i / 4 * 8 + i % 2 >= seen[i / 2 % 2]) s[i] = -INFINITY;
            }
            float *tops = m.tops + k % 2 * (2 * HEADS), top[2], shrink[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                top[r] = -INFINITY;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    top[r] = fmaxf(
                        top[r], s[i / 2 * 4 + r * 2 + i % 2]); /* passes a NaN over; its weight is NaN all the same */
                top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
                top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
                if (t2 == 0) tops[group * HEADS + warp * 16 + g + r * 8] = top[r];
            }
            named_barrier_sync(
                1, MULTIPLY); /* both maxima are there; both groups are done with the weights of the page before */
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int h = warp * 16 + g + r * 8;
                float all = fmaxf(best[r], fmaxf(top[r], tops[(group ^ 1) * HEADS + h]) * a.scale2);
                const float from = seen_best(all);
                shrink[r] = power2(best[r] - from);
                best[r] = all;
                sum[r] *= shrink[r];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float x = power2(fmaf(s[i * 4 + r * 2], a.scale2, -from)),
                          y = power2(fmaf(s[i * 4 + r * 2 + 1], a.scale2, -from));
                    sum[r] += x + y;
                    *(gpu_u32 *)(m.p + swizzled((gpu_u32)h, (gpu_u32)(group * 4 + i)) + t2 * 2) = pair_bf16(x, y);
                }
            }
            fence_async();
            if (__ballot_sync(~0u, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
                for (int i = 0; i < 128; i++) o[i] *= shrink[i / 2 % 2];
            }
            consumer_wait(half_at(group ^ 1));
            if (w.len - t * GPU_PAGE < GPU_PAGE)
                decode_wgmma_blank(m.kv + stage * HALF_BYTES, w.len - t * GPU_PAGE, group);
            named_barrier_sync(2, MULTIPLY); /* the weights are there */
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                wgmma_ss_t<256>(o, weights + 2 * i, values + page + i / 2 * (HALF_BYTES >> 4) + i % 2 * (16 * 128 >> 4),
                                1);
                if (i % 2) wgmma_commit();
            }
            wgmma_wait<1>(); /* each half page can be fetched anew as soon as it is used up */
            if (lane == 0) consumer_release(half_at(0));
            wgmma_wait<0>();
            if (lane == 0) consumer_release(half_at(1));
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int h = warp * 16 + g + r * 8;
            sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
            sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
            if (t2 == 0) m.sums[group * HEADS + h] = sum[r];
        }
        named_barrier_sync(2, MULTIPLY);
#pragma unroll
        for (int r = 0; r < 2; r++)
            sum[r] = m.sums[warp * 16 + g + r * 8] + m.sums[HEADS + warp * 16 + g + r * 8]; /* the groups in order */
        decode_wgmma_store(a, w, o, best, sum, head0, group);
        if (!walk_whole(w) && a.meetings) {
            cut_row c = cut_leave(a, w, threadIdx.x - 128);
            if (threadIdx.x == 128) m.cuts[cuts] = c;
            cuts++;
        }
    }
    named_barrier_sync(1, MULTIPLY);
    for (int i = 0; i < cuts; i++)
        cut_join<16>(a, m.cuts[i], (int)head0, (int)min64(a.heads - head0, HEADS), m.kv, threadIdx.x - 128);
}

/* Grid: a.blocks pieces, groups of 64 heads. Threads: a warpgroup that fetches, two that multiply. */
static __device__ inline void decode_wgmma_heads(const gpu_decode_args &a) {
    SHARED_TILES(memory);
    decode_wgmma_memory m;
    m.q = memory, m.kv = m.q + BLOCKS * Q_BLOCK, m.p = m.kv + STAGES * HALF_BYTES, m.tops = (float *)(m.p + P_BYTES),
    m.sums = m.tops + 4 * HEADS;
    m.full = (gpu_u64 *)(m.sums + 2 * HEADS), m.empty = m.full + STAGES, m.cuts = (cut_row *)(m.empty + STAGES);
    if (threadIdx.x == 0) {
        pipeline_init(pipeline_begin(m.full, m.empty), STAGES, 1, MULTIPLY / 32);
        mbarrier_fence_init();
    }
    __syncthreads();
    int which = threadIdx.x / 128;
    if (which == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x < 32) decode_wgmma_fetch(a, m);
    } else {
        setmaxnreg_inc<232>();
        decode_wgmma_compute(a, m, which - 1);
    }
}
KERNEL_PDL(mla_decode_wgmma, gpu_decode_args, GPU_DECODE_WGMMA_THREADS, 1) { decode_wgmma_heads(a); }
