#include "device/numa.h"
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NUMA_TEXT = 8192 }; /* a file here; 1024 processors, every second one, are 4 KB */

/* A number of at most four digits at *at, which moves behind it; -1: none. */
static i64 list_number(const char **at) {
    i64 v = 0, digits = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++, digits++) {
        if (digits == 4) return -1;
        v = 10 * v + (**at - '0');
    }
    return digits ? v : -1;
}

status numa_cpulist(const char *text, cpu_set_t *out, err *e) {
    const char *at = text;
    CPU_ZERO(out);
    while (*at && *at != '\n') {
        i64 from = list_number(&at), to = from;
        if (*at == '-') at++, to = list_number(&at);
        if (from < 0 || to < from) return err_set(e, ST_FORMAT, "\"%.100s\" is no list of processors", text);
        if (to >= CPU_SETSIZE)
            return err_set(e, ST_FORMAT, "processor %lld is beyond the %d that can be chosen", (long long)to,
                           CPU_SETSIZE);
        for (i64 c = from; c <= to; c++) CPU_SET((int)c, out);
        if (*at == ',' && at[1] >= '0' && at[1] <= '9')
            at++;
        else
            break;
    }
    at += strspn(at, " \t\n");
    return *at ? err_set(e, ST_FORMAT, "\"%.100s\" is no list of processors", text) : ST_OK;
}

/* A small file as text; false: not there, or too long. */
static bool numa_text(const char *root, const char *name, char out[NUMA_TEXT]) {
    char path[512];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", root, name) >= sizeof path) return false;
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(out, 1, NUMA_TEXT, f) : 0;
    bool whole = f && !ferror(f) && n < NUMA_TEXT;
    if (f) fclose(f);
    if (whole) out[n] = 0;
    return whole;
}

/* What MemAvailable is made of, as far as a node tells it. */
static u64 node_available(const char *root, i64 id) {
    static const char *const keys[] = {"MemFree", "Active(file)", "Inactive(file)"};
    char text[NUMA_TEXT], name[64];
    u64 kb = 0;
    snprintf(name, sizeof name, "node%lld/meminfo", (long long)id);
    if (!numa_text(root, name, text)) return 0;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        snprintf(name, sizeof name, " %s:", keys[i]);
        const char *at = strstr(text, name);
        if (at) kb += strtoull(at + strlen(name), NULL, 10);
    }
    return kb * 1024;
}

status numa_find(numa_node *out, const char *root, i64 id, err *e) {
    char text[NUMA_TEXT], name[64];
    cpu_set_t own;
    *out = (numa_node){.id = id};
    snprintf(name, sizeof name, "node%lld/cpulist", (long long)id);
    if (id < 0 || id >= NUMA_NODES_MAX || !numa_text(root, name, text)) {
        if (!numa_text(root, "online", text))
            return err_set(e, ST_UNSUPPORTED, "--numa-node: %s tells of no nodes", root);
        text[strcspn(text, "\n")] = 0;
        return err_set(e, ST_INPUT, "--numa-node %lld: this host has node%s %.100s", (long long)id,
                       strpbrk(text, ",-") ? "s" : "", text);
    }
    status st = numa_cpulist(text, &out->cpus, e);
    if (st != ST_OK) return err_prefix(e, "--numa-node: %s/%s", root, name);
    if (sched_getaffinity(0, sizeof own, &own))
        return err_set(e, ST_UNSUPPORTED, "--numa-node: the processors of this process: %s", strerror(errno));
    CPU_AND(&out->cpus, &out->cpus, &own);
    text[strcspn(text, "\n")] = 0;
    if (!CPU_COUNT(&out->cpus))
        return err_set(e, ST_INPUT, "--numa-node %lld: this process may run on none of its processors (%.100s)",
                       (long long)id, *text ? text : "it has none");
    out->available = node_available(root, id);
    return ST_OK;
}

status numa_choose(numa_node *out, i64 n, const char *root, const char *list, err *e) {
    const char *at = list;
    for (i64 r = 0; r < n; r++) {
        i64 id = list_number(&at);
        bool all = r == 0 && n > 1 && id >= 0 && !*at;
        if (id < 0 || *at != (r + 1 < n && !all ? ',' : 0))
            return n == 1 ? err_set(e, ST_INPUT, "--numa-node %.100s: one node is wanted, as 0", list)
                          : err_set(e, ST_INPUT,
                                    "--numa-node %.100s: one node is wanted, or one for each of %lld ranks, as 0,0,1,1",
                                    list, (long long)n);
        status st = numa_find(&out[r], root, id, e);
        if (st != ST_OK) return st;
        for (i64 k = 1; all && k < n; k++) out[k] = out[0];
        if (all) return ST_OK;
        at++;
    }
    return ST_OK;
}

static i64 ranks_beside(const numa_node *nodes, i64 n, i64 r) {
    i64 same = 0;
    for (i64 k = 0; k < n; k++) same += nodes[k].id == nodes[r].id;
    return same;
}

i64 numa_cpus_each(const numa_node *nodes, i64 n) {
    i64 least = CPU_SETSIZE;
    for (i64 r = 0; r < n; r++) least = min_i64(least, CPU_COUNT(&nodes[r].cpus) / ranks_beside(nodes, n, r));
    return max_i64(least, 1);
}

u64 numa_memory_each(const numa_node *nodes, i64 n) {
    u64 least = ~0ull;
    for (i64 r = 0; r < n; r++) {
        u64 own = nodes[r].available / (u64)ranks_beside(nodes, n, r);
        least = own < least ? own : least;
    }
    return least;
}

/* What containers refuse unless they are told otherwise. */
static const char *remedy(void) {
    return errno == EPERM || errno == ENOSYS ? " (a container needs the capability SYS_NICE for that)" : "";
}

status numa_bind(const numa_node *node, err *e) {
    unsigned long mask[NUMA_NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof *mask;
    mask[(size_t)node->id / bits] = 1ul << ((size_t)node->id % bits);
    if (sched_setaffinity(0, sizeof node->cpus, &node->cpus))
        return err_set(e, ST_UNSUPPORTED, "--numa-node %lld: its processors: %s%s", (long long)node->id,
                       strerror(errno), remedy());
    /* The kernel takes one bit less than it is told. */
    if (syscall(SYS_set_mempolicy, MPOL_BIND, mask, (unsigned long)NUMA_NODES_MAX + 1))
        return err_set(e, ST_UNSUPPORTED, "--numa-node %lld: its memory: %s%s", (long long)node->id, strerror(errno),
                       remedy());
    return ST_OK;
}
