/* server/reply/job.h: a request at the scheduler: from the engine thread's events to the thread that answers.
 *
 * Events are copied into a queue of the job; taking from it waits on the job's own condition, so that a slow reader
 * stands in nobody's way. The queue is bounded: who does not read loses the request, not the server. */
#ifndef SERVER_REPLY_JOB_H
#define SERVER_REPLY_JOB_H
#include "server/request/request.h"

typedef struct {
    sched_event_kind kind;
    i32 choice; /* 0.. prompts x n - 1, prompt by prompt */
    i32 token;
    f32 logprob;
    bool is_stop, has_logprob;
    i32 n_top;
    i64 position;
    i64 top;  /* index of the first alternative in job_events.top */
    f64 at_s; /* now_s() of its arrival */
} job_event;

/* How far a choice is. usage: as of its start or, when it has ended, its end. */
typedef struct {
    bool ended, started;
    sched_finish finish;
    i32 stop_id;
    sched_usage usage;
    err error;
} job_end;

typedef struct {
    job_event *ev;
    i64 n, cap;
    sched_top *top;
    i64 n_top, cap_top;
} job_events;

typedef struct job job;
typedef struct job_table job_table;

/* All jobs of a server, for /abort_request and for the metrics. */
status job_table_open(job_table **out, err *e);
void job_table_close(job_table *t);
void job_table_on_events(void *ud, const sched_event *ev, i64 n); /* a sched_callback; ud is not used */

/* Submits r's prompts x n choices. `rid` is copied. False: *e says what the client is told. */
bool job_submit(job **out, job_table *t, scheduler *s, const gen_request *r, const served_model *m, const char *rid,
                f64 deadline_s, api_error *e);
/* Waits for events, at most timeout_s. *out is valid until the next call; n may be 0. False: the queue overflowed
 * or memory ran out, *e says which. */
bool job_take(job *j, f64 timeout_s, const job_events **out, api_error *e);
/* What is known of a choice by now. */
job_end job_end_of(job *j, i64 choice);
/* Of a request for KV pages: where they are, NULL: none yet, and how many of its prompt's can be read by now. Theirs
 * until job_release(). */
const sched_kv *job_kv(job *j, i64 *ready);
void job_abort_choice(job *j, i64 choice);
/* Aborts what still runs and gives the job up; its last event frees it. NULL is allowed. */
void job_release(job *j);
/* Aborts the requests with that rid; 0 if there are none. NULL: all. */
i64 job_table_abort(job_table *t, const char *rid);

#endif
