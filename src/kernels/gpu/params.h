/* kernels/gpu/params.h: what the host hands to each kernel: one struct a kernel, the same bytes on both sides.
 *
 * Pointers are addresses in the GPU's memory. Included by C and by device code; everything has a fixed size. */
#ifndef KERNELS_GPU_PARAMS_H
#define KERNELS_GPU_PARAMS_H

typedef unsigned char gpu_u8;
typedef unsigned short gpu_bf16;
typedef unsigned int gpu_u32;
typedef unsigned long long gpu_u64;
typedef long long gpu_i64;

enum {
    GPU_THREADS = 256,
    GPU_WARPS = GPU_THREADS / 32,
    GPU_PAGE = 64,
    GPU_TOKENS = 8,              /* rows of x a block takes at a time */
    GPU_GATE_EXPERTS = 384,      /* the same, beside a product */
    GPU_GATE_WARP_EXPERTS = 512, /* most that the gate holds in registers */
    GPU_NORM_THREADS = 512,      /* of a block that norms a long row */
    GPU_PLAIN_THREADS = 224,     /* where nothing is added and rows are many: 7168 values exactly */
    GPU_PLAIN_PIECES = 4,        /* 8 values each */
    GPU_PLAIN_BLOCKS = 5,        /* of them at once */
    GPU_WARP_NORM = 1536,        /* values that a warp norms, at most */
    GPU_WARP_KV = 768,           /* and of a KV row */
    GPU_SORT_FEW = 4096,         /* pairs that one block sorts at once, with GPU_SORT_THREADS */
    GPU_SORT_THREADS = 512,
    GPU_SORT_BLOCK = 2048, /* pairs of a block where there are more */
    GPU_FINITE = 16384,    /* values that a block looks at */
    GPU_SAMPLE_TILE = 256, /* tokens whose weights are summed up */
    GPU_CUT_THREADS = 1024 /* of the block that finds where top-k and top-p cut a row */
};
/* Threads of a block, and bytes of dynamic shared memory, where the host must know what a kernel's file fixes. */
enum {
    GPU_CUT_SHARED = 80 * 1024,
    GPU_PICK_THREADS = 1024, /* logprob_pick */
    GPU_PICK_SHARED = 32 * 1024,
    GPU_INVARIANT_THREADS = 384,
    GPU_GROUPED_THREADS = 384, /* grouped_ring.cuh */
    GPU_FLASH_THREADS = 384,   /* prefill.cu */
    GPU_FLASH_SHARED = 2 * (3 * 64 + 5 * 128) * 128 + 8 * 8,
    GPU_DECODE_WGMMA_THREADS = 384,
    GPU_DECODE_MMA_THREADS = 288
};
enum { GPU_F32, GPU_BF16, GPU_FP8 }; /* element types of activations and of the KV cache */
/* weight_format's values, in its order, then how experts are kept: int4_pack.h, fp4_pack.h, FP8 in pairs: fp8.cuh. */
enum {
    GPU_W_F32,
    GPU_W_BF16,
    GPU_W_FP8,
    GPU_W_FP8_ROW,
    GPU_W_INT4,
    GPU_W_INT4_ROW /* while weights are loaded */,
    GPU_W_MXFP4,
    GPU_W_NVFP4 = 8,
    GPU_W_INT8_ROW = 10,
    GPU_W_INT4_WIDE, /* groups of 128 */
    GPU_W_PACKED,
    GPU_W_PACKED_MXFP4,
    GPU_W_PACKED_NVFP4,
    GPU_W_FP8_PAIRS
};

/* A weight matrix as the checkpoint lays it out (format/weights.h). */
typedef struct {
    const void *data, *scale;
    gpu_i64 rows, cols;
    int format;
    int wide;     /* rows begin at multiples of 16 bytes: 16-byte loads are allowed */
    float factor; /* NVFP4: format/weights.h's; packed MXFP4 and NVFP4: all values' (fp4_pack.h) */
    int divides;  /* factor does; else it multiplies */
} gpu_matrix;

typedef struct {
    gpu_matrix table;
    const int *ids, *drawn, *map;
    gpu_bf16 *out;
    gpu_i64 first; /* id of the table's first row */
} gpu_embed_args;

typedef struct {
    const float *weight;
    const gpu_bf16 *x, *add;
    gpu_bf16 *sum, *out;
    gpu_i64 n, dim, x_stride, out_stride;
    int *bad;
    float eps;
    int mark;
} gpu_norm_args;

/* Also heads of a matrix: block row `h` of the grid takes rows [first + h * step, + rows) of w, columns of x from
 * h * x_step, columns of y from h * y_step. */
typedef struct {
    gpu_matrix w, up; /* up: for swiglu only */
    const gpu_bf16 *x;
    void *y;
    gpu_i64 n, x_stride, y_stride;
    gpu_i64 rows, first, step, x_step, y_step;
    int y_type;
    int add; /* y += (cuBLASLt and invariant.cu, bf16) */
} gpu_linear_args;

