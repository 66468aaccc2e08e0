/* tests/unit/device/test_gpu.c: device/gpu against the fake driver beside this program. */
#include "device/cuda_symbols.h"
#include "device/gpu.h"
#include "fake_driver.h"
#include "unit.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[4096];
static char library[4200];
static fake_state *fake;
static const char text[] = "scale 24\ntrap 8\n";
static const gpu_image image = {"rows", text, sizeof text};
enum { MIB = 1 << 20 };

static void path_of(char *out, const char *name) { snprintf(out, sizeof library, "%s/%s", folder, name); }

/* Each test begins with two GPUs of the right kind and nothing open. */
static int setup(void **state) {
    (void)state;
    *fake = (fake_state){.version = 13000, .n_gpus = 2, .major = 9, .total = 1 << 30};
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return fake->contexts || fake->greens || fake->streams || fake->events || fake->pinned || fake->modules ||
           fake->graphs || fake->used;
}

static gpu *opened(int ordinal) {
    gpu *g;
    err e;
    if (gpu_open_from(&g, library, (gpu_part){ordinal, 0, 1}, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

static void expect_refused(const char *from, int ordinal, status st, const char *part) {
    gpu *g = (gpu *)&g;
    err e;
    assert_int_equal(gpu_open_from(&g, from, (gpu_part){ordinal, 0, 1}, &e), st);
    assert_null(g);
    if (!strstr(e.text, part)) fail_msg("\"%s\" lacks \"%s\"", e.text, part);
    assert_null(strchr(e.text, '\n'));
}

static void expect_finish(device *d, const char *part) {
    err e;
    assert_int_equal(d->finish(d, &e), ST_DEVICE);
    if (!strstr(e.text, part)) fail_msg("\"%s\" lacks \"%s\"", e.text, part);
}

static void opens_and_describes(void **state) {
    (void)state;
    gpu *g = opened(1);
    assert_string_equal(gpu_name(g), "Fake H1");
    assert_int_equal(gpu_processors(g), 132);
    device *d = gpu_device(g);
    assert_string_equal(d->name, "Fake H1");
    assert_int_equal(d->available(d), 1 << 30);
    assert_int_equal(d->finish(d, NULL), ST_OK);
    gpu_close(g);
    gpu_close(NULL);
}

static void no_driver(void **state) {
    (void)state;
    expect_refused("/nonexistent/libcuda.so.1", 0, ST_DEVICE, "no NVIDIA driver: /nonexistent/libcuda.so.1");
}

static void driver_without_a_needed_function(void **state) {
    (void)state;
    char path[4200];
    path_of(path, "libcuda_short.so");
    expect_refused(path, 0, ST_DEVICE, "has no cuLaunchKernelEx; install a newer driver");
    expect_refused(path, 0, ST_DEVICE, "(CUDA 13.0)");
}

/* An older driver: no names for errors, kernels loaded at their first launch. */
static void driver_without_optional_functions(void **state) {
    (void)state;
    char path[4200];
    gpu *g;
    gpu_kernel *k;
    err e;
    path_of(path, "libcuda_old.so");
    assert_int_equal(gpu_open_from(&g, path, (gpu_part){0, 0, 1}, &e), ST_OK);
    assert_int_equal(gpu_find(g, &image, "scale", &k, &e), ST_OK);
    assert_int_equal(gpu_find(g, &image, "nothing", &k, &e), ST_DEVICE);
    assert_non_null(strstr(e.text, "failed: CUDA error 500"));
    gpu_close(g);
}

static void driver_too_old(void **state) {
    (void)state;
    fake->version = 11080;
    expect_refused(library, 0, ST_DEVICE, "it knows CUDA up to 11.8");
}

static void no_gpu(void **state) {
    (void)state;
    fake->n_gpus = 0;
    expect_refused(library, 0, ST_DEVICE, "no GPU: ");
}

static void peers(void **state) {
    (void)state;
    gpu *a = opened(0), *b = opened(1), *again = opened(0);
    err e = {0};
    assert_int_equal(gpu_reach(a, b, &e), ST_OK);
    assert_int_equal(gpu_reach(a, b, &e), ST_OK); /* it may have been asked for before */
    assert_int_equal(fake->peers, 2);
    assert_int_equal(gpu_reach(a, again, &e), ST_OK); /* its own memory */
    assert_int_equal(fake->peers, 2);
    fake->fail_in = "cuCtxEnablePeerAccess", fake->fail_after = 0, fake->fail_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(gpu_reach(b, a, &e), ST_DEVICE);
    if (!strstr(e.text, "GPU 1 (Fake H1): peer access to GPU 0 failed: CUDA_ERROR_INVALID_VALUE"))
        fail_msg("%s", e.text);
    fake->no_peers = true;
    assert_int_equal(gpu_reach(b, a, &e), ST_UNSUPPORTED);
    if (!strstr(e.text, "GPU 1 (Fake H1) cannot reach the memory of GPU 0 (Fake H0)")) fail_msg("%s", e.text);
    gpu_close(a), gpu_close(b), gpu_close(again);
}

static void part_refused(const char *from, gpu_part part, status st, const char *text) {
    gpu *g = NULL;
    err e = {0};
    assert_int_equal(gpu_open_from(&g, from, part, &e), st);
    assert_null(g);
    if (!strstr(e.text, text)) fail_msg("\"%s\" lacks \"%s\"", e.text, text);
    assert_int_equal(fake->greens, 0);
}

/* Equal parts, whose sizes go up in eights: 64 of 132 for each of two. */
static void parts_of_a_gpu(void **state) {
    (void)state;
    char old[4200];
    err e = {0};
    gpu *g[8];
    const struct { int shares, processors; } cases[] = {{1, 132}, {2, 64}, {3, 40}, {4, 32}, {8, 16}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (int k = 0; k < cases[i].shares; k++) {
            if (gpu_open_from(&g[k], library, (gpu_part){1, k, cases[i].shares}, &e) != ST_OK) fail_msg("%s", e.text);
            assert_int_equal(gpu_processors(g[k]), cases[i].processors);
            assert_int_equal(gpu_chip_processors(g[k]), 132);
            if (cases[i].shares > 1) assert_int_equal(fake->part, k * cases[i].processors);
        }
        assert_int_equal(fake->greens, cases[i].shares > 1 ? cases[i].shares : 0);
        for (int k = 0; k < cases[i].shares; k++) gpu_close(g[k]);
        assert_int_equal(fake->greens, 0);
    }
    part_refused(library, (gpu_part){0, 0, 9}, ST_INPUT, "part 0 of 9 of a GPU: there may be up to 8");
    part_refused(library, (gpu_part){0, 2, 2}, ST_INPUT, "part 2 of 2");
    path_of(old, "libcuda_old.so");
    part_refused(old, (gpu_part){0, 0, 2}, ST_UNSUPPORTED, "parts of a GPU need 12.4 (green contexts)");
    fake->parts = 3;
    part_refused(library, (gpu_part){0, 1, 4}, ST_UNSUPPORTED,
                 "GPU 0 (Fake H0): 3 parts of 32 multiprocessors, 4 are wanted");
    fake->parts = 0;
    const char *const calls[] = {"cuDeviceGetDevResource",    "cuDevSmResourceSplitByCount", "cuGreenCtxCreate",
                                 "cuDevResourceGenerateDesc", "cuCtxFromGreenCtx",           "cuGreenCtxStreamCreate"};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        fake->fail_in = calls[i], fake->fail_after = 0, fake->fail_result = CUDA_ERROR_INVALID_VALUE;
        part_refused(library, (gpu_part){0, 1, 4}, ST_DEVICE, "CUDA_ERROR_INVALID_VALUE");
    }
}

static void gpu_of_each_rank(void **state) {
    (void)state;
    const i64 gpus[] = {3, 0, 3, 1, 3};
    const gpu_part want[] = {{3, 0, 3}, {0, 0, 1}, {3, 1, 3}, {1, 0, 1}, {3, 2, 3}};
    for (i64 i = 0; i < 5; i++) {
        gpu_part p = gpu_part_of(gpus, 5, i);
        assert_true(p.ordinal == want[i].ordinal && p.share == want[i].share && p.shares == want[i].shares);
    }
}

static void no_such_ordinal(void **state) {
    (void)state;
    expect_refused(library, 2, ST_DEVICE, "there is no GPU 2: the NVIDIA driver counts 2, from 0 to 1");
    expect_refused(library, -1, ST_DEVICE, "there is no GPU -1");
}

static void wrong_chip(void **state) {
    (void)state;
    fake->major = 8;
    expect_refused(library, 0, ST_UNSUPPORTED, "GPU 0 (Fake H0) has compute capability 8.0; supported is 9.0");
    fake->major = 9;
    fake->minor = 1; /* cubins of sm_90a run on exactly that chip */
    expect_refused(library, 0, ST_UNSUPPORTED, "9.1");
    fake->major = 10;
    fake->minor = 0;
    expect_refused(library, 0, ST_UNSUPPORTED, "10.0");
}

static void memory_is_zeroed_and_counted(void **state) {
    (void)state;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    u8 back[1000], zeros[1000] = {0};
    void *p, *none;
    err e;
    assert_int_equal(d->alloc(d, &p, sizeof back, "a test", &e), ST_OK);
    assert_int_equal((u64)(uintptr_t)p % 64, 0);
    memset(back, 7, sizeof back);
    d->read(d, back, p, sizeof back);
    assert_memory_equal(back, zeros, sizeof back);
    assert_int_equal(d->available(d), (1 << 30) - 1000);
    const u64 takes[][2] = {{0, 512},           {513, 1024},        {900000, 1 << 20},
                            {1 << 20, 1 << 20}, {1100000, 2 << 20}, {2100000, 4 << 20}}; /* as the driver does */
    for (size_t i = 0; i < COUNT_OF(takes); i++) assert_int_equal(d->takes(takes[i][0]), takes[i][1]);
    assert_int_equal(d->alloc(d, &none, 0, "nothing", &e), ST_OK);
    assert_non_null(none);
    d->release(d, none);
    d->release(d, NULL);
    d->write(d, p, zeros, 0);
    d->release(d, p);
    assert_int_equal(d->available(d), 1 << 30);
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_close(g);
}

static void memory_is_refused_with_the_numbers(void **state) {
    (void)state;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    void *p, *q;
    err e;
    assert_int_equal(d->alloc(d, &p, 300 * MIB, "the KV cache", &e), ST_OK);
    assert_int_equal(d->alloc(d, &q, 800 * MIB, "the weights", &e), ST_NOMEM);
    assert_null(q);
    assert_string_equal(e.text,
                        "GPU 0 (Fake H0) has no room for the weights: 0.839 GB asked, 0.759 GB free of 1.074 GB");
    assert_int_equal(d->alloc(d, &q, UINT64_MAX, "far too much", &e), ST_NOMEM);
    fake->largest = 1 * MIB; /* free, but in small pieces */
    assert_int_equal(d->alloc(d, &q, 2 * MIB, "the weights", &e), ST_NOMEM);
    assert_non_null(strstr(e.text, "0.002 GB asked, 0.759 GB free"));
    assert_int_equal(d->finish(d, &e), ST_OK); /* refused is not failed */
    d->release(d, p);
    gpu_close(g);
}

/* Everything runs in the order of the calls although nothing runs before it must, and buffers and arguments of the
 * host are free when a call returns. */
static void order_on_the_stream(void **state) {
    (void)state;
    enum { N = 100 };
    gpu *g = opened(0);
    device *d = gpu_device(g);
    gpu_kernel *scale;
    void *p;
    i32 x[N], back[N], want[N];
    err e;
    assert_int_equal(gpu_find(g, &image, "scale", &scale, &e), ST_OK);
    assert_int_equal(d->alloc(d, &p, sizeof x, "x", &e), ST_OK);
    for (int i = 0; i < N; i++) want[i] = x[i] = i;
    d->write(d, p, x, sizeof x);
    memset(x, 0xee, sizeof x);
    for (int round = 1; round <= 40; round++) { /* more writes than pieces of staging memory */
        fake_scale_args a = {(u64)(uintptr_t)p, N, 3, round};
        gpu_launch(g, scale, 1, 2, 3, 128, 1024, &a);
        memset(&a, 0xee, sizeof a);
        x[0] = round;
        d->write(d, (u8 *)p + 4 * round, x, 4);
        x[0] = -1;
        for (int i = 0; i < N; i++) want[i] = (i32)((u32)want[i] * 3 + (u32)round);
        want[round] = round;
    }
    assert_true(fake->run < fake->queued); /* nobody waited for the last of it */
    d->read(d, back, p, sizeof back);
    assert_memory_equal(back, want, sizeof want);
    assert_int_equal(fake->grid[0] * 100 + fake->grid[1] * 10 + fake->grid[2], 123);
    assert_int_equal(fake->block[0] * fake->block[1] * fake->block[2], 128);
    assert_int_equal(fake->shared, 1024);
    gpu_launch(g, scale, 1, 1, 1, 32, 0, &(fake_scale_args){(u64)(uintptr_t)p, N, 1, 1});
    d->release(d, p);
    assert_int_equal(fake->free_while_busy, 0);
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_close(g);
}

/* Results come without waiting for what was queued behind them, in either order of waiting. */
static void replies(void **state) {
    (void)state;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    gpu_kernel *scale, *trap;
    device_readback *r[2];
    i32 x[3] = {1, 2, 3}, back[3];
    u64 arg = 0;
    void *p;
    err e;
    assert_int_equal(gpu_find(g, &image, "scale", &scale, &e), ST_OK);
    assert_int_equal(gpu_find(g, &image, "trap", &trap, &e), ST_OK);
    assert_int_equal(d->alloc(d, &p, sizeof x, "x", &e), ST_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(d->readback_open(d, 100, &r[i], &e), ST_OK);
    d->write(d, p, x, sizeof x);
    for (int i = 0; i < 2; i++) { /* 10 20 30, 100 200 300 */
        gpu_launch(g, scale, 1, 1, 1, 3, 0, &(fake_scale_args){(u64)(uintptr_t)p, 3, 10, 0});
        d->readback_add(d, r[i], 4, p, 4);
        d->readback_add(d, r[i], 12, (u8 *)p + 8, 4);
    }
    gpu_launch(g, trap, 1, 1, 1, 1, 0, &arg);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d->readback_wait(d, r[i], &e), ST_OK);
        memcpy(back, r[i]->data + 4, sizeof back);
        assert_int_equal(back[0], i ? 100 : 10);
        assert_int_equal(back[2], i ? 300 : 30);
        assert_true(fake->run < fake->queued);
    }
    d->readback_add(d, r[0], 0, p, 4);
    assert_int_equal(d->readback_wait(d, r[0], &e), ST_DEVICE);
    assert_non_null(strstr(e.text, "what was queued (last kernel: trap) failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    for (int i = 0; i < 2; i++) d->readback_close(d, r[i]);
    d->readback_close(d, NULL);
    assert_int_equal(fake->pinned, 1);
    gpu_close(g);
}

/* Copies beside what is queued: they do not wait for it, and their failures are not the stream's. */
static void couriers(void **state) {
    (void)state;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    gpu_kernel *trap;
    device_courier *c;
    const i32 x[3] = {1, 2, 3};
    i32 back[3];
    u64 arg = 0;
    void *p;
    err e = {0};
    assert_int_equal(gpu_find(g, &image, "trap", &trap, &e), ST_OK);
    assert_int_equal(d->alloc(d, &p, sizeof x, "x", &e), ST_OK);
    assert_int_equal(d->finish(d, &e), ST_OK);
    assert_int_equal(d->courier_open(d, 100, &c, &e), ST_OK);
    memcpy(c->data + 8, x, sizeof x);
    d->courier_add(d, c, true, c->data + 8, p, sizeof x);
    assert_int_equal(d->courier_wait(d, c, &e), ST_OK);
    d->read(d, back, p, sizeof back);
    assert_memory_equal(back, x, sizeof x);
    d->courier_add(d, c, false, c->data + 40, (u8 *)p + 4, 8);
    d->courier_add(d, c, false, c->data + 60, p, 0);
    assert_int_equal(d->courier_wait(d, c, &e), ST_OK);
    assert_memory_equal(c->data + 40, x + 1, 8);
    fake->fail_in = "cuMemcpyDtoHAsync_v2", fake->fail_after = 0, fake->fail_result = CUDA_ERROR_INVALID_VALUE;
    d->courier_add(d, c, false, c->data, p, 4);
    assert_int_equal(d->courier_wait(d, c, &e), ST_DEVICE);
    assert_non_null(strstr(e.text, "copies beside the steps failed"));
    assert_int_equal(d->courier_wait(d, c, &e), ST_OK);
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_launch(g, trap, 1, 1, 1, 1, 0, &arg);
    assert_int_equal(d->finish(d, &e), ST_DEVICE);
    d->courier_close(d, c);
    d->courier_close(d, NULL);
    assert_int_equal(fake->pinned, 1);
    gpu_close(g);
}

/* A copy of many pieces with an odd end, not aligned, both ways; its neighbours stay. */
static void long_copies(void **state) {
    (void)state;
    const u64 n = 21 * MIB + 12345, all = n + 100;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    u8 *from = malloc(n), *back = malloc(all);
    void *p;
    u32 r = 1;
    for (u64 i = 0; i < n; i++) from[i] = (u8)((r = r * 1664525 + 1013904223) >> 24);
    assert_int_equal(d->alloc(d, &p, all, "x", NULL), ST_OK);
    d->write(d, (u8 *)p + 3, from, n);
    d->read(d, back, p, all);
    assert_memory_equal(back + 3, from, n);
    for (u64 i = 0; i < 3; i++) assert_int_equal(back[i], 0);
    for (u64 i = n + 3; i < all; i++) assert_int_equal(back[i], 0);
    d->release(d, p);
    assert_int_equal(d->finish(d, NULL), ST_OK);
    gpu_close(g);
    free(from);
    free(back);
}

static void kernels_are_found_once(void **state) {
    (void)state;
    static const gpu_image elf = {"broken", "\177ELF", 4};
    gpu *g = opened(0);
    gpu_kernel *a, *b, *c;
    err e;
    assert_int_equal(gpu_find(g, &image, "scale", &a, &e), ST_OK);
    assert_int_equal(gpu_find(g, &image, "trap", &b, &e), ST_OK);
    assert_int_equal(gpu_find(g, &image, "scale", &c, &e), ST_OK);
    assert_ptr_equal(a, c);
    assert_ptr_not_equal(a, b);
    assert_int_equal(fake->modules, 1);
    assert_int_equal(fake->loaded, 2); /* now, not at the first launch */
    assert_int_equal(gpu_find(g, &image, "nothing", &c, &e), ST_DEVICE);
    assert_null(c);
    assert_string_equal(e.text,
                        "GPU 0 (Fake H0): finding the kernel nothing in rows.cu failed: CUDA_ERROR_NOT_FOUND (a text)");
    assert_int_equal(gpu_find(g, &elf, "scale", &c, &e), ST_DEVICE);
    assert_non_null(strstr(e.text, "loading the kernels of broken.cu (4 bytes) failed: CUDA_ERROR_NO_BINARY_FOR_GPU"));
    assert_int_equal(gpu_device(g)->finish(gpu_device(g), &e), ST_OK);
    gpu_close(g);
}

static void shared_memory(void **state) {
    (void)state;
    gpu *g = opened(0);
    gpu_kernel *k;
    err e;
    assert_int_equal(gpu_find(g, &image, "scale", &k, &e), ST_OK);
    assert_int_equal(gpu_shared(g, k, 232448, &e), ST_OK);
    assert_int_equal(fake->shared_limit, 232448);
    assert_int_equal(gpu_shared(g, k, 232449, &e), ST_LIMIT);
    assert_string_equal(e.text,
                        "GPU 0 (Fake H0): kernel scale wants 232449 bytes of shared memory, a block has up to 232448");
    gpu_close(g);
}

/* A launch that is refused, and what comes after it: one line, of the first failure, and then none. */
static void a_refused_launch_is_reported(void **state) {
    (void)state;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    gpu_kernel *k;
    fake_scale_args a = {0};
    err e;
    assert_int_equal(gpu_find(g, &image, "scale", &k, &e), ST_OK);
    gpu_launch(g, k, 1, 70000, 1, 128, 0, &a);
    gpu_launch(g, k, 0, 1, 1, 128, 0, &a);
    expect_finish(d, "GPU 0 (Fake H0): launching scale (1 x 70000 x 1 blocks of 128 threads, 0 bytes of shared memory) "
                     "failed: CUDA_ERROR_INVALID_VALUE");
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_launch(g, k, 1, 1, 1, 128, 49153, &a); /* more than was asked for with gpu_shared */
    expect_finish(d, "49153 bytes");
    gpu_close(g);
}

/* A kernel that crashes: read brings zeros, finish tells, and so it goes on until the GPU is opened anew. */
static void a_crash_is_reported(void **state) {
    (void)state;
    gpu *g = opened(0);
    device *d = gpu_device(g);
    gpu_kernel *trap;
    u64 arg = 0;
    i32 back[3] = {1, 2, 3};
    void *p, *q;
    err e;
    assert_int_equal(gpu_find(g, &image, "trap", &trap, &e), ST_OK);
    assert_int_equal(d->alloc(d, &p, sizeof back, "x", &e), ST_OK);
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_launch(g, trap, 1, 1, 1, 1, 0, &arg);
    d->write(d, p, back, sizeof back);
    d->read(d, back, p, sizeof back);
    for (int i = 0; i < 3; i++) assert_int_equal(back[i], 0);
    expect_finish(d,
                  "GPU 0 (Fake H0): what was queued (last kernel: trap) failed: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal "
                  "memory access was encountered)");
    expect_finish(d, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(d->alloc(d, &q, 16, "more", &e), ST_DEVICE);
    assert_non_null(strstr(e.text, "memory for more failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_int_equal(d->available(d), 0);
    gpu_close(g);
    g = opened(0);
    assert_int_equal(gpu_device(g)->finish(gpu_device(g), &e), ST_OK);
    gpu_close(g);
}

typedef struct {
    gpu *g;
    gpu_kernel *k;
    fake_scale_args args;
} recorded;

static void queue_two(void *ud) {
    recorded *r = ud;
    gpu_launch(r->g, r->k, 1, 1, 1, 4, 0, &r->args);
    gpu_launch(r->g, r->k, 1, 1, 1, 4, 0, &r->args);
}

/* Nothing runs while it is recorded; every replay runs it all, with the arguments of then. */
static void recordings(void **state) {
    (void)state;
    recorded r = {.g = opened(0)};
    device *d = gpu_device(r.g);
    device_recording *kept = NULL;
    void *p;
    i32 x[2] = {1, 10}, back[2];
    err e;
    assert_int_equal(gpu_find(r.g, &image, "scale", &r.k, &e), ST_OK);
    assert_int_equal(d->alloc(d, &p, sizeof x, "x", &e), ST_OK);
    d->write(d, p, x, sizeof x);
    r.args = (fake_scale_args){(u64)(uintptr_t)p, 2, 3, 1};
    assert_int_equal(d->record(d, queue_two, &r, &kept, &e), ST_OK);
    r.args = (fake_scale_args){0};
    d->read(d, back, p, sizeof back);
    assert_memory_equal(back, x, sizeof x);
    d->replay(d, kept);
    d->replay(d, kept);
    d->read(d, back, p, sizeof back);
    assert_int_equal(back[0], 121);
    assert_int_equal(back[1], 850);
    d->forget(d, kept);
    d->forget(d, NULL);
    d->release(d, p);
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_close(r.g);
}

typedef struct {
    i64 n, first;
    char kernel[16];
} stamped_seen;
static void see_stamped(void *ud, const gpu_stamped *s) {
    stamped_seen *seen = ud;
    seen->n += s->n;
    seen->first = s->first;
    snprintf(seen->kernel, sizeof seen->kernel, "%s", s->kernel);
    assert_int_equal(s->grid[0] * s->grid[1] * s->grid[2], s->n);
    for (i64 i = 0; i < s->n; i++) assert_int_equal(s->blocks[i].begin, 0); /* these kernels write nothing */
}

/* Launches of the last recording have a place for their blocks' times, as far as there is room; others have none. */
static void stamps_of_a_recording(void **state) {
    (void)state;
    recorded r = {.g = opened(0)};
    device *d = gpu_device(r.g);
    device_recording *first = NULL, *second = NULL;
    stamped_seen seen = {0};
    i64 missed = -1;
    void *p;
    err e;
    assert_int_equal(gpu_find(r.g, &image, "scale", &r.k, &e), ST_OK);
    assert_int_equal(d->alloc(d, &p, 16, "x", &e), ST_OK);
    r.args = (fake_scale_args){(u64)(uintptr_t)p, 2, 3, 1};
    assert_int_equal(gpu_stamp(r.g, (i64)1 << 40, 8, &e), ST_NOMEM);
    assert_non_null(strstr(e.text, "the times of blocks"));
    assert_int_equal(gpu_stamp(r.g, 1, 8, &e), ST_OK);
    queue_two(&r); /* no recording */
    assert_int_equal(gpu_stamps(r.g, see_stamped, &seen, &missed, &e), ST_OK);
    assert_int_equal(seen.n, 0);
    assert_int_equal(missed, 0);
    assert_int_equal(d->record(d, queue_two, &r, &first, &e), ST_OK);
    assert_int_equal(d->record(d, queue_two, &r, &second, &e), ST_OK);
    d->replay(d, second);
    assert_int_equal(gpu_stamps(r.g, see_stamped, &seen, &missed, &e), ST_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.first, 0);
    assert_string_equal(seen.kernel, "scale");
    assert_int_equal(missed, 1);
    d->forget(d, first);
    d->forget(d, second);
    assert_int_equal(gpu_stamp(r.g, 0, 0, &e), ST_OK);
    seen = (stamped_seen){0};
    assert_int_equal(gpu_stamps(r.g, see_stamped, &seen, &missed, &e), ST_OK);
    assert_int_equal(seen.n, 0);
    d->release(d, p);
    gpu_close(r.g);
}

static void queue_a_copy(void *ud) {
    device *d = gpu_device(((recorded *)ud)->g);
    d->write(d, (void *)(uintptr_t)((recorded *)ud)->args.x, "abc", 4);
}

static void a_recording_that_fails(void **state) {
    (void)state;
    recorded r = {.g = opened(0)};
    device *d = gpu_device(r.g);
    device_recording *kept = (device_recording *)d;
    void *p;
    err e;
    assert_int_equal(d->alloc(d, &p, 16, "x", &e), ST_OK);
    r.args.x = (u64)(uintptr_t)p;
    assert_int_equal(d->record(d, queue_a_copy, &r, &kept, &e), ST_DEVICE);
    assert_null(kept);
    assert_non_null(strstr(e.text, "a copy of 4 bytes to the GPU failed"));
    d->release(d, p);
    assert_int_equal(d->finish(d, &e), ST_OK);
    gpu_close(r.g);
}

/* Without room for a recording nothing else has failed, and the same launches run by themselves. */
static void a_recording_without_room(void **state) {
    (void)state;
    static const char *const calls[] = {"cuGraphInstantiateWithFlags", "cuGraphUpload"};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        recorded r = {.g = opened(0)};
        device *d = gpu_device(r.g);
        device_recording *kept = (device_recording *)d;
        void *p;
        i32 x[2] = {1, 10}, back[2];
        err e;
        assert_int_equal(gpu_find(r.g, &image, "scale", &r.k, &e), ST_OK);
        assert_int_equal(d->alloc(d, &p, sizeof x, "x", &e), ST_OK);
        d->write(d, p, x, sizeof x);
        r.args = (fake_scale_args){(u64)(uintptr_t)p, 2, 3, 1};
        fake->fail_in = calls[i];
        fake->fail_after = 0;
        fake->fail_result = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(d->record(d, queue_two, &r, &kept, &e), ST_NOMEM);
        assert_null(kept);
        assert_string_equal(e.text, "GPU 0 (Fake H0) has no room for a recorded step");
        assert_int_equal(d->finish(d, &e), ST_OK);
        assert_int_equal(fake->graphs, 0);
        queue_two(&r);
        d->read(d, back, p, sizeof back);
        assert_int_equal(back[0], 13);
        assert_int_equal(back[1], 94);
        d->release(d, p);
        gpu_close(r.g);
    }
}

/* The thread that opens a GPU need not be the one that computes. */
static void *other_thread(void *ud) {
    device *d = gpu_device(ud);
    i32 x = 42, back = 0;
    void *p = NULL;
    if (d->alloc(d, &p, 4, "x", NULL) != ST_OK) return NULL;
    d->write(d, p, &x, 4);
    d->read(d, &back, p, 4);
    d->release(d, p);
    return d->finish(d, NULL) == ST_OK && back == 42 ? ud : NULL;
}

static void another_thread(void **state) {
    (void)state;
    gpu *g = opened(0);
    pthread_t t;
    void *ret;
    assert_int_equal(pthread_create(&t, NULL, other_thread, g), 0);
    pthread_join(t, &ret);
    assert_ptr_equal(ret, g);
    gpu_close(g);
}

/* One run through everything; the first failure's text, "" when there is none. True when what was to fail failed
 * before gpu_close(). */
static bool scenario(char *out) {
    gpu *g;
    gpu_kernel *k;
    err e = {ST_OK, ""};
    i32 x[4] = {1, 2, 3, 4}, back[4];
    void *p = NULL;
    *out = 0;
    if (gpu_open_from(&g, library, (gpu_part){0, 0, 1}, &e) == ST_OK) {
        device *d = gpu_device(g);
        status st = gpu_find(g, &image, "scale", &k, &e);
        if (st == ST_OK) st = gpu_shared(g, k, 100000, &e);
        if (st == ST_OK) st = d->alloc(d, &p, sizeof x, "x", &e);
        if (st == ST_OK) {
            d->write(d, p, x, sizeof x);
            gpu_launch(g, k, 1, 1, 1, 4, 0, &(fake_scale_args){(u64)(uintptr_t)p, 4, 2, 0});
            recorded r = {g, k, {(u64)(uintptr_t)p, 4, 2, 0}};
            device_recording *kept;
            st = d->record(d, queue_two, &r, &kept, &e);
            if (st == ST_OK) d->replay(d, kept);
            if (st == ST_OK) d->forget(d, kept);
            device_readback *later;
            if (st == ST_OK && (st = d->readback_open(d, sizeof x, &later, &e)) == ST_OK) {
                d->readback_add(d, later, 0, p, sizeof x);
                st = d->readback_wait(d, later, &e);
                d->readback_close(d, later);
            }
            d->read(d, back, p, sizeof x);
            d->available(d);
            d->release(d, p);
            d->finish(d, st == ST_OK ? &e : NULL);
        }
    }
    bool before = !fake->fail_in;
    gpu_close(g);
    if (e.code != ST_OK) strcpy(out, e.text);
    return before;
}

/* Every function of the driver fails at its first, second, ... call: each time somebody is told, with the driver's
 * reason, and nothing is left behind but what the driver itself refused to take back. */
static void every_call_may_fail(void **state) {
    (void)state;
    static const char *const names[] = {
#define NAME(name, args) #name,
        CUDA_SYMBOLS(NAME, NAME)};
    int failures = 0, closing = 0;
    char first[512];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        for (int after = 0; after < 50; after++) {
            setup(NULL);
            fake->fail_in = names[i];
            fake->fail_after = after;
            fake->fail_result = CUDA_ERROR_INVALID_VALUE;
            bool told = scenario(first);
            if (fake->fail_in) { /* not called so often */
                fake->fail_in = NULL;
                break;
            }
            failures++;
            closing += !told;
            if (told != (*first != 0)) fail_msg("%s failed at call %d: \"%s\"", names[i], after, first);
            if (told && !strstr(first, "CUDA_ERROR_INVALID_VALUE")) fail_msg("%s: %s", names[i], first);
            assert_int_equal(fake->events + fake->pinned + fake->modules + fake->streams + fake->graphs, 0);
            if (!strcmp(names[i], "cuDevicePrimaryCtxRelease_v2")) { /* the test does it */
                void *lib = dlopen(library, RTLD_NOW);
                CUresult (*release)(CUdevice) = (CUresult(*)(CUdevice))dlsym(lib, "cuDevicePrimaryCtxRelease_v2");
                release(100);
            }
            assert_int_equal(fake->contexts, 0);
        }
    print_message("%d failures, %d of them on the way out\n", failures, closing);
    assert_true(failures - closing > 40);
    setup(NULL);
    scenario(first);
    assert_string_equal(first, "");
}

int main(void) {
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    while (n > 0 && folder[n] != '/') n--;
    folder[n > 0 ? n : 0] = 0;
    path_of(library, "libcuda.so.1");
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    fake = lib ? dlsym(lib, "fake") : NULL;
    if (!fake) return fprintf(stderr, "%s\n", dlerror()), 1;
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(opens_and_describes),
                                       TEST(no_driver),
                                       TEST(driver_without_a_needed_function),
                                       TEST(driver_without_optional_functions),
                                       TEST(driver_too_old),
                                       TEST(no_gpu),
                                       TEST(peers),
                                       TEST(parts_of_a_gpu),
                                       TEST(gpu_of_each_rank),
                                       TEST(no_such_ordinal),
                                       TEST(wrong_chip),
                                       TEST(memory_is_zeroed_and_counted),
                                       TEST(memory_is_refused_with_the_numbers),
                                       TEST(order_on_the_stream),
                                       TEST(replies),
                                       TEST(couriers),
                                       TEST(long_copies),
                                       TEST(kernels_are_found_once),
                                       TEST(shared_memory),
                                       TEST(a_refused_launch_is_reported),
                                       TEST(a_crash_is_reported),
                                       TEST(recordings),
                                       TEST(stamps_of_a_recording),
                                       TEST(a_recording_that_fails),
                                       TEST(a_recording_without_room),
                                       TEST(another_thread),
                                       TEST(every_call_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
