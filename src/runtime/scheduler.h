/* runtime/scheduler.h: many requests on one engine: continuous batching, paged KV, prefix cache.
 *
 * A front end submits token ids and receives events; text, HTTP and tokenizers are not known here.
 *
 * Threads. The scheduler has one engine thread, which owns everything that changes: queue, KV pages, prefix tree,
 * sequences. scheduler_submit(), _abort(), _stats(), _flush(), _check() and _drain() may be called from any thread,
 * submit, abort and kv_done also from inside the callback; they hand a message to the engine thread. Submit, abort,
 * kv_done and stats take a lock that is never held during a step or a callback. While a scheduler is open, nothing else
 * (seq_*) may use its engine.
 *
 * Prompts may be computed elsewhere: scheduler_options.fetch has their KV pages brought, sched_request.kv_only computes
 * such pages for somebody else (src/server/kv/).
 *
 * A step runs one forward pass: the next token of every decoding request, together with at most
 * chunked_prefill_size tokens of prompts. A long prompt therefore delays a running stream by one chunk at a time.
 *
 * Equal requests (ids, sampling, seed, choice) give equal tokens and logprobs, bit for bit on ref and cpu, alone or
 * beside others, for any chunk size, preempted or not. One exception: KV rows written while decoding may differ in
 * rounding from those of a prompt, so a request that found another's *answer* in the prefix cache may differ from one
 * that did not. `cache_prompts_only` removes the exception at the price of slower second turns. */
#ifndef RUNTIME_SCHEDULER_H
#define RUNTIME_SCHEDULER_H
#include "runtime/engine.h"
#include "runtime/host_cache.h"
#include "runtime/media.h"
#include "runtime/token_filter.h"

enum {
    SCHED_TOP_MAX = 128,    /* most alternatives a position may ask for */
    SCHED_DRAFTS_MOST = 64, /* most drafts in a step of an answer */
};

typedef enum {
    SCHED_FCFS, /* within a priority: in order of arrival */
    SCHED_LPM   /* within a priority: longest prefix in the cache first, while at most 128 wait; else as FCFS */
} sched_policy;

typedef struct sched_event sched_event;

/* Called on the engine thread, once a step or less often, with everything that happened since the last call, in
 * order. `ev` and what it points to are valid during the call. It must return soon (append to a queue, wake a
 * thread): the next step waits for it. It may submit and abort; it must not close, drain, flush or check. */
typedef void (*sched_callback)(void *ud, const sched_event *ev, i64 n);

/* A prompt's KV pages on their way out of this engine or into it (runtime/engine_kv.h moves the bytes, in any thread).
 * All of it stays as it is, and the pages are nobody else's, until scheduler_kv_done(). */
typedef struct {
    void *user;       /* the request's */
    const i32 *ids;   /* [rows + 1]: the prompt's tokens, and the one behind: a draft's last row needs it */
    i64 rows;         /* tokens whose KV rows are wanted, the last page may be a part of one */
    const i32 *pages; /* [n]: of the engine's pool */
    i64 from, n;      /* pages from `from` on are wanted; the ones before are in the prefix cache */
    u64 cache_space;
    i64 priority;
} sched_kv;

