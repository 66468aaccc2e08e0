/* runtime/scheduler_internal.h: the inside of the scheduler, shared by its files.
 *
 *   submit.c     any thread: requests checked, copied and put into the inbox; abort, stats
 *   scheduler.c  engine thread: the loop, one step, control calls
 *   admit.c      engine thread: the queue, who gets a place and pages, who loses them
 *   batch.c      engine thread: rows of a step, forward pass, what follows from its results
 *   pipeline.c   engine thread: several batches under way, one for each stage of a pipeline
 *   drafts.c     engine thread: what is proposed to follow the answers
 *   kv_transfer.c  engine thread: KV pages that go to another process or to the host's memory, or come from there
 *   draws.c      engine thread: which tokens may come, how they are drawn
 *
 * A task is a request under way. Its tokens are the prompt followed by what was generated; KV rows exist for the first
 * n_kv of them. A step runs some of the rest: in prompt form up to n_prompt, in decode form from there. So a decoding
 * task is one with a single token to run, and a preempted task, which starts over with n_kv = 0, runs each row in
 * the form it had the first time: it gets the same bits. */
#ifndef RUNTIME_SCHEDULER_INTERNAL_H
#define RUNTIME_SCHEDULER_INTERNAL_H
#include "runtime/draft_policy.h"
#include "runtime/draft_tree.h"
#include "runtime/engine_internal.h"
#include "runtime/host_cache.h"
#include "runtime/ngram.h"
#include "runtime/prefill_budget.h"
#include "runtime/radix.h"
#include "runtime/scheduler.h"
#include <pthread.h>

/* A prompt of which several answers were asked for: one copy until they start, and it counts once in the queue. */
typedef struct {
    i32 *ids;          /* [n_prompt] */
    i64 users, queued; /* tasks that have not started; of these, in the queue */
} shared_prompt;

typedef struct task task;
struct task {
    u64 id;
    sched_request r; /* its pointers go into `lists` */
    void *lists;
    shared_prompt *shared; /* NULL once it has started: `tokens` are its own */
    i32 *tokens;           /* [cap]: prompt, output */
    i64 n, cap;
    i32 *pages; /* [enough for n_prompt + max_new] */
    i64 n_pages, n_kv;
    radix_path known;            /* waiting: what the prefix cache has of it; the path's pages are in `pages` */
    i64 prompt_rows_done;        /* prompt_logprobs: rows whose logits were delivered */
    f64 deadline;                /* now_s() clock; 0: none */
    i64 media_ready;             /* the prompt's tokens up to here can be run: what they show is on the device */
    struct task_media *media;    /* [r.n_media]; r.media is NULL */
    radix_span *spans;           /* [r.n_media]: the same for the prefix cache */
    model_media *placed;         /* [r.n_media]: where their rows are, of those that are on the device */
    bool running, started, told; /* told: its SCHED_STARTED was pushed */
    bool first_told;             /* prompt_logprobs: the event of position 0 */
    u64 skipped;                 /* the round of admission that passed it over */
    i64 n_step;                  /* rows in the step being built */
    i64 n_flight;                /* rows behind n_kv that are under way in other batches */
    i64 n_draft;                 /* and drafts behind them, which stand behind the n tokens: path 0 of `guesses` */
    i64 n_branch;                /* and more of these, of other paths */
    ngram_index ngram;
    f64 draft_share;    /* of the drafts that came true, lately */
    i64 draft_rest;     /* steps that it makes none, because too few did */
    draft_tree guesses; /* a draft model's, of what follows the first `guessed_at` tokens */
    i64 guessed_at;
    i64 check_left;                         /* tokens of a round that are decoded again, one a step, to compare */
    i32 check_states[DRAFT_NODES_MOST + 1]; /* of its filter, behind each of these, the last one first */
    struct kv_transfer *kv;                 /* its pages on their way out, or in; NULL: they are not, or no more */
    sched_usage usage;
    f64 last_token_s;
    token_filter filter; /* r.filter points to it, or is NULL */
    i32 filter_state;    /* behind the last token */
    i64 n_forced;        /* tokens behind the last one that was drawn */
    bool whole;          /* it ended because its filter lets nothing follow */
    err error;
    task *prev, *next; /* inbox, queue or list of the ended */
    /* under scheduler.lock */
    task *hash_next;
    bool abort;
};

