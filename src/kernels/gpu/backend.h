/* kernels/gpu/backend.h: what the host side of the gpu backend shares. */
#ifndef KERNELS_GPU_BACKEND_H
#define KERNELS_GPU_BACKEND_H
#include "kernels/fused.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gemm/gemm_tuned.h"
#include "kernels/gpu/moe/moe_tuned.h"

/* Kernel and the file that holds it. */
#define GPU_KERNELS(X)                                                                                                 \
    X(embed, "rows/rows")                                                                                              \
    X(norm, "rows/rows")                                                                                               \
    X(norm_many, "rows/rows")                                                                                          \
    X(norm_plain, "rows/rows")                                                                                         \
    X(norm_short, "rows/rows")                                                                                         \
    X(norm_any, "rows/rows")                                                                                           \
    X(finish_rows, "rows/rows")                                                                                        \
    X(rope_table, "rows/rows")                                                                                         \
    X(rope_q, "rows/rows")                                                                                             \
    X(kv_write, "rows/rows")                                                                                           \
    X(kv_write_any, "rows/rows")                                                                                       \
    X(latent_norm_kv_write, "rows/rows")                                                                               \
    X(latent_norm_kv_write_many, "rows/rows")                                                                          \
    X(gather, "rows/rows")                                                                                             \
    X(mark_nonfinite, "rows/rows")                                                                                     \
    X(fill, "rows/rows")                                                                                               \
    X(all_reduce, "comm/all_reduce")                                                                                   \
    X(all_reduce_norm, "comm/all_reduce")                                                                              \
    X(all_reduce_norm_few, "comm/all_reduce")                                                                          \
    X(all_reduce_parts, "comm/all_reduce_parts")                                                                       \
    X(all_reduce_parts_norm, "comm/all_reduce_parts")                                                                  \
    X(take_rows_norm, "comm/all_reduce_parts")                                                                         \
    X(give_rows_norm, "comm/all_reduce_parts")                                                                         \
    X(share_rows, "comm/share_rows")                                                                                   \
    X(all_queries, "comm/context_parallel")                                                                            \
    X(merge_parts, "comm/context_parallel")                                                                            \
    X(collect_pages, "comm/context_parallel")                                                                          \
    X(exchange_blocks, "comm/exchange_blocks")                                                                         \
    X(read_blocks, "comm/read_peers")                                                                                  \
    X(reduce_scatter, "comm/read_peers")                                                                               \
    X(gate, "rows/gate")                                                                                               \
    X(gate_any, "rows/gate")                                                                                           \
    X(sort_few, "moe/sort")                                                                                            \
    X(sort_more, "moe/sort")                                                                                           \
    X(sort_count, "moe/sort")                                                                                          \
    X(sort_add, "moe/sort")                                                                                            \
    X(sort_place, "moe/sort")                                                                                          \
    X(sample_max, "rows/sample")                                                                                       \
    X(sample_sum, "rows/sample")                                                                                       \
    X(sample_cut, "rows/sample")                                                                                       \
    X(sample_pick, "rows/sample")                                                                                      \
    X(logprob_parts, "rows/logprobs")                                                                                  \
    X(logprob_pick, "rows/logprobs")                                                                                   \
    X(kv_copy, "rows/beams")                                                                                           \
    X(draft_beams, "rows/beams")                                                                                       \
    X(pixel_rows, "vision/rows")                                                                                       \
    X(patch_position, "vision/rows")                                                                                   \
    X(patch_position_any, "vision/rows")                                                                               \
    X(layer_norm, "vision/rows")                                                                                       \
    X(layer_norm_any, "vision/rows")                                                                                   \
    X(bias_act, "vision/rows")                                                                                         \
    X(vision_rope, "vision/rows")                                                                                      \
    X(patch_merge, "vision/rows")                                                                                      \
    X(patch_merge_any, "vision/rows")                                                                                  \
    X(vision_attention_wgmma, "vision/attention_wgmma")                                                                \
    X(vision_attention_72, "vision/attention")                                                                         \
    X(vision_attention_128, "vision/attention")                                                                        \
    X(vision_attention_any, "vision/attention")                                                                        \
    X(pack, "weights/repack")                                                                                          \
    X(pack_fp4, "weights/repack")                                                                                      \
    X(fp8_pairs, "weights/repack")                                                                                     \
    X(requant_int4, "weights/requant")                                                                                 \
    X(row_max_scale, "weights/repack")                                                                                 \
    X(requant_bf16, "weights/requant")                                                                                 \
    X(requant_order, "weights/requant")                                                                                \
    X(requant_groups, "weights/requant")                                                                               \
    X(linear_one, "gemm/generic")                                                                                      \
    X(linear_many, "gemm/generic")                                                                                     \
    X(swiglu_one, "gemm/generic")                                                                                      \
    X(swiglu_many, "gemm/generic")                                                                                     \
    X(linear_tile, "gemm/generic")                                                                                     \
    X(swiglu_tile, "gemm/generic")                                                                                     \
    X(silu_product, "gemm/generic")                                                                                    \
    X(rope_copy, "gemm/generic")                                                                                       \
    X(skinny_streamk_8, "gemm/skinny_splitk")                                                                          \
    X(skinny_streamk_16, "gemm/skinny_splitk")                                                                         \
    X(skinny_streamk_32, "gemm/skinny_splitk")                                                                         \
    X(skinny_streamk_64, "gemm/skinny_splitk")                                                                         \
    X(skinny_few_16, "gemm/skinny_few")                                                                                \
    X(skinny_few_32, "gemm/skinny_few")                                                                                \
    X(skinny_few_64, "gemm/skinny_few")                                                                                \
    X(skinny_few_residual_16, "gemm/skinny_few")                                                                       \
    X(skinny_few_residual_32, "gemm/skinny_few")                                                                       \
    X(skinny_few_residual_64, "gemm/skinny_few")                                                                       \
    X(skinny_cluster_8, "gemm/skinny_splitk")                                                                          \
    X(skinny_cluster_16, "gemm/skinny_splitk")                                                                         \
    X(skinny_cluster_32, "gemm/skinny_splitk")                                                                         \
    X(skinny_cluster_64, "gemm/skinny_splitk")                                                                         \
    X(skinny_residual_8, "gemm/skinny_splitk")                                                                         \
    X(skinny_residual_16, "gemm/skinny_splitk")                                                                        \
    X(skinny_residual_32, "gemm/skinny_splitk")                                                                        \
    X(skinny_residual_64, "gemm/skinny_splitk")                                                                        \
    X(skinny_gate_8, "gemm/skinny_splitk")                                                                             \
    X(skinny_gate_16, "gemm/skinny_splitk")                                                                            \
    X(skinny_gate_32, "gemm/skinny_splitk")                                                                            \
    X(skinny_gate_64, "gemm/skinny_splitk")                                                                            \
    X(skinny_tma_64, "gemm/skinny_tma")                                                                                \
    X(skinny_tma_144, "gemm/skinny_tma")                                                                               \
    X(skinny_tma_256, "gemm/skinny_tma")                                                                               \
    X(skinny_tma_residual_64, "gemm/skinny_tma")                                                                       \
    X(skinny_tma_residual_144, "gemm/skinny_tma")                                                                      \
    X(skinny_tma_gate_64, "gemm/skinny_tma")                                                                           \
    X(skinny_tma_gate_144, "gemm/skinny_tma")                                                                          \
    X(query_fused_8, "mla/query_fused")                                                                                \
    X(query_fused_16, "mla/query_fused")                                                                               \
    X(query_fused_32, "mla/query_fused")                                                                               \
    X(query_fused_64, "mla/query_fused")                                                                               \
    X(invariant_64, "gemm/invariant")                                                                                  \
    X(invariant_128, "gemm/invariant")                                                                                 \
    X(invariant_256, "gemm/invariant")                                                                                 \
    X(absorb_q_tile, "mla/absorb_q")                                                                                   \
    X(absorb_q, "mla/generic")                                                                                         \
    X(mla_decode, "mla/generic")                                                                                       \
    X(mla_merge, "mla/generic")                                                                                        \
    X(decode_plan, "mla/decode_plan")                                                                                  \
    X(mla_decode_mma8, "mla/decode_mma")                                                                               \
    X(mla_decode_mma16, "mla/decode_mma")                                                                              \
    X(mla_decode_mma8_fp8, "mla/decode_mma")                                                                           \
    X(mla_decode_mma8_fp8_rows, "mla/decode_mma")                                                                      \
    X(mla_decode_mma16_fp8, "mla/decode_mma")                                                                          \
    X(mla_decode_wgmma, "mla/decode_wgmma")                                                                            \
    X(mla_decode_wgmma_fp8, "mla/decode_wgmma_fp8")                                                                    \
    X(mla_combine, "mla/combine")                                                                                      \
    X(combine_unabsorb_8, "mla/combine_unabsorb")                                                                      \
    X(combine_unabsorb_16, "mla/combine_unabsorb")                                                                     \
    X(combine_unabsorb_32, "mla/combine_unabsorb")                                                                     \
    X(combine_unabsorb_64, "mla/combine_unabsorb")                                                                     \
    X(combine_unabsorb_groups_8, "mla/combine_unabsorb")                                                               \
    X(combine_unabsorb_groups_16, "mla/combine_unabsorb")                                                              \
    X(mla_gather_kv, "mla/prefill")                                                                                    \
    X(mla_flash, "mla/prefill")                                                                                        \
    X(prefill_rows, "mla/prefill")                                                                                     \
    X(gather_kv, "mla/generic")                                                                                        \
    X(mla_prefill, "mla/generic")                                                                                      \
    X(heads_write, "heads/heads")                                                                                      \
    X(heads_decode_f32, "heads/heads")                                                                                 \
    X(heads_decode_bf16_one, "heads/heads")                                                                            \
    X(heads_decode_bf16, "heads/heads")                                                                                \
    X(heads_decode_fp8_one, "heads/heads")                                                                             \
    X(heads_decode_fp8, "heads/heads")                                                                                 \
    X(heads_combine, "heads/heads")                                                                                    \
    X(moe_up, "moe/generic")                                                                                           \
    X(moe_down, "moe/generic")                                                                                         \
    X(moe_up_tile, "moe/generic")                                                                                      \
    X(moe_down_tile, "moe/generic")                                                                                    \
    X(moe_tiles, "moe/tiles")                                                                                          \
    X(grouped_int4_up_64, "moe/grouped_int4")                                                                          \
    X(grouped_int4_down_64, "moe/grouped_int4")                                                                        \
    X(grouped_int4_up_128, "moe/grouped_int4")                                                                         \
    X(grouped_int4_down_128, "moe/grouped_int4")                                                                       \
    X(grouped_mxfp4_up_64, "moe/grouped_mxfp4")                                                                        \
    X(grouped_mxfp4_down_64, "moe/grouped_mxfp4")                                                                      \
    X(grouped_mxfp4_up_128, "moe/grouped_mxfp4")                                                                       \
    X(grouped_mxfp4_down_128, "moe/grouped_mxfp4")                                                                     \
    X(grouped_mxfp4_up_176, "moe/grouped_mxfp4_n176")                                                                  \
    X(grouped_mxfp4_down_176, "moe/grouped_mxfp4_n176")                                                                \
    X(grouped_nvfp4_up_64, "moe/grouped_nvfp4")                                                                        \
    X(grouped_nvfp4_down_64, "moe/grouped_nvfp4")                                                                      \
    X(grouped_nvfp4_up_128, "moe/grouped_nvfp4")                                                                       \
    X(grouped_nvfp4_down_128, "moe/grouped_nvfp4")                                                                     \
    X(grouped_nvfp4_up_176, "moe/grouped_nvfp4_n176")                                                                  \
    X(grouped_nvfp4_down_176, "moe/grouped_nvfp4_n176")                                                                \
    X(grouped_int4_up_176, "moe/grouped_int4_n176")                                                                    \
    X(grouped_int4_down_176, "moe/grouped_int4_n176")                                                                  \
    X(grouped_bf16_up_64, "moe/grouped_bf16")                                                                          \
    X(grouped_bf16_down_64, "moe/grouped_bf16")                                                                        \
    X(grouped_bf16_up_176, "moe/grouped_bf16")                                                                         \
    X(grouped_bf16_down_176, "moe/grouped_bf16")                                                                       \
    X(grouped_fp8_up_64, "moe/grouped_fp8")                                                                            \
    X(grouped_fp8_down_64, "moe/grouped_fp8")                                                                          \
    X(grouped_fp8_up_128, "moe/grouped_fp8")                                                                           \
    X(grouped_fp8_down_128, "moe/grouped_fp8")                                                                         \
    X(grouped_w4a8_up_64, "moe/grouped_w4a8")                                                                          \
    X(grouped_w4a8_down_64, "moe/grouped_w4a8")                                                                        \
    X(grouped_w4a8_up_176, "moe/grouped_w4a8")                                                                         \
    X(grouped_w4a8_down_176, "moe/grouped_w4a8")                                                                       \
    X(quantize_x, "moe/quantize_rows")                                                                                 \
    X(quantize_h, "moe/quantize_rows")                                                                                 \
    X(moe_sum, "moe/tiles")                                                                                            \
    X(moe_sum_norm, "moe/tiles")                                                                                       \
    X(moe_combine_row, "moe/tiles")                                                                                    \
    X(sum_pairs, "moe/generic")                                                                                        \
    X(moe_combine, "moe/generic")                                                                                      \
    X(decode_fused_1, "moe/decode_fused")                                                                              \
    X(decode_fused_4, "moe/decode_fused")                                                                              \
    X(ffn_fused_1, "moe/ffn_fused")                                                                                    \
    X(ffn_fused_2, "moe/ffn_fused")                                                                                    \
    X(ffn_fused_4, "moe/ffn_fused")                                                                                    \
    X(moe_combine_norm, "moe/generic")                                                                                 \
    X(decode_int4_rows, "moe/decode_int4")                                                                             \
    X(decode_int4_4, "moe/decode_int4")                                                                                \
    X(decode_int4_8, "moe/decode_int4")                                                                                \
    X(decode_fp4_begin, "moe/decode_fp4")                                                                              \
    X(decode_mxfp4, "moe/decode_fp4")                                                                                  \
    X(decode_nvfp4, "moe/decode_fp4")                                                                                  \
    X(decode_stored_begin, "moe/decode_stored")                                                                        \
    X(decode_stored_bf16, "moe/decode_stored")                                                                         \
    X(decode_stored_fp8, "moe/decode_stored")

