#include "cmd/bench/serving/pareto_curves.h"
#include "cmd/lib/stats.h"
#include "base/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

f64 run_number(const json_t *run, const char *key) {
    const json_t *v = json_object_get(run, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Results of other programs may lack the derived fields. */
static bool point_of(const json_t *run, point *p) {
    f64 tpot = run_number(run, "median_tpot_ms"), gpus = run_number(run, "gpus");
    p->x = 1e3 / tpot;
    p->y = run_number(run, "total_throughput") / (isnan(gpus) ? 1 : gpus);
    return isfinite(p->x) && isfinite(p->y);
}

status curve_of(curve *c, const char *name, json_t *runs, err *e) {
    *c = (curve){.name = name, .runs = runs};
    size_t n = json_array_size(runs);
    c->points = calloc(n + 1, sizeof *c->points);
    c->frontier = calloc(n + 1, sizeof *c->frontier);
    if (!c->points || !c->frontier) return err_nomem(e, "a curve", n * sizeof(point));
    for (size_t i = 0; i < n; i++) {
        c->points[c->n].tag = (i64)i;
        c->n += point_of(json_array_get(runs, i), &c->points[c->n]);
    }
    memcpy(c->frontier, c->points, (size_t)c->n * sizeof(point));
    c->n_frontier = pareto_frontier(c->frontier, c->n);
    return ST_OK;
}

void curve_free(curve *c) {
    free(c->points);
    free(c->frontier);
    json_decref(c->runs);
    *c = (curve){0};
}

status curve_read(curve *c, const char *path, err *e) {
    buf b = {0};
    json_t *runs = json_array();
    status st = file_read(path, 1 << 30, &b, e);
    i64 number = 0;
    for (char *s = b.data, *next; st == ST_OK && s && *s; s = next) {
        size_t len = strcspn(s, "\n");
        next = s + len + (s[len] == '\n');
        number++;
        if (strspn(s, " \t\r") >= len) continue;
        json_t *o = json_parse(s, len, "JSON", e);
        if (!o) st = e->code;
        if (o && isnan(run_number(o, "total_throughput")))
            st = err_set(e, ST_FORMAT, "no \"total_throughput\": not a result of bench serving");
        if (st != ST_OK) err_prefix(e, "%s line %lld", path, (long long)number);
        json_array_append_new(runs, o);
    }
    if (st == ST_OK && !json_array_size(runs)) st = err_set(e, ST_FORMAT, "%s: no results", path);
    buf_free(&b);
    status of = curve_of(c, path, runs, st == ST_OK ? e : NULL);
    return st == ST_OK ? of : st;
}

/* ---- tables ---- */

static void cell(f64 v, int width) {
    if (isnan(v))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, fabs(v) < 10 ? 3 : fabs(v) < 1000 ? 2 : 0, v);
}

void curve_print(const curve *c) {
    static const char *const columns[] = {"max_concurrency", "completed",      "tput_per_gpu",   "output_throughput",
                                          "median_intvty",   "median_ttft_ms", "median_tpot_ms", "p99_itl_ms"};
    static const char *const heads[] = {"concurrency", "completed", "tok/s/GPU", "output tok/s",
                                        "tok/s/user",  "TTFT ms",   "TPOT ms",   "ITL P99 ms"};
    printf("\n");
    for (size_t k = 0; k < COUNT_OF(heads); k++) printf(" %12s", heads[k]);
    printf(" %9s\n", "frontier");
    for (size_t i = 0; i < json_array_size(c->runs); i++) {
        bool on = false;
        for (i64 k = 0; k < c->n_frontier; k++) on |= c->frontier[k].tag == (i64)i;
        for (size_t k = 0; k < COUNT_OF(columns); k++) {
            f64 v = run_number(json_array_get(c->runs, i), columns[k]);
            if (k < 2 && !isnan(v))
                printf(" %12.0f", v);
            else
                cell(v, 12);
        }
        printf(" %9s\n", on ? "yes" : "");
    }
    fflush(stdout);
}

static const char *const metrics[][2] = {
    {"Request throughput (req/s)", "request_throughput"},
    {"Input throughput (tok/s)", "input_throughput"},
    {"Output throughput (tok/s)", "output_throughput"},
    {"Total throughput (tok/s)", "total_throughput"},
    {"Concurrency", "concurrency"},
    {"Accept length", "accept_length"},
    {"Mean E2E (ms)", "mean_e2e_latency_ms"},
    {"Median E2E (ms)", "median_e2e_latency_ms"},
    {"P99 E2E (ms)", "p99_e2e_latency_ms"},
    {"Mean TTFT (ms)", "mean_ttft_ms"},
    {"Median TTFT (ms)", "median_ttft_ms"},
    {"P99 TTFT (ms)", "p99_ttft_ms"},
    {"Mean TPOT (ms)", "mean_tpot_ms"},
    {"Median TPOT (ms)", "median_tpot_ms"},
    {"P99 TPOT (ms)", "p99_tpot_ms"},
    {"Mean ITL (ms)", "mean_itl_ms"},
    {"Median ITL (ms)", "median_itl_ms"},
    {"P99 ITL (ms)", "p99_itl_ms"},
};

static bool same_workload(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"dataset_name",     "max_concurrency",   "request_rate",
                                       "random_input_len", "random_output_len", "random_range_ratio"};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        bool numbers = json_is_number(x) && json_is_number(y);
        if (numbers ? json_number_value(x) != json_number_value(y)
                    : !json_equal(x ? x : json_null(), y ? y : json_null()))
            return false;
    }
    return true;
}

