/* tests/unit/device/fake_driver.c: a library that behaves as NVIDIA's driver does towards src/device, in host memory.
 *
 * It is as lazy as it may be: work on the stream runs when somebody waits for it and not before, copies from pinned
 * memory read that memory only then, device addresses are no addresses of the host, and a failed kernel fails every
 * later call. So a caller that does not wait, does not keep its buffers, or goes on after a failure is found out. */
#include "device/cuda_symbols.h"
#include "fake_driver.h"
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { INVALID_CONTEXT = 201, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, QUEUE = 4096, BLOCKS = 256 };
static const u64 BASE = 0x7f0000000000ull; /* where device memory begins */

API fake_state fake = {.version = 13000, .n_gpus = 2, .major = 9, .minor = 0, .total = 1 << 30};

struct CUfunc_st {
    char name[32];
    size_t args;
    int loaded;
    CUfunction next;
};
struct CUmod_st {
    CUfunction functions;
};
struct CUevent_st {
    int recorded; /* number of the operation; 0: never */
};
typedef struct {
    enum { SET, TO_DEVICE, FROM_DEVICE, LAUNCH, RECORD } kind;
    u8 *to;
    const u8 *from;
    size_t n;
    int value;
    CUfunction f;
    u8 args[256];
} operation;

static struct {
    u64 at, bytes;
    u8 *host;
    int live;
} blocks[BLOCKS];
static operation queue[QUEUE];
static struct {
    u8 *p;
    size_t bytes;
} pins[16];
struct CUgraph_st {
    operation *items;
    int n;
};
static CUgraph capturing; /* what is queued goes there */
static u64 next_address = 0;
static CUresult sticky;
static __thread CUcontext current;
static int the_context, the_stream;

static CUresult enter(const char *name, int needs_context) {
    if (fake.fail_in && !strcmp(fake.fail_in, name) && fake.fail_after-- == 0) {
        fake.fail_in = NULL;
        return fake.fail_result;
    }
    if (needs_context && !current) return INVALID_CONTEXT;
    return needs_context ? sticky : CUDA_SUCCESS;
}
#define ENTER(needs_context)                                                                                           \
    do {                                                                                                               \
        CUresult r_ = enter(__func__, needs_context);                                                                  \
        if (r_ != CUDA_SUCCESS) return r_;                                                                             \
    } while (0)

/* The host's memory behind [p, p + n), NULL where nothing that large was allocated. */
static u8 *find(CUdeviceptr p, size_t n) {
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].live && p >= blocks[i].at && p + n <= blocks[i].at + blocks[i].bytes)
            return blocks[i].host + (p - blocks[i].at);
    return NULL;
}

static int is_pinned(const void *p) {
    for (size_t i = 0; i < COUNT_OF(pins); i++)
        if ((const u8 *)p >= pins[i].p && (const u8 *)p < pins[i].p + pins[i].bytes) return 1;
    return 0;
}

static void run_one(operation *o) {
    fake_scale_args a;
    switch (o->kind) {
    case SET: memset(o->to, o->value, o->n); break;
    case TO_DEVICE:
    case FROM_DEVICE: memcpy(o->to, o->from, o->n); break;
    case RECORD: break;
    case LAUNCH:
        if (strcmp(o->f->name, "scale")) {
            sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
            break;
        }
        memcpy(&a, o->args, sizeof a);
        i32 *x = (i32 *)find(a.x, a.n * 4);
        if (!x) sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        for (u64 i = 0; x && i < a.n; i++) x[i] = (i32)((u32)x[i] * (u32)a.mul + (u32)a.add);
    }
}

static void run_to(int n) {
    while (fake.run < n && sticky == CUDA_SUCCESS) run_one(&queue[fake.run++ % QUEUE]);
}

static CUresult add(operation o) {
    if (capturing) { /* launches alone: nothing that we record copies */
        if (o.kind != LAUNCH) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        capturing->items = realloc(capturing->items, (size_t)(capturing->n + 1) * sizeof o);
        capturing->items[capturing->n++] = o;
        return CUDA_SUCCESS;
    }
    if (fake.queued - fake.run == QUEUE) run_to(fake.queued);
    queue[fake.queued++ % QUEUE] = o;
    return CUDA_SUCCESS;
}