/* An item whose rows are on the device, or will be when the pass under way is over. */
typedef struct media_place {
    media_item *item; /* held */
    i64 from, n;      /* rows */
    i64 users;        /* tasks that have yet to run its tokens */
    u64 used;         /* the round in which one last did */
    bool ready;
} media_place;
typedef struct task_media {
    media_item *item;   /* held */
    media_place *place; /* NULL: it has none, or its tokens have been run */
} task_media;

/* media_rows.c: the model's media rows, and the vision tower's pass that fills some. */
typedef struct {
    media_place **places; /* [n], by `from` */
    i64 n, cap, rows;     /* rows: all there are */
    bool under_way;       /* a pass of the tower */
} media_rows;

typedef struct {
    task *head, *tail;
    i64 n;
} task_list;

/* kv_transfer.c: a prompt's pages, each held, until whoever moves them is done. */
typedef struct kv_transfer {
    sched_kv kv; /* first */
    scheduler *s;
    task *t;         /* NULL: it has left, or does not wait */
    bool in;         /* they come; else they go */
    i64 held_from;   /* kv.pages [held_from, n) are held */
    i64 ready;       /* out: pages that were handed out */
    host_copy *copy; /* from the host's memory, or to it; NULL: from another process, or to one */
    bool begun;      /* to the host's memory: it is being copied */
    i64 step;        /* the same: sched_stats.steps when its task left */
    struct kv_transfer *next;
    /* under scheduler.lock */
    bool done, wanted;
    i64 arrived;
    err why; /* ST_OK: nothing failed */
} kv_transfer;

typedef enum {
    OUT_PROMPT, /* of a prompt's token: log-probabilities of the one that follows are wanted */
    OUT_NEXT,   /* the task's last token when the step was built: the next one is drawn, unless it is known by then */
    OUT_DRAFT,  /* of a draft: if it comes true, the next one is drawn */
    OUT_CHECK,  /* decoded again without drafts: what it draws is compared with what follows */
    OUT_UNUSED  /* the one that follows is known */
} out_kind;

/* A row whose logits were asked for. */
typedef struct {
    task *t;
    i64 position; /* of the token that was run */
    out_kind kind;
    i32 draft;  /* OUT_DRAFT: the token that was run */
    i64 parent; /* OUT_DRAFT: of the batch's, that of the token in front of it */
    bool taken; /* its token is the answer's */
    i32 state;  /* of its task's filter, behind the row's token */
    i64 span;   /* of the batch, that it is of */
    i64 mask;   /* 0: every token may come, else as sample_row.mask */
    i32 id;     /* prompt row: the token that follows; else the one drawn */
    f32 logprob;
    i64 n_top;
    sched_top top[SCHED_TOP_MAX];
} out_row;

