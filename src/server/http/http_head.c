#include "server/http/http_head.h"
#include <microhttpd.h>
#include <string.h>
#include <strings.h>

typedef struct {
    int lengths, encodings, hosts;
    const char *encoding;
    head_fault fault;
} head;

/* A header's name is a token; libmicrohttpd takes everything before the colon, white space too. */
static bool is_token(const char *s, size_t n) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!plain && (!c || !strchr(others, c))) return false;
    }
    return n > 0;
}

static bool is_text(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((u8)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f) return false;
    return true;
}

static enum MHD_Result head_look(void *ud, enum MHD_ValueKind kind, const char *key, size_t n_key, const char *value,
                                 size_t n_value) {
    head *h = ud;
    (void)kind;
    if (!is_token(key, n_key))
        h->fault = (head_fault){400, "the name of a header holds white space or another character that no name has"};
    else if (!is_text(value, n_value))
        h->fault = (head_fault){400, "a header's value holds a control character"};
    /* Name and value lie in the buffer as they came. A line that begins with white space goes on with the header
     * before it (long forbidden): libmicrohttpd appends it to the *name*, which it copies to the buffer's other end
     * for that. */
    else if (value && (uintptr_t)value < (uintptr_t)key)
        h->fault = (head_fault){400, "a header is folded over several lines"};
    if (n_key == 14 && !strncasecmp(key, "Content-Length", n_key)) h->lengths++;
    if (n_key == 4 && !strncasecmp(key, "Host", n_key)) h->hosts++;
    if (n_key == 17 && !strncasecmp(key, "Transfer-Encoding", n_key)) h->encodings++, h->encoding = value;
    return h->fault.status ? MHD_NO : MHD_YES;
}

static bool ends_in_chunked(const char *s) {
    static const char last[] = "chunked";
    size_t n = strlen(s), m = sizeof last - 1;
    return n >= m && !strcasecmp(s + n - m, last) && (n == m || strchr(", \t", s[n - m - 1]));
}

head_fault http_head_check(struct MHD_Connection *c, const char *version) {
    head h = {0};
    MHD_get_connection_values_n(c, MHD_HEADER_KIND, head_look, &h);
    if (h.fault.status) return h.fault;
    if (h.hosts > 1) return (head_fault){400, "there are two Host headers"};
    if (h.lengths > 1 || h.encodings > 1 || (h.lengths && h.encodings))
        return (head_fault){400, "the request's length is given more than once"};
    if (!h.encodings) return (head_fault){0};
    if (!strcmp(version, "HTTP/1.0")) return (head_fault){400, "HTTP/1.0 has no Transfer-Encoding"};
    if (!strcasecmp(h.encoding, "chunked")) return (head_fault){0};
    if (strcasestr(h.encoding, "chunked,") || !ends_in_chunked(h.encoding))
        return (head_fault){400, "Transfer-Encoding does not end in chunked, so nobody knows where the request ends"};
    return (head_fault){501, "Transfer-Encoding: only chunked is supported"};
}

static int head_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t http_unescape(char *s) {
    char *to = s;
    for (const char *p = s; *p; p++) {
        int hi = *p == '%' ? head_digit(p[1]) : -1, lo = hi < 0 ? -1 : head_digit(p[2]);
        bool code = lo >= 0 && hi + lo;
        *to++ = code ? (char)(hi << 4 | lo) : *p;
        if (code) p += 2;
    }
    *to = 0;
    return (size_t)(to - s);
}
