#include "cmd/bench/profile_table.h"
#include "cmd/bench/bench.h"
#include <string.h>

static void print_op(FILE *f, const op_time *o, f64 all, f64 steps, const char *chip) {
    const machine_peaks most = bench_gpu_peaks(chip); /* zeros for a chip that was not measured */
    f64 read = most.read, rate = most.bf16, calls = o->calls ? (f64)o->calls : 1;
    fprintf(f, "  %-30s %5.1f %%  %9.4f ms a step  %6.1f calls  %9.2f us each", o->what ? o->what : "(other)",
            all > 0 ? 100 * o->seconds / all : 0, o->seconds / steps * 1e3, (f64)o->calls / steps,
            o->seconds / calls * 1e6);
    if (o->seconds > 0 && o->bytes > 0) {
        f64 by_bytes = read > 0 ? o->bytes / read : 0, by_flops = rate > 0 ? o->flops / rate : 0;
        if (by_flops > by_bytes)
            fprintf(f, "  %7.1f TFLOP/s %3.0f %%", o->flops / o->seconds * 1e-12, 100 * by_flops / o->seconds);
        else
            fprintf(f, "  %7.3f TB/s    %3.0f %%", o->bytes / o->seconds * 1e-12, 100 * by_bytes / o->seconds);
    }
    fprintf(f, "\n");
    for (int i = 0; o->n > 1 && i < o->n; i++)
        fprintf(f, "      %-34s %9.4f ms a step  %6.1f launches  %9.2f us each\n", o->kernels[i].kernel,
                o->kernels[i].seconds / steps * 1e3, (f64)o->kernels[i].launches / steps,
                o->kernels[i].seconds / (f64)o->kernels[i].launches * 1e6);
    if (o->n == 1) fprintf(f, "      %s\n", o->kernels[0].kernel);
}

static void print_phase(FILE *f, const char *name, const engine_phase *p, const char *chip) {
    f64 all = 0, experts = 0, steps = p->steps ? (f64)p->steps : 1;
    i64 launches = 0;
    if (!p->steps) return;
    for (int i = 0; i < p->n; i++) {
        all += p->ops[i].seconds;
        if (p->ops[i].what && strstr(p->ops[i].what, "experts ")) experts += p->ops[i].seconds;
        for (int k = 0; k < p->ops[i].n; k++) launches += p->ops[i].kernels[k].launches;
    }
    fprintf(f,
            "\n%s: %lld steps of %.1f tokens, kernels %.3f ms a step, %.3f ms without the experts', in %.0f launches\n",
            name, (long long)p->steps, (f64)p->rows / steps, all / steps * 1e3, (all - experts) / steps * 1e3,
            (f64)launches / steps);
    if (p->missed) fprintf(f, "(%lld launches were not timed)\n", (long long)p->missed);
    for (int i = 0; i < p->n; i++) print_op(f, &p->ops[i], all, steps, chip);
    fflush(f);
}

void profile_print(FILE *f, engine *g) {
    const engine_phase *prefill = engine_profile(g, PROFILE_PREFILL), *decode = engine_profile(g, PROFILE_DECODE);
    if (!prefill) return;
    fprintf(
        f,
        "\nTimed with events around every launch, one by one: gaps and overlap are not in it, and a step takes another time.\n"
        "Shares of the roofline: bytes and arithmetic that the operation needs (experts as uniform routing touches them).\n");
    print_phase(f, "steps with prompts", prefill, engine_ops(g)->name);
    print_phase(f, "steps that only decode", decode, engine_ops(g)->name);
}
