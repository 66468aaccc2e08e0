/* The queue's rules: what it takes, of whom how much, who passes, whom admission lets wait, and what that costs. */
#include "runtime/sched_util.h"
#include "runtime/scheduler_internal.h"

static const char *const DIR = "build/golden/k2-thinking-int4";
static const scheduler_options BY_HAND = {.manual = true};

static sched_verdict try_submit(scheduler *s, job *const *j, i64 n, err *e) {
    sched_request r[64];
    assert_true(n <= 64);
    for (i64 i = 0; i < n; i++) {
        r[i] = j[i]->r;
        r[i].user = j[i];
        r[i].prompt = j[i]->prompt;
    }
    return scheduler_submit(s, r, n, NULL, NULL, e);
}

/* ---- What it takes ---- */

static void a_full_queue_refuses_and_displaces(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .max_queued = 2, .no_preempt = true});
    job *j[6];
    for (int i = 0; i < 6; i++) j[i] = make_job((u64)i, 10, 20);
    for (int i = 0; i < 3; i++) must_submit(s, j[i]); /* a place and two in the queue */
    i64 retry = 0;
    err e = {0};
    sched_request r = j[3]->r;
    r.user = j[3], r.prompt = j[3]->prompt;
    assert_int_equal(scheduler_submit(s, &r, 1, NULL, &retry, &e), SCHED_QUEUE_FULL);
    assert_true(retry >= 1 && retry <= 60 && strstr(e.text, "queue is full"));
    scheduler_step(s);
    assert_int_equal(scheduler_submit(s, &r, 1, NULL, &retry, &e), SCHED_QUEUE_FULL);
    j[4]->r.priority = 5; /* better than those that wait: the newest of the worst goes */
    must_submit(s, j[4]);
    run_all(s);
    assert_int_equal(j[2]->finish, SCHED_DISPLACED);
    assert_true(!j[2]->started && j[2]->error.text[0]);
    for (int i = 0; i < 5; i++)
        if (i != 2 && i != 3) assert_int_equal(j[i]->finish, SCHED_LENGTH);
    assert_true(j[4]->usage.started_s < j[1]->usage.started_s);
    scheduler_drain(s, 1);
    assert_int_equal(scheduler_submit(s, &r, 1, NULL, NULL, &e), SCHED_CLOSING);
    scheduler_close(s);
    engine_close(g);
    for (int i = 0; i < 6; i++) free(j[i]);
}

static void the_queue_is_limited_in_tokens(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .max_queued_tokens = 100});
    job *a = make_job(1, 300, 2), *b = make_job(2, 10, 2);
    must_submit(s, a); /* one alone may be longer */
    sched_request r = b->r;
    r.user = b, r.prompt = b->prompt;
    assert_int_equal(scheduler_submit(s, &r, 1, NULL, NULL, NULL), SCHED_QUEUE_FULL);
    scheduler_step(s);
    must_submit(s, b);
    run_all(s);
    assert_int_equal(a->finish + b->finish, 2 * SCHED_LENGTH);
    scheduler_close(s);
    engine_close(g);
    free(a), free(b);
}

/* n answers to j's prompt in one submission. */
static sched_verdict submit_choices(scheduler *s, job *const *j, i64 n, err *e) {
    sched_request r[64];
    assert_true(n <= 64);
    for (i64 i = 0; i < n; i++) {
        r[i] = j[i]->r;
        r[i].user = j[i];
        r[i].prompt = j[0]->prompt;
        r[i].choice = (u32)i;
    }
    return scheduler_submit(s, r, n, NULL, NULL, e);
}

static void make_jobs(job **j, int n, i64 n_prompt, i64 max_new) {
    for (int i = 0; i < n; i++) j[i] = make_job((u64)i + 60, n_prompt, max_new);
}

static void free_jobs(job **j, int n) {
    for (int i = 0; i < n; i++) free(j[i]);
}

