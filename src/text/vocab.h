/* text/vocab.h: the byte strings of `tiktoken.model` and the look-up from bytes to rank.
 *
 * The file is text: a line is base64(bytes), space, rank. As the official reader does, empty lines are passed
 * over and a line may end in CR LF. Stricter than it: ranks must be 0 .. n-1 without gap or repetition (in
 * any order), byte strings must differ, and each of the 256 single bytes must be among them, so that every
 * text can be encoded. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H
#include "base/err.h"

typedef struct vocab_slot vocab_slot;
typedef struct {
    i32 n;         /* ranks */
    u32 n_longest; /* bytes of the longest one */
    char *bytes;   /* all strings, one behind the other */
    u32 *start;    /* [n + 1] offsets into bytes */
    i32 byte_rank[256];
    i32 *pair_rank;    /* [65536]: rank of the two bytes (first << 8 | second), or -1 */
    vocab_slot *slots; /* hash table, n_slots = power of two */
    u64 slot_mask;
} vocab;

enum { VOCAB_BYTES_MAX = 4096 }; /* longest byte string accepted; Kimi's longest has 256 */

/* Reads text[len]; `what` names it in errors. Zero-initialised *v; end with vocab_free() even after an error.
 */
status vocab_read(vocab *v, const char *text, u64 len, const char *what, err *e);
void vocab_free(vocab *v);

/* The rank of bytes[n], or -1. */
i32 vocab_find(const vocab *v, const u8 *bytes, size_t n);

#endif
