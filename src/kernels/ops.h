/* kernels/ops.h: the contract between the model and every backend.
 *
 * A backend fills the table `ops`. `ref` is plain C in float32 and the definition of correct; `cpu` and `gpu`
 * are held against it by `moonlet check`. Rules that hold for every op:
 *
 * - One argument struct per op. Pointers are 64-bit addresses in the backend's own memory, strides count
 * elements.
 * - Activations have the type ops.act (float32 or bfloat16) unless a comment says otherwise. Arithmetic is
 * float32 (or better) inside an op, with one rounding when a result is stored.
 * - No op allocates. `*_workspace()` tells the bytes that a call needs; the caller owns them.
 * - A weight enters once, through weight_prepare(). cpu and ref keep a view of the mapping, which must
 * outlive it.
 * - Ops run in order; gpu returns before they are done. Ops cannot fail: whoever builds the arguments checks
 * them.
 * - The order in which a row's sums are formed depends on that row alone, never on the other rows of the
 * call: on ref and cpu. On a gpu it is fixed too, but chosen by the number of rows (products, experts) and, in decode
 * attention, by the lengths of the other rows: a request alone and in a batch may differ in rounding there, unless
 * set_row_mode() has said what the rows are.
 * - Only one thread calls; a backend may use many inside.
 *
 * Shapes: n rows (tokens) in a call, H heads, `latent` = kv_lora_rank, a KV row has latent + rope values. */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H
#include "base/err.h"
#include "format/requant.h"

enum { KV_PAGE = 64 }; /* tokens in a page of the KV cache; attention works in tiles of whole pages */

typedef struct op_weight op_weight; /* what a backend made of a weight */

typedef enum {
    WK_LINEAR,  /* one view [out, in] */
    WK_TABLE,   /* one view [vocab, hidden], read by row */
    WK_VECTOR,  /* one view [1, n] in WF_F32 or WF_BF16: norm weights, router bias; kept as float32 */
    WK_KV_B,    /* one view [H * (nope + v_dim), latent]: head h has nope key rows, then v_dim value rows */
    WK_EXPERTS, /* 3 * n_experts views: gate_0, up_0, down_0, gate_1, ...; gate/up [inter, hidden] */
} weight_kind;

typedef struct {
    u64 mapped; /* bytes that stay in the checkpoint's files */
    u64 own;    /* bytes that are allocated */
} weight_memory;

typedef struct {
    weight_kind kind;
    const weight_view *views;
    i64 n_views;
    /* Unless NULL, views have no data before fetch(ud, i) has brought those of views[i], which stay until the next
     * call: for a backend that copies (keeps_views is false), once for each view, in their order. */
    status (*fetch)(void *ud, i64 i, err *e);
    void *ud;
    i64 n_heads, nope, v_dim; /* WK_KV_B only */
    expert_format experts;    /* WK_EXPERTS: the format to keep them in; ST_UNSUPPORTED where a backend cannot */
    /* Unless 0 the views have no data: the backend makes it up from this seed, with zero mean: matrices normal of
     * deviation dummy_sigma, nibbles uniform with scales uniform in +-[0.003, 0.005] (a random sign: uniform nibbles
     * have the mean -1/2, which would add up over the layers until all tokens choose the same experts).
     * ST_UNSUPPORTED where it cannot. */
    u64 dummy_seed;
    f32 dummy_sigma;
    weight_memory *room; /* unless NULL, a plan: what the weight would take is added, no data is looked at, and only the
                          functions *_workspace may be given what comes out */
} weight_desc;

/* out[n, hidden] = table[ids - first]. An id outside the table gives a row of zeros. With `drawn`, an id below 0 is ~j:
 * that of drawn[j], which an earlier call left. With `map`, ids are those of a draft's smaller vocabulary, and map[id]
 * is the table's. */
