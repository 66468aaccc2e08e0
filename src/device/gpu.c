#include "device/gpu.h"
#include "base/buf.h"
#include "base/log.h"
#include "device/gpu_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The oldest driver, as CUDA's version. A driver runs the kernels of every compiler of its own major version and of
 * older ones ("CUDA Compatibility", minor version compatibility); make passes the version of the one it used. */
#ifndef GPU_DRIVER_MIN
#define GPU_DRIVER_MIN 12000
#endif

static err vfail(const gpu *g, CUresult r, const char *what, va_list ap) {
    err e;
    char doing[256], text[256];
    vsnprintf(doing, sizeof doing, what, ap);
    err_set(&e, ST_DEVICE, "GPU %d (%s): %s failed: %s", g->ordinal, g->name, doing, cuda_error_text(&g->cu, r, text));
    return e;
}

bool gpu_ok(gpu *g, CUresult r, const char *what, ...) {
    if (r == CUDA_SUCCESS) return true;
    if (g->failed.code != ST_OK) return false;
    va_list ap;
    va_start(ap, what);
    g->failed = vfail(g, r, what, ap);
    va_end(ap);
    return false;
}

status gpu_fail(const gpu *g, CUresult r, err *e, const char *what, ...) {
    va_list ap;
    va_start(ap, what);
    err f = vfail(g, r, what, ap);
    va_end(ap);
    if (e) *e = f;
    return f.code;
}

bool gpu_enter(gpu *g) { return gpu_ok(g, g->cu.cuCtxSetCurrent(g->context), "entering its context"); }

/* The GPU of that number, if it is one that the kernels were built for. */
static status gpu_choose(gpu *g, int ordinal, err *e) {
    int n = 0, major = 0, minor = 0;
    CUresult r = g->cu.cuDeviceGetCount(&n);
    g->ordinal = ordinal;
    if (r == CUDA_SUCCESS && n == 0)
        return err_set(e, ST_DEVICE, "no GPU: the NVIDIA driver finds none (nvidia-smi lists what it finds)");
    if (r == CUDA_SUCCESS && (ordinal < 0 || ordinal >= n))
        return err_set(e, ST_DEVICE, "there is no GPU %d: the NVIDIA driver counts %d, from 0 to %d", ordinal, n,
                       n - 1);
    if (r == CUDA_SUCCESS) r = g->cu.cuDeviceGet(&g->id, ordinal);
    if (r == CUDA_SUCCESS) r = g->cu.cuDeviceGetName(g->name, sizeof g->name, g->id);
    if (r == CUDA_SUCCESS) r = g->cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->id);
    if (r == CUDA_SUCCESS) r = g->cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->id);
    if (r == CUDA_SUCCESS)
        r = g->cu.cuDeviceGetAttribute(&g->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->id);
    if (r == CUDA_SUCCESS)
        r = g->cu.cuDeviceGetAttribute(&g->shared_max, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, g->id);
    if (r != CUDA_SUCCESS) return gpu_fail(g, r, e, "asking what it is");
    g->chip_processors = g->processors;
    if (major != 9 || minor != 0)
        return err_set(e, ST_UNSUPPORTED,
                       "GPU %d (%s) has compute capability %d.%d; supported is 9.0 (H100, H200, GH200)", ordinal,
                       g->name, major, minor);
    return ST_OK;
}

