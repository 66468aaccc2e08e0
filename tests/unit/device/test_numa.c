/* NUMA nodes: what a host says of them, of its own and of hosts made up here; and that a thread stays where it is
 * bound, with its memory and with the threads that it starts. */
#include "unit.h"
#include "device/numa.h"
#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char host[32]; /* a folder as NUMA_ROOT is */

static void put(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", host, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_node(int id, const char *cpus, const char *memory) {
    char name[64];
    snprintf(name, sizeof name, "%s/node%d", host, id);
    mkdir(name, 0700);
    snprintf(name, sizeof name, "node%d/cpulist", id);
    put(name, cpus);
    snprintf(name, sizeof name, "node%d/meminfo", id);
    put(name, memory);
}

/* Of this thread's processors the first and the last. */
static void ends(int *first, int *last) {
    cpu_set_t own;
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    *first = -1;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &own)) continue;
        if (*first < 0) *first = c;
        *last = c;
    }
}

static int open_host(void **state) {
    (void)state;
    char cpus[32];
    int first, last;
    strcpy(host, "/tmp/moonlet-numa-XXXXXX");
    if (!mkdtemp(host)) return -1;
    ends(&first, &last);
    put("online", "0-1,7\n");
    snprintf(cpus, sizeof cpus, "%d\n", first);
    put_node(
        0, cpus,
        "Node 0 MemFree:  1000 kB\nNode 0 Active(anon): 7 kB\nNode 0 Active(file):  20 kB\nNode 0 Inactive(file): 3 kB\n");
    snprintf(cpus, sizeof cpus, "%d-%d\n", last, CPU_SETSIZE - 1);
    put_node(1, cpus, "Node 1 MemFree: 500 kB\n");
    put_node(7, "\n", "");
    return 0;
}

static int close_host(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", host);
    return system(command);
}

static void lists(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n, has, not ;
    } good[] = {{"0", 1, 0, 1},       {"0\n", 1, 0, 1}, {"0-3,8,10-11\n", 7, 11, 9}, {"", 0, -1, 0},
                {"\n", 0, -1, 0},     {"5-5", 1, 5, 4}, {"1023", 1, 1023, 1022},     {"0-1023 \n", 1024, 512, -1},
                {"3,1,1-2", 3, 2, 0}, {"0007", 1, 7, 0}};
    static const char *const bad[] = {"x",
                                      "-1",
                                      "1-",
                                      "3-1",
                                      "1,",
                                      ",1",
                                      "1,,2",
                                      "1 2",
                                      "0-1024",
                                      "1024",
                                      "9999",
                                      "99999",
                                      "0-99999999999999999999",
                                      "1-2-3",
                                      "1;2",
                                      "0x1",
                                      " 1",
                                      "1,\n",
                                      "1\n2",
                                      "+1",
                                      "1.5",
                                      "\xff"};
    cpu_set_t set;
    err e;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(numa_cpulist(good[i].text, &set, NULL), ST_OK);
        assert_int_equal(CPU_COUNT(&set), good[i].n);
        if (good[i].has >= 0) assert_true(CPU_ISSET(good[i].has, &set));
        if (good[i].not >= 0) assert_false(CPU_ISSET(good[i].not, &set));
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        e.text[0] = 0;
        if (numa_cpulist(bad[i], &set, &e) != ST_FORMAT || !e.text[0]) fail_msg("\"%s\" is taken", bad[i]);
    }
}

/* A node's text is damaged in every byte: it is a list or refused, nothing else. */
static void any_byte(void **state) {
    (void)state;
    const char *right = "0-3,8,10-11\n";
    char text[32];
    cpu_set_t set;
    int taken = 0;
    for (size_t at = 0; at < strlen(right); at++)
        for (int byte = 1; byte < 256; byte++) {
            strcpy(text, right);
            text[at] = (char)byte;
            status st = numa_cpulist(text, &set, NULL);
            assert_true(st == ST_OK || st == ST_FORMAT);
            taken += st == ST_OK;
        }
    assert_true(taken > 60 && taken < 200); /* digits, separators, white space at the end */
}

static void nodes_of_a_host(void **state) {
    (void)state;
    numa_node node;
    err e = {0};
    int first, last;
    ends(&first, &last);
    assert_int_equal(numa_find(&node, host, 0, &e), ST_OK);
    assert_true(node.id == 0 && CPU_COUNT(&node.cpus) == 1 && CPU_ISSET(first, &node.cpus));
    assert_int_equal(node.available, 1023 * 1024);
    assert_int_equal(numa_find(&node, host, 1, &e), ST_OK); /* of its processors those that are there */
    assert_true(CPU_COUNT(&node.cpus) == 1 && CPU_ISSET(last, &node.cpus));
    assert_int_equal(numa_find(&node, host, 3, &e), ST_INPUT);
    assert_string_equal(e.text, "--numa-node 3: this host has nodes 0-1,7");
    assert_int_equal(numa_find(&node, host, -1, &e), ST_INPUT);
    assert_int_equal(numa_find(&node, host, NUMA_NODES_MAX, &e), ST_INPUT);
    assert_int_equal(numa_find(&node, host, 7, &e), ST_INPUT);
    assert_string_equal(e.text, "--numa-node 7: this process may run on none of its processors (it has none)");
    put_node(7, "0-", "");
    assert_int_equal(numa_find(&node, host, 7, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "node7/cpulist: \"0-\" is no list"));
    put_node(7, "\n", "");
    assert_int_equal(numa_find(&node, "/nowhere", 0, &e), ST_UNSUPPORTED);
}

