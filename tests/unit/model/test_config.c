/* config.json of every variant, and YaRN's numbers. Hostile files are in tests/e2e/test_bad_checkpoints.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "unit.h"
#include "base/buf.h"
#include "base/file.h"
#include "model/config.h"

static bool near(f64 a, f64 b) { return fabs(a - b) <= 1e-9 * fabs(b); }

#define DIMS_REST                                                                                                      \
    "\"vocab_size\":163840,\"hidden_size\":7168,\"num_hidden_layers\":61,\"first_k_dense_replace\":1,"                 \
    "\"num_attention_heads\":64,\"num_key_value_heads\":64,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"             \
    "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"intermediate_size\":18432,\"moe_intermediate_size\":2048,"           \
    "\"n_routed_experts\":384,\"num_experts_per_tok\":8,\"max_position_embeddings\":131072,"                           \
    "\"routed_scaling_factor\":2.827,\"norm_topk_prob\":true,\"rms_norm_eps\":1e-06"
#define DIMS "\"q_lora_rank\":1536,\"n_shared_experts\":1,\"rope_theta\":50000.0," DIMS_REST
#define K2_ROPE                                                                                                        \
    ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":32.0,\"beta_fast\":1.0,\"beta_slow\":1.0,"                        \
    "\"mscale\":1.0,\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096}"
#define FP8                                                                                                            \
    ",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\","           \
    "\"weight_block_size\":[128,128]}"
#define K2(rest) "{\"model_type\":\"kimi_k2\"," DIMS rest "}"

static status parse(model_config *c, const char *json, const char *generation, err *e) {
    return model_config_parse(c, json, strlen(json), generation, generation ? strlen(generation) : 0, e);
}

static void expect_ok(model_config *c, const char *json, const char *generation) {
    err e = {0};
    if (parse(c, json, generation, &e) != ST_OK) fail_msg("%s", e.text);
}

static void expect_error(const char *json, const char *generation, const char *part) {
    model_config c;
    err e = {0};
    assert_int_not_equal(parse(&c, json, generation, &e), ST_OK);
    if (!strstr(e.text, part)) fail_msg("\"%s\" is not in: %s", part, e.text);
    assert_int_equal(parse(&c, json, generation, NULL), e.code);
}

/* Values computed with 50 decimal digits from the formulas of YaRN, section 3.4, as DeepSeek-V3 applies them.
 */
static const f64 inv_freq_k25[32] = {
    1.0000000000000000e+00, 7.1311108491193198e-01, 5.0852741942427271e-01, 3.6263653977310822e-01,
    2.5860013630631018e-01, 1.8441062375976636e-01, 1.3150525997861309e-01, 9.3777858614974452e-02,
    6.6874030497642206e-02, 4.3776655951338693e-02, 2.8427959083084944e-02, 1.8282955605182935e-02,
    1.1619159941997383e-02, 7.2741192706538100e-03, 4.4658487485676485e-03, 2.6702033909973845e-03,
    1.5372967345311055e-03, 8.3465504462425168e-04, 4.0864598749796997e-04, 1.5837499102694846e-04,
    1.8070233867863153e-05, 1.2886084078124232e-05, 9.1892093972175436e-06, 6.5529270827327235e-06,
    4.6729649413163140e-06, 3.3323430990574996e-06, 2.3763308026676832e-06, 1.6945878367999938e-06,
    1.2084293707790075e-06, 8.6174437963566148e-07, 6.1451946947874631e-07, 4.3822064557949370e-07};
static const f64 inv_freq_k2[32] = {
    1.0000000000000000e+00, 7.1311108491193198e-01, 5.0852741942427271e-01, 3.6263653977310822e-01,
    2.5860013630631018e-01, 1.8441062375976636e-01, 1.3150525997861309e-01, 9.3777858614974452e-02,
    6.6874030497642206e-02, 4.7688612440607257e-02, 3.4007278155466100e-02, 2.4250967020346278e-02,
    1.7293633402042617e-02, 1.2332281677399836e-02, 8.7942867664101386e-03, 6.2713033770213800e-03,
    4.4721359549995798e-03, 3.1891297227434091e-03, 2.2742037565104413e-03, 1.6217599081159522e-03,
    3.6140467735726306e-05, 2.5772168156248464e-05, 1.8378418794435087e-05, 1.3105854165465447e-05,
    9.3459298826326281e-06, 6.6646861981149991e-06, 4.7526616053353664e-06, 3.3891756735999876e-06,
    2.4168587415580150e-06, 1.7234887592713230e-06, 1.2290389389574926e-06, 8.7644129115898740e-07};

static void check_inv_freq(const model_config *c, const f64 *want) {
    f64 got[32];
    model_inv_freq(c, got);
    for (int j = 0; j < 32; j++)
        if (!near(got[j], want[j])) fail_msg("inv_freq[%d] is %.17g, not %.17g", j, got[j], want[j]);
}

/* The published file. */
static void test_k25(void **state) {
    (void)state;
    model_config c;
    err e = {0};
    if (model_config_load(&c, "tests/data/kimi-k2.5", &e) != ST_OK) fail_msg("%s", e.text);
    assert_string_equal(c.model_type, "kimi_k25");
    assert_string_equal(c.prefix, "language_model.");
    const i64 want[] = {163840, 7168, 61, 1, 64, 1536, 512, 128, 64, 128, 18432, 2048, 384, 8, 1, 262144};
    const i64 got[] = {c.vocab,     c.hidden, c.n_layers, c.n_dense,      c.n_heads,     c.q_lora,
                       c.kv_lora,   c.nope,   c.rope,     c.v_dim,        c.inter_dense, c.inter_expert,
                       c.n_experts, c.top_k,  c.n_shared, c.max_positions};
    for (size_t i = 0; i < COUNT_OF(want); i++) assert_int_equal(got[i], want[i]);
    assert_true(c.routed_scale == 2.827f && c.norm_topk && !c.tie_embeddings);
    assert_true(c.norm_eps == 1e-5 && c.lora_norm_eps == 1e-6);
    assert_int_equal(c.quant, WF_INT4_GROUP);
    assert_true(c.bos == 163584 && c.pad == 163839 && c.media_pad == 163605);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 163586);
    assert_true(c.rope_cfg.beta_fast == 32 && c.rope_cfg.beta_slow == 1 && c.rope_cfg.original == 4096);
    check_inv_freq(&c, inv_freq_k25);
    assert_true(near(model_softmax_scale(&c), 0.14467962580268923));
    assert_true(model_rope_mscale(&c) == 1);
}

