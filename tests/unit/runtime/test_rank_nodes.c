/* Ranks bound to NUMA nodes: each rank's thread and its team run on the node's processors with its memory, the caller's
 * thread stays as it was, and one rank alone fails and goes on as one without a node does. */
#include "unit.h"
#include "runtime/ranks.h"
#include <linux/mempolicy.h>
#include <omp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* LLVM's OpenMP binds a thread that begins a team as the first such thread of the process was bound, and gives the
 * workers of one that has ended to the next: with it nothing here can be told (--numa-node says so). */
#ifdef __clang__
enum { THREADS_STAY = 0 };
#else
enum { THREADS_STAY = 1 };
#endif

static const model_config config = {.n_heads = 8, .inter_dense = 8, .inter_expert = 8, .vocab = 8, .ranks = 1};

/* Node 0, with one of this thread's processors each: the first and the last. */
static void two_places(numa_node nodes[2]) {
    cpu_set_t own;
    int found = 0;
    memset(nodes, 0, 2 * sizeof *nodes);
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &own)) continue;
        CPU_ZERO(&nodes[1].cpus);
        CPU_SET(c, &nodes[1].cpus);
        if (!found++) nodes[0].cpus = nodes[1].cpus;
    }
}

static bool may_bind(void) { return syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0UL) == 0; }

static bool is_at(const numa_node *node) {
    cpu_set_t cpus;
    int mode = -1;
    unsigned long mask[NUMA_NODES_MAX / 64] = {0};
    sched_getaffinity(0, sizeof cpus, &cpus);
    syscall(SYS_get_mempolicy, &mode, mask, (unsigned long)NUMA_NODES_MAX + 1, NULL, 0UL);
    return CPU_EQUAL(&cpus, &node->cpus) && mode == MPOL_BIND && mask[0] == 1;
}

typedef struct {
    const numa_node *nodes;
    pid_t caller;
    int there[2], team[2];
} census;

static status count(rank *k, void *ud, err *e) {
    (void)e;
    census *c = ud;
    int n = 0;
    c->there[k->index] = is_at(&c->nodes[k->index]) && gettid() != c->caller;
#pragma omp parallel num_threads(3) reduction(+ : n)
    n += is_at(&c->nodes[k->index]);
    c->team[k->index] = n;
    return ST_OK;
}

static void ranks_stay_with_their_teams(void **state) {
    (void)state;
    numa_node nodes[2];
    err e = {0};
    cpu_set_t before, after;
    if (!THREADS_STAY || !may_bind()) skip();
    two_places(nodes);
    sched_getaffinity(0, sizeof before, &before);
    for (i64 n = 1; n <= 2; n++) {
        ranks r;
        assert_int_equal(ranks_open(&r, &config, &(rank_layout){.tp = n, .pp = 1}, NULL, false, 60, &e), ST_OK);
        if (ranks_bind(&r, nodes, &e) != ST_OK) fail_msg("%s", e.text);
        assert_true(r.bound);
        census c = {.nodes = nodes, .caller = gettid()};
        for (int again = 0; again < 2; again++) assert_int_equal(ranks_each(&r, count, &c, &e), ST_OK);
        for (i64 k = 0; k < n; k++) assert_true(c.there[k] && c.team[k] == 3);
        ranks_close(&r);
    }
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    assert_false(is_at(&nodes[0]));
}

static status fails(rank *k, void *ud, err *e) {
    (void)k;
    return *(bool *)ud ? err_set(e, ST_NUMERIC, "no number") : ST_OK;
}

static void one_rank_goes_on(void **state) {
    (void)state;
    numa_node nodes[2];
    err e = {0};
    ranks r;
    bool yes = true, no = false;
    if (!may_bind()) skip();
    two_places(nodes);
    assert_int_equal(ranks_open(&r, &config, &(rank_layout){.tp = 1, .pp = 1}, NULL, false, 60, &e), ST_OK);
    assert_int_equal(ranks_bind(&r, nodes, &e), ST_OK);
    assert_int_equal(ranks_each(&r, fails, &yes, &e), ST_NUMERIC);
    assert_string_equal(e.text, "no number");
    assert_int_equal(ranks_each(&r, fails, &yes, NULL), ST_NUMERIC);
    assert_int_equal(ranks_each(&r, fails, &no, &e), ST_OK);
    ranks_close(&r);
}

static void a_node_that_is_not_there(void **state) {
    (void)state;
    numa_node nodes[2];
    err e = {0};
    ranks r;
    if (!may_bind()) skip();
    two_places(nodes);
    nodes[1].id = 1000;
    assert_int_equal(ranks_open(&r, &config, &(rank_layout){.tp = 2, .pp = 1}, NULL, false, 60, &e), ST_OK);
    assert_int_equal(ranks_bind(&r, nodes, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "rank 1: --numa-node 1000: its memory: "));
    assert_false(r.bound);
    ranks_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_stay_with_their_teams),
        cmocka_unit_test(one_rank_goes_on),
        cmocka_unit_test(a_node_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
