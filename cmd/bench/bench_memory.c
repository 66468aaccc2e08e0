/* cmd/bench/bench_memory.c: `moonlet bench memory`: the ceilings that other benches are measured against. */
#include "cmd/bench/bench.h"
#include "kernels/cpu/peak.h"
#include <cpuid.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

machine_peaks bench_peaks(u32 isa, const void *p, u64 bytes) {
    return (machine_peaks){cpu_peak_read(p, bytes), cpu_peak_int8(isa), cpu_peak_bf16(isa), cpu_peak_f32(isa)};
}

/* H200: one machine, 2026-11-20, read and cuBLAS. */
machine_peaks bench_gpu_peaks(const char *name) {
    return strstr(name, "H200") ? (machine_peaks){.read = 4.35e12, .int8 = 1410e12, .bf16 = 722e12}
                                : (machine_peaks){0};
}

void bench_print_peaks(const machine_peaks *m) {
    printf("%s: read %.1f GB/s, int8 %.2f TOP/s, bf16 %.2f TFLOP/s, fp32 %.2f TFLOP/s\n", bench_chip(), m->read / 1e9,
           m->int8 / 1e12, m->bf16 / 1e12, m->f32 / 1e12);
    fflush(stdout);
}

const char *bench_chip(void) {
    static char text[96];
    u32 r[12] = {0}, most = __get_cpuid_max(0x80000000, NULL);
    char brand[49] = "x86-64";
    if (most >= 0x80000004) {
        for (u32 i = 0; i < 3; i++) __get_cpuid(0x80000002 + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
        memcpy(brand, r, 48);
        brand[48] = 0;
    }
    for (size_t n = strlen(brand); n && brand[n - 1] == ' '; n--) brand[n - 1] = 0;
    u32 a = 0, b, c, d;
    __get_cpuid(1, &a, &b, &c, &d);
    u32 family = (a >> 8 & 15) + (a >> 20 & 255), model = (a >> 4 & 15) | (a >> 12 & 0xf0);
    snprintf(text, sizeof text, "%d threads, %s (family %u model %u)", omp_get_max_threads(),
             brand + strspn(brand, " "), family, model);
    return text;
}

int bench_memory(int argc, char **argv) {
    i64 threads = 0, mib = 1024;
    const char *json = NULL;
    const opt_spec specs[] = {
        {"threads", 't', OPT_INT, &threads, "N", "CPU threads (default: all cores)", 0, 4096},
        {"mib", 0, OPT_INT, &mib, "N", "memory to read, MiB (default: 1024)", 16, 1 << 20},
        {"json", 0, OPT_STR, &json, "FILE", "writes the same as a JSON line", 0, 0},
    };
    int done = cmd_options("bench memory", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    ops_set_threads((int)threads);
    u64 bytes = (u64)mib << 20;
    u8 *p = malloc(bytes);
    if (!p) {
        err_nomem(&e, "the memory to read", bytes);
        return cmd_fail("bench memory", &e);
    }
    memset(p, 1, bytes);
    machine_peaks m = bench_peaks(cpu_isa(), p, bytes);
    free(p);
    bench_print_peaks(&m);
    if (!json) return EXIT_DONE;
    FILE *f = fopen(json, "w");
    if (f)
        fprintf(
            f,
            "{\"bench\":\"memory\",\"chip\":\"%s\",\"read_gb_s\":%.3f,\"int8_tops\":%.4f,\"bf16_tflops\":%.4f,\"fp32_tflops\":%.4f}\n",
            bench_chip(), m.read / 1e9, m.int8 / 1e12, m.bf16 / 1e12, m.f32 / 1e12);
    if (!f || fclose(f)) {
        err_set(&e, ST_IO, "--json %s cannot be written", json);
        return cmd_fail("bench memory", &e);
    }
    return EXIT_DONE;
}
