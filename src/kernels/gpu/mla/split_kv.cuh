/* kernels/gpu/mla/split_kv.cuh: how the fast decode kernels share out their work, and how the pieces of a row that
 * was cut meet.
 *
 * All rows' contexts, in pages of 64 tokens, lie behind each other in one line, which is cut into equal pieces, one a
 * block: every block reads the same number of bytes, whatever the lengths are, and the host need not know them. Where
 * there are blocks enough, rows are filled up to whole pieces, so that no block has the end of one row and the begin
 * of another: it would load two queries and leave two sums, 7 us instead of a page's 1.5 (a.fill; by a plan alone: to
 * every block of every layer it costs more than it gains). A row inside one piece is finished by its block. The
 * blocks of a row that was cut leave their sums, not yet divided, in the workspace, wait for each other at the end of
 * their pieces (there are no more blocks than run at once), and each adds its share of the row's latents, of all
 * pieces in order. Where a row is cut depends on the other rows of the call (not so in the generic kernel): its sums
 * differ in rounding between batches, and are the same in every run. --deterministic (a.deterministic): every row is
 * cut by its own length into units of a few pages, the line of all rows' units into pieces of equal numbers of them,
 * and each unit's sums are kept apart for another launch to add in order. */
#ifndef KERNELS_GPU_MLA_SPLIT_KV_CUH
#define KERNELS_GPU_MLA_SPLIT_KV_CUH
#include "kernels/gpu/device/softmax.cuh"

enum { KV_LATENT = 512, KV_WIDTH = 576 /* values of a KV row in the fast kernels */ };

/* Of a group of rows that of its last. */
static __device__ inline int kv_len_of(const gpu_decode_args &a, gpu_i64 row) {
    return a.kv_len[row * a.group + a.group - 1];
}
static __device__ inline const int *pages_table(const gpu_decode_args &a, gpu_i64 row) {
    return a.pages + (row * a.group + a.group - 1) * a.pages_stride;
}
/* Tokens at the end of the row that head h does not see, because its own row of the group stands before them. */
static __device__ inline int unseen(const gpu_decode_args &a, gpu_i64 h) {
    return a.group > 1 ? a.group - 1 - (int)h / a.group_heads : 0;
}
/* What weights are taken from: the best score, unless there is none yet, because a head sees no token so far. */
static __device__ inline float seen_best(float best) { return best == -INFINITY ? 0.0f : best; }

static __device__ inline int pages_of(const gpu_decode_args &a, gpu_i64 row) {
    return (kv_len_of(a, row) + GPU_PAGE - 1) / GPU_PAGE;
}

/* What the line of all rows consists of: pages, or (a.deterministic) units of so many pages, at most
 * GPU_DETERMINISTIC_UNITS of a row. */
static __device__ inline int unit_pages(const gpu_decode_args &a, int pages) {
    int each = (pages + GPU_DETERMINISTIC_UNITS - 1) / GPU_DETERMINISTIC_UNITS;
    return !a.deterministic ? 1 : each > a.min_pages ? each : a.min_pages;
}
static __device__ inline int units_of(const gpu_decode_args &a, int pages) {
    if (!a.deterministic) return pages;
    int each = unit_pages(a, pages);
    return (pages + each - 1) / each;
}

/* How the line is cut: units in each block's piece; whether rows are filled up to whole ones. It is decided here and in
 * unit_pages alone. */
typedef struct {
    int each;
    bool filled;
} decode_line;

