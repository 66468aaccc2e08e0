/* tests/unit/text/bench_tokenizer.c: how fast the tokenizer encodes, one core. Not part of `make check`:
 *
 *     make build/tests/unit/text/bench_tokenizer && build/tests/unit/text/bench_tokenizer DIR FILE...
 *
 * prints a line for each file and for made-up worst cases of 8 MB. */
#include "base/file.h"
#include "base/log.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void time_it(const tokenizer *t, const char *name, const char *text, size_t len) {
    ids_buf ids = {0};
    f64 best = 1e30;
    for (int run = 0; run < 3; run++) {
        ids.len = 0;
        f64 start = now_s();
        if (tokenizer_encode(t, text, len, true, &ids, NULL) != ST_OK) exit(1);
        f64 took = now_s() - start;
        if (took < best) best = took;
    }
    printf("%-44s %9.2f MB %10zu ids %8.1f MB/s\n", name, len / 1e6, ids.len, len / 1e6 / best);
    ids_free(&ids);
}

static void repeated(const tokenizer *t, const char *name, const char *unit) {
    buf b = {0};
    while (b.len < 8000000) buf_str(&b, unit);
    time_it(t, name, b.data, b.len);
    buf_free(&b);
}

static void random_bytes(const tokenizer *t) {
    size_t n = 8000000;
    char *p = malloc(n);
    u64 x = 88172645463325252u;
    for (size_t i = 0; p && i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64 */
        p[i] = (char)(x >> 24);
    }
    if (p) time_it(t, "random bytes", p, n);
    for (size_t i = 0; p && i < n; i++) p[i] = (char)('a' + (u8)p[i] % 26);
    if (p) time_it(t, "random letters", p, n);
    free(p);
}

int main(int argc, char **argv) {
    tokenizer *t;
    err e = {0};
    f64 start = now_s();
    if (argc < 2 || tokenizer_open(&t, argv[1], &e) != ST_OK) {
        fprintf(stderr, "usage: bench_tokenizer DIR FILE...   %s\n", e.text);
        return 1;
    }
    printf("opened in %.1f ms\n", (now_s() - start) * 1e3);
    for (int i = 2; i < argc; i++) {
        buf b = {0};
        if (file_read(argv[i], 1u << 30, &b, &e) != ST_OK) return fprintf(stderr, "%s\n", e.text), 1;
        time_it(t, argv[i], b.data, b.len);
        buf_free(&b);
    }
    random_bytes(t);
    repeated(t, "one letter", "a");
    repeated(t, "one rare letter", "q");
    repeated(t, "capitals", "A");
    repeated(t, "spaces", " ");
    repeated(t, "newlines", "\n");
    repeated(t, "digits", "7");
    repeated(t, "punctuation", "!");
    repeated(t, "letter, mark", "e\xcc\x81");
    repeated(t, "mark, capital",
             "\xcc\x81"
             "A");
    repeated(t, "marks", "\xcc\x81");
    repeated(t, "one Han character", "\xe4\xb8\xad");
    repeated(t, "newline, space", "\n ");
    repeated(t, "beginnings of special tokens", "<|reserved_token_1");
    repeated(t, "special tokens", "<|im_end|>");
    tokenizer_close(t);
    return 0;
}
