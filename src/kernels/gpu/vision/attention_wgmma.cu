/* kernels/gpu/vision/attention_wgmma.cu: attention of the vision tower by warpgroups, heads of up to 72 columns: every
 * row of an item sees all rows of the item.
 *
 * Work: 4 dim flop a pair of rows and head, 1.3 TFLOP for 16,900 rows of 16 heads of 72. Bytes: queries, keys, values
 * and results once, 0.16 GB, and a head's keys and values (4.9 MB) once a block from the second-level cache: the blocks
 * that run at once are of one head or two.
 *
 * A block has 192 rows of one item and head. Three warpgroups multiply 64 rows each (wgmma), a fourth fetches tiles of
 * 128 keys and values, four stages, by cp.async: what lies behind the item's end becomes zeros and is not read. Of a
 * stage, keys and values have a block of 64 columns each, in the 128-byte swizzle; the last 8 columns of both share a
 * third block, so that nothing is fetched that is not used: of its 64 columns values have the first 8, which for
 * wgmma follow the other 64, and keys have 16 to 23, with zeros to 31 that are written once: the fifth step of 16
 * columns. The queries' last columns share a block in the same way.
 *
 * A group's scores of one tile and its sums of the tile before are queued together; it computes weights while its sums
 * are still formed and the other groups multiply. The groups queue their products in turn, so that they do not all
 * compute weights at once (as FlashAttention-3 does, Shah et al. 2024, arXiv:2407.08608). Softmax is float32 with a
 * running maximum, base 2; weights are rounded to bf16 for the second product.
 *
 * Tiles lie at multiples of 128 rows of the item, and a row's sums go through them in order: its bits depend on its
 * item alone. Rows behind the item's end weigh nothing. A NaN among the scores is passed over by the maximum, but its
 * weight is NaN. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/softmax.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/rows/rows.cuh"
#include "kernels/gpu/vision/tiles.cuh"

enum {
    GROUPS = 3,
    ROWS = 64 /* of a group */,
    KEYS = 128,
    COLUMNS = 72,
    STAGES = 4,
    LINE = 128 /* bytes: 64 columns of a row */,
    Q_BLOCK = ROWS * LINE,
    Q_BYTES = (GROUPS + 1) * Q_BLOCK /* the last: everyone's last columns */,
    BLOCK = KEYS * LINE,
    STAGE = 3 * BLOCK /* keys, values, the last columns of both */,
    KEY_TAIL = 2 /* 16-byte piece of a line of the third block */
};

typedef struct {
    gpu_u8 *q, *stages;
    gpu_u64 *full, *empty; /* [STAGES] */
} tower_memory;
static_assert(Q_BYTES + STAGES * STAGE + 2 * STAGES * 8 == (int)GPU_VISION_SHARED_WGMMA, "params.h");
static_assert(GROUPS * ROWS == (int)GPU_VISION_QUERIES_WGMMA, "params.h");
static_assert((GROUPS + 1) * 128 == (int)GPU_VISION_THREADS_WGMMA, "params.h");

/* Where queries, keys or values of the block's head lie: `dim` columns of row i at `at + i * stride`. */
typedef struct {
    const gpu_bf16 *at;
    gpu_i64 stride;
    int dim;
} tower_rows;

/* A thread of a warpgroup that fetches has one piece of the first 64 columns of every 16th row, and the last 8 columns
 * of one row. `there`: rows that are there, from the first of the tile on; what is not becomes zeros. */
static __device__ inline void tower_fetch_queries(gpu_u8 *to, gpu_u8 *tails, const tower_rows &r, int group,
                                                  int there) {
    const int thread = threadIdx.x % 128, row = thread / 8, c = thread % 8 * PIECE;
    const gpu_bf16 *at = r.at + row * r.stride + c;
    to += swizzled(row, thread % 8);
#pragma unroll
    for (int i = 0; i < ROWS; i += 16, at += 16 * r.stride)
        cp_async16_or_zero(to + i * LINE, at, row + i < there && c < r.dim);
    if (thread < ROWS)
        cp_async16_or_zero(tails + swizzled(thread, group * 2), r.at + thread * r.stride + 64,
                           thread < there && r.dim > 64);
}
/* Of a tile of keys, and of values, which lie `width` columns behind. */
static __device__ inline void tower_fetch_tile(gpu_u8 *to, const tower_rows &keys, gpu_i64 width, int from, int there) {
    const int thread = threadIdx.x % 128, row = thread / 8, c = thread % 8 * PIECE;
    const gpu_bf16 *at = keys.at + (gpu_i64)(from + thread) * keys.stride + 64;
    const bool tail = thread < there && keys.dim > 64;
    cp_async16_or_zero(to + 2 * BLOCK + swizzled(thread, KEY_TAIL), at, tail);
    cp_async16_or_zero(to + 2 * BLOCK + swizzled(thread, 0), at + width, tail);
    at = keys.at + (gpu_i64)(from + row) * keys.stride + c;
    to += swizzled(row, thread % 8);
    there = c < keys.dim ? there - row : 0;
#pragma unroll 2 /* all eight would need more registers than this warpgroup keeps */
    for (int i = 0; i < KEYS / 16; i++, at += 16 * keys.stride, to += 16 * LINE, there -= 16) {
        cp_async16_or_zero(to, at, there > 0);
        cp_async16_or_zero(to + BLOCK, at + width, there > 0);
    }
}

