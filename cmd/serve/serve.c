/* cmd/serve/serve.c: `moonlet serve`: the model behind OpenAI's HTTP interface. */
#include "server/server.h"
#include "cmd/cmd.h"
#include "cmd/lib/speculative.h"
#include "cmd/serve/elsewhere.h"
#include <string.h>

typedef struct {
    model_opts m;
    server_options s;
    speculative_opts draft;
    const char *role, *calls, *reasoning, *policy, *space, *order;
    opt_list prefill, origins, hosts, remote_hosts, words;
    i64 max_body_mib, body_memory_mib, simulated_us;
    f64 host_cache_gb;
    bool no_space, host_cache;
} serve_opts;

static int serve_parse(serve_opts *o, int argc, char **argv) {
    server_options *s = &o->s;
    const opt_spec specs[] = {
        MODEL_OPTS(o->m),
        {"nnodes", 0, OPT_INT, &o->m.engine.nnodes, "N",
         "N processes, which mpirun has started, share the ranks of --tp (docs/guide/hosts.md; default: 1)", 1, 64},
        {"role", 0, OPT_ENUM, &o->role, "prefill|decode",
         "prompts and answers in servers of their own: computes prompts for others, or has them computed (docs/guide/roles.md)",
         0, 0},
        {"prefill-url", 0, OPT_LIST, &o->prefill, "URL",
         "with --role decode: http://HOST:PORT of a server of --role prefill; may be repeated", 0, 0},
        {"prefill-timeout", 0, OPT_REAL, &s->prefill_silence_s, "S",
         "seconds without a sign of life from it until a request is given up (default: 30)", 0.1, 1e6},
        {"prefill-min-tokens", 0, OPT_INT, &s->sched.fetch_least, "N",
         "prompts of which fewer tokens are not in the prefix cache are computed here (default: 256)", 1, 1e9},
        OPT_GROUP("Address, names and who may ask"),
        {"host", 0, OPT_STR, &s->host, "ADDRESS", "address to listen on (default: 127.0.0.1)", 0, 0},
        {"port", 0, OPT_INT, &s->port, "N", "port (default: 30000; 0: any free one, printed)", 0, 65535},
        {"served-model-name", 0, OPT_STR, &s->name, "NAME", "name in /v1/models (default: the folder's)", 0, 0},
        {"accept-any-model", 0, OPT_FLAG, &s->any_model, NULL, "a request's \"model\" may be anything", 0, 0},
        {"api-key", 0, OPT_STR, &s->api_key, "KEY", "asked for on every path but the page, /health*, /ping, /metrics",
         0, 0},
        {"allow-origin", 0, OPT_LIST, &o->origins, "ORIGIN",
         "pages of that origin may use the server, as http://HOST:PORT; * for all (default: only its own page)", 0, 0},
        {"allow-host", 0, OPT_LIST, &o->hosts, "NAME",
         "a name it may be called by, beside addresses and localhost (default: any, unless on loopback)", 0, 0},
        OPT_GROUP("Answers"),
        {"template", 0, OPT_ENUM, &s->template,
         "k2-instruct-0711|k2-instruct-0905|k2-instruct-r3|k2-thinking|k2.5|k2.6|k2.7-code",
         "chat template (default: the one the model's folder asks for)", 0, 0},
        {"tool-call-parser", 0, OPT_ENUM, &o->calls, "kimi_k2|none", "finds tool calls (default: kimi_k2)", 0, 0},
        {"reasoning-parser", 0, OPT_ENUM, &o->reasoning, "kimi_k2|none", "splits off the reasoning (default: kimi_k2)",
         0, 0},
        {"incremental-streaming-output", 0, OPT_FLAG, &s->incremental, NULL,
         "/generate streams new text instead of all so far", 0, 0},
        {"constrained-json-whitespace", 0, OPT_ENUM, &o->space, "any|line|none",
         "space in JSON that is held to a schema: as it comes, a blank behind , and : at most, none (default: line)", 0,
         0},
        {"constrained-json-disable-any-whitespace", 0, OPT_FLAG, &o->no_space, NULL,
         "SGLang's word for --constrained-json-whitespace none", 0, 0},
        {"constrained-json-property-order", 0, OPT_ENUM, &o->order, "any|schema",
         "properties in JSON that is held to a schema: as they come, or in the schema's order (default: any)", 0, 0},
        {"disable-jump-forward", 0, OPT_FLAG, &s->disable_jump_forward, NULL,
         "text that a grammar forces is drawn token by token", 0, 0},
        OPT_GROUP("Scheduling and memory"),
        {"max-running-requests", 0, OPT_INT, &s->engine.max_running, "N", "answers at a time (default: 16)", 1, 65536},
        {"max-queued-requests", 0, OPT_INT, &s->sched.max_queued, "N", "answers that may wait (default: 4096)", 1, 1e9},
        {"max-total-tokens", 0, OPT_INT, &s->engine.kv_tokens, "N",
         "tokens of the KV pool (default: what --mem-fraction-static leaves)", 1, 1e12},
        {"mem-fraction-static", 0, OPT_REAL, &s->engine.mem_fraction, "F",
         "share of the available memory for weights and KV pool (default: 0.88 on a GPU, else 0.5)", 0.01, 1},
        {"decode-stall", 0, OPT_REAL, &s->sched.decode_stall_s, "S",
         "longest step with prompts beside running answers, or three times their own; 0: no limit (default: 0.12 on a GPU, else 0)",
         0, 1000},
        {"schedule-policy", 0, OPT_ENUM, &o->policy, "fcfs|lpm",
         "who starts first: the first to come, or the longest prefix in the cache (default: fcfs)", 0, 0},
        {"schedule-conservativeness", 0, OPT_REAL, &s->sched.conservativeness, "F",
         "factor on the pages kept free for running answers (default: 1)", 0.01, 100},
        {"disable-radix-cache", 0, OPT_FLAG, &s->sched.disable_radix_cache, NULL, "no prefix cache", 0, 0},
        {"cache-prompts-only", 0, OPT_FLAG, &s->sched.cache_prompts_only, NULL, "answers never enter the prefix cache",
         0, 0},
        {"hicache-size", 0, OPT_REAL, &o->host_cache_gb, "GB",
         "GB of the host's memory for KV pages that the prefix cache has no room for (default: none)", 0, 1e6},
        {"hicache-ratio", 0, OPT_REAL, &s->sched.host_cache_ratio, "R",
         "the same as a multiple of what the KV pool takes", 0.01, 1000},
        {"enable-hierarchical-cache", 0, OPT_FLAG, &o->host_cache, NULL, "SGLang's word for --hicache-ratio 2", 0, 0},
        {"disable-overlap-schedule", 0, OPT_FLAG, &s->sched.disable_overlap, NULL,
         "on a GPU: a step is not queued before the one before it has ended", 0, 0},
        {"skip-server-warmup", 0, OPT_FLAG, &s->skip_warm_up, NULL,
         "on a GPU: ready at once, and the first request of each size waits for what the warm-up would have done", 0,
         0},
        SPECULATIVE_OPTS(o->draft),
        OPT_GROUP("Time limits of requests"),
        {"request-timeout", 0, OPT_REAL, &s->request_timeout_s, "S", "seconds a request may take (default: no limit)",
         0, 1e6},
        {"queue-timeout", 0, OPT_REAL, &s->sched.queue_timeout_s, "S", "seconds it may wait (default: no limit)", 0,
         1e6},
        {"watchdog-timeout", 0, OPT_REAL, &s->watchdog_s, "S",
         "/health fails when no step has ended for so long; on a GPU the server ends (default: 300)", 0.01, 1e6},
        {"drain-timeout", 0, OPT_REAL, &s->drain_s, "S", "seconds running answers get after SIGTERM (default: 60)", 0,
         1e6},
        OPT_GROUP("Connections and bodies"),
        {"max-connections", 0, OPT_INT, &s->connections, "N", "open connections (default: 1024)", 1, 30000},
        {"max-connection-requests", 0, OPT_INT, &s->requests_max, "N",
         "requests after which a connection is closed (default: 1000)", 1, 1e9},
        {"idle-timeout", 0, OPT_REAL, &s->limits.idle_s, "S",
         "seconds after which a connection without progress is closed (default: 60)", 1, 1e6},
        {"header-timeout", 0, OPT_REAL, &s->limits.header_s, "S",
         "seconds a request's headers may take to arrive (default: 10)", 0.1, 1e6},
        {"body-rate-min", 0, OPT_INT, &s->limits.body_rate, "N",
         "bytes a second of a body in every --header-timeout seconds, or it is dropped (default: 1024)", 1, 1e9},
        {"max-body-size", 0, OPT_INT, &o->max_body_mib, "MIB", "largest request in MiB (default: 64)", 1, 4096},
        {"max-body-memory", 0, OPT_INT, &o->body_memory_mib, "MIB",
         "memory for all requests' bodies while they are read (default: 512, or 4 times the largest)", 1, 1 << 20},
        OPT_GROUP("Pictures and videos"),
        {"max-pictures", 0, OPT_INT, &s->picture_most, "N", "pictures and videos of a request (default: 64)", 0, 1e6},
        {"max-picture-pixels", 0, OPT_INT, &s->picture_pixels, "N",
         "width times height of a picture, or of a video's frame, as it is sent (default: 100000000)", 1, 1e9},
        {"video-decoder", 0, OPT_STR, &s->video.decoder, "PATH",
         "the program that decodes videos (default: moonlet-video beside this one, else in PATH)", 0, 0},
        {"video-timeout", 0, OPT_INT, &s->video_seconds, "S", "processor time for decoding one video (default: 60)", 1,
         3600},
        {"allow-remote-media", 0, OPT_LIST, &o->remote_hosts, "HOST",
         "pictures and videos may come from http(s)://HOST, or HOST:PORT; may be repeated (default: nothing is fetched)",
         0, 0},
        {"remote-media-timeout", 0, OPT_REAL, &s->remote.seconds, "S", "seconds for fetching one (default: 10)", 0.01,
         600},
        OPT_GROUP("To watch and to measure"),
        {"log-requests", 0, OPT_FLAG, &s->log_requests, NULL, "a line a request on stderr, without its text", 0, 0},
        SIMULATE_OPT(o->simulated_us),
        OPT_ELSEWHERE(serve_elsewhere, n_serve_elsewhere),
    };
    return cmd_options("serve", "[-m DIR | DIR] [--port N] [options]", specs, COUNT_OF(specs), argc, argv, &o->words);
}