static void nodes_of_ranks(void **state) {
    (void)state;
    static const char *const bad[] = {"",        ",", "0,", "0,1",     "0,0,1,1,1", "0,0,1,",
                                      "0;0;1;1", "x", "-1", "0 0 1 1", "0,,1,1"};
    numa_node nodes[4];
    err e = {0};
    assert_int_equal(numa_choose(nodes, 4, host, "0,0,1,0", &e), ST_OK);
    assert_true(nodes[0].id == 0 && nodes[1].id == 0 && nodes[2].id == 1 && nodes[3].id == 0);
    assert_int_equal(numa_memory_each(nodes, 4), 1023 * 1024 / 3);
    assert_int_equal(numa_memory_each(nodes + 1, 2), 500 * 1024);
    assert_int_equal(numa_cpus_each(nodes, 4), 1); /* a third of one is one */
    for (int c = 0; c < 7; c++) CPU_SET(c, &nodes[0].cpus), CPU_SET(c, &nodes[1].cpus);
    nodes[3].id = 2;
    for (int c = 8; c < 20; c++) CPU_SET(c, &nodes[2].cpus), CPU_SET(c, &nodes[3].cpus);
    assert_int_equal(numa_cpus_each(nodes, 4), CPU_COUNT(&nodes[0].cpus) / 2);
    assert_int_equal(numa_choose(nodes, 4, host, "1", &e), ST_OK);
    assert_true(nodes[0].id == 1 && nodes[3].id == 1);
    assert_int_equal(numa_choose(nodes, 1, host, "1", &e), ST_OK);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (numa_choose(nodes, 4, host, bad[i], &e) != ST_INPUT) fail_msg("\"%s\" is taken", bad[i]);
    assert_int_equal(numa_choose(nodes, 1, host, "0,1", &e), ST_INPUT);
    assert_string_equal(e.text, "--numa-node 0,1: one node is wanted, as 0");
    assert_int_equal(numa_choose(nodes, 2, host, "0,5", &e), ST_INPUT);
    assert_string_equal(e.text, "--numa-node 5: this host has nodes 0-1,7");
}

typedef struct {
    cpu_set_t cpus;
    int mode;
    unsigned long mask[NUMA_NODES_MAX / 64];
} place;

static void *look(void *arg) {
    place *p = arg;
    assert_int_equal(sched_getaffinity(0, sizeof p->cpus, &p->cpus), 0);
    assert_int_equal(syscall(SYS_get_mempolicy, &p->mode, p->mask, (unsigned long)NUMA_NODES_MAX + 1, NULL, 0UL), 0);
    return NULL;
}

typedef struct {
    const numa_node *node;
    status st;
    err e;
    place self, child;
} bound;

static void *bind_and_look(void *arg) {
    bound *b = arg;
    pthread_t child;
    b->st = numa_bind(b->node, &b->e);
    look(&b->self);
    assert_int_equal(pthread_create(&child, NULL, look, &b->child), 0);
    pthread_join(child, NULL);
    return NULL;
}

/* Node 0 is there on every host; its processors are this test's choice. */
static void a_thread_stays(void **state) {
    (void)state;
    pthread_t t;
    numa_node node, none = {.id = 1000};
    place before = {0}, after = {0};
    if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0UL)) skip(); /* a container that forbids it */
    look(&before);
    assert_int_equal(numa_find(&node, host, 0, NULL), ST_OK);
    bound b = {.node = &node};
    assert_int_equal(pthread_create(&t, NULL, bind_and_look, &b), 0);
    pthread_join(t, NULL);
    if (b.st != ST_OK) fail_msg("%s", b.e.text);
    for (const place *p = &b.self; p; p = p == &b.self ? &b.child : NULL) {
        assert_true(CPU_EQUAL(&p->cpus, &node.cpus));
        assert_int_equal(p->mode, MPOL_BIND);
        assert_int_equal(p->mask[0], 1);
        for (size_t i = 1; i < COUNT_OF(p->mask); i++) assert_int_equal(p->mask[i], 0);
    }
    look(&after); /* the others are not concerned */
    assert_memory_equal(&before, &after, sizeof before);
    none.cpus = node.cpus;
    b = (bound){.node = &none};
    assert_int_equal(pthread_create(&t, NULL, bind_and_look, &b), 0);
    pthread_join(t, NULL);
    assert_int_equal(b.st, ST_UNSUPPORTED);
    assert_non_null(strstr(b.e.text, "--numa-node 1000: its memory: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),          cmocka_unit_test(any_byte),       cmocka_unit_test(nodes_of_a_host),
        cmocka_unit_test(nodes_of_ranks), cmocka_unit_test(a_thread_stays),
    };
    return cmocka_run_group_tests(tests, open_host, close_host);
}
