/* kernels/gpu/gemm/gemm_tuned.h: choices for matrix products that were measured on a chip (`moonlet tune gemm`), from
 * tuned/CHIP-gemm.csv.
 *
 * The first line that is no comment names the columns, in any order: chip, sms, cublas (the library's version, 0:
 * measured without it), op, in and out (types of W and x, and of y), rows, cols, heads, tokens, path, then the
 * configuration of cuBLASLt in its own numbers (a missing one is 0), us and default_us (microseconds measured, of
 * this choice and of the built-in one, in turns). Lines that begin with # are comments. A row counts for calls of
 * its shape, with that version of the library, with at most `tokens` tokens, at least half as many, and more than
 * the row before it has; the last one for all above. */
#ifndef KERNELS_GPU_GEMM_GEMM_TUNED_H
#define KERNELS_GPU_GEMM_GEMM_TUNED_H
#include "base/buf.h"
#include "kernels/gpu/gemm/gemm_select.h"

typedef struct {
    gemm_call call;
    i64 library;
    gemm_choice choice;
    f64 us, default_us;
    i64 line;
} gemm_row;

typedef struct gemm_table {
    gemm_row *rows; /* sorted: shape, library, tokens */
    i64 n, others;  /* rows with another number of processors, which are left out */
} gemm_table;

/* As tuned_parse() in moe_tuned.h. */
status gemm_parse(gemm_table *t, const char *text, u64 size, const char *name, const char *chip, int sms, err *e);
void gemm_free(gemm_table *t);
/* The row for c with this version of the library; NULL: there is none, or none for so few tokens. */
const gemm_row *gemm_find(const gemm_table *t, const gemm_call *c, i64 library);
/* The row of exactly this shape and number of tokens, or NULL. */
const gemm_row *gemm_exact(const gemm_table *t, const gemm_call *c, i64 library);
/* Has the table rows of c's shape, all of other versions? */
bool gemm_is_foreign(const gemm_table *t, const gemm_call *c, i64 library);

/* The line that names the columns, and that of a row. */
bool gemm_header(buf *out);
bool gemm_line(buf *out, const char *chip, int sms, const gemm_row *row);

#endif
