/* EAGLE-3.1's switches against implementations that others wrote (tests/golden/make_draft_switches.py): a chain of
 * guesses, their log-probabilities, the layer's output and its norm, with each switch and with those that go together.
 * Bounds as in test_draft.c. config.json is what speculators writes. */
#include "model/draft_util.h"

#include "draft_files.h"

enum { STEPS = STEPS_MOST };

/* As the script's made_norm(). */
static void make_norm(draft_files *f, const char *name, i64 n) {
    i64 salt = 0;
    for (const char *c = name; *c; c++) salt += (u8)*c;
    draft_tensor *t = draft_tensor_add(f, name, DT_F32, n, 0, NULL);
    for (i64 k = 0; k < n; k++) ((f32 *)(void *)t->data)[k] = (f32)(32 + (k * 7 + salt * 3) % 64) / 64;
}

/* nano's draft with the names and the norms that the line tells of. */
static void write_draft(const json_t *golden, const char *layout, const char *dir) {
    const json_t *made = json_object_get(golden, "made");
    const char *name;
    json_t *length;
    draft_files f;
    draft_files_read(&f, strcmp(layout, "mla") ? "models/nano-eagle3" : "models/nano-eagle3-mla");
    for (int i = 0; i < f.n; i++) {
        char old[96];
        snprintf(old, sizeof old, "%s", f.t[i].name);
        if (!strncmp(old, "midlayer.", 9)) snprintf(f.t[i].name, sizeof old, "layers.0.%.80s", old + 9);
    }
    json_object_foreach((json_t *)(uintptr_t)made, name, length) make_norm(&f, name, json_integer_value(length));
    char *config = json_to_text(json_object_get(golden, "config"), &json_compact);
    draft_files_write(&f, dir, config);
    free(config);
    draft_files_free(&f);
}

/* [root mean square, first 4 values] of a row of n. */
static void check_row(const run *r, const void *x, const json_t *want, i64 n, const char *what, i64 step) {
    f64 sum = 0, size = number(want, 0);
    for (i64 k = 0; k < n; k++) sum += (f64)value_of(r, x, k) * (f64)value_of(r, x, k);
    if (!(fabs(sqrt(sum / (f64)n) - size) <= r->v->value * size))
        fail_msg("%s, guess %d: size of %s is %g, not %g", r->v->device, (int)step, what, sqrt(sum / (f64)n), size);
    for (i64 k = 0; k < 4; k++) {
        const f64 got = (f64)value_of(r, x, k), v = number(want, k + 1);
        if (!(fabs(got - v) <= r->v->value * (size + fabs(v))))
            fail_msg("%s, guess %d: value %d of %s is %g, not %g", r->v->device, (int)step, (int)k, what, got, v);
    }
}

/* A tree holds the chain, as far as its steps are among the best. */
static void check_in_tree(const run *r, const json_t *chain) {
    draft_candidate all[TREE_MOST];
    i64 at = -1, depth = 0;
    f64 score = 0;
    guess_tree(r, all);
    for (; depth < STEPS; depth++) {
        const json_t *best = json_array_get(json_object_get(json_array_get(chain, (size_t)depth), "top5"), 0);
        i64 k = 0;
        while (k < TREE_MOST && (all[k].parent != at || all[k].id != json_integer_value(json_array_get(best, 0)))) k++;
        if (k == TREE_MOST) break;
        at = k, score += number(best, 1);
        if (!(fabs((f64)all[k].score - score) <= r->v->logprob * (1 + fabs(score))))
            fail_msg("%s: a tree's guess %d has %g, not %g", r->v->device, (int)depth, (f64)all[k].score, score);
    }
    if (depth < 3) fail_msg("a tree holds %d guesses of the chain", (int)depth);
}