/* One GPU's state, which ops.state of its table points to. */
typedef struct {
    gpu *g;
    device_pool pool; /* what it allocates for itself */
    row_mode form;
    f32 *skinny_sums; /* gemm.c */
    int *skinny_count;
    struct cublas *blas; /* NULL: there is none, for this reason: */
    err no_blas;
    f32 *halves;
    gpu_u32 *meetings;        /* decode.c */
    const moe_choice *forced; /* moe.c: NULL, or how all calls of experts run */
    const tuned_table *tuned; /* NULL: none; else tuned_rows */
    tuned_table tuned_rows;
    char tuned_name[4096];          /* its file */
    const gemm_choice *forced_gemm; /* the same for matrix products: gemm_cublas.c */
    const gemm_table *gemms;        /* NULL: none; else gemm_rows */
    gemm_table gemm_rows;
    char gemms_name[4096];
    gemm_seen *seen;        /* NULL: nobody looks */
    struct op_costs *costs; /* op_cost.c; NULL: nothing is counted */
    gpu_u32 *fused_h;       /* decode_int4.c: of decode_fused.cu */
    int *fused_words;
    void *replaced; /* load.c: an expert's matrix on its way to its place, of so many bytes; NULL: none came yet */
    u64 replaced_room;
    gpu_u32 *ffn_h, *ffn_first; /* the same, and its own words, of ffn_fused.cu */
    int *ffn_words;
#define GPU_KERNEL_FIELD(name, file) gpu_kernel *name;
    GPU_KERNELS(GPU_KERNEL_FIELD)
#undef GPU_KERNEL_FIELD
} gpu_backend;

