/* kernels/gpu/mla/decode_mma.cu: absorbed attention of up to 16 heads a block.
 *
 * out[i, h, :] = softmax_j(scale * q[i, h] . kv_j) kv_j[0, 512) over the kv_len[i] first tokens of row i; KV rows of
 * 512 + 64 values in bf16 or FP8. Bytes: every row of the cache once for all heads of a block, 1152 (FP8: 576) a
 * token and layer. At 16 heads a token costs 35 kflop, 30 flop a byte: bound by bytes.
 *
 * The heads are the short side of mma's products (n = 8), tokens and latents its long one, so 8 heads waste nothing.
 * 8 warps multiply, a ninth fetches: the copy engine brings KV rows in half pages (32 tokens) into a ring, eight at a
 * time in blocks of 64 columns, swizzled (a copy a row takes 30 ns each to be asked for, as long as the memory needs
 * for it). FP8 rows of few sequences come one by one, 16 bytes farther apart than they are long, so that eight meet no
 * bank twice: alone they are there sooner (measured). Of a page of 64 tokens
 *   scores  [64 tokens, heads]: warp w takes tokens 16 (w % 4).. and half of the 576 columns: every other 32 bytes, of
 *           single rows half w / 4; the query lies in registers;
 *   weights: the halves of the scores meet in shared memory; warp w computes those of head w (and w + 8): a running
 *           maximum (Milakov and Gimelshein 2018, arXiv:1805.02867), base 2;
 *   sums    [512 latents, heads]: warp w takes latents 64 w.. of all 64 tokens. The weights are rounded to bf16 here.
 * FP8 becomes IEEE halves in registers, one instruction for two values, and the products are those of halves.
 * Up to seven tokens past kv_len are read, whatever they are; their rows are zeros then. */
#include "kernels/gpu/block_marks.h"
#include "kernels/gpu/device/pipeline.cuh"
#include "kernels/gpu/device/wgmma.cuh"
#include "kernels/gpu/mla/split_kv.cuh"

enum {
    HALF = 32,         /* tokens of a stage */
    SCORE_PITCH = 72,  /* floats from head to head */
    WEIGHT_PITCH = 36, /* pairs from head to head */
    COMPUTE = 256,     /* threads */
    STEPS = 18,        /* of 16 columns in half a row */
    ASIDE16 = 2,
    /* of them, whose query lies in shared memory: for 16 heads, and for 8 with FP8; all of them for 16 with FP8 */
    ASIDE8 = 8
};

/* How KV rows come: by eights, or FP8 one by one. */
enum { KV_BF16, KV_FP8, KV_FP8_ROWS };
#define IS_FP8(KV) ((KV) != KV_BF16)

/* FP8: two blocks a multiprocessor, whose waits fill each other's gaps. */
template <int NH, int KV> struct decode_mma_ring {
    enum {
        PITCH = KV_WIDTH + 16, /* of single rows: bytes from one to the next */
        /* 64 columns of eight tokens lie behind each other, then the next columns, then the next tokens */
        BLOCK = 8 * (IS_FP8(KV) ? 64 : 128),
        EIGHT = KV_WIDTH / 64 * BLOCK,
        STAGES = IS_FP8(KV) ? 4 : 5,
        STAGE = KV == KV_FP8_ROWS ? HALF * PITCH : HALF / 8 * EIGHT,
        BYTES = STAGES * (IS_FP8(KV) ? HALF * PITCH : STAGE) /* both forms of FP8 have as much */
    };
};

/* The query of a row lies in shared memory first, rows as far apart as those of the ring; not for 16 heads with FP8,
 * where two blocks a multiprocessor leave no room. */
template <int NH, int KV> struct decode_mma_query_rows {
    enum { COPIED = !(IS_FP8(KV) && NH == 2), PITCH = KV_WIDTH * 2 + 16, BYTES = COPIED ? NH * 8 * PITCH : 0 };
};

