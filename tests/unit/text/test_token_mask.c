/* Masks of tokens: at every token of valid texts those that a walk of each token's bytes by itself finds. */
#include "unit.h"

#include "text/grammar/json_schema.h"
#include "text/grammar/token_trie.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tokenizer *t;
    token_trie *tokens;
    u64 *mask;
    i64 masks, seen;
} mask_test;

static i32 walk_token(const mask_test *k, matcher *m, i32 state, i32 id) {
    size_t n;
    const char *bytes = tokenizer_bytes(k->t, id, &n);
    for (size_t i = 0; i < n && state != MATCHER_DEAD; i++) state = matcher_next(m, state, (u8)bytes[i]);
    return state;
}

static void compare_mask(mask_test *k, matcher *m, i32 state, const char *name) {
    err e = {0};
    if (matcher_mask(m, k->tokens, state, k->mask, &e) != ST_OK) fail_msg("%s: %s", name, e.text);
    for (i32 id = 0; id < tokenizer_n_ranks(k->t); id++) {
        const bool has = k->mask[id / 64] >> id % 64 & 1, lives = walk_token(k, m, state, id) != MATCHER_DEAD;
        if (has != lives) fail_msg("%s: token %d is %s", name, id, has ? "in the mask" : "not in the mask");
    }
    k->masks++;
}

static void compare_text(mask_test *k, matcher *m, const json_t *text, const char *name) {
    ids_buf ids = {0};
    i32 state = matcher_start(m);
    tokenizer_encode(k->t, json_string_value(text), json_string_length(text), false, &ids, NULL);
    for (size_t i = 0; i <= ids.len && i < 200 && state != MATCHER_DEAD; i++) {
        compare_mask(k, m, state, name);
        if (i < ids.len) state = walk_token(k, m, state, ids.data[i]);
    }
    ids_free(&ids);
}

static void compare_schema(mask_test *k, const json_t *line) {
    const char *name = json_string_value(json_object_get(line, "name"));
    const schema_options o = {.unknown_are_annotations = true};
    const json_t *text;
    grammar *g;
    matcher *m;
    size_t i;
    if (grammar_of_schema(&g, json_object_get(line, "schema"), &o, NULL) != ST_OK) return;
    assert_int_equal(matcher_open(&m, g, NULL), ST_OK);
    json_array_foreach(json_object_get(line, "valid"), i, text) compare_text(k, m, text, name);
    matcher_close(m);
    grammar_free(g);
    k->seen++;
}

static void masks_are_walks(void **state) {
    mask_test *k = *state;
    FILE *f = fopen("tests/golden/schemas.jsonl", "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    assert_non_null(f);
    for (i64 i = 0; (n = getline(&line, &cap, f)) > 0; i++) {
        json_t *v = i % 3 ? NULL : json_parse(line, (size_t)n, "a line", NULL);
        if (v) compare_schema(k, v);
        json_decref(v);
    }
    free(line);
    fclose(f);
    assert_true(k->seen > 150 && k->masks > 5000);
}

/* In the middle of a character a token must go on with it, and text that may be anything is walked like any other. */
static void masks_inside_a_character(void **state) {
    mask_test *k = *state;
    static const char *const schemas[] = {"{\"type\":\"string\"}", "{\"type\":\"string\",\"maxLength\":3}",
                                          "{\"type\":\"object\"}", "{\"type\":\"string\",\"pattern\":\"b\"}"};
    for (size_t s = 0; s < COUNT_OF(schemas); s++) {
        json_t *v = json_parse(schemas[s], strlen(schemas[s]), "a schema", NULL);
        const char *text = s == 2 ? "{\"a\xe4\xbd" : "\"a\xe4\xbd";
        grammar *g;
        matcher *m;
        assert_int_equal(grammar_of_schema(&g, v, &(schema_options){0}, NULL), ST_OK);
        assert_int_equal(matcher_open(&m, g, NULL), ST_OK);
        i32 at = matcher_start(m);
        for (; *text; text++) compare_mask(k, m, at = matcher_next(m, at, (u8)*text), schemas[s]);
        matcher_close(m);
        grammar_free(g);
        json_decref(v);
    }
}

static int open_nano(void **state) {
    mask_test *k = calloc(1, sizeof *k);
    *state = k;
    if (!k || tokenizer_open(&k->t, "models/nano", NULL) != ST_OK) return 1;
    if (token_trie_open(&k->tokens, k->t, NULL) != ST_OK) return 1;
    k->mask = malloc((size_t)ceil_div(k->tokens->vocab, 64) * sizeof *k->mask);
    return k->mask == NULL;
}

static int close_nano(void **state) {
    mask_test *k = *state;
    token_trie_close(k->tokens), tokenizer_close(k->t);
    free(k->mask), free(k);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_are_walks), cmocka_unit_test(masks_inside_a_character)};
    return cmocka_run_group_tests(tests, open_nano, close_nano);
}
