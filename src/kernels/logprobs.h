/* kernels/logprobs.h: log-probabilities on the host: what op `logprobs` means, and what ref and cpu run. */
#ifndef KERNELS_LOGPROBS_H
#define KERNELS_LOGPROBS_H
#include "kernels/ops.h"

/* log(sum(exp(x))) in double. */
f64 log_sum_exp(const f32 *x, i64 n);
/* The k <= n largest of x, best first, equal ones by lower index. */
void largest_of(const f32 *x, i64 n, i32 *ids, i64 k);
/* The op, for backends whose memory is the host's. */
void host_logprobs(const ops *o, const logprobs_args *a);
u64 host_logprobs_workspace(const ops *o, const logprobs_args *a);

#endif
