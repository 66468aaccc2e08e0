#include "profile_table.h"

static void print_phase(FILE *f, const char *name, const engine_phase *p) {
    f64 all = 0, steps = p->steps ? (f64)p->steps : 1;
    i64 launches = 0;
    for (int i = 0; i < p->n; i++) all += p->kernels[i].seconds, launches += p->kernels[i].launches;
    fprintf(f, "\n%s: %lld steps of %.1f tokens, kernels %.3f ms a step in %.0f launches\n", name,
            (long long)p->steps, (f64)p->rows / steps, all / steps * 1e3, (f64)launches / steps);
    if (p->missed) fprintf(f, "(%lld launches were not timed)\n", (long long)p->missed);
    for (int i = 0; i < p->n; i++) {
        const kernel_time *k = &p->kernels[i];
        fprintf(f, "  %-20s %5.1f %%  %9.4f ms a step  %6.1f launches  %9.2f us each\n", k->kernel,
                all > 0 ? 100 * k->seconds / all : 0, k->seconds / steps * 1e3, (f64)k->launches / steps,
                k->seconds / (f64)k->launches * 1e6);
    }
}

void profile_print(FILE *f, engine *g) {
    const engine_phase *prefill = engine_profile(g, PROFILE_PREFILL),
                       *decode = engine_profile(g, PROFILE_DECODE);
    if (!prefill) return;
    fprintf(
        f,
        "\nTimed with events around every launch: the gaps between kernels are not counted, and throughput above is lower for it.\n");
    print_phase(f, "steps with prompts", prefill);
    print_phase(f, "steps that only decode", decode);
}
