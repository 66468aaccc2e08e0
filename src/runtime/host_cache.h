/* runtime/host_cache.h: KV pages in the host's memory, of beginnings for which the prefix cache may have no room.
 *
 * Behind an answer its pages are copied here; a prompt that begins so gets them back instead of computing them again.
 * What is here is known by a tree like the prefix cache's (radix.h), over places of host memory instead of pages of the
 * device's; the least recently used go first. Threads copy the bytes, beside the engine's steps.
 *
 * A page that is saved is known, so that nobody saves it again, before it is there to be loaded.
 *
 * All functions are for the thread that runs the engine. */
#ifndef RUNTIME_HOST_CACHE_H
#define RUNTIME_HOST_CACHE_H
#include "runtime/engine.h"
#include "runtime/radix.h"

typedef struct host_cache host_cache;
/* Pages [from, n) of a sequence, between the engine's pool and places here. */
typedef struct host_copy host_copy;
typedef struct {
    i64 from, n;
} host_range;
/* Called by a thread of the cache's: all pages have been copied, or why not. */
typedef void (*host_copy_fn)(void *ud, const err *why);

/* Pages since open; places: all there are; held: of these, with a page that is known. */
typedef struct {
    i64 places, held, saved, loaded, evicted;
} host_cache_stats;

/* ST_NOMEM if the host has not so much memory left. */
status host_cache_fits(u64 bytes, err *e);
/* Room for as many pages as fit `bytes`, or, where that is 0, `ratio` times the engine's pool. As host_cache_fits(),
 * ST_UNSUPPORTED where pages cannot be moved (engine_kv_check()). */
status host_cache_open(host_cache **out, engine *g, u64 bytes, f64 ratio, err *e);
/* Its threads end; copies under way are never done. Then, when all have been ended, _close(). NULL is allowed. */
void host_cache_stop(host_cache *c);
void host_cache_close(host_cache *c);
host_cache_stats host_cache_counts(const host_cache *c);
void host_cache_flush(host_cache *c); /* forgets everything that no copy is under way of */

/* A copy of what there is behind the first `from` pages of a sequence, which has `most` pages, into the engine; NULL:
 * less than is worth it. */
host_copy *host_cache_load(host_cache *c, u64 space, const radix_tokens *t, i64 from, i64 most);
/* Copies of those of a sequence's first n pages that are not here yet, nor on their way, out of the engine, at most
 * `most` pages: the first of a few, which follow each other; NULL: there is nothing to be copied, or no room. What is
 * here counts as used now. */
host_copy *host_cache_save(host_cache *c, u64 space, const radix_tokens *t, i64 n, i64 most);
host_copy *host_copy_behind(const host_copy *h); /* to be asked before h is begun, or ended */
host_range host_copy_range(const host_copy *h);
/* pages [n]: the sequence's in the engine's pool; those of the range, and what they hold, stay as they are until it is
 * done. */
void host_copy_begin(host_copy *h, const i32 *pages, host_copy_fn done, void *ud);
/* Behind done(), or host_cache_stop(), or instead of _begin(): what was saved may be loaded from now on. Frees h. */
void host_copy_end(host_copy *h);
/* Somebody waits for what is saved: it goes before what is loaded. */
void host_cache_hurry(host_cache *c, bool saves);

/* Proves the tree and the places' counts, as radix_check(). */
status host_cache_check(host_cache *c, err *e);

#endif
