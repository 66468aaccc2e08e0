/* kernels/gpu/sample.cu: the next token of each row of logits, by the definition in kernels/sample.c.
 *
 * A row (163,840 logits, 655 KB) is cut into `splits` parts, a block each, and read once for its largest logit (with the check
 * for NaN and infinities), once for the sums of its weights, of 256 tokens each; the draw looks at those and at one of the 256.
 * Where top-k or top-p cut tokens off, one block a row finds in between the last token that stays: a histogram over 4096 steps of
 * the logit, then the tokens of the step where the wanted count or weight is reached, sorted. Sums are whole numbers: atomics and
 * any order give the same. */
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

/* Grid: splits, rows; a warp a tile. after_cut: rows with a cut, else their full weights and the others' kept ones. */
KERNEL(sample_sum, gpu_sample_args) {
    gpu_i64 row = blockIdx.y, from = blockIdx.x * a.split, to = least(from + a.split, a.vocab);
    const float *x = a.logits + row * a.stride;
    gpu_sample_row r = a.rows[row];
    bool cuts = has_cut(a, r);
    float most = row_best(a, row).most;
    if (!(r.scale > 0) || !is_finite(most) || (a.after_cut && !cuts)) return;
    gpu_sample_cut cut = {INFINITY, NO_CUT};
    if (a.after_cut) cut = a.cut[row];
    if (cuts && !a.after_cut) r.min_weight = 0;
    int lane = threadIdx.x % 32;
    for (gpu_i64 at = from + threadIdx.x / 32 * GPU_SAMPLE_TILE; at < to; at += GPU_WARPS * GPU_SAMPLE_TILE) {
        gpu_u64 sum = 0;
        if (a.aligned && at + GPU_SAMPLE_TILE <= to) {
            float4 v[GPU_SAMPLE_TILE / 128];
#pragma unroll
            for (int i = 0; i < GPU_SAMPLE_TILE / 128; i++) v[i] = *(const float4 *)(x + at + i * 128 + lane * 4);
#pragma unroll
            for (int i = 0; i < GPU_SAMPLE_TILE / 128; i++) {
                int id = (int)at + i * 128 + lane * 4;
                sum += kept_weight(r, cut, most, id, v[i].x) + kept_weight(r, cut, most, id + 1, v[i].y);
                sum += kept_weight(r, cut, most, id + 2, v[i].z) + kept_weight(r, cut, most, id + 3, v[i].w);
            }
        } else {
            for (gpu_i64 t = at + lane; t < to && t < at + GPU_SAMPLE_TILE; t += 32) sum += kept_weight(r, cut, most, (int)t, x[t]);
        }
        sum = warp_sum_u64(sum);
        if (lane == 0) a.sums[row * a.tiles + at / GPU_SAMPLE_TILE] = sum;
    }
}

/* ---- the draw ---- */

/* One block a row: finds the tile in which the running sum passes `want`, and there the token. */
KERNEL(sample_pick, gpu_sample_args) {
    __shared__ gpu_u64 each[GPU_WARPS], found_before;
    __shared__ gpu_i64 found;
    gpu_i64 row = blockIdx.x, per = (a.tiles + GPU_THREADS - 1) / GPU_THREADS, from = threadIdx.x * per, end = least(from + per, a.tiles);
    gpu_sample_row r = a.rows[row];
    gpu_sample_best best = row_best(a, row);
    if (!(r.scale > 0) || !is_finite(best.most)) {
        if (threadIdx.x == 0) a.ids[row] = best.id;
        return;
    }
    gpu_sample_cut cut = cut_of(a, r, row);
    const gpu_u64 *sums = a.sums + row * a.tiles;
    if (threadIdx.x == 0) found = 0, found_before = 0;
    gpu_u64 before, mine = 0;
    for (gpu_i64 t = from; t < end; t++) mine += sums[t];
    gpu_u64 want = part_of(r.u, block_scan(mine, each, &before));
    for (gpu_i64 t = from; t < end; t++) {
        if (before <= want && want < before + sums[t]) found = t, found_before = before;
        before += sums[t];
    }
    __syncthreads();
    gpu_i64 t = found * GPU_SAMPLE_TILE + threadIdx.x;
    mine = t < a.vocab ? kept_weight(r, cut, best.most, (int)t, a.logits[row * a.stride + t]) : 0;
    want -= found_before;
    block_scan(mine, each, &before);
    if (before <= want && want < before + mine) a.ids[row] = (int)t;
}

/* ---- top-k and top-p ---- */

enum { STEPS = 4096, CANDIDATES = 4096, CUT_WARPS = GPU_CUT_THREADS / 32 };

