#include "runtime/engine_internal.h"
#include "model/kv_scales.h"
#include "base/log.h"
#include "kernels/gpu/gpu.h"
#include "runtime/follow.h"
#include "runtime/kv_layout.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 32768, DEFAULT_CHUNK = 512, GPU_CHUNK = 8192, REPLAY_ROWS = 64, PREFILL_SPANS = 32 };

static const f64 DEFAULT_MEM_FRACTION = 0.5;
static const u64 GPU_RESERVE = 500000000; /* docs/guide/gpu.md says what for */

/* Ranks that exchange, with those that a slice plays. */
static i64 ranks_meant(const engine_options *o) { return max_i64(o->tp && o->tp_slice ? o->tp_slice : o->tp, 1); }

/* Options of one kind of device that were given for another. */
static status check_device_options(const engine_options *o, const char *name, bool on_gpu, err *e) {
    const bool several = o->tp > 1 || o->pp > 1;
    if (o->nnodes > 1 && o->tp < 2 && o->pp < 2)
        return err_set(e, ST_INPUT, "--nnodes %lld is for --tp and --pp: processes share a model by its ranks",
                       (long long)o->nnodes);
    if (o->pp_layers && o->pp < 2) return err_set(e, ST_INPUT, "--pp-layers is for --pp");
    if (o->pp > 1 && o->tp_slice) return err_set(e, ST_INPUT, "--pp does not go with --tp-slice");
    if (max_i64(o->tp, 1) * max_i64(o->pp, 1) > COMM_RANKS_MAX)
        return err_set(e, ST_INPUT, "--tp %lld and --pp %lld: at most %d ranks", (long long)o->tp, (long long)o->pp,
                       COMM_RANKS_MAX);
    if (o->ep < 2 && (o->ep_redundant || o->ep_placement))
        return err_set(e, ST_INPUT, "%s is for --ep",
                       o->ep_placement ? "--init-expert-location" : "--ep-num-redundant-experts");
    if (o->eplb_steps && o->step) return err_set(e, ST_INPUT, "--enable-eplb does not go with --simulate-step");
    if (o->eplb_steps && o->ep < 2) return err_set(e, ST_INPUT, "--enable-eplb is for --ep");
    if (o->ep > 1 && ranks_meant(o) % o->ep)
        return err_set(e, ST_INPUT, "--ep %lld with --tp%s %lld: the ranks cannot be divided so", (long long)o->ep,
                       o->tp && o->tp_slice ? "-slice" : "", (long long)ranks_meant(o));
    if (o->nnodes > 1 && (o->tp_slice || o->step))
        return err_set(e, ST_INPUT, "--nnodes does not go with %s", o->step ? "--simulate" : "--tp-slice");
    if (o->eager && !on_gpu) return err_set(e, ST_INPUT, "--disable-cuda-graph is for --device cuda");
    if (o->disable_fused && !on_gpu) return err_set(e, ST_INPUT, "--disable-fused is for --device cuda");
    if (o->tuned && !on_gpu) return err_set(e, ST_INPUT, "--tuned is for --device cuda");
    if (o->cpu_mask && strcmp(name, "cpu")) return err_set(e, ST_INPUT, "--cpu-mask is for --device cpu");
    if (o->gpus && (!on_gpu || !several)) return err_set(e, ST_INPUT, "--gpus is for --device cuda with --tp or --pp");
    if (o->nccl && (!on_gpu || (!several && !(o->tp && o->tp_slice))))
        return err_set(e, ST_INPUT, "--disable-custom-all-reduce is for --device cuda with --tp: leave it out");
    if (several && on_gpu && name[4])
        return err_set(e, ST_INPUT, "--device %s with --%s: --gpus says which GPUs", name, o->tp > 1 ? "tp" : "pp");
    if (o->tp_slice && o->tp > o->tp_slice)
        return err_set(e, ST_INPUT, "--tp %lld with --tp-slice %lld: so many of the slice's ranks do not exist",
                       (long long)o->tp, (long long)o->tp_slice);
    if (o->dcp > 1 && o->dcp != ranks_meant(o))
        return err_set(e, ST_INPUT,
                       "--dcp %lld with --tp%s %lld: all ranks divide the KV cache among them, or none does",
                       (long long)o->dcp, o->tp && o->tp_slice ? "-slice" : "", (long long)ranks_meant(o));
    if (o->dp_attention && (o->dcp > 1 || ranks_meant(o) < 2))
        return err_set(e, ST_INPUT,
                       o->dcp > 1 ? "--enable-dp-attention and --dcp do not go together"
                                  : "--enable-dp-attention is for --tp");
    if (o->dp_attention && ranks_meant(o) > KV_SHARES_MAX)
        return err_set(e, ST_INPUT, "--enable-dp-attention with %lld ranks: at most %d", (long long)ranks_meant(o),
                       KV_SHARES_MAX);
    if (o->dcp > 1 && o->deterministic)
        return err_set(e, ST_UNSUPPORTED,
                       "--deterministic with --dcp %lld: how a sequence's sums round would hang on "
                       "the ranks that its KV pages happen to lie on",
                       (long long)o->dcp);
    return ST_OK;
}