static inline gpu_backend *gpu_of(const ops *o) { return o->state; }

/* A weight in the GPU's memory, in the checkpoint's own layout; INT4 experts whose shapes fit as int4_pack.h has
 * them. */
struct op_weight {
    gpu *g;
    weight_kind kind;
    i64 n_views, n_heads, nope, v_dim;
    void *memory;       /* all data and scales, one allocation */
    float *vector;      /* WK_VECTOR: float32 [cols], inside memory */
    gpu_matrix *on_gpu; /* WK_EXPERTS: [n_views], inside memory */
    /* the first; experts have equal shapes: gate, up and down of expert 0, the others' behind them */
    gpu_matrix views[3];
    gpu_matrix padded; /* WK_LINEAR: the same, columns of zeros up to a multiple of 8; data NULL: they are one */
    bool int8;         /* WK_EXPERTS: EXPERTS_W4A8 */
    u64 expert_bytes;  /* WK_EXPERTS: from a matrix of an expert to the same one of the next */
};
status gpu_weight_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e);
void gpu_weight_release(op_weight *w);
status gpu_weight_replace(const ops *o, op_weight *w, i64 first, const weight_desc *d, err *e);

/* ops.h and fused.h */
status gpu_op_fits(const ops *o, const ops_widths *w, err *e);
#define GPU_OP(op)           void gpu_op_##op(const ops *o, const op##_args *a);
#define GPU_WORKSPACE_OP(op) u64 gpu_op_##op##_workspace(const ops *o, const op##_args *a);
OPS(GPU_OP)
FUSED_OPS(GPU_OP)
OPS_WITH_WORKSPACE(GPU_WORKSPACE_OP)
#undef GPU_OP
#undef GPU_WORKSPACE_OP
/* decode.c: mla_decode by the fast kernels, for Kimi's widths and a KV cache of bf16 or FP8. */
bool gpu_decode_is_fast(const mla_decode_args *a);
/* What the call says, with which each way of decoding begins. */
gpu_decode_args gpu_decode_call(const mla_decode_args *a);
u64 gpu_decode_workspace(const gpu_backend *b, const mla_decode_args *a);
void gpu_decode_fast(const gpu_backend *b, const mla_decode_args *a);
status gpu_decode_init(gpu_backend *b, err *e);
/* prefill_few.c: few rows of a prompt behind a long context, in absorbed form. */
bool gpu_prefill_is_few(const gpu_backend *b, const mla_prefill_args *a);
u64 gpu_prefill_few_workspace(const gpu_backend *b, const mla_prefill_args *a); /* for as many such rows, or fewer */
void gpu_prefill_few(const ops *o, const mla_prefill_args *a);
bool gpu_decode_groups_pay(i64 heads, i64 rows, i64 tokens, dtype kv);
status gpu_heads_fits(const ops_widths *w, err *e);  /* heads.c, of gpu_op_fits */
status gpu_vision_fits(const ops_widths *w, err *e); /* vision.c, the same */
status gpu_vision_open(gpu_backend *b, err *e);
gpu_combine_args gpu_combine_of(const moe_args *a, const f32 *y);
/* deferred_norm.c: rows whose norm is finished later. */
gpu_deferred_norm gpu_deferred_norm_of(const deferred_norm *l); /* NULL: finished */
/* May the norm behind a sum of n rows in `parts` parts be finished later? Then fills in `after`, and says so. */
bool gpu_may_defer_norm(const gpu_backend *b, const norm_args *norm, deferred_norm *deferred, i64 parts,
                        gpu_after *after);