/* The rows of a step, from its plan to its results. */
typedef struct {
    i32 *ids, *bad;    /* [rows] */
    model_span *spans; /* [spans_most] */
    task **tasks;      /* [spans_most]: whose they are; NULL: it left while the batch was under way */
    i64 *drafts;       /* [spans_most]: the last rows of each that are drafts */
    bool *branch;      /* [spans_most]: it is a branch of the tree that the task's first span begins, right behind it */
    i32 *branch_pages; /* [spans_most, BRANCH_PAGES]: of branches */
    i64 n_spans, n_rows, n_answers; /* n_answers: spans that are no branches */
    kv_pair *copies;                /* [limits.copies]: what branches share (model_batch.copies) */
    i64 n_copies, n_trees;
    i32 *out_index; /* [logit_rows] */
    out_row *outs;  /* [logit_rows]; their tasks as above */
    i64 n_outs;
    bool on_device; /* it draws all rows but those to keep */
    bool late;      /* its draws are queued behind it, once masks are there */
    i64 n_masks;
    sample_row *draws; /* [logit_rows]: how it draws them */
    i32 *drawn;        /* [logit_rows]: what it drew */
    bool *keep;        /* [logit_rows]: their logits come to the host */
    i32 *tops, *next;  /* [logit_rows]: what the device tells of log-probabilities (model_batch) */
    f32 *logprobs;     /* [logit_rows, 1 + SCHED_TOP_MAX] */
    i32 *top_ids;      /* [logit_rows, SCHED_TOP_MAX] */
    i64 top_most;      /* -1: nobody wants any */
    bool kept;         /* the draft model's rows of it are queued already */
    bool pipelined;    /* in a pipeline: others may be under way beside it */
    bool queued_ahead; /* before the results of the one before were there */
    i64 n_waiting;     /* answers whose readers wait while it runs, also those of others under way, of each so many */
    f64 began_s;       /* when it was queued, or the one before it ended */
} batch;

/* A draft model's pass behind a step, whose features it reads. */
typedef struct {
    draft_span *spans;           /* [spans_most] */
    task **tasks;                /* [max_running]: of the spans that guess; NULL: it has left */
    task **of;                   /* [spans_most]: of the step whose results are taken, also those that it ends */
    i32 *ids;                    /* [max_running, DRAFT_STEPS_MOST] */
    draft_candidate *candidates; /* [sequences that guess, draft_candidates()]: of trees */
    kv_pair *kept;               /* [limits.copies]: KV rows of branches that came true, to their answers' pages */
    i64 n_kept, n_trees;         /* n_trees: answers with branches in the step being built */
    draft_batch batch;           /* n_spans 0: no pass is under way */
    i64 n_guessing;
    bool rests; /* there are no guesses for the next step, nor are there to be any */
    /* Of a pipeline's batches beside each other: answers in those since a number of drafts was chosen for all; answers
     * and time of those since a step of all was noted, if the last one was pipelined */
    i64 n_chosen, n_pipelined;
    f64 pipelined_s;
    bool pipelined;
    i32 *following; /* [rows]: of a pass that is queued before the results of its step */
    draft_policy policy;
    i64 next;                     /* drafts of an answer in the step to come, at most; -1: not chosen yet */
    draft_classes chosen;         /* the same by class */
    f64 results_s;                /* when the last results were there, of a step with few prompts; 0: of none */
    f64 check_due;                /* rounds that have yet to be decoded again (scheduler_options.draft_verify_rate) */
    f64 pinned_chance, pinned_at; /* scheduler_options.draft_pinned: of each draft; where its rounds' numbers are */
    i64 *came_true; /* [spans_most]: drafts of each span of the step whose results are taken; -1: its task had left */
} draft_pass;

_Static_assert((int)SCHED_TOP_MAX <= (int)LOGPROBS_TOP, "the device tells of so many");
#define DRAFT_HOPE 0.6 /* the share of its drafts that a request is expected to see come true */
enum { TASK_BUCKETS = 4096, EVENTS = 512 };

struct scheduler {
    engine *g;
    scheduler_options o;
    i64 limit; /* most tokens of a request: the context, or the pool where that is smaller */

