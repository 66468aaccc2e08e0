/* kernels/gpu/mla/decode_wgmma_fp8.cu: absorbed attention of up to 64 heads a block over a cache in FP8.
 *
 * out[i, h, :] = softmax_j(scale * q[i, h] . kv_j) kv_j[0, 512) over the kv_len[i] first tokens of row i; KV rows of
 * 512 + 64 values. Bytes: every row of the cache once for 64 heads, 576 a token and layer; 139 kflop a token, 242
 * flop a byte: bound by the tensor cores.
 *
 * The four warps of the first warpgroup fetch: warp f half f % 2 of every other tile of 32 tokens, and expand it to
 * IEEE halves, which hold FP8 exactly, into a ring of STAGES tiles in wgmma's order. Two warpgroups multiply halves,
 * in step:
 *   scores  [64 heads, 32 tokens]: group w multiplies half of the 576 columns. Its query lies mostly in registers,
 *   which leaves
 *           shared memory the room for raw FP8. The halves of the scores meet in shared memory, each thread handing
 *           16 numbers to
 *           its like in the other group: then both have all of them;
 *   weights: both groups compute all of them, so nothing else need be exchanged; they are the registers of the next
 *   product;
 *   sums    [64 heads, 256 latents]: latents 256 w.. of all 32 tokens, 128 registers a thread.
 * The scores of a tile and the sums of the one before are queued together; weights are computed while the sums are
 * under way. Softmax is float32 with a running maximum, base 2; the weights are rounded to halves. Tokens past
 * kv_len are zeros. Fewer than 64 heads leave rows of the products empty. */
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/mla/split_kv.cuh"

enum {
    HEADS = 64,
    BLOCKS = KV_WIDTH / 64,
    TILE = 32,
    STEPS = 18 /* of 16 columns: a group's half */,
    HELD = 12 /* of them, whose query lies in registers */,
    Q_BLOCK = HEADS * 128 /* four other steps of a group; a third block has the last two of both */,
    KV_BLOCK = TILE * 128,
    TILE_BYTES = BLOCKS * KV_BLOCK,
    RAW = TILE / 2 * KV_WIDTH /* bytes of half a tile of FP8 */,
    MULTIPLY = 256 /* threads */,
    FETCHERS = 4 /* warps */,
    STAGES = 3
};
static_assert(STEPS - HELD == 6 && (int)MULTIPLY == (int)JOINERS,
              "three blocks of 64 columns hold the rest of both groups' query");

typedef struct {
    gpu_u8 *q, *kv, *raw;
    float4 *box; /* [group][4][128]: the scores that a group hands to the other */
    gpu_u64 *full, *empty, *raw_full;
    decode_walk *walks; /* of the multiplying warps: what is not needed within a row is not kept in registers */
    cut_row *cuts;      /* [2] */
} decode_wgmma_fp8_memory;

/* ---- fetching ---- */

/* Tiles in turn, over all rows of the block's piece. */
typedef struct {
    int row, first, pages,
        left;         /* the row, its first page here, all its pages, units of the piece that are left behind them */
    int i, tokens, k; /* of the row's tiles; its tokens here; of all tiles */
} tile_walk;

/* n tiles on. */
static __device__ inline void tile_step(const gpu_decode_args &a, tile_walk &t, int n) {
    t.i += n, t.k += n;
    while (t.tokens && t.i * TILE >= t.tokens) { /* the next row, from its begin */
        t.i -= (t.tokens + TILE - 1) / TILE, t.tokens = 0, t.first = 0;
        if (t.left <= 0 || ++t.row >= a.n) return;
        int len = kv_len_of(a, t.row);
        t.pages = (len + GPU_PAGE - 1) / GPU_PAGE;
        int units = units_of(a, t.pages);
        t.tokens = units <= t.left ? len : t.left * unit_pages(a, t.pages) * GPU_PAGE;
        t.left -= units;
    }
}
static __device__ inline tile_walk tile_begin(const gpu_decode_args &a, int f) {
    decode_walk w = walk_begin(a);
    tile_walk t = {};
    if (walk_next(a, w)) {
        int units = units_of(a, w.pages), upto = w.to - w.start;
        w.last = upto < units ? upto * unit_pages(a, w.pages) : w.pages;
        t = {w.row, w.first, w.pages, upto - units, 0, walk_tokens(w), 0};
    }
    tile_step(a, t, f);
    return t;
}
static __device__ inline int tile_page(const gpu_decode_args &a, const tile_walk &t) {
    return t.tokens ? pages_table(a, t.row)[t.first + t.i / 2] : 0;
}
static __device__ inline int tile_rows(const tile_walk &t) {
    return t.tokens - t.i * TILE < TILE ? t.tokens - t.i * TILE : TILE;
}