void gpu_finish_rows(const ops *o, const void *x, i64 n, i64 x_stride, deferred_norm *l); /* now, if not yet */
/* grouped.c: many tokens an expert, on warpgroup products. The workspace is for tiles of any width. */
enum { TILE_LEAST = 16 };
u64 gpu_grouped_workspace(const moe_args *a);
void gpu_grouped(const ops *o, const moe_args *a, const moe_choice *how, const norm_args *norm);
/* The sum of slots, of y in halves, and the norm behind it unless NULL. */
void gpu_run_sum(const ops *o, const moe_args *a, const void *y, const gpu_u32 *y_amax, const norm_args *norm);
status gpu_grouped_open(gpu_backend *b, err *e);

/* grouped_w4a8.c: the same with int8 activations. */
u64 gpu_grouped_w4a8_workspace(const moe_args *a);
void gpu_grouped_w4a8(const ops *o, const moe_args *a, const moe_choice *how, const norm_args *norm);
status gpu_grouped_w4a8_open(gpu_backend *b, err *e);

/* decode_int4.c: the products of routed experts at few tokens, y of pairs that there are. */
u64 gpu_decode_int4_workspace(const moe_args *a);
void gpu_run_decode_int4(const ops *o, const moe_args *a, const moe_choice *how, u8 *space, f32 *y);
/* What its first launch does, for the gate's (gate_fused.cuh). */
gpu_digits_args gpu_decode_int4_digits(const moe_args *a, u8 *space);
/* moe.c: that of a call, or none: x NULL. */
gpu_digits_args gpu_moe_digits(const ops *o, const moe_args *a);
/* All of routed experts at up to four tokens in one launch. after: NULL, or of the norm behind it, a part for each
 * PACK_ROWS of the result. */
