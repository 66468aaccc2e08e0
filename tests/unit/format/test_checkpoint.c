/* A folder of shards as one set of tensors; and the two readers beneath it, scan and names. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "unit.h"
#include "format/checkpoint.h"
#include "format/index.h"
#include "format/names.h"
#include "format/scan.h"

static char dir[64];

static void write_text(const char *name, const void *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* A shard of one tensor of one F32. */
static void write_shard(const char *file, const char *tensor, f32 value) {
    char image[8 + 128 + 4] = {128};
    int n = snprintf(image + 8, 128, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    memset(image + 8 + n, ' ', (size_t)(128 - n));
    memcpy(image + 136, &value, 4);
    write_text(file, image, sizeof image);
}

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/moonlet-checkpoint-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    static const char *const names[] = {"a.safetensors", "b.safetensors", "model.safetensors",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir);
}

#define INDEX(text) write_text("model.safetensors.index.json", text, strlen(text))

static void test_single(void **state) {
    (void)state;
    write_shard("model.safetensors", "only", 2.5f);
    checkpoint *c;
    err e = {0};
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_OK);
    assert_int_equal(checkpoint_n_tensors(c), 1);
    assert_int_equal(checkpoint_n_shards(c), 1);
    assert_string_equal(checkpoint_shard_name(c, 0), "model.safetensors");
    const tensor_info *t = checkpoint_find(c, "only");
    assert_non_null(t);
    assert_true(*(const f32 *)(const void *)t->data == 2.5f);
    assert_null(checkpoint_find(c, "onl"));
    assert_null(checkpoint_find(c, ""));
    assert_int_equal(checkpoint_bytes(c), 4);
    checkpoint_close(c);
    checkpoint_close(NULL);
}

static void test_shards(void **state) {
    (void)state;
    write_shard("a.safetensors", "z", 1);
    write_shard("b.safetensors", "y", 2);
    INDEX("{\"metadata\":{\"total_size\":8},\"weight_map\":{\"z\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    checkpoint *c;
    err e = {0};
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_OK);
    assert_int_equal(checkpoint_n_tensors(c), 2);
    assert_string_equal(checkpoint_tensor(c, 0)->name, "y"); /* sorted */
    assert_string_equal(checkpoint_shard_name(c, checkpoint_find(c, "y")->shard), "b.safetensors");
    assert_true(*(const f32 *)(const void *)checkpoint_find(c, "z")->data == 1);
    checkpoint_close(c);
}

/* The same name in two shards: the index says which one counts. */
static void test_index_decides(void **state) {
    (void)state;
    write_shard("a.safetensors", "w", 1);
    write_shard("b.safetensors", "w", 2);
    checkpoint *c;
    err e = {0};
    INDEX("{\"weight_map\":{\"w\":\"b.safetensors\"}}");
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_OK);
    assert_true(*(const f32 *)(const void *)checkpoint_find(c, "w")->data == 2);
    assert_int_equal(checkpoint_n_unlisted(c), 0); /* a.safetensors is not even opened */
    checkpoint_close(c);

    write_shard("b.safetensors", "v", 2);
    INDEX("{\"weight_map\":{\"w\":\"b.safetensors\",\"v\":\"b.safetensors\"}}");
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_FORMAT);
    assert_null(c);
    assert_non_null(strstr(e.text, "\"w\" is not in its shard b.safetensors"));
}

static void test_unlisted(void **state) {
    (void)state;
    write_shard("a.safetensors", "w", 1);
    write_shard("b.safetensors", "w", 2);
    checkpoint *c;
    err e = {0};
    INDEX("{\"weight_map\":{\"w\":\"b.safetensors\",\"x\":\"a.safetensors\"}}");
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_FORMAT); /* x is missing, w of a is a stray copy */
    assert_non_null(strstr(e.text, "\"x\""));
    char two[8 + 256 + 8] = {0};
    two[1] = 1; /* 256 */
    int n = snprintf(two + 8, 256,
                     "{\"p\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                     "\"q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}");
    memset(two + 8 + n, ' ', (size_t)(256 - n));
    write_text("a.safetensors", two, sizeof two);
    INDEX("{\"weight_map\":{\"p\":\"a.safetensors\"}}");
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_OK);
    assert_int_equal(checkpoint_n_tensors(c), 1);
    assert_int_equal(checkpoint_n_unlisted(c), 1);
    assert_int_equal(checkpoint_bytes(c), 4);
    assert_null(checkpoint_find(c, "q"));
    checkpoint_close(c);
}

static void test_nothing_there(void **state) {
    (void)state;
    checkpoint *c;
    err e = {0};
    assert_int_equal(checkpoint_open(&c, dir, &e), ST_IO);
    assert_null(c);
    assert_non_null(strstr(e.text, dir));
    assert_int_equal(checkpoint_open(&c, "/nonexistent", NULL), ST_IO);
}

