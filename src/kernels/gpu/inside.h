/* kernels/gpu/inside.h: what the host side of the gpu backend shares. */
#ifndef KERNELS_GPU_INSIDE_H
#define KERNELS_GPU_INSIDE_H
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gemm_table.h"
#include "kernels/gpu/tuned.h"

/* Kernel and the file that holds it. */
#define GPU_KERNELS(X)                                                                                                 \
    X(embed, "rows")                                                                                                   \
    X(norm, "rows")                                                                                                    \
    X(norm_many, "rows")                                                                                               \
    X(norm_plain, "rows")                                                                                              \
    X(norm_short, "rows")                                                                                              \
    X(norm_any, "rows")                                                                                                \
    X(finish_rows, "rows")                                                                                             \
    X(rope_table, "rows")                                                                                              \
    X(rope_q, "rows")                                                                                                  \
    X(kv_write, "rows")                                                                                                \
    X(kv_write_any, "rows")                                                                                            \
    X(latents, "rows")                                                                                                 \
    X(latents_many, "rows")                                                                                            \
    X(gather, "rows")                                                                                                  \
    X(finite, "rows")                                                                                                  \
    X(fill, "rows")                                                                                                    \
    X(route, "route")                                                                                                  \
    X(route_any, "route")                                                                                              \
    X(sort_few, "route")                                                                                               \
    X(sort_more, "route")                                                                                              \
    X(sort_count, "route")                                                                                             \
    X(sort_add, "route")                                                                                               \
    X(sort_place, "route")                                                                                             \
    X(sample_max, "sample")                                                                                            \
    X(sample_sum, "sample")                                                                                            \
    X(sample_cut, "sample")                                                                                            \
    X(sample_pick, "sample")                                                                                           \
    X(logprob_parts, "logprobs")                                                                                       \
    X(logprob_pick, "logprobs")                                                                                        \
    X(pack, "pack")                                                                                                    \
    X(fp8_pairs, "pack")                                                                                               \
    X(requant_rows, "requant")                                                                                         \
    X(requant_bf16, "requant")                                                                                         \
    X(requant_order, "requant")                                                                                        \
    X(linear_one, "linear")                                                                                            \
    X(linear_many, "linear")                                                                                           \
    X(swiglu_one, "linear")                                                                                            \
    X(swiglu_many, "linear")                                                                                           \
    X(linear_tile, "linear")                                                                                           \
    X(swiglu_tile, "linear")                                                                                           \
    X(silu_product, "linear")                                                                                          \
    X(rope_copy, "linear")                                                                                             \
    X(slab_8, "slab")                                                                                                  \
    X(slab_16, "slab")                                                                                                 \
    X(slab_32, "slab")                                                                                                 \
    X(slab_64, "slab")                                                                                                 \
    X(thin_8, "slab")                                                                                                  \
    X(thin_16, "slab")                                                                                                 \
    X(thin_32, "slab")                                                                                                 \
    X(thin_64, "slab")                                                                                                 \
    X(add_8, "slab")                                                                                                   \
    X(add_16, "slab")                                                                                                  \
    X(add_32, "slab")                                                                                                  \
    X(add_64, "slab")                                                                                                  \
    X(gate_8, "slab")                                                                                                  \
    X(gate_16, "slab")                                                                                                 \
    X(gate_32, "slab")                                                                                                 \
    X(gate_64, "slab")                                                                                                 \
    X(broad_64, "broad")                                                                                               \
    X(broad_144, "broad")                                                                                              \
    X(broad_256, "broad")                                                                                              \
    X(broad_add_64, "broad")                                                                                           \
    X(broad_add_144, "broad")                                                                                          \
    X(broad_gate_64, "broad")                                                                                          \
    X(broad_gate_144, "broad")                                                                                         \
    X(query_8, "query")                                                                                                \
    X(query_16, "query")                                                                                               \
    X(query_32, "query")                                                                                               \
    X(query_64, "query")                                                                                               \
    X(wide_64, "wide")                                                                                                 \
    X(wide_128, "wide")                                                                                                \
    X(wide_256, "wide")                                                                                                \
    X(absorb_tile, "absorb")                                                                                           \
    X(absorb_q, "attention")                                                                                           \
    X(mla_decode, "attention")                                                                                         \
    X(mla_merge, "attention")                                                                                          \
    X(mla_few8, "decode_few")                                                                                          \
    X(mla_few16, "decode_few")                                                                                         \
    X(mla_few8_fp8, "decode_few")                                                                                      \
    X(mla_few16_fp8, "decode_few")                                                                                     \
    X(mla_many, "decode_many")                                                                                         \
    X(mla_many_fp8, "decode_many_fp8")                                                                                 \
    X(mla_join_few, "decode_join")                                                                                     \
    X(values_8, "decode_values")                                                                                       \
    X(values_16, "decode_values")                                                                                      \
    X(values_32, "decode_values")                                                                                      \
    X(values_64, "decode_values")                                                                                      \
    X(mla_unpage, "prefill")                                                                                           \
    X(mla_flash, "prefill")                                                                                            \
    X(unpage, "attention")                                                                                             \
    X(mla_prefill, "attention")                                                                                        \
    X(moe_up, "moe")                                                                                                   \
    X(moe_down, "moe")                                                                                                 \
    X(moe_up_tile, "moe")                                                                                              \
    X(moe_down_tile, "moe")                                                                                            \
    X(moe_tiles, "moe_tiles")                                                                                          \
    X(moe_up_64, "moe_wgmma")                                                                                          \
    X(moe_down_64, "moe_wgmma")                                                                                        \
    X(moe_up_128, "moe_wgmma")                                                                                         \
    X(moe_down_128, "moe_wgmma")                                                                                       \
    X(moe_up_176, "moe_wide")                                                                                          \
    X(moe_down_176, "moe_wide")                                                                                        \
    X(moe_bf16_up_64, "moe_wgmma_bf16")                                                                                \
    X(moe_bf16_down_64, "moe_wgmma_bf16")                                                                              \
    X(moe_bf16_up_176, "moe_wgmma_bf16")                                                                               \
    X(moe_bf16_down_176, "moe_wgmma_bf16")                                                                             \
    X(moe_fp8_up_64, "moe_wgmma_fp8")                                                                                  \
    X(moe_fp8_down_64, "moe_wgmma_fp8")                                                                                \
    X(moe_fp8_up_128, "moe_wgmma_fp8")                                                                                 \
    X(moe_fp8_down_128, "moe_wgmma_fp8")                                                                               \
    X(moe_int8_up_64, "moe_int8")                                                                                      \
    X(moe_int8_down_64, "moe_int8")                                                                                    \
    X(moe_int8_up_176, "moe_int8")                                                                                     \
    X(moe_int8_down_176, "moe_int8")                                                                                   \
    X(int8_x, "moe_int8_rows")                                                                                         \
    X(int8_h, "moe_int8_rows")                                                                                         \
    X(moe_sum, "moe_tiles")                                                                                            \
    X(moe_sum_norm, "moe_tiles")                                                                                       \
    X(moe_combine_row, "moe_tiles")                                                                                    \
    X(moe_combine, "moe")                                                                                              \
    X(few_one_1, "few_one")                                                                                            \
    X(few_one_4, "few_one")                                                                                            \
    X(feed_1, "feed_one")                                                                                              \
    X(feed_2, "feed_one")                                                                                              \
    X(feed_4, "feed_one")                                                                                              \
    X(moe_combine_norm, "moe")                                                                                         \
    X(few_rows, "few")                                                                                                 \
    X(few_4, "few")                                                                                                    \
    X(few_8, "few")                                                                                                    \
    X(plain_begin, "few_plain")                                                                                        \
    X(plain_bf16, "few_plain")                                                                                         \
    X(plain_fp8, "few_plain")

