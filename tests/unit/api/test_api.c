/* moonlet.h from outside, on the nano model: requests after failed and cancelled ones, several engines, threads. */
#include "unit.h"

#include "moonlet.h"
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char text[8192];
    size_t len;
    int stop_after; /* events; 0: never */
    int events, threads;
} collected;

static int collect(void *user, moon_event event, const char *text, size_t n) {
    collected *c = user;
    (void)event;
    c->threads = omp_get_max_threads();
    if (c->len + n < sizeof c->text) memcpy(c->text + c->len, text, n), c->len += n;
    return ++c->events == c->stop_after;
}

static moon_engine *open_nano(const char *mask, int64_t threads) {
    moon_options o = MOON_OPTIONS_INIT;
    moon_engine *m;
    moon_error e;
    o.model_dir = "models/nano";
    o.cpu_mask = mask;
    o.threads = threads;
    o.context_length = 512;
    if (moon_open(&m, &o, &e) != MOON_OK) fail_msg("%s", e.text);
    return m;
}

#define CHAT "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 17 + 25?\"}]}"

static moon_status ask(moon_engine *m, const char *chat, collected *c, int stop_after, moon_stats *s, moon_error *e) {
    moon_request q = MOON_REQUEST_INIT;
    *c = (collected){.stop_after = stop_after};
    q.chat = chat;
    return moon_run(m, &q, collect, c, s, e);
}

/* The engine is opened where only one processor may be used and runs where all may: its workspace must do. */
static void workspace_outlives_a_change_of_processors(void **state) {
    (void)state;
    pid_t child = fork(); /* before OpenMP has threads */
    if (child == 0) {
        cpu_set_t all, one;
        collected c;
        moon_error e;
        char chat[4096] = "{\"messages\": [{\"role\": \"user\", \"content\": \"";
        for (int i = 0; i < 45; i++) strcat(chat, "17 + 25 ");
        strcat(chat, "\"}]}");
        sched_getaffinity(0, sizeof all, &all);
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &all)) {
                CPU_SET(i, &one);
                break;
            }
        sched_setaffinity(0, sizeof one, &one);
        moon_engine *m = open_nano(NULL, 0);
        sched_setaffinity(0, sizeof all, &all);
        _exit(ask(m, chat, &c, 40, NULL, &e) == MOON_CANCELLED ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void numbers_out_of_range_are_refused(void **state) {
    (void)state;
    moon_error e;
    for (int i = 0; i < 7; i++) {
        moon_options o = MOON_OPTIONS_INIT;
        moon_engine *m = (void *)&o;
        o.model_dir = "models/nano";
        const int64_t bad[] = {-1, -1, -1, INT64_MIN, (int64_t)1 << 40, INT64_MAX, ((int64_t)1 << 32) + 1};
        *(i % 3 == 0 ? &o.context_length : i % 3 == 1 ? &o.prefill_chunk : &o.threads) = bad[i];
        moon_status st = moon_open(&m, &o, &e);
        if (st != MOON_INPUT && st != MOON_LIMIT) fail_msg("case %d: status %d, %s", i, st, e.text);
        assert_null(m);
    }
}

static void a_node_that_no_host_has_is_refused(void **state) {
    (void)state;
    moon_error e;
    moon_options o = MOON_OPTIONS_INIT;
    moon_engine *m = (void *)&o;
    o.model_dir = "models/nano";
    o.numa_node = "0,x";
    assert_int_equal(moon_open(&m, &o, &e), MOON_INPUT);
    assert_null(m);
    o.numa_node = "1024";
    moon_status st = moon_open(&m, &o, &e); /* unsupported: where the system tells of no nodes */
    assert_true(st == MOON_INPUT || st == MOON_UNSUPPORTED);
    assert_non_null(strstr(e.text, "--numa-node"));
}

static void requests_after_failed_and_cancelled_ones(void **state) {
    (void)state;
    static char huge[1 << 20], deep[4096];
    moon_engine *m = open_nano(NULL, 0), *fresh = open_nano(NULL, 0);
    moon_error e;
    moon_stats s = {0};
    collected want, got;
    assert_int_equal(ask(fresh, CHAT, &want, 0, &s, &e), MOON_OK);
    assert_string_equal(s.finish, "stop");
    memset(huge, ' ', sizeof huge - 1);
    for (int i = 0; i < 2000; i++) deep[i] = '[';
    const char *bad[] = {"",
                         "nonsense",
                         "[]",
                         "{}",
                         huge,
                         deep,
                         "{\"messages\": []}",
                         "{\"messages\": 5}",
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}",
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"temperature\": 1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        moon_status st = ask(m, bad[i], &got, 0, NULL, &e);
        if (i != 6 && st != MOON_INPUT) fail_msg("bad request %zu: status %d, %s", i, st, e.text);
        if (st != MOON_OK) assert_true(e.text[0] && e.status == st);
    }
    assert_true(want.events > 6); /* pieces of the whole answer, whatever the model's tokens are */
    for (int stop = 1; stop < want.events; stop += 1 + want.events / 7) {
        assert_int_equal(ask(m, CHAT, &got, stop, &s, &e), MOON_CANCELLED);
        assert_string_equal(s.finish, "cancelled");
        assert_int_equal(got.events, stop); /* never called again */
        assert_memory_equal(got.text, want.text, got.len);
    }
    moon_request q = MOON_REQUEST_INIT;
    assert_int_equal(moon_run(m, &q, collect, &got, NULL, &e), MOON_INPUT); /* neither */
    q.chat = CHAT;
    q.prompt = "x";
    assert_int_equal(moon_run(m, &q, collect, &got, NULL, &e), MOON_INPUT); /* both */
    q.chat = NULL;
    q.prompt = "";
    assert_int_equal(moon_run(m, &q, collect, &got, NULL, &e), MOON_INPUT); /* empty */
    memset(huge, 'a', sizeof huge - 1);
    q.prompt = huge;
    assert_int_equal(moon_run(m, &q, collect, &got, NULL, &e), MOON_LIMIT);
    q.prompt = "17 + 25";
    q.max_tokens = 513;
    assert_int_equal(moon_run(m, &q, collect, &got, NULL, &e), MOON_LIMIT);
    q.max_tokens = 5;
    q.top_p = -1;
    assert_int_equal(moon_run(m, &q, collect, &got, NULL, &e), MOON_INPUT);
    q.top_p = 1;
    q.prompt = "\xff\xfe\xc3 17 + \x80";
    assert_int_equal(moon_run(m, &q, NULL, NULL, NULL, NULL), MOON_OK); /* bytes are bytes to a raw prompt */
    assert_int_equal(ask(m, CHAT, &got, 0, &s, &e), MOON_OK);
    assert_memory_equal(&got.len, &want.len, sizeof want.len);
    assert_memory_equal(got.text, want.text, want.len);
    moon_close(m);
    moon_close(fresh);
    moon_close(NULL);
}