typedef struct {
    const op_weight *table;
    const i32 *ids;   /* [n] */
    const i32 *drawn; /* NULL: none */
    const i32 *map;   /* [vocabulary of the draft], or NULL */
    void *out;
    i64 n, first; /* first: the id of the table's first row */
} embed_args;
/* The table's row for token i, or any number outside of the table. */
static inline i64 embed_row(const embed_args *a, i64 i) {
    i32 id = a->ids[i];
    id = id < 0 && a->drawn ? a->drawn[~id] : id;
    id = id >= 0 && a->map ? a->map[id] : id;
    return id < 0 ? -1 : id - a->first;
}

/* If add: sum = x + add, rounded, else sum = x. out = sum * rsqrt(mean(sum^2) + eps) * weight. sum may be NULL (not
 * wanted) or alias x. If bad: bad[i] = mark where bad[i] is 0 and row i of the sum holds a NaN or an infinity; other
 * entries stay. */
typedef struct {
    const op_weight *weight; /* [dim] */
    const void *x, *add;     /* [n, dim]; add NULL or the same stride as x */
    void *sum, *out;         /* [n, dim]; sum has x's stride */
    i64 n, dim, x_stride, out_stride;
    f32 eps;
    i32 *bad; /* [n] or NULL */
    i32 mark;
} norm_args;

/* Rows whose norm may not be finished: row i has yet to be multiplied by rsqrt(sum of squares[i, 0..parts) / dim +
 * eps); parts 0: it is. The op that makes the rows fills this in when it is called; one that takes them multiplies,
 * or finishes them in place and clears parts. So a product in front of a norm can add to the residual stream, and
 * the norm needs no pass of its own. */
enum { DEFERRED_ROWS = 64, DEFERRED_PARTS = 512 /* at most */ };
typedef struct {
    f32 *squares; /* [DEFERRED_ROWS, DEFERRED_PARTS] */
    i64 parts, dim;
    f32 eps;
} deferred_norm;

/* y[n, rows] = x[n, cols] W^T. y_type is ops.act or DT_F32 (router logits, logits). What rows of x have behind their
 * columns, up to the next multiple of 8 and below x_stride, is finite: a backend may multiply it with zeros. */
typedef struct {
    const op_weight *w;
    const void *x;
    void *y;
    i64 n, x_stride, y_stride;
    dtype y_type;
} linear_args;

/* out[n, inter] = silu(x gate^T) * (x up^T): the first half of a dense feed-forward layer. */
typedef struct {
    const op_weight *gate, *up; /* [inter, hidden] each */
    const void *x;
    void *out;
    i64 n, x_stride, out_stride;
} swiglu_args;

/* table[n, rope / 2] of (cos, sin) pairs, float32, of positions[n] * inv_freq[rope / 2], the angle in double.
 */
typedef struct {
    const i32 *positions;
    const f64 *inv_freq;
    f32 *table; /* [n, rope / 2, 2] */
    i64 n, rope;
    f64 mscale; /* multiplies cos and sin; 1 for Kimi */
} rope_table_args;

/* Rotates the last `rope` values of every head of q [n, H, nope + rope] in place. Pairs are interleaved:
 * (2j, 2j + 1) turns by angle j (reference DeepSeek-V3 layout, not half-split). */
typedef struct {
    void *q;
    const f32 *table;
    i64 n, n_heads, nope, rope;
} rope_q_args;

/* Writes one KV row per token: RMSNorm of the first `latent` values (weight, eps), then the last `rope`
 * values rotated. Row i goes to kv[slots[i]], where slot = page * KV_PAGE + offset; below 0: nowhere, it is
 * another rank's. */
typedef struct {
    const void *kv_a;      /* [n, latent + rope] */
    const op_weight *norm; /* [latent] */
    const f32 *table;
    const i64 *slots; /* [n] */
    void *kv;         /* kv_type [pages * KV_PAGE, latent + rope], one layer */
    dtype kv_type;    /* DT_F32, DT_BF16 or DT_F8_E4M3 (scale 1) */
    i64 n, latent, rope;
    f32 eps;
} kv_write_args;

/* Absorbed attention, used for decode (DeepSeek-V2, arXiv:2405.04434, section 2.1).
 * absorb_q: out[n, H, latent + rope] = [q_nope_h Wuk_h ; q_rope_h]. */
