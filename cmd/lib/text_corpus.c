#include "cmd/lib/text_corpus.h"
#include "base/file.h"
#include <string.h>

enum { FILE_MAX = 2000000000 };

static status corpus_read_lines(texts *t, const char *path, const buf *b, err *e) {
    t->items = json_array();
    const char *s = b->data, *end = s + b->len;
    for (i64 number = 1; s < end; number++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        if (strspn(s, " \t\r\n") < (size_t)(stop - s)) {
            json_t *o = json_parse(s, (size_t)(stop - s), "JSON", e);
            if (!json_is_object(o)) {
                if (o) err_set(e, ST_FORMAT, "not an object");
                json_decref(o);
                return err_prefix(e, "%s line %lld", path, (long long)number);
            }
            json_array_append_new(t->items, o);
        }
        s = stop + 1;
    }
    return ST_OK;
}

status texts_read(texts *t, const char *path, err *e) {
    *t = (texts){0};
    buf b = {0};
    status st = file_read(path, FILE_MAX, &b, e);
    const char *first = st == ST_OK && b.data ? b.data + strspn(b.data, " \t\r\n") : "";
    if (st == ST_OK && !*first) st = err_set(e, ST_FORMAT, "%s: empty", path);
    if (st == ST_OK && *first == '[') {
        t->items = json_parse(b.data, b.len, path, e);
        st = t->items ? ST_OK : e->code;
    } else if (st == ST_OK && *first == '{') {
        st = corpus_read_lines(t, path, &b, e);
    } else if (st == ST_OK) {
        t->plain = b;
        b = (buf){0};
    }
    if (st == ST_OK && t->items && !json_array_size(t->items)) st = err_set(e, ST_FORMAT, "%s: no items", path);
    buf_free(&b);
    return st;
}

void texts_free(texts *t) {
    json_decref(t->items);
    buf_free(&t->plain);
    *t = (texts){0};
}

static const json_t *turns_of(const json_t *item) {
    const json_t *turns = json_object_get(item, "conversations");
    return turns ? turns : json_object_get(item, "conversation");
}

static const json_t *string_or_null(const json_t *v) { return json_is_string(v) ? v : NULL; }

bool is_sharegpt(const json_t *item) { return json_array_size(turns_of(item)) >= 2; }

const json_t *text_of(const json_t *item) {
    static const char *const keys[] = {"prompt", "text", "question"};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const json_t *v = string_or_null(json_object_get(item, keys[i]));
        if (v) return v;
    }
    return string_or_null(json_object_get(json_array_get(turns_of(item), 0), "value"));
}

const json_t *reply_of(const json_t *item) {
    const json_t *v = string_or_null(json_object_get(json_array_get(turns_of(item), 1), "value"));
    return v ? v : string_or_null(json_object_get(item, "answer"));
}
