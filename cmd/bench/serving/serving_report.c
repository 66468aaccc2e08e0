#include "cmd/bench/serving/serving_report.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void centered(const char *title, char fill) {
    int n = (int)strlen(title) + 2, left = (50 - n) / 2;
    for (int i = 0; i < left; i++) putchar(fill);
    printf(" %s ", title);
    for (int i = 0; i < 50 - n - left; i++) putchar(fill);
    putchar('\n');
}

static void row_text(const char *label, const char *value) { printf("%-40s %-10s\n", label, value); }
static void row_int(const char *label, i64 v) { printf("%-40s %-10lld\n", label, (long long)v); }
static void row(const char *label, f64 v) { printf("%-40s %-10.2f\n", label, v); }

static void limit_row(const char *label, f64 v, const char *none) {
    char text[32];
    snprintf(text, sizeof text, "%g", v);
    row_text(label, v ? text : none);
}

static void section(const char *title, const char *name, const summary *s, bool tail) {
    char label[64];
    centered(title, '-');
#define ROW(what, value) snprintf(label, sizeof label, what " %s (ms):", name), row(label, value)
    ROW("Mean", s->mean);
    ROW("Median", s->median);
    ROW("Std", s->std);
    if (!tail) ROW("P90", s->p90);
    if (tail) ROW("P95", s->p95);
    ROW("P99", s->p99);
    if (tail) ROW("Max", s->max);
#undef ROW
}

static void print_counts(const serving_metrics *m) {
    row_int("Successful requests:", m->completed);
    if (m->failed) row_int("Failed requests:", m->failed);
    row("Benchmark duration (s):", m->duration_s);
    row_int("Total input tokens:", m->input_tokens);
    row_int("Total input text tokens:", m->input_tokens);
    if (m->server_input_tokens >= 0 && m->server_input_tokens != m->input_tokens)
        row_int("Total input tokens (server):", m->server_input_tokens);
    if (m->cached_tokens >= 0) row_int("Total cached input tokens:", m->cached_tokens);
    row_int("Total generated tokens:", m->output_tokens);
    if (m->retokenized >= 0) row_int("Total generated tokens (retokenized):", m->retokenized);
}

static bool simulated(const serving_setup *s) { return json_is_true(json_object_get(s->server_info, "simulated")); }

void serving_print(const serving_setup *s, const workload *w, const serving_metrics *m) {
    putchar('\n');
    centered("Serving Benchmark Result", '=');
    row_text("Backend:", s->backend);
    if (simulated(s)) row_text("Model:", "SIMULATED, nothing is computed");
    row_text("Dataset:", w->name);
    limit_row("Traffic request rate:", s->rate, "inf");
    limit_row("Max request concurrency:", (f64)s->concurrency, "not set");
    print_counts(m);
    row("Request throughput (req/s):", m->request_rate);
    row("Input token throughput (tok/s):", m->input_rate);
    row("Output token throughput (tok/s):", m->output_rate);
    if (m->streamed) row("Peak output token throughput (tok/s):", m->peak_output);
    row("Peak concurrent requests:", m->peak_requests);
    row("Total token throughput (tok/s):", m->total_rate);
    row("Concurrency:", m->concurrency);
    const bool pinned = json_object_get(s->server_info, "speculative_pinned_accept") != NULL;
    if (!isnan(m->accept_length)) row(pinned ? "Accept length (PINNED):" : "Accept length:", m->accept_length);
    section("End-to-End Latency", "E2E Latency", &m->e2e, false);
    if (m->streamed) {
        section("Time to First Token", "TTFT", &m->ttft, false);
        section("Time per Output Token (excl. 1st token)", "TPOT", &m->tpot, false);
        section("Inter-Token Latency", "ITL", &m->itl, true);
    }
    for (int i = 0; i < 50; i++) putchar('=');
    putchar('\n');
    fflush(stdout);
}

/* ---- JSON ---- */

static bool set(json_t *o, const char *key, json_t *v) { return json_object_set_new(o, key, v) == 0; }
static json_t *text(const char *s) { return s ? json_string(s) : json_null(); }
static json_t *real(f64 v) { return isfinite(v) ? json_real(v) : json_null(); }
static json_t *serving_report_count(i64 v) { return v >= 0 ? json_integer(v) : json_null(); }

static bool set_summary(json_t *o, const char *name, const summary *s, bool known) {
    const struct {
        const char *what;
        f64 v;
    } parts[] = {{"mean", s->mean}, {"median", s->median}, {"std", s->std}, {"p90", s->p90},
                 {"p95", s->p95},   {"p99", s->p99},       {"max", s->max}};
    char key[64];
    bool ok = true;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        snprintf(key, sizeof key, "%s_%s_ms", parts[i].what, name);
        ok &= set(o, key, known && s->n ? real(parts[i].v) : json_null());
    }
    return ok;
}

