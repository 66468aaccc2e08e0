/* base/thread: what a thread of the library's own is called, and which signals come to it. */
#include "unit.h"

#include "base/thread.h"
#include <signal.h>
#include <string.h>

typedef struct {
    char name[16];
    sigset_t blocked;
} seen;

static void *look(void *ud) {
    seen *s = ud;
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    pthread_sigmask(SIG_SETMASK, NULL, &s->blocked);
    while (!s->name[0] || strcmp(s->name, "a-thread")) /* it is named when it runs already */
        pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    return ud;
}

static void signals_stay_with_the_program(void **state) {
    (void)state;
    seen s = {.name = ""};
    err e = {0};
    pthread_t t;
    void *back;
    sigset_t here;
    assert_int_equal(thread_start(&t, "a-thread", look, &s, &e), ST_OK);
    assert_int_equal(pthread_join(t, &back), 0);
    assert_ptr_equal(back, &s);
    assert_string_equal(s.name, "a-thread");
    static const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD};
    pthread_sigmask(SIG_SETMASK, NULL, &here);
    for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++) {
        assert_true(sigismember(&s.blocked, blocked[i]));
        assert_false(sigismember(&here, blocked[i]));
    }
    assert_false(sigismember(&s.blocked, SIGBUS));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(signals_stay_with_the_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