/* Zeros behind the last columns of queries and keys. All threads, once. */
static __device__ inline void tower_clear(const tower_memory &m) {
    const int thread = threadIdx.x, row = thread % 128;
    static_assert(STAGES * KEYS == (GROUPS + 1) * 128, "a thread a row");
    *(uint4 *)(m.stages + thread / 128 * STAGE + 2 * BLOCK + swizzled(row, KEY_TAIL + 1)) = {0, 0, 0, 0};
    if (thread < GROUPS * ROWS)
        *(uint4 *)(m.q + GROUPS * Q_BLOCK + swizzled(thread % ROWS, thread / ROWS * 2 + 1)) = {0, 0, 0, 0};
    fence_async();
}

static __device__ inline void tower_fetch(const tower_memory &m, const tower_rows &keys, gpu_i64 width, int count) {
    pipeline p = pipeline_begin(m.full, m.empty);
#pragma unroll 1
    for (int from = 0; from < count; from += KEYS, pipeline_next(p, STAGES)) {
        producer_acquire(p);
        tower_fetch_tile(m.stages + p.stage * STAGE, keys, width, from, count - from);
        mbarrier_arrive_cp_async(pipeline_full(p));
    }
    cp_async_commit();
    cp_async_wait<0>();
}

/* Until a stage is full, and wgmma sees what cp.async brought. */
static __device__ inline void tower_wait(const pipeline &p) {
    consumer_wait(p);
    fence_async();
}

/* s = q k^T */
static __device__ inline void tower_scores(float s[KEYS / 2], gpu_u64 q, gpu_u64 q_tail, gpu_u64 keys) {
#pragma unroll
    for (int i = 0; i < 4; i++) wgmma_ss<KEYS>(s, q + 2 * i, keys + 2 * i, i > 0);
    wgmma_ss<KEYS>(s, q_tail, keys + ((2 * BLOCK >> 4) + KEY_TAIL), 1);
    wgmma_commit();
}

/* o += p v */
static __device__ inline void tower_values(float o[COLUMNS / 2], const gpu_u32 p[KEYS / 4], gpu_u64 values) {
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) wgmma_ra_t<COLUMNS>(o, p + 4 * i, values + i * (16 * LINE >> 4), 1);
    wgmma_commit();
}

static __device__ inline void tower_pack(gpu_u32 p[KEYS / 4], const float s[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) p[i] = pair_bf16(s[2 * i], s[2 * i + 1]);
}

/* The groups' turns to queue products: barrier 4 + g is group g's turn. A group that is alone has none. */
static __device__ inline void turn_wait(int group, int groups) {
    if (groups > 1) named_barrier_sync(4 + group, 256);
}
static __device__ inline void turn_pass(int group, int groups) {
    if (groups > 1) named_barrier_arrive(4 + (group + 1 == groups ? 0 : group + 1), 256);
}

/* The sums, divided, of the group's rows from `skip` on, before `left`. */
static __device__ inline void tower_store(const float o[COLUMNS / 2], const softmax_rows &st, gpu_bf16 *out,
                                          gpu_i64 width, gpu_i64 skip, gpu_i64 left, int dim) {
    const int thread = thread_anew() % 128, c = thread % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float scale = 1.0f / softmax_sum(st, r);
        const int row = thread / 32 * 16 + thread % 32 / 4 + r * 8;
        if (row < skip || row >= left) continue;
        gpu_bf16 *to = out + row * width + c;
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
            if (j * 8 < dim)
                *(gpu_u32 *)(to + j * 8) = pair_bf16(o[j * 4 + r * 2] * scale, o[j * 4 + r * 2 + 1] * scale);
    }
}

/* A group's rows against all keys. queries: from the group's first row on, of which `there` are there; count: the
 * item's rows. */
