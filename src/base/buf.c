#include "base/buf.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool buf_reserve(buf *b, size_t more) {
    if (b->failed) return false;
    u64 need;
    if (!add_size(b->len, more, &need) || !add_size(need, 1, &need)) {
        b->failed = true;
        return false;
    }
    if (b->max && need - 1 > b->max) {
        b->failed = b->full = true;
        return false;
    }
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap += cap / 2 + 64;
    if (b->max && cap > b->max + 1) cap = b->max + 1;
    char *p = realloc(b->data, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void buf_add(buf *b, const void *bytes, size_t n) {
    if (!buf_reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_str(buf *b, const char *s) { buf_add(b, s, strlen(s)); }

void buf_char(buf *b, char c) { buf_add(b, &c, 1); }

void buf_fmt(buf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = true;
    if (n >= 0 && buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_clear(buf *b) {
    b->len = 0;
    b->failed = b->full = false;
    if (b->data) b->data[0] = 0;
}

void buf_free(buf *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}

char *buf_take(buf *b) {
    if (!b->data && !b->failed) buf_reserve(b, 0);
    if (b->failed) {
        buf_free(b);
        return NULL;
    }
    char *p = b->data;
    p[b->len] = 0;
    memset(b, 0, sizeof *b);
    return p;
}

void ids_append(ids_buf *b, const i32 *ids, size_t n) {
    if (b->failed || n == 0) return;
    u64 need, bytes;
    if (!add_size(b->len, n, &need) || !mul_size(need, 2 * sizeof *ids, &bytes)) {
        b->failed = true;
        return;
    }
    if (b->max && need > b->max) {
        b->failed = b->full = true;
        return;
    }
    if (need > b->cap) {
        size_t cap = need + need / 2 + 32;
        if (b->max && cap > b->max) cap = b->max;
        i32 *p = realloc(b->data, cap * sizeof *p);
        if (!p) {
            b->failed = true;
            return;
        }
        b->data = p;
        b->cap = cap;
    }
    memcpy(b->data + b->len, ids, n * sizeof *ids);
    b->len += n;
}

void ids_add(ids_buf *b, i32 id) { ids_append(b, &id, 1); }

void ids_free(ids_buf *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}
