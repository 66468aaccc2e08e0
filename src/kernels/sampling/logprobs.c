#include "kernels/sampling/logprobs.h"
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
