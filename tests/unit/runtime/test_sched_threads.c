/* The scheduler with its thread: submitted to, aborted, asked and closed from several others. check-all runs it under
 * ThreadSanitizer. */
#include "unit.h"

#include "runtime/scheduler.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 4, EACH = 40, VOCAB = 130 };
static const char *const DIR = "build/golden/k2-thinking-int4";

/* What the callback and the clients share. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    i64 n_out;
    i32 out[64];
    bool done;
    sched_finish finish;
} answer;

static scheduler *sched;
static bool submit_from_callback;
static answer follow_up;

static void on_events(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++) {
        answer *a = ev[i].user;
        pthread_mutex_lock(&a->lock);
        if (ev[i].kind == SCHED_TOKEN) a->out[a->n_out++] = ev[i].token;
        if (ev[i].kind == SCHED_END) {
            a->finish = ev[i].finish;
            a->done = true;
            pthread_cond_signal(&a->ended);
        }
        pthread_mutex_unlock(&a->lock);
        if (ev[i].kind == SCHED_END && submit_from_callback) { /* once */
            const i32 prompt[] = {1, 2, 3};
            sched_request r = {
                .user = &follow_up, .prompt = prompt, .n_prompt = 3, .max_new = 5, .sampling = sampling_default()};
            submit_from_callback = false;
            if (scheduler_submit(sched, &r, 1, NULL, NULL, NULL) != SCHED_ACCEPTED) abort();
        }
    }
}

static engine *open_engine(i64 running, i64 kv_tokens) {
    engine *g;
    err e = {0};
    engine_options o = {
        .model_dir = DIR, .threads = 1, .context = 512, .chunk = 64, .max_running = running, .kv_tokens = kv_tokens};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

static void init_answer(answer *a) {
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->ended, NULL);
}

