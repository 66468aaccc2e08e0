/* kernels/gpu/mla/prefill.cu: expanded attention of many rows on the tensor cores, head widths 128 + 64 and 128.
 *
 * out[i, h, :] = softmax_{j <= pos0 + i}(scale * (q_nope . k_nope_jh + q_rope . k_rope_j)) v_jh, keys and values of
 * a span of the cache expanded to [tokens, heads, 128 + 128] before, the rope part beside them [tokens, 64]. Work:
 * 640 flop a pair of row and key and head: 1.37 TFLOP for 8192 rows of 64 heads. Bytes: a block reads 640 of a key
 * and head, from the second-level cache: four heads are under way at a time.
 *
 * A block has 128 rows of one head. Two warpgroups multiply 64 rows each (wgmma), a warp of the third fetches tiles
 * of 128 keys, one of values, two stages each, by the copy engine, which also puts them into wgmma's order. The sums
 * of one tile and the scores of the next are queued together; while one group computes weights the other multiplies
 * (as FlashAttention-3 does, Shah et al. 2024, arXiv:2407.08608). Softmax is float32 with a running maximum, base 2;
 * the weights are rounded to bf16 for the second product. Tiles lie at absolute multiples of 128, and a tile that a
 * row does not see changes nothing, so the order of a row's sums depends on its position alone.
 *
 * A token with a NaN or infinity in the cache has zeros for its latents and NaN for its rope part (mla_gather_kv): the
 * scores of the rows that see it are NaN, and the rows before it, whose weight for it is zero, do not meet a NaN in
 * its values. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/mla/split_kv.cuh"
#include "kernels/gpu/rows/rows.cuh"

enum {
    ROWS = 64 /* of a warpgroup */,
    KEYS = 128,
    GROUP_HEADS = 4,
    NOPE = 128,
    ROPE = 64,
    VALUE = 128,
    EXPANDED = NOPE + VALUE,
    Q_BYTES = ROWS * (NOPE + ROPE) * 2,
    K_BLOCK = KEYS * 128 /* bytes of 64 columns */,
    K_BYTES = 3 * K_BLOCK,
    V_BYTES = 2 * K_BLOCK
};

typedef struct {
    gpu_u8 *q, *k, *v;
    gpu_u64 *full_k, *full_v, *empty_k, *empty_v; /* [2] each */
} flash_memory;
static_assert(2 * (Q_BYTES + K_BYTES + V_BYTES) + 8 * 8 == (int)GPU_FLASH_SHARED, "params.h");

/* 8 values of the cache in bf16. */
static __device__ inline uint4 kv_piece(const void *kv, int type, gpu_i64 at) {
    if (type == GPU_BF16) return *(const uint4 *)((const gpu_bf16 *)kv + at);
    float v[PIECE];
    uint2 u = *(const uint2 *)((const gpu_u8 *)kv + at);
#pragma unroll
    for (int k = 0; k < PIECE; k++) v[k] = fp8_f32((gpu_u8)((k < 4 ? u.x : u.y) >> 8 * (k % 4)));
    return pack(v);
}

/* Rows of the cache as kv_b takes them. One warp a token. */
KERNEL(mla_gather_kv, gpu_gather_kv_args) {
    enum { MOST = GPU_WARP_KV / 32 / PIECE };
    gpu_i64 j = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32, at = a.from + j, width = a.latent + a.rope;
    if (j >= a.tokens) return;
    gpu_i64 base = ((gpu_i64)a.pages[at / GPU_PAGE] * GPU_PAGE + at % GPU_PAGE) * width;
    int lane = threadIdx.x % 32;
    bool bad = false;
    uint4 u[MOST];
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        int c = (p * 32 + lane) * PIECE;
        u[p] = {0, 0, 0, 0};
        if (c < width) u[p] = kv_piece(a.kv, a.kv_type, base + c);
        bad |= has_bad(u[p]);
    }
    bad = __ballot_sync(~0u, bad) != 0;
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        int c = (p * 32 + lane) * PIECE;
        if (c >= width) break;
        if (bad) u[p].x = u[p].y = u[p].z = u[p].w = c < a.latent ? 0 : 0x7fc07fc0;
        *(uint4 *)(c < a.latent ? a.latent_rows + j * a.latent + c : a.rope_rows + j * a.rope + c - a.latent) = u[p];
    }
}

/* prefill_few.c. */
KERNEL(prefill_rows, gpu_prefill_rows_args) {
    const gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    if (i < a.n) a.kv_len[i] = (int)(a.first + i);
    if (i * 16 < a.pad_bytes) ((uint4 *)a.pad_q)[i] = {0, 0, 0, 0};
}