typedef struct {
    backend_options options;
    const char *tuned;
    i64 ranks, gpus[COMM_RANKS_MAX]; /* of this host: the GPU of each of several ranks; one that stands there twice is
                                        divided */
    i64 first;                       /* of these, that of this process's first rank */
} backend_wish;

/* --gpus 0,1,..: a number for each of n ranks; without it the first n. */
static status choose_gpus(const engine_options *o, i64 n, i64 gpus[], err *e) {
    const char *at = o->gpus;
    for (i64 r = 0; r < n; r++) {
        char *end = NULL;
        gpus[r] = at ? strtol(at, &end, 10) : r;
        if (at && (end == at || *end != (r + 1 < n ? ',' : 0) || gpus[r] < 0 || gpus[r] > 63))
            return err_set(e, ST_INPUT, "--gpus %s: %lld numbers of GPUs are wanted, as 0,1", o->gpus, (long long)n);
        if (at) at = end + 1;
    }
    return ST_OK;
}

static status open_backend(rank *k, void *ud, err *e) {
    const backend_wish *w = ud;
    backend_options options = w->options;
    gpu_part part;
    k->sharing = w->ranks;
    if (w->ranks > 1 && backend_name_is_gpu(options.name)) {
        part = gpu_part_of(w->gpus, w->ranks, w->first + k->slot);
        options.gpu = &part;
        k->sharing = part.shares;
    }
    status st = backend_open(&k->backend, &options, e);
    if (st != ST_OK || !k->backend.gpu) return st;
    return ops_gpu_tuned(&k->backend.ops, w->tuned, e) == ST_OK ? ST_OK : err_prefix(e, "--tuned");
}

static f64 deadline_of(const engine_options *o) { return o->dist_timeout > 0 ? o->dist_timeout : COMM_DEADLINE_S; }

static status choose_layout(engine *g, const engine_options *o, err *e) {
    rank_layout *l = &g->layout;
    *l = (rank_layout){.tp = max_i64(o->tp, 1), .pp = max_i64(o->pp, 1)};
    return model_divide_layers(g->config.n_layers, l->pp, o->pp_layers, "--pp", l->layers, e);
}

static i64 context_length_of(const engine *g, const engine_options *o) {
    return o->context ? o->context : min_i64(g->config.max_positions, DEFAULT_CONTEXT);
}

/* Most tokens of prompts in a step. */
static i64 chunk_of(const engine *g, const engine_options *o) {
    const i64 wanted = o->chunk ? o->chunk : backend_name_is_gpu(o->device) ? GPU_CHUNK : DEFAULT_CHUNK;
    return min_i64(wanted, ceil_div(context_length_of(g, o), KV_PAGE) * KV_PAGE);
}

/* Most rows in decode form in a step that is scheduled: a sequence that was preempted runs its own tokens again so:
 * some rows for that beside one for each of the others. */
static i64 decode_rows_of(const engine_options *o) { return o->max_running ? o->max_running + REPLAY_ROWS : 0; }

/* The ranks with their backends, and the host's threads among them. */
static status choose_backend(engine *g, const engine_options *o, err *e) {
    const char *name = o->device ? o->device : "cpu";
    backend_wish w = {
        .options = {.name = name, .act = DT_F32, .isa = ISA_ALL, .disable_fused = o->disable_fused},
        .tuned = o->tuned,
    };
    g->lim.eager = o->eager;
    g->lim.deterministic = o->deterministic;
    status st = check_device_options(o, name, backend_name_is_gpu(name), e);
    if (st == ST_OK && o->cpu_mask) st = cpu_isa_parse(o->cpu_mask, &w.options.isa, e);
    if (st == ST_OK && strcmp(name, "ref")) st = bind_activation_type(&g->config, g->ck, &w.options.act, e);
    if (st == ST_OK) st = choose_layout(g, o, e);
    if (st == ST_OK)
        st = ranks_open(&g->ranks, &g->config, &g->layout, g->hosts, o->tp == 1 && o->tp_slice > 1, deadline_of(o), e);
    if (st != ST_OK) return st;
    const i64 n = g->ranks.n;
    w.ranks = g->ranks.held * (g->hosts ? hosts_here(g->hosts) : 1);
    w.first = g->hosts ? hosts_place(g->hosts) * g->ranks.held : 0;
    g->ranks.nccl = o->nccl, g->ranks.ordered = o->deterministic;
    g->ranks.rows = chunk_of(g, o) + decode_rows_of(o) + engine_draft_rows(g, o->max_running);
    if (n > 1 && backend_name_is_gpu(name)) st = choose_gpus(o, w.ranks, w.gpus, e);
    if (st == ST_OK) st = engine_divide_threads(g, o, w.ranks, e);
    if (st == ST_OK) st = ranks_each(&g->ranks, open_backend, &w, e);
    return st == ST_OK ? ranks_connect(&g->ranks, e) : st;
}

