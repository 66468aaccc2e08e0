/* runtime/engine.h: a loaded model with its KV pool, and token timelines that run on it.
 *
 * One thread at a time uses an engine and its sequences. */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H
#include "base/buf.h"
#include "device/hosts.h"
#include "model/draft.h"
#include "model/vision.h"
#include "runtime/sampler.h"

/* Takes the place of the model's forward pass (model/forward.h): fills b->logits [n_out, vocab] and b->bad [n]. For
 * tests, and for measuring what is around a step (runtime/simulate.h). */
typedef status (*engine_step_fn)(void *ud, const model_batch *b, i64 vocab, err *e);

/* Sees every batch with its results, among them the logits that came to the host. For checks. */
typedef void (*engine_seen_fn)(void *ud, const model_batch *b, i64 vocab);

/* What of a GPU weights and KV pool may take, unless mem_fraction says it. */
#define ENGINE_GPU_FRACTION 0.88

enum { EPLB_STEPS = 1000, EPLB_STEPS_MAX = 1 << 15 }; /* counts of rows must not wrap in 32 bits */

typedef struct {
    const char *model_dir;
    const char *device;      /* "ref", "cpu", "cuda", "cuda:N"; NULL: cpu */
    const char *cpu_mask;    /* instruction sets to allow; NULL: all */
    const char *kv_dtype;    /* "auto", "fp32", "bf16", "fp8_e4m3"; NULL: auto */
    i64 threads;             /* 0: all cores, of a small model at most 8 */
    i64 context;             /* tokens of KV; 0: the model's maximum, at most 32768 */
    i64 chunk;               /* most prompt tokens in one step; 0: 512 */
    const char *load_format; /* "auto", or "dummy": made-up weights of the real shapes, on a GPU; NULL: auto */
    const char *moe_format;  /* "auto", "w4a8" or "w2_bf16": how routed experts are kept; NULL: auto */
    const char *tuned;       /* a GPU: table of measured choices (kernels/gpu/moe/moe_tuned.h); NULL, "none": none */
    i64 tp;                  /* ranks that share every layer; 0, 1: one has all of it */
    i64 pp;                  /* stages of so many ranks, each with layers of its own; 0, 1: one has all */
    const char *pp_layers;   /* "31,30": how many each has; NULL: as many */
    i64 nnodes; /* processes that mpirun has started, each with as many of the ranks; 0, 1: this one has all */
    i64 dcp;    /* of these, ranks that divide the KV cache's pages: 1: none do, else tp; 0: runtime/kv_layout.h */
    i64 ep;     /* groups of the tp ranks, each with whole experts of its own; 0, 1: ranks have parts of all */
    i64 ep_redundant;         /* slots beside one for each expert, of all groups together, for copies */
    const char *ep_placement; /* which experts lie where (model/expert_placement.h); NULL: equal shares in order */
    i64 eplb_steps;           /* after so many steps experts move to where their rows are spread evenly; 0: they stay */
    bool dp_attention;        /* ranks attend for sequences of their own, with all heads (data-parallel attention) */
    const char *gpus;         /* "0,1": the GPU of each rank; NULL: the first ones */
    const char *numa_node;    /* "0,0,1,1": the NUMA node that each rank is bound to, or "0" for all; NULL: none */
    f64 dist_timeout;         /* seconds that a rank may wait for another; 0: 60 */
    i64 tp_slice;       /* T > 1: what the first of T GPUs hold (tp of them), of dummy weights; 0, 1: the whole model */
    bool disable_fused; /* a GPU: one operation after the other, none of kernels/fused.h */
    bool nccl;          /* ranks on GPUs exchange by NCCL, not by kernels of ours */
    bool eager;         /* a GPU: decode steps are not recorded as graphs */
    bool deterministic; /* equal requests get equal bits, alone and among others: so on ref and cpu but with dcp */
    bool profile;       /* times every kernel (a GPU only): engine_profile() */
    bool verify;        /* scan quantization scales */
    /* For a scheduler (runtime/scheduler.h); 0: the engine serves one sequence after the other. */
    i64 max_running; /* most sequences that run at a time */
    i64 kv_tokens;   /* tokens of the KV pool; 0: as many as mem_fraction leaves, but no more than max_running
                        contexts */
    /* weights and KV pool together take at most this share of the available memory; 0: 0.5 on a host, 0.88 of a GPU,
     * and at least one context */
    f64 mem_fraction;
    const char *const *overrides; /* "KEY=VALUE" for config.json */
    int n_overrides;
    /* An EAGLE-3 draft for a scheduler with scheduler_options.draft_tokens, of which it makes at most so many at a time
     * (model/draft.h); NULL: none. With dummy weights its weights are made up, too. */
    const char *draft_dir;
    bool draft_found;    /* beside the model, and nobody asked for it: where it cannot be used there is none, which a
                            warning says */
    i64 draft_steps;     /* 0: 3 */
    i64 draft_topk;      /* guesses at each step: 0, 1: a chain, else a tree of draft_nodes guesses at most */
    i64 draft_nodes;     /* of a tree */
    bool language_only;  /* no vision tower: pictures are refused */
    f64 pinned_accept;   /* > 0: the plan's line says that a scheduler pins the acceptance of drafts to it */
    engine_step_fn step; /* NULL: the model's */
    void *step_ud;
    engine_seen_fn after_step; /* NULL: nobody */
    void *after_ud;
} engine_options;