/* The model's folder may stand by itself, as in `vllm serve DIR`. */
static status serve_folder(serve_opts *o, err *e) {
    const int n = o->words.n;
    if (n > (o->m.model ? 0 : 1)) return err_set(e, ST_INPUT, "unexpected word \"%s\"", o->words.items[n - 1]);
    if (n) o->m.model = o->words.items[0];
    return ST_OK;
}

static status serve_role(serve_opts *o, err *e) {
    server_options *s = &o->s;
    s->role = !o->role ? ROLE_BOTH : strcmp(o->role, "decode") ? ROLE_PREFILL : ROLE_DECODE;
    s->prefill_urls = o->prefill.items;
    s->n_prefill_urls = o->prefill.n;
    if (s->role == ROLE_DECODE && !o->prefill.n)
        return err_set(e, ST_INPUT,
                       "--role decode needs --prefill-url: a server of --role prefill computes its prompts");
    if (s->role != ROLE_DECODE && (o->prefill.n || s->prefill_silence_s > 0 || s->sched.fetch_least))
        return err_set(e, ST_INPUT, "%s goes with --role decode",
                       o->prefill.n               ? "--prefill-url"
                       : s->prefill_silence_s > 0 ? "--prefill-timeout"
                                                  : "--prefill-min-tokens");
    if (!s->prefill_silence_s) s->prefill_silence_s = 30;
    if (!s->sched.fetch_least) s->sched.fetch_least = 256;
    if (s->role != ROLE_BOTH && o->m.engine.nnodes > 1)
        return err_set(e, ST_INPUT, "--role does not go with --nnodes: KV pages leave and enter one process's memory");
    return ST_OK;
}