/* An outer and an inner config that disagree: the outer one wins, id by id, and the inner one fills what it leaves
 * out. */
static void test_outer_ids(void **state) {
    (void)state;
    model_config c;
    static const char text[] = "\"text_config\":{\"model_type\":\"kimi_k2\"," DIMS ",\"bos_token_id\":1,"
                               "\"eos_token_id\":2,\"pad_token_id\":3}}";
    char json[2048];
    snprintf(json, sizeof json,
             "{\"model_type\":\"kimi_k25\",\"bos_token_id\":11,\"eos_token_id\":12,\"pad_token_id\":13,%s", text);
    expect_ok(&c, json, NULL);
    assert_true(c.bos == 11 && c.pad == 13);
    assert_true(c.n_eos == 1 && c.eos[0] == 12);
    expect_ok(&c, json, "{\"eos_token_id\":[14]}"); /* the one of the generation config comes to it */
    assert_true(c.n_eos == 2 && c.eos[0] == 12 && c.eos[1] == 14);
    snprintf(json, sizeof json, "{\"model_type\":\"kimi_k25\",\"eos_token_id\":null,\"pad_token_id\":13,%s", text);
    expect_ok(&c, json, NULL);
    assert_true(c.bos == 1 && c.pad == 13 && c.n_eos == 1 && c.eos[0] == 2);
}

/* K2.6's file is K2.5's with three more entries of what is not quantized (their names here are made up): the same
 * model, whatever they are. Its generation_config.json has sampling defaults, which are no business of the
 * configuration. */
static void test_k26(void **state) {
    static const char at[] = "\"lm_head\",",
                      more[] = "\"re:.*vision_tower.*\", 12345678901234567890, \"re:.*mm_projector.*\",";
    static const char generation[] =
        "{\"eos_token_id\":163586,\"max_length\":262144,\"temperature\":1.0,\"top_p\":1.0}";
    (void)state;
    buf text = {0}, k26 = {0};
    err e = {0};
    model_config want = {0}, got = {0};
    assert_int_equal(file_read("tests/data/kimi-k2.5/config.json", 1 << 20, &text, &e), ST_OK);
    const char *list = strstr(text.data, at);
    assert_non_null(list);
    buf_add(&k26, text.data, (size_t)(list - text.data));
    buf_str(&k26, more);
    buf_str(&k26, list);
    expect_ok(&want, text.data, NULL);
    expect_ok(&got, k26.data, generation);
    assert_memory_equal(&got, &want, sizeof got);
    buf_free(&text);
    buf_free(&k26);
}

static void test_k2_instruct(void **state) {
    (void)state;
    model_config c;
    expect_ok(&c, K2(K2_ROPE FP8 ",\"eos_token_id\":163585"), "{\"eos_token_id\":[163586,163585]}");
    assert_string_equal(c.prefix, "");
    assert_int_equal(c.quant, WF_FP8_BLOCK);
    check_inv_freq(&c, inv_freq_k2);
    assert_true(near(model_softmax_scale(&c), 0.13086079996295005));
    assert_int_equal(c.n_eos, 2);
    assert_true(c.eos[0] == 163585 && c.eos[1] == 163586);
    assert_true(c.bos == -1 && c.pad == -1 && c.media_pad == -1);
}

/* Without scaling: theta^(-2j/d) and (nope + rope)^(-1/2). */
static void test_plain_rope(void **state) {
    (void)state;
    model_config c;
    static const char *const spellings[] = {"", ",\"rope_scaling\":null",
                                            ",\"rope_scaling\":{\"rope_type\":\"default\"}"};
    for (size_t i = 0; i < COUNT_OF(spellings); i++) {
        char json[2048];
        snprintf(json, sizeof json, "{\"model_type\":\"deepseek_v3\"," DIMS "%s}", spellings[i]);
        expect_ok(&c, json, NULL);
        assert_true(c.rope_cfg.factor == 1);
        f64 q[32];
        model_inv_freq(&c, q);
        for (int j = 0; j < 32; j++) assert_true(near(q[j], pow(50000, -j / 32.0)));
        assert_true(near(model_softmax_scale(&c), 0.0721687836487032));
        assert_true(model_rope_mscale(&c) == 1);
        assert_int_equal(c.quant, WF_BF16);
    }
}

/* transformers 5 keeps theta and the scaling in one object. */
static void test_rope_spellings(void **state) {
    (void)state;
    model_config c;
    expect_ok(&c,
              "{\"model_type\":\"kimi_k2\",\"q_lora_rank\":null,\"n_shared_experts\":null," DIMS_REST
              ",\"rope_parameters\":{\"rope_theta\":50000.0,\"rope_type\":\"yarn\",\"factor\":64,\"beta_fast\":32,"
              "\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096}}",
              NULL);
    check_inv_freq(&c, inv_freq_k25);
    assert_true(c.q_lora == 0 && c.n_shared == 0);
    expect_error(K2(",\"rope_scaling\":{\"type\":\"yarn\",\"rope_type\":\"linear\",\"factor\":2}"), NULL, "differ");
    /* DeepSeek's default for mscale_all_dim is 0: the temperature then goes to cos and sin */
    expect_ok(&c, K2(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":64,\"original_max_position_embeddings\":4096}"),
              NULL);
    assert_true(near(model_softmax_scale(&c), 0.0721687836487032));
    assert_true(near(model_rope_mscale(&c), 1.4158883083359672));
    assert_true(c.rope_cfg.beta_fast == 32);
}

