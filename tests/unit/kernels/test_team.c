/* The number of threads of a parallel region: by its work, and fewer for a while after a team was held up. */
#include "unit.h"

#include "kernels/ops.h"
#include "kernels/team.h"
#include <pthread.h>
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

/* The team of `work` behind a region that had the whole one; asked again where something came between. */
static int threads_behind_a_team(i64 work) {
    int n = 1;
    for (int i = 0; i < 100 && n < team_max(); i++) {
        threads_of(TEAM_MIN);
        n = threads_of(work);
    }
    return n;
}

static void *awake_regions(void *arg) {
    (void)arg;
    i64 least = team_min_awake(team_max());
    if (team_max() < 2 || least >= TEAM_MIN) return NULL;
    assert_int_equal(threads_behind_a_team(least), team_max());
    threads_of(TEAM_MIN);
    assert_int_equal(threads_of(least - 1), 1); /* too little, awake or not */
    wait_ms(5);
    assert_int_equal(threads_of(least), 1); /* they may sleep by now */
    i64 regions = 0;
    for (int i = 0; i < 100 && regions != 3; i++) { /* closely, so that they are woken by what all of them have */
        wait_ms(5);
        for (regions = 1; threads_of(TEAM_MIN - 1) < 2;) regions++;
    }
    assert_int_equal(regions, 3);
    return NULL;
}

/* A small one is held up when it takes long, whatever its processor time: that is not asked for. */
static void *small_held_up_regions(void *arg) {
    (void)arg;
    i64 least = team_min_awake(team_max());
    if (team_max() < 2 || least >= TEAM_MIN) return NULL;
    team t = {.threads = 1};
    for (int i = 0; i < 100 && t.threads < 2; i++) {
        threads_of(TEAM_MIN);
        t = team_begin(least);
    }
    assert_int_equal(t.threads, team_max());
    assert_int_equal(t.cpu_ns, 0);
    wait_ms(3);
    team_end(&t);
    assert_int_equal(threads_of(TEAM_MIN), team_max() / 2 > 1 ? team_max() / 2 : 1);
    assert_int_equal(threads_of(least), 1); /* small ones wait until the whole team is back */
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
static void by_who_is_awake(void **state) { (void)state, on_a_thread(awake_regions); }
static void rests_after_a_small_wait(void **state) { (void)state, on_a_thread(small_held_up_regions); }
static void rests_after_a_wait(void **state) { (void)state, on_a_thread(held_up_regions); }
static void computing_is_no_wait(void **state) {
    (void)state;
    on_a_thread(busy_regions);
    if (!quiet_enough) skip(); /* a hundred regions in a row were disturbed */
}

int main(void) {
    team_max(); /* asked on the first thread */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_work),
        cmocka_unit_test(by_who_is_awake),
        cmocka_unit_test(rests_after_a_wait),
        cmocka_unit_test(rests_after_a_small_wait),
        cmocka_unit_test(computing_is_no_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
