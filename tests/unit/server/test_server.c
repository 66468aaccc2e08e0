/* The server's threads around a step that no model computes: a step that hangs is seen by /health, and many clients of
 * every kind at once lose nothing. check-all runs it under ThreadSanitizer. */
#include "unit.h"

#include "base/log.h"
#include "runtime/simulate.h"
#include "server/server.h"
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a server on a thread of this program ---- */

static atomic_bool hang;          /* the step waits as long as this is set */
static atomic_int steps, slow_us; /* the step takes so much longer */

static status fake_step(void *ud, const model_batch *b, i64 vocab, err *e) {
    atomic_fetch_add(&steps, 1);
    while (atomic_load(&hang)) usleep(1000);
    if (atomic_load(&slow_us)) usleep((useconds_t)atomic_load(&slow_us));
    return simulated_step(ud, b, vocab, e);
}

static const i64 step_ns = 200000;
static server_options options;
static i64 queued; /* max_queued; 0: the default */
static status ended;

static void *serve(void *arg) {
    err e = {0};
    (void)arg;
    ended = server_run(&options, &e);
    if (ended != ST_OK) fprintf(stderr, "server: %s\n", e.text);
    return NULL;
}

/* A port that was free a moment ago. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static int dial(void) {
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((u16)options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static pthread_t start_server(f64 watchdog_s) {
    pthread_t t;
    options = (server_options){.engine = {.model_dir = "models/nano",
                                          .context = 512,
                                          .max_running = 8,
                                          .kv_tokens = 4096,
                                          .threads = 1,
                                          .step = fake_step,
                                          .step_ud = (void *)&step_ns},
                               .sched.max_queued = queued,
                               .host = "127.0.0.1",
                               .port = free_port(),
                               .parse_calls = true,
                               .parse_reasoning = true,
                               .watchdog_s = watchdog_s,
                               .drain_s = 10,
                               .body_max = 1 << 20,
                               .connections = 100};
    assert_int_equal(pthread_create(&t, NULL, serve, NULL), 0);
    int fd = -1;
    for (int i = 0; i < 2000 && fd < 0; i++) usleep(5000), fd = dial();
    assert_true(fd >= 0);
    close(fd);
    return t;
}

static void stop_server(pthread_t t) {
    kill(getpid(), SIGTERM);
    pthread_join(t, NULL);
    assert_int_equal(ended, ST_OK);
}

/* ---- a client ---- */

static bool send_request(int fd, const char *method, const char *path, const char *body) {
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method,
                     path, strlen(body), body);
    return send(fd, text, (size_t)n, MSG_NOSIGNAL) == n;
}

/* Everything until the server closes; the status code is returned, 0 without one. */
static int receive(int fd, buf *out) {
    char part[4096];
    int code = 0;
    for (ssize_t n; (n = recv(fd, part, sizeof part, 0)) > 0;) buf_add(out, part, (size_t)n);
    buf_char(out, 0);
    if (!out->failed) sscanf(out->data, "HTTP/1.1 %d", &code);
    return code;
}

static int ask(const char *method, const char *path, const char *body, buf *out) {
    int fd = dial();
    if (fd < 0) return -1;
    buf_clear(out);
    int code = send_request(fd, method, path, body) ? receive(fd, out) : -1;
    close(fd);
    return code;
}

/* ---- /health ---- */

static void wait_for_health(int code, const char *word, buf *out) {
    int got = 0;
    for (int i = 0; i < 1000 && got != code; i++) {
        usleep(10000);
        got = ask("GET", "/health", "", out);
    }
    assert_int_equal(got, code);
    if (!strstr(out->data, word)) fail_msg("%s", out->data);
}

