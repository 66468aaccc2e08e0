/* tests/lib/fake_mpi.h: MPI among the threads of a test, for device/hosts.c: a table of functions for each of up to
 * FAKE_PROCESSES "processes". fake_mpi_start(n) begins anew.
 *
 * It keeps to what MPI promises and no more. Messages of one sender and channel meet receives in order. A small message
 * is sent at once, and copied to where it is wanted by some call of the process that receives it. A large one is sent
 * when it has been received; it goes from the sender's memory to the receiver's at any time in between, as a network
 * does it. One that is longer than its receive is an error. Two threads of one process that call at a time abort. */
#ifndef TESTS_FAKE_MPI_H
#define TESTS_FAKE_MPI_H
#include "device/mpi_plugin.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_PROCESSES = 4, FAKE_EAGER = 4096 };

/* A message or a receive. A small message has a copy of its own and no handle. */
typedef struct fake_op fake_op;
struct fake_op {
    bool receives, done, too_long;
    i64 self, peer, bytes;
    mpi_channel channel;
    i32 tag;
    const u8 *out;
    u8 *copy, *in;
    mpi_envelope of;
    fake_op *other, *next; /* what it has met; the one posted after it */
};

static struct {
    pthread_mutex_t lock;
    i64 n;
    fake_op *posted;            /* in order */
    bool deaf[FAKE_PROCESSES];  /* it has ended: nothing that is sent to it arrives */
    bool fails[FAKE_PROCESSES]; /* its sends and receives */
    bool held;                  /* large messages stay under way until fake_mpi_let_go() */
    atomic_bool inside[FAKE_PROCESSES];
    atomic_llong calls[FAKE_PROCESSES]; /* of one that may write to memory */
} fake_mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void fake_forget(fake_op *o) {
    fake_op **at = &fake_mpi.posted;
    while (*at && *at != o) at = &(*at)->next;
    if (*at) *at = o->next;
    free(o->copy);
    free(o);
}

static inline void fake_mpi_start(i64 n) {
    while (fake_mpi.posted) fake_forget(fake_mpi.posted);
    memset(fake_mpi.deaf, 0, sizeof fake_mpi.deaf);
    memset(fake_mpi.fails, 0, sizeof fake_mpi.fails);
    fake_mpi.held = false;
    fake_mpi.n = n;
}

static inline void fake_set(bool *what, bool to) {
    pthread_mutex_lock(&fake_mpi.lock);
    *what = to;
    pthread_mutex_unlock(&fake_mpi.lock);
}

/* From a message to the receive that it has met. */
static inline void fake_deliver(fake_op *r) {
    fake_op *m = r->other;
    const i64 n = m->bytes < r->bytes ? m->bytes : r->bytes;
    if (n) memcpy(r->in, m->copy ? m->copy : m->out, (size_t)n);
    r->of = (mpi_envelope){m->self, m->tag, m->bytes};
    r->too_long = m->bytes > r->bytes;
    r->done = m->done = true;
    r->other = m->other = NULL;
    if (m->copy) fake_forget(m);
}

/* What arrives while process `self` is in a call; below 0: by the network alone. */
static inline void fake_progress(i64 self) {
    for (fake_op *o = fake_mpi.posted; o; o = o->next)
        if (o->receives && o->other && (o->other->copy ? o->self == self : !fake_mpi.held)) {
            fake_deliver(o);
            o = fake_mpi.posted; /* the list is another; who is first needs no second look */
        }
}

static inline void fake_mpi_let_go(void) {
    pthread_mutex_lock(&fake_mpi.lock);
    fake_mpi.held = false;
    fake_progress(-1);
    pthread_mutex_unlock(&fake_mpi.lock);
}

static inline void fake_enter(i64 self) {
    if (atomic_exchange(&fake_mpi.inside[self], true)) abort();
    atomic_fetch_add(&fake_mpi.calls[self], 1);
    pthread_mutex_lock(&fake_mpi.lock);
    fake_progress(self);
}

static inline int fake_leave(i64 self, int code) {
    fake_progress(self);
    pthread_mutex_unlock(&fake_mpi.lock);
    atomic_store(&fake_mpi.inside[self], false);
    return code;
}

static inline bool fake_fit(const fake_op *m, const fake_op *r) {
    return !m->receives && r->receives && !m->done && !r->done && !m->other && !r->other && m->self == r->peer &&
           m->peer == r->self && m->channel == r->channel;
}

