/* Expert parallelism among ranks of the host: the logits of 2, 4 and 8 groups and of groups of several ranks, in
 * several formats; with --deterministic the same bits wherever the experts are, and while they move; what is
 * refused. */
#include "unit.h"

#include "base/file.h"
#include "base/log.h"
#include "model_logits.h"
#include "runtime/engine_internal.h"
#include <unistd.h>

#define MODEL                                                                                                          \
    .vocab = 157, .hidden = 64, .layers = 3, .dense = 1, .heads = 8, .q_lora = 32, .kv_lora = 64, .nope = 24,          \
    .rope = 8, .v = 32, .inter = 256, .expert_inter = 128, .experts = 8, .top_k = 3, .shared = 2, .context = 512,      \
    .attn = WF_BF16, .mlp = WF_BF16, .expert = {WF_BF16, WF_BF16}, .embed = WF_BF16, .router = WF_BF16

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const random_model models[] = {
    {MODEL, .name = "bf16"},
    {MODEL, .name = "int4 experts", .expert = {WF_INT4_GROUP, WF_INT4_GROUP}},
    {MODEL, .name = "fp8 with a scale a row", .expert = {WF_FP8_ROW, WF_FP8_ROW}},
    {MODEL, .name = "float32", .norm_f32 = true, .attn = WF_F32, .mlp = WF_F32, .expert = {WF_F32, WF_F32},
     .embed = WF_F32},
};
#pragma GCC diagnostic pop

static const struct {
    i64 tp, ep, redundant;
    bool apart;
} splits[] = {{2, 2, 0, false}, {4, 2, 0, false}, {8, 8, 0, false}, {4, 4, 4, false},
              {8, 2, 6, false}, {2, 2, 8, true},  {4, 4, 0, true}};

static void spread(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        const random_model *m = &models[i];
        char dir[64], what[64];
        assert_true(random_model_write(m, 41, dir, NULL));
        f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
        for (size_t s = 0; s < COUNT_OF(splits); s++)
            for (int cpu = 0; cpu < 2; cpu++) {
                const engine_options o = {.device = cpu ? "cpu" : "ref",
                                          .tp = splits[s].tp,
                                          .ep = splits[s].ep,
                                          .ep_redundant = splits[s].redundant,
                                          .dp_attention = splits[s].apart,
                                          .threads = splits[s].tp,
                                          .chunk = 33};
                snprintf(what, sizeof what, "%lld of %lld ranks on %s", (long long)o.ep, (long long)o.tp, o.device);
                for (int decode = 0; decode < 2; decode++) {
                    f32 *got = logits_of(dir, m, o, decode);
                    near(m, what, got, ref, !cpu || m->embed == WF_F32 ? 1e-4 : 0.04);
                    free(got);
                }
            }
        free(ref);
        random_model_remove(dir);
    }
}

/* Where all layers' experts are, as a file. */
static void write_places(const char *path, const char *row) {
    FILE *f = fopen(path, "w");
    fprintf(f, "{\"physical_to_logical_map\": [[%s], [%s], [%s]]}", row, row, row);
    assert_int_equal(fclose(f), 0);
}

static f32 *placed(const char *dir, const random_model *m, engine_options o, const char *row, bool decode) {
    char path[96];
    snprintf(path, sizeof path, "%s/places.json", dir);
    if (row) write_places(path, row), o.ep_placement = path;
    return logits_of(dir, m, o, decode);
}

