/* moonlet.h: the public C API of Moonlet, an inference engine for Moonshot's Kimi-K2 family.
 *
 * Rules: a handle is used by one thread at a time. Strings are UTF-8, NUL-terminated, and stay the caller's.
 * Every function that can fail returns a moon_status and fills the moon_error, if one is given, with one line
 * that names what was wrong. Structs that the caller fills begin with their size, so that they can grow:
 * start from MOON_OPTIONS_INIT and MOON_REQUEST_INIT. Link with libmoonlet.a. */
#ifndef MOONLET_H
#define MOONLET_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    MOON_OK = 0,
    MOON_NOMEM,       /* out of memory */
    MOON_IO,          /* a file could not be read */
    MOON_FORMAT,      /* a file is not what it should be */
    MOON_INPUT,       /* an argument or a request is not valid */
    MOON_UNSUPPORTED, /* valid, but not supported */
    MOON_LIMIT,       /* does not fit: context, memory */
    MOON_NUMERIC,     /* NaN or infinity in the computation */
    MOON_DEVICE,      /* a device failed */
    MOON_CANCELLED    /* the callback asked to stop */
} moon_status;

typedef struct {
    moon_status status;
    char text[512];
} moon_error;

typedef struct moon_engine moon_engine; /* a loaded model */

typedef struct {
    size_t size;           /* sizeof(moon_options) */
    const char *model_dir; /* checkpoint folder */
    const char *device;    /* "cpu" (default), "ref", "cuda" or "cuda:N" */
    const char *cpu_mask;  /* highest instruction set: "none", "avx2", "avxvnni", "avx512", "vnni", "bf16"; NULL: all */
    const char *kv_cache_dtype;   /* "auto" (default), "fp32", "bf16", "fp8_e4m3" */
    const char *chat_template;    /* "k2.5", "k2.6", ...; NULL: what the model's folder says */
    int64_t threads;              /* 0: all cores, of a small model at most 8 */
    int64_t context_length;       /* tokens; 0: the model's maximum, at most 32768 */
    int64_t prefill_chunk;        /* tokens; 0: 512, 8192 on a GPU */
    const char *load_format;      /* "auto" (default), or "dummy": made-up weights on a GPU */
    int verify;                   /* scan quantization scales while loading */
    const char *const *overrides; /* "KEY=VALUE" for config.json */
    int n_overrides;
    int disable_cuda_graph; /* on a GPU decode steps are launched kernel by kernel */
    int64_t tp_slice;       /* T > 1: what the first of T GPUs hold (tp of them), of dummy weights, to measure speed */
    int deterministic;      /* equal bits alone and in a batch: always so on "ref" and "cpu", slower on "cuda" */
    const char *moe_format; /* "auto" (default), "w4a8" or "w2_bf16": how routed experts are kept */
    const char *tuned;      /* on a GPU: a table of measured choices, or a folder of them; NULL: none */
    int disable_fused;      /* on a GPU primitive operations alone, slower: to find out whether a fused one is wrong */
    int64_t tp;             /* ranks that share the model, each with its part of every matrix; 0, 1: one has all */
    int64_t dcp;      /* of these, ranks that divide the KV cache: 1: none, else tp; 0: a rule (docs/guide/ranks.md) */
    const char *gpus; /* with tp on "cuda": the GPU of each rank, "0,1"; NULL: the first ones */
    double dist_timeout;           /* seconds that a rank may wait for another; 0: 60 */
    const char *numa_node;         /* the NUMA node that each rank is bound to, "0,0,1,1", or "0" for all; NULL: none */
    int disable_custom_all_reduce; /* ranks on GPUs exchange by NVIDIA's NCCL, not by kernels of ours */
    int enable_dp_attention;       /* with tp: ranks attend for sequences of their own, with all heads */
    int language_model_only;       /* no vision tower is loaded: chats with pictures are refused */
    /* Most tokens that are proposed and checked in one step, by the EAGLE-3 draft of that folder or, without one, where
     * text repeats itself; 0: none. No answer depends on it. */
    int64_t draft_tokens;
    const char *draft_dir;
    /* Above 1: the draft guesses a tree, so many tokens at each of draft_steps steps (0: 3), of which draft_tokens are
     * checked. */
    int64_t draft_topk, draft_steps;
    int draft_optional;    /* where draft_dir has no draft that fits, nothing is proposed, and a warning says why */
    int64_t pp;            /* stages of tp ranks, each with layers of its own; 0, 1: one has all */
    const char *pp_layers; /* how many each has, "31,30"; NULL: as many */
    int64_t ep;            /* groups of the tp ranks, each with whole experts; 0, 1: every rank has a part of each */
    int64_t ep_num_redundant_experts;      /* with ep: slots for copies of experts, of all groups together */
    const char *init_expert_location;      /* with ep: a file that says which experts lie where (docs/guide/ranks.md) */
    int64_t eplb_rebalance_num_iterations; /* with ep: after so many steps experts move by how often they were chosen;
                                              0: they stay */
} moon_options;
#define MOON_OPTIONS_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(moon_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   \
            0, 0, 0, 0, 0, 0, 0, 0                                                                                     \
    }

