/* Odd but legal shapes and mixtures of formats: every level of the cpu backend against ref, decode form against
 * prefill form, and the same bits whatever the chunks. */
#include "unit.h"

#include "model_logits.h"

#define BF WF_BF16
#define BASE                                                                                                           \
    .vocab = 61, .hidden = 48, .layers = 2, .dense = 1, .heads = 3, .q_lora = 24, .kv_lora = 40, .nope = 12,           \
    .rope = 6, .v = 10, .inter = 56, .expert_inter = 24, .experts = 5, .top_k = 2, .shared = 1, .context = 512,        \
    .attn = BF, .mlp = BF, .expert = {BF, BF}, .embed = BF, .router = BF
#define INT4_BASE .hidden = 64, .expert_inter = 32

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const random_model models[] = {
    {BASE, .name = "plain"},
    {BASE, .name = "no q_lora", .q_lora = 0},
    {BASE, .name = "no shared expert", .shared = 0},
    {BASE, .name = "all dense", .dense = 2},
    {BASE, .name = "no dense", .dense = 0},
    {BASE, .name = "one expert", .experts = 1, .top_k = 1},
    {BASE, .name = "every expert", .top_k = 5},
    {BASE, .name = "top 1", .top_k = 1},
    {BASE, .name = "one head", .heads = 1},
    {BASE, .name = "five heads, odd widths", .heads = 5, .kv_lora = 37, .nope = 7, .v = 9, .rope = 2},
    {BASE, .name = "width one", .kv_lora = 1, .nope = 1, .v = 1, .rope = 2, .q_lora = 1},
    {BASE, .name = "vocabulary of one", .vocab = 1},
    {BASE, .name = "odd hidden", .hidden = 53, .inter = 71, .expert_inter = 19, .q_lora = 13},
    {BASE, .name = "tied", .tie = true},
    {BASE, .name = "equal router logits", .equal_logits = true, .experts = 9, .top_k = 4},
    {BASE, .name = "float32 norms", .norm_f32 = true},
    {BASE, .name = "float32 all", .norm_f32 = true, .attn = WF_F32, .mlp = WF_F32, .expert = {WF_F32, WF_F32},
     .embed = WF_F32, .router = WF_F32},
    {BASE, .name = "float32 embedding", .embed = WF_F32, .tie = true},
    {BASE, .name = "float32 matrices, bf16 embedding", .attn = WF_F32, .mlp = WF_F32, .expert = {WF_F32, WF_F32}},
    {BASE, .name = "fp8 experts", .norm_f32 = true, .expert = {WF_FP8_BLOCK, WF_FP8_BLOCK}},
    {BASE, .name = "fp8 all, odd", .attn = WF_FP8_BLOCK, .mlp = WF_FP8_BLOCK, .expert = {WF_FP8_BLOCK, WF_FP8_BLOCK},
     .hidden = 197, .kv_lora = 133, .v = 11, .inter = 131, .expert_inter = 139, .router = WF_FP8_BLOCK},
    {BASE, .name = "fp8 everywhere", .attn = WF_FP8_BLOCK, .mlp = WF_FP8_BLOCK, .expert = {WF_FP8_BLOCK, WF_FP8_BLOCK},
     .embed = WF_FP8_BLOCK, .hidden = 160, .nope = 80, .v = 72},
    {BASE, .name = "fp8 with a scale a row, odd", .attn = WF_FP8_ROW, .mlp = WF_FP8_ROW, .hidden = 197, .kv_lora = 133,
     .v = 11, .inter = 131, .expert_inter = 139, .expert = {WF_FP8_ROW, WF_FP8_ROW}, .router = WF_FP8_ROW},
    {BASE, .name = "fp8 of both kinds", .attn = WF_FP8_ROW, .mlp = WF_FP8_BLOCK, .expert = {WF_FP8_BLOCK, WF_FP8_ROW},
     .embed = WF_FP8_ROW, .hidden = 160, .nope = 80, .v = 72},
    {BASE, .name = "int4 experts", INT4_BASE, .expert = {WF_INT4_GROUP, WF_INT4_GROUP}},
    {BASE, .name = "int4 all", INT4_BASE, .attn = WF_INT4_GROUP, .mlp = WF_INT4_GROUP,
     .expert = {WF_INT4_GROUP, WF_INT4_GROUP}, .q_lora = 32, .kv_lora = 96, .v = 32, .inter = 96},
    {BASE, .name = "int4 then bf16", .hidden = 32, .expert_inter = 512, .layers = 3, .dense = 0,
     .expert = {WF_BF16, WF_INT4_GROUP}},
    {BASE, .name = "bf16 then int4", .hidden = 32, .expert_inter = 512, .layers = 2, .dense = 0,
     .expert = {WF_BF16, WF_INT4_GROUP}},
    {BASE, .name = "mxfp4, names of both writers", INT4_BASE, .layers = 3, .attn = WF_MXFP4, .mlp = WF_MXFP4_PACKED,
     .expert = {WF_MXFP4, WF_MXFP4_PACKED}, .q_lora = 32, .kv_lora = 96, .v = 32, .inter = 96},
    {BASE, .name = "mxfp4 everywhere", INT4_BASE, .attn = WF_MXFP4, .mlp = WF_MXFP4, .expert = {WF_MXFP4, WF_MXFP4},
     .q_lora = 32, .kv_lora = 96, .v = 32, .inter = 96, .embed = WF_MXFP4, .router = WF_MXFP4},
    {BASE, .name = "nvfp4, names of both writers", INT4_BASE, .layers = 3, .attn = WF_NVFP4, .mlp = WF_NVFP4_PACKED,
     .expert = {WF_NVFP4, WF_NVFP4_PACKED}, .q_lora = 16, .kv_lora = 48, .v = 16, .inter = 48},
    {BASE, .name = "nvfp4 everywhere, one group a row", .attn = WF_NVFP4, .mlp = WF_NVFP4,
     .expert = {WF_NVFP4, WF_NVFP4}, .hidden = 48, .q_lora = 16, .kv_lora = 80, .v = 16, .inter = 16,
     .expert_inter = 16, .embed = WF_NVFP4, .router = WF_NVFP4},
    {BASE, .name = "nvfp4 and mxfp4", INT4_BASE, .layers = 3, .attn = WF_NVFP4, .mlp = WF_MXFP4,
     .expert = {WF_MXFP4_PACKED, WF_NVFP4}, .q_lora = 32, .kv_lora = 96, .v = 32, .inter = 96},
    {BASE, .name = "int8 with a scale a row, odd", .attn = WF_INT8_ROW, .mlp = WF_INT8_ROW, .hidden = 197,
     .kv_lora = 133, .v = 11, .inter = 131, .expert_inter = 139, .expert = {WF_INT8_ROW, WF_INT8_ROW},
     .router = WF_INT8_ROW},
    {BASE, .name = "int8 and fp8", .attn = WF_INT8_ROW, .mlp = WF_FP8_ROW, .expert = {WF_FP8_ROW, WF_INT8_ROW},
     .embed = WF_INT8_ROW, .hidden = 53},
    {BASE, .name = "w4afp8", .attn = WF_FP8_BLOCK, .mlp = WF_FP8_BLOCK, .expert = {WF_INT4_GROUP128, WF_INT4_GROUP128},
     .hidden = 128, .expert_inter = 256},
    {BASE, .name = "int4 in groups of 128 everywhere", .attn = WF_INT4_GROUP128, .mlp = WF_INT4_GROUP128,
     .expert = {WF_INT4_GROUP128, WF_INT8_ROW}, .hidden = 256, .expert_inter = 128, .inter = 128, .q_lora = 128,
     .kv_lora = 128, .v = 128, .embed = WF_INT4_GROUP128, .router = WF_INT4_GROUP128},
    {BASE, .name = "wide latent", .kv_lora = 8200, .heads = 1, .nope = 4, .v = 4, .layers = 1, .dense = 0},
};
#pragma GCC diagnostic pop

