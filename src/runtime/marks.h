/* runtime/marks.h: what tells one model's files from another's, as lines of text "name=value" that two processes
 * compare. */
#ifndef RUNTIME_MARKS_H
#define RUNTIME_MARKS_H
#include "base/buf.h"
#include "format/checkpoint.h"

/* The same on every machine. */
u64 marks_hash(const void *data, u64 n);
/* A line about a checkpoint's tensors, NULL: there are none; and about the config.json in a folder. */
status marks_of_checkpoint(buf *b, const char *what, const checkpoint *ck, err *e);
status marks_of_config(buf *b, const char *what, const char *dir, err *e);

typedef struct {
    const char *name, *value; /* name NULL: there is no such line, the text has ended */
    int n, n_name, n_value;   /* bytes: of the line, its parts */
} marks_line;
/* The first line in which two texts differ; false: they are equal. */
bool marks_differ(const char *a, const char *b, marks_line *of_a, marks_line *of_b);

#endif
