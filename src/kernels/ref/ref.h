/* kernels/ref/ref.h: the pieces of the reference backend. Everything is float32 in memory; sums run in
 * double, so that the reference is closer to the exact result than anything held against it. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H
#include "kernels/sampling/logprobs.h"
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
/* n elements of the KV pool from `index` on as float32, and one that is set. */
void ref_kv_get(const void *kv, dtype t, i64 index, i64 n, f32 *out);
void ref_kv_set(void *kv, dtype t, i64 index, f32 v);

/* A softmax-weighted sum being built: o[dim] = sum of e^(s - m) v, l = sum of e^(s - m), m the largest score so far. */
typedef struct {
    f32 m, l;
} ref_running;
void ref_running_start(ref_running *r, f32 *o, i64 dim);
/* Adds a tile of n scores with their values v [n, v_stride] (the first dim of each). */
void ref_running_add(ref_running *r, f32 *o, const f32 *score, i64 n, const f32 *v, i64 v_stride, i64 dim);
void ref_running_end(const ref_running *r, f32 *o, i64 dim);

#define REF_OP(op)           void ref_##op(const ops *o, const op##_args *a);
#define REF_WORKSPACE_OP(op) u64 ref_##op##_workspace(const ops *o, const op##_args *a);
OPS(REF_OP)
OPS_WITH_WORKSPACE(REF_WORKSPACE_OP)
#undef REF_OP
#undef REF_WORKSPACE_OP

#endif