API CUresult cuInit(unsigned flags) {
    ENTER(0);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    return fake.n_gpus ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *v) {
    ENTER(0);
    *v = fake.version;
    return CUDA_SUCCESS;
}
#ifndef FAKE_OLD
API CUresult cuGetErrorName(CUresult r, const char **text) {
    *text = NULL;
#define NAME(name, value)                                                                                              \
    if (r == value && !strncmp(#name, "CUDA_", 5)) *text = #name;
    CUDA_NUMBERS(NAME)
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGetErrorString(CUresult r, const char **text) {
    *text = r == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "a text";
    return CUDA_SUCCESS;
}
API CUresult cuFuncLoad(CUfunction f) {
    ENTER(1);
    fake.loaded += !f->loaded;
    f->loaded = 1;
    return CUDA_SUCCESS;
}
/* Parts: the words of `internal` say where one begins. */
API CUresult cuDeviceGetDevResource(CUdevice d, struct CUdevResource_st *to, CUdevResourceType type) {
    ENTER(1);
    *(cuda_resource *)to = (cuda_resource){.type = type, .sm = {132, 8, 8}};
    return d >= 100 && type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuDevSmResourceSplitByCount(struct CUdevResource_st *to, unsigned *n, const struct CUdevResource_st *from,
                                         struct CUdevResource_st *rest, unsigned flags, unsigned each) {
    ENTER(1);
    const cuda_resource *all = (const cuda_resource *)from;
    if (!to || !rest || flags || each % all->sm.multiple || each < all->sm.smallest_share)
        return CUDA_ERROR_INVALID_VALUE;
    *n = *n < all->sm.count / each ? *n : all->sm.count / each;
    if (fake.parts && *n > fake.parts) *n = fake.parts;
    for (unsigned i = 0; i < *n; i++) {
        cuda_resource *part = (cuda_resource *)to + i;
        *part = *all;
        part->sm.count = each;
        part->internal[0] = (unsigned char)(i * each);
    }
    return CUDA_SUCCESS;
}
API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *d, struct CUdevResource_st *r, unsigned n) {
    ENTER(1);
    fake.part = ((cuda_resource *)r)->internal[0];
    *d = (CUdevResourceDesc)&fake.part;
    return n == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGreenCtxCreate(CUgreenCtx *g, CUdevResourceDesc d, CUdevice on, unsigned flags) {
    ENTER(1);
    if (d != (CUdevResourceDesc)&fake.part || on < 100 || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    *g = (CUgreenCtx)&fake.greens;
    fake.greens++;
    return CUDA_SUCCESS;
}
API CUresult cuGreenCtxDestroy(CUgreenCtx g) {
    ENTER(0);
    fake.greens -= g == (CUgreenCtx)&fake.greens;
    return CUDA_SUCCESS;
}
API CUresult cuCtxFromGreenCtx(CUcontext *c, CUgreenCtx g) {
    ENTER(1);
    *c = (CUcontext)&the_context;
    return g == (CUgreenCtx)&fake.greens ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGreenCtxStreamCreate(CUstream *s, CUgreenCtx g, unsigned flags, int priority) {
    ENTER(1);
    *s = (CUstream)&the_stream;
    fake.streams++;
    return g && flags == CU_STREAM_NON_BLOCKING && !priority ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
#endif
API CUresult cuDeviceGetCount(int *n) {
    ENTER(0);
    *n = fake.n_gpus;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *d, int ordinal) {
    ENTER(0);
    *d = 100 + ordinal; /* a handle is no ordinal */
    return ordinal >= 0 && ordinal < fake.n_gpus ? CUDA_SUCCESS : 101;
}
API CUresult cuDeviceGetName(char *name, int len, CUdevice d) {
    ENTER(0);
    if (d < 100 || len < 16) return CUDA_ERROR_INVALID_VALUE;
    strcpy(name, "Fake H0");
    name[6] = (char)('0' + d - 100);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
    ENTER(0);
    if (d < 100) return CUDA_ERROR_INVALID_VALUE;
    switch (a) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 132; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = fake.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = fake.minor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = 232448; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
    ENTER(0);
    *c = (CUcontext)&the_context;
    fake.contexts++;
    return d >= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
/* With the context goes its memory, and what failed in it is forgotten. */
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
    ENTER(0);
    if (d < 100) return CUDA_ERROR_INVALID_VALUE;
    if (--fake.contexts) return CUDA_SUCCESS;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].live) free(blocks[i].host), blocks[i].live = 0;
    fake.used = 0;
    fake.run = fake.queued;
    sticky = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext c) {
    ENTER(0);
    current = c;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
    ENTER(0);
    if (a < 100 || b < 100) return CUDA_ERROR_INVALID_VALUE;
    *can = a != b && !fake.no_peers;
    return CUDA_SUCCESS;
}
API CUresult cuCtxEnablePeerAccess(CUcontext of, unsigned flags) {
    ENTER(1);
    if (!of || flags) return CUDA_ERROR_INVALID_VALUE;
    return fake.peers++ ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *s, unsigned flags) {
    ENTER(1);
    *s = (CUstream)&the_stream;
    fake.streams++;
    return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuStreamDestroy_v2(CUstream s) {
    fake.streams -= s == (CUstream)&the_stream;
    ENTER(1);
    return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream s) {
    ENTER(1);
    if (s != (CUstream)&the_stream) return CUDA_ERROR_INVALID_VALUE;
    run_to(fake.queued);
    return sticky;
}
API CUresult cuEventCreate(CUevent *e, unsigned flags) {
    ENTER(1);
    if (flags != CU_EVENT_DISABLE_TIMING || !(*e = calloc(1, sizeof **e))) return CUDA_ERROR_INVALID_VALUE;
    fake.events++;
    return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent e) {
    free(e);
    fake.events--;
    ENTER(1);
    return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent e, CUstream s) {
    ENTER(1);
    if (s != (CUstream)&the_stream) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = add((operation){.kind = RECORD});
    e->recorded = fake.queued;
    return r;
}
API CUresult cuEventSynchronize(CUevent e) {
    ENTER(1);
    run_to(e->recorded);
    return sticky;
}
API CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
    ENTER(1);
    *unused = fake.total - fake.used;
    *total = fake.total;
    return CUDA_SUCCESS;
}
API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    ENTER(1);
    int i = 0;
    while (i < BLOCKS && blocks[i].live) i++;
    if (!n || i == BLOCKS) return CUDA_ERROR_INVALID_VALUE;
    if (n > fake.total - fake.used || (fake.largest && n > fake.largest)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!(blocks[i].host = malloc(n))) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(blocks[i].host, 0xa5, n); /* what was there before */
    blocks[i].at = *p = BASE + next_address;
    blocks[i].bytes = n;
    blocks[i].live = 1;
    next_address += (n + 511) / 256 * 256; /* at least a byte of nothing between two */
    fake.used += n;
    return CUDA_SUCCESS;
}
API CUresult cuMemFree_v2(CUdeviceptr p) {
    ENTER(1);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].live && blocks[i].at == p) {
            fake.free_while_busy += fake.queued != fake.run;
            fake.used -= blocks[i].bytes;
            free(blocks[i].host);
            blocks[i].live = 0;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
    ENTER(1);
    size_t i = 0;
    while (i < COUNT_OF(pins) && pins[i].p) i++;
    if ((flags && flags != CU_MEMHOSTALLOC_PORTABLE) || i == COUNT_OF(pins) || !(*p = malloc(n)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pins[i].p = *p;
    pins[i].bytes = n;
    fake.pinned++;
    return CUDA_SUCCESS;
}
API CUresult cuMemFreeHost(void *p) {
    for (size_t i = 0; i < COUNT_OF(pins); i++)
        if (pins[i].p && pins[i].p == p) {
            free(p);
            pins[i].p = NULL;
            pins[i].bytes = 0;
            fake.pinned--;
        }
    ENTER(1);
    return CUDA_SUCCESS;
}
API CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
    ENTER(1);
    u8 *to = find(p, n);
    if (!to || s != (CUstream)&the_stream) return CUDA_ERROR_INVALID_VALUE;
    return add((operation){.kind = SET, .to = to, .n = n, .value = v});
}
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr p, const void *from, size_t n, CUstream s) {
    ENTER(1);
    u8 *to = find(p, n);
    if (!to || s != (CUstream)&the_stream) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = add((operation){.kind = TO_DEVICE, .to = to, .from = from, .n = n});
    if (!is_pinned(from)) run_to(fake.queued);
    return r;
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr p, size_t n, CUstream s) {
    ENTER(1);
    const u8 *from = find(p, n);
    if (!from || s != (CUstream)&the_stream) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = add((operation){.kind = FROM_DEVICE, .to = to, .from = from, .n = n});
    if (!is_pinned(to)) run_to(fake.queued);
    return r;
}
API CUresult cuModuleLoadData(CUmodule *m, const void *image) {
    ENTER(1);
    const char *at = image;
    if (!strncmp(at, "\177ELF", 4)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!(*m = calloc(1, sizeof **m))) return CUDA_ERROR_OUT_OF_MEMORY;
    while (*at) {
        CUfunction f = calloc(1, sizeof *f);
        size_t len = strcspn(at, " ");
        char *end;
        memcpy(f->name, at, len);
        f->args = strtoul(at + len, &end, 10);
        f->next = (*m)->functions;
        (*m)->functions = f;
        at = end + (*end == '\n');
    }
    fake.modules++;
    return CUDA_SUCCESS;
}
API CUresult cuModuleUnload(CUmodule m) {
    for (CUfunction f = m->functions, next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(m);
    fake.modules--;
    ENTER(1);
    return CUDA_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
    ENTER(1);
    for (CUfunction f = m->functions; f; f = f->next)
        if (!strcmp(f->name, name)) return *out = f, CUDA_SUCCESS;
    return CUDA_ERROR_NOT_FOUND;
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
    ENTER(1);
    if (!f || a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v > 232448) return CUDA_ERROR_INVALID_VALUE;
    fake.shared_limit = v;
    return CUDA_SUCCESS;
}
API CUresult cuTensorMapEncodeTiled(struct CUtensorMap_st *map, CUtensorMapDataType type, uint32_t rank, void *at,
                                    const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                    const uint32_t *steps, CUtensorMapInterleave lines, CUtensorMapSwizzle swizzle,
                                    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill outside) {
    ENTER(1);
    (void)map, (void)type, (void)rank, (void)at, (void)sizes, (void)strides, (void)box, (void)steps;
    (void)lines, (void)swizzle, (void)promotion, (void)outside;
    return CUDA_ERROR_INVALID_VALUE; /* no test describes one */
}
#ifndef FAKE_SHORT
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
    ENTER(1);
    operation o = {.kind = LAUNCH, .f = f};
    unsigned threads = c->block[0] * c->block[1] * c->block[2];
    if (!c->grid[0] || !c->grid[1] || !c->grid[2] || c->grid[1] > 65535 || c->grid[2] > 65535 || !threads ||
        threads > 1024 || extra || c->stream != (CUstream)&the_stream ||
        c->shared_bytes > (unsigned)(fake.shared_limit > 49152 ? fake.shared_limit : 49152))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < c->n_attributes; i++)
        if (c->attributes[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return CUDA_ERROR_INVALID_VALUE;
    memcpy(fake.grid, c->grid, sizeof fake.grid);
    memcpy(fake.block, c->block, sizeof fake.block);
    fake.shared = c->shared_bytes;
    memcpy(o.args, parameters[0], f->args);
    return add(o);
}
#endif
static void destroy(CUgraph g) {
    free(g->items);
    free(g);
    fake.graphs--;
}
API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
    ENTER(1);
    if (s != (CUstream)&the_stream || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || capturing)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(capturing = calloc(1, sizeof *capturing))) return CUDA_ERROR_OUT_OF_MEMORY;
    fake.graphs++;
    return CUDA_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *out) {
    CUgraph g = capturing;
    capturing = NULL;
    *out = NULL;
    CUresult r = enter(__func__, 1);
    if (r == CUDA_SUCCESS && (!g || s != (CUstream)&the_stream)) r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) return *out = g, CUDA_SUCCESS;
    if (g) destroy(g);
    return r;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) {
    ENTER(1);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    CUgraph copy = calloc(1, sizeof *copy);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    copy->n = g->n;
    copy->items = malloc((size_t)(g->n + 1) * sizeof *g->items);
    if (g->n) memcpy(copy->items, g->items, (size_t)g->n * sizeof *g->items);
    *out = (CUgraphExec)copy;
    fake.graphs++;
    return CUDA_SUCCESS;
}
API CUresult cuGraphUpload(CUgraphExec x, CUstream s) {
    ENTER(1);
    return x && s == (CUstream)&the_stream && !capturing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
    ENTER(1);
    CUgraph g = (CUgraph)x;
    if (s != (CUstream)&the_stream) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < g->n; i++) add(g->items[i]);
    return CUDA_SUCCESS;
}
API CUresult cuGraphDestroy(CUgraph g) {
    destroy(g);
    ENTER(1);
    return CUDA_SUCCESS;
}
API CUresult cuGraphExecDestroy(CUgraphExec x) {
    destroy((CUgraph)x);
    ENTER(1);
    return CUDA_SUCCESS;
}
