#include "text/call_name.h"
#include "text/schema_check.h"
#include <string.h>

static const json_t *function_of(const json_t *tool) { return json_object_get(tool, "function"); }

static const char *name_of(const json_t *tool) { return json_string_value(json_object_get(function_of(tool), "name")); }

static bool call_name_declared(const json_t *tools, const char *name, size_t len) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        const char *have = name_of(tool);
        if (have && strlen(have) == len && !memcmp(have, name, len)) return true;
    }
    return false;
}

/* NAME:DIGITS; *n is NAME's length. */
static bool well_formed(const char *s, size_t len, size_t *n) {
    size_t end = len;
    while (end && s[end - 1] >= '0' && s[end - 1] <= '9') end--;
    if (end == len || end < 2 || s[end - 1] != ':') return false;
    *n = end - 1;
    for (size_t i = 0; i < *n; i++)
        if ((u8)s[i] <= ' ' || s[i] == '<' || s[i] == '|') return false;
    return true;
}

bool call_name_of_id(buf *name, const char *id, size_t len, const json_t *tools) {
    static const char prefix[] = "functions.";
    size_t skip = sizeof prefix - 1, n;
    if (len > skip && !memcmp(id, prefix, skip)) {
        if (well_formed(id + skip, len - skip, &n)) {
            id += skip;
            goto found;
        }
    } else if (well_formed(id, len, &n)) {
        goto found;
    }
    if (json_array_size(tools) != 1 || !name_of(json_array_get(tools, 0))) return false;
    buf_str(name, name_of(json_array_get(tools, 0)));
    return true;
found: /* a namespace in front of a declared name is dropped, a dotted name that is declared stays */
    for (size_t from = 0; !call_name_declared(tools, id, n);) {
        const char *dot = memchr(id + from, '.', n - from);
        if (!dot) break;
        from = (size_t)(dot - id) + 1;
        if (call_name_declared(tools, id + from, n - from)) {
            id += from;
            n -= from;
        }
    }
    buf_add(name, id, n);
    return true;
}

bool call_name_of_arguments(buf *name, const char *arguments, size_t len, const json_t *tools) {
    const char *only = NULL;
    size_t i, fits = 0;
    u32 steps = 100000; /* for all tools together: milliseconds */
    json_t *tool, *value = json_parse(arguments, len, "arguments", NULL);
    if (json_is_object(value)) json_array_foreach(tools, i, tool) {
            const char *candidate = name_of(tool);
            if (!candidate ||
                !schema_accepts_arguments(json_object_get(function_of(tool), "parameters"), value, &steps))
                continue;
            only = candidate;
            fits++;
        }
    bool one = fits == 1 && steps > 0;
    if (one) buf_str(name, only);
    json_decref(value);
    return one;
}
