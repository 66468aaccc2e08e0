/* {"schema": ..., "text": "..."}: the schema's matcher walks the text. States that are kept are not changed by other
 * walks, the prefixes of a text are no worse than itself, and refusals have a text. */
#include "text/grammar/json_schema.h"
#include "text/grammar/matcher.h"
#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 512, GARBAGE_MOST = 16, WANDER_MOST = 48 };

static i32 schema_walk(matcher *m, i32 at, const char *text, size_t n) {
    for (size_t i = 0; i < n && at != MATCHER_DEAD; i++) at = matcher_next(m, at, (u8)text[i]);
    return at;
}

static bool has_failed(const matcher *m) {
    err e = {0};
    const status st = matcher_failed(m, &e);
    if (st != ST_OK && (!e.text[0] || e.code != st)) abort();
    return st != ST_OK;
}

/* Garbage from a state: the text's own bytes from elsewhere, and some of JSON's. */
static void walk_garbage(matcher *m, i32 at, const char *text, size_t n, u32 seed) {
    static const char marks[] = "\"\\{}[]:,0-.eu1 \n";
    for (int i = 0; i < GARBAGE_MOST && at != MATCHER_DEAD; i++) {
        seed = seed * 1664525 + 1013904223;
        const char *from = seed >> 31 || !n ? marks : text;
        at = matcher_next(m, at, (u8)from[(seed >> 8) % (from == text ? n : sizeof marks - 1)]);
    }
}

/* Straight on; then again, with walks elsewhere from the state at the cut and from the one behind it. */
static void come_back(matcher *m, const char *text, size_t n, u32 seed) {
    const size_t cut = n ? seed % (n + 1) : 0;
    const i32 whole = schema_walk(m, matcher_start(m), text, n), at = schema_walk(m, matcher_start(m), text, cut);
    if (at == MATCHER_DEAD && whole != MATCHER_DEAD) abort();
    const bool accepts = matcher_accepts(m, at), whole_accepts = matcher_accepts(m, whole);
    walk_garbage(m, at, text, n, seed);
    walk_garbage(m, matcher_start(m), text + cut, n - cut, seed + 1);
    if (has_failed(m)) return;
    if (schema_walk(m, matcher_start(m), text, cut) != at || schema_walk(m, at, text + cut, n - cut) != whole) abort();
    if (matcher_accepts(m, at) != accepts || matcher_accepts(m, whole) != whole_accepts) abort();
}

/* On through what lives, quotes and closing marks first: a state that is not dead accepts or goes on. */
static void wander(matcher *m, i32 at, u32 seed) {
    static const char first[] = "\"}],:";
    for (int i = 0; i < WANDER_MOST && at != MATCHER_DEAD; i++) {
        i32 to = MATCHER_DEAD;
        seed = seed * 1664525 + 1013904223;
        if (seed >> 30) to = matcher_next(m, at, (u8)first[(seed >> 8) % (sizeof first - 1)]);
        for (u32 b = 0; b < 256 && to == MATCHER_DEAD; b++) to = matcher_next(m, at, (u8)((seed >> 16) + 37 * b));
        if (to == MATCHER_DEAD && !matcher_accepts(m, at) && !has_failed(m)) abort();
        at = to;
    }
}

static void schema_match(grammar *g, const char *text, size_t n) {
    matcher *m, *other;
    u32 seed = (u32)n;
    for (size_t i = 0; i < n; i++) seed = seed * 31 + (u8)text[i];
    if (matcher_open(&m, g, NULL) != ST_OK) return;
    come_back(m, text, n, seed);
    size_t lives = 0;
    while (lives < n && schema_walk(m, matcher_start(m), text, lives + 1) != MATCHER_DEAD) lives++;
    for (size_t i = 0; i <= lives; i += 1 + lives / 8)
        wander(m, schema_walk(m, matcher_start(m), text, i), seed + (u32)i);
    const bool accepts = matcher_accepts(m, schema_walk(m, matcher_start(m), text, n)), failed = has_failed(m);
    matcher_close(m);
    if (failed || matcher_open(&other, g, NULL) != ST_OK) return;
    if (matcher_accepts(other, schema_walk(other, matcher_start(other), text, n)) != accepts && !has_failed(other))
        abort();
    matcher_close(other);
}

static void compile_both(const json_t *schema, const char *text, size_t n) {
    for (int k = 0; k < 2; k++) {
        buf list = {0};
        err e = {0};
        grammar *g = NULL;
        const schema_options o = {.unknown_are_annotations = k, .passed_over = k ? &list : NULL};
        const status st = grammar_of_schema(&g, schema, &o, &e);
        if ((st == ST_OK) != (g != NULL) || (st != ST_OK && (!e.text[0] || e.code != st))) abort();
        if (g) schema_match(g, text, n);
        grammar_free(g);
        buf_free(&list);
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    json_t *v = json_parse((const char *)data, size, "input", NULL);
    const json_t *schema = json_object_get(v, "schema"), *text = json_object_get(v, "text");
    const size_t n = json_string_length(text);
    if (schema) compile_both(schema, n ? json_string_value(text) : "", n < TEXT_MOST ? n : TEXT_MOST);
    json_decref(v);
    return 0;
}
