/* cmd/lib/documents.h: a text to score, as token ids: documents, or windows of one long text. */
#ifndef CMD_LIB_DOCUMENTS_H
#define CMD_LIB_DOCUMENTS_H
#include "base/json.h"
#include "text/tokenizer.h"

/* Whose words they are. The tokenizer is opened when the first text comes: ids need none. Zero-initialise the rest. */
typedef struct {
    const char *model_dir, *model_type; /* the type is for the chat template of {"messages"}; line_ids() needs none */
    i64 vocab;                          /* ids are below it */
    tokenizer *tok;
} text_encoder;
void text_encoder_close(text_encoder *t);

/* Appends the ids of a line {"ids": [...]} or {"text": "..."}; names of special tokens in a text are text. */
status line_ids(text_encoder *t, const json_t *line, ids_buf *out, err *e);

/* Document i is ids.data[begin[i] .. begin[i + 1]); its tokens from the from[i]th on (1 at least) are scored. */
typedef struct {
    ids_buf ids;
    i64 *begin, *from; /* [n + 1], [n] */
    i64 n, scored;     /* tokens of all documents */
} documents;

/* A file of plain text, cut into windows of `window` tokens, or (it begins with '{' or '[') JSON lines or an array of
 * objects, each a document: {"ids"} or {"text"} for line_ids(), {"messages"} of which the last is an answer, or
 * {"question", "answer"} in GSM8K's schema (what stands behind #### belongs to no answer). Of chats, rendered without
 * thinking, the answer alone is scored, its end too. Reading ends behind the first `most` tokens (0: all of them).
 * Documents without a token to score are left out, which a notice says; ST_INPUT where none is left. */
status documents_read(documents *d, text_encoder *t, const char *path, i64 window, i64 most, err *e);
void documents_free(documents *d);
static inline i64 document_tokens(const documents *d, i64 i) { return d->begin[i + 1] - d->begin[i]; }

#endif
