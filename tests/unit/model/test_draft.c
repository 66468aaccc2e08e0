/* EAGLE-3 drafts of nano against PyTorch's run of the same files (tools/nano/draft_golden.py): features, the first
 * pass at every position, a chain of guesses, what the layer puts out, and a tree of guesses. ref must come within 1e-4
 * of PyTorch, which computed in float32; cpu, in bf16, within 0.1 of log-probabilities on average, and 0.05 of a
 * value's size. */
#include "unit.h"

#include "base/file.h"
#include "base/json.h"
#include "model/draft_internal.h"
#include "runtime/engine_internal.h"
#include "kernels/sampling/logprobs.h"
#include "kernels/sampling/sample.h"
#include <math.h>
#include <stdlib.h>

enum { STEPS = 3, TOP = 5, IDS_MOST = 64, TREE_STEPS = 4, TOPK = 3, TREE_MOST = TOPK + (TREE_STEPS - 1) * TOPK * TOPK };

typedef struct {
    const char *device;
    f64 mean, logprob; /* bounds of log-probabilities: the mean of what they are off, and of one, times 1 + its size */
    f64 value;         /* of a value: a share of its feature's size */
} variant;

typedef struct {
    engine *g;
    const variant *v;
    const json_t *golden;
    i64 n, root;
    i32 ids[IDS_MOST];
    i32 pages[IDS_MOST];
} run;

/* Log-probabilities that were compared, and how far off they are together. */
static struct {
    f64 sum;
    i64 n;
} off;