/* auto: bf16 beside bf16 activations, float32 for ref and for FP32 checkpoints. */
static status choose_kv(engine *g, const char *name, err *e) {
    static const struct {
        const char *name;
        dtype type;
    } types[] = {{"fp32", DT_F32}, {"bf16", DT_BF16}, {"fp8_e4m3", DT_F8_E4M3}};
    g->lim.kv_type = engine_backend(g)->ops.act;
    if (!name || !strcmp(name, "auto")) return ST_OK;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (!strcmp(name, types[i].name)) return g->lim.kv_type = types[i].type, ST_OK;
    return err_set(e, ST_INPUT, "--kv-cache-dtype %s is not auto, fp32, bf16 or fp8_e4m3", name);
}

/* A user of FP8 learns that the checkpoint's scales for it are not used; broken ones are an error for all. */
static status check_kv_scales(const engine *g, err *e) {
    kv_scales s;
    if (!g->ck) return ST_OK;
    const status st = kv_scales_read(&s, &g->config, g->ck, e);
    if (st == ST_OK && s.n && g->lim.kv_type == DT_F8_E4M3)
        log_warn(
            "%lld of %lld layers have a scale for an FP8 KV cache (%g to %g), which is not used: latents are kept in "
            "e4m3 as they are",
            (long long)s.n, (long long)g->config.n_layers, (f64)s.least, (f64)s.most);
    return st;
}

/* Ranges of the numbers; upper ends keep every count of rows and of (row, expert) pairs in 32 bits. */
static status engine_check_options(const engine_options *o, err *e) {
    const struct {
        const char *name;
        i64 v, hi;
    } all[] = {{"--threads", o->threads, 4096},
               {"--tp", o->tp, COMM_RANKS_MAX},
               {"--pp", o->pp, STAGES_MAX},
               {"--nnodes", o->nnodes, HOSTS_MOST},
               {"--dcp", o->dcp, COMM_RANKS_MAX},
               {"--ep", o->ep, COMM_RANKS_MAX},
               {"--ep-num-redundant-experts", o->ep_redundant, 1 << 20},
               {"--eplb-rebalance-num-iterations", o->eplb_steps, EPLB_STEPS_MAX},
               {"--tp-slice", o->tp_slice, 1024},
               {"--context-length", o->context, INT32_MAX},
               {"--chunked-prefill-size", o->chunk, 65536},
               {"--max-running-requests", o->max_running, 65536},
               {"--max-total-tokens", o->kv_tokens, (i64)INT32_MAX * KV_PAGE}};
    if (!(o->mem_fraction >= 0 && o->mem_fraction <= 1))
        return err_set(e, ST_INPUT, "--mem-fraction-static is %g, outside 0..1 (0: the default)", o->mem_fraction);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i].v < 0 || all[i].v > all[i].hi)
            return err_set(e, ST_INPUT, "%s is %lld, outside 0..%lld (0: the default)", all[i].name,
                           (long long)all[i].v, (long long)all[i].hi);
    return ST_OK;
}

static const model_memory *memory_of(const engine *g, i64 rank) { return model_memory_plan(g->ranks.of[rank].model); }

/* Of a rank: the model's weights, its draft's and its vision tower's. */
static u64 weights_of(const engine *g, i64 rank) {
    const model_memory *m = memory_of(g, rank);
    const draft *guesses = g->ranks.of[rank].draft;
    const model_memory *d = guesses ? draft_memory_plan(guesses) : NULL;
    const vision *tower = g->ranks.of[rank].vision;
    const model_memory *v = tower ? vision_memory_plan(tower) : NULL;
    return m->weights.mapped + m->weights.own + (d ? d->weights.mapped + d->weights.own : 0) +
           (v ? v->weights.mapped + v->weights.own : 0);
}

/* The share of its memory that a rank's weights and KV pool may take. */
static f64 static_share(const engine *g, const engine_options *o) {
    if (o->mem_fraction > 0) return o->mem_fraction;
    return engine_backend(g)->gpu ? ENGINE_GPU_FRACTION : DEFAULT_MEM_FRACTION;
}

/* KV pages that fit the ranks beside their weights, where so many divide the model's; of a draft each has all pages, of
 * its own heads where the layout has keys for each. */
