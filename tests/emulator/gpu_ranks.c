/* Models on ranks of emulated GPUs (EMU_GPUS=8): nano and random ones divided among two and four, recorded and launch
 * by launch, by our exchanges and by a fake NCCL; and what is refused. gpu_exchanges.c has the exchanges themselves. */
#include "unit.h"

#include "base/log.h"
#include "drawn_tokens.h"
#include "kernels/gpu/gpu.h"
#include "model/model_internal.h"
#include "model_logits.h"
#include "rows_apart.h"
#include "runtime/engine_internal.h"
#include <unistd.h>

static const char *const FAKE = "libfake_nccl.so"; /* beside the emulated driver */

static void same(const char *what, const f32 *a, const f32 *b, i64 vocab) {
    if (memcmp(a, b, TOKENS * (size_t)vocab * sizeof *a)) fail_msg("%s: other bits", what);
}

/* The same with a KV cache in parts: pages of 80 tokens lie on two ranks, others have none. */
static void divided_kv(const char *dir, const random_model *m, i64 tp, const char *gpus) {
    engine_options o = {.device = "cuda", .tp = tp, .gpus = gpus, .chunk = 33};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *whole = logits_of(dir, m, o, false);
    o.dcp = tp;
    f32 *prompt = logits_of(dir, m, o, false), *decode = logits_of(dir, m, o, true);
    same("a prompt whose pages are collected", prompt, whole, m->vocab);
    near_from(m, "KV pages on several GPUs", decode, ref, KV_PAGE, 0.04);
    o.eager = true;
    f32 *again = logits_of(dir, m, o, true);
    same("KV pages on several GPUs, launch by launch", again, decode, m->vocab);
    free(ref), free(whole), free(prompt), free(decode), free(again);
}

/* The same where sequences have a rank each. */
static void apart(const char *dir, const random_model *m) {
    const engine_options o = {.device = "cuda", .tp = 2, .chunk = 33, .dp_attention = true};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
    for (int decode = 0; decode < 2; decode++) {
        f32 *got = logits_of(dir, m, o, decode);
        near(m, "attention apart", got, ref, 0.04);
        near_from(m, "attention apart, the second page", got, ref, KV_PAGE, 0.04);
        free(got);
    }
    free(ref);
}

/* The logits of so many ranks beside those of one GPU and of ref. */
static void divided(const char *dir, const random_model *m, i64 tp, const char *gpus) {
    engine_options o = {.device = "cuda"};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *one = logits_of(dir, m, o, true);
    o.tp = tp, o.gpus = gpus;
    f32 *all = logits_of(dir, m, o, true), *again;
    o.eager = true;
    again = logits_of(dir, m, o, true);
    o.eager = false;
    near(m, "one GPU", one, ref, 0.04);
    near(m, "ranks", all, ref, 0.04);
    same("another run, launch by launch", all, again, m->vocab);
    free(again);
    o.disable_fused = tp > 2;
    again = logits_of(dir, m, o, false);
    near(m, o.disable_fused ? "a prompt by primitive operations" : "a prompt", again, ref, 0.04);
    free(again), free(all), free(one), free(ref);
}

enum { ROWS_DIVIDED = DEFERRED_ROWS + 3 /* of a chunk */ };
static void divide_few_rows(engine *g) {
    for (i64 i = 0; i < g->ranks.held; i++) {
        gpu_comm_norm_apart(g->ranks.of[i].data, DEFERRED_ROWS + 1); /* as few as may be */
        gpu_comm_divide(g->ranks.of[i].data, DEFERRED_ROWS + 1);
    }
}

/* Prompts whose rows ranks have divided among them between layers: each norms its own, multiplies them with q_a and
 * kv_a, and has products store the others' parts of a sum where it is taken. */
static void rows_divided(const char *dir, const random_model *m, engine_options o) {
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *apart = logits_of(dir, m, o, false);
    logits_opened = divide_few_rows;
    f32 *divided = logits_of(dir, m, o, false), *again = logits_of(dir, m, o, false);
    logits_opened = NULL;
    near(m, "a prompt whose rows are divided", divided, ref, 0.04);
    near(m, "a prompt whose rows are divided, beside one whose are not", divided, apart, 0.02);
    near_from(m, "the last chunk behind rows that were divided", divided, apart, ROWS_DIVIDED, 0.02);
    same("rows divided, again", divided, again, m->vocab);
    free(ref), free(apart), free(divided), free(again);
}

