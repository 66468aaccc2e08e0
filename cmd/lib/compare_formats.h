/* cmd/lib/compare_formats.h: checkpoints of one model beside one of them, the master, on a text: perplexity, and
 * how far their predictions are from the master's.
 *
 * One checkpoint is in memory at a time. The master runs first; its logits, float32 for every scored token, go to a
 * file without a name in a folder for such (vocabulary x 4 bytes a token: 655 KB of Kimi-K2's), from which the others
 * read a row at a time. So the values are exact, and memory does not grow with the text. */
#ifndef CMD_LIB_COMPARE_FORMATS_H
#define CMD_LIB_COMPARE_FORMATS_H
#include "cmd/lib/documents.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/stats.h"
#include <limits.h>

typedef struct {
    const char *text;    /* documents_read(); NULL: the text that comes along with nano */
    const char *scratch; /* folder of the master's logits */
    i64 window, tokens;
} compare_options;

/* Entries for an opt_spec table; `o` is a compare_options, zero-initialized: compare_defaults() afterwards. */
/* clang-format off */
#define COMPARE_OPTS(o) \
    {"text", 0, OPT_STR, &(o).text, "FILE", \
     "plain text, or JSON lines, a document each: {\"ids\"}, {\"text\"}, {\"messages\"} or {\"question\", \"answer\"}, of " \
     "chats the last answer is scored (default: nano's word problems)", 0, 0}, \
    {"window", 0, OPT_INT, &(o).window, "N", \
     "cuts plain text into documents of N tokens (default: 512)", 2, 1e9}, \
    {"tokens", 0, OPT_INT, &(o).tokens, "N", \
     "reads the first N tokens of the text (default: 16384)", 2, 1e12}, \
    {"scratch", 0, OPT_STR, &(o).scratch, "DIR", \
     "where the master's logits wait, 4 bytes x tokens x vocabulary (default: /var/tmp)", 0, 0}
/* clang-format on */
void compare_defaults(compare_options *o);

typedef struct {
    char path[PATH_MAX]; /* as the user has it */
    char name[256];      /* its last part */
    char weights[256];   /* "int4_group32 experts, bf16" */
    u64 bytes;           /* of all tensors */
    f64 logprob;         /* mean of the text's tokens: perplexity is exp(-logprob) */
    /* Beside the master, a mean over tokens with documents as clusters; natural logarithms. Of the master itself 0. */
    mean_95 kl;      /* sum of p log(p / q) over the whole vocabulary, p the master's */
    mean_95 same;    /* 1 where both have the same most probable token */
    mean_95 change;  /* of the token's log-probability */
    mean_95 changed; /* the absolute value of that */
} compared;

typedef struct {
    const model_opts *m;
    compare_options o;
    char text[PATH_MAX];
    documents docs;
    text_encoder words;
    compared *rows; /* [n], the master first */
    i64 n, vocab;
    char model_type[32]; /* the master's */
} comparison;

/* m: how checkpoints are run, model_opts_finish()ed; its model is the master. Reads the text; nothing is loaded. End
 * with comparison_close() whatever was returned. */
status comparison_open(comparison *c, const model_opts *m, const compare_options *o, err *e);
/* One more checkpoint. ST_INPUT where its vocabulary is another: by number and, if the text came as text, word by
 * word. */
status comparison_add(comparison *c, const char *folder, err *e);
/* Runs them all and fills in the rows. ST_NUMERIC names the checkpoint and the token where a logit is no number. */
status comparison_run(comparison *c, err *e);
void comparison_close(comparison *c);

/* Markdown: what was measured, and a row a checkpoint. */
void compare_table(const comparison *c, buf *out);
/* The same as a JSON object, all digits; an interval that cannot be told is null. */
void compare_json(const comparison *c, buf *out);

#endif