/* Products of at most 64 rows of x with up to GPU_PARTS weights in BF16, which share x and the number of columns. */
enum { GPU_PARTS = 4, GPU_SKINNY = 64 };
enum { SKINNY_STAGES_MOST = 14, SKINNY_STATE = 512 /* bytes */, SKINNY_THREADS = GPU_THREADS + 128 };
/* Stages of the ring in shared memory: what fits beside another block, or alone for more than 32 rows of x. */
#define SKINNY_ROOM(tokens, rows)   (((tokens) > 32 && (rows) > 64 ? 232448 : 115712) - SKINNY_STATE - (tokens)*512)
#define SKINNY_STAGES(tokens, rows) (SKINNY_ROOM(tokens, rows) / (((rows) + (tokens)) * 128))
typedef struct {
    const gpu_bf16 *w, *up; /* up not NULL: y = silu(x w^T) * (x up^T), half of a tile's rows of each; else y = x w^T */
    void *y;
    gpu_i64 rows, y_stride;
    int y_type, tiles; /* of all parts up to this one */
} gpu_skinny_part;

/* Rows whose norm is finished later (ops.h, deferred_norm): what their producer does with what it adds to x, and what
 * multiplies them. */
typedef struct {
    gpu_bf16 *x, *out; /* [n, dim]; x NULL: none of this. x += , out = x * weight */
    const float *weight;
    float *squares; /* [n, GPU_DEFERRED_PARTS] */
    int *bad, mark;
} gpu_after;
typedef struct {
    const float *squares; /* NULL: rows are finished */
    int parts;
    float dim, eps;
} gpu_deferred_norm;
enum { GPU_DEFERRED_PARTS = 512 };

/* Heads of one matrix (parts 1): head h takes rows from h * w_step of w, columns of x from h * x_step, of y from h *
 * y_step. */
typedef struct {
    gpu_skinny_part part[GPU_PARTS];
    const gpu_bf16 *x;
    float *sums; /* [blocks][2][128 * rows of x]: of slab's tiles that several blocks share */
    int *count;  /* [tiles]: blocks that are done with a shared tile; 0 before and after */
    gpu_i64 n, x_stride, cols, w_stride, w_step, x_step, y_step;
    int head_tiles, units;      /* tiles of a head; pieces of 64 columns of a tile */
    int all, cluster;           /* units; blocks of a cluster, each of which has one part of a tile, or 1 */
    int blocks;                 /* that multiply: the first of the grid */
    gpu_deferred_norm deferred; /* of x */
    gpu_after after;            /* thin, one part, one tile a cluster: y is not written */
} gpu_skinny_args;

/* What the copy engine must know of a tensor (device/gpu.h: gpu_tensor). */
#ifdef __cplusplus
typedef struct alignas(128) {
    gpu_u64 opaque[16];
} gpu_tensor_map;
#else
typedef struct {
    _Alignas(128) gpu_u64 opaque[16];
} gpu_tensor_map;
#endif

/* skinny_tma.cu: the same products at 17 to 64 rows of x. A tile has `height` rows of a weight (half of each, where
 * there is up); a cluster's blocks have equal parts of its columns. */
enum {
    SKINNY_TMA_THREADS = GPU_THREADS + 128,
    SKINNY_TMA_STAGES = 28,        /* of a ring, at most */
    SKINNY_TMA_STATE = 2048,       /* bytes of shared memory */
    SKINNY_TMA_SHARED = 222 * 1024 /* of a block, at most: a little is left for those of a norm */
};
typedef struct {
    gpu_tensor_map x_map, map[GPU_PARTS], up_map[GPU_PARTS]; /* 64 columns, rows, blocks of 64 columns */
    gpu_skinny_part part[GPU_PARTS];
    gpu_i64 n;
    int units, height;                  /* of 64 columns; rows of a tile */
    int cluster, blocks;                /* blocks of a tile; that multiply: the first of the grid */
    int weight_stages, x_stages, state; /* state: where it begins in shared memory */
    gpu_deferred_norm deferred;
    gpu_after after; /* one part */
} gpu_skinny_tma_args;

/* skinny_few.cu: the same at up to 4 rows of x, a block a tile of 16, 32 or 64 rows of a weight, all its columns. */
enum {
    SKINNY_FEW_ROWS = 4,
    SKINNY_FEW_THREADS = GPU_THREADS + 32,
    SKINNY_FEW_STAGES = 12, /* of 8 KB, at most */
    SKINNY_FEW_STATE = 5120 /* bytes of shared memory */
};
typedef struct {
    gpu_tensor_map map[GPU_PARTS]; /* 64 columns, rows, blocks of 64 columns */
    gpu_skinny_part part[GPU_PARTS];
    const gpu_bf16 *x;
    gpu_i64 n, cols, x_stride;
    int boxes, stages;  /* of 8 KB: of a tile; of the ring */
    int x_pitch, state; /* bytes from row to row of x in shared memory; where the state begins there */
    gpu_deferred_norm deferred;
    gpu_after after; /* one part */
} gpu_skinny_few_args;

typedef struct {
    gpu_bf16 *x;
    gpu_i64 dim, x_stride;
    gpu_deferred_norm deferred;
} gpu_finish_args;

