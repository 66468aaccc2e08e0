#include "base/json_size.h"
#include <string.h>

/* jansson's own sizes with those of malloc: an object has a table, and every key in it a node. */
enum { OBJECT = 320, ARRAY = 136, STRING = 88, SCALAR = 48, KEY = 112 };

json_shape json_shape_of(const char *s, size_t len) {
    json_shape r = {.values = 1, .bytes = len + SCALAR};
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (quoted) {
            if (c == '\\') i++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
            r.bytes += STRING;
        } else if (c == '[' || c == '{') {
            if (++depth > r.depth) r.depth = depth;
            r.values++;
            r.bytes += c == '{' ? OBJECT : ARRAY;
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (c == ',') {
            r.values++;
            r.bytes += SCALAR;
        } else if (c == ':') {
            r.bytes += KEY - STRING; /* what stands before it is no string of its own */
        }
    }
    return r;
}

u64 json_memory(const json_t *v) {
    const char *key;
    json_t *item;
    size_t i;
    u64 n = 0;
    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, item) n += KEY + strlen(key) + json_memory(item);
        return OBJECT + n;
    }
    if (json_is_array(v)) {
        json_array_foreach(v, i, item) n += 16 + json_memory(item);
        return ARRAY + n;
    }
    return !v ? 0 : json_is_string(v) ? STRING + json_string_length(v) : SCALAR;
}