static f64 pages_that_fit(const engine *g, const engine_options *o, i64 kv_ranks) {
    const f64 bytes = static_share(g, o) * (f64)g->lim.memory_max - (f64)g->most_weights;
    const u64 draft = g->has_draft ? draft_kv_bytes(&g->ranks.of[0].draft_config, 1, g->lim.kv_type) : 0;
    model_config widest = g->config; /* the stage with most layers: all have as many pages */
    widest.n_layers = 0;
    for (i64 s = 0; s < g->layout.pp; s++) widest.n_layers = max_i64(widest.n_layers, g->layout.layers[s]);
    return fmax(bytes, 0) / ((f64)model_kv_bytes(&widest, 1, g->lim.kv_type) / (f64)kv_ranks + (f64)draft);
}

static status choose_kv_ranks(engine *g, const engine_options *o, err *e) {
    const kv_layout_wish w = {.ranks = ranks_meant(o),
                              .asked = o->dcp,
                              .gpus = engine_backend(g)->gpu,
                              .deterministic = o->deterministic,
                              .divisible = ranks_can_divide_kv(&g->ranks, ranks_meant(o)),
                              .wanted = o->kv_tokens ? o->kv_tokens : o->context * max_i64(o->max_running, 1),
                              .room = (i64)pages_that_fit(g, o, 1) * KV_PAGE};
    char why[160];
    if (o->dp_attention) {
        g->lim.kv.ranks = ranks_meant(o), g->lim.kv.by_sequence = true;
        return ST_OK;
    }
    g->lim.kv.ranks = kv_layout_choose(&w, why);
    if (why[0]) log_note("%s", why);
    return ranks_divide_kv(&g->ranks, g->lim.kv.ranks, e);
}

/* The pool of an engine that runs several sequences. */
static status choose_pool(engine *g, const engine_options *o, err *e) {
    const i64 apart = engine_sequence_ranks(g); /* each has as many pages */
    i64 most = g->lim.seq_pages * ceil_div(o->max_running, apart) * apart;
    if (o->kv_tokens) {
        g->lim.pool_pages = ceil_div(ceil_div(o->kv_tokens, KV_PAGE), apart) * apart;
        return ST_OK;
    }
    const f64 pages = pages_that_fit(g, o, g->lim.kv.ranks) - (f64)(g->lim.branch_pages * g->lim.kv.ranks);
    if (pages < (f64)apart && o->mem_fraction > 0)
        return err_set(e, ST_LIMIT,
                       "--mem-fraction-static %g of %.1f GB available leaves no room beside %.1f GB of weights",
                       o->mem_fraction, (f64)g->lim.memory_max * 1e-9, (f64)g->most_weights * 1e-9);
    g->lim.pool_pages = pages < (f64)most ? (i64)pages / apart * apart : most;
    if (o->mem_fraction <= 0) g->lim.pool_pages = max_i64(g->lim.pool_pages, g->lim.seq_pages * apart);
    return ST_OK;
}

static status refuse_weights(const engine *g, const rank *k, u64 weights, err *e) {
    char all[BYTES_TEXT], there[BYTES_TEXT];
    err_set(e, ST_LIMIT,
            "%s of weights do not fit in the %s that %s has free: --override num_hidden_layers=N takes the first N "
            "layers alone",
            bytes_text(all, weights), bytes_text(there, k->memory), k->backend.device->name);
    return g->ranks.n > 1 ? err_prefix(e, "rank %lld", (long long)k->index) : e->code;
}

typedef struct {
    u64 memory, most, all; /* what a rank may have; weights of the rank that has most, and of all */
} plan_memory;

/* Of the ranks of all processes, from those of this one. */
static status share_plan_memory(const engine *g, plan_memory *m, err *e) {
    plan_memory of[HOSTS_MOST];
    const plan_memory mine = *m;
    if (!g->hosts) return ST_OK;
    status st = hosts_share(g->hosts, "planning memory", &mine, of, sizeof mine, e);
    for (i64 p = 0; st == ST_OK && p < hosts_count(g->hosts); p++) {
        if (p == hosts_self(g->hosts)) continue;
        m->memory = of[p].memory < m->memory ? of[p].memory : m->memory;
        m->most = of[p].most > m->most ? of[p].most : m->most;
        m->all += of[p].all;
    }
    return st;
}