static void test_eos(void **state) {
    (void)state;
    model_config c;
    expect_ok(&c, K2(",\"eos_token_id\":[1,2,1]"), "{\"eos_token_id\":2}");
    assert_true(c.n_eos == 2 && c.eos[0] == 1 && c.eos[1] == 2);
    expect_ok(&c, K2(""), "{}");
    assert_int_equal(c.n_eos, 0);
    expect_ok(&c, K2(",\"eos_token_id\":null"), NULL);
    assert_int_equal(c.n_eos, 0);
    expect_error(K2(",\"eos_token_id\":163840"), NULL, "config.json: eos_token_id 163840");
    expect_error(K2(""), "{\"eos_token_id\":-1}", "generation_config.json: eos_token_id -1");
}

static void test_errors_name_the_place(void **state) {
    (void)state;
    expect_error("", NULL, "config.json");
    expect_error("{\"model_type\":\"kimi_k25\",\"text_config\":{}}", NULL,
                 "config.json: text_config: key \"vocab_size\"");
    expect_error(K2(",\"n_group\":8"), NULL, "n_group 8 is not supported");
    expect_error(K2(",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64]}"), NULL,
                 "quantization_config: weight_block_size");
    expect_error(K2(",\"n_shared_experts\":4096"), NULL, "n_shared_experts"); /* the key occurs twice */
}

/* INT4 groups of 32 must divide both dimensions of the experts; other formats do not care. */
static void test_int4_divisibility(void **state) {
    (void)state;
    char json[4096], *at;
    err e = {0};
    model_config c;
    const char *quant =
        ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
        "\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,"
        "\"strategy\":\"group\",\"group_size\":32}}}}";
    for (int with = 0; with < 2; with++) {
        snprintf(json, sizeof json, "{\"model_type\":\"kimi_k2\"," DIMS "%s}", with ? quant : "");
        assert_int_equal(parse(&c, json, NULL, &e), ST_OK);
        assert_int_equal(c.quant, with ? WF_INT4_GROUP : WF_BF16);
        at = strstr(json, "\"hidden_size\":7168");
        memcpy(at, "\"hidden_size\":7176", 18);
        assert_int_equal(parse(&c, json, NULL, &e), with ? ST_FORMAT : ST_OK);
        if (with) assert_non_null(strstr(e.text, "hidden_size is 7176"));
    }
}

/* Quark's W4A8 is told by its two weight specifications; anything else of Quark's is refused. */
static void test_quark(void **state) {
    (void)state;
#define FIRST    "{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_tensor\",\"is_dynamic\":false}"
#define SECOND   "{\"dtype\":\"int4\",\"qscheme\":\"per_channel\",\"ch_axis\":0,\"is_dynamic\":false}"
#define QUARK(w) K2(",\"quantization_config\":{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":" w "}}")
#define EXPORT(x)                                                                                                      \
    K2(",\"quantization_config\":{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":[" FIRST "," SECOND   \
       "]},\"export\":{" x "}}")
    model_config c;
    expect_ok(&c, QUARK("[" FIRST "," SECOND "]"), NULL);
    assert_int_equal(c.quant, WF_INT4_ROW);
    assert_int_equal(c.experts, EXPERTS_AS_STORED);
    expect_ok(&c, EXPORT("\"pack_method\":\"reorder\",\"weight_format\":\"real_quantized\""), NULL);
    assert_int_equal(c.quant, WF_INT4_ROW);
    expect_error(QUARK(FIRST), NULL, "weight: qscheme \"per_tensor\"");
    expect_error(QUARK("[" FIRST "]"), NULL, "global_quant_config.weight is not a list of two");
    expect_error(QUARK("[" SECOND "," FIRST "]"), NULL, "weight[0]: dtype \"int4\"");
    expect_error(QUARK("[" FIRST "," FIRST "]"), NULL, "weight[1]: dtype \"fp8_e4m3\"");
    expect_error(QUARK("[" FIRST ",{\"dtype\":\"int4\",\"qscheme\":\"per_group\"}]"), NULL, "per_group");
    expect_error(QUARK("[" FIRST ",{\"dtype\":\"int4\",\"qscheme\":\"per_channel\",\"ch_axis\":1}]"), NULL,
                 "ch_axis 1");
    expect_error(QUARK("[" FIRST ",7]"), NULL, "weight[1] is not an object");
    expect_error(EXPORT("\"pack_method\":\"order\""), NULL, "export: pack_method \"order\"");
    expect_error(K2(",\"quantization_config\":{\"quant_method\":\"quark\"}"), NULL, "global_quant_config");
}

/* The quantization_config `quant` is of format f; or, with a part, an error that says so. */
static void expect_quant(const char *quant, weight_format f, const char *part) {
    char json[4096];
    model_config c;
    snprintf(json, sizeof json, "{\"model_type\":\"kimi_k2\"," DIMS ",\"quantization_config\":{%s}}", quant);
    if (part) return expect_error(json, NULL, part);
    expect_ok(&c, json, NULL);
    assert_int_equal(c.quant, f);
}

/* FP8 with one scale a row, as Quark writes it (amd/kimi-k2.5-eagle3-fp8) and as compressed-tensors does. */
static void expect_fp8_row(const char *quant, const char *part) { expect_quant(quant, WF_FP8_ROW, part); }

static void test_fp8_rows_of_quark(void **state) {
    (void)state;
#define ROWS                                                                                                           \
    "{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_channel\",\"ch_axis\":0,\"is_dynamic\":false,\"symmetric\":true}"
#define TOKENS(d) "{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_token\",\"is_dynamic\":" d "}"
#define FP8_QUARK(in, rest)                                                                                            \
    "\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":" ROWS ",\"bias\":null,\"input_tensors\":" in      \
    "}" rest
    expect_fp8_row(FP8_QUARK("null", ""), NULL);
    expect_fp8_row(FP8_QUARK(TOKENS("true"),
                             ",\"exclude\":[\"fc\",\"re:.*lm_head\",\"*norm\"],\"layer_quant_config\":{},"
                             "\"export\":{\"pack_method\":\"order\",\"weight_format\":\"real_quantized\"}"),
                   NULL);
    expect_fp8_row(FP8_QUARK(TOKENS("false"), ""), "input_tensors: is_dynamic false");
    expect_fp8_row(FP8_QUARK("null", ",\"exclude\":\"fc\""), "exclude");
    expect_fp8_row(FP8_QUARK("null", ",\"layer_quant_config\":{\"x\":{}}"), "layer_quant_config");
    expect_fp8_row(FP8_QUARK("null", ",\"kv_cache_quant_config\":{\"*k_proj\":{}}"), "kv_cache_quant_config");
    expect_fp8_row(FP8_QUARK("null", ",\"export\":{\"weight_format\":\"fake_quantized\"}"), "export: weight_format");
    expect_fp8_row("\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"int16\"}}",
                   "dtype \"int16\"");
}

