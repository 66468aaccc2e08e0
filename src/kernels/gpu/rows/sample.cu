/* kernels/gpu/rows/sample.cu: the next token of each row of logits, by the definition in kernels/sampling/sample.c.
 *
 * A row (163,840 logits, 655 KB) is cut into `splits` parts, a block each, and read once for its largest logit (with
 * the check for NaN and infinities), once for the sums of its weights, of 256 tokens each; the draw looks at those
 * and at one of the 256. Where top-k or top-p cut tokens off, one block a row finds in between the last token that
 * stays: a histogram over 4096 steps of the logit, then the tokens of the step where the wanted count or weight is
 * reached, sorted. Sums are whole numbers: atomics and any order give the same. */
#include "kernels/gpu/device/sm90.cuh"
#include "kernels/sampling/sample_weight.h"

enum { NO_CUT = 0x7fffffff };

/* share * whole / 2^53, rounded down; the product has less than 2^117. */
static __device__ inline gpu_u64 sample_part_of(gpu_u64 share, gpu_u64 whole) {
    return __umul64hi(share, whole) << 11 | share * whole >> 53;
}

/* ---- reductions over a block of any number of warps ---- */
static __device__ inline gpu_u64 shuffle_u64(gpu_u64 v, int from) {
    gpu_u32 low = (gpu_u32)__shfl_sync(~0u, (int)(gpu_u32)v, from),
            high = (gpu_u32)__shfl_sync(~0u, (int)(gpu_u32)(v >> 32), from);
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
    if (v > b.max || (v == b.max && id < b.id)) b.max = v, b.id = id;
    if (low < b.min) b.min = low;
}
static __device__ inline gpu_sample_best warp_best(gpu_sample_best b) {
    for (int d = 16; d; d >>= 1) {
        float v = __shfl_xor_sync(~0u, b.max, d), low = __shfl_xor_sync(~0u, b.min, d);
        int id = __shfl_xor_sync(~0u, b.id, d);
        take_best(b, v, id, low);
    }
    return b;
}

/* Set `number` of tokens that may come, in words of 32; 0: nullptr, all may. */
static __device__ inline const gpu_u32 *mask_of(const gpu_sample_args &a, gpu_i64 number) {
    return number ? (const gpu_u32 *)(a.masks + (number - 1) * a.mask_words) : nullptr;
}
static __device__ inline bool may_come(const gpu_u32 *mask, gpu_i64 id) {
    return !mask || (mask[id / 32] >> id % 32 & 1);
}
/* Those of 4 tokens from id on, a multiple of 4: a bit each. */
static __device__ inline gpu_u32 four_may_come(const gpu_u32 *mask, gpu_i64 id) {
    return mask ? mask[id / 32] >> id % 32 : ~0u;
}

/* Calls f(id, logit, may it come) for the tile's tokens; a warp's lanes in turns of 4 neighbours where they are
 * aligned. */
template <typename F>
static __device__ inline void over_tile(const gpu_sample_args &a, const float *x, const gpu_u32 *mask, gpu_i64 tile,
                                        F f) {
    gpu_i64 at = tile * GPU_SAMPLE_TILE, to = min64(at + GPU_SAMPLE_TILE, a.vocab);
    int lane = threadIdx.x % 32;
    if (a.aligned && to - at == GPU_SAMPLE_TILE) {
        float4 v[GPU_SAMPLE_TILE / 128];
#pragma unroll
        for (int i = 0; i < GPU_SAMPLE_TILE / 128; i++) v[i] = *(const float4 *)(x + at + i * 128 + lane * 4);
#pragma unroll
        for (int i = 0; i < GPU_SAMPLE_TILE / 128; i++) {
            int id = (int)at + i * 128 + lane * 4;
            gpu_u32 in = four_may_come(mask, id);
            f(id, v[i].x, in & 1), f(id + 1, v[i].y, in >> 1 & 1), f(id + 2, v[i].z, in >> 2 & 1),
                f(id + 3, v[i].w, in >> 3 & 1);
        }
    } else {
        for (gpu_i64 t = at + lane; t < to; t += 32) f((int)t, x[t], may_come(mask, t));
    }
}

