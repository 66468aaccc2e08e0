/* kernels/gpu/moe/moe_tuned.h: choices that were measured on a chip (`moonlet tune moe`), from tuned/CHIP.csv.
 *
 * The first line that is no comment names the columns, in any order: chip, sms, format, dim, inter, experts, topk,
 * tokens, path, then knobs of moe_select.h (a missing one, or 0: the default), us and default_us (microseconds
 * measured, of this choice and of the default's, beside each other). Lines that begin with # are comments. A row
 * counts for calls of its shape with at most `tokens` tokens, at least half as many, and more than the row before it
 * has. In a gap that this leaves between two rows, the one below counts up to twice its tokens and nothing beyond
 * (half a row's tokens and twice are as far as what was measured is taken to hold); nothing counts below half of the
 * first row's; the last one counts for all above. */
#ifndef KERNELS_GPU_MOE_MOE_TUNED_H
#define KERNELS_GPU_MOE_MOE_TUNED_H
#include "base/buf.h"
#include "kernels/gpu/moe/moe_select.h"

typedef struct {
    moe_call call; /* form: ROWS_ANY */
    moe_choice choice;
    f64 us, default_us;
    i64 line;
} tuned_row;

typedef struct tuned_table {
    tuned_row *rows; /* sorted: format, dim, inter, experts, topk, tokens */
    i64 n, others;   /* rows with another number of processors, which are left out */
} tuned_table;

/* Reads a table for a chip, whose name every row must bear, with so many processors. Errors name `name` and the
 * line. On failure *t is empty. The caller ends it with tuned_free(). */
status tuned_parse(tuned_table *t, const char *text, u64 size, const char *name, const char *chip, int sms, err *e);
void tuned_free(tuned_table *t);
/* The row for c; NULL: no row has its shape, or none tokens so near. */
const tuned_row *tuned_find(const tuned_table *t, const moe_call *c);
/* The row of exactly this shape and number of tokens, or NULL. */
const tuned_row *tuned_exact(const tuned_table *t, const moe_call *c);

/* The line that names the columns, and that of a row. */
bool tuned_header(buf *out);
bool tuned_line(buf *out, const char *chip, int sms, const tuned_row *row);
/* The file of a chip: "NVIDIA H200" -> "nvidia-h200.csv". */
void tuned_file_name(char *out, size_t cap, const char *chip);

#endif
