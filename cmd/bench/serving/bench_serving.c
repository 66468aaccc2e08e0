/* cmd/bench/serving/bench_serving.c: `moonlet bench serving`: the workloads and metrics of SGLang's bench_serving,
 * against a server or an engine in this process; sweeps over concurrencies; comparison of result files. */
#include "cmd/bench/bench.h"
#include "base/log.h"
#include "cmd/bench/serving/pareto_curves.h"
#include "cmd/bench/profile_table.h"
#include "cmd/bench/serving/serving_report.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static const struct {
    const char *name;
    client_api api;
    bool token_ids;
    int port;
} backends[] = {
    {"moonlet", API_COMPLETIONS, true, 30000},     {"moonlet-chat", API_CHAT, true, 30000},
    {"sglang", API_GENERATE, false, 30000},        {"sglang-native", API_GENERATE, false, 30000},
    {"sglang-oai", API_COMPLETIONS, false, 30000}, {"sglang-oai-chat", API_CHAT, false, 30000},
    {"vllm", API_COMPLETIONS, false, 8000},        {"vllm-chat", API_CHAT, false, 8000},
    {"openai", API_COMPLETIONS, false, 30000},     {"openai-chat", API_CHAT, false, 30000},
};
#define BACKENDS                                                                                                       \
    "moonlet|moonlet-chat|sglang|sglang-native|sglang-oai|sglang-oai-chat|vllm|vllm-chat|openai|openai-chat"

typedef struct {
    model_opts m;
    bool in_process, skip_warm_up, disable_stream, disable_ignore_eos, flush_cache, details, quiet, logprobs, compare;
    const char *backend, *base_url, *host, *served_name, *tokenizer_dir, *output, *extra, *rate_text, *tag, *sweep,
        *chart, *iso;
    i64 port, concurrency, warmup, num_prompts, seed, gpus, max_running, simulated_us, answer_mb;
    bool no_overlap, no_jump;
    speculative_opts draft;
    f64 stall_s, temperature, rate, constrained;
    workload_options w;
    /* made of these */
    json_t *extra_json, *info;
    char url[600];
    tokenizer *own_tok;
    const tokenizer *tok;
    char *tok_dir;
    client *c;
    bool failed_all;
} serving;

/* ---- from options to a client ---- */

static size_t backend_index(const serving *s) {
    size_t i = 0;
    while (strcmp(backends[i].name, s->backend)) i++;
    return i;
}

static status numbers_of(const char *list, const char *option, f64 lo, f64 *out, int most, int *n, err *e) {
    *n = 0;
    for (const char *p = list; *p;) {
        char *end;
        f64 v = strtod(p, &end);
        if (end == p || (*end && *end != ',') || !isfinite(v) || v < lo)
            return err_set(e, ST_INPUT, "%s is \"%.100s\", not numbers with commas between them", option, list);
        if (*n == most) return err_set(e, ST_INPUT, "%s has more than %d numbers", option, most);
        out[(*n)++] = v;
        p = end + (*end == ',');
    }
    return *n ? ST_OK : err_set(e, ST_INPUT, "%s is empty", option);
}

