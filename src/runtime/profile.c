/* runtime/profile.c: what each operation and kernel of a GPU takes, summed up step by step. */
#include "device/gpu.h"
#include "kernels/gpu/op_cost.h"
#include "runtime/engine_internal.h"
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES_MOST = 32768 /* of a step */ };

status profile_open(engine *g, err *e) {
    if (!engine_backend(g)->gpu)
        return err_set(e, ST_UNSUPPORTED, "--profile times a GPU's kernels: it needs --device cuda");
    if (g->layout.pp > 1)
        return err_set(e, ST_UNSUPPORTED, "--pp %lld: kernels are timed of one rank, which has a stage's layers alone",
                       (long long)g->layout.pp);
    g->profile = calloc(PROFILE_PHASES, sizeof *g->profile);
    if (!g->profile) return err_nomem(e, "the profile", PROFILE_PHASES * sizeof *g->profile);
    status st = ops_cost(&engine_backend(g)->ops, e);
    return st != ST_OK ? st : gpu_trace(engine_backend(g)->gpu, LAUNCHES_MOST, e);
}

status engine_profile_start(engine *g, err *e) { return g->profile ? ST_OK : profile_open(g, e); }

static op_time *op_of(engine_phase *p, const char *what) {
    int i = 0;
    while (i < p->n && p->ops[i].what != what) i++;
    if (i == PROFILE_OPS) return NULL;
    if (i == p->n) p->ops[p->n++] = (op_time){.what = what};
    return &p->ops[i];
}

static void add_kernel(op_time *o, const gpu_time *t) {
    int i = 0;
    while (i < o->n && strcmp(o->kernels[i].kernel, t->kernel)) i++;
    if (i == PROFILE_KERNELS) return; /* the operation's own sum still has it */
    if (i == o->n) o->kernels[o->n++] = (kernel_time){.kernel = t->kernel};
    o->kernels[i].launches++;
    o->kernels[i].seconds += t->seconds;
}

void engine_profile_launches(engine *g, void (*fn)(void *ud, const gpu_time *t), void *ud) {
    g->profile_launch = fn;
    g->profile_ud = ud;
}

typedef struct {
    engine *g;
    engine_phase *p;
} timed_step;

static void profile_add(void *ud, const gpu_time *t) {
    const timed_step *step = ud;
    engine_phase *p = step->p;
    op_time *o = op_of(p, t->what);
    if (step->g->profile_launch) step->g->profile_launch(step->g->profile_ud, t);
    if (!o) {
        p->missed++;
        return;
    }
    o->calls += t->first;
    o->seconds += t->seconds;
    o->bytes += t->bytes;
    o->flops += t->flops;
    add_kernel(o, t);
}

void profile_before(engine *g, const model_batch *b) {
    i64 rows = 0;
    for (i64 s = 0; s < b->n_spans; s++) {
        const model_span *p = &b->spans[s];
        if (p->absorbed) rows += p->n * p->pos0 + p->n * (p->n + 1) / 2;
    }
    ops_cost_context(&engine_backend(g)->ops, rows);
}

status profile_step(engine *g, const model_batch *b, err *e) {
    bool prompt = false;
    i64 missed = 0;
    for (i64 s = 0; s < b->n_spans; s++) prompt = prompt || !b->spans[s].absorbed;
    engine_phase *p = &g->profile[prompt ? PROFILE_PREFILL : PROFILE_DECODE];
    timed_step step = {g, p};
    status st = gpu_times(engine_backend(g)->gpu, profile_add, &step, &missed, e);
    p->steps++;
    p->rows += b->n;
    p->missed += missed;
    return st;
}

void engine_profile_clear(engine *g) {
    if (g->profile) memset(g->profile, 0, PROFILE_PHASES * sizeof *g->profile);
}

static int longer_op(const void *a, const void *b) {
    f64 x = ((const op_time *)a)->seconds, y = ((const op_time *)b)->seconds;
    return (x < y) - (x > y);
}
static int longer_kernel(const void *a, const void *b) {
    f64 x = ((const kernel_time *)a)->seconds, y = ((const kernel_time *)b)->seconds;
    return (x < y) - (x > y);
}

const engine_phase *engine_profile(engine *g, int phase) {
    if (!g->profile) return NULL;
    engine_phase *p = &g->profile[phase];
    qsort(p->ops, (size_t)p->n, sizeof *p->ops, longer_op);
    for (int i = 0; i < p->n; i++)
        qsort(p->ops[i].kernels, (size_t)p->ops[i].n, sizeof *p->ops[i].kernels, longer_kernel);
    return p;
}
