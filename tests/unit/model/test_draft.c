/* EAGLE-3 drafts of nano against PyTorch's run of the same files (tools/nano/draft_golden.py): features, the first
 * pass at every position, a chain of guesses, what the layer puts out, and a tree of guesses. ref must come within 1e-4
 * of PyTorch, which computed in float32; cpu, in bf16, within 0.1 of log-probabilities on average, and 0.05 of a
 * value's size. */
#include "model/draft_util.h"

enum { STEPS = 3 };

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

static void check_first_pass(run *r) {
    const json_t *first = json_object_get(r->golden, "first"), *margin = json_object_get(r->golden, "margin");
    const bool rounded = strcmp(r->v->device, "ref");
    i64 held = 0;
    i32 id;
    assert_int_equal(json_array_size(margin), r->n);
    for (i64 i = 0; i < r->n; i++) {
        const bool tie = rounded && number(margin, i) < 1e-3;
        guess(r, i + 1, 1, &id);
        check_top(r, json_array_get(first, (size_t)i), "first pass, position", i, tie);
        held += !tie;
    }
    assert_true(held >= r->n / 4);
}

static void check_chain(run *r) {
    const json_t *chain = json_object_get(r->golden, "chain"), *z = json_object_get(r->golden, "z");
    i32 ids[STEPS];
    for (i64 steps = 1; steps <= STEPS; steps++) {
        const json_t *last = json_array_get(chain, (size_t)steps - 1), *out = json_array_get(z, (size_t)steps - 1);
        guess(r, r->n, steps, ids);
        for (i64 s = 0; s < steps; s++)
            assert_int_equal(ids[s], json_integer_value(json_object_get(json_array_get(chain, (size_t)s), "id")));
        check_top(r, json_object_get(last, "top5"), "guess", steps, false);
        for (i64 k = 0; k < 4; k++) {
            const f64 got = value_of(r, draft_of(r)->seq_x, k), want = number(out, k);
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
    i64 found = 0;
    guess_tree(r, all);
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
    const bool mla = !strcmp(json_string_value(json_object_get(golden, "layout")), "mla");
    const char *dir = mla ? "models/nano-eagle3-mla" : "models/nano-eagle3";
    run r;
    run_open(&r, golden, v, dir, true);
    check_tree(&r, !strcmp(v->device, "ref"));
    engine_close(r.g);
    run_open(&r, golden, v, dir, false);
    check_features(&r);
    check_first_pass(&r);
    check_chain(&r);
    engine_close(r.g);
    if (!(r.off <= v->mean * (f64)r.n_off))
        fail_msg("%s: log-probabilities are off by %g", v->device, r.off / (f64)r.n_off);
}

static void as_pytorch(void **state) {
    static const variant variants[] = {{"ref", 1e-4, 1e-4, 1e-4}, {"cpu", 0.1, 0.3, 0.05}};
    (void)state;
    assert_int_equal(each_golden("tests/data/nano-eagle3/golden.jsonl", check_golden, variants, COUNT_OF(variants)),
                     10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
