/* text/stop_text.h: stop strings in text that comes in pieces.
 *
 * The first stop string to be complete wins, the longest of those that end at the same byte; the result is the same
 * for any cut of the text. What could still become a stop string is held back. Linear in the text for each string
 * (Knuth, Morris, Pratt). */
#ifndef TEXT_STOP_TEXT_H
#define TEXT_STOP_TEXT_H
#include "base/buf.h"
#include "base/err.h"

enum { STOP_STRINGS_MAX = 64, STOP_STRING_BYTES = 1024 };

typedef struct {
    char *text; /* [len], NUL-terminated */
    size_t len;
    u16 *fail; /* [len]: length of the longest proper border of text[0..i] */
} stop_string;

typedef struct {
    stop_string all[STOP_STRINGS_MAX];
    size_t n;
} stop_set;

/* Copies text[len]; the empty string is no stop. ST_LIMIT: too many, or too long. */
status stop_set_add(stop_set *s, const char *text, size_t len, err *e);
void stop_set_free(stop_set *s);

typedef struct {
    u16 matched[STOP_STRINGS_MAX]; /* bytes of each stop string that the text so far ends with */
    buf held;
} stop_state;

/* Feeds text[len]; appends to *out what is certain. Returns the index of the stop string that is complete (its text
 * is not in *out; with `keep` it is), or -1. After a match nothing more may be fed. */
int stop_feed(stop_state *st, const stop_set *s, const char *text, size_t len, bool keep, buf *out);
/* The text is over, or goes on elsewhere: what was held back goes to *out. */
void stop_flush(stop_state *st, buf *out);

#endif
