/* kernels/gpu/csv_table.h: reading tables of measured choices: lines of fields between commas, the first of which names
 * the columns. Every error names the file and the line. */
#ifndef KERNELS_GPU_CSV_TABLE_H
#define KERNELS_GPU_CSV_TABLE_H
#include "base/err.h"

enum { TABLE_COLUMNS = 32, TABLE_ROWS = 100000 };

typedef struct table_reader table_reader;
struct table_reader {
    const char *name, *chip; /* of the file; that every row must bear */
    int sms;
    err *e;
    const char *const *columns; /* at most TABLE_COLUMNS */
    int n_columns, first_optional, n_optional;
    /* A row's fields by column; NULL: there is no such column. */
    status (*row)(void *ud, const table_reader *r, char *const *fields);
    void *ud;
    i64 line;
    int order[TABLE_COLUMNS], n_fields; /* columns of the fields */
};

/* Lines that are empty or begin with # are passed over. ST_FORMAT, or what r->row returns. */
status table_read(table_reader *r, const char *text, u64 size);
/* For r->row: an error of this line; a whole number; a time in microseconds; the chip's name; room for one more of n
 * rows. */
status table_wrong(const table_reader *r, const char *what);
status table_whole(const table_reader *r, int column, const char *text, i64 min, i64 max, i64 *out);
status table_time(const table_reader *r, int column, const char *text, f64 *out);
status table_chip(const table_reader *r, const char *text);
status table_grow(const table_reader *r, void **rows, i64 n, u64 size);

#endif