/* A context and a stream on one of several equal parts of the multiprocessors, as many as go together. */
static status open_part(gpu *g, gpu_part part, err *e) {
    const cuda_driver *cu = &g->cu;
    cuda_resource all = {0}, rest, parts[GPU_PARTS_MAX];
    unsigned n = (unsigned)part.shares;
    CUdevResourceDesc desc;
    if (!cu->cuGreenCtxCreate || !cu->cuGreenCtxDestroy || !cu->cuDeviceGetDevResource ||
        !cu->cuDevSmResourceSplitByCount || !cu->cuDevResourceGenerateDesc || !cu->cuCtxFromGreenCtx ||
        !cu->cuGreenCtxStreamCreate)
        return err_set(e, ST_UNSUPPORTED,
                       "GPU %d (%s): the driver knows CUDA up to %d.%d; parts of a GPU need 12.4 (green contexts)",
                       g->ordinal, g->name, cu->version / 1000, cu->version % 1000 / 10);
    CUresult r = cu->cuDeviceGetDevResource(g->id, (struct CUdevResource_st *)&all, CU_DEV_RESOURCE_TYPE_SM);
    if (r != CUDA_SUCCESS) return gpu_fail(g, r, e, "asking for its multiprocessors");
    const unsigned multiple = all.sm.multiple ? all.sm.multiple : 8, each = all.sm.count / n / multiple * multiple;
    if (!each || each < all.sm.smallest_share)
        return err_set(e, ST_UNSUPPORTED, "GPU %d (%s): %u multiprocessors make no %u parts", g->ordinal, g->name,
                       all.sm.count, n);
    r = cu->cuDevSmResourceSplitByCount((struct CUdevResource_st *)parts, &n, (struct CUdevResource_st *)&all,
                                        (struct CUdevResource_st *)&rest, 0, each);
    if (r == CUDA_SUCCESS && n < (unsigned)part.shares)
        return err_set(e, ST_UNSUPPORTED, "GPU %d (%s): %u parts of %u multiprocessors, %d are wanted", g->ordinal,
                       g->name, n, each, part.shares);
    if (r == CUDA_SUCCESS) r = cu->cuDevResourceGenerateDesc(&desc, (struct CUdevResource_st *)&parts[part.share], 1);
    if (r == CUDA_SUCCESS) r = cu->cuGreenCtxCreate(&g->green, desc, g->id, CU_GREEN_CTX_DEFAULT_STREAM);
    if (r == CUDA_SUCCESS) r = cu->cuCtxFromGreenCtx(&g->context, g->green);
    if (r == CUDA_SUCCESS) r = cu->cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS) r = cu->cuGreenCtxStreamCreate(&g->stream, g->green, CU_STREAM_NON_BLOCKING, 0);
    if (r != CUDA_SUCCESS) return gpu_fail(g, r, e, "opening a part of it");
    g->processors = (int)parts[part.share].sm.count;
    return ST_OK;
}

status gpu_open_from(gpu **out, const char *library, gpu_part part, err *e) {
    *out = NULL;
    if (part.shares < 1 || part.shares > GPU_PARTS_MAX || part.share < 0 || part.share >= part.shares)
        return err_set(e, ST_INPUT, "part %d of %d of a GPU: there may be up to %d", part.share, part.shares,
                       GPU_PARTS_MAX);
    gpu *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(e, "a GPU's state", sizeof *g);
    status st = cuda_driver_open(&g->cu, library, GPU_DRIVER_MIN, e);
    if (st == ST_OK) st = gpu_choose(g, part.ordinal, e);
    if (st == ST_OK) {
        CUresult r = g->cu.cuDevicePrimaryCtxRetain(&g->context, g->id);
        if (r == CUDA_SUCCESS) r = g->cu.cuCtxSetCurrent(g->context);
        if (r == CUDA_SUCCESS && part.shares == 1) r = g->cu.cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING);
        st = r == CUDA_SUCCESS ? ST_OK : gpu_fail(g, r, e, "opening it");
    }
    if (st == ST_OK && part.shares > 1) st = open_part(g, part, e);
    if (st == ST_OK) st = gpu_memory_open(g, e);
    if (st == ST_OK)
        *out = g;
    else
        gpu_close(g);
    return st;
}

status gpu_open(gpu **out, int ordinal, err *e) { return gpu_open_part(out, (gpu_part){ordinal, 0, 1}, e); }
status gpu_open_part(gpu **out, gpu_part part, err *e) { return gpu_open_from(out, "libcuda.so.1", part, e); }

