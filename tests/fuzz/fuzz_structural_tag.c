/* {"tag": ..., "text": "..."}: the structural tag's matcher walks the text. */
#include "text/grammar/structural_tag.h"
#include "walk_matcher.h"

enum { TEXT_MOST = 512 };

static void compile_tag(const json_t *tag, bool strict, const u8 *text, size_t n) {
    grammar *g = grammar_new();
    buf warnings = {0};
    err e = {0};
    i32 root = NODE_NONE;
    status st = g ? structural_tag_to_node(g, tag, strict, NULL, &warnings, &root, &e) : ST_NOMEM;
    if (g && st == ST_OK) st = grammar_finish(g, root, &e);
    if (g && st != ST_OK && (!e.text[0] || e.code != st)) abort();
    if (st == ST_OK) walk_grammar(g, text, n);
    grammar_free(g);
    buf_free(&warnings);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    json_t *v = json_parse((const char *)data, size, "input", NULL);
    const json_t *tag = json_object_get(v, "tag"), *text = json_object_get(v, "text");
    const size_t n = json_string_length(text), most = n < TEXT_MOST ? n : TEXT_MOST;
    for (int strict = 0; tag && strict < 2; strict++)
        compile_tag(tag, strict, n ? (const u8 *)json_string_value(text) : (const u8 *)"", most);
    json_decref(v);
    return 0;
}
