/* runtime/ranks.h: the ranks of a model: each has a backend, its share of the weights, all of the KV cache or a share
 * of its pages, and a thread.
 *
 * Rank 0 runs in the caller's thread, every other in one of its own, which sleeps while there is nothing to do (on GPUs
 * not at once, where the host has processors to spare: a wake-up is longer than what there is to do). With
 * one rank there is no thread, and nothing is exchanged. Ranks that are bound to NUMA nodes have all a thread of their
 * own, so that the caller's stays as it is. */
#ifndef RUNTIME_RANKS_H
#define RUNTIME_RANKS_H
#include "device/comm.h"
#include "device/hosts.h"
#include "device/numa.h"
#include "kernels/backend.h"
#include "kernels/context_parallel.h"
#include "kernels/pipeline_parallel.h"
#include "model/draft.h"
#include "model/vision.h"

/* What a rank does in a pass of the vision tower: n items from `first` on, whose rows are `from` to `to` - 1 of the
 * model's media rows. */
typedef struct {
    i64 first, n, from, to;
    bool done;
} media_share;

typedef struct {
    struct ranks *all;
    i64 index;           /* among all: stage by stage */
    i64 stage, place;    /* of the pipeline; among the ranks of that stage, which divide its matrices */
    i64 slot;            /* among those of this process */
    model_config config; /* of this rank's share */
    backend backend;
    u64 memory;  /* bytes that it may allocate */
    i64 sharing; /* ranks that have the memory of this one's device together, itself among them */
    model *model;
    draft_config draft_config; /* of this rank's share */
    draft *draft;              /* NULL: there is none */
    vision *vision;            /* all of the tower, on each rank; NULL: there is none */
    err draft_failure;         /* while it is opened or loaded */
    comm *comm;                /* of the host: how ranks learn that one has failed; NULL: there is one rank */
    comm *data;                /* what seams use, of the stage's ranks: comm, or another; NULL: it has one rank */
    tensor_parallel split;
    rank_seams seams;
    pipeline_parallel links;
    numa_node node; /* where it is bound, if it is */
    err failure;    /* the first of its own; of the only rank, that of this call */
    /* Results that every rank of a stage computes, for those that do not hand them out. */
    i32 *bad;   /* [rows] */
    i32 *drawn; /* [logit_rows] */
} rank;

/* How a model is divided among ranks. */
typedef struct {
    i64 tp;                 /* ranks of a stage */
    i64 pp;                 /* stages */
    i64 layers[STAGES_MAX]; /* [pp] */
} rank_layout;

typedef struct rank_threads rank_threads;
typedef struct ranks {
    i64 n;                               /* all: tp * pp */
    i64 tp, pp;                          /* ranks of a stage; stages */
    i64 first;                           /* of those in this process */
    i64 held;                            /* how many these are */
    rank *of;                            /* [held] */
    hosts *hosts;                        /* NULL: there is no other process. The caller's, and outlives them */
    bool serving;                        /* processes no longer agree after each job: what fails ends the group */
    buf told;                            /* to the other processes: the last job */
    i64 draft_topk;                      /* of the draft, if there is one */
    i64 vocab_first[COMM_RANKS_MAX + 1]; /* [tp + 1] */
    media_share media[COMM_RANKS_MAX];   /* [tp], of the pass under way, which the first stage's ranks make */
    int threads_each;                    /* of the host, for each rank's arithmetic; 0: all */
    f64 deadline_s;
    f64 spin_s;   /* how long a thread that waits for work does not sleep; ranks_connect() says it */
    i64 rows;     /* most in a step; for ranks_connect() */
    bool nccl;    /* GPUs exchange by it alone; the same */
    bool ordered; /* sums hang on nothing but the values and the ranks' order (--deterministic); the same */
    bool bound;   /* each to its node */
    rank_threads *threads;
} ranks;