/* Sizes that the engine's memory plan needs (KV pool, chunk, most running requests) are in engine_options. */
typedef struct {
    sched_callback on_events; /* required */
    void *ud;
    i64 max_queued;        /* requests that may wait, beside those for which a place is free; 0: 4096 */
    i64 max_queued_tokens; /* prompt tokens of all that wait, a prompt once however many answers to it are asked for;
                              0: 16 million */
    f64 queue_timeout_s;   /* a request that waited longer for its first step ends as SCHED_TIMEOUT; 0: never */
    f64 conservativeness;  /* factor on the pages that running requests are expected to need yet, which admission leaves
                             free: less admits more and preempts more; 0: 1 */
    /* longest step with prompts while answers are written, or three times one without (prefill_budget.h); 0: no
     * limit; less: 0.12 on a GPU, elsewhere no limit */
    f64 decode_stall_s;
    sched_policy policy;
    bool ignore_priority; /* all requests count as priority 0 */
    bool no_preempt;      /* a higher priority waits for a place instead of taking one */
    bool disable_radix_cache;
    bool cache_prompts_only; /* pages that hold generated tokens never enter the prefix cache */
    /* The host's memory for KV pages that the prefix cache may have no room for (host_cache.h): bytes, or, where that
     * is 0, so many times what the engine's KV pool takes; both 0: none */
    u64 host_cache_bytes;
    f64 host_cache_ratio;
    bool disable_overlap;  /* step n+1 is never queued before the results of step n are there */
    bool overlap_anywhere; /* for tests: also where a step runs while it is queued, and is drawn there */
    /* most tokens that are proposed to follow an answer, by the engine's draft model or, where it has none, by what
     * followed before (ngram.h), and run in one step with it; 0: none. No answer depends on it */
    i64 draft_tokens;
    /* > 0: drafts come true, whatever is drawn, by a chance with which draft_tokens of them give so many tokens a step:
     * so that speed can be measured with weights that mean nothing; answers mean nothing then */
    f64 draft_pinned;
    /* of the rounds with drafts this share is decoded again without, a token a step, and what is drawn is compared with
     * what was kept (sched_stats.draft_checked) */
    f64 draft_verify_rate;
    /* Called on the engine thread when a prompt without pictures starts, of which `fetch_least` tokens or more are not
     * in the prefix cache: somebody writes kv's pages, in another thread, then calls scheduler_kv_done(). The request
     * waits for that; the rest of its prompt is computed here. Must return soon. NULL: prompts are computed here */
    void (*fetch)(void *ud, const sched_kv *kv);
    /* With fetch: nobody waits for kv any more. What has not been begun is given back at once. */
    void (*drop)(void *ud, const sched_kv *kv);
    i64 fetch_least;   /* 0: KV_PAGE */
    bool draft_always; /* as many drafts as there may be in every step, also where plain steps are faster */
    bool manual;       /* no engine thread: the caller drives scheduler_step() (tests, benches) */
} scheduler_options;

/* A picture or piece of video in a prompt: its media_item_tokens() tokens, of any id, stand from `first` on. */
typedef struct {
    i64 first;
    media_item *item;
} sched_media;

/* One answer to one prompt. n answers are n requests with choice 0..n-1, one behind the other in one submission,
 * with the same `prompt` pointer: the prompt is copied, counted and computed once. The pointers need to be valid
 * during the call of scheduler_submit() only. */
typedef struct {
    void *user;               /* comes back in every event */
    const i32 *prompt;        /* [n_prompt] */
    i64 n_prompt;             /* at least 1 */
    const sched_media *media; /* [n_media], ascending; the items are held as long as the request is */
    i64 n_media;
    i64 max_new; /* most tokens to generate, >= 1; 0: as many as context and KV pool hold */
    i64 min_new; /* stop_ids are not drawn before that many tokens were generated */
    sampling sampling;
    u32 choice;
    /* The ids that end the answer, all of them: the model's own (leave those out for ignore_eos) and the
     * request's. At most 1024. */
    const i32 *stop_ids;
    i64 n_stop;
    const i32 *bias_ids; /* [n_bias]: logit_bias */
    const f32 *bias;     /* [n_bias] */
    i64 n_bias;
    bool logprobs;        /* want the logprob of generated tokens */
    i64 top_logprobs;     /* and of the k most probable at each position, 0..SCHED_TOP_MAX (implies logprobs) */
    bool prompt_logprobs; /* the same for the prompt's tokens, in SCHED_PROMPT events; it is computed anew */
    i64 prompt_top_logprobs;
    i64 priority; /* higher goes first */
    /* asks whether the engine works: the queue's limits are not for it, it goes in front of all that wait, takes
     * nobody's place, and gives up its own first */
    bool probe;
    /* Which tokens may come; NULL: all. Copied. filter->close() is called once the request is over, on the engine
     * thread or by scheduler_close(); of a submission that was not accepted the caller closes them. With logprobs
     * nothing is written without being drawn. */
    const token_filter *filter;
    /* Nothing is generated: the KV pages of the prompt are computed and handed out, in SCHED_KV events, those of all
     * tokens but the last one, which is not run (max_new is 1). If any came, scheduler_kv_done() gives them back. */
    bool kv_only;
    i64 kv_from;     /* of its pages the first that is wanted */
    u64 cache_space; /* prefixes are shared within a space only (cache_salt); 0: the common one */
    f64 deadline_s;  /* seconds from now until it ends as SCHED_TIMEOUT; 0: none */
} sched_request;