enum { SENT_SEQUENCES = 70 };
/* Logits of two steps: many answers in parts of each rank, and prompts mixed with answers. */
static f32 *sent_logits(const char *dir, engine_options o, void (*opened)(engine *)) {
    static const struct {
        i64 sequences, prompts;
        bool together;
    } steps[] = {{APART_SEQUENCES, 0, true}, {SENT_SEQUENCES, APART_PROMPTS, false}};
    static apart_step s;
    engine *g;
    err e = {0};
    o.model_dir = dir, o.context = 512, o.max_running = APART_SEQUENCES, o.chunk = 512;
    o.kv_tokens = (APART_PAGES + 2 * o.tp) * KV_PAGE;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    opened(g);
    const i64 vocab = g->config.vocab, each = APART_SEQUENCES * vocab;
    f32 *all = calloc((size_t)(COUNT_OF(steps) * each), sizeof *all);
    for (i64 i = 0; i < (i64)COUNT_OF(steps); i++) {
        apart_fill(&s, steps[i].sequences, steps[i].prompts, i, steps[i].together, o.tp);
        s.b.logits = all + i * each;
        if (engine_forward(g, &s.b, &e) != ST_OK) fail_msg("step %lld: %s", (long long)i, e.text);
    }
    engine_close(g);
    return all;
}

static void norm_together(engine *g) {
    for (i64 i = 0; i < g->ranks.held; i++) gpu_comm_norm_apart(g->ranks.of[i].data, INT64_MAX);
}

/* Rows that go from the rank that attends to the one that norms, and back, instead of by sums over all. */
static void rows_sent(const char *what, const char *dir, const random_model *m, engine_options o) {
    f32 *summed = sent_logits(dir, o, norm_together), *sent = sent_logits(dir, o, divide_few_rows);
    i64 there = 0;
    for (i64 i = 0; i < 2 * APART_SEQUENCES * m->vocab; i++) {
        there += summed[i] != 0;
        if (summed[i] != sent[i]) fail_msg("%s: logit %lld: %g, not %g", what, (long long)i, sent[i], summed[i]);
    }
    assert_true(there > (APART_PROMPTS + SENT_SEQUENCES + APART_SEQUENCES) * m->vocab / 2);
    free(summed), free(sent);
}

typedef struct {
    bf16 *of[2]; /* [rows, taps * hidden] of each rank */
    u64 bytes;
} rank_features;

static status read_features(rank *k, void *ud, err *e) {
    const rank_features *f = ud;
    if (!k->draft) return ST_OK;
    k->backend.device->read(k->backend.device, f->of[k->place], k->model->features, f->bytes);
    return k->backend.device->finish(k->backend.device, e);
}

/* A draft reads all rows of the residual stream, of which each of two ranks has kept up its own; and where there are
 * stages, what those in front of the last one have kept. */
static void features_are_whole(i64 stages) {
    const engine_options o = {.model_dir = "models/nano",
                              .device = "cuda",
                              .tp = 2,
                              .pp = stages,
                              .max_running = 1,
                              .context = 256,
                              .draft_dir = "models/nano-eagle3"};
    engine *g;
    seq *s;
    err e = {0};
    i32 ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = 300 + i;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    divide_few_rows(g);
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    assert_int_equal(seq_run(s, ids, TOKENS, false, LOGITS_NONE, NULL, NULL, &e), ST_OK);
    rank_features f = {.bytes = (u64)(TOKENS * g->lim.n_taps * g->config.hidden) * sizeof(bf16)};
    const i64 hidden = g->config.hidden, taps = g->lim.n_taps;
    assert_true(f.bytes);
    for (int r = 0; r < 2; r++) f.of[r] = calloc(1, f.bytes);
    assert_int_equal(ranks_each(&g->ranks, read_features, &f, &e), ST_OK);
    assert_memory_equal(f.of[0], f.of[1], f.bytes);
    for (i64 row = 0; row < TOKENS * taps; row++) {
        i64 kept = 0;
        for (i64 i = 0; i < hidden; i++) kept += f.of[0][row * hidden + i] != 0;
        assert_true(kept > hidden / 2);
    }
    free(f.of[0]), free(f.of[1]);
    seq_close(s);
    engine_close(g);
}

/* Whole experts a group: read once for all ranks, which take their own. With --deterministic the same bits wherever
 * they are, from recordings and launch by launch. */
