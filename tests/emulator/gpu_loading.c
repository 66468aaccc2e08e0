/* Weights on one, two and four emulated GPUs (EMU_GPUS=4): the disk is asked for every byte once, whatever number of
 * ranks and whatever the GPUs make of them; a disk that fails half-way is an error that names the file; the host reads
 * nothing ahead. */
#include "unit.h"

#include "base/log.h"
#include "counted_reads.h"
#include "random_model.h"
#include "runtime/engine_internal.h"

static const random_model MODEL = {.name = "loaded",
                                   .vocab = 157,
                                   .hidden = 128,
                                   .layers = 3,
                                   .dense = 1,
                                   .heads = 4,
                                   .q_lora = 32,
                                   .kv_lora = 64,
                                   .nope = 16,
                                   .rope = 16,
                                   .v = 16,
                                   .inter = 512,
                                   .expert_inter = 512,
                                   .experts = 6,
                                   .top_k = 2,
                                   .shared = 1,
                                   .context = 512,
                                   .attn = WF_BF16,
                                   .mlp = WF_BF16,
                                   .expert = {WF_INT4_GROUP, WF_INT4_GROUP},
                                   .embed = WF_BF16,
                                   .router = WF_BF16};

static status open_model(const char *dir, engine_options o, weight_reads *reads, err *e) {
    engine *g;
    o.model_dir = dir;
    disk_reset();
    disk.us = 200; /* ranks wait for it */
    status st = engine_open(&g, &o, e);
    if (st == ST_OK) *reads = g->reads;
    if (st == ST_OK) engine_close(g);
    return st;
}

/* Of all tensors, but for those of layers from `layers` on. */
static u64 bytes_of_layers(const char *dir, int layers) {
    checkpoint *ck;
    err e = {0};
    u64 sum = 0;
    if (checkpoint_open(&ck, dir, &e) != ST_OK) fail_msg("%s", e.text);
    for (u64 i = 0; i < checkpoint_n_tensors(ck); i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        const char *layer = strstr(t->name, "model.layers.");
        if (!layer || atoi(layer + 13) < layers) sum += t->bytes;
    }
    checkpoint_close(ck);
    return sum;
}

static void loads_once(const char *dir, engine_options o, int layers) {
    weight_reads reads;
    err e = {0};
    const u64 needed = bytes_of_layers(dir, layers);
    for (o.tp = 1; o.tp <= 4; o.tp *= 2) {
        if (open_model(dir, o, &reads, &e) != ST_OK) fail_msg("%lld ranks: %s", (long long)o.tp, e.text);
        bool copied = !strcmp(o.device, "cuda");
        assert_int_equal(reads.bytes, copied ? needed : 0);
        assert_int_equal(disk.bytes, copied ? needed : 0);
    }
}

static void every_byte_once_on_gpus(void **state) {
    (void)state;
    static const weight_format formats[] = {WF_INT4_GROUP, WF_BF16,         WF_FP8_BLOCK, WF_INT4_ROW,     WF_MXFP4,
                                            WF_NVFP4,      WF_NVFP4_PACKED, WF_INT8_ROW,  WF_INT4_GROUP128};
    static const weight_format dense[] = {WF_FP8_ROW,      WF_MXFP4_PACKED, WF_NVFP4,
                                          WF_NVFP4_PACKED, WF_INT8_ROW,     WF_INT4_GROUP128}; /* become bf16 */
    static const char *const two[] = {"num_hidden_layers=2"};
    char dir[64];
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        random_model m = MODEL;
        m.expert[0] = m.expert[1] = formats[f];
        m.tie = f == 1 || formats[f] == WF_FP8_BLOCK;
        if (formats[f] == WF_FP8_BLOCK) m.mlp = formats[f]; /* becomes bf16 */
        assert_true(random_model_write(&m, 7, dir, NULL));
        loads_once(dir, (engine_options){.device = "cuda"}, 3);
        if (formats[f] == WF_INT4_GROUP) {
            loads_once(dir, (engine_options){.device = "cuda", .moe_format = "w4a8", .verify = true}, 3);
            loads_once(dir, (engine_options){.device = "cuda", .overrides = two, .n_overrides = 1}, 2);
            loads_once(dir, (engine_options){.device = "cpu"}, 3);
        }
        random_model_remove(dir);
    }
    for (size_t f = 0; f < COUNT_OF(dense); f++) {
        random_model m = MODEL;
        m.attn = m.mlp = dense[f];
        if (dense[f] == WF_MXFP4_PACKED || dense[f] == WF_INT4_GROUP128)
            m.attn = WF_BF16; /* a rank's heads are no whole groups */
        assert_true(random_model_write(&m, 7, dir, NULL));
        loads_once(dir, (engine_options){.device = "cuda"}, 3);
        random_model_remove(dir);
    }
}

/* Weights in a format that was added, which no kernel knows, are refused by its name. */
static void a_format_without_a_kernel(void **state) {
    (void)state;
    static weight_layout added;
    added = *weight_layout_of(WF_BF16);
    added.name = "added";
    backend b;
    err e = {0};
    op_weight *w;
    static bf16 data[16 * 16];
    weight_view v = {.format = weight_layout_add(&added), .rows = 16, .cols = 16, .data = data};
    const weight_desc d = {.kind = WK_LINEAR, .views = &v, .n_views = 1};
    if (backend_open(&b, &(backend_options){.name = "cuda", .act = DT_BF16}, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(b.ops.weight_prepare(&b.ops, &d, &w, &e), ST_UNSUPPORTED);
    if (!strstr(e.text, "no kernel of the GPU takes added:")) fail_msg("%s", e.text);
    backend_close(&b);
}

static void disk_breaks(void) { disk.error = EIO; }

static void a_disk_that_breaks(void **state) {
    (void)state;
    char dir[64];
    assert_true(random_model_write(&MODEL, 7, dir, NULL));
    for (i64 tp = 1; tp <= 4; tp *= 2)
        for (i64 after = 0; after < 60; after += 29) {
            engine *g;
            err e = {0};
            const engine_options o = {.model_dir = dir, .device = "cuda", .tp = tp};
            f64 start = now_s();
            disk_reset();
            disk.left = after;
            disk.wrong = disk_breaks;
            assert_int_equal(engine_open(&g, &o, &e), ST_IO);
            assert_null(g);
            if (!strstr(e.text, "model.safetensors: cannot read at byte ")) fail_msg("\"%s\"", e.text);
            assert_true(now_s() - start < 30);
        }
    random_model_remove(dir);
}

int main(void) {
    log_set_quiet(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_once_on_gpus),
        cmocka_unit_test(a_disk_that_breaks),
        cmocka_unit_test(a_format_without_a_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