/* What each rank may have, and so all. Weights that are copied to a GPU take their memory before anything else does. */
static status set_memory(engine *g, err *e) {
    plan_memory m = {.memory = UINT64_MAX};
    g->lim.reserve = engine_backend(g)->gpu ? GPU_RESERVE : 0;
    for (i64 r = 0; r < g->ranks.held; r++) {
        rank *k = &g->ranks.of[r];
        const u64 weights = weights_of(g, r);
        k->memory = k->backend.device->available(k->backend.device) / (u64)k->sharing;
        if (!k->backend.gpu && g->ranks.bound && g->node_memory < k->memory) k->memory = g->node_memory;
        if (k->backend.gpu && weights >= k->memory) return refuse_weights(g, k, weights, e);
        m.memory = k->memory < m.memory ? k->memory : m.memory;
        m.most = weights > m.most ? weights : m.most;
        m.all += weights;
    }
    const status st = share_plan_memory(g, &m, e);
    g->lim.memory_max = m.memory, g->most_weights = m.most, g->all_weights = m.all;
    return st;
}

static status set_limits(engine *g, const engine_options *o, err *e) {
    const model_config *c = &g->config;
    const i64 context = context_length_of(g, o);
    if (context > c->max_positions)
        return err_set(e, ST_LIMIT, "--context-length %lld: the model goes to %lld tokens", (long long)context,
                       (long long)c->max_positions);
    g->context = context;
    status st = set_memory(g, e);
    if (st == ST_OK) st = choose_kv_ranks(g, o, e);
    if (st != ST_OK) return st;
    g->lim.seq_pages = ceil_div(context, KV_PAGE);
    g->lim.pool_pages = g->lim.seq_pages * engine_sequence_ranks(g);
    g->chunk = chunk_of(g, o);
    g->lim.rows = g->chunk;
    g->lim.counts_experts = o->eplb_steps > 0;
    g->balance = (engine_balance){.every = o->eplb_steps, .layer = -1, .layers = c->n_layers};
    g->lim.decode_rows = min_i64(g->lim.rows, 64);
    g->lim.prefill_spans = 1;
    g->lim.logit_rows = LOGIT_ROWS;
    g->lim.logit_rows = ceil_div(g->lim.logit_rows, g->ranks.tp) * g->ranks.tp;
    if (!o->max_running) return ST_OK;
    g->max_running = o->max_running;
    g->lim.decode_rows = decode_rows_of(o);
    g->lim.rows = g->chunk + g->lim.decode_rows;
    g->lim.prefill_spans = min_i64(o->max_running, PREFILL_SPANS);
    g->lim.logit_rows = ceil_div(o->max_running + LOGIT_ROWS, g->ranks.tp) * g->ranks.tp;
    engine_draft_limits(g);
    engine_vision_limits(g);
    st = choose_pool(g, o, e);
    return st == ST_OK ? engine_draft_branches(g, e) : st;
}

/* The checkpoint, or none for dummy weights. */
static status engine_open_weights(engine *g, const engine_options *o, err *e) {
    const char *how = o->load_format ? o->load_format : "auto";
    bool dummy = !strcmp(how, "dummy");
    if (!dummy && strcmp(how, "auto")) return err_set(e, ST_INPUT, "--load-format %s is not auto or dummy", how);
    if (dummy && !backend_name_is_gpu(o->device))
        return err_set(e, ST_UNSUPPORTED, "--load-format dummy makes its weights on a GPU: it needs --device cuda");
    return dummy ? ST_OK : checkpoint_open(&g->ck, o->model_dir, e);
}

/* Where experts are, with --ep. */
static status place_experts(engine *g, const engine_options *o, err *e) {
    const model_config *c = &g->config;
    if (o->ep < 2) return ST_OK;
    const bool given = o->ep_placement && strcmp(o->ep_placement, "trivial") != 0; /* SGLang's word for none */
    status st = given ? expert_placement_load(&g->placement, o->ep_placement, c->n_layers, c->n_experts, o->ep,
                                              o->ep_redundant, e)
                      : expert_placement_plain(&g->placement, c->n_layers, c->n_experts, o->ep, o->ep_redundant, e);
    g->config.ep = o->ep, g->config.placement = &g->placement;
    return st;
}

static status slice(engine *g, const engine_options *o, err *e) {
    g->config.whole_attention = o->dp_attention;
    if (!o->tp_slice) return ST_OK;
    if (!o->load_format || strcmp(o->load_format, "dummy"))
        return err_set(e, ST_INPUT, "--tp-slice %lld needs --load-format dummy", (long long)o->tp_slice);
    g->config.slice = o->tp_slice > 1 ? max_i64(o->tp, 1) : 0;
    return model_config_split(&g->config, o->tp_slice, 0, "--tp-slice", e);
}

static status engine_choose_experts(engine *g, const char *name, err *e) {
    if (!name) return ST_OK;
    for (int f = 0; f < EXPERTS_FORMATS; f++)
        if (!strcmp(name, expert_format_name((expert_format)f))) return g->config.experts = (expert_format)f, ST_OK;
    return err_set(e, ST_INPUT, "--moe-format %s is not auto, w4a8 or w2_bf16", name);
}

