/* kernels/gpu/sample.cu: the next token of each row of logits, by the definition in kernels/sample.c.
 *
 * A row (163,840 logits, 655 KB) is cut into `splits` parts, a block each, and read once for its largest logit (with the check
 * for NaN and infinities), once for the sum of its weights, and in the part where the draw falls once more. Where top-k or
 * top-p cut tokens off, one block a row finds the last token that stays between the first two and the last two: a histogram over
 * 2048 steps of the logit, then the tokens of the step where the wanted count or weight is reached. Sums are whole numbers:
 * atomics and any order give the same. */
#include "kernels/gpu/hopper.cuh"
#include "kernels/weigh.h"

enum { NO_CUT = 0x7fffffff };

/* share * whole / 2^53, rounded down; the product has less than 2^117. */
static __device__ inline gpu_u64 part_of(gpu_u64 share, gpu_u64 whole) { return __umul64hi(share, whole) << 11 | share * whole >> 53; }

/* ---- reductions over a block of any number of warps ---- */
static __device__ inline gpu_u64 shuffle_u64(gpu_u64 v, int from) {
    gpu_u32 low = (gpu_u32)__shfl_sync(~0u, (int)(gpu_u32)v, from), high = (gpu_u32)__shfl_sync(~0u, (int)(gpu_u32)(v >> 32), from);
    return (gpu_u64)high << 32 | low;
}
static __device__ inline gpu_u64 warp_sum_u64(gpu_u64 v) {
    for (int d = 16; d; d >>= 1) v += shuffle_u64(v, (int)(threadIdx.x % 32) ^ d);
    return v;
}
/* The sum of v over all threads; before: over those before this one. each: a word a warp. */
static __device__ inline gpu_u64 block_scan(gpu_u64 v, gpu_u64 *each, gpu_u64 *before) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    gpu_u64 sum = v;
    for (int d = 1; d < 32; d *= 2) {
        gpu_u64 o = shuffle_u64(sum, lane >= d ? lane - d : lane);
        if (lane >= d) sum += o;
    }
    __syncthreads();
    if (lane == 31) each[warp] = sum;
    __syncthreads();
    gpu_u64 all = 0;
    *before = sum - v;
    for (int w = 0; w < warps; w++) {
        if (w < warp) *before += each[w];
        all += each[w];
    }
    return all;
}
static __device__ inline gpu_u64 block_sum_u64(gpu_u64 v, gpu_u64 *each) {
    int warps = blockDim.x / 32;
    v = warp_sum_u64(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = v;
    __syncthreads();
    gpu_u64 sum = 0;
    for (int w = 0; w < warps; w++) sum += each[w];
    return sum;
}

/* ---- the largest logit ---- */

static __device__ inline void take_best(gpu_sample_best &b, float v, int id, float low) {
    if (v > b.most || (v == b.most && id < b.id)) b.most = v, b.id = id;
    if (low < b.least) b.least = low;
}
static __device__ inline gpu_sample_best warp_best(gpu_sample_best b) {
    for (int d = 16; d; d >>= 1) {
        float v = __shfl_xor_sync(~0u, b.most, d), low = __shfl_xor_sync(~0u, b.least, d);
        int id = __shfl_xor_sync(~0u, b.id, d);
        take_best(b, v, id, low);
    }
    return b;
}

/* Calls f(id, logit) for [from, to) of a row, a block's threads in turns of 4 neighbours where they are aligned. */
template <typename F> static __device__ inline void each_logit(const gpu_sample_args &a, const float *x, gpu_i64 from, gpu_i64 to, F f) {
    if (a.aligned) {
        gpu_i64 end = from + (to - from) / 4 * 4;
#pragma unroll 4
        for (gpu_i64 t = from + threadIdx.x * 4; t < end; t += blockDim.x * 4) {
            float4 v = *(const float4 *)(x + t);
            f((int)t, v.x), f((int)t + 1, v.y), f((int)t + 2, v.z), f((int)t + 3, v.w);
        }
        from = end;
    }
    for (gpu_i64 t = from + threadIdx.x; t < to; t += blockDim.x) f((int)t, x[t]);
}

/* Grid: splits, rows. */
KERNEL(sample_max, gpu_sample_args) {
    __shared__ gpu_sample_best each[GPU_WARPS];
    gpu_i64 row = blockIdx.y, from = blockIdx.x * a.split, to = least(from + a.split, a.vocab);
    gpu_sample_best b = {-INFINITY, 0x7fffffff, INFINITY, 0};
    bool bad = false;
    each_logit(a, a.logits + row * a.stride, from, to, [&](int id, float v) {
        bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
        if (v > b.most || b.id == 0x7fffffff) b.most = v, b.id = id;
        b.least = v < b.least ? v : b.least;
    });
    b = warp_best(b);
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = b;
    if (__syncthreads_or(bad) && threadIdx.x == 0 && a.bad[row] == 0) a.bad[row] = a.mark;
    if (threadIdx.x) return;
    for (int w = 1; w < GPU_WARPS; w++) take_best(b, each[w].most, each[w].id, each[w].least);
    a.best[row * a.splits + blockIdx.x] = b;
}

/* The row's, from its parts, by one warp; the same in each lane. */
static __device__ inline gpu_sample_best row_best(const gpu_sample_args &a, gpu_i64 row) {
    gpu_sample_best b = {-INFINITY, 0x7fffffff, INFINITY, 0};
    for (gpu_i64 s = threadIdx.x % 32; s < a.splits; s += 32) {
        gpu_sample_best p = a.best[row * a.splits + s];
        take_best(b, p.most, p.id, p.least);
    }
    b = warp_best(b);
    if (b.id >= a.vocab) b.id = 0; /* NaN in front: any */
    return b;
}
static __device__ inline bool is_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }
static __device__ inline bool has_cut(const gpu_sample_args &a, const gpu_sample_row &r) {
    return (r.top_k > 0 && r.top_k < a.vocab) || r.top_p < 1ull << 53;
}

