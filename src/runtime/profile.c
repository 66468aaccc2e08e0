/* runtime/profile.c: what each kernel of a GPU takes, summed up step by step. */
#include "runtime/engine_inside.h"
#include "device/gpu.h"
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES_MOST = 32768 /* of a step */ };

status profile_open(engine *g, err *e) {
    if (!g->gpu) return err_set(e, ST_UNSUPPORTED, "--profile times a GPU's kernels: it needs --device cuda");
    g->profile = calloc(PROFILE_PHASES, sizeof *g->profile);
    if (!g->profile) return err_nomem(e, "the profile", PROFILE_PHASES * sizeof *g->profile);
    return gpu_trace(g->gpu, LAUNCHES_MOST, e);
}

static void add(void *ud, const char *kernel, f64 seconds) {
    engine_phase *p = ud;
    int i = 0;
    while (i < p->n && strcmp(p->kernels[i].kernel, kernel)) i++;
    if (i == (int)COUNT_OF(p->kernels)) {
        p->missed++;
        return;
    }
    if (i == p->n) p->kernels[p->n++] = (kernel_time){.kernel = kernel};
    p->kernels[i].launches++;
    p->kernels[i].seconds += seconds;
}

status profile_step(engine *g, const model_batch *b, err *e) {
    bool prompt = false;
    i64 missed = 0;
    for (i64 s = 0; s < b->n_spans; s++) prompt = prompt || !b->spans[s].absorbed;
    engine_phase *p = &g->profile[prompt ? PROFILE_PREFILL : PROFILE_DECODE];
    status st = gpu_times(g->gpu, add, p, &missed, e);
    p->steps++;
    p->rows += b->n;
    p->missed += missed;
    return st;
}

static int longer(const void *a, const void *b) {
    f64 x = ((const kernel_time *)a)->seconds, y = ((const kernel_time *)b)->seconds;
    return (x < y) - (x > y);
}

const engine_phase *engine_profile(engine *g, int phase) {
    if (!g->profile) return NULL;
    engine_phase *p = &g->profile[phase];
    qsort(p->kernels, (size_t)p->n, sizeof *p->kernels, longer);
    return p;
}
