#include "kernels/team.h"
#include <omp.h>
#include <stdatomic.h>
#include <time.h>

/* A wait shorter than this is a barrier's usual one. */
static const i64 HELD_UP_NS = 500000;
/* Longest and shortest rest, and how long a team has to work undisturbed until the next rest is a short one again. */
static const i64 REST_MIN_NS = 20000000, REST_MAX_NS = 250000000;

/* A team's threads look for the next region for longer than this before they sleep (libgomp: some milliseconds); small
 * regions that come within CLOSELY_NS wake them together. */
static const i64 AWAKE_NS = 1000000, CLOSELY_NS = 2000000;

/* Of a thread that calls. */
static _Thread_local struct {
    int halvings; /* the team is the whole one >> halvings */
    i64 rest_ns, until_ns;
    i64 ended_ns;             /* when its last team had done its region */
    i64 alone_work, alone_ns; /* small regions that it did by itself, since when */
} self;

static i64 clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (i64)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Asked once: what a thread may run on can change, or differ from thread to thread, after a workspace was planned. */
int team_max(void) {
    static atomic_int known;
    int n = atomic_load(&known), none = 0;
    if (n) return n;
    n = omp_get_num_procs();
    return atomic_compare_exchange_strong(&known, &none, n) ? n : none;
}

/* Are the team's threads awake, or do small regions come so closely that they are worth waking? */
static bool worth_a_team(i64 work, i64 now) {
    if (now - self.ended_ns < AWAKE_NS) return true;
    if (now - self.alone_ns > CLOSELY_NS) self.alone_ns = now, self.alone_work = 0;
    self.alone_work += work;
    return self.alone_work >= 2 * (i64)TEAM_MIN;
}

team team_begin(i64 work) {
    int n = (int)min_i64(omp_get_max_threads(), team_max());
    const bool small = work < TEAM_MIN;
    if (n < 2 || (small && work < team_min_awake(n))) return (team){.threads = 1};
    i64 now = clock_ns(CLOCK_MONOTONIC);
    if (self.halvings && now >= self.until_ns) { /* tries one size up; being held up soon costs a longer rest */
        self.halvings--;
        self.until_ns = now + self.rest_ns;
    }
    n >>= self.halvings;
    if (n < 2 || (small && (self.halvings || !worth_a_team(work, now)))) return (team){.threads = 1};
    return (team){.threads = n, .wall_ns = now, .cpu_ns = small ? 0 : clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

void team_end(const team *t) {
    if (t->threads < 2) return;
    i64 now = clock_ns(CLOCK_MONOTONIC), wall = now - t->wall_ns;
    self.ended_ns = now;
    if (wall < HELD_UP_NS) return;
    i64 computed = t->cpu_ns ? clock_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_ns : 0, waited = wall - computed;
    if (waited < HELD_UP_NS || waited < 2 * computed) return;
    bool again = self.rest_ns && now < self.until_ns + self.rest_ns;
    self.rest_ns = again ? 2 * self.rest_ns : REST_MIN_NS;
    if (self.rest_ns > REST_MAX_NS) self.rest_ns = REST_MAX_NS;
    self.halvings++;
    self.until_ns = now + self.rest_ns;
}