/* The thread's number, looked up anew: what is made from it need not stay in registers all the time. */
static __device__ inline int thread_again() {
#ifdef EMULATED
    return (int)threadIdx.x;
#else
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
#endif
}

/* Of tile j. */
static __device__ inline pipeline flash_keys_at(const flash_memory &m, int j) {
    return pipeline_at(m.full_k, m.empty_k, 2, j);
}
static __device__ inline pipeline flash_values_at(const flash_memory &m, int j) {
    return pipeline_at(m.full_v, m.empty_v, 2, j);
}

/* One thread: keys or values of all tiles. */
static __device__ inline void flash_fetch(const gpu_prefill_args &a, const flash_memory &m, int head, int tiles,
                                          bool values) {
    for (int j = 0; j < tiles; j++) {
        pipeline at = values ? flash_values_at(m, j) : flash_keys_at(m, j);
        gpu_u64 *full = pipeline_full(at);
        gpu_u8 *to = values ? m.v + at.stage * V_BYTES : m.k + at.stage * K_BYTES;
        producer_acquire(at);
        mbarrier_expect(full, values ? V_BYTES : K_BYTES);
        tma_load(to, &a.expanded_map, 0, j * KEYS, head * (EXPANDED / 64) + values * (NOPE / 64), full);
        if (!values) tma_load(to + 2 * K_BLOCK, &a.rope_map, 0, j * KEYS, 0, full);
    }
}

/* Scores become weights, not yet divided. shrink: what earlier sums are to be multiplied with. `row`: position of
 * the lane's first row less that of the tile's first key. */
static __device__ inline void flash_weights(float s[64], softmax_rows &st, float shrink[2], float scale2, int row,
                                            bool masked) {
    int last = row - (int)threadIdx.x % 4 * 2; /* the last key seen, from the lane's own first column */
    if (masked)
#pragma unroll
        for (int i = 0; i < 64; i++)
            if (i / 4 * 8 + i % 2 - i / 2 % 2 * 8 > last) s[i] = -INFINITY;
    softmax_weights<KEYS>(s, st, shrink, scale2);
}

/* s = q k^T */
static __device__ inline void flash_scores(float s[64], gpu_u64 q, gpu_u64 k) {
    wgmma_begin();
#pragma unroll
    for (int block = 0; block < 3; block++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma_ss<KEYS>(s, q + block * (ROWS * 128 >> 4) + 2 * i, k + block * (K_BLOCK >> 4) + 2 * i, block + i > 0);
    wgmma_commit();
}

/* o += p v */
static __device__ inline void flash_values(float o[64], const gpu_u32 p[32], gpu_u64 v) {
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) wgmma_ra_t<VALUE>(o, p + 4 * i, v + i * (16 * 128 >> 4), 1);
    wgmma_commit();
}

static __device__ inline void flash_pack(gpu_u32 p[32], const float s[64]) {
#pragma unroll
    for (int i = 0; i < 32; i++) p[i] = pair_bf16(s[2 * i], s[2 * i + 1]);
}