typedef struct {
    const op_weight *kv_b;
    const void *q; /* [n, H, nope + rope], rotated */
    void *out;
    i64 n, n_heads, nope, rope, latent;
} absorb_q_args;

/* out[n, H, latent] = softmax_j(scale * q . kv_j) kv_j[0..latent), over the kv_len[i] first tokens of row i's
 * sequence. With lse, a row may have none: then its lse is -infinity and its out means nothing. */
typedef struct {
    const void *q;     /* [n, H, latent + rope] */
    const void *kv;    /* one layer's pool */
    const i32 *pages;  /* [n, pages_stride]: page numbers of row i's sequence in order */
    const i32 *kv_len; /* [n], at least 1 */
    void *out;
    f32 *lse; /* [n, H]: log(sum_j(exp(scale * q . kv_j))), for whoever merges parts; NULL: not wanted */
    void *workspace;
    dtype kv_type;
    i64 n, n_heads, latent, rope, pages_stride;
    f32 scale;
    /* > 1: rows come in groups of so many, a divisor of n, of one sequence each, at consecutive positions: a backend
     * may read their KV rows once. Their kv_len is at least 1 */
    i64 group;
    void *plan; /* NULL, or what mla_decode_plan (fused.h) found out of these lengths and pages */
} mla_decode_args;

/* out[n, H, v_dim] = x[n, H, latent] Wuv_h^T. */
typedef struct {
    const op_weight *kv_b;
    const void *x;
    void *out;
    i64 n, n_heads, latent, v_dim;
} unabsorb_v_args;

/* Expanded attention over one sequence, used for prefill: the n rows of q are positions pos0 .. pos0 + n - 1,
 * whose KV rows are written already. Keys and values of each page tile are expanded through kv_b: out[i, h,
 * :] = softmax_{j <= pos0 + i}(scale * (q_nope . k_nope_jh + q_rope . k_rope_j)) v_jh. */
typedef struct {
    const op_weight *kv_b;
    const void *q;    /* [n, H, nope + rope], rotated */
    const void *kv;   /* one layer's pool */
    const i32 *pages; /* [ceil((pos0 + n) / KV_PAGE)] */
    void *out;        /* [n, H, v_dim] */
    void *workspace;
    dtype kv_type;
    i64 n, pos0, n_heads, nope, rope, latent, v_dim;
    f32 scale;
} mla_prefill_args;

/* Attention with keys and values of its own for every KV head, of a Llama-type draft. A KV row has the keys of all KV
 * heads, then their values. Rotary embedding is by halves: the pair (j, j + dim / 2) turns by angle j (unlike rope_q).
 * heads_write: row i of k, rotated, and row i of v go to kv[slots[i]]; below 0: nowhere. */
typedef struct {
    const void *k, *v; /* [n, KV heads, dim], k not rotated */
    const f32 *table;  /* [n, dim / 2, 2], as rope_table leaves it with rope = dim */
    const i64 *slots;  /* [n] page * KV_PAGE + offset, as kv_write */
    void *kv;          /* kv_type [pages * KV_PAGE, 2, KV heads, dim], one layer */
    dtype kv_type;     /* DT_F32, DT_BF16 or DT_F8_E4M3 (scale 1), as kv_write */
    i64 n, kv_heads, dim;
} heads_write_args;

/* out[n, H, dim] = softmax_j(scale * q_h . k_j) v_j over the kv_len[i] first tokens of row i's sequence. Head h reads
 * KV head h / (H / kv_heads); H is a multiple of kv_heads. q is rotated inside, by halves, and not rounded there. */
typedef struct {
    const void *q;     /* [n, H, dim], not rotated */
    const f32 *table;  /* [n, dim / 2, 2] */
    const void *kv;    /* one layer's pool, as heads_write leaves it */
    const i32 *pages;  /* [n, pages_stride]: page numbers of row i's sequence in order */
    const i32 *kv_len; /* [n], at least 1 */
    void *out;         /* [n, H, dim], not q */
    void *workspace;
    dtype kv_type;
    i64 n, n_heads, kv_heads, dim, pages_stride;
    f32 scale;
} heads_decode_args;