typedef struct {
    gpu_u64 each[CUT_WARPS], before; /* before: of the steps before the one that was found */
    gpu_u32 low[STEPS], high[STEPS]; /* of each step: weights, or how many */
    gpu_u32 below[CANDIDATES];       /* bits of a float that is not negative: they are ordered as it is */
    int id[CANDIDATES];
    gpu_u64 order[GPU_CUT_THREADS];
    int n_candidates, step;
    gpu_sample_cut cut;
} cut_space;

/* What is looked at in a row: tokens that have a weight and lie before `last`. */
typedef struct {
    const float *x;
    float most, scale, per_step;
    gpu_sample_cut last;
    bool by_count;
} cut_row;

static __device__ inline int step_of(const cut_row &c, float below) {
    int s = (int)(below * c.per_step);
    return s < STEPS ? s : STEPS - 1;
}
static __device__ inline bool is_in(const cut_row &c, float below, int id) {
    if (below > c.last.below || (below == c.last.below && id > c.last.id)) return false;
    return WEIGH_MUL(below, c.scale) < WEIGH_BITS - 1 || weigh(below, c.scale); /* to there it has one surely */
}
static __device__ inline gpu_u64 measure(const cut_row &c, float below) { return c.by_count ? 1 : weigh(below, c.scale); }

/* The sums of the steps. */
static __device__ inline void count_steps(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    for (int i = threadIdx.x; i < STEPS; i += GPU_CUT_THREADS) s->low[i] = s->high[i] = 0;
    __syncthreads();
    each_logit(a, c.x, 0, a.vocab, [&](int id, float v) {
        float below = c.most - v;
        if (!is_in(c, below, id)) return;
        gpu_u64 w = measure(c, below);
        int i = step_of(c, below);
        gpu_u32 low = (gpu_u32)w, high = (gpu_u32)(w >> 32);
        if (c.by_count) {
            atomicAdd(&s->low[i], 1u);
            return;
        }
        gpu_u32 was = atomicAdd(&s->low[i], low);
        high += was + low < was;
        if (high) atomicAdd(&s->high[i], high);
    });
    __syncthreads();
}

/* The tokens of step s->step, in any order; more than there is room for are only counted. */
static __device__ inline void gather_step(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    if (threadIdx.x == 0) s->n_candidates = 0;
    __syncthreads();
    each_logit(a, c.x, 0, a.vocab, [&](int id, float v) {
        float below = c.most - v;
        if (step_of(c, below) != s->step || !is_in(c, below, id)) return;
        int at = atomicAdd(&s->n_candidates, 1);
        if (at < CANDIDATES) s->below[at] = __float_as_uint(below), s->id[at] = id;
    });
    __syncthreads();
}

/* Sorts one value a thread, ascending (Batcher's bitonic sorter): partners in a warp by shuffles, others through memory. */
static __device__ inline gpu_u64 sort_values(gpu_u64 v, gpu_u64 *memory) {
    int me = threadIdx.x;
    for (int size = 2; size <= GPU_CUT_THREADS; size *= 2)
        for (int d = size / 2; d; d /= 2) {
            gpu_u64 other;
            if (d < 32) {
                other = shuffle_u64(v, (me % 32) ^ d);
            } else {
                __syncthreads();
                memory[me] = v;
                __syncthreads();
                other = memory[me ^ d];
            }
            bool low = !(me & d) == !(me & size);
            if (low ? other < v : other > v) v = other;
        }
    return v;
}

/* The token of the step at which the running measure reaches `target`, if they are at most one a thread. */
static __device__ inline void find_sorted(const cut_row &c, cut_space *s, gpu_u64 target) {
    gpu_u64 key = ~0ull, before;
    if ((int)threadIdx.x < s->n_candidates) key = (gpu_u64)s->below[threadIdx.x] << 32 | (gpu_u32)s->id[threadIdx.x];
    key = sort_values(key, s->order);
    float below = __uint_as_float((gpu_u32)(key >> 32));
    gpu_u64 mine = key == ~0ull ? 0 : measure(c, below);
    block_scan(mine, s->each, &before);
    if (before < target && target <= before + mine) s->cut.below = below, s->cut.id = (int)(gpu_u32)key;
}

/* The sum of f(bits of below, id) over the tokens of the step. */
template <typename F> static __device__ inline gpu_u64 over_step(const gpu_sample_args &a, const cut_row &c, cut_space *s, F f) {
    gpu_u64 sum = 0;
    if (s->n_candidates <= CANDIDATES)
        for (int i = threadIdx.x; i < s->n_candidates; i += GPU_CUT_THREADS) sum += f(s->below[i], s->id[i]);
    else
        each_logit(a, c.x, 0, a.vocab, [&](int id, float v) {
            float below = c.most - v;
            if (step_of(c, below) == s->step && is_in(c, below, id)) sum += f(__float_as_uint(below), id);
        });
    return block_sum_u64(sum, s->each);
}