static __device__ inline void flash_compute(const gpu_prefill_args &a, const flash_memory &m, int head, int first,
                                            int tiles, bool ends, int group) {
    int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t2 = lane % 4 * 2;
    gpu_u8 *mine = m.q + group * Q_BYTES;
    for (int c = thread; c < ROWS * 24; c += 128) {
        int row = c / 8 % ROWS, block = c / 8 / ROWS, piece = c % 8;
        cp_async16_or_zero(mine + block * ROWS * 128 + swizzled(row, piece),
                           a.q + ((gpu_i64)(first + row) * a.heads + head) * (NOPE + ROPE) + block * 64 + piece * 8,
                           first + row < a.n);
    }
    cp_async_commit();
    cp_async_wait<0>();
    fence_async();
    named_barrier_sync(1 + group, 128);

    int row = first + warp * 16 + g; /* and row + 8 */
    gpu_u64 q = wgmma_desc(mine), k = wgmma_desc(m.k), v = wgmma_desc_t(m.v, K_BLOCK, 1024);
    float s[64], o[64], shrink[2];
    gpu_u32 p[32];
    softmax_rows st;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool carried = !a.first && row + r * 8 < a.n;
        const float *state = a.state + ((gpu_i64)(row + r * 8) * a.heads + head) * (VALUE + 2);
        st.best[r] = carried ? state[VALUE] : -INFINITY;
        st.sum[r] = carried && t2 == 0 ? state[VALUE + 1] : 0.0f; /* one lane brings it into the sum at the end */
#pragma unroll
        for (int i = 0; i < 32; i++) o[i / 2 * 4 + r * 2 + i % 2] = carried ? state[i / 2 * 8 + t2 + i % 2] : 0.0f;
    }
    int top = (int)(a.pos0 - a.from) + first,
        position = top + row - first;             /* of the group's and the lane's first row in the span */
    if (group == 1) named_barrier_arrive(3, 256); /* group 0 begins */
    consumer_wait(flash_keys_at(m, 0));
    named_barrier_sync(3 + group, 256);
    flash_scores(s, q, k);
    named_barrier_arrive(4 - group, 256);
    wgmma_wait<0>();
    if (lane == 0) consumer_release(flash_keys_at(m, 0));
    flash_weights(s, st, shrink, a.scale2, position, KEYS - 1 > top);
    softmax_shrink<64>(o, shrink[0], shrink[1]);
    flash_pack(p, s);
    for (int j = 1; j < tiles; j++) { /* values of tile j - 1, scores of tile j */
        int stage = j % 2;
        consumer_wait(flash_values_at(m, j - 1));
        consumer_wait(flash_keys_at(m, j));
        /* the groups' products in turn: one multiplies while the other computes weights */
        named_barrier_sync(3 + group, 256);
        flash_values(o, p, v + (stage ^ 1) * (V_BYTES >> 4));
        flash_scores(s, q, k + stage * (K_BYTES >> 4));
        named_barrier_arrive(4 - group, 256);
        wgmma_wait<0>();
        if (lane == 0) consumer_release(flash_values_at(m, j - 1)), consumer_release(flash_keys_at(m, j));
        int key = j * KEYS;
        flash_weights(s, st, shrink, a.scale2, position - key, key + KEYS - 1 > top);
        softmax_shrink<64>(o, shrink[0], shrink[1]);
        flash_pack(p, s);
    }
    if (group == 0) named_barrier_sync(3, 256); /* takes the other's last turn, so that both barriers end even */
    consumer_wait(flash_values_at(m, tiles - 1));
    flash_values(o, p, v + (tiles - 1) % 2 * (V_BYTES >> 4));
    wgmma_wait<0>();
    thread = thread_again() % 128, row = first + thread / 32 * 16 + thread % 32 / 4, t2 = thread % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = st.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (row + r * 8 >= a.n) continue;
        gpu_i64 cell = (gpu_i64)(row + r * 8) * a.heads + head;
        gpu_bf16 *out = a.out + cell * VALUE + t2;
        float *state = a.state + cell * (VALUE + 2);
        if (!ends && t2 == 0) state[VALUE] = st.best[r], state[VALUE + 1] = sum;
#pragma unroll
        for (int b = 0; b < 16; b++) {
            float x = o[b * 4 + r * 2], y = o[b * 4 + r * 2 + 1];
            if (ends)
                *(gpu_u32 *)(out + b * 8) = pair_bf16(x / sum, y / sum);
            else
                state[b * 8 + t2] = x, state[b * 8 + t2 + 1] = y;
        }
    }
}

/* Grid: blocks of 128 rows of a head, those with the most keys first, GROUP_HEADS heads at a time. Threads: a
 * warpgroup that fetches, two that multiply. */
KERNEL_OF(mla_flash, gpu_prefill_args, GPU_FLASH_THREADS, 1) {
    SHARED_TILES(memory);
    flash_memory m;
    m.q = memory, m.k = m.q + 2 * Q_BYTES, m.v = m.k + 2 * K_BYTES, m.full_k = (gpu_u64 *)(m.v + 2 * V_BYTES);
    m.full_v = m.full_k + 2, m.empty_k = m.full_k + 4, m.empty_v = m.full_k + 6;
    gpu_i64 blocks = (a.n + 2 * ROWS - 1) / (2 * ROWS), group = blockIdx.x / (blocks * GROUP_HEADS) * GROUP_HEADS,
            rest = blockIdx.x - group * blocks;
    gpu_i64 heads = min64(a.heads - group, GROUP_HEADS), head = group + rest % heads,
            first = (blocks - 1 - rest / heads) * (2 * ROWS);
    gpu_i64 seen =
        a.pos0 + min64(first + 2 * ROWS, a.n) - a.from; /* keys from the span's begin that the last row sees */
    if (seen <= 0) return;
    int tiles = (int)((min64(seen, a.tokens) + KEYS - 1) / KEYS);
    if (threadIdx.x == 0) {
        pipeline_init(flash_keys_at(m, 0), 2, 1, 8);
        pipeline_init(flash_values_at(m, 0), 2, 1, 8);
        mbarrier_fence_init();
    }
    __syncthreads();
    int which = threadIdx.x / 128;
    if (which == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x % 32 == 0 && threadIdx.x < 64) flash_fetch(a, m, (int)head, tiles, threadIdx.x / 32);
    } else {
        setmaxnreg_inc<232>();
        flash_compute(a, m, (int)head, (int)first + (which - 1) * ROWS, tiles, seen <= a.tokens, which - 1);
    }
}