/* Where an expert is, for a rank that has some of them: in its slot `slot`, and in those of `copies` ranks altogether,
 * of which every copies-th row is this one's, from row `turn` on. EXPERT_ELSEWHERE: not here. */
enum { EXPERT_ELSEWHERE = -1, EXPERT_SLOTS_MAX = 1 << 16, EXPERT_COPIES_MAX = 64 };
static inline i32 expert_route(i64 slot, i64 copies, i64 turn) { return (i32)(slot | copies << 16 | turn << 24); }
/* The slot of row `row`'s expert, or -1. */
static inline i32 expert_slot(i32 route, i64 row) {
    if (route < 0 || row % (route >> 16 & 0xff) != route >> 24) return -1;
    return route & 0xffff;
}

/* The K2 gate: s = sigmoid(logits); the k largest s + bias are chosen (ties: lowest index), in descending
 * order; weights are s of the chosen, divided by their sum + 1e-20 if norm_topk, times scale. A row with a
 * NaN gets ids 0..k-1 and weights NaN, which the finite check of the layer then reports. */
typedef struct {
    const f32 *logits;     /* [n, n_experts] */
    const op_weight *bias; /* [n_experts] */
    i32 *ids;              /* [n, k] */
    f32 *weights;          /* [n, k] */
    i64 n, n_experts, k;
    bool norm_topk;
    f32 scale;
    const i32 *routes; /* [n_experts] of expert_route(); NULL: all experts are here */
    i32 *slots;        /* [n, k]: the expert_slot() of each id; not written without routes */
    u32 *counts;       /* [n_experts], to which the rows are added that chose each, or NULL */
} gate_args;

/* out[i] = sum_s weights[i, s] * y[i * k + s] + shared[i], summed over s in order, then the shared expert. k may be
 * 0. */
typedef struct {
    const void *y;      /* [n * k, dim] */
    const f32 *weights; /* [n, k] */
    const void *shared; /* [n, dim] or NULL */
    void *out;          /* [n, dim] */
    i64 n, k, dim;
} sum_pairs_args;

/* Where the rows of a result [n, hidden] are wanted as well as in one piece: `count` parts of as many rows, rounded up,
 * of which the last ones may have fewer or none. A backend that can puts them there, and sets `taken`. */
typedef struct {
    void *const *at; /* [count] */
    i64 count;
    bool taken;
} row_parts;

/* out[i] = sum_s weights[i, s] * E_ids[i, s](x[i]) + shared[i], summed over s in order, then the shared expert; E(x)
 * = down(silu(gate x) * up x). An id of -1, or of no expert, contributes nothing. Equal ids in a row count each
 * time.
 *
 * EXPERTS_W4A8 and a call that moe_is_int8() picks: x[i], and h = silu(gate x) * up x after rounding to bf16, are
 * taken as q * scale with scale = most / 127, most the largest |value| of the row, and q = value * (127 / most) to
 * nearest even. A row with a NaN or an infinity has the scale NaN, one whose largest is below 2^-100 the scale 0; its q
 * are 0. The INT4 numbers n of a group become int8, too: floor((n * m + 8) / 16) with m = the group's scale * (256 /
 * most) to nearest even, where most is the largest of the row's scales (as bf16; the bits of a negative one, without
 * its sign, count 2 more, so that n * m / 16 stays a byte). Where all of a row's scales are one, m is 256 and the bytes
 * are 16 n. The row's scale is most / 16: NaN for a most that is no number, 0 for one below 2^-100. Sums of the
 * products of bytes are whole numbers and exact; such a sum times (the row's scale times x's) is the product. */
typedef struct {
    const op_weight *experts;
    const void *x;      /* [n, hidden] */
    const i32 *ids;     /* [n, k] */
    const f32 *weights; /* [n, k] */
    const void *shared; /* [n, hidden] or NULL */
    void *out;          /* [n, hidden], not x */
    void *workspace;
    i64 n, k;
    deferred_norm *deferred; /* of x, or NULL */
    bool prepared;           /* gate_linear has said so of this call (fused.h) */
    i64 among; /* experts that were chosen among, of which these are some: how many pairs to expect; 0: no more */
    row_parts *parts; /* of out, which then need not be written; NULL: there is no other place */
} moe_args;

