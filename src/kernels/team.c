#include "kernels/team.h"
#include <omp.h>
#include <stdatomic.h>
#include <time.h>

/* A wait shorter than this is a barrier's usual one. */
static const i64 HELD_UP_NS = 500000;
/* Longest and shortest rest, and how long a team has to work undisturbed until the next rest is a short one again. */
static const i64 REST_MIN_NS = 20000000, REST_MAX_NS = 250000000;

/* Small regions are tried by themselves, then with the team, so many of each behind some that wake it; what was faster
 * is kept for so long: the team where it lost costs more to try again. */
enum { TRIED = 128, WAKING = 16 };
static const i64 TEAM_KEPT_NS = 250000000, ALONE_KEPT_NS = 1000000000;

typedef struct {
    i64 regions, work, ns;
} region_trial;

/* Of a thread that calls. */
static _Thread_local struct {
    int halvings; /* the team is the whole one >> halvings */
    i64 rest_ns, until_ns;
    enum { TRY_ALONE, TRY_TEAM, KEEP } stage; /* of small regions */
    region_trial alone, together;
    bool team_wins;
    i64 kept_until_ns;
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

/* Does the next small region get the team? */
static bool small_wants_team(i64 now) {
    if (self.stage == KEEP && now >= self.kept_until_ns) {
        self.alone = self.together = (region_trial){0};
        self.stage = TRY_ALONE;
    }
    return self.stage == TRY_TEAM || (self.stage == KEEP && self.team_wins);
}

static f64 ns_of_work(const region_trial *r) { return (f64)r->ns / (f64)r->work; }

/* A small region has taken so long. */
static void small_was(const team *t, i64 wall, i64 now) {
    region_trial *r = t->threads > 1 ? &self.together : &self.alone;
    if (self.stage == KEEP || (t->threads > 1) != (self.stage == TRY_TEAM)) return;
    if (++r->regions <= WAKING) return;
    r->work += t->work, r->ns += min_i64(wall, HELD_UP_NS);
    if (r->regions < WAKING + TRIED) return;
    self.team_wins = self.stage == TRY_TEAM && ns_of_work(&self.together) < ns_of_work(&self.alone);
    self.kept_until_ns = now + (self.team_wins ? TEAM_KEPT_NS : ALONE_KEPT_NS);
    self.stage++;
}

team team_begin(i64 work) {
    int n = (int)min_i64(omp_get_max_threads(), team_max());
    const bool small = work < TEAM_MIN;
    if (n < 2 || (small && work < team_min_small(n))) return (team){.threads = 1};
    i64 now = clock_ns(CLOCK_MONOTONIC);
    if (self.halvings && now >= self.until_ns) { /* tries one size up; being held up soon costs a longer rest */
        self.halvings--;
        self.until_ns = now + self.rest_ns;
    }
    team t = {.threads = n >> self.halvings, .work = work, .small = small, .wall_ns = now};
    if (small && (self.halvings || !small_wants_team(now))) t.threads = 1;
    if (t.threads < 2) return t.threads = 1, t;
    if (!small) t.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return t;
}

/* What the calling thread computed in a region; of a small one no more than it would have taken alone. */
static i64 computed_ns(const team *t) {
    if (!t->small) return clock_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_ns;
    return self.alone.work ? (i64)(ns_of_work(&self.alone) * (f64)t->work) : 0;
}

void team_end(const team *t) {
    if (t->threads < 2 && !t->small) return;
    i64 now = clock_ns(CLOCK_MONOTONIC), wall = now - t->wall_ns;
    if (t->small) small_was(t, wall, now);
    if (t->threads < 2 || wall < HELD_UP_NS) return;
    i64 computed = computed_ns(t), waited = wall - computed;
    if (waited < HELD_UP_NS || waited < 2 * computed) return;
    bool again = self.rest_ns && now < self.until_ns + self.rest_ns;
    self.rest_ns = again ? 2 * self.rest_ns : REST_MIN_NS;
    if (self.rest_ns > REST_MAX_NS) self.rest_ns = REST_MAX_NS;
    self.halvings++;
    self.until_ns = now + self.rest_ns;
}

void team_dismiss(void) {
#ifndef __clang__
    omp_pause_resource(omp_pause_soft, omp_get_initial_device());
#endif
}
