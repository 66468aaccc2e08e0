/* tests/lib/fake_mpi.h: MPI among the threads of a test, for device/hosts.c: a table of functions for each of up to
 * FAKE_PROCESSES "processes". Messages of one sender and channel arrive in order; a large one is sent when it has been
 * received, as MPI does it. fake_mpi_start(n) begins anew. */
#ifndef TESTS_FAKE_MPI_H
#define TESTS_FAKE_MPI_H
#include "device/mpi_plugin.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_PROCESSES = 4, FAKE_EAGER = 4096, FAKE_MESSAGES = 1 << 12 };

typedef struct {
    bool used, taken;
    i64 from, to, bytes;
    mpi_channel channel;
    i32 tag;
    u64 number; /* ascends */
    u8 *data;
} fake_message;

/* A receive that has been posted: the test looks for its message. Marked by bit 63 of the second word. */
typedef struct fake_receive {
    i64 self, from, bytes;
    mpi_channel channel;
    void *to;
    struct fake_receive *next;
} fake_receive;

static struct {
    pthread_mutex_t lock;
    i64 n;
    u64 number;
    fake_receive *posted;
    bool deaf[FAKE_PROCESSES]; /* it has ended: nothing that is sent to it arrives */
    fake_message all[FAKE_MESSAGES];
} fake_mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void fake_forget(fake_receive *r) {
    fake_receive **at = &fake_mpi.posted;
    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next;
    free(r);
}

static inline void fake_mpi_start(i64 n) {
    while (fake_mpi.posted) fake_forget(fake_mpi.posted);
    for (i64 i = 0; i < FAKE_MESSAGES; i++) free(fake_mpi.all[i].data);
    memset(fake_mpi.all, 0, sizeof fake_mpi.all);
    memset(fake_mpi.deaf, 0, sizeof fake_mpi.deaf);
    fake_mpi.n = n;
}

static inline int fake_send(i64 self, mpi_channel c, i64 to, i32 tag, const void *data, i64 bytes, mpi_message *m) {
    int failed = -1;
    pthread_mutex_lock(&fake_mpi.lock);
    for (i64 i = 0; failed && i < FAKE_MESSAGES; i++) {
        fake_message *f = &fake_mpi.all[i];
        if (f->used) continue;
        *f = (fake_message){true, false, self, to, bytes, c, tag, ++fake_mpi.number, malloc((size_t)bytes + 1)};
        if (bytes) memcpy(f->data, data, (size_t)bytes);
        *m = (mpi_message){{(u64)(bytes > FAKE_EAGER ? i + 1 : 0), f->number}};
        failed = 0;
    }
    pthread_mutex_unlock(&fake_mpi.lock);
    return failed;
}

/* The oldest that fits; from below 0: from anybody. With the lock. */
static inline fake_message *fake_next(i64 self, mpi_channel c, i64 from) {
    fake_message *oldest = NULL;
    for (i64 i = 0; i < FAKE_MESSAGES && !fake_mpi.deaf[self]; i++) {
        fake_message *f = &fake_mpi.all[i];
        if (!f->used || f->taken || f->to != self || f->channel != c || (from >= 0 && f->from != from)) continue;
        if (!oldest || f->number < oldest->number) oldest = f;
    }
    return oldest;
}

static inline int fake_post(i64 self, mpi_channel c, i64 from, void *data, i64 bytes, mpi_message *m) {
    fake_receive *r = malloc(sizeof *r);
    pthread_mutex_lock(&fake_mpi.lock);
    *r = (fake_receive){self, from, bytes, c, data, fake_mpi.posted};
    fake_mpi.posted = r;
    pthread_mutex_unlock(&fake_mpi.lock);
    *m = (mpi_message){{(u64)(uintptr_t)r, (u64)1 << 63}};
    return 0;
}

static inline bool fake_receive_test(fake_receive *r, mpi_envelope *of) {
    fake_message *f = fake_next(r->self, r->channel, r->from);
    if (!f) return false;
    const i64 n = f->bytes < r->bytes ? f->bytes : r->bytes;
    if (n) memcpy(r->to, f->data, (size_t)n);
    if (of) *of = (mpi_envelope){f->from, f->tag, f->bytes};
    f->taken = true;
    if (f->bytes > FAKE_EAGER) return true; /* its sender looks, too */
    free(f->data);
    *f = (fake_message){0};
    return true;
}

static inline int fake_test(mpi_message *m, bool *done, mpi_envelope *of) {
    *done = true;
    pthread_mutex_lock(&fake_mpi.lock);
    if (m->handle[1] >> 63) {
        fake_receive *r = (fake_receive *)(uintptr_t)m->handle[0];
        *done = !r || fake_receive_test(r, of);
        if (*done && r) fake_forget(r);
        if (*done) m->handle[0] = 0;
    } else if (m->handle[0]) {
        fake_message *f = &fake_mpi.all[m->handle[0] - 1];
        *done = !f->used || f->number != m->handle[1] || f->taken;
        if (*done && f->used && f->number == m->handle[1]) {
            free(f->data);
            *f = (fake_message){0};
        }
        if (*done) m->handle[0] = 0;
    }
    pthread_mutex_unlock(&fake_mpi.lock);
    return 0;
}

static inline int fake_probe(i64 self, mpi_channel c, bool *there, mpi_envelope *of) {
    pthread_mutex_lock(&fake_mpi.lock);
    const fake_message *f = fake_next(self, c, -1);
    *there = f != NULL;
    if (f) *of = (mpi_envelope){f->from, f->tag, f->bytes};
    pthread_mutex_unlock(&fake_mpi.lock);
    return 0;
}

static inline const char *fake_library(void) { return "a fake MPI"; }
static inline const char *fake_why(void) { return "the fake has no room"; }
static inline int fake_end(void) { return 0; }
static inline void fake_abort(int code) { exit(code); }

#define FAKE_PROCESS(P)                                                                                                \
    static inline int fake_start_##P(i64 *process, i64 *processes) {                                                   \
        *process = P, *processes = fake_mpi.n;                                                                         \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static inline int fake_send_##P(mpi_channel c, i64 to, i32 tag, const void *d, i64 n, mpi_message *m) {            \
        return fake_send(P, c, to, tag, d, n, m);                                                                      \
    }                                                                                                                  \
    static inline int fake_receive_##P(mpi_channel c, i64 from, void *d, i64 n, mpi_message *m) {                      \
        return fake_post(P, c, from, d, n, m);                                                                         \
    }                                                                                                                  \
    static inline int fake_probe_##P(mpi_channel c, bool *there, mpi_envelope *of) {                                   \
        return fake_probe(P, c, there, of);                                                                            \
    }
#define FAKE_TABLE(P)                                                                                                  \
    {                                                                                                                  \
        .abi = MPI_PLUGIN_ABI, .start = fake_start_##P, .library = fake_library, .why = fake_why,                      \
        .send = fake_send_##P, .receive = fake_receive_##P, .test = fake_test, .probe = fake_probe_##P,                \
        .end = fake_end, .abort = fake_abort                                                                           \
    }
FAKE_PROCESS(0)
FAKE_PROCESS(1)
FAKE_PROCESS(2)
FAKE_PROCESS(3)
static const mpi_plugin fake_processes[FAKE_PROCESSES] = {FAKE_TABLE(0), FAKE_TABLE(1), FAKE_TABLE(2), FAKE_TABLE(3)};

#endif
