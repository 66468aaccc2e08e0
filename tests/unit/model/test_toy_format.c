/* A weight format is data (format/weights.h): one that is added here runs a model on ref, to the bit as the same values
 * in bf16 do, and on cpu; what is wrong with its tensors is refused by name. */
#include "unit.h"

#include "random_model.h"
#include "runtime/engine.h"

enum { VOCAB = 61, TOKENS = 5 };

/* w = (u - 128) * scale[row]: exact in bf16 where scales are powers of two. */
static void toy_cols(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *u = (const u8 *)w->data + row * w->cols;
    for (i64 c = 0; c < n; c++) out[c] = (f32)(u[c0 + c] - 128) * ((const f32 *)w->scale)[row];
}
static const weight_layout toy = {.name = "toy_u8",
                                  .origin = "this test",
                                  .bits = 8,
                                  .data = ".toy",
                                  .data_type = DT_U8,
                                  .per_element = 1,
                                  .scale = ".toy_scale",
                                  .scale_type = DT_F32,
                                  .scale_rows = 1,
                                  .cols_multiple = 4,
                                  .cols_f32 = toy_cols};
static weight_format toy_format;
static bool in_bf16;     /* the same values */
static i64 scales_short; /* what is wrong */

static void write_toy(random_writer *w, const char *name, i64 rows, i64 cols) {
    u8 *data =
        in_bf16 ? random_add(w, name, ".weight", DT_BF16, rows, cols) : random_add(w, name, ".toy", DT_U8, rows, cols);
    f32 *scale = in_bf16 ? NULL : (f32 *)(void *)random_add(w, name, ".toy_scale", DT_F32, 0, rows - scales_short);
    for (i64 r = 0; r < rows; r++) {
        f32 s = 0x1p-9f / (f32)(1 << r % 3);
        if (scale && r < rows - scales_short) scale[r] = s;
        for (i64 c = 0; c < cols; c++) {
            u8 u = (u8)random_bits(w);
            if (in_bf16)
                random_put(data, DT_BF16, (u64)(r * cols + c), (f32)(u - 128) * s);
            else
                data[r * cols + c] = u;
        }
    }
}

static random_model model_of(void) {
    return (random_model){.name = "toy",
                          .vocab = VOCAB,
                          .hidden = 48,
                          .layers = 2,
                          .dense = 1,
                          .heads = 3,
                          .q_lora = 24,
                          .kv_lora = 40,
                          .nope = 12,
                          .rope = 6,
                          .v = 10,
                          .inter = 56,
                          .expert_inter = 24,
                          .experts = 5,
                          .top_k = 2,
                          .shared = 1,
                          .context = 512,
                          .attn = WF_BF16,
                          .mlp = toy_format,
                          .expert = {toy_format, toy_format},
                          .embed = WF_BF16,
                          .router = WF_BF16};
}

static int setup(void **state) {
    (void)state;
    random_added = write_toy;
    toy_format = weight_layout_add(&toy);
    return 0;
}

static status keep(void *ud, i64 index, f32 *logits, err *e) {
    (void)e;
    memcpy((f32 *)ud + index * VOCAB, logits, VOCAB * sizeof *logits);
    return ST_OK;
}

static status logits_of(const char *device, bool bf16_twin, f32 out[TOKENS * VOCAB], err *e) {
    static const i32 ids[TOKENS] = {3, 1, 4, 1, 5};
    char dir[64];
    engine *g;
    seq *s;
    random_model m = model_of();
    in_bf16 = bf16_twin;
    assert_true(random_model_write(&m, 7, dir, NULL));
    const engine_options o = {.model_dir = dir, .device = device, .context = 64};
    status st = engine_open(&g, &o, e);
    if (st == ST_OK) {
        assert_int_equal(seq_open(&s, g, NULL), ST_OK);
        st = seq_run(s, ids, TOKENS, false, LOGITS_ALL, keep, out, e);
        seq_close(s);
        engine_close(g);
    }
    random_model_remove(dir);
    return st;
}

static void runs_on_ref_and_cpu(void **state) {
    (void)state;
    f32 toys[TOKENS * VOCAB], twins[TOKENS * VOCAB], cpu[TOKENS * VOCAB];
    err e = {0};
    if (logits_of("ref", false, toys, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(logits_of("ref", true, twins, NULL), ST_OK);
    assert_memory_equal(toys, twins, sizeof toys);
    assert_int_equal(logits_of("cpu", false, cpu, NULL), ST_OK);
    f64 far = 0, all = 0;
    for (int i = 0; i < TOKENS * VOCAB; i++) {
        far += ((f64)cpu[i] - toys[i]) * ((f64)cpu[i] - toys[i]);
        all += (f64)toys[i] * toys[i];
    }
    assert_true(all > 0 && sqrt(far / all) < 0.04);
}

static void its_tensors_are_checked(void **state) {
    (void)state;
    f32 unused[TOKENS * VOCAB];
    err e = {0};
    scales_short = 1;
    assert_int_equal(logits_of("ref", false, unused, &e), ST_FORMAT);
    scales_short = 0;
    if (!strstr(e.text, "toy_scale") || !strstr(e.text, "asks for")) fail_msg("%s", e.text);
}

static void sizes_follow_from_it(void **state) {
    (void)state;
    const weight_view w = {.format = toy_format, .rows = 6, .cols = 8};
    assert_int_equal(weight_data_bytes(&w), 48);
    assert_int_equal(weight_scale_bytes(&w), 24);
    assert_string_equal(weight_format_name(toy_format), "toy_u8");
    assert_int_equal(weight_formats(), WF_COUNT + 1);
    f32 scale[6];
    u8 data[6 * 8];
    const weight_view v = {.format = toy_format, .rows = 6, .cols = 8, .data = data, .scale = scale},
                      part = weight_rows(&v, 2, 3);
    assert_ptr_equal(part.data, data + 16);
    assert_ptr_equal(part.scale, scale + 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_on_ref_and_cpu),
        cmocka_unit_test(its_tensors_are_checked),
        cmocka_unit_test(sizes_follow_from_it),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
