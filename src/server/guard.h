/* server/guard.h: a thread that looks after what may hang in a driver, whose caller cannot be told to end. */
#ifndef SERVER_GUARD_H
#define SERVER_GUARD_H
#include "base/err.h"
#include <pthread.h>

typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    f64 until; /* now_s() clock */
    bool over;
    void (*hangs)(void *ud);
    void *ud;
} guard;

/* In another thread hangs() is called once after so many seconds, unless guard_end() comes first. ST_LIMIT: there is no
 * thread for it. */
status guard_begin(guard *g, f64 seconds, void (*hangs)(void *ud), void *ud, err *e);
void guard_end(guard *g); /* waits for a hangs() under way */

#endif