/* ---- sums of weights ---- */

/* The weight of a token that stays, else 0. Tokens stay up to `cut`, equal ones up to its id. */
static __device__ inline gpu_u64 kept_weight(const gpu_sample_row &r, const gpu_sample_cut &cut, float most, int id, float logit) {
    float below = most - logit;
    gpu_u64 w = weigh(below, r.scale);
    if (below > cut.below || (below == cut.below && id > cut.id) || w < r.min_weight) w = 0;
    return w;
}
static __device__ inline gpu_sample_cut cut_of(const gpu_sample_args &a, const gpu_sample_row &r, gpu_i64 row) {
    gpu_sample_cut all = {INFINITY, NO_CUT};
    return has_cut(a, r) ? a.cut[row] : all;
}

/* Grid: splits, rows. after_cut: rows with a cut, else their full weights and the others' kept ones. */
KERNEL(sample_sum, gpu_sample_args) {
    __shared__ gpu_u64 each[GPU_WARPS];
    gpu_i64 row = blockIdx.y, from = blockIdx.x * a.split, to = least(from + a.split, a.vocab);
    gpu_sample_row r = a.rows[row];
    bool cuts = has_cut(a, r);
    float most = row_best(a, row).most;
    if (!(r.scale > 0) || !is_finite(most) || (a.after_cut && !cuts)) return;
    gpu_sample_cut cut = {INFINITY, NO_CUT};
    if (a.after_cut) cut = a.cut[row];
    if (cuts && !a.after_cut) r.min_weight = 0;
    gpu_u64 sum = 0;
    each_logit(a, a.logits + row * a.stride, from, to, [&](int id, float v) { sum += kept_weight(r, cut, most, id, v); });
    sum = block_sum_u64(sum, each);
    if (threadIdx.x == 0) a.sums[row * a.splits + blockIdx.x] = sum;
}

/* ---- the draw ---- */

/* One block a row: finds the part in which the running sum passes `want`, the warp's stretch of it, the token. */
KERNEL(sample_pick, gpu_sample_args) {
    __shared__ gpu_u64 each[GPU_WARPS], found_before;
    __shared__ int found;
    gpu_i64 row = blockIdx.x;
    gpu_sample_row r = a.rows[row];
    const float *x = a.logits + row * a.stride;
    gpu_sample_best best = row_best(a, row);
    if (!(r.scale > 0) || !is_finite(best.most)) {
        if (threadIdx.x == 0) a.ids[row] = best.id;
        return;
    }
    gpu_sample_cut cut = cut_of(a, r, row);
    if (threadIdx.x == 0) found = 0, found_before = 0;
    gpu_u64 before, mine = (gpu_i64)threadIdx.x < a.splits ? a.sums[row * a.splits + threadIdx.x] : 0;
    gpu_u64 want = part_of(r.u, block_scan(mine, each, &before));
    if (before <= want && want < before + mine) found = threadIdx.x, found_before = before;
    __syncthreads();
    gpu_i64 from = found * a.split, to = least(from + a.split, a.vocab), stretch = ((to - from + GPU_WARPS - 1) / GPU_WARPS + 31) / 32 * 32;
    want -= found_before;
    gpu_i64 at = from + threadIdx.x / 32 * stretch, end = least(at + stretch, to);
    mine = 0;
#pragma unroll 4
    for (gpu_i64 t = at + threadIdx.x % 32; t < end; t += 32) mine += kept_weight(r, cut, best.most, (int)t, x[t]);
    mine = warp_sum_u64(mine);
    block_scan(threadIdx.x % 32 ? 0 : mine, each, &before);
    if (threadIdx.x % 32) before -= mine;
    bool here = before <= want && want < before + mine;
    if (!here) return;
    for (; at < end; at += 32) { /* one warp is left */
        gpu_i64 t = at + threadIdx.x % 32;
        gpu_u64 w = t < end ? kept_weight(r, cut, best.most, (int)t, x[t]) : 0, sum = w;
        for (int d = 1; d < 32; d *= 2) {
            int lane = threadIdx.x % 32;
            gpu_u64 o = shuffle_u64(sum, lane >= d ? lane - d : lane);
            if (lane >= d) sum += o;
        }
        sum += before;
        if (sum - w <= want && want < sum) a.ids[row] = (int)t;
        before = shuffle_u64(sum, 31);
        if (before > want) return;
    }
}

