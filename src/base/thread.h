/* base/thread.h: threads of the library's own. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H
#include "base/err.h"
#include <pthread.h>

/* Starts run(ud). Signals stay with the program's own threads: the new one has all blocked but SIGBUS, which a mapped
 * file that was cut raises in whoever reads it. name: what tools show of it, at most 15 characters. *thread is the
 * caller's to join; ST_LIMIT: the system has no thread for it. */
status thread_start(pthread_t *thread, const char *name, void *(*run)(void *ud), void *ud, err *e);

#endif
