/* tests/unit/device/test_cublas.c: how often the library is asked, and whose choice runs. */
#include "unit.h"

#include "device/cublas.h"
#include "device/gpu_internal.h"
#include "fake_cublas.h"
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fake_cublas *seen;

static CUresult enter(CUcontext c) {
    (void)c;
    return CUDA_SUCCESS;
}
static status take(device *d, void **out, u64 bytes, const char *what, err *e) {
    (void)d, (void)bytes, (void)what, (void)e;
    *out = malloc(1);
    return ST_OK;
}
static void give(device *d, void *p) {
    (void)d;
    free(p);
}

static cublas *open_fake(gpu *g) {
    cublas *c;
    err e = {0};
    *g = (gpu){.dev = {.alloc = take, .release = give}, .cu = {.cuCtxSetCurrent = enter}};
    if (cublas_open(&c, g, &e) != ST_OK) fail_msg("%s", e.text);
    const bool refuses = seen->refuses, wants_room = seen->wants_room;
    *seen = (fake_cublas){.open = seen->open, .refuses = refuses, .wants_room = wants_room};
    return c;
}

/* So many rows; whose choice it ran as. */
static i64 run(cublas *c, i64 n, i64 rows) {
    assert_true(cublas_multiply(
        c, &(cublas_product){
               .n = n, .rows = rows, .cols = 64, .w_stride = 64, .x_stride = 64, .y_stride = rows, .heads = 1}));
    return seen->run_as;
}

static void rows_run_as_their_class(void **state) {
    (void)state;
    static const struct {
        i64 n, as;
    } cases[] = {{1, 1},       {17, 17},     {31, 31},     {32, 32},     {33, 34},      {63, 64},
                 {64, 64},     {65, 68},     {128, 128},   {129, 136},   {1000, 1024},  {2137, 2176},
                 {4095, 4096}, {4097, 4352}, {8192, 8192}, {8193, 8704}, {65536, 65536}};
    gpu g;
    cublas *c = open_fake(&g);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const i64 as = run(c, cases[i].n, 128);
        if (as != cases[i].as)
            fail_msg("%lld rows run as %lld, not %lld", (long long)cases[i].n, (long long)as, (long long)cases[i].as);
        assert_true(as >= cases[i].n && (f64)as <= 1.0625 * (f64)cases[i].n + 1);
    }
    cublas_close(c);
    assert_int_equal(seen->open, 0);
}

/* As steps of prompts come: other rows each time, and more of them than are remembered. */
static void it_is_asked_once_a_class(void **state) {
    (void)state;
    enum { PRODUCTS = 10 };
    gpu g;
    cublas *c = open_fake(&g);
    for (i64 n = 4096; n < 8192; n += 7)
        for (i64 k = 0; k < PRODUCTS; k++) run(c, n, 128 + 8 * k);
    const i64 asked = seen->asked;
    assert_true(asked <= 17 * PRODUCTS);
    for (i64 n = 4099; n < 8192; n += 7)
        for (i64 k = 0; k < PRODUCTS; k++) run(c, n, 128 + 8 * k);
    assert_int_equal(seen->asked, asked);
    const i64 checked = seen->checked;
    for (int i = 0; i < 100; i++) run(c, 5003, 128);
    assert_true(seen->checked <= checked + 1); /* the same rows again: what is remembered */
    cublas_close(c);
    assert_int_equal(seen->open, 0);
}

/* What the library does not take for these rows is asked for again, for them. */
static void refused_choices_are_their_own(void **state) {
    (void)state;
    for (int room = 0; room < 2; room++) {
        gpu g;
        seen->refuses = !room, seen->wants_room = room;
        cublas *c = open_fake(&g);
        assert_int_equal(run(c, 5003, 128), 5003);
        assert_int_equal(run(c, 5005, 128), 5005);
        assert_int_equal(seen->asked, 3); /* the class, and both */
        cublas_close(c);
        assert_int_equal(seen->open, 0);
        seen->refuses = seen->wants_room = false;
    }
}

int main(int argc, char **argv) {
    static char path[4096];
    (void)argc;
    snprintf(path, sizeof path, "%s/libfake_cublas.so", dirname(argv[0]));
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 1;
    seen = dlsym(lib, "fake_cublas_seen");
    setenv("MOONLET_CUBLASLT", path, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_run_as_their_class),
                                       cmocka_unit_test(it_is_asked_once_a_class),
                                       cmocka_unit_test(refused_choices_are_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
