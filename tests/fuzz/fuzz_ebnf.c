/* A grammar in GBNF, a NUL, a text: the grammar's matcher walks the text. */
#include "text/grammar/ebnf.h"
#include "walk_matcher.h"
#include <string.h>

enum { TEXT_MOST = 512 };

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    const u8 *end = size ? memchr(data, 0, size) : NULL;
    const size_t len = end ? (size_t)(end - data) : size, rest = end ? size - len - 1 : 0;
    grammar *g = NULL;
    err e = {0};
    const status st = grammar_of_ebnf(&g, (const char *)data, len, &e);
    if ((st == ST_OK) != (g != NULL) || (st != ST_OK && (!e.text[0] || e.code != st))) abort();
    if (g) walk_grammar(g, end ? end + 1 : data + size, rest < TEXT_MOST ? rest : TEXT_MOST);
    grammar_free(g);
    return 0;
}
