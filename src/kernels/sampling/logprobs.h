/* kernels/sampling/logprobs.h: log-probabilities on the host. */
#ifndef KERNELS_SAMPLING_LOGPROBS_H
#define KERNELS_SAMPLING_LOGPROBS_H
#include "kernels/ops.h"

/* log(sum(exp(x))) in double. */
f64 log_sum_exp(const f32 *x, i64 n);
/* The k <= n largest of x, best first, equal ones by lower index. */
void largest_of(const f32 *x, i64 n, i32 *ids, i64 k);

#endif