void gpu_run_decode_fused(const ops *o, const moe_args *a, const gpu_after *after);
void gpu_run_ffn_fused(const ops *o, const moe_ffn_args *a, const gpu_after *after); /* and all in front of them */
/* Has a call shapes for it: are all products those of one x, of shapes that fit each other? *inter: rows of the shared
 * expert's gate, 0: there is none. */
bool gpu_ffn_fused_fits(const moe_ffn_args *a, i64 *inter);
status gpu_decode_int4_open(gpu_backend *b, err *e);

/* decode_fp4.c: the same of MXFP4 and NVFP4. */
u64 gpu_decode_fp4_workspace(const moe_args *a);
gpu_digits_args gpu_decode_fp4_digits(const moe_args *a, u8 *space); /* without digits */
void gpu_run_decode_fp4(const ops *o, const moe_args *a, u8 *space, f32 *y);
status gpu_decode_fp4_open(gpu_backend *b, err *e);

/* decode_stored.c: a whole call with experts in bf16 or FP8 as they are stored, y of gpu_decode_stored_tokens()
 * tokens at a time. */
i64 gpu_decode_stored_tokens(const moe_args *a);
u64 gpu_decode_stored_workspace(const moe_args *a);
bool gpu_decode_stored_is_one_matrix(const op_weight *w); /* may all experts be seen as one matrix? */
void gpu_run_decode_stored(const ops *o, const moe_args *a, u8 *space, f32 *y);
status gpu_decode_stored_open(gpu_backend *b, err *e);

