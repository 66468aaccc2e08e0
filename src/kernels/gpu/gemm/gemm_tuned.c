/* kernels/gpu/gemm/gemm_tuned.c: the table of measured choices for matrix products: reading, looking up, writing. */
#include "kernels/gpu/gemm/gemm_tuned.h"
#include "kernels/gpu/csv_table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    C_CHIP,
    C_SMS,
    C_CUBLAS,
    C_OP,
    C_IN,
    C_OUT,
    C_ROWS,
    C_COLS,
    C_HEADS,
    C_TOKENS,
    C_PATH,
#define CONFIG_COLUMN(name, attribute, bytes, max) C_CONFIG_##name,
    CUBLAS_CONFIG(CONFIG_COLUMN)
#undef CONFIG_COLUMN
        C_US,
    C_DEFAULT_US,
    C_COUNT
} column;

static const char *const gemm_tuned_columns[] = {"chip",
                                                 "sms",
                                                 "cublas",
                                                 "op",
                                                 "in",
                                                 "out",
                                                 "rows",
                                                 "cols",
                                                 "heads",
                                                 "tokens",
                                                 "path",
#define CONFIG_TEXT(name, attribute, bytes, max) #name,
                                                 CUBLAS_CONFIG(CONFIG_TEXT)
#undef CONFIG_TEXT
                                                     "us",
                                                 "default_us"};

/* What whole numbers may be. */
static const struct {
    column c;
    i64 min, max;
} numbers[] = {{C_SMS, 1, 4096},     {C_CUBLAS, 0, 99999999}, {C_ROWS, 1, 1 << 24},
               {C_COLS, 1, 1 << 20}, {C_HEADS, 1, 4096},      {C_TOKENS, 1, 1 << 20}};

static status read_words(const table_reader *r, char *const *fields, gemm_row *row) {
    char what[160];
    const char *out = fields[C_OUT];
    snprintf(what, sizeof what, "there is no operation \"%.40s\"", fields[C_OP]);
    if (!gemm_op_of(fields[C_OP], &row->call.op)) return table_wrong(r, what);
    snprintf(what, sizeof what, "in is \"%.40s\": products are in bf16", fields[C_IN]);
    if (strcmp(fields[C_IN], "bf16")) return table_wrong(r, what);
    row->call.f32 = !strcmp(out, "f32");
    snprintf(what, sizeof what, "out is \"%.40s\": neither bf16 nor f32", out);
    if (!row->call.f32 && strcmp(out, "bf16")) return table_wrong(r, what);
    snprintf(what, sizeof what, "there is no path \"%.40s\"", fields[C_PATH]);
    return gemm_path_of(fields[C_PATH], &row->choice.path) ? ST_OK : table_wrong(r, what);
}

static status gemm_tuned_read_numbers(const table_reader *r, char *const *fields, gemm_row *row, i64 *sms) {
    gemm_call *c = &row->call;
    i64 v, *const to[] = {sms, &row->library, &c->rows, &c->cols, &c->heads, &c->tokens};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(numbers); i++)
        st = table_whole(r, numbers[i].c, fields[numbers[i].c], numbers[i].min, numbers[i].max, to[i]);
