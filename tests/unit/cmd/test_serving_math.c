/* The pure parts under `moonlet bench serving` and `moonlet eval gsm8k`: Python's and numpy's random numbers and
 * percentiles (golden values from both, tests/golden/gsm8k/make_gsm8k.py), frontiers, scores, streams. */
#include "cmd/lib/answer_stream.c"
#include "cmd/eval/gsm8k_score.c"
#include "cmd/lib/mt19937.c"
#include "cmd/bench/serving/pareto.c"
#include "cmd/lib/stats.c"
#undef N
#include "base/file.h"
#include "unit.h"
#include <stdio.h>

static json_t *golden(void) {
    buf b = {0};
    assert_int_equal(file_read("tests/golden/gsm8k/draws.json", 1 << 20, &b, NULL), ST_OK);
    json_t *o = json_parse(b.data, b.len, "draws.json", NULL);
    assert_non_null(o);
    buf_free(&b);
    return o;
}

static void same_ints(const json_t *want, const i64 *have, i64 n) {
    assert_int_equal(json_array_size(want), n);
    for (i64 i = 0; i < n; i++) assert_int_equal(json_integer_value(json_array_get(want, (size_t)i)), have[i]);
}

static void python_sample(void **s) {
    (void)s;
    static const i64 sizes[][2] = {{1, 1}, {5, 5}, {20, 3}, {21, 5}, {22, 5}, {85, 6}, {86, 6}, {3, 0}};
    json_t *g = golden(), *draws;
    const char *key;
    i64 out[16];
    mt19937 m;
    json_object_foreach(json_object_get(g, "lm_eval_1234"), key, draws) {
        i64 k = strtoll(key, NULL, 10);
        mt_seed_python(&m, 1234); /* the golden generator went on from size to size in the order of the keys */
        if (k != 5) continue;
        for (size_t i = 0; i < 20; i++) {
            assert_true(mt_sample(&m, 7473, k, out));
            same_ints(json_array_get(draws, i), out, k);
        }
        for (size_t i = 0; i < 20; i++) {
            assert_true(mt_sample(&m, 7473, 10, out));
            same_ints(json_array_get(json_object_get(json_object_get(g, "lm_eval_1234"), "10"), i), out, 10);
        }
    }
    mt_seed_python(&m, 7);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_true(mt_sample(&m, sizes[i][0], sizes[i][1], out));
        same_ints(json_array_get(json_object_get(g, "small"), i), out, sizes[i][1]);
    }
    assert_false(mt_sample(&m, 3, 4, out));
    json_decref(g);
}

static void python_and_numpy_numbers(void **s) {
    (void)s;
    json_t *g = golden();
    mt19937 m;
    i64 x[12];
    mt_seed_python(&m, (1ull << 40) + 3);
    assert_true(mt_unit(&m) ==
                json_real_value(json_array_get(json_object_get(json_object_get(g, "python"), "random"), 0)));
    for (i64 i = 0; i < 12; i++) x[i] = i;
    mt_seed_python(&m, 1);
    mt_shuffle(&m, x, 12);
    same_ints(json_object_get(g, "shuffle_1"), x, 12);
    mt_seed_numpy(&m, 1);
    for (int i = 0; i < 8; i++) x[i] = mt_randint(&m, 512, 1024);
    for (int i = 8; i < 10; i++) x[i] = mt_randint(&m, 1, 1);
    same_ints(json_object_get(g, "numpy_randint_1"), x, 10);
    for (size_t i = 0; i < 4; i++) {
        f64 want = json_real_value(json_array_get(json_object_get(g, "numpy_exponential"), i));
        assert_float_equal(mt_exponential(&m, 0.25), want, 1e-15);
    }
    json_decref(g);
}