static void one_model(const random_model *m) {
    static const char *const masks[] = {"none", "avx2", "avxvnni", "avx512", "vnni", "bf16", "all"};
    char dir[64];
    assert_true(random_model_write(m, 11, dir, NULL));
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
    f32 *other = logits_of(dir, m, (engine_options){.device = "ref"}, true);
    near(m, "ref in decode form", other, ref, 1e-4);
    free(other);
    other = logits_of(dir, m, (engine_options){.device = "ref", .chunk = 7, .threads = 1}, false);
    assert_memory_equal(other, ref, TOKENS * (size_t)m->vocab * sizeof *ref);
    free(other);
    bool exact = m->embed == WF_F32;
    for (size_t i = 0; i < COUNT_OF(masks); i++) {
        bool quantised = m->expert[0] > WF_BF16 || m->expert[1] > WF_BF16;
        if (!quantised && (i == 2 || i == 4 || i == 5)) continue; /* these differ in these alone */
        engine_options o = {.cpu_mask = masks[i], .chunk = 64};   /* a workspace without slack */
        f32 *cpu = logits_of(dir, m, o, false);
        near(m, masks[i], cpu, ref, exact ? 1e-4 : 0.04);
        o.chunk = 7;
        o.threads = 1;
        f32 *chunked = logits_of(dir, m, o, false);
        if (memcmp(chunked, cpu, TOKENS * (size_t)m->vocab * sizeof *cpu))
            fail_msg("%s, %s: chunks change the result", m->name, masks[i]);
        free(chunked);
        free(cpu);
        if (i > 0 && i + 1 < COUNT_OF(masks)) continue; /* both ends of the levels */
        f32 *decoded = logits_of(dir, m, o, true);
        near(m, "decode form", decoded, ref, exact ? 1e-4 : 0.04);
        free(decoded);
        o.kv_dtype = "fp8_e4m3";
        decoded = logits_of(dir, m, o, true);
        near(m, "fp8 KV", decoded, ref, 0.25);
        free(decoded);
    }
    free(ref);
    random_model_remove(dir);
}