typedef struct {
    gpu *g;
    rows_form form;
    f32 *skinny_sums; /* dense.c */
    int *skinny_count;
    struct cublas *blas; /* NULL: there is none, for this reason: */
    err no_blas;
    f32 *halves;
    gpu_u32 *meetings;              /* decode.c */
    const moe_choice *forced;       /* moe.c: NULL, or how all calls of experts run */
    const tuned_table *tuned;       /* NULL: none */
    char tuned_name[4096];          /* its file */
    const gemm_choice *forced_gemm; /* the same for matrix products: gemm.c */
    const gemm_table *gemms;
    char gemms_name[4096];
    gemm_seen *seen; /* NULL: nobody looks */
    gpu_u32 *few_h;  /* few.c: of few_one.cu */
    int *few_words;
    gpu_u32 *feed_h, *feed_first; /* the same, and its own words, of feed_one.cu */
    int *feed_words;
    const moe_args *wants_digits; /* while feed runs op by op: NULL, or whose x the gate's launch makes digits of */
    bool has_digits;              /* it has */
#define GPU_KERNEL_FIELD(name, file) gpu_kernel *name;
    GPU_KERNELS(GPU_KERNEL_FIELD)
#undef GPU_KERNEL_FIELD
} gpu_backend;

gpu_backend *gpu_of(const ops *o); /* the one that o was made for */