/* Any number of rows of x (invariant.cu); up: NULL, or y = silu(x w^T) * (x up^T). */
enum { GPU_INVARIANT_STAGES_MAX = 12, GPU_INVARIANT_STATE = 256 /* bytes */ };
#define GPU_INVARIANT_STAGES(stage)                                                                                    \
    ((227 * 1024 - GPU_INVARIANT_STATE) / (stage) < GPU_INVARIANT_STAGES_MAX                                           \
         ? (227 * 1024 - GPU_INVARIANT_STATE) / (stage)                                                                \
         : GPU_INVARIANT_STAGES_MAX)
typedef struct {
    const gpu_bf16 *w, *up, *x;
    void *y;
    gpu_i64 n, rows, cols, x_stride, y_stride;
    int y_type, add; /* add: y += */
} gpu_invariant_args;

/* out = silu(gate) * up. */
typedef struct {
    const float *gate, *up; /* [n, rows] */
    gpu_bf16 *out;
    gpu_i64 n, out_stride, rows; /* rows a multiple of 8 */
} gpu_silu_args;

/* `rope` elements of each of `rows` rows. */
typedef struct {
    const gpu_bf16 *from;
    gpu_bf16 *to;
    gpu_i64 rows, from_stride, to_stride, rope;
} gpu_rope_copy_args;

typedef struct {
    const int *positions;
    const double *inv_freq;
    float *table;
    gpu_i64 n, half;
    double mscale;
} gpu_rope_table_args;

typedef struct {
    gpu_bf16 *q;
    const float *table;
    gpu_i64 n, heads, nope, rope;
} gpu_rope_q_args;

typedef struct {
    const gpu_bf16 *kv_a;
    const float *norm, *table;
    const gpu_i64 *slots;
    void *kv;
    gpu_i64 latent, rope;
    float eps;
    int kv_type;
} gpu_kv_write_args;

typedef struct {
    gpu_norm_args q;
    gpu_kv_write_args kv;
} gpu_latent_norm_kv_write_args;

/* query_fused.cu */
enum {
    QUERY_NOPE = 128,
    QUERY_ROPE = 64,
    QUERY_LATENT = 512,
    QUERY_CLUSTER = 8,
    QUERY_UNITS = 3, /* of 64 columns of q_b a block, at most */
    QUERY_THREADS = 384
};
typedef struct {
    const gpu_bf16 *q_a; /* [n, q_lora], not yet normed */
    const float *q_norm;
    const gpu_bf16 *q_b, *kv_b; /* [heads * (nope + rope), q_lora], [heads * (nope + v_dim), latent] */
    gpu_bf16 *out;              /* [n, heads, latent + rope] */
    gpu_kv_write_args kv;
    gpu_i64 n, heads, q_lora, q_stride, v_dim;
    int units;
    float eps;
} gpu_query_fused_args;

typedef struct {
    gpu_matrix kv_b;
    const gpu_bf16 *q;
    gpu_bf16 *out;
    gpu_i64 n, heads, nope, rope, latent, v_dim;
} gpu_absorb_args;

typedef struct {
    const gpu_bf16 *q;
    const void *kv;
    const int *pages, *kv_len;
    gpu_bf16 *out;
    float *lse;  /* [n, heads], or NULL */
    float *part; /* [n, heads, splits, latent + 2]: sums not yet divided, maximum, sum of weights */
    gpu_i64 heads, latent, rope, pages_stride, splits;
    float scale;
    int kv_type;
    /* the fast kernels (split_kv.cuh): */
    gpu_i64 n;
    /* so many rows of one sequence, at consecutive positions, are one row here, with all their heads; 1: none are */
    int group, group_heads; /* heads of a row of the call */
    int blocks, min_pages;  /* pieces, and the fewest pages of one; deterministic: of a unit */
    int deterministic;      /* a row's bits may not depend on the others */
    int fill;               /* the plan fills rows up to whole pieces where there are blocks enough */
    gpu_i64 slots;          /* of sums in part */
    float scale2;           /* scale * log2(e) */
    /* of the blocks of cut rows: two words each, zero between launches; NULL: another launch adds them */
    gpu_u32 *meetings;
    struct gpu_decode_plan *plan; /* decode_plan.cu; NULL: every block looks for its piece by itself */
    /* 64 columns, tokens of the pool, blocks of 64 columns; tiles of 32 tokens, decode_mma of 8 */
    gpu_tensor_map kv_map;
} gpu_decode_args;
enum { GPU_DETERMINISTIC_UNITS = 64 /* of a row, at most */ };

/* decode_plan.cu: what lengths and page tables say, found once for all layers of a step. split_kv.cuh has the words. */
enum { GPU_PLAN_BLOCKS = 288, GPU_PLAN_PAGES = 7 };
typedef struct {
    /* a walk that has not begun at its first row, which it knows: pages < 0; at nothing: 0 */
    int row, start, at, to, len, first, last, pages, each;
    int page[GPU_PLAN_PAGES]; /* numbers of the first pages of that row's part */
} gpu_decode_piece;
/* Of a row, if there are no more than GPU_SKINNY: its pieces are [from, from + at[r + 1] - at[r]); its first is the
 * at[r]-th of all rows'. */
typedef struct {
    int from[GPU_SKINNY], at[GPU_SKINNY + 1];
} gpu_decode_rows;
typedef struct gpu_decode_plan {
    gpu_decode_piece of[GPU_PLAN_BLOCKS]; /* of each block of a group of heads */
    gpu_decode_rows rows;
} gpu_decode_plan;

