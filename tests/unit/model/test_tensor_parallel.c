/* Tensor parallelism among ranks of the host (runtime/ranks.h): the logits of 1, 2, 4 and 8 ranks, in every format, on
 * every level of the cpu backend, alone and behind a scheduler; what cannot be divided; ranks that fail or stall. */
#include "unit.h"

#include "base/log.h"
#include "drawn_tokens.h"
#include "model_logits.h"
#include "rows_apart.h"
#include "runtime/engine_internal.h"
#include <unistd.h>

/* Eight heads, an odd vocabulary, and widths whose eighths are whole groups of INT4 and, where `block`, blocks of FP8.
 * */
#define MODEL                                                                                                          \
    .vocab = 157, .hidden = 64, .layers = 3, .dense = 1, .heads = 8, .q_lora = 32, .kv_lora = 64, .nope = 24,          \
    .rope = 8, .v = 32, .inter = 256, .expert_inter = 256, .experts = 6, .top_k = 2, .shared = 1, .context = 512,      \
    .attn = WF_BF16, .mlp = WF_BF16, .expert = {WF_BF16, WF_BF16}, .embed = WF_BF16, .router = WF_BF16

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const random_model models[] = {
    {MODEL, .name = "bf16"},
    {MODEL, .name = "float32", .norm_f32 = true, .attn = WF_F32, .mlp = WF_F32, .expert = {WF_F32, WF_F32},
     .embed = WF_F32},
    {MODEL, .name = "int4 experts", .expert = {WF_INT4_GROUP, WF_INT4_GROUP}},
    {MODEL, .name = "int4 all", .attn = WF_INT4_GROUP, .mlp = WF_INT4_GROUP, .expert = {WF_INT4_GROUP, WF_INT4_GROUP}},
    {MODEL, .name = "int4 with a scale a row", .expert = {WF_INT4_ROW, WF_INT4_ROW}},
    {MODEL, .name = "fp8", .vocab = 1157, .attn = WF_FP8_BLOCK, .mlp = WF_FP8_BLOCK,
     .expert = {WF_FP8_BLOCK, WF_FP8_BLOCK}, .nope = 128, .rope = 128, .v = 128, .inter = 1024, .expert_inter = 1024,
     .experts = 3, .layers = 2, .kv_lora = 128},
    {MODEL, .name = "two shared experts, no q_lora, tied", .q_lora = 0, .shared = 2, .tie = true},
    {MODEL, .name = "fp8 with a scale a row", .attn = WF_FP8_ROW, .mlp = WF_FP8_ROW, .expert = {WF_FP8_ROW, WF_FP8_ROW},
     .embed = WF_FP8_ROW},
    {MODEL, .name = "mxfp4 all", .attn = WF_MXFP4, .mlp = WF_MXFP4, .expert = {WF_MXFP4, WF_MXFP4}},
    {MODEL, .name = "mxfp4 experts, compressed-tensors' names", .expert = {WF_MXFP4_PACKED, WF_MXFP4_PACKED}},
    {MODEL, .name = "nvfp4 all", .attn = WF_NVFP4, .mlp = WF_NVFP4, .expert = {WF_NVFP4, WF_NVFP4}},
    {MODEL, .name = "nvfp4 experts, compressed-tensors' names", .expert = {WF_NVFP4_PACKED, WF_NVFP4_PACKED}},
    {MODEL, .name = "int8 with a scale a row", .attn = WF_INT8_ROW, .mlp = WF_INT8_ROW,
     .expert = {WF_INT8_ROW, WF_INT8_ROW}, .embed = WF_INT8_ROW},
    {MODEL, .name = "int4 in groups of 128", .mlp = WF_INT4_GROUP128, .expert = {WF_INT4_GROUP128, WF_INT4_GROUP128},
     .hidden = 128, .inter = 1024, .expert_inter = 1024},
};
#pragma GCC diagnostic pop

/* Ranks round each part of a sum to bf16: twice as many roundings behind o and down. */
enum { PERCENT_CPU = 4 };
static const f64 REF_BOUND = 1e-5;

static void same(const random_model *m, const char *what, const f32 *a, const f32 *b) {
    if (memcmp(a, b, TOKENS * (size_t)m->vocab * sizeof *a)) fail_msg("%s, %s: other bits", m->name, what);
}