/* A weight in the GPU's memory, in the checkpoint's own layout; INT4 experts whose shapes fit as pack.h has them. */
struct op_weight {
    gpu *g;
    weight_kind kind;
    i64 n_views, n_heads, nope, v_dim;
    void *memory;       /* all data and scales, one allocation */
    float *vector;      /* WK_VECTOR: float32 [cols], inside memory */
    gpu_matrix *on_gpu; /* WK_EXPERTS: [n_views], inside memory */
    /* the first; experts have equal shapes: gate, up and down of expert 0, the others' behind them */
    gpu_matrix views[3];
    bool int8;        /* WK_EXPERTS: EXPERTS_W4A8 */
    u64 expert_bytes; /* WK_EXPERTS: from a matrix of an expert to the same one of the next */
};
status gpu_weight_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e);
void gpu_weight_release(op_weight *w);

/* ops.h, in attention.c, route.c, moe.c and sample.c */
status gpu_op_fits(const ops *o, const ops_widths *w, err *e);
void gpu_op_mla_decode(const ops *o, const mla_decode_args *a);
void gpu_op_mla_prefill(const ops *o, const mla_prefill_args *a);
u64 gpu_op_mla_decode_workspace(const ops *o, const mla_decode_args *a);
u64 gpu_op_mla_prefill_workspace(const ops *o, const mla_prefill_args *a);
void gpu_op_route(const ops *o, const route_args *a);
void gpu_op_route_beside(const ops *o, const route_args *a, const linear_args *l);
/* decode.c: mla_decode by the fast kernels, for Kimi's widths and a KV cache of bf16 or FP8. */
bool gpu_decode_is_fast(const mla_decode_args *a);
u64 gpu_decode_workspace(const mla_decode_args *a);
void gpu_decode_fast(const ops *o, const mla_decode_args *a);
void gpu_op_attend(const ops *o, const mla_decode_args *a, const unabsorb_v_args *v);
status gpu_decode_init(gpu_backend *b, err *e);
void gpu_op_moe(const ops *o, const moe_args *a);
gpu_combine_args gpu_combine_of(const moe_args *a, const f32 *y);
void gpu_op_moe_norm(const ops *o, const moe_norm_args *a);
void gpu_op_feed(const ops *o, const feed_args *a);
/* later.c: rows whose norm is finished later. */
gpu_later gpu_later_of(const rows_later *l); /* NULL: finished */
/* May the norm behind a sum of n rows in `parts` parts be finished later? Then fills in `after`, and says so. */
bool gpu_may_finish_later(const norm_args *norm, rows_later *later, i64 parts, gpu_after *after);
void gpu_finish_rows(const ops *o, const void *x, i64 n, i64 x_stride, rows_later *l); /* now, if not yet */
void gpu_op_sample(const ops *o, const sample_args *a);
u64 gpu_op_sample_workspace(const ops *o, const sample_args *a);
void gpu_op_logprobs(const ops *o, const logprobs_args *a); /* logprobs.c */
u64 gpu_op_logprobs_workspace(const ops *o, const logprobs_args *a);
u64 gpu_op_moe_workspace(const ops *o, const moe_args *a);
/* moe_large.c: many tokens an expert, on warpgroup products. The workspace is for tiles of any width. */
enum { TILE_LEAST = 16 };
u64 gpu_moe_large_workspace(const moe_args *a);
bool gpu_moe_large(const ops *o, const moe_args *a, const moe_choice *how, const norm_args *norm);
/* The sum of slots, of y in halves, and the norm behind it, if there is one and it fits: then true. */
bool gpu_run_sum(const ops *o, const moe_args *a, const void *y, const gpu_u32 *most, const norm_args *norm);
status gpu_moe_large_open(gpu_backend *b, err *e);

/* moe_int8.c: the same with int8 activations. */
u64 gpu_moe_int8_workspace(const moe_args *a);
bool gpu_moe_int8(const ops *o, const moe_args *a, const moe_choice *how, const norm_args *norm);
status gpu_moe_int8_open(gpu_backend *b, err *e);

/* few.c: the products of routed experts at few tokens, y of pairs that there are; false: shared memory or x's
 * address does not allow it. */
u64 gpu_few_workspace(const moe_args *a);
bool gpu_run_few(const ops *o, const moe_args *a, const moe_choice *how, u8 *space, f32 *y);
/* What its first launch does, for the gate's (gate.cuh); by moe.c of a call as it is. */
gpu_digits_args gpu_few_digits(const moe_args *a, u8 *space);
gpu_digits_args gpu_moe_digits(const moe_args *a);
/* All of routed experts at up to four tokens in one launch, if this call fits. after: NULL, or of the norm behind
 * it, a part for each PACK_ROWS of the result. */