typedef struct engine engine;

/* What an operation took and what a kernel inside of it took, all of a phase together. */
enum { PROFILE_PREFILL, PROFILE_DECODE, PROFILE_PHASES, PROFILE_OPS = 64, PROFILE_KERNELS = 10 };
typedef struct {
    const char *kernel;
    i64 launches;
    f64 seconds;
} kernel_time;
typedef struct {
    const char *what; /* "linear 1536 x 7168"; NULL: launches outside of operations */
    i64 calls;
    f64 seconds, bytes, flops;            /* bytes and flops as kernels/gpu/op_cost.h counts them */
    kernel_time kernels[PROFILE_KERNELS]; /* the longest first */
    int n;
} op_time;
typedef struct {              /* a step with any prompt rows counts as prefill */
    op_time ops[PROFILE_OPS]; /* the longest first */
    int n;
    i64 steps, rows; /* tokens fed */
    i64 missed;      /* launches that were not timed */
} engine_phase;

/* Maps the checkpoint, plans the memory, loads. A plan that exceeds the machine's available memory is refused with
 * its numbers before any weight is read or anything is allocated. */
status engine_open(engine **out, const engine_options *o, err *e);
void engine_close(engine *g);
/* Of several processes all but the first, which leads, call engine_follow() when it is open: they compute what the
 * first one's engine is asked for until that closes, then close theirs. ST_OK: it closed in order. */
bool engine_follows(const engine *g);
status engine_follow(engine *g, err *e);
/* ST_OK, or why the processes are no group any more. */
status engine_check(engine *g, err *e);
/* Do all processes answer, within so many seconds? If not, they are no group any more. */
status engine_roll_call(engine *g, f64 seconds, err *e);
i64 engine_processes(const engine *g);
hosts_counts engine_hosts_counted(engine *g);
const model_config *engine_config(const engine *g);
const ops *engine_ops(const engine *g);
i64 engine_context(const engine *g);   /* tokens */
i64 engine_chunk(const engine *g);     /* most tokens of a prompt in one step */
i64 engine_kv_tokens(const engine *g); /* of the pool */
/* One line for a person: weights, KV, activations, context, load time. */
const char *engine_plan(const engine *g);
/* From here on every launch is timed, as with options.profile. ST_UNSUPPORTED without a GPU. */
status engine_profile_start(engine *g, err *e);
/* Forgets what was counted so far. */
void engine_profile_clear(engine *g);
/* Sorted; NULL without options.profile. For the thread that runs the engine, or when it rests. */
const engine_phase *engine_profile(engine *g, int phase);
/* Shows fn each timed launch (device/gpu.h) behind its step, in their order; NULL: no more. Behind
 * engine_profile_start(). */
struct gpu_time;
void engine_profile_launches(engine *g, void (*fn)(void *ud, const struct gpu_time *t), void *ud);
bool engine_on_gpu(const engine *g);
void engine_say_doing(const engine *g); /* ranks_say_doing() */
i64 engine_ranks(const engine *g);      /* that share the model: those of a stage, times the stages */
i64 engine_stages(const engine *g);
i64 engine_expert_groups(const engine *g);       /* that have whole experts each; 1: every rank has parts of all */
i64 engine_kv_ranks(const engine *g);            /* that divide the KV cache; 1: each has all of it */
i64 engine_sequence_ranks(const engine *g);      /* that have sequences of their own; 1: all attend for each */
i64 engine_numa_node(const engine *g, i64 rank); /* -1: it is not bound to one */
bool engine_deterministic(const engine *g);      /* options.deterministic, or a device where it always holds, if the KV
                                                    cache is not divided */
i64 engine_draft_steps(const engine *g);         /* most tokens that its draft guesses at a time; 0: it has none */
bool engine_draft_left_out(const engine *g);     /* it was found, and cannot be used: options.draft_found */
i64 engine_draft_nodes(const engine *g);         /* of these and of their alternatives, most in a step */
const vision_config *engine_vision(const engine *g); /* of its tower; NULL: it has none */
i64 engine_vision_patches(const engine *g);          /* most of an item */
bool engine_simulated(const engine *g);              /* the model computes nothing: engine_options.step */

/* One token timeline and the KV rows of its first tokens. */
typedef struct seq seq;
status seq_open(seq **out, engine *g, err *e);
void seq_close(seq *s);
/* From here on w sees what experts are given (model/forward.h), up to engine_chunk() rows at a time; NULL: nobody. */
void seq_watch(seq *s, const expert_watch *w);
i64 seq_len(const seq *s); /* tokens whose KV rows are written */
const i32 *seq_tokens(const seq *s);

/* Called for rows whose logits were asked for: `index` is the position of the token that was fed, logits
 * [vocab] may be changed. Returning anything but ST_OK ends the run with it. */
typedef status (*seq_logits_fn)(void *ud, i64 index, f32 *logits, err *e);

typedef enum { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL } seq_logits;

/* Appends ids to the timeline, in chunks; `absorbed` selects the decode form of attention. ST_NUMERIC names
 * the layer where a NaN or infinity appeared; the tokens from that chunk on are dropped again. ST_LIMIT:
 * context full. */
status seq_run(seq *s, const i32 *ids, i64 n, bool absorbed, seq_logits want, seq_logits_fn fn, void *ud, err *e);
/* Keeps the first n tokens. */
void seq_truncate(seq *s, i64 n);
#endif
