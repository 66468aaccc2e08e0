/* cmd/lib/gemm_problem.h: one matrix product of the GPU's, with made-up weights and inputs: what `moonlet bench
 * gemm` and `moonlet tune gemm` run. */
#ifndef CMD_LIB_GEMM_PROBLEM_H
#define CMD_LIB_GEMM_PROBLEM_H
#include "kernels/backend.h"
#include "kernels/gpu/gpu.h"

enum { GEMM_SETS = 64, GEMM_SAMPLES = 64 };
typedef enum {
    G_LINEAR,
    G_LOGITS /* float32 out */,
    G_ADD /* y +=; y = with few rows, or without cuBLASLt */,
    G_SWIGLU,
    G_ABSORB,
    G_UNABSORB
} gemm_kind;
typedef struct {
    const char *name;
    gemm_kind kind;
    i64 rows, cols; /* of the weight, of each of two for swiglu; heads for absorb_q and unabsorb_v */
} gemm_shape;

/* Kimi-K2.5's, of one GPU and of a rank of TP4 and TP8. */
enum { GEMM_KIMI = 30 };
extern const gemm_shape gemm_kimi[GEMM_KIMI];

typedef struct {
    backend on;
    i64 seed;
} gemm_gpu;

/* One shape at one n. */
typedef struct {
    const gemm_shape *s;
    i64 n, x_width, y_width, work; /* work: multiplications of a token */
    u64 weight_bytes;
    bool wide; /* y is float32 */
    op_weight *w[GEMM_SETS], *up[GEMM_SETS];
    i64 sets;
    device_pool pool;
    void *x, *y, *row; /* row: where a weight's row is put to be read */
    i32 *ids;
} gemm_case;

/* What follows from c->s and c->n; sets: so many that the weights are `rotate` bytes together. */
void gemm_case_sizes(gemm_case *c, u64 rotate);
/* Makes the weights of c->s, so many that they are `rotate` bytes together, and c->n rows of inputs; c->n may be
 * less later. The caller ends *c with gemm_case_free(), after an error too. */
status gemm_case_make(gemm_gpu *b, gemm_case *c, u64 rotate, err *e);
void gemm_case_free(gemm_gpu *b, gemm_case *c);
/* Queues the product, by weight set % c->sets. */
void gemm_case_call(gemm_gpu *b, const gemm_case *c, i64 set);
/* The last call's y of one token as float32. */
void gemm_case_read(gemm_gpu *b, const gemm_case *c, i64 token, f32 *out);
/* What elements at[] of some tokens' y are by weight 0, recomputed in double: out[token * count + i]. */
status gemm_case_want(gemm_gpu *b, gemm_case *c, const i64 *tokens, i64 n_tokens, const i64 *at, i64 count, f32 *out,
                      err *e);

#endif