static engine *open_engine(const char *layout, const char *device, bool tree) {
    char dir[64];
    err e = {0};
    engine *g;
    snprintf(dir, sizeof dir, "models/nano-eagle3%s", strcmp(layout, "mla") ? "" : "-mla");
    const engine_options o = {.model_dir = "models/nano",
                              .device = device,
                              .max_running = 2,
                              .context = 256,
                              .draft_dir = dir,
                              .draft_steps = tree ? TREE_STEPS : 0,
                              .draft_topk = tree ? TOPK : 0,
                              .draft_nodes = 7};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

static void run_prompt(run *r) {
    err e = {0};
    i32 bad[IDS_MOST], row = (i32)r->n - 1;
    f32 *logits = malloc((size_t)r->g->config.vocab * sizeof *logits);
    const model_span span = {.n = r->n, .pages = r->pages};
    const model_batch b = {.n = r->n,
                           .ids = r->ids,
                           .n_spans = 1,
                           .spans = &span,
                           .n_out = 1,
                           .out_rows = &row,
                           .logits = logits,
                           .bad = bad};
    if (engine_forward(r->g, &b, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(argmax_f32(logits, r->g->config.vocab), r->root);
    free(logits);
}

static f32 value_of(const run *r, const void *x, i64 i) {
    return engine_ops(r->g)->act == DT_F32 ? ((const f32 *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]);
}

static f64 number(const json_t *list, i64 i) { return json_number_value(json_array_get(list, (size_t)i)); }

/* [rows, taps hidden]: the size of each row of each tap, and the last row's first values. */
static void check_features(const run *r) {
    const json_t *all = json_object_get(r->golden, "features");
    const i64 hidden = r->g->config.hidden, taps = (i64)json_array_size(all);
    assert_int_equal(taps, r->g->draft_config.n_taps);
    for (i64 t = 0; t < taps; t++) {
        const json_t *tap = json_array_get(all, (size_t)t), *rms = json_object_get(tap, "rms");
        for (i64 i = 0; i < r->n; i++) {
            f64 sum = 0;
            for (i64 k = 0; k < hidden; k++) {
                const f64 v = value_of(r, engine_model(r->g)->features, (i * taps + t) * hidden + k);
                sum += v * v;
            }
            const f64 got = sqrt(sum / (f64)hidden), want = number(rms, i);
            if (!(fabs(got - want) <= r->v->value * want))
                fail_msg("tap %d, position %d: %g, not %g", (int)t, (int)i, got, want);
        }
        for (i64 k = 0; k < 4; k++) {
            const f64 got = value_of(r, engine_model(r->g)->features, ((r->n - 1) * taps + t) * hidden + k);
            assert_true(fabs(got - number(json_object_get(tap, "last"), k)) <= r->v->value * number(rms, r->n - 1));
        }
    }
}

/* The draft's logits of its last guess against [[id, log-probability] x 5]. */
static void check_top(const run *r, const json_t *top, const char *what, i64 at) {
    const draft *t = r->g->ranks.of[0].draft;
    const f64 lse = log_sum_exp(t->logits, t->c->vocab);
    assert_int_equal(json_array_size(top), TOP);
    for (size_t k = 0; k < TOP; k++) {
        const json_t *pair = json_array_get(top, k);
        const i64 id = json_integer_value(json_array_get(pair, 0));
        const f64 got = (f64)t->logits[id] - lse, want = number(pair, 1);
        if (!(fabs(got - want) <= r->v->logprob * (1 + fabs(want))))
            fail_msg("%s %d: token %d: %g, not %g", what, (int)at, (int)id, got, want);
    }
}

/* So many guesses behind the first n tokens. */
static void guess(const run *r, i64 n, i64 steps, i32 *out) {
    i32 following[IDS_MOST];
    err e = {0};
    for (i64 i = 0; i < n; i++) following[i] = i + 1 < r->n ? r->ids[i + 1] : (i32)r->root;
    const draft_span span = {.n = n, .following = following, .pages = r->pages, .guess = true};
    const draft_batch b = {.n_spans = 1, .spans = &span, .steps = steps, .ids = out};
    if (engine_queue_drafts(r->g, &b, &e) != ST_OK || engine_collect_drafts(r->g, &b, &e) != ST_OK)
        fail_msg("%s", e.text);
}

static void check_first_pass(const run *r) {
    const json_t *first = json_object_get(r->golden, "first");
    i32 id;
    for (i64 i = 0; i < r->n; i++) {
        guess(r, i + 1, 1, &id);
        check_top(r, json_array_get(first, (size_t)i), "first pass, position", i);
    }
}

static void check_chain(const run *r) {
    const json_t *chain = json_object_get(r->golden, "chain"), *z = json_object_get(r->golden, "z");
    i32 ids[STEPS];
    for (i64 steps = 1; steps <= STEPS; steps++) {
        const json_t *last = json_array_get(chain, (size_t)steps - 1), *out = json_array_get(z, (size_t)steps - 1);
        guess(r, r->n, steps, ids);
        for (i64 s = 0; s < steps; s++)
            assert_int_equal(ids[s], json_integer_value(json_object_get(json_array_get(chain, (size_t)s), "id")));
        check_top(r, json_object_get(last, "top5"), "guess", steps);
        for (i64 k = 0; k < 4; k++) {
            const f64 got = value_of(r, r->g->ranks.of[0].draft->seq_x, k), want = number(out, k);
            if (!(fabs(got - want) <= r->v->value * 100)) fail_msg("z of guess %d: %g, not %g", (int)steps, got, want);
        }
    }
}

/* ---- trees ---- */

/* The candidate of the engine's that is the golden one `i`: the same tokens from the root on; -1: there is none. */
static i64 same_candidate(const json_t *golden, i64 i, const draft_candidate *all, i64 n) {
    if (i < 0) return -1;
    const json_t *want = json_array_get(golden, (size_t)i);
    const i64 before = json_integer_value(json_array_get(want, 1)), parent = same_candidate(golden, before, all, n);
    for (i64 k = 0; k < n && (before < 0 || parent >= 0); k++)
        if (all[k].parent == parent && all[k].id == json_integer_value(json_array_get(want, 0))) return k;
    return -1;
}

/* ref must have PyTorch's candidates; in bf16 some others may be among the best. */
static void check_tree(const run *r, bool exactly) {
    const json_t *golden = json_object_get(r->golden, "tree");
    draft_candidate all[TREE_MOST];
    i32 following[IDS_MOST];
    i64 found = 0;
    err e = {0};
    for (i64 i = 0; i < r->n; i++) following[i] = i + 1 < r->n ? r->ids[i + 1] : (i32)r->root;
    const draft_span span = {
        .n = r->n, .following = following, .pages = r->pages, .guess = true, .branches = engine_branch_pages(r->g, 0)};
    const draft_batch b = {.n_spans = 1, .spans = &span, .steps = TREE_STEPS, .tree = all};
    if (engine_queue_drafts(r->g, &b, &e) != ST_OK || engine_collect_drafts(r->g, &b, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(json_array_size(golden), TREE_MOST);
    for (i64 i = 0; i < TREE_MOST; i++) {
        const i64 k = same_candidate(golden, i, all, TREE_MOST);
        const f64 want = number(json_array_get(golden, (size_t)i), 2);
        if (k < 0 && exactly) fail_msg("tree: candidate %d of PyTorch's is none", (int)i);
        if (k < 0) continue;
        found++;
        if (!(fabs((f64)all[k].score - want) <= r->v->logprob * (1 + fabs(want))))
            fail_msg("tree, candidate %d: %g, not %g", (int)i, (f64)all[k].score, want);
    }
    if (3 * found < 2 * TREE_MOST) fail_msg("tree: %d of %d candidates are PyTorch's", (int)found, (int)TREE_MOST);
}

static void check_golden(const json_t *golden, const variant *v) {
    run r = {.v = v, .golden = golden, .root = json_integer_value(json_object_get(golden, "root"))};
    const json_t *ids = json_object_get(golden, "ids");
    off.sum = 0, off.n = 0;
    r.n = (i64)json_array_size(ids);
    assert_true(r.n <= IDS_MOST);
    for (i64 i = 0; i < r.n; i++) r.ids[i] = (i32)number(ids, i), r.pages[i] = (i32)i;
    const char *layout = json_string_value(json_object_get(golden, "layout"));
    r.g = open_engine(layout, v->device, true);
    run_prompt(&r);
    check_tree(&r, !strcmp(v->device, "ref"));
    engine_close(r.g);
    r.g = open_engine(layout, v->device, false);
    run_prompt(&r);
    check_features(&r);
    check_first_pass(&r);
    check_chain(&r);
    engine_close(r.g);
    if (!(off.sum <= v->mean * (f64)off.n))
        fail_msg("%s: log-probabilities are off by %g", v->device, off.sum / (f64)off.n);
}

static void as_pytorch(void **state) {
    static const variant variants[] = {{"ref", 1e-4, 1e-4, 1e-4}, {"cpu", 0.1, 0.3, 0.05}};
    buf text = {0};
    err e = {0};
    i64 checked = 0;
    (void)state;
    assert_int_equal(file_read("tests/data/nano-eagle3/golden.jsonl", 1 << 24, &text, &e), ST_OK);
    char *save = NULL;
    buf_char(&text, 0);
    for (char *line = strtok_r((char *)text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *golden = json_parse(line, strlen(line), "golden.jsonl", &e);
        assert_non_null(golden);
        for (size_t i = 0; i < COUNT_OF(variants); i++) check_golden(golden, &variants[i]), checked++;
        json_decref(golden);
    }
    assert_int_equal(checked, 20);
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
