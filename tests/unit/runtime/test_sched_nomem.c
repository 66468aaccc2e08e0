/* Every allocation of the scheduler fails once: a clean error, no leak (under AddressSanitizer), no page lost, and the
 * scheduler still works. malloc, calloc and realloc of this program are wrapped by the linker (Makefile). */
#include "runtime/sched_util.h"
#include <sys/mman.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

static long left = -1; /* allocations that succeed before one fails; negative: all */
static bool failed;

static bool fails(void) {
    if (left < 0 || left-- > 0) return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    return __real_mmap(at, n, prot, flags, fd, offset);
}

static const char *const DIR = "build/golden/k2-thinking-int4";

static void opening_fails_cleanly(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 0, 64);
    const scheduler_options o = {.manual = true, .on_events = on_events};
    for (long n = 0;; n++) {
        scheduler *s = NULL;
        err e = {0};
        failed = false;
        left = n;
        status st = scheduler_open(&s, g, &o, &e);
        left = -1;
        if (st == ST_OK) {
            assert_false(failed);
            assert_true(n > 10);
            scheduler_close(s);
            break;
        }
        assert_true(failed && st == ST_NOMEM && !s && e.text[0]);
    }
    engine_close(g);
}

static void requests_fail_cleanly(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    static job jobs[3], first;
    first.r = (sched_request){.n_prompt = 1, .max_new = 2, .sampling = sampling_default()};
    must_submit(s, &first); /* OpenMP allocates once, and ends the process if it cannot */
    run_all(s);
    int refused = 0, broken = 0;
    for (long n = 0;; n++) {
        sched_request r[3];
        err e = {0};
        for (int i = 0; i < 3; i++) {
            rewind_job(&jobs[i]);
            jobs[i].r = (sched_request){.user = &jobs[i],
                                        .prompt = jobs[i].prompt,
                                        .n_prompt = 30 * (i + 1),
                                        .max_new = 400,
                                        .sampling = sampling_default()};
            r[i] = jobs[i].r;
        }
        r[2].n_prompt = r[1].n_prompt; /* two answers to one prompt */
        r[2].prompt = r[1].prompt;
        failed = false;
        left = n;
        sched_verdict v = scheduler_submit(s, r, 3, NULL, NULL, &e);
        if (v != SCHED_ACCEPTED) {
            assert_true(failed && v == SCHED_NO_MEMORY);
            refused++;
        }
        while (scheduler_step(s)) {}
        left = -1;
        must_check(s);
        for (int i = 0; v == SCHED_ACCEPTED && i < 3; i++) {
            assert_true(jobs[i].ended);
            if (jobs[i].finish == SCHED_LENGTH) continue;
            assert_true(failed && jobs[i].finish == SCHED_ERROR && jobs[i].error.code == ST_NOMEM);
            broken++;
        }
        if (!failed) break;
    }
    assert_true(refused > 3 && broken > 0);
    scheduler_close(s);
    engine_close(g);
}

/* A full queue refuses before anything is copied. */
static void a_refusal_allocates_nothing(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .max_queued = 1});
    static job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i].r = (sched_request){.n_prompt = 500, .max_new = 2, .sampling = sampling_default()};
    for (int i = 0; i < 2; i++) must_submit(s, &jobs[i]);
    sched_request r = jobs[2].r;
    r.prompt = jobs[2].prompt;
    failed = false;
    left = 0;
    sched_verdict v = scheduler_submit(s, &r, 1, NULL, NULL, NULL);
    left = -1;
    assert_int_equal(v, SCHED_QUEUE_FULL);
    assert_false(failed);
    run_all(s);
    scheduler_close(s);
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(requests_fail_cleanly),
        cmocka_unit_test(a_refusal_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
