#include "server/guard.h"
#include "base/log.h"
#include "base/thread.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

static void *watch_over(void *ud) {
    guard *g = ud;
    struct timespec until = {.tv_sec = (time_t)g->until, .tv_nsec = (long)((g->until - floor(g->until)) * 1e9)};
    pthread_mutex_lock(&g->lock);
    while (!g->over && pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT) {}
    const bool hangs = !g->over;
    pthread_mutex_unlock(&g->lock);
    if (hangs) g->hangs(g->ud);
    return NULL;
}

status guard_begin(guard *g, f64 seconds, void (*hangs)(void *ud), void *ud, err *e) {
    pthread_condattr_t monotonic;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *g = (guard){.until = (f64)now.tv_sec + (f64)now.tv_nsec * 1e-9 + fmin(seconds, 1e9), .hangs = hangs, .ud = ud};
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const status st = thread_start(&g->thread, "gpu-watch", watch_over, g, e);
    if (st == ST_OK) return st;
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    return st;
}

void guard_end(guard *g) {
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}