static void test_fp8_rows_of_compressed_tensors(void **state) {
    (void)state;
#define WEIGHTS(strategy)                                                                                              \
    "\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"" strategy                                          \
    "\",\"symmetric\":true,\"dynamic\":false,\"group_size\":null}"
#define FP8_PACKED(group, rest)                                                                                        \
    "\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":{\"group_0\":{" group    \
    "}}" rest
#define INPUTS(d)                                                                                                      \
    ",\"targets\":[\"Linear\"],\"input_activations\":{\"num_bits\":8,\"type\":\"float\",\"dynamic\":" d "}"
    expect_fp8_row(FP8_PACKED(WEIGHTS("channel"), ""), NULL);
    expect_fp8_row(FP8_PACKED(WEIGHTS("channel") INPUTS("true"), ",\"ignore\":[\"lm_head\",\"re:fc.*\"]"), NULL);
    expect_fp8_row(FP8_PACKED(WEIGHTS("channel") INPUTS("false"), ""), "input_activations: dynamic false");
    expect_fp8_row(FP8_PACKED(WEIGHTS("channel") ",\"input_activations\":{\"num_bits\":4,\"dynamic\":true}", ""),
                   "input_activations: num_bits 4");
    expect_fp8_row(FP8_PACKED(WEIGHTS("tensor"), ""), "strategy \"tensor\"");
    expect_fp8_row(FP8_PACKED(WEIGHTS("channel"), ",\"ignore\":\"lm_head\""), "ignore");
    expect_fp8_row(FP8_PACKED(WEIGHTS("channel"), ",\"kv_cache_scheme\":{\"num_bits\":8}"), "kv_cache_scheme");
    expect_fp8_row("\"quant_method\":\"compressed-tensors\",\"format\":\"float-other\"", "float-other");
}

static void expect_mxfp4(const char *quant, const char *part) { expect_quant(quant, WF_MXFP4, part); }

static void test_mxfp4_of_quark(void **state) {
    (void)state;
#define FP4(dynamic)                                                                                                   \
    "{\"ch_axis\":-1,\"dtype\":\"fp4\",\"group_size\":32,\"is_dynamic\":" dynamic ",\"is_scale_quant\":false,"         \
    "\"mx_element_dtype\":null,\"observer_cls\":\"PerBlockMXObserver\",\"qscheme\":\"per_group\","                     \
    "\"round_method\":\"half_even\",\"scale_calculation_mode\":\"even\",\"scale_format\":\"e8m0\","                    \
    "\"scale_type\":\"float\",\"symmetric\":null}"
#define MXFP4(weight, inputs, rest)                                                                                    \
    "\"quant_method\":\"quark\",\"global_quant_config\":{\"bias\":null,\"output_tensors\":null,"                       \
    "\"weight\":" weight ",\"input_tensors\":" inputs "}" rest
#define PACK(how) ",\"export\":{\"kv_cache_group\":[],\"pack_method\":\"" how "\",\"weight_format\":\"real_quantized\"}"
#define MX(keys)  MXFP4("{" keys "}", "null", "")
    expect_mxfp4(MXFP4(FP4("false"), "null", ""), NULL);
    expect_mxfp4(MXFP4(FP4("false"), FP4("true"), PACK("reorder")), NULL);
    expect_mxfp4(MXFP4(FP4("false"), FP4("true"), PACK("order")), NULL);
    expect_mxfp4(MXFP4(FP4("false"), FP4("true"),
                       ",\"exclude\":[\"re:.*self_attn.*\",\"lm_head\"],\"layer_quant_config\":{},\"algo_config\":null,"
                       "\"layer_type_quant_config\":{},\"kv_cache_quant_config\":{},\"softmax_quant_spec\":null"),
                 NULL);
    expect_mxfp4(MXFP4(FP4("true"), "null", ""), "global_quant_config.weight: is_dynamic true");
    expect_mxfp4(MXFP4(FP4("false"), FP4("false"), ""), "global_quant_config.input_tensors: is_dynamic false");
    expect_mxfp4(MXFP4(FP4("false"), "{\"dtype\":\"fp4\"}", ""), "input_tensors: key \"is_dynamic\"");
    expect_mxfp4(MXFP4(FP4("false"), "{\"dtype\":\"fp6\",\"is_dynamic\":true}", ""), "input_tensors: dtype \"fp6\"");
    expect_mxfp4(MXFP4(FP4("false"), "[]", ""), "input_tensors: not an object");
    expect_mxfp4(MXFP4(FP4("false"), "null", ",\"exclude\":\"*\""), "exclude");
    expect_mxfp4(MXFP4(FP4("false"), "null", ",\"layer_quant_config\":{\"*\":{}}"), "layer_quant_config");
    expect_mxfp4(MXFP4(FP4("false"), "null", ",\"layer_type_quant_config\":{\"a\":{}}"), "layer_type_quant_config");
    expect_mxfp4(MXFP4(FP4("false"), "null", ",\"softmax_quant_spec\":{\"a\":1}"), "softmax_quant_spec");
    expect_mxfp4(MXFP4(FP4("false"), "null", ",\"kv_cache_quant_config\":{\"*k\":{}}"), "kv_cache_quant_config");
    expect_mxfp4(MXFP4(FP4("false"), "null", ",\"export\":{\"weight_format\":\"fake_quantized\"}"), "weight_format");
    expect_mxfp4(MX(""), "global_quant_config.weight: key \"dtype\"");
    expect_mxfp4(MX("\"dtype\":\"fp6_e3m2\""),
                 "dtype \"fp6_e3m2\" is not supported, only \"fp8_e4m3\", \"fp4\" and \"int8\"");
    expect_mxfp4(MX("\"dtype\":\"fp4\""), "key \"qscheme\"");
    expect_mxfp4(MX("\"dtype\":\"fp4\",\"qscheme\":\"per_channel\""), "qscheme \"per_channel\"");
#define GROUPS "\"dtype\":\"fp4\",\"qscheme\":\"per_group\""
    expect_mxfp4(MX(GROUPS ",\"ch_axis\":0"), "ch_axis 0");
    expect_mxfp4(MX(GROUPS), "key \"group_size\"");
    expect_mxfp4(MX(GROUPS ",\"group_size\":16"), "group_size 16");
    expect_mxfp4(MX(GROUPS ",\"group_size\":32"), "key \"scale_format\"");
    expect_mxfp4(MX(GROUPS ",\"group_size\":32,\"scale_format\":\"e4m3\""), "scale_format \"e4m3\"");
    expect_mxfp4(MX(GROUPS ",\"group_size\":32,\"scale_format\":\"e8m0\""), NULL);
    expect_mxfp4("\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":" FP4(
                     "false") ",\"output_tensors\":" FP4("true") "}",
                 "output_tensors");
}