static void percentiles(void **s) {
    (void)s;
    json_t *g = golden(), *list = json_object_get(g, "sample"), *v;
    const char *key;
    f64_list l = {0};
    for (size_t i = 0; i < json_array_size(list); i++) f64_add(&l, json_real_value(json_array_get(list, i)));
    summary m = summarize(&l);
    json_object_foreach(json_object_get(g, "percentiles"), key, v)
        assert_float_equal(percentile(l.data, l.n, strtod(key, NULL)), json_real_value(v), 1e-15);
    assert_float_equal(m.mean, json_real_value(json_array_get(json_object_get(g, "mean_std"), 0)), 1e-14);
    assert_float_equal(m.std, json_real_value(json_array_get(json_object_get(g, "mean_std"), 1)), 1e-14);
    assert_float_equal(m.median, percentile(l.data, l.n, 50), 0);
    assert_float_equal(m.p90, percentile(l.data, l.n, 90), 0);
    assert_float_equal(m.p95, percentile(l.data, l.n, 95), 0);
    assert_float_equal(m.p99, percentile(l.data, l.n, 99), 0);
    assert_true(m.p90 < m.p95 && m.p95 < m.p99 && m.p99 < m.max && m.max == l.data[l.n - 1]);
    f64_list_free(&l);
    f64 one = 3;
    assert_float_equal(percentile(&one, 1, 99), 3, 0);
    json_decref(g);
}

/* SemiAnalysis' own numbers for Kimi K2.5 on MI355X (InferenceX, 2026-03): old and new vLLM. */
static void frontier_of_published_numbers(void **s) {
    (void)s;
    point old[] = {{6.6, 28.7, 4}, {6.3, 55.0, 8}, {6.1, 104.8, 16}, {5.6, 191.2, 32}, {5.0, 348.5, 64}};
    point new[] = {{23.3, 1647, 64}, {78.9, 337, 4}, {60.8, 521, 8}, {50.5, 870, 16}, {36.4, 1255, 32}};
    f64 x = 0, y = 0;
    assert_int_equal(pareto_frontier(old, 5), 5);
    assert_int_equal(pareto_frontier(new, 5), 5);
    assert_true(old[0].tag == 64 && new[4].tag == 4);
    assert_true(pareto_x_at(old, 5, 337, &x) && pareto_x_at(new, 5, 337, &y));
    assert_float_equal(x, 5.04, 0.01); /* published: 5.1, interpolated */
    assert_float_equal(y, 78.9, 1e-9);
    assert_true(pareto_x_at(new, 5, 380, &y));
    assert_float_equal(y, 74.7, 0.1);           /* published: 74.7 */
    assert_false(pareto_x_at(old, 5, 380, &x)); /* published as extrapolated: we do not */
    assert_false(pareto_y_at(new, 5, 80, &y));
    assert_true(pareto_y_at(new, 5, 50.5, &y) && fabs(y - 870) < 1e-9);
}

static void frontier_drops_what_is_beaten(void **s) {
    (void)s;
    point p[] = {{1, 10, 0}, {2, 9, 1}, {3, 11, 2}, {3, 4, 3}, {4, 4, 4}, {5, 4, 5}};
    i64 n = pareto_frontier(p, 6);
    f64 y, before = 12;
    assert_int_equal(n, 2);
    assert_true(p[0].tag == 2 && p[1].tag == 5);
    point q[] = {{0, 10, 0}, {1, 9, 1}, {2, 3, 2}, {6, 2.5, 3}, {7, 0, 4}};
    for (f64 x = 0; x <= 7; x += 0.01, before = y) { /* monotone, no overshoot */
        assert_true(pareto_y_at(q, 5, x, &y));
        assert_true(y <= before + 1e-12 && y >= 0 && y <= 10);
    }
    assert_true(pareto_y_at(q, 2, 0.5, &y) && y == 9.5);
    assert_true(pareto_y_at(q, 1, 0, &y) && y == 10 && pareto_x_at(q, 1, 10, &y) && y == 0);
}

/* Steffen's formula by hand for three points: slopes -1 and -3, steps 1 and 2. */
static void steffen_by_hand(void **s) {
    (void)s;
    const point p[] = {{0, 10, 0}, {1, 9, 1}, {3, 3, 2}};
    f64 y, middle = -2 * fmin(1, 0.5 * (5.0 / 3)); /* p = (-1 * 2 + -3 * 1) / 3 */
    f64 first = (3 * -1 - middle) / 2, t = 0.25;
    f64 want = (2 * t * t * t - 3 * t * t + 1) * 10 + (t * t * t - 2 * t * t + t) * first +
               (3 * t * t - 2 * t * t * t) * 9 + (t * t * t - t * t) * middle;
    assert_true(pareto_y_at(p, 3, 0.25, &y));
    assert_float_equal(y, want, 1e-12);
}

