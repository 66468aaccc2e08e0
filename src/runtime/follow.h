/* runtime/follow.h: the ranks of other processes: what process 0 tells them and takes from them, and what they do. */
#ifndef RUNTIME_FOLLOW_H
#define RUNTIME_FOLLOW_H
#include "runtime/ranks.h"
#include "runtime/step_wire.h"

/* Process 0: begins a job for the others, in r->told, and sends it. Nothing where there are no others, or on those. */
bool ranks_tell(const ranks *r); /* is there somebody to be told? */
status ranks_send_told(ranks *r, err *e);

/* Every process, when its own ranks have collected: b's results of the others' ranks go to process 0. */
status ranks_share_results(ranks *r, const model_batch *b, err *e);
status ranks_share_drafts(ranks *r, const draft_batch *b, err *e);
/* *all: is it true in all processes? */
status ranks_share_done(ranks *r, bool *all, err *e);

/* Any process but 0, when the model is loaded: computes what process 0 tells, until that ends. topk: of the draft. What
 * fails here ends the group. */
status ranks_follow(ranks *r, const model_limits *lim, i64 topk, err *e);
/* Process 0: the others leave ranks_follow(). Nothing where they are not in there, or cannot be reached. */
void ranks_dismiss(ranks *r);

#endif
