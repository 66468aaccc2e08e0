/* device/gpu_memory.c: a GPU's memory as a device. */
#include "device/gpu_internal.h"
#include <stdlib.h>
#include <string.h>

static CUdeviceptr addr(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

static status fail_room(gpu *g, const char *what, u64 bytes, size_t unused, size_t total, err *e) {
    return err_set(e, ST_NOMEM, "GPU %d (%s) has no room for %s: %.3f GB asked, %.3f GB free of %.3f GB", g->ordinal,
                   g->name, what, (f64)bytes * 1e-9, (f64)unused * 1e-9, (f64)total * 1e-9);
}

static status gpu_alloc(device *d, void **out, u64 bytes, const char *what, err *e) {
    gpu *g = (gpu *)d;
    CUdeviceptr p = 0;
    size_t unused = 0, total = 0;
    *out = NULL;
    if (!bytes) bytes = 1; /* the driver refuses nothing; a buffer of no bytes has an address all the same */
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS) r = g->cu.cuMemGetInfo_v2(&unused, &total);
    if (r != CUDA_SUCCESS) return gpu_fail(g, r, e, "memory for %s", what);
    if (bytes > unused) return fail_room(g, what, bytes, unused, total, e);
    gpu_calls(g, "asks for memory");
    r = g->cu.cuMemAlloc_v2(&p, bytes);
    gpu_calls(g, NULL);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) return fail_room(g, what, bytes, unused, total, e);
    if (r != CUDA_SUCCESS) return gpu_fail(g, r, e, "memory for %s (%.3f GB)", what, (f64)bytes * 1e-9);
    r = g->cu.cuMemsetD8Async(p, 0, bytes, g->stream);
    if (r != CUDA_SUCCESS) {
        g->cu.cuMemFree_v2(p);
        return gpu_fail(g, r, e, "clearing %s", what);
    }
    *out = (void *)(uintptr_t)p;
    return ST_OK;
}

/* What is queued may still use p: wait for it. */
static void gpu_release(device *d, void *p) {
    gpu *g = (gpu *)d;
    if (!p || !gpu_enter(g)) return;
    gpu_ok(g, gpu_wait_stream(g), "what was queued before memory was released");
    gpu_calls(g, "gives memory back");
    gpu_ok(g, g->cu.cuMemFree_v2(addr(p)), "releasing memory");
    gpu_calls(g, NULL);
}

static u8 *piece_at(const gpu *g, int i) { return g->stage + (u64)(i % STAGE_PIECES) * STAGE_BYTES; }
static u64 piece_from(int i) { return (u64)i * STAGE_BYTES; }
static u64 piece_bytes(u64 all, int i) {
    u64 left = all - piece_from(i);
    return left < STAGE_BYTES ? left : STAGE_BYTES;
}

/* A single thread copies slower than the bus takes it, so long copies fill half of the pinned pieces side by side
 * while the bus empties the other half. A step's small inputs take one piece each. */
static void gpu_write(device *d, void *to, const void *from_host, u64 bytes) {
    enum { ROUND = STAGE_PIECES / 2 };
    gpu *g = (gpu *)d;
    if (!bytes || !gpu_enter(g)) return;
    for (u64 at = 0, n; at < bytes; at += n) {
        n = bytes - at < (u64)ROUND * STAGE_BYTES ? bytes - at : (u64)ROUND * STAGE_BYTES;
        int pieces = (int)((n + STAGE_BYTES - 1) / STAGE_BYTES), first = (int)(g->n_staged % STAGE_PIECES);
        g->n_staged += (u64)pieces;
        for (int i = 0; i < pieces; i++)
            if (!gpu_ok(g, gpu_wait_event(g, g->copied[(first + i) % STAGE_PIECES]), "an earlier copy to the GPU"))
                return;
#pragma omp parallel for schedule(static, 1) if (pieces > 1)
        for (int i = 0; i < pieces; i++)
            memcpy(piece_at(g, first + i), (const u8 *)from_host + at + piece_from(i), piece_bytes(n, i));
        for (int i = 0; i < pieces; i++)
            if (!gpu_ok(g,
                        g->cu.cuMemcpyHtoDAsync_v2(addr(to) + at + piece_from(i), piece_at(g, first + i),
                                                   piece_bytes(n, i), g->stream),
                        "a copy of %llu bytes to the GPU", (unsigned long long)bytes) ||
                !gpu_ok(g, g->cu.cuEventRecord(g->copied[(first + i) % STAGE_PIECES], g->stream),
                        "recording a copy to the GPU"))
                return;
    }
}

static void gpu_read(device *d, void *to_host, const void *from, u64 bytes) {
    gpu *g = (gpu *)d;
    u8 *piece = g->stage + (u64)STAGE_PIECES * STAGE_BYTES;
    bool good = bytes && gpu_enter(g);
    for (u64 at = 0, n; at < bytes; at += n) {
        n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
        good = good &&
               gpu_ok(g, g->cu.cuMemcpyDtoHAsync_v2(piece, addr(from) + at, n, g->stream),
                      "a copy of %llu bytes from the GPU", (unsigned long long)bytes) &&
               gpu_ok(g, gpu_wait_stream(g), "what was queued (last kernel: %s)", g->last ? g->last->name : "none");
        if (good)
            memcpy((u8 *)to_host + at, piece, n);
        else
            memset((u8 *)to_host + at, 0, n);
    }
}

