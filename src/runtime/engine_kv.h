/* runtime/engine_kv.h: KV pages out of an engine's memory and into it, beside its steps.
 *
 * A page's bytes are the same however an engine is divided: [layers of the model][KV_PAGE][latent + rope] of the
 * cache's type, then those of the draft's layer, if there is one. */
#ifndef RUNTIME_ENGINE_KV_H
#define RUNTIME_ENGINE_KV_H
#include "base/buf.h"
#include "runtime/engine.h"

/* ST_OK, or why pages of this engine cannot be moved, which this option asks for. */
status engine_kv_check(const engine *g, const char *option, err *e);
u64 engine_kv_page_bytes(const engine *g);
/* What pages mean, as text of a line for each thing: the model, its checkpoint, the draft, the cache's type. o: what
 * the engine was opened with. */
status engine_kv_describe(const engine *g, const engine_options *o, buf *out, err *e);
/* ST_INPUT names the first thing that differs, with both values. */
status engine_kv_compare(const char *own, const char *theirs, err *e);
/* Are all values in bytes [from, to) of a page numbers? from, to: multiples of 8, or the page's end. Of the
 * model's rows: on a draft's nothing but its guesses hangs. */
bool engine_kv_finite(const engine *g, const u8 *page, u64 from, u64 to);
/* Waits until nothing that was queued can write to a page that is free by now. For the thread that runs the engine. */
status engine_kv_settle(engine *g, err *e);

/* Moves pages, one thread at a time, which need not be the engine's. A page that is read has all of its rows; one that
 * is written is nobody else's. */
typedef struct kv_mover kv_mover;
status kv_mover_open(kv_mover **out, engine *g, err *e);
void kv_mover_close(kv_mover *m); /* NULL is allowed */
/* [engine_kv_page_bytes()]: where a page's bytes are behind kv_mover_read(), and before kv_mover_write(). The same
 * place until the mover is closed. */
u8 *kv_mover_page(kv_mover *m);
status kv_mover_read(kv_mover *m, i32 page, err *e);
status kv_mover_write(kv_mover *m, i32 page, err *e);

#endif