/* Are activations int8 or not by how many rows a step has? */
static bool int8_by_rows(const engine *g) {
    return g->config.experts == EXPERTS_W4A8 && engine_backend(g)->ops.int8_mean > 0;
}

static status check_deterministic(const engine *g, const engine_options *o, err *e) {
    if (!o->deterministic || !int8_by_rows(g)) return ST_OK;
    return err_set(e, ST_UNSUPPORTED,
                   "--moe-format w4a8 on --device %s takes int8 activations where a step has many tokens: not with "
                   "--deterministic",
                   o->device);
}

/* Of this process: "NUMA nodes 0,0,1,1; ", cut off where there are very many ranks; "": they are not bound. */
static const char *write_nodes(const engine *g, char *out, size_t cap) {
    size_t n = (size_t)snprintf(out, cap, "%s", g->ranks.bound ? "NUMA nodes " : "");
    for (i64 r = 0; g->ranks.bound && r < g->ranks.held && n < cap; r++)
        n += (size_t)snprintf(out + n, cap - n, "%lld%s", (long long)engine_numa_node(g, r),
                              r + 1 < g->ranks.held ? "," : "; ");
    return out;
}

/* Ranks, processes, and the layers of stages: "4 ranks in 2 processes, stages of 31, 30 layers; ". */
static void write_share(const engine *g, char *out, size_t cap) {
    size_t n = 0;
    if (g->config.slice)
        n = (size_t)snprintf(out, cap, "slice %lld of %lld, %sdummy", (long long)g->config.slice,
                             (long long)g->config.ranks,
                             g->ranks.n == 1 && g->ranks.of[0].comm ? "exchanging with itself, " : "");
    else if (g->ranks.n == 1)
        return;
    else
        n = (size_t)snprintf(out, cap, "%lld ranks", (long long)g->ranks.n);
    if (g->hosts) n += (size_t)snprintf(out + n, cap - n, " in %lld processes", (long long)hosts_count(g->hosts));
    for (i64 s = 0; g->layout.pp > 1 && s < g->layout.pp && n < cap; s++)
        n += (size_t)snprintf(out + n, cap - n, "%s%lld", s ? ", " : ", stages of ", (long long)g->layout.layers[s]);
    if (n < cap) n += (size_t)snprintf(out + n, cap - n, "%s", g->layout.pp > 1 ? " layers" : "");
    if (g->config.ep > 1 && n < cap)
        n += (size_t)snprintf(out + n, cap - n, ", experts in %lld groups of %lld", (long long)g->config.ep,
                              (long long)g->placement.held);
    if (n < cap) snprintf(out + n, cap - n, "; ");
}

static void write_plan(engine *g, f64 seconds) {
    const model_memory *r = memory_of(g, 0);
    const backend *b = engine_backend(g);
    char weights[BYTES_TEXT], kv[BYTES_TEXT], work[BYTES_TEXT], share[128] = "", experts[32] = "", each[24] = "";
    char nodes[160], divided[48] = "", drafts[128], pinned[64] = "", tower[96];
    if (g->pinned_accept > 0)
        snprintf(pinned, sizeof pinned, "ACCEPTANCE PINNED TO %g TOKENS A STEP; ", g->pinned_accept);
    if (g->config.experts) snprintf(experts, sizeof experts, ", experts in %s", expert_format_name(g->config.experts));
    write_share(g, share, sizeof share);
    if (g->ranks.n > 1) snprintf(each, sizeof each, " a rank");
    if (g->lim.kv.ranks > 1)
        snprintf(divided, sizeof divided,
                 g->lim.kv.by_sequence ? ", each for sequences of its own" : ", its pages divided among them");
    snprintf(g->plan, sizeof g->plan,
             "%s%s%s%s%s%s: weights %s%s%s%s%s, KV %s%s for %lld tokens in %s%s, working memory %s%s, ready in %.2f s",
             g->step ? "SIMULATED, nothing is computed; "
             : g->ck ? ""
                     : "DUMMY WEIGHTS, the text means nothing; ",
             pinned, share, write_nodes(g, nodes, sizeof nodes), g->lim.deterministic ? "deterministic; " : "",
             b->ops.name, bytes_text(weights, g->all_weights),
             memory_of(g, 0)->weights.own > memory_of(g, 0)->weights.mapped / 100 ? "" : " (mapped)", experts,
             engine_draft_text(g, drafts, sizeof drafts), engine_vision_text(g, tower, sizeof tower),
             bytes_text(kv, r->kv), each, (long long)engine_kv_tokens(g), dtype_name(g->lim.kv_type), divided,
             bytes_text(work, r->work), each, seconds);
}

