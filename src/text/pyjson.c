#include "text/pyjson.h"
#include <stdlib.h>
#include <string.h>

void py_dumps(buf *b, const json_t *v, const char *comma, const char *colon) {
    json_write(b, v, &(json_style){comma, colon, "Infinity", 0});
}

/* One character of well-formed UTF-8 (jansson checked it); *n is its length. */
static u32 utf8_char(const u8 *p, size_t left, size_t *n) {
    static const u8 mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t len = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    if (len > left) len = left;
    u32 c = *p & mask[len];
    for (size_t i = 1; i < len; i++) c = c << 6 | (p[i] & 0x3f);
    *n = len;
    return c;
}

/* Not str.isprintable(): categories Cc, Cf, Co, Zl, Zp, and Zs other than the space. */
static bool not_printable(u32 c) {
    static const u32 ranges[][2] = {{0x00, 0x1f},       {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},
                                    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
                                    {0x8e2, 0x8e2},     {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},
                                    {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},   {0xe000, 0xf8ff},
                                    {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},
                                    {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
                                    {0xe0000, 0xe00ff}, {0xf0000, 0x10ffff}};
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static void py_repr_str(buf *b, const char *s, size_t len) {
    char quote = memchr(s, '\'', len) && !memchr(s, '"', len) ? '"' : '\'';
    buf_char(b, quote);
    for (size_t i = 0, n; i < len; i += n) {
        u32 c = utf8_char((const u8 *)s + i, len - i, &n);
        if (c == (u32)quote || c == '\\')
            buf_fmt(b, "\\%c", (char)c);
        else if (c == '\n')
            buf_str(b, "\\n");
        else if (c == '\r')
            buf_str(b, "\\r");
        else if (c == '\t')
            buf_str(b, "\\t");
        else if (!not_printable(c))
            buf_add(b, s + i, n);
        else if (c < 0x100)
            buf_fmt(b, "\\x%02x", c);
        else
            buf_fmt(b, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    buf_char(b, quote);
}

static void repr_object(buf *b, const json_t *v) {
    const char *key;
    json_t *item;
    bool first = true;
    buf_char(b, '{');
    json_object_foreach((json_t *)v, key, item) {
        if (!first) buf_str(b, ", ");
        first = false;
        py_repr_str(b, key, strlen(key));
        buf_str(b, ": ");
        py_repr(b, item);
    }
    buf_char(b, '}');
}

static void repr_array(buf *b, const json_t *v) {
    json_t *item;
    size_t i;
    buf_char(b, '[');
    json_array_foreach(v, i, item) {
        if (i) buf_str(b, ", ");
        py_repr(b, item);
    }
    buf_char(b, ']');
}

void py_repr(buf *b, const json_t *v) {
    if (json_is_number(v))
        json_write(b, v, &(json_style){.infinity = "inf"});
    else if (json_is_object(v))
        repr_object(b, v);
    else if (json_is_array(v))
        repr_array(b, v);
    else if (json_is_string(v))
        py_repr_str(b, json_string_value(v), json_string_length(v));
    else
        buf_str(b, json_is_true(v) ? "True" : json_is_false(v) ? "False" : "None");
}

void py_str(buf *b, const json_t *v) {
    if (json_is_string(v))
        buf_add(b, json_string_value(v), json_string_length(v));
    else
        py_repr(b, v);
}

bool py_truthy(const json_t *v) {
    if (json_is_number(v)) return json_number_value(v) != 0;
    return json_object_size(v) || json_array_size(v) || json_string_length(v) || json_is_true(v);
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static json_t *sorted_object(const json_t *v) {
    size_t n = json_object_size(v), i = 0;
    const char **keys = malloc((n ? n : 1) * sizeof *keys);
    json_t *out = json_object(), *item;
    const char *key;
    if (keys && out) {
        json_object_foreach((json_t *)v, key, item) keys[i++] = key;
        qsort(keys, n, sizeof *keys, by_bytes); /* UTF-8 bytes sort as code points do */
        for (i = 0; i < n && out; i++) {
            json_t *copy = py_sorted(json_object_get(v, keys[i]));
            if (!copy || json_object_set_new_nocheck(out, keys[i], copy) < 0) {
                json_decref(out);
                out = NULL;
            }
        }
    } else {
        json_decref(out);
        out = NULL;
    }
    free(keys);
    return out;
}

json_t *py_sorted(const json_t *v) {
    if (json_is_object(v)) return sorted_object(v);
    if (!json_is_array(v)) return json_incref((json_t *)v);
    json_t *out = json_array(), *item;
    size_t i;
    json_array_foreach(v, i, item) {
        json_t *copy = out ? py_sorted(item) : NULL;
        if (!copy || json_array_append_new(out, copy) < 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