/* Few tokens an expert: the bytes of the weights are what counts, and activations stay as they are. `mean` is the
 * backend's ops.int8_mean. */
enum {
    INT8_MEAN = 8, /* pairs an expert: GPUs, and ref */
    INT8_BLOCK = 64,
    INT8_COLUMNS = 1 << 16 /* sums of 127 * 255 stay within 31 bits */
};
static inline bool moe_is_int8(i64 mean, i64 pairs, i64 experts, i64 hidden, i64 inter) {
    return pairs >= mean * experts && hidden % INT8_BLOCK == 0 && inter % INT8_BLOCK == 0 && hidden <= INT8_COLUMNS &&
           inter <= INT8_COLUMNS;
}

/* out[i] = x[rows[i]], rows of `dim` elements. */
typedef struct {
    const void *x;
    const i32 *rows; /* [n]; NULL: row i is i */
    void *out;
    i64 n, dim, x_stride, out_stride;
} gather_args;

/* bad[i] = mark where bad[i] is 0 and row i of x holds a NaN or an infinity; other entries stay. */
typedef struct {
    const void *x; /* [n, dim] of x_type */
    i32 *bad;      /* [n] */
    i64 n, dim, stride;
    dtype x_type;
    i32 mark;
} mark_nonfinite_args;

/* How a row's token is drawn, in whole numbers (kernels/sampling/sample_weight.h), so that every backend draws the
 * same one. */
enum { SAMPLE_BITS = 53 };
typedef struct {
    f32 scale;      /* log2(e) / temperature; 0: the largest logit, the lowest id among equals */
    i32 top_k;      /* 0: off; the k best tokens (equal ones by lower id) stay */
    u64 top_p;      /* of 2^53, which is off: the best of these whose weights make this share of theirs stay */
    u64 min_weight; /* weights below it are dropped */
    u64 u;          /* the random number, of 2^53 */
    i64 mask;       /* 0: all tokens may come, m: those of the set sample_args.masks[m - 1] */
} sample_row;

/* ids[i] = the token at which the running sum of row i's weights, in the order of ids, passes u times their total. A
 * token that may not come counts as if there were none: in the best one, in top-k and in top-p. Marks rows with a NaN
 * or an infinity as `finite` does; their ids are any within the vocabulary, as where no token may come. */
typedef struct {
    const f32 *logits;      /* [n, vocab], rows `stride` apart */
    const sample_row *rows; /* [n] */
    const u64 *masks;       /* [.., mask_words]: bit t % 64 of word t / 64: token t may come; NULL: rows have none */
    i32 *ids;               /* [n] */
    i32 *bad;               /* [n] */
    void *workspace;
    i64 n, vocab, stride, mask_words;
    bool draws, cuts; /* some row has a scale; some row has top_k or top_p */
    i32 mark;
} sample_args;

/* With lse = log(sum(exp(row i))): logprobs[i, 0] = logit - lse of token ids[i], or drawn[i] where that is negative;
 * logprobs[i, 1..] and top_ids[i] the same of the tops[i] most probable tokens, best first, equal ones by lower id.
 * Rows with tops[i] < 0 are left alone. */
enum { LOGPROBS_TOP = 128 };
typedef struct {
    const f32 *logits;      /* [n, vocab], rows `stride` apart; finite, or -infinity */
    const i32 *ids, *drawn; /* [n] */
    const i32 *tops;        /* [n], at most `n_top` and vocab */
    i32 *top_ids;           /* [n, n_top] */
    f32 *logprobs;          /* [n, 1 + n_top] */
    void *workspace;
    i64 n, vocab, stride, n_top; /* n_top: at most LOGPROBS_TOP */
} logprobs_args;

/* In each layer of a KV cache row pairs[i].from is copied to row pairs[i].to, for i below *count. None is both, but of
 * one i. */
