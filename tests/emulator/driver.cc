/* tests/emulator/driver.cc: a libcuda.so.1 that runs our kernels on this processor: device memory is the host's, a
 * launch is done when it returns. EMU_GPUS says how many GPUs there are; what belongs to one is refused in calls of
 * another, unless peer access was asked for (EMU_NO_PEERS: which is refused; EMU_FILLED: a GPU without memory). Blocks
 * run beside each other on the cores (blocks.cc). */
#include "blocks.h"
extern "C" {
#include "device/block_times.h"
#include "device/cuda_symbols.h"
}
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <omp.h>
#include <ctime>
#include <deque>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

enum { PROCESSORS = 2, AT_ONCE = 2 * PROCESSORS /* blocks */, GPUS_MOST = 8, CUDA_ERROR_INVALID_HANDLE = 400 };

struct CUevent_st {
    timespec at;
};
/* A device's primary context. What is made while it is current belongs to it, and is refused in another one's calls,
 * as the driver does. */
struct CUctx_st {
    int device;
    unsigned long long used; /* bytes */
    unsigned peers;          /* bit i: memory of device i, too */
};
static CUctx_st contexts[GPUS_MOST];
static thread_local CUcontext current;
struct CUstream_st {
    CUcontext of;
    CUgraph capturing;
};
struct CUmod_st {
    CUcontext of;
};
struct CUfunc_st {
    CUcontext of;
    void (*kernel)(const void *);
    unsigned size; /* of its arguments */
};
static std::mutex lock; /* of what threads share: allocations and functions */

/* EMU_GPUS: how many there are; 1 unless it says so. */
static int gpus(void) {
    const char *text = getenv("EMU_GPUS");
    int n = text ? atoi(text) : 1;
    return n < 1 ? 1 : n > GPUS_MOST ? GPUS_MOST : n;
}

/* Whose memory an address lies in; NULL: nobody's. */
struct allocation {
    size_t bytes;
    CUcontext of;
};
static std::map<CUdeviceptr, allocation> allocated;
static CUcontext owner(CUdeviceptr p) {
    auto next = allocated.upper_bound(p);
    if (next == allocated.begin()) return nullptr;
    auto at = std::prev(next);
    return p - at->first < at->second.bytes ? at->second.of : nullptr;
}
static bool reaches(CUcontext c, CUdeviceptr p) {
    CUcontext of = owner(p);
    return !of || of->device == c->device || (c->peers >> of->device & 1);
}
/* Does what is handed to a kernel on c point into another device's memory? Any eight bytes that could be an address;
 * but a small number with whatever lies in the four bytes of padding behind it is none. */
static bool points_elsewhere(CUcontext c, const void *args, size_t bytes) {
    if (gpus() == 1) return false;
    std::lock_guard<std::mutex> hold(lock);
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        CUdeviceptr p;
        memcpy(&p, (const char *)args + at, 8);
        if ((p & 0xffffffffu) >= 0x10000 && !reaches(c, p)) return true;
    }
    return false;
}

/* A recording: launches with their arguments. */
struct launch {
    cuda_launch how; /* its attributes are gone */
    int cluster;
    CUfunction f; /* NULL: `call`, of another library */
    std::vector<char> args;
    block_times *times = nullptr; /* of its blocks, if it is asked for them */
    std::function<void()> call = {};
};
struct CUgraph_st {
    std::vector<launch> all;
};

/* Once there is a file of the name in EMU_FAULT, something is wrong with the GPU. Its content is "fail" or "hang":
 * what runs; "full": there is no room for recordings. A file whose word is not written yet is none. For tests. */
