#include "kernels/team.h"
#include <omp.h>
#include <stdatomic.h>
#include <time.h>

/* A wait shorter than this is a barrier's usual one. */
static const i64 HELD_UP_NS = 500000;
/* Longest and shortest rest, and how long a team has to work undisturbed until the next rest is a short one again. */
static const i64 REST_MIN_NS = 20000000, REST_MAX_NS = 250000000;

/* Of a thread that calls. */
static _Thread_local struct {
    int halvings; /* the team is the whole one >> halvings */
    i64 rest_ns, until_ns;
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

team team_begin(i64 work) {
    int n = omp_get_max_threads(), max_threads = team_max();
    if (work < TEAM_MIN || n < 2 || max_threads < 2) return (team){.threads = 1};
    i64 now = clock_ns(CLOCK_MONOTONIC);
    if (self.halvings && now >= self.until_ns) { /* tries one size up; being held up soon costs a longer rest */
        self.halvings--;
        self.until_ns = now + self.rest_ns;
    }
    n = (n < max_threads ? n : max_threads) >> self.halvings;
    if (n < 2) return (team){.threads = 1};
    return (team){.threads = n, .wall_ns = now, .cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

void team_end(const team *t) {
    if (t->threads < 2) return;
    i64 now = clock_ns(CLOCK_MONOTONIC), wall = now - t->wall_ns;
    if (wall < HELD_UP_NS) return;
    i64 computed = clock_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_ns, waited = wall - computed;
    if (waited < HELD_UP_NS || waited < 2 * computed) return;
    bool again = self.rest_ns && now < self.until_ns + self.rest_ns;
    self.rest_ns = again ? 2 * self.rest_ns : REST_MIN_NS;
    if (self.rest_ns > REST_MAX_NS) self.rest_ns = REST_MAX_NS;
    self.halvings++;
    self.until_ns = now + self.rest_ns;
}
