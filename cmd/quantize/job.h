/* cmd/quantize/job.h: the folder that is written, and what a stopped run needs to go on.
 *
 * DST/quantize-job.jsonl is there from the first moment to the last. Its first line says what is made of what (the
 * source's files by size and time, format, options); then comes one line a finished shard with the sums of its errors,
 * written before the shard gets its name. So a shard under its name is whole and has its line, whatever stopped the
 * run, and the next run makes what is missing. */
#ifndef CMD_QUANTIZE_JOB_H
#define CMD_QUANTIZE_JOB_H
#include "cmd/quantize/plan.h"
#include <limits.h>

/* Sums over the pieces of a class in a layer. */
typedef struct {
    u64 matrices, made; /* all, and those that were written anew */
    u64 bytes_in, bytes_out;
    quantize_sums sums; /* of those */
} class_sums;

/* [layers + 1][MC_COUNT]; the last row is of what is in no layer. */
typedef struct {
    class_sums *at;
    i64 layers;
} sums_table;
status sums_table_make(sums_table *t, i64 layers, err *e);
class_sums *sums_table_at(const sums_table *t, int layer, matrix_class c); /* layer -1: in none */
void sums_table_free(sums_table *t);

typedef struct {
    char source[PATH_MAX], folder[PATH_MAX];
    const char *format, *only;                  /* as the user has them */
    const char *calibrate;                      /* the text, its whole path; NULL: none */
    i64 calibration_tokens, calibration_window; /* as the user has them */
    i64 calibration_read;                       /* tokens that there are */
    u64 shard_bytes, n_shards;
    int fd; /* of the job's file, locked; -1: none */
    bool resumed;
    bool *done; /* [n_shards] */
} quantize_job_file;

/* DST: made where it does not exist, taken where it is empty, gone on with where it has the same job; anything else is
 * an error and nothing is touched. ck: the source. Adds what finished shards have in their lines to `all`. */
status job_open(quantize_job_file *j, const checkpoint *ck, const sums_table *all, err *e);
void job_close(quantize_job_file *j);
/* The name of shard i in the folder. */
void job_shard_name(const quantize_job_file *j, u64 i, char out[64]);
/* Shard i is whole but for its name: writes its line. */
status job_add_line(quantize_job_file *j, u64 i, const sums_table *t, err *e);
/* All is done: the job's file goes. */
status job_end(quantize_job_file *j, err *e);

#endif