/* tp * pp <= COMM_RANKS_MAX ranks without backend and model, whose configs are c's shares, or the first tp of a slice
 * (c->slice is tp); of several processes (`all` is not NULL), those of this one. deadline_s: the longest that one may
 * wait for another in an exchange. meet: one rank, too, exchanges, with itself: a slice as it runs among others.
 * ST_INPUT: the model cannot be divided so (model_config_split). *r stays where it is. End with ranks_close(), whatever
 * was returned; it closes models, backends and comms. */
status ranks_open(ranks *r, const model_config *c, const rank_layout *l, hosts *all, bool meet, f64 deadline_s, err *e);
void ranks_close(ranks *r);
/* A warning for each GPU: what its host is about at this moment. From any thread. */
void ranks_say_doing(const ranks *r);

/* Binds each rank's thread, and with it the team that computes for it, to its node of `nodes` [held]. Behind
 * ranks_open(), before anything runs. */
status ranks_bind(ranks *r, const numa_node *nodes, err *e);

/* Runs fn once for every rank of this process, all at a time, each in its own thread, and waits for all. A rank that
 * fails is named in the error, the lowest of several, and ends the group: the others are told, do not wait for it, and
 * every later call fails. ST_CANCELLED is no failure of its own: another rank's has ended what this one did. One thread
 * calls. Of several processes all have the first one's error, until they serve. */
typedef status (*rank_fn)(rank *self, void *ud, err *e);
status ranks_each(ranks *r, rank_fn fn, void *ud, err *e);

/* How long n ranks' threads on GPUs look for work before they sleep: not at all where the host has few processors. */
f64 ranks_spin_s(i64 n);
/* Once all backends are open: from here on they exchange what they compute. */
status ranks_connect(ranks *r, err *e);
/* Then, before models are planned: so many of them divide the KV cache's pages (kernels/context_parallel.h), 1: none
 * do. ST_UNSUPPORTED: these cannot, or GPUs exchange by NCCL. */
status ranks_divide_kv(ranks *r, i64 kv_ranks, err *e);
bool ranks_can_divide_kv(const ranks *r, i64 kv_ranks);

/* Of this process, the first rank of a stage, and how many of it are here. NULL, 0: none is. */
rank *ranks_of_stage(const ranks *r, i64 stage, i64 *n);
/* Process p's ranks of a stage: their places, to `to` - 1. */
row_range ranks_places(const ranks *r, i64 process, i64 stage);

/* Has every exchange so far been one? Else why not, whoever failed. For a rank_fn. */
status rank_finish(rank *self, err *e);

/* model_queue(), model_queue_draw() and model_collect() of all ranks; b's results are whole. */
status ranks_queue(ranks *r, const model_batch *b, err *e);
status ranks_queue_draw(ranks *r, const model_batch *b, err *e);
status ranks_collect(ranks *r, const model_batch *b, err *e);
/* draft_queue() and draft_collect() of all ranks. */
status ranks_queue_drafts(ranks *r, const draft_batch *b, err *e);
status ranks_collect_drafts(ranks *r, const draft_batch *b, err *e);
/* vision_begin() and vision_advance(), of its own items on each rank; at the end all have all rows, in the models'
 * media rows from `from` on. */
status ranks_begin_media(ranks *r, const vision_input *items, i64 n, i64 from, err *e);
status ranks_advance_media(ranks *r, i64 work, bool *done, err *e);
/* model_plan_moves() and model_move_experts() of all ranks; *out: of all stages that are in this process. */
status ranks_plan_moves(ranks *r, expert_moves *out, err *e);
status ranks_move_experts(ranks *r, i64 layer, err *e);
/* model_copy_kv() of all ranks. */
status ranks_copy_kv(ranks *r, const kv_pair *pairs, i64 n, err *e);
/* Memory for the results of batches up to these limits. */
status ranks_reserve(ranks *r, const model_limits *lim, err *e);

#endif