typedef struct {
    i64 from, to; /* slots, as kv_write's; from below 0: nothing is copied */
} kv_pair;
typedef struct {
    void *kv;             /* [layers], layer_bytes apart: rows as kv_write and heads_write leave them */
    const kv_pair *pairs; /* [most] */
    const i32 *count;     /* [1], at most `most`; NULL: that many */
    i64 most, layers;
    u64 row_bytes, layer_bytes;
} kv_copy_args;

/* A draft's guesses as a tree: which of them go on (EAGLE-2, Li et al. 2024, arXiv:2406.16858). Each of n sequences has
 * `beams` guesses, and for each of them the k likeliest tokens behind it: candidate c of beam b has the score of b plus
 * its own logarithm, or -infinity where that is a NaN or the beam's row has a number that is not finite for token 0.
 * The k candidates with the best scores (equal ones by lower b k + c) are the beams of the next guess, in places 0 ..
 * k - 1: with beams = k the best child of beam b takes place b, and the others, best first, the lowest places that are
 * left. So the KV rows that a place must take over are never those that another is given: of guess g, row j has its KV
 * row in slot slots[g, j], for `copies` guesses. */
enum { BEAMS_MOST = 8 };
typedef struct {
    const i32 *top_ids;  /* [n, beams, k], as logprobs leaves them */
    const f32 *logprobs; /* [n, beams, 1 + k] */
    f32 *scores;         /* [n, k]: of the beams, then of the next ones; beams = 1: they begin with 0 */
    i32 *ids;            /* [n, k]: the next beams' tokens */
    i32 *from;           /* [n, k]: of the n beams rows the one that each follows */
    i32 *chosen;         /* [n, k]: b k + c of each */
    i64 n, beams, k;     /* beams: 1 or k */
    const i64 *slots;    /* [copies, n k], rows slots_stride apart */
    kv_pair *pairs;      /* [copies, n k]; from -1: the beam stays in its place */
    i64 copies, slots_stride;
} draft_beams_args;

/* ---- The vision tower (MoonViT3d) ----
 * Rows are the patches of all items, one item behind the other: a picture, or the 1 to 4 frames of a piece of video, of
 * t frames of h rows of w patches, t slowest. Activations lie without gaps. What a row becomes depends on its item
 * alone. */
typedef struct {
    i32 first;   /* the item's first row */
    i32 token;   /* its first token: an item has h / 2 * w / 2 of them */
    i32 t, h, w; /* h and w even */
} vision_item;
enum { VISION_MERGE = 2 };                       /* patches of a token, down and across */
enum { VISION_WIDTH = 8192, VISION_HEAD = 512 }; /* widest rows, and heads, that a tower may have */
/* The item of a row, or with `tokens` of a token. Items are in order of both. */
static inline i64 vision_item_of(const vision_item *items, i64 n, i64 at, bool tokens) {
    i64 low = 0;
    while (n > 1) {
        const i64 half = n / 2;
        if ((tokens ? items[low + half].token : items[low + half].first) <= at)
            low += half, n -= half;
        else
            n = half;
    }
    return low;
}

/* out[i, c] = (pixels[i, c] / 255 - 0.5) * 2, every step in float32. Columns from dim up to out_stride become 0. */
typedef struct {
    const u8 *pixels; /* [n, dim] */
    void *out;        /* [n, out_stride] */
    i64 n, dim, out_stride;
} pixel_rows_args;

/* x[i] += bias + the position of row i: `table` [table_h, table_w, dim] stretched to the item's h x w by bicubic
 * interpolation as PyTorch has it (a = -0.75, half-pixel centres, taps clamped at the border, nothing averaged where it
 * shrinks), and where the item has several frames time[frame]. */
typedef struct {
    const op_weight *table, *bias; /* WK_TABLE [table_h * table_w, dim], [dim] */
    const f32 *time;               /* [frames, dim] */
    const vision_item *items;
    void *x; /* [n, dim] */
    i64 n, n_items, dim, table_h, table_w;
} patch_position_args;

/* sum = x + add + add_bias, rounded, or x where add is NULL; out = (sum - mean) * rsqrt(variance + eps) * weight +
 * bias. sum may be NULL (not wanted) or alias x. */
