/* device/comm_internal.h: a group of ranks that are threads: of this process alone (comm_host.c), or of several
 * (comm_hosts.c), each with as many. */
#ifndef DEVICE_COMM_INTERNAL_H
#define DEVICE_COMM_INTERNAL_H
#include "device/comm.h"
#include <pthread.h>
#include <stdatomic.h>

typedef enum {
    CALL_ALL_REDUCE,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_ALL_TO_ALL,
    CALL_COLUMNS_TO_ROWS,
    CALL_BROADCAST,
    CALL_BARRIER,
    CALL_COLLECT_PARTS /* the second half of a large all-reduce */
} call_kind;
extern const char *const comm_call_names[];

/* What a rank calls: kind, size and root must be everybody's; the others read `data`. */
typedef struct {
    call_kind kind;
    u64 size; /* bytes, or of an element; of columns to rows, the rows */
    i64 root; /* of an all-reduce, the size of an element */
    const void *data;
    u64 from; /* `data` begins there: of another process's rank there is what is read here alone */
    const i64 *counts, *in_counts;
} comm_post;

static inline const void *post_at(const comm_post *p, u64 byte) { return (const u8 *)p->data + (byte - p->from); }

typedef struct {
    _Alignas(64) atomic_ullong arrived; /* barriers that this rank has come to */
    comm_post posts[2];                 /* of odd and even calls: one may still be read while the next is written */
} comm_place;

/* What has come from ranks of other processes and goes to them; grows. */
typedef struct {
    u8 *in, *out;
    u64 in_cap, out_cap;
    i64 *counts; /* [ranks, ranks]: of all-to-all, what each sends to ranks here */
} comm_far;

typedef struct {
    i64 ranks, first, held; /* all; those of this process */
    host_group of;          /* their processes; of.all NULL: there is no other */
    comm_far far;
    f64 deadline_s;
    atomic_llong open;
    atomic_bool failed;
    atomic_int sleepers;
    pthread_mutex_t lock; /* of why, and of falling asleep */
    pthread_cond_t changed;
    err why;
    comm_place places[];
} comm_group;

enum {
    ONE_SHOT = 1 << 14,   /* bytes up to which every rank sums all by itself: a barrier less */
    REDUCE_PART_UNIT = 32 /* elements: parts begin at cache lines */
};

/* Where rank r's part of n elements begins. */
static inline i64 reduce_part_from(i64 n, i64 ranks, i64 r) {
    const i64 each = ceil_div(ceil_div(n, ranks), REDUCE_PART_UNIT) * REDUCE_PART_UNIT;
    return min_i64(n, r * each);
}

/* comm_hosts.c: behind the posts of this process's ranks in call `number`, those of all others', with what is read of
 * them here. One of the threads calls it, while the others wait. */
status comm_fetch(comm_group *g, u64 number, call_kind kind, err *e);
void comm_far_close(comm_group *g);

#endif