typedef struct {
    gpu_u8 *ring;
    gpu_u32 *aside;   /* [steps][NH][2][half of the columns][32]: the four warps of a half have the same query */
    float *scores;    /* [half of the columns][head][SCORE_PITCH]; at a row's end the heads' sums of weights */
    gpu_u32 *weights; /* [head][WEIGHT_PITCH]: pairs of tokens */
    float *shrink;    /* [head] */
    gpu_u64 *full, *empty;
    gpu_u8 *query;
    cut_row *cuts;      /* [2] */
    decode_walk *walks; /* of the warps: what is not needed within a row is not kept in registers */
} decode_mma_memory;
static_assert(sizeof(decode_walk) == 36, "args.h counts it");
static_assert(COMPUTE + 32 == (int)GPU_DECODE_MMA_THREADS && (int)COMPUTE == (int)JOINERS &&
                  (int)JOIN_BYTES <= (int)HALF * KV_WIDTH,
              "pieces are joined in the ring's memory");

template <int NH, int KV> static __device__ inline decode_mma_memory decode_mma_layout(gpu_u8 *memory) {
    enum { FP8 = IS_FP8(KV), heads = NH * 8 };
    decode_mma_memory m;
    m.ring = memory;
    m.full = (gpu_u64 *)(memory + decode_mma_ring<NH, KV>::BYTES), m.empty = m.full + decode_mma_ring<NH, KV>::STAGES;
    m.cuts = (cut_row *)(m.empty + decode_mma_ring<NH, KV>::STAGES);
    m.walks = (decode_walk *)(m.cuts + 2);
    m.shrink = (float *)(m.walks + COMPUTE / 32);
    m.scores = m.shrink + heads;
    m.weights = (gpu_u32 *)(m.scores + 2 * heads * SCORE_PITCH);
    m.aside = m.weights + heads * WEIGHT_PITCH;
    enum { ASIDE = (NH == 2 ? FP8 ? STEPS : ASIDE16 : FP8 ? ASIDE8 : 0) * NH * 512 };
    m.query = (gpu_u8 *)m.aside + ASIDE;
    static_assert(decode_mma_ring<NH, KV>::BYTES + 2 * decode_mma_ring<NH, KV>::STAGES * 8 + 2 * sizeof(cut_row) +
                          COMPUTE / 32 * sizeof(decode_walk) + heads * (1 + 2 * SCORE_PITCH + WEIGHT_PITCH) * 4 +
                          ASIDE + decode_mma_query_rows<NH, KV>::BYTES ==
                      GPU_DECODE_MMA_SHARED(NH, FP8),
                  "params.h");
    return m;
}

/* Where the copy engine leaves 16 bytes of a block, piece c of token r: 128-byte swizzle, with FP8 that of 64. */
template <int KV> static __device__ inline gpu_u32 decode_mma_piece(gpu_u32 r, gpu_u32 c) {
    return IS_FP8(KV) ? r * 64 + ((c ^ r / 2 % 4) << 4) : swizzled(r, c);
}

/* Half `half` of page t of the walk's row, of which no more rows come than are there, by eights (params.h: kv_map)
 * seven more. */
template <int NH, int KV>
static __device__ inline void decode_mma_fetch_half(const gpu_decode_args &a, const decode_mma_memory &m,
                                                    const decode_walk &w, int t, gpu_i64 page, int half,
                                                    const pipeline &at) {
    typedef decode_mma_ring<NH, KV> ring;
    enum { ROWS = KV == KV_FP8_ROWS };
    int lane = threadIdx.x % 32, rows = w.len - t * GPU_PAGE - half * HALF, first = (int)page * GPU_PAGE + half * HALF;
    rows = rows < 0 ? 0 : rows > HALF ? HALF : rows;
    int copies = ROWS ? rows : (rows + 7) / 8;
    gpu_u8 *to = m.ring + at.stage * ring::STAGE;
    if (lane == 0) mbarrier_expect(pipeline_full(at), (gpu_u32)(copies * (ROWS ? (int)KV_WIDTH : (int)ring::EIGHT)));
    __syncwarp();
    if (lane >= copies) return;
    if (ROWS)
        tma_bulk(to + lane * ring::PITCH, (const gpu_u8 *)a.kv + ((gpu_i64)first + lane) * KV_WIDTH, KV_WIDTH,
                 pipeline_full(at));
    else
        tma_load(to + lane * ring::EIGHT, &a.kv_map, 0, first + lane * 8, 0, pipeline_full(at));
}