/* Rows [0, TILE / 2) of a tile; to: the first of them. */
static __device__ inline void decode_wgmma_fp8_expand(const gpu_u8 *raw, gpu_u8 *to, int rows) {
    enum { ROW_LOADS = KV_WIDTH / 16 };
    int lane = thread_anew() % 32, odd = lane / 4 % 2;
#pragma unroll 3
    for (int c = lane; c < TILE / 2 * ROW_LOADS; c += 32) {
        int r = c / ROW_LOADS, piece = c % ROW_LOADS * 2;
        uint4 u = {0, 0, 0, 0}, two[2];
        if (r < rows) u = *(const uint4 *)(raw + c * 16);
        fp8_halves(u.x, two[0].x, two[0].y), fp8_halves(u.y, two[0].z, two[0].w), fp8_halves(u.z, two[1].x, two[1].y),
            fp8_halves(u.w, two[1].z, two[1].w);
        gpu_u8 *block = to + piece / 8 * KV_BLOCK;
        /* eight lanes write pieces 0, 2, 4, 6 of two blocks: half of them the other piece first, to other banks */
        *(uint4 *)(block + swizzled(r, piece % 8 + odd)) = odd ? two[1] : two[0];
        *(uint4 *)(block + swizzled(r, piece % 8 + (odd ^ 1))) = odd ? two[0] : two[1];
    }
}

/* Warp f: half f % 2 of every other tile; two of its halves are on their way while it expands a third. */
static __device__ inline void decode_wgmma_fp8_fetch(const gpu_decode_args &a, const decode_wgmma_fp8_memory &m,
                                                     int f) {
    bool waited = false;
    tile_walk t = tile_begin(a, f / 2);
    gpu_u32 turn = 0;
    int slot = 0, left[2], k = f / 2;
    auto fetch = [&](int at) { /* of the tile that t is at; rows, or -1 at the end */
                               if (!t.tokens) return -1;
                               if (!waited && page_is_new(t.pages, t.first + t.i / 2)) pdl_wait(), waited = true;
                               int warp = thread_anew() / 32, half = warp % 2 * (TILE / 2), rows = tile_rows(t) - half;
                               rows = rows < 0 ? 0 : rows > TILE / 2 ? TILE / 2 : rows;
                               if (thread_anew() % 32 == 0) {
                                   gpu_u64 *full = &m.raw_full[warp * 2 + at];
                                   mbarrier_expect(full, (gpu_u32)rows * KV_WIDTH);
                                   if (rows)
                                       tma_bulk(m.raw + (warp * 2 + at) * RAW,
                                                (const gpu_u8 *)a.kv +
                                                    ((gpu_i64)tile_page(a, t) * GPU_PAGE + t.i % 2 * TILE + half) *
                                                        KV_WIDTH,
                                                (gpu_u32)rows * KV_WIDTH, full);
                               }
                               tile_step(a, t, FETCHERS / 2);
                               return rows;
    };
    left[0] = fetch(0), left[1] = fetch(1);
    for (; left[0] >= 0; k += FETCHERS / 2) {
        pipeline at = pipeline_at(m.full, m.empty, STAGES, k);
        int warp = thread_anew() / 32;
        mbarrier_wait(&m.raw_full[warp * 2 + slot], turn);
        producer_acquire(at);
        decode_wgmma_fp8_expand(m.raw + (warp * 2 + slot) * RAW,
                                m.kv + at.stage * TILE_BYTES + warp % 2 * (TILE / 2 * 128), left[0]);
        fence_async();
        __syncwarp();
        if (thread_anew() % 32 == 0) mbarrier_arrive(pipeline_full(at));
        left[0] = left[1], left[1] = fetch(slot);
        turn ^= (gpu_u32)slot, slot ^= 1;
    }
}