static void compare_runs(const json_t *a, const json_t *b) {
    printf("\n");
    if (!isnan(run_number(a, "max_concurrency"))) printf("concurrency %.0f", run_number(a, "max_concurrency"));
    if (!isnan(run_number(a, "completed") + run_number(b, "completed")))
        printf(", completed %.0f and %.0f", run_number(a, "completed"), run_number(b, "completed"));
    if (run_number(a, "failed") + run_number(b, "failed") > 0)
        printf(", FAILED %.0f and %.0f", run_number(a, "failed"), run_number(b, "failed"));
    printf("\n%-30s %14s %14s %9s\n", "", "A", "B", "B / A");
    for (size_t i = 0; i < COUNT_OF(metrics); i++) {
        f64 x = run_number(a, metrics[i][1]), y = run_number(b, metrics[i][1]);
        if (isnan(x) && isnan(y)) continue;
        printf("%-30s", metrics[i][0]);
        cell(x, 14);
        cell(y, 14);
        cell(x ? y / x : NAN, 9);
        putchar('\n');
    }
}

static void iso_row(f64 at, bool in_a, f64 x, bool in_b, f64 y) {
    cell(at, 14);
    cell(in_a ? x : NAN, 14);
    cell(in_b ? y : NAN, 14);
    cell(in_a && in_b && x ? y / x : NAN, 9);
    putchar('\n');
}

static void iso_throughput(const curve *a, const curve *b, const f64 *iso, int n_iso) {
    printf(
        "\nInteractivity (tok/s/user) at equal tok/s/GPU, linear between measured points; -: outside of what was measured\n"
        " %14s %14s %14s %9s\n",
        "tok/s/GPU", "A", "B", "B / A");
    i64 n = n_iso ? n_iso : a->n_frontier + b->n_frontier;
    f64 *at = calloc((size_t)n + 1, sizeof *at);
    for (i64 i = 0; at && i < n; i++)
        at[i] = n_iso ? iso[i] : i < a->n_frontier ? a->frontier[i].y : b->frontier[i - a->n_frontier].y;
    if (at) qsort(at, (size_t)n, sizeof *at, f64_ascending);
    for (i64 i = 0; at && i < n; i++) {
        f64 x = 0, y = 0;
        bool in_a = pareto_x_at(a->frontier, a->n_frontier, at[i], &x);
        bool in_b = pareto_x_at(b->frontier, b->n_frontier, at[i], &y);
        if (n_iso || (in_a && in_b)) iso_row(at[i], in_a, x, in_b, y);
    }
    free(at);
}

static void iso_interactivity(const curve *a, const curve *b) {
    printf("\ntok/s/GPU at equal interactivity (tok/s/user), monotone cubic between measured points\n"
           " %14s %14s %14s %9s\n",
           "tok/s/user", "A", "B", "B / A");
    i64 rows = 0;
    for (i64 i = 0; i < a->n_frontier + b->n_frontier; i++) {
        f64 at = i < a->n_frontier ? a->frontier[i].x : b->frontier[i - a->n_frontier].x, x, y;
        bool in_a = pareto_y_at(a->frontier, a->n_frontier, at, &x);
        if (!in_a || !pareto_y_at(b->frontier, b->n_frontier, at, &y)) continue;
        iso_row(at, true, x, true, y);
        rows++;
    }
    if (!rows) printf(" the curves have no interactivity in common\n");
}

void curves_compare(const curve *a, const curve *b, const f64 *iso, int n_iso) {
    printf("A: %s\nB: %s\n", a->name, b->name);
    i64 pairs = 0;
    for (size_t i = 0; i < json_array_size(a->runs); i++)
        for (size_t k = 0; k < json_array_size(b->runs); k++)
            if (same_workload(json_array_get(a->runs, i), json_array_get(b->runs, k))) {
                compare_runs(json_array_get(a->runs, i), json_array_get(b->runs, k));
                pairs++;
                break;
            }
    if (!pairs) printf("no two runs have the same data set, lengths, rate and concurrency\n");
    if (a->n_frontier > 1 || b->n_frontier > 1 || n_iso) {
        iso_throughput(a, b, iso, n_iso);
        iso_interactivity(a, b);
    }
    fflush(stdout);
}
