/* tests/gpu/driver.cc: a libcuda.so.1 that runs our kernels on this processor: device memory is the host's, a launch is
 * done when it returns. Blocks run beside each other on the cores, the threads of a block as fibers of one core, in an
 * order that turns around at every pass, so that a sum that depends on it is found out. x86-64 only. */
#include "emulate.h"
extern "C" {
#include "device/cuda_symbols.h"
}
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <ctime>
#include <sys/mman.h>

enum { THREADS = 256, LANES = 32, WARPS = THREADS / LANES, STACK = 128 << 10, SHARED = 232448 };
enum state { READY, WAITING, DONE };

struct fiber {
    void *sp;
    state is;
};
struct meeting { /* a barrier: who lives, who has come */
    int alive, come;
};

/* Words that threads give each other: two sets in turns, so that one barrier an exchange is enough, each with the number
 * of the exchange it was given in, since the dead give nothing. */
struct mailbox {
    unsigned words[2][THREADS];
    int given[2][THREADS], turn[THREADS];
};

struct block {
    fiber fibers[THREADS];
    meeting all, warps[WARPS];
    mailbox of_warps, of_all;
    unsigned operands[2][THREADS][6], products[THREADS]; /* of mma_bf16, in turns */
    unsigned shared_bytes;
    void *scheduler; /* its stack pointer */
    int running;
    void (*kernel)(const void *);
    const void *args;
    char *stacks, *shared;
};
thread_local emu_thread emu;
static thread_local block *blk;

extern "C" void emu_switch(void **save, void *load);
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static void release(int from, int n) {
    for (int t = from; t < from + n; t++)
        if (blk->fibers[t].is == WAITING) blk->fibers[t].is = READY;
}

/* The calling fiber comes to meeting m of threads [from, from + n); goes on when all that live have come. */
static void come(meeting *m, int from, int n) {
    if (++m->come == m->alive) {
        m->come = 0;
        release(from, n);
        return;
    }
    blk->fibers[blk->running].is = WAITING;
    emu_switch(&blk->fibers[blk->running].sp, blk->scheduler);
}

void emu_block_barrier(void) { come(&blk->all, 0, THREADS); }
void emu_warp_barrier(void) {
    int w = blk->running / LANES;
    come(&blk->warps[w], w * LANES, LANES);
}
/* Every live thread of meeting m gives a word. Returns the number of the exchange, for given(). */
static int exchange(mailbox *box, meeting *m, int from, int n, unsigned word) {
    int me = blk->running, turn = ++box->turn[me];
    box->words[turn % 2][me] = word;
    box->given[turn % 2][me] = turn;
    come(m, from, n);
    return turn;
}
static unsigned given(const mailbox *box, int turn, int thread) {
    return box->given[turn % 2][thread] == turn ? box->words[turn % 2][thread] : 0;
}
static int warp_exchange(unsigned word) {
    int w = blk->running / LANES;
    return exchange(&blk->of_warps, &blk->warps[w], w * LANES, LANES, word);
}
unsigned emu_exchange(unsigned word, int from) {
    int turn = warp_exchange(word);
    return given(&blk->of_warps, turn, blk->running / LANES * LANES + from);
}
unsigned emu_ballot(int predicate) {
    int turn = warp_exchange(predicate != 0), first = blk->running / LANES * LANES;
    unsigned mask = 0;
    for (int l = 0; l < LANES; l++) mask |= given(&blk->of_warps, turn, first + l) << l;
    return mask;
}
static float low(unsigned two) { return __uint_as_float(two << 16); }
static float high(unsigned two) { return __uint_as_float(two & 0xffff0000u); }
void mma_bf16(float c[4], const unsigned a[4], const unsigned b[2]) {
    int me = blk->running, first = me / LANES * LANES, g = me % LANES / 4, t = me % 4, turn = (int)(blk->products[me]++ % 2);
    memcpy(blk->operands[turn][me], a, 16);
    memcpy(blk->operands[turn][me] + 4, b, 8);
    emu_warp_barrier();
    for (int i = 0; i < 4; i++) /* c[i]: row g + 8 (i / 2), column 2t + i % 2 */
        for (int k = 0; k < 16; k++) {
            const unsigned *row = blk->operands[turn][first + 4 * g + k % 8 / 2], *col = blk->operands[turn][first + 4 * (2 * t + i % 2) + k % 8 / 2];
            unsigned x = row[i / 2 + k / 8 * 2], y = col[4 + k / 8];
            c[i] += k % 2 ? high(x) * high(y) : low(x) * low(y);
        }
}
int emu_or(int value) {
    int turn = exchange(&blk->of_all, &blk->all, 0, THREADS, value != 0), any = 0;
    for (int t = 0; t < THREADS; t++) any |= (int)given(&blk->of_all, turn, t);
    return any;
}

static void leave(meeting *m, int from, int n) {
    if (--m->alive && m->come == m->alive) {
        m->come = 0;
        release(from, n);
    }
}

static void fiber_main(void) {
    blk->kernel(blk->args);
    int t = blk->running, w = t / LANES;
    blk->fibers[t].is = DONE;
    leave(&blk->warps[w], w * LANES, LANES);
    leave(&blk->all, 0, THREADS);
    void *nowhere;
    emu_switch(&nowhere, blk->scheduler);
    abort();
}