static void context_can_be_filled_to_the_last_token(void **state) {
    (void)state;
    moon_options o = MOON_OPTIONS_INIT;
    moon_engine *m;
    moon_error e;
    moon_stats s;
    collected c = {0};
    moon_request q = MOON_REQUEST_INIT;
    o.model_dir = "models/nano";
    q.prompt = "17 + 25 = 42; 17 + 25";
    q.ignore_eos = 1;
    for (o.context_length = 1; o.context_length < 70; o.context_length += 23) {
        assert_int_equal(moon_open(&m, &o, &e), MOON_OK);
        moon_status st = moon_run(m, &q, collect, &c, &s, &e);
        if (st == MOON_OK)
            assert_int_equal(s.prompt_tokens + s.output_tokens, o.context_length);
        else
            assert_true(st == MOON_LIMIT && o.context_length < 24);
        moon_close(m);
    }
}

static void engines_do_not_disturb_each_other(void **state) {
    (void)state;
    static const char *const masks[] = {"none", "avx2", "avxvnni", "avx512", "vnni", "bf16", "all"};
    enum { N = sizeof masks / sizeof *masks };
    moon_engine *m[N];
    moon_error e;
    static collected want[N];
    collected got;
    for (int i = 0; i < N; i++) {
        moon_engine *alone = open_nano(masks[i], 0);
        assert_int_equal(ask(alone, CHAT, &want[i], 0, NULL, &e), MOON_OK);
        moon_close(alone);
    }
    for (int i = 0; i < N; i++) m[i] = open_nano(masks[i], i % 2);
    for (int i = 2 * N; i-- > 0;) {
        assert_int_equal(ask(m[i % N], CHAT, &got, 0, NULL, &e), MOON_OK);
        assert_int_equal(got.len, want[i % N].len);
        assert_memory_equal(got.text, want[i % N].text, got.len);
    }
    for (int i = 0; i < N; i++) moon_close(m[i]);
}

typedef struct {
    moon_engine *m;
    collected got;
    moon_status st;
} elsewhere;

static void *ask_elsewhere(void *p) {
    elsewhere *w = p;
    w->st = ask(w->m, CHAT, &w->got, 0, NULL, NULL);
    return NULL;
}

/* OpenMP's number of threads belongs to the calling thread; an engine's number holds wherever it is called. */
static void threads_hold_for_every_caller(void **state) {
    (void)state;
    moon_engine *one = open_nano(NULL, 1), *all = open_nano(NULL, 0);
    elsewhere a = {.m = one}, b = {.m = all};
    pthread_t ta, tb;
    assert_int_equal(pthread_create(&ta, NULL, ask_elsewhere, &a), 0);
    assert_int_equal(pthread_create(&tb, NULL, ask_elsewhere, &b), 0);
    pthread_join(ta, NULL);
    pthread_join(tb, NULL);
    assert_true(a.st == MOON_OK && b.st == MOON_OK);
    assert_int_equal(a.got.threads, 1);
    assert_int_equal(b.got.threads, omp_get_num_procs());
    assert_int_equal(a.got.len, b.got.len);
    assert_memory_equal(a.got.text, b.got.text, a.got.len);
    collected c;
    assert_int_equal(ask(one, CHAT, &c, 0, NULL, NULL), MOON_OK);
    assert_int_equal(c.threads, 1);
    moon_close(one);
    moon_close(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workspace_outlives_a_change_of_processors),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(a_node_that_no_host_has_is_refused),
        cmocka_unit_test(requests_after_failed_and_cancelled_ones),
        cmocka_unit_test(context_can_be_filled_to_the_last_token),
        cmocka_unit_test(engines_do_not_disturb_each_other),
        cmocka_unit_test(threads_hold_for_every_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
