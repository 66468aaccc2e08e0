/* kernels/gpu/vision/attention.cu: attention of the vision tower, heads of a width that attention_wgmma.cu does not
 * take: every row of an item sees all rows of the item.
 *
 * Work: 4 dim flop a pair of rows and head. Bytes: queries, keys, values and results once, and a head's keys and values
 * once a block from the second-level cache: the blocks that run at once are of one head or two.
 *
 * A block has ROWS rows of one item and head, a warp 16 or 32 of them, whose queries stay in registers. Tiles of 64
 * keys and values come by cp.async, two stages. Products are mma.sync's, with ldmatrix; softmax is float32 with a
 * running maximum, base 2 (Dao 2023, arXiv:2307.08691); weights are rounded to bf16 for the second product. A head's
 * columns are taken 16 at a time; of 72 the last 8 by themselves (m16n8k8). Rows in shared memory are
 * an odd number of 16-byte pieces apart: eight of them meet no bank twice. Two tiles of 16 rows a warp, so that what
 * ldmatrix brings is used twice: with one the reads of shared memory would take longer than the products.
 *
 * Tiles lie at multiples of 64 rows of the item, and a row's sums go through them in order: its bits depend on its item
 * alone. Rows behind the item's end are not read, and weigh nothing. A NaN among the scores is passed over by the
 * maximum, but its weight is NaN. */
#include "kernels/gpu/device/softmax.cuh"
#include "kernels/gpu/rows/rows.cuh"
#include "kernels/gpu/vision/tiles.cuh"

enum { KEYS = GPU_VISION_KEYS, WARPS = GPU_VISION_THREADS / 32 };

/* A kernel for heads of up to DIM columns; TILES: of 16 rows, of a warp. */
template <int DIM, int TILES> struct vision_shape {
    enum {
        PIECES = DIM / PIECE,
        STEPS = (PIECES + 1) / 2, /* of 16 columns */
        HALF = PIECES % 2,        /* the last one has 8 */
        PITCH = PIECES % 2 ? DIM : DIM + PIECE,
        ROWS = WARPS * TILES * 16,
        TILE = KEYS * PITCH /* values of a tile of keys, or of values */
    };
    static_assert(PIECES % 4 <= 1, "columns behind the last four pieces: none, or 8");
};

/* Rows [from, from + ROWS) of `count` to shared memory, `dim` values each, zeros where there is nothing. A thread has
 * one piece of every GROUPS-th row. */
template <int DIM, int PITCH, int ROWS>
static __device__ inline void fetch_rows(gpu_bf16 *to, const gpu_bf16 *rows, gpu_i64 stride, int from, int count,
                                         int dim) {
    enum { PIECES = DIM / PIECE, GROUPS = GPU_VISION_THREADS / PIECES };
    const int group = threadIdx.x / PIECES, c = threadIdx.x % PIECES * PIECE;
    if (GPU_VISION_THREADS % PIECES && group >= GROUPS) return;
    const gpu_bf16 *at = rows + (from + group) * stride + c;
    to += group * PITCH + c;
    const int left = c < dim ? count - from - group : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += GROUPS) {
        if (ROWS % GROUPS && i + GROUPS > ROWS && group >= ROWS - i) break;
        cp_async16_or_zero(to + i * PITCH, i < left ? at + i * stride : rows, i < left);
    }
}

/* s[t] = q[t] k^T, s[t][j] for eight keys. */
template <int DIM, int TILES>
static __device__ inline void vision_scores(float s[TILES][KEYS / 8][4],
                                            const gpu_u32 q[TILES][vision_shape<DIM, TILES>::STEPS][4],
                                            const gpu_bf16 *keys) {
    typedef vision_shape<DIM, TILES> shape;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[t][j][i] = 0;
#pragma unroll
        for (int p = 0; p + 4 <= shape::PIECES; p += 4) {
            gpu_u32 k[4];
            ldmatrix4(k, keys + (j * 8 + lane % 8) * shape::PITCH + (p + lane / 8) * PIECE);
#pragma unroll
            for (int t = 0; t < TILES; t++)
                mma_bf16(s[t][j], q[t][p / 2], k), mma_bf16(s[t][j], q[t][p / 2 + 1], k + 2);
        }
    }
    if constexpr (shape::HALF)
#pragma unroll
        for (int j = 0; j < KEYS / 8; j += 4) { /* the last 8 columns of four times eight keys */
            gpu_u32 k[4];
            ldmatrix4(k, keys + (j * 8 + lane) * shape::PITCH + (shape::PIECES - 1) * PIECE);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int t = 0; t < TILES; t++) mma_bf16_8(s[t][j + i], q[t][shape::STEPS - 1], k[i]);
            }
        }
}