/* One warp: the block's KV rows into the ring, half a page a stage. */
template <int NH, int KV>
static __device__ inline void decode_mma_fetch(const gpu_decode_args &a, const decode_mma_memory &m) {
    enum { STAGES = decode_mma_ring<NH, KV>::STAGES };
    int lane = threadIdx.x % 32, k = 0;
    bool waited = false;
    if (KV != KV_FP8_ROWS && lane == 0) tma_prefetch_map(&a.kv_map);
    page_numbers pages = page_numbers_begin(a);
    decode_walk w = walk_begin(a);
    for (; walk_next(a, w); pages.first = false) {
        for (int t = w.first; t < w.last; t++) {
            gpu_i64 page = page_number(a, w, t, pages);
            if (!waited && page_is_new(w.pages, t)) pdl_wait(), waited = true;
            for (int half = 0; half < 2; half++, k++) {
                pipeline at = pipeline_at(m.full, m.empty, STAGES, k);
                producer_acquire(at);
                decode_mma_fetch_half<NH, KV>(a, m, w, t, page, half, at);
            }
        }
    }
}

/* The latents of rows [rows, 64) of a page in the ring become zeros: a weight of zero must not meet a NaN. */
template <int NH, int KV> static __device__ inline void decode_mma_blank(gpu_u8 *first, gpu_u8 *second, int rows) {
    typedef decode_mma_ring<NH, KV> ring;
    enum { FP8 = IS_FP8(KV), PIECES = FP8 ? 4 : 8 /* of a token in a block */ };
    for (int row = rows + threadIdx.x / 32; row < GPU_PAGE; row += COMPUTE / 32)
        for (int c = threadIdx.x % 32; c < KV_LATENT / (FP8 ? 16 : 8); c += 32) {
            int at = KV == KV_FP8_ROWS ? row % HALF * ring::PITCH + c * 16
                                       : row % HALF / 8 * ring::EIGHT + c / PIECES * ring::BLOCK +
                                             row % 8 * (PIECES * 16) + c % PIECES * 16;
            *(uint4 *)((row < HALF ? first : second) + at) = {0, 0, 0, 0};
        }
    fence_async(); /* the copy engine writes here next */
}

/* The row's query for the heads from head0 on, by copies of all threads. What it takes the place of is used up. */
template <int NH, int KV>
static __device__ inline void decode_mma_copy_query(const gpu_decode_args &a, const decode_mma_memory &m, int row,
                                                    int head0) {
    enum { PIECES = KV_WIDTH / 8 };
    int all = (int)min64(a.heads - head0, NH * 8) * PIECES;
    const gpu_bf16 *from = a.q + ((gpu_i64)row * a.heads + head0) * KV_WIDTH;
    for (int i = thread_anew(); i < all; i += COMPUTE)
        cp_async16(m.query + i / PIECES * decode_mma_query_rows<NH, KV>::PITCH + i % PIECES * 16, from + i * 8);
    cp_async_commit();
    cp_async_wait<0>();
    named_barrier_sync(1, COMPUTE);
}

/* A head's values of 16 columns, as the tensor cores take them; with FP8 a lane has four columns behind each other. */
template <int FP8>
static __device__ inline void decode_mma_query(gpu_u32 two[2], const gpu_bf16 *from, int t4, bool valid) {
    if (!valid)
        two[0] = two[1] = 0;
    else if (FP8) {
        uint2 v = *(const uint2 *)(from + 4 * t4);
        two[0] = query_halves(v.x), two[1] = query_halves(v.y);
    } else
        two[0] = *(const gpu_u32 *)(from + 2 * t4), two[1] = *(const gpu_u32 *)(from + 8 + 2 * t4);
}