/* The same for any number of them, bit by bit: slow, for steps with many equal logits. */
static __device__ inline void find_by_bits(const gpu_sample_args &a, const cut_row &c, cut_space *s, gpu_u64 target) {
    gpu_u32 key = 0, id = 0; /* the largest that less than `target` lies under */
    for (int bit = 30; bit >= 0; bit--) {
        gpu_u32 next = key | 1u << bit;
        if (over_step(a, c, s, [&](gpu_u32 b, int) { return b >= next ? 0 : measure(c, __uint_as_float(b)); }) < target) key = next;
    }
    target -= over_step(a, c, s, [&](gpu_u32 b, int) { return b < key ? measure(c, __uint_as_float(b)) : 0; });
    for (int bit = 30; bit >= 0; bit--) {
        gpu_u32 next = id | 1u << bit;
        if (over_step(a, c, s, [&](gpu_u32 b, int at) { return b == key && (gpu_u32)at < next ? measure(c, __uint_as_float(b)) : 0; }) < target) id = next;
    }
    if (threadIdx.x == 0) s->cut.below = __uint_as_float(key), s->cut.id = (int)id;
}

/* s->cut = the first token, best first, at which the running measure reaches `target`(total) > 0; none: c.last. */
template <typename F> static __device__ inline void find_cut(const gpu_sample_args &a, const cut_row &c, cut_space *s, F target_of) {
    const int per = STEPS / GPU_CUT_THREADS;
    gpu_u64 v[per], sum = 0, before;
    count_steps(a, c, s);
    if (threadIdx.x == 0) s->step = -1, s->cut = c.last;
    for (int i = 0; i < per; i++) {
        int at = threadIdx.x * per + i;
        sum += v[i] = (gpu_u64)s->high[at] << 32 | s->low[at];
    }
    gpu_u64 target = target_of(block_scan(sum, s->each, &before));
    for (int i = 0; i < per; i++) {
        if (before < target && target <= before + v[i]) s->step = threadIdx.x * per + i, s->before = before;
        before += v[i];
    }
    __syncthreads();
    if (s->step >= 0) {
        gather_step(a, c, s);
        target -= s->before;
        if (s->n_candidates <= GPU_CUT_THREADS)
            find_sorted(c, s, target);
        else
            find_by_bits(a, c, s, target);
    }
    __syncthreads();
}

/* 1 over the width of a step: they divide what the logits span, or what has a weight if that is less. */
static __device__ inline float steps_over(float range, float scale) {
    if (range * scale > 40.0f) range = 40.0f / scale;
    float steps = range > 0 ? (STEPS - 1) / range : 0;
    return steps < 1e30f ? steps : 1e30f;
}

/* One block a row. Shared memory: cut_space. */
KERNEL_OF(sample_cut, gpu_sample_args, GPU_CUT_THREADS, 1) {
    SHARED_MEMORY(gpu_u64, memory);
    cut_space *s = (cut_space *)memory;
    gpu_i64 row = blockIdx.x;
    gpu_sample_row r = a.rows[row];
    gpu_sample_best best = row_best(a, row);
    if (!has_cut(a, r) || !(r.scale > 0) || !is_finite(best.most)) return;
    cut_row c = {a.logits + row * a.stride, best.most, r.scale, steps_over(best.most - best.least, r.scale), {INFINITY, NO_CUT}, false};
    gpu_u64 total = 0;
    if (r.top_k > 0 && r.top_k < a.vocab) {
        c.by_count = true;
        find_cut(a, c, s, [&](gpu_u64) { return (gpu_u64)r.top_k; });
        c.last = s->cut;
        c.by_count = false;
        if (is_finite(c.last.below)) c.per_step = steps_over(c.last.below, r.scale);
    } else { /* what lies below 2^-(t + 1) of the best makes less than top-p leaves out, with room for rounding */
        for (gpu_i64 i = threadIdx.x; i < a.tiles; i += GPU_CUT_THREADS) total += a.sums[row * a.tiles + i];
        total = block_sum_u64(total, s->each);
        gpu_u64 least_weight = part_of((1ull << 53) - r.top_p, total) / (gpu_u64)a.vocab;
        int t = 0;
        while (t <= WEIGH_BITS && least_weight >> (WEIGH_BITS - t) == 0) t++;
        c.last.below = ((float)t + 1.0f) / r.scale;
    }
    if (r.top_p < 1ull << 53)
        find_cut(a, c, s, [&](gpu_u64 all) {
            gpu_u64 target = part_of(r.top_p, total ? total : all);
            return target ? target : 1;
        });
    if (threadIdx.x == 0) a.cut[row] = s->cut;
}
