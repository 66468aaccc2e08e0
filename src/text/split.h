/* text/split.h: where Kimi's encoder cuts text before it merges bytes.
 *
 * First into slices (bounds that the published tokenization_kimi.py puts on what it hands to tiktoken), then,
 * between special tokens, into pieces by the split pattern. All text here is well-formed UTF-8. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H
#include "base/types.h"

/* Length in bytes, > 0, of the piece at the beginning of text[len], len > 0: the first match of
 *   1 [\p{Han}]+
 *   2 [^\r\n\p{L}\p{N}]? U* W+ C?    U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
 *   3 [^\r\n\p{L}\p{N}]? U+ W* C?    W = [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]], C =
 * (?i:'s|'t|'re|'ve|'m|'ll|'d) 4 \p{N}{1,3} 5  ?[^\s\p{L}\p{N}]+[\r\n]* 6 \s*[\r\n]+ 7 \s+(?!\S) 8 \s+ under
 * backtracking rules (the first alternative that matches, greedy inside). Every text is matched by one of
 * them. Linear: the pieces of a text together look at each character a bounded number of times. */
size_t split_piece(const u8 *text, size_t len);

/* Slices: at most 400,000 characters from the beginning, and inside such a window no run of whitespace or of
 * anything else (Python's str.isspace) beyond 25,000 characters. */
enum { SPLIT_WINDOW = 400000, SPLIT_RUN = 25000 };
typedef struct {
    const u8 *at, *end; /* what is left */
    u32 n_window;       /* characters of the window already passed */
    u32 n_run;          /* characters of the run that ends at `at` */
    bool run_space;
} split_slices;
void split_slices_start(split_slices *s, const u8 *text, size_t len);
/* Length in bytes of the next slice, which begins where the last one ended; 0 at the end. */
size_t split_slices_next(split_slices *s);

#endif
