/* cmd/lib/synthetic.h: synthetic values for bench and check, from a seed. Weights have zero mean (uniform nibbles
 * have mean -1/2, so their scales get random signs). */
#ifndef CMD_LIB_SYNTHETIC_H
#define CMD_LIB_SYNTHETIC_H
#include "format/weights.h"

typedef struct {
    u64 state;
} synth;

u64 synth_bits(synth *s);
f32 synth_uniform(synth *s); /* [-1, 1) */
f32 synth_normal(synth *s);  /* near enough: the sum of four uniforms, variance 1 */
void synth_fill_bf16(synth *s, bf16 *out, i64 n, f32 sigma);
/* Bytes that a weight of this shape needs (data, then scales at a multiple of 64), and filling it so that
 * its elements have the standard deviation `sigma`. */
u64 synth_weight_bytes(weight_format f, i64 rows, i64 cols);
weight_view synth_weight(synth *s, weight_format f, i64 rows, i64 cols, f32 sigma, void *memory);
/* n rows of k different ids below n_experts, uniform. */
void synth_ids(synth *s, i32 *ids, i64 n, i64 k, i64 n_experts);
/* |a - b| / |b| over n floats (Frobenius); NaN where either has one that the other has not. */
f64 relative_error(const f32 *a, const f32 *b, i64 n);

#endif
