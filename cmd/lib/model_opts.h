/* cmd/lib/model_opts.h: the options that every command that loads a model shares. */
#ifndef CMD_LIB_MODEL_OPTS_H
#define CMD_LIB_MODEL_OPTS_H
#include "base/opt.h"
#include "moonlet.h"
#include "runtime/engine.h"

typedef struct {
    engine_options engine;
    const char *model;
    opt_list overrides, nodes;
    bool eplb;
    i64 eplb_interval;
    char node_list[512]; /* of `nodes`: what engine.numa_node points to */
} model_opts;

/* What users of other engines write for these (MODEL_OPTS has them). */
extern const opt_elsewhere model_elsewhere[];
extern const size_t n_model_elsewhere;

/* Entries for an opt_spec table; `o` is a model_opts. */
/* clang-format off */
#define MODEL_OPTS(o) \
    OPT_ELSEWHERE(model_elsewhere, n_model_elsewhere), \
    OPT_GROUP("Model"), \
    {"model", 'm', OPT_STR, &(o).model, "DIR", \
     "checkpoint folder (default: the nano model that comes along)", 0, 0}, \
    {"override", 0, OPT_LIST, &(o).overrides, "KEY=VALUE", \
     "changes a key of config.json; may be repeated", 0, 0}, \
    {"context-length", 'c', OPT_INT, &(o).engine.context, "N", \
     "tokens of KV cache (default: the model's maximum, at most 32768)", 1, 1e9}, \
    {"kv-cache-dtype", 0, OPT_ENUM, &(o).engine.kv_dtype, "auto|fp32|bf16|fp8_e4m3", \
     "type of the KV cache (default: auto, that of the activations)", 0, 0}, \
    {"load-format", 0, OPT_ENUM, &(o).engine.load_format, "auto|dummy", \
     "dummy: made-up weights of config.json's shapes, on a GPU, to measure speed (default: auto)", 0, 0}, \
    {"moe-format", 0, OPT_ENUM, &(o).engine.moe_format, "auto|w4a8|w2_bf16", \
     "routed experts: INT4 with int8 activations (on GPUs at many tokens), or down in bf16 (default: auto)", 0, 0}, \
    {"tp-slice", 0, OPT_INT, &(o).engine.tp_slice, "T", \
     "dummy weights of T tensor-parallel GPUs' first N (--tp N), to measure speed; with --tp 1 it exchanges with " \
     "itself, without --tp with nobody", 1, 1024}, \
    {"language-model-only", 0, OPT_FLAG, &(o).engine.language_only, NULL, \
     "loads no vision tower: pictures are refused", 0, 0}, \
    {"verify", 0, OPT_FLAG, &(o).engine.verify, NULL, \
     "scans quantization scales for NaN while loading (reads them all)", 0, 0}, \
    OPT_GROUP("Device"), \
    {"device", 'd', OPT_ENUM, &(o).engine.device, "ref|cpu|cuda|cuda:N", \
     "ref: plain C, the definition of correct; cuda: one NVIDIA H100 or H200, N of several (default: cpu)", 0, 0}, \
    {"tp", 0, OPT_INT, &(o).engine.tp, "N", \
     "tensor parallelism: N ranks, each with its share of every matrix (default: 1)", 1, 64}, \
    {"pp", 0, OPT_INT, &(o).engine.pp, "N", \
     "pipeline parallelism: N stages of --tp ranks, each with layers of its own (default: 1)", 1, 64}, \
    {"pp-layers", 0, OPT_STR, &(o).engine.pp_layers, "LIST", \
     "with --pp: how many layers each stage has, as 31,30 (default: as many)", 0, 0}, \
    {"dcp", 0, OPT_INT, &(o).engine.dcp, "N", \
     "decode context parallelism: the N ranks of --tp divide the KV cache among them; 1: none do (default: " \
     "a rule, docs/guide/ranks.md)", 1, \
     64}, \
    {"ep", 0, OPT_INT, &(o).engine.ep, "N", \
     "expert parallelism: the ranks of --tp as N groups, each with whole experts of its own (default: 1, every rank " \
     "has a part of each expert)", 1, 64}, \
    {"ep-num-redundant-experts", 0, OPT_INT, &(o).engine.ep_redundant, "R", \
     "with --ep: slots for second copies of experts, of all groups together (default: 0)", 0, 1 << 20}, \
    {"init-expert-location", 0, OPT_STR, &(o).engine.ep_placement, "FILE", \
     "with --ep: which experts lie where, or how often each was chosen, as JSON (default: equal shares in order)", 0, \
     0}, \
    {"enable-eplb", 0, OPT_FLAG, &(o).eplb, NULL, \
     "with --ep: experts move between steps to where each group has as many rows, by how often each was chosen", 0, 0}, \
    {"eplb-rebalance-num-iterations", 0, OPT_INT, &(o).eplb_interval, "N", \
     "with --enable-eplb: after every N steps (default: 1000)", 1, EPLB_STEPS_MAX}, \
    {"enable-dp-attention", 0, OPT_FLAG, &(o).engine.dp_attention, NULL, \
     "with --tp: each rank attends, with all heads, for sequences of its own", 0, 0}, \
    {"gpus", 0, OPT_STR, &(o).engine.gpus, "LIST", \
     "with --tp and --device cuda: the GPU of each rank, as 0,1; one that stands there twice is divided " \
     "(default: the first N)", 0, 0}, \
    {"disable-custom-all-reduce", 0, OPT_FLAG, &(o).engine.nccl, NULL, \
     "with --tp and --device cuda: ranks exchange by NVIDIA's NCCL, not by Moonlet's own kernels", 0, 0}, \
    {"numa-node", 0, OPT_NUMBERS, &(o).nodes, "N ...", \
     "binds each rank's thread and memory to a NUMA node: a number, or one for each rank (default: none)", 0, 0}, \
    {"dist-timeout", 0, OPT_REAL, &(o).engine.dist_timeout, "SECONDS", \
     "with --tp: how long a rank waits for another before all end (default: 60)", 0.001, 1e6}, \
    {"threads", 't', OPT_INT, &(o).engine.threads, "N", \
     "CPU threads, of all ranks together (default: 0, all cores, of a small model at most 8)", 0, 4096}, \
    {"cpu-mask", 0, OPT_ENUM, &(o).engine.cpu_mask, "none|avx2|avxvnni|avx512|vnni|bf16|noamx|all", \
     "highest instruction set to use (default: all)", 0, 0}, \
    {"chunked-prefill-size", 0, OPT_INT, &(o).engine.chunk, "N", \
     "most prompt tokens in one step (default: 512, on a GPU 8192)", 1, 65536}, \
    {"deterministic", 0, OPT_FLAG, &(o).engine.deterministic, NULL, \
     "a request alone and in a batch gives the same bits (always so on ref and cpu but with --dcp; cuda is slower)", 0, 0}, \
    {"tuned", 0, OPT_STR, &(o).engine.tuned, "FILE", \
     "cuda: table of measured choices for kernels, or none (default: the one that comes along)", 0, 0}, \
    {"disable-cuda-graph", 0, OPT_FLAG, &(o).engine.eager, NULL, \
     "cuda: decode steps are launched kernel by kernel, not as recorded graphs", 0, 0}, \
    {"disable-fused", 0, OPT_FLAG, &(o).engine.disable_fused, NULL, \
     "cuda: primitive operations alone, slower: to find out whether a fused one is wrong", 0, 0}

/* For the commands that can do without a model's arithmetic; `us` is an i64 that begins as -1. */
#define SIMULATE_OPT(us) \
    {"simulate-step", 0, OPT_INT, &(us), "US", \
     "nothing is computed: a step takes US microseconds and yields made-up tokens (to measure the rest)", 0, 1e9}
/* clang-format on */
/* us >= 0: the engine simulates its steps. */
void model_opts_simulate(model_opts *o, i64 us);

/* Fills in what follows from the parsed options: the model's folder and the overrides. */
status model_opts_finish(model_opts *o, err *e);
/* The same for moon_open(); everything it does not set stays. */
void model_opts_public(const model_opts *o, moon_options *out);
/* The folder with the tables of measured choices, found as nano is; without one a notice, and "none". */
const char *tuned_place(void);
/* The folder of the nano model: beside the executable, then under the installation. */
status nano_dir(char *out, size_t cap, err *e);

#endif