    /* Engine thread only. */
    radix tree;
    task_list queue;   /* waiting: higher priority first, then lower id */
    i64 queue_tokens;  /* prompts of those that have not started, a shared one once */
    i64 match_lookups; /* pages that admission may yet look for in the prefix cache in this step */
    task **running;    /* [max_running], in order of admission */
    i64 n_running;
    u64 round;
    f64 next_deadline; /* no deadline passes before it; 0: none */
    prefill_budget budget;
    f64 mean_output;     /* tokens, of answers that ended by themselves: running mean */
    task_list ended;     /* their events are not delivered yet */
    sched_event *events; /* [EVENTS] */
    i64 n_events;
    bool overlap;                 /* step n+1 is queued while step n runs, where it is known */
    batch batches[MODEL_REPLIES]; /* [n_batches]: the step under way, and the next one; of a pipeline, as many as it
                                     has stages */
    i64 n_batches;
    batch *ahead; /* queued behind the step that was under way; NULL: none */
    i64 depth;    /* batches of different answers that may be under way at a time (pipeline.c); 1: one */
    i64 shares;   /* among so many batches the running answers are divided now; 1 or depth */
    batch *flight[MODEL_REPLIES]; /* [n_flight]: those, the oldest first */
    i64 n_flight;
    bool alone;   /* the host draws some rows of the last one: nothing is queued behind it */
    i32 *by_host; /* [logit_rows]: rows that the host draws */
    u64 *masks;   /* [logit_rows, mask_words]: tokens that may come, of the step whose results are next */
    i64 mask_words;
    struct mask_job *mask_jobs; /* [logit_rows] */
    i64 new_tokens, new_forced; /* of the step whose results are taken */
    draft_pass drafts;
    media_rows media;
    kv_transfer *transfers;    /* the newest first */
    i64 n_arriving, n_leaving; /* of the running tasks, those that wait for pages; those whose pages go */
    host_cache *host;          /* NULL: there is none */
    i64 n_saving, n_saves;     /* pages on their way there, in so many transfers */
    bool resting;              /* in the last step there was nothing else */
    f32 *logits;               /* [logit_rows, vocab] */
    sampler **samplers;        /* [n_samplers]: one a thread */
    int n_samplers;
    u32 *held; /* [pool pages]: scheduler_check() */
    i64 counted_tokens, counted_ends;
    f64 window_began;

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t wake, idle; /* for the engine thread; for those who wait for it */
    task_list inbox;
    i64 inbox_tokens;
    task *hash[TASK_BUCKETS]; /* requests without END */
    u64 next_id;
    i64 n_live, places, lowest_priority;                /* places: running tasks that fit besides; of the queue, now */
    bool any_abort, kv_news, draining, closing, broken; /* kv_news: a transfer is done */
    int control; /* a control call waits: 0, CONTROL_FLUSH, CONTROL_CHECK; then CONTROL_DONE */
    status control_status;
    err control_error, fault;
    f64 step_began, step_ended;
    f64 end_rate; /* requests a second, lately */
    sched_stats stats;
    pthread_t thread;
    bool thread_runs;
};
enum { CONTROL_NONE, CONTROL_FLUSH, CONTROL_CHECK, CONTROL_DONE };

/* t's tokens for the prefix cache. */
static inline radix_tokens task_radix(const task *t) { return (radix_tokens){t->tokens, t->spans, t->r.n_media}; }

/* Spans of a step: one of each task, and the branches of trees. */
static inline i64 spans_most(const engine *g) { return g->max_running + g->draft_lim.sequences * engine_branches(g); }

/* submit.c */
void task_free(task *t);
/* The task starts: its tokens become its own, to be appended to. False: out of memory. */
bool task_own_tokens(task *t);
void list_add(task_list *l, task *t);
void list_remove(task_list *l, task *t);
void hash_add(scheduler *s, task *t); /* both with the lock held */
void hash_remove(scheduler *s, task *t);

/* scheduler.c */
sched_event *push_event(scheduler *s, const task *t, sched_event_kind kind); /* delivers when the list is full */
/* The task leaves queue or running and gives up its pages; END is pushed. `keep`: its KV rows are good, the prefix
 * cache may have them. It is freed behind the step. */
void end_task(scheduler *s, task *t, sched_finish why, bool keep);

