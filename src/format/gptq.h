/* format/gptq.h: rounding whose errors make up for each other: GPTQ (Frantar et al. 2022, arXiv:2210.17323).
 *
 * What counts of a matrix w[n, cols] is what it makes of the inputs x[cols] that it meets: the sum of a ((w - q) x)^2
 * over inputs with weights a, which is (w - q) H (w - q)^T with H = sum of a x x^T. Columns are rounded one after the
 * other under scales that are chosen before, the ones with the largest inputs first; each is rounded to nearest from
 * where the errors of the columns before it are best made up for:
 *
 *     q_k = nearest(w_k + sum over i before k of (w_i - q_i) A_ik),   H = (A + 1) D (A + 1)^T, A above the diagonal,
 *
 * which is LDLQ (Chee et al. 2023, arXiv:2307.13304), equal to GPTQ with its Cholesky factor of the inverse, without
 * inverting anything. What is left of the sum is then that of D_k (target_k - q_k)^2.
 *
 * Sums are float32, each in one order: bits do not depend on the number of threads. */
#ifndef FORMAT_GPTQ_H
#define FORMAT_GPTQ_H
#include "base/err.h"
#include "base/types.h"

/* Writes column c of a row whose codes and scales begin at `data` and `scale`: the code whose value is nearest to w
 * under the scale that is there. Returns that value as a reader has it. */
typedef f32 (*gptq_code)(void *data, const void *scale, f32 factor, i64 c, f32 w);

typedef struct {
    i64 cols;
    f32 *h;     /* [cols, cols], above the diagonal: H as it grows; factored, A in the order of rounding */
    f32 *diag;  /* [cols] factored: D */
    f32 *own;   /* [cols] factored: H's diagonal, damped, in the order of rounding */
    i32 *order; /* [cols] factored: the k-th column that is rounded */
    bool factored;
} gptq;

/* Zeros; g[0] is all 0 or was opened before with as many columns. End with gptq_close(). */
status gptq_open(gptq *g, i64 cols, err *e);
void gptq_close(gptq *g);
/* Adds inputs x[n, cols], finite, with weights a[n]. */
void gptq_add(gptq *g, const f32 *x, const f32 *a, i64 n);
/* Behind the last inputs. `damping` times the mean of H's diagonal is added to the diagonal: what inputs do not show is
 * not traded for what they do. H of zeros: every column is rounded to nearest. ST_NUMERIC: H is not finite. */
status gptq_factor(gptq *g, f64 damping, err *e);

/* y[r * y_stride + j] += sum over k < count of c[r * c_stride + k] p[k * p_stride + j], r < rows, j < n, in the order
 * of k: all the work that there is. Four rows at a time share what is read of p. */
void add_panel(f32 *restrict y, i64 y_stride, i64 rows, const f32 *restrict c, i64 c_stride, const f32 *restrict p,
               i64 p_stride, i64 count, i64 n);

/* counts[cols]: how much each column counts by itself, H's diagonal, 1 on average. */
void gptq_counts(const gptq *g, f32 *counts);

/* Sums over rows of (w - q) H (w - q)^T, of rounding to nearest and as it was done, and of w H w^T. H is damped. */
typedef struct {
    f64 nearest, done, energy;
} gptq_sums;

/* Rows at a time, which share the way of A through the caches. */
enum { GPTQ_ROWS = 16 };
u64 gptq_room(i64 cols); /* float32 for gptq_round() */
/* Rounds w[n, cols], n <= GPTQ_ROWS, anew. Row r's codes, which are those of rounding to nearest, and its scales begin
 * at data + r * data_bytes and scale + r * scale_bytes. sums: added to, or NULL, which is faster: not asked for. */
void gptq_round(const gptq *g, gptq_code code, const f32 *w, i64 n, void *data, u64 data_bytes, const void *scale,
                u64 scale_bytes, f32 factor, f32 *room, gptq_sums *sums);

#endif