static status finish_options(serving *s, err *e) {
    s->w.seed = (u32)s->seed;
    char *end = NULL;
    if (strcmp(s->rate_text, "inf")) {
        s->rate = strtod(s->rate_text, &end);
        if (end == s->rate_text || *end || !isfinite(s->rate) || s->rate <= 0)
            return err_set(e, ST_INPUT, "--request-rate is \"%s\", neither a number above 0 nor inf", s->rate_text);
    }
    if (s->extra) {
        s->extra_json = json_parse(s->extra, strlen(s->extra), "--extra-request-body", e);
        if (!s->extra_json) return e->code;
        if (!json_is_object(s->extra_json)) return err_set(e, ST_INPUT, "--extra-request-body is no JSON object");
    }
    if (s->iso) return err_set(e, ST_INPUT, "--iso goes with --compare");
    if (s->in_process && (s->backend || s->base_url || s->served_name || s->tokenizer_dir))
        return err_set(e, ST_INPUT,
                       "--in-process goes without --backend, --base-url, --served-model-name and --tokenizer");
    if (!s->in_process && (s->constrained < 1 || s->no_jump || s->draft.algorithm || s->draft.draft_dir))
        return err_set(e, ST_INPUT,
                       "--constrained-share, --disable-jump-forward and --speculative-* go with --in-process");
    if (!s->extra && s->constrained < 1)
        return err_set(e, ST_INPUT, "--constrained-share needs --extra-request-body '{\"json_schema\": {...}}'");
    if (!s->in_process && s->simulated_us >= 0)
        return err_set(e, ST_INPUT, "--simulate-step goes with --in-process; a server has a flag of that name");
    model_opts_simulate(&s->m, s->simulated_us);
    if (!s->in_process && s->m.engine.profile) return err_set(e, ST_INPUT, "--profile goes with --in-process");
    if (!s->in_process && s->no_overlap)
        return err_set(e, ST_INPUT,
                       "--disable-overlap-schedule goes with --in-process; a server has a flag of that name");
    if (!s->in_process && s->stall_s >= 0)
        return err_set(e, ST_INPUT, "--decode-stall goes with --in-process; a server has a flag of that name");
    if (!s->in_process && s->skip_warm_up)
        return err_set(e, ST_INPUT, "--skip-server-warmup goes with --in-process; a server has a flag of that name");
    if (s->in_process && s->disable_stream) return err_set(e, ST_INPUT, "--in-process has no --disable-stream");
    if (!s->backend) s->backend = "moonlet";
    if (s->base_url)
        snprintf(s->url, sizeof s->url, "%.590s", s->base_url);
    else
        snprintf(s->url, sizeof s->url, "http://%.500s:%lld", s->host,
                 (long long)(s->port ? s->port : backends[backend_index(s)].port));
    return ST_OK;
}