static void one_split(const char *dir, const random_model *m, i64 tp, const f32 *ref) {
    static const char *const masks[] = {"none", "all"};
    char what[64];
    snprintf(what, sizeof what, "%lld ranks of ref", (long long)tp);
    engine_options o = {.device = "ref", .tp = tp, .threads = tp};
    f32 *a = logits_of(dir, m, o, false), *b;
    near(m, what, a, ref, REF_BOUND);
    if (tp == 2) {
        b = logits_of(dir, m, o, true);
        near(m, what, b, ref, 1e-4);
        free(b);
        o.chunk = 7;
        b = logits_of(dir, m, o, false);
        same(m, "chunks", a, b);
        free(b);
    }
    free(a);
    for (size_t i = tp > 2; i < COUNT_OF(masks); i++) {
        bool exact = m->embed == WF_F32;
        snprintf(what, sizeof what, "%lld ranks of cpu, %s", (long long)tp, masks[i]);
        o = (engine_options){.cpu_mask = masks[i], .tp = tp, .threads = tp};
        a = logits_of(dir, m, o, false), b = logits_of(dir, m, o, false);
        near(m, what, a, ref, exact ? 1e-4 : PERCENT_CPU / 100.0);
        same(m, "another run", a, b);
        free(b);
        b = logits_of(dir, m, o, true);
        near(m, what, b, ref, exact ? 1e-4 : PERCENT_CPU / 100.0);
        free(a), free(b);
    }
}

static void formats(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        const random_model *m = &models[i];
        char dir[64];
        assert_true(random_model_write(m, 23, dir, NULL));
        f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
        for (i64 tp = 2; tp <= 8; tp *= i ? 4 : 2) one_split(dir, m, tp, ref);
        free(ref);
        random_model_remove(dir);
    }
}

/* A line of 80 tokens has two pages: the third rank and those behind it have none of its rows. */
static void divided_kv(const char *dir, const random_model *m, i64 ranks, const f32 *ref) {
    static const char *const types[] = {"auto", "fp8_e4m3"};
    char what[64];
    for (size_t i = 0; i < COUNT_OF(types); i++)
        for (int absorbed = 0; absorbed < 2; absorbed++)
            for (int cpu = 0; cpu < 2; cpu++) {
                snprintf(what, sizeof what, "KV over %lld ranks, %s, %s", (long long)ranks, types[i],
                         absorbed ? "decode form" : "prompt");
                engine_options o = {.device = cpu ? "cpu" : "ref", .kv_dtype = types[i], .threads = 1, .chunk = 33};
                f32 *whole = logits_of(dir, m, (o.tp = ranks, o), absorbed);
                f32 *got = logits_of(dir, m, (o.dcp = ranks, o), absorbed), *again = logits_of(dir, m, o, absorbed);
                if (!absorbed) same(m, what, got, whole); /* the same rows, collected */
                near_from(m, what, got, whole, KV_PAGE, cpu ? PERCENT_CPU / 100.0 : REF_BOUND); /* parts of two ranks */
                if (!i) near(m, what, got, ref, cpu ? PERCENT_CPU / 100.0 : 1e-4);
                same(m, what, got, again);
                o.dcp = 0, o.dp_attention = true; /* one rank attends for all heads */
                f32 *apart = logits_of(dir, m, o, absorbed);
                near(m, "attention apart", apart, whole, cpu ? PERCENT_CPU / 100.0 : REF_BOUND);
                near_from(m, "attention apart", apart, whole, KV_PAGE, cpu ? PERCENT_CPU / 100.0 : REF_BOUND);
                free(whole), free(got), free(again), free(apart);
            }
}

static void kv_pages_over_ranks(void **state) {
    (void)state;
    const int which[] = {0, 2, 6}; /* BF16, INT4 experts, no q_lora */
    for (size_t i = 0; i < COUNT_OF(which); i++) {
        const random_model *m = &models[which[i]];
        char dir[64];
        assert_true(random_model_write(m, 29, dir, NULL));
        f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
        for (i64 ranks = 2; ranks <= 8; ranks *= i ? 4 : 2) divided_kv(dir, m, ranks, ref);
        free(ref);
        random_model_remove(dir);
    }
}

