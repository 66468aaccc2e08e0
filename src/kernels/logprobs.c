#include "kernels/logprobs.h"
#include <math.h>

f64 log_sum_exp(const f32 *x, i64 n) {
    f64 m = -INFINITY, sum = 0;
    for (i64 i = 0; i < n; i++)
        if (x[i] > m) m = x[i];
    for (i64 i = 0; i < n; i++) sum += exp((f64)x[i] - m);
    return m + log(sum);
}

void largest_of(const f32 *x, i64 n, i32 *ids, i64 k) {
    i64 have = 0;
    for (i64 t = 0; t < n && k > 0; t++) {
        if (have == k && !(x[t] > x[ids[k - 1]])) continue;
        i64 at = have < k ? have++ : k - 1;
        for (; at > 0 && x[t] > x[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (i32)t;
    }
}

void host_logprobs(const ops *o, const logprobs_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        const f32 *x = a->logits + i * a->stride;
        i32 *ids = a->top_ids + i * a->most;
        f32 *out = a->logprobs + i * (1 + a->most);
        if (a->tops[i] < 0) continue;
        f64 lse = log_sum_exp(x, a->vocab);
        i32 id = a->ids[i] < 0 ? a->drawn[i] : a->ids[i];
        out[0] = (f32)((f64)x[id] - lse);
        largest_of(x, a->vocab, ids, a->tops[i]);
        for (i64 k = 0; k < a->tops[i]; k++) out[1 + k] = (f32)((f64)x[ids[k]] - lse);
    }
}

u64 host_logprobs_workspace(const ops *o, const logprobs_args *a) {
    (void)o;
    (void)a;
    return 1;
}