static void scores(void **s) {
    (void)s;
    assert_float_equal(gsm8k_stderr(96, 100), 0.0196946, 1e-6); /* the published 0.96 +- 0.0197 */
    assert_true(isnan(gsm8k_stderr(1, 1)));
    assert_true(gsm8k_match("$1,234.", "so 1234\n#### 1,234") && gsm8k_match("", "#### "));
    assert_false(gsm8k_match("18.", "#### 18.."));
    assert_true(gsm8k_match("18..", "#### 18.."));
}

static void extracts(void **s) {
    static const struct {
        const char *answer, *strict, *flexible;
    } cases[] = {{"#### 7", "7", "7"},
                 {"#### ", "[invalid]", "[invalid]"},
                 {"It is 5 .", "[invalid]", "5"},
                 {"$ 3, or -4 $", "[invalid]", "-4"},
                 {"a -12.5. b", "[invalid]", "-12.5."},
                 {"#### x #### -1,2.", "-1,2.", "-1,2."}};
    (void)s;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        buf strict = {0}, flexible = {0};
        gsm8k_strict(cases[i].answer, strlen(cases[i].answer), &strict);
        gsm8k_flexible(cases[i].answer, strlen(cases[i].answer), &flexible);
        assert_string_equal(strict.data, cases[i].strict);
        assert_string_equal(flexible.data, cases[i].flexible);
        buf_free(&strict);
        buf_free(&flexible);
    }
}

/* ---- streams ---- */

typedef struct {
    buf text;
    i64 pieces, tokens;
} got;

static void on_piece(void *ud, const answer_piece *p) {
    got *g = ud;
    buf_add(&g->text, p->text, p->len);
    g->pieces++;
    g->tokens += p->new_tokens;
}

/* The same for every cut. */
static void expect_stream(const char *bytes, bool whole, const char *text, i64 pieces, i64 tokens, i64 output,
                          const char *error) {
    size_t n = strlen(bytes);
    for (size_t step = 1; step <= n; step++) {
        got g = {0};
        answer_stream a = {.on_piece = on_piece, .ud = &g, .keep_body = whole};
        for (size_t i = 0; i < n; i += step) answer_stream_add(&a, bytes + i, n - i < step ? n - i : step);
        answer_stream_end(&a);
        assert_string_equal(g.text.data ? g.text.data : "", text);
        assert_int_equal(g.pieces, pieces);
        assert_int_equal(g.tokens, tokens);
        assert_int_equal(a.output_tokens, output);
        if (error)
            assert_non_null(strstr(a.error, error));
        else
            assert_string_equal(a.error, "");
        answer_stream_free(&a);
        buf_free(&g.text);
    }
}

static void streams(void **s) {
    (void)s;
    expect_stream("data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1,2]}]}\n\n: comment\nevent: x\r\n"
                  "data:{\"choices\":[{\"text\":\"b\",\"token_ids\":[3]}]}\r\n\r\n"
                  "data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
                  false, "ab", 2, 3, 3, NULL);
    expect_stream("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
                  "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"r\"}}]}\n\n"
                  "data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}],\"usage\":null}\n\ndata: [DONE]",
                  false, "rc", 2, -2, -1, NULL);
    expect_stream(
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"r\",\"content\":\"c\"},\"token_ids\":[1,2,3]}]}\n\n"
        "data: [DONE]",
        false, "rc", 2, 3, -1, NULL);
    expect_stream("data: {\"text\":\"ab\",\"meta_info\":{\"completion_tokens\":1}}\n\n"
                  "data: {\"text\":\"abcd\",\"meta_info\":{\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
                  false, "abcd", 2, 4, 4, NULL);
    expect_stream("{\"choices\":[{\"text\":\"x\"}],\"usage\":{\"completion_tokens\":1}}", true, "x", 1, -1, 1, NULL);
    expect_stream("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", false, "a", 1, -1, -1, "before [DONE]");
    expect_stream("data: {\"error\":{\"message\":\"boom\"}}\n\n", false, "", 0, 0, -1, "boom");
    expect_stream("data: {]\n\n", false, "", 0, 0, -1, "not JSON");
    expect_stream("{\"choices\":[]}\n", false, "", 0, 0, -1, "not a stream");
}

