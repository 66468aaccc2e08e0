/* The numbers of `moonlet eval formats`: a mean of clusters, a divergence, documents and what of them is scored. */
#include "cmd/lib/compare_scores.c"
#include "cmd/lib/documents.c"
#include "cmd/lib/stats.c"
#include "cmd/lib/text_corpus.c"
#include "unit.h"

/* By hand: sums 3, 1, 2 of 2, 1, 3 tokens: 6 / 6; residuals 1, 0, -1; sqrt(2 * 3 / 2) / 6 * 4.303. */
static void clusters(void **s) {
    (void)s;
    const f64 sum[] = {3, 1, 2}, count[] = {2, 1, 3};
    mean_95 m = mean_of_clusters(sum, count, 3);
    assert_true(m.mean == 1);
    assert_float_equal(m.half, 4.303 * sqrt(3) / 6, 1e-12);
    assert_true(mean_of_clusters(sum, count, 1).mean == 1.5 && isnan(mean_of_clusters(sum, count, 1).half));
}

/* scipy.stats.t.ppf(0.975, n) */
static void students_t(void **s) {
    (void)s;
    assert_float_equal(student_975(1), 12.7062, 1e-3);
    assert_float_equal(student_975(30), 2.04227, 1e-3);
    assert_float_equal(student_975(31), 2.03951, 1e-4);
    assert_float_equal(student_975(100), 1.98397, 1e-5);
    assert_float_equal(student_975(1000000), 1.95997, 1e-5);
}

static f64 divergence(const f32 *p, const f32 *q, i64 n) {
    return kl_divergence(p, log_sum_exp(p, n), q, log_sum_exp(q, n), n);
}

static void divergences(void **s) {
    (void)s;
    const f32 even[] = {5, 5, 5, 5}, one[] = {logf(5), 0, 0, 0}, shifted[] = {logf(5) - 7, -7, -7, -7};
    assert_true(divergence(one, one, 4) == 0);
    assert_float_equal(divergence(one, shifted, 4), 0, 1e-6);
    assert_float_equal(divergence(even, one, 4), 0.25 * log(0.25 / 0.625) + 0.75 * log(2), 1e-7);
    assert_float_equal(divergence(one, even, 4), 0.625 * log(2.5) + 0.375 * log(0.5), 1e-7);
    const f32 far[] = {0, -2000}, other[] = {0, -1000}; /* a probability of 0 adds nothing */
    assert_true(divergence(far, other, 2) == 0);
}

static status read_text(documents *d, const char *text, i64 most, err *e) {
    char path[] = "/tmp/moonlet-documents-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    text_encoder nano = {.model_dir = "models/nano", .model_type = "kimi_k25", .vocab = 2048};
    status st = documents_read(d, &nano, path, 8, most, e);
    text_encoder_close(&nano);
    unlink(path);
    return st;
}

static void windows(void **s) {
    (void)s;
    documents d;
    assert_int_equal(read_text(&d, "1 2 3 4 5 6 7 8 9 10 11 12", 17, NULL), ST_OK); /* the 17th is alone */
    assert_true(d.n == 2 && d.begin[1] == 8 && d.begin[2] == 16 && d.from[0] == 1 && d.scored == 14);
    documents_free(&d);
}

static void answers_are_scored(void **s) {
    (void)s;
    documents d, same;
    assert_int_equal(
        read_text(&d, "{\"question\": \"1+1?\", \"answer\": \"2.\\n#### 2\"}\n{\"ids\": [7, 8, 9]}\n{\"ids\": [7]}\n",
                  0, NULL),
        ST_OK);
    assert_true(d.n == 2 && d.from[1] == 1 && d.scored == 3 + 2); /* "2", ".", the end */
    assert_int_equal(read_text(&same,
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"1+1?\"}, {\"role\": \"assistant\", "
                               "\"content\": \"2.\"}]}",
                               0, NULL),
                     ST_OK);
    assert_true(same.n == 1 && same.from[0] == d.from[0] && same.begin[1] == d.begin[1]);
    assert_memory_equal(same.ids.data, d.ids.data, (size_t)same.begin[1] * sizeof(i32));
    documents_free(&d);
    documents_free(&same);
}

static void refusals(void **s) {
    (void)s;
    static const char *const all[][2] = {
        {" \n", "empty"},
        {"a", "too short"},
        {"{\"ids\": [1]}", "too short"},
        {"{\"ids\": [1, 2048]}", "document 1: ids[1] is not a token id below 2048"},
        {"{\"ids\": [1, 2]}\n{\"x\": 1}", "document 2: needs \"ids\""},
        {"{\"question\": \"1+1?\"}", "without a string \"answer\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"1+1?\"}]}", "is no answer"},
        {"{\"messages\": 1}", "is no answer"},
        {"{\"ids\": [1, 2]}\n{bad", "line 2"},
        {"[]", "no items"},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        err e = {0};
        documents d;
        assert_int_not_equal(read_text(&d, all[i][0], 0, &e), ST_OK);
        assert_non_null(strstr(e.text, all[i][1]));
        documents_free(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters), cmocka_unit_test(students_t),         cmocka_unit_test(divergences),
        cmocka_unit_test(windows),  cmocka_unit_test(answers_are_scored), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
