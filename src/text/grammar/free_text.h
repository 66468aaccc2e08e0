/* text/grammar/free_text.h: any text up to the first of some strings. */
#ifndef TEXT_GRAMMAR_FREE_TEXT_H
#define TEXT_GRAMMAR_FREE_TEXT_H
#include "text/grammar/grammar.h"

enum { FREE_STOP_BYTES_MAX = 4096 /* of all stops of a text */ };

typedef struct {
    const char *text; /* [len], len > 0; UTF-8 */
    size_t len;
    i32 group;
} free_stop;

/* A node of all texts that end with a stop of `group` and in which no stop of any group ends before; of several that
 * end at one place each counts. group less than 0: of all texts in which there is no stop. ST_LIMIT, ST_NOMEM. */
status free_text_node(grammar *g, const free_stop *stops, size_t n, i32 group, i32 *node, err *e);

#endif