static void test_mxfp4_of_compressed_tensors(void **state) {
    (void)state;
#define MX_WEIGHTS(bits, type, strategy, size, symmetric, dynamic)                                                     \
    "\"weights\":{\"num_bits\":" bits ",\"type\":\"" type "\",\"strategy\":\"" strategy "\",\"group_size\":" size      \
    ",\"symmetric\":" symmetric ",\"dynamic\":" dynamic ",\"actorder\":null,\"scale_dtype\":\"torch.uint8\"}"
#define MX_GOOD MX_WEIGHTS("4", "float", "group", "32", "true", "false")
#define MX_PACKED(group, rest)                                                                                           \
    "\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp4-pack-quantized\",\"config_groups\":{\"group_0\":{" group \
    "}}" rest
#define MX_INPUTS(bits, d)                                                                                             \
    ",\"targets\":[\"Linear\"],\"input_activations\":{\"num_bits\":" bits ",\"type\":\"float\",\"dynamic\":" d "}"
    expect_mxfp4(MX_PACKED(MX_GOOD, ""), NULL);
    expect_mxfp4(MX_PACKED(MX_GOOD MX_INPUTS("4", "true"), ",\"ignore\":[\"lm_head\"]"), NULL);
    expect_mxfp4(MX_PACKED(MX_GOOD ",\"format\":\"mxfp4-pack-quantized\",\"input_activations\":null", ""), NULL);
    expect_mxfp4(MX_PACKED(MX_GOOD ",\"format\":\"pack-quantized\"", ""), "group_0: format \"pack-quantized\"");
    expect_mxfp4(MX_PACKED(MX_GOOD MX_INPUTS("4", "false"), ""), "input_activations: dynamic false");
    expect_mxfp4(MX_PACKED(MX_GOOD MX_INPUTS("8", "true"), ""), NULL);
    expect_mxfp4(MX_PACKED(MX_GOOD MX_INPUTS("6", "true"), ""), "input_activations: num_bits 6");
    expect_mxfp4(MX_PACKED(MX_GOOD ",\"output_activations\":{\"num_bits\":4}", ""), "output_activations");
    expect_mxfp4(MX_PACKED(MX_GOOD, ",\"kv_cache_scheme\":{\"num_bits\":8}"), "kv_cache_scheme");
    expect_mxfp4(MX_PACKED(MX_GOOD, ",\"ignore\":\"lm_head\""), "ignore");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("8", "float", "group", "32", "true", "false"), ""), "num_bits 8");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("4", "int", "group", "32", "true", "false"), ""), "type \"int\"");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("4", "float", "channel", "32", "true", "false"), ""), "strategy \"channel\"");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("4", "float", "group", "16", "true", "false"), ""), "group_size 16");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("4", "float", "group", "null", "true", "false"), ""), "group_size");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("4", "float", "group", "32", "false", "false"), ""), "symmetric false");
    expect_mxfp4(MX_PACKED(MX_WEIGHTS("4", "float", "group", "32", "true", "true"), ""), "dynamic true");
    expect_mxfp4("\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"",
                 "only \"pack-quantized\", \"float-quantized\", \"mxfp4-pack-quantized\", \"nvfp4-pack-quantized\" and "
                 "\"int-quantized\"");
}

static void expect_int8(const char *quant, const char *part) { expect_quant(quant, WF_INT8_ROW, part); }

static void test_int8_of_quark(void **state) {
    (void)state;
#define INT8(type, scheme, axis, rest)                                                                                 \
    "\"quant_method\":\"quark\",\"global_quant_config\":{\"bias\":null,\"output_tensors\":null,\"weight\":{\"dtype\":" \
    "\"" type "\",\"qscheme\":\"" scheme "\",\"ch_axis\":" axis ",\"is_dynamic\":false" rest "}}"
#define INT8_INPUTS(keys) "},\"input_tensors\":{\"dtype\":\"int8\",\"qscheme\":\"per_channel\",\"ch_axis\":1," keys
    expect_int8(INT8("int8", "per_channel", "0", ""), NULL);
    expect_int8(INT8("int8", "per_channel", "0", ",\"symmetric\":true" INT8_INPUTS("\"is_dynamic\":true")), NULL);
    expect_int8(INT8("int8", "per_channel", "0", ",\"symmetric\":null"), NULL);
    expect_int8(INT8("int8", "per_channel", "0", INT8_INPUTS("\"is_dynamic\":false")),
                "input_tensors: is_dynamic false");
    expect_int8(INT8("int8", "per_channel", "0", ",\"symmetric\":false"), "weight: symmetric false");
    expect_int8(INT8("int8", "per_channel", "1", ""), "weight: ch_axis 1");
    expect_int8(INT8("int8", "per_tensor", "0", ""), "weight: qscheme \"per_tensor\"");
    expect_int8(INT8("uint8", "per_channel", "0", ""), "weight: dtype \"uint8\"");
    expect_quant(INT8("fp8_e4m3", "per_channel", "0", ""), WF_FP8_ROW, NULL);
}