static void a_step_that_hangs_fails_health(void **state) {
    (void)state;
    buf out = {0};
    pthread_t t = start_server(0.2);
    wait_for_health(200, "\"ok\"", &out);
    usleep(400000); /* idle for longer than the watchdog's time: that is no hanging */
    assert_int_equal(ask("GET", "/health", "", &out), 200);
    int before = atomic_load(&steps);
    atomic_store(&hang, true);
    int fd = dial();
    assert_true(send_request(fd, "POST", "/v1/completions",
                             "{\"prompt\":\"x\",\"max_tokens\":5,\"stream\":true,\"ignore_eos\":true}"));
    while (atomic_load(&steps) == before) usleep(1000);
    wait_for_health(503, "\"stuck\"", &out);
    assert_non_null(strstr(out.data, "\"running\":1"));
    f64 asked = now_s();
    assert_int_equal(ask("GET", "/health_generate", "", &out), 503); /* after the watchdog's time */
    assert_true(now_s() - asked < 10 && strstr(out.data, "no token within 0.2 seconds"));
    assert_int_equal(ask("GET", "/metrics", "", &out), 200); /* what needs no step answers */
    assert_int_equal(ask("GET", "/server_info", "", &out), 200);
    assert_int_equal(ask("GET", "/live", "", &out), 200);
    assert_non_null(strstr(out.data, "\"status\":\"stuck\""));
    atomic_store(&hang, false);
    wait_for_health(200, "\"ok\"", &out);
    buf_clear(&out);
    assert_int_equal(receive(fd, &out), 200); /* and the request that was under way ends well */
    assert_non_null(strstr(out.data, "data: [DONE]"));
    close(fd);
    stop_server(t);
    buf_free(&out);
}

/* ---- /health_generate ---- */

static f64 metric(const char *name, buf *out) {
    char line[80];
    snprintf(line, sizeof line, "\n%s{", name);
    assert_int_equal(ask("GET", "/metrics", "", out), 200);
    const char *at = strstr(out->data, line);
    assert_non_null(at);
    return atof(strchr(at, '}') + 1);
}

static void *ask_health(void *code) {
    buf out = {0};
    *(int *)code = ask("GET", "/health_generate", "", &out);
    buf_free(&out);
    return NULL;
}

/* However many ask, the engine is asked once. */
static void one_probe_answers_all(void **state) {
    (void)state;
    enum { ASK = 20 };
    pthread_t t = start_server(300), threads[ASK];
    int codes[ASK] = {0}, before = atomic_load(&steps);
    buf out = {0};
    atomic_store(&hang, true);
    for (int i = 0; i < ASK; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_health, &codes[i]), 0);
    while (atomic_load(&steps) == before) usleep(1000);
    usleep(100000); /* most have come by now; who comes later finds a result that is fresh */
    atomic_store(&hang, false);
    for (int i = 0; i < ASK; i++) pthread_join(threads[i], NULL);
    f64 requests = metric("sglang:num_requests_total", &out);
    stop_server(t);
    for (int i = 0; i < ASK; i++) assert_int_equal(codes[i], 200);
    assert_true(requests >= 1 && requests <= 3); /* one, unless this machine took seconds */
    buf_free(&out);
}

/* All places and the queue are taken: tokens are made, so the server is healthy, and nobody has lost anything by the
 * question. */
static void a_full_server_is_healthy(void **state) {
    (void)state;
    enum { RUN = 8, STREAMS = RUN + 1 };
    buf out = {0};
    int fd[STREAMS];
    queued = 1;
    atomic_store(&slow_us, 25000); /* so that no stream ends before the question */
    pthread_t t = start_server(300);
    queued = 0;
    for (int i = 0; i < STREAMS; i++) {
        fd[i] = dial();
        assert_true(send_request(fd[i], "POST", "/v1/completions",
                                 "{\"prompt\":\"x\",\"max_tokens\":400,\"stream\":true,\"ignore_eos\":true}"));
        /* The queue has one place: the next one comes when this one runs, and the last one is the one that waits. */
        const char *gauge = i < RUN ? "vllm:num_requests_running" : "vllm:num_requests_waiting";
        for (int w = 0; w < 1000 && metric(gauge, &out) < (i < RUN ? i + 1 : 1); w++) usleep(1000);
    }
    int code = ask("GET", "/health_generate", "", &out);
    f64 running = metric("vllm:num_requests_running", &out), waiting = metric("vllm:num_requests_waiting", &out),
        preemptions = metric("vllm:num_preemptions_total", &out);
    atomic_store(&slow_us, 0);
    int whole = 0;
    for (int i = 0; i < STREAMS; i++) {
        buf_clear(&out);
        whole += receive(fd[i], &out) == 200 && !strstr(out.data, "\"error\"") && strstr(out.data, "[DONE]");
        close(fd[i]);
    }
    stop_server(t);
    assert_int_equal(code, 200);
    if (running != RUN || waiting < 1 || preemptions > 0)
        fail_msg("%g running, %g waiting, %g preempted", running, waiting, preemptions);
    assert_int_equal(whole, STREAMS);
    buf_free(&out);
}

