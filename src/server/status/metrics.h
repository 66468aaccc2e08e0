/* server/status/metrics.h: counters and histograms in Prometheus' text format, under SGLang's names, and under vLLM's
 * where they mean the same. */
#ifndef SERVER_STATUS_METRICS_H
#define SERVER_STATUS_METRICS_H
#include "base/buf.h"
#include "runtime/scheduler.h"
#include "server/kv/kv_fetch.h"
#include "server/request/constraints.h"
#include "server/status/latency_window.h"

typedef struct metrics metrics;
status metrics_open(metrics **out, err *e);
void metrics_close(metrics *m);

/* On the engine thread, for every event: tokens and ends count. */
void metrics_events(metrics *m, const sched_event *ev, i64 n);
void metrics_response(metrics *m, int status);  /* an HTTP answer */
void metrics_compiled(metrics *m, f64 seconds); /* a constraint */
/* Of the last minute. */
typedef struct {
    quantiles ttft, itl;
} latencies;
void metrics_minute(metrics *m, f64 now, latencies *out);

void metrics_write(metrics *m, const sched_stats *s, const constraint_stats *c, const char *model, i64 connections,
                   buf *out);

/* Of a server that has one. */
void metrics_write_host_cache(const host_cache_stats *s, i64 page_tokens, const char *model, buf *out);
/* KV pages that go to other servers, or come from them. fetcher NULL: none come. */
void metrics_write_kv(const sched_stats *s, kv_fetcher *fetcher, const char *model, buf *out);

#endif
