/* A draft of nano run on a prompt, beside what PyTorch made of it. */
#ifndef TESTS_DRAFT_UTIL_H
#define TESTS_DRAFT_UTIL_H
#include "unit.h"

#include "base/file.h"
#include "base/json.h"
#include "kernels/sampling/logprobs.h"
#include "kernels/sampling/sample.h"
#include "model/draft_internal.h"
#include "runtime/engine_internal.h"
#include <math.h>
#include <stdlib.h>

enum { TOP = 5, IDS_MOST = 64, STEPS_MOST = 4, TOPK = 3, TREE_MOST = TOPK + (STEPS_MOST - 1) * TOPK * TOPK };

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
    f64 off; /* what log-probabilities are off, together */
    i64 n_off;
} run;

static f64 number(const json_t *list, i64 i) { return json_number_value(json_array_get(list, (size_t)i)); }

/* The prompt of `golden`, run on nano; tree: guesses will be a tree's. End with engine_close(r->g). */
static void run_open(run *r, const json_t *golden, const variant *v, const char *draft_dir, bool tree) {
    const json_t *ids = json_object_get(golden, "ids");
    err e = {0};
    *r = (run){.v = v, .golden = golden, .root = json_integer_value(json_object_get(golden, "root"))};
    r->n = (i64)json_array_size(ids);
    assert_true(r->n <= IDS_MOST);
    for (i64 i = 0; i < r->n; i++) r->ids[i] = (i32)number(ids, i), r->pages[i] = (i32)i;
    const engine_options o = {.model_dir = "models/nano",
                              .device = v->device,
                              .max_running = 2,
                              .context = 256,
                              .draft_dir = draft_dir,
                              .draft_steps = STEPS_MOST,
                              .draft_topk = tree ? TOPK : 0,
                              .draft_nodes = 7};
    if (engine_open(&r->g, &o, &e) != ST_OK) fail_msg("%s", e.text);
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

static const draft *draft_of(const run *r) { return r->g->ranks.of[0].draft; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function" /* not every test needs all */
static f32 value_of(const run *r, const void *x, i64 i) {
    return engine_ops(r->g)->act == DT_F32 ? ((const f32 *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]);
}

/* The draft's logits of its last guess against [[id, log-probability] x 5]. tie: the model's experts may be others here
 * in another arithmetic, so only the mean counts. */
static void check_top(run *r, const json_t *top, const char *what, i64 at, bool tie) {
    const draft *t = draft_of(r);
    const f64 lse = log_sum_exp(t->logits, t->c->vocab);
    assert_int_equal(json_array_size(top), TOP);
    for (size_t k = 0; k < TOP; k++) {
        const json_t *pair = json_array_get(top, k);
        const i64 id = json_integer_value(json_array_get(pair, 0));
        const f64 got = (f64)t->logits[id] - lse, want = number(pair, 1);
        r->off += fabs(got - want), r->n_off++;
        if (!tie && !(fabs(got - want) <= r->v->logprob * (1 + fabs(want))))
            fail_msg("%s, %s %d: token %d: %g, not %g", r->v->device, what, (int)at, (int)id, got, want);
    }
}

static void guess_pass(const run *r, i64 n, i64 steps, i32 *ids, draft_candidate *tree) {
    i32 following[IDS_MOST];
    err e = {0};
    for (i64 i = 0; i < n; i++) following[i] = i + 1 < r->n ? r->ids[i + 1] : (i32)r->root;
    const draft_span span = {.n = n,
                             .following = following,
                             .pages = r->pages,
                             .guess = true,
                             .branches = tree ? engine_guess_pages(r->g, 0) : NULL};
    const draft_batch b = {.n_spans = 1, .spans = &span, .steps = steps, .ids = ids, .tree = tree};
    if (engine_queue_drafts(r->g, &b, &e) != ST_OK || engine_collect_drafts(r->g, &b, &e) != ST_OK)
        fail_msg("%s", e.text);
}
/* So many guesses behind the first n tokens. */
static void guess(const run *r, i64 n, i64 steps, i32 *out) { guess_pass(r, n, steps, out, NULL); }
/* Those of a whole tree behind all tokens. */
static void guess_tree(const run *r, draft_candidate out[TREE_MOST]) { guess_pass(r, r->n, STEPS_MOST, NULL, out); }

#pragma GCC diagnostic pop

/* Calls `check` with every line of a file; how many there were. */
static i64 each_golden(const char *path, void (*check)(const json_t *golden, const variant *v), const variant *v,
                       size_t n) {
    buf text = {0};
    err e = {0};
    i64 lines = 0;
    assert_int_equal(file_read(path, 1 << 24, &text, &e), ST_OK);
    char *save = NULL;
    buf_char(&text, 0);
    for (char *line = strtok_r((char *)text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save), lines++) {
        json_t *golden = json_parse(line, strlen(line), path, &e);
        assert_non_null(golden);
        for (size_t i = 0; i < n; i++) check(golden, &v[i]);
        json_decref(golden);
    }
    buf_free(&text);
    return lines;
}
#endif
