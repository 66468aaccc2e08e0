#include "base/thread.h"
#include <signal.h>
#include <string.h>

status thread_start(pthread_t *thread, const char *name, void *(*run)(void *ud), void *ud, err *e) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int failed = pthread_create(thread, NULL, run, ud);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return err_set(e, ST_LIMIT, "the thread \"%s\" cannot be started: %s", name, strerror(failed));
    pthread_setname_np(*thread, name);
    return ST_OK;
}
