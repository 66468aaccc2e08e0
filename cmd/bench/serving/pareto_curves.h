/* cmd/bench/serving/pareto_curves.h: result files of `moonlet bench serving` as curves: throughput per GPU over
 * interactivity; their chart and their comparison. */
#ifndef CMD_BENCH_SERVING_PARETO_CURVES_H
#define CMD_BENCH_SERVING_PARETO_CURVES_H
#include "base/json.h"
#include "cmd/bench/serving/pareto.h"
#include <stdio.h>

/* The lines of a result file, or the runs of a sweep. */
typedef struct {
    const char *name;
    json_t *runs;  /* array of result objects */
    point *points; /* [n] every run that has both numbers; tag is its index */
    i64 n;
    point *frontier; /* [n_frontier] */
    i64 n_frontier;
} curve;

/* Reads JSON lines; an error names the line. End with curve_free() whatever was returned. */
status curve_read(curve *c, const char *path, err *e);
/* From results at hand; takes over one reference of `runs`. */
status curve_of(curve *c, const char *name, json_t *runs, err *e);
void curve_free(curve *c);

/* A number of a run; NAN when it is missing or null. */
f64 run_number(const json_t *run, const char *key);
/* What the runs of a curve differ in, one line a run. */
void curve_print(const curve *c);
/* b against a: run by run where concurrency and lengths agree, then at equal tok/s per GPU and at equal tok/s per
 * user. `iso` [n_iso]: the tok/s per GPU to compare at; none: those that were measured. */
void curves_compare(const curve *a, const curve *b, const f64 *iso, int n_iso);
/* An SVG of all points, the frontiers drawn through with the interpolation of pareto.h. */
status curves_chart(const curve *c, int n, const char *path, err *e);

#endif
