/* text/grammar/matcher.h: walks a grammar byte by byte.
 *
 * A state is a number that stands for all that a text so far can be: a set of places in the grammar, each with a stack
 * of what it is part of. Equal sets have equal numbers, so a state can be kept, gone on from several times and come
 * back to: that is all that forking and taking back tokens takes. States live as long as the matcher. */
#ifndef TEXT_GRAMMAR_MATCHER_H
#define TEXT_GRAMMAR_MATCHER_H
#include "text/grammar/grammar.h"

enum { MATCHER_DEAD = -1 };

typedef struct matcher matcher;
/* g, finished, must outlive it. One thread at a time walks a grammar, whatever the number of its matchers. */
status matcher_open(matcher **out, grammar *g, err *e);
void matcher_close(matcher *m);

i32 matcher_start(const matcher *m);
/* The state in which `node` of the grammar, and nothing behind it, is to come. */
i32 matcher_start_at(matcher *m, i32 node);
/* The state behind one byte more, MATCHER_DEAD if no text that matches goes on so. */
i32 matcher_next(matcher *m, i32 state, u8 byte);
/* The byte that alone may come next. */
enum { BYTE_NONE = -1 /* none may */, BYTES_SEVERAL = -2 };
i32 matcher_only_byte(matcher *m, i32 state);
/* May the text end here? */
bool matcher_accepts(const matcher *m, i32 state);
/* ST_LIMIT, ST_NOMEM: some state was too much, and matcher_next() has said MATCHER_DEAD instead. */
status matcher_failed(const matcher *m, err *e);
u64 matcher_bytes(const matcher *m); /* memory that its states take so far, about; without the grammar's */

#endif
