/* tests/unit/runtime/test_warm_up_hosts.c: the steps before the first request in two processes that mpirun starts: this
 * program again, with the number of a case. */
#include "base/file.h"
#include "runtime/engine.h"
#include "runtime/warm_up.h"
#include "unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    i64 pp, topk;
} hosts_case;

static const hosts_case cases[] = {{1, 1}, {2, 1}, {2, 3}}; /* ranks of one stage, stages, stages with trees */

static const char *program;

/* One of the two processes. */
static int warm(const hosts_case *c) {
    engine *g;
    err e = {0};
    i64 steps = 0;
    const engine_options o = {.model_dir = "models/nano",
                              .device = "cpu",
                              .threads = 2,
                              .context = 256,
                              .chunk = 64,
                              .draft_dir = "models/nano-eagle3-mla",
                              .draft_steps = 3,
                              .draft_topk = c->topk,
                              .draft_nodes = c->topk > 1 ? 6 : 3,
                              .max_running = 2,
                              .kv_tokens = 1024,
                              .tp = 2,
                              .pp = c->pp,
                              .nnodes = 2};
    status st = engine_open(&g, &o, &e);
    if (st == ST_OK) {
        const bool follows = engine_follows(g);
        st = follows ? engine_follow(g, &e) : engine_warm_up(g, &steps, &e);
        if (st == ST_OK && !follows && steps < 2) st = err_set(&e, ST_DEVICE, "%lld steps", (long long)steps);
        engine_close(g);
    }
    if (st != ST_OK) fprintf(stderr, "%s\n", e.text);
    return st != ST_OK;
}

/* The plug-in of this build, or of the ordinary one. */
static bool find_plugin(char *out, size_t cap) {
    const char *end = strstr(program, "/tests/unit/");
    if (end) snprintf(out, cap, "%.*s/moonlet-mpi.so", (int)(end - program), program);
    if (!end || !file_exists(out)) snprintf(out, cap, "build/moonlet-mpi.so");
    return file_exists(out);
}

static void two_processes_warm_up(void **state) {
    (void)state;
    char plugin[4096], command[8192];
    if (!find_plugin(plugin, sizeof plugin) || system("mpirun --version > /dev/null 2>&1")) skip();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        /* MPI keeps memory at its end, which is not what sanitizers are to find */
        snprintf(
            command, sizeof command,
            "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" MOONLET_MPI=%s mpirun --allow-run-as-root --oversubscribe "
            "--bind-to none -n 2 %s %zu",
            plugin, program, i);
        if (system(command)) fail_msg("case %zu", i);
    }
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 1) return warm(&cases[strtoul(argv[1], NULL, 10) % COUNT_OF(cases)]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_processes_warm_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
