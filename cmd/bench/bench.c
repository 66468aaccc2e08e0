/* cmd/bench/bench.c: `moonlet bench WHAT`. */
#include "cmd/bench/bench.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} benches[] = {
    {"gemm", "dense matrix products on a GPU: time, share of the roofline, error", bench_gemm},
    {"moe", "routed experts: time, share of the roofline, error against ref", bench_moe},
    {"attention", "latent attention on a GPU: time, share of the roofline, error against ref", bench_attention},
    {"layer", "one layer of Kimi-K2.5 on the CPU: time of each operation, share of what the machine can do",
     bench_layer},
    {"sample", "the next tokens of rows of logits on a GPU: time", bench_sample},
    {"allreduce", "the sum over ranks on several GPUs: time, and whether it is right", bench_allreduce},
    {"serving", "a server or an engine under load: TTFT, TPOT, ITL, throughput", bench_serving},
    {"grammar", "structured output: compiling a grammar, asking which tokens may come", bench_grammar},
    {"pictures", "files of pictures to patches: decoding, resizing, cutting", bench_pictures},
    {"memory", "read bandwidth, int8, bf16 and float32 peaks", bench_memory},
};

int cmd_bench(int argc, char **argv) {
    bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    for (size_t i = 0; argc > 1 && i < COUNT_OF(benches); i++)
        if (!strcmp(argv[1], benches[i].name)) return benches[i].run(argc - 1, argv + 1);
    FILE *f = help ? stdout : stderr;
    if (argc > 1 && !help) fprintf(f, "moonlet bench: no bench \"%s\"\n", argv[1]);
    fprintf(f, "usage: moonlet bench WHAT [options]\n\n");
    for (size_t i = 0; i < COUNT_OF(benches); i++) fprintf(f, "  %-10s %s\n", benches[i].name, benches[i].help);
    return help ? EXIT_DONE : EXIT_USAGE;
}
