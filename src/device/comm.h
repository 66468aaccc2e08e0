/* device/comm.h: how the ranks of one model exchange what they computed.
 *
 * A comm is one rank's end of a group. Every rank calls the same functions in the same order with the same sizes, on
 * memory of its own device; a call counts as an operation of that device and is queued where the device queues. Sums
 * are float32, in the order of the ranks, rounded once: all ranks get the same bits, on every run.
 *
 * No call waits for ever: a rank that does not come within the group's deadline, or that calls something else, ends
 * the group. From then on every call returns at once, what is in the buffers means nothing, and finish() says why, with
 * the rank's number. Whoever fails beside the group says so with cancel(), so that the others need not wait. */
#ifndef DEVICE_COMM_H
#define DEVICE_COMM_H
#include "base/err.h"
#include "format/dtype.h"

typedef struct comm comm;
struct comm {
    const char *name; /* "shared memory" */
    i64 rank, ranks;
    /* x [n] of DT_F32 or DT_BF16 becomes the sum of all ranks' x. */
    void (*all_reduce)(comm *c, void *x, i64 n, dtype type);
    /* all [ranks, bytes]: every rank's `mine`. */
    void (*all_gather)(comm *c, const void *mine, void *all, u64 bytes);
    /* mine [n]: the sum of all ranks' x [ranks, n] at this rank's place. */
    void (*reduce_scatter)(comm *c, const void *x, void *mine, i64 n, dtype type);
    /* Elements of `size` bytes: out has out_counts[r] for each rank r, one rank's behind the other's; in gets
     * in_counts[r] from each, in the same order. The counts [ranks] are on the host; what one sends the other must
     * expect. */
    void (*all_to_all)(comm *c, const void *out, const i64 *out_counts, void *in, const i64 *in_counts, u64 size);
    /* x [bytes] of rank `root` becomes everybody's. */
    void (*broadcast)(comm *c, void *x, u64 bytes, i64 root);
    void (*barrier)(comm *c);
    /* The group's first failure, now and from then on. On a device that queues: of what has run so far, and
     * ST_CANCELLED after cancel(), whose reason is then known elsewhere. */
    status (*finish)(comm *c, err *e);
    void (*cancel)(comm *c, const err *why); /* any thread */
    void (*close)(comm *c);                  /* every rank its own; the last one ends the group */
};

enum { COMM_RANKS_MAX = 64, COMM_DEADLINE_S = 60 };

/* A group of threads of this process that share memory: out[ranks], each for one thread. deadline_s: the longest that
 * one may wait for another. */
status comm_host_open(comm **out, i64 ranks, f64 deadline_s, err *e);

#endif
