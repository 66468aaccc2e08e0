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