template <int FP8> static __device__ inline void decode_mma_mma(float c[4], const gpu_u32 a[4], const gpu_u32 b[2]) {
    if (FP8)
        mma_half(c, a, b);
    else
        mma_bf16(c, a, b);
}

/* Of a lane's sums the first latent, and the two of column i (of mma's result) that lie behind each other there. */
template <int FP8> static __device__ inline int decode_mma_latent(int thread) {
    return thread / 32 * 64 + thread % 32 / 4 * (FP8 ? 2 : 1);
}

/* A row's piece: its sums as they are. The addresses differ by constants; with a branch and an address for each value
 * this took 2 us. */
template <int NH, int FP8>
static __device__ inline void decode_mma_leave(const gpu_decode_args &a, gpu_i64 slot, int head0,
                                               const float (&o)[4][NH][4], const float (&best)[NH],
                                               const float (&sum)[NH]) {
    int thread = thread_anew(), warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int n = 0; n < NH; n++) {
        if (lane == 0 && head0 + n * 8 + warp < a.heads)
            *(float2 *)part_state(a, slot, head0 + n * 8 + warp) = {best[n], sum[n]};
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int h = head0 + n * 8 + lane % 4 * 2 + c;
            float *to = part_sums(a, slot, h) + decode_mma_latent<FP8>(thread);
            if (h >= a.heads) continue;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (FP8)
                    *(float2 *)(to + i * 16) = {o[i][n][c], o[i][n][c + 2]};
                else
                    to[i * 16] = o[i][n][c], to[i * 16 + 8] = o[i][n][c + 2];
        }
    }
}

/* A whole row: divided by the heads' sums of weights. */
template <int NH, int FP8>
static __device__ inline void decode_mma_finish(const gpu_decode_args &a, const decode_mma_memory &m, gpu_i64 row,
                                                int head0, const float (&o)[4][NH][4], const float (&best)[NH],
                                                const float (&sum)[NH]) {
    int thread = thread_anew(), warp = thread / 32, lane = thread % 32;
    if (lane == 0)
#pragma unroll
        for (int n = 0; n < NH; n++) {
            m.scores[n * 8 + warp] = sum[n]; /* nobody reads scores any more */
            if (head0 + n * 8 + warp < a.heads) lse_store(a, row, head0 + n * 8 + warp, best[n], sum[n]);
        }
    named_barrier_sync(1, COMPUTE);
#pragma unroll
    for (int n = 0; n < NH; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int h = head0 + n * 8 + lane % 4 * 2 + c;
            gpu_bf16 *to = a.out + (row * a.heads + h) * KV_LATENT + decode_mma_latent<FP8>(thread);
            float all = m.scores[n * 8 + lane % 4 * 2 + c];
            if (h >= a.heads) continue;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                gpu_u32 two = pair_bf16(o[i][n][c] / all, o[i][n][c + 2] / all);
                if (FP8)
                    *(gpu_u32 *)(to + i * 16) = two;
                else
                    to[i * 16] = (gpu_bf16)two, to[i * 16 + 8] = (gpu_bf16)(two >> 16);
            }
        }
    named_barrier_sync(2, COMPUTE); /* the sums are used up */
}