void gpu_close(gpu *g) {
    if (!g) return;
    if (g->context) {
        gpu_enter(g); /* and what fails on the way out has nobody left to tell */
        if (g->stream) gpu_wait_stream(g);
        gpu_trace(g, 0, NULL);
        gpu_stamp(g, 0, 0, NULL);
        gpu_memory_close(g);
        for (size_t i = 0; i < g->n_modules; i++) g->cu.cuModuleUnload(g->modules[i].module);
        if (g->stream) g->cu.cuStreamDestroy_v2(g->stream);
        g->cu.cuCtxSetCurrent(NULL);
        if (g->green) g->cu.cuGreenCtxDestroy(g->green);
        g->cu.cuDevicePrimaryCtxRelease_v2(g->id);
    }
    for (gpu_kernel *k = g->kernels, *next; k; k = next) {
        next = k->next;
        free(k->name);
        free(k);
    }
    free(g->modules);
    free(g);
}

status gpu_reach(gpu *g, const gpu *other, err *e) {
    int can = 0;
    if (g->id == other->id) return ST_OK; /* parts of one GPU have its memory */
    CUresult r = g->cu.cuDeviceCanAccessPeer(&can, g->id, other->id);
    if (r == CUDA_SUCCESS && !can)
        return err_set(e, ST_UNSUPPORTED, "GPU %d (%s) cannot reach the memory of GPU %d (%s): no peer access",
                       g->ordinal, g->name, other->ordinal, other->name);
    if (r == CUDA_SUCCESS) r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS) r = g->cu.cuCtxEnablePeerAccess(other->context, 0);
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return ST_OK;
    return gpu_fail(g, r, e, "peer access to GPU %d", other->ordinal);
}

gpu_part gpu_part_of(const i64 *ordinals, i64 n, i64 at) {
    gpu_part p = {.ordinal = (int)ordinals[at]};
    for (i64 r = 0; r < n; r++)
        if (ordinals[r] == ordinals[at]) p.share += r < at, p.shares++;
    return p;
}

static CUresult wait_until(gpu *g, CUevent there) {
    g->waits_since = now_s();
    gpu_calls(g, "waits for what it has queued");
    CUresult r = there ? g->cu.cuEventSynchronize(there) : g->cu.cuStreamSynchronize(g->stream);
    gpu_calls(g, NULL);
    g->waits_since = 0;
    return r;
}

CUresult gpu_wait_stream(gpu *g) { return wait_until(g, NULL); }
CUresult gpu_wait_event(gpu *g, CUevent there) { return wait_until(g, there); }
f64 gpu_waits_since(const gpu *g) { return g->waits_since; }

void gpu_doing(const gpu *g, char *text, size_t size) {
    const char *call = g->call;
    const gpu_kernel *last = g->last;
    snprintf(text, size, "%s; what it queued or recorded last: %s", call ? call : "is in no call that is watched",
             last ? last->name : "nothing");
}

device *gpu_device(gpu *g) { return &g->dev; }
const char *gpu_name(const gpu *g) { return g->name; }
int gpu_processors(const gpu *g) { return g->processors; }
int gpu_chip_processors(const gpu *g) { return g->chip_processors; }

static status gpu_load(gpu *g, const gpu_image *image, CUmodule *out, err *e) {
    for (size_t i = 0; i < g->n_modules; i++)
        if (g->modules[i].image == image) return *out = g->modules[i].module, ST_OK;
    gpu_module *more = realloc(g->modules, (g->n_modules + 1) * sizeof *more);
    if (!more) return err_nomem(e, "the list of kernel images", (g->n_modules + 1) * sizeof *more);
    g->modules = more;
    CUresult r = g->cu.cuModuleLoadData(out, image->data);
    if (r != CUDA_SUCCESS)
        return gpu_fail(g, r, e, "loading the kernels of %s.cu (%llu bytes)", image->name,
                        (unsigned long long)image->bytes);
    g->modules[g->n_modules++] = (gpu_module){image, *out};
    return ST_OK;
}