static void test_int8_of_compressed_tensors(void **state) {
    (void)state;
#define INT8_WEIGHTS(bits, type, strategy, more)                                                                       \
    "\"weights\":{\"num_bits\":" bits ",\"type\":\"" type "\",\"strategy\":\"" strategy "\"" more "}"
#define INT8_PACKED(group)                                                                                             \
    "\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\",\"config_groups\":{\"group_0\":{" group "}}"
#define INT8_GOOD INT8_WEIGHTS("8", "int", "channel", ",\"symmetric\":true")
#define INT8_IN(type, d)                                                                                               \
    ",\"input_activations\":{\"num_bits\":8,\"type\":\"" type "\",\"strategy\":\"token\",\"dynamic\":" d "}"
    expect_int8(INT8_PACKED(INT8_GOOD), NULL);
    expect_int8(INT8_PACKED(INT8_GOOD INT8_IN("int", "true")), NULL);
    expect_int8(INT8_PACKED(INT8_GOOD INT8_IN("float", "true")), "input_activations: type \"float\"");
    expect_int8(INT8_PACKED(INT8_GOOD INT8_IN("int", "false")), "input_activations: dynamic false");
    expect_int8(INT8_PACKED(INT8_WEIGHTS("8", "int", "channel", ",\"symmetric\":false")), "symmetric false");
    expect_int8(INT8_PACKED(INT8_WEIGHTS("8", "int", "tensor", ",\"symmetric\":true")), "strategy \"tensor\"");
    expect_int8(INT8_PACKED(INT8_WEIGHTS("8", "float", "channel", ",\"symmetric\":true")), "type \"float\"");
    expect_int8(INT8_PACKED(INT8_WEIGHTS("4", "int", "channel", ",\"symmetric\":true")), "num_bits 4");
    expect_int8(INT8_PACKED(INT8_WEIGHTS("8", "int", "channel", ",\"symmetric\":true,\"group_size\":32")),
                "group_size");
}

/* Its config may be no more than the method; all that is no expert's is FP8 in blocks. */
static void test_w4afp8(void **state) {
    (void)state;
#define W4AFP8(rest) "\"quant_method\":\"w4afp8\"" rest
    model_config c;
    const weight_format f = WF_INT4_GROUP128;
    expect_quant(W4AFP8(""), f, NULL);
    expect_quant(W4AFP8(",\"activation_scheme\":\"static\",\"fmt\":\"e4m3\",\"group_size\":128,"
                        "\"weight_block_size\":[128,128]"),
                 f, NULL);
    expect_quant(W4AFP8(",\"group_size\":32"), f, "group_size 32");
    expect_quant(W4AFP8(",\"weight_block_size\":[64,128]"), f, "weight_block_size");
    expect_quant(W4AFP8(",\"fmt\":\"e5m2\""), f, "fmt \"e5m2\"");
    expect_quant("\"quant_method\":\"w4a16\"", f, "\"w4afp8\" and \"modelopt\"");
    expect_ok(&c, K2(",\"quantization_config\":{\"quant_method\":\"w4afp8\"}"), NULL);
    assert_int_equal(model_config_dense_format(&c), WF_FP8_BLOCK);
    static const weight_format same[] = {WF_FP8_BLOCK, WF_FP8_ROW, WF_INT8_ROW},
                               bf16[] = {WF_INT4_GROUP, WF_MXFP4, WF_NVFP4};
    for (int i = 0; i < 3; i++) {
        c.quant = same[i];
        assert_int_equal(model_config_dense_format(&c), same[i]);
        c.quant = bf16[i];
        assert_int_equal(model_config_dense_format(&c), WF_BF16);
    }
    char json[4096];
    snprintf(json, sizeof json, "%s", K2(",\"quantization_config\":{\"quant_method\":\"w4afp8\"}"));
    memcpy(strstr(json, "\"moe_intermediate_size\":2048"), "\"moe_intermediate_size\":2080", 28);
    expect_error(json, NULL, "moe_intermediate_size is 2080, no multiple of the group of 128");
}

/* An FP8 KV cache with one scale a layer is the writer's engine's; anything else for it is refused. */
static void test_kv_cache_scheme(void **state) {
    (void)state;
    static const struct {
        const char *scheme, *part;
    } all[] = {
        {"null", NULL},
        {"{\"num_bits\":8,\"type\":\"float\"}", NULL},
        {"{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"dynamic\":false,\"symmetric\":true}", NULL},
        {"[]", "key \"kv_cache_scheme\" is not an object"},
        {"{\"type\":\"float\"}", "kv_cache_scheme: key \"num_bits\""},
        {"{\"num_bits\":4,\"type\":\"float\"}", "kv_cache_scheme: num_bits 4"},
        {"{\"num_bits\":8}", "kv_cache_scheme: key \"type\""},
        {"{\"num_bits\":8,\"type\":\"int\"}", "kv_cache_scheme: type \"int\""},
        {"{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"attn_head\"}", "strategy \"attn_head\""},
        {"{\"num_bits\":8,\"type\":\"float\",\"dynamic\":true}", "kv_cache_scheme: dynamic true"},
        {"{\"num_bits\":8,\"type\":\"float\",\"symmetric\":false}", "kv_cache_scheme: symmetric false"}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        char quant[512];
        snprintf(quant, sizeof quant, "\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"kv_cache_scheme\":%s",
                 all[i].scheme);
        expect_quant(quant, WF_NVFP4, all[i].part);
        snprintf(quant, sizeof quant, FP8_PACKED(WEIGHTS("channel"), ",\"kv_cache_scheme\":%s"), all[i].scheme);
        expect_quant(quant, WF_FP8_ROW, all[i].part);
    }
#define KV_ALGO(x) "\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"kv_cache_quant_algo\":" x
    expect_quant(KV_ALGO("\"FP8\""), WF_NVFP4, NULL);
    expect_quant(KV_ALGO("\"NVFP4\""), WF_NVFP4, "kv_cache_quant_algo \"NVFP4\"");
}