/* NH: groups of 8 heads. */
template <int NH, int KV>
static __device__ inline void decode_mma_compute(const gpu_decode_args &a, const decode_mma_memory &m,
                                                 block_times *times) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t4 = lane % 4, tile = warp % 4, part = warp / 4,
        k = 0;
    enum {
        STAGES = decode_mma_ring<NH, KV>::STAGES,
        STAGE = decode_mma_ring<NH, KV>::STAGE,
        PITCH = decode_mma_ring<NH, KV>::PITCH,
        BLOCK = decode_mma_ring<NH, KV>::BLOCK,
        EIGHT = decode_mma_ring<NH, KV>::EIGHT,
        FP8 = IS_FP8(KV),
        ROWS = KV == KV_FP8_ROWS
    };
    /* Of ldmatrix4 a lane's 16 bytes of a half page: of its keys' even steps, of its values' first latents; what else
     * is asked for of a token in a block is XORed to it. Of values with FP8 16 tokens are the rows, else 8 and 8. */
    int key_at = ROWS ? (tile % 2 * 16 + lane % 16) * PITCH + part * (KV_WIDTH / 2) + lane / 16 * 16
                      : (tile % 2 * 2 + lane % 16 / 8) * EIGHT + decode_mma_piece<KV>(lane % 8, part * 2 + lane / 16),
        value_at = ROWS ? lane % 16 * PITCH + warp * 64 + lane / 16 * 16
                        : (FP8 ? lane % 16 / 8 : lane / 16) * EIGHT + warp * BLOCK +
                              decode_mma_piece<KV>(lane % 8, FP8 ? lane / 16 : lane / 8 % 2);
    enum { COPIED = decode_mma_query_rows<NH, KV>::COPIED };
    int head0 = (int)blockIdx.y * NH * 8, cuts = 0;
    float scale2 = FP8 ? a.scale2 * QUERY_SCALE : a.scale2;
    {
        decode_walk w = walk_begin(a);
        if (lane == 0) m.walks[warp] = w;
    }
    pdl_wait();
    block_mark(times, DECODE_WAITED);
    lse_of_none(a, head0, min64(a.heads - head0, NH * 8), threadIdx.x);
    for (;;) {
        __syncwarp();
        decode_walk w = m.walks[warp];
        if (!walk_next(a, w)) break;
        __syncwarp();
        if (lane == 0) m.walks[warp] = w;
        __syncwarp();
        if (COPIED) decode_mma_copy_query<NH, KV>(a, m, w.row, head0);
        constexpr int ALL = STEPS, HELD = FP8 ? (NH == 1 ? ALL - ASIDE8 : 0) : NH == 2 ? ALL - ASIDE16 : ALL;
        gpu_u32 q[HELD > 0 ? HELD : 1][NH][2];
#pragma unroll
        for (int n = 0; n < NH; n++) {
            gpu_i64 h = head0 + n * 8 + g;
            const gpu_bf16 *row = COPIED
                                      ? (const gpu_bf16 *)(m.query + (n * 8 + g) * decode_mma_query_rows<NH, KV>::PITCH)
                                      : a.q + ((gpu_i64)w.row * a.heads + h) * KV_WIDTH,
                           *from = row + part * (ROWS  ? KV_WIDTH / 2
                                                 : FP8 ? 32
                                                       : 16);
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                gpu_u32 two[2];
                decode_mma_query<FP8>(two,
                                      from + (ROWS  ? s * 16
                                              : FP8 ? s / 2 * 64 + s % 2 * 16
                                                    : s * 32),
                                      t4, h < a.heads);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (s < HELD)
                        q[s < HELD ? s : 0][n][i] = two[i];
                    else if (tile == 0)
                        m.aside[(((s - HELD) * NH + n) * 2 + i) * 64 + part * 32 + lane] = two[i];
            }
        }
        if (HELD < ALL) named_barrier_sync(1, COMPUTE); /* the query is there */
        block_mark(times, DECODE_QUERY);
        float o[4][NH][4], best[NH], sum[NH];
        int hidden[NH]; /* FP8: tokens at the end of this piece that the warp's head does not see; bf16: not kept */