static void experts_spread(const char *dir, const random_model *m, i64 tp, i64 ep) {
    engine_options o = {.device = "cuda", .tp = tp, .ep = ep, .chunk = 33};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *bits[2] = {NULL};
    for (int way = 0; way < 6; way++) {
        o.deterministic = way > 2, o.eager = way == 1, o.ep_redundant = way == 2 || way == 4 ? ep : 0;
        f32 *got = logits_of(dir, m, o, way != 5);
        near(m, "experts spread over ranks", got, ref, 0.04);
        if (way == 1) same("spread, launch by launch", got, bits[0], m->vocab);
        if (way == 4) same("copies of experts elsewhere", got, bits[1], m->vocab);
        if (way == 0 || way == 3)
            bits[way / 3] = got;
        else
            free(got);
    }
    free(ref), free(bits[0]), free(bits[1]);
}

/* NCCL's own sums hang on how many values there are; with --deterministic they have the bits of our exchanges. */
static void nccl_in_order(const char *dir, const random_model *m) {
    engine_options o = {.device = "cuda", .tp = 4, .chunk = 33};
    f32 *all[2][2]; /* deterministic or not, by NCCL or not */
    setenv("FAKE_NCCL", "ring", 1);
    for (int way = 0; way < 4; way++) {
        o.deterministic = way / 2, o.nccl = way % 2;
        all[way / 2][way % 2] = logits_of(dir, m, o, true);
    }
    unsetenv("FAKE_NCCL");
    same("sums by NCCL in order", all[1][1], all[1][0], m->vocab);
    near(m, "sums by NCCL in its own", all[0][1], all[0][0], 0.04);
    assert_true(memcmp(all[0][0], all[0][1], (size_t)(TOKENS * m->vocab) * sizeof(f32)) !=
                0); /* else it says nothing */
    for (int way = 0; way < 4; way++) free(all[way / 2][way % 2]);
}

/* Experts that move between steps, which are recorded, in every way in which a GPU keeps them: no bit changes. */
static void experts_move(const random_model *like, weight_format f) {
    enum { STEPS = 10 };
    random_model m = *like;
    char dir[64];
    err e = {0};
    i32 ids[STEPS];
    f32 *rows[2];
    m.expert[0] = m.expert[1] = f, m.hidden = m.expert_inter = 128, m.experts = 8, m.top_k = 3;
    assert_true(random_model_write(&m, 37, dir, NULL));
    for (int i = 0; i < STEPS; i++) ids[i] = (i32)(((u32)i * 2654435761u >> 8) % (u32)m.vocab);
    for (int moves = 0; moves < 2; moves++) {
        engine *g;
        seq *s;
        const engine_options o = {.model_dir = dir,
                                  .device = "cuda",
                                  .tp = 2,
                                  .ep = 2,
                                  .ep_redundant = 4,
                                  .dp_attention = f == WF_INT4_GROUP,
                                  .eplb_steps = moves ? 3 : 0,
                                  .deterministic = true};
        table t = {rows[moves] = calloc((size_t)(STEPS * m.vocab), sizeof(f32)), m.vocab};
        if (engine_open(&g, &o, &e) != ST_OK || seq_open(&s, g, &e) != ST_OK) fail_msg("%s", e.text);
        for (int round = 0; round < 2; round++) {
            seq_truncate(s, 0);
            for (int i = 0; i < STEPS; i++)
                if (seq_run(s, ids + i, 1, true, LOGITS_ALL, keep, &t, &e) != ST_OK) fail_msg("%s", e.text);
        }
        if (moves && g->balance.moved < 2) fail_msg("%s: nothing moved", weight_format_name(f));
        seq_close(s);
        engine_close(g);
    }
    if (memcmp(rows[0], rows[1], (size_t)(STEPS * m.vocab) * sizeof(f32)))
        fail_msg("experts in %s that moved: other bits", weight_format_name(f));
    free(rows[0]), free(rows[1]);
    random_model_remove(dir);
}

/* Stages of layers: the logits of ref, launch by launch the same bits as from recordings. */
static void staged(const char *dir, const random_model *m, const engine_options *how) {
    engine_options o = *how;
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *all = logits_of(dir, m, o, true);
    near(m, "stages", all, ref, 0.04);
    o.eager = true;
    f32 *again = logits_of(dir, m, o, true);
    same("stages, launch by launch", again, all, m->vocab);
    free(again);
    again = logits_of(dir, m, o, false);
    near(m, "stages, a prompt", again, ref, 0.04);
    free(again), free(all), free(ref);
}

