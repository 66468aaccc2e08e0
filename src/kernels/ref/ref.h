/* kernels/ref/ref.h: the pieces of the reference backend. Everything is float32 in memory; sums run in
 * double, so that the reference is closer to the exact result than anything held against it. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H
#include "kernels/logprobs.h"
#include "kernels/team.h"
#include "kernels/weight_host.h"

/* Sum over k of a[k] * b[k] in a fixed order: eight interleaved double sums, then their sum from left to
 * right. */
f32 ref_dot(const f32 *a, const f32 *b, i64 n);
/* y[i, r] = x[i] . W[r] for rows r of one view; W's row is expanded to float32 once for all n rows of x. */
void ref_matmul(const weight_view *w, const f32 *x, i64 x_stride, i64 n, f32 *y, i64 y_stride);
/* The same for row r alone: y[i * y_stride] = x[i] . W[r]. */
void ref_matmul_row(const weight_view *w, i64 r, const f32 *x, i64 x_stride, i64 n, f32 *y, i64 y_stride);
enum { REF_PIECE = 8192 }; /* columns of a row that are expanded at a time, on the thread's stack */
f32 ref_silu(f32 x);
/* One element of the KV pool as float32. */
f32 ref_kv_get(const void *kv, dtype t, i64 index);

void ref_linear(const ops *o, const linear_args *a);
void ref_swiglu(const ops *o, const swiglu_args *a);
void ref_moe(const ops *o, const moe_args *a);
u64 ref_moe_workspace(const ops *o, const moe_args *a);
void ref_gate(const ops *o, const gate_args *a);
void ref_absorb_q(const ops *o, const absorb_q_args *a);
void ref_mla_decode(const ops *o, const mla_decode_args *a);
u64 ref_mla_decode_workspace(const ops *o, const mla_decode_args *a);
void ref_unabsorb_v(const ops *o, const unabsorb_v_args *a);
void ref_mla_prefill(const ops *o, const mla_prefill_args *a);
u64 ref_mla_prefill_workspace(const ops *o, const mla_prefill_args *a);
void ref_embed(const ops *o, const embed_args *a);
void ref_norm(const ops *o, const norm_args *a);
void ref_rope_table(const ops *o, const rope_table_args *a);
void ref_rope_q(const ops *o, const rope_q_args *a);
void ref_kv_write(const ops *o, const kv_write_args *a);
void ref_latent_norm_kv_write(const ops *o, const latent_norm_kv_write_args *a);
void ref_gather(const ops *o, const gather_args *a);
void ref_mark_nonfinite(const ops *o, const mark_nonfinite_args *a);
void ref_sample(const ops *o, const sample_args *a);
u64 ref_sample_workspace(const ops *o, const sample_args *a);

#endif