static __device__ inline int pieces_of_rows(const gpu_decode_args &a, int each) {
    int sum = 0;
    for (gpu_i64 i = threadIdx.x % 32; i < a.n; i += 32) sum += (units_of(a, pages_of(a, i)) + each - 1) / each;
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

/* The same in every lane of a warp, which comes here together. A page more a piece may be what filling up takes. FILL:
 * a.fill may be set. */
template <bool FILL> static __device__ inline decode_line line_of(const gpu_decode_args &a) {
    int each = (pieces_of_rows(a, 1) + a.blocks - 1) / a.blocks;
    if (each < a.min_pages && !a.deterministic) each = a.min_pages;
    if (!FILL || !a.fill || a.n >= a.blocks) return {each, false};
    if (pieces_of_rows(a, each) <= a.blocks) return {each, true};
    if (pieces_of_rows(a, each + 1) <= a.blocks) return {each + 1, true};
    return {each, false};
}

/* Of a row of so many pages: its length in the line. */
static __device__ inline int line_units(const gpu_decode_args &a, const decode_line &l, int pages) {
    int units = units_of(a, pages);
    return l.filled ? (units + l.each - 1) / l.each * l.each : units;
}

/* The row that unit `at` of the line belongs to; *start: the row's own first unit in the line. */
static __device__ inline gpu_i64 row_at(const gpu_decode_args &a, const decode_line &l, int at, int *start) {
    int lane = threadIdx.x % 32, before = 0;
    for (gpu_i64 base = 0; base < a.n; base += 32) {
        int mine = base + lane < a.n ? line_units(a, l, pages_of(a, base + lane)) : 0, upto = mine;
        for (int d = 1; d < 32; d *= 2) {
            int left = __shfl_sync(~0u, upto, (lane - d) & 31);
            if (lane >= d) upto += left;
        }
        unsigned past = __ballot_sync(~0u, before + upto > at);
        if (past) {
            int first = __popc((past & (0u - past)) - 1);
            *start = before + __shfl_sync(~0u, upto - mine, first);
            return base + first;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    *start = before;
    return a.n; /* behind all */
}

/* A walk over a block's piece: rows in turn, of each the pages [first, last); a.deterministic: units in turn. */
typedef struct {
    int row, start, at, to; /* in the line: the row's first unit, where the walk is, its end */
    int len, first, last, pages, each;
} decode_walk;

/* Out of the plan: three loads at once, instead of lengths and then tables, one after the other. */
static __device__ inline decode_walk walk_planned(const gpu_decode_args &a) {
    const gpu_decode_piece *p = &a.plan->of[blockIdx.x];
    return {p->row, p->start, p->at, p->to, p->len, p->first, p->last, p->pages, p->each};
}

/* Found here. */
template <bool FILL> static __device__ inline decode_walk walk_found(const gpu_decode_args &a) {
    decode_walk w = {};
    const decode_line l = line_of<FILL>(a);
    w.each = l.each;
    w.at = (int)blockIdx.x * w.each, w.to = w.at + w.each;
    w.row = (int)row_at(a, l, w.at, &w.start);
    if (l.filled && w.row < a.n) { /* what fills the row up is nobody's */
        int end = w.start + pages_of(a, w.row);
        if (w.to > end) w.to = end;
    }
    return w;
}
static __device__ inline decode_walk walk_begin(const gpu_decode_args &a) {
    return a.plan ? walk_planned(a) : walk_found<false>(a);
}
/* Rows of no token (a KV cache in parts has some) have no piece of the line. */
static __device__ inline int with_tokens(const gpu_decode_args &a, int row) {
    while (row < a.n && kv_len_of(a, row) == 0) row++;
    return row;
}
/* The next row's part; false at the end. */
static __device__ inline bool walk_next(const gpu_decode_args &a, decode_walk &w) {
    if (w.pages < 0) { /* known already */
        w.pages = -w.pages;
        return true;
    }
    if (w.pages && a.deterministic) {
        w.at++;
        if (w.last == w.pages) w.start = w.at, w.row = with_tokens(a, w.row + 1);
    } else if (w.pages) {
        w.at = w.start + w.last, w.start += w.pages, w.row = with_tokens(a, w.row + 1);
    }
    if (w.at >= w.to || w.row >= a.n) return false;
    w.len = kv_len_of(a, w.row), w.pages = (w.len + GPU_PAGE - 1) / GPU_PAGE;
    if (a.deterministic) {
        int each = unit_pages(a, w.pages);
        w.first = (w.at - w.start) * each, w.last = w.pages < w.first + each ? w.pages : w.first + each;
        return true;
    }
    w.first = w.at - w.start, w.last = w.pages < w.to - w.start ? w.pages : w.to - w.start;
    return true;
}
static __device__ inline int walk_tokens(const decode_walk &w) {
    return (w.len < w.last * GPU_PAGE ? w.len : w.last * GPU_PAGE) - w.first * GPU_PAGE;
}
/* Of these the last that head h does not see. */
static __device__ inline int hidden_of(const gpu_decode_args &a, const decode_walk &w, gpu_i64 h) {
    int behind = w.len - w.last * GPU_PAGE, n = unseen(a, h) - (behind > 0 ? behind : 0);
    return n > 0 ? n : 0;
}
static __device__ inline bool walk_whole(const decode_walk &w) { return w.first == 0 && w.last == w.pages; }
/* Numbers of pages of the walk's row by a warp, which asks for 32 at once; out of the plan, the first few are here as
 * soon as the walk is. */
typedef struct {
    int planned, table; /* of each lane */
    bool first;         /* the row that the plan has */
} page_numbers;

static __device__ inline page_numbers page_numbers_begin(const gpu_decode_args &a) {
    int lane = threadIdx.x % 32;
    return {a.plan && lane < GPU_PLAN_PAGES ? a.plan->of[blockIdx.x].page[lane] : 0, 0, a.plan != NULL};
}
/* Of page t of [w.first, w.last), which are asked for in turn. */
static __device__ inline int page_number(const gpu_decode_args &a, const decode_walk &w, int t, page_numbers &p) {
    int lane = threadIdx.x % 32, i = t - w.first;
    if (i % 32 == 0 && t + lane < w.last) p.table = pages_table(a, w.row)[t + lane];
    if (p.first && i < GPU_PLAN_PAGES) return __shfl_sync(~0u, p.planned, i);
    return __shfl_sync(~0u, p.table, i % 32);
}

/* May the kernels just before still write page `at` of a row of so many? A step writes the ends of rows, at most 8
 * tokens of one; tables and lengths are there before its first kernel. */
static __device__ inline bool page_is_new(int pages, int at) { return at >= pages - 2; }

/* Where a cut row's sums lie: each block has room for the end of a row that began before it, then for the begin of
 * one. a.deterministic: each unit has. */
static __device__ inline gpu_i64 part_slot(gpu_i64 block, bool begins) { return block * 2 + begins; }
static __device__ inline gpu_i64 walk_slot(const gpu_decode_args &a, const decode_walk &w) {
    return a.deterministic ? w.at : part_slot(blockIdx.x, w.first == 0);
}
static __device__ inline float *part_sums(const gpu_decode_args &a, gpu_i64 slot, gpu_i64 head) {
    return a.part + (slot * a.heads + head) * KV_LATENT;
}
static __device__ inline float *part_state(const gpu_decode_args &a, gpu_i64 slot,
                                           gpu_i64 head) { /* maximum (base 2), sum of weights */
    return a.part + a.slots * a.heads * KV_LATENT + (slot * a.heads + head) * 2;
}

/* The softmax's sum of a row and head from its largest score, base 2, and the sum of weights beside it. */
static __device__ inline void lse_store(const gpu_decode_args &a, gpu_i64 row, gpu_i64 head, float best, float sum) {
    if (a.lse) a.lse[row * a.heads + head] = (best + log2f(sum)) * 0.69314718056f;
}
/* By the blocks of a group of heads together: rows of no token, which no piece has. */
static __device__ inline void lse_of_none(const gpu_decode_args &a, gpu_i64 head0, gpu_i64 heads, int thread) {
    if (!a.lse) return;
    for (gpu_i64 row = blockIdx.x; row < a.n; row += gridDim.x)
        if (kv_len_of(a, row) == 0 && thread < heads) a.lse[row * a.heads + head0 + thread] = -INFINITY;
}

/* ---- the pieces of a row that was cut, in order, into one: out = sum_s w_s o_s / sum_s w_s l_s, w_s = 2^(m_s - max
 * m). Bytes: 2 KiB a head and piece, out of the second-level cache, where they were just written. By JOINERS threads
 * of each of the row's blocks ---- */
enum { JOINERS = 256, JOIN_BYTES = JOINERS * 16 + 1024 * 4 /* of shared memory */ };

/* A block has at most two: the one that began before its piece or goes on behind it, at its piece's begin and at its
 * end. */
typedef struct {
    int row, from, count; /* pieces [from, from + count) */
    gpu_u32 seen;
} cut_row;

static __device__ inline gpu_u32 *meeting_of(const gpu_decode_args &a, const cut_row &c) {
    return a.meetings + 2 * (blockIdx.y * a.blocks + c.from);
}

/* This block's sums of the walk's row are stored: all JOINERS come here, `thread` of them. */
static __device__ inline cut_row cut_leave(const gpu_decode_args &a, const decode_walk &w, int thread) {
    int from = w.start / w.each;
    cut_row c = {w.row, from, (w.start + w.pages - 1) / w.each - from + 1, 0};
    named_barrier_sync(1, JOINERS);
    if (thread == 0) {
        gpu_u32 *m = meeting_of(a, c);
        c.seen = *(volatile gpu_u32 *)(m + 1);
        grid_barrier_arrive(m, (gpu_u32)c.count);
    }
    return c;
}

/* w_s of heads [head, head + heads) of the row, [heads][count], behind them the sums of weights [heads]. A warp a
 * head. first: is the first head's first latent among this block's, which then stores its lse? */
static __device__ inline void join_weights(const gpu_decode_args &a, const cut_row &c, int head, int heads, bool first,
                                           float *weights, int thread) {
    enum { AT_ONCE = 9 /* of 32 pieces */ };
    int lane = thread % 32;
    for (int h = thread / 32; h < heads; h += JOINERS / 32) {
        float m[AT_ONCE], l[AT_ONCE], top = -INFINITY, sum = 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int k = i * 32 + lane;
            m[i] = -INFINITY, l[i] = 0;
            if (k < c.count) {
                float2 state = ld_cg2(part_state(a, part_slot(c.from + k, k == 0), head + h));
                m[i] = state.x, l[i] = state.y;
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) top = max_nan(top, m[i]);
        top = warp_max(top);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float weight = i * 32 + lane < c.count ? exp2f(m[i] - top) : 0.0f;
            sum += l[i] * weight;
            if (i * 32 + lane < c.count) weights[h * c.count + i * 32 + lane] = weight;
        }
        sum = warp_sum(sum);
        if (lane == 0) weights[heads * c.count + h] = sum;
        if (lane == 0 && (h || first)) lse_store(a, c.row, head + h, top, sum);
    }
}

static __device__ inline void cut_add_piece(float4 &o, const float4 v, float f) {
    o.x = fmaf(v.x, f, o.x), o.y = fmaf(v.y, f, o.y), o.z = fmaf(v.z, f, o.z), o.w = fmaf(v.w, f, o.w);
}

/* Columns [first, first + mine) of four latents each, behind each other over the heads from head0 on, by `groups`
 * groups of threads that have every groups-th piece. COLS columns of PIECES pieces at once. */
template <int COLS, int PIECES>
static __device__ inline void join_columns(const gpu_decode_args &a, const cut_row &c, int head0, int first, int mine,
                                           int groups, const float *weights, float4 *sums, int thread) {
    int cols = JOINERS / groups, group = thread / cols, low = first / 128, heads = (first + mine - 1) / 128 - low + 1;
    for (int j = thread % cols; j < (groups > 1 ? cols : mine); j += cols * COLS) {
        float4 o[COLS];
#pragma unroll
        for (int x = 0; x < COLS; x++) o[x] = {0, 0, 0, 0};
        for (int k = group; k < c.count; k += groups * PIECES) {
            float4 v[COLS][PIECES];
#pragma unroll
            for (int x = 0; x < COLS; x++)
#pragma unroll
                for (int y = 0; y < PIECES; y++)
                    if (j + x * cols < mine && k + y * groups < c.count)
                        v[x][y] = ld_cg4(part_sums(a, part_slot(c.from + k + y * groups, k + y == 0), head0) +
                                         4 * (first + j + x * cols));
#pragma unroll
            for (int x = 0; x < COLS; x++)
#pragma unroll
                for (int y = 0; y < PIECES; y++)
                    if (j + x * cols < mine && k + y * groups < c.count)
                        cut_add_piece(o[x], v[x][y],
                                      weights[((first + j + x * cols) / 128 - low) * c.count + k + y * groups]);
        }
        if (groups > 1) { /* then mine <= cols, and every thread is here once */
            sums[thread] = o[0];
            named_barrier_sync(1, JOINERS);
            if (group) continue;
            for (int g = 1; g < groups; g++) cut_add_piece(o[0], sums[g * cols + thread], 1.0f);
        }
#pragma unroll
        for (int x = 0; x < COLS; x++) {
            int col = first + j + x * cols;
            if (j + x * cols >= mine) continue;
            float l = weights[heads * c.count + col / 128 - low];
            *(uint2 *)(a.out + ((gpu_i64)c.row * a.heads + head0) * KV_LATENT +
                       4 * col) = {pair_bf16(o[x].x / l, o[x].y / l), pair_bf16(o[x].z / l, o[x].w / l)};
        }
    }
}

/* This block's share of a cut row: all JOINERS come here, after all of the block's pieces. A thread loads AT_ONCE
 * pieces at once. */
template <int AT_ONCE>
static __device__ inline void cut_join(const gpu_decode_args &a, const cut_row &c, int head0, int heads, gpu_u8 *memory,
                                       int thread) {
    int share = (heads * 128 + c.count - 1) / c.count, first = ((int)blockIdx.x - c.from) * share,
        mine = heads * 128 - first, groups = 1;
    if (mine > share) mine = share;
    if (mine <= 0) return;
    while (share * groups * 2 <= JOINERS) groups *= 2;
    float4 *sums = (float4 *)memory;
    float *weights = (float *)(sums + JOINERS);
    if (thread == 0) grid_barrier_wait(meeting_of(a, c), c.seen);
    named_barrier_sync(1, JOINERS);
    join_weights(a, c, head0 + first / 128, (first + mine - 1) / 128 - first / 128 + 1, first % 128 == 0, weights,
                 thread);
    named_barrier_sync(1, JOINERS);
    if (c.count > AT_ONCE / 2) /* else too few pieces for as many loads at once */
        join_columns<1, AT_ONCE>(a, c, head0, first, mine, groups, weights, sums, thread);
    else
        join_columns<AT_ONCE / 4, 4>(a, c, head0, first, mine, groups, weights, sums, thread);
    named_barrier_sync(1, JOINERS); /* the next row's weights may come */
}

static __device__ inline int sum_to_lane(int v) {
    int lane = threadIdx.x % 32;
    for (int d = 1; d < 32; d *= 2) {
        int left = __shfl_sync(~0u, v, (lane - d) & 31);
        if (lane >= d) v += left;
    }
    return v;
}

/* The pieces of up to GPU_SKINNY rows, by a warp. */
static __device__ inline void find_pieces(const gpu_decode_args &a, gpu_decode_rows *s) {
    const decode_line l = line_of<true>(a);
    int lane = threadIdx.x % 32, all = 0, at = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int row = j * 32 + lane, pages = row < a.n ? pages_of(a, row) : 0, units = line_units(a, l, pages),
            begin = sum_to_lane(units) - units + all, from = begin / l.each,
            count = row < a.n ? (begin + pages - 1) / l.each - from + 1 : 0, upto = sum_to_lane(count);
        all = __shfl_sync(~0u, begin + units, 31);
        s->from[row] = from, s->at[row] = at + upto - count;
        at += __shfl_sync(~0u, upto, 31);
    }
    if (lane == 0) s->at[GPU_SKINNY] = at;
}

/* Two values of a query, in bf16, as halves, for keys in halves. Of their range up to 65504 a query has 64 times
 * more; what falls below it is less than 2^-19. */
static const float QUERY_SCALE = 64;
static __device__ inline gpu_u32 query_halves(gpu_u32 two) {
    return pair_half(low_f32(two) * (1 / 64.0f), high_f32(two) * (1 / 64.0f));
}

#endif