/* Grid: splits, rows; a warp a tile. */
KERNEL(sample_max, gpu_sample_args) {
    __shared__ gpu_sample_best each[GPU_WARPS];
    gpu_i64 row = blockIdx.y, from = blockIdx.x * a.split, to = min64(from + a.split, a.vocab);
    const gpu_u32 *mask = mask_of(a, a.rows[row].mask);
    gpu_sample_best b = {-INFINITY, 0x7fffffff, INFINITY, 0};
    bool bad = false;
    for (gpu_i64 tile = from / GPU_SAMPLE_TILE + threadIdx.x / 32; tile * GPU_SAMPLE_TILE < to; tile += GPU_WARPS) {
        float top = -INFINITY;
        over_tile(a, a.logits + row * a.stride, mask, tile, [&](int id, float v, bool in) {
            bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
            if (!in) return;
            if (v > b.max || b.id == 0x7fffffff) b.max = v, b.id = id;
            b.min = v < b.min ? v : b.min;
            top = v > top ? v : top;
        });
        top = warp_max(top);
        if (threadIdx.x % 32 == 0) a.tops[row * a.tiles + tile] = top;
    }
    b = warp_best(b);
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = b;
    if (__syncthreads_or(bad) && threadIdx.x == 0 && a.bad[row] == 0) a.bad[row] = a.mark;
    if (threadIdx.x) return;
    for (int w = 1; w < GPU_WARPS; w++) take_best(b, each[w].max, each[w].id, each[w].min);
    a.best[row * a.splits + blockIdx.x] = b;
}

/* The row's, from its parts, by one warp; the same in each lane. */
static __device__ inline gpu_sample_best row_best(const gpu_sample_args &a, gpu_i64 row) {
    gpu_sample_best b = {-INFINITY, 0x7fffffff, INFINITY, 0};
    for (gpu_i64 s = threadIdx.x % 32; s < a.splits; s += 32) {
        gpu_sample_best p = a.best[row * a.splits + s];
        take_best(b, p.max, p.id, p.min);
    }
    b = warp_best(b);
    if (b.id >= a.vocab) b.id = 0; /* NaN in front: any */
    return b;
}
static __device__ inline bool is_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }
static __device__ inline bool by_count(const gpu_sample_args &a, const gpu_sample_row &r) {
    return r.top_k > 0 && r.top_k < a.vocab;
}
static __device__ inline bool has_cut(const gpu_sample_args &a, const gpu_sample_row &r) {
    return by_count(a, r) || r.top_p < 1ull << 53;
}
/* May a token so far below the best have one? What is further below has none. */
static __device__ inline bool has_weight(float below, float scale) { return SAMPLE_WEIGHT_MUL(below, scale) < 40.0f; }

/* ---- sums of weights ---- */

/* The weight of a token that stays, else 0. Tokens stay up to `cut`, equal ones up to its id. */
static __device__ inline gpu_u64 kept_weight(const gpu_sample_row &r, const gpu_sample_cut &cut, float max_logit,
                                             int id, float logit) {
    float below = max_logit - logit;
    gpu_u64 w = sample_weight(below, r.scale);
    if (below > cut.below || (below == cut.below && id > cut.id) || w < r.min_weight) w = 0;
    return w;
}
static __device__ inline gpu_sample_cut cut_of(const gpu_sample_args &a, const gpu_sample_row &r, gpu_i64 row) {
    gpu_sample_cut all = {INFINITY, NO_CUT};
    return has_cut(a, r) ? a.cut[row] : all;
}

/* Grid: splits, rows; a warp a tile. First the full weights of rows with top-p alone and the kept ones of rows
 * without a cut; after_cut: rows with a cut. A tile whose best token is cut off, or has no weight, is not read. */