/* admit.c */
void queue_insert(scheduler *s, task *t);
void queue_remove(scheduler *s, task *t);
void admit(scheduler *s);
/* Pages for the rows that this step will write; preempts where none are left. */
void reserve_pages(scheduler *s);
/* Tokens of t's beginning that need not be run, wherever their KV rows are: at least one is, for its logits. */
i64 reuse_limit(const task *t);
/* Pages of its beginning that a cache may provide. */
i64 reusable_pages(const scheduler *s, const task *t);
/* Of its KV rows those that a cache may have. */
i64 cacheable_rows(const scheduler *s, const task *t);
/* Where t's pages are: the rank that attends for it, 0 where all do. */
i64 task_share_of(const scheduler *s, const task *t);
/* Pages whose rows are all written go into the prefix cache. */
void cache_prefix(scheduler *s, task *t);
void leave_running(scheduler *s, task *t, bool keep);
status check_pages(scheduler *s, err *e);

/* Pages for the KV rows of t's first n tokens, if there are: nobody loses any for them. */
bool takes_pages(scheduler *s, task *t, i64 n);

/* drafts.c */
bool drafts_by_model(const scheduler *s);
/* Drafts behind the last tokens of tasks that run these in the step being built, beside so many answers, at most
 * `most`: writes task.n_draft and n_branch, and the drafts behind each task's tokens. Returns how many. */
i64 drafts_plan(scheduler *s, i64 answers, i64 most);
/* Can drafts follow what t's row of `now` draws? Then the step behind it is not known. */
bool drafts_expected(scheduler *s, const batch *now, task *t);
/* Around a step's results, before and behind those of its drafts. */
void drafts_begin(scheduler *s, const batch *b);
void drafts_count(scheduler *s, const batch *b);
/* scheduler_options.draft_pinned: behind the draws. Not of requests with a filter, which has to let pass what comes. */
void drafts_pin(scheduler *s, batch *b);
/* A NaN or an infinity in a row beside drafts may be a draft's, which a kernel that reads a sequence's rows together
 * spreads: the row is decoded again without any, and t gets none for a while. discard: all rows of span i of b. */
void drafts_rest(task *t);
void drafts_discard(batch *b, i64 i);
/* What an OUT_CHECK row has drawn. */
void drafts_check(scheduler *s, const out_row *o);
/* How many drafts the answers of the next step get by the model: chosen once for each step, of a pipeline's batches
 * once for as many of them as have all answers. */
i64 drafts_next(scheduler *s);
/* Answers of b's that go on; b NULL: all that are running. */
i64 drafts_answers(const scheduler *s, const batch *b);

/* The branches of t's tree, behind its span, the last one of b, whose drafts' outs end with the last one. */
void drafts_add_branches(scheduler *s, batch *b, task *t);
/* Draft o of b came true. */
void drafts_keep_branch(scheduler *s, const batch *b, const out_row *o);
/* Behind a step's results, before any other is queued: KV rows of branches that came true to their answers' pages. */
status drafts_copy_kept(scheduler *s, err *e);

/* draft_pass.c */
status drafts_open(scheduler *s, err *e); /* memory, which drafts_close() frees */
void drafts_close(scheduler *s);
/* Behind a step that was queued and is drawn by the device: if no drafts will follow it, the draft model's rows of it
 * are queued too, before its results are known, so that the step behind it, or another batch, can be. */
status drafts_keep(scheduler *s, batch *b, err *e);
/* Behind a step with its results, unless its rows are kept: the draft model reads its features and guesses on.
 * Where guesses are chains and ids can refer to them, tasks have them at once, as such ids (below 0), and the next step
 * is queued before they are known; else drafts_collect() is called before the next step is built. */
status drafts_queue(scheduler *s, const batch *b, err *e);
bool drafts_collect_late(const scheduler *s);
/* Waits for them. late: b's rows get the tokens that their ids refer to; what is no number will not come true. */
status drafts_collect(scheduler *s, err *e);
void drafts_arrive(batch *b);
void drafts_forget(scheduler *s, const task *t); /* it leaves */

