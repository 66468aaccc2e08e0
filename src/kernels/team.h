/* kernels/team.h: how many OpenMP threads a parallel region gets, for the backends that compute on the host.
 *
 * The answer depends on the region's work and on whether this thread's last regions were held up; results do not
 * depend on it, since every sum is formed in an order of its own.
 *
 * Work. Waking the others costs tens of microseconds, so a region of less than TEAM_MIN multiply-adds (about 30 us)
 * wakes nobody by itself. But behind a region of theirs they look for the next one for some hundred microseconds
 * (cmd/main.c, GOMP_SPINCOUNT), and as long as they do, meeting twice costs half a microsecond among two. A step of
 * nano is about 60 regions of 3,000 to 800,000 multiply-adds a row, one close behind the other. So small regions, of
 * TEAM_MIN_SMALL a thread and more, are tried both ways, and the faster way is kept for a while. It is
 * not always the team: where another thread of the process has one, too (pictures are resized by one, a checkpoint was
 * requantized), libgomp lets all sleep at once, and each region costs 40 to 80 us. nano on two virtual cores, one row
 * at a time: 1835 -> 2580 tok/s, with drafts 2480 -> 3440; four streams 3360 -> 4530. Of sixteen threads those that
 * look for work slow down the one that has it, in between, too (1375 -> 1120 tok/s): not above TEAM_SMALL.
 *
 * Held up. Every region ends with a barrier. Where another program holds one of the cores, the thread of the team
 * that is due there runs only after a time slice of 3 to 5 ms, and all others wait for it, region after region. So:
 * a region whose calling thread waited more than twice as long as it computed (wall time minus its own processor
 * time) was held up, and the team is halved for a while, first for 20 ms, then for twice as long each time that the
 * larger team is held up again, at most for 250 ms: then about 2 % of the time goes into trying. Large regions on
 * shared cores last about twice as long as they compute; one thread would not do better there, and they keep their
 * team.
 *
 * nano on two virtual cores, 48 tokens after prompts of 32, client in the same process (a third thread); always the
 * whole team for regions of TEAM_MIN -> this rule; tok/s, median ms a token (P99):
 *    1 stream,  other work at a load of 1 to 3      1465 0.53 (1.0)  ->  1515 0.56 (0.9)
 *   64 streams, the same                             424  137 (291)  ->  3246 16.8  (60)
 *    1 stream,  one core held busy besides           391 0.55  (21)  ->  1258 0.63 (1.3)
 *   64 streams, the same                             222  257 (628)  ->  1124 48.7 (199)
 * Undisturbed, tests/unit/runtime/bench_scheduler gives 3529, 3734 and 4535 tok/s at 16, 16 and 64 streams before,
 * 3186, 3599 and 4464 after: within what the runs differ by. */
#ifndef KERNELS_TEAM_H
#define KERNELS_TEAM_H
#include "base/types.h"

enum {
    TEAM_MIN = 1 << 20,
    TEAM_MIN_SMALL = 1 << 14, /* a thread, of a team of up to */
    TEAM_SMALL = 8
};

typedef struct {
    int threads;         /* for num_threads(); at most one a processor */
    bool small;          /* of less than TEAM_MIN */
    i64 work;            /* 0: nothing is measured of it */
    i64 wall_ns, cpu_ns; /* of the calling thread, at the beginning; cpu_ns of those that are not small */
} team;

/* Around a parallel region of `work` multiply-adds (what costs more than one counts as more). */
team team_begin(i64 work);
void team_end(const team *t);
/* What a region of n threads needs. */
static inline i64 team_min_small(i64 n) { return n > TEAM_SMALL ? TEAM_MIN : n * TEAM_MIN_SMALL; }
/* The processors that the first caller could run on; the same for ever after: workspaces are planned for that many. */
int team_max(void);
/* Ends the OpenMP threads that the calling thread has beside itself, if any; its next region starts them again, in
 * some ten microseconds each. For who computes once and then waits: libgomp counts threads that have nothing to do,
 * too, and where there are more than processors, all of the process sleep as soon as they wait. Nothing with LLVM's
 * OpenMP, whose threads are everybody's. */
void team_dismiss(void);

#endif
