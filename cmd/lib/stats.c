#include "cmd/lib/stats.h"
#include <math.h>
#include <stdlib.h>

void f64_add(f64_list *l, f64 x) {
    if (l->n == l->cap) {
        i64 more = l->cap ? 2 * l->cap : 64;
        f64 *p = realloc(l->data, (size_t)more * sizeof *p);
        if (!p) {
            l->failed = true;
            return;
        }
        l->data = p;
        l->cap = more;
    }
    l->data[l->n++] = x;
}

void f64_list_free(f64_list *l) {
    free(l->data);
    *l = (f64_list){0};
}

f64 percentile(const f64 *sorted, i64 n, f64 q) {
    f64 at = (f64)(n - 1) * (q / 100), whole = floor(at), t = at - whole;
    i64 i = (i64)whole, j = min_i64(i + 1, n - 1);
    f64 step = sorted[j] - sorted[i];
    return t < 0.5 ? sorted[i] + step * t : sorted[j] - step * (1 - t); /* numpy's form of it */
}

int f64_ascending(const void *a, const void *b) {
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

summary summarize(f64_list *l) {
    summary s = {.n = l->n};
    if (!l->n) return s;
    qsort(l->data, (size_t)l->n, sizeof *l->data, f64_ascending);
    for (i64 i = 0; i < l->n; i++) s.mean += l->data[i];
    s.mean /= (f64)l->n;
    for (i64 i = 0; i < l->n; i++) s.std += (l->data[i] - s.mean) * (l->data[i] - s.mean);
    s.std = sqrt(s.std / (f64)l->n);
    s.median = percentile(l->data, l->n, 50);
    s.p90 = percentile(l->data, l->n, 90);
    s.p95 = percentile(l->data, l->n, 95);
    s.p99 = percentile(l->data, l->n, 99);
    s.max = l->data[l->n - 1];
    return s;
}

/* The 97.5 % point of Student's t: a table, and behind it the first terms of its expansion (Abramowitz and Stegun,
 * 26.7.5), there good to 1e-4. */
static f64 student_975(i64 freedom) {
    static const f64 first[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
    const f64 z = 1.959964, n = (f64)freedom;
    if (freedom <= (i64)COUNT_OF(first)) return first[freedom - 1];
    return z + (pow(z, 3) + z) / (4 * n) + (5 * pow(z, 5) + 16 * pow(z, 3) + 3 * z) / (96 * n * n);
}

mean_95 mean_of_clusters(const f64 *sum, const f64 *count, i64 k) {
    f64 all = 0, n = 0, squares = 0;
    for (i64 i = 0; i < k; i++) all += sum[i], n += count[i];
    mean_95 m = {all / n, NAN};
    if (k < 2) return m;
    for (i64 i = 0; i < k; i++) squares += (sum[i] - m.mean * count[i]) * (sum[i] - m.mean * count[i]);
    m.half = student_975(k - 1) * sqrt(squares * (f64)k / (f64)(k - 1)) / n;
    return m;
}
