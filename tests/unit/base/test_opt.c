/* Command-line options from one table; also errors as values and plain file names. */
#include "unit.h"
#include "base/file.h"
#include "base/opt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static struct {
    bool flag;
    i64 n;
    f64 x;
    const char *str, *mode;
    opt_list list, numbers;
} o;

static const opt_elsewhere elsewhere[] = {
    OPT_SAME("amount", "max-count"),
    OPT_SAME("-tf", "flag"),
    {"look", ELSEWHERE_NOTHING, false, NULL, "there is one"},
    {"size", ELSEWHERE_NOTHING, true, "1", "it is always 1"},
    {"size", ELSEWHERE_REFUSED, true, NULL, "it is always 1: leave it out"},
    {"draft-*", ELSEWHERE_REFUSED, true, NULL, "write --name S"},
    OPT_SAME("name", "mode"), /* never: our own goes first */
};

static const opt_spec specs[] = {
    {"flag", 'f', OPT_FLAG, &o.flag, NULL, "a flag", 0, 0},
    {"max-count", 'n', OPT_INT, &o.n, "N", "a number", -5, 1000},
    {"free", 0, OPT_INT, &o.n, "N", "a number", 0, 0},
    {"temp", 't', OPT_REAL, &o.x, "T", "a real", 0, 2},
    {"name", 0, OPT_STR, &o.str, "S", "a text", 0, 0},
    OPT_GROUP("Modes"),
    {"mode", 0, OPT_ENUM, &o.mode, "ref|cpu|cuda|cuda:N", "a choice", 0, 0},
    {"override", 0, OPT_LIST, &o.list, "K=V", "a list", 0, 0},
    {"nodes", 0, OPT_NUMBERS, &o.numbers, "N ...", "numbers", 0, 0},
    OPT_ELSEWHERE(elsewhere, COUNT_OF(elsewhere)),
};

static bool help;
static opt_list words;

/* Parses up to 8 words; `error` is a part of the message, NULL for success. */
static void run(const char *error, const char *a, const char *b, const char *c) {
    static char text[3][64]; /* the options point into it */
    char *argv[5] = {"cmd", NULL, NULL, NULL, NULL};
    const char *in[3] = {a, b, c};
    int argc = 1;
    for (int i = 0; i < 3 && in[i]; i++) argv[argc++] = strcpy(text[i], in[i]);
    memset(&o, 0, sizeof o);
    memset(&words, 0, sizeof words);
    err e = {0};
    status st = opt_parse(specs, COUNT_OF(specs), argc, argv, error ? NULL : &words, &help, &e);
    if (!error) {
        if (st != ST_OK) fail_msg("%s", e.text);
        return;
    }
    assert_int_equal(st, ST_INPUT);
    if (!strstr(e.text, error)) fail_msg("\"%s\" is not in: %s", error, e.text);
}

static void test_good(void **state) {
    (void)state;
    run(NULL, "--max-count", "7", NULL);
    assert_int_equal(o.n, 7);
    run(NULL, "--max_count=-5", NULL, NULL);
    assert_int_equal(o.n, -5);
    run(NULL, "-n", "-3", "-f");
    assert_true(o.n == -3 && o.flag);
    run(NULL, "-n1000", NULL, NULL);
    assert_int_equal(o.n, 1000);
    run(NULL, "--free", "-9223372036854775808", NULL);
    assert_true(o.n == INT64_MIN);
    run(NULL, "--temp=2", "--mode", "cuda");
    assert_true(o.x == 2);
    assert_string_equal(o.mode, "cuda");
    run(NULL, "--mode", "cuda:1234", NULL);
    assert_string_equal(o.mode, "cuda:1234");
    run(NULL, "--temp=0.7", "--mode=ref", "--flag");
    assert_true(o.x == 0.7 && o.flag);
    run(NULL, "--help", NULL, NULL);
    assert_true(help);
    run(NULL, "-h", NULL, NULL);
    assert_true(help);
    run(NULL, "word", "-", "--flag");
    assert_true(words.n == 2 && o.flag && !help);
    assert_string_equal(words.items[1], "-");
}

/* --name's value lives in argv, so it is checked at once. */
static void test_text_and_lists(void **state) {
    (void)state;
    char *argv[] = {"cmd", "--name=a=b", "--override", "k=v", "--override=x=y"};
    memset(&o, 0, sizeof o);
    err e = {0};
    assert_int_equal(opt_parse(specs, COUNT_OF(specs), 5, argv, NULL, &help, &e), ST_OK);
    assert_string_equal(o.str, "a=b");
    assert_int_equal(o.list.n, 2);
    assert_string_equal(o.list.items[0], "k=v");
    assert_string_equal(o.list.items[1], "x=y");
    char *many[80] = {"cmd"};
    for (int i = 1; i < 80; i++) many[i] = "--override=k=v";
    memset(&o, 0, sizeof o);
    assert_int_equal(opt_parse(specs, COUNT_OF(specs), 80, many, NULL, &help, &e), ST_INPUT);
    assert_non_null(strstr(e.text, "--override"));
    assert_int_equal(o.list.n, 64);
}

