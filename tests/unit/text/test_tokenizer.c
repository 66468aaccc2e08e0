/* The tokenizer through its header: Kimi's files, a small vocabulary made here, hostile files, and inputs
 * that would take quadratic time in a careless encoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/base64.h"
#include "base/log.h"
#include "text/special.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab.h"

#define KIMI "tests/data/kimi-k2.5"

static tokenizer *kimi;

static int open_kimi(void **state) {
    (void)state;
    err e = {0};
    if (tokenizer_open(&kimi, KIMI, &e) != ST_OK) fprintf(stderr, "%s\n", e.text);
    return kimi ? 0 : -1;
}
static int close_kimi(void **state) {
    (void)state;
    tokenizer_close(kimi);
    return 0;
}

static void expect_ids(const tokenizer *t, const char *text, size_t len, bool specials, const i32 *want, size_t n) {
    ids_buf ids = {0};
    assert_int_equal(tokenizer_encode(t, text, len, specials, &ids, NULL), ST_OK);
    assert_int_equal(ids.len, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids.data[i], want[i]);
    ids_free(&ids);
}
#define IDS(t, text, specials, ...)                                                                                    \
    expect_ids(t, text, sizeof(text) - 1, specials, (const i32[]){__VA_ARGS__}, COUNT_OF(((const i32[]){__VA_ARGS__})))

static void kimi_vocabulary(void **state) {
    (void)state;
    assert_int_equal(tokenizer_n_ranks(kimi), 163584);
    assert_int_equal(tokenizer_vocab_size(kimi), 163840);
    assert_int_equal(tokenizer_special(kimi, "[BOS]"), 163584);
    assert_int_equal(tokenizer_special(kimi, "<|im_end|>"), 163586);
    assert_int_equal(tokenizer_special(kimi, "</think>"), 163607);
    assert_int_equal(tokenizer_special(kimi, "<|reserved_token_163837|>"), 163837);
    assert_int_equal(tokenizer_special(kimi, "<|reserved_token_163584|>"), -1);
    assert_int_equal(tokenizer_special(kimi, "hello"), -1);
    assert_int_equal(tokenizer_special(kimi, ""), -1);
    assert_false(tokenizer_is_special(kimi, 163583));
    assert_true(tokenizer_is_special(kimi, 163584));
    assert_false(tokenizer_is_special(kimi, 163840));
    size_t n;
    assert_memory_equal(tokenizer_bytes(kimi, 22931, &n), "hello", 5);
    assert_int_equal(n, 5);
    assert_null(tokenizer_bytes(kimi, -1, &n));
    assert_null(tokenizer_bytes(kimi, 163840, &n));
}

static void kimi_ids(void **state) {
    (void)state;
    IDS(kimi, "user", false, 2482);
    IDS(kimi, "1234567890", false, 6694, 12972, 16242, 15);
    IDS(kimi, "<|im_user|>user<|im_middle|>hello<|im_end|>", true, 163587, 2482, 163601, 22931, 163586);
    expect_ids(kimi, NULL, 0, true, NULL, 0);
    ids_buf plain = {0};
    tokenizer_encode(kimi, "<|im_end|>", 10, false, &plain, NULL);
    assert_true(plain.len > 1);
    for (size_t i = 0; i < plain.len; i++) assert_false(tokenizer_is_special(kimi, plain.data[i]));
    ids_free(&plain);
}

static size_t piece(const char *s) { return split_piece((const u8 *)s, strlen(s)); }

static void split_pattern(void **state) {
    (void)state;
    assert_int_equal(piece(" \xe4\xbd\xa0"), 1);            /* a space never joins Han */
    assert_int_equal(piece("\xe4\xbd\xa0\xe3\x80\x82"), 3); /* "。" is not Script=Han */
    assert_int_equal(piece("it's"), 4);                     /* the ending belongs to the word */
    assert_int_equal(piece("IT'\xc5\xbf x"), 5);            /* long s */
    assert_int_equal(piece("HTMLParser"), 10);              /* alternative 2: U* then W+ */
    assert_int_equal(piece("helloWorld"), 5);               /* W+ ends at a capital */
    assert_int_equal(piece("\xca\xb0"                       /* caseless letter: W+ takes it and */
                           "ABC"),
                     2);              /* gives the capitals back */
    assert_int_equal(piece("\xcc\x81" /* mark, capitals: alternative 2 */
                           "AB"),
                     2); /* without its first character */
    assert_int_equal(piece("!AB c"), 3);
    assert_int_equal(piece("12345"), 3);
    assert_int_equal(piece(" !!\r\n\nx"), 6);
    assert_int_equal(piece("   x"), 2);
    assert_int_equal(piece("   "), 3);
    assert_int_equal(piece(" \n \n  x"), 4);
    assert_int_equal(piece("\tx"), 2);
    assert_int_equal(piece("\xe1\xa0\x8e x"), 3); /* U+180E is no space and no letter */
}