/* media_rows.c */
/* Before a step: some of the tower's layers for the prompts whose next tokens are pictures, and how far each can be
 * run (task.media_ready). */
status media_advance(scheduler *s, err *e);
void media_rows_close(scheduler *s);
/* t's rows up to t->n_kv have been run; it leaves its place. */
void media_done(scheduler *s, task *t);
void media_leave(scheduler *s, task *t);
/* Of t's rows [first, first + n): what goes into their span. */
void media_of_span(const task *t, model_span *span);

/* kv_transfer.c */
static inline bool is_arriving(const task *t) { return t->kv && t->kv->in; }
/* t has got its place and its pages: what is missing of its prompt is fetched, or what there is of it is handed out. */
void kv_begin(scheduler *s, task *t);
/* t leaves with good rows, before its pages are given up: they are to be copied to the host's memory, as far as that
 * lacks them. It begins when no pass that is under way can write to them; now: for which it is waited. */
void kv_save(scheduler *s, task *t);
void kv_begin_saving(scheduler *s, bool now);
/* Waits until a transfer has ended, so that pages are free again; false: none goes to the host's memory. */
bool kv_wait_for_saved(scheduler *s);
/* Behind a step and the draft's pass of it: tasks with kv_only hand out their pages, and end when they have all. */
void kv_hand_out(scheduler *s);
/* t leaves its place: its pages stay held while they move. */
void kv_leave(scheduler *s, task *t);
/* Takes what scheduler_kv_done() left. */
void kv_take_done(scheduler *s);
void kv_transfers_close(scheduler *s);

/* draws.c */
bool draws_on_device(const scheduler *s);
bool out_is_open(const out_row *o); /* its row draws a token that is not known; of a draft, if it comes true */
/* How the device draws each row, if it does. */
void plan_draws(const scheduler *s, batch *b);
status masks_open(scheduler *s, err *e); /* memory for them, which scheduler_close() frees */
/* The sets of tokens that may come, for rows of requests with a filter. Requests end whose filter fails, or lets
 * nothing come. */
void make_masks(scheduler *s, batch *b);
void draw_all(scheduler *s, batch *b); /* what the device has drawn is taken, the host draws the rest */

/* batch.c */
void run_batch(scheduler *s);
/* The rows of a step; what draws them; its forward pass and its draws, queued; its results. */
void batch_build(scheduler *s, batch *b);
model_batch model_batch_of(const scheduler *s, const batch *b);
status batch_queue(scheduler *s, batch *b, err *e);
status batch_queue_draws(scheduler *s, batch *b, err *e);
void batch_take_results(scheduler *s, batch *b);
/* The pass itself failed: nothing under way has a result, and there is no reason to expect better of the next. */
void break_down(scheduler *s, const err *why);

/* pipeline.c */
i64 pipeline_depth(const scheduler *s);
/* Are batches to be under way beside each other now? Not where drafts are proposed, which hang on the results of the
 * batch before; steps without any are, and with a draft model that rests. */
bool pipeline_is_on(scheduler *s);
/* Then run_batch() is this: queues another batch, or takes the results of the oldest. */
void run_pipeline(scheduler *s);
/* b's next row: a draft behind the row of out `parent`. */
void add_draft_out(batch *b, task *t, i64 position, i32 id, i64 parent);
/* Room for n tokens of t; at most as many as it may ever have. */
bool tokens_room(task *t, i64 n);
static inline bool in_prompt(const task *t) { return t->n_kv + t->n_flight < t->r.n_prompt; }
/* What t's filter forces next (token_filter.forced), as far as t wants it. */
i64 task_forced(const task *t, i32 *ids, i64 most);
void fail_all(scheduler *s); /* ends every request with `fault` */
/* t leaves: what batches under way compute for it is nobody's. */
void forget_rows(scheduler *s, const task *t);

#endif