static CUresult fault(bool room = false) {
    static const char *path = getenv("EMU_FAULT");
    char what[8] = "";
    FILE *f = path ? fopen(path, "r") : nullptr;
    if (!f) return 0;
    if (!fgets(what, sizeof what, f)) what[0] = 0;
    fclose(f);
    if (room) return strncmp(what, "full", 4) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
    while (!strncmp(what, "hang", 4)) sleep(1);
    return strncmp(what, "fail", 4) ? 0 : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* For fake_cupti.cc: is shown every launch. */
extern "C" {
void (*emu_launched)(const void *kernel, const unsigned *grid, int cluster, const void *context, bool recorded);
}

static std::atomic<int> running[GPUS_MOST]; /* kernels of each device */

static unsigned long long now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static CUresult launch_now(const CUlaunchConfig *c, int n, CUfunction f, const void *args, block_times *times,
                           bool recorded = false) {
    const int device = f->of ? f->of->device : 0;
    running[device]++;
    if (emu_launched) emu_launched((const void *)f->kernel, c->grid, n, f->of, recorded);
    unsigned gx = c->grid[0], gy = c->grid[1];
    long blocks = (long)gx * gy * c->grid[2];
    int together = blocks <= AT_ONCE ? (int)blocks : omp_get_max_threads(); /* grid_barrier_wait needs all of them */
#pragma omp parallel for schedule(dynamic, blocks <= AT_ONCE ? 1 : 4) num_threads(together)
    for (long b = 0; b < blocks; b += n) {
        for (int i = 0; i < n; i++) {
            block *m = open_block(i);
            m->kernel = f->kernel;
            m->args = args;
            m->shared_bytes = c->shared_bytes;
            m->threads = (int)c->block[0];
        }
        const unsigned long long begin = now_ns();
        run_blocks(n, {(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / gx / gy)}, {gx, gy, c->grid[2]});
        for (int i = 0; times && i < n; i++)
            times[b + i] = {begin, now_ns(), (unsigned)omp_get_thread_num() % PROCESSORS, 0, {}};
    }
    running[device]--;
    return 0;
}

/* One block, without a driver's objects: for test_hopper.cu. */
extern "C" unsigned emu_launch(void (*kernel)(const void *), unsigned threads, unsigned shared, const void *args) {
    CUfunc_st f = {nullptr, kernel, 0};
    const CUlaunchConfig one = {{1, 1, 1}, {threads, 1, 1}, shared, nullptr, nullptr, 0};
    if (threads > THREADS || shared > SHARED) return CUDA_ERROR_INVALID_VALUE;
    return launch_now(&one, 1, &f, args, nullptr);
}

extern "C" CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
    unsigned gx = c->grid[0], gy = c->grid[1], gz = c->grid[2], threads = c->block[0];
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || !threads || threads > THREADS || threads % LANES ||
        c->block[1] != 1 || c->block[2] != 1 || c->shared_bytes > SHARED || extra)
        return 1;
    if (CUresult r = fault()) return r;
    CUstream s = c->stream;
    if (!current || s->of != current || f->of != current) return CUDA_ERROR_INVALID_HANDLE;
    if (points_elsewhere(current, parameters[0], f->size)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    block_times *const times = *(block_times **)parameters[1];
    unsigned n = 1;
    for (unsigned i = 0; i < c->n_attributes; i++)
        if (c->attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            memcpy(&n, c->attributes[i].value.all, sizeof n);
    if (n < 1 || n > CLUSTER || gx % n) return 1;
    if (s->capturing) {
        const char *args = (const char *)parameters[0];
        s->capturing->all.push_back({*c, (int)n, f, std::vector<char>(args, args + f->size), times});
        return 0;
    }
    return launch_now(c, (int)n, f, parameters[0], times);
}

/* For fake_nccl.cc: queues a call of its own. */
extern "C" CUresult emu_queue(CUstream s, std::function<void()> *call) {
    if (!s || !current || s->of != current) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capturing)
        s->capturing->all.push_back({{}, 1, nullptr, {}, nullptr, *call});
    else
        (*call)();
    return 0;
}

extern "C" CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
    static std::deque<CUfunc_st> known; /* its elements stay where they are */
    std::lock_guard<std::mutex> hold(lock);
    Dl_info here;
    dladdr((void *)emu_block_barrier, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_LAZY), *kernel = dlsym(self, name);
    const unsigned *size = (const unsigned *)dlsym(self, ("size_" + std::string(name)).c_str());
    for (CUfunc_st &k : known) /* found before, by a model that is closed */
        if (k.kernel == (void (*)(const void *))kernel && k.of == m->of) return *out = &k, 0;
    if (!kernel || !size) return CUDA_ERROR_NOT_FOUND;
    known.push_back({m->of, (void (*)(const void *))kernel, *size});
    return *out = &known.back(), 0;
}

