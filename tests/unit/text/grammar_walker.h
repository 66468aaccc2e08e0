/* A grammar with a walker that makes random texts of it, for tests of the matcher. */
#ifndef GRAMMAR_WALKER_H
#define GRAMMAR_WALKER_H
#include "unit.h"

#include "text/grammar/json_schema.h"
#include "text/grammar/matcher.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 256, LATE = 300, GIVEN_UP = 4000, STEPS = 50000000 };

/* A schema with walkers' words: what it requires, then its properties, then all other strings. */
typedef struct {
    const char *name;
    const json_t *schema;
    grammar *g;
    matcher *m;
    const char *words[WORDS_MOST];
    int n_words, n_required;
    u64 seed;
    buf text;
    bool in_string, escaped;
} walker;

static inline u32 dice(walker *w, u32 n) {
    return (u32)((w->seed = w->seed * 6364136223846793005u + 1442695040888963407u) >> 33) % n;
}

/* ---- schemas from the golden file ---- */

static inline void word_add(walker *w, const char *word) {
    for (int i = 0; i < w->n_words; i++)
        if (!strcmp(w->words[i], word)) return;
    if (w->n_words < WORDS_MOST) w->words[w->n_words++] = word;
}

/* what: 0 required names, 1 properties, 2 strings. */
static inline void find_words(walker *w, const json_t *at, int what) {
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        const char *inner;
        json_t *one;
        if (what == 0 && !strcmp(key, "required"))
            json_array_foreach(value, i, one) if (json_is_string(one)) word_add(w, json_string_value(one));
        if (what == 1 && !strcmp(key, "properties")) json_object_foreach(value, inner, one) word_add(w, inner);
        find_words(w, value, what);
    }
    json_array_foreach(at, i, value) find_words(w, value, what);
    if (what == 2 && json_is_string(at)) word_add(w, json_string_value(at));
}

static inline bool walker_open(walker *w, const char *name, const json_t *schema, err *e) {
    const schema_options o = {.unknown_are_annotations = true};
    *w = (walker){.name = name, .schema = schema, .seed = 7};
    if (grammar_of_schema(&w->g, schema, &o, e) != ST_OK) return false;
    assert_int_equal(matcher_open(&w->m, w->g, e), ST_OK);
    for (int what = 0; what < 3; what++) {
        find_words(w, schema, what);
        if (!what) w->n_required = w->n_words;
    }
    return true;
}

static inline void walker_close(walker *w) {
    matcher_close(w->m);
    grammar_free(w->g);
    buf_free(&w->text);
}

/* Calls `each` for all schemas that compile. */
static inline int for_golden(void (*each)(walker *, const json_t *line)) {
    FILE *f = fopen("tests/golden/schemas.jsonl", "rb");
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    int n = 0;
    assert_non_null(f);
    while ((len = getline(&text, &cap, f)) > 0) {
        err e = {0};
        walker w;
        json_t *line = json_parse(text, (size_t)len, "schemas.jsonl", &e);
        if (!line) fail_msg("%s", e.text);
        if (walker_open(&w, json_string_value(json_object_get(line, "name")), json_object_get(line, "schema"), &e)) {
            each(&w, line);
            walker_close(&w);
            n++;
        } else {
            assert_true(e.text[0] && e.code != ST_OK);
        }
        json_decref(line);
    }
    free(text);
    fclose(f);
    return n;
}

/* ---- walks ---- */

static inline i32 walk_bytes(matcher *m, i32 at, const char *text, size_t len) {
    for (size_t i = 0; i < len && at != MATCHER_DEAD; i++) at = matcher_next(m, at, (u8)text[i]);
    return at;
}

static inline void note_bytes(walker *w, const char *bytes, size_t len) {
    buf_add(&w->text, bytes, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '"' && !w->escaped) w->in_string = !w->in_string;
        w->escaped = w->in_string && !w->escaped && bytes[i] == '\\';
    }
}

static inline i32 take(walker *w, i32 at, u8 byte) {
    const i32 to = matcher_next(w->m, at, byte);
    if (to != MATCHER_DEAD) note_bytes(w, (const char *)&byte, 1);
    return to;
}