static void answers_to_one_prompt_count_it_once(void **state) {
    (void)state;
    enum { N = 8 };
    engine *g = open_engine(DIR, "cpu", 2, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .max_queued_tokens = 1200});
    job *j[N], *other = make_job(1, 200, 3);
    make_jobs(j, N, 300, 3);
    assert_int_equal(submit_choices(s, j, N, NULL), SCHED_ACCEPTED);
    must_submit(s, other);
    assert_int_equal(stats_of(s).queued, N + 1);
    assert_int_equal(stats_of(s).queued_tokens, 300 + 200); /* in the inbox */
    scheduler_step(s);
    must_check(s);
    assert_int_equal(stats_of(s).queued_tokens, 300); /* in the queue: two have started */
    run_all(s);
    assert_int_equal(stats_of(s).queued_tokens, 0);
    for (int i = 0; i < N; i++) assert_int_equal(j[i]->finish, SCHED_LENGTH);
    for (int i = 1; i < N; i++) rewind_job(j[i]);
    assert_int_equal(submit_choices(s, j + 1, N - 1, NULL), SCHED_ACCEPTED);
    scheduler_abort_all(s); /* before any has started */
    run_all(s);
    assert_int_equal(stats_of(s).queued_tokens, 0);
    scheduler_close(s);
    engine_close(g);
    free_jobs(j, N);
    free(other);
}

/* A submission's share: the places that run, a quarter of the queue's, and a quarter of its tokens. */
static void one_request_takes_its_share(void **state) {
    (void)state;
    enum { N = 13 };
    err e = {0};
    engine *g = open_engine(DIR, "cpu", 2, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .max_queued = 40, .max_queued_tokens = 2400});
    job *j[N], *more[3], *over = make_job(3, 201, 2);
    make_jobs(j, N, 30, 2);
    make_jobs(more, 3, 200, 2);
    assert_int_equal(submit_choices(s, j, N, &e), SCHED_BAD_REQUEST);
    if (!strstr(e.text, "13 answers") || !strstr(e.text, "12 answers")) fail_msg("%s", e.text);
    assert_int_equal(submit_choices(s, j, N - 1, &e), SCHED_ACCEPTED);
    assert_int_equal(try_submit(s, (job *[]){more[0], more[1], over}, 3, &e), SCHED_BAD_REQUEST);
    if (!strstr(e.text, "601 tokens") || !strstr(e.text, "600 tokens")) fail_msg("%s", e.text);
    assert_int_equal(try_submit(s, more, 3, &e), SCHED_ACCEPTED);
    run_all(s);
    assert_int_equal(more[2]->finish, SCHED_LENGTH);
    scheduler_close(s);
    engine_close(g);
    free_jobs(j, N);
    free_jobs(more, 3);
    free(over);
}

/* Whether it is places or tokens that the queue lacks: who is better than the worst takes its room. */
static void better_ones_pass_a_queue_full_of_tokens(void **state) {
    (void)state;
    enum { N = 5 };
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s =
        open_scheduler(g, (scheduler_options){.manual = true, .max_queued_tokens = 1100, .no_preempt = true});
    job *j[N], *equal = make_job(1, 200, 2), *better = make_job(2, 200, 2), *flood = make_job(3, 500, 2);
    make_jobs(j, N, 250, 20);
    must_submit(s, j[0]);
    scheduler_step(s);
    for (int i = 1; i < N; i++) must_submit(s, j[i]); /* 1000 tokens wait */
    scheduler_step(s);
    assert_int_equal(try_submit(s, &equal, 1, NULL), SCHED_QUEUE_FULL);
    better->r.priority = 1;
    must_submit(s, better);
    flood->r.priority = 1;
    must_submit(s, flood);
    assert_int_equal(try_submit(s, (job *[]){flood}, 1, NULL), SCHED_QUEUE_FULL); /* until the worst have left */
    run_all(s);
    for (int i = 0; i < N; i++) assert_int_equal(j[i]->finish, i < 2 ? SCHED_LENGTH : SCHED_DISPLACED);
    assert_true(better->usage.started_s < j[1]->usage.started_s && better->n_out == 2 && flood->n_out == 2);
    scheduler_close(s);
    engine_close(g);
    free_jobs(j, N);
    free(equal), free(better), free(flood);
}

/* ---- Probes ---- */

static void a_probe_passes_the_queue_and_takes_no_place(void **state) {
    (void)state;
    enum { N = 4 };
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .max_queued = 3});
    job *j[N], *probe = make_job(9, 1, 1);
    make_jobs(j, N, 20, 15);
    must_submit(s, j[0]);
    scheduler_step(s);
    for (int i = 1; i < N; i++) must_submit(s, j[i]);
    probe->r.probe = true;
    must_submit(s, probe); /* the queue is full, of requests that the engine thread has not even seen */
    scheduler_step(s);
    assert_true(!probe->started && !j[0]->ended);
    run_all(s);
    assert_true(probe->usage.started_s >= j[0]->usage.ended_s);
    for (int i = 1; i < N; i++) assert_true(j[i]->n_out == 15 && j[i]->usage.started_s >= probe->usage.ended_s);
    assert_int_equal(stats_of(s).preemptions, 0);
    scheduler_close(s);
    engine_close(g);
    free_jobs(j, N);
    free(probe);
}

