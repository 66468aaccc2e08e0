#include "server/guard.h"
#include "server/server.h"
#include "base/log.h"
#include "runtime/warm_up.h"
#include "server/guard.h"
#include "server/server_internal.h"
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- Signals: the handler wakes the main thread. A third one means that waiting does not help. ---- */

static sem_t signalled;
static atomic_int n_signals;
static atomic_bool by_parent; /* one was the parent's, as mpirun's is, which ends all processes where one has ended */

static void on_signal(int sig, siginfo_t *info, void *unused) {
    (void)sig, (void)unused;
    if (info->si_code == SI_USER && info->si_pid == getppid()) atomic_store(&by_parent, true);
    if (atomic_fetch_add(&n_signals, 1) >= 2) _exit(1);
    sem_post(&signalled);
}

static void catch_signals(void) {
    sem_init(&signalled, 0, 0);
    atomic_store(&n_signals, 0);
    atomic_store(&by_parent, false);
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
}

/* What is said when the end of the server hangs: a handler cannot format. */
static char last_words[256];

static void on_alarm(int sig) {
    (void)sig;
    if (write(2, last_words, strlen(last_words)) < 0) _exit(1);
    _exit(1);
}

static bool second_signal(f64 seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    i64 ns = until.tv_nsec + (i64)(seconds * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (sem_timedwait(&signalled, &until))
        if (errno != EINTR) return false;
    return true;
}

/* ---- Events ---- */

static void server_on_events(void *ud, const sched_event *ev, i64 n) {
    server *s = ud;
    metrics_events(s->metrics, ev, n);
    job_table_on_events(s->jobs, ev, n);
}

/* ---- Start and end ---- */

static status open_model(server *s, err *e) {
    served_model *m = &s->model;
    status st;
    if (engine_draft_left_out(s->engine)) {
        s->o.engine.draft_dir = NULL;
        s->o.engine.draft_steps = s->o.engine.draft_topk = s->o.sched.draft_tokens = 0;
    }
    const model_config *c = engine_config(s->engine);
    m->dir = s->o.engine.model_dir;
    m->name = s->o.name ? s->o.name : path_last(m->dir);
    m->context = engine_context(s->engine);
    m->parse_calls = s->o.parse_calls;
    m->parse_reasoning = s->o.parse_reasoning;
    m->created = (i64)time(NULL);
    m->pictures = engine_vision(s->engine) != NULL;
    m->picture_file = PICTURE_LIMITS;
    m->picture_file.pixels = (u64)s->o.picture_pixels;
    m->video = s->o.video;
    m->video.seconds = (u32)s->o.video_seconds;
    if (m->video.pixels > m->picture_file.pixels) m->video.pixels = m->picture_file.pixels;
    m->picture_most = s->o.picture_most;
    m->remote = s->o.remote;
    st = served_model_open(m, s->o.template, c->model_type, c->vocab, c->eos, c->n_eos, e);
    if (st != ST_OK) return st;
    log_note("%s", engine_plan(s->engine));
    log_note("chat template %s (%s)", chat_template_name(m->template), m->template_why);
    return ST_OK;
}

/* A connection is an open file: with fewer allowed than connections, accepting the next one fails again and again. */
static status allow_connections(server *s, err *e) {
    enum { DEFAULT_CONNECTIONS = 1024, OWN_FILES = 64 };
    struct rlimit r;
    i64 want = s->o.connections ? s->o.connections : DEFAULT_CONNECTIONS;
    if (getrlimit(RLIMIT_NOFILE, &r)) r.rlim_cur = r.rlim_max = RLIM_INFINITY;
    const i64 own = OWN_FILES + s->o.n_prefill_urls * KV_TRANSFERS_EACH * KV_CONNECTIONS_EACH;
    rlim_t need = (rlim_t)(want + own);
    if (r.rlim_cur != RLIM_INFINITY && r.rlim_cur < need) {
        r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max > need ? need : r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
        getrlimit(RLIMIT_NOFILE, &r);
    }
    i64 fit = r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= need ? want : (i64)r.rlim_cur - own;
    if (fit < want && (s->o.connections || fit < 1))
        return err_set(e, ST_LIMIT, "--max-connections %lld needs %lld open files, %lld are allowed (ulimit -n)",
                       (long long)want, (long long)need, (long long)r.rlim_cur);
    if (fit < want)
        log_warn("%lld open files are allowed (ulimit -n): at most %lld connections instead of %lld",
                 (long long)r.rlim_cur, (long long)fit, (long long)want);
    s->o.connections = fit;
    return ST_OK;
}

static void on_refused(void *ud, int http) { metrics_response(((server *)ud)->metrics, http); }

static void default_limits(server *s) {
    server_options *o = &s->o;
    http_limit_options *l = &o->limits;
    u64 prompt; /* the longest one's text */
    if (!mul_size((u64)s->model.context, tokenizer_longest(s->model.tok), &prompt)) prompt = INT64_MAX / 4;
    if (!l->idle_s) l->idle_s = 60;
    if (!l->header_s) l->header_s = 10;
    if (!l->body_rate) l->body_rate = 1024;
    if (!l->memory_max)
        l->memory_max = max_i64((i64)512 << 20, 4 * max_i64(o->body_max, min_i64((i64)prompt, INT64_MAX / 4)));
    if (!o->requests_max) o->requests_max = 1000;
}

static void on_compiled(void *ud, f64 seconds) { metrics_compiled(((server *)ud)->metrics, seconds); }

static status open_constraints(server *s, err *e) {
    const constraint_cache_options o = {.tok = s->model.tok, .compiled = on_compiled, .ud = s};
    return constraint_cache_open(&s->constraints, &o, e);
}

static void on_fetch(void *ud, const sched_kv *kv) { kv_fetcher_add(((server *)ud)->fetcher, kv); }

static void on_drop(void *ud, const sched_kv *kv) { kv_fetcher_drop(((server *)ud)->fetcher, kv); }

static status open_role(server *s, err *e) {
    buf layout = {0};
    if (s->o.role == ROLE_BOTH) return ST_OK;
    status st = engine_kv_check(s->engine, "--role", e);
    if (st == ST_OK) st = engine_kv_describe(s->engine, &s->o.engine, &layout, e);
    s->kv_layout = buf_take(&layout);
    if (st != ST_OK || s->o.role == ROLE_PREFILL) return st;
    const kv_fetch_options o = {.urls = s->o.prefill_urls,
                                .n = s->o.n_prefill_urls,
                                .own = {s->o.host, s->o.port},
                                .api_key = s->o.api_key,
                                .silence_s = s->o.prefill_silence_s,
                                .layout = s->kv_layout,
                                .g = s->engine};
    s->o.sched.fetch = on_fetch;
    s->o.sched.drop = on_drop;
    return kv_fetcher_open(&s->fetcher, &o, e);
}

static void warm_up_hangs(void *ud) {
    const server *s = ud;
    log_warn("moonlet serve: %s has not finished warming up for %.0f s (--watchdog-timeout): it hangs, the server ends",
             engine_ops(s->engine)->name, s->o.watchdog_s);
    engine_say_doing(s->engine);
    _exit(1);
}

static status warm_engine(server *s, err *e) {
    const f64 began = now_s();
    guard watched; /* nobody else watches yet */
    i64 steps;
    if (s->o.skip_warm_up || !engine_on_gpu(s->engine) || engine_simulated(s->engine)) return ST_OK;
    status st = guard_begin(&watched, s->o.watchdog_s, warm_up_hangs, s, e);
    if (st != ST_OK) return st;
    st = engine_warm_up(s->engine, &steps, e);
    guard_end(&watched);
    if (st == ST_OK)
        log_note("warmed up in %.2f s, %lld steps (--skip-server-warmup leaves it out)", now_s() - began,
                 (long long)steps);
    return st;
}

static status server_open_all(server *s, err *e) {
    status st = allow_connections(s, e);
    if (st == ST_OK) st = open_model(s, e);
    if (st == ST_OK) default_limits(s);
    if (st == ST_OK) st = metrics_open(&s->metrics, e);
    if (st == ST_OK) st = job_table_open(&s->jobs, e);
    if (st == ST_OK) st = open_constraints(s, e);
    if (st == ST_OK) st = open_role(s, e);
    if (st == ST_OK) st = warm_engine(s, e);
    if (st != ST_OK) return st;
    s->o.sched.on_events = server_on_events;
    s->o.sched.ud = s;
    st = scheduler_open(&s->sched, s->engine, &s->o.sched, e);
    if (st == ST_OK && s->fetcher) st = kv_fetcher_start(s->fetcher, s->sched, e);
    if (st != ST_OK) return st;
    s->started_s = now_s();
    st = dashboard_open(&s->dashboard, s->sched, s->metrics, e);
    if (st != ST_OK) return st;
    const http_options h = {.check = routes_check,
                            .handle = routes_handle,
                            .refused = on_refused,
                            .ud = s,
                            .host = s->o.host,
                            .port = s->o.port,
                            .connections = s->o.connections,
                            .body_max = s->o.body_max,
                            .header_max = 64 << 10,
                            .requests_max = s->o.requests_max,
                            .limits = s->o.limits};
    return http_open(&s->http, &h, e);
}

static void server_close_all(server *s) {
    if (s->sched) scheduler_abort_all(s->sched);
    http_close(s->http); /* its threads look at their requests until these have ended */
    dashboard_close(s->dashboard);
    kv_fetcher_close(s->fetcher);
    scheduler_close(s->sched);
    kv_fetcher_free(s->fetcher);
    kv_sender_close(&s->sender);
    constraint_cache_close(s->constraints); /* behind the last answer that was held to one */
    job_table_close(s->jobs);
    metrics_close(s->metrics);
    served_model_close(&s->model);
    probe_close(&s->probe);
    free(s->kv_layout);
    engine_close(s->engine);
}

static void say_ready(const server *s) {
    sched_stats st;
    bool v6 = strchr(s->o.host, ':') != NULL;
    scheduler_stats(s->sched, &st);
    printf(
        "moonlet serve: ready on http://%s%s%s:%d (%s%s%s, %lld requests at a time, %lld tokens of KV, context %lld)\n",
        v6 ? "[" : "", s->o.host, v6 ? "]" : "", http_port(s->http), s->model.name,
        engine_simulated(s->engine) ? ", SIMULATED" : "",
        s->o.role == ROLE_PREFILL  ? ", prompts for other servers"
        : s->o.role == ROLE_DECODE ? ", prompts from other servers"
                                   : "",
        (long long)st.max_running, (long long)(st.pages * st.page_tokens), (long long)st.context);
    fflush(stdout);
}

/* A GPU that hangs cannot be waited for: not by a step, and not by the thread that would close it. */
static void end_if_hung(const server *s) {
    sched_stats st;
    scheduler_stats(s->sched, &st);
    if (!engine_on_gpu(s->engine) || st.since_step_s <= s->o.watchdog_s) return;
    log_warn("moonlet serve: %s has not finished a step for %.0f s (--watchdog-timeout): it hangs, the server ends; "
             "%lld requests are lost",
             engine_ops(s->engine)->name, st.since_step_s, (long long)(st.running + st.queued));
    engine_say_doing(s->engine);
    _exit(1);
}

/* From here on everything waits for the GPU in some place: for the step under way, then for what its memory is freed
 * behind. It gets the watchdog's time, and no more than CLOSE_S: who asked for the end waits for it. Without a GPU,
 * who asked twice waits no longer than that either, whatever a handler is busy with. */
static void limit_close(const server *s, bool hurry) {
    enum { CLOSE_S = 30 };
    bool gpu = engine_on_gpu(s->engine);
    if (!gpu && !hurry && engine_processes(s->engine) < 2) return;
    unsigned limit = gpu && s->o.watchdog_s < CLOSE_S ? (unsigned)s->o.watchdog_s + 1 : CLOSE_S;
    snprintf(last_words, sizeof last_words,
             "warning: moonlet serve: %s has not let go for %u s: it hangs, the server ends\n",
             gpu                               ? engine_ops(s->engine)->name
             : engine_processes(s->engine) > 1 ? "another process, a step or a request that is being read"
                                               : "a step or a request that is being read",
             limit);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    alarm(limit);
}

/* mpirun ends all processes where one has ended, kindly for about two seconds: no answer is to wait for that one. */
static const f64 ANSWER_S = 0.5;

/* A step's share of what other processes were told and exchanged. */
static void say_hosts(const server *s) {
    sched_stats st;
    scheduler_stats(s->sched, &st);
    if (st.processes < 2 || st.steps < 1) return;
    const f64 n = (f64)st.steps;
    log_note(
        "%lld processes, %lld steps; a step: %.0f bytes told in %.0f us, %.0f bytes sent in %.1f exchanges by MPI in "
        "%.0f us",
        (long long)st.processes, (long long)st.steps, (f64)st.hosts.told_bytes / n, st.hosts.told_s / n * 1e6,
        (f64)st.hosts.exchanged_bytes / n, (f64)st.hosts.exchanges / n, st.hosts.exchanged_s / n * 1e6);
}

/* New requests are refused; running ones end, or a second signal or the time ends the wait. */
static status drain(server *s, err *e) {
    const status st = atomic_load(&by_parent) ? engine_roll_call(s->engine, ANSWER_S, e) : ST_OK;
    atomic_store(&s->draining, true);
    http_quiesce(s->http);
    constraint_cache_stop(s->constraints); /* what is compiled now would be refused then */
    f64 until = now_s() + s->o.drain_s;
    bool hurry = false;
    log_note("shutting down: waiting for %lld requests", (long long)http_busy(s->http));
    while (!hurry && now_s() < until && !scheduler_drain(s->sched, 0.05)) {
        hurry = second_signal(0.05);
        end_if_hung(s);
    }
    limit_close(s, hurry);
    if (hurry) log_warn("shutting down at once: running answers are cut off");
    if (!hurry && now_s() >= until) log_warn("the drain time is over: running answers are cut off");
    scheduler_abort_all(s->sched);
    for (until = now_s() + 2; http_busy(s->http) && now_s() < until;) usleep(5000);
    say_hosts(s);
    return st;
}

/* The other processes of several compute, and end when the first does: what is sent to all of them, as by mpirun, is
 * for that one. */
static status follow(server *s, err *e) {
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    status st = engine_follow(s->engine, e);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    engine_close(s->engine);
    return st;
}

/* Returns when a signal came, or with the fault after which no step can run again. */
static status watch(server *s, err *e) {
    for (;;) {
        struct timespec until;
        sched_stats st;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (!sem_timedwait(&signalled, &until)) return ST_OK;
        end_if_hung(s);
        scheduler_stats(s->sched, &st);
        if (st.broken) return *e = st.fault, st.fault.code;
        if (engine_check(s->engine, e) != ST_OK) return e->code;
    }
}

status server_run(const server_options *o, err *e) {
    server s = {.o = *o};
    json_object_seed(0);
    probe_open(&s.probe);
    kv_sender_open(&s.sender);
    status st = engine_open(&s.engine, &s.o.engine, e);
    if (st == ST_OK && engine_follows(s.engine))
        return probe_close(&s.probe), kv_sender_close(&s.sender), follow(&s, e);
    if (st == ST_OK) st = server_open_all(&s, e);
    if (st == ST_OK) {
        catch_signals();
        say_ready(&s);
        st = watch(&s, e);
        const status left = drain(&s, st == ST_OK ? e : &(err){0});
        if (st == ST_OK) st = left;
    }
    server_close_all(&s);
    alarm(0);
    return st;
}
