/* cmd/bench/bench.h: the benches of `moonlet bench`; each takes argv with argv[0] its own name. */
#ifndef CMD_BENCH_BENCH_H
#define CMD_BENCH_BENCH_H
#include "cmd/cmd.h"
#include "kernels/ops.h"

int bench_gemm(int argc, char **argv);
int bench_moe(int argc, char **argv);
int bench_layer(int argc, char **argv);
int bench_sample(int argc, char **argv);
int bench_attention(int argc, char **argv);
int bench_allreduce(int argc, char **argv);
int bench_grammar(int argc, char **argv);
int bench_pictures(int argc, char **argv);
int bench_memory(int argc, char **argv);
int bench_serving(int argc, char **argv);

/* What the machine can do, measured now on `p` [bytes] and from registers. */
typedef struct {
    f64 read, int8, bf16, f32; /* bytes and operations a second; 0 where there is no instruction */
} machine_peaks;
machine_peaks bench_peaks(u32 isa, const void *p, u64 bytes);
/* What a GPU of that name was measured to reach; all 0: not known, and no shares. */
machine_peaks bench_gpu_peaks(const char *name);
void bench_print_peaks(const machine_peaks *m);
/* "2 x AMD EPYC 9B45" or so: threads and the processor's own name. */
const char *bench_chip(void);

#endif