KERNEL(sample_sum, gpu_sample_args) {
    gpu_i64 row = blockIdx.y, from = blockIdx.x * a.split, to = min64(from + a.split, a.vocab);
    const float *x = a.logits + row * a.stride;
    gpu_sample_row r = a.rows[row];
    const gpu_u32 *mask = mask_of(a, r.mask);
    bool cuts = has_cut(a, r);
    float max_logit = row_best(a, row).max;
    if (!(r.scale > 0) || !is_finite(max_logit) || (a.after_cut ? !cuts : by_count(a, r))) return;
    gpu_sample_cut cut = {INFINITY, NO_CUT};
    if (a.after_cut) cut = a.cut[row];
    if (cuts && !a.after_cut) r.min_weight = 0;
    for (gpu_i64 tile = from / GPU_SAMPLE_TILE + threadIdx.x / 32; tile * GPU_SAMPLE_TILE < to; tile += GPU_WARPS) {
        gpu_u64 sum = 0;
        float below = max_logit - a.tops[row * a.tiles + tile];
        if (has_weight(below, r.scale) && !(below > cut.below)) {
            over_tile(a, x, mask, tile, [&](int id, float v, bool in) {
                if (in) sum += kept_weight(r, cut, max_logit, id, v);
            });
            sum = warp_sum_u64(sum);
        }
        if (threadIdx.x % 32 == 0) a.sums[row * a.tiles + tile] = sum;
    }
}

/* ---- the draw ---- */

/* One block a row: finds the tile in which the running sum passes `want`, and there the token. */
KERNEL(sample_pick, gpu_sample_args) {
    __shared__ gpu_u64 each[GPU_WARPS], found_before;
    __shared__ gpu_i64 found;
    gpu_i64 row = blockIdx.x, per = (a.tiles + GPU_THREADS - 1) / GPU_THREADS, from = threadIdx.x * per,
            end = min64(from + per, a.tiles);
    gpu_sample_row r = a.rows[row];
    gpu_sample_best best = row_best(a, row);
    if (!(r.scale > 0) || !is_finite(best.max)) {
        if (threadIdx.x == 0) a.ids[row] = best.id;
        return;
    }
    gpu_sample_cut cut = cut_of(a, r, row);
    const gpu_u64 *sums = a.sums + row * a.tiles;
    if (threadIdx.x == 0) found = 0, found_before = 0;
    gpu_u64 before, mine = 0;
    for (gpu_i64 t = from; t < end; t++) mine += sums[t];
    gpu_u64 want = sample_part_of(r.u, block_scan(mine, each, &before));
    for (gpu_i64 t = from; t < end; t++) {
        if (before <= want && want < before + sums[t]) found = t, found_before = before;
        before += sums[t];
    }
    __syncthreads();
    gpu_i64 t = found * GPU_SAMPLE_TILE + threadIdx.x;
    bool in = t < a.vocab && may_come(mask_of(a, r.mask), t);
    mine = in ? kept_weight(r, cut, best.max, (int)t, a.logits[row * a.stride + t]) : 0;
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
static_assert(sizeof(cut_space) <= GPU_CUT_SHARED, "params.h");

/* What is looked at in a row: tokens that may come, have a weight and lie before `last`. */
typedef struct {
    const float *x, *tops;
    float max_logit, scale, per_step;
    gpu_sample_cut last;
    int mask; /* its number, not its place: registers are few here */
    bool by_count;
} cut_row;

static __device__ inline int sample_step_of(const cut_row &c, float below) {
    int s = (int)(below * c.per_step);
    return s < STEPS ? s : STEPS - 1;
}
static __device__ inline bool is_in(const gpu_sample_args &a, const cut_row &c, float below, int id) {
    if (!(below >= 0)) return false; /* what may not come can lie above the best */
    if (below > c.last.below || (below == c.last.below && id > c.last.id)) return false;
    /* to there it has one surely */
    if (!(SAMPLE_WEIGHT_MUL(below, c.scale) < SAMPLE_WEIGHT_BITS - 1) && !sample_weight(below, c.scale)) return false;
    return !c.mask || may_come(mask_of(a, c.mask), id);
}
static __device__ inline gpu_u64 measure(const cut_row &c, float below) {
    return c.by_count ? 1 : sample_weight(below, c.scale);
}

/* Calls f for all tokens of tiles whose best one is in, and not behind the last step wanted. A warp looks at 32
 * tiles at once, then reads those that are wanted, two at a time. Ends early when `enough` says so. */
template <typename E, typename F>
static __device__ inline void each_token(const gpu_sample_args &a, const cut_row &c, int last_step, E enough, F f) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (gpu_i64 base = 0; base < a.tiles; base += 32 * CUT_WARPS) {
        gpu_i64 mine = base + lane * CUT_WARPS + warp;
        float below = mine < a.tiles ? c.max_logit - c.tops[mine] : INFINITY;
        gpu_u32 wanted = __ballot_sync(~0u, has_weight(below, c.scale) && !(below > c.last.below) &&
                                                sample_step_of(c, below) <= last_step);
        while (wanted && !enough()) {
            int one = __popc((wanted & (0u - wanted)) - 1);
            wanted &= wanted - 1;
            int two = wanted ? __popc((wanted & (0u - wanted)) - 1) : -1;
            wanted &= wanted - 1;
            gpu_i64 tile = base + one * CUT_WARPS + warp, other = base + two * CUT_WARPS + warp;
            if (two < 0 || !a.aligned || (tile + 1) * GPU_SAMPLE_TILE > a.vocab ||
                (other + 1) * GPU_SAMPLE_TILE > a.vocab) {
                over_tile(a, c.x, nullptr, tile, [&](int id, float v, bool) { f(id, v); });
                if (two >= 0) over_tile(a, c.x, nullptr, other, [&](int id, float v, bool) { f(id, v); });
                continue;
            }
            float4 v[4]; /* all under way before the first is looked at */
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = *(const float4 *)(c.x + (i < 2 ? tile : other) * GPU_SAMPLE_TILE + i % 2 * 128 + lane * 4);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int id = (int)(i < 2 ? tile : other) * GPU_SAMPLE_TILE + i % 2 * 128 + lane * 4;
                f(id, v[i].x), f(id + 1, v[i].y), f(id + 2, v[i].z), f(id + 3, v[i].w);
            }
        }
    }
}
static __device__ inline bool never() { return false; }