/* ---- the rest is what any driver does ---- */

static const unsigned long long MEMORY = 8ull << 30;

extern "C" {
CUresult cuInit(unsigned) { return 0; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, 0; }
CUresult cuDeviceGetCount(int *n) { return *n = gpus(), 0; }
CUresult cuDeviceGet(CUdevice *d, int i) { return *d = i, i < 0 || i >= gpus() ? CUDA_ERROR_INVALID_VALUE : 0; }
CUresult cuDeviceGetName(char *name, int len, CUdevice) { return snprintf(name, (size_t)len, "emulated GPU"), 0; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
    *v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? PROCESSORS
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                             : SHARED;
    return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return contexts[d].device = d, *c = &contexts[d], 0; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
CUresult cuCtxSetCurrent(CUcontext c) { return current = c, 0; }
CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { return *can = a != b && !getenv("EMU_NO_PEERS"), 0; }
CUresult cuCtxEnablePeerAccess(CUcontext of, unsigned) {
    if (!current || of == current) return CUDA_ERROR_INVALID_VALUE;
    return current->peers |= 1u << of->device, 0;
}
/* Parts of a GPU: contexts of their own, whose kernels run side by side as those of several GPUs do. */
struct CUgreenCtx_st {
    CUctx_st context;
};
struct CUdevResourceDesc_st {
    unsigned processors;
};
CUresult cuDeviceGetDevResource(CUdevice, struct CUdevResource_st *to, CUdevResourceType type) {
    cuda_resource all = {};
    all.type = type, all.sm.count = 2 * PROCESSORS, all.sm.smallest_share = all.sm.multiple = 1;
    return *(cuda_resource *)to = all, 0;
}
CUresult cuDevSmResourceSplitByCount(struct CUdevResource_st *to, unsigned *n, const struct CUdevResource_st *from,
                                     struct CUdevResource_st *, unsigned, unsigned each) {
    const cuda_resource *all = (const cuda_resource *)from;
    if (!each || each > all->sm.count) return CUDA_ERROR_INVALID_VALUE;
    if (*n > all->sm.count / each) *n = all->sm.count / each;
    for (unsigned i = 0; i < *n; i++) ((cuda_resource *)to)[i] = *all, ((cuda_resource *)to)[i].sm.count = each;
    return 0;
}
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *d, struct CUdevResource_st *r, unsigned n) {
    return n == 1 ? (*d = new CUdevResourceDesc_st{((cuda_resource *)r)->sm.count}, 0) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGreenCtxCreate(CUgreenCtx *g, CUdevResourceDesc d, CUdevice on, unsigned flags) {
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM || !d) return CUDA_ERROR_INVALID_VALUE;
    delete d;
    *g = new CUgreenCtx_st{};
    return (*g)->context.device = on, 0;
}
CUresult cuGreenCtxDestroy(CUgreenCtx g) { return delete g, 0; }
CUresult cuCtxFromGreenCtx(CUcontext *c, CUgreenCtx g) { return *c = &g->context, 0; }
CUresult cuGreenCtxStreamCreate(CUstream *s, CUgreenCtx g, unsigned, int) {
    return *s = new CUstream_st{&g->context, nullptr}, 0;
}
CUresult cuStreamCreate(CUstream *s, unsigned) {
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    return *s = new CUstream_st{current, nullptr}, 0;
}
CUresult cuStreamDestroy_v2(CUstream s) { return delete s, 0; }
CUresult cuStreamSynchronize(CUstream) { return 0; }
CUresult cuEventCreate(CUevent *e, unsigned) { return *e = new CUevent_st(), 0; }
CUresult cuEventDestroy_v2(CUevent e) { return delete e, 0; }
CUresult cuEventRecord(CUevent e, CUstream) { return clock_gettime(CLOCK_MONOTONIC, &e->at), 0; }
CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) {
    *ms = (float)((b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) * 1e-6);
    return 0;
}
CUresult cuEventSynchronize(CUevent) { return 0; }
CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    const char *filled = getenv("EMU_FILLED"); /* by another process: this GPU but for a few bytes */
    size_t others = filled && atoi(filled) == current->device ? MEMORY - (64 << 20) : 0;
    return *left = MEMORY - others - contexts[current->device].used, *total = MEMORY, 0;
}
/* Shared mappings, so that the system counts them apart from the program's own memory (RssShmem, not RssAnon). */
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    std::lock_guard<std::mutex> hold(lock);
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    void *m = mmap(nullptr, n + 256, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    allocated[ *p = (CUdeviceptr)m] = {n + 256, current};
    return contexts[current->device].used += n + 256, 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
    std::lock_guard<std::mutex> hold(lock);
    auto at = allocated.find(p);
    if (at == allocated.end() || at->second.of != current) return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)p, at->second.bytes);
    contexts[current->device].used -= at->second.bytes;
    return allocated.erase(at), 0;
}
/* Memory of the stream's device, at least n bytes of it. */
static CUresult touches(CUstream s, CUdeviceptr p, size_t n) {
    std::lock_guard<std::mutex> hold(lock);
    if (!current || s->of != current) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext of = owner(p);
    if (!n) return 0;
    return of && reaches(current, p) && owner(p + n - 1) == of ? 0 : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned) { return *p = malloc(n), *p ? 0 : CUDA_ERROR_OUT_OF_MEMORY; }