/* ---- top-k and top-p ---- */

enum { STEPS = 2048, CANDIDATES = 4096, CUT_WARPS = GPU_CUT_THREADS / 32 };

typedef struct {
    gpu_u32 low[STEPS], high[STEPS], count[STEPS]; /* of each step: weights, how many */
    gpu_u32 below[CANDIDATES];                     /* bits of a float that is not negative: they are ordered as it is */
    int id[CANDIDATES];
    gpu_u64 each[CUT_WARPS], before[2]; /* before the step that was found: weight, count */
    int n_candidates, step;
} cut_space;

/* What is looked at in a row. */
typedef struct {
    const float *x;
    float most, scale, per_step, limit; /* limit: tokens further below do not matter */
} cut_row;

static __device__ inline int step_of(const cut_row &c, float below) {
    int s = (int)(below * c.per_step);
    return s < STEPS ? s : STEPS - 1;
}

static __device__ inline void count_steps(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    for (int i = threadIdx.x; i < STEPS; i += GPU_CUT_THREADS) s->low[i] = s->high[i] = s->count[i] = 0;
    __syncthreads();
    each_logit(a, c.x, 0, a.vocab, [&](int, float v) {
        float below = c.most - v;
        if (!(below <= c.limit)) return;
        gpu_u64 w = weigh(below, c.scale);
        if (!w) return;
        int i = step_of(c, below);
        gpu_u32 low = (gpu_u32)w, high = (gpu_u32)(w >> 32), was = atomicAdd(&s->low[i], low);
        high += was + low < was;
        if (high) atomicAdd(&s->high[i], high);
        atomicAdd(&s->count[i], 1u);
    });
    __syncthreads();
}

/* The tokens of step s->step, in any order; more than there is room for are only counted. */
static __device__ inline void gather_step(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    if (threadIdx.x == 0) s->n_candidates = 0;
    __syncthreads();
    each_logit(a, c.x, 0, a.vocab, [&](int id, float v) {
        float below = c.most - v;
        if (!(below <= c.limit) || step_of(c, below) != s->step || !weigh(below, c.scale)) return;
        int at = atomicAdd(&s->n_candidates, 1);
        if (at < CANDIDATES) s->below[at] = __float_as_uint(below), s->id[at] = id;
    });
    __syncthreads();
}

/* The sum of f(bits of below, id) over the tokens of the step. */
template <typename F> static __device__ inline gpu_u64 over_step(const gpu_sample_args &a, const cut_row &c, cut_space *s, F f) {
    gpu_u64 sum = 0;
    if (s->n_candidates <= CANDIDATES)
        for (int i = threadIdx.x; i < s->n_candidates; i += GPU_CUT_THREADS) sum += f(s->below[i], s->id[i]);
    else
        each_logit(a, c.x, 0, a.vocab, [&](int id, float v) {
            float below = c.most - v;
            if (below <= c.limit && step_of(c, below) == s->step && weigh(below, c.scale)) sum += f(__float_as_uint(below), id);
        });
    return block_sum_u64(sum, s->each);
}

/* The first token at which the running count (or weight) of the tokens, best first, reaches `target` > 0; *weight: of all up to it.
 * No such token: all stay. */
