#include "cmd/eval/gsm8k_score.h"
#include <math.h>
#include <string.h>

static bool score_digit(char c) { return c >= '0' && c <= '9'; }
static bool in_strict(char c) { return score_digit(c) || c == '.' || c == ','; }
static bool in_flexible(char c) { return in_strict(c) || c == '$'; }

static size_t score_run(const char *s, size_t len, bool (*in)(char)) {
    size_t n = 0;
    while (n < len && in(s[n])) n++;
    return n;
}

void gsm8k_strict(const char *answer, size_t len, buf *out) {
    for (size_t i = 0; i + 5 < len; i++) {
        if (memcmp(answer + i, "#### ", 5)) continue;
        size_t from = i + 5, minus = answer[from] == '-';
        size_t n = score_run(answer + from + minus, len - from - minus, in_strict);
        if (!n) continue;
        buf_add(out, answer + from, minus + n);
        return;
    }
    buf_str(out, "[invalid]");
}

void gsm8k_flexible(const char *answer, size_t len, buf *out) {
    size_t at = 0, best = 0, best_len = 0;
    while (at < len) {
        size_t minus = answer[at] == '-', left = len - at - minus;
        size_t n = score_run(answer + at + minus, left, in_flexible);
        if (n < 2) n = score_run(answer + at + minus, left, score_digit);
        if (n) {
            best = at;
            best_len = minus + n;
        }
        at += n ? minus + n : 1;
    }
    if (best_len)
        buf_add(out, answer + best, best_len);
    else
        buf_str(out, "[invalid]");
}

/* The regular expressions are applied one after the other, each to what the one before left. */
static void normalize(const char *text, buf *out) {
    for (; *text; text++)
        if (*text != ',' && *text != '$') buf_char(out, *text >= 'A' && *text <= 'Z' ? *text + 32 : *text);
    if (!out->data) return;
    for (char *mark; (mark = strstr(out->data, "#### "));) {
        size_t from = (size_t)(mark - out->data) + 5;
        memmove(out->data, out->data + from, out->len - from + 1);
        out->len -= from;
    }
    char *end = out->data + out->len; /* `\.$` also matches before a last line break */
    if (end > out->data && end[-1] == '.') {
        *--end = 0;
        out->len--;
    } else if (end - out->data > 1 && end[-1] == '\n' && end[-2] == '.') {
        memcpy(end - 2, "\n", 2);
        out->len--;
    }
}

bool gsm8k_match(const char *prediction, const char *target) {
    buf p = {0}, t = {0};
    normalize(prediction, &p);
    normalize(target, &t);
    bool same = !p.failed && !t.failed && p.len == t.len && (!p.len || memcmp(p.data, t.data, p.len) == 0);
    buf_free(&p);
    buf_free(&t);
    return same;
}

f64 gsm8k_stderr(i64 right, i64 n) {
    if (n < 2) return NAN;
    f64 p = (f64)right / (f64)n;
    return sqrt(p * (1 - p) / (f64)(n - 1));
}
