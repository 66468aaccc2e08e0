/* runtime/step_wire.h: what a process is told to compute, as bytes: batches of the model and of its draft, items of the
 * vision tower. Both sides are one program on one kind of processor, so numbers go as they lie in memory; arrays begin
 * at multiples of 8 bytes. What is read is checked against the bytes that are there. */
#ifndef RUNTIME_STEP_WIRE_H
#define RUNTIME_STEP_WIRE_H
#include "base/buf.h"
#include "model/draft.h"
#include "model/vision.h"

typedef enum {
    JOB_QUEUE,   /* a batch */
    JOB_DRAW,    /* its draws and masks */
    JOB_COLLECT, /* its results */
    JOB_DRAFTS,
    JOB_COLLECT_DRAFTS,
    JOB_COPY_KV,
    JOB_BEGIN_MEDIA,
    JOB_ADVANCE_MEDIA,
    JOB_PLAN_MOVES,
    JOB_MOVE_EXPERTS,
    JOB_END
} job_kind;

/* The first number of JOB_COLLECT_DRAFTS: what is wanted of the guesses. */
typedef enum { GUESSES_UNSEEN, GUESSES_OF_CHAINS, GUESSES_OF_TREES } guesses_wanted;
static inline guesses_wanted guesses_wanted_by(const draft_batch *b) {
    return b->ids ? GUESSES_OF_CHAINS : b->tree ? GUESSES_OF_TREES : GUESSES_UNSEEN;
}

/* A job with up to two numbers beside its arrays. */
void wire_begin(buf *to, job_kind kind, i64 a, i64 b);
void wire_batch(buf *to, const model_batch *b, i64 vocab); /* JOB_QUEUE; masks unless they come with the draws */
void wire_draws(buf *to, const model_batch *b, i64 vocab); /* JOB_DRAW */
void wire_drafts(buf *to, const draft_batch *b, i64 topk);
void wire_pairs(buf *to, const kv_pair *pairs, i64 n);
void wire_media(buf *to, const vision_input *items, i64 n, i64 from);

/* A job as it came; what is read from it points into it or into memory of its own. Zero-initialise. */
typedef struct {
    buf bytes;
    job_kind kind;
    i64 a, b;
    size_t at; /* read so far */
    model_span *spans;
    draft_span *draft_spans;
    vision_input *items;
} wire_job;

/* ST_FORMAT where the bytes are no such job. */
status wire_read(wire_job *j, err *e); /* of j->bytes: its kind and numbers */
/* Results are the reader's to add. */
status wire_read_batch(wire_job *j, model_batch *out, i64 vocab, err *e);
status wire_read_draws(wire_job *j, model_batch *out, i64 vocab, err *e);
status wire_read_drafts(wire_job *j, draft_batch *out, i64 topk, err *e);
status wire_read_pairs(wire_job *j, const kv_pair **pairs, i64 *n, err *e);
status wire_read_media(wire_job *j, const vision_input **items, i64 *n, i64 *from, err *e);
void wire_free(wire_job *j);

#endif
