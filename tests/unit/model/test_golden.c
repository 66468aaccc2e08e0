/* The forward pass against Hugging Face transformers, on the random checkpoints of tests/golden (README.md
 * there; their weights are drawn into build/golden).
 *
 * ref must come within 1e-4 (relative Frobenius norm a position) of the float32 run. cpu may be no farther
 * from it than 1.5 times transformers' own bf16 run (2 times with quantized activations), by median and 99th
 * percentile over positions, and its argmax may be wrong at no more than twice as many of the positions whose
 * float32 margin exceeds 0.3. An FP32 checkpoint is float32 in every backend and has ref's bound. */
#include "unit.h"

#include "base/file.h"
#include "base/json.h"
#include "kernels/sampling/sample.h"
#include "runtime/engine.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *dir, *dev, *mask;
    bool absorbed; /* decode form throughout, token by token */
    i64 chunk;     /* prefill chunk, 0: default */
} variant;

typedef struct {
    const json_t *positions; /* of the current prompt */
    i64 at, first_row, vocab;
    const f32 *golden;
    f64 *dist;
    i64 n_dist;
    i64 margin_rows, misses;
} comparison;

static f64 row_distance(const f32 *a, const f32 *b, i64 n) {
    f64 diff = 0, norm = 0;
    for (i64 k = 0; k < n; k++) {
        diff += ((f64)a[k] - b[k]) * ((f64)a[k] - b[k]);
        norm += (f64)b[k] * b[k];
    }
    return sqrt(diff / norm);
}

static f64 margin(const f32 *x, i64 n) {
    i32 top = argmax_f32(x, n);
    f64 second = -INFINITY;
    for (i64 k = 0; k < n; k++)
        if (k != top && x[k] > second) second = x[k];
    return x[top] - second;
}

static status compare(void *ud, i64 index, f32 *logits, err *e) {
    (void)e;
    comparison *c = ud;
    if (c->at == (i64)json_array_size(c->positions)) return ST_OK;
    if (json_integer_value(json_array_get(c->positions, (size_t)c->at)) != index) return ST_OK;
    const f32 *want = c->golden + (c->first_row + c->at++) * c->vocab;
    c->dist[c->n_dist++] = row_distance(logits, want, c->vocab);
    if (margin(want, c->vocab) > 0.3) {
        c->margin_rows++;
        c->misses += argmax_f32(logits, c->vocab) != argmax_f32(want, c->vocab);
    }
    return ST_OK;
}