/* combine_unabsorb.cu */
enum {
    VALUES_CLUSTER = 8,
    VALUES_DIM = 128,
    VALUES_PIECES = 288 + GPU_SKINNY,       /* of all rows: each begins one more than there are blocks */
    VALUES_PIECES_OF_GROUPS = 8 * (288 + 2) /* of up to 16 rows in groups of up to 8, which have as many each */
};
#define VALUES_STATE(groups)          ((groups) ? 23808 : 8192) /* bytes of shared memory */
#define VALUES_SHARED(tokens, groups) (VALUES_DIM * 128 + (tokens)*128 + VALUES_STATE(groups) + (tokens)*VALUES_DIM * 4)
typedef struct {
    gpu_decode_args decode;
    const gpu_bf16 *kv_b; /* [heads * (nope + VALUES_DIM), latent] */
    gpu_bf16 *out;        /* [tokens, heads, VALUES_DIM] */
    gpu_i64 nope;
    int tokens; /* rows, decode.group of each of decode's */
} gpu_combine_unabsorb_args;
/* Dynamic shared memory of decode_mma.cu for 8 * eights heads. */
#define GPU_DECODE_MMA_SHARED(eights, fp8)                                                                             \
    (((fp8) ? 4 * (32 * 592 + 16) : 5 * (32 * 1152 + 16)) + 2 * 16 + 8 * 36 + (eights)*8 * (4 + 2 * 72 * 4 + 36 * 4) + \
     ((fp8)           ? (eights) == 2 ? 18 * 1024 : 8 * 512                                                            \
      : (eights) == 2 ? 2 * 1024                                                                                       \
                      : 0) +                                                                                           \
     ((fp8) && (eights) == 2 ? 0 : (eights)*8 * 1168))

/* One tile of the KV cache expanded to keys and values, [tokens, heads, nope + v_dim] and the rope part beside it. */
typedef struct {
    gpu_matrix kv_b;
    const void *kv;
    const int *pages;
    gpu_bf16 *latent_rows; /* [tile, latent]: the cache's rows in bf16, what kv_b is multiplied with */
    gpu_bf16 *rope_rows;   /* [tile, rope] */
    gpu_i64 from, tokens, latent, rope;
    int kv_type;
} gpu_gather_kv_args;

/* Rows of a prompt as rows in decode form, `pad` in front of them, of the tokens before, whose queries are zeros. */
typedef struct {
    int *kv_len;                 /* [n] */
    void *pad_q;                 /* [pad_bytes]: a multiple of 16 */
    gpu_i64 n, first, pad_bytes; /* first: tokens that row 0 sees */
} gpu_prefill_rows_args;

typedef struct {
    const gpu_bf16 *q;        /* [n, heads, nope + rope] */
    const gpu_bf16 *expanded; /* [tokens, heads, nope + v_dim] */
    const gpu_bf16 *rope_rows;
    gpu_bf16 *out; /* [n, heads, v_dim], written by the last tile */
    float *state;  /* [n, heads, v_dim + 2] */
    gpu_i64 n, pos0, from, tokens, heads, nope, rope, v_dim;
    float scale, scale2; /* scale2: scale * log2(e) */
    int first, last;
    gpu_tensor_map expanded_map,
        rope_map; /* mla_flash: 64 columns, tokens, blocks of 64 columns; tiles of 128 tokens */
} gpu_prefill_args;

/* heads/: attention with keys and values for every KV head. */
enum { GPU_HEADS_DIM = 256 /* of a head, at most */, GPU_HEADS_TOGETHER = 4 /* heads of a block, at most */ };
typedef struct {
    const gpu_bf16 *k, *v;
    const float *table;
    const gpu_i64 *slots;
    void *kv;
    gpu_i64 kv_heads, dim;
    int kv_type;
} gpu_heads_write_args;

typedef struct {
    const gpu_bf16 *q;
    const float *table;
    const void *kv;
    const int *pages, *kv_len;
    gpu_bf16 *out;
    float *part; /* [n, heads, splits, 4 + dim]: maximum, sum of weights, two unused; sums not yet divided */
    gpu_i64 heads, kv_heads, dim, pages_stride;
    int splits, min_pages; /* pieces of a row, at most; pages of a piece, at least */
    int groups;            /* blocks that share a KV head */
    float scale2;          /* scale * log2(e) */
} gpu_heads_decode_args;

typedef struct {
    const float *logits, *bias;
    int *ids;
    float *weights;
    gpu_i64 n, n_experts, k;
    float scale;
    int norm;
    const int *routes; /* [n_experts], ops.h's expert_route(); NULL: none */
    int *slots;
    gpu_u32 *counts; /* [n_experts]; NULL: none */
} gpu_gate_args;

typedef struct {
    const gpu_bf16 *y;
    const float *weights;
    const gpu_bf16 *shared;
    gpu_bf16 *out;
    gpu_i64 k, dim;
} gpu_sum_pairs_args;

/* decode_int4_rows's job beside the gate (int16_split.cuh). */
enum { GPU_DIGITS_COLS = 7168 /* at most */, SKINNY_DIGITS = 4 /* warps of a row */, SKINNY_TMA_DIGITS = 2 };
typedef struct {
    const gpu_bf16 *x; /* [n, hidden]; NULL: none of this */
    gpu_u8 *digits;    /* NULL: scale and what is counted alone */
    float *scale;
    gpu_u32 *finished;
    int *work_counter;
    gpu_deferred_norm deferred;
    int n, k, hidden;
} gpu_digits_args;