static void test_errors(void **state) {
    (void)state;
    run("--unknown", "--unknown", NULL, NULL);
    run("-z", "-z", NULL, NULL);
    run("--Modes", "--Modes", NULL, NULL);
    run("unknown option", "--", NULL, NULL);
    run("unknown option", "--max-coun=3", NULL, NULL);
    run("unknown option", "--max-countx=3", NULL, NULL);
    run("--max-count needs a value", "--max-count", NULL, NULL);
    run("--max-count", "--max-count", "1001", NULL);
    run("--max-count", "--max-count", "-6", NULL);
    run("--max-count", "--max-count", "7x", NULL);
    run("--max-count", "--max-count", "", NULL);
    run("--max-count", "--max-count", "99999999999999999999", NULL);
    run("--max-count", "--max-count", "1.5", NULL);
    run("--temp", "--temp", "nan", NULL);
    run("--temp", "--temp", "inf", NULL);
    run("--temp", "--temp", "1e999", NULL);
    run("--temp", "--temp=-0.1", NULL, NULL);
    run("takes no value", "--flag=1", NULL, NULL);
    run("takes no value", "-fx", NULL, NULL);
    run("ref|cpu|cuda", "--mode", "cp", NULL);
    run("ref|cpu|cuda", "--mode", "cpu|cuda", NULL);
    run("ref|cpu|cuda", "--mode=", NULL, NULL);
    run("ref|cpu|cuda", "--mode=cuda:", NULL, NULL);
    run("ref|cpu|cuda", "--mode=cuda:12345", NULL, NULL);
    run("ref|cpu|cuda", "--mode=cuda:1x", NULL, NULL);
    run("ref|cpu|cuda", "--mode=cuda:N", NULL, NULL);
    run("ref|cpu|cuda", "--mode=cpu:1", NULL, NULL);
    run("unexpected word \"word\"", "word", NULL, NULL);
}

/* Numbers end where another word begins; a first word that is none is the value all the same. */
static void numbers(void **state) {
    (void)state;
    run(NULL, "--nodes", "0", "1,1");
    assert_true(o.numbers.n == 2 && !words.n);
    assert_string_equal(o.numbers.items[1], "1,1");
    run(NULL, "--nodes=3", "4", "--flag");
    assert_true(o.numbers.n == 2 && o.flag && !words.n);
    assert_string_equal(o.numbers.items[0], "3");
    run(NULL, "--nodes", "0", "1x");
    assert_true(o.numbers.n == 1 && words.n == 1);
    run(NULL, "--nodes", "x", "-f");
    assert_true(o.numbers.n == 1 && o.flag);
    run("--nodes needs a value", "--nodes", NULL, NULL);
    char *many[80] = {"cmd", "--nodes"};
    for (int i = 2; i < 80; i++) many[i] = "1";
    memset(&o, 0, sizeof o);
    err e = {0};
    assert_int_equal(opt_parse(specs, COUNT_OF(specs), 80, many, NULL, &help, &e), ST_INPUT);
    assert_string_equal(e.text, "--nodes given more than 64 times");
}

