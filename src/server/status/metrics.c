#include "server/status/metrics.h"
#include "base/json.h"
#include "base/log.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BOUNDS = 20 };

typedef struct {
    const char *name, *vllm, *help; /* vllm: the same under vLLM's name, or NULL */
    f64 bound[BOUNDS];              /* ends with 0 */
} histogram_spec;

static const histogram_spec specs[] = {
    {"time_to_first_token_seconds",
     "time_to_first_token_seconds",
     "Time from submission to the first token",
     {0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 100, 400}},
    {"inter_token_latency_seconds",
     "inter_token_latency_seconds",
     "Time between two tokens of an answer",
     {0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 1,
      8}},
    {"time_per_output_token_seconds",
     "request_time_per_output_token_seconds",
     "Mean time between two tokens of an answer",
     {0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.8, 2, 8}},
    {"e2e_request_latency_seconds",
     "e2e_request_latency_seconds",
     "Time from submission to the end",
     {0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 20, 40, 80, 160, 320, 640, 1200, 2400}},
    {"queue_time_seconds",
     "request_queue_time_seconds",
     "Time from submission to the first step",
     {0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300, 600}},
    {"grammar_compilation_time_seconds",
     NULL,
     "Time of compiling what an answer must be",
     {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30}},
};
enum { TTFT, ITL, TPOT, E2E, QUEUE, GRAMMAR, HISTOGRAMS };
_Static_assert(COUNT_OF(specs) == HISTOGRAMS, "one spec a histogram");

typedef struct {
    i64 count[BOUNDS], all; /* count[i]: values <= bound[i] and above the bound before */
    f64 sum;
} histogram;

struct metrics {
    pthread_mutex_t lock;
    histogram h[HISTOGRAMS];
    i64 status[6]; /* HTTP answers by first digit */
    latency_window ttft, itl;
};

