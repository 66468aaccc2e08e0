/* runtime/token_filter.h: which tokens an answer may have: all that the runtime knows of grammars and schemas.
 *
 * A state is a number that stands for the tokens so far; it can be kept, gone on from several times and come back to,
 * which is what verifying drafts and taking tokens back needs. Functions are called from one thread at a time for one
 * `ud`; from several for several. */
#ifndef RUNTIME_TOKEN_FILTER_H
#define RUNTIME_TOKEN_FILTER_H
#include "base/err.h"

enum { TOKEN_FILTER_DEAD = -1 };

typedef struct {
    void *ud;
    i32 start; /* before the first token of the answer */
    /* mask [ceil(vocab / 64)], all 0: sets the bit of each id that may come next. Ids that end the answer need not be
     * in it: they may come where *may_end. A failure ends the request, and so does a mask without any id
     * where it may not end. */
    status (*mask)(void *ud, i32 state, u64 *mask, bool *may_end, err *e);
    /* The state behind `id`; TOKEN_FILTER_DEAD: it may not come. */
    i32 (*next)(void *ud, i32 state, i32 id);
    /* The ids that must come next, one behind the other, at most `most`; returns how many. NULL: it is not asked. */
    i64 (*forced)(void *ud, i32 state, i32 *ids, i64 most);
    void (*close)(void *ud); /* the request is over */
} token_filter;

#endif