static u64 gpu_available(device *d) {
    gpu *g = (gpu *)d;
    size_t unused = 0, total = 0;
    if (!gpu_enter(g) || !gpu_ok(g, g->cu.cuMemGetInfo_v2(&unused, &total), "asking for the free memory")) return 0;
    return unused;
}

/* The driver's pages: allocations above half of one take whole pages, smaller ones share them with others of their
 * size (H200, driver 580: measured). */
static u64 gpu_takes(u64 bytes) {
    enum { PAGE = 2 << 20, UNIT = 512 };
    if (bytes > UINT64_MAX - PAGE) return bytes;
    u64 least = (bytes + !bytes + UNIT - 1) / UNIT * UNIT;
    return least > PAGE / 2 ? (least + PAGE - 1) / PAGE * PAGE : PAGE / (PAGE / least);
}

static status first_failure(gpu *g, err *e) {
    err first = g->failed;
    g->failed = (err){ST_OK, ""};
    return first.code == ST_OK ? ST_OK : err_set(e, first.code, "%s", first.text);
}

static status gpu_finish(device *d, err *e) {
    gpu *g = (gpu *)d;
    if (gpu_enter(g))
        gpu_ok(g, gpu_wait_stream(g), "what was queued (last kernel: %s)", g->last ? g->last->name : "none");
    return first_failure(g, e);
}

/* ---- Results that are waited for later ---- */

typedef struct {
    device_readback r; /* first; data is pinned */
    CUevent there;     /* behind the last copy */
} gpu_reply;

static void gpu_readback_close(device *d, device_readback *r) {
    gpu *g = (gpu *)d;
    gpu_reply *p = (gpu_reply *)r;
    if (!p) return;
    if (gpu_enter(g)) gpu_ok(g, gpu_wait_stream(g), "what was queued before results ended");
    if (p->there) gpu_ok(g, g->cu.cuEventDestroy_v2(p->there), "ending results");
    if (p->r.data) gpu_ok(g, g->cu.cuMemFreeHost(p->r.data), "ending results");
    free(p);
}

static status gpu_readback_open(device *d, u64 bytes, device_readback **out, err *e) {
    gpu *g = (gpu *)d;
    *out = NULL;
    gpu_reply *p = calloc(1, sizeof *p);
    if (!p) return err_nomem(e, "results", sizeof *p);
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS) r = g->cu.cuMemHostAlloc((void **)&p->r.data, bytes, 0);
    if (r == CUDA_SUCCESS) r = g->cu.cuEventCreate(&p->there, CU_EVENT_DISABLE_TIMING);
    if (r != CUDA_SUCCESS) {
        gpu_readback_close(d, &p->r);
        return gpu_fail(g, r, e, "pinned memory for results");
    }
    *out = &p->r;
    return ST_OK;
}

static void gpu_readback_add(device *d, device_readback *r, u64 at, const void *from, u64 bytes) {
    gpu *g = (gpu *)d;
    if (!bytes || !gpu_enter(g)) return;
    gpu_ok(g, g->cu.cuMemcpyDtoHAsync_v2(r->data + at, addr(from), bytes, g->stream),
           "a copy of %llu bytes from the GPU", (unsigned long long)bytes);
    gpu_ok(g, g->cu.cuEventRecord(((gpu_reply *)r)->there, g->stream), "recording a copy from the GPU");
}

static status gpu_readback_wait(device *d, const device_readback *r, err *e) {
    gpu *g = (gpu *)d;
    if (gpu_enter(g))
        gpu_ok(g, gpu_wait_event(g, ((const gpu_reply *)r)->there), "what was queued (last kernel: %s)",
               g->last ? g->last->name : "none");
    return first_failure(g, e);
}

status gpu_memory_open(gpu *g, err *e) {
    g->dev = (device){.name = g->name,
                      .alloc = gpu_alloc,
                      .release = gpu_release,
                      .write = gpu_write,
                      .read = gpu_read,
                      .available = gpu_available,
                      .takes = gpu_takes,
                      .finish = gpu_finish,
                      .readback_open = gpu_readback_open,
                      .readback_close = gpu_readback_close,
                      .readback_add = gpu_readback_add,
                      .readback_wait = gpu_readback_wait,
                      .courier_open = gpu_courier_open,
                      .courier_close = gpu_courier_close,
                      .courier_add = gpu_courier_add,
                      .courier_wait = gpu_courier_wait,
                      .record = gpu_record,
                      .replay = gpu_replay,
                      .forget = gpu_forget};
    CUresult r = g->cu.cuMemHostAlloc((void **)&g->stage, (u64)(STAGE_PIECES + 1) * STAGE_BYTES, 0);
    for (int i = 0; r == CUDA_SUCCESS && i < STAGE_PIECES; i++)
        r = g->cu.cuEventCreate(&g->copied[i], CU_EVENT_DISABLE_TIMING);
    return r == CUDA_SUCCESS ? ST_OK : gpu_fail(g, r, e, "pinned memory for copies");
}

void gpu_memory_close(gpu *g) {
    for (int i = 0; i < STAGE_PIECES; i++)
        if (g->copied[i]) g->cu.cuEventDestroy_v2(g->copied[i]);
    if (g->stage) g->cu.cuMemFreeHost(g->stage);
}