/* A product and the gate beside it: behind the product's blocks a warp a row, then some warps a row of digits. */
typedef struct {
    gpu_skinny_args product;
    gpu_gate_args gate;
    gpu_digits_args digits;
} gpu_skinny_gate_args;
typedef struct {
    gpu_skinny_tma_args product;
    gpu_gate_args gate;
    gpu_digits_args digits;
} gpu_skinny_tma_gate_args;

/* Sorting (token, slot) pairs by expert; ids of no expert are left out. */
typedef struct {
    const int *ids; /* [pairs] */
    int *count;     /* [experts] */
    int *start;     /* [experts + 1] */
    int *list;      /* [pairs]: pair numbers, expert by expert, ascending */
    int *part;      /* [blocks, experts]: pairs of a block, then of those before it */
    gpu_i64 pairs, experts, blocks;
} gpu_sort_args;

typedef struct {
    const gpu_matrix *experts; /* [3 * n_experts]: gate, up, down */
    const int *start, *list;
    const gpu_bf16 *x; /* [n, hidden] */
    gpu_bf16 *h;       /* [pairs, inter] */
    float *y;          /* [pairs, hidden] */
    gpu_i64 k;
} gpu_experts_args;

/* Many tokens (tiles.cu, grouped_int4.cu): the tiles of tokens, then the two products over them. A tile is {expert,
 * first place in the list, tokens, first row of h}. */
struct int4;
typedef struct {
    const int *start;   /* [experts + 1] */
    struct int4 *tiles; /* at most pairs / tile_rows + experts */
    int *n_tiles;       /* and behind it what the launches count with, GPU_MOE_COUNTS numbers: made 0 */
    int experts, tile_rows;
} gpu_moe_tiles_args;

/* moe_sum_norm: threads of a row, 8 columns each so many times; slots at most. */
enum { GPU_SUM_THREADS = 224, GPU_SUM_PIECES = 4, GPU_SUM_SLOTS = 8 };
/* moe_combine_row: threads of a block, 8 columns each; slots at most. */
enum { GPU_ROW_THREADS = 896, GPU_ROW_SLOTS = 32 };
enum { GPU_MOE_SHARED = 227 * 1024, GPU_MOE_COUNTS = 4 };
typedef struct {
    const gpu_matrix *experts; /* [3 * n_experts] packed: gate, up, down */
    const struct int4 *tiles;
    const int *n_tiles, *list;
    const gpu_bf16 *x; /* [n, hidden] */
    gpu_bf16 *h;       /* [inter / 64][h_rows][64], each 1024 bytes swizzled */
    void *y;           /* [pairs, hidden] float32, or half: times what *y_amax tells (fp16_range.cuh) */
    gpu_u32 *y_amax;
    int *work_counter; /* tiles that blocks took after their first */
    gpu_i64 hidden, inter, h_rows;
    gpu_u32 k, bf16_bias; /* 0x43004300: the compiler does not know */
    int rescale_pass;     /* stage 2 once more: nothing to do unless *y_amax says so */
} gpu_moe_args;

/* The same with weights that the copy engine brings, boxes of 64 rows by 128 bytes: FP8 (grouped_fp8.cu), all
 * matrices as rows of `hidden` and of `inter` columns; bf16 (grouped_bf16.cu), where `out` begins with the first
 * expert's down. */
typedef struct {
    gpu_tensor_map in, out;
    gpu_moe_args m;
    int out_rows; /* bf16: of `out`, to the next expert's */
    int tile;     /* bf16: tokens of a tile at most; entries of the list have up to twice as many */
} gpu_moe_maps_args;

/* The same with int8 activations (grouped_w4a8.cuh). */
struct float2;
typedef struct {
    const gpu_matrix *experts; /* as above; scale: bf16 [rows], the largest of a row (ops.h at moe_args) */
    const struct int4 *tiles;
    const int *n_tiles, *list;
    const gpu_u8 *x;              /* [n, hidden rounded up to 128], columns as grouped_w4a8.cuh says */
    const struct float2 *x_scale; /* [n]: a sixteenth of the scale; 128 times the sum of the q, an int's bits */
    gpu_bf16 *h;                  /* [h_rows, inter]: of stage 1 */
    const gpu_u8 *h8;             /* [inter / 128, up][h_rows][128], each 1024 bytes swizzled */
    const struct float2 *h_scale; /* [h_rows]: the same of h */
    void *y;                      /* as above */
    gpu_u32 *y_amax;
    int *work_counter;
    gpu_i64 hidden, inter, h_rows;
    gpu_u32 k;
    int rescale_pass;
} gpu_grouped_w4a8_args;

/* bf16 [rows, cols] to int8 with a scale a row (quantize_rows.cu). */
typedef struct {
    const gpu_bf16 *x;
    gpu_u8 *out;
    struct float2 *scales; /* of x or of h: as in gpu_grouped_w4a8_args */
    gpu_i64 rows, cols;
} gpu_quantize_rows_args;

