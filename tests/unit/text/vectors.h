/* tests/unit/text/vectors.h: the golden files, one JSON value a line. Tests run in the repository's root. */
#ifndef TESTS_TEXT_VECTORS_H
#define TESTS_TEXT_VECTORS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/file.h"
#include "base/json.h"

/* Calls check(line's value) for every line and returns how many there were. */
static inline size_t each_vector(const char *path, void (*check)(const json_t *v)) {
    buf all = {0};
    err e = {0};
    size_t n = 0;
    if (file_read(path, 1 << 28, &all, &e) != ST_OK) fail_msg("%s", e.text);
    for (char *line = all.data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) fail_msg("%s: no newline at the end", path);
        json_t *v = json_parse(line, (size_t)(end - line), path, &e);
        if (!v) fail_msg("%s", e.text);
        check(v);
        json_decref(v);
        n++;
    }
    buf_free(&all);
    return n;
}

static inline json_t *parse_json(const char *text) {
    err e = {0};
    json_t *v = json_parse(text, strlen(text), "test", &e);
    if (!v) fail_msg("%s in %s", e.text, text);
    return v;
}

#endif