typedef struct {
    const op_weight *weight, *bias, *add_bias; /* [dim]; add_bias with add alone */
    const void *x, *add;                       /* [n, dim] */
    void *sum, *out;                           /* [n, dim] */
    i64 n, dim;
    f32 eps;
} layer_norm_args;

/* x[i] = activation(x[i] + bias), in place. GELU: x * Phi(x); GELU_TANH: its usual approximation by tanh. */
typedef enum { BIAS_ONLY, BIAS_GELU, BIAS_GELU_TANH } bias_activation;
typedef struct {
    const op_weight *bias; /* [dim] */
    void *x;               /* [n, dim] */
    i64 n, dim;
    bias_activation activation;
} bias_act_args;

/* qkv[i] += bias, then queries and keys turn by the patch's place: of a head, the pair (4j, 4j + 1) by the column's
 * angle j, the pair (4j + 2, 4j + 3) by the row's. In place. */
typedef struct {
    const op_weight *bias; /* [3 H dim] */
    const f32 *table;      /* [places, dim / 4, 2]: cos and sin of a place's angles, as rope_table makes them */
    const vision_item *items;
    void *qkv;                    /* [n, 3, H, dim]: queries, keys, values */
    i64 n, n_items, n_heads, dim; /* dim: of a head, a multiple of 4 */
} vision_rope_args;

/* out[i, h] = softmax_j(scale * q_ih . k_jh) v_jh over all rows j of row i's item, for rows i in [first, first +
 * count): for all of an item of 16,900 rows a host takes seconds. */
typedef struct {
    const void *qkv; /* as vision_rope leaves it */
    const vision_item *items;
    void *out; /* [n, H, dim] */
    i64 n, n_items, n_heads, dim;
    i64 longest;      /* rows of the largest item */
    i64 first, count; /* of the n rows those that are computed */
    f32 scale;
} vision_attention_args;

/* A token's four patches side by side, (0, 0), (0, 1), (1, 0), (1, 1): each the mean over the item's frames, then
 * layer_norm. Tokens are in raster order. */
typedef struct {
    const op_weight *weight, *bias; /* [dim] */
    const vision_item *items;
    const void *x;       /* [patches, dim] */
    void *out;           /* [n, 4 dim] */
    i64 n, n_items, dim; /* n tokens */
    f32 eps;
} patch_merge_args;

/* What the rows of the next calls are. ANY: kernels are chosen for speed, by the number of rows. DECODE, at most
 * DECODE_ROWS rows in decode form, and PROMPT, all others: each has one set of kernels and one order of sums for any
 * number of rows, so that a row's bits do not depend on its company. */
typedef enum { ROWS_ANY, ROWS_DECODE, ROWS_PROMPT } row_mode;
enum { DECODE_ROWS = 64 };

/* What of a model a backend's kernels may be too narrow for: widths of a head. */
typedef struct {
    i64 latent, nope, rope, v_dim;
    i64 dim;    /* of heads_write and heads_decode; 0: neither is called */
    i64 vision; /* of vision_attention; 0: it is not called */
} ops_widths;

/* All operations; the argument struct of each says what it does. */
#define OPS(X)                                                                                                         \
    X(embed)                                                                                                           \
    X(norm)                                                                                                            \
    X(linear)                                                                                                          \
    X(swiglu)                                                                                                          \
    X(rope_table)                                                                                                      \
    X(rope_q)                                                                                                          \
    X(kv_write)                                                                                                        \
    X(absorb_q)                                                                                                        \
    X(mla_decode)                                                                                                      \
    X(unabsorb_v)                                                                                                      \
    X(mla_prefill)                                                                                                     \
    X(heads_write)                                                                                                     \
    X(heads_decode)                                                                                                    \
    X(gate)                                                                                                            \
    X(moe)                                                                                                             \
    X(sum_pairs)                                                                                                       \
    X(gather)                                                                                                          \
    X(mark_nonfinite)                                                                                                  \
    X(sample)                                                                                                          \
    X(logprobs)                                                                                                        \
    X(kv_copy)                                                                                                         \
    X(draft_beams)                                                                                                     \
    X(pixel_rows)                                                                                                      \
    X(patch_position)                                                                                                  \
    X(layer_norm)                                                                                                      \
    X(bias_act)                                                                                                        \
    X(vision_rope)                                                                                                     \
    X(vision_attention)                                                                                                \
    X(patch_merge)