/* Before what takes long, where something does: a GPU's memory, or experts in another format. */
static void say_plan(const engine *g, const engine_options *o) {
    const model_memory *r = memory_of(g, 0);
    const backend *b = engine_backend(g);
    char weights[BYTES_TEXT], kv[BYTES_TEXT], work[BYTES_TEXT], all[BYTES_TEXT], there[BYTES_TEXT];
    char reserve[48] = "", of[BYTES_TEXT], exchanges[48] = "";
    const comm *data = g->ranks.of[0].data;
    if (!b->gpu && !g->config.experts) return;
    if (g->lim.reserve) snprintf(reserve, sizeof reserve, " + reserve %s", bytes_text(of, g->lim.reserve));
    if (data && data->held)
        snprintf(exchanges, sizeof exchanges, "exchanges %s, taken already; ", bytes_text(of, data->held));
    log_note("plan: %s%sweights %s + KV %s for %lld tokens + working memory %s%s = %s of the %s free on %s",
             g->ranks.n > 1 ? "each rank: " : "", exchanges, bytes_text(weights, r->weights.own), bytes_text(kv, r->kv),
             (long long)engine_kv_tokens(g), bytes_text(work, r->work), reserve,
             bytes_text(all, r->weights.own + r->kv + r->work + g->lim.reserve), bytes_text(there, g->lim.memory_max),
             b->device->name);
    if (g->ranks.tp > 1)
        log_note("KV cache: room for %.0f tokens where every rank has all of it, for %.0f where the ranks divide it",
                 floor(pages_that_fit(g, o, 1)) * KV_PAGE, floor(pages_that_fit(g, o, g->ranks.tp)) * KV_PAGE);
}

static status open_share(rank *k, void *ud, err *e) {
    const engine *g = ud;
    status st = model_open(&k->model, &k->config, g->ck, &k->backend.ops, k->backend.device, e);
    return st == ST_OK ? engine_vision_open_rank(g, k, e) : st;
}

static status plan_share(rank *k, void *ud, err *e) {
    const engine *g = ud;
    model_limits own = g->lim;
    own.memory_max = k->memory;
    own.kv.rank = k->place, own.kv.there = g->layout.tp;
    status st = engine_draft_plan_rank(ud, k, &own, e);
    if (st == ST_OK) st = engine_vision_plan_rank(ud, k, &own, e);
    return st == ST_OK ? model_plan(k->model, &own, e) : st;
}

static status open_plan(engine *g, const engine_options *o, err *e) {
    status st = engine_check_options(o, e);
    if (st == ST_OK) st = model_config_load(&g->config, o->model_dir, e);
    for (int i = 0; st == ST_OK && i < o->n_overrides; i++) st = model_config_override(&g->config, o->overrides[i], e);
    const model_config whole = g->config;
    if (st == ST_OK) st = place_experts(g, o, e);
    if (st == ST_OK) st = slice(g, o, e);
    if (st == ST_OK) st = engine_choose_experts(g, o->moe_format, e);
    if (st == ST_OK) st = engine_open_weights(g, o, e);
    if (st == ST_OK) st = engine_draft_open(g, o, &whole, e);
    if (st == ST_OK) st = engine_vision_open(g, o, e);
    if (st == ST_OK && g->hosts) st = engine_hosts_compare(g, o, e);
    if (st == ST_OK) st = choose_backend(g, o, e);
    if (st == ST_OK) st = check_deterministic(g, o, e);
    if (st == ST_OK) st = choose_kv(g, o->kv_dtype, e);
    if (st == ST_OK) st = check_kv_scales(g, e);
    if (st == ST_OK) st = ranks_each(&g->ranks, open_share, g, e);
    if (st == ST_OK) st = engine_draft_open_ranks(g, o, e);
    if (st == ST_OK) st = set_limits(g, o, e);
    return st == ST_OK ? ranks_each(&g->ranks, plan_share, g, e) : st;
}

static status load_all(engine *g, const engine_options *o, err *e) {
    status st = ranks_load(&g->ranks, g->ck, o->verify, &g->reads, e);
    if (st == ST_OK) st = engine_draft_load(g, o, e);
    if (st == ST_OK) st = engine_vision_load(g, e);
    if (st == ST_OK) st = ranks_reserve(&g->ranks, &g->lim, e);
    if (st == ST_OK && o->profile) st = profile_open(g, e);
    if (st == ST_OK) st = kv_pages_open(&g->pages, g->lim.pool_pages, g->lim.kv.ranks, e);
    g->pages.by_sequence = g->lim.kv.by_sequence;
    return st;
}