enum { GPU_RANKS_MAX = 8 };
/* Rows of a result: so many in each part, one behind the other. */
typedef struct {
    gpu_bf16 *at[GPU_RANKS_MAX];
    gpu_i64 rows;
} gpu_row_parts;
typedef struct {
    const int *ids;
    const float *weights, *y;
    const gpu_bf16 *shared;
    gpu_bf16 *out;
    gpu_row_parts parts; /* moe_sum: instead of out, if rows is not 0 */
    gpu_i64 hidden, k, n_experts;
    const gpu_u32 *y_amax; /* moe_sum: as in gpu_moe_args */
    gpu_after after;       /* moe_combine_norm */
    gpu_norm_args norm;    /* moe_sum_norm, moe_combine_row: of x and the sum */
} gpu_combine_args;

/* ops.h's sample_row. */
typedef struct {
    float scale;
    int top_k;
    gpu_u64 top_p, min_weight, u;
    gpu_i64 mask;
} gpu_sample_row;

/* A part's largest and smallest logit. */
typedef struct {
    float max;
    int id;
    float min, pad;
} gpu_sample_best;

/* The last token that stays: how far below the best, and of those as far the highest id. */
typedef struct {
    float below;
    int id;
} gpu_sample_cut;

typedef struct {
    const float *logits;
    const gpu_sample_row *rows;
    const gpu_u64 *masks; /* [.., mask_words] */
    int *ids, *bad;
    gpu_sample_best *best; /* [n, splits] */
    gpu_u64 *sums;         /* [n, tiles]: weights of GPU_SAMPLE_TILE tokens */
    float *tops;           /* [n, tiles]: their largest logit */
    gpu_sample_cut *cut;   /* [n] */
    gpu_i64 n, vocab, stride, mask_words, splits, split /* tokens of a part, a multiple of a tile's */, tiles;
    int mark, aligned, after_cut;
} gpu_sample_args;

enum { GPU_LOGPROB_TILES = 1024 /* of a row, at most */ };
typedef struct {
    const float *logits;
    const int *ids, *drawn, *tops;
    int *top_ids;
    float *logprobs;
    double *part_sums; /* [n, parts]: of exp(logit - part_tops) */
    float *part_tops;  /* [n, parts] */
    float *tile_tops;  /* [n, tiles] */
    gpu_i64 vocab, stride, n_top, tile /* tokens */, tiles, parts /* of GPU_WARPS tiles */;
} gpu_logprobs_args;

/* INT4, MXFP4 or NVFP4 of a checkpoint to int4_pack.h's or fp4_pack.h's blocks. */
typedef struct {
    const gpu_u8 *data; /* [rows, cols / 2] */
    const void *scale;  /* [rows, cols / group] */
    gpu_u8 *out;
    gpu_i64 rows, cols;
    int format; /* GPU_W_MXFP4 or GPU_W_NVFP4; INT4's kernel does not read it */
} gpu_pack_args;

/* The largest scale of each row of blocks of int4_pack.h (repack.cu). */
typedef struct {
    const gpu_u8 *blocks;
    gpu_bf16 *most; /* [rows] */
    gpu_i64 rows, cols;
} gpu_row_scales_args;

/* FP8 experts to pairs (fp8.cuh), in place. */
typedef struct {
    gpu_u8 *data; /* [rows, cols], both multiples of 128 */
    float *scale; /* [rows / 128, cols / 128] */
    gpu_i64 rows, cols;
} gpu_pairs_args;

/* Experts to another format (requant.cu): data and scale as INT4 lies in a checkpoint, or data in bf16. INT4_ROW's
 * scales times its factor. */
typedef struct {
    gpu_matrix from;
    gpu_u8 *data;
    gpu_bf16 *scale;
} gpu_requant_args;

/* Made-up values of `n` elements; packed: 4-byte words of int4_pack.h's blocks, `across` blocks a strip with one
 * scale a row, or 0. */
enum {
    GPU_FILL_BF16,
    GPU_FILL_FP8,
    GPU_FILL_BYTES,
    GPU_FILL_SCALE_BF16,
    GPU_FILL_SCALE_F32,
    GPU_FILL_SCALE_BYTE, /* seed */
    GPU_FILL_PACKED,
    GPU_FILL_PACKED_MXFP4,
    GPU_FILL_PACKED_NVFP4
};
typedef struct {
    void *out;
    gpu_u64 n, seed, across;
    float sigma;
    int kind;
} gpu_fill_args;

typedef struct {
    const gpu_bf16 *x;
    const int *rows;
    gpu_bf16 *out;
    gpu_i64 dim, x_stride, out_stride;
} gpu_gather_args;

typedef struct {
    const void *x;
    int *bad;
    gpu_i64 dim, stride;
    int type, mark;
} gpu_mark_nonfinite_args;

typedef struct {
    gpu_i64 from, to;
} gpu_kv_pair;
/* Rows of `bytes` each. */
typedef struct {
    gpu_u8 *kv;
    const gpu_kv_pair *pairs;
    const int *count; /* NULL: most */
    gpu_i64 most;
    gpu_u64 bytes, layer_bytes;
} gpu_kv_copy_args;