static __device__ __forceinline__ void tower_attend(const tower_memory &m, const tower_rows &queries, int there,
                                                    int count, float scale2, int group, int groups,
                                                    float o[COLUMNS / 2], softmax_rows &st) {
    const int lane = threadIdx.x % 32, tiles = (count + KEYS - 1) / KEYS;
    gpu_u8 *mine = m.q + group * Q_BLOCK, *tails = m.q + GROUPS * Q_BLOCK;
    tower_fetch_queries(mine, tails, queries, group, there);
    cp_async_commit();
    cp_async_wait<0>();
    fence_async();
    named_barrier_sync(1 + group, 128);

    const gpu_u64 q = wgmma_desc(mine), q_tail = wgmma_desc(tails) + group * 2, keys = wgmma_desc(m.stages),
                  values = wgmma_desc_t(m.stages + BLOCK, BLOCK, 8 * LINE);
    float s[KEYS / 2], shrink[2];
    gpu_u32 p[KEYS / 4];
    pipeline now = pipeline_begin(m.full, m.empty), next = now; /* tiles j - 1 and j */
    pipeline_next(next, STAGES);
    st = softmax_begin();
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) o[i] = 0;
    if (group == groups - 1) turn_pass(group, groups); /* group 0 begins */
    tower_wait(now);
    wgmma_begin();
    tower_scores(s, q, q_tail, keys);
    wgmma_wait<0>();
    wgmma_fence_regs<KEYS / 2>(s);
    int left = count - lane % 4 * 2; /* keys from the lane's first column of the tile on */
    softmax_mask<KEYS>(s, left);
    softmax_weights<KEYS>(s, st, shrink, scale2);
    tower_pack(p, s);
    if (tiles > 1) tower_wait(next);
#pragma unroll 1
    for (int j = 1; j < tiles; j++) { /* scores of tile j, sums of tile j - 1 */
        turn_wait(group, groups);
        wgmma_begin();
        tower_scores(s, q, q_tail, keys + next.stage * (STAGE >> 4));
        tower_values(o, p, values + now.stage * (STAGE >> 4));
        turn_pass(group, groups);
        wgmma_wait<1>();
        wgmma_fence_regs<KEYS / 2>(s);
        left -= KEYS;
        softmax_mask<KEYS>(s, left);
        softmax_weights<KEYS>(s, st, shrink, scale2);
        /* The tile behind, here and not where its scores are queued: ptxas moves the wait for the sums ahead of all
         * that the weights take, but not across this loop. */
        pipeline ahead = next;
        pipeline_next(ahead, STAGES);
        if (j + 1 < tiles) tower_wait(ahead);
        wgmma_wait<0>();
        wgmma_fence_regs<COLUMNS / 2>(o);
        if (lane == 0) consumer_release(now);
        softmax_shrink<COLUMNS / 2>(o, shrink[0], shrink[1]);
        tower_pack(p, s);
        now = next, next = ahead;
    }
    wgmma_begin();
    tower_values(o, p, values + now.stage * (STAGE >> 4));
    wgmma_wait<0>();
    wgmma_fence_regs<COLUMNS / 2>(o);
    if (group == 0) turn_wait(group, groups); /* takes the last one's turn, so that the barriers end even */
}

/* Grid: tiles of all items, or a few more; heads. Threads: a warpgroup that fetches, three that multiply, of which
 * those without rows end at once. */
KERNEL_OF(vision_attention_wgmma, gpu_vision_attention_args, GPU_VISION_THREADS_WGMMA, 1) {
    SHARED_TILES(memory);
    tower_memory m;
    m.q = memory, m.stages = memory + Q_BYTES, m.full = (gpu_u64 *)(m.stages + STAGES * STAGE);
    m.empty = m.full + STAGES;
    const vision_tile tile = tile_of(a.items, a.n_items, (int)blockIdx.x, GROUPS * ROWS);
    const gpu_i64 first = tile.first + tile.from;
    if (tile.count == 0 || first >= a.end || first + GROUPS * ROWS <= a.begin) return;
    const int rows = (int)min64(min64(tile.count - tile.from, a.end - first), GROUPS * ROWS),
              groups = (rows + ROWS - 1) / ROWS;
    if (threadIdx.x == 0) {
        pipeline_init(pipeline_begin(m.full, m.empty), STAGES, 128, groups * 4);
        mbarrier_fence_init();
    }
    tower_clear(m);
    __syncthreads();
    const int which = __shfl_sync(~0u, (int)threadIdx.x / 128, 0), group = which - 1;
    const gpu_i64 width = a.heads * a.dim, stride = 3 * width;
    const gpu_bf16 *item = a.qkv + tile.first * stride + blockIdx.y * a.dim;
    if (which == 0) {
        setmaxnreg_dec<32>();
        tower_fetch(m, {item + width, stride, (int)a.dim}, width, tile.count);
    } else {
        setmaxnreg_inc<160>();
        if (group >= groups) return;
        float o[COLUMNS / 2];
        softmax_rows st;
        const int own = group * ROWS;
        tower_attend(m, {item + (tile.from + own) * stride, stride, (int)a.dim}, rows - own, tile.count, a.scale2,
                     group, groups, o, st);
        tower_store(o, st, a.out + (first + own) * width + blockIdx.y * a.dim, width, a.begin - first - own, rows - own,
                    (int)a.dim);
    }
}
