/* cmd/profile/profile_forecast.h: what N tensor-parallel GPUs would take, from steps of one rank (runtime/engine.h:
 * tp_slice, exchanging with itself) and a table of what sums over N GPUs take. */
#ifndef CMD_PROFILE_FORECAST_H
#define CMD_PROFILE_FORECAST_H
#include "runtime/step_timer.h"
#include <stdio.h>

/* Microseconds of a sum of so many rows of 7168 bf16 values, ascending. */
enum { LINK_LINES = 64, LINK_DIM = 7168 };
typedef struct {
    i64 n, rows[LINK_LINES];
    f64 us[LINK_LINES];
} link_table;

/* Lines "gpus,rows,us" behind such a head line, of which those for `gpus` are kept; # begins a remark. ST_FORMAT names
 * the line, or says that it has none for so many GPUs. */
status link_table_parse(link_table *t, const char *text, const char *name, i64 gpus, err *e);
/* Between two lines by their straight line; fewer rows take what the fewest take, more go on as the last two. */
f64 link_us(const link_table *t, f64 rows);
/* Of an exchange in which each of `gpus` reads so many bytes from the others: what the smallest sum takes, and the
 * bytes at the rate of the largest (in two shots: 2 (gpus - 1) / gpus of its rows for each). An assumption, not
 * measured. */
f64 link_read_us(const link_table *t, i64 gpus, f64 bytes);

/* "tp8": 8 ranks, one stage; "tp8pp2": two stages of 8; "tp8+tp8": 8 that compute prompts for 8 that write answers. */
enum { FORECAST_HOST_GPUS = 8 /* ranks beyond so many are of several hosts */ };
typedef struct {
    i64 ranks, stages; /* ranks: of a stage, or of each role */
    bool roles;
} forecast_layout;
/* ST_INPUT: it is none, not of 2 to 64 ranks a stage and in all, or of 8 and some on hosts of 8. */
status forecast_layout_parse(const char *text, forecast_layout *out, err *e);
static inline i64 forecast_hosts(const forecast_layout *l) {
    return l->ranks > FORECAST_HOST_GPUS ? l->ranks / FORECAST_HOST_GPUS : 1;
}
/* Seconds that a sum over several hosts takes beside that within each: of `bytes`, which each of a host's GPUs has a
 * share of, sent at `network` bytes a second to its peers of other hosts and back. */
f64 forecast_between_hosts(i64 hosts, f64 bytes, f64 network);

/* Requests: so many at a time, of so many tokens in and out. */
typedef struct {
    i64 in, out, at_a_time;
} forecast_load;
enum { FORECAST_LOADS = 8 };
/* texts [n], each "10240,512,40", or, where n is 0, the four that published results are about. Returns how many there
 * are in loads, or names in *e what is none: 0. */
int forecast_loads_parse(forecast_load loads[FORECAST_LOADS], const char *const *texts, int n, err *e);
/* What an engine needs for all of them: .in the longest prompt, .out the longest sequence, the most at a time. */
forecast_load forecast_largest(const forecast_load *loads, int n);

/* Seconds: of a prompt, and of a decode step in the middle of the answers; how long a prompt holds up the others. */
typedef struct {
    f64 prompt, step, holds;
} forecast_times;
/* The same of a pipeline, where a batch of an Mth of the answers is under way in each of M stages: the busiest has
 * `share` of the layers, a prompt's and a batch's rows take so many seconds from one to the next. t: of all layers,
 * prompt and step, the step of such a batch. Fewer answers than stages go through all in turn. */
forecast_times forecast_staged(const forecast_times *t, i64 stages, i64 at_a_time, f64 share, f64 prompt_hop,
                               f64 step_hop);
/* TTFT of a prompt that nobody is in front of; TPOT and output where each request that ends is followed by another,
 * whose prompt holds up the others' tokens. */
typedef struct {
    f64 ttft_s, tpot_s, tokens_per_s;
} forecast_result;
forecast_result forecast_of(const forecast_load *w, const forecast_times *t);

/* The same where prompts are computed by GPUs of their own, one after the other, and their KV rows take `transfer`
 * seconds: answers wait for nobody; requests a second are what their number gives, at most what the prompts' GPUs do.
 * *busy: the share of the time in which these compute. */
forecast_result forecast_of_roles(const forecast_load *w, const forecast_times *t, f64 transfer, f64 *busy);

/* Milliseconds of a decode step at two contexts, of ranks that have all of the KV cache each and of such that divide
 * it. */
typedef struct {
    f64 context[2], whole[2], divided[2];
} forecast_crossing;
/* The tokens of context from which on the divided form is faster, by straight lines through both; 0: from the first on,
 * INFINITY: never. */
f64 forecast_crossing_at(const forecast_crossing *x);

typedef struct {
    const char *links; /* NULL: the table that comes along */
    forecast_layout layout;
    i64 steps;
    f64 network; /* bytes a second from a GPU to its peer of another stage or host, or between servers */
    const forecast_load *loads;
    int n_loads;
    u64 seed;
    FILE *json; /* NULL: none */
} forecast_options;
/* Opens such a slice with all of the KV cache, with a share of its pages, and with sequences of its own (where
 * eo->dcp and eo->dp_attention do not choose one), measures and prints. eo: what else the engine is opened with;
 * changed. */
status profile_forecast(const forecast_options *o, engine_options *eo, err *e);

#endif