/* Every stream is a socket. */
static void raise_file_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static bool is_folder(const char *path) {
    struct stat st;
    return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* --tokenizer, --model when it is a folder, or where the server says that its own is. */
static status open_tokenizer(serving *s, err *e) {
    static const char *const keys[] = {"tokenizer_path", "model_path"};
    if (s->tokenizer_dir || is_folder(s->m.model)) {
        s->tok_dir = strdup(s->tokenizer_dir ? s->tokenizer_dir : s->m.model);
        if (!s->tok_dir) return err_nomem(e, "a name", 0);
    }
    for (size_t i = 0; i < COUNT_OF(keys) && !s->tok_dir; i++) {
        s->tok_dir = client_http_model_info(s->c, keys[i]);
        if (is_folder(s->tok_dir)) break;
        free(s->tok_dir);
        s->tok_dir = NULL;
    }
    if (!s->tok_dir)
        return err_set(e, ST_INPUT,
                       "prompts are counted in tokens, and the server names no folder of a tokenizer that is here: "
                       "give --tokenizer DIR");
    status st = tokenizer_open(&s->own_tok, s->tok_dir, e);
    s->tok = s->own_tok;
    return st;
}

static status serving_open_client(serving *s, i64 most, err *e) {
    client_options o = {.stream = !s->disable_stream,
                        .ignore_eos = !s->disable_ignore_eos,
                        .logprobs = s->logprobs,
                        .temperature = s->temperature,
                        .extra = s->extra_json};
    if (s->in_process) {
        client_engine_options eo = {.m = &s->m,
                                    .max_running = s->max_running ? s->max_running
                                                   : most         ? most
                                                                  : 256,
                                    .disable_overlap = s->no_overlap,
                                    .decode_stall_s = s->stall_s,
                                    .warm_up = !s->skip_warm_up,
                                    .disable_jump_forward = s->no_jump,
                                    .draft = &s->draft,
                                    .constrained_share = s->constrained,
                                    .o = o};
        status st = client_engine_open(&s->c, &eo, e);
        if (st == ST_OK) s->tok = client_engine_tokenizer(s->c);
        return st;
    }
    raise_file_limit();
    size_t b = backend_index(s);
    client_http_options ho = {
        s->url, backends[b].api, backends[b].token_ids, s->served_name ? s->served_name : s->m.model, o, s->answer_mb};
    status st = client_http_open(&s->c, &ho, e);
    return st == ST_OK ? open_tokenizer(s, e) : st;
}

/* ---- one run ---- */

/* The first prompt again and again, with at most 32 tokens of output; one that fails ends the command. */
static status warm_up(serving *s, const workload *w, err *e) {
    for (i64 i = 0; i < s->warmup; i++) {
        client_request q = w->items[0].q;
        client_answer a = {0};
        q.body = (buf){0};
        q.max_tokens = min_i64(q.max_tokens, 32);
        status st = client_start(s->c, &q, &a, e);
        if (st == ST_OK) {
            while (!client_wait(s->c, now_s() + 3600)) continue;
            if (!a.ok) st = err_set(e, ST_IO, "the warm-up request failed: %s", a.error);
        }
        client_answer_free(&a);
        client_request_free(&q);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

static status measured_run(serving *s, workload *w, i64 concurrency, load_result *r, err *e) {
    status st = warm_up(s, w, e);
    if (st == ST_OK && s->flush_cache) st = client_flush(s->c, e);
    for (i64 i = 0; i < w->n && st == ST_OK; i++)
        if (!w->items[i].follows) st = client_prepare(s->c, &w->items[i].q, e);
    if (st != ST_OK) return st;
    if (!s->in_process && s->warmup) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    load_options o = {.concurrency = concurrency,
                      .rate = s->rate,
                      .rng = &w->rng,
                      .progress = !s->quiet,
                      .extend = workload_extend,
                      .ud = w};
    return load_run(s->c, w->items, w->n, &o, r, e);
}

static status append_line(const char *path, const json_t *o, err *e) {
    char *text = o ? json_to_text(o, &json_compact) : NULL;
    if (!text) return err_nomem(e, "the result", 0);
    FILE *f = path ? fopen(path, "a") : NULL;
    bool bad = path && (!f || fprintf(f, "%s\n", text) < 0);
    if (f && fclose(f)) bad = true;
    free(text);
    return bad ? err_set(e, ST_IO, "%s: %s", path, strerror(errno)) : ST_OK;
}

static serving_setup setup_of(const serving *s, i64 concurrency) {
    return (serving_setup){.tag = s->tag,
                           .backend = s->in_process ? "moonlet-in-process" : s->backend,
                           .model = s->c->name,
                           .tokenizer = s->in_process ? s->c->name : s->tok_dir,
                           .rate = s->rate,
                           .concurrency = concurrency,
                           .gpus = s->gpus,
                           .workload = &s->w,
                           .server_info = s->info,
                           .details = s->details};
}

static void warn_of(const serving_metrics *m, const workload *w) {
    if (m->failed) serving_print_failures(w);
    if (m->uncounted)
        log_warn("the server did not count the tokens of %lld answers: their requested length is taken",
                 (long long)m->uncounted);
    if (m->client_cpu > 0.8)
        log_warn("this client computed for %.0f %% of the time: it may be what limits the result", 100 * m->client_cpu);
}

/* One run of `n` requests; its result is printed, appended to the file and to `runs`. */
static status serving_run_once(serving *s, i64 n, i64 concurrency, json_t *runs, err *e) {
    workload w;
    load_result r = {0};
    serving_metrics m = {0};
    s->w.n = n;
    status st = workload_make(&w, &s->w, s->tok, e);
    if (st == ST_OK) st = measured_run(s, &w, concurrency, &r, e);
    if (st == ST_OK) st = workload_count(&w, e);
    if (st == ST_OK) st = serving_measure(&w, &r, !s->disable_stream, true, &m, e);
    if (st == ST_OK) {
        json_decref(s->info);
        s->info = client_info(s->c);
        m.accept_length = accept_length_of(s->info);
        serving_setup setup = setup_of(s, concurrency);
        json_t *o = serving_json(&setup, &w, &m);
        serving_print(&setup, &w, &m);
        warn_of(&m, &w);
        st = append_line(s->output, o, e);
        if (json_array_append_new(runs, o)) st = err_nomem(e, "the result", 0);
        s->failed_all |= !m.completed;
    }
    workload_free(&w);
    return st;
}

static status serving_sweep(serving *s, json_t *runs, err *e) {
    f64 list[64];
    int n;
    status st = numbers_of(s->sweep, "--sweep", 1, list, COUNT_OF(list), &n, e);
    for (int i = 0; i < n && st == ST_OK; i++)
        st = serving_run_once(s, s->num_prompts ? s->num_prompts : 10 * (i64)list[i], (i64)list[i], runs, e);
    return st;
}

static i64 serving_largest(const char *list) {
    f64 v[64], most = 0;
    int n;
    if (numbers_of(list, "--sweep", 1, v, COUNT_OF(v), &n, NULL) != ST_OK) return 0;
    for (int i = 0; i < n; i++) most = fmax(most, v[i]);
    return (i64)most;
}

static status serving_run(serving *s, err *e) {
    curve c = {0};
    json_t *runs = json_array();
    f64 list[64];
    int n;
    status st = finish_options(s, e);
    if (st == ST_OK && s->sweep) st = numbers_of(s->sweep, "--sweep", 1, list, COUNT_OF(list), &n, e);
    if (st == ST_OK) st = serving_open_client(s, s->sweep ? serving_largest(s->sweep) : s->concurrency, e);
    if (st == ST_OK && !strcmp(s->w.name, "random") && !s->w.path)
        log_note("no --dataset-path: seeded token ids instead of text, reported as random-ids");
    if (st == ST_OK)
        st = s->sweep ? serving_sweep(s, runs, e)
                      : serving_run_once(s, s->num_prompts ? s->num_prompts : 1000, s->concurrency, runs, e);
    if (st == ST_OK && (s->sweep || s->chart)) {
        bool simulated = json_is_true(json_object_get(s->info, "simulated"));
        char name[300];
        snprintf(name, sizeof name, "%.250s%s", s->tag ? s->tag : s->c->name, simulated ? " (SIMULATED)" : "");
        st = curve_of(&c, name, json_incref(runs), e);
        if (st == ST_OK && s->sweep) curve_print(&c);
        if (st == ST_OK && s->chart) st = curves_chart(&c, 1, s->chart, e);
        curve_free(&c);
    }
    if (st == ST_OK && s->in_process) profile_print(stdout, client_engine_engine(s->c));
    json_decref(runs);
    return st;
}

/* ---- comparison ---- */

static status serving_compare(const serving *s, const opt_list *files, err *e) {
    curve c[32] = {0};
    f64 iso[32];
    int n_iso = 0, n = files->n;
    status st = ST_OK;
    if (s->iso) st = numbers_of(s->iso, "--iso", 0, iso, COUNT_OF(iso), &n_iso, e);
    for (int i = 0; i < n && st == ST_OK; i++) st = curve_read(&c[i], files->items[i], e);
    for (int i = 1; i < n && st == ST_OK; i++) curves_compare(&c[0], &c[i], iso, n_iso);
    if (st == ST_OK && s->chart) st = curves_chart(c, n, s->chart, e);
    for (int i = 0; i < n; i++) curve_free(&c[i]);
    return st;
}

static void serving_free_all(serving *s) {
    client_close(s->c);
    tokenizer_close(s->own_tok);
    json_decref(s->extra_json);
    json_decref(s->info);
    free(s->tok_dir);
}

int bench_serving(int argc, char **argv) {
    serving s = {.host = "127.0.0.1",
                 .rate_text = "inf",
                 .warmup = 1,
                 .seed = 1,
                 .gpus = 1,
                 .simulated_us = -1,
                 .stall_s = -1,
                 .constrained = 1,
                 .answer_mb = ANSWER_MB,
                 .w = {.name = "random", .input_len = 1024, .output_len = 1024}};
    opt_list files = {0};
    const opt_spec specs[] = {
        MODEL_OPTS(s.m),
        OPT_GROUP("Server"),
        {"backend", 0, OPT_ENUM, &s.backend, BACKENDS,
         "endpoint: moonlet, openai, vllm: /v1/completions; ...-chat: /v1/chat/completions; sglang: /generate", 0, 0},
        {"base-url", 0, OPT_STR, &s.base_url, "URL", "the server (default: http://HOST:PORT)", 0, 0},
        {"host", 0, OPT_STR, &s.host, "HOST", "(default: 127.0.0.1)", 0, 0},
        {"port", 0, OPT_INT, &s.port, "N", "(default: 30000, vllm 8000)", 1, 65535},
        {"served-model-name", 0, OPT_STR, &s.served_name, "NAME",
         "model named in requests (default: --model, else the first of /v1/models)", 0, 0},
        ANSWER_MB_OPT(s.answer_mb),
        {"tokenizer", 0, OPT_STR, &s.tokenizer_dir, "DIR",
         "folder of the tokenizer (default: --model if a folder, else what the server names)", 0, 0},
        {"num-gpus", 0, OPT_INT, &s.gpus, "N", "GPUs of the server, for tok/s per GPU (default: 1)", 1, 1e6},
        OPT_GROUP("An engine in this process instead"),
        {"in-process", 0, OPT_FLAG, &s.in_process, NULL, "an engine in this process (-m DIR), no HTTP", 0, 0},
        {"max-running-requests", 0, OPT_INT, &s.max_running, "N",
         "in-process: most at a time (default: --max-concurrency, else 256)", 1, 65536},
        {"disable-overlap-schedule", 0, OPT_FLAG, &s.no_overlap, NULL,
         "in-process on a GPU: a step is not queued before the one before it has ended", 0, 0},
        {"decode-stall", 0, OPT_REAL, &s.stall_s, "S",
         "in-process: a server's flag of that name: how long a step with prompts may take beside answers", 0, 1000},
        {"skip-server-warmup", 0, OPT_FLAG, &s.skip_warm_up, NULL,
         "in-process on a GPU: no steps before the first request, as with a server's flag of that name", 0, 0},
        {"profile", 0, OPT_FLAG, &s.m.engine.profile, NULL, "in-process on a GPU: prints the time of each kernel", 0,
         0},
        SIMULATE_OPT(s.simulated_us),
        OPT_GROUP("Requests"),
        {"dataset-name", 0, OPT_ENUM, &s.w.name, "random|random-ids|sharegpt|jsonl|trace",
         "(default: random; without --dataset-path random-ids)", 0, 0},
        {"dataset-path", 0, OPT_STR, &s.w.path, "FILE", "ShareGPT JSON, JSON lines or plain text", 0, 0},
        {"num-prompts", 0, OPT_INT, &s.num_prompts, "N",
         "requests, of a trace conversations (default: 1000; in a sweep 10 times the concurrency)", 1, 1e8},
        {"random-input-len", 0, OPT_INT, &s.w.input_len, "N", "prompt tokens (default: 1024)", 1, 1e7},
        {"random-input", 0, OPT_INT, &s.w.input_len, "N", "the same", 1, 1e7},
        {"random-output-len", 0, OPT_INT, &s.w.output_len, "N", "output tokens (default: 1024)", 1, 1e7},
        {"random-output", 0, OPT_INT, &s.w.output_len, "N", "the same", 1, 1e7},
        {"random-range-ratio", 0, OPT_REAL, &s.w.range_ratio, "R",
         "lengths are uniform in [R x length, length] (default: 0)", 0, 1},
        {"sharegpt-output-len", 0, OPT_INT, &s.w.fixed_output, "N", "output tokens, whatever the data says", 1, 1e7},
        {"tokenize-prompt", 0, OPT_FLAG, &s.w.as_ids, NULL, "sends token ids (random-ids always does)", 0, 0},
        {"no-delays", 0, OPT_FLAG, &s.w.no_delays, NULL, "trace: a turn follows at once", 0, 0},
        {"seed", 0, OPT_INT, &s.seed, "N", "(default: 1)", 0, 4294967295.0},
        {"temperature", 0, OPT_REAL, &s.temperature, "T", "(default: 0)", 0, 100},
        {"disable-stream", 0, OPT_FLAG, &s.disable_stream, NULL, "whole answers; no TTFT, TPOT, ITL", 0, 0},
        {"disable-ignore-eos", 0, OPT_FLAG, &s.disable_ignore_eos, NULL, "answers may end early", 0, 0},
        {"return-logprob", 0, OPT_FLAG, &s.logprobs, NULL, "asks for logprobs", 0, 0},
        {"extra-request-body", 0, OPT_STR, &s.extra, "JSON",
         "object whose members are added to requests; in-process: json_schema, regex or ebnf", 0, 0},
        {"constrained-share", 0, OPT_REAL, &s.constrained, "R",
         "in-process: share of the requests that --extra-request-body holds for (default: 1)", 0, 1},
        {"disable-jump-forward", 0, OPT_FLAG, &s.no_jump, NULL,
         "in-process: tokens that a grammar forces are drawn like others", 0, 0},
        SPECULATIVE_OPTS(s.draft),
        OPT_GROUP("Load"),
        {"request-rate", 0, OPT_STR, &s.rate_text, "R", "requests a second, Poisson, or inf (default: inf)", 0, 0},
        {"max-concurrency", 0, OPT_INT, &s.concurrency, "N", "requests at a time (default: 0, no limit)", 0, 1e6},
        {"sweep", 0, OPT_STR, &s.sweep, "N,N,...", "a run for each of these concurrencies", 0, 0},
        {"warmup-requests", 0, OPT_INT, &s.warmup, "N", "before the run (default: 1)", 0, 1e6},
        {"flush-cache", 0, OPT_FLAG, &s.flush_cache, NULL, "empties the prefix cache after the warm-up", 0, 0},
        OPT_GROUP("Results"),
        {"output-file", 0, OPT_STR, &s.output, "FILE", "appends a JSON line a run", 0, 0},
        {"json", 0, OPT_STR, &s.output, "FILE", "the same", 0, 0},
        {"output-details", 0, OPT_FLAG, &s.details, NULL, "with every request's numbers and text", 0, 0},
        {"tag", 0, OPT_STR, &s.tag, "TEXT", "name of the run in results and charts", 0, 0},
        {"chart", 0, OPT_STR, &s.chart, "FILE.svg", "tok/s per GPU over tok/s per user, frontier drawn", 0, 0},
        {"disable-tqdm", 0, OPT_FLAG, &s.quiet, NULL, "no progress line", 0, 0},
        OPT_GROUP("Result files compared"),
        {"compare", 0, OPT_FLAG, &s.compare, NULL, "compares result files: --compare A.jsonl B.jsonl", 0, 0},
        {"iso", 0, OPT_STR, &s.iso, "X,X,...", "compare: at these tok/s per GPU (default: those measured)", 0, 0},
    };
    int done = cmd_options("bench serving", "[options] | --compare A.jsonl B.jsonl [--chart FILE.svg]", specs,
                           COUNT_OF(specs), argc, argv, &files);
    if (done >= 0) return done;
    if (s.compare ? files.n < 2 : files.n) {
        fprintf(stderr,
                s.compare ? "moonlet bench serving: --compare needs two or more result files\n"
                          : "moonlet bench serving: unexpected word \"%s\"\n",
                files.items[0]);
        return EXIT_USAGE;
    }
    err e = {0};
    status st = s.compare ? serving_compare(&s, &files, &e) : serving_run(&s, &e);
    serving_free_all(&s);
    if (st != ST_OK) return cmd_fail("bench serving", &e);
    return s.failed_all ? EXIT_FAULT : EXIT_DONE;
}