/* Two ranks of a slice of four have the vocabulary of two, and where the KV cache is divided by four they play the two
 * that are missing: each part is merged twice, which changes nothing but the rounding. */
static void slice_of_four(const char *dir, const random_model *m) {
    engine_options o = {.device = "cuda", .load_format = "dummy", .tp = 2, .tp_slice = 4};
    const i64 there = m->vocab / 4 * 2;
    f32 *whole = logits_of(dir, m, o, true);
    for (i64 i = 0; i < TOKENS * m->vocab; i++)
        if (isfinite(whole[i]) != (i % m->vocab < there)) fail_msg("logit %lld is %g", (long long)i, (f64)whole[i]);
    o.eager = true;
    f32 *again = logits_of(dir, m, o, true);
    same("two ranks of four, launch by launch", again, whole, m->vocab);
    o.dcp = 4;
    f32 *divided = logits_of(dir, m, o, true);
    for (i64 i = 0; i < TOKENS * m->vocab; i++)
        if (!isfinite(whole[i])) whole[i] = divided[i] = 0;
    near(m, "two ranks of four that divide the KV cache", divided, whole, 0.04);
    free(whole), free(again), free(divided);
}

/* A small model, which takes a tenth of nano's time. */
static random_model four_heads(i64 layers) {
    return (random_model){.name = "four heads",
                          .vocab = 157,
                          .hidden = 64,
                          .layers = layers,
                          .dense = 1,
                          .heads = 4,
                          .q_lora = 32,
                          .kv_lora = 64,
                          .nope = 16,
                          .rope = 16,
                          .v = 16,
                          .inter = 128,
                          .expert_inter = 128,
                          .experts = 6,
                          .top_k = 2,
                          .shared = 1,
                          .context = 512,
                          .attn = WF_BF16,
                          .mlp = WF_BF16,
                          .expert = {WF_INT4_GROUP, WF_INT4_GROUP},
                          .embed = WF_BF16,
                          .router = WF_BF16};
}

static void models_divided(void **state) {
    (void)state;
    const random_model nano = {.name = "nano", .vocab = 2048};
    const random_model four = four_heads(2);
    random_model many = four;
    many.top_k = 4;
    char dir[64];
    divided("models/nano", &nano, 2, NULL);
    divided_kv("models/nano", &nano, 2, NULL);
    /* few rows: experts and what lies in front of them in one launch. One GPU's second row is 0.072 from ref's */
    draws_agree("nano on two GPUs", "models/nano", (engine_options){.device = "cuda", .tp = 2}, 0.09);
    assert_true(random_model_write(&four, 31, dir, NULL));
    divided(dir, &four, 2, "3,3");
    divided(dir, &four, 4, "0,1,0,1");
    divided_kv(dir, &four, 4, "0,1,0,1");
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 2});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 4, .dcp = 4});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 4, .ep = 2, .chunk = ROWS_DIVIDED + 3});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 2, .pp = 2});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 2, .dp_attention = true});
    slice_of_four(dir, &four);
    draws_agree("one GPU", dir, (engine_options){.device = "cuda"}, 0);
    draws_agree("four GPUs", dir, (engine_options){.device = "cuda", .tp = 4}, 0);
    nccl_in_order(dir, &four);
    experts_spread(dir, &four, 2, 2);
    experts_spread(dir, &four, 4, 2);
    for (int f = WF_BF16; f <= WF_INT8_ROW; f++) experts_move(&four, (weight_format)f);
    apart(dir, &four);
    rows_apart_agree("two GPUs with many sequences apart", dir,
                     (engine_options){.device = "cuda", .tp = 2, .dp_attention = true}, 0.04);
    rows_sent("stages", dir, &four, (engine_options){.device = "cuda", .tp = 2, .pp = 2, .dp_attention = true});
    rows_sent("four ranks and experts", dir, &four,
              (engine_options){.device = "cuda", .tp = 4, .ep = 2, .dp_attention = true});
    draws_agree("two GPUs that attend apart", dir, (engine_options){.device = "cuda", .tp = 2, .dp_attention = true},
                0.04);
    draws_agree("two GPUs that attend apart, with whole experts", dir,
                (engine_options){.device = "cuda", .tp = 2, .ep = 2, .dp_attention = true}, 0.04);
    draws_agree("two parts of a GPU", dir, (engine_options){.device = "cuda", .tp = 2, .gpus = "2,2"}, 0.04);
    random_model_remove(dir);
    assert_true(random_model_write(&many, 37, dir, NULL)); /* of as many experts a row as go in pieces of 16 bytes */
    for (i64 stages = 1; stages <= 2; stages++) features_are_whole(stages);
    for (i64 tp = 2; tp <= 4; tp += 2)
        rows_divided(dir, &many, (engine_options){.device = "cuda", .tp = tp, .chunk = ROWS_DIVIDED});
    random_model_remove(dir);
}