/* In int4_pack.h's blocks, fp4_pack.h's among them? */
static inline bool gpu_is_packed_fp4(const gpu_matrix *w) {
    return w->format == GPU_W_PACKED_MXFP4 || w->format == GPU_W_PACKED_NVFP4;
}
static inline bool gpu_is_packed(const gpu_matrix *w) { return w->format == GPU_W_PACKED || gpu_is_packed_fp4(w); }

/* May the tensor cores take w: a format that bf16 holds, rows and x at multiples of 16 bytes? */
static inline bool can_tile(const gpu_matrix *w, const void *x, i64 x_stride) {
    return w->format != GPU_W_F32 && (w->wide || w->format == GPU_W_PACKED) &&
           ((u64)(uintptr_t)x | (u64)x_stride * 2) % 16 == 0;
}
enum { TILE_FROM = 32 /* rows of x */, TILE_MEAN = 8 /* tokens an expert */ };

/* gemm_cublas.c: how a matrix product of more than 64 rows runs; it, on the library, as chosen (false: the library has
 * nothing for it). */
gemm_choice gpu_gemm_choice(const gpu_backend *b, const gemm_call *c);
bool gpu_multiply(const gpu_backend *b, cublas_product *p, const gemm_choice *how);

/* gemm.c */
status gpu_dense_init(gpu_backend *b, err *e);
/* One linear call: n rows of x. exact: INT4 and FP8 weights may not be rounded to bf16, as tiles do. */
void gpu_run_linear(const ops *o, gpu_linear_args *a, i64 heads, bool exact);
/* invariant.c: by tiles whose sums have one order for any number of rows. False if it does not take these weights. */
bool gpu_run_invariant(const ops *o, const gpu_linear_args *a, bool swiglu);
status gpu_invariant_open(gpu_backend *b, err *e);

