/* text/grammar/regex.h: regular expressions to automata.
 *
 * What JSON Schema's `pattern` (ECMA-262 with the u flag) and servers' `regex` have in common, as a language: no
 * captures to read, no back-references, no look-around. Characters are code points.
 *
 *     a.b          . is any character but \n, \r, U+2028 and U+2029
 *     a|b (a) (?:a) (?<name>a)
 *     a* a+ a? a{2} a{2,} a{2,5}, also with a lazy ? behind, which changes no language
 *     [a-z^-] [^a]
 *     \d \D \w \W \s \S (ASCII, \s also the Unicode spaces that ECMA names), \t \n \r \f \v \0 \cX \xHH \uHHHH
 *     \uHHHH\uHHHH (a surrogate pair is one character) \u{H...} \p{L} \p{N} \P{L} \P{N} (also Letter, Number, by the
 *     table of text/unicode.h; other properties are ST_UNSUPPORTED), and \ before any character that is no ASCII
 *     letter or digit
 *     ^ $          wherever they stand: the beginning and the end of the whole text, never of a line
 *
 * As in ECMA's annex B, a { that begins no {n}, {n,} or {n,m} is itself, and so are ] and } alone and a - that makes no
 * range, as in [\w-]; [] is no character, [^] is any. A surrogate without its other half matches nothing.
 *
 * \b, \B, back-references, (?=, (?!, (?<=, (?<!, flags inside of the expression: ST_UNSUPPORTED. A mistake in the
 * expression, malformed UTF-8 too: ST_INPUT. Too large or too deep: ST_LIMIT. Errors name the place, as the number of
 * its character, from 1. */
#ifndef TEXT_GRAMMAR_REGEX_H
#define TEXT_GRAMMAR_REGEX_H
#include "text/grammar/automaton.h"

enum { REGEX_DEPTH_MAX = 200 };

/* whole: strings that match from beginning to end; else those that match somewhere, as `pattern` means it. *out is a
 * part of n. */
status regex_parse(nfa *n, const char *text, size_t len, bool whole, nfa_part *out, err *e);

#endif