/* Experts in the formats that --moe-format converts to. */
static void converted_experts(void **state) {
    (void)state;
    static const char *const formats[] = {"w4a8", "w2_bf16"};
    char dir[64];
    const random_model *m = &models[2];
    assert_true(random_model_write(m, 23, dir, NULL));
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        for (i64 tp = 1; tp <= 4; tp *= 2) {
            f32 *got = logits_of(dir, m, (engine_options){.device = "ref", .tp = tp, .moe_format = formats[i]}, false);
            near(m, formats[i], got, ref, i ? 0.04 : 0.25); /* INT4 of INT4 again, and int8 activations */
            free(got);
        }
    free(ref);
    random_model_remove(dir);
}

static void refused(const random_model *m, engine_options o, const char *text) {
    engine *g;
    char dir[64];
    err e = {0};
    assert_true(random_model_write(m, 3, dir, NULL));
    o.model_dir = dir;
    status st = engine_open(&g, &o, &e);
    if (st == ST_OK || !strstr(e.text, text)) fail_msg("%s: \"%s\" does not say \"%s\"", m->name, e.text, text);
    assert_null(g);
    random_model_remove(dir);
}

static void what_cannot_be_divided(void **state) {
    (void)state;
    random_model m = models[0];
    refused(&m, (engine_options){.tp = 3}, "--tp 3: 8 attention heads cannot be divided so");
    refused(&m, (engine_options){.tp = 16}, "--tp 16: 8 attention heads");
    refused(&m, (engine_options){.tp = 65}, "--tp is 65, outside 0..64");
    m.expert_inter = 60;
    refused(&m, (engine_options){.tp = 8}, "--tp 8: 60 columns of an expert");
    m = models[0], m.inter = 252;
    refused(&m, (engine_options){.tp = 8}, "--tp 8: 252 columns of the dense layers");
    m = models[0], m.vocab = 5;
    refused(&m, (engine_options){.tp = 8}, "--tp 8: a vocabulary of 5");
    m = models[2], m.expert_inter = 128;
    refused(&m, (engine_options){.tp = 8},
            "rank 0: model.layers.1.mlp.experts.0.down_proj: 8 ranks would hold 16 columns each, which cuts the 32");
    m = models[5], m.expert_inter = 512;
    refused(&m, (engine_options){.tp = 8}, "64 rows each, which cuts the 128");
    refused(&models[0], (engine_options){.gpus = "0,1"}, "--gpus is for --device cuda with --tp");
    refused(&models[0], (engine_options){.tp = 4, .dcp = 2}, "--dcp 2 with --tp 4: all ranks divide the KV cache");
    refused(&models[0], (engine_options){.dcp = 2}, "--dcp 2 with --tp 1: all ranks divide the KV cache");
    refused(&models[0], (engine_options){.dp_attention = true}, "--enable-dp-attention is for --tp");
    refused(&models[0], (engine_options){.tp = 2, .dcp = 2, .dp_attention = true},
            "--enable-dp-attention and --dcp do");
    refused(&models[0], (engine_options){.dcp = 65}, "--dcp is 65, outside 0..64");
    refused(&models[0], (engine_options){.tp = 2, .dcp = 2, .deterministic = true}, "--deterministic with --dcp 2");
    refused(&models[0], (engine_options){.tp = 2, .tp_slice = 2}, "--tp-slice 2 needs --load-format dummy");
}

/* Ranks draw rows of logits that they have a share of; with three, the last has none of one or two rows. */
static void tokens_are_drawn(void **state) {
    (void)state;
    char dir[64];
    random_model m = models[0];
    m.heads = 6, m.inter = m.expert_inter = 96;
    assert_true(random_model_write(&m, 9, dir, NULL));
    for (i64 tp = 1; tp <= 3; tp++)
        draws_agree(tp == 1 ? "one rank" : "ranks", dir, (engine_options){.tp = tp, .device = "ref"},
                    tp > 1 ? REF_BOUND : 0);
    draws_agree("ranks that divide the KV cache", dir, (engine_options){.tp = 3, .dcp = 3, .device = "ref"}, REF_BOUND);
    draws_agree("ranks that attend apart", dir, (engine_options){.tp = 3, .dp_attention = true, .device = "ref"},
                REF_BOUND);
    random_model_remove(dir);
}