static void models_in_stages(void **state) {
    (void)state;
    const random_model nano = {.name = "nano", .vocab = 2048}, six = four_heads(6), two = four_heads(2);
    char dir[64];
    assert_true(random_model_write(&six, 31, dir, NULL));
    staged(dir, &six, &(engine_options){.device = "cuda", .pp = 3, .pp_layers = "4,1,1", .gpus = "3,3,0"});
    staged("models/nano", &nano, &(engine_options){.device = "cuda", .tp = 2, .pp = 2, .chunk = 33});
    staged(dir, &six, &(engine_options){.device = "cuda", .tp = 2, .pp = 2, .dcp = 2, .chunk = 33, .gpus = "1,1,1,1"});
    staged(dir, &six, &(engine_options){.device = "cuda", .tp = 2, .pp = 2, .nccl = true});
    random_model_remove(dir);
    assert_true(random_model_write(&two, 31, dir, NULL)); /* the deeper, the further are few rows' logits from ref's */
    draws_agree("two stages", dir, (engine_options){.device = "cuda", .tp = 2, .pp = 2}, 0.09);
    draws_agree("two stages by NCCL", dir, (engine_options){.device = "cuda", .pp = 2, .nccl = true}, 0.09);
    random_model_remove(dir);
}

/* Steps that are recorded have NCCL's calls in them: a failure behind them ends, too. */
static void nccl_fails_behind_recordings(void **state) {
    (void)state;
    const engine_options o = {.model_dir = "models/nano", .device = "cuda", .tp = 2, .nccl = true};
    enum { MANY = 5 };
    i32 ids[MANY] = {300, 301, 302, 303, 304};
    engine *g;
    seq *s;
    err e = {0};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    assert_int_equal(seq_run(s, ids, MANY, true, LOGITS_NONE, NULL, NULL, &e), ST_OK);
    table t = {calloc((size_t)(MANY * 2048), sizeof(f32)), 2048};
    seq_truncate(s, 0);
    assert_int_equal(seq_run(s, ids, MANY, true, LOGITS_ALL, keep, &t, &e), ST_OK); /* recorded */
    setenv("FAKE_NCCL", "async", 1);
    seq_truncate(s, 0);
    assert_int_equal(seq_run(s, ids, MANY, true, LOGITS_ALL, keep, &t, &e), ST_DEVICE);
    if (!strstr(e.text, "an exchange under way: internal error")) fail_msg("\"%s\"", e.text);
    const f64 start = now_s();
    seq_close(s);
    engine_close(g);
    assert_true(now_s() - start < 15);
    unsetenv("FAKE_NCCL");
    free(t.rows);
}

static void nccl_models(void **state) {
    (void)state;
    const random_model four = four_heads(2);
    char dir[64];
    assert_true(random_model_write(&four, 31, dir, NULL));
    engine_options o = {.device = "cuda", .tp = 2, .nccl = true};
    f32 *ref = logits_of(dir, &four, (engine_options){.device = "ref"}, false);
    f32 *all = logits_of(dir, &four, o, true), *prompt = logits_of(dir, &four, o, false);
    o.eager = true;
    f32 *again = logits_of(dir, &four, o, true);
    near(&four, "ranks by NCCL", all, ref, 0.04);
    near(&four, "a prompt by NCCL", prompt, ref, 0.04);
    same("another run by NCCL, launch by launch", all, again, four.vocab);
    setenv("EMU_NO_PEERS", "1", 1);
    o.nccl = false; /* who cannot reach the other's memory goes to it by itself */
    f32 *apart = logits_of(dir, &four, o, true);
    same("GPUs that do not reach each other's memory", apart, all, four.vocab);
    unsetenv("EMU_NO_PEERS");
    draws_agree("two ranks by NCCL", dir, (engine_options){.device = "cuda", .tp = 2, .nccl = true}, 0.09);
    random_model_remove(dir);
    free(ref), free(all), free(prompt), free(again), free(apart);
}