enum { GPU_BEAMS = 8 };
typedef struct {
    const int *top_ids;
    const float *logprobs;
    float *scores;
    int *ids, *from, *chosen;
    gpu_i64 n;
    int beams, k;
    const gpu_i64 *slots;
    gpu_kv_pair *pairs;
    gpu_i64 copies, slots_stride;
} gpu_draft_beams_args;

/* ---- exchanges between GPUs (comm/) ---- */

/* A mailbox of a GPU has for either of two exchanges under way, and for each rank, `units` of 16 bytes: twice two
 * values and the number of the exchange, so that what has arrived is known from itself. */
enum { GPU_UNIT_VALUES = 4 };
/* Blocks of a launch, at most (the links are the limit), and as many on a multiprocessor as must be there at once: a
 * rank may have an eighth of a chip, 16 of them, and blocks wait for other GPUs' blocks. */
enum { COMM_BLOCKS = 64, COMM_RESIDENT = COMM_BLOCKS / 16 }; /* of a launch, at most: the links are the limit */
/* But for all_reduce_parts_norm, one on a multiprocessor: there norms are the limit. */
enum { COMM_NORM_BLOCKS = 128 };
/* Sums of few values (all_reduce.cu): exchanges until memory is used again; what a block knows, as one uint4: its slot,
 * and what the exchange before this one filled, units of a part and of the sums. */
enum { LAMPORT_SLOTS = 3, LAMPORT_WORDS = 4 };
enum {
    COMM_NUMBERS,                   /* of a block's exchange before, each its own */
    COMM_BROKEN = COMM_NORM_BLOCKS, /* 1: failed */
    COMM_LAMPORT = COMM_NORM_BLOCKS + 4 /* LAMPORT_WORDS of each block */,
    COMM_WORDS = COMM_LAMPORT + COMM_NORM_BLOCKS * LAMPORT_WORDS
};
enum { COMM_FAILED, COMM_STOP, COMM_HOST_WORDS }; /* 1 + the rank that was missing; the host says stop */
/* A rank's end of all exchanges. */
typedef struct gpu_exchange {
    gpu_i64 units;                          /* the last one of a rank: it has come, whether it sends anything or not */
    struct uint4 *mailboxes[GPU_RANKS_MAX]; /* [2, ranks, units], of each rank, in its memory */
    gpu_u32 *words;                         /* [COMM_WORDS], own */
    volatile gpu_u32 *host;                 /* [COMM_HOST_WORDS], in the host's memory */
    gpu_u64 deadline_ns;
    int rank, ranks;
} gpu_exchange;
typedef struct {
    gpu_exchange e;
    gpu_bf16 *x;        /* [n] */
    int n;              /* a multiple of GPU_UNIT_VALUES */
    int dim;            /* of a row of x; all_reduce: n */
    int across, chunks; /* pieces of a row that a block takes, all of them */
    int one_shot;
    struct uint2 *inboxes[GPU_RANKS_MAX]; /* [LAMPORT_SLOTS][ranks * room + relay_room], of each rank, in its memory */
    int room, relay_room;        /* units that there is room for: of a rank's part, of the sums that come back */
    int part_units, relay_units; /* that this exchange fills, the latter if not in one shot */
    gpu_after after;             /* all_reduce_norm: what is done with the sum, which is not written */
} gpu_all_reduce_args;
/* Sums of many values in two shots: each rank sums a part, [ranks] parts of `part` pieces of 8 values or fewer. A piece
 * lies at [from][piece] of the memory of whoever takes it, there when the flag [0][from][block] of the block that takes
 * it is the exchange's number; its sum is in everybody's x when [1][from][block] is. */
typedef struct {
    gpu_exchange e;
    gpu_bf16 *x;                         /* [n] */
    gpu_i64 n, part, room;               /* n: a multiple of 8; room: pieces of a part that there is memory for */
    int together;                        /* pieces that a block takes whole: 1, or those of a row */
    gpu_norm_args norm;                  /* all_reduce_parts_norm: of the sum, which is not written; all but `add` */
    struct uint4 *pieces[GPU_RANKS_MAX]; /* [ranks, room], of each rank */
    gpu_u32 *flags[GPU_RANKS_MAX];       /* [2, ranks, COMM_NORM_BLOCKS], of each rank */
    int sent;      /* all_reduce_parts_norm: the others have their pieces of this rank's x already */
    int own_alone; /* the same: they do not get its normed rows */
    int played;    /* the same: 1, or parts that the only rank plays: all get its normed rows */
    /* [rows of x]: take_rows_norm: the rank that alone has a row; give_rows_norm: that alone gets the normed row. */
    const int *maker, *reader;
} gpu_all_reduce_parts_args;
/* Of `count` matrices [n, width] this rank's rows [from, to) become everybody's; played: 1, or ranks whose parts the
 * only one plays, which get its rows. The flags as above, of the second shot. */
enum { GPU_DIVIDED_ROWS = 2 };
typedef struct {
    gpu_exchange e;
    struct {
        struct uint4 *at;
        gpu_i64 width; /* of a row, in pieces */
    } of[GPU_DIVIDED_ROWS];
    int count, played;
    gpu_i64 from, to, n;
    gpu_u32 *flags[GPU_RANKS_MAX];
} gpu_share_rows_args;
/* `rows` of `width` words of 32 bits, `stride` apart. */
typedef struct {
    gpu_u32 *at;
    gpu_i64 stride;
    int rows, width;
} gpu_block;
/* A KV cache in parts (context_parallel.cu): what a rank takes out of the others' memory. `ranks` divide the
 * cache: the exchange's, or more, whose part is then played by the only one. */
