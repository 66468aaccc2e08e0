/* text/grammar/token_trie.h: a vocabulary's byte strings as a tree, to ask a matcher about all of them at once. */
#ifndef TEXT_GRAMMAR_TOKEN_TRIE_H
#define TEXT_GRAMMAR_TOKEN_TRIE_H
#include "text/grammar/matcher.h"
#include "text/marks.h"
#include "text/tokenizer.h"

/* Marks of tool calls stand in a grammar, and in the tree, as two bytes that no text has: this one and the mark's
 * number. Vocabularies have strings with such a byte, too; they are part of no text, and not in the tree. */
enum { TOKEN_MARK_BYTE = 0xff, TOKEN_MARK_FIRST = MARK_SECTION, TOKEN_MARK_LAST = MARK_CALL_END };

/* A node is a byte behind those of the nodes above it. Nodes lie in the order of a walk, so that what is below one
 * follows it. Tokens have ranks in that order. */
typedef struct {
    i32 token; /* id that ends here, -1: none */
    i32 size;  /* nodes from this one to what is not below it */
    i32 rank;  /* tokens in front of it */
    i32 above; /* node, -1: none */
    u16 depth; /* bytes up to this one */
    u16 chars; /* that have begun in them */
    u8 byte;
} trie_node;

typedef struct {
    trie_node *nodes; /* [n], then one of rank n_tokens */
    i32 *special;     /* [n_special]: nodes whose byte ends or escapes in a JSON string, or must not be in one */
    i32 *of_rank;     /* [n_tokens]: ids */
    u16 *chars;       /* [n_tokens]: characters that begin in a token; CHARS_MALFORMED: it is not UTF-8 */
    u64 *plain;       /* [ceil(vocab / 64)]: tokens that are UTF-8 and have no special byte */
    i32 *longest;     /* [n_plain]: ranks of those, most characters first */
    i32 n, n_special, n_tokens, n_plain, vocab, deepest;
} token_trie;

enum { CHARS_MALFORMED = 0xffff };

/* A byte that ends or escapes in a JSON string, or must not be in one? */
static inline bool token_byte_is_special(u8 byte) { return byte < ' ' || byte == '"' || byte == '\\'; }

/* Of all ids that stand for bytes of text, and of the marks of tool calls that the vocabulary has; other specials are
 * not in it. Any number of threads may use it. */
status token_trie_open(token_trie **out, const tokenizer *t, err *e);
void token_trie_close(token_trie *t);

/* mask [ceil(vocab / 64)]: bit of an id is set if a text that has come to `state` can go on with its bytes, that of a
 * mark if the grammar has it there. Ids without bytes are not in it: whether the text may end, matcher_accepts()
 * says. */
status matcher_mask(matcher *m, const token_trie *t, i32 state, u64 *mask, err *e);

#endif
