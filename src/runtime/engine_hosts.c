/* runtime/engine_hosts.c: an engine whose ranks are in several processes, on one host or several. */
#include "base/file.h"
#include "base/log.h"
#include "runtime/engine_internal.h"
#include "runtime/follow.h"
#include "runtime/marks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status engine_hosts_open(engine *g, const engine_options *o, f64 deadline_s, err *e) {
    char name[HOST_NAME_MOST + 32];
    if (o->nnodes < 2) return ST_OK;
    status st = hosts_open(&g->hosts, o->nnodes, deadline_s, e);
    if (st != ST_OK) return st;
    const i64 self = hosts_self(g->hosts);
    if (!self) {
        log_note("%lld processes by %s", (long long)o->nnodes, hosts_library(g->hosts));
        return ST_OK;
    }
    snprintf(name, sizeof name, "process %lld (%s): ", (long long)self, hosts_name(g->hosts, self));
    log_set_process(name);
    log_set_quiet(true); /* the first says it */
    return ST_OK;
}

/* ---- what must be the same everywhere ---- */

static void put_options(buf *b, const engine_options *o) {
    const struct {
        const char *name;
        i64 value;
    } numbers[] = {{"--nnodes", o->nnodes},
                   {"--tp", o->tp},
                   {"--pp", o->pp},
                   {"--dcp", o->dcp},
                   {"--ep", o->ep},
                   {"--ep-num-redundant-experts", o->ep_redundant},
                   {"--eplb-rebalance-num-iterations", o->eplb_steps},
                   {"--enable-dp-attention", o->dp_attention},
                   {"--context-length", o->context},
                   {"--chunked-prefill-size", o->chunk},
                   {"--max-running-requests", o->max_running},
                   {"--max-total-tokens", o->kv_tokens},
                   {"--disable-fused", o->disable_fused},
                   {"--disable-custom-all-reduce", o->nccl},
                   {"--disable-cuda-graph", o->eager},
                   {"--deterministic", o->deterministic},
                   {"--language-model-only", o->language_only},
                   {"--speculative-num-steps", o->draft_steps},
                   {"--speculative-eagle-topk", o->draft_topk},
                   {"--speculative-num-draft-tokens", o->draft_nodes}};
    const struct {
        const char *name, *value;
    } texts[] = {{"--device", o->device},           {"--pp-layers", o->pp_layers},     {"--cpu-mask", o->cpu_mask},
                 {"--kv-cache-dtype", o->kv_dtype}, {"--load-format", o->load_format}, {"--moe-format", o->moe_format}};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        buf_fmt(b, "%s=%lld\n", numbers[i].name, (long long)numbers[i].value);
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        buf_fmt(b, "%s=%s\n", texts[i].name, texts[i].value ? texts[i].value : "its default");
    buf_fmt(b, "--numa-node=%s\n", o->numa_node ? "given" : "not given");
    buf_fmt(b, "--dist-timeout=%.9g\n", o->dist_timeout);
    buf_fmt(b, "--mem-fraction-static=%.9g\n", o->mem_fraction);
    for (int i = 0; i < o->n_overrides; i++) buf_fmt(b, "--override=%s\n", o->overrides[i]);
}

/* A line for each thing, "name=value". */
static status describe_self(const engine *g, const engine_options *o, buf *b, err *e) {
    file_map self;
    status st = file_map_open(&self, "/proc/self/exe", e);
    if (st != ST_OK) return st;
    buf_fmt(b, "the program=Moonlet %s, %llu bytes, mark %016llx\n", MOON_VERSION, (unsigned long long)self.size,
            (unsigned long long)marks_hash(self.data, self.size));
    file_map_close(&self);
    put_options(b, o);
    if (g->placement.slots)
        buf_fmt(b, "where experts are=%016llx\n",
                (unsigned long long)marks_hash(g->placement.slots,
                                               (u64)(g->placement.layers * g->placement.groups * g->placement.held) *
                                                   sizeof *g->placement.slots));
    st = marks_of_config(b, "config.json", o->model_dir, e);
    if (st == ST_OK) st = marks_of_checkpoint(b, "the checkpoint", g->ck, e);
    buf_fmt(b, "a draft model=%s\n", g->has_draft ? "yes" : "no");
    if (st == ST_OK && g->has_draft) st = marks_of_config(b, "the draft's config.json", o->draft_dir, e);
    if (st == ST_OK && g->has_draft) st = marks_of_checkpoint(b, "the draft's checkpoint", g->draft_ck, e);
    buf_fmt(b, "a vision tower=%s\n", g->has_vision ? "yes" : "no");
    if (st == ST_OK && b->failed) st = err_nomem(e, "what processes compare", b->len);
    return st;
}

/* The first line that differs. */
static status compare_lines(const engine *g, const char *own, const char *leader, err *e) {
    marks_line a, b;
    const char *host = hosts_name(g->hosts, 0);
    if (!marks_differ(own, leader, &a, &b)) return ST_OK;
    if (!a.name || !b.name || a.n_name != b.n_name || memcmp(a.name, b.name, (size_t)a.n_name))
        return err_set(e, ST_INPUT, "other options than process 0 (%s): %.*s and %.*s", host, a.n, a.name ? a.name : "",
                       b.n, b.name ? b.name : "");
    return err_set(e, ST_INPUT, "%.*s is %.*s here and %.*s for process 0 (%s): all processes need the same", a.n_name,
                   a.name, a.n_value, a.value, b.n_value, b.value, host);
}

status engine_hosts_compare(const engine *g, const engine_options *o, err *e) {
    enum { MOST = 1 << 16 };
    buf own = {.max = MOST - 1};
    char *all = calloc((size_t)o->nnodes, MOST), *mine = calloc(1, MOST);
    status st = all && mine ? describe_self(g, o, &own, e) : err_nomem(e, "what processes compare", MOST);
    st = hosts_agree(g->hosts, st, e);
    if (st == ST_OK) {
        memcpy(mine, own.data, own.len);
        st = hosts_share(g->hosts, "comparing options", mine, all, MOST, e);
        if (st == ST_OK) st = compare_lines(g, mine, all, e);
        st = hosts_agree(g->hosts, st, e);
    }
    buf_free(&own);
    if (hosts_check(g->hosts, NULL) == ST_OK) {
        free(all);
        free(mine);
    } else {
        hosts_leave(g->hosts, all);
        hosts_leave(g->hosts, mine);
    }
    return st;
}

/* ---- serving ---- */

status engine_hosts_ready(engine *g, err *e) {
    if (!g->hosts) return ST_OK;
    status st = hosts_agree(g->hosts, ST_OK, e);
    g->ranks.serving = st == ST_OK;
    return st;
}

bool engine_follows(const engine *g) { return g->hosts && hosts_self(g->hosts); }
i64 engine_processes(const engine *g) { return g->hosts ? hosts_count(g->hosts) : 1; }
hosts_counts engine_hosts_counted(engine *g) { return g->hosts ? hosts_counted(g->hosts) : (hosts_counts){0}; }
status engine_check(engine *g, err *e) { return g->hosts ? hosts_check(g->hosts, e) : ST_OK; }
status engine_roll_call(engine *g, f64 seconds, err *e) {
    return g->hosts ? hosts_roll_call(g->hosts, seconds, e) : ST_OK;
}

status engine_follow(engine *g, err *e) { return ranks_follow(&g->ranks, &g->lim, g->draft_lim.topk, e); }