/* The sum of a row's experts is one rank's, whoever has them: --deterministic. Without it bits follow the placement. */
static void the_same_bits_wherever_they_are(void **state) {
    (void)state;
    static const char *const rows[] = {"7,5,3,1,0,2,4,6", "4,5,6,7,0,1,2,3", "0,7,1,6,2,5,3,4"};
    bool differ = false;
    for (size_t i = 0; i < COUNT_OF(models); i++)
        for (int cpu = 0; cpu < 2; cpu++)
            for (int decode = 0; decode < 2; decode++) {
                const random_model *m = &models[i];
                char dir[64], path[96];
                assert_true(random_model_write(m, 43, dir, NULL));
                engine_options o = {
                    .device = cpu ? "cpu" : "ref", .tp = 4, .ep = 4, .threads = 2, .chunk = 33, .deterministic = true};
                f32 *first = placed(dir, m, o, NULL, decode);
                o.deterministic = false;
                f32 *parts = placed(dir, m, o, NULL, decode);
                near(m, "sums of whole experts", first, parts, cpu && m->embed != WF_F32 ? 0.04 : 1e-4);
                for (size_t p = 0; p < COUNT_OF(rows); p++) {
                    o.deterministic = true;
                    f32 *other = placed(dir, m, o, rows[p], decode);
                    if (memcmp(first, other, TOKENS * (size_t)m->vocab * sizeof *other))
                        fail_msg("%s on %s, placed %s: other bits", m->name, o.device, rows[p]);
                    o.deterministic = false;
                    f32 *plain = placed(dir, m, o, rows[p], decode);
                    differ = differ || memcmp(parts, plain, TOKENS * (size_t)m->vocab * sizeof *other);
                    free(other), free(plain);
                }
                snprintf(path, sizeof path, "%s/places.json", dir);
                unlink(path);
                free(first), free(parts);
                random_model_remove(dir);
            }
    assert_true(differ); /* else the comparison says nothing */
}

/* Copies take turns by rows, which changes no bit either. */
static void the_same_bits_from_copies(void **state) {
    (void)state;
    const random_model *m = &models[1];
    char dir[64], path[96];
    assert_true(random_model_write(m, 47, dir, NULL));
    engine_options o = {.tp = 2, .ep = 2, .ep_redundant = 4, .threads = 2, .deterministic = true};
    f32 *first = placed(dir, m, o, NULL, false), *other = placed(dir, m, o, "0,1,2,3,4,5,0,1,2,3,6,7", false);
    assert_memory_equal(first, other, TOKENS * (size_t)m->vocab * sizeof *other);
    snprintf(path, sizeof path, "%s/places.json", dir);
    unlink(path);
    free(first), free(other);
    random_model_remove(dir);
}

/* Experts that move while rows are computed: their weights come from the checkpoint in every format, columns of a share
 * and conversions too, and no bit of an answer changes. */
static void the_same_bits_while_they_move(void **state) {
    (void)state;
    static const struct {
        i64 tp, ep, redundant;
        const char *device, *format;
    } ways[] = {{2, 2, 0, "ref", NULL},      {4, 2, 4, "cpu", NULL},   {8, 4, 0, "cpu", NULL},
                {4, 2, 2, "ref", "w2_bf16"}, {2, 2, 4, "ref", "w4a8"}, {4, 4, 4, "cpu", NULL}};
    for (size_t i = 0; i < COUNT_OF(models); i++)
        for (size_t w = 0; w < COUNT_OF(ways); w++) {
            const random_model *m = &models[i];
            if (ways[w].format && m->embed == WF_F32) continue;
            char dir[64];
            err e = {0};
            assert_true(random_model_write(m, 53, dir, NULL));
            engine_options o = {.device = ways[w].device,
                                .moe_format = ways[w].format,
                                .tp = ways[w].tp,
                                .ep = ways[w].ep,
                                .ep_redundant = ways[w].redundant,
                                .deterministic = !ways[w].format || strcmp(ways[w].format, "w4a8"),
                                .threads = 2,
                                .model_dir = dir};
            f32 *still = logits_of(dir, m, o, true);
            o.eplb_steps = 7;
            engine *g;
            seq *s;
            i32 ids[TOKENS];
            table t = {calloc((size_t)(TOKENS * m->vocab), sizeof(f32)), m->vocab};
            for (int k = 0; k < TOKENS; k++) ids[k] = (i32)(((u32)k * 2654435761u >> 8) % (u32)m->vocab);
            if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s: %s", m->name, e.text);
            assert_int_equal(engine_deterministic(g), o.deterministic);
            assert_int_equal(seq_open(&s, g, &e), ST_OK);
            for (int round = 0; round < 3; round++) {
                seq_truncate(s, 0);
                for (int k = 0; k < TOKENS; k++) /* a step each */
                    if (seq_run(s, ids + k, 1, true, LOGITS_LAST, keep, &t, &e) != ST_OK)
                        fail_msg("%s, way %zu, round %d, step %d: %s", m->name, w, round, k, e.text);
                if (!o.deterministic)
                    near(m, "experts that move", t.rows, still, 0.04);
                else if (memcmp(still, t.rows, TOKENS * (size_t)m->vocab * sizeof(f32)))
                    fail_msg("%s on %s, %lld groups of %lld ranks: other bits", m->name, o.device, (long long)o.ep,
                             (long long)o.tp);
            }
            assert_true(g->balance.rebalances > 1 && g->balance.moved > 2);
            seq_close(s);
            engine_close(g);
            free(still), free(t.rows);
            random_model_remove(dir);
        }
}

