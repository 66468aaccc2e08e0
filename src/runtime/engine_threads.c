/* runtime/engine_threads.c: the host's threads among the ranks, and where they stay. */
#include "base/log.h"
#include "kernels/gpu/gpu.h"
#include "kernels/team.h"
#include "runtime/engine_internal.h"
#include <omp.h>

/* Multiply-adds of the largest region of a step of one row: the head's, a dense layer's, the experts'. */
static i64 largest_region(const model_config *c) {
    const i64 experts = c->top_k * c->inter_expert + c->inter_shared;
    return c->hidden * max_i64(c->vocab, 3 * max_i64(c->inter_dense, experts));
}

/* A model whose every region is a small one writes no faster with more threads than TEAM_SMALL, and at few streams
 * slower: they wait for each other. nano on 16 processors of a Xeon, 16 threads and 8, tok/s: 1 stream 1412, 1953;
 * 8 streams 5837, 7064; 64 streams 11896, 12535; prompts of 2000 5149, 5422. */
i64 engine_threads(const model_config *c, i64 asked, i64 processors) {
    if (asked) return asked;
    return largest_region(c) < TEAM_MIN ? min_i64(processors, TEAM_SMALL) : processors;
}

/* --numa-node: where the ranks stay, and how many threads each has there unless --threads says so. */
static status bind_ranks(engine *g, const engine_options *o, err *e) {
    numa_node nodes[COMM_RANKS_MAX];
    const i64 n = g->ranks.held;
    if (!o->numa_node) return ST_OK;
    if (omp_get_proc_bind() != omp_proc_bind_false)
        return err_set(e, ST_INPUT, "--numa-node: OpenMP binds threads itself: unset OMP_PROC_BIND and OMP_PLACES");
    status st = numa_choose(nodes, n, NUMA_ROOT, o->numa_node, e);
    if (st != ST_OK) return st;
    if (!o->threads) g->ranks.threads_each = (int)min_i64(omp_get_max_threads() / n, numa_cpus_each(nodes, n));
    g->ranks.threads_each = (int)max_i64(g->ranks.threads_each, 1);
    g->node_memory = numa_memory_each(nodes, n);
#ifdef __clang__
    log_warn(
        "--numa-node: this program was built with LLVM's OpenMP, which moves threads as it likes: build it with gcc");
#endif
    (void)team_max(); /* asked here, else a bound thread's few processors would be all that this process ever uses */
    return ranks_bind(&g->ranks, nodes, e);
}

/* Stages compute one after the other: those of one stage share the processors. */
status engine_divide_threads(engine *g, const engine_options *o, i64 ranks_here, err *e) {
    const bool gpu = o->device && backend_name_is_gpu(o->device);
    const i64 most = team_max(), all = gpu ? o->threads : engine_threads(&g->config, o->threads, most);
    if (!gpu && !o->threads && all < most)
        log_note("%lld threads on %lld processors: a step of this model has too little work for more (--threads)",
                 (long long)all, (long long)most);
    ops_set_threads((int)all);
    g->ranks.threads_each =
        g->ranks.n > 1 ? (int)max_i64(omp_get_max_threads() / min_i64(ranks_here, g->layout.tp), 1) : (int)all;
    return bind_ranks(g, o, e);
}
