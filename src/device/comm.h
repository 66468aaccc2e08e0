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
#include "device/hosts.h"
#include "format/dtype.h"

typedef struct comm comm;
struct comm {
    const char *name; /* "shared memory" */
    i64 rank, ranks;
    i64 named; /* what rank 0 is called in errors, of a group of some of a model's ranks; who opens it says so */
    u64 held;  /* bytes of the device's memory that its end of the exchanges takes */
    bool peer; /* ranks are GPUs that reach each other's memory, and kernels may exchange by themselves */
    /* x [n] of DT_F32 or DT_BF16 becomes the sum of all ranks' x. */
    void (*all_reduce)(comm *c, void *x, i64 n, dtype type);
    /* all [ranks, bytes]: every rank's `mine`, which may lie at its place there. */
    void (*all_gather)(comm *c, const void *mine, void *all, u64 bytes);
    /* mine [n]: the sum of all ranks' x [ranks, n] at this rank's place. */
    void (*reduce_scatter)(comm *c, const void *x, void *mine, i64 n, dtype type);
    /* Elements of `size` bytes: out has out_counts[r] for each rank r, one rank's behind the other's; in gets
     * in_counts[r] from each, in the same order. The counts [ranks] are on the host; what one sends the other must
     * expect. */
    void (*all_to_all)(comm *c, const void *out, const i64 *out_counts, void *in, const i64 *in_counts, u64 size);
    /* A matrix [n, first[ranks]] of 32-bit elements, of which each rank has columns first[rank] to first[rank + 1] - 1,
     * is divided by rows instead: `rows` gets all columns of those that are this rank's by comm_rows(). first
     * [ranks + 1] is on the host, the same everywhere. */
    void (*columns_to_rows)(comm *c, const void *columns, i64 n, const i64 *first, void *rows);
    /* x [bytes] of rank `root` becomes everybody's. */
    void (*broadcast)(comm *c, void *x, u64 bytes, i64 root);
    void (*barrier)(comm *c);
    /* The group's first failure, now and from then on. On a device that queues: of what has run so far, and
     * ST_CANCELLED after cancel(), whose reason is then known elsewhere. */
    status (*finish)(comm *c, err *e);
    void (*cancel)(comm *c, const err *why); /* any thread */
    void (*close)(comm *c);                  /* every rank its own; the last one ends the group */
};

/* What one exchange between GPUs has room for: `units` of 8 bytes for each rank; a sum of `rows` of `dim` values. */
typedef struct {
    i64 units, rows, dim; /* dim: a multiple of 8 */
    i64 played;           /* 0, or: one rank alone, which has its own rows of a sum as if there were so many */
} comm_sizes;

enum { COMM_RANKS_MAX = 64, COMM_DEADLINE_S = 60 };

/* In a loop that looks at memory until another thread has written there. */
static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Which of n rows are a rank's: as many for each, rounded up, so that the last ones may have fewer or none. */
typedef struct {
    i64 from, to;
} row_range;
static inline row_range comm_rows(i64 n, i64 ranks, i64 rank) {
    const i64 each = ceil_div(n, ranks);
    return (row_range){min_i64(n, rank * each), min_i64(n, (rank + 1) * each)};
}

/* A group of threads of this process that share memory: out[ranks], each for one thread. deadline_s: the longest that
 * one may wait for another. */
status comm_host_open(comm **out, i64 ranks, f64 deadline_s, err *e);
/* The same for `ranks` threads of several processes, as many in each: the i-th process's are from i * ranks / processes
 * on; out: for those of this one. Its hosts must outlive them, and what fails in one ends both. */
status comm_hosts_open(comm **out, const host_group *of, i64 ranks, f64 deadline_s, err *e);

#endif
