#include "base/base64.h"

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 0..63, or -1 */
static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(buf *out, const char *text, size_t len) {
    if (len % 4) return false;
    size_t pad = len && text[len - 1] == '=' ? 1 + (text[len - 2] == '=') : 0, was = out->len;
    if (!buf_reserve(out, len / 4 * 3)) return true;
    char *to = out->data + was;
    u32 bits = 0;
    for (size_t i = 0; i < len; i++) {
        int v = i < len - pad ? value_of(text[i]) : 0;
        if (v < 0) return false;
        bits = bits << 6 | (u32)v;
        if (i % 4 != 3) continue;
        *to++ = (char)(bits >> 16);
        *to++ = (char)(bits >> 8);
        *to++ = (char)bits;
        if (i + 1 == len && pad && bits & (pad == 1 ? 0xff : 0xffff)) return false;
        bits = 0;
    }
    out->len = was + len / 4 * 3 - pad;
    out->data[out->len] = 0;
    return true;
}

void base64_encode(buf *out, const void *bytes, size_t len) {
    const u8 *p = bytes;
    u64 need;
    if (!mul_size((len + 2) / 3, 4, &need) || !buf_reserve(out, need)) {
        out->failed = true;
        return;
    }
    char *to = out->data + out->len;
    for (size_t i = 0; i < len; i += 3) {
        u32 bits = (u32)p[i] << 16 | (i + 1 < len ? (u32)p[i + 1] << 8 : 0) | (i + 2 < len ? p[i + 2] : 0);
        *to++ = base64_digits[bits >> 18];
        *to++ = base64_digits[bits >> 12 & 63];
        *to++ = i + 1 < len ? base64_digits[bits >> 6 & 63] : '=';
        *to++ = i + 2 < len ? base64_digits[bits & 63] : '=';
    }
    out->len += need;
    out->data[out->len] = 0;
}
