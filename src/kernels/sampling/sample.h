/* kernels/sampling/sample.h: drawing a token on the host: what op `sample` means, and what ref and cpu run. */
#ifndef KERNELS_SAMPLING_SAMPLE_H
#define KERNELS_SAMPLING_SAMPLE_H
#include "kernels/ops.h"

u64 sample_scratch(i64 vocab); /* bytes that sample_one() needs, at a multiple of 8 */
/* The token drawn from one row of logits without NaN or infinity other than -infinity. mask [ceil(vocab / 64)]: the
 * set of those that may come; NULL: all. */
i32 sample_one(const f32 *logits, i64 vocab, const sample_row *r, const u64 *mask, void *scratch);
i32 argmax_f32(const f32 *x, i64 n); /* lowest index on ties */

#endif
