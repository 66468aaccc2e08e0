/* cmd/bench/serving/serving_report.h: the result of a run as bench_serving's table and as a JSON object with its
 * field names. */
#ifndef CMD_BENCH_SERVING_SERVING_REPORT_H
#define CMD_BENCH_SERVING_SERVING_REPORT_H
#include "cmd/bench/serving/serving_metrics.h"

/* What was asked for; strings may be NULL. */
typedef struct {
    const char *tag, *backend, *model, *tokenizer;
    f64 rate;        /* 0: no limit */
    i64 concurrency; /* 0: no limit */
    i64 gpus;
    const workload_options *workload;
    const json_t *server_info; /* or NULL */
    bool details;
} serving_setup;

void serving_print(const serving_setup *s, const workload *w, const serving_metrics *m);
/* A new reference; NULL when out of memory. */
json_t *serving_json(const serving_setup *s, const workload *w, const serving_metrics *m);
/* The failed requests by reason, on stderr. */
void serving_print_failures(const workload *w);

#endif
