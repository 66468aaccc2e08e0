/* A regular expression, a line feed, a text: the expression's automaton walks the text, as a whole and as what
 * `pattern` looks for. A state that is not dead still reaches its label. */
#include "text/grammar/regex.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

/* NULL: it is refused or matches nothing. */
static dfa *regex_compile(const char *text, size_t len, bool whole) {
    nfa *n = nfa_new();
    nfa_part part;
    err e = {0};
    dfa *d = NULL;
    bool empty;
    const status st = regex_parse(n, text, len, whole, &part, &e);
    if (st != ST_OK) {
        if (!e.text[0] || e.code != st) abort();
        nfa_free(n);
        return NULL;
    }
    const status made = dfa_make(&d, n, &part, 1, &empty, &e);
    if (made != ST_OK ? d || !e.text[0] || e.code != made : empty != !d) abort();
    return d;
}

static bool reaches_its_label(const dfa *d, i32 at) {
    size_t n, n_labels;
    const i32 *all = dfa_reaches(d, at, &n);
    dfa_labels(d, at, &n_labels);
    return n == 1 && all[0] == 0 && n_labels <= 1 && dfa_accepts(d, at) == (n_labels == 1);
}

static bool regex_walk(dfa *d, const u8 *text, size_t len, i32 *at) {
    err e = {0};
    *at = dfa_start(d);
    for (size_t i = 0; i <= len && *at != DFA_DEAD; i++) {
        if (!reaches_its_label(d, *at)) abort();
        if (i < len) *at = dfa_next(d, *at, text[i]);
    }
    if (dfa_failed(d, &e) != ST_OK && !e.text[0]) abort();
    return *at != DFA_DEAD && dfa_accepts(d, *at);
}

/* The same again gives the same; a whole match is also found, and only UTF-8 is matched. */
static void regex_match(dfa *whole, dfa *found, const u8 *text, size_t len) {
    i32 at = DFA_DEAD, again = DFA_DEAD;
    const bool one = whole && regex_walk(whole, text, len, &at);
    if (whole && dfa_failed(whole, NULL) == ST_OK && (regex_walk(whole, text, len, &again) != one || at != again))
        abort();
    const bool two = found && regex_walk(found, text, len, &at);
    if (one && !two && !(found && dfa_failed(found, NULL) != ST_OK)) abort();
    if ((one || two) && utf8_valid(text, len) != len) abort();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    const u8 *line = size ? memchr(data, '\n', size) : NULL;
    const size_t len = line ? (size_t)(line - data) : size, rest = line ? size - len - 1 : 0;
    dfa *whole = regex_compile((const char *)data, len, true);
    dfa *found = whole ? regex_compile((const char *)data, len, false) : NULL;
    if (found) regex_match(whole, found, line ? line + 1 : data + len, rest);
    dfa_free(whole);
    dfa_free(found);
    return 0;
}