/* Numbers that no honest server sends: nothing of them is passed on, the error names the field. */
static void hostile(const char *bytes, bool whole, const char *text, i64 pieces, const char *error) {
    got g = {0};
    answer_stream a = {.on_piece = on_piece, .ud = &g, .keep_body = whole, .max_tokens = 8};
    answer_stream_add(&a, bytes, strlen(bytes));
    answer_stream_end(&a);
    assert_string_equal(g.text.data ? g.text.data : "", text);
    assert_int_equal(g.pieces, pieces);
    assert_true(g.tokens <= 8 && a.output_tokens <= 8);
    assert_non_null(strstr(a.error, error));
    answer_stream_free(&a);
    buf_free(&g.text);
}

static void numbers_of_a_hostile_server(void **s) {
    (void)s;
    static const char *const counts[] = {"9000000000000000000", "9", "-1", "1.5", "\"8\"", "[]"};
    char line[512];
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        const char *const forms[] = {
            "{\"text\":\"ab\",\"meta_info\":{\"completion_tokens\":%s}}",
            "{\"choices\":[],\"usage\":{\"completion_tokens\":%s}}",
            "{\"choices\":[{\"text\":\"ab\",\"usage\":{\"completion_tokens\":%s}}]}",
        };
        for (size_t k = 0; k < COUNT_OF(forms); k++) {
            size_t n = (size_t)snprintf(line, sizeof line, "data: ");
            snprintf(line + n, sizeof line - n, forms[k], counts[i]);
            strcat(line, "\n\ndata: {\"choices\":[{\"text\":\"more\"}]}\n\ndata: [DONE]\n\n");
            hostile(line, false, "", 0, "the server's completion_tokens is no whole number from 0 to 8");
        }
        snprintf(line, sizeof line, "{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":%s}}", counts[i]);
        hostile(line, true, "a", 1, "completion_tokens");
    }
    hostile("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1073741825}}\n\n", false, "", 0, "prompt_tokens");
    hostile("data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":1073741825}}}\n\n", false,
            "", 0, "cached_tokens");
    hostile("data: {\"text\":\"a\",\"meta_info\":{\"cached_tokens\":-5}}\n\n", false, "", 0, "cached_tokens");
    hostile("data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1,2,3,4,5]}]}\n\n"
            "data: {\"choices\":[{\"text\":\"b\",\"token_ids\":[1,2,3,4]}]}\n\ndata: [DONE]\n\n",
            false, "a", 1, "token_ids");
    hostile("data: {\"choices\":[{\"text\":\"b\",\"token_ids\":[4294967296]}]}\n\n", false, "", 0, "token_ids");
    hostile("data: {\"choices\":[{\"text\":\"b\",\"token_ids\":[\"x\"]}]}\n\n", false, "", 0, "token_ids");
}

/* A count that goes down and up again brings no tokens twice. */
static void counts_that_swing(void **s) {
    (void)s;
    got g = {0};
    answer_stream a = {.on_piece = on_piece, .ud = &g, .max_tokens = 8};
    for (int i = 0; i < 100; i++) {
        char line[128];
        int n = snprintf(line, sizeof line, "data: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":%d}}\n",
                         i % 2 ? 0 : 8);
        answer_stream_add(&a, line, (size_t)n);
    }
    assert_int_equal(g.tokens, 8);
    answer_stream_free(&a);
    buf_free(&g.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_sample),
        cmocka_unit_test(python_and_numpy_numbers),
        cmocka_unit_test(percentiles),
        cmocka_unit_test(frontier_of_published_numbers),
        cmocka_unit_test(frontier_drops_what_is_beaten),
        cmocka_unit_test(steffen_by_hand),
        cmocka_unit_test(scores),
        cmocka_unit_test(extracts),
        cmocka_unit_test(streams),
        cmocka_unit_test(numbers_of_a_hostile_server),
        cmocka_unit_test(counts_that_swing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