/* Behind all others; the first of these that fits has met it. */
static inline fake_op *fake_post(const fake_op *as) {
    fake_op *o = malloc(sizeof *o), **end = &fake_mpi.posted;
    *o = *as;
    for (; *end; end = &(*end)->next)
        if (!o->other && (fake_fit(o, *end) || fake_fit(*end, o))) o->other = *end, (*end)->other = o;
    *end = o;
    return o;
}

static inline int fake_send(i64 self, mpi_channel c, i64 to, i32 tag, const void *data, i64 bytes, mpi_message *m) {
    fake_enter(self);
    if (fake_mpi.fails[self]) return fake_leave(self, -1);
    fake_op o = {.self = self, .peer = to, .bytes = bytes, .channel = c, .tag = tag, .out = data};
    const bool small = bytes <= FAKE_EAGER;
    *m = (mpi_message){{0, 0}};
    if (small && fake_mpi.deaf[to]) return fake_leave(self, 0);
    if (small) o.copy = malloc((size_t)bytes + 1);
    if (small && bytes) memcpy(o.copy, data, (size_t)bytes);
    o.done = fake_mpi.deaf[to]; /* such that nothing meets it */
    fake_op *posted = fake_post(&o);
    if (fake_mpi.deaf[to]) posted->done = false, posted->peer = -1;
    if (!small) m->handle[0] = (u64)(uintptr_t)posted;
    return fake_leave(self, 0);
}

static inline int fake_receive(i64 self, mpi_channel c, i64 from, void *data, i64 bytes, mpi_message *m) {
    fake_enter(self);
    if (fake_mpi.fails[self]) return fake_leave(self, -1);
    fake_op o = {.receives = true, .self = self, .peer = from, .bytes = bytes, .channel = c, .in = data};
    *m = (mpi_message){{(u64)(uintptr_t)fake_post(&o), 0}};
    return fake_leave(self, 0);
}

static inline int fake_test(i64 self, mpi_message *m, bool *done, mpi_envelope *of) {
    fake_op *o = (fake_op *)(uintptr_t)m->handle[0];
    int code = 0;
    fake_enter(self);
    *done = !o || o->done;
    if (o && *done) {
        if (of && o->receives) *of = o->of;
        if (o->too_long) code = -1;
        m->handle[0] = 0;
        fake_forget(o);
    }
    return fake_leave(self, code);
}

static inline int fake_probe(i64 self, mpi_channel c, bool *there, mpi_envelope *of) {
    *there = false;
    fake_enter(self);
    for (const fake_op *o = fake_mpi.posted; o && !*there && !fake_mpi.deaf[self]; o = o->next) {
        if (o->receives || o->peer != self || o->channel != c || o->done || o->other) continue;
        *of = (mpi_envelope){o->self, o->tag, o->bytes};
        *there = true;
    }
    return fake_leave(self, 0);
}

static inline const char *fake_library(void) { return "a fake MPI"; }
static inline const char *fake_why(void) { return "a message is too long, or the test wants a failure"; }
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
        return fake_receive(P, c, from, d, n, m);                                                                      \
    }                                                                                                                  \
    static inline int fake_test_##P(mpi_message *m, bool *done, mpi_envelope *of) {                                    \
        return fake_test(P, m, done, of);                                                                              \
    }                                                                                                                  \
    static inline int fake_probe_##P(mpi_channel c, bool *there, mpi_envelope *of) {                                   \
        return fake_probe(P, c, there, of);                                                                            \
    }
#define FAKE_TABLE(P)                                                                                                  \
    {                                                                                                                  \
        .abi = MPI_PLUGIN_ABI, .start = fake_start_##P, .library = fake_library, .why = fake_why,                      \
        .send = fake_send_##P, .receive = fake_receive_##P, .test = fake_test_##P, .probe = fake_probe_##P,            \
        .end = fake_end, .abort = fake_abort                                                                           \
    }
FAKE_PROCESS(0)
FAKE_PROCESS(1)
FAKE_PROCESS(2)
FAKE_PROCESS(3)
static const mpi_plugin fake_processes[FAKE_PROCESSES] = {FAKE_TABLE(0), FAKE_TABLE(1), FAKE_TABLE(2), FAKE_TABLE(3)};

#endif
