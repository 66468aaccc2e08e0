/* Drafts in FP8 with one scale a row, as Quark and compressed-tensors write them: nano's drafts, quantized here without
 * fc and lm_head. On ref they are the same bits as the draft whose float32 matrices have the same values; on cpu they
 * are as near as test_draft.c allows. What is wrong with a file is refused by name. */
#include "model/draft_util.h"

#include "draft_files.h"

enum { STEPS = STEPS_MOST };

static const char *const configs[] = {
    /* Llama's layout, as amd/kimi-k2.5-eagle3-fp8 */
    "{\"quant_method\":\"quark\",\"exclude\":[\"fc\",\"lm_head\"],\"quant_mode\":\"eager_mode\",\"layer_quant_config\":{},"
    "\"global_quant_config\":{\"weight\":{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_channel\",\"ch_axis\":0,"
    "\"is_dynamic\":false,\"symmetric\":null},\"input_tensors\":{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_channel\","
    "\"ch_axis\":1,\"is_dynamic\":true},\"output_tensors\":null,\"bias\":null},"
    "\"export\":{\"pack_method\":\"reorder\",\"weight_format\":\"real_quantized\",\"kv_cache_group\":[]}}",
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"quantization_status\":\"compressed\","
    "\"ignore\":[\"re:.*lm_head\",\"fc\"],\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{"
    "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\",\"symmetric\":true,\"dynamic\":false},"
    "\"input_activations\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"token\",\"dynamic\":true}}}}"};

static const char *folder(bool mla) { return mla ? "models/nano-eagle3-mla" : "models/nano-eagle3"; }

/* The matrix t becomes e4m3 with a scale tensor behind it (`plain`: float32 of the same values): float32 [rows, 1], or
 * bf16 [rows] for every other matrix. */
static void quantize(draft_files *f, int i, bool plain) {
    const draft_tensor t = f->t[i];
    const i64 rows = t.shape[0], cols = t.shape[1];
    const bool narrow = i % 2;
    char name[96];
    snprintf(name, sizeof name, "%.80s_scale", t.name);
    u8 *q = malloc((u64)(rows * cols));
    f32 *values = malloc((u64)(rows * cols) * sizeof *values);
    u8 *scale = plain ? malloc((u64)rows * 4)
                      : draft_tensor_add(f, name, narrow ? DT_BF16 : DT_F32, rows, narrow ? 0 : 1, NULL)->data;
    for (i64 r = 0; r < rows; r++) {
        f32 most = 0;
        for (i64 c = 0; c < cols; c++) most = fmaxf(most, fabsf(bf16_to_f32(((const bf16 *)t.data)[r * cols + c])));
        const f32 s = narrow ? bf16_to_f32(f32_to_bf16(most / 448)) : most / 448;
        for (i64 c = 0; c < cols; c++) {
            q[r * cols + c] = f32_to_f8_e4m3(bf16_to_f32(((const bf16 *)t.data)[r * cols + c]) / s);
            values[r * cols + c] = f8_e4m3_to_f32(q[r * cols + c]) * s;
        }
        if (narrow && !plain)
            ((bf16 *)scale)[r] = f32_to_bf16(s);
        else
            ((f32 *)(void *)scale)[r] = s;
    }
    free(t.data);
    f->t[i].type = plain ? DT_F32 : DT_F8_E4M3;
    f->t[i].data = plain ? (u8 *)values : q;
    f->t[i].bytes = (u64)(rows * cols) * (plain ? 4 : 1);
    free(plain ? (void *)q : (void *)values);
    if (plain) free(scale);
}

static void quantized(draft_files *f, bool mla, bool plain) {
    draft_files_read(f, folder(mla));
    for (int i = 0, n = f->n; i < n; i++)
        if (f->t[i].n_dims == 2 && strcmp(f->t[i].name, "fc.weight") && strcmp(f->t[i].name, "lm_head.weight"))
            quantize(f, i, plain);
}

static void write_fp8(const draft_files *f, bool mla, bool plain, const char *dir) {
    char path[64];
    buf text = {0};
    err e = {0};
    snprintf(path, sizeof path, "%s/config.json", folder(mla));
    assert_int_equal(file_read(path, 1 << 20, &text, &e), ST_OK);
    json_t *o = json_parse(text.data, text.len, path, &e), *q = json_parse(configs[mla], strlen(configs[mla]), "q", &e);
    assert_true(o && q);
    if (!plain) json_object_set(o, "quantization_config", q);
    char *config = json_to_text(o, &json_compact);
    draft_files_write(f, dir, config);
    free(config), json_decref(o), json_decref(q), buf_free(&text);
}

typedef struct {
    i32 ids[STEPS];
    f32 *logits; /* [STEPS, vocab]; owned */
    i64 vocab;
} guesses;