CUresult cuMemFreeHost(void *p) { return free(p), 0; }
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
    if (CUresult r = touches(s, p, n)) return r;
    return memset((void *)p, v, n), 0;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr p, const void *from, size_t n, CUstream s) {
    if (CUresult r = touches(s, p, n)) return r;
    return memcpy((void *)p, from, n), 0;
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr p, size_t n, CUstream s) {
    if (CUresult r = touches(s, p, n)) return r;
    return memcpy(to, (const void *)p, n), 0;
}
CUresult cuModuleLoadData(CUmodule *m, const void *) {
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    return *m = new CUmod_st{current}, 0;
}
CUresult cuModuleUnload(CUmodule m) { return delete m, 0; }
CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) { return s->capturing = new CUgraph_st(), 0; }
CUresult cuStreamEndCapture(CUstream s, CUgraph *g) { return *g = s->capturing, s->capturing = nullptr, 0; }
/* On a part of a GPU it takes a while now and then, and waits for what runs on the other parts, as on an H200. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long) {
    static std::atomic<unsigned> made;
    if (CUresult r = fault(true)) return r;
    if (current != &contexts[current->device]) {
        usleep(made++ % 2 * 10000);
        while (running[current->device]) usleep(50);
    }
    return *x = (CUgraphExec) new CUgraph_st(*g), 0;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return 0; }
CUresult cuGraphDestroy(CUgraph g) { return delete g, 0; }
CUresult cuGraphExecDestroy(CUgraphExec x) { return delete (CUgraph)x, 0; }
CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
    if (CUresult r = fault()) return r;
    if (!current || s->of != current) return CUDA_ERROR_INVALID_HANDLE;
    for (launch &l : ((CUgraph)x)->all)
        if (!l.f)
            l.call();
        else if (launch_now(&l.how, l.cluster, l.f, l.args.data(), l.times, true))
            return 1;
    return 0;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int v) { return v > SHARED; }
CUresult cuTensorMapEncodeTiled(struct CUtensorMap_st *map, CUtensorMapDataType type, uint32_t rank, void *at,
                                const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                const uint32_t *steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    bool aligned = !((size_t)map % 64 || (size_t)at % 16 || strides[0] % 16 || strides[1] % 16);
    if (!aligned || type != CU_TENSOR_MAP_DATA_TYPE_UINT16 || rank != 3 ||
        swizzle != (box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B) ||
        (box[0] != 64 && box[0] != 32) || box[1] > 256 || box[2] > 256 || steps[0] != 1)
        return CUDA_ERROR_INVALID_VALUE;
    tensor t = {(const char *)at, {sizes[0], sizes[1], sizes[2]}, {strides[0], strides[1]}, {box[0], box[1], box[2]}};
    memcpy(map, &t, sizeof t);
    return 0;
}
}
