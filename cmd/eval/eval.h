/* cmd/eval/eval.h: the evaluations of `moonlet eval`, and what they share. */
#ifndef CMD_EVAL_EVAL_H
#define CMD_EVAL_EVAL_H
#include "base/err.h"
#include <stdio.h>

int eval_logprobs(int argc, char **argv);
int eval_formats(int argc, char **argv);
int eval_vision(int argc, char **argv);
int eval_answers(int argc, char **argv);
int eval_nano(int argc, char **argv);
int eval_gsm8k(int argc, char **argv);

/* An entry for an opt_spec table. */
#define EVAL_PARALLEL(dst, by_default)                                                                                 \
    {                                                                                                                  \
        "parallel", 0, OPT_INT, &(dst), "N",                                                                           \
            "questions at a time, each with an engine of its own; 0: one a thread (default: " by_default ")", 0, 256   \
    }

/* A result file, opened before the work begins; *f stays NULL for a NULL path. */
status eval_create(FILE **f, const char *path, err *e);
/* Closes it (NULL allowed); a write that failed becomes *st unless there is an error already. */
void eval_close(FILE *f, const char *path, status *st, err *e);
/* Line ends and tabs inside a text (NULL: nothing) become spaces, so that it stays one column of one line. */
void eval_column(FILE *f, const char *text);

#endif
