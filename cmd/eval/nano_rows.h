/* cmd/eval/nano_rows.h: the rows of nano's accuracy table: what each asks and what counts as right.
 * docs/guide/evaluation.md says it for a reader; tools/nano/evaluate.py measures the same in PyTorch. */
#ifndef CMD_EVAL_NANO_ROWS_H
#define CMD_EVAL_NANO_ROWS_H
#include "cmd/eval/eval_items.h"
#include "moonlet.h"

enum { NANO_VERDICTS = 3 };

/* What an item gave. */
typedef struct {
    bool right[NANO_VERDICTS]; /* in the order of the pass's rows */
    i64 prompt_tokens, output_tokens;
    char *answer; /* the last content; the caller's to free */
} nano_result;

/* The long text that needles are planted in, by sentences. */
typedef struct {
    char *text;   /* line ends replaced by NUL */
    char **lines; /* [n], into text */
    i64 n;
} haystack;
status haystack_read(haystack *h, const char *path, err *e);
void haystack_free(haystack *h);

/* Several rows may come from one pass over a file, and one file may be asked in two passes. */
typedef struct {
    const char *name;                /* of --only */
    const char *file;                /* in the folder of evaluation files; NULL: the engine cannot measure it yet */
    const char *rows[NANO_VERDICTS]; /* names in the table and in pytorch.json; NULL: fewer */
    bool instant, needs_haystack;
    item_check check; /* ud: haystack */
    status (*ask)(const haystack *h, const json_t *item, bool instant, moon_engine *m, nano_result *out, err *e);
} nano_pass;

extern const nano_pass nano_passes[];
extern const i64 nano_n_passes;

#endif