static void expect_nvfp4(const char *quant, const char *part) { expect_quant(quant, WF_NVFP4, part); }

static void test_nvfp4_of_modelopt(void **state) {
    (void)state;
#define NV(rest) "\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"" rest
#define NV_GROUP(keys)                                                                                                 \
    ",\"config_groups\":{\"group_0\":{\"input_activations\":{\"dynamic\":false,\"num_bits\":4,\"type\":\"float\","     \
    "\"group_size\":16},\"weights\":{\"dynamic\":false" keys "},\"targets\":[\"Linear\"]}}"
    expect_nvfp4(NV(""), NULL);
    expect_nvfp4(NV(",\"producer\":{\"name\":\"modelopt\"},\"kv_cache_quant_algo\":null,\"group_size\":16,"
                    "\"exclude_modules\":[\"*self_attn*\"],\"ignore\":[\"lm_head\"]"),
                 NULL);
    expect_nvfp4(NV(NV_GROUP(",\"num_bits\":4,\"type\":\"float\",\"group_size\":16")), NULL);
    expect_nvfp4("\"quant_method\":\"modelopt\",\"quantization\":{\"quant_algo\":\"NVFP4\"}", NULL);
    expect_nvfp4("\"quant_method\":\"modelopt\",\"quantization\":[]", "key \"quantization\" is not an object");
    expect_nvfp4("\"quant_method\":\"modelopt\"", "key \"quant_algo\" is missing");
    expect_nvfp4("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"", "quant_algo \"FP8\" is not supported");
    expect_nvfp4(NV(",\"group_size\":32"), "group_size 32");
    expect_nvfp4(NV(",\"exclude_modules\":\"lm_head\""), "exclude_modules");
    expect_nvfp4(NV(",\"ignore\":\"lm_head\""), "ignore");
    expect_nvfp4(NV(",\"config_groups\":[]"), "config_groups is not an object");
    expect_nvfp4(NV(",\"config_groups\":{\"a\":{}}"), "config_groups.a: key \"weights\" is not an object");
    expect_nvfp4(NV(NV_GROUP(",\"num_bits\":8")), "group_0: num_bits 8");
    expect_nvfp4(NV(NV_GROUP(",\"type\":\"int\"")), "type \"int\"");
    expect_nvfp4(NV(NV_GROUP(",\"group_size\":128")), "group_size 128");
    expect_nvfp4(NV(",\"config_groups\":{\"a\":{\"weights\":{\"dynamic\":true}}}"), "dynamic true");
}

static void put_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Older files of ModelOpt say it in hf_quant_config.json alone; a config.json that says anything of it counts first. */
static void test_nvfp4_beside_config(void **state) {
    (void)state;
    static const char whole[] =
        "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"NVFP4\",\"group_size\":16,"
        "\"kv_cache_quant_algo\":null,\"exclude_modules\":[\"lm_head\"]}}";
    static const char *const other[] = {whole, "{\"quantization\":{\"quant_algo\":\"W4A16_AWQ\"}}", "{", "[]"};
    static const char *const parts[] = {NULL, "quant_algo \"W4A16_AWQ\"", "hf_quant_config.json", "quant_algo"};
    char dir[48], path[64], beside[80];
    model_config c;
    snprintf(dir, sizeof dir, "/tmp/moonlet-config-%d", (int)getpid());
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", dir), snprintf(beside, sizeof beside, "%s/hf_quant_config.json", dir);
    for (size_t i = 0; i < 2 * COUNT_OF(other); i++) {
        err e = {0};
        const bool fp8 = i >= COUNT_OF(other);
        const char *text = fp8 ? K2(FP8) : K2(""), *more = other[i % COUNT_OF(other)],
                   *part = parts[i % COUNT_OF(other)];
        put_text(path, text);
        put_text(beside, more);
        const status st = model_config_load(&c, dir, &e);
        if (!part || fp8) {
            if (st != ST_OK) fail_msg("%s", e.text);
            assert_int_equal(c.quant, fp8 ? WF_FP8_BLOCK : WF_NVFP4);
        } else {
            assert_true(st != ST_OK && strstr(e.text, "hf_quant_config.json"));
            if (!strstr(e.text, part)) fail_msg("\"%s\" is not in: %s", part, e.text);
        }
    }
    unlink(path), unlink(beside), rmdir(dir);
}

static void test_nvfp4_of_compressed_tensors(void **state) {
    (void)state;
#define NV_GOOD MX_WEIGHTS("4", "float", "tensor_group", "16", "true", "false")
#define NV_PACKED(group, rest)                                                                                           \
    "\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\",\"config_groups\":{\"group_0\":{" group \
    "}}" rest
    expect_nvfp4(NV_PACKED(NV_GOOD, ""), NULL);
    expect_nvfp4(NV_PACKED(NV_GOOD MX_INPUTS("4", "\"local\""), ",\"ignore\":[\"lm_head\"]"), NULL);
    expect_nvfp4(NV_PACKED(NV_GOOD MX_INPUTS("4", "true"), ""), NULL);
    expect_nvfp4(NV_PACKED(NV_GOOD MX_INPUTS("4", "\"sometimes\""), ""), "input_activations");
    expect_nvfp4(NV_PACKED(NV_GOOD MX_INPUTS("4", "false"), ""), "input_activations: dynamic false");
    expect_nvfp4(NV_PACKED(MX_WEIGHTS("4", "float", "tensor_group", "32", "true", "false"), ""), "group_size 32");
    expect_nvfp4(NV_PACKED(MX_WEIGHTS("4", "float", "group", "16", "true", "false"), ""), "strategy \"group\"");
    expect_nvfp4(NV_PACKED(MX_WEIGHTS("4", "int", "tensor_group", "16", "true", "false"), ""), "type \"int\"");
    expect_nvfp4(NV_PACKED(MX_WEIGHTS("4", "float", "tensor_group", "16", "false", "false"), ""), "symmetric false");
    expect_mxfp4(MX_PACKED(MX_GOOD MX_INPUTS("4", "\"local\""), ""), "input_activations");
}

