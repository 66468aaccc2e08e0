/* device/hosts.h: the processes that serve one model together, started by mpirun on one host or several: what they say
 * to each other, by MPI (mpi_plugin.h).
 *
 * Process 0 leads. No wait is for ever: a process that does not come within the deadline, or comes to something else,
 * is named, and ends the group: all learn why, and from then on every call fails with it. So does mpirun's end. Waits
 * give their processor to others, and sleep when they take long. Functions may be called from any thread. */
#ifndef DEVICE_HOSTS_H
#define DEVICE_HOSTS_H
#include "base/buf.h"
#include "base/err.h"
#include "device/mpi_plugin.h"
#include <stdatomic.h>

typedef struct hosts hosts;

enum { HOSTS_MOST = 64, HOST_NAME_MOST = 64 };

/* MPI starts, and every process learns of the others. ST_INPUT: mpirun has started another number of them than
 * `processes`, or did not start this one. ST_UNSUPPORTED: no moonlet-mpi.so beside the program, in ../lib/moonlet or
 * where MOONLET_MPI says. deadline_s: the longest that one may wait for another in a step. */
status hosts_open(hosts **out, i64 processes, f64 deadline_s, err *e);
/* The same with other means than MPI; `process` is told by its start(). For tests. */
status hosts_open_with(hosts **out, const mpi_plugin *p, i64 processes, f64 deadline_s, err *e);
/* Waits for the others to close, too, unless the group has failed: then h is not freed, which has what was left
 * behind. */
void hosts_close(hosts *h);
/* Memory of an exchange that failed, into which a network may yet write (small messages are copied by calls of MPI, of
 * which there are none after a failure): it stays until the process ends, which is soon. NULL is allowed. */
void hosts_leave(hosts *h, void *memory);
/* How many processes mpirun has started, this one among them; 1: it did not start it; 0: something did that does not
 * say how many, which MPI knows when it has started. */
i64 hosts_started(void);

i64 hosts_self(const hosts *h);
i64 hosts_count(const hosts *h);
const char *hosts_name(const hosts *h, i64 process); /* of its host */
/* Processes on the host of this one, and its number among them. */
i64 hosts_here(const hosts *h);
i64 hosts_place(const hosts *h);
const char *hosts_library(const hosts *h); /* "Open MPI v4.1.4" */
/* From here on errors name a process's ranks, too: so many in each. */
void hosts_name_ranks(hosts *h, i64 each);

/* Some of the processes: n of them, from `first` on, which exchange on a channel of theirs. */
typedef struct {
    hosts *all;
    i64 first, n;
    mpi_channel channel;
} host_group;

/* What goes to another process and comes from it. */
typedef struct {
    const void *out;
    void *in;
    u64 out_bytes, in_bytes;
} host_parcel;

/* Every process of the group calls it with the same `what`, for errors, and the same tag in 0..MPI_TAG_MAX; with
 * [g->n], this one's own entry is not looked at. One thread at a time of those that exchange with one process on one
 * channel. stop: ends the wait where it becomes true; NULL: nothing does. ST_DEVICE: see above. */
status hosts_exchange(const host_group *g, const char *what, i32 tag, const host_parcel *with, const atomic_bool *stop,
                      err *e);

/* While the model is opened, where one process may take minutes longer than others: who is waited for is said every
 * half a minute. all [processes, bytes]: everybody's `mine`. */
status hosts_share(hosts *h, const char *what, const void *mine, void *all, u64 bytes, err *e);
/* Of a group alone: all [g->n, bytes]. */
status hosts_share_among(const host_group *g, const char *what, const void *mine, void *all, u64 bytes, err *e);
/* The status of the first process that has failed, with its number and host in front of its error; st and *e are this
 * one's. The group goes on. */
status hosts_agree(hosts *h, status st, err *e);

/* From process 0 to all others, which listen, for ever if it has nothing to say. */
status hosts_tell(hosts *h, const void *bytes, u64 n, err *e);
status hosts_listen(hosts *h, buf *out, err *e);

/* Of process 0's tables for the others, and of what ranks exchange: bytes sent and seconds in the calls, waiting for
 * others included. Any thread. */
typedef struct {
    i64 jobs, exchanges;
    u64 told_bytes, exchanged_bytes;
    f64 told_s, exchanged_s;
} hosts_counts;
hosts_counts hosts_counted(hosts *h);
void hosts_forget_counts(hosts *h); /* they begin anew */

/* ST_OK, or why the group has failed. */
status hosts_check(hosts *h, err *e);
/* Does every process answer within so many seconds? Else the first that does not is the reason why the group fails. */
status hosts_roll_call(hosts *h, f64 seconds, err *e);
/* Ends the group: tells all others why. */
void hosts_cancel(hosts *h, const err *why);

#endif