/* Also of prompts that are each a rank's own: steps of many sequences. */
static void many_rows_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char dir[64];
        assert_true(random_model_write(&models[2 + 4 * i], 31, dir, NULL));
        for (i64 tp = 2; tp <= 8; tp *= 4) {
            rows_apart_agree("ranks of ref that attend apart", dir,
                             (engine_options){.device = "ref", .tp = tp, .threads = tp, .dp_attention = true},
                             REF_BOUND);
            rows_apart_agree("ranks of cpu that attend apart", dir,
                             (engine_options){.device = "cpu", .tp = tp, .threads = tp, .dp_attention = true},
                             PERCENT_CPU / 100.0);
        }
        random_model_remove(dir);
    }
}

/* ---- Ranks that fail ---- */

static void (*real_norm)(const ops *o, const norm_args *a);
static i64 calls;
static int stall_us;

static void stalling_norm(const ops *o, const norm_args *a) {
    if (++calls == 5) usleep((useconds_t)stall_us);
    real_norm(o, a);
}

/* The step of an engine whose rank 1 is late for its third sum by so long. */
static status late_step(int us, f64 timeout, err *e) {
    engine *g;
    seq *s;
    char dir[64];
    i32 ids[4] = {1, 2, 3, 4};
    f32 *rows = calloc(157 * 8, sizeof *rows);
    engine_options o = {.tp = 3, .dist_timeout = timeout, .device = "ref"};
    random_model m = models[0];
    m.heads = 6, m.inter = m.expert_inter = 96;
    assert_true(random_model_write(&m, 3, dir, NULL));
    o.model_dir = dir;
    assert_int_equal(engine_open(&g, &o, e), ST_OK);
    real_norm = g->ranks.of[1].backend.ops.norm;
    g->ranks.of[1].backend.ops.norm = stalling_norm;
    calls = 0, stall_us = us;
    assert_int_equal(seq_open(&s, g, e), ST_OK);
    table t = {rows, 157};
    status st = seq_run(s, ids, 4, false, LOGITS_LAST, keep, &t, e);
    if (st != ST_OK) { /* and so does every later step, at once */
        err again = {0};
        f64 start = now_s();
        assert_int_equal(seq_len(s), 0);
        assert_int_equal(seq_run(s, ids, 4, false, LOGITS_LAST, keep, &t, &again), ST_DEVICE);
        assert_string_equal(again.text, e->text);
        assert_true(now_s() - start < 5);
    }
    seq_close(s);
    engine_close(g);
    random_model_remove(dir);
    free(rows);
    return st;
}

static void a_rank_that_stalls(void **state) {
    (void)state;
    err e = {0};
    assert_int_equal(late_step(50000, 60, &e), ST_OK);
    assert_int_equal(late_step(600000, 0.1, &e), ST_DEVICE);
    if (!strstr(e.text, "rank 1 did not come to exchange") || !strstr(e.text, "(all-reduce) within 0.1 s"))
        fail_msg("\"%s\" does not name the rank", e.text);
}

typedef struct {
    i64 which;
    i64 ran;
} failing;

static status fails_on_one(rank *k, void *ud, err *e) {
    failing *f = ud;
    __atomic_fetch_add(&f->ran, 1, __ATOMIC_RELAXED);
    if (k->index == f->which) return err_set(e, ST_IO, "its disk is full");
    k->comm->barrier(k->comm);
    return k->comm->finish(k->comm, e);
}

static void a_rank_that_fails(void **state) {
    (void)state;
    for (i64 which = 0; which < 4; which++) {
        char want[64];
        err e = {0};
        ranks r;
        model_config c = {.n_heads = 8, .inter_dense = 8, .inter_expert = 8, .vocab = 8, .ranks = 1};
        failing f = {which, 0};
        assert_int_equal(ranks_open(&r, &c, &(rank_layout){.tp = 4, .pp = 1}, NULL, false, 60, &e), ST_OK);
        assert_int_equal(ranks_each(&r, fails_on_one, &f, &e), ST_IO);
        snprintf(want, sizeof want, "rank %lld: its disk is full", (long long)which);
        assert_string_equal(e.text, want);
        assert_int_equal(f.ran, 4);
        ranks_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats),
        cmocka_unit_test(kv_pages_over_ranks),
        cmocka_unit_test(converted_experts),
        cmocka_unit_test(what_cannot_be_divided),
        cmocka_unit_test(tokens_are_drawn),
        cmocka_unit_test(many_rows_apart),
        cmocka_unit_test(a_rank_that_stalls),
        cmocka_unit_test(a_rank_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