/* Maps and checks the checkpoint and allocates everything that running needs. *out is NULL on failure; end it
 * with moon_close(), which takes NULL too. */
moon_status moon_open(moon_engine **out, const moon_options *options, moon_error *error);
void moon_close(moon_engine *engine);
/* One line about memory, KV cache and load time, and one about the chat template; owned by the engine. */
const char *moon_plan(const moon_engine *engine);
const char *moon_template(const moon_engine *engine);

typedef enum {
    MOON_REASONING, /* a piece of the model's thinking */
    MOON_CONTENT,   /* a piece of the answer */
    MOON_TOOL_CALL, /* a complete call: text is JSON {"id", "name", "arguments"} */
    MOON_TOKEN      /* raw mode: a piece of text as the model wrote it */
} moon_event;
/* text has `length` bytes and whole characters, valid during the call. Return nonzero to stop. */
typedef int (*moon_callback)(void *user, moon_event event, const char *text, size_t length);

typedef struct {
    size_t size; /* sizeof(moon_request) */
    /* What to answer: either a chat, JSON {"messages": [...], "tools": [...], "chat_template_kwargs": {...}}
     * as in the OpenAI API, or a raw prompt, encoded without special tokens. */
    const char *chat;
    const char *prompt;
    int64_t max_tokens;                                             /* 0: as many as the context holds */
    double temperature;                                             /* 0: greedy */
    int64_t top_k;                                                  /* 0: off */
    double top_p, min_p;                                            /* 1 and 0: off */
    double repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0 and 0: off */
    uint64_t seed;                                                  /* equal seeds and requests give equal text */
    int ignore_eos;                                                 /* go on to max_tokens */
    /* What the answer must be, behind its reasoning; at most one of them, NULL: anything (docs/guide/grammars.md).
     * Tools of the chat may be called all the same, with arguments that satisfy those which say "strict": true. */
    const char *json_schema; /* JSON: a schema, each of whose keywords is held or refused */
    const char *regex;       /* which it matches from beginning to end */
    const char *grammar;     /* llama.cpp's GBNF */
} moon_request;
#define MOON_REQUEST_INIT                                                                                              \
    { sizeof(moon_request), 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0 }

typedef struct {
    int64_t prompt_tokens, reused_tokens, output_tokens; /* reused: KV rows kept from the call before */
    double prompt_seconds, output_seconds;
    const char *finish; /* "stop", "length", "tool_calls" or "cancelled" */
} moon_stats;

/* Runs one request and streams the answer to the callback. MOON_CANCELLED when the callback stopped it;
 * stats, if given, are filled whenever the prompt was processed. */
moon_status moon_run(moon_engine *engine, const moon_request *request, moon_callback callback, void *user,
                     moon_stats *stats, moon_error *error);

const char *moon_version(void);

#ifdef __cplusplus
}
#endif
#endif
