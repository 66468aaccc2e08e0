/* cmd/bench/serving/serving_metrics.h: what a finished load says: the metrics of SGLang's bench_serving, by its
 * definitions.
 *
 *   TTFT   first token - start of the request (its time in the client's own queue does not count)
 *   E2E    end of the answer - start
 *   TPOT   (E2E - TTFT) / (output tokens - 1), for answers of more than one token
 *   ITL    gaps between pieces; a piece that brought k tokens counts k times with its k-th part
 *   concurrency   sum of E2E / duration
 *   peaks  largest number of tokens, and of requests under way, in a second of the run */
#ifndef CMD_BENCH_SERVING_SERVING_METRICS_H
#define CMD_BENCH_SERVING_SERVING_METRICS_H
#include "cmd/bench/serving/workload.h"

typedef struct {
    f64 duration_s;
    i64 completed, failed;
    i64 input_tokens, output_tokens; /* of completed requests; input as the client counts it */
    i64 retokenized;                 /* output tokens, counted anew from the text; -1: not done */
    i64 server_input_tokens;         /* as the server counted; -1: some answers did not say */
    i64 cached_tokens;               /* of these, from its prefix cache; -1: it did not say */
    i64 uncounted;                   /* answers whose server did not count tokens: max_tokens is taken */
    bool streamed;                   /* else TTFT, TPOT and ITL are not known */
    f64 request_rate, input_rate, output_rate, total_rate; /* a second */
    f64 concurrency, peak_output, peak_requests;
    f64 accept_length;            /* NAN: not known */
    f64 client_cpu;               /* share of the duration for which the client's thread computed */
    summary e2e, ttft, tpot, itl; /* milliseconds */
} serving_metrics;

/* `text` of the answers is needed when `retokenize`. */
status serving_measure(const workload *w, const load_result *r, bool streamed, bool retokenize, serving_metrics *m,
                       err *e);
/* accept length out of /get_server_info: internal_states[0].avg_spec_accept_length; NAN without, and with a warning for
 * a number that is no draft's length. */
enum { ACCEPT_LENGTH_MOST = 10000 };
f64 accept_length_of(const json_t *info);

#endif