static bool set_setup(json_t *o, const serving_setup *s, const workload *w) {
    const workload_options *x = s->workload;
    bool random = !strncmp(w->name, "random", 6);
    return set(o, "tag", text(s->tag)) && set(o, "backend", text(s->backend)) && set(o, "model", text(s->model)) &&
           set(o, "simulated", json_boolean(simulated(s))) && set(o, "tokenizer", text(s->tokenizer)) &&
           set(o, "dataset_name", text(w->name)) && set(o, "dataset_path", text(x->path)) &&
           set(o, "request_rate", s->rate ? json_real(s->rate) : json_string("inf")) &&
           set(o, "max_concurrency", s->concurrency ? json_integer(s->concurrency) : json_null()) &&
           set(o, "num_prompts", json_integer(w->n)) && set(o, "seed", json_integer(x->seed)) &&
           set(o, "sharegpt_output_len", x->fixed_output ? json_integer(x->fixed_output) : json_null()) &&
           set(o, "random_input_len", random ? json_integer(x->input_len) : json_null()) &&
           set(o, "random_output_len", random ? json_integer(x->output_len) : json_null()) &&
           set(o, "random_range_ratio", random ? json_real(x->range_ratio) : json_null()) &&
           set(o, "server_info", s->server_info ? json_deep_copy(s->server_info) : json_null());
}

static bool set_metrics(json_t *o, const serving_setup *s, const serving_metrics *m) {
    f64 per_gpu = m->total_rate / (f64)s->gpus;
    bool ok = set(o, "duration", json_real(m->duration_s)) && set(o, "completed", json_integer(m->completed)) &&
              set(o, "failed", json_integer(m->failed)) &&
              set(o, "total_input_tokens", json_integer(m->input_tokens)) &&
              set(o, "total_input_text_tokens", json_integer(m->input_tokens)) &&
              set(o, "total_input_vision_tokens", json_integer(0)) &&
              set(o, "total_input_tokens_server", serving_report_count(m->server_input_tokens)) &&
              set(o, "total_cached_tokens", serving_report_count(m->cached_tokens)) &&
              set(o, "total_output_tokens", json_integer(m->output_tokens)) &&
              set(o, "total_output_tokens_retokenized", serving_report_count(m->retokenized)) &&
              set(o, "request_throughput", real(m->request_rate)) && set(o, "input_throughput", real(m->input_rate)) &&
              set(o, "output_throughput", real(m->output_rate)) && set(o, "total_throughput", real(m->total_rate));
    ok = ok && set_summary(o, "e2e_latency", &m->e2e, true) && set_summary(o, "ttft", &m->ttft, m->streamed) &&
         set_summary(o, "tpot", &m->tpot, m->streamed) && set_summary(o, "itl", &m->itl, m->streamed);
    return ok && set(o, "concurrency", real(m->concurrency)) && set(o, "accept_length", real(m->accept_length)) &&
           set(o, "max_output_tokens_per_s", m->streamed ? real(m->peak_output) : json_null()) &&
           set(o, "max_concurrent_requests", json_integer((json_int_t)m->peak_requests)) &&
           set(o, "gpus", json_integer(s->gpus)) && set(o, "tput_per_gpu", real(per_gpu)) &&
           set(o, "output_tput_per_gpu", real(m->output_rate / (f64)s->gpus)) &&
           set(o, "median_intvty", m->tpot.median > 0 ? real(1e3 / m->tpot.median) : json_null()) &&
           set(o, "client_cpu_share", real(m->client_cpu));
}

static bool set_details(json_t *o, const workload *w) {
    json_t *in = json_array(), *out = json_array(), *ttft = json_array(), *itls = json_array();
    json_t *texts = json_array(), *errors = json_array(), *turns = json_array();
    for (i64 i = 0; i < w->n; i++) {
        const load_item *it = &w->items[i];
        const client_answer *a = &it->a;
        json_t *gaps = json_array();
        for (i64 k = 0; k < a->gaps.n; k++) json_array_append_new(gaps, json_real(a->gaps.data[k]));
        json_array_append_new(itls, gaps);
        json_array_append_new(in, json_integer(it->input_tokens));
        json_array_append_new(out, json_integer(a->ok ? a->output_tokens : 0));
        json_array_append_new(ttft, json_real(a->ok && a->first_s ? a->first_s - a->start_s : 0));
        json_array_append_new(texts, json_stringn_nocheck(a->text.data ? a->text.data : "", a->text.len));
        json_array_append_new(errors, json_string(a->error));
        json_array_append_new(turns, json_integer(it->turn));
    }
    return set(o, "input_lens", in) && set(o, "output_lens", out) && set(o, "ttfts", ttft) && set(o, "itls", itls) &&
           set(o, "generated_texts", texts) && set(o, "errors", errors) && set(o, "turns", turns);
}

json_t *serving_json(const serving_setup *s, const workload *w, const serving_metrics *m) {
    json_t *o = json_object();
    bool ok = o && set_setup(o, s, w) && set_metrics(o, s, m) && (!s->details || set_details(o, w));
    if (ok) return o;
    json_decref(o);
    return NULL;
}

void serving_print_failures(const workload *w) {
    enum { KINDS = 8 };
    const char *kinds[KINDS];
    i64 n[KINDS] = {0}, have = 0, others = 0;
    for (i64 i = 0; i < w->n; i++) {
        const client_answer *a = &w->items[i].a;
        i64 k = 0;
        if (a->ok) continue;
        while (k < have && strcmp(kinds[k], a->error)) k++;
        if (k == KINDS) {
            others++;
            continue;
        }
        if (k == have) kinds[have++] = a->error;
        n[k]++;
    }
    for (i64 k = 0; k < have; k++) fprintf(stderr, "%lld failed: %s\n", (long long)n[k], kinds[k]);
    if (others) fprintf(stderr, "%lld failed for other reasons (--output-details lists them)\n", (long long)others);
}