static __device__ inline gpu_sample_cut find_cut(const gpu_sample_args &a, const cut_row &c, cut_space *s, bool by_count, gpu_u64 target, gpu_u64 *weight) {
    const int per = STEPS / GPU_CUT_THREADS;
    gpu_u64 w[per], n[per], weights = 0, counts = 0, before_w, before_n;
    if (threadIdx.x == 0) s->step = -1;
    for (int i = 0; i < per; i++) {
        int at = threadIdx.x * per + i;
        weights += w[i] = (gpu_u64)s->high[at] << 32 | s->low[at];
        counts += n[i] = s->count[at];
    }
    *weight = block_scan(weights, s->each, &before_w);
    block_scan(counts, s->each, &before_n);
    for (int i = 0; i < per; i++) {
        gpu_u64 before = by_count ? before_n : before_w, mine = by_count ? n[i] : w[i];
        if (before < target && target <= before + mine) s->step = threadIdx.x * per + i, s->before[0] = before_w, s->before[1] = before_n;
        before_w += w[i], before_n += n[i];
    }
    __syncthreads();
    gpu_sample_cut cut = {INFINITY, NO_CUT};
    if (s->step < 0) return cut;
    gather_step(a, c, s);
    target -= s->before[by_count];
    gpu_u32 key = 0; /* the largest that less than `target` lies under */
    for (int bit = 30; bit >= 0; bit--) {
        gpu_u32 next = key | 1u << bit;
        if (over_step(a, c, s, [&](gpu_u32 b, int) { return b >= next ? 0 : by_count ? 1 : weigh(__uint_as_float(b), c.scale); }) < target) key = next;
    }
    gpu_u64 each = weigh(__uint_as_float(key), c.scale);
    gpu_u64 under = over_step(a, c, s, [&](gpu_u32 b, int) { return b < key ? weigh(__uint_as_float(b), c.scale) : 0; });
    gpu_u64 under_n = over_step(a, c, s, [&](gpu_u32 b, int) { return (gpu_u64)(b < key); });
    gpu_u64 equal = over_step(a, c, s, [&](gpu_u32 b, int) { return (gpu_u64)(b == key); });
    gpu_u64 stay = by_count ? target - under_n : (target - under + each - 1) / each;
    *weight = s->before[0] + under + stay * each;
    cut.below = __uint_as_float(key);
    if (stay >= equal) return cut;
    gpu_u32 id = 0; /* the largest that fewer than `stay` of the equal ones lie under */
    for (int bit = 30; bit >= 0; bit--) {
        gpu_u32 next = id | 1u << bit;
        if (over_step(a, c, s, [&](gpu_u32 b, int at) { return (gpu_u64)(b == key && (gpu_u32)at < next); }) < stay) id = next;
    }
    cut.id = (int)id;
    return cut;
}

/* One block a row. Shared memory: cut_space. */
KERNEL_OF(sample_cut, gpu_sample_args, GPU_CUT_THREADS, 1) {
    SHARED_MEMORY(gpu_u64, memory);
    cut_space *s = (cut_space *)memory;
    gpu_i64 row = blockIdx.x;
    gpu_sample_row r = a.rows[row];
    gpu_sample_best best = row_best(a, row);
    if (!has_cut(a, r) || !(r.scale > 0) || !is_finite(best.most)) return;
    bool by_count = r.top_k > 0 && r.top_k < a.vocab, by_weight = r.top_p < 1ull << 53;
    gpu_u64 total = 0;
    for (gpu_i64 i = threadIdx.x; i < a.splits; i += GPU_CUT_THREADS) total += a.sums[row * a.splits + i];
    total = block_sum_u64(total, s->each);
    float range = best.most - best.least, limit = 40.0f / r.scale;
    if (range > limit) range = limit;
    cut_row c = {a.logits + row * a.stride, best.most, r.scale, range > 0 ? (float)(STEPS - 1) / range : 0, INFINITY};
    if (c.per_step > 1e30f) c.per_step = 1e30f;
    if (!by_count) { /* what lies below 2^-(t + 1) of the best makes less than top-p leaves out, with room for rounding */
        gpu_u64 least_weight = part_of((1ull << 53) - r.top_p, total) / (gpu_u64)a.vocab;
        int t = 0;
        while (t <= WEIGH_BITS && least_weight >> (WEIGH_BITS - t) == 0) t++;
        c.limit = ((float)t + 1.0f) / r.scale;
    }
    count_steps(a, c, s);
    gpu_u64 weight = total;
    gpu_sample_cut cut = {INFINITY, NO_CUT};
    if (by_count) cut = find_cut(a, c, s, true, (gpu_u64)r.top_k, &weight);
    if (by_weight) {
        gpu_u64 target = part_of(r.top_p, weight), all;
        cut = find_cut(a, c, s, false, target ? target : 1, &all);
    }
    if (threadIdx.x == 0) a.cut[row] = cut;
}
