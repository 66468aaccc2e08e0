/* cmd/quantize/shard.h: one shard of a plan, from the source's files to a whole file of the new checkpoint. */
#ifndef CMD_QUANTIZE_SHARD_H
#define CMD_QUANTIZE_SHARD_H
#include "base/log.h"
#include "cmd/quantize/calibration.h"
#include "cmd/quantize/job.h"

/* What is used again from shard to shard: memory for one matrix as it is read and as it is written. */
typedef struct {
    const checkpoint *ck;
    const quantize_plan *plan;
    calibration *calibration; /* NULL: values are rounded to nearest */
    matrix_room in;
    u8 *out;
    u64 out_cap;
    progress *shown;
    u64 done;  /* bytes of the source, in this run */
    f32 *most; /* [pieces] of a pair: its largest |w| once it is known, else 0 */
} shard_writer;
void shard_writer_free(shard_writer *w);

/* Writes shard i of the job, with its line in the job's file; adds its sums to `all`. Of a shard that fails nothing is
 * left. */
status shard_write(shard_writer *w, quantize_job_file *j, u64 i, const sums_table *all, err *e);

#endif