status gpu_find(gpu *g, const gpu_image *image, const char *function, gpu_kernel **out, err *e) {
    CUmodule module;
    *out = NULL;
    for (gpu_kernel *k = g->kernels; k; k = k->next)
        if (k->image == image && !strcmp(k->name, function)) return *out = k, ST_OK;
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r != CUDA_SUCCESS) return gpu_fail(g, r, e, "entering its context");
    status st = gpu_load(g, image, &module, e);
    if (st != ST_OK) return st;
    gpu_kernel *k = calloc(1, sizeof *k);
    if (!k || !(k->name = strdup(function))) {
        free(k);
        return err_nomem(e, "a kernel's name", sizeof *k);
    }
    k->image = image;
    r = g->cu.cuModuleGetFunction(&k->function, module, function);
    /* Kernels are loaded when first launched unless asked for: now, so that no step waits or runs out of memory. */
    if (r == CUDA_SUCCESS && g->cu.cuFuncLoad) r = g->cu.cuFuncLoad(k->function);
    if (r != CUDA_SUCCESS) {
        free(k->name);
        free(k);
        return gpu_fail(g, r, e, "finding the kernel %s in %s.cu", function, image->name);
    }
    k->next = g->kernels;
    *out = g->kernels = k;
    return ST_OK;
}

status gpu_shared(gpu *g, gpu_kernel *k, u32 bytes, err *e) {
    if (bytes > (u32)g->shared_max)
        return err_set(e, ST_LIMIT, "GPU %d (%s): kernel %s wants %u bytes of shared memory, a block has up to %d",
                       g->ordinal, g->name, k->name, bytes, g->shared_max);
    CUresult r = g->cu.cuCtxSetCurrent(g->context);
    if (r == CUDA_SUCCESS)
        r = g->cu.cuFuncSetAttribute(k->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
    return r == CUDA_SUCCESS ? ST_OK : gpu_fail(g, r, e, "%u bytes of shared memory for kernel %s", bytes, k->name);
}

void gpu_tensor(gpu *g, void *map, const void *at, const u64 sizes[3], const u64 strides[2], const u32 box[3]) {
    const u32 steps[3] = {1, 1, 1};
    if (!gpu_enter(g)) return;
    gpu_ok(g,
           g->cu.cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, (void *)(uintptr_t)at, sizes, strides,
                                        box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                        box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
           "describing a tensor of %llu x %llu x %llu values", (unsigned long long)sizes[2],
           (unsigned long long)sizes[1], (unsigned long long)sizes[0]);
}

void gpu_launch(gpu *g, const gpu_kernel *k, u32 gx, u32 gy, u32 gz, u32 threads, u32 shared_bytes, const void *args) {
    gpu_launch_cluster(g, k, 1, gx, gy, gz, threads, shared_bytes, args);
}

void gpu_launch_cluster(gpu *g, const gpu_kernel *k, u32 cluster, u32 gx, u32 gy, u32 gz, u32 threads, u32 shared_bytes,
                        const void *args) {
    block_times *times = gpu_stamp_launch(g, k, (const u32[3]){gx, gy, gz});
    void *parameters[] = {(void *)args, (void *)&times}; /* a kernel takes as many as it has */
    if (!gpu_enter(g)) return;
    g->last = k;
    if (g->trace.most) gpu_trace_mark(g, k, true);
    /* Every kernel of ours waits for the one before it by itself (math.cuh): its launch need not. */
    cuda_launch_attribute attributes[2] = {
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value.number = 1},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
    memcpy(attributes[1].value.all, (const u32[3]){cluster, 1, 1}, 3 * sizeof(u32));
    cuda_launch how = {.grid = {gx, gy, gz},
                       .block = {threads, 1, 1},
                       .shared_bytes = shared_bytes,
                       .stream = g->stream,
                       .attributes = attributes,
                       .n_attributes = cluster > 1 ? 2 : 1};
    gpu_calls(g, "launches a kernel");
    CUresult r = g->cu.cuLaunchKernelEx(&how, k->function, parameters, NULL);
    gpu_calls(g, NULL);
    if (r != CUDA_SUCCESS)
        gpu_ok(g, r, "launching %s (%u x %u x %u blocks of %u threads, %u bytes of shared memory)", k->name, gx, gy, gz,
               threads, shared_bytes);
    if (g->trace.most) gpu_trace_mark(g, k, false);
}
