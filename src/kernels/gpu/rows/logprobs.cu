/* kernels/gpu/rows/logprobs.cu: log-probabilities of rows of logits, and their k best tokens.
 *
 * A row is cut into at most MOST_TILES tiles, eight to a block (a warp each), which leave each tile's largest logit
 * and the block's sum of exp(x - largest of the block) in double. One block a row then adds the sums, and looks for
 * the best tokens: the k-th largest of the tiles' largest logits is a bound that at least k tokens reach, and few
 * more; those are gathered from the tiles that reach it, and each finds its place by counting the better ones. Where
 * more reach it than there is room for (many equal logits, or sorted ones) the k-th largest logit is found bit by
 * bit. Tiles and orders depend on the vocabulary alone, so a row's bits do. Bytes: the row once, 655 KB of Kimi's
 * 163,840 logits, and k tiles again; 40 flop a logit in double. */
#include "kernels/gpu/device/sm90.cuh"

enum { TILES = GPU_WARPS /* of a block */, PICK = GPU_PICK_THREADS, CANDIDATES = 2048 };

static __device__ inline double warp_sum_f64(double v) {
    for (int d = 16; d; d >>= 1) {
        union {
            double v;
            int half[2];
        } mine = {v}, other;
        other.half[0] = __shfl_xor_sync(~0u, mine.half[0], d), other.half[1] = __shfl_xor_sync(~0u, mine.half[1], d);
        v += other.v;
    }
    return v;
}

/* The tile's largest logit; sum: of the lanes' own exp(x - m) with m the block's largest. */
KERNEL(logprob_parts, gpu_logprobs_args) {
    __shared__ float tops[TILES];
    __shared__ double sums[TILES];
    gpu_i64 row = blockIdx.y, tile = (gpu_i64)blockIdx.x * TILES + threadIdx.x / 32;
    gpu_i64 from = min64(tile * a.tile, a.vocab), to = min64(from + a.tile, a.vocab);
    const float *x = a.logits + row * a.stride;
    if (a.tops[row] < 0) return;
    float top = -INFINITY;
    for (gpu_i64 t = from + threadIdx.x % 32; t < to; t += 32) top = x[t] > top ? x[t] : top;
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) {
        tops[threadIdx.x / 32] = top;
        if (tile < a.tiles) a.tile_tops[row * a.tiles + tile] = top;
    }
    __syncthreads();
    for (int w = 0; w < TILES; w++) top = tops[w] > top ? tops[w] : top;
    double sum = 0;
    if (top > -INFINITY)
        for (gpu_i64 t = from + threadIdx.x % 32; t < to; t += 32) sum += exp((double)x[t] - (double)top);
    sum = warp_sum_f64(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < TILES; w++) sum += sums[w];
    a.part_tops[row * a.parts + blockIdx.x] = top;
    a.part_sums[row * a.parts + blockIdx.x] = sum;
}

typedef struct {
    float tile_top[GPU_LOGPROB_TILES];
    gpu_u64 better[CANDIDATES]; /* of a candidate: its logit in an order of whole numbers, then the lower id first */
    double part[GPU_LOGPROB_TILES / TILES];
    int n, each[PICK / 32];
    float bound;
    double lse;
} pick_space;
static_assert(sizeof(pick_space) <= GPU_PICK_SHARED, "params.h");