static void start_fiber(int t) {
    void **top = (void **)(blk->stacks + (size_t)(t + 1) * STACK);
    *--top = nullptr; /* a call would have left the stack so */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    blk->fibers[t] = {top, READY};
}

static void run_block(emu_dim3 at, emu_dim3 grid) {
    blk->all = {THREADS, 0};
    for (int w = 0; w < WARPS; w++) blk->warps[w] = {LANES, 0};
    memset(&blk->of_warps, 0, sizeof blk->of_warps);
    memset(&blk->of_all, 0, sizeof blk->of_all);
    memset(blk->products, 0, sizeof blk->products);
    memset(blk->shared, 0xff, blk->shared_bytes); /* NaN: nobody may count on what was there */
    for (int t = 0; t < THREADS; t++) start_fiber(t);
    for (int left = THREADS, pass = 0; left; pass++) {
        int ran = 0;
        left = 0;
        for (int k = 0; k < THREADS; k++) {
            int t = pass % 2 ? THREADS - 1 - k : k;
            left += blk->fibers[t].is != DONE;
            if (blk->fibers[t].is != READY) continue;
            ran++;
            blk->running = t;
            emu = {{(unsigned)t, 0, 0}, at, grid, blk->shared};
            emu_switch(&blk->scheduler, blk->fibers[t].sp);
        }
        if (left && !ran) {
            fprintf(stderr, "emulated GPU: the threads of a block wait for each other for ever\n");
            abort();
        }
    }
}

/* Does every thread of the process that runs blocks have its own. */
static void open_block(void) {
    if (blk) return;
    blk = (block *)calloc(1, sizeof *blk);
    blk->stacks = (char *)mmap(nullptr, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    blk->shared = (char *)aligned_alloc(256, SHARED);
}

struct CUevent_st {
    timespec at;
};
struct CUfunc_st {
    void (*kernel)(const void *);
};

extern "C" CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                   unsigned shared, CUstream, void **parameters, void **extra) {
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx != THREADS || by != 1 || bz != 1 || shared > SHARED || extra) return 1;
    long blocks = (long)gx * gy * gz;
#pragma omp parallel for schedule(dynamic, 4)
    for (long b = 0; b < blocks; b++) {
        open_block();
        blk->kernel = f->kernel;
        blk->args = parameters[0];
        blk->shared_bytes = shared;
        run_block({(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / gx / gy)}, {gx, gy, gz});
    }
    return 0;
}

extern "C" CUresult cuModuleGetFunction(CUfunction *out, CUmodule, const char *name) {
    static CUfunc_st known[64];
    static int n;
    Dl_info here;
    dladdr((void *)emu_block_barrier, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_LAZY), *kernel = dlsym(self, name);
    if (!kernel || n == 64) return CUDA_ERROR_NOT_FOUND;
    known[n].kernel = (void (*)(const void *))kernel;
    *out = &known[n++];
    return 0;
}

/* ---- the rest is what any driver does ---- */

static const unsigned long long MEMORY = 8ull << 30;
static unsigned long long used;

extern "C" {
CUresult cuInit(unsigned) { return 0; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, 0; }
CUresult cuDeviceGetCount(int *n) { return *n = 1, 0; }
CUresult cuDeviceGet(CUdevice *d, int) { return *d = 0, 0; }
CUresult cuDeviceGetName(char *name, int len, CUdevice) { return snprintf(name, (size_t)len, "emulated GPU"), 0; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
    *v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT          ? 2
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR    ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR    ? 0
                                                                : SHARED;
    return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { return *c = (CUcontext)&used, 0; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
CUresult cuCtxSetCurrent(CUcontext) { return 0; }
CUresult cuStreamCreate(CUstream *s, unsigned) { return *s = (CUstream)&used, 0; }
CUresult cuStreamDestroy_v2(CUstream) { return 0; }
CUresult cuStreamSynchronize(CUstream) { return 0; }
CUresult cuEventCreate(CUevent *e, unsigned) { return *e = new CUevent_st(), 0; }
CUresult cuEventDestroy_v2(CUevent e) { return delete e, 0; }
CUresult cuEventRecord(CUevent e, CUstream) { return clock_gettime(CLOCK_MONOTONIC, &e->at), 0; }
CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) {
    *ms = (float)((b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) * 1e-6);
    return 0;
}
CUresult cuEventSynchronize(CUevent) { return 0; }
CUresult cuMemGetInfo_v2(size_t *left, size_t *total) { return *left = MEMORY - used, *total = MEMORY, 0; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    void *m = aligned_alloc(256, (n + 511) / 256 * 256);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    *p = (CUdeviceptr)m;
    return 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) { return free((void *)p), 0; }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned) { return *p = malloc(n), *p ? 0 : CUDA_ERROR_OUT_OF_MEMORY; }
CUresult cuMemFreeHost(void *p) { return free(p), 0; }
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream) { return memset((void *)p, v, n), 0; }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr p, const void *from, size_t n, CUstream) { return memcpy((void *)p, from, n), 0; }
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr p, size_t n, CUstream) { return memcpy(to, (const void *)p, n), 0; }
CUresult cuModuleLoadData(CUmodule *m, const void *) { return *m = (CUmodule)&used, 0; }
CUresult cuModuleUnload(CUmodule) { return 0; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int v) { return v > SHARED; }
}