/* ---- multiplying ---- */

/* Column of step s of group w: both have whole blocks but for the middle one. */
static __device__ inline int step_column(int group, int s) {
    return s < 16 ? group * 320 + s * 16 : 256 + group * 32 + (s - 16) * 16;
}
/* Its place in a tile of keys, as a descriptor has it. */
static __device__ inline gpu_u64 step_desc(gpu_u64 keys, int group, int s) {
    return s < 16 ? keys + group * 5 * (KV_BLOCK >> 4) + s / 4 * (KV_BLOCK >> 4) + s % 4 * 2
                  : keys + 4 * (KV_BLOCK >> 4) + group * 4 + (s - 16) * 2;
}

/* Bytes from the query's begin in shared memory to piece c (8 columns) of step s, before the swizzle. */
static __device__ inline gpu_u32 rest_block(int group, int s) { return (gpu_u32)(s < HELD + 4 ? group : 2) * Q_BLOCK; }
static __device__ inline gpu_u32 rest_piece(int group, int s) {
    return (gpu_u32)(s < HELD + 4 ? s - HELD : group * 2 + s - HELD - 4) * 2;
}

/* A group's half of a row's query. */
static __device__ inline void decode_wgmma_fp8_query(const gpu_decode_args &a, gpu_u8 *shared, gpu_u32 q[HELD * 4],
                                                     gpu_i64 row, int head0, int group) {
    int thread = threadIdx.x % 128, h0 = thread / 32 * 16 + thread % 32 / 4, t2 = thread % 4 * 2;
    const gpu_bf16 *from = a.q + (row * a.heads + head0) * KV_WIDTH;
    for (int c = thread; c < HEADS * (STEPS - HELD) * 2; c += 128) {
        int h = c / ((STEPS - HELD) * 2), piece = c % ((STEPS - HELD) * 2);
        int s = HELD + piece / 2;
        gpu_u8 *to = shared + rest_block(group, s) + swizzled((gpu_u32)h, rest_piece(group, s) + piece % 2);
        const gpu_bf16 *x = from + (gpu_i64)h * KV_WIDTH + step_column(group, s) + piece % 2 * 8;
        uint4 v = {0, 0, 0, 0};
        if (head0 + h < a.heads) v = *(const uint4 *)x;
        *(uint4 *)to = {query_halves(v.x), query_halves(v.y), query_halves(v.z), query_halves(v.w)};
    }
#pragma unroll
    for (int s = 0; s < HELD; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int h = h0 + i % 2 * 8;
            q[4 * s + i] = head0 + h < a.heads
                               ? query_halves(*(const gpu_u32 *)(from + (gpu_i64)h * KV_WIDTH + step_column(group, s) +
                                                                 i / 2 * 8 + t2))
                               : 0;
        }
    fence_async();
    named_barrier_sync(4 + group, 128);
}

static __device__ inline void decode_wgmma_fp8_scores(float s[16], const gpu_u32 q[HELD * 4], gpu_u64 q_rest,
                                                      gpu_u64 keys, int group) {
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < HELD; i++) wgmma_half_ra<TILE>(s, q + 4 * i, step_desc(keys, group, i), i > 0);
#pragma unroll
    for (int i = HELD; i < STEPS; i++)
        wgmma_half_ss<TILE>(s, q_rest + (rest_block(group, i) >> 4) + rest_piece(group, i), step_desc(keys, group, i),
                            1);
    wgmma_commit();
}
static __device__ inline void decode_wgmma_fp8_sums(float o[128], const gpu_u32 p[8], gpu_u64 values) {
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < TILE / 16; i++) wgmma_half_ra_t<256>(o, p + 4 * i, values + i * (16 * 128 >> 4), 1);
    wgmma_commit();
}