static void check_switches(const json_t *golden, const variant *v) {
    const char *layout = json_string_value(json_object_get(golden, "layout"));
    const json_t *chain = json_object_get(golden, "chain");
    char dir[] = "/tmp/moonlet-switches-XXXXXX", *on = json_to_text(json_object_get(golden, "switches"), &json_compact);
    i32 ids[STEPS];
    run r;
    assert_non_null(mkdtemp(dir));
    write_draft(golden, layout, dir);
    run_open(&r, golden, v, dir, false);
    for (i64 steps = 1; steps <= STEPS; steps++) {
        const json_t *last = json_array_get(chain, (size_t)steps - 1);
        guess(&r, r.n, steps, ids);
        for (i64 s = 0; s < steps; s++) {
            const i64 want = json_integer_value(json_object_get(json_array_get(chain, (size_t)s), "id"));
            if (ids[s] != want)
                fail_msg("%s %s on %s: guess %d is %d, not %d", layout, on, v->device, (int)s, ids[s], (int)want);
        }
        check_top(&r, json_object_get(last, "top5"), on, steps, false);
        check_row(&r, draft_of(&r)->seq_x, json_object_get(last, "z"), r.g->config.hidden, "z", steps);
        check_row(&r, draft_of(&r)->h, json_object_get(last, "h"), r.g->config.hidden, "its norm", steps);
    }
    engine_close(r.g);
    print_message("%s %s, %s: log-probabilities off by %.2g on average\n", layout, on, v->device, r.off / (f64)r.n_off);
    if (!(r.off <= v->mean * (f64)r.n_off)) fail_msg("that is too much");
    run_open(&r, golden, v, dir, true);
    check_in_tree(&r, chain);
    engine_close(r.g);
    draft_files_remove(dir);
    free(on);
}

static void as_others_compute(void **state) {
    static const variant variants[] = {{"ref", 1e-4, 1e-4, 1e-4}, {"cpu", 0.1, 0.3, 0.05}};
    (void)state;
    assert_int_equal(each_golden("tests/data/nano-eagle3/switches.jsonl", check_switches, variants, COUNT_OF(variants)),
                     28);
}

/* ---- config.json as speculators writes it ---- */

static const model_config nano = {.hidden = 256, .vocab = 2048, .n_layers = 7};

/* The file with its first `from` replaced by `to`. */
static status parse_with(draft_config *d, const char *from, const char *to, err *e) {
    static const char text[] = "{\"architectures\":[\"Eagle3Speculator\"],\"speculators_model_type\":\"eagle3\","
                               "\"eagle_aux_hidden_state_layer_ids\":[1,3,5],\"draft_vocab_size\":512,"
                               "\"norm_before_fc\":true,\"fc_norm\":false,\"target_hidden_size\":null,"
                               "\"transformer_layer_config\":{\"model_type\":\"llama\",\"hidden_size\":256,"
                               "\"vocab_size\":2048,\"num_attention_heads\":2,\"intermediate_size\":64,"
                               "\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-6,\"mlp_bias\":false,"
                               "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000.0}}}";
    char changed[1024];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    *e = (err){0};
    return draft_config_parse(d, changed, strlen(changed), &nano, e);
}

static void must_refuse(const char *from, const char *to, status want, const char *says) {
    draft_config d;
    err e;
    assert_int_equal(parse_with(&d, from, to, &e), want);
    if (!strstr(e.text, says)) fail_msg("\"%s\" does not say %s", e.text, says);
}