static size_t slices(const char *unit, size_t times, size_t *first) {
    buf b = {0};
    for (size_t i = 0; i < times; i++) buf_str(&b, unit);
    split_slices s;
    split_slices_start(&s, (const u8 *)b.data, b.len);
    size_t n, count = 0, sum = 0;
    for (; (n = split_slices_next(&s)) > 0; sum += n)
        if (count++ == 0) *first = n;
    assert_int_equal(sum, b.len);
    buf_free(&b);
    return count;
}

static void slice_bounds(void **state) {
    (void)state;
    size_t first;
    assert_int_equal(slices("a", 25000, &first), 1);
    assert_int_equal(slices("a", 25001, &first), 2);
    assert_int_equal(first, 25000);
    assert_int_equal(slices(" \x1f", 12501, &first), 2); /* U+001F counts as space here */
    assert_int_equal(slices("a ", 200000, &first), 1);
    assert_int_equal(slices("a ", 200001, &first), 2);
    assert_int_equal(first, 400000);
    assert_int_equal(slices("\xe4\xb8\xad", 25001, &first), 2); /* characters, not bytes */
    assert_int_equal(first, 75000);
}

static void utf8_cases(void **state) {
    (void)state;
    static const struct {
        const char *in;
        int n_bad;
    } cases[] = {{"\xff", 1},      {"\xe2\x82", 1},         {"\xe2\x82(", 1},           {"\xe2(\xa1", 2},
                 {"\xf0\x9f(", 1}, {"\xed\xa0\x80", 3},     {"\xf4\x90\x80\x80", 4},    {"\xc0\xaf", 2},
                 {"\xe0\x80", 2},  {"\xf0\x9f\x98\x80", 0}, {"12345678\xf0\x9f\x98", 1}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        buf b = {0};
        utf8_repair(&b, (const u8 *)cases[i].in, strlen(cases[i].in));
        int n = 0;
        for (const char *p = b.data; (p = strstr(p, UTF8_REPLACEMENT)); p += 3) n++;
        assert_int_equal(n, cases[i].n_bad);
        assert_int_equal(utf8_valid((const u8 *)b.data, b.len), b.len);
        assert_int_equal(utf8_valid((const u8 *)cases[i].in, strlen(cases[i].in)) == strlen(cases[i].in), n == 0);
        buf_free(&b);
    }
}

/* ---- A small vocabulary: 256 bytes in reverse order, then merges. ---- */

static void add_rank(buf *b, const char *bytes, size_t n, int rank) {
    base64_encode(b, bytes, n);
    buf_fmt(b, " %d\n", rank);
}

static void small_ranks(buf *b) {
    static const char *const merges[] = {"ab", "bc", "abc",  "  ",    "aa", "aaaa",
                                         "he", "ll", "hell", "hello", " h", "ca"};
    for (int i = 0; i < 256; i++) {
        char c = (char)(255 - i);
        add_rank(b, &c, 1, i);
    }
    for (size_t i = 0; i < COUNT_OF(merges); i++) add_rank(b, merges[i], strlen(merges[i]), 256 + (int)i);
    for (int i = 268; i < 300; i++) {
        char c[2] = {(char)i, (char)0xff};
        add_rank(b, c, 2, i);
    }
}

static char folder[] = "/tmp/moonlet-tokenizer-XXXXXX";