/* The sums of the steps. */
static __device__ inline void count_steps(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    for (int i = threadIdx.x; i < STEPS; i += GPU_CUT_THREADS) s->low[i] = s->high[i] = 0;
    __syncthreads();
    each_token(a, c, STEPS, never, [&](int id, float v) {
        float below = c.max_logit - v;
        if (!is_in(a, c, below, id)) return;
        gpu_u64 w = measure(c, below);
        int i = sample_step_of(c, below);
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

static __device__ inline void sample_add_candidate(cut_space *s, float below, int id) {
    int at = atomicAdd(&s->n_candidates, 1);
    if (at < CANDIDATES) s->below[at] = __float_as_uint(below), s->id[at] = id;
}
/* The tokens of step s->step, in any order; more than there is room for are only counted. */
static __device__ inline void gather_step(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    if (threadIdx.x == 0) s->n_candidates = 0;
    __syncthreads();
    each_token(a, c, s->step, never, [&](int id, float v) {
        float below = c.max_logit - v;
        if (sample_step_of(c, below) == s->step && is_in(a, c, below, id)) sample_add_candidate(s, below, id);
    });
    __syncthreads();
}
/* All tokens that are in, unless they are more than one a thread: then some. */
static __device__ inline void gather_all(const gpu_sample_args &a, const cut_row &c, cut_space *s) {
    if (threadIdx.x == 0) s->n_candidates = 0;
    __syncthreads();
    each_token(
        a, c, STEPS, [&]() { return *(volatile int *)&s->n_candidates > GPU_CUT_THREADS; },
        [&](int id, float v) {
            float below = c.max_logit - v;
            if (is_in(a, c, below, id)) sample_add_candidate(s, below, id);
        });
    __syncthreads();
}

/* Sorts one value a thread, ascending (Batcher's bitonic sorter): partners in a warp by shuffles, others through
 * memory. */
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
template <typename F>
static __device__ inline gpu_u64 over_step(const gpu_sample_args &a, const cut_row &c, cut_space *s, F f) {
    gpu_u64 sum = 0;
    if (s->n_candidates <= CANDIDATES)
        for (int i = threadIdx.x; i < s->n_candidates; i += GPU_CUT_THREADS) sum += f(s->below[i], s->id[i]);
    else
        each_token(a, c, s->step, never, [&](int id, float v) {
            float below = c.max_logit - v;
            if (sample_step_of(c, below) == s->step && is_in(a, c, below, id)) sum += f(__float_as_uint(below), id);
        });
    return block_sum_u64(sum, s->each);
}

/* The same for any number of them, bit by bit: slow, for steps with many equal logits. */
static __device__ inline void find_by_bits(const gpu_sample_args &a, const cut_row &c, cut_space *s, gpu_u64 target) {
    gpu_u32 key = 0, id = 0; /* the largest that less than `target` lies under */
    for (int bit = 30; bit >= 0; bit--) {
        gpu_u32 next = key | 1u << bit;
        if (over_step(a, c, s, [&](gpu_u32 b, int) { return b >= next ? 0 : measure(c, __uint_as_float(b)); }) < target)
            key = next;
    }
    target -= over_step(a, c, s, [&](gpu_u32 b, int) { return b < key ? measure(c, __uint_as_float(b)) : 0; });
    for (int bit = 30; bit >= 0; bit--) {
        gpu_u32 next = id | 1u << bit;
        if (over_step(a, c, s, [&](gpu_u32 b, int at) {
                return b == key && (gpu_u32)at < next ? measure(c, __uint_as_float(b)) : 0;
            }) < target)
            id = next;
    }
    if (threadIdx.x == 0) s->cut.below = __uint_as_float(key), s->cut.id = (int)id;
}

/* s->cut = the first token, best first, at which the running measure reaches `target`(total) > 0; none: c.last. */
template <typename F>
static __device__ inline void find_cut(const gpu_sample_args &a, const cut_row &c, cut_space *s, F target_of) {
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

/* Tokens that are further below than `top_k` tiles' best ones are not among the top_k best. */
static __device__ inline float bound_of(const gpu_sample_args &a, const cut_row &c, cut_space *s, gpu_i64 top_k) {
    if (top_k < 1 || top_k > a.tiles || a.tiles > GPU_CUT_THREADS) return INFINITY;
    gpu_u64 below = ~0ull;
    if ((gpu_i64)threadIdx.x < a.tiles) below = __float_as_uint(c.max_logit - c.tops[threadIdx.x]);
    below = sort_values(below, s->order);
    __syncthreads();
    if ((int)threadIdx.x == top_k - 1) s->order[0] = below;
    __syncthreads();
    float bound = __uint_as_float((gpu_u32)s->order[0]);
    __syncthreads();
    return bound;
}

/* s->cut from all tokens that are in, one a thread at most. total: of top-p alone; false if those that are in do not
 * reach its share. */
static __device__ inline bool cut_sorted(const gpu_sample_args &a, const cut_row &c, const gpu_sample_row &r,
                                         cut_space *s, gpu_u64 total) {
    int me = threadIdx.x, stay = by_count(a, r) && r.top_k < s->n_candidates ? r.top_k : s->n_candidates;
    gpu_u64 key = ~0ull, before;
    if (me < s->n_candidates) key = (gpu_u64)s->below[me] << 32 | (gpu_u32)s->id[me];
    if (me == 0) s->cut = c.last;
    key = sort_values(key, s->order);
    float below = __uint_as_float((gpu_u32)(key >> 32));
    gpu_u64 mine = me < stay ? sample_weight(below, c.scale) : 0, all = block_scan(mine, s->each, &before);
    bool last = me == stay - 1 && stay < s->n_candidates, reached = true;
    if (r.top_p < 1ull << 53) {
        gpu_u64 target = sample_part_of(r.top_p, by_count(a, r) ? all : total);
        if (!target) target = 1;
        last = before < target && target <= before + mine;
        reached = target <= all;
    }
    if (last) s->cut.below = below, s->cut.id = (int)(gpu_u32)key;
    __syncthreads();
    return reached;
}

/* The same for any number of tokens. */
static __device__ inline void cut_by_steps(const gpu_sample_args &a, cut_row &c, const gpu_sample_row &r, cut_space *s,
                                           gpu_u64 total) {
    if (by_count(a, r)) {
        c.by_count = true;
        find_cut(a, c, s, [&](gpu_u64) { return (gpu_u64)r.top_k; });
        c.last = s->cut;
        c.by_count = false;
        if (is_finite(c.last.below)) c.per_step = steps_over(c.last.below, r.scale);
        __syncthreads();
    }
    if (r.top_p < 1ull << 53)
        find_cut(a, c, s, [&](gpu_u64 all) {
            gpu_u64 target = sample_part_of(r.top_p, total ? total : all);
            return target ? target : 1;
        });
}

/* One block a row. Shared memory: cut_space. */
KERNEL_OF(sample_cut, gpu_sample_args, GPU_CUT_THREADS, 1) {
    SHARED_MEMORY(gpu_u64, memory);
    cut_space *s = (cut_space *)memory;
    gpu_i64 row = blockIdx.x;
    gpu_sample_row r = a.rows[row];
    gpu_sample_best best = row_best(a, row);
    if (!has_cut(a, r) || !(r.scale > 0) || !is_finite(best.max)) return;
    cut_row c = {a.logits + row * a.stride,
                 a.tops + row * a.tiles,
                 best.max,
                 r.scale,
                 0,
                 {INFINITY, NO_CUT},
                 (int)r.mask,
                 false};
    gpu_u64 total = 0, near = 0;
    float limit = INFINITY, bound = INFINITY;
    bool tries = true;
    if (by_count(a, r)) {
        limit = bound = bound_of(a, c, s, r.top_k);
    } else { /* what lies below 2^-(t + 1) of the best makes less than top-p leaves out, with room for rounding */
        if (a.vocab > GPU_CUT_THREADS)
            bound = bound_of(a, c, s, min64(a.tiles * 5 / 8, GPU_CUT_THREADS / 2)); /* about 600 tokens lie before it */
        for (gpu_i64 i = threadIdx.x; i < a.tiles; i += GPU_CUT_THREADS) {
            gpu_u64 sum = a.sums[row * a.tiles + i];
            total += sum, near += c.max_logit - c.tops[i] <= bound ? sum : 0;
        }
        total = block_sum_u64(total, s->each), near = block_sum_u64(near, s->each);
        gpu_u64 least_weight = sample_part_of((1ull << 53) - r.top_p, total) / (gpu_u64)a.vocab;
        int t = 0;
        while (t <= SAMPLE_WEIGHT_BITS && least_weight >> (SAMPLE_WEIGHT_BITS - t) == 0) t++;
        limit = ((float)t + 1.0f) / r.scale;
        tries = near >= sample_part_of(r.top_p, total); /* else even their tiles as a whole have too little */
    }
    float range = best.max - best.min;
    c.per_step = steps_over(range < limit ? range : limit, r.scale);
    c.last.below = bound < limit ? bound : limit;
    if (tries) gather_all(a, c, s);
    if (!tries || s->n_candidates > GPU_CUT_THREADS || (!cut_sorted(a, c, r, s, total) && bound < limit)) {
        c.last.below = limit;
        cut_by_steps(a, c, r, s, total);
    }
    if (threadIdx.x == 0) a.cut[row] = s->cut;
}