#define OPS_WITH_WORKSPACE(X) X(mla_decode) X(mla_prefill) X(heads_decode) X(moe) X(sample) X(logprobs)

typedef struct ops ops;
struct ops {
    const char *name; /* "ref", "cpu avx512" ... */
    dtype act;        /* type of activations and of the residual stream */
    void *state;      /* the backend's own; NULL: it has none */

    /* Asked before a model is loaded: ST_UNSUPPORTED names the width that the kernels do not take, and their limit.
     * NULL: they take any. */
    status (*fits)(const ops *o, const ops_widths *w, err *e);

    bool keeps_views; /* weights read their views' data in place: it must outlive them */
    i64 int8_mean; /* moe of EXPERTS_W4A8: int8 from so many pairs an expert on; 0: always, bits hang on no other row */
    /* Ends with weight_release(). ST_UNSUPPORTED names a format that the backend cannot run. */
    status (*weight_prepare)(const ops *o, const weight_desc *d, op_weight **out, err *e);
    void (*weight_release)(op_weight *w); /* NULL is allowed */
    /* Of a WK_EXPERTS: d's views, which have data, take the place of as many from view `first` on, whose formats and
     * sizes they have. Queued like an operation, between those before and behind it. */
    status (*experts_replace)(const ops *o, op_weight *w, i64 first, const weight_desc *d, err *e);

#define OP_SLOT(op) void (*op)(const ops *o, const op##_args *a);
    OPS(OP_SLOT)
#undef OP_SLOT
    const struct fused_ops *fused;            /* fused.h; NULL: all of them by the operations above */
    const struct rank_seams *ranks;           /* fused.h; NULL: there is one rank */
    const struct pipeline_parallel *pipeline; /* pipeline_parallel.h; NULL: there is one stage */

    /* NULL where a row's bits never depend on other rows. Until the first call: ROWS_ANY. Workspaces may differ by
     * form. */
    void (*set_row_mode)(const ops *o, row_mode form);

    /* Bytes of workspace, which begins at a multiple of 64, for a call with these sizes (pointers in *a are not looked
     * at, but `experts` and `kv_b` must be set). Monotonic in n and, for decode, in pages_stride; never 0. */
#define WORKSPACE_SLOT(op) u64 (*op##_workspace)(const ops *o, const op##_args *a);
    OPS_WITH_WORKSPACE(WORKSPACE_SLOT)
#undef WORKSPACE_SLOT
};

/* Plain C. `act` must be DT_F32. Uses `threads` OpenMP threads inside (0: all cores). */
void ops_init_ref(ops *o);
/* The best version that this processor and `isa_mask` allow: every slot starts as ref's or as the generic
 * bf16 version, and better code overwrites it. act DT_F32 (an FP32 checkpoint) runs ref's arithmetic,
 * announced once. */
status ops_init_cpu(ops *o, dtype act, u32 isa_mask, err *e);

/* Instruction sets of the cpu backend; a level needs those before it (AVX-VNNI: AVX2; it is used where there is no
 * AVX-512). ISA_AMX: products of bf16 by tiles; ISA_AMX_INT8: those of bytes, with the bits that vectors give. */
enum {
    ISA_AVX2 = 1,
    ISA_AVX512 = 2,
    ISA_VNNI = 4,
    ISA_BF16 = 8,
    ISA_AVXVNNI = 16,
    ISA_AMX = 32,
    ISA_AMX_INT8 = 64,
    ISA_ALL = 127
};
u32 cpu_isa(void);                                           /* what the processor and the system both support */
bool cpu_multiplies(weight_format f, bool experts, u32 isa); /* has it products for weights as they are stored? */
status cpu_isa_parse(const char *mask, u32 *out, err *e);    /* "avx2", "avx512", "none", "all": for --cpu-mask */

/* For ref and cpu, in calls from this thread: at most one a processor that it may run on; 0 means all of them. */
void ops_set_threads(int n);

#endif