static void reads_what_speculators_writes(void **state) {
    draft_config d;
    err e;
    (void)state;
    if (parse_with(&d, "", "", &e) != ST_OK) fail_msg("%s", e.text);
    assert_true(d.layout == DRAFT_LLAMA && d.layer.vocab == 512 && d.target_vocab == 2048 && d.layer.rope == 128);
    assert_true(d.norm_all_features && !d.norm_features && !d.norm_output && !d.norm_residual);
    assert_true(d.n_taps == 3 && d.taps[0] == 1 && d.taps[2] == 5); /* before layer 1, whatever the first says */
    must_refuse("\"llama\"", "\"qwen3\"", ST_UNSUPPORTED, "qwen3");
    must_refuse("\"speculators_model_type\":\"eagle3\"", "\"speculators_model_type\":\"peagle\"", ST_UNSUPPORTED,
                "peagle");
    must_refuse("\"fc_norm\":false", "\"fc_norm\":true", ST_FORMAT, "norm_before_fc");
    must_refuse("\"mlp_bias\":false", "\"mlp_bias\":true", ST_UNSUPPORTED, "mlp_bias");
    must_refuse("\"hidden_size\":256", "\"hidden_size\":128", ST_INPUT, "128");
    must_refuse("{\"model_type\"", "[1],\"x\":{\"model_type\"", ST_FORMAT, "transformer_layer_config");
}

/* null says as much as no key: a Llama-type draft stays one. */
static void null_is_no_value(void **state) {
    draft_config d;
    err e;
    (void)state;
    const status st =
        parse_with(&d, "\"mlp_bias\":false", "\"mlp_bias\":false,\"kv_lora_rank\":null,\"q_lora_rank\":null", &e);
    if (st != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(d.layout, DRAFT_LLAMA);
    if (parse_with(&d, "\"fc_norm\":false", "\"eagle_config\":null", &e) != ST_OK) fail_msg("%s", e.text);
}

/* ---- tensors that are not in config.json's layout ---- */

static status open_with(const char *dir, err *e) {
    engine *g = NULL;
    const engine_options o = {.model_dir = "models/nano", .max_running = 1, .context = 256, .draft_dir = dir};
    *e = (err){0};
    const status st = engine_open(&g, &o, e);
    engine_close(g);
    return st;
}

/* nano's draft with `name` beside its tensors. */
static void opens_with_tensor(const char *from, const char *name, const char *says) {
    char dir[] = "/tmp/moonlet-extra-XXXXXX", config[64];
    draft_files f;
    buf text = {0};
    err e = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(config, sizeof config, "%s/config.json", from);
    assert_int_equal(file_read(config, 1 << 20, &text, &e), ST_OK);
    buf_char(&text, 0);
    draft_files_read(&f, from);
    draft_tensor_add(&f, name, DT_BF16, 256, 0, NULL);
    if (says && strstr(says, "nor")) draft_tensor_add(&f, "layers.9.more", DT_BF16, 256, 0, NULL);
    draft_files_write(&f, dir, (const char *)text.data);
    draft_files_free(&f), buf_free(&text);
    const status st = open_with(dir, &e);
    if (st != (says ? ST_UNSUPPORTED : ST_OK)) fail_msg("%s: status %d: %s", name, (int)st, e.text);
    if (says && (!strstr(e.text, name) || !strstr(e.text, says)))
        fail_msg("\"%s\" does not name %s and %s", e.text, name, says);
    draft_files_remove(dir);
}

static void every_tensor_has_a_use(void **state) {
    static const char *const folders[] = {"models/nano-eagle3", "models/nano-eagle3-mla"};
    static const char *const unknown[] = {"layers.1.mlp.up_proj.weight", "fc_norm.0.weight", "input_norm.weight",
                                          "midlayer.self_attn.q_proj.bias"},
                             *const known[] = {"t2d", "verifier_norm.weight", "layers.0.self_attn.rotary_emb.inv_freq"};
    (void)state;
    for (size_t d = 0; d < COUNT_OF(folders); d++) {
        for (size_t i = 0; i < COUNT_OF(unknown); i++)
            opens_with_tensor(folders[d], unknown[i], "is none of a draft with this config.json:");
        for (size_t i = 0; i < COUNT_OF(known); i++) opens_with_tensor(folders[d], known[i], NULL);
    }
    opens_with_tensor(folders[0], "layers.1.hidden_norm.weight", "nor are 1 more");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_others_compute),
                                       cmocka_unit_test(reads_what_speculators_writes),
                                       cmocka_unit_test(null_is_no_value), cmocka_unit_test(every_tensor_has_a_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
