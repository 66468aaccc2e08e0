/* runtime/ngram.h: drafts without a model: what followed the last time that the same tokens stood there.
 *
 * Agents and editors repeat text, of the prompt and of the answer so far. An index from each run of NGRAM_LENGTH tokens
 * to the place behind its latest occurrence answers that in constant time; tokens are added as they come. */
#ifndef RUNTIME_NGRAM_H
#define RUNTIME_NGRAM_H
#include "base/types.h"

enum { NGRAM_LENGTH = 3 };

/* Zero-initialise, end with ngram_free(). */
typedef struct {
    i32 *at;     /* [slots]: place behind a run, 0: free */
    i64 slots;   /* a power of two */
    i64 n;       /* tokens that are in */
    bool failed; /* out of memory: it proposes nothing more */
} ngram_index;
void ngram_free(ngram_index *g);

/* What may follow tokens [n], the same ones as before and some more: writes at most `most` ids to `draft`, and returns
 * how many, no more than the tokens which agree in front of the place. */
i64 ngram_propose(ngram_index *g, const i32 *tokens, i64 n, i32 *draft, i64 most);

#endif
