/* device/gpu_courier.c: copies between a GPU and the host beside its stream, from any thread. What fails here is told
 * to who waits here: the stream's own failures (gpu.failed) belong to another thread. */
#include "device/gpu_internal.h"
#include <stdlib.h>

typedef struct {
    device_courier c; /* first; data is pinned */
    CUstream stream;
    CUresult failed; /* the first since the last wait */
} gpu_courier;

static void note(gpu_courier *p, CUresult r) {
    if (p->failed == CUDA_SUCCESS) p->failed = r;
}

void gpu_courier_close(device *d, device_courier *c) {
    gpu *g = (gpu *)d;
    gpu_courier *p = (gpu_courier *)c;
    if (!p) return;
    if (g->cu.cuCtxSetCurrent(g->context) == CUDA_SUCCESS) {
        if (p->stream) g->cu.cuStreamDestroy_v2(p->stream);
        if (p->c.data) g->cu.cuMemFreeHost(p->c.data);
    }
    free(p);
}

status gpu_courier_open(device *d, u64 bytes, device_courier **out, err *e) {
    gpu *g = (gpu *)d;
    *out = NULL;
    gpu_courier *p = calloc(1, sizeof *p);
    if (!p) return err_nomem(e, "copies", sizeof *p);
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS && bytes) r = g->cu.cuMemHostAlloc((void **)&p->c.data, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (r == CUDA_SUCCESS) r = g->cu.cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING);
    if (r != CUDA_SUCCESS) {
        gpu_courier_close(d, &p->c);
        return gpu_fail(g, r, e, "pinned memory and a stream for copies");
    }
    *out = &p->c;
    return ST_OK;
}

void gpu_courier_add(device *d, device_courier *c, bool to_device, void *host, void *there, u64 bytes) {
    gpu *g = (gpu *)d;
    gpu_courier *p = (gpu_courier *)c;
    const CUdeviceptr device_side = (CUdeviceptr)(uintptr_t)there;
    if (!bytes) return;
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS)
        r = to_device ? g->cu.cuMemcpyHtoDAsync_v2(device_side, host, bytes, p->stream)
                      : g->cu.cuMemcpyDtoHAsync_v2(host, device_side, bytes, p->stream);
    note(p, r);
}

status gpu_courier_wait(device *d, device_courier *c, err *e) {
    gpu *g = (gpu *)d;
    gpu_courier *p = (gpu_courier *)c;
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS) r = g->cu.cuStreamSynchronize(p->stream);
    note(p, r);
    r = p->failed;
    p->failed = CUDA_SUCCESS;
    return r == CUDA_SUCCESS ? ST_OK : gpu_fail(g, r, e, "copies beside the steps");
}