static void refused(engine_options o, const char *text) {
    engine *g;
    err e = {0};
    o.model_dir = "models/nano", o.device = o.device ? o.device : "cuda";
    status st = engine_open(&g, &o, &e);
    if (st == ST_OK || !strstr(e.text, text)) fail_msg("\"%s\" does not say \"%s\"", e.text, text);
    assert_null(g);
}

static void what_is_refused(void **state) {
    (void)state;
    refused((engine_options){.pp = 7}, "--pp 7: 6 layers cannot be divided so");
    refused((engine_options){.pp = 2, .pp_layers = "3,4"}, "--pp-layers: 7 layers in all, the model has 6");
    refused((engine_options){.tp = 2, .gpus = "0,8"}, "rank 1: --device cuda: there is no GPU 8");
    refused((engine_options){.tp = 2, .gpus = "0"}, "--gpus 0: 2 numbers of GPUs are wanted");
    refused((engine_options){.tp = 2, .gpus = "0,1,2"}, "--gpus 0,1,2: 2 numbers");
    refused((engine_options){.tp = 2, .gpus = "0,x"}, "--gpus 0,x: 2 numbers");
    refused((engine_options){.tp = 2, .gpus = "1,1,1"}, "--gpus 1,1,1: 2 numbers");
    refused((engine_options){.tp = 4, .tp_slice = 2, .load_format = "dummy"}, "--tp 4 with --tp-slice 2: ");
    refused((engine_options){.tp = 1, .tp_slice = 2, .dcp = 4, .load_format = "dummy"}, "--dcp 4 with --tp-slice 2: ");
    refused((engine_options){.gpus = "1"}, "--gpus is for --device cuda with --tp");
    refused((engine_options){.tp = 2, .device = "cuda:1"}, "--device cuda:1 with --tp: --gpus says which");
    refused((engine_options){.nccl = true}, "--disable-custom-all-reduce is for --device cuda with --tp");
    refused((engine_options){.nccl = true, .tp = 2, .gpus = "1,1"}, "ranks 0 and 1 have parts of GPU 1: NCCL takes a");
    refused((engine_options){.nccl = true, .tp = 2, .dcp = 2}, "--dcp 2: GPUs that divide the KV cache read");
    setenv("FAKE_NCCL", "start", 1);
    refused((engine_options){.nccl = true, .tp = 2}, "NCCL does not start on 2 GPUs: unhandled error");
    setenv("FAKE_NCCL", "slow", 1);
    refused((engine_options){.nccl = true, .tp = 2, .dist_timeout = 0.1}, "NCCL did not start within 0.1 s");
    sleep(2); /* that it came back later is nobody's concern */
    setenv("FAKE_NCCL", "stuck", 1);
    refused((engine_options){.nccl = true, .tp = 2, .dist_timeout = 0.2}, "NCCL did not start within 0.2 s");
    unsetenv("FAKE_NCCL");
    setenv("MOONLET_NCCL", "libc.so.6", 1);
    refused((engine_options){.nccl = true, .tp = 2}, "NCCL: libc.so.6 has no ncclGetVersion");
    setenv("MOONLET_NCCL", "libnone.so", 1);
    refused((engine_options){.nccl = true, .tp = 2}, "no NCCL: libnone.so: cannot open");
    setenv("EMU_FILLED", "1", 1);
    refused((engine_options){.tp = 2}, "rank 1: weights of 11.6 MB, a KV cache of");
    unsetenv("EMU_FILLED");
    setenv("EMU_NO_PEERS", "1", 1);
    refused((engine_options){.tp = 2},
            "rank 0: GPU 0 (emulated GPU) cannot reach the memory of GPU 1 (emulated GPU): no peer access; no NCCL: ");
    unsetenv("EMU_NO_PEERS");
    setenv("MOONLET_NCCL", FAKE, 1);
}
int main(void) {
    const struct CMUnitTest models[] = {
        cmocka_unit_test(what_is_refused), cmocka_unit_test(nccl_fails_behind_recordings),
        cmocka_unit_test(models_divided), cmocka_unit_test(nccl_models), cmocka_unit_test(models_in_stages)};
    setenv("MOONLET_NCCL", FAKE, 1);
    return cmocka_run_group_tests(models, NULL, NULL);
}