/* What parsing says on stderr. */
static const char *notices(const char *a, const char *b, const char *c) {
    static char text[512];
    fflush(stderr);
    FILE *f = tmpfile();
    int before = dup(2);
    dup2(fileno(f), 2);
    run(NULL, a, b, c);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void options_of_other_programs(void **state) {
    (void)state;
    assert_string_equal(notices("--amount", "7", "-tf"), "");
    assert_true(o.n == 7 && o.flag);
    assert_string_equal(notices("--amount=8", "-t", "1"), "");
    assert_true(o.n == 8 && o.x == 1);
    assert_string_equal(notices("--look", "--size", "1"),
                        "--look changes nothing here: there is one\n--size changes nothing here: it is always 1\n");
    assert_int_equal(words.n, 0);
    assert_string_equal(notices("--size=1", "word", NULL), "--size changes nothing here: it is always 1\n");
    assert_int_equal(words.n, 1);
    assert_string_equal(notices("--name", "--look", NULL), ""); /* a value is a value */
    assert_string_equal(o.str, "--look");
    run("--max-count is 1001", "--amount", "1001", NULL);
    run("--max-count needs a value", "--amount", NULL, NULL);
    run("--flag takes no value", "-tf=1", NULL, NULL);
    run("--look takes no value", "--look=1", NULL, NULL);
    run("--size: it is always 1: leave it out", "--size", "2", NULL);
    run("--size: it is always 1: leave it out", "--size=11", NULL, NULL);
    run("--size: it is always 1: leave it out", "--size", NULL, NULL);
    run("--draft-model: write --name S", "--draft-model", "x", NULL);
    run("--draft_model: write --name S", "--draft_model=x", NULL, NULL);
    run("unknown option --draft", "--draft", NULL, NULL);
    run("unknown option --looks", "--looks", NULL, NULL);
    run("unknown option --loo", "--loo", NULL, NULL);
}

static void test_err_is_one_line(void **state) {
    (void)state;
    err e = {0};
    assert_int_equal(err_set(&e, ST_IO, "a\nb\x1b[2J\x7f%s", "c"), ST_IO);
    assert_string_equal(e.text, "a?b?[2J?c");
    assert_int_equal(err_prefix(&e, "file %d", 7), ST_IO);
    assert_string_equal(e.text, "file 7: a?b?[2J?c");
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(err_set(&e, ST_FORMAT, "%s", longer), ST_FORMAT);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_int_equal(err_set(NULL, ST_LIMIT, "%s", longer), ST_LIMIT);
    assert_int_equal(err_prefix(&e, "%s/end", longer), ST_FORMAT); /* both are cut, both are still there */
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_non_null(strstr(e.text, "x/end: xxx"));
    err_set(&e, ST_FORMAT, "what is wrong");
    err_prefix(&e, "%s/config.json", longer);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_int_equal(strncmp(e.text, "...xxx", 6), 0);
    assert_non_null(strstr(e.text, "xxx/config.json: what is wrong"));
    assert_int_equal(err_prefix(NULL, "x"), ST_OK);
}

static void test_plain_names(void **state) {
    (void)state;
    static const char *const good[] = {"a", "model-1-of-2.safetensors", "...", ".a", "a b", "..a"};
    static const char *const bad[] = {"", ".", "..", "/", "a/b", "../a", "a/", "/etc/passwd"};
    for (size_t i = 0; i < COUNT_OF(good); i++) assert_true(path_is_plain_name(good[i], strlen(good[i])));
    for (size_t i = 0; i < COUNT_OF(bad); i++) assert_false(path_is_plain_name(bad[i], strlen(bad[i])));
    assert_false(path_is_plain_name("a\0b", 3));
}

/* 200,000 bytes, whole, cut, damaged, too many, not gzip, and beside a file of the plain name. */
static void gzip_is_read_where_only_that_is_there(const char *path) {
    char packed[64], bytes[4096];
    err e = {0};
    buf b = {0};
    snprintf(packed, sizeof packed, "%s.gz", path);
    gzFile z = gzopen(packed, "wb9");
    for (int i = 0; i < 50000; i++) assert_int_equal(gzprintf(z, "%03d ", i * 7 % 1000), 4);
    assert_int_equal(gzclose(z), Z_OK);
    buf_str(&b, "> ");
    assert_int_equal(file_read(path, 200000, &b, &e), ST_OK);
    assert_int_equal(b.len, 200002);
    assert_memory_equal(b.data, "> 000 007 014", 13);
    assert_string_equal(b.data + 200002 - 8, "986 993 ");
    assert_int_equal(file_read(path, 199999, &b, &e), ST_LIMIT);
    assert_non_null(strstr(e.text, packed));
    FILE *f = fopen(packed, "r+b");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true(n > 100 && n < sizeof bytes);
    for (size_t cut = n - 1; cut > 0; cut -= n / 10) { /* the first: a byte of the length at the end is missing */
        assert_int_equal(truncate(packed, (off_t)cut), 0);
        assert_int_equal(file_read(path, 1 << 20, &b, &e), ST_FORMAT);
        if (cut <= n / 10) break;
    }
    bytes[n - 6] ^= 1; /* of the checksum */
    rewind(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(file_read(path, 1 << 20, &b, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, packed));
    f = fopen(packed, "wb");
    fputs("not packed", f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(file_read(path, 1 << 20, &b, &e), ST_FORMAT);
    f = fopen(path, "wb");
    fputs("plain", f);
    assert_int_equal(fclose(f), 0);
    buf_clear(&b);
    assert_int_equal(file_read(path, 1 << 20, &b, &e), ST_OK);
    assert_string_equal(b.data, "plain");
    buf_free(&b);
    unlink(path);
    unlink(packed);
}

static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/moonlet-file-XXXXXX", joined[64];
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    err e = {0};
    file_map m;
    assert_int_equal(file_map_open(&m, path, &e), ST_OK);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    file_map_close(&m);
    buf b = {0};
    buf_str(&b, "> ");
    assert_int_equal(file_read(path, 5, &b, &e), ST_OK);
    assert_string_equal(b.data, "> hello");
    assert_int_equal(file_read(path, 4, &b, &e), ST_LIMIT);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(file_map_open(&m, path, &e), ST_OK);
    assert_true(m.size == 0 && m.data == NULL);
    file_map_close(&m);
    buf_clear(&b);
    assert_int_equal(file_read(path, 4, &b, &e), ST_OK);
    assert_int_equal(b.len, 0);
    buf_free(&b);
    unlink(path);
    gzip_is_read_where_only_that_is_there(path);
    assert_false(file_exists(path));
    assert_int_equal(file_map_open(&m, "/tmp", &e), ST_IO);
    assert_int_equal(file_map_open(&m, "/dev/null", &e), ST_IO);
    assert_int_equal(path_join(joined, sizeof joined, "a", "b", &e), ST_OK);
    assert_string_equal(joined, "a/b");
    assert_int_equal(path_join(joined, 3, "a", "b", &e), ST_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_text_and_lists),
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_err_is_one_line),
        cmocka_unit_test(test_plain_names), cmocka_unit_test(test_files),
        cmocka_unit_test(numbers),          cmocka_unit_test(options_of_other_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