static status serve_host_cache(serve_opts *o, err *e) {
    scheduler_options *s = &o->s.sched;
    const char *option = o->host_cache_gb > 0      ? "--hicache-size"
                         : s->host_cache_ratio > 0 ? "--hicache-ratio"
                         : o->host_cache           ? "--enable-hierarchical-cache"
                                                   : NULL;
    if (!option) return ST_OK;
    if (o->host_cache_gb > 0 && s->host_cache_ratio > 0)
        return err_set(e, ST_INPUT, "--hicache-size and --hicache-ratio say the same: leave one out");
    if (s->disable_radix_cache)
        return err_set(e, ST_INPUT, "%s needs the prefix cache: leave out --disable-radix-cache", option);
    if (o->m.engine.nnodes > 1)
        return err_set(e, ST_INPUT, "%s does not go with --nnodes: KV pages leave and enter one process's memory",
                       option);
    s->host_cache_bytes = (u64)(o->host_cache_gb * 1e9);
    if (o->host_cache && !s->host_cache_bytes && s->host_cache_ratio <= 0) s->host_cache_ratio = 2;
    return host_cache_fits(s->host_cache_bytes, e);
}

int cmd_serve(int argc, char **argv) {
    serve_opts o = {.s = {.host = "127.0.0.1",
                          .port = 30000,
                          .watchdog_s = 300,
                          .drain_s = 60,
                          .picture_pixels = 100000000,
                          .picture_most = 64,
                          .video = VIDEO_LIMITS,
                          .video_seconds = VIDEO_LIMITS.seconds,
                          .remote = {.bytes = 32 << 20, .seconds = 10},
                          .engine.max_running = 16,
                          .sched.decode_stall_s = -1},
                    .calls = "kimi_k2",
                    .reasoning = "kimi_k2",
                    .policy = "fcfs",
                    .space = "line",
                    .order = "any",
                    .max_body_mib = 64,
                    .simulated_us = -1};
    err e = {0};
    int rc = serve_parse(&o, argc, argv);
    if (rc >= 0) return rc;
    if (serve_folder(&o, &e) != ST_OK) return cmd_fail("serve", &e), EXIT_USAGE;
    if (serve_role(&o, &e) != ST_OK) return cmd_fail("serve", &e), EXIT_USAGE;
    if (serve_host_cache(&o, &e) != ST_OK) return cmd_fail("serve", &e), EXIT_USAGE;
    if (o.s.api_key && !*o.s.api_key) {
        err_set(&e, ST_INPUT, "--api-key: the key is empty");
        return cmd_fail("serve", &e), EXIT_USAGE;
    }
    o.s.origin = (origin_rules){
        .origins = o.origins.items, .n_origins = o.origins.n, .hosts = o.hosts.items, .n_hosts = o.hosts.n};
    if (origin_check_rules(&o.s.origin, &e) != ST_OK) return cmd_fail("serve", &e), EXIT_USAGE;
    if (model_opts_finish(&o.m, &e) != ST_OK) return cmd_fail("serve", &e);
    model_opts_simulate(&o.m, o.simulated_us);
    if (speculative_finish(&o.draft, &o.m.engine, &o.s.sched, &e) != ST_OK) return cmd_fail("serve", &e), EXIT_USAGE;
    engine_options g = o.m.engine;
    g.max_running = o.s.engine.max_running;
    g.kv_tokens = o.s.engine.kv_tokens;
    g.mem_fraction = o.s.engine.mem_fraction;
    o.s.engine = g;
    o.s.sched.policy = strcmp(o.policy, "lpm") ? SCHED_FCFS : SCHED_LPM;
    o.s.json_form.in_order = !strcmp(o.order, "schema");
    o.s.json_form.space = o.no_space || !strcmp(o.space, "none") ? JSON_SPACE_NONE
                          : !strcmp(o.space, "any")              ? JSON_SPACE_ANY
                                                                 : JSON_SPACE_LINE;
    o.s.parse_calls = !strcmp(o.calls, "kimi_k2");
    o.s.parse_reasoning = !strcmp(o.reasoning, "kimi_k2");
    o.s.body_max = o.max_body_mib << 20;
    o.s.remote.hosts = o.remote_hosts.items;
    o.s.remote.n = o.remote_hosts.n;
    o.s.limits.memory_max = o.body_memory_mib << 20;
    return server_run(&o.s, &e) == ST_OK ? EXIT_DONE : cmd_fail("serve", &e);
}
