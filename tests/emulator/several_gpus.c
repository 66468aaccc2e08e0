/* Two emulated GPUs and the processor at once (EMU_GPUS=2): the same text from each, step by step in one thread and
 * side by side in three; and what belongs to one GPU is refused by the other. */
#include "unit.h"

#include "device/cuda_symbols.h"
#include "kernels/backend.h"
#include "runtime/engine.h"
#include "text/tokenizer.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { DEVICES = 3, TOKENS = 8, PROMPT_MOST = 64 };
static const char *const names[DEVICES] = {"cuda:0", "cuda:1", "cpu"};
static engine *engines[DEVICES];
static i32 prompt[PROMPT_MOST];
static i64 n_prompt;

static int setup(void **state) {
    (void)state;
    err e;
    tokenizer *tok;
    ids_buf ids = {0};
    for (int i = 0; i < DEVICES; i++) {
        const engine_options o = {.model_dir = "models/nano", .device = names[i], .context = 256};
        if (engine_open(&engines[i], &o, &e) != ST_OK) return fprintf(stderr, "%s\n", e.text), 1;
    }
    if (tokenizer_open(&tok, "models/nano", &e) != ST_OK) return fprintf(stderr, "%s\n", e.text), 1;
    const char *text = "The capital of France is";
    if (tokenizer_encode(tok, text, strlen(text), false, &ids, &e) != ST_OK) return 1;
    n_prompt = (i64)ids.len;
    memcpy(prompt, ids.data, ids.len * sizeof *prompt);
    ids_free(&ids);
    tokenizer_close(tok);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) engine_close(engines[i]);
    return 0;
}

typedef struct {
    engine *g;
    seq *s;
    i32 ids[TOKENS];
    err e;
    status st;
} timeline;

static status best(void *ud, i64 index, f32 *logits, err *e) {
    (void)index, (void)e;
    timeline *t = ud;
    i64 at = seq_len(t->s) - n_prompt, id = 0;
    for (i64 i = 1; i < engine_config(t->g)->vocab; i++)
        if (logits[i] > logits[id]) id = i;
    t->ids[at] = (i32)id;
    return ST_OK;
}

/* Token k of the answer; the first comes from the prompt. */
static void step(timeline *t, int k) {
    const i32 *ids = k ? &t->ids[k - 1] : prompt;
    if (t->st == ST_OK) t->st = seq_run(t->s, ids, k ? 1 : n_prompt, k > 0, LOGITS_LAST, best, t, &t->e);
}

static void begin(timeline t[DEVICES]) {
    for (int i = 0; i < DEVICES; i++) {
        t[i] = (timeline){.g = engines[i]};
        assert_int_equal(seq_open(&t[i].s, t[i].g, NULL), ST_OK);
    }
}

static void end(timeline t[DEVICES]) {
    for (int i = 0; i < DEVICES; i++)
        if (t[i].st != ST_OK) fail_msg("%s: %s", names[i], t[i].e.text);
    for (int i = 1; i < DEVICES; i++) assert_memory_equal(t[i].ids, t[0].ids, sizeof t[0].ids);
    for (int i = 0; i < DEVICES; i++) seq_close(t[i].s);
}

static void in_turns(void **state) {
    (void)state;
    timeline t[DEVICES];
    begin(t);
    for (int k = 0; k < TOKENS; k++)
        for (int i = 0; i < DEVICES; i++) step(&t[i], k);
    end(t);
}

static void *whole(void *ud) {
    for (int k = 0; k < TOKENS; k++) step(ud, k);
    return NULL;
}

static void side_by_side(void **state) {
    (void)state;
    timeline t[DEVICES];
    pthread_t threads[DEVICES];
    begin(t);
    for (int i = 0; i < DEVICES; i++) assert_int_equal(pthread_create(&threads[i], NULL, whole, &t[i]), 0);
    for (int i = 0; i < DEVICES; i++) pthread_join(threads[i], NULL);
    end(t);
}