/* o[t] += p[t] v; p: weights of 16 keys in mma_bf16's first layout. */
template <int DIM, int TILES>
static __device__ inline void vision_values(float o[TILES][DIM / 8][4], const float s[TILES][KEYS / 8][4],
                                            const gpu_bf16 *values) {
    typedef vision_shape<DIM, TILES> shape;
    const int lane = threadIdx.x % 32;
    gpu_u32 p[TILES][KEYS / 16][4];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++)
            p[t][i / 4][i % 4] = pair_bf16(s[t][i / 2][i % 2 * 2], s[t][i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++)
#pragma unroll
        for (int c = 0; c + 2 <= shape::PIECES; c += 2) {
            gpu_u32 v[4];
            ldmatrix4_t(v, values + (step * 16 + lane % 16) * shape::PITCH + (c + lane / 16) * PIECE);
#pragma unroll
            for (int t = 0; t < TILES; t++) mma_bf16(o[t][c], p[t][step], v), mma_bf16(o[t][c + 1], p[t][step], v + 2);
        }
    if constexpr (shape::HALF)
#pragma unroll
        for (int step = 0; step < KEYS / 16; step += 2) { /* the last 8 columns of 32 keys */
            gpu_u32 v[4];
            ldmatrix4_t(v, values + (step * 16 + lane) * shape::PITCH + (shape::PIECES - 1) * PIECE);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                mma_bf16(o[t][shape::PIECES - 1], p[t][step], v);
                mma_bf16(o[t][shape::PIECES - 1], p[t][step + 1], v + 2);
            }
        }
}

/* The warp's sums, divided, go to out by way of its own rows of the queries' memory: in whole pieces. Of its rows those
 * from `skip` on, before `left`. */
template <int DIM, int TILES>
static __device__ inline void vision_store(const float o[TILES][DIM / 8][4], const softmax_rows st[TILES],
                                           gpu_bf16 *own, gpu_bf16 *out, gpu_i64 stride, gpu_i64 skip, gpu_i64 left,
                                           int dim) {
    typedef vision_shape<DIM, TILES> shape;
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float scale = 1.0f / softmax_sum(st[t], r);
            gpu_bf16 *to = own + (t * 16 + lane / 4 + r * 8) * shape::PITCH + lane % 4 * 2;
#pragma unroll
            for (int c = 0; c < shape::PIECES; c++)
                *(gpu_u32 *)(to + c * PIECE) = pair_bf16(o[t][c][r * 2] * scale, o[t][c][r * 2 + 1] * scale);
        }
    __syncwarp();
    for (int k = lane; k < TILES * 16 * shape::PIECES; k += 32) {
        const int row = k / shape::PIECES, c = k % shape::PIECES * PIECE;
        if (row >= skip && row < left && c < dim)
            *(uint4 *)(out + row * stride + c) = *(const uint4 *)(own + row * shape::PITCH + c);
    }
}