static void put(const char *name, const void *data, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

#define CONFIG(entries) "{\"added_tokens_decoder\": {" entries "}}"

static tokenizer *open_small(const buf *ranks, const char *config, err *e) {
    tokenizer *t;
    put("tiktoken.model", ranks->data ? ranks->data : "", ranks->len);
    put("tokenizer_config.json", config, strlen(config));
    status st = tokenizer_open(&t, folder, e);
    assert_int_equal(st == ST_OK, t != NULL);
    return t;
}

static void small_vocabulary(void **state) {
    (void)state;
    buf ranks = {0};
    err e = {0};
    small_ranks(&ranks);
    tokenizer *t = open_small(&ranks,
                              CONFIG("\"300\": {\"content\": \"<s>\", \"special\": true},"
                                     "\"302\": {\"content\": \"<s>x\"}, \"555\": {\"content\": \"[PAD]\"}"),
                              &e);
    assert_non_null(t);
    assert_int_equal(tokenizer_vocab_size(t), 556);
    assert_int_equal(tokenizer_special(t, "<|reserved_token_301|>"), 301);
    IDS(t, "abc", false, 258);
    IDS(t, "hello hello", false, 265, 255 - ' ', 265);                     /* " hello" is no token, its parts merge */
    IDS(t, "bca", false, 257, 255 - 'a');                                  /* the lower rank first, not the left one */
    IDS(t, "aaaaaaa", false, 261, 260, 255 - 'a');                         /* leftmost of equals */
    IDS(t, "a<s>xa<s>y", true, 255 - 'a', 302, 255 - 'a', 300, 255 - 'y'); /* the longest name */
    IDS(t, "\xff", false, 255 - 0xef, 255 - 0xbf, 255 - 0xbd);
    char longer[121];
    memset(longer, 'a', 120); /* past the length from which pieces go through the heap */
    i32 want[30];
    for (int i = 0; i < 30; i++) want[i] = 261;
    expect_ids(t, longer, 120, false, want, 30);
    i32 ids[] = {300, 265, 302};
    buf out = {0};
    assert_int_equal(tokenizer_decode_bytes(t, ids, 3, true, &out, &e), ST_OK);
    assert_string_equal(out.data, "hello<s>x");
    ids[1] = 556;
    assert_int_equal(tokenizer_decode_bytes(t, ids, 3, true, &out, &e), ST_INPUT);
    assert_string_equal(out.data, "hello<s>x"); /* as before */
    assert_non_null(strstr(e.text, "556"));
    buf_free(&out);
    buf_free(&ranks);
    tokenizer_close(t);
}

static void line_ends_and_order(void **state) {
    (void)state;
    buf b = {0}, turned = {0};
    err e = {0};
    small_ranks(&b);
    for (size_t end = b.len; end > 0;) { /* the lines from last to first, CR LF, empty lines between */
        size_t start = end - 1;
        while (start > 0 && b.data[start - 1] != '\n') start--;
        buf_add(&turned, b.data + start, end - 1 - start);
        buf_str(&turned, "\r\n\r\n\n");
        end = start;
    }
    tokenizer *t = open_small(&turned, CONFIG(""), &e);
    assert_non_null(t);
    IDS(t, "abc", false, 258);
    tokenizer_close(t);
    turned.len -= 5; /* no newline behind the last line */
    assert_non_null(t = open_small(&turned, CONFIG(""), &e));
    tokenizer_close(t);
    buf_free(&b);
    buf_free(&turned);
}

static void hostile_ranks(void **state) {
    (void)state;
    static const struct {
        const char *add, *says; /* behind the 300 good lines */
    } cases[] = {
        {"YQ==X 300\n", "base64"},
        {"Y===  300\n", "base64 rank"},
        {"YWI 300\n", "base64"},
        {"YWJ= 300\n", "base64"},
        {"//8= 299\n", "twice"},
        {"enp6 301\n", "not below"},
        {"enp6 99999999999999999999\n", "not below"},
        {"enp6 -1\n", "base64 rank"},
        {"enp6 300x\n", "base64 rank"},
        {"enp6\n", "base64 rank"},
        {" 300\n", "base64 rank"},
        {"YWI= 300\n", "same bytes"},
        {"\xff\xfe== 300\n", "base64"},
        {"enp6 300 1\n", "base64 rank"},
        {"==== 300\n", "base64"},
        {"{}\n", "base64 rank"},
        {"enp6  300\n", "base64 rank"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        buf b = {0};
        err e = {0};
        small_ranks(&b);
        buf_str(&b, cases[i].add);
        assert_null(open_small(&b, CONFIG(""), &e));
        assert_int_equal(e.code, ST_FORMAT);
        if (!strstr(e.text, cases[i].says)) fail_msg("%s: %s", cases[i].add, e.text);
        assert_non_null(strstr(e.text, "tiktoken.model"));
        assert_true(strstr(e.text, "line 301") || strstr(e.text, "ranks 256 and 300"));
        buf_free(&b);
    }
}

static void missing_byte_and_empty(void **state) {
    (void)state;
    buf b = {0};
    err e = {0};
    assert_null(open_small(&b, CONFIG(""), &e));
    assert_non_null(strstr(e.text, "no tokens"));
    buf_str(&b, "\n\r\n\n");
    assert_null(open_small(&b, CONFIG(""), &e));
    assert_non_null(strstr(e.text, "no tokens"));
    b.len = 0;
    for (int i = 0; i < 256; i++) {
        char c[2] = {(char)i, 'x'};
        add_rank(&b, c, i == 0x41 ? 2 : 1, i);
    }
    assert_null(open_small(&b, CONFIG(""), &e));
    assert_non_null(strstr(e.text, "0x41"));
    char *huge = calloc(1, VOCAB_BYTES_MAX + 1);
    add_rank(&b, huge, VOCAB_BYTES_MAX + 1, 256);
    free(huge);
    assert_null(open_small(&b, CONFIG(""), &e));
    assert_non_null(strstr(e.text, "4097 bytes"));
    buf_free(&b);
}

static void hostile_config(void **state) {
    (void)state;
    static const struct {
        const char *config, *says;
    } cases[] = {
        {"", "line 1"},
        {"[]", "added_tokens_decoder"},
        {"{}", "added_tokens_decoder"},
        {"{\"added_tokens_decoder\": []}", "added_tokens_decoder"},
        {CONFIG("\"299\": {\"content\": \"x\"}"), "299"},
        {CONFIG("\"556\": {\"content\": \"x\"}"), "556"},
        {CONFIG("\"0300\": {\"content\": \"x\"}"), "0300"},
        {CONFIG("\"99999999999999999999\": {\"content\": \"x\"}"), "outside"},
        {CONFIG("\"-300\": {\"content\": \"x\"}"), "not a token id"},
        {CONFIG("\"\": {\"content\": \"x\"}"), "not a token id"},
        {CONFIG("\"300\": {}"), "content"},
        {CONFIG("\"300\": 1"), "content"},
        {CONFIG("\"300\": {\"content\": \"\"}"), "0 bytes"},
        {CONFIG("\"300\": {\"content\": \"x\", \"special\": 1}"), "special"},
        {CONFIG("\"300\": {\"content\": \"x\"}, \"301\": {\"content\": \"x\"}"), "same name"},
        {CONFIG("\"300\": {\"content\": \"<|reserved_token_301|>\"}"), "same name"},
        {CONFIG("\"300\": {\"content\": \"x\"}, \"300\": {\"content\": \"y\"}"), "duplicate"},
        {CONFIG("\"300\": {\"content\": \"\xff\xfe\"}"), "decode byte"},
    };
    buf b = {0};
    small_ranks(&b);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        err e = {0};
        assert_null(open_small(&b, cases[i].config, &e));
        assert_int_equal(e.code, ST_FORMAT);
        assert_non_null(strstr(e.text, "tokenizer_config.json"));
        if (!strstr(e.text, cases[i].says)) fail_msg("%s: %s", cases[i].config, e.text);
    }
    buf_free(&b);
}

/* 1 MB of one thing must take about as long a byte as 0.125 MB: eight times the time, with generous room;
 * quadratic time would be 64 times. */
static f64 seconds(const char *unit, size_t bytes) {
    buf b = {0};
    ids_buf ids = {0};
    while (b.len < bytes) buf_str(&b, unit);
    f64 best = 1e30;
    for (int i = 0; i < 2; i++) {
        clock_t start = clock(); /* processor time: whoever else is busy on this machine does not count */
        ids.len = 0;
        assert_int_equal(tokenizer_encode(kimi, b.data, b.len, true, &ids, NULL), ST_OK);
        f64 took = (f64)(clock() - start) / CLOCKS_PER_SEC;
        best = took < best ? took : best;
    }
    buf back = {0};
    assert_int_equal(tokenizer_decode_bytes(kimi, ids.data, ids.len, false, &back, NULL), ST_OK);
    assert_int_equal(back.len, b.len);
    assert_memory_equal(back.data, b.data, b.len);
    buf_free(&back);
    buf_free(&b);
    ids_free(&ids);
    return best;
}

static void no_quadratic_time(void **state) {
    (void)state;
    static const char *const units[] = {"a",
                                        "Q",
                                        " ",
                                        "\n",
                                        "\t",
                                        "!",
                                        "7",
                                        "\xcc\x81",
                                        "e\xcc\x81",
                                        "\xcc\x81"
                                        "A",
                                        "\xca\xb0"
                                        "A",
                                        "\xe4\xb8\xad",
                                        " \n",
                                        "\n ",
                                        "<",
                                        "<|reserved_token_1",
                                        "\xe3\x80\x80",
                                        "'",
                                        "x'",
                                        "\x1c"};
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        f64 small = seconds(units[i], 125000), big = seconds(units[i], 1000000);
        if (big > 25 * small + 0.5) fail_msg("\"%s\": %.3f s, then %.3f s", units[i], small, big);
    }
}