static void guess_all(guesses *g, const json_t *golden, const variant *v, const char *dir) {
    run r;
    run_open(&r, golden, v, dir, false);
    g->vocab = draft_of(&r)->c->vocab;
    g->logits = malloc((u64)(STEPS * g->vocab) * sizeof *g->logits);
    for (i64 s = 0; s < STEPS; s++) {
        guess(&r, r.n, s + 1, g->ids);
        memcpy(g->logits + s * g->vocab, draft_of(&r)->logits, (u64)g->vocab * sizeof *g->logits);
    }
    engine_close(r.g);
}

/* Mean difference of the log-probabilities of the likeliest tokens. */
static f64 apart(const guesses *a, const guesses *want) {
    f64 off = 0;
    i64 n = 0;
    for (i64 s = 0; s < STEPS && (!s || a->ids[s - 1] == want->ids[s - 1]); s++) {
        const f32 *x = a->logits + s * a->vocab, *y = want->logits + s * a->vocab;
        const f64 lx = log_sum_exp(x, a->vocab), ly = log_sum_exp(y, a->vocab);
        for (i64 k = 0; k < a->vocab; k++)
            if (y[k] - ly > -8) off += fabs((f64)x[k] - lx - ((f64)y[k] - ly)), n++;
    }
    return off / (f64)n;
}

static void check_fp8(const json_t *golden, const variant *v) {
    static const variant ref = {.device = "ref"};
    const bool mla = !strcmp(json_string_value(json_object_get(golden, "layout")), "mla");
    char dir[] = "/tmp/moonlet-fp8-XXXXXX", same[] = "/tmp/moonlet-fp8-XXXXXX";
    assert_true(mkdtemp(dir) && mkdtemp(same));
    draft_files f;
    quantized(&f, mla, false), write_fp8(&f, mla, false, dir), draft_files_free(&f);
    quantized(&f, mla, true), write_fp8(&f, mla, true, same), draft_files_free(&f);
    guesses got, want;
    guess_all(&got, golden, v, dir);
    guess_all(&want, golden, &ref, same);
    if (!strcmp(v->device, "ref")) {
        assert_memory_equal(got.logits, want.logits, (u64)(STEPS * got.vocab) * sizeof *got.logits);
        assert_memory_equal(got.ids, want.ids, sizeof got.ids);
    } else if (!(apart(&got, &want) <= v->mean)) {
        fail_msg("%s: log-probabilities are off by %g", v->device, apart(&got, &want));
    }
    assert_int_equal(got.ids[0], want.ids[0]);
    free(got.logits), free(want.logits);
    draft_files_remove(dir), draft_files_remove(same);
}

static void as_dequantized(void **state) {
    static const variant variants[] = {{"ref", 0, 0, 0}, {"cpu", 0.1, 0, 0}};
    (void)state;
    assert_int_equal(each_golden("tests/data/nano-eagle3/golden.jsonl", check_fp8, variants, COUNT_OF(variants)), 10);
}

/* ---- refusals ---- */

static draft_tensor *tensor(draft_files *f, const char *name) {
    int i = 0;
    while (i < f->n && strcmp(f->t[i].name, name)) i++;
    assert_true(i < f->n);
    return &f->t[i];
}

static void must_refuse(const draft_files *f, const char *says) {
    char dir[] = "/tmp/moonlet-fp8-XXXXXX";
    err e = {0};
    engine *g;
    assert_non_null(mkdtemp(dir));
    write_fp8(f, false, false, dir);
    const engine_options o = {
        .model_dir = "models/nano", .device = "cpu", .max_running = 1, .context = 256, .draft_dir = dir};
    assert_int_not_equal(engine_open(&g, &o, &e), ST_OK);
    if (!strstr(e.text, says)) fail_msg("\"%s\" does not say %s", e.text, says);
    draft_files_remove(dir);
}

static void bad_scales_are_refused(void **state) {
    static const char name[] = "midlayer.mlp.up_proj.weight_scale";
    draft_files f;
    (void)state;
    quantized(&f, false, false);
    draft_tensor *t = tensor(&f, name);
    snprintf(t->name, sizeof t->name, "midlayer.mlp.up_proj.other");
    must_refuse(&f, "tensor midlayer.mlp.up_proj.weight_scale is missing");
    snprintf(t->name, sizeof t->name, "%s", name);
    const draft_tensor whole = *t;
    t->n_dims = 1, t->shape[0] = 1, t->bytes = dtype_size(t->type); /* one scale for the matrix */
    must_refuse(&f, "tensor midlayer.mlp.up_proj.weight_scale has shape [1]");
    *t = whole;
    t->n_dims = 2, t->shape[0] /= 2, t->shape[1] = 2;
    must_refuse(&f, "tensor midlayer.mlp.up_proj.weight_scale has shape [128, 2], config.json asks for [256, 1]");
    *t = whole;
    memset(t->data + t->bytes - dtype_size(t->type), 0xff, dtype_size(t->type));
    must_refuse(&f, "tensor midlayer.mlp.up_proj.weight_scale holds NaN at element 255");
    draft_files_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_dequantized), cmocka_unit_test(bad_scales_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