/* What became of a submission, as the HTTP status a server would give. */
typedef enum {
    SCHED_ACCEPTED,
    SCHED_BAD_REQUEST, /* 400: err says which field */
    SCHED_TOO_LONG,    /* 400 context_length_exceeded: prompt + max_new against the context */
    SCHED_QUEUE_FULL,  /* 429 or 503 with Retry-After */
    SCHED_CLOSING,     /* 503: draining, closed or broken */
    SCHED_NO_MEMORY    /* 503 */
} sched_verdict;

typedef enum { SCHED_STARTED, SCHED_PROMPT, SCHED_TOKEN, SCHED_KV, SCHED_END } sched_event_kind;

typedef enum {
    SCHED_STOP,      /* a stop id was generated, or the request's filter lets nothing follow */
    SCHED_LENGTH,    /* max_new, or the context is full */
    SCHED_ABORT,     /* scheduler_abort() or close */
    SCHED_TIMEOUT,   /* its deadline or queue_timeout_s */
    SCHED_DISPLACED, /* lost its place in a full queue to a higher priority, before it started: 503 */
    SCHED_ERROR      /* `error` says what (ST_NUMERIC: NaN or infinity in this request's rows) */
} sched_finish;

typedef sampled sched_top; /* id, logprob */

typedef struct {
    i64 prompt_tokens;
    i64 cached_tokens; /* of the prompt, found in the prefix cache when the request first started */
    i64 output_tokens; /* generated, the stop id included */
    i64 preemptions;
    f64 submitted_s, started_s, first_token_s, ended_s; /* now_s() clock; 0: did not happen */
} sched_usage;

/* A request's events: at most one STARTED (it has a place, and its prompt's pages where these are fetched; not sent for
 * one that never got so far), PROMPT for positions 0..n_prompt-1 in order if asked for, KV for more and more pages of
 * one with kv_only, TOKEN for each generated token in order, exactly one END. After END the id is unknown. Events of a
 * request may arrive before scheduler_submit() has returned on the submitting thread. A preempted request is silent
 * until it is back. */
struct sched_event {
    sched_event_kind kind;
    u64 id;
    void *user;
    sched_usage usage; /* STARTED, END: as of now */
    /* PROMPT, TOKEN */
    i32 token;
    i64 position;         /* PROMPT: in the prompt; TOKEN: index of the output token */
    bool is_stop;         /* TOKEN: it is a stop id, END follows */
    f64 gap_s;            /* TOKEN: seconds since the token before it; of the first: since submission */
    bool has_logprob;     /* false for position 0 of a prompt and where none was asked for */
    f32 logprob;          /* log-softmax of the unchanged logits */
    const sched_top *top; /* [n_top], most probable first, ties by lower id */
    i64 n_top;
    /* KV: pages [kv->from, kv_ready) can be read; the same kv every time */
    const sched_kv *kv;
    i64 kv_ready;
    /* END */
    sched_finish finish;
    i32 stop_id;      /* SCHED_STOP: which, else -1 */
    const err *error; /* SCHED_ERROR, SCHED_TIMEOUT, SCHED_DISPLACED; else NULL */
};

