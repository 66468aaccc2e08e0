/* server/request/constraints.h: constraints on answers, compiled away from the engine and kept by their content.
 *
 * Whoever asks waits, for its own compiling or for that of another who asked for the same. What was compiled stays, and
 * what failed stays for a while: sent again it costs nothing. A compile has a thread of its own with the lowest
 * priority, so that it takes no processor time that the engine could use. It is given up when nobody waits for it any
 * more. */
#ifndef SERVER_REQUEST_CONSTRAINTS_H
#define SERVER_REQUEST_CONSTRAINTS_H
#include "server/request/errors.h"
#include "text/grammar/constraint.h"

enum { CONSTRAINT_SOURCE_MAX = 1 << 20 }; /* bytes of a source's schemas as JSON */

typedef struct {
    const tokenizer *tok; /* must outlive the cache */
    /* Numbers, 0: what stands behind them. */
    i64 most;                                /* kept; 256 */
    u64 bytes;                               /* kept, their growth in use included as it is seen; 512 MiB */
    i64 most_failures;                       /* remembered; 32 */
    f64 failure_s;                           /* for so long; 60 */
    i64 at_a_time;                           /* compiled; 8 */
    f64 patience_s;                          /* who waits longer gets a 503; 10 */
    void (*compiled)(void *ud, f64 seconds); /* after each compile, from any thread; NULL: nobody is told */
    void *ud;
    /* For tests, instead of constraint_compile(); NULL: that. */
    status (*compile)(constraint **out, const constraint_source *source, const token_trie *trie, const tokenizer *tok,
                      buf *warnings, err *e);
} constraint_cache_options;

/* Since open, except `waiting`, `kept` and `bytes`: now. */
typedef struct {
    i64 compiles, failures; /* compiles that failed, or were given up, are counted in both */
    i64 hits;               /* asked for and not compiled for it: kept, or somebody else's compile */
    i64 timeouts, aborted;  /* gave up waiting: too long, the client has gone */
    i64 waiting, kept;
    u64 bytes;
    f64 seconds; /* of compiling */
} constraint_stats;

typedef struct constraint_cache constraint_cache;
status constraint_cache_open(constraint_cache **out, const constraint_cache_options *o, err *e);
/* Nobody may be asking; constraints that are still held must be given up before: they use what goes here. NULL allowed.
 */
void constraint_cache_close(constraint_cache *c);
/* From here on nothing is compiled: who waits, and who asks for what is not kept, gets a 503 at once. */
void constraint_cache_stop(constraint_cache *c);
void constraint_cache_stats(constraint_cache *c, constraint_stats *out);

/* Who asks. field: static, the one at fault if the source is. gone(ud): has the client gone? It is asked a few times a
 * second; NULL: no. */
typedef struct {
    const char *field;
    bool (*gone)(void *ud);
    void *ud;
} constraint_asker;

/* *out gets a holder, the caller. warnings [appended]: what is not held, a line each. False: *e, with e->http 0 if the
 * client has gone. Text of the source, and what is made of it while it is sorted, is the caller's to account for. */
bool constraints_get(constraint_cache *c, const constraint_source *source, const constraint_asker *who,
                     constraint **out, buf *warnings, api_error *e);

#endif
