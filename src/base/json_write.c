#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_style json_compact = {",", ":", NULL, 0}, json_spaced = {", ", ": ", NULL, 0};

void buf_json_str(buf *b, const char *s, size_t len) {
    buf_char(b, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        switch (c) {
        case '"': buf_str(b, "\\\""); break;
        case '\\': buf_str(b, "\\\\"); break;
        case '\n': buf_str(b, "\\n"); break;
        case '\r': buf_str(b, "\\r"); break;
        case '\t': buf_str(b, "\\t"); break;
        case '\b': buf_str(b, "\\b"); break;
        case '\f': buf_str(b, "\\f"); break;
        default:
            if (c < 0x20)
                buf_fmt(b, "\\u%04x", c);
            else
                buf_char(b, (char)c);
        }
    }
    buf_char(b, '"');
}

/* Python's float.__repr__: an exponent below 1e-4 and from 1e16 on. */
void buf_json_f64(buf *b, f64 v) {
    char text[40];
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    char *mark = strchr(text, 'e');
    int exp10 = atoi(mark + 1);
    *mark = 0;
    char *p = text;
    if (*p == '-') buf_char(b, *p++);
    char digits[24];
    int n = 0;
    for (; *p; p++)
        if (*p != '.') digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0') n--;
    if (exp10 < -4 || exp10 >= 16) {
        buf_char(b, digits[0]);
        if (n > 1) {
            buf_char(b, '.');
            buf_add(b, digits + 1, (size_t)n - 1);
        }
        buf_fmt(b, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
    } else if (exp10 < 0) {
        buf_str(b, "0.");
        for (int i = exp10 + 1; i < 0; i++) buf_char(b, '0');
        buf_add(b, digits, (size_t)n);
    } else {
        for (int i = 0; i <= exp10; i++) buf_char(b, i < n ? digits[i] : '0');
        buf_char(b, '.');
        if (n > exp10 + 1)
            buf_add(b, digits + exp10 + 1, (size_t)(n - exp10 - 1));
        else
            buf_char(b, '0');
    }
}

static void json_write_number(buf *b, const json_t *v, const json_style *s) {
    const char *big = json_big_number(v);
    if (big && s->infinity && !json_is_big_integer(v))
        buf_fmt(b, "%s%s", *big == '-' ? "-" : "", s->infinity);
    else if (big)
        buf_str(b, big);
    else if (json_is_integer(v))
        buf_fmt(b, "%lld", (long long)json_integer_value(v));
    else
        buf_json_f64(b, json_real_value(v));
}

static void new_line(buf *b, const json_style *s, int depth) {
    if (!s->indent) return;
    buf_char(b, '\n');
    for (int i = 0; i < s->indent * depth; i++) buf_char(b, ' ');
}

static void write_value(buf *b, const json_t *v, const json_style *s, int depth) {
    const char *key;
    json_t *item;
    size_t i, n = 0;
    if (json_is_number(v)) {
        json_write_number(b, v, s);
        return;
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        buf_char(b, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, item) {
            if (n++) buf_str(b, s->comma);
            new_line(b, s, depth + 1);
            buf_json_str(b, key, strlen(key));
            buf_str(b, s->colon);
            write_value(b, item, s, depth + 1);
        }
        if (n) new_line(b, s, depth);
        buf_char(b, '}');
        break;
    case JSON_ARRAY:
        buf_char(b, '[');
        json_array_foreach(v, i, item) {
            if (n++) buf_str(b, s->comma);
            new_line(b, s, depth + 1);
            write_value(b, item, s, depth + 1);
        }
        if (n) new_line(b, s, depth);
        buf_char(b, ']');
        break;
    case JSON_STRING: buf_json_str(b, json_string_value(v), json_string_length(v)); break;
    case JSON_TRUE: buf_str(b, "true"); break;
    case JSON_FALSE: buf_str(b, "false"); break;
    default: buf_str(b, "null"); break;
    }
}

void json_write(buf *b, const json_t *v, const json_style *s) { write_value(b, v, s, 0); }

char *json_to_text(const json_t *v, const json_style *s) {
    buf b = {0};
    json_write(&b, v, s);
    return buf_take(&b);
}