static void odd_models(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(models); i++) one_model(&models[i]);
}

/* Where a NaN or an infinity goes: part of a tensor's name, and the element. */
static const char *poison_name;
static u64 poison_at;
static f32 poison_value;

static void poison(const char *name, dtype t, u8 *data, u64 bytes) {
    if (strstr(name, poison_name) && bytes > poison_at * dtype_size(t)) random_put(data, t, poison_at, poison_value);
}

/* Logits of one token alone; the error's text in *e. */
static status one_token(seq *s, i32 id, bool absorbed, table *t, err *e) {
    seq_truncate(s, 0);
    return seq_run(s, &id, 1, absorbed, LOGITS_LAST, keep, t, e);
}

/* Runs every token alone on a model with one bad value: some requests fail and name the place, the others give the bits
 * that they give on a fresh engine. */
static void poisoned(const char *tensor, u64 at, f32 value, const char *place, const char *device, const char *mask) {
    random_model m = models[0];
    m.experts = 9;
    m.top_k = 1;
    m.shared = 0;
    char dir[64];
    poison_name = tensor;
    poison_at = at;
    poison_value = value;
    assert_true(random_model_write(&m, 5, dir, poison));
    engine *g, *h;
    seq *s, *fresh;
    err e = {0};
    engine_options o = {.model_dir = dir, .device = device, .cpu_mask = mask};
    assert_int_equal(engine_open(&g, &o, &e), ST_OK);
    assert_int_equal(engine_open(&h, &o, &e), ST_OK);
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    int failures = 0;
    f32 a[64], b[64];
    for (i32 id = 0; id < m.vocab; id++) {
        status st = one_token(s, id, id % 2, &(table){a, m.vocab}, &e);
        if (st != ST_OK) {
            failures++;
            assert_int_equal(st, ST_NUMERIC);
            if (!strstr(e.text, place)) fail_msg("%s, %s: \"%s\" does not name %s", tensor, mask, e.text, place);
            assert_int_equal(seq_len(s), 0);
            continue;
        }
        assert_int_equal(seq_open(&fresh, h, &e), ST_OK);
        assert_int_equal(one_token(fresh, id, id % 2, &(table){b, m.vocab}, &e), ST_OK);
        assert_memory_equal(a, b, sizeof(f32) * (size_t)m.vocab);
        seq_close(fresh);
    }
    if (failures == 0 || failures == m.vocab) fail_msg("%s, %s: %d failures", tensor, mask, failures);
    seq_close(s);
    engine_close(g);
    engine_close(h);
    random_model_remove(dir);
}

static void a_bad_weight_fails_its_request_alone(void **state) {
    (void)state;
    static const char *const masks[] = {"none", "avx2", "avx512", "bf16", "all"};
    for (size_t i = 0; i <= COUNT_OF(masks); i++) {
        const char *mask = i ? masks[i - 1] : NULL, *device = i ? "cpu" : "ref";
        poisoned("embed_tokens", 7 * 48 + 1, NAN, "embedding of token 7", device, mask);
        poisoned("layers.1.mlp.experts.3.down_proj", 5, NAN, "layer 1", device, mask);
        poisoned("layers.1.mlp.experts.3.up_proj", 5, INFINITY, "layer 1", device, mask);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(odd_models),
                                       cmocka_unit_test(a_bad_weight_fails_its_request_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
