/* text/marks.h: the markers of the model's output, and finding their spelling in text that comes in pieces.
 * Of the parser, and of grammars in which marks stand. */
#ifndef TEXT_MARKS_H
#define TEXT_MARKS_H
#include "base/buf.h"

typedef enum {
    MARK_THINK,
    MARK_THINK_END,
    MARK_SECTION,
    MARK_SECTION_END,
    MARK_CALL,
    MARK_ARGUMENT,
    MARK_CALL_END,
    MARK_SECTION_1,     /* singular spellings, in no vocabulary */
    MARK_SECTION_END_1, /* the last one */
    MARKS
} mark;

extern const char *const mark_text[MARKS];

/* Splits a stream of bytes into text and markers. Every marker begins with the only '<' in it, so a piece
 * that may become a marker is at most one marker long and never has to be looked at twice. */
typedef struct {
    u32 wanted; /* bit m: look for mark m */
    char held[40];
    size_t n_held;
} mark_scanner;

typedef void (*mark_text_fn)(void *ud, const char *s, size_t n);
typedef void (*mark_fn)(void *ud, mark m);

void mark_scan(mark_scanner *s, const char *text, size_t len, mark_text_fn on_text, mark_fn on_mark, void *ud);
void mark_scan_end(mark_scanner *s, mark_text_fn on_text, void *ud); /* what was held is text after all */

#endif
