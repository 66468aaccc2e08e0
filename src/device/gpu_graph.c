/* device/gpu_graph.c: recordings: what was queued on the stream, as a graph that one call launches. */
#include "base/buf.h"
#include "device/gpu_internal.h"
#include <stdlib.h>

struct device_recording {
    CUgraphExec exec;
    const gpu_kernel *last;
};

status gpu_record(device *d, void (*queue)(void *ud), void *ud, device_recording **out, err *e) {
    gpu *g = (gpu *)d;
    CUgraph graph = NULL;
    bool no_room = false;
    *out = NULL;
    status st = d->finish(d, e); /* an earlier failure is not this one's */
    if (st != ST_OK) return st;
    device_recording *r = calloc(1, sizeof *r);
    if (!r) return err_nomem(e, "a recording", sizeof *r);
    if (gpu_enter(g) &&
        gpu_ok(g, g->cu.cuStreamBeginCapture_v2(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "recording a step")) {
        gpu_stamp_recording(g, true);
        queue(ud);
        gpu_stamp_recording(g, false);
        gpu_ok(g, g->cu.cuStreamEndCapture(g->stream, &graph), "recording a step");
    }
    if (graph) { /* all memory that it takes is asked for here: no replay fails for want of it */
        gpu_calls(g, "prepares a recorded step");
        CUresult got = g->cu.cuGraphInstantiateWithFlags(&r->exec, graph, 0);
        if (got == CUDA_SUCCESS) got = g->cu.cuGraphUpload(r->exec, g->stream);
        gpu_calls(g, NULL);
        no_room = got == CUDA_ERROR_OUT_OF_MEMORY;
        if (!no_room) gpu_ok(g, got, "preparing a recorded step");
        gpu_ok(g, g->cu.cuGraphDestroy(graph), "ending a recording");
    }
    r->last = g->last;
    st = d->finish(d, e);
    if (st == ST_OK && no_room)
        st = err_set(e, ST_NOMEM, "GPU %d (%s) has no room for a recorded step", g->ordinal, g->name);
    if (st != ST_OK) return gpu_forget(d, r), st;
    *out = r;
    return ST_OK;
}

void gpu_replay(device *d, const device_recording *r) {
    gpu *g = (gpu *)d;
    if (!gpu_enter(g)) return;
    g->last = r->last;
    gpu_calls(g, "launches a recorded step");
    const CUresult got = g->cu.cuGraphLaunch(r->exec, g->stream);
    gpu_calls(g, NULL);
    gpu_ok(g, got, "launching a recorded step");
}

void gpu_forget(device *d, device_recording *r) {
    gpu *g = (gpu *)d;
    if (!r) return;
    if (r->exec) {
        if (gpu_enter(g)) gpu_ok(g, gpu_wait_stream(g), "what was queued before a recording ended");
        gpu_ok(g, g->cu.cuGraphExecDestroy(r->exec), "ending a recording");
    }
    free(r);
}
