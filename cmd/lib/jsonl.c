#include "cmd/lib/jsonl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static status jsonl_one_line(const char *text, size_t len, const char *what, jsonl_fn fn, void *ud, buf *out, err *e) {
    json_t *line = json_parse(text, len, what, e);
    if (!line) return ST_FORMAT;
    status st = json_is_object(line) ? fn(ud, line, out, e) : err_set(e, ST_INPUT, "the line is not an object");
    json_decref(line);
    if (st == ST_OK && out->failed) st = err_nomem(e, "the answer", out->len);
    return st;
}

status jsonl_run(FILE *in, const char *what, jsonl_fn fn, void *ud, i64 *n_failed, err *e) {
    char *text = NULL;
    size_t cap = 0;
    buf out = {0};
    status st = ST_OK;
    *n_failed = 0;
    for (ssize_t len; st == ST_OK && (len = getline(&text, &cap, in)) >= 0;) {
        while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) len--;
        err line_err = {0};
        buf_clear(&out);
        if (jsonl_one_line(text, (size_t)len, what, fn, ud, &out, &line_err) != ST_OK) {
            ++*n_failed;
            buf_clear(&out);
            buf_str(&out, "{\"error\": ");
            buf_json_str(&out, line_err.text, strlen(line_err.text));
            buf_char(&out, '}');
        }
        buf_char(&out, '\n');
        if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout))
            st = err_set(e, ST_IO, "cannot write to stdout: %s", strerror(errno));
    }
    if (st == ST_OK && !feof(in)) st = err_set(e, ST_IO, "cannot read %s: %s", what, strerror(errno));
    free(text);
    buf_free(&out);
    return st;
}