/* The group's half of the scores becomes all of them, then weights. left: tokens of the row from the tile's first
 * on. */
static __device__ inline void decode_wgmma_fp8_weights(float scale2, const decode_wgmma_fp8_memory &m, float s[16],
                                                       softmax_rows &st, float shrink[2], int group, int left) {
    int thread = thread_anew() % 128;
    left -= thread % 4 * 2; /* from the lane's first on */
    float4 *mine = m.box + group * 512 + thread, *other = m.box + (group ^ 1) * 512 + thread;
    named_barrier_sync(2 + group, MULTIPLY); /* the other group has read the box */
#pragma unroll
    for (int i = 0; i < 4; i++) mine[i * 128] = {s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]};
    named_barrier_sync(1, MULTIPLY);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 v = other[i * 128];
        s[4 * i] += v.x, s[4 * i + 1] += v.y, s[4 * i + 2] += v.z, s[4 * i + 3] += v.w;
    }
    named_barrier_arrive(3 - group, MULTIPLY);
    softmax_mask<TILE>(s, left);
    softmax_weights<TILE>(s, st, shrink, scale2);
}

static __device__ inline void decode_wgmma_fp8_pack(gpu_u32 p[8], const float s[16]) {
#pragma unroll
    for (int i = 0; i < 8; i++) p[i] = pair_half(s[2 * i], s[2 * i + 1]);
}
/* Group w's sums of a row, finished or as a part. */
static __device__ inline void decode_wgmma_fp8_store(const gpu_decode_args &a, const decode_walk &w, const float o[128],
                                                     const softmax_rows &st, int head0, int group) {
    int thread = thread_anew(), warp = thread / 32 % 4, g = thread % 32 / 4, t2 = thread % 4 * 2;
    bool whole = walk_whole(w);
    gpu_i64 slot = walk_slot(a, w);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        gpu_i64 h = head0 + warp * 16 + g + r * 8;
        float sum = softmax_sum(st, r);
        if (h >= a.heads) continue;
        gpu_bf16 *out = a.out + ((gpu_i64)w.row * a.heads + h) * KV_LATENT + group * 256 + t2;
        float *part = part_sums(a, slot, h) + group * 256 + t2, *state = part_state(a, slot, h);
        if (whole && group == 0 && t2 == 0) lse_store(a, w.row, h, st.best[r], sum);
        if (!whole && group == 0 && t2 == 0) state[0] = st.best[r], state[1] = sum;
#pragma unroll
        for (int b = 0; b < 32; b++) {
            float x = o[b * 4 + r * 2], y = o[b * 4 + r * 2 + 1];
            if (whole)
                *(gpu_u32 *)(out + b * 8) = pair_bf16(x / sum, y / sum);
            else
                *(float2 *)(part + b * 8) = {x, y};
        }
    }
}

