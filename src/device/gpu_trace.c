/* device/gpu_trace.c: how long each kernel takes, by events around its launches. */
#include "base/buf.h"
#include "device/gpu_internal.h"
#include <stdlib.h>

static void end_trace(gpu *g) {
    for (i64 i = 0; i < 2 * g->trace.most; i++)
        if (g->trace.events[i]) g->cu.cuEventDestroy_v2(g->trace.events[i]);
    free(g->trace.events);
    free(g->trace.times);
    g->trace = (gpu_trace_state){0};
    g->dev.record = gpu_record;
}

status gpu_trace(gpu *g, i64 most, err *e) {
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    end_trace(g);
    if (!most) return ST_OK;
    if (!g->cu.cuEventElapsedTime_v2)
        return err_set(e, ST_UNSUPPORTED, "the NVIDIA driver cannot time kernels (it lacks cuEventElapsedTime_v2)");
    g->trace.events = calloc((size_t)most * 2, sizeof *g->trace.events);
    g->trace.times = calloc((size_t)most, sizeof *g->trace.times);
    if (!g->trace.events || !g->trace.times) {
        end_trace(g);
        return err_nomem(e, "the launches' times", (u64)most * (16 + sizeof *g->trace.times));
    }
    g->trace.most = most;
    g->dev.record = NULL; /* launches inside a graph have no events around them */
    for (i64 i = 0; r == CUDA_SUCCESS && i < 2 * most; i++) r = g->cu.cuEventCreate(&g->trace.events[i], 0);
    if (r == CUDA_SUCCESS) return ST_OK;
    end_trace(g);
    return gpu_fail(g, r, e, "making events");
}

void gpu_trace_mark(gpu *g, const gpu_kernel *k, bool before) {
    gpu_trace_state *t = &g->trace;
    if (t->n == t->most) {
        t->missed += before;
        return;
    }
    gpu_ok(g, g->cu.cuEventRecord(t->events[2 * t->n + !before], g->stream), "timing %s", k->name);
    if (before) return;
    t->times[t->n] = t->note;
    t->times[t->n++].kernel = k->name;
    t->note = (gpu_time){.what = t->note.what};
}

void gpu_trace_note(gpu *g, const char *what, f64 bytes, f64 flops) {
    g->trace.note = (gpu_time){.what = what, .bytes = bytes, .flops = flops, .first = true};
}

status gpu_times(gpu *g, gpu_time_fn fn, void *ud, i64 *missed, err *e) {
    gpu_trace_state *t = &g->trace;
    status st = g->dev.finish(&g->dev, e);
    for (i64 i = 0; st == ST_OK && i < t->n; i++) {
        float ms = 0;
        CUresult r = g->cu.cuEventElapsedTime_v2(&ms, t->events[2 * i], t->events[2 * i + 1]);
        if (r != CUDA_SUCCESS) st = gpu_fail(g, r, e, "reading the time of %s", t->times[i].kernel);
        t->times[i].seconds = (f64)ms * 1e-3;
        if (st == ST_OK) fn(ud, &t->times[i]);
    }
    *missed = t->missed;
    t->n = t->missed = 0;
    return st;
}

status gpu_clock(gpu *g, void (*queue)(void *ud), void *ud, f64 *seconds, err *e) {
    CUevent ends[2] = {NULL, NULL};
    float ms = 0;
    status st = ST_OK;
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (!g->cu.cuEventElapsedTime_v2)
        return err_set(e, ST_UNSUPPORTED, "the NVIDIA driver cannot time kernels (it lacks cuEventElapsedTime_v2)");
    for (int i = 0; r == CUDA_SUCCESS && i < 2; i++) r = g->cu.cuEventCreate(&ends[i], 0);
    if (r == CUDA_SUCCESS) r = g->cu.cuEventRecord(ends[0], g->stream);
    if (r == CUDA_SUCCESS) queue(ud);
    if (r == CUDA_SUCCESS) r = g->cu.cuEventRecord(ends[1], g->stream);
    if (r == CUDA_SUCCESS) st = g->dev.finish(&g->dev, e);
    if (r == CUDA_SUCCESS && st == ST_OK) r = g->cu.cuEventElapsedTime_v2(&ms, ends[0], ends[1]);
    for (int i = 0; i < 2; i++)
        if (ends[i]) g->cu.cuEventDestroy_v2(ends[i]);
    *seconds = (f64)ms * 1e-3;
    return r == CUDA_SUCCESS ? st : gpu_fail(g, r, e, "timing with events");
}
