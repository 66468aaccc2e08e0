/* device/numa.h: a host's NUMA nodes, and threads that stay on one: they run on its processors alone and get memory
 * from it alone.
 *
 * Linux tells of nodes under NUMA_ROOT: `online` ("0-1"), and nodeN/cpulist and nodeN/meminfo. The functions take that
 * folder, so that tests can have hosts of their own. */
#ifndef DEVICE_NUMA_H
#define DEVICE_NUMA_H
#include "base/err.h"
#include <sched.h>

#define NUMA_ROOT "/sys/devices/system/node"
enum { NUMA_NODES_MAX = 1024 };

typedef struct {
    i64 id;
    cpu_set_t cpus; /* those that this process may run on; at least one */
    u64 available;  /* bytes: free, or holding files that can be read again */
} numa_node;

/* "0-3,8,10-11" as the kernel writes it, white space behind it allowed. ST_FORMAT: anything else, or a number beyond
 * CPU_SETSIZE. An empty list is a list. */
status numa_cpulist(const char *text, cpu_set_t *out, err *e);

/* Node `id`. ST_INPUT: the host has no such node, or none of its processors is this thread's (taskset, cgroups). */
status numa_find(numa_node *out, const char *root, i64 id, err *e);

/* The nodes of n ranks from "0,0,1,1", or from "0", which is the node of all. */
status numa_choose(numa_node *out, i64 n, const char *root, const char *list, err *e);

/* Of n ranks that share the host so: the processors, and the bytes of memory, that each can count on. */
i64 numa_cpus_each(const numa_node *nodes, i64 n);
u64 numa_memory_each(const numa_node *nodes, i64 n);

/* From here on the calling thread, and every thread that it will start, runs on the node's processors, and what they
 * touch first lies in its memory; there is no other memory for them when that is full (MPOL_BIND). */
status numa_bind(const numa_node *node, err *e);

#endif