static __device__ inline void decode_wgmma_fp8_compute(const gpu_decode_args &a, const decode_wgmma_fp8_memory &m,
                                                       int group) {
    int head0 = (int)blockIdx.y * HEADS;
    pipeline at = pipeline_begin(m.full, m.empty);
    gpu_u64 q_rest = wgmma_desc(m.q), keys = wgmma_desc(m.kv),
            values = wgmma_desc_t(m.kv + group * (BLOCKS - 1) / 2 * KV_BLOCK, KV_BLOCK, 1024);
    int cuts = 0;
    {
        decode_walk w = walk_begin(a);
        if (thread_anew() % 32 == 0) m.walks[thread_anew() / 32 - 4] = w;
    }
    pdl_wait();
    lse_of_none(a, head0, min64(a.heads - head0, HEADS), threadIdx.x - 128);
    named_barrier_arrive(3 - group, MULTIPLY); /* boxes are empty */
    for (;;) {
        float o[128], s[16], shrink[2];
        gpu_u32 q[HELD * 4], p[8];
        softmax_rows st = softmax_begin();
        int left;
        {
            __syncwarp();
            decode_walk w = m.walks[thread_anew() / 32 - 4];
            if (!walk_next(a, w)) break;
            __syncwarp();
            if (thread_anew() % 32 == 0) m.walks[thread_anew() / 32 - 4] = w;
            left = walk_tokens(w);
            decode_wgmma_fp8_query(a, m.q, q, w.row, head0, group);
        }
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = 0;
        consumer_wait(at);
        decode_wgmma_fp8_scores(s, q, q_rest, keys + at.stage * (TILE_BYTES >> 4), group);
        wgmma_wait<0>();
        decode_wgmma_fp8_weights(a.scale2 * QUERY_SCALE, m, s, st, shrink, group, left);
        decode_wgmma_fp8_pack(p, s);
        for (left -= TILE; left > 0; left -= TILE) { /* sums of a tile, scores of the next */
            pipeline last = at;
            pipeline_next(at, STAGES);
            consumer_wait(at);
            decode_wgmma_fp8_scores(s, q, q_rest, keys + at.stage * (TILE_BYTES >> 4), group);
            decode_wgmma_fp8_sums(o, p, values + last.stage * (TILE_BYTES >> 4));
            wgmma_wait<1>();
            decode_wgmma_fp8_weights(a.scale2 * QUERY_SCALE, m, s, st, shrink, group, left);
            wgmma_wait<0>();
            if (thread_anew() % 32 == 0) consumer_release(last);
            softmax_shrink<128>(o, shrink[0], shrink[1]);
            decode_wgmma_fp8_pack(p, s);
        }
        decode_wgmma_fp8_sums(o, p, values + at.stage * (TILE_BYTES >> 4));
        wgmma_wait<0>();
        if (thread_anew() % 32 == 0) consumer_release(at);
        pipeline_next(at, STAGES);
        __syncwarp();
        decode_walk w = m.walks[thread_anew() / 32 - 4];
        decode_wgmma_fp8_store(a, w, o, st, head0, group);
        if (!walk_whole(w) && a.meetings) {
            cut_row c = cut_leave(a, w, threadIdx.x - 128);
            if (threadIdx.x == 128) m.cuts[cuts] = c;
            cuts++;
        }
    }
    named_barrier_sync(2 + group, MULTIPLY); /* the last word that a box is empty */
    named_barrier_sync(1, MULTIPLY);
    for (int i = 0; i < cuts; i++)
        cut_join<16>(a, m.cuts[i], head0, (int)min64(a.heads - head0, HEADS), (gpu_u8 *)m.box, threadIdx.x - 128);
}

/* Grid: a.blocks pieces, groups of 64 heads. Threads: a warpgroup that fetches, two that multiply. */
KERNEL_PDL(mla_decode_wgmma_fp8, gpu_decode_args, GPU_DECODE_WGMMA_THREADS, 1) {
    SHARED_TILES(memory);
    decode_wgmma_fp8_memory m;
    m.q = memory, m.kv = m.q + 3 * Q_BLOCK, m.raw = m.kv + STAGES * TILE_BYTES,
    m.box = (float4 *)(m.raw + FETCHERS * 2 * RAW);
    m.full = (gpu_u64 *)(m.box + 1024), m.empty = m.full + STAGES, m.raw_full = m.empty + STAGES;
    m.walks = (decode_walk *)(m.raw_full + FETCHERS * 2), m.cuts = (cut_row *)(m.walks + MULTIPLY / 32);
    if (threadIdx.x == 0) {
        pipeline_init(pipeline_begin(m.full, m.empty), STAGES, 2, MULTIPLY / 32);
        for (int i = 0; i < FETCHERS * 2; i++) mbarrier_init(&m.raw_full[i], 1);
        mbarrier_fence_init();
    }
    __syncthreads();
    int which = threadIdx.x / 128;
    if (which == 0) {
        setmaxnreg_dec<40>();
        decode_wgmma_fp8_fetch(a, m, threadIdx.x / 32);
    } else {
        setmaxnreg_inc<232>();
        decode_wgmma_fp8_compute(a, m, which - 1);
    }
}
