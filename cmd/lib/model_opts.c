#include "cmd/lib/model_opts.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/simulate.h"
#include "kernels/backend.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BY_MPIRUN "processes are started by mpirun, which knows their hosts: mpirun -n N moonlet serve --nnodes N"
#define SPECULATIVE                                                                                                    \
    "not one of Moonlet's: serve, run and bench serving have --speculative-algorithm, -draft-model-path, "             \
    "-num-steps, -eagle-topk and -num-draft-tokens"
#define COMPILED    "kernels are compiled when Moonlet is built"
#define BY_SHAPE    "device, type and shape choose the kernel; measured choices: --tuned"
#define ONE_PROCESS "one process has one model: start several servers behind a proxy"

/* SGLang's and vLLM's, what concerns a model and where it runs. docs/guide/flags.md has every row. */
const opt_elsewhere model_elsewhere[] = {
    OPT_SAME("model-path", "model"),
    OPT_SAME("tp-size", "tp"),
    OPT_SAME("tensor-parallel-size", "tp"),
    OPT_SAME("-tp", "tp"),
    OPT_SAME("pp-size", "pp"),
    OPT_SAME("pipeline-parallel-size", "pp"),
    OPT_SAME("-pp", "pp"),
    OPT_SAME("decode-context-parallel-size", "dcp"),
    OPT_SAME("dcp-size", "dcp"),
    OPT_SAME("max-model-len", "context-length"),
    OPT_SAME("max-num-batched-tokens", "chunked-prefill-size"),
    OPT_SAME("enforce-eager", "disable-cuda-graph"),
    OPT_SAME("enable-deterministic-inference", "deterministic"),
    {"trust-remote-code", ELSEWHERE_NOTHING, false, NULL, "no code of a model's folder is ever run"},
    {"enable-torch-compile", ELSEWHERE_NOTHING, false, NULL, COMPILED},
    {"torch-compile-max-bs", ELSEWHERE_NOTHING, true, NULL, COMPILED},
    {"attention-backend", ELSEWHERE_NOTHING, true, NULL, BY_SHAPE},
    {"prefill-attention-backend", ELSEWHERE_NOTHING, true, NULL, BY_SHAPE},
    {"decode-attention-backend", ELSEWHERE_NOTHING, true, NULL, BY_SHAPE},
    {"moe-runner-backend", ELSEWHERE_NOTHING, true, NULL, BY_SHAPE},
    {"sampling-backend", ELSEWHERE_NOTHING, true, NULL, "there is one, and every device draws the same"},
    {"cuda-graph-max-bs", ELSEWHERE_NOTHING, true, NULL,
     "steps of up to 64 answers are recorded, by a server before it is ready"},
    {"speculative-*", ELSEWHERE_REFUSED, true, NULL, SPECULATIVE},
    {"dtype", ELSEWHERE_NOTHING, true, "auto", "the checkpoint says it"},
    {"dtype", ELSEWHERE_REFUSED, true, NULL,
     "the checkpoint says it, and --device ref computes in float32: leave it out"},
    {"quantization", ELSEWHERE_REFUSED, true, NULL,
     "the checkpoint says how its weights are kept: leave it out; --moe-format w4a8 or w2_bf16 changes routed experts"},
    {"json-model-override-args", ELSEWHERE_REFUSED, true, NULL, "write --override KEY=VALUE, once for each key"},
    {"hf-overrides", ELSEWHERE_REFUSED, true, NULL, "write --override KEY=VALUE, once for each key"},
    {"download-dir", ELSEWHERE_REFUSED, true, NULL, "nothing is downloaded: --model is a folder"},
    {"revision", ELSEWHERE_REFUSED, true, NULL, "nothing is downloaded: --model is a folder"},
    {"base-gpu-id", ELSEWHERE_REFUSED, true, NULL, "write --device cuda:N, or with --tp --gpus 0,1,... for each rank"},
    {"node-rank", ELSEWHERE_REFUSED, true, NULL, BY_MPIRUN},
    {"dist-init-addr", ELSEWHERE_REFUSED, true, NULL, BY_MPIRUN},
    OPT_SAME("ep-size", "ep"),
    OPT_SAME("expert-parallel-size", "ep"),
    {"enable-expert-parallel", ELSEWHERE_REFUSED, false, NULL, "write --ep N: with --tp N each rank has whole experts"},
    OPT_SAME("eplb", "enable-eplb"),
    {"eplb-algorithm", ELSEWHERE_NOTHING, true, NULL, "there is one: few moves from where experts are"},
    {"dp-size", ELSEWHERE_NOTHING, true, "1", "one process has one model"},
    {"dp-size", ELSEWHERE_REFUSED, true, NULL, ONE_PROCESS},
    {"data-parallel-size", ELSEWHERE_NOTHING, true, "1", "one process has one model"},
    {"data-parallel-size", ELSEWHERE_REFUSED, true, NULL, ONE_PROCESS},
    {"cpu-offload-gb", ELSEWHERE_NOTHING, true, "0", "nothing is offloaded"},
    {"cpu-offload-gb", ELSEWHERE_REFUSED, true, NULL, "weights lie on one device: leave it out, or --device cpu"},
};
const size_t n_model_elsewhere = COUNT_OF(model_elsewhere);

