/* cmd/lib/jsonl.h: JSON lines in, one answer line out for each. */
#ifndef CMD_LIB_JSONL_H
#define CMD_LIB_JSONL_H
#include "base/json.h"
#include <stdio.h>

/* Handles one parsed line; appends the answer (no newline) to *out. On failure *e says why. */
typedef status (*jsonl_fn)(void *ud, const json_t *line, buf *out, err *e);

/* Reads `in` to its end and answers every line on stdout, one for one, flushed line by line. A line that cannot be
 * handled (an empty one too) answers {"error": "..."} and the others go on; *n_failed counts them. A failed read
 * or write is the only error returned. */
status jsonl_run(FILE *in, const char *what, jsonl_fn fn, void *ud, i64 *n_failed, err *e);

#endif