static void wait_for(answer *a) {
    pthread_mutex_lock(&a->lock);
    while (!a->done) pthread_cond_wait(&a->ended, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

typedef struct {
    u64 rng;
    i64 stopped, aborted, wrong;
} client;

static u64 next(client *c) { return (c->rng = c->rng * 6364136223846793005u + 1442695040888963407u) >> 33; }

/* Sends request after request, some of them twice, aborts a third; equal ones must get equal tokens. */
static void *run_client(void *arg) {
    client *c = arg;
    for (int k = 0; k < EACH; k++) {
        answer a[2];
        sched_request r[2];
        i32 prompt[150];
        u64 ids[2];
        i64 n = 1 + (i64)(next(c) % 150);
        for (i64 i = 0; i < n; i++) prompt[i] = (i32)(next(c) % 3 ? i % VOCAB : (i64)(next(c) % VOCAB));
        for (int i = 0; i < 2; i++) {
            init_answer(&a[i]);
            r[i] = (sched_request){.user = &a[i],
                                   .prompt = prompt,
                                   .n_prompt = n,
                                   .max_new = 1 + (i64)(next(c) % 40),
                                   .sampling = sampling_default()};
            r[i].sampling.temperature = 1;
        }
        r[1].max_new = r[0].max_new;
        if (scheduler_submit(sched, r, 2, ids, NULL, NULL) != SCHED_ACCEPTED) {
            c->wrong++;
            continue;
        }
        bool stop = next(c) % 3 == 0;
        if (stop) {
            usleep((useconds_t)(next(c) % 2000));
            scheduler_abort(sched, ids[0]);
        }
        for (int i = 0; i < 2; i++) wait_for(&a[i]);
        if (!stop && (a[0].n_out != a[1].n_out || a[0].finish != SCHED_LENGTH)) c->wrong++;
        if (memcmp(a[0].out, a[1].out, (size_t)a[0].n_out * 4)) c->wrong++;
        c->stopped += a[0].finish == SCHED_LENGTH;
        c->aborted += a[0].finish == SCHED_ABORT;
    }
    return NULL;
}

static void run_clients(bool ahead) {
    engine *g = open_engine(5, 1024);
    err e = {0};
    const scheduler_options o = {.on_events = on_events, .conservativeness = 0.1, .overlap_anywhere = ahead};
    pthread_t threads[CLIENTS];
    client clients[CLIENTS] = {{0}};
    sched_stats st;
    assert_int_equal(scheduler_open(&sched, g, &o, &e), ST_OK);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].rng = (u64)i + 1;
        pthread_create(&threads[i], NULL, run_client, &clients[i]);
    }
    for (int i = 0; i < 50; i++) { /* meanwhile */
        scheduler_stats(sched, &st);
        assert_true(st.pages_used + st.pages_cached + st.pages_free == st.pages && st.running <= 5);
        if (scheduler_check(sched, &e) != ST_OK) fail_msg("%s", e.text);
        usleep(1000);
    }
    i64 aborted = 0, stopped = 0;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(clients[i].wrong, 0);
        aborted += clients[i].aborted;
        stopped += clients[i].stopped;
    }
    assert_int_equal(aborted + stopped, CLIENTS * EACH);
    assert_true(scheduler_drain(sched, 10));
    if (scheduler_check(sched, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(scheduler_flush(sched, &e), ST_OK);
    scheduler_stats(sched, &st);
    assert_true(st.idle && st.draining && st.pages_free == st.pages && st.since_step_s == 0);
    assert_int_equal(st.accepted, 2 * CLIENTS * EACH);
    assert_int_equal(st.ahead > 0, ahead);
    scheduler_close(sched);
    engine_close(g);
}

static void many_clients(void **state) {
    (void)state;
    run_clients(false);
}

static void many_clients_ahead(void **state) {
    (void)state;
    run_clients(true);
}

static void close_ends_what_runs(void **state) {
    (void)state;
    engine *g = open_engine(2, 0);
    const scheduler_options o = {.on_events = on_events};
    answer a[5];
    const i32 prompt[100] = {1};
    assert_int_equal(scheduler_open(&sched, g, &o, NULL), ST_OK);
    for (int i = 0; i < 5; i++) {
        init_answer(&a[i]);
        const i32 none = 5;
        sched_request r = {.user = &a[i],
                           .prompt = prompt,
                           .n_prompt = 100,
                           .max_new = 60,
                           .bias_ids = &none,
                           .bias = (const f32[]){-1000},
                           .n_bias = 1,
                           .sampling = sampling_default()};
        assert_int_equal(scheduler_submit(sched, &r, 1, NULL, NULL, NULL), SCHED_ACCEPTED);
    }
    assert_false(scheduler_drain(sched, 0)); /* no time to wait */
    scheduler_close(sched);
    i64 aborted = 0;
    for (int i = 0; i < 5; i++) {
        assert_true(a[i].done);
        aborted += a[i].finish == SCHED_ABORT;
    }
    assert_true(aborted > 0);
    engine_close(g);
}

static void the_callback_may_submit(void **state) {
    (void)state;
    engine *g = open_engine(2, 0);
    const scheduler_options o = {.on_events = on_events};
    answer a;
    const i32 prompt[] = {4, 5};
    sched_request r = {.user = &a, .prompt = prompt, .n_prompt = 2, .max_new = 3, .sampling = sampling_default()};
    init_answer(&a);
    init_answer(&follow_up);
    submit_from_callback = true;
    assert_int_equal(scheduler_open(&sched, g, &o, NULL), ST_OK);
    assert_int_equal(scheduler_submit(sched, &r, 1, NULL, NULL, NULL), SCHED_ACCEPTED);
    wait_for(&follow_up);
    assert_int_equal(follow_up.n_out, 5);
    assert_true(a.done);
    scheduler_close(sched);
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_clients),
        cmocka_unit_test(many_clients_ahead),
        cmocka_unit_test(close_ends_what_runs),
        cmocka_unit_test(the_callback_may_submit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
