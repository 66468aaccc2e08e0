/* cmd/bench/serving/pareto.h: throughput against interactivity: the frontier of a sweep and values between its
 * points, as SemiAnalysis' InferenceX dashboard computes them (its calculator and chart code, 2026). */
#ifndef CMD_BENCH_SERVING_PARETO_H
#define CMD_BENCH_SERVING_PARETO_H
#include "base/types.h"

typedef struct {
    f64 x, y; /* tok/s per user, tok/s per GPU */
    i64 tag;  /* the caller's */
} point;

/* Leaves in p[0..result) the points that no other beats in both, x ascending, so y strictly descending. */
i64 pareto_frontier(point *p, i64 n);

/* y at x on a frontier: monotone cubic Hermite (M. Steffen, Astronomy and Astrophysics 239, 1990), not below 0.
 * False outside the frontier's range: nothing is extrapolated. */
bool pareto_y_at(const point *p, i64 n, f64 x, f64 *y);

/* Iso-throughput: x where the frontier reaches y, linear between its points. False outside. */
bool pareto_x_at(const point *p, i64 n, f64 y, f64 *x);

#endif
