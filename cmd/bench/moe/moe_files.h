/* cmd/bench/moe/moe_files.h: raw little-endian files of `moonlet bench moe`, and bf16 weights as INT4. */
#ifndef CMD_BENCH_MOE_MOE_FILES_H
#define CMD_BENCH_MOE_MOE_FILES_H
#include "base/err.h"
#include "format/weights.h"

/* ST_INPUT, which names both, unless a file has the size that `what` of the shape has. */
status moe_size_is(const char *path, u64 is, u64 should, const char *what, err *e);
/* Reads a file of exactly `bytes` bytes, or of *sets times as many (routings); *sets, which may be NULL: how many
 * there were. */
status moe_read_raw(const char *path, void *out, u64 bytes, i64 *sets, const char *what, err *e);

/* rows x cols of bf16 as INT4 in groups of 32, at `memory`: data, then scales at a multiple of 64. A group's scale
 * is the bf16 number that leaves the smallest sum of squared differences of those that put its largest value at -8
 * or at +-1 ... +-7: values that were whole multiples of a bf16 scale stay what they are. A group with a value that
 * is no number has the scale NaN. */
weight_view moe_int4_of(const bf16 *w, i64 rows, i64 cols, void *memory);

#endif