/* One of the words and a quote behind it, where all of it is let through. */
static inline i32 take_word(walker *w, i32 at, int from, int to) {
    const int n = to - from, first = n ? (int)dice(w, (u32)n) : 0;
    for (int k = 0; k < n; k++) {
        buf text = {0};
        const char *word = w->words[from + (first + k) % n];
        buf_json_str(&text, word, strlen(word));
        const i32 end = walk_bytes(w->m, at, text.data + 1, text.len - 1);
        if (end != MATCHER_DEAD) note_bytes(w, text.data + 1, text.len - 1);
        buf_free(&text);
        if (end != MATCHER_DEAD) return end;
    }
    return MATCHER_DEAD;
}

static inline i32 take_one_of(walker *w, i32 at, const char *bytes) {
    i32 to = MATCHER_DEAD;
    for (; *bytes && to == MATCHER_DEAD; bytes++) to = take(w, at, (u8)*bytes);
    return to;
}

static inline i32 take_any(walker *w, i32 at) {
    i32 to = MATCHER_DEAD;
    for (int k = 0; k < 24 && to == MATCHER_DEAD; k++)
        to = take(w, at, dice(w, 16) ? (u8)(' ' + dice(w, 95)) : (u8)dice(w, 256));
    const u32 first = dice(w, 256);
    for (u32 k = 0; k < 256 && to == MATCHER_DEAD; k++) to = take(w, at, (u8)(first + k));
    return to;
}

/* Towards an end: containers are closed if they may be, else what they require is written. */
static inline i32 take_closing(walker *w, i32 at) {
    i32 to = MATCHER_DEAD;
    if (w->in_string) {
        to = take_word(w, at, 0, w->n_required);
        if (to == MATCHER_DEAD) to = take_word(w, at, w->n_required, w->n_words);
        if (to == MATCHER_DEAD) to = take_one_of(w, at, "\"");
    } else {
        to = take_one_of(w, at, "}]\",:");
    }
    return to == MATCHER_DEAD ? take_any(w, at) : to;
}

static inline i32 take_random(walker *w, i32 at) {
    static const char *const likely[] = {"\"}],", "]\"", ",:}", "}"};
    i32 to = MATCHER_DEAD;
    if (w->text.len > LATE) return take_closing(w, at);
    if (w->in_string && !dice(w, 8)) to = take_word(w, at, 0, w->n_words);
    if (to == MATCHER_DEAD && !dice(w, 3)) to = take_one_of(w, at, likely[dice(w, COUNT_OF(likely))]);
    return to == MATCHER_DEAD ? take_any(w, at) : to;
}

typedef enum { WALK_WHOLE, WALK_GIVEN_UP, WALK_STUCK } walk_end;

static inline walk_end walk_random(walker *w) {
    i32 at = matcher_start(w->m);
    w->in_string = w->escaped = false;
    for (buf_clear(&w->text); w->text.len < GIVEN_UP;) {
        const bool accepts = matcher_accepts(w->m, at);
        if (accepts && dice(w, 2)) return WALK_WHOLE;
        at = take_random(w, at);
        if (at == MATCHER_DEAD) return accepts ? WALK_WHOLE : WALK_STUCK;
    }
    return WALK_GIVEN_UP;
}

static inline void tell(const walker *w, const char *what) {
    const size_t skip = w->text.len > 300 ? w->text.len - 300 : 0;
    print_error("%s: %s: %s%s\n", w->name, what, skip ? "..." : "", w->text.data ? w->text.data + skip : "");
}

static inline json_t *json_of(const char *text) {
    err e = {0};
    json_t *v = json_parse(text, strlen(text), "schema", &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    return v;
}

/* ' stands for ". */
static inline json_t *quoted_schema(const char *text) {
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    json_t *v = json_of(copy);
    free(copy);
    return v;
}

static inline bool matches_text(grammar *g, const char *text) {
    matcher *m;
    assert_int_equal(matcher_open(&m, g, NULL), ST_OK);
    const bool whole = matcher_accepts(m, walk_bytes(m, matcher_start(m), text, strlen(text)));
    assert_int_equal(matcher_failed(m, NULL), ST_OK);
    matcher_close(m);
    return whole;
}

static inline status compile_quoted(const char *text, const schema_options *o, grammar **g, err *e) {
    json_t *schema = quoted_schema(text);
    *e = (err){0};
    const status st = grammar_of_schema(g, schema, o, e);
    json_decref(schema);
    if (st != ST_OK && (*g || e->code != st || !e->text[0])) fail_msg("%s: an error without a text", text);
    return st;
}

#endif
