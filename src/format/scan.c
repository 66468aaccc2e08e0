#include "format/scan.h"
#include "base/buf.h"
#include <string.h>

enum { DEPTH_MAX = 64 };

scan scan_text(char *text, u64 len) { return (scan){text, text, text + len, NULL}; }

static bool scan_fail(scan *s, const char *problem) {
    if (!s->problem) s->problem = problem;
    return false;
}

/* The next character that is not white space, 0 at the end. */
static char next(scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) s->p++;
    return s->p < s->end ? *s->p : 0;
}

bool scan_peek(scan *s, char c) { return next(s) == c && s->p < s->end; }

bool scan_char(scan *s, char c) {
    if (s->problem) return false;
    if (scan_peek(s, c)) return s->p++, true;
    switch (c) {
    case '{': return scan_fail(s, "'{' expected");
    case '[': return scan_fail(s, "'[' expected");
    case ':': return scan_fail(s, "':' expected");
    case '"': return scan_fail(s, "a string expected");
    default: return scan_fail(s, "another character expected");
    }
}

char *scan_name(scan *s, u64 *len) {
    if (!scan_char(s, '"')) return NULL;
    char *name = s->p;
    for (; s->p < s->end && *s->p != '"'; s->p++)
        if (*s->p == '\\' || *s->p < 0x20 || *s->p > 0x7e)
            return scan_fail(s, "a name of printable ASCII characters without escapes expected"), NULL;
    if (s->p == s->end) return scan_fail(s, "the string does not end"), NULL;
    if (len) *len = (u64)(s->p - name);
    *s->p++ = 0;
    return name;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool scan_u64(scan *s, u64 *out) {
    if (s->problem) return false;
    if (!is_digit(next(s))) return scan_fail(s, "a whole number, 0 or more, expected");
    u64 x = 0;
    const char *from = s->p;
    for (; s->p < s->end && is_digit(*s->p); s->p++) {
        if (!mul_size(x, 10, &x) || !add_size(x, (u64)(*s->p - '0'), &x))
            return scan_fail(s, "the number is too large");
    }
    if (*from == '0' && s->p - from > 1) return scan_fail(s, "a number starts with 0");
    if (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E')) return scan_fail(s, "a whole number expected");
    *out = x;
    return true;
}

bool scan_skip_string(scan *s) {
    if (!scan_char(s, '"')) return false;
    for (; s->p < s->end; s->p++) {
        if ((u8)*s->p < 0x20) return scan_fail(s, "a control character in a string");
        if (*s->p == '"') return s->p++, true;
        if (*s->p != '\\') continue;
        if (++s->p == s->end || !strchr("\"\\/bfnrtu", *s->p) || !*s->p) return scan_fail(s, "an unknown escape");
        if (*s->p != 'u') continue;
        for (int i = 0; i < 4; i++)
            if (++s->p == s->end || !*s->p || !strchr("0123456789abcdefABCDEF", *s->p))
                return scan_fail(s, "an unknown escape");
    }
    return scan_fail(s, "the string does not end");
}

static bool skip_digits(scan *s) {
    if (s->p == s->end || !is_digit(*s->p)) return scan_fail(s, "a digit expected");
    while (s->p < s->end && is_digit(*s->p)) s->p++;
    return true;
}

static bool skip_number(scan *s) {
    if (*s->p == '-') s->p++;
    bool zero = s->p < s->end && *s->p == '0';
    if (zero)
        s->p++;
    else if (!skip_digits(s))
        return false;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!skip_digits(s)) return false;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        return skip_digits(s);
    }
    return true;
}

static bool skip_word(scan *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) return scan_fail(s, "a value expected");
    s->p += n;
    return true;
}

static bool skip_value(scan *s, int depth) {
    if (depth > DEPTH_MAX) return scan_fail(s, "nested too deeply");
    bool first = true;
    switch (next(s)) {
    case '"': return scan_skip_string(s);
    case '{':
        s->p++;
        while (scan_next(s, '}', &first))
            if (!scan_skip_string(s) || !scan_char(s, ':') || !skip_value(s, depth + 1)) return false;
        return !s->problem;
    case '[':
        s->p++;
        while (scan_next(s, ']', &first))
            if (!skip_value(s, depth + 1)) return false;
        return !s->problem;
    case 't': return skip_word(s, "true");
    case 'f': return skip_word(s, "false");
    case 'n': return skip_word(s, "null");
    default:
        if (s->p < s->end && (*s->p == '-' || is_digit(*s->p))) return skip_number(s);
        return scan_fail(s, "a value expected");
    }
}

bool scan_skip_value(scan *s) { return !s->problem && skip_value(s, 0); }

bool scan_at_end(scan *s) {
    if (s->problem) return false;
    next(s);
    return s->p == s->end || scan_fail(s, "more text after the end");
}

bool scan_next(scan *s, char close, bool *first) {
    if (s->problem) return false;
    char c = next(s);
    bool was_first = *first;
    *first = false;
    if (c == close && s->p < s->end) return s->p++, false;
    if (was_first) return true;
    if (c != ',') return scan_fail(s, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
    s->p++;
    if (next(s) == close) return scan_fail(s, "a ',' before the closing bracket");
    return true;
}

status scan_result(const scan *s, err *e) {
    if (!s->problem) return ST_OK;
    return err_set(e, ST_FORMAT, "byte %llu: %s", (unsigned long long)(s->p - s->start), s->problem);
}