#define CONFIG_READ(name, attribute, bytes, max)                                                                       \
    if (st == ST_OK && fields[C_CONFIG_##name]) {                                                                      \
        st = table_whole(r, C_CONFIG_##name, fields[C_CONFIG_##name], 0, max, &v);                                     \
        if (st == ST_OK) row->choice.how.name = (i32)v;                                                                \
    }
    CUBLAS_CONFIG(CONFIG_READ)
#undef CONFIG_READ
    return st;
}

static status gemm_tuned_read_row(void *ud, const table_reader *r, char *const *fields) {
    gemm_table *t = ud;
    gemm_row row = {.line = r->line};
    i64 sms = 0;
    status st = table_chip(r, fields[C_CHIP]);
    if (st == ST_OK) st = read_words(r, fields, &row);
    if (st == ST_OK) st = gemm_tuned_read_numbers(r, fields, &row, &sms);
    if (st == ST_OK) st = table_time(r, C_US, fields[C_US], &row.us);
    if (st == ST_OK) st = table_time(r, C_DEFAULT_US, fields[C_DEFAULT_US], &row.default_us);
    if (st != ST_OK) return st;
    if (!gemm_allowed(&row.call, &row.choice, row.library))
        return table_wrong(r, "this path and these numbers are none for this call");
    if (sms != r->sms) return t->others++, ST_OK;
    st = table_grow(r, (void **)&t->rows, t->n, sizeof row);
    if (st == ST_OK) t->rows[t->n++] = row;
    return st;
}

static int gemm_tuned_by_shape(const gemm_call *a, const gemm_call *b) {
    const i64 x[] = {(i64)a->op, a->f32, a->rows, a->cols, a->heads},
              y[] = {(i64)b->op, b->f32, b->rows, b->cols, b->heads};
    for (size_t i = 0; i < COUNT_OF(x); i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* By shape, then the library's version, then tokens. */
static int by_key(const gemm_row *a, const gemm_call *c, i64 library, i64 tokens) {
    int shape = gemm_tuned_by_shape(&a->call, c);
    if (shape) return shape;
    if (a->library != library) return a->library < library ? -1 : 1;
    return (a->call.tokens > tokens) - (a->call.tokens < tokens);
}
static int by_row(const void *p, const void *q) {
    const gemm_row *a = p, *b = q;
    int key = by_key(a, &b->call, b->library, b->call.tokens);
    return key ? key : (a->line > b->line) - (a->line < b->line);
}

static status gemm_tuned_sort_rows(gemm_table *t, table_reader *r) {
    if (t->n) qsort(t->rows, (size_t)t->n, sizeof *t->rows, by_row);
    for (i64 i = 1; i < t->n; i++) {
        const gemm_row *a = &t->rows[i - 1], *b = &t->rows[i];
        char what[80];
        r->line = b->line;
        snprintf(what, sizeof what, "the same shape, library and tokens as in line %lld", (long long)a->line);
        if (!by_key(a, &b->call, b->library, b->call.tokens)) return table_wrong(r, what);
    }
    return ST_OK;
}

status gemm_parse(gemm_table *t, const char *text, u64 size, const char *name, const char *chip, int sms, err *e) {
    table_reader r = {.name = name,
                      .chip = chip,
                      .sms = sms,
                      .e = e,
                      .columns = gemm_tuned_columns,
                      .n_columns = C_COUNT,
                      .first_optional = C_PATH + 1,
                      .n_optional = C_US - C_PATH - 1,
                      .row = gemm_tuned_read_row,
                      .ud = t};
    *t = (gemm_table){0};
    status st = table_read(&r, text, size);
    if (st == ST_OK) st = gemm_tuned_sort_rows(t, &r);
    if (st != ST_OK) gemm_free(t);
    return st;
}

void gemm_free(gemm_table *t) {
    free(t->rows);
    *t = (gemm_table){0};
}

/* The first row that is not before this key. */
static i64 lower(const gemm_table *t, const gemm_call *c, i64 library, i64 tokens) {
    i64 low = 0, high = t->n;
    while (low < high) {
        i64 mid = low + (high - low) / 2;
        if (by_key(&t->rows[mid], c, library, tokens) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const gemm_row *of_shape(const gemm_table *t, i64 i, const gemm_call *c, i64 library) {
    if (i < 0 || i >= t->n || gemm_tuned_by_shape(&t->rows[i].call, c)) return NULL;
    return library < 0 || t->rows[i].library == library ? &t->rows[i] : NULL;
}

const gemm_row *gemm_find(const gemm_table *t, const gemm_call *c, i64 library) {
    i64 at = lower(t, c, library, c->tokens);
    const gemm_row *row = of_shape(t, at, c, library);
    if (row) return row->call.tokens <= 2 * c->tokens ? row : NULL; /* not one of far more tokens */
    return of_shape(t, at - 1, c, library);
}

const gemm_row *gemm_exact(const gemm_table *t, const gemm_call *c, i64 library) {
    const gemm_row *row = gemm_find(t, c, library);
    return row && row->call.tokens == c->tokens ? row : NULL;
}

bool gemm_is_foreign(const gemm_table *t, const gemm_call *c, i64 library) {
    const gemm_row *own = of_shape(t, lower(t, c, library, 0), c, library);
    return !own && of_shape(t, lower(t, c, -1, 0), c, -1);
}

bool gemm_header(buf *out) {
    for (int c = 0; c < C_COUNT; c++) buf_fmt(out, "%s%s", c ? "," : "", gemm_tuned_columns[c]);
    buf_char(out, '\n');
    return !out->failed;
}

bool gemm_line(buf *out, const char *chip, int sms, const gemm_row *row) {
    const gemm_call *c = &row->call;
    buf_fmt(out, "%s,%d,%lld,%s,bf16,%s,%lld,%lld,%lld,%lld,%s", chip, sms, (long long)row->library,
            gemm_op_text(c->op), c->f32 ? "f32" : "bf16", (long long)c->rows, (long long)c->cols, (long long)c->heads,
            (long long)c->tokens, gemm_path_text(row->choice.path));
#define CONFIG_WRITE(name, attribute, bytes, max) buf_fmt(out, ",%d", row->choice.how.name);
    CUBLAS_CONFIG(CONFIG_WRITE)
#undef CONFIG_WRITE
    buf_fmt(out, ",%.2f,%.2f\n", row->us, row->default_us);
    return !out->failed;
}
