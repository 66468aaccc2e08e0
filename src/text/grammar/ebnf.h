/* text/grammar/ebnf.h: grammars written as llama.cpp writes them (GBNF).
 *
 *     root  ::= item ("," ws item)*     # a comment, to the end of its line
 *     item  ::= [a-z] [a-z0-9_]{0,30}
 *             | "\"" [^"\\]+ "\""
 *     ws    ::= " "?
 *
 * A rule is a name of letters, digits, - and _, then ::= and what the name stands for; texts are what `root` stands
 * for. Rules stand in any order and may use each other and themselves, but none may begin with itself.
 *
 *     a b            a, then b
 *     a | b          a or b; an alternative may be empty
 *     (a)            a, as one
 *     a* a+ a? a{2} a{2,} a{2,5} a{,5}   how often
 *     "text"         this text
 *     [a-z_] [^a-z]  one character of these, or one of all others; - first or last is itself
 *     .              any character, also a line's end
 *
 * In texts and sets \n \r \t are as in C, \xHH \uHHHH \UHHHHHHHH stand for a character by its number, and \ before one
 * of " \ [ ] - ^ for this one; no line ends inside of them. Surrogates are no characters: a set names them in vain.
 *
 * A rule ends with its line, except inside of ( ), behind ::= and |, and where the next line begins with |.
 *
 * Characters are code points. Mistakes are ST_INPUT with their line and column, both from 1. */
#ifndef TEXT_GRAMMAR_EBNF_H
#define TEXT_GRAMMAR_EBNF_H
#include "text/grammar/grammar.h"

enum {
    EBNF_BYTES_MAX = 1 << 20,
    EBNF_TEXT_MAX = 1 << 15, /* bytes of one "text" */
    EBNF_DEPTH_MAX = 200,    /* groups in each other */
    EBNF_COUNT_MAX = 1000000000,
    EBNF_LEXEMES_MAX = 1 << 14 /* different ones that the grammar comes to */
};

status grammar_of_ebnf(grammar **out, const char *text, size_t len, err *e);
/* The same as one node of a grammar that is being built. That nothing matches, or that a rule begins with itself,
 * grammar_finish() finds out. */
status ebnf_to_node(grammar *g, const char *text, size_t len, i32 *node, err *e);

#endif
