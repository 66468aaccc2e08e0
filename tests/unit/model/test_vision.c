/* The vision tower and its projector against PyTorch in float32, on the small model: tests/data/nano/vision.safetensors
 * (tools/nano/golden_vision.py; its README says that transformers' own class agrees). ref within 1e-4 of it (relative
 * Frobenius norm of an item), cpu and GPU within what bf16 rounding does. */
#include "vision_golden.h"

#include "kernels/backend.h"
#include <math.h>

typedef struct {
    vision_config config;
    checkpoint *ck;
    backend b;
    vision *v;
} tower;

static void tower_open(tower *t, const char *device, u32 isa, i64 items) {
    err e = {0};
    vision_limits l = {.items = items};
    for (i64 i = 0; i < items; i++) l.patches += vision_patches(&inputs[i % ITEMS]);
    const backend_options o = {.name = device, .act = DT_BF16, .isa = isa};
    if (vision_config_load(&t->config, "models/nano", &e) != ST_OK ||
        checkpoint_open(&t->ck, "models/nano", &e) != ST_OK || backend_open(&t->b, &o, &e) != ST_OK ||
        vision_open(&t->v, &t->config, t->ck, &t->b.ops, t->b.device, &e) != ST_OK ||
        vision_plan(t->v, &l, &e) != ST_OK || vision_load(t->v, &e) != ST_OK)
        fail_msg("%s", e.text);
}

static void tower_close(tower *t) {
    vision_close(t->v);
    backend_close(&t->b);
    checkpoint_close(t->ck);
}

/* The rows of n items, in one pass of so much work at a time. */
static f32 *tower_run(tower *t, const vision_input *items, i64 n, i64 work) {
    err e = {0};
    i64 tokens = 0;
    for (i64 i = 0; i < n; i++) tokens += vision_tokens(&items[i]);
    const i64 all = tokens * t->config.text_hidden;
    const u64 bytes = (u64)all * dtype_size(t->b.ops.act);
    device *dev = t->b.device;
    void *out, *host = malloc((size_t)bytes);
    f32 *wide = malloc((size_t)all * 4);
    if (dev->alloc(dev, &out, bytes, "rows of a prompt", &e) != ST_OK || vision_begin(t->v, items, n, out, &e) != ST_OK)
        fail_msg("%s", e.text);
    while (!vision_advance(t->v, work)) continue;
    dev->read(dev, host, out, bytes);
    if (dev->finish(dev, &e) != ST_OK) fail_msg("%s", e.text);
    for (i64 k = 0; k < all; k++) wide[k] = t->b.ops.act == DT_F32 ? ((f32 *)host)[k] : bf16_to_f32(((bf16 *)host)[k]);
    dev->release(dev, out);
    free(host);
    return wide;
}

static f64 distance(const f32 *a, const f32 *b, i64 n) {
    f64 diff = 0, norm = 0;
    for (i64 k = 0; k < n; k++) {
        diff += ((f64)a[k] - (f64)b[k]) * ((f64)a[k] - (f64)b[k]);
        norm += (f64)b[k] * (f64)b[k];
    }
    return sqrt(diff / norm);
}

static void check_golden(const char *device, u32 isa, f64 bound) {
    tower t;
    tower_open(&t, device, isa, ITEMS);
    f32 *all = tower_run(&t, inputs, ITEMS, 1), *at = all;
    for (int i = 0; i < ITEMS; i++) {
        const i64 n = vision_tokens(&inputs[i]) * t.config.text_hidden;
        const f64 d = distance(at, media[i], n);
        print_message("%s, item %d, %d x %d x %d patches: %.2g\n", t.b.ops.name, i, inputs[i].t, inputs[i].h,
                      inputs[i].w, d);
        assert_true(d < bound);
        f32 *alone = tower_run(&t, &inputs[i], 1, VISION_ALL);
        assert_memory_equal(alone, at, (size_t)n * 4); /* an item's rows do not depend on its company */
        free(alone);
        at += n;
    }
    free(all);
    tower_close(&t);
}

static void test_ref(void **state) {
    (void)state;
    check_golden("ref", 0, 1e-4);
}

static void test_cpu(void **state) {
    (void)state;
    static const u32 levels[] = {0, ISA_AVX2, ISA_AVX2 | ISA_AVX512, ISA_ALL};
    for (size_t i = 0; i < COUNT_OF(levels); i++) check_golden("cpu", levels[i], 1e-2);
}

/* Where there is a GPU, or an emulated one. */
static void test_gpu(void **state) {
    (void)state;
    backend b;
    err e = {0};
    const status st = backend_open(&b, &(backend_options){.name = "cuda", .act = DT_BF16}, &e);
    backend_close(&b);
    if (st != ST_OK) skip();
    check_golden("cuda", 0, 1e-2);
}

static void test_beyond_the_limits(void **state) {
    (void)state;
    tower t;
    err e = {0};
    u8 out[4096];
    tower_open(&t, "ref", 0, 1);
    vision_input two[2] = {inputs[0], inputs[0]}, odd = inputs[0], frames = inputs[0];
    assert_int_equal(vision_begin(t.v, two, 2, out, &e), ST_LIMIT);
    assert_non_null(strstr(e.text, "2 items"));
    assert_int_equal(vision_begin(t.v, &inputs[2], 1, out, &e), ST_LIMIT);
    assert_non_null(strstr(e.text, "patches"));
    odd.w = 3;
    assert_int_equal(vision_begin(t.v, &odd, 1, out, &e), ST_INPUT);
    frames.t = 5;
    assert_int_equal(vision_begin(t.v, &frames, 1, out, &e), ST_INPUT);
    tower_close(&t);
}

/* A model whose pictures are to be prepared otherwise would see other pixels than it was trained on. */
static void test_preprocessor(void **state) {
    (void)state;
    static const struct {
        const char *json, *word; /* NULL: as it should be */
    } files[] = {{"{}", NULL},
                 {"{\"media_proc_cfg\": {\"in_patch_limit\": 16384, \"sample_fps\": 2, \"fixed_output_tokens\": null,"
                  " \"image_mean\": [0.5, 0.5, 0.5], \"timestamp_mode\": \"hh:mm:ss.fff\", \"other\": 1}}",
                  NULL},
                 {"{\"media_proc_cfg\": {\"in_patch_limit\": 4096}}", "in_patch_limit is 4096"},
                 {"{\"media_proc_cfg\": {\"sample_fps\": 1.0}}", "sample_fps is 1.0"},
                 {"{\"media_proc_cfg\": {\"image_std\": [0.5, 0.5]}}", "image_std is [0.5, 0.5]"},
                 {"{\"media_proc_cfg\": {\"fixed_output_tokens\": 64}}", "fixed_output_tokens is 64"},
                 {"{\"media_proc_cfg\": {\"timestamp_mode\": \"s\"}}", "timestamp_mode is \"s\""},
                 {"[", "preprocessor_config.json"}};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        err e = {0};
        const status st = vision_preprocessor_parse(files[i].json, strlen(files[i].json), &e);
        if (files[i].word ? st == ST_OK || !strstr(e.text, files[i].word) : st != ST_OK)
            fail_msg("%s: %s", files[i].json, e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_preprocessor), cmocka_unit_test(test_ref),
                                       cmocka_unit_test(test_cpu), cmocka_unit_test(test_gpu),
                                       cmocka_unit_test(test_beyond_the_limits)};
    return cmocka_run_group_tests(tests, read_golden, free_golden);
}
