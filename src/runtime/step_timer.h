/* runtime/step_timer.h: steps of a chosen shape on an engine, timed: so many sequences, each with so much context.
 * Made-up token ids; an engine that was opened with max_running and is used by nobody else. */
#ifndef RUNTIME_STEP_TIMER_H
#define RUNTIME_STEP_TIMER_H
#include "runtime/engine.h"

typedef struct step_timer step_timer;

/* Takes KV pages for `sequences` of up to `context` tokens each, of which a decode step has at most `rows`. ST_LIMIT if
 * the pool is smaller. End with step_timer_close(), which takes NULL too. */
status step_timer_open(step_timer **out, engine *g, i64 sequences, i64 context, i64 rows, u64 seed, err *e);
void step_timer_close(step_timer *m);
/* Steps may from now on lie at positions up to `context`, with no more room taken: all of a sequence's positions behind
 * its own pages are its last page again. For steps that are not timed for what they read. */
status step_timer_stretch(step_timer *m, i64 context, err *e);

/* One step that feeds n tokens at position pos0 of a sequence, n at most the engine's chunk. *seconds: from its
 * tables to its logits on the host. */
status step_timer_prompt(step_timer *m, i64 sequence, i64 pos0, i64 n, f64 *seconds, err *e);
/* So many steps of a shape are run before one is timed: it is recorded by then. */
enum { WARM_DECODES = 9 };
/* One step of so many tokens for each of the first `sequences`, from position `pos` on: with more than one a step that
 * checks drafts. */
status step_timer_decode(step_timer *m, i64 sequences, i64 rows, i64 pos, f64 *seconds, err *e);
/* The draft model's pass behind such a step, all of whose rows were kept: of a row as many guesses as the engine's
 * draft makes, of more those that the next such step checks. From its tables to its guesses on the host. */
status step_timer_drafts(step_timer *m, i64 sequences, i64 rows, i64 pos, f64 *seconds, err *e);

/* What a layer's ranks exchange: sums of rows of the hidden size (with their norm, where it is one launch that norms a
 * rank's own rows alone), and where they divide the KV cache queries before
 * attention and its parts behind it (kernels/context_parallel.h). */
typedef enum { EXCHANGE_SUM, EXCHANGE_QUERIES, EXCHANGE_PARTS } exchange_kind;
/* One of n rows as a step makes it, of many in one recording. ST_INPUT: the engine's one rank has none such. */
status step_timer_exchange(step_timer *m, exchange_kind kind, i64 n, f64 *seconds, err *e);
/* Do ranks divide the rows of a step of n between layers (kernels/fused.h, kept_rows)? */
bool step_timer_divides(const step_timer *m, i64 n);

/* From here on kernels of recorded steps write down when their blocks ran, of the first rank (device/gpu.h, gpu_stamp);
 * `on` false: not any more. Steps are recorded anew. ST_UNSUPPORTED: there is no GPU, or its launches are timed one by
 * one (engine_profile_start). */
status step_timer_stamp(step_timer *m, bool on, err *e);
/* Shows fn the launches of the step that was recorded last, as it ran last, and how many there was no room for. */
struct gpu_stamped;
status step_timer_stamps(step_timer *m, void (*fn)(void *ud, const struct gpu_stamped *s), void *ud, i64 *missed,
                         err *e);

typedef struct {
    i64 layers; /* with experts; 0: there are none, and nothing else is told */
    i64 experts, least, most;
    f64 mean, uniform; /* of the layers; what a router that prefers nobody would touch */
} measured_experts;
/* How many experts of a layer such a decode step touches. Not one cut by --deterministic (more than 64 rows). */
status step_timer_experts(step_timer *m, i64 sequences, i64 pos, measured_experts *out, err *e);

#endif