static status engine_open_parts(engine *g, const engine_options *o, err *e) {
    f64 start = now_s();
    status st = engine_hosts_open(g, o, deadline_of(o), e);
    if (st == ST_OK) st = open_plan(g, o, e);
    if (st == ST_OK) say_plan(g, o);
    if (st == ST_OK) st = load_all(g, o, e);
    if (st == ST_OK) st = engine_hosts_ready(g, e);
    if (st == ST_OK) write_plan(g, now_s() - start);
    return st;
}

status engine_open(engine **out, const engine_options *o, err *e) {
    *out = NULL;
    engine *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(e, "the engine", sizeof *g);
    g->step = o->step;
    g->step_ud = o->step_ud;
    g->after_step = o->after_step;
    g->after_ud = o->after_ud;
    g->pinned_accept = o->pinned_accept;
    err why = {0};
    status st = engine_open_parts(g, o, &why);
    if (st != ST_OK) {
        if (g->hosts) hosts_cancel(g->hosts, &why);
        if (e) *e = why;
        engine_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

void engine_close(engine *g) {
    if (!g) return;
    ranks_dismiss(&g->ranks);
    ranks_close(&g->ranks);
    kv_pages_close(&g->pages);
    expert_placement_free(&g->placement);
    checkpoint_close(g->ck);
    checkpoint_close(g->draft_ck);
    hosts_close(g->hosts);
    free(g->profile);
    free(g->branch_pages);
    free(g);
}

const model_config *engine_config(const engine *g) { return &g->config; }
const ops *engine_ops(const engine *g) { return &engine_backend(g)->ops; }
i64 engine_context(const engine *g) { return g->context; }
i64 engine_chunk(const engine *g) { return g->chunk; }
i64 engine_kv_tokens(const engine *g) { return g->max_running ? g->lim.pool_pages * KV_PAGE : g->context; }
const char *engine_plan(const engine *g) { return g->plan; }
bool engine_on_gpu(const engine *g) { return engine_backend(g)->gpu; }
void engine_say_doing(const engine *g) { ranks_say_doing(&g->ranks); }
i64 engine_ranks(const engine *g) { return g->ranks.n; }
i64 engine_stages(const engine *g) { return g->ranks.pp; }
i64 engine_expert_groups(const engine *g) { return max_i64(g->config.ep, 1); }
i64 engine_kv_ranks(const engine *g) { return g->lim.kv.by_sequence ? 1 : g->lim.kv.ranks; }
i64 engine_sequence_ranks(const engine *g) { return g->lim.kv.by_sequence ? g->lim.kv.ranks : 1; }
i64 engine_numa_node(const engine *g, i64 rank) {
    return g->ranks.bound && rank < g->ranks.held ? g->ranks.of[rank].node.id : -1;
}
bool engine_deterministic(const engine *g) {
    /* which copy of an expert a row takes hangs on its place in the batch, and sums on where experts are */
    const expert_placement *p = &g->placement;
    const bool move = g->balance.every || p->groups * p->held > p->experts;
    return g->lim.deterministic ||
           (!engine_backend(g)->ops.set_row_mode && engine_kv_ranks(g) < 2 && !move && !int8_by_rows(g));
}
bool engine_simulated(const engine *g) { return g->step != NULL; }

status engine_queue(engine *g, const model_batch *b, err *e) {
    if (g->step) return g->step(g->step_ud, b, g->config.vocab, e);
    if (g->profile) profile_before(g, b);
    const status st = engine_balance_experts(&g->balance, &g->ranks, e);
    return st == ST_OK ? ranks_queue(&g->ranks, b, e) : st;
}

status engine_queue_draw(engine *g, const model_batch *b, err *e) {
    return g->step || !b->late_draw ? ST_OK : ranks_queue_draw(&g->ranks, b, e);
}

status engine_collect(engine *g, const model_batch *b, err *e) {
    if (g->step) return ST_OK;
    status st = ranks_collect(&g->ranks, b, e);
    if (st == ST_OK && g->after_step) g->after_step(g->after_ud, b, g->config.vocab);
    return st == ST_OK && g->profile ? profile_step(g, b, e) : st;
}

status engine_forward(engine *g, const model_batch *b, err *e) {
    status st = engine_queue(g, b, e);
    if (st == ST_OK) st = engine_queue_draw(g, b, e);
    return st == ST_OK ? engine_collect(g, b, e) : st;
}

status engine_bad_row(i32 mark, i32 token, i64 position, err *e) {
    if (mark == BAD_EMBEDDING)
        return err_set(e, ST_NUMERIC, "NaN or infinity in the embedding of token %d (position %lld)", token,
                       (long long)position);
    if (mark == BAD_LOGITS)
        return err_set(e, ST_NUMERIC, "NaN or infinity in the logits at position %lld", (long long)position);
    return err_set(e, ST_NUMERIC, "NaN or infinity in the output of layer %d at position %lld", mark - 1,
                   (long long)position);
}