/* Blocks behind those of a product (gate_fused.cuh). */
static inline i64 gpu_gate_blocks(const gpu_skinny_gate_args *a, i64 threads, i64 digit_warps) {
    i64 rows = ceil_div(a->gate.n, digit_warps) + (a->digits.x ? a->digits.n : 0);
    return a->digits.x ? ceil_div(rows * digit_warps, threads / 32) : ceil_div(a->gate.n, threads / 32);
}
/* gemm.c: a product of few rows with the gate beside it, and x as digits if digits->x. False: not for
 * skinny_splitk.cu. */
bool gpu_run_gate(const ops *o, const gpu_gate_args *gate, const gpu_digits_args *digits, const linear_args *l);
/* skinny_few.c: products of up to 4 rows of x by tiles that nobody shares; false: others are better, or it cannot.
 * *tiles: of the sums for rows finished later. */
status gpu_skinny_few_init(gpu_backend *b, err *e);
bool gpu_run_skinny_few(const gpu_backend *b, const gpu_skinny_args *k, i64 *tiles);
/* skinny_tma.c: products of 17 to 64 rows of x, with the gate beside it or NULL; *parts: of the sums for rows finished
 * later. False: not for it. */
status gpu_skinny_tma_init(gpu_backend *b, err *e);
bool gpu_run_skinny_tma(const gpu_backend *b, const gpu_skinny_args *k, const gpu_skinny_gate_args *gate, i64 *parts);
/* query_fused.c */
status gpu_query_fused_init(gpu_backend *b, err *e);
gpu_norm_args gpu_norm_of(const norm_args *a);
bool gpu_norm_in_pieces(const norm_args *a);
gpu_kv_write_args gpu_kv_write_of(const kv_write_args *a);
bool gpu_kv_in_pieces(const kv_write_args *a);

/* Sorting pairs by expert (moe/sort.c): fills *s but for `ids`, with pointers into `base`; returns the bytes there. */
u64 gpu_sort_layout(i64 pairs, i64 experts, u8 *base, gpu_sort_args *s);
void gpu_run_sort(const ops *o, const gpu_sort_args *s);

enum { SHARED_MAX = 227 * 1024 /* of a block on sm_90 */ };
static const f32 LOG2_E = 1.44269504f;
int gpu_type(dtype t); /* GPU_F32 ... */
static inline u32 gpu_blocks(i64 n, i64 each) { return (u32)((n + each - 1) / each); }
/* Pieces of a workspace: each begins at a multiple of 256 bytes. */
static inline u64 gpu_round(u64 bytes) { return (bytes + 255) & ~(u64)255; }

#endif