/* Whole numbers in the order of floats. */
static __device__ inline gpu_u32 order_of(float v) {
    gpu_u32 b = __float_as_uint(v == 0 ? 0.0f : v); /* -0 equals 0 */
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
static __device__ inline gpu_u64 better_of(float v, int id) {
    return (gpu_u64)order_of(v) << 32 | (gpu_u32)(0x7fffffff - id);
}
static __device__ inline int id_of(gpu_u64 better) { return 0x7fffffff - (int)(gpu_u32)better; }

static __device__ inline int count_all(int n, pick_space *s) {
    for (int d = 16; d; d >>= 1) n += __shfl_xor_sync(~0u, n, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s->each[threadIdx.x / 32] = n;
    __syncthreads();
    n = 0;
    for (int w = 0; w < PICK / 32; w++) n += s->each[w];
    return n;
}

static __device__ inline void find_lse(const gpu_logprobs_args &a, gpu_i64 row, pick_space *s) {
    float top = -INFINITY;
    for (gpu_i64 p = 0; p < a.parts; p++) {
        float v = a.part_tops[row * a.parts + p];
        top = v > top ? v : top;
    }
    if ((gpu_i64)threadIdx.x < a.parts) {
        float v = a.part_tops[row * a.parts + threadIdx.x];
        s->part[threadIdx.x] =
            v > -INFINITY ? a.part_sums[row * a.parts + threadIdx.x] * exp((double)v - (double)top) : 0.0;
    }
    __syncthreads();
    if (threadIdx.x) return;
    double sum = 0;
    for (gpu_i64 p = 0; p < a.parts; p++) sum += s->part[p];
    s->lse = (double)top + log(sum);
}

/* The k-th largest of the tiles' largest logits; no bound where there are fewer tiles. */
static __device__ inline void find_bound(const gpu_logprobs_args &a, gpu_i64 row, int k, pick_space *s) {
    int t = threadIdx.x, tiles = (int)a.tiles, before = 0;
    if (t == 0) s->bound = -INFINITY;
    if (t < tiles) s->tile_top[t] = a.tile_tops[row * a.tiles + t];
    __syncthreads();
    if (t >= tiles) return;
    float mine = s->tile_top[t];
    for (int i = 0; i < tiles; i++) before += s->tile_top[i] > mine || (s->tile_top[i] == mine && i < t);
    if (before == k - 1) s->bound = mine;
}

static __device__ inline void logprobs_add_candidate(pick_space *s, float v, int id) {
    int at = atomicAdd(&s->n, 1);
    if (at < CANDIDATES) s->better[at] = better_of(v, id);
}

/* Tokens that reach the bound, from the tiles that do; a warp a tile. */
static __device__ inline void logprobs_gather(const gpu_logprobs_args &a, const float *x, pick_space *s) {
    for (gpu_i64 tile = threadIdx.x / 32; tile < a.tiles; tile += PICK / 32) {
        if (!(s->tile_top[tile] >= s->bound)) continue;
        gpu_i64 to = min64((tile + 1) * a.tile, a.vocab);
        for (gpu_i64 t = tile * a.tile + threadIdx.x % 32; t < to; t += 32)
            if (x[t] >= s->bound) logprobs_add_candidate(s, x[t], (int)t);
    }
}

/* The same where too many reach it: the largest number that k tokens reach, bit by bit; numbers are different, so
 * that k do. */
static __device__ inline void gather_exactly(const gpu_logprobs_args &a, const float *x, int k, pick_space *s) {
    gpu_u64 bound = 0;
    for (int bit = 63; bit >= 0; bit--) {
        gpu_u64 next = bound | 1ull << bit;
        int n = 0;
        for (gpu_i64 t = threadIdx.x; t < a.vocab; t += PICK) n += better_of(x[t], (int)t) >= next;
        if (count_all(n, s) >= k) bound = next;
    }
    if (threadIdx.x == 0) s->n = 0;
    __syncthreads();
    for (gpu_i64 t = threadIdx.x; t < a.vocab; t += PICK)
        if (better_of(x[t], (int)t) >= bound) logprobs_add_candidate(s, x[t], (int)t);
}

/* Grid: rows. Shared memory: pick_space. */
KERNEL_OF(logprob_pick, gpu_logprobs_args, PICK, 1) {
    SHARED_MEMORY(gpu_u64, memory);
    pick_space *s = (pick_space *)memory;
    gpu_i64 row = blockIdx.x;
    int k = a.tops[row];
    const float *x = a.logits + row * a.stride;
    float *out = a.logprobs + row * (1 + a.n_top);
    if (k < 0) return;
    find_lse(a, row, s);
    if (threadIdx.x == 0) {
        int id = a.ids[row] < 0 ? a.drawn[row] : a.ids[row];
        out[0] = (float)((double)x[id] - s->lse);
        s->n = 0;
    }
    if (!k) return;
    find_bound(a, row, k, s);
    __syncthreads();
    logprobs_gather(a, x, s);
    __syncthreads();
    if (s->n > CANDIDATES) gather_exactly(a, x, k, s);
    __syncthreads();
    for (int i = threadIdx.x; i < s->n; i += PICK) {
        int before = 0;
        for (int j = 0; j < s->n; j++) before += s->better[j] > s->better[i];
        if (before >= k) continue;
        int id = id_of(s->better[i]);
        a.top_ids[row * a.n_top + before] = id;
        out[1 + before] = (float)((double)x[id] - s->lse);
    }
}