/* Two tables of one GPU: each has its own state, and one ends before the other. */
static void two_backends_on_one_gpu(void **state) {
    (void)state;
    backend a, b;
    err e;
    const backend_options o = {.name = "cuda:1", .act = DT_BF16};
    assert_int_equal(backend_open(&a, &o, &e), ST_OK);
    assert_int_equal(backend_open(&b, &o, &e), ST_OK);
    assert_ptr_not_equal(a.ops.state, b.ops.state);
    backend_close(&a);
    in_turns(NULL);
    backend_close(&b);
}

static status gather_row(backend *by, void *from, void *to, err *e) {
    i32 *rows;
    status st = by->device->alloc(by->device, (void **)&rows, sizeof *rows, "a row's number", e);
    if (st != ST_OK) return st;
    by->ops.gather(&by->ops, &(gather_args){.x = from, .rows = rows, .out = to, .n = 1, .dim = 64});
    st = by->device->finish(by->device, e);
    by->device->release(by->device, rows);
    return st;
}

/* A kernel of one GPU on another one's memory: only where peer access was asked for. */
static void memory_of_another_gpu(void **state) {
    (void)state;
    backend a, b;
    err e;
    void *at_a, *at_b;
    CUcontext context;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    CUresult (*retain)(CUcontext *, CUdevice) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*set)(CUcontext) = dlsym(driver, "cuCtxSetCurrent");
    CUresult (*peer)(CUcontext, unsigned) = dlsym(driver, "cuCtxEnablePeerAccess");
    assert_int_equal(backend_open(&a, &(backend_options){.name = "cuda:0", .act = DT_BF16}, &e), ST_OK);
    assert_int_equal(backend_open(&b, &(backend_options){.name = "cuda:1", .act = DT_BF16}, &e), ST_OK);
    assert_int_equal(a.device->alloc(a.device, &at_a, 128, "a row", &e), ST_OK);
    assert_int_equal(b.device->alloc(b.device, &at_b, 128, "a row", &e), ST_OK);
    assert_int_equal(gather_row(&b, at_b, at_b, &e), ST_OK);
    assert_int_equal(gather_row(&b, at_a, at_b, &e), ST_DEVICE);
    assert_non_null(strstr(e.text, "GPU 1"));
    retain(&context, 1), set(context), retain(&context, 0);
    assert_int_equal(peer(context, 0), CUDA_SUCCESS);
    assert_int_equal(gather_row(&b, at_a, at_b, &e), ST_OK);
    assert_int_equal(gather_row(&a, at_b, at_a, &e), ST_DEVICE); /* not the other way round */
    a.device->release(a.device, at_a), b.device->release(b.device, at_b);
    backend_close(&a), backend_close(&b);
    dlclose(driver);
}

/* A format that has no kernel there (weight_layout_add) is refused by name. */
static void a_format_without_kernels(void **state) {
    (void)state;
    static const weight_layout odd = {
        .name = "odd_u8", .bits = 8, .data = ".odd", .data_type = DT_U8, .per_element = 1};
    const u8 data[64] = {0};
    const weight_view v = {.format = weight_layout_add(&odd), .rows = 8, .cols = 8, .data = data};
    backend gpu;
    op_weight *w;
    err e;
    assert_int_equal(backend_format_speed("cuda", v.format, true), FORMAT_REFUSED);
    assert_int_equal(backend_open(&gpu, &(backend_options){.name = "cuda:0", .act = DT_BF16}, &e), ST_OK);
    const weight_desc d = {.kind = WK_LINEAR, .views = &v, .n_views = 1};
    assert_int_equal(gpu.ops.weight_prepare(&gpu.ops, &d, &w, &e), ST_UNSUPPORTED);
    assert_null(w);
    assert_non_null(strstr(e.text, "odd_u8"));
    backend_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_turns),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(two_backends_on_one_gpu),
        cmocka_unit_test(memory_of_another_gpu),
        cmocka_unit_test(a_format_without_kernels),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