/* ---- many clients ---- */

enum { CLIENTS = 12, EACH = 30 };
static const char COMPLETION[] =
    "{\"prompt\":\"a b\",\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":%s,\"rid\":\"r%d\"%s}";

typedef struct {
    int me;
    char problem[200];
} client;

static void problem(client *c, const char *what, int code, const buf *out) {
    if (!*c->problem) snprintf(c->problem, sizeof c->problem, "%s: %d %.120s", what, code, out->data ? out->data : "");
}

static void one_request(client *c, int k, buf *out) {
    char body[300];
    int n = 1 + (c->me * 7 + k * 5) % 60, code;
    bool stream = k & 1, cancel = k % 5 == 0;
    snprintf(body, sizeof body, COMPLETION, n, stream ? "true" : "false", c->me,
             k % 7 ? "" : ",\"n\":3,\"logprobs\":2");
    if (cancel) { /* goes away in the middle, or has itself aborted */
        int fd = dial();
        char part[64];
        if (fd < 0 || !send_request(fd, "POST", "/v1/completions", body)) problem(c, "send", 0, out);
        if (stream && recv(fd, part, sizeof part, 0) < 0) problem(c, "receive", 0, out);
        close(fd);
        return;
    }
    code = ask("POST", "/v1/completions", body, out);
    if (code != 200 || (stream && !strstr(out->data, "[DONE]"))) problem(c, body, code, out);
}

static void *run_client(void *arg) {
    static const struct {
        const char *method, *path, *body;
        int code;
    } others[] = {{"GET", "/metrics", "", 200},
                  {"GET", "/server_info", "", 200},
                  {"GET", "/live?since=1", "", 200},
                  {"GET", "/", "", 200},
                  {"GET", "/kv_check", "", 200},
                  {"POST", "/abort_request", "{\"rid\":\"nobody\"}", 200},
                  {"POST", "/tokenize", "{\"prompt\":\"x y\"}", 200},
                  {"GET", "/flush_cache", "", -1}, /* 400 while requests run */
                  {"POST", "/v1/completions", "{\"prompt\":[99999]}", 400},
                  {"POST", "/v1/completions", "{", 400},
                  {"GET", "/nowhere", "", 404},
                  {"GET", "/health", "", 200},
                  {"POST", "/v1/chat/completions",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":9,\"stream\":true}", 200}};
    client *c = arg;
    buf out = {0};
    for (int k = 0; k < EACH; k++) {
        size_t i = (size_t)(c->me + k) % COUNT_OF(others);
        one_request(c, k, &out);
        int code = ask(others[i].method, others[i].path, others[i].body, &out);
        if (others[i].code > 0 ? code != others[i].code : code != 200 && code != 400)
            problem(c, others[i].path, code, &out);
    }
    buf_free(&out);
    return NULL;
}

static void many_clients(void **state) {
    (void)state;
    pthread_t t = start_server(300), threads[CLIENTS];
    client clients[CLIENTS] = {{0}};
    buf out = {0};
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].me = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        if (*clients[i].problem) fail_msg("client %d: %s", i, clients[i].problem);
    }
    for (int i = 0; i < 500; i++) { /* those that were given up are noticed within a quarter of a second */
        assert_int_equal(ask("GET", "/kv_check", "", &out), 200);
        if (strstr(out.data, "\"pages_used\":0,")) break;
        usleep(20000);
    }
    if (!strstr(out.data, "\"ok\":true") || !strstr(out.data, "\"pages_used\":0,")) fail_msg("%s", out.data);
    int fd = dial(); /* one more is under way when the server is told to go: it is served to its end */
    assert_true(send_request(fd, "POST", "/v1/completions",
                             "{\"prompt\":\"x\",\"max_tokens\":200,\"stream\":true,\"ignore_eos\":true}"));
    char first;
    assert_int_equal(recv(fd, &first, 1, MSG_PEEK), 1);
    stop_server(t);
    buf_clear(&out);
    assert_int_equal(receive(fd, &out), 200);
    assert_non_null(strstr(out.data, "[DONE]"));
    assert_null(strstr(out.data, "\"error\""));
    close(fd);
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_hangs_fails_health),
        cmocka_unit_test(one_probe_answers_all),
        cmocka_unit_test(a_full_server_is_healthy),
        cmocka_unit_test(many_clients),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