bool gpu_run_few_one(const ops *o, const moe_args *a, const gpu_after *after);
bool gpu_run_feed(const ops *o, const feed_args *a, const gpu_after *after); /* and all in front of them */
status gpu_few_open(gpu_backend *b, err *e);

/* few_plain.c: a whole call with experts in bf16 or FP8 as they are stored, y of gpu_plain_tokens() tokens at a
 * time. */
i64 gpu_plain_tokens(const moe_args *a);
u64 gpu_plain_workspace(const moe_args *a);
bool gpu_plain_is_one(const op_weight *w); /* may all experts be seen as one matrix? */
void gpu_run_plain(const ops *o, const moe_args *a, u8 *space, f32 *y);
status gpu_plain_open(gpu_backend *b, err *e);

/* May the tensor cores take w: a format that bf16 holds, rows and x at multiples of 16 bytes? */
static inline bool can_tile(const gpu_matrix *w, const void *x, i64 x_stride) {
    return w->format != GPU_W_F32 && (w->wide || w->format == GPU_W_PACKED) &&
           ((u64)(uintptr_t)x | (u64)x_stride * 2) % 16 == 0;
}
enum { TILE_FROM = 32 /* rows of x */, TILE_MEAN = 8 /* tokens an expert */ };

/* gemm.c: how a matrix product of more than 64 rows runs; it, on the library, as chosen (false: the library has
 * nothing for it). */
gemm_choice gpu_gemm_choice(const gemm_call *c);
bool gpu_multiply(cublas_product *p, const gemm_choice *how);

/* dense.c */
status gpu_dense_init(gpu_backend *b, err *e);
/* One linear call: n rows of x. exact: INT4 and FP8 weights may not be rounded to bf16, as tiles do. */
void gpu_run_linear(const ops *o, gpu_linear_args *a, i64 heads, bool exact);
/* wide.c: by tiles whose sums have one order for any number of rows. False if it does not take these weights. */
bool gpu_run_wide(const ops *o, const gpu_linear_args *a, bool swiglu);
status gpu_wide_open(gpu_backend *b, err *e);
void gpu_op_linear(const ops *o, const linear_args *a);
void gpu_op_linear_norm(const ops *o, const linear_norm_args *a);
void gpu_op_swiglu(const ops *o, const swiglu_args *a);
void gpu_op_products(const ops *o, const products_args *a);
void gpu_op_absorb_q(const ops *o, const absorb_q_args *a);
void gpu_op_unabsorb_v(const ops *o, const unabsorb_v_args *a);

/* Blocks behind those of a product (gate.cuh). */
static inline i64 gpu_gate_blocks(const gpu_gate_args *a, i64 threads, i64 digit_warps) {
    i64 rows = ceil_div(a->gate.n, digit_warps) + (a->digits.x ? a->digits.n : 0);
    return a->digits.x ? ceil_div(rows * digit_warps, threads / 32) : ceil_div(a->gate.n, threads / 32);
}
/* dense.c: a product of few rows with the gate beside it, and x as digits if digits->x. False: not for slab.cu. */
bool gpu_run_gate(const ops *o, const gpu_route_args *gate, const gpu_digits_args *digits, const linear_args *l);
/* broad.c: products of 17 to 64 rows of x, with the gate beside it or NULL; *parts: of the sums for rows finished
 * later. False: not for it. */
status gpu_broad_init(gpu_backend *b, err *e);
bool gpu_run_broad(const gpu_backend *b, const gpu_skinny_args *k, const gpu_gate_args *gate, i64 *parts);
/* query.c */
status gpu_query_init(gpu_backend *b, err *e);
void gpu_op_queries(const ops *o, const queries_args *a);
gpu_norm_args gpu_norm_of(const norm_args *a);
bool gpu_norm_in_pieces(const norm_args *a);
gpu_kv_write_args gpu_kv_write_of(const kv_write_args *a);
bool gpu_kv_in_pieces(const kv_write_args *a);

/* Sorting pairs by expert (route.c): fills *s but for `ids`, with pointers into `base`; returns the bytes there. */
u64 gpu_sort_layout(i64 pairs, i64 experts, u8 *base, gpu_sort_args *s);
void gpu_run_sort(const ops *o, const gpu_sort_args *s);

enum { SHARED_MAX = 227 * 1024 /* of a block on sm_90 */ };
static const f32 LOG2_E = 1.44269504f;
int gpu_type(dtype t); /* GPU_F32 ... */
static inline u32 gpu_blocks(i64 n, i64 each) { return (u32)((n + each - 1) / each); }
/* Pieces of a workspace: each begins at a multiple of 256 bytes. */
static inline u64 gpu_round(u64 bytes) { return (bytes + 255) & ~(u64)255; }

#endif