/* ---- scan ---- */

static bool skips(const char *text) {
    char copy[4096];
    assert_true(strlen(text) < sizeof copy);
    strcpy(copy, text);
    scan s = scan_text(copy, strlen(copy));
    return scan_skip_value(&s) && scan_at_end(&s);
}

static void test_scan_grammar(void **state) {
    (void)state;
    static const char *const good[] = {"0",
                                       "-0",
                                       "10",
                                       "-1.5e+3",
                                       "1E5",
                                       "\"\"",
                                       "\"\\u12aF\\\\\\/\"",
                                       "[]",
                                       " [ 1 , [ ] ] ",
                                       "{}",
                                       "{\"a\":{\"b\":[true,false,null]}}",
                                       "\"\xc3\xa9\""};
    static const char *const bad[] = {"",     " ",     "01",      "-",           "1.",     ".5",         "1e",
                                      "+1",   "\"",    "\"\\x\"", "\"\\u12g4\"", "\"\n\"", "[",          "[1,]",
                                      "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}",    "{a:1}",  "{\"a\":1,}", "tru",
                                      "nul",  "]",     "1 1",     "[]]",         "'a'",    "NaN",        "\"\\"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        if (!skips(good[i])) fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (skips(bad[i])) fail_msg("accepted: %s", bad[i]);
    char deep[400];
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    char text[401] = {0};
    memcpy(text, deep, 400);
    assert_false(skips(text));
}

static void test_scan_numbers(void **state) {
    (void)state;
    const struct {
        const char *text;
        bool good;
        u64 value;
    } cases[] = {{"0", true, 0},
                 {"9223372036854775807", true, INT64_MAX},
                 {" 17", true, 17},
                 {"9223372036854775808", false, 0},
                 {"-1", false, 0},
                 {"99999999999999999999999", false, 0},
                 {"1.0", false, 0},
                 {"00", false, 0},
                 {"9223372036854775799", true, 9223372036854775799u}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char copy[64];
        strcpy(copy, cases[i].text);
        scan s = scan_text(copy, strlen(copy));
        u64 v = 0;
        assert_int_equal(scan_u64(&s, &v), cases[i].good);
        assert_int_equal(v, cases[i].value);
        err e = {0};
        assert_int_equal(scan_result(&s, &e), cases[i].good ? ST_OK : ST_FORMAT);
    }
}

/* ---- names ---- */

static void test_names(void **state) {
    (void)state;
    enum { N = 5000 };
    struct item {
        const char *name;
        int value;
    } *items = calloc(N, sizeof *items);
    char(*text)[32] = calloc(N, sizeof *text);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "layer.%d.x", i);
        items[i].name = text[i];
    }
    name_table t;
    i64 twice;
    assert_true(names_build(&t, items, sizeof *items, N, &twice));
    assert_int_equal(twice, -1);
    for (int i = 0; i < N; i++) assert_int_equal(names_find(&t, text[i]), i);
    assert_int_equal(names_find(&t, "layer.5000.x"), -1);
    names_free(&t);
    items[77].name = text[33];
    assert_true(names_build(&t, items, sizeof *items, N, &twice));
    assert_int_equal(twice, 77);
    assert_int_equal(names_find(&t, text[33]), 33);
    names_free(&t);
    assert_true(names_build(&t, NULL, 8, 0, &twice));
    assert_int_equal(names_find(&t, "x"), -1);
    names_free(&t);
    free(items);
    free(text);
}

/* ---- index ---- */

static void test_index(void **state) {
    (void)state;
    const char *text = "{\"x\":[1,{}],\"weight_map\":{\"c\":\"s2\",\"a\":\"s10\",\"b\":\"s2\"},\"y\":null} ";
    shard_index x;
    err e = {0};
    assert_int_equal(index_parse(&x, text, strlen(text), "i", &e), ST_OK);
    assert_int_equal(x.n, 3);
    assert_int_equal(x.n_shards, 2);
    assert_string_equal(x.shards[0], "s10");
    assert_string_equal(x.shards[1], "s2");
    const int want[] = {1, 0, 1};
    for (int i = 0; i < 3; i++) assert_int_equal(x.entries[i].shard, want[i]);
    index_free(&x);
    const char *outside = "{\"weight_map\":{\"c\":\"../s\"}}";
    assert_int_equal(index_parse(&x, outside, strlen(outside), "i", &e), ST_FORMAT);
    assert_string_equal(e.text, "i: tensor \"c\" lies in \"../s\", which is not a plain file name");
    index_free(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_single, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_index_decides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unlisted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
        cmocka_unit_test(test_scan_grammar),
        cmocka_unit_test(test_scan_numbers),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