static int by_value(const void *a, const void *b) {
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

/* The q-quantile with linear interpolation, as numpy.percentile has it. */
static f64 quantile(const f64 *sorted, i64 n, f64 q) {
    f64 at = q * (f64)(n - 1);
    i64 lo = (i64)at;
    f64 next = lo + 1 < n ? sorted[lo + 1] : sorted[lo];
    return sorted[lo] + (at - (f64)lo) * (next - sorted[lo]);
}

static json_t *load_json(const char *dir) {
    char path[512];
    err e = {0};
    buf text = {0};
    snprintf(path, sizeof path, "tests/golden/%s/golden.json", dir);
    if (file_read(path, 1 << 26, &text, &e) != ST_OK) fail_msg("%s", e.text);
    json_t *j = json_parse(text.data, text.len, path, &e);
    buf_free(&text);
    if (!j) fail_msg("%s", e.text);
    return j;
}

static void run_prompts(engine *g, const variant *v, const json_t *golden, comparison *c) {
    err e = {0};
    seq *s;
    if (seq_open(&s, g, &e) != ST_OK) fail_msg("%s", e.text);
    size_t p;
    json_t *prompt;
    json_array_foreach(json_object_get(golden, "prompts"), p, prompt) {
        json_t *ids = json_object_get(prompt, "ids");
        i64 n = (i64)json_array_size(ids);
        i32 *t = malloc((size_t)n * sizeof *t);
        for (i64 i = 0; i < n; i++) t[i] = (i32)json_integer_value(json_array_get(ids, (size_t)i));
        c->positions = json_object_get(prompt, "positions");
        c->first_row = json_integer_value(json_object_get(prompt, "first_row"));
        c->at = 0;
        seq_truncate(s, 0);
        i64 step = v->absorbed ? 1 : n;
        for (i64 i = 0; i < n; i += step)
            if (seq_run(s, t + i, step, v->absorbed, LOGITS_ALL, compare, c, &e) != ST_OK) fail_msg("%s", e.text);
        assert_int_equal(c->at, json_array_size(c->positions));
        free(t);
    }
    seq_close(s);
}

static void check_variant(void **state) {
    const variant *v = *state;
    char dir[512], path[600];
    err e = {0};
    engine *g;
    snprintf(dir, sizeof dir, "build/golden/%s", v->dir);
    engine_options o = {.model_dir = dir, .device = v->dev, .cpu_mask = v->mask, .chunk = v->chunk, .context = 640};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    json_t *golden = load_json(v->dir), *bf16 = json_object_get(golden, "bf16");
    snprintf(path, sizeof path, "tests/golden/%s/logits.f32", v->dir);
    file_map m;
    if (file_map_open(&m, path, &e) != ST_OK) fail_msg("%s", e.text);
    i64 vocab = engine_config(g)->vocab, rows = (i64)(m.size / 4) / vocab;
    comparison c = {.vocab = vocab, .golden = (const f32 *)m.data, .dist = calloc((size_t)rows, sizeof(f64))};
    run_prompts(g, v, golden, &c);
    assert_int_equal(c.n_dist, rows);
    qsort(c.dist, (size_t)rows, sizeof *c.dist, by_value);
    f64 median = quantile(c.dist, rows, 0.5), p99 = quantile(c.dist, rows, 0.99), worst = c.dist[rows - 1];
    const json_t *rel = json_object_get(bf16, "logits_rel");
    f64 hf_median = json_real_value(json_object_get(rel, "median")),
        hf_p99 = json_real_value(json_object_get(rel, "p99"));
    i64 hf_misses = json_integer_value(json_object_get(bf16, "argmax_misses"));
    printf(
        "    %s %s%s%s: median %.2e P99 %.2e max %.2e, argmax wrong at %lld of %lld; transformers bf16: %.2e %.2e, %lld\n",
        v->dir, engine_ops(g)->name, v->absorbed ? " absorbed" : "", v->chunk ? " chunked" : "", median, p99, worst,
        (long long)c.misses, (long long)c.margin_rows, hf_median, hf_p99, (long long)hf_misses);
    if (engine_ops(g)->act == DT_F32) {
        assert_true(worst < 1e-4);
        assert_int_equal(c.misses, 0);
    } else {
        /* INT4 experts run on quantized activations */
        f64 factor = engine_config(g)->quant == WF_INT4_GROUP ? 2.0 : 1.5;
        assert_true(median <= factor * hf_median);
        assert_true(p99 <= factor * hf_p99);
        assert_true(c.misses <= 2 * hf_misses);
    }
    free(c.dist);
    file_map_close(&m);
    json_decref(golden);
    engine_close(g);
}

#define DIRS(X)                                                                                                        \
    X("k2-instruct-fp8")                                                                                               \
    X("k2-thinking-int4")                                                                                              \
    X("k2.5-int4")                                                                                                     \
    X("k2.5-w4a8")                                                                                                     \
    X("k2.5-mxfp4")                                                                                                    \
    X("k2.5-mxfp4-ct")                                                                                                 \
    X("k2.5-nvfp4") X("k2.5-float8") X("k2.5-int8") X("k2-w4afp8") X("k2.5-nvfp4-ct") X("plain-bf16") X("plain-fp32")
/* Shapes that ranks can divide: wide experts are what is new in them. */
#define RANKS(X)                                                                                                       \
    X("k2-ranks-fp8")                                                                                                  \
    X("k2.5-ranks-int4") X("k2.5-ranks-w4a8") X("k2.5-ranks-mxfp4") X("plain-ranks-bf16") X("plain-ranks-fp32")
#define VARIANTS(d)                                                                                                    \
    {d, "ref", NULL, false, 0}, {d, "ref", NULL, false, 37}, {d, "ref", NULL, true, 0}, {d, "cpu", NULL, false, 0},    \
        {d, "cpu", NULL, true, 0}, {d, "cpu", "avx2", false, 0}, {d, "cpu", "none", false, 0},
#define FEW(d) {d, "ref", NULL, false, 0}, {d, "cpu", NULL, false, 0}, {d, "cpu", NULL, true, 0},

#define AT_LEVEL(d) {d, "cpu", NULL, false, 0}, {d, "cpu", NULL, true, 0},

/* test_golden LEVEL: on the processor alone, at that level (tools/levels). */
int main(int argc, char **argv) {
    static variant usual[] = {DIRS(VARIANTS) RANKS(FEW)}, at_level[] = {DIRS(AT_LEVEL) RANKS(AT_LEVEL)};
    struct CMUnitTest tests[COUNT_OF(usual)];
    char names[COUNT_OF(usual)][96];
    variant *all = argc > 1 ? at_level : usual;
    const size_t n = argc > 1 ? COUNT_OF(at_level) : COUNT_OF(usual);
    for (size_t i = 0; i < n; i++) {
        if (argc > 1) all[i].mask = argv[1];
        snprintf(names[i], sizeof names[i], "%s/%s%s%s%s", all[i].dir, all[i].dev, all[i].mask ? all[i].mask : "",
                 all[i].absorbed ? "/absorbed" : "", all[i].chunk ? "/chunked" : "");
        tests[i] = (struct CMUnitTest){names[i], check_variant, NULL, NULL, &all[i]};
    }
    return _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
}