/* Where pages run out, the probe goes, although it stands in front of all that wait. */
static void a_probe_gives_way(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 256, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .conservativeness = 0.01});
    job *a = make_job(1, 60, 190), *probe = make_job(2, 1, 200);
    must_submit(s, a);
    scheduler_step(s);
    probe->r.probe = true;
    must_submit(s, probe);
    run_all(s);
    assert_int_equal(a->usage.preemptions, 0);
    assert_true(probe->usage.preemptions > 0 && probe->n_out == 200 && a->n_out == 190);
    scheduler_close(s);
    engine_close(g);
    free(a), free(probe);
}

/* ---- Who waits ---- */

/* Two answers of known length that fit only in turn: the second waits, and nothing is computed twice. */
static void what_fits_only_in_turn_is_not_preempted(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 256, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .conservativeness = 1});
    job *j[2];
    make_jobs(j, 2, 60, 130); /* three of four pages each */
    for (int i = 0; i < 2; i++) must_submit(s, j[i]);
    run_all(s);
    assert_int_equal(stats_of(s).preemptions, 0);
    assert_true(j[1]->usage.started_s >= j[0]->usage.ended_s);
    scheduler_close(s);
    engine_close(g);
    free_jobs(j, 2);
}

/* An equal prompt of the same space waits for what is being computed; one of another space has nothing to wait for. */
static void another_space_does_not_wait(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 4, 0, 32);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *a = make_job(8, 300, 5), *same = make_job(8, 300, 5), *other = make_job(8, 300, 5);
    other->r.cache_space = 7;
    must_submit(s, a);
    scheduler_step(s);
    must_submit(s, same);
    must_submit(s, other);
    scheduler_step(s);
    assert_true(other->started && !same->started);
    run_all(s);
    assert_true(same->usage.cached_tokens == 256 && other->usage.cached_tokens == 0);
    scheduler_close(s);
    engine_close(g);
    free(a), free(same), free(other);
}

/* What the cache has of those who wait is looked for once, then only what changed. */
static void waiting_costs_a_lookup_a_step(void **state) {
    (void)state;
    enum { N = 40, PAGES = 7 };
    engine *g = open_engine(DIR, "cpu", 4, 4 * MAX_TOKENS, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .policy = SCHED_LPM});
    job *first = make_job(1, PAGES * KV_PAGE, 1), *longest[2], *j[N];
    must_submit(s, first);
    run_all(s);
    scheduler_step(s);
    const i64 most = s->match_lookups; /* nobody waited: none was used */
    for (int i = 0; i < 2; i++) must_submit(s, longest[i] = make_job((u64)i + 2, 500, 5));
    scheduler_step(s);
    for (int i = 0; i < N; i++) { /* long ones, which wait for their turn */
        j[i] = make_job((u64)i + 10, 505, 1);
        memcpy(j[i]->prompt, first->prompt, 4 * KV_PAGE * sizeof(i32));
        must_submit(s, j[i]);
    }
    scheduler_step(s);
    assert_int_equal(most - s->match_lookups, N * 5); /* four pages found, one not */
    for (int step = 0; step < 3; step++) {
        scheduler_step(s);
        assert_in_range(most - s->match_lookups, 0, N); /* the running prompts put pages into the cache */
    }
    assert_int_equal(stats_of(s).queued, N);
    scheduler_abort_all(s);
    run_all(s);
    scheduler_close(s);
    engine_close(g);
    free_jobs(j, N);
    free(first), free(longest[0]), free(longest[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_refuses_and_displaces),
        cmocka_unit_test(the_queue_is_limited_in_tokens),
        cmocka_unit_test(answers_to_one_prompt_count_it_once),
        cmocka_unit_test(one_request_takes_its_share),
        cmocka_unit_test(better_ones_pass_a_queue_full_of_tokens),
        cmocka_unit_test(a_probe_passes_the_queue_and_takes_no_place),
        cmocka_unit_test(a_probe_gives_way),
        cmocka_unit_test(what_fits_only_in_turn_is_not_preempted),
        cmocka_unit_test(another_space_does_not_wait),
        cmocka_unit_test(waiting_costs_a_lookup_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
