/* cmd/bench/serving/workload.h: the requests of `moonlet bench serving`. Lengths, offsets and the order of a data
 * set's texts are those of SGLang's bench_serving for equal options and seed (numpy's and Python's generators, in
 * its order of draws). */
#ifndef CMD_BENCH_SERVING_WORKLOAD_H
#define CMD_BENCH_SERVING_WORKLOAD_H
#include "cmd/lib/load_generator.h"

typedef struct {
    const char *name; /* random, random-ids, sharegpt, jsonl, trace */
    const char *path; /* random without one becomes random-ids */
    i64 n;            /* requests, or conversations of a trace */
    i64 input_len, output_len;
    f64 range_ratio; /* lengths are uniform in [max(1, floor(L ratio)), L] */
    u32 seed;
    i64 fixed_output; /* --sharegpt-output-len; 0: from the data */
    bool as_ids;      /* send token ids, no text */
    bool no_delays;   /* trace: turns follow at once */
} workload_options;

typedef struct {
    const char *name; /* what it is reported as */
    load_item *items; /* [n] */
    i64 n;
    mt19937 rng; /* numpy's, after the lengths: for the arrivals */
    const tokenizer *tok;
    bool as_ids;
} workload;

/* End with workload_free() whatever was returned. `t` must outlive it. */
status workload_make(workload *w, const workload_options *o, const tokenizer *t, err *e);
void workload_free(workload *w);
/* load_options.extend for traces; ud is the workload. */
status workload_extend(void *ud, const load_item *before, load_item *item, err *e);
/* Fills in input_tokens that were not known before the run: the server's number, or counted. */
status workload_count(workload *w, err *e);

#endif