/* INT4's inputs stay what they were: never in fewer bits. */
static void test_int4_has_no_inputs(void **state) {
    (void)state;
    expect_quant("\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":{"
                 "\"input_activations\":{\"num_bits\":4,\"type\":\"float\",\"dynamic\":true},\"weights\":{}}}",
                 WF_INT4_GROUP, "input_activations other than null");
}

static void test_override(void **state) {
    (void)state;
    model_config c;
    err e = {0};
    expect_ok(&c, K2(K2_ROPE), NULL);
    assert_int_equal(model_config_override(&c, "num_hidden_layers=10", &e), ST_OK);
    assert_int_equal(c.n_layers, 10);
    assert_int_equal(model_config_override(&c, "lora_norm_eps=1e-5", &e), ST_OK);
    assert_true(c.lora_norm_eps == 1e-5 && c.norm_eps == 1e-6);
    assert_int_equal(model_config_override(&c, "rms_norm_eps=2e-6", &e), ST_OK);
    assert_true(c.norm_eps == 2e-6);
    static const char *const bad[] = {"num_hidden_layers=11",
                                      "num_hidden_layers=0",
                                      "num_hidden_layers=2.5",
                                      "num_hidden_layers=",
                                      "num_hidden_layers",
                                      "num_hidden_layers=9x",
                                      "num_hidden_layers=nan",
                                      "lora_norm_eps=0",
                                      "lora_norm_eps=inf",
                                      "hidden_size=64",
                                      "=5",
                                      "num_hidden_layer=5",
                                      ""};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(model_config_override(&c, bad[i], &e), ST_INPUT);
        assert_non_null(strstr(e.text, "--override"));
        assert_int_equal(c.n_layers, 10);
    }
    c.n_dense = 3;
    assert_int_equal(model_config_override(&c, "num_hidden_layers=2", &e), ST_OK);
    assert_int_equal(c.n_dense, 2);
}

static void layers_of_stages(void **state) {
    (void)state;
    static const struct {
        i64 n, stages;
        const char *given, *want;
    } good[] = {{61, 2, NULL, "31,30"}, {61, 8, NULL, "8,8,8,8,8,7,7,7"}, {3, 3, NULL, "1,1,1"},
                {61, 1, NULL, "61"},    {61, 2, "1,60", "1,60"},          {6, 3, "1,3,2", "1,3,2"}};
    static const struct {
        i64 n, stages;
        const char *given, *text;
    } bad[] = {{61, 62, NULL, "--pp 62: 61 layers cannot"},
               {61, 0, NULL, "--pp 0: "},
               {100, 65, NULL, "--pp 65: "},
               {61, 2, "31,31", "--pp-layers: 62 layers in all, the model has 61"},
               {61, 2, "61", "--pp-layers 61: the layers of each of 2"},
               {61, 2, "30,30,1", "--pp-layers 30,30,1: the"},
               {61, 2, "0,61", "--pp-layers"},
               {61, 2, "31,", "--pp-layers"},
               {61, 2, "31 30", "--pp-layers"},
               {61, 2, "", "--pp-layers"},
               {61, 2, "x,30", "--pp-layers"},
               {61, 2, "31,99999999999999999999", "--pp-"},
               {61, 2, "-1,62", "--pp-layers"}};
    i64 layers[STAGES_MAX];
    err e;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        char got[256] = "";
        size_t at = 0;
        assert_int_equal(model_divide_layers(good[i].n, good[i].stages, good[i].given, "--pp", layers, &e), ST_OK);
        for (i64 s = 0; s < good[i].stages; s++)
            at += (size_t)snprintf(got + at, sizeof got - at, "%s%lld", s ? "," : "", (long long)layers[s]);
        assert_string_equal(got, good[i].want);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        if (model_divide_layers(bad[i].n, bad[i].stages, bad[i].given, "--pp", layers, &e) != ST_INPUT ||
            !strstr(e.text, bad[i].text))
            fail_msg("%s is taken, or: %s", bad[i].given, e.text);
    }
}

/* Dense layers may reach into a later stage. */
static void a_stages_share(void **state) {
    (void)state;
    static const i64 layers[3] = {2, 3, 5}, first[3] = {0, 2, 5}, dense[3] = {2, 2, 0};
    for (i64 s = 0; s < 3; s++) {
        model_config c = {.n_layers = 10, .n_dense = 4};
        assert_true(model_begins(&c) && model_ends(&c));
        model_config_stage(&c, 3, s, layers);
        assert_int_equal(c.layer_first, first[s]);
        assert_int_equal(c.n_layers, layers[s]);
        assert_int_equal(c.n_dense, dense[s]);
        assert_true(model_begins(&c) == (s == 0) && model_ends(&c) == (s == 2));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_stages),
        cmocka_unit_test(a_stages_share),
        cmocka_unit_test(test_k25),
        cmocka_unit_test(test_k26),
        cmocka_unit_test(test_k2_instruct),
        cmocka_unit_test(test_plain_rope),
        cmocka_unit_test(test_rope_spellings),
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_outer_ids),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_int4_divisibility),
        cmocka_unit_test(test_fp8_rows_of_quark),
        cmocka_unit_test(test_fp8_rows_of_compressed_tensors),
        cmocka_unit_test(test_quark),
        cmocka_unit_test(test_mxfp4_of_quark),
        cmocka_unit_test(test_mxfp4_of_compressed_tensors),
        cmocka_unit_test(test_int8_of_quark),
        cmocka_unit_test(test_kv_cache_scheme),
        cmocka_unit_test(test_w4afp8),
        cmocka_unit_test(test_int8_of_compressed_tensors),
        cmocka_unit_test(test_nvfp4_of_modelopt),
        cmocka_unit_test(test_nvfp4_beside_config),
        cmocka_unit_test(test_nvfp4_of_compressed_tensors),
        cmocka_unit_test(test_int4_has_no_inputs),
        cmocka_unit_test(test_override),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