/* The work ends at the limit: neither ids nor time for what is behind it. */
static void no_more_ids_than_asked_for(void **state) {
    (void)state;
    enum { N = 8 << 20, MOST = 1000 };
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) text[i] = i % 3 ? 'q' : ' ';
    ids_buf ids = {.max = MOST};
    err e = {0};
    assert_int_equal(tokenizer_encode(kimi, text, N, true, &ids, &e), ST_LIMIT);
    assert_int_equal(ids.len, 0);
    assert_true(ids.cap <= MOST);
    assert_non_null(strstr(e.text, "1000 tokens"));
    ids_free(&ids);
    ids.max = 2;
    assert_int_equal(tokenizer_encode(kimi, "<|im_end|><|im_end|>", 20, true, &ids, &e), ST_OK);
    assert_int_equal(ids.len, 2);
    ids_free(&ids);
    ids.max = 2;
    assert_int_equal(tokenizer_encode(kimi, "<|im_end|><|im_end|><|im_end|>", 30, true, &ids, &e), ST_LIMIT);
    ids_free(&ids);
    free(text);
    size_t longest = tokenizer_longest(kimi), seen = 0, len;
    for (i32 i = 0; i < tokenizer_vocab_size(kimi); i++) {
        tokenizer_bytes(kimi, i, &len);
        if (len > seen) seen = len;
    }
    assert_int_equal(longest, seen);
}

