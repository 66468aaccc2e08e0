#include "cmd/lib/model_opts.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/simulate.h"
#include "kernels/backend.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    o->engine.overrides = o->overrides.items;
    o->engine.n_overrides = o->overrides.n;
    o->engine.model_dir = o->model;
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
    out->gpus = g->gpus;
    out->numa_node = g->numa_node;
    out->dist_timeout = g->dist_timeout;
    out->tp_slice = g->tp_slice;
    out->deterministic = g->deterministic;
    out->disable_fused = g->disable_fused;
}
