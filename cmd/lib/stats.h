/* cmd/lib/stats.h: what a list of measurements says, as numpy says it. */
#ifndef CMD_LIB_STATS_H
#define CMD_LIB_STATS_H
#include "base/err.h"

/* A growable list of numbers. Zero-initialise; after a failed allocation `failed` stays true. */
typedef struct {
    f64 *data;
    i64 n, cap;
    bool failed;
} f64_list;
void f64_add(f64_list *l, f64 x);
void f64_list_free(f64_list *l);
int f64_ascending(const void *a, const void *b); /* for qsort of f64 */

/* numpy.percentile(x, q), q in 0..100: linear between the neighbours. `sorted` [n] ascending, n >= 1. */
f64 percentile(const f64 *sorted, i64 n, f64 q);

typedef struct {
    i64 n;
    f64 mean, median, std, p90, p95, p99, max; /* std: of the population, numpy.std. All 0 when n is 0 */
} summary;
summary summarize(f64_list *l); /* sorts it */

/* A mean with half of its 95 % interval. */
typedef struct {
    f64 mean, half; /* half: NaN where one cluster alone says nothing about others */
} mean_95;
/* The mean of what is measured in `k` clusters (documents), whose measurements are not independent: cluster i has
 * count[i] of them, which add up to sum[i]. The ratio of the sums, with the variance of clusters around it
 * (linearized: Cochran, Sampling Techniques, 6.4) and Student's t of k - 1 degrees of freedom. */
mean_95 mean_of_clusters(const f64 *sum, const f64 *count, i64 k);

#endif