typedef struct {
    gpu_exchange e;
    const struct uint4 *own; /* [n, width] */
    struct uint4 *all;       /* [n, ranks, width] */
    gpu_i64 n, width;        /* width: pieces of 16 bytes */
    int ranks;
} gpu_all_queries_args;
typedef struct {
    gpu_exchange e;
    const gpu_bf16 *parts; /* [n, ranks, heads, latent] */
    const float *lse;      /* [n, ranks, heads] */
    gpu_bf16 *out;         /* [n, heads, latent] */
    gpu_i64 n, heads, latent;
    int ranks;
} gpu_merge_parts_args;
typedef struct {
    gpu_exchange e;
    const struct uint4 *kv; /* [pages here, page] */
    const int *pages;       /* [n] */
    struct uint4 *out;      /* [n, page] */
    gpu_i64 n, page;        /* page: pieces of 16 bytes */
    int ranks;
} gpu_collect_pages_args;
typedef struct {
    gpu_exchange e;
    gpu_block out[GPU_RANKS_MAX], in[GPU_RANKS_MAX]; /* for each rank, and from it; its own are copied */
} gpu_exchange_blocks_args;
/* What each rank may read here, and where what is read there goes. */
typedef struct {
    gpu_exchange e;
    const void *show[GPU_RANKS_MAX];
    void *to[GPU_RANKS_MAX];
    gpu_i64 bytes[GPU_RANKS_MAX];
} gpu_read_blocks_args;
typedef struct {
    gpu_exchange e;
    const void *x; /* [ranks, n] */
    void *out;     /* [n]: the sum of all ranks' parts of this one */
    gpu_i64 n;
    int type; /* gpu_type: bf16 or float32 */
} gpu_reduce_scatter_args;

/* The vision tower (vision/): ops.h's structs. wide: rows and tables begin at multiples of 16 bytes, widths are
 * multiples of 8 values; kernels without it have a sister for any row. */
typedef struct {
    int first, token, t, h, w;
} gpu_vision_item;
typedef struct {
    const gpu_u8 *pixels;
    gpu_bf16 *out;
    gpu_i64 n, dim, out_stride;
    int wide; /* of out; pixels: multiples of 4 bytes */
} gpu_pixel_rows_args;
typedef struct {
    gpu_matrix table;
    const float *bias, *time;
    const gpu_vision_item *items;
    gpu_bf16 *x;
    gpu_i64 n_items, dim;
    int table_h, table_w;
} gpu_patch_position_args;
typedef struct {
    const float *weight, *bias, *add_bias;
    const gpu_bf16 *x, *add;
    gpu_bf16 *sum, *out;
    gpu_i64 n, dim;
    float eps;
} gpu_layer_norm_args;
enum { GPU_BIAS_ONLY, GPU_BIAS_GELU, GPU_BIAS_GELU_TANH };
typedef struct {
    const float *bias;
    gpu_bf16 *x;
    gpu_i64 dim;
    int activation, wide;
} gpu_bias_act_args;
typedef struct {
    const float *bias, *table;
    const gpu_vision_item *items;
    gpu_bf16 *qkv;
    gpu_i64 n_items, heads, dim;
    int wide;
} gpu_vision_rope_args;
/* vision/attention.cu, attention_wgmma.cu: rows of a block by the width of a head that the kernel is made for, and its
 * shared memory. wgmma: queries, four stages of keys and values, barriers. */
enum {
    GPU_VISION_THREADS = 128,
    GPU_VISION_KEYS = 64,
    GPU_VISION_QUERIES_72 = 128,
    GPU_VISION_QUERIES_128 = 64,
    GPU_VISION_SHARED_72 = (GPU_VISION_QUERIES_72 + 4 * GPU_VISION_KEYS) * 72 * 2,
    GPU_VISION_SHARED_128 = (GPU_VISION_QUERIES_128 + 4 * GPU_VISION_KEYS) * 136 * 2,
    GPU_VISION_THREADS_WGMMA = 512,
    GPU_VISION_QUERIES_WGMMA = 192,
    GPU_VISION_SHARED_WGMMA = 4 * 64 * 128 + 4 * (3 * 128 * 128) + 2 * 4 * 8,
    GPU_VISION_HEAD = 512 /* widest head of the kernel for any width */
};
typedef struct {
    const gpu_bf16 *qkv;
    const gpu_vision_item *items;
    gpu_bf16 *out;
    gpu_i64 n_items, heads, dim;
    gpu_i64 begin, end; /* of all rows those that are computed */
    float scale2;       /* scale * log2(e) */
} gpu_vision_attention_args;
typedef struct {
    const float *weight, *bias;
    const gpu_vision_item *items;
    const gpu_bf16 *x;
    gpu_bf16 *out;
    gpu_i64 n, n_items, dim; /* n tokens */
    float eps;
} gpu_patch_merge_args;
enum { GPU_LAYER_NORM_WARP = 1280 /* values of a row that a warp holds */ };

#endif
