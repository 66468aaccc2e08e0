/* The number of threads of a parallel region: by its work, and fewer for a while after a team was held up. */
#include "unit.h"

#include "kernels/ops.h"
#include "kernels/team.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void wait_ms(i64 ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static int threads_of(i64 work) {
    team t = team_begin(work);
    team_end(&t);
    return t.threads;
}

/* A region that took no processor time: the others kept the caller waiting. */
static void be_held_up(void) {
    team t = team_begin(TEAM_MIN);
    wait_ms(3);
    team_end(&t);
}

static void *small_regions(void *arg) {
    (void)arg;
    assert_int_equal(threads_of(0), 1);
    assert_int_equal(threads_of(TEAM_MIN - 1), 1);
    assert_int_equal(threads_of(TEAM_MIN), team_max());
    ops_set_threads(1);
    assert_int_equal(threads_of(INT64_MAX), 1);
    return NULL;
}

/* Small regions that take so long alone and with the team, until they have had `threads` for ten in a row. */
static void settle(int threads, i64 alone_us, i64 team_us) {
    const i64 least = team_min_small(team_max());
    int kept = 0;
    for (int i = 0; kept < 10; i++) {
        if (i == 3000000) fail_msg("small regions never had %d threads for long", threads);
        team t = team_begin(least);
        struct timespec begun, now;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (((i64)now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000 <
               (t.threads > 1 ? team_us : alone_us));
        team_end(&t);
        kept = i > 400 && t.threads == threads ? kept + 1 : 0; /* tried both ways by then */
    }
}

static bool no_small_teams(void) { return team_max() < 2 || team_min_small(team_max()) >= TEAM_MIN; }

static void *small_regions_with_a_team(void *arg) {
    (void)arg;
    if (no_small_teams()) return NULL;
    assert_int_equal(threads_of(team_min_small(team_max())), 1);
    assert_int_equal(threads_of(team_min_small(team_max()) - 1), 1);
    settle(team_max(), 10, 5); /* it pays */
    assert_int_equal(threads_of(team_min_small(team_max()) - 1), 1);
    settle(1, 10, 60); /* any more: what others do has changed */
    settle(team_max(), 10, 5);
    return NULL;
}

/* One that takes far longer than alone is held up, whatever its processor time: that is not asked for. */
static void *small_held_up_regions(void *arg) {
    (void)arg;
    if (no_small_teams()) return NULL;
    settle(team_max(), 10, 5);
    team t = {.threads = 1};
    for (int i = 0; i < 10000 && t.threads < 2; i++) t = team_begin(team_min_small(team_max()));
    assert_int_equal(t.threads, team_max());
    assert_int_equal(t.cpu_ns, 0);
    wait_ms(3);
    team_end(&t);
    assert_int_equal(threads_of(TEAM_MIN), team_max() / 2 > 1 ? team_max() / 2 : 1);
    assert_int_equal(threads_of(team_min_small(team_max())), 1); /* small ones wait until the whole team is back */
    return NULL;
}

static void *held_up_regions(void *arg) {
    (void)arg;
    int most = team_max();
    if (most < 2) return NULL;
    be_held_up();
    assert_int_equal(threads_of(TEAM_MIN), most / 2 > 1 ? most / 2 : 1);
    for (int n = most / 2; n > 1; n /= 2) be_held_up(); /* down to one, which cannot be held up */
    assert_int_equal(threads_of(TEAM_MIN), 1);
    be_held_up();
    assert_int_equal(threads_of(TEAM_MIN), 1);
    for (int i = 0; threads_of(TEAM_MIN) < most; i++) { /* it grows back */
        assert_true(i < 400);
        wait_ms(10);
    }
    wait_ms(600); /* undisturbed for long: the next rest is a short one */
    assert_int_equal(threads_of(TEAM_MIN), most);
    be_held_up();
    wait_ms(30);
    assert_int_equal(threads_of(TEAM_MIN), most);
    return NULL;
}

/* Runs a region that computes for 4 ms. False: other programs held it up, so it says nothing. */
static bool computed_undisturbed(void) {
    team t = team_begin(TEAM_MIN);
    struct timespec now;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((i64)now.tv_sec * 1000000000 + now.tv_nsec - t.cpu_ns < 4000000 && t.threads > 1);
    i64 cpu = (i64)now.tv_sec * 1000000000 + now.tv_nsec - t.cpu_ns;
    team_end(&t);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (i64)now.tv_sec * 1000000000 + now.tv_nsec - t.wall_ns < 2 * cpu;
}

/* A computation is not a wait, however long it takes. */
static bool quiet_enough;
static void *busy_regions(void *arg) {
    (void)arg;
    for (int i = 0; i < 100 && !quiet_enough; i++) {
        for (int k = 0; k < 100 && threads_of(TEAM_MIN) < team_max(); k++) wait_ms(10);
        quiet_enough = computed_undisturbed();
    }
    if (quiet_enough) assert_int_equal(threads_of(TEAM_MIN), team_max());
    return NULL;
}

/* The state belongs to the calling thread: each test has one of its own. */
static void on_a_thread(void *(*fn)(void *)) {
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, fn, NULL), 0);
    pthread_join(t, NULL);
}

static void by_work(void **state) { (void)state, on_a_thread(small_regions); }
static void small_ones_are_tried(void **state) {
    (void)state;
    on_a_thread(small_regions_with_a_team);
    if (no_small_teams()) skip();
}
static void rests_after_a_small_wait(void **state) {
    (void)state;
    on_a_thread(small_held_up_regions);
    if (no_small_teams()) skip();
}
static void rests_after_a_wait(void **state) { (void)state, on_a_thread(held_up_regions); }
static void computing_is_no_wait(void **state) {
    (void)state;
    on_a_thread(busy_regions);
    if (!quiet_enough) skip(); /* a hundred regions in a row were disturbed */
}

#ifndef __clang__ /* LLVM's threads stay */
/* Threads of this process, as the kernel counts them. */
static int threads_there(void) {
    char line[200];
    int n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (n < 0 && fgets(line, sizeof line, f)) sscanf(line, "Threads: %d", &n);
    fclose(f);
    return n;
}

static void *own_threads(void *arg) {
    int met = 0;
    for (int round = 0; round < 3; round++) {
        const int before = threads_there();
#pragma omp parallel num_threads(4) reduction(+ : met)
        met++;
        assert_int_equal(threads_there(), before + 3);
        team_dismiss();
        for (int i = 0; threads_there() > before && i < 10000; i++) wait_ms(1); /* joined, and not yet forgotten */
        assert_int_equal(threads_there(), before);
    }
    assert_int_equal(met, 12);
    return arg;
}

static void dismissed_threads_are_gone(void **state) { (void)state, on_a_thread(own_threads); }
#else
static void dismissed_threads_are_gone(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    team_max(); /* asked on the first thread */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_work),
        cmocka_unit_test(small_ones_are_tried),
        cmocka_unit_test(rests_after_a_wait),
        cmocka_unit_test(rests_after_a_small_wait),
        cmocka_unit_test(computing_is_no_wait),
        cmocka_unit_test(dismissed_threads_are_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