static void streaming(void **state) {
    (void)state;
    i32 ids[8];
    const char *bytes = "\xe4\xb8\xf0\x9f\x99\x82\xff!";
    for (int i = 0; i < 8; i++) {
        for (i32 id = 0; id < 256; id++) {
            size_t n;
            const char *p = tokenizer_bytes(kimi, id, &n);
            if (n == 1 && *p == bytes[i]) ids[i] = id;
        }
    }
    static const char *const want[] = {"", "", "\xef\xbf\xbd", "", "", "\xf0\x9f\x99\x82", "\xef\xbf\xbd", "!"};
    decode_stream s = {0};
    buf out = {0};
    for (int i = 0; i < 8; i++) {
        buf_clear(&out);
        assert_int_equal(decode_stream_add(&s, kimi, ids[i], false, &out, NULL), ST_OK);
        assert_string_equal(out.data ? out.data : "", want[i]);
    }
    assert_int_equal(decode_stream_add(&s, kimi, -1, false, &out, NULL), ST_INPUT);
    decode_stream_add(&s, kimi, ids[0], false, &out, NULL);
    buf_clear(&out);
    decode_stream_end(&s, &out);
    assert_string_equal(out.data, "\xef\xbf\xbd");
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kimi_vocabulary),
        cmocka_unit_test(kimi_ids),
        cmocka_unit_test(split_pattern),
        cmocka_unit_test(slice_bounds),
        cmocka_unit_test(utf8_cases),
        cmocka_unit_test(small_vocabulary),
        cmocka_unit_test(line_ends_and_order),
        cmocka_unit_test(hostile_ranks),
        cmocka_unit_test(missing_byte_and_empty),
        cmocka_unit_test(hostile_config),
        cmocka_unit_test(no_quadratic_time),
        cmocka_unit_test(no_more_ids_than_asked_for),
        cmocka_unit_test(streaming),
    };
    if (!mkdtemp(folder)) return 1;
    int rc = cmocka_run_group_tests(tests, open_kimi, close_kimi);
    char path[128];
    snprintf(path, sizeof path, "%s/tiktoken.model", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    unlink(path);
    rmdir(folder);
    return rc;
}
