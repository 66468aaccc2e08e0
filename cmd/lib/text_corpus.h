/* cmd/lib/text_corpus.h: a file of real text as a list: ShareGPT's JSON, JSON lines or plain text. */
#ifndef CMD_LIB_TEXT_CORPUS_H
#define CMD_LIB_TEXT_CORPUS_H
#include "base/json.h"

typedef struct {
    json_t *items; /* array: objects of the file, or NULL for plain text */
    buf plain;
} texts;

/* A file that begins with '[' is one JSON array, one that begins with '{' JSON lines; anything else is plain text. */
status texts_read(texts *t, const char *path, err *e);
void texts_free(texts *t);
/* The text that a person wrote: "prompt", "text", "question", or the first turn of "conversations"; NULL without. */
const json_t *text_of(const json_t *item);
/* The second turn of "conversations", or "answer"; NULL without. */
const json_t *reply_of(const json_t *item);
/* True for items of ShareGPT's form. */
bool is_sharegpt(const json_t *item);

#endif