static void refused(engine_options o, const char *text) {
    engine *g;
    char dir[64];
    err e = {0};
    assert_true(random_model_write(&models[0], 3, dir, NULL));
    o.model_dir = dir;
    status st = engine_open(&g, &o, &e);
    if (st == ST_OK || !strstr(e.text, text)) fail_msg("\"%s\" does not say \"%s\"", e.text, text);
    assert_null(g);
    random_model_remove(dir);
}

/* Every rank has experts of one format, but not the same one: any may have to hold any expert. */
static void experts_of_two_formats(void **state) {
    (void)state;
    random_model m = models[0];
    m.mixed_from = 4;
    for (int way = 0; way < 4; way++) {
        engine *g;
        char dir[64];
        err e = {0};
        assert_true(random_model_write(&m, 3, dir, NULL));
        const engine_options o = {
            .model_dir = dir, .device = way % 2 ? "cpu" : "ref", .tp = 2, .ep = way / 2 * 2, .eplb_steps = way / 2 * 3};
        status st = engine_open(&g, &o, &e);
        if (st == ST_OK || !strstr(e.text, "the layer's first expert as")) fail_msg("\"%s\"", e.text);
        assert_null(g);
        random_model_remove(dir);
    }
}

/* Who reads experts while others are written would answer from both. */
static void a_checkpoint_that_changes(void **state) {
    (void)state;
    const random_model *m = &models[0];
    char dir[64], path[96];
    engine *g;
    seq *s;
    err e = {0};
    i32 ids[2] = {1, 2};
    assert_true(random_model_write(m, 59, dir, NULL));
    const engine_options o = {.model_dir = dir, .tp = 2, .ep = 2, .threads = 2, .eplb_steps = 5};
    if (engine_open(&g, &o, &e) != ST_OK || seq_open(&s, g, &e) != ST_OK) fail_msg("%s", e.text);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc(0, f), 0);
    assert_int_equal(fclose(f), 0);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < 30; i++) {
        seq_truncate(s, 0);
        st = seq_run(s, ids, 2, true, LOGITS_NONE, NULL, NULL, &e);
    }
    if (st != ST_IO || !strstr(e.text, "model.safetensors: has changed since it was opened")) fail_msg("%s", e.text);
    seq_close(s);
    engine_close(g);
    random_model_remove(dir);
}

static void what_is_refused(void **state) {
    (void)state;
    refused((engine_options){.ep = 2}, "--ep 2 with --tp 1: the ranks cannot be divided so");
    refused((engine_options){.tp = 4, .ep = 8}, "--ep 8 with --tp 4: the ranks cannot be divided so");
    refused((engine_options){.tp = 2, .ep_redundant = 2}, "--ep-num-redundant-experts is for --ep");
    refused((engine_options){.tp = 2, .ep_placement = "x"}, "--init-expert-location is for --ep");
    refused((engine_options){.tp = 2, .ep = 2, .ep_redundant = 1}, "--ep 2: 9 experts and copies cannot be divided so");
    refused((engine_options){.tp = 2, .ep = 2, .ep_placement = "/no/such.json"}, "/no/such.json");
    refused((engine_options){.tp = 2, .eplb_steps = 5}, "--enable-eplb is for --ep");
    refused((engine_options){.tp = 2, .ep = 65}, "--ep is 65, outside 0..64");
}

int main(void) {
    log_set_quiet(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread),
        cmocka_unit_test(the_same_bits_wherever_they_are),
        cmocka_unit_test(the_same_bits_from_copies),
        cmocka_unit_test(the_same_bits_while_they_move),
        cmocka_unit_test(experts_of_two_formats),
        cmocka_unit_test(a_checkpoint_that_changes),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