status metrics_open(metrics **out, err *e) {
    *out = calloc(1, sizeof **out);
    if (!*out) return err_nomem(e, "metrics", sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return ST_OK;
}

void metrics_close(metrics *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void observe(metrics *m, int which, f64 x) {
    histogram *h = &m->h[which];
    const f64 *bound = specs[which].bound;
    h->all++;
    h->sum += x;
    for (int i = 0; i < BOUNDS && bound[i] > 0; i++)
        if (x <= bound[i]) {
            h->count[i]++;
            return;
        }
}

static void observe_end(metrics *m, const sched_usage *u) {
    observe(m, E2E, u->ended_s - u->submitted_s);
    if (u->started_s > 0) observe(m, QUEUE, u->started_s - u->submitted_s);
    if (u->output_tokens > 1) observe(m, TPOT, (u->ended_s - u->first_token_s) / (f64)(u->output_tokens - 1));
}

void metrics_events(metrics *m, const sched_event *ev, i64 n) {
    f64 now = now_s();
    pthread_mutex_lock(&m->lock);
    for (i64 i = 0; i < n; i++) {
        if (ev[i].kind == SCHED_END) observe_end(m, &ev[i].usage);
        if (ev[i].kind != SCHED_TOKEN) continue;
        bool first = ev[i].position == 0;
        observe(m, first ? TTFT : ITL, ev[i].gap_s);
        latency_window_add(first ? &m->ttft : &m->itl, now, ev[i].gap_s);
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_compiled(metrics *m, f64 seconds) {
    pthread_mutex_lock(&m->lock);
    observe(m, GRAMMAR, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_minute(metrics *m, f64 now, latencies *out) {
    pthread_mutex_lock(&m->lock);
    *out = (latencies){.ttft = latency_window_quantiles(&m->ttft, now), .itl = latency_window_quantiles(&m->itl, now)};
    pthread_mutex_unlock(&m->lock);
}

void metrics_response(metrics *m, int http) {
    pthread_mutex_lock(&m->lock);
    if (http >= 100 && http < 600) m->status[http / 100]++;
    pthread_mutex_unlock(&m->lock);
}

/* ---- Text ---- */

/* A label's value: backslash, quote and newline are escaped. */
static void label(buf *out, const char *s) {
    buf_str(out, "{model_name=\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') buf_char(out, '\\');
        buf_char(out, *s == '\n' ? ' ' : *s);
    }
    buf_char(out, '"');
}

static void one(buf *out, const char *prefix, const char *name, const char *type, const char *help, const char *model,
                f64 value) {
    buf_fmt(out, "# HELP %s%s %s.\n# TYPE %s%s %s\n%s%s", prefix, name, help, prefix, name, type, prefix, name);
    label(out, model);
    buf_fmt(out, "} %.10g\n", value);
}

static void write_histogram(buf *out, const char *prefix, const char *name, const histogram_spec *spec,
                            const histogram *h, const char *model) {
    i64 sum = 0;
    buf_fmt(out, "# HELP %s%s %s.\n# TYPE %s%s histogram\n", prefix, name, spec->help, prefix, name);
    for (int i = 0; i < BOUNDS && spec->bound[i] > 0; i++) {
        sum += h->count[i];
        buf_fmt(out, "%s%s_bucket", prefix, name);
        label(out, model);
        buf_fmt(out, ",le=\"%g\"} %lld\n", spec->bound[i], (long long)sum);
    }
    buf_fmt(out, "%s%s_bucket", prefix, name);
    label(out, model);
    buf_fmt(out, ",le=\"+Inf\"} %lld\n%s%s_sum", (long long)h->all, prefix, name);
    label(out, model);
    buf_fmt(out, "} %.9g\n%s%s_count", h->sum, prefix, name);
    label(out, model);
    buf_fmt(out, "} %lld\n", (long long)h->all);
}

static void write_finished(buf *out, const sched_stats *s, const char *model) {
    static const char *const why[] = {"stop", "length", "abort", "timeout", "displaced", "error"};
    buf_str(out, "# HELP vllm:request_success_total Requests that ended, by reason.\n"
                 "# TYPE vllm:request_success_total counter\n");
    for (int i = 0; i <= SCHED_ERROR; i++) {
        buf_str(out, "vllm:request_success_total");
        label(out, model);
        buf_fmt(out, ",finished_reason=\"%s\"} %lld\n", why[i], (long long)s->ended[i]);
    }
}

static void write_stats(buf *out, const sched_stats *s, const char *model) {
    const f64 held = (f64)(s->pages_used * s->page_tokens), pool = (f64)(s->pages * s->page_tokens);
    const f64 hit = s->prompt_tokens ? (f64)s->cached_tokens / (f64)s->prompt_tokens : 0;
    const struct {
        const char *sglang, *vllm, *type, *help;
        f64 v;
    } all[] = {
        {"num_running_reqs", "num_requests_running", "gauge", "Requests that run", (f64)s->running},
        {"num_queue_reqs", "num_requests_waiting", "gauge", "Requests that wait", (f64)s->queued},
        {"num_used_tokens", NULL, "gauge", "KV rows in pages of running requests", held},
        {"max_total_num_tokens", NULL, "gauge", "KV rows of the pool", pool},
        {"token_usage", "kv_cache_usage_perc", "gauge", "Share of the KV pool held by running requests",
         pool > 0 ? held / pool : 0},
        {"num_cached_pages", NULL, "gauge", "KV pages in the prefix cache only", (f64)s->pages_cached},
        {"page_size", NULL, "gauge", "Tokens a KV page", (f64)s->page_tokens},
        {"num_pages", NULL, "gauge", "KV pages", (f64)s->pages},
        {"context_len", NULL, "gauge", "Tokens of the context", (f64)s->context},
        {"gen_throughput", NULL, "gauge", "Generated tokens a second", s->generated_per_s},
        {"cache_hit_rate", NULL, "gauge", "Share of prompt tokens found in the prefix cache", hit},
        {"prompt_tokens_total", "prompt_tokens_total", "counter", "Prompt tokens", (f64)s->prompt_tokens},
        {"generation_tokens_total", "generation_tokens_total", "counter", "Generated tokens", (f64)s->generated_tokens},
        {"cached_tokens_total", "prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache",
         (f64)s->cached_tokens},
        {"num_requests_total", NULL, "counter", "Requests accepted", (f64)s->accepted},
        {"num_refused_requests_total", NULL, "counter", "Requests refused", (f64)s->refused},
        {"num_aborted_requests_total", NULL, "counter", "Requests aborted", (f64)s->ended[SCHED_ABORT]},
        {"num_retracted_requests_total", "num_preemptions_total", "counter", "Preemptions", (f64)s->preemptions},
        {"num_steps_total", NULL, "counter", "Steps of the engine", (f64)s->steps},
        {"forward_execution_seconds_total", NULL, "counter", "Time in steps", s->busy_s},
        {"seconds_since_step", NULL, "gauge", "Seconds since a step or idling ended", s->since_step_s}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        one(out, "sglang:", all[i].sglang, all[i].type, all[i].help, model, all[i].v);
        if (all[i].vllm) one(out, "vllm:", all[i].vllm, all[i].type, all[i].help, model, all[i].v);
    }
}

static void write_constraints(buf *out, const constraint_stats *c, const char *model) {
    const i64 asked = c->compiles + c->hits + c->timeouts + c->aborted;
    const struct {
        const char *prefix, *name, *type, *help;
        f64 v;
    } all[] = {
        {"sglang:", "num_so_requests_total", "counter", "Requests whose answer must be something", (f64)asked},
        {"sglang:", "num_grammar_total", "counter", "Constraints compiled", (f64)c->compiles},
        {"sglang:", "num_grammar_cache_hit_total", "counter", "Constraints that were there already", (f64)c->hits},
        {"sglang:", "num_grammar_timeout_total", "counter", "Requests that waited too long for compiling",
         (f64)c->timeouts},
        {"sglang:", "num_grammar_aborted_total", "counter", "Requests whose client went while compiling",
         (f64)c->aborted},
        {"sglang:", "num_grammar_queue_reqs", "gauge", "Requests that wait for compiling", (f64)c->waiting},
        {"moonlet:", "grammar_failures_total", "counter", "Constraints that did not compile", (f64)c->failures},
        {"moonlet:", "grammar_cache_entries", "gauge", "Constraints kept", (f64)c->kept},
        {"moonlet:", "grammar_cache_bytes", "gauge", "Memory of the constraints kept", (f64)c->bytes}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        one(out, all[i].prefix, all[i].name, all[i].type, all[i].help, model, all[i].v);
}

/* Counters for each place in a run of drafts, up to the last one that was ever proposed. */
static void write_places(buf *out, const char *name, const char *help, const i64 *counts, const sched_stats *s,
                         const char *model) {
    buf_fmt(out, "# HELP %s %s.\n# TYPE %s counter\n", name, help, name);
    for (int i = 0; i < SCHED_DRAFTS_MOST && (!i || s->draft_at[i]); i++) {
        buf_str(out, name);
        label(out, model);
        buf_fmt(out, ",position=\"%d\"} %lld\n", i, (long long)counts[i]);
    }
}

/* Speculative decoding, under our names, SGLang's and vLLM's. */
static void write_drafts(buf *out, const sched_stats *s, const char *model) {
    const f64 rounds = (f64)s->draft_rounds, tokens = (f64)s->draft_tokens, accepted = (f64)s->draft_true;
    const struct {
        const char *ours, *vllm, *help;
        f64 value;
    } all[] = {
        {"draft_rounds_total", "spec_decode_num_drafts_total", "Answers' steps in which tokens were proposed", rounds},
        {"draft_tokens_total", "spec_decode_num_draft_tokens_total", "Tokens proposed and checked", tokens},
        {"draft_tokens_accepted_total", "spec_decode_num_accepted_tokens_total",
         "Of these, tokens that were drawn, too", accepted}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        one(out, "moonlet:", all[i].ours, "counter", all[i].help, model, all[i].value);
        one(out, "vllm:", all[i].vllm, "counter", all[i].help, model, all[i].value);
    }
    write_places(out, "moonlet:draft_tokens_by_position_total",
                 "Tokens proposed and checked, by their place in the run", s->draft_at, s, model);
    write_places(out, "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                 "Of these, tokens that were drawn, too, by place", s->draft_true_at, s, model);
    one(out, "sglang:", "spec_accept_length", "gauge",
        "Tokens an answer's step with proposed ones, its own included, since the start", model, sched_accept_length(s));
    one(out, "sglang:", "spec_accept_rate", "gauge", "Share of the proposed tokens that were drawn, too", model,
        tokens > 0 ? accepted / tokens : 0);
    buf_str(out, "# HELP moonlet:decode_steps_total Steps of answers alone, by how many drafts the first of them had.\n"
                 "# TYPE moonlet:decode_steps_total counter\n");
    for (int k = 0; k <= SCHED_DRAFTS_MOST; k++) {
        if (k && !s->draft_steps[k]) continue;
        buf_str(out, "moonlet:decode_steps_total");
        label(out, model);
        buf_fmt(out, ",drafts=\"%d\"} %lld\n", k, (long long)s->draft_steps[k]);
    }
    one(out, "moonlet:", "draft_tokens_checked_total", "counter", "Tokens kept with drafts and decoded again without",
        model, (f64)s->draft_checked);
    one(out, "moonlet:", "draft_tokens_differ_total", "counter", "Of these, tokens that were drawn otherwise", model,
        (f64)s->draft_differ);
    one(out, "moonlet:", "draft_failures_total", "counter", "Times that a draft model had NaN or infinity for a token",
        model, (f64)s->draft_bad);
}

/* Between processes that share the model. */
static void write_hosts(buf *out, const sched_stats *s, const char *model) {
    const struct {
        const char *name, *help;
        f64 value;
    } all[] = {{"host_jobs_total", "What other processes were told to compute", (f64)s->hosts.jobs},
               {"host_told_bytes_total", "Bytes of that, to all of them", (f64)s->hosts.told_bytes},
               {"host_told_seconds_total", "Time of that", s->hosts.told_s},
               {"host_exchanges_total", "Exchanges with other processes by MPI", (f64)s->hosts.exchanges},
               {"host_exchanged_bytes_total", "Bytes that these sent", (f64)s->hosts.exchanged_bytes},
               {"host_exchanged_seconds_total", "Time in these, waiting included", s->hosts.exchanged_s}};
    one(out, "moonlet:", "processes", "gauge", "Processes that share the model", model, (f64)s->processes);
    for (size_t i = 0; s->processes > 1 && i < COUNT_OF(all); i++)
        one(out, "moonlet:", all[i].name, "counter", all[i].help, model, all[i].value);
}

/* Groups of ranks that have whole experts each. */
static void write_experts(buf *out, const sched_stats *s, const char *model) {
    if (s->expert_groups < 2) return;
    one(out, "moonlet:", "expert_groups", "gauge", "Groups of ranks that have whole experts each", model,
        (f64)s->expert_groups);
    one(out, "moonlet:", "experts_moved_total", "counter", "Places that have got another expert", model,
        (f64)s->experts_moved);
    one(out, "moonlet:", "expert_rebalances_total", "counter", "Times that experts moved", model,
        (f64)s->expert_rebalances);
    one(out, "moonlet:", "expert_busiest_share", "gauge",
        "Rows of the group that had most, of an equal share, when they were last counted", model, s->expert_busiest);
}

void metrics_write(metrics *m, const sched_stats *s, const constraint_stats *c, const char *model, i64 connections,
                   buf *out) {
    histogram h[HISTOGRAMS];
    i64 statuses[6];
    pthread_mutex_lock(&m->lock);
    memcpy(h, m->h, sizeof h);
    memcpy(statuses, m->status, sizeof statuses);
    pthread_mutex_unlock(&m->lock);
    write_stats(out, s, model);
    write_finished(out, s, model);
    for (int i = 0; i < HISTOGRAMS; i++) {
        write_histogram(out, "sglang:", specs[i].name, &specs[i], &h[i], model);
        if (specs[i].vllm) write_histogram(out, "vllm:", specs[i].vllm, &specs[i], &h[i], model);
    }
    write_constraints(out, c, model);
    one(out, "moonlet:", "forced_tokens_total", "counter", "Tokens written because nothing else could come", model,
        (f64)s->forced_tokens);
    write_drafts(out, s, model);
    write_hosts(out, s, model);
    write_experts(out, s, model);
    one(out, "moonlet:", "connections", "gauge", "Open connections", model, (f64)connections);
    buf_str(out, "# HELP moonlet:http_responses_total HTTP answers by class of status.\n"
                 "# TYPE moonlet:http_responses_total counter\n");
    for (int i = 2; i < 6; i++) {
        buf_str(out, "moonlet:http_responses_total");
        label(out, model);
        buf_fmt(out, ",status=\"%dxx\"} %lld\n", i, (long long)statuses[i]);
    }
}

/* A counter for each server that computes prompts. */
static void write_peers(kv_fetcher *f, const char *name, const char *help, f64 (*of)(const kv_peer_stats *p),
                        const char *model, buf *out) {
    buf_fmt(out, "# HELP moonlet:%s %s.\n# TYPE moonlet:%s counter\n", name, help, name);
    for (int i = 0; i < kv_fetcher_peers(f); i++) {
        const char *url;
        const kv_peer_stats p = kv_fetcher_peer(f, i, &url);
        buf_fmt(out, "moonlet:%s", name);
        label(out, model);
        buf_fmt(out, ",server=");
        buf_json_str(out, url, strlen(url));
        buf_fmt(out, "} %.10g\n", of(&p));
    }
}

static f64 peer_transfers(const kv_peer_stats *p) { return (f64)p->transfers; }
static f64 peer_failures(const kv_peer_stats *p) { return (f64)p->failures; }
static f64 peer_bytes(const kv_peer_stats *p) { return (f64)p->bytes; }
static f64 peer_seconds(const kv_peer_stats *p) { return p->seconds; }

void metrics_write_host_cache(const host_cache_stats *s, i64 page_tokens, const char *model, buf *out) {
    const f64 each = (f64)page_tokens;
    one(out, "moonlet:", "host_cache_tokens", "gauge", "Tokens for whose KV rows the host's memory has room", model,
        (f64)s->places * each);
    one(out, "moonlet:", "host_cache_tokens_held", "gauge", "Tokens whose KV rows are there", model,
        (f64)s->held * each);
    one(out, "moonlet:", "host_cache_tokens_saved_total", "counter", "Tokens whose KV rows were copied there", model,
        (f64)s->saved * each);
    one(out, "moonlet:", "host_cache_tokens_loaded_total", "counter",
        "Tokens whose KV rows came from there instead of being computed", model, (f64)s->loaded * each);
    one(out, "moonlet:", "host_cache_tokens_evicted_total", "counter", "Tokens whose KV rows made room for others",
        model, (f64)s->evicted * each);
}

void metrics_write_kv(const sched_stats *s, kv_fetcher *f, const char *model, buf *out) {
    if (!f) {
        one(out, "moonlet:", "kv_prompts_sending", "gauge", "Prompts whose KV pages are on their way to other servers",
            model, (f64)s->kv_out);
        one(out, "moonlet:", "kv_tokens_sent_total", "counter", "Tokens whose KV pages other servers asked for", model,
            (f64)s->kv_tokens_out);
        return;
    }
    one(out, "moonlet:", "kv_prompts_fetching", "gauge", "Prompts that wait for KV pages of other servers", model,
        (f64)s->kv_in);
    one(out, "moonlet:", "kv_tokens_fetched_total", "counter", "Tokens whose KV pages came from other servers", model,
        (f64)s->kv_tokens_in);
    one(out, "moonlet:", "kv_prompts_failed_total", "counter", "Times that the KV pages of a prompt did not come",
        model, (f64)s->kv_failed);
    write_peers(f, "kv_transfers_total", "Transfers that ended, by server", peer_transfers, model, out);
    write_peers(f, "kv_transfer_failures_total", "Of these, transfers that failed", peer_failures, model, out);
    write_peers(f, "kv_transfer_bytes_total", "Bytes of KV pages", peer_bytes, model, out);
    write_peers(f, "kv_transfer_seconds_total", "Time in transfers, from question to last page", peer_seconds, model,
                out);
}
