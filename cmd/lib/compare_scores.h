/* cmd/lib/compare_scores.h: the numbers of a comparison (cmd/lib/compare_formats.h), token by token. */
#ifndef CMD_LIB_COMPARE_SCORES_H
#define CMD_LIB_COMPARE_SCORES_H
#include "base/log.h"
#include "cmd/lib/compare_formats.h"

/* Sum of p log(p / q) of the softmax of two rows of logits, with their log_sum_exp(); in double. */
f64 kl_divergence(const f32 *p, f64 p_lse, const f32 *q, f64 q_lse, i64 n);

enum { SCORE_LOGPROB, SCORE_KL, SCORE_SAME, SCORE_CHANGE, SCORE_CHANGED, SCORE_COUNT };

/* Tokens are scored in the order of the documents, the master's before all others'. */
typedef struct {
    const documents *docs;
    i64 vocab;
    int fd;              /* the master's logits, [docs->scored][vocab] float32 */
    const char *scratch; /* the folder it is in */
    f32 *row;            /* [vocab] of them */
    f64 *lse, *logprob;  /* [docs->scored] the master's */
    i32 *best;           /* [docs->scored] its most probable tokens */
    f64 *count;          /* [docs->n] scored tokens of each document */
    f64 *sums;           /* [SCORE_COUNT][docs->n] of the checkpoint that runs */
    i64 document, token; /* the document that runs, and the token of all that comes next */
    bool master;         /* whether it is the master that runs */
    progress shown;
    u64 done; /* tokens of all checkpoints */
} score_run;

/* Makes room for the master's logits in the folder `scratch`: ST_IO where it is not there. `checkpoints` will run. End
 * with score_close() whatever was returned. */
status score_open(score_run *r, const documents *d, i64 vocab, i64 checkpoints, const char *scratch, err *e);
void score_close(score_run *r);
/* What runs next: a checkpoint from the first document on, a document of it. */
void score_checkpoint(score_run *r, const char *name, bool master);
void score_document(score_run *r, i64 document);
status score_row(void *run, i64 index, f32 *logits, err *e); /* a seq_logits_fn */
/* Of the checkpoint whose documents have all run. */
void score_result(const score_run *r, compared *row);

#endif