/* The first of `places` beside the executable that holds `file`; exe gets the executable's folder. */
static bool find_beside(const char *const *places, size_t n_places, const char *file, char exe[3072], char *out,
                        size_t cap) {
    char probe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, 3071);
    if (n < 0) n = 0;
    exe[n] = 0;
    char *slash = strrchr(exe, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < n_places; i++) {
        snprintf(probe, sizeof probe, "%s/%s/%s", exe, places[i], file);
        if (!file_exists(probe)) continue;
        if ((size_t)snprintf(out, cap, "%s/%s", exe, places[i]) < cap) return true;
    }
    return false;
}

const char *tuned_place(void) {
    static const char *const places[] = {"../tuned", "tuned", "../share/moonlet/tuned"};
    static char place[4096];
    char exe[3072];
    if (find_beside(places, COUNT_OF(places), "README.md", exe, place, sizeof place)) return place;
    log_once("tuned",
             "no tables of measured choices at %s/../tuned or ../share/moonlet/tuned: experts on a GPU "
             "run by the choices that are built in",
             exe);
    return "none";
}

status nano_dir(char *out, size_t cap, err *e) {
    static const char *const places[] = {"../models/nano", "models/nano", "../share/moonlet/nano"};
    char exe[3072];
    if (find_beside(places, COUNT_OF(places), "config.json", exe, out, cap)) return ST_OK;
    return err_set(e, ST_IO, "no nano model at %s/../models/nano or ../share/moonlet/nano: name a model with -m DIR",
                   exe);
}

/* "0 0 1 1" of separate words, or "0,0,1,1", as the latter. */
static const char *node_list(model_opts *o) {
    size_t n = 0;
    for (int i = 0; i < o->nodes.n && n < sizeof o->node_list; i++)
        n += (size_t)snprintf(o->node_list + n, sizeof o->node_list - n, "%s%s", i ? "," : "", o->nodes.items[i]);
    return o->node_list;
}

status model_opts_finish(model_opts *o, err *e) {
    static char nano[4096];
    if (hosts_started() > 1 && o->engine.nnodes < 2)
        return err_set(e, ST_INPUT,
                       "mpirun has started %lld of this: moonlet serve --nnodes %lld shares a model among them; else "
                       "start it without mpirun",
                       (long long)hosts_started(), (long long)hosts_started());
    o->engine.overrides = o->overrides.items;
    o->engine.n_overrides = o->overrides.n;
    o->engine.model_dir = o->model;
    if (o->eplb_interval && !o->eplb)
        return err_set(e, ST_INPUT, "--eplb-rebalance-num-iterations is for --enable-eplb");
    if (o->eplb) o->engine.eplb_steps = o->eplb_interval ? o->eplb_interval : EPLB_STEPS;
    if (o->nodes.n) o->engine.numa_node = node_list(o);
    if (!o->engine.tuned && backend_name_is_gpu(o->engine.device)) o->engine.tuned = tuned_place();
    if (o->model) return ST_OK;
    status st = nano_dir(nano, sizeof nano, e);
    o->engine.model_dir = nano;
    return st;
}

void model_opts_simulate(model_opts *o, i64 us) {
    static i64 ns;
    if (us < 0) return;
    ns = us * 1000;
    o->engine.step = simulated_step;
    o->engine.step_ud = &ns;
}

void model_opts_public(const model_opts *o, moon_options *out) {
    const engine_options *g = &o->engine;
    out->model_dir = g->model_dir;
    out->device = g->device;
    out->cpu_mask = g->cpu_mask;
    out->kv_cache_dtype = g->kv_dtype;
    out->threads = g->threads;
    out->context_length = g->context;
    out->prefill_chunk = g->chunk;
    out->load_format = g->load_format;
    out->moe_format = g->moe_format;
    out->tuned = g->tuned;
    out->verify = g->verify;
    out->overrides = g->overrides;
    out->n_overrides = g->n_overrides;
    out->disable_cuda_graph = g->eager;
    out->tp = g->tp;
    out->pp = g->pp;
    out->pp_layers = g->pp_layers;
    out->dcp = g->dcp;
    out->ep = g->ep;
    out->ep_num_redundant_experts = g->ep_redundant;
    out->init_expert_location = g->ep_placement;
    out->eplb_rebalance_num_iterations = g->eplb_steps;
    out->gpus = g->gpus;
    out->numa_node = g->numa_node;
    out->dist_timeout = g->dist_timeout;
    out->tp_slice = g->tp_slice;
    out->deterministic = g->deterministic;
    out->disable_fused = g->disable_fused;
    out->disable_custom_all_reduce = g->nccl;
    out->enable_dp_attention = g->dp_attention;
    out->language_model_only = g->language_only;
}
