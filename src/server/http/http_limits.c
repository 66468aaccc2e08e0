#include "server/http/http_limits.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct http_client {
    http_client *next, *prev;
    int fd;
    client_phase phase;
    f64 since;    /* the phase's begin; of a body: of the stretch that is being looked at */
    u64 received; /* bytes of the body in that stretch */
    i64 requests;
};

struct http_limits {
    http_limit_options o;
    pthread_t sweeper;
    pthread_mutex_t lock;
    pthread_cond_t stop_cond;
    bool stop, sweeping;
    http_client *clients;
    i64 n_clients;
    u64 held;
};

/* ---- Time ---- */

static bool too_slow(const http_limit_options *o, http_client *c, f64 now) {
    f64 took = now - c->since;
    switch (c->phase) {
    case CLIENT_HEAD: return took > o->header_s;
    case CLIENT_BETWEEN: return took > o->idle_s + o->header_s; /* idle ones are closed before that */
    case CLIENT_BODY:
        if (took < o->header_s) return false;
        if ((f64)c->received < took * (f64)o->body_rate) return true;
        c->since = now;
        c->received = 0;
        return false;
    default: return false;
    }
}

static void *limits_sweep(void *ud) {
    http_limits *l = ud;
    i64 step_ns = l->o.header_s < 4 ? (i64)(l->o.header_s * 0.25e9) + 1000000 : 1000000000;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        i64 ns = until.tv_nsec + step_ns;
        until.tv_sec += ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        pthread_cond_timedwait(&l->stop_cond, &l->lock, &until);
        f64 now = now_s();
        for (http_client *c = l->clients; c; c = c->next)
            if (too_slow(&l->o, c, now)) shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

http_client *http_client_new(http_limits *l, int fd) {
    http_client *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->fd = fd;
    c->since = now_s();
    pthread_mutex_lock(&l->lock);
    c->next = l->clients;
    if (l->clients) l->clients->prev = c;
    l->clients = c;
    l->n_clients++;
    pthread_mutex_unlock(&l->lock);
    return c;
}

void http_client_free(http_limits *l, http_client *c) {
    if (!c) return;
    pthread_mutex_lock(&l->lock);
    if (c->next) c->next->prev = c->prev;
    *(c->prev ? &c->prev->next : &l->clients) = c->next;
    l->n_clients--;
    pthread_mutex_unlock(&l->lock);
    free(c);
}

void http_client_phase(http_limits *l, http_client *c, client_phase p) {
    if (!c) return;
    pthread_mutex_lock(&l->lock);
    c->phase = p;
    c->since = now_s();
    c->received = 0;
    if (p == CLIENT_BODY) c->requests++;
    pthread_mutex_unlock(&l->lock);
}

void http_client_received(http_limits *l, http_client *c, size_t bytes) {
    if (!c) return;
    pthread_mutex_lock(&l->lock);
    c->received += bytes;
    pthread_mutex_unlock(&l->lock);
}

i64 http_client_requests(http_limits *l, http_client *c) {
    if (!c) return 1;
    pthread_mutex_lock(&l->lock);
    i64 n = c->requests;
    pthread_mutex_unlock(&l->lock);
    return n;
}

i64 http_client_count(http_limits *l) {
    pthread_mutex_lock(&l->lock);
    i64 n = l->n_clients;
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* ---- Memory ---- */

static u64 counted(u64 held) { return held > HOLD_FREE ? held - HOLD_FREE : 0; }

bool http_limits_hold(http_limits *l, u64 *held, u64 more) {
    u64 then;
    if (!add_size(*held, more, &then)) return false;
    u64 grows = counted(then) - counted(*held);
    pthread_mutex_lock(&l->lock);
    u64 most = (u64)l->o.memory_max;
    bool ok = !grows || (counted(then) <= most / 2 && l->held <= most - grows);
    if (ok) {
        l->held += grows;
        *held = then;
    }
    pthread_mutex_unlock(&l->lock);
    return ok;
}

void http_limits_release(http_limits *l, u64 *held, u64 left) {
    if (left >= *held) return;
    pthread_mutex_lock(&l->lock);
    l->held -= counted(*held) - counted(left);
    pthread_mutex_unlock(&l->lock);
    *held = left;
}

u64 http_limits_memory(http_limits *l) {
    pthread_mutex_lock(&l->lock);
    u64 n = l->held;
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* ---- Opening and closing ---- */

status http_limits_open(http_limits **out, const http_limit_options *o, err *e) {
    http_limits *l = *out = calloc(1, sizeof *l);
    if (!l) return err_nomem(e, "the limits of connections", sizeof *l);
    l->o = *o;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->stop_cond, NULL);
    const status st = thread_start(&l->sweeper, "http-limits", limits_sweep, l, e);
    l->sweeping = st == ST_OK;
    if (st == ST_OK) return st;
    http_limits_close(l);
    *out = NULL;
    return st;
}

void http_limits_close(http_limits *l) {
    if (!l) return;
    if (l->sweeping) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->stop_cond);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->sweeper, NULL);
    }
    pthread_cond_destroy(&l->stop_cond);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
