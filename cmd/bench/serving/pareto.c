#include "cmd/bench/serving/pareto.h"
#include <math.h>
#include <stdlib.h>

static int by_x(const void *a, const void *b) {
    const point *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return (p->y < q->y) - (p->y > q->y); /* the better of equals first: it drops the others */
}

i64 pareto_frontier(point *p, i64 n) {
    i64 have = 0;
    qsort(p, (size_t)n, sizeof *p, by_x);
    for (i64 i = 0; i < n; i++) {
        if (have && p[have - 1].x == p[i].x) continue;
        while (have && p[have - 1].y <= p[i].y) have--;
        p[have++] = p[i];
    }
    return have;
}

static f64 slope(const point *p, i64 i) { return (p[i + 1].y - p[i].y) / (p[i + 1].x - p[i].x); }

static f64 sign(f64 v) { return (f64)((v > 0) - (v < 0)); }

static f64 inner_slope(const point *p, i64 i) {
    f64 h0 = p[i].x - p[i - 1].x, h1 = p[i + 1].x - p[i].x, s0 = slope(p, i - 1), s1 = slope(p, i);
    f64 middle = (s0 * h1 + s1 * h0) / (h0 + h1);
    return (sign(s0) + sign(s1)) * fmin(fmin(fabs(s0), fabs(s1)), 0.5 * fabs(middle));
}

static f64 tangent(const point *p, i64 n, i64 i) {
    if (n == 2) return slope(p, 0);
    if (i == 0) return (3 * slope(p, 0) - inner_slope(p, 1)) / 2;
    if (i == n - 1) return (3 * slope(p, n - 2) - inner_slope(p, n - 2)) / 2;
    return inner_slope(p, i);
}

bool pareto_y_at(const point *p, i64 n, f64 x, f64 *y) {
    if (n < 1 || x < p[0].x || x > p[n - 1].x) return false;
    i64 i = 0;
    while (i + 2 < n && x > p[i + 1].x) i++;
    if (n == 1) return *y = p[0].y, true;
    f64 h = p[i + 1].x - p[i].x, t = (x - p[i].x) / h, t2 = t * t, t3 = t2 * t;
    f64 v = (2 * t3 - 3 * t2 + 1) * p[i].y + (t3 - 2 * t2 + t) * h * tangent(p, n, i) + (3 * t2 - 2 * t3) * p[i + 1].y +
            (t3 - t2) * h * tangent(p, n, i + 1);
    *y = fmax(v, 0);
    return true;
}

bool pareto_x_at(const point *p, i64 n, f64 y, f64 *x) {
    if (n < 1 || y > p[0].y || y < p[n - 1].y) return false;
    if (n == 1) return *x = p[0].x, true;
    i64 i = 0;
    while (i + 2 < n && y < p[i + 1].y) i++;
    *x = p[i].x + (p[i + 1].x - p[i].x) * (p[i].y - y) / (p[i].y - p[i + 1].y);
    return true;
}