/* Since open, except where "now" is said. */
typedef struct {
    i64 running, prefilling, queued;                 /* now; prefilling is part of running */
    i64 arriving;                                    /* now: of these, those that wait for their prompt's pages */
    i64 queued_tokens;                               /* now: of those in the queue that did not start, prompts once */
    i64 pages, pages_used, pages_cached, pages_free; /* now: sum; held by running requests; only in the
                                                                 prefix cache (evictable); free */
    i64 page_tokens, context, max_running, max_queued, chunk; /* constants */
    i64 accepted, refused;                                    /* requests submitted */
    i64 ended[SCHED_ERROR + 1];                               /* by sched_finish */
    i64 preemptions, evicted_pages;
    i64 prompt_tokens;               /* prompt tokens of the requests that started */
    i64 cached_tokens;               /* of these, found in the prefix cache */
    host_cache_stats host;           /* all 0: there is none */
    i64 kv_out, kv_in;               /* now: prompts whose KV pages are on their way out, and in */
    i64 kv_tokens_out, kv_tokens_in; /* tokens whose pages went; out: that were handed out */
    i64 kv_failed;                   /* prompts whose pages did not come */
    i64 prefilled_tokens;            /* tokens run in prompt form with good results, and again after preemption */
    i64 generated_tokens;
    i64 forced_tokens;            /* of these, written because their filter left no choice: not drawn */
    i64 draft_rounds;             /* answers' steps with drafts */
    i64 draft_tokens, draft_true; /* proposed; of these, what was drawn there too */
    i64 draft_at[SCHED_DRAFTS_MOST], draft_true_at[SCHED_DRAFTS_MOST]; /* the same of the first, second .. draft */
    i64 draft_steps[SCHED_DRAFTS_MOST + 1]; /* of answers alone, by the drafts of the first of them */
    f64 draft_pinned;                       /* constant: scheduler_options.draft_pinned */
    i64 draft_checked, draft_differ;        /* tokens decoded again; of these, drawn otherwise */
    i64 draft_bad;                          /* times that a draft model had a NaN or an infinity instead of a guess */
    i64 steps, ahead;    /* ahead: of these, queued before the results of the one before were there */
    f64 busy_s;          /* in steps */
    f64 step_s, batch;   /* of the last step: seconds, rows */
    f64 generated_per_s; /* over the last seconds */
    f64 since_step_s;    /* now: seconds since a step (or idling) ended; large while requests run: stuck */
    bool idle;           /* now: nothing runs, nothing waits */
    i64 processes;       /* that share the model */
    i64 expert_groups;   /* constant: that have whole experts each; 1: none do */
    i64 experts_moved, expert_rebalances; /* slots that have got another expert; how often some did */
    f64 expert_busiest; /* the last plan's steps: rows of the group that had most, of an equal share; 0: no plan yet */
    hosts_counts hosts; /* what went between them */
    bool draining, broken;
    err fault; /* broken: why */
} sched_stats;
/* Tokens of an answer's step with drafts, its own included; 0: there was none. */
static inline f64 sched_accept_length(const sched_stats *s) {
    return s->draft_rounds ? 1 + (f64)s->draft_true / (f64)s->draft_rounds : 0;
}

typedef struct scheduler scheduler;

/* The engine must outlive the scheduler and have been opened with max_running >= 1. */
status scheduler_open(scheduler **out, engine *g, const scheduler_options *o, err *e);
/* Ends every request (SCHED_ABORT events are delivered), joins the thread, frees. NULL is allowed. */
void scheduler_close(scheduler *s);

/* Takes all n requests or none, at most a share of the queue: as many requests as run at a time and a quarter of
 * max_queued, and a quarter of max_queued_tokens (or one prompt as long as the context). ids [n] get their ids
 * (never 0, never used twice). SCHED_QUEUE_FULL: *retry_after_s is an estimate in whole seconds, 1..60. `ids`,
 * `retry_after_s` and `e` may be NULL. */
sched_verdict scheduler_submit(scheduler *s, const sched_request *r, i64 n, u64 *ids, i64 *retry_after_s, err *e);
/* The request ends as SCHED_ABORT at the end of the step under way, wherever it is. Unknown ids are ignored. */
void scheduler_abort(scheduler *s, u64 id);
void scheduler_abort_all(scheduler *s);
void scheduler_stats(scheduler *s, sched_stats *out);

/* The pages of kv are given back, kv is gone. Of a prompt's that came in: those before `ready` (an index as kv->n)
 * have been written; why NULL: the request goes on with them, else it ends as SCHED_ERROR, unless a part of its answer
 * is written: the rest is computed here then. From any thread, also from the callback. */
void scheduler_kv_done(scheduler *s, const sched_kv *kv, i64 ready, const err *why);
/* Does the request still wait for kv? */
bool scheduler_kv_wanted(scheduler *s, const sched_kv *kv);

/* From now on submissions get SCHED_CLOSING. Waits until nothing runs or `timeout_s` passed; true when idle. */
bool scheduler_drain(scheduler *s, f64 timeout_s);
/* Empties the prefix cache. ST_LIMIT while requests run or wait. Waits for the step under way. */
status scheduler_flush(scheduler *s, err *e);
/* Proves, between two steps, that every KV page is free, cached or owned exactly as its reference count says, that
 * the sum is the pool, and that the prefix tree is whole. */
status scheduler_check(scheduler *s, err *e);

/* Manual mode: one step with its events. False when there was nothing to do. */
bool scheduler_step(scheduler *s);

#endif
