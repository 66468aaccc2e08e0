/* text/tokenizer.h: Kimi's tokenizer from `tiktoken.model` and `tokenizer_config.json`.
 *
 * Byte-level BPE over pieces cut by Kimi's split pattern, plus 256 special slots behind the ranks. No special
 * id is written in code: names come from `added_tokens_decoder`, a slot not listed there is
 * `<|reserved_token_ID|>`. A tokenizer is immutable once open; any number of threads may use it. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H
#include "base/buf.h"
#include "base/err.h"

typedef struct tokenizer tokenizer;

enum { TOKENIZER_SPECIAL_SLOTS = 256 };

/* Reads both files of the folder `dir`. On failure *out is NULL. End with tokenizer_close() (NULL allowed).
 */
status tokenizer_open(tokenizer **out, const char *dir, err *e);
void tokenizer_close(tokenizer *t);

i32 tokenizer_n_ranks(const tokenizer *t);    /* ids [0, n_ranks) are byte strings */
i32 tokenizer_vocab_size(const tokenizer *t); /* n_ranks + TOKENIZER_SPECIAL_SLOTS */
/* The id of a special token by its content ("<|im_end|>"), -1 when no slot has that name. */
i32 tokenizer_special(const tokenizer *t, const char *name);
/* True for ids in the special slots. `skip_special` of decoding drops those that carry special = true in
 * added_tokens_decoder and keeps the rest (reserved names included), as the official decoder does. */
bool tokenizer_is_special(const tokenizer *t, i32 id);
/* Bytes of the longest id, names of specials included: n ids stand for at most n times as many bytes of text. */
size_t tokenizer_longest(const tokenizer *t);
/* The bytes of one id (of a special: its name); *len bytes, owned by the tokenizer. NULL for an id outside
 * the vocabulary. */
const char *tokenizer_bytes(const tokenizer *t, i32 id, size_t *len);

/* Appends the ids of text[len] to *out (nothing on failure). Malformed UTF-8: each maximal bad run counts as
 * one U+FFFD, as in Python's bytes.decode("utf-8", "replace"). With `specials` the strings of special tokens
 * become their ids wherever they occur (the longest of names that begin at one place); without, they are
 * ordinary text. n log n at worst, on any input. With out->max it ends at the first id too many: ST_LIMIT.
 * ST_NOMEM is the only other failure. */
status tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool specials, ids_buf *out, err *e);

/* Appends the bytes of the ids, exactly (which may be malformed UTF-8). ST_INPUT names an id out of range. */
status tokenizer_decode_bytes(const tokenizer *t, const i32 *ids, size_t n, bool skip_special, buf *out, err *e);

/* Streaming decode: feed ids one at a time; each call appends the text that has become certain, always whole
 * characters, bad bytes as U+FFFD. The concatenation of all pieces plus the final flush equals Python's
 * bytes.decode("utf-8", "replace") of the whole. Zero-initialise. */
typedef struct {
    u8 held[4]; /* bytes of an unfinished character */
    u8 n_held;
} decode_stream;
status decode_stream_add(decode_stream *s, const tokenizer *t, i32 id, bool skip_special, buf *out, err *e);
void decode_stream_end(decode_stream *s, buf *out); /* an unfinished character becomes one U+FFFD */

#endif