template <int DIM, int TILES>
static __device__ __forceinline__ void attend_tile(const gpu_vision_attention_args &a, gpu_bf16 *memory) {
    typedef vision_shape<DIM, TILES> shape;
    const vision_tile tile = tile_of(a.items, a.n_items, (int)blockIdx.x, shape::ROWS);
    if (tile.count == 0 || tile.first + tile.from >= a.end || tile.first + tile.from + shape::ROWS <= a.begin) return;
    const int dim = (int)a.dim, warp = threadIdx.x / 32, lane = threadIdx.x % 32,
              tiles = (tile.count + KEYS - 1) / KEYS;
    const gpu_i64 row = a.heads * a.dim, stride = 3 * row;
    const gpu_bf16 *queries = a.qkv + tile.first * stride + blockIdx.y * a.dim, *keys = queries + row,
                   *values = keys + row;
    gpu_bf16 *q_memory = memory, *kv_memory = memory + shape::ROWS * shape::PITCH; /* stages of keys, values */
    gpu_bf16 *own = q_memory + warp * TILES * 16 * shape::PITCH;

    fetch_rows<DIM, shape::PITCH, shape::ROWS>(q_memory, queries, stride, tile.from, tile.count, dim);
    fetch_rows<DIM, shape::PITCH, KEYS>(kv_memory, keys, stride, 0, tile.count, dim);
    fetch_rows<DIM, shape::PITCH, KEYS>(kv_memory + shape::TILE, values, stride, 0, tile.count, dim);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    gpu_u32 q[TILES][shape::STEPS][4];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < shape::STEPS; i++) {
            const bool half = shape::HALF && i == shape::STEPS - 1;
            ldmatrix4(q[t][i], own + (t * 16 + lane % 16) * shape::PITCH + (2 * i + (half ? 0 : lane / 16)) * PIECE);
        }

    float o[TILES][DIM / 8][4];
    softmax_rows st[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        st[t] = softmax_begin();
#pragma unroll
        for (int c = 0; c < DIM / 8 * 4; c++) o[t][c / 4][c % 4] = 0;
    }
    for (int j = 0; j < tiles; j++) {
        const gpu_bf16 *now = kv_memory + j % 2 * 2 * shape::TILE;
        cp_async_wait<0>();
        __syncthreads(); /* tile j is there for all, and all are done with the other stage */
        if (j + 1 < tiles) {
            gpu_bf16 *next = kv_memory + (j + 1) % 2 * 2 * shape::TILE;
            fetch_rows<DIM, shape::PITCH, KEYS>(next, keys, stride, (j + 1) * KEYS, tile.count, dim);
            fetch_rows<DIM, shape::PITCH, KEYS>(next + shape::TILE, values, stride, (j + 1) * KEYS, tile.count, dim);
            cp_async_commit();
        }
        float s[TILES][KEYS / 8][4], shrink[2];
        vision_scores<DIM, TILES>(s, q, now);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            softmax_mask<KEYS>(&s[t][0][0], tile.count - j * KEYS - lane % 4 * 2);
            softmax_weights<KEYS>(&s[t][0][0], st[t], shrink, a.scale2);
            softmax_shrink<DIM / 2>(&o[t][0][0], shrink[0], shrink[1]);
        }
        vision_values<DIM, TILES>(o, s, now + shape::TILE);
    }
    const int own_row = tile.from + warp * TILES * 16; /* the warp's first, within the item */
    const gpu_i64 first = tile.first + own_row, left = tile.count - own_row, end = a.end - first;
    vision_store<DIM, TILES>(o, st, own, a.out + first * row + blockIdx.y * a.dim, row, a.begin - first,
                             left < end ? left : end, dim);
}

/* Heads of up to 72 or 128 columns, multiples of 8. Grid: tiles of all items, or a few more; heads. */
KERNEL_OF(vision_attention_72, gpu_vision_attention_args, GPU_VISION_THREADS, 2) {
    SHARED_TILES(memory);
    static_assert(vision_shape<72, 2>::ROWS == (int)GPU_VISION_QUERIES_72, "params.h");
    attend_tile<72, 2>(a, (gpu_bf16 *)memory);
}
KERNEL_OF(vision_attention_128, gpu_vision_attention_args, GPU_VISION_THREADS, 2) {
    SHARED_TILES(memory);
    static_assert(vision_shape<128, 1>::ROWS == (int)GPU_VISION_QUERIES_128, "params.h");
    attend_tile<128, 1>(a, (gpu_bf16 *)memory);
}

/* Heads of any width up to GPU_VISION_HEAD, a warp a row: a lane has a score of 32 keys, then some columns of the sum.
 * Grid: rows that are computed / GPU_WARPS, heads. */
KERNEL(vision_attention_any, gpu_vision_attention_args) {
    enum { COLUMNS = GPU_VISION_HEAD / 32 };
    const gpu_i64 i = a.begin + (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32, row = a.heads * a.dim,
                  stride = 3 * row;
    if (i >= a.end) return;
    const gpu_vision_item it = item_of<false>(a.items, a.n_items, i);
    const int lane = threadIdx.x % 32, count = item_rows(it), dim = (int)a.dim;
    const gpu_bf16 *q = a.qkv + i * stride + blockIdx.y * a.dim,
                   *key = a.qkv + it.first * stride + row + blockIdx.y * a.dim, *value = key + row;
    float o[COLUMNS], best = -INFINITY, sum = 0;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) o[c] = 0;
    for (int from = 0; from < count; from += 32) {
        const int left = count - from < 32 ? count - from : 32;
        float s = lane < left ? 0.0f : -INFINITY;
        for (int c = 0; lane < left && c < dim; c++)
            s = fmaf(f32_of(q[c]), f32_of(key[(gpu_i64)(from + lane) * stride + c]), s);
        float top = s;
        for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
        top = fmaxf(best, top * a.scale2);
        const float shrink = power2(best - top), weight = power2(fmaf(s, a.scale2, -top));
        best = top, sum = sum * shrink + warp_sum(weight);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) o[c] *= shrink;
        for (int k = 0; k < left; k++) {
            const float w = __shfl_sync(~0u, weight, k);
            const gpu_bf16 *v = value + (gpu_i64)(from + k) * stride;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (c * 32 + lane < dim) o[c] = fmaf(w, f32_of(v[c * 32 + lane]), o[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        if (c * 32 + lane < dim) a.out[i * row + blockIdx.y * a.dim + c * 32 + lane] = bf16_of(o[c] / sum);
}