#pragma unroll
        for (int n = 0; n < NH; n++) {
            best[n] = -INFINITY, sum[n] = 0;
            hidden[n] = hidden_of(a, w, head0 + n * 8 + warp);
#pragma unroll
            for (int i = 0; i < 4; i++) o[i][n][0] = o[i][n][1] = o[i][n][2] = o[i][n][3] = 0;
        }
        for (int rows = walk_tokens(w); rows > 0; rows -= GPU_PAGE, k += 2) {
            gpu_u8 *half[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                pipeline at = pipeline_at(m.full, m.empty, STAGES, k + i);
                consumer_wait(at);
                half[i] = m.ring + at.stage * STAGE;
            }
            if (!k) block_mark(times, DECODE_FIRST);
            if (rows < GPU_PAGE) {
                decode_mma_blank<NH, KV>(half[0], half[1], rows);
                named_barrier_sync(1, COMPUTE);
            }

            float s[NH][2][4]; /* one group of heads: even and odd steps, so that two products are under way */
#pragma unroll
            for (int n = 0; n < NH; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) s[n][0][i] = s[n][1][i] = 0;
            const gpu_u8 *keys = tile < 2 ? half[0] : half[1];
            auto multiply = [&](int step, const gpu_u32 x[4]) {
#pragma unroll
                for (int n = 0; n < NH; n++) {
                    gpu_u32 y[2];
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        y[i] = step < HELD ? q[step < HELD ? step : 0][n][i]
                                           : m.aside[(((step - HELD) * NH + n) * 2 + i) * 64 + part * 32 + lane];
                    decode_mma_mma<FP8>(s[n][NH == 1 ? step % 2 : 0], x, y);
                }
            };
            if (FP8) { /* two steps a load */
#pragma unroll
                for (int step = 0; step < STEPS; step += 2) {
                    gpu_u32 raw[4], x[4];
                    ldmatrix4(raw, keys + key_at + (ROWS ? step * 16 : step / 2 * BLOCK));
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        fp8_halves(raw[2 * i], x[0], x[2]), fp8_halves(raw[2 * i + 1], x[1], x[3]);
                        multiply(step + i, x);
                    }
                }
            } else {
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    gpu_u32 x[4];
                    ldmatrix4(x, keys + step / 2 * BLOCK + (key_at ^ step % 2 * 64));
                    multiply(step, x);
                }
            }
#pragma unroll
            for (int n = 0; n < NH; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    m.scores[(part * NH * 8 + n * 8 + 2 * t4 + i % 2) * SCORE_PITCH + tile * 16 + g + i / 2 * 8] =
                        NH == 1 ? s[n][0][i] + s[n][1][i] : s[n][0][i];
            named_barrier_sync(1, COMPUTE); /* the scores are there; the weights of the page before are used up */
#pragma unroll
            for (int n = 0; n < NH; n++) { /* the warp's head: a lane has two tokens */
                int h = n * 8 + warp;
                float2 x = *(const float2 *)(m.scores + h * SCORE_PITCH + 2 * lane),
                       y = *(const float2 *)(m.scores + (NH * 8 + h) * SCORE_PITCH + 2 * lane);
                int seen = rows;
                if (FP8)
                    seen -= hidden[n];
                else if (a.group > 1)
                    seen -= hidden_of(a, m.walks[warp], head0 + h);
                float even = 2 * lane < seen ? (x.x + y.x) * scale2 : -INFINITY,
                      odd = 2 * lane + 1 < seen ? (x.y + y.y) * scale2 : -INFINITY;
                float top = fmaxf(even, odd); /* passes a NaN over; its weight is NaN all the same */
#pragma unroll
                for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
                top = fmaxf(best[n], top);
                const float from = seen_best(top), shrink = power2(best[n] - from);
                best[n] = top;
                even = power2(even - from), odd = power2(odd - from);
                sum[n] = sum[n] * shrink + even + odd;
                m.weights[h * WEIGHT_PITCH + lane] = FP8 ? pair_half(even, odd) : pair_bf16(even, odd);
                if (lane == 0) m.shrink[h] = shrink;
            }
            named_barrier_sync(2, COMPUTE); /* the weights are there */

            gpu_u32 p[NH][2][4]; /* tokens 0.. and 32..: of 16 tokens two of mma's operand */
#pragma unroll
            for (int n = 0; n < NH; n++) {
                const float2 shrink = *(const float2 *)(m.shrink + n * 8 + 2 * t4);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    ldmatrix4(p[n][i], m.weights + (n * 8 + lane % 8) * WEIGHT_PITCH + i * 16 + lane / 8 * 4);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[i][n][0] *= shrink.x, o[i][n][1] *= shrink.y, o[i][n][2] *= shrink.x, o[i][n][3] *= shrink.y;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const gpu_u8 *values = half[j / 2] + j % 2 * (ROWS ? 16 * PITCH : 2 * EIGHT);
#pragma unroll
                for (int i = 0; i < 4; i += FP8 ? 2 : 1) {
                    gpu_u32 x[4];
                    ldmatrix4_t(x, values + (ROWS ? value_at + i * 16 : value_at ^ i * (FP8 ? 16 : 32)));
                    if (FP8) {
#pragma unroll
                        for (int l = 0; l < 2; l++) {
                            /* a load has two latents of two tokens: rows g and g + 8 are latents 2g and 2g + 1 */
                            gpu_u32 y[4];
                            fp8_halves(__byte_perm(x[2 * l], 0, 0x3120), y[0], y[1]),
                                fp8_halves(__byte_perm(x[2 * l + 1], 0, 0x3120), y[2], y[3]);
#pragma unroll
                            for (int n = 0; n < NH; n++)
                                decode_mma_mma<FP8>(o[(i + l) % 4][n], y, p[n][j / 2] + j % 2 * 2);
                        }
                    } else
#pragma unroll
                        for (int n = 0; n < NH; n++) decode_mma_mma<FP8>(o[i][n], x, p[n][j / 2] + j % 2 * 2);
                }
            }
            __syncwarp();
            if (lane == 0)
                for (int i = 0; i < 2; i++) consumer_release(pipeline_at(m.full, m.empty, STAGES, k + i));
        }
        w = m.walks[warp];
        block_mark(times, DECODE_SUMS);
#pragma unroll
        for (int n = 0; n < NH; n++) sum[n] = warp_sum(sum[n]);
        if (walk_whole(w)) {
            decode_mma_finish<NH, FP8>(a, m, w.row, head0, o, best, sum);
        } else {
            decode_mma_leave<NH, FP8>(a, walk_slot(a, w), head0, o, best, sum);
            if (a.meetings) {
                cut_row c = cut_leave(a, w, threadIdx.x);
                if (threadIdx.x == 0) m.cuts[cuts] = c;
                cuts++;
            }
        }
    }
    named_barrier_sync(1, COMPUTE);
    for (int i = 0; i < cuts; i++)
        cut_join<FP8 ? 4 : 8>(a, m.cuts[i], head0, (int)min64(a.heads - head0, NH * 8), m.ring, threadIdx.x);
}

/* Grid: a.blocks pieces, groups of 8 NH heads. Threads: COMPUTE and a warp that fetches. */
template <int NH, int KV> static __device__ inline void decode_mma_heads(const gpu_decode_args &a, block_times *times) {
    SHARED_TILES(memory);
    const decode_mma_memory m = decode_mma_layout<NH, KV>(memory);
    if (threadIdx.x == 0) {
        pipeline_init(pipeline_begin(m.full, m.empty), decode_mma_ring<NH, KV>::STAGES, 1, COMPUTE / 32);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= COMPUTE)
        decode_mma_fetch<NH, KV>(a, m);
    else
        decode_mma_compute<NH, KV>(a, m, times);
}
KERNEL_PDL(mla_decode_mma8, gpu_decode_args, GPU_DECODE_MMA_THREADS, 1) { decode_mma_heads<1, KV_BF16>(a, times); }
KERNEL_PDL(mla_decode_mma16, gpu_decode_args, GPU_DECODE_MMA_THREADS, 1) { decode_mma_heads<2, KV_BF16>(a, times); }
KERNEL_PDL(mla_decode_mma8_fp8, gpu_decode_args, GPU_DECODE_MMA_THREADS, 2) { decode_mma_heads<1, KV_FP8>(a, times); }
KERNEL_PDL(mla_decode_mma8_fp8_rows, gpu_decode_args, GPU_DECODE_MMA_THREADS, 2) {
    decode_mma_heads<1, KV_FP8_ROWS>(a, times);
}
KERNEL_PDL(mla_decode_mma16_fp8, gpu_decode_args, GPU_DECODE_MMA_THREADS, 2) {
    decode_mma_heads<2, KV_FP8_ROWS>(a, times);
}
